//! Tunnels that something else manages: found on the nodes, never made or changed. Pure.
//!
//! What a plan decides about its own tunnels is read here instead: inner addresses, ports and MTUs of the interfaces, and
//! which of them are each other's peers. A pair is measured over the underlay that its interfaces really use, and no other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::states::Keys;
use crate::agent::messages::{self, Facts, PeerStatus, Status, TunnelSpec, TunnelState};
use crate::cell::ends;
use crate::plan::{EngineSpec, Pair, Plan, TunnelEnd, TunnelPeer, TunnelPlan};
use crate::units::Mtu;

/// The state of every tunnel, by node and interface.
pub(super) type Statuses = BTreeMap<(String, String), Status>;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The tunnels, as if the plan had made them.
    pub(super) tunnels: Vec<TunnelPlan>,
    /// Why a pair has none, by engine level and underlay.
    pub(super) missing: BTreeMap<(String, String, Pair), String>,
}

/// The interface that engine `name` is, if something else manages it.
fn interface<'a>(plan: &'a Plan, name: &str) -> Option<&'a str> {
    match &plan.engine(name)?.spec {
        EngineSpec::Interface(interface) => Some(interface),
        EngineSpec::Raw | EngineSpec::Embedded | EngineSpec::Direct | EngineSpec::Kernel | EngineSpec::Daemon(_) => {
            None
        }
    }
}

/// Whether something else manages the device `end`.
pub(super) fn is_found(plan: &Plan, end: &TunnelEnd) -> bool {
    interface(plan, &end.engine).is_some()
}

/// The devices of `node` that are to be looked at.
pub(super) fn states(plan: &Plan, node: &str, facts: Option<&Facts>) -> Vec<TunnelState> {
    let mut names = BTreeSet::new();
    for arrangement in &plan.arrangements {
        let (client, server) = ends(&arrangement.engine);
        for (end, engine) in [(&arrangement.pair.client, client), (&arrangement.pair.server, server)] {
            names.extend(interface(plan, engine).filter(|_| end == node));
        }
    }
    names
        .into_iter()
        .filter_map(|name| {
            Some(TunnelState {
                spec: TunnelSpec {
                    interface: name.to_owned(),
                    // Not set on what others manage; where it cannot be read, the device is not there either.
                    mtu: mtu(facts, name).or_else(|| Mtu::new(1420).ok())?,
                    listen_port: 0,
                    engine: messages::TunnelEngine::Interface { name: name.to_owned() },
                    pin: None,
                    fwmark: None,
                    peers: Vec::new(),
                },
                addresses: Vec::new(),
                routes: Vec::new(),
            })
        })
        .collect()
}

/// The interfaces that the plan takes for something else's and that a node does not have, one phrase each.
pub(super) fn absent(plan: &Plan, facts: &BTreeMap<String, Facts>) -> Vec<String> {
    let mut absent = BTreeSet::new();
    for arrangement in &plan.arrangements {
        let (client, server) = ends(&arrangement.engine);
        for (node, engine) in [(&arrangement.pair.client, client), (&arrangement.pair.server, server)] {
            let interfaces = facts.get(node).and_then(|facts| facts.interfaces.as_ref());
            let (Some(name), Some(interfaces)) = (interface(plan, engine), interfaces) else { continue };
            if interfaces.contains_key(name) {
                continue;
            }
            let wireguard =
                interfaces.iter().filter(|(_, facts)| facts.uapi_socket || facts.kind.as_deref() == Some("wireguard"));
            let others = match wireguard.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ") {
                none if none.is_empty() => "it has no WireGuard interface".to_owned(),
                names => format!("its WireGuard interfaces: {names}"),
            };
            absent.insert(format!("node {node} has no interface {name}, which engine {engine} names ({others})"));
        }
    }
    absent.into_iter().collect()
}

/// The engine levels and underlays that cannot be measured where `interface` of `node` cannot be read.
pub(super) fn refused(plan: &Plan, node: &str, name: &str) -> BTreeSet<(String, String)> {
    let uses = |end: &str, engine: &str| end == node && interface(plan, engine) == Some(name);
    let arrangements = plan.arrangements.iter().filter(|arrangement| {
        let (client, server) = ends(&arrangement.engine);
        uses(&arrangement.pair.client, client) || uses(&arrangement.pair.server, server)
    });
    arrangements.map(|arrangement| (arrangement.engine.clone(), arrangement.underlay.clone())).collect()
}

