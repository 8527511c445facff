//! The levels that are measured: the topology's, narrowed and overridden as the request asks.

use std::collections::{BTreeMap, BTreeSet};

use super::error::PlanError;
use super::profile;
use super::request::{EngineRequest, Request};
use crate::cell::{Factor, ends};
use crate::topology::{Engine, EngineSpec, Pair, Precision, Topology, check_name};
use crate::units::Ratio;

/// The most rounds of one run, as in files.
pub const MOST_ROUNDS: u32 = 1000;

/// What is measured, by factor. The factors of tests are narrowed where tests are expanded.
#[derive(Debug)]
pub(super) struct Selection<'a> {
    pub(super) pairs: Vec<Pair>,
    pub(super) underlays: Vec<String>,
    /// Every engine that a level may name.
    pub(super) engines: Vec<Engine>,
    pub(super) engine_levels: Vec<String>,
    /// Empty where the topology does not make it a factor.
    pub(super) tunnels: Vec<u32>,
    pub(super) stack_levels: Vec<String>,
    /// One `None` where the topology names no settings.
    pub(super) settings: Vec<Option<String>>,
    /// The request's levels of the tests' factors.
    pub(super) only: BTreeMap<Factor, Vec<&'a str>>,
    pub(super) compare: Option<Factor>,
    pub(super) rounds: u32,
    pub(super) precision: Option<Ratio>,
    pub(super) seed: u64,
    pub(super) request: &'a Request,
}

/// The topology's levels as `request` narrows and overrides them.
pub(super) fn select<'a>(topology: &Topology, request: &'a Request) -> Result<Selection<'a>, PlanError> {
    let spec = topology.profiles.get(&request.profile);
    let rounds = request
        .rounds
        .or_else(|| spec.and_then(|spec| spec.rounds))
        .unwrap_or_else(|| profile::rounds(request.profile));
    if !(1..=MOST_ROUNDS).contains(&rounds) {
        return Err(PlanError::OutOfRange { what: "--rounds", range: "1 to 1000" });
    }
    if request.duration.is_some_and(|span| span.duration().as_millis() == 0 || span.duration().as_secs() > 86_400) {
        return Err(PlanError::OutOfRange { what: "--duration", range: "1ms to 24h" });
    }
    let mut only: BTreeMap<Factor, Vec<&str>> = BTreeMap::new();
    for (factor, levels) in &request.only {
        let kept = only.entry(*factor).or_default();
        for level in levels {
            if !kept.contains(&level.as_str()) {
                kept.push(level);
            }
        }
    }
    let (engines, engine_levels) = engines(topology, &request.engines)?;
    let engine_names: Vec<String> = engines.iter().map(|engine| engine.name.clone()).collect();
    let stack_names: Vec<String> = topology.stacks.iter().map(|stack| stack.name.clone()).collect();
    let settings_names: Vec<String> = topology.settings.iter().map(|settings| settings.name.clone()).collect();
    let pair_names: Vec<String> = topology.pairs.iter().map(ToString::to_string).collect();
    let underlay_names: Vec<String> = topology.underlays.iter().map(|underlay| underlay.name.clone()).collect();

    let kept_pairs = keep(Factor::Pair, &pair_names, &[], &only)?;
    let pairs = match only.contains_key(&Factor::Pair) {
        false => topology.pairs.clone(),
        true => kept_pairs
            .iter()
            .filter_map(|name| topology.pairs.iter().find(|pair| pair.to_string() == *name))
            .cloned()
            .collect(),
    };
    let tunnel_names: Vec<String> = topology.tunnels.iter().map(ToString::to_string).collect();
    let tunnels = keep(Factor::Tunnels, &tunnel_names, &[], &only)?;
    let settings = keep(Factor::Settings, &settings_names, &settings_names, &only)?;
    // Two engines asked for by name are there to be compared.
    let tunnels_asked = request.engines.iter().filter(|engine| engine.name != "raw").count();
    Ok(Selection {
        pairs,
        underlays: keep(Factor::Underlay, &underlay_names, &[], &only)?,
        engine_levels: keep(Factor::Engine, &engine_levels, &engine_names, &only)?,
        engines,
        tunnels: tunnels.iter().filter_map(|level| level.parse().ok()).collect(),
        stack_levels: keep(Factor::Stack, &topology.stack_levels, &stack_names, &only)?,
        settings: if settings.is_empty() { vec![None] } else { settings.into_iter().map(Some).collect() },
        only,
        compare: if tunnels_asked > 1 { Some(Factor::Engine) } else { topology.compare },
        rounds,
        precision: match request.precision {
            Some(Precision::To(width)) => Some(width),
            Some(Precision::Off) => None,
            None => spec.and_then(|spec| spec.precision),
        },
        seed: request.seed.unwrap_or(1),
        request,
    })
}

/// The levels of `factor` that the request keeps, in the request's order; all where it says nothing. A level of two ends
/// may join any two of `joinable`, named in the file or not.
fn keep(
    factor: Factor,
    levels: &[String],
    joinable: &[String],
    only: &BTreeMap<Factor, Vec<&str>>,
) -> Result<Vec<String>, PlanError> {
    let Some(wanted) = only.get(&factor) else { return Ok(levels.to_vec()) };
    if levels.is_empty() {
        return Err(PlanError::NothingLeft {
            why: format!("the topology names no {factor}; leave `--only {factor}` out"),
        });
    }
    for level in wanted {
        let (client, server) = ends(level);
        let joins = client != server
            && ![client, server].contains(&"raw")
            && [client, server].iter().all(|end| joinable.iter().any(|name| name == end));
        if !joins && !levels.iter().any(|known| known == level) {
            return Err(PlanError::UnknownLevel { factor, level: (*level).to_owned(), known: levels.to_vec() });
        }
    }
    Ok(wanted.iter().map(|level| (*level).to_owned()).collect())
}

