//! How often the lab's verdicts are wrong: the tables of `docs/statistics.md`.
//!
//! ```text
//! cargo run --release --example operating-characteristics [TRIALS [RUNS.JSONL...]]
//! ```
//!
//! Made-up runs go through the same [`measure`], [`holm`] and [`decide`] that a comparison uses. Records of A/A runs, if
//! any are given, stand in for the made-up noise: their values are dealt to two levels by lot, so nothing has changed.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use wglab::cell::{Better, Factor};
use wglab::record::Record;
use wglab::stats::{CONFIDENCE, holm};
use wglab::verdict::{Decision, Evidence, Measured, PairRuns, Policy, Verdict, Visit, decide, measure};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let trials: usize = arguments.next().map_or(Ok(400), |text| text.parse())?;
    let mut out = io::stdout().lock();
    false_alarms(trials, &mut out)?;
    courses(trials, &mut out)?;
    power(trials, &mut out)?;
    for path in arguments {
        let record = Record::parse(std::fs::read(&path)?)?;
        recorded(trials, &path, &record, &mut out)?;
    }
    Ok(())
}

/// What one run differs by from its level.
#[derive(Clone, Copy)]
enum Noise {
    /// Independent and normal.
    Gaussian,
    /// Each run remembers 0.6 of the one before it, over all levels.
    Autoregressive,
    /// Two modes, four deviations apart, each run in either.
    Bimodal,
    /// Student's t with three degrees of freedom.
    HeavyTailed,
}

impl Noise {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Gaussian, "Gaussian"),
        (Self::Autoregressive, "AR(1), 0.6"),
        (Self::Bimodal, "two modes"),
        (Self::HeavyTailed, "t, 3 degrees"),
    ];
}

/// A source of log-noise with standard deviation one.
struct Source {
    noise: Noise,
    rng: ChaCha8Rng,
    last: f64,
}

impl Source {
    fn uniform(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.uniform()).ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    fn next(&mut self) -> f64 {
        match self.noise {
            Noise::Gaussian => self.normal(),
            Noise::Autoregressive => {
                self.last = 0.6 * self.last + 0.8 * self.normal();
                self.last
            }
            Noise::Bimodal => {
                let mode = if self.uniform() < 0.5 { -2.0 } else { 2.0 };
                (mode + self.normal()) / 5.0_f64.sqrt()
            }
            Noise::HeavyTailed => {
                let chi: f64 = (0..3).map(|_| self.normal().powi(2)).sum();
                // The variance of t with three degrees of freedom is three.
                self.normal() / (chi / 3.0).sqrt() / 3.0_f64.sqrt()
            }
        }
    }
}

/// One made-up comparison.
#[derive(Clone, Copy)]
struct Design {
    noise: Noise,
    deviation: f64,
    rounds: u32,
    pairs: usize,
    metrics: usize,
    /// The true change of the first metric, as a log-ratio.
    effect: f64,
    /// The drift from the first to the last run, as a log-ratio.
    drift: f64,
    /// Whether levels alternate. Else all runs of the baseline come first.
    alternated: bool,
}

const BASE: Design = Design {
    noise: Noise::Gaussian,
    deviation: 0.04,
    rounds: 3,
    pairs: 2,
    metrics: 5,
    effect: 0.0,
    drift: 0.0,
    alternated: true,
};

/// The runs of one metric, in the order in which the conductor visits: AB BA AB for one pair, BA AB BA for the next.
fn runs(design: &Design, effect: f64, source: &mut Source) -> Vec<PairRuns> {
    let mut sequence: Vec<(u32, usize, bool)> = Vec::new();
    for round in 0..design.rounds {
        for pair in 0..design.pairs {
            let new_first = (round as usize + pair) % 2 == 1;
            sequence.extend([(round, pair, new_first), (round, pair, !new_first)]);
        }
    }
    if !design.alternated {
        sequence.sort_by_key(|(_, _, new)| *new);
    }
    let name = |pair: usize| format!("p{pair}");
    let mut pairs: Vec<PairRuns> =
        (0..design.pairs).map(|pair| PairRuns { pair: name(pair), ..PairRuns::default() }).collect();
    let last = (sequence.len() - 1) as f64;
    for (order, (round, pair, new)) in sequence.into_iter().enumerate() {
        let level = if new { effect } else { 0.0 };
        let log = level + design.drift * order as f64 / last + design.deviation * source.next();
        let visit = Visit { record: 0, round, order: order as u32, value: 1e9 * log.exp() };
        if new { pairs[pair].new.push(visit) } else { pairs[pair].base.push(visit) }
    }
    pairs
}

