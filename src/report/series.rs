//! A series of records: the answer, a line for each metric, and what to look at.

mod formats;

use std::fmt::Write as _;

use serde::Serialize;

use super::lines::Naming;
use super::{Format, escape, table, text};
use crate::verdict::{Series, SeriesRow, Step, Unit, Verdict, series_gate};

/// Rows named in the answer; the rest are counted.
const NAMED: usize = 3;
/// Differences of conditions named at a change.
const DIFFERENCES: usize = 4;

/// How a series is reported.
#[derive(Debug, Clone, Copy)]
pub struct SeriesReport<'a> {
    /// The series.
    pub series: &'a Series,
    /// Whether a gate judges: its result then opens the answer.
    pub gate: bool,
    /// Whether every record's value is shown.
    pub detail: bool,
    /// The columns of the terminal that it is for; absent: as wide as its tables are.
    pub width: Option<usize>,
}

/// The series in this format, ending with a line feed.
pub fn render_series(report: &SeriesReport<'_>, format: Format) -> String {
    match format {
        Format::Table => plain(report),
        Format::Markdown => markdown(report),
        Format::Json => json(report),
        Format::Csv => formats::csv(report),
        Format::Html => formats::html(report),
        Format::Junit => formats::junit(report),
        Format::Github => formats::github(report),
    }
}

fn plain(report: &SeriesReport<'_>) -> String {
    let mut out = format!("{}\n{}\n", answer(report), setting(report.series));
    if !report.series.rows.is_empty() {
        let _ = write!(out, "\n{}\n", table::aligned(&key_table(report.series), &[1, 2], report.width));
    }
    if report.detail {
        for (title, rows) in courses(report.series) {
            let _ = write!(out, "\n{title}\n{}\n", table::aligned(&rows, &[2], report.width));
        }
    }
    table::section(&mut out, "What changed there", &causes(report.series));
    table::section(&mut out, "Not decided", &undecided(report.series));
    let cautions: Vec<String> = report.series.cautions.iter().map(|caution| escape::plain(caution)).collect();
    table::section(&mut out, "Cautions", &cautions);
    out.push('\n');
    for command in commands(report.series) {
        let _ = writeln!(out, "{command}");
    }
    out
}

fn markdown(report: &SeriesReport<'_>) -> String {
    let mut out =
        format!("**{}**\n\n{}\n", escape::markdown(&answer(report)), escape::markdown(&setting(report.series)));
    if !report.series.rows.is_empty() {
        let _ = write!(out, "\n{}", super::markdown::piped(&key_table(report.series)));
    }
    super::markdown::section(&mut out, "What changed there", &causes(report.series));
    super::markdown::section(&mut out, "Not decided", &undecided(report.series));
    super::markdown::section(&mut out, "Cautions", &report.series.cautions);
    for (title, rows) in courses(report.series) {
        let _ = write!(
            out,
            "\n<details><summary>{}</summary>\n\n{}\n</details>\n",
            escape::xml(&title),
            super::markdown::piped(&rows)
        );
    }
    let commands = commands(report.series);
    if !commands.is_empty() {
        out.push_str("\nNext:\n\n");
        for command in commands {
            let _ = writeln!(out, "    {command}");
        }
    }
    out
}

fn json(report: &SeriesReport<'_>) -> String {
    #[derive(Serialize)]
    struct Whole<'a> {
        format: &'static str,
        version: u32,
        answer: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        gate: Option<crate::verdict::GateResult>,
        #[serde(flatten)]
        series: &'a Series,
    }
    let whole = Whole {
        format: "wglab-series",
        version: 1,
        answer: answer(report),
        gate: report.gate.then(|| series_gate(report.series)),
        series: report.series,
    };
    let mut text = serde_json::to_string_pretty(&whole).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"));
    text.push('\n');
    text
}

/// The first line.
fn answer(report: &SeriesReport<'_>) -> String {
    let series = report.series;
    let sentence = sentence(series);
    if report.gate { format!("Gate {}: {sentence}", series_gate(series).text()) } else { capitalised(sentence) }
}

