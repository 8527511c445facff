//! Runs sorted into what is compared: for each cell and metric the runs of every level and pair.

use std::collections::BTreeMap;

use super::{By, PairRuns, Source, Visit};
use crate::cell::{Cell, Factor};
use crate::record::{Bottleneck, Run};

/// The runs of one level and metric, by pair.
pub(super) type Level = BTreeMap<String, Vec<Visit>>;

/// What is compared in one cell: level, then metric, then pair.
#[derive(Debug, Clone, Default)]
pub(super) struct Arm {
    /// Usable runs with the metric.
    pub(super) metrics: BTreeMap<String, BTreeMap<String, Level>>,
    /// Usable runs at each level.
    pub(super) usable: BTreeMap<String, usize>,
    /// What bound the runs at each level.
    pub(super) bound_by: BTreeMap<String, Vec<Bottleneck>>,
}

impl Arm {
    /// What bound more than half of the runs at `level`, with the evidence of the last of them.
    pub(super) fn bound_by(&self, level: &str) -> Option<Bottleneck> {
        super::cells::of_most(self.bound_by.get(level)?, *self.usable.get(level)?)
    }

    /// The runs of `metric` at two levels, pair by pair, with every pair that either side has.
    pub(super) fn pairs(&self, metric: &str, base: &str, new: &str) -> Vec<PairRuns> {
        let Some(levels) = self.metrics.get(metric) else { return Vec::new() };
        let mut pairs: BTreeMap<&String, PairRuns> = BTreeMap::new();
        for (level, is_base) in [(base, true), (new, false)] {
            for (pair, visits) in levels.get(level).into_iter().flatten() {
                let runs = pairs.entry(pair).or_default();
                runs.pair.clone_from(pair);
                let side = if is_base { &mut runs.base } else { &mut runs.new };
                side.extend_from_slice(visits);
            }
        }
        pairs.into_values().collect()
    }

    /// Adds the runs of `other`, which has other levels.
    fn join(&mut self, other: Self) {
        for (metric, levels) in other.metrics {
            self.metrics.entry(metric).or_default().extend(levels);
        }
        self.usable.extend(other.usable);
        self.bound_by.extend(other.bound_by);
    }
}

/// Every usable run of `sources`, sorted by the cell without its pair and without the compared factor.
pub(super) fn collect(sources: &[Source<'_>], by: &By) -> BTreeMap<Cell, Arm> {
    let mut arms: BTreeMap<Cell, Arm> = BTreeMap::new();
    for (index, source) in sources.iter().enumerate() {
        for run in source.record.usable() {
            let Some(level) = level_of(by, source, run) else { continue };
            let pair = pair_of(by, run);
            let arm = arms.entry(shared(by, &run.factors)).or_default();
            *arm.usable.entry(level.clone()).or_default() += 1;
            if let Some(bottleneck) = &run.bottleneck {
                arm.bound_by.entry(level.clone()).or_default().push(bottleneck.clone());
            }
            for (metric, value) in &run.metrics {
                let visit = Visit { record: index, round: run.round, order: run.order, value: *value };
                arm.metrics
                    .entry(metric.clone())
                    .or_default()
                    .entry(level.clone())
                    .or_default()
                    .entry(pair.clone())
                    .or_default()
                    .push(visit);
            }
        }
    }
    if by_engine(by) {
        stand_beside(&mut arms);
    }
    arms
}

/// What has no tunnels, the raw underlay, stands among engines beside each of their levels.
fn stand_beside(arms: &mut BTreeMap<Cell, Arm>) {
    let without: Vec<Cell> = arms.keys().filter(|cell| cell.get(Factor::Tunnels).is_none()).cloned().collect();
    for cell in without {
        let has = |arm: &Arm, level: &String| arm.usable.contains_key(level);
        let levels: Vec<String> = arms[&cell].usable.keys().cloned().collect();
        let beside: Vec<Cell> = arms.keys().filter(|other| **other != cell && belongs(&cell, other)).cloned().collect();
        // An engine that has them in some runs and not in others was not measured in one way.
        if beside.is_empty() || beside.iter().any(|other| levels.iter().any(|level| has(&arms[other], level))) {
            continue;
        }
        let Some(arm) = arms.remove(&cell) else { continue };
        for other in beside {
            arms.entry(other).or_default().join(arm.clone());
        }
    }
}

/// Whether what was measured in `own` stands in `cell`: the same, or without the tunnels that it has there.
fn belongs(own: &Cell, cell: &Cell) -> bool {
    own == cell || (own.get(Factor::Tunnels).is_none() && *own == cell.clone().without(Factor::Tunnels))
}

/// Whether a run of these factors stands in `cell` of a comparison.
pub(super) fn is_in(by: &By, factors: &Cell, cell: &Cell) -> bool {
    let own = shared(by, factors);
    if by_engine(by) { belongs(&own, cell) } else { own == *cell }
}

const fn by_engine(by: &By) -> bool {
    matches!(by, By::Factor { factor: Factor::Engine, .. })
}

/// The compared level of a run; absent where the factor does not apply to it.
pub(super) fn level_of(by: &By, source: &Source<'_>, run: &Run) -> Option<String> {
    match by {
        By::Factor { factor, .. } => run.factors.get(*factor).map(str::to_owned),
        By::Record => Some(source.name.to_owned()),
    }
}

/// The block that a run belongs to: its pair, unless pairs are what is compared.
fn pair_of(by: &By, run: &Run) -> String {
    let pair = run.factors.get(Factor::Pair).unwrap_or("");
    match by {
        By::Factor { factor: Factor::Pair, .. } => String::new(),
        By::Factor { .. } | By::Record => pair.to_owned(),
    }
}

/// What both sides of a row have in common.
pub(super) fn shared(by: &By, factors: &Cell) -> Cell {
    let cell = factors.clone().without(Factor::Pair);
    match by {
        By::Factor { factor, .. } => cell.without(*factor),
        By::Record => cell,
    }
}
