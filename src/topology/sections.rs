//! What a pair's traffic runs on: underlays, engines, stacks, settings.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use ipnet::IpNet;
use toml::Spanned;
use toml::de::DeValue;

use super::diagnostic::Problems;
use super::names::{check_interface, check_name, check_underlay};
use super::reader::{Table, kind, parse_text, parse_whole};
use super::words::{Delivery, EngineSpec, KNOWN_DAEMONS, UnderlayKind};
use super::{DEFAULT_STACK, Engine, FOUND_STACK, Settings, Stack, Underlay};
use crate::cell::{did_you_mean, ends, printable};
use crate::units::{BitRate, Bytes, Family, Mtu};

/// The most underlays: each is an interface on every node.
const MOST_UNDERLAYS: usize = 16;

/// The name that says bridged unless the file says otherwise.
const PRIVATE: &str = "private";

pub(super) const UNDERLAY_KEYS: [&str; 6] = ["family", "mtu", "kind", "network", "budget", "nominal"];
const UNDERLAY_EXAMPLE: &str = "[underlay] private = { family = \"ipv4\", mtu = 1450 }";
pub(super) const ENGINE_KEYS: [&str; 3] = ["path", "interface", "kind"];
const ENGINE_EXAMPLE: &str = "[engine.wireguard-go] path = \"/usr/bin/wireguard-go\"";
/// What a provider made here does.
const MADE_KEYS: [&str; 2] = ["delivery", "receive_queues"];
/// What a person's own commands do on real hosts.
const HOOK_KEYS: [&str; 2] = ["switch", "verify"];
pub(super) const STACK_KEYS: [&str; 4] = ["delivery", "receive_queues", "switch", "verify"];
const STACK_EXAMPLE: &str = "[stack] standard = { delivery = \"merged-tcp\" }";
pub(super) const SETTINGS_KEYS: [&str; 4] = ["sysctl", "features", "rps_cpus", "mtu"];
const SETTINGS_EXAMPLE: &str = "[settings.gro] features = { gro = true }";

/// The engines that need no table.
const BUILT_IN: [&str; 4] = ["raw", "embedded", "direct", "kernel"];

/// A family, spelled as in files.
struct FamilyWord(Family);

impl FromStr for FamilyWord {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ipv4" => Ok(Self(Family::Ipv4)),
            "ipv6" => Ok(Self(Family::Ipv6)),
            _ => Err(format!(
                "`{}` is not a family; {}choose ipv4, ipv6",
                printable(text),
                did_you_mean(text, ["ipv4", "ipv6"])
            )),
        }
    }
}

/// `[underlay]`. An underlay with a problem is returned all the same, so that what refers to it is no second problem.
pub(super) fn underlays(root: &Table<'_>, problems: &mut Problems<'_>) -> Vec<Spanned<Underlay>> {
    let tables = root.tables("underlay", UNDERLAY_EXAMPLE, problems);
    let nothing =
        root.get("underlay").is_none_or(|value| matches!(value.get_ref(), DeValue::Table(table) if table.is_empty()));
    if nothing {
        problems.push(root.key_span("underlay"), "a topology needs underlays", format!("write `{UNDERLAY_EXAMPLE}`"));
    }
    if tables.len() > MOST_UNDERLAYS {
        let message = format!("{} underlays are too many", tables.len());
        problems.push(root.key_span("underlay"), message, format!("a topology has at most {MOST_UNDERLAYS}"));
    }
    let mut underlays = Vec::new();
    for (name, table) in tables {
        if let Err(why) = check_underlay(name.get_ref()) {
            let message = format!("`{}` cannot name an underlay: {why}", printable(name.get_ref()));
            problems.push(name.span(), message, "choose another name");
        }
        let underlay = underlay(name.get_ref(), &table, problems);
        underlays.push(Spanned::new(name.span(), underlay));
    }
    check_overlap(&underlays, problems);
    underlays
}

