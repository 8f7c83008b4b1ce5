//! The bits of a bitmap, or the states of a lockless one, kept as the pages that lie on disk.
//!
//! A state is seen as a bit that is set if the chunk may be out of sync. Only a state says whether a clear chunk was ever
//! written ([`Bits::is_written`]).
//!
//! Invariants: `bytes` is whole pages, less the superblock at the start of the first; only bits
//! below `count` are ever changed, the rest stays as it was found; a page whose bits changed is
//! in `dirty` until the caller says that it is stable.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use lapstrake_geometry::{Sector, Sectors};

use super::{BitmapError, ChunkState, LOCKLESS_START, Superblock, state};

/// Bytes to a page: the unit in which the bitmap is written.
pub const PAGE: usize = 4096;

/// Where in `bytes` the states of a lockless bitmap begin.
const STATES_AT: usize = LOCKLESS_START as usize - Superblock::SIZE;

/// The bits or states of one bitmap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    chunk: Sectors,
    count: u64,
    is_lockless: bool,
    /// What the superblock says of a lockless bitmap's first use until all states are stable.
    first_use: u32,
    bytes: Vec<u8>,
    dirty: Vec<bool>,
}

impl Bits {
    /// All bits of `sb` set, every page dirty, or clear as on a new array; the rest of the last page is
    /// filled with the same. Of a lockless bitmap all chunks need a resync, or are unwritten.
    ///
    /// The memory is in proportion to [`Superblock::bits`], which the caller has to have held
    /// against the room that the bitmap has.
    pub fn new(sb: &Superblock, set: bool) -> Self {
        let pages = sb.image_bytes().div_ceil(PAGE as u64) as usize;
        let fill = match (set, sb.is_lockless()) {
            (false, _) => 0,
            (true, false) => 0xff,
            (true, true) => ChunkState::NeedSync as u8,
        };
        let mut bytes = vec![fill; pages * PAGE - Superblock::SIZE];
        if sb.is_lockless() {
            bytes[..STATES_AT].fill(0);
        }
        Self {
            chunk: sb.chunk(),
            count: sb.bits(),
            is_lockless: sb.is_lockless(),
            first_use: 0,
            bytes,
            dirty: vec![set; pages],
        }
    }

    /// The states of a lockless bitmap that is used for the first time: unwritten, or clean. `first` is what
    /// [`Superblock::begin_use`] gave; pages say so until [`Bits::end_first_use`].
    ///
    /// # Panics
    /// If it is no lockless bitmap.
    pub fn first_use(sb: &Superblock, first: u32) -> Self {
        assert!(sb.is_lockless(), "only these are decided on at their first use");
        let mut bits = Self::new(sb, false);
        if first & state::CLEAN != 0 {
            let end = STATES_AT + bits.count as usize;
            bits.bytes[STATES_AT..end].fill(ChunkState::Clean as u8);
        }
        bits.first_use = first;
        bits.dirty.fill(true);
        bits
    }

    /// Whether states are stable in part only, so that none may change.
    pub fn is_first_use(&self) -> bool {
        self.first_use != 0
    }

    /// All states are stable, and the superblock is to say so.
    pub fn end_first_use(&mut self) {
        self.first_use = 0;
        self.dirty[0] = true;
    }

