//! Opening sockets as a job asks for them, and reading back what was granted.

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::sys::socket::sockopt;
use socket2::{Domain, Protocol, Socket, Type};

use super::TrafficError;
use super::control::{Control, TICK, nanoseconds};
use super::job::{Buffers, Job};
use super::outcome::{Caution, Conditions, Granted};
use crate::sys::{clock, socket as sys};

/// A connection that was accepted must say which it is within this time.
const HELLO_WITHIN: Duration = Duration::from_secs(1);
/// A connection that is not there by then is an error, even if the job's deadline is later.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Names the failed call.
pub(super) fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> TrafficError {
    let what = what.into();
    move |source| TrafficError::Socket { what, source }
}

/// Whether a call only timed out, or was interrupted: look at the job's control, and call again.
pub(super) fn is_tick(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Whether a connection was ended by its other end.
pub(super) fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// The peer's address with one of its ports.
pub(super) fn peer(job: &Job, port_index: usize) -> Result<SocketAddr, TrafficError> {
    let bad = |reason: &str| TrafficError::BadJob { reason: reason.to_owned() };
    let (address, ports) = job.peer.as_ref().ok_or_else(|| bad("a client needs its peer"))?;
    let port = ports.get(port_index).ok_or_else(|| bad("the peer's ports are fewer than the job needs"))?;
    socket_address(job, *address, *port)
}

/// An address with its scope: a link-local IPv6 address means nothing without its interface.
pub(super) fn socket_address(job: &Job, address: IpAddr, port: u16) -> Result<SocketAddr, TrafficError> {
    match (address, &job.local_interface) {
        (IpAddr::V6(v6), Some(interface)) if v6.is_unicast_link_local() => {
            let index = nix::net::if_::if_nametoindex(interface.as_str())
                .map_err(|errno| failed(format!("looking up interface {interface}"))(errno.into()))?;
            Ok(SocketAddrV6::new(v6, port, 0, index).into())
        }
        _ => Ok(SocketAddr::new(address, port)),
    }
}

/// A socket of the job's family, bound to its interface, not yet to its address.
pub(super) fn open(job: &Job, kind: Type, protocol: Protocol) -> Result<Socket, TrafficError> {
    let socket = Socket::new(if job.local.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 }, kind, Some(protocol))
        .map_err(failed("opening a socket"))?;
    if let Some(interface) = &job.local_interface {
        socket
            .bind_device(Some(interface.as_bytes()))
            .map_err(failed(format!("binding a socket to interface {interface}")))?;
    }
    Ok(socket)
}

/// Binds a socket to the job's address.
pub(super) fn bind(job: &Job, socket: &Socket) -> Result<(), TrafficError> {
    let address = socket_address(job, job.local, 0)?;
    socket.bind(&address.into()).map_err(failed(format!("binding a socket to {}", job.local)))
}

/// A port that a bound socket has.
pub(super) fn port(socket: &Socket) -> Result<u16, TrafficError> {
    let address = socket.local_addr().map_err(failed("reading a socket's address"))?;
    address.as_socket().map(|address| address.port()).ok_or_else(|| {
        failed("reading a socket's port")(io::Error::new(io::ErrorKind::InvalidData, "not an internet address"))
    })
}

/// Lets blocking calls on `socket` return every [`TICK`].
pub(super) fn tick(socket: &Socket) -> Result<(), TrafficError> {
    socket.set_read_timeout(Some(TICK)).map_err(failed("setting a receive time-out"))?;
    socket.set_write_timeout(Some(TICK)).map_err(failed("setting a send time-out"))
}

/// Lets receive calls on `socket` wait without end: a time-out costs a timer for every wait, some 2 % of a short round
/// trip. For jobs that [`Control::guard`].
pub(super) fn no_tick(socket: &Socket) -> Result<(), TrafficError> {
    socket.set_read_timeout(None).map_err(failed("clearing a receive time-out"))
}

/// A TCP socket that listens on an ephemeral port of the job's address.
pub(super) fn listen(job: &Job, backlog: u16, buffers: Buffers) -> Result<Socket, TrafficError> {
    let socket = open(job, Type::STREAM, Protocol::TCP)?;
    ask_buffers(&socket, buffers)?;
    set_congestion_control(job, &socket)?;
    bind(job, &socket)?;
    socket.listen(i32::from(backlog)).map_err(failed(format!("listening on {}", job.local)))?;
    tick(&socket)?;
    Ok(socket)
}

