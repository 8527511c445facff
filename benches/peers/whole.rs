//! Whether a record is all that was planned.

use std::collections::{BTreeMap, BTreeSet};

use wglab::cell::Factor;
use wglab::record::{EndStatus, Record};

/// A complaint where the record holds less than was planned.
pub(crate) fn partial(record: &Record) -> Option<String> {
    let why = match &record.end {
        None => "it has no end".to_owned(),
        Some(end) if end.status == EndStatus::Partial => {
            end.reason.clone().unwrap_or_else(|| "it does not say why".to_owned())
        }
        Some(_) => return None,
    };
    Some(format!("the record holds only a part of what was planned: {why}"))
}

/// What was not measured, with the reasons, one for each.
pub(crate) fn unusable(record: &Record) -> Vec<String> {
    let mut reasons: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for run in record.runs.iter().filter(|run| !run.usable()) {
        let reason = run.why_unusable().unwrap_or_default();
        *counts.entry(reason.clone()).or_default() += 1;
        reasons.entry(reason).or_default().extend(run.factors.get(Factor::Engine));
    }
    let line = |(reason, engines): (String, BTreeSet<&str>)| {
        let engines: Vec<&str> = engines.into_iter().collect();
        format!("{} runs of {}: {reason}", counts.get(&reason).copied().unwrap_or(0), engines.join(", "))
    };
    reasons.into_iter().map(line).collect()
}
