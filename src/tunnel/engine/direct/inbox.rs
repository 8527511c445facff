//! What has come out of the tunnel and waits for its socket.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::packet::ip::{self, Transport};
use crate::sys::clock;
use crate::sys::tun::TunOffloads;
use crate::tunnel::engine::embedded::io::{Level, TunBatch, TunDevice};

/// What a datagram takes of a capacity at least, as if its headers counted: empty ones would else be without number.
const LEAST_BYTES: usize = 64;

/// The inboxes of a tunnel by their address. To the engine it is the device.
#[derive(Debug)]
pub(super) struct Inboxes {
    open: RwLock<BTreeMap<SocketAddrV4, Arc<Inbox>>>,
    /// Packets for which there was no inbox.
    unclaimed: AtomicU64,
    /// Never set: packets to be sent come another way.
    never: Level,
}

impl Inboxes {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { open: RwLock::default(), unclaimed: AtomicU64::new(0), never: Level::new()? })
    }

    /// An inbox at `local`; `None` where there is one.
    pub(super) fn open(&self, local: SocketAddrV4, capacity: usize) -> io::Result<Option<Arc<Inbox>>> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if open.contains_key(&local) {
            return Ok(None);
        }
        let inbox = Arc::new(Inbox { queue: Mutex::default(), capacity, readable: Level::new()? });
        open.insert(local, Arc::clone(&inbox));
        Ok(Some(inbox))
    }

    pub(super) fn close(&self, local: SocketAddrV4) {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&local);
    }

    pub(super) fn unclaimed(&self) -> u64 {
        self.unclaimed.load(Ordering::Relaxed)
    }

    fn deliver(&self, packet: &[u8]) {
        let read = ip::transport(packet).and_then(|at| Some((udp(packet, at)?, packet.get(at.payload..)?)));
        let inbox = read.and_then(|((from, to), payload)| {
            let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
            Some((Arc::clone(open.get(&to)?), from, payload))
        });
        match inbox {
            Some((inbox, from, payload)) if inbox.put(from, payload) => {}
            _ => {
                self.unclaimed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Source and destination of a UDP packet in IPv4.
fn udp(packet: &[u8], at: Transport) -> Option<(SocketAddrV4, SocketAddrV4)> {
    if (at.version, at.protocol) != (4, ip::UDP) {
        return None;
    }
    let address = |ip: usize, port: usize| {
        let ip: [u8; 4] = *packet.get(ip..)?.first_chunk()?;
        let port: [u8; 2] = *packet.get(port..)?.first_chunk()?;
        Some(SocketAddrV4::new(Ipv4Addr::from(ip), u16::from_be_bytes(port)))
    };
    let addresses = at.addresses().start;
    Some((address(addresses, at.transport)?, address(addresses + 4, at.transport + 2)?))
}

impl TunDevice for Inboxes {
    fn read(&self, batch: &mut TunBatch) -> io::Result<()> {
        batch.clear();
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        match parts {
            [whole] => self.deliver(whole),
            parts => self.deliver(&parts.iter().flat_map(|part| part.iter().copied()).collect::<Vec<u8>>()),
        }
        Ok(())
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.never.as_fd()
    }

    fn vnet_hdr(&self) -> bool {
        false
    }

    fn offloads(&self) -> TunOffloads {
        TunOffloads::default()
    }

    fn is_read(&self) -> bool {
        false
    }
}

/// Datagrams for one socket.
#[derive(Debug)]
pub(super) struct Inbox {
    queue: Mutex<Queue>,
    /// Bytes that it holds at most.
    capacity: usize,
    /// Set while the queue holds something.
    pub(super) readable: Level,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: VecDeque<Entry>,
    /// Their bytes, one after the other, from `head` on.
    bytes: Vec<u8>,
    head: usize,
    /// Who alone may send here.
    pub(super) peer: Option<SocketAddrV4>,
    /// Whether arrivals are noted.
    pub(super) stamps: bool,
    /// What did not fit. It wraps around, as the kernel's does.
    pub(super) dropped: u32,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    from: SocketAddrV4,
    len: usize,
    arrived_ns: Option<u64>,
}

/// A datagram that has come.
#[derive(Debug, Clone, Copy)]
pub struct Arrived<'a> {
    /// Who sent it.
    pub from: SocketAddrV4,
    /// Its payload.
    pub payload: &'a [u8],
    /// When it came, by the monotonic clock, if that is noted.
    pub arrived_ns: Option<u64>,
}

impl Inbox {
    pub(super) fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a datagram, or counts it as dropped; `false` where it is for nobody: the socket listens to another one.
    fn put(&self, from: SocketAddrV4, payload: &[u8]) -> bool {
        let mut queue = self.lock();
        if queue.peer.is_some_and(|peer| peer != from) {
            return false;
        }
        let full = queue.bytes.len() - queue.head + payload.len() > self.capacity;
        if full || queue.entries.len() * LEAST_BYTES > self.capacity {
            queue.dropped = queue.dropped.wrapping_add(1);
            return true;
        }
        let was_empty = queue.entries.is_empty();
        let arrived_ns = queue.stamps.then(clock::now_ns);
        queue.entries.push_back(Entry { from, len: payload.len(), arrived_ns });
        queue.bytes.extend_from_slice(payload);
        if was_empty {
            self.readable.set();
        }
        true
    }

    /// Gives the oldest datagrams to `each` until it wants no more; what it did not take (`false`) stays. Tells how many went.
    pub(super) fn take(&self, mut each: impl FnMut(Arrived<'_>) -> bool) -> usize {
        let mut queue = self.lock();
        let mut taken = 0;
        while let Some(&Entry { from, len, arrived_ns }) = queue.entries.front() {
            let payload = &queue.bytes[queue.head..queue.head + len];
            if !each(Arrived { from, payload, arrived_ns }) {
                break;
            }
            taken += 1;
            queue.head += len;
            queue.entries.pop_front();
        }
        if taken > 0 && queue.entries.is_empty() {
            queue.bytes.clear();
            queue.head = 0;
            self.readable.clear();
        } else if queue.head > self.capacity {
            let head = std::mem::take(&mut queue.head);
            queue.bytes.drain(..head);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_datagrams_do_not_fill_the_memory() {
        let from = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
        let inbox = Inbox { queue: Mutex::default(), capacity: 1000, readable: Level::new().unwrap() };
        assert!((0..100_000).all(|_| inbox.put(from, &[])));
        assert_eq!(inbox.take(|arrived| arrived.payload.is_empty()), 16);
        assert_eq!(inbox.lock().dropped, 100_000 - 16);
        assert!(inbox.put(from, &[1; 1000]));
    }
}
