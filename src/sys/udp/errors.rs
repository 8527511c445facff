//! The socket's error queue: what ICMP said about earlier sends.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;

use super::UdpSocket;
use super::address::RawAddress;

/// An error that the network reported for something this socket sent (ip(7), `IP_RECVERR`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkError {
    /// Where the packet was going.
    pub destination: SocketAddr,
    /// What the report means: `ECONNREFUSED`, `EHOSTUNREACH`, `EMSGSIZE`, ...
    pub errno: i32,
    /// Whether a host or router said it, and not this machine itself.
    pub from_network: bool,
}

/// Room for one control message with a `sock_extended_err` and the offender's address behind it.
#[repr(C, align(8))]
struct ErrorControl {
    header: libc::cmsghdr,
    error: libc::sock_extended_err,
    offender: RawAddress,
    /// A second message would be a timestamp or the like; none is asked for, but room does no harm.
    spare: [u8; 64],
}

impl UdpSocket {
    /// Takes the oldest report from the error queue; `None` if there is none.
    ///
    /// # Errors
    /// The kernel's, other than an empty queue.
    pub fn take_network_error(&self) -> io::Result<Option<NetworkError>> {
        let mut name = RawAddress::empty();
        // The failed datagram itself is of no use; what does not fit is cut.
        let mut data = [0_u8; 64];
        let mut vector = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
        let mut control = ErrorControl {
            header: libc::cmsghdr { cmsg_len: 0, cmsg_level: 0, cmsg_type: 0 },
            error: libc::sock_extended_err {
                ee_errno: 0,
                ee_origin: 0,
                ee_type: 0,
                ee_code: 0,
                ee_pad: 0,
                ee_info: 0,
                ee_data: 0,
            },
            offender: RawAddress::empty(),
            spare: [0; 64],
        };
        let mut header = libc::msghdr {
            msg_name: (&raw mut name).cast(),
            msg_namelen: RawAddress::SIZE,
            msg_iov: &raw mut vector,
            msg_iovlen: 1,
            msg_control: (&raw mut control).cast(),
            msg_controllen: size_of::<ErrorControl>(),
            msg_flags: 0,
        };
        // SAFETY: `header` points at `name`, `vector` (and through it `data`) and `control`, all writable for the lengths
        // that it gives, and all alive until the call ends.
        let result =
            unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
        if result < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        }
        let is_error = matches!(
            (control.header.cmsg_level, control.header.cmsg_type),
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        );
        let whole = control.header.cmsg_len >= size_of::<libc::cmsghdr>() + size_of::<libc::sock_extended_err>();
        match name.get() {
            Some(destination) if is_error && whole => Ok(Some(NetworkError {
                destination,
                errno: i32::try_from(control.error.ee_errno).unwrap_or(libc::EIO),
                from_network: matches!(control.error.ee_origin, libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6),
            })),
            // Something else that a later kernel may queue: it is gone now, and the next one may be a report.
            _ => self.take_network_error(),
        }
    }
}
