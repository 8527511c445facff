//! Socket options that the standard library and socket2 do not offer.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Reads a socket option into `buffer`; returns the part that the kernel filled.
///
/// # Errors
/// The error of `getsockopt`.
pub fn get_option<'a>(socket: &impl AsFd, level: i32, name: i32, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let mut length = libc::socklen_t::try_from(buffer.len()).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: the descriptor is borrowed for the call; `buffer` is writable for `length` bytes, which is at most its
    // size; `length` is a valid in-out parameter.
    let result = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), level, name, buffer.as_mut_ptr().cast(), &raw mut length)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(&buffer[..(length as usize).min(buffer.len())])
}

/// Reads an integer option.
///
/// # Errors
/// The error of `getsockopt`.
pub fn get_int(socket: &impl AsFd, level: i32, name: i32) -> io::Result<i32> {
    let mut bytes = [0; 4];
    get_option(socket, level, name, &mut bytes)?;
    Ok(i32::from_ne_bytes(bytes))
}

/// Sets an integer option.
///
/// # Errors
/// The error of `setsockopt`.
pub fn set_int(socket: &impl AsFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed for the call; the value pointer is readable for the four bytes that are told.
    let result = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, (&raw const value).cast(), size_of::<i32>() as u32)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets `bind` to an address leave the choice of the port to `connect`, which may then share a port among
/// connections to different peers (`IP_BIND_ADDRESS_NO_PORT`, Linux 4.2; good for IPv6 sockets as well).
///
/// # Errors
/// The error of `setsockopt`.
pub fn bind_address_no_port(socket: &impl AsFd) -> io::Result<()> {
    set_int(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

/// Datagrams that the kernel dropped since the socket was made because its receive buffer was full
/// (`SK_MEMINFO_DROPS` of `SO_MEMINFO`, Linux 4.12; `include/uapi/linux/sock_diag.h`).
///
/// # Errors
/// The error of `getsockopt`, or `InvalidData` where the kernel's answer has no such field.
pub fn receive_drops(socket: &impl AsFd) -> io::Result<u32> {
    const SK_MEMINFO_DROPS: usize = 8;
    let mut bytes = [0u8; 64];
    let filled = get_option(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut bytes)?;
    let field = filled.get(SK_MEMINFO_DROPS * 4..SK_MEMINFO_DROPS * 4 + 4).and_then(|field| field.try_into().ok());
    field.map(u32::from_ne_bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "SO_MEMINFO without drops"))
}

/// The path MTU that the kernel holds for a connected socket.
///
/// # Errors
/// `ENOTCONN` for a socket without a peer, or the error of `getsockopt`.
pub fn path_mtu(socket: &impl AsFd, is_ipv6: bool) -> io::Result<u32> {
    let (level, name) = if is_ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_MTU) } else { (libc::IPPROTO_IP, libc::IP_MTU) };
    get_int(socket, level, name).map(|mtu| u32::try_from(mtu).unwrap_or(0))
}

/// The MTU of an interface in the socket's network namespace.
///
/// # Errors
/// `ENODEV` for an unknown name, `InvalidInput` for one longer than 15 bytes.
pub fn interface_mtu(socket: &impl AsFd, interface: &str) -> io::Result<u32> {
    if interface.len() >= libc::IFNAMSIZ {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "an interface name has 15 bytes at most"));
    }
    // SAFETY: `ifreq` is plain old data: all zero bytes are a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the descriptor is borrowed for the call; SIOCGIFMTU reads `ifr_name`, which ends in a zero byte as
    // checked above, and writes `ifru_mtu` of the same valid structure.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: after a successful SIOCGIFMTU the union holds `ifru_mtu`; every bit pattern is a valid integer.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(u32::try_from(mtu).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_full_receive_buffer_drops_and_counts_exactly() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        set_int(&receiver, libc::SOL_SOCKET, libc::SO_RCVBUF, 4096).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            sender.send_to(&[0; 500], receiver.local_addr().unwrap()).unwrap();
        }
        receiver.set_nonblocking(true).unwrap();
        let received = std::iter::from_fn(|| receiver.recv(&mut [0; 600]).ok()).count();
        assert_eq!(received as u32 + receive_drops(&receiver).unwrap(), 100);
        assert!(received < 100);
    }

    #[test]
    fn loopback_has_an_mtu_and_other_names_do_not() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(interface_mtu(&socket, "lo").unwrap() >= 1280);
        assert_eq!(interface_mtu(&socket, "nosuch0").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert_eq!(interface_mtu(&socket, "a-name-too-long1").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(path_mtu(&socket, false).unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
    }
}
