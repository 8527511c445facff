//! Nodes and pairs: who there is, how each is reached, and who talks to whom.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use super::diagnostic::Problems;
use super::names::check_name;
use super::reader::{Table, kind, parse_text};
use super::{Node, Pair, Place, Underlay};
use crate::cell::{did_you_mean, printable};
use crate::units::Family;

/// The most nodes of one topology: a full mesh of them is half a million pairs.
const MOST_NODES: usize = 1000;

pub(super) const NODE_KEYS: [&str; 4] = ["reach", "address", "agent", "underlays"];
const NODES_EXAMPLE: &str = "nodes = [\"a1\", \"a2\"]";
const NODE_EXAMPLE: &str = "[node.fra] reach = \"ssh:root@fra\"";
const PAIRS_EXAMPLE: &str = "pairs = [\"a1>a2\"]";

/// The nodes, and where each is named.
pub(super) struct Nodes {
    pub(super) list: Vec<Node>,
    spans: Vec<Range<usize>>,
}

impl Nodes {
    /// Whether all are made here.
    pub(super) fn are_here(&self) -> bool {
        self.list.iter().all(|node| matches!(node.place, Place::Here { .. }))
    }

    fn find(&self, name: &str) -> Option<&Node> {
        self.list.iter().find(|node| node.name == name)
    }
}

/// The nodes of `nodes = [...]` and of the `[node.NAME]` tables.
pub(super) fn nodes(root: &Table<'_>, underlays: &[Spanned<Underlay>], problems: &mut Problems<'_>) -> Nodes {
    let tables = root.tables("node", NODE_EXAMPLE, problems);
    let listed = root.texts("nodes", NODES_EXAMPLE, problems);
    let named: Vec<Spanned<String>> = match &listed {
        Some(listed) => listed.clone(),
        None => tables.iter().map(|(name, _)| name.clone()).collect(),
    };
    if named.is_empty() && root.get("nodes").is_none() && root.get("node").is_none() {
        problems.push(0..0, "a topology needs nodes", format!("write `{NODES_EXAMPLE}`"));
    }
    if named.len() > MOST_NODES {
        let span = root.key_span("nodes");
        problems.push(
            span,
            format!("{} nodes are too many", named.len()),
            format!("a topology has at most {MOST_NODES}"),
        );
        return Nodes { list: Vec::new(), spans: Vec::new() };
    }
    for (name, _) in tables.iter().filter(|_| listed.is_some()) {
        if !named.iter().any(|node| node.get_ref() == name.get_ref()) {
            let suggestion = did_you_mean(name.get_ref(), named.iter().map(|node| node.get_ref().as_str()));
            let help = format!("{suggestion}add it to `nodes`, or leave `nodes` out");
            problems.push(name.span(), format!("node `{}` is not in `nodes`", printable(name.get_ref())), help);
        }
    }
    let mut nodes = Nodes { list: Vec::new(), spans: Vec::new() };
    let mut seen = BTreeSet::new();
    for name in named {
        if let Err(why) = check_name(name.get_ref()) {
            let name_text = printable(name.get_ref());
            problems.push(name.span(), format!("`{name_text}` cannot name a node: {why}"), "choose another name");
            continue;
        }
        if !seen.insert(name.get_ref().clone()) {
            problems.push(name.span(), format!("node `{}` is named twice", name.get_ref()), "remove one of them");
            continue;
        }
        let table = tables.iter().find(|(key, _)| key.get_ref() == name.get_ref()).map(|(_, table)| table);
        let place = match table {
            Some(table) => place(table, underlays, problems),
            None => here(None, underlays),
        };
        nodes.spans.push(name.span());
        nodes.list.push(Node { name: name.into_inner(), place });
    }
    check_one_kind(&nodes, problems);
    check_addresses(&nodes, problems);
    nodes
}

fn here(agent: Option<Vec<String>>, underlays: &[Spanned<Underlay>]) -> Place {
    Place::Here { agent, underlays: underlays.iter().map(|underlay| underlay.get_ref().name.clone()).collect() }
}

/// One `[node.NAME]` table.
fn place(table: &Table<'_>, underlays: &[Spanned<Underlay>], problems: &mut Problems<'_>) -> Place {
    table.only(&NODE_KEYS, problems);
    let Some(reach) = table.get("reach") else {
        if table.get("address").is_some() {
            problems.push(
                table.key_span("address"),
                format!("{} has an address but no `reach`", table.what()),
                "say how its agent is reached, like `reach = \"ssh:root@fra\"`; nodes made here get their addresses",
            );
        }
        let agent = table.texts("agent", "agent = [\"wglab\", \"agent\"]", problems).map(argv);
        let mut place = here(agent, underlays);
        if let (Some(names), Place::Here { underlays: own, .. }) =
            (table.texts("underlays", "underlays = [\"private\"]", problems), &mut place)
        {
            own.clear();
            for name in names {
                if known_underlay(&name, underlays, problems) {
                    own.push(name.into_inner());
                }
            }
        }
        return place;
    };
    for key in ["agent", "underlays"] {
        if table.get(key).is_some() {
            let help = match key {
                "agent" => "for a real node, `reach` itself is the command that starts the agent",
                _ => "a real node has the underlays that `address` gives it an address on",
            };
            problems.push(table.key_span(key), format!("`{key}` is for nodes made here"), help);
        }
    }
    let argv = reach_argv(reach, table, problems).unwrap_or_default();
    Place::There { argv, addresses: addresses(table, underlays, problems) }
}

