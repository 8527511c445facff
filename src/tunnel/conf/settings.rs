//! From sections to values, setting by setting.

use std::collections::BTreeSet;

use super::endpoint;
use super::lines::shown;
use super::values::{self, Wrong};
use super::words::{Foreign, Home, foreign};
use super::{
    BTreeMap, Conf, ConfPeer, Dialect, Entry, Hook, IpNet, Key, Mtu, Places, PresharedKey, PublicKey, Range, Remarks,
    Section, SectionKind, Table,
};

/// IPv6 needs this (RFC 8200 section 5).
const IPV6_LEAST_MTU: u16 = 1280;
/// What Ethernet leaves inside a tunnel over IPv4; over IPv6 it is 20 less.
const ETHERNET_INNER_MTU: u16 = 1440;

/// Where each key stood last, in the section (or all `[Interface]` sections) at hand.
type Seen = BTreeMap<Key, usize>;

/// Everything that can be read; what cannot is noted.
pub(super) fn conf(dialect: Dialect, sections: &[Section<'_>], remarks: &mut Remarks<'_>) -> (Conf, Places) {
    let mut conf = Conf {
        dialect,
        private_key: None,
        listen_port: None,
        fwmark: None,
        addresses: Vec::new(),
        dns: Vec::new(),
        mtu: None,
        table: Table::default(),
        save_config: false,
        hooks: Vec::new(),
        peers: Vec::new(),
        warnings: Vec::new(),
    };
    let mut places = Places { peers: Vec::new(), keys: Vec::new(), prefixes: Vec::new() };
    let mut of_interface = Seen::new();
    let mut first_interface: Option<usize> = None;
    for section in sections {
        match section.kind {
            SectionKind::Interface => {
                if let Some(first) = first_interface {
                    remarks.warning(
                        section.span.clone(),
                        format!("[Interface] is there again, first on line {first}; wg reads them as one"),
                        "put them together",
                    );
                }
                first_interface.get_or_insert(section.line);
                for entry in &section.entries {
                    let Some(key) = key(entry, SectionKind::Interface, dialect, &mut of_interface, remarks) else {
                        continue;
                    };
                    if let Err((message, help)) = interface(&mut conf, key, entry, remarks) {
                        remarks.problem(entry.span.clone(), format!("{}: {message}", key.name()), help);
                    }
                }
            }
            SectionKind::Peer => peer(section, dialect, &mut conf, &mut places, remarks),
        }
    }
    (conf, places)
}

/// The key of an entry, if it belongs here and has a value.
fn key(
    entry: &Entry<'_>,
    section: SectionKind,
    dialect: Dialect,
    seen: &mut Seen,
    remarks: &mut Remarks<'_>,
) -> Option<Key> {
    let compact: String = entry.key.chars().filter(|c| !c.is_whitespace()).collect();
    let Some(key) = Key::named(&compact) else {
        unknown(entry, &compact, remarks);
        return None;
    };
    let name = key.name();
    match (key.home(), section) {
        (Home::Quick, _) if dialect == Dialect::Wg => {
            remarks.problem(
                entry.key_span.clone(),
                format!("{name} is a key of wg-quick, and this file is read as wg does"),
                "remove it, or have the file read as wg-quick's",
            );
            return None;
        }
        (Home::Quick | Home::Interface, SectionKind::Peer) => {
            remarks.problem(entry.key_span.clone(), format!("{name} belongs in [Interface]"), "move it there");
            return None;
        }
        (Home::Peer, SectionKind::Interface) => {
            let help = "write [Peer] above it, or move it to its peer";
            remarks.problem(entry.key_span.clone(), format!("{name} belongs in a [Peer]"), help);
            return None;
        }
        (Home::Quick | Home::Interface, SectionKind::Interface) | (Home::Peer, SectionKind::Peer) => {}
    }
    if compact != entry.key {
        if key.home() == Home::Quick {
            let message = format!("`{}` is no key to wg-quick", shown(entry.key));
            remarks.problem(entry.key_span.clone(), message, format!("write {name}"));
            return None;
        }
        remarks.warning(
            entry.key_span.clone(),
            "white space inside a key: wg reads it, others do not",
            format!("write {name}"),
        );
    }
    if entry.value.is_empty() {
        let help = if key.accumulates() {
            "write a value, or remove the line; an empty list is written by no line at all"
        } else {
            "write a value, or remove the line"
        };
        remarks.problem(entry.span.clone(), format!("{name} is empty"), help);
        return None;
    }
    if let Some(before) = seen.insert(key, entry.line).filter(|_| !key.accumulates()) {
        let help = if key == Key::PublicKey {
            "keep one of them; a [Peer] line may be missing between"
        } else {
            "keep one of them"
        };
        remarks.warning(
            entry.key_span.clone(),
            format!("{name} is on lines {before} and {}; the last one counts", entry.line),
            help,
        );
    }
    Some(key)
}

/// A key that is neither's.
fn unknown(entry: &Entry<'_>, compact: &str, remarks: &mut Remarks<'_>) {
    let (span, name) = (entry.key_span.clone(), shown(entry.key));
    match foreign(compact, entry.value) {
        Some(Foreign::ObfuscatedButStock) => remarks.warning(
            span,
            format!("{name} is a key of an obfuscated dialect; with this value its messages are WireGuard's own"),
            "remove it",
        ),
        Some(Foreign::Obfuscated) => remarks.problem(
            span,
            format!("{name} is a key of an obfuscated dialect (AmneziaWG), which is not supported"),
            "no WireGuard can shake hands with it: take the obfuscation out on both ends, or measure its interface as it is",
        ),
        Some(Foreign::Networkd) => remarks.problem(
            span,
            format!("{name} is a key of systemd-networkd, not of wg"),
            "give the file that wg or wg-quick reads",
        ),
        Some(Foreign::App(owner)) => {
            remarks.problem(span, format!("{name} is a key of {owner}, not of wg"), "remove it");
        }
        None => {
            let meant = Key::like(compact).map(|key| format!("did you mean {}? ", key.name())).unwrap_or_default();
            remarks.problem(
                span,
                format!("neither wg nor wg-quick has a key `{name}`"),
                format!("{meant}correct it, or make it a comment with `#`"),
            );
        }
    }
}

/// One setting of `[Interface]`.
fn interface(conf: &mut Conf, key: Key, entry: &Entry<'_>, remarks: &mut Remarks<'_>) -> Result<(), Wrong> {
    match key {
        Key::PrivateKey => conf.private_key = Some(values::key(&compact(entry, remarks))?),
        Key::ListenPort => conf.listen_port = Some(values::port(&compact(entry, remarks), 0)?),
        Key::FwMark => conf.fwmark = values::fwmark(&compact(entry, remarks))?,
        Key::Address => addresses(conf, entry, remarks)?,
        Key::Dns => {
            conf.dns.extend(entry.value.split([',', ' ', '\t']).filter(|item| !item.is_empty()).map(str::to_owned));
        }
        Key::Mtu => conf.mtu = Some(mtu(entry, remarks)?),
        Key::Table => conf.table = values::table(entry.value)?,
        Key::SaveConfig => {
            conf.save_config = values::boolean(entry.value)?;
            if conf.save_config {
                remarks.warning(
                    entry.span.clone(),
                    "wg-quick writes this file anew when the device goes down: what runs may differ from it",
                    "compare it with `wg showconf`, or write SaveConfig = false",
                );
            }
        }
        Key::PreUp | Key::PostUp | Key::PreDown | Key::PostDown => {
            conf.hooks.push(Hook { when: key.name(), line: entry.line });
            remarks.warning(
                entry.key_span.clone(),
                format!("{} is a command, and is not run", key.name()),
                "what it does (routes, firewall, keys) is missing wherever this file alone is used",
            );
        }
        // `key` lets no key of a peer through.
        Key::PublicKey | Key::PresharedKey | Key::Endpoint | Key::AllowedIps | Key::PersistentKeepalive => {}
    }
    Ok(())
}

fn mtu(entry: &Entry<'_>, remarks: &mut Remarks<'_>) -> Result<Mtu, Wrong> {
    let mtu = values::mtu(entry.value)?;
    if mtu.get() < IPV6_LEAST_MTU {
        remarks.warning(
            entry.span.clone(),
            format!("with an MTU of {mtu} the tunnel cannot carry IPv6, which needs {IPV6_LEAST_MTU}"),
            "write 1280 or more, unless the path is that narrow",
        );
    } else if (ETHERNET_INNER_MTU + 1..=1500).contains(&mtu.get()) {
        remarks.warning(
            entry.span.clone(),
            format!("with an MTU of {mtu} full packets do not fit into Ethernet's 1500 bytes once encrypted"),
            "write 1440 over IPv4 or 1420 over IPv6, unless the underlay takes more",
        );
    }
    Ok(mtu)
}

fn addresses(conf: &mut Conf, entry: &Entry<'_>, remarks: &mut Remarks<'_>) -> Result<(), Wrong> {
    let mut any = false;
    for (item, span) in items(entry) {
        if item.is_empty() {
            remarks.warning(
                entry.span.clone(),
                "Address has an empty item; wg-quick passes it over, others do not",
                "remove the comma",
            );
            continue;
        }
        for word in item.split_whitespace() {
            any = true;
            let net = values::net(word)?;
            if conf.addresses.contains(&net) {
                remarks.warning(span.clone(), format!("Address {net} is there twice"), "remove one");
                continue;
            }
            conf.addresses.push(net);
        }
        if item.contains(char::is_whitespace) {
            remarks.warning(
                span,
                "addresses without a comma between them: wg-quick reads them, others do not",
                "write commas",
            );
        }
    }
    if any { Ok(()) } else { Err(("there is no address in it".to_owned(), "write one, or remove the line".to_owned())) }
}

/// The items of a list, each with its place.
fn items<'a>(entry: &Entry<'a>) -> impl Iterator<Item = (&'a str, Range<usize>)> {
    let mut at = entry.span.start;
    entry.value.split(',').map(move |item| {
        let trimmed = item.trim();
        let start = at + (item.len() - item.trim_start().len());
        at += item.len() + 1;
        (trimmed, start..start + trimmed.len())
    })
}

