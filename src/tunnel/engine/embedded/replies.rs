//! Whether a lane waits awake for what comes next.
//!
//! Falling asleep and being woken costs a lone packet more than all else that is done to it. Who was just given a packet is
//! often about to answer: where answers have been coming at once, the next one is waited for awake. The kernel does the same
//! for its devices (`net.core.busy_poll`), and KVM for halted processors (`halt_poll_ns`, which also learns by success).
//!
//! Awake is not in the way: whoever wants the processor gets it at every look, and where somebody did want it, there is no
//! waiting awake for twenty times as long.

use std::num::NonZero;
use std::thread;
use std::time::{Duration, Instant};

use super::turn::Turn;

/// How long an answer is waited for awake. Half of it is enough for two engines on a quiet machine; on a slower one answers then
/// come now in time and now not, and round trips are of two kinds.
const PATIENCE: Duration = Duration::from_micros(100);
/// An answer that was waited for asleep was in time if it came within this: waking up takes time, at both ends.
const IN_TIME_ASLEEP: Duration = Duration::from_micros(300);
/// Who looked again only after this had given way to somebody.
const GAVE_WAY: Duration = Duration::from_micros(200);
/// Giving way may cost this part of the time. Not less: a hypervisor that takes the processor for a while looks the same.
const COST: u32 = 20;
/// A machine that stood still for a while says nothing of the next minute.
const ASLEEP_AT_MOST: Duration = Duration::from_secs(1);
/// Answers in a row after which nothing is surer.
const SURE: u32 = 16;

/// Which way a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the device to the socket.
    Out,
    /// From the socket to the device.
    In,
}

/// What is known of answers.
#[derive(Debug)]
pub(super) struct Replies {
    /// How often lately a lone packet was answered in time, by its direction: 0 to [`SURE`].
    scores: [u32; 2],
    /// The last lone packet, until another comes.
    last: Option<(Direction, Instant)>,
    awake: bool,
    /// Others want the processors.
    asleep_until: Option<Instant>,
    /// Where there is one processor, who is to answer needs it.
    alone: bool,
}

impl Replies {
    pub(super) fn new() -> Self {
        Self::with_processors(thread::available_parallelism().map_or(1, NonZero::get))
    }

    fn with_processors(processors: usize) -> Self {
        Self { scores: [0; 2], last: None, awake: false, asleep_until: None, alone: processors < 2 }
    }

    /// Whether to wait awake now.
    pub(super) fn awake(&mut self, now: Instant) -> bool {
        if !self.awake {
            return false;
        }
        let Some((direction, since)) = self.last else { return false };
        let waited = now.saturating_duration_since(since);
        if waited >= PATIENCE {
            self.awake = false;
            // In vain, which costs more than sleeping would have: answers that take a little too long must not make it happen
            // again and again.
            let score = &mut self.scores[direction as usize];
            *score = score.saturating_sub(SURE / 2);
            self.note_gave_way(waited, now);
        }
        self.awake
    }

    /// Something was carried; `true` if it had been waited for awake.
    pub(super) fn carried(&mut self, direction: Direction, turn: Turn, now: Instant) -> bool {
        if turn.packets == 0 {
            return false;
        }
        let was_awake = std::mem::take(&mut self.awake);
        let mut answered = false;
        if let Some((last, since)) = self.last.take() {
            let waited = now.saturating_duration_since(since);
            answered = last != direction;
            let in_time = answered && waited < if was_awake { GAVE_WAY } else { IN_TIME_ASLEEP };
            let score = &mut self.scores[last as usize];
            *score = if in_time { (*score + 1).min(SURE) } else { score.saturating_sub(2) };
            if was_awake {
                self.note_gave_way(waited, now);
            }
        }
        if !turn.loaded() {
            self.last = Some((direction, now));
            self.awake = !self.alone
                && self.scores[direction as usize] > SURE / 2
                && self.asleep_until.is_none_or(|until| until <= now);
        }
        was_awake && answered
    }

    /// What is carried from here on is not seen.
    pub(super) fn forget_last(&mut self) {
        self.last = None;
        self.awake = false;
    }

