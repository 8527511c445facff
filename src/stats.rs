//! Statistics of runs. The run is the sample: seconds within a run are not independent, and never counted here.
//!
//! Every method names its source, `docs/statistics.md` says why it was chosen, and each is checked against values
//! that were computed with SciPy. All of it is pure: what is random takes a seed.
//!
//! | room | holds |
//! |---|---|
//! | [`summary`] | median, range, quantiles |
//! | [`paired`] | the effect between two levels, with its t-interval |
//! | [`family`] | many tests that share one error |
//! | [`bootstrap`] | an interval that assumes no distribution |
//! | [`noise`] | how far two visits of one level lie apart: the noise floor |
//! | [`power`] | the rounds that would decide, the change that can be seen |
//! | [`course`] | what should not be there: drift, a first round apart, outliers, two modes |
//! | [`change`] | a change in a series of records, and where it began |

pub mod bootstrap;
pub mod change;
pub mod course;
pub mod family;
pub mod noise;
pub mod paired;
pub mod power;
pub mod summary;

pub use paired::Estimate;
pub use summary::Summary;

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// The confidence of every interval that is printed.
pub const CONFIDENCE: f64 = 0.95;

/// The arithmetic mean; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The sum of squared deviations from the mean.
fn squares(values: &[f64]) -> f64 {
    mean(values).map_or(0.0, |center| values.iter().map(|value| (value - center).powi(2)).sum())
}

/// The t distribution's quantile at probability `p` with `freedom` degrees; `None` unless `freedom > 0` and `0 < p < 1`.
pub fn t_quantile(p: f64, freedom: f64) -> Option<f64> {
    let valid = p > 0.0 && p < 1.0 && freedom > 0.0 && freedom.is_finite();
    let t = StudentsT::new(0.0, 1.0, freedom).ok().filter(|_| valid)?;
    // The midpoint is 0 by symmetry; the inversion divides by zero there.
    Some(if (p - 0.5).abs() < 1e-15 { 0.0 } else { t.inverse_cdf(p) })
}

/// The probability that |T| is at least `t` with `freedom` degrees: a two-sided p-value. `None` unless `freedom > 0`.
pub fn t_two_sided(t: f64, freedom: f64) -> Option<f64> {
    let distribution = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some((2.0 * distribution.sf(t.abs())).min(1.0))
}

/// The standard normal's distribution function.
fn normal_cdf(z: f64) -> f64 {
    Normal::standard().cdf(z)
}

/// The standard normal's quantile.
fn normal_quantile(p: f64) -> f64 {
    Normal::standard().inverse_cdf(p)
}

#[cfg(test)]
pub(crate) mod known;
#[cfg(test)]
mod tests;
