use proptest::prelude::*;

use super::*;
use crate::packet::coalesce::tests::{Flow, Shape, flow, verify};

/// A super-packet as the kernel hands it over: pseudo-header sum in the checksum field.
fn super_packet(flow: &Flow, payload: &[u8], segment: u16) -> (VnetHeader, Vec<u8>) {
    let mut packet = flow.packet(0, payload, PSH | 0x10);
    let (transport, offset) = (flow.transport(), if flow.tcp { 16 } else { 6 });
    let addresses = if flow.v4 { 12..20 } else { 8..40 };
    let sum = pseudo_header(&packet[addresses], if flow.tcp { TCP } else { UDP }, packet.len() - transport).folded();
    packet[transport + offset..][..2].copy_from_slice(&sum.to_ne_bytes());
    let gso = match (flow.tcp, flow.v4) {
        (true, true) => Gso::TcpV4,
        (true, false) => Gso::TcpV6,
        (false, _) => Gso::Udp,
    };
    let checksum = Some((transport as u16, offset as u16));
    (VnetHeader { gso, ecn: false, segment, checksum, header_len: 0 }, packet)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn segments_carry_all_bytes_in_order_with_right_checksums(
        flow in flow(),
        segment in 1_u16..3000,
        payload in proptest::collection::vec(any::<u8>(), 1..65_000),
    ) {
        let payload = &payload[..payload.len().min(65_535 - 40 - 60)];
        let (header, mut packet) = super_packet(&flow, payload, segment);
        let mut split = Split::new(header, &mut packet).unwrap();
        let mut seen = Vec::new();
        let mut index = 0;
        while let Some(packet) = split.next_packet() {
            verify(packet);
            let body = &packet[flow.headers()..];
            let last = seen.len() + body.len() == payload.len();
            prop_assert!(body.len() == usize::from(segment) || last);
            if flow.v4 {
                let id = u16::from_be_bytes([packet[4], packet[5]]);
                prop_assert_eq!(id, flow.identification.wrapping_add(index));
            }
            if flow.tcp {
                let tcp = &packet[flow.transport()..];
                prop_assert_eq!(read_u32(tcp, 4), flow.sequence.wrapping_add(seen.len() as u32));
                prop_assert_eq!(tcp[13] & PSH != 0, last, "PSH is the last one's");
            }
            seen.extend_from_slice(body);
            index += 1;
        }
        prop_assert_eq!(&seen[..], payload);
    }

    #[test]
    fn any_bytes_are_split_or_refused(
        header in proptest::array::uniform10(any::<u8>()),
        kind in prop::sample::select(vec![0_u8, 1, 4, 5, 0x81]),
        first in prop::sample::select(vec![0x45_u8, 0x46, 0x4f, 0x60, 0]),
        mut packet in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut header = header;
        header[1] = kind;
        if let Some(byte) = packet.first_mut() { *byte = first; }
        let Ok(header) = VnetHeader::decode(&header) else { return Ok(()) };
        let length = packet.len();
        if let Ok(mut split) = Split::new(header, &mut packet) {
            let mut lent = 0;
            while let Some(one) = split.next_packet() {
                prop_assert!(one.len() <= length);
                lent += 1;
                prop_assert!(lent <= length + 1);
            }
        }
    }
}

#[test]
fn cwr_is_said_once() {
    let flow = Flow { tcp: true, v4: true, shape: Shape::default(), ..Flow::example() };
    let (mut header, mut packet) = super_packet(&flow, &[7; 300], 100);
    packet[flow.transport() + 13] |= CWR;
    header.ecn = true;
    let mut split = Split::new(header, &mut packet).unwrap();
    let mut flags = Vec::new();
    while let Some(packet) = split.next_packet() {
        flags.push(packet[flow.transport() + 13] & CWR != 0);
    }
    assert_eq!(flags, [true, false, false]);
}

#[test]
fn behind_a_routing_header_the_sum_is_over_the_last_destination() {
    const ROUTING: [u8; 24] = {
        let mut header = [0; 24];
        (header[0], header[1], header[2], header[3]) = (TCP, 2, 4, 1);
        (header[8], header[23]) = (0xfd, 77);
        header
    };
    let flow = Flow { v4: false, ..Flow::example() };
    let payload: Vec<u8> = (0..250).collect();
    let (header, mut packet) = super_packet(&flow, &payload, 100);
    packet.splice(40..40, ROUTING);
    packet[6] = 43;
    let length = packet.len() as u16 - 40;
    packet[4..6].copy_from_slice(&length.to_be_bytes());
    let mut addresses = packet[8..40].to_vec();
    addresses[16..].copy_from_slice(&ROUTING[8..]);
    let sum = pseudo_header(&addresses, TCP, packet.len() - 64).folded();
    packet[64 + 16..64 + 18].copy_from_slice(&sum.to_ne_bytes());
    let header = VnetHeader { checksum: Some((64, 16)), ..header };
    let mut split = Split::new(header, &mut packet).unwrap();
    let mut seen = Vec::new();
    while let Some(packet) = split.next_packet() {
        assert_eq!(packet[40..64], ROUTING);
        assert_eq!(usize::from(u16::from_be_bytes([packet[4], packet[5]])), packet.len() - 40);
        let sum = pseudo_header(&addresses, TCP, packet.len() - 64).add_bytes(&packet[64..]);
        assert_eq!(sum.folded(), 0xffff);
        seen.extend_from_slice(&packet[64 + 20..]);
    }
    assert_eq!(seen, payload);
}

#[test]
fn an_incomplete_checksum_is_completed() {
    for (v4, tcp) in [(true, true), (true, false), (false, true), (false, false)] {
        let flow = Flow { v4, tcp, ..Flow::example() };
        let (header, mut packet) = super_packet(&flow, &[1, 2, 3], 1);
        let header = VnetHeader { gso: Gso::None, ..header };
        let mut split = Split::new(header, &mut packet).unwrap();
        verify(split.next_packet().unwrap());
        assert!(split.next_packet().is_none());
    }
}

#[test]
fn contradictions_are_refused() {
    let flow = Flow::example();
    let (header, packet) = super_packet(&flow, &[0; 100], 10);
    let split = |header, mut packet: Vec<u8>| Split::new(header, &mut packet).map(|_| ()).unwrap_err();
    assert_eq!(split(VnetHeader { segment: 0, ..header }, packet.clone()), SplitError::Segment);
    assert_eq!(split(VnetHeader { gso: Gso::TcpV6, ..header }, packet.clone()), SplitError::NotIp);
    assert_eq!(split(VnetHeader { gso: Gso::Udp, ..header }, packet.clone()), SplitError::Checksum);
    assert_eq!(split(VnetHeader { checksum: None, ..header }, packet.clone()), SplitError::Checksum);
    assert_eq!(split(VnetHeader { checksum: Some((10, 16)), ..header }, packet.clone()), SplitError::Checksum);
    assert_eq!(split(header, packet[..30].to_vec()), SplitError::Headers);
    let plain = VnetHeader { gso: Gso::None, checksum: Some((200, 16)), ..header };
    assert_eq!(split(plain, packet), SplitError::Checksum);
}