/// The value as wg reads it: without any white space.
fn compact(entry: &Entry<'_>, remarks: &mut Remarks<'_>) -> zeroize::Zeroizing<String> {
    let compact: zeroize::Zeroizing<String> =
        zeroize::Zeroizing::new(entry.value.chars().filter(|c| !c.is_whitespace()).collect());
    if *compact != entry.value {
        remarks.warning(
            entry.span.clone(),
            "white space inside a value: wg reads it, others do not",
            "remove the white space",
        );
    }
    compact
}

/// What a `[Peer]` says, as far as it has been read.
#[derive(Default)]
struct Draft {
    public_key: Option<(PublicKey, Range<usize>)>,
    preshared_key: Option<PresharedKey>,
    endpoint: Option<endpoint::Endpoint>,
    allowed_ips: Vec<(IpNet, Range<usize>)>,
    /// The same, to find repeated ones.
    allowed: BTreeSet<IpNet>,
    keepalive: Option<u16>,
    /// Its key is there, right or wrong.
    named: bool,
}

fn peer(section: &Section<'_>, dialect: Dialect, conf: &mut Conf, places: &mut Places, remarks: &mut Remarks<'_>) {
    let mut draft = Draft::default();
    let mut seen = Seen::new();
    for entry in &section.entries {
        draft.named |= entry.key.eq_ignore_ascii_case("PublicKey");
        let Some(key) = key(entry, SectionKind::Peer, dialect, &mut seen, remarks) else { continue };
        if let Err((message, help)) = peer_setting(&mut draft, key, entry, remarks) {
            remarks.problem(entry.span.clone(), format!("{}: {message}", key.name()), help);
        }
    }
    let Some((public_key, key_span)) = draft.public_key else {
        if !draft.named {
            remarks.problem(
                section.span.clone(),
                "this peer has no PublicKey",
                "write its PublicKey, or remove the peer",
            );
        }
        return;
    };
    conf.peers.push(ConfPeer {
        public_key,
        preshared_key: draft.preshared_key,
        endpoint: draft.endpoint,
        allowed_ips: draft.allowed_ips.iter().map(|(net, _)| *net).collect(),
        keepalive: draft.keepalive,
        name: section.name.clone(),
        line: section.line,
    });
    places.peers.push(section.span.clone());
    places.keys.push(key_span);
    places.prefixes.push(draft.allowed_ips);
}

