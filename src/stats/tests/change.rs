//! A change in a series, against the definition and over made-up series.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::{near, normals};
use crate::stats::change::{Null, best_split, is_gradual, last_apart, places, split, without_extremes};

/// Eight values about 100, then six about 90.
const FELL: [f64; 14] = [101., 99.2, 100.4, 98.9, 100.8, 99.7, 100.2, 100.1, 90.3, 89.1, 90.6, 89.9, 90.2, 89.5];

#[test]
fn the_cut_is_where_the_two_sample_t_is_largest() {
    let best = best_split(&FELL, 0.0).unwrap();
    assert_eq!(best.at, 8);
    // scipy.stats.ttest_ind(FELL[8:], FELL[:8])
    near(best.difference, -10.1041666667, 1e-9);
    near(best.t(), 28.119_998, 1e-6);
    assert_eq!(best.freedom, 12.0);
    assert_eq!(split(&FELL, 1, 0.0), None, "one value is no side");
    assert_eq!(best_split(&FELL[..3], 0.0), None);
    near(split(&[1.0; 6], 3, 0.001).unwrap().error, 0.001 * (2.0_f64 / 3.0).sqrt(), 1e-12);
}

#[test]
fn without_a_change_the_p_value_is_even() {
    let null = Null::of(12, 1).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let p: Vec<f64> = (0..2000).map(|_| null.p_value(best_split(&normals(&mut rng, 12), 0.0).unwrap().t())).collect();
    for (level, least, most) in [(0.05, 75, 125), (0.5, 930, 1070)] {
        let below = p.iter().filter(|p| **p < level).count();
        assert!((least..=most).contains(&below), "{below} of 2000 below {level}");
    }
    near(null.p_value(null.critical(0.05)), 0.05, 0.001);
    // With one cut alone it is Student's.
    near(Null::of(4, 1).unwrap().p_value(4.302_652_73), 0.05, 0.004);
    assert!(null.p_value(40.0) < 1e-10, "far out it is the bound");
}

#[test]
fn the_change_that_can_be_seen_is_seen_as_often_as_it_says() {
    let null = Null::of(20, 1).unwrap();
    let size = null.detectable(1.0, 10, 0.05, 0.8).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let seen = (0..500)
        .filter(|_| {
            let series: Vec<f64> =
                normals(&mut rng, 20).iter().enumerate().map(|(at, z)| z + if at < 10 { 0.0 } else { size }).collect();
            null.p_value(best_split(&series, 0.0).unwrap().t()) < 0.05
        })
        .count();
    // The largest of all cuts is a little more often beyond than the true one.
    assert!((385..=450).contains(&seen), "{seen} of 500, {size}");
    assert_eq!(null.detectable(1.0, 1, 0.05, 0.8), None);
}

#[test]
fn the_place_lies_in_its_range() {
    assert_eq!(places(&FELL, &best_split(&FELL, 0.0).unwrap(), 0.95), (8, 8));
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let (mut inside, mut width) = (0, 0);
    for _ in 0..500 {
        let series: Vec<f64> =
            normals(&mut rng, 20).iter().enumerate().map(|(at, z)| z + if at < 12 { 0.0 } else { 2.0 }).collect();
        let (first, last) = places(&series, &best_split(&series, 0.0).unwrap(), 0.95);
        inside += usize::from((first..=last).contains(&12));
        width += last - first;
    }
    assert!(inside >= 455, "{inside} of 500");
    assert!(width < 500 * 6, "{width}");
}

#[test]
fn a_slope_is_no_step_and_one_value_is_no_change() {
    let slope: Vec<f64> = (0..14).map(|at| 100.0 - f64::from(at) + [0.3, -0.2, 0.1][at as usize % 3]).collect();
    assert!(is_gradual(&slope, &best_split(&slope, 0.0).unwrap()));
    assert!(!is_gradual(&FELL, &best_split(&FELL, 0.0).unwrap()));
    near(without_extremes(&FELL, &best_split(&FELL, 0.0).unwrap()), -9.95, 0.05);
    let mut outlier = [100.0, 100.2, 99.9, 100.1, 99.8, 100.0, 100.2, 99.9, 100.1, 99.9, 80.0, 100.1];
    let best = best_split(&outlier, 0.0).unwrap();
    assert!(without_extremes(&outlier, &best).abs() < 0.5);
    let (apart, p) = last_apart(&outlier[..11], 0.0).unwrap();
    assert!(apart < -19.0 && p < 1e-6);
    outlier[10] = 100.0;
    assert!(last_apart(&outlier, 0.0).unwrap().1 > 0.1);
    assert_eq!(last_apart(&outlier[..3], 0.0), None);
}
