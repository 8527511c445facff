//! What a plan holds. Names refer to names in the same plan; an index counts from 0 in the plan's own list.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Delivery, EngineSpec, Pair, Profile, Rate, UnderlayKind};
use crate::cell::{Cell, Factor, Judged, TestKind, ends};
use crate::units::{BitRate, Bytes, Direction, Family, Mtu, PacketRate, Ratio, Span};

/// The version of the plan's form.
pub const VERSION: u32 = 1;

/// Everything that a run does, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`VERSION`] when it was made.
    pub version: u32,
    /// The topology's name.
    pub name: String,
    /// The question that the topology answers, if it says.
    pub question: Option<String>,
    /// What the order was drawn from.
    pub seed: u64,
    /// How long and how often.
    pub profile: Profile,
    /// Visits to each arrangement; the most of them where there is a precision.
    pub rounds: u32,
    /// The half-width of every judged change's interval, as a part of the change's baseline, at which rounds may end before
    /// their number is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Ratio>,
    /// The factor whose levels are compared, if any.
    pub compare: Option<Factor>,
    /// The levels of every factor that has any, in the order in which they were named: the first is the baseline.
    pub levels: BTreeMap<Factor, Vec<String>>,
    /// The topology's minimum effect, if it names one.
    pub min_effect: Option<Ratio>,
    /// What is judged, where the topology says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Judged>,
    /// The hosts.
    pub nodes: Vec<NodePlan>,
    /// The networks.
    pub underlays: Vec<UnderlayPlan>,
    /// The engines that some arrangement uses, `raw` among them.
    pub engines: Vec<EnginePlan>,
    /// The stacks that some arrangement uses.
    pub stacks: Vec<StackPlan>,
    /// Where stacks are switched between phases and not between visits: the stack under each node, phase by phase. Empty
    /// where every visit switches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// The sets of settings that some arrangement uses.
    pub settings: Vec<SettingsPlan>,
    /// The tunnels that some arrangement uses.
    pub tunnels: Vec<TunnelPlan>,
    /// The pairs.
    pub pairs: Vec<Pair>,
    /// What a visit switches to.
    pub arrangements: Vec<Arrangement>,
    /// What is measured: each entry is one run per visit.
    pub tests: Vec<TestPlan>,
    /// The order.
    pub visits: Vec<Visit>,
    /// What it will take, and what it can see.
    pub forecast: Forecast,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePlan {
    /// Its name.
    pub name: String,
    /// How its agent is reached.
    pub reach: Reach,
    /// Where it is attached, in the order of the plan's underlays.
    pub attachments: Vec<Attachment>,
}

impl NodePlan {
    /// The node's attachment to `underlay`.
    pub fn attachment(&self, underlay: &str) -> Option<&Attachment> {
        self.attachments.iter().find(|attachment| attachment.underlay == underlay)
    }
}

/// How a node's agent is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// The node is made here, out of namespaces.
    Local {
        /// The command that starts the agent inside them; this program itself where it is absent.
        agent: Option<Vec<String>>,
    },
    /// The node is a real host, and this command gives a byte pipe to its agent.
    Command {
        /// The command and its arguments.
        argv: Vec<String>,
    },
}

/// A node's place on an underlay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The underlay's name.
    pub underlay: String,
    /// The node's address on it.
    pub address: IpAddr,
    /// The link to make; absent on a real node, whose interface is found by the address.
    pub link: Option<LinkPlan>,
}

/// A veth pair between a node and the provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkPlan {
    /// The node's interface: the underlay's name.
    pub interface: String,
    /// The node's address with its prefix.
    pub address: IpNet,
    /// The node's next hop for the rest of the underlay; absent where it is bridged.
    pub gateway: Option<IpAddr>,
    /// The link's MTU, on both ends.
    pub mtu: Mtu,
    /// The provider's end.
    pub provider_interface: String,
    /// The provider's address on it; absent where it is a port of the bridge.
    pub provider_address: Option<IpNet>,
}

