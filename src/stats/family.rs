//! Many tests that share one error, where only a change of some size is ever published.
//!
//! Holm's procedure guards against a test that is beyond chance. Here a change must also be larger than a minimum, and where
//! the noise is small against that minimum, chance alone could hardly bring a change of its size about: such a test takes
//! next to nothing of the error, and leaves it to the others.
//!
//! How little it takes is known exactly. Without a true change, the *size* of normal differences (the sum of their squares)
//! is a complete sufficient statistic, and Student's t does not depend on it (Basu, "On statistics independent of a complete
//! sufficient statistic", Sankhya 15 (1955) 377-380): given the size, t has its usual distribution, and the probability that
//! the mean is beyond the minimum is that of a beta distribution ([`Size::reach`]). So each test's part of the error is, at a
//! critical value `c`, at most the smaller of `c` and its reach, and `c` may be raised until the parts add up to the error.
//! What is selected by the size is not selected by the outcome: that is what Bourgon, Gentleman & Huber, "Independent
//! filtering increases detection power for high-throughput experiments", PNAS 107 (2010) 9546-9551, ask of a filter. That
//! tests which cannot reject take no part is Tarone, "A modified Bonferroni method for discrete data", Biometrics 46 (1990)
//! 515-522. A filter by the observed *mean* would be neither.

use statrs::function::beta::checked_beta_reg;

use super::mean;

/// What is known of the size of differences without knowing their mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    /// The sum of squares of the differences.
    squares: f64,
    /// The sum of the squared weights by which the mean is made of them.
    weights: f64,
    /// How many dimensions they have.
    dimensions: f64,
}

impl Size {
    /// Of paired differences in blocks that count the same. `None` where a block is empty, or there are fewer than two.
    pub fn of_differences(blocks: &[Vec<f64>]) -> Option<Self> {
        let dimensions: usize = blocks.iter().map(Vec::len).sum();
        if dimensions < 2 || blocks.iter().any(Vec::is_empty) {
            return None;
        }
        let count = blocks.len() as f64;
        Some(Self {
            squares: blocks.iter().flatten().map(|difference| difference * difference).sum(),
            weights: blocks.iter().map(|block| 1.0 / block.len() as f64).sum::<f64>() / (count * count),
            dimensions: dimensions as f64,
        })
    }

    /// Of two sides that were not paired: their squares about what each block has in common.
    pub fn of_sides(blocks: &[(Vec<f64>, Vec<f64>)]) -> Option<Self> {
        let count = blocks.len() as f64;
        let (mut squares, mut weights, mut dimensions) = (0.0, 0.0, 0);
        for (base, new) in blocks {
            if base.is_empty() || new.is_empty() {
                return None;
            }
            let both: Vec<f64> = base.iter().chain(new).copied().collect();
            let center = mean(&both)?;
            squares += both.iter().map(|value| (value - center).powi(2)).sum::<f64>();
            weights += (1.0 / base.len() as f64 + 1.0 / new.len() as f64) / (count * count);
            dimensions += both.len() - 1;
        }
        (dimensions >= 2).then_some(Self { squares, weights, dimensions: dimensions as f64 })
    }

    /// The probability that differences of this size have a mean of `least` or more, either way, if there is no true change:
    /// the squared share of a direction in a random vector is a beta variable of 1/2 and `(dimensions - 1) / 2` (Johnson,
    /// Kotz & Balakrishnan, Continuous Univariate Distributions 2, 2nd ed. 1995, chapter 25).
    pub fn reach(&self, least: f64) -> f64 {
        let share = least * least / (self.weights * self.squares);
        if least <= 0.0 {
            return 1.0;
        }
        if share.is_nan() || share >= 1.0 {
            return 0.0;
        }
        // Where it cannot be computed, nothing is spared.
        checked_beta_reg((self.dimensions - 1.0) / 2.0, 0.5, 1.0 - share).unwrap_or(1.0)
    }
}

/// One of the tests that share the error: of one side, or of both.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Test {
    /// Its p-value.
    pub p: f64,
    /// The probability, given the size of its differences, that chance alone is beyond the minimum on the side (or sides) that
    /// is tested: [`Size::reach`], half of it, or one.
    pub reach: f64,
    /// Whether its change is beyond the minimum there, so that it would be published.
    pub beyond: bool,
}

/// Adjusted p-values, in the order of the input: if a change that is beyond its minimum and has one of at most `a` is
/// published, the probability of even one false alarm is at most `a`. It is Holm's procedure ("A simple sequentially rejective
/// multiple test procedure", Scandinavian Journal of Statistics 6 (1979) 65-70) where every reach is one. None is below its
/// own p-value.
pub fn adjust(tests: &[Test]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..tests.len()).collect();
    order.sort_by(|&a, &b| tests[a].p.total_cmp(&tests[b].p));
    // A test that is published leaves the others its part; one that is not stays, or leaving would be a choice by outcome.
    let mut left: Vec<bool> = vec![true; tests.len()];
    let mut adjusted = vec![1.0; tests.len()];
    let mut largest: f64 = 0.0;
    for index in order {
        let p = tests[index].p;
        let parts: f64 =
            tests.iter().zip(&left).filter(|(_, left)| **left).map(|(test, _)| test.reach.clamp(0.0, 1.0).min(p)).sum();
        let own = parts.max(p).min(1.0);
        if tests[index].beyond {
            largest = largest.max(own);
            adjusted[index] = largest;
            left[index] = false;
        } else {
            adjusted[index] = largest.max(own);
        }
    }
    adjusted
}
