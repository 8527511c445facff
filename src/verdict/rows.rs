//! The rows of a comparison: measured one by one and over their underlays together, adjusted, judged.
//!
//! An underlay by itself has few runs. What all underlays of a cell do alike is therefore judged over all of them, with
//! every pair on every underlay a block of its own; where they do not move alike, each is judged by itself. Both kinds of
//! verdict share one error.

use std::collections::BTreeMap;

use super::arms::{self, Arm};
use super::decide::{self, Decision, Evidence, Judgement};
use super::measured::{self, Measured, PairRuns, Scale, Visit};
use super::sentence::sentence;
use super::{By, Change, PairRow, Policy, Row, Source, Together, Unmeasured, Verdict, cells, command};
use crate::cell::{Better, Cell, Factor, Metric, Quantity, metric, printable};
use crate::stats::{CONFIDENCE, Estimate, Summary};

/// The engine that is no engine: the underlay itself.
pub(super) const RAW: &str = "raw";

/// What rows are made of.
pub(super) struct Context<'a> {
    pub(super) sources: &'a [Source<'a>],
    pub(super) by: &'a By,
    pub(super) policy: &'a Policy,
    pub(super) base: &'a str,
    pub(super) new: &'a [String],
    pub(super) arms: &'a BTreeMap<Cell, Arm>,
    pub(super) unmeasured: &'a [Unmeasured],
}

/// A row before it is judged, or the underlays of several rows together.
struct Draft<'a> {
    cell: Cell,
    arms: Vec<&'a Arm>,
    metric: &'a str,
    line: Option<&'static Metric>,
    level: &'a str,
    pairs: Vec<PairRuns>,
    measured: Option<Measured>,
    judged: bool,
    p_adjusted: Option<f64>,
    /// The rows that it takes together; empty for a row.
    members: Vec<usize>,
}

/// What was decided of a draft.
struct Outcome {
    verdict: Option<Verdict>,
    why: String,
    rounds: Option<u32>,
    decision: Option<Decision>,
    together: Option<Together>,
    /// The raw underlay's change, where it explains the draft's.
    environment: Option<f64>,
}

impl Draft<'_> {
    /// Whether it is of the underlay itself, with no tunnel.
    fn is_raw(&self) -> bool {
        self.cell.get(Factor::Engine) == Some(RAW)
    }

    /// What shares in the error.
    fn sharing(&self) -> Option<&Measured> {
        self.measured.as_ref().filter(|measured| self.judged && measured.estimate.is_some())
    }

    fn change(&self) -> Option<Change> {
        let measured = self.measured.as_ref()?;
        Some(Change { p_adjusted: self.p_adjusted, ..change(measured.scale, measured.mean()?, measured.estimate) })
    }

    fn values(&self, side: fn(&PairRuns) -> &Vec<Visit>) -> Vec<f64> {
        self.pairs.iter().flat_map(|pair| side(pair).iter().map(|visit| visit.value)).collect()
    }

    /// Whether the traffic generator bound most runs at either level.
    fn generator_binds(&self, base: &str) -> bool {
        let by_generator = |arm: &Arm, level: &str| {
            arm.bound_by(level).is_some_and(|bottleneck| bottleneck.is.starts_with("generator"))
        };
        self.arms.iter().any(|arm| by_generator(arm, base) || by_generator(arm, self.level))
    }
}

