//! What to compare, what to judge, and how large a change must be.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::cell::{Better, Factor, METRICS, UnknownFactor, metric, nearest};
use crate::record::Header;
use crate::units::Ratio;

/// What is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// The levels of a factor.
    Factor {
        /// Which.
        factor: Factor,
        /// Which levels, the baseline first; empty for all, in the record's order.
        levels: Vec<String>,
    },
    /// Whole records, the first is the baseline.
    Record,
}

impl By {
    /// All levels of `factor`.
    pub const fn factor(factor: Factor) -> Self {
        Self::Factor { factor, levels: Vec::new() }
    }

    /// What a report calls it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Factor { factor, .. } => factor.name(),
            Self::Record => "record",
        }
    }
}

/// Text that does not say what is compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadBy {
    /// No such factor.
    #[error(transparent)]
    Factor(#[from] UnknownFactor),
    /// Nothing where a level should be.
    #[error("a level of {factor} is empty; write {factor}=BASE,NEW, or {factor} alone for all of its levels")]
    EmptyLevel {
        /// The factor.
        factor: Factor,
    },
}

/// `FACTOR`, `FACTOR=BASE,NEW[,NEW]` or `record`.
impl FromStr for By {
    type Err = BadBy;
    fn from_str(text: &str) -> Result<Self, BadBy> {
        if text == "record" {
            return Ok(Self::Record);
        }
        let Some((factor, levels)) = text.split_once('=') else { return Ok(Self::factor(text.parse()?)) };
        let factor = factor.parse()?;
        let levels: Vec<String> = levels.split(',').map(|level| level.trim().to_owned()).collect();
        if levels.iter().any(String::is_empty) {
            Err(BadBy::EmptyLevel { factor })
        } else {
            Ok(Self::Factor { factor, levels })
        }
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Factor { levels, .. } if !levels.is_empty() => write!(f, "={}", levels.join(",")),
            Self::Factor { .. } | Self::Record => Ok(()),
        }
    }
}

impl Serialize for By {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What to judge, and from which size on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policy {
    /// The metrics that are judged, instead of the topology's or the table's own five.
    pub metrics: Option<Vec<String>>,
    /// The least change that is published, instead of the topology's.
    pub min_effect: Option<Ratio>,
    /// The same for single metrics.
    pub min_effects: BTreeMap<String, Ratio>,
    /// Conditions that were changed on purpose, and may differ between records.
    pub changed: BTreeSet<String>,
    /// Whether it is a gate's: smaller changes count.
    pub gate: bool,
}

/// A policy that names what there is not.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// No such metric.
    #[error("`{name}` is not a metric{}", .suggestion.as_ref().map_or_else(String::new, |name| format!("; did you mean `{name}`?")))]
    UnknownMetric {
        /// What was written.
        name: String,
        /// What it may mean.
        suggestion: Option<String>,
    },
    /// A metric of which neither way is better.
    #[error("`{name}` cannot be judged: neither way is better, it only explains")]
    NotJudgeable {
        /// The metric.
        name: String,
    },
    /// A minimum effect below zero or not a number.
    #[error("the minimum effect {effect} of {what} must be above zero and below 100 %")]
    BadEffect {
        /// The effect.
        effect: Ratio,
        /// Of which metric, or of the policy.
        what: String,
    },
}

impl Policy {
    /// The least change in reference tables: what is called noise between servers of one kind.
    pub const REFERENCE_EFFECT: f64 = 0.10;
    /// The least change under a gate.
    pub const GATE_EFFECT: f64 = 0.05;
    /// The least change between records that were not interleaved: what an hour or a reboot moves is not in either
    /// record's own noise, so it is the reference's 10 % under a gate too.
    pub const BETWEEN_RECORDS: f64 = 0.10;
    /// The probability of even one false alarm in a comparison.
    pub const ALPHA: f64 = 0.05;

    /// The share of [`Self::ALPHA`] that false calls of *worse* may take under a gate, which asks whether something got worse.
    /// Elsewhere both ways share it alike.
    pub const WORSE_SHARE_OF_GATE: f64 = 0.9;

    /// The share of [`Self::ALPHA`] that false calls of *worse* may take.
    pub const fn worse_share(&self) -> f64 {
        if self.gate { Self::WORSE_SHARE_OF_GATE } else { 0.5 }
    }

    /// The policy of a gate where nothing else is said.
    pub fn gate() -> Self {
        Self { gate: true, ..Self::default() }
    }

    /// This policy, where it says nothing the one of the record's topology.
    #[must_use]
    pub fn over(&self, header: &Header) -> Self {
        let mut policy = self.clone();
        if let Some(judged) = &header.policy {
            policy.metrics = policy.metrics.or_else(|| judged.metrics.clone());
            for (name, effect) in &judged.min_effects {
                policy.min_effects.entry(name.clone()).or_insert(*effect);
            }
        }
        policy
    }

    /// Whether everything that it names is there.
    ///
    /// # Errors
    /// A metric that is not in the table, or has no better way; an effect that is no fraction.
    pub fn check(&self) -> Result<(), PolicyError> {
        for name in self.metrics.iter().flatten().chain(self.min_effects.keys()) {
            let Some(line) = metric(name) else {
                let suggestion = nearest(name, METRICS.iter().map(|line| line.name)).map(str::to_owned);
                return Err(PolicyError::UnknownMetric { name: name.clone(), suggestion });
            };
            if line.better == Better::Neither {
                return Err(PolicyError::NotJudgeable { name: name.clone() });
            }
        }
        let all = self.min_effect.iter().map(|effect| ("the policy", effect));
        for (what, effect) in all.chain(self.min_effects.iter().map(|(name, effect)| (name.as_str(), effect))) {
            if !(effect.fraction() > 0.0 && effect.fraction() < 1.0) {
                return Err(PolicyError::BadEffect { effect: *effect, what: what.to_owned() });
            }
        }
        Ok(())
    }

    /// Whether `name` is judged.
    pub fn judges(&self, name: &str) -> bool {
        match &self.metrics {
            Some(metrics) => metrics.iter().any(|judged| judged == name),
            None => metric(name).is_some_and(|line| line.gated),
        }
    }

    /// The least change that is published, as a fraction, where `header` tells the topology's.
    pub fn min_effect(&self, header: &Header) -> f64 {
        let default = if self.gate { Self::GATE_EFFECT } else { Self::REFERENCE_EFFECT };
        self.min_effect.map(Ratio::fraction).or(header.min_effect).unwrap_or(default)
    }

    /// The same for one metric.
    pub fn min_effect_of(&self, name: &str, header: &Header) -> f64 {
        self.min_effects.get(name).map_or_else(|| self.min_effect(header), |effect| effect.fraction())
    }
}
