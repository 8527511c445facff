//! For a terminal: the answer, the key table, what to know, what binds, where it is, how to repeat it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::lines::{Line, is_against_raw, lines};
use super::{Report, answer, detail, escape, text};
use crate::record::{Bottleneck, Class};
use crate::verdict::{Comparison, Unmeasured, Verdict};

pub(super) fn render(report: &Report<'_>) -> String {
    let mut out = format!("{}\n", answer(report));
    for line in setting(report) {
        let _ = writeln!(out, "{line}");
    }
    match report.comparison {
        Some(comparison) => {
            for level in &comparison.new {
                let lines = lines(comparison, level);
                if !lines.is_empty() {
                    let _ = write!(out, "\n{}\n", aligned(&key_table(comparison, level, &lines), &[1, 2]));
                }
                section(&mut out, "Not decided", &undecided(comparison, &lines));
                section(&mut out, "What binds", &binds(comparison, level, &lines));
            }
        }
        None => {
            for (title, rows) in detail::tables(report) {
                let _ = write!(out, "\n{title}\n{}\n", aligned(&rows, &[]));
            }
        }
    }
    if report.detail && report.comparison.is_some() {
        for (title, rows) in detail::tables(report) {
            let _ = write!(out, "\n{title}\n{}\n", aligned(&rows, &[]));
        }
        section(&mut out, "Every row", &detail::rows(report));
    }
    section(&mut out, "Not measured", &unmeasured(report));
    let cautions = report.comparison.map_or(&[][..], |comparison| &comparison.cautions);
    section(&mut out, "Cautions", &cautions.iter().map(|caution| escape::plain(caution)).collect::<Vec<_>>());
    out.push('\n');
    for source in report.sources {
        let _ = writeln!(out, "Record: {}", escape::plain(source.name));
    }
    for command in commands(report) {
        let _ = writeln!(out, "Repeat: {command}");
    }
    out
}

/// What kind of measurement it was, in one or two lines.
pub(super) fn setting(report: &Report<'_>) -> Vec<String> {
    report
        .sources
        .iter()
        .map(|source| {
            let record = source.record;
            let usable = record.usable().count();
            let excluded = record.runs.len() - usable;
            let rounds: BTreeSet<u32> = record.runs.iter().map(|run| run.round).collect();
            let class = match record.header.class {
                Class::OneMachine => "one machine, namespaces: mechanisms, not a provider's figures",
                Class::Hosts => "hosts",
                Class::Mixed => "hosts and namespaces",
            };
            let excluded = if excluded == 0 { String::new() } else { format!(", {excluded} more not usable") };
            format!(
                "{} in {}{excluded}; {class}; started {}",
                text::count(usable, "run"),
                text::count(rounds.len(), "round"),
                escape::plain(&record.header.started)
            )
        })
        .collect()
}

