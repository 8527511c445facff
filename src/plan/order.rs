//! The order of visits: seeded, interleaved, and fair to every level of the compared factor.
//!
//! Each round visits every arrangement once. Arrangements that differ in nothing but the compared factor are visited one after
//! the other, so that a comparison is between neighbours in time; which of them comes first alternates with the round, and
//! between pairs: AB BA AB for one pair, BA AB BA for the next. So in every round half of the pairs start on the other level
//! (a crossover), and drift falls on both alike. With more than two levels the orders are the rows of a Williams square, in
//! which every level follows every other equally often (E. J. Williams, "Experimental designs balanced for the estimation of
//! residual effects of treatments", Australian Journal of Scientific Research A 2 (1949) 149-168).
//!
//! Where stacks are switched between phases, every phase has all rounds of the arrangements that are on its stacks, and the
//! round numbers repeat: a pair's round 2 on one stack stands against its round 2 on the other.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::error::PlanError;
use super::schedule::Schedule;
use super::{Phase, Plan, Visit};
use crate::cell::{Cell, Factor};

/// Arrangements that differ in nothing but the compared factor, by level.
struct Block {
    /// Alternates between pairs (or, where pairs are compared, between the other factors' levels).
    parity: usize,
    /// The index of an arrangement, by the rank of its level.
    members: Vec<usize>,
}

/// The fewest rounds after which a precision may end the run: with fewer, an interval's own width is mostly chance.
const LEAST_ROUNDS: u32 = 4;

/// Every visit of `rounds` rounds, in each of `phases`.
pub(super) fn visits(schedule: &Schedule, phases: &[Phase], rounds: u32, seed: u64) -> Vec<Visit> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut blocks = blocks(schedule);
    let carrier = |arrangement: usize| {
        let arrangement = &schedule.arrangements[arrangement];
        (arrangement.engine.as_str(), arrangement.tunnels)
    };
    let tests: BTreeMap<(&str, Option<u32>), Vec<usize>> = (0..schedule.arrangements.len())
        .map(carrier)
        .map(|(engine, tunnels)| ((engine, tunnels), schedule.carried.tests_of(engine, tunnels)))
        .collect();
    let mut visits = Vec::with_capacity(schedule.arrangements.len() * rounds as usize);
    let in_phases = (0..phases.len().max(1)).flat_map(|phase| (1..=rounds).map(move |round| (phase, round)));
    for (phase, round) in in_phases {
        shuffle(&mut blocks, &mut rng);
        for block in &blocks {
            // Neighbours run their tests in the same order: what a test leaves behind falls on both alike.
            let mut order: Vec<usize> = (0..schedule.carried.tests.len()).collect();
            shuffle(&mut order, &mut rng);
            for rank in williams(block.members.len(), round as usize - 1 + block.parity) {
                let arrangement = block.members[rank];
                if phases.get(phase).is_some_and(|stacks| !stacks.holds(&schedule.arrangements[arrangement])) {
                    continue;
                }
                let carried = &tests[&carrier(arrangement)];
                let tests = order.iter().copied().filter(|test| carried.contains(test)).collect();
                visits.push(Visit { round, phase, arrangement, tests });
            }
        }
    }
    visits
}

/// Whether the plan's precision can be asked for.
pub(super) fn check_precision(plan: &Plan) -> Result<(), PlanError> {
    if plan.precision.is_none() {
        return Ok(());
    }
    if plan.compared().len() < 2 {
        return Err(PlanError::PrecisionOfNothing);
    }
    if plan.phases.len() > 1 {
        return Err(PlanError::PrecisionInPhases);
    }
    let least = plan.stop_every().max(LEAST_ROUNDS);
    if plan.rounds < least { Err(PlanError::PrecisionRounds { rounds: plan.rounds, least }) } else { Ok(()) }
}

impl Plan {
    /// Whether the run may end after `round` (from 1) if its precision is reached: every order of the compared levels has
    /// been visited equally often by then.
    pub fn may_end_after(&self, round: u32) -> bool {
        round >= LEAST_ROUNDS && round.is_multiple_of(self.stop_every())
    }

