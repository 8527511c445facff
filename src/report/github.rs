//! Annotations of a GitHub workflow: the answer, and a line for each verdict that wants attention.

use std::fmt::Write as _;

use super::lines::{level_name, lines};
use super::{Report, answer, escape, level_lines, ranking};
use crate::cell::Cell;
use crate::verdict::{GateResult, Verdict, repeat};

pub(super) fn render(report: &Report<'_>) -> String {
    let mut out = opening(report.judged().map(|gate| gate.result), &answer(report));
    let Some(comparison) = report.comparison else { return out };
    let levels = level_lines(report);
    if !levels.is_empty() {
        // Of many levels a line for each that wants attention: what is behind it stands in the table.
        for (level, line) in comparison.new.iter().zip(levels) {
            let title =
                format!("{} against {}", level_name(comparison, level), level_name(comparison, &comparison.base));
            let command = repeat(report.sources, comparison, &Cell::new(), level);
            annotate(&mut out, ranking::gravest(comparison, level), &title, &format!("{line} Repeat: {command}"));
        }
        return out;
    }
    for new in &comparison.new {
        for line in lines(comparison, new) {
            let why = line.rows.first().map_or("", |row| row.why.as_str());
            let command = line.command(report, comparison);
            let message = format!("{}, {}: {why}. Repeat: {command}", line.verdict_text(), line.change_text());
            annotate(&mut out, line.verdict, &line.label(), &message);
        }
    }
    out
}

/// The answer, as loud as the gate's result.
pub(super) fn opening(gate: Option<GateResult>, answer: &str) -> String {
    let level = match gate {
        Some(GateResult::Failed | GateResult::Invalid) => "error",
        Some(GateResult::Inconclusive) => "warning",
        Some(GateResult::Passed) | None => "notice",
    };
    format!("::{level} title=wglab::{}\n", escape::workflow_message(answer))
}

/// A line for a verdict that wants attention; nothing for others.
pub(super) fn annotate(out: &mut String, verdict: Option<Verdict>, title: &str, message: &str) {
    let level = match verdict {
        Some(Verdict::Worse | Verdict::Invalid) => "error",
        Some(Verdict::Inconclusive) => "warning",
        Some(Verdict::Better | Verdict::NoConsistentChange) | None => return,
    };
    let (title, message) = (escape::workflow_property(title), escape::workflow_message(message));
    let _ = writeln!(out, "::{level} title={title}::{message}");
}
