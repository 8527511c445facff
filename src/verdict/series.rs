//! Records in the order of time: whether a metric changed, and at which record that began.
//!
//! Records that were made close together are one *session*: what the machine was like in that hour is in all of them, so they
//! are one opinion. The unit is the session wherever there are several; only where all records lie in one is
//! it the record.

mod judge;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::rows::RAW;
use super::{
    By, Change, Difference, GateResult, Policy, Scale, Source, Verdict, VerdictError, arms, check_runs, command,
    comparable, course,
};
use crate::cell::{Better, Cell, Factor, METRICS, Metric, Quantity, metric, printable};
use crate::record::Record;
use crate::stats::change::{self, Null};
use crate::stats::family::{self, Test};
use crate::stats::{mean, summary};

/// Records between which less time passes than this are of one session, in seconds.
pub const SESSION_GAP_SECONDS: i64 = 3600;

/// The answer of [`series`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// The records, the oldest first.
    pub points: Vec<Point>,
    /// How many sessions they are.
    pub sessions: usize,
    /// What is counted as one value.
    pub unit: Unit,
    /// One for each cell and metric that is judged, in the order of a report.
    pub rows: Vec<SeriesRow>,
    /// What a reader must know.
    pub cautions: Vec<String>,
    /// The least change that the policy wants published, as a fraction.
    pub min_effect: f64,
}

/// One record of a series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// How reports call it.
    pub record: String,
    /// When it began, as it says itself.
    pub started: String,
    /// Which session it belongs to, from 0.
    pub session: usize,
}

/// What is counted as one value of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// The mean over a session's records.
    Session,
    /// Each record, since all are of one session.
    Record,
}

impl Unit {
    /// As reports write it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Record => "record",
        }
    }
}

/// One metric of one cell over the series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SeriesRow {
    /// The metric's name.
    pub metric: String,
    /// The cell, without its pair.
    pub cell: Cell,
    /// The typical value in each record, absent where it lacks the metric: over pairs the mean of their runs' (of the logarithms,
    /// where ratios are compared).
    pub values: Vec<Option<f64>>,
    /// How many values were searched.
    pub units: usize,
    /// Where it changed, the oldest first.
    pub steps: Vec<Step>,
    /// From the first level to the last; absent without a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net: Option<f64>,
    /// The newest value, if it alone lies apart: no change until another session confirms it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apart: Option<f64>,
    /// The least change that would have been found in four of five series like this, had it begun in the middle; a fraction, or in
    /// the metric's unit where changes are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visible: Option<f64>,
    /// The same for one that began with the last two values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visible_at_end: Option<f64>,
    /// Whether the raw underlay moved as much at the same record.
    pub environment: bool,
    /// What the numbers are.
    pub scale: Scale,
    /// The verdict on the last level against the first.
    pub verdict: Verdict,
    /// Why, in words.
    pub why: String,
    /// The command that measures it again.
    pub command: String,
}

impl SeriesRow {
    /// Whether it changed anywhere, and the raw underlay does not explain it.
    pub fn is_changed(&self) -> bool {
        let decided = matches!(self.verdict, Verdict::Better | Verdict::Worse);
        decided || (self.verdict == Verdict::NoConsistentChange && self.net.is_some() && !self.environment)
    }
}

/// A change between two neighbouring records.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// Where it began: the first record at the new level.
    pub record: String,
    /// The last record before it.
    pub before: String,
    /// The typical value before it.
    pub was: f64,
    /// And after it.
    pub is: f64,
    /// The change, with its interval as if the place had been known.
    pub change: Change,
    /// It may have begun as early as at this record.
    pub earliest: String,
    /// And as late as at this one.
    pub latest: String,
    /// Whether it moved little by little over the series rather than at one record.
    pub gradual: bool,
    /// What else differs between the two records: the first thing to look at.
    pub differs: Vec<Difference>,
}

