//! Round trips on an even schedule, each timed from the moment when it was *meant* to be sent: a stall of the sender or
//! the path delays all that fall into it, and none is left out (coordinated omission).

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use nix::sys::time::TimeSpec;

use super::TrafficError;
use super::control::{Bounds, Control, TICK, nanoseconds};
use super::histogram::{Histogram, Recorder};
use super::outcome::{Counts, Latency, Sampling};
use super::sockets::failed;
use crate::sys::clock;

/// Answers are waited for this long after the window, and twice the slowest answer so far if that is longer.
const LINGER: Duration = Duration::from_millis(100);
/// But never longer.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// Past the window, answers are looked for this often.
const LINGER_STEP_NS: u64 = 5_000_000;

/// A way to send numbered requests, and to get the numbers of those that were answered.
pub(super) trait Echo {
    /// Sends one.
    fn send(&mut self, number: u64) -> io::Result<()>;
    /// Takes an answer, without waiting (`WouldBlock`). `None` is something else that came.
    fn receive(&mut self) -> io::Result<Option<u64>>;
    /// What to wait on.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

struct Sample {
    intended_ns: u64,
    sent_ns: u64,
    answered_ns: Option<u64>,
}

/// What became of the round trips that were meant for the window.
pub(super) struct RoundTrips {
    pub(super) sent: u64,
    pub(super) latency: Latency,
    pub(super) lateness: Histogram,
    /// Errors by name, and copies of answers.
    pub(super) counts: Counts,
}

/// Sends one request every `interval_ns` until the window's end, which `window` tells as soon as it knows, and waits a
/// little for the last answers.
pub(super) fn run(
    control: &Control,
    echo: &mut impl Echo,
    interval_ns: u64,
    window: impl Fn() -> Option<Bounds>,
) -> Result<RoundTrips, TrafficError> {
    clock::precise_timers().map_err(failed("setting the timer slack"))?;
    let begin_ns = clock::now_ns();
    let mut seen = Samples::default();
    let mut wake = WakeUp::default();
    loop {
        let now_ns = clock::now_ns();
        let bounds = window();
        let end_ns = bounds.map_or(u64::MAX, |bounds| bounds.end_ns);
        let next_ns = loop {
            let intended_ns = begin_ns + interval_ns * seen.samples.len() as u64;
            if intended_ns > now_ns || intended_ns >= end_ns {
                break intended_ns;
            }
            seen.send(echo, intended_ns);
        };
        if let Some(bounds) = bounds.filter(|bounds| now_ns >= bounds.end_ns) {
            if seen.is_over(bounds, now_ns) || control.stopped() {
                break;
            }
        } else {
            control.may_go_on(|| "the end of the measured window".to_owned())?;
        }
        let until_ns = next_ns.min(now_ns + nanoseconds(TICK));
        if now_ns >= end_ns {
            wait(echo.descriptor(), LINGER_STEP_NS)?;
            seen.take_answers(echo);
            continue;
        }
        // Sleeps until shortly before the time, then watches the clock.
        let early_ns = wake.early_ns();
        while let Some(sleep_ns) = until_ns.checked_sub(clock::now_ns() + early_ns).filter(|sleep_ns| *sleep_ns > 0) {
            let answers = wait(echo.descriptor(), sleep_ns)?;
            wake.woke(until_ns - early_ns, clock::now_ns(), answers);
            seen.take_answers(echo);
        }
        while clock::now_ns() < until_ns {
            seen.take_answers(echo);
        }
    }
    let Some(bounds) = window() else {
        return Err(control.nothing_arrived("the first byte"));
    };
    let counts = Counts { duplicate_packets: Some(seen.duplicates), ..seen.counts };
    Ok(summary(&seen.samples, bounds, counts))
}

/// How much too late this thread wakes up, from the last times: a virtual machine's idle processor may need 0.2 ms, which
/// would be added to every round trip if the thread slept until the very moment.
struct WakeUp {
    late_ns: u64,
}

/// What may be spent on watching the clock: at 100 requests per second, 2.5 % of one CPU.
const EARLY_MAX_NS: u64 = 250_000;

impl Default for WakeUp {
    fn default() -> Self {
        Self { late_ns: 100_000 }
    }
}

impl WakeUp {
    /// How long before its time the thread should be woken.
    fn early_ns(&self) -> u64 {
        (self.late_ns + self.late_ns / 4 + 10_000).min(EARLY_MAX_NS)
    }

    /// It was to wake at `asked_ns`, and did at `now_ns`, unless answers came before.
    fn woke(&mut self, asked_ns: u64, now_ns: u64, answers: bool) {
        if !answers && now_ns >= asked_ns {
            let late_ns = (now_ns - asked_ns).min(EARLY_MAX_NS);
            self.late_ns = (self.late_ns * 7 + late_ns) / 8;
        }
    }
}

#[derive(Default)]
struct Samples {
    samples: Vec<Sample>,
    counts: Counts,
    duplicates: u64,
    slowest_ns: u64,
}

impl Samples {
    fn send(&mut self, echo: &mut impl Echo, intended_ns: u64) {
        let sent_ns = clock::now_ns();
        if let Err(error) = echo.send(self.samples.len() as u64) {
            self.counts.add_error(&error);
        }
        self.samples.push(Sample { intended_ns, sent_ns, answered_ns: None });
    }

