//! From the plan to a lab that is up, and down again. `tunnels` has how tunnels come up, `switch` what each visit changes, `told` what the lab tells, `watched`
//! what befalls one that is kept up.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use futures_util::future::try_join_all;

use super::Watch;
use super::found::{self, Found};
use super::states::{self, Keys, PROVIDER, Stacks};
use crate::agent::messages::{Ask, Calibration, Facts, Granted, NodeState, Tell};
use crate::plan::{Arrangement, Phase, Plan, Reach};
use crate::reach::{self, Link, LocalLab};
use crate::text::with_causes;

mod switch;
mod told;
mod tunnels;
mod watched;

pub use watched::Death;

/// How long an agent may take to answer a question about itself.
const ANSWER: Duration = Duration::from_secs(10);
/// A lab that is up.
pub struct Lab {
    /// The agents of the nodes, by name.
    pub nodes: BTreeMap<String, Link>,
    /// What each node is.
    pub facts: BTreeMap<String, Facts>,
    /// The generator's own ceiling on each node.
    pub calibrations: BTreeMap<String, Calibration>,
    /// What made-here nodes as a whole could not be given.
    pub notes: Vec<String>,
    /// Process ids of agents in the lab's PID namespace.
    pids: BTreeMap<String, u32>,
    /// Process ids of agents as seen from here, for those who want to enter.
    pub host_pids: BTreeMap<String, u32>,
    provider: Option<Link>,
    local: Option<LocalLab>,
    /// The stack under each node now.
    stacks: Stacks,
    /// The state of each node as applied last.
    states: BTreeMap<String, NodeState>,
    keys: Keys,
    /// What the node's settings are, read back, and why they and its queues are not as they should be: by node.
    granted: BTreeMap<String, Vec<Granted>>,
    refused: BTreeMap<String, String>,
    /// Why tunnels cannot be measured, by engine level, underlay and number.
    unavailable: BTreeMap<(String, String, u32), String>,
    /// Tunnels that something else manages.
    found: Found,
}

impl Lab {
    /// Raises everything that `plan` names.
    pub async fn raise(plan: &Plan, watch: &mut dyn Watch) -> anyhow::Result<Self> {
        Self::raise_on(plan, None, watch).await
    }

    /// Raises everything that `plan` names, on nodes that are on the stacks of `phase`.
    pub(super) async fn raise_on(plan: &Plan, phase: Option<&Phase>, watch: &mut dyn Watch) -> anyhow::Result<Self> {
        watch.stage("starting agents");
        let mut lab = Self::reach(plan).await?;
        if let Some(phase) = phase {
            lab.stacks.clone_from(&phase.stacks);
        } else if let Some(stack) = plan.stacks.first() {
            lab.stacks = plan.nodes.iter().map(|node| (node.name.clone(), stack.name.clone())).collect();
        }
        match lab.build(plan, watch).await {
            Ok(()) => Ok(lab),
            Err(error) => {
                let error = lab.explain(error);
                Err(and_then(error, lab.down().await))
            }
        }
    }