fn sentence(series: &Series) -> String {
    let naming = Naming::over(series.rows.iter().map(|row| &row.cell));
    let moved: Vec<&SeriesRow> = series.rows.iter().filter(|row| row.is_changed()).collect();
    let judged = series.rows.len();
    let records = text::count(series.points.len(), "record");
    if judged == 0 {
        return format!("Nothing that is judged was measured in the {records}.");
    }
    let mut clauses = Vec::new();
    if !moved.is_empty() {
        let mut named: Vec<String> = moved
            .iter()
            .take(NAMED)
            .filter_map(|row| Some(row_sentence(row, row.steps.last()?, &naming, series)))
            .collect();
        if moved.len() > NAMED {
            named.push(format!("{} more", moved.len() - NAMED));
        }
        clauses.push(text::listed(&named));
    }
    let still: Vec<&SeriesRow> =
        series.rows.iter().filter(|row| row.verdict == Verdict::NoConsistentChange && !row.is_changed()).collect();
    if !still.is_empty() {
        let what = if still.len() == judged {
            format!("any of {}", text::count(judged, "metric"))
        } else {
            format!("{} of {}", still.len(), text::count(judged, "metric"))
        };
        let over = if clauses.is_empty() {
            match series.unit {
                Unit::Session if series.sessions < series.points.len() => {
                    format!(" over {records} in {}", text::count(series.sessions, "session"))
                }
                Unit::Session | Unit::Record => format!(" over {records}"),
            }
        } else {
            String::new()
        };
        clauses.push(format!("no change found in {what}{over}{}", visible(&still, series.unit)));
    }
    for (verdict, words) in [(Verdict::Inconclusive, "inconclusive"), (Verdict::Invalid, "no verdict")] {
        let rows: Vec<&SeriesRow> = series.rows.iter().filter(|row| row.verdict == verdict).collect();
        if let Some(first) = rows.first() {
            let what = if rows.len() == judged {
                format!("any of {}", text::count(judged, "metric"))
            } else if rows.len() == 1 {
                label(first, &naming)
            } else {
                format!("{} of {}", rows.len(), text::count(judged, "metric"))
            };
            clauses.push(format!("{words} in {what}: {}", escape::plain(&first.why)));
        }
    }
    format!("{}.", clauses.join("; "))
}

/// The first letter in upper case, if the sentence opens with a word of ours and not with a metric.
fn capitalised(mut sentence: String) -> String {
    if ["no ", "inconclusive "].iter().any(|word| sentence.starts_with(word)) {
        sentence[..1].make_ascii_uppercase();
    }
    sentence
}

fn label(row: &SeriesRow, naming: &Naming) -> String {
    format!("{} ({})", text::title(&row.metric), naming.label(&row.cell))
}

/// `throughput (...) is worse by -12 % (95 % interval ...) since X, record 14 of 20`.
fn row_sentence(row: &SeriesRow, step: &Step, naming: &Naming, series: &Series) -> String {
    let what = label(row, naming);
    let verdict = match row.verdict {
        Verdict::Worse => "is worse",
        Verdict::Better => "is better",
        Verdict::NoConsistentChange => "changed and came back",
        Verdict::Inconclusive | Verdict::Invalid => "changed",
    };
    let change = text::with_interval(&row.metric, &step.change).replacen(" (", " (95 % interval ", 1);
    if step.gradual {
        return format!("{what} {verdict}: {change} over the series, little by little");
    }
    let several =
        if row.steps.len() > 1 { format!(", the last of {} changes", row.steps.len()) } else { String::new() };
    format!(
        "{what} {verdict}: {change} since {} (record {} of {}){several}",
        escape::plain(&step.record),
        place(series, &step.record),
        series.points.len()
    )
}

/// The place of a record, from 1.
fn place(series: &Series, record: &str) -> usize {
    series.points.iter().position(|point| point.record == record).map_or(0, |place| place + 1)
}

/// `; one of 4.1 % or more from the middle on, or of 6.3 % in the last two sessions, would have been found in 4 of 5 such series`.
fn visible(rows: &[&SeriesRow], unit: Unit) -> String {
    let largest = |of: fn(&SeriesRow) -> Option<f64>| {
        let ratios = rows.iter().filter(|row| row.scale == crate::verdict::Scale::Ratio);
        ratios.filter_map(|row| of(row)).reduce(f64::max)
    };
    match (largest(|row| row.visible), largest(|row| row.visible_at_end)) {
        (Some(middle), Some(end)) => format!(
            "; one of {} or more from the middle on, or of {} in the last two {}s, would have been found in 4 of 5 such series",
            text::percent(middle),
            text::percent(end),
            unit.text()
        ),
        _ => String::new(),
    }
}

fn setting(series: &Series) -> String {
    let first = series.points.first().map_or("", |point| &point.started);
    let last = series.points.last().map_or("", |point| &point.started);
    let (first, last) = (escape::plain(first), escape::plain(last));
    let records = text::count(series.points.len(), "record");
    match series.unit {
        Unit::Session => {
            format!(
                "{records} in {} from {first} to {last}; the session is the unit",
                text::count(series.sessions, "session")
            )
        }
        Unit::Record => format!("{records} in one session from {first} to {last}; the record is the unit"),
    }
}

