//! What is known of nodes before a topology is written. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::agent::messages::{Facts, PublicKey};
use crate::topology::check_name;

/// Everything that becomes a topology.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) nodes: Vec<Node>,
    /// Who calls whom, by index; empty: everybody.
    pub(super) pairs: BTreeSet<(usize, usize)>,
    /// Whether some node was named by itself, so that it is paired with all others.
    pub(super) mesh: bool,
    /// Where it comes from, for the file's first lines.
    pub(super) sources: Vec<String>,
    /// The names that are taken, each with the number that was tried last for another node of that name.
    pub(super) taken: BTreeMap<String, u32>,
}

/// A node, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) name: String,
    /// Whether an argument named it; others are peers of those.
    pub(super) named: bool,
    pub(super) reach: Option<Reach>,
    /// By underlay.
    pub(super) addresses: BTreeMap<Underlay, Address>,
    /// What a reader should know, one comment each.
    pub(super) remarks: Vec<String>,
    /// WireGuard interfaces, and whether each is known to be up.
    pub(super) tunnels: BTreeMap<String, bool>,
    /// The public keys by which others name it.
    pub(super) keys: Vec<PublicKey>,
}

/// How a node is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reach {
    /// As a topology writes it: `ssh:root@fra`.
    Text(String),
    /// The same, but nobody said so.
    Assumed(String),
    /// A command.
    Command(Vec<String>),
}

/// An address, and what is known of the link that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) ip: IpAddr,
    /// Its network, where it was read from an interface.
    pub(super) net: Option<IpNet>,
    pub(super) mtu: Option<u32>,
}

/// The networks that addresses tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Underlay {
    PublicIpv4,
    PublicIpv6,
    Private,
    PrivateIpv6,
}

impl Underlay {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::PublicIpv4 => "public-ipv4",
            Self::PublicIpv6 => "public-ipv6",
            Self::Private => "private",
            Self::PrivateIpv6 => "private-ipv6",
        }
    }

    pub(super) const fn family(self) -> &'static str {
        match self {
            Self::PublicIpv4 | Self::Private => "ipv4",
            Self::PublicIpv6 | Self::PrivateIpv6 => "ipv6",
        }
    }

    /// The network that an address is on; `None` where it is on none that joins hosts. Private are RFC 1918, the shared range
    /// of RFC 6598 and unique local addresses (RFC 4193).
    pub(super) fn of(ip: IpAddr) -> Option<Self> {
        if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() {
            return None;
        }
        match ip {
            IpAddr::V4(ip) if ip.is_link_local() => None,
            IpAddr::V4(ip) if ip.is_private() || (ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64) => {
                Some(Self::Private)
            }
            IpAddr::V4(_) => Some(Self::PublicIpv4),
            IpAddr::V6(ip) if ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some() => None,
            IpAddr::V6(ip) if ip.is_unique_local() => Some(Self::PrivateIpv6),
            IpAddr::V6(_) => Some(Self::PublicIpv6),
        }
    }
}

/// Interfaces of container engines and overlays: their addresses do not lead from host to host, or only through a tunnel.
const INNER: [&str; 12] =
    ["docker", "br-", "virbr", "veth", "cni", "flannel", "cali", "cilium", "lxc", "tailscale", "zt", "kube-"];

impl Node {
    /// Takes what the host itself says.
    pub(super) fn take(&mut self, facts: &Facts) {
        if facts.interfaces.is_none() {
            self.remarks.push("its interfaces could not be listed, so its addresses are not known".to_owned());
        }
        for (name, interface) in facts.interfaces.iter().flatten() {
            if interface.is_wireguard() {
                self.tunnels.insert(name.clone(), true);
                continue;
            }
            let is_tunnel = interface.kind.as_deref() == Some("tun");
            if is_tunnel || !interface.running || INNER.iter().any(|prefix| name.starts_with(prefix)) {
                continue;
            }
            for net in &interface.addresses {
                let Some(underlay) = Underlay::of(net.addr()) else { continue };
                let address = Address { ip: net.addr(), net: Some(*net), mtu: Some(interface.mtu) };
                match self.addresses.get(&underlay) {
                    None => drop(self.addresses.insert(underlay, address)),
                    Some(first) if first.ip != address.ip => self.remarks.push(format!(
                        "it has {} on {name} too; {} was taken for {}",
                        address.ip,
                        first.ip,
                        underlay.name()
                    )),
                    Some(_) => {}
                }
            }
        }
    }