/// A network that outer packets can take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderlayPlan {
    /// Its name, and that of the interface of every node made here.
    pub name: String,
    /// Its address family.
    pub family: Family,
    /// Its MTU. For real nodes this is what the file says or else an assumption: see `mtu_given`.
    pub mtu: Mtu,
    /// Whether the file says the MTU.
    pub mtu_given: bool,
    /// How the provider joins its nodes.
    pub kind: UnderlayKind,
    /// The network whose addresses it uses; absent for real nodes, whose addresses are given one by one.
    pub network: Option<IpNet>,
    /// The provider's bridge, where it is bridged by one.
    pub bridge: Option<String>,
    /// What the link is sold as, if the file says.
    pub nominal: Option<BitRate>,
    /// The most bytes that a run may send over it, if the file limits them.
    pub budget: Option<Bytes>,
}

/// What carries traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnginePlan {
    /// Its name.
    pub name: String,
    /// What it is, as typed.
    pub spec: EngineSpec,
}

/// How the host underneath moves packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackPlan {
    /// Its name.
    pub name: String,
    /// How packets are delivered; absent: as found, under a real node.
    pub delivery: Option<Delivery>,
    /// Receive queues of a node's interface; absent: as found.
    pub receive_queues: Option<u32>,
    /// The command that puts a real node on it; absent: somebody does it by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<Vec<String>>,
    /// The command that tells whether a real node is on it; absent: nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Vec<String>>,
}

/// A part of the run in which the stack under every node stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// The stack's name by node.
    pub stacks: BTreeMap<String, String>,
}

/// A named set of guest changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsPlan {
    /// Its name.
    pub name: String,
    /// sysctl names and values.
    pub sysctl: BTreeMap<String, String>,
    /// Offload features of the node's interfaces, by ethtool's names (`gro`, `tso`, ...).
    pub features: BTreeMap<String, bool>,
    /// The CPUs that receive packet steering spreads to.
    pub rps_cpus: Option<Vec<u32>>,
    /// The MTU of the node's interface on the underlay; a tunnel over it shrinks by as much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Mtu>,
}

/// One WireGuard network: an engine level over one underlay; where a pair has several tunnels, one of them. One device per node and engine, the same interface name and port
/// on each node. A level that differs per end (`"old>new"`) is a network of its own, where clients run one engine and
/// servers the other; a node that is both has two devices in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelPlan {
    /// The engine level: a name, or `"old>new"`.
    pub engine: String,
    /// The underlay that its outer packets are pinned to.
    pub underlay: String,
    /// Which one it is of those of its engine and underlay, from 0. An arrangement of `n` tunnels has the first `n`.
    #[serde(default, skip_serializing_if = "is_first")]
    pub number: u32,
    /// The tunnel's MTU, from the underlay's MTU and family.
    pub mtu: Mtu,
    /// The network of the inner addresses.
    pub network: IpNet,
    /// The devices. A node and an engine name one.
    pub ends: Vec<TunnelEnd>,
}

impl TunnelPlan {
    /// The client's and the server's device for `pair`.
    pub fn ends(&self, pair: &Pair) -> Option<(&TunnelEnd, &TunnelEnd)> {
        let (client, server) = ends(&self.engine);
        let end = |node: &str, engine: &str| self.ends.iter().find(|end| end.node == node && end.engine == engine);
        Some((end(&pair.client, client)?, end(&pair.server, server)?))
    }
}

/// One WireGuard device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelEnd {
    /// The node that it is on.
    pub node: String,
    /// The engine that it is (one end's name, not a level).
    pub engine: String,
    /// The interface's name.
    pub interface: String,
    /// The outer UDP port.
    pub listen_port: u16,
    /// The inner address to set, with its prefix.
    pub inner: IpNet,
    /// Routes to add over the interface, where the prefix does not cover the peers.
    pub routes: Vec<IpNet>,
    /// Its address outside, on the underlay.
    pub outer: IpAddr,
    /// The devices that it talks to.
    pub peers: Vec<TunnelPeer>,
}

