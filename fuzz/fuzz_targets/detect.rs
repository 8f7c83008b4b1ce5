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
    let parts = [(0, head), (head.len() as u64 + gap, tail)];
    let size = Sectors(len / 512);
    let found = probe(size, |offset, buffer: &mut [u8]| {
        let end = offset + buffer.len() as u64;
        assert!(offset % 4096 == 0 && end <= size.bytes());
        buffer.fill(0);
        for (at, part) in parts {
            let (from, to) = (at.max(offset), (at + part.len() as u64).min(end));
            if from < to {
                let source = &part[(from - at) as usize..(to - at) as usize];
                buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
        Ok::<(), ()>(())
    });
    let found = found.expect("no reads fail");
    found.superblocks().for_each(|superblock| exercise(superblock, size));
    let own = found.doubts().count() < found.superblocks().count();
    assert!(found.best().is_none() || found.superblocks().count() > 0);
    assert!(found.best().is_some() || !own, "one against which nothing speaks counts");
    let partitions = found.table.iter().flat_map(|table| &table.partitions);
    partitions.for_each(|it| assert!(it.start > 0 && it.size > 0 && it.end() <= i64::MAX as u64));
});
