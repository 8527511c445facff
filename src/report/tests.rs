//! Reports as they are read.

mod formats;
mod hostile;
mod levels;
mod picks;
mod series;
mod tunnels;

use super::*;
use crate::cell::Factor;
use crate::record::fixture::Made;
use crate::record::{Bottleneck, Status};
use crate::verdict::{Policy, compare};

const RATE: &str = "throughput_bits_per_second";
const RR: &str = "rr_p50_ns";

/// R1 in small: two pairs, two underlays, raw and embedded, two stacks, three rounds.
fn two_stacks() -> Made {
    let mut made = Made::new(
        Factor::Stack,
        &[
            (Factor::Pair, &["a1>a2", "b1>b2"]),
            (Factor::Underlay, &["public-ipv4", "private"]),
            (Factor::Engine, &["raw", "embedded"]),
            (Factor::Stack, &["standard", "ebpf"]),
            (Factor::Test, &["tcp-stream", "tcp-rr"]),
            (Factor::Streams, &["4"]),
            (Factor::Direction, &["forward"]),
        ],
    );
    made.record.header.command = ["wglab", "run", "two-stacks", "--seed", "7"].map(str::to_owned).to_vec();
    for round in 0..3 {
        for (pair, host) in [("a1>a2", 1.0), ("b1>b2", 1.15)] {
            for underlay in ["public-ipv4", "private"] {
                for engine in ["raw", "embedded"] {
                    for stack in ["standard", "ebpf"] {
                        let (rate, trip) = match (engine, stack) {
                            ("raw", "standard") => (17.2e9, 125e3),
                            ("raw", _) => (9.57e9, 117e3),
                            (_, "standard") => (3.36e9, 230e3),
                            (_, _) => (4.3e9, 231e3),
                        };
                        let levels = |test| {
                            vec![
                                (Factor::Pair, pair),
                                (Factor::Underlay, underlay),
                                (Factor::Engine, engine),
                                (Factor::Stack, stack),
                                (Factor::Test, test),
                            ]
                        };
                        let noise = made.noise(0.01);
                        let mut stream = levels("tcp-stream");
                        stream.push((Factor::Streams, "4"));
                        stream.push((Factor::Direction, "forward"));
                        let run = made.run(round, &stream, &[(RATE, rate * host * noise)]);
                        if stack == "ebpf" && engine == "raw" {
                            let evidence = "CPU 1 of a2: 97 % softirq".to_owned();
                            run.bottleneck = Some(Bottleneck { is: "receiver cpu".to_owned(), evidence });
                        }
                        let noise = made.noise(0.01);
                        made.run(
                            round,
                            &levels("tcp-rr"),
                            &[(RR, trip * host * noise), ("rr_p99_ns", trip * 1.6 * noise)],
                        );
                    }
                }
            }
        }
    }
    made
}

fn sources(made: &Made) -> [Source<'_>; 1] {
    [Source { name: "runs/2026-08-22", record: &made.record }]
}