/// The other device of a tunnel link. Its allowed IP is `inner` alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelPeer {
    /// The node that it is on.
    pub node: String,
    /// Its interface there: with the node, it names whose public key this is.
    pub interface: String,
    /// Its inner address.
    pub inner: IpAddr,
    /// Its outer address and port.
    pub endpoint: SocketAddr,
}

/// What a visit switches to. Engine, stack and settings are levels: `"old>new"` differs per end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Arrangement {
    /// The pair.
    pub pair: Pair,
    /// The underlay's name.
    pub underlay: String,
    /// The engine level.
    pub engine: String,
    /// How many tunnels the streams are spread over; absent where that is no factor, and for `raw`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnels: Option<u32>,
    /// The stack level.
    pub stack: String,
    /// The settings level; absent: the nodes as they are.
    pub settings: Option<String>,
}

/// One run: a kind of traffic with one level of each of its factors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestPlan {
    /// Its name in the topology: the kind, unless it was given another. The level of [`Factor::Test`].
    pub name: String,
    /// The kind of traffic.
    pub kind: TestKind,
    /// Which way bulk data goes, where there is any.
    pub direction: Option<Direction>,
    /// Parallel streams, where the kind has them.
    pub streams: Option<u32>,
    /// The offered rate, where the kind has one.
    pub rate: Option<Rate>,
    /// Bytes per datagram, request or echo, where the kind has them.
    pub payload: Option<Bytes>,
    /// The congestion control of its TCP sockets.
    pub congestion_control: Option<String>,
    /// Traffic before the window, not counted.
    pub warmup: Span,
    /// The window.
    pub duration: Span,
    /// The latency probe beside a stream.
    pub probe: Option<PacketRate>,
}

/// All tests of one arrangement, back to back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visit {
    /// The round, from 1 (a record counts them from 0).
    pub round: u32,
    /// The index of the phase; 0 where there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub phase: usize,
    /// The index of the arrangement.
    pub arrangement: usize,
    /// The indices of its tests, in order.
    pub tests: Vec<usize>,
}

const fn is_zero(phase: &usize) -> bool {
    *phase == 0
}

const fn is_first(number: &u32) -> bool {
    *number == 0
}

/// What the run will take.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Runs.
    pub runs: u64,
    /// From the start to the last line of the report.
    pub time: Span,
    /// The bytes that each underlay carries, where bulk TCP fills it at its nominal rate (or at an assumed one: see
    /// [`UnderlayPlan::nominal`]).
    pub bytes: BTreeMap<String, Bytes>,
    /// Memory that engines, agents and socket buffers may take together, on the largest host.
    pub memory: Bytes,
    /// The smallest change that the run is likely to see, where that can be said before it; absent also where it is too
    /// large to speak of.
    pub visible_effect: Option<Ratio>,
}

