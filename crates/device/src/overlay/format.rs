//! The overlay file's bytes: its header and the pages of its tables. Described for others in
//! `docs/formats.md`.
//!
//! | byte | size | field |
//! |---|---|---|
//! | 0 | 16 | magic |
//! | 16 | 4 | version, 1 |
//! | 20 | 4 | bytes of a block, 4096 |
//! | 24 | 4 | bases |
//! | 28 | 4 | 0 |
//! | 32 | 8 | checksum: FNV-1a, 64 bits, of all header blocks with this field 0 |
//! | 40 | 24 | 0 |
//! | 64 + 64 i | 8 | base i: its size in bytes |
//! | 72 + 64 i | 16 | its stamp |
//! | 88 + 64 i | 32 | its id |
//! | 120 + 64 i | 8 | 0 |
//!
//! Integers are little-endian. The header fills whole blocks. After it come the tables, one for
//! each base, with an entry of 8 bytes for each block of it, each table in whole blocks; then the
//! data. A base's last block may lie partly beyond its end.
//!
//! Everything here is total: any bytes give a value or a [`FormatError`].

use std::ops::Range;

/// Granularity, in bytes.
pub(super) const BLOCK: u64 = 4096;
/// Entries of one table page, which is a block.
pub(super) const ENTRIES: u64 = BLOCK / 8;
/// Blocks that a file can have.
const BLOCKS_MAX: u64 = i64::MAX as u64 / BLOCK;
/// Entry of a block that reads as in the base.
pub(super) const IN_BASE: u64 = 0;
/// Entry of a block that reads as zeroes. Any higher entry is the number of a block of the file, and above that a bit for
/// each sector of it that could not be read in the base and was not written since.
pub(super) const ZEROES: u64 = 1;
/// Where an entry has these bits.
const LACKS_SHIFT: u32 = 56;

/// The number of a block, and the sectors that it lacks.
pub(super) fn split_entry(entry: u64) -> (u64, u8) {
    (entry & ((1 << LACKS_SHIFT) - 1), (entry >> LACKS_SHIFT) as u8)
}

/// The entry of a block of data that lacks these sectors.
pub(super) fn join_entry(block: u64, lacks: u8) -> u64 {
    block | u64::from(lacks) << LACKS_SHIFT
}

/// Bases that a header can hold: md has at most 1920 members.
const BASES_MAX: usize = 4096;
/// The longest header, bytes.
pub(super) const HEADER_MAX: u64 = (HEAD + BASES_MAX * RECORD).next_multiple_of(4096) as u64;

const MAGIC: &[u8; 16] = b"LapstrakeOverlay";
/// In its place once the file was cut off while it was served.
pub(super) const CUT_OFF: &[u8; 16] = b"LapstrakeCut-off";
const VERSION: u32 = 1;
const HEAD: usize = 64;
const RECORD: usize = 64;
const CHECKSUM: Range<usize> = 32..40;

/// What identifies a base, and the state in which the overlay found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseId {
    /// Bytes.
    pub size: u64,
    /// Changes when somebody writes to the base itself: what the overlay holds then no longer fits.
    pub stamp: [u64; 2],
    /// Which one it is, for life.
    pub id: [u8; 32],
}

/// Bytes that are no overlay of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Something else.
    #[error("it is not an overlay file")]
    Magic,
    /// Cut off while it was served.
    #[error(
        "it was cut off while it was served, and some of what it held is gone; give a whole copy of it if there is one"
    )]
    CutOff,
    /// From another version.
    #[error("its version is {0}, and only {VERSION} is known")]
    Version(u32),
    /// Shorter than it must be.
    #[error(
        "it was cut short, or is damaged: it has {found} bytes, and must have {needed} for what it says that \
         it holds; give a whole copy of it if there is one"
    )]
    Truncated {
        /// Bytes that are there.
        found: u64,
        /// Bytes demanded.
        needed: u64,
    },
    /// The header is damaged.
    #[error("its header is damaged: the checksum is {computed:#018x}, it says {found:#018x}")]
    Checksum {
        /// As stored.
        found: u64,
        /// As computed.
        computed: u64,
    },
    /// A field that cannot be.
    #[error("its header is damaged: {field} is {found}")]
    Field {
        /// Which.
        field: &'static str,
        /// Its value.
        found: u64,
    },
    /// A table entry that leads nowhere.
    #[error(
        "its table is damaged: entry {entry} of page {page} is {found}, which is no block of data"
    )]
    Entry {
        /// Which page of the file.
        page: u64,
        /// Which entry of the page.
        entry: usize,
        /// Its value.
        found: u64,
    },
    /// Two entries name one block.
    #[error("its table is damaged: block {0} is in use twice")]
    Shared(u64),
}

