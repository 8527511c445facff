//! For a terminal: the answer, the key table, what to know, what binds, where it is, how to repeat it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::lines::{Line, is_against_raw, level_name, lines};
use super::{Report, answer, detail, escape, level_lines, text};
use crate::cell::Factor;
use crate::record::{Bottleneck, Class};
use crate::verdict::{Comparison, Unmeasured, Verdict, shell, with_rounds};

pub(super) fn render(report: &Report<'_>) -> String {
    let mut out = format!("{}\n", answer(report));
    for line in level_lines(report).into_iter().chain(setting(report)) {
        let _ = writeln!(out, "{line}");
    }
    match report.comparison {
        Some(comparison) => {
            for level in &comparison.new {
                let lines = lines(comparison, level);
                if !lines.is_empty() {
                    let _ =
                        write!(out, "\n{}\n", aligned(&key_table(comparison, level, &lines), &[1, 2], report.width));
                }
                section(&mut out, "Not decided", &undecided(comparison, &lines));
                section(&mut out, "What binds", &binds(comparison, level, &lines));
            }
        }
        None => {
            for (title, rows) in detail::tables(report) {
                let _ = write!(out, "\n{title}\n{}\n", aligned(&rows, &[], report.width));
            }
        }
    }
    if report.detail && report.comparison.is_some() {
        for (title, rows) in detail::tables(report) {
            let _ = write!(out, "\n{title}\n{}\n", aligned(&rows, &[], report.width));
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
    if let Some(command) = to_decide(report) {
        let _ = writeln!(out, "Decide: {command}");
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
    let mut head = vec!["metric".to_owned(), level_name(comparison, &comparison.base), level_name(comparison, level)];
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

/// What bound both sides of the lines: each thing once, with the evidence of one run.
pub(super) fn binds(comparison: &Comparison, level: &str, lines: &[Line<'_>]) -> Vec<String> {
    /// The thing at the baseline and at the new level.
    type Bound<'a> = (Option<&'a str>, Option<&'a str>);
    /// What is bound so, each with its underlays.
    type Labels<'a> = Vec<(&'a str, Vec<&'a str>)>;
    let mut bound: Vec<(Bound<'_>, String, Labels<'_>)> = Vec::new();
    for line in lines {
        for row in &line.rows {
            let (base, new) = (row.base_bound_by.as_ref(), row.new_bound_by.as_ref());
            let key = (base.map(|bound| bound.is.as_str()), new.map(|bound| bound.is.as_str()));
            if key == (None, None) {
                continue;
            }
            let side = |bound: Option<&Bottleneck>| {
                bound.map_or_else(|| "not explained".to_owned(), |bound| format!("{} ({})", bound.is, bound.evidence))
            };
            let place = bound.iter().position(|(other, _, _)| *other == key).unwrap_or_else(|| {
                let at = [comparison.base.as_str(), level].map(|level| level_name(comparison, level));
                let text = match key.0 == key.1 {
                    true => side(new),
                    false => format!("{} at {}, {} at {}", side(base), at[0], side(new), at[1]),
                };
                bound.push((key, text, Vec::new()));
                bound.len() - 1
            });
            let labels = &mut bound[place].2;
            let label = labels.iter().position(|(what, _)| *what == line.what).unwrap_or_else(|| {
                labels.push((&line.what, Vec::new()));
                labels.len() - 1
            });
            if let Some(underlay) = row.cell.get(Factor::Underlay).filter(|name| !labels[label].1.contains(name)) {
                labels[label].1.push(underlay);
            }
        }
    }
    // What is bound by one thing here and by another there says where.
    let several =
        |what: &str| bound.iter().filter(|(_, _, labels)| labels.iter().any(|(other, _)| *other == what)).count() > 1;
    let label = |(what, underlays): &(&str, Vec<&str>)| match several(what) && !underlays.is_empty() {
        true => format!("{what} (over {})", escape::plain(&underlays.join(", "))),
        false => (*what).to_owned(),
    };
    let labelled = |labels: &Labels<'_>| labels.iter().map(label).collect::<Vec<_>>().join("; ");
    bound.iter().map(|(_, text, labels)| format!("{}: {}", escape::plain(text), labelled(labels))).collect()
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
            format!("{} of {place}: {}", text::count(runs, "run"), text::one_line(why))
        })
        .collect()
}

/// The command of each record, then of each line that moved or could not be judged.
pub(super) fn commands(report: &Report<'_>) -> Vec<String> {
    let whole = report.sources.iter().map(|source| escape::plain(&shell(&source.record.header.command)));
    let mut commands: Vec<String> = whole.collect();
    let Some(comparison) = report.comparison.filter(|comparison| !is_against_raw(comparison)) else { return commands };
    let decided = comparison.new.iter().flat_map(|level| lines(comparison, level)).filter(|line| match line.verdict {
        Some(Verdict::Better | Verdict::Worse | Verdict::Invalid) => true,
        Some(Verdict::Inconclusive | Verdict::NoConsistentChange) | None => false,
    });
    for line in decided {
        let command = escape::plain(&line.command(report, comparison));
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    commands
}

/// The command that would decide what is inconclusive, if more rounds do.
pub(super) fn to_decide(report: &Report<'_>) -> Option<String> {
    let comparison = report.comparison.filter(|comparison| !is_against_raw(comparison))?;
    let source = report.sources.first().filter(|_| report.sources.len() == 1)?;
    let rounds =
        comparison.rows.iter().filter(|row| row.verdict == Some(Verdict::Inconclusive)).map(|row| row.rounds_needed);
    let rounds = rounds.flatten().max()?;
    Some(escape::plain(&with_rounds(&source.record.header, rounds)?))
}

pub(super) fn section(out: &mut String, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title}:");
    for item in items {
        let _ = writeln!(out, "  {item}");
    }
}

/// Rows in columns; `right` names the columns of numbers, or all but the first if empty. Where the columns do not fit into `width`,
/// cells break between their words.
pub(super) fn aligned(rows: &[Vec<String>], right: &[usize], width: Option<usize>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let mut body = rows.iter();
    if let Some(head) = body.next() {
        table.set_header(head);
    }
    for row in body {
        table.add_row(row);
    }
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        let numbers = if right.is_empty() { place > 0 } else { right.contains(&place) };
        if numbers {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines = |table: &Table| table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    let whole = lines(&table);
    match width.filter(|width| whole.iter().any(|line| line.chars().count() > *width)) {
        None => whole.join("\n"),
        Some(width) => {
            let width = u16::try_from(width).unwrap_or(u16::MAX);
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
            lines(&table).join("\n")
        }
    }
}
