//! A view of an IP packet: what a tunnel needs to route it and to coalesce it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::ops::Range;

use super::checksum::Sum;

/// IANA protocol number of TCP.
pub const TCP: u8 = 6;
/// IANA protocol number of UDP.
pub const UDP: u8 = 17;

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;

/// Destination address of an IP packet; `None` if the bytes are none.
#[must_use]
pub fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 if packet.len() >= IPV4_HEADER => Some(IpAddr::V4(ipv4_at(packet, 16)?)),
        6 if packet.len() >= IPV6_HEADER => Some(IpAddr::V6(ipv6_at(packet, 24)?)),
        _ => None,
    }
}

/// Source address of an IP packet; `None` if the bytes are none.
#[must_use]
pub fn source(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 if packet.len() >= IPV4_HEADER => Some(IpAddr::V4(ipv4_at(packet, 12)?)),
        6 if packet.len() >= IPV6_HEADER => Some(IpAddr::V6(ipv6_at(packet, 8)?)),
        _ => None,
    }
}

fn ipv4_at(packet: &[u8], offset: usize) -> Option<Ipv4Addr> {
    packet.get(offset..)?.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets))
}

fn ipv6_at(packet: &[u8], offset: usize) -> Option<Ipv6Addr> {
    packet.get(offset..)?.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets))
}

/// A whole, unfragmented TCP or UDP packet without IP options or extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transport {
    /// 4 or 6.
    pub version: u8,
    /// [`TCP`] or [`UDP`].
    pub protocol: u8,
    /// Where the transport header begins.
    pub transport: usize,
    /// Where the payload begins.
    pub payload: usize,
}

impl Transport {
    /// Where the source and the destination address lie, one after the other.
    #[must_use]
    pub fn addresses(&self) -> Range<usize> {
        if self.version == 4 { 12..20 } else { 8..40 }
    }

    /// How far into the transport header its checksum lies.
    #[must_use]
    pub fn checksum_offset(&self) -> usize {
        if self.protocol == TCP { 16 } else { 6 }
    }
}

/// Looks at a packet that fills `packet` exactly. `None`: something else, which goes as it is.
#[must_use]
pub fn transport(packet: &[u8]) -> Option<Transport> {
    let (version, protocol, transport) = match packet.first()? {
        0x45 if packet.len() >= IPV4_HEADER => {
            let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            let fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff;
            if total != packet.len() || fragment != 0 {
                return None;
            }
            (4, packet[9], IPV4_HEADER)
        }
        first if first >> 4 == 6 && packet.len() >= IPV6_HEADER => {
            let payload = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
            if payload + IPV6_HEADER != packet.len() {
                return None;
            }
            (6, packet[6], IPV6_HEADER)
        }
        _ => return None,
    };
    let header = match protocol {
        TCP => usize::from(packet.get(transport + 12)? >> 4) * 4,
        UDP => {
            let length = packet.get(transport + 4..transport + 8)?;
            // A UDP length that differs from the IP length hides bytes (RFC 9868); such a packet goes as it is.
            if usize::from(u16::from_be_bytes([length[0], length[1]])) != packet.len() - transport {
                return None;
            }
            8
        }
        _ => return None,
    };
    let least = if protocol == TCP { 20 } else { 8 };
    let payload = transport + header;
    (header >= least && payload <= packet.len()).then_some(Transport { version, protocol, transport, payload })
}

/// Where the addresses lie in a packet that [`transport`] does not read, but that may carry TCP or UDP all the same: a
/// fragment, one with options or extension headers, one whose lengths contradict each other. `None`: it carries neither.
#[must_use]
pub(super) fn addresses_of_hidden_ports(packet: &[u8]) -> Option<Range<usize>> {
    const ICMPV6: u8 = 58;
    match packet.first()? >> 4 {
        4 if packet.len() >= IPV4_HEADER => matches!(packet[9], TCP | UDP).then_some(12..20),
        6 if packet.len() >= IPV6_HEADER => (packet[6] != ICMPV6).then_some(8..40),
        _ => None,
    }
}

