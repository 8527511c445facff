//! For other tools: `summary.json`. Derived from the record; wglab never reads it.

use serde::Serialize;

use super::{Report, answer, level_lines};
use crate::record::Class;
use crate::verdict::{CellSummary, Comparison, GateResult, cells};

#[derive(Serialize)]
struct Summary<'a> {
    format: &'static str,
    version: u32,
    answer: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    levels: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gate: Option<GateResult>,
    records: Vec<RecordSummary<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<&'a Comparison>,
}

#[derive(Serialize)]
struct RecordSummary<'a> {
    name: &'a str,
    wglab: &'a str,
    started: &'a str,
    class: Class,
    command: &'a [String],
    seed: u64,
    plan_hash: &'a str,
    complete: bool,
    cells: Vec<CellSummary>,
}

pub(super) fn render(report: &Report<'_>) -> String {
    let summary = Summary {
        format: "wglab-summary",
        version: 1,
        answer: answer(report),
        levels: level_lines(report),
        gate: report.judged().map(|gate| gate.result),
        records: report
            .sources
            .iter()
            .map(|source| RecordSummary {
                name: source.name,
                wglab: &source.record.header.wglab,
                started: &source.record.header.started,
                class: source.record.header.class,
                command: &source.record.header.command,
                seed: source.record.header.seed,
                plan_hash: &source.record.header.plan_hash,
                complete: source.record.is_complete(),
                cells: cells(source.record),
            })
            .collect(),
        comparison: report.comparison,
    };
    // JSON escapes control characters by itself; nothing in it can fail to serialise.
    let mut text = serde_json::to_string_pretty(&summary).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"));
    text.push('\n');
    text
}
