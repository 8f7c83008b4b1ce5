//! A lockless bitmap before its first use: where it lies and how large it becomes.
//!
//! mdadm writes only a superblock, which sets 128 KiB aside; whoever starts the array first chooses the chunk and
//! writes the states. mdadm 4.6 places the bad-block log 8 sectors behind the bitmap's start all the same, so that more
//! than 3,072 chunks lie over it; here the log goes behind the states.

use lapstrake_geometry::Sectors;

use super::{LOCKLESS_START, Placement, Superblock, VERSION_LOCKLESS, state};

/// Sectors that mdadm sets aside.
pub const RESERVED: Sectors = Sectors(256);
/// Sectors of the smallest chunk.
const MIN_CHUNK: u64 = 128;
/// Seconds between passes that make dirty chunks clean, as the kernel sets them at the first use.
const DAEMON_SLEEP: u32 = 30;
/// As mdadm leaves them: a chunk and a time of other bitmaps, which the first use replaces.
const CHUNK_LEFT: u32 = 64 << 20;

/// The kernel's choice: 64 KiB, doubled until there is a byte for each chunk in the sectors set aside.
fn chunk(sync_size: Sectors, reserved: Sectors) -> u64 {
    let mut chunk = MIN_CHUNK;
    while sync_size.0.div_ceil(chunk) > reserved.bytes() {
        chunk *= 2;
    }
    chunk
}

/// Where a new lockless bitmap over `sync_size` lies. Its sectors are those that states will take, rounded up to
/// 4 KiB.
pub fn placed(sync_size: Sectors) -> Placement {
    let chunks = sync_size.0.div_ceil(chunk(sync_size, RESERVED));
    let sectors = Sectors((LOCKLESS_START + chunks).next_multiple_of(4096) / 512);
    Placement { offset: 8, chunk: CHUNK_LEFT, sectors }
}

impl Superblock {
    /// A new lockless bitmap's superblock, as mdadm fills it. `assume_clean`: all chunks will be clean.
    pub fn new_lockless(uuid: [u8; 16], sync_size: Sectors, assume_clean: bool) -> Self {
        Self {
            version: VERSION_LOCKLESS,
            state: state::FIRST_USE | if assume_clean { state::CLEAN } else { 0 },
            sectors_reserved: RESERVED.0 as u32,
            ..Self::new(uuid, sync_size, CHUNK_LEFT)
        }
    }

    /// Decides what the first use decides, as the kernel does. What its state said goes back to the caller, who
    /// has it on disk until all states are there (`Bits::first_use`). None: it was decided already.
    ///
    /// `room`: sectors that there are for superblock and states; the chunk grows until they fit.
    pub fn begin_use(&mut self, room: Sectors) -> Option<u32> {
        if !self.is_first_use() {
            return None;
        }
        let reserved = match self.sectors_reserved {
            0 => RESERVED,
            sectors => Sectors(sectors.into()),
        };
        let mut chunk = chunk(Sectors(self.sync_size), reserved);
        while LOCKLESS_START + self.sync_size.div_ceil(chunk) > room.bytes() && chunk < 1 << 31 {
            chunk *= 2;
        }
        let first = self.state & (state::FIRST_USE | state::CLEAN);
        self.state &= !first;
        self.chunksize = chunk.min(1 << 31) as u32;
        self.daemon_sleep = DAEMON_SLEEP;
        Some(first)
    }
}

impl crate::Superblock {
    /// Sectors that a lockless bitmap may take: up to the data. mdadm places the bad-block log within it, so that this
    /// is no bound; see [`Self::is_log_within`].
    pub fn lockless_room(&self) -> Option<Sectors> {
        let at = self.bitmap_sector()?.0;
        let crate::Superblock::V1(sb) = self else { return None };
        let next = [sb.super_offset, sb.data_offset].into_iter().filter(|&next| next > at).min()?;
        Some(Sectors(next - at))
    }

    /// Whether the member's bad-block log is none, since this bitmap lies over it: mdadm 4.6 places a lockless one so, and
    /// others reach over a log without entries. One with entries they leave alone, though their pages are rounded up.
    pub fn is_log_given_up_for(&self, bitmap: &Superblock) -> bool {
        self.is_log_within(bitmap.image_bytes()) && (bitmap.is_lockless() || !self.has_bad_blocks())
    }

    /// Whether the bad-block log lies in the first `image_bytes` of the bitmap.
    pub fn is_log_within(&self, image_bytes: u64) -> bool {
        let (Some(at), Some((log, len))) = (self.bitmap_sector(), self.badblock_log()) else {
            return false;
        };
        let end = at.0 + image_bytes.next_multiple_of(4096) / 512;
        log.0 < end && at.0 < log.0.saturating_add(len.0)
    }
}
