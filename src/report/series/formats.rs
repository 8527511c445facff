//! A series for spreadsheets, browsers, test dashboards and workflows.

use std::fmt::Write as _;

use super::{SeriesReport, answer, causes, commands, courses, key_table, label, setting, undecided};
use crate::cell::Factor;
use crate::report::lines::Naming;
use crate::report::{csv as fields, escape, github as workflow, html as page, junit as dashboard, text};
use crate::verdict::{SeriesRow, series_gate};

/// A line for every metric of every record.
pub(super) fn csv(report: &SeriesReport<'_>) -> String {
    let series = report.series;
    let mut head = ["record", "started", "session"].map(str::to_owned).to_vec();
    head.extend(Factor::ALL.iter().map(ToString::to_string));
    head.extend(["metric", "value", "began", "low", "high", "gradual", "verdict", "why", "command"].map(str::to_owned));
    let mut rows = vec![head];
    for row in &series.rows {
        for (point, value) in series.points.iter().zip(&row.values) {
            let step = row.steps.iter().find(|step| step.record == point.record);
            let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
            let mut line = vec![escape::csv(&point.record), escape::csv(&point.started), point.session.to_string()];
            line.extend(fields::levels(&row.cell));
            line.push(escape::csv(&row.metric));
            line.push(number(*value));
            line.push(number(step.map(|step| step.change.value)));
            line.push(number(step.and_then(|step| step.change.low)));
            line.push(number(step.and_then(|step| step.change.high)));
            line.push(step.map_or_else(String::new, |step| step.gradual.to_string()));
            line.push(row.verdict.text().to_owned());
            line.extend([&row.why, &row.command].map(|text| escape::csv(text)));
            rows.push(line);
        }
    }
    fields::lines(&rows)
}

/// A test case for every metric.
pub(super) fn junit(report: &SeriesReport<'_>) -> String {
    let naming = Naming::over(report.series.rows.iter().map(|row| &row.cell));
    let case = |row| dashboard::Case {
        class: "series",
        name: label(row, &naming),
        verdict: Some(row.verdict),
        message: told(row),
        command: &row.command,
    };
    let cases: Vec<dashboard::Case<'_>> = report.series.rows.iter().map(case).collect();
    dashboard::suite(&cases, &answer(report))
}

/// The answer, and a line for every metric that wants attention.
pub(super) fn github(report: &SeriesReport<'_>) -> String {
    let naming = Naming::over(report.series.rows.iter().map(|row| &row.cell));
    let mut out = workflow::opening(report.gate.then(|| series_gate(report.series)), &answer(report));
    for row in &report.series.rows {
        let message = format!("{}, {}. Repeat: {}", row.verdict.text(), told(row), row.command);
        workflow::annotate(&mut out, Some(row.verdict), &label(row, &naming), &message);
    }
    out
}

/// What happened to a metric and why it is judged so.
fn told(row: &SeriesRow) -> String {
    match row.steps.last() {
        Some(step) if step.gradual => {
            format!("{} over the series: {}", text::with_interval(&row.metric, &step.change), row.why)
        }
        Some(step) => format!("{} since {}: {}", text::with_interval(&row.metric, &step.change), step.record, row.why),
        None => format!("no change found: {}", row.why),
    }
}

/// One page, with the course of every metric drawn.
pub(super) fn html(report: &SeriesReport<'_>) -> String {
    let series = report.series;
    let mut out = page::opening(&answer(report));
    let _ = writeln!(out, "<p>{}</p>", escape::xml(&setting(series)));
    if !series.rows.is_empty() {
        out.push_str("<h2>Every metric</h2>\n");
        page::plain_table(&mut out, &key_table(series));
    }
    page::list(&mut out, "What changed there", &causes(series));
    page::list(&mut out, "Not decided", &undecided(series));
    page::list(&mut out, "Cautions", &series.cautions);
    out.push_str("<h2>Record by record</h2>\n");
    for (row, (title, rows)) in series.rows.iter().zip(courses(series)) {
        let _ =
            writeln!(out, "<h3 class=\"{}\">{}</h3>\n{}", page::class(row.verdict), escape::xml(&title), drawing(row));
        page::plain_table(&mut out, &rows);
    }
    let _ = writeln!(out, "<h2>Next</h2>\n<pre>{}</pre>", escape::xml_lines(&commands(series)));
    out.push_str(page::CLOSING);
    out
}

/// Every value as a dot at its record's place, with a gap where one is missing, over a scale that begins at zero.
fn drawing(row: &SeriesRow) -> String {
    const WIDTH: f64 = 640.0;
    const HEIGHT: f64 = 90.0;
    const EDGE: f64 = 6.0;
    let most = row.values.iter().copied().flatten().fold(0.0, f64::max);
    let last = row.values.len().saturating_sub(1).max(1) as f64;
    if most <= 0.0 {
        return String::new();
    }
    let mut svg =
        format!("<svg width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\"><title>{}</title>", escape::xml(&row.why));
    for (place, value) in row.values.iter().enumerate() {
        let Some(value) = value else { continue };
        let x = EDGE + place as f64 / last * (WIDTH - 2.0 * EDGE);
        let y = HEIGHT - EDGE - value.max(0.0) / most * (HEIGHT - 2.0 * EDGE);
        let _ = write!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"currentColor\"/>");
    }
    svg.push_str("</svg>");
    svg
}
