//! Replay of partial parity logs after an unclean stop: from the members' logs to the blocks of parity that
//! are to be made anew.
//!
//! The order is kept here, by [`replay_logs`]: parity first; when that is stable, who is missing now goes on
//! record, since some entry may name a chunk of theirs; only then the logs are emptied. Cut off anywhere, it may be
//! begun again.
//!
//! As in md: an entry counts if its partial parity is whole, and where every chunk that it names has a member.
//! A chunk that is missing was itself being written, and nothing else depends on it. So it is with a sector that cannot
//! be read, or is on record as bad: parity of it stays as it is.

use alloc::{vec, vec::Vec};
use core::ops::Range;
use lapstrake_geometry::{Parity, Sector, Sectors, Slot, StripeNo};
use lapstrake_metadata::ppl::{self, Entry};
use lapstrake_parity::Kernels;
use smallvec::SmallVec;

/// Sectors of one member that are to be made anew. All sectors count from the data offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mend {
    /// Where they go: the slot that holds the stripe's parity, and the first sector.
    pub parity: (Slot, Sector),
    /// How many.
    pub len: Sectors,
    /// What to read: as many sectors of these slots.
    pub data: SmallVec<[(Slot, Sector); 8]>,
    /// Which bytes of the area of the parity slot's log go into it; empty if none do.
    pub partial: Range<usize>,
}

impl Mend {
    /// The bytes to write, from those that were read.
    fn parity(&self, kernels: &Kernels, area: &[u8], data: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0; self.len.bytes() as usize];
        let partial = Some(&area[self.partial.clone()]).filter(|partial| !partial.is_empty());
        let sources: Vec<&[u8]> = data.iter().map(Vec::as_slice).chain(partial).collect();
        kernels.xor(&mut bytes, &sources);
        bytes
    }

    /// What is left of it where some of it cannot be read; nothing of a single sector.
    fn halves(&self) -> Option<[Self; 2]> {
        let low = self.len.0 / 2;
        let part = |from: u64, len: u64| {
            let at = |&(slot, sector): &(Slot, Sector)| (slot, sector + Sectors(from));
            let byte = |sector: u64| self.partial.start + sector as usize * 512;
            let partial = if self.partial.is_empty() { 0..0 } else { byte(from)..byte(from + len) };
            let data = self.data.iter().map(at).collect();
            Self { parity: at(&self.parity), len: Sectors(len), data, partial }
        };
        (low > 0).then(|| [part(0, low), part(low, self.len.0 - low)])
    }
}

/// The members of an array that is about to start. An error ends the replay.
pub trait LogDisks {
    /// What can go wrong.
    type Error;

    /// The area of a slot's log; none where there is no member.
    ///
    /// # Errors
    /// The device's.
    fn area(&mut self, slot: Slot) -> Result<Option<Vec<u8>>, Self::Error>;

    /// Fills the buffer from a sector of the slot's data. False: some of it cannot be read, or is on record as bad.
    ///
    /// # Errors
    /// The device's, if it is worse.
    fn read(&mut self, slot: Slot, sector: Sector, buf: &mut [u8]) -> Result<bool, Self::Error>;

    /// Writes what is not on record as bad; not stable before the next flush.
    ///
    /// # Errors
    /// The device's.
    fn write(&mut self, slot: Slot, sector: Sector, bytes: &[u8]) -> Result<(), Self::Error>;

    /// What was written to any member is stable.
    ///
    /// # Errors
    /// The device's.
    fn flush(&mut self) -> Result<(), Self::Error>;

    /// Puts on record who is missing ([`lapstrake_metadata::assemble::record_absent`]): one that comes back lacks
    /// what was written. Stable when it returns.
    ///
    /// # Errors
    /// The device's.
    fn record_absent(&mut self) -> Result<(), Self::Error>;

    /// Leaves nothing to replay in any log, also those of replacements. Stable when it returns.
    ///
    /// # Errors
    /// The device's.
    fn empty_logs(&mut self) -> Result<(), Self::Error>;
}

/// The array whose logs are replayed.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// The array's address map.
    pub parity: Parity,
    /// Of the logs.
    pub signature: u32,
    /// By slot: up to where the member's data is right; none where there is no member.
    pub trusted_to: Vec<Option<Sector>>,
}

