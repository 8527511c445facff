use proptest::prelude::*;

use super::*;

const ALL: Taken = Taken { vnet: true, tcp: true, udp: true };

/// What varies in headers without making another flow.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shape {
    /// TCP timestamps.
    pub(crate) timestamps: Option<u32>,
    /// Type of service or traffic class.
    pub(crate) tos: u8,
    pub(crate) may_fragment: bool,
    pub(crate) no_checksum: bool,
}

/// One direction of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    pub(crate) v4: bool,
    pub(crate) tcp: bool,
    pub(crate) port: u16,
    pub(crate) sequence: u32,
    pub(crate) identification: u16,
    pub(crate) shape: Shape,
}

impl Flow {
    pub(crate) fn example() -> Self {
        Self { v4: true, tcp: true, port: 7, sequence: u32::MAX - 100, identification: 65_530, shape: Shape::default() }
    }

    pub(crate) fn transport(&self) -> usize {
        if self.v4 { 20 } else { 40 }
    }

    pub(crate) fn headers(&self) -> usize {
        self.transport()
            + match (self.tcp, self.shape.timestamps) {
                (false, _) => 8,
                (true, None) => 20,
                (true, Some(_)) => 32,
            }
    }

    /// The packet that carries `payload`, `offset` bytes and `index` packets into the flow.
    pub(crate) fn packet_at(&self, index: u16, offset: u32, payload: &[u8], flags: u8) -> Vec<u8> {
        let (transport, headers) = (self.transport(), self.headers());
        let mut packet = vec![0; headers + payload.len()];
        packet[headers..].copy_from_slice(payload);
        let total = packet.len();
        let protocol = if self.tcp { TCP } else { UDP };
        if self.v4 {
            packet[0] = 0x45;
            packet[1] = self.shape.tos;
            packet[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            packet[4..6].copy_from_slice(&self.identification.wrapping_add(index).to_be_bytes());
            packet[6] = if self.shape.may_fragment { 0 } else { 0x40 };
            packet[8] = 64;
            packet[9] = protocol;
            packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
            let checksum = Sum::default().add_bytes(&packet[..20]).checksum();
            packet[10..12].copy_from_slice(&checksum.to_ne_bytes());
        } else {
            packet[0] = 0x60 | self.shape.tos >> 4;
            packet[1] = self.shape.tos << 4;
            packet[4..6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
            packet[6] = protocol;
            packet[7] = 64;
            packet[8] = 0xfd;
            packet[24] = 0xfd;
            packet[39] = 1;
        }
        let length = total - transport;
        packet[transport..transport + 2].copy_from_slice(&self.port.to_be_bytes());
        packet[transport + 2..transport + 4].copy_from_slice(&5201_u16.to_be_bytes());
        if self.tcp {
            let tcp = &mut packet[transport..];
            tcp[4..8].copy_from_slice(&self.sequence.wrapping_add(offset).to_be_bytes());
            tcp[8..12].copy_from_slice(&99_u32.to_be_bytes());
            tcp[12] = ((headers - transport) as u8 / 4) << 4;
            tcp[13] = flags;
            tcp[14..16].copy_from_slice(&512_u16.to_be_bytes());
            if let Some(value) = self.shape.timestamps {
                tcp[20..24].copy_from_slice(&[1, 1, 8, 10]);
                tcp[24..28].copy_from_slice(&value.to_be_bytes());
            }
        } else {
            packet[transport + 4..transport + 6].copy_from_slice(&(length as u16).to_be_bytes());
        }
        if self.tcp || !(self.shape.no_checksum && self.v4) {
            let (addresses, offset) = (if self.v4 { 12..20 } else { 8..40 }, if self.tcp { 16 } else { 6 });
            let sum =
                pseudo_header(&packet[addresses], protocol, length).add_bytes(&packet[transport..]).udp_checksum();
            packet[transport + offset..][..2].copy_from_slice(&sum.to_ne_bytes());
        }
        packet
    }

    pub(crate) fn packet(&self, index: u16, payload: &[u8], flags: u8) -> Vec<u8> {
        self.packet_at(index, 0, payload, flags)
    }
}

/// Checks every length and checksum of a packet, by the plain reading of the RFCs.
pub(crate) fn verify(packet: &[u8]) {
    let v4 = packet[0] >> 4 == 4;
    let (transport, protocol) = if v4 { (20, packet[9]) } else { (40, packet[6]) };
    if v4 {
        assert_eq!(usize::from(u16::from_be_bytes([packet[2], packet[3]])), packet.len());
        assert_eq!(Sum::default().add_bytes(&packet[..20]).folded(), 0xffff, "IPv4 header checksum");
    } else {
        assert_eq!(usize::from(u16::from_be_bytes([packet[4], packet[5]])) + 40, packet.len());
    }
    if protocol == UDP {
        let length = u16::from_be_bytes([packet[transport + 4], packet[transport + 5]]);
        assert_eq!(usize::from(length), packet.len() - transport);
        if packet[transport + 6..transport + 8] == [0, 0] {
            return;
        }
    }
    let addresses = if v4 { 12..20 } else { 8..40 };
    let sum = pseudo_header(&packet[addresses], protocol, packet.len() - transport).add_bytes(&packet[transport..]);
    assert_eq!(sum.folded(), 0xffff, "transport checksum");
}

pub(crate) fn flow() -> impl Strategy<Value = Flow> {
    (
        any::<(bool, bool, u32, u16, bool, bool)>(),
        proptest::option::of(any::<u32>()),
        prop::sample::select(vec![0_u8, 2, 3, 0xb8]),
        1_u16..4,
    )
        .prop_map(|((v4, tcp, sequence, identification, may_fragment, no_checksum), timestamps, tos, port)| Flow {
            v4,
            tcp,
            port,
            sequence,
            identification,
            shape: Shape { timestamps, tos, may_fragment, no_checksum },
        })
}

/// Runs packets through coalescing and splitting again; returns what comes out and how many writes it took.
fn round_trip(packets: &[Vec<u8>], taken: Taken) -> (Vec<Vec<u8>>, usize) {
    let mut arena = Vec::new();
    let mut coalescer = Coalescer::new(taken);
    for packet in packets {
        let start = arena.len();
        arena.extend_from_slice(packet);
        // The cipher's tag lies behind each packet.
        arena.extend_from_slice(&[0xee; 16]);
        coalescer.push(&arena, start, packet.len());
    }
    coalescer.finish(&mut arena);
    let mut scratch = Vec::new();
    let mut out = Vec::new();
    let mut writes = 0;
    for output in coalescer.outputs() {
        let before = out.len();
        assert!(output.len() <= MAX_PACKET);
        assert_eq!(output.slices(&arena).map(<[u8]>::len).sum::<usize>(), output.len());
        output.split(&arena, &mut scratch, |packet| out.push(packet.to_vec())).unwrap();
        assert_eq!(out.len() - before, output.packets());
        writes += 1;
    }
    (out, writes)
}

/// A packet without what may rightly change: the identification of packets that may not be fragmented, and the spelling
/// of a checksum of zero.
fn essence(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 4 && packet[6] & 0x40 != 0 {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    packet
}

fn of_flow(packets: &[Vec<u8>], flow: &Flow) -> Vec<Vec<u8>> {
    let sample = flow.packet(0, &[], 0);
    let transport = flow.transport();
    packets
        .iter()
        .filter(|packet| {
            packet[0] >> 4 == sample[0] >> 4
                && (if flow.v4 { packet[9] == sample[9] } else { packet[6] == sample[6] })
                && packet[transport..transport + 2] == sample[transport..transport + 2]
        })
        .map(|packet| essence(packet))
        .collect()
}

/// A packet to make: which flow, how many bytes, its flags, and whether something is lost before it.
type Step = (usize, usize, u8, bool);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn splitting_undoes_coalescing_and_no_flow_is_reordered(
        flows in proptest::collection::vec(flow(), 1..4),
        steps in proptest::collection::vec(
            (0_usize..4, prop::sample::select(vec![0_usize, 1, 7, 100, 1368, 1368, 1368, 1368]),
             prop::sample::select(vec![ACK, ACK, ACK, ACK, ACK | PSH, ACK | ECE, ACK | 1, 2, ACK | 0x80]), prop::bool::weighted(0.05)),
            0..150),
        taken in (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(vnet, tcp, udp)| Taken { vnet, tcp, udp }),
    ) {
        let mut flows = flows;
        // Two flows of one address, protocol and port would be one.
        for (index, flow) in flows.iter_mut().enumerate() { flow.port = index as u16 + 1; }
        let mut state = vec![(0_u16, 0_u32); flows.len()];
        let mut packets = Vec::new();
        let steps: Vec<Step> = steps;
        for (which, length, flags, lost) in steps {
            let which = which % flows.len();
            let (index, offset) = &mut state[which];
            let payload: Vec<u8> = (0..length).map(|at| (at + usize::from(*index)) as u8).collect();
            if !lost {
                packets.push(flows[which].packet_at(*index, *offset, &payload, flags));
            }
            *index = index.wrapping_add(1);
            *offset = offset.wrapping_add(length as u32);
        }
        let (out, _) = round_trip(&packets, taken);
        prop_assert_eq!(out.len(), packets.len());
        for packet in &out { verify(packet); }
        for flow in &flows {
            prop_assert_eq!(of_flow(&out, flow), of_flow(&packets, flow));
        }
    }

    #[test]
    fn any_bytes_pass(packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..40)) {
        let mut arena = Vec::new();
        let mut coalescer = Coalescer::new(ALL);
        for packet in &packets {
            let start = arena.len();
            arena.extend_from_slice(packet);
            coalescer.push(&arena, start, packet.len());
        }
        coalescer.finish(&mut arena);
        prop_assert_eq!(coalescer.outputs().map(|output| output.packets()).sum::<usize>(), packets.len());
    }
}

fn stream(flow: &Flow, lengths: &[usize]) -> Vec<Vec<u8>> {
    let mut offset = 0;
    let mut packets = Vec::new();
    for (index, length) in lengths.iter().enumerate() {
        packets.push(flow.packet_at(index as u16, offset, &vec![index as u8; *length], ACK));
        offset += *length as u32;
    }
    packets
}

#[test]
fn a_stream_becomes_one_write_and_no_more_than_64_kib() {
    let flow = Flow::example();
    assert_eq!(round_trip(&stream(&flow, &[1368; 45]), ALL).1, 1);
    // 47 segments of 1368 and the headers are 64,336 bytes; one more would be 65,704.
    assert_eq!(round_trip(&stream(&flow, &[1368; 47]), ALL).1, 1);
    assert_eq!(round_trip(&stream(&flow, &[1368; 48]), ALL).1, 2);
    assert_eq!(round_trip(&stream(&Flow { tcp: false, ..flow.clone() }, &[1000; 64]), ALL).1, 1);
    assert_eq!(round_trip(&stream(&Flow { tcp: false, ..flow }, &[900; 65]), ALL).1, 2);
}

#[test]
fn what_may_not_join_does_not() {
    let flow = Flow::example();
    let second = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut packets = stream(&flow, &[100, 100]);
        change(&mut packets[1]);
        round_trip(&packets, ALL).1
    };
    let tcp = flow.transport();
    assert_eq!(second(&|_| ()), 1);
    assert_eq!(second(&|packet| packet[1] = 3), 2, "another ECN mark");
    assert_eq!(second(&|packet| packet[8] = 63), 2, "another time to live");
    assert_eq!(second(&|packet| packet[tcp + 11] ^= 1), 2, "another acknowledgment");
    assert_eq!(second(&|packet| packet[tcp + 15] ^= 1), 2, "another window");
    assert_eq!(second(&|packet| packet[tcp + 7] ^= 1), 2, "another sequence number");
    assert_eq!(second(&|packet| packet[tcp + 12] |= 1), 2, "AccECN's bit");
    assert_eq!(second(&|packet| packet[0] = 0x46), 2, "IP options");
    assert_eq!(second(&|packet| packet[6] = 0x20), 2, "a fragment");
    assert_eq!(round_trip(&stream(&flow, &[100, 101]), ALL).1, 2, "longer than the first");
    assert_eq!(round_trip(&stream(&flow, &[100, 99, 99]), ALL).1, 2, "after a short one");
    assert_eq!(round_trip(&stream(&flow, &[0, 0]), ALL).1, 2, "bare acknowledgments");
    let none = Flow { tcp: false, shape: Shape { no_checksum: true, ..Shape::default() }, ..flow.clone() };
    assert_eq!(round_trip(&stream(&none, &[100, 100]), ALL).1, 2, "UDP without checksum");
    let counting = Flow { shape: Shape { may_fragment: true, ..Shape::default() }, ..flow };
    let mut packets = stream(&counting, &[100, 100]);
    packets[1][5] ^= 7;
    assert_eq!(round_trip(&packets, ALL).1, 2, "an identification that splitting would not give again");
}

