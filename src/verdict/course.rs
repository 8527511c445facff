//! Cautions about the course of a record: drift, a first round apart, outliers, two modes, and what the runs themselves say.

use std::collections::BTreeMap;

use super::Source;
use crate::cell::{Cell, METRICS, Metric, format_as, printable};
use crate::record::{Run, Status};
use crate::stats::{course, mean};
use crate::units::Ratio;

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
    if let Some(precision) = record.end.as_ref().and_then(|end| end.precision.as_ref()).filter(|it| !it.reached) {
        // As it was written: a ratio's own form has a tenth of a percent.
        let (asked, rounds) = ((precision.asked * 1e7).round() / 1e5, precision.rounds);
        let known = match (precision.half_width, &precision.of) {
            (Some(width), Some(of)) => format!("{} is known to within {}", printable(of), Ratio::from_fraction(width)),
            (None, Some(of)) => format!("{} has no interval", printable(of)),
            (_, None) => "there is no change to be known".to_owned(),
        };
        cautions.push(format!("target precision of {asked} % not reached after {rounds} rounds: {known}"));
    }
    if let Some(phases) = phases(source) {
        cautions.push(format!(
            "measured in {phases} phases with stacks switched between them: what else moved between the phases is in a pair's changes"
        ));
    }
    if !record.resumed.is_empty() {
        cautions.push(format!(
            "measured in {} sittings: what moved between them is not in the noise of any",
            record.resumed.len() + 1
        ));
    }
    cautions
}

/// How many phases the stacks were switched between; absent where visits switch.
fn phases(source: &Source<'_>) -> Option<usize> {
    source.record.header.plan.get("phases")?.as_array().map(Vec::len).filter(|phases| *phases > 1)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Factor;
    use crate::record::fixture::Made;
    use crate::record::{Caution, Precision};

    const RATE: &str = "throughput_bits_per_second";

    /// Two engines on one pair, whose rates follow `course` from round to round with 1 % of noise.
    fn made(rounds: u32, course: impl Fn(u32) -> f64) -> Made {
        let mut made = Made::new(Factor::Engine, &[(Factor::Engine, &["old", "new"])]);
        for round in 0..rounds {
            for engine in ["old", "new"] {
                let rate = 1e9 * course(round) * made.noise(0.01);
                made.run(round, &[(Factor::Pair, "a1>a2"), (Factor::Engine, engine)], &[(RATE, rate)]);
            }
        }
        made
    }

    fn said(made: &Made) -> Vec<String> {
        cautions(&Source { name: "run", record: &made.record }, 0.05)
    }

    fn only_one(made: &Made, words: &str) {
        let said = said(made);
        assert!(said.len() == 1 && said[0].contains(words), "{words}: {said:?}");
    }

    #[test]
    fn a_quiet_record_needs_no_caution() {
        assert_eq!(said(&made(12, |_| 1.0)), Vec::<String>::new());
    }

    #[test]
    fn a_drift_is_said_with_its_size() {
        let drifting = made(12, |round| 1.0 - 0.015 * f64::from(round));
        assert!(
            said(&drifting).iter().any(|caution| caution.starts_with("throughput drifted by -1")),
            "{:?}",
            said(&drifting)
        );
    }

    #[test]
    fn a_first_round_apart_is_said_with_what_would_tell_more() {
        let cold = made(10, |round| if round == 0 { 0.8 } else { 1.0 });
        let said = said(&cold);
        let words = "in the first round against the later ones: a longer warm-up would tell";
        assert!(
            said.iter().any(|caution| caution.starts_with("throughput was -2") && caution.contains(words)),
            "{said:?}"
        );
    }

    #[test]
    fn outliers_are_said_and_kept() {
        let mut odd = made(12, |_| 1.0);
        *odd.record.runs[9].metrics.get_mut(RATE).unwrap() = 5e8;
        only_one(&odd, "has an outlier in 12 runs (500 Mbit/s); they are kept");
    }

    #[test]
    fn two_modes_are_said_with_both() {
        let said = said(&made(12, |round| if round % 3 == 0 { 0.7 } else { 1.0 }));
        assert!(said.len() == 2 && said.iter().all(|caution| caution.contains("has two modes")), "{said:?}");
    }

    #[test]
    fn a_warm_up_that_was_too_short_is_said_once_for_all_runs() {
        let mut rising = made(6, |_| 1.0);
        for run in rising.record.runs.iter_mut().take(4) {
            let text = "no steady rate: 1 Gbit/s in the window's first half, 1.8 Gbit/s in its second".to_owned();
            run.cautions.push(Caution { kind: "unsteady".to_owned(), text });
        }
        only_one(&rising, "in 4 of 12 runs: no steady rate");
    }

    #[test]
    fn a_precision_that_was_not_reached_is_said_and_one_that_was_is_not() {
        let mut made = made(6, |_| 1.0);
        let precision = Precision {
            asked: 0.03,
            reached: false,
            rounds: 6,
            half_width: Some(0.0412),
            of: Some("rr_p50_ns at new".to_owned()),
        };
        made.record.end.as_mut().unwrap().precision = Some(precision.clone());
        only_one(&made, "target precision of 3 % not reached after 6 rounds: rr_p50_ns at new is known to within 4.1");
        made.record.end.as_mut().unwrap().precision = Some(Precision { reached: true, ..precision });
        assert_eq!(said(&made), Vec::<String>::new());
    }

    #[test]
    fn phases_are_said() {
        let mut made = made(12, |round| 1.0 - 0.015 * f64::from(round));
        made.record.header.plan = serde_json::json!({"phases": [{}, {}]});
        let said = said(&made);
        assert!(said.iter().any(|caution| caution.contains("measured in 2 phases")), "{said:?}");
        assert!(said.iter().any(|caution| caution.contains("drifted")), "{said:?}");
    }
}
