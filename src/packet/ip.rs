//! A view of an IP packet: what a tunnel needs to route it and to coalesce it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

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
