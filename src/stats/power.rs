//! The rounds that would decide, and the change that a plan can see.

use statrs::distribution::{ChiSquared, ContinuousCDF};
use statrs::function::gamma::ln_gamma;

use super::{normal_cdf, t_quantile};

/// More rounds than this are not proposed.
pub const MOST_ROUNDS: u32 = 5000;

/// A few differences tell their own deviation badly, and more often too low than too high: a forecast that takes it as it is
/// comes true less than half of the time after three rounds. So it is made for a deviation that the true one exceeds with
/// this probability only (Kupper & Hafner, "How appropriate are popular sample size formulas?", The American Statistician 43
/// (1989) 101-105).
const EXCEEDED: f64 = 0.25;

/// The fewest rounds after which the half-width of the interval will most likely be at most `half_width`, where one paired
/// difference was seen to have the standard deviation `deviation` with `freedom` degrees, `pairs` pairs run in each round, and
/// the interval has the two-sided error `alpha`. `None` beyond [`MOST_ROUNDS`]. The forecast holds if the noise stays what it
/// was.
pub fn rounds_for(half_width: f64, deviation: f64, freedom: f64, pairs: usize, alpha: f64) -> Option<u32> {
    let chi_square = ChiSquared::new(freedom).ok()?.inverse_cdf(EXCEEDED);
    let deviation = deviation * (freedom / chi_square).sqrt();
    let enough =
        |rounds: u32| expected_half_width(deviation, pairs, rounds, alpha).is_some_and(|width| width <= half_width);
    if !enough(MOST_ROUNDS) {
        return None;
    }
    let (mut few, mut many) = (1, MOST_ROUNDS);
    while many - few > 1 {
        let middle = few + (many - few) / 2;
        if enough(middle) { many = middle } else { few = middle }
    }
    Some(many)
}

fn expected_half_width(deviation: f64, pairs: usize, rounds: u32, alpha: f64) -> Option<f64> {
    let (freedom, error) = design(deviation, pairs, rounds)?;
    Some(t_quantile(1.0 - alpha / 2.0, freedom)? * error)
}

/// The degrees of freedom and the standard error of a paired comparison.
fn design(deviation: f64, pairs: usize, rounds: u32) -> Option<(f64, f64)> {
    let (pairs, rounds) = (pairs as f64, f64::from(rounds));
    let freedom = pairs * (rounds - 1.0);
    (freedom > 0.0).then(|| (freedom, deviation / (pairs * rounds).sqrt()))
}

/// The least change, as a log-ratio, that is found with probability `power` where one run has the noise `deviation` (as a
/// log-ratio, so about its relative standard deviation) and `tests` verdicts share the error `alpha`. Bloom, "Minimum
/// detectable effects: a simple way to report the statistical power of experimental designs", Evaluation Review 19 (1995)
/// 547-556, names the question; the answer is taken from the noncentral t distribution, since Bloom's sum of two
/// quantiles is a tenth too small with four degrees of freedom. `None` for a plan of one round, which has no error to judge
/// with, and for a power that no change reaches.
pub fn detectable(deviation: f64, pairs: usize, rounds: u32, tests: usize, alpha: f64, power: f64) -> Option<f64> {
    let (freedom, error) = design(deviation * std::f64::consts::SQRT_2, pairs, rounds)?;
    let critical = t_quantile(1.0 - alpha / 2.0 / tests.max(1) as f64, freedom)?;
    Some(shift_for(|shift| beyond(critical, freedom, shift), power)? * error)
}

/// The least shift at which `reached` is `power` or more; `None` where no shift is enough.
pub(super) fn shift_for(reached: impl Fn(f64) -> f64, power: f64) -> Option<f64> {
    let (mut low, mut high) = (0.0, 1.0);
    while reached(high) < power {
        high *= 2.0;
        if high > 1e6 {
            return None;
        }
    }
    while high - low > 1e-6 * high {
        let middle = (low + high) / 2.0;
        if reached(middle) < power { low = middle } else { high = middle }
    }
    Some(high)
}

/// The probability that a noncentral t exceeds `critical`: `(Z + shift) / sqrt(W / freedom)` with a standard normal Z and a
/// chi-square W (Johnson, Kotz & Balakrishnan, Continuous Univariate Distributions 2, 2nd ed. 1995, chapter 31), by
/// Simpson's rule over the ratio `r = sqrt(W / freedom)`, which has its mass near one.
pub(super) fn beyond(critical: f64, freedom: f64, shift: f64) -> f64 {
    const STEPS: usize = 600;
    let upper = 1.0 + 9.0 / freedom.sqrt();
    let step = upper / STEPS as f64;
    let half = freedom / 2.0;
    let scale = std::f64::consts::LN_2 + half * half.ln() - ln_gamma(half);
    let at = |r: f64| {
        // At zero the density is zero from two degrees of freedom on, and nothing is beyond any limit with one.
        if r == 0.0 {
            return if freedom <= 1.0 { scale.exp() * normal_cdf(shift) } else { 0.0 };
        }
        (scale + (freedom - 1.0) * r.ln() - half * r * r).exp() * normal_cdf(shift - critical * r)
    };
    let inner: f64 = (1..STEPS).map(|i| at(i as f64 * step) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
    (at(0.0) + inner + at(upper)) * step / 3.0
}
