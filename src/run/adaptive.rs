//! When a run with a precision may end: by the width of its intervals, never by what they say. Pure.
//!
//! A run that ended when its verdict pleased would find changes that are not there; one that ends when the changes are known
//! well enough does not look at them.

use crate::cell::{Factor, metric};
use crate::record::{Header, Precision, Record, Run};
use crate::verdict::{self, Policy, Row, Scale, Source};

/// How well the judged changes are known after `rounds` complete rounds of `runs`.
pub(super) fn precision(header: &Header, runs: &[Run], rounds: u32, asked: f64, policy: &Policy) -> Precision {
    let record = Record {
        header: header.clone(),
        resumed: Vec::new(),
        // What the next round has brought already is not in balance yet.
        runs: runs.iter().filter(|run| run.round < rounds).cloned().collect(),
        superseded: Vec::new(),
        end: None,
        cut: None,
        whole_bytes: 0,
        notes: Vec::new(),
    };
    let unknown = Precision { asked, reached: false, rounds, half_width: None, of: None };
    // Where a level has no run at all there is nothing to compare, and nothing known.
    let Ok(comparison) = verdict::compare(&[Source { name: "this run", record: &record }], None, policy) else {
        return unknown;
    };
    let mut widest: Option<(f64, &Row)> = None;
    for row in comparison.rows.iter().filter(|row| row.judged) {
        let Some(width) = half_width(row) else { return Precision { of: Some(called(row, header)), ..unknown } };
        if widest.is_none_or(|(so_far, _)| width > so_far) {
            widest = Some((width, row));
        }
    }
    let Some((width, row)) = widest else { return unknown };
    Precision { reached: width <= asked, half_width: Some(width), of: Some(called(row, header)), ..unknown }
}

/// What of a run the comparison needs: the rest would be in memory twice.
pub(super) fn slim(run: &Run) -> Run {
    Run { meters: None, histograms: Default::default(), series: Default::default(), ..run.clone() }
}

/// Half of the interval, as a part of the baseline.
fn half_width(row: &Row) -> Option<f64> {
    let change = row.change?;
    let half = (change.high? - change.low?) / 2.0;
    match change.scale {
        Scale::Ratio => Some(half),
        Scale::Difference => {
            let typical = row.base.as_ref()?.median.abs();
            (typical > 0.0).then(|| half / typical)
        }
    }
}

/// `round trip p50 at new (tcp-rr, private)`: factors of one level say nothing.
fn called(row: &Row, header: &Header) -> String {
    let title = metric(&row.metric).map_or(row.metric.as_str(), |metric| metric.title);
    let telling =
        |factor: Factor| factor == Factor::Test || header.levels.get(&factor).is_none_or(|levels| levels.len() > 1);
    let cell: Vec<&str> = row.cell.iter().filter(|(factor, _)| telling(*factor)).map(|(_, level)| level).collect();
    let of = if cell.is_empty() { String::new() } else { format!(" ({})", cell.join(", ")) };
    format!("{title} at {}{of}", row.level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::fixture::Made;

    const RATE: &str = "throughput_bits_per_second";

    /// Six rounds of two engines, the second 20 % faster, with this much noise in one run.
    fn made(noise: f64) -> Record {
        let mut made = Made::new(Factor::Engine, &[(Factor::Engine, &["old", "new"]), (Factor::Pair, &["a1>a2"])]);
        for round in 0..6 {
            for (engine, rate) in [("old", 1e9), ("new", 1.2e9)] {
                let sign = if (round + u32::from(engine == "new")) % 2 == 0 { 1.0 } else { -1.0 };
                let levels = [(Factor::Pair, "a1>a2"), (Factor::Engine, engine), (Factor::Test, "tcp-stream")];
                made.run(round, &levels, &[(RATE, rate * (1.0 + sign * noise * f64::from(round + 1) / 6.0))]);
            }
        }
        made.record
    }

    #[test]
    fn quiet_changes_are_known_early_and_noisy_ones_are_not() {
        let at = |noise: f64, rounds: u32| {
            let record = made(noise);
            precision(&record.header, &record.runs, rounds, 0.03, &Policy::default())
        };
        let quiet = at(0.002, 4);
        assert!(quiet.reached && quiet.half_width.unwrap() < 0.03, "{quiet:?}");
        let noisy = at(0.05, 4);
        assert!(!noisy.reached && noisy.half_width.unwrap() > 0.03, "{noisy:?}");
        assert!(noisy.of.unwrap().starts_with("throughput at new (tcp-stream)"));
        // A change of 20 % has a verdict long before it is known this well: the verdict does not count.
        assert_eq!((noisy.asked, noisy.rounds), (0.03, 4));
    }

    #[test]
    fn rounds_beyond_those_looked_at_do_not_count() {
        let record = made(0.05);
        let first: Vec<Run> = record.runs.iter().filter(|run| run.round < 4).cloned().collect();
        let of = |runs: &[Run]| precision(&record.header, runs, 4, 0.03, &Policy::default());
        assert_eq!(of(&first), of(&record.runs));
    }

    #[test]
    fn what_was_not_measured_is_not_known() {
        let mut record = made(0.0);
        record.runs.retain(|run| run.factors.get(Factor::Engine) == Some("old"));
        let told = precision(&record.header, &record.runs, 4, 0.03, &Policy::default());
        assert_eq!((told.reached, told.half_width), (false, None));
    }
}
