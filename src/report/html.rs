//! One page that needs nothing else: no script, no font, no request. The changes are drawn beside their figures.

use std::fmt::Write as _;

use super::lines::{Line, is_against_raw, level_name, lines};
use super::{Report, answer, detail, escape, level_lines, table};
use crate::verdict::{Change, Comparison, Scale, Verdict};

/// Nothing in the page may load or run anything, whatever a name in the record says.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --faint: #8883; --worse: #c0392b; --better: #1e8449; --open: #b9770e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #161616; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 78em; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.25em; } h2 { font-size: 1.05em; margin-top: 2em; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; } .wide { overflow-x: auto; }
th, td { text-align: left; padding: .25em .9em .25em 0; border-bottom: 1px solid var(--faint); white-space: nowrap; }
.worse { color: var(--worse); } .better { color: var(--better); } .inconclusive, .invalid { color: var(--open); }
pre { white-space: pre-wrap; } svg { vertical-align: middle; }
";

/// The page up to its first paragraph, which opens with the answer.
pub(super) fn opening(answer: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>wglab report</title>\n<style>{STYLE}</style>\n</head>\n\
         <body>\n<h1>{}</h1>\n",
        escape::xml(answer)
    )
}

/// The end of the page.
pub(super) const CLOSING: &str = "</body>\n</html>\n";

pub(super) fn render(report: &Report<'_>) -> String {
    let mut out = opening(&answer(report));
    for line in level_lines(report).into_iter().chain(table::setting(report)) {
        let _ = writeln!(out, "<p>{}</p>", escape::xml(&line));
    }
    let (mut undecided, mut binds) = (Vec::new(), Vec::new());
    if let Some(comparison) = report.comparison {
        for level in &comparison.new {
            let lines = lines(comparison, level);
            key_table(&mut out, comparison, level, &lines);
            undecided.extend(table::undecided(comparison, level, &lines));
            binds.extend(table::binds(comparison, level, &lines));
        }
    }
    list(&mut out, "Not decided", &undecided);
    list(&mut out, "What binds", &binds);
    list(&mut out, "Not measured", &table::unmeasured(report));
    list(&mut out, "Cautions", report.comparison.map_or(&[], |comparison| &comparison.cautions));
    out.push_str("<h2>Every pair and underlay</h2>\n");
    for (title, rows) in detail::tables(report) {
        let _ = writeln!(out, "<h3>{}</h3>", escape::xml(&title));
        plain_table(&mut out, &rows);
    }
    let _ = writeln!(out, "<h2>Every row</h2>\n<pre>{}</pre>", escape::xml_lines(&detail::rows(report)));
    let _ = writeln!(out, "<h2>Repeat it</h2>\n<pre>{}</pre>", escape::xml_lines(&table::commands(report)));
    out.push_str(CLOSING);
    out
}

fn key_table(out: &mut String, comparison: &Comparison, level: &str, lines: &[Line<'_>]) {
    if lines.is_empty() {
        return;
    }
    let rows = table::key_table(comparison, level, lines);
    let reach = reach(lines);
    let _ = writeln!(
        out,
        "<h2>{} against {}</h2>\n<div class=\"wide\"><table>",
        escape::xml(&level_name(comparison, level)),
        escape::xml(&level_name(comparison, &comparison.base))
    );
    let mut rows = rows.iter();
    if let Some(head) = rows.next() {
        let cells: String = head.iter().map(|cell| format!("<th>{}</th>", escape::xml(cell))).collect();
        let _ = writeln!(out, "<tr>{cells}<th></th></tr>");
    }
    for (row, line) in rows.zip(lines) {
        let class = line.verdict.filter(|_| !is_against_raw(comparison)).map_or("", |verdict| class(verdict));
        let cells: String = row.iter().map(|cell| format!("<td>{}</td>", escape::xml(cell))).collect();
        let _ = writeln!(out, "<tr class=\"{class}\">{cells}<td>{}</td></tr>", drawing(line, reach));
    }
    out.push_str("</table></div>\n");
}

pub(super) const fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NoConsistentChange => "same",
        Verdict::Inconclusive => "inconclusive",
        Verdict::Invalid => "invalid",
    }
}

/// How far the drawings reach to either side, as a log-ratio: the farthest end of an interval, within reason.
fn reach(lines: &[Line<'_>]) -> f64 {
    let ends = lines.iter().filter_map(Line::change).filter(|change| change.scale == Scale::Ratio).flat_map(|change| {
        [Some(change.value), change.low, change.high].into_iter().flatten().map(|end| end.ln_1p().abs())
    });
    ends.fold(0.1, f64::max).min(2.0)
}

/// The interval as a line, the estimate as a dot, each pair as a tick, the minimum effect as a band, all as log-ratios.
fn drawing(line: &Line<'_>, reach: f64) -> String {
    const WIDTH: f64 = 220.0;
    let Some(change) = line.change().filter(|change| change.scale == Scale::Ratio) else { return String::new() };
    let x = |size: f64| {
        let log = if size > -1.0 { size.ln_1p() } else { -reach };
        WIDTH / 2.0 * (1.0 + log.clamp(-reach, reach) / reach * 0.96)
    };
    let minimum = line.minimum();
    let band = (x(-minimum.min(0.99)), x(minimum));
    let mut svg = format!(
        "<svg width=\"{WIDTH}\" height=\"20\" role=\"img\"><title>{0}</title><rect x=\"{1:.1}\" y=\"0\" width=\"{2:.1}\" height=\"20\" fill=\"var(--faint)\"/>\
         <line x1=\"{3:.1}\" x2=\"{3:.1}\" y1=\"0\" y2=\"20\" stroke=\"currentColor\" stroke-opacity=\".4\"/>",
        escape::xml(&line.change_text()),
        band.0,
        band.1 - band.0,
        x(0.0),
    );
    if let (Some(low), Some(high)) = (change.low, change.high) {
        let _ = write!(
            svg,
            "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"10\" y2=\"10\" stroke=\"currentColor\" stroke-width=\"2\"/>",
            x(low),
            x(high)
        );
    }
    let pairs = line.rows.iter().flat_map(|row| &row.pairs).filter_map(|pair| pair.change);
    for pair in pairs.filter(|pair: &Change| pair.scale == Scale::Ratio) {
        let _ = write!(
            svg,
            "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"4\" y2=\"16\" stroke=\"currentColor\"/>",
            x(pair.value)
        );
    }
    let _ = write!(svg, "<circle cx=\"{:.1}\" cy=\"10\" r=\"4\" fill=\"currentColor\"/></svg>", x(change.value));
    svg
}

pub(super) fn list(out: &mut String, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let items: String = items.iter().map(|item| format!("<li>{}</li>\n", escape::xml(item))).collect();
    let _ = writeln!(out, "<h2>{title}</h2>\n<ul>\n{items}</ul>");
}

pub(super) fn plain_table(out: &mut String, rows: &[Vec<String>]) {
    out.push_str("<div class=\"wide\"><table>\n");
    for (place, row) in rows.iter().enumerate() {
        let tag = if place == 0 { "th" } else { "td" };
        let cells: String = row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape::xml(cell))).collect();
        let _ = writeln!(out, "<tr>{cells}</tr>");
    }
    out.push_str("</table></div>\n");
}
