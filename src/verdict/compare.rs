//! The comparison: which levels, whether they may be compared, the rows in order, and what to know about them.

use std::collections::BTreeSet;

use super::measured::in_blocks;
use super::rows::{Context, RAW};
use super::{By, Comparison, Policy, Row, Source, Unmeasured, VerdictError};
use super::{arms, cells, comparable, course, series};
use crate::cell::{Factor, METRICS, printable};

/// Compares the levels of a factor over `sources`, or the sources themselves. Without `by`, two records or more are
/// compared as they stand, and one by the factor that its topology names.
///
/// # Errors
/// Nothing to compare, a level that no run has, or records whose conditions differ: see [`VerdictError`].
pub fn compare(sources: &[Source<'_>], by: Option<&By>, policy: &Policy) -> Result<Comparison, VerdictError> {
    let first = sources.first().ok_or(VerdictError::NoRecord)?;
    check_runs(sources)?;
    if sources.len() > 1 {
        // Of one record nothing is excused: what its policy names for others may be missing in it.
        comparable::check_changed(sources, &policy.changed)?;
    }
    let policy = &policy.over(&first.record.header);
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
    let mut rows = context.rows();
    rows.sort_by_cached_key(|row| context.place(row));

    let pairs: BTreeSet<&str> = rows.iter().flat_map(|row| row.pairs.iter().map(|pair| pair.pair.as_str())).collect();
    Ok(Comparison {
        base: base.clone(),
        new: new.to_vec(),
        rankings: context.rankings(),
        cautions: context.cautions(),
        unmeasured: unmeasured.clone(),
        records: sources.iter().map(|source| source.name.to_owned()).collect(),
        classes: sources.iter().map(|source| source.record.header.class).collect(),
        pairs: pairs.len(),
        rounds: sources.iter().map(|source| cells::rounds(source)).max().unwrap_or(0),
        min_effect: policy.min_effect(&first.record.header),
        judged: rows.iter().filter(|row| row.judged).count(),
        by: by.clone(),
        rows,
    })
}

/// Refuses records in which nothing was even tried.
///
/// # Errors
/// [`VerdictError::NoRuns`] of the first one.
pub fn check_runs(sources: &[Source<'_>]) -> Result<(), VerdictError> {
    match sources.iter().find(|source| source.record.runs.is_empty()) {
        None => Ok(()),
        Some(source) => Err(VerdictError::NoRuns {
            name: printable(source.name),
            ended: source.record.end.as_ref().and_then(|end| end.reason.as_deref()).map(printable),
        }),
    }
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
        levels.dedup();
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

impl Context<'_> {
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
        cautions.extend(self.stale());
        cautions.extend(self.new.iter().find_map(|level| self.one_after_the_other(level, min_effect)));
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

    /// That a level was measured after the other and not in turn, if any cell was.
    fn one_after_the_other(&self, level: &str, min_effect: f64) -> Option<String> {
        let By::Factor { .. } = self.by else { return None };
        let blocked = |arm: &arms::Arm| arm.metrics.keys().any(|name| in_blocks(&arm.pairs(name, self.base, level)));
        self.arms.values().any(blocked).then(|| {
            format!(
                "{} was measured after {} and not in turn with it: a steady drift is told from the change, any other is in it, and \
                 changes below {:.0} % are not called",
                printable(level),
                printable(self.base),
                min_effect.max(Policy::BETWEEN_RECORDS) * 100.0
            )
        })
    }

    /// How much older the baseline is than the newest record, from a week on.
    fn stale(&self) -> Option<String> {
        const DAY: i64 = 24 * 3600;
        const WEEK: i64 = 7;
        let times: Vec<i64> = self.sources.iter().filter_map(|source| series::began(source.record)).collect();
        let days = (times.iter().max()? - times.first()?) / DAY;
        (*self.by == By::Record && days >= WEEK).then(|| {
            format!("the baseline is {days} days older: what else changed since then is in the changes too, unless it is a condition in the records")
        })
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
            Factor::Tunnels,
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
