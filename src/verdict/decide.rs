//! One row: the runs of two levels in, a verdict out. [`measure`] estimates, [`decide`] judges once Holm's adjustment over
//! all rows is known. Both are what `docs/statistics.md` is computed with.

use serde::Serialize;

use super::Verdict;
use crate::cell::Better;
use crate::stats::noise::{self, Noise};
use crate::stats::{CONFIDENCE, Estimate, bootstrap, mean, paired, power, summary};

/// Up to this many pairs are taken as they are, and all must agree; more stand for others like them.
pub const FIXED_PAIRS: usize = 4;
/// A pair agrees if it moved the same way by at least this share of the minimum effect: R1 published no change where one
/// pair moved by 23 % and the other was flat.
pub const AGREEING_SHARE: f64 = 0.5;
/// What a generator resolves of a rate or a latency, as a log-ratio: HDR histograms of three digits keep a thousandth.
const RESOLUTION: f64 = 0.001;
/// The fewest paired runs in all, and the fewest rounds, that are judged.
const LEAST_RUNS: usize = 3;

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
    fn into(self, value: f64) -> f64 {
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

    /// The mean difference that a printed change of this size would be, at least.
    fn difference(self, change: f64) -> f64 {
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

/// The runs of one pair at both levels.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PairRuns {
    /// The pair.
    pub pair: String,
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
    /// The mean difference of each pair that has both levels, and its own estimate where there is one.
    pub pairs: Vec<(String, f64, Option<Estimate>)>,
    /// The bootstrap's interval, from ten paired runs on, where the t-interval excludes zero: it can only withhold a verdict.
    pub bootstrap: Option<(f64, f64)>,
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
        mean(&means)
    }

    /// The noise floor on this scale; absent where no level was visited twice.
    pub fn floor(&self) -> Option<f64> {
        self.noise.map(|noise| noise.floor(self.paired))
    }
}

/// Estimates the change of a metric over `pairs` from their runs at both levels. Paired within record, pair and round
/// where a record holds both levels; else the pairs' means are compared. `None` where no pair has both.
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
    let measured = if interleaved {
        let blocks: Vec<Vec<f64>> = differences.iter().map(|(_, differences)| differences.clone()).collect();
        let paired: usize = blocks.iter().map(Vec::len).sum();
        let error = resolution / (paired as f64).sqrt();
        let over_pairs = blocks.len() > FIXED_PAIRS;
        let estimate = if over_pairs { paired::over_blocks(&blocks) } else { paired::within_blocks(&blocks) };
        Measured {
            scale,
            estimate: estimate.map(|estimate| estimate.with_error_of_at_least(error)),
            pairs: differences
                .iter()
                .filter_map(|(pair, differences)| {
                    let alone = paired::within_blocks(std::slice::from_ref(differences));
                    let alone = alone.map(|e| e.with_error_of_at_least(resolution / (differences.len() as f64).sqrt()));
                    Some((pair.pair.clone(), mean(differences)?, alone))
                })
                .collect(),
            bootstrap: estimate
                .filter(|estimate| estimate.p_value() < 1.0 - CONFIDENCE)
                .and_then(|_| resampled(&blocks, over_pairs, seed)),
            noise: noise::of_repeats(&repeats(pairs, scale)),
            paired,
            rounds: blocks.iter().map(Vec::len).max().unwrap_or(0),
            interleaved,
            typical,
            apart,
        }
    } else {
        between_records(pairs, scale, typical, apart)?
    };
    Some(measured)
}