    fn note_gave_way(&mut self, waited: Duration, now: Instant) {
        if waited >= GAVE_WAY {
            self.asleep_until = Some(now + (COST * waited).min(ASLEEP_AT_MOST));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONE: Turn = Turn { packets: 1, more: false, blocked: false };
    const MANY: Turn = Turn { packets: 48, more: false, blocked: false };

    struct Lane {
        replies: Replies,
        now: Instant,
        awake: u32,
        vain: u32,
    }

    impl Lane {
        fn new() -> Self {
            Self { replies: Replies::with_processors(2), now: Instant::now(), awake: 0, vain: 0 }
        }

        /// What is carried `after` so many microseconds, during which it looks once a microsecond while it is awake.
        fn carries(&mut self, direction: Direction, turn: Turn, after: u64) {
            let at = self.now + Duration::from_micros(after);
            let mut was_awake = false;
            while self.now < at && self.replies.awake(self.now) {
                was_awake = true;
                self.now += Duration::from_micros(1);
            }
            self.now = at;
            if self.replies.carried(direction, turn, at) {
                self.awake += 1;
            } else if was_awake {
                self.vain += 1;
            }
        }

        /// However well it goes, and then no longer.
        fn waits_asleep_for(&mut self, time: Duration) {
            let (before, until) = (self.awake, self.now + time);
            while self.now < until {
                self.exchanges(1, 20, 20);
            }
            assert_eq!(self.awake, before);
            self.exchanges(100, 20, 20);
            assert!(self.awake > before);
        }

        fn exchanges(&mut self, count: usize, answer_after: u64, next_after: u64) {
            for _ in 0..count {
                self.carries(Direction::In, LONE, next_after);
                self.carries(Direction::Out, LONE, answer_after);
            }
        }
    }

    #[test]
    fn answers_are_waited_for_awake_once_they_come() {
        let mut lane = Lane::new();
        lane.exchanges(8, 30, 1_000);
        assert_eq!(lane.awake, 0, "nothing is known yet");
        lane.exchanges(100, 30, 1_000);
        assert_eq!((lane.awake, lane.vain), (99, 0), "answers, and not the questions, which come when they like");
        lane.exchanges(100, 30, 40);
        assert!((180..=200).contains(&(lane.awake - 99)), "questions as well: {}", lane.awake);
    }

    #[test]
    fn what_is_not_answered_is_not_waited_for() {
        let mut lane = Lane::new();
        for _ in 0..1_000 {
            lane.carries(Direction::Out, LONE, 40);
        }
        assert_eq!((lane.awake, lane.vain), (0, 0));
        // Nor is a load, whatever comes back.
        lane.exchanges(100, 10, 10);
        let before = lane.awake;
        for _ in 0..100 {
            lane.carries(Direction::In, MANY, 10);
            lane.carries(Direction::Out, MANY, 10);
        }
        assert!(lane.awake - before <= 1, "the last lone packet may be answered by many");
    }

    #[test]
    fn answers_that_are_always_a_little_late_are_waited_for_seldom() {
        let mut lane = Lane::new();
        lane.exchanges(1_000, 120, 10_000);
        assert!((1..=130).contains(&lane.vain) && lane.awake == 0, "{} in vain", lane.vain);
    }

    #[test]
    fn where_others_want_the_processor_it_costs_a_twentieth_at_most() {
        let mut lane = Lane::new();
        lane.exchanges(20, 20, 20);
        assert!(lane.replies.awake(lane.now), "that the test is one");
        // It gave way, and somebody took three milliseconds.
        lane.now += Duration::from_millis(3);
        assert!(!lane.replies.awake(lane.now));
        lane.waits_asleep_for(Duration::from_millis(59));
        // The answer may have come while it had given way; and a machine may have slept for hours meanwhile.
        assert!(lane.replies.awake(lane.now));
        lane.now += Duration::from_secs(3_600);
        lane.replies.carried(Direction::In, LONE, lane.now);
        lane.waits_asleep_for(Duration::from_millis(999));
    }

    #[test]
    fn a_load_in_between_is_no_late_answer() {
        let mut lane = Lane::new();
        lane.exchanges(20, 20, 20);
        assert!(lane.replies.awake(lane.now));
        lane.replies.forget_last();
        let before = lane.awake;
        lane.exchanges(20, 20, 20_000_000);
        assert_eq!(lane.awake - before, 20);
    }

    #[test]
    fn a_lone_processor_is_left_to_who_is_to_answer() {
        let mut lane = Lane::new();
        lane.replies = Replies::with_processors(1);
        lane.exchanges(100, 10, 10);
        assert_eq!((lane.awake, lane.vain), (0, 0));
    }
}
