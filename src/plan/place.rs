//! Where everything is: the networks of the underlays, and each node's address and link on them.
//!
//! Addresses and interface names follow from a node's and an underlay's place in the topology, not in the selection:
//! narrowing a run does not move anything.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::error::PlanError;
use super::schedule::Schedule;
use super::{Attachment, LinkPlan, NodePlan, Reach, UnderlayPlan};
use crate::topology::{Node, Place, Topology, Underlay, UnderlayKind};
use crate::units::{Family, Mtu};

/// The MTU of an underlay whose file says none: Ethernet's.
const ETHERNET_MTU: u16 = 1500;

/// The MTU of a bridged network made here whose file says none: what clouds give a private network.
const PRIVATE_MTU: u16 = 1450;

/// The underlays that some arrangement uses.
pub(super) fn underlays(topology: &Topology, schedule: &Schedule) -> Result<Vec<UnderlayPlan>, PlanError> {
    let here = topology.is_local();
    let mut taken: Vec<IpNet> = topology.underlays.iter().filter_map(|underlay| underlay.network).collect();
    let mut plans = Vec::new();
    for (index, underlay) in topology.underlays.iter().enumerate() {
        let network = match underlay.network {
            _ if !here => None,
            Some(network) => Some(network),
            None => {
                let network = free_network(underlay, index, &taken)?;
                taken.push(network);
                Some(network)
            }
        };
        if !schedule.underlays.contains(&underlay.name) {
            continue;
        }
        let bridged = here && underlay.kind == UnderlayKind::Bridged;
        let default = if bridged { PRIVATE_MTU } else { ETHERNET_MTU };
        plans.push(UnderlayPlan {
            name: underlay.name.clone(),
            family: underlay.family,
            mtu: match underlay.mtu {
                Some(mtu) => mtu,
                None => mtu(default),
            },
            mtu_given: underlay.mtu.is_some(),
            kind: underlay.kind,
            network,
            bridge: bridged.then(|| format!("br{index}")),
            nominal: underlay.nominal,
            budget: underlay.budget,
        });
    }
    // In the order of the selection, which is that of the report.
    plans.sort_by_key(|plan| schedule.underlays.iter().position(|name| *name == plan.name));
    Ok(plans)
}

/// A constant of this file as an MTU.
pub(super) fn mtu(bytes: u16) -> Mtu {
    // INVARIANT: every caller's value is at least 68, the least that an `Mtu` can be.
    Mtu::new(u64::from(bytes.max(68))).unwrap_or_else(|_| unreachable!("{bytes} is an MTU"))
}

/// The first network of the underlay's kind that overlaps none that is taken. Routed IPv4 uses the benchmarking range
/// (RFC 2544, RFC 6890) and then the shared one (RFC 6598); IPv6 the documentation range (RFC 3849) and a unique local one.
fn free_network(underlay: &Underlay, index: usize, taken: &[IpNet]) -> Result<IpNet, PlanError> {
    let v4 = |a: u8, b: u8| Ipv4Net::new_assert(Ipv4Addr::new(a, b, 0, 0), 16).into();
    let v6 = |address: Ipv6Addr, length: u8| Ipv6Net::new_assert(address, length).into();
    let free = |network: &IpNet| !taken.iter().any(|taken| taken.contains(network) || network.contains(taken));
    let place = u16::try_from(index).unwrap_or(u16::MAX);
    let found = match (underlay.kind, underlay.family) {
        (UnderlayKind::Routed, Family::Ipv4) => {
            (18..20).map(|b| v4(198, b)).chain((64..128).map(|b| v4(100, b))).find(free)
        }
        (UnderlayKind::Bridged, Family::Ipv4) => (200..=255).map(|b| v4(10, b)).find(free),
        (UnderlayKind::Routed, Family::Ipv6) => {
            (place..=u16::MAX).map(|u| v6(Ipv6Addr::new(0x2001, 0xdb8, u, 0, 0, 0, 0, 0), 48)).find(free)
        }
        (UnderlayKind::Bridged, Family::Ipv6) => {
            (place..=u16::MAX).map(|u| v6(Ipv6Addr::new(0xfd77, 0x6c61, 0x6200, u, 0, 0, 0, 0), 64)).find(free)
        }
    };
    found.ok_or_else(|| PlanError::NoAddresses {
        underlay: underlay.name.clone(),
        what: format!("underlay `{}`", underlay.name),
        why: format!("other underlays hold every {} {} network; give it a `network`", underlay.kind, underlay.family),
    })
}

