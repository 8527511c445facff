//! How far two visits of the same level lie apart: the noise floor of a record.

use super::t_quantile;

/// The noise of one run, from repeated visits of the same level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    /// The standard deviation of one run.
    pub deviation: f64,
    /// How many successive differences it was taken from.
    pub differences: usize,
}

/// The noise of one run from the differences between successive visits: half of the mean square successive
/// difference, `sum((x[i+1] - x[i])^2) / 2n`, pooled over `series` (one per pair and level, in the order of time). Slow
/// drift hardly enters it. von Neumann, Kent, Bellinson & Hart, "The mean square successive difference", Annals of
/// Mathematical Statistics 12 (1941) 153-162. `None` where no level was visited twice.
pub fn of_repeats(series: &[Vec<f64>]) -> Option<Noise> {
    let squares: Vec<f64> =
        series.iter().flat_map(|visits| visits.windows(2).map(|two| (two[1] - two[0]).powi(2))).collect();
    if squares.is_empty() {
        return None;
    }
    let differences = squares.len();
    Some(Noise { deviation: (squares.iter().sum::<f64>() / (2.0 * differences as f64)).sqrt(), differences })
}

impl Noise {
    /// The noise floor of a comparison of two levels with `runs` runs on each side: what a comparison of a level with
    /// itself would show at most, 19 times out of 20. The estimate of the deviation has two thirds of the efficiency of
    /// the ordinary one (von Neumann et al. 1941, section 6), so it counts two thirds of its degrees of freedom.
    pub fn floor(&self, runs: usize) -> f64 {
        let freedom = (self.differences as f64 * 2.0 / 3.0).max(1.0);
        let t = t_quantile(0.975, freedom).unwrap_or(f64::INFINITY);
        t * self.deviation * (2.0 / runs.max(1) as f64).sqrt()
    }
}
