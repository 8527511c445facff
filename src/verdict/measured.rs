//! What is measured of a change: the runs of two levels in, an estimate out. Nothing is judged here.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::stats::family::Size;
use crate::stats::noise::{self, Noise};
use crate::stats::{CONFIDENCE, Estimate, bootstrap, mean, paired, summary};

/// Up to this many pairs are taken as they are: the sample is their runs. More stand for others like them, and are the
/// sample.
pub const FIXED_PAIRS: usize = 4;
/// What a generator resolves of a rate or a latency, as a log-ratio: HDR histograms of three digits keep a thousandth.
pub(super) const RESOLUTION: f64 = 0.001;

/// What the numbers of a change are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Fractions of the baseline, from log-ratios.
    Ratio,
    /// Differences in the metric's unit: for shares of a whole, and where a value is zero.
    Difference,
}

impl Scale {
    /// As files write it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Ratio => "ratio",
            Self::Difference => "difference",
        }
    }

    /// A value on the scale that is averaged: its logarithm, or itself.
    fn on(self, value: f64) -> f64 {
        match self {
            Self::Ratio => value.ln(),
            Self::Difference => value,
        }
    }

    /// A mean difference as the change that is printed.
    pub fn change(self, difference: f64) -> f64 {
        match self {
            Self::Ratio => difference.exp_m1(),
            Self::Difference => difference,
        }
    }

    /// How far the mean difference is from none where a change of this size, up or down, is printed.
    pub(super) fn least(self, change: f64, up: bool) -> f64 {
        match self {
            Self::Ratio if up => change.ln_1p(),
            Self::Ratio => -(-change).ln_1p(),
            Self::Difference => change,
        }
    }

    /// The mean difference that a printed change of this size is, at least.
    pub fn difference(self, change: f64) -> f64 {
        match self {
            // Of the two differences that print as +c and -c the smaller one.
            Self::Ratio => change.ln_1p(),
            Self::Difference => change,
        }
    }
}

/// One run's value and where it belongs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Visit {
    /// Which record.
    pub record: usize,
    /// Which round of it.
    pub round: u32,
    /// Its place in that record's sequence.
    pub order: u32,
    /// The value.
    pub value: f64,
}

impl Visit {
    /// Its place in time, over records.
    const fn place(&self) -> (usize, u32) {
        (self.record, self.order)
    }
}

/// The runs of one pair at both levels, over one underlay where several are taken together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PairRuns {
    /// The pair.
    pub pair: String,
    /// The underlay; empty where there is one, or none.
    pub underlay: String,
    /// At the baseline.
    pub base: Vec<Visit>,
    /// At the new level.
    pub new: Vec<Visit>,
}

/// What is measured of a change, before it is judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// On which scale.
    pub scale: Scale,
    /// The mean difference over pairs; absent with too few runs for an interval.
    pub estimate: Option<Estimate>,
    /// The mean difference of each pair (over each underlay) that has both levels, and its own estimate where there is one.
    pub pairs: Vec<(String, f64, Option<Estimate>)>,
    /// Whether the pairs are the sample, rather than their runs.
    pub over_pairs: bool,
    /// The bootstrap's interval, from ten paired runs on, where the t-interval excludes zero: it can only withhold a verdict.
    pub bootstrap: Option<(f64, f64)>,
    /// The size of the differences, from which it is known what chance alone could publish; absent with too few runs.
    pub size: Option<Size>,
    /// The noise of one run.
    pub noise: Option<Noise>,
    /// Paired runs; of two records the fewer on either side.
    pub paired: usize,
    /// Rounds that were paired, at most over pairs.
    pub rounds: usize,
    /// Whether the levels were interleaved within a record.
    pub interleaved: bool,
    /// The baseline's typical value, to read differences against.
    pub typical: f64,
    /// How far the medians lie apart in the metric's unit.
    pub apart: f64,
}

impl Measured {
    /// The mean difference, with or without an interval.
    pub fn mean(&self) -> Option<f64> {
        let means: Vec<f64> = self.pairs.iter().map(|(_, mean, _)| *mean).collect();
        self.estimate.map(|estimate| estimate.mean).or_else(|| mean(&means))
    }

    /// The noise floor on this scale; absent where no level was visited twice.
    pub fn floor(&self) -> Option<f64> {
        self.noise.map(|noise| noise.floor(self.paired))
    }

    /// The noise floor as it is printed in the direction of the change: as far down as +100 % is up is -50 %.
    pub fn floor_shown(&self) -> Option<f64> {
        let towards = self.mean().unwrap_or(0.0);
        self.floor().map(|floor| self.scale.change(floor.copysign(towards)).abs())
    }
}

