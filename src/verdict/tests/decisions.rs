//! One record, one change: the verdict that it gets.

use super::*;
use crate::record::{Check, Status};
use crate::units::Ratio;

#[test]
fn field_series_get_their_verdicts() {
    let scaled = |values: &[f64]| values.iter().map(|value| value * 1e6).collect::<Vec<_>>();
    let row = verdict_of(&scaled(&N1.0), &scaled(&N1.1), RATE, &Policy::gate());
    assert_eq!(row.verdict, Some(Verdict::NoConsistentChange), "{}", row.why);
    let row = verdict_of(&scaled(&N2.0), &scaled(&N2.1), RATE, &Policy::gate());
    assert_eq!(row.verdict, Some(Verdict::Worse), "{}", row.why);
    let change = row.change.unwrap();
    assert!((change.value + 0.066).abs() < 0.001 && change.low.unwrap() < -0.074 && change.high.unwrap() > -0.058);
    let row = verdict_of(&scaled(&N3.0), &scaled(&N3.1), RATE, &Policy::default());
    assert_eq!(row.verdict, Some(Verdict::Inconclusive), "{}", row.why);
    assert!(row.rounds_needed.is_some_and(|rounds| rounds > 100), "{:?}", row.rounds_needed);
}

#[test]
fn less_latency_is_better_and_less_throughput_is_worse() {
    let (high, low) = ([200e3, 202e3, 199e3, 201e3], [150e3, 151e3, 149e3, 150e3]);
    assert_eq!(verdict_of(&high, &low, RR, &Policy::default()).verdict, Some(Verdict::Better));
    assert_eq!(verdict_of(&low, &high, RR, &Policy::default()).verdict, Some(Verdict::Worse));
    let rate = |values: [f64; 4]| values.map(|value| value * 1e4);
    assert_eq!(verdict_of(&rate(high), &rate(low), RATE, &Policy::default()).verdict, Some(Verdict::Worse));
}

#[test]
fn a_change_below_the_minimum_is_not_published_and_the_gate_has_its_own() {
    let base = [1e9, 1.002e9, 0.999e9, 1.001e9, 1.0e9];
    let new = base.map(|value| value * 0.93);
    let row = verdict_of(&base, &new, RATE, &Policy::default());
    assert_eq!((row.verdict, row.rounds_needed), (Some(Verdict::NoConsistentChange), None), "{}", row.why);
    assert!(row.why.contains("less than the minimum of 10 %"), "{}", row.why);
    assert_eq!(verdict_of(&base, &new, RATE, &Policy::gate()).verdict, Some(Verdict::Worse));
    let own = Policy { min_effects: [(RATE.to_owned(), Ratio::from_fraction(0.08))].into(), ..Policy::gate() };
    assert_eq!(verdict_of(&base, &new, RATE, &own).verdict, Some(Verdict::NoConsistentChange));
}

#[test]
fn two_runs_are_too_few() {
    let row = verdict_of(&[1e9, 1e9], &[5e8, 5e8], RATE, &Policy::default());
    assert_eq!((row.verdict, row.rounds_needed), (Some(Verdict::Inconclusive), Some(3)), "{}", row.why);
    let row = verdict_of(&[1e9], &[5e8], RATE, &Policy::default());
    assert_eq!(row.verdict, Some(Verdict::Inconclusive));
    assert!(row.change.unwrap().low.is_none(), "one run has no interval");
}

#[test]
fn a_projection_counts_the_rounds_that_ran_and_not_those_that_can_be_used() {
    assert_eq!(decide::rounds_in_all(19, 15, 20), Some(26));
    assert_eq!(decide::rounds_in_all(3, 2, 2), Some(3));
    assert_eq!(decide::rounds_in_all(10, 9, 20), Some(23));
    assert_eq!(decide::rounds_in_all(5000, 1, 20), None);
    // Of twenty rounds four lack a level.
    let noisy = |of: &[f64]| of.iter().cycle().take(20).map(|value| value * 1e6).collect::<Vec<_>>();
    let mut made = engines(&noisy(&N3.0), &noisy(&N3.1), RATE);
    let all = within(&made, &Policy::default()).rows.remove(0).rounds_needed.unwrap();
    for run in
        made.record.runs.iter_mut().filter(|run| run.round < 17 && run.factors.get(Factor::Engine) == Some("new"))
    {
        run.proof.clear();
    }
    let comparison = within(&made, &Policy::default());
    let row = &comparison.rows[0];
    assert_eq!((comparison.rounds, row.paired), (20, 3));
    assert!(all > 20 && row.rounds_needed.is_none_or(|rounds| rounds > 20), "{all} {:?}", row.rounds_needed);
}

