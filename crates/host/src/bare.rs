//! Members before their array runs, and those that are about to join it: read, written and flushed one call
//! at a time, with errors that say where.

use crate::array::Part;
use lapstrake_device::Member;
use lapstrake_geometry::{Sector, Sectors};
use lapstrake_metadata::bitmap;
use std::io;
use thiserror::Error;

/// A device refused something.
#[derive(Debug, Error)]
pub enum BareError {
    /// To be read or written.
    #[error("cannot {what} {device} at byte {offset}: {source}")]
    At {
        /// Which.
        device: String,
        /// What was tried.
        what: &'static str,
        /// Where.
        offset: u64,
        /// Its answer.
        source: io::Error,
    },
    /// To be flushed.
    #[error("cannot flush {device}: {source}")]
    Flush {
        /// Which.
        device: String,
        /// Its answer.
        source: io::Error,
    },
}

fn refused(
    device: &Member,
    what: &'static str,
    offset: u64,
) -> impl FnOnce(io::Error) -> BareError {
    move |source| BareError::At { device: device.spec().to_string(), what, offset, source }
}

pub(crate) fn read(device: &Member, offset: u64, buf: &mut [u8]) -> Result<(), BareError> {
    device.read_at(offset, buf).map_err(refused(device, "read", offset))
}

pub(crate) fn write(device: &Member, offset: u64, bytes: &[u8]) -> Result<(), BareError> {
    device.write_at(offset, bytes).map_err(refused(device, "write", offset))
}

/// Data of a member. False: some of it cannot be read, or is on record as bad.
pub(crate) fn read_data(part: &Part, sector: Sector, buf: &mut [u8]) -> bool {
    let (at, len) = place(part, sector, buf.len());
    let is_bad = part.bad_blocks.as_ref().is_some_and(|bad| bad.contains(at, len));
    !is_bad && part.device.read_at(at.bytes(), buf).is_ok()
}

/// Writes data but where it is on record as bad, which nobody reads and which may refuse.
pub(crate) fn write_data(part: &Part, sector: Sector, bytes: &[u8]) -> Result<(), BareError> {
    let (start, len) = place(part, sector, bytes.len());
    let Some(bad) = &part.bad_blocks else {
        return write(&part.device, start.bytes(), bytes);
    };
    for (at, len) in bad.good_within(start, len) {
        let from = (at - start).bytes() as usize;
        write(&part.device, at.bytes(), &bytes[from..][..len.bytes() as usize])?;
    }
    Ok(())
}

fn place(part: &Part, sector: Sector, bytes: usize) -> (Sector, Sectors) {
    let start = part.superblock.data_offset() + (sector - Sector(0));
    (start, Sectors(bytes as u64 / 512))
}

pub(crate) fn flush(device: &Member) -> Result<(), BareError> {
    let refused = |source| BareError::Flush { device: device.spec().to_string(), source };
    device.sync_all().map_err(refused)
}

/// A bitmap is written in pages; a file that mdadm made may end within one.
pub(crate) fn whole_pages(file: &mut Member) -> Result<(), BareError> {
    let end = file.size();
    let lengthened = file.lengthen(end.next_multiple_of(bitmap::PAGE as u64));
    lengthened.map_err(refused(file, "lengthen", end))
}

/// Stable when it returns.
pub(crate) fn write_superblock(part: &Part) -> Result<(), BareError> {
    let Part { device, superblock, .. } = part;
    let mut bytes = superblock.encode();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    let at = superblock.super_sector().bytes();
    let written = device.write_at(at, &bytes);
    written.map_err(refused(device, "write the superblock of", at))?;
    flush(device)
}
