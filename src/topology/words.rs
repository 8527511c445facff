//! The words whose values are a closed set, or a small language of their own.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::cell::{did_you_mean, printable};
use crate::units::{BitRate, PacketRate, Ratio};

/// How a stack delivers packets to a node: the features of the provider's port towards it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// The host merges TCP; UDP arrives packet by packet.
    MergedTcp,
    /// Every packet as on the wire.
    Unmerged,
    /// Also UDP super-packets cross whole, as over a bare veth: an upper bound.
    MergedAll,
}

impl Delivery {
    /// Every delivery.
    pub const ALL: [Self; 3] = [Self::MergedTcp, Self::Unmerged, Self::MergedAll];

    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MergedTcp => "merged-tcp",
            Self::Unmerged => "unmerged",
            Self::MergedAll => "merged-all",
        }
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How the provider joins the nodes of an underlay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnderlayKind {
    /// Each node has a link of its own to the provider, which routes.
    Routed,
    /// All nodes share one network, which the provider bridges.
    Bridged,
}

impl UnderlayKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Routed, Self::Bridged];

    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Routed => "routed",
            Self::Bridged => "bridged",
        }
    }
}

impl fmt::Display for UnderlayKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How long and how often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// A first look: fractions of a second, three rounds.
    #[default]
    Quick,
    /// The reference's method: ten seconds, three rounds.
    Standard,
    /// For small effects: ten seconds, ten rounds.
    Thorough,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 3] = [Self::Quick, Self::Standard, Self::Thorough];

    /// Its name in files and options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Standard => "standard",
            Self::Thorough => "thorough",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word outside a closed set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}; {}choose {}", did_you_mean(.text, .known.iter().copied()), .known.join(", "))]
pub struct UnknownWord {
    /// What was written.
    pub text: String,
    /// What it should have been.
    pub what: &'static str,
    /// The set.
    pub known: Vec<&'static str>,
}

macro_rules! word {
    ($type:ty, $what:literal) => {
        impl FromStr for $type {
            type Err = UnknownWord;
            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                Self::ALL.into_iter().find(|word| word.name() == text).ok_or_else(|| UnknownWord {
                    text: text.to_owned(),
                    what: $what,
                    known: Self::ALL.map(Self::name).to_vec(),
                })
            }
        }
    };
}
word!(Delivery, "delivery");
word!(UnderlayKind, "kind of underlay");
word!(Profile, "profile");

/// What carries a pair's traffic. Text in files and records, as a person types it; an interface may be typed without its
/// `interface:`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineSpec {
    /// Nothing: straight over the underlay.
    Raw,
    /// This program's own tunnel.
    Embedded,
    /// The same without a TUN device.
    Direct,
    /// The kernel's WireGuard.
    Kernel,
    /// An interface that something else manages.
    Interface(String),
    /// A userspace daemon: a path, or the bare name of a known one, to be found on `PATH`.
    Daemon(String),
}

/// Daemons that are known by their bare name; any other bare word names an interface.
pub(super) const KNOWN_DAEMONS: [&str; 4] = ["wireguard-go", "boringtun-cli", "gotatun", "gotatun-cli"];

impl EngineSpec {
    /// The bare words that are no interface's name.
    pub const WORDS: [&str; 8] =
        ["raw", "embedded", "direct", "kernel", "wireguard-go", "boringtun-cli", "gotatun", "gotatun-cli"];
}

impl fmt::Display for EngineSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Raw => "raw",
            Self::Embedded => "embedded",
            Self::Direct => "direct",
            Self::Kernel => "kernel",
            Self::Interface(name) => return f.pad(&format!("interface:{name}")),
            Self::Daemon(path) => path,
        })
    }
}

/// Text that cannot name an engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not an engine: {why}; write raw, embedded, direct, kernel, an interface's name, or a daemon's path with a `/` in it", crate::cell::printable(.text))]
pub struct BadEngine {
    /// What was written.
    pub text: String,
    /// What is wrong with it.
    pub why: String,
}