/// Two pairs, each with its own factor on the new stack.
fn two_pairs(factors: [f64; 2], noise: f64) -> Made {
    let mut made = Made::new(
        Factor::Stack,
        &[
            (Factor::Stack, &["standard", "ebpf"]),
            (Factor::Pair, &["a1>a2", "b1>b2"]),
            (Factor::Underlay, &["private"]),
        ],
    );
    for round in 0..5 {
        for (pair, factor) in [("a1>a2", factors[0]), ("b1>b2", factors[1])] {
            for (stack, factor) in [("standard", 1.0), ("ebpf", factor)] {
                let value = 3.3e9 * factor * made.noise(noise);
                let levels = [(Factor::Pair, pair), (Factor::Stack, stack), (Factor::Underlay, "private")];
                made.run(round, &levels, &[(RATE, value)]);
            }
        }
    }
    made
}

#[test]
fn all_of_few_pairs_must_agree() {
    let row = within(&two_pairs([1.23, 1.20], 0.01), &Policy::default()).rows.remove(0);
    assert_eq!((row.verdict, row.agree), (Some(Verdict::Better), 2), "{}", row.why);
    // R1: new connections +23 % on one pair, flat on the other.
    let row = within(&two_pairs([1.23, 1.00], 0.01), &Policy::default()).rows.remove(0);
    assert_eq!((row.verdict, row.agree), (Some(Verdict::NoConsistentChange), 1), "{}", row.why);
    assert!(row.why.contains("1 of 2 pairs moved that way"), "{}", row.why);
    let row = within(&two_pairs([1.3, 0.75], 0.01), &Policy::default()).rows.remove(0);
    assert_eq!(row.verdict, Some(Verdict::NoConsistentChange), "{}", row.why);
}

#[test]
fn each_pair_shows_its_own_medians_and_change() {
    let row = within(&two_pairs([1.39, 1.18], 0.005), &Policy::default()).rows.remove(0);
    let changes: Vec<f64> = row.pairs.iter().map(|pair| pair.change.unwrap().value).collect();
    assert!((changes[0] - 0.39).abs() < 0.02 && (changes[1] - 0.18).abs() < 0.02, "{changes:?}");
    assert_eq!(row.pairs[0].pair, "a1>a2");
    assert_eq!(row.pairs[0].base.unwrap().runs, 5);
}

#[test]
fn over_many_pairs_the_pairs_are_the_sample() {
    let mut made = Made::new(Factor::Stack, &[(Factor::Stack, &["standard", "ebpf"])]);
    for pair in 0..8 {
        let own = 1.2 * made.noise(0.05);
        for round in 0..3 {
            for (stack, factor) in [("standard", 1.0), ("ebpf", own)] {
                let value = 1e9 * factor * made.noise(0.01);
                made.run(round, &[(Factor::Pair, &format!("n{pair}>m")), (Factor::Stack, stack)], &[(RATE, value)]);
            }
        }
    }
    let row = within(&made, &Policy::default()).rows.remove(0);
    assert_eq!((row.verdict, row.agree, row.pairs.len()), (Some(Verdict::Better), 8, 8), "{}", row.why);
    let width = row.change.unwrap().high.unwrap() - row.change.unwrap().low.unwrap();
    assert!(width > 0.04, "the spread of pairs is in the interval: {width}");
}

