//! The file that a person writes, read: what was asked, nothing resolved yet.
//!
//! [`Topology::parse`] takes a file's name and text and gives either a topology whose every name refers to something, or a
//! [`TopologyError`] with everything that is wrong, each with its place and a remedy. Whether it can be done (addresses,
//! memory, budgets) is for [`crate::plan`] to say.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use diagnostic::{Problem, TopologyError};
pub use names::{check_interface, check_name};
pub use nodes::ssh_argv;
pub use policy::PolicyFile;
pub use shipped::{SHIPPED, shipped};
pub use words::{BadEngine, BadPrecision, Delivery, EngineSpec, Precision, Profile, Rate, UnderlayKind, UnknownWord};

use crate::cell::{Factor, Judged, TestKind};
use crate::units::{BitRate, Bytes, Direction, Family, Mtu, PacketRate, Ratio, Span};

mod diagnostic;
mod engines;
mod levels;
mod names;
mod nodes;
mod parse;
mod places;
mod policy;
mod reader;
mod settings;
mod shipped;
mod stacks;
mod tests_and_profiles;
mod tunnels;
mod underlays;
mod words;

/// The name of the stack of nodes made here when the file names none, and its delivery: what a standard cloud host does.
pub const DEFAULT_STACK: (&str, Delivery) = ("standard", Delivery::MergedTcp);

/// The name of the stack under real nodes when the file names none.
pub const FOUND_STACK: &str = "as-found";

/// The congestion control of a test that names none.
pub const DEFAULT_CONGESTION_CONTROL: &str = "cubic";

/// A topology: the file as written, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// The file's name without folder and suffix.
    pub name: String,
    /// The question that it answers: its `question`, or the first line of its opening comment that ends with `?`.
    pub question: Option<String>,
    /// The factor to compare.
    pub compare: Option<Factor>,
    /// The smallest change worth calling.
    pub min_effect: Option<Ratio>,
    /// What is judged, where the file says so.
    pub policy: Option<Judged>,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The pairs.
    pub pairs: Vec<Pair>,
    /// The underlays.
    pub underlays: Vec<Underlay>,
    /// Every engine that a level names.
    pub engines: Vec<Engine>,
    /// The engine levels to measure.
    pub engine_levels: Vec<String>,
    /// How many tunnels a pair's streams are spread over; each is a level. Empty: one, and that is no factor.
    pub tunnels: Vec<u32>,
    /// The stacks.
    pub stacks: Vec<Stack>,
    /// The stack levels to measure.
    pub stack_levels: Vec<String>,
    /// The sets of settings; each is a level. Empty: the nodes as they are.
    pub settings: Vec<Settings>,
    /// The tests.
    pub tests: Vec<Test>,
    /// What the file changes in each profile.
    pub profiles: BTreeMap<Profile, ProfileSpec>,
    /// Where the file says what.
    places: places::Places,
}

impl Topology {
    /// Reads the `text` of the file called `file`.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with line, column, snippet and remedy.
    pub fn parse(file: &str, text: &str) -> Result<Self, Box<TopologyError>> {
        parse::parse(file, text).map_err(Box::new)
    }

    /// `sentence`, which says why this topology cannot be, shown at the first of `paths` that its file has; `None` where it has
    /// none of them. A path is the keys from the top of the file: `underlay`, `private`, `budget`; an item of a list goes by its
    /// text, a `[[test]]` by its name. What stands behind the sentence's first semicolon is what to do.
    pub fn at(&self, paths: &[Vec<String>], sentence: &str) -> Option<Box<TopologyError>> {
        self.places.problem(paths, sentence).map(Box::new)
    }

    /// Whether the nodes are made here; a topology has either these or real ones.
    pub fn is_local(&self) -> bool {
        self.nodes.iter().all(|node| matches!(node.place, Place::Here { .. }))
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub place: Place,
}

/// Where a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Made here, out of namespaces.
    Here {
        /// The command that starts its agent; this program itself where it is absent.
        agent: Option<Vec<String>>,
        /// The underlays that it is attached to.
        underlays: Vec<String>,
    },
    /// A real host.
    There {
        /// The command that gives a byte pipe to its agent.
        argv: Vec<String>,
        /// Its address on each underlay that it has.
        addresses: BTreeMap<String, IpAddr>,
    },
}

