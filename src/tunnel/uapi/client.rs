//! The client's end of a UAPI socket.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::{GetDevice, SetDevice, UapiError, parse_set_answer};
use crate::tunnel::TunnelError;
use crate::tunnel::engine::embedded::Report;
use crate::tunnel::keys::PublicKey;
use crate::tunnel::status::Handshakes;

/// Where userspace implementations listen, and where `wg` looks.
pub(in crate::tunnel) const SOCKET_DIR: &str = "/var/run/wireguard";

/// An engine that does not answer within this time hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// 100,000 peers with some prefixes each; more than that is not an answer.
const ANSWER_LIMIT: usize = 64 << 20;

pub(in crate::tunnel) fn socket_path(interface: &str) -> PathBuf {
    PathBuf::from(SOCKET_DIR).join(format!("{interface}.sock"))
}

/// Whether something listens at the interface's socket.
pub(in crate::tunnel) fn is_listening(interface: &str) -> bool {
    UnixStream::connect(socket_path(interface)).is_ok()
}

pub(in crate::tunnel) fn get(interface: &str) -> Result<GetDevice, TunnelError> {
    const ACTION: &str = "read";
    let answer = ask(interface, "get=1\n\n", ACTION)?;
    GetDevice::parse(&answer).map_err(|source| refused(interface, ACTION, source))
}

pub(in crate::tunnel) fn set(interface: &str, request: &SetDevice) -> Result<(), TunnelError> {
    const ACTION: &str = "configure";
    let answer = ask(interface, &request.encode(), ACTION)?;
    parse_set_answer(&answer).map_err(|source| refused(interface, ACTION, source))
}

/// The embedded engine's own request: one line of JSON, which no `wg` asks for.
pub(in crate::tunnel) fn status(interface: &str) -> Result<Report, TunnelError> {
    json(interface, "status=1\n\n", "read the counters of")
}

/// The same of new sessions with the peer `key`, made for `time`.
pub(in crate::tunnel) fn handshakes(
    interface: &str,
    key: &PublicKey,
    time: Duration,
) -> Result<Handshakes, TunnelError> {
    let request = format!("handshakes=1\npublic_key={}\nnanoseconds={}\n\n", key.to_hex(), time.as_nanos());
    json(interface, &request, "shake hands through")
}

/// A request that is answered by one line of JSON.
fn json<T: DeserializeOwned>(interface: &str, request: &str, action: &'static str) -> Result<T, TunnelError> {
    let answer = ask(interface, request, action)?;
    let line = answer.lines().next().unwrap_or_default();
    if line.starts_with("errno=") {
        parse_set_answer(&answer).map_err(|source| refused(interface, action, source))?;
    }
    serde_json::from_str(line).map_err(|error| TunnelError::Socket {
        action,
        interface: interface.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidData, error),
    })
}

fn refused(interface: &str, action: &'static str, source: UapiError) -> TunnelError {
    TunnelError::Uapi { action, interface: interface.to_owned(), source }
}

/// One connection per request: some implementations close after one, some wait for the client to close.
fn ask(interface: &str, request: &str, action: &'static str) -> Result<Zeroizing<String>, TunnelError> {
    let failed = |source| TunnelError::Socket { action, interface: interface.to_owned(), source };
    let connect = || -> io::Result<Zeroizing<String>> {
        let mut stream = UnixStream::connect(socket_path(interface))?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = Zeroizing::new(String::with_capacity(16 << 10));
        let mut reader = BufReader::new(stream);
        loop {
            let begin = answer.len();
            if reader.read_line(&mut answer)? == 0 {
                return Ok(answer);
            }
            // The answer ends with an empty line after its errno line.
            if &answer[begin..] == "\n" && answer[..begin].lines().last().is_some_and(|last| last.starts_with("errno="))
            {
                return Ok(answer);
            }
            if answer.len() > ANSWER_LIMIT {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is too long"));
            }
        }
    };
    connect().map_err(failed)
}
