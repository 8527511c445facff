//! The Internet checksum (RFC 1071).
//!
//! A sum is kept unfolded in a `u64`, in the byte order of memory: RFC 1071 section 2 (B) says that order does not matter
//! until the result is stored, and a result stored in the same order is right.

/// An unfolded one's complement sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes that begin at an even offset of what is summed; an odd last byte is padded with a zero.
    #[must_use]
    pub fn add_bytes(self, data: &[u8]) -> Self {
        // Independent lanes of 32-bit halves in 64-bit accumulators: the compiler makes vector additions of it, and no
        // carry is lost before 2^32 words.
        const LANES: usize = 4;
        let (mut low, mut high) = ([0_u64; LANES], [0_u64; LANES]);
        let (blocks, rest) = data.as_chunks::<{ LANES * 8 }>();
        for block in blocks {
            let (words, _) = block.as_chunks::<8>();
            for lane in 0..LANES {
                let word = u64::from_ne_bytes(words[lane]);
                low[lane] += word & 0xffff_ffff;
                high[lane] += word >> 32;
            }
        }
        let mut sum = 0;
        for lane in 0..LANES {
            sum += low[lane] + high[lane];
        }
        let (pairs, odd) = rest.as_chunks::<2>();
        for pair in pairs {
            sum += u64::from(u16::from_ne_bytes(*pair));
        }
        if let [last] = odd {
            sum += u64::from(u16::from_ne_bytes([*last, 0]));
        }
        // Each call adds less than 2^48 for any packet; a thousand calls do not overflow.
        Self(self.0 + sum)
    }

    /// Adds one 16-bit number in network byte order.
    #[must_use]
    pub fn add_u16(self, value: u16) -> Self {
        Self(self.0 + u64::from(u16::from_ne_bytes(value.to_be_bytes())))
    }

    /// Adds one 32-bit number in network byte order.
    #[must_use]
    pub fn add_u32(self, value: u32) -> Self {
        Self(self.0 + u64::from(u32::from_ne_bytes(value.to_be_bytes())))
    }

    /// The sum itself, folded to 16 bits: what stands in the checksum field of a packet whose checksum is left to
    /// segmentation or to the device. In the order of memory: store it with `to_ne_bytes`.
    #[must_use]
    pub fn folded(self) -> u16 {
        let mut sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        sum as u16
    }

    /// The checksum: the complement of the sum. In the order of memory: store it with `to_ne_bytes`.
    #[must_use]
    pub fn checksum(self) -> u16 {
        !self.folded()
    }

    /// The checksum of a UDP header, where RFC 768 keeps zero for "none".
    #[must_use]
    pub fn udp_checksum(self) -> u16 {
        match self.checksum() {
            0 => 0xffff,
            checksum => checksum,
        }
    }
}

/// The pseudo-header of RFC 9293 section 3.1 (IPv4) and RFC 8200 section 8.1 (IPv6), over both addresses as they lie in
/// the packet. `length` is that of the transport header and its payload.
#[must_use]
pub fn pseudo_header(addresses: &[u8], protocol: u8, length: usize) -> Sum {
    Sum::default().add_bytes(addresses).add_u16(u16::from(protocol)).add_u32(length as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 1071 section 4.1, word by word.
    fn naive(data: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in data.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
            if sum > 0xffff {
                sum = (sum & 0xffff) + 1;
            }
        }
        !(sum as u16)
    }

    #[test]
    fn the_example_of_rfc_1071() {
        // Section 3: the words 0001 f203 f4f5 f6f7 sum to ddf2.
        let sum = Sum::default().add_bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.folded().to_ne_bytes(), [0xdd, 0xf2]);
    }

    #[test]
    fn a_udp_checksum_is_never_zero() {
        let sum = Sum::default().add_bytes(&[0xff, 0xff]);
        assert_eq!((sum.checksum(), sum.udp_checksum()), (0, 0xffff));
    }

    #[test]
    fn all_ones_do_not_overflow() {
        let data = vec![0xff; 65_535];
        assert_eq!(Sum::default().add_bytes(&data).checksum().to_ne_bytes(), naive(&data).to_be_bytes());
    }

    proptest! {
        #[test]
        fn agrees_with_the_naive_sum(data in proptest::collection::vec(any::<u8>(), 0..4000)) {
            prop_assert_eq!(Sum::default().add_bytes(&data).checksum().to_ne_bytes(), naive(&data).to_be_bytes());
        }

        #[test]
        fn parts_sum_to_the_whole(data in proptest::collection::vec(any::<u8>(), 0..600), cut in 0_usize..300) {
            let cut = (cut * 2).min(data.len() & !1);
            let parts = Sum::default().add_bytes(&data[..cut]).add_bytes(&data[cut..]);
            prop_assert_eq!(Sum::default().add_bytes(&data).checksum(), parts.checksum());
        }

        #[test]
        fn numbers_are_taken_in_network_order(a: u16, b: u32) {
            let bytes = [a.to_be_bytes().as_slice(), b.to_be_bytes().as_slice()].concat();
            prop_assert_eq!(Sum::default().add_u16(a).add_u32(b).checksum(), Sum::default().add_bytes(&bytes).checksum());
        }
    }
}
