//! What is visited and what is measured: arrangements and tests.

use std::collections::{BTreeMap, BTreeSet};

use super::carried::Carried;
use super::error::PlanError;
use super::select::Selection;
use super::{Arrangement, EnginePlan, Pair, Plan, SettingsPlan, StackPlan, TestPlan};
use super::{profile, spread};
use crate::cell::{Factor, TestKind, ends};
use crate::topology::{EngineSpec, Rate, Topology};
use crate::units::{Bytes, Span};

/// The most visits of one record: at a kilobyte or two a run, readers hold it in memory.
const MOST_VISITS: u64 = 1_000_000;

/// Everything of a plan but places and order.
#[derive(Debug)]
pub(super) struct Schedule {
    pub(super) compare: Option<Factor>,
    pub(super) levels: BTreeMap<Factor, Vec<String>>,
    pub(super) underlays: Vec<String>,
    pub(super) carried: Carried,
    pub(super) stacks: Vec<StackPlan>,
    pub(super) settings: Vec<SettingsPlan>,
    pub(super) pairs: Vec<Pair>,
    pub(super) arrangements: Vec<Arrangement>,
}

/// Expands the selection.
pub(super) fn schedule(topology: &Topology, selection: &Selection<'_>) -> Result<Schedule, PlanError> {
    let mut schedule = Schedule {
        compare: None,
        levels: BTreeMap::new(),
        underlays: Vec::new(),
        carried: Carried { engines: engines(topology, selection)?, tests: tests(topology, selection)? },
        stacks: Vec::new(),
        settings: Vec::new(),
        pairs: Vec::new(),
        arrangements: Vec::new(),
    };
    check_size(selection)?;
    let tunnels = spread::levels(&schedule.carried, selection)?;
    let spread: Vec<(&String, Vec<Option<u32>>)> = selection
        .engine_levels
        .iter()
        .map(|engine| match schedule.carried.has_tunnels(engine) && !tunnels.is_empty() {
            true => (engine, tunnels.iter().copied().map(Some).collect()),
            false => (engine, vec![None]),
        })
        .collect();
    let by_name: BTreeMap<&str, _> = topology.nodes.iter().map(|node| (node.name.as_str(), node)).collect();
    for pair in &selection.pairs {
        for underlay in &selection.underlays {
            let attached = [&pair.client, &pair.server]
                .iter()
                .all(|end| by_name.get(end.as_str()).is_some_and(|node| node.has(underlay)));
            if attached {
                arrange(pair, underlay, &spread, selection, &mut schedule.arrangements);
            }
        }
    }
    if schedule.arrangements.is_empty() {
        let list = |levels: &[String]| super::error::listed(levels);
        let pairs: Vec<String> = selection.pairs.iter().map(ToString::to_string).collect();
        let why = format!(
            "no pair of {} has both nodes on {}; attach both nodes of a pair to one underlay, or name other pairs",
            list(&pairs),
            list(&selection.underlays)
        );
        return Err(PlanError::NothingLeft { why });
    }
    for level in &selection.engine_levels {
        let is_interface = |spec: &EngineSpec| matches!(spec, EngineSpec::Interface(_));
        if schedule.carried.specs(level).any(is_interface) && !schedule.carried.specs(level).all(is_interface) {
            return Err(PlanError::HalfInterface { level: level.clone() });
        }
        if schedule.carried.tests_of(level, None).is_empty() {
            return Err(schedule.carried.no_test_for(level));
        }
    }
    keep_used(topology, selection, &mut schedule);
    schedule.levels = levels(&schedule, selection, &tunnels);
    let several = |factor: &Factor| schedule.levels.get(factor).is_some_and(|levels| levels.len() > 1);
    schedule.compare = selection.compare.filter(several);
    Ok(schedule)
}

