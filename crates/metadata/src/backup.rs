//! The backup of a reshape that rewrites data in their own place: what mdadm copies, to a file or to the end of a member
//! that comes to the array, before the kernel goes over it.
//!
//! On disk: a header of 512 bytes (little-endian), then the data of the array before, in the array's order, in one section or
//! two, which mdadm fills in turn; the header's copy lies 4 KiB before them, which in a file is the header itself. A section that the kernel has
//! gone over is emptied.

use alloc::{vec, vec::Vec};
use core::ops::Range;

use lapstrake_geometry::{Sector, Sectors};
use thiserror::Error;

use crate::{
    Superblock,
    wire::{ByteOrder, on_disk},
};

/// Before the data lies the header's copy.
const COPY_BEFORE: u64 = 8;
/// Sectors from the header on a member to the end of what is used of it.
const FROM_END: u64 = 8;
/// A header has a block of its own, and so has its copy.
const BLOCK_BYTES: usize = 4096;
/// Sectors of a section: whole stripes of both geometries, which mdadm doubles until they are 16 MiB.
const SECTION_MAX: u64 = (256 << 20) / 512;

on_disk! {
    /// The header.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Header {
        /// With the number of sections in its last byte.
        0 magic: [u8; 16],
        /// The array's, as its bitmap has it.
        16 set_uuid: [u8; 16],
        /// Seconds since 1970.
        32 mtime: u64,
        /// Sector of the file, or of the member, where the first section's data begin.
        40 devstart: u64,
        /// First sector of the array that it holds.
        48 arraystart: u64,
        /// Sectors.
        56 length: u64,
        /// Of the bytes before.
        64 sb_csum: u32,
        /// Nothing.
        68 pad1: u32,
        /// Where the second section's data begin, in sectors from the first's.
        72 devstart2: u64,
        /// As of the first.
        80 arraystart2: u64,
        /// As of the first.
        88 length2: u64,
        /// Of the bytes before.
        96 sb_csum2: u32,
        = 100
    }
}

impl Header {
    /// As mdadm writes it, with its checksums.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        self.encode_into(&mut bytes, ByteOrder::Little);
        for at in [64, 96] {
            let sum = checksum(&bytes[..at]);
            bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        }
        bytes
    }
}

/// What is wrong with a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BackupError {
    /// Something else is there.
    #[error("it holds no backup of mdadm's (md_backup_data)")]
    Magic,
    /// It is damaged, or no header of mdadm's.
    #[error("its header's checksum is wrong")]
    Checksum,
    /// Sections are longer than mdadm makes them, or of no array.
    #[error("it tells of more than mdadm keeps, or of sectors that no array has")]
    Sectors,
    /// The header and its copy are not alike.
    #[error(
        "its header differs from the copy at byte {}: it was cut while it was written, and what it held before is gone", .copy.bytes()
    )]
    Copy {
        /// Where the copy is.
        copy: Sector,
    },
    /// A section does not begin where the reshape, or what comes back before it, ends.
    #[error(
        "it holds bytes {} to {} of the array, and the reshape has come to byte {}: it is of another moment",
        .array.0.bytes(), .array.1.bytes(), .position.bytes()
    )]
    Elsewhere {
        /// The sectors that are held: the first, and that behind the last.
        array: (Sector, Sector),
        /// Where the two geometries meet.
        position: Sector,
    },
}

/// A part of the array that a backup holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The array's sectors.
    pub array: Range<u64>,
    /// The sector of the file, or of the member, where they begin.
    pub at: Sector,
}

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// Whose it is: [`Superblock::bitmap_uuid`](crate::Superblock::bitmap_uuid).
    pub set_uuid: [u8; 16],
    /// When it was written, in seconds since 1970.
    pub written: u64,
    /// What it holds.
    pub sections: Vec<Section>,
    /// Where the header's copy lies.
    pub copy: Sector,
}

impl Backup {
    /// Bytes of a header, and of its copy.
    pub const HEADER_BYTES: usize = Header::SIZE;

    /// Where the header is on a member that comes to the array and holds a backup: behind the data, at the end of what is used.
    #[must_use]
    pub fn header_on(member: &Superblock) -> Sector {
        let end = member.data_offset().0.saturating_add(member.component().0);
        Sector(end.saturating_sub(FROM_END))
    }

