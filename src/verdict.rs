//! Policies over records: what changed, whether that is good, and what cannot be said.
//!
//! [`compare`](compare()) answers "did this change make it worse?" for any factor, within a record or between two;
//! [`series`](series()) finds the record of many at which a change began; [`gate`](gate()) turns an answer into an exit code; [`pick`](pick()) says which underlay a pair should use; [`cells`](cells()) is what stands in a record without any comparison.
//! The rules are those of `docs/statistics.md`; nothing here reads a file or a clock.

mod arms;
mod cells;
mod command;
mod comparable;
mod compare;
mod course;
mod decide;
mod gate;
mod measured;
mod pick;
mod policy;
mod ranking;
mod rows;
mod sentence;
mod series;

use serde::Serialize;

use crate::cell::{Cell, Factor};
use crate::record::{Bottleneck, Class, Record, RecordError};
use crate::stats::Summary;

pub use cells::{CellSummary, Unmeasured, cells};
pub use command::{repeat, shell, with_rounds, words};
pub use comparable::{Difference, UnknownCondition, changed_facts, check_changed, check_changed_facts};
pub use compare::{check_runs, compare};
pub use decide::{AGREEING_SHARE, Decision, Evidence, Judgement, adjust, decide};
pub use gate::{Gate, GateResult, gate};
pub use measured::{FIXED_PAIRS, Measured, PairRuns, Scale, Visit, measure};
pub use pick::{Candidate, Order, Pick, PickOptions, PickResult, Picks, SAFE_TCP, SAFE_UDP, pick};
pub use policy::{BadBy, By, Policy, PolicyError};
pub use ranking::{Ranked, Ranking};
pub use series::{Point, SESSION_GAP_SECONDS, Series, SeriesRow, Step, Unit, series, series_gate};

/// A record with the name that the user gave it: its directory, usually.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// How reports call it.
    pub name: &'a str,
    /// The record.
    pub record: &'a Record,
}

/// What can be said about a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The new level is better.
    Better,
    /// The new level is worse.
    Worse,
    /// Measured well enough, and nothing to publish.
    NoConsistentChange,
    /// Too few runs, or too noisy.
    Inconclusive,
    /// There is no right to say anything: a metric is missing, the path unproved, every run failed.
    Invalid,
}

impl Verdict {
    /// As reports write it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoConsistentChange => "no consistent change",
            Self::Inconclusive => "inconclusive",
            Self::Invalid => "invalid",
        }
    }
}

/// The answer of [`compare`](compare()).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// What is compared.
    pub by: By,
    /// The baseline.
    pub base: String,
    /// What is compared with it, in order.
    pub new: Vec<String>,
    /// One for each new level, cell and metric, in the order of a report.
    pub rows: Vec<Row>,
    /// The order of the levels in each main metric; empty where there are but two.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rankings: Vec<Ranking>,
    /// What was planned and could not be measured.
    pub unmeasured: Vec<Unmeasured>,
    /// What a reader must know before trusting the rows.
    pub cautions: Vec<String>,
    /// The records, as named.
    pub records: Vec<String>,
    /// What kinds of run they show.
    pub classes: Vec<Class>,
    /// Pairs of nodes.
    pub pairs: usize,
    /// Rounds.
    pub rounds: usize,
    /// The least change that the policy wants published, as a fraction.
    pub min_effect: f64,
    /// How many verdicts share the error.
    pub judged: usize,
}

/// One metric of one cell at two levels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The metric's name.
    pub metric: String,
    /// The factors that both sides share; neither the pair nor the compared one.
    pub cell: Cell,
    /// The new level.
    pub level: String,
    /// All usable runs at the baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<Summary>,
    /// All usable runs at the new level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Summary>,
    /// The change over all pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// Each pair by itself.
    pub pairs: Vec<PairRow>,
    /// Pairs that moved the same way by at least half of the minimum effect.
    pub agree: usize,
    /// Runs that were paired within pair and round.
    pub paired: usize,
    /// The least change that is published here: the policy's, or the record's own noise floor if that is larger; as a
    /// fraction, or in the metric's unit where the change is.
    pub minimum: f64,
    /// The record's own noise floor for this comparison; absent where no level was visited twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<f64>,
    /// Whether it shares in the error, and has a verdict.
    pub judged: bool,
    /// The verdict; absent where the metric is only shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// How many underlays were judged together, where the verdict is theirs in common.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub together: Option<Together>,
    /// The change of the raw underlay, where it explains this one: a fraction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<f64>,
    /// Why this verdict, in words.
    pub why: String,
    /// Rounds in all that would decide, where it is inconclusive and more rounds would.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds_needed: Option<u32>,
    /// What bound the runs at the baseline, where most of them agree, with the evidence of the last of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_bound_by: Option<Bottleneck>,
    /// The same at the new level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_bound_by: Option<Bottleneck>,
    /// The command that measures this row again.
    pub command: String,
}

