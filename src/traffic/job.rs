//! What a job is: everything that one end of a test must know before the first byte.
//!
//! A job is prepared on the server first (it listens and tells its ports), then on the client (it connects), then
//! both are started within milliseconds of each other, in any order.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::TrafficError;
use crate::units::{BitRate, Bytes, Direction, PacketRate};

/// Bytes at the head of every datagram of `udp-stream`, `udp-rr` and the probe: a smaller payload is refused.
pub const DATAGRAM_HEADER: u64 = 32;

/// Which end of the pair does this job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Connects to the server's ports.
    Client,
    /// Listens on ephemeral ports, for this job alone.
    Server,
}

/// One end of one test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// This end.
    pub role: Role,
    /// Which way a stream's bulk data goes; request tests and pings always begin at the client.
    pub direction: Direction,
    /// What is done.
    pub kind: JobKind,
    /// The address that every socket is bound to.
    pub local: IpAddr,
    /// The interface that every socket is bound to (`SO_BINDTODEVICE`), besides the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_interface: Option<String>,
    /// The other end. The client needs the address and, but for `ping`, the ports in the order of the server's
    /// [`Prepared::ports`](super::Prepared::ports). A server that is given an address serves nobody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<(IpAddr, Vec<u16>)>,
    /// More paths between the two ends, for streams. The first path is that of `local`; stream `i` takes path `i` modulo
    /// their number. The probe takes the first one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_paths: Vec<Path>,
    /// The congestion control of every TCP socket: set, and read back from the live socket. `None` leaves the
    /// system's default, which is then read back all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Left out of every count, from the first byte on.
    pub warmup: Duration,
    /// The measured window, after the warm-up.
    pub duration: Duration,
    /// The job ends this long after its start, whatever happened; it bounds the wait for the start, too.
    pub deadline: Duration,
    /// Round trips beside the test, for latency under load. Streams only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<ProbeSpec>,
    /// The same on both ends: names the job on the wire, so that strangers' packets are not counted, and fills payloads.
    pub seed: u64,
}

/// Another way between the two ends: another tunnel, with addresses of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// As [`Job::local`].
    pub local: IpAddr,
    /// As [`Job::local_interface`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_interface: Option<String>,
    /// The other end's address; its ports are all in [`Job::peer`].
    pub peer: IpAddr,
}

/// What a job does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum JobKind {
    /// Bulk TCP: a thread and a connection per stream, as fast as they go.
    TcpStream {
        /// Connections.
        streams: u16,
        /// Socket buffers; the system's own tuning where absent.
        #[serde(default)]
        buffers: Buffers,
    },
    /// Datagrams of one size on a schedule.
    UdpStream {
        /// Payload bits per second of all flows together; `None` is as fast as the sender can.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<BitRate>,
        /// UDP payload of each datagram, [`DATAGRAM_HEADER`] at least.
        payload: Bytes,
        /// Flows, each with its own ports and threads.
        flows: u16,
        /// Socket buffers; where absent the receiver asks for 4 MiB and the sender takes the system's default.
        #[serde(default)]
        buffers: Buffers,
    },
    /// Requests and responses, one at a time, on one TCP connection with `TCP_NODELAY`: a closed loop.
    TcpRr {
        /// Request size.
        request: Bytes,
        /// Response size.
        response: Bytes,
    },
    /// Requests and responses, one at a time, over UDP: a closed loop. A lost one times out and is counted.
    UdpRr {
        /// Request size, [`DATAGRAM_HEADER`] at least.
        request: Bytes,
        /// Response size, [`DATAGRAM_HEADER`] at least.
        response: Bytes,
    },
    /// A new connection for every request: connect, request, response, close by the server. A closed loop.
    TcpCrr {
        /// Request size.
        request: Bytes,
        /// Response size.
        response: Bytes,
    },
    /// ICMP echo on a schedule. The server's kernel answers: a server's job only waits for the end.
    Ping {
        /// Echo requests per second.
        rate: PacketRate,
        /// ICMP payload, 16 bytes at least.
        payload: Bytes,
    },
    /// New WireGuard sessions, one after the other. The server's engine answers: a server's job only waits for the end.
    Handshake,
}

impl Job {
    /// Whether this end sends a stream's bulk data.
    pub(super) fn sends(&self) -> bool {
        (self.role == Role::Client) == (self.direction == Direction::Forward)
    }

    /// The interfaces that its sockets are bound to.
    pub fn interfaces(&self) -> impl Iterator<Item = &String> {
        self.local_interface.iter().chain(self.more_paths.iter().filter_map(|path| path.local_interface.as_ref()))
    }

    /// How many paths the streams are spread over.
    pub(super) fn paths(&self) -> usize {
        1 + self.more_paths.len()
    }

    /// The path that stream number `index` takes.
    pub(super) fn path_of(&self, index: u16) -> usize {
        usize::from(index) % self.paths()
    }

    /// This job with the addresses of path number `path` and no other.
    pub(super) fn on_path(&self, path: usize) -> Self {
        let mut job = Self { more_paths: Vec::new(), ..self.clone() };
        if let Some(other) = path.checked_sub(1).and_then(|other| self.more_paths.get(other)) {
            job.local = other.local;
            job.local_interface.clone_from(&other.local_interface);
            if let Some((address, _)) = &mut job.peer {
                *address = other.peer;
            }
        }
        job
    }

