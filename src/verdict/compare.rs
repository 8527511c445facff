//! The comparison: every cell and metric at two levels, estimated, adjusted, judged.

use std::collections::{BTreeMap, BTreeSet};

use super::arms::{self, Arm};
use super::decide::{self, Decision, Evidence, Judgement, Measured, Scale};
use super::{By, Change, Comparison, PairRow, Policy, Row, Source, Unmeasured, Verdict, VerdictError};
use super::{cells, command, comparable, course};
use crate::cell::{Better, Cell, Factor, METRICS, Metric, Quantity, format_as, metric, printable};
use crate::stats::{CONFIDENCE, Summary, holm};

/// The engine that is no engine: the underlay itself.
const RAW: &str = "raw";

/// Compares the levels of a factor over `sources`, or the sources themselves. Without `by`, two records or more are
/// compared as they stand, and one by the factor that its topology names.
///
/// # Errors
/// Nothing to compare, a level that no run has, or records whose conditions differ: see [`VerdictError`].
pub fn compare(sources: &[Source<'_>], by: Option<&By>, policy: &Policy) -> Result<Comparison, VerdictError> {
    let first = sources.first().ok_or(VerdictError::NoRecord)?;
    let by = match by {
        Some(by) => by.clone(),
        None if sources.len() > 1 => By::Record,
        None => match first.record.header.compare {
            Some(factor) => By::factor(factor),
            None => return Err(VerdictError::NoFactor { candidates: candidates(first) }),
        },
    };
    let levels = levels(sources, &by)?;
    let (base, new) = levels.split_first().ok_or(VerdictError::NoRecord)?;
    let differences = comparable::differences(sources, &by, policy);
    if !differences.is_empty() {
        return Err(VerdictError::NotComparable { differences });
    }

    let arms = arms::collect(sources, &by);
    let unmeasured: Vec<Unmeasured> = sources.iter().flat_map(|source| cells::unmeasured(source.record)).collect();
    let context = Context { sources, by: &by, policy, base, new, arms: &arms, unmeasured: &unmeasured };
    let mut drafts: Vec<Draft<'_>> = new.iter().flat_map(|level| context.drafts(level)).collect();
    let judged: Vec<usize> = (0..drafts.len()).filter(|&i| drafts[i].p_value().is_some()).collect();
    let p_values: Vec<f64> = judged.iter().filter_map(|&i| drafts[i].p_value()).collect();
    for (place, adjusted) in judged.iter().zip(holm(&p_values)) {
        drafts[*place].p_adjusted = Some(adjusted);
    }
    let environment = context.environment(&drafts);
    let mut rows: Vec<Row> = drafts
        .iter()
        .zip(environment)
        .map(|(draft, environment)| context.row(draft, p_values.len(), environment))
        .collect();
    rows.sort_by_cached_key(|row| context.place(row));

    let pairs: BTreeSet<&str> = rows.iter().flat_map(|row| row.pairs.iter().map(|pair| pair.pair.as_str())).collect();
    Ok(Comparison {
        base: base.clone(),
        new: new.to_vec(),
        cautions: context.cautions(),
        unmeasured: unmeasured.clone(),
        records: sources.iter().map(|source| source.name.to_owned()).collect(),
        classes: sources.iter().map(|source| source.record.header.class).collect(),
        pairs: pairs.len(),
        rounds: sources.iter().map(|source| rounds(source)).max().unwrap_or(0),
        min_effect: policy.min_effect(&first.record.header),
        judged: rows.iter().filter(|row| row.judged).count(),
        by: by.clone(),
        rows,
    })
}

fn rounds(source: &Source<'_>) -> usize {
    source.record.runs.iter().map(|run| run.round).collect::<BTreeSet<u32>>().len()
}

/// Factors of which the runs have two levels or more.
fn candidates(source: &Source<'_>) -> Vec<String> {
    let several = |factor: &Factor| known_levels(std::slice::from_ref(source), *factor).len() > 1;
    Factor::ALL.iter().filter(|factor| several(factor)).map(ToString::to_string).collect()
}

/// The levels of `factor` that any run has, in the order in which the records name them.
fn known_levels(sources: &[Source<'_>], factor: Factor) -> Vec<String> {
    let mut levels: Vec<String> = Vec::new();
    let named = sources.iter().filter_map(|source| source.record.header.levels.get(&factor)).flatten();
    let runs = || sources.iter().flat_map(|source| &source.record.runs).filter_map(|run| run.factors.get(factor));
    let present: BTreeSet<&str> = runs().collect();
    for level in named.map(String::as_str).chain(runs()) {
        if present.contains(level) && !levels.iter().any(|known| known == level) {
            levels.push(level.to_owned());
        }
    }
    levels
}

fn levels(sources: &[Source<'_>], by: &By) -> Result<Vec<String>, VerdictError> {
    let (known, asked) = match by {
        By::Record => (sources.iter().map(|source| source.name.to_owned()).collect(), &[][..]),
        By::Factor { factor, levels } => (known_levels(sources, *factor), levels.as_slice()),
    };
    let mut levels = known.clone();
    if let By::Factor { factor, .. } = by {
        if let Some(level) = asked.iter().find(|level| !known.contains(level)) {
            return Err(VerdictError::NoSuchLevel { factor: *factor, level: level.clone(), known });
        }
        // Raw stands beside every engine; where two others are there, they are what is compared.
        if *factor == Factor::Engine && levels.iter().filter(|level| *level != RAW).count() > 1 {
            levels.retain(|level| level != RAW);
        }
    }
    if asked.len() > 1 {
        levels = asked.to_vec();
    } else if let Some(base) = asked.first() {
        levels = std::iter::once(base.clone()).chain(known.into_iter().filter(|level| level != base)).collect();
    }
    if levels.len() < 2 {
        let candidates = sources.first().map(candidates).unwrap_or_default();
        let remedy = if candidates.is_empty() {
            "give a second record, or measure with a second level".to_owned()
        } else {
            format!("these have several: --by {}", candidates.join(", --by "))
        };
        let level = levels.pop().unwrap_or_else(|| "none".to_owned());
        return Err(VerdictError::OneLevel { factor: by.name().to_owned(), level, remedy });
    }
    Ok(levels)
}

struct Context<'a> {
    sources: &'a [Source<'a>],
    by: &'a By,
    policy: &'a Policy,
    base: &'a str,
    new: &'a [String],
    arms: &'a BTreeMap<Cell, Arm>,
    unmeasured: &'a [Unmeasured],
}

/// A row before it is judged.
struct Draft<'a> {
    cell: &'a Cell,
    arm: &'a Arm,
    metric: &'a str,
    line: Option<&'static Metric>,
    level: &'a str,
    pairs: Vec<decide::PairRuns>,
    measured: Option<Measured>,
    judged: bool,
    p_adjusted: Option<f64>,
}

