//! For spreadsheets: a line for each row of a comparison, or for each metric of each cell.

use super::{Report, escape};
use crate::cell::{Cell, Factor};
use crate::verdict::{Comparison, cells};

pub(super) fn render(report: &Report<'_>) -> String {
    let rows = report.comparison.map_or_else(|| of_cells(report), of_rows);
    lines(&rows)
}

/// Rows of escaped fields as a file.
pub(super) fn lines(rows: &[Vec<String>]) -> String {
    rows.iter().map(|row| format!("{}\r\n", row.join(","))).collect()
}

fn of_cells(report: &Report<'_>) -> Vec<Vec<String>> {
    let mut head = vec!["record".to_owned()];
    head.extend(Factor::ALL.iter().map(ToString::to_string));
    head.extend(["metric", "median", "min", "max", "runs"].map(str::to_owned));
    let mut rows = vec![head];
    for source in report.sources {
        for cell in cells(source.record) {
            for (name, summary) in &cell.metrics {
                let mut row = vec![escape::csv(source.name)];
                row.extend(levels(&cell.factors));
                row.push(escape::csv(name));
                row.extend([summary.median, summary.min, summary.max].map(|value| value.to_string()));
                row.push(summary.runs.to_string());
                rows.push(row);
            }
        }
    }
    rows
}

fn of_rows(comparison: &Comparison) -> Vec<Vec<String>> {
    let mut head: Vec<String> = Factor::ALL.iter().map(ToString::to_string).collect();
    head.extend(
        [
            "metric",
            "compared",
            "base",
            "new",
            "base_median",
            "new_median",
            "scale",
            "change",
            "low",
            "high",
            "p",
            "p_adjusted",
        ]
        .map(str::to_owned),
    );
    head.extend(["minimum", "paired_runs", "pairs", "pairs_agree"].map(str::to_owned));
    // What the verdict and its reason stand on, where underlays were judged in common.
    head.extend(["together_underlays", "together_change", "together_minimum"].map(str::to_owned));
    head.extend(["verdict", "why", "command"].map(str::to_owned));
    let mut rows = vec![head];
    for row in &comparison.rows {
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let mut fields = levels(&row.cell);
        fields.push(escape::csv(&row.metric));
        fields.push(comparison.by.name().to_owned());
        fields.extend([&comparison.base, &row.level].map(|level| escape::csv(level)));
        fields.push(number(row.base.map(|summary| summary.median)));
        fields.push(number(row.new.map(|summary| summary.median)));
        let change = row.change;
        fields.push(change.map_or_else(String::new, |change| change.scale.text().to_owned()));
        fields.push(number(change.map(|change| change.value)));
        fields.push(number(change.and_then(|change| change.low)));
        fields.push(number(change.and_then(|change| change.high)));
        fields.push(number(change.and_then(|change| change.p)));
        fields.push(number(change.and_then(|change| change.p_adjusted)));
        fields.push(row.minimum.to_string());
        fields.extend([row.paired, row.pairs.len(), row.agree].map(|count| count.to_string()));
        let together = row.together.as_ref();
        fields.push(together.map_or_else(String::new, |together| together.underlays.to_string()));
        fields.push(number(together.map(|together| together.change.value)));
        fields.push(number(together.map(|together| together.minimum)));
        fields.push(row.verdict.map_or("", |verdict| verdict.text()).to_owned());
        fields.push(escape::csv(&row.why));
        fields.push(escape::csv(&row.command));
        rows.push(fields);
    }
    rows
}

/// One field for every factor; empty where it does not apply.
pub(super) fn levels(cell: &Cell) -> Vec<String> {
    Factor::ALL.iter().map(|factor| cell.get(*factor).map_or_else(String::new, escape::csv)).collect()
}
