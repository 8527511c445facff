//! What a lab tells about itself: for the record, and for people.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::Lab;
use crate::agent::messages::{Facts, JobOutcome, Status};
use crate::plan::{Arrangement, Plan, TunnelEnd, TunnelPlan};

impl Lab {
    /// What each node is and what its generator can do, for the record's header.
    pub(in crate::run) fn describe(&self) -> BTreeMap<String, Value> {
        let describe = |(node, facts): (&String, &Facts)| {
            let mut value = json!(facts);
            if let (Some(fields), Some(calibration)) = (value.as_object_mut(), self.calibrations.get(node)) {
                fields.insert("generator".to_owned(), json!(calibration));
            }
            (node.clone(), value)
        };
        self.facts.iter().map(describe).collect()
    }

    /// Why cells cannot be measured, one line each.
    pub fn unavailable(&self) -> Vec<String> {
        let lines = self.unavailable.iter();
        let cells = lines.map(|((engine, underlay, number), why)| {
            let which = if *number == 0 { String::new() } else { format!("tunnel {} of ", number + 1) };
            format!("{which}{engine} over {underlay} is not there: {why}")
        });
        let pairs = self.found.missing.iter().filter(|((engine, underlay, _), _)| {
            !self.unavailable.contains_key(&(engine.clone(), underlay.clone(), 0))
        });
        let pairs = pairs
            .map(|((engine, underlay, pair), why)| format!("{engine} over {underlay} is not there for {pair}: {why}"));
        cells.chain(pairs).collect()
    }

    /// Whether the tunnel is there, for one pair at least.
    pub fn has(&self, tunnel: &TunnelPlan) -> bool {
        !self.unavailable.contains_key(&super::tunnels::which(tunnel))
    }

    /// Under which conditions a run was measured, beyond what its sockets say: read back, not as asked.
    pub(in crate::run) fn conditions(
        &self,
        plan: &Plan,
        arrangement: &Arrangement,
        client: &JobOutcome,
        server: &JobOutcome,
    ) -> BTreeMap<String, Value> {
        let mut conditions = BTreeMap::new();
        conditions.extend(arrangement.tunnels.map(|tunnels| ("tunnels".to_owned(), json!(tunnels))));
        let (at_client, at_server): (Vec<&TunnelEnd>, Vec<&TunnelEnd>) =
            plan.tunnels_of(arrangement).filter_map(|tunnel| tunnel.ends(&arrangement.pair)).unzip();
        let sides = [
            ("client", &arrangement.pair.client, client, at_client),
            ("server", &arrangement.pair.server, server, at_server),
        ];
        for (side, node, outcome, ends) in sides {
            if let Some(facts) = self.facts.get(node) {
                conditions.insert(format!("{side}.kernel"), json!(facts.kernel));
            }
            let granted = self.granted.get(node).into_iter().flatten();
            let settings: BTreeMap<&str, &str> =
                granted.map(|granted| (granted.setting.as_str(), granted.value.as_str())).collect();
            if !settings.is_empty() {
                conditions.insert(format!("{side}.settings"), json!(settings));
            }
            let stack = self.stacks.get(node).and_then(|stack| plan.stack(stack));
            if let Some(delivery) = stack.and_then(|stack| stack.delivery) {
                conditions.insert(format!("{side}.delivery"), json!(delivery));
            }
            let mut said = ends.iter().map(|end| {
                let status = outcome.tunnels.get(&end.interface).map(|around| &around.after);
                status.map(of_engine).unwrap_or_default()
            });
            let first = said.next().unwrap_or_default();
            // Of further tunnels only what is not as with the first one.
            for (number, other) in (2..).zip(said) {
                let names: BTreeSet<&&str> = first.keys().chain(other.keys()).collect();
                let differing = names.into_iter().filter(|name| first.get(**name) != other.get(**name));
                conditions.extend(differing.map(|name| {
                    let value = other.get(*name).cloned().unwrap_or_else(|| json!("not told"));
                    (format!("{side}.tunnel_{number}.{name}"), value)
                }));
            }
            conditions.extend(first.into_iter().map(|(name, value)| (format!("{side}.{name}"), value)));
        }
        conditions
    }
}

/// What an engine says of itself that is a condition.
fn of_engine(status: &Status) -> BTreeMap<&'static str, Value> {
    let mut said = BTreeMap::new();
    said.extend(status.version.as_ref().map(|version| ("engine_version", json!(version))));
    said.extend(status.granted.as_ref().map(|granted| ("engine_granted", json!(granted))));
    if let Some(engine) = &status.engine {
        said.insert("engine_offloads", json!(engine.offloads));
        said.extend(engine.udp_buffers.map(|buffers| ("engine_buffers", json!(buffers))));
    }
    said
}