/// Does what the logs of a dirty array say, and empties them.
///
/// # Errors
/// The devices'. It may be begun again then.
pub fn replay_logs<D: LogDisks>(config: &LogConfig, disks: &mut D) -> Result<Replay, D::Error> {
    let areas = areas(config, disks)?;
    let mut replay = Replay::new(config, &areas);
    for mend in &replay.mends {
        let area = areas[mend.parity.0.index()].as_deref().unwrap_or_default();
        replay.unread += make_anew(mend, area, disks)?;
    }
    disks.flush()?;
    disks.record_absent()?;
    disks.empty_logs()?;
    Ok(replay)
}

/// Gives how many sectors of parity were left as they are, since some data of theirs cannot be read.
fn make_anew<D: LogDisks>(mend: &Mend, area: &[u8], disks: &mut D) -> Result<u64, D::Error> {
    let Some(data) = data_of(mend, disks)? else {
        let Some([low, high]) = mend.halves() else { return Ok(1) };
        return Ok(make_anew(&low, area, disks)? + make_anew(&high, area, disks)?);
    };
    let (slot, sector) = mend.parity;
    disks.write(slot, sector, &mend.parity(lapstrake_parity::kernels(), area, &data))?;
    Ok(0)
}

fn data_of<D: LogDisks>(mend: &Mend, disks: &mut D) -> Result<Option<Vec<Vec<u8>>>, D::Error> {
    let mut data = Vec::new();
    for &(slot, sector) in &mend.data {
        let mut block = vec![0; mend.len.bytes() as usize];
        if !disks.read(slot, sector, &mut block)? {
            return Ok(None);
        }
        data.push(block);
    }
    Ok(Some(data))
}

/// What the logs say; nothing is written.
///
/// # Errors
/// The devices'.
pub fn read_logs<D: LogDisks>(config: &LogConfig, disks: &mut D) -> Result<Replay, D::Error> {
    Ok(Replay::new(config, &areas(config, disks)?))
}

fn areas<D: LogDisks>(config: &LogConfig, disks: &mut D) -> Result<Vec<Option<Vec<u8>>>, D::Error> {
    (0..config.parity.raid_disks()).map(|slot| disks.area(Slot(slot))).collect()
}

/// What the logs say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// In the order in which they are to be done.
    pub mends: Vec<Mend>,
    /// Entries that count.
    pub entries: usize,
    /// Logs without a sound unit, and entries that are not whole or make no sense.
    pub faults: usize,
    /// Sectors of parity that were left as they are, since some data of theirs cannot be read.
    pub unread: u64,
}

impl Replay {
    /// `areas`: for each slot that has a member the area of its log.
    fn new(config: &LogConfig, areas: &[Option<Vec<u8>>]) -> Self {
        let (geometry, signature) = (&config.parity, config.signature);
        let is_there = |slot: Slot, end: Sector| {
            config.trusted_to[slot.index()].is_some_and(|trusted_to| end <= trusted_to)
        };
        let mut replay = Self::default();
        for (slot, area) in (0..).map(Slot).zip(areas) {
            let Some(area) = area else { continue };
            let Some(unit) = ppl::latest(area, signature) else {
                replay.faults += 1;
                continue;
            };
            for (entry, range) in unit.entries(area) {
                let is_whole = range.len() == entry.pp_size as usize
                    && ppl::checksum(&area[range.clone()]) == entry.checksum;
                match Rows::of(geometry, entry, slot).filter(|_| is_whole) {
                    Some(rows) => {
                        replay.entries += 1;
                        rows.mend(geometry, slot, range, is_there, &mut replay.mends);
                    }
                    None => replay.faults += 1,
                }
            }
        }
        replay
    }

    /// Whether the array is in sync once the mends are done. As in md it is not if nothing was logged: then
    /// the array may have waited for its first resync.
    #[must_use]
    pub fn settles(&self) -> bool {
        self.entries > 0 && self.faults == 0
    }
}

/// An entry's sectors: chunk after chunk, each row a sector of each.
struct Rows {
    first: u64,
    /// Behind the last array sector.
    end: u64,
    chunks: u64,
    height: u64,
    stripe: StripeNo,
}

