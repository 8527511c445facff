//! What happens while a record is made, and must not look like a change.

use super::*;
use crate::record::Series as Seconds;

/// Runs in the order given, each at its level, with a factor of its own.
fn in_order(order: &[&str], factor: impl Fn(usize, &mut Made) -> f64) -> Made {
    let mut made = Made::new(Factor::Engine, &[(Factor::Engine, &["old", "new"])]);
    let mut rounds = std::collections::BTreeMap::new();
    for (place, engine) in order.iter().enumerate() {
        let round: &mut u32 = rounds.entry(*engine).or_default();
        *round += 1;
        let value = 2.4e9 * factor(place, &mut made);
        made.run(*round, &[(Factor::Pair, "a1>a2"), (Factor::Engine, engine)], &[(RATE, value)]);
    }
    made
}

fn blocks(count: usize) -> Vec<&'static str> {
    [vec!["old"; count], vec!["new"; count]].concat()
}

fn in_turn(count: usize) -> Vec<&'static str> {
    ["old", "new", "new", "old"].iter().copied().cycle().take(2 * count).collect()
}

#[test]
fn a_drift_is_no_change_in_whatever_order_it_was_measured() {
    // A fifth is lost from the first run to the last, and both levels are the same.
    let drifting = |place: usize, made: &mut Made| 1.0 - 0.2 * place as f64 / 19.0 + made.noise(0.01) - 1.0;
    let row = within(&in_order(&in_turn(10), drifting), &Policy::gate()).rows.remove(0);
    assert!(!matches!(row.verdict, Some(Verdict::Better | Verdict::Worse)), "{}", row.why);
    let comparison = within(&in_order(&blocks(10), drifting), &Policy::gate());
    let row = &comparison.rows[0];
    assert!(!matches!(row.verdict, Some(Verdict::Better | Verdict::Worse)), "{:?} {}", row.change, row.why);
    assert!(row.change.unwrap().value.abs() < 0.03, "{:?}", row.change);
    let caution = "new was measured after old and not in turn with it";
    assert!(comparison.cautions.iter().any(|said| said.starts_with(caution)), "{:?}", comparison.cautions);
}

#[test]
fn a_change_that_was_measured_in_blocks_is_still_found() {
    let halved = |place: usize, made: &mut Made| if place < 8 { 1.0 } else { 0.6 } * made.noise(0.02);
    let row = within(&in_order(&blocks(8), halved), &Policy::gate()).rows.remove(0);
    assert_eq!(row.verdict, Some(Verdict::Worse), "{}", row.why);
    let in_turn = within(&in_order(&in_turn(8), |_, made| made.noise(0.02)), &Policy::gate());
    assert!(!in_turn.cautions.iter().any(|said| said.contains("not in turn")), "{:?}", in_turn.cautions);
}

#[test]
fn seconds_within_a_run_are_no_samples() {
    // Sixty seconds in each run that hang together, and say the same sixty times; three runs on either side.
    let with_seconds = |seconds: usize| {
        let mut made = engines(&[1.0e9, 1.08e9, 0.94e9], &[0.9e9, 1.0e9, 0.95e9], RATE);
        for run in &mut made.record.runs {
            let rate = run.metrics[RATE];
            let course = (0..seconds).map(|second| Some(rate * (1.0 + 0.001 * (second as f64 / 9.0).sin()))).collect();
            run.series
                .insert("received".to_owned(), Seconds { unit: "bits/s".to_owned(), step_ms: 1000, values: course });
        }
        within(&made, &Policy::gate()).rows.remove(0)
    };
    let (without, with) = (with_seconds(0), with_seconds(60));
    assert_eq!(without, with);
    assert_eq!((with.verdict, with.paired), (Some(Verdict::Inconclusive), 3), "{}", with.why);
}

#[test]
fn two_modes_are_said_and_are_no_change() {
    // Each run in one of two modes, whatever its level; the new level happens to be in the lower one more often.
    let lower = [
        false, true, true, false, true, false, true, true, false, true, false, true, true, false, true, false, true,
        true, false, false,
    ];
    let made = in_order(&in_turn(10), |place, made| if lower[place] { 0.8 } else { 1.0 } * made.noise(0.005));
    let comparison = within(&made, &Policy::gate());
    let row = &comparison.rows[0];
    assert!(!matches!(row.verdict, Some(Verdict::Better | Verdict::Worse)), "{}", row.why);
    assert!(comparison.cautions.iter().any(|said| said.contains("has two modes")), "{:?}", comparison.cautions);
}

#[test]
fn a_stale_baseline_is_said() {
    let record = |started: &str, factor: f64| {
        let mut made = in_order(&["old"; 6], |_, made| factor * made.noise(0.01));
        made.record.header.started = started.to_owned();
        made
    };
    let old = record("2026-05-01T00:00:00Z", 0.7);
    let of = |new: &Made| {
        compare(
            &[Source { name: "may", record: &old.record }, Source { name: "now", record: &new.record }],
            None,
            &Policy::gate(),
        )
        .unwrap()
    };
    let months = of(&record("2026-08-22T12:00:00Z", 1.0));
    assert!(
        months.cautions.iter().any(|said| said.starts_with("the baseline is 113 days older")),
        "{:?}",
        months.cautions
    );
    assert!(!of(&record("2026-05-03T00:00:00Z", 1.0)).cautions.iter().any(|said| said.contains("older")));
}

#[test]
fn a_decision_takes_a_minimum_effect_and_an_interval() {
    // 4 % in the same direction every time is certain and small; 30 % once is large and not certain.
    let steady = verdict_of(
        &[1e9; 8],
        &[0.96e9, 0.961e9, 0.959e9, 0.96e9, 0.96e9, 0.962e9, 0.958e9, 0.96e9],
        RATE,
        &Policy::gate(),
    );
    assert_eq!(steady.verdict, Some(Verdict::NoConsistentChange), "{}", steady.why);
    assert!(
        steady.why.contains("steady, but less than the minimum of 5.0 %")
            && steady.change.unwrap().high.unwrap() < -0.03
    );
    let once = verdict_of(&[1e9; 4], &[1e9, 0.5e9, 1.02e9, 0.7e9], RATE, &Policy::gate());
    assert_eq!(once.verdict, Some(Verdict::Inconclusive), "{}", once.why);
}
