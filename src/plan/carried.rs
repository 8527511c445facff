//! What there is to be carried, and which tests an engine can carry.

use std::collections::BTreeSet;

use super::error::PlanError;
use super::{EnginePlan, Plan, TestPlan};
use crate::cell::{Factor, TestKind, ends};
use crate::topology::EngineSpec;

/// The kinds of test that an engine can carry. `direct` has no interface, so no kernel sockets; `raw` has no handshake, and other
/// implementations have no way to ask for one.
fn carries(spec: &EngineSpec) -> fn(TestKind) -> bool {
    match spec {
        EngineSpec::Direct => |kind| matches!(kind, TestKind::UdpStream | TestKind::UdpRr | TestKind::Handshake),
        EngineSpec::Embedded => |_| true,
        EngineSpec::Raw | EngineSpec::Kernel | EngineSpec::Interface(_) | EngineSpec::Daemon(_) => {
            |kind| kind != TestKind::Handshake
        }
    }
}

/// The engines and the tests of a plan.
#[derive(Debug)]
pub(super) struct Carried {
    pub(super) engines: Vec<EnginePlan>,
    pub(super) tests: Vec<TestPlan>,
}

impl Carried {
    /// The indices of the tests that `engine` (a level) can carry, and that have a flow for each of `tunnels`.
    pub(super) fn tests_of(&self, engine: &str, tunnels: Option<u32>) -> Vec<usize> {
        let kinds: Vec<fn(TestKind) -> bool> = self.specs(engine).map(carries).collect();
        let carried =
            |test: &TestPlan| kinds.iter().all(|carries| carries(test.kind)) && test.flows() >= tunnels.unwrap_or(1);
        self.tests.iter().enumerate().filter(|(_, test)| carried(test)).map(|(index, _)| index).collect()
    }

    /// What the ends of an engine level are.
    pub(super) fn specs(&self, level: &str) -> impl Iterator<Item = &EngineSpec> {
        let (client, server) = ends(level);
        self.engines
            .iter()
            .filter(move |engine| engine.name == client || engine.name == server)
            .map(|engine| &engine.spec)
    }

    /// Whether an engine level makes tunnels, or finds them.
    pub(super) fn has_tunnels(&self, level: &str) -> bool {
        self.specs(level).any(|spec| *spec != EngineSpec::Raw)
    }

    /// The error where an engine level carries none of the tests.
    pub(super) fn no_test_for(&self, level: &str) -> PlanError {
        let kinds: Vec<fn(TestKind) -> bool> = self.specs(level).map(carries).collect();
        let can = TestKind::MEASURED.into_iter().filter(|kind| kinds.iter().all(|carries| carries(*kind)));
        let names: BTreeSet<&str> = self.tests.iter().map(|test| test.name.as_str()).collect();
        PlanError::NoTestForEngine {
            engine: level.to_owned(),
            tests: names.into_iter().collect::<Vec<_>>().join(", "),
            can: can.map(TestKind::name).collect::<Vec<_>>().join(", "),
        }
    }
}

impl Plan {
    /// What is not measured because an engine cannot carry it: a line for each engine level with tests left out.
    pub fn left_out(&self) -> Vec<String> {
        let levels = self.levels.get(&Factor::Engine).into_iter().flatten();
        levels
            .filter_map(|level| {
                let (client, server) = ends(level);
                let of_level = |name: &str| name == client || name == server;
                let specs: Vec<&EngineSpec> =
                    self.engines.iter().filter(|engine| of_level(&engine.name)).map(|engine| &engine.spec).collect();
                let can = |kind: TestKind| specs.iter().all(|spec| carries(spec)(kind));
                let names = |carried: bool| {
                    let tests = self.tests.iter().filter(|test| can(test.kind) == carried);
                    tests
                        .map(|test| test.name.as_str())
                        .collect::<BTreeSet<_>>()
                        .into_iter()
                        .collect::<Vec<_>>()
                        .join(", ")
                };
                let why = if specs.contains(&&EngineSpec::Direct) {
                    "it has no interface for the kernel's sockets"
                } else if specs.contains(&&EngineSpec::Raw) {
                    "it has no tunnel"
                } else {
                    "only embedded and direct make handshakes when they are asked to"
                };
                let out = names(false);
                (!out.is_empty()).then(|| format!("{level} is measured with {} and not with {out}: {why}", names(true)))
            })
            .collect()
    }
}