impl<'a> Context<'a> {
    /// Every row, in no particular order.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut drafts: Vec<Draft<'_>> = self.new.iter().flat_map(|level| self.drafts(level)).collect();
        let rows = drafts.len();
        drafts.extend(self.together(&drafts));
        let sharing: Vec<usize> = (0..drafts.len()).filter(|&place| drafts[place].sharing().is_some()).collect();
        let judged: Vec<(&Measured, Evidence)> = sharing
            .iter()
            .filter_map(|&place| Some((drafts[place].sharing()?, self.evidence(&drafts[place], sharing.len()))))
            .collect();
        for (place, adjusted) in sharing.iter().zip(decide::adjust(&judged)) {
            drafts[*place].p_adjusted = adjusted;
        }
        let mut outcomes: Vec<Outcome> =
            drafts.iter().map(|draft| self.judge(draft, sharing.len(), self.environment(draft, &drafts))).collect();
        for place in rows..drafts.len() {
            settle(&drafts, place, &mut outcomes, |draft| self.min_effect(draft));
        }
        drafts.iter().zip(outcomes).take(rows).map(|(draft, outcome)| self.row(draft, outcome)).collect()
    }

    fn drafts(&self, level: &'a str) -> Vec<Draft<'a>> {
        let mut drafts = Vec::new();
        for (cell, arm) in self.arms {
            if !self.planned(cell, arm, level) || !self.planned(cell, arm, self.base) {
                continue;
            }
            for name in arm.metrics.keys() {
                let pairs = arm.pairs(name, self.base, level);
                if !pairs.is_empty() {
                    drafts.push(self.draft(cell.clone(), vec![arm], name, level, pairs, Vec::new()));
                }
            }
        }
        drafts
    }

    fn draft(
        &self,
        cell: Cell,
        arms: Vec<&'a Arm>,
        name: &'a str,
        level: &'a str,
        pairs: Vec<PairRuns>,
        members: Vec<usize>,
    ) -> Draft<'a> {
        let line = metric(name);
        let zero_based = line.is_some_and(|line| line.quantity == Quantity::Ratio);
        let seed = self.sources.first().map_or(0, |source| source.record.header.seed);
        let measured = measured::measure(&pairs, zero_based, seed);
        let judged = self.policy.judges(name) && line.is_some_and(|line| line.better != Better::Neither);
        Draft { cell, arms, metric: name, line, level, pairs, measured, judged, p_adjusted: None, members }
    }

    /// A draft for every two rows or more that differ in nothing but the underlay and are measured.
    fn together(&self, rows: &[Draft<'a>]) -> Vec<Draft<'a>> {
        let mut groups: BTreeMap<(&str, &str, Cell), Vec<usize>> = BTreeMap::new();
        for (place, row) in rows.iter().enumerate().filter(|(_, row)| row.measured.is_some()) {
            if row.cell.get(Factor::Underlay).is_some() {
                let cell = row.cell.clone().without(Factor::Underlay);
                groups.entry((row.level, row.metric, cell)).or_default().push(place);
            }
        }
        groups
            .into_iter()
            .filter(|(_, members)| members.len() > 1)
            .map(|((level, name, cell), members)| {
                let over = |place: &usize| {
                    let row = &rows[*place];
                    let underlay = row.cell.get(Factor::Underlay).unwrap_or_default();
                    row.pairs.iter().map(|pair| PairRuns { underlay: underlay.to_owned(), ..pair.clone() })
                };
                let pairs = members.iter().flat_map(over).collect();
                let arms = members.iter().flat_map(|place| rows[*place].arms.clone()).collect();
                self.draft(cell, arms, name, level, pairs, members)
            })
            .collect()
    }

    /// Whether `level` was meant to be measured in `cell`. Between records everything is: what the new one lacks is a
    /// finding. Within one, a factor may not apply to a cell at all.
    fn planned(&self, cell: &Cell, arm: &Arm, level: &str) -> bool {
        let By::Factor { factor, .. } = self.by else { return true };
        arm.usable.contains_key(level)
            || self
                .unmeasured
                .iter()
                .any(|gone| gone.factors.get(*factor) == Some(level) && arms::is_in(self.by, &gone.factors, cell))
    }

    fn min_effect(&self, draft: &Draft<'_>) -> f64 {
        let header = self.sources.first().map(|source| &source.record.header);
        let policy = header.map_or(Policy::REFERENCE_EFFECT, |header| self.policy.min_effect_of(draft.metric, header));
        match &draft.measured {
            Some(measured) if !measured.interleaved => policy.max(Policy::BETWEEN_RECORDS),
            Some(_) | None => policy,
        }
    }

    /// The raw underlay's change if that explains the draft's: only where engines are what may have changed, since a
    /// stack, a setting or an underlay moves the raw path too.
    fn environment(&self, draft: &Draft<'_>, drafts: &[Draft<'_>]) -> Option<f64> {
        let changed = &self.policy.changed;
        let only_engines = changed.iter().all(|changed| changed.contains("engine") || changed.contains("offload"));
        let applies = match self.by {
            By::Record => only_engines,
            By::Factor { factor, .. } => self.sources.len() > 1 && *factor == Factor::Engine && only_engines,
        };
        let measured = draft.measured.as_ref().filter(|measured| applies && measured.scale == Scale::Ratio)?;
        let cell = draft.cell.clone().with(Factor::Engine, RAW).without(Factor::Tunnels);
        let raw = drafts
            .iter()
            .find(|other| other.cell == cell && other.metric == draft.metric && other.level == draft.level);
        let (own, raw) = (measured.mean()?, raw?.measured.as_ref()?.mean()?);
        let minimum = self.min_effect(draft).ln_1p();
        let explained = raw * own > 0.0 && raw.abs() > minimum / 2.0 && (own - raw).abs() <= minimum;
        explained.then(|| raw.exp_m1())
    }

    fn evidence(&self, draft: &Draft<'_>, tests: usize) -> Evidence {
        Evidence {
            p_adjusted: draft.p_adjusted,
            tests,
            better: draft.line.map_or(Better::Neither, |line| line.better),
            min_effect: self.min_effect(draft),
            floor: draft.line.map_or(0.0, |line| line.floor),
            alpha: Policy::ALPHA,
            worse_share: self.policy.worse_share(),
        }
    }

    fn judge(&self, draft: &Draft<'_>, tests: usize, environment: Option<f64>) -> Outcome {
        let evidence = self.evidence(draft, tests);
        let Some(measured) = &draft.measured else {
            let (verdict, why) = (draft.judged.then_some(Verdict::Invalid), self.missing(draft));
            return Outcome { verdict, why, rounds: None, decision: None, together: None, environment: None };
        };
        let decision = decide::decide(measured, &evidence);
        let moved = match decision.verdict {
            Verdict::Better | Verdict::Worse => true,
            // The underlay explains itself only where it did move.
            Verdict::Inconclusive => !draft.is_raw() || draft.change().is_some_and(|change| change.excludes_zero()),
            Verdict::NoConsistentChange | Verdict::Invalid => false,
        };
        let environment = environment.filter(|_| moved && draft.judged);
        let (verdict, why, rounds) = match environment {
            _ if !draft.judged => (None, "shown, not judged".to_owned(), None),
            Some(raw) => {
                let as_well = match draft.is_raw() {
                    true => "by itself, without any tunnel",
                    false => "at the same time, and the tunnel no more than that",
                };
                let why = format!("environment: the raw underlay moved by {:+.0} % {as_well}", raw * 100.0);
                (Some(Verdict::NoConsistentChange), why, None)
            }
            None if decision.verdict == Verdict::NoConsistentChange && draft.generator_binds(self.base) => {
                let what = if draft.is_raw() { "underlay" } else { "tunnel" };
                let why = format!("the generator binds, so the {what} may do more than it was asked for here");
                (Some(Verdict::Inconclusive), why, None)
            }
            None => {
                let ran = self.sources.iter().map(cells::rounds).max().unwrap_or(0);
                let needed = decision.rounds.filter(|_| measured.interleaved);
                let rounds = needed.and_then(|needed| decide::rounds_in_all(needed, measured.rounds, ran));
                (
                    Some(decision.verdict),
                    sentence(&decision, measured, &evidence, draft.line, draft.members.len()),
                    rounds,
                )
            }
        };
        Outcome { verdict, why, rounds, decision: Some(decision), together: None, environment }
    }

    fn row(&self, draft: &Draft<'_>, outcome: Outcome) -> Row {
        let decision = outcome.decision.as_ref();
        let measured = draft.measured.as_ref();
        let bound_by = |level: &str| draft.arms.first().and_then(|arm| arm.bound_by(level));
        Row {
            metric: draft.metric.to_owned(),
            cell: draft.cell.clone(),
            level: draft.level.to_owned(),
            base: Summary::of(&draft.values(|pair| &pair.base)),
            new: Summary::of(&draft.values(|pair| &pair.new)),
            change: draft.change(),
            pairs: pair_rows(draft),
            agree: decision.map_or(0, |decision| decision.agree),
            paired: measured.map_or(0, |measured| measured.paired),
            minimum: decision.map_or_else(|| self.min_effect(draft), |decision| decision.minimum),
            floor: measured.and_then(Measured::floor_shown),
            judged: draft.judged,
            verdict: outcome.verdict,
            together: outcome.together,
            environment: outcome.environment,
            why: outcome.why,
            rounds_needed: outcome.rounds,
            base_bound_by: bound_by(self.base),
            new_bound_by: bound_by(draft.level),
            command: command::row(self.sources, self.by, self.base, &draft.cell, draft.level),
        }
    }

    /// Why a row cannot be measured.
    fn missing(&self, draft: &Draft<'_>) -> String {
        let side = |level: &str, present: bool| {
            if present {
                return None;
            }
            if let Some(runs) = draft.arms.first().and_then(|arm| arm.usable.get(level)) {
                return Some(format!("the metric is missing in {runs} runs at {}", printable(level)));
            }
            let gone = self.unmeasured.iter().find(|gone| {
                let at_level = match self.by {
                    By::Factor { factor, .. } => gone.factors.get(*factor) == Some(level),
                    By::Record => true,
                };
                at_level && arms::is_in(self.by, &gone.factors, &draft.cell)
            });
            let why = gone.map_or_else(|| "it was not measured".to_owned(), |gone| printable(&gone.why));
            Some(format!("no usable run at {}: {why}", printable(level)))
        };
        let has = |side: fn(&PairRuns) -> &Vec<Visit>| !draft.values(side).is_empty();
        let sides = [side(self.base, has(|pair| &pair.base)), side(draft.level, has(|pair| &pair.new))];
        let sides: Vec<String> = sides.into_iter().flatten().collect();
        if sides.is_empty() { "no pair has both levels".to_owned() } else { sides.join("; ") }
    }
}

