//! Round trips on an even schedule, each timed from the moment when it was *meant* to be sent: a stall of the sender or
//! the path delays all that fall into it, and none is left out (coordinated omission).

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};

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
    let mut samples: Vec<Sample> = Vec::new();
    let mut counts = Counts::default();
    let (mut duplicates, mut slowest_ns) = (0, 0);
    loop {
        let now_ns = clock::now_ns();
        let bounds = window();
        let end_ns = bounds.map_or(u64::MAX, |bounds| bounds.end_ns);
        let next_ns = loop {
            let intended_ns = begin_ns + interval_ns * samples.len() as u64;
            if intended_ns > now_ns || intended_ns >= end_ns {
                break intended_ns;
            }
            if let Err(error) = echo.send(samples.len() as u64) {
                counts.add_error(&error);
            }
            samples.push(Sample { intended_ns, sent_ns: clock::now_ns(), answered_ns: None });
        };
        if let Some(bounds) = bounds.filter(|bounds| now_ns >= bounds.end_ns) {
            let linger_ns = nanoseconds(LINGER).max(2 * slowest_ns).min(nanoseconds(LINGER_MAX));
            let waiting = samples.iter().rev().take_while(|sample| sample.intended_ns >= bounds.begin_ns);
            let all_answered = waiting.clone().all(|sample| sample.answered_ns.is_some());
            if all_answered || now_ns >= bounds.end_ns + linger_ns || control.stopped() {
                break;
            }
        } else {
            control.may_go_on(|| "the end of the measured window".to_owned())?;
        }
        wait(echo.descriptor(), next_ns.saturating_sub(clock::now_ns()).clamp(1, nanoseconds(TICK)))?;
        loop {
            match echo.receive() {
                Ok(Some(number)) => {
                    let answered_ns = clock::now_ns();
                    match samples.get_mut(usize::try_from(number).unwrap_or(usize::MAX)) {
                        Some(sample) if sample.answered_ns.is_none() => {
                            sample.answered_ns = Some(answered_ns);
                            slowest_ns = slowest_ns.max(answered_ns.saturating_sub(sample.intended_ns));
                        }
                        Some(_) => duplicates += 1,
                        None => {}
                    }
                }
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    // An ICMP error that an earlier packet met; told once, then gone from the socket.
                    counts.add_error(&error);
                    break;
                }
            }
        }
    }
    let Some(bounds) = window() else {
        return Err(TrafficError::NothingArrived { what: "the first byte".to_owned(), waited: control.elapsed() });
    };
    counts.duplicate_packets = Some(duplicates);
    Ok(summary(&samples, bounds, counts))
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

/// Waits until there is something to receive, for `wait_ns` at most.
fn wait(descriptor: BorrowedFd<'_>, wait_ns: u64) -> Result<(), TrafficError> {
    let mut descriptors = [PollFd::new(descriptor, PollFlags::POLLIN)];
    let time_out = nix::sys::time::TimeSpec::new((wait_ns / 1_000_000_000) as i64, (wait_ns % 1_000_000_000) as i64);
    match nix::poll::ppoll(&mut descriptors, Some(time_out), None) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(errno) => Err(failed("waiting for answers")(errno.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
