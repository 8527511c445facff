//! `handshake`: new WireGuard sessions, one after the other: a closed loop. The client's engine makes them and tells how long each
//! took; the server's answers.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::control::{Control, TICK, Worker, nanoseconds};
use super::histogram::Recorder;
use super::job::{Job, Role};
use super::outcome::{Counts, Latency, Outcome, Sampling};
use super::sockets::failed;
use super::{Opened, TrafficError};
use crate::sys::clock;

/// A tunnel that makes handshakes when it is asked to.
pub trait Handshakes: Send + Sync {
    /// Makes new sessions with the peer for `time`, one after the other: how long each took in nanoseconds, and how many were
    /// not answered.
    ///
    /// # Errors
    /// It cannot.
    fn shake(&self, time: Duration) -> Result<(Vec<u64>, u64), Box<dyn Error + Send + Sync>>;
}

pub(super) fn open(
    job: &Job,
    control: &Arc<Control>,
    handshakes: Option<Arc<dyn Handshakes>>,
) -> Result<Opened, TrafficError> {
    let owned = job.clone();
    let worker = match (job.role, handshakes) {
        (Role::Server, _) => Worker::spawn(control, "handshake", move |control| wait_out(control, &owned))?,
        (Role::Client, Some(handshakes)) => {
            Worker::spawn(control, "handshake", move |control| shake(control, &owned, &*handshakes))?
        }
        (Role::Client, None) => {
            let reason = "handshakes are made by this program's own engines: measure embedded or direct".to_owned();
            return Err(TrafficError::BadJob { reason });
        }
    };
    Ok(Opened::single(Vec::new(), worker))
}

/// The part of a server whose kernel or engine answers by itself: it waits for the end.
pub(super) fn wait_out(control: &Control, job: &Job) -> Result<Outcome, TrafficError> {
    let end_ns = control.started_ns() + nanoseconds(job.warmup + job.duration);
    while clock::now_ns() < end_ns && !control.stopped() {
        let next_ns = end_ns.min(clock::now_ns() + nanoseconds(TICK));
        clock::sleep_until(next_ns).map_err(failed("waiting for the window's end"))?;
    }
    Ok(Outcome::new(job))
}

fn shake(control: &Control, job: &Job, handshakes: &dyn Handshakes) -> Result<Outcome, TrafficError> {
    let bounds = control.window.open(clock::now_ns());
    let mut latencies = Recorder::new();
    let (mut made, mut lost) = (0, 0);
    let (mut begin_ns, mut end_ns) = (None, 0);
    loop {
        let now_ns = clock::now_ns();
        if now_ns >= bounds.end_ns {
            break;
        }
        control.may_go_on(|| "the end of the measured window".to_owned())?;
        let measured = now_ns >= bounds.begin_ns;
        let until_ns = if measured { bounds.end_ns } else { bounds.begin_ns };
        // In short parts, so that the job's end is seen in time.
        let part = Duration::from_nanos(until_ns - now_ns).min(TICK);
        let (took_ns, unanswered) =
            handshakes.shake(part).map_err(io::Error::other).map_err(failed("shaking hands"))?;
        if measured {
            begin_ns.get_or_insert(now_ns);
            end_ns = clock::now_ns();
            made += took_ns.len() as u64;
            lost += unanswered;
            took_ns.into_iter().for_each(|ns| latencies.record(ns));
        }
    }
    let Some(begin_ns) = begin_ns.filter(|_| made > 0) else {
        return Err(control.nothing_arrived("an answer to a handshake within the measured window"));
    };
    let mut window = control.whole_window(bounds);
    // The last one is waited for, and the first may begin late.
    window.length_ns = end_ns - begin_ns;
    Ok(Outcome {
        window: Some(window),
        counts: Counts { transactions: Some(made), timeouts: Some(lost), ..Counts::default() },
        latency: Some(Latency { sampling: Sampling::ClosedLoop, histogram: latencies.finish(), unanswered: lost }),
        ..Outcome::new(job)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::{JobKind, prepare, prepare_handshakes};
    use super::*;
    use crate::units::Direction;

    /// Each takes a millisecond; every tenth is lost.
    struct Slow(Mutex<u64>);

    impl Handshakes for Slow {
        fn shake(&self, time: Duration) -> Result<(Vec<u64>, u64), Box<dyn Error + Send + Sync>> {
            let (until_ns, mut took, mut lost) = (clock::now_ns() + nanoseconds(time), Vec::new(), 0);
            while clock::now_ns() < until_ns {
                let begin_ns = clock::now_ns();
                std::thread::sleep(Duration::from_millis(1));
                let mut number = self.0.lock().unwrap();
                *number += 1;
                if number.is_multiple_of(10) {
                    lost += 1;
                } else {
                    took.push(clock::now_ns() - begin_ns);
                }
            }
            Ok((took, lost))
        }
    }

    fn job(role: Role) -> Job {
        Job {
            role,
            direction: Direction::Forward,
            kind: JobKind::Handshake,
            local: "127.0.0.1".parse().unwrap(),
            local_interface: None,
            peer: Some(("127.0.0.1".parse().unwrap(), Vec::new())),
            more_paths: Vec::new(),
            congestion_control: None,
            warmup: Duration::from_millis(60),
            duration: Duration::from_millis(200),
            deadline: Duration::from_secs(5),
            probe: None,
            seed: 1,
        }
    }

    #[test]
    fn handshakes_of_the_window_are_counted_and_timed() {
        let shaker: Arc<dyn Handshakes> = Arc::new(Slow(Mutex::new(0)));
        let server = prepare(&job(Role::Server)).unwrap().start();
        let client = prepare_handshakes(&job(Role::Client), shaker).unwrap().start();
        let (client, server) = (client.wait().unwrap(), server.wait().unwrap());
        let (made, lost) = (client.counts.transactions.unwrap(), client.counts.timeouts.unwrap());
        let latency = client.latency.clone().unwrap();
        assert_eq!((latency.histogram.count(), latency.unanswered), (made, lost));
        assert!((made / 12..=made / 7).contains(&lost), "{made} {lost}");
        assert!(latency.histogram.min_ns.unwrap() >= 1_000_000);
        let window = client.window.unwrap();
        assert_eq!(window.warmup_ns, 60_000_000);
        assert!(
            (190_000_000..400_000_000).contains(&window.length_ns) && made <= window.length_ns / 1_000_000,
            "{window:?} {made}"
        );
        assert!(client.transactions_per_second().unwrap() > 10.0);
        assert_eq!((server.window, server.counts), (None, Counts::default()));
    }

    #[test]
    fn who_has_no_engine_of_ours_is_told_so() {
        let refused = prepare(&job(Role::Client)).err().unwrap().to_string();
        assert!(refused.contains("measure embedded or direct"), "{refused}");
    }
}
