//! Fakes of the TUN device and the outer socket: in memory, without privileges, with faults on demand.
//!
//! They ship beside the traits that they implement, so that whatever runs on the kernel can be run on them: two engines on
//! one [`FakeNet`] are a tunnel without a kernel.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::io::{Level, OuterSocket, SocketFactory, TunBatch, TunDevice};
use crate::packet::vnet::{Gso, VNET_HDR_LEN, VnetHeader};
use crate::sys::tun::TunOffloads;
use crate::sys::udp::{
    MAX_PAYLOAD_IPV4, MAX_PAYLOAD_IPV6, MAX_SEGMENTS, NetworkError, ReceiveBatch, SendScratch, Transmit, UdpGranted,
};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A TUN device in memory.
#[derive(Debug)]
pub struct FakeTun {
    vnet_hdr: bool,
    offloads: TunOffloads,
    state: Mutex<TunState>,
    written: Condvar,
    readable: Level,
}

#[derive(Debug, Default)]
struct TunState {
    to_read: VecDeque<Vec<u8>>,
    written: Vec<Vec<u8>>,
    /// Errno for writes of super-packets, and for all.
    refuse_super: Option<i32>,
    refuse_all: Option<i32>,
    /// Errno for so many reads.
    fail_reads: (usize, i32),
}

impl FakeTun {
    /// A device with or without a virtio-net header.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new(vnet_hdr: bool, offloads: TunOffloads) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            vnet_hdr,
            offloads,
            state: Mutex::default(),
            written: Condvar::new(),
            readable: Level::new()?,
        }))
    }

    /// Hands a packet, with its virtio-net header if the device has one, to whoever reads.
    pub fn push(&self, packet: Vec<u8>) {
        let mut state = lock(&self.state);
        state.to_read.push_back(packet);
        self.readable.set();
    }

    /// Hands several packets over at once: none can be read before all are there.
    pub fn push_all(&self, packets: impl IntoIterator<Item = Vec<u8>>) {
        let mut state = lock(&self.state);
        state.to_read.extend(packets);
        self.readable.set();
    }

    /// Refuses writes of super-packets with this errno from now on.
    pub fn refuse_super_packets(&self, errno: Option<i32>) {
        lock(&self.state).refuse_super = errno;
    }

    /// Refuses all writes with this errno from now on.
    pub fn refuse_writes(&self, errno: Option<i32>) {
        lock(&self.state).refuse_all = errno;
    }

    /// Lets the next `count` reads fail with this errno.
    pub fn fail_reads(&self, count: usize, errno: i32) {
        lock(&self.state).fail_reads = (count, errno);
        self.readable.set();
    }

    /// Takes what was written, as soon as there are `at_least` packets or super-packets, or the time is over.
    pub fn take_written(&self, at_least: usize, timeout: Duration) -> Vec<Vec<u8>> {
        let deadline = Instant::now() + timeout;
        let mut state = lock(&self.state);
        while state.written.len() < at_least {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.written.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::take(&mut state.written)
    }
}

impl TunDevice for FakeTun {
    fn read(&self, batch: &mut TunBatch) -> io::Result<()> {
        batch.clear();
        let mut state = lock(&self.state);
        if let (left @ 1.., errno) = state.fail_reads {
            state.fail_reads.0 = left - 1;
            return Err(io::Error::from_raw_os_error(errno));
        }
        // As the kernel's: whether there is more is known only by asking with room for it.
        while let Some(space) = batch.space() {
            let Some(packet) = state.to_read.front() else {
                batch.set_drained();
                break;
            };
            let Some(space) = space.get_mut(..packet.len()) else { return Err(io::ErrorKind::InvalidInput.into()) };
            space.copy_from_slice(packet);
            batch.commit(packet.len());
            state.to_read.pop_front();
        }
        // It is not ready any more, whether the reader knows that or not.
        if state.to_read.is_empty() {
            self.readable.clear();
        }
        if batch.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let packet: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let is_super = self.vnet_hdr && VnetHeader::decode(&packet).is_ok_and(|header| header.gso != Gso::None);
        let mut state = lock(&self.state);
        if let Some(errno) = state.refuse_all.or_else(|| state.refuse_super.filter(|_| is_super)) {
            return Err(io::Error::from_raw_os_error(errno));
        }
        state.written.push(packet);
        self.written.notify_all();
        Ok(())
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    fn vnet_hdr(&self) -> bool {
        self.vnet_hdr
    }

    fn offloads(&self) -> TunOffloads {
        self.offloads
    }
}

/// What goes wrong on a [`FakeNet`].
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Errno for sends of several datagrams as one.
    pub refuse_batches: Option<i32>,
    /// Errno for every send to this address.
    pub refuse_destination: Option<(SocketAddr, i32)>,
    /// At most this many transmits go per call, and every second call is `EAGAIN`.
    pub partial: Option<usize>,
    /// Every datagram whose number is divisible by this is lost.
    pub lose_every: Option<u64>,
    /// Every datagram is delivered this many times more.
    pub duplicates: usize,
    /// Datagrams longer than this arrive cut to it.
    pub truncate: Option<usize>,
    /// Every message is said to be cut.
    pub say_truncated: bool,
    /// Every send to this address is `EAGAIN`.
    pub full_towards: Option<SocketAddr>,
    /// Each of so many sends fails with an errno that the network reported for an earlier one.
    pub reports: (usize, i32),
    /// Whether those reports lie in the error queue, and were not taken by somebody else.
    pub reports_kept: bool,
    /// So many receives fail for want of memory.
    pub fail_receives: usize,
}

