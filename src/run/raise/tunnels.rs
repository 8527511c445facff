//! The tunnels of a lab: built, joined by their keys, and awake; and why those that are not cannot be measured.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use super::{ANSWER, Lab};
use crate::agent::messages::{Ask, Part, Status, Tell, why_no_handshake};
use crate::plan::{NodePlan, Plan, TunnelEnd, TunnelPlan};
use crate::run::{found, states};

/// How long handshakes may take, all together. WireGuard retries after 5 s (paper section 6.4): once must do.
const HANDSHAKES: Duration = Duration::from_secs(8);

impl Lab {
    /// Engines first, since each agent makes its own keys; then the peers, whose keys are known by then.
    pub(super) async fn tunnels(&mut self, plan: &Plan) -> anyhow::Result<()> {
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
    pub(super) async fn shake_hands(&mut self, plan: &Plan) -> anyhow::Result<()> {
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
    pub(super) async fn statuses(&mut self) -> anyhow::Result<BTreeMap<(String, String), Status>> {
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
}

/// Which tunnel it is: its engine level, underlay and number.
pub(super) fn which(tunnel: &TunnelPlan) -> (String, String, u32) {
    (tunnel.engine.clone(), tunnel.underlay.clone(), tunnel.number)
}

/// Where a device is: its node and interface.
fn place(end: &TunnelEnd) -> (String, String) {
    (end.node.clone(), end.interface.clone())
}