fn underlay(name: &str, table: &Table<'_>, problems: &mut Problems<'_>) -> Underlay {
    table.only(&UNDERLAY_KEYS, problems);
    if table.get("family").is_none() {
        let help = "write family = \"ipv4\" or \"ipv6\": the tunnel's MTU depends on it";
        problems.push(table.span(), format!("{} has no family", table.what()), help);
    }
    let family = table.parsed::<FamilyWord>("family", problems).map_or(Family::Ipv4, |family| family.into_inner().0);
    // RFC 8200 section 5: every link passes 1280; RFC 791: every host takes 576.
    let smallest = match family {
        Family::Ipv4 => 576,
        Family::Ipv6 => 1280,
    };
    let mtu = table.whole("mtu", smallest..=65_535, problems).and_then(|mtu| Mtu::new(mtu.into_inner()).ok());
    let kind = table.parsed::<UnderlayKind>("kind", problems).map(Spanned::into_inner);
    let default_kind = if name == PRIVATE { UnderlayKind::Bridged } else { UnderlayKind::Routed };
    let budget = table.parsed::<Bytes>("budget", problems);
    if let Some(budget) = budget.as_ref().filter(|budget| budget.get_ref().get() == 0) {
        problems.push(
            budget.span(),
            "a budget of nothing measures nothing",
            "remove the underlay, or raise its budget",
        );
    }
    let nominal = table.parsed::<BitRate>("nominal", problems);
    if let Some(nominal) = nominal.as_ref().filter(|nominal| nominal.get_ref().bits_per_second() == 0) {
        problems.push(
            nominal.span(),
            "a rate of zero carries nothing",
            "write what the link is sold as, like \"1Gbit/s\"",
        );
    }
    Underlay {
        name: name.to_owned(),
        family,
        mtu,
        kind: kind.unwrap_or(default_kind),
        network: network(family, table, problems),
        budget: budget.map(Spanned::into_inner),
        nominal: nominal.map(Spanned::into_inner),
    }
}

/// `network`, as hosts could use it.
fn network(family: Family, table: &Table<'_>, problems: &mut Problems<'_>) -> Option<IpNet> {
    let network = table.parsed::<IpNet>("network", problems)?;
    let (span, network) = (network.span(), network.into_inner());
    let matches = match network {
        IpNet::V4(_) => family == Family::Ipv4,
        IpNet::V6(_) => family == Family::Ipv6,
    };
    if !matches {
        problems.push(span, format!("{network} is not an {family} network"), "let family and network agree");
        return None;
    }
    if network.trunc() != network {
        let help = format!("write \"{}\"", network.trunc());
        problems.push(span, format!("{network} is an address, not a network"), help);
        return None;
    }
    let unusable = match network {
        IpNet::V4(v4) => ["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3"]
            .iter()
            .any(|taken| taken.parse().is_ok_and(|taken: ipnet::Ipv4Net| taken.contains(&v4) || v4.contains(&taken))),
        IpNet::V6(v6) => ["::/8", "fe80::/10", "ff00::/8"]
            .iter()
            .any(|taken| taken.parse().is_ok_and(|taken: ipnet::Ipv6Net| taken.contains(&v6) || v6.contains(&taken))),
    };
    if unusable {
        problems.push(
            span,
            format!("{network} holds addresses that no host can have"),
            "write a network like \"10.200.0.0/16\"",
        );
        return None;
    }
    Some(network)
}

/// No two underlays share addresses.
fn check_overlap(underlays: &[Spanned<Underlay>], problems: &mut Problems<'_>) {
    for (index, later) in underlays.iter().enumerate() {
        let Some(network) = later.get_ref().network else { continue };
        for earlier in &underlays[..index] {
            let Some(other) = earlier.get_ref().network else { continue };
            if network.contains(&other) || other.contains(&network) {
                let message = format!(
                    "the networks of `{}` ({network}) and `{}` ({other}) overlap",
                    later.get_ref().name,
                    earlier.get_ref().name
                );
                problems.push(later.span(), message, "give each underlay a network of its own, or leave `network` out");
            }
        }
    }
}