#[test]
fn an_unproved_run_is_excluded_and_said() {
    let mut made = engines(&[1e9; 4], &[1e9; 4], RATE);
    let run = made.record.runs.iter_mut().find(|run| run.factors.get(Factor::Engine) == Some("new")).unwrap();
    run.metrics.insert(RATE.to_owned(), 9e9);
    run.proof.push(Check {
        check: "outer remote address".to_owned(),
        expected: "198.18.0.6".to_owned(),
        seen: "203.0.113.9".to_owned(),
        holds: false,
    });
    let comparison = within(&made, &Policy::default());
    assert_eq!(comparison.rows[0].new.unwrap().max, 1e9);
    assert_eq!(comparison.rows[0].paired, 3);
    assert_eq!((comparison.unmeasured[0].runs, comparison.unmeasured[0].of), (1, 4));
    assert!(comparison.unmeasured[0].why.contains("expected 198.18.0.6, saw 203.0.113.9"));
}

#[test]
fn a_level_without_a_usable_run_is_invalid_and_never_unchanged() {
    let mut made = engines(&[1e9; 4], &[1e9; 4], RATE);
    for run in made.record.runs.iter_mut().filter(|run| run.factors.get(Factor::Engine) == Some("new")) {
        run.status = Status::Failed;
        run.reason = Some("no handshake within 5 s".to_owned());
        run.metrics.clear();
    }
    let comparison = within(&made, &Policy::default());
    assert_eq!(comparison.rows[0].verdict, Some(Verdict::Invalid));
    assert!(comparison.rows[0].why.contains("no usable run at new: failed: no handshake within 5 s"));
    assert_eq!(gate(&comparison).result.exit_code(), 2);
}

#[test]
fn a_missing_metric_is_invalid_and_never_unchanged() {
    let mut made = engines(&[1e9; 4], &[1e9; 4], RATE);
    for run in made.record.runs.iter_mut().filter(|run| run.factors.get(Factor::Engine) == Some("new")) {
        run.metrics.clear();
    }
    let row = within(&made, &Policy::default()).rows.remove(0);
    assert_eq!((row.verdict, row.new), (Some(Verdict::Invalid), None));
    assert!(row.why.contains("the metric is missing in 4 runs at new"), "{}", row.why);
}

#[test]
fn what_is_near_zero_needs_its_absolute_floor() {
    let judge = |metric: &str| Policy { metrics: Some(vec![metric.to_owned()]), ..Policy::default() };
    let row = verdict_of(&[1e-5; 4], &[3e-5; 4], "loss_ratio", &judge("loss_ratio"));
    assert_eq!(row.verdict, Some(Verdict::NoConsistentChange), "{}", row.why);
    let row = verdict_of(&[4e3, 4.1e3, 3.9e3], &[7e3, 7.2e3, 6.9e3], "jitter_ns", &judge("jitter_ns"));
    assert_eq!(row.verdict, Some(Verdict::NoConsistentChange), "{}", row.why);
    let row = verdict_of(&[0.0; 4], &[0.02, 0.021, 0.019, 0.02], "loss_ratio", &judge("loss_ratio"));
    assert_eq!(row.verdict, Some(Verdict::Worse), "{}", row.why);
    let change = row.change.unwrap();
    assert_eq!(change.scale, Scale::Difference);
    assert!((change.value - 0.02).abs() < 1e-3);
    let row = verdict_of(&[0.0; 4], &[0.0; 4], "loss_ratio", &judge("loss_ratio"));
    assert_eq!(row.verdict, Some(Verdict::NoConsistentChange), "{}", row.why);
    // A tunnel that stalled: a ratio of zero would be undefined.
    let row = verdict_of(&[1e9, 1.01e9, 0.99e9, 1e9], &[0.0; 4], RATE, &judge(RATE));
    assert_eq!((row.verdict, row.change.unwrap().scale), (Some(Verdict::Worse), Scale::Difference), "{}", row.why);
}

#[test]
fn a_change_that_a_few_runs_carry_is_not_called() {
    let mut new = [1.0e9; 12];
    new[3] = 3.1e9;
    new[7] = 2.9e9;
    let base = [1.0e9; 12];
    let row = verdict_of(&base, &new, RATE, &Policy::default());
    assert_ne!(row.verdict, Some(Verdict::Better), "{}", row.why);
}

