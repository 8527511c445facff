//! What shares one error, against SciPy and against the definition.

use crate::stats::family::{Size, Test, adjust};
use crate::stats::paired;

use super::{near, normals};

fn whole(p: f64) -> Test {
    Test { p, reach: 1.0, beyond: true }
}

#[test]
fn with_whole_parts_it_is_holms() {
    // Holm 1979: sorted 0.01 * 4, 0.015 * 3, then max(0.045, 0.02 * 2), then 0.04 * 1 raised to 0.045.
    let adjusted = adjust(&[0.02, 0.01, 0.04, 0.015].map(whole));
    for (seen, expected) in adjusted.iter().zip([0.045, 0.04, 0.045, 0.045]) {
        near(*seen, expected, 1e-12);
    }
    assert_eq!(adjust(&[]), Vec::<f64>::new());
    assert_eq!(adjust(&[0.7, 0.9].map(whole)), [1.0, 1.0]);
}

#[test]
fn what_chance_could_hardly_publish_takes_hardly_a_part() {
    let others = [Test { p: 0.4, reach: 0.001, beyond: false }; 20];
    let tests: Vec<Test> = std::iter::once(whole(0.01)).chain(others).collect();
    near(adjust(&tests)[0], 0.03, 1e-12);
    // Its own p-value is the least that it gets.
    near(adjust(&[Test { p: 0.3, reach: 0.0, beyond: false }])[0], 0.3, 1e-12);
}

#[test]
fn what_is_not_published_does_not_leave_the_others_its_part() {
    let small_but_certain = Test { p: 0.001, reach: 1.0, beyond: false };
    near(adjust(&[small_but_certain, whole(0.02)])[1], 0.04, 1e-12);
    near(adjust(&[whole(0.001), whole(0.02)])[1], 0.02, 1e-12);
}

#[test]
fn the_reach_is_the_beta_distributions() {
    // scipy.stats.beta.sf(least**2 / (weights * squares), 0.5, (dimensions - 1) / 2)
    let reach = |blocks: &[Vec<f64>], least| Size::of_differences(blocks).unwrap().reach(least);
    near(reach(&[vec![0.10, 0.14, 0.12, 0.09], vec![0.30, 0.26, 0.33]], 0.05), 0.580_419_027_671, 1e-10);
    near(reach(&[vec![0.02, -0.03, 0.01, 0.04]], 0.02), 0.161_161_847_214, 1e-10);
    near(reach(&[vec![0.06, -0.05, 0.07, 0.02, -0.08]], 0.05), 0.037_239_385_639, 1e-10);
    let sides = [(vec![0.0, 0.02, -0.03], vec![0.01, 0.05, 0.04, -0.02])];
    near(Size::of_sides(&sides).unwrap().reach(0.03), 0.206_121_707_922, 1e-10);
    assert_eq!((reach(&[vec![0.1, -0.1]], 0.2), reach(&[vec![0.1, -0.1]], 0.0)), (0.0, 1.0));
    assert_eq!(reach(&[vec![0.0, 0.0]], 0.05), 0.0, "nothing moved at all");
    assert_eq!((Size::of_differences(&[vec![0.1]]), Size::of_differences(&[vec![0.1, 0.2], vec![]])), (None, None));
    assert_eq!(Size::of_sides(&[(vec![0.1], vec![])]), None);
}

#[test]
fn in_one_block_the_reach_of_the_mean_is_its_p_value() {
    // Both say the same of the same vector: how much of its length lies in the direction of the mean.
    let differences = vec![0.06, -0.05, 0.07, 0.02, -0.08, 0.1];
    let estimate = paired::within_blocks(std::slice::from_ref(&differences)).unwrap();
    near(Size::of_differences(&[differences]).unwrap().reach(estimate.mean), estimate.p_value(), 1e-10);
    near(estimate.p_value(), 0.522_442_982_560, 1e-10);
}

#[test]
fn a_family_raises_a_false_alarm_no_more_often_than_it_says() {
    // Noise of which chance publishes much, little, and hardly anything.
    let mut rng = <rand_chacha::ChaCha8Rng as rand_chacha::rand_core::SeedableRng>::seed_from_u64(20);
    let least = 0.05;
    let alarms = (0..1000)
        .filter(|_| {
            let tests: Vec<Test> = (0..24)
                .map(|test| {
                    let deviation = [0.15, 0.07, 0.03][test % 3];
                    let blocks = [normals(&mut rng, 6).into_iter().map(|z| deviation * z).collect::<Vec<f64>>()];
                    let estimate = paired::within_blocks(&blocks).unwrap();
                    let reach = Size::of_differences(&blocks).unwrap().reach(least);
                    Test { p: estimate.p_value(), reach, beyond: estimate.mean.abs() > least }
                })
                .collect();
            adjust(&tests).iter().zip(&tests).any(|(p, test)| *p < 0.05 && test.beyond)
        })
        .count();
    // Binomial, 1000 at 5 %: 66 or fewer in 99 of 100; and it spends what it has.
    assert!((20..=66).contains(&alarms), "{alarms} of 1000");
}
