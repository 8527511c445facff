//! The sender of one flow.

use std::io;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::super::TrafficError;
use super::super::control::{Bounds, Control, TICK, nanoseconds};
use super::super::datagram::{HEADER, Header, Kind};
use super::super::histogram::Recorder;
use super::super::job::Role;
use super::super::outcome::Counts;
use super::super::pacing::{Due, Schedule};
use super::super::ports::Outgoing;
use super::super::sockets::{self, failed};
use super::super::tally::Tally;
use super::{BATCH, END_EVERY, END_WITHIN, Flow, GRACE, GREET_EVERY, Seen};
use crate::sys::clock;

/// After an error: a socket that refuses must not be asked a million times.
const PAUSE_NS: u64 = 100_000;
/// Past its own window a sender looks this often for the receiver's word that it is done.
const LOOK_EVERY_NS: u64 = 1_000_000;

/// Greets, sends until the receiver is done, and tells it the counts.
pub(super) fn run(control: &Control, flow: &Flow) -> Result<Seen, TrafficError> {
    greet(control, flow)?;
    let mut tail = vec![0; flow.payload - HEADER];
    // Neither compressible nor the same on two flows: a path that compresses must not look fast.
    ChaCha8Rng::seed_from_u64(flow.job.seed ^ (u64::from(flow.index) << 48)).fill_bytes(&mut tail);
    clock::precise_timers().map_err(failed("setting the timer slack"))?;
    let begin_ns = clock::now_ns();
    let bounds = control.window.open(begin_ns);
    let mut sender = Sender {
        flow,
        bounds,
        batch: Outgoing::new(BATCH, tail),
        schedule: flow.interval_ns.map(|interval_ns| Schedule::new(begin_ns, interval_ns)),
        sequence: 0,
        measured: 0,
        tried: 0,
        counts: Counts::default(),
        lateness: Recorder::new(),
        tally: Tally::new(bounds),
    };
    let ended_alone = sender.send_until_done(control)?;
    if !control.stopped() {
        sender.tell_the_end()?;
    }
    let Sender { tally, counts, lateness, measured, tried, schedule, .. } = sender;
    let offered = schedule.map_or(tried, |schedule| {
        schedule.offered(bounds.end_ns - 1) - schedule.offered(bounds.begin_ns.saturating_sub(1))
    });
    Ok(Seen {
        index: flow.index,
        tally: tally.finish(clock::now_ns()),
        packets: measured,
        counts: Counts { offered_packets: Some(offered), sent_packets: Some(measured), ..counts },
        lateness: flow.interval_ns.map(|_| lateness.finish()),
        conditions: flow.socket.conditions(&flow.job, flow.buffers),
        ended_alone,
    })
}

/// Returns once the receiver is known to be there.
fn greet(control: &Control, flow: &Flow) -> Result<(), TrafficError> {
    let Flow { socket, index, job, .. } = flow;
    socket.wait_at_most(GREET_EVERY).map_err(failed("setting a receive time-out"))?;
    match job.role {
        Role::Server => super::receive::await_hello(control, flow),
        Role::Client => {
            let hello = Header::new(Kind::Hello, *index).encode(job.seed);
            let mut refusal: Option<io::Error> = None;
            let mut buffer = [0; HEADER];
            loop {
                control.may_go_on(|| match &refusal {
                    Some(error) => format!("an answer to flow {index}'s greeting ({error})"),
                    None => format!("an answer to flow {index}'s greeting"),
                })?;
                if let Err(error) = socket.send(&hello) {
                    refusal = Some(error);
                }
                match socket.receive(&mut buffer) {
                    Ok(count) => match Header::decode(&buffer[..count], job.seed) {
                        Some(header) if header.kind == Kind::Go => return Ok(()),
                        _ => {}
                    },
                    Err(error) if sockets::is_tick(&error) => {}
                    Err(error) => {
                        refusal = Some(error);
                        clock::sleep_until(clock::now_ns() + nanoseconds(GREET_EVERY)).map_err(failed("pausing"))?;
                    }
                }
            }
        }
    }
}

struct Sender<'a> {
    flow: &'a Flow,
    bounds: Bounds,
    batch: Outgoing,
    schedule: Option<Schedule>,
    /// The next datagram's number: that of all datagrams so far.
    sequence: u64,
    /// Datagrams sent in the window.
    measured: u64,
    /// Datagrams tried in the window.
    tried: u64,
    counts: Counts,
    lateness: Recorder,
    tally: Tally,
}