/// Judges metrics that share the error, as a gate does.
fn judge(metrics: &[Vec<PairRuns>], min_effect: f64) -> Vec<(Measured, Decision)> {
    let measured: Vec<Measured> = metrics.iter().filter_map(|pairs| measure(pairs, false, 1)).collect();
    let p_values: Vec<f64> = measured.iter().map(|m| m.estimate.map_or(1.0, |estimate| estimate.p_value())).collect();
    let adjusted = holm(&p_values);
    measured
        .into_iter()
        .zip(adjusted)
        .map(|(measured, p)| {
            let evidence = Evidence {
                p_adjusted: Some(p),
                tests: p_values.len(),
                better: Better::Higher,
                min_effect,
                floor: 1e6,
                alpha: Policy::ALPHA,
            };
            let decision = decide(&measured, &evidence);
            (measured, decision)
        })
        .collect()
}

/// Shares over trials.
#[derive(Default)]
struct Tally {
    trials: usize,
    alarmed: usize,
    found: usize,
    unchanged: usize,
    inconclusive: usize,
    covered: usize,
    intervals: usize,
    metrics: usize,
}

impl Tally {
    fn of(design: &Design, trials: usize, min_effect: f64, seed: u64) -> Self {
        let mut tally = Self::default();
        for trial in 0..trials {
            let rng = ChaCha8Rng::seed_from_u64(seed ^ (trial as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let mut source = Source { noise: design.noise, rng, last: 0.0 };
            let effect = |metric: usize| if metric == 0 { design.effect } else { 0.0 };
            let metrics: Vec<Vec<PairRuns>> =
                (0..design.metrics).map(|metric| runs(design, effect(metric), &mut source)).collect();
            let truth: Vec<f64> = (0..design.metrics).map(effect).collect();
            tally.count(&judge(&metrics, min_effect), &truth);
        }
        tally
    }

    fn count(&mut self, judged: &[(Measured, Decision)], truth: &[f64]) {
        self.trials += 1;
        let called = |decision: &Decision| matches!(decision.verdict, Verdict::Better | Verdict::Worse);
        let false_alarm = judged.iter().zip(truth).any(|((_, decision), truth)| *truth == 0.0 && called(decision));
        self.alarmed += usize::from(false_alarm);
        if let Some((_, decision)) = judged.first() {
            self.found += usize::from(decision.verdict == Verdict::Worse);
        }
        for ((measured, decision), truth) in judged.iter().zip(truth) {
            self.metrics += 1;
            self.unchanged += usize::from(decision.verdict == Verdict::NoConsistentChange);
            self.inconclusive += usize::from(decision.verdict == Verdict::Inconclusive);
            if let Some(estimate) = measured.estimate {
                let (low, high) = estimate.interval(CONFIDENCE);
                self.intervals += 1;
                self.covered += usize::from(low <= *truth && *truth <= high);
            }
        }
    }

    fn percent(count: usize, of: usize) -> String {
        if of == 0 { "none".to_owned() } else { format!("{:.1} %", 100.0 * count as f64 / of as f64) }
    }
}

fn false_alarms(trials: usize, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "### Nothing changed\n\n{trials} trials a line, 2 pairs, minimum effect 5 %.\n")?;
    writeln!(
        out,
        "| noise | size | rounds | verdicts | any false alarm | no consistent change | inconclusive | 95 % interval covers |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|")?;
    for (noise, name) in Noise::ALL {
        for deviation in [0.04, 0.10] {
            for rounds in [3, 6, 10] {
                for metrics in [5, 30] {
                    let design = Design { noise, deviation, rounds, metrics, ..BASE };
                    let tally = Tally::of(&design, trials, 0.05, 1);
                    writeln!(
                        out,
                        "| {name} | {:.0} % | {rounds} | {metrics} | {} | {} | {} | {} |",
                        deviation * 100.0,
                        Tally::percent(tally.alarmed, tally.trials),
                        Tally::percent(tally.unchanged, tally.metrics),
                        Tally::percent(tally.inconclusive, tally.metrics),
                        Tally::percent(tally.covered, tally.intervals),
                    )?;
                }
            }
        }
    }
    Ok(())
}

fn courses(trials: usize, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\n### A machine that drifts by 20 % over the record\n\nNothing changed, 4 % noise, 5 verdicts.\n")?;
    writeln!(out, "| order | pairs | rounds | any false alarm |\n|---|---|---|---|")?;
    for (alternated, name) in [(true, "AB BA AB"), (false, "all A, then all B")] {
        for (pairs, rounds) in [(1, 3), (1, 10), (2, 3), (2, 10)] {
            let design = Design { alternated, rounds, pairs, drift: 0.2, ..BASE };
            let tally = Tally::of(&design, trials, 0.05, 2);
            writeln!(out, "| {name} | {pairs} | {rounds} | {} |", Tally::percent(tally.alarmed, tally.trials))?;
        }
    }
    Ok(())
}

fn power(trials: usize, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\n### One metric of five lost what the line says\n\nMinimum effect 5 %, Gaussian noise.\n")?;
    writeln!(
        out,
        "| loss | noise | pairs | rounds | called worse | inconclusive or unchanged | a false alarm beside it |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    for (loss, deviation) in [(0.08, 0.04), (0.10, 0.04), (0.20, 0.04), (0.01, 0.04), (0.10, 0.02), (0.20, 0.10)] {
        for (pairs, rounds) in [(1, 3), (1, 6), (1, 10), (2, 3), (2, 6), (2, 10)] {
            let effect = (1.0_f64 - loss).ln();
            let design = Design { deviation, rounds, pairs, effect, ..BASE };
            let tally = Tally::of(&design, trials, 0.05, 3);
            writeln!(
                out,
                "| {:.0} % | {:.0} % | {pairs} | {rounds} | {} | {} | {} |",
                loss * 100.0,
                deviation * 100.0,
                Tally::percent(tally.found, tally.trials),
                Tally::percent(tally.trials - tally.found, tally.trials),
                Tally::percent(tally.alarmed, tally.trials),
            )?;
        }
    }
    Ok(())
}

/// The gated metrics of a record, dealt to two levels by lot within each pair of neighbouring rounds of a cell.
fn recorded(trials: usize, path: &str, record: &Record, out: &mut impl Write) -> io::Result<()> {
    let mut series: BTreeMap<String, BTreeMap<String, Vec<f64>>> = BTreeMap::new();
    let mut usable: Vec<_> = record.usable().collect();
    usable.sort_by_key(|run| run.order);
    for run in usable {
        let pair = run.factors.get(Factor::Pair).unwrap_or("").to_owned();
        let cell = run.factors.clone().without(Factor::Pair);
        for (name, value) in run.metrics.iter().filter(|(name, value)| Policy::gate().judges(name) && **value > 0.0) {
            series.entry(format!("{cell} {name}")).or_default().entry(pair.clone()).or_default().push(*value);
        }
    }
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let mut tally = Tally::default();
    for _ in 0..trials {
        let metrics: Vec<Vec<PairRuns>> = series.values().map(|pairs| dealt(pairs, &mut rng)).collect();
        let truth = vec![0.0; metrics.len()];
        tally.count(&judge(&metrics, 0.05), &truth);
    }
    writeln!(out, "\n### Noise recorded in {path}\n")?;
    writeln!(
        out,
        "{trials} trials of {} verdicts: any false alarm {}, no consistent change {}, inconclusive {}.",
        series.len(),
        Tally::percent(tally.alarmed, tally.trials),
        Tally::percent(tally.unchanged, tally.metrics),
        Tally::percent(tally.inconclusive, tally.metrics),
    )
}

fn dealt(pairs: &BTreeMap<String, Vec<f64>>, rng: &mut ChaCha8Rng) -> Vec<PairRuns> {
    pairs
        .iter()
        .map(|(pair, values)| {
            let mut runs = PairRuns { pair: pair.clone(), ..PairRuns::default() };
            for (round, two) in values.chunks_exact(2).enumerate() {
                let swap = usize::from(rng.next_u32() & 1 == 1);
                let visit =
                    |place: usize| Visit { record: 0, round: round as u32, order: place as u32, value: two[place] };
                runs.base.push(visit(swap));
                runs.new.push(visit(1 - swap));
            }
            runs
        })
        .collect()
}