/// Gives the rows of `drafts[place]` the verdict that they have in common, if they have one:
///
/// * better or worse over all of them, which takes that every pair agrees on every underlay;
/// * no consistent change over all of them, unless one of them alone moved by more than the minimum and is not decided;
/// * inconclusive over all of them, if each of them is.
///
/// Else each keeps its own.
fn settle(drafts: &[Draft<'_>], place: usize, outcomes: &mut [Outcome], min_effect: impl Fn(&Draft<'_>) -> f64) {
    let (draft, members) = (&drafts[place], &drafts[place].members);
    let whole = &outcomes[place];
    let Some((decision, change)) = whole.decision.as_ref().zip(draft.change()) else { return };
    let own = |member: &usize| outcomes[*member].verdict;
    let called = members.iter().any(|member| matches!(own(member), Some(Verdict::Better | Verdict::Worse)));
    let quiet = |member: &usize| {
        let row = &drafts[*member];
        let change = row.change().filter(|change| change.scale == Scale::Ratio);
        own(member) == Some(Verdict::NoConsistentChange)
            || change.is_some_and(|change| change.value.abs() <= min_effect(row))
    };
    let common = match whole.verdict {
        None => true,
        Some(Verdict::Better | Verdict::Worse) => true,
        Some(Verdict::NoConsistentChange) => {
            let alike = decision.why != Judgement::PairsDisagree || members.iter().all(|m| own(m) == whole.verdict);
            !called && alike && members.iter().all(quiet)
        }
        Some(Verdict::Inconclusive) => members.iter().all(|member| own(member) == Some(Verdict::Inconclusive)),
        Some(Verdict::Invalid) => false,
    };
    if !common {
        return;
    }
    let together = Together { underlays: members.len(), change, minimum: decision.minimum };
    let (verdict, why, rounds, environment) = (whole.verdict, whole.why.clone(), whole.rounds, whole.environment);
    for member in members {
        let outcome = &mut outcomes[*member];
        outcome.verdict = verdict;
        outcome.why.clone_from(&why);
        outcome.rounds = rounds;
        outcome.environment = environment;
        outcome.together = Some(together.clone());
    }
}

fn change(scale: Scale, mean: f64, estimate: Option<Estimate>) -> Change {
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
    let values = |visits: &[Visit]| visits.iter().map(|visit| visit.value).collect::<Vec<f64>>();
    let of_pair = |pair: &PairRuns| {
        let measured = draft.measured.as_ref()?;
        let (_, mean, estimate) = measured.pairs.iter().find(|(name, _, _)| *name == pair.pair)?;
        Some(change(measured.scale, *mean, *estimate))
    };
    draft
        .pairs
        .iter()
        .map(|pair| PairRow {
            pair: pair.pair.clone(),
            base: Summary::of(&values(&pair.base)),
            new: Summary::of(&values(&pair.new)),
            change: of_pair(pair),
        })
        .collect()
}