/// An overlay file's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The members beneath, in the order of their tables.
    pub bases: Vec<BaseId>,
}

impl Header {
    /// Reads a header from the start of a file; bytes after it do not matter.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        if bytes.starts_with(CUT_OFF) {
            return Err(FormatError::CutOff);
        }
        if bytes.len() < MAGIC.len() || bytes[..MAGIC.len()] != MAGIC[..] {
            return Err(FormatError::Magic);
        }
        let truncated = |needed: usize| FormatError::Truncated {
            found: bytes.len() as u64,
            needed: needed as u64,
        };
        if bytes.len() < HEAD {
            return Err(truncated(HEAD));
        }
        let version = u32_at(bytes, 16);
        if version != VERSION {
            return Err(FormatError::Version(version));
        }
        let field = |field, found: u32| FormatError::Field { field, found: found.into() };
        let (block, count) = (u32_at(bytes, 20), u32_at(bytes, 24));
        if u64::from(block) != BLOCK {
            return Err(field("the block size", block));
        }
        if count == 0 || count as usize > BASES_MAX {
            return Err(field("the number of bases", count));
        }
        let len = header_len(count as usize);
        let Some(bytes) = bytes.get(..len) else { return Err(truncated(len)) };
        let (found, computed) = (u64_at(bytes, CHECKSUM.start), checksum(bytes));
        if found != computed {
            return Err(FormatError::Checksum { found, computed });
        }
        let records = bytes[HEAD..].chunks_exact(RECORD).take(count as usize);
        let bases: Vec<BaseId> = records.map(record).collect();
        match bases.iter().find(|base| base.size > i64::MAX as u64) {
            Some(base) => Err(FormatError::Field { field: "a base's size", found: base.size }),
            None => Ok(Self { bases }),
        }
    }

    /// The bytes, in whole blocks.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; header_len(self.bases.len())];
        bytes[..16].copy_from_slice(MAGIC);
        bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
        bytes[20..24].copy_from_slice(&(BLOCK as u32).to_le_bytes());
        bytes[24..28].copy_from_slice(&(self.bases.len() as u32).to_le_bytes());
        for (base, record) in self.bases.iter().zip(bytes[HEAD..].chunks_exact_mut(RECORD)) {
            record[..8].copy_from_slice(&base.size.to_le_bytes());
            record[8..16].copy_from_slice(&base.stamp[0].to_le_bytes());
            record[16..24].copy_from_slice(&base.stamp[1].to_le_bytes());
            record[24..56].copy_from_slice(&base.id);
        }
        let sum = checksum(&bytes);
        bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Where everything lies.
    pub fn layout(&self) -> Layout {
        let mut at = header_len(self.bases.len()) as u64 / BLOCK;
        let mut tables = Vec::with_capacity(self.bases.len());
        for base in &self.bases {
            let blocks = base.size.div_ceil(BLOCK);
            tables.push(Table { first: at, blocks });
            // At most 2^63 / 2^21 blocks for each of at most 2^12 bases.
            at += blocks.div_ceil(ENTRIES);
        }
        Layout { tables, data: at }
    }
}

/// Where a file's parts lie, in blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// One for each base.
    pub tables: Vec<Table>,
    /// The first block of data.
    pub data: u64,
}

/// Where a base's table lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// Its first block.
    pub first: u64,
    /// Blocks of the base, each with an entry.
    pub blocks: u64,
}

/// One page of a table.
pub(super) type Page = [u64; ENTRIES as usize];

impl Layout {
    /// The table and the page in it that a block of the file holds.
    pub fn locate(&self, block: u64) -> Option<(usize, u64)> {
        let index = self.tables.partition_point(|table| table.first <= block).checked_sub(1)?;
        // Tables without pages (of empty bases) share their place with the next.
        (block < self.data).then(|| (index, block - self.tables[index].first))
    }

