//! Reference values: SciPy 1.17.1 (`docs/statistics.md` shows the calls).

use super::known::{N1, N2, N3};
use super::*;

mod change;
mod family;

fn log_ratios(base: &[f64], new: &[f64]) -> Vec<f64> {
    base.iter().zip(new).map(|(base, new)| (new / base).ln()).collect()
}

#[track_caller]
fn near(seen: f64, expected: f64, tolerance: f64) {
    assert!((seen - expected).abs() <= tolerance, "{seen} is not {expected} within {tolerance}");
}

#[test]
fn t_quantiles_and_p_values_are_scipys() {
    for (p, freedom, expected) in [
        (0.975, 2.0, 4.302_652_729_749_462),
        (0.975, 11.0, 2.200_985_160_091_639),
        (0.9995, 4.0, 8.610_301_581_379_522),
        (0.99917, 4.0, 7.536_658_760_699_088),
        (0.8, 4.0, 0.940_964_577_235_181_6),
        (0.975, 1.0, 12.706_204_736_174_694),
        (0.6, 7.3, 0.262_756_805_250_719_1),
        (0.5, 3.0, 0.0),
    ] {
        near(t_quantile(p, freedom).unwrap(), expected, 1e-7);
        near(t_quantile(1.0 - p, freedom).unwrap(), -expected, 1e-7);
    }
    for (t, freedom, expected) in [
        (2.5, 4.0, 0.066_766_544_811_988_14),
        (-12.0, 2.0, 0.006_872_933_677_158_46),
        (0.3, 7.5, 0.772_322_658_568_778_1),
        (40.0, 9.0, 1.898_299_844_933_984e-11),
    ] {
        near(t_two_sided(t, freedom).unwrap(), expected, expected * 1e-6);
    }
    assert_eq!(t_quantile(0.975, 0.0), None);
    assert_eq!(t_quantile(1.0, 3.0), None);
    assert_eq!(t_two_sided(1.0, -1.0), None);
}

#[test]
fn the_paired_interval_is_scipys_on_the_field_series() {
    let cases = [
        (log_ratios(&N1.0, &N1.1), -0.021_991_339, 0.010_504_522, 0.060_273_399, -0.045_111_637, 0.001_128_958),
        (log_ratios(&N2.0, &N2.1), -0.068_320_524, 0.004_202_038, 4.865_579e-9, -0.077_569_148, -0.059_071_900),
        (log_ratios(&N3.0, &N3.1), 0.256_856_005, 0.656_656_394, 0.733_419_047, -2.568_508_420, 3.082_220_430),
    ];
    for (differences, mean, error, p, low, high) in cases {
        let estimate = paired::within_blocks(&[differences]).unwrap();
        near(estimate.mean, mean, 1e-8);
        near(estimate.error, error, 1e-8);
        near(estimate.p_value(), p, 1e-8);
        let (seen_low, seen_high) = estimate.interval(CONFIDENCE);
        near(seen_low, low, 1e-7);
        near(seen_high, high, 1e-7);
    }
}

#[test]
fn fixed_blocks_pool_their_error_as_analysis_of_variance_does() {
    let blocks = [vec![0.10, 0.14, 0.12, 0.09], vec![0.30, 0.26, 0.33]];
    let estimate = paired::within_blocks(&blocks).unwrap();
    near(estimate.mean, 0.204_583_333, 1e-8);
    near(estimate.error, 0.010_722_186, 1e-8);
    near(estimate.freedom, 5.0, 0.0);
    near(estimate.p_value(), 7.289_073e-6, 1e-11);
    let (low, high) = estimate.interval(0.95);
    near(low, 0.177_021_076, 1e-8);
    near(high, 0.232_145_591, 1e-8);
}

#[test]
fn over_blocks_is_student_over_their_means() {
    let blocks = [vec![0.0, 0.2], vec![0.2, 0.2, 0.2], vec![0.3]];
    let estimate = paired::over_blocks(&blocks).unwrap();
    // Means 0.1, 0.2, 0.3: deviation 0.1, error 0.1 / sqrt(3).
    near(estimate.mean, 0.2, 1e-12);
    near(estimate.error, 0.1 / 3.0_f64.sqrt(), 1e-12);
    near(estimate.freedom, 2.0, 0.0);
}

