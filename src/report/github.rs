//! Annotations of a GitHub workflow: the answer, and a line for each verdict that wants attention.

use std::fmt::Write as _;

use super::lines::lines;
use super::{Report, answer, escape};
use crate::verdict::{GateResult, Verdict};

pub(super) fn render(report: &Report<'_>) -> String {
    let level = match report.judged().map(|gate| gate.result) {
        Some(GateResult::Failed | GateResult::Invalid) => "error",
        Some(GateResult::Inconclusive) => "warning",
        Some(GateResult::Passed) | None => "notice",
    };
    let mut out = format!("::{level} title=wglab::{}\n", escape::workflow_message(&answer(report)));
    let Some(comparison) = report.comparison else { return out };
    for new in &comparison.new {
        for line in lines(comparison, new) {
            let level = match line.verdict {
                Some(Verdict::Worse | Verdict::Invalid) => "error",
                Some(Verdict::Inconclusive) => "warning",
                Some(Verdict::Better | Verdict::NoConsistentChange) | None => continue,
            };
            let why = line.rows.first().map_or("", |row| row.why.as_str());
            let command = line.command(report, comparison);
            let message = format!("{}, {}: {why}. Repeat: {command}", line.verdict_text(), line.change_text());
            let title = escape::workflow_property(&line.label());
            let _ = writeln!(out, "::{level} title={title}::{}", escape::workflow_message(&message));
        }
    }
    out
}
