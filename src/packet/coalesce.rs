//! Packets into super-packets, without copying them.
//!
//! A [`Coalescer`] is told where decrypted packets lie and answers with lists of ranges: the headers and payload of a
//! first packet, then the payloads of those that follow it. The rules are those of the kernel's own receive offload
//! (`tcp_gro_receive`, `udp_gro_receive`), and stricter where splitting again would not give the same packets.
//!
//! INVARIANT: a packet may join only the newest item of its flow. Anything older would reorder the flow.

use super::checksum::{Sum, pseudo_header};
use super::ip::{self, TCP, Transport, UDP};
use super::vnet::{Gso, VNET_HDR_LEN, VnetHeader};

/// An IP packet is no longer than this, super-packets included.
const MAX_PACKET: usize = 65_535;
/// Ranges of one item; well below `UIO_MAXIOV` (1024), with the virtio-net header and the headers.
const MAX_PARTS: usize = 512;
/// What the kernel takes in a UDP super-packet (`UDP_MAX_SEGMENTS` before Linux 6.9).
const MAX_UDP_SEGMENTS: usize = 64;

const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;

const BUCKETS: usize = 64;
const NONE: u32 = u32::MAX;

/// What the receiver of the super-packets takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// A virtio-net header, and with it packets whose checksum is declared valid.
    pub vnet: bool,
    /// TCP super-packets.
    pub tcp: bool,
    /// UDP super-packets.
    pub udp: bool,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    start: u32,
    len: u32,
    next: u32,
}

#[derive(Debug, Clone, Copy)]
struct Item {
    head: u32,
    /// Length of the packet as it stands, payloads of joined ones included.
    total: u32,
    first_part: u32,
    last_part: u32,
    packets: u32,
    next_in_bucket: u32,
    next_sequence: u32,
    segment: u16,
    transport: u16,
    payload: u16,
    version: u8,
    /// [`TCP`], [`UDP`], or 0 for what is passed on as it is.
    protocol: u8,
    open: bool,
    push: bool,
}

/// Collects packets into items, in the order of their first packets.
#[derive(Debug)]
pub struct Coalescer {
    taken: Taken,
    items: Vec<Item>,
    parts: Vec<Part>,
    headers: Vec<[u8; VNET_HDR_LEN]>,
    buckets: [u32; BUCKETS],
}

/// A packet or super-packet to write.
#[derive(Debug, Clone, Copy)]
pub struct Output<'a> {
    owner: &'a Coalescer,
    index: usize,
}

impl Coalescer {
    /// An empty one.
    #[must_use]
    pub fn new(taken: Taken) -> Self {
        Self { taken, items: Vec::new(), parts: Vec::new(), headers: Vec::new(), buckets: [NONE; BUCKETS] }
    }

    /// Changes what is taken, for packets that are pushed from now on.
    pub fn set_taken(&mut self, taken: Taken) {
        self.taken = taken;
    }

