//! A partial parity log of any bytes is an error, or units that lead back to their bytes, and a replay that
//! stays within the array. Input: the shape of a RAID5, then entries, whose checksums are put right, since a
//! fuzzer does not guess them.

#![no_main]

use lapstrake_engine::{FULLY_TRUSTED, LogConfig, LogDisks, replay_logs};
use lapstrake_geometry::{Config, Geometry, Layout, Level, Sector, Sectors, Slot};
use lapstrake_metadata::ppl::{self, Entry, Header};
use libfuzzer_sys::fuzz_target;
use std::{convert::Infallible, ops::Range};

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
    let config = Config {
        level: Level::Raid5,
        layout,
        chunk,
        raid_disks,
        component,
        member_sizes: Vec::new(),
    };
    let Ok(Geometry::Parity(geometry)) = Geometry::new(&config) else { return };
    let entries: Vec<Entry> = rest.chunks_exact(18).take(ppl::ENTRIES_MAX).map(entry).collect();
    let mut area = Header { signature: SIGNATURE, generation: 1, entries }.encode().to_vec();
    area.resize(1 << 20, 0);
    let _ = ppl::latest(data, SIGNATURE);
    let trusted_to = (0..raid_disks).map(|slot| (slot != 1).then_some(FULLY_TRUSTED)).collect();
    let config = LogConfig { parity: geometry, signature: SIGNATURE, trusted_to };
    let Ok(_) = replay_logs(&config, &mut Disks { area, component });
});

/// All but the second member are there, each with the same log.
struct Disks {
    area: Vec<u8>,
    component: Sectors,
}

impl Disks {
    /// The sectors, which are to be within a member.
    fn range(&self, slot: Slot, sector: Sector, bytes: usize) -> Range<u64> {
        let end = sector + Sectors(bytes as u64 / 512);
        assert!(slot != Slot(1) && end.0 <= self.component.0);
        sector.0..end.0
    }
}

impl LogDisks for Disks {
    type Error = Infallible;

    fn area(&mut self, slot: Slot) -> Result<Option<Vec<u8>>, Infallible> {
        Ok((slot != Slot(1)).then(|| self.area.clone()))
    }

    /// Some sectors cannot be read.
    fn read(&mut self, slot: Slot, sector: Sector, buf: &mut [u8]) -> Result<bool, Infallible> {
        Ok(!self.range(slot, sector, buf.len()).any(|at| at % 31 == 30))
    }

    fn write(&mut self, slot: Slot, sector: Sector, bytes: &[u8]) -> Result<(), Infallible> {
        self.range(slot, sector, bytes.len());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn record_absent(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn empty_logs(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

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
