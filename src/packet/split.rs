//! Super-packets into packets, in place.
//!
//! ```text
//! super-packet   [headers][payload 1][payload 2][payload 3]
//! first          [headers][payload 1]
//! second             [headers][payload 2]          its headers overwrite the end of payload 1
//! third                           [headers][payload 3]
//! ```
//!
//! Each packet is lent until the next one is asked for, which overwrites its tail: whoever wants it must have used it by
//! then. No payload is copied.

use super::checksum::{Sum, pseudo_header};
use super::ip::{TCP, UDP};
use super::vnet::{Gso, VnetHeader};

/// Room for all headers of a packet. IPv4 and TCP have 120 at most; IPv6 extension headers that need more are refused.
const MAX_HEADERS: usize = 256;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// A super-packet that contradicts its own header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// Not an IP packet, or not of the announced family.
    #[error("not an IP packet of the announced kind")]
    NotIp,
    /// The checksum's place lies outside of the packet.
    #[error("the checksum's place lies outside of the packet")]
    Checksum,
    /// Headers that are cut, too long, or of another protocol than announced.
    #[error("the headers are cut, too long, or of another protocol")]
    Headers,
    /// Segments of no bytes.
    #[error("a super-packet without a segment size")]
    Segment,
}

/// Lends the packets of a super-packet, one after the other.
#[derive(Debug)]
pub struct Split<'a> {
    packet: &'a mut [u8],
    plan: Plan,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one lives on the stack at a time; a box would be an allocation per packet"
)]
enum Plan {
    /// One packet, complete.
    Whole {
        given: bool,
    },
    Segments(Segments),
}

#[derive(Debug)]
struct Segments {
    headers: [u8; MAX_HEADERS],
    headers_len: usize,
    transport: usize,
    tcp: bool,
    segment: usize,
    /// Payload bytes that were lent already.
    done: usize,
    index: u16,
    /// What is the same in the checksum of every segment: addresses and protocol.
    pseudo: Sum,
    sequence: u32,
    identification: u16,
}

impl<'a> Split<'a> {
    /// Begins to split `packet`, which follows `header` on the device. A packet that is no super-packet is completed
    /// (its checksum) and lent whole.
    ///
    /// # Errors
    /// The packet is not what the header says. It is damaged or hostile, and is to be dropped and counted.
    pub fn new(header: VnetHeader, packet: &'a mut [u8]) -> Result<Self, SplitError> {
        let plan = match header.gso {
            Gso::None => {
                complete(header, packet)?;
                Plan::Whole { given: false }
            }
            Gso::TcpV4 | Gso::TcpV6 | Gso::Udp => Plan::Segments(Segments::new(header, packet)?),
        };
        Ok(Self { packet, plan })
    }

    /// The next packet, right in all its headers and checksums.
    pub fn next_packet(&mut self) -> Option<&mut [u8]> {
        match &mut self.plan {
            Plan::Whole { given } => (!std::mem::replace(given, true)).then_some(&mut *self.packet),
            Plan::Segments(segments) => segments.next(self.packet),
        }
    }
}

/// Completes the checksum of a packet that is no super-packet.
fn complete(header: VnetHeader, packet: &mut [u8]) -> Result<(), SplitError> {
    let Some((start, offset)) = header.checksum else { return Ok(()) };
    let (start, at) = (usize::from(start), usize::from(start) + usize::from(offset));
    if at + 2 > packet.len() {
        return Err(SplitError::Checksum);
    }
    // The field holds the pseudo-header's sum, so it is summed with the rest. A result of zero is written as 0xffff,
    // which UDP demands and to which every receiver is indifferent otherwise (RFC 1071 section 2 (A): both are zero).
    let checksum = Sum::default().add_bytes(&packet[start..]).udp_checksum();
    packet[at..at + 2].copy_from_slice(&checksum.to_ne_bytes());
    Ok(())
}

