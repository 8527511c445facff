//! Phases: what is switched by hand or by a command, and so seldom.
//!
//! A stack under a real node takes minutes to switch. Every pair is measured on every level all the same, half of them in the
//! other order: a crossover, as in the measurements that this project starts from. Pairs that share a node are switched
//! together; every second such group starts on the next level.
//!
//! ```text
//!            phase 1    phase 2
//!   a1>a2    standard   ebpf
//!   b1>b2    ebpf       standard
//! ```

use std::collections::BTreeMap;

use super::error::PlanError;
use super::schedule::Schedule;
use super::{Arrangement, Pair, Phase};
use crate::cell::{Factor, ends};
use crate::topology::Topology;

impl Phase {
    /// Whether the nodes of `arrangement` are on its stacks.
    pub fn holds(&self, arrangement: &Arrangement) -> bool {
        let (client, server) = arrangement.stacks();
        let on = |node: &str, stack: &str| self.stacks.get(node).is_some_and(|now| now == stack);
        on(&arrangement.pair.client, client) && on(&arrangement.pair.server, server)
    }
}

/// The phases of real nodes; none where a provider switches with every visit, or where there is nothing to switch or verify.
pub(super) fn phases(topology: &Topology, schedule: &Schedule) -> Result<Vec<Phase>, PlanError> {
    let Some(levels) = schedule.levels.get(&Factor::Stack).filter(|_| !topology.is_local()) else {
        return Ok(Vec::new());
    };
    let hooks = schedule.stacks.iter().any(|stack| stack.switch.is_some() || stack.verify.is_some());
    if levels.len() < 2 && !hooks {
        return Ok(Vec::new());
    }
    let groups = groups(&schedule.pairs);
    (0..levels.len())
        .map(|phase| {
            let mut stacks = BTreeMap::new();
            for (index, pairs) in groups.iter().enumerate() {
                put(&levels[(phase + index) % levels.len()], pairs, &mut stacks)?;
            }
            Ok(Phase { stacks })
        })
        .collect()
}

/// Puts the nodes of `pairs` on `level`.
fn put(level: &str, pairs: &[&Pair], stacks: &mut BTreeMap<String, String>) -> Result<(), PlanError> {
    let (client, server) = ends(level);
    for pair in pairs {
        for (node, stack) in [(&pair.client, client), (&pair.server, server)] {
            let one = stacks.entry(node.clone()).or_insert_with(|| stack.to_owned());
            if one != stack {
                let (one, other) = (one.clone(), stack.to_owned());
                return Err(PlanError::TwoStacks { node: node.clone(), level: level.to_owned(), one, other });
            }
        }
    }
    Ok(())
}

/// Pairs that share nodes, directly or through others, in the order of their first pair.
fn groups(pairs: &[Pair]) -> Vec<Vec<&Pair>> {
    let mut groups: Vec<Vec<&Pair>> = Vec::new();
    for pair in pairs {
        let touches = |group: &Vec<&Pair>| {
            group.iter().any(|other| {
                [&other.client, &other.server].into_iter().any(|node| *node == pair.client || *node == pair.server)
            })
        };
        let (touched, apart): (Vec<_>, Vec<_>) = groups.into_iter().partition(touches);
        let mut joined: Vec<&Pair> = touched.into_iter().flatten().collect();
        joined.push(pair);
        groups = apart;
        groups.push(joined);
    }
    groups.sort_by_key(|group| pairs.iter().position(|pair| group.contains(&pair)));
    groups
}