/// Searches the records for changes: judged metrics alone, each cell by itself, all sharing one error.
///
/// # Errors
/// Fewer than three records, one given twice, or conditions that differ and are not named in the policy.
pub fn series(sources: &[Source<'_>], policy: &Policy) -> Result<Series, VerdictError> {
    if sources.len() < 3 {
        return Err(VerdictError::ShortSeries { records: sources.len() });
    }
    check_runs(sources)?;
    comparable::check_changed(sources, &policy.changed)?;
    let policy = &sources.first().map_or_else(|| policy.clone(), |source| policy.over(&source.record.header));
    let mut sources = sources.to_vec();
    sources.sort_by_key(|source| (began(source.record), source.record.header.started.clone()));
    if let Some(name) = twice(&sources) {
        return Err(VerdictError::Twice { name });
    }
    let differences = comparable::differences(&sources, &By::Record, policy);
    if !differences.is_empty() {
        return Err(VerdictError::NotComparable { differences });
    }
    let sessions = sessions(&sources);
    let count = sessions.last().map_or(0, |last| last + 1);
    let unit = if count > 1 { Unit::Session } else { Unit::Record };
    let context = Context { sources: &sources, policy, sessions: &sessions, unit };
    Ok(Series {
        points: sources
            .iter()
            .zip(&sessions)
            .map(|(source, session)| Point {
                record: source.name.to_owned(),
                started: source.record.header.started.clone(),
                session: *session,
            })
            .collect(),
        sessions: count,
        unit,
        rows: context.rows(),
        cautions: context.cautions(count),
        min_effect: sources.first().map_or(Policy::REFERENCE_EFFECT, |source| policy.min_effect(&source.record.header)),
    })
}

/// What a gate says of a series: judged is each metric's last level against its first.
pub fn series_gate(series: &Series) -> GateResult {
    let has = |verdict: Verdict| series.rows.iter().any(|row| row.verdict == verdict);
    match () {
        () if has(Verdict::Worse) => GateResult::Failed,
        () if series.rows.is_empty() || has(Verdict::Invalid) => GateResult::Invalid,
        () if has(Verdict::Inconclusive) => GateResult::Inconclusive,
        () => GateResult::Passed,
    }
}

/// The first name that stands there twice, or whose record does.
fn twice(sources: &[Source<'_>]) -> Option<String> {
    let mut names = BTreeSet::new();
    let again = sources.iter().find(|source| !names.insert(source.name));
    let same = sources.windows(2).find(|two| two[0].record == two[1].record).map(|two| &two[1]);
    again.or(same).map(|source| source.name.to_owned())
}

/// When a record began, in seconds; absent where it does not say so in a way that can be read.
pub(super) fn began(record: &Record) -> Option<i64> {
    record.header.started.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

/// When it ended: by its end line, else by its last run.
fn ended(record: &Record) -> Option<i64> {
    let last = record.resumed.last().and_then(|header| header.started.parse::<jiff::Timestamp>().ok());
    let began = last.map_or_else(|| began(record), |last| Some(last.as_second()))?;
    let runs = record.runs.iter().filter_map(|run| run.at_ms).max();
    let lasted = record.end.as_ref().map(|end| end.duration_ms).or(runs).unwrap_or(0);
    Some(began + i64::try_from(lasted / 1000).unwrap_or(i64::MAX))
}

/// The session of each record, which are in the order of time. Without a time a record is of its own.
fn sessions(sources: &[Source<'_>]) -> Vec<usize> {
    let mut session = 0;
    let mut sessions = Vec::with_capacity(sources.len());
    for (place, source) in sources.iter().enumerate() {
        if place > 0 {
            let apart =
                began(source.record).zip(ended(sources[place - 1].record)).map(|(now, then)| now.saturating_sub(then));
            session += usize::from(apart.is_none_or(|apart| apart > SESSION_GAP_SECONDS));
        }
        sessions.push(session);
    }
    sessions
}

struct Context<'a> {
    sources: &'a [Source<'a>],
    policy: &'a Policy,
    sessions: &'a [usize],
    unit: Unit,
}

/// A metric of a cell, before it is judged.
struct Course {
    cell: Cell,
    line: &'static Metric,
    scale: Scale,
    /// On the scale that is averaged, by record.
    values: Vec<Option<f64>>,
    /// The units that have it: their values, and their first and last record.
    units: Vec<(f64, usize, usize)>,
}

impl Course {
    fn series(&self) -> Vec<f64> {
        self.units.iter().map(|unit| unit.0).collect()
    }

    /// What a value is in the metric's unit.
    fn shown(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Ratio => value.exp(),
            Scale::Difference => value,
        }
    }

    fn resolution(&self) -> f64 {
        match self.scale {
            Scale::Ratio => super::measured::RESOLUTION,
            Scale::Difference => 0.0,
        }
    }
}

impl Context<'_> {
    /// Every judged metric of every cell.
    fn courses(&self) -> Vec<Course> {
        type Pairs = BTreeMap<String, Vec<f64>>;
        let mut cells: BTreeMap<(Cell, String), Vec<Pairs>> = BTreeMap::new();
        for (place, source) in self.sources.iter().enumerate() {
            for run in source.record.usable() {
                let pair = run.factors.get(Factor::Pair).unwrap_or("");
                for (name, value) in run.metrics.iter().filter(|(name, _)| self.policy.judges(name)) {
                    let key = (arms::shared(&By::Record, &run.factors), name.clone());
                    let records = cells.entry(key).or_insert_with(|| vec![Pairs::new(); self.sources.len()]);
                    records[place].entry(pair.to_owned()).or_default().push(*value);
                }
            }
        }
        cells
            .into_iter()
            .filter_map(|((cell, name), records)| {
                let line = metric(&name).filter(|line| line.better != Better::Neither)?;
                let positive = records.iter().flat_map(BTreeMap::values).flatten().all(|value| *value > 0.0);
                let ratio = positive && line.quantity != Quantity::Ratio;
                let scale = if ratio { Scale::Ratio } else { Scale::Difference };
                let values: Vec<Option<f64>> = records.iter().map(|pairs| typical(pairs, scale)).collect();
                let units = self.units(&values);
                Some(Course { cell, line, scale, values, units })
            })
            .collect()
    }

    /// The values that are searched: each session's mean, or each record.
    fn units(&self, values: &[Option<f64>]) -> Vec<(f64, usize, usize)> {
        let mut units: Vec<(usize, Vec<f64>, usize, usize)> = Vec::new();
        for (place, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let key = match self.unit {
                Unit::Session => self.sessions[place],
                Unit::Record => place,
            };
            match units.last_mut().filter(|last| last.0 == key) {
                Some(last) => {
                    last.1.push(*value);
                    last.3 = place;
                }
                None => units.push((key, vec![*value], place, place)),
            }
        }
        units.into_iter().filter_map(|(_, values, first, last)| Some((mean(&values)?, first, last))).collect()
    }

    fn min_effect(&self, line: &Metric) -> f64 {
        let header = self.sources.first().map(|source| &source.record.header);
        header.map_or(Policy::REFERENCE_EFFECT, |header| self.policy.min_effect_of(line.name, header))
    }

    fn cautions(&self, sessions: usize) -> Vec<String> {
        let mut cautions = Vec::new();
        let records = self.sources.len();
        if sessions == 1 {
            cautions.push(format!(
                "all {records} records lie within one session, less than an hour apart each: a change of the machine in that time \
                 looks like any other, and records of another hour are no part of it"
            ));
        } else if sessions < records {
            cautions.push(format!(
                "records less than an hour apart are one session, and count once: {records} records are {sessions} sessions"
            ));
        }
        for source in self.sources {
            if began(source.record).is_none() {
                let (name, started) = (printable(source.name), printable(&source.record.header.started));
                cautions.push(format!("{name} does not say when it was made (`{started}`): it is placed by its text"));
            }
            let incomplete = course::completeness(source);
            cautions.extend(incomplete.into_iter().map(|caution| format!("{}: {caution}", printable(source.name))));
        }
        cautions
    }
}

/// Over pairs the mean of their runs', on the scale that is averaged.
fn typical(pairs: &BTreeMap<String, Vec<f64>>, scale: Scale) -> Option<f64> {
    let on = |value: &f64| match scale {
        Scale::Ratio => value.ln(),
        Scale::Difference => *value,
    };
    let means: Vec<f64> =
        pairs.values().filter_map(|values| mean(&values.iter().map(on).collect::<Vec<_>>())).collect();
    mean(&means)
}
