//! `tcp-stream`: bulk TCP, one connection and one thread per stream at each end.
//!
//! The receiver decides: its window opens with the first byte on any stream, and when the window is over it closes, which
//! ends the senders. A sender that nobody ends stops by itself a while after its own window.

use std::io::Read;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use socket2::Socket;

use super::control::{Control, Worker, both, join_all};
use super::job::{Buffers, Job, Role};
use super::outcome::{Caution, Conditions, Counts, Outcome, TcpSummary, Window};
use super::pages::Pages;
use super::sockets::{self, failed};
use super::tally::{self, Finished, Tally};
use super::{Opened, TrafficError, probe};
use crate::sys::clock;
use crate::sys::tcp_info::TcpInfo;

/// What one send or receive call moves at most.
const CHUNK: usize = 128 * 1024;
/// A sender goes on this long after its own window: the receiver's opened later, by the path's delay.
const GRACE_NS: u64 = 2_000_000_000;

pub(super) fn open(job: &Job, control: &Arc<Control>, streams: u16, buffers: Buffers) -> Result<Opened, TrafficError> {
    let mut workers = Vec::with_capacity(usize::from(streams));
    let mut ports = Vec::new();
    let sends = job.sends();
    let name = |index: u16| if sends { format!("tcp-tx-{index}") } else { format!("tcp-rx-{index}") };
    match job.role {
        Role::Server => {
            let mut listeners = Vec::with_capacity(job.paths());
            for path in 0..job.paths() {
                let job = job.on_path(path);
                let listener = Arc::new(sockets::listen(&job, streams, buffers)?);
                control.watch(&listener);
                ports.push(sockets::port(&listener)?);
                listeners.push((job, listener));
            }
            for index in 0..streams {
                let (job, listener) = listeners[job.path_of(index)].clone();
                workers.push(Worker::spawn(control, name(index), move |control| {
                    let (socket, index) = sockets::accept(control, &job, &listener)?;
                    run(control, &job, &socket, index, buffers)
                })?);
            }
        }
        Role::Client => {
            for index in 0..streams {
                let path = job.path_of(index);
                let job = job.on_path(path);
                let socket = Arc::new(sockets::connect(&job, path, index, buffers)?);
                control.watch(&socket);
                workers.push(Worker::spawn(control, name(index), move |control| {
                    run(control, &job, &socket, index, buffers)
                })?);
            }
        }
    }
    let probe = probe::open(job, control, &mut ports)?;
    let job = job.clone();
    let finish = Box::new(move |control: &Control| {
        let streams = join_all(workers);
        control.finish();
        let (streams, seen) = both(streams, probe.join())?;
        Ok(probe::beside(seen, outcome(&job, control, streams)?))
    });
    Ok(Opened { ports, finish })
}

/// One stream as its thread saw it.
struct Stream {
    index: u16,
    tally: Finished,
    tcp: TcpSummary,
    conditions: Conditions,
    ended_alone: bool,
}

fn run(control: &Control, job: &Job, socket: &Socket, index: u16, buffers: Buffers) -> Result<Stream, TrafficError> {
    sockets::verify_congestion_control(job, socket)?;
    let at_first = sockets::conditions(job, socket, buffers);
    let mut passage = Passage { socket, tally: None, start: None, end: None };
    let ended_alone = if job.sends() {
        send(control, job, &mut passage, index)?
    } else {
        receive(control, &mut passage, index)?;
        // Who is silent at the window's end still blocks: the window is over for all of them.
        control.wake();
        false
    };
    let end = match passage.end {
        Some(end) => end,
        None => read_info(socket)?,
    };
    let conditions = sockets::conditions(job, socket, buffers).or(at_first);
    let tally = match passage.tally {
        Some(tally) => tally,
        // Not a byte on this stream, but on others.
        None => Tally::new(control.window.open(clock::now_ns())),
    };
    Ok(Stream {
        index,
        tally: tally.finish(clock::now_ns()),
        tcp: TcpSummary { start: passage.start, end },
        conditions,
        ended_alone,
    })
}

/// A stream on its way through the window.
struct Passage<'a> {
    socket: &'a Socket,
    tally: Option<Tally>,
    /// At the window's begin.
    start: Option<TcpInfo>,
    /// At the window's end.
    end: Option<TcpInfo>,
}

impl Passage<'_> {
    /// `bytes` have moved by now (or none, after a while of waiting). Tells whether the window is over.
    fn moved(&mut self, control: &Control, bytes: u64) -> Result<bool, TrafficError> {
        let now_ns = clock::now_ns();
        let bounds = if bytes > 0 { Some(control.window.open(now_ns)) } else { control.window.bounds() };
        let Some(bounds) = bounds else { return Ok(false) };
        self.tally.get_or_insert_with(|| Tally::new(bounds)).add(now_ns, bytes);
        if self.start.is_none() && bounds.contains(now_ns) {
            self.start = Some(read_info(self.socket)?);
        }
        let over = now_ns >= bounds.end_ns;
        if over && self.end.is_none() {
            self.end = Some(read_info(self.socket)?);
        }
        Ok(over)
    }
}

fn read_info(socket: &Socket) -> Result<TcpInfo, TrafficError> {
    TcpInfo::read(socket).map_err(failed("reading TCP_INFO"))
}

