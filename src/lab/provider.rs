//! The node between nodes: links to each, a router for some underlays, a bridge for others, and how packets are
//! delivered at each port.
//!
//! ```text
//!   node a1                    provider                     node b1
//!   public-ipv4 ---- p0u0 --\            /-- p1u0 ---- public-ipv4      routed
//!   public-ipv6 ---- p0u1 ---+- routes -+--- p1u1 ---- public-ipv6      routed
//!   private     ---- p0u2 ------ bridge ---- p1u2 ---- private          bridged
//! ```
//!
//! Everything is in the caller's network namespace, in which nobody else makes veth pairs or bridges: what is there and
//! not wanted is deleted.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::sys::ethtool::{Ethtool, EthtoolError, Features};
use crate::sys::netlink::{Counters, Link, LinkKind, Netlink, NetlinkError};
use crate::sys::sysctl::{self, SysctlError};
use crate::units::Mtu;

/// Why the provider is not as asked.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// A link, address or bridge.
    #[error("the provider's network cannot be made")]
    Netlink(#[from] NetlinkError),
    /// Delivery.
    #[error("the provider cannot deliver as asked")]
    Delivery(#[from] EthtoolError),
    /// Routing between underlays' links.
    #[error("the provider cannot be made a router")]
    Router(#[from] SysctlError),
    /// The state contradicts itself.
    #[error("two of the provider's interfaces would be named `{name}`")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A link was made and is not there.
    #[error("the provider's interface {name} vanished while it was being set up; is the node still there?")]
    Vanished {
        /// Its name.
        name: String,
    },
}

/// How packets reach a node: the features of the provider's port towards it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// TCP super-packets cross whole, UDP arrives packet by packet.
    MergedTcp,
    /// Every packet as on the wire.
    Unmerged,
    /// All super-packets cross whole.
    MergedAll,
}

/// What the provider is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderState {
    /// Its underlays. None: nothing at all is there.
    pub underlays: Vec<ProviderUnderlay>,
}

/// One underlay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderUnderlay {
    /// Its name.
    pub name: String,
    /// The MTU of its links.
    pub mtu: Mtu,
    /// The name of the bridge that joins its ports; absent: the provider routes between them.
    pub bridge: Option<String>,
    /// A link to each of its nodes.
    pub ports: Vec<Port>,
}

/// A link to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// The node's name.
    pub node: String,
    /// A process in the node's network namespace, as the provider sees it.
    pub node_pid: u32,
    /// The node's end.
    pub node_interface: String,
    /// The provider's end.
    pub provider_interface: String,
    /// The provider's address there, the node's next hop; absent on a bridge.
    pub address: Option<IpNet>,
    /// How packets reach the node.
    pub delivery: Delivery,
}

impl Port {
    /// What cannot change without making the link anew.
    fn identity(&self) -> (u32, &str, &str) {
        (self.node_pid, &self.node_interface, &self.provider_interface)
    }
}

/// A port as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortReading {
    /// The node's name.
    pub node: String,
    /// The provider's end.
    pub provider_interface: String,
    /// How packets reach the node: as asked, once the port has taken the features for it.
    pub delivery: Delivery,
    /// The segmentations that the port leaves to the node, by the kernel's names.
    pub segmentations: Vec<String>,
}

/// The provider: sockets in its network namespace, and what was last applied.
#[derive(Debug)]
pub struct Provider {
    netlink: Netlink,
    ethtool: Ethtool,
    /// Absent: what is there is unknown, as at the start and after a failure.
    applied: Option<ProviderState>,
}

impl Provider {
    /// A provider in the calling thread's network namespace.
    pub fn open() -> Result<Self, ProviderError> {
        Ok(Self { netlink: Netlink::open()?, ethtool: Ethtool::open()?, applied: None })
    }

    /// Makes everything as `state` says and reads the ports back. A state that differs in deliveries only touches
    /// nothing but port features.
    pub fn apply(&mut self, state: &ProviderState) -> Result<Vec<PortReading>, ProviderError> {
        let before = self.applied.take();
        if !before.as_ref().is_some_and(|before| same_links(before, state)) {
            self.make_links(before.as_ref(), state)?;
        }
        let mut readings = Vec::new();
        for port in state.underlays.iter().flat_map(|underlay| &underlay.ports) {
            readings.push(self.deliver(port)?);
        }
        self.applied = Some(state.clone());
        Ok(readings)
    }

