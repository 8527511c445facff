//! An interface that something else manages: read, and left as it is.

use std::time::Duration;

use crate::tunnel::TunnelError;
use crate::tunnel::keys::PublicKey;
use crate::tunnel::spec::PeerSpec;
use crate::tunnel::status::CountersMean;
use crate::tunnel::uapi::{GetDevice, client};

use super::kernel;

/// A device that something else runs. Its state is read from the kernel, or at its UAPI socket.
#[derive(Debug)]
pub(in crate::tunnel) struct Found {
    in_kernel: bool,
    /// Its own key.
    pub(super) public_key: PublicKey,
}

impl Found {
    /// Takes the device, if it answers.
    pub(super) fn adopt(name: &str) -> Result<Self, TunnelError> {
        let in_kernel = !client::socket_path(name).exists();
        let public_key = read_device(name)?.public_key().ok_or_else(|| TunnelError::Unavailable {
            engine: format!("interface:{name}"),
            reason: "it has no private key".to_owned(),
            remedy: "configure it first".to_owned(),
        })?;
        Ok(Self { in_kernel, public_key })
    }

    pub(super) fn counters_mean(&self) -> CountersMean {
        if self.in_kernel { CountersMean::UdpPayload } else { CountersMean::Unknown }
    }

    /// Its state.
    pub(super) fn get(&self, name: &str) -> Result<GetDevice, TunnelError> {
        if self.in_kernel { kernel::get(name) } else { client::get(name) }
    }
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
