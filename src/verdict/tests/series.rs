//! Records in time: whether something changed, and at which record.

use super::*;
use crate::record::Record;

/// Records at these times (hours after the first one), their throughput scaled; raw at 9.4 Gbit/s beside the tunnel.
fn history(hours: &[f64], tunnel: &[f64], raw: &[f64], noise: f64) -> Vec<(String, Record)> {
    let mut made = Made::new(Factor::Engine, &[(Factor::Engine, &["raw", "embedded"])]);
    let begin: jiff::Timestamp = "2026-11-01T03:00:00Z".parse().unwrap();
    let mut records = Vec::new();
    for (place, hours) in hours.iter().enumerate() {
        made.record.runs.clear();
        let at = begin + jiff::SignedDuration::from_secs((hours * 3600.0) as i64);
        made.record.header.started = at.to_string();
        // What one record has in common, and what each run adds.
        let common = [made.noise(noise), made.noise(noise)];
        for round in 1..=3 {
            for (engine, rate, common) in
                [("raw", 9.4e9 * raw[place], common[0]), ("embedded", 3.2e9 * tunnel[place], common[1])]
            {
                let value = rate * common * made.noise(0.01);
                let levels = [(Factor::Pair, "a1>a2"), (Factor::Engine, engine), (Factor::Test, "tcp-stream")];
                made.run(round, &levels, &[(RATE, value)]);
            }
        }
        records.push((format!("r{:02}", place + 1), made.record.clone()));
    }
    records
}

fn nightly(count: usize) -> Vec<f64> {
    (0..count).map(|night| night as f64 * 24.0).collect()
}

fn of(records: &[(String, Record)], policy: &Policy) -> Result<Series, VerdictError> {
    let sources: Vec<Source<'_>> = records.iter().map(|(name, record)| Source { name, record }).collect();
    series(&sources, policy)
}

fn tunnel_row(series: &Series) -> &SeriesRow {
    series.rows.iter().find(|row| row.cell.get(Factor::Engine) == Some("embedded")).unwrap()
}

#[test]
fn the_record_where_a_change_began_is_named() {
    let tunnel: Vec<f64> = (0..20).map(|night| if night < 13 { 1.0 } else { 0.88 }).collect();
    let mut records = history(&nightly(20), &tunnel, &[1.0; 20], 0.02);
    // However they are given, they are read in the order of time.
    records.reverse();
    let found = of(&records, &Policy::gate()).unwrap();
    assert_eq!((found.sessions, found.unit, found.points[0].record.as_str()), (20, Unit::Session, "r01"));
    let row = tunnel_row(&found);
    assert_eq!(row.verdict, Verdict::Worse, "{}", row.why);
    let [step] = row.steps.as_slice() else { panic!("{:?}", row.steps) };
    assert_eq!((step.before.as_str(), step.record.as_str(), step.gradual), ("r13", "r14", false));
    assert!((step.change.value + 0.12).abs() < 0.02, "{}", step.change.value);
    assert!(step.change.low.unwrap() < -0.12 && step.change.high.unwrap() > -0.12);
    assert!(step.differs.is_empty());
    let raw = found.rows.iter().find(|row| row.cell.get(Factor::Engine) == Some("raw")).unwrap();
    assert_eq!((raw.verdict, raw.steps.len()), (Verdict::NoConsistentChange, 0), "{}", raw.why);
    assert_eq!(series_gate(&found), GateResult::Failed);
}

#[test]
fn no_change_says_how_small_a_one_would_have_been_seen() {
    let found = of(&history(&nightly(20), &[1.0; 20], &[1.0; 20], 0.02), &Policy::gate()).unwrap();
    assert_eq!(series_gate(&found), GateResult::Passed);
    let row = tunnel_row(&found);
    let (middle, end) = (row.visible.unwrap(), row.visible_at_end.unwrap());
    // Twenty values with 2 % noise; never less than what is published.
    assert!((0.05..0.06).contains(&middle) && end > middle && end < 0.12, "{middle} {end}");
}

