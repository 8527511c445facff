//! The tables over made-up noise.

use std::fmt::Write as _;

use wglab::verdict::Verdict;

use crate::Request;
use crate::design::{BASE, Design, Tally, judge, over_trials, percent, runs};
use crate::noise::{Noise, Source, mixed};

type Table = fn(&Request) -> String;

/// Every table of the section with the name by which `--only` finds it.
pub(crate) const ALL: [(&str, Table); 8] = [
    ("false-alarms", false_alarms),
    ("correlated", correlated),
    ("coverage", coverage),
    ("power", power),
    ("parts", parts),
    ("courses", courses),
    ("rounds", rounds_needed),
    ("followed", followed),
];

/// Tables that stand elsewhere on the page, and are made only when they are asked for.
pub(crate) const ASIDE: [(&str, Table); 1] = [("widths", crate::widths::table)];

const ROUNDS: [u32; 4] = [3, 6, 10, 20];

fn false_alarms(request: &Request) -> String {
    let mut out = String::from(
        "\n#### Nothing changed: comparisons with any false alarm, %\n\nEither way, *better* or *worse*, in any of the metrics; \
         most are *worse*, to which a gate gives nine tenths of the error. The figures stand for 3 / 6 / 10 / 20 rounds.\n\n\
         | noise | pairs | metrics | 2 % noise | 4 % noise | 10 % noise |\n|---|---|---|---|---|---|\n",
    );
    for (kind, (noise, name)) in Noise::ALL.into_iter().enumerate() {
        for pairs in [1, 2, 4] {
            for metrics in [1, 5, 24] {
                let _ = write!(out, "| {name} | {pairs} | {metrics} |");
                for deviation in [0.02, 0.04, 0.10] {
                    let cells = ROUNDS.map(|rounds| {
                        let design = Design { noise, deviation, rounds, pairs, metrics, ..BASE };
                        let line =
                            [kind as u64, pairs as u64, metrics as u64, (deviation * 1000.0) as u64, rounds.into()];
                        let tally = Tally::of(&design, request.trials, mixed(&[request.seed, 1, mixed(&line)]));
                        percent(tally.alarmed, tally.trials)
                    });
                    let _ = write!(out, " {} |", cells.join(" / "));
                }
                out.push('\n');
            }
        }
    }
    out
}

fn lost(loss: f64) -> String {
    if loss == 0.0 { "none".to_owned() } else { format!("-{:.0} %", loss * 100.0) }
}

fn correlated(request: &Request) -> String {
    let mut out = String::from(
        "\n#### One of 24 metrics changed, and the others move with its noise: a false alarm among the others, %\n\nTwo pairs, \
         Gaussian noise; any two metrics have the correlation that the line says.\n\n\
         | correlation | true change | noise | 3 rounds | 6 | 10 |\n|---|---|---|---|---|---|\n",
    );
    for correlation in [0.0, 0.5, 0.9] {
        for loss in [0.0, 0.08, 0.20] {
            for deviation in [0.04, 0.10] {
                let cells = [3, 6, 10].map(|rounds| {
                    let effect = (1.0_f64 - loss).ln();
                    let design = Design { correlation, effect, deviation, rounds, metrics: 24, ..BASE };
                    let line = [(correlation * 10.0) as u64, (loss * 100.0) as u64, (deviation * 1000.0) as u64];
                    let seed = mixed(&[request.seed, 2, mixed(&line), rounds.into()]);
                    let tally = Tally::of(&design, request.trials, seed);
                    percent(tally.alarmed, tally.trials)
                });
                let _ = writeln!(
                    out,
                    "| {correlation} | {} | {:.0} % | {} |",
                    lost(loss),
                    deviation * 100.0,
                    cells.join(" | ")
                );
            }
        }
    }
    out
}

fn coverage(request: &Request) -> String {
    let mut out = String::from(
        "\n#### The 95 % interval covers the true change, % of intervals; and the share of verdicts that are inconclusive, %\n\n\
         Two pairs, five metrics, the first with a true change of -8 %. For 3 / 6 / 10 / 20 rounds.\n\n\
         | noise | size | interval covers | inconclusive |\n|---|---|---|---|\n",
    );
    for (kind, (noise, name)) in Noise::ALL.into_iter().enumerate() {
        for deviation in [0.02, 0.04, 0.10] {
            let tallies = ROUNDS.map(|rounds| {
                let design = Design { noise, deviation, rounds, effect: 0.92_f64.ln(), ..BASE };
                let seed = mixed(&[request.seed, 3, kind as u64, (deviation * 1000.0) as u64, rounds.into()]);
                Tally::of(&design, request.trials, seed)
            });
            let _ = writeln!(
                out,
                "| {name} | {:.0} % | {} | {} |",
                deviation * 100.0,
                tallies.map(|tally| percent(tally.covered, tally.intervals)).join(" / "),
                tallies.map(|tally| percent(tally.inconclusive, tally.metrics)).join(" / "),
            );
        }
    }
    out
}