impl Sender<'_> {
    /// Tells whether nobody said that it is done.
    fn send_until_done(&mut self, control: &Control) -> Result<bool, TrafficError> {
        let mut look_ns = self.bounds.end_ns;
        loop {
            let now_ns = clock::now_ns();
            if now_ns >= self.bounds.end_ns {
                if control.stopped() {
                    return Ok(false);
                }
                if now_ns >= look_ns {
                    if self.receiver_is_done() {
                        return Ok(false);
                    }
                    look_ns = now_ns + LOOK_EVERY_NS;
                }
                if now_ns >= control.deadline_ns().min(self.bounds.end_ns + nanoseconds(GRACE)) {
                    return Ok(true);
                }
            } else {
                control.may_go_on(|| "the end of the measured window".to_owned())?;
            }
            match self.schedule.as_mut().map(|schedule| schedule.due(now_ns)) {
                None => self.send_batch(now_ns, BATCH)?,
                Some(Due::At(at_ns)) => {
                    clock::sleep_until(at_ns.min(now_ns + nanoseconds(TICK))).map_err(failed("waiting to send"))?;
                }
                Some(Due::Now { packets, late_ns }) => {
                    if self.bounds.contains(now_ns) {
                        self.lateness.record(late_ns);
                    }
                    self.send_batch(now_ns, packets.min(BATCH as u64) as usize)?;
                }
            }
        }
    }

    fn send_batch(&mut self, now_ns: u64, packets: usize) -> Result<(), TrafficError> {
        let in_window = self.bounds.contains(now_ns);
        let kind = if in_window { Kind::Measured } else { Kind::Data };
        let header = Header { time_ns: now_ns, ..Header::new(kind, self.flow.index) };
        for (sequence, head) in (self.sequence..).zip(&mut self.batch.heads[..packets]) {
            *head = Header { sequence, ..header }.encode(self.flow.job.seed);
        }
        let (sent, refused) = match self.flow.socket.send_batch(&mut self.batch, packets) {
            Ok(sent) => (sent as u64, 0),
            // The socket's buffer is full: the time-out only lets this thread look around.
            Err(error) if sockets::is_tick(&error) => (0, 0),
            Err(error) => {
                if in_window {
                    self.counts.add_error(&error);
                }
                clock::sleep_until(clock::now_ns() + PAUSE_NS).map_err(failed("pausing"))?;
                (0, 1)
            }
        };
        self.sequence += sent;
        if let Some(schedule) = &mut self.schedule {
            schedule.take(sent + refused);
        }
        if in_window {
            self.tried += sent + refused;
            self.measured += sent;
        }
        self.tally.add(now_ns, sent * self.batch.size() as u64);
        Ok(())
    }

    /// Looks, without waiting, for the receiver's word.
    fn receiver_is_done(&mut self) -> bool {
        let mut buffer = [0; HEADER];
        loop {
            match self.flow.socket.try_receive(&mut buffer) {
                Ok(count) => match Header::decode(&buffer[..count], self.flow.job.seed) {
                    Some(header) if header.kind == Kind::Done => return true,
                    _ => {}
                },
                // Nothing there, or an ICMP error that an earlier datagram met: the receiver has said nothing.
                Err(_) => return false,
            }
        }
    }

    /// Tells the receiver the counts until it says that it has them.
    fn tell_the_end(&mut self) -> Result<(), TrafficError> {
        let Flow { socket, job, index, .. } = self.flow;
        let end = Header { sequence: self.sequence, time_ns: self.measured, ..Header::new(Kind::End, *index) };
        let end = end.encode(job.seed);
        socket.wait_at_most(END_EVERY).map_err(failed("setting a receive time-out"))?;
        let give_up_ns = clock::now_ns() + nanoseconds(END_WITHIN);
        let mut buffer = [0; HEADER];
        while clock::now_ns() < give_up_ns {
            // If it cannot be sent, the receiver says that the count is missing.
            let _ = socket.send(&end);
            match socket.receive(&mut buffer) {
                Ok(count) => match Header::decode(&buffer[..count], job.seed) {
                    Some(header) if header.kind == Kind::Fin => return Ok(()),
                    _ => {}
                },
                Err(error) if sockets::is_tick(&error) => {}
                // The receiver has closed its port: it has all that it wanted.
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }
}
