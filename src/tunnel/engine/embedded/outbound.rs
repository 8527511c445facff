//! From the TUN device to the outer socket, for one queue of the device.
//!
//! ```text
//! read a batch -> route each packet -> lock its peer -> split -> encrypt, right behind the last datagram -> send
//! ```

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use boringtun::noise::TunnResult;

use super::batch::SendBatch;
use super::counters::Event;
use super::device::{Device, Table};
use super::io::TunBatch;
use super::peer::{Crypto, Peer, message};
use super::turn::Turn;
use crate::packet::ip;
use crate::packet::split::Split;
use crate::packet::vnet::{VNET_HDR_LEN, VnetHeader};

/// The way out of one lane.
pub(in crate::tunnel) struct Outbound {
    device: Arc<Device>,
    batch: TunBatch,
    out: SendBatch,
    lane: usize,
    /// The last turn brought a single packet.
    singly: bool,
    /// The last batch ended in mid-stream: its last datagrams wait to leave with what comes next.
    batch_is_open: bool,
    patient: bool,
    table: (u64, Arc<Table>),
    last_route: Option<(IpAddr, Option<u32>)>,
}

impl Outbound {
    pub(in crate::tunnel) fn new(device: &Arc<Device>, lane: usize) -> io::Result<Self> {
        Ok(Self {
            device: Arc::clone(device),
            batch: TunBatch::default(),
            out: SendBatch::new(lane)?,
            lane,
            singly: false,
            batch_is_open: false,
            patient: true,
            table: (0, device.table()),
            last_route: None,
        })
    }

    /// Whether it waits for a socket that is full. Who does not wait keeps what is left for the next turn.
    pub(super) fn set_patient(&mut self, patient: bool) {
        self.patient = patient;
    }

    /// Takes what the device has, as much as one batch holds.
    pub(super) fn turn(&mut self) -> io::Result<Turn> {
        // What a full socket did not take goes first.
        if !self.out.is_empty() && !self.batch_is_open && !self.send_all() {
            return Ok(Turn { blocked: true, ..Turn::default() });
        }
        let mut turn = Turn::default();
        // Where packets came one at a time, the next one goes before it is asked whether there is another.
        if self.singly {
            turn = self.read(true)?;
            if turn.packets == 0 || turn.blocked {
                return Ok(turn);
            }
        }
        let rest = self.read(false)?;
        turn = Turn { packets: turn.packets + rest.packets, ..rest };
        self.singly = !turn.loaded() && turn.packets <= 1;
        Ok(turn)
    }

