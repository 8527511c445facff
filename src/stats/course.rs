//! What should not be there: drift, a first round apart, outliers, two modes.
//!
//! These make cautions, never verdicts. Each finding is a significance *and* a size, since with enough runs any
//! machine drifts by a little.

use super::{mean, normal_cdf, squares, summary, t_two_sided};

/// A steady move over the time of a record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// The move from the first to the last value.
    pub total: f64,
    /// The p-value of the trend.
    pub p: f64,
}

/// The fewest values for which the normal approximation of Kendall's S is used (Kendall, Rank Correlation Methods, 4th ed.
/// 1970, section 4.5: from 8 to 10 on).
const LEAST_FOR_TREND: usize = 8;

/// A trend over values in the order of time, `(time, value)`: Mann, "Nonparametric tests against trend", Econometrica 13
/// (1945) 245-259, with the size by Sen, "Estimates of the regression coefficient based on Kendall's tau", JASA 63 (1968)
/// 1379-1389. `None` with fewer than 8 values.
pub fn drift(values: &[(f64, f64)]) -> Option<Drift> {
    let count = values.len();
    if count < LEAST_FOR_TREND {
        return None;
    }
    let (mut s, mut slopes) = (0.0, Vec::with_capacity(count * (count - 1) / 2));
    for (index, earlier) in values.iter().enumerate() {
        for later in &values[index + 1..] {
            let (time, change) = (later.0 - earlier.0, later.1 - earlier.1);
            if time == 0.0 {
                continue;
            }
            if change != 0.0 {
                s += (change * time).signum();
            }
            slopes.push(change / time);
        }
    }
    let n = count as f64;
    let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0 - ties(values)).max(0.0).sqrt();
    // Kendall's continuity correction: S moves in steps of two.
    let z = if s == 0.0 || deviation == 0.0 { 0.0 } else { (s - s.signum()) / deviation };
    let first = values.iter().map(|value| value.0).fold(f64::INFINITY, f64::min);
    let last = values.iter().map(|value| value.0).fold(f64::NEG_INFINITY, f64::max);
    Some(Drift { total: summary::median(&slopes)? * (last - first), p: 2.0 * (1.0 - normal_cdf(z.abs())) })
}

/// What equal values take from the variance of S.
fn ties(values: &[(f64, f64)]) -> f64 {
    let mut sorted: Vec<f64> = values.iter().map(|value| value.1).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.chunk_by(|a, b| a == b).map(|group| group.len() as f64).map(|t| t * (t - 1.0) * (2.0 * t + 5.0) / 18.0).sum()
}

/// How far the first round lies from the later ones, over `cells` of log values in the order of rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FirstRound {
    /// The mean over cells of the first value minus the mean of the later ones.
    pub apart: f64,
    /// Student's p-value over the cells.
    pub p: f64,
}

/// Compares the first round with the later ones, each cell with itself. `None` with fewer than three cells of three
/// rounds, unless there are five rounds: then the later rounds are the sample, as an interval for one more observation takes
/// them (Hahn, "Factors for calculating two-sided prediction intervals for samples from a normal distribution", JASA 64 (1969)
/// 878-888).
pub fn first_round(cells: &[Vec<f64>]) -> Option<FirstRound> {
    let apart: Vec<f64> = cells
        .iter()
        .filter(|cell| cell.len() >= 3)
        .filter_map(|cell| Some(cell.first()? - mean(cell.get(1..)?)?))
        .collect();
    if apart.len() < 3 {
        return first_of_rounds(cells);
    }
    let (center, count) = (mean(&apart)?, apart.len() as f64);
    let error = (squares(&apart) / (count - 1.0) / count).sqrt();
    let p = if error > 0.0 { t_two_sided(center / error, count - 1.0)? } else { f64::from(u8::from(center == 0.0)) };
    Some(FirstRound { apart: center, p })
}

/// With fewer, one round that is apart cannot be told from noise.
const LEAST_ROUNDS: usize = 5;