impl Rows {
    /// None if the entry makes no sense on this array.
    fn of(geometry: &Parity, entry: &Entry, slot: Slot) -> Option<Self> {
        let (chunk, disks) = (geometry.chunk().0, u64::from(geometry.data_disks()));
        let (partial, data) = (u64::from(entry.pp_size / 512), u64::from(entry.data_size / 512));
        let is_whole = (entry.pp_size | entry.data_size).is_multiple_of(512);
        if !is_whole || data == 0 || partial > chunk {
            return None;
        }
        let first = entry.data_sector;
        // A partial parity of a whole chunk may be that of a write that begins and ends anywhere.
        let (height, chunks) = match partial {
            0 => (data / disks, disks),
            _ if partial == chunk => (chunk, disks),
            _ => (partial, data / partial),
        };
        let written = if partial == chunk { data } else { chunks.checked_sub(1)? * chunk + height };
        let end = first.checked_add(written)?;
        if height == 0 || height > chunk || end > geometry.array_sectors().0 {
            return None;
        }
        let (stripe, ..) = geometry.locate(Sector(first));
        let is_one_stripe = geometry.locate(Sector(end - 1)).0 == stripe;
        let is_ours = geometry.slot_of_p(stripe) == slot && entry.parity_disk == slot.0.into();
        (is_one_stripe && is_ours).then_some(Self { first, end, chunks, height, stripe })
    }

    /// The chunks that row `row` touches, and its place in them.
    fn row(&self, geometry: &Parity, row: u64) -> (SmallVec<[u16; 8]>, Sectors) {
        let chunk = geometry.chunk().0;
        let sectors = (0..self.chunks).map(|k| self.first + row + k * chunk);
        let data = sectors.filter(|&sector| sector < self.end);
        let data = data.map(|sector| geometry.locate(Sector(sector)).1).collect();
        (data, geometry.locate(Sector(self.first + row)).2)
    }

