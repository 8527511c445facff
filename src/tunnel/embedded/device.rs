//! The device that all threads share: keys, peers, routes, the outer socket.
//!
//! Configuration changes rarely and is read for every batch, so what threads read is a [`Table`] that never changes and is
//! replaced whole.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use boringtun::noise::Tunn;
use boringtun::noise::rate_limiter::RateLimiter;
use ipnet::IpNet;
use x25519_dalek::StaticSecret;

use super::Report;
use super::counters::{Counters, Event};
use super::io::{OuterSocket, SocketFactory, TunDevice, Wake};
use super::peer::Peer;
use super::routes::Routes;
use crate::sys::udp::Transmit;
use crate::tunnel::keys::{PresharedKey, PrivateKey, PublicKey};
use crate::tunnel::status::{EngineStatus, HandshakeCounters, Offloads, UdpBuffers};
use crate::tunnel::uapi::{GetDevice, GetPeer, LastHandshake, SetDevice, SetPeer, errno};

/// What both buffers of the outer socket are asked to be: as much as wireguard-go asks for.
pub(super) const UDP_BUFFER: usize = 7 << 20;
/// Handshake messages in a second beyond which senders must prove their address with a cookie.
const HANDSHAKES_PER_SECOND: u64 = 1_000;
/// Destinations whose ICMP errors are told apart.
const ICMP_DESTINATIONS: usize = 4096;
/// Session indices carry the peer's slot in 24 bits.
const MAX_PEERS: usize = 1 << 24;

/// What the data path reads. Replaced whole when the configuration changes.
#[derive(Debug)]
pub(super) struct Table {
    slots: Vec<Option<Arc<Peer>>>,
    pub(super) routes: Routes<u32>,
    by_key: BTreeMap<PublicKey, u32>,
}

impl Table {
    fn empty() -> Self {
        Self { slots: Vec::new(), routes: Routes::new([]), by_key: BTreeMap::new() }
    }

    pub(super) fn peer(&self, slot: u32) -> Option<&Arc<Peer>> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// The peer that a session index belongs to.
    pub(super) fn peer_of_index(&self, index: u32) -> Option<&Arc<Peer>> {
        self.peer(index >> 8)
    }

    pub(super) fn peer_of_key(&self, key: &PublicKey) -> Option<&Arc<Peer>> {
        self.peer(*self.by_key.get(key)?)
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = &Arc<Peer>> {
        self.slots.iter().flatten()
    }
}

/// The device's own key and what follows from it.
pub(super) struct Identity {
    pub(super) private: StaticSecret,
    pub(super) public: x25519_dalek::PublicKey,
    /// Checks MAC1, and asks for cookies under load.
    pub(super) limiter: RateLimiter,
    /// For the peers' own state machines, whose messages were checked before: it never asks for cookies.
    checked: Arc<RateLimiter>,
}

/// What was configured.
#[derive(Default)]
struct Config {
    private_key: Option<PrivateKey>,
    listen_port: u16,
    fwmark: Option<u32>,
    peers: BTreeMap<PublicKey, PeerConfig>,
    /// Who owns which prefix: one at most, the last who was given it.
    owners: BTreeMap<IpNet, PublicKey>,
    free_slots: Vec<u32>,
    next_slot: u32,
}

struct PeerConfig {
    peer: Arc<Peer>,
    preshared_key: Option<PresharedKey>,
    allowed_ips: BTreeSet<IpNet>,
}

/// The device.
pub struct Device {
    /// The device's queues, at least one; as many as there are sockets.
    pub(super) tuns: Vec<Arc<dyn TunDevice>>,
    factory: Box<dyn SocketFactory>,
    /// Events.
    pub counters: Counters,
    pub(super) staged_bytes: AtomicUsize,
    pub(super) stop: AtomicBool,
    config: Mutex<Config>,
    table: RwLock<Arc<Table>>,
    table_generation: AtomicU64,
    sockets: RwLock<Arc<[Arc<dyn OuterSocket>]>>,
    identity: RwLock<Option<Arc<Identity>>>,
    unknown_caller: Mutex<Option<PublicKey>>,
    offload_notes: Mutex<Vec<String>>,
    tun_offload_off: AtomicBool,
    /// ICMP errors by where the packet was going. Not in the peers: this is counted while one of them is locked.
    icmp_destinations: Mutex<BTreeMap<SocketAddr, u64>>,
    /// Ends the waits of the threads, by thread.
    pub(super) wakes: Wakes,
}

/// One wake for each thread that waits.
pub(super) struct Wakes {
    pub(super) outbound: Vec<Wake>,
    pub(super) inbound: Vec<Wake>,
    pub(super) handshakes: Wake,
    pub(super) timers: Wake,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("counters", &self.counters).finish_non_exhaustive()
    }
}