/// Refuses what would take a record's limit, before it is multiplied out.
fn check_size(selection: &Selection<'_>) -> Result<(), PlanError> {
    let sizes = [
        selection.pairs.len(),
        selection.underlays.len(),
        selection.engine_levels.len(),
        selection.tunnels.len().max(1),
        selection.stack_levels.len(),
        selection.settings.len(),
        selection.rounds as usize,
    ];
    let visits = sizes.iter().fold(1_u64, |product, size| product.saturating_mul(*size as u64));
    if visits > MOST_VISITS { Err(PlanError::TooMany { visits, most: MOST_VISITS }) } else { Ok(()) }
}

/// The arrangements of a pair over an underlay; `spread` tells the engine levels, each with its levels of tunnels.
fn arrange(
    pair: &Pair,
    underlay: &str,
    spread: &[(&String, Vec<Option<u32>>)],
    selection: &Selection<'_>,
    into: &mut Vec<Arrangement>,
) {
    let carriers = spread.iter().flat_map(|(engine, all)| all.iter().map(move |tunnels| (*engine, *tunnels)));
    for (engine, tunnels) in carriers {
        for stack in &selection.stack_levels {
            for settings in &selection.settings {
                into.push(Arrangement {
                    pair: pair.clone(),
                    underlay: underlay.to_owned(),
                    engine: engine.clone(),
                    tunnels,
                    stack: stack.clone(),
                    settings: settings.clone(),
                });
            }
        }
    }
}

fn engines(topology: &Topology, selection: &Selection<'_>) -> Result<Vec<EnginePlan>, PlanError> {
    let used: BTreeSet<&str> =
        selection.engine_levels.iter().flat_map(|level| <[&str; 2]>::from(ends(level))).collect();
    let engines = selection.engines.iter().filter(|engine| used.contains(engine.name.as_str()));
    engines
        .map(|engine| match &engine.spec {
            EngineSpec::Interface(_) if topology.is_local() => {
                Err(PlanError::InterfaceHere { engine: engine.name.clone() })
            }
            EngineSpec::Raw
            | EngineSpec::Embedded
            | EngineSpec::Direct
            | EngineSpec::Kernel
            | EngineSpec::Interface(_)
            | EngineSpec::Daemon(_) => Ok(EnginePlan { name: engine.name.clone(), spec: engine.spec.clone() }),
        })
        .collect()
}

/// Pairs, underlays, stacks and settings that some arrangement uses.
fn keep_used(topology: &Topology, selection: &Selection<'_>, schedule: &mut Schedule) {
    let pairs: BTreeSet<&Pair> = schedule.arrangements.iter().map(|arrangement| &arrangement.pair).collect();
    let underlays: BTreeSet<&str> =
        schedule.arrangements.iter().map(|arrangement| arrangement.underlay.as_str()).collect();
    schedule.underlays =
        selection.underlays.iter().filter(|underlay| underlays.contains(underlay.as_str())).cloned().collect();
    schedule.pairs = selection.pairs.iter().filter(|pair| pairs.contains(pair)).cloned().collect();
    let stacks: BTreeSet<&str> =
        selection.stack_levels.iter().flat_map(|level| <[&str; 2]>::from(ends(level))).collect();
    schedule.stacks = topology
        .stacks
        .iter()
        .filter(|stack| stacks.contains(stack.name.as_str()))
        .map(|stack| StackPlan {
            name: stack.name.clone(),
            delivery: stack.delivery,
            receive_queues: stack.receive_queues,
            switch: stack.switch.clone(),
            verify: stack.verify.clone(),
        })
        .collect();
    let settings: BTreeSet<&str> =
        selection.settings.iter().flatten().flat_map(|level| <[&str; 2]>::from(ends(level))).collect();
    schedule.settings = topology
        .settings
        .iter()
        .filter(|named| settings.contains(named.name.as_str()))
        .map(|named| SettingsPlan {
            name: named.name.clone(),
            sysctl: named.sysctl.clone(),
            features: named.features.clone(),
            rps_cpus: named.rps_cpus.clone(),
            mtu: named.mtu,
        })
        .collect();
}

