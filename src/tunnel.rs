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
//! ```text
//! tunnel
//! |-- spec     what is asked for           |-- status   what is told, and why there is no handshake
//! |-- engine   what runs it                |-- keys     strict to read, never shown
//! |-- uapi     the text protocol between   `-- conf     files of wg and wg-quick
//! ```
//!
//! An engine with a TUN device is a process of its own that runs in the foreground, so that all are started, metered and ended
//! alike. Private keys reach it through its UAPI socket only. Threads owned here: one `wg-log` per process, which ends with
//! the process's output, and those of `direct`.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::sys;

pub mod conf;
pub mod engine;
mod error;
mod keys;
mod spec;
mod status;
pub mod uapi;

pub use engine::Shaker;
pub use engine::direct::{Arrived as DirectArrived, Direct, Socket as DirectSocket};
pub use engine::embedded::serve::{ServeOptions, serve};
pub use engine::interface::{InterfaceReading, read_interface};
pub use error::TunnelError;
pub use keys::{KeyError, PresharedKey, PrivateKey, PublicKey};
pub use spec::{PeerSpec, Pin, TunnelEngine, TunnelEngineError, TunnelSpec, check_interface_name};
pub use status::{
    CountersMean, EngineStatus, Granted, HandshakeCounters, Handshakes, Offloads, PeerStatus, ProcessStatus, Status,
    UdpBuffers, why_no_handshake,
};

use engine::Runs;
use uapi::{SetDevice, SetPeer};

/// A tunnel that is up. Dropping it ends what runs it and waits for that.
#[derive(Debug)]
pub struct Tunnel {
    interface: String,
    label: String,
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
    check_interface_name(&spec.interface)
        .map_err(|reason| TunnelError::InterfaceName { name: spec.interface.clone(), reason })?;
    check_peers(spec, private_key)?;
    let runs = Runs::start(spec, own)?;
    let mut tunnel = Tunnel { interface: spec.interface.clone(), label: spec.engine.to_string(), runs };
    if let TunnelEngine::Interface { name } = &spec.engine {
        tunnel.interface.clone_from(name);
        return Ok(tunnel);
    }
    tunnel.set(&SetDevice {
        private_key: Some(Some(private_key.clone())),
        listen_port: Some(spec.listen_port),
        fwmark: Some(spec.fwmark),
        replace_peers: true,
        peers: spec.peers.iter().map(SetPeer::exactly).collect(),
    })?;
    if matches!(spec.engine, TunnelEngine::Daemon { .. }) {
        tunnel.or_its_death(|tunnel| {
            sys::tun::set_mtu(&tunnel.interface, spec.mtu.get()).map_err(|source| TunnelError::System {
                action: format!("set the MTU of {} to {}", spec.interface, spec.mtu),
                source,
                hint: "",
            })
        })?;
    }
    Ok(tunnel)
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
        self.runs.public_key()
    }

    /// Makes the peers exactly these.
    ///
    /// # Errors
    /// The engine died or refused; a device that something else manages is left alone.
    pub fn set_peers(&mut self, peers: &[PeerSpec]) -> Result<(), TunnelError> {
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
        let (device, extra) = self.or_its_death(|tunnel| tunnel.runs.get(&tunnel.interface))?;
        let (engine, mut handshakes) = match extra {
            Some(engine::embedded::Report { engine, handshakes }) => (Some(engine), handshakes),
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
        let granted = self.runs.holder().and_then(|pid| Granted::to(pid, &self.interface, device.listen_port));
        Ok(Status {
            version: self.runs.version().map(str::to_owned),
            listen_port: device.listen_port,
            fwmark: device.fwmark,
            peers,
            counters_mean: self.runs.counters_mean(),
            process: self.runs.usage()?,
            granted,
            engine,
        })
    }

    /// Ends the tunnel and waits until what ran it is gone.
    pub fn down(self) {}

    /// The tunnel itself, where it has no device and its sockets are had from it.
    #[must_use]
    pub fn direct(&self) -> Option<&Arc<Direct>> {
        self.runs.direct()
    }

    /// What makes handshakes with the peer `key` when it is asked to; `None` where the engine is not this program's own.
    #[must_use]
    pub fn shaker(&self, key: PublicKey) -> Option<Shaker> {
        self.runs.shaker(&self.interface, key)
    }

    fn set(&mut self, request: &SetDevice) -> Result<(), TunnelError> {
        self.check_alive()?;
        self.or_its_death(|tunnel| tunnel.runs.set(&tunnel.interface, request))
    }

    /// Runs `act`; where it fails because the process is gone, that is the error, and else its log may tell why it failed.
    fn or_its_death<T>(&mut self, act: impl FnOnce(&Self) -> Result<T, TunnelError>) -> Result<T, TunnelError> {
        let source = match act(self) {
            Err(source) if matches!(self.runs, Runs::Process(_)) => source,
            result => return result,
        };
        // A process that closes its socket while it dies needs a moment until it can be seen dead.
        std::thread::sleep(Duration::from_millis(20));
        self.check_alive()?;
        let Runs::Process(process) = &self.runs else { return Err(source) };
        Err(TunnelError::Unwilling { engine: self.label.clone(), source: Box::new(source), log: process.last_lines() })
    }

    /// Whether what runs it does. Where something else runs the device, nothing is known and nothing wrong.
    ///
    /// # Errors
    /// [`TunnelError::Died`], with its last lines.
    pub fn check_alive(&mut self) -> Result<(), TunnelError> {
        self.runs.check_alive(&self.label, &self.interface)
    }
}
