//! The effect between two levels, from differences that were paired within pair and round.
//!
//! A difference is usually the log-ratio `ln(new) - ln(base)`: a rate that doubles and one that halves are then equally
//! far from none, and an effect of every pair counts in proportion (Fleming & Wallace, "How not to lie with
//! statistics", Communications of the ACM 29 (1986) 218-221, on why ratios are averaged so).

use super::{mean, squares, t_quantile, t_two_sided};

/// An estimated mean difference, with what is needed for its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The mean difference.
    pub mean: f64,
    /// Its standard error.
    pub error: f64,
    /// The degrees of freedom of the error.
    pub freedom: f64,
}

impl Estimate {
    /// The two-sided interval at `confidence` (0.95 for 95 %).
    pub fn interval(&self, confidence: f64) -> (f64, f64) {
        let half = self.half_width(confidence);
        (self.mean - half, self.mean + half)
    }

    /// Half of the interval's width. Infinite where the confidence or the freedom leave nothing to say.
    pub fn half_width(&self, confidence: f64) -> f64 {
        t_quantile(0.5 + confidence / 2.0, self.freedom).map_or(f64::INFINITY, |t| t * self.error)
    }

    /// The two-sided p-value against no difference.
    pub fn p_value(&self) -> f64 {
        if self.error > 0.0 {
            return t_two_sided(self.mean / self.error, self.freedom).unwrap_or(1.0);
        }
        if self.mean == 0.0 { 1.0 } else { 0.0 }
    }

    /// The same with a standard error `factor` times as large.
    #[must_use]
    pub fn with_error_times(self, factor: f64) -> Self {
        Self { error: self.error * factor, ..self }
    }

    /// The same with a standard error of at least `floor`: no instrument resolves without limit.
    #[must_use]
    pub fn with_error_of_at_least(self, floor: f64) -> Self {
        Self { error: self.error.max(floor), ..self }
    }
}

/// How much larger the standard error of alternated differences (AB BA AB) can be than it looks, if each run remembers a part
/// of the one before it: with a memory `m` between neighbouring runs (first-order autoregression) the k-th neighbours of a
/// difference correlate with it by `-(-1)^k m^(2k-1) (1 - m) / 2`, so the variance of their mean is `1 + m (1 - m) / (1 + m^2)`
/// times what their spread says (Box, Jenkins & Reinsel, Time Series Analysis, 4th ed. 2008, section 2.1.6, gives the variance
/// of a mean). That is largest at `m = sqrt(2) - 1`: 1.207, of which this is the root.
pub const SERIAL: f64 = 1.0987;

/// The mean over blocks (pairs) that are fixed: what these pairs do, not what other pairs would do. Every block counts
/// the same; the error is pooled within blocks, `sum(n_b - 1)` degrees of freedom (one-way analysis of variance, fixed
/// effects: Box, Hunter & Hunter, Statistics for Experimenters, 2nd ed. 2005, chapter 4). With one block it is the paired
/// t-interval of Student, "The probable error of a mean", Biometrika 6 (1908) 1-25.
///
/// `None` where no block has two differences, or some block has none.
pub fn within_blocks(blocks: &[Vec<f64>]) -> Option<Estimate> {
    let means: Vec<f64> = blocks.iter().map(|block| mean(block)).collect::<Option<_>>()?;
    let freedom: usize = blocks.iter().map(|block| block.len() - 1).sum();
    if freedom == 0 {
        return None;
    }
    let freedom = freedom as f64;
    let variance = blocks.iter().map(|block| squares(block)).sum::<f64>() / freedom;
    let share: f64 = blocks.iter().map(|block| 1.0 / block.len() as f64).sum();
    let count = blocks.len() as f64;
    Some(Estimate { mean: mean(&means)?, error: (variance * share).sqrt() / count, freedom })
}

/// The mean over blocks (pairs) that stand for others like them: Student's t over the blocks' own means. `None` with
/// fewer than two blocks, or an empty one.
pub fn over_blocks(blocks: &[Vec<f64>]) -> Option<Estimate> {
    let means: Vec<f64> = blocks.iter().map(|block| mean(block)).collect::<Option<_>>()?;
    let count = means.len();
    if count < 2 {
        return None;
    }
    let freedom = count as f64 - 1.0;
    Some(Estimate { mean: mean(&means)?, error: (squares(&means) / freedom / count as f64).sqrt(), freedom })
}

/// The difference of two means that were not paired, with unequal variances: Welch, "The generalization of Student's
/// problem when several different population variances are involved", Biometrika 34 (1947) 28-35, with Satterthwaite's
/// degrees of freedom, summed over blocks of equal weight. `None` where a side of a block has fewer than two values.
pub fn welch(blocks: &[(Vec<f64>, Vec<f64>)]) -> Option<Estimate> {
    let count = blocks.len() as f64;
    let (mut difference, mut variance, mut weight) = (0.0, 0.0, 0.0);
    for (base, new) in blocks {
        difference += mean(new)? - mean(base)?;
        for side in [base, new] {
            if side.len() < 2 {
                return None;
            }
            let freedom = side.len() as f64 - 1.0;
            let part = squares(side) / freedom / side.len() as f64;
            variance += part;
            weight += part * part / freedom;
        }
    }
    if blocks.is_empty() {
        return None;
    }
    let least = blocks.iter().map(|(base, new)| base.len().min(new.len()) - 1).min()? as f64;
    let freedom = if weight > 0.0 { variance * variance / weight } else { least };
    Some(Estimate { mean: difference / count, error: variance.sqrt() / count, freedom })
}

/// One value with its place in time, and whether it is of the new level.
pub type Placed = (f64, f64, bool);

/// The difference of two levels that were measured one after the other, beside a steady drift that both share: the analysis of
/// covariance with the time as covariate (Fisher, Statistical Methods for Research Workers, 4th ed. 1932, section 49.1), in
/// blocks of equal weight with slopes of their own and the error pooled over them. A drift that is no straight line is in the
/// difference all the same. `None` where a block has fewer than four values, or no place for a slope.
pub fn beside_drift(blocks: &[Vec<Placed>]) -> Option<Estimate> {
    let (mut total, mut unexplained, mut freedom, mut weight) = (0.0, 0.0, 0.0, 0.0);
    for block in blocks {
        let column = |of: fn(&Placed) -> f64| -> Option<Vec<f64>> {
            let values: Vec<f64> = block.iter().map(of).collect();
            let center = mean(&values)?;
            Some(values.iter().map(|value| value - center).collect())
        };
        let (time, level, value) = (column(|p| p.0)?, column(|p| f64::from(u8::from(p.2)))?, column(|p| p.1)?);
        let times = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let (tt, tl, ll) = (times(&time, &time), times(&time, &level), times(&level, &level));
        let own = ll - tl * tl / tt;
        if block.len() < 4 || own.is_nan() || own <= 1e-9 * ll {
            return None;
        }
        let (tv, lv) = (times(&time, &value), times(&level, &value));
        let difference = (lv - tl * tv / tt) / own;
        let slope = (tv - difference * tl) / tt;
        total += difference;
        unexplained += (times(&value, &value) - difference * lv - slope * tv).max(0.0);
        freedom += block.len() as f64 - 3.0;
        weight += 1.0 / own;
    }
    let count = blocks.len() as f64;
    (count > 0.0).then(|| Estimate {
        mean: total / count,
        error: (unexplained / freedom * weight).sqrt() / count,
        freedom,
    })
}