/// The engines and levels: the topology's, or the request's with `raw` kept.
fn engines(topology: &Topology, asked: &[EngineRequest]) -> Result<(Vec<Engine>, Vec<String>), PlanError> {
    if asked.is_empty() {
        return Ok((topology.engines.clone(), topology.engine_levels.clone()));
    }
    let mut engines: Vec<Engine> = Vec::new();
    let mut levels: Vec<String> = Vec::new();
    if topology.engine_levels.iter().any(|level| level == "raw") && !asked.iter().any(|engine| engine.name == "raw") {
        engines.push(Engine { name: "raw".to_owned(), spec: EngineSpec::Raw });
        levels.push("raw".to_owned());
    }
    let joined = |engine: &&EngineRequest| engine.spec.is_none() && engine.name.contains('>');
    for request in asked.iter().filter(|engine| !joined(engine)) {
        let engine = engine(topology, request)?;
        if levels.contains(&engine.name) {
            return Err(PlanError::EngineTwice { name: engine.name });
        }
        levels.push(engine.name.clone());
        engines.push(engine);
    }
    for request in asked.iter().filter(joined) {
        let (client, server) = ends(&request.name);
        if client == server || [client, server].contains(&"raw") {
            let why = "a level of two ends joins two different tunnels".to_owned();
            return Err(PlanError::EngineName { name: request.name.clone(), why });
        }
        for end in [client, server] {
            if !engines.iter().any(|engine| engine.name == end) {
                let alone = EngineRequest { name: end.to_owned(), spec: None };
                engines.push(engine(topology, &alone)?);
            }
        }
        if levels.contains(&request.name) {
            return Err(PlanError::EngineTwice { name: request.name.clone() });
        }
        levels.push(request.name.clone());
    }
    Ok((engines, levels))
}

/// One `--engine`.
fn engine(topology: &Topology, request: &EngineRequest) -> Result<Engine, PlanError> {
    let bad = |why: String| PlanError::EngineName { name: request.name.clone(), why };
    if let Some(spec) = &request.spec {
        check_name(&request.name).map_err(bad)?;
        let typed = spec;
        let spec: EngineSpec = typed.parse()?;
        if matches!(spec, EngineSpec::Interface(_)) {
            check_spelling(typed, EngineSpec::WORDS.into_iter(), topology)?;
        }
        if request.name == "raw" && spec != EngineSpec::Raw {
            return Err(bad("raw is the underlay without any engine".to_owned()));
        }
        let built_in = request.name.parse().is_ok_and(|named: EngineSpec| {
            matches!(named, EngineSpec::Embedded | EngineSpec::Direct | EngineSpec::Kernel) && named != spec
        });
        if built_in {
            return Err(bad(format!("it is built in and cannot be another engine; call {spec} otherwise")));
        }
        return Ok(Engine { name: request.name.clone(), spec });
    }
    if let Some(known) = topology.engines.iter().find(|engine| engine.name == request.name) {
        return Ok(known.clone());
    }
    let spec: EngineSpec = match request.name.parse() {
        Ok(spec) => spec,
        Err(error) => {
            let known: Vec<String> = topology.engines.iter().map(|engine| engine.name.clone()).collect();
            let close = crate::cell::nearest(&request.name, known.iter().map(String::as_str)).is_some();
            let (factor, level) = (Factor::Engine, request.name.clone());
            return Err(if close { PlanError::UnknownLevel { factor, level, known } } else { error.into() });
        }
    };
    if matches!(spec, EngineSpec::Interface(_)) && topology.is_local() && !request.name.starts_with("interface:") {
        // No node made here has an interface of someone else's: the word must have meant something else.
        let own = topology.engines.iter().map(|engine| engine.name.clone());
        let built_in = ["embedded", "direct", "kernel"].map(str::to_owned);
        let known: BTreeSet<String> = own.chain(built_in).collect();
        let (level, known) = (request.name.clone(), known.into_iter().collect());
        return Err(PlanError::UnknownLevel { factor: Factor::Engine, level, known });
    }
    if matches!(spec, EngineSpec::Interface(_)) {
        let own = topology.engines.iter().map(|engine| engine.name.as_str());
        check_spelling(&request.name, own.chain(EngineSpec::WORDS), topology)?;
    }
    // A path names its engine by its last part, an interface by its name.
    let name = match &spec {
        EngineSpec::Daemon(path) => path.rsplit('/').next().unwrap_or(path),
        EngineSpec::Interface(name) => name,
        EngineSpec::Raw | EngineSpec::Embedded | EngineSpec::Direct | EngineSpec::Kernel => &request.name,
    };
    check_name(name).map_err(bad)?;
    Ok(Engine { name: name.to_owned(), spec })
}

/// Refuses a bare word that names an interface only because it is misspelt: whoever means the interface says so.
fn check_spelling<'a>(typed: &str, known: impl Iterator<Item = &'a str>, topology: &Topology) -> Result<(), PlanError> {
    // wg1 beside wg0 is no slip: interfaces are numbered.
    let stem = |name: &str| name.trim_end_matches(|letter: char| letter.is_ascii_digit()).to_owned();
    let known = known.filter(|name| stem(name) != stem(typed));
    let meant = crate::cell::nearest(typed, known).filter(|_| !typed.starts_with("interface:"));
    meant.map_or(Ok(()), |meant| {
        let (spec, meant) = (typed.to_owned(), meant.to_owned());
        Err(PlanError::MisspeltEngine { spec, meant, on_hosts: !topology.is_local() })
    })
}
