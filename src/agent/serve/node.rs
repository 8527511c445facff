//! The node's state: what was applied last, and the tunnels and provider that came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::super::messages::{
    Applied, InterfaceState, NodeState, Part, QueueState, Refusal, SettingsState, Status, TunnelState,
};
use super::causes;
use super::inside::{Inside, Insides};
use crate::host::interfaces::{InterfaceError, Interfaces};
use crate::host::queues::{self, ReceiveCpus};
use crate::host::settings::{Refused, Settings, SettingsError, SettingsReading};
use crate::host::sockets;
use crate::lab::provider::{Provider, ProviderError, ProviderState};
use crate::tunnel::{self, PrivateKey, Shaker, Tunnel, TunnelEngine, TunnelError};

/// Why a state could not be applied at all. What is refused piece by piece is told in [`Applied::refused`].
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    #[error(transparent)]
    Provider(#[from] ProviderError),
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

/// What an agent changed on its host and could not undo.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClearError {
    #[error(transparent)]
    Queues(#[from] queues::QueuesError),
    #[error("{0}")]
    Settings(String),
}

/// What a tunnel's engine says, or why it says nothing: who did not the last time is asked `again` or not at all.
fn status_of(
    interface: &str,
    device: &mut Device,
    silent: &mut BTreeMap<String, String>,
    again: bool,
) -> Result<Status, String> {
    let status = match silent.get(interface) {
        Some(why) if !again => Err(why.clone()),
        _ => device.tunnel.status().map_err(|error| causes(&error)),
    };
    match &status {
        Ok(_) => silent.remove(interface),
        Err(why) => silent.insert(interface.to_owned(), why.clone()),
    };
    status
}

/// A device that is up.
struct Device {
    tunnel: Tunnel,
    state: TunnelState,
}

impl Device {
    /// Its inside, if it has no interface.
    fn inside(&self) -> Option<Inside> {
        let direct = Arc::clone(self.tunnel.direct()?);
        Some(Inside { direct, addresses: self.state.addresses.clone() })
    }
}

#[derive(Default)]
pub(super) struct Node {
    /// By interface. Keys outlive a device that is made anew, so that what was told of them stays right.
    keys: BTreeMap<String, PrivateKey>,
    devices: BTreeMap<String, Device>,
    /// Devices whose engine could not be asked the last time, with the reason.
    silent: BTreeMap<String, String>,
    interfaces: Option<Interfaces>,
    /// The interfaces as applied last, those of tunnels after the others.
    applied: Vec<InterfaceState>,
    /// What receive queues used before a stack limited them.
    queues: BTreeMap<String, ReceiveCpus>,
    /// Opened with the first that is asked for.
    settings: Option<Settings>,
    wanted: SettingsState,
    provider: Option<Provider>,
}

impl Node {
    /// Becomes `state`.
    pub(super) fn apply(&mut self, state: &NodeState) -> Result<Applied, ApplyError> {
        let mut applied = Applied::default();
        if let Some(wanted) = &state.provider {
            let provider = match &mut self.provider {
                Some(provider) => provider,
                empty @ None => empty.insert(Provider::open()?),
            };
            applied.ports = provider.apply(wanted)?;
        } else if let Some(mut provider) = self.provider.take() {
            provider.apply(&ProviderState::default())?;
        }
        // Outer addresses first: an engine binds to one when it starts.
        let old_tunnels = self.devices.values().filter_map(|device| addresses(&device.state));
        let mut interfaces: Vec<InterfaceState> = state.interfaces.iter().cloned().chain(old_tunnels).collect();
        self.apply_interfaces(&interfaces)?;
        self.devices.retain(|interface, _| state.tunnels.iter().any(|tunnel| tunnel.spec.interface == *interface));
        for tunnel in &state.tunnels {
            if let Err(error) = self.apply_tunnel(tunnel, &mut applied) {
                let what = tunnel.spec.interface.clone();
                applied.refused.push(Refusal { part: Part::Tunnel, what, why: error });
            }
        }
        interfaces.truncate(state.interfaces.len());
        interfaces.extend(self.devices.values().filter_map(|device| addresses(&device.state)));
        self.apply_interfaces(&interfaces)?;
        // Settings lie over queues: they come off before queues change, and go on after.
        if self.wanted != state.settings {
            let restored = self.apply_settings(&SettingsState::default())?;
            applied.refused.extend(refusals(restored));
        }
        for queue in &state.queues {
            if let Err(error) = self.apply_queues(queue) {
                let what = format!("receive queues of {}", queue.interface);
                applied.refused.push(Refusal { part: Part::Queues, what, why: causes(&error) });
            }
        }
        let mut reading = self.apply_settings(&state.settings)?;
        applied.settings = std::mem::take(&mut reading.granted);
        applied.refused.extend(refusals(reading));
        Ok(applied)
    }

    fn apply_interfaces(&mut self, states: &[InterfaceState]) -> Result<(), InterfaceError> {
        if self.applied != states {
            self.interfaces()?.apply(states)?;
            self.applied = states.to_vec();
        }
        Ok(())
    }

    fn apply_settings(&mut self, wanted: &SettingsState) -> Result<SettingsReading, SettingsError> {
        self.wanted = wanted.clone();
        let settings = match &mut self.settings {
            Some(settings) => settings,
            empty @ None if *wanted != SettingsState::default() => empty.insert(Settings::open()?),
            None => return Ok(SettingsReading::default()),
        };
        Ok(settings.apply(wanted))
    }

    fn apply_queues(&mut self, wanted: &QueueState) -> Result<(), queues::QueuesError> {
        let interface = &wanted.interface;
        match &wanted.cpus {
            Some(cpus) => {
                let before = queues::spread(interface, cpus)?;
                self.queues.entry(interface.clone()).or_insert(before);
            }
            None => {
                if let Some(before) = self.queues.remove(interface) {
                    queues::set_receive_cpus(interface, &before)?;
                }
            }
        }
        Ok(())
    }

    fn apply_tunnel(&mut self, wanted: &TunnelState, applied: &mut Applied) -> Result<(), String> {
        let interface = &wanted.spec.interface;
        let key = self.keys.entry(interface.clone()).or_insert_with(PrivateKey::generate).clone();
        match self.devices.get_mut(interface) {
            Some(device) if device.state == *wanted => {}
            Some(device) if same_device(&device.state, wanted) => {
                device.tunnel.set_peers(&wanted.spec.peers).map_err(|error| causes(&error))?;
                device.state = wanted.clone();
            }
            _ => {
                // The old device must be gone before the new one takes its name.
                drop(self.devices.remove(interface));
                self.silent.remove(interface);
                let tunnel = tunnel::up(&wanted.spec, &key).map_err(|error| causes(&error))?;
                self.devices.insert(interface.clone(), Device { tunnel, state: wanted.clone() });
            }
        }
        let own = self.devices.get(interface).and_then(|device| device.tunnel.public_key());
        applied.public_keys.insert(interface.clone(), own.unwrap_or_else(|| key.public()));
        Ok(())
    }

    /// The state of every tunnel, read from its engine, or why it cannot be read. Who did not answer the last time is asked for
    /// itself only (`again`): each time costs seconds, and the runs of others must not wait for it.
    pub(super) fn statuses(&mut self, again: impl Fn(&str) -> bool) -> BTreeMap<String, Result<Status, String>> {
        let mut statuses = BTreeMap::new();
        for (interface, device) in &mut self.devices {
            let status = status_of(interface, device, &mut self.silent, again(interface));
            statuses.insert(interface.clone(), status);
        }
        statuses
    }

    /// Whether one of `tunnels` has something to do yet: bytes that each has carried so far differ from `before`, which is brought
    /// up to date, or datagrams wait for its engine, which may have been kept from its processor. What something else manages need
    /// not come to rest, and who is silent is not asked.
    pub(super) fn is_busy(&mut self, tunnels: &BTreeSet<String>, before: &mut BTreeMap<String, u64>) -> bool {
        let mut carried = BTreeMap::new();
        let mut ports = Vec::new();
        for (interface, device) in &mut self.devices {
            if !tunnels.contains(interface) || matches!(device.state.spec.engine, TunnelEngine::Interface { .. }) {
                continue;
            }
            if let Ok(status) = status_of(interface, device, &mut self.silent, false) {
                carried.insert(interface.clone(), status.peers.iter().map(|peer| peer.rx_bytes + peer.tx_bytes).sum());
                ports.push(device.state.spec.listen_port);
            }
        }
        let moves = *before != carried;
        *before = carried;
        moves || sockets::wait_to_be_read(&ports)
    }

    /// Why the engine behind a tunnel's interface is gone, if it is. Asks the engine nothing, so one that hangs holds up nobody.
    pub(super) fn death_of(&mut self, interface: &str) -> Option<TunnelError> {
        self.devices.get_mut(interface)?.tunnel.check_alive().err()
    }

    /// Why engines are gone, by interface.
    pub(super) fn deaths(&mut self) -> BTreeMap<String, String> {
        let dead = |(interface, device): (&String, &mut Device)| {
            let death = device.tunnel.check_alive().err()?;
            Some((interface.clone(), causes(&death)))
        };
        self.devices.iter_mut().filter_map(dead).collect()
    }

    /// The tunnels without an interface.
    pub(super) fn insides(&self) -> Insides {
        Insides(self.devices.iter().filter_map(|(name, device)| Some((name.clone(), device.inside()?))).collect())
    }

    /// What makes handshakes with the peer that has the inner address `peer`, where the tunnel's engine can be asked to.
    pub(super) fn shaker(&self, tunnel: &str, peer: IpAddr) -> Option<Shaker> {
        let device = self.devices.get(tunnel)?;
        let mut peers = device.state.spec.peers.iter();
        let owner = peers.find(|spec| spec.allowed_ips.iter().any(|net| net.contains(&peer)))?;
        device.tunnel.shaker(owner.public_key)
    }

    /// The tunnel without an interface that leads to the address, if one does.
    pub(super) fn inside_towards(&self, target: IpAddr) -> Option<Inside> {
        let leads = |device: &&Device| {
            device.state.spec.peers.iter().flat_map(|peer| &peer.allowed_ips).any(|net| net.contains(&target))
        };
        self.devices.values().filter(leads).find_map(Device::inside)
    }

    /// Every interface of the node, the lab's or not.
    pub(super) fn interface_names(&mut self) -> Result<Vec<String>, InterfaceError> {
        Ok(self.interfaces()?.counters()?.into_keys().collect())
    }

    fn interfaces(&mut self) -> Result<&mut Interfaces, InterfaceError> {
        match &mut self.interfaces {
            Some(interfaces) => Ok(interfaces),
            empty @ None => Ok(empty.insert(Interfaces::open()?)),
        }
    }

    /// Takes settings back, ends every tunnel and gives queues back. Links that the lab made go with their namespaces.
    pub(super) fn clear(&mut self) -> Result<(), ClearError> {
        let kept: Vec<String> = match self.settings.take() {
            Some(mut settings) => settings.apply(&SettingsState::default()).refused.iter().map(in_words).collect(),
            None => Vec::new(),
        };
        for (_, device) in std::mem::take(&mut self.devices) {
            device.tunnel.down();
        }
        for (interface, before) in std::mem::take(&mut self.queues) {
            queues::set_receive_cpus(&interface, &before)?;
        }
        if kept.is_empty() { Ok(()) } else { Err(ClearError::Settings(kept.join("; "))) }
    }
}

fn refusals(reading: SettingsReading) -> impl Iterator<Item = Refusal> {
    let refusal = |refused: Refused| {
        let what = format!("{} = {}", refused.setting, refused.value);
        Refusal { part: Part::Settings, what, why: refused.reason }
    };
    reading.refused.into_iter().map(refusal)
}

fn in_words(refused: &Refused) -> String {
    format!("{} = {}: {}", refused.setting, refused.value, refused.reason)
}

/// The addresses and routes of a device. Its MTU is the engine's to set. What something else manages is left as it is, and what
/// has no interface has its addresses inside.
fn addresses(state: &TunnelState) -> Option<InterfaceState> {
    let ours = !matches!(state.spec.engine, TunnelEngine::Interface { .. } | TunnelEngine::Direct);
    ours.then(|| InterfaceState {
        name: state.spec.interface.clone(),
        addresses: state.addresses.clone(),
        gateway: None,
        routes: state.routes.clone(),
        mtu: None,
        receive_cpus: None,
    })
}

/// Whether only the peers differ.
fn same_device(one: &TunnelState, other: &TunnelState) -> bool {
    let without_peers = |state: &TunnelState| {
        let mut state = state.clone();
        state.spec.peers.clear();
        state
    };
    without_peers(one) == without_peers(other)
}