#[test]
fn what_repeated_visits_differ_by_is_the_least_change() {
    // Both levels swing together from round to round: the paired interval is narrow, the machine is not steady.
    let swing = [1.0, 1.5, 1.0, 1.5, 1.0, 1.5];
    let base = swing.map(|factor| 1e9 * factor);
    let jitter = [1.0, 1.004, 0.996, 1.002, 0.998, 1.0];
    let new: Vec<f64> = base.iter().zip(jitter).map(|(value, jitter)| value * 0.85 * jitter).collect();
    let row = verdict_of(&base, &new, RATE, &Policy::default());
    assert_eq!(row.verdict, Some(Verdict::Inconclusive), "{}", row.why);
    assert!(row.why.starts_with("repeated visits of one level differ by up to"), "{}", row.why);
    assert!(row.floor > Some(0.15) && row.minimum == row.floor.unwrap());
}

#[test]
fn a_fall_beyond_the_noise_floor_is_called_like_the_rise_back() {
    // The levels swing threefold together, and lie five times apart: a floor of +180 % is one of -64 %.
    let swing = [1.0, 3.0, 1.0, 3.0, 1.0, 3.0];
    let jitter = [1.0, 1.004, 0.996, 1.002, 0.998, 1.0];
    let base = swing.map(|factor| 1e9 * factor);
    let fifth: Vec<f64> = base.iter().zip(jitter).map(|(value, jitter)| value * 0.2 * jitter).collect();
    let row = verdict_of(&base, &fifth, RATE, &Policy::default());
    assert_eq!(row.verdict, Some(Verdict::Worse), "{}", row.why);
    assert!(row.minimum < 0.8, "{}", row.minimum);
    let row = verdict_of(&fifth, &base, RATE, &Policy::default());
    assert_eq!(row.verdict, Some(Verdict::Better), "{}", row.why);
}

#[test]
fn a_row_carries_the_command_that_repeats_it() {
    let row = within(&two_pairs([1.2, 1.2], 0.01), &Policy::default()).rows.remove(0);
    assert_eq!(row.command, "wglab run pair --seed 7");
    let mut made = engines(&[1e9; 3], &[1e9; 3], RATE);
    made.record.header.levels.insert(Factor::Engine, ["raw", "old", "new"].map(str::to_owned).to_vec());
    made.record.header.command.push("it's here".to_owned());
    for run in &mut made.record.runs {
        run.factors = run.factors.clone().with(Factor::Underlay, "private");
    }
    let row = within(&made, &Policy::default()).rows.remove(0);
    assert_eq!(row.command, r"wglab run pair --seed 7 'it'\''s here' --only underlay=private --only engine=old,new");
}

#[test]
fn what_binds_is_said_where_most_runs_agree() {
    let mut made = engines(&[1e9; 4], &[1e9; 4], RATE);
    for run in made.record.runs.iter_mut().take(6) {
        run.bottleneck = Some(Bottleneck { is: "receiver cpu".to_owned(), evidence: "CPU 1: 97 %".to_owned() });
    }
    let row = within(&made, &Policy::default()).rows.remove(0);
    assert_eq!(row.base_bound_by.unwrap().evidence, "CPU 1: 97 %");
    for run in &mut made.record.runs {
        let evidence = "its own core is full".to_owned();
        run.bottleneck = Some(Bottleneck { is: "generator".to_owned(), evidence });
    }
    let row = within(&made, &Policy::default()).rows.remove(0);
    assert_eq!(row.verdict, Some(Verdict::Inconclusive), "{}", row.why);
}

#[test]
fn what_the_generator_binds_of_the_raw_underlay_is_no_tunnel() {
    let mut made = two_pairs([1.0, 1.0], 0.001);
    for run in &mut made.record.runs {
        run.factors = run.factors.clone().with(Factor::Engine, "raw");
        run.bottleneck = Some(Bottleneck { is: "generator".to_owned(), evidence: "its own core is full".to_owned() });
    }
    let row = within(&made, &Policy::default()).rows.remove(0);
    assert_eq!(row.verdict, Some(Verdict::Inconclusive));
    assert_eq!(row.why, "the generator binds, so the underlay may do more than it was asked for here");
}

