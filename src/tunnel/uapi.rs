//! The cross-platform UAPI text protocol (wireguard.com/xplatform): requests and answers as values.
//!
//! Pure: text in, values out. Both roles are here, since this program is a client of other implementations and a
//! server for `wg`. A request is read whole before anything is applied, so a bad line changes nothing.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use zeroize::Zeroizing;

use super::keys::{PresharedKey, PrivateKey, PublicKey};
use super::spec::PeerSpec;

pub(super) mod client;

/// Errno values that the protocol uses (Linux numbers).
pub mod errno {
    /// There is no such peer.
    pub const ENOENT: i32 = 2;
    /// The request could not be read.
    pub const EIO: i32 = 5;
    /// A key or a value that makes no sense.
    pub const EINVAL: i32 = 22;
    /// A line that is not `key=value`.
    pub const EPROTO: i32 = 71;
    /// The port is taken.
    pub const EADDRINUSE: i32 = 98;
}

/// A line of a request or an answer that does not belong there. Values are not repeated: they may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UapiError {
    /// Not `key=value`.
    #[error("line {line} is not key=value")]
    NotAPair {
        /// Its number, from 1.
        line: usize,
    },
    /// A key that the protocol does not know, or that is out of place.
    #[error("line {line}: `{key}` does not belong here")]
    Key {
        /// Its number, from 1.
        line: usize,
        /// What was written.
        key: String,
    },
    /// A value that the key cannot have.
    #[error("line {line}: the value of `{key}` is wrong")]
    Value {
        /// Its number, from 1.
        line: usize,
        /// Which key.
        key: String,
    },
    /// The answer ended without `errno=`.
    #[error("the answer ends before its errno line")]
    Truncated,
    /// The other side refused.
    #[error("the engine answered errno {0} ({name})", name = std::io::Error::from_raw_os_error(*.0))]
    Errno(i32),
}

impl UapiError {
    /// What a server answers.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotAPair { .. } | Self::Truncated => errno::EPROTO,
            Self::Key { .. } | Self::Value { .. } => errno::EINVAL,
            Self::Errno(errno) => *errno,
        }
    }
}

/// What a `set` asks for. `None` leaves a thing as it is.
#[derive(Debug, Clone, Default)]
pub struct SetDevice {
    /// The new private key; the inner `None` takes the old one away.
    pub private_key: Option<Option<PrivateKey>>,
    /// The outer port, 0 for any.
    pub listen_port: Option<u16>,
    /// `SO_MARK`; the inner `None` clears it.
    pub fwmark: Option<Option<u32>>,
    /// Whether peers that are not named go away.
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
                "replace_allowed_ips" => peer.replace_allowed_ips = yes(value).ok_or_else(wrong)?,
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

/// A device as `get` shows it.
#[derive(Debug, Clone, Default)]
pub struct GetDevice {
    /// Its private key.
    pub private_key: Option<PrivateKey>,
    /// Its public key, where an implementation tells that instead (boringtun).
    pub own_public_key: Option<PublicKey>,
    /// Its outer port.
    pub listen_port: Option<u16>,
    /// Its `SO_MARK`.
    pub fwmark: Option<u32>,
    /// Its peers.
    pub peers: Vec<GetPeer>,
}

/// A peer as `get` shows it.
#[derive(Debug, Clone)]
pub struct GetPeer {
    /// Who.
    pub public_key: PublicKey,
    /// The preshared key, if there is one.
    pub preshared_key: Option<PresharedKey>,
    /// Where it was seen last.
    pub endpoint: Option<SocketAddr>,
    /// When the last handshake completed.
    pub last_handshake: LastHandshake,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Seconds, 0 for none.
    pub keepalive: u16,
    /// Its prefixes.
    pub allowed_ips: Vec<IpNet>,
}

/// When a handshake completed, as two kinds of implementations tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastHandshake {
    /// None did yet.
    Never,
    /// Time since the epoch: what the protocol says.
    At(Duration),
    /// An age: what boringtun answers instead.
    Ago(Duration),
}

