//! Cautions about the course of a record: drift, a first round apart, outliers, two modes, and what the runs themselves say.

use std::collections::BTreeMap;

use super::Source;
use crate::cell::{Cell, METRICS, Metric, format_as, printable};
use crate::record::{Run, Status};
use crate::stats::{course, mean};

/// The probability of a false caution of one kind in a record, shared over the metrics that are looked at.
const CAUTION_ALPHA: f64 = 0.01;
/// A drift or a first round that is less than this apart is not worth a sentence.
const WORTH_SAYING: f64 = 0.05;

/// What a reader of `source` must know, whatever is compared.
pub(super) fn cautions(source: &Source<'_>, min_effect: f64) -> Vec<String> {
    let mut cautions = completeness(source);
    cautions.extend(said_by_runs(source));
    let gated: Vec<&Metric> = METRICS.iter().filter(|metric| metric.gated).collect();
    let alpha = CAUTION_ALPHA / gated.len() as f64;
    for metric in gated {
        let cells = logs(source, metric);
        cautions.extend(drift(metric, &cells, alpha));
        cautions.extend(first_round(metric, &cells, alpha));
        cautions.extend(cells.iter().filter_map(|(cell, values)| odd_values(metric, cell, values, min_effect)));
    }
    cautions
}

/// What a record lacks, and in how many sittings it was made.
pub(super) fn completeness(source: &Source<'_>) -> Vec<String> {
    let record = source.record;
    let mut cautions = Vec::new();
    if let Some(cut) = &record.cut {
        cautions.push(format!("line {} was cut after {} bytes and is left out", cut.line, cut.bytes));
    }
    match &record.end {
        None => cautions.push("partial: it has no end line, so wglab did not live to finish it".to_owned()),
        Some(end) if !record.is_complete() => {
            let reason = end.reason.as_deref().map_or_else(|| "no reason given".to_owned(), printable);
            cautions.push(format!("partial: {reason}"));
        }
        Some(_) => {}
    }
    cautions.extend(record.notes.iter().cloned());
    if !record.resumed.is_empty() {
        cautions.push(format!(
            "measured in {} sittings: what moved between them is not in the noise of any",
            record.resumed.len() + 1
        ));
    }
    cautions
}

/// The runs' own cautions, each kind once with how many runs have it.
fn said_by_runs(source: &Source<'_>) -> Vec<String> {
    let runs = source.record.runs.iter().filter(|run| run.status == Status::Ok).count();
    let mut kinds: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for caution in source.record.usable().flat_map(|run| &run.cautions) {
        kinds.entry(&caution.kind).or_insert((0, &caution.text)).0 += 1;
    }
    kinds
        .into_iter()
        .map(|(kind, (count, text))| format!("{} in {count} of {runs} runs: {}", printable(kind), printable(text)))
        .collect()
}

/// The logarithms of a metric's values by cell, each with its place in the sequence.
type Logs<'a> = BTreeMap<&'a Cell, Vec<(f64, f64)>>;

fn logs<'a>(source: &Source<'a>, metric: &Metric) -> Logs<'a> {
    let mut cells = Logs::new();
    let mut runs: Vec<&Run> = source.record.usable().collect();
    runs.sort_by_key(|run| run.order);
    for run in runs {
        if let Some(value) = run.metrics.get(metric.name).filter(|value| **value > 0.0) {
            cells.entry(&run.factors).or_default().push((f64::from(run.order), value.ln()));
        }
    }
    cells
}

fn drift(metric: &Metric, cells: &Logs<'_>, alpha: f64) -> Option<String> {
    let mut residuals = Vec::new();
    for values in cells.values().filter(|values| values.len() > 1) {
        let center = mean(&values.iter().map(|(_, log)| *log).collect::<Vec<_>>())?;
        residuals.extend(values.iter().map(|(order, log)| (*order, log - center)));
    }
    let drift = course::drift(&residuals)?;
    let total = drift.total.exp_m1();
    (drift.p < alpha && total.abs() >= WORTH_SAYING).then(|| {
        format!(
            "{} drifted by {:+.0} % over the record; where levels were measured in turn, that is in the noise and not in the changes",
            metric.title,
            total * 100.0
        )
    })
}

fn first_round(metric: &Metric, cells: &Logs<'_>, alpha: f64) -> Option<String> {
    let cells: Vec<Vec<f64>> = cells.values().map(|values| values.iter().map(|(_, log)| *log).collect()).collect();
    let first = course::first_round(&cells)?;
    let apart = first.apart.exp_m1();
    (first.p < alpha && apart.abs() >= WORTH_SAYING).then(|| {
        format!(
            "{} was {:+.0} % in the first round against the later ones: a longer warm-up would tell whether it belongs to the result",
            metric.title,
            apart * 100.0
        )
    })
}

/// Two modes, else outliers, of one cell.
fn odd_values(metric: &Metric, cell: &Cell, values: &[(f64, f64)], min_effect: f64) -> Option<String> {
    let logs: Vec<f64> = values.iter().map(|(_, log)| *log).collect();
    if let Some(modes) = course::two_modes(&logs).filter(|modes| (modes.high - modes.low).exp_m1() > min_effect) {
        return Some(format!(
            "{} of {cell} has two modes, {} and {} ({:.0} % of {} runs in the upper one): what switches between them is not known",
            metric.title,
            format_as(metric.quantity, modes.low.exp()),
            format_as(metric.quantity, modes.high.exp()),
            modes.share_high * 100.0,
            logs.len()
        ));
    }
    let center = mean(&logs)?;
    let far: Vec<String> = course::outliers(&logs)
        .into_iter()
        .filter_map(|place| logs.get(place))
        .filter(|log| (*log - center).exp_m1().abs() > min_effect)
        .map(|log| format_as(metric.quantity, log.exp()))
        .collect();
    (!far.is_empty()).then(|| {
        format!(
            "{} of {cell} has {} in {} runs ({}); they are kept",
            metric.title,
            if far.len() == 1 { "an outlier".to_owned() } else { format!("{} outliers", far.len()) },
            logs.len(),
            far.join(", ")
        )
    })
}