#[test]
fn a_gate_that_could_see_nothing_does_not_pass() {
    // Six nights that differ by 15 %: only what doubles or halves it would be found.
    let found = of(&history(&nightly(6), &[1.0; 6], &[1.0; 6], 0.15), &Policy::gate()).unwrap();
    let row = tunnel_row(&found);
    assert!(row.steps.is_empty() && row.visible.unwrap() > 0.2, "{:?}", row.visible);
    assert_eq!(row.verdict, Verdict::Inconclusive, "{}", row.why);
    assert!(row.why.contains("would have been found, and 5.0 % is asked for"), "{}", row.why);
    assert_eq!(series_gate(&found), GateResult::Inconclusive);
}

#[test]
fn a_history_without_a_change_is_called_one_rarely() {
    // Sixteen nights, 4 % from night to night, two metrics.
    let alarms = (0..40)
        .filter(|seed| {
            let mut records = history(&nightly(16), &[1.0; 16], &[1.0; 16], 0.0);
            let mut made = Made::new(Factor::Engine, &[]);
            (0..seed * 37).for_each(|_| _ = made.noise(1.0));
            for (_, record) in &mut records {
                let factors = [made.noise(0.04), made.noise(0.04)];
                for run in &mut record.runs {
                    let is_raw = run.factors.get(Factor::Engine) == Some("raw");
                    run.metrics.values_mut().for_each(|value| *value *= factors[usize::from(is_raw)]);
                }
            }
            of(&records, &Policy::gate()).unwrap().rows.iter().any(|row| !row.steps.is_empty())
        })
        .count();
    // Binomial, 40 at 5 %: 5 or fewer in 98 of 100.
    assert!(alarms <= 5, "{alarms} of 40");
}

#[test]
fn retries_in_one_session_are_one_opinion() {
    // Five nights, then four retries within an hour that all say the same.
    let hours = [0.0, 24.0, 48.0, 72.0, 96.0, 120.0, 120.2, 120.4, 120.6];
    let tunnel = [1.0, 1.01, 0.99, 1.0, 1.005, 0.7, 0.71, 0.69, 0.7];
    let records = history(&hours, &tunnel, &[1.0; 9], 0.0);
    let found = of(&records, &Policy::gate()).unwrap();
    assert_eq!(found.sessions, 6);
    let row = tunnel_row(&found);
    assert_eq!((row.verdict, row.steps.len()), (Verdict::Inconclusive, 0), "{}", row.why);
    assert!(row.apart.unwrap() < -0.25 && row.why.contains("one session is no second opinion"), "{}", row.why);
    assert_eq!(series_gate(&found), GateResult::Inconclusive);
    assert!(found.cautions[0].contains("9 records are 6 sessions"), "{:?}", found.cautions);
    // A second session confirms it.
    let mut confirmed = records;
    let mut last = confirmed[8].1.clone();
    last.header.started = "2026-11-07T03:00:00Z".to_owned();
    confirmed.push(("r10".to_owned(), last));
    let found = of(&confirmed, &Policy::gate()).unwrap();
    let row = tunnel_row(&found);
    assert_eq!(row.verdict, Verdict::Worse, "{}", row.why);
    assert_eq!(row.steps[0].record, "r06");
}

#[test]
fn records_of_one_sitting_are_searched_with_a_caution() {
    let hours: Vec<f64> = (0..10).map(|place| f64::from(place) * 0.1).collect();
    let tunnel: Vec<f64> = (0..10).map(|place| if place < 6 { 1.0 } else { 0.8 }).collect();
    let found = of(&history(&hours, &tunnel, &[1.0; 10], 0.01), &Policy::gate()).unwrap();
    assert_eq!((found.sessions, found.unit), (1, Unit::Record));
    assert_eq!(tunnel_row(&found).steps[0].record, "r07");
    assert!(found.cautions[0].contains("one session"), "{:?}", found.cautions);
}

#[test]
fn what_the_raw_underlay_did_at_the_same_record_is_the_environment() {
    let moved: Vec<f64> = (0..14).map(|night| if night < 8 { 1.0 } else { 0.75 }).collect();
    let records = history(&nightly(14), &moved, &moved, 0.003);
    let found = of(&records, &Policy::gate()).unwrap();
    assert!(found.rows.iter().all(|row| row.verdict == Verdict::NoConsistentChange && row.environment));
    assert!(tunnel_row(&found).why.contains("environment: the raw underlay moved by -25 %"));
    // A new kernel is what moved both: that excuses nothing.
    let kernel = Policy { changed: ["kernel".to_owned()].into(), ..Policy::gate() };
    assert_eq!(tunnel_row(&of(&records, &kernel).unwrap()).verdict, Verdict::Worse);
}

