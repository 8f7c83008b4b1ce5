//! The bits of a bitmap, kept as the pages that lie on disk.
//!
//! Invariants: `bytes` is whole pages, less the superblock at the start of the first; only bits
//! below `count` are ever changed, the rest stays as it was found; a page whose bits changed is
//! in `dirty` until the caller says that it is stable.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use lapstrake_geometry::{Sector, Sectors};

use super::{BitmapError, Superblock};

/// Bytes to a page: the unit in which the bitmap is written.
pub const PAGE: usize = 4096;

/// The bits of one bitmap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    chunk: Sectors,
    count: u64,
    bytes: Vec<u8>,
    dirty: Vec<bool>,
}

/// Whole pages for a superblock and `count` bits.
fn pages_for(count: u64) -> usize {
    (Superblock::SIZE as u64 + count.div_ceil(8)).div_ceil(PAGE as u64) as usize
}

impl Bits {
    /// All bits of `sb` set, every page dirty, or clear as on a new array; the rest of the last page is
    /// filled with the same.
    ///
    /// The memory is in proportion to [`Superblock::bits`], which the caller has to have held
    /// against the room that the bitmap has.
    pub fn new(sb: &Superblock, set: bool) -> Self {
        let pages = pages_for(sb.bits());
        Self {
            chunk: Sectors(u64::from(sb.chunksize) / 512),
            count: sb.bits(),
            bytes: vec![if set { 0xff } else { 0 }; pages * PAGE - Superblock::SIZE],
            dirty: vec![set; pages],
        }
    }

    /// The bits in `image`, which begins with the superblock `sb`. A last page that is cut off
    /// after the last bit, as in a file, is filled with ones.
    pub fn from_image(sb: &Superblock, image: &[u8]) -> Result<Self, BitmapError> {
        let found = image.len() as u64;
        if found < sb.image_bytes() {
            return Err(BitmapError::Truncated { found, needed: sb.image_bytes() });
        }
        let mut bits = Self::new(sb, true);
        let stored = &image[Superblock::SIZE..];
        let len = stored.len().min(bits.bytes.len());
        bits.bytes[..len].copy_from_slice(&stored[..len]);
        bits.dirty.fill(false);
        Ok(bits)
    }

    /// Number of bits.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sectors to a bit.
    pub fn chunk(&self) -> Sectors {
        self.chunk
    }

    /// The bits that cover `len` sectors from `start` of the sync range; clipped at its end.
    pub fn covering(&self, start: Sector, len: Sectors) -> Range<u64> {
        let end = start.0.saturating_add(len.0).div_ceil(self.chunk.0).min(self.count);
        let first = (start.0 / self.chunk.0).min(end);
        if len.is_zero() { first..first } else { first..end }
    }

    fn place(bit: u64) -> (usize, u8) {
        ((bit / 8) as usize, 1 << (bit % 8))
    }

    /// The page that holds a bit.
    pub fn page_of(bit: u64) -> usize {
        (Superblock::SIZE + (bit / 8) as usize) / PAGE
    }

    /// Whether the chunk may be out of sync.
    ///
    /// # Panics
    /// Here and below if `bit` is not less than [`Bits::count`].
    pub fn get(&self, bit: u64) -> bool {
        assert!(bit < self.count, "bit {bit} of {}", self.count);
        let (byte, mask) = Self::place(bit);
        self.bytes[byte] & mask != 0
    }

    /// Sets a bit; true if it was clear. Its page is then dirty.
    pub fn set(&mut self, bit: u64) -> bool {
        self.put(bit, true)
    }

    /// Clears a bit; true if it was set. Its page is then dirty.
    pub fn clear(&mut self, bit: u64) -> bool {
        self.put(bit, false)
    }

    fn put(&mut self, bit: u64, value: bool) -> bool {
        let changes = self.get(bit) != value;
        if changes {
            let (byte, mask) = Self::place(bit);
            self.bytes[byte] ^= mask;
            self.dirty[Self::page_of(bit)] = true;
        }
        changes
    }

    /// Sets the bits that another of the same size has.
    pub fn unite(&mut self, other: &Self) {
        let count = self.count;
        for bit in other.iter_set(0).take_while(|&bit| bit < count) {
            self.set(bit);
        }
    }

    /// Number of set bits.
    pub fn count_set(&self) -> u64 {
        let whole = (self.count / 8) as usize;
        let full: u64 = self.bytes[..whole].iter().map(|b| u64::from(b.count_ones())).sum();
        full + (self.count / 8 * 8..self.count).filter(|&bit| self.get(bit)).count() as u64
    }

