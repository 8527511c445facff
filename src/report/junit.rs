//! For test dashboards: a test case for each verdict. Worse is a failure, invalid an error, inconclusive is skipped.

use std::fmt::Write as _;

use super::lines::Naming;
use super::{Report, answer, escape, level_lines, text};
use crate::verdict::{Row, Verdict};

/// One test case.
pub(super) struct Case<'a> {
    /// What kind of case it is, after `wglab.`.
    pub class: &'a str,
    /// What is judged.
    pub name: String,
    /// The verdict, if it has one.
    pub verdict: Option<Verdict>,
    /// Why.
    pub message: String,
    /// The command that repeats it.
    pub command: &'a str,
}

pub(super) fn render(report: &Report<'_>) -> String {
    let mut cases = Vec::new();
    if let Some(comparison) = report.comparison {
        let naming = Naming::of(comparison);
        cases.extend(comparison.rows.iter().filter(|row| row.verdict.is_some()).map(|row| case(row, &naming)));
    }
    let mut out = suite(&cases, &answer(report));
    let levels = level_lines(report);
    if !levels.is_empty() {
        // What all the cases come to stands at the end of the suite.
        let lines = [answer(report)].into_iter().chain(levels);
        let text: String = lines.map(|line| format!("{}\n", escape::xml(&line))).collect();
        out.truncate(out.len() - CLOSING.len());
        let _ = write!(out, "  <system-out>{text}</system-out>\n{CLOSING}");
    }
    out
}

const CLOSING: &str = "</testsuite>\n";

fn case<'a>(row: &'a Row, naming: &Naming) -> Case<'a> {
    let change = row.change.map_or_else(|| "no change known".to_owned(), |c| text::with_interval(&row.metric, &c));
    let rounds = row.rounds_needed.map_or_else(String::new, |rounds| format!("; about {rounds} rounds would decide"));
    Case {
        class: &row.level,
        name: format!("{}: {}", naming.label(&row.cell), text::title(&row.metric)),
        verdict: row.verdict,
        message: format!("{change}: {}{rounds}", row.why),
        command: &row.command,
    }
}

/// A whole suite. One without a case would pass unseen: `answer` is its error then.
pub(super) fn suite(cases: &[Case<'_>], answer: &str) -> String {
    let count = |verdict: Verdict| cases.iter().filter(|case| case.verdict == Some(verdict)).count();
    let (failures, skipped) = (count(Verdict::Worse), count(Verdict::Inconclusive));
    let errors = count(Verdict::Invalid) + usize::from(cases.is_empty());
    let tests = cases.len().max(1);
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        out,
        "<testsuite name=\"wglab\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\">"
    );
    for case in cases {
        write_case(&mut out, case);
    }
    if cases.is_empty() {
        let _ = writeln!(out, "  <testcase classname=\"wglab\" name=\"comparison\">");
        let _ = writeln!(out, "    <error message=\"{}\"/>", escape::xml(answer));
        let _ = writeln!(out, "  </testcase>");
    }
    out.push_str(CLOSING);
    out
}

fn write_case(out: &mut String, case: &Case<'_>) {
    let (class, name) = (escape::xml(case.class), escape::xml(&case.name));
    let (message, body) = (escape::xml(&case.message), escape::xml(case.command));
    let _ = write!(out, "  <testcase classname=\"wglab.{class}\" name=\"{name}\">");
    let _ = match case.verdict {
        Some(Verdict::Worse) => write!(out, "\n    <failure message=\"{message}\">{body}</failure>"),
        Some(Verdict::Invalid) => write!(out, "\n    <error message=\"{message}\">{body}</error>"),
        Some(Verdict::Inconclusive) => write!(out, "\n    <skipped message=\"{message}\"/>"),
        Some(Verdict::Better | Verdict::NoConsistentChange) | None => Ok(()),
    };
    let verdict = case.verdict.map_or("not judged", Verdict::text);
    let _ = write!(out, "\n    <system-out>{verdict}: {message}\n{body}</system-out>\n  </testcase>\n");
}
