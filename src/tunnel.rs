//! Engines: what carries a pair's traffic, behind one function.
//!
//! ```text
//! up(spec, key) --spawn----> an engine's process  <--UAPI socket-- set, status
//!                            embedded: this program again (`tunnel`, see [`serve`])
//!                            a daemon by path: wireguard-go, boringtun-cli, gotatun
//!               --netlink--> the kernel's WireGuard
//!               --threads--> direct: embedded without a device, in this process (see [`Direct`])
//! ```
//!
//! An engine with a TUN device is a process of its own that runs in the foreground, so that all are started, metered and ended
//! alike. Private keys reach it through its UAPI socket only. Threads owned here: one `wg-log` per process, which ends with
//! the process's output, and those of `direct`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::sys;

mod client;
pub mod conf;
mod diagnosis;
mod direct;
pub mod embedded;
mod granted;
mod kernel;
mod keys;
mod process;
mod spec;
mod status;
pub mod uapi;

pub use diagnosis::why_no_handshake;
pub use direct::{Arrived as DirectArrived, Direct, Socket as DirectSocket};
pub use embedded::serve::{ServeOptions, serve};
pub use keys::{KeyError, PresharedKey, PrivateKey, PublicKey};
pub use spec::{EngineSpec, EngineSpecError, PeerSpec, Pin, TunnelSpec, check_interface_name};
pub use status::{
    CountersMean, EngineStatus, Granted, HandshakeCounters, Handshakes, Offloads, PeerStatus, ProcessStatus, Status,
    UdpBuffers,
};

use process::Process;
use uapi::{GetDevice, SetDevice, SetPeer, UapiError};

