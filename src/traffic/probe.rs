//! The probe: small round trips beside a stream, on a socket and a thread of their own. Latency under load is a metric of
//! every stream, not another test.

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::TrafficError;
use super::control::{Control, Worker, nanoseconds};
use super::datagram::{HEADER, Header, Kind};
use super::job::{Buffers, Job, ProbeSpec, Role};
use super::outcome::{Caution, Outcome, Probe};
use super::ports::{self, Port};
use super::round_trips::{self, Echo, RoundTrips};
use super::sockets::{self, failed};
use crate::sys::clock;

/// The server answers this long after its own stream's end, unless the client says that it is done.
const GRACE: Duration = Duration::from_millis(500);

/// A probe of a job, if it has one.
pub(super) enum Opened {
    None,
    Asks(Worker<RoundTrips>),
    Answers(Worker<()>),
}

/// Opens the job's probe. A server's port is added to `numbers`: it is the last one.
pub(super) fn open(job: &Job, control: &Arc<Control>, numbers: &mut Vec<u16>) -> Result<Opened, TrafficError> {
    let Some(spec) = job.probe else { return Ok(Opened::None) };
    let socket = control.udp(job, Buffers::default())?;
    let seed = job.seed;
    match job.role {
        Role::Server => {
            numbers.push(ports::number(&*socket)?);
            let client = job.peer.as_ref().map(|(address, _)| *address);
            let work = move |control: &Control| answer(control, &*socket, seed, client, &spec);
            Ok(Opened::Answers(Worker::spawn(control, "probe-echo", work)?))
        }
        Role::Client => {
            let last = job.peer.as_ref().map_or(0, |(_, ports)| ports.len().saturating_sub(1));
            let peer = sockets::peer(job, last)?;
            socket.connect(peer).map_err(|source| TrafficError::Connect { peer, source })?;
            let work = move |control: &Control| ask(control, &*socket, seed, &spec);
            Ok(Opened::Asks(Worker::spawn(control, "probe", work)?))
        }
    }
}

impl Opened {
    /// Waits for its end; a server's probe has nothing to tell.
    pub(super) fn join(self) -> Result<Option<RoundTrips>, TrafficError> {
        match self {
            Self::None => Ok(None),
            Self::Asks(worker) => worker.join().map(Some),
            Self::Answers(worker) => worker.join().map(|()| None),
        }
    }
}

/// Adds what a probe saw to its stream's outcome.
pub(super) fn beside(seen: Option<RoundTrips>, mut outcome: Outcome) -> Outcome {
    if let Some(seen) = seen {
        if seen.latency.histogram.count() == 0 {
            outcome.cautions.push(Caution::ProbesUnanswered);
        }
        outcome.probe = Some(Probe { sent: seen.sent, latency: seen.latency, lateness: seen.lateness });
    }
    outcome
}

struct ProbeSocket<'a> {
    socket: &'a dyn Port,
    seed: u64,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

impl Echo for ProbeSocket<'_> {
    fn send(&mut self, number: u64) -> io::Result<()> {
        let header = Header { sequence: number, ..Header::new(Kind::Request, 0) };
        self.outgoing[..HEADER].copy_from_slice(&header.encode(self.seed));
        self.socket.try_send(&self.outgoing)
    }

    fn receive(&mut self) -> io::Result<Option<u64>> {
        let count = self.socket.try_receive(&mut self.incoming)?;
        let header = Header::decode(&self.incoming[..count], self.seed);
        Ok(header.filter(|header| header.kind == Kind::Response).map(|header| header.sequence))
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.readiness()
    }
}

fn ask(control: &Control, socket: &dyn Port, seed: u64, spec: &ProbeSpec) -> Result<RoundTrips, TrafficError> {
    let size = spec.payload.get() as usize;
    let mut echo = ProbeSocket { socket, seed, outgoing: vec![0; size], incoming: vec![0; size] };
    let interval_ns = 1_000_000_000 / spec.rate.per_second().max(1);
    let seen = round_trips::run(control, &mut echo, interval_ns.max(1), || control.window.bounds())?;
    let end = Header::new(Kind::End, 0).encode(seed);
    for _ in 0..3 {
        // Only spares the server its grace: whether it arrives does not matter.
        let _ = socket.try_send(&end);
    }
    Ok(seen)
}

/// Answers probes until the client says that it is done, or a while after the stream's end.
fn answer(
    control: &Control,
    socket: &dyn Port,
    seed: u64,
    client: Option<IpAddr>,
    spec: &ProbeSpec,
) -> Result<(), TrafficError> {
    let mut buffer = vec![0; spec.payload.get() as usize];
    let mut finished_ns = None;
    loop {
        match socket.receive_from(&mut buffer) {
            Ok((count, from)) => {
                let of_client = client.is_none_or(|client| client == from.ip());
                match Header::decode(&buffer[..count], seed).filter(|_| of_client) {
                    Some(header) if header.kind == Kind::Request => {
                        let response = Header { kind: Kind::Response, ..header };
                        buffer[..HEADER].copy_from_slice(&response.encode(seed));
                        // What cannot be sent is lost, and the client counts it.
                        let _ = socket.send_to(&buffer[..count], from);
                    }
                    Some(header) if header.kind == Kind::End => return Ok(()),
                    Some(_) => {}
                    None => {
                        control.strangers.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            Err(error) if sockets::is_tick(&error) => {}
            Err(error) => return Err(failed("receiving probes")(error)),
        }
        if control.stopped() {
            return Ok(());
        }
        if control.finished() {
            let since = *finished_ns.get_or_insert_with(clock::now_ns);
            if clock::now_ns() >= since + nanoseconds(GRACE) {
                return Ok(());
            }
        } else if clock::now_ns() >= control.deadline_ns() {
            return Ok(());
        }
    }
}
