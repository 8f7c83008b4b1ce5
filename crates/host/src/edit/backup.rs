//! What a reshape's backup holds, put where the new geometry has it: the members of an array that was cut in the critical
//! section of a reshape which rewrites data in their own place.

use super::plan::{check_all_there, check_one_array, own_superblocks};
use super::{EditError, Edits, open_for};
use lapstrake_array::{CutReshape, NotPutBack};
use lapstrake_device::{Member, MemberSpec};
use lapstrake_geometry::Sector;
use lapstrake_metadata::backup::{Backup, BackupError};
use lapstrake_metadata::update::{Update, Write};
use lapstrake_metadata::{Superblock, Version, uuid_text};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::slice;
use std::sync::Arc;
use thiserror::Error;

/// Superblocks may have been written so many seconds later than the backup, or earlier, as for mdadm.
const LATER: u64 = 2 * 60 * 60;
const EARLIER: u64 = 10 * 60;

/// Which backup to put in its place, on which members.
#[derive(Clone, Debug)]
pub struct BackupRequest {
    /// All members of an array.
    pub members: Vec<MemberSpec>,
    /// mdadm's backup file, or one of the members that came with the reshape.
    pub file: MemberSpec,
    /// Members may be missing.
    pub degraded: bool,
    /// Take a backup that was written at another time than the superblocks.
    pub force: bool,
    /// Only show what would change: members are opened for reading.
    pub is_dry: bool,
    /// Of members that hold superblocks of several arrays, those of this version.
    pub version: Option<Version>,
}

/// Why a backup is not put in its place.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NoRestore {
    /// It cannot be read.
    #[error("cannot read it at byte {offset}: {source}")]
    Read {
        /// Where.
        offset: u64,
        /// The answer.
        source: io::Error,
    },
    /// It is no backup.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// It is none that belongs there.
    #[error(transparent)]
    NotPutBack(#[from] NotPutBack),
    /// It is another array's.
    #[error("it is of the array {found}, and the members are of {own}")]
    Foreign {
        /// The backup's UUID.
        found: String,
        /// The members'.
        own: String,
    },
    /// Its member has missed the beginning of the reshape by more than an event.
    #[error(
        "it is on a member that does not know of this reshape, and may be of an earlier one; --force takes it all the same"
    )]
    Unaware,
    /// It was written at another time.
    #[error(
        "it was written at {written}, and the superblocks at {updated}: it may be of an earlier reshape, or others have \
         started the array since; --force takes it all the same"
    )]
    Time {
        /// By the backup.
        written: jiff::Timestamp,
        /// By the superblocks.
        updated: jiff::Timestamp,
    },
}

/// The file, or the member that holds it.
enum Source {
    File(File),
    Member(Arc<Member>),
}

impl Source {
    fn read(&self, sector: Sector, bytes: &mut [u8]) -> Result<(), NoRestore> {
        let offset = sector.bytes();
        let read = match self {
            Self::File(file) => file.read_exact_at(bytes, offset),
            Self::Member(member) => member.read_at(offset, bytes),
        };
        read.map_err(|source| NoRestore::Read { offset, source })
    }
}

/// What putting a backup in its place changes. Nothing is written.
///
/// # Errors
/// [`EditError`].
pub fn plan_backup(request: &BackupRequest) -> Result<Edits, EditError> {
    let members = open_for(&request.members, request.is_dry)?;
    let superblocks = own_superblocks(&members, &Update::RevertReshape(None), request.version)?;
    check_one_array(&members, &superblocks)?;
    if !request.degraded {
        check_all_there(&superblocks)?;
    }
    let written = writes(request, &members, &superblocks);
    let file = PathBuf::from(request.file.argument());
    let writes = written.map_err(|why| EditError::Backup { file, why })?;
    Ok(Edits::of("backup-file", &members, writes)?)
}

fn writes(
    request: &BackupRequest,
    members: &[Arc<Member>],
    superblocks: &[Superblock],
) -> Result<Vec<Vec<Write>>, NoRestore> {
    let cut = CutReshape::of(superblocks, |index| members[index].spec().to_string())?;
    let (source, at) = source(request, &cut, members, superblocks)?;
    let backup = Backup::read(at, |sector, bytes| source.read(sector, bytes))?;
    check_header(&backup, cut.freshest(), request.force)?;
    cut.put_back(&backup, |sector, bytes| source.read(sector, bytes))
}

/// Where the backup is, and where its header. A member that failed since holds what it held.
fn source(
    request: &BackupRequest,
    cut: &CutReshape,
    members: &[Arc<Member>],
    superblocks: &[Superblock],
) -> Result<(Source, Sector), NoRestore> {
    let file = &request.file;
    let resolved = |spec: &MemberSpec| spec.resolved().ok();
    let is_it = |member: &Arc<Member>| {
        member.spec() == file
            || resolved(file).is_some() && resolved(member.spec()) == resolved(file)
    };
    if let Some(index) = members.iter().position(is_it) {
        let header = Backup::header_on(&superblocks[index]);
        return Ok((Source::Member(Arc::clone(&members[index])), header));
    }
    if let Some((member, superblock)) = member_of(request, &superblocks[0]) {
        if !cut.is_known_to(&superblock) && !request.force {
            return Err(NoRestore::Unaware);
        }
        return Ok((Source::Member(member), Backup::header_on(&superblock)));
    }
    let opened = File::open(file.argument());
    let opened = opened.map_err(|source| NoRestore::Read { offset: 0, source })?;
    Ok((Source::File(opened), Sector(0)))
}

/// What was named as the backup, if it is a member of the same array that was not given as one.
fn member_of(request: &BackupRequest, own: &Superblock) -> Option<(Arc<Member>, Superblock)> {
    let member = open_for(slice::from_ref(&request.file), true).ok()?;
    let found = own_superblocks(&member, &Update::RevertReshape(None), request.version).ok()?;
    let (member, superblock) = member.into_iter().zip(found).next()?;
    (superblock.set_uuid() == own.set_uuid()).then_some((member, superblock))
}

fn check_header(backup: &Backup, superblock: &Superblock, force: bool) -> Result<(), NoRestore> {
    let own = superblock.bitmap_uuid();
    if backup.set_uuid != own {
        let (found, own) = (uuid_text(backup.set_uuid), uuid_text(own));
        return Err(NoRestore::Foreign { found, own });
    }
    let updated = superblock.utime().0;
    let is_now = updated <= backup.written.saturating_add(LATER)
        && backup.written <= updated.saturating_add(EARLIER);
    if is_now || force {
        return Ok(());
    }
    let time = |seconds: u64| {
        i64::try_from(seconds).ok().and_then(|at| jiff::Timestamp::from_second(at).ok())
    };
    let [written, updated] =
        [backup.written, updated].map(|seconds| time(seconds).unwrap_or_default());
    Err(NoRestore::Time { written, updated })
}