/// A network in memory: datagrams go to whoever bound their destination.
#[derive(Debug, Default)]
pub struct FakeNet {
    state: Mutex<NetState>,
}

#[derive(Debug, Default)]
struct NetState {
    sockets: BTreeMap<SocketAddr, Arc<Inbox>>,
    faults: Faults,
    captured: Vec<Capture>,
    calls: u64,
    datagrams: u64,
    /// Reports in the error queue.
    reported: usize,
    /// The most bytes that a send had which was more than the kernel takes.
    refused: Option<usize>,
}

/// A datagram that was seen on the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    /// Who sent it.
    pub from: SocketAddr,
    /// For whom.
    pub to: SocketAddr,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
struct Inbox {
    /// Runs of datagrams that are delivered as one, each with the length of its parts.
    queue: Mutex<VecDeque<(SocketAddr, Vec<u8>, usize)>>,
    readable: Level,
}

impl FakeNet {
    /// An empty network.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Changes what goes wrong.
    pub fn set_faults(&self, faults: Faults) {
        lock(&self.state).faults = faults;
    }

    /// Takes what was sent so far.
    pub fn take_captured(&self) -> Vec<Capture> {
        std::mem::take(&mut lock(&self.state).captured)
    }

    /// The most bytes that anybody tried to send at once beyond what the kernel takes.
    #[must_use]
    pub fn largest_refused(&self) -> Option<usize> {
        lock(&self.state).refused
    }

    /// Sends a datagram as if from `from`. Returns whether somebody is there.
    pub fn inject(&self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) -> bool {
        let Some(inbox) = lock(&self.state).sockets.get(&to).cloned() else { return false };
        inbox.deliver(from, bytes, bytes.len());
        true
    }

    /// A factory of sockets with the address `address`.
    #[must_use]
    pub fn factory(self: &Arc<Self>, address: IpAddr, granted: UdpGranted) -> Box<dyn SocketFactory> {
        Box::new(FakeFactory { net: Arc::clone(self), address, granted })
    }
}

impl Inbox {
    fn deliver(&self, from: SocketAddr, bytes: &[u8], segment: usize) {
        let mut queue = lock(&self.queue);
        queue.push_back((from, bytes.to_vec(), segment));
        self.readable.set();
    }
}

#[derive(Debug)]
struct FakeFactory {
    net: Arc<FakeNet>,
    address: IpAddr,
    granted: UdpGranted,
}

impl SocketFactory for FakeFactory {
    fn bind(&self, port: u16, _fwmark: Option<u32>, count: usize) -> io::Result<Vec<Arc<dyn OuterSocket>>> {
        let mut state = lock(&self.net.state);
        let port = if port == 0 { 40_000 + state.sockets.len() as u16 } else { port };
        let address = SocketAddr::new(self.address, port);
        if state.sockets.contains_key(&address) {
            return Err(io::Error::from_raw_os_error(libc::EADDRINUSE));
        }
        let inbox = Arc::new(Inbox { queue: Mutex::default(), readable: Level::new()? });
        state.sockets.insert(address, Arc::clone(&inbox));
        // All sockets of the port share one inbox: whoever comes first takes what is there.
        let guard = Arc::new(Bound { net: Arc::clone(&self.net), address });
        let socket = || FakeSocket {
            net: Arc::clone(&self.net),
            address,
            inbox: Arc::clone(&inbox),
            granted: self.granted,
            _bound: Arc::clone(&guard),
        };
        Ok((0..count).map(|_| Arc::new(socket()) as Arc<dyn OuterSocket>).collect())
    }
}

/// A socket on a [`FakeNet`].
#[derive(Debug)]
struct FakeSocket {
    net: Arc<FakeNet>,
    address: SocketAddr,
    inbox: Arc<Inbox>,
    granted: UdpGranted,
    _bound: Arc<Bound>,
}

/// Frees the address when the last socket goes.
#[derive(Debug)]
struct Bound {
    net: Arc<FakeNet>,
    address: SocketAddr,
}

