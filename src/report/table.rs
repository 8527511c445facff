//! For a terminal: the answer, the key table, what to know, what binds, where it is, how to repeat it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::lines::{Line, Naming, is_against_raw, level_name, lines};
use super::{Report, answer, detail, escape, level_lines, priced, text};
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
                section(&mut out, "Not decided", &undecided(comparison, level, &lines));
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
    for command in repeats(report) {
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

/// Why lines are inconclusive or invalid, a line for each.
pub(super) fn undecided(comparison: &Comparison, level: &str, lines: &[Line<'_>]) -> Vec<String> {
    const MOST: usize = 12;
    if is_against_raw(comparison) {
        return Vec::new();
    }
    let at = match comparison.new.as_slice() {
        [_] => String::new(),
        _ => format!(", {}", level_name(comparison, level)),
    };
    let open = lines.iter().filter(|line| matches!(line.verdict, Some(Verdict::Inconclusive | Verdict::Invalid)));
    let why = |line: &Line<'_>| Some(format!("{}{at}: {}", line.label(), text::one_line(&line.rows.first()?.why)));
    let mut items: Vec<String> = open.filter_map(why).collect();
    if items.len() > MOST {
        let more = items.split_off(MOST).len();
        items.push(format!("and {more} more, whose verdicts stand in the table"));
    }
    items
}

/// What bound one side of a row.
#[derive(Clone, Copy)]
enum Bound<'a> {
    /// This, with the evidence of one run.
    By(&'a Bottleneck),
    /// There are runs, and nothing explains them.
    NotExplained,
    /// There is no run to explain.
    NotMeasured,
}

impl<'a> Bound<'a> {
    fn of(by: Option<&'a Bottleneck>, measured: bool) -> Self {
        match by {
            Some(by) => Self::By(by),
            None if measured => Self::NotExplained,
            None => Self::NotMeasured,
        }
    }

    fn name(self) -> &'a str {
        match self {
            Self::By(by) => &by.is,
            Self::NotExplained => "not explained",
            Self::NotMeasured => "not measured",
        }
    }

    fn text(self) -> String {
        match self {
            Self::By(by) => format!("{} ({})", by.is, by.evidence),
            Self::NotExplained | Self::NotMeasured => self.name().to_owned(),
        }
    }
}

/// What bound both sides of the lines: each thing once, with the evidence of one run.
pub(super) fn binds(comparison: &Comparison, level: &str, lines: &[Line<'_>]) -> Vec<String> {
    /// What is bound alike, each with its underlays.
    type Labels<'a> = Vec<(String, BTreeSet<&'a str>)>;
    let naming = Naming::of(comparison);
    let mut everywhere: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let mut bound: Vec<((&str, &str), String, Labels<'_>)> = Vec::new();
    for row in lines.iter().flat_map(|line| &line.rows) {
        let what = naming.label(&row.cell.clone().without(Factor::Underlay));
        let underlay = row.cell.get(Factor::Underlay);
        everywhere.entry(what.clone()).or_default().extend(underlay);
        let base = Bound::of(row.base_bound_by.as_ref(), row.base.is_some());
        let new = Bound::of(row.new_bound_by.as_ref(), row.new.is_some());
        if ![base, new].iter().any(|side| matches!(side, Bound::By(_))) {
            continue;
        }
        let key = (base.name(), new.name());
        let place = bound.iter().position(|(other, _, _)| *other == key).unwrap_or_else(|| {
            let at = [comparison.base.as_str(), level].map(|level| level_name(comparison, level));
            let text = match key.0 == key.1 {
                true => new.text(),
                false => format!("{} at {}, {} at {}", base.text(), at[0], new.text(), at[1]),
            };
            bound.push((key, text, Vec::new()));
            bound.len() - 1
        });
        let labels = &mut bound[place].2;
        let label = labels.iter().position(|(other, _)| *other == what).unwrap_or_else(|| {
            labels.push((what, BTreeSet::new()));
            labels.len() - 1
        });
        labels[label].1.extend(underlay);
    }
    // What is bound by one thing here and by another there says where.
    let label = |(what, underlays): &(String, BTreeSet<&str>)| match everywhere.get(what) {
        Some(all) if all != underlays => {
            let underlays: Vec<&str> = underlays.iter().copied().collect();
            format!("{what} (over {})", escape::plain(&underlays.join(", ")))
        }
        Some(_) | None => what.clone(),
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

/// What to repeat: everything, and single lines where they are few; else where their commands are.
pub(super) fn repeats(report: &Report<'_>) -> Vec<String> {
    const FEW: usize = 2;
    let (mut commands, lines) = (whole(report), commands_of_lines(report));
    match lines.len() {
        0..=FEW => commands.extend(lines),
        many => commands.push(format!("one of {many} lines: --detail, csv and json have the command of each")),
    }
    commands
}

/// The command of each record.
fn whole(report: &Report<'_>) -> Vec<String> {
    report.sources.iter().map(|source| escape::plain(&shell(&source.record.header.command))).collect()
}

/// The command of each record, then of each line that moved or could not be judged.
pub(super) fn commands(report: &Report<'_>) -> Vec<String> {
    let mut commands = whole(report);
    commands.extend(commands_of_lines(report));
    commands
}

/// The command of each line that moved or could not be judged, if it is not a whole record's.
fn commands_of_lines(report: &Report<'_>) -> Vec<String> {
    let Some(comparison) = report.comparison.filter(|comparison| !is_against_raw(comparison)) else {
        return Vec::new();
    };
    let decided = comparison.new.iter().flat_map(|level| lines(comparison, level)).filter(|line| match line.verdict {
        Some(Verdict::Better | Verdict::Worse | Verdict::Invalid) => true,
        Some(Verdict::Inconclusive | Verdict::NoConsistentChange) | None => false,
    });
    let whole = whole(report);
    let mut commands: Vec<String> = Vec::new();
    for line in decided {
        let command = escape::plain(&line.command(report, comparison));
        if !whole.contains(&command) && !commands.contains(&command) {
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
    Some(priced(&with_rounds(&source.record.header, rounds)?, report.cost))
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
