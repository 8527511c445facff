//! The topology made definite: addresses, ports, names, order, seed. Nothing is left to decide at run time.
//!
//! ```text
//! topology + request -> select (levels) -> schedule (tests, arrangements) -> place, tunnels (addresses) -> limits (what does not fit)
//!                    -> phases, order (visits) -> forecast
//! ```
//!
//! The same topology and request give the same plan, and the same [`Plan::hash`]. What cannot be is refused here, with the
//! reason, before anything is raised.

pub use crate::topology::{BadPrecision, Delivery, EngineSpec, Pair, Precision, Profile, Rate, UnderlayKind};
pub use error::PlanError;
pub use request::{EngineRequest, Request};
pub use select::MOST_ROUNDS;
pub use text::render_text;
pub use types::*;

use crate::topology::Topology;

mod carried;
mod error;
mod forecast;
mod limits;
mod order;
mod phases;
mod place;
mod profile;
mod request;
mod schedule;
mod select;
mod spread;
mod text;
mod tunnels;
mod types;

/// Makes `topology` definite as `request` asks.
///
/// # Errors
/// A level that is not known, a narrowing that leaves nothing, and whatever makes the run impossible.
pub fn plan(topology: &Topology, request: &Request) -> Result<Plan, PlanError> {
    let selection = select::select(topology, request)?;
    let schedule = schedule::schedule(topology, &selection)?;
    let underlays = place::underlays(topology, &schedule)?;
    let nodes = place::nodes(topology, &schedule, &underlays)?;
    let tunnels = tunnels::tunnels(topology, &schedule, &nodes, &underlays)?;
    limits::check_settings(&schedule, &underlays)?;
    limits::check_payloads(&schedule, &underlays, &tunnels)?;
    let phases = phases::phases(topology, &schedule)?;
    let visits = order::visits(&schedule, &phases, selection.rounds, selection.seed);
    let mut plan = Plan {
        version: VERSION,
        name: topology.name.clone(),
        question: topology.question.clone(),
        seed: selection.seed,
        profile: request.profile,
        rounds: selection.rounds,
        precision: selection.precision,
        compare: schedule.compare,
        levels: schedule.levels,
        min_effect: topology.min_effect,
        policy: topology.policy.clone(),
        nodes,
        underlays,
        engines: schedule.carried.engines,
        stacks: schedule.stacks,
        phases,
        settings: schedule.settings,
        tunnels,
        pairs: schedule.pairs,
        arrangements: schedule.arrangements,
        tests: schedule.carried.tests,
        visits,
        forecast: Forecast::default(),
    };
    order::check_precision(&plan)?;
    plan.forecast = forecast::forecast(&plan, topology, request)?;
    Ok(plan)
}

#[cfg(test)]
mod tests;
