//! Several tunnels per pair as a factor, and the raw underlay, which has none.

use super::*;

/// Six rounds of raw, and of an engine over one and two tunnels, Gbit/s; two tunnels carry half as much again.
fn spread(engine: &str) -> Made {
    let mut made = Made::new(
        Factor::Tunnels,
        &[(Factor::Engine, &["raw", engine]), (Factor::Tunnels, &["1", "2"]), (Factor::Test, &["tcp-stream"])],
    );
    for round in 0..6 {
        for (engine, tunnels, rate) in [("raw", None, 9.0), (engine, Some("1"), 3.0), (engine, Some("2"), 4.5)] {
            let mut levels = vec![(Factor::Pair, "a1>a2"), (Factor::Engine, engine), (Factor::Test, "tcp-stream")];
            levels.extend(tunnels.map(|tunnels| (Factor::Tunnels, tunnels)));
            let rate = rate * 1e9 * made.noise(0.01);
            let run = made.run(round, &levels, &[(RATE, rate)]);
            run.conditions.extend(tunnels.map(|tunnels| ("tunnels".to_owned(), tunnels.into())));
        }
    }
    made
}

fn by(made: &Made, by: &str) -> Comparison {
    let source = [Source { name: "run", record: &made.record }];
    compare(&source, Some(&by.parse().unwrap()), &Policy::default()).unwrap()
}

#[test]
fn more_tunnels_are_compared_with_fewer_and_raw_takes_no_part() {
    let comparison = by(&spread("embedded"), "tunnels");
    assert_eq!((comparison.base.as_str(), comparison.new.as_slice()), ("1", &["2".to_owned()][..]));
    let [row] = &comparison.rows[..] else { panic!("one row: {:?}", comparison.rows) };
    assert_eq!(row.verdict, Some(Verdict::Better), "{}", row.why);
    assert_eq!(row.cell.get(Factor::Engine), Some("embedded"));
    assert!((row.change.unwrap().value - 0.5).abs() < 0.05);
    assert_eq!(row.command, "wglab run pair --seed 7 --only engine=embedded");
    // The number of tunnels is what is compared, and no caution.
    assert!(comparison.cautions.is_empty(), "{:?}", comparison.cautions);
}

#[test]
fn raw_stands_beside_each_number_of_tunnels() {
    let made = spread("embedded");
    let comparison = by(&made, "engine");
    assert_eq!(comparison.base, "raw");
    let levels: Vec<_> = comparison.rows.iter().map(|row| row.cell.get(Factor::Tunnels)).collect();
    assert_eq!(levels, [Some("1"), Some("2")]);
    for (row, ratio) in comparison.rows.iter().zip([3.0 / 9.0, 4.5 / 9.0]) {
        assert_eq!(row.paired, 6);
        assert!((row.change.unwrap().value + 1.0 - ratio).abs() < 0.03, "{row:?}");
    }
    assert!(comparison.rows[1].command.ends_with("--only tunnels=2"), "{}", comparison.rows[1].command);
    assert!(comparison.cautions.is_empty(), "{:?}", comparison.cautions);
}

#[test]
fn a_raw_underlay_that_could_not_be_measured_is_missed_at_each_number_of_tunnels() {
    let mut made = spread("embedded");
    for run in made.record.runs.iter_mut().filter(|run| run.factors.get(Factor::Engine) == Some("raw")) {
        run.status = crate::record::Status::Invalid;
        run.reason = Some("no route".to_owned());
    }
    let source = [Source { name: "run", record: &made.record }];
    let asked: By = "engine".parse().unwrap();
    // Only one engine is left with runs; the levels of the header do not count for it.
    let comparison = compare(&source, Some(&asked), &Policy::default());
    let rows = comparison.unwrap().rows;
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.verdict == Some(Verdict::Invalid) && row.why.contains("no route")), "{rows:?}");
}

#[test]
fn an_engine_with_tunnels_in_some_runs_only_is_not_mixed() {
    let mut made = spread("embedded");
    for round in 0..6 {
        let levels = [(Factor::Pair, "a1>a2"), (Factor::Engine, "embedded"), (Factor::Test, "tcp-stream")];
        made.run(round, &levels, &[(RATE, 1e9)]);
    }
    let comparison = by(&made, "engine");
    let ones: Vec<_> = comparison.rows.iter().filter_map(|row| row.new.as_ref()).map(|new| new.median).collect();
    assert_eq!(ones.len(), 1, "raw stands beside the runs that are like its own: {:?}", comparison.rows);
    assert!((ones[0] - 1e9).abs() < 1.0);
}

#[test]
fn raw_that_moved_explains_every_number_of_tunnels() {
    let old = spread("embedded");
    let mut new = spread("embedded");
    for run in &mut new.record.runs {
        run.metrics.values_mut().for_each(|rate| *rate *= 0.75);
    }
    let comparison = between(&old, &new, &Policy::gate()).unwrap();
    assert_eq!(comparison.rows.len(), 3);
    for row in &comparison.rows {
        assert!(row.why.contains("environment: the raw underlay moved by -25 %"), "{:?}: {}", row.cell, row.why);
    }
}
