//! CRC-32C (Castagnoli), as md's logs are summed.
//!
//! Neither start value nor result is inverted here: md does it one way for the partial parity log and
//! another for the journal.

use crc::{CRC_32_ISCSI, Crc, Table};

static CASTAGNOLI: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// Goes on from `crc` over `bytes`.
#[must_use]
pub fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    // The crate takes its start value with the highest power first, and inverts what it ends with.
    let mut digest = CASTAGNOLI.digest_with_initial(crc.reverse_bits());
    digest.update(bytes);
    !digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, B.4.
    #[test]
    fn sums_are_those_of_the_standard() {
        let sum = |bytes: &[u8]| !crc32c(!0, bytes);
        let rising: [u8; 32] = core::array::from_fn(|i| i as u8);
        assert_eq!(sum(&[0; 32]), 0x8a91_36aa);
        assert_eq!(sum(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(sum(&rising), 0x46dd_794e);
        assert_eq!(sum(b"123456789"), 0xe306_9283);
        for len in 0..=rising.len() {
            let (first, second) = rising.split_at(len);
            assert_eq!(crc32c(crc32c(5, first), second), crc32c(5, &rising), "split at {len}");
        }
    }

    /// What goes by many bytes a step leaves tails: all lengths must be what the polynomial says, bit by bit.
    #[test]
    fn sums_are_those_of_the_polynomial_at_all_lengths() {
        let bytes: [u8; 4200] = core::array::from_fn(|i| (i * i / 8) as u8);
        let mut slow = 5;
        for (len, byte) in bytes.iter().enumerate() {
            assert_eq!(crc32c(5, &bytes[..len]), slow, "{len} bytes");
            slow = (0..8).fold(slow ^ u32::from(*byte), |crc, _| {
                if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
            });
        }
    }
}
