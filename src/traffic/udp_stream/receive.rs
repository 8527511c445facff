//! The receiver of one flow.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use super::super::TrafficError;
use super::super::control::{Bounds, Control, nanoseconds};
use super::super::datagram::{HEADER, Header, Kind};
use super::super::job::Role;
use super::super::outcome::Counts;
use super::super::sequence::{Arrival, Sequences};
use super::super::sockets::{self, failed};
use super::super::tally::Tally;
use super::{BATCH, END_EVERY, END_WITHIN, Flow, GREET_EVERY, Seen};
use crate::sys::clock;
use crate::sys::mmsg::ReceiveBatch;

/// A receiver of more than a datagram in this time lets them gather for so long: woken for every few of them, it costs the sender more
/// than it takes (the wake-up is the sender's work), and binds the pair. A fraction of the receive buffer's room.
const NAP_NS: u64 = 50_000;

/// Receives until its window is over and the sender has told its counts.
pub(super) fn run(control: &Control, flow: &Flow) -> Result<Seen, TrafficError> {
    flow.socket.wait_at_most(GREET_EVERY).map_err(failed("setting a receive time-out"))?;
    clock::precise_timers().map_err(failed("setting the timer slack"))?;
    if flow.job.role == Role::Server {
        await_hello(control, flow)?;
    }
    let mut receiver = Receiver {
        flow,
        sequences: Sequences::new(),
        bounds: None,
        tally: None,
        packets: 0,
        measured: Measured::default(),
        drops_begin: None,
        drops_end: None,
        heard: false,
        said_ns: 0,
        end: None,
    };
    let mut batch = ReceiveBatch::new(BATCH, flow.payload);
    let naps = flow.interval_ns.is_none_or(|interval_ns| interval_ns < NAP_NS as f64);
    if flow.interval_ns.is_some() {
        flow.socket.stamp_arrivals().map_err(failed("SO_TIMESTAMPNS"))?;
    }
    loop {
        match flow.socket.receive_batch(&mut batch) {
            Ok(count) => {
                receiver.take(control, &batch)?;
                if naps && count < BATCH {
                    clock::sleep_until(clock::now_ns() + NAP_NS).map_err(failed("pausing"))?;
                }
            }
            Err(error) if sockets::is_tick(&error) => {}
            // A client's greeting found nobody yet; it is repeated.
            Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) && !receiver.heard => {
                clock::sleep_until(clock::now_ns() + nanoseconds(GREET_EVERY)).map_err(failed("pausing"))?;
            }
            // The sender's port is closed: whatever there was has come.
            Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => {}
            Err(error) => return Err(failed(format!("receiving on flow {}", flow.index))(error)),
        }
        if receiver.is_over(control)? {
            break;
        }
    }
    receiver.seen(control)
}