fn peer_setting(draft: &mut Draft, key: Key, entry: &Entry<'_>, remarks: &mut Remarks<'_>) -> Result<(), Wrong> {
    match key {
        Key::PublicKey => draft.public_key = Some((values::key(&compact(entry, remarks))?, entry.span.clone())),
        Key::PresharedKey => {
            let text = compact(entry, remarks);
            if text.len() == 44 && text.starts_with(&"A".repeat(43)) {
                // wg's convention: all zeros take the key away.
                draft.preshared_key = None;
                remarks.warning(
                    entry.span.clone(),
                    "a PresharedKey of zeros is none",
                    "remove the line, or write the key that was generated",
                );
            } else {
                draft.preshared_key = Some(values::key(&text)?);
            }
        }
        Key::Endpoint => {
            let endpoint::Read { endpoint, odd } = endpoint::read(&compact(entry, remarks))?;
            if let Some((message, help)) = odd {
                remarks.warning(entry.span.clone(), format!("Endpoint: {message}"), help);
            }
            draft.endpoint = Some(endpoint);
        }
        Key::PersistentKeepalive => draft.keepalive = values::keepalive(&compact(entry, remarks))?,
        Key::AllowedIps => allowed_ips(draft, entry, remarks),
        // `key` lets no key of an interface through.
        Key::PrivateKey
        | Key::ListenPort
        | Key::FwMark
        | Key::Address
        | Key::Dns
        | Key::Mtu
        | Key::Table
        | Key::SaveConfig
        | Key::PreUp
        | Key::PostUp
        | Key::PreDown
        | Key::PostDown => {}
    }
    Ok(())
}

