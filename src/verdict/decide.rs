//! Changes judged: what was measured in, verdicts out, once the error is shared over all. `docs/statistics.md` states the
//! rules, and is computed with them.

use super::Verdict;
use super::measured::{Measured, Scale};
use crate::cell::Better;
use crate::stats::family::{self, Test};
use crate::stats::{CONFIDENCE, Estimate, paired, power};

/// A pair agrees if it moved the same way by at least this share of the minimum effect: R1 published no change where one
/// pair moved by 23 % and the other was flat.
pub const AGREEING_SHARE: f64 = 0.5;
/// The fewest paired runs in all that are judged.
const LEAST_RUNS: usize = 3;

/// What [`decide`] goes by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence {
    /// The p-value adjusted over all that is judged ([`adjust`]); absent where there is none.
    pub p_adjusted: Option<f64>,
    /// How many verdicts share the error.
    pub tests: usize,
    /// Which way is better.
    pub better: Better,
    /// The least change that the policy wants published, as a fraction.
    pub min_effect: f64,
    /// The metric's absolute floor, in its unit.
    pub floor: f64,
    /// The probability of even one false alarm.
    pub alpha: f64,
    /// The share of it that false calls of *worse* may take.
    pub worse_share: f64,
}

impl Evidence {
    /// Whether a mean difference is for the worse.
    fn is_worse(&self, mean: f64) -> bool {
        match self.better {
            Better::Lower => mean > 0.0,
            Better::Higher | Better::Neither => mean < 0.0,
        }
    }

    /// The policy's minimum effect as it is printed on the scale of `measured`.
    pub fn min_effect_shown(&self, measured: &Measured) -> f64 {
        match measured.scale {
            Scale::Ratio => self.min_effect,
            // Of a share of a whole, or of a metric that stood at zero, a fraction alone would be a change of nothing.
            Scale::Difference => (self.min_effect * measured.typical.abs()).max(self.floor),
        }
    }
}

/// The p-values of what shares one error, adjusted: in the order of `judged`, absent where a change has no p-value and
/// therefore no part. False calls of *worse* have the share of the error that the evidence gives them, those of *better* the
/// rest: they are two families, and a row's p-value is adjusted in that of the way it moved.
pub fn adjust(judged: &[(&Measured, Evidence)]) -> Vec<Option<f64>> {
    let of_side = |worse: bool| {
        let tests: Vec<Test> =
            judged.iter().filter_map(|(measured, evidence)| test(measured, evidence, worse)).collect();
        family::adjust(&tests)
    };
    let mut sides = of_side(true).into_iter().zip(of_side(false));
    let adjusted = |(measured, evidence): &(&Measured, Evidence)| {
        let estimate = measured.estimate?;
        let (worse, better) = sides.next()?;
        let side = if evidence.is_worse(estimate.mean) {
            worse / evidence.worse_share
        } else {
            better / (1.0 - evidence.worse_share)
        };
        Some(side.max(estimate.p_value()).min(1.0))
    };
    judged.iter().map(adjusted).collect()
}

/// The one-sided test that a change is worse, or that it is better; absent with the estimate.
fn test(measured: &Measured, evidence: &Evidence, worse: bool) -> Option<Test> {
    let estimate = measured.estimate?;
    let least = evidence.min_effect_shown(measured);
    let is_side = evidence.is_worse(estimate.mean) == worse;
    // Upward is the worse side of what should be low.
    let up = (evidence.better == Better::Lower) == worse;
    // What is alternated in time may remember; what lies in two records, or over pairs, has no such order.
    let serial = if measured.interleaved && !measured.over_pairs { paired::SERIAL } else { 1.0 };
    let p = estimate.with_error_times(serial).p_value() / 2.0;
    Some(Test {
        p: if is_side { p } else { 1.0 - p },
        reach: measured.size.map_or(1.0, |size| size.reach(measured.scale.least(least, up)) / 2.0),
        beyond: is_side && measured.scale.change(estimate.mean).abs() > least,
    })
}

/// A row's verdict with its reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// Why.
    pub why: Judgement,
    /// Usable rounds that would decide.
    pub rounds: Option<u32>,
    /// The least change that was published here, on the printed scale.
    pub minimum: f64,
    /// How many pairs agree with the direction.
    pub agree: usize,
}

/// Why a verdict is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Judgement {
    /// Beyond the minimum effect, the interval excludes zero over all that is judged, and the pairs agree.
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
    /// The interval excludes zero, but not once the error is shared over everything that is judged.
    AmongMany,
    /// The t-interval excludes zero and the bootstrap's does not.
    BootstrapDisagrees,
}

/// Judges what was measured. See `docs/statistics.md`, "The decision".
pub fn decide(measured: &Measured, evidence: &Evidence) -> Decision {
    let policy = evidence.min_effect_shown(measured);
    let mean = measured.mean().unwrap_or(0.0);
    let minimum = policy.max(measured.floor_shown().unwrap_or(0.0));
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
    let agreed = measured.over_pairs || agree == measured.pairs.len();
    let raw = estimate.p_value() < evidence.alpha;
    let adjusted = evidence.p_adjusted.is_some_and(|p| p < evidence.alpha);
    let confirmed = measured.bootstrap.is_none_or(|(low, high)| low > 0.0 || high < 0.0);

    if beyond_policy && raw && agreed {
        if change.abs() <= minimum {
            let rounds = rounds_below(mean.abs(), measured);
            return decided(Verdict::Inconclusive, Judgement::BelowNoiseFloor, rounds);
        }
        if !adjusted {
            // What its own p-value must come down to, as the error is shared among these.
            let alpha = evidence.alpha * estimate.p_value() / evidence.p_adjusted.unwrap_or(1.0);
            let rounds = rounds_for(mean.abs(), measured, &estimate, alpha);
            return decided(Verdict::Inconclusive, Judgement::AmongMany, rounds);
        }
        if !confirmed {
            let rounds = rounds_for(mean.abs() / 2.0, measured, &estimate, evidence.alpha);
            return decided(Verdict::Inconclusive, Judgement::BootstrapDisagrees, rounds);
        }
        let verdict = match evidence.better {
            Better::Neither => Verdict::NoConsistentChange,
            Better::Higher | Better::Lower if evidence.is_worse(mean) => Verdict::Worse,
            Better::Higher | Better::Lower => Verdict::Better,
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

/// Rounds in all of which `needed` are usable, if as many fail as of the `ran` so far, `usable` of which were: always more than ran.
/// `None` where too many would be needed.
pub(super) fn rounds_in_all(needed: u32, usable: usize, ran: usize) -> Option<u32> {
    let share = ran.max(usable) as f64 / usable.max(1) as f64;
    let rounds = (f64::from(needed) * share).ceil().max(ran as f64 + 1.0);
    (rounds <= f64::from(power::MOST_ROUNDS)).then_some(rounds as u32)
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
    if measured.over_pairs {
        return None;
    }
    let deviation = estimate.error * (measured.paired as f64).sqrt();
    let rounds = power::rounds_for(half_width, deviation, estimate.freedom, measured.pairs.len(), alpha)?;
    let more = u32::try_from(measured.rounds).ok()?.checked_add(1)?;
    Some(rounds.max(more))
}