fn mtu(facts: Option<&Facts>, interface: &str) -> Option<Mtu> {
    Mtu::new(u64::from(facts?.interfaces.as_ref()?.get(interface)?.mtu)).ok()
}

/// Puts together what the agents told.
pub(super) fn found(plan: &Plan, facts: &BTreeMap<String, Facts>, keys: &Keys, statuses: &Statuses) -> Found {
    let mut found = Found::default();
    let mut wanted: BTreeMap<(&str, &str), BTreeSet<&Pair>> = BTreeMap::new();
    for arrangement in &plan.arrangements {
        let (client, server) = ends(&arrangement.engine);
        if interface(plan, client).is_some() && interface(plan, server).is_some() {
            wanted.entry((&arrangement.engine, &arrangement.underlay)).or_default().insert(&arrangement.pair);
        }
    }
    for ((level, underlay), pairs) in wanted {
        let world = World { plan, facts, keys, statuses, level, underlay };
        let mut devices: BTreeMap<(String, String), TunnelEnd> = BTreeMap::new();
        for pair in pairs {
            if let Err(why) = world.join(pair, &mut devices) {
                found.missing.insert((level.to_owned(), underlay.to_owned(), pair.clone()), why);
            }
        }
        let mtus = devices.values().filter_map(|end| mtu(facts.get(&end.node), &end.interface));
        let (Some(mtu), Some(first)) = (mtus.min(), devices.values().next()) else { continue };
        found.tunnels.push(TunnelPlan {
            engine: level.to_owned(),
            underlay: underlay.to_owned(),
            number: 0,
            mtu,
            network: first.inner.trunc(),
            ends: devices.into_values().collect(),
        });
    }
    found
}

/// What is known about one engine level over one underlay.
struct World<'a> {
    plan: &'a Plan,
    facts: &'a BTreeMap<String, Facts>,
    keys: &'a Keys,
    statuses: &'a Statuses,
    level: &'a str,
    underlay: &'a str,
}

/// One end of a pair, as found.
struct Side<'a> {
    node: &'a str,
    engine: &'a str,
    interface: &'a str,
    addresses: Vec<IpNet>,
    outer: IpAddr,
    port: u16,
    /// What it says about the other end.
    peer: &'a PeerStatus,
}

impl<'a> World<'a> {
    /// Adds the pair's devices, or says why they do not carry it over this underlay.
    fn join(&self, pair: &'a Pair, devices: &mut BTreeMap<(String, String), TunnelEnd>) -> Result<(), String> {
        let (client, server) = ends(self.level);
        let client = self.side((&pair.client, client), (&pair.server, server))?;
        let server = self.side((&pair.server, server), (&pair.client, self.client_engine()))?;
        if client.peer.endpoint.is_none() && server.peer.endpoint.is_none() {
            return Err(format!(
                "neither {} of {} nor {} of {} knows where the other one is: nobody can call; give one of them an Endpoint",
                client.interface, client.node, server.interface, server.node
            ));
        }
        self.check_outer(&client, &server)?;
        self.check_outer(&server, &client)?;
        let chosen = [&client, &server]
            .map(|side| devices.get(&(side.node.to_owned(), side.engine.to_owned())).map(|end| end.inner));
        let (at_client, at_server) = inner(&client, chosen[0], &server, chosen[1])?;
        let mut add = |here: &Side<'_>, inner: IpNet, there: &Side<'_>, other: IpNet| {
            let end = devices.entry((here.node.to_owned(), here.engine.to_owned())).or_insert_with(|| TunnelEnd {
                node: here.node.to_owned(),
                engine: here.engine.to_owned(),
                interface: here.interface.to_owned(),
                listen_port: here.port,
                inner,
                routes: Vec::new(),
                outer: here.outer,
                peers: Vec::new(),
            });
            end.peers.push(TunnelPeer {
                node: there.node.to_owned(),
                interface: there.interface.to_owned(),
                inner: other.addr(),
                endpoint: SocketAddr::new(there.outer, there.port),
            });
        };
        add(&client, at_client, &server, at_server);
        add(&server, at_server, &client, at_client);
        Ok(())
    }

