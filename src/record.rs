//! The record: what one `wglab run` produced, as lines of JSON (`runs.jsonl`).
//!
//! A [`Header`] line opens it, a [`Run`] line follows as each run ends, an [`End`] line closes it. Nothing is
//! computed before it is written: statistics are made on reading. This module turns values into lines and lines
//! into values; files are someone else's business. `docs/record.md` describes every field.
//!
//! * A reader ignores keys that it does not know, and reads every older version ([`VERSION`]).
//! * A number that is not finite is refused when written ([`RecordError::NotFinite`]), so that it cannot come back
//!   as an absence. Absent is absent: no `null`, no zero in its place.
//! * A last line that was cut (a crash, a full disk) makes the record partial, not unreadable; [`Record::cut`] says so.

mod read;
mod write;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cell::{Cell, Factor, Judged};

/// The word that marks a record's first line.
pub const FORMAT: &str = "wglab-record";
/// The version that is written. Every version from 1 to this one is read.
pub const VERSION: u32 = 1;

/// A record as read: the header, the runs in the order of the file, and how it ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The first line.
    pub header: Header,
    /// Headers of later sittings: `--resume` appends one before it measures on. Same plan, another time.
    pub resumed: Vec<Header>,
    /// Every run, whatever its status, but for those that were measured again.
    pub runs: Vec<Run>,
    /// Runs of visits that were cut short and measured again in a later sitting: they are in the file and count nowhere.
    pub superseded: Vec<Run>,
    /// The last line; absent when the conductor did not live to write it.
    pub end: Option<End>,
    /// A last line that was cut, and therefore left out.
    pub cut: Option<Cut>,
    /// Bytes of the input that are whole lines: a writer that goes on must begin here.
    pub whole_bytes: usize,
    /// What a reader should know about how it was read: runs that stood in the file twice, for one.
    pub notes: Vec<String>,
}

/// Where a cut last line begins and what could still be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Its number, from 1.
    pub line: usize,
    /// Bytes of it that are there.
    pub bytes: usize,
}

/// The first line: what was asked for, of whom, and how to ask again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`] of the writer.
    pub version: u32,
    /// The version of wglab that measured.
    pub wglab: String,
    /// When, as RFC 3339 text in UTC.
    pub started: String,
    /// What kind of run it shows.
    pub class: Class,
    /// The argument vector that repeats the whole record, the program's name first.
    pub command: Vec<String>,
    /// The seed of order, impairment and everything else that is random.
    pub seed: u64,
    /// The plan's hash: two records with the same one asked for the same experiment.
    pub plan_hash: String,
    /// The factor that the topology compares, where it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compare: Option<Factor>,
    /// The levels of every factor, in the order in which they were named: the first is the baseline.
    #[serde(default)]
    pub levels: BTreeMap<Factor, Vec<String>>,
    /// The least change that the topology wants published, as a fraction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_effect: Option<f64>,
    /// What the topology wants judged, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Judged>,
    /// The plan, whole.
    pub plan: Value,
    /// What each node is: kernel, CPU, capabilities, as its agent told.
    #[serde(default)]
    pub nodes: BTreeMap<String, Value>,
    /// What this sitting continues; absent in a record's first header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<Resumes>,
}

/// How a later sitting hangs together with what is in the file before its header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumes {
    /// Why the sitting before had ended.
    pub ended: String,
    /// The `order` of runs whose visit was cut short, and which this sitting measures again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub superseded: Vec<u32>,
    /// Facts that differ from the first header's and were said to be changed on purpose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
}

/// What kind of run a record shows, since that bounds what its figures mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Class {
    /// Every node is made out of namespaces on one machine: mechanisms, on shared CPUs.
    #[serde(rename = "one machine, namespaces")]
    OneMachine,
    /// Every node is a real host.
    #[serde(rename = "hosts")]
    Hosts,
    /// Some of each.
    #[serde(rename = "hosts and namespaces")]
    Mixed,
}

impl Class {
    /// As the record and reports write it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::OneMachine => "one machine, namespaces",
            Self::Hosts => "hosts",
            Self::Mixed => "hosts and namespaces",
        }
    }
}

/// One measured execution of a cell: the unit of statistics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The round it belongs to, from 0.
    pub round: u32,
    /// The sitting that measured it: 0, or the number of the header that `--resume` appended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u32>,
    /// Its place in the whole sequence, from 0. Each run has its own.
    pub order: u32,
    /// What became of it.
    pub status: Status,
    /// Why, where the status is not [`Status::Ok`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it began, in milliseconds after its sitting had the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
    /// Which level of every factor was measured.
    pub factors: Cell,
    /// The results: metric to value, in the unit that the name ends with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "read::metrics")]
    pub metrics: BTreeMap<String, f64>,
    /// Under which conditions, read back from the live thing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub conditions: BTreeMap<String, Value>,
    /// What shows that the traffic took the path it was meant to take. A run without any is not published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proof: Vec<Check>,
    /// What bound the result, with its evidence. Absent: not explained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<Bottleneck>,
    /// What a reader must know before trusting the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cautions: Vec<Caution>,
    /// What the meters of both ends saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meters: Option<Meters>,
    /// Distributions by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub histograms: BTreeMap<String, Histogram>,
    /// Values over the run's time by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Series>,
}

/// What became of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Measured, and the path proved.
    Ok,
    /// Tried, and something broke.
    Failed,
    /// Measured, but not what was asked: the path is unproved, a setting was refused. Its numbers are not published.
    Invalid,
    /// Cut short by a signal.
    Interrupted,
    /// Not tried.
    Skipped,
}