    /// The set bits from `from` on, in order.
    pub fn iter_set(&self, from: u64) -> impl Iterator<Item = u64> + '_ {
        let mut bit = from;
        core::iter::from_fn(move || {
            while bit < self.count {
                let byte = self.bytes[(bit / 8) as usize] >> (bit % 8);
                if byte == 0 {
                    bit = (bit / 8 + 1) * 8;
                    continue;
                }
                let found = bit + u64::from(byte.trailing_zeros());
                bit = found + 1;
                return (found < self.count).then_some(found);
            }
            None
        })
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.dirty.len()
    }

    /// The pages whose bits changed since [`Bits::mark_stable`].
    pub fn dirty_pages(&self) -> impl Iterator<Item = usize> + '_ {
        self.dirty.iter().enumerate().filter(|(_, dirty)| **dirty).map(|(page, _)| page)
    }

    /// Says that `page` as it is now is on stable storage.
    pub fn mark_stable(&mut self, page: usize) {
        self.mark(page, false);
    }

    /// The page is not stable as it is.
    pub fn mark_dirty(&mut self, page: usize) {
        self.mark(page, true);
    }

    fn mark(&mut self, page: usize, dirty: bool) {
        self.dirty[page] = dirty;
    }

    /// Writes page `page` of the image into `out`; the first begins with `sb`. It belongs
    /// `page * PAGE` bytes after the start of the bitmap.
    pub fn encode_page(&self, sb: &Superblock, page: usize, out: &mut [u8; PAGE]) {
        let start = page * PAGE;
        if page == 0 {
            out[..Superblock::SIZE].copy_from_slice(&sb.encode());
            out[Superblock::SIZE..].copy_from_slice(&self.bytes[..PAGE - Superblock::SIZE]);
        } else {
            out.copy_from_slice(&self.bytes[start - Superblock::SIZE..][..PAGE]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sb(sectors: u64, chunk: u32) -> Superblock {
        Superblock::new([7; 16], Sectors(sectors), chunk)
    }

    #[test]
    fn a_bit_lies_where_md_puts_it() {
        // 4 KiB chunks, 40000 of them: bits 0 to 30719 fill the first page behind 256 bytes.
        let sb = sb(320_000, 4096);
        let mut bits = Bits::new(&sb, false);
        assert_eq!((bits.count(), bits.pages()), (40_000, 2));
        assert!(bits.set(9) && !bits.set(9) && bits.set(30_720));
        assert_eq!(bits.dirty_pages().collect::<Vec<_>>(), [0, 1]);
        let mut page = [0; PAGE];
        bits.encode_page(&sb, 0, &mut page);
        assert_eq!(page[..256], sb.encode());
        assert_eq!(page[257], 2);
        bits.encode_page(&sb, 1, &mut page);
        assert_eq!(page[0], 1);
        bits.mark_stable(1);
        assert!(bits.clear(9));
        assert_eq!(bits.dirty_pages().collect::<Vec<_>>(), [0]);
        assert_eq!(bits.iter_set(0).collect::<Vec<_>>(), [30_720]);
    }

    #[test]
    fn ranges_of_sectors_cover_every_chunk_they_touch() {
        let bits = Bits::new(&sb(1000, 64 * 512), true);
        assert_eq!((bits.count(), bits.count_set()), (16, 16));
        assert_eq!(bits.covering(Sector(63), Sectors(2)), 0..2);
        assert_eq!(bits.covering(Sector(64), Sectors(64)), 1..2);
        assert_eq!(bits.covering(Sector(960), Sectors(900)), 15..16);
        assert_eq!(bits.covering(Sector(5), Sectors(0)), 0..0);
        assert_eq!(bits.covering(Sector(u64::MAX), Sectors(9)), 16..16);
    }

    #[test]
    fn an_image_gives_its_bits_back() {
        let sb = sb(1000, 4096);
        let mut image = sb.dirty_image(256 + 16);
        image[256..].fill(0x55);
        let bits = Bits::from_image(&sb, &image).unwrap();
        assert_eq!(bits.count(), 125);
        assert_eq!(bits.iter_set(3).take(3).collect::<Vec<_>>(), [4, 6, 8]);
        assert_eq!(bits.count_set(), 63);
        assert!(Bits::from_image(&sb, &image[..271]).is_err());
    }
}