/// The nodes of the selected pairs.
pub(super) fn nodes(
    topology: &Topology,
    schedule: &Schedule,
    underlays: &[UnderlayPlan],
) -> Result<Vec<NodePlan>, PlanError> {
    let busy: BTreeSet<&str> =
        schedule.pairs.iter().flat_map(|pair| [pair.client.as_str(), pair.server.as_str()]).collect();
    let mut plans = Vec::new();
    for (index, node) in topology.nodes.iter().enumerate().filter(|(_, node)| busy.contains(node.name.as_str())) {
        let mut attachments = Vec::new();
        for underlay in underlays {
            let place = topology.underlays.iter().position(|named| named.name == underlay.name).unwrap_or_default();
            attachments.extend(attachment(node, index, underlay, place)?);
        }
        let reach = match &node.place {
            Place::Here { agent, .. } => Reach::Local { agent: agent.clone() },
            Place::There { argv, .. } => Reach::Command { argv: argv.clone() },
        };
        plans.push(NodePlan { name: node.name.clone(), reach, attachments });
    }
    Ok(plans)
}

/// Node number `index` on underlay number `place`, if it is attached.
fn attachment(
    node: &Node,
    index: usize,
    underlay: &UnderlayPlan,
    place: usize,
) -> Result<Option<Attachment>, PlanError> {
    let name = underlay.name.clone();
    if let Place::There { addresses, .. } = &node.place {
        return Ok(addresses.get(&name).map(|&address| Attachment { underlay: name, address, link: None }));
    }
    let Some(network) = underlay.network.filter(|_| node.has(&underlay.name)) else { return Ok(None) };
    let full = || PlanError::NoAddresses {
        underlay: underlay.name.clone(),
        what: format!("node `{}` on underlay `{}`", node.name, underlay.name),
        why: format!("{network} is full; widen its `network`"),
    };
    let (address, provider) = match underlay.kind {
        UnderlayKind::Bridged => (nth(network, index as u128 + 1).ok_or_else(full)?, None),
        UnderlayKind::Routed => {
            // One small subnet per node; the first stays unused. The provider is its first host, the node its second.
            let (bits, length) = match underlay.family {
                Family::Ipv4 => (2, 30),
                Family::Ipv6 => (64, 64),
            };
            let subnet = (index as u128 + 1) << bits;
            let host =
                |number: u128| nth(network, subnet + number).and_then(|address| IpNet::new(address, length).ok());
            let (provider, node) = (host(1).ok_or_else(full)?, host(2).ok_or_else(full)?);
            (node.addr(), Some((provider, node)))
        }
    };
    let with_prefix = match provider {
        Some((_, node)) => node,
        None => IpNet::new(address, network.prefix_len()).map_err(|_| full())?,
    };
    Ok(Some(Attachment {
        underlay: name.clone(),
        address,
        link: Some(LinkPlan {
            interface: name,
            address: with_prefix,
            gateway: provider.map(|(provider, _)| provider.addr()),
            mtu: underlay.mtu,
            provider_interface: format!("p{index}u{place}"),
            provider_address: provider.map(|(provider, _)| provider),
        }),
    }))
}

/// Address number `number` of `network`, if it has so many. The last one of IPv4 is the broadcast address.
pub(super) fn nth(network: IpNet, number: u128) -> Option<IpAddr> {
    match network {
        IpNet::V4(network) => {
            let size = 1_u128 << (32 - network.prefix_len());
            let number = u32::try_from(number).ok().filter(|number| u128::from(*number) + 1 < size)?;
            Some(Ipv4Addr::from_bits(network.network().to_bits() + number).into())
        }
        IpNet::V6(network) => {
            let spare = 128 - u32::from(network.prefix_len());
            let fits = spare == 128 || number >> spare == 0;
            fits.then(|| Ipv6Addr::from_bits(network.network().to_bits() + number).into())
        }
    }
}