fn power(request: &Request) -> String {
    let mut out = String::from(
        "\n#### One metric lost what the line says: called *worse*, %\n\nFor 3 / 6 / 10 / 20 rounds. A loss at the minimum effect \
         itself cannot be found more often than half of the time: its estimate is below the minimum as often as above.\n\n\
         | loss | noise | pairs | 1 metric | 5 metrics | 24 metrics |\n|---|---|---|---|---|---|\n",
    );
    for (loss, deviation, noise, name) in [
        (0.01, 0.04, Noise::Gaussian, ""),
        (0.05, 0.04, Noise::Gaussian, ""),
        (0.08, 0.02, Noise::Gaussian, ""),
        (0.08, 0.04, Noise::Gaussian, ""),
        (0.08, 0.04, Noise::Autoregressive, ", AR(1)"),
        (0.08, 0.04, Noise::Bimodal, ", two modes"),
        (0.08, 0.04, Noise::HeavyTailed, ", heavy tails"),
        (0.10, 0.04, Noise::Gaussian, ""),
        (0.20, 0.04, Noise::Gaussian, ""),
        (0.20, 0.10, Noise::Gaussian, ""),
    ] {
        for pairs in [1, 2] {
            let _ = write!(out, "| {:.0} % | {:.0} %{name} | {pairs} |", loss * 100.0, deviation * 100.0);
            for metrics in [1, 5, 24] {
                let found = found_by_rounds(request, |rounds| {
                    let effect = (1.0_f64 - loss).ln();
                    let design = Design { noise, deviation, rounds, pairs, metrics, effect, ..BASE };
                    let line = [(loss * 100.0) as u64, (deviation * 1000.0) as u64, noise as u64, pairs as u64];
                    (design, mixed(&[request.seed, 4, mixed(&line), metrics as u64, rounds.into()]))
                });
                let _ = write!(out, " {found} |");
            }
            out.push('\n');
        }
    }
    out
}

/// How often the loss is found with each number of rounds, in percent; `line` gives the design and its seed.
fn found_by_rounds(request: &Request, line: impl Fn(u32) -> (Design, u64)) -> String {
    let cells = ROUNDS.map(|rounds| {
        let (design, seed) = line(rounds);
        let tally = Tally::of(&design, request.trials, seed);
        percent(tally.found, tally.trials)
    });
    cells.join(" / ")
}

fn parts(request: &Request) -> String {
    let mut out = String::from(
        "\n#### What it gains that small noise takes a small part of the error\n\nOne metric of several lost 8 %; 4 % Gaussian \
         noise, one pair. Called *worse*, %, by Holm's procedure as it stands and by the rule of \
         [decision 6](decisions/0006-a-test-takes-the-part-of-the-error-that-it-could-spend.md), on the same made-up runs. For 3 / 6 / 10 / 20 rounds.\n\n\
         | metrics | Holm | as it is judged |\n|---|---|---|\n",
    );
    for metrics in [5, 24, 60] {
        let _ = write!(out, "| {metrics} |");
        for whole_parts in [true, false] {
            let found = found_by_rounds(request, |rounds| {
                let design = Design { rounds, pairs: 1, metrics, effect: 0.92_f64.ln(), whole_parts, ..BASE };
                (design, mixed(&[request.seed, 9, metrics as u64, rounds.into()]))
            });
            let _ = write!(out, " {found} |");
        }
        out.push('\n');
    }
    out
}

fn courses(request: &Request) -> String {
    let mut out = String::from(
        "\n#### A machine that drifts by 20 % over the record: comparisons with any false alarm, %\n\nNothing changed, 4 % Gaussian \
         noise, five metrics.\n\n| order | pairs | 3 rounds | 6 | 10 |\n|---|---|---|---|---|\n",
    );
    for (alternated, name) in [(true, "AB BA AB, as the lab runs them"), (false, "all A, then all B")] {
        for pairs in [1, 2] {
            let cells = [3, 6, 10].map(|rounds| {
                let design = Design { alternated, rounds, pairs, drift: 0.2, ..BASE };
                let seed = mixed(&[request.seed, 5, u64::from(alternated), pairs as u64, rounds.into()]);
                let tally = Tally::of(&design, request.trials, seed);
                percent(tally.alarmed, tally.trials)
            });
            let _ = writeln!(out, "| {name} | {pairs} | {} |", cells.join(" | "));
        }
    }
    out
}