#[test]
fn a_level_after_the_other_is_told_from_a_drift() {
    // numpy.linalg.lstsq on [1, time, level]; the error from its residuals.
    let values = [10.0, 9.9, 9.7, 9.65, 9.2, 9.15, 9.0, 8.8];
    let block: Vec<paired::Placed> =
        values.iter().enumerate().map(|(place, value)| (place as f64, *value, place > 3)).collect();
    let estimate = paired::beside_drift(std::slice::from_ref(&block)).unwrap();
    near(estimate.mean, -0.255, 1e-9);
    near(estimate.error, 0.063_992_187_023, 1e-9);
    near(estimate.freedom, 5.0, 0.0);
    let slope: Vec<paired::Placed> =
        (0..8).map(|place| (f64::from(place), f64::from(place) * -0.1, place > 3)).collect();
    near(paired::beside_drift(&[slope]).unwrap().mean, 0.0, 1e-12);
    assert_eq!(paired::beside_drift(&[block[..3].to_vec()]), None);
    assert_eq!(
        paired::beside_drift(&[vec![(1.0, 1.0, false), (1.0, 1.1, false), (2.0, 2.0, true), (2.0, 2.1, true)]]),
        None
    );
}

#[test]
fn too_little_gives_no_estimate() {
    assert_eq!(paired::within_blocks(&[]), None);
    assert_eq!(paired::within_blocks(&[vec![0.1], vec![0.2]]), None);
    assert_eq!(paired::within_blocks(&[vec![0.1, 0.2], vec![]]), None);
    assert_eq!(paired::over_blocks(&[vec![0.1, 0.2]]), None);
    assert_eq!(paired::welch(&[]), None);
    assert_eq!(paired::welch(&[(vec![0.1], vec![0.1, 0.2])]), None);
    assert_eq!(Summary::of(&[]), None);
    assert_eq!(noise::of_repeats(&[vec![1.0], vec![2.0]]), None);
}

#[test]
fn equal_differences_have_no_error_but_the_instruments() {
    let estimate = paired::within_blocks(&[vec![0.1, 0.1, 0.1]]).unwrap();
    near(estimate.error, 0.0, 1e-12);
    let same = paired::within_blocks(&[vec![0.0, 0.0]]).unwrap();
    near(same.p_value(), 1.0, 0.0);
    near(estimate.with_error_of_at_least(0.001).error, 0.001, 0.0);
}

#[test]
fn welch_is_scipys() {
    let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
    for (base, new, t, freedom, p) in [
        (N1.0.as_slice(), N1.1.as_slice(), -1.673_664_216, 18.009_951_688, 0.111_475_630),
        (&N2.0, &N2.1, -14.476_221_086, 19.899_097_524, 5.008_850_5e-12),
        (&N3.0, &N3.1, 0.420_810_210, 2.025_496_821, 0.714_345_196),
    ] {
        let estimate = paired::welch(&[(logs(base), logs(new))]).unwrap();
        near(estimate.mean / estimate.error, t, 1e-6);
        near(estimate.freedom, freedom, 1e-6);
        near(estimate.p_value(), p, 1e-8);
    }
}

#[test]
fn quantiles_are_type_seven() {
    let values = [5.0, 1.0, 4.0, 2.0, 9.0];
    for (p, expected) in [(0.0, 1.0), (0.1, 1.4), (0.25, 2.0), (0.5, 4.0), (0.9, 7.4), (1.0, 9.0)] {
        near(summary::quantile(&values, p).unwrap(), expected, 1e-12);
    }
    let summary = Summary::of(&[3.0, 1.0, 2.0, 10.0]).unwrap();
    assert_eq!((summary.median, summary.min, summary.max, summary.runs), (2.5, 1.0, 10.0, 4));
}