impl Draft<'_> {
    /// The p-value that shares in the error.
    fn p_value(&self) -> Option<f64> {
        Some(self.measured.as_ref().filter(|_| self.judged)?.estimate?.p_value())
    }
}

impl<'a> Context<'a> {
    fn drafts(&self, level: &'a str) -> Vec<Draft<'a>> {
        let mut drafts = Vec::new();
        for (cell, arm) in self.arms {
            if !self.planned(cell, arm, level) || !self.planned(cell, arm, self.base) {
                continue;
            }
            for name in arm.metrics.keys() {
                let line = metric(name);
                let zero_based = line.is_some_and(|line| line.quantity == Quantity::Ratio);
                let pairs = arm.pairs(name, self.base, level);
                if pairs.is_empty() {
                    continue;
                }
                let seed = self.sources.first().map_or(0, |source| source.record.header.seed);
                let measured = decide::measure(&pairs, zero_based, seed);
                let judged = self.policy.judges(name) && line.is_some_and(|line| line.better != Better::Neither);
                drafts.push(Draft { cell, arm, metric: name, line, level, pairs, measured, judged, p_adjusted: None });
            }
        }
        drafts
    }

    /// Whether `level` was meant to be measured in `cell`. Between records everything is: what the new one lacks is a
    /// finding. Within one, a factor may not apply to a cell at all.
    fn planned(&self, cell: &Cell, arm: &Arm, level: &str) -> bool {
        if *self.by == By::Record || arm.usable.contains_key(level) {
            return true;
        }
        let By::Factor { factor, .. } = self.by else { return true };
        self.unmeasured
            .iter()
            .any(|gone| gone.factors.get(*factor) == Some(level) && arms::shared(self.by, &gone.factors) == *cell)
    }

    /// For each draft, the raw underlay's change if that explains the draft's: only where engines are what may have
    /// changed, since a stack, a setting or an underlay moves the raw path too.
    fn environment(&self, drafts: &[Draft<'_>]) -> Vec<Option<f64>> {
        let across = self.sources.len() > 1;
        let only_engines =
            self.policy.changed.iter().all(|changed| changed.contains("engine") || changed.contains("offload"));
        let applies = match self.by {
            By::Record => only_engines,
            By::Factor { factor, .. } => across && *factor == Factor::Engine && only_engines,
        };
        let raw_of = |draft: &Draft<'_>| {
            let cell = draft.cell.clone().with(Factor::Engine, RAW);
            let same =
                |other: &&Draft<'_>| *other.cell == cell && other.metric == draft.metric && other.level == draft.level;
            drafts.iter().find(same)?.measured.as_ref()?.mean()
        };
        drafts
            .iter()
            .map(|draft| {
                let header = &self.sources.first().filter(|_| applies)?.record.header;
                let measured = draft.measured.as_ref().filter(|measured| measured.scale == Scale::Ratio)?;
                let minimum = self.policy.min_effect_of(draft.metric, header).ln_1p();
                let (own, raw) = (measured.mean()?, raw_of(draft)?);
                let explained = raw * own > 0.0 && raw.abs() > minimum / 2.0 && (own - raw).abs() <= minimum;
                explained.then(|| raw.exp_m1())
            })
            .collect()
    }

    fn row(&self, draft: &Draft<'_>, tests: usize, environment: Option<f64>) -> Row {
        let header = self.sources.first().map(|source| &source.record.header);
        let min_effect =
            header.map_or(Policy::REFERENCE_EFFECT, |header| self.policy.min_effect_of(draft.metric, header));
        let interleaved = draft.measured.as_ref().is_none_or(|measured| measured.interleaved);
        let evidence = Evidence {
            p_adjusted: draft.p_adjusted,
            tests,
            better: draft.line.map_or(Better::Neither, |line| line.better),
            min_effect: if interleaved { min_effect } else { min_effect.max(Policy::BETWEEN_RECORDS) },
            floor: draft.line.map_or(0.0, |line| line.floor),
            alpha: Policy::ALPHA,
        };
        let decision = draft.measured.as_ref().map(|measured| decide::decide(measured, &evidence));
        let values = |side: fn(&decide::PairRuns) -> &Vec<decide::Visit>| -> Vec<f64> {
            draft.pairs.iter().flat_map(|pair| side(pair).iter().map(|visit| visit.value)).collect()
        };
        let moved = decision.as_ref().is_some_and(|decision| {
            matches!(decision.verdict, Verdict::Better | Verdict::Worse | Verdict::Inconclusive)
        });
        let (verdict, why, rounds_needed) = match (&decision, &draft.measured) {
            (Some(_), _) if !draft.judged => (None, "shown, not judged".to_owned(), None),
            (Some(_), _) if environment.is_some() && moved => {
                let raw = environment.unwrap_or_default() * 100.0;
                let why = format!(
                    "environment: the raw underlay moved by {raw:+.0} % at the same time, and the tunnel no more than that"
                );
                (Some(Verdict::NoConsistentChange), why, None)
            }
            (Some(decision), Some(_)) if decision.verdict == Verdict::NoConsistentChange && self.generator(draft) => {
                let why = "the generator binds, so the tunnel may do more than it was asked for here".to_owned();
                (Some(Verdict::Inconclusive), why, None)
            }
            (Some(decision), Some(measured)) => {
                (Some(decision.verdict), sentence(decision, measured, &evidence, draft.line), decision.rounds)
            }
            (None, _) | (_, None) => (draft.judged.then_some(Verdict::Invalid), self.missing(draft), None),
        };
        Row {
            metric: draft.metric.to_owned(),
            cell: draft.cell.clone(),
            level: draft.level.to_owned(),
            base: Summary::of(&values(|pair| &pair.base)),
            new: Summary::of(&values(|pair| &pair.new)),
            change: draft.measured.as_ref().and_then(|measured| {
                let change = change(measured.scale, measured.mean()?, measured.estimate);
                Some(Change { p_adjusted: draft.p_adjusted, ..change })
            }),
            pairs: pair_rows(draft),
            agree: decision.as_ref().map_or(0, |decision| decision.agree),
            paired: draft.measured.as_ref().map_or(0, |measured| measured.paired),
            minimum: decision.as_ref().map_or(min_effect, |decision| decision.minimum),
            floor: draft.measured.as_ref().and_then(|measured| Some(measured.scale.change(measured.floor()?))),
            judged: draft.judged,
            verdict,
            why,
            rounds_needed,
            base_bound_by: draft.arm.bound_by(self.base),
            new_bound_by: draft.arm.bound_by(draft.level),
            command: command::row(self.sources, self.by, self.base, draft.cell, draft.level),
        }
    }

    /// Whether the traffic generator bound most runs on either side.
    fn generator(&self, draft: &Draft<'_>) -> bool {
        [self.base, draft.level]
            .iter()
            .any(|level| draft.arm.bound_by(level).is_some_and(|bottleneck| bottleneck.is.starts_with("generator")))
    }

    /// Why a row cannot be measured.
    fn missing(&self, draft: &Draft<'_>) -> String {
        let side = |level: &str, present: bool| {
            if present {
                return None;
            }
            if let Some(runs) = draft.arm.usable.get(level) {
                return Some(format!("the metric is missing in {runs} runs at {}", printable(level)));
            }
            let gone = self.unmeasured.iter().find(|gone| {
                let at_level = match self.by {
                    By::Factor { factor, .. } => gone.factors.get(*factor) == Some(level),
                    By::Record => true,
                };
                at_level && arms::shared(self.by, &gone.factors) == *draft.cell
            });
            let why = gone.map_or_else(|| "it was not measured".to_owned(), |gone| printable(&gone.why));
            Some(format!("no usable run at {}: {why}", printable(level)))
        };
        let has =
            |side: fn(&decide::PairRuns) -> &Vec<decide::Visit>| draft.pairs.iter().any(|pair| !side(pair).is_empty());
        let sides = [side(self.base, has(|pair| &pair.base)), side(draft.level, has(|pair| &pair.new))];
        let sides: Vec<String> = sides.into_iter().flatten().collect();
        if sides.is_empty() { "no pair has both levels".to_owned() } else { sides.join("; ") }
    }

    fn cautions(&self) -> Vec<String> {
        let mut cautions = Vec::new();
        let min_effect =
            self.sources.first().map_or(Policy::REFERENCE_EFFECT, |s| self.policy.min_effect(&s.record.header));
        if *self.by == By::Record {
            cautions.push(format!(
                "the records were not interleaved: changes below {:.0} % between them are not called",
                min_effect.max(Policy::BETWEEN_RECORDS) * 100.0
            ));
        }
        for source in self.sources {
            let name = if self.sources.len() > 1 { format!("{}: ", printable(source.name)) } else { String::new() };
            let of_source = course::cautions(source, min_effect);
            cautions.extend(of_source.into_iter().map(|caution| format!("{name}{caution}")));
            if let By::Factor { .. } = self.by {
                for level in self.new {
                    let differences = comparable::between_levels(source, self.by, self.base, level);
                    cautions.extend(differences.iter().take(5).map(|difference| {
                        let (base, level) = (printable(self.base), printable(level));
                        format!("{base} and {level} differ in more than {}: {difference}", self.by.name())
                    }));
                }
            }
        }
        cautions
    }

    /// Where a row stands in a report: by test, then engine, then the rest in the order of the record's levels, then
    /// metric.
    fn place(&self, row: &Row) -> (usize, Vec<(Factor, usize, String)>, usize) {
        let rank = |factor: Factor, level: &str| {
            let known = self.sources.iter().find_map(|source| source.record.header.levels.get(&factor));
            known.and_then(|levels| levels.iter().position(|known| known == level)).unwrap_or(usize::MAX)
        };
        let order = [
            Factor::Test,
            Factor::Direction,
            Factor::Streams,
            Factor::Rate,
            Factor::Payload,
            Factor::CongestionControl,
            Factor::Engine,
            Factor::Stack,
            Factor::Settings,
            Factor::Underlay,
        ];
        let factors = order
            .into_iter()
            .filter_map(|factor| {
                let level = row.cell.get(factor)?;
                Some((factor, rank(factor, level), format!("{level:0>8}")))
            })
            .collect();
        let level = self.new.iter().position(|level| *level == row.level).unwrap_or(0);
        (level, factors, METRICS.iter().position(|line| line.name == row.metric).unwrap_or(usize::MAX))
    }
}

fn change(scale: Scale, mean: f64, estimate: Option<crate::stats::Estimate>) -> Change {
    let ends = estimate.map(|estimate| estimate.interval(CONFIDENCE));
    Change {
        scale,
        value: scale.change(mean),
        low: ends.map(|ends| scale.change(ends.0)),
        high: ends.map(|ends| scale.change(ends.1)),
        p: estimate.map(|estimate| estimate.p_value()),
        p_adjusted: None,
    }
}

fn pair_rows(draft: &Draft<'_>) -> Vec<PairRow> {
    let values = |visits: &[decide::Visit]| visits.iter().map(|visit| visit.value).collect::<Vec<f64>>();
    draft
        .pairs
        .iter()
        .map(|pair| PairRow {
            pair: pair.pair.clone(),
            base: Summary::of(&values(&pair.base)),
            new: Summary::of(&values(&pair.new)),
            change: draft.measured.as_ref().and_then(|measured| {
                let (_, mean, estimate) = measured.pairs.iter().find(|(name, _, _)| *name == pair.pair)?;
                Some(change(measured.scale, *mean, *estimate))
            }),
        })
        .collect()
}

/// A share in percent: whole from ten on.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 9.95 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

fn sentence(decision: &Decision, measured: &Measured, evidence: &Evidence, line: Option<&Metric>) -> String {
    let size = |value: f64| match (measured.scale, line) {
        (Scale::Difference, Some(line)) => format_as(line.quantity, value),
        (Scale::Difference, None) => format!("{value}"),
        (Scale::Ratio, _) => percent(value),
    };
    let pairs = measured.pairs.len();
    let verdicts = if evidence.tests == 1 { "1 verdict".to_owned() } else { format!("{} verdicts", evidence.tests) };
    let rounds = match decision.rounds {
        Some(rounds) if measured.interleaved => format!("; about {rounds} rounds would decide"),
        _ => String::new(),
    };
    match decision.why {
        Judgement::Changed => {
            let agreement = match pairs {
                1 => String::new(),
                _ => format!(", and {} of {pairs} pairs agree", decision.agree),
            };
            format!(
                "more than the minimum of {}, beyond chance over {} verdicts{agreement}",
                size(decision.minimum),
                evidence.tests
            )
        }
        Judgement::Small => format!("steady, but less than the minimum of {}", size(decision.minimum)),
        Judgement::BelowFloor => {
            let floor = line.map_or_else(|| evidence.floor.to_string(), |line| line.format(evidence.floor));
            format!("less than {floor} apart, which nobody needs to act on")
        }
        Judgement::WithinNoise => "the interval includes zero, and is narrow enough to have seen a change".to_owned(),
        Judgement::PairsDisagree => format!("{} of {pairs} pairs moved that way", decision.agree),
        Judgement::TooFew => {
            let runs = match measured.paired {
                1 => "1 paired run is".to_owned(),
                count => format!("{count} paired runs are"),
            };
            format!("{runs} too few to tell a change from noise{rounds}")
        }
        Judgement::TooNoisy => {
            format!(
                "the interval is wider than the change of {} that was asked for{rounds}",
                size(evidence.min_effect_shown(measured))
            )
        }
        Judgement::BelowNoiseFloor => {
            format!("repeated visits of one level differ by up to {}{rounds}", size(decision.minimum))
        }
        Judgement::NotAfterHolm => {
            format!("among {verdicts}, chance alone makes one look like this too often{rounds}")
        }
        Judgement::BootstrapDisagrees => {
            format!("a few runs carry the change: the bootstrap's interval includes zero{rounds}")
        }
    }
}
