//! Whole messages on TCP connections.

use std::io::Read;

use socket2::Socket;

use super::TrafficError;
use super::control::Control;
use super::sockets::{failed, is_end, is_tick};

/// Fills `buffer`; false if the connection, or the job, ends before.
pub(super) fn receive(control: &Control, socket: &Socket, buffer: &mut [u8]) -> Result<bool, TrafficError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match { socket }.read(&mut buffer[filled..]) {
            Ok(0) => return Ok(false),
            Ok(count) => filled += count,
            Err(error) if is_end(&error) => return Ok(false),
            Err(error) if is_tick(&error) => {
                if control.stopped() {
                    return Ok(false);
                }
                control.may_go_on(|| "the next message".to_owned())?;
            }
            Err(error) => return Err(failed("receiving")(error)),
        }
    }
    Ok(true)
}

/// Sends all of `bytes`; false if the connection, or the job, ends before.
pub(super) fn send(control: &Control, socket: &Socket, bytes: &[u8]) -> Result<bool, TrafficError> {
    let mut sent = 0;
    while sent < bytes.len() {
        match socket.send_with_flags(&bytes[sent..], libc::MSG_NOSIGNAL) {
            Ok(count) => sent += count,
            Err(error) if is_end(&error) => return Ok(false),
            Err(error) if is_tick(&error) => {
                if control.stopped() {
                    return Ok(false);
                }
                control.may_go_on(|| "room for the next message".to_owned())?;
            }
            Err(error) => return Err(failed("sending")(error)),
        }
    }
    Ok(true)
}