#[test]
fn the_table_opens_with_the_answer_and_reads_as_the_reference_does() {
    let made = two_stacks();
    let sources = sources(&made);
    let comparison = compare(&sources, None, &Policy::default()).unwrap();
    insta::assert_snapshot!(render(&Report::new(&sources, Some(&comparison)), Format::Table), @r#"
    ebpf is worse than standard in throughput (raw underlay, tcp-stream, 4 streams): -44 % (95 % interval -45 % to -44 %); better in throughput (embedded tunnel, tcp-stream, 4 streams): +28 % (95 % interval +27 % to +29 %); no consistent change in 2 of 4 metrics.
    96 runs in 3 rounds; one machine, namespaces: mechanisms, not a provider's figures; started 2026-08-22T12:00:00Z

    metric                                                      standard              ebpf  change (95 % interval)     over pairs        verdict
    raw underlay, tcp-stream, 4 streams: throughput     17.2-19.9 Gbit/s  9.55-11.1 Gbit/s  -44 % (-45 % to -44 %)     -45 % to -44 %    worse
    embedded tunnel, tcp-stream, 4 streams: throughput  3.34-3.85 Gbit/s   4.3-4.94 Gbit/s  +28 % (+27 % to +29 %)     +27 % to +29 %    better
    raw underlay, tcp-rr: round trip p50                      125-144 µs        117-135 µs  -6.6 % (-7.3 % to -5.8 %)  -7.5 % to -5.6 %  no consistent change
    raw underlay, tcp-rr: round trip p99                      198-202 µs        186-189 µs  -6.6 % (-7.3 % to -5.8 %)  -7.5 % to -5.6 %  not judged
    embedded tunnel, tcp-rr: round trip p50                   229-265 µs        229-265 µs  +0.1 % (-1.0 % to +1.3 %)  -0.7 % to +1.5 %  no consistent change
    embedded tunnel, tcp-rr: round trip p99                   362-369 µs        366-369 µs  +0.1 % (-1.0 % to +1.3 %)  -0.7 % to +1.5 %  not judged

    What binds:
      not explained at standard, receiver cpu (CPU 1 of a2: 97 % softirq) at ebpf: raw underlay, tcp-stream, 4 streams

    Record: runs/2026-08-22
    Repeat: wglab run two-stacks --seed 7
    Repeat: wglab run two-stacks --seed 7 --only engine=raw --only test=tcp-stream
    Repeat: wglab run two-stacks --seed 7 --only engine=embedded --only test=tcp-stream
    "#);
}

#[test]
fn the_detail_shows_every_pair_and_underlay_beside_the_raw_one() {
    let made = two_stacks();
    let sources = sources(&made);
    let comparison = compare(&sources, None, &Policy::default()).unwrap();
    let report = Report { detail: true, ..Report::new(&sources, Some(&comparison)) };
    let text = render(&report, Format::Table);
    let from = text.find("\nthroughput").unwrap();
    let to = text.find("round trip p99, tcp-rr").unwrap();
    insta::assert_snapshot!(&text[from..to], @r#"
    throughput, tcp-stream, 4 streams
                       standard raw  standard embedded  of raw     ebpf raw  ebpf embedded  of raw
    a1>a2 private       17.2 Gbit/s        3.37 Gbit/s    0.20  9.55 Gbit/s    4.31 Gbit/s    0.45
    a1>a2 public-ipv4   17.2 Gbit/s        3.34 Gbit/s    0.19  9.57 Gbit/s     4.3 Gbit/s    0.45
    b1>b2 private       19.5 Gbit/s        3.85 Gbit/s    0.20  11.1 Gbit/s    4.94 Gbit/s    0.45
    b1>b2 public-ipv4   19.9 Gbit/s        3.85 Gbit/s    0.19    11 Gbit/s    4.94 Gbit/s    0.45

    round trip p50, tcp-rr
                       standard raw  standard embedded  of raw  ebpf raw  ebpf embedded  of raw
    a1>a2 private            126 µs             230 µs    1.82    118 µs         230 µs    1.95
    a1>a2 public-ipv4        125 µs             229 µs    1.83    117 µs         229 µs    1.96
    b1>b2 private            143 µs             265 µs    1.86    135 µs         265 µs    1.95
    b1>b2 public-ipv4        144 µs             260 µs    1.81    134 µs         264 µs    1.97
    "#);
    let rows = &text[text.find("Every row:").unwrap()..];
    insta::assert_snapshot!(rows.lines().take(14).collect::<Vec<_>>().join("\n"), @r#"
    Every row:
      raw underlay, tcp-stream, 4 streams, over public-ipv4: throughput, ebpf: worse
          -45 % (-46 % to -44 %) over 6 paired runs, p 8.48e-8, adjusted 6.17e-7; minimum 10 %, noise floor 1.2 %; 2 of 2 pairs agree
          a1>a2: 17.2 Gbit/s (17.2-17.4 Gbit/s) -> 9.57 Gbit/s (9.55-9.61 Gbit/s), -44 % (-46 % to -43 %)
          b1>b2: 19.9 Gbit/s (19.7-20.1 Gbit/s) -> 11 Gbit/s (10.9-11.1 Gbit/s), -45 % (-48 % to -42 %)
          2 underlays together, -44 % (-45 % to -44 %): more than the minimum of 10 %, beyond chance among 12 verdicts, and 4 of 4 pairs on underlays agree
          wglab run two-stacks --seed 7 --only underlay=public-ipv4 --only engine=raw --only test=tcp-stream
      raw underlay, tcp-stream, 4 streams, over private: throughput, ebpf: worse
          -44 % (-45 % to -43 %) over 6 paired runs, p 2.70e-7, adjusted 1.57e-6; minimum 10 %, noise floor 1.5 %; 2 of 2 pairs agree
          a1>a2: 17.2 Gbit/s (16.9-17.7 Gbit/s) -> 9.55 Gbit/s (9.48-9.64 Gbit/s), -45 % (-48 % to -40 %)
          b1>b2: 19.5 Gbit/s (19.5-19.8 Gbit/s) -> 11.1 Gbit/s (11-11.1 Gbit/s), -44 % (-45 % to -43 %)
          2 underlays together, -44 % (-45 % to -44 %): more than the minimum of 10 %, beyond chance among 12 verdicts, and 4 of 4 pairs on underlays agree
          wglab run two-stacks --seed 7 --only underlay=private --only engine=raw --only test=tcp-stream
      embedded tunnel, tcp-stream, 4 streams, over public-ipv4: throughput, ebpf: better
    "#);
}

#[test]
fn markdown_is_the_same_table_for_a_pull_request() {
    let made = two_stacks();
    let sources = sources(&made);
    let comparison = compare(&sources, None, &Policy::default()).unwrap();
    insta::assert_snapshot!(render(&Report::new(&sources, Some(&comparison)), Format::Markdown), @r#"
    **ebpf is worse than standard in throughput (raw underlay, tcp-stream, 4 streams): -44 % (95 % interval -45 % to -44 %); better in throughput (embedded tunnel, tcp-stream, 4 streams): +28 % (95 % interval +27 % to +29 %); no consistent change in 2 of 4 metrics.**

    96 runs in 3 rounds; one machine, namespaces: mechanisms, not a provider's figures; started 2026-08-22T12:00:00Z

    | metric | standard | ebpf | change (95 % interval) | over pairs | verdict |
    |---|---|---|---|---|---|
    | raw underlay, tcp-stream, 4 streams: throughput | 17.2-19.9 Gbit/s | 9.55-11.1 Gbit/s | -44 % (-45 % to -44 %) | -45 % to -44 % | worse |
    | embedded tunnel, tcp-stream, 4 streams: throughput | 3.34-3.85 Gbit/s | 4.3-4.94 Gbit/s | +28 % (+27 % to +29 %) | +27 % to +29 % | better |
    | raw underlay, tcp-rr: round trip p50 | 125-144 µs | 117-135 µs | -6.6 % (-7.3 % to -5.8 %) | -7.5 % to -5.6 % | no consistent change |
    | raw underlay, tcp-rr: round trip p99 | 198-202 µs | 186-189 µs | -6.6 % (-7.3 % to -5.8 %) | -7.5 % to -5.6 % | not judged |
    | embedded tunnel, tcp-rr: round trip p50 | 229-265 µs | 229-265 µs | +0.1 % (-1.0 % to +1.3 %) | -0.7 % to +1.5 % | no consistent change |
    | embedded tunnel, tcp-rr: round trip p99 | 362-369 µs | 366-369 µs | +0.1 % (-1.0 % to +1.3 %) | -0.7 % to +1.5 % | not judged |

    What binds:

    * not explained at standard, receiver cpu (CPU 1 of a2: 97 % softirq) at ebpf: raw underlay, tcp-stream, 4 streams

    Repeat it:

        wglab run two-stacks --seed 7
        wglab run two-stacks --seed 7 --only engine=raw --only test=tcp-stream
        wglab run two-stacks --seed 7 --only engine=embedded --only test=tcp-stream
    "#);
}

/// Two engines, one pair; what the new one does is given.
fn upgrade(factor: f64, noise: f64, rounds: u32) -> Made {
    let mut made = Made::new(Factor::Engine, &[(Factor::Engine, &["old", "new"])]);
    for round in 0..rounds {
        for (engine, factor) in [("old", 1.0), ("new", factor)] {
            let rate = 2.4e9 * factor * made.noise(noise);
            let levels = [
                (Factor::Pair, "a1>a2"),
                (Factor::Engine, engine),
                (Factor::Test, "tcp-stream"),
                (Factor::Streams, "1"),
            ];
            made.run(round, &levels, &[(RATE, rate)]);
        }
    }
    made
}

fn gated(made: &Made, format: Format) -> String {
    let sources = sources(made);
    let comparison = compare(&sources, None, &Policy::gate()).unwrap();
    render(&Report { gate: true, ..Report::new(&sources, Some(&comparison)) }, format)
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap()
}

#[test]
fn the_answer_says_what_a_stranger_should_do() {
    insta::assert_snapshot!(first_line(&gated(&upgrade(0.9, 0.01, 6), Format::Table)), @"Gate failed: new is worse than old in throughput (tcp-stream, 1 stream): -9.9 % (95 % interval -11 % to -8.9 %).");
    insta::assert_snapshot!(first_line(&gated(&upgrade(1.3, 0.01, 6), Format::Table)), @"Gate passed: new is better than old in throughput (tcp-stream, 1 stream): +30 % (95 % interval +29 % to +32 %).");
    insta::assert_snapshot!(first_line(&gated(&upgrade(1.0, 0.01, 6), Format::Table)), @"Gate passed: no consistent change between old and new in throughput (tcp-stream, 1 stream): +0.1 % (95 % interval -1.1 % to +1.2 %); one of 5.0 % or more would have shown.");
    insta::assert_snapshot!(first_line(&gated(&upgrade(1.0, 0.2, 4), Format::Table)), @"Gate inconclusive between old and new in throughput (tcp-stream, 1 stream): -2.1 % (95 % interval -21 % to +21 %): 4 rounds did not decide, about 72 would.");
    insta::assert_snapshot!(first_line(&gated(&upgrade(0.5, 0.0, 1), Format::Table)), @"Gate inconclusive between old and new in throughput (tcp-stream, 1 stream): -50 %: 1 round did not decide, about 3 would.");
    let mut broken = upgrade(1.0, 0.01, 4);
    for run in broken.record.runs.iter_mut().filter(|run| run.factors.get(Factor::Engine) == Some("new")) {
        run.status = Status::Failed;
        run.reason = Some("no handshake within 5 s".to_owned());
    }
    insta::assert_snapshot!(first_line(&gated(&broken, Format::Table)), @"Gate invalid: no verdict between old and new in throughput (tcp-stream, 1 stream): no usable run at new: failed: no handshake within 5 s.");
}

#[test]
fn what_was_not_measured_is_in_the_first_line_with_its_cause() {
    let mut made = two_stacks();
    made.record.header.compare = None;
    made.record.runs.retain(|run| run.factors.get(Factor::Stack) == Some("standard"));
    made.record.runs.retain(|run| run.factors.get(Factor::Test) == Some("tcp-stream"));
    let why = "wg0 on node a1: engine ./mine for wg0 ended (exit status: 3); its last lines:\n    (it wrote nothing)";
    for run in made.record.runs.iter_mut().filter(|run| run.factors.get(Factor::Engine) == Some("embedded")) {
        run.status = Status::Invalid;
        run.reason = Some(why.to_owned());
        run.metrics.clear();
    }
    let first = |made: &Made| {
        let sources = sources(made);
        first_line(&render(&Report::new(&sources, None), Format::Table)).to_owned()
    };
    insta::assert_snapshot!(first(&made), @"The raw underlay: 17.2-19.9 Gbit/s (tcp-stream, 4 streams). Not measured: 12 of 24 runs (4 cells of engine embedded): wg0 on node a1: engine ./mine for wg0 ended (exit status: 3); its last lines: (it wrote nothing).");
    // A cell of its own, and a second reason.
    made.record.runs.retain(|run| run.factors.get(Factor::Pair) == Some("a1>a2"));
    made.record.runs.retain(|run| run.factors.get(Factor::Underlay) == Some("private"));
    made.record.runs.last_mut().unwrap().reason = Some("no handshake within 8 s".to_owned());
    insta::assert_snapshot!(first(&made), @"The raw underlay: 17.2 Gbit/s (tcp-stream, 4 streams). Not measured: 3 of 6 runs (embedded tunnel, tcp-stream, 4 streams): wg0 on node a1: engine ./mine for wg0 ended (exit status: 3); its last lines: (it wrote nothing); 1 more for other reasons.");
    // A figure without any proof is none.
    for run in &mut made.record.runs {
        run.status = Status::Ok;
        run.proof.clear();
    }
    insta::assert_snapshot!(first(&made), @"Nothing could be measured: 6 of 6 runs: the path is not proved: the record holds no proof of this run.");
}

#[test]
fn without_a_comparison_the_tunnel_stands_beside_the_raw_underlay() {
    let mut made = two_stacks();
    made.record.header.compare = None;
    made.record.runs.retain(|run| run.factors.get(Factor::Stack) == Some("standard"));
    let sources = sources(&made);
    insta::assert_snapshot!(first_line(&render(&Report::new(&sources, None), Format::Table)), @"The embedded tunnel: 3.34-3.85 Gbit/s (tcp-stream, 4 streams), 19 % to 20 % of the raw underlay's 17.2-19.9 Gbit/s; round trip p50 229-265 µs against 125-144 µs.");
    let mut raw = made.record.clone();
    raw.runs.retain(|run| run.factors.get(Factor::Engine) == Some("raw"));
    let only_raw = [Source { name: "raw", record: &raw }];
    insta::assert_snapshot!(first_line(&render(&Report::new(&only_raw, None), Format::Table)), @"The raw underlay: 17.2-19.9 Gbit/s (tcp-stream, 4 streams); round trip p50 125-144 µs.");
    raw.runs.iter_mut().for_each(|run| {
        run.status = Status::Skipped;
        run.reason = Some("/dev/net/tun cannot be opened: run as root, or chmod 0666 it".to_owned());
    });
    let nothing = [Source { name: "raw", record: &raw }];
    insta::assert_snapshot!(first_line(&render(&Report::new(&nothing, None), Format::Table)), @"Nothing could be measured: 24 of 24 runs: /dev/net/tun cannot be opened: run as root, or chmod 0666 it.");
    raw.runs.clear();
    let empty = [Source { name: "raw", record: &raw }];
    insta::assert_snapshot!(first_line(&render(&Report::new(&empty, None), Format::Table)), @"Nothing was measured: the record holds only its header, and no run.");
}

#[test]
fn raw_against_a_tunnel_is_a_ratio_and_no_verdict() {
    let mut made = two_stacks();
    made.record.header.compare = Some(Factor::Engine);
    made.record.runs.retain(|run| run.factors.get(Factor::Stack) == Some("standard"));
    let sources = sources(&made);
    let comparison = compare(&sources, None, &Policy::default()).unwrap();
    let text = render(&Report::new(&sources, Some(&comparison)), Format::Table);
    insta::assert_snapshot!(text, @r#"
    The embedded tunnel: 3.34-3.85 Gbit/s (tcp-stream, 4 streams), 19 % to 20 % of the raw underlay's 17.2-19.9 Gbit/s; round trip p50 229-265 µs against 125-144 µs.
    48 runs in 3 rounds; one machine, namespaces: mechanisms, not a provider's figures; started 2026-08-22T12:00:00Z

    metric                                          raw          embedded  against raw (95 % interval)  over pairs
    tcp-stream, 4 streams: throughput  17.2-19.9 Gbit/s  3.34-3.85 Gbit/s  -80 % (-81 % to -80 %)       -81 % to -80 %
    tcp-rr: round trip p50                   125-144 µs        229-265 µs  +83 % (+81 % to +85 %)       +82 % to +84 %
    tcp-rr: round trip p99                   198-202 µs        362-369 µs  +83 % (+81 % to +85 %)       +82 % to +84 %

    Record: runs/2026-08-22
    Repeat: wglab run two-stacks --seed 7
    "#);
}

#[test]
fn a_narrow_terminal_breaks_cells_and_a_wide_one_does_not() {
    let made = two_stacks();
    let sources = sources(&made);
    let comparison = compare(&sources, None, &Policy::default()).unwrap();
    let table = |width: Option<usize>| {
        let report = Report { width, ..Report::new(&sources, Some(&comparison)) };
        let text = render(&report, Format::Table);
        let (from, to) = (text.find("\nmetric").unwrap(), text.find("\n\nWhat binds").unwrap());
        text[from..to].to_owned()
    };
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
    let whole = table(None);
    assert_eq!(table(Some(widest(&whole))), whole);
    for width in [60, 80, 100] {
        let narrow = table(Some(width));
        assert!(widest(&narrow) <= width, "{width}:\n{narrow}");
        let words = |text: &str| {
            let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            words.sort_unstable();
            words
        };
        if width >= 80 {
            assert_eq!(words(&narrow), words(&whole), "no word is cut:\n{narrow}");
        }
    }
}

#[test]
fn what_is_bound_by_one_thing_here_and_by_another_there_says_where() {
    let mut made = two_stacks();
    for run in made.record.runs.iter_mut().filter(|run| run.bottleneck.is_some()) {
        if run.factors.get(Factor::Underlay) == Some("private") {
            run.bottleneck = Some(Bottleneck { is: "sender cpu".to_owned(), evidence: "CPU 0 of a1".to_owned() });
        }
    }
    let sources = sources(&made);
    let comparison = compare(&sources, None, &Policy::default()).unwrap();
    let text = render(&Report::new(&sources, Some(&comparison)), Format::Table);
    let bound: Vec<&str> = text.lines().filter(|line| line.contains(" cpu (")).collect();
    assert_eq!(bound.len(), 2, "{text}");
    assert!(
        bound.iter().any(|line| line.contains("receiver cpu") && line.ends_with("(over public-ipv4)")),
        "{bound:?}"
    );
    assert!(bound.iter().any(|line| line.contains("sender cpu") && line.ends_with("(over private)")), "{bound:?}");
}

#[test]
fn what_never_started_is_not_measured_and_not_unexplained() {
    let mut made = upgrade(1.0, 0.01, 4);
    for run in &mut made.record.runs {
        if run.factors.get(Factor::Engine) == Some("new") {
            run.status = Status::Failed;
            run.reason = Some("no handshake within 5 s".to_owned());
            run.metrics.clear();
        } else {
            run.bottleneck = Some(Bottleneck { is: "CPU".to_owned(), evidence: "2.0 of 2".to_owned() });
        }
    }
    let text = gated(&made, Format::Table);
    assert!(text.contains("  CPU (2.0 of 2) at old, not measured at new: tcp-stream, 1 stream\n"), "{text}");
}

#[test]
fn underlays_judged_one_by_one_are_bound_once() {
    let mut made = two_stacks();
    for run in &mut made.record.runs {
        run.bottleneck = Some(Bottleneck { is: "CPU".to_owned(), evidence: "2.0 of 2".to_owned() });
        if run.factors.get(Factor::Underlay) == Some("private") && run.factors.get(Factor::Stack) == Some("ebpf") {
            run.metrics.values_mut().for_each(|value| *value *= 0.5);
        }
    }
    let sources = sources(&made);
    let comparison = compare(&sources, None, &Policy::default()).unwrap();
    let text = render(&Report::new(&sources, Some(&comparison)), Format::Table);
    assert!(text.contains("embedded tunnel, tcp-rr, over private: round trip p50"), "judged one by one: {text}");
    let bound = text.lines().find(|line| line.starts_with("  CPU (2.0 of 2): ")).unwrap();
    assert_eq!(bound.matches("raw underlay, tcp-rr").count(), 1, "{bound}");
    assert!(!bound.contains("over"), "{bound}");
}

/// So many noisy cells of one comparison, of which none is decided.
fn undecided_cells(cells: u32) -> Made {
    let mut made = Made::new(Factor::Engine, &[(Factor::Engine, &["old", "new"])]);
    for round in 0..3 {
        for streams in 1..=cells {
            for engine in ["old", "new"] {
                let rate = 1e9 * made.noise(0.3);
                let streams = streams.to_string();
                let levels = [(Factor::Engine, engine), (Factor::Test, "tcp-stream"), (Factor::Streams, &streams)];
                made.run(round, &levels, &[(RATE, rate)]);
            }
        }
    }
    made
}

#[test]
fn what_is_not_decided_stands_a_line_each_and_a_dozen_at_most() {
    let text = gated(&undecided_cells(20), Format::Table);
    assert!(first_line(&text).contains("in all 20 metrics"), "{text}");
    let from = text.find("Not decided:\n").unwrap();
    let items: Vec<&str> = text[from..].lines().skip(1).take_while(|line| line.starts_with("  ")).collect();
    assert_eq!(items.len(), 13, "{items:?}");
    assert!(items.iter().all(|item| item.chars().count() < 160), "{items:?}");
    assert_eq!(items[12], "  and 8 more, whose verdicts stand in the table");
}

#[test]
fn many_lines_are_repeated_by_one_command_and_a_word_where_the_others_are() {
    let mut made = undecided_cells(6);
    for run in &mut made.record.runs {
        let rate = if run.factors.get(Factor::Engine) == Some("new") { 9e9 } else { 1e9 };
        run.metrics.insert(RATE.to_owned(), rate + f64::from(run.order) * 1e5);
    }
    let text = gated(&made, Format::Table);
    let repeats: Vec<&str> = text.lines().filter(|line| line.starts_with("Repeat: ")).collect();
    insta::assert_snapshot!(repeats.join("\n"), @r#"
    Repeat: wglab run pair --seed 7
    Repeat: one of 6 lines: --detail, csv and json have the command of each
    "#);
}

#[test]
fn what_would_decide_says_what_it_costs() {
    let made = upgrade(1.0, 0.2, 4);
    let sources = sources(&made);
    let comparison = compare(&sources, None, &Policy::gate()).unwrap();
    let cost: Cost = |line| {
        assert!(line.starts_with("wglab run pair --seed 7 --rounds "), "{line}");
        Some(Span::new(std::time::Duration::from_secs(754)))
    };
    let report = Report { gate: true, cost: Some(cost), ..Report::new(&sources, Some(&comparison)) };
    for format in [Format::Table, Format::Markdown] {
        let text = render(&report, format);
        assert!(text.lines().any(|line| line.ends_with("  # about 12 min 34 s")), "{text}");
    }
}
