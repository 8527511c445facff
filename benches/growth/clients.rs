//! Peers without an engine: each is the protocol's state and a socket, and all are looked after by one thread.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519;
use ipnet::IpNet;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use wglab::packet::checksum::{Sum, pseudo_header};
use wglab::sys::clock;
use wglab::sys::socket::set_int;
use wglab::tunnel::{PeerSpec, PublicKey};

use crate::world::{HUB_INNER, HUB_OUTER, HUB_PORT, PEERS_OUTER, Place, World, peer};

/// More do not fit into the inner addresses, nor into most limits on open files.
pub(crate) const MOST: u32 = 10_000;
/// Who is not up after this long never will be.
const PATIENCE: Duration = Duration::from_secs(30);
/// The protocol calls again after this long (REKEY_TIMEOUT, WireGuard paper section 6.1).
const CALL_AGAIN: Duration = Duration::from_secs(5);
/// How often trickling packets are sent. Those of one time go together.
const BEAT: Duration = Duration::from_millis(1);
const ECHO_PORT: u16 = 7;
/// An inner packet that trickles: its length as IP counts it.
const TRICKLE_BYTES: usize = 200;
/// What only responses and data messages begin with.
const RESPONSE: u8 = 2;
const DATA: u8 = 4;

struct Client {
    secret: x25519::StaticSecret,
    public: PublicKey,
    inner: Ipv4Addr,
    socket: UdpSocket,
    /// As the hub sees it.
    address: SocketAddr,
    tunn: Tunn,
    up: bool,
    /// What it sends when it trickles.
    packet: Vec<u8>,
}

/// All of them.
pub(crate) struct Clients {
    clients: Vec<Client>,
    hub: x25519::PublicKey,
    poll: Epoll,
    returned: u64,
    echo_stop: Arc<AtomicBool>,
}

/// What trickled.
pub(crate) struct Trickle {
    pub(crate) sent: u64,
    /// Of those, what came back.
    pub(crate) returned: u64,
}