    /// What is taken.
    #[must_use]
    pub fn taken(&self) -> Taken {
        self.taken
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.items.clear();
        self.parts.clear();
        self.headers.clear();
        self.buckets = [NONE; BUCKETS];
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Adds the packet at `start..start + len` of `arena`, which holds all earlier ones as well.
    ///
    /// # Panics
    /// The range is outside of `arena`, or beyond 4 GiB.
    pub fn push(&mut self, arena: &[u8], start: usize, len: usize) {
        let packet = &arena[start..start + len];
        let view = if self.taken.vnet { ip::transport(packet) } else { None };
        let Some(view) = view else {
            self.close_flows_of(arena, packet);
            self.open_item(start, len, None, NONE);
            return;
        };
        let bucket = bucket(packet, &view);
        let newest = self.newest_of_flow(arena, packet, &view, bucket);
        if let Some(index) = newest {
            if self.joins(index, arena, packet, &view) {
                self.join(index, start, packet, &view);
                return;
            }
            // INVARIANT: whatever follows this packet may not pass it.
            self.items[index].open = false;
        }
        let previous = self.buckets[bucket];
        self.buckets[bucket] = self.items.len() as u32;
        self.open_item(start, len, Some((packet, &view)), previous);
    }

    fn newest_of_flow(&self, arena: &[u8], packet: &[u8], view: &Transport, bucket: usize) -> Option<usize> {
        let mut at = self.buckets[bucket];
        while let Some(item) = self.items.get(at as usize) {
            let head = item.head as usize;
            let same = item.version == view.version
                && item.protocol == view.protocol
                && arena[head..][view.addresses()] == packet[view.addresses()]
                && arena[head + view.transport..][..4] == packet[view.transport..][..4];
            if same {
                return Some(at as usize);
            }
            at = item.next_in_bucket;
        }
        None
    }

    /// INVARIANT: a packet whose ports are not seen (a fragment, options, extension headers) may belong to any flow between
    /// its addresses, so whatever follows may not pass it.
    fn close_flows_of(&mut self, arena: &[u8], packet: &[u8]) {
        let Some(addresses) = ip::addresses_of_hidden_ports(packet) else { return };
        let version = packet[0] >> 4;
        for item in self.items.iter_mut().filter(|item| item.open && item.version == version) {
            item.open = arena[item.head as usize..][addresses.clone()] != packet[addresses.clone()];
        }
    }

    fn open_item(&mut self, start: usize, len: usize, flow: Option<(&[u8], &Transport)>, next_in_bucket: u32) {
        let part = self.parts.len() as u32;
        self.parts.push(Part { start: start as u32, len: len as u32, next: NONE });
        let mut item = Item {
            head: start as u32,
            total: len as u32,
            first_part: part,
            last_part: part,
            packets: 1,
            next_in_bucket,
            next_sequence: 0,
            segment: 0,
            transport: 0,
            payload: 0,
            version: 0,
            protocol: 0,
            open: false,
            push: false,
        };
        if let Some((packet, view)) = flow {
            item.version = view.version;
            item.protocol = view.protocol;
            item.transport = view.transport as u16;
            item.payload = view.payload as u16;
            item.segment = (len - view.payload) as u16;
            let header = &packet[view.transport..view.payload];
            if view.protocol == TCP {
                let flags = header[13];
                item.push = flags & PSH != 0;
                item.next_sequence = sequence(header).wrapping_add(u32::from(item.segment));
                item.open = self.taken.tcp && item.segment > 0 && flags & !(PSH | ECE) == ACK && !item.push;
            } else {
                item.open = self.taken.udp && item.segment > 0 && header[6..8] != [0, 0];
            }
        }
        self.items.push(item);
    }

    /// Whether `packet` continues item `index` so that splitting would give both again.
    fn joins(&self, index: usize, arena: &[u8], packet: &[u8], view: &Transport) -> bool {
        let item = &self.items[index];
        let payload = packet.len() - view.payload;
        if !item.open
            || payload == 0
            || payload > usize::from(item.segment)
            || item.total as usize + payload > MAX_PACKET
            || item.packets as usize >= MAX_PARTS
            || usize::from(item.payload) != view.payload
        {
            return false;
        }
        let head = &arena[item.head as usize..][..view.payload];
        if !same_ip(head, packet, view.version, item.packets) {
            return false;
        }
        let (first, next) = (&head[view.transport..], &packet[view.transport..view.payload]);
        if view.protocol == UDP {
            // A checksum of zero is none, which a super-packet cannot say.
            return next[6..8] != [0, 0] && (item.packets as usize) < MAX_UDP_SEGMENTS;
        }
        sequence(next) == item.next_sequence
            // Acknowledgment, header length and reserved bits; window; urgent pointer and options (timestamps).
            && first[8..13] == next[8..13]
            && (first[13] | PSH) == (next[13] | PSH)
            && first[14..16] == next[14..16]
            && first[18..] == next[18..]
    }

    fn join(&mut self, index: usize, start: usize, packet: &[u8], view: &Transport) {
        let payload = packet.len() - view.payload;
        let part = self.parts.len() as u32;
        self.parts.push(Part { start: (start + view.payload) as u32, len: payload as u32, next: NONE });
        let item = &mut self.items[index];
        self.parts[item.last_part as usize].next = part;
        item.last_part = part;
        item.packets += 1;
        item.total += payload as u32;
        item.next_sequence = item.next_sequence.wrapping_add(payload as u32);
        // PSH speaks of the last byte, and only a last segment may be short: nothing may follow either.
        item.push = view.protocol == TCP && packet[view.transport + 13] & PSH != 0;
        item.open = !item.push && payload == usize::from(item.segment);
    }

    /// Writes the headers of every item into `arena`, and makes their virtio-net headers. The outputs are right after
    /// this, until the next [`Coalescer::clear`] or [`Coalescer::push`].
    pub fn finish(&mut self, arena: &mut [u8]) {
        self.headers.clear();
        for item in &self.items {
            let header = if item.protocol == 0 {
                VnetHeader::COMPLETE
            } else {
                write_headers(item, &mut arena[item.head as usize..])
            };
            self.headers.push(header.encode());
        }
    }

    /// What is to be written, in order.
    pub fn outputs(&self) -> impl Iterator<Item = Output<'_>> {
        (0..self.headers.len()).map(|index| Output { owner: self, index })
    }
}

