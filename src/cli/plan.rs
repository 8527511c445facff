//! `wglab plan`, and what every command makes of its selection.

use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, bail};

use super::args::{PlanArgs, PlanFormat, Selection};
use super::output::Output;
use super::{Exit, files};
use crate::cell::Factor;
use crate::plan::{self, EnginePlan, EngineRequest, EngineSpec, Plan, Reach, Request};
use crate::units::Bytes;

pub(super) fn plan(args: &PlanArgs, output: &Output) -> anyhow::Result<Exit> {
    let plan = plan_of(&args.selection)?;
    match args.format {
        PlanFormat::Text => output.data(&plan::render_text(&plan))?,
        PlanFormat::Json => {
            let mut value = serde_json::to_value(&plan)?;
            value["hash"] = plan.hash().into();
            output.data(&serde_json::to_string_pretty(&value)?)?;
        }
    }
    Ok(Exit::Done)
}

/// The plan that a selection asks for.
pub(super) fn plan_of(selection: &Selection) -> anyhow::Result<Plan> {
    let topology = files::topology(&selection.topology)?;
    let request = Request {
        profile: selection.profile.unwrap_or_default(),
        only: selection.only.iter().map(|text| only(text)).collect::<Result<_, _>>()?,
        engines: selection.engine.iter().map(|text| engine(text)).collect::<Result<_, _>>()?,
        rounds: selection.rounds,
        precision: selection.precision,
        duration: selection.duration,
        seed: selection.seed,
        memory: available_memory(),
    };
    let plan = plan::plan(&topology, &request)?;
    if plan.nodes.iter().all(|node| matches!(node.reach, Reach::Local { .. })) {
        plan.engines.iter().try_for_each(check_daemon)?;
    }
    Ok(plan)
}

/// Refuses a daemon that this machine cannot start, before anything is raised for it.
fn check_daemon(engine: &EnginePlan) -> anyhow::Result<()> {
    let EngineSpec::Daemon(program) = &engine.spec else { return Ok(()) };
    let name = &engine.name;
    if !program.contains('/') {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
        anyhow::ensure!(
            found,
            "engine {name}: {program} is not on PATH; install it, or write its path, like ./{program}"
        );
        return Ok(());
    }
    let file = std::fs::metadata(program).with_context(|| format!("engine {name}: the program {program}"))?;
    anyhow::ensure!(file.is_file(), "engine {name}: {program} is no program but a directory or a device");
    anyhow::ensure!(
        file.permissions().mode() & 0o111 != 0,
        "engine {name}: {program} may not be executed; make it so with `chmod +x {program}`"
    );
    Ok(())
}

fn only(text: &str) -> anyhow::Result<(Factor, Vec<String>)> {
    let Some((factor, levels)) = text.split_once('=') else {
        bail!("--only {text}: write --only FACTOR=LEVEL[,LEVEL], like --only underlay=private");
    };
    let factor: Factor = factor.parse().with_context(|| format!("--only {text}"))?;
    let levels: Vec<String> = levels.split(',').map(|level| level.trim().to_owned()).collect();
    if levels.iter().any(String::is_empty) {
        bail!("--only {text}: a level is empty");
    }
    Ok((factor, levels))
}

fn engine(text: &str) -> anyhow::Result<EngineRequest> {
    let (name, spec) = match text.split_once('=') {
        Some((name, spec)) => (name, Some(spec.to_owned())),
        None => (text, None),
    };
    if name.is_empty() || spec.as_ref().is_some_and(String::is_empty) {
        bail!("--engine {text}: write --engine NAME or --engine NAME=SPEC, like --engine new=./wireguard-go");
    }
    Ok(EngineRequest { name: name.to_owned(), spec })
}

/// What this machine has left; absent where it does not say.
fn available_memory() -> Option<Bytes> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(Bytes::new(kib * 1024))
}
