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
          -45 % (-46 % to -44 %) over 6 paired runs, p 8.48e-8, after Holm 7.63e-7; minimum 10 %, noise floor 1.2 %; 2 of 2 pairs agree
          a1>a2: 17.2 Gbit/s (17.2-17.4 Gbit/s) -> 9.57 Gbit/s (9.55-9.61 Gbit/s), -44 % (-46 % to -43 %)
          b1>b2: 19.9 Gbit/s (19.7-20.1 Gbit/s) -> 11 Gbit/s (10.9-11.1 Gbit/s), -45 % (-48 % to -42 %)
          2 underlays together, -44 % (-45 % to -44 %): more than the minimum of 10 %, beyond chance over 12 verdicts, and 4 of 4 pairs on underlays agree
          wglab run two-stacks --seed 7 --only underlay=public-ipv4 --only engine=raw --only test=tcp-stream
      raw underlay, tcp-stream, 4 streams, over private: throughput, ebpf: worse
          -44 % (-45 % to -43 %) over 6 paired runs, p 2.70e-7, after Holm 2.16e-6; minimum 10 %, noise floor 1.5 %; 2 of 2 pairs agree
          a1>a2: 17.2 Gbit/s (16.9-17.7 Gbit/s) -> 9.55 Gbit/s (9.48-9.64 Gbit/s), -45 % (-48 % to -40 %)
          b1>b2: 19.5 Gbit/s (19.5-19.8 Gbit/s) -> 11.1 Gbit/s (11-11.1 Gbit/s), -44 % (-45 % to -43 %)
          2 underlays together, -44 % (-45 % to -44 %): more than the minimum of 10 %, beyond chance over 12 verdicts, and 4 of 4 pairs on underlays agree
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
    insta::assert_snapshot!(first_line(&gated(&upgrade(1.0, 0.2, 4), Format::Table)), @"Gate inconclusive between old and new in throughput (tcp-stream, 1 stream): -2.1 % (95 % interval -21 % to +21 %): 4 rounds did not decide, about 31 would.");
    insta::assert_snapshot!(first_line(&gated(&upgrade(0.5, 0.0, 1), Format::Table)), @"Gate inconclusive between old and new in throughput (tcp-stream, 1 stream): -50 %: 1 round did not decide, about 3 would.");
    let mut broken = upgrade(1.0, 0.01, 4);
    for run in broken.record.runs.iter_mut().filter(|run| run.factors.get(Factor::Engine) == Some("new")) {
        run.status = Status::Failed;
        run.reason = Some("no handshake within 5 s".to_owned());
    }
    insta::assert_snapshot!(first_line(&gated(&broken, Format::Table)), @"Gate invalid: no verdict between old and new in throughput (tcp-stream, 1 stream): no usable run at new: failed: no handshake within 5 s.");
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
    insta::assert_snapshot!(first_line(&render(&Report::new(&empty, None), Format::Table)), @"Nothing was measured: the record holds no run.");
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
fn csv_is_one_line_for_each_row() {
    let made = upgrade(0.9, 0.01, 3);
    insta::assert_snapshot!(gated(&made, Format::Csv).replace("\r\n", "\n"), @r#"
    pair,underlay,engine,stack,settings,direction,test,streams,rate,payload,congestion-control,metric,compared,base,new,base_median,new_median,scale,change,low,high,p,p_adjusted,minimum,paired_runs,pairs,pairs_agree,verdict,why,command
    ,,,,,,tcp-stream,1,,,,throughput_bits_per_second,engine,old,new,2395202074.6501245,2165581941.8182387,ratio,-0.10077742029326008,-0.11858513484829983,-0.08260992658062784,0.001909788545736933,0.001909788545736933,0.05,3,1,1,worse,"more than the minimum of 5.0 %, beyond chance over 1 verdict",wglab run pair --seed 7 --only test=tcp-stream --only streams=1
    "#);
    let sources = sources(&made);
    insta::assert_snapshot!(render(&Report::new(&sources, None), Format::Csv).replace("\r\n", "\n"), @r#"
    record,pair,underlay,engine,stack,settings,direction,test,streams,rate,payload,congestion-control,metric,median,min,max,runs
    runs/2026-08-22,a1>a2,,new,,,,tcp-stream,1,,,,throughput_bits_per_second,2165581941.8182387,2138154563.059512,2173835662.8999467,3
    runs/2026-08-22,a1>a2,,old,,,,tcp-stream,1,,,,throughput_bits_per_second,2395202074.6501245,2386866976.8045163,2421410610.0684986,3
    "#);
}

#[test]
fn json_carries_cells_and_the_comparison() {
    let made = upgrade(0.9, 0.01, 3);
    insta::assert_snapshot!(gated(&made, Format::Json), @r#"
    {
      "format": "wglab-summary",
      "version": 1,
      "answer": "Gate failed: new is worse than old in throughput (tcp-stream, 1 stream): -10 % (95 % interval -12 % to -8.3 %).",
      "gate": "failed",
      "records": [
        {
          "name": "runs/2026-08-22",
          "wglab": "0.1.0",
          "started": "2026-08-22T12:00:00Z",
          "class": "one machine, namespaces",
          "command": [
            "wglab",
            "run",
            "pair",
            "--seed",
            "7"
          ],
          "seed": 7,
          "plan_hash": "5b6c",
          "complete": true,
          "cells": [
            {
              "factors": {
                "pair": "a1>a2",
                "engine": "new",
                "test": "tcp-stream",
                "streams": "1"
              },
              "metrics": {
                "throughput_bits_per_second": {
                  "median": 2165581941.8182387,
                  "min": 2138154563.059512,
                  "max": 2173835662.8999467,
                  "runs": 3
                }
              },
              "runs": 3,
              "excluded": 0
            },
            {
              "factors": {
                "pair": "a1>a2",
                "engine": "old",
                "test": "tcp-stream",
                "streams": "1"
              },
              "metrics": {
                "throughput_bits_per_second": {
                  "median": 2395202074.6501245,
                  "min": 2386866976.8045163,
                  "max": 2421410610.0684986,
                  "runs": 3
                }
              },
              "runs": 3,
              "excluded": 0
            }
          ]
        }
      ],
      "comparison": {
        "by": "engine",
        "base": "old",
        "new": [
          "new"
        ],
        "rows": [
          {
            "metric": "throughput_bits_per_second",
            "cell": {
              "test": "tcp-stream",
              "streams": "1"
            },
            "level": "new",
            "base": {
              "median": 2395202074.6501245,
              "min": 2386866976.8045163,
              "max": 2421410610.0684986,
              "runs": 3
            },
            "new": {
              "median": 2165581941.8182387,
              "min": 2138154563.059512,
              "max": 2173835662.8999467,
              "runs": 3
            },
            "change": {
              "scale": "ratio",
              "value": -0.10077742029326008,
              "low": -0.11858513484829983,
              "high": -0.08260992658062784,
              "p": 0.001909788545736933,
              "p_adjusted": 0.001909788545736933
            },
            "pairs": [
              {
                "pair": "a1>a2",
                "base": {
                  "median": 2395202074.6501245,
                  "min": 2386866976.8045163,
                  "max": 2421410610.0684986,
                  "runs": 3
                },
                "new": {
                  "median": 2165581941.8182387,
                  "min": 2138154563.059512,
                  "max": 2173835662.8999467,
                  "runs": 3
                },
                "change": {
                  "scale": "ratio",
                  "value": -0.10077742029326008,
                  "low": -0.11858513484829983,
                  "high": -0.08260992658062784,
                  "p": 0.001909788545736933
                }
              }
            ],
            "agree": 1,
            "paired": 3,
            "minimum": 0.05,
            "floor": 0.02041212473750431,
            "judged": true,
            "verdict": "worse",
            "why": "more than the minimum of 5.0 %, beyond chance over 1 verdict",
            "command": "wglab run pair --seed 7 --only test=tcp-stream --only streams=1"
          }
        ],
        "unmeasured": [],
        "cautions": [],
        "records": [
          "runs/2026-08-22"
        ],
        "classes": [
          "one machine, namespaces"
        ],
        "pairs": 1,
        "rounds": 3,
        "min_effect": 0.05,
        "judged": 1
      }
    }
    "#);
}

#[test]
fn junit_has_a_case_for_each_verdict() {
    insta::assert_snapshot!(gated(&upgrade(0.9, 0.01, 6), Format::Junit), @r#"
    <?xml version="1.0" encoding="UTF-8"?>
    <testsuite name="wglab" tests="1" failures="1" errors="0" skipped="0">
      <testcase classname="wglab.new" name="tcp-stream, 1 stream: throughput">
        <failure message="-9.9 % (-11 % to -8.9 %): more than the minimum of 5.0 %, beyond chance over 1 verdict">wglab run pair --seed 7 --only test=tcp-stream --only streams=1</failure>
      </testcase>
    </testsuite>
    "#);
    insta::assert_snapshot!(gated(&upgrade(1.0, 0.2, 4), Format::Junit), @r#"
    <?xml version="1.0" encoding="UTF-8"?>
    <testsuite name="wglab" tests="1" failures="0" errors="0" skipped="1">
      <testcase classname="wglab.new" name="tcp-stream, 1 stream: throughput">
        <skipped message="-2.1 % (-21 % to +21 %): the interval is wider than the change of 5.0 % that was asked for; about 31 rounds would decide"/>
      </testcase>
    </testsuite>
    "#);
    let made = upgrade(1.0, 0.01, 3);
    let sources = sources(&made);
    let text = render(&Report::new(&sources, None), Format::Junit);
    assert!(text.contains("errors=\"1\""), "a suite without a case must not pass: {text}");
}

#[test]
fn github_annotates_what_wants_attention() {
    insta::assert_snapshot!(gated(&upgrade(0.9, 0.01, 6), Format::Github), @r#"
    ::error title=wglab::Gate failed: new is worse than old in throughput (tcp-stream, 1 stream): -9.9 %25 (95 %25 interval -11 %25 to -8.9 %25).
    ::error title=tcp-stream%2C 1 stream%3A throughput::worse, -9.9 %25 (-11 %25 to -8.9 %25): more than the minimum of 5.0 %25, beyond chance over 1 verdict. Repeat: wglab run pair --seed 7 --only test=tcp-stream --only streams=1
    "#);
}

/// Names as an attacker would choose them.
const HOSTILE: &str = "\u{1b}[2J=cmd|'/c calc'!A1<script>alert(1)</script>`|\u{202e}\"";

fn hostile() -> Made {
    let mut made = upgrade(0.9, 0.01, 6);
    for run in &mut made.record.runs {
        let engine = run.factors.get(Factor::Engine).unwrap().replace("new", HOSTILE);
        run.factors = run.factors.clone().with(Factor::Engine, engine).with(Factor::Test, HOSTILE);
        run.bottleneck = Some(Bottleneck { is: HOSTILE.to_owned(), evidence: HOSTILE.to_owned() });
        run.cautions = vec![crate::record::Caution { kind: HOSTILE.to_owned(), text: HOSTILE.to_owned() }];
    }
    let mut failed = made.record.runs[0].clone();
    failed.status = Status::Failed;
    failed.reason = Some(HOSTILE.to_owned());
    failed.order = 1000;
    made.record.runs.push(failed);
    made.record.header.levels.insert(Factor::Engine, vec!["old".to_owned(), HOSTILE.to_owned()]);
    made.record.header.command.push(HOSTILE.to_owned());
    made
}

#[test]
fn hostile_names_are_harmless_in_every_format() {
    let made = hostile();
    let sources = [Source { name: HOSTILE, record: &made.record }];
    let comparison = compare(&sources, None, &Policy::gate()).unwrap();
    for detail in [false, true] {
        for comparison in [None, Some(&comparison)] {
            let report = Report { gate: true, detail, ..Report::new(&sources, comparison) };
            for format in Format::ALL {
                let text = render(&report, format);
                let breaks = |c: char| c == '\n' || (c == '\r' && format == Format::Csv);
                let bad = text.chars().find(|c| (c.is_control() && !breaks(*c)) || *c == '\u{202e}');
                assert_eq!(bad.filter(|c| format != Format::Json || c.is_control()), None, "{format}: {text}");
                match format {
                    Format::Markdown => {
                        let prose = text.lines().filter(|line| !line.starts_with("    "));
                        assert!(prose.clone().all(|line| !line.contains("<script")), "{text}");
                        let tables: Vec<&str> = prose.filter(|line| line.starts_with("| ")).collect();
                        let bars = |line: &str| line.replace("\\|", "").matches('|').count();
                        assert!(tables.chunk_by(|a, b| bars(a) == bars(b)).count() <= 3, "{text}");
                    }
                    Format::Html => {
                        assert!(!text.contains("<script") && !text.contains("onerror"), "{text}");
                        assert_eq!(text.matches("<svg").count(), text.matches("</svg>").count());
                        assert!(!text.contains("NaN") && !text.contains("inf\""), "{text}");
                    }
                    Format::Junit => assert!(!text.contains("<script") && !text.contains("=\"\""), "{text}"),
                    Format::Csv => {
                        for field in text.split([',', '\n']).filter(|field| field.contains("cmd")) {
                            assert!(!field.trim_start_matches('"').starts_with(['=', '+', '@']), "{field}");
                        }
                    }
                    Format::Github => assert!(text.lines().all(|line| line.starts_with("::")), "{text}"),
                    Format::Table | Format::Json => {}
                }
            }
        }
    }
}

#[test]
fn escapes_keep_what_is_harmless() {
    assert_eq!(escape::plain("public-ipv4 µ a1>a2"), "public-ipv4 µ a1>a2");
    assert_eq!(escape::plain("a\u{1b}b\u{200b}"), "a\\u{1b}b\\u{200b}");
    assert_eq!(escape::markdown("a1>a2 | *b* <i> 5 %"), "a1>a2 \\| \\*b\\* &lt;i> 5 %");
    assert_eq!(escape::csv("a,b"), "\"a,b\"");
    assert_eq!(escape::csv("-3+1"), "\"'-3+1\"");
    assert_eq!(escape::csv("say \"x\""), "\"say \"\"x\"\"\"");
    assert_eq!(escape::csv("public-ipv4"), "public-ipv4");
    assert_eq!(escape::xml("<a href='x'>&"), "&lt;a href=&#39;x&#39;&gt;&amp;");
    assert_eq!(escape::workflow_message("50 %\nx"), "50 %25\\u{a}x");
    assert_eq!(escape::workflow_property("a: b, c"), "a%3A b%2C c");
}

#[test]
fn numbers_read_as_people_write_them() {
    use crate::verdict::Scale;
    assert_eq!(text::range(RATE, 3.06e9, 3.95e9), "3.06-3.95 Gbit/s");
    assert_eq!(text::range(RATE, 950e6, 1.2e9), "950 Mbit/s - 1.2 Gbit/s");
    assert_eq!(text::range(RATE, 1e9, 1e9), "1 Gbit/s");
    assert_eq!(text::range("crr_per_second", 14_260.0, 15_001.0), "14,260-15,001/s");
    assert_eq!(text::ratio(0.184), "+18 %");
    assert_eq!(text::ratio(-0.0663), "-6.6 %");
    assert_eq!(text::ratio(0.0996), "+10 %");
    assert_eq!(text::ratio(19.0), "20 x");
    assert_eq!(text::ratio(3.2), "4.2 x");
    assert_eq!(text::change("loss_ratio", Scale::Difference, 0.02), "+2 points");
    assert_eq!(text::change(RATE, Scale::Difference, -1e9), "-1 Gbit/s");
    assert_eq!(text::listed(&["a".to_owned(), "b".to_owned(), "c".to_owned()]), "a, b and c");
}

#[test]
fn formats_are_named() {
    for format in Format::ALL {
        assert_eq!(format.name().parse(), Ok(format));
    }
    assert!("markdwn".parse::<Format>().unwrap_err().to_string().contains("did you mean `markdown`?"));
}

/// Three underlays in both directions, with what a pick needs.
fn mesh(rates: [f64; 3], noise: f64, udp: bool) -> Made {
    let underlays = ["public-ipv4", "public-ipv6", "private"];
    let mut made = Made::new(
        Factor::Underlay,
        &[(Factor::Pair, &["fra>hel"]), (Factor::Underlay, &underlays), (Factor::Engine, &["raw", "embedded"])],
    );
    made.record.header.command = ["wglab", "run", "fleet.toml", "--profile", "quick"].map(str::to_owned).to_vec();
    for round in 0..5 {
        for (underlay, rate) in underlays.iter().zip(rates) {
            let levels = |test, direction| {
                vec![
                    (Factor::Pair, "fra>hel"),
                    (Factor::Underlay, *underlay),
                    (Factor::Engine, "embedded"),
                    (Factor::Test, test),
                    (Factor::Direction, direction),
                ]
            };
            for (direction, factor) in [("forward", 1.0), ("reverse", 0.9)] {
                for (streams, share) in [("1", 0.5), ("4", 1.0)] {
                    let mut stream = levels("tcp-stream", direction);
                    stream.push((Factor::Streams, streams));
                    let noise = made.noise(noise);
                    made.run(round, &stream, &[(RATE, rate * factor * share * noise), ("probe_p99_ns", 900e3)]);
                }
                if udp {
                    for (offered, loss) in [("1Gbit/s", 0.0), ("5Gbit/s", 0.3)] {
                        let mut datagrams = levels("udp-stream", direction);
                        datagrams.push((Factor::Rate, offered));
                        let got = if offered == "1Gbit/s" { 1e9 } else { 3.5e9 };
                        made.run(round, &datagrams, &[(RATE, got), ("loss_ratio", loss)]);
                    }
                }
            }
        }
    }
    made
}

fn picked(made: &Made, need: Option<&str>) -> crate::verdict::Picks {
    let options = crate::verdict::PickOptions { need: need.map(|need| need.parse().unwrap()), ..Default::default() };
    crate::verdict::pick(&Source { name: "run", record: &made.record }, &options, &Policy::default())
}

#[test]
fn a_pick_names_the_underlay_and_what_it_safely_carries() {
    let picks = picked(&mesh([2e9, 2.02e9, 3e9], 0.01, true), Some("1Gbit/s"));
    insta::assert_snapshot!(pick_table(&picks), @r#"
    Use private for fra>hel, embedded tunnel: 2.69 Gbit/s in the weaker direction (reverse, 4 streams), +47 % against public-ipv6; safe are 1.89 Gbit/s over TCP and 600 Mbit/s over UDP; 1 Gbit/s fits with 4 streams or more.

    fra>hel, embedded tunnel
    underlay        rank  weaker          rate     safe TCP    safe UDP  p99 under load  loss  MTU
    private            1  reverse  2.69 Gbit/s  1.89 Gbit/s  600 Mbit/s          900 µs  0 %   1420
    public-ipv4  2 (tie)  reverse  1.79 Gbit/s  1.25 Gbit/s  600 Mbit/s          900 µs  0 %   1420
    public-ipv6  2 (tie)  reverse  1.81 Gbit/s  1.27 Gbit/s  600 Mbit/s          900 µs  0 %   1420
      public-ipv4 against public-ipv6: -1.6 % (-5.4 % to +2.3 %), no difference worth choosing for
      public-ipv4 against private: -33 % (-35 % to -32 %), decided
      public-ipv6 against private: -32 % (-34 % to -30 %), decided
    "#);
    assert_eq!(picks.picks[0].tiers[0][0].underlay, "private");
}

#[test]
fn an_undecided_order_is_a_tie() {
    let picks = picked(&mesh([2e9, 2.3e9, 2.4e9], 0.2, true), Some("3Gbit/s"));
    insta::assert_snapshot!(pick_table(&picks), @r#"
    public-ipv4, public-ipv6 and private are a tie for fra>hel, embedded tunnel: about 125 rounds would break it; 1.59 Gbit/s in the weaker direction (reverse, 4 streams); safe are 1.11 Gbit/s over TCP and 600 Mbit/s over UDP; 3 Gbit/s does not fit safely.

    fra>hel, embedded tunnel
    underlay        rank  weaker          rate     safe TCP    safe UDP  p99 under load  loss  MTU
    public-ipv4  1 (tie)  reverse  1.59 Gbit/s  1.11 Gbit/s  600 Mbit/s          900 µs  0 %   1420
    public-ipv6  1 (tie)  forward  1.88 Gbit/s  1.31 Gbit/s  600 Mbit/s          900 µs  0 %   1420
    private      1 (tie)  reverse  2.05 Gbit/s  1.44 Gbit/s  600 Mbit/s          900 µs  0 %   1420
      public-ipv4 against public-ipv6: -12 % (-55 % to +71 %), undecided, about 125 rounds would decide
      public-ipv4 against private: -15 % (-48 % to +39 %), undecided, about 68 rounds would decide
      public-ipv6 against private: -2.9 % (-26 % to +28 %), undecided, about 24 rounds would decide

    Next: wglab run fleet.toml --profile quick --only engine=embedded --only underlay=public-ipv4,public-ipv6,private --rounds 125
    "#);
    let order: Vec<&str> = picks.picks[0].tiers[0].iter().map(|candidate| candidate.underlay.as_str()).collect();
    assert_eq!(order, ["public-ipv4", "public-ipv6", "private"], "a tie keeps the topology's order");
}

#[test]
fn a_pick_without_what_it_needs_says_which_run_supplies_it() {
    let mut made = mesh([2e9, 2e9, 3e9], 0.01, false);
    made.record.runs.retain(|run| run.factors.get(Factor::Direction) == Some("forward"));
    let picks = picked(&made, None);
    insta::assert_snapshot!(pick_table(&picks), @r#"
    No pick for fra>hel, embedded tunnel yet: the record lacks loss and the direction opposite to forward.

    fra>hel, embedded tunnel
    underlay        rank  weaker      rate  safe TCP  safe UDP  p99 under load  loss     MTU
    public-ipv4  1 (tie)  missing  missing   missing   missing          900 µs  missing  1420
    public-ipv6  1 (tie)  missing  missing   missing   missing          900 µs  missing  1420
    private      1 (tie)  missing  missing   missing   missing          900 µs  missing  1420

    Next: wglab run fleet.toml --only engine=embedded --profile standard
    "#);
}

#[test]
fn a_lossy_underlay_is_not_picked() {
    let mut made = mesh([2e9, 2e9, 3e9], 0.01, true);
    for run in made.record.runs.iter_mut().filter(|run| run.factors.get(Factor::Underlay) == Some("private")) {
        if let Some(loss) = run.metrics.get_mut("loss_ratio") {
            *loss += 0.02;
        }
    }
    let picks = picked(&made, None);
    assert_eq!(picks.picks[0].unfit[0].0.underlay, "private");
    assert_eq!(picks.picks[0].unfit[0].1, "it loses 2.0 %");
    let read: serde_json::Value = serde_json::from_str(&pick_json(&picks)).unwrap();
    assert_eq!(read["picks"][0]["unfit"][0][0]["underlay"], "private");
}

#[test]
fn the_page_needs_nothing_else() {
    let made = two_stacks();
    let sources = sources(&made);
    let comparison = compare(&sources, None, &Policy::default()).unwrap();
    let page = render(&Report::new(&sources, Some(&comparison)), Format::Html);
    assert!(page.contains("<h1>ebpf is worse than standard in throughput"));
    assert_eq!(page.matches("<svg").count(), 6, "one drawing for each line of the key table");
    for outside in ["http:", "https:", "src=", "url(", "@import", "<link", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
    let row = page.lines().find(|line| line.contains("embedded tunnel, tcp-stream, 4 streams: throughput")).unwrap();
    insta::assert_snapshot!(row, @r#"<tr class="better"><td>embedded tunnel, tcp-stream, 4 streams: throughput</td><td>3.34-3.85 Gbit/s</td><td>4.3-4.94 Gbit/s</td><td>+28 % (+27 % to +29 %)</td><td>+27 % to +29 %</td><td>better</td><td><svg width="220" height="20" role="img"><title>+28 % (+27 % to +29 %)</title><rect x="91.4" y="0" width="35.4" height="20" fill="var(--faint)"/><line x1="110.0" x2="110.0" y1="0" y2="20" stroke="currentColor" stroke-opacity=".4"/><line x1="152.1" x2="155.4" y1="10" y2="10" stroke="currentColor" stroke-width="2"/><line x1="155.4" x2="155.4" y1="4" y2="16" stroke="currentColor"/><line x1="153.9" x2="153.9" y1="4" y2="16" stroke="currentColor"/><line x1="152.3" x2="152.3" y1="4" y2="16" stroke="currentColor"/><line x1="153.3" x2="153.3" y1="4" y2="16" stroke="currentColor"/><circle cx="153.7" cy="10" r="4" fill="currentColor"/></svg></td></tr>"#);
}
