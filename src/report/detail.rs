//! Every pair and underlay side by side, the raw underlay beside each tunnel with the ratio; and every row's reasons.

use std::collections::BTreeMap;

use super::lines::{Naming, level_name};
use super::{Report, escape, text};
use crate::cell::{Better, Cell, Factor, METRICS, metric};
use crate::stats::Summary;
use crate::verdict::{By, CellSummary, Row, Source, cells};

const RAW: &str = "raw";

/// A titled table for each test and metric of each record, its head first.
pub(super) fn tables(report: &Report<'_>) -> Vec<(String, Vec<Vec<String>>)> {
    let several = report.sources.len() > 1;
    report
        .sources
        .iter()
        .flat_map(|source| {
            let prefix = if several { format!("{}: ", escape::plain(source.name)) } else { String::new() };
            of_record(report, source).into_iter().map(move |(title, rows)| (format!("{prefix}{title}"), rows))
        })
        .collect()
}

/// A column: the compared level, the engine, and how many tunnels it has. The raw underlay has none, and stands beside all.
#[derive(Clone, PartialEq)]
struct Column {
    level: String,
    engine: String,
    tunnels: Option<String>,
}

impl Column {
    fn head(&self) -> String {
        let tunnels = self.tunnels.as_ref().map(|level| text::tunnels(&escape::plain(level)));
        let words = [Some(escape::plain(&self.level)), Some(escape::plain(&self.engine)), tunnels];
        words.into_iter().flatten().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    }

    fn raw(&self) -> Self {
        Self { level: self.level.clone(), engine: RAW.to_owned(), tunnels: None }
    }
}

/// The place of a cell in its table.
struct Place {
    row: Cell,
    column: Column,
}

fn place(cell: &Cell, across: Option<Factor>) -> Place {
    let engine = cell.get(Factor::Engine).unwrap_or("").to_owned();
    let level = across.and_then(|factor| cell.get(factor)).unwrap_or("").to_owned();
    let tunnels = cell.get(Factor::Tunnels).map(str::to_owned);
    let beside = |factor: Factor| matches!(factor, Factor::Engine | Factor::Tunnels) || Some(factor) == across;
    let arranged = cell.iter().filter(|(factor, _)| factor.is_arranged() && !beside(*factor));
    let row = arranged.map(|(factor, level)| (factor, level.to_owned())).collect();
    Place { row, column: Column { level, engine, tunnels } }
}

fn of_record(report: &Report<'_>, source: &Source<'_>) -> Vec<(String, Vec<Vec<String>>)> {
    // The compared factor goes across, if it is one that a table can show so: an arranged one other than engine and pair.
    let compared = match report.comparison.map(|comparison| &comparison.by) {
        Some(By::Factor { factor, .. }) => Some(*factor),
        Some(By::Record) | None => source.record.header.compare,
    };
    let across = compared.filter(|factor| matches!(factor, Factor::Stack | Factor::Settings));
    let cells = cells(source.record);
    let mut tests: BTreeMap<Cell, Vec<&CellSummary>> = BTreeMap::new();
    for cell in &cells {
        let test = cell.factors.iter().filter(|(factor, _)| !factor.is_arranged());
        tests.entry(test.map(|(factor, level)| (factor, level.to_owned())).collect()).or_default().push(cell);
    }
    let naming = Naming::over(tests.keys());
    let mut tables = Vec::new();
    for (test, cells) in &tests {
        for line in METRICS.iter().filter(|line| line.better != Better::Neither) {
            let measured: Vec<(Place, Summary)> = cells
                .iter()
                .filter_map(|cell| Some((place(&cell.factors, across), *cell.metrics.get(line.name)?)))
                .collect();
            if !measured.is_empty() {
                let title = format!("{}, {}", line.title, naming.label(test));
                tables.push((title, table(line.name, &measured, source, across)));
            }
        }
    }
    tables
}

