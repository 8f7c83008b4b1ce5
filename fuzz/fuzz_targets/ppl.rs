//! A partial parity log of any bytes is an error, or units that lead back to their bytes, and a replay that
//! stays within the array. Input: the shape of a RAID5, then entries, whose checksums are put right, since a
//! fuzzer does not guess them.

#![no_main]

use lapstrake_engine::Replay;
use lapstrake_geometry::{Config, Geometry, Layout, Level, Sectors, Slot};
use lapstrake_metadata::ppl::{self, Entry, Header};
use libfuzzer_sys::fuzz_target;

const SIGNATURE: u32 = 7;

fuzz_target!(|data: &[u8]| {
    if let Ok(header) = Header::parse(data) {
        assert_eq!(Header::parse(&header.encode()), Ok(header));
    }
    let Some((head, rest)) = data.split_first_chunk::<4>() else { return };
    let chunk = Sectors(8 << (head[0] % 6));
    let Ok(layout) = Layout::from_md(Level::Raid5, u32::from(head[1] % 6)) else { return };
    let raid_disks = 2 + u16::from(head[2] % 6);
    let component = chunk * (1 + u64::from(head[3]));
    let config =
        Config { level: Level::Raid5, layout, chunk, raid_disks, component, member_sizes: Vec::new() };
    let Ok(Geometry::Parity(geometry)) = Geometry::new(&config) else { return };
    let entries: Vec<Entry> = rest.chunks_exact(18).take(ppl::ENTRIES_MAX).map(entry).collect();
    let mut area = Header { signature: SIGNATURE, generation: 1, entries }.encode().to_vec();
    area.resize(1 << 20, 0);
    let _ = ppl::latest(data, SIGNATURE);
    let areas: Vec<_> = (0..raid_disks).map(|_| Some(area.clone())).collect();
    let replay = Replay::new(&geometry, SIGNATURE, &areas, |slot, _| slot != Slot(1));
    for mend in &replay.mends {
        let is_in = |sector: lapstrake_geometry::Sector| (sector + mend.len).0 <= component.0;
        assert!(is_in(mend.parity.1) && mend.data.iter().all(|&(_, sector)| is_in(sector)));
        let data = vec![vec![0; mend.len.bytes() as usize]; mend.data.len()];
        let parity = mend.parity(lapstrake_parity::kernels(), &area, &data);
        assert_eq!(parity.len() as u64, mend.len.bytes());
    }
});

fn entry(bytes: &[u8]) -> Entry {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4"));
    // Sizes that make sense now and then.
    let size = |at: usize| if bytes[17] & 1 == 0 { word(at) } else { word(at) % 4096 * 512 };
    let pp_size = size(4);
    Entry {
        data_sector: u64::from(word(0)) << (bytes[17] >> 4),
        pp_size,
        data_size: size(8),
        parity_disk: word(12) % 8,
        checksum: ppl::checksum(&vec![0; pp_size.min(1 << 20) as usize]),
    }
}
