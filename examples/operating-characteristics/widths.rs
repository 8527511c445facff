//! Rounds that end on a width: how often the interval that they end with holds the truth.

use std::fmt::Write as _;

use wglab::stats::paired::{Estimate, within_blocks};

use crate::Request;
use crate::design::percent;
use crate::noise::{Noise, Source, mixed};

const TARGET: f64 = 0.03;
/// A run is looked at after four rounds and every two more: then AB and BA are in balance.
const LOOKS: [usize; 9] = [4, 6, 8, 10, 12, 14, 16, 18, 20];

pub(crate) fn table(request: &Request) -> String {
    const DEVIATIONS: [f64; 7] = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08];
    let mut out = format!(
        "\n#### Rounds that end when the interval is within {:.0} %: intervals that hold, % / mean rounds\n\nPaired differences \
         without a change, Gaussian, of this standard deviation; looked at after rounds 4, 6, ... 20.\n\n| pairs |{} |\n|---|{}\n",
        TARGET * 100.0,
        DEVIATIONS.map(|deviation| format!(" {:.0} %", deviation * 100.0)).join(" |"),
        "---|".repeat(DEVIATIONS.len())
    );
    for pairs in [1, 2] {
        let _ = write!(out, "| {pairs} |");
        for deviation in DEVIATIONS {
            let line = [request.seed, 10, pairs as u64, (deviation * 1000.0) as u64];
            let (mut held, mut rounds) = (0, 0);
            for trial in 0..request.trials {
                let (estimate, ended) = ended(pairs, deviation, mixed(&[mixed(&line), trial as u64]));
                let (low, high) = estimate.interval(0.95);
                held += usize::from(low <= 0.0 && 0.0 <= high);
                rounds += ended;
            }
            let mean = rounds as f64 / request.trials as f64;
            let _ = write!(out, " {} / {mean:.1} |", percent(held, request.trials));
        }
        out.push('\n');
    }
    out
}

/// What one run ends with, and after how many rounds.
fn ended(pairs: usize, deviation: f64, seed: u64) -> (Estimate, usize) {
    let mut source = Source::new(Noise::Gaussian, seed);
    let mut blocks = vec![Vec::new(); pairs];
    let mut last = None;
    for rounds in LOOKS {
        for block in &mut blocks {
            while block.len() < rounds {
                block.push(deviation * source.normal());
            }
        }
        let estimate = within_blocks(&blocks).unwrap_or(Estimate { mean: 0.0, error: f64::INFINITY, freedom: 1.0 });
        last = Some((estimate, rounds));
        if estimate.half_width(0.95) <= TARGET {
            break;
        }
    }
    last.unwrap_or((Estimate { mean: 0.0, error: f64::INFINITY, freedom: 1.0 }, 0))
}