#[test]
fn the_bca_interval_is_scipys_within_resampling_error() {
    // SciPy with 200,000 and 400,000 resamples; 2,000 leave an error of a few per cent of the width.
    let skewed = vec![0.01, 0.02, -0.01, 0.03, 0.00, 0.02, 0.01, 0.30, 0.02, -0.02, 0.01, 0.04];
    for (differences, low, high, tolerance) in [
        (log_ratios(&N1.0, &N1.1), -0.0412, -0.0020, 0.0025),
        (log_ratios(&N2.0, &N2.1), -0.0762, -0.0605, 0.0010),
        (skewed, 0.0083, 0.1297, 0.01),
    ] {
        let blocks = [differences];
        let (seen_low, seen_high) = bootstrap::bca(&blocks, 0.95, 7).unwrap();
        near(seen_low, low, tolerance);
        near(seen_high, high, tolerance);
        assert_eq!(bootstrap::bca(&blocks, 0.95, 7), Some((seen_low, seen_high)), "the same seed, the same interval");
    }
}

#[test]
fn a_few_differences_are_not_resampled() {
    assert_eq!(bootstrap::bca(&[log_ratios(&N3.0, &N3.1)], 0.95, 1), None);
    assert_eq!(bootstrap::bca(&[vec![0.0; 12], vec![]], 0.95, 1), None);
    assert_eq!(bootstrap::bca(&[vec![0.25; 10]], 0.95, 1), Some((0.25, 0.25)));
}

#[test]
fn repeats_of_a_level_give_its_noise_and_a_slow_drift_does_not() {
    // Alternating +-1: successive differences of 2, so variance 4 / 2.
    let noise = noise::of_repeats(&[vec![1.0, -1.0, 1.0, -1.0, 1.0]]).unwrap();
    near(noise.deviation, 2.0_f64.sqrt(), 1e-12);
    assert_eq!(noise.differences, 4);
    let drifting: Vec<f64> = (0..21).map(|i| f64::from(i) * 0.01).collect();
    let noise = noise::of_repeats(&[drifting]).unwrap();
    near(noise.deviation, 0.01 / 2.0_f64.sqrt(), 1e-12);
    // 20 differences count 13.33 degrees: t 2.155, twice two runs in ten.
    near(noise.floor(10), 2.1553 * noise.deviation * 0.2_f64.sqrt(), 1e-5);
}

#[test]
fn the_change_that_a_plan_can_see_is_the_noncentral_ts() {
    for (pairs, rounds, tests, expected) in
        [(2, 3, 30, 0.216_371_672), (1, 10, 5, 0.075_351_115), (2, 10, 30, 0.058_520_152), (1, 3, 1, 0.184_642_186)]
    {
        near(power::detectable(0.04, pairs, rounds, tests, 0.05, 0.8).unwrap(), expected, 2e-6);
    }
    assert_eq!(power::detectable(0.04, 4, 1, 1, 0.05, 0.8), None);
}

#[test]
fn the_rounds_that_would_decide_are_the_fewest() {
    let rounds = power::rounds_for(0.05, 0.08, 4.0, 2, 0.05).unwrap();
    // scipy.stats.chi2.ppf(0.25, 4)
    let planned = 0.08 * (4.0_f64 / 1.922_557_526).sqrt();
    let half = |rounds: f64| t_quantile(0.975, 2.0 * (rounds - 1.0)).unwrap() * planned / (2.0 * rounds).sqrt();
    assert!(half(f64::from(rounds)) <= 0.05 && half(f64::from(rounds) - 1.0) > 0.05, "{rounds}");
    assert_eq!(power::rounds_for(0.001, 1.0, 4.0, 1, 0.05), None);
}