fn argv(words: Vec<Spanned<String>>) -> Vec<String> {
    words.into_iter().map(Spanned::into_inner).collect()
}

/// `"ssh:[USER@]HOST[:PORT]"`, or the command itself as a list.
fn reach_argv(value: &Spanned<DeValue<'_>>, table: &Table<'_>, problems: &mut Problems<'_>) -> Option<Vec<String>> {
    let DeValue::String(text) = value.get_ref() else {
        let words = table.texts(
            "reach",
            "reach = [\"kubectl\", \"exec\", \"-i\", \"pod\", \"--\", \"wglab\", \"agent\"]",
            problems,
        )?;
        if let Some(odd) = words.iter().find(|word| word.get_ref().contains('\0')) {
            problems.push(odd.span(), "an argument holds a NUL byte", "no command line can: remove it");
        }
        return Some(argv(words));
    };
    match ssh_argv(text) {
        Ok(argv) => Some(argv),
        Err(why) => {
            problems.push(
                value.span(),
                format!("`reach`: {why}"),
                "write \"ssh:root@fra\", \"ssh:root@fra:2222\", or the command as a list",
            );
            None
        }
    }
}

/// The OpenSSH command for `ssh:[USER@]HOST[:PORT]`. `BatchMode`: nobody is there to type a password.
///
/// # Errors
/// What is wrong with the text.
pub fn ssh_argv(text: &str) -> Result<Vec<String>, String> {
    let target = text.strip_prefix("ssh:").ok_or_else(|| format!("`{}` begins with no known way", printable(text)))?;
    let (user, host) = target.split_once('@').map_or((None, target), |(user, host)| (Some(user), host));
    let (host, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => (address, rest.strip_prefix(':').or_else(|| rest.is_empty().then_some("22"))),
        None => host.split_once(':').map_or((host, Some("22")), |(host, port)| (host, Some(port))),
    };
    let port: u16 = port
        .and_then(|port| port.parse().ok())
        .filter(|port| *port > 0)
        .ok_or_else(|| format!("`{}` has no valid port; an IPv6 address goes in brackets", printable(target)))?;
    for part in user.into_iter().chain([host]) {
        // What ssh would take for an option, or a shell on the way for a command.
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-:%+".contains(c);
        if part.is_empty() || part.starts_with('-') || !part.chars().all(plain) {
            return Err(format!("`{}` is not a user or a host", printable(part)));
        }
    }
    let destination = user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"));
    let port = port.to_string();
    let words = [
        "ssh",
        "-T",
        "-o",
        "BatchMode=yes",
        "-o",
        "ServerAliveInterval=5",
        "-p",
        &port,
        &destination,
        "wglab",
        "agent",
    ];
    Ok(words.map(str::to_owned).to_vec())
}

fn known_underlay(name: &Spanned<String>, underlays: &[Spanned<Underlay>], problems: &mut Problems<'_>) -> bool {
    let known: Vec<&str> = underlays.iter().map(|underlay| underlay.get_ref().name.as_str()).collect();
    if known.contains(&name.get_ref().as_str()) {
        return true;
    }
    let suggestion = did_you_mean(name.get_ref(), known.iter().copied());
    let help = if known.is_empty() {
        "name the network that the nodes share in `[underlay]`, like `private = { family = \"ipv4\" }`".to_owned()
    } else {
        format!("{suggestion}the underlays are {}", known.join(", "))
    };
    problems.push(name.span(), format!("there is no underlay `{}`", printable(name.get_ref())), help);
    false
}

