//! What is read of the devices: windows at the same places on all of them, spread over what is not a hole.
//!
//! Of a window's blocks those are kept in which a file system may tell its own place (as [`Filter`] says), and
//! some rows: sectors at one place of all devices, for what parity and copies say. All else is forgotten at once:
//! memory grows with the budget, by some 24 bytes for each block of it, and not with the size of the devices.

use crate::bytes::BLOCK;
use crate::changes::Changes;
use crate::crc32c;
use crate::source::{Source, Unreadable};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

/// Bytes read at once of each device.
pub(crate) const WINDOW: u64 = 256 << 10;
/// Bytes of a btrfs node, the largest thing that is kept.
pub(crate) const NODE: usize = 16384;
/// The first windows are all read: here lie superblocks and the tables behind them.
const HEAD_WINDOWS: usize = 512;
/// And the last ones, where copies and a GPT's end lie.
const TAIL_WINDOWS: usize = 32;
const KEPT_MAX: usize = 60_000;
/// Rare blocks of each device, of either length: what repeats them without end hides nothing else, and takes no more.
const RARE_MAX: usize = 4096;
const ROWS_MAX: usize = 256;
const SECTOR: usize = 512;

/// How a block is to be kept.
pub(crate) struct Interest {
    /// All of its kind are wanted, up to `RARE_MAX`.
    pub(crate) is_rare: bool,
    /// With what follows it.
    pub(crate) is_long: bool,
}

/// Whether a block of 4 KiB is to be kept.
pub(crate) type Filter = fn(&[u8]) -> Option<Interest>;

/// A sector's bytes.
pub(crate) type Sector = Box<[u8; SECTOR]>;

/// A block of a device in which a file system may tell its place.
pub(crate) struct Kept {
    pub(crate) device: usize,
    pub(crate) at: u64,
    pub(crate) bytes: Box<[u8]>,
}

/// A sector at one place of all devices; at least two of them hold something there.
pub(crate) struct Row {
    pub(crate) at: u64,
    /// None where it cannot be read.
    pub(crate) sectors: Vec<Option<Sector>>,
}

/// What was read.
pub(crate) struct Samples<'a> {
    sources: &'a [&'a dyn Source],
    filter: Filter,
    pub(crate) kept: Vec<Kept>,
    pub(crate) rows: Vec<Row>,
    /// Where contents change.
    pub(crate) changes: Changes,
    /// Checksums of blocks: device, byte, CRC-32C before its last inversion.
    pub(crate) sums: Vec<(usize, u64, u32)>,
    pub(crate) unreadable: Vec<Unreadable>,
    pub(crate) bytes_read: u64,
    /// Where each device's first byte other than zero was seen.
    pub(crate) first_data: Vec<Option<u64>>,
    /// Rare blocks that may still be kept, of each device: short ones, long ones.
    rare_left: Vec<[usize; 2]>,
    cache: RefCell<HashMap<(usize, u64), Option<Sector>>>,
}

/// Starts of windows in which one of the devices may hold something, ascending.
fn windows(sources: &[&dyn Source]) -> impl Iterator<Item = u64> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let data = sources.iter().filter_map(|source| source.next_data(at)).min()?;
        let start = data.max(at) / WINDOW * WINDOW;
        at = start + WINDOW;
        Some(start)
    })
}

/// Which windows are read: starts, ascending. `budget` is in bytes of each device. They are counted first, so that no
/// list is longer than the budget has windows.
fn plan(sources: &[&dyn Source], budget: u64) -> Vec<u64> {
    let most = (budget / WINDOW).max(1) as usize;
    let count = windows(sources).count();
    if count <= most {
        return windows(sources).collect();
    }
    let head = HEAD_WINDOWS.min(most / 2);
    let tail = TAIL_WINDOWS.min(most / 8);
    let (spread, middle) = (most - head - tail, count - head - tail);
    let picked = |index: usize| head + (index as u128 * middle as u128 / spread as u128) as usize;
    let wanted = (0..head).chain((0..spread).map(picked)).chain(count - tail..count);
    let mut wanted = wanted.peekable();
    let numbered = windows(sources).enumerate();
    numbered.filter(|(index, _)| wanted.next_if_eq(index).is_some()).map(|(_, at)| at).collect()
}

/// What of a block can be read; zeroes, which tell nothing, of one that cannot.
fn read_block(source: &dyn Source, at: u64, block: &mut [u8]) -> u64 {
    match source.read_at(at, block) {
        Ok(()) => block.len() as u64,
        Err(_) => {
            block.fill(0);
            0
        }
    }
}