fn read<T: Clone>(lock: &RwLock<T>) -> T {
    lock.read().unwrap_or_else(PoisonError::into_inner).clone()
}

fn replace<T>(lock: &RwLock<T>, value: T) {
    *lock.write().unwrap_or_else(PoisonError::into_inner) = value;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device {
    pub(super) fn new(
        tuns: Vec<Arc<dyn TunDevice>>,
        factory: Box<dyn SocketFactory>,
        offload_notes: Vec<String>,
    ) -> io::Result<Self> {
        if tuns.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a device without a queue"));
        }
        let wakes = || tuns.iter().map(|_| Wake::new()).collect::<io::Result<Vec<_>>>();
        Ok(Self {
            wakes: Wakes { outbound: wakes()?, inbound: wakes()?, handshakes: Wake::new()?, timers: Wake::new()? },
            tuns,
            factory,
            counters: Counters::default(),
            staged_bytes: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            config: Mutex::default(),
            table: RwLock::new(Arc::new(Table::empty())),
            table_generation: AtomicU64::new(0),
            sockets: RwLock::new(Arc::new([])),
            identity: RwLock::new(None),
            unknown_caller: Mutex::default(),
            offload_notes: Mutex::new(offload_notes),
            tun_offload_off: AtomicBool::new(false),
            icmp_destinations: Mutex::default(),
        })
    }

    /// The socket of a lane, once there is a port.
    pub(super) fn socket(&self, lane: usize) -> Option<Arc<dyn OuterSocket>> {
        let sockets = read(&self.sockets);
        sockets.get(lane % sockets.len().max(1)).cloned()
    }

    /// Whether datagrams may leave as batches.
    pub(super) fn gso(&self, lane: usize) -> bool {
        self.socket(lane).is_some_and(|socket| socket.granted().gso)
    }

    /// Whether packets of the device carry a virtio-net header.
    pub(super) fn vnet_hdr(&self) -> bool {
        self.tuns[0].vnet_hdr()
    }

    pub(super) fn identity(&self) -> Option<Arc<Identity>> {
        read(&self.identity)
    }

    pub(super) fn table(&self) -> Arc<Table> {
        read(&self.table)
    }

    /// Replaces `held` if the table has changed since.
    pub(super) fn refresh(&self, held: &mut (u64, Arc<Table>)) {
        let generation = self.table_generation.load(Ordering::Acquire);
        if generation != held.0 {
            *held = (generation, self.table());
        }
    }

    pub(super) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Tells all threads to end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        let Wakes { outbound, inbound, handshakes, timers } = &self.wakes;
        outbound.iter().chain(inbound).chain([handshakes, timers]).for_each(Wake::signal);
    }

    pub(super) fn note_unknown_caller(&self, key: PublicKey) {
        *lock(&self.unknown_caller) = Some(key);
    }

    /// A batch was refused as such: its peer is sent to singly from now on, and that is said, once.
    pub(super) fn offload_refused(&self, peer: Option<&Arc<Peer>>, batch: &Transmit, error: &io::Error) {
        self.counters.add(Event::OffloadRefused, 1);
        let again = peer.is_some_and(|peer| peer.gso_refused.swap(true, Ordering::Relaxed));
        if !again {
            self.note_offload(format!(
                "UDP_SEGMENT refused for {} ({} datagrams of {} bytes): {error}; datagrams to it go singly now",
                batch.to,
                batch.datagrams(),
                batch.segment
            ));
        }
    }

    /// The device refused a super-packet: packets go to it singly from now on, and that is said, once.
    pub(super) fn tun_offload_refused(&self, error: &io::Error) {
        self.counters.add(Event::OffloadRefused, 1);
        if !self.tun_offload_off.swap(true, Ordering::Relaxed) {
            self.note_offload(format!("the TUN device refused a super-packet: {error}; packets go to it singly now"));
        }
    }

    pub(super) fn tun_offload_off(&self) -> bool {
        self.tun_offload_off.load(Ordering::Relaxed)
    }

    fn note_offload(&self, note: String) {
        const NOTES: usize = 32;
        super::log(&note);
        let mut notes = lock(&self.offload_notes);
        if notes.len() < NOTES {
            notes.push(note);
        }
    }

    /// Empties the socket's error queue; returns how many reports there were.
    pub(super) fn take_network_errors(&self, socket: &dyn OuterSocket) -> usize {
        let mut count = 0;
        while let Ok(Some(error)) = socket.take_network_error() {
            count += 1;
            if !error.from_network {
                continue;
            }
            self.counters.icmp_error(error.errno);
            let mut destinations = lock(&self.icmp_destinations);
            if destinations.len() < ICMP_DESTINATIONS || destinations.contains_key(&error.destination) {
                *destinations.entry(error.destination).or_default() += 1;
            }
        }
        count
    }

    /// Applies a request.
    ///
    /// # Errors
    /// The errno to answer; nothing was changed then.
    pub fn set(&self, request: &SetDevice) -> Result<(), i32> {
        let mut config = lock(&self.config);
        let new_peers = request.peers.iter().filter(|peer| !config.peers.contains_key(&peer.public_key)).count();
        if config.peers.len() + new_peers > MAX_PEERS {
            return Err(errno::EINVAL);
        }
        self.set_socket(&mut config, request)?;
        let mut renew = false;
        if let Some(key) = &request.private_key {
            let same = match (&config.private_key, key) {
                (Some(old), Some(new)) => old.public() == new.public(),
                (None, None) => true,
                _ => false,
            };
            renew = !same;
            config.private_key.clone_from(key);
        }
        if renew {
            let identity = config.private_key.as_ref().map(|key| {
                let private = key.secret();
                let public = x25519_dalek::PublicKey::from(&private);
                Arc::new(Identity {
                    limiter: RateLimiter::new(&public, HANDSHAKES_PER_SECOND),
                    checked: Arc::new(RateLimiter::new(&public, u64::MAX)),
                    private,
                    public,
                })
            });
            replace(&self.identity, identity);
        }
        if request.replace_peers {
            let named: BTreeSet<PublicKey> = request.peers.iter().map(|peer| peer.public_key).collect();
            let gone: Vec<PublicKey> = config.peers.keys().filter(|key| !named.contains(key)).copied().collect();
            for key in gone {
                self.remove_peer(&mut config, key);
            }
        }
        let mut changed = BTreeSet::new();
        for peer in &request.peers {
            if self.set_peer(&mut config, peer) {
                changed.insert(peer.public_key);
            }
        }
        // A device does not talk to itself; the kernel drops such a peer without a word, too.
        if let Some(own) = config.private_key.as_ref().map(PrivateKey::public) {
            self.remove_peer(&mut config, own);
        }
        let identity = self.identity();
        let mut start = Vec::new();
        for (key, peer) in &config.peers {
            if renew || changed.contains(key) {
                self.renew_session(peer, identity.as_deref());
            }
        }
        for peer in request.peers.iter().filter(|peer| peer.keepalive.is_some_and(|seconds| seconds > 0)) {
            start.extend(config.peers.get(&peer.public_key).map(|config| Arc::clone(&config.peer)));
        }
        self.publish(&config);
        drop(config);
        // Who has a keepalive wants its path open at once, not after the first interval.
        for peer in start {
            let mut crypto = peer.lock();
            if !crypto.has_session() {
                crypto.last_sent = None;
            }
        }
        self.wakes.timers.signal();
        Ok(())
    }

    /// Port and mark, first of all: they can fail.
    fn set_socket(&self, config: &mut Config, request: &SetDevice) -> Result<(), i32> {
        let fwmark = request.fwmark.unwrap_or(config.fwmark);
        let socket = self.socket(0);
        // wg sends the port again with every change; only another one is a reason to move.
        let wanted = request.listen_port.filter(|port| {
            *port != config.listen_port
                || socket.is_none()
                || (*port != 0 && socket.as_ref().and_then(|socket| socket.port().ok()) != Some(*port))
        });
        if let Some(port) = wanted {
            let sockets = self.factory.bind(port, fwmark, self.tuns.len()).map_err(|error| {
                super::log(&format!("cannot bind port {port}: {error}"));
                error.raw_os_error().unwrap_or(errno::EIO)
            })?;
            replace(&self.sockets, sockets.into());
            config.listen_port = port;
            self.wakes.inbound.iter().for_each(Wake::signal);
        } else if let Some(mark) = request.fwmark {
            for socket in read(&self.sockets).iter() {
                socket.set_mark(mark.unwrap_or(0)).map_err(|error| error.raw_os_error().unwrap_or(errno::EIO))?;
            }
        }
        config.fwmark = fwmark;
        Ok(())
    }

    /// Applies one section; returns whether the peer's session must begin anew.
    fn set_peer(&self, config: &mut Config, request: &SetPeer) -> bool {
        let key = request.public_key;
        if request.remove {
            self.remove_peer(config, key);
            return false;
        }
        let mut renew = false;
        if !config.peers.contains_key(&key) {
            if request.update_only {
                return false;
            }
            let slot = config.free_slots.pop().unwrap_or_else(|| {
                config.next_slot += 1;
                config.next_slot - 1
            });
            let peer = Arc::new(Peer::new(key, slot));
            config.peers.insert(key, PeerConfig { peer, preshared_key: None, allowed_ips: BTreeSet::new() });
            renew = true;
        }
        let Config { peers, owners, .. } = config;
        let Some(entry) = peers.get_mut(&key) else { return false };
        if let Some(preshared) = &request.preshared_key
            && *preshared != entry.preshared_key
        {
            entry.preshared_key.clone_from(preshared);
            renew = true;
        }
        {
            let mut crypto = entry.peer.lock();
            if let Some(endpoint) = request.endpoint
                && crypto.endpoint != Some(endpoint)
            {
                crypto.endpoint = Some(endpoint);
                // Another path may take what the old one refused.
                entry.peer.gso_refused.store(false, Ordering::Relaxed);
            }
            if let Some(seconds) = request.keepalive {
                crypto.keepalive = (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)));
            }
        }
        if request.replace_allowed_ips {
            for net in std::mem::take(&mut entry.allowed_ips) {
                owners.remove(&net);
            }
        }
        for (net, add) in &request.allowed_ips {
            let owned = config.peers.get_mut(&key);
            if *add {
                let before = config.owners.insert(*net, key);
                if let Some(entry) = owned {
                    entry.allowed_ips.insert(*net);
                }
                if let Some(before) = before.filter(|before| *before != key)
                    && let Some(other) = config.peers.get_mut(&before)
                {
                    other.allowed_ips.remove(net);
                    super::log(&format!("{net} moves from {before} to {key}: a prefix has one owner"));
                }
            } else if let Some(entry) = owned
                && entry.allowed_ips.remove(net)
            {
                config.owners.remove(net);
            }
        }
        renew
    }

    fn remove_peer(&self, config: &mut Config, key: PublicKey) {
        let Some(entry) = config.peers.remove(&key) else { return };
        for net in &entry.allowed_ips {
            config.owners.remove(net);
        }
        config.free_slots.push(entry.peer.slot);
        let mut crypto = entry.peer.lock();
        crypto.tunn = None;
        let dropped = crypto.staged.clear(&self.staged_bytes);
        self.counters.add(Event::DropStagedExpired, dropped);
    }

    /// Begins a peer's protocol state anew, as another key of either kind demands.
    fn renew_session(&self, entry: &PeerConfig, identity: Option<&Identity>) {
        let mut crypto = entry.peer.lock();
        crypto.unconfirmed = None;
        crypto.tunn = identity.map(|identity| {
            Tunn::new(
                identity.private.clone(),
                x25519_dalek::PublicKey::from(*entry.peer.key.as_bytes()),
                entry.preshared_key.as_ref().map(PresharedKey::bytes),
                // Kept by this engine's own timers: the library's first keepalive comes late, and none comes after it
                // has given up once.
                None,
                entry.peer.slot,
                Some(Arc::clone(&identity.checked)),
            )
        });
    }

    fn publish(&self, config: &Config) {
        let mut slots = vec![None; config.next_slot as usize];
        let mut by_key = BTreeMap::new();
        for (key, entry) in &config.peers {
            slots[entry.peer.slot as usize] = Some(Arc::clone(&entry.peer));
            by_key.insert(*key, entry.peer.slot);
        }
        let routes =
            Routes::new(config.owners.iter().filter_map(|(net, key)| Some((*net, config.peers.get(key)?.peer.slot))));
        replace(&self.table, Arc::new(Table { slots, routes, by_key }));
        self.table_generation.fetch_add(1, Ordering::Release);
    }

    /// The device as the UAPI shows it.
    #[must_use]
    pub fn get(&self) -> GetDevice {
        let config = lock(&self.config);
        let peers = config
            .peers
            .iter()
            .map(|(key, entry)| {
                let crypto = entry.peer.lock();
                GetPeer {
                    public_key: *key,
                    preshared_key: entry.preshared_key.clone(),
                    endpoint: crypto.endpoint,
                    last_handshake: crypto.last_handshake.map_or(LastHandshake::Never, |time| {
                        LastHandshake::At(time.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default())
                    }),
                    tx_bytes: entry.peer.tx_bytes.load(Ordering::Relaxed),
                    rx_bytes: entry.peer.rx_bytes.load(Ordering::Relaxed),
                    keepalive: crypto
                        .keepalive
                        .map_or(0, |interval| u16::try_from(interval.as_secs()).unwrap_or(u16::MAX)),
                    allowed_ips: entry.allowed_ips.iter().copied().collect(),
                }
            })
            .collect();
        let port = self.socket(0).and_then(|socket| socket.port().ok()).unwrap_or(config.listen_port);
        GetDevice { private_key: config.private_key.clone(), listen_port: Some(port), fwmark: config.fwmark, peers }
    }

    /// The engine's own counters.
    #[must_use]
    pub fn report(&self) -> Report {
        let sockets = read(&self.sockets);
        let granted = sockets.first().map(|socket| socket.granted()).unwrap_or_default();
        let tun = self.tuns[0].offloads();
        let table = self.table();
        let gso_refused = table.peers().any(|peer| peer.gso_refused.load(Ordering::Relaxed));
        let mut counters = self.counters.named();
        // Where the kernel does not tell, there is no figure, and not zero.
        let dropped: u64 = sockets.iter().filter_map(|socket| socket.dropped().ok()).sum();
        if dropped > 0 {
            counters.insert("drop.udp-receive-buffer".to_owned(), dropped);
        }
        let icmp = lock(&self.icmp_destinations).clone();
        let handshakes = |peer: &Peer| {
            let crypto = peer.lock();
            let icmp_errors = crypto.endpoint.and_then(|endpoint| icmp.get(&endpoint)).copied().unwrap_or(0);
            HandshakeCounters { icmp_errors, ..crypto.handshakes }
        };
        Report {
            engine: EngineStatus {
                offloads: Offloads {
                    tun_vnet_hdr: self.vnet_hdr(),
                    tun_tso: tun.tso && !self.tun_offload_off(),
                    tun_uso: tun.uso && !self.tun_offload_off(),
                    udp_gso: granted.gso && !gso_refused,
                    udp_gro: granted.gro,
                },
                lanes: self.tuns.len(),
                offload_notes: lock(&self.offload_notes).clone(),
                udp_buffers: UdpBuffers {
                    asked: UDP_BUFFER as u64,
                    receive_granted: granted.receive_buffer as u64,
                    send_granted: granted.send_buffer as u64,
                    forced: granted.forced,
                },
                counters,
                udp_send_errors: self.counters.udp_send_errors(),
                tun_write_errors: self.counters.tun_write_errors(),
                icmp_errors: self.counters.icmp_errors(),
                unknown_caller: *lock(&self.unknown_caller),
            },
            handshakes: table.peers().map(|peer| (peer.key, handshakes(peer))).collect(),
        }
    }
}