impl Drop for Bound {
    fn drop(&mut self) {
        lock(&self.net.state).sockets.remove(&self.address);
    }
}

impl OuterSocket for FakeSocket {
    fn send(&self, buffer: &[u8], transmits: &[Transmit], _scratch: &mut SendScratch) -> io::Result<usize> {
        let mut state = lock(&self.net.state);
        state.calls += 1;
        let faults = state.faults.clone();
        let is_full = transmits.first().is_some_and(|first| faults.full_towards == Some(first.to));
        if is_full || (faults.partial.is_some() && state.calls.is_multiple_of(2)) {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        if let (left @ 1.., errno) = faults.reports {
            state.faults.reports.0 = left - 1;
            state.reported += usize::from(faults.reports_kept);
            return Err(io::Error::from_raw_os_error(errno));
        }
        let mut sent = 0;
        for transmit in transmits.iter().take(faults.partial.unwrap_or(usize::MAX)) {
            // Linux, net/ipv4/udp.c, udp_send_skb, and the length field of IP.
            let most = if transmit.to.is_ipv4() { MAX_PAYLOAD_IPV4 } else { MAX_PAYLOAD_IPV6 };
            let too_much = transmit.len > most || transmit.datagrams() > MAX_SEGMENTS;
            if too_much {
                state.refused = state.refused.max(Some(transmit.len));
            }
            let refused = faults
                .refuse_batches
                .filter(|_| transmit.datagrams() > 1)
                .or_else(|| faults.refuse_destination.filter(|(to, _)| *to == transmit.to).map(|(_, errno)| errno))
                .or_else(|| too_much.then_some(libc::EMSGSIZE));
            if let Some(errno) = refused {
                return if sent > 0 { Ok(sent) } else { Err(io::Error::from_raw_os_error(errno)) };
            }
            sent += 1;
            let bytes = buffer.get(transmit.start..transmit.start + transmit.len).ok_or(io::ErrorKind::InvalidInput)?;
            let mut survivors = Vec::new();
            for datagram in bytes.chunks(transmit.segment.max(1)) {
                state.datagrams += 1;
                let lost = faults.lose_every.is_some_and(|every| state.datagrams.is_multiple_of(every));
                state.captured.push(Capture { from: self.address, to: transmit.to, bytes: datagram.to_vec() });
                if !lost {
                    survivors.extend(std::iter::repeat_n(datagram, 1 + faults.duplicates));
                }
            }
            let Some(inbox) = state.sockets.get(&transmit.to) else { continue };
            let all = survivors.len() == transmit.datagrams() && faults.truncate.is_none();
            if self.granted.gro && all {
                inbox.deliver(self.address, bytes, transmit.segment);
            } else {
                for datagram in survivors {
                    let cut = faults.truncate.unwrap_or(usize::MAX).min(datagram.len());
                    inbox.deliver(self.address, &datagram[..cut], cut);
                }
            }
        }
        Ok(sent)
    }

    fn receive(&self, batch: &mut ReceiveBatch) -> io::Result<()> {
        batch.clear();
        let say_truncated = {
            let mut state = lock(&self.net.state);
            if let Some(left) = state.faults.fail_receives.checked_sub(1) {
                state.faults.fail_receives = left;
                return Err(io::Error::from_raw_os_error(libc::ENOMEM));
            }
            state.faults.say_truncated
        };
        let mut queue = lock(&self.inbox.queue);
        while let Some((from, bytes, segment)) = queue.front() {
            if !batch.push(*from, bytes, *segment) {
                return Ok(());
            }
            if say_truncated {
                batch.mark_truncated();
            }
            queue.pop_front();
        }
        self.inbox.readable.clear();
        if batch.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    }

    fn take_network_error(&self) -> io::Result<Option<NetworkError>> {
        let mut state = lock(&self.net.state);
        let Some(left) = state.reported.checked_sub(1) else { return Ok(None) };
        state.reported = left;
        let destination = SocketAddr::new(self.address.ip(), 9);
        Ok(Some(NetworkError { destination, errno: libc::ECONNREFUSED, from_network: true }))
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.inbox.readable.as_fd()
    }

    fn granted(&self) -> UdpGranted {
        self.granted
    }

    fn port(&self) -> io::Result<u16> {
        Ok(self.address.port())
    }

    fn set_mark(&self, _mark: u32) -> io::Result<()> {
        Ok(())
    }

    fn dropped(&self) -> io::Result<u64> {
        Ok(0)
    }
}

/// Header bytes of a fake packet with a virtio-net header that says nothing.
#[must_use]
pub fn with_plain_header(packet: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(VNET_HDR_LEN + packet.len());
    out.extend_from_slice(&VnetHeader::COMPLETE.encode());
    out.extend_from_slice(packet);
    out
}
