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
    pub file: PathBuf,
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
    /// Members disagree.
    #[error(
        "{member} tells of another reshape, or another place that it has come to, than {first}: leave out who was away \
         (--degraded)"
    )]
    Unlike {
        /// A member.
        member: String,
        /// The first one.
        first: String,
    },
    /// Data is moved to another place, and nothing can be lacking.
    #[error("this reshape moves data to another offset, and needs no backup")]
    Moved,
    /// It cannot be told where the data belong.
    #[error("the geometry that {member} tells of is none that data could be put into")]
    Geometry {
        /// The member.
        member: String,
    },
    /// It does not end where the new geometry's stripes do.
    #[error(
        "it holds bytes {start} to {end} of the array, which are no whole stripes of the new geometry, of {stripe} bytes"
    )]
    Stripes {
        /// First byte of the array.
        start: u64,
        /// Behind the last.
        end: u64,
        /// Bytes of a stripe's data.
        stripe: u64,
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
    let writes = written.map_err(|why| EditError::Backup { file: request.file.clone(), why })?;
    Ok(Edits::of("backup-file", &members, writes)?)
}

fn writes(
    request: &BackupRequest,
    members: &[Arc<Member>],
    superblocks: &[Superblock],
) -> Result<Vec<Vec<Write>>, NoRestore> {
    let reshapes = reshapes(members, superblocks)?;
    let Reshape { position, is_backwards, .. } = reshapes[0];
    let first = || members[0].spec().to_string();
    let (source, at) = source(request, members, superblocks)?;
    let backup = read_header(&source, at)?;
    check_header(&backup, &superblocks[0], request.force)?;
    let (sections, position) = backup.lacking(position, is_backwards)?;
    if sections.is_empty() {
        return Ok(vec![Vec::new(); members.len()]);
    }
    let Some(Geometry::Parity(parity)) = reshapes[0].after.geometry_of_alike() else {
        return Err(NoRestore::Geometry { member: first() });
    };
    let mut writes = vec![Vec::new(); members.len()];
    for section in &sections {
        let columns = columns(&parity, &source, section)?;
        let (stripe, ..) = parity.locate(Sector(section.array.start));
        let row = parity.member_sector(stripe, Sectors(0)) - Sector(0);
        for (reshape, writes) in reshapes.iter().zip(&mut writes) {
            let Role::Active(Slot(slot)) = reshape.after.role() else { continue };
            let sector = reshape.after.data_offset() + row;
            writes.extend(
                columns
                    .get(usize::from(slot))
                    .map(|column| Write { sector, bytes: column.clone() }),
            );
        }
    }
    for (superblock, writes) in superblocks.iter().zip(&mut writes) {
        let mut superblock = superblock.clone();
        superblock.set_reshape_position(position);
        writes.push(Write { sector: superblock.super_sector(), bytes: superblock.encode() });
    }
    Ok(writes)
}

/// The reshape that all members tell of, of each.
fn reshapes(
    members: &[Arc<Member>],
    superblocks: &[Superblock],
) -> Result<Vec<Reshape>, NoRestore> {
    let name = |index: usize| members[index].spec().to_string();
    let mut reshapes: Vec<Reshape> = Vec::new();
    for (index, superblock) in superblocks.iter().enumerate() {
        let is_known = matches!(superblock.unsupported(), None | Some(Unsupported::Reshape));
        let Some(reshape) = superblock.reshape().filter(|_| is_known) else {
            return Err(NoRestore::NoReshape { member: name(index) });
        };
        let position = reshapes.first().map_or(reshape.position, |first| first.position);
        if !superblock.is_reshaped_as(&superblocks[0]) || reshape.position != position {
            return Err(NoRestore::Unlike { member: name(index), first: name(0) });
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
    let is_it = |member: &Arc<Member>| member.spec().path == request.file;
    if let Some(index) = members.iter().position(is_it) {
        let superblock = &superblocks[index];
        let end = superblock.data_offset().0 + superblock.component().0;
        return Ok((Source::Member(&members[index]), Sector(end.saturating_sub(FROM_END))));
    }
    let file = File::open(&request.file);
    let file = file.map_err(|source| NoRestore::Read { offset: 0, source })?;
    Ok((Source::File(file), Sector(0)))
}

fn read_header(source: &Source<'_>, at: Sector) -> Result<Backup, NoRestore> {
    let (mut header, mut copy) = ([0; Backup::HEADER_BYTES], [0; Backup::HEADER_BYTES]);
    source.read(at, &mut header)?;
    let backup = Backup::parse(&header)?;
    source.read(backup.copy, &mut copy)?;
    match header == copy {
        true => Ok(backup),
        false => Err(NoRestore::Copy { copy: backup.copy.bytes() }),
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
    if [array.start, array.end].iter().any(|it| !it.is_multiple_of(stripe.0)) {
        let [start, end] = [array.start, array.end].map(|it| it * 512);
        return Err(NoRestore::Stripes { start, end, stripe: stripe.bytes() });
    }
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
