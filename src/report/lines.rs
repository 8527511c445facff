//! The lines of the key table: rows folded over underlays where they say the same.

use std::collections::{BTreeMap, BTreeSet};

use super::{Report, escape, text};
use crate::cell::{Cell, Factor};
use crate::verdict::{By, Change, Comparison, Row, Scale, Verdict, repeat};

/// Metrics that the key table shows without judging them: tails.
const ALSO_SHOWN: [&str; 2] = ["rr_p99_ns", "crr_p99_ns"];

/// One line of the key table.
#[derive(Debug, Clone)]
pub(super) struct Line<'a> {
    /// What was measured, plain text: engine, test, streams.
    pub(super) what: String,
    /// The metric's title.
    pub(super) metric: String,
    /// The rows behind it: one, or one per underlay.
    pub(super) rows: Vec<&'a Row>,
    /// The verdict that they share.
    pub(super) verdict: Option<Verdict>,
}

impl Line<'_> {
    /// `embedded tunnel, tcp-stream, 4 streams: throughput`.
    pub(super) fn label(&self) -> String {
        format!("{}: {}", self.what, self.metric)
    }

    /// Whether it is of the raw underlay itself, which moved: nothing that is compared explains that.
    pub(super) fn is_environment(&self) -> bool {
        self.rows.iter().any(|row| row.environment.is_some() && row.cell.get(Factor::Engine) == Some("raw"))
    }

    /// Whether it moved as the raw underlay did.
    pub(super) fn moved_with_underlay(&self) -> bool {
        self.rows.iter().any(|row| row.environment.is_some()) && !self.is_environment()
    }

    fn name(&self) -> &str {
        self.rows.first().map_or("", |row| &row.metric)
    }

    /// The range over pairs and underlays of their medians at the baseline.
    pub(super) fn at_base(&self) -> String {
        self.medians(|row| row.pairs.iter().filter_map(|pair| Some(pair.base?.median)).collect())
    }

    /// The same at the new level.
    pub(super) fn at_new(&self) -> String {
        self.medians(|row| row.pairs.iter().filter_map(|pair| Some(pair.new?.median)).collect())
    }

    fn medians(&self, of: impl Fn(&Row) -> Vec<f64>) -> String {
        let medians: Vec<f64> = self.rows.iter().flat_map(|row| of(row)).collect();
        range_of(&medians).map_or_else(|| "missing".to_owned(), |(low, high)| text::range(self.name(), low, high))
    }

    /// The change with its interval: over several underlays the one that they were judged by together, if they were.
    pub(super) fn change(&self) -> Option<Change> {
        match self.rows.as_slice() {
            [row] => row.change,
            rows => rows.iter().find_map(|row| row.together.as_ref()).map(|together| together.change),
        }
    }

    /// The least change that was published of it; the largest of its rows' where they were judged one by one.
    pub(super) fn minimum(&self) -> f64 {
        let one_by_one = || self.rows.iter().map(|row| row.minimum).fold(0.0, f64::max);
        let together = self.rows.iter().find_map(|row| row.together.as_ref()).filter(|_| self.rows.len() > 1);
        together.map_or_else(one_by_one, |together| together.minimum)
    }

    /// `+28 % (+22 % to +34 %)`, or why there is none.
    pub(super) fn change_text(&self) -> String {
        self.change().map_or_else(|| "none".to_owned(), |change| text::with_interval(self.name(), &change))
    }

    /// The range of the pairs' own changes; absent where there is one pair and one underlay.
    pub(super) fn over_pairs(&self) -> Option<String> {
        let changes: Vec<Change> = self.rows.iter().flat_map(|row| &row.pairs).filter_map(|pair| pair.change).collect();
        let scale = changes.first().filter(|_| changes.len() > 1)?.scale;
        let (low, high) = range_of(&changes.iter().map(|change| change.value).collect::<Vec<_>>())?;
        changes.iter().all(|change| change.scale == scale).then(|| text::between(self.name(), scale, low, high))
    }

    /// The verdict, or that there is none.
    pub(super) fn verdict_text(&self) -> String {
        match (self.verdict, self.rounds()) {
            (Some(Verdict::Inconclusive), Some(rounds)) => format!("inconclusive, {rounds} rounds would decide"),
            (Some(verdict), _) if self.rows.iter().any(|row| row.environment.is_some()) => {
                format!("{}, environment", verdict.text())
            }
            (Some(verdict), _) => verdict.text().to_owned(),
            (None, _) => "not judged".to_owned(),
        }
    }

    /// The rounds after which all its rows would be decided, as far as more rounds help.
    pub(super) fn rounds(&self) -> Option<u32> {
        self.rows.iter().map(|row| row.rounds_needed).collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// How far it moved, for sorting.
    pub(super) fn size(&self) -> f64 {
        self.change().map_or(0.0, |change| match change.scale {
            Scale::Ratio => change.value.ln_1p().abs(),
            Scale::Difference => f64::INFINITY,
        })
    }

    /// The command that measures the line again.
    pub(super) fn command(&self, report: &Report<'_>, comparison: &Comparison) -> String {
        let Some(row) = self.rows.first() else { return String::new() };
        if self.rows.len() == 1 {
            return row.command.clone();
        }
        repeat(report.sources, comparison, &row.cell.clone().without(Factor::Underlay), &row.level)
    }
}

