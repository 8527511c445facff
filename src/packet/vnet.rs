//! The virtio-net header that stands before a packet on a TUN device (`linux/virtio_net.h`, virtio 1.3 section 5.1.6).

/// Bytes of the header. The 12-byte form with `num_buffers` is not used by TUN unless it is asked for.
pub const VNET_HDR_LEN: usize = 10;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum field holds the pseudo-header's sum only.
const NEEDS_CSUM: u8 = 1;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// A flag on a TCP type: the first segment carries CWR.
const GSO_ECN: u8 = 0x80;

/// Which kind of super-packet follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gso {
    /// None: a packet as it goes.
    None,
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP, either family.
    Udp,
}

/// A header that says what this program does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VnetError {
    /// Fewer bytes than a header has.
    #[error("{0} bytes are no virtio-net header")]
    Short(usize),
    /// A kind of super-packet that was not asked for.
    #[error("segmentation type {0:#x} was not asked for")]
    Type(u8),
}

/// The header, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VnetHeader {
    /// The kind of super-packet.
    pub gso: Gso,
    /// TCP: the first segment carries CWR (RFC 3168), the others must not.
    pub ecn: bool,
    /// Payload bytes of each segment but the last.
    pub segment: u16,
    /// Where the transport header begins and how far into it the checksum lies, if the checksum is to be completed.
    pub checksum: Option<(u16, u16)>,
    /// Bytes of all headers. The kernel's value is a hint that has been wrong; it is written, never relied on.
    pub header_len: u16,
}

impl VnetHeader {
    /// A packet that is complete.
    pub const COMPLETE: Self = Self { gso: Gso::None, ecn: false, segment: 0, checksum: None, header_len: 0 };

    /// Reads the header from the front of `bytes`. TUN uses the byte order of the machine.
    ///
    /// # Errors
    /// Too few bytes, or a type that is not known.
    pub fn decode(bytes: &[u8]) -> Result<Self, VnetError> {
        let Some(&[flags, kind, h0, h1, s0, s1, c0, c1, o0, o1]) = bytes.first_chunk() else {
            return Err(VnetError::Short(bytes.len()));
        };
        let gso = match kind & !GSO_ECN {
            GSO_NONE => Gso::None,
            GSO_TCPV4 => Gso::TcpV4,
            GSO_TCPV6 => Gso::TcpV6,
            GSO_UDP_L4 => Gso::Udp,
            _ => return Err(VnetError::Type(kind)),
        };
        let pair = |a, b| u16::from_ne_bytes([a, b]);
        Ok(Self {
            gso,
            ecn: kind & GSO_ECN != 0,
            segment: pair(s0, s1),
            checksum: (flags & NEEDS_CSUM != 0).then_some((pair(c0, c1), pair(o0, o1))),
            header_len: pair(h0, h1),
        })
    }

    /// The header as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; VNET_HDR_LEN] {
        let kind = match self.gso {
            Gso::None => GSO_NONE,
            Gso::TcpV4 => GSO_TCPV4,
            Gso::TcpV6 => GSO_TCPV6,
            Gso::Udp => GSO_UDP_L4,
        } | if self.ecn { GSO_ECN } else { 0 };
        let (start, offset) = self.checksum.unwrap_or((0, 0));
        let [h0, h1] = self.header_len.to_ne_bytes();
        let [s0, s1] = self.segment.to_ne_bytes();
        let [c0, c1] = start.to_ne_bytes();
        let [o0, o1] = offset.to_ne_bytes();
        [if self.checksum.is_some() { NEEDS_CSUM } else { 0 }, kind, h0, h1, s0, s1, c0, c1, o0, o1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip() {
        for header in [
            VnetHeader::COMPLETE,
            VnetHeader { gso: Gso::TcpV4, ecn: true, segment: 1368, checksum: Some((20, 16)), header_len: 52 },
            VnetHeader { gso: Gso::Udp, ecn: false, segment: 1, checksum: Some((40, 6)), header_len: 48 },
        ] {
            assert_eq!(VnetHeader::decode(&header.encode()), Ok(header));
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert_eq!(VnetHeader::decode(&[0; 9]), Err(VnetError::Short(9)));
        // 3 is VIRTIO_NET_HDR_GSO_UDP, IP fragmentation offload.
        assert_eq!(VnetHeader::decode(&[0, 3, 0, 0, 0, 0, 0, 0, 0, 0]), Err(VnetError::Type(3)));
    }
}
