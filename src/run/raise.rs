//! From the plan to a lab that is up: agents, links, tunnels that have shaken hands.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use futures_util::future::try_join_all;

use super::Watch;
use super::found::{self, Found};
use super::states::{self, Keys, PROVIDER, Stacks};
use crate::agent::messages::{
    Applied, Ask, Calibration, Facts, Granted, NodeState, Part, Status, Tell, why_no_handshake,
};
use crate::plan::{Arrangement, NodePlan, Phase, Plan, Reach, TunnelEnd, TunnelPlan};
use crate::reach::{self, Link, LocalLab};
use crate::text::with_causes;

mod told;

/// How long an agent may take to be what it was told: starting every engine of a large mesh is the slowest of it.
const APPLY: Duration = Duration::from_secs(60);
/// How long an agent may take to answer a question about itself.
const ANSWER: Duration = Duration::from_secs(10);
/// How long handshakes may take, all together. WireGuard retries after 5 s (paper section 6.4): once must do.
const HANDSHAKES: Duration = Duration::from_secs(8);

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

    /// Engines first, since each agent makes its own keys; then the peers, whose keys are known by then.
    async fn tunnels(&mut self, plan: &Plan) -> anyhow::Result<()> {
        for with_peers in [false, true] {
            for node in &plan.nodes {
                let openable = self.facts.get(&node.name).is_none_or(|facts| facts.tun.is_ok());
                let mut tunnels =
                    states::tunnels(plan, node, &self.keys, |underlay| self.pinned(plan, &node.name, underlay));
                tunnels.retain(|tunnel| openable || !states::needs_tun(&tunnel.spec.engine));
                tunnels.extend(found::states(plan, &node.name, self.facts.get(&node.name)));
                if with_peers {
                    tunnels
                        .retain(|tunnel| self.keys.contains_key(&(node.name.clone(), tunnel.spec.interface.clone())));
                }
                if !openable && !with_peers {
                    self.tun_is_closed(plan, node);
                }
                if let Some(state) = self.states.get_mut(&node.name) {
                    state.tunnels = tunnels;
                }
            }
            for (node, applied) in self.apply_nodes().await? {
                for refusal in applied.refused.iter().filter(|refusal| refusal.part == Part::Tunnel) {
                    self.tunnel_refused(plan, &node, &refusal.what, &refusal.why);
                }
                for (interface, key) in applied.public_keys {
                    self.keys.insert((node.clone(), interface), key);
                }
            }
        }
        Ok(())
    }

    fn tun_is_closed(&mut self, plan: &Plan, node: &NodePlan) {
        let Some(Err(why)) = self.facts.get(&node.name).map(|facts| &facts.tun) else { return };
        let needs = |end: &TunnelEnd| end.node == node.name && states::end_needs_tun(plan, end);
        for tunnel in plan.tunnels.iter().filter(|tunnel| tunnel.ends.iter().any(needs)) {
            let cell = which(tunnel);
            self.unavailable.entry(cell).or_insert_with(|| format!("node {} has no TUN device: {why}", node.name));
        }
    }

    fn tunnel_refused(&mut self, plan: &Plan, node: &str, interface: &str, why: &str) {
        for (engine, underlay) in found::refused(plan, node, interface) {
            self.unavailable
                .entry((engine, underlay, 0))
                .or_insert_with(|| format!("{interface} on node {node}: {why}"));
        }
        let is_it = |end: &TunnelEnd| end.node == node && end.interface == interface;
        for tunnel in plan.tunnels.iter().filter(|tunnel| tunnel.ends.iter().any(is_it)) {
            let cell = which(tunnel);
            self.unavailable.entry(cell).or_insert_with(|| format!("{interface} on node {node}: {why}"));
        }
        // Else every switch would start it again.
        if let Some(state) = self.states.get_mut(node) {
            state.tunnels.retain(|tunnel| tunnel.spec.interface != interface);
        }
    }

    /// Wakes every tunnel and waits until both ends of each pair have a session.
    async fn shake_hands(&mut self, plan: &Plan) -> anyhow::Result<()> {
        let mut targets: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
        let mut wanted = Vec::new();
        for tunnel in plan.tunnels.iter().filter(|tunnel| self.has(tunnel)) {
            for (client, server) in plan.pairs.iter().filter_map(|pair| tunnel.ends(pair)) {
                targets.entry(client.node.clone()).or_default().push(server.inner.addr());
                wanted.push((tunnel, client, server));
            }
        }
        let wakes = self.nodes.values_mut().filter_map(|link| {
            let targets = targets.remove(link.node())?;
            Some(async move { link.ask(&Ask::Wake { targets }, ANSWER).await })
        });
        try_join_all(wakes).await?;
        let deadline = Instant::now() + HANDSHAKES;
        loop {
            let statuses = self.statuses().await?;
            wanted.retain(|(_, client, server)| !self.has_session(&statuses, client, server));
            if wanted.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                for (tunnel, client, server) in wanted {
                    let why = self.why_none(&statuses, client, server);
                    let cell = which(tunnel);
                    let text = format!(
                        "no handshake from {} to {} within {} s: {why}",
                        client.node,
                        server.node,
                        HANDSHAKES.as_secs()
                    );
                    self.unavailable.entry(cell).or_insert(text);
                }
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The state of every tunnel, by node and interface.
    async fn statuses(&mut self) -> anyhow::Result<BTreeMap<(String, String), Status>> {
        let asked = self.nodes.values_mut().map(|link| async move {
            let told = link.ask(&Ask::Status, ANSWER).await?;
            let Tell::Status(statuses) = told else { return Err(link.unexpected(&told)) };
            Ok((link.node().to_owned(), statuses))
        });
        let told = try_join_all(asked).await?;
        Ok(told
            .into_iter()
            .flat_map(|(node, statuses)| {
                statuses.into_iter().map(move |(interface, status)| ((node.clone(), interface), status))
            })
            .collect())
    }

    fn has_session(&self, statuses: &BTreeMap<(String, String), Status>, one: &TunnelEnd, other: &TunnelEnd) -> bool {
        let sees = |end: &TunnelEnd, peer: &TunnelEnd| {
            let key = self.keys.get(&place(peer));
            let status = statuses.get(&place(end));
            status.is_some_and(|status| {
                status.peers.iter().any(|seen| Some(&seen.public_key) == key && seen.last_handshake.is_some())
            })
        };
        sees(one, other) && sees(other, one)
    }

    fn why_none(
        &self,
        statuses: &BTreeMap<(String, String), Status>,
        client: &TunnelEnd,
        server: &TunnelEnd,
    ) -> String {
        let end = |end: &TunnelEnd| Some((*self.keys.get(&place(end))?, statuses.get(&place(end))?));
        match (end(client), end(server)) {
            (Some(client), Some(server)) => why_no_handshake(client, server),
            _ => "one end has no device".to_owned(),
        }
    }

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
    fn remember(&mut self, node: &str, applied: &Applied) {
        self.granted.insert(node.to_owned(), applied.settings.clone());
        match applied.refused.iter().find(|refusal| refusal.part != Part::Tunnel) {
            Some(refusal) => self.refused.insert(node.to_owned(), format!("{}: {}", refusal.what, refusal.why)),
            None => self.refused.remove(node),
        };
    }

    fn cpus(&self, node: &str) -> u32 {
        self.facts.get(node).and_then(|facts| facts.cpus).unwrap_or(1)
    }

    async fn apply_provider(&mut self, plan: &Plan) -> anyhow::Result<()> {
        let Some(link) = &mut self.provider else { return Ok(()) };
        let provider = Some(states::provider(plan, &self.pids, &self.stacks));
        let state = NodeState { provider, ..NodeState::default() };
        match apply(link, &state).await?.refused.first() {
            Some(refusal) => Err(anyhow!("the lab's provider was refused {}: {}", refusal.what, refusal.why)),
            None => Ok(()),
        }
    }

    async fn apply_nodes(&mut self) -> anyhow::Result<Vec<(String, Applied)>> {
        let applies = self.nodes.values_mut().filter_map(|link| {
            let state = self.states.get(link.node())?;
            Some(async move { anyhow::Ok((link.node().to_owned(), apply(link, state).await?)) })
        });
        try_join_all(applies).await
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

    /// Resolves when an agent ends, which nobody asked it to.
    pub async fn watch_agents(&mut self) -> anyhow::Error {
        let ends = self.nodes.values_mut().chain(&mut self.provider).map(|link| Box::pin(link.ended()));
        let (error, _, _) = futures_util::future::select_all(ends).await;
        self.explain(error.into())
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

/// Which tunnel it is: its engine level, underlay and number.
fn which(tunnel: &TunnelPlan) -> (String, String, u32) {
    (tunnel.engine.clone(), tunnel.underlay.clone(), tunnel.number)
}

/// Where a device is: its node and interface.
fn place(end: &TunnelEnd) -> (String, String) {
    (end.node.clone(), end.interface.clone())
}

async fn apply(link: &mut Link, state: &NodeState) -> anyhow::Result<Applied> {
    let told = link.ask(&Ask::Apply(Box::new(state.clone())), APPLY).await?;
    let Tell::Applied(applied) = told else { return Err(link.unexpected(&told).into()) };
    Ok(applied)
}
