//! `wglab plan`, and what every command makes of its selection.

use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, bail};

use super::args::{PlanArgs, PlanFormat, Selection};
use super::output::Output;
use super::{Exit, files};
use crate::cell::Factor;
use crate::plan::{self, EnginePlan, EngineRequest, EngineSpec, Plan, Reach, Request};
use crate::text::wrapped;
use crate::units::Bytes;

pub(super) fn plan(args: &PlanArgs, output: &Output) -> anyhow::Result<Exit> {
    let plan = plan_of(&args.selection)?;
    match args.format {
        PlanFormat::Text => {
            let text = plan::render_text(&plan);
            output.data(&Output::columns().map_or_else(|| text.clone(), |width| wrapped(&text, width)))?;
        }
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
    // What the file says is shown where it says it; what the command line says needs no place.
    let placed = |places: &[Vec<String>], sentence: String| match topology.at(places, &sentence) {
        Some(refused) => files::Refused(refused).into(),
        None => anyhow::Error::msg(sentence),
    };
    let plan = plan::plan(&topology, &request).map_err(|error| placed(&error.places(&request), error.to_string()))?;
    if plan.nodes.iter().all(|node| matches!(node.reach, Reach::Local { .. })) {
        for engine in &plan.engines {
            check_daemon(engine).map_err(|why| placed(&request.engine_places(&engine.name), why))?;
        }
    }
    Ok(plan)
}

/// Refuses a daemon that this machine cannot start, before anything is raised for it.
fn check_daemon(engine: &EnginePlan) -> Result<(), String> {
    let EngineSpec::Daemon(program) = &engine.spec else { return Ok(()) };
    let name = &engine.name;
    if !program.contains('/') {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
        return if found {
            Ok(())
        } else {
            Err(format!("engine {name}: {program} is not on PATH; install it, or write its path, like ./{program}"))
        };
    }
    match std::fs::metadata(program) {
        Err(error) => {
            Err(format!("engine {name}: the program {program}: {error}; write the path of one that is there"))
        }
        Ok(file) if !file.is_file() => {
            Err(format!("engine {name}: {program} is no program but a directory or a device; write a program's path"))
        }
        Ok(file) if file.permissions().mode() & 0o111 == 0 => {
            Err(format!("engine {name}: {program} may not be executed; make it so with `chmod +x {program}`"))
        }
        Ok(_) => Ok(()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(topology: &str, engine: &[&str]) -> Selection {
        Selection {
            topology: topology.to_owned(),
            only: Vec::new(),
            engine: engine.iter().map(|engine| (*engine).to_owned()).collect(),
            rounds: None,
            precision: None,
            duration: None,
            profile: None,
            seed: None,
        }
    }

    fn lab(folder: &std::path::Path, more: &str) -> String {
        let file = folder.join("lab.toml").display().to_string();
        let text = format!(
            "nodes = [\"a\", \"b\"]\npairs = \"mesh\"\n[underlay]\nu = {{ family = \"ipv4\" }}\n[[test]]\nkind = \"tcp-rr\"\n{more}"
        );
        std::fs::write(&file, text).unwrap();
        file
    }

    #[test]
    fn what_cannot_be_planned_is_shown_where_the_file_says_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = lab(folder.path(), "[engine.mine]\npath = \"./no-such-program\"\n");
        let error = plan_of(&selection(&file, &[])).unwrap_err().to_string();
        assert!(error.contains("lab.toml:8:8") && error.contains("path = \"./no-such-program\""), "{error}");
        assert!(error.contains("help: write the path of one that is there"), "{error}");
        // What the command line says has no place in the file.
        let error = plan_of(&selection(&file, &["mine=./nor-this"])).unwrap_err().to_string();
        assert!(error.starts_with("engine mine: the program ./nor-this") && !error.contains("lab.toml"), "{error}");
        let file = lab(folder.path(), "[engine.mine]\ninterface = \"wg0\"\n");
        let error = plan_of(&selection(&file, &[])).unwrap_err().to_string();
        assert!(error.contains("lab.toml:8:13") && error.contains("interface = \"wg0\""), "{error}");
    }
}
