//! Named changes to a node, applied, read back, and taken back: kernel settings, interface features, receive CPUs.
//!
//! A setting that the node refuses is not an error here but an answer: the cells that want it are invalid, with the
//! reason, and the others run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::queues::{self, QueuesError, ReceiveCpus};
use crate::sys::ethtool::{Ethtool, EthtoolError, kernel_names};
use crate::sys::netlink::{Netlink, NetlinkError};
use crate::sys::sysctl::{self, SysctlError};
use crate::text::with_causes;
use crate::units::Mtu;

/// Why settings cannot be changed at all.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Features.
    #[error("interface features cannot be changed")]
    Ethtool(#[from] EthtoolError),
    /// A kernel setting.
    #[error("a kernel setting cannot be changed")]
    Sysctl(#[from] SysctlError),
    /// Receive queues.
    #[error("receive queues cannot be changed")]
    Queues(#[from] QueuesError),
    /// An MTU.
    #[error("an MTU cannot be changed")]
    Netlink(#[from] NetlinkError),
    /// An interface that is not there.
    #[error("there is no interface {interface}")]
    NoInterface {
        /// Its name.
        interface: String,
    },
    /// An interface that took another MTU than it was given.
    #[error("{interface} was given an MTU of {asked} and has {live}")]
    MtuNotGranted {
        /// The interface.
        interface: String,
        /// What it was given.
        asked: u32,
        /// What it has.
        live: u32,
    },
}

/// What a node is to have beside what it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsState {
    /// Kernel settings and their values.
    pub sysctl: BTreeMap<String, String>,
    /// Features of `interfaces`, by the kernel's names or by ethtool's (`gro`, `tso`).
    pub features: BTreeMap<String, bool>,
    /// The CPUs that take the packets of `interfaces`.
    pub receive_cpus: Option<Vec<u32>>,
    /// The interfaces that features and CPUs are for.
    pub interfaces: Vec<String>,
    /// The MTU of interfaces.
    pub mtus: BTreeMap<String, Mtu>,
}

/// One thing that can be set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Setting {
    Sysctl(String),
    Feature { interface: String, feature: String },
    ReceiveCpus { interface: String },
    Mtu { interface: String },
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sysctl(name) => f.write_str(name),
            Self::Feature { interface, feature } => write!(f, "{interface} {feature}"),
            Self::ReceiveCpus { interface } => write!(f, "{interface} rps_cpus"),
            Self::Mtu { interface } => write!(f, "{interface} mtu"),
        }
    }
}

/// Its value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Text(String),
    Switch(bool),
    /// The same CPUs for every queue, as asked.
    Cpus(Vec<u32>),
    /// The CPUs of each queue, as found.
    CpusOfQueues(ReceiveCpus),
    /// Bytes. Not [`Mtu`]: what is found may be larger.
    Mtu(u32),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Switch(on) => f.write_str(if *on { "on" } else { "off" }),
            Self::Cpus(cpus) => write!(f, "{cpus:?}"),
            Self::CpusOfQueues(queues) => write!(f, "{queues:?}"),
            Self::Mtu(bytes) => write!(f, "{bytes}"),
        }
    }
}

/// A setting that is as asked, read back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The setting: a sysctl's name, or an interface and a feature.
    pub setting: String,
    /// Its value.
    pub value: String,
    /// What it was before the first change.
    pub before: String,
}

/// A setting that is not as asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The setting.
    pub setting: String,
    /// The value that was asked for.
    pub value: String,
    /// Why it was refused, with the causes.
    pub reason: String,
}

/// What became of a state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsReading {
    /// What is as asked.
    pub granted: Vec<Granted>,
    /// What is not.
    pub refused: Vec<Refused>,
}

/// A node's settings, and what they were before. Dropping it restores them.
#[derive(Debug)]
pub struct Settings {
    ethtool: Ethtool,
    /// What everything that is changed was at first.
    journal: BTreeMap<Setting, Value>,
}

impl Settings {
    /// Those of the calling thread's network namespace.
    pub fn open() -> Result<Self, SettingsError> {
        Ok(Self { ethtool: Ethtool::open()?, journal: BTreeMap::new() })
    }

    /// Makes the node as `state` says: restores what it does not name any more, sets what it names.
    pub fn apply(&mut self, state: &SettingsState) -> SettingsReading {
        let mut reading = SettingsReading::default();
        let wanted = match self.wanted(state) {
            Ok(wanted) => wanted,
            Err(error) => {
                let value = format!("{:?}", state.features);
                reading.refused.push(Refused { setting: "features".to_owned(), value, reason: with_causes(&error) });
                return reading;
            }
        };
        let surplus: Vec<Setting> =
            self.journal.keys().filter(|setting| !wanted.contains_key(setting)).cloned().collect();
        for setting in surplus {
            let Some(before) = self.journal.get(&setting).cloned() else { continue };
            match self.set(&setting, &before) {
                Ok(_) => {
                    self.journal.remove(&setting);
                }
                Err(error) => reading.refused.push(Refused {
                    setting: setting.to_string(),
                    value: before.to_string(),
                    reason: format!("it could not be restored: {}", with_causes(&error)),
                }),
            }
        }
        for (setting, value) in wanted {
            match self.set(&setting, &value) {
                Ok(was) => {
                    let before = self.journal.entry(setting.clone()).or_insert(was);
                    let (setting, before) = (setting.to_string(), before.to_string());
                    reading.granted.push(Granted { setting, value: value.to_string(), before });
                }
                Err(error) => reading.refused.push(Refused {
                    setting: setting.to_string(),
                    value: value.to_string(),
                    reason: with_causes(&error),
                }),
            }
        }
        reading
    }

