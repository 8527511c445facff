//! A series of records, as it is printed.

use super::*;
use crate::verdict::{Series, series};

/// Twelve nights; from the eighth on the tunnel is slower.
fn nights(factor: f64) -> Series {
    let mut made = Made::new(Factor::Engine, &[(Factor::Engine, &["raw", "embedded"])]);
    let mut records = Vec::new();
    for night in 1..=12 {
        made.record.runs.clear();
        made.record.header.started = format!("2026-11-{night:02}T03:00:00Z");
        let common = made.noise(0.01);
        for round in 1..=3 {
            for (engine, rate) in [("raw", 9.4e9), ("embedded", if night < 8 { 3.2e9 } else { 3.2e9 * factor })] {
                let value = rate * common * made.noise(0.01);
                let levels = [(Factor::Pair, "a1>a2"), (Factor::Engine, engine), (Factor::Test, "tcp-stream")];
                made.run(round, &levels, &[(RATE, value)]);
            }
        }
        records.push((format!("nightly/{night:02}"), made.record.clone()));
    }
    let sources: Vec<Source<'_>> = records.iter().map(|(name, record)| Source { name, record }).collect();
    series(&sources, &Policy::gate()).unwrap()
}

fn printed(series: &Series, format: Format) -> String {
    render_series(&SeriesReport { series, gate: true, detail: false, width: None }, format)
}

#[test]
fn a_series_opens_with_where_it_changed() {
    insta::assert_snapshot!(printed(&nights(0.85), Format::Table), @r#"
    Gate failed: throughput (embedded tunnel, tcp-stream) is worse: -15 % (95 % interval -16 % to -14 %) since nightly/08 (record 8 of 12); no change found in 1 of 2 metrics; one of 5.0 % or more from the middle on, or of 5.5 % in the last two sessions, would have been found in 4 of 5 such series.
    12 records in 12 sessions from 2026-11-01T03:00:00Z to 2026-11-12T03:00:00Z; the session is the unit

    metric                                             before        since  change (95 % interval)  began at    verdict
    embedded tunnel, tcp-stream: throughput        3.2 Gbit/s  2.72 Gbit/s  -15 % (-16 % to -14 %)  nightly/08  worse
    raw underlay, tcp-stream: throughput     9.15-9.57 Gbit/s               none found                          no consistent change

    What changed there:
      from nightly/07 to nightly/08: no condition in the records differs, so look outside of them: what was built, where it ran

    Look at it: wglab compare nightly/07 nightly/08
    Repeat:     wglab run pair --seed 7 --only engine=embedded --only test=tcp-stream
    "#);
}

#[test]
fn a_series_without_a_change_says_what_it_could_have_seen() {
    insta::assert_snapshot!(printed(&nights(1.0), Format::Table), @r#"
    Gate passed: no change found in any of 2 metrics over 12 records; one of 5.0 % or more from the middle on, or of 5.5 % in the last two sessions, would have been found in 4 of 5 such series.
    12 records in 12 sessions from 2026-11-01T03:00:00Z to 2026-11-12T03:00:00Z; the session is the unit

    metric                                             before  since  change (95 % interval)  began at  verdict
    embedded tunnel, tcp-stream: throughput  3.13-3.27 Gbit/s         none found                        no consistent change
    raw underlay, tcp-stream: throughput     9.15-9.57 Gbit/s         none found                        no consistent change
    "#);
}

#[test]
fn a_series_has_markdown_and_json() {
    let series = nights(0.85);
    let markdown = printed(&series, Format::Markdown);
    assert!(markdown.starts_with("**Gate failed: throughput"), "{markdown}");
    assert!(markdown.contains("| metric | before | since |") && markdown.contains("<details>"), "{markdown}");
    let read: serde_json::Value = serde_json::from_str(&printed(&series, Format::Json)).unwrap();
    assert_eq!((read["format"].as_str(), read["gate"].as_str()), (Some("wglab-series"), Some("failed")));
    assert_eq!(read["rows"][0]["steps"][0]["record"], "nightly/08");
    assert_eq!(read["points"].as_array().unwrap().len(), 12);
}

#[test]
fn a_series_for_spreadsheets_has_a_line_for_every_record_and_metric() {
    let csv = printed(&nights(0.85), Format::Csv);
    let lines: Vec<Vec<&str>> = csv.split_terminator("\r\n").map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 1 + 2 * 12, "{csv}");
    let column = |name: &str| lines[0].iter().position(|field| *field == name).unwrap();
    let began: Vec<&str> =
        lines[1..].iter().filter(|line| !line[column("began")].is_empty()).map(|line| line[column("record")]).collect();
    assert_eq!(began, ["nightly/08"]);
    assert!(lines[1][column("value")].parse::<f64>().unwrap() > 1e9);
}

#[test]
fn a_series_for_dashboards_fails_the_case_that_got_worse() {
    let junit = printed(&nights(0.85), Format::Junit);
    assert!(junit.contains(r#"tests="2" failures="1" errors="0" skipped="0""#), "{junit}");
    assert!(junit.contains("<failure message=\"-15 % (-16 % to -14 %) since nightly/08"), "{junit}");
    let quiet = printed(&nights(1.0), Format::Junit);
    assert!(quiet.contains(r#"failures="0""#) && quiet.contains("no change found"), "{quiet}");
}

#[test]
fn a_series_annotates_what_got_worse_and_nothing_else() {
    let annotations = printed(&nights(0.85), Format::Github);
    let lines: Vec<&str> = annotations.lines().collect();
    assert_eq!(lines.len(), 2, "{annotations}");
    assert!(lines.iter().all(|line| line.starts_with("::error title=")), "{annotations}");
    assert!(printed(&nights(1.0), Format::Github).starts_with("::notice title=wglab::Gate passed"));
}

#[test]
fn a_series_is_drawn_record_by_record() {
    let html = printed(&nights(0.85), Format::Html);
    assert_eq!(html.matches("<svg").count(), 2, "{html}");
    assert_eq!(html.matches("<circle").count(), 2 * 12, "{html}");
    assert!(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));
    assert!(!html.contains("<script"));
}
