//! What a running tunnel says about itself.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::keys::PublicKey;

mod diagnosis;
mod granted;

pub use diagnosis::why_no_handshake;

/// What an engine's byte counters count; they are not comparable across kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountersMean {
    /// UDP payload of every authenticated message, handshakes and keepalives included (the kernel, wireguard-go, embedded).
    UdpPayload,
    /// Inner IP packets only (boringtun).
    InnerPackets,
    /// Not known for this program.
    Unknown,
}

/// A tunnel's state, read from the running engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version, read from the program itself; `None` where it does not tell.
    pub version: Option<String>,
    /// The outer port in use.
    pub listen_port: Option<u16>,
    /// `SO_MARK` in use.
    pub fwmark: Option<u32>,
    /// The peers, in the order of their keys.
    pub peers: Vec<PeerStatus>,
    /// What `rx_bytes` and `tx_bytes` count.
    pub counters_mean: CountersMean,
    /// The process that runs the tunnel, where there is one that is ours.
    pub process: Option<ProcessStatus>,
    /// What the kernel granted the process, whatever engine it is; `None` where it cannot be looked into.
    #[serde(default)]
    pub granted: Option<Granted>,
    /// What only the embedded engine tells.
    pub engine: Option<EngineStatus>,
}

/// What the kernel granted an engine, read off the process's own descriptors and its device: of every engine in the same way,
/// whatever it says of itself. How datagrams are sent cannot be seen there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Granted {
    /// Whether the device carries a virtio-net header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tun_vnet_hdr: Option<bool>,
    /// Offload features of the device, by the kernel's names; those that say what is handed to the engine whole.
    pub tun_features: BTreeMap<String, bool>,
    /// Bytes of receive buffer, the least over the sockets of the outer port, as asked for (the kernel doubles them).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_receive_buffer: Option<u64>,
    /// The same of the send buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_send_buffer: Option<u64>,
    /// Whether every socket of the outer port takes super-packets (`UDP_GRO`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_gro: Option<bool>,
}

/// One peer, as the engine sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Who.
    pub public_key: PublicKey,
    /// The outer address in use now; roaming may have changed it.
    pub endpoint: Option<SocketAddr>,
    /// Prefixes that lead to this peer.
    pub allowed_ips: Vec<IpNet>,
    /// Bytes received (see [`CountersMean`]).
    pub rx_bytes: u64,
    /// Bytes sent (see [`CountersMean`]).
    pub tx_bytes: u64,
    /// How long ago the last handshake completed; `None`: never.
    #[serde(rename = "last_handshake_age_ns", with = "optional_nanos")]
    pub last_handshake: Option<Duration>,
    /// Persistent keepalive in force.
    #[serde(rename = "keepalive_s", with = "optional_seconds")]
    pub keepalive: Option<Duration>,
    /// What only the embedded engine counts.
    pub handshakes: Option<HandshakeCounters>,
}

/// The process of an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Its process id, in the PID namespace of the asker.
    pub pid: u32,
    /// User time that all its threads used.
    #[serde(rename = "cpu_user_ns", with = "nanos")]
    pub cpu_user: Duration,
    /// System time that all its threads used.
    #[serde(rename = "cpu_system_ns", with = "nanos")]
    pub cpu_system: Duration,
    /// Largest resident set so far, bytes (`VmHWM`).
    pub peak_rss_bytes: u64,
}

impl ProcessStatus {
    /// User and system time together.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        self.cpu_user + self.cpu_system
    }
}

/// Handshake events with one peer, by which a missing handshake is explained.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandshakeCounters {
    /// Initiations sent.
    pub initiations_sent: u64,
    /// Initiations received that authenticated as this peer.
    pub initiations_received: u64,
    /// Responses sent.
    pub responses_sent: u64,
    /// Responses received, right or wrong.
    pub responses_received: u64,
    /// Responses that did not decrypt: a wrong preshared key, or not the peer that was called.
    pub responses_rejected: u64,
    /// Initiations whose timestamp was not newer than the last: replayed, or the peer's clock went back.
    pub initiations_stale: u64,
    /// Cookie replies received: the peer says that it is under load.
    pub cookies_received: u64,
    /// ICMP errors received for packets to this peer.
    pub icmp_errors: u64,
    /// Handshakes completed.
    pub completed: u64,
}

/// New sessions that were made with one peer to measure how quickly they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handshakes {
    /// From making the initiation until its response had made a session, one for each that came.
    pub latencies_ns: Vec<u64>,
    /// Initiations without a response.
    pub lost: u64,
}

/// What the embedded engine tells beyond the UAPI.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineStatus {
    /// Offloads in use now.
    pub offloads: Offloads,
    /// Queues of the device, and sockets of its port.
    pub lanes: usize,
    /// Why an offload is not in use: probed and absent, or refused at run time. One line each.
    pub offload_notes: Vec<String>,
    /// What every outer socket was granted at least; absent before there is a port.
    pub udp_buffers: Option<UdpBuffers>,
    /// Events by name: packets, datagrams, system calls, drops by place and reason. Only those that happened.
    pub counters: BTreeMap<String, u64>,
    /// Failed sends by errno name, outer socket.
    pub udp_send_errors: BTreeMap<String, u64>,
    /// Failed writes by errno name, TUN device.
    pub tun_write_errors: BTreeMap<String, u64>,
    /// ICMP errors that the outer socket received, by errno name.
    pub icmp_errors: BTreeMap<String, u64>,
    /// The newest key that called and is no peer here.
    pub unknown_caller: Option<PublicKey>,
}

/// Offloads of an engine, as granted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Offloads {
    /// The TUN device carries a virtio-net header.
    pub tun_vnet_hdr: bool,
    /// The kernel hands over TCP super-packets.
    pub tun_tso: bool,
    /// The kernel hands over UDP super-packets (Linux 6.2).
    pub tun_uso: bool,
    /// Datagrams leave in super-packets (`UDP_SEGMENT`).
    pub udp_gso: bool,
    /// Datagrams arrive in super-packets (`UDP_GRO`).
    pub udp_gro: bool,
}

/// Socket buffers as asked and as granted (`getsockopt`, halved: the kernel doubles what it was asked for).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UdpBuffers {
    /// Bytes asked for, both ways.
    pub asked: u64,
    /// Receive bytes granted.
    pub receive_granted: u64,
    /// Send bytes granted.
    pub send_granted: u64,
    /// Whether `SO_*BUFFORCE` was allowed.
    pub forced: bool,
}

mod nanos {
    use super::{Deserialize, Duration};

    pub(super) fn serialize<S: serde::Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(value.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_nanos)
    }
}

mod optional_nanos {
    use super::{Deserialize, Duration, Serialize};

    pub(super) fn serialize<S: serde::Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(|age| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_nanos))
    }
}

mod optional_seconds {
    use super::{Deserialize, Duration, Serialize};

    pub(super) fn serialize<S: serde::Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(|interval| interval.as_secs()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_secs))
    }
}