/// A TCP socket, ready to connect.
pub(super) fn tcp_socket(job: &Job, buffers: Buffers) -> Result<Socket, TrafficError> {
    let socket = open(job, Type::STREAM, Protocol::TCP)?;
    ask_buffers(&socket, buffers)?;
    set_congestion_control(job, &socket)?;
    sys::bind_address_no_port(&socket).map_err(failed("IP_BIND_ADDRESS_NO_PORT"))?;
    bind(job, &socket)?;
    Ok(socket)
}

/// Connects to the peer's port and says which stream of which job this is.
pub(super) fn connect(job: &Job, port_index: usize, stream: u16, buffers: Buffers) -> Result<Socket, TrafficError> {
    let peer = peer(job, port_index)?;
    let socket = tcp_socket(job, buffers)?;
    socket
        .connect_timeout(&peer.into(), CONNECT_WITHIN.min(job.deadline))
        .map_err(|source| TrafficError::Connect { peer, source })?;
    // 16 bytes into the empty buffer of a new connection: taken at once and whole.
    socket
        .send_with_flags(&hello(job.seed, stream), libc::MSG_NOSIGNAL)
        .map_err(|source| TrafficError::Connect { peer, source })?;
    tick(&socket)?;
    Ok(socket)
}

/// Accepts the next connection that belongs to this job; tells its stream. Others are refused and counted.
pub(super) fn accept(control: &Control, job: &Job, listener: &Socket) -> Result<(Arc<Socket>, u16), TrafficError> {
    loop {
        control.may_go_on(|| format!("a connection to {} from the client", job.local))?;
        let (socket, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if is_tick(&error) || error.kind() == io::ErrorKind::ConnectionAborted => continue,
            // Woken by the end of the job.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && control.stopped() => continue,
            Err(error) => return Err(failed("accepting a connection")(error)),
        };
        let expected = job.peer.as_ref().map(|(address, _)| *address);
        let from = from.as_socket().map(|from| from.ip());
        if expected.is_none() || expected == from {
            tick(&socket)?;
            if let Some(stream) = read_hello(job, &socket) {
                let socket = Arc::new(socket);
                control.watch(&socket);
                return Ok((socket, stream));
            }
        }
        control.strangers.fetch_add(1, Ordering::Relaxed);
    }
}

const HELLO_MAGIC: [u8; 6] = *b"wglab\x01";

/// The first bytes of each connection: which job, which stream.
fn hello(seed: u64, stream: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&HELLO_MAGIC);
    bytes[6..8].copy_from_slice(&stream.to_be_bytes());
    bytes[8..].copy_from_slice(&seed.to_be_bytes());
    bytes
}

/// `None` for anybody who is not the job's client.
fn read_hello(job: &Job, socket: &Socket) -> Option<u16> {
    let until_ns = clock::now_ns() + nanoseconds(HELLO_WITHIN);
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        match (&*socket).read(&mut bytes[filled..]) {
            Ok(0) => return None,
            Ok(count) => filled += count,
            Err(error) if is_tick(&error) && clock::now_ns() < until_ns => {}
            // A stranger's connection that fails is a stranger's matter.
            Err(_) => return None,
        }
    }
    let stream = u16::from_be_bytes([bytes[6], bytes[7]]);
    (bytes == hello(job.seed, stream)).then_some(stream)
}

/// A UDP socket bound to an ephemeral port of the job's address.
pub(super) fn udp_socket(job: &Job, buffers: Buffers) -> Result<UdpSocket, TrafficError> {
    let socket = open(job, Type::DGRAM, Protocol::UDP)?;
    ask_buffers(&socket, buffers)?;
    bind(job, &socket)?;
    tick(&socket)?;
    Ok(socket.into())
}

/// Sets the job's congestion control. Any that is loaded may be set with CAP_NET_ADMIN in the namespace's owner; without it
/// only those of `net.ipv4.tcp_allowed_congestion_control`.
fn set_congestion_control(job: &Job, socket: &Socket) -> Result<(), TrafficError> {
    let Some(asked) = &job.congestion_control else { return Ok(()) };
    socket.set_tcp_congestion(asked.as_bytes()).map_err(|source| {
        let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
        TrafficError::CongestionControl {
            asked: asked.clone(),
            available: available.map_or_else(|error| format!("unknown ({error})"), |names| names.trim().to_owned()),
            source,
        }
    })
}

