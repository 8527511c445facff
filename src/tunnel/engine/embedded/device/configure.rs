//! Configuration: what a `set` asks for, applied; what a `get` shows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use boringtun::noise::Tunn;
use boringtun::noise::rate_limiter::RateLimiter;
use ipnet::IpNet;

use super::{Device, Identity, Peer, Table, lock, read, replace};
use crate::tunnel::engine::embedded::counters::Event;
use crate::tunnel::engine::embedded::io::{OuterSocket, Wake};
use crate::tunnel::engine::embedded::log;
use crate::tunnel::engine::embedded::routes::Routes;
use crate::tunnel::keys::{PresharedKey, PrivateKey, PublicKey};
use crate::tunnel::uapi::{GetDevice, GetPeer, LastHandshake, SetDevice, SetPeer, errno};

/// Handshake messages in a second beyond which senders must prove their address with a cookie.
const HANDSHAKES_PER_SECOND: u64 = 1_000;
/// How long threads may take to let go of a socket that was replaced.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(200);
/// Session indices carry the peer's slot in 24 bits.
const MAX_PEERS: usize = 1 << 24;

/// What was configured.
#[derive(Default)]
pub(super) struct Config {
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

impl Device {
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
            // All go: who is named begins anew, with what its section says and nothing else. `wg setconf` counts on it, and says
            // nothing of a preshared key, an endpoint or a keepalive that the file does not have.
            for key in config.peers.keys().copied().collect::<Vec<_>>() {
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
        let current = self.socket(0).and_then(|socket| socket.port().ok());
        let wanted = match request.listen_port {
            // wg sends the port again with every change; only another one is a reason to move. Where the kernel chose the
            // port, asking for the same one keeps it.
            Some(port) if current == Some(port) => {
                config.listen_port = port;
                None
            }
            Some(port) if port != config.listen_port || port != 0 || current.is_none() => Some(port),
            Some(_) => None,
            // Nobody said which port, and there is somebody to talk to: any will do.
            None if current.is_none()
                && (matches!(request.private_key, Some(Some(_))) || !request.peers.is_empty()) =>
            {
                Some(config.listen_port)
            }
            None => None,
        };
        if let Some(port) = wanted {
            let sockets = self.factory.bind(port, fwmark, self.tuns.len()).map_err(|error| {
                log(&format!("cannot bind port {port}: {error}"));
                error.raw_os_error().unwrap_or(errno::EIO)
            })?;
            let old: Vec<Weak<dyn OuterSocket>> = read(&self.sockets).iter().map(Arc::downgrade).collect();
            replace(&self.sockets, sockets.into());
            config.listen_port = port;
            self.wakes.lanes.iter().for_each(Wake::signal);
            // The old port is free when this is answered, unless a thread is stuck with it.
            let begin = Instant::now();
            while old.iter().any(|socket| socket.strong_count() > 0) && begin.elapsed() < LEAVE_TIMEOUT {
                std::thread::sleep(Duration::from_millis(1));
            }
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
            if let Some(endpoint) = request.endpoint {
                entry.peer.is_at(&mut crypto, endpoint);
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
                    log(&format!("{net} moves from {before} to {key}: a prefix has one owner"));
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
                        LastHandshake::At(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
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
        GetDevice {
            private_key: config.private_key.clone(),
            own_public_key: None,
            listen_port: Some(port),
            fwmark: config.fwmark,
            peers,
        }
    }
}
