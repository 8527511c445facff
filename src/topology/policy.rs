//! `[policy]`: what is judged.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use super::diagnostic::Problems;
use super::reader::Table;
use crate::cell::{Better, Judged, METRICS, did_you_mean, metric, printable};
use crate::units::Ratio;

const POLICY_EXAMPLE: &str = "[policy] metrics = [\"throughput_bits_per_second\"]";

/// `[policy]`: what is judged.
pub(super) fn policy(root: &Table<'_>, problems: &mut Problems<'_>) -> Option<Judged> {
    let value = root.get("policy")?;
    let table = Table::of(value, root.key_span("policy"), "the policy", POLICY_EXAMPLE, problems)?;
    table.only(&["metrics", "min_effects"], problems);
    let metrics = table.texts("metrics", "metrics = [\"throughput_bits_per_second\"]", problems);
    for name in metrics.iter().flatten() {
        check_judged(name.get_ref(), name.span(), problems);
    }
    let mut min_effects = BTreeMap::new();
    if let Some(value) = table.get("min_effects") {
        let example = "min_effects = { rr_p99_ns = \"15%\" }";
        let effects = Table::of(value, table.key_span("min_effects"), "`min_effects`", example, problems)?;
        for (name, _) in effects.fields() {
            check_judged(name.get_ref(), name.span(), problems);
            let Some(effect) = effects.parsed::<Ratio>(name.get_ref(), problems) else { continue };
            if !(effect.get_ref().fraction() > 0.0 && effect.get_ref().fraction() < 1.0) {
                problems.push(
                    effect.span(),
                    "a minimum effect is out of range",
                    "write a part between 0 and 1, like \"5%\"",
                );
            }
            min_effects.insert(name.get_ref().clone().into_owned(), effect.into_inner());
        }
    }
    let metrics = metrics.map(|metrics| metrics.into_iter().map(Spanned::into_inner).collect());
    Some(Judged { metrics, min_effects })
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
