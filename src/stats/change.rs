//! A change in a short series: whether there is one, where it began, how large it is.
//!
//! One change in the mean of normal values with an unknown variance, at an unknown place: every place where the series may
//! be cut gives a two-sample t, and the largest of them is the statistic (Hawkins, "Testing a sequence of observations for a
//! shift in location", JASA 72 (1977) 180-186; Worsley, "On the likelihood ratio test for a shift in location of normal
//! populations", JASA 74 (1979) 365-367). Its distribution without a change has no closed form and is simulated. A
//! permutation of the series would assume less, but cannot say anything about fewer than eight values, nor about a change
//! that the last few began.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::power::beyond;
use super::{mean, squares, t_quantile, t_two_sided};

/// The fewest values that are searched.
pub const LEAST: usize = 4;
/// The fewest values on either side of a change: one alone is an outlier until another confirms it.
pub const LEAST_SIDE: usize = 2;
/// Series that are simulated to know the statistic's distribution: at a p-value of 0.05 an error of 0.3 points (two
/// standard errors).
const SIMULATED: usize = 20_000;

/// A series cut in two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Split {
    /// How many values lie before the change.
    pub at: usize,
    /// The mean after it minus the mean before it.
    pub difference: f64,
    /// Its standard error, from what the values vary on both sides.
    pub error: f64,
    /// Degrees of freedom of the error.
    pub freedom: f64,
}

impl Split {
    /// The statistic, without its sign.
    pub fn t(&self) -> f64 {
        if self.error > 0.0 { (self.difference / self.error).abs() } else { 0.0 }
    }

    /// The mean before it of the series that was cut.
    pub fn before(&self, values: &[f64]) -> f64 {
        values.get(..self.at).and_then(mean).unwrap_or(f64::NAN)
    }

    /// The mean after it.
    pub fn after(&self, values: &[f64]) -> f64 {
        values.get(self.at..).and_then(mean).unwrap_or(f64::NAN)
    }

    /// The interval of the difference, as if the place had been known: half of its width.
    pub fn half_width(&self, confidence: f64) -> f64 {
        t_quantile(0.5 + confidence / 2.0, self.freedom).map_or(f64::INFINITY, |t| t * self.error)
    }
}

/// The cut after `at` values; `None` where a side has fewer than [`LEAST_SIDE`]. No two values are told apart by less than
/// `resolution`, so no deviation is below it.
pub fn split(values: &[f64], at: usize, resolution: f64) -> Option<Split> {
    let (before, after) = values.split_at_checked(at)?;
    if before.len() < LEAST_SIDE || after.len() < LEAST_SIDE {
        return None;
    }
    let freedom = values.len() as f64 - 2.0;
    let deviation = ((squares(before) + squares(after)) / freedom).sqrt().max(resolution);
    let error = deviation * (1.0 / before.len() as f64 + 1.0 / after.len() as f64).sqrt();
    Some(Split { at, difference: mean(after)? - mean(before)?, error, freedom })
}

/// The cut with the largest statistic; `None` of fewer than [`LEAST`] values.
pub fn best_split(values: &[f64], resolution: f64) -> Option<Split> {
    if values.len() < LEAST {
        return None;
    }
    (0..values.len()).filter_map(|at| split(values, at, resolution)).max_by(|a, b| a.t().total_cmp(&b.t()))
}

/// The distribution of the statistic for one length of series, where nothing changes.
#[derive(Debug, Clone, PartialEq)]
pub struct Null {
    length: usize,
    /// In ascending order.
    maxima: Vec<f64>,
}