    /// Takes an address that somebody else knows; what the host itself says stands.
    pub(super) fn take_address(&mut self, ip: IpAddr) {
        if let Some(underlay) = Underlay::of(ip) {
            self.addresses.entry(underlay).or_insert(Address { ip, net: None, mtu: None });
        }
    }
}

impl Draft {
    /// The node with that key.
    pub(super) fn with_key(&self, key: PublicKey) -> Option<usize> {
        self.nodes.iter().position(|node| node.keys.contains(&key))
    }

    /// Adds a node, under a name that no other has.
    pub(super) fn add(&mut self, mut node: Node) -> usize {
        let wanted = name(&node.name);
        let mut number = self.taken.get(&wanted).copied().unwrap_or(0);
        node.name = loop {
            number += 1;
            let name = if number == 1 { wanted.clone() } else { format!("{wanted}-{number}") };
            if !self.taken.contains_key(&name) {
                break name;
            }
        };
        self.taken.insert(wanted, number);
        self.taken.entry(node.name.clone()).or_insert(1);
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Hosts behind one NAT are all known by its address, each at a port of its own: the first keeps it.
    pub(super) fn leave_out_twins(&mut self) {
        let mut holders: BTreeMap<(Underlay, IpAddr), String> = BTreeMap::new();
        for node in &mut self.nodes {
            let Node { name, addresses, remarks, .. } = node;
            let known = !addresses.is_empty();
            addresses.retain(|underlay, address| {
                let Some(holder) = holders.get(&(*underlay, address.ip)) else {
                    holders.insert((*underlay, address.ip), name.clone());
                    return true;
                };
                remarks.push(format!("its {} is {holder}'s too, as of hosts behind one NAT: left out", address.ip));
                false
            });
            if known && node.addresses.is_empty() && matches!(node.reach, Some(Reach::Assumed(_))) {
                node.reach = None;
            }
        }
    }

    /// Private addresses of different networks do not reach each other: leaves out those that no other node shares.
    /// Clouds route private networks to single addresses, so that a prefix of one address says nothing.
    pub(super) fn leave_out_lonely(&mut self) {
        for underlay in [Underlay::Private, Underlay::PrivateIpv6] {
            let all: Vec<Option<Address>> =
                self.nodes.iter().map(|node| node.addresses.get(&underlay).copied()).collect();
            for (index, address) in all.iter().enumerate() {
                let Some((ip, net)) = address.and_then(|address| Some((address.ip, address.net?))) else { continue };
                let says_nothing = |net: &IpNet| net.prefix_len() == net.max_prefix_len();
                let shared = all.iter().enumerate().filter(|(other, _)| *other != index).any(|(_, other)| {
                    let Some(other) = other else { return false };
                    other.net.is_none_or(|theirs| says_nothing(&theirs) || theirs.contains(&ip))
                        || net.contains(&other.ip)
                });
                if !shared && !says_nothing(&net) && all.iter().flatten().count() > 1 {
                    self.nodes[index].addresses.remove(&underlay);
                    let remark = format!("its {} is in a network of its own ({}): left out", ip, net.trunc());
                    self.nodes[index].remarks.push(remark);
                }
            }
        }
    }
}

/// A name that a node may have, as near to `text` as possible.
fn name(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_=+.-".contains(c) { c } else { '-' };
    let mut name: String = text.chars().map(plain).skip_while(|c| *c == '-').take(28).collect();
    if check_name(&name).is_err() {
        name = "node".to_owned();
    }
    name
}
