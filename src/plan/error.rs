//! Why a plan cannot be made.

use super::request::Request;
use crate::cell::{Factor, TestKind, did_you_mean, printable};
use crate::topology::BadEngine;
use crate::units::{Bytes, Family, Mtu};

/// A topology and a request that make no plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A level that nothing has.
    #[error(
        "there is no {factor} `{}`; {}the levels of {factor} are {}",
        printable(.level),
        did_you_mean(.level, .known.iter().map(String::as_str)),
        listed(.known)
    )]
    UnknownLevel {
        /// The factor.
        factor: Factor,
        /// What was written.
        level: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A factor that no test of the topology has.
    #[error("no test here has a {factor}, so `--only {factor}=...` leaves nothing; leave it out, or narrow by {}", listed(.known))]
    FactorUnused {
        /// The factor.
        factor: Factor,
        /// The factors that have levels.
        known: Vec<String>,
    },
    /// A narrowing whose parts exclude each other.
    #[error("what was asked for leaves nothing to measure: {why}")]
    NothingLeft {
        /// Which parts, and what there is.
        why: String,
    },
    /// An engine's name that cannot be one.
    #[error("`{}` cannot name an engine: {why}", printable(.name))]
    EngineName {
        /// What was written.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// A spec that means nothing.
    #[error(transparent)]
    Engine(#[from] BadEngine),
    /// The same engine twice in the request.
    #[error("engine `{name}` is given twice; the same spec under two names is an A/A")]
    EngineTwice {
        /// Its name.
        name: String,
    },
    /// An interface in a node that this program makes.
    #[error(
        "engine `{engine}` is an interface that something else manages, but the nodes are made here and have none; give nodes a `reach`, or choose embedded, kernel or a daemon's path"
    )]
    InterfaceHere {
        /// The engine's name.
        engine: String,
    },
    /// An interface on one end, and an engine of ours on the other.
    #[error(
        "engine level `{level}` has an interface that something else manages on one end only: nobody could tell it its new peer; name interfaces on both ends, or on none"
    )]
    HalfInterface {
        /// The engine level.
        level: String,
    },
    /// A word that would be an interface, and looks like an engine's.
    #[error(
        "`{0}` is no engine; {1}write raw, embedded, direct, kernel, or a daemon's path with a `/` in it{2}",
        printable(.spec),
        did_you_mean(.spec, std::iter::once(.meant.as_str())),
        if *.on_hosts { format!("; an interface that is called so is `interface:{}`", printable(.spec)) } else { String::new() }
    )]
    MisspeltEngine {
        /// What was written.
        spec: String,
        /// What it looks like.
        meant: String,
        /// Whether the nodes are real ones, which may have such an interface.
        on_hosts: bool,
    },
    /// An engine that cannot carry any of the tests.
    #[error(
        "engine `{engine}` can carry none of the tests ({tests}); it carries {can}: add one of them to the topology, like `[[test]] kind = \"udp-rr\"`, or run `datagrams`"
    )]
    NoTestForEngine {
        /// The engine level.
        engine: String,
        /// The tests asked for.
        tests: String,
        /// The kinds that it can carry.
        can: String,
    },
    /// Several tunnels of an engine that has one.
    #[error(
        "engine `{engine}` cannot have {tunnels} tunnels: {why}; take it alone with `--only tunnels=1`, or leave it out"
    )]
    OneTunnel {
        /// The engine level.
        engine: String,
        /// The first level that it cannot have.
        tunnels: u32,
        /// The reason.
        why: String,
    },
    /// More tunnels than any test has flows.
    #[error(
        "no test has flows for {tunnels} tunnels, and a tunnel without a flow is none: the most here is {most}; write `streams = {tunnels}` in a stream test (the profile's `streams` go before it), or take {tunnels} out of `tunnels`"
    )]
    FewFlows {
        /// The tunnels.
        tunnels: u32,
        /// The most flows of a test.
        most: u32,
    },
    /// A test that has fewer flows than there are tunnels at any level.
    #[error(
        "test `{test}` has {flows} flow{}, too few for any level of tunnels ({least} is the least); write 1 in `tunnels` as well, or leave the test out",
        if *flows == 1 { "" } else { "s" }
    )]
    TestNotSpread {
        /// The test.
        test: String,
        /// Its most flows.
        flows: u32,
        /// The least level.
        least: u32,
    },
    /// A kind of test that is known but not built yet.
    #[error("this version does not measure {kind} yet; it measures {}", TestKind::MEASURED.map(TestKind::name).join(", "))]
    NotMeasured {
        /// The test.
        test: String,
        /// Its kind.
        kind: TestKind,
    },
    /// Settings that give an interface an MTU which its underlay does not carry, or IPv6 does not work with.
    #[error("settings `{settings}` give nodes an MTU of {mtu} on underlay `{underlay}`, {why}")]
    SettingsMtu {
        /// The settings.
        settings: String,
        /// Their MTU.
        mtu: Mtu,
        /// The underlay.
        underlay: String,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// A number in the request that is out of range.
    #[error("{what} is out of range: {range}")]
    OutOfRange {
        /// What.
        what: &'static str,
        /// What it may be.
        range: &'static str,
    },
    /// A precision where there is no change to be known.
    #[error(
        "a precision is that of a change, and nothing is compared here; name two levels and `compare`, or write --precision off"
    )]
    PrecisionOfNothing,
    /// A precision where all rounds of one level are over before the next one begins.
    #[error(
        "the stacks of real nodes are switched between phases, so all rounds of one are over before there is anything to compare them with; write --precision off, and as many rounds as you want"
    )]
    PrecisionInPhases,
    /// Fewer rounds than those after which a precision is looked at first.
    #[error(
        "a precision is looked at from round {least} on, and {rounds} is the most here; raise it, like --rounds {}",
        least * 5
    )]
    PrecisionRounds {
        /// The most rounds.
        rounds: u32,
        /// The first at which the run may end.
        least: u32,
    },
    /// A node that would be on two stacks at once.
    #[error(
        "in one phase node `{node}` would be on stack `{one}` and on `{other}`, since level `{level}` differs per end and the node is client and server; name pairs in which each node has one part"
    )]
    TwoStacks {
        /// The node.
        node: String,
        /// The level.
        level: String,
        /// The stack that it is on.
        one: String,
        /// The other.
        other: String,
    },
    /// No network is left to take addresses from.
    #[error("no addresses are left for {what}: {why}")]
    NoAddresses {
        /// On which underlay, or around it.
        underlay: String,
        /// For what.
        what: String,
        /// The reason, and what to do.
        why: String,
    },
    /// A datagram that would be cut in pieces.
    #[error(
        "a payload of {payload} bytes does not fit in one packet {place} (MTU {mtu}): {most} bytes is the most; write payload = \"{most}B\" or less"
    )]
    Payload {
        /// The test.
        test: String,
        /// The payload in bytes.
        payload: u64,
        /// Where it does not fit.
        place: String,
        /// The MTU there.
        mtu: u16,
        /// The most that fits.
        most: u64,
    },
    /// An underlay too narrow for a tunnel.
    #[error(
        "an {family} underlay of MTU {mtu} (`{underlay}`) leaves {left} bytes for packets inside a tunnel, too few for IPv4, which needs 576; widen it, or measure it with `--engine raw`"
    )]
    MtuTooSmall {
        /// The underlay.
        underlay: String,
        /// Its family.
        family: Family,
        /// Its MTU.
        mtu: Mtu,
        /// What is left inside.
        left: u16,
    },
    /// More bytes than the file allows.
    #[error(
        "underlay `{underlay}` would carry about {forecast} {at}, and its budget is {budget}; take fewer rounds or a shorter duration, narrow with `--only`, or raise the budget"
    )]
    Budget {
        /// The underlay.
        underlay: String,
        /// The bytes forecast.
        forecast: Bytes,
        /// At which rate, and where it comes from.
        at: String,
        /// The budget.
        budget: Bytes,
    },
    /// More memory than the machine has.
    #[error(
        "the lab may take {needed} of memory ({parts}), and {available} are free; name fewer nodes, engines or underlays"
    )]
    Memory {
        /// What it may take.
        needed: Bytes,
        /// What makes it up.
        parts: String,
        /// What is free.
        available: Bytes,
    },
    /// A run that would not end.
    #[error(
        "this is up to {visits} visits, and {most} is the most that one record holds; take fewer rounds, or narrow with `--only`"
    )]
    TooMany {
        /// The visits.
        visits: u64,
        /// The limit.
        most: u64,
    },
}

