//! One peer: its protocol state behind one lock, and what waits for it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use boringtun::noise::{Tunn, TunnResult};

use crate::tunnel::keys::PublicKey;
use crate::tunnel::status::HandshakeCounters;

/// Packets that wait for one peer's handshake (boringtun's own queue has this length, too).
const STAGED_PACKETS: usize = 256;
/// Bytes that wait for all handshakes of a device together.
const STAGED_BYTES: usize = 4 << 20;

/// First bytes of messages (whitepaper section 5.4).
pub(super) mod message {
    pub(in crate::tunnel::engine::embedded) const INITIATION: u8 = 1;
    pub(in crate::tunnel::engine::embedded) const RESPONSE: u8 = 2;
    pub(in crate::tunnel::engine::embedded) const COOKIE: u8 = 3;
    pub(in crate::tunnel::engine::embedded) const DATA: u8 = 4;
    pub(in crate::tunnel::engine::embedded) const INITIATION_LEN: usize = 148;
    pub(in crate::tunnel::engine::embedded) const RESPONSE_LEN: usize = 92;
    pub(in crate::tunnel::engine::embedded) const COOKIE_LEN: usize = 64;
    /// Header and tag of a data message.
    pub(in crate::tunnel::engine::embedded) const DATA_OVERHEAD: usize = 32;
    /// Numbers of data messages end here: 2^64 - 2^13 - 1 (whitepaper section 6.1).
    pub(in crate::tunnel::engine::embedded) const REJECT_AFTER_MESSAGES: u64 = u64::MAX - (1 << 13);
}

/// A peer of the device.
pub(super) struct Peer {
    /// Who it is.
    pub(super) key: PublicKey,
    /// Its place in the device's table, and the upper bits of its session indices.
    pub(super) slot: u32,
    /// UDP payload bytes that were authenticated.
    pub(super) rx_bytes: AtomicU64,
    /// UDP payload bytes that were handed to the socket.
    pub(super) tx_bytes: AtomicU64,
    /// Batches to this peer were refused: it is sent to one datagram at a time.
    pub(super) gso_refused: AtomicBool,
    /// For who waits for an answer.
    pub(super) heard: Heard,
    crypto: Mutex<Crypto>,
}

/// Answers to this end's initiations so far.
#[derive(Default)]
pub(super) struct Heard {
    answers: Mutex<Answers>,
    another: Condvar,
}

/// How many, and of which kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Answers {
    /// Responses that made a session.
    pub(super) responses: u64,
    /// Cookies: the peer wants the initiation again, with a proof of its address.
    pub(super) cookies: u64,
}

impl Heard {
    pub(super) fn so_far(&self) -> Answers {
        *self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hear(&self, note: impl FnOnce(&mut Answers)) {
        note(&mut self.answers.lock().unwrap_or_else(PoisonError::into_inner));
        self.another.notify_all();
    }

    /// What there is once it is not `before` any more, or the time is over.
    pub(super) fn after(&self, before: Answers, time: Duration) -> Answers {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.another.wait_timeout_while(answers, time, |now| *now == before);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// What only one thread at a time may use.
pub(super) struct Crypto {
    /// The protocol, once the device has a private key.
    pub(super) tunn: Option<Tunn>,
    pub(super) endpoint: Option<SocketAddr>,
    pub(super) keepalive: Option<Duration>,
    pub(super) last_sent: Option<Instant>,
    pub(super) last_handshake: Option<SystemTime>,
    pub(super) handshakes: HandshakeCounters,
    /// Our index of a session that is to be confirmed by the initiator's first data.
    pub(super) unconfirmed: Option<u32>,
    pub(super) staged: Staged,
}

/// Packets that wait for a session.
#[derive(Default)]
pub(super) struct Staged {
    packets: VecDeque<Vec<u8>>,
}

impl Staged {
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Keeps a copy of `packet`, if the peer's queue and the device's budget allow it.
    pub(super) fn push(&mut self, packet: &[u8], budget: &AtomicUsize) -> bool {
        if self.packets.len() >= STAGED_PACKETS || budget.load(Ordering::Relaxed) + packet.len() > STAGED_BYTES {
            return false;
        }
        budget.fetch_add(packet.len(), Ordering::Relaxed);
        self.packets.push_back(packet.to_vec());
        true
    }

    /// How long the next one is.
    pub(super) fn next_len(&self) -> Option<usize> {
        self.packets.front().map(Vec::len)
    }

    pub(super) fn pop(&mut self, budget: &AtomicUsize) -> Option<Vec<u8>> {
        let packet = self.packets.pop_front()?;
        budget.fetch_sub(packet.len(), Ordering::Relaxed);
        Some(packet)
    }

    /// Forgets all; returns how many that were.
    pub(super) fn clear(&mut self, budget: &AtomicUsize) -> usize {
        let mut count = 0;
        while self.pop(budget).is_some() {
            count += 1;
        }
        count
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("key", &self.key).field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl Peer {
    pub(super) fn new(key: PublicKey, slot: u32) -> Self {
        Self {
            key,
            slot,
            rx_bytes: AtomicU64::new(0),
            tx_bytes: AtomicU64::new(0),
            gso_refused: AtomicBool::new(false),
            heard: Heard::default(),
            crypto: Mutex::new(Crypto {
                tunn: None,
                endpoint: None,
                keepalive: None,
                last_sent: None,
                last_handshake: None,
                handshakes: HandshakeCounters::default(),
                unconfirmed: None,
                staged: Staged::default(),
            }),
        }
    }

    /// Takes the peer's lock. A thread that died with it left whole values behind: each is replaced at once.
    pub(super) fn lock(&self) -> MutexGuard<'_, Crypto> {
        self.crypto.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes where it is; `true` if it was elsewhere before.
    pub(super) fn is_at(&self, crypto: &mut Crypto, endpoint: SocketAddr) -> bool {
        let before = crypto.endpoint.replace(endpoint);
        if before != Some(endpoint) {
            // Another path may take what the old one refused.
            self.gso_refused.store(false, Ordering::Relaxed);
        }
        before.is_some_and(|before| before != endpoint)
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.tx_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.rx_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Crypto {
    /// Whether data can be encrypted now.
    pub(super) fn has_session(&self) -> bool {
        self.tunn.as_ref().is_some_and(|tunn| tunn.time_since_last_handshake().is_some())
    }

    /// Counts what `message` is, before it is sent.
    pub(super) fn note_sent(&mut self, message: &[u8]) {
        match message.first() {
            Some(&message::INITIATION) => self.handshakes.initiations_sent += 1,
            Some(&message::RESPONSE) => {
                self.handshakes.responses_sent += 1;
                // Our index of the new session, which the initiator will use.
                self.unconfirmed =
                    message.get(4..8).and_then(|index| index.first_chunk()).map(|b| u32::from_le_bytes(*b));
            }
            _ => {}
        }
    }

    pub(super) fn handshake_completed(&mut self) {
        self.handshakes.completed += 1;
        self.last_handshake = Some(SystemTime::now());
    }

    /// Starts a handshake into `buffer` unless one is on its way; returns the message's length.
    pub(super) fn initiate(&mut self, buffer: &mut [u8]) -> Option<usize> {
        self.endpoint?;
        let TunnResult::WriteToNetwork(message) = self.tunn.as_mut()?.format_handshake_initiation(buffer, false) else {
            return None;
        };
        let len = message.len();
        self.note_sent(&buffer[..len]);
        Some(len)
    }
}
