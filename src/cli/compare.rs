//! `wglab compare`, `pick` and `report`, and the answer at the end of a run.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::Parser;

use super::Exit;
use super::args::{Cli, Command, CompareArgs, Judging, PickArgs, ReportArgs};
use super::files::{self, Named};
use super::output::Output;
use super::plan::plan_of;
use crate::record::Record;
use crate::report::{self, Cost, Format, Report, SeriesReport};
use crate::units::Span;
use crate::verdict::{self, By, Comparison, GateResult, PickOptions, PickResult, Policy, Source, VerdictError};

/// A table for other tools, derived from the record; wglab never reads it.
const SUMMARY: &str = "summary.json";

pub(super) fn compare(args: &CompareArgs, output: &Output) -> anyhow::Result<Exit> {
    let by = args.by.as_deref().map(|text| text.parse::<By>().with_context(|| format!("--by {text}"))).transpose()?;
    let records = files::records(&args.records)?;
    let by = by.or_else(|| (records.len() > 1).then_some(By::Record));
    let mut policy = policy(&args.judging)?;
    policy.changed.extend(args.changed.iter().cloned());
    let sources = sources(&records);
    verdict::check_changed(&sources, &args.changed).context("--changed")?;
    if records.len() > 2 && args.by.is_none() {
        return series(&sources, &policy, args, output);
    }
    let comparison = verdict::compare(&sources, by.as_ref(), &policy)?;
    print(&sources, Some(&comparison), args.judging.gate, args.judging.detail, args.format, output)
}

/// Three records or more are a series in time.
fn series(sources: &[Source<'_>], policy: &Policy, args: &CompareArgs, output: &Output) -> anyhow::Result<Exit> {
    let series = verdict::series(sources, policy)?;
    let report = SeriesReport {
        series: &series,
        gate: args.judging.gate,
        detail: args.judging.detail,
        width: Output::columns(),
    };
    output.data(&report::render_series(&report, args.format))?;
    Ok(if args.judging.gate { exit(verdict::series_gate(&series)) } else { Exit::Done })
}

pub(super) fn pick(args: &PickArgs, output: &Output) -> anyhow::Result<Exit> {
    let records = files::records(args.record.as_slice())?;
    let sources = sources(&records);
    let [source] = sources.as_slice() else { anyhow::bail!("a pick is made from one record") };
    verdict::check_runs(&sources)?;
    let options = PickOptions { need: args.need, ..PickOptions::default() };
    let picks = verdict::pick(source, &options, &Policy::default());
    output.data(&if args.json {
        report::pick_json(&picks)
    } else {
        report::pick_table(&picks, Output::columns(), Some(planned_time))
    })?;
    Ok(match picks.result() {
        PickResult::Picked => Exit::Done,
        PickResult::Incomplete => Exit::NotMeasured,
        PickResult::NoneFits => Exit::GateFailed,
    })
}

pub(super) fn report(args: &ReportArgs, output: &Output) -> anyhow::Result<Exit> {
    let records = files::records(&args.records)?;
    let sources = sources(&records);
    let comparison = of_itself(&sources, &Policy::default())?;
    print(&sources, comparison.as_ref(), false, args.detail, args.format, output)
}

/// What a run has found, and what its gate says.
pub(super) fn answer(
    record: &Named,
    policy: &Policy,
    gate: bool,
    detail: bool,
    output: &Output,
) -> anyhow::Result<Exit> {
    let records = std::slice::from_ref(record);
    let sources = sources(records);
    let comparison = if gate { Some(verdict::compare(&sources, None, policy)?) } else { of_itself(&sources, policy)? };
    print(&sources, comparison.as_ref(), gate, detail, Format::Table, output)
}

/// The comparison that the record itself asks for, if it asks for one.
fn of_itself(sources: &[Source<'_>], policy: &Policy) -> anyhow::Result<Option<Comparison>> {
    let [source] = sources else { return Ok(None) };
    if source.record.header.compare.is_none() {
        return Ok(None);
    }
    match verdict::compare(sources, None, policy) {
        Ok(comparison) => Ok(Some(comparison)),
        // Narrowed to one level, a record still tells what it holds.
        Err(VerdictError::OneLevel { .. } | VerdictError::NoFactor { .. } | VerdictError::NoRuns { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn print(
    sources: &[Source<'_>],
    comparison: Option<&Comparison>,
    gate: bool,
    detail: bool,
    format: Format,
    output: &Output,
) -> anyhow::Result<Exit> {
    let (width, cost) = (Output::columns(), Some(planned_time as Cost));
    output.data(&report::render(&Report { sources, comparison, gate, detail, width, cost }, format))?;
    let Some(comparison) = comparison.filter(|_| gate) else { return Ok(Exit::Done) };
    Ok(exit(verdict::gate(comparison).result))
}

/// How long a `wglab run` will take as it is planned here; `None` where its topology or an engine is not here.
fn planned_time(command: &str) -> Option<Span> {
    let Command::Run(args) = Cli::try_parse_from(verdict::words(command)).ok()?.command else { return None };
    let plan = plan_of(&args.selection).ok().filter(|_| args.resume.is_none())?;
    Some(plan.forecast.time)
}

const fn exit(result: GateResult) -> Exit {
    match result {
        GateResult::Passed => Exit::Done,
        GateResult::Failed => Exit::GateFailed,
        GateResult::Invalid => Exit::NotMeasured,
        GateResult::Inconclusive => Exit::Inconclusive,
    }
}

fn sources(records: &[Named]) -> Vec<Source<'_>> {
    records.iter().map(|named| Source { name: &named.name, record: &named.record }).collect()
}

/// The policy of the command line.
pub(super) fn policy(judging: &Judging) -> anyhow::Result<Policy> {
    let gate = judging.gate;
    let mut policy = match &judging.policy {
        Some(path) => {
            let file = files::policy(path)?;
            Policy {
                metrics: file.judged.metrics,
                min_effect: file.min_effect,
                min_effects: file.judged.min_effects,
                changed: file.changed.into_iter().collect(),
                gate,
            }
        }
        None => Policy::default(),
    };
    policy.gate = gate;
    policy.check()?;
    Ok(policy)
}

/// Writes the table for other tools beside the record.
pub(super) fn write_summary(directory: &Path, name: &str, record: &Record) -> anyhow::Result<()> {
    let sources = [Source { name, record }];
    let text = report::render(&Report::new(&sources, None), Format::Json);
    let (path, unfinished) = (directory.join(SUMMARY), directory.join(".summary.json.new"));
    fs::write(&unfinished, text)
        .and_then(|()| fs::rename(&unfinished, &path))
        .inspect_err(|_| {
            // What is not whole helps nobody; that it cannot be removed either changes nothing.
            let _left = fs::remove_file(&unfinished);
        })
        .with_context(|| format!("cannot write {}", path.display()))
}