impl<'a> Output<'a> {
    /// The virtio-net header.
    #[must_use]
    pub fn vnet_header(&self) -> &'a [u8; VNET_HDR_LEN] {
        &self.owner.headers[self.index]
    }

    /// How many packets it is.
    #[must_use]
    pub fn packets(&self) -> usize {
        self.owner.items[self.index].packets as usize
    }

    /// Bytes of the IP packet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.owner.items[self.index].total as usize
    }

    /// Never: an item has a packet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its bytes, as slices of the arena.
    pub fn slices<'b>(&self, arena: &'b [u8]) -> impl Iterator<Item = &'b [u8]> + use<'a, 'b> {
        let owner = self.owner;
        let mut at = owner.items[self.index].first_part;
        std::iter::from_fn(move || {
            let part = owner.parts.get(at as usize)?;
            at = part.next;
            Some(&arena[part.start as usize..][..part.len as usize])
        })
    }

    /// Undoes the merging: calls `each` with every packet that is in it, right in all headers and checksums, laid out in
    /// `scratch`. For a receiver that refused the super-packet.
    ///
    /// # Errors
    /// The item contradicts itself: a defect of this module.
    pub fn split(
        &self,
        arena: &[u8],
        scratch: &mut Vec<u8>,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), super::split::SplitError> {
        scratch.clear();
        self.slices(arena).for_each(|slice| scratch.extend_from_slice(slice));
        let header = VnetHeader::decode(self.vnet_header()).map_err(|_| super::split::SplitError::Headers)?;
        let mut split = super::split::Split::new(header, scratch)?;
        while let Some(packet) = split.next_packet() {
            each(packet);
        }
        Ok(())
    }
}

fn sequence(tcp: &[u8]) -> u32 {
    u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]])
}

/// Spreads flows over the buckets; an uneven spread costs time, nothing else.
fn bucket(packet: &[u8], view: &Transport) -> usize {
    let ports = &packet[view.transport..][..4];
    let address = &packet[view.addresses()];
    let end = address.len();
    let mixed = u32::from_ne_bytes([ports[0], ports[1], ports[2], ports[3]])
        ^ u32::from_ne_bytes([address[end - 4], address[end - 3], address[end - 2], address[end - 1]]);
    (mixed.wrapping_mul(0x9e37_79b1) >> 26) as usize % BUCKETS
}

/// Whether the IP headers are those of segments of one packet.
fn same_ip(head: &[u8], packet: &[u8], version: u8, index: u32) -> bool {
    if version == 6 {
        // Version, traffic class, flow label; next header, hop limit.
        return head[..4] == packet[..4] && head[6..8] == packet[6..8];
    }
    const DONT_FRAGMENT: u8 = 0x40;
    let identification = |header: &[u8]| u16::from_be_bytes([header[4], header[5]]);
    // Type of service; flags, time to live, protocol.
    head[1] == packet[1]
        && head[6..10] == packet[6..10]
        // RFC 6864 section 4.1: the identification of a packet that may not be fragmented means nothing.
        && (packet[6] & DONT_FRAGMENT != 0
            || identification(packet) == identification(head).wrapping_add(index as u16))
}

/// Makes the first packet's headers those of the whole item. The checksum becomes the pseudo-header's sum: what was
/// authenticated needs no second check, and the kernel completes it if the packet leaves the machine again.
fn write_headers(item: &Item, packet: &mut [u8]) -> VnetHeader {
    let (total, transport) = (item.total as usize, usize::from(item.transport));
    let tcp = item.protocol == TCP;
    if !tcp && item.packets == 1 && packet[transport + 6..transport + 8] == [0, 0] {
        return VnetHeader::COMPLETE;
    }
    if item.packets > 1 {
        if item.version == 4 {
            packet[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            packet[10..12].fill(0);
            let checksum = Sum::default().add_bytes(&packet[..20]).checksum();
            packet[10..12].copy_from_slice(&checksum.to_ne_bytes());
        } else {
            packet[4..6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
        }
        if tcp && item.push {
            packet[transport + 13] |= PSH;
        }
        if !tcp {
            packet[transport + 4..transport + 6].copy_from_slice(&((total - transport) as u16).to_be_bytes());
        }
    }
    let (addresses, offset) = (if item.version == 4 { 12..20 } else { 8..40 }, if tcp { 16 } else { 6 });
    let sum = pseudo_header(&packet[addresses], item.protocol, total - transport).folded();
    packet[transport + offset..transport + offset + 2].copy_from_slice(&sum.to_ne_bytes());
    let gso = match (item.packets, tcp, item.version) {
        (1, ..) => Gso::None,
        (_, true, 4) => Gso::TcpV4,
        (_, true, _) => Gso::TcpV6,
        (_, false, _) => Gso::Udp,
    };
    VnetHeader {
        gso,
        ecn: false,
        segment: if item.packets > 1 { item.segment } else { 0 },
        checksum: Some((item.transport, offset as u16)),
        header_len: item.payload,
    }
}

#[cfg(test)]
pub(crate) mod tests;
