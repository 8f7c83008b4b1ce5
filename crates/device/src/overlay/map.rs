//! Where each block of each base is: the tables in memory.
//!
//! Invariant: an entry changes only from "in the base" to "zeroes" to a block of data, never back, so
//! that a table page on disk that is a mixture of an old and a new one is a valid page. A block of data lacks sectors until
//! they are written.

use super::format::{
    BLOCK, ENTRIES, FormatError, IN_BASE, Layout, Page, ZEROES, encode_page, join_entry,
    split_entry,
};
use std::collections::{BTreeMap, BTreeSet};

/// Where a block's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Base,
    Zeroes,
    /// In this block of the file.
    Data(u64),
}

/// A run of blocks of a base: `len` blocks from `first` on, whose bytes are in one run too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u64,
    pub(super) len: u64,
    pub(super) place: Place,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Map {
    layout: Layout,
    /// For each base, its pages that are not all zero.
    tables: Vec<BTreeMap<u64, Box<Page>>>,
    /// Pages newer than the file's: base, page.
    dirty: BTreeSet<(usize, u64)>,
}

impl Map {
    pub(super) fn new(layout: Layout) -> Self {
        let tables = layout.tables.iter().map(|_| BTreeMap::new()).collect();
        Self { layout, tables, dirty: BTreeSet::new() }
    }

    /// Takes in a page as it is in the file, at this block.
    ///
    /// # Errors
    /// [`FormatError::Entry`].
    pub(super) fn load(&mut self, block: u64, bytes: &[u8; 4096]) -> Result<(), FormatError> {
        let Some((base, page)) = self.layout.locate(block) else { return Ok(()) };
        let entries = self.layout.page(block, bytes)?;
        if entries.iter().any(|&entry| entry != IN_BASE) {
            self.tables[base].insert(page, Box::new(entries));
        }
        Ok(())
    }

    /// The first block of data that is free, with all after it, in a file of `len` bytes.
    ///
    /// # Errors
    /// [`FormatError::Shared`]; [`FormatError::Truncated`].
    pub(super) fn first_free(&self, len: u64) -> Result<u64, FormatError> {
        let pages = self.tables.iter().flat_map(BTreeMap::values);
        let used: Vec<&u64> =
            pages.flat_map(|page| page.iter().filter(|&&entry| entry > ZEROES)).collect();
        let mut used: Vec<u64> = used.into_iter().map(|entry| split_entry(*entry).0).collect();
        used.sort_unstable();
        if let Some(pair) = used.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(FormatError::Shared(pair[0]));
        }
        match used.last().map(|last| last + 1) {
            None => Ok(self.layout.data),
            Some(end) if end * BLOCK <= len => Ok(end),
            Some(end) => Err(FormatError::Truncated { found: len, needed: end * BLOCK }),
        }
    }

    /// The runs that make up the blocks `first..end` of a base.
    pub(super) fn runs(&self, base: usize, first: u64, end: u64) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for block in first..end {
            let place = self.place(base, block);
            let follows = |run: &&mut Run| match (run.place, place) {
                (Place::Data(start), Place::Data(at)) => start + run.len == at,
                (before, after) => before == after,
            };
            match runs.last_mut().filter(follows) {
                Some(run) => run.len += 1,
                None => runs.push(Run { first: block, len: 1, place }),
            }
        }
        runs
    }

    fn place(&self, base: usize, block: u64) -> Place {
        let page = self.tables[base].get(&(block / ENTRIES));
        match page.map_or(IN_BASE, |page| page[(block % ENTRIES) as usize]) {
            IN_BASE => Place::Base,
            ZEROES => Place::Zeroes,
            data => Place::Data(split_entry(data).0),
        }
    }

    /// The run's blocks are there from now on.
    pub(super) fn set(&mut self, base: usize, run: Run) {
        for nth in 0..run.len {
            let block = run.first + nth;
            let page = block / ENTRIES;
            let entries = self.tables[base].entry(page).or_insert_with(|| Box::new([0; 512]));
            entries[(block % ENTRIES) as usize] = match run.place {
                Place::Base => IN_BASE,
                Place::Zeroes => ZEROES,
                Place::Data(start) => start + nth,
            };
            self.dirty.insert((base, page));
        }
    }

    /// The sectors that a block of data lacks.
    pub(super) fn lacks(&self, base: usize, block: u64) -> u8 {
        let page = self.tables[base].get(&(block / ENTRIES));
        page.map_or(0, |page| split_entry(page[(block % ENTRIES) as usize]).1)
    }

    /// A block of data lacks these sectors from now on.
    pub(super) fn set_lacks(&mut self, base: usize, block: u64, lacks: u8) {
        let Place::Data(data) = self.place(base, block) else { unreachable!("it is written") };
        let page = self.tables[base].get_mut(&(block / ENTRIES)).expect("it has an entry");
        page[(block % ENTRIES) as usize] = join_entry(data, lacks);
        self.dirty.insert((base, block / ENTRIES));
    }

    /// The blocks of a base that are not as in the base, and the sectors that they lack.
    pub(super) fn written(&self, base: usize) -> impl Iterator<Item = (u64, u8)> {
        self.tables[base].iter().flat_map(|(page, entries)| {
            let found = (page * ENTRIES..).zip(entries.iter());
            found.filter(|(_, entry)| **entry != IN_BASE).map(|(at, e)| (at, split_entry(*e).1))
        })
    }

    /// Pages that must go to the file, with their blocks in it. They count as written.
    pub(super) fn take_dirty(&mut self) -> Vec<(u64, [u8; 4096])> {
        let dirty = std::mem::take(&mut self.dirty);
        let image = |&(base, page): &(usize, u64)| {
            let entries = self.tables[base].get(&page)?;
            Some((self.layout.tables[base].first + page, encode_page(entries)))
        };
        dirty.iter().filter_map(image).collect()
    }

    /// A page that [`Self::take_dirty`] gave could not be written.
    pub(super) fn put_back(&mut self, block: u64) {
        self.dirty.extend(self.layout.locate(block));
    }
}