/// The key table, its head first.
pub(super) fn key_table(comparison: &Comparison, level: &str, lines: &[Line<'_>]) -> Vec<Vec<String>> {
    let against_raw = is_against_raw(comparison);
    let over_pairs = lines.iter().any(|line| line.over_pairs().is_some());
    let mut head = vec!["metric".to_owned(), escape::plain(&comparison.base), escape::plain(level)];
    head.push(if against_raw { "against raw (95 % interval)" } else { "change (95 % interval)" }.to_owned());
    if over_pairs {
        head.push("over pairs".to_owned());
    }
    if !against_raw {
        head.push("verdict".to_owned());
    }
    let rows = lines.iter().map(|line| {
        let mut row = vec![line.label(), line.at_base(), line.at_new(), line.change_text()];
        if over_pairs {
            row.push(line.over_pairs().unwrap_or_else(|| "one pair".to_owned()));
        }
        if !against_raw {
            row.push(line.verdict_text());
        }
        row
    });
    std::iter::once(head).chain(rows).collect()
}

/// Why lines are inconclusive or invalid, each reason once.
pub(super) fn undecided(comparison: &Comparison, lines: &[Line<'_>]) -> Vec<String> {
    if is_against_raw(comparison) {
        return Vec::new();
    }
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let open = |line: &&Line<'_>| matches!(line.verdict, Some(Verdict::Inconclusive | Verdict::Invalid));
    for line in lines.iter().filter(open) {
        for row in line.rows.iter().take(1) {
            reasons.entry(&row.why).or_default().push(line.label());
        }
    }
    reasons.into_iter().map(|(why, labels)| format!("{}: {}", labels.join("; "), escape::plain(why))).collect()
}

/// What bound both sides of the lines, each once.
pub(super) fn binds(comparison: &Comparison, level: &str, lines: &[Line<'_>]) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    for line in lines {
        for row in &line.rows {
            let side = |bound: &Option<Bottleneck>| {
                bound.as_ref().map(|bound| escape::plain(&format!("{} ({})", bound.is, bound.evidence)))
            };
            let is = |bound: &Option<Bottleneck>| bound.as_ref().map(|bound| bound.is.clone());
            let text = match (side(&row.base_bound_by), side(&row.new_bound_by)) {
                (None, None) => continue,
                (Some(_), Some(new)) if is(&row.base_bound_by) == is(&row.new_bound_by) => {
                    format!("{}: {new}", line.what)
                }
                (base, new) => format!(
                    "{}: {} at {}, {} at {}",
                    line.what,
                    base.unwrap_or_else(|| "not explained".to_owned()),
                    escape::plain(&comparison.base),
                    new.unwrap_or_else(|| "not explained".to_owned()),
                    escape::plain(level)
                ),
            };
            if !said.contains(&text) {
                said.push(text);
            }
        }
    }
    said
}

/// Runs that are not published, each reason once.
pub(super) fn unmeasured(report: &Report<'_>) -> Vec<String> {
    let gone: &[Unmeasured] = report.comparison.map_or(&[], |comparison| &comparison.unmeasured);
    let mut reasons: BTreeMap<&str, (usize, usize, String)> = BTreeMap::new();
    for unmeasured in gone {
        let first = || (0, 0, escape::plain(&unmeasured.factors.to_string()));
        let entry = reasons.entry(&unmeasured.why).or_insert_with(first);
        entry.0 += unmeasured.runs;
        entry.1 += 1;
    }
    reasons
        .into_iter()
        .map(|(why, (runs, cells, first))| {
            let place = if cells == 1 { first } else { format!("{cells} cells, {first} the first") };
            format!("{} of {place}: {}", text::count(runs, "run"), escape::plain(why))
        })
        .collect()
}

/// The command of each record, then of each line that moved or is open.
pub(super) fn commands(report: &Report<'_>) -> Vec<String> {
    let whole =
        report.sources.iter().map(|source| escape::plain(&crate::verdict::shell(&source.record.header.command)));
    let mut commands: Vec<String> = whole.collect();
    if let Some(comparison) = report.comparison.filter(|comparison| !is_against_raw(comparison)) {
        for level in &comparison.new {
            for line in lines(comparison, level) {
                if !matches!(line.verdict, None | Some(Verdict::NoConsistentChange)) {
                    let command = escape::plain(&line.command(report, comparison));
                    if !commands.contains(&command) {
                        commands.push(command);
                    }
                }
            }
        }
    }
    commands
}

fn section(out: &mut String, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title}:");
    for item in items {
        let _ = writeln!(out, "  {item}");
    }
}

/// Rows in columns, the head underlined; `right` names the columns of numbers, or all but the first if empty.
pub(super) fn aligned(rows: &[Vec<String>], right: &[usize]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let mut rows = rows.iter();
    if let Some(head) = rows.next() {
        table.set_header(head);
    }
    for row in rows {
        table.add_row(row);
    }
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        let numbers = if right.is_empty() { place > 0 } else { right.contains(&place) };
        if numbers {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}