impl Node {
    /// Whether it is attached to `underlay`.
    pub fn has(&self, underlay: &str) -> bool {
        match &self.place {
            Place::Here { underlays, .. } => underlays.iter().any(|name| name == underlay),
            Place::There { addresses, .. } => addresses.contains_key(underlay),
        }
    }
}

/// A client and a server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Pair {
    /// The node that asks, connects and, forward, sends.
    pub client: String,
    /// The other one.
    pub server: String,
}

impl std::fmt::Display for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format!("{}>{}", self.client, self.server))
    }
}

/// An underlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Underlay {
    /// Its name.
    pub name: String,
    /// Its address family.
    pub family: Family,
    /// Its MTU, if the file says.
    pub mtu: Option<Mtu>,
    /// How the provider joins its nodes.
    pub kind: UnderlayKind,
    /// The network to take addresses from, if the file says.
    pub network: Option<IpNet>,
    /// The most bytes that a run may send over it.
    pub budget: Option<Bytes>,
    /// What the link is sold as: what bytes are forecast with.
    pub nominal: Option<BitRate>,
}

/// An engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    /// Its name.
    pub name: String,
    /// What it is.
    pub spec: EngineSpec,
}

/// A stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Its name.
    pub name: String,
    /// How packets are delivered; absent under real nodes.
    pub delivery: Option<Delivery>,
    /// Receive queues of a node's interface.
    pub receive_queues: Option<u32>,
    /// The command that puts a real node on it.
    pub switch: Option<Vec<String>>,
    /// The command that tells whether a real node is on it.
    pub verify: Option<Vec<String>>,
}

/// A set of settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Its name.
    pub name: String,
    /// sysctl names and values.
    pub sysctl: BTreeMap<String, String>,
    /// Offload features by ethtool's names.
    pub features: BTreeMap<String, bool>,
    /// The CPUs that receive packet steering spreads to.
    pub rps_cpus: Option<Vec<u32>>,
    /// The MTU of the node's interface on the underlay.
    pub mtu: Option<Mtu>,
}

/// A test; every list is one factor whose levels are all measured. A list is empty where the factor does not apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Test {
    /// Its name: the kind, unless the file gives it another.
    pub name: String,
    /// Its kind.
    pub kind: TestKind,
    /// Directions.
    pub direction: Vec<Direction>,
    /// Stream counts.
    pub streams: Vec<u32>,
    /// Offered rates.
    pub rate: Vec<Rate>,
    /// Payloads.
    pub payload: Vec<Bytes>,
    /// Congestion controls.
    pub congestion_control: Vec<String>,
    /// Its warm-up, where the profile says nothing.
    pub warmup: Option<Span>,
    /// Its window, where the profile says nothing.
    pub duration: Option<Span>,
    /// The latency probe beside it; absent: none.
    pub probe: Option<PacketRate>,
}

/// What a file changes in a profile.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProfileSpec {
    /// Visits to each arrangement; the most of them where there is a precision.
    pub rounds: Option<u32>,
    /// The half-width of every judged change's interval at which the rounds may end.
    pub precision: Option<Ratio>,
    /// Windows.
    pub duration: PerTest<Span>,
    /// Warm-ups.
    pub warmup: PerTest<Span>,
    /// Stream counts of all tests that have streams.
    pub streams: Option<Vec<u32>>,
    /// Directions of all tests that have a direction.
    pub direction: Option<Vec<Direction>>,
    /// The tests that the profile keeps; absent: all.
    pub tests: Option<Vec<String>>,
}

/// One value for all tests, or one per test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerTest<T> {
    /// The value of a test that has none of its own.
    pub all: Option<T>,
    /// By the test's name.
    pub by_test: BTreeMap<String, T>,
}

impl<T> Default for PerTest<T> {
    fn default() -> Self {
        Self { all: None, by_test: BTreeMap::new() }
    }
}

impl<T: Copy> PerTest<T> {
    /// What holds for `test`.
    pub fn of(&self, test: &str) -> Option<T> {
        self.by_test.get(test).copied().or(self.all)
    }
}

#[cfg(test)]
mod tests;