/// The bootstrap resamples what the estimate takes as its sample: runs within pairs, or pairs.
fn resampled(blocks: &[Vec<f64>], over_pairs: bool, seed: u64) -> Option<(f64, f64)> {
    if over_pairs {
        let means: Vec<f64> = blocks.iter().map(|block| mean(block)).collect::<Option<_>>()?;
        return bootstrap::bca(&[means], CONFIDENCE, seed);
    }
    bootstrap::bca(blocks, CONFIDENCE, seed)
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
            let values: Vec<f64> = round.iter().map(|visit| scale.into(visit.value)).collect();
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
    let estimate = if sides.len() > FIXED_PAIRS {
        let means: Option<Vec<Vec<f64>>> =
            sides.iter().map(|(base, new)| Some(vec![mean(new)? - mean(base)?])).collect();
        paired::over_blocks(&means?)
    } else {
        paired::welch(&sides)
    };
    let each = both.iter().filter_map(|(pair, base, new)| {
        let alone = paired::welch(&[(base.clone(), new.clone())]);
        Some((pair.pair.clone(), mean(new)? - mean(base)?, alone))
    });
    let (before, after): (Vec<usize>, Vec<usize>) = sides.iter().map(|(base, new)| (base.len(), new.len())).unzip();
    let fewer = before.iter().sum::<usize>().min(after.iter().sum());
    Some(Measured {
        scale,
        estimate,
        pairs: each.collect(),
        bootstrap: None,
        noise: noise::of_repeats(&repeats(pairs, scale)),
        paired: fewer,
        rounds: before.iter().chain(&after).copied().min().unwrap_or(0),
        interleaved: false,
        typical,
        apart,
    })
}

/// What [`decide`] goes by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence {
    /// The p-value after Holm; absent where there is none.
    pub p_adjusted: Option<f64>,
    /// How many verdicts shared in it.
    pub tests: usize,
    /// Which way is better.
    pub better: Better,
    /// The least change that the policy wants published, as a fraction.
    pub min_effect: f64,
    /// The metric's absolute floor, in its unit.
    pub floor: f64,
    /// The probability of even one false alarm.
    pub alpha: f64,
}

impl Evidence {
    /// The policy's minimum effect as it is printed on the scale of `measured`.
    pub fn min_effect_shown(&self, measured: &Measured) -> f64 {
        match measured.scale {
            Scale::Ratio => self.min_effect,
            // Of a share of a whole, or of a metric that stood at zero, a fraction alone would be a change of nothing.
            Scale::Difference => (self.min_effect * measured.typical.abs()).max(self.floor),
        }
    }
}

/// A row's verdict with its reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// Why.
    pub why: Judgement,
    /// Rounds in all that would decide.
    pub rounds: Option<u32>,
    /// The least change that was published here, on the printed scale.
    pub minimum: f64,
    /// How many pairs agree with the direction.
    pub agree: usize,
}

/// Why a verdict is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Judgement {
    /// Beyond the minimum effect, the interval excludes zero after Holm, and the pairs agree.
    Changed,
    /// The change is smaller than what is published.
    Small,
    /// Below the metric's absolute floor.
    BelowFloor,
    /// The interval includes zero, and is narrow enough to have seen a change.
    WithinNoise,
    /// Some pairs moved, others did not.
    PairsDisagree,
    /// Fewer paired runs or rounds than can be judged.
    TooFew,
    /// The interval is wider than the minimum effect.
    TooNoisy,
    /// Beyond the policy's minimum, but not beyond what the record's repeated visits differ by.
    BelowNoiseFloor,
    /// The interval excludes zero, but not after Holm over everything that is judged.
    NotAfterHolm,
    /// The t-interval excludes zero and the bootstrap's does not.
    BootstrapDisagrees,
}