    fn read(&mut self, one: bool) -> io::Result<Turn> {
        let device = Arc::clone(&self.device);
        let mut turn = Turn::default();
        // What is read is in hand, and a full socket is not waited for with a peer in hand, too.
        if !self.out.has_room_for_a_read() && !self.send_all() {
            return Ok(Turn { blocked: true, ..turn });
        }
        self.batch.limit_to_one(one);
        self.batch_is_open = false;
        match device.tuns[self.lane].read(&mut self.batch) {
            Ok(()) => {
                turn.packets = self.process();
                turn.more = !one && !self.batch.drained();
                if turn.more {
                    self.batch_is_open = true;
                    // Who does not wait hands a load over at once, and this with it.
                    if self.patient {
                        self.out.flush_full(&device);
                    }
                    return Ok(turn);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The device was removed under this engine's feet.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBADFD | libc::ENODEV)) => return Err(error),
            Err(_) => {
                device.counters.add(Event::TunReadErrors, 1);
                turn.blocked = true;
            }
        }
        turn.blocked |= !self.send_all();
        Ok(turn)
    }

    /// Sends everything; `false` if the socket is full, and the rest still here.
    fn send_all(&mut self) -> bool {
        if self.patient {
            self.out.flush(&self.device);
            return true;
        }
        self.out.offer(&self.device)
    }

    /// Room for a packet that does not come out of a device; `None`: [`Outbound::send`] first.
    pub(in crate::tunnel) fn space(&mut self) -> Option<&mut [u8]> {
        self.batch.space()
    }

    /// Takes the packet of `len` bytes that was put into [`Outbound::space`].
    pub(in crate::tunnel) fn commit(&mut self, len: usize) {
        self.batch.commit(len);
    }

    /// Sends what it holds.
    pub(in crate::tunnel) fn send(&mut self) {
        self.process();
        self.batch.clear();
        self.out.flush(&self.device);
    }

    /// Returns how many packets there were.
    fn process(&mut self) -> usize {
        let mut packets = 0;
        let generation = self.table.0;
        self.device.refresh(&mut self.table);
        if generation != self.table.0 {
            self.last_route = None;
        }
        self.device.counters.add(Event::TunReads, self.batch.len());
        let header_len = if self.device.vnet_hdr() { VNET_HDR_LEN } else { 0 };
        let table = Arc::clone(&self.table.1);
        let mut index = 0;
        while index < self.batch.len() {
            let Some(destination) = self.batch.packet(index).get(header_len..).and_then(ip::destination) else {
                self.device.counters.add(Event::DropNotIp, 1);
                index += 1;
                continue;
            };
            let Some(peer) = self.route(destination).and_then(|slot| table.peer(slot)) else {
                self.drop_read(index, header_len, Event::DropNoRoute);
                index += 1;
                continue;
            };
            // One lock for the packets in a row that go to this peer.
            let mut crypto = peer.lock();
            let ready = crypto.has_session() && crypto.endpoint.is_some();
            if ready && !crypto.staged.is_empty() {
                send_staged(&self.device, peer, &mut crypto, &mut self.out);
            }
            loop {
                packets += if ready {
                    self.encrypt(peer, &mut crypto, index, header_len)
                } else {
                    self.stage(peer, &mut crypto, index, header_len)
                };
                index += 1;
                let next = (index < self.batch.len())
                    .then(|| self.batch.packet(index).get(header_len..).and_then(ip::destination))
                    .flatten();
                if next.and_then(|next| self.route(next)) != Some(peer.slot) {
                    break;
                }
            }
            if ready {
                crypto.last_sent = Some(Instant::now());
                if self.device.tuns.len() > 1 {
                    // Another thread may send for this peer, too: what is numbered first should go first, or a receiver's
                    // replay window takes it for old. A full socket is not waited for with the peer in hand.
                    self.out.offer(&self.device);
                }
            }
        }
        packets
    }

    /// Counts one read's packets as lost by `why`.
    fn drop_read(&mut self, index: usize, header_len: usize, why: Event) -> usize {
        let mut packets = 0;
        let good = for_each_packet(self.batch.packet(index), header_len, |_| packets += 1);
        let counters = &self.device.counters;
        counters.add(Event::DropNotIp, usize::from(!good));
        counters.add(Event::TunReadPackets, packets);
        counters.add(why, packets);
        packets
    }

    fn route(&mut self, destination: IpAddr) -> Option<u32> {
        match self.last_route {
            Some((last, slot)) if last == destination => slot,
            _ => {
                let slot = self.table.1.routes.lookup(destination);
                self.last_route = Some((destination, slot));
                slot
            }
        }
    }

    /// Splits and encrypts one read.
    fn encrypt(&mut self, peer: &Arc<Peer>, crypto: &mut Crypto, index: usize, header_len: usize) -> usize {
        let Self { device, batch, out, lane, .. } = self;
        let gso = device.gso(*lane);
        let (mut packets, mut bytes) = (0, 0);
        let good = for_each_packet(batch.packet(index), header_len, |packet| {
            packets += 1;
            bytes += encrypt(device, peer, crypto, packet, out, gso);
        });
        if !good {
            device.counters.add(Event::DropNotIp, 1);
        }
        device.counters.add(Event::TunReadPackets, packets);
        peer.sent(bytes);
        packets
    }

    /// Keeps one read's packets until there is a session, and asks for one.
    fn stage(&mut self, peer: &Arc<Peer>, crypto: &mut Crypto, index: usize, header_len: usize) -> usize {
        let Some(endpoint) = crypto.endpoint else {
            return self.drop_read(index, header_len, Event::DropNoEndpoint);
        };
        // The device has no key, or the peer was removed since the table was read: nobody would ever empty its queue.
        if crypto.tunn.is_none() {
            return self.drop_read(index, header_len, Event::DropNotEncrypted);
        }
        let Self { device, batch, out, .. } = self;
        let (mut packets, mut dropped) = (0, 0);
        let good = for_each_packet(batch.packet(index), header_len, |packet| {
            packets += 1;
            if !crypto.staged.push(packet, &device.staged_bytes) {
                dropped += 1;
            }
        });
        if !good {
            device.counters.add(Event::DropNotIp, 1);
        }
        device.counters.add(Event::TunReadPackets, packets);
        device.counters.add(Event::DropStaged, dropped);
        if let Some(space) = out.make_room(device, message::INITIATION_LEN)
            && let Some(len) = crypto.initiate(space)
        {
            crypto.last_sent = Some(Instant::now());
            out.commit(Some(peer), endpoint, len, false);
            peer.sent(len);
        }
        packets
    }
}

/// Encrypts a packet behind what `out` holds; returns the datagram's length, 0 if there is none, which is counted.
fn encrypt(
    device: &Device,
    peer: &Arc<Peer>,
    crypto: &mut Crypto,
    packet: &[u8],
    out: &mut SendBatch,
    gso: bool,
) -> usize {
    let (Some(endpoint), Some(tunn)) = (crypto.endpoint, crypto.tunn.as_mut()) else {
        device.counters.add(Event::DropNotEncrypted, 1);
        return 0;
    };
    let Some(space) = out.make_room_in_hand(device, packet.len() + message::DATA_OVERHEAD) else {
        device.counters.udp_send_error(&io::Error::from_raw_os_error(libc::EAGAIN), 1);
        return 0;
    };
    // Without a session it would be an initiation, and the packet stay in a queue that nobody empties.
    if let TunnResult::WriteToNetwork(datagram) = tunn.encapsulate(packet, space)
        && datagram.first() == Some(&message::DATA)
    {
        let len = datagram.len();
        out.commit(Some(peer), endpoint, len, gso);
        len
    } else {
        device.counters.add(Event::DropNotEncrypted, 1);
        0
    }
}

/// Calls `each` with every packet of one read; `false` if the read was damaged.
fn for_each_packet(read: &mut [u8], header_len: usize, mut each: impl FnMut(&mut [u8])) -> bool {
    let (header, packet) = read.split_at_mut(header_len);
    let header = match header {
        [] => VnetHeader::COMPLETE,
        header => match VnetHeader::decode(header) {
            Ok(header) => header,
            Err(_) => return false,
        },
    };
    let Ok(mut split) = Split::new(header, packet) else { return false };
    while let Some(packet) = split.next_packet() {
        each(packet);
    }
    true
}

/// Encrypts what waited for a session, as much as there is room for; the caller, who holds the peer's lock and found that there
/// is one, sends it when it has let go. What a full socket leaves waits for the next packet, or for the timers.
pub(super) fn send_staged(device: &Device, peer: &Arc<Peer>, crypto: &mut Crypto, out: &mut SendBatch) {
    let gso = device.gso(0);
    while let Some(next) = crypto.staged.next_len() {
        if out.make_room(device, next + message::DATA_OVERHEAD).is_none() {
            break;
        }
        let Some(packet) = crypto.staged.pop(&device.staged_bytes) else { break };
        peer.sent(encrypt(device, peer, crypto, &packet, out, gso));
    }
    // Before the lock goes, as far as the socket takes it: what is newer should not pass it.
    out.offer(device);
    crypto.last_sent = Some(Instant::now());
}
