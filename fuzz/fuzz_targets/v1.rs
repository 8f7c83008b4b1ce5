//! A 1.x superblock of any bytes is an error or leads back to its bytes. Input: one byte for the
//! minor version and whether the checksum is put right, then the superblock.

#![no_main]

use lapstrake_fuzz::exercise;
use lapstrake_geometry::Sectors;
use lapstrake_metadata::{Version, read_at, v1};
use libfuzzer_sys::fuzz_target;

const DEVICE: Sectors = Sectors(1 << 32);

fuzz_target!(|data: &[u8]| {
    let [kind, bytes @ ..] = data else { return };
    let version = [Version::V1_0, Version::V1_1, Version::V1_2][usize::from(kind % 3)];
    let mut bytes = bytes.to_vec();
    if kind & 0x80 != 0 && bytes.len() >= 256 {
        bytes[..8].copy_from_slice(b"\xfc\x4e\x2b\xa9\x01\0\0\0");
        let place = version.superblock(DEVICE).expect("large").0;
        bytes[144..152].copy_from_slice(&place.to_le_bytes());
        bytes[12..16].fill(0);
        bytes[224..256].fill(0);
        let roles = u16::from_le_bytes([bytes[220], bytes[221]]) % (v1::MAX_DEV as u16 + 1);
        bytes[220..224].copy_from_slice(&u32::from(roles).to_le_bytes());
        let len = 256 + 2 * usize::from(roles);
        bytes.resize(bytes.len().max(len), 0xff);
        let sum = v1::checksum(&bytes[..len]);
        bytes[216..220].copy_from_slice(&sum.to_le_bytes());
    }
    if let Ok(superblock) = read_at(version, DEVICE, &bytes) {
        exercise(&superblock, DEVICE);
    }
});
