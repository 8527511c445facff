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

const RATE: &str = "throughput_bits_per_second";
const RR: &str = "rr_p50_ns";

/// Series whose verdicts are known, Mbit/s: base and new by round. No change; -6 %; three samples.
const N1: ([f64; 12], [f64; 12]) = (
    [2375., 2449., 2378., 2370., 2311., 2380., 2507., 2441., 2500., 2424., 2438., 2418.],
    [2240., 2482., 2449., 2448., 2238., 2233., 2315., 2355., 2429., 2396., 2450., 2338.],
);
const N2: ([f64; 12], [f64; 12]) = (
    [2409., 2412., 2380., 2452., 2417., 2436., 2381., 2378., 2390., 2397., 2419., 2407.],
    [2243., 2227., 2240., 2293., 2232., 2263., 2269., 2211., 2257., 2295., 2196., 2246.],
);
const N3: ([f64; 3], [f64; 3]) = ([4966., 1140., 8790.], [4700., 5200., 4400.]);

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