/// Judges what was measured. See `docs/statistics.md`, "The decision".
pub fn decide(measured: &Measured, evidence: &Evidence) -> Decision {
    let policy = evidence.min_effect_shown(measured);
    let noise_floor = measured.floor().map(|floor| measured.scale.change(floor));
    let minimum = policy.max(noise_floor.unwrap_or(0.0));
    let mean = measured.mean().unwrap_or(0.0);
    let change = measured.scale.change(mean);
    let agreeing = measured.scale.difference(policy * AGREEING_SHARE);
    let agree = measured.pairs.iter().filter(|(_, pair, _)| pair * mean > 0.0 && pair.abs() >= agreeing).count();
    let decided = |verdict, why, rounds| Decision { verdict, why, rounds, minimum, agree };

    let Some(estimate) = measured.estimate.filter(|_| measured.paired >= LEAST_RUNS && measured.rounds >= 2) else {
        let least = (LEAST_RUNS.div_ceil(measured.pairs.len().max(1))).max(2).max(measured.rounds + 1);
        return decided(Verdict::Inconclusive, Judgement::TooFew, u32::try_from(least).ok());
    };
    let wanted = measured.scale.difference(policy);
    let beyond_policy = change.abs() > policy && measured.apart >= evidence.floor;
    let agreed = measured.pairs.len() > FIXED_PAIRS || agree == measured.pairs.len();
    let raw = estimate.p_value() < evidence.alpha;
    let adjusted = evidence.p_adjusted.is_some_and(|p| p < evidence.alpha);
    let confirmed = measured.bootstrap.is_none_or(|(low, high)| low > 0.0 || high < 0.0);

    if beyond_policy && raw && agreed {
        if change.abs() <= minimum {
            let rounds = rounds_below(mean.abs(), measured);
            return decided(Verdict::Inconclusive, Judgement::BelowNoiseFloor, rounds);
        }
        if !adjusted {
            let alpha = evidence.alpha / evidence.tests.max(1) as f64;
            let rounds = rounds_for(mean.abs(), measured, &estimate, alpha);
            return decided(Verdict::Inconclusive, Judgement::NotAfterHolm, rounds);
        }
        if !confirmed {
            let rounds = rounds_for(mean.abs() / 2.0, measured, &estimate, evidence.alpha);
            return decided(Verdict::Inconclusive, Judgement::BootstrapDisagrees, rounds);
        }
        let up = change > 0.0;
        let verdict = match evidence.better {
            Better::Higher if up => Verdict::Better,
            Better::Lower if !up => Verdict::Better,
            Better::Higher | Better::Lower => Verdict::Worse,
            Better::Neither => Verdict::NoConsistentChange,
        };
        return decided(verdict, Judgement::Changed, None);
    }
    if beyond_policy && raw {
        return decided(Verdict::NoConsistentChange, Judgement::PairsDisagree, None);
    }
    // Whatever the interval: nobody acts on less than the floor.
    let width = match measured.scale {
        Scale::Ratio => measured.scale.change(estimate.half_width(CONFIDENCE)) * measured.typical.abs(),
        Scale::Difference => estimate.half_width(CONFIDENCE),
    };
    if measured.apart < evidence.floor && width < 2.0 * evidence.floor {
        return decided(Verdict::NoConsistentChange, Judgement::BelowFloor, None);
    }
    if estimate.half_width(CONFIDENCE) > wanted {
        let rounds = rounds_for(wanted, measured, &estimate, evidence.alpha);
        return decided(Verdict::Inconclusive, Judgement::TooNoisy, rounds);
    }
    let why = if raw { Judgement::Small } else { Judgement::WithinNoise };
    decided(Verdict::NoConsistentChange, why, None)
}

/// Rounds in all until the noise floor is below `difference`: it shrinks with the root of their number.
fn rounds_below(difference: f64, measured: &Measured) -> Option<u32> {
    let floor = measured.floor()?;
    let rounds = (measured.rounds as f64 * (floor / difference).powi(2)).ceil().max(measured.rounds as f64 + 1.0);
    (rounds <= f64::from(power::MOST_ROUNDS)).then_some(rounds as u32)
}

/// Rounds in all until the interval's half-width is at most `half_width`, if the noise stays. `None` where more rounds would
/// not narrow it (over many pairs it is the pairs that differ), or too many would be needed.
fn rounds_for(half_width: f64, measured: &Measured, estimate: &Estimate, alpha: f64) -> Option<u32> {
    if measured.pairs.len() > FIXED_PAIRS {
        return None;
    }
    let deviation = estimate.error * (measured.paired as f64).sqrt();
    let rounds = power::rounds_for(half_width, deviation, measured.pairs.len(), alpha)?;
    let more = u32::try_from(measured.rounds).ok()?.checked_add(1)?;
    Some(rounds.max(more))
}
