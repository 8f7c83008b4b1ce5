//! A bitmap of any bytes is an error or gives its bits, and its pages lead back to its bytes.

#![no_main]

use lapstrake_geometry::{Sector, Sectors};
use lapstrake_metadata::bitmap::{Bits, PAGE, Superblock};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(superblock) = Superblock::parse(data) else { return };
    assert_eq!(superblock.encode(), data[..Superblock::SIZE]);
    let _ = superblock.check_array(superblock.uuid, 1);
    let Ok(mut bits) = Bits::from_image(&superblock, data) else { return };
    let mut image = Vec::new();
    for page in 0..bits.pages() {
        let mut bytes = [0; PAGE];
        bits.encode_page(&superblock, page, &mut bytes);
        image.extend_from_slice(&bytes);
    }
    let len = image.len().min(data.len());
    assert_eq!(image[..len], data[..len]);
    assert_eq!(bits.iter_set(0).count() as u64, bits.count_set());
    for bit in bits.covering(Sector(superblock.events), Sectors(superblock.events_cleared)) {
        assert_eq!(bits.get(bit), !bits.set(bit));
        assert!(bits.clear(bit) && !bits.get(bit));
    }
    assert!(bits.dirty_pages().all(|page| page < bits.pages()));
});