/// Every item is judged, so that one bad prefix does not hide another.
fn allowed_ips(draft: &mut Draft, entry: &Entry<'_>, remarks: &mut Remarks<'_>) {
    for (item, span) in items(entry) {
        if item.is_empty() {
            let help = "remove the comma; an empty item is not `everything`";
            let span = if span.is_empty() { entry.span.clone() } else { span };
            remarks.problem(span, "AllowedIPs has an empty item", help);
            continue;
        }
        let compact: String = item.chars().filter(|c| !c.is_whitespace()).collect();
        if compact != item {
            let message = "white space inside a prefix: wg reads it, others do not";
            remarks.warning(span.clone(), message, format!("write {}", shown(&compact)));
        }
        match values::allowed_ip(&compact) {
            Ok((net, cut)) => {
                if cut {
                    remarks.warning(
                        span.clone(),
                        format!("AllowedIPs {} has bits beyond its prefix; {net} is meant", shown(&compact)),
                        format!("write {net}, or the address alone"),
                    );
                }
                if draft.allowed.insert(net) {
                    draft.allowed_ips.push((net, span));
                }
            }
            Err(_) if item.split_whitespace().all(|word| values::allowed_ip(word).is_ok()) => {
                remarks.problem(span, "AllowedIPs: prefixes without a comma between them", "write commas between them");
            }
            Err((message, help)) => remarks.problem(span, format!("AllowedIPs: {message}"), help),
        }
    }
}