/// Whether a forecast came true: the same runs, gone on with.
fn rounds_needed(request: &Request) -> String {
    let mut out = String::from(
        "\n#### \"About N rounds would decide\": whether they did\n\nOne metric, Gaussian noise. Of the records that were \
         inconclusive and named a number of rounds (up to 300), the same series went on to that number.\n\n\
         | true change | noise | pairs | after | inconclusive, % | median forecast | decided then, % |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for (loss, deviation) in [(0.0, 0.04), (0.0, 0.10), (0.08, 0.04), (0.08, 0.10)] {
        for pairs in [1, 2] {
            for rounds in [3, 6, 10] {
                let effect = (1.0_f64 - loss).ln();
                let design = Design { deviation, rounds, pairs, metrics: 1, effect, ..BASE };
                let seed = mixed(&[request.seed, 6, (loss * 100.0) as u64, (deviation * 1000.0) as u64, pairs as u64]);
                let seed = mixed(&[seed, rounds.into()]);
                let joined = |mut a: (Vec<u32>, usize, usize), b: (Vec<u32>, usize, usize)| {
                    a.0.extend(b.0);
                    (a.0, a.1 + b.1, a.2 + b.2)
                };
                let empty = || (Vec::new(), 0, 0);
                let (mut forecasts, decided, open) = over_trials(request.trials, empty, joined, |trial, sum| {
                    let judged = |rounds: u32| {
                        let mut source = Source::new(design.noise, mixed(&[seed, trial as u64]));
                        judge(&design, &runs(&Design { rounds, ..design }, &mut source)).remove(0).1
                    };
                    let first = judged(rounds);
                    if first.verdict != Verdict::Inconclusive {
                        return;
                    }
                    sum.2 += 1;
                    if let Some(needed) = first.rounds.filter(|needed| *needed <= 300) {
                        sum.0.push(needed);
                        sum.1 += usize::from(judged(needed).verdict != Verdict::Inconclusive);
                    }
                });
                forecasts.sort_unstable();
                let median = forecasts.get(forecasts.len() / 2).map_or_else(|| "none".to_owned(), ToString::to_string);
                let _ = writeln!(
                    out,
                    "| {} | {:.0} % | {pairs} | {rounds} rounds | {} | {median} | {} |",
                    lost(loss),
                    deviation * 100.0,
                    percent(open, request.trials),
                    percent(decided, forecasts.len()),
                );
            }
        }
    }
    out
}

/// False alarms of someone who does as the report says: measures again with the rounds that would decide.
fn followed(request: &Request) -> String {
    let mut out = String::from(
        "\n#### Nothing changed, and the advice was followed: any false alarm in the first record or the second, %\n\nFive metrics, \
         two pairs, Gaussian noise. Where the first record was inconclusive, a second one was made with the most rounds that \
         any metric asked for (at most 60).\n\n| noise | first record | in the first | in either |\n|---|---|---|---|\n",
    );
    for deviation in [0.04, 0.10] {
        for rounds in [3, 6, 10] {
            let design = Design { deviation, rounds, ..BASE };
            let seed = mixed(&[request.seed, 7, (deviation * 1000.0) as u64, rounds.into()]);
            let joined = |a: (usize, usize), b: (usize, usize)| (a.0 + b.0, a.1 + b.1);
            let (first, either) = over_trials(
                request.trials,
                || (0, 0),
                joined,
                |trial, sum| {
                    let called = |verdict: Verdict| matches!(verdict, Verdict::Better | Verdict::Worse);
                    let judged = |rounds: u32, part: u64| {
                        let mut source = Source::new(design.noise, mixed(&[seed, trial as u64, part]));
                        judge(&design, &runs(&Design { rounds, ..design }, &mut source))
                    };
                    let once = judged(rounds, 0);
                    if once.iter().any(|(_, decision)| called(decision.verdict)) {
                        *sum = (sum.0 + 1, sum.1 + 1);
                        return;
                    }
                    let more = once.iter().filter(|(_, decision)| decision.verdict == Verdict::Inconclusive);
                    if let Some(needed) = more.filter_map(|(_, decision)| decision.rounds).max() {
                        let again = judged(needed.min(60), 1);
                        sum.1 += usize::from(again.iter().any(|(_, decision)| called(decision.verdict)));
                    }
                },
            );
            let _ = writeln!(
                out,
                "| {:.0} % | {rounds} rounds | {} | {} |",
                deviation * 100.0,
                percent(first, request.trials),
                percent(either, request.trials)
            );
        }
    }
    out
}