    async fn reach(plan: &Plan) -> anyhow::Result<Self> {
        let mut made = Vec::new();
        let mut commands = Vec::new();
        for node in &plan.nodes {
            match &node.reach {
                Reach::Local { agent } => made.push((node.name.clone(), agent.clone())),
                Reach::Command { argv } => commands.push((node.name.clone(), argv.clone())),
            }
        }
        if !made.is_empty() {
            made.push((PROVIDER.to_owned(), None));
        }
        let mut lab = Self {
            nodes: BTreeMap::new(),
            facts: BTreeMap::new(),
            calibrations: BTreeMap::new(),
            notes: Vec::new(),
            pids: BTreeMap::new(),
            host_pids: BTreeMap::new(),
            provider: None,
            local: None,
            stacks: Stacks::new(),
            states: BTreeMap::new(),
            keys: Keys::new(),
            granted: BTreeMap::new(),
            refused: BTreeMap::new(),
            unavailable: BTreeMap::new(),
            found: Found::default(),
        };
        let mut opening = Vec::new();
        if !made.is_empty() {
            let reach::Made { lab: local, agents } = reach::make(made)?;
            lab.notes.clone_from(&local.notes);
            lab.local = Some(local);
            for agent in agents {
                lab.notes.extend(agent.notes.iter().map(|note| format!("node {}: {note}", agent.name)));
                lab.host_pids.extend(agent.pid.map(|pid| (agent.name.clone(), pid)));
                opening.push(agent.channel);
            }
        }
        for (name, argv) in commands {
            opening.push(reach::command(&name, &argv)?);
        }
        let opened = try_join_all(opening.into_iter().map(Link::open)).await;
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let error = lab.explain(error.into());
                return Err(and_then(error, lab.down().await));
            }
        };
        for (link, hello) in opened {
            lab.pids.insert(link.node().to_owned(), hello.pid);
            if link.node() == PROVIDER {
                lab.provider = Some(link);
            } else {
                lab.nodes.insert(link.node().to_owned(), link);
            }
        }
        Ok(lab)
    }

    async fn build(&mut self, plan: &Plan, watch: &mut dyn Watch) -> anyhow::Result<()> {
        let probes = self.nodes.values_mut().map(|link| async move {
            let told = link.ask(&Ask::Probe, ANSWER).await?;
            let Tell::Facts(facts) = told else { return Err(link.unexpected(&told)) };
            Ok((link.node().to_owned(), *facts))
        });
        self.facts = try_join_all(probes).await?.into_iter().collect();

        let absent = found::absent(plan, &self.facts);
        if !absent.is_empty() {
            bail!(
                "{}; bring them up there, correct the engine's `interface`, or leave the engine out (`--only engine=...`)",
                absent.join("; ")
            );
        }

        watch.stage("making links");
        self.apply_provider(plan).await?;
        self.states = plan
            .nodes
            .iter()
            .map(|node| (node.name.clone(), states::node(plan, node, &self.stacks, self.cpus(&node.name))))
            .collect();
        let refused = self.apply_nodes().await?;
        for (node, applied) in refused {
            self.remember(&node, &applied);
            self.notes.extend(self.refused.get(&node).map(|why| format!("node {node}: {why}")));
        }

        watch.stage("calibrating the generator");
        self.calibrate().await?;

        if plan.has_tunnels() {
            let building = format!("building tunnels ({})", made(plan));
            watch.stage(&building);
            said_while(&building, self.tunnels(plan), watch).await?;
            let statuses = self.statuses().await?;
            self.found = found::found(plan, &self.facts, &self.keys, &statuses);
            watch.stage("shaking hands");
            let plan = self.with_found(plan);
            self.shake_hands(&plan).await?;
        }
        Ok(())
    }

    /// The plan, and in it the tunnels that it did not make.
    pub(super) fn with_found(&self, plan: &Plan) -> Plan {
        let mut plan = plan.clone();
        plan.tunnels.extend(self.found.tunnels.iter().cloned());
        plan
    }

    /// One host after the other, since made-here nodes share this one: then the first speaks for all of them.
    async fn calibrate(&mut self) -> anyhow::Result<()> {
        let mut made_here = None;
        for (name, link) in &mut self.nodes {
            let calibration = match made_here.filter(|_| !link.is_command()) {
                Some(calibration) => calibration,
                None => {
                    let told = link.ask(&Ask::Calibrate, ANSWER).await?;
                    let Tell::Calibration(calibration) = told else { return Err(link.unexpected(&told).into()) };
                    calibration
                }
            };
            if !link.is_command() {
                made_here = Some(calibration);
            }
            self.calibrations.insert(name.clone(), calibration);
        }
        Ok(())
    }

    /// An agent that is gone: how it ended says more than that its pipe did.
    pub fn explain(&mut self, error: anyhow::Error) -> anyhow::Error {
        let Some(local) = &self.local else { return error };
        // The end of a process is told by the lab's init, a moment after its pipe has closed.
        let ends: Vec<String> = std::iter::from_fn(|| local.exits().recv_timeout(Duration::from_millis(100)).ok())
            .take(self.nodes.len() + 2)
            .map(|exit| exit.to_string())
            .collect();
        if ends.is_empty() { error } else { error.context(ends.join("; ")) }
    }

    /// The client's and the server's agent, and the provider's, if there is one.
    pub(super) fn pair(
        &mut self,
        arrangement: &Arrangement,
    ) -> anyhow::Result<(&mut Link, &mut Link, Option<&mut Link>)> {
        let (mut client, mut server) = (None, None);
        for (name, link) in &mut self.nodes {
            if *name == arrangement.pair.client {
                client = Some(link);
            } else if *name == arrangement.pair.server {
                server = Some(link);
            }
        }
        let (client, server) =
            client.zip(server).with_context(|| format!("pair {} has no agents", arrangement.pair))?;
        Ok((client, server, self.provider.as_mut()))
    }

    /// The interface of `underlay` on `node`: the lab's own, or the one that holds a real node's address.
    pub(super) fn pinned(&self, plan: &Plan, node: &str, underlay: &str) -> Option<String> {
        let attachment = plan.node(node)?.attachment(underlay)?;
        match &attachment.link {
            Some(link) => Some(link.interface.clone()),
            None => self.facts.get(node)?.interface_of(attachment.address),
        }
    }

    /// The public keys of all devices.
    pub(super) const fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Takes everything down and returns when it is gone. Closing its pipe is all that an agent needs to undo what it did;
    /// made-here ones go with their namespaces.
    pub async fn down(mut self) -> anyhow::Result<()> {
        let mut left = Vec::new();
        for link in std::mem::take(&mut self.nodes).into_values().filter(Link::is_command) {
            let node = link.node().to_owned();
            if let Err(error) = link.close().await {
                left.push(format!("{node}: {error}"));
            }
        }
        if let Some(local) = self.local.take()
            && let Err(error) = local.down()
        {
            left.push(format!("the lab made here: {error}"));
        }
        if left.is_empty() { Ok(()) } else { bail!("nodes that may not be clean: {}", left.join("; ")) }
    }
}

/// How often a stage that takes long is told.
const STILL: Duration = Duration::from_secs(3);

/// Awaits `work`, and tells what it is now and then: a daemon that hangs is given up only when its time is over.
async fn said_while<T>(what: &str, work: impl Future<Output = T>, watch: &mut dyn Watch) -> T {
    tokio::pin!(work);
    let begun = Instant::now();
    loop {
        match tokio::time::timeout(STILL, &mut work).await {
            Ok(done) => return done,
            Err(_) => watch.still(what, begun.elapsed()),
        }
    }
}

/// The engines of the tunnels that a plan makes.
fn made(plan: &Plan) -> String {
    let first = plan.tunnels.iter().filter(|tunnel| tunnel.number == 0);
    let mut names: Vec<&str> = first.map(|tunnel| tunnel.engine.as_str()).collect();
    names.dedup();
    names.join(", ")
}

/// An error, and what went wrong after it. The first one comes first.
fn and_then(error: anyhow::Error, down: anyhow::Result<()>) -> anyhow::Error {
    match down {
        Ok(()) => error,
        Err(after) => anyhow!(
            "{}; and then the lab could not be taken down: {}",
            with_causes(error.as_ref()),
            with_causes(after.as_ref())
        ),
    }
}
