//! The tunnels: one WireGuard network per engine level and underlay, one device per node in it; where a pair has several
//! tunnels, as many of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net};

use super::error::PlanError;
use super::place::{mtu, nth};
use super::schedule::Schedule;
use super::{NodePlan, Pair, TunnelEnd, TunnelPeer, TunnelPlan, UnderlayPlan};
use crate::cell::ends;
use crate::topology::{EngineSpec, Topology};

/// The first outer port. Below the ephemeral range (net.ipv4.ip_local_port_range begins at 32768), and not 51820, where a
/// real node's own WireGuard listens.
const FIRST_PORT: u16 = 21_820;

/// Hosts per value of the third byte of an inner address: no address ends in 0 or 255, which some tools refuse.
const PER_BYTE: usize = 250;

/// The least that every IPv4 host must take (RFC 791): less is no tunnel for IPv4.
pub(super) const LEAST_INNER_MTU: u16 = 576;

/// Where inner addresses come from, and what the interfaces are called.
struct Space {
    /// Networks, each for one tunnel.
    networks: Vec<IpNet>,
    /// The third byte at which the servers of a level of two ends begin.
    half: u8,
    /// The interfaces' names without their number.
    prefix: &'static str,
}

/// The tunnels that some arrangement uses. `raw` has none, and an interface that something else manages is found, not made.
pub(super) fn tunnels(
    topology: &Topology,
    schedule: &Schedule,
    nodes: &[NodePlan],
    underlays: &[UnderlayPlan],
) -> Result<Vec<TunnelPlan>, PlanError> {
    let space = space(topology, nodes, underlays);
    let mut networks = space.networks.iter();
    let places: BTreeMap<&str, usize> =
        topology.nodes.iter().enumerate().map(|(index, node)| (node.name.as_str(), index)).collect();
    let mut number = 0;
    let mut tunnels = Vec::new();
    let mut pairs: BTreeMap<(&str, &str, u32), BTreeSet<&Pair>> = BTreeMap::new();
    for arrangement in &schedule.arrangements {
        for which in 0..arrangement.tunnels.unwrap_or(1) {
            let tunnel = (arrangement.engine.as_str(), arrangement.underlay.as_str(), which);
            pairs.entry(tunnel).or_default().insert(&arrangement.pair);
        }
    }
    let several = pairs.keys().map(|(_, _, which)| which + 1).max().unwrap_or(0);
    let levels = schedule.levels.get(&crate::cell::Factor::Engine).map(Vec::as_slice).unwrap_or_default();
    let made = |spec: &EngineSpec| !matches!(spec, EngineSpec::Raw | EngineSpec::Interface(_));
    let levels: Vec<&String> = levels.iter().filter(|level| schedule.carried.specs(level).all(made)).collect();
    // All first ones before all second ones: what is first stays where it is, whatever comes beside it.
    for (which, level) in (0..several).flat_map(|which| levels.iter().map(move |level| (which, *level))) {
        for underlay in underlays {
            let Some(pairs) = pairs.get(&(level.as_str(), underlay.name.as_str(), which)) else { continue };
            let overhead = underlay.family.tunnel_overhead();
            let left = underlay.mtu.get().saturating_sub(overhead);
            if left < LEAST_INNER_MTU {
                let (name, family) = (underlay.name.clone(), underlay.family);
                return Err(PlanError::MtuTooSmall { underlay: name, family, mtu: underlay.mtu, left });
            }
            let network = *networks.next().ok_or_else(|| PlanError::NoAddresses {
                underlay: underlay.name.clone(),
                what: format!("tunnel `{level}` over `{}`", underlay.name),
                why: format!(
                    "{} networks are free for tunnels beside the underlays' own, one for each engine, underlay and tunnel of a pair; narrow with `--only`, or give underlays smaller networks",
                    space.networks.len()
                ),
            })?;
            let tunnel =
                Tunnel { level, underlay: &underlay.name, network, half: space.half, number, prefix: space.prefix };
            let (devices, used) = tunnel.devices(pairs, &places, nodes)?;
            number += used;
            tunnels.push(TunnelPlan {
                engine: level.clone(),
                underlay: underlay.name.clone(),
                number: which,
                mtu: mtu(left),
                network,
                ends: devices,
            });
        }
    }
    Ok(tunnels)
}

