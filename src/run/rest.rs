//! What is left of a plan when a record already holds a part of it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::cell::Cell;
use crate::plan::Plan;
use crate::record::{Record, Status};

/// What a later sitting skips and what it measures again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rest {
    /// Visits of which every run is there, whatever became of it.
    pub(super) whole: BTreeSet<usize>,
    /// The `order` of runs whose visit was cut short.
    pub(super) superseded: Vec<u32>,
    /// The `order` of the next run.
    pub(super) next: u32,
}

/// Sorts the runs of `record` into the visits of `plan`. A visit is measured as a whole or not at all: its tests share what
/// went before them.
pub(super) fn rest(plan: &Plan, record: &Record) -> Rest {
    let mut there: BTreeMap<(u32, Cell), Vec<u32>> = BTreeMap::new();
    let tried = record.runs.iter().filter(|run| !matches!(run.status, Status::Interrupted | Status::Skipped));
    for run in tried {
        there.entry((run.round, run.factors.clone())).or_default().push(run.order);
    }
    let orders = record.runs.iter().chain(&record.superseded).map(|run| run.order);
    let mut rest = Rest { next: orders.max().map_or(0, |last| last + 1), ..Rest::default() };
    for (index, visit) in plan.visits.iter().enumerate() {
        let arrangement = &plan.arrangements[visit.arrangement];
        let cells = visit.tests.iter().map(|test| plan.cell(arrangement, &plan.tests[*test]));
        let runs: Vec<Option<&Vec<u32>>> =
            cells.map(|cell| there.get(&(visit.round.saturating_sub(1), cell))).collect();
        if runs.iter().all(Option::is_some) {
            rest.whole.insert(index);
        } else {
            rest.superseded.extend(runs.into_iter().flatten().flatten());
        }
    }
    rest.superseded.sort_unstable();
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Factor;
    use crate::plan::{Arrangement, Pair, TestPlan, Visit};
    use crate::record::Run;
    use crate::record::fixture::Made;

    /// The parts of a plan that matter here: two rounds of two engines with two tests.
    fn plan() -> Plan {
        let pair = Pair { client: "a1".to_owned(), server: "a2".to_owned() };
        let arrangement = |engine: &str| Arrangement {
            pair: pair.clone(),
            underlay: "private".to_owned(),
            engine: engine.to_owned(),
            tunnels: None,
            stack: "standard".to_owned(),
            settings: None,
        };
        let test = |name: &str| -> TestPlan {
            serde_json::from_value(serde_json::json!({
                "name": name, "kind": "tcp-rr", "direction": null, "streams": null, "rate": null, "payload": null,
                "congestion_control": null, "warmup": "0s", "duration": "1s", "probe": null,
            }))
            .unwrap()
        };
        let visit =
            |round, arrangement, tests: [usize; 2]| Visit { round, phase: 0, arrangement, tests: tests.to_vec() };
        let none = serde_json::json!([]);
        let mut plan: Plan = serde_json::from_value(serde_json::json!({
            "version": 1, "name": "lab", "question": null, "seed": 1, "profile": "quick", "rounds": 2, "compare": null,
            "levels": {}, "min_effect": null, "nodes": none, "underlays": none, "engines": none, "stacks": none,
            "settings": none, "tunnels": none, "pairs": none, "arrangements": none, "tests": none, "visits": none,
            "forecast": {"runs": 8, "time": "8s", "bytes": {}, "memory": "0B", "visible_effect": null},
        }))
        .unwrap();
        plan.arrangements = vec![arrangement("raw"), arrangement("embedded")];
        plan.tests = vec![test("one"), test("two")];
        plan.visits = vec![visit(1, 0, [0, 1]), visit(1, 1, [1, 0]), visit(2, 1, [0, 1]), visit(2, 0, [1, 0])];
        plan
    }

    /// A record in which the first `count` runs of the plan are there.
    fn record(plan: &Plan, count: usize) -> Record {
        let mut made = Made::new(Factor::Engine, &[]);
        let cells = plan.visits.iter().flat_map(|visit| {
            let arrangement = &plan.arrangements[visit.arrangement];
            visit.tests.iter().map(move |test| (visit.round - 1, plan.cell(arrangement, &plan.tests[*test])))
        });
        for (round, cell) in cells.take(count) {
            made.run(round, &[], &[]).factors = cell;
        }
        made.record
    }

    #[test]
    fn whole_visits_are_skipped_and_a_cut_one_is_measured_again() {
        let plan = plan();
        let of = |count: usize| {
            let rest = rest(&plan, &record(&plan, count));
            (rest.whole.into_iter().collect::<Vec<_>>(), rest.superseded, rest.next)
        };
        assert_eq!(of(0), (vec![], vec![], 0));
        assert_eq!(of(1), (vec![], vec![0], 1));
        assert_eq!(of(4), (vec![0, 1], vec![], 4));
        assert_eq!(of(7), (vec![0, 1, 2], vec![6], 7));
        assert_eq!(of(8), (vec![0, 1, 2, 3], vec![], 8));
    }

    #[test]
    fn a_run_that_failed_was_tried_and_one_that_was_interrupted_was_not() {
        let plan = plan();
        for (status, whole) in
            [(Status::Failed, 1), (Status::Invalid, 1), (Status::Interrupted, 0), (Status::Skipped, 0)]
        {
            let mut record = record(&plan, 2);
            record.runs[1].status = status;
            assert_eq!(rest(&plan, &record).whole.len(), whole, "{status:?}");
        }
    }

    #[test]
    fn the_next_run_counts_on_behind_those_that_were_measured_again() {
        let plan = plan();
        let mut record = record(&plan, 2);
        record.superseded = vec![Run { order: 9, ..record.runs[0].clone() }];
        assert_eq!(rest(&plan, &record).next, 10);
    }
}
