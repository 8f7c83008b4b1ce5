//! A bad-block log of any bytes is an error, or a set that survives changes and encoding. Input:
//! the shift, two words for a change, then the log.

#![no_main]

use lapstrake_geometry::{Sector, Sectors};
use lapstrake_metadata::badblocks::BadBlocks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((head, log)) = data.split_first_chunk::<17>() else { return };
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8"));
    let (shift, start, len) = (head[0], Sector(word(1)), Sectors(word(9)));
    // A log is whole sectors.
    let mut log = log.to_vec();
    log.resize(log.len().next_multiple_of(512), 0xff);
    let Ok(mut set) = BadBlocks::parse(&log, shift) else { return };
    check(&set, shift);
    set.insert(start, len);
    let addressable = start.0 < 1 << 54;
    assert!(len.is_zero() || !addressable || set.contains(start, len));
    check(&set, shift);
    set.remove(start, len);
    check(&set, shift);
});

fn check(set: &BadBlocks, shift: u8) {
    match set.encode(Sectors(8)) {
        Ok(bytes) => {
            assert!(set.fits(Sectors(8)));
            assert_eq!(&BadBlocks::parse(&bytes, shift).expect("own bytes"), set);
        }
        Err(_) => assert!(!set.fits(Sectors(8))),
    }
    assert!(set.iter().all(|(start, len)| set.contains(start, len)));
}