    /// What has crossed each of the provider's interfaces.
    pub fn counters(&self) -> Result<BTreeMap<String, Counters>, ProviderError> {
        let links = self.netlink.links()?;
        Ok(links.into_iter().filter_map(|link| Some((link.name, link.counters?))).collect())
    }

    fn deliver(&self, port: &Port) -> Result<PortReading, ProviderError> {
        let interface = &port.provider_interface;
        let features = self.ethtool.features(interface)?;
        let wanted: Vec<(&str, bool)> =
            segmentations(&features).map(|name| (name, delivers_merged(port.delivery, name))).collect();
        let features = self.ethtool.set_features(interface, &wanted)?;
        let active = segmentations(&features).filter(|name| features.get(*name).is_some_and(|feature| feature.active));
        Ok(PortReading {
            node: port.node.clone(),
            provider_interface: interface.clone(),
            delivery: port.delivery,
            segmentations: active.map(str::to_owned).collect(),
        })
    }

    fn make_links(&self, before: Option<&ProviderState>, state: &ProviderState) -> Result<(), ProviderError> {
        let wanted = names(state)?;
        if !state.underlays.is_empty() {
            become_router()?;
        }
        let mut there: BTreeMap<String, Link> =
            self.netlink.links()?.into_iter().map(|link| (link.name.clone(), link)).collect();
        let kept: BTreeSet<&str> = before.map(|before| unchanged(before, state)).unwrap_or_default();
        for link in there.values() {
            let ours = matches!(link.kind, LinkKind::Veth | LinkKind::Bridge);
            let stays = wanted.contains(link.name.as_str()) && kept.contains(link.name.as_str());
            if ours && !stays {
                self.netlink.delete_link(link.index, &link.name)?;
            }
        }
        there.retain(|name, _| kept.contains(name.as_str()));

        for underlay in &state.underlays {
            let bridge = match &underlay.bridge {
                Some(name) => Some(self.make_bridge(name, underlay.mtu, there.get(name))?),
                None => None,
            };
            for port in &underlay.ports {
                self.make_port(port, underlay.mtu, bridge, there.get(&port.provider_interface))?;
            }
        }
        Ok(())
    }

    fn make_bridge(&self, name: &str, mtu: Mtu, there: Option<&Link>) -> Result<u32, ProviderError> {
        let index = match there {
            Some(link) if link.mtu == u32::from(mtu.get()) => return Ok(link.index),
            Some(link) => link.index,
            None => {
                self.netlink.add_bridge(name, mtu)?;
                self.index(name)?
            }
        };
        // A bridge follows its smallest port unless it was told (Linux, net/bridge/br_if.c, br_mtu_auto_adjust).
        self.netlink.set_mtu(index, name, u32::from(mtu.get()))?;
        self.netlink.set_up(index, name)?;
        Ok(index)
    }

    fn make_port(&self, port: &Port, mtu: Mtu, bridge: Option<u32>, there: Option<&Link>) -> Result<(), ProviderError> {
        let name = &port.provider_interface;
        let index = match there {
            Some(link) => {
                if link.mtu != u32::from(mtu.get()) {
                    self.netlink.set_mtu(link.index, name, u32::from(mtu.get()))?;
                }
                link.index
            }
            None => {
                self.netlink.add_veth(name, mtu, &port.node_interface, port.node_pid)?;
                self.index(name)?
            }
        };
        match bridge {
            Some(bridge) if there.and_then(|link| link.controller) != Some(bridge) => {
                self.netlink.set_controller(index, name, bridge)?;
            }
            Some(_) => {}
            None => self.set_address(index, port)?,
        }
        Ok(self.netlink.set_up(index, name)?)
    }

