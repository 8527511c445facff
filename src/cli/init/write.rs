//! A draft as the text of a topology. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::draft::{Draft, Node, Reach, Underlay};
use crate::cell::printable;

/// Something that is not in the file, or only as a comment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// What, and why.
    pub(super) what: String,
    /// Whether an argument named it.
    pub(super) named: bool,
}

/// The text, and what is missing in it.
pub(super) fn topology(draft: &Draft) -> (String, Vec<Missing>) {
    let mut missing = Vec::new();
    let pairs = pairs(draft);
    let underlays = underlays(draft, &pairs);
    let paired = |index: usize| pairs.iter().any(|(client, server)| *client == index || *server == index);
    let mut text = String::new();
    let from = draft.sources.iter().map(|source| printable(source)).collect::<Vec<_>>().join(", ");
    let _ = writeln!(text, "# What do the tunnels between these hosts cost beside their underlays?");
    let _ =
        writeln!(text, "#\n# Written by `wglab init` from {from}. No key is in it: tunnels of a run get fresh ones.");
    let name = |index: usize| draft.nodes[index].name.as_str();
    let list = |pairs: &mut dyn Iterator<Item = &(usize, usize)>| {
        let names = pairs.map(|(client, server)| quoted(&format!("{}>{}", name(*client), name(*server))));
        names.collect::<Vec<_>>().join(", ")
    };
    if is_mesh(draft) {
        text.push_str("pairs   = \"mesh\"\n");
    } else if pairs.is_empty() {
        text.push_str("# Remove the `# ` of this line once its nodes are filled in below, and what is not to be measured from it.\n");
        let _ = writeln!(text, "# pairs   = [{}]", list(&mut draft.pairs.iter()));
    } else {
        let _ = writeln!(text, "pairs   = [{}]", list(&mut pairs.iter()));
    }
    let tunnel = tunnel(draft, &paired);
    let interface = tunnel.as_ref().filter(|(_, readable)| *readable).map(|(name, _)| name.as_str());
    let engines = ["raw", "embedded"].into_iter().chain(interface).map(quoted).collect::<Vec<_>>().join(", ");
    let _ = writeln!(text, "compare = \"engine\"\nengines = [{engines}]");

    for (index, node) in draft.nodes.iter().enumerate() {
        let is_whole = paired(index);
        if !is_whole {
            missing.push(Missing { what: format!("node {} {}: left out", node.name, reason(node)), named: node.named });
        }
        write_node(&mut text, node, is_whole, &underlays);
    }
    text.push_str(if underlays.is_empty() { "" } else { "\n[underlay]\n" });
    for (underlay, mtu) in &underlays {
        let mtu = mtu.map_or_else(String::new, |mtu| format!(", mtu = {mtu}"));
        let _ = writeln!(
            text,
            "{} = {{ family = \"{}\"{mtu} }}   # budget = \"50GB\" limits what a run may send",
            underlay.name(),
            underlay.family()
        );
    }
    if underlays.is_empty() {
        write_no_underlay(&mut text, draft);
        missing.push(Missing {
            what: "no network is known that two of the nodes share: comments in the topology say what to fill in"
                .to_owned(),
            named: true,
        });
    }
    write_tunnel(&mut text, tunnel.as_ref());
    text.push_str("\n[[test]]\nkind = \"tcp-stream\"\nstreams = [1, 4]\n\n[[test]]\nkind = \"tcp-rr\"\n");
    (text, missing)
}

fn is_mesh(draft: &Draft) -> bool {
    draft.mesh || draft.pairs.is_empty()
}

/// The networks that both nodes are on.
fn shared(draft: &Draft, one: usize, other: usize) -> impl Iterator<Item = Underlay> {
    let theirs = &draft.nodes[other].addresses;
    draft.nodes[one].addresses.keys().copied().filter(|underlay| theirs.contains_key(underlay))
}

/// The pairs that can be measured.
fn pairs(draft: &Draft) -> Vec<(usize, usize)> {
    let every = || (0..draft.nodes.len()).flat_map(|one| (one + 1..draft.nodes.len()).map(move |other| (one, other)));
    let wanted: Vec<(usize, usize)> =
        if is_mesh(draft) { every().collect() } else { draft.pairs.iter().copied().collect() };
    let reached = |index: usize| draft.nodes[index].reach.is_some();
    let fits =
        |&(one, other): &(usize, usize)| reached(one) && reached(other) && shared(draft, one, other).next().is_some();
    wanted.into_iter().filter(fits).collect()
}