#[test]
fn one_bad_night_is_no_change_and_a_slow_decline_is_no_step() {
    let mut outlier = [1.0; 14];
    outlier[9] = 0.6;
    let found = of(&history(&nightly(14), &outlier, &[1.0; 14], 0.01), &Policy::gate()).unwrap();
    assert_eq!((tunnel_row(&found).verdict, tunnel_row(&found).steps.len()), (Verdict::NoConsistentChange, 0));
    let decline: Vec<f64> = (0..14).map(|night| 1.0 - 0.02 * f64::from(night)).collect();
    let found = of(&history(&nightly(14), &decline, &[1.0; 14], 0.005), &Policy::gate()).unwrap();
    let row = tunnel_row(&found);
    assert!(row.steps.len() == 1 && row.steps[0].gradual && row.verdict == Verdict::Worse, "{row:?}");
}

#[test]
fn what_came_back_is_no_regression_and_both_changes_are_named() {
    let tunnel: Vec<f64> = (0..20).map(|night| if (8..16).contains(&night) { 0.7 } else { 1.0 }).collect();
    let found = of(&history(&nightly(20), &tunnel, &[1.0; 20], 0.01), &Policy::gate()).unwrap();
    let row = tunnel_row(&found);
    let began: Vec<&str> = row.steps.iter().map(|step| step.record.as_str()).collect();
    assert_eq!((began.as_slice(), row.verdict), (&["r09", "r17"][..], Verdict::NoConsistentChange), "{}", row.why);
    assert!(row.is_changed() && row.why == "it changed and came back");
}

#[test]
fn too_few_records_say_what_they_need() {
    let short = of(&history(&nightly(3), &[1.0; 3], &[1.0; 3], 0.01), &Policy::default()).unwrap();
    assert_eq!(tunnel_row(&short).verdict, Verdict::Inconclusive);
    assert!(tunnel_row(&short).why.contains("3 sessions cannot show where a change began: 4 or more"));
    let two = of(&history(&nightly(2), &[1.0; 2], &[1.0; 2], 0.01), &Policy::default()).unwrap_err();
    assert_eq!(two.to_string(), "a series needs three records or more, and 2 are given");
    let mut twice = history(&nightly(4), &[1.0; 4], &[1.0; 4], 0.01);
    twice[3].1 = twice[2].1.clone();
    assert!(of(&twice, &Policy::default()).unwrap_err().to_string().contains("is given twice"));
}

#[test]
fn another_machine_in_the_series_is_refused_and_a_named_change_is_a_lead() {
    let tunnel: Vec<f64> = (0..12).map(|night| if night < 7 { 1.0 } else { 1.2 }).collect();
    let mut records = history(&nightly(12), &tunnel, &[1.0; 12], 0.01);
    for (_, record) in &mut records[7..] {
        for facts in record.header.nodes.values_mut() {
            facts["kernel"] = "6.19.0".into();
        }
    }
    let error = of(&records, &Policy::gate()).unwrap_err().to_string();
    assert!(
        error.contains("node a1 kernel (\"6.18.0\" / \"6.19.0\")") && error.contains("--changed kernel"),
        "{error}"
    );
    let kernel = Policy { changed: ["kernel".to_owned()].into(), ..Policy::gate() };
    let found = of(&records, &kernel).unwrap();
    let row = tunnel_row(&found);
    assert_eq!(row.verdict, Verdict::Better);
    assert_eq!(row.steps[0].differs[0].to_string(), "node a1 kernel (\"6.18.0\" / \"6.19.0\")");
}

#[test]
fn a_metric_that_the_newest_records_lack_is_invalid() {
    let mut records = history(&nightly(8), &[1.0; 8], &[1.0; 8], 0.01);
    for (_, record) in &mut records[6..] {
        record.runs.retain(|run| run.factors.get(Factor::Engine) == Some("raw"));
    }
    let found = of(&records, &Policy::gate()).unwrap();
    let row = tunnel_row(&found);
    assert_eq!((row.verdict, row.values[6]), (Verdict::Invalid, None));
    assert!(row.why.contains("missing in the last 2 records, since r07"), "{}", row.why);
    assert_eq!(series_gate(&found), GateResult::Invalid);
}
