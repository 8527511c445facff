//! What changes from visit to visit: stacks under nodes, and queues and settings in them. Tells agents what they are to be.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use futures_util::future::try_join_all;

use super::Lab;
use crate::agent::messages::{Applied, Ask, NodeState, Part, Tell};
use crate::plan::{Arrangement, Plan};
use crate::reach::Link;
use crate::run::states;

/// How long an agent may take to be what it was told: starting every engine of a large mesh is the slowest of it.
const APPLY: Duration = Duration::from_secs(60);

impl Lab {
    /// Puts the arrangement's stacks under its pair, and its settings into them. Returns why it cannot be measured, if so.
    pub async fn switch(&mut self, plan: &Plan, arrangement: &Arrangement) -> anyhow::Result<Result<(), String>> {
        let (client, server) = arrangement.stacks();
        let ends = [(&arrangement.pair.client, client), (&arrangement.pair.server, server)];
        let mut changed = false;
        for (node, stack) in ends {
            let Some(queues) = plan.stack(stack).and_then(|stack| stack.receive_queues) else { continue };
            match self.facts.get(node).and_then(|facts| facts.cpus) {
                Some(cpus) if cpus >= queues => {}
                cpus => {
                    let has = cpus.map_or_else(|| "nobody knows how many".to_owned(), |cpus| cpus.to_string());
                    let why = "each queue needs one of its own";
                    return Ok(Err(format!(
                        "node {node}: stack {stack} has {queues} receive queues, the host {has} CPUs: {why}"
                    )));
                }
            }
        }
        for (node, stack) in ends {
            if self.stacks.get(node).is_some_and(|now| now != stack) {
                self.stacks.insert(node.clone(), stack.to_owned());
                changed = true;
            }
        }
        if changed {
            self.apply_provider(plan).await?;
        }
        for (node, _) in ends {
            let Some(planned) = plan.node(node) else { bail!("the plan has no node {node}") };
            let settings =
                states::settings(plan, arrangement, node, self.pinned(plan, node, &arrangement.underlay).as_deref());
            let mut queues = states::node(plan, planned, &self.stacks, self.cpus(node)).queues;
            if settings.receive_cpus.is_some() {
                queues.iter_mut().filter(|queue| settings.interfaces.contains(&queue.interface)).for_each(|queue| {
                    queue.cpus = None;
                });
            }
            let state = self.states.entry(node.clone()).or_default();
            if state.queues == queues && state.settings == settings {
                continue;
            }
            (state.queues, state.settings) = (queues, settings);
            let applied = apply(self.nodes.get_mut(node).context("a node without an agent")?, state).await?;
            self.remember(node, &applied);
        }
        if let Some((node, why)) = ends.iter().find_map(|(node, _)| Some((node, self.refused.get(*node)?))) {
            return Ok(Err(format!("node {node}: {why}")));
        }
        let (engine, underlay) = (&arrangement.engine, &arrangement.underlay);
        let pair = (engine.clone(), underlay.clone(), arrangement.pair.clone());
        let tunnels = (0..arrangement.tunnels.unwrap_or(1)).map(|number| (engine.clone(), underlay.clone(), number));
        let why = tunnels.filter_map(|tunnel| self.unavailable.get(&tunnel)).next();
        let why = why.or_else(|| self.found.missing.get(&pair));
        Ok(why.map_or(Ok(()), |why| Err(why.clone())))
    }

    /// Keeps what became of a node's queues and settings: until something is asked anew, what was refused stays refused.
    pub(super) fn remember(&mut self, node: &str, applied: &Applied) {
        self.granted.insert(node.to_owned(), applied.settings.clone());
        match applied.refused.iter().find(|refusal| refusal.part != Part::Tunnel) {
            Some(refusal) => self.refused.insert(node.to_owned(), format!("{}: {}", refusal.what, refusal.why)),
            None => self.refused.remove(node),
        };
    }

    pub(super) fn cpus(&self, node: &str) -> u32 {
        self.facts.get(node).and_then(|facts| facts.cpus).unwrap_or(1)
    }

    pub(super) async fn apply_provider(&mut self, plan: &Plan) -> anyhow::Result<()> {
        let Some(link) = &mut self.provider else { return Ok(()) };
        let provider = Some(states::provider(plan, &self.pids, &self.stacks));
        let state = NodeState { provider, ..NodeState::default() };
        match apply(link, &state).await?.refused.first() {
            Some(refusal) => Err(anyhow!("the lab's provider was refused {}: {}", refusal.what, refusal.why)),
            None => Ok(()),
        }
    }

    pub(super) async fn apply_nodes(&mut self) -> anyhow::Result<Vec<(String, Applied)>> {
        let applies = self.nodes.values_mut().filter_map(|link| {
            let state = self.states.get(link.node())?;
            Some(async move { anyhow::Ok((link.node().to_owned(), apply(link, state).await?)) })
        });
        try_join_all(applies).await
    }
}

async fn apply(link: &mut Link, state: &NodeState) -> anyhow::Result<Applied> {
    let told = link.ask(&Ask::Apply(Box::new(state.clone())), APPLY).await?;
    let Tell::Applied(applied) = told else { return Err(link.unexpected(&told).into()) };
    Ok(applied)
}