    /// Reads the table page at a block of the file, however short that is.
    ///
    /// # Errors
    /// [`FormatError::Entry`].
    ///
    /// # Panics
    /// If `block` holds no table page ([`Self::locate`]).
    pub fn page(&self, block: u64, bytes: &[u8; 4096]) -> Result<Page, FormatError> {
        let (table, page) = self.locate(block).expect("a table page");
        let entries = self.tables[table].blocks - page * ENTRIES;
        let mut values = [0; ENTRIES as usize];
        for (entry, value) in values.iter_mut().enumerate() {
            *value = u64_at(bytes, entry * 8);
            let valid = match *value {
                IN_BASE => true,
                _ if entry as u64 >= entries => false,
                ZEROES => true,
                entry => (self.data..BLOCKS_MAX).contains(&split_entry(entry).0),
            };
            if !valid {
                return Err(FormatError::Entry { page: block, entry, found: *value });
            }
        }
        Ok(values)
    }
}

/// A table page's bytes.
pub(super) fn encode_page(page: &Page) -> [u8; 4096] {
    let mut bytes = [0; 4096];
    for (entry, value) in bytes.chunks_exact_mut(8).zip(page) {
        entry.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

fn header_len(bases: usize) -> usize {
    (HEAD + bases * RECORD).next_multiple_of(BLOCK as usize)
}

fn record(bytes: &[u8]) -> BaseId {
    let mut id = [0; 32];
    id.copy_from_slice(&bytes[24..56]);
    BaseId { size: u64_at(bytes, 0), stamp: [u64_at(bytes, 8), u64_at(bytes, 16)], id }
}

fn checksum(header: &[u8]) -> u64 {
    header.iter().enumerate().fold(0xcbf2_9ce4_8422_2325, |sum, (at, &byte)| {
        let byte = if CHECKSUM.contains(&at) { 0 } else { byte };
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(sizes: &[u64]) -> Header {
        let base = |(i, &size): (usize, &u64)| BaseId {
            size,
            stamp: [i as u64, 7],
            id: [i as u8 + 1; 32],
        };
        Header { bases: sizes.iter().enumerate().map(base).collect() }
    }

    #[test]
    fn headers_read_back() {
        for sizes in [vec![1 << 20], vec![0, 5, i64::MAX as u64], vec![4096; 200]] {
            let header = header(&sizes);
            let mut bytes = header.encode();
            assert!(bytes.len().is_multiple_of(4096));
            bytes.extend_from_slice(&[0xEE; 100]);
            assert_eq!(Header::parse(&bytes), Ok(header));
        }
    }

    #[test]
    fn a_damaged_header_is_named() {
        let good = header(&[1 << 20, 2 << 20]).encode();
        assert_eq!(Header::parse(&[]), Err(FormatError::Magic));
        assert_eq!(Header::parse(&[0; 4096]), Err(FormatError::Magic));
        let cut = Header::parse(&good[..4095]);
        assert_eq!(cut, Err(FormatError::Truncated { found: 4095, needed: 4096 }));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 4;
            assert!(Header::parse(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn tables_lie_one_after_the_other() {
        // 1, 0, 2 and 1 pages behind one block of header.
        let layout = header(&[2 << 20, 0, (2 << 20) + 1, 512]).layout();
        let firsts: Vec<u64> = layout.tables.iter().map(|table| table.first).collect();
        assert_eq!((firsts, layout.data), (vec![1, 2, 2, 4], 5));
        let places: Vec<_> = (0..6).map(|block| layout.locate(block)).collect();
        let expected = [None, Some((0, 0)), Some((2, 0)), Some((2, 1)), Some((3, 0)), None];
        assert_eq!(places, expected);
    }

    #[test]
    fn entries_lead_to_data_or_are_refused() {
        let layout = header(&[8 * 4096]).layout();
        assert_eq!(layout.data, 2);
        let read = |entry: usize, value: u64| {
            let mut page = [0; ENTRIES as usize];
            page[entry] = value;
            layout.page(1, &encode_page(&page)).map(|read| assert_eq!(read, page))
        };
        for good in [(0, 0), (0, 1), (7, 2), (7, BLOCKS_MAX - 1), (8, 0)] {
            assert_eq!(read(good.0, good.1), Ok(()), "{good:?}");
        }
        for bad in [(0, BLOCKS_MAX), (0, u64::MAX), (8, 1), (511, 2)] {
            assert!(matches!(read(bad.0, bad.1), Err(FormatError::Entry { .. })), "{bad:?}");
        }
    }
}
