//! What a lab tells about itself: for the record, and for people.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Lab;
use crate::agent::messages::{Facts, JobOutcome};
use crate::plan::{Arrangement, Plan};

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
        let cells = lines.map(|((engine, underlay), why)| format!("{engine} over {underlay} is not there: {why}"));
        let pairs =
            self.found.missing.iter().filter(|((engine, underlay, _), _)| {
                !self.unavailable.contains_key(&(engine.clone(), underlay.clone()))
            });
        let pairs = pairs
            .map(|((engine, underlay, pair), why)| format!("{engine} over {underlay} is not there for {pair}: {why}"));
        cells.chain(pairs).collect()
    }

    /// Whether the tunnel of an engine level over an underlay is there, for one pair at least.
    pub fn has(&self, engine: &str, underlay: &str) -> bool {
        !self.unavailable.contains_key(&(engine.to_owned(), underlay.to_owned()))
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
        let ends =
            plan.tunnel(&arrangement.engine, &arrangement.underlay).and_then(|tunnel| tunnel.ends(&arrangement.pair));
        let sides = [
            ("client", &arrangement.pair.client, client, ends.map(|(end, _)| end)),
            ("server", &arrangement.pair.server, server, ends.map(|(_, end)| end)),
        ];
        for (side, node, outcome, end) in sides {
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
            let Some(status) = end.and_then(|end| outcome.tunnels.get(&end.interface)).map(|around| &around.after)
            else {
                continue;
            };
            if let Some(version) = &status.version {
                conditions.insert(format!("{side}.engine_version"), json!(version));
            }
            if let Some(granted) = &status.granted {
                conditions.insert(format!("{side}.engine_granted"), json!(granted));
            }
            if let Some(engine) = &status.engine {
                conditions.insert(format!("{side}.engine_offloads"), json!(engine.offloads));
                conditions.insert(format!("{side}.engine_buffers"), json!(engine.udp_buffers));
            }
        }
        conditions
    }
}