    /// Rows that follow each other in the same chunks are mended together.
    fn mend(
        &self,
        geometry: &Parity,
        slot: Slot,
        partial: Range<usize>,
        is_there: impl Fn(Slot, Sector) -> bool,
        mends: &mut Vec<Mend>,
    ) {
        let mut row = 0;
        while row < self.height {
            let (data, offset) = self.row(geometry, row);
            let mut next = row + 1;
            while next < self.height
                && self.row(geometry, next) == (data.clone(), offset + Sectors(next - row))
            {
                next += 1;
            }
            let (len, sector) = (Sectors(next - row), geometry.member_sector(self.stripe, offset));
            let data = data.iter().map(|&data| (geometry.slot_of_data(self.stripe, data), sector));
            let data: SmallVec<[_; 8]> = data.collect();
            let is_known = data.iter().all(|&(slot, at)| is_there(slot, at + len));
            if !data.is_empty() && is_known {
                let bytes = |row: u64| partial.start + row as usize * 512;
                let partial = if partial.is_empty() { 0..0 } else { bytes(row)..bytes(next) };
                mends.push(Mend { parity: (slot, sector), len, data, partial });
            }
            row = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapstrake_geometry::{Config, Geometry, Layout, Level};
    use lapstrake_metadata::ppl::Header;

    const CHUNK: u64 = 16;

    fn raid5() -> Parity {
        let config = Config {
            level: Level::Raid5,
            layout: Layout::default_for(Level::Raid5),
            chunk: Sectors(CHUNK),
            raid_disks: 4,
            component: Sectors(CHUNK * 8),
            member_sizes: Vec::new(),
        };
        match Geometry::new(&config) {
            Ok(Geometry::Parity(parity)) => parity,
            other => unreachable!("{other:?}"),
        }
    }

    /// What the log of the first stripe's parity, in slot 3, says of this entry, with zeros behind it.
    fn replay(entry: Entry, missing: Option<Slot>) -> Replay {
        let header = Header { signature: 7, generation: 1, entries: vec![entry] };
        let mut area = header.encode().to_vec();
        area.resize(1 << 20, 0);
        let empty = ppl::empty_area(ppl::Shape::of(Sectors(2048)).unwrap(), [0; 16]);
        let mut areas = vec![Some(Header::empty(7).encode().to_vec()); 4];
        areas.iter_mut().flatten().for_each(|area| area.resize(empty.len(), 0));
        areas[3] = Some(area);
        let mut trusted_to = vec![Some(Sector(u64::MAX)); 4];
        missing.into_iter().for_each(|slot| trusted_to[slot.index()] = None);
        Replay::new(&LogConfig { parity: raid5(), signature: 7, trusted_to }, &areas)
    }

    fn entry(data_sector: u64, pp_sectors: u32, data_sectors: u32) -> Entry {
        let (pp_size, data_size) = (pp_sectors * 512, data_sectors * 512);
        let checksum = ppl::checksum(&vec![0; pp_size as usize]);
        Entry { data_sector, pp_size, data_size, parity_disk: 3, checksum }
    }

    #[test]
    fn parity_is_made_of_the_chunks_that_were_written_and_of_the_rest() {
        let found = replay(entry(CHUNK + 2, 4, 8), None);
        let data = [(Slot(1), Sector(2)), (Slot(2), Sector(2))].into_iter().collect();
        let partial = 4096..4096 + 4 * 512;
        let mend = Mend { parity: (Slot(3), Sector(2)), len: Sectors(4), data, partial };
        assert_eq!(found, Replay { mends: vec![mend.clone()], entries: 1, faults: 0, unread: 0 });
        assert!(found.settles());
        let mut area = vec![0; 8192];
        area[4096..4096 + 2048].fill(0b100);
        let data = [vec![0b001; 2048], vec![0b011; 2048]];
        assert_eq!(mend.parity(lapstrake_parity::kernels(), &area, &data), vec![0b110; 2048]);
    }

    #[test]
    fn a_full_stripe_needs_no_partial_parity() {
        let found = replay(entry(0, 0, 3 * CHUNK as u32), None);
        assert_eq!(found.mends.len(), 1);
        let mend = &found.mends[0];
        assert_eq!((mend.len, mend.data.len(), mend.partial.len()), (Sectors(CHUNK), 3, 0));
    }

    #[test]
    fn a_write_that_begins_within_a_chunk_and_ends_in_another_is_taken_row_by_row() {
        // Of chunk 0 its second half, of chunk 1 all, of chunk 2 the first quarter.
        let found = replay(entry(8, CHUNK as u32, 8 + 16 + 4), None);
        let rows: Vec<_> =
            found.mends.iter().map(|m| (m.parity.1.0, m.len.0, m.data.len())).collect();
        assert_eq!(rows, [(8, 8, 2), (0, 4, 2), (4, 4, 1)]);
    }

    #[test]
    fn what_is_missing_is_left_and_what_makes_no_sense_is_a_fault() {
        let found = replay(entry(CHUNK, 4, 8), Some(Slot(2)));
        assert_eq!(found, Replay { mends: Vec::new(), entries: 1, faults: 0, unread: 0 });
        let wrong_parity = Entry { parity_disk: 2, ..entry(0, 4, 4) };
        let torn = Entry { checksum: 1, ..entry(0, 4, 4) };
        let over_the_stripe = entry(2 * CHUNK, 4, 8);
        let beyond = entry(1 << 40, 4, 4);
        let (nothing, high) = (entry(0, 4, 0), entry(0, 17, 17));
        let (empty_chunks, no_row) = (entry(0, CHUNK as u32, 0), entry(0, 0, 1));
        // The stripe behind the last one would have its parity here, too.
        let behind = entry(3 * 8 * CHUNK, 4, 4);
        let makes_no_sense = [wrong_parity, torn, over_the_stripe, beyond, behind, nothing, high];
        for entry in makes_no_sense.into_iter().chain([empty_chunks, no_row]) {
            let found = replay(entry.clone(), None);
            assert_eq!((found.entries, found.faults), (0, 1), "{entry:?}");
            assert!(!found.settles());
        }
    }

    #[test]
    fn entries_are_of_whole_sectors() {
        let of = |pp_size, data_size| {
            Rows::of(&raid5(), &Entry { pp_size, data_size, ..entry(0, 4, 8) }, Slot(3)).is_some()
        };
        assert!(of(2048, 4096));
        for (partial, data) in [(2048 + 100, 4096), (2048, 4096 + 100), (2048 + 100, 4096 + 100)] {
            assert!(!of(partial, data), "{partial} {data}");
        }
    }

    #[test]
    fn the_last_stripe_has_entries_too() {
        // Of eight stripes the last has its parity in slot 0.
        let last = Entry { parity_disk: 0, ..entry(3 * 7 * CHUNK, 0, 3 * CHUNK as u32) };
        let rows = Rows::of(&raid5(), &last, Slot(0)).expect("the last stripe");
        assert_eq!((rows.end, rows.height), (raid5().array_sectors().0, CHUNK));
    }

    #[test]
    fn logs_without_an_entry_settle_nothing() {
        let nothing = Replay::default();
        assert!(!nothing.settles(), "the array may wait for its first resync");
        let done = Replay { entries: 1, ..nothing };
        assert!(done.settles());
        assert!(!Replay { faults: 1, ..done }.settles());
    }
}