fn key_table(series: &Series) -> Vec<Vec<String>> {
    let naming = Naming::over(series.rows.iter().map(|row| &row.cell));
    let head =
        ["metric", "before", "since", "change (95 % interval)", "began at", "verdict"].map(str::to_owned).to_vec();
    let mut rows = vec![head];
    for row in &series.rows {
        let what = format!("{}: {}", naming.label(&row.cell), text::title(&row.metric));
        let verdict = row.verdict.text().to_owned();
        if row.steps.is_empty() {
            let values: Vec<f64> = row.values.iter().copied().flatten().collect();
            let (low, high) = (values.iter().copied().reduce(f64::min), values.iter().copied().reduce(f64::max));
            let range =
                low.zip(high).map_or_else(|| "missing".to_owned(), |(low, high)| text::range(&row.metric, low, high));
            rows.push(vec![what, range, String::new(), "none found".to_owned(), String::new(), verdict]);
            continue;
        }
        for (number, step) in row.steps.iter().enumerate() {
            let last = number + 1 == row.steps.len();
            let began = if step.gradual {
                "little by little".to_owned()
            } else if step.earliest == step.latest {
                escape::plain(&step.record)
            } else {
                format!(
                    "{} (between {} and {})",
                    escape::plain(&step.record),
                    escape::plain(&step.earliest),
                    escape::plain(&step.latest)
                )
            };
            rows.push(vec![
                if number == 0 { what.clone() } else { String::new() },
                text::value(&row.metric, step.was),
                text::value(&row.metric, step.is),
                text::with_interval(&row.metric, &step.change),
                began,
                if last { verdict.clone() } else { String::new() },
            ]);
        }
    }
    rows
}

/// What else differs where a change began.
fn causes(series: &Series) -> Vec<String> {
    let mut said: Vec<(String, String)> = Vec::new();
    for step in
        series.rows.iter().filter(|row| row.is_changed()).flat_map(|row| &row.steps).filter(|step| !step.gradual)
    {
        let from = format!("from {} to {}", escape::plain(&step.before), escape::plain(&step.record));
        if said.iter().any(|(known, _)| *known == from) {
            continue;
        }
        let mut differs: Vec<String> =
            step.differs.iter().take(DIFFERENCES).map(|d| escape::plain(&d.to_string())).collect();
        if step.differs.len() > DIFFERENCES {
            differs.push(format!("{} more", step.differs.len() - DIFFERENCES));
        }
        let what = if differs.is_empty() {
            "no condition in the records differs, so look outside of them: what was built, where it ran".to_owned()
        } else {
            differs.join("; ")
        };
        said.push((from, what));
    }
    said.into_iter().map(|(from, what)| format!("{from}: {what}")).collect()
}

fn undecided(series: &Series) -> Vec<String> {
    let naming = Naming::over(series.rows.iter().map(|row| &row.cell));
    let open = |row: &&SeriesRow| matches!(row.verdict, Verdict::Inconclusive | Verdict::Invalid);
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for row in series.rows.iter().filter(open) {
        let what = match row.apart {
            Some(apart) => format!("{}, {}", label(row, &naming), text::change(&row.metric, row.scale, apart)),
            None => label(row, &naming),
        };
        match reasons.iter_mut().find(|(why, _)| *why == row.why) {
            Some((_, labels)) => labels.push(what),
            None => reasons.push((&row.why, vec![what])),
        }
    }
    reasons.into_iter().map(|(why, labels)| format!("{}: {}", labels.join("; "), escape::plain(why))).collect()
}

/// Every record's value of every metric.
fn courses(series: &Series) -> Vec<(String, Vec<Vec<String>>)> {
    let naming = Naming::over(series.rows.iter().map(|row| &row.cell));
    let table = |row: &SeriesRow| {
        let mut rows = vec![["record", "session", "value", ""].map(str::to_owned).to_vec()];
        for (point, value) in series.points.iter().zip(&row.values) {
            let began = row.steps.iter().find(|step| step.record == point.record && !step.gradual);
            rows.push(vec![
                escape::plain(&point.record),
                (point.session + 1).to_string(),
                value.map_or_else(|| "missing".to_owned(), |value| text::value(&row.metric, value)),
                began.map_or_else(String::new, |step| text::with_interval(&row.metric, &step.change)),
            ]);
        }
        (format!("{}, {}", text::title(&row.metric), naming.label(&row.cell)), rows)
    };
    series.rows.iter().map(table).collect()
}

/// What to run next: the comparison of the two records around a change, and the newest record's own command.
fn commands(series: &Series) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    for row in series.rows.iter().filter(|row| row.is_changed()) {
        for step in row.steps.iter().filter(|step| !step.gradual) {
            let words = ["wglab", "compare", &step.before, &step.record].map(str::to_owned);
            let mut line = format!("Look at it: {}", crate::verdict::shell(&words));
            let changed: std::collections::BTreeSet<&str> = step.differs.iter().map(|d| d.name.as_str()).collect();
            if !changed.is_empty() {
                let _ = write!(line, " --changed {}", changed.into_iter().collect::<Vec<_>>().join(","));
            }
            commands.push(escape::plain(&line));
        }
        commands.push(escape::plain(&format!("Repeat:     {}", row.command)));
    }
    let wanting = series.rows.iter().filter(|row| row.verdict == Verdict::Inconclusive);
    commands.extend(wanting.take(1).map(|row| escape::plain(&format!("Decide:     {}", row.command))));
    let mut seen = std::collections::BTreeSet::new();
    commands.retain(|command| seen.insert(command.clone()));
    commands
}