impl Clients {
    /// `count` clients in the peers' namespace, and an echo in the hub's once it has its inner address.
    pub(crate) fn new(world: &World, count: u32) -> Result<Self> {
        let (_, hard) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)?;
        ensure!(
            hard > u64::from(count) + 100,
            "{count} peers need as many open files, and the limit is {hard}: ulimit -n"
        );
        nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, hard, hard)?;
        let hub = x25519::PublicKey::from(*world.hub_key.public().as_bytes());
        let poll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let sockets = sockets(&world.peers, count)?;
        let mut clients = Vec::new();
        for (index, socket) in sockets.into_iter().enumerate() {
            let index = u32::try_from(index)?;
            poll.add(socket.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, u64::from(index)))?;
            let secret = x25519::StaticSecret::random();
            let public = PublicKey::from_bytes(x25519::PublicKey::from(&secret).to_bytes())?;
            let inner = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 203, 0, 1)) + index);
            let tunn = fresh(&secret, &hub, index);
            let address = socket.local_addr()?;
            clients.push(Client { packet: packet(inner), secret, public, inner, address, socket, tunn, up: false });
        }
        Ok(Self { clients, hub, poll, returned: 0, echo_stop: Arc::default() })
    }

    /// The first `count` as the hub's peers, which knows where they are or waits to be called.
    pub(crate) fn specs(&self, count: u32, known: bool, keepalive: Option<Duration>) -> Vec<PeerSpec> {
        let spec = |client: &Client| PeerSpec {
            endpoint: known.then_some(client.address),
            allowed_ips: vec![IpNet::from(std::net::IpAddr::V4(client.inner))],
            keepalive,
            ..peer(client.public)
        };
        self.clients.iter().take(count as usize).map(spec).collect()
    }

    /// Forgets all sessions.
    pub(crate) fn reset(&mut self) -> Result<()> {
        // What a hub before this one said is nobody's any more.
        self.hear(Duration::ZERO)?;
        for (index, client) in (0..).zip(&mut self.clients) {
            client.tunn = fresh(&client.secret, &self.hub, index);
            client.up = false;
        }
        Ok(())
    }

    /// The first `count` call the hub at once. Returns how long it took until each had its answer and confirmed it.
    pub(crate) fn call(&mut self, count: u32) -> Result<Duration> {
        // Made beforehand: what is measured is the hub.
        let mut messages = VecDeque::new();
        for client in self.clients.iter_mut().take(count as usize) {
            messages.push_back(client.initiation().context("an initiation")?);
        }
        let (begin, mut called) = (Instant::now(), Instant::now());
        for (client, message) in self.clients.iter().zip(messages) {
            client.send(&message)?;
        }
        while self.waits_for(count) > 0 {
            self.patient(count, begin)?;
            self.hear(Duration::from_millis(10))?;
            if called.elapsed() > CALL_AGAIN {
                called = Instant::now();
                for client in self.clients.iter_mut().take(count as usize).filter(|client| !client.up) {
                    let message = client.initiation().context("an initiation")?;
                    client.send(&message)?;
                }
            }
        }
        Ok(begin.elapsed())
    }

    /// Answers the hub, which calls the first `count` since `begin`, until each has a session that the hub confirmed.
    pub(crate) fn answer(&mut self, count: u32, begin: Instant) -> Result<Duration> {
        while self.waits_for(count) > 0 {
            self.patient(count, begin)?;
            self.hear(Duration::from_millis(10))?;
        }
        Ok(begin.elapsed())
    }

    fn waits_for(&self, count: u32) -> usize {
        self.clients.iter().take(count as usize).filter(|client| !client.up).count()
    }

    fn patient(&self, count: u32, begin: Instant) -> Result<()> {
        let left = self.waits_for(count);
        ensure!(begin.elapsed() < PATIENCE, "{left} of {count} peers had no handshake after {PATIENCE:?}");
        Ok(())
    }

    /// Sends `rate` packets a second in all, from the first `count` in turn, through the hub to an echo there and back.
    pub(crate) fn trickle(&mut self, hub: &Place, count: u32, rate: u32, time: Duration) -> Result<Trickle> {
        let echo = self.echo(hub)?;
        clock::precise_timers()?;
        let (begin, mut next, mut sent) = (Instant::now(), 0, 0_u64);
        let mut at_ns = clock::now_ns();
        self.returned = 0;
        while begin.elapsed() < time {
            at_ns += BEAT.as_nanos() as u64;
            clock::sleep_until(at_ns)?;
            // What the schedule calls for by now, however late this is.
            let due = (begin.elapsed().min(time).as_secs_f64() * f64::from(rate)) as u64;
            while sent < due {
                self.clients[next].trickle()?;
                next = (next + 1) % count as usize;
                sent += 1;
            }
            self.hear(Duration::ZERO)?;
        }
        let begin = Instant::now();
        while self.returned < sent && begin.elapsed() < Duration::from_millis(300) {
            self.hear(Duration::from_millis(10))?;
        }
        self.echo_stop.store(true, Ordering::Relaxed);
        echo.join().ok().context("the echo panicked")?;
        Ok(Trickle { sent, returned: self.returned })
    }

    /// Sends back whatever comes to its port, until it is told to stop.
    fn echo(&mut self, hub: &Place) -> Result<std::thread::JoinHandle<()>> {
        let socket = hub.run(|| Ok(UdpSocket::bind((HUB_INNER, ECHO_PORT))?))?;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        // An ordinary user gets less.
        let _forced = set_int(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 8 << 20);
        self.echo_stop = Arc::default();
        let stop = Arc::clone(&self.echo_stop);
        let body = move || {
            let mut buffer = [0; 2048];
            while !stop.load(Ordering::Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    // What is lost here is missing in the count of those who wait for it.
                    let _lost = socket.send_to(&buffer[..length], from);
                }
            }
        };
        Ok(std::thread::Builder::new().name("echo".to_owned()).spawn(body)?)
    }

    /// Takes what has come for anybody, or comes within `patience`, and answers it.
    fn hear(&mut self, patience: Duration) -> Result<()> {
        let mut events = [EpollEvent::empty(); 256];
        let mut timeout = EpollTimeout::try_from(patience)?;
        loop {
            let count = match self.poll.wait(&mut events, timeout) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            for event in &events[..count] {
                let client = self.clients.get_mut(usize::try_from(event.data())?).context("a client")?;
                self.returned += client.hear()?;
            }
            timeout = EpollTimeout::ZERO;
        }
    }
}