/// The underlays of the pairs, and the least MTU of their links, where one is known.
fn underlays(draft: &Draft, pairs: &[(usize, usize)]) -> BTreeMap<Underlay, Option<u32>> {
    let mut found: BTreeMap<Underlay, Option<u32>> = BTreeMap::new();
    for &(one, other) in pairs {
        for underlay in shared(draft, one, other) {
            let mtus = [one, other].into_iter().filter_map(|node| draft.nodes[node].addresses.get(&underlay)?.mtu);
            let least = found.entry(underlay).or_default();
            *least = least.iter().copied().chain(mtus).min();
        }
    }
    let can_be = |mtu: &u32| (576..=65_535).contains(mtu);
    found.into_iter().map(|(underlay, mtu)| (underlay, mtu.filter(can_be))).collect()
}

fn reason(node: &Node) -> &'static str {
    if node.reach.is_none() {
        "cannot be reached, as far as is known"
    } else if node.addresses.is_empty() {
        "has no known address"
    } else {
        "has no address on a network of a node that it is paired with"
    }
}

/// What stands for `[underlay]` where no network is known that two nodes share.
fn write_no_underlay(text: &mut String, draft: &Draft) {
    text.push_str(
        "\n# No network is known that two of the nodes share. Write the address on one into `address` of each node above, name that network\n\
         # here with its family, and remove the `# ` of both lines, and what no two nodes share.\n# [underlay]\n",
    );
    let mut known: BTreeSet<Underlay> = draft.nodes.iter().flat_map(|node| node.addresses.keys().copied()).collect();
    if known.is_empty() {
        known.insert(Underlay::PublicIpv4);
    }
    for underlay in known {
        let _ = writeln!(text, "# {} = {{ family = \"{}\" }}", underlay.name(), underlay.family());
    }
}

/// A node; one that is not whole is commented out, so that the rest can be used.
fn write_node(text: &mut String, node: &Node, is_whole: bool, underlays: &BTreeMap<Underlay, Option<u32>>) {
    let mark = if is_whole { "" } else { "# " };
    text.push('\n');
    if !is_whole {
        let _ = writeln!(text, "# Left out: it {}. Fill it in, and remove the `# ` of the lines below.", reason(node));
    }
    for remark in &node.remarks {
        let _ = writeln!(text, "# {}", printable(remark));
    }
    let _ = writeln!(text, "{mark}[node.{}]", toml_key(&node.name));
    let (reach, remark) = match &node.reach {
        Some(Reach::Text(reach)) => (quoted(reach), ""),
        Some(Reach::Assumed(reach)) => (quoted(reach), "   # assumed: correct it where it is wrong"),
        Some(Reach::Command(words)) => {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            (format!("[{}]", words.join(", ")), "")
        }
        None => (quoted(&format!("ssh:root@{}", node.name)), "   # not known"),
    };
    let _ = writeln!(text, "{mark}reach = {reach}{remark}");
    let known = node.addresses.iter().filter(|(underlay, _)| !is_whole || underlays.contains_key(underlay));
    let mut known: Vec<String> =
        known.map(|(underlay, address)| format!("{} = \"{}\"", underlay.name(), address.ip)).collect();
    if known.is_empty() {
        known.push("public-ipv4 = \"\"".to_owned());
    }
    let _ = writeln!(text, "{mark}address = {{ {} }}", known.join(", "));
    let left_out = node.addresses.iter().filter(|(underlay, _)| is_whole && !underlays.contains_key(underlay));
    for (underlay, address) in left_out {
        let _ = writeln!(text, "# {} on {} is left out: no other node is there", address.ip, underlay.name());
    }
}

/// The WireGuard interface that all measured nodes have, and whether it is known to be up on all of them.
fn tunnel(draft: &Draft, paired: &impl Fn(usize) -> bool) -> Option<(String, bool)> {
    let nodes: Vec<&Node> =
        draft.nodes.iter().enumerate().filter(|(index, _)| paired(*index)).map(|(_, node)| node).collect();
    let first = nodes.first()?;
    let everywhere = first.tunnels.keys().filter(|name| nodes.iter().all(|node| node.tunnels.contains_key(*name)));
    let all: Vec<(String, bool)> = everywhere
        .map(|name| (name.clone(), nodes.iter().all(|node| node.tunnels.get(name).copied().unwrap_or(false))))
        .collect();
    all.iter().find(|(_, readable)| *readable).or_else(|| all.first()).cloned()
}

fn write_tunnel(text: &mut String, tunnel: Option<&(String, bool)>) {
    match tunnel {
        Some((name, true)) => {
            let _ = writeln!(text, "\n# What runs there already, measured as it is.\n[engine.{}]", toml_key(name));
            let _ = writeln!(text, "interface = {}", quoted(name));
        }
        Some((name, false)) => {
            let _ = writeln!(
                text,
                "\n# The hosts' own {name} is measured too where it is up on each of them: add {} to `engines`.",
                quoted(name)
            );
            let _ = writeln!(text, "# [engine.{}]\n# interface = {}", toml_key(name), quoted(name));
        }
        None => {}
    }
}

/// Text as TOML writes it.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A key as TOML writes it.
fn toml_key(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if bare { name.to_owned() } else { quoted(name) }
}
