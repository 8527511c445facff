//! What a verdict must be, by hand-made records.

mod courses;
mod decisions;
mod families;
mod picks;
mod records;
mod series;
mod tunnels;

use super::*;
use crate::record::fixture::Made;
use crate::stats::known::{N1, N2, N3};

const RATE: &str = "throughput_bits_per_second";
const RR: &str = "rr_p50_ns";

/// One pair, two engines, one metric.
fn engines(base: &[f64], new: &[f64], metric: &str) -> Made {
    let mut made = Made::new(Factor::Engine, &[(Factor::Engine, &["old", "new"])]);
    for (round, (base, new)) in base.iter().zip(new).enumerate() {
        let mut levels = [("old", *base), ("new", *new)];
        if round % 2 == 1 {
            levels.reverse();
        }
        for (engine, value) in levels {
            made.run(round as u32, &[(Factor::Pair, "a1>a2"), (Factor::Engine, engine)], &[(metric, value)]);
        }
    }
    made
}

fn within(made: &Made, policy: &Policy) -> Comparison {
    compare(&[Source { name: "run", record: &made.record }], None, policy).unwrap()
}

fn verdict_of(base: &[f64], new: &[f64], metric: &str, policy: &Policy) -> Row {
    within(&engines(base, new, metric), policy).rows.remove(0)
}

/// Two records of raw and embedded, the second scaled.
fn two_records(raw: f64, tunnel: f64) -> (Made, Made) {
    let record = |raw: f64, tunnel: f64| {
        let mut made = Made::new(Factor::Engine, &[(Factor::Engine, &["raw", "embedded"])]);
        for round in 0..6 {
            for (engine, rate) in [("raw", 9.4e9 * raw), ("embedded", 3.2e9 * tunnel)] {
                let value = rate * made.noise(0.01);
                made.run(round, &[(Factor::Pair, "a1>a2"), (Factor::Engine, engine)], &[(RATE, value)]);
            }
        }
        made
    };
    (record(1.0, 1.0), record(raw, tunnel))
}

fn between(old: &Made, new: &Made, policy: &Policy) -> Result<Comparison, VerdictError> {
    compare(&[Source { name: "old", record: &old.record }, Source { name: "new", record: &new.record }], None, policy)
}