/// `address = { UNDERLAY = "ADDRESS" }`.
fn addresses(
    table: &Table<'_>,
    underlays: &[Spanned<Underlay>],
    problems: &mut Problems<'_>,
) -> BTreeMap<String, IpAddr> {
    const EXAMPLE: &str = "address = { private = \"10.0.0.2\" }";
    let Some(value) = table.get("address") else {
        let help = format!("say on which underlays it is, like `{EXAMPLE}`");
        problems.push(table.span(), format!("{} has no address", table.what()), help);
        return BTreeMap::new();
    };
    let what = format!("`address` of {}", table.what());
    let Some(inner) = Table::of(value, table.key_span("address"), &what, EXAMPLE, problems) else {
        return BTreeMap::new();
    };
    let mut addresses = BTreeMap::new();
    for (name, value) in inner.fields() {
        let name = Spanned::new(name.span(), name.get_ref().clone().into_owned());
        let known = known_underlay(&name, underlays, problems);
        let Some(address) = parse_text::<IpAddr>(value, "address", problems) else { continue };
        let underlay = underlays.iter().map(Spanned::get_ref).find(|underlay| &underlay.name == name.get_ref());
        let Some(underlay) = underlay.filter(|_| known) else { continue };
        if let Some(why) = unusable(*address.get_ref(), underlay.family) {
            problems.push(
                address.span(),
                format!("{} {why}", address.get_ref()),
                "write the host's own address on that network",
            );
            continue;
        }
        addresses.insert(name.into_inner(), address.into_inner());
    }
    addresses
}

/// Why `address` cannot be a node's on an underlay of `family`.
fn unusable(address: IpAddr, family: Family) -> Option<String> {
    let matches = match family {
        Family::Ipv4 => address.is_ipv4(),
        Family::Ipv6 => address.is_ipv6(),
    };
    if !matches {
        return Some(format!("is not an {family} address, and the underlay is {family}"));
    }
    let link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    if link_local {
        return Some("is link-local: it says nothing without an interface".to_owned());
    }
    (address.is_unspecified() || address.is_multicast()).then(|| "names no host".to_owned())
}

/// Nodes made here live in a lab that nothing outside can reach.
fn check_one_kind(nodes: &Nodes, problems: &mut Problems<'_>) {
    let first_real = nodes.list.iter().zip(&nodes.spans).find(|(node, _)| matches!(node.place, Place::There { .. }));
    let first_made = nodes.list.iter().zip(&nodes.spans).find(|(node, _)| matches!(node.place, Place::Here { .. }));
    if let (Some((real, span)), Some((made, _))) = (first_real, first_made) {
        problems.push(
            span.clone(),
            format!("`{}` is a real node and `{}` is made here: no network joins them", real.name, made.name),
            "give every node a `reach`, or none",
        );
    }
}

/// No two nodes share an address on an underlay.
fn check_addresses(nodes: &Nodes, problems: &mut Problems<'_>) {
    let mut owners: BTreeMap<(&str, IpAddr), &str> = BTreeMap::new();
    for (node, span) in nodes.list.iter().zip(&nodes.spans) {
        let Place::There { addresses, .. } = &node.place else { continue };
        for (underlay, address) in addresses {
            if let Some(other) = owners.insert((underlay, *address), &node.name) {
                problems.push(
                    span.clone(),
                    format!("`{}` and `{other}` have the same address {address} on `{underlay}`", node.name),
                    "write each host's own address",
                );
            }
        }
    }
}

/// `pairs = ["a1>a2"]` or `"mesh"`.
pub(super) fn pairs(
    root: &Table<'_>,
    nodes: &Nodes,
    underlays: &[Spanned<Underlay>],
    problems: &mut Problems<'_>,
) -> Vec<Pair> {
    let Some(value) = root.get("pairs") else {
        let help = format!("write `{PAIRS_EXAMPLE}`, or `pairs = \"mesh\"` for every two nodes");
        problems.push(0..0, "a topology needs pairs", help);
        return Vec::new();
    };
    if nodes.list.is_empty() {
        // That is noted; every name in a pair would be another problem.
        return Vec::new();
    }
    let pairs = if matches!(value.get_ref(), DeValue::String(text) if text == "mesh") {
        mesh(nodes, underlays)
    } else {
        if matches!(value.get_ref(), DeValue::Array(array) if array.is_empty()) {
            let help = format!("write `{PAIRS_EXAMPLE}`, or `pairs = \"mesh\"` for every two nodes");
            problems.push(value.span(), "`pairs` is an empty list", help);
            return Vec::new();
        }
        let read = root.one_or_many("pairs", problems, |value, problems| pair(value, nodes, underlays, problems));
        read.unwrap_or_default().into_iter().map(Spanned::into_inner).collect()
    };
    if problems.is_empty() {
        let busy: BTreeSet<&str> = pairs.iter().flat_map(|pair| [pair.client.as_str(), pair.server.as_str()]).collect();
        for (node, span) in nodes.list.iter().zip(&nodes.spans) {
            if !busy.contains(node.name.as_str()) {
                problems.push(
                    span.clone(),
                    format!("node `{}` is in no pair", node.name),
                    "add it to a pair, or remove it",
                );
            }
        }
        check_underlays_used(&pairs, nodes, underlays, problems);
    }
    pairs
}