/// Estimates the change of a metric over `pairs` from their runs at both levels. Paired within record, pair and round
/// where a record holds both levels in turn; else the pairs' means are compared, beside a steady drift where a record holds one
/// level after the other. `None` where no pair has both.
///
/// `zero_based` asks for differences where a ratio would be undefined or blow up a change of almost nothing. `seed` is
/// the bootstrap's.
pub fn measure(pairs: &[PairRuns], zero_based: bool, seed: u64) -> Option<Measured> {
    let values = |level: fn(&PairRuns) -> &Vec<Visit>| -> Vec<f64> {
        pairs.iter().flat_map(|pair| level(pair).iter().map(|visit| visit.value)).collect()
    };
    let (base, new) = (values(|pair| &pair.base), values(|pair| &pair.new));
    let positive = base.iter().chain(&new).all(|value| *value > 0.0);
    let scale = if zero_based || !positive { Scale::Difference } else { Scale::Ratio };
    let typical = summary::median(&base)?;
    let apart = (summary::median(&new)? - typical).abs();

    let differences: Vec<(&PairRuns, Vec<f64>)> =
        pairs.iter().map(|pair| (pair, within_rounds(pair, scale))).filter(|(_, d)| !d.is_empty()).collect();
    let interleaved = !differences.is_empty();
    let resolution = match scale {
        Scale::Ratio => RESOLUTION,
        Scale::Difference => 0.0,
    };
    if !interleaved || in_blocks(pairs) {
        return apart_in_time(pairs, scale, typical, apart);
    }
    let blocks: Vec<Vec<f64>> = differences.iter().map(|(_, differences)| differences.clone()).collect();
    let paired: usize = blocks.iter().map(Vec::len).sum();
    let by_pair = by_pair(differences.iter().map(|(pair, differences)| (*pair, differences.clone())));
    let over_pairs = by_pair.len() > FIXED_PAIRS;
    let pair_means = [by_pair.iter().filter_map(|pair| mean(pair)).collect::<Vec<f64>>()];
    let estimate = if over_pairs { paired::over_blocks(&by_pair) } else { paired::within_blocks(&blocks) };
    let resolved = |estimate: Estimate, runs: usize| estimate.with_error_of_at_least(resolution / (runs as f64).sqrt());
    let estimate = estimate.map(|estimate| resolved(estimate, paired));
    let alone = |differences: &Vec<f64>| {
        let alone = paired::within_blocks(std::slice::from_ref(differences));
        alone.map(|estimate| resolved(estimate, differences.len()))
    };
    Some(Measured {
        scale,
        pairs: differences
            .iter()
            .filter_map(|(pair, differences)| Some((pair.pair.clone(), mean(differences)?, alone(differences))))
            .collect(),
        over_pairs,
        bootstrap: estimate
            .filter(|estimate| estimate.p_value() < 1.0 - CONFIDENCE)
            .and_then(|_| bootstrap::bca(if over_pairs { &pair_means } else { &blocks }, CONFIDENCE, seed)),
        estimate,
        size: Size::of_differences(if over_pairs { &pair_means } else { &blocks }),
        noise: noise::of_repeats(&repeats(pairs, scale)),
        paired,
        rounds: blocks.iter().map(Vec::len).max().unwrap_or(0),
        interleaved,
        typical,
        apart,
    })
}

/// The values of each pair, over all its underlays.
fn by_pair<'a>(values: impl Iterator<Item = (&'a PairRuns, Vec<f64>)>) -> Vec<Vec<f64>> {
    let mut pairs: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (pair, values) in values {
        pairs.entry(&pair.pair).or_default().extend(values);
    }
    pairs.into_values().collect()
}

/// New minus base in each round of each record that has both; several runs of a level in a round are averaged first.
fn within_rounds(pair: &PairRuns, scale: Scale) -> Vec<f64> {
    let (base, new) = (by_round(&pair.base, scale), by_round(&pair.new, scale));
    new.iter()
        .filter_map(|(place, value)| {
            let (_, before) = base.iter().find(|(other, _)| other == place)?;
            Some(value - before)
        })
        .collect()
}

/// The mean of each record's round, in the order of time.
fn by_round(visits: &[Visit], scale: Scale) -> Vec<((usize, u32), f64)> {
    let mut sorted = visits.to_vec();
    sorted.sort_by_key(|visit| (visit.record, visit.round, visit.order));
    sorted
        .chunk_by(|a, b| (a.record, a.round) == (b.record, b.round))
        .filter_map(|round| {
            let values: Vec<f64> = round.iter().map(|visit| scale.on(visit.value)).collect();
            Some(((round.first()?.record, round.first()?.round), mean(&values)?))
        })
        .collect()
}

