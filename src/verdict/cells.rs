//! What stands in a record without any comparison: every cell with its metrics, and what could not be measured.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::Source;
use crate::cell::Cell;
use crate::record::{Bottleneck, Record, Run};
use crate::stats::Summary;

/// One cell of a record: factors and metrics over its usable runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellSummary {
    /// Its levels.
    pub factors: Cell,
    /// Metric to median, min, max, runs.
    pub metrics: BTreeMap<String, Summary>,
    /// Usable runs.
    pub runs: usize,
    /// Runs that are not usable.
    pub excluded: usize,
    /// What bound the runs, where more than half of them agree, with the evidence of the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<Bottleneck>,
}

/// Runs that were planned and whose figures are not published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unmeasured {
    /// The cell.
    pub factors: Cell,
    /// How many.
    pub runs: usize,
    /// Of how many in this cell.
    pub of: usize,
    /// Why.
    pub why: String,
}

/// Every cell of `record`, in the order of cells.
pub fn cells(record: &Record) -> Vec<CellSummary> {
    let mut by_cell: BTreeMap<&Cell, Vec<&Run>> = BTreeMap::new();
    for run in &record.runs {
        by_cell.entry(&run.factors).or_default().push(run);
    }
    by_cell
        .into_iter()
        .map(|(factors, runs)| {
            let usable: Vec<&Run> = runs.iter().copied().filter(|run| run.usable()).collect();
            let mut values: BTreeMap<&String, Vec<f64>> = BTreeMap::new();
            for (name, value) in usable.iter().flat_map(|run| &run.metrics) {
                values.entry(name).or_default().push(*value);
            }
            CellSummary {
                factors: factors.clone(),
                metrics: values
                    .into_iter()
                    .filter_map(|(name, values)| Some((name.clone(), Summary::of(&values)?)))
                    .collect(),
                runs: usable.len(),
                excluded: runs.len() - usable.len(),
                bottleneck: bound_by(&usable),
            }
        })
        .collect()
}

fn bound_by(runs: &[&Run]) -> Option<Bottleneck> {
    let all: Vec<Bottleneck> = runs.iter().filter_map(|run| run.bottleneck.clone()).collect();
    of_most(&all, runs.len())
}

/// The last bottleneck of the kind that more than half of `runs` have.
pub(super) fn of_most(all: &[Bottleneck], runs: usize) -> Option<Bottleneck> {
    let most = |is: &str| all.iter().filter(|bottleneck| bottleneck.is == is).count() * 2 > runs;
    all.iter().rfind(|bottleneck| most(&bottleneck.is)).cloned()
}

/// The runs of `record` that are not usable, by cell and reason.
pub(super) fn unmeasured(record: &Record) -> Vec<Unmeasured> {
    let mut counts: BTreeMap<&Cell, usize> = BTreeMap::new();
    let mut reasons: BTreeMap<(&Cell, String), usize> = BTreeMap::new();
    for run in &record.runs {
        *counts.entry(&run.factors).or_default() += 1;
        if let Some(why) = run.why_unusable() {
            *reasons.entry((&run.factors, why)).or_default() += 1;
        }
    }
    reasons
        .into_iter()
        .map(|((factors, why), runs)| Unmeasured {
            factors: factors.clone(),
            runs,
            of: counts.get(factors).copied().unwrap_or(runs),
            why,
        })
        .collect()
}

/// The rounds that ran, whether their runs can be used or not.
pub(super) fn rounds(source: &Source<'_>) -> usize {
    source.record.runs.iter().map(|run| run.round).collect::<BTreeSet<u32>>().len()
}