/// Receives until the window is over.
fn receive(control: &Control, passage: &mut Passage<'_>, index: u16) -> Result<(), TrafficError> {
    let mut buffer = Pages::zeroed(CHUNK);
    loop {
        match { passage.socket }.read(&mut buffer) {
            Ok(count) if count > 0 => {
                if passage.moved(control, count as u64)? {
                    return Ok(());
                }
            }
            Err(error) if sockets::is_tick(&error) => {
                if passage.moved(control, 0)? {
                    return Ok(());
                }
                control.may_go_on(|| awaited(control, index))?;
            }
            Ok(_) => return closed(control, passage, index),
            Err(error) if sockets::is_end(&error) => return closed(control, passage, index),
            Err(error) => return Err(failed(format!("receiving on stream {index}"))(error)),
        }
    }
}

/// What a receiver waits for.
fn awaited(control: &Control, index: u16) -> String {
    match control.window.bounds() {
        None => format!("the first byte (stream {index})"),
        Some(_) => "the end of the measured window".to_owned(),
    }
}

/// The connection ended: by the end of the window on another stream, by a stop, or too early.
fn closed(control: &Control, passage: &mut Passage<'_>, index: u16) -> Result<(), TrafficError> {
    if passage.moved(control, 0)? {
        return Ok(());
    }
    control.may_go_on(|| awaited(control, index))?;
    Err(TrafficError::EndedEarly { what: format!("stream {index}"), after: control.elapsed() })
}

/// Sends until the receiver ends it. Tells whether nobody did.
fn send(control: &Control, job: &Job, passage: &mut Passage<'_>, index: u16) -> Result<bool, TrafficError> {
    let mut payload = Pages::zeroed(CHUNK);
    // Neither compressible nor the same on two streams: a path that compresses or merges must not look fast.
    ChaCha8Rng::seed_from_u64(job.seed ^ (u64::from(index) << 48)).fill_bytes(&mut payload);
    let mut offset = 0;
    let window = control.window.open(clock::now_ns());
    loop {
        let over = match passage.socket.send_with_flags(&payload[offset..], libc::MSG_NOSIGNAL) {
            Ok(count) => {
                offset = (offset + count) % CHUNK;
                passage.moved(control, count as u64)?
            }
            Err(error) if sockets::is_tick(&error) => passage.moved(control, 0)?,
            Err(error) if sockets::is_end(&error) => {
                if !passage.moved(control, 0)? && control.stopped() {
                    control.may_go_on(|| "the end of the measured window".to_owned())?;
                }
                return Ok(false);
            }
            Err(error) => return Err(failed(format!("sending on stream {index}"))(error)),
        };
        if !over {
            control.may_go_on(|| "the end of the measured window".to_owned())?;
        } else if control.stopped() || clock::now_ns() >= control.deadline_ns().min(window.end_ns + GRACE_NS) {
            // Not a byte more than the window needed stays behind in the buffer.
            passage.socket.set_linger(Some(std::time::Duration::ZERO)).map_err(failed("SO_LINGER"))?;
            return Ok(!control.stopped());
        }
    }
}

fn outcome(job: &Job, control: &Control, mut streams: Vec<Stream>) -> Result<Outcome, TrafficError> {
    streams.sort_by_key(|stream| stream.index);
    let Some(bounds) = control.window.bounds() else {
        return Err(control.nothing_arrived("the first byte"));
    };
    let mut cautions = Vec::new();
    for stream in streams.iter().filter(|stream| stream.tally.bytes == 0) {
        cautions.push(Caution::SilentStream { stream: stream.index });
    }
    if streams.iter().any(|stream| stream.ended_alone) {
        cautions.push(Caution::SenderEndedAlone);
    }
    let conditions = streams.first().map(|stream| stream.conditions.clone()).unwrap_or_default();
    cautions.extend(sockets::buffer_cautions(&conditions));
    cautions.extend(differing(&streams));
    let tcp: Vec<TcpSummary> = streams.iter().map(|stream| stream.tcp).collect();
    let tallies: Vec<Finished> = streams.into_iter().map(|stream| stream.tally).collect();
    let total = tally::total(bounds, &tallies);
    if total.bytes == 0 {
        return Err(control.nothing_arrived("a byte within the measured window, on any stream,"));
    }
    let planned_ns = bounds.end_ns - bounds.begin_ns;
    if total.length_ns < planned_ns {
        cautions.push(Caution::WindowCutShort { planned_ns, measured_ns: total.length_ns });
    }
    cautions.extend(total.steadiness());
    cautions.extend(control.strangers());
    let (sent, received) = if job.sends() { (Some(total.bytes), None) } else { (None, Some(total.bytes)) };
    let retransmitted = tcp.iter().map(|tcp| {
        u64::from(tcp.end.total_retrans - tcp.start.map_or(0, |start| start.total_retrans).min(tcp.end.total_retrans))
    });
    Ok(Outcome {
        window: Some(Window { length_ns: total.length_ns, ..control.whole_window(bounds) }),
        counts: Counts {
            sent_bytes: sent,
            received_bytes: received,
            retransmitted_segments: job.sends().then(|| retransmitted.sum()),
            ..Counts::default()
        },
        streams: total.streams,
        series: Some(total.series),
        gaps: total.gaps,
        conditions,
        tcp,
        cautions,
        ..Outcome::new(job)
    })
}

/// What must be the same on all streams, and is not.
fn differing(streams: &[Stream]) -> Vec<Caution> {
    let differs = |what: &str, same: fn(&Conditions, &Conditions) -> bool| {
        let all_same = streams.windows(2).all(|two| same(&two[0].conditions, &two[1].conditions));
        (!all_same).then(|| Caution::ConditionsDiffer { what: what.to_owned() })
    };
    [
        differs("congestion_control", |a, b| a.congestion_control == b.congestion_control),
        differs("mss", |a, b| a.mss == b.mss),
        differs("path_mtu", |a, b| a.path_mtu == b.path_mtu),
    ]
    .into_iter()
    .flatten()
    .collect()
}
