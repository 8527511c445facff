//! From the outer socket to the TUN device, for one socket of the port, where the
//! kernel gives all datagrams of a sender to the same one.
//!
//! ```text
//! receive a batch -> find each session's peer -> lock it -> decrypt, one behind the other -> check the source
//!                 -> coalesce -> write                 handshake messages -> their own thread
//! ```

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};

use boringtun::noise::TunnResult;
use boringtun::noise::errors::WireGuardError;

use super::batch::SendBatch;
use super::counters::Event;
use super::device::{Device, Table};
use super::handshake::Message;
use super::io::{OuterSocket, TunDevice};
use super::outbound::send_staged;
use super::peer::{Crypto, Peer, message};
use super::turn::Turn;
use crate::packet::coalesce::{Coalescer, Taken};
use crate::sys::udp::ReceiveBatch;

/// Decrypted packets that are held before they are written: two super-packets.
const ARENA: usize = 128 << 10;
/// The longest datagram.
const MAX_DATAGRAM: usize = 65_535;

/// The way in of one lane.
pub(super) struct Inbound {
    batch: ReceiveBatch,
    decrypt: Decrypt,
}

/// What becomes of a batch.
struct Decrypt {
    device: Arc<Device>,
    handshakes: SyncSender<Message>,
    writer: Writer,
    out: SendBatch,
    table: (u64, Arc<Table>),
    last_source: Option<(IpAddr, Option<u32>)>,
}

impl Inbound {
    pub(super) fn new(device: &Arc<Device>, lane: usize, handshakes: SyncSender<Message>) -> io::Result<Self> {
        let decrypt = Decrypt {
            device: Arc::clone(device),
            handshakes,
            writer: Writer::new(device, lane),
            out: SendBatch::new(lane)?,
            table: (0, device.table()),
            last_source: None,
        };
        Ok(Self { batch: ReceiveBatch::default(), decrypt })
    }

    /// Takes what `socket` has by one call.
    pub(super) fn turn(&mut self, socket: &dyn OuterSocket) -> Turn {
        let Self { batch, decrypt } = self;
        match socket.receive(batch) {
            Ok(()) => Turn { packets: decrypt.batch(batch), more: !batch.drained(), blocked: false },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Turn { more: true, ..Turn::default() },
            // Reports in the error queue make it ready as well.
            Err(error) => {
                let reports = decrypt.device.take_network_errors(socket);
                let blocked = reports == 0 && error.kind() != io::ErrorKind::WouldBlock;
                decrypt.device.counters.add(Event::UdpReceiveErrors, usize::from(blocked));
                Turn { blocked, ..Turn::default() }
            }
        }
    }
}

impl Decrypt {
    fn batch(&mut self, batch: &ReceiveBatch) -> usize {
        let generation = self.table.0;
        self.device.refresh(&mut self.table);
        if generation != self.table.0 {
            self.last_source = None;
        }
        let device = Arc::clone(&self.device);
        let counters = &device.counters;
        counters.add(Event::UdpReceives, 1);
        counters.add(Event::UdpReceivedMessages, batch.len());
        let table = Arc::clone(&self.table.1);
        let mut datagrams = batch
            .iter()
            .flat_map(|message| {
                let last = message.data.len().saturating_sub(1) / message.segment;
                let damaged = message.truncated;
                // An empty datagram has no chunk, and is malformed like any other that is too short.
                let empty = message.data.is_empty().then_some((message.from, message.data, false));
                let each = message
                    .data
                    .chunks(message.segment)
                    .enumerate()
                    .map(move |(index, data)| (message.from, data, damaged && index == last));
                each.chain(empty)
            })
            .peekable();
        let mut count = 0;
        while let Some((from, datagram, truncated)) = datagrams.next() {
            count += 1;
            if truncated {
                counters.add(Event::DropTruncated, 1);
                continue;
            }
            let Some(index) = data_index(datagram) else {
                self.other(from, datagram);
                continue;
            };
            let Some(peer) = table.peer_of_index(index) else {
                counters.add(Event::DropUnknownIndex, 1);
                continue;
            };
            // One lock for the data in a row that is for this peer.
            let mut crypto = peer.lock();
            self.one(peer, &mut crypto, from, index, datagram);
            while let Some((from, datagram, index)) = datagrams
                .next_if(|(_, data, truncated)| {
                    !truncated && data_index(data).is_some_and(|next| next >> 8 == peer.slot)
                })
                .and_then(|(from, data, _)| Some((from, data, data_index(data)?)))
            {
                count += 1;
                self.one(peer, &mut crypto, from, index, datagram);
            }
            if !crypto.staged.is_empty() && crypto.has_session() {
                send_staged(&self.device, peer, &mut crypto, &mut self.out);
            }
        }
        counters.add(Event::UdpReceivedDatagrams, count);
        self.writer.write();
        if !self.out.is_empty() {
            self.out.flush(&self.device);
        }
        count
    }

