//! What a reshape's backup holds, put where the new geometry has it: the members of an array that was cut in the critical
//! section of a reshape which rewrites data in their own place.

use super::plan::{check_all_there, check_one_array, own_superblocks};
use super::{EditError, Edits, open_for};
use lapstrake_device::{Member, MemberSpec};
use lapstrake_geometry::{Geometry, Parity, Sector, Sectors, Slot};
use lapstrake_metadata::backup::{Backup, BackupError, Section};
use lapstrake_metadata::update::{Update, Write};
use lapstrake_metadata::{Reshape, Role, Superblock, Unsupported, Version, uuid_text};
use lapstrake_parity::{gf, kernels};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

/// Superblocks may have been written so many seconds later than the backup, or earlier, as for mdadm.
const LATER: u64 = 2 * 60 * 60;
const EARLIER: u64 = 10 * 60;
/// Sectors from a member's end of data to the backup that it holds.
const FROM_END: u64 = 8;

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
    /// It is no backup, or not of now.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The two headers are not alike.
    #[error(
        "its header differs from the copy at byte {copy}: it was cut while it was written, and what it held before is gone"
    )]
    Copy {
        /// Where the copy is, bytes.
        copy: u64,
    },
    /// It is another array's.
    #[error("it is of the array {found}, and the members are of {own}")]
    Foreign {
        /// The backup's UUID.
        found: String,
        /// The members'.
        own: String,
    },
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
    /// There is nothing to be put in its place.
    #[error("{member} tells of no reshape that is under way")]
    NoReshape {
        /// The member.
        member: String,
    },
    /// A member was away while others were written.
    #[error(
        "{member} tells of another reshape than {freshest}, or has missed more than the last of it: leave it out (--degraded)"
    )]
    Stale {
        /// It.
        member: String,
        /// Who has seen the most.
        freshest: String,
    },
    /// With those that are given not all data is there.
    #[error(
        "without the members that were not given some of the array's data is lost, in one of its two geometries"
    )]
    TooFew,
    /// Data is moved to another place, and nothing can be lacking.
    #[error("this reshape moves data to another offset, and needs no backup")]
    Moved,
    /// It cannot be told where the data belong.
    #[error("the geometry that {member} tells of is none that data could be put into")]
    Geometry {
        /// The member.
        member: String,
    },
    /// It is not of whole stripes, or of more than the array has.
    #[error(
        "bytes {start} to {end} of the array would come back, which are not whole stripes of both geometries within the array"
    )]
    Stripes {
        /// First byte of the array.
        start: u64,
        /// Behind the last.
        end: u64,
    },
}

/// The file, or the member that holds it.
enum Source<'a> {
    File(File),
    Member(&'a Member),
}

impl Source<'_> {
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

/// The geometries of the reshape.
struct Both {
    before: Parity,
    after: Parity,
}

impl Both {
    /// None if data cannot be put into them.
    fn of(reshape: &Reshape) -> Option<Self> {
        let parity = |superblock: &Superblock| match superblock.geometry_of_alike()? {
            Geometry::Parity(parity) => Some(parity),
            _ => None,
        };
        Some(Self { before: parity(&reshape.before)?, after: parity(&reshape.after)? })
    }

    /// Whether nothing is lost of either without other members.
    fn are_had_by(&self, reshapes: &[Reshape]) -> bool {
        let has = |half: fn(&Reshape) -> &Superblock, slot| {
            let is_it = |reshape: &Reshape| {
                let superblock = half(reshape);
                superblock.role() == Role::Active(slot) && superblock.recovery_offset().is_none()
            };
            reshapes.iter().any(is_it)
        };
        let is_had = |parity: &Parity, half: fn(&Reshape) -> &Superblock| {
            let absent = (0..parity.raid_disks()).filter(|&slot| !has(half, Slot(slot))).count();
            absent <= usize::from(parity.parity_disks())
        };
        is_had(&self.before, |reshape| &reshape.before)
            && is_had(&self.after, |reshape| &reshape.after)
    }

    /// What comes back ends where stripes of both do, as everything that mdadm keeps.
    fn check(&self, array: &Range<u64>, is_backwards: bool) -> Result<(), NoRestore> {
        let (old, new) = (&self.before, &self.after);
        let end = old.array_sectors().min(new.array_sectors());
        let unit = new.stripe_data().0 / new.chunk().0 * new.chunk().max(old.chunk()).0;
        let far = if is_backwards { array.start } else { array.end };
        let is_whole = [array.start, array.end].iter().all(|at| at.is_multiple_of(unit))
            && far.is_multiple_of(old.stripe_data().0);
        match is_whole && array.end <= end.0 {
            true => Ok(()),
            false => Err(NoRestore::Stripes { start: array.start * 512, end: array.end * 512 }),
        }
    }
}

