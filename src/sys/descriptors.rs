//! What another process holds open, looked at through descriptors of our own (proc(5), `/proc/PID/fd`; pidfd_getfd(2)).

use std::fs;
use std::io;
use std::path::Path;

use socket2::{Domain, SockRef, Type};

use super::pidfd::PidFd;
use super::socket::get_int;
use super::tun::device_of;

/// A UDP socket of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpHeld {
    /// The port that it is bound to; 0 while it is bound to none.
    pub port: u16,
    /// Bytes of its receive buffer, as asked for: the kernel doubles them.
    pub receive_buffer: u64,
    /// The same of its send buffer.
    pub send_buffer: u64,
    /// Whether datagrams arrive in super-packets (`UDP_GRO`).
    pub gro: bool,
}

/// A queue of a TUN device that a process holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunHeld {
    /// The device.
    pub interface: String,
    /// Whether packets carry a virtio-net header, without which the kernel hands over no super-packets.
    pub vnet_hdr: bool,
}

/// The UDP sockets and TUN queues that the process `pid` holds. What it closes meanwhile is left out.
///
/// # Errors
/// The process is gone, or may not be looked into.
pub fn held(pid: u32) -> io::Result<(Vec<UdpHeld>, Vec<TunHeld>)> {
    let process = PidFd::open(pid)?;
    let (mut sockets, mut tuns) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        let (Some(number), Ok(target)) = (number, fs::read_link(&path)) else { continue };
        let is_tun = target == Path::new("/dev/net/tun");
        if !is_tun && !target.to_string_lossy().starts_with("socket:") {
            continue;
        }
        let descriptor = match process.descriptor(number) {
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => continue,
            other => other?,
        };
        if is_tun {
            // A descriptor that is attached to no device yet has none.
            if let Ok((interface, vnet_hdr)) = device_of(&descriptor) {
                tuns.push(TunHeld { interface, vnet_hdr });
            }
        } else {
            sockets.extend(udp(&SockRef::from(&descriptor))?);
        }
    }
    Ok((sockets, tuns))
}

/// What the socket is, if it is a UDP one.
fn udp(socket: &SockRef<'_>) -> io::Result<Option<UdpHeld>> {
    let domain = socket.domain()?;
    if ![Domain::IPV4, Domain::IPV6].contains(&domain) || socket.r#type()? != Type::DGRAM {
        return Ok(None);
    }
    Ok(Some(UdpHeld {
        port: socket.local_addr()?.as_socket().map_or(0, |address| address.port()),
        receive_buffer: socket.recv_buffer_size()? as u64 / 2,
        send_buffer: socket.send_buffer_size()? as u64 / 2,
        gro: get_int(&**socket, libc::SOL_UDP, libc::UDP_GRO)? != 0,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_childs_socket_is_seen_with_its_buffers() {
        use std::os::fd::OwnedFd;
        use std::process::{Command, Stdio};
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        SockRef::from(&socket).set_recv_buffer_size(50_000).unwrap();
        let port = socket.local_addr().unwrap().port();
        // As its standard input it is open in the child.
        let mut child = Command::new("/bin/sleep").arg("60").stdin(Stdio::from(OwnedFd::from(socket))).spawn().unwrap();
        let found = held(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        let (sockets, tuns) = found.unwrap();
        assert!(tuns.is_empty());
        let [held] = sockets.iter().filter(|held| held.port == port).copied().collect::<Vec<_>>()[..] else {
            panic!("{sockets:?}");
        };
        assert_eq!(held.receive_buffer, 50_000);
        assert!(!held.gro);
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        assert!(held(u32::MAX).is_err());
    }
}
