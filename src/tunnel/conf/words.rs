//! The keys of wg and of wg-quick, and what those that are neither belong to.

/// A key of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::enum_variant_names, reason = "the names are those of the files")]
pub(super) enum Key {
    PrivateKey,
    ListenPort,
    FwMark,
    PublicKey,
    PresharedKey,
    Endpoint,
    AllowedIps,
    PersistentKeepalive,
    Address,
    Dns,
    Mtu,
    Table,
    SaveConfig,
    PreUp,
    PostUp,
    PreDown,
    PostDown,
}

/// Which section a key belongs in, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// `[Interface]`, read by wg.
    Interface,
    /// `[Peer]`, read by wg.
    Peer,
    /// `[Interface]`, read by wg-quick only.
    Quick,
}

impl Key {
    const ALL: [Self; 17] = [
        Self::PrivateKey,
        Self::ListenPort,
        Self::FwMark,
        Self::PublicKey,
        Self::PresharedKey,
        Self::Endpoint,
        Self::AllowedIps,
        Self::PersistentKeepalive,
        Self::Address,
        Self::Dns,
        Self::Mtu,
        Self::Table,
        Self::SaveConfig,
        Self::PreUp,
        Self::PostUp,
        Self::PreDown,
        Self::PostDown,
    ];

    /// As wg and wg-quick write it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::PrivateKey => "PrivateKey",
            Self::ListenPort => "ListenPort",
            Self::FwMark => "FwMark",
            Self::PublicKey => "PublicKey",
            Self::PresharedKey => "PresharedKey",
            Self::Endpoint => "Endpoint",
            Self::AllowedIps => "AllowedIPs",
            Self::PersistentKeepalive => "PersistentKeepalive",
            Self::Address => "Address",
            Self::Dns => "DNS",
            Self::Mtu => "MTU",
            Self::Table => "Table",
            Self::SaveConfig => "SaveConfig",
            Self::PreUp => "PreUp",
            Self::PostUp => "PostUp",
            Self::PreDown => "PreDown",
            Self::PostDown => "PostDown",
        }
    }

    pub(super) const fn home(self) -> Home {
        match self {
            Self::PrivateKey | Self::ListenPort | Self::FwMark => Home::Interface,
            Self::PublicKey | Self::PresharedKey | Self::Endpoint | Self::AllowedIps | Self::PersistentKeepalive => {
                Home::Peer
            }
            Self::Address
            | Self::Dns
            | Self::Mtu
            | Self::Table
            | Self::SaveConfig
            | Self::PreUp
            | Self::PostUp
            | Self::PreDown
            | Self::PostDown => Home::Quick,
        }
    }

    /// Whether several of it add up.
    pub(super) const fn accumulates(self) -> bool {
        matches!(
            self,
            Self::AllowedIps | Self::Address | Self::Dns | Self::PreUp | Self::PostUp | Self::PreDown | Self::PostDown
        )
    }

    /// The key of that name, in any case.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name().eq_ignore_ascii_case(name))
    }

    /// The key that was most likely meant.
    pub(super) fn like(name: &str) -> Option<Self> {
        let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect();
        let near = |key: &Self| {
            let distance = strsim::osa_distance(&name, &key.name().to_ascii_lowercase());
            (distance <= 2 && distance * 3 <= name.len()).then_some(distance)
        };
        Self::ALL.into_iter().filter_map(|key| Some((near(&key)?, key))).min().map(|(_, key)| key)
    }
}

/// A key that neither wg nor wg-quick has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Foreign {
    /// Of an obfuscating fork: what it sends, no WireGuard understands.
    Obfuscated,
    /// Of an obfuscating fork, with the value by which it changes nothing.
    ObfuscatedButStock,
    /// Of systemd-networkd.
    Networkd,
    /// Of an app.
    App(&'static str),
}

/// What the key belongs to, where that is known. `value` decides whether an obfuscation is one.
pub(super) fn foreign(name: &str, value: &str) -> Option<Foreign> {
    let name = name.to_ascii_lowercase();
    if let Some(stock) = obfuscation(&name) {
        // With these the fork's messages are WireGuard's own.
        let is_stock = stock.is_some_and(|stock| value.parse() == Ok(stock));
        return Some(if is_stock { Foreign::ObfuscatedButStock } else { Foreign::Obfuscated });
    }
    match name.as_str() {
        "privatekeyfile" | "presharedkeyfile" | "publickeyfile" | "firewallmark" | "routetable" | "routemetric"
        | "mtubytes" | "kind" => Some(Foreign::Networkd),
        "includedapplications" | "excludedapplications" => Some(Foreign::App("the Android app")),
        "reserved" | "clientid" => Some(Foreign::App("a WARP client")),
        "bindaddress" | "checkalive" | "checkaliveinterval" => Some(Foreign::App("wireproxy")),
        _ => None,
    }
}

/// Whether a lower-case name is one of AmneziaWG's (its kernel module's netlink attributes: Jc, Jmin, Jmax, S1-S4, H1-H4,
/// I1-I5, J1-J3, Itime), and the value by which it does nothing, if there is one.
fn obfuscation(name: &str) -> Option<Option<u64>> {
    let numbered = |letter: char, most: u64| {
        let number: u64 = name.strip_prefix(letter).filter(|rest| rest.len() == 1)?.parse().ok()?;
        (1..=most).contains(&number).then_some(number)
    };
    if let Some(number) = numbered('h', 4) {
        return Some(Some(number));
    }
    if numbered('s', 4).is_some() || matches!(name, "jc" | "jmin" | "jmax") {
        return Some(Some(0));
    }
    let only_theirs = numbered('i', 5).is_some() || numbered('j', 3).is_some();
    (only_theirs || matches!(name, "itime" | "advancedsecurity")).then_some(None)
}

/// Whose sections are called so, where that is known.
pub(super) fn foreign_section(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "netdev" | "wireguard" | "wireguardpeer" | "match" | "network" | "address" | "route" | "link" => {
            Some("systemd-networkd")
        }
        "connection" | "ipv4" | "ipv6" | "proxy" => Some("NetworkManager"),
        "socks5" | "http" | "tcpclienttunnel" | "tcpservertunnel" => Some("wireproxy"),
        _ if name.starts_with("wireguard-peer.") => Some("NetworkManager"),
        _ => None,
    }
}
