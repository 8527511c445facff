//! What runs a tunnel: a file for each kind of engine, and here what they have in common.
//!
//! | engine | what runs it | asked and configured |
//! |---|---|---|
//! | `embedded` | this program again, as a process | at its UAPI socket |
//! | `direct` | threads of this process | by calls |
//! | a daemon's path | a process | at its UAPI socket |
//! | `kernel` | the kernel | over netlink |
//! | an `interface` | something else | only asked: at its UAPI socket or over netlink |

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::TunnelError;
use super::keys::PublicKey;
use super::spec::{TunnelEngine, TunnelSpec};
use super::status::{CountersMean, Handshakes, ProcessStatus};
use super::uapi::{GetDevice, SetDevice, client};

pub(super) mod direct;
pub mod embedded;
pub(super) mod interface;
pub(super) mod kernel;
mod process;

use direct::Direct;
use interface::Found;
use process::{Kind, Process};

/// What runs a tunnel.
#[derive(Debug)]
pub(super) enum Runs {
    /// A process of ours.
    Process(Process),
    /// Threads of ours.
    Direct(Arc<Direct>),
    /// The kernel, for us.
    Kernel(kernel::Device),
    /// Something else.
    Other(Found),
}

impl Runs {
    /// Starts the engine that `spec` names; `own` is the program that holds the embedded one.
    pub(super) fn start(spec: &TunnelSpec, own: &Path) -> Result<Self, TunnelError> {
        Ok(match &spec.engine {
            TunnelEngine::Interface { name } => Self::Other(Found::adopt(name)?),
            TunnelEngine::Direct => Self::Direct(Direct::start(spec)?),
            TunnelEngine::Kernel => Self::Kernel(kernel::Device::add(&spec.interface, spec.mtu)?),
            TunnelEngine::Embedded => Self::Process(process::embedded(own, spec)?),
            TunnelEngine::Daemon { path } => Self::Process(process::daemon(path, spec)?),
        })
    }

    pub(super) fn counters_mean(&self) -> CountersMean {
        match self {
            Self::Process(process) => process.kind().counters_mean(),
            Self::Direct(_) | Self::Kernel(_) => CountersMean::UdpPayload,
            Self::Other(found) => found.counters_mean(),
        }
    }

    /// The engine's own version, where it tells.
    pub(super) fn version(&self) -> Option<&str> {
        match self {
            Self::Process(process) => process.version(),
            Self::Direct(_) => Some(env!("CARGO_PKG_VERSION")),
            Self::Kernel(_) | Self::Other(_) => None,
        }
    }

    /// The key of a device that something else made.
    pub(super) fn public_key(&self) -> Option<PublicKey> {
        match self {
            Self::Other(found) => Some(found.public_key),
            Self::Process(_) | Self::Direct(_) | Self::Kernel(_) => None,
        }
    }

    /// The device's state, and what only this program's own engine tells.
    pub(super) fn get(&self, interface: &str) -> Result<(GetDevice, Option<embedded::Report>), TunnelError> {
        Ok(match self {
            Self::Process(process) if process.kind() == Kind::Embedded => {
                (client::get(interface)?, Some(client::status(interface)?))
            }
            Self::Process(_) => (client::get(interface)?, None),
            Self::Kernel(_) => (kernel::get(interface)?, None),
            Self::Other(found) => (found.get(interface)?, None),
            Self::Direct(direct) => {
                let (device, report) = direct.get();
                (device, Some(report))
            }
        })
    }

    /// Configures the device.
    pub(super) fn set(&self, interface: &str, request: &SetDevice) -> Result<(), TunnelError> {
        match self {
            Self::Process(_) => client::set(interface, request),
            Self::Direct(direct) => direct.set(request),
            Self::Kernel(device) => device.set(request),
            Self::Other(_) => Err(TunnelError::Unavailable {
                engine: format!("interface:{interface}"),
                reason: "something else manages its peers".to_owned(),
                remedy: "change them there".to_owned(),
            }),
        }
    }

    /// What the process uses, where there is one that is ours.
    pub(super) fn usage(&self) -> Result<Option<ProcessStatus>, TunnelError> {
        match self {
            Self::Process(process) => process.usage().map(Some),
            // What `direct` uses is this process's, and cannot be told from the rest.
            Self::Direct(_) | Self::Kernel(_) | Self::Other(_) => Ok(None),
        }
    }

    /// The process that holds the sockets and the device, where there is one that can be looked into.
    pub(super) fn holder(&self) -> Option<u32> {
        match self {
            Self::Process(process) => Some(process.pid()),
            Self::Direct(_) => Some(std::process::id()),
            Self::Kernel(_) | Self::Other(_) => None,
        }
    }

    /// Whether the engine runs. Of what something else runs nothing is known, and nothing wrong.
    pub(super) fn check_alive(&mut self, label: &str, interface: &str) -> Result<(), TunnelError> {
        match self {
            Self::Process(process) => process.check_alive(label, interface),
            Self::Direct(direct) => match direct.dead() {
                None => Ok(()),
                Some(how) => Err(TunnelError::Died {
                    engine: label.to_owned(),
                    interface: interface.to_owned(),
                    how,
                    log: "    (it is in the agent's own)".to_owned(),
                }),
            },
            Self::Kernel(_) | Self::Other(_) => Ok(()),
        }
    }

    /// The tunnel itself, where it has no device.
    pub(super) fn direct(&self) -> Option<&Arc<Direct>> {
        match self {
            Self::Direct(direct) => Some(direct),
            Self::Process(_) | Self::Kernel(_) | Self::Other(_) => None,
        }
    }

    /// What makes handshakes with the peer `key`; `None` where the engine is not this program's own.
    pub(super) fn shaker(&self, interface: &str, key: PublicKey) -> Option<Shaker> {
        let engine = match self {
            Self::Direct(direct) => Shakes::Direct(Arc::clone(direct)),
            Self::Process(process) if process.kind() == Kind::Embedded => Shakes::Embedded(interface.to_owned()),
            Self::Process(_) | Self::Kernel(_) | Self::Other(_) => return None,
        };
        Some(Shaker { engine, key })
    }
}

/// Makes handshakes with one peer, to measure how quickly they are.
#[derive(Debug)]
pub struct Shaker {
    engine: Shakes,
    key: PublicKey,
}

/// Whose handshakes they are.
#[derive(Debug)]
enum Shakes {
    Direct(Arc<Direct>),
    /// The device of that name.
    Embedded(String),
}

impl Shaker {
    /// Makes new sessions for `time`, a second at most, one after the other.
    ///
    /// # Errors
    /// The engine or the peer is gone, or nobody knows where the peer is.
    pub fn shake(&self, time: Duration) -> Result<Handshakes, TunnelError> {
        match &self.engine {
            Shakes::Direct(direct) => direct.handshakes(&self.key, time),
            Shakes::Embedded(interface) => client::handshakes(interface, &self.key, time),
        }
    }
}