impl PlanError {
    /// Where in the topology's file the reason stands, as [`Topology::at`](crate::topology::Topology::at) takes it, the likeliest
    /// place first; empty where it is `request` that cannot be met.
    pub fn places(&self, request: &Request) -> Vec<Vec<String>> {
        let path = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        let profile = request.profile.to_string();
        match self {
            Self::UnknownLevel { .. }
            | Self::FactorUnused { .. }
            | Self::EngineName { .. }
            | Self::Engine(_)
            | Self::EngineTwice { .. }
            | Self::MisspeltEngine { .. }
            | Self::OutOfRange { .. } => Vec::new(),
            Self::NothingLeft { .. } if !request.only.is_empty() => Vec::new(),
            Self::NothingLeft { .. } => vec![path(&["pairs"])],
            Self::InterfaceHere { engine }
            | Self::NoTestForEngine { engine, .. }
            | Self::HalfInterface { level: engine } => request.engine_places(engine),
            Self::OneTunnel { .. } | Self::FewFlows { .. } => {
                match request.only.iter().any(|(f, _)| *f == Factor::Tunnels) {
                    true => Vec::new(),
                    false => vec![path(&["tunnels"])],
                }
            }
            Self::TestNotSpread { test, .. } => vec![path(&["test", test, "streams"]), path(&["test", test])],
            Self::NotMeasured { test, .. } => vec![path(&["test", test, "kind"]), path(&["test", test])],
            Self::SettingsMtu { settings, .. } => vec![path(&["settings", settings, "mtu"])],
            Self::PrecisionOfNothing | Self::PrecisionInPhases | Self::PrecisionRounds { .. } => {
                match request.precision {
                    Some(_) => Vec::new(),
                    None => vec![path(&["profile", &profile, "precision"])],
                }
            }
            Self::TwoStacks { level, .. } => vec![path(&["stacks", level]), path(&["stacks"])],
            Self::NoAddresses { underlay, .. } => {
                vec![path(&["underlay", underlay, "network"]), path(&["underlay", underlay])]
            }
            Self::Payload { test, .. } => vec![path(&["test", test, "payload"]), path(&["test", test])],
            Self::MtuTooSmall { underlay, .. } => {
                vec![path(&["underlay", underlay, "mtu"]), path(&["underlay", underlay])]
            }
            Self::Budget { underlay, .. } => vec![path(&["underlay", underlay, "budget"])],
            Self::Memory { .. } => vec![path(&["nodes"]), path(&["node"])],
            Self::TooMany { .. } => match request.rounds {
                Some(_) => Vec::new(),
                None => vec![path(&["profile", &profile, "rounds"]), path(&["pairs"])],
            },
        }
    }
}

/// At most a dozen: a mesh has hundreds of pairs.
pub(super) fn listed(names: &[String]) -> String {
    const SHOWN: usize = 12;
    let shown = names.iter().take(SHOWN).map(|name| printable(name)).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