impl Null {
    /// Simulated for series of this length; `None` below [`LEAST`].
    pub fn of(length: usize, seed: u64) -> Option<Self> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut uniform = move || (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        // Box & Muller (1958).
        let mut normal = move || (-2.0 * (1.0 - uniform()).ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
        let mut maxima: Vec<f64> = (0..SIMULATED)
            .map(|_| largest(&(0..length).map(|_| normal()).collect::<Vec<f64>>()))
            .collect::<Option<_>>()?;
        maxima.sort_by(f64::total_cmp);
        Some(Self { length, maxima })
    }

    /// The probability of a statistic of `t` or more. Far out, where few simulated series are, Bonferroni's bound over all
    /// cuts is the better one.
    pub fn p_value(&self, t: f64) -> f64 {
        let beyond = self.maxima.len() - self.maxima.partition_point(|simulated| *simulated < t);
        let simulated = (beyond as f64 + 1.0) / (self.maxima.len() as f64 + 1.0);
        let cuts = self.length as f64 - 2.0 * LEAST_SIDE as f64 + 1.0;
        let bound = t_two_sided(t, self.length as f64 - 2.0).map_or(1.0, |p| cuts * p);
        simulated.min(bound)
    }

    /// The statistic that is reached with probability `alpha`.
    pub fn critical(&self, alpha: f64) -> f64 {
        let place = ((1.0 - alpha) * self.maxima.len() as f64).ceil() as usize;
        let simulated = self.maxima.get(place.min(self.maxima.len() - 1)).copied().unwrap_or(f64::INFINITY);
        let cuts = self.length as f64 - 2.0 * LEAST_SIDE as f64 + 1.0;
        let bound = t_quantile(1.0 - alpha / 2.0 / cuts, self.length as f64 - 2.0).unwrap_or(f64::INFINITY);
        simulated.min(bound)
    }

    /// The least change that is found with probability `power` where single values have this deviation and `before` of them lie
    /// before it.
    pub fn detectable(&self, deviation: f64, before: usize, alpha: f64, power: f64) -> Option<f64> {
        let after = self.length.checked_sub(before).filter(|after| *after >= LEAST_SIDE && before >= LEAST_SIDE)?;
        let (critical, freedom) = (self.critical(alpha), self.length as f64 - 2.0);
        let shift = super::power::shift_for(|shift| beyond(critical, freedom, shift), power)?;
        Some(shift * deviation * (1.0 / before as f64 + 1.0 / after as f64).sqrt())
    }
}

/// The largest statistic over all cuts, from running sums.
fn largest(values: &[f64]) -> Option<f64> {
    let count = values.len();
    if count < LEAST {
        return None;
    }
    let (sum, center) = (values.iter().sum::<f64>(), mean(values)?);
    let total: f64 = values.iter().map(|value| (value - center).powi(2)).sum();
    let (mut before, mut largest) = (0.0, 0.0_f64);
    for (place, value) in values.iter().enumerate() {
        before += value;
        let (n, m) = ((place + 1) as f64, (count - place - 1) as f64);
        if place + 1 < LEAST_SIDE || count - place - 1 < LEAST_SIDE {
            continue;
        }
        let difference = (sum - before) / m - before / n;
        let between = difference * difference * n * m / count as f64;
        largest = largest.max(between * (count as f64 - 2.0) / (total - between));
    }
    Some(largest.sqrt())
}

/// The places at which the change may have begun: cuts that leave hardly more unexplained than the best one, by the F ratio of
/// one more parameter (after Hinkley, "Inference about the change-point in a sequence of random variables", Biometrika 57
/// (1970) 1-17, who derives the likelihood of the place). The first and the last of them.
pub fn places(values: &[f64], best: &Split, confidence: f64) -> (usize, usize) {
    let unexplained = |at: usize| {
        let (before, after) = values.split_at(at);
        squares(before) + squares(after)
    };
    let least = unexplained(best.at);
    let freedom = (values.len() as f64 - 3.0).max(1.0);
    let ratio = t_quantile(0.5 + confidence / 2.0, freedom).map_or(f64::INFINITY, |t| t * t);
    let allowed = least * (1.0 + ratio / freedom);
    let may = |at: &usize| unexplained(*at) <= allowed;
    let range = LEAST_SIDE..=values.len() - LEAST_SIDE;
    let first = range.clone().find(may).unwrap_or(best.at);
    let last = range.rev().find(may).unwrap_or(best.at);
    (first.min(best.at), last.max(best.at))
}

/// Whether a straight line over the places explains the series better than the cut: then it moved little by little.
pub fn is_gradual(values: &[f64], best: &Split) -> bool {
    let places: Vec<f64> = (0..values.len()).map(|place| place as f64).collect();
    let (Some(x), Some(y)) = (mean(&places), mean(values)) else { return false };
    let together: f64 = places.iter().zip(values).map(|(place, value)| (place - x) * (value - y)).sum();
    let line = squares(values) - together * together / squares(&places);
    let (before, after) = values.split_at(best.at);
    line < squares(before) + squares(after)
}

/// What is left of the difference without the value that makes most of it, on the one side or on the other: whichever is less,
/// and zero where it would turn.
pub fn without_extremes(values: &[f64], best: &Split) -> f64 {
    let (before, after) = values.split_at(best.at);
    let up = best.difference > 0.0;
    let without = |side: &[f64], largest: bool| -> Option<f64> {
        let extreme = side.iter().copied().reduce(if largest { f64::max } else { f64::min })?;
        Some((side.iter().sum::<f64>() - extreme) / (side.len() as f64 - 1.0))
    };
    let left = |was: Option<f64>, is: Option<f64>| was.zip(is).map_or(0.0, |(was, is)| is - was);
    let sides = [left(without(before, !up), mean(after)), left(mean(before), without(after, up))];
    if up { sides[0].min(sides[1]).max(0.0) } else { sides[0].max(sides[1]).min(0.0) }
}

/// How far the last value lies from those before it, with the two-sided p-value of a new value of the same kind: Student's
/// prediction. `None` of fewer than [`LEAST`] values.
pub fn last_apart(values: &[f64], resolution: f64) -> Option<(f64, f64)> {
    let (last, before) = values.split_last().filter(|_| values.len() >= LEAST)?;
    let count = before.len() as f64;
    let deviation = (squares(before) / (count - 1.0)).sqrt().max(resolution);
    let apart = last - mean(before)?;
    Some((apart, t_two_sided(apart / (deviation * (1.0 + 1.0 / count).sqrt()), count - 1.0)?))
}