impl FromStr for EngineSpec {
    type Err = BadEngine;
    fn from_str(text: &str) -> Result<Self, BadEngine> {
        let bad = |why: String| Err(BadEngine { text: text.to_owned(), why });
        if text.chars().any(char::is_control) {
            return bad("it holds a control character".to_owned());
        }
        match text {
            "raw" => Ok(Self::Raw),
            "embedded" => Ok(Self::Embedded),
            "direct" => Ok(Self::Direct),
            "kernel" => Ok(Self::Kernel),
            daemon if daemon.contains('/') && daemon.ends_with('/') => {
                bad("a path that ends in `/` is a directory".to_owned())
            }
            daemon if daemon.contains('/') || KNOWN_DAEMONS.contains(&daemon) => Ok(Self::Daemon(daemon.to_owned())),
            other => {
                let name = other.strip_prefix("interface:").unwrap_or(other);
                match super::names::check_interface(name) {
                    Ok(()) => Ok(Self::Interface(name.to_owned())),
                    Err(why) => bad(format!("as an interface's name, {why}")),
                }
            }
        }
    }
}

/// An offered rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rate {
    /// Bits of payload per second.
    Bits(BitRate),
    /// Packets per second.
    Packets(PacketRate),
    /// As fast as the sender can.
    Max,
}

/// Exact, so that two different rates are never one level.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const BITS: [(u64, &str); 4] =
            [(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s"), (1, "bit/s")];
        const PACKETS: [(u64, &str); 3] = [(1_000_000, "M/s"), (1_000, "k/s"), (1, "/s")];
        match self {
            Self::Bits(rate) => f.pad(&exact(rate.bits_per_second(), &BITS)),
            Self::Packets(rate) => f.pad(&exact(rate.per_second(), &PACKETS)),
            Self::Max => f.pad("max"),
        }
    }
}

/// `number` in the largest unit that it reaches, with all its digits.
fn exact(number: u64, units: &[(u64, &str)]) -> String {
    let (factor, unit) = units.iter().find(|(factor, _)| number >= *factor).copied().unwrap_or((1, "/s"));
    let (whole, part) = (number / factor, number % factor);
    let digits = factor.ilog10() as usize;
    let part = if part == 0 { String::new() } else { format!(".{part:0digits$}").trim_end_matches('0').to_owned() };
    format!("{whole}{part}{unit}")
}

impl FromStr for Rate {
    type Err = crate::units::UnitError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "max" {
            return Ok(Self::Max);
        }
        if let Ok(rate) = text.parse() {
            return Ok(Self::Packets(rate));
        }
        text.parse().map(Self::Bits)
    }
}

macro_rules! text_serde {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    };
}
text_serde!(EngineSpec);

// Exact, unlike what is displayed: 1,234,567,891 bit/s must come back as itself.
impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bits(rate) => rate.serialize(serializer),
            Self::Packets(rate) => rate.serialize(serializer),
            Self::Max => serializer.serialize_str("max"),
        }
    }
}
impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// How well every judged change is to be known before the rounds may end: the half-width of its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Precision {
    /// All rounds are taken, whatever they show.
    Off,
    /// Rounds end when every half-width is at most this; above 0 % and below 100 %.
    To(Ratio),
}

/// A precision that cannot be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a precision; write a part of the change like 3%, above 0% and below 100%, or off")]
pub struct BadPrecision {
    /// What was written.
    text: String,
}

impl FromStr for Precision {
    type Err = BadPrecision;
    fn from_str(text: &str) -> Result<Self, BadPrecision> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let width = text.parse().ok().filter(|width: &Ratio| width.fraction() > 0.0 && width.fraction() < 1.0);
        width.map(Self::To).ok_or_else(|| BadPrecision { text: printable(text) })
    }
}