    fn one(&mut self, peer: &Arc<Peer>, crypto: &mut Crypto, from: SocketAddr, index: u32, datagram: &[u8]) {
        let counters = &self.device.counters;
        let Some(tunn) = crypto.tunn.as_mut() else {
            counters.add(Event::DropUnknownIndex, 1);
            return;
        };
        // Whitepaper section 5.4.6: neither side accepts more. The library does not look, and its window ends there.
        if data_counter(datagram).is_none_or(|counter| counter >= message::REJECT_AFTER_MESSAGES) {
            counters.add(Event::DropReplay, 1);
            return;
        }
        let space = self.writer.space(datagram.len());
        let inner = match tunn.decapsulate(None, datagram, space) {
            TunnResult::WriteToTunnelV4(packet, source) => Some((packet.len(), IpAddr::V4(source))),
            TunnResult::WriteToTunnelV6(packet, source) => Some((packet.len(), IpAddr::V6(source))),
            // A keepalive.
            TunnResult::Done => None,
            TunnResult::WriteToNetwork(_) => None,
            TunnResult::Err(error) => {
                counters.add(event_of(&error), 1);
                return;
            }
        };
        // Everything below stands on authenticated data only.
        peer.received(datagram.len());
        if crypto.unconfirmed == Some(index) {
            crypto.unconfirmed = None;
            crypto.handshake_completed();
        }
        if crypto.endpoint != Some(from) {
            counters.add(Event::Roamed, usize::from(peer.is_at(crypto, from)));
        }
        let Some((len, source)) = inner else { return };
        // The packet's own length, which may be less than that of its header.
        if len < 20 {
            self.device.counters.add(Event::DropInner, 1);
            return;
        }
        if self.owner(source) == Some(peer.slot) {
            self.writer.commit(len);
        } else {
            self.device.counters.add(Event::DropSource, 1);
        }
    }

    fn owner(&mut self, source: IpAddr) -> Option<u32> {
        match self.last_source {
            Some((last, slot)) if last == source => slot,
            _ => {
                let slot = self.table.1.routes.lookup(source);
                self.last_source = Some((source, slot));
                slot
            }
        }
    }

    /// What is no data: a handshake message goes to the thread for those, if it can be one.
    fn other(&mut self, from: SocketAddr, datagram: &[u8]) {
        let counters = &self.device.counters;
        let Some(message) = Message::new(from, datagram) else {
            counters.add(Event::DropMalformed, 1);
            return;
        };
        match self.handshakes.try_send(message) {
            Ok(()) => {}
            // A thread that ended ends the engine as well.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => counters.add(Event::DropUnderLoad, 1),
        }
    }
}

/// What a refusal of the protocol is counted as.
#[expect(clippy::wildcard_enum_match_arm, reason = "the library has more errors than data can cause")]
fn event_of(error: &WireGuardError) -> Event {
    match error {
        WireGuardError::InvalidCounter | WireGuardError::DuplicateCounter => Event::DropReplay,
        WireGuardError::InvalidAeadTag => Event::DropAead,
        WireGuardError::NoCurrentSession | WireGuardError::WrongIndex => Event::DropUnknownIndex,
        WireGuardError::InvalidPacket => Event::DropInner,
        _ => Event::DropMalformed,
    }
}

/// The session that a data message is for; `None` if it is none.
fn data_index(datagram: &[u8]) -> Option<u32> {
    let &[message::DATA, 0, 0, 0, a, b, c, d, ..] = datagram else { return None };
    (datagram.len() >= message::DATA_OVERHEAD).then(|| u32::from_le_bytes([a, b, c, d]))
}