/// The levels of every factor, in the order in which they were named: the first is the baseline.
fn levels(schedule: &Schedule, selection: &Selection<'_>, tunnels: &[u32]) -> BTreeMap<Factor, Vec<String>> {
    let mut levels: BTreeMap<Factor, Vec<String>> = BTreeMap::new();
    levels.insert(Factor::Pair, schedule.pairs.iter().map(ToString::to_string).collect());
    levels.insert(Factor::Underlay, schedule.underlays.clone());
    levels.insert(Factor::Engine, selection.engine_levels.clone());
    if !tunnels.is_empty() {
        levels.insert(Factor::Tunnels, tunnels.iter().map(ToString::to_string).collect());
    }
    levels.insert(Factor::Stack, selection.stack_levels.clone());
    let settings: Vec<String> = selection.settings.iter().flatten().cloned().collect();
    if !settings.is_empty() {
        levels.insert(Factor::Settings, settings);
    }
    for test in &schedule.carried.tests {
        for (factor, level) in test.cell().iter() {
            let named = levels.entry(factor).or_default();
            if !named.iter().any(|known| known == level) {
                named.push(level.to_owned());
            }
        }
    }
    for (factor, named) in &mut levels {
        if let Some(wanted) = selection.only.get(factor) {
            named.sort_by_key(|level| wanted.iter().position(|wanted| spelled(*factor, wanted) == *level));
        }
    }
    levels
}

/// Every test with every level of its factors, narrowed.
fn tests(topology: &Topology, selection: &Selection<'_>) -> Result<Vec<TestPlan>, PlanError> {
    let profile = topology.profiles.get(&selection.request.profile);
    let kept = profile.and_then(|profile| profile.tests.as_ref());
    let named = selection.only.get(&Factor::Test);
    let mut all = Vec::new();
    for test in &topology.tests {
        // A test that is asked for by name runs in every profile.
        let asked = named.is_some_and(|names| names.contains(&test.name.as_str()));
        if asked || kept.is_none_or(|kept| kept.contains(&test.name)) {
            all.extend(expand(test, topology, selection));
        }
    }
    let mut tests = all.clone();
    for (factor, wanted) in selection.only.iter().filter(|(factor, _)| !factor.is_arranged()) {
        narrow(*factor, wanted, &all, &mut tests, topology)?;
    }
    if let Some(test) = tests.iter().find(|test| !TestKind::MEASURED.contains(&test.kind)) {
        return Err(PlanError::NotMeasured { test: test.name.clone(), kind: test.kind });
    }
    if tests.is_empty() {
        let asked = selection.only.iter().filter(|(factor, _)| !factor.is_arranged());
        let asked: Vec<String> = asked.map(|(factor, wanted)| format!("{factor}={}", wanted.join(","))).collect();
        return Err(PlanError::NothingLeft { why: format!("no test has {} at once", asked.join(" and ")) });
    }
    Ok(tests)
}

/// Keeps the tests whose level of `factor` is wanted. A test without the factor has no other level: it stays.
fn narrow(
    factor: Factor,
    wanted: &[&str],
    all: &[TestPlan],
    tests: &mut Vec<TestPlan>,
    topology: &Topology,
) -> Result<(), PlanError> {
    let mut known: Vec<String> = Vec::new();
    for test in all {
        if let Some(level) = test.cell().get(factor)
            && !known.iter().any(|name| name == level)
        {
            known.push(level.to_owned());
        }
    }
    if factor == Factor::Test {
        known = topology.tests.iter().map(|test| test.name.clone()).collect();
    }
    if known.is_empty() {
        let factors = all.iter().flat_map(|test| test.cell().iter().map(|(factor, _)| factor).collect::<Vec<_>>());
        let factors: BTreeSet<Factor> = factors.collect();
        let known = factors.into_iter().map(|factor| factor.to_string()).collect();
        return Err(PlanError::FactorUnused { factor, known });
    }
    let levels: Vec<String> = wanted.iter().map(|level| spelled(factor, level)).collect();
    if let Some(place) = levels.iter().position(|level| !known.contains(level)) {
        return Err(PlanError::UnknownLevel { factor, level: wanted[place].to_owned(), known });
    }
    tests.retain(|test| test.cell().get(factor).is_none_or(|level| levels.iter().any(|wanted| wanted == level)));
    Ok(())
}

