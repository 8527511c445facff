//! The table over real noise: records of A/A runs, their two levels dealt anew by lot.
//!
//! Whole windows of neighbouring rounds are taken, and one lot falls for everything in a round, so what depends on each other
//! in time or over metrics stays together.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use wglab::cell::{Cell, Factor};
use wglab::record::{Record, Run};
use wglab::verdict::{Policy, Source, Verdict, compare};

use crate::Request;
use crate::design::{over_trials, percent};
use crate::noise::mixed;

/// A record's rounds, each with its runs of the two levels.
struct Aa {
    record: Record,
    rounds: Vec<Vec<Run>>,
    levels: [String; 2],
    spread: f64,
}

impl Aa {
    fn read(path: &str) -> Result<Self, Box<dyn Error>> {
        let file = if std::fs::metadata(path)?.is_dir() { format!("{path}/runs.jsonl") } else { path.to_owned() };
        let record = Record::parse(std::fs::read(&file)?)?;
        let named = record.header.levels.get(&Factor::Engine).cloned().unwrap_or_default();
        let levels: Vec<String> = named.into_iter().filter(|level| level != "raw").collect();
        let [a, b] = levels.as_slice() else {
            return Err(format!("{path} is no A/A record: it has {} engines beside raw, not 2", levels.len()).into());
        };
        let levels = [a.clone(), b.clone()];
        let mut rounds: BTreeMap<u32, Vec<Run>> = BTreeMap::new();
        for run in
            record.usable().filter(|run| run.factors.get(Factor::Engine).is_some_and(|e| levels.iter().any(|l| l == e)))
        {
            rounds.entry(run.round).or_default().push(run.clone());
        }
        let rounds: Vec<Vec<Run>> = rounds.into_values().collect();
        let spread = spread(&rounds);
        Ok(Self { record, rounds, levels, spread })
    }

    /// `rounds` neighbouring rounds, the levels of each dealt by lot.
    fn dealt(&self, rounds: usize, rng: &mut ChaCha8Rng) -> Record {
        let first = (rng.next_u64() % (self.rounds.len() - rounds + 1) as u64) as usize;
        let mut runs = Vec::new();
        for round in &self.rounds[first..first + rounds] {
            let swapped = rng.next_u32() & 1 == 1;
            for run in round {
                let is_first = run.factors.get(Factor::Engine) == Some(&self.levels[0]);
                let level = &self.levels[usize::from(is_first == swapped)];
                runs.push(Run { factors: run.factors.clone().with(Factor::Engine, level.clone()), ..run.clone() });
            }
        }
        Record {
            header: self.record.header.clone(),
            resumed: Vec::new(),
            runs,
            end: None,
            cut: None,
            superseded: Vec::new(),
            whole_bytes: 0,
            notes: Vec::new(),
        }
    }
}

/// The median over cells of the standard deviation of a run's throughput, as a log-ratio.
fn spread(rounds: &[Vec<Run>]) -> f64 {
    let mut cells: BTreeMap<Cell, Vec<f64>> = BTreeMap::new();
    for run in rounds.iter().flatten() {
        if let Some(rate) = run.metrics.get("throughput_bits_per_second").filter(|rate| **rate > 0.0) {
            cells.entry(run.factors.clone().without(Factor::Engine)).or_default().push(rate.ln());
        }
    }
    let mut deviations: Vec<f64> = cells
        .values()
        .filter(|values| values.len() > 2)
        .map(|values| {
            let center = values.iter().sum::<f64>() / values.len() as f64;
            (values.iter().map(|value| (value - center).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)).sqrt()
        })
        .collect();
    deviations.sort_by(f64::total_cmp);
    deviations.get(deviations.len() / 2).copied().unwrap_or(f64::NAN)
}

#[derive(Default, Clone, Copy)]
struct Counts {
    alarmed: usize,
    failed: usize,
    judged: usize,
    unchanged: usize,
    inconclusive: usize,
    refused: usize,
}

pub(crate) fn table(request: &Request, paths: &[String]) -> Result<String, Box<dyn Error>> {
    let mut out = String::from(
        "\n#### Real noise: A/A runs of this lab, levels dealt anew\n\nEach trial takes a window of neighbouring rounds of one \
         record and deals the two levels of each round by lot, everything of a round together, so nothing has changed and what \
         depends on each other stays together. It goes through the whole comparison, underlays taken together included.\n\n\
         | record | rounds | noise of a run's throughput | rounds used | any false alarm, % | a gate that fails, % | \
         no consistent change, % | inconclusive, % |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (place, path) in paths.iter().enumerate() {
        let aa = Aa::read(path)?;
        for rounds in [3, 6, 10] {
            if aa.rounds.len() < rounds {
                continue;
            }
            let seed = mixed(&[request.seed, 8, place as u64, rounds as u64]);
            let joined = |a: Counts, b: Counts| Counts {
                alarmed: a.alarmed + b.alarmed,
                failed: a.failed + b.failed,
                judged: a.judged + b.judged,
                unchanged: a.unchanged + b.unchanged,
                inconclusive: a.inconclusive + b.inconclusive,
                refused: a.refused + b.refused,
            };
            let counts = over_trials(request.trials, Counts::default, joined, |trial, counts| {
                let mut rng = ChaCha8Rng::seed_from_u64(mixed(&[seed, trial as u64]));
                let record = aa.dealt(rounds, &mut rng);
                let source = [Source { name: "a/a", record: &record }];
                let Ok(comparison) = compare(&source, None, &Policy::gate()) else {
                    counts.refused += 1;
                    return;
                };
                let verdicts = || comparison.rows.iter().filter_map(|row| row.verdict);
                let with = |verdict: Verdict| verdicts().filter(|other| *other == verdict).count();
                counts.alarmed += usize::from(with(Verdict::Better) + with(Verdict::Worse) > 0);
                counts.failed += usize::from(with(Verdict::Worse) > 0);
                counts.judged += verdicts().count();
                counts.unchanged += with(Verdict::NoConsistentChange);
                counts.inconclusive += with(Verdict::Inconclusive);
            });
            if counts.refused > 0 {
                return Err(format!("{path}: {} trials could not be compared", counts.refused).into());
            }
            let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or(path);
            let _ = writeln!(
                out,
                "| {name} | {} | {:.1} % | {rounds} | {} | {} | {} | {} |",
                aa.rounds.len(),
                aa.spread * 100.0,
                percent(counts.alarmed, request.trials),
                percent(counts.failed, request.trials),
                percent(counts.unchanged, counts.judged),
                percent(counts.inconclusive, counts.judged),
            );
        }
    }
    Ok(out)
}
