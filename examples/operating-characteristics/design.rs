//! One made-up comparison: its runs, its verdicts, and what is counted over many of them.

use std::thread;

use wglab::cell::Better;
use wglab::stats::CONFIDENCE;
use wglab::verdict::{Decision, Evidence, Measured, PairRuns, Policy, Verdict, Visit, adjust, decide, measure};

use crate::noise::{Noise, Source, mixed};

/// The minimum effect of a gate, under which everything here is judged.
pub(crate) const MIN_EFFECT: f64 = Policy::GATE_EFFECT;

/// What is made up.
#[derive(Clone, Copy)]
pub(crate) struct Design {
    pub(crate) noise: Noise,
    /// The standard deviation of one run, as a log-ratio.
    pub(crate) deviation: f64,
    pub(crate) rounds: u32,
    pub(crate) pairs: usize,
    pub(crate) metrics: usize,
    /// The true change of the first metric, as a log-ratio.
    pub(crate) effect: f64,
    /// The drift from the first to the last run, as a log-ratio.
    pub(crate) drift: f64,
    /// Whether levels alternate. Else all runs of the baseline come first.
    pub(crate) alternated: bool,
    /// What any two metrics have in common: the correlation of their noise.
    pub(crate) correlation: f64,
    /// Whether every test takes a whole part of the error, as in Holm's own procedure.
    pub(crate) whole_parts: bool,
}

pub(crate) const BASE: Design = Design {
    noise: Noise::Gaussian,
    deviation: 0.04,
    rounds: 3,
    pairs: 2,
    metrics: 5,
    effect: 0.0,
    drift: 0.0,
    alternated: true,
    correlation: 0.0,
    whole_parts: false,
};

/// The order in which the conductor visits: round, pair, whether the new level. AB BA AB for one pair, BA AB BA for the next.
fn sequence(design: &Design) -> Vec<(u32, usize, bool)> {
    let mut sequence = Vec::new();
    for round in 0..design.rounds {
        for pair in 0..design.pairs {
            let new_first = (round as usize + pair) % 2 == 1;
            sequence.extend([(round, pair, new_first), (round, pair, !new_first)]);
        }
    }
    if !design.alternated {
        sequence.sort_by_key(|(_, _, new)| *new);
    }
    sequence
}

/// The runs of every metric.
pub(crate) fn runs(design: &Design, source: &mut Source) -> Vec<Vec<PairRuns>> {
    let sequence = sequence(design);
    let last = (sequence.len() - 1) as f64;
    let series = |source: &mut Source| -> Vec<f64> {
        source.restart();
        sequence.iter().map(|_| source.next()).collect()
    };
    let common = (design.correlation > 0.0).then(|| series(source));
    let names: Vec<String> = (0..design.pairs).map(|pair| format!("p{pair}")).collect();
    (0..design.metrics)
        .map(|metric| {
            let effect = if metric == 0 { design.effect } else { 0.0 };
            let own = series(source);
            let mut pairs: Vec<PairRuns> =
                names.iter().map(|name| PairRuns { pair: name.clone(), ..PairRuns::default() }).collect();
            for (order, (round, pair, new)) in sequence.iter().copied().enumerate() {
                let noise = match &common {
                    Some(common) => {
                        design.correlation.sqrt() * common[order] + (1.0 - design.correlation).sqrt() * own[order]
                    }
                    None => own[order],
                };
                let level = if new { effect } else { 0.0 };
                let log = level + design.drift * order as f64 / last + design.deviation * noise;
                let visit = Visit { record: 0, round, order: order as u32, value: 1e9 * log.exp() };
                if new { pairs[pair].new.push(visit) } else { pairs[pair].base.push(visit) }
            }
            pairs
        })
        .collect()
}