    fn wanted(&self, state: &SettingsState) -> Result<BTreeMap<Setting, Value>, SettingsError> {
        let mut wanted = BTreeMap::new();
        for (name, value) in &state.sysctl {
            wanted.insert(Setting::Sysctl(name.clone()), Value::Text(value.clone()));
        }
        for interface in &state.interfaces {
            if !state.features.is_empty() {
                let known = self.ethtool.features(interface)?;
                for (name, on) in &state.features {
                    for feature in kernel_names(name, &known) {
                        let setting = Setting::Feature { interface: interface.clone(), feature: feature.to_owned() };
                        wanted.insert(setting, Value::Switch(*on));
                    }
                }
            }
            if let Some(cpus) = &state.receive_cpus {
                wanted.insert(Setting::ReceiveCpus { interface: interface.clone() }, Value::Cpus(cpus.clone()));
            }
        }
        for (interface, mtu) in &state.mtus {
            wanted.insert(Setting::Mtu { interface: interface.clone() }, Value::Mtu(u32::from(mtu.get())));
        }
        Ok(wanted)
    }

    /// Sets one thing, reads it back, and says what it was.
    fn set(&self, setting: &Setting, value: &Value) -> Result<Value, SettingsError> {
        Ok(match (setting, value) {
            (Setting::Feature { interface, feature }, Value::Switch(on)) => {
                let before = self.ethtool.features(interface)?;
                self.ethtool.set_features(interface, &[(feature, *on)])?;
                Value::Switch(before.get(feature).is_some_and(|feature| feature.active))
            }
            (Setting::ReceiveCpus { interface }, Value::Cpus(cpus)) => {
                Value::CpusOfQueues(queues::spread(interface, cpus)?)
            }
            (Setting::ReceiveCpus { interface }, Value::CpusOfQueues(cpus)) => {
                queues::set_receive_cpus(interface, cpus)?;
                value.clone()
            }
            (Setting::Mtu { interface }, Value::Mtu(bytes)) => Value::Mtu(set_mtu(interface, *bytes)?),
            // `wanted` and the journal pair each setting with its kind of value; text is what remains.
            (setting, value) => Value::Text(sysctl::write(&setting.to_string(), &value.to_string())?.before),
        })
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        // Who wants to know applies an empty state first.
        let _ = self.apply(&SettingsState::default());
    }
}

/// Gives an interface an MTU, reads it back, and says what it was.
fn set_mtu(interface: &str, bytes: u32) -> Result<u32, SettingsError> {
    let missing = || SettingsError::NoInterface { interface: interface.to_owned() };
    let netlink = Netlink::open()?;
    let link = netlink.link(interface)?.ok_or_else(missing)?;
    if link.mtu == bytes {
        return Ok(bytes);
    }
    netlink.set_mtu(link.index, interface, bytes)?;
    let live = netlink.link(interface)?.ok_or_else(missing)?.mtu;
    if live == bytes {
        Ok(link.mtu)
    } else {
        Err(SettingsError::MtuNotGranted { interface: interface.to_owned(), asked: bytes, live })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_named_and_the_rest_is_granted() {
        let mut settings = Settings::open().unwrap();
        let ostype = sysctl::read("kernel.ostype").unwrap();
        let state = SettingsState {
            sysctl: [("kernel.ostype", ostype.as_str()), ("net.ipv4.no_such_setting", "1")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..SettingsState::default()
        };
        let reading = settings.apply(&state);
        assert_eq!(reading.granted.len(), 1, "{reading:?}");
        assert_eq!(reading.granted[0].before, ostype);
        assert_eq!(reading.refused[0].setting, "net.ipv4.no_such_setting");
        assert!(reading.refused[0].reason.contains("does not exist here"), "{reading:?}");
        assert_eq!(settings.apply(&SettingsState::default()), SettingsReading::default());
    }

    #[test]
    fn features_of_a_missing_interface_are_refused() {
        let mut settings = Settings::open().unwrap();
        let state = SettingsState {
            features: [("gro".to_owned(), true)].into(),
            interfaces: vec!["no-such-one".to_owned()],
            ..SettingsState::default()
        };
        let reading = settings.apply(&state);
        assert!(reading.granted.is_empty());
        assert!(reading.refused[0].reason.contains("no-such-one"), "{reading:?}");
    }
}