/// Whether the network that the file gives holds `nodes` nodes: a routed one spends a subnet on each.
pub(super) fn check_room(underlay: &Spanned<Underlay>, nodes: u64, problems: &mut Problems<'_>) {
    let Some(network) = underlay.get_ref().network else { return };
    let spare = u32::from(network.max_prefix_len() - network.prefix_len());
    let per_node = match (underlay.get_ref().kind, underlay.get_ref().family) {
        (UnderlayKind::Bridged, _) => 0,
        (UnderlayKind::Routed, Family::Ipv4) => 2,
        (UnderlayKind::Routed, Family::Ipv6) => 64,
    };
    // The first address or subnet, and the last, stay unused.
    let room = 1_u64.checked_shl(spare.saturating_sub(per_node)).unwrap_or(u64::MAX).saturating_sub(2);
    if spare < per_node || nodes > room {
        let what = match underlay.get_ref().kind {
            UnderlayKind::Bridged => "addresses",
            UnderlayKind::Routed if per_node == 2 => "subnets of /30",
            UnderlayKind::Routed => "subnets of /64",
        };
        let room = if spare < per_node { 0 } else { room };
        let message = format!("{network} has {room} {what}, and `{}` has {nodes} nodes", underlay.get_ref().name);
        problems.push(underlay.span(), message, "widen `network`, or leave it out");
    }
}

/// `engines` and `[engine]`: every engine that a level names, and the levels.
pub(super) fn engines(root: &Table<'_>, problems: &mut Problems<'_>) -> (Vec<Engine>, Vec<String>) {
    let mut defined: Vec<(Spanned<String>, Option<EngineSpec>)> = Vec::new();
    for (name, table) in root.tables("engine", ENGINE_EXAMPLE, problems) {
        if let Err(why) = check_name(name.get_ref()) {
            let message = format!("`{}` cannot name an engine: {why}", printable(name.get_ref()));
            problems.push(name.span(), message, "choose another name");
        }
        let spec = engine(name.get_ref(), &table, problems);
        defined.push((name, spec));
    }
    let levels = root.texts("engines", "engines = [\"raw\", \"embedded\"]", problems);
    let listed = root.get("engines").is_some();
    let levels = match levels {
        Some(levels) => levels,
        None if defined.is_empty() => ["raw", "embedded"].map(|name| Spanned::new(0..0, name.to_owned())).to_vec(),
        None => {
            let own = defined.iter().map(|(name, _)| name.clone()).filter(|name| name.get_ref() != "raw");
            [Spanned::new(0..0, "raw".to_owned())].into_iter().chain(own).collect()
        }
    };
    let mut engines: Vec<Engine> = Vec::new();
    let mut used = BTreeSet::new();
    let mut names: Vec<String> = Vec::new();
    let known: Vec<String> =
        defined.iter().map(|(name, _)| name.get_ref().clone()).chain(BUILT_IN.map(str::to_owned)).collect();
    for level in levels {
        let sides = level_ends(&level, problems);
        for &side in &sides {
            used.insert(side.to_owned());
            if engines.iter().any(|engine| engine.name == side) {
                continue;
            }
            let spec = match defined.iter().find(|(name, _)| name.get_ref() == side) {
                Some((_, spec)) => spec.clone(),
                None if BUILT_IN.contains(&side) => side.parse().ok(),
                None => {
                    let suggestion = did_you_mean(side, known.iter().map(String::as_str));
                    let help =
                        format!("{suggestion}define it, like `{ENGINE_EXAMPLE}`; built in are {}", BUILT_IN.join(", "));
                    problems.push(level.span(), format!("there is no engine `{}`", printable(side)), help);
                    None
                }
            };
            engines.extend(spec.map(|spec| Engine { name: side.to_owned(), spec }));
        }
        if sides.len() > 1 && sides.contains(&"raw") {
            let help = "the raw underlay is the same on both ends: name it alone";
            problems.push(level.span(), "one end of a tunnel cannot be raw", help);
        }
        push_level(level, &mut names, problems);
    }
    for (name, _) in defined.iter().filter(|(name, _)| listed && !used.contains(name.get_ref())) {
        let message = format!("engine `{}` is defined, but `engines` does not name it", printable(name.get_ref()));
        problems.push(name.span(), message, "add it to `engines`, or remove it");
    }
    (engines, names)
}

