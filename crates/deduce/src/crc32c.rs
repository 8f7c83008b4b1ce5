//! CRC-32C without the inversions at its ends, as ext4 has it, and backwards.
//!
//! Backwards: a checksum of which one field is not known tells that field. An ext4 inode's checksum covers its own
//! number, which is stored nowhere in it; so the number follows from the inode's bytes.

const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = value >> 1 ^ if value & 1 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
};

/// Which entry of [`TABLE`] has this top byte: each has another.
const BY_TOP: [u8; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        table[(TABLE[index] >> 24) as usize] = index as u8;
        index += 1;
    }
    table
};

/// The state after `bytes`.
pub(crate) fn forward(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(state, |state, byte| state >> 8 ^ TABLE[(state as u8 ^ byte) as usize])
}

/// The state before `bytes`, of the one after them.
pub(crate) fn backward(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(state, |state, &byte| {
        let index = BY_TOP[(state >> 24) as usize];
        (state ^ TABLE[index as usize]) << 8 | u32::from(index ^ byte)
    })
}

/// The four bytes, little-endian, that lead from one state to another.
pub(crate) fn between(before: u32, after: u32) -> u32 {
    // Four bytes enter by exclusive or: with zeros instead, the start would have to be this.
    backward(after, &[0; 4]) ^ before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_value_of_the_field() {
        assert_eq!(!forward(!0, b"123456789"), 0xe306_9283);
    }

    #[test]
    fn backwards_and_between_undo_forwards() {
        let (start, text) = (0x1234_5678, b"any bytes at all");
        let end = forward(start, text);
        assert_eq!(backward(end, text), start);
        let number = 0xdead_beef_u32;
        assert_eq!(between(start, forward(start, &number.to_le_bytes())), number);
    }
}