#[test]
fn a_trend_is_mann_kendalls_and_its_size_sens() {
    let at = |values: &[f64]| values.iter().enumerate().map(|(i, v)| (i as f64, *v)).collect::<Vec<_>>();
    let drift = course::drift(&at(&[3.0, 2.5, 3.2, 3.1, 3.6, 3.3, 3.9, 3.8, 4.1, 4.0])).unwrap();
    near(drift.p, 0.002_357_528, 1e-8);
    near(drift.total, 0.15 * 9.0, 1e-12);
    let tied = course::drift(&at(&[1., 1., 2., 2., 3., 3., 2., 4., 4., 5.])).unwrap();
    near(tied.p, 0.001_774_776, 1e-8);
    near(tied.total, 0.428_571_429 * 9.0, 1e-7);
    assert_eq!(course::drift(&at(&[1.0, 2.0, 3.0])), None);
    near(course::drift(&at(&[1.0; 9])).unwrap().p, 1.0, 1e-12);
}

#[test]
fn a_first_round_apart_is_found_over_cells() {
    let cell = |base: f64, first: f64| vec![base + first, base + 0.01, base - 0.01];
    let apart = course::first_round(&[cell(1.0, -0.2), cell(5.0, -0.22), cell(3.0, -0.18), cell(2.0, -0.2)]).unwrap();
    near(apart.apart, -0.2, 1e-9);
    assert!(apart.p < 0.001);
    let alike = course::first_round(&[cell(1.0, 0.02), cell(5.0, -0.03), cell(3.0, 0.01)]).unwrap();
    assert!(alike.p > 0.5);
    assert_eq!(course::first_round(&[cell(1.0, -0.2), cell(5.0, -0.2)]), None);
}

#[test]
fn outliers_are_iglewicz_and_hoaglins() {
    let mut values = N1.0.to_vec();
    assert_eq!(course::outliers(&values), Vec::<usize>::new());
    values[4] = 1200.0;
    assert_eq!(course::outliers(&values), [4]);
    assert_eq!(course::outliers(&[1.0, 1.0, 9.0]), Vec::<usize>::new(), "too few to tell");
}

#[test]
fn two_modes_are_found_and_one_is_not_split() {
    let bimodal = [2.0, 2.1, 2.05, 3.9, 4.0, 4.1, 2.0, 3.95, 2.1, 4.05, 2.02, 4.0];
    let modes = course::two_modes(&bimodal).unwrap();
    near(modes.low, 2.045, 1e-3);
    near(modes.high, 4.0, 1e-3);
    near(modes.share_high, 0.5, 1e-12);
    assert_eq!(course::two_modes(&N1.0), None);
    assert_eq!(course::two_modes(&N2.1), None);
    let mut rng = <rand_chacha::ChaCha8Rng as rand_chacha::rand_core::SeedableRng>::seed_from_u64(1);
    let false_splits = (0..500).filter(|_| course::two_modes(&normals(&mut rng, 12)).is_some()).count();
    assert!(false_splits <= 10, "{false_splits} of 500 normal samples were split");
}

/// Standard normals by Box & Muller (1958).
fn normals(rng: &mut impl rand_chacha::rand_core::RngCore, count: usize) -> Vec<f64> {
    let mut uniform = || (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    (0..count).map(|_| (-2.0 * (1.0 - uniform()).ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()).collect()
}

#[test]
fn a_first_round_apart_is_found_with_few_cells_too() {
    // Checked by hand: later values 1, 3, 2, 2 have mean 2 and variance 2/3; (7 - 2) / sqrt(2/3 * 5/4) = 5.477 on 3 degrees.
    let first = course::first_round(&[vec![7.0, 1.0, 3.0, 2.0, 2.0]]).unwrap();
    near(first.apart, 5.0, 1e-12);
    near(first.p, 0.011_966_9, 1e-6);
    // Two cells that move together are one observation, not two.
    let both = course::first_round(&[vec![7.0, 1.0, 3.0, 2.0, 2.0], vec![17.0, 11.0, 13.0, 12.0, 12.0]]).unwrap();
    assert_eq!((both.apart, both.p), (first.apart, first.p));
    assert_eq!(course::first_round(&[vec![7.0, 1.0, 3.0, 2.0]]), None, "too few rounds");
    assert_eq!(course::first_round(&[]), None);
}
