//! A member's bad-block log, and where it must not be believed.

use super::StartIo;
use alloc::vec;
use lapstrake_geometry::{Level, Sector};
use lapstrake_metadata::{
    Superblock,
    badblocks::{BadBlocks, BadBlocksError},
    bitmap,
};
use thiserror::Error;

/// Why a member's bad-block log cannot be used.
#[derive(Debug, Error)]
pub enum BadBlockLogFault<E> {
    /// The device cannot be read.
    #[error("{0}")]
    Device(E),
    /// What is there is no log, or cannot be one.
    #[error("{0}")]
    Unusable(BadBlocksError),
}

/// What a device's bad-block log says, if there is room for one. As in md a level without redundancy takes no note of
/// it.
///
/// # Errors
/// [`BadBlockLogFault`].
pub fn bad_block_log<I: StartIo>(
    io: &I,
    device: &I::Device,
    superblock: &Superblock,
) -> Result<Option<BadBlocks>, BadBlockLogFault<I::Error>> {
    if !superblock.level().is_some_and(Level::has_redundancy) {
        return Ok(None);
    }
    let Some((sector, len)) = superblock.badblock_log() else { return Ok(None) };
    let shift = superblock.badblock_shift();
    if !superblock.has_bad_blocks() {
        return BadBlocks::new(shift).map(Some).map_err(BadBlockLogFault::Unusable);
    }
    if is_within_bitmap(io, device, superblock) {
        return Err(BadBlockLogFault::Unusable(BadBlocksError::WithinBitmap));
    }
    let mut bytes = vec![0; len.bytes() as usize];
    io.read(device, sector.bytes(), &mut bytes).map_err(BadBlockLogFault::Device)?;
    BadBlocks::parse(&bytes, shift).map(Some).map_err(BadBlockLogFault::Unusable)
}

/// Whether states of a lockless bitmap lie where the log does, as mdadm 4.6 has it.
fn is_within_bitmap<I: StartIo>(io: &I, device: &I::Device, superblock: &Superblock) -> bool {
    let mut head = [0; bitmap::Superblock::SIZE];
    let at = superblock.bitmap_sector().map(Sector::bytes);
    let is_read = at.is_some_and(|at| io.read(device, at, &mut head).is_ok());
    let found = bitmap::Superblock::parse(&head).ok().filter(|sb| is_read && sb.is_lockless());
    found.is_some_and(|sb| superblock.is_log_within(sb.image_bytes()))
}