impl LastHandshake {
    /// Ten years: no clock that runs is that close to the epoch, and no handshake that old.
    const OLDEST_AGE: Duration = Duration::from_secs(10 * 365 * 86_400);

    fn from_parts(seconds: u64, nanos: u32) -> Self {
        let value = Duration::from_secs(seconds).saturating_add(Duration::from_nanos(u64::from(nanos)));
        match value {
            Duration::ZERO => Self::Never,
            age if age < Self::OLDEST_AGE => Self::Ago(age),
            time => Self::At(time),
        }
    }

    /// How long ago that was at `now`; `None` for never. A clock that went back gives zero, never a negative age.
    #[must_use]
    pub fn age(self, now: SystemTime) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::Ago(age) => Some(age),
            Self::At(time) => {
                let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                Some(now.saturating_sub(time))
            }
        }
    }
}

impl GetDevice {
    /// The device's public key, if it has one.
    #[must_use]
    pub fn public_key(&self) -> Option<PublicKey> {
        self.private_key.as_ref().map(PrivateKey::public).or(self.own_public_key)
    }

    /// The answer as text, with its errno line and the empty line that ends it.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<String> {
        let prefixes: usize = self.peers.iter().map(|peer| peer.allowed_ips.len()).sum();
        let mut text = Zeroizing::new(String::with_capacity(512 + 640 * self.peers.len() + 64 * prefixes));
        let out = &mut *text;
        if let Some(key) = &self.private_key {
            line(out, "private_key", &*key.to_hex());
        }
        if let Some(port) = self.listen_port {
            line(out, "listen_port", port);
        }
        if let Some(mark) = self.fwmark {
            line(out, "fwmark", mark);
        }
        for peer in &self.peers {
            line(out, "public_key", peer.public_key.to_hex());
            line(out, "preshared_key", &*peer.preshared_key.as_ref().map_or_else(no_key, PresharedKey::to_hex));
            line(out, "protocol_version", 1);
            if let Some(endpoint) = peer.endpoint {
                line(out, "endpoint", endpoint);
            }
            let at = match peer.last_handshake {
                LastHandshake::Never => Duration::ZERO,
                LastHandshake::At(value) | LastHandshake::Ago(value) => value,
            };
            line(out, "last_handshake_time_sec", at.as_secs());
            line(out, "last_handshake_time_nsec", at.subsec_nanos());
            line(out, "tx_bytes", peer.tx_bytes);
            line(out, "rx_bytes", peer.rx_bytes);
            line(out, "persistent_keepalive_interval", peer.keepalive);
            for net in &peer.allowed_ips {
                line(out, "allowed_ip", net);
            }
        }
        out.push_str("errno=0\n\n");
        text
    }

    /// Reads an answer. Keys that it does not know are passed over: implementations add their own.
    ///
    /// # Errors
    /// A damaged line, a missing errno line, or the errno that the engine answered.
    pub fn parse(text: &str) -> Result<Self, UapiError> {
        let mut device = Self::default();
        let mut handshake = (0, 0);
        for (index, text) in text.lines().enumerate() {
            let number = index + 1;
            if text.is_empty() {
                continue;
            }
            let (key, value) = text.split_once('=').ok_or(UapiError::NotAPair { line: number })?;
            let wrong = || UapiError::Value { line: number, key: key.to_owned() };
            if key == "errno" {
                return match value.parse::<i32>().map_err(|_| wrong())? {
                    0 => Ok(device),
                    errno => Err(UapiError::Errno(errno.saturating_abs())),
                };
            }
            if key == "public_key" {
                handshake = (0, 0);
                device.peers.push(GetPeer {
                    public_key: public_key(value).ok_or_else(wrong)?,
                    preshared_key: None,
                    endpoint: None,
                    last_handshake: LastHandshake::Never,
                    tx_bytes: 0,
                    rx_bytes: 0,
                    keepalive: 0,
                    allowed_ips: Vec::new(),
                });
                continue;
            }
            let Some(peer) = device.peers.last_mut() else {
                match key {
                    "private_key" => device.private_key = optional_private_key(value).ok_or_else(wrong)?,
                    "own_public_key" => device.own_public_key = public_key(value),
                    "listen_port" => device.listen_port = Some(number_in(value).ok_or_else(wrong)?),
                    "fwmark" => {
                        let mark: u32 = number_in(value).ok_or_else(wrong)?;
                        device.fwmark = (mark != 0).then_some(mark);
                    }
                    _ => {}
                }
                continue;
            };
            match key {
                "preshared_key" => peer.preshared_key = optional_preshared_key(value).ok_or_else(wrong)?,
                "endpoint" => peer.endpoint = Some(endpoint(value).ok_or_else(wrong)?),
                "last_handshake_time_sec" => {
                    // A time before the epoch is a clock that was never set; it is no handshake's age.
                    handshake.0 = value.parse::<i64>().map_err(|_| wrong())?.try_into().unwrap_or(0);
                    peer.last_handshake = LastHandshake::from_parts(handshake.0, handshake.1);
                }
                "last_handshake_time_nsec" => {
                    handshake.1 = number_in(value).ok_or_else(wrong)?;
                    peer.last_handshake = LastHandshake::from_parts(handshake.0, handshake.1);
                }
                "tx_bytes" => peer.tx_bytes = number_in(value).ok_or_else(wrong)?,
                "rx_bytes" => peer.rx_bytes = number_in(value).ok_or_else(wrong)?,
                "persistent_keepalive_interval" => peer.keepalive = number_in(value).ok_or_else(wrong)?,
                "allowed_ip" => peer.allowed_ips.push(value.parse().map_err(|_| wrong())?),
                _ => {}
            }
        }
        Err(UapiError::Truncated)
    }
}