#[test]
fn nothing_passes_a_packet_that_cannot_join() {
    // data, pure acknowledgment, data: the third may not join the first.
    let flow = Flow::example();
    let packets = vec![
        flow.packet_at(0, 0, &[1; 10], ACK),
        flow.packet_at(1, 10, &[], ACK),
        flow.packet_at(2, 10, &[2; 10], ACK),
    ];
    let (out, writes) = round_trip(&packets, ALL);
    assert_eq!(writes, 3);
    assert_eq!(of_flow(&out, &flow), of_flow(&packets, &flow));
}

#[test]
fn nothing_passes_a_packet_whose_ports_are_not_seen() {
    // Two datagrams that would join, and between them one of the same flow that does not show it.
    let writes = |v4: bool, change: &dyn Fn(&mut Vec<u8>)| {
        let flow = Flow { v4, tcp: false, ..Flow::example() };
        let mut packets = stream(&flow, &[100; 3]);
        change(&mut packets[1]);
        round_trip(&packets, ALL).1
    };
    let options = |packet: &mut Vec<u8>| {
        packet[0] = 0x46;
        packet[3] += 4;
        packet.splice(20..20, [1, 1, 1, 0]);
    };
    assert_eq!(writes(true, &|packet| packet[6] = 0x20), 3, "a first fragment");
    assert_eq!(writes(true, &|packet| packet[7] = 9), 3, "a last fragment");
    assert_eq!(writes(true, &options), 3, "IP options");
    assert_eq!(writes(true, &|packet| packet[25] -= 1), 3, "bytes behind a datagram");
    for header in [0, 43, 44, 60] {
        assert_eq!(writes(false, &|packet| packet[6] = header), 3, "extension header {header}");
    }
    assert_eq!(writes(true, &|packet| packet[9] = 1), 2, "an echo request is of no such flow");
    assert_eq!(writes(false, &|packet| packet[6] = 58), 2, "an echo request is of no such flow");
    assert_eq!(writes(true, &|packet| (packet[6], packet[19]) = (0x20, 9)), 2, "a fragment for somebody else");
}

#[test]
fn without_a_virtio_header_packets_stay_as_they_are() {
    let packets = stream(&Flow::example(), &[100; 5]);
    let (out, writes) = round_trip(&packets, Taken::default());
    assert_eq!((out, writes), (packets, 5));
}
