//! What the conductor asks and an agent tells. Both are this binary; the version is in the hello all the same, since on real
//! hosts the two can be different builds.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use crate::host::Facts;
pub use crate::host::interfaces::InterfaceState;
pub use crate::host::settings::{Granted, SettingsState};
pub use crate::lab::provider::{Delivery, Port, PortReading, ProviderState, ProviderUnderlay};
pub use crate::sys::tcp_info::TcpInfo;
pub use crate::traffic::{
    Buffers, Caution as TrafficCaution, DATAGRAM_HEADER, Job, JobKind, Latency, Outcome, Path, ProbeSpec, Role,
    Sampling, meters,
};
pub use crate::tunnel::{PeerSpec, PeerStatus, Pin, PublicKey, Status, TunnelEngine, TunnelSpec, why_no_handshake};

/// The version of these messages. Other versions are refused in the hello.
pub const PROTOCOL: u32 = 2;

/// What the conductor asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// First of all.
    Hello {
        /// [`PROTOCOL`] of the asker.
        protocol: u32,
    },
    /// What the host is and can do. Told as `Facts`.
    Probe,
    /// How much the generator moves where nothing but the host binds it. Told as `Calibration`.
    Calibrate,
    /// Be exactly this. Told as `Applied`.
    Apply(Box<NodeState>),
    /// Send one small datagram to each address, so that tunnels shake hands. Told as `Done`.
    Wake {
        /// Inner addresses.
        targets: Vec<IpAddr>,
    },
    /// The state of every tunnel. Told as `Status`.
    Status,
    /// Which engines ended by themselves. Asks the engines nothing, so one that hangs holds up nobody. Told as `Deaths`.
    Deaths,
    /// Open the sockets of a job. Told as `Ready`.
    Prepare(Box<Assignment>),
    /// Begin the prepared job. Told as `Outcome` when it is over; silence until then.
    Start,
    /// End the job at work, or let go of the prepared one. Told as `Done` where there is none; else the job tells its outcome.
    Stop,
}

/// What an agent tells.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tell {
    /// To `Hello`.
    Hello(Hello),
    /// To `Probe`.
    Facts(Box<Facts>),
    /// To `Calibrate`.
    Calibration(Calibration),
    /// To `Apply`.
    Applied(Applied),
    /// To `Wake` and an idle `Stop`.
    Done,
    /// To `Status`, by interface.
    Status(BTreeMap<String, Status>),
    /// To `Deaths`: how each ended, with its last lines, by interface.
    Deaths(BTreeMap<String, String>),
    /// To `Prepare`.
    Ready {
        /// The ports that a server listens on.
        ports: Vec<u16>,
    },
    /// To `Start`.
    Outcome(Box<JobOutcome>),
    /// To anything: it could not be done.
    Failed {
        /// Why, with its causes.
        what: String,
    },
}

impl Tell {
    /// The message's name, for errors.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::Facts(_) => "facts",
            Self::Calibration(_) => "calibration",
            Self::Applied(_) => "applied",
            Self::Done => "done",
            Self::Status(_) => "status",
            Self::Deaths(_) => "deaths",
            Self::Ready { .. } => "ready",
            Self::Outcome(_) => "outcome",
            Self::Failed { .. } => "failed",
        }
    }
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`] of the agent.
    pub protocol: u32,
    /// The agent's release.
    pub version: String,
    /// Its process id in its own PID namespace.
    pub pid: u32,
}

/// The generator's own ceiling on a host, over its loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calibration {
    /// What four TCP streams move, bits per second.
    pub tcp_bits_per_second: u64,
    /// How long it was measured, nanoseconds.
    pub window_ns: u64,
}

/// What a node, or the provider, is to be. What is not named is removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// Interfaces that the lab made and this node configures.
    pub interfaces: Vec<InterfaceState>,
    /// Receive queues of interfaces, where a stack limits them.
    pub queues: Vec<QueueState>,
    /// WireGuard devices.
    pub tunnels: Vec<TunnelState>,
    /// Guest settings.
    pub settings: SettingsState,
    /// What a provider does; absent at nodes.
    pub provider: Option<ProviderState>,
}

/// The CPUs that take an interface's packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueState {
    /// The interface.
    pub interface: String,
    /// CPU numbers, the same for every queue; absent: as it was found.
    pub cpus: Option<Vec<u32>>,
}

/// A WireGuard device and its inner addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelState {
    /// The device. Its private key is made by the agent and never told.
    pub spec: TunnelSpec,
    /// Inner addresses with their prefixes.
    pub addresses: Vec<IpNet>,
    /// Routes over it, beyond the prefixes.
    pub routes: Vec<IpNet>,
}

/// What came of an `Apply`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The public key of every tunnel, by interface.
    pub public_keys: BTreeMap<String, PublicKey>,
    /// The provider's ports, read back.
    pub ports: Vec<PortReading>,
    /// Guest settings, read back.
    pub settings: Vec<Granted>,
    /// What could not be had. The rest stands.
    pub refused: Vec<Refusal>,
}

/// One thing that could not be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Which part of the state it belongs to.
    pub part: Part,
    /// What: a tunnel's interface, or a setting with its value.
    pub what: String,
    /// Why, with the remedy.
    pub why: String,
}

/// The parts of a node's state that may be refused one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// A WireGuard device.
    Tunnel,
    /// The receive queues that a stack has.
    Queues,
    /// Guest settings.
    Settings,
}

/// What to prepare. The host is metered around every job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// The job.
    pub job: Job,
}

/// What one end saw of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobOutcome {
    /// The generator's account.
    pub traffic: Outcome,
    /// The host's meters, after minus before.
    pub meters: meters::Delta,
    /// Every tunnel before and after, by interface.
    pub tunnels: BTreeMap<String, Around<Status>>,
    /// Tunnels that could not be read, by interface, with the reason: those of an engine that died, with its last lines. Tests that
    /// do not go through them are none the worse for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost: BTreeMap<String, String>,
}

/// A reading before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Around<T> {
    /// Before the job began.
    pub before: T,
    /// After it ended.
    pub after: T,
}
