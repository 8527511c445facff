//! `[policy]`, and a policy that is a file of its own: what is judged.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use super::diagnostic::{Problems, TopologyError};
use super::reader::{Table, document};
use crate::cell::{Better, Judged, METRICS, did_you_mean, metric, printable};
use crate::units::Ratio;

const POLICY_EXAMPLE: &str = "[policy] metrics = [\"throughput_bits_per_second\"]";

/// A policy that is a file of its own: what is judged, and from which size on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PolicyFile {
    /// What is judged, and the least changes of single metrics.
    pub judged: Judged,
    /// The least change that is published.
    pub min_effect: Option<Ratio>,
    /// Conditions that were changed on purpose.
    pub changed: Vec<String>,
}

impl PolicyFile {
    /// Reads the `text` of the file called `file`.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with line, column, snippet and remedy.
    pub fn parse(file: &str, text: &str) -> Result<Self, Box<TopologyError>> {
        let mut problems = Problems::new(text);
        let read = document(text, &mut problems).map(|document| {
            let table = Table::root_called("a policy", document.get_ref());
            table
                .only(&["metrics", "min-effect", "min_effect", "min-effects", "min_effects", "changed"], &mut problems);
            let [effect, effects] = [["min-effect", "min_effect"], ["min-effects", "min_effects"]]
                .map(|spellings| spelled(&table, spellings, &mut problems));
            let min_effect = min_effect(&table, effect, &mut problems);
            let changed = table.texts("changed", "changed = [\"kernel\"]", &mut problems);
            Self {
                judged: judged(&table, effects, &mut problems),
                min_effect,
                changed: changed.into_iter().flatten().map(Spanned::into_inner).collect(),
            }
        });
        match (problems.into_error(file), read) {
            (Some(error), _) => Err(Box::new(error)),
            // A document is absent only after its problem was noted.
            (None, read) => Ok(read.unwrap_or_default()),
        }
    }
}

/// The spelling of a key that `table` has; both at once are a problem.
fn spelled<'k>(table: &Table<'_>, [one, other]: [&'k str; 2], problems: &mut Problems<'_>) -> &'k str {
    if table.get(one).is_none() {
        return other;
    }
    if table.get(other).is_some() {
        problems.push(table.key_span(other), format!("`{other}` is `{one}` again"), "keep one of them");
    }
    one
}

/// `[policy]`: what is judged.
pub(super) fn policy(root: &Table<'_>, problems: &mut Problems<'_>) -> Option<Judged> {
    let value = root.get("policy")?;
    let table = Table::of(value, root.key_span("policy"), "the policy", POLICY_EXAMPLE, problems)?;
    table.only(&["metrics", "min_effects"], problems);
    Some(judged(&table, "min_effects", problems))
}

/// The metrics that `table` names, and under `key` the least changes of single ones.
fn judged(table: &Table<'_>, key: &str, problems: &mut Problems<'_>) -> Judged {
    let metrics = table.texts("metrics", "metrics = [\"throughput_bits_per_second\"]", problems);
    for name in metrics.iter().flatten() {
        check_judged(name.get_ref(), name.span(), problems);
    }
    let mut min_effects = BTreeMap::new();
    let example = format!("{key} = {{ rr_p99_ns = \"15%\" }}");
    let effects =
        table.get(key).and_then(|value| Table::of(value, table.key_span(key), &format!("`{key}`"), &example, problems));
    for (name, _) in effects.iter().flat_map(Table::fields) {
        check_judged(name.get_ref(), name.span(), problems);
        let effect = effects.as_ref().and_then(|effects| min_effect(effects, name.get_ref(), problems));
        min_effects.extend(effect.map(|effect| (name.get_ref().clone().into_owned(), effect)));
    }
    Judged { metrics: metrics.map(|metrics| metrics.into_iter().map(Spanned::into_inner).collect()), min_effects }
}

/// A least change: a part between none and all.
fn min_effect(table: &Table<'_>, key: &str, problems: &mut Problems<'_>) -> Option<Ratio> {
    let effect = table.parsed::<Ratio>(key, problems)?;
    if !(effect.get_ref().fraction() > 0.0 && effect.get_ref().fraction() < 1.0) {
        problems.push(effect.span(), "a minimum effect is out of range", "write a part between 0 and 1, like \"5%\"");
    }
    Some(effect.into_inner())
}

/// Notes a metric that is not in the table, or that cannot be judged.
fn check_judged(name: &str, span: Range<usize>, problems: &mut Problems<'_>) {
    match metric(name) {
        None => {
            let suggestion = did_you_mean(name, METRICS.iter().map(|line| line.name));
            let help = format!("{suggestion}docs/record.md lists the metrics");
            problems.push(span, format!("`{}` is not a metric", printable(name)), help);
        }
        Some(line) if line.better == Better::Neither => {
            problems.push(span, format!("`{name}` cannot be judged"), "neither way of it is better: it only explains");
        }
        Some(_) => {}
    }
}