impl Client {
    fn initiation(&mut self) -> Option<Vec<u8>> {
        let mut buffer = [0; 256];
        match self.tunn.format_handshake_initiation(&mut buffer, true) {
            TunnResult::WriteToNetwork(message) => Some(message.to_vec()),
            TunnResult::Done
            | TunnResult::Err(_)
            | TunnResult::WriteToTunnelV4(..)
            | TunnResult::WriteToTunnelV6(..) => None,
        }
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        loop {
            match self.socket.send(message) {
                Ok(_) => return Ok(()),
                // Of a hub before this one.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => return Err(error),
            }
        }
    }

    fn trickle(&mut self) -> Result<()> {
        let mut buffer = [0; TRICKLE_BYTES + 32];
        let TunnResult::WriteToNetwork(datagram) = self.tunn.encapsulate(&self.packet, &mut buffer) else {
            anyhow::bail!("a peer that was up has no session")
        };
        let datagram = datagram.to_vec();
        Ok(self.send(&datagram)?)
    }

    /// Takes what has come; returns how many inner packets that were.
    fn hear(&mut self) -> Result<u64> {
        let (mut datagram, mut buffer, mut packets) = ([0; 2048], [0; 2048], 0);
        loop {
            let length = match self.socket.recv(&mut datagram) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(packets),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error.into()),
            };
            match self.tunn.decapsulate(None, &datagram[..length], &mut buffer) {
                TunnResult::WriteToNetwork(answer) => {
                    let answer = answer.to_vec();
                    self.send(&answer)?;
                    // A response is answered by the keepalive that confirms the session.
                    self.up |= datagram[0] == RESPONSE;
                }
                TunnResult::WriteToTunnelV4(..) | TunnResult::WriteToTunnelV6(..) => packets += 1,
                TunnResult::Done => self.up |= datagram[0] == DATA,
                // From before the sessions were forgotten.
                TunnResult::Err(_) => {}
            }
        }
    }
}

fn sockets(place: &Place, count: u32) -> Result<Vec<UdpSocket>> {
    place.run(move || {
        let socket = |_| -> Result<UdpSocket> {
            let socket = UdpSocket::bind((PEERS_OUTER, 0))?;
            socket.connect((HUB_OUTER, HUB_PORT))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        (0..count).map(socket).collect()
    })
}

/// The protocol from its beginning. Who measures counts nobody as too many.
fn fresh(secret: &x25519::StaticSecret, hub: &x25519::PublicKey, index: u32) -> Tunn {
    let limiter = Arc::new(RateLimiter::new(&x25519::PublicKey::from(secret), u64::MAX));
    Tunn::new(secret.clone(), *hub, None, None, index, Some(limiter))
}

/// A datagram to the echo.
fn packet(from: Ipv4Addr) -> Vec<u8> {
    const UDP: u8 = 17;
    let length = (TRICKLE_BYTES as u16).to_be_bytes();
    let mut packet = vec![0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, UDP, 0, 0];
    packet.extend(from.octets());
    packet.extend(HUB_INNER.octets());
    let header = Sum::default().add_bytes(&packet).checksum();
    packet[10..12].copy_from_slice(&header.to_ne_bytes());
    packet.extend(4_000_u16.to_be_bytes());
    packet.extend(ECHO_PORT.to_be_bytes());
    packet.extend((TRICKLE_BYTES as u16 - 20).to_be_bytes());
    packet.resize(TRICKLE_BYTES, 0x5a);
    packet[26..28].fill(0);
    let sum = pseudo_header(&packet[12..20], UDP, TRICKLE_BYTES - 20).add_bytes(&packet[20..]);
    packet[26..28].copy_from_slice(&sum.udp_checksum().to_ne_bytes());
    packet
}