    /// The first so many sectors of the array, on a member that comes to it. None if the member has no room for them behind as
    /// many as `used` from its data offset on.
    #[must_use]
    pub fn on(member: &Superblock, sectors: Sectors, used: Sectors, written: u64) -> Option<Self> {
        let at = Self::header_on(member).0.checked_sub(sectors.0)?;
        let copy = at.checked_sub(COPY_BEFORE)?;
        let fits =
            copy >= member.data_offset().0.saturating_add(used.0) && sectors.0 <= SECTION_MAX;
        fits.then(|| Self {
            set_uuid: member.bitmap_uuid(),
            written,
            sections: vec![Section { array: 0..sectors.0, at: Sector(at) }],
            copy: Sector(copy),
        })
    }

    /// The block that holds the header of a backup of one section, and nothing else.
    ///
    /// # Panics
    /// If it has none, or several.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let [Section { array, at }] = self.sections.as_slice() else {
            panic!("one section is written")
        };
        let header = Header {
            magic: *b"md_backup_data-1",
            set_uuid: self.set_uuid,
            mtime: self.written,
            devstart: at.0,
            arraystart: array.start,
            length: array.end - array.start,
            sb_csum: 0,
            pad1: 0,
            devstart2: 0,
            arraystart2: 0,
            length2: 0,
            sb_csum2: 0,
        };
        let mut block = header.encode().to_vec();
        block.resize(BLOCK_BYTES, 0);
        block
    }

    /// Reads the header that lies there, and its copy. mdadm empties the copy once the kernel has gone over the data, and leaves
    /// the header behind them.
    ///
    /// # Errors
    /// [`BackupError`], and what `read` gives.
    pub fn read<E: From<BackupError>>(
        at: Sector,
        read: impl Fn(Sector, &mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let (mut header, mut copy) = ([0; Self::HEADER_BYTES], [0; Self::HEADER_BYTES]);
        read(at, &mut header)?;
        let backup = Self::parse(&header)?;
        read(backup.copy, &mut copy)?;
        let is_emptied = |copy: &Self| copy.set_uuid == backup.set_uuid && copy.sections.is_empty();
        match Self::parse(&copy) {
            _ if header == copy => Ok(backup),
            Ok(emptied) if is_emptied(&emptied) => Ok(emptied),
            _ => Err(BackupError::Copy { copy: backup.copy }.into()),
        }
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`BackupError`].
    pub fn parse(bytes: &[u8; Self::HEADER_BYTES]) -> Result<Self, BackupError> {
        let header = Header::decode(bytes, ByteOrder::Little);
        let count = match &header.magic {
            b"md_backup_data-1" => 1,
            b"md_backup_data-2" => 2,
            _ => return Err(BackupError::Magic),
        };
        let is_whole = header.sb_csum == checksum(&bytes[..64])
            && (count == 1 || header.sb_csum2 == checksum(&bytes[..96]));
        if !is_whole {
            return Err(BackupError::Checksum);
        }
        let copy = header.devstart.checked_sub(COPY_BEFORE).ok_or(BackupError::Sectors)?;
        let all = [
            (header.arraystart, header.length, 0),
            (header.arraystart2, header.length2, header.devstart2),
        ];
        let mut sections = Vec::new();
        for (start, length, from) in all.into_iter().take(count) {
            let most = i64::MAX as u64 / 512;
            let end = start.checked_add(length).filter(|end| *end <= most && length <= SECTION_MAX);
            let at = header.devstart.checked_add(from).filter(|at| *at <= most);
            let (end, at) = end.zip(at).ok_or(BackupError::Sectors)?;
            if length > 0 {
                sections.push(Section { array: start..end, at: Sector(at) });
            }
        }
        let (set_uuid, written) = (header.set_uuid, header.mtime);
        Ok(Self { set_uuid, written, sections, copy: Sector(copy) })
    }

    /// What of it members lack, in the order in which the reshape goes, when superblocks say that the reshape has come to this
    /// place; and the place that it has come to with that. What lies behind the place is where the new geometry has it, and
    /// may have been written since.
    ///
    /// # Errors
    /// [`BackupError::Elsewhere`].
    pub fn lacking(
        &self,
        position: Sector,
        is_backwards: bool,
    ) -> Result<(Vec<Section>, Sector), BackupError> {
        let (mut lacking, mut at) = (Vec::new(), position.0);
        loop {
            let next = self.sections.iter().find(|Section { array, .. }| match is_backwards {
                true => array.start < at && at <= array.end,
                false => array.start <= at && at < array.end,
            });
            let Some(Section { array, at: from }) = next else { break };
            let part = if is_backwards { array.start..at } else { at..array.end };
            at = if is_backwards { part.start } else { part.end };
            let from = Sector(from.0 + (part.start - array.start));
            lacking.push(Section { array: part, at: from });
        }
        let is_ahead = |section: &&Section| match is_backwards {
            true => section.array.end <= at && section.array.start < at,
            false => section.array.start >= at && section.array.end > at,
        };
        match self.sections.iter().find(is_ahead) {
            Some(Section { array, .. }) => Err(BackupError::Elsewhere {
                array: (Sector(array.start), Sector(array.end)),
                position,
            }),
            None => Ok((lacking, Sector(at))),
        }
    }
}

