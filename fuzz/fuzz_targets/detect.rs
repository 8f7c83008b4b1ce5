//! A device of any bytes can be probed. Input: how many sectors of zeros lie between the first and
//! the second half of the rest (up to 64 MiB), then the bytes.

#![no_main]

use lapstrake_fuzz::exercise;
use lapstrake_geometry::Sectors;
use lapstrake_metadata::detect::probe;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [low, high, bytes @ ..] = data else { return };
    let (head, tail) = bytes.split_at(bytes.len() / 2);
    let gap = u64::from(u16::from_le_bytes([*low, *high])) * 512;
    let len = head.len() as u64 + gap + tail.len() as u64;
    let byte = |at: u64| match at.checked_sub(head.len() as u64 + gap) {
        Some(at) => tail[at as usize],
        None => head.get(at as usize).copied().unwrap_or(0),
    };
    let size = Sectors(len / 512);
    let found = probe(size, |offset, buffer: &mut [u8]| {
        assert!(offset % 4096 == 0 && offset + buffer.len() as u64 <= size.bytes());
        for (at, place) in (offset..).zip(buffer) {
            *place = byte(at);
        }
        Ok::<(), ()>(())
    });
    let found = found.expect("no reads fail");
    found.superblocks().for_each(|superblock| exercise(superblock, size));
    assert_eq!(found.best().is_some(), found.superblocks().count() > 0);
});