    fn set_address(&self, index: u32, port: &Port) -> Result<(), ProviderError> {
        let name = &port.provider_interface;
        // The kernel's own search for duplicates on its link-local address would delay the first neighbour's answer.
        sysctl::write(&format!("net/ipv6/conf/{name}/accept_dad"), "0").map(drop).or_else(no_ipv6)?;
        let addresses = self.netlink.addresses(index, name)?;
        for address in addresses.iter().filter(|address| !address.link_local && Some(address.net) != port.address) {
            self.netlink.delete_address(index, name, address.net)?;
        }
        if let Some(wanted) = port.address
            && !addresses.iter().any(|address| address.net == wanted)
        {
            self.netlink.add_address(index, name, wanted)?;
        }
        Ok(())
    }

    fn index(&self, name: &str) -> Result<u32, ProviderError> {
        let link = self.netlink.link(name)?;
        link.map(|link| link.index).ok_or_else(|| ProviderError::Vanished { name: name.to_owned() })
    }
}

/// Whether two states differ in deliveries at most.
fn same_links(one: &ProviderState, other: &ProviderState) -> bool {
    one.underlays.len() == other.underlays.len()
        && one.underlays.iter().zip(&other.underlays).all(|(one, other)| {
            (&one.name, one.mtu, &one.bridge) == (&other.name, other.mtu, &other.bridge)
                && one.ports.len() == other.ports.len()
                && one
                    .ports
                    .iter()
                    .zip(&other.ports)
                    .all(|(one, other)| one.identity() == other.identity() && one.address == other.address)
        })
}

/// The interfaces of `before` that `after` has too, between the same ends and joined alike.
fn unchanged<'a>(before: &'a ProviderState, after: &ProviderState) -> BTreeSet<&'a str> {
    let ports = |state: &ProviderState| {
        let each = state.underlays.iter().flat_map(|underlay| {
            let end = |port: &Port| {
                let (pid, node, provider) = port.identity();
                (pid, node.to_owned(), provider.to_owned(), underlay.bridge.clone())
            };
            underlay.ports.iter().map(end).collect::<Vec<_>>()
        });
        each.collect::<BTreeSet<_>>()
    };
    let after_ports = ports(after);
    let mut names = BTreeSet::new();
    for underlay in &before.underlays {
        if let Some(bridge) = &underlay.bridge
            && after.underlays.iter().any(|underlay| underlay.bridge.as_ref() == Some(bridge))
        {
            names.insert(bridge.as_str());
        }
        for port in &underlay.ports {
            let (pid, node, provider) = port.identity();
            if after_ports.contains(&(pid, node.to_owned(), provider.to_owned(), underlay.bridge.clone())) {
                names.insert(port.provider_interface.as_str());
            }
        }
    }
    names
}

/// The interfaces that a state wants.
fn names(state: &ProviderState) -> Result<BTreeSet<&str>, ProviderError> {
    let mut names = BTreeSet::from(["lo"]);
    for underlay in &state.underlays {
        let ports = underlay.ports.iter().map(|port| port.provider_interface.as_str());
        for name in underlay.bridge.as_deref().into_iter().chain(ports) {
            if !names.insert(name) {
                return Err(ProviderError::Duplicate { name: name.to_owned() });
            }
        }
    }
    Ok(names)
}

/// Makes this network namespace forward between its links, whatever it inherited from the host's.
fn become_router() -> Result<(), ProviderError> {
    sysctl::write("net.ipv4.ip_forward", "1")?;
    // A reply may come in over another link than the one that its destination is reached by.
    sysctl::write("net.ipv4.conf.all.rp_filter", "0")?;
    sysctl::write("net.ipv4.conf.default.rp_filter", "0")?;
    for (name, value) in [
        ("net.ipv6.conf.all.forwarding", "1"),
        ("net.ipv6.conf.all.disable_ipv6", "0"),
        ("net.ipv6.conf.default.disable_ipv6", "0"),
        ("net.ipv6.conf.default.accept_dad", "0"),
        ("net.ipv6.conf.default.accept_ra", "0"),
    ] {
        sysctl::write(name, value).map(drop).or_else(no_ipv6)?;
    }
    Ok(())
}

/// A kernel without IPv6 has none of its settings. Where IPv6 is wanted, its addresses say so.
fn no_ipv6(error: SysctlError) -> Result<(), SysctlError> {
    if matches!(error, SysctlError::Missing { .. }) { Ok(()) } else { Err(error) }
}

