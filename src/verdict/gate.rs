//! From a comparison to an exit code.

use serde::Serialize;

use super::{Comparison, Row, Verdict};

/// What a gate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateResult {
    /// Nothing that is judged got worse, and everything that is judged could be.
    Passed,
    /// Something got worse.
    Failed,
    /// Something that is judged could not be measured, or nothing is judged at all.
    Invalid,
    /// Something could not be told from noise.
    Inconclusive,
}

impl GateResult {
    /// The process's exit code.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::Failed => 1,
            Self::Invalid => 2,
            Self::Inconclusive => 3,
        }
    }

    /// As reports write it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Invalid => "invalid",
            Self::Inconclusive => "inconclusive",
        }
    }
}

/// A gate's result with the rows behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate<'a> {
    /// The result.
    pub result: GateResult,
    /// The rows that made it so; all judged rows where it passed.
    pub rows: Vec<&'a Row>,
    /// How many rows are judged.
    pub judged: usize,
}

/// Judges a comparison. What got worse counts first, since it is certain; then what could not be measured; then what
/// could not be told.
pub fn gate(comparison: &Comparison) -> Gate<'_> {
    let with =
        |verdict: Verdict| -> Vec<&Row> { comparison.rows.iter().filter(|row| row.verdict == Some(verdict)).collect() };
    let judged: Vec<&Row> = comparison.rows.iter().filter(|row| row.verdict.is_some()).collect();
    let count = judged.len();
    let of = |result, rows| Gate { result, rows, judged: count };
    let steps = [
        (Verdict::Worse, GateResult::Failed),
        (Verdict::Invalid, GateResult::Invalid),
        (Verdict::Inconclusive, GateResult::Inconclusive),
    ];
    for (verdict, result) in steps {
        let rows = with(verdict);
        if !rows.is_empty() {
            return of(result, rows);
        }
    }
    if judged.is_empty() {
        return of(GateResult::Invalid, judged);
    }
    of(GateResult::Passed, judged)
}
