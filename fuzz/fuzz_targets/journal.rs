//! A meta block of any bytes is an error, or a value that encodes to bytes that parse to it again. Input: the
//! ring's size, then the block. Its checksum is made right, or nothing would come further.

#![no_main]

use lapstrake_geometry::Sectors;
use lapstrake_metadata::journal::{BLOCK_BYTES, Meta, Seed};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((ring, rest)) = data.split_first_chunk::<8>() else { return };
    let ring = Sectors(u64::from_le_bytes(*ring));
    let seed = Seed::new([7; 16]);
    let mut block = vec![0; BLOCK_BYTES];
    let len = rest.len().min(BLOCK_BYTES);
    block[..len].copy_from_slice(&rest[..len]);
    block[4..8].fill(0);
    let sum = seed.checksum(&block);
    block[4..8].copy_from_slice(&sum.to_le_bytes());
    let position = u64::from_le_bytes(block[24..32].try_into().expect("8"));
    let Ok(meta) = Meta::parse(&block, seed, position, ring) else { return };
    assert!(meta.unit() <= ring);
    let again = Meta::parse(&meta.encode(seed), seed, position, ring);
    assert_eq!(again.as_ref(), Ok(&meta));
});