    /// Refuses what cannot be done.
    pub(super) fn check(&self) -> Result<(), TrafficError> {
        let bad = |reason: String| Err(TrafficError::BadJob { reason });
        if self.duration.is_zero() {
            return bad("a window of no length measures nothing".to_owned());
        }
        if self.deadline < self.warmup + self.duration {
            return bad(format!(
                "its deadline of {:?} comes before the end of its warm-up of {:?} and window of {:?}",
                self.deadline, self.warmup, self.duration
            ));
        }
        let is_stream = matches!(self.kind, JobKind::TcpStream { .. } | JobKind::UdpStream { .. });
        if self.probe.is_some() && !is_stream {
            return bad(format!("a probe runs beside streams, not beside {}", self.kind.name()));
        }
        if self.role == Role::Client {
            match &self.peer {
                None => return bad("a client needs its peer".to_owned()),
                Some((address, _)) if address.is_ipv6() != self.local.is_ipv6() => {
                    return bad(format!("{} cannot reach {address}: another family", self.local));
                }
                Some(_) => {}
            }
        }
        if let Some(path) = self.more_paths.iter().find(|path| path.peer.is_ipv6() != path.local.is_ipv6()) {
            return bad(format!("{} cannot reach {}: another family", path.local, path.peer));
        }
        let streams = match self.kind {
            JobKind::TcpStream { streams, .. } => usize::from(streams),
            JobKind::UdpStream { flows, .. } => usize::from(flows),
            JobKind::TcpRr { .. }
            | JobKind::UdpRr { .. }
            | JobKind::TcpCrr { .. }
            | JobKind::Ping { .. }
            | JobKind::Handshake => 1,
        };
        if self.paths() > streams.max(1) {
            return bad(format!("{} paths are more than {streams} streams can be spread over", self.paths()));
        }
        if let Some(probe) = self.probe {
            not_zero("probes per second", probe.rate.per_second())?;
            datagram("a probe", probe.payload)?;
        }
        match &self.kind {
            JobKind::TcpStream { streams, .. } => not_zero("streams", u64::from(*streams)),
            JobKind::UdpStream { payload, flows, rate, .. } => {
                not_zero("flows", u64::from(*flows))?;
                not_zero("a rate", rate.map_or(1, BitRate::bits_per_second))?;
                datagram("a datagram", *payload)
            }
            JobKind::UdpRr { request, response } => {
                datagram("a request", *request)?;
                datagram("a response", *response)
            }
            JobKind::TcpRr { request, response } | JobKind::TcpCrr { request, response } => {
                not_zero("the request's bytes", request.get())?;
                not_zero("the response's bytes", response.get())
            }
            JobKind::Ping { rate, payload } => {
                not_zero("pings per second", rate.per_second())?;
                carries("a ping", *payload, PING_PAYLOAD)
            }
            JobKind::Handshake => Ok(()),
        }
    }
}

/// The job and the number of a ping.
const PING_PAYLOAD: u64 = 16;
/// More does not fit into a datagram with any family's headers.
const LARGEST_PAYLOAD: u64 = 65_000;

fn not_zero(what: &str, count: u64) -> Result<(), TrafficError> {
    if count > 0 { Ok(()) } else { Err(TrafficError::BadJob { reason: format!("{what} must not be zero") }) }
}

fn datagram(what: &str, payload: Bytes) -> Result<(), TrafficError> {
    carries(what, payload, DATAGRAM_HEADER)
}

fn carries(what: &str, payload: Bytes, least: u64) -> Result<(), TrafficError> {
    if (least..=LARGEST_PAYLOAD).contains(&payload.get()) {
        return Ok(());
    }
    let reason = format!("{what} carries {least} to {LARGEST_PAYLOAD} bytes, not {}", payload.get());
    Err(TrafficError::BadJob { reason })
}

impl JobKind {
    /// The name of the kind, as topologies spell it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::TcpStream { .. } => "tcp-stream",
            Self::UdpStream { .. } => "udp-stream",
            Self::TcpRr { .. } => "tcp-rr",
            Self::UdpRr { .. } => "udp-rr",
            Self::TcpCrr { .. } => "tcp-crr",
            Self::Ping { .. } => "ping",
            Self::Handshake => "handshake",
        }
    }
}

/// Socket buffers to ask for, as `setsockopt` takes them (the kernel grants twice as much, up to its limit).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Buffers {
    /// `SO_SNDBUF`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send: Option<Bytes>,
    /// `SO_RCVBUF`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive: Option<Bytes>,
}

/// Round trips beside a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeSpec {
    /// Probes per second, evenly spaced.
    pub rate: PacketRate,
    /// UDP payload, [`DATAGRAM_HEADER`] at least.
    pub payload: Bytes,
}

impl Default for ProbeSpec {
    /// 100 small probes per second.
    fn default() -> Self {
        Self { rate: PacketRate::from_per_second(100), payload: Bytes::new(64) }
    }
}