/// How long an engine may take until its socket answers.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// What can go wrong with a tunnel.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// The engine cannot be used here.
    #[error("engine {engine} is not available: {reason}; {remedy}")]
    Unavailable {
        /// As the topology names it.
        engine: String,
        /// Why not.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// A name that no interface can have.
    #[error("`{name}` cannot name a tunnel: {reason}")]
    InterfaceName {
        /// The name.
        name: String,
        /// Which rule it breaks.
        reason: String,
    },
    /// Two peers that cannot be told apart, or a peer that is the device itself.
    #[error("peers of {interface}: {reason}")]
    Peers {
        /// The device.
        interface: String,
        /// What is wrong.
        reason: String,
    },
    /// The name is in use.
    #[error("{what} of tunnel {interface} is in use already; end what uses it, or choose another name")]
    InUse {
        /// The device.
        interface: String,
        /// Socket or device.
        what: String,
    },
    /// The program could not be started.
    #[error("cannot start {program}: {source}; check the path and that it may be executed")]
    Start {
        /// Its path.
        program: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The program ended, or never answered.
    #[error("engine {engine} for {interface} {how}; its last lines:\n{log}")]
    Died {
        /// As the topology names it.
        engine: String,
        /// The device.
        interface: String,
        /// How it ended.
        how: String,
        /// The end of its log.
        log: String,
    },
    /// Its socket failed.
    #[error("cannot {action} {interface} through its UAPI socket: {source}")]
    Socket {
        /// What was tried.
        action: &'static str,
        /// The device.
        interface: String,
        /// The reason.
        source: std::io::Error,
    },
    /// It refused, or answered what is no answer.
    #[error("cannot {action} {interface}: {source}")]
    Uapi {
        /// What was tried.
        action: &'static str,
        /// The device.
        interface: String,
        /// The reason.
        source: UapiError,
    },
    /// The kernel's WireGuard did not do it.
    #[error("cannot {action} {interface} through the kernel's WireGuard: {source}{hint}", hint = kernel::hint(.source))]
    Kernel {
        /// What was tried.
        action: &'static str,
        /// The device.
        interface: String,
        /// The reason.
        source: std::io::Error,
    },
    /// A kernel interface failed.
    #[error("cannot {action}: {source}{hint}", hint = if hint.is_empty() { String::new() } else { format!("; {hint}") })]
    System {
        /// What was tried.
        action: String,
        /// The reason.
        source: std::io::Error,
        /// The remedy, if one is known.
        hint: &'static str,
    },
    /// Wrong arguments of the hidden `tunnel` command.
    #[error("tunnel: {0}")]
    Arguments(String),
}

/// What runs a tunnel.
#[derive(Debug)]
enum Runs {
    /// A process of ours.
    Process(Process),
    /// Threads of ours.
    Direct(Arc<Direct>),
    /// The kernel, for us.
    Kernel(kernel::Device),
    /// Something else. Its state is read from the kernel, or at its UAPI socket.
    Other { in_kernel: bool },
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

/// A tunnel that is up. Dropping it ends what runs it and waits for that.
#[derive(Debug)]
pub struct Tunnel {
    interface: String,
    label: String,
    counters_mean: CountersMean,
    version: Option<String>,
    /// The device's own key, where something else made it.
    public_key: Option<PublicKey>,
    runs: Runs,
}

/// Brings a tunnel up. The device (of `direct`: its sockets) can be had when this returns; addresses, routes and the link's state
/// are the caller's.
///
/// # Errors
/// The engine is not available, did not start, or refused the configuration.
pub fn up(spec: &TunnelSpec, private_key: &PrivateKey) -> Result<Tunnel, TunnelError> {
    up_with(spec, private_key, Path::new("/proc/self/exe"))
}

/// [`up`], where the program that holds the embedded engine is not this process's own (tests, benches).
///
/// # Errors
/// As [`up`].
pub fn up_with(spec: &TunnelSpec, private_key: &PrivateKey, own: &Path) -> Result<Tunnel, TunnelError> {
    let unavailable = |reason: &str, remedy: &str| TunnelError::Unavailable {
        engine: spec.engine.to_string(),
        reason: reason.to_owned(),
        remedy: remedy.to_owned(),
    };
    check_interface_name(&spec.interface)
        .map_err(|reason| TunnelError::InterfaceName { name: spec.interface.clone(), reason })?;
    check_peers(spec, private_key)?;
    let runs = match &spec.engine {
        EngineSpec::Raw => return Err(unavailable("raw has no tunnel", "use the underlay as it is")),
        EngineSpec::Interface { name } => return adopt(name),
        EngineSpec::Direct => Runs::Direct(Direct::start(spec)?),
        EngineSpec::Kernel => Runs::Kernel(kernel::Device::add(&spec.interface, spec.mtu)?),
        EngineSpec::Embedded => Runs::Process(process::embedded(own, spec)?),
        EngineSpec::Daemon { path } => Runs::Process(process::daemon(path, spec)?),
    };
    let (counters_mean, version) = match &runs {
        Runs::Process(process) => (process.kind().counters_mean(), process.version().map(str::to_owned)),
        Runs::Direct(_) => (CountersMean::UdpPayload, Some(env!("CARGO_PKG_VERSION").to_owned())),
        Runs::Kernel(_) | Runs::Other { .. } => (CountersMean::UdpPayload, None),
    };
    let mut tunnel = Tunnel {
        interface: spec.interface.clone(),
        label: spec.engine.to_string(),
        counters_mean,
        version,
        public_key: None,
        runs,
    };
    tunnel.wait_for_socket()?;
    tunnel.set(&SetDevice {
        private_key: Some(Some(private_key.clone())),
        listen_port: Some(spec.listen_port),
        fwmark: Some(spec.fwmark),
        replace_peers: true,
        peers: spec.peers.iter().map(SetPeer::exactly).collect(),
    })?;
    if matches!(spec.engine, EngineSpec::Daemon { .. }) {
        sys::tun::set_mtu(&spec.interface, spec.mtu.get()).map_err(|source| TunnelError::System {
            action: format!("set the MTU of {} to {}", spec.interface, spec.mtu),
            source,
            hint: "",
        })?;
    }
    Ok(tunnel)
}

/// What an interface that something else manages says about itself.
#[derive(Debug, Clone)]
pub struct InterfaceReading {
    /// Its public key, if it has a private one.
    pub public_key: Option<PublicKey>,
    /// Its outer port.
    pub listen_port: Option<u16>,
    /// Its peers; no secret of theirs.
    pub peers: Vec<PeerSpec>,
}

/// A device's state: from its UAPI socket where there is one, else from the kernel.
fn read_device(name: &str) -> Result<GetDevice, TunnelError> {
    let path = client::socket_path(name);
    if path.exists() {
        return client::get(name);
    }
    kernel::get(name).map_err(|error| TunnelError::Unavailable {
        engine: format!("interface:{name}"),
        reason: format!("{} does not exist, and the kernel does not tell of it either ({error})", path.display()),
        remedy: "name a WireGuard device: of others the outer path cannot be proved".to_owned(),
    })
}

/// Reads an interface of this host, from its UAPI socket or the kernel, and changes nothing.
///
/// # Errors
/// It is no WireGuard device, or does not answer.
pub fn read_interface(name: &str) -> Result<InterfaceReading, TunnelError> {
    let device = read_device(name)?;
    let peers = device.peers.iter().map(|peer| PeerSpec {
        public_key: peer.public_key,
        preshared_key: None,
        endpoint: peer.endpoint,
        allowed_ips: peer.allowed_ips.clone(),
        keepalive: (peer.keepalive != 0).then(|| Duration::from_secs(u64::from(peer.keepalive))),
    });
    Ok(InterfaceReading { public_key: device.public_key(), listen_port: device.listen_port, peers: peers.collect() })
}

/// Takes a device that something else runs, if it answers.
fn adopt(name: &str) -> Result<Tunnel, TunnelError> {
    let unavailable = |reason: String, remedy: &str| TunnelError::Unavailable {
        engine: format!("interface:{name}"),
        reason,
        remedy: remedy.to_owned(),
    };
    let in_kernel = !client::socket_path(name).exists();
    let Some(public_key) = read_device(name)?.public_key() else {
        return Err(unavailable("it has no private key".to_owned(), "configure it first"));
    };
    Ok(Tunnel {
        interface: name.to_owned(),
        label: format!("interface:{name}"),
        counters_mean: if in_kernel { CountersMean::UdpPayload } else { CountersMean::Unknown },
        version: None,
        public_key: Some(public_key),
        runs: Runs::Other { in_kernel },
    })
}

/// Peers must be distinct, must not be the device itself, and must not share a prefix: the last one would silently own it.
fn check_peers(spec: &TunnelSpec, private_key: &PrivateKey) -> Result<(), TunnelError> {
    let wrong = |reason| Err(TunnelError::Peers { interface: spec.interface.clone(), reason });
    let own = private_key.public();
    let mut keys = std::collections::BTreeSet::new();
    let mut prefixes = std::collections::BTreeMap::new();
    for peer in &spec.peers {
        if peer.public_key == own {
            return wrong(format!("{own} is the device's own key"));
        }
        if !keys.insert(peer.public_key) {
            return wrong(format!("{} is named twice", peer.public_key));
        }
        for net in &peer.allowed_ips {
            if let Some(other) = prefixes.insert(net.trunc(), peer.public_key)
                && other != peer.public_key
            {
                return wrong(format!("{net} belongs to both {other} and {}", peer.public_key));
            }
        }
    }
    Ok(())
}

impl Tunnel {
    /// The device's name.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The public key of a device that something else made; `None` where the key is the one given to [`up`].
    #[must_use]
    pub fn public_key(&self) -> Option<PublicKey> {
        self.public_key
    }

    /// Makes the peers exactly these.
    ///
    /// # Errors
    /// The engine died or refused; a device that something else manages is left alone.
    pub fn set_peers(&mut self, peers: &[PeerSpec]) -> Result<(), TunnelError> {
        if matches!(self.runs, Runs::Other { .. }) {
            return Err(TunnelError::Unavailable {
                engine: self.label.clone(),
                reason: "something else manages its peers".to_owned(),
                remedy: "change them there".to_owned(),
            });
        }
        self.set(&SetDevice {
            replace_peers: true,
            peers: peers.iter().map(SetPeer::exactly).collect(),
            ..SetDevice::default()
        })
    }

    /// Reads the tunnel's state.
    ///
    /// # Errors
    /// The engine died (with its last lines) or does not answer.
    pub fn status(&mut self) -> Result<Status, TunnelError> {
        self.check_alive()?;
        let (device, extra) = self.or_its_death(|tunnel| {
            let name = &tunnel.interface;
            Ok(match &tunnel.runs {
                Runs::Process(process) if process.kind() == process::Kind::Embedded => {
                    (client::get(name)?, Some(client::status(name)?))
                }
                Runs::Process(_) | Runs::Other { in_kernel: false } => (client::get(name)?, None),
                Runs::Kernel(_) | Runs::Other { in_kernel: true } => (kernel::get(name)?, None),
                Runs::Direct(direct) => {
                    let (device, report) = direct.get();
                    (device, Some(report))
                }
            })
        })?;
        let (engine, mut handshakes) = match extra {
            Some(embedded::Report { engine, handshakes }) => (Some(engine), handshakes),
            None => (None, std::collections::BTreeMap::new()),
        };
        let now = SystemTime::now();
        let mut peers: Vec<PeerStatus> = device
            .peers
            .iter()
            .map(|peer| PeerStatus {
                public_key: peer.public_key,
                endpoint: peer.endpoint,
                allowed_ips: peer.allowed_ips.clone(),
                rx_bytes: peer.rx_bytes,
                tx_bytes: peer.tx_bytes,
                last_handshake: peer.last_handshake.age(now),
                keepalive: (peer.keepalive != 0).then(|| Duration::from_secs(u64::from(peer.keepalive))),
                handshakes: handshakes.remove(&peer.public_key),
            })
            .collect();
        peers.sort_by_key(|peer| peer.public_key);
        let process = match &self.runs {
            Runs::Process(process) => Some(process.usage()?),
            // What it uses is this process's, and cannot be told from the rest.
            Runs::Direct(_) | Runs::Kernel(_) | Runs::Other { .. } => None,
        };
        let holder = match &self.runs {
            Runs::Direct(_) => Some(std::process::id()),
            Runs::Process(_) | Runs::Kernel(_) | Runs::Other { .. } => process.as_ref().map(|process| process.pid),
        };
        let granted = holder.and_then(|pid| granted::granted(pid, &self.interface, device.listen_port));
        Ok(Status {
            version: self.version.clone(),
            listen_port: device.listen_port,
            fwmark: device.fwmark,
            peers,
            counters_mean: self.counters_mean,
            process,
            granted,
            engine,
        })
    }

    /// Ends the tunnel and waits until what ran it is gone.
    pub fn down(self) {}

    /// The tunnel itself, where it has no device and its sockets are had from it.
    #[must_use]
    pub fn direct(&self) -> Option<&Arc<Direct>> {
        match &self.runs {
            Runs::Direct(direct) => Some(direct),
            Runs::Process(_) | Runs::Kernel(_) | Runs::Other { .. } => None,
        }
    }

    /// What makes handshakes with the peer `key` when it is asked to; `None` where the engine is not this program's own.
    #[must_use]
    pub fn shaker(&self, key: PublicKey) -> Option<Shaker> {
        let engine = match &self.runs {
            Runs::Direct(direct) => Shakes::Direct(Arc::clone(direct)),
            Runs::Process(process) if process.kind() == process::Kind::Embedded => {
                Shakes::Embedded(self.interface.clone())
            }
            Runs::Process(_) | Runs::Kernel(_) | Runs::Other { .. } => return None,
        };
        Some(Shaker { engine, key })
    }

    fn set(&mut self, request: &SetDevice) -> Result<(), TunnelError> {
        self.check_alive()?;
        self.or_its_death(|tunnel| match &tunnel.runs {
            Runs::Process(_) | Runs::Other { .. } => client::set(&tunnel.interface, request),
            Runs::Direct(direct) => direct.set(request),
            Runs::Kernel(device) => device.set(request),
        })
    }

    /// Runs `act`; where it fails because the process is gone, that is the error.
    fn or_its_death<T>(&mut self, act: impl FnOnce(&Self) -> Result<T, TunnelError>) -> Result<T, TunnelError> {
        let result = act(self);
        if result.is_err() && matches!(self.runs, Runs::Process(_)) {
            // A process that closes its socket while it dies needs a moment until it can be seen dead.
            std::thread::sleep(Duration::from_millis(20));
            self.check_alive()?;
        }
        result
    }

    /// Whether what runs it does. Where something else runs the device, nothing is known and nothing wrong.
    ///
    /// # Errors
    /// [`TunnelError::Died`], with its last lines.
    pub fn check_alive(&mut self) -> Result<(), TunnelError> {
        match &mut self.runs {
            Runs::Process(process) => process.check_alive(&self.label, &self.interface),
            Runs::Direct(direct) => match direct.dead() {
                None => Ok(()),
                Some(how) => Err(TunnelError::Died {
                    engine: self.label.clone(),
                    interface: self.interface.clone(),
                    how,
                    log: "    (it is in the agent's own)".to_owned(),
                }),
            },
            Runs::Kernel(_) | Runs::Other { .. } => Ok(()),
        }
    }

    /// Waits until a process answers.
    fn wait_for_socket(&mut self) -> Result<(), TunnelError> {
        if !matches!(self.runs, Runs::Process(_)) {
            return Ok(());
        }
        let begin = std::time::Instant::now();
        loop {
            self.check_alive()?;
            match client::get(&self.interface) {
                Ok(_) => return Ok(()),
                Err(error) if begin.elapsed() > START_TIMEOUT => {
                    return Err(TunnelError::Died {
                        engine: self.label.clone(),
                        interface: self.interface.clone(),
                        how: format!("did not answer within {} s ({error})", START_TIMEOUT.as_secs()),
                        log: match &self.runs {
                            Runs::Process(process) => process.last_lines(),
                            Runs::Direct(_) | Runs::Kernel(_) | Runs::Other { .. } => String::new(),
                        },
                    });
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}