/// Asks for buffers: with privilege beyond the system's limit, else as far as it goes. What was granted is read back later.
fn ask_buffers(socket: &Socket, buffers: Buffers) -> Result<(), TrafficError> {
    if let Some(asked) = buffers.send {
        let size = usize::try_from(asked.get()).unwrap_or(usize::MAX);
        if nix::sys::socket::setsockopt(socket, sockopt::SndBufForce, &size).is_err() {
            socket.set_send_buffer_size(size).map_err(failed(format!("asking for a sending buffer of {asked}")))?;
        }
    }
    if let Some(asked) = buffers.receive {
        let size = usize::try_from(asked.get()).unwrap_or(usize::MAX);
        if nix::sys::socket::setsockopt(socket, sockopt::RcvBufForce, &size).is_err() {
            socket.set_recv_buffer_size(size).map_err(failed(format!("asking for a receiving buffer of {asked}")))?;
        }
    }
    Ok(())
}

/// Reads back what holds for a live socket. What the kernel does not tell is absent.
pub(super) fn conditions(job: &Job, socket: &Socket, buffers: Buffers) -> Conditions {
    let interface = interface_of(job.local);
    let granted = |asked: Option<crate::units::Bytes>, granted: io::Result<usize>| {
        granted.ok().map(|granted| Granted { asked: asked.map(crate::units::Bytes::get), granted: granted as u64 })
    };
    let is_tcp = socket.r#type().ok() == Some(Type::STREAM);
    Conditions {
        local: socket.local_addr().ok().and_then(|address| address.as_socket()),
        peer: socket.peer_addr().ok().and_then(|address| address.as_socket()),
        bound_interface: socket.device().ok().flatten().map(|name| String::from_utf8_lossy(&name).into_owned()),
        interface_mtu: interface.as_ref().and_then(|interface| sys::interface_mtu(socket, interface).ok()),
        interface,
        path_mtu: sys::path_mtu(socket, job.local.is_ipv6()).ok(),
        mss: is_tcp.then(|| socket.tcp_mss().ok()).flatten(),
        congestion_control: is_tcp.then(|| congestion_control(socket).ok()).flatten(),
        send_buffer: granted(buffers.send, socket.send_buffer_size()),
        receive_buffer: granted(buffers.receive, socket.recv_buffer_size()),
        icmp_socket: None,
    }
}

/// The congestion control of a live connection.
fn congestion_control(socket: &Socket) -> io::Result<String> {
    let name = socket.tcp_congestion()?;
    Ok(String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned())
}

/// Fails where the live connection does not have the congestion control that the job names.
pub(super) fn verify_congestion_control(job: &Job, socket: &Socket) -> Result<(), TrafficError> {
    let Some(asked) = &job.congestion_control else { return Ok(()) };
    let live = congestion_control(socket).map_err(failed("reading a connection's congestion control"))?;
    if live == *asked { Ok(()) } else { Err(TrafficError::CongestionControlDiffers { asked: asked.clone(), live }) }
}

/// Cautions about buffers that are smaller than asked for. The kernel doubles what it is asked (socket(7)).
pub(super) fn buffer_cautions(conditions: &Conditions) -> Vec<Caution> {
    let check = |name: &str, buffer: Option<Granted>| {
        let buffer = buffer?;
        let asked = buffer.asked?;
        (buffer.granted < asked.saturating_mul(2)).then(|| Caution::BufferNotGranted {
            buffer: name.to_owned(),
            asked,
            granted: buffer.granted / 2,
        })
    };
    check("send", conditions.send_buffer).into_iter().chain(check("receive", conditions.receive_buffer)).collect()
}

/// The interface that holds an address.
fn interface_of(address: IpAddr) -> Option<String> {
    nix::ifaddrs::getifaddrs().ok()?.find_map(|interface| {
        let held = interface.address?;
        let held = held
            .as_sockaddr_in()
            .map(|v4| IpAddr::V4(v4.ip()))
            .or_else(|| held.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())));
        (held == Some(address)).then_some(interface.interface_name)
    })
}
