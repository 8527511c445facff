//! An interval that assumes no distribution, to check the t-interval with.
//!
//! Only from [`LEAST`] differences on: a bootstrap of three runs has ten distinct means and covers far less than it
//! says (about half of its claims of a change were false where that was tried).

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::{mean, normal_cdf, normal_quantile, summary};

/// The fewest differences that are resampled.
pub const LEAST: usize = 10;
/// Resamples: Efron & Tibshirani, An Introduction to the Bootstrap (1993), section 14.3, ask for 1000 or more.
pub const RESAMPLES: usize = 2000;

/// The bias-corrected and accelerated interval of the mean over blocks, resampled within blocks: Efron, "Better bootstrap
/// confidence intervals", JASA 82 (1987) 171-185. `None` below [`LEAST`] differences or where a block is empty.
pub fn bca(blocks: &[Vec<f64>], confidence: f64, seed: u64) -> Option<(f64, f64)> {
    let total: usize = blocks.iter().map(Vec::len).sum();
    if total < LEAST || blocks.iter().any(Vec::is_empty) {
        return None;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let means: Vec<f64> = (0..RESAMPLES).map(|_| resampled_mean(blocks, &mut rng)).collect();
    let estimate = block_mean(blocks)?;
    Some(interval(&means, estimate, acceleration(blocks, estimate), confidence))
}

fn block_mean(blocks: &[Vec<f64>]) -> Option<f64> {
    mean(&blocks.iter().map(|block| mean(block)).collect::<Option<Vec<_>>>()?)
}

fn resampled_mean(blocks: &[Vec<f64>], rng: &mut ChaCha8Rng) -> f64 {
    let sum: f64 = blocks
        .iter()
        .map(|block| (0..block.len()).map(|_| block[below(rng, block.len())]).sum::<f64>() / block.len() as f64)
        .sum();
    sum / blocks.len() as f64
}

/// An even number below `bound`: Lemire, "Fast random integer generation in an interval", ACM TOMACS 29 (2019), without
/// the rejection, whose bias of `bound / 2^64` is far below what 2,000 resamples could show.
fn below(rng: &mut ChaCha8Rng, bound: usize) -> usize {
    ((u128::from(rng.next_u64()) * bound as u128) >> 64) as usize
}

/// From the jackknife: leave out each difference in turn (Efron 1987, equation 6.6).
fn acceleration(blocks: &[Vec<f64>], estimate: f64) -> f64 {
    let count = blocks.len() as f64;
    let mut left_out = Vec::new();
    for block in blocks.iter().filter(|block| block.len() > 1) {
        let size = block.len() as f64;
        let center = block.iter().sum::<f64>() / size;
        // Without the value the block's mean moves by (center - value) / (size - 1).
        left_out.extend(block.iter().map(|value| estimate + (center - value) / (size - 1.0) / count));
    }
    let Some(center) = mean(&left_out) else { return 0.0 };
    let cubes: f64 = left_out.iter().map(|value| (center - value).powi(3)).sum();
    let squares: f64 = left_out.iter().map(|value| (center - value).powi(2)).sum();
    if squares > 0.0 { cubes / (6.0 * squares.powf(1.5)) } else { 0.0 }
}

/// The interval from the resampled means, the estimate and the acceleration.
pub(super) fn interval(means: &[f64], estimate: f64, acceleration: f64, confidence: f64) -> (f64, f64) {
    // Ties count half, so that a value on the estimate itself does not shift it.
    let less = means.iter().filter(|value| **value < estimate).count() as f64;
    let equal = means.iter().filter(|value| **value == estimate).count() as f64;
    let edge = 0.5 / means.len() as f64;
    let bias = normal_quantile(((less + equal / 2.0) / means.len() as f64).clamp(edge, 1.0 - edge));
    let tail = (1.0 - confidence) / 2.0;
    let place = |p: f64| {
        let z = bias + normal_quantile(p);
        normal_cdf(bias + z / (1.0 - acceleration * z))
    };
    let at = |p: f64| summary::quantile(means, place(p)).unwrap_or(estimate);
    (at(tail), at(1.0 - tail))
}