/// The client's and the server's part of a level: one name, or two different ones.
fn level_ends<'t>(level: &'t Spanned<String>, problems: &mut Problems<'_>) -> Vec<&'t str> {
    let (client, server) = ends(level.get_ref());
    if client == server && level.get_ref().contains('>') {
        let message = format!("`{}` is the same on both ends", printable(level.get_ref()));
        problems.push(level.span(), message, format!("write \"{}\"", printable(client)));
        return vec![client];
    }
    if client == server { vec![client] } else { vec![client, server] }
}

fn push_level(level: Spanned<String>, levels: &mut Vec<String>, problems: &mut Problems<'_>) {
    if levels.contains(level.get_ref()) {
        let message = format!("`{}` is named twice", printable(level.get_ref()));
        problems.push(level.span(), message, "remove one of them; the same thing under two names is an A/A");
        return;
    }
    levels.push(level.into_inner());
}

/// One `[engine.NAME]` table.
fn engine(name: &str, table: &Table<'_>, problems: &mut Problems<'_>) -> Option<EngineSpec> {
    table.only(&ENGINE_KEYS, problems);
    if BUILT_IN.contains(&name) {
        let message = format!("`{name}` is built in and cannot be another engine");
        problems.push(table.span(), message, "choose another name for it");
        return None;
    }
    let given: Vec<&str> = ENGINE_KEYS.into_iter().filter(|key| table.get(key).is_some()).collect();
    let [key] = given.as_slice() else {
        let message = format!("{} has {} of {}", table.what(), given.len(), ENGINE_KEYS.join(", "));
        problems.push(table.span(), message, "say what it is with exactly one of them");
        return None;
    };
    let text = table.text(key, problems)?;
    let bad = |problems: &mut Problems<'_>, why: String, help: &str| {
        problems.push(text.span(), format!("`{key}`: {why}"), help);
        None
    };
    match *key {
        "interface" => match check_interface(text.get_ref()) {
            Ok(()) => Some(EngineSpec::Interface(text.into_inner())),
            Err(why) => bad(
                problems,
                format!("`{}` is no interface: {why}", printable(text.get_ref())),
                "write it as `ip link` shows it",
            ),
        },
        "path" => match text.get_ref().parse() {
            Ok(spec @ EngineSpec::Daemon(_)) => Some(spec),
            Err(error) if text.get_ref().contains('/') => bad(problems, error.why, "write the path of a program"),
            _ => bad(
                problems,
                format!("`{}` could be anything", printable(text.get_ref())),
                &format!(
                    "{}write a path with a `/` in it, like \"./wireguard-go\"",
                    did_you_mean(text.get_ref(), KNOWN_DAEMONS)
                ),
            ),
        },
        _ => match text.get_ref().parse() {
            Ok(spec @ (EngineSpec::Embedded | EngineSpec::Direct | EngineSpec::Kernel | EngineSpec::Raw)) => Some(spec),
            _ => {
                let help = format!(
                    "{}choose embedded, direct, kernel; a daemon has a `path`, an interface an `interface`",
                    did_you_mean(text.get_ref(), BUILT_IN)
                );
                bad(problems, format!("`{}` is not a kind of engine", printable(text.get_ref())), &help)
            }
        },
    }
}