/// Judges metrics that share the error, as a comparison does.
pub(crate) fn judge(design: &Design, metrics: &[Vec<PairRuns>]) -> Vec<(Measured, Decision)> {
    let mut measured: Vec<Measured> = metrics.iter().filter_map(|pairs| measure(pairs, false, 1)).collect();
    if design.whole_parts {
        measured.iter_mut().for_each(|measured| measured.size = None);
    }
    let tests = measured.iter().filter(|measured| measured.estimate.is_some()).count();
    let evidence = |measured: &Measured, p_adjusted| Evidence {
        p_adjusted,
        tests,
        better: Better::Higher,
        min_effect: if measured.interleaved { MIN_EFFECT } else { MIN_EFFECT.max(Policy::BETWEEN_RECORDS) },
        floor: 1e6,
        alpha: Policy::ALPHA,
        worse_share: Policy::gate().worse_share(),
    };
    let adjusted = adjust(&measured.iter().map(|measured| (measured, evidence(measured, None))).collect::<Vec<_>>());
    measured
        .into_iter()
        .zip(adjusted)
        .map(|(measured, p_adjusted)| {
            let decision = decide(&measured, &evidence(&measured, p_adjusted));
            (measured, decision)
        })
        .collect()
}

/// Counts over trials.
#[derive(Default, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) trials: usize,
    /// Trials in which anything without a true change was called, either way.
    pub(crate) alarmed: usize,
    /// Trials in which something without a true change was called worse: what fails a gate.
    pub(crate) failed: usize,
    /// Trials in which the first metric was called worse.
    pub(crate) found: usize,
    pub(crate) unchanged: usize,
    pub(crate) inconclusive: usize,
    pub(crate) covered: usize,
    pub(crate) intervals: usize,
    pub(crate) metrics: usize,
}

impl Tally {
    /// Over `trials` comparisons of one design. The same seed gives the same counts, on however many threads.
    pub(crate) fn of(design: &Design, trials: usize, seed: u64) -> Self {
        over_trials(trials, Self::default, Self::joined, |trial, tally| {
            let mut source = Source::new(design.noise, mixed(&[seed, trial as u64]));
            tally.count(&judge(design, &runs(design, &mut source)), design.effect);
        })
    }

    fn count(&mut self, judged: &[(Measured, Decision)], effect: f64) {
        self.trials += 1;
        let truth = |metric: usize| if metric == 0 { effect } else { 0.0 };
        let called = |verdict: Verdict| matches!(verdict, Verdict::Better | Verdict::Worse);
        let still = || judged.iter().enumerate().filter(|(metric, _)| truth(*metric) == 0.0);
        self.alarmed += usize::from(still().any(|(_, (_, decision))| called(decision.verdict)));
        self.failed += usize::from(still().any(|(_, (_, decision))| decision.verdict == Verdict::Worse));
        self.found += usize::from(judged.first().is_some_and(|(_, decision)| decision.verdict == Verdict::Worse));
        for (metric, (measured, decision)) in judged.iter().enumerate() {
            self.metrics += 1;
            self.unchanged += usize::from(decision.verdict == Verdict::NoConsistentChange);
            self.inconclusive += usize::from(decision.verdict == Verdict::Inconclusive);
            if let Some(estimate) = measured.estimate {
                let (low, high) = estimate.interval(CONFIDENCE);
                self.intervals += 1;
                self.covered += usize::from(low <= truth(metric) && truth(metric) <= high);
            }
        }
    }

    fn joined(self, other: Self) -> Self {
        Self {
            trials: self.trials + other.trials,
            alarmed: self.alarmed + other.alarmed,
            failed: self.failed + other.failed,
            found: self.found + other.found,
            unchanged: self.unchanged + other.unchanged,
            inconclusive: self.inconclusive + other.inconclusive,
            covered: self.covered + other.covered,
            intervals: self.intervals + other.intervals,
            metrics: self.metrics + other.metrics,
        }
    }
}

/// Runs `one` for every trial, on as many threads as there are, each with a count of its own.
pub(crate) fn over_trials<T: Send>(
    trials: usize,
    empty: impl Fn() -> T + Sync,
    joined: impl Fn(T, T) -> T,
    one: impl Fn(usize, &mut T) + Sync,
) -> T {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let (empty, one) = (&empty, &one);
    thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let mut part = empty();
                    (thread..trials).step_by(threads).for_each(|trial| one(trial, &mut part));
                    part
                })
            })
            .collect();
        parts.into_iter().map(|part| part.join().expect("a trial does not panic")).fold(empty(), joined)
    })
}

/// `4.2 %`.
pub(crate) fn percent(count: usize, of: usize) -> String {
    if of == 0 { "none".to_owned() } else { format!("{:.1}", 100.0 * count as f64 / of as f64) }
}