/// mdadm's, which takes the first byte as often as there are bytes: it is the same for every header, and shows nothing.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum: u32, _| (sum << 3).wrapping_add(bytes[0].into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(sections: &[(u64, u64, u64)]) -> [u8; Header::SIZE] {
        let header = Header {
            magic: *if sections.len() == 1 { b"md_backup_data-1" } else { b"md_backup_data-2" },
            set_uuid: [7; 16],
            mtime: 1000,
            devstart: 16,
            arraystart: sections[0].0,
            length: sections[0].1,
            sb_csum: 0,
            pad1: 0,
            devstart2: sections.get(1).map_or(0, |it| it.2),
            arraystart2: sections.get(1).map_or(0, |it| it.0),
            length2: sections.get(1).map_or(0, |it| it.1),
            sb_csum2: 0,
        };
        header.encode()
    }

    fn lacking(sections: &[(u64, u64, u64)], position: u64, is_backwards: bool) -> Vec<Section> {
        let backup = Backup::parse(&header(sections)).unwrap();
        backup.lacking(Sector(position), is_backwards).unwrap().0
    }

    fn section(array: Range<u64>, at: u64) -> Section {
        Section { array, at: Sector(at) }
    }

    #[test]
    fn what_superblocks_say_is_moved_is_not_lacking() {
        let two = [(200, 100, 100), (100, 100, 0)];
        let both = vec![section(150..200, 66), section(200..300, 16)];
        assert_eq!(lacking(&[(200, 100, 0), (100, 100, 0)], 150, false), both);
        assert_eq!(lacking(&two, 300, false), []);
        assert_eq!(lacking(&two, 1000, false), []);
        let back = vec![section(200..250, 16), section(100..200, 16)];
        assert_eq!(lacking(&[(200, 100, 0), (100, 100, 0)], 250, true), back);
        assert_eq!(lacking(&two, 100, true), []);
    }

    #[test]
    fn a_section_that_was_emptied_is_none() {
        assert_eq!(lacking(&[(0, 0, 0), (64, 64, 0)], 64, false), [section(64..128, 16)]);
        assert_eq!(lacking(&[(0, 0, 0)], 64, false), []);
    }

    #[test]
    fn a_backup_of_another_moment_is_none_of_this_one() {
        let backup = Backup::parse(&header(&[(100, 50, 0)])).unwrap();
        let array = (Sector(100), Sector(150));
        for (position, is_backwards) in [(50, false), (99, false), (200, true), (151, true)] {
            let position = Sector(position);
            let error = backup.lacking(position, is_backwards).unwrap_err();
            assert_eq!(error, BackupError::Elsewhere { array, position });
        }
        let gap = Backup::parse(&header(&[(0, 40, 0), (60, 40, 40)])).unwrap();
        gap.lacking(Sector(50), false).unwrap_err();
        gap.lacking(Sector(0), false).unwrap_err();
    }

    #[test]
    fn what_is_no_header_is_told() {
        let mut bytes = header(&[(0, 8, 0), (8, 8, 8)]);
        assert_eq!(Backup::parse(&[0; Header::SIZE]), Err(BackupError::Magic));
        bytes[96] ^= 1;
        assert_eq!(Backup::parse(&bytes), Err(BackupError::Checksum));
        for length in [u64::MAX, SECTION_MAX + 1] {
            assert_eq!(Backup::parse(&header(&[(1, length, 0)])), Err(BackupError::Sectors));
        }
    }
}