/// Reads the answer to a `set`.
///
/// # Errors
/// The errno that the engine answered, or an answer that is none.
pub fn parse_set_answer(text: &str) -> Result<(), UapiError> {
    GetDevice::parse(text).map(drop)
}

fn line(out: &mut String, key: &str, value: impl std::fmt::Display) {
    // Writing to a String cannot fail.
    let _infallible = writeln!(out, "{key}={value}");
}

fn no_key() -> Zeroizing<String> {
    Zeroizing::new("0".repeat(64))
}

/// Digits only: `str::parse` would take a sign.
fn number_in<T: std::str::FromStr>(value: &str) -> Option<T> {
    value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse().ok()).flatten()
}

fn yes(value: &str) -> Option<bool> {
    match value {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// Keys are hexadecimal here, never base64.
fn key_text(value: &str) -> Option<&str> {
    (value.len() == 64).then_some(value)
}

fn public_key(value: &str) -> Option<PublicKey> {
    key_text(value)?.parse().ok()
}

fn all_zero(value: &str) -> bool {
    value.bytes().all(|byte| byte == b'0')
}

fn optional_private_key(value: &str) -> Option<Option<PrivateKey>> {
    let text = key_text(value)?;
    if all_zero(text) { Some(None) } else { text.parse().ok().map(Some) }
}

fn optional_preshared_key(value: &str) -> Option<Option<PresharedKey>> {
    let text = key_text(value)?;
    if all_zero(text) { Some(None) } else { text.parse().ok().map(Some) }
}

/// An endpoint that packets can be sent to: port 0 cannot. An IPv4 address in IPv6's clothes is an IPv4 address, as which
/// its datagrams will come back.
fn endpoint(value: &str) -> Option<SocketAddr> {
    let mut endpoint: SocketAddr = value.parse().ok()?;
    if let IpAddr::V6(v6) = endpoint.ip()
        && let Some(v4) = v6.to_ipv4_mapped()
    {
        endpoint = SocketAddr::new(v4.into(), endpoint.port());
    }
    (endpoint.port() != 0).then_some(endpoint)
}

#[cfg(test)]
mod tests;
