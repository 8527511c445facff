//! `tcp-crr`: a connection for every request. Connect, request, response, and the *server* closes first: the states that
//! wait for late packets (TIME_WAIT) then are the server's, and the client's ports are free again at once.
//!
//! One more connection, made first and silent, tells the server by its end that the test is over.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use socket2::Socket;

use super::control::{Control, Worker, both, nanoseconds};
use super::histogram::Recorder;
use super::job::{Buffers, Job, Role};
use super::messages::{receive, send};
use super::outcome::{Counts, Latency, Outcome, Sampling};
use super::sockets::{self, failed};
use super::{Opened, TrafficError};
use crate::sys::clock;
use crate::units::Bytes;

/// Connections that may wait to be accepted.
const BACKLOG: u16 = 1024;
/// A transaction that takes longer is given up: two lost SYNs (RFC 6298: 1 s, then 2 s).
const GIVE_UP: Duration = Duration::from_millis(3500);
/// After a failed connection: a port that refuses must not be asked a million times.
const PAUSE_NS: u64 = 1_000_000;

pub(super) fn open(job: &Job, control: &Arc<Control>, request: Bytes, response: Bytes) -> Result<Opened, TrafficError> {
    let (request, response) = (request.get() as usize, response.get() as usize);
    let owned = job.clone();
    match job.role {
        Role::Client => {
            let life = Arc::new(sockets::connect(job, 0, 0, Buffers::default())?);
            control.watch(&life);
            let work = move |control: &Control| ask(control, &owned, &life, request, response);
            Ok(Opened::single(Vec::new(), Worker::spawn(control, "tcp-crr", work)?))
        }
        Role::Server => {
            let listener = Arc::new(sockets::listen(job, BACKLOG, Buffers::default())?);
            control.watch(&listener);
            let ports = vec![sockets::port(&listener)?];
            let (lives, life) = std::sync::mpsc::sync_channel::<Arc<Socket>>(1);
            let watched = Arc::clone(&listener);
            let watch = Worker::spawn(control, "crr-watch", move |control| {
                // Without a client there is nothing to watch: the other thread has the reason.
                if let Ok(life) = life.recv() {
                    while receive(control, &life, &mut [0])? {}
                }
                control.finish();
                // Wakes the thread that accepts; a listener that is gone needs no waking.
                let _ = watched.shutdown(std::net::Shutdown::Both);
                Ok(())
            })?;
            let worker = Worker::spawn(control, "tcp-crr", move |control| {
                let (life, _) = sockets::accept(control, &owned, &listener)?;
                sockets::verify_congestion_control(&owned, &life)?;
                let conditions = sockets::conditions(&owned, &life, Buffers::default());
                let client = life.peer_addr().ok().and_then(|address| address.as_socket()).map(|address| address.ip());
                // The receiver lives until this is sent, or this thread ends.
                let _ = lives.send(life);
                let served = serve(control, &listener, client, request, response)?;
                Ok(Outcome {
                    counts: served,
                    conditions,
                    cautions: control.strangers().into_iter().collect(),
                    ..Outcome::new(&owned)
                })
            })?;
            let finish = Box::new(move |_: &Control| both(worker.join(), watch.join()).map(|(outcome, ())| outcome));
            Ok(Opened { ports, finish })
        }
    }
}

/// Answers until the client has ended.
fn serve(
    control: &Control,
    listener: &Socket,
    client: Option<std::net::IpAddr>,
    request: usize,
    response: usize,
) -> Result<Counts, TrafficError> {
    let (mut incoming, outgoing) = (vec![0; request], vec![0x5a; response]);
    let mut counts = Counts::default();
    let mut answered = 0;
    while !control.finished() && !control.stopped() {
        let (socket, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if sockets::is_tick(&error) => {
                control.may_go_on(|| "the end of the client's test".to_owned())?;
                continue;
            }
            // Shut down by the end of the test, seen at the loop's head.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => continue,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {
                counts.add_error(&error);
                continue;
            }
            Err(error) => return Err(failed("accepting a connection")(error)),
        };
        if from.as_socket().map(|from| from.ip()) != client {
            control.strangers.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        if receive(control, &socket, &mut incoming)? && send(control, &socket, &outgoing)? {
            answered += 1;
        }
    }
    if answered == 0 {
        return Err(control.nothing_arrived("the first request"));
    }
    Ok(Counts { transactions: Some(answered), ..counts })
}