/// Every two nodes that have an underlay in common, in the order of the file.
fn mesh(nodes: &Nodes, underlays: &[Spanned<Underlay>]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (index, client) in nodes.list.iter().enumerate() {
        for server in &nodes.list[index + 1..] {
            if underlays
                .iter()
                .any(|underlay| client.has(&underlay.get_ref().name) && server.has(&underlay.get_ref().name))
            {
                pairs.push(Pair { client: client.name.clone(), server: server.name.clone() });
            }
        }
    }
    pairs
}

fn pair(
    value: &Spanned<DeValue<'_>>,
    nodes: &Nodes,
    underlays: &[Spanned<Underlay>],
    problems: &mut Problems<'_>,
) -> Option<Spanned<Pair>> {
    let span = value.span();
    let DeValue::String(text) = value.get_ref() else {
        problems.push(span, format!("a pair is text, not {}", kind(value)), format!("write `{PAIRS_EXAMPLE}`"));
        return None;
    };
    let mut ends = text.split('>').map(str::trim);
    let (Some(client), Some(server), None) = (ends.next(), ends.next(), ends.next()) else {
        let message = format!("`{}` is not a pair: a pair is two nodes", printable(text));
        problems.push(span, message, "write client and server with `>` between them, like \"a1>a2\"");
        return None;
    };
    let mut known = true;
    for end in [client, server] {
        if nodes.find(end).is_none() {
            let names = nodes.list.iter().map(|node| node.name.as_str());
            let help = if end.is_empty() {
                "a pair is two nodes, like \"a1>a2\"".to_owned()
            } else {
                format!("{}the nodes are {}", did_you_mean(end, names.clone()), list(names))
            };
            problems.push(span.clone(), format!("`{}` names no node in `{}`", printable(end), printable(text)), help);
            known = false;
        }
    }
    let (client, server) = (nodes.find(client).filter(|_| known)?, nodes.find(server)?);
    if client.name == server.name {
        let message = format!("`{}` pairs a node with itself", printable(text));
        problems.push(span, message, "a pair is two nodes: traffic to oneself never leaves the host");
        return None;
    }
    let together =
        underlays.iter().any(|underlay| client.has(&underlay.get_ref().name) && server.has(&underlay.get_ref().name));
    // A name that did not resolve is noted, and may be what would join them.
    if !together && problems.is_empty() {
        let message = format!("`{}` and `{}` have no underlay in common", client.name, server.name);
        problems.push(span, message, "give both an address on the same underlay");
        return None;
    }
    Some(Spanned::new(span, Pair { client: client.name.clone(), server: server.name.clone() }))
}

/// At most a dozen names: a mesh has hundreds.
fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    let more = names.len().saturating_sub(12);
    names.truncate(12);
    if more > 0 { format!("{} and {more} more", names.join(", ")) } else { names.join(", ") }
}

/// An underlay that no node has, or no pair, measures nothing.
fn check_underlays_used(pairs: &[Pair], nodes: &Nodes, underlays: &[Spanned<Underlay>], problems: &mut Problems<'_>) {
    let by_name: BTreeMap<&str, &Node> = nodes.list.iter().map(|node| (node.name.as_str(), node)).collect();
    for underlay in underlays {
        let name = &underlay.get_ref().name;
        let has = |node: &str| by_name.get(node).is_some_and(|node| node.has(name));
        if !nodes.list.iter().any(|node| node.has(name)) {
            let help = "give nodes an address on it, or remove it";
            problems.push(underlay.span(), format!("no node has underlay `{name}`"), help);
        } else if !pairs.iter().any(|pair| has(&pair.client) && has(&pair.server)) {
            let help = "give both nodes of a pair an address on it, or remove it";
            problems.push(underlay.span(), format!("no pair has both nodes on underlay `{name}`"), help);
        }
    }
}

/// `network` and `kind` of an underlay speak of what the provider makes: real nodes have neither.
pub(super) fn check_made_here(
    root: &Table<'_>,
    nodes: &Nodes,
    underlays: &[Spanned<Underlay>],
    problems: &mut Problems<'_>,
) {
    if nodes.list.is_empty() || nodes.are_here() {
        let attached = nodes.list.len() as u64;
        for underlay in underlays {
            super::underlays::check_room(underlay, attached, problems);
        }
        return;
    }
    let Some(value) = root.get("underlay") else { return };
    let DeValue::Table(tables) = value.get_ref() else { return };
    for (name, table) in tables {
        let DeValue::Table(fields) = table.get_ref() else { continue };
        for (key, _) in fields.iter().filter(|(key, _)| ["network", "kind"].contains(&key.get_ref().as_ref())) {
            problems.push(
                key.span(),
                format!("underlay `{}` has a `{}`, but its nodes are real", printable(name.get_ref()), key.get_ref()),
                "remove it: a real node's address says where it is",
            );
        }
    }
}
