//! CRC-32C (Castagnoli), eight bytes a step, as md's logs are summed.
//!
//! Neither start value nor result is inverted here: md does it one way for the partial parity log and
//! another for the journal.

/// The polynomial, lowest power in the highest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// `TABLES[k][b]`: what byte `b`, with `k` bytes of zeros behind it, adds.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[k - 1][byte];
            tables[k][byte] = crc >> 8 ^ tables[0][(crc & 0xff) as usize];
            byte += 1;
        }
        k += 1;
    }
    tables
}

/// Goes on from `crc` over `bytes`.
#[must_use]
pub fn crc32c(mut crc: u32, bytes: &[u8]) -> u32 {
    let (eights, rest) = bytes.as_chunks::<8>();
    for eight in eights {
        let word = u64::from_le_bytes(*eight) ^ u64::from(crc);
        crc = 0;
        for (k, byte) in word.to_le_bytes().into_iter().enumerate() {
            crc ^= TABLES[7 - k][usize::from(byte)];
        }
    }
    for &byte in rest {
        crc = crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ byte)];
    }
    crc
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
}
