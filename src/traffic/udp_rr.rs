//! `udp-rr`: a request and a response at a time over UDP. A request or answer that is lost costs a time-out, which is
//! counted, and the test goes on.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::control::{Control, Worker, nanoseconds};
use super::datagram::{HEADER, Header, Kind};
use super::histogram::Recorder;
use super::job::{Buffers, Job, Role};
use super::outcome::{Counts, Latency, Outcome, Sampling};
use super::ports::{self, Port};
use super::sockets::{self, failed};
use super::{Opened, TrafficError};
use crate::sys::clock;
use crate::units::Bytes;

/// The time-out before the first answer.
const TIMEOUT_FIRST: Duration = Duration::from_secs(1);
/// Afterwards it is ten times the slowest answer, within this and the first.
const TIMEOUT_LEAST: Duration = Duration::from_millis(100);
/// A server that is not told the end goes on this long after it.
const GRACE: Duration = Duration::from_secs(1);

pub(super) fn open(job: &Job, control: &Arc<Control>, request: Bytes, response: Bytes) -> Result<Opened, TrafficError> {
    let (request, response) = (request.get() as usize, response.get() as usize);
    let socket = control.udp(job, Buffers::default())?;
    let owned = job.clone();
    let (ports, worker) = match job.role {
        Role::Server => {
            let ports = vec![ports::number(&*socket)?];
            let work = move |control: &Control| serve(control, &owned, &*socket, request, response);
            (ports, Worker::spawn(control, "udp-rr", work)?)
        }
        Role::Client => {
            let peer = sockets::peer(job, 0)?;
            socket.connect(peer).map_err(|source| TrafficError::Connect { peer, source })?;
            let work = move |control: &Control| ask(control, &owned, &*socket, request, response);
            (Vec::new(), Worker::spawn(control, "udp-rr", work)?)
        }
    };
    Ok(Opened::single(ports, worker))
}

/// Answers until the client says that it is done.
fn serve(
    control: &Control,
    job: &Job,
    socket: &dyn Port,
    request: usize,
    response: usize,
) -> Result<Outcome, TrafficError> {
    let client: Option<IpAddr> = job.peer.as_ref().map(|(address, _)| *address);
    let (mut incoming, mut outgoing) = (vec![0; request], vec![0x5a; response]);
    let mut counts = Counts::default();
    let mut answered = 0;
    let mut end_ns = u64::MAX;
    while !control.stopped() && clock::now_ns() < end_ns {
        let (count, from) = match socket.receive_from(&mut incoming) {
            Ok(received) => received,
            Err(error) if sockets::is_tick(&error) => {
                if answered == 0 {
                    control.may_go_on(|| "the first request".to_owned())?;
                } else if clock::now_ns() >= control.deadline_ns() {
                    break;
                }
                continue;
            }
            Err(error) => return Err(failed("receiving requests")(error)),
        };
        let of_client = client.is_none_or(|client| client == from.ip());
        match Header::decode(&incoming[..count], job.seed).filter(|_| of_client) {
            Some(header) if header.kind == Kind::Request => {
                let head = Header { kind: Kind::Response, ..header };
                outgoing[..HEADER].copy_from_slice(&head.encode(job.seed));
                match socket.send_to(&outgoing, from) {
                    Ok(()) => answered += 1,
                    Err(error) => counts.add_error(&error),
                }
                if end_ns == u64::MAX {
                    end_ns = clock::now_ns() + nanoseconds(job.warmup + job.duration + GRACE);
                }
            }
            Some(header) if header.kind == Kind::End => break,
            Some(_) => {}
            None => {
                control.strangers.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    if answered == 0 {
        return Err(control.nothing_arrived("the first request"));
    }
    Ok(Outcome {
        counts: Counts { transactions: Some(answered), ..counts },
        conditions: socket.conditions(job, Buffers::default()),
        cautions: control.strangers().into_iter().collect(),
        ..Outcome::new(job)
    })
}

/// Asks until the window is over.
fn ask(
    control: &Control,
    job: &Job,
    socket: &dyn Port,
    request: usize,
    response: usize,
) -> Result<Outcome, TrafficError> {
    let (mut outgoing, mut incoming) = (vec![0xa5; request], vec![0; response]);
    let mut counts = Counts::default();
    let mut latencies = Recorder::new();
    let (mut transactions, mut timeouts, mut late) = (0, 0, 0);
    let mut slowest_ns = 0;
    let mut asked_ns = clock::now_ns();
    let bounds = control.window.open(asked_ns);
    for sequence in 0.. {
        if asked_ns >= bounds.end_ns {
            break;
        }
        control.may_go_on(|| "the end of the measured window".to_owned())?;
        let head = Header { sequence, ..Header::new(Kind::Request, 0) };
        outgoing[..HEADER].copy_from_slice(&head.encode(job.seed));
        if let Err(error) = socket.send(&outgoing)
            && bounds.contains(asked_ns)
        {
            counts.add_error(&error);
        }
        let time_out_ns = match slowest_ns {
            0 => nanoseconds(TIMEOUT_FIRST),
            slowest_ns => (10 * slowest_ns).clamp(nanoseconds(TIMEOUT_LEAST), nanoseconds(TIMEOUT_FIRST)),
        };
        let give_up_ns = asked_ns + time_out_ns;
        // `None` after the time-out.
        let answered_ns = loop {
            match socket.receive(&mut incoming) {
                Ok(count) => {
                    let now_ns = clock::now_ns();
                    match Header::decode(&incoming[..count], job.seed) {
                        Some(header) if header.kind == Kind::Response && header.sequence == sequence => {
                            break Some(now_ns);
                        }
                        Some(_) => late += 1,
                        None => {
                            control.strangers.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
                Err(error) if sockets::is_tick(&error) => {
                    if clock::now_ns() >= give_up_ns || control.stopped() {
                        break None;
                    }
                }
                // An ICMP error that an earlier packet met.
                Err(error) => {
                    counts.add_error(&error);
                    clock::sleep_until(clock::now_ns() + 1_000_000).map_err(failed("pausing"))?;
                    if clock::now_ns() >= give_up_ns {
                        break None;
                    }
                }
            }
        };
        match answered_ns {
            Some(answered_ns) => {
                slowest_ns = slowest_ns.max(answered_ns - asked_ns);
                if bounds.contains(answered_ns) {
                    transactions += 1;
                    if bounds.contains(asked_ns) {
                        latencies.record(answered_ns - asked_ns);
                    }
                }
                asked_ns = answered_ns;
            }
            None => {
                if bounds.contains(asked_ns) {
                    timeouts += 1;
                }
                asked_ns = clock::now_ns();
            }
        }
    }
    let end = Header::new(Kind::End, 0).encode(job.seed);
    for _ in 0..3 {
        // Only spares the server its grace: whether it arrives does not matter.
        let _ = socket.send(&end);
    }
    if transactions == 0 {
        let what = match counts.errors.first_key_value() {
            Some((name, count)) => format!("an answer within the measured window ({count} times {name})"),
            None => "an answer within the measured window".to_owned(),
        };
        return Err(control.nothing_arrived(what));
    }
    Ok(Outcome {
        window: Some(control.whole_window(bounds)),
        counts: Counts {
            transactions: Some(transactions),
            timeouts: Some(timeouts),
            stale_packets: Some(late),
            ..counts
        },
        latency: Some(Latency { sampling: Sampling::ClosedLoop, histogram: latencies.finish(), unanswered: timeouts }),
        conditions: socket.conditions(job, Buffers::default()),
        cautions: control.strangers().into_iter().collect(),
        ..Outcome::new(job)
    })
}
