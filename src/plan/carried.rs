//! Which tests an engine can carry.

use std::collections::BTreeSet;

use super::Plan;
use crate::cell::{Factor, TestKind, ends};
use crate::topology::EngineSpec;

/// The kinds of test that an engine can carry. `direct` has no interface, so no kernel sockets; `raw` has no handshake, and other
/// implementations have no way to ask for one.
pub(super) fn carries(spec: &EngineSpec) -> fn(TestKind) -> bool {
    match spec {
        EngineSpec::Direct => |kind| matches!(kind, TestKind::UdpStream | TestKind::UdpRr | TestKind::Handshake),
        EngineSpec::Embedded => |_| true,
        EngineSpec::Raw | EngineSpec::Kernel | EngineSpec::Interface(_) | EngineSpec::Daemon(_) => {
            |kind| kind != TestKind::Handshake
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