    /// The rounds in which every level follows every other equally often: the rows of the Williams square.
    fn stop_every(&self) -> u32 {
        let arranged = self.compare.filter(|factor| factor.is_arranged());
        let levels = arranged.and_then(|factor| self.levels.get(&factor)).map_or(2, Vec::len).max(2);
        let rows = if levels.is_multiple_of(2) { levels } else { 2 * levels };
        u32::try_from(rows).unwrap_or(u32::MAX)
    }
}

/// The blocks, in the order of the plan's arrangements.
fn blocks(schedule: &Schedule) -> Vec<Block> {
    // A test's factor is compared within a visit: then, as where nothing is compared, an arrangement is a block.
    let compared = schedule.compare.filter(|factor| factor.is_arranged());
    let mut parities: BTreeMap<String, usize> = BTreeMap::new();
    let mut places: BTreeMap<Cell, usize> = BTreeMap::new();
    let mut blocks: Vec<Block> = Vec::new();
    for (index, arrangement) in schedule.arrangements.iter().enumerate() {
        let cell = arrangement.cell();
        let common = match compared {
            Some(factor) => cell.clone().without(factor),
            None => cell.clone(),
        };
        let alternating = if compared == Some(Factor::Pair) { Factor::Underlay } else { Factor::Pair };
        let next = parities.len();
        let parity = *parities.entry(cell.get(alternating).unwrap_or_default().to_owned()).or_insert(next);
        let place = *places.entry(common).or_insert_with(|| {
            blocks.push(Block { parity, members: Vec::new() });
            blocks.len() - 1
        });
        blocks[place].members.push(index);
    }
    blocks
}

/// Row `row` of a Williams square of `levels` levels: an order of `0..levels`. Rows repeat after `levels` (even) or twice
/// `levels` (odd), over which each level follows each other one equally often. Two levels: 01, 10, 01, ...
fn williams(levels: usize, row: usize) -> Vec<usize> {
    let shift = row % levels.max(1);
    // 0, 1, n-1, 2, n-2, ...: consecutive differences are all different.
    let zigzag = |place: usize| if place % 2 == 1 { place.div_ceil(2) } else { (levels - place / 2) % levels };
    let mut order: Vec<usize> = (0..levels).map(|place| (zigzag(place) + shift) % levels).collect();
    if levels % 2 == 1 && (row / levels) % 2 == 1 {
        order.reverse();
    }
    order
}

/// Fisher and Yates's shuffle. Written out, since a library's may change between versions, and the order is part of a plan.
fn shuffle<T>(items: &mut [T], rng: &mut ChaCha8Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, below(last as u64 + 1, rng) as usize);
    }
}

/// A number below `bound`, each as likely as the others: draws from the incomplete last span are refused.
fn below(bound: u64, rng: &mut ChaCha8Rng) -> u64 {
    let limit = u64::MAX - u64::MAX % bound;
    loop {
        let draw = rng.next_u64();
        if draw < limit {
            return draw % bound;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_levels_alternate() {
        let rows: Vec<Vec<usize>> = (0..4).map(|row| williams(2, row)).collect();
        assert_eq!(rows, [[0, 1], [1, 0], [0, 1], [1, 0]]);
        assert_eq!(williams(1, 5), [0]);
    }

    #[test]
    fn every_level_follows_every_other_equally_often() {
        for levels in 2..=9 {
            let period = if levels % 2 == 0 { levels } else { 2 * levels };
            let mut follows: BTreeMap<(usize, usize), u32> = BTreeMap::new();
            for row in 0..period {
                let order = williams(levels, row);
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..levels).collect::<Vec<_>>(), "row {row} of {levels}");
                for step in order.windows(2) {
                    *follows.entry((step[0], step[1])).or_default() += 1;
                }
            }
            assert_eq!(follows.len(), levels * (levels - 1), "{levels} levels: {follows:?}");
            let counts: std::collections::BTreeSet<u32> = follows.into_values().collect();
            assert_eq!(counts.len(), 1, "{levels} levels: {counts:?}");
        }
    }

    #[test]
    fn a_shuffle_reaches_every_order_about_equally() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut seen: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        for _ in 0..6_000 {
            let mut items = vec![0, 1, 2];
            shuffle(&mut items, &mut rng);
            *seen.entry(items).or_default() += 1;
        }
        assert_eq!(seen.len(), 6);
        assert!(seen.values().all(|count| (850..1150).contains(count)), "{seen:?}");
    }
}
