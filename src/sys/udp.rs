//! UDP in batches: segmentation offload out, coalesced reception in, several messages per system call.
//!
//! One [`UdpSocket`] serves both families when it is bound to no address. Nothing here waits: what cannot be done at once
//! is `WouldBlock`.
#![allow(unsafe_code)]

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

mod address;
mod errors;
mod receive;
mod send;

pub use errors::NetworkError;
pub use receive::{ReceiveBatch, Received};
pub use send::{SendScratch, Transmit};

/// The most that one datagram can carry over IPv4: 65,535 bytes less the IP and UDP headers.
pub const MAX_PAYLOAD_IPV4: usize = 65_507;
/// The same over IPv6, whose length field does not count its own header.
pub const MAX_PAYLOAD_IPV6: usize = 65_527;
/// Segments of one `UDP_SEGMENT` send that every kernel takes (`UDP_MAX_SEGMENTS`; 128 since Linux 6.9).
pub const MAX_SEGMENTS: usize = 64;
/// Messages that one system call moves at most.
pub const MAX_MESSAGES: usize = 64;

/// Where a socket is bound, and how it marks its packets.
#[derive(Debug, Clone, Default)]
pub struct UdpOptions {
    /// Local address; `None`: any, of both families where there is IPv6.
    pub address: Option<IpAddr>,
    /// Local port, 0 for any.
    pub port: u16,
    /// `SO_BINDTODEVICE`.
    pub device: Option<String>,
    /// `SO_MARK`.
    pub fwmark: Option<u32>,
    /// Bytes to ask for as receive and as send buffer.
    pub buffer: usize,
    /// Whether to try `UDP_SEGMENT` and `UDP_GRO` at all.
    pub offload: bool,
    /// `SO_REUSEPORT`: several sockets share the port, and the kernel gives each sender's datagrams to one of them.
    pub shared: bool,
}

/// What a socket was granted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UdpGranted {
    /// `UDP_SEGMENT` is known.
    pub gso: bool,
    /// `UDP_GRO` is on.
    pub gro: bool,
    /// Receive buffer in bytes as asked for; the kernel reports twice that.
    pub receive_buffer: usize,
    /// Send buffer, likewise.
    pub send_buffer: usize,
    /// Both buffers were set past the sysctl limit.
    pub forced: bool,
}

impl UdpGranted {
    /// What both have.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            gso: self.gso && other.gso,
            gro: self.gro && other.gro,
            receive_buffer: self.receive_buffer.min(other.receive_buffer),
            send_buffer: self.send_buffer.min(other.send_buffer),
            forced: self.forced && other.forced,
        }
    }
}

/// A bound UDP socket that never waits.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Socket,
    /// IPv6 with IPv4 mapped into it.
    dual: bool,
    granted: UdpGranted,
}

impl UdpSocket {
    /// Binds a socket.
    ///
    /// # Errors
    /// The kernel's: `EADDRINUSE`, `EADDRNOTAVAIL`, `ENODEV`, `EPERM` for a mark without CAP_NET_ADMIN.
    pub fn bind(options: &UdpOptions) -> io::Result<Self> {
        let (socket, dual) = match options.address {
            Some(address) => (Socket::new(domain(address), Type::DGRAM, Some(Protocol::UDP))?, false),
            None => match dual_stack() {
                Ok(socket) => (socket, true),
                // No IPv6 on this host: IPv4 alone is all there is to reach.
                Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
                    (Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?, false)
                }
                Err(error) => return Err(error),
            },
        };
        socket.set_nonblocking(true)?;
        if options.shared {
            socket.set_reuse_port(true)?;
        }
        if let Some(device) = &options.device {
            socket.bind_device(Some(device.as_bytes()))?;
        }
        if let Some(mark) = options.fwmark {
            socket.set_mark(mark)?;
        }
        let address = options.address.unwrap_or(if dual {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        } else {
            IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)
        });
        let is_ipv6 = address.is_ipv6();
        // Like the kernel's WireGuard, let routers and this host fragment what does not fit: a tunnel must not stall.
        if is_ipv6 {
            set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT)?;
            set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
        }
        if !is_ipv6 || dual {
            set_option(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT)?;
            set_option(&socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1)?;
        }
        let mut granted = UdpGranted::default();
        if options.offload {
            granted.gso = set_option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
            granted.gro = set_option(&socket, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
        }
        let receive = set_buffer(&socket, options.buffer, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)?;
        let send = set_buffer(&socket, options.buffer, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)?;
        granted.forced = receive && send;
        // socket(7): the kernel doubles the value for its own bookkeeping, and returns the doubled one.
        granted.receive_buffer = socket.recv_buffer_size()? / 2;
        granted.send_buffer = socket.send_buffer_size()? / 2;
        socket.bind(&SockAddr::from(SocketAddr::new(address, options.port)))?;
        Ok(Self { socket, dual, granted })
    }

    /// The local port.
    ///
    /// # Errors
    /// The kernel's.
    pub fn port(&self) -> io::Result<u16> {
        let address = self.socket.local_addr()?;
        address.as_socket().map(|address| address.port()).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Lets sockets that are bound as `shared` have this one's port, too.
    ///
    /// # Errors
    /// The kernel's.
    pub fn share_port(&self) -> io::Result<()> {
        self.socket.set_reuse_port(true)
    }

    /// What was granted.
    #[must_use]
    pub fn granted(&self) -> UdpGranted {
        self.granted
    }

    /// Changes `SO_MARK`; 0 clears it.
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_ADMIN.
    pub fn set_mark(&self, mark: u32) -> io::Result<()> {
        self.socket.set_mark(mark)
    }

    /// Datagrams that this socket dropped because its receive buffer was full (`SO_MEMINFO`).
    ///
    /// # Errors
    /// The kernel's.
    pub fn dropped(&self) -> io::Result<u64> {
        // linux/sock_diag.h: SK_MEMINFO_DROPS is the ninth and last of these.
        const SK_MEMINFO_DROPS: usize = 8;
        let mut info = [0_u32; 9];
        let mut length = size_of_val(&info) as libc::socklen_t;
        // SAFETY: `info` is writable for `length` bytes, and the kernel writes no more than that.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                info.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        if (length as usize) < size_of_val(&info) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(u64::from(info[SK_MEMINFO_DROPS]))
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn domain(address: IpAddr) -> Domain {
    if address.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 }
}

fn dual_stack() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_only_v6(false)?;
    Ok(socket)
}

/// Sets a buffer past the sysctl's limit where that is allowed (CAP_NET_ADMIN), else up to the limit.
fn set_buffer(socket: &Socket, bytes: usize, force: libc::c_int, plain: libc::c_int) -> io::Result<bool> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    if set_option(socket, libc::SOL_SOCKET, force, bytes).is_ok() {
        return Ok(true);
    }
    set_option(socket, libc::SOL_SOCKET, plain, bytes)?;
    Ok(false)
}

fn set_option(socket: &Socket, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the option value is one int, readable for the length that is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// An address as the socket's family writes it.
fn mapped(address: SocketAddr, dual: bool) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if dual => SocketAddr::V6(SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0)),
        SocketAddr::V4(_) | SocketAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests;
