//! Many verdicts that share one error.

use super::*;

#[test]
fn many_metrics_share_one_error() {
    // Alone it is a change; among forty that could be one by chance, one would be too often.
    let base = [1e9, 1.01e9, 0.99e9, 1e9];
    let new = [0.85e9, 0.90e9, 0.80e9, 0.87e9];
    let alone = verdict_of(&base, &new, RATE, &Policy::default());
    assert_eq!(alone.verdict, Some(Verdict::Worse), "{}", alone.why);
    let mut made = Made::new(Factor::Engine, &[(Factor::Engine, &["old", "new"])]);
    for cell in 0..40 {
        for round in 0..4_usize {
            for engine in ["old", "new"] {
                let noise = made.noise(0.3);
                let value = match (cell, engine) {
                    (0, "old") => base[round],
                    (0, _) => new[round],
                    _ => 1e9 * noise,
                };
                let levels = [(Factor::Engine, engine), (Factor::Test, &*format!("t{cell:02}"))];
                made.run(round as u32, &levels, &[(RATE, value)]);
            }
        }
    }
    let row = within(&made, &Policy::default()).rows.remove(0);
    assert_eq!(row.verdict, Some(Verdict::Inconclusive), "{}", row.why);
    assert!(row.why.contains("40 verdicts") && row.rounds_needed > Some(4), "{}", row.why);
}

#[test]
fn metrics_that_chance_could_not_move_so_far_do_not_count_against_the_others() {
    let mut made = Made::new(Factor::Engine, &[(Factor::Engine, &["old", "new"])]);
    for cell in 0..40 {
        for (round, new) in [0.85, 0.90, 0.80, 0.87].into_iter().enumerate() {
            for (engine, moved) in [("old", 1.0), ("new", new)] {
                let value = 1e9 * made.noise(0.005) * if cell == 0 { moved } else { 1.0 };
                let levels = [(Factor::Engine, engine), (Factor::Test, &*format!("t{cell:02}"))];
                made.run(round as u32, &levels, &[(RATE, value)]);
            }
        }
    }
    let rows = within(&made, &Policy::default()).rows;
    assert_eq!(rows[0].verdict, Some(Verdict::Worse), "{}", rows[0].why);
    assert!(rows[1..].iter().all(|row| row.verdict == Some(Verdict::NoConsistentChange)));
}

#[test]
fn a_gate_asks_for_what_got_worse_and_a_comparison_for_both() {
    // A one-sided p-value of 0.01: within nine tenths of the error and within half of it, not within one tenth.
    let base = [1e9; 6];
    let new = [0.934e9, 0.96e9, 0.933e9, 0.843e9, 0.965e9, 0.94e9];
    let verdict = |base: &[f64], new: &[f64], policy: &Policy| verdict_of(base, new, RATE, policy).verdict;
    let five = Policy { min_effect: Some(crate::units::Ratio::from_fraction(0.05)), ..Policy::default() };
    let gate = Policy { gate: true, ..five.clone() };
    assert_eq!(verdict(&base, &new, &gate), Some(Verdict::Worse));
    assert_eq!(verdict(&new, &base, &gate), Some(Verdict::Inconclusive));
    assert_eq!(
        (verdict(&base, &new, &five), verdict(&new, &base, &five)),
        (Some(Verdict::Worse), Some(Verdict::Better))
    );
}

#[test]
fn a_false_alarm_is_rare_over_identical_arms() {
    // Many metrics, no change, 4 % noise. docs/statistics.md has the whole grid.
    let mut alarms = 0;
    for seed in 0..100 {
        let mut made = Made::new(Factor::Engine, &[(Factor::Engine, &["old", "new"])]);
        for _ in 0..seed * 11 {
            made.noise(0.04);
        }
        for round in 0..3 {
            for cell in 0..12 {
                for engine in ["old", "new"] {
                    let value = 1e9 * made.noise(0.04);
                    let (test, underlay) = (format!("t{}", cell / 3), format!("u{}", cell % 3));
                    let levels = [
                        (Factor::Engine, engine),
                        (Factor::Test, test.as_str()),
                        (Factor::Underlay, underlay.as_str()),
                    ];
                    made.run(round, &levels, &[(RATE, value)]);
                }
            }
        }
        let called = |row: &Row| matches!(row.verdict, Some(Verdict::Better | Verdict::Worse));
        alarms += usize::from(within(&made, &Policy::gate()).rows.iter().any(called));
    }
    // Binomial, 100 at 5 %: 10 or fewer in 98 of 100.
    assert!(alarms <= 10, "{alarms} of 100");
}

/// Two pairs, three underlays, three rounds; what each underlay does on the new stack is given.
fn underlays(factors: [f64; 3], noise: f64) -> Comparison {
    let names = ["public-ipv4", "public-ipv6", "private"];
    let mut made = Made::new(Factor::Stack, &[(Factor::Stack, &["standard", "ebpf"]), (Factor::Underlay, &names)]);
    for round in 1..=3 {
        for pair in ["a1>a2", "b1>b2"] {
            for (underlay, factor) in names.iter().zip(factors) {
                for (stack, factor) in [("standard", 1.0), ("ebpf", factor)] {
                    let value = 3.3e9 * factor * made.noise(noise);
                    let levels = [(Factor::Pair, pair), (Factor::Stack, stack), (Factor::Underlay, underlay)];
                    made.run(round, &levels, &[(RATE, value)]);
                }
            }
        }
    }
    within(&made, &Policy::default())
}

fn verdicts(comparison: &Comparison) -> Vec<Option<Verdict>> {
    comparison.rows.iter().map(|row| row.verdict).collect()
}

#[test]
fn what_all_underlays_do_is_judged_over_all_of_them() {
    // Three rounds with 12 % noise: no underlay alone could say it.
    let comparison = underlays([0.62, 0.6, 0.64], 0.12);
    assert_eq!(verdicts(&comparison), [Some(Verdict::Worse); 3], "{}", comparison.rows[0].why);
    let together = comparison.rows[0].together.as_ref().unwrap();
    assert_eq!((together.underlays, comparison.judged), (3, 3));
    assert!(
        together.change.high.unwrap() < -0.25
            && comparison.rows[0].change.unwrap().high.unwrap() > together.change.high.unwrap()
    );
    assert!(
        comparison.rows[0].why.contains("4 verdicts, and 6 of 6 pairs on underlays agree"),
        "{}",
        comparison.rows[0].why
    );
    let comparison = underlays([1.0, 1.01, 0.99], 0.03);
    assert_eq!(verdicts(&comparison), [Some(Verdict::NoConsistentChange); 3]);
}

#[test]
fn an_underlay_that_moves_alone_is_judged_alone() {
    let comparison = underlays([1.0, 1.0, 0.6], 0.01);
    let expected = [Verdict::NoConsistentChange, Verdict::NoConsistentChange, Verdict::Worse].map(Some);
    assert_eq!(verdicts(&comparison), expected, "{}", comparison.rows[0].why);
    assert!(comparison.rows.iter().all(|row| row.together.is_none()));
    // Too noisy to be called alone, and yet too far to be hidden in the mean of all three.
    let comparison = underlays([1.0, 1.0, 0.75], 0.06);
    assert_ne!(comparison.rows[2].verdict, Some(Verdict::NoConsistentChange), "{}", comparison.rows[2].why);
    // One up, one down: the mean is still, the underlays are not.
    let comparison = underlays([1.5, 1.0, 0.67], 0.01);
    assert_eq!(verdicts(&comparison), [Some(Verdict::Better), Some(Verdict::NoConsistentChange), Some(Verdict::Worse)]);
}