/// A level as cells spell it: `1000Mbit/s` is `1Gbit/s`, `1.3kB` is `1300B`.
fn spelled(factor: Factor, level: &str) -> String {
    match factor {
        Factor::Rate => level.parse().map_or_else(|_| level.to_owned(), |rate: Rate| rate.to_string()),
        Factor::Payload => level.parse().map_or_else(|_| level.to_owned(), |bytes: Bytes| format!("{}B", bytes.get())),
        Factor::Pair
        | Factor::Underlay
        | Factor::Engine
        | Factor::Tunnels
        | Factor::Stack
        | Factor::Settings
        | Factor::Direction
        | Factor::Test
        | Factor::Streams
        | Factor::CongestionControl => level.to_owned(),
    }
}

/// One test's levels, multiplied out.
fn expand(test: &crate::topology::Test, topology: &Topology, selection: &Selection<'_>) -> Vec<TestPlan> {
    let spec = topology.profiles.get(&selection.request.profile);
    let (window, warmup) = profile::times(selection.request.profile, test.kind);
    let duration = selection
        .request
        .duration
        .or_else(|| spec.and_then(|spec| spec.duration.of(&test.name)))
        .or(test.duration)
        .unwrap_or_else(|| Span::new(window));
    let warmup = spec.and_then(|spec| spec.warmup.of(&test.name)).or(test.warmup).unwrap_or_else(|| Span::new(warmup));
    let streams = spec.and_then(|spec| spec.streams.as_ref()).filter(|_| !test.streams.is_empty());
    let directions = spec.and_then(|spec| spec.direction.as_ref()).filter(|_| !test.direction.is_empty());
    let mut plans = vec![TestPlan {
        name: test.name.clone(),
        kind: test.kind,
        direction: None,
        streams: None,
        rate: None,
        payload: None,
        congestion_control: None,
        warmup,
        duration,
        probe: test.probe,
    }];
    multiply(&mut plans, &test.congestion_control, |plan, name| plan.congestion_control = Some(name));
    multiply(&mut plans, &test.payload, |plan, payload| plan.payload = Some(payload));
    multiply(&mut plans, &test.rate, |plan, rate| plan.rate = Some(rate));
    multiply(&mut plans, streams.unwrap_or(&test.streams), |plan, streams| plan.streams = Some(streams));
    multiply(&mut plans, directions.unwrap_or(&test.direction), |plan, direction| plan.direction = Some(direction));
    plans
}

/// Each plan once per level; an empty list is a factor that does not apply.
fn multiply<T: Clone>(plans: &mut Vec<TestPlan>, levels: &[T], set: impl Fn(&mut TestPlan, T)) {
    if levels.is_empty() {
        return;
    }
    let each = |plan: &TestPlan, level: &T| {
        let mut plan = plan.clone();
        set(&mut plan, level.clone());
        plan
    };
    *plans = plans.iter().flat_map(|plan| levels.iter().map(|level| each(plan, level)).collect::<Vec<_>>()).collect();
}

impl Plan {
    /// The levels of the compared factor, the baseline first; empty where nothing is compared. The raw underlay stands
    /// beside engines and is no candidate where two others are.
    pub fn compared(&self) -> Vec<&str> {
        let Some(levels) = self.compare.and_then(|factor| self.levels.get(&factor)) else { return Vec::new() };
        let raw = |level: &&String| self.engine(level).is_some_and(|engine| engine.spec == EngineSpec::Raw);
        let tunnels = levels.iter().filter(|level| !raw(level)).count();
        let drop_raw = self.compare == Some(Factor::Engine) && tunnels > 1;
        levels.iter().filter(|level| !(drop_raw && raw(level))).map(String::as_str).collect()
    }
}