    /// The bits in `image`, which begins with the superblock `sb`. A last page that is cut off
    /// after the last bit, as in a file, is filled with ones.
    ///
    /// # Errors
    /// [`BitmapError::Truncated`], and [`BitmapError::Chunk`] for a lockless bitmap whose chunk its first use has yet to
    /// choose ([`Superblock::begin_use`]).
    pub fn from_image(sb: &Superblock, image: &[u8]) -> Result<Self, BitmapError> {
        if sb.chunksize == 0 {
            return Err(BitmapError::Chunk { found: 0 });
        }
        let found = image.len() as u64;
        if found < sb.image_bytes() {
            return Err(BitmapError::Truncated { found, needed: sb.image_bytes() });
        }
        let mut bits = Self::new(sb, !sb.is_lockless());
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

    fn byte_of(&self, bit: u64) -> usize {
        if self.is_lockless { STATES_AT + bit as usize } else { (bit / 8) as usize }
    }

    /// The page that holds a bit.
    pub fn page_of(&self, bit: u64) -> usize {
        (Superblock::SIZE + self.byte_of(bit)) / PAGE
    }

    /// Whether there is a state to a chunk.
    pub fn is_lockless(&self) -> bool {
        self.is_lockless
    }

    /// The state of a chunk, of a lockless bitmap; one that no kernel writes counts as in need of a resync.
    ///
    /// # Panics
    /// Here and below if `bit` is not less than [`Bits::count`].
    pub fn state(&self, bit: u64) -> Option<ChunkState> {
        assert!(bit < self.count, "state {bit} of {}", self.count);
        let byte = self.bytes[self.byte_of(bit)];
        self.is_lockless.then(|| ChunkState::from_byte(byte).unwrap_or(ChunkState::NeedSync))
    }

    /// The first state that no kernel writes. What mdadm fills the room for states with (0xff) is none either, but Linux
    /// 7.2 leaves it behind the states of a smaller array when that grows, and takes it for a need to resync.
    pub fn unknown_state(&self) -> Option<BitmapError> {
        let stored = |chunk: u64| (chunk, self.bytes[self.byte_of(chunk)]);
        let mut states = (0..if self.is_lockless { self.count } else { 0 }).map(stored);
        let is_unknown = |byte| byte != 0xff && ChunkState::from_byte(byte).is_none();
        let (chunk, found) = states.find(|&(_, byte)| is_unknown(byte))?;
        Some(BitmapError::UnknownChunkState { chunk, found })
    }

    fn put_state(&mut self, bit: u64, state: ChunkState) {
        assert!(self.is_lockless && bit < self.count, "state {bit} of {}", self.count);
        let (byte, page) = (self.byte_of(bit), self.page_of(bit));
        self.dirty[page] |= self.bytes[byte] != state as u8;
        self.bytes[byte] = state as u8;
    }

    /// Whether the members hold something there that has to be kept: false of a chunk that a lockless bitmap
    /// calls unwritten.
    pub fn is_written(&self, bit: u64) -> bool {
        self.state(bit).is_none_or(ChunkState::is_written)
    }

    /// Whether redundancy is right there, but for writes under way, as far as a lockless bitmap tells.
    pub fn is_synced(&self, bit: u64) -> bool {
        self.state(bit).is_none_or(ChunkState::is_synced)
    }

    /// A write is to come under this bit. A lockless bitmap notes whether redundancy is right but for it.
    pub fn set_for_write(&mut self, bit: u64) {
        match self.state(bit) {
            Some(state) if state.is_synced() => self.put_state(bit, ChunkState::Dirty),
            _ => {
                self.set(bit);
            }
        }
    }

    /// Redundancy is right in a chunk that needed a resync.
    pub fn synced(&mut self, bit: u64) {
        if matches!(self.state(bit), Some(ChunkState::NeedSync | ChunkState::Syncing)) {
            self.put_state(bit, ChunkState::Dirty);
        }
    }

    /// Whether a chunk of a lockless bitmap needs a resync; of others any that may be out of sync may.
    pub fn needs_sync(&self, bit: u64) -> bool {
        self.get(bit) && !self.state(bit).is_some_and(ChunkState::is_synced)
    }

    /// What the bits count as when an array is started. `is_stale`: it was in use without them. `dirty_is_synced`:
    /// as [`ChunkState::at_start`].
    pub fn begin(&mut self, is_stale: bool, dirty_is_synced: bool) {
        if !self.is_lockless {
            (0..if is_stale { self.count } else { 0 }).for_each(|bit| {
                self.set(bit);
            });
            return;
        }
        for bit in 0..self.count {
            if let Some(state) = self.state(bit) {
                self.put_state(bit, state.at_start(is_stale, dirty_is_synced));
            }
        }
    }

    /// How many chunks of a lockless bitmap are in each state, in the order of [`ChunkState::ALL`].
    pub fn count_states(&self) -> Option<[u64; 8]> {
        let mut counts = [0; 8];
        for state in (0..self.count).filter_map(|bit| self.state(bit)) {
            counts[state as usize] += 1;
        }
        self.is_lockless.then_some(counts)
    }

    /// Whether the chunk may be out of sync.
    ///
    /// # Panics
    /// Here and below if `bit` is not less than [`Bits::count`].
    pub fn get(&self, bit: u64) -> bool {
        assert!(bit < self.count, "bit {bit} of {}", self.count);
        if let Some(state) = self.state(bit) {
            return state.is_set();
        }
        let (byte, mask) = Self::place(bit);
        self.bytes[byte] & mask != 0
    }

    /// Sets a bit; true if it was clear. Its page is then dirty. A chunk of a lockless bitmap needs a resync then.
    pub fn set(&mut self, bit: u64) -> bool {
        self.put(bit, true)
    }

    /// Clears a bit; true if it was set. Its page is then dirty. A chunk of a lockless bitmap is clean then.
    pub fn clear(&mut self, bit: u64) -> bool {
        self.put(bit, false)
    }

    fn put(&mut self, bit: u64, value: bool) -> bool {
        let changes = self.get(bit) != value;
        if self.is_lockless {
            match value {
                true => self.put_state(bit, ChunkState::NeedSync),
                false if changes => self.put_state(bit, ChunkState::Clean),
                false => {}
            }
        } else if changes {
            let (byte, mask) = Self::place(bit);
            self.bytes[byte] ^= mask;
            let page = self.page_of(bit);
            self.dirty[page] = true;
        }
        changes
    }

    /// Sets the bits that another of the same size has. Chunks of lockless bitmaps that do not agree need a resync.
    pub fn unite(&mut self, other: &Self) {
        let count = self.count;
        if self.is_lockless {
            let differs = |bit: &u64| *bit >= other.count || self.state(*bit) != other.state(*bit);
            let differing: Vec<u64> = (0..count).filter(differs).collect();
            return differing.into_iter().for_each(|bit| {
                self.set(bit);
            });
        }
        for bit in other.iter_set(0).take_while(|&bit| bit < count) {
            self.set(bit);
        }
    }

    /// Number of set bits.
    pub fn count_set(&self) -> u64 {
        if self.is_lockless {
            return self.iter_set(0).count() as u64;
        }
        let whole = (self.count / 8) as usize;
        let full: u64 = self.bytes[..whole].iter().map(|b| u64::from(b.count_ones())).sum();
        full + (self.count / 8 * 8..self.count).filter(|&bit| self.get(bit)).count() as u64
    }

    /// The set bits from `from` on, in order.
    pub fn iter_set(&self, from: u64) -> impl Iterator<Item = u64> + '_ {
        let mut bit = from;
        core::iter::from_fn(move || {
            while self.is_lockless && bit < self.count {
                bit += 1;
                if self.get(bit - 1) {
                    return Some(bit - 1);
                }
            }
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

    /// Has the states of page `page` in `image` say that unwritten chunks need a resync where one beside them in the same
    /// 512 bytes does.
    ///
    /// Linux 7.2 never leaves both in one block, and makes a mistake where it finds them after a cut: while it resyncs the
    /// one it begins to call the others in need of a resync, and of the next passes over all but the first 4 KiB.
    pub fn spread_need_sync(&self, page: usize, image: &mut [u8; PAGE]) {
        let (needs, unwritten) = (ChunkState::NeedSync as u8, ChunkState::Unwritten as u8);
        let syncs = |byte: &u8| *byte == needs || *byte == ChunkState::Syncing as u8;
        let head = if page == 0 { LOCKLESS_START as usize } else { 0 };
        let end = (LOCKLESS_START + self.count).saturating_sub((page * PAGE) as u64);
        let states = &mut image[head..PAGE.min(end as usize)];
        for block in states.chunks_mut(512).filter(|block| block.iter().any(syncs)) {
            block.iter_mut().filter(|byte| **byte == unwritten).for_each(|byte| *byte = needs);
        }
    }

    /// Writes page `page` of the image into `out`; the first begins with `sb`. It belongs
    /// `page * PAGE` bytes after the start of the bitmap.
    pub fn encode_page(&self, sb: &Superblock, page: usize, out: &mut [u8; PAGE]) {
        let start = page * PAGE;
        if page == 0 {
            let head = Superblock { state: sb.state | self.first_use, ..sb.clone() };
            out[..Superblock::SIZE].copy_from_slice(&head.encode());
            out[Superblock::SIZE..].copy_from_slice(&self.bytes[..PAGE - Superblock::SIZE]);
        } else {
            out.copy_from_slice(&self.bytes[start - Superblock::SIZE..][..PAGE]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sb(sectors: u64, chunk: u32) -> Superblock {
        Superblock::new([7; 16], Sectors(sectors), chunk)
    }

    #[test]
    fn a_lockless_bitmap_has_no_bits_before_its_first_use() {
        let mut sb = Superblock::new_lockless([7; 16], Sectors(1 << 20), false);
        sb.chunksize = 0;
        let image = [&sb.encode()[..], &[0; 8192]].concat();
        let read = Superblock::parse(&image).unwrap();
        assert!(matches!(Bits::from_image(&read, &image), Err(BitmapError::Chunk { found: 0 })));
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
    fn a_state_lies_where_the_kernel_puts_it() {
        // 4,000 chunks of 64 KiB: 3,072 states fill the first page behind 1,024 bytes.
        let mut sb = Superblock::new_lockless([7; 16], Sectors(512_000), false);
        assert_eq!((sb.bits(), sb.image_bytes()), (0, 1024), "nothing is decided yet");
        assert_eq!(sb.begin_use(Sectors(256)), Some(state::FIRST_USE));
        assert_eq!((sb.chunk(), sb.bits(), sb.daemon_sleep), (Sectors(128), 4000, 30));
        let mut bits = Bits::first_use(&sb, state::FIRST_USE);
        assert_eq!(bits.dirty_pages().collect::<Vec<_>>(), [0, 1]);
        let mut page = [0; PAGE];
        bits.encode_page(&sb, 0, &mut page);
        assert_eq!(page[48], 8, "a cut now, and it is the first use again");
        bits.end_first_use();
        assert!(!bits.is_synced(0) && !bits.is_written(0) && !bits.get(0));
        assert!(bits.set(0) && bits.set(3072) && !bits.clear(2) && bits.set(1) && bits.clear(1));
        bits.set_for_write(1);
        bits.encode_page(&sb, 0, &mut page);
        assert_eq!((page[48], &page[1024..1027]), (0, &[3, 2, 0][..]));
        bits.encode_page(&sb, 1, &mut page);
        assert_eq!(page[..2], [3, 0]);
        assert_eq!(bits.iter_set(1).collect::<Vec<_>>(), [1, 3072]);
        assert_eq!(bits.count_states().unwrap()[..4], [3997, 0, 1, 2]);
    }

    #[test]
    fn a_need_to_resync_spreads_within_its_block() {
        // 3,072 states in the first page, 28 in the second.
        let mut sb = Superblock::new_lockless([7; 16], Sectors(3100 * 128), false);
        sb.begin_use(Sectors(256));
        let mut bits = Bits::new(&sb, false);
        for bit in [600, 3080, 5] {
            bits.set(bit);
        }
        bits.clear(5);
        let spread = |number: usize| {
            let mut page = [0; PAGE];
            bits.encode_page(&sb, number, &mut page);
            bits.spread_need_sync(number, &mut page);
            page
        };
        let page = spread(0);
        assert!(page[1024 + 512..][..512].iter().all(|state| *state == 3));
        assert_eq!((page[1024 + 511], page[1024 + 1024], page[1024 + 5]), (0, 0, 1));
        assert_eq!(page[..256], sb.encode());
        assert!(page[256..1024].iter().all(|byte| *byte == 0));
        let page = spread(1);
        assert!(
            page[..28].iter().all(|state| *state == 3) && page[28..].iter().all(|byte| *byte == 0)
        );
    }

    #[test]
    fn states_count_at_a_start_as_the_kernel_counts_them() {
        let mut sb = Superblock::new_lockless([7; 16], Sectors(1024), false);
        sb.begin_use(Sectors(256));
        let mut image = sb.dirty_image(1024 + 8);
        (0..8).for_each(|state| image[1024 + state] = state as u8);
        for (is_stale, dirty_is_synced, expected) in [
            (false, false, [0, 1, 3, 3, 3, 0, 0, 7]),
            (true, false, [0, 3, 3, 3, 3, 0, 0, 0]),
            (false, true, [0, 1, 2, 3, 3, 0, 0, 7]),
            (true, true, [0, 3, 3, 3, 3, 0, 0, 0]),
        ] {
            let mut bits = Bits::from_image(&sb, &image).unwrap();
            bits.begin(is_stale, dirty_is_synced);
            let found: Vec<u8> = (0..8).map(|bit| bits.state(bit).unwrap() as u8).collect();
            assert_eq!(found, expected, "stale: {is_stale}, synced: {dirty_is_synced}");
        }
        let mut bits = Bits::from_image(&sb, &image).unwrap();
        let other = Bits::new(&sb, false);
        bits.unite(&other);
        let found: Vec<u8> = (0..8).map(|bit| bits.state(bit).unwrap() as u8).collect();
        assert_eq!(found, [0, 3, 3, 3, 3, 3, 3, 3], "where members do not agree");
    }

    #[test]
    fn what_no_kernel_writes_is_told() {
        let mut sb = Superblock::new_lockless([7; 16], Sectors(1024), false);
        sb.begin_use(Sectors(256));
        let mut image = sb.dirty_image(1024 + 8);
        image[1024..].copy_from_slice(&[0, 1, 7, 255, 8, 9, 2, 0]);
        let bits = Bits::from_image(&sb, &image).unwrap();
        let unknown = BitmapError::UnknownChunkState { chunk: 4, found: 8 };
        assert_eq!(bits.unknown_state(), Some(unknown));
        assert_eq!(bits.state(4), Some(ChunkState::NeedSync));
        assert_eq!(Bits::new(&sb, true).unknown_state(), None);
        assert_eq!(sb.unknown(), None);
        sb.pad[3] = 1;
        let bytes = BitmapError::UnknownBytes { count: 1, first: 139 };
        assert_eq!(sb.unknown(), Some(bytes));
        sb.state |= 1 << 20;
        assert_eq!(sb.unknown(), Some(BitmapError::UnknownState(1 << 20)));
        let mut head = sb.encode();
        head[4] = 7;
        let version = Superblock::parse(&head).unwrap_err();
        assert!(version.is_unknown() && version == BitmapError::Version { found: 7 });
        head[4] = 5;
        assert!(!Superblock::parse(&head).unwrap_err().is_unknown(), "a cluster's is known");
    }

    proptest! {
        #[test]
        fn states_lead_back_to_themselves_and_begin_as_each_by_itself(
            states in prop::collection::vec(0u8..8, 1..9000), is_stale: bool,
            dirty_is_synced: bool,
        ) {
            let mut sb = Superblock::new_lockless([7; 16], Sectors(128 * states.len() as u64), false);
            sb.begin_use(Sectors(256));
            let mut image = vec![0; 1024 + states.len()];
            image[..Superblock::SIZE].copy_from_slice(&sb.encode());
            image[1024..].copy_from_slice(&states);
            let mut bits = Bits::from_image(&sb, &image).unwrap();
            prop_assert_eq!(bits.dirty_pages().count(), 0);
            let pages = bits.pages();
            let written = |bits: &Bits| {
                let mut page = [0; PAGE];
                let mut all = Vec::new();
                for number in 0..pages {
                    bits.encode_page(&sb, number, &mut page);
                    all.extend_from_slice(&page);
                }
                all
            };
            prop_assert_eq!(&written(&bits)[..image.len()], &image[..]);
            bits.begin(is_stale, dirty_is_synced);
            for (place, state) in image[1024..].iter_mut().zip(&states) {
                *place = ChunkState::from_byte(*state).unwrap().at_start(is_stale, dirty_is_synced) as u8;
            }
            prop_assert_eq!(&written(&bits)[..image.len()], &image[..]);
            let dirty: Vec<usize> = bits.dirty_pages().collect();
            let changed = |&page: &usize| {
                let of_page = |i: usize| (1024 + i) / PAGE == page;
                (0..states.len()).any(|i| of_page(i) && image[1024 + i] != states[i])
            };
            prop_assert_eq!(dirty, (0..pages).filter(changed).collect::<Vec<_>>());
        }
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