/// `stacks` and `[stack]`: the stacks and the levels. None named: what the nodes have.
pub(super) fn stacks(root: &Table<'_>, here: bool, problems: &mut Problems<'_>) -> (Vec<Stack>, Vec<String>) {
    let tables = root.tables("stack", STACK_EXAMPLE, problems);
    if let Some(value) = root.get("stack")
        && matches!(value.get_ref(), DeValue::Table(table) if table.is_empty())
    {
        problems.push(
            root.key_span("stack"),
            "`stack` is an empty table",
            format!("write `{STACK_EXAMPLE}`, or remove it"),
        );
    }
    let mut stacks = Vec::new();
    for (name, table) in &tables {
        if let Err(why) = check_name(name.get_ref()) {
            let message = format!("`{}` cannot name a stack: {why}", printable(name.get_ref()));
            problems.push(name.span(), message, "choose another name");
        }
        stacks.push(stack(name.get_ref(), table, here, problems));
    }
    let levels = root.texts("stacks", "stacks = [\"standard\", \"ebpf\", \"standard>ebpf\"]", problems);
    if stacks.is_empty() {
        if let Some(levels) = levels {
            let span = levels.first().map_or(0..0, Spanned::span);
            problems.push(span, "`stacks` names stacks, but none is defined", format!("write `{STACK_EXAMPLE}`"));
        }
        let (name, delivery) = if here { (DEFAULT_STACK.0, Some(DEFAULT_STACK.1)) } else { (FOUND_STACK, None) };
        let stack = Stack { name: name.to_owned(), delivery, receive_queues: None, switch: None, verify: None };
        return (vec![stack], vec![name.to_owned()]);
    }
    let mut names = Vec::new();
    let mut used = BTreeSet::new();
    match levels {
        None => names.extend(stacks.iter().map(|stack| stack.name.clone())),
        Some(levels) => {
            let known: Vec<String> = stacks.iter().map(|stack| stack.name.clone()).collect();
            for level in levels {
                for side in level_ends(&level, problems) {
                    used.insert(side.to_owned());
                    if !known.iter().any(|name| name == side) {
                        let suggestion = did_you_mean(side, known.iter().map(String::as_str));
                        let help = format!("{suggestion}the stacks are {}", known.join(", "));
                        problems.push(level.span(), format!("there is no stack `{}`", printable(side)), help);
                    }
                }
                push_level(level, &mut names, problems);
            }
            for (name, _) in tables.iter().filter(|(name, _)| !used.contains(name.get_ref())) {
                let message =
                    format!("stack `{}` is defined, but `stacks` does not name it", printable(name.get_ref()));
                problems.push(name.span(), message, "add it to `stacks`, or remove it");
            }
        }
    }
    (stacks, names)
}

fn stack(name: &str, table: &Table<'_>, here: bool, problems: &mut Problems<'_>) -> Stack {
    table.only(&STACK_KEYS, problems);
    if here && table.get("delivery").is_none() {
        let help = "write delivery = \"merged-tcp\", \"unmerged\" or \"merged-all\"";
        problems.push(table.span(), format!("{} has no delivery", table.what()), help);
    }
    for key in MADE_KEYS.into_iter().filter(|key| !here && table.get(key).is_some()) {
        let message = format!("`{key}` is what a provider made here does, but the nodes are real");
        let help = "a real node's stack is switched by hand or by a `switch` command, not made: remove it";
        problems.push(table.key_span(key), message, help);
    }
    for key in HOOK_KEYS.into_iter().filter(|key| here && table.get(key).is_some()) {
        let message = format!("`{key}` is for real nodes, but the nodes are made here");
        problems.push(table.key_span(key), message, "the provider switches them: remove it");
    }
    let mut command = |key: &str| {
        let words = table.texts(key, &format!("{key} = [\"./stack\", \"{key}\"]"), problems)?;
        Some(words.into_iter().map(Spanned::into_inner).collect())
    };
    let (switch, verify) = (command("switch"), command("verify"));
    Stack {
        name: name.to_owned(),
        delivery: table.parsed::<Delivery>("delivery", problems).map(Spanned::into_inner),
        receive_queues: table.whole("receive_queues", 1..=256, problems).map(|queues| queues.into_inner() as u32),
        switch,
        verify,
    }
}

