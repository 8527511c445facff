//! What a tunnel shall be: the engine, the device, its pin and its peers.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::keys::{PresharedKey, PublicKey};
use crate::text::check_interface;
use crate::units::Mtu;

/// What runs a tunnel: an engine (docs/glossary.md) that is not `raw`, as an agent is told. Files and plans have `topology::EngineSpec`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum TunnelEngine {
    /// This program's own engine.
    Embedded,
    /// This program's engine without a TUN device.
    Direct,
    /// The kernel's WireGuard.
    Kernel,
    /// A device that something else manages.
    Interface {
        /// Its name.
        name: String,
    },
    /// A userspace implementation that speaks the cross-platform UAPI (wireguard-go, boringtun-cli, gotatun).
    Daemon {
        /// The program.
        path: PathBuf,
    },
}

/// Text that names no engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TunnelEngineError {
    /// Neither a word that is known nor a path.
    #[error(
        "`{0}` is not an engine: write embedded, direct, kernel, interface:NAME, or a daemon's path with a slash (./wireguard-go)"
    )]
    Unknown(String),
    /// `interface:` with a name that no interface can have.
    #[error("`{name}` cannot name an interface: {reason}")]
    InterfaceName {
        /// What was written.
        name: String,
        /// Which rule it breaks.
        reason: String,
    },
}

impl FromStr for TunnelEngine {
    type Err = TunnelEngineError;

    fn from_str(text: &str) -> Result<Self, TunnelEngineError> {
        match text {
            "embedded" => return Ok(Self::Embedded),
            "direct" => return Ok(Self::Direct),
            "kernel" => return Ok(Self::Kernel),
            _ => {}
        }
        if let Some(name) = text.strip_prefix("interface:") {
            check_interface_name(name)
                .map_err(|reason| TunnelEngineError::InterfaceName { name: name.to_owned(), reason })?;
            return Ok(Self::Interface { name: name.to_owned() });
        }
        if text.contains('/') && !text.contains(['\n', '\0']) {
            return Ok(Self::Daemon { path: PathBuf::from(text) });
        }
        Err(TunnelEngineError::Unknown(text.to_owned()))
    }
}

impl fmt::Display for TunnelEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded => f.write_str("embedded"),
            Self::Direct => f.write_str("direct"),
            Self::Kernel => f.write_str("kernel"),
            Self::Interface { name } => write!(f, "interface:{name}"),
            Self::Daemon { path } => write!(f, "{}", path.display()),
        }
    }
}

impl From<TunnelEngine> for String {
    fn from(spec: TunnelEngine) -> Self {
        spec.to_string()
    }
}

impl TryFrom<String> for TunnelEngine {
    type Error = TunnelEngineError;

    fn try_from(text: String) -> Result<Self, TunnelEngineError> {
        text.parse()
    }
}

/// Checks that `name` can be a tunnel's: a device's name, and none that a host's own interfaces have.
///
/// # Errors
/// The rule that it breaks.
pub fn check_interface_name(name: &str) -> Result<(), String> {
    check_interface(name)?;
    let is_card =
        name.strip_prefix("eth").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()));
    if is_card || name == "lo" {
        return Err("hosts call their own interfaces so".to_owned());
    }
    Ok(())
}

/// The underlay that outer packets must take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// The local address that the outer socket binds to.
    pub address: IpAddr,
    /// The interface that it binds to (`SO_BINDTODEVICE`).
    pub interface: String,
}

/// One tunnel device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunnelSpec {
    /// The device's name, at most 15 bytes.
    pub interface: String,
    /// The device's MTU.
    pub mtu: Mtu,
    /// The outer UDP port.
    pub listen_port: u16,
    /// What runs it.
    pub engine: TunnelEngine,
    /// The underlay, where the outer socket can be bound to one. Daemons by path cannot: their routing must do it.
    pub pin: Option<Pin>,
    /// `SO_MARK` of outer packets.
    pub fwmark: Option<u32>,
    /// Who is on the other end.
    pub peers: Vec<PeerSpec>,
}

/// One peer of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerSpec {
    /// Who it is.
    pub public_key: PublicKey,
    /// The optional symmetric secret. Never serialised: it is as secret as a private key.
    #[serde(skip)]
    pub preshared_key: Option<PresharedKey>,
    /// Where it is; `None` waits for it to call.
    pub endpoint: Option<SocketAddr>,
    /// Inner sources and destinations that are its own.
    pub allowed_ips: Vec<IpNet>,
    /// Persistent keepalive, whole seconds from 1 to 65535.
    pub keepalive: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_round_trip() {
        for text in ["embedded", "direct", "kernel", "interface:wg0", "./wireguard-go", "/usr/bin/boringtun-cli", "a/b"]
        {
            let spec: TunnelEngine = text.parse().unwrap();
            assert_eq!(spec.to_string(), text);
            let json = serde_json::to_string(&spec).unwrap();
            assert_eq!(serde_json::from_str::<TunnelEngine>(&json).unwrap(), spec);
        }
    }

    #[test]
    fn what_names_no_engine_is_refused() {
        for text in [
            "",
            "raw",
            "wireguard-go",
            "Embedded",
            "raw ",
            "interface:",
            "interface:wg 0",
            "interface:0123456789abcdef",
        ] {
            assert!(text.parse::<TunnelEngine>().is_err(), "{text}");
        }
        let error = "wireguard-go".parse::<TunnelEngine>().unwrap_err().to_string();
        assert!(error.contains("./wireguard-go"), "{error}");
    }

    #[test]
    fn interface_names_are_the_kernels() {
        for name in ["wg0", "public-ipv4", "a.b", "x=1", "wg-test+1_a"] {
            check_interface_name(name).unwrap();
        }
        for name in [
            "",
            ".",
            "..",
            "all",
            "default",
            "wg 0",
            "wg/0",
            "lab-frankfurt-ipv6-01",
            "wg\n0",
            "wg:0",
            "é",
            "eth0",
            "lo",
        ] {
            assert!(check_interface_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_preshared_key_is_not_serialised() {
        let peer = PeerSpec {
            public_key: "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=".parse().unwrap(),
            preshared_key: Some("AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=".parse().unwrap()),
            endpoint: Some("192.0.2.1:51820".parse().unwrap()),
            allowed_ips: vec!["10.0.0.0/24".parse().unwrap()],
            keepalive: None,
        };
        let json = serde_json::to_string(&peer).unwrap();
        assert!(!json.contains("AwMD"), "{json}");
        let read: PeerSpec = serde_json::from_str(&json).unwrap();
        assert_eq!(read, PeerSpec { preshared_key: None, ..peer });
    }
}
