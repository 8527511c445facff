//! For a pull request: the answer, the key table, what to know, folded details.

use std::fmt::Write as _;

use super::lines::lines;
use super::{Report, answer, detail, escape, level_lines, table};

pub(super) fn render(report: &Report<'_>) -> String {
    let mut out = format!("**{}**\n", escape::markdown(&answer(report)));
    let levels = level_lines(report);
    if !levels.is_empty() {
        out.push('\n');
    }
    for line in levels {
        let _ = writeln!(out, "* {}", escape::markdown(&line));
    }
    for line in table::setting(report) {
        let _ = write!(out, "\n{}\n", escape::markdown(&line));
    }
    let mut undecided = Vec::new();
    let mut binds = Vec::new();
    if let Some(comparison) = report.comparison {
        for level in &comparison.new {
            let lines = lines(comparison, level);
            if !lines.is_empty() {
                let _ = write!(out, "\n{}", piped(&table::key_table(comparison, level, &lines)));
            }
            undecided.extend(table::undecided(comparison, level, &lines));
            binds.extend(table::binds(comparison, level, &lines));
        }
    }
    section(&mut out, "Not decided", &undecided);
    section(&mut out, "What binds", &binds);
    section(&mut out, "Not measured", &table::unmeasured(report));
    section(&mut out, "Cautions", report.comparison.map_or(&[], |comparison| &comparison.cautions));
    if report.detail || report.comparison.is_none() {
        for (title, rows) in detail::tables(report) {
            let title = escape::xml(&title);
            let _ = write!(out, "\n<details><summary>{title}</summary>\n\n{}\n</details>\n", piped(&rows));
        }
    }
    let commands = table::repeats(report);
    if !commands.is_empty() {
        // Indented rather than fenced: no name can end it.
        let _ = write!(out, "\nRepeat it:\n\n");
        for command in commands {
            let _ = writeln!(out, "    {command}");
        }
    }
    if let Some(command) = table::to_decide(report) {
        let _ = write!(out, "\nDecide it:\n\n    {command}\n");
    }
    out
}

pub(super) fn section(out: &mut String, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let _ = write!(out, "\n{title}:\n\n");
    for item in items {
        let _ = writeln!(out, "* {}", escape::markdown(item));
    }
}

pub(super) fn piped(rows: &[Vec<String>]) -> String {
    let mut out = String::new();
    for (place, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row.iter().map(|cell| escape::markdown(cell)).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
        if place == 0 {
            let _ = writeln!(out, "|{}", "---|".repeat(row.len()));
        }
    }
    out
}
