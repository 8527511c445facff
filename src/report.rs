//! Records and comparisons as people and other tools read them: one small file per format.
//!
//! The first line of every text format is the answer, a sentence with figures. Names in records may come from anywhere:
//! each format escapes them in its own way ([`escape`]). Nothing here reads a file, a clock or a terminal.

mod answer;
mod csv;
mod detail;
pub mod escape;
mod github;
mod html;
mod json;
mod junit;
mod lines;
mod markdown;
mod pick;
mod ranking;
mod series;
mod table;
mod text;

use std::fmt;
use std::str::FromStr;

use crate::units::Span;
use crate::verdict::{Comparison, Gate, Source, gate};

pub use answer::{answer, level_lines};
pub use pick::{pick_json, pick_table};
pub use series::{SeriesReport, render_series};

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// For a terminal.
    Table,
    /// For a pull request or a document.
    Markdown,
    /// For other tools: `summary.json`.
    Json,
    /// For spreadsheets.
    Csv,
    /// One page for a browser, with drawings.
    Html,
    /// For test dashboards: a test case for each verdict.
    Junit,
    /// Annotations of a GitHub workflow: a line for each verdict that wants attention.
    Github,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 7] =
        [Self::Table, Self::Markdown, Self::Json, Self::Csv, Self::Html, Self::Junit, Self::Github];

    /// Its name in options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Markdown => "markdown",
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Html => "html",
            Self::Junit => "junit",
            Self::Github => "github",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names no format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a format; {}the formats are {}", crate::cell::did_you_mean(.text, Format::ALL.map(Format::name)), Format::ALL.map(Format::name).join(", "))]
pub struct UnknownFormat {
    /// What was written.
    pub text: String,
}

impl FromStr for Format {
    type Err = UnknownFormat;
    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        let found = Self::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| UnknownFormat { text: text.to_owned() })
    }
}

/// What is reported.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// The records, with the names by which the user finds them: their directories.
    pub sources: &'a [Source<'a>],
    /// What was compared, if anything could be.
    pub comparison: Option<&'a Comparison>,
    /// Whether a gate judges: its result then opens the answer.
    pub gate: bool,
    /// Whether every pair and underlay is shown, and every row's reasons.
    pub detail: bool,
    /// The columns of the terminal that it is for: tables that are wider break their cells. Absent: as wide as they are.
    pub width: Option<usize>,
    /// What tells how long a command will take; absent where nobody can.
    pub cost: Option<Cost>,
}

/// How long the command of this line will take, as it is planned; `None` where it cannot be planned here.
pub type Cost = fn(&str) -> Option<Span>;

/// A command to copy, with what it costs behind a shell's comment sign.
fn priced(command: &str, cost: Option<Cost>) -> String {
    let command_text = escape::plain(command);
    match cost.and_then(|cost| cost(command)) {
        Some(time) => format!("{command_text}  # about {time}"),
        None => command_text,
    }
}

impl<'a> Report<'a> {
    /// A report of one record and its comparison.
    pub const fn new(sources: &'a [Source<'a>], comparison: Option<&'a Comparison>) -> Self {
        Self { sources, comparison, gate: false, detail: false, width: None, cost: None }
    }

    /// The gate's result, where a gate judges.
    fn judged(&self) -> Option<Gate<'a>> {
        self.comparison.filter(|_| self.gate).map(gate)
    }
}

/// The report in this format, ending with a line feed.
pub fn render(report: &Report<'_>, format: Format) -> String {
    match format {
        Format::Table => table::render(report),
        Format::Markdown => markdown::render(report),
        Format::Json => json::render(report),
        Format::Csv => csv::render(report),
        Format::Html => html::render(report),
        Format::Junit => junit::render(report),
        Format::Github => github::render(report),
    }
}

#[cfg(test)]
mod tests;
