//! What may be compared, and what is measured: factors, levels, cells, and the table of metrics.
//!
//! A cell names one thing that is measured: one level of every factor that applies to it. It is a map, and the map is its
//! identity. A level may differ per end of a pair (`"old>new"`: old on the client, new on the server); [`ends`] splits it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use judged::Judged;
pub use kind::{TestKind, UnknownTestKind};
pub use metric::{Better, Metric, Quantity, format_as, metric};
pub use table::METRICS;

pub use crate::text::{did_you_mean, nearest, printable};

mod judged;
mod kind;
mod metric;
mod table;

/// What may be compared. Ordered as a report reads: where first, then what runs there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Factor {
    /// The client and the server, `a1>a2`.
    Pair,
    /// The network that the outer packets take.
    Underlay,
    /// What carries the traffic.
    Engine,
    /// The tunnels of a pair that a test's streams are spread over.
    Tunnels,
    /// How the host underneath moves packets.
    Stack,
    /// The named set of guest changes.
    Settings,
    /// Which way the bulk data goes.
    Direction,
    /// The test, by its name in the topology (its kind, if it has no name of its own).
    Test,
    /// Parallel streams.
    Streams,
    /// The offered rate.
    Rate,
    /// Bytes of payload per datagram or transaction.
    Payload,
    /// The congestion control asked of each TCP socket.
    CongestionControl,
}

impl Factor {
    /// Every factor, in order.
    pub const ALL: [Self; 12] = [
        Self::Pair,
        Self::Underlay,
        Self::Engine,
        Self::Tunnels,
        Self::Stack,
        Self::Settings,
        Self::Direction,
        Self::Test,
        Self::Streams,
        Self::Rate,
        Self::Payload,
        Self::CongestionControl,
    ];

    /// The factor's name in files, records and options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Underlay => "underlay",
            Self::Engine => "engine",
            Self::Tunnels => "tunnels",
            Self::Stack => "stack",
            Self::Settings => "settings",
            Self::Direction => "direction",
            Self::Test => "test",
            Self::Streams => "streams",
            Self::Rate => "rate",
            Self::Payload => "payload",
            Self::CongestionControl => "congestion-control",
        }
    }

    /// Whether the factor belongs to the arrangement (switched once per visit) rather than to a test.
    pub const fn is_arranged(self) -> bool {
        match self {
            Self::Pair | Self::Underlay | Self::Engine | Self::Tunnels | Self::Stack | Self::Settings => true,
            Self::Direction | Self::Test | Self::Streams | Self::Rate | Self::Payload | Self::CongestionControl => {
                false
            }
        }
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names no factor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a factor; {}the factors are {}", did_you_mean(.text, Factor::ALL.map(Factor::name)), Factor::ALL.map(Factor::name).join(", "))]
pub struct UnknownFactor {
    /// What was written.
    pub text: String,
}

impl FromStr for Factor {
    type Err = UnknownFactor;
    fn from_str(text: &str) -> Result<Self, UnknownFactor> {
        Self::ALL
            .into_iter()
            .find(|factor| factor.name() == text)
            .ok_or_else(|| UnknownFactor { text: text.to_owned() })
    }
}

/// The client's and the server's level: `"old>new"` is `("old", "new")`, a level without `>` is the same on both ends.
/// For a pair's own level these are the client's and the server's names.
pub fn ends(level: &str) -> (&str, &str) {
    level.split_once('>').unwrap_or((level, level))
}

/// One level of every factor that applies: a map, and its own identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cell(BTreeMap<Factor, String>);

impl Cell {
    /// A cell of nothing yet.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// The level of `factor`; absent where the factor does not apply.
    pub fn get(&self, factor: Factor) -> Option<&str> {
        self.0.get(&factor).map(String::as_str)
    }

    /// This cell with `factor` at `level`.
    #[must_use]
    pub fn with(mut self, factor: Factor, level: impl Into<String>) -> Self {
        self.0.insert(factor, level.into());
        self
    }

    /// This cell without `factor`: what cells that differ in nothing else have in common.
    #[must_use]
    pub fn without(mut self, factor: Factor) -> Self {
        self.0.remove(&factor);
        self
    }

    /// The levels of both; where both have one, `other`'s.
    #[must_use]
    pub fn joined(mut self, other: &Self) -> Self {
        self.0.extend(other.0.iter().map(|(factor, level)| (*factor, level.clone())));
        self
    }

    /// Factors and levels, in the factors' order.
    pub fn iter(&self) -> impl Iterator<Item = (Factor, &str)> {
        self.0.iter().map(|(factor, level)| (*factor, level.as_str()))
    }

    /// Whether no factor has a level.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(Factor, String)> for Cell {
    fn from_iter<I: IntoIterator<Item = (Factor, String)>>(levels: I) -> Self {
        Self(levels.into_iter().collect())
    }
}

/// `pair=a1>a2 underlay=private ...`; control characters are escaped, since a record may come from anywhere.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (factor, level)) in self.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{factor}={}", printable(level))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
