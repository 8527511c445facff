//! Which levels of tunnels are measured, and with which tests.
//!
//! A pair has its streams spread over several tunnels, each with a device, a key and an outer port of its own, and so with
//! an outer flow of its own. A flow takes one of them: a test is measured over as many tunnels as it has flows, or fewer. The raw
//! underlay has none, and stands once beside all levels.

use std::collections::BTreeMap;

use super::carried::Carried;
use super::error::PlanError;
use super::select::Selection;
use super::{EngineSpec, Plan, TestPlan};
use crate::cell::Factor;

/// The levels that can be measured, in their order; none where that is no factor.
pub(super) fn levels(carried: &Carried, selection: &Selection<'_>) -> Result<Vec<u32>, PlanError> {
    let tunnelled: Vec<&str> = selection
        .engine_levels
        .iter()
        .map(String::as_str)
        .filter(|level| carried.has_tunnels(level) && !carried.tests_of(level, None).is_empty())
        .collect();
    let mut levels = selection.tunnels.clone();
    if tunnelled.is_empty() || levels.is_empty() {
        return Ok(Vec::new());
    }
    check_engines(carried, &tunnelled, &levels)?;
    let is_carried = |level: &u32| tunnelled.iter().all(|engine| !carried.tests_of(engine, Some(*level)).is_empty());
    // Who asks for one test does not ask for the levels that it has nothing to do with; who names a level means it.
    let narrowed = selection.only.keys().any(|factor| !factor.is_arranged());
    if narrowed && !selection.only.contains_key(&Factor::Tunnels) && levels.iter().any(is_carried) {
        levels.retain(is_carried);
    }
    if let Some(&tunnels) = levels.iter().find(|level| !is_carried(level)) {
        let most = carried.tests.iter().map(TestPlan::flows).max().unwrap_or(1);
        return Err(PlanError::FewFlows { tunnels, most });
    }
    check_tests(carried, selection, &levels)?;
    Ok(levels)
}

/// What has one tunnel only.
fn check_engines(carried: &Carried, engines: &[&str], levels: &[u32]) -> Result<(), PlanError> {
    let Some(&tunnels) = levels.iter().find(|level| **level > 1) else { return Ok(()) };
    for level in engines {
        for spec in carried.specs(level) {
            let why = match spec {
                EngineSpec::Interface(name) => {
                    format!("`{name}` is one interface that something else manages, and others are not made beside it")
                }
                EngineSpec::Direct => {
                    "`direct` has no device, so there is nothing to spread kernel sockets over".to_owned()
                }
                EngineSpec::Raw | EngineSpec::Embedded | EngineSpec::Kernel | EngineSpec::Daemon(_) => continue,
            };
            return Err(PlanError::OneTunnel { engine: (*level).to_owned(), tunnels, why });
        }
    }
    Ok(())
}

/// A test that no level takes would be left out of every tunnel without a word.
fn check_tests(carried: &Carried, selection: &Selection<'_>, levels: &[u32]) -> Result<(), PlanError> {
    let least = levels.iter().copied().min().unwrap_or(1);
    let mut flows: BTreeMap<&str, u32> = BTreeMap::new();
    for test in &carried.tests {
        let most = flows.entry(&test.name).or_default();
        *most = test.flows().max(*most);
    }
    if selection.only.contains_key(&Factor::Tunnels) {
        return Ok(());
    }
    match flows.into_iter().find(|(_, flows)| *flows < least) {
        Some((test, flows)) => Err(PlanError::TestNotSpread { test: test.to_owned(), flows, least }),
        None => Ok(()),
    }
}

impl Plan {
    /// The tests that some level of tunnels leaves out, since they have fewer flows, each with the most tunnels that it is
    /// measured over (0: none).
    pub fn spread_less(&self) -> Vec<(&TestPlan, u32)> {
        let mut levels: Vec<u32> = self.arrangements.iter().filter_map(|arrangement| arrangement.tunnels).collect();
        levels.sort_unstable();
        let Some(&last) = levels.last() else { return Vec::new() };
        let most = |test: &TestPlan| levels.iter().rfind(|level| **level <= test.flows()).copied().unwrap_or(0);
        self.tests.iter().filter(|test| test.flows() < last).map(|test| (test, most(test))).collect()
    }
}