/// 10.0.0.0/16 to 10.199.0.0/16 in a lab of our own. Real nodes have such networks themselves, so there the benchmarking range
/// (RFC 2544) in pieces.
fn space(topology: &Topology, nodes: &[NodePlan], underlays: &[UnderlayPlan]) -> Space {
    let here = topology.is_local();
    let all: Vec<IpNet> = if here {
        (0..200).map(|second| Ipv4Net::new_assert(Ipv4Addr::new(10, second, 0, 0), 16).into()).collect()
    } else {
        let piece = |third: u32| Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() + (third << 12));
        (0..32).map(|third| Ipv4Net::new_assert(piece(third), 20).into()).collect()
    };
    let outer: Vec<IpAddr> =
        nodes.iter().flat_map(|node| node.attachments.iter().map(|attachment| attachment.address)).collect();
    // All underlays, selected or not: a tunnel's network does not move with the selection.
    let taken: Vec<IpNet> = topology
        .underlays
        .iter()
        .filter_map(|underlay| underlay.network)
        .chain(underlays.iter().filter_map(|underlay| underlay.network))
        .collect();
    let free = |network: &IpNet| {
        !taken.iter().any(|taken| taken.contains(network) || network.contains(taken))
            && !outer.iter().any(|address| network.contains(address))
    };
    let networks = all.into_iter().filter(free).collect();
    Space { networks, half: if here { 128 } else { 8 }, prefix: if here { "wg" } else { "wglab" } }
}

/// What the devices of one tunnel are made from.
struct Tunnel<'a> {
    level: &'a str,
    underlay: &'a str,
    network: IpNet,
    half: u8,
    number: u16,
    prefix: &'static str,
}

/// One end of a pair: a node, and whether it is the server.
type Side<'a> = (&'a str, bool);

impl Tunnel<'_> {
    /// The devices, and how many interface numbers they use.
    fn devices(
        &self,
        pairs: &BTreeSet<&Pair>,
        places: &BTreeMap<&str, usize>,
        nodes: &[NodePlan],
    ) -> Result<(Vec<TunnelEnd>, u16), PlanError> {
        let (client, server) = ends(self.level);
        let mixed = client != server;
        let mut peers: BTreeMap<(usize, Side<'_>), BTreeSet<(usize, Side<'_>)>> = BTreeMap::new();
        for pair in pairs {
            let place = |node: &str| places.get(node).copied().unwrap_or_default();
            let client = (place(&pair.client), (pair.client.as_str(), false));
            let server = (place(&pair.server), (pair.server.as_str(), mixed));
            peers.entry(client).or_default().insert(server);
            peers.entry(server).or_default().insert(client);
        }
        let outer: BTreeMap<&str, IpAddr> = nodes
            .iter()
            .filter_map(|node| Some((node.name.as_str(), node.attachment(self.underlay)?.address)))
            .collect();
        let engine = |is_server: bool| if is_server { server } else { client };
        let mut devices = Vec::new();
        for (&(place, side), others) in &peers {
            let mut end_peers = Vec::new();
            for &(place, (node, is_server)) in others {
                let Some(&address) = outer.get(node) else { continue };
                end_peers.push(TunnelPeer {
                    node: node.to_owned(),
                    interface: self.interface(is_server),
                    inner: self.inner(place, is_server)?,
                    endpoint: SocketAddr::new(address, self.port(is_server)?),
                });
            }
            let (node, is_server) = side;
            let Some(&outer) = outer.get(node) else { continue };
            let inner = self.inner(place, is_server)?;
            // A node that is both client and server of a level of two ends has two devices in one network: host routes.
            let length = if mixed { self.network.max_prefix_len() } else { self.network.prefix_len() };
            let routes = end_peers.iter().filter(|_| mixed).map(|peer| IpNet::from(peer.inner)).collect();
            devices.push(TunnelEnd {
                node: node.to_owned(),
                engine: engine(is_server).to_owned(),
                interface: self.interface(is_server),
                listen_port: self.port(is_server)?,
                inner: IpNet::new(inner, length).map_err(|_| self.full())?,
                routes,
                outer,
                peers: end_peers,
            });
        }
        Ok((devices, if mixed { 2 } else { 1 }))
    }

    fn interface(&self, is_server: bool) -> String {
        format!("{}{}", self.prefix, self.number + u16::from(is_server))
    }

    fn port(&self, is_server: bool) -> Result<u16, PlanError> {
        FIRST_PORT.checked_add(self.number + u16::from(is_server)).ok_or_else(|| self.full())
    }

    /// Node number `place`'s inner address.
    fn inner(&self, place: usize, is_server: bool) -> Result<IpAddr, PlanError> {
        let (third, fourth) = (place / PER_BYTE, place % PER_BYTE + 1);
        let half = usize::from(self.half);
        if third >= half {
            return Err(self.full());
        }
        let third = if is_server { third + half } else { third };
        nth(self.network, (third * 256 + fourth) as u128).ok_or_else(|| self.full())
    }

    fn full(&self) -> PlanError {
        PlanError::NoAddresses {
            underlay: self.underlay.to_owned(),
            what: format!("tunnel `{}` over `{}`", self.level, self.underlay),
            why: format!("{} has no room for another node", self.network),
        }
    }
}