impl Status {
    /// As the record and reports write it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Invalid => "invalid",
            Self::Interrupted => "interrupted",
            Self::Skipped => "skipped",
        }
    }
}

/// One check of the path's proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What is checked.
    pub check: String,
    /// What would be right.
    pub expected: String,
    /// What was seen.
    pub seen: String,
    /// Whether that is right.
    pub holds: bool,
}

/// What bound a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bottleneck {
    /// The thing: `receiver cpu`, `generator`, `sender cpu`, `path`, ...
    pub is: String,
    /// The counters that show it, in words.
    pub evidence: String,
}

/// Something to know before trusting a figure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Caution {
    /// A short name by which cautions are counted: `offload-fallback`, `emulator-bound`, `slow-start`.
    pub kind: String,
    /// A sentence with the evidence.
    pub text: String,
}

/// What the meters of both ends saw. Their content is the agent's, and described in `docs/record.md`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meters {
    /// At the pair's client.
    pub client: Value,
    /// At the pair's server.
    pub server: Value,
}

/// A distribution: how many values fell up to each bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// The unit of the bounds: `ns`, `bytes`.
    pub unit: String,
    /// `[bound, count]`, ascending, counts above zero; a value counts where it is at most the bound and more than the
    /// bound before.
    pub counts: Vec<(u64, u64)>,
}

/// Values at even steps of time within one run. They show its course; they are not independent samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The unit of the values.
    pub unit: String,
    /// The length of a step, in milliseconds.
    pub step_ms: u64,
    /// A value per step; `null` where nothing was measured in it.
    pub values: Vec<Option<f64>>,
}

/// The last line: whether everything that was planned is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Whether it is.
    pub status: EndStatus,
    /// Why not, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Lines of runs that were written.
    pub runs: u32,
    /// From the sitting's first raise to its last teardown, in milliseconds.
    pub duration_ms: u64,
    /// What became of the precision that the plan asks for; absent where it asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// The index of the phase before which somebody has to switch stacks by hand, where the sitting ended for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits_phase: Option<usize>,
}

/// How well the judged changes were known when a run with a precision ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Precision {
    /// The half-width of an interval that was asked for, as a part of the baseline.
    pub asked: f64,
    /// Whether every judged change had it.
    pub reached: bool,
    /// Complete rounds that were looked at.
    pub rounds: u32,
    /// The widest half-width; absent where some judged change had no interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
    /// What is known least: metric, level and cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}

/// Whether a record holds all that was planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndStatus {
    /// All of it.
    Complete,
    /// A part.
    Partial,
}

/// Why a line cannot be written, or a record not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A value that JSON has no number for.
    #[error("`{field}` is {value}: a number that is not finite is not a result, leave it out and say why")]
    NotFinite {
        /// The field, with its path.
        field: String,
        /// `NaN`, `inf` or `-inf`.
        value: String,
    },
    /// A `null` where absence must be an absent key: most often a number that was not finite before it got here.
    #[error("`{field}` is null: leave out what is absent (a number that is not finite turns into null)")]
    Null {
        /// The field, with its path.
        field: String,
    },
    /// The value does not serialise for another reason.
    #[error("cannot be written as JSON: {0}")]
    Unserialisable(String),
    /// Nothing there.
    #[error("the record is empty: not even its header line was written")]
    Empty,
    /// The first line is something else.
    #[error("line 1 is not the header of a {FORMAT}: {why}")]
    NotARecord {
        /// What is there instead.
        why: String,
    },
    /// Written by a newer wglab.
    #[error("the record has version {version} and this wglab reads versions 1 to {VERSION}: use a newer wglab")]
    TooNew {
        /// The record's version.
        version: u32,
    },
    /// A line that does not parse.
    #[error("line {line}, byte {byte}: {why}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// Where in it, from 1.
        byte: usize,
        /// What is wrong.
        why: String,
    },
    /// A number in the header that cannot be one.
    #[error("line {line}: the header's {field} is {value}: it is a part, from 0 to below 1")]
    NotAPart {
        /// The line's number, from 1.
        line: usize,
        /// The field, with its path.
        field: String,
        /// What is there.
        value: String,
    },
    /// Two lines that contradict each other.
    #[error("line {line}: {why}")]
    Contradiction {
        /// The later one's number, from 1.
        line: usize,
        /// In what.
        why: String,
    },
}

impl Record {
    /// Whether everything that was planned is there.
    pub fn is_complete(&self) -> bool {
        self.cut.is_none() && self.end.as_ref().is_some_and(|end| end.status == EndStatus::Complete)
    }

    /// The runs whose figures may be published: ok, with a proof of which every check holds.
    pub fn usable(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.usable())
    }
}

impl Run {
    /// Whether its figures may be published: ok, with a proof of which every check holds.
    pub fn usable(&self) -> bool {
        self.why_unusable().is_none()
    }

    /// Why its figures are not published; `None` if they are.
    pub fn why_unusable(&self) -> Option<String> {
        if self.status != Status::Ok {
            let status = self.status.text();
            return Some(match &self.reason {
                Some(reason) => format!("{status}: {reason}"),
                None => format!("{status}, and the record does not say why"),
            });
        }
        if self.proof.is_empty() {
            return Some("the path is not proved: the record holds no proof of this run".to_owned());
        }
        let check = self.proof.iter().find(|check| !check.holds)?;
        Some(format!("the path is not proved: {}: expected {}, saw {}", check.check, check.expected, check.seen))
    }
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