fn writes(
    request: &BackupRequest,
    members: &[Arc<Member>],
    superblocks: &[Superblock],
) -> Result<Vec<Vec<Write>>, NoRestore> {
    let freshest = freshest(superblocks);
    let reshapes = reshapes(members, superblocks)?;
    let Reshape { position, is_backwards, .. } = reshapes[freshest];
    let (source, at) = source(request, members, superblocks)?;
    let backup = read_header(&source, at)?;
    check_header(&backup, &superblocks[freshest], request.force)?;
    let (sections, position) = backup.lacking(position, is_backwards)?;
    let mut writes = vec![Vec::new(); members.len()];
    if sections.is_empty() {
        return Ok(writes);
    }
    let both = Both::of(&reshapes[freshest])
        .ok_or_else(|| NoRestore::Geometry { member: members[freshest].spec().to_string() })?;
    if !both.are_had_by(&reshapes) {
        return Err(NoRestore::TooFew);
    }
    for section in &sections {
        both.check(&section.array, is_backwards)?;
        let columns = columns(&both.after, &source, section)?;
        let (stripe, ..) = both.after.locate(Sector(section.array.start));
        let row = both.after.member_sector(stripe, Sectors(0)) - Sector(0);
        for (reshape, writes) in reshapes.iter().zip(&mut writes) {
            let Role::Active(Slot(slot)) = reshape.after.role() else { continue };
            let sector = reshape.after.data_offset() + row;
            let column = columns.get(usize::from(slot)).cloned();
            writes.extend(column.map(|bytes| Write { sector, bytes }));
        }
    }
    // Who was not given has missed this.
    let events = superblocks[freshest].events().saturating_add(2);
    for (superblock, writes) in superblocks.iter().zip(&mut writes) {
        let mut superblock = superblock.clone();
        superblock.set_reshape_position(position);
        superblock.set_events(events);
        writes.push(Write { sector: superblock.super_sector(), bytes: superblock.encode() });
    }
    Ok(writes)
}

/// Who has seen the most.
fn freshest(superblocks: &[Superblock]) -> usize {
    let events = |&index: &usize| superblocks[index].events();
    (0..superblocks.len()).rev().max_by_key(events).expect("members were given")
}

/// The reshape that the freshest tells of, of each member. A cut while a place was recorded leaves some that have missed it.
fn reshapes(
    members: &[Arc<Member>],
    superblocks: &[Superblock],
) -> Result<Vec<Reshape>, NoRestore> {
    let name = |index: usize| members[index].spec().to_string();
    let freshest = freshest(superblocks);
    let mut reshapes: Vec<Reshape> = Vec::new();
    for (index, superblock) in superblocks.iter().enumerate() {
        let is_known = matches!(superblock.unsupported(), None | Some(Unsupported::Reshape));
        let Some(reshape) = superblock.reshape().filter(|_| is_known) else {
            return Err(NoRestore::NoReshape { member: name(index) });
        };
        let fresh = &superblocks[freshest];
        let is_fresh = superblock.events().saturating_add(1) >= fresh.events()
            && fresh.role_of(superblock.dev_number()) == superblock.role();
        if !is_fresh || !superblock.is_reshaped_as(fresh) {
            return Err(NoRestore::Stale { member: name(index), freshest: name(freshest) });
        }
        if reshape.before.data_offset() != reshape.after.data_offset() {
            return Err(NoRestore::Moved);
        }
        reshapes.push(reshape);
    }
    Ok(reshapes)
}

/// Where the backup is, and where its header.
fn source<'a>(
    request: &BackupRequest,
    members: &'a [Arc<Member>],
    superblocks: &[Superblock],
) -> Result<(Source<'a>, Sector), NoRestore> {
    let file = &request.file;
    let resolved = |spec: &MemberSpec| spec.resolved().ok();
    let is_it = |member: &Arc<Member>| {
        member.spec() == file
            || resolved(file).is_some() && resolved(member.spec()) == resolved(file)
    };
    if let Some(index) = members.iter().position(is_it) {
        let superblock = &superblocks[index];
        let end = superblock.data_offset().0.saturating_add(superblock.component().0);
        return Ok((Source::Member(&members[index]), Sector(end.saturating_sub(FROM_END))));
    }
    let opened = File::open(file.argument());
    let opened = opened.map_err(|source| NoRestore::Read { offset: 0, source })?;
    Ok((Source::File(opened), Sector(0)))
}

/// mdadm empties the copy before the data once the kernel has gone over them, and leaves the header behind them.
fn read_header(source: &Source<'_>, at: Sector) -> Result<Backup, NoRestore> {
    let (mut header, mut copy) = ([0; Backup::HEADER_BYTES], [0; Backup::HEADER_BYTES]);
    source.read(at, &mut header)?;
    let backup = Backup::parse(&header)?;
    source.read(backup.copy, &mut copy)?;
    let is_emptied = |copy: &Backup| copy.set_uuid == backup.set_uuid && copy.sections.is_empty();
    match Backup::parse(&copy) {
        _ if header == copy => Ok(backup),
        Ok(emptied) if is_emptied(&emptied) => Ok(emptied),
        _ => Err(NoRestore::Copy { copy: backup.copy.bytes() }),
    }
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

/// What each slot of the new geometry is to hold of a section: data, and parity made of them.
fn columns(
    parity: &Parity,
    source: &Source<'_>,
    section: &Section,
) -> Result<Vec<Vec<u8>>, NoRestore> {
    let (chunk, stripe) = (parity.chunk().bytes() as usize, parity.stripe_data());
    let Section { array, at } = section;
    let mut columns = vec![Vec::new(); parity.raid_disks().into()];
    let mut data = vec![0; stripe.bytes() as usize];
    for start in array.clone().step_by(stripe.0 as usize) {
        source.read(Sector(at.0 + (start - array.start)), &mut data)?;
        let number = parity.locate(Sector(start)).0;
        let chunks: Vec<&[u8]> = data.chunks_exact(chunk).collect();
        let mut p = vec![0; chunk];
        kernels().xor(&mut p, &chunks);
        for (index, chunk) in (0..).zip(&chunks) {
            columns[usize::from(parity.slot_of_data(number, index).0)].extend_from_slice(chunk);
        }
        columns[usize::from(parity.slot_of_p(number).0)].append(&mut p);
        if let Some(slot) = parity.slot_of_q(number) {
            let factor = |index| gf::exp(parity.q_exponent(number, index));
            let factors: Vec<u8> = (0..parity.data_disks()).map(factor).collect();
            let mut q = vec![0; chunk];
            kernels().mul_add(&mut q, &factors, &chunks);
            columns[usize::from(slot.0)].append(&mut q);
        }
    }
    Ok(columns)
}