/// The lines of one new level, in the order of its rows.
pub(super) fn lines<'a>(comparison: &'a Comparison, level: &str) -> Vec<Line<'a>> {
    let naming = Naming::of(comparison);
    let rows: Vec<&Row> = comparison
        .rows
        .iter()
        .filter(|row| {
            row.level == level && (row.judged || (ALSO_SHOWN.contains(&row.metric.as_str()) && row.change.is_some()))
        })
        .collect();
    let mut groups: Vec<(Cell, &str, Vec<&'a Row>)> = Vec::new();
    for row in rows {
        let cell = row.cell.clone().without(Factor::Underlay);
        match groups.iter_mut().find(|(other, metric, _)| *other == cell && *metric == row.metric) {
            Some((_, _, rows)) => rows.push(row),
            None => groups.push((cell, &row.metric, vec![row])),
        }
    }
    groups
        .into_iter()
        .flat_map(|(cell, metric, rows)| {
            let line = |what: String, rows: Vec<&'a Row>| Line {
                what,
                metric: text::title(metric),
                verdict: rows.first().and_then(|row| row.verdict),
                rows,
            };
            let alike = rows.windows(2).all(|two| two[0].verdict == two[1].verdict);
            let together = rows.iter().all(|row| row.together.is_some());
            if rows.len() > 1 && alike && (together || rows[0].verdict == Some(Verdict::Invalid)) {
                return vec![line(naming.label(&cell), rows)];
            }
            rows.into_iter().map(|row| line(naming.label(&row.cell), vec![row])).collect()
        })
        .collect()
}

fn range_of(values: &[f64]) -> Option<(f64, f64)> {
    let low = values.iter().copied().reduce(f64::min)?;
    Some((low, values.iter().copied().reduce(f64::max)?))
}

/// Which factors a label needs: those that vary, and those without which a reader does not know what it is.
pub(super) struct Naming {
    varying: BTreeSet<Factor>,
}

impl Naming {
    /// For the rows of a comparison.
    pub(super) fn of(comparison: &Comparison) -> Self {
        Self::over(comparison.rows.iter().map(|row| &row.cell))
    }

    /// For these cells.
    pub(super) fn over<'a>(cells: impl Iterator<Item = &'a Cell>) -> Self {
        let mut levels: BTreeMap<Factor, BTreeSet<&str>> = BTreeMap::new();
        for cell in cells {
            for (factor, level) in cell.iter() {
                levels.entry(factor).or_default().insert(level);
            }
        }
        Self { varying: levels.into_iter().filter(|(_, levels)| levels.len() > 1).map(|(factor, _)| factor).collect() }
    }

    /// `embedded tunnel, tcp-stream, 4 streams, reverse, over private`.
    pub(super) fn label(&self, cell: &Cell) -> String {
        let varies = |factor| self.varying.contains(&factor);
        let mut words = Vec::new();
        let mut say = |factor: Factor, always: bool, word: &dyn Fn(&str) -> String| {
            if let Some(level) = cell.get(factor).filter(|_| always || varies(factor)) {
                words.push(word(&escape::plain(level)));
            }
        };
        let itself = |level: &str| level.to_owned();
        say(Factor::Pair, false, &itself);
        say(Factor::Engine, true, &|level| {
            if level == "raw" { "raw underlay".to_owned() } else { format!("{level} tunnel") }
        });
        say(Factor::Tunnels, false, &text::tunnels);
        say(Factor::Test, true, &itself);
        say(Factor::Streams, true, &|level| {
            if level == "1" { "1 stream".to_owned() } else { format!("{level} streams") }
        });
        say(Factor::Rate, true, &|level| format!("at {level}"));
        say(Factor::Payload, false, &itself);
        say(Factor::Direction, cell.get(Factor::Direction) == Some("reverse"), &itself);
        say(Factor::CongestionControl, false, &itself);
        say(Factor::Stack, false, &|level| format!("stack {level}"));
        say(Factor::Settings, false, &|level| format!("settings {level}"));
        say(Factor::Underlay, false, &|level| format!("over {level}"));
        if words.is_empty() { "all".to_owned() } else { words.join(", ") }
    }
}

/// A level of the compared factor, so that it says what it is of: `2 tunnels`.
pub(super) fn level_name(comparison: &Comparison, level: &str) -> String {
    match comparison.by {
        By::Factor { factor: Factor::Tunnels, .. } => text::tunnels(&escape::plain(level)),
        By::Factor { .. } | By::Record => escape::plain(level),
    }
}

/// Whether a comparison is of engines with the raw underlay: a ratio to read, not a change to judge.
pub(super) fn is_against_raw(comparison: &Comparison) -> bool {
    matches!(&comparison.by, By::Factor { factor: Factor::Engine, .. }) && comparison.base == "raw"
}
