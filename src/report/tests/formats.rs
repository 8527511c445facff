//! Each format by what its reader needs.

use super::*;

#[test]
fn csv_is_one_line_for_each_row() {
    let made = upgrade(0.9, 0.01, 3);
    insta::assert_snapshot!(gated(&made, Format::Csv).replace("\r\n", "\n"), @r#"
    pair,underlay,engine,tunnels,stack,settings,direction,test,streams,rate,payload,congestion-control,metric,compared,base,new,base_median,new_median,scale,change,low,high,p,p_adjusted,minimum,paired_runs,pairs,pairs_agree,together_underlays,together_change,together_minimum,verdict,why,command
    ,,,,,,,tcp-stream,1,,,,throughput_bits_per_second,engine,old,new,2395202074.6501245,2165581941.8182387,ratio,-0.10077742029326008,-0.11858513484829983,-0.08260992658062784,0.001909788545736933,0.001909788545736933,0.05,3,1,1,,,,worse,"more than the minimum of 5.0 %, and beyond chance",wglab run pair --seed 7 --only test=tcp-stream --only streams=1
    "#);
    let sources = sources(&made);
    insta::assert_snapshot!(render(&Report::new(&sources, None), Format::Csv).replace("\r\n", "\n"), @r#"
    record,pair,underlay,engine,tunnels,stack,settings,direction,test,streams,rate,payload,congestion-control,metric,median,min,max,runs
    runs/2026-08-22,a1>a2,,new,,,,,tcp-stream,1,,,,throughput_bits_per_second,2165581941.8182387,2138154563.059512,2173835662.8999467,3
    runs/2026-08-22,a1>a2,,old,,,,,tcp-stream,1,,,,throughput_bits_per_second,2395202074.6501245,2386866976.8045163,2421410610.0684986,3
    "#);
}

#[test]
fn csv_names_the_minimum_of_what_is_judged_together_beside_the_rows_own() {
    let made = two_stacks();
    let sources = sources(&made);
    let comparison = compare(&sources, None, &Policy::default()).unwrap();
    let text = render(&Report::new(&sources, Some(&comparison)), Format::Csv);
    let head: Vec<&str> = text.lines().next().unwrap().split(',').collect();
    let at = |name: &str| head.iter().position(|column| *column == name).unwrap();
    let row = text.lines().find(|line| line.contains("private,raw") && line.contains(RATE)).unwrap();
    let together = comparison.rows.iter().find_map(|row| row.together.as_ref()).unwrap();
    let fields: Vec<&str> = row.split(',').collect();
    assert_eq!(fields[at("together_underlays")], "2");
    assert_eq!(fields[at("together_change")], together.change.value.to_string());
    assert_eq!(fields[at("together_minimum")], together.minimum.to_string());
    assert_eq!(fields[at("verdict")], "worse");
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
            "floor": 0.020003804583128827,
            "judged": true,
            "verdict": "worse",
            "why": "more than the minimum of 5.0 %, and beyond chance",
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
        <failure message="-9.9 % (-11 % to -8.9 %): more than the minimum of 5.0 %, and beyond chance">wglab run pair --seed 7 --only test=tcp-stream --only streams=1</failure>
        <system-out>worse: -9.9 % (-11 % to -8.9 %): more than the minimum of 5.0 %, and beyond chance
    wglab run pair --seed 7 --only test=tcp-stream --only streams=1</system-out>
      </testcase>
    </testsuite>
    "#);
    insta::assert_snapshot!(gated(&upgrade(1.0, 0.2, 4), Format::Junit), @r#"
    <?xml version="1.0" encoding="UTF-8"?>
    <testsuite name="wglab" tests="1" failures="0" errors="0" skipped="1">
      <testcase classname="wglab.new" name="tcp-stream, 1 stream: throughput">
        <skipped message="-2.1 % (-21 % to +21 %): the interval is wider than the change of 5.0 % that was asked for; about 72 rounds would decide"/>
        <system-out>inconclusive: -2.1 % (-21 % to +21 %): the interval is wider than the change of 5.0 % that was asked for; about 72 rounds would decide
    wglab run pair --seed 7 --only test=tcp-stream --only streams=1</system-out>
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
    ::error title=tcp-stream%2C 1 stream%3A throughput::worse, -9.9 %25 (-11 %25 to -8.9 %25): more than the minimum of 5.0 %25, and beyond chance. Repeat: wglab run pair --seed 7 --only test=tcp-stream --only streams=1
    "#);
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

#[test]
fn formats_are_named() {
    for format in Format::ALL {
        assert_eq!(format.name().parse(), Ok(format));
    }
    assert!("markdwn".parse::<Format>().unwrap_err().to_string().contains("did you mean `markdown`?"));
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
fn the_headline_is_what_was_received() {
    // 10 Gbit/s were sent, 6 arrived.
    let mut made = Made::new(Factor::Engine, &[(Factor::Engine, &["embedded"])]);
    for round in 1..=3 {
        let levels = [(Factor::Pair, "a1>a2"), (Factor::Engine, "embedded"), (Factor::Test, "udp-stream")];
        made.run(round, &levels, &[(RATE, 6e9), ("sent_bits_per_second", 1e10), ("loss_ratio", 0.4)]);
    }
    let text = render(&Report::new(&sources(&made), None), Format::Table);
    assert!(first_line(&text).contains("6 Gbit/s") && !first_line(&text).contains("10 Gbit/s"), "{text}");
}

#[test]
fn a_precision_that_was_not_reached_is_said() {
    let text = gated(&upgrade(1.0, 0.2, 4), Format::Table);
    assert!(first_line(&text).contains("4 rounds did not decide, about"), "{text}");
    assert!(text.contains("the interval is wider than the change of 5.0 % that was asked for"), "{text}");
    assert!(text.contains("Decide: wglab run pair --seed 7 --rounds "), "{text}");
}
