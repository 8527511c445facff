//! Which of several levels is best: their order in each main metric, and which of them the first is ahead of.
//!
//! Verdicts stand against the baseline only. Here the first level is tried against every other by the same rules, with its error
//! shared over every two levels and every metric, since which one is first is taken from the same runs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::arms::Arm;
use super::decide::{self, Evidence};
use super::measured::{self, PairRuns};
use super::rows::{Context, RAW};
use super::{Policy, Verdict};
use crate::cell::{Better, Cell, Factor, METRICS, Metric};
use crate::stats::{paired, summary};

/// The metrics in which levels are ranked, where they are judged; else the first one that is.
const MAIN: [&str; 2] = ["throughput_bits_per_second", "rr_p50_ns"];

/// The order of the levels in one metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ranking {
    /// The metric.
    pub metric: String,
    /// The levels that were measured in the same cells, the best first.
    pub levels: Vec<Ranked>,
}

/// One level of a ranking.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ranked {
    /// The level.
    pub level: String,
    /// The lowest of its medians over cells and pairs.
    pub low: f64,
    /// The highest of them.
    pub high: f64,
    /// Whether the first level is called better than this one; else they are a tie.
    pub behind: bool,
}

impl Context<'_> {
    /// The order of the levels in every main metric; none where there are but two, which the verdicts order.
    pub(super) fn rankings(&self) -> Vec<Ranking> {
        if self.new.len() < 2 {
            return Vec::new();
        }
        let judged = || METRICS.iter().filter(|line| line.better != Better::Neither && self.policy.judges(line.name));
        let mut orders: Vec<Order<'_>> =
            judged().filter(|line| MAIN.contains(&line.name)).filter_map(|line| self.order(line)).collect();
        if orders.is_empty() {
            orders.extend(judged().find_map(|line| self.order(line)));
        }
        let tests: usize = orders.iter().map(|order| order.levels.len() * (order.levels.len() - 1) / 2).sum();
        orders.iter().map(|order| self.ranking(order, tests)).collect()
    }

    /// The levels that have `line` in the most cells, over the cells that all of these have.
    fn order(&self, line: &'static Metric) -> Option<Order<'_>> {
        let measured =
            |arm: &Arm, level: &str| arm.metrics.get(line.name).is_some_and(|levels| levels.contains_key(level));
        let levels: Vec<&str> = std::iter::once(self.base).chain(self.new.iter().map(String::as_str)).collect();
        let tunnelled = |cell: &Cell| cell.get(Factor::Engine) != Some(RAW);
        let any = |arm: &Arm| levels.iter().any(|level| measured(arm, level));
        let mut cells: Vec<(&Cell, &Arm)> = self.arms.iter().filter(|(_, arm)| any(arm)).collect();
        // What the underlay does without a tunnel is another question.
        if cells.iter().any(|(cell, _)| tunnelled(cell)) {
            cells.retain(|(cell, _)| tunnelled(cell));
        }
        let count = |level: &str| cells.iter().filter(|(_, arm)| measured(arm, level)).count();
        let most = levels.iter().map(|level| count(level)).max().filter(|most| *most > 0)?;
        let levels: Vec<&str> = levels.iter().copied().filter(|level| count(level) == most).collect();
        cells.retain(|(_, arm)| levels.iter().all(|level| measured(arm, level)));
        let medians = |level: &str| -> Vec<f64> {
            let pairs =
                cells.iter().filter_map(|(_, arm)| arm.metrics.get(line.name)?.get(level)).flat_map(BTreeMap::values);
            let values = |visits: &Vec<measured::Visit>| visits.iter().map(|visit| visit.value).collect::<Vec<f64>>();
            pairs.filter_map(|visits| summary::median(&values(visits))).collect()
        };
        let mut levels: Vec<(&str, Vec<f64>)> = levels.into_iter().map(|level| (level, medians(level))).collect();
        if cells.is_empty() || levels.len() < 2 {
            return None;
        }
        // Of values above zero as ratios are averaged; a level that stalled is not averaged away.
        let size = |values: &[f64]| values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64;
        levels.sort_by(|(_, a), (_, b)| match line.better {
            Better::Lower => size(a).total_cmp(&size(b)),
            Better::Higher | Better::Neither => size(b).total_cmp(&size(a)),
        });
        Some(Order { line, cells, levels })
    }

    fn ranking(&self, order: &Order<'_>, tests: usize) -> Ranking {
        let first = order.levels.first().map_or("", |(level, _)| *level);
        let levels = order.levels.iter().map(|(level, medians)| Ranked {
            level: (*level).to_owned(),
            low: medians.iter().copied().fold(f64::INFINITY, f64::min),
            high: medians.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            behind: *level != first && self.is_behind(order, level, first, tests),
        });
        Ranking { metric: order.line.name.to_owned(), levels: levels.collect() }
    }

    /// Whether `first` is better than `level` over all cells, by the rules of a verdict.
    fn is_behind(&self, order: &Order<'_>, level: &str, first: &str, tests: usize) -> bool {
        let name = order.line.name;
        let runs = order.cells.iter().flat_map(|(cell, arm)| {
            arm.pairs(name, level, first).into_iter().map(|pair| PairRuns { underlay: cell.to_string(), ..pair })
        });
        let header = self.sources.first().map(|source| &source.record.header);
        let seed = header.map_or(0, |header| header.seed);
        let Some(measured) = measured::measure(&runs.collect::<Vec<_>>(), false, seed) else { return false };
        let serial = if measured.interleaved && !measured.over_pairs { paired::SERIAL } else { 1.0 };
        let p = measured.estimate.map(|estimate| estimate.with_error_times(serial).p_value());
        let policy = header.map_or(Policy::REFERENCE_EFFECT, |header| self.policy.min_effect_of(name, header));
        let evidence = Evidence {
            p_adjusted: p.map(|p| (p * tests as f64).min(1.0)),
            tests,
            better: order.line.better,
            min_effect: if measured.interleaved { policy } else { policy.max(Policy::BETWEEN_RECORDS) },
            floor: order.line.floor,
            alpha: Policy::ALPHA,
            worse_share: self.policy.worse_share(),
        };
        decide::decide(&measured, &evidence).verdict == Verdict::Better
    }
}

/// The levels by their medians, the best first, and the cells in which all have them.
struct Order<'a> {
    line: &'static Metric,
    cells: Vec<(&'a Cell, &'a Arm)>,
    levels: Vec<(&'a str, Vec<f64>)>,
}