#[test]
fn the_gate_counts_what_got_worse_first() {
    let worse = engines(&[1e9, 1.01e9, 0.99e9], &[5e8, 5.1e8, 4.9e8], RATE);
    assert_eq!(gate(&within(&worse, &Policy::gate())).result.exit_code(), 1);
    let same = engines(&[1e9, 1.01e9, 0.99e9, 1e9], &[1.005e9, 1e9, 1e9, 0.995e9], RATE);
    assert_eq!(gate(&within(&same, &Policy::gate())).result.exit_code(), 0);
    let noisy = engines(&N3.0.map(|value| value * 1e6), &N3.1.map(|value| value * 1e6), RATE);
    assert_eq!(gate(&within(&noisy, &Policy::gate())).result.exit_code(), 3);
    let unjudged = engines(&[1e9; 4], &[5e8; 4], "sent_bits_per_second");
    assert_eq!(gate(&within(&unjudged, &Policy::gate())).result.exit_code(), 2, "nothing is judged");
}

#[test]
fn a_policy_that_names_what_is_not_there_is_refused() {
    let judging = |name: &str| Policy { metrics: Some(vec![name.to_owned()]), ..Policy::default() }.check();
    assert!(judging("throughput").unwrap_err().to_string().contains("not a metric"));
    assert!(judging("rr_p50_n").unwrap_err().to_string().contains("did you mean `rr_p50_ns`?"));
    assert!(judging("sent_bits_per_second").unwrap_err().to_string().contains("cannot be judged"));
    let effect = Policy { min_effect: Some(Ratio::from_fraction(0.0)), ..Policy::default() };
    assert!(effect.check().is_err());
    let right = Policy {
        metrics: Some(vec!["rr_p99_ns".to_owned()]),
        min_effects: [("rr_p99_ns".to_owned(), Ratio::from_fraction(0.15))].into(),
        ..Policy::default()
    };
    assert!(right.check().is_ok() && right.judges("rr_p99_ns") && !right.judges(RATE));
}

#[test]
fn the_topologys_policy_judges_unless_another_is_given() {
    let mut made = engines(&[1e9; 4], &[1e9; 4], "rr_p99_ns");
    for run in &mut made.record.runs {
        let is_new = run.factors.get(Factor::Engine) == Some("new");
        run.metrics.insert("rr_p99_ns".to_owned(), if is_new { 240e3 } else { 200e3 } + f64::from(run.order) * 10.0);
    }
    assert_eq!(within(&made, &Policy::gate()).rows[0].verdict, None, "the table does not judge it");
    let judged = crate::cell::Judged { metrics: Some(vec!["rr_p99_ns".to_owned()]), ..Default::default() };
    made.record.header.policy = Some(judged.clone());
    assert_eq!(within(&made, &Policy::gate()).rows[0].verdict, Some(Verdict::Worse));
    let min_effects = [("rr_p99_ns".to_owned(), Ratio::from_fraction(0.3))].into();
    made.record.header.policy = Some(crate::cell::Judged { min_effects, ..judged });
    assert_eq!(within(&made, &Policy::gate()).rows[0].verdict, Some(Verdict::NoConsistentChange));
    let own = Policy { min_effects: [("rr_p99_ns".to_owned(), Ratio::from_fraction(0.1))].into(), ..Policy::gate() };
    assert_eq!(within(&made, &own).rows[0].verdict, Some(Verdict::Worse));
    let own = Policy { metrics: Some(vec![RATE.to_owned()]), ..Policy::gate() };
    assert_eq!(within(&made, &own).rows[0].verdict, None);
}

#[test]
fn a_command_is_read_back_as_it_was_written() {
    let typed = ["wglab", "run", "it's here.toml", "", "--only", "underlay=private", r"a\b"].map(str::to_owned);
    assert_eq!(words(&shell(&typed)), typed);
}
