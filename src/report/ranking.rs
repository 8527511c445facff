//! The answer where several levels stand against one: which is best and which is worst, and how many are decided.

use super::lines::level_name;
use super::text;
use crate::cell::Factor;
use crate::verdict::{By, Comparison, Ranked, Ranking, Verdict};

/// Levels that are named; more are counted.
const NAMED: usize = 3;

/// `of 4 engines, a is best in throughput (3 Gbit/s) and b worst (1 Gbit/s); against c: 2 better, 1 not decided`.
pub(super) fn sentence(comparison: &Comparison) -> String {
    let against = format!("against {}: {}", level_name(comparison, &comparison.base), decided(comparison));
    if comparison.rankings.is_empty() {
        return format!("{against}.");
    }
    let orders: Vec<String> = comparison.rankings.iter().filter_map(|ranking| order(comparison, ranking)).collect();
    format!("of {}, {}; {against}.", levels(comparison), orders.join("; "))
}

/// How many levels, and of what.
fn levels(comparison: &Comparison) -> String {
    let count = comparison.new.len() + 1;
    match comparison.by {
        By::Factor { factor: factor @ (Factor::Engine | Factor::Stack | Factor::Underlay | Factor::Pair), .. } => {
            format!("{count} {factor}s")
        }
        By::Factor { factor: Factor::Settings, .. } => format!("{count} settings"),
        By::Factor { factor, .. } => format!("{count} levels of {factor}"),
        By::Record => format!("{count} records"),
    }
}

fn order(comparison: &Comparison, ranking: &Ranking) -> Option<String> {
    let (best, others) = ranking.levels.split_first()?;
    let worst = others.last()?;
    let name = |ranked: &Ranked| level_name(comparison, &ranked.level);
    let figures = |ranked: &Ranked| text::range(&ranking.metric, ranked.low, ranked.high);
    let ties: Vec<String> = others.iter().filter(|other| !other.behind).map(name).collect();
    let (title, size) = (text::title(&ranking.metric), figures(best));
    if ties.len() == others.len() {
        return Some(format!("none leads in {title} ({} {size} to {} {})", name(best), name(worst), figures(worst)));
    }
    let tie = match ties.len() {
        0 => String::new(),
        count if count > NAMED => format!(", no consistent lead over {count} others"),
        _ => format!(", no consistent lead over {}", text::listed(&ties)),
    };
    Some(format!("{} is best in {title} ({size}{tie}) and {} worst ({})", name(best), name(worst), figures(worst)))
}

/// How many levels got which verdict over all that is judged of them; those that failed by name.
fn decided(comparison: &Comparison) -> String {
    const KINDS: [(&str, bool); 7] = [
        ("better", false),
        ("worse", true),
        ("better here and worse there", true),
        ("with no consistent change", false),
        ("not decided", false),
        ("not measured", true),
        ("not judged", false),
    ];
    let mut levels: [Vec<String>; KINDS.len()] = Default::default();
    for level in &comparison.new {
        let has = |verdict: Verdict| verdicts(comparison, level).any(|own| own == verdict);
        let kind = match (has(Verdict::Better), has(Verdict::Worse)) {
            (true, false) => 0,
            (false, true) => 1,
            (true, true) => 2,
            _ if has(Verdict::Invalid) => 5,
            _ if has(Verdict::Inconclusive) => 4,
            _ if has(Verdict::NoConsistentChange) => 3,
            _ => 6,
        };
        levels[kind].push(level_name(comparison, level));
    }
    let said = KINDS.iter().zip(&levels).filter(|(_, levels)| !levels.is_empty()).map(|((kind, named), levels)| {
        match *named && levels.len() <= NAMED {
            true => format!("{} {kind} ({})", levels.len(), levels.join(", ")),
            false => format!("{} {kind}", levels.len()),
        }
    });
    said.collect::<Vec<_>>().join(", ")
}

fn verdicts<'a>(comparison: &'a Comparison, level: &'a str) -> impl Iterator<Item = Verdict> + 'a {
    comparison.rows.iter().filter(move |row| row.level == level).filter_map(|row| row.verdict)
}

/// The verdict of a level that wants the most attention, as a gate counts.
pub(super) fn gravest(comparison: &Comparison, level: &str) -> Option<Verdict> {
    let order = [Verdict::Worse, Verdict::Invalid, Verdict::Inconclusive];
    order.into_iter().find(|verdict| verdicts(comparison, level).any(|own| own == *verdict))
}
