//! A 0.90 superblock of any bytes, in either byte order, is an error or leads back to its bytes.
//! Input: one byte for the order and whether the checksum is put right, then the superblock.

#![no_main]

use lapstrake_fuzz::exercise;
use lapstrake_geometry::Sectors;
use lapstrake_metadata::{ByteOrder, MAGIC, Version, read_at, v090};
use libfuzzer_sys::fuzz_target;

const DEVICE: Sectors = Sectors(1 << 30);

fuzz_target!(|data: &[u8]| {
    let [kind, bytes @ ..] = data else { return };
    let mut bytes = bytes.to_vec();
    if kind & 0x80 != 0 {
        bytes.resize(4096, 0);
        let order = if kind & 1 == 0 { ByteOrder::Little } else { ByteOrder::Big };
        let word = |value: u32| match order {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        };
        bytes[..4].copy_from_slice(&word(MAGIC));
        bytes[4..8].copy_from_slice(&word(0));
        bytes[8..12].copy_from_slice(&word(90 + u32::from(kind & 2 != 0)));
        let sum = v090::checksum(bytes[..4096].try_into().expect("4096"), order);
        bytes[152..156].copy_from_slice(&word(sum));
    }
    if let Ok(superblock) = read_at(Version::V090, DEVICE, &bytes) {
        exercise(&superblock, DEVICE);
    }
});
