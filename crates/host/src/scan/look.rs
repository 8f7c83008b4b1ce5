//! A look at one member: what it holds, beside its superblock too.

use crate::open::probe_member;
use lapstrake_array::start::BITMAP_BYTES_MAX;
use lapstrake_device::{Member, MemberSpec, OpenError, overlaps};
use lapstrake_geometry::{Sector, Sectors};
use lapstrake_metadata::bitmap::{self, BitmapError, Bits};
use lapstrake_metadata::detect::Findings;
use lapstrake_metadata::{Superblock, v090};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

/// Why something could not be looked at.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LookError {
    /// It could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It could not be read.
    #[error("{spec}: cannot read {what}: {source}")]
    Read {
        /// The member.
        spec: MemberSpec,
        /// Which part of it.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// It did not answer.
    #[error(
        "{}: no answer within {seconds} s, so it was not looked at: let its server go on or stop it, or wait for its \
         disk, then try again",
        path.display()
    )]
    Silent {
        /// What was named.
        path: PathBuf,
        /// How long was waited for it.
        seconds: u64,
    },
    /// What is there is no bitmap.
    #[error("{spec}: {source}")]
    Bitmap {
        /// The member.
        spec: MemberSpec,
        /// What is wrong with it.
        source: BitmapError,
    },
    /// A bitmap larger than any array's.
    #[error("{spec}: a bitmap of {found} bytes is not possible in {room} bytes")]
    BitmapSize {
        /// The member.
        spec: MemberSpec,
        /// Bytes that it would take.
        found: u64,
        /// Bytes that there are.
        room: u64,
    },
}

/// What a file or device holds.
#[derive(Debug)]
pub struct Look {
    member: Arc<Member>,
    writers: Option<Vec<String>>,
    findings: Findings,
}

/// A bitmap and how much of it is dirty.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BitmapLook {
    /// Its superblock.
    pub superblock: bitmap::Superblock,
    /// Number of bits.
    pub bits: u64,
    /// Number of set bits.
    pub dirty: u64,
    /// Chunks of a lockless bitmap in each state, in the order of `bitmap::ChunkState::ALL`.
    pub states: Option<[u64; 8]>,
    /// What of it nobody knows.
    pub unknown: Option<BitmapError>,
}

/// The bad-block log's entries as they are stored: sector on the member, sectors.
pub type BadBlockEntries = Vec<(u64, u64)>;

impl Look {
    /// Looks at a member without locking it.
    ///
    /// # Errors
    /// [`LookError`].
    pub fn at(spec: &MemberSpec) -> Result<Self, LookError> {
        Self::of(Member::peek(spec)?)
    }

    /// Looks at a member that is open.
    ///
    /// # Errors
    /// [`LookError::Read`].
    pub fn of(member: Member) -> Result<Self, LookError> {
        // Before what they may change is read.
        let writers = member.writers();
        let spec = || member.spec().clone();
        let failed = |source| LookError::Read { spec: spec(), what: "its superblocks", source };
        let findings = probe_member(&member).map_err(failed)?;
        Ok(Self { member: Arc::new(member), writers, findings })
    }

    /// What the user named.
    #[must_use]
    pub fn spec(&self) -> &MemberSpec {
        self.member.spec()
    }

