//! Events of the engine, counted.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

macro_rules! events {
    ($($variant:ident = $name:literal: $doc:literal,)*) => {
        /// What is counted. A name's first word is the place.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Event { $(#[doc = $doc] $variant,)* }

        const NAMES: &[&str] = &[$($name),*];
    };
}

events! {
    TunReads = "tun.reads": "Reads that brought a packet or super-packet.",
    TunReadPackets = "tun.read-packets": "Packets out of them, after splitting.",
    TunReadErrors = "tun.read-errors": "Reads that failed, and were tried again.",
    TunWrites = "tun.writes": "Writes of a packet or super-packet.",
    TunWritePackets = "tun.write-packets": "Packets in them.",
    UdpSends = "udp.sends": "System calls that sent.",
    UdpSentDatagrams = "udp.sent-datagrams": "Datagrams that they took.",
    UdpReceives = "udp.receives": "System calls that received.",
    UdpReceivedMessages = "udp.received-messages": "Messages that they brought; several datagrams each where the kernel merges.",
    UdpReceivedDatagrams = "udp.received-datagrams": "Datagrams in them.",
    UdpReceiveErrors = "udp.receive-errors": "Receives that failed for no reason that the network reported, and were tried again.",
    Handovers = "lane.handovers": "Times that a lane's way out went to a thread of its own, since packets came in numbers.",
    AnswersAwake = "lane.answers-awake": "Answers that a lane's thread had waited for awake.",
    CookiesSent = "handshake.cookies-sent": "Cookie replies: this end is under load.",
    Roamed = "peer.roamed": "Endpoints that changed because a peer was heard from elsewhere.",
    DropNoRoute = "drop.no-route": "Inner packets whose destination no peer owns.",
    DropNoEndpoint = "drop.no-endpoint": "Inner packets for a peer whose address is not known.",
    DropNotIp = "drop.not-ip": "Reads from the device that were no IP packet, or contradicted their header.",
    DropStaged = "drop.staged": "Inner packets beyond the queue that waits for a handshake.",
    DropStagedExpired = "drop.staged-expired": "Inner packets whose handshake never came.",
    DropNotEncrypted = "drop.not-encrypted": "Inner packets for which the session or the endpoint was gone when their turn came.",
    DropUdpSend = "drop.udp-send": "Datagrams that could not be sent.",
    DropTunWrite = "drop.tun-write": "Packets that the device refused.",
    DropMalformed = "drop.malformed": "Datagrams that are no message of the protocol.",
    DropTruncated = "drop.truncated": "Datagrams that arrived cut.",
    DropUnknownIndex = "drop.unknown-index": "Datagrams for a session that does not exist.",
    DropAead = "drop.aead": "Data that did not decrypt.",
    DropReplay = "drop.replay": "Data that came twice, or too late to tell.",
    DropInner = "drop.inner": "Decrypted data that is no IP packet.",
    DropSource = "drop.source": "Decrypted packets with a source that belongs to another peer or to none.",
    DropMac1 = "drop.handshake-mac1": "Handshake messages that are not for this key.",
    DropUnderLoad = "drop.handshake-queue": "Handshake messages beyond the queue.",
    DropHandshakeAead = "drop.handshake-aead": "Handshake messages that did not decrypt.",
    DropUnknownPeer = "drop.handshake-unknown-peer": "Initiations of keys that are no peer here.",
    DropHandshake = "drop.handshake-other": "Handshake messages out of place or time.",
    OffloadRefused = "offload.refused": "Batches that were refused as such and went one by one.",
}

/// Alone on its cache lines (which processors fetch in pairs): the directions count on different processors.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU64);

/// Counters of one device. Threads add once per batch, so they may share them.
#[derive(Debug)]
pub struct Counters {
    events: [Count; NAMES.len()],
    udp_send_errors: Mutex<BTreeMap<i32, u64>>,
    tun_write_errors: Mutex<BTreeMap<i32, u64>>,
    icmp_errors: Mutex<BTreeMap<i32, u64>>,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            events: std::array::from_fn(|_| Count::default()),
            udp_send_errors: Mutex::default(),
            tun_write_errors: Mutex::default(),
            icmp_errors: Mutex::default(),
        }
    }
}

impl Counters {
    /// Adds `count` to an event.
    pub fn add(&self, event: Event, count: usize) {
        if count > 0 {
            self.events[event as usize].0.fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    /// How often an event happened.
    #[must_use]
    pub fn get(&self, event: Event) -> u64 {
        self.events[event as usize].0.load(Ordering::Relaxed)
    }

    pub(super) fn udp_send_error(&self, error: &io::Error, datagrams: usize) {
        self.add(Event::DropUdpSend, datagrams);
        count(&self.udp_send_errors, error.raw_os_error().unwrap_or(0), datagrams);
    }

    pub(super) fn tun_write_error(&self, error: &io::Error, packets: usize) {
        self.add(Event::DropTunWrite, packets);
        count(&self.tun_write_errors, error.raw_os_error().unwrap_or(0), packets);
    }

    pub(super) fn icmp_error(&self, errno: i32) {
        count(&self.icmp_errors, errno, 1);
    }

    /// Events that happened, by name.
    #[must_use]
    pub fn named(&self) -> BTreeMap<String, u64> {
        NAMES
            .iter()
            .zip(&self.events)
            .map(|(name, value)| ((*name).to_owned(), value.0.load(Ordering::Relaxed)))
            .filter(|(_, value)| *value > 0)
            .collect()
    }

    pub(super) fn udp_send_errors(&self) -> BTreeMap<String, u64> {
        by_name(&self.udp_send_errors)
    }

    pub(super) fn tun_write_errors(&self) -> BTreeMap<String, u64> {
        by_name(&self.tun_write_errors)
    }

    pub(super) fn icmp_errors(&self) -> BTreeMap<String, u64> {
        by_name(&self.icmp_errors)
    }
}

fn count(map: &Mutex<BTreeMap<i32, u64>>, errno: i32, times: usize) {
    *map.lock().unwrap_or_else(PoisonError::into_inner).entry(errno).or_default() += times as u64;
}

fn by_name(map: &Mutex<BTreeMap<i32, u64>>) -> BTreeMap<String, u64> {
    let map = map.lock().unwrap_or_else(PoisonError::into_inner);
    map.iter().map(|(errno, count)| (format!("{:?}", nix::errno::Errno::from_raw(*errno)), *count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_happened_is_named() {
        let counters = Counters::default();
        assert!(counters.named().is_empty());
        counters.add(Event::OffloadRefused, 2);
        counters.add(Event::TunReads, 0);
        counters.udp_send_error(&io::Error::from_raw_os_error(libc::ENOBUFS), 3);
        let named: Vec<_> = counters.named().into_iter().collect();
        assert_eq!(named, [("drop.udp-send".to_owned(), 3), ("offload.refused".to_owned(), 2)]);
        assert_eq!(counters.udp_send_errors().into_iter().collect::<Vec<_>>(), [("ENOBUFS".to_owned(), 3)]);
    }

    #[test]
    fn names_are_distinct() {
        let distinct: std::collections::BTreeSet<_> = NAMES.iter().collect();
        assert_eq!(distinct.len(), NAMES.len());
    }
}