impl Segments {
    fn new(header: VnetHeader, packet: &[u8]) -> Result<Self, SplitError> {
        let version = packet.first().ok_or(SplitError::NotIp)? >> 4;
        let fixed = match (version, header.gso) {
            (4, Gso::TcpV4 | Gso::Udp) => 20,
            (6, Gso::TcpV6 | Gso::Udp) => 40,
            _ => return Err(SplitError::NotIp),
        };
        if header.segment == 0 {
            return Err(SplitError::Segment);
        }
        let (transport, offset) = header.checksum.ok_or(SplitError::Checksum)?;
        let transport = usize::from(transport);
        let tcp = header.gso != Gso::Udp;
        if transport < fixed || usize::from(offset) != if tcp { 16 } else { 6 } {
            return Err(SplitError::Checksum);
        }
        // The length that the kernel gives for all headers is not to be trusted; TCP's own is.
        let transport_len =
            if tcp { usize::from(packet.get(transport + 12).ok_or(SplitError::Headers)? >> 4) * 4 } else { 8 };
        let headers_len = transport + transport_len;
        if transport_len < if tcp { 20 } else { 8 } || headers_len > packet.len() || headers_len > MAX_HEADERS {
            return Err(SplitError::Headers);
        }
        let protocol = if tcp { TCP } else { UDP };
        if version == 4 && packet[9] != protocol {
            return Err(SplitError::Headers);
        }
        let mut headers = [0; MAX_HEADERS];
        headers[..headers_len].copy_from_slice(&packet[..headers_len]);
        let addresses = if version == 4 { 12..20 } else { 8..40 };
        let sequence = if tcp { read_u32(&headers, transport + 4) } else { 0 };
        Ok(Self {
            headers_len,
            transport,
            tcp,
            segment: usize::from(header.segment),
            done: 0,
            index: 0,
            pseudo: if transport == fixed {
                pseudo_header(&headers[addresses], protocol, 0)
            } else {
                // Options and extension headers may name another destination than the header does (RFC 8200 section 8.1).
                // The field holds the right sum, over the length of the whole.
                let field = transport + usize::from(offset);
                let whole = (packet.len() - transport) as u16;
                Sum::default().add_u16(u16::from_be_bytes([headers[field], headers[field + 1]])).add_u16(!whole)
            },
            sequence,
            identification: u16::from_be_bytes([headers[4], headers[5]]),
            headers,
        })
    }

    fn next<'p>(&mut self, packet: &'p mut [u8]) -> Option<&'p mut [u8]> {
        let payload_len = packet.len() - self.headers_len;
        // A super-packet without payload is still one packet.
        if self.done >= payload_len && self.index > 0 {
            return None;
        }
        let length = self.segment.min(payload_len - self.done);
        let last = self.done + length == payload_len;
        // Headers go right before the payload, over the end of the segment before.
        let out = &mut packet[self.done..self.done + self.headers_len + length];
        let (headers, payload) = out.split_at_mut(self.headers_len);
        headers.copy_from_slice(&self.headers[..self.headers_len]);
        self.write_ip(headers, length);
        self.write_transport(headers, payload, last);
        self.done += length;
        self.index = self.index.saturating_add(1);
        Some(out)
    }

    fn write_ip(&self, headers: &mut [u8], payload: usize) {
        let total = self.headers_len + payload;
        if headers[0] >> 4 == 4 {
            headers[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            headers[4..6].copy_from_slice(&self.identification.wrapping_add(self.index).to_be_bytes());
            headers[10..12].fill(0);
            let header_len = (usize::from(headers[0] & 15) * 4).clamp(20, self.transport);
            let checksum = Sum::default().add_bytes(&headers[..header_len]).checksum();
            headers[10..12].copy_from_slice(&checksum.to_ne_bytes());
        } else {
            headers[4..6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
        }
    }

    fn write_transport(&self, headers: &mut [u8], payload: &[u8], last: bool) {
        let length = self.headers_len - self.transport + payload.len();
        let header = &mut headers[self.transport..];
        let at = if self.tcp {
            let sequence = self.sequence.wrapping_add(self.done as u32);
            header[4..8].copy_from_slice(&sequence.to_be_bytes());
            // RFC 9293: FIN and PSH speak of the last byte. RFC 3168 section 6.1.2: CWR is said once.
            if !last {
                header[13] &= !(FIN | PSH);
            }
            if self.index > 0 {
                header[13] &= !CWR;
            }
            16
        } else {
            header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
            6
        };
        header[at..at + 2].fill(0);
        // Headers have an even length, so the payload begins at an even offset.
        let sum = self.pseudo.add_u32(length as u32).add_bytes(header).add_bytes(payload);
        let checksum = if self.tcp { sum.checksum() } else { sum.udp_checksum() };
        header[at..at + 2].copy_from_slice(&checksum.to_ne_bytes());
    }
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()).map_or(0, |four| u32::from_be_bytes(*four))
}

#[cfg(test)]
mod tests;
