//! When to send: an even schedule of packets, sent in small bursts, and what becomes of a sender that falls behind.

/// Bursts are this far apart at least: a thread that sleeps more often only spends its time on sleeping.
const BURST_NS: f64 = 100_000.0;
/// A sender that is further behind than this does not catch up: the burst would overrun queues that an even sender would
/// not, and the loss would be blamed on the path.
const CATCH_UP_NS: f64 = 2_000_000.0;

/// An even schedule.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    begin_ns: u64,
    interval_ns: f64,
    /// Packets that were due and are sent or forfeited.
    taken: u64,
    /// Packets that were due but not sent, since the sender was too far behind.
    forfeited: u64,
}

/// What is due now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// So many packets; the first was due this long ago.
    Now { packets: u64, late_ns: u64 },
    /// Nothing before this time.
    At(u64),
}

impl Schedule {
    /// A packet every `interval_ns`, the first at `begin_ns`.
    pub(super) fn new(begin_ns: u64, interval_ns: f64) -> Self {
        Self { begin_ns, interval_ns, taken: 0, forfeited: 0 }
    }

    /// What is due at `now_ns`.
    pub(super) fn due(&mut self, now_ns: u64) -> Due {
        let elapsed = now_ns.saturating_sub(self.begin_ns) as f64;
        let due = if now_ns < self.begin_ns { 0 } else { (elapsed / self.interval_ns) as u64 + 1 };
        if due <= self.taken {
            // The next packet's time, or that of the packet which completes a burst.
            let next = self.taken as f64 * self.interval_ns;
            let burst = next + (BURST_NS / self.interval_ns).floor() * self.interval_ns;
            return Due::At(self.begin_ns + burst.ceil() as u64);
        }
        let behind = (due - self.taken) as f64 * self.interval_ns;
        if behind > CATCH_UP_NS + self.interval_ns {
            let keep = (CATCH_UP_NS / self.interval_ns) as u64 + 1;
            let forfeit = (due - self.taken).saturating_sub(keep);
            self.forfeited += forfeit;
            self.taken += forfeit;
        }
        let late_ns = (elapsed - self.taken as f64 * self.interval_ns).max(0.0) as u64;
        Due::Now { packets: due - self.taken, late_ns }
    }

    /// `packets` of those that were due are dealt with.
    pub(super) fn take(&mut self, packets: u64) {
        self.taken += packets;
    }

    /// Packets that were never sent since the sender fell behind.
    pub(super) fn forfeited(&self) -> u64 {
        self.forfeited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender that always wakes `late_ns` too late, for a second: packets sent, the most in one burst, the schedule.
    fn simulate(interval_ns: f64, late_ns: u64) -> (u64, u64, Schedule) {
        let mut schedule = Schedule::new(1000, interval_ns);
        let (mut now, mut sent, mut burst) = (1000, 0, 0);
        while now < 1000 + 1_000_000_000 {
            match schedule.due(now) {
                Due::Now { packets, .. } => {
                    schedule.take(packets);
                    sent += packets;
                    burst = burst.max(packets);
                }
                Due::At(at) => {
                    assert!(at > now);
                    now = at + late_ns;
                }
            }
        }
        (sent, burst, schedule)
    }

    #[test]
    fn the_rate_is_kept_in_small_bursts() {
        // 1 Gbit/s of 1372 bytes: 91,108 packets per second.
        let (sent, burst, schedule) = simulate(10_976.0, 5_000);
        assert!((91_000..=91_120).contains(&sent), "{sent}");
        assert!(burst <= 11, "{burst}");
        assert_eq!(schedule.forfeited(), 0);
        assert_eq!(simulate(10_000_000.0, 50_000).0, 100);
    }

    #[test]
    fn a_sender_far_behind_forfeits_and_says_so() {
        let (sent, burst, schedule) = simulate(10_000.0, 20_000_000);
        assert!(burst <= 202, "{burst}");
        assert!(schedule.forfeited() > 80_000, "{}", schedule.forfeited());
        assert_eq!(sent + schedule.forfeited(), schedule.taken);
    }

    #[test]
    fn lateness_is_that_of_the_oldest_packet_in_hand() {
        let mut schedule = Schedule::new(0, 1_000_000.0);
        assert_eq!(schedule.due(0), Due::Now { packets: 1, late_ns: 0 });
        schedule.take(1);
        assert_eq!(schedule.due(1), Due::At(1_000_000));
        assert_eq!(schedule.due(1_300_000), Due::Now { packets: 1, late_ns: 300_000 });
    }
}
