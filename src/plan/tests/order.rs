//! The order of visits: alternation, crossover, balance.

use super::*;

#[test]
fn the_compared_factor_alternates_ab_ba_for_one_pair_and_ba_ab_for_the_next() {
    for seed in 0..20 {
        let plan = planned(
            &shipped_topology("two-stacks"),
            &Request { seed: Some(seed), rounds: Some(4), ..Request::default() },
        );
        for steps in plan.visits.chunks(2) {
            let [first, second] = [&steps[0], &steps[1]].map(|visit| &plan.arrangements[visit.arrangement]);
            let common = |arrangement: &Arrangement| arrangement.cell().without(Factor::Stack);
            assert_eq!(common(first), common(second), "the two levels of a block are neighbours");
            assert_eq!(steps[0].tests, steps[1].tests);
            let pair = plan.pairs.iter().position(|pair| *pair == first.pair).unwrap();
            let standard_first = (steps[0].round as usize - 1 + pair).is_multiple_of(2);
            assert_eq!(
                first.stack,
                if standard_first { "standard" } else { "ebpf" },
                "round {}, pair {pair}",
                steps[0].round
            );
        }
    }
}

#[test]
fn in_a_crossover_each_pair_meets_every_level_and_half_start_on_the_other() {
    let plan = planned(&shipped_topology("two-stacks"), &Request::default());
    for round in 1..=plan.rounds {
        let mut first: BTreeMap<Pair, BTreeSet<&str>> = BTreeMap::new();
        let mut met: BTreeMap<Pair, BTreeSet<&str>> = BTreeMap::new();
        for (index, visit) in plan.visits.iter().filter(|visit| visit.round == round).enumerate() {
            let arrangement = &plan.arrangements[visit.arrangement];
            met.entry(arrangement.pair.clone()).or_default().insert(&arrangement.stack);
            if index % 2 == 0 {
                first.entry(arrangement.pair.clone()).or_default().insert(&arrangement.stack);
            }
        }
        assert!(met.values().all(|stacks| stacks.len() == 2));
        let starts: Vec<&str> = first.values().map(|stacks| *stacks.first().unwrap()).collect();
        assert!(first.values().all(|stacks| stacks.len() == 1) && starts[0] != starts[1], "{first:?}");
    }
}

#[test]
fn four_levels_are_visited_in_a_balanced_order() {
    let plan = planned(&shipped_topology("cross-directions"), &Request { rounds: Some(4), ..Request::default() });
    let mut at: BTreeMap<(&str, usize), u32> = BTreeMap::new();
    for block in plan.visits.chunks(4) {
        for (place, visit) in block.iter().enumerate() {
            *at.entry((&plan.arrangements[visit.arrangement].stack, place)).or_default() += 1;
        }
    }
    // 4 rounds x 4 pairs: every level is as often first as second, third and last.
    assert!(at.len() == 16 && at.values().all(|count| *count == 4), "{at:?}");
}

#[test]
fn seeds_move_the_order_and_nothing_else() {
    let one = planned(&shipped_topology("two-stacks"), &Request::default());
    let two = planned(&shipped_topology("two-stacks"), &Request { seed: Some(2), ..Request::default() });
    assert_ne!(one.visits, two.visits);
    assert_eq!(Plan { seed: 1, visits: one.visits.clone(), ..two }, one);
}