/// What several underlays have in common: the same metric and cell but for the underlay.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Together {
    /// How many underlays.
    pub underlays: usize,
    /// The change over all of them.
    pub change: Change,
    /// The least change that is published of them.
    pub minimum: f64,
}

/// A change with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Change {
    /// What the numbers are.
    pub scale: Scale,
    /// The estimate: a fraction of the baseline (-0.06 is 6 % less), or a difference in the metric's unit.
    pub value: f64,
    /// The lower end of the 95 % interval; absent where a single paired run leaves none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// The upper end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// The two-sided p-value; absent with the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// The same, adjusted over everything that is judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p_adjusted: Option<f64>,
}

impl Change {
    /// Whether its interval leaves no change out.
    pub fn excludes_zero(&self) -> bool {
        self.low.zip(self.high).is_some_and(|(low, high)| low > 0.0 || high < 0.0)
    }
}

/// One pair's part of a row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairRow {
    /// The pair.
    pub pair: String,
    /// Its runs at the baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<Summary>,
    /// Its runs at the new level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Summary>,
    /// The change of this pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
}

/// Why records cannot be compared.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum VerdictError {
    /// No record was given.
    #[error("there is no record to compare")]
    NoRecord,
    /// Nothing says what to compare.
    #[error("the record names no factor to compare: say which with --by, one of {}", .candidates.join(", "))]
    NoFactor {
        /// Factors with two levels or more.
        candidates: Vec<String>,
    },
    /// The factor has fewer than two levels in the records.
    #[error("{factor} has one level only, `{level}`: nothing to compare it with; {remedy}")]
    OneLevel {
        /// The factor.
        factor: String,
        /// Its level.
        level: String,
        /// What could be compared instead.
        remedy: String,
    },
    /// A level that no run has.
    #[error("no run has {factor} `{level}`; its levels are {}", .known.join(", "))]
    NoSuchLevel {
        /// The factor.
        factor: Factor,
        /// What was asked for.
        level: String,
        /// What there is.
        known: Vec<String>,
    },
    /// Conditions differ that the compared factor does not explain.
    #[error("these records are not comparable, since {} differ{}: {}{}; {}",
        if .differences.len() == 1 { "1 condition" } else { "conditions" },
        if .differences.len() == 1 { "s" } else { "" },
        .differences.iter().take(12).map(ToString::to_string).collect::<Vec<_>>().join("; "),
        if .differences.len() > 12 { format!("; and {} more", .differences.len() - 12) } else { String::new() },
        comparable::remedy(.differences))]
    NotComparable {
        /// Which, with both sides.
        differences: Vec<Difference>,
    },
    /// A condition that no record has.
    #[error(transparent)]
    Changed(#[from] UnknownCondition),
    /// A record without any run.
    #[error("{name} holds only its header, and no run{}", .ended.as_ref().map_or_else(String::new, |why| format!("; it ended so: {why}")))]
    NoRuns {
        /// Its name.
        name: String,
        /// Why it ended, where it says so.
        ended: Option<String>,
    },
    /// Too few records for a series.
    #[error("a series needs three records or more, and {records} {} given", if *.records == 1 { "is" } else { "are" })]
    ShortSeries {
        /// How many there are.
        records: usize,
    },
    /// One record twice in a series.
    #[error("{name} is given twice: one record is one opinion, however often it is read")]
    Twice {
        /// Its name.
        name: String,
    },
    /// A record that cannot be read.
    #[error("{name}: {source}")]
    Record {
        /// Its name.
        name: String,
        /// Why.
        source: RecordError,
    },
}

#[cfg(test)]
mod tests;