    fn client_engine(&self) -> &'a str {
        ends(self.level).0
    }

    /// What node and engine `here` have and say about `there`.
    fn side(&self, here: (&'a str, &'a str), there: (&str, &str)) -> Result<Side<'a>, String> {
        let (node, engine) = here;
        let none = || format!("engine {engine} is no interface");
        let own = interface(self.plan, engine).ok_or_else(none)?;
        let other = interface(self.plan, there.1).ok_or_else(none)?;
        let key = |node: &str, interface: &str| self.keys.get(&(node.to_owned(), interface.to_owned()));
        let status = self
            .statuses
            .get(&(node.to_owned(), own.to_owned()))
            .ok_or_else(|| format!("{own} of {node} could not be read"))?;
        let theirs = key(there.0, other).ok_or_else(|| format!("{other} of {} could not be read", there.0))?;
        let peer = status.peers.iter().find(|peer| peer.public_key == *theirs).ok_or_else(|| {
            format!("{own} of {node} has no peer with the key of {other} of {}: they are not joined", there.0)
        })?;
        let port = status
            .listen_port
            .filter(|port| *port != 0)
            .ok_or_else(|| format!("{own} of {node} tells no outer port, so its path could not be proved"))?;
        let outer = self
            .plan
            .node(node)
            .and_then(|node| node.attachment(self.underlay))
            .ok_or_else(|| format!("{node} is not on {}", self.underlay))?
            .address;
        let addresses = self
            .facts
            .get(node)
            .and_then(|facts| Some(facts.interfaces.as_ref()?.get(own)?.addresses.clone()))
            .unwrap_or_default();
        Ok(Side { node, engine, interface: own, addresses, outer, port, peer })
    }

    /// The outer address that `here` uses for `there` must be that of this underlay. Unknown yet: the proof sees it later.
    fn check_outer(&self, here: &Side<'_>, there: &Side<'_>) -> Result<(), String> {
        let Some(used) = here.peer.endpoint.map(|endpoint| endpoint.ip()).filter(|used| *used != there.outer) else {
            return Ok(());
        };
        let attachments = self.plan.node(there.node).map(|node| node.attachments.as_slice()).unwrap_or_default();
        let is = match attachments.iter().find(|attachment| attachment.address == used) {
            Some(attachment) => format!("its address on {}", attachment.underlay),
            None => "none of the addresses that the topology gives it".to_owned(),
        };
        Err(format!(
            "{} of {} calls {} at {used}, {is}, and not at {} on {}",
            here.interface, here.node, there.node, there.outer, self.underlay
        ))
    }
}

/// Inner addresses that each end may send to the other, IPv4 first. A device keeps the one that it was given before.
fn inner(
    client: &Side<'_>,
    at_client: Option<IpNet>,
    server: &Side<'_>,
    at_server: Option<IpNet>,
) -> Result<(IpNet, IpNet), String> {
    let usable = |here: &Side<'_>, there: &Side<'_>, chosen: Option<IpNet>| -> Vec<IpNet> {
        let link_local = |net: &IpNet| matches!(net.addr(), IpAddr::V6(address) if address.is_unicast_link_local());
        let allowed = |net: &IpNet| there.peer.allowed_ips.iter().any(|allowed| allowed.contains(&net.addr()));
        let all = here.addresses.iter().copied();
        all.filter(|net| chosen.is_none_or(|chosen| chosen == *net) && !link_local(net) && allowed(net)).collect()
    };
    let (ours, theirs) = (usable(client, server, at_client), usable(server, client, at_server));
    for ipv4 in [true, false] {
        let first = |nets: &[IpNet]| nets.iter().find(|net| net.addr().is_ipv4() == ipv4).copied();
        if let (Some(client), Some(server)) = (first(&ours), first(&theirs)) {
            return Ok((client, server));
        }
    }
    Err(format!(
        "{} of {} and {} of {} have no two addresses of one family that each other's AllowedIPs let through",
        client.interface, client.node, server.interface, server.node
    ))
}

#[cfg(test)]
mod tests;