/// Asks until the window is over.
fn ask(control: &Control, job: &Job, life: &Socket, request: usize, response: usize) -> Result<Outcome, TrafficError> {
    sockets::verify_congestion_control(job, life)?;
    let peer = sockets::peer(job, 0)?;
    let (outgoing, mut incoming) = (vec![0xa5; request], vec![0; response]);
    let mut counts = Counts::default();
    let mut latencies = Recorder::new();
    let (mut transactions, mut timeouts) = (0, 0);
    let mut begun_ns = clock::now_ns();
    let bounds = control.window.open(begun_ns);
    while begun_ns < bounds.end_ns {
        let result = transact(control, job, peer, &outgoing, &mut incoming);
        let ended_ns = clock::now_ns();
        match result {
            Ok(()) if bounds.contains(ended_ns) => {
                transactions += 1;
                if bounds.contains(begun_ns) {
                    latencies.record(ended_ns - begun_ns);
                }
            }
            Ok(()) => {}
            Err(Failure::Job(error)) => return Err(error),
            Err(Failure::Connection(error)) => {
                control.may_go_on(|| "the end of the measured window".to_owned())?;
                if bounds.contains(ended_ns) {
                    if error.kind() == io::ErrorKind::TimedOut {
                        timeouts += 1;
                    } else {
                        counts.add_error(&error);
                    }
                }
                clock::sleep_until(clock::now_ns() + PAUSE_NS).map_err(failed("pausing"))?;
            }
        }
        begun_ns = clock::now_ns();
    }
    if transactions == 0 {
        let what = match counts.errors.first_key_value() {
            Some((name, count)) => format!("an answer on a new connection ({count} times {name})"),
            None => "an answer on a new connection".to_owned(),
        };
        return Err(control.nothing_arrived(what));
    }
    let unanswered = timeouts + counts.errors.values().sum::<u64>();
    Ok(Outcome {
        window: Some(control.whole_window(bounds)),
        counts: Counts { transactions: Some(transactions), timeouts: Some(timeouts), ..counts },
        latency: Some(Latency { sampling: Sampling::ClosedLoop, histogram: latencies.finish(), unanswered }),
        conditions: sockets::conditions(job, life, Buffers::default()),
        ..Outcome::new(job)
    })
}

/// Why a transaction failed.
enum Failure {
    /// Its connection did: counted, and the test goes on.
    Connection(io::Error),
    /// The job cannot go on.
    Job(TrafficError),
}

impl From<TrafficError> for Failure {
    fn from(error: TrafficError) -> Self {
        Self::Job(error)
    }
}

/// One transaction: from the connection's begin to the server's close.
fn transact(
    control: &Control,
    job: &Job,
    peer: SocketAddr,
    request: &[u8],
    response: &mut [u8],
) -> Result<(), Failure> {
    let socket = sockets::tcp_socket(job, Buffers::default())?;
    sockets::tick(&socket)?;
    let give_up_ns = clock::now_ns() + nanoseconds(GIVE_UP);
    let patience = || {
        control.may_go_on(|| "the end of the measured window".to_owned())?;
        if clock::now_ns() < give_up_ns { Ok(()) } else { Err(Failure::Connection(io::ErrorKind::TimedOut.into())) }
    };
    let address = peer.into();
    loop {
        match socket.connect(&address) {
            Ok(()) => break,
            Err(error) if error.raw_os_error() == Some(libc::EISCONN) => break,
            // The time-out of one wait; calling again waits on (net/ipv4/af_inet.c, __inet_stream_connect).
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EALREADY | libc::EINTR)) => {
                patience()?;
            }
            Err(error) => return Err(Failure::Connection(error)),
        }
    }
    if !send(control, &socket, request)? {
        return Err(Failure::Connection(io::ErrorKind::ConnectionReset.into()));
    }
    let mut filled = 0;
    loop {
        // With the whole response in hand, one more byte of room waits for the server's close.
        let mut close = [0];
        let whole = filled == response.len();
        let room = if whole { &mut close[..] } else { &mut response[filled..] };
        match { &socket }.read(room) {
            Ok(0) if whole => return Ok(()),
            Ok(0) => return Err(Failure::Connection(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) if whole => return Err(Failure::Connection(io::ErrorKind::InvalidData.into())),
            Ok(count) => filled += count,
            Err(error) if sockets::is_tick(&error) => patience()?,
            Err(error) => return Err(Failure::Connection(error)),
        }
    }
}
