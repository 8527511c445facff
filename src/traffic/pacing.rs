//! When to send: an even schedule of packets, sent in small bursts, and how a sender that fell behind catches up.

/// Bursts are this far apart at least: a thread that sleeps more often only spends its time on sleeping.
const BURST_NS: f64 = 100_000.0;
/// A sender that fell behind catches up at twice its rate, after a burst of at most what is due in this time: all at once
/// it would overrun queues that an even sender would not, and the loss would be blamed on the path.
const BURST_MAX_NS: f64 = 1_000_000.0;
/// What is overdue for longer is not sent any more.
const OVERDUE_NS: f64 = 100_000_000.0;

/// An even schedule.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    begin_ns: u64,
    interval_ns: f64,
    /// Packets that were due and are sent, refused or forfeited.
    taken: u64,
    /// When, after `begin_ns`, the next packet may be sent at twice the rate.
    allowed_ns: f64,
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
        Self { begin_ns, interval_ns, taken: 0, allowed_ns: 0.0 }
    }

    /// Packets that are due until `now_ns`, whatever became of them.
    pub(super) fn offered(&self, now_ns: u64) -> u64 {
        now_ns.checked_sub(self.begin_ns).map_or(0, |elapsed| (elapsed as f64 / self.interval_ns) as u64 + 1)
    }

    /// What is due at `now_ns`.
    pub(super) fn due(&mut self, now_ns: u64) -> Due {
        let elapsed = now_ns.saturating_sub(self.begin_ns) as f64;
        let overdue = self.offered(now_ns).saturating_sub((OVERDUE_NS / self.interval_ns) as u64 + 1);
        self.taken = self.taken.max(overdue);
        let due = self.offered(now_ns).saturating_sub(self.taken);
        if due == 0 {
            // The next packet's time, or that of the packet which completes a burst.
            let next = self.taken as f64 * self.interval_ns;
            return self.burst_at(next, self.interval_ns);
        }
        self.allowed_ns = self.allowed_ns.max(elapsed - BURST_MAX_NS);
        if self.allowed_ns > elapsed {
            return self.burst_at(self.allowed_ns, self.interval_ns / 2.0);
        }
        let allowed = ((elapsed - self.allowed_ns) / (self.interval_ns / 2.0)) as u64 + 1;
        let late_ns = (elapsed - self.taken as f64 * self.interval_ns).max(0.0) as u64;
        Due::Now { packets: due.min(allowed), late_ns }
    }

    /// When a burst is complete that begins at `next_ns` after the begin.
    fn burst_at(&self, next_ns: f64, interval_ns: f64) -> Due {
        let complete_ns = next_ns + (BURST_NS / interval_ns).floor() * interval_ns;
        Due::At(self.begin_ns + complete_ns.ceil() as u64)
    }

    /// `packets` of those that were due are dealt with.
    pub(super) fn take(&mut self, packets: u64) {
        self.taken += packets;
        self.allowed_ns += packets as f64 * self.interval_ns / 2.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender that always wakes `late_ns` too late, for a second: packets sent, the most in one burst.
    fn simulate(interval_ns: f64, late_ns: u64) -> (u64, u64) {
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
                    assert!(at > now, "{at} is not after {now}");
                    now = at + late_ns;
                }
            }
        }
        (sent, burst)
    }

    #[test]
    fn the_rate_is_kept_in_small_bursts() {
        // 1 Gbit/s of 1372 bytes: 91,108 packets per second.
        let (sent, burst) = simulate(10_976.0, 5_000);
        assert!((91_000..=91_120).contains(&sent), "{sent}");
        assert!(burst <= 11, "{burst}");
        assert_eq!(simulate(10_000_000.0, 50_000).0, 100);
    }

    #[test]
    fn after_a_stall_it_catches_up_at_twice_the_rate_not_at_once() {
        const MS: u64 = 1_000_000;
        let mut schedule = Schedule::new(0, 10_000.0);
        schedule.take(schedule.offered(0));
        // 20 ms late: 2,000 packets are due, and 1 ms at twice the rate may go at once.
        let Due::Now { packets, late_ns } = schedule.due(20 * MS) else { panic!("2,000 packets are due") };
        assert_eq!((packets, late_ns), (201, 20 * MS - 10_000));
        schedule.take(packets);
        let (mut now, mut sent) = (20 * MS, packets);
        while now < 60 * MS {
            match schedule.due(now) {
                Due::Now { packets, .. } => {
                    schedule.take(packets);
                    sent += packets;
                    // Never more than twice the rate, but for the burst.
                    assert!(sent <= 201 + (now - 20 * MS) / 5_000 + 21, "{sent} at {now}");
                }
                Due::At(at) => now = at,
            }
        }
        assert!((5_990..=6_001).contains(&(sent + 1)), "{sent}: all that was due in 60 ms");
    }

    #[test]
    fn what_is_long_overdue_is_not_sent_but_was_offered() {
        let mut schedule = Schedule::new(0, 1_000_000.0);
        assert_eq!(schedule.offered(500_000_000), 501);
        let Due::Now { packets, .. } = schedule.due(500_000_000) else { panic!("some are due") };
        assert!(packets <= 3, "{packets}");
        // 100 ms of them are left to be caught up with.
        assert_eq!(schedule.taken, 400);
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
