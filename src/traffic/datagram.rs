//! The head of every datagram that the generator sends: 32 bytes that name the job, so that no stranger's packet counts.
//!
//! ```text
//! seed u64 | kind u8, zero u8, flow u16, zero u32 | sequence u64 | time or count u64     (network byte order)
//! ```

use super::job::DATAGRAM_HEADER;

/// The size of the head.
pub(super) const HEADER: usize = DATAGRAM_HEADER as usize;

/// What a datagram is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// The client is there.
    Hello = 1,
    /// The server is there, and receives.
    Go,
    /// Bulk data outside the sender's window.
    Data,
    /// Bulk data within the sender's window: what loss is computed of.
    Measured,
    /// The receiver's window is over.
    Done,
    /// The sender has ended: `sequence` holds its count of all datagrams, `time` that of the measured ones.
    End,
    /// The receiver has the sender's counts.
    Fin,
    /// A request, or a probe.
    Request,
    /// Its answer.
    Response,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Hello,
        Self::Go,
        Self::Data,
        Self::Measured,
        Self::Done,
        Self::End,
        Self::Fin,
        Self::Request,
        Self::Response,
    ];
}

/// The head of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) flow: u16,
    pub(super) sequence: u64,
    pub(super) time_ns: u64,
}

impl Header {
    pub(super) const fn new(kind: Kind, flow: u16) -> Self {
        Self { kind, flow, sequence: 0, time_ns: 0 }
    }

    pub(super) fn encode(&self, seed: u64) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..8].copy_from_slice(&seed.to_be_bytes());
        bytes[8] = self.kind as u8;
        bytes[10..12].copy_from_slice(&self.flow.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.time_ns.to_be_bytes());
        bytes
    }

    /// `None` for a datagram that is not of the job that `seed` names.
    pub(super) fn decode(bytes: &[u8], seed: u64) -> Option<Self> {
        let head: &[u8; HEADER] = bytes.first_chunk()?;
        let u64_at = |at: usize| head[at..at + 8].try_into().map(u64::from_be_bytes).ok();
        if u64_at(0)? != seed {
            return None;
        }
        Some(Self {
            kind: *Kind::ALL.get(usize::from(head[8]).checked_sub(1)?)?,
            flow: u16::from_be_bytes([head[10], head[11]]),
            sequence: u64_at(16)?,
            time_ns: u64_at(24)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_comes_back_and_strangers_do_not() {
        for kind in Kind::ALL {
            let header = Header { kind, flow: 3, sequence: u64::MAX - 1, time_ns: 1 << 60 };
            let bytes = header.encode(0x1122_3344_5566_7788);
            assert_eq!(Header::decode(&bytes, 0x1122_3344_5566_7788), Some(header));
            assert_eq!(Header::decode(&bytes, 0x1122_3344_5566_7789), None);
            assert_eq!(Header::decode(&bytes[..31], 0x1122_3344_5566_7788), None);
        }
        for kind in [0, 10, 255] {
            let mut bytes = Header::new(Kind::Go, 0).encode(5);
            bytes[8] = kind;
            assert_eq!(Header::decode(&bytes, 5), None);
        }
    }
}