/// `[settings.NAME]`.
/// `here`: the nodes are made here, and whatever is not their own is the host's.
pub(super) fn settings(root: &Table<'_>, here: bool, problems: &mut Problems<'_>) -> Vec<Settings> {
    let mut all = Vec::new();
    for (name, table) in root.tables("settings", SETTINGS_EXAMPLE, problems) {
        table.only(&SETTINGS_KEYS, problems);
        if let Err(why) = check_name(name.get_ref()) {
            let message = format!("`{}` cannot name settings: {why}", printable(name.get_ref()));
            problems.push(name.span(), message, "choose another name");
        }
        let mut settings = Settings { name: name.into_inner(), ..Settings::default() };
        if let Some(inner) =
            inner_table(&table, "sysctl", "sysctl = { \"net.ipv4.tcp_rmem\" = \"4096 131072 6291456\" }", problems)
        {
            settings.sysctl = sysctl(&inner, here, problems);
        }
        if let Some(inner) = inner_table(&table, "features", "features = { gro = true }", problems) {
            settings.features = features(&inner, problems);
        }
        settings.rps_cpus = table
            .one_or_many("rps_cpus", problems, |value, problems| parse_whole(value, "rps_cpus", 0..=1023, problems))
            .map(|cpus| cpus.into_iter().map(|cpu| cpu.into_inner() as u32).collect());
        settings.mtu = table.whole("mtu", 576..=65_535, problems).and_then(|mtu| Mtu::new(mtu.into_inner()).ok());
        all.push(settings);
    }
    all
}

fn inner_table<'a>(table: &Table<'a>, key: &str, example: &str, problems: &mut Problems<'_>) -> Option<Table<'a>> {
    let value = table.get(key)?;
    Table::of(value, table.key_span(key), &format!("`{key}` of {}", table.what()), example, problems)
}

fn sysctl(table: &Table<'_>, here: bool, problems: &mut Problems<'_>) -> BTreeMap<String, String> {
    let mut sysctl = BTreeMap::new();
    for (key, value) in table.fields() {
        let name = key.get_ref();
        // A name becomes a path under /proc/sys.
        let plain =
            |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
        if !name.contains('.') || !name.split('.').all(plain) {
            let help = "write it with dots and in quotes, like \"net.ipv4.tcp_rmem\"";
            problems.push(key.span(), format!("`{}` is not the name of a sysctl", printable(name)), help);
            continue;
        }
        // A node made here has a network namespace of its own and nothing else: a lab that is killed would leave the rest changed.
        if here && !name.starts_with("net.") {
            let help = "remove it: a lab changes nothing of its host; what lies under net. is a node's own";
            problems.push(key.span(), format!("`{name}` is the whole machine's, and the nodes are made here"), help);
            continue;
        }
        let Some(text) = parse_text::<String>(value, name, problems) else { continue };
        if text.get_ref().is_empty() || text.get_ref().chars().any(|c| c.is_control() && c != '\t') {
            problems.push(
                text.span(),
                format!("`{name}` has no value of one line"),
                "write its value as `sysctl` prints it",
            );
            continue;
        }
        sysctl.insert(name.clone().into_owned(), text.into_inner());
    }
    sysctl
}

fn features(table: &Table<'_>, problems: &mut Problems<'_>) -> BTreeMap<String, bool> {
    let mut features = BTreeMap::new();
    for (key, value) in table.fields() {
        if let Err(why) = check_name(key.get_ref()) {
            let message = format!("`{}` is not a feature: {why}", printable(key.get_ref()));
            problems.push(key.span(), message, "write it as `ethtool -k` does, like gro or tx-udp-segmentation");
            continue;
        }
        match value.get_ref() {
            DeValue::Boolean(on) => {
                features.insert(key.get_ref().clone().into_owned(), *on);
            }
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => {
                let message = format!("`{}` is {}, not true or false", key.get_ref(), kind(value));
                problems.push(value.span(), message, "write true or false, without quotes");
            }
        }
    }
    features
}