fn first_of_rounds(cells: &[Vec<f64>]) -> Option<FirstRound> {
    let cells: Vec<&Vec<f64>> = cells.iter().filter(|cell| cell.len() >= LEAST_ROUNDS).collect();
    let rounds = cells.iter().map(|cell| cell.len()).min()?;
    // Cells of one round share its noise: their mean is one observation.
    let centers: Vec<f64> = cells.iter().filter_map(|cell| mean(&cell[1..rounds])).collect();
    let of_round =
        |round: usize| mean(&cells.iter().zip(&centers).map(|(cell, center)| cell[round] - center).collect::<Vec<_>>());
    let later: Vec<f64> = (1..rounds).filter_map(of_round).collect();
    let (apart, count) = (of_round(0)?, later.len() as f64);
    let error = (squares(&later) / (count - 1.0) * (1.0 + 1.0 / count)).sqrt();
    let p = if error > 0.0 { t_two_sided(apart / error, count - 1.0)? } else { f64::from(u8::from(apart == 0.0)) };
    Some(FirstRound { apart, p })
}

/// The modified z-score beyond which a value is an outlier: Iglewicz & Hoaglin, How to Detect and Handle Outliers (ASQC
/// 1993), section 3.5.
pub const OUTLIER_SCORE: f64 = 3.5;
/// 1 / 0.6745: with it the median absolute deviation estimates a normal distribution's standard deviation.
const MAD_TO_DEVIATION: f64 = 1.482_602_218_505_602;
/// With fewer values the median absolute deviation of a good sample is often near zero.
const LEAST_FOR_OUTLIERS: usize = 10;

/// The places of values whose modified z-score is beyond [`OUTLIER_SCORE`]. Empty with fewer than 10 values.
pub fn outliers(values: &[f64]) -> Vec<usize> {
    let Some(center) = summary::median(values).filter(|_| values.len() >= LEAST_FOR_OUTLIERS) else {
        return Vec::new();
    };
    let distances: Vec<f64> = values.iter().map(|value| (value - center).abs()).collect();
    let Some(mad) = summary::median(&distances).filter(|mad| *mad > 0.0) else { return Vec::new() };
    let limit = OUTLIER_SCORE * mad * MAD_TO_DEVIATION;
    (0..values.len()).filter(|&place| distances[place] > limit).collect()
}

/// Two groups that hardly touch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TwoModes {
    /// The mean of the lower group.
    pub low: f64,
    /// The mean of the upper group.
    pub high: f64,
    /// The upper group's share of the values.
    pub share_high: f64,
}

/// How many of their own deviations the groups must lie apart. Ashman, Bird & Zepf, "Detecting bimodality in astronomical
/// datasets", Astronomical Journal 108 (1994) 2348-2361, call D > 2 separated when the groups are known; halves of one
/// normal sample, split at the best place, reach 2.7 in the mean and often 4, so more is asked here.
const SEPARATION: f64 = 6.0;
/// The smaller group's least share: less is outliers.
const LEAST_SHARE: f64 = 0.2;
/// With fewer values, almost any sample splits.
const LEAST_FOR_MODES: usize = 10;

/// Splits the values where the squares within both parts are least (Fisher, "On grouping for maximum homogeneity", JASA
/// 53 (1958) 789-798) and says whether the parts are two modes. `None` if they are not, or with fewer than 10 values.
pub fn two_modes(values: &[f64]) -> Option<TwoModes> {
    if values.len() < LEAST_FOR_MODES {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let least = ((sorted.len() as f64 * LEAST_SHARE).ceil() as usize).max(2);
    let cost = |cut: &usize| squares(&sorted[..*cut]) + squares(&sorted[*cut..]);
    let cut = (least..=sorted.len() - least).min_by(|a, b| cost(a).total_cmp(&cost(b)))?;
    let (lower, upper) = sorted.split_at(cut);
    let variance = |part: &[f64]| squares(part) / (part.len() as f64 - 1.0);
    let (low, high) = (mean(lower)?, mean(upper)?);
    let spread = (variance(lower) + variance(upper)).sqrt();
    let apart = std::f64::consts::SQRT_2 * (high - low) > SEPARATION * spread && high > low;
    apart.then(|| TwoModes { low, high, share_high: upper.len() as f64 / sorted.len() as f64 })
}