    /// Takes what answers there are, without waiting.
    fn take_answers(&mut self, echo: &mut impl Echo) {
        loop {
            match echo.receive() {
                Ok(Some(number)) => self.answered(number, clock::now_ns()),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // An ICMP error that an earlier packet met; told once, then gone from the socket.
                    self.counts.add_error(&error);
                    return;
                }
            }
        }
    }

    fn answered(&mut self, number: u64, answered_ns: u64) {
        // A number that was never sent is a stranger's.
        let Some(sample) = usize::try_from(number).ok().and_then(|number| self.samples.get_mut(number)) else { return };
        if sample.answered_ns.is_some() {
            self.duplicates += 1;
            return;
        }
        sample.answered_ns = Some(answered_ns);
        self.slowest_ns = self.slowest_ns.max(answered_ns.saturating_sub(sample.intended_ns));
    }

    /// Whether there is nothing more to wait for, past the window.
    fn is_over(&self, bounds: Bounds, now_ns: u64) -> bool {
        let linger_ns = nanoseconds(LINGER).max(2 * self.slowest_ns).min(nanoseconds(LINGER_MAX));
        let mut measured = self.samples.iter().rev().take_while(|sample| sample.intended_ns >= bounds.begin_ns);
        now_ns >= bounds.end_ns + linger_ns || measured.all(|sample| sample.answered_ns.is_some())
    }
}

fn summary(samples: &[Sample], bounds: Bounds, counts: Counts) -> RoundTrips {
    let (mut latencies, mut lateness) = (Recorder::new(), Recorder::new());
    let (mut sent, mut unanswered) = (0, 0);
    for sample in samples.iter().filter(|sample| bounds.contains(sample.intended_ns)) {
        sent += 1;
        lateness.record(sample.sent_ns - sample.intended_ns);
        match sample.answered_ns {
            Some(answered_ns) => latencies.record(answered_ns - sample.intended_ns),
            None => unanswered += 1,
        }
    }
    RoundTrips {
        sent,
        latency: Latency { sampling: Sampling::Paced, histogram: latencies.finish(), unanswered },
        lateness: lateness.finish(),
        counts,
    }
}

/// Waits until there is something to receive, for `wait_ns` at most; tells whether there is.
fn wait(descriptor: BorrowedFd<'_>, wait_ns: u64) -> Result<bool, TrafficError> {
    let mut descriptors = [PollFd::new(descriptor, PollFlags::POLLIN)];
    let time_out = TimeSpec::new((wait_ns / 1_000_000_000) as i64, (wait_ns % 1_000_000_000) as i64);
    match nix::poll::ppoll(&mut descriptors, Some(time_out), None) {
        Ok(ready) => Ok(ready > 0),
        Err(nix::errno::Errno::EINTR) => Ok(false),
        Err(errno) => Err(failed("waiting for answers")(errno.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_wakes_late_asks_to_be_woken_earlier_within_limits() {
        let mut wake = WakeUp::default();
        (0..50).for_each(|_| wake.woke(1_000_000, 1_160_000, false));
        assert!((180_000..=220_000).contains(&wake.early_ns()), "{}", wake.early_ns());
        (0..50).for_each(|_| wake.woke(1_000_000, 9_000_000, false));
        assert_eq!(wake.early_ns(), EARLY_MAX_NS);
        // Woken by answers, before its time: says nothing of the timer.
        wake.woke(1_000_000, 900_000, true);
        assert_eq!(wake.early_ns(), EARLY_MAX_NS);
        (0..50).for_each(|_| wake.woke(1_000_000, 1_002_000, false));
        assert!(wake.early_ns() < 20_000);
    }

    #[test]
    fn a_stall_delays_every_request_that_falls_into_it() {
        const MS: u64 = 1_000_000;
        let bounds = Bounds { first_ns: 0, begin_ns: 10 * MS, end_ns: 60 * MS };
        // Every 10 ms; from 20 to 50 ms nothing was sent, then all of them at once.
        let sample = |intended: u64, sent: u64| Sample {
            intended_ns: intended * MS,
            sent_ns: sent * MS,
            answered_ns: (intended != 50).then_some((sent + 1) * MS),
        };
        let samples = [sample(0, 0), sample(10, 10), sample(20, 50), sample(30, 50), sample(40, 50), sample(50, 50)];
        let summary = summary(&samples, bounds, Counts::default());
        assert_eq!((summary.sent, summary.latency.unanswered), (5, 1));
        assert_eq!(summary.latency.histogram.count(), 4);
        assert_eq!(summary.latency.histogram.max_ns, Some(31 * MS));
        assert_eq!(summary.lateness.max_ns, Some(30 * MS));
        assert_eq!(summary.latency.histogram.min_ns, Some(MS));
    }
}