fn table(name: &str, measured: &[(Place, Summary)], source: &Source<'_>, across: Option<Factor>) -> Vec<Vec<String>> {
    let rank = |factor: Factor, level: &str| {
        let levels = source.record.header.levels.get(&factor);
        levels.and_then(|levels| levels.iter().position(|known| known == level)).unwrap_or(usize::MAX)
    };
    let mut columns: Vec<&Column> = Vec::new();
    let mut rows: Vec<&Cell> = Vec::new();
    for (place, _) in measured {
        if !columns.contains(&&place.column) {
            columns.push(&place.column);
        }
        if !rows.contains(&&place.row) {
            rows.push(&place.row);
        }
    }
    columns.sort_by_key(|Column { level, engine, tunnels }| {
        let tunnels = tunnels.as_ref().map(|level| rank(Factor::Tunnels, level));
        (across.map_or(0, |factor| rank(factor, level)), engine != RAW, rank(Factor::Engine, engine), tunnels)
    });
    let at = |row: &Cell, column: &Column| {
        measured
            .iter()
            .find(|(place, _)| place.row == *row && place.column == *column)
            .map(|(_, summary)| summary.median)
    };
    let has_raw = |column: &Column| column.engine != RAW && columns.contains(&&column.raw());
    let mut head = vec![String::new()];
    for column in &columns {
        head.push(column.head());
        if has_raw(column) {
            head.push("of raw".to_owned());
        }
    }
    let mut table = vec![head];
    for row in rows {
        let levels: Vec<String> = row.iter().map(|(_, level)| escape::plain(level)).collect();
        let mut cells = vec![levels.join(" ")];
        for column in &columns {
            let value = at(row, column);
            cells.push(value.map_or_else(|| "missing".to_owned(), |value| text::value(name, value)));
            if has_raw(column) {
                let ratio = value.zip(at(row, &column.raw())).filter(|(_, raw)| *raw > 0.0);
                cells.push(ratio.map_or_else(|| "none".to_owned(), |(value, raw)| format!("{:.2}", value / raw)));
            }
        }
        table.push(cells);
    }
    table
}

/// Every row of the comparison: its change, its pairs, its reasons and its command, as lines.
pub(super) fn rows(report: &Report<'_>) -> Vec<String> {
    let Some(comparison) = report.comparison else { return Vec::new() };
    let naming = Naming::of(comparison);
    let explained = |row: &&Row| metric(&row.metric).is_none_or(|line| line.better != Better::Neither);
    let mut lines = Vec::new();
    for row in comparison.rows.iter().filter(explained) {
        let verdict = row.verdict.map_or("not judged", |verdict| verdict.text());
        lines.push(format!(
            "{}: {}, {}: {verdict}",
            naming.label(&row.cell),
            text::title(&row.metric),
            level_name(comparison, &row.level)
        ));
        if let Some(change) = &row.change {
            let p = |p: Option<f64>| p.map_or_else(|| "none".to_owned(), |p| format!("{p:.2e}"));
            let size = |size: f64| text::change(&row.metric, change.scale, size).trim_start_matches('+').to_owned();
            lines.push(format!(
                "    {} over {}, p {}, adjusted {}; minimum {}, noise floor {}; {} of {} agree",
                text::with_interval(&row.metric, change),
                text::count(row.paired, "paired run"),
                p(change.p),
                p(change.p_adjusted),
                size(row.minimum),
                row.floor.map_or_else(|| "unknown".to_owned(), size),
                row.agree,
                text::count(row.pairs.len(), "pair")
            ));
        }
        for pair in &row.pairs {
            let side = |summary: Option<Summary>| {
                summary.map_or_else(
                    || "missing".to_owned(),
                    |s| format!("{} ({})", text::value(&row.metric, s.median), text::range(&row.metric, s.min, s.max)),
                )
            };
            let change = pair.change.map_or_else(|| "none".to_owned(), |c| text::with_interval(&row.metric, &c));
            lines.push(format!(
                "    {}: {} -> {}, {change}",
                escape::plain(&pair.pair),
                side(pair.base),
                side(pair.new)
            ));
        }
        let rounds =
            row.rounds_needed.map_or_else(String::new, |rounds| format!("; about {rounds} rounds would decide"));
        let together = match &row.together {
            Some(together) => {
                let change = text::with_interval(&row.metric, &together.change);
                format!("{} underlays together, {change}: ", together.underlays)
            }
            None => String::new(),
        };
        lines.push(format!("    {together}{}{rounds}", escape::plain(&row.why)));
        lines.push(format!("    {}", escape::plain(&row.command)));
    }
    lines
}