/// Whether it holds anything but one byte over and over.
fn is_rich(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| *byte != bytes[0])
}

impl<'a> Samples<'a> {
    /// Reads. `progress` is told how many of how many bytes are done.
    pub(crate) fn read(
        sources: &'a [&'a dyn Source],
        budget: u64,
        filter: Filter,
        mut progress: impl FnMut(u64, u64),
    ) -> Self {
        let windows = plan(sources, budget);
        let mut samples = Self {
            sources,
            filter,
            kept: Vec::new(),
            rows: Vec::new(),
            changes: Changes::new(sources.len()),
            sums: Vec::new(),
            unreadable: Vec::new(),
            bytes_read: 0,
            first_data: vec![None; sources.len()],
            rare_left: vec![[RARE_MAX; 2]; sources.len()],
            cache: RefCell::new(HashMap::new()),
        };
        let devices = sources.len();
        let kept_each = (KEPT_MAX / (windows.len() * devices).max(1)).max(4);
        let rows_each = (ROWS_MAX / windows.len().max(1)).max(1);
        let rows_every = (windows.len() / ROWS_MAX).max(1);
        let all = windows.len() as u64 * WINDOW * devices as u64;
        let mut buffers = vec![vec![0; WINDOW as usize]; devices];
        for (index, &start) in windows.iter().enumerate() {
            progress(index as u64 * WINDOW * devices as u64, all);
            let lengths: Vec<Option<usize>> = buffers
                .iter_mut()
                .enumerate()
                .map(|(device, buffer)| samples.fill(device, start, buffer))
                .collect();
            for (device, length) in lengths.iter().enumerate() {
                let bytes = &buffers[device][..length.unwrap_or(0)];
                samples.keep(device, start, bytes, kept_each);
            }
            if index % rows_every == 0 {
                samples.take_rows(start, &buffers, &lengths, rows_each);
            }
        }
        progress(all, all);
        samples
    }

    /// How much of a window the device has; None if it cannot be read.
    fn fill(&mut self, device: usize, start: u64, buffer: &mut [u8]) -> Option<usize> {
        let source = self.sources[device];
        let length = source.size().saturating_sub(start).min(WINDOW) as usize;
        buffer.fill(0);
        if source.next_data(start).is_none_or(|data| data >= start + length as u64) {
            return Some(length);
        }
        if source.lacks(start, length as u64) {
            let blocks = buffer[..length].chunks_mut(BLOCK).zip((start..).step_by(BLOCK));
            let there = blocks.filter(|(block, at)| !source.lacks(*at, block.len() as u64));
            self.bytes_read += there.map(|(block, at)| read_block(source, at, block)).sum::<u64>();
            return Some(length);
        }
        self.bytes_read += length as u64;
        match source.read_at(start, &mut buffer[..length]) {
            Ok(()) => Some(length),
            Err(error) => {
                let range = start..start + length as u64;
                self.unreadable.push(Unreadable { device, range, reason: error.to_string() });
                None
            }
        }
    }

    fn keep(&mut self, device: usize, start: u64, bytes: &[u8], most: usize) {
        let mut left = most;
        let source = self.sources[device];
        let lacks_some = source.lacks(start, bytes.len() as u64);
        for (index, block) in bytes.chunks(BLOCK).enumerate() {
            let at = start + (index * BLOCK) as u64;
            if !(lacks_some && source.lacks(at, block.len() as u64)) {
                self.changes.take(device, at, block);
            }
            let Some(first) = block.iter().position(|byte| *byte != 0) else { continue };
            self.first_data[device].get_or_insert(at + first as u64);
            self.sums.push((device, at, crc32c::forward(!0, block)));
            let Some(interest) = (self.filter)(block) else { continue };
            // Superblocks and the like are few, and all are wanted.
            let left = match interest.is_rare {
                true => &mut self.rare_left[device][usize::from(interest.is_long)],
                false => &mut left,
            };
            if *left == 0 {
                continue;
            }
            *left -= 1;
            let from = index * BLOCK;
            let length = if interest.is_long { NODE } else { BLOCK };
            let bytes = bytes[from..(from + length).min(bytes.len())].into();
            self.kept.push(Kept { device, at, bytes });
        }
    }

    fn take_rows(
        &mut self,
        start: u64,
        buffers: &[Vec<u8>],
        lengths: &[Option<usize>],
        most: usize,
    ) {
        let common = lengths.iter().map(|length| length.unwrap_or(WINDOW as usize)).min();
        let blocks = common.unwrap_or(0) / BLOCK;
        let part = |device: usize, from: usize| &buffers[device][from..from + SECTOR];
        // Chunks are powers of two: an odd step meets all of their parts.
        let order = (0..blocks).map(|index| index * 37 % blocks);
        let rich = |from: usize| (0..buffers.len()).filter(|&d| is_rich(part(d, from))).count();
        let places = order.flat_map(|block| [0, SECTOR * 3].map(|skip| block * BLOCK + skip));
        let taken: Vec<Range<usize>> = places
            .filter(|&from| rich(from) >= 2)
            .map(|from| from..from + SECTOR)
            .take(most)
            .collect();
        for place in taken {
            let at = start + place.start as u64;
            let sector = |(device, length): (usize, &Option<usize>)| {
                let length = length.filter(|_| !self.sources[device].lacks(at, SECTOR as u64));
                let sector = length.map(|_| part(device, place.start).try_into());
                sector.map(|sector| Box::new(sector.unwrap_or([0; SECTOR])))
            };
            let sectors = lengths.iter().enumerate().map(sector).collect();
            self.rows.push(Row { at, sectors });
        }
    }

    /// Number of devices.
    pub(crate) fn devices(&self) -> usize {
        self.sources.len()
    }

    /// A device's size, bytes.
    pub(crate) fn size(&self, device: usize) -> u64 {
        self.sources[device].size()
    }

    /// The smallest device's size, bytes.
    pub(crate) fn min_size(&self) -> u64 {
        self.sources.iter().map(|source| source.size()).min().unwrap_or(0)
    }

    /// Whether it is known that a device's byte is not there.
    pub(crate) fn lacks(&self, (device, at): (usize, u64)) -> bool {
        self.sources[device].lacks(at, 1)
    }

    /// A sector, read now unless it was before; None if it cannot be.
    pub(crate) fn sector(&self, device: usize, at: u64) -> Option<Sector> {
        let read = || {
            let mut bytes = Box::new([0; SECTOR]);
            let source = self.sources[device];
            if at.saturating_add(SECTOR as u64) > source.size() {
                return None;
            }
            source.read_at(at, &mut bytes[..]).ok().map(|()| bytes)
        };
        self.cache.borrow_mut().entry((device, at)).or_insert_with(read).clone()
    }

    /// So many bytes, for what lies beside something that was found; None if they cannot be read.
    pub(crate) fn bytes(&self, device: usize, at: u64, length: usize) -> Option<Vec<u8>> {
        let source = self.sources[device];
        if at.saturating_add(length as u64) > source.size() {
            return None;
        }
        let mut bytes = vec![0; length];
        source.read_at(at, &mut bytes).ok().map(|()| bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a size, with data in these ranges: start and end.
    struct Holes(u64, Vec<(u64, u64)>);

    impl Source for Holes {
        fn size(&self) -> u64 {
            self.0
        }
        fn read_at(&self, _: u64, buf: &mut [u8]) -> std::io::Result<()> {
            buf.fill(1);
            Ok(())
        }
        fn next_data(&self, offset: u64) -> Option<u64> {
            let (start, _) = self.1.iter().find(|(_, end)| *end > offset)?;
            Some(offset.max(*start))
        }
    }

    #[test]
    fn holes_of_all_are_passed_over() {
        let one = Holes(4 << 40, vec![(0, 1000), (1 << 40, (1 << 40) + 1)]);
        let other = Holes(4 << 40, vec![(2 << 40, (2 << 40) + WINDOW)]);
        let windows = plan(&[&one, &other], u64::MAX);
        assert_eq!(windows, [0, 1 << 40, 2 << 40]);
    }

    #[test]
    fn a_budget_is_spread_with_both_ends() {
        let one = Holes(1 << 40, vec![(0, 1 << 40)]);
        let windows = plan(&[&one], 1 << 30);
        assert_eq!(windows.len(), 4096);
        assert_eq!((windows[1], windows[4095]), (WINDOW, (1 << 40) - WINDOW));
        assert!(windows.is_sorted());
    }

    #[test]
    fn rare_blocks_without_end_are_not_all_kept() {
        let one = Holes(64 << 20, vec![(0, 64 << 20)]);
        let sources: [&dyn Source; 1] = [&one];
        let rare = |_: &[u8]| Some(Interest { is_rare: true, is_long: false });
        let samples = Samples::read(&sources, u64::MAX, rare, |_, _| {});
        assert_eq!(samples.kept.len(), RARE_MAX);
    }
}
