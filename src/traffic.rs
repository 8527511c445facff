//! The generator: sources, sinks, pacing and meters of one end of a test, on kernel sockets and threads of its own.
//!
//! ```text
//! Job -> prepare -> Prepared (sockets open, threads wait at the gate) -> start -> Running -> wait -> Outcome
//! ```
//!
//! The server's job is prepared first and tells its ports; the client's connects to them. Nothing is measured before
//! `start`, which only opens a gate. Blocking calls throughout: an agent holds these values and owns no runtime here.
//!
//! Threads, by name: `tcp-tx-0`, `tcp-rx-0` (one per stream), `udp-tx-0`, `udp-rx-0` (one per flow), `tcp-rr`, `rr-guard`,
//! `udp-rr`, `tcp-crr`, `crr-watch`, `ping`, `handshake`, `probe`, `probe-echo`. All belong to one [`Prepared`] or [`Running`], end by the job's
//! own deadline, and are joined when it is dropped.

mod control;
mod datagram;
mod handshake;
pub mod histogram;
pub mod job;
mod messages;
pub mod meters;
pub mod outcome;
mod pacing;
mod pages;
mod ping;
mod ports;
mod probe;
mod round_trips;
mod sequence;
mod sockets;
mod tally;
mod tcp_crr;
mod tcp_rr;
mod tcp_stream;
mod udp_rr;
mod udp_stream;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use handshake::Handshakes;
pub use histogram::Histogram;
pub use job::{Buffers, DATAGRAM_HEADER, Job, JobKind, Path, ProbeSpec, Role};
pub use outcome::{
    Caution, Conditions, Counts, Gap, Granted, IcmpSocket, Latency, Outcome, Probe, Sampling, Series, StreamCounts,
    TcpSummary, Window,
};
pub use ports::{Outgoing, Port, Ports};

use control::{Control, Finish, Worker};
use ports::KernelPorts;

/// Why a test could not be prepared or measured.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// A job that makes no sense.
    #[error("job refused: {reason}")]
    BadJob {
        /// What is wrong with it.
        reason: String,
    },
    /// A socket call failed.
    #[error("{what} failed")]
    Socket {
        /// The call and its subject.
        what: String,
        /// The errno.
        #[source]
        source: io::Error,
    },
    /// The peer's port did not accept.
    #[error("connecting to {peer} failed")]
    Connect {
        /// Where to.
        peer: SocketAddr,
        /// The errno.
        #[source]
        source: io::Error,
    },
    /// The congestion control is not to be had.
    #[error("congestion control `{asked}` was refused; loaded here: {available}")]
    CongestionControl {
        /// The name.
        asked: String,
        /// What the kernel offers.
        available: String,
        /// The errno.
        #[source]
        source: io::Error,
    },
    /// The live socket has another congestion control than was set.
    #[error("congestion control `{asked}` was set, but the live connection has `{live}`")]
    CongestionControlDiffers {
        /// The name.
        asked: String,
        /// As read back.
        live: String,
    },
    /// Neither kind of ICMP socket could be opened.
    #[error(
        "no socket for pings: give the group of this process to net.ipv4.ping_group_range, or CAP_NET_RAW to this process"
    )]
    NoPingSocket {
        /// The errno of the raw socket.
        #[source]
        source: io::Error,
    },
    /// What was waited for did not arrive: a measurement of nothing is no measurement.
    #[error("{what} did not arrive within {waited:?}")]
    NothingArrived {
        /// What was waited for, and from where.
        what: String,
        /// For how long.
        waited: Duration,
    },
    /// The other end closed a connection before the window was over.
    #[error("{what} was ended by the other end {after:?} after the start, before the measured window was over")]
    EndedEarly {
        /// Which connection.
        what: String,
        /// When.
        after: Duration,
    },
    /// The job's deadline came before its window was over.
    #[error("the job's deadline of {deadline:?} came before {what}")]
    Deadline {
        /// What was not yet there.
        what: String,
        /// The deadline.
        deadline: Duration,
    },
    /// The job was stopped from outside before its window was over.
    #[error("the job was stopped before {what}")]
    Stopped {
        /// What was not yet there.
        what: String,
    },
    /// A thread of the job panicked.
    #[error("thread {thread} panicked")]
    Panicked {
        /// Its name.
        thread: String,
    },
}

/// Opens the sockets of one end, and its threads, which wait at the gate. A server listens on ephemeral ports of its
/// local address; a client connects.
///
/// # Errors
/// [`TrafficError`], with the sockets and threads that were opened gone.
pub fn prepare(job: &Job) -> Result<Prepared, TrafficError> {
    prepare_with(job, Arc::new(KernelPorts), None)
}

