//! What configuration files and running interfaces say about nodes. Pure: names are resolved by whoever calls.

use std::net::IpAddr;

use ipnet::IpNet;

use super::draft::{Draft, Node, Reach};
use crate::agent::messages::{Facts, PublicKey};
use crate::tunnel::conf::{Conf, Endpoint, Host, Table};

/// One end of WireGuard tunnels: a file, or an interface of this host.
pub(super) struct Source {
    /// What to call its node.
    pub(super) name: String,
    /// The interface that it is on its host, where that is known.
    pub(super) interface: Option<String>,
    pub(super) public_key: Option<PublicKey>,
    pub(super) peers: Vec<Peer>,
    /// What it says, without its keys.
    pub(super) says: String,
    /// The facts of this host, where the source is about it.
    pub(super) here: Option<Facts>,
}

/// A peer of it.
pub(super) struct Peer {
    pub(super) public_key: PublicKey,
    pub(super) name: Option<String>,
    pub(super) endpoint: Option<Endpoint>,
    pub(super) allowed_ips: Vec<IpNet>,
    /// Seconds.
    pub(super) keepalive: Option<u16>,
    pub(super) has_preshared_key: bool,
    /// Where it stands: `wg0.conf:12`.
    pub(super) place: String,
}

impl Source {
    pub(super) fn of_conf(
        name: String,
        file: &str,
        interface: Option<String>,
        conf: &Conf,
        here: Option<Facts>,
    ) -> Self {
        let peers = conf.peers.iter().map(|peer| Peer {
            public_key: peer.public_key,
            name: peer.name.clone(),
            endpoint: peer.endpoint.clone(),
            allowed_ips: peer.allowed_ips.clone(),
            keepalive: peer.keepalive,
            has_preshared_key: peer.preshared_key.is_some(),
            place: format!("{file}:{}", peer.line),
        });
        let says = format!("{file}: {}", says(conf));
        Self { name, interface, public_key: conf.public_key(), peers: peers.collect(), says, here }
    }
}

/// What a file says of its device, keys and commands left out.
fn says(conf: &Conf) -> String {
    let number = |name: &str, value: Option<u64>| value.map(|value| format!("{name} {value}"));
    let parts = [
        (!conf.addresses.is_empty()).then(|| format!("inner addresses {}", list(&conf.addresses))),
        number("MTU", conf.mtu.map(|mtu| u64::from(mtu.get()))),
        number("port", conf.listen_port.map(u64::from)),
        conf.fwmark.map(|mark| format!("mark {mark:#x}")),
        match conf.table {
            Table::Auto => None,
            Table::Off => Some("table off".to_owned()),
            Table::Number(number) => Some(format!("table {number}")),
        },
        Some(match conf.peers.len() {
            1 => "1 peer".to_owned(),
            peers => format!("{peers} peers"),
        }),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A few of them: some files list half the Internet.
fn list(nets: &[IpNet]) -> String {
    const SHOWN: usize = 8;
    let shown = nets.iter().take(SHOWN).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match nets.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

impl Peer {
    fn says(&self) -> String {
        let behind = match self.allowed_ips.as_slice() {
            [] => "nothing behind it".to_owned(),
            nets => format!("{} behind it", list(nets)),
        };
        let keepalive = self.keepalive.map_or_else(|| "no keepalive".to_owned(), |s| format!("keepalive {s} s"));
        let preshared = if self.has_preshared_key { ", a preshared key" } else { "" };
        format!("{}: {behind}, {keepalive}{preshared}", self.place)
    }
}

/// Adds the sources and their peers to the draft. `resolve` gives a name's addresses, all of them.
pub(super) fn add(draft: &mut Draft, sources: &[Source], resolve: &dyn Fn(&str) -> Vec<IpAddr>) -> Vec<String> {
    let mut notes = Vec::new();
    let own: Vec<usize> = sources
        .iter()
        .map(|source| {
            let mut node = Node { name: source.name.clone(), named: true, ..Node::default() };
            node.keys.extend(source.public_key);
            node.remarks.push(source.says.clone());
            node.tunnels.extend(source.interface.iter().map(|name| (name.clone(), false)));
            if let Some(facts) = &source.here {
                node.reach = Some(Reach::Command(vec!["wglab".to_owned(), "agent".to_owned()]));
                node.take(facts);
            }
            draft.add(node)
        })
        .collect();
    let mut silent = Vec::new();
    for (source, index) in sources.iter().zip(own) {
        for peer in &source.peers {
            let known = draft.with_key(peer.public_key);
            let Some(endpoint) = &peer.endpoint else {
                // It calls; what is known of it comes from its own file.
                if known.is_none() {
                    notes.push(format!(
                        "{}: a peer without Endpoint, of which no other file tells: left out",
                        peer.place
                    ));
                }
                silent.extend(known.map(|other| (index, other, peer.place.clone())));
                continue;
            };
            let other = known.unwrap_or_else(|| {
                let name = peer.name.clone().unwrap_or_else(|| host_name(&endpoint.host));
                draft.add(Node { name, keys: vec![peer.public_key], ..Node::default() })
            });
            draft.nodes[other].remarks.push(peer.says());
            locate(&mut draft.nodes[other], endpoint, resolve);
            let back = draft.pairs.contains(&(other, index));
            if other != index && !back {
                draft.pairs.insert((index, other));
            }
        }
    }
    draft.leave_out_twins();
    for (index, other, place) in silent {
        if index < other && !draft.pairs.contains(&(index, other)) && !draft.pairs.contains(&(other, index)) {
            let names = [&draft.nodes[index].name, &draft.nodes[other].name];
            notes.push(format!(
                "{place}: neither {} nor {} has an Endpoint for the other one: nobody can call, and they are no pair",
                names[0], names[1]
            ));
        }
    }
    notes
}

/// What an endpoint says about where a node is, and how it may be reached.
fn locate(node: &mut Node, endpoint: &Endpoint, resolve: &dyn Fn(&str) -> Vec<IpAddr>) {
    let target = match &endpoint.host {
        Host::Address(address) => {
            node.take_address(*address);
            match address {
                IpAddr::V4(address) => address.to_string(),
                IpAddr::V6(address) => format!("[{address}]"),
            }
        }
        Host::Name(name) => {
            let addresses = resolve(name);
            let said: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            node.remarks.push(match said.is_empty() {
                true => format!("{name} could not be resolved"),
                false => format!("{name} is {}", said.join(", ")),
            });
            node.remarks.dedup();
            for address in addresses {
                node.take_address(address);
            }
            name.trim_end_matches('.').to_owned()
        }
        Host::LinkLocal(address, zone) => {
            node.remarks.push(format!("{address}%{zone} is right on one link only: left out"));
            return;
        }
    };
    node.reach.get_or_insert_with(|| Reach::Assumed(format!("ssh:root@{target}")));
}

fn host_name(host: &Host) -> String {
    match host {
        Host::Address(address) => address.to_string().replace(':', "-"),
        Host::LinkLocal(address, _) => address.to_string().replace(':', "-"),
        Host::Name(name) => name.split('.').next().unwrap_or(name).to_owned(),
    }
}
