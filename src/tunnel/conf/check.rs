//! What only the whole file shows: peers that cannot be told apart, prefixes with two owners, loops.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::diagnostic::Remarks;
use super::lines::{Section, SectionKind};
use super::{Conf, Dialect, Host, Places, Table};

/// Notes it.
pub(super) fn whole(conf: &Conf, places: &Places, sections: &[Section<'_>], remarks: &mut Remarks<'_>) {
    match sections.iter().find(|section| section.kind == SectionKind::Interface) {
        None if !sections.is_empty() => remarks.warning(
            0..0,
            "there is no [Interface]: the file alone gives a device no private key, and so no handshake",
            "write [Interface] with its PrivateKey, unless the file is only added to a device",
        ),
        Some(interface) if conf.private_key.is_none() && remarks.problems.is_empty() => remarks.warning(
            interface.span.clone(),
            "[Interface] has no PrivateKey: without one there is no handshake",
            "write it, unless a hook sets it",
        ),
        _ => {}
    }
    peers(conf, places, remarks);
    prefixes(conf, places, remarks);
    loops(conf, places, remarks);
}

fn peers(conf: &Conf, places: &Places, remarks: &mut Remarks<'_>) {
    let own = conf.public_key();
    let mut lines = BTreeMap::new();
    for (peer, span) in conf.peers.iter().zip(&places.keys) {
        if own == Some(peer.public_key) {
            remarks.problem(
                span.clone(),
                "this peer is the device itself: its PublicKey is that of the PrivateKey in [Interface]",
                "write the other end's public key; each end has a key pair of its own",
            );
        }
        if conf.private_key.as_ref().is_some_and(|own| own.to_hex().as_str() == peer.public_key.to_hex()) {
            remarks.problem(
                span.clone(),
                "this PublicKey is the PrivateKey of [Interface]",
                "write the other end's public key, and make a new key pair here: this one may have been handed out",
            );
        }
        let line = remarks.line_of(span.start);
        if let Some(first) = lines.insert(peer.public_key, line) {
            remarks.problem(
                span.clone(),
                format!("lines {first} and {line} name the same peer; its second section would replace the first one's AllowedIPs"),
                "put both sections together, or correct one of the keys",
            );
        }
    }
}

/// A prefix has one owner on a device: the last one silently takes it from the others.
fn prefixes(conf: &Conf, places: &Places, remarks: &mut Remarks<'_>) {
    let mut owners = BTreeMap::new();
    for (index, (peer, prefixes)) in conf.peers.iter().zip(&places.prefixes).enumerate() {
        if prefixes.is_empty() {
            remarks.warning(
                places.peers[index].clone(),
                "this peer has no AllowedIPs: nothing is sent to it, and nothing from it is taken",
                "write the inner addresses behind it",
            );
        }
        for (net, span) in prefixes {
            let line = remarks.line_of(span.start);
            match owners.insert(*net, (index, line)) {
                Some((other, first)) if other != index => remarks.problem(
                    span.clone(),
                    format!(
                        "{net} is given to two peers, on lines {first} and {line}; the peer of line {} would lose it without a word",
                        conf.peers[other].line
                    ),
                    "give it to one of them, or give one a longer prefix",
                ),
                _ => {}
            }
            if let Some(own) =
                conf.addresses.iter().find(|own| net.addr() == own.addr() && net.prefix_len() == net.max_prefix_len())
            {
                remarks.warning(
                    span.clone(),
                    format!(
                        "{} is the device's own address, and its peer of line {} is given it",
                        own.addr(),
                        peer.line
                    ),
                    "write the peer's inner address",
                );
            }
        }
    }
}

/// Outer packets to a peer that the tunnel's own routes would take into the tunnel. wg-quick keeps them out of default routes
/// only (its `add_default`).
fn loops(conf: &Conf, places: &Places, remarks: &mut Remarks<'_>) {
    if conf.dialect == Dialect::Wg || conf.table == Table::Off {
        return;
    }
    let routes: BTreeMap<_, _> = places.prefixes.iter().flatten().map(|(net, span)| (*net, span)).collect();
    for peer in &conf.peers {
        let Some(Host::Address(outer)) = peer.endpoint.as_ref().map(|endpoint| &endpoint.host) else { continue };
        let most = if outer.is_ipv4() { 32 } else { 128 };
        let around = (1..=most).filter_map(|length| IpNet::new(*outer, length).ok());
        if let Some((net, span)) = around.map(|net| net.trunc()).find_map(|net| Some((net, *routes.get(&net)?))) {
            remarks.warning(
                span.clone(),
                format!(
                    "the endpoint {outer} of the peer of line {} lies inside {net}, which goes into the tunnel",
                    peer.line
                ),
                "leave that address out of AllowedIPs: its outer packets would loop",
            );
        }
    }
}