/// [`prepare`], of a job of kind [`JobKind::Handshake`] at its client: the tunnel makes `handshakes`.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_handshakes(job: &Job, handshakes: Arc<dyn Handshakes>) -> Result<Prepared, TrafficError> {
    prepare_with(job, Arc::new(KernelPorts), Some(handshakes))
}

/// [`prepare`], inside a tunnel that has no interface: its UDP sockets are `ports`, and there are no others.
///
/// # Errors
/// As [`prepare`], and a kind of job that needs other sockets.
pub fn prepare_inside(job: &Job, ports: Arc<dyn Ports>) -> Result<Prepared, TrafficError> {
    match &job.kind {
        JobKind::UdpStream { .. } | JobKind::UdpRr { .. } | JobKind::Handshake => prepare_with(job, ports, None),
        JobKind::TcpStream { .. } | JobKind::TcpRr { .. } | JobKind::TcpCrr { .. } | JobKind::Ping { .. } => {
            let reason = format!("{} needs the kernel's sockets, and this tunnel has no interface", job.kind.name());
            Err(TrafficError::BadJob { reason })
        }
    }
}

fn prepare_with(
    job: &Job,
    ports: Arc<dyn Ports>,
    handshakes: Option<Arc<dyn Handshakes>>,
) -> Result<Prepared, TrafficError> {
    job.check()?;
    let control = Control::new(job, ports);
    let opened = match &job.kind {
        JobKind::TcpStream { streams, buffers } => tcp_stream::open(job, &control, *streams, *buffers),
        JobKind::TcpRr { request, response } => tcp_rr::open(job, &control, *request, *response),
        JobKind::UdpStream { rate, payload, flows, buffers } => {
            udp_stream::open(job, &control, *rate, *payload, *flows, *buffers)
        }
        JobKind::UdpRr { request, response } => udp_rr::open(job, &control, *request, *response),
        JobKind::TcpCrr { request, response } => tcp_crr::open(job, &control, *request, *response),
        JobKind::Ping { rate, payload } => ping::open(job, &control, *rate, *payload),
        JobKind::Handshake => handshake::open(job, &control, handshakes),
    };
    match opened {
        Ok(Opened { ports, finish }) => Ok(Prepared { ports, job: OwnedJob { control, finish: Some(finish) } }),
        Err(error) => {
            // Threads that were started already wait at the gate: this ends them.
            control.stop();
            Err(error)
        }
    }
}

/// What a kind of job opens.
struct Opened {
    /// The server's ports, in the order in which the client uses them.
    ports: Vec<u16>,
    finish: Finish,
}

impl Opened {
    /// A job of one thread.
    fn single(ports: Vec<u16>, worker: Worker<Outcome>) -> Self {
        Self { ports, finish: Box::new(move |_: &Control| worker.join()) }
    }
}

/// A job whose sockets are open and whose threads wait. Dropping it closes and joins them.
pub struct Prepared {
    ports: Vec<u16>,
    job: OwnedJob,
}

impl Prepared {
    /// The ports that a server listens on, for the client's job; empty at a client.
    pub fn ports(&self) -> Vec<u16> {
        self.ports.clone()
    }

    /// Opens the gate.
    pub fn start(self) -> Running {
        self.job.control.start();
        Running { job: self.job }
    }
}

/// A job at work. Dropping it stops it.
pub struct Running {
    job: OwnedJob,
}

impl Running {
    /// A handle that ends the job from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle { control: Arc::clone(&self.job.control) }
    }

    /// Waits for the job's end, which comes by its own deadline at the latest.
    ///
    /// # Errors
    /// [`TrafficError`] where there is nothing, or not enough, to tell.
    pub fn wait(mut self) -> Result<Outcome, TrafficError> {
        let Some(finish) = self.job.finish.take() else {
            return Err(TrafficError::BadJob { reason: "the job was waited for already".to_owned() });
        };
        finish(&self.job.control)
    }
}

/// Ends a job from any thread. An end that only answers then tells what it had answered; one that measures tells
/// [`TrafficError::Stopped`] unless its window was over.
#[derive(Clone)]
pub struct StopHandle {
    control: Arc<Control>,
}

impl StopHandle {
    /// Ends the job; at once where it blocks in a call on a socket, in 50 ms elsewhere.
    pub fn stop(&self) {
        self.control.stop();
    }
}

/// The threads and sockets of a job.
struct OwnedJob {
    control: Arc<Control>,
    finish: Option<Finish>,
}

impl Drop for OwnedJob {
    fn drop(&mut self) {
        if let Some(finish) = self.finish.take() {
            self.control.stop();
            // Nobody waits for this job's outcome: its owner has let go of it.
            let _ = finish(&self.control);
        }
    }
}

#[cfg(test)]
mod tests;