/// The number of a data message in its session.
fn data_counter(datagram: &[u8]) -> Option<u64> {
    datagram.get(8..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Decrypted packets on their way to the device.
struct Writer {
    device: Arc<Device>,
    tun: Arc<dyn TunDevice>,
    arena: Vec<u8>,
    used: usize,
    coalescer: Coalescer,
    scratch: Vec<u8>,
    /// Empty between writes; its memory is what is kept.
    slices: Vec<IoSlice<'static>>,
}

impl Writer {
    fn new(device: &Arc<Device>, lane: usize) -> Self {
        Self {
            device: Arc::clone(device),
            tun: Arc::clone(&device.tuns[lane]),
            arena: vec![0; ARENA + MAX_DATAGRAM],
            used: 0,
            coalescer: Coalescer::new(taken(device)),
            scratch: Vec::new(),
            slices: Vec::new(),
        }
    }

    /// Room to decrypt a datagram of `len` bytes into.
    fn space(&mut self, len: usize) -> &mut [u8] {
        if self.used + len > ARENA {
            self.write();
        }
        &mut self.arena[self.used..self.used + len]
    }

    /// Takes the packet of `len` bytes that was put into [`Writer::space`].
    fn commit(&mut self, len: usize) {
        self.coalescer.push(&self.arena, self.used, len);
        // The next one begins at a cache line.
        self.used += len.next_multiple_of(64);
    }

    /// Writes everything to the device, or counts why not.
    fn write(&mut self) {
        if self.coalescer.is_empty() {
            return;
        }
        let Self { device, tun, arena, coalescer, scratch, slices: kept, .. } = self;
        coalescer.finish(arena);
        let vnet = coalescer.taken().vnet;
        let mut slices = emptied(std::mem::take(kept));
        let (mut writes, mut packets) = (0, 0);
        for output in coalescer.outputs() {
            slices.clear();
            if vnet {
                slices.push(IoSlice::new(output.vnet_header()));
            }
            slices.extend(output.slices(arena).map(IoSlice::new));
            match tun.write(&slices) {
                Ok(()) => {
                    writes += 1;
                    packets += output.packets();
                }
                Err(error) if output.packets() > 1 => {
                    let mut singly = 0;
                    let split = output.split(arena, scratch, |packet| {
                        singly += usize::from(write_single(device, &**tun, packet, vnet));
                    });
                    writes += singly;
                    packets += singly;
                    match split {
                        // Only what is taken in pieces was refused for being whole: a device that is down takes neither.
                        Ok(()) if singly > 0 => device.tun_offload_refused(&error),
                        Ok(()) => {}
                        Err(_) => device.counters.tun_write_error(&error, output.packets()),
                    }
                }
                Err(error) => device.counters.tun_write_error(&error, 1),
            }
        }
        *kept = emptied(slices);
        device.counters.add(Event::TunWrites, writes);
        device.counters.add(Event::TunWritePackets, packets);
        coalescer.clear();
        coalescer.set_taken(taken(device));
        self.used = 0;
    }
}

/// The memory of a list for slices of other bytes; none is in it. (Collecting from a list of the same type is done in place.)
fn emptied<'b>(mut slices: Vec<IoSlice<'_>>) -> Vec<IoSlice<'b>> {
    slices.clear();
    slices.into_iter().map(|_| IoSlice::new(&[])).collect()
}

fn write_single(device: &Device, tun: &dyn TunDevice, packet: &[u8], vnet: bool) -> bool {
    let header = crate::packet::vnet::VnetHeader::COMPLETE.encode();
    let slices = [IoSlice::new(&header), IoSlice::new(packet)];
    match tun.write(if vnet { &slices } else { &slices[1..] }) {
        Ok(()) => true,
        Err(error) => {
            device.counters.tun_write_error(&error, 1);
            false
        }
    }
}

fn taken(device: &Device) -> Taken {
    let (vnet, offloads, off) = (device.vnet_hdr(), device.tuns[0].offloads(), device.tun_offload_off());
    Taken { vnet, tcp: vnet && offloads.tso && !off, udp: vnet && offloads.uso && !off }
}