    /// Whether the other is the same window of the same file or device, by whatever name.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        overlaps(&self.member, &other.member)
            && self.member.offset() == other.member.offset()
            && self.size() == other.size()
    }

    /// Who had it locked for writing when it was looked at: [`Member::writers`].
    #[must_use]
    pub fn writers(&self) -> Option<&[String]> {
        self.writers.as_deref()
    }

    /// Its size.
    #[must_use]
    pub fn size(&self) -> Sectors {
        Sectors::from_bytes(self.member.size())
    }

    /// Whether it is a block device.
    #[must_use]
    pub fn is_block(&self) -> bool {
        self.member.is_block()
    }

    /// The partitions in it, by its table; none within a partition or another window. `without_devices`: none either where
    /// the kernel shows them as devices of their own.
    #[must_use]
    pub fn partitions(&self, without_devices: bool) -> Vec<MemberSpec> {
        let is_shown = without_devices && self.member.has_partition_devices();
        let table = self.findings.table.as_ref().filter(|_| self.spec().is_whole() && !is_shown);
        let partitions = table.into_iter().flat_map(|table| table.data());
        partitions.map(|it| MemberSpec::partition(&self.spec().path, it.number)).collect()
    }

    /// It, open for reading and not locked.
    pub(super) fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// All that was found.
    #[must_use]
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// The md superblock that counts.
    #[must_use]
    pub fn superblock(&self) -> Option<&Superblock> {
        self.findings.best()
    }

    /// The internal bitmap of the array that `sb` describes; None if it has none.
    ///
    /// # Errors
    /// [`LookError`].
    pub fn bitmap(&self, sb: &Superblock) -> Result<Option<BitmapLook>, LookError> {
        if let Some(offset) = sb.bitmap_offset_beyond() {
            let source = BitmapError::Beyond { offset };
            return Err(LookError::Bitmap { spec: self.spec().clone(), source });
        }
        let Some(sector) = sb.bitmap_sector() else { return Ok(None) };
        let at = sector.0.saturating_mul(512);
        let rest = self.member.size().saturating_sub(at);
        let room = match sb {
            Superblock::V090(_) => rest.min(v090::BITMAP_SECTORS * 512),
            Superblock::V1(_) if at < sb.data_offset().bytes() => {
                rest.min(sb.data_offset().bytes() - at)
            }
            Superblock::V1(_) => rest,
        };
        self.bitmap_at(at, room).map(Some)
    }

    /// What is wrong with the internal bitmap of the array that `sb` describes, if something is. None: it has none, or its
    /// place cannot be read.
    #[must_use]
    pub fn bitmap_error(&self, sb: &Superblock) -> Option<Option<BitmapError>> {
        match self.bitmap(sb) {
            Ok(None) => None,
            Ok(Some(found)) => Some(found.unknown),
            Err(LookError::Bitmap { source, .. }) => Some(Some(source)),
            Err(_) => None,
        }
    }

    /// The bitmap that fills this file or device from its start.
    ///
    /// # Errors
    /// [`LookError`].
    pub fn bitmap_file(&self) -> Result<BitmapLook, LookError> {
        self.bitmap_at(0, self.member.size())
    }

    fn bitmap_at(&self, at: u64, room: u64) -> Result<BitmapLook, LookError> {
        let spec = || self.spec().clone();
        let bad = |source| LookError::Bitmap { spec: spec(), source };
        let head = self.read(at, room.min(256), "the bitmap")?;
        let superblock = bitmap::Superblock::parse(&head).map_err(bad)?;
        let found = superblock.image_bytes();
        if found > room.min(BITMAP_BYTES_MAX) {
            return Err(LookError::BitmapSize { spec: spec(), found, room });
        }
        let image = self.read(at, found, "the bitmap")?;
        let bits = Bits::from_image(&superblock, &image).map_err(bad)?;
        Ok(BitmapLook {
            bits: bits.count(),
            dirty: bits.count_set(),
            states: bits.count_states(),
            unknown: superblock.unknown().or_else(|| bits.unknown_state()),
            superblock,
        })
    }

    /// The entries of the bad-block log; None if there is no log.
    ///
    /// # Errors
    /// [`LookError`].
    pub fn bad_blocks(&self, sb: &Superblock) -> Result<Option<BadBlockEntries>, LookError> {
        let Superblock::V1(v1) = sb else { return Ok(None) };
        let Some((Sector(at), Sectors(len))) = sb.badblock_log() else { return Ok(None) };
        if !sb.has_bad_blocks() {
            return Ok(Some(Vec::new()));
        }
        // md keeps the log within a page.
        let log = self.read(at.saturating_mul(512), len.min(8) * 512, "the bad-block log")?;
        let words =
            log.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("of 8")));
        let shift = u32::from(v1.bblog_shift);
        let entry = |word: u64| {
            let scaled = |units: u64| units.checked_shl(shift).unwrap_or(u64::MAX);
            (scaled(word >> 10), scaled(word & 0x3ff))
        };
        Ok(Some(words.take_while(|&word| word != u64::MAX).map(entry).collect()))
    }

    fn read(&self, at: u64, len: u64, what: &'static str) -> Result<Vec<u8>, LookError> {
        let mut bytes = vec![0; len as usize];
        let failed = |source| LookError::Read { spec: self.spec().clone(), what, source };
        self.member.read_at(at, &mut bytes).map_err(failed)?;
        Ok(bytes)
    }
}
