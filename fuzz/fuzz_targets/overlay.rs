//! An overlay's header of any bytes is an error or leads back to its value; a table page of any bytes
//! is an error or leads to blocks of data.

#![no_main]

use lapstrake_device::overlay::{BaseId, Header};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(header) = Header::parse(data) {
        assert_eq!(Header::parse(&header.encode()), Ok(header.clone()));
        check(&header, data);
    }
    // No mutation meets the checksum: tables of headers made up from the data.
    let size = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let sizes = data.chunks_exact(8).take(3).map(size);
    let bases = sizes.map(|size| BaseId { size: size >> 1, stamp: [0; 2], id: [0; 32] });
    let header = Header { bases: bases.collect() };
    if let Some(rest) = data.get(24..) {
        assert_eq!(Header::parse(&header.encode()), Ok(header.clone()));
        check(&header, rest);
    }
});

fn check(header: &Header, data: &[u8]) {
    let layout = header.layout();
    let mut bytes = [0; 4096];
    let len = data.len().min(bytes.len());
    bytes[..len].copy_from_slice(&data[..len]);
    for table in &layout.tables {
        for block in [table.first, table.first + table.blocks.saturating_sub(1) / 512] {
            let Some((index, page)) = layout.locate(block) else { continue };
            assert_eq!(layout.tables[index].first + page, block);
            let Ok(entries) = layout.page(block, &bytes) else { continue };
            let left = layout.tables[index].blocks - page * 512;
            for (nth, &entry) in entries.iter().enumerate() {
                assert!(entry == 0 || (nth as u64) < left);
                // The rest are sectors that the block lacks.
                let block = entry & ((1 << 56) - 1);
                assert!(entry < 2 || (layout.data..i64::MAX as u64 / 4096).contains(&block));
            }
        }
    }
    assert_eq!(layout.locate(layout.data), None);
}
