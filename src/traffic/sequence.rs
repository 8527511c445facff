//! Telling lost, reordered and duplicate datagrams apart by their sequence numbers, in constant memory.

/// Sequence numbers that are remembered one by one: at a million datagrams per second, the last second.
const REMEMBERED: u64 = 1 << 20;

/// What a datagram was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The first copy, after all that were sent before it, as far as they came at all.
    New,
    /// The first copy, but after one that was sent later (RFC 4737 section 3.3).
    Reordered,
    /// A copy of one that had come.
    Duplicate,
    /// Too far behind to know.
    Stale,
}

/// Which sequence numbers have come: a window of bits that ends at the highest.
pub(super) struct Sequences {
    bits: Vec<u64>,
    /// One above the highest that came.
    next: u64,
}

impl Sequences {
    pub(super) fn new() -> Self {
        Self { bits: vec![0; (REMEMBERED / 64) as usize], next: 0 }
    }

    pub(super) fn arrive(&mut self, sequence: u64) -> Arrival {
        if sequence >= self.next {
            self.forget(self.next, sequence);
            self.next = sequence + 1;
            self.set(sequence);
            return Arrival::New;
        }
        if self.next - sequence > REMEMBERED {
            return Arrival::Stale;
        }
        if self.set(sequence) { Arrival::Duplicate } else { Arrival::Reordered }
    }

    /// Clears the bits of `from` up to and including `to`, which older numbers had.
    fn forget(&mut self, from: u64, to: u64) {
        if to - from >= REMEMBERED {
            self.bits.fill(0);
            return;
        }
        let mut at = from;
        while at <= to {
            let (word, bit) = Self::place(at);
            if bit == 0 && to - at >= 63 {
                self.bits[word] = 0;
                at += 64;
            } else {
                self.bits[word] &= !(1 << bit);
                at += 1;
            }
        }
    }

    /// Sets a bit; tells whether it was set.
    fn set(&mut self, sequence: u64) -> bool {
        let (word, bit) = Self::place(sequence);
        let was = self.bits[word] >> bit & 1 == 1;
        self.bits[word] |= 1 << bit;
        was
    }

    const fn place(sequence: u64) -> (usize, u64) {
        ((sequence % REMEMBERED / 64) as usize, sequence % 64)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reordered_is_not_lost_and_a_copy_is_not_received() {
        let mut sequences = Sequences::new();
        let arrivals: Vec<Arrival> = [0, 2, 1, 2, 5, 1, 3].into_iter().map(|n| sequences.arrive(n)).collect();
        use Arrival::{Duplicate, New, Reordered};
        assert_eq!(arrivals, [New, New, Reordered, Duplicate, New, Duplicate, Reordered]);
    }

    #[test]
    fn far_jumps_forget_and_far_pasts_are_not_guessed() {
        let mut sequences = Sequences::new();
        assert_eq!(sequences.arrive(7), Arrival::New);
        assert_eq!(sequences.arrive(7 + REMEMBERED), Arrival::New);
        assert_eq!(sequences.arrive(7), Arrival::Stale);
        assert_eq!(sequences.arrive(8), Arrival::Reordered);
        assert_eq!(sequences.arrive(5 * REMEMBERED + 7), Arrival::New);
        assert_eq!(sequences.arrive(5 * REMEMBERED), Arrival::Reordered);
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_set(steps in prop::collection::vec((0u64..300, any::<bool>()), 1..400)) {
            let mut sequences = Sequences::new();
            let (mut seen, mut highest) = (HashSet::new(), None);
            let mut base = 0;
            for (step, forward) in steps {
                base = if forward { base + step } else { base };
                let sequence = if forward { base } else { base.saturating_sub(step) };
                let expected = match (seen.insert(sequence), highest) {
                    (false, _) => Arrival::Duplicate,
                    (true, Some(highest)) if sequence < highest => Arrival::Reordered,
                    (true, _) => Arrival::New,
                };
                highest = highest.max(Some(sequence));
                prop_assert_eq!(sequences.arrive(sequence), expected);
            }
        }
    }
}
