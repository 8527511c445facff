//! `get=1`: what a device shows.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use zeroize::Zeroizing;

use super::UapiError;
use super::values::{endpoint, line, no_key, number_in, optional_preshared_key, optional_private_key, public_key};
use crate::tunnel::keys::{PresharedKey, PrivateKey, PublicKey};

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