/// One series for each pair, level and record.
fn repeats(pairs: &[PairRuns], scale: Scale) -> Vec<Vec<f64>> {
    pairs
        .iter()
        .flat_map(|pair| [&pair.base, &pair.new])
        .flat_map(|visits| {
            let rounds = by_round(visits, scale);
            rounds
                .chunk_by(|a, b| a.0.0 == b.0.0)
                .map(|record| record.iter().map(|(_, value)| *value).collect::<Vec<f64>>())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Whether every pair was measured at one level first and then at the other, in one record: then a drift of the machine looks
/// like a change, and what stands in the same round was not measured together.
pub(super) fn in_blocks(pairs: &[PairRuns]) -> bool {
    let both: Vec<&PairRuns> = pairs.iter().filter(|pair| pair.base.len() > 1 && pair.new.len() > 1).collect();
    !both.is_empty() && both.iter().all(|pair| one_after_the_other(pair))
}

fn one_after_the_other(pair: &PairRuns) -> bool {
    let (base, new) = (pair.base.iter().map(Visit::place), pair.new.iter().map(Visit::place));
    let record = pair.base.first().map(|visit| visit.record);
    let one_record = pair.base.iter().chain(&pair.new).all(|visit| Some(visit.record) == record);
    one_record && (base.clone().max() < new.clone().min() || new.max() < base.min())
}

/// The values of a pair in the order of time.
fn placed(pair: &PairRuns, scale: Scale) -> Vec<paired::Placed> {
    let of = |visits: &[Visit], new: bool| {
        visits.iter().map(|visit| (f64::from(visit.order), scale.on(visit.value), new)).collect::<Vec<_>>()
    };
    let mut all = of(&pair.base, false);
    all.extend(of(&pair.new, true));
    all
}

/// What was not measured in turn: the levels lie in two records, or one after the other in one. A steady drift within a record is
/// told from the change.
fn apart_in_time(pairs: &[PairRuns], scale: Scale, typical: f64, apart: f64) -> Option<Measured> {
    let mut measured = between_records(pairs, scale, typical, apart)?;
    let both: Vec<&PairRuns> = pairs.iter().filter(|pair| !pair.base.is_empty() && !pair.new.is_empty()).collect();
    if measured.over_pairs || !both.iter().all(|pair| one_after_the_other(pair)) {
        return Some(measured);
    }
    let blocks: Vec<Vec<paired::Placed>> = both.iter().map(|pair| placed(pair, scale)).collect();
    let alone = |block: &Vec<paired::Placed>| paired::beside_drift(std::slice::from_ref(block));
    measured.estimate = paired::beside_drift(&blocks);
    measured.size = None;
    measured.pairs = both
        .iter()
        .zip(&blocks)
        .filter_map(|(pair, block)| {
            let estimate = alone(block);
            let mean = estimate.map_or_else(|| means_apart(block), |estimate| Some(estimate.mean))?;
            Some((pair.pair.clone(), mean, estimate))
        })
        .collect();
    Some(measured)
}

fn means_apart(block: &[paired::Placed]) -> Option<f64> {
    let of =
        |new: bool| mean(&block.iter().filter(|placed| placed.2 == new).map(|placed| placed.1).collect::<Vec<_>>());
    Some(of(true)? - of(false)?)
}

fn between_records(pairs: &[PairRuns], scale: Scale, typical: f64, apart: f64) -> Option<Measured> {
    let values = |visits: &[Visit]| by_round(visits, scale).into_iter().map(|(_, value)| value).collect::<Vec<f64>>();
    let both: Vec<(&PairRuns, Vec<f64>, Vec<f64>)> = pairs
        .iter()
        .map(|pair| (pair, values(&pair.base), values(&pair.new)))
        .filter(|(_, base, new)| !base.is_empty() && !new.is_empty())
        .collect();
    if both.is_empty() {
        return None;
    }
    let sides: Vec<(Vec<f64>, Vec<f64>)> = both.iter().map(|(_, base, new)| (base.clone(), new.clone())).collect();
    let moved = |base: &[f64], new: &[f64]| Some(mean(new)? - mean(base)?);
    let differences = both.iter().filter_map(|(pair, base, new)| Some((*pair, vec![moved(base, new)?])));
    let by_pair = by_pair(differences);
    let over_pairs = by_pair.len() > FIXED_PAIRS;
    let (estimate, size) = if over_pairs {
        (paired::over_blocks(&by_pair), Size::of_differences(&[by_pair.iter().filter_map(|pair| mean(pair)).collect()]))
    } else {
        (paired::welch(&sides), Size::of_sides(&sides))
    };
    let each = both.iter().filter_map(|(pair, base, new)| {
        let alone = paired::welch(&[(base.clone(), new.clone())]);
        Some((pair.pair.clone(), moved(base, new)?, alone))
    });
    let (before, after): (Vec<usize>, Vec<usize>) = sides.iter().map(|(base, new)| (base.len(), new.len())).unzip();
    let fewer = before.iter().sum::<usize>().min(after.iter().sum());
    Some(Measured {
        scale,
        estimate,
        pairs: each.collect(),
        over_pairs,
        bootstrap: None,
        size,
        noise: noise::of_repeats(&repeats(pairs, scale)),
        paired: fewer,
        rounds: before.iter().chain(&after).copied().min().unwrap_or(0),
        interleaved: false,
        typical,
        apart,
    })
}