/// Waits for the client's greeting, answers it, and takes from then on only what comes from there.
pub(super) fn await_hello(control: &Control, flow: &Flow) -> Result<(), TrafficError> {
    let Flow { socket, job, index, .. } = flow;
    let client: Option<IpAddr> = job.peer.as_ref().map(|(address, _)| *address);
    let mut buffer = [0; HEADER];
    loop {
        control.may_go_on(|| format!("the client's greeting on flow {index}"))?;
        let (count, from) = match socket.receive_from(&mut buffer) {
            Ok(received) => received,
            Err(error) if sockets::is_tick(&error) => continue,
            Err(error) => return Err(failed("receiving a greeting")(error)),
        };
        let of_client = client.is_none_or(|client| client == from.ip());
        match Header::decode(&buffer[..count], job.seed).filter(|_| of_client) {
            Some(header) if header.kind == Kind::Hello && header.flow == *index => {
                socket.connect(from).map_err(|source| TrafficError::Connect { peer: from, source })?;
                say(flow, Kind::Go);
                return Ok(());
            }
            _ => {
                control.strangers.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Says a word to the other end. If it is lost, or cannot be sent, it is said again.
fn say(flow: &Flow, word: Kind) {
    let _ = flow.socket.send(&Header::new(word, flow.index).encode(flow.job.seed));
}

/// What came of the datagrams that the sender marked as measured.
#[derive(Default)]
struct Measured {
    unique: u64,
    reordered: u64,
    duplicates: u64,
    stale: u64,
    lowest: Option<u64>,
    highest: Option<u64>,
    /// Sender's clock to receiver's clock: only its changes mean anything.
    transit_ns: Option<i64>,
    /// RFC 3550 section 6.4.1.
    jitter_ns: Option<f64>,
}

impl Measured {
    fn take(&mut self, arrival: Arrival, header: &Header, arrived_ns: u64) {
        match arrival {
            Arrival::New => self.unique += 1,
            Arrival::Reordered => {
                self.unique += 1;
                self.reordered += 1;
            }
            Arrival::Duplicate => {
                self.duplicates += 1;
                return;
            }
            Arrival::Stale => {
                self.stale += 1;
                return;
            }
        }
        self.lowest = self.lowest.into_iter().chain([header.sequence]).min();
        self.highest = self.highest.max(Some(header.sequence));
        let transit_ns = arrived_ns.wrapping_sub(header.time_ns) as i64;
        if let Some(before_ns) = self.transit_ns {
            let change_ns = transit_ns.wrapping_sub(before_ns).unsigned_abs() as f64;
            let jitter_ns = self.jitter_ns.unwrap_or(0.0);
            self.jitter_ns = Some(jitter_ns + (change_ns - jitter_ns) / 16.0);
        }
        self.transit_ns = Some(transit_ns);
    }

    /// Lost ones: by the sender's count, else by the gaps between the first and the last that came.
    fn lost(&self, sent: Option<u64>) -> Option<u64> {
        let spanned = || Some(self.highest? - self.lowest? + 1);
        sent.or_else(spanned).map(|all| all.saturating_sub(self.unique + self.stale))
    }
}

struct Receiver<'a> {
    flow: &'a Flow,
    sequences: Sequences,
    bounds: Option<Bounds>,
    tally: Option<Tally>,
    /// Unique datagrams in the window.
    packets: u64,
    measured: Measured,
    /// The socket's drops at the window's begin and end.
    drops_begin: Option<u32>,
    drops_end: Option<u32>,
    /// Whether the sender knows this flow: something came on it.
    heard: bool,
    /// When the other end was last spoken to.
    said_ns: u64,
    /// The sender's own count of its measured datagrams.
    end: Option<u64>,
}

impl Receiver<'_> {
    fn take(&mut self, control: &Control, batch: &ReceiveBatch) -> Result<(), TrafficError> {
        let now_ns = clock::now_ns();
        let (mut bytes, mut packets) = (0, 0);
        for datagram in batch.datagrams() {
            let Some(header) = Header::decode(datagram.bytes, self.flow.job.seed) else {
                control.strangers.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            self.heard = true;
            match header.kind {
                Kind::Data | Kind::Measured => {
                    let arrival = self.sequences.arrive(header.sequence);
                    if matches!(arrival, Arrival::New | Arrival::Reordered) {
                        bytes += datagram.length as u64;
                        packets += 1;
                    }
                    if header.kind == Kind::Measured {
                        self.measured.take(arrival, &header, datagram.arrived_ns.unwrap_or(now_ns));
                    }
                }
                Kind::Hello => say(self.flow, Kind::Go),
                Kind::End => self.end = Some(header.time_ns),
                Kind::Go | Kind::Done | Kind::Fin | Kind::Request | Kind::Response => {}
            }
        }
        if packets == 0 {
            return Ok(());
        }
        let bounds = *self.bounds.get_or_insert_with(|| control.window.open(now_ns));
        self.tally.get_or_insert_with(|| Tally::new(bounds)).add(now_ns, bytes);
        if bounds.contains(now_ns) {
            self.packets += packets;
            if self.drops_begin.is_none() {
                self.drops_begin = self.drops()?;
            }
        }
        Ok(())
    }

    fn drops(&self) -> Result<Option<u32>, TrafficError> {
        self.flow.socket.dropped().map(Some).map_err(failed("reading SO_MEMINFO"))
    }

    /// Says what is to be said now; tells whether this end is done.
    fn is_over(&mut self, control: &Control) -> Result<bool, TrafficError> {
        let now_ns = clock::now_ns();
        self.bounds = self.bounds.or_else(|| control.window.bounds());
        let Some(bounds) = self.bounds.filter(|bounds| now_ns >= bounds.end_ns) else {
            if !self.heard && self.flow.job.role == Role::Client && now_ns >= self.said_ns + nanoseconds(GREET_EVERY) {
                say(self.flow, Kind::Hello);
                self.said_ns = now_ns;
            }
            control.may_go_on(|| match self.bounds {
                None => format!("the first datagram of flow {}", self.flow.index),
                Some(_) => "the end of the measured window".to_owned(),
            })?;
            if self.end.is_some() {
                let what = format!("flow {}", self.flow.index);
                return Err(TrafficError::EndedEarly { what, after: control.elapsed() });
            }
            return Ok(false);
        };
        if self.drops_end.is_none() {
            self.drops_end = self.drops()?;
            self.flow.socket.wait_at_most(END_EVERY).map_err(failed("setting a receive time-out"))?;
        }
        if self.end.is_some() {
            for _ in 0..3 {
                say(self.flow, Kind::Fin);
            }
            return Ok(true);
        }
        if now_ns >= self.said_ns + nanoseconds(END_EVERY) {
            say(self.flow, Kind::Done);
            self.said_ns = now_ns;
        }
        Ok(control.stopped() || now_ns >= bounds.end_ns + nanoseconds(END_WITHIN))
    }

    fn seen(self, control: &Control) -> Result<Seen, TrafficError> {
        let Self { flow, tally, packets, measured, drops_begin, drops_end, end, .. } = self;
        // Not a datagram on this flow, but on others.
        let tally = tally.unwrap_or_else(|| Tally::new(control.window.open(clock::now_ns())));
        Ok(Seen {
            index: flow.index,
            tally: tally.finish(clock::now_ns()),
            packets,
            counts: Counts {
                peer_sent_packets: end,
                received_packets: Some(packets),
                lost_packets: measured.lost(end),
                reordered_packets: Some(measured.reordered),
                duplicate_packets: Some(measured.duplicates),
                stale_packets: Some(measured.stale),
                socket_drops: drops_begin.zip(drops_end).map(|(begin, end)| u64::from(end.wrapping_sub(begin))),
                // Unpaced datagrams have no times that could vary.
                jitter_ns: measured.jitter_ns.filter(|_| flow.interval_ns.is_some()).map(|jitter_ns| jitter_ns as u64),
                ..Counts::default()
            },
            lateness: None,
            conditions: flow.socket.conditions(&flow.job, flow.buffers),
            ended_alone: false,
        })
    }
}
