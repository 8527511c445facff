//! The first lines: several levels against one baseline, and what the underlay did by itself.

use super::*;

/// Engines with these rates and round trips, one pair, six rounds.
fn engines(figures: &[(&str, f64, f64)], noise: f64) -> Made {
    let names: Vec<&str> = figures.iter().map(|(name, _, _)| *name).collect();
    let mut made = Made::new(Factor::Engine, &[(Factor::Pair, &["a1>a2"]), (Factor::Engine, &names)]);
    for round in 0..6 {
        for (engine, rate, trip) in figures {
            let levels = |test| vec![(Factor::Pair, "a1>a2"), (Factor::Engine, *engine), (Factor::Test, test)];
            let (rate, trip) = (rate * made.noise(noise), trip * made.noise(noise));
            made.run(round, &levels("tcp-stream"), &[(RATE, rate)]);
            made.run(round, &levels("tcp-rr"), &[(RR, trip)]);
        }
    }
    made
}

const FOUR: [(&str, f64, f64); 4] =
    [("go", 2.4e9, 230e3), ("embedded", 3.9e9, 120e3), ("fork", 3.85e9, 122e3), ("slow", 0.5e9, 150e3)];

#[test]
fn many_engines_are_ranked_first_and_then_told_one_by_one() {
    let text = gated(&engines(&FOUR, 0.01), Format::Table);
    insta::assert_snapshot!(text.lines().take(4).collect::<Vec<_>>().join("\n"), @r#"
    Gate failed: of 4 engines, embedded is best in throughput (3.91 Gbit/s, no consistent lead over fork) and slow worst (501 Mbit/s); embedded is best in round trip p50 (121 µs, no consistent lead over fork) and go worst (231 µs); against go: 2 better, 1 better here and worse there (slow).
    embedded is better than go in round trip p50 (tcp-rr): -48 % (95 % interval -48 % to -47 %) and throughput (tcp-stream): +62 % (+59 % to +65 %).
    fork is better than go in round trip p50 (tcp-rr): -47 % (95 % interval -48 % to -47 %) and throughput (tcp-stream): +59 % (+56 % to +61 %).
    slow is worse than go in throughput (tcp-stream): -79 % (95 % interval -80 % to -79 %); better in round trip p50 (tcp-rr): -36 % (95 % interval -36 % to -35 %).
    "#);
    let text = gated(&engines(&FOUR, 0.01), Format::Markdown);
    assert_eq!(text.lines().filter(|line| line.starts_with("* ")).count(), 3, "{text}");
}

#[test]
fn a_failed_gate_of_many_engines_annotates_each_engine_that_fails() {
    insta::assert_snapshot!(gated(&engines(&FOUR, 0.01), Format::Github), @r#"
    ::error title=wglab::Gate failed: of 4 engines, embedded is best in throughput (3.91 Gbit/s, no consistent lead over fork) and slow worst (501 Mbit/s); embedded is best in round trip p50 (121 µs, no consistent lead over fork) and go worst (231 µs); against go: 2 better, 1 better here and worse there (slow).
    ::error title=slow against go::slow is worse than go in throughput (tcp-stream): -79 %25 (95 %25 interval -80 %25 to -79 %25); better in round trip p50 (tcp-rr): -36 %25 (95 %25 interval -36 %25 to -35 %25). Repeat: wglab run pair --seed 7 --only engine=go,slow
    "#);
}

#[test]
fn a_suite_of_many_engines_ends_with_what_its_cases_come_to() {
    let text = gated(&engines(&FOUR, 0.01), Format::Junit);
    let end = &text[text.rfind("  <system-out>Gate failed: of 4 engines, embedded is best").unwrap()..];
    assert_eq!(end.lines().count(), 6, "{end}");
    assert!(end.contains("slow is worse than go") && end.ends_with("</system-out>\n</testsuite>\n"), "{end}");
    assert_eq!(text.matches("<testcase").count(), 6);
}

#[test]
fn what_noise_orders_is_no_ranking() {
    let same = [("one", 3e9, 100e3), ("two", 3e9, 100e3), ("three", 3e9, 100e3)];
    insta::assert_snapshot!(first_line(&gated(&engines(&same, 0.2), Format::Table)), @"Gate inconclusive: of 3 engines, none leads in throughput (two 3.11 Gbit/s to three 2.72 Gbit/s); none leads in round trip p50 (three 89.6 µs to two 100 µs); against one: 2 not decided.");
}

#[test]
fn an_engine_that_never_started_is_not_ranked_and_counted_as_not_measured() {
    let mut made = engines(&FOUR, 0.01);
    for run in made.record.runs.iter_mut().filter(|run| run.factors.get(Factor::Engine) == Some("slow")) {
        run.status = Status::Failed;
        run.reason = Some("no handshake within 5 s".to_owned());
        run.metrics.clear();
    }
    let text = gated(&made, Format::Table);
    assert!(first_line(&text).contains("2 better, 1 not measured (slow)"), "{text}");
    assert_eq!(first_line(&text).matches("slow").count(), 1, "{text}");
    assert!(text.lines().nth(3).unwrap().contains("no usable run at slow: failed: no handshake within 5 s"), "{text}");
}

#[test]
fn every_line_of_several_levels_opens_as_a_sentence() {
    let same = [("one", 3e9, 100e3), ("two", 3e9, 100e3), ("three", 3e9, 100e3)];
    let made = engines(&same, 0.2);
    let sources = sources(&made);
    let comparison = compare(&sources, None, &Policy::default()).unwrap();
    let lines = level_lines(&Report::new(&sources, Some(&comparison)));
    assert!(lines.iter().all(|line| line.starts_with("Inconclusive between one and t")), "{lines:?}");
}

#[test]
fn an_underlay_that_moved_by_itself_is_in_the_answer() {
    let record = |raw: f64, tunnel: f64| {
        let mut made = Made::new(Factor::Engine, &[(Factor::Engine, &["raw", "embedded"])]);
        for round in 0..6 {
            for (engine, rate) in [("raw", 9.4e9 * raw), ("embedded", 3.2e9 * tunnel)] {
                let levels = [(Factor::Pair, "a1>a2"), (Factor::Engine, engine), (Factor::Test, "tcp-stream")];
                let rate = rate * made.noise(0.01);
                made.run(round, &levels, &[(RATE, rate)]);
            }
        }
        made
    };
    let first = |tunnel: f64| {
        let (old, new) = (record(1.0, 1.0), record(0.69, tunnel));
        let sources = [Source { name: "old", record: &old.record }, Source { name: "new", record: &new.record }];
        let comparison = compare(&sources, None, &Policy::gate()).unwrap();
        let report = Report { gate: true, ..Report::new(&sources, Some(&comparison)) };
        first_line(&render(&report, Format::Table)).to_owned()
    };
    insta::assert_snapshot!(first(0.7), @"Gate passed: the raw underlay itself moved between old and new: throughput (raw underlay, tcp-stream): -31 % (95 % interval -32 % to -30 %); no consistent change in throughput (embedded tunnel, tcp-stream): -30 % (95 % interval -31 % to -29 %), which moved as the raw underlay did.");
    insta::assert_snapshot!(first(1.0), @"Gate passed: the raw underlay itself moved between old and new: throughput (raw underlay, tcp-stream): -31 % (95 % interval -32 % to -30 %); no consistent change in throughput (embedded tunnel, tcp-stream): +0.0 % (95 % interval -1.2 % to +1.2 %); one of 10 % or more would have shown.");
}