/// Length of the headers that [`udp_ipv4`] writes.
pub const UDP_IPV4_HEADERS: usize = IPV4_HEADER + 8;

/// The headers of a UDP datagram in IPv4 that must not be cut in pieces. It has no UDP checksum (RFC 768: zero), for paths
/// that authenticate the whole packet. `None`: the payload is too long for one packet.
#[must_use]
pub fn udp_ipv4(from: SocketAddrV4, to: SocketAddrV4, payload: usize) -> Option<[u8; UDP_IPV4_HEADERS]> {
    const TTL: u8 = 64;
    const DONT_FRAGMENT: u8 = 0x40;
    let total = u16::try_from(UDP_IPV4_HEADERS + payload).ok()?;
    let mut bytes = [0; UDP_IPV4_HEADERS];
    bytes[0] = 0x45;
    bytes[2..4].copy_from_slice(&total.to_be_bytes());
    bytes[6] = DONT_FRAGMENT;
    bytes[8..10].copy_from_slice(&[TTL, UDP]);
    bytes[12..16].copy_from_slice(&from.ip().octets());
    bytes[16..20].copy_from_slice(&to.ip().octets());
    let sum = Sum::default().add_bytes(&bytes[..IPV4_HEADER]).checksum();
    bytes[10..12].copy_from_slice(&sum.to_ne_bytes());
    bytes[20..22].copy_from_slice(&from.port().to_be_bytes());
    bytes[22..24].copy_from_slice(&to.port().to_be_bytes());
    bytes[24..26].copy_from_slice(&(total - IPV4_HEADER as u16).to_be_bytes());
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_looked_at_safely(packet in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = destination(&packet);
            let _ = source(&packet);
            if let Some(view) = transport(&packet) {
                prop_assert!(view.transport < view.payload && view.payload <= packet.len());
            }
        }

        #[test]
        fn headers_that_are_written_are_read_back(payload in 0..1400_usize, from: (u32, u16), to: (u32, u16)) {
            let address = |(ip, port): (u32, u16)| SocketAddrV4::new(ip.into(), port);
            let (from, to) = (address(from), address(to));
            let mut packet = udp_ipv4(from, to, payload).unwrap().to_vec();
            packet.resize(packet.len() + payload, 7);
            let read = Transport { version: 4, protocol: UDP, transport: 20, payload: 28 };
            prop_assert_eq!(transport(&packet), Some(read));
            prop_assert_eq!(source(&packet), Some(IpAddr::V4(*from.ip())));
            prop_assert_eq!(destination(&packet), Some(IpAddr::V4(*to.ip())));
            prop_assert_eq!(&packet[20..24], [from.port().to_be_bytes(), to.port().to_be_bytes()].concat());
            // RFC 1071: the sum over a header with its checksum in it is all ones.
            prop_assert_eq!(Sum::default().add_bytes(&packet[..20]).folded(), 0xffff);
            prop_assert_eq!(udp_ipv4(from, to, 65_508), None);
        }

        #[test]
        fn plausible_headers_too(v4: bool, tcp: bool, rest in proptest::collection::vec(any::<u8>(), 20..100)) {
            let mut packet = vec![if v4 { 0x45 } else { 0x60 }];
            packet.extend(rest);
            let length = packet.len() as u16;
            if v4 {
                packet[2..4].copy_from_slice(&length.to_be_bytes());
                packet[6..8].fill(0);
                packet[9] = if tcp { TCP } else { UDP };
            } else if packet.len() >= 40 {
                packet[4..6].copy_from_slice(&(length - 40).to_be_bytes());
                packet[6] = if tcp { TCP } else { UDP };
            }
            if let Some(view) = transport(&packet) {
                prop_assert!(view.payload <= packet.len());
            }
        }
    }
}
