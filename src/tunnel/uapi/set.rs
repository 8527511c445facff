//! `set=1`: what a client asks for.

use std::net::SocketAddr;

use ipnet::IpNet;
use zeroize::Zeroizing;

use super::UapiError;
use super::values::{endpoint, line, no_key, number_in, optional_preshared_key, optional_private_key, public_key, yes};
use crate::tunnel::keys::{PresharedKey, PrivateKey, PublicKey};
use crate::tunnel::spec::PeerSpec;

/// What a `set` asks for. `None` leaves a thing as it is.
#[derive(Debug, Clone, Default)]
pub struct SetDevice {
    /// The new private key; the inner `None` takes the old one away.
    pub private_key: Option<Option<PrivateKey>>,
    /// The outer port, 0 for any.
    pub listen_port: Option<u16>,
    /// `SO_MARK`; the inner `None` clears it.
    pub fwmark: Option<Option<u32>>,
    /// Whether the peers there are go away first; who is named is then a new one.
    pub replace_peers: bool,
    /// The peers, in the order of the request.
    pub peers: Vec<SetPeer>,
}

/// One peer section of a `set`.
#[derive(Debug, Clone)]
pub struct SetPeer {
    /// Who.
    pub public_key: PublicKey,
    /// Take it away.
    pub remove: bool,
    /// Do nothing unless it exists.
    pub update_only: bool,
    /// The new preshared key; the inner `None` takes the old one away.
    pub preshared_key: Option<Option<PresharedKey>>,
    /// Where it is.
    pub endpoint: Option<SocketAddr>,
    /// Seconds; 0 switches it off.
    pub keepalive: Option<u16>,
    /// Whether prefixes that are not named go away.
    pub replace_allowed_ips: bool,
    /// Prefixes to add (`true`) or to take away (`false`), in order.
    pub allowed_ips: Vec<(IpNet, bool)>,
}

impl SetPeer {
    /// A section that changes nothing yet.
    #[must_use]
    pub fn new(public_key: PublicKey) -> Self {
        Self {
            public_key,
            remove: false,
            update_only: false,
            preshared_key: None,
            endpoint: None,
            keepalive: None,
            replace_allowed_ips: false,
            allowed_ips: Vec::new(),
        }
    }

    /// A section that makes the peer exactly as `spec` says, but for an endpoint that `spec` leaves open.
    #[must_use]
    pub fn exactly(spec: &PeerSpec) -> Self {
        Self {
            preshared_key: Some(spec.preshared_key.clone()),
            endpoint: spec.endpoint,
            keepalive: Some(
                spec.keepalive.map_or(0, |interval| u16::try_from(interval.as_secs().max(1)).unwrap_or(u16::MAX)),
            ),
            replace_allowed_ips: true,
            allowed_ips: spec.allowed_ips.iter().map(|net| (*net, true)).collect(),
            ..Self::new(spec.public_key)
        }
    }
}

impl SetDevice {
    /// The request as text, up to and with its empty line.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<String> {
        // Reserved generously, so that the text is not moved (and a copy of the key left behind) while it grows.
        let prefixes: usize = self.peers.iter().map(|peer| peer.allowed_ips.len()).sum();
        let mut text = Zeroizing::new(String::with_capacity(512 + 512 * self.peers.len() + 64 * prefixes));
        let out = &mut *text;
        out.push_str("set=1\n");
        if let Some(key) = &self.private_key {
            line(out, "private_key", &*key.as_ref().map_or_else(no_key, PrivateKey::to_hex));
        }
        if let Some(port) = self.listen_port {
            line(out, "listen_port", port);
        }
        if let Some(mark) = self.fwmark {
            line(out, "fwmark", mark.unwrap_or(0));
        }
        if self.replace_peers {
            line(out, "replace_peers", true);
        }
        for peer in &self.peers {
            line(out, "public_key", peer.public_key.to_hex());
            if peer.remove {
                line(out, "remove", true);
            }
            if peer.update_only {
                line(out, "update_only", true);
            }
            if let Some(key) = &peer.preshared_key {
                line(out, "preshared_key", &*key.as_ref().map_or_else(no_key, PresharedKey::to_hex));
            }
            if let Some(endpoint) = peer.endpoint {
                line(out, "endpoint", endpoint);
            }
            if let Some(seconds) = peer.keepalive {
                line(out, "persistent_keepalive_interval", seconds);
            }
            if peer.replace_allowed_ips {
                line(out, "replace_allowed_ips", true);
            }
            for (net, add) in &peer.allowed_ips {
                let sign = if *add { "" } else { "-" };
                line(out, "allowed_ip", format_args!("{sign}{net}"));
            }
        }
        out.push('\n');
        text
    }

    /// Reads the lines that follow `set=1`, without the empty line that ends them.
    ///
    /// # Errors
    /// The first line that does not belong there.
    pub fn parse(text: &str) -> Result<Self, UapiError> {
        let mut device = Self::default();
        for (index, text) in text.lines().enumerate() {
            let number = index + 1;
            let (key, value) = text.split_once('=').ok_or(UapiError::NotAPair { line: number })?;
            let wrong = || UapiError::Value { line: number, key: key.to_owned() };
            let Some(peer) = device.peers.last_mut() else {
                match key {
                    "private_key" => device.private_key = Some(optional_private_key(value).ok_or_else(wrong)?),
                    "listen_port" => device.listen_port = Some(number_in(value).ok_or_else(wrong)?),
                    "fwmark" => {
                        let mark: u32 = number_in(value).ok_or_else(wrong)?;
                        device.fwmark = Some((mark != 0).then_some(mark));
                    }
                    "replace_peers" => device.replace_peers = yes(value).ok_or_else(wrong)?,
                    "public_key" => device.peers.push(SetPeer::new(public_key(value).ok_or_else(wrong)?)),
                    _ => return Err(UapiError::Key { line: number, key: key.to_owned() }),
                }
                continue;
            };
            match key {
                "public_key" => {
                    let next = SetPeer::new(public_key(value).ok_or_else(wrong)?);
                    device.peers.push(next);
                }
                "remove" => peer.remove = yes(value).ok_or_else(wrong)?,
                "update_only" => peer.update_only = yes(value).ok_or_else(wrong)?,
                "preshared_key" => {
                    peer.preshared_key = Some(optional_preshared_key(value).ok_or_else(wrong)?);
                }
                "endpoint" => peer.endpoint = Some(endpoint(value).ok_or_else(wrong)?),
                "persistent_keepalive_interval" => peer.keepalive = Some(number_in(value).ok_or_else(wrong)?),
                "replace_allowed_ips" => {
                    peer.replace_allowed_ips = yes(value).ok_or_else(wrong)?;
                    // Those that its section gave it before as well.
                    if peer.replace_allowed_ips {
                        peer.allowed_ips.clear();
                    }
                }
                "allowed_ip" => {
                    let (add, prefix) = match value.as_bytes().first() {
                        Some(b'-') => (false, &value[1..]),
                        Some(b'+') => (true, &value[1..]),
                        _ => (true, value),
                    };
                    // A prefix with host bits is stored as its network, as the kernel does.
                    let net: IpNet = prefix.parse().map_err(|_| wrong())?;
                    peer.allowed_ips.push((net.trunc(), add));
                }
                "protocol_version" if value == "1" => {}
                "protocol_version" => return Err(wrong()),
                _ => return Err(UapiError::Key { line: number, key: key.to_owned() }),
            }
        }
        Ok(device)
    }
}
