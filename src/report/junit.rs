//! For test dashboards: a test case for each verdict. Worse is a failure, invalid an error, inconclusive is skipped.

use std::fmt::Write as _;

use super::lines::Naming;
use super::{Report, answer, escape, text};
use crate::verdict::{Row, Verdict};

pub(super) fn render(report: &Report<'_>) -> String {
    let rows: Vec<&Row> = report
        .comparison
        .map_or_else(Vec::new, |comparison| comparison.rows.iter().filter(|row| row.verdict.is_some()).collect());
    let count = |verdict: Verdict| rows.iter().filter(|row| row.verdict == Some(verdict)).count();
    let (failures, skipped) = (count(Verdict::Worse), count(Verdict::Inconclusive));
    // A suite without a case would pass unseen.
    let errors = count(Verdict::Invalid) + usize::from(rows.is_empty());
    let tests = rows.len().max(1);
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        out,
        "<testsuite name=\"wglab\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\">"
    );
    if let Some(comparison) = report.comparison {
        let naming = Naming::of(comparison);
        for row in &rows {
            case(&mut out, row, &naming);
        }
    }
    if rows.is_empty() {
        let _ = writeln!(out, "  <testcase classname=\"wglab\" name=\"comparison\">");
        let _ = writeln!(out, "    <error message=\"{}\"/>", escape::xml(&answer(report)));
        let _ = writeln!(out, "  </testcase>");
    }
    out.push_str("</testsuite>\n");
    out
}

fn case(out: &mut String, row: &Row, naming: &Naming) {
    let name = format!("{}: {}", naming.label(&row.cell), text::title(&row.metric));
    let change = row.change.map_or_else(|| "no change known".to_owned(), |c| text::with_interval(&row.metric, &c));
    let rounds = row.rounds_needed.map_or_else(String::new, |rounds| format!("; about {rounds} rounds would decide"));
    let message = escape::xml(&format!("{change}: {}{rounds}", row.why));
    let body = escape::xml(&row.command);
    let _ = write!(out, "  <testcase classname=\"wglab.{}\" name=\"{}\">", escape::xml(&row.level), escape::xml(&name));
    let _ = match row.verdict {
        Some(Verdict::Worse) => write!(out, "\n    <failure message=\"{message}\">{body}</failure>"),
        Some(Verdict::Invalid) => write!(out, "\n    <error message=\"{message}\">{body}</error>"),
        Some(Verdict::Inconclusive) => write!(out, "\n    <skipped message=\"{message}\"/>"),
        Some(Verdict::Better | Verdict::NoConsistentChange) | None => Ok(()),
    };
    let verdict = row.verdict.map_or("not judged", Verdict::text);
    let _ = write!(out, "\n    <system-out>{verdict}: {message}\n{body}</system-out>\n  </testcase>\n");
}
