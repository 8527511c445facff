//! `udp-stream`: datagrams of one size on a schedule, or as fast as the sender can; a socket and a thread per flow at each
//! end, many datagrams in a system call, no segmentation offload.
//!
//! ```text
//! client: Hello (again and again) ->  server: Go, and from then on the flow is known
//! sender: Data, Measured (its own window), Data ... until Done   receiver: counts; Done when its window is over
//! sender: End with its counts (again and again) ->                receiver: Fin
//! ```
//!
//! The rate is what arrived in the receiver's window; the loss is that of the datagrams marked as measured, by the sender's
//! own count, so that neither window cuts the other's.

mod receive;
mod send;

use std::sync::Arc;
use std::time::Duration;

use super::control::{Control, Worker, both, join_all};
use super::histogram::Histogram;
use super::job::{Buffers, Job, Role};
use super::outcome::{Caution, Conditions, Counts, Outcome, Window};
use super::ports::{self, Port};
use super::tally::{self, Finished};
use super::{Opened, TrafficError, probe, sockets};
use crate::units::{BitRate, Bytes};

/// Datagrams in a system call.
const BATCH: usize = 64;
/// What a receiver asks for where the job does not say: 30 ms at 1 Gbit/s.
const RECEIVE_BUFFER: Bytes = Bytes::new(4 << 20);
/// A greeting is repeated this often.
const GREET_EVERY: Duration = Duration::from_millis(20);
/// The last words are repeated this often.
const END_EVERY: Duration = Duration::from_millis(10);
/// A sender that is not told the end goes on this long after its own window.
const GRACE: Duration = Duration::from_millis(500);
/// A receiver waits this long for the sender's last word.
const END_WITHIN: Duration = Duration::from_millis(300);
/// A paced sender whose bursts are later than this is a caution.
const LATE_NS: u64 = 1_000_000;

/// One flow's part of the job.
struct Flow {
    job: Job,
    socket: Box<dyn Port>,
    index: u16,
    payload: usize,
    /// Between two datagrams; `None` is unpaced.
    interval_ns: Option<f64>,
    buffers: Buffers,
}

/// One flow as its thread saw it.
struct Seen {
    index: u16,
    tally: Finished,
    packets: u64,
    counts: Counts,
    lateness: Option<Histogram>,
    conditions: Conditions,
    ended_alone: bool,
}

pub(super) fn open(
    job: &Job,
    control: &Arc<Control>,
    rate: Option<BitRate>,
    payload: Bytes,
    flows: u16,
    buffers: Buffers,
) -> Result<Opened, TrafficError> {
    let sends = job.sends();
    let buffers = Buffers { receive: buffers.receive.or(if sends { None } else { Some(RECEIVE_BUFFER) }), ..buffers };
    let interval_ns = rate.map(|rate| {
        let bits = payload.get() as f64 * 8.0;
        bits * f64::from(flows) * 1e9 / rate.bits_per_second() as f64
    });
    let mut numbers = Vec::new();
    let mut workers = Vec::with_capacity(usize::from(flows));
    for index in 0..flows {
        let job = job.on_path(job.path_of(index));
        let socket = control.udp(&job, buffers)?;
        match job.role {
            Role::Server => numbers.push(ports::number(&*socket)?),
            Role::Client => {
                let peer = sockets::peer(&job, usize::from(index))?;
                socket.connect(peer).map_err(|source| TrafficError::Connect { peer, source })?;
            }
        }
        let flow = Flow { job, socket, index, payload: payload.get() as usize, interval_ns, buffers };
        let worker = if sends {
            Worker::spawn(control, format!("udp-tx-{index}"), move |control| send::run(control, &flow))
        } else {
            Worker::spawn(control, format!("udp-rx-{index}"), move |control| receive::run(control, &flow))
        };
        workers.push(worker?);
    }
    let probe = probe::open(job, control, &mut numbers)?;
    let job = job.clone();
    let finish = Box::new(move |control: &Control| {
        let flows = join_all(workers);
        control.finish();
        let (flows, seen) = both(flows, probe.join())?;
        Ok(probe::beside(seen, outcome(&job, control, flows)?))
    });
    Ok(Opened { ports: numbers, finish })
}

fn outcome(job: &Job, control: &Control, mut flows: Vec<Seen>) -> Result<Outcome, TrafficError> {
    flows.sort_by_key(|flow| flow.index);
    let Some(bounds) = control.window.bounds() else {
        return Err(control.nothing_arrived("the first datagram"));
    };
    let mut cautions = Vec::new();
    let mut counts = Counts::default();
    let mut lateness: Option<Histogram> = None;
    for flow in &flows {
        if flow.packets == 0 {
            cautions.push(Caution::SilentStream { stream: flow.index });
        }
        counts.add(&flow.counts);
        if let Some(of_flow) = &flow.lateness {
            lateness.get_or_insert_with(Histogram::default).merge(of_flow);
        }
    }
    // A sum in which one part is missing is none.
    if flows.iter().any(|flow| flow.counts.peer_sent_packets.is_none()) && !job.sends() {
        counts.peer_sent_packets = None;
        cautions.push(Caution::SenderCountMissing);
    }
    if flows.iter().any(|flow| flow.ended_alone) {
        cautions.push(Caution::SenderEndedAlone);
    }
    let conditions = flows.first().map(|flow| flow.conditions.clone()).unwrap_or_default();
    cautions.extend(sockets::buffer_cautions(&conditions));
    cautions.extend(schedule_cautions(&counts, lateness.as_ref()));
    cautions.extend(control.strangers());
    let parts: Vec<(u64, Option<u64>)> = flows.iter().map(|flow| (flow.packets, flow.counts.socket_drops)).collect();
    let tallies: Vec<Finished> = flows.into_iter().map(|flow| flow.tally).collect();
    let mut total = tally::total(bounds, &tallies);
    for (stream, (packets, drops)) in total.streams.iter_mut().zip(parts) {
        (stream.packets, stream.socket_drops) = (Some(packets), drops);
    }
    cautions.extend(total.steadiness());
    if total.bytes == 0 {
        let what = match counts.errors.first_key_value() {
            Some((name, times)) => format!("a datagram within the measured window ({times} times {name})"),
            None => "a datagram within the measured window".to_owned(),
        };
        return Err(control.nothing_arrived(what));
    }
    let bytes = Some(total.bytes);
    (counts.sent_bytes, counts.received_bytes) = if job.sends() { (bytes, None) } else { (None, bytes) };
    Ok(Outcome {
        window: Some(Window { length_ns: total.length_ns, ..control.whole_window(bounds) }),
        counts,
        streams: total.streams,
        series: Some(total.series),
        gaps: total.gaps,
        lateness,
        conditions,
        cautions,
        ..Outcome::new(job)
    })
}

/// What a paced sender says of itself.
fn schedule_cautions(counts: &Counts, lateness: Option<&Histogram>) -> Vec<Caution> {
    let Some(lateness) = lateness else { return Vec::new() };
    let mut cautions = Vec::new();
    if let (Some(offered), Some(sent)) = (counts.offered_packets, counts.sent_packets)
        && sent.saturating_mul(100) < offered.saturating_mul(99)
    {
        cautions.push(Caution::BehindSchedule { offered_packets: offered, sent_packets: sent });
    }
    if let Some(p99_ns) = lateness.quantile_ns(0.99).filter(|late| *late > LATE_NS) {
        cautions.push(Caution::LateSender { p99_ns });
    }
    cautions
}