impl Plan {
    /// The cell of one test in one arrangement: the factors of both.
    pub fn cell(&self, arrangement: &Arrangement, test: &TestPlan) -> Cell {
        arrangement.cell().joined(&test.cell())
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&NodePlan> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The underlay of this name.
    pub fn underlay(&self, name: &str) -> Option<&UnderlayPlan> {
        self.underlays.iter().find(|underlay| underlay.name == name)
    }

    /// The engine of this name (one end's, not a level).
    pub fn engine(&self, name: &str) -> Option<&EnginePlan> {
        self.engines.iter().find(|engine| engine.name == name)
    }

    /// The stack of this name (one end's, not a level).
    pub fn stack(&self, name: &str) -> Option<&StackPlan> {
        self.stacks.iter().find(|stack| stack.name == name)
    }

    /// The first tunnel of this engine level over `underlay`; none for `raw` and for an interface that something else manages.
    pub fn tunnel(&self, engine: &str, underlay: &str) -> Option<&TunnelPlan> {
        self.tunnels.iter().find(|tunnel| tunnel.engine == engine && tunnel.underlay == underlay)
    }

    /// The tunnels that carry `arrangement`, in their order: flow `i` of a test takes number `i` modulo their count.
    pub fn tunnels_of<'a>(&'a self, arrangement: &'a Arrangement) -> impl Iterator<Item = &'a TunnelPlan> {
        let several = arrangement.tunnels.unwrap_or(1);
        self.tunnels.iter().filter(move |tunnel| {
            tunnel.engine == arrangement.engine && tunnel.underlay == arrangement.underlay && tunnel.number < several
        })
    }

    /// SHA-256 over the plan's canonical JSON, in hexadecimal: it names the experiment. The name of the file, its question
    /// and the forecast are not part of it.
    pub fn hash(&self) -> String {
        let mut experiment = serde_json::json!(self);
        if let Some(fields) = experiment.as_object_mut() {
            for described in ["name", "question", "forecast"] {
                fields.remove(described);
            }
        }
        let mut text = String::new();
        write_canonical(&experiment, &mut text);
        Sha256::digest(text).iter().fold(String::with_capacity(64), |hex, byte| hex + &format!("{byte:02x}"))
    }
}

/// JSON with the keys of every object sorted, whatever features `serde_json` was built with.
fn write_canonical(value: &serde_json::Value, out: &mut String) {
    match value {
        serde_json::Value::Object(fields) => {
            let sorted: BTreeMap<_, _> = fields.iter().collect();
            out.push('{');
            for (index, (key, value)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&serde_json::Value::from(key.as_str()).to_string());
                out.push(':');
                write_canonical(value, out);
            }
            out.push('}');
        }
        serde_json::Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_) => out.push_str(&value.to_string()),
    }
}

impl TestPlan {
    /// The factors of the test alone.
    pub fn cell(&self) -> Cell {
        let optional = [
            (Factor::Direction, self.direction.map(|direction| direction.to_string())),
            (Factor::Streams, self.streams.map(|streams| streams.to_string())),
            (Factor::Rate, self.rate.map(|rate| rate.to_string())),
            (Factor::Payload, self.payload.map(|payload| format!("{}B", payload.get()))),
            (Factor::CongestionControl, self.congestion_control.clone()),
        ];
        let levels = optional.into_iter().filter_map(|(factor, level)| Some((factor, level?)));
        levels.collect::<Cell>().with(Factor::Test, self.name.as_str())
    }

    /// The flows at one time that several tunnels could share: streams, or the one of a test without any.
    pub fn flows(&self) -> u32 {
        self.streams.unwrap_or(1)
    }
}

impl Arrangement {
    /// The factors of the arrangement alone.
    pub fn cell(&self) -> Cell {
        let cell = Cell::new()
            .with(Factor::Pair, self.pair.to_string())
            .with(Factor::Underlay, self.underlay.as_str())
            .with(Factor::Engine, self.engine.as_str())
            .with(Factor::Stack, self.stack.as_str());
        let cell = match self.tunnels {
            Some(tunnels) => cell.with(Factor::Tunnels, tunnels.to_string()),
            None => cell,
        };
        match &self.settings {
            Some(settings) => cell.with(Factor::Settings, settings.as_str()),
            None => cell,
        }
    }

    /// The client's and the server's engine.
    pub fn engines(&self) -> (&str, &str) {
        ends(&self.engine)
    }

    /// The client's and the server's stack.
    pub fn stacks(&self) -> (&str, &str) {
        ends(&self.stack)
    }

    /// The client's and the server's settings, if there are any.
    pub fn settings(&self) -> Option<(&str, &str)> {
        self.settings.as_deref().map(ends)
    }
}
