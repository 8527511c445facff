//! `[underlay]`: the networks that outer packets can take.

use std::str::FromStr;

use ipnet::IpNet;
use toml::Spanned;
use toml::de::DeValue;

use super::Underlay;
use super::diagnostic::Problems;
use super::names::check_underlay;
use super::reader::Table;
use super::words::UnderlayKind;
use crate::cell::{did_you_mean, printable};
use crate::units::{BitRate, Bytes, Family, Mtu};

/// The most underlays: each is an interface on every node.
const MOST_UNDERLAYS: usize = 16;

/// The name that says bridged unless the file says otherwise.
const PRIVATE: &str = "private";

pub(super) const KEYS: [&str; 6] = ["family", "mtu", "kind", "network", "budget", "nominal"];
const EXAMPLE: &str = "[underlay] private = { family = \"ipv4\", mtu = 1450 }";

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
    let tables = root.tables("underlay", EXAMPLE, problems);
    let nothing =
        root.get("underlay").is_none_or(|value| matches!(value.get_ref(), DeValue::Table(table) if table.is_empty()));
    if nothing {
        problems.push(root.key_span("underlay"), "a topology needs underlays", format!("write `{EXAMPLE}`"));
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
    table.only(&KEYS, problems);
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