/// The features that leave segmentation to whoever takes the packet next, of those that can be changed.
fn segmentations(features: &Features) -> impl Iterator<Item = &str> {
    let changeable = features.iter().filter(|(_, feature)| feature.changeable).map(|(name, _)| name.as_str());
    changeable.filter(|name| name.starts_with("tx-") && (name.ends_with("-segmentation") || *name == "tx-gso-list"))
}

/// Whether super-packets of this kind cross whole. `tx-gso-list` carries chains of UDP datagrams, too (Linux,
/// `NETIF_F_GSO_FRAGLIST`).
fn delivers_merged(delivery: Delivery, segmentation: &str) -> bool {
    match delivery {
        Delivery::MergedAll => true,
        Delivery::MergedTcp => !matches!(segmentation, "tx-udp-segmentation" | "tx-gso-list"),
        Delivery::Unmerged => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::ethtool::Feature;

    fn port(node: &str, pid: u32, interface: &str, delivery: Delivery) -> Port {
        Port {
            node: node.to_owned(),
            node_pid: pid,
            node_interface: "private".to_owned(),
            provider_interface: interface.to_owned(),
            address: None,
            delivery,
        }
    }

    fn state(ports: Vec<Port>) -> ProviderState {
        let mtu = Mtu::new(1450).unwrap();
        let bridge = Some("bridge0".to_owned());
        ProviderState { underlays: vec![ProviderUnderlay { name: "private".to_owned(), mtu, bridge, ports }] }
    }

    #[test]
    fn a_change_of_delivery_touches_no_link() {
        let one = state(vec![port("a1", 5, "p0u0", Delivery::MergedTcp)]);
        let other = state(vec![port("a1", 5, "p0u0", Delivery::Unmerged)]);
        assert!(same_links(&one, &other));
        let mut smaller = one.clone();
        smaller.underlays[0].mtu = Mtu::new(1400).unwrap();
        assert!(!same_links(&one, &smaller));
        assert_eq!(unchanged(&one, &smaller), BTreeSet::from(["bridge0", "p0u0"]));
        let other_node = state(vec![port("a1", 6, "p0u0", Delivery::MergedTcp)]);
        assert!(!same_links(&one, &other_node));
        assert_eq!(unchanged(&one, &other_node), BTreeSet::from(["bridge0"]));
        let mut routed = one.clone();
        routed.underlays[0].bridge = None;
        assert_eq!(unchanged(&one, &routed), BTreeSet::new());
    }

    #[test]
    fn one_name_for_two_interfaces_is_refused() {
        let twice = state(vec![port("a1", 5, "p0u0", Delivery::Unmerged), port("b1", 6, "p0u0", Delivery::Unmerged)]);
        assert!(matches!(names(&twice), Err(ProviderError::Duplicate { name }) if name == "p0u0"));
        let as_bridge = state(vec![port("a1", 5, "bridge0", Delivery::Unmerged)]);
        assert!(names(&as_bridge).is_err());
    }

    #[test]
    fn delivery_is_about_segmentation_that_can_be_changed() {
        let on = Feature { active: true, changeable: true };
        let fixed = Feature { active: true, changeable: false };
        let features: Features = [
            ("tx-tcp-segmentation", on),
            ("tx-udp-segmentation", on),
            ("tx-gso-list", on),
            ("tx-esp-segmentation", fixed),
            ("tx-checksum-ip-generic", on),
            ("rx-gro", on),
        ]
        .into_iter()
        .map(|(name, feature)| (name.to_owned(), feature))
        .collect();
        let names: Vec<&str> = segmentations(&features).collect();
        assert_eq!(names, ["tx-gso-list", "tx-tcp-segmentation", "tx-udp-segmentation"]);
        let merged = |delivery| names.iter().filter(|name| delivers_merged(delivery, name)).count();
        assert_eq!(merged(Delivery::MergedAll), 3);
        assert_eq!(merged(Delivery::MergedTcp), 1);
        assert_eq!(merged(Delivery::Unmerged), 0);
    }

    #[test]
    fn the_words_are_those_of_topologies() {
        assert_eq!(serde_json::to_string(&Delivery::MergedTcp).unwrap(), "\"merged-tcp\"");
        assert_eq!(serde_json::to_string(&Delivery::Unmerged).unwrap(), "\"unmerged\"");
    }
}
