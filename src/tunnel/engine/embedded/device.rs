//! The device that all threads share: keys, peers, routes, the outer socket.
//!
//! Configuration changes rarely and is read for every batch, so what threads read is a [`Table`] that never changes and is
//! replaced whole.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use boringtun::noise::rate_limiter::RateLimiter;
use x25519_dalek::StaticSecret;

use super::Report;
use super::counters::{Counters, Event};
use super::io::{OuterSocket, SocketFactory, TunDevice, UDP_BUFFER, Wake};
use super::peer::Peer;
use super::routes::Routes;
use crate::sys::udp::{Transmit, UdpGranted};
use crate::tunnel::keys::PublicKey;
use crate::tunnel::status::{EngineStatus, HandshakeCounters, Offloads, UdpBuffers};

mod configure;

use configure::Config;

/// Destinations whose ICMP errors are told apart.
const ICMP_DESTINATIONS: usize = 4096;

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
    pub(super) lanes: Vec<Wake>,
    pub(super) helpers: Vec<Wake>,
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
            wakes: Wakes { lanes: wakes()?, helpers: wakes()?, timers: Wake::new()? },
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
        let Wakes { lanes, helpers, timers } = &self.wakes;
        lanes.iter().chain(helpers).chain([timers]).for_each(Wake::signal);
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

    /// The device refused a super-packet and took its packets: they go to it singly from now on, and that is said, once. A
    /// lack of memory passes, and decides nothing.
    pub(super) fn tun_offload_refused(&self, error: &io::Error) {
        self.counters.add(Event::OffloadRefused, 1);
        let passes = matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::ENOBUFS | libc::EAGAIN));
        if !passes && !self.tun_offload_off.swap(true, Ordering::Relaxed) {
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

    /// The engine's own counters.
    #[must_use]
    pub fn report(&self) -> Report {
        let sockets = read(&self.sockets);
        // Of several sockets, what all of them have.
        let granted = sockets.iter().map(|socket| socket.granted()).reduce(UdpGranted::and);
        let tun = self.tuns[0].offloads();
        let table = self.table();
        let gso_refused = table.peers().any(|peer| peer.gso_refused.load(Ordering::Relaxed));
        let mut counters = self.counters.named();
        // Where the kernel does not tell of each, there is no figure, and not zero.
        let dropped: io::Result<u64> = sockets.iter().map(|socket| socket.dropped()).sum();
        if let Ok(dropped @ 1..) = dropped {
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
                    udp_gso: granted.is_some_and(|granted| granted.gso) && !gso_refused,
                    udp_gro: granted.is_some_and(|granted| granted.gro),
                },
                lanes: self.tuns.len(),
                offload_notes: lock(&self.offload_notes).clone(),
                udp_buffers: granted.map(|granted| UdpBuffers {
                    asked: UDP_BUFFER as u64,
                    receive_granted: granted.receive_buffer as u64,
                    send_granted: granted.send_buffer as u64,
                    forced: granted.forced,
                }),
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
