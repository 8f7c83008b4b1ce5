//! Which arrays are there: looks at files and devices, puts members of one array together, and
//! lets the rules of assembly say what they amount to.
//!
//! Nothing is locked and nothing is written, so that it can be asked at any time, also about
//! members in use.

mod look;

use crate::open::refused;
use crate::start_io::Members;
use lapstrake_array::start::{StartPlan, StartRequest};
use lapstrake_device::MemberSpec;
use lapstrake_metadata::assemble::{
    AssembleError, Assembly, Candidate, Options, Reason, Refusal, Verdict, assemble,
};
use lapstrake_metadata::bitmap::BitmapError;
use lapstrake_metadata::detect::Wanted;
use lapstrake_metadata::{Reshape, Superblock};
use std::path::{Path, PathBuf};
use std::{fs, io};

pub use look::{BadBlockEntries, BitmapLook, Look, LookError};

/// All that was found.
#[derive(Debug, Default)]
pub struct Found {
    /// The arrays, in the order in which their first members were met.
    pub arrays: Vec<FoundArray>,
    /// What holds no md superblock that can be used, or several among which nothing tells.
    pub others: Vec<Look>,
    /// What could not be looked at.
    pub failures: Vec<LookError>,
}

/// The candidates of one array.
#[derive(Debug)]
pub struct FoundArray {
    /// As mdadm prints it.
    pub uuid: [u8; 16],
    /// Every device with a superblock of this array. Ids in `assembly` are indices into it.
    pub candidates: Vec<Look>,
    /// What they amount to.
    pub assembly: Result<Assembly, AssembleError>,
    /// Why the array cannot be started with its internal bitmap, and on which candidate that shows: nobody knows what
    /// the bitmap says, or no candidate's is sound.
    pub unusable_bitmap: Option<(usize, BitmapError)>,
    /// Why a start would be refused all the same, by what superblocks point at: logs, journals, bitmaps. None of an array
    /// in use, where these change.
    pub obstacle: Option<String>,
    /// The reshape that is under way, as the freshest superblock tells of it.
    /// `assembly` is of that of the two geometries which has more members.
    pub reshape: Option<Reshape>,
}

/// How an array stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// Every slot has a member in sync.
    Complete,
    /// Its data is there, but not all of its redundancy.
    Degraded,
    /// It cannot be started, or only by --force.
    Incomplete,
    /// It asks for something that cannot be acted upon.
    Unsupported,
}

impl FoundArray {
    /// How it stands.
    #[must_use]
    pub fn completeness(&self) -> Completeness {
        match &self.assembly {
            Ok(_) if self.has_unknown_bitmap() => Completeness::Unsupported,
            Ok(_) if self.unusable_bitmap.is_some() || self.obstacle.is_some() => {
                Completeness::Incomplete
            }
            Ok(assembly) => match &assembly.start {
                Ok(()) if assembly.degraded == 0 => Completeness::Complete,
                Ok(()) | Err(Refusal::NewlyDegraded { .. }) => Completeness::Degraded,
                Err(_) if assembly.verdicts.iter().any(is_unsupported) => Completeness::Unsupported,
                Err(_) => Completeness::Incomplete,
            },
            Err(AssembleError::Unsupported { .. } | AssembleError::Geometry { .. }) => {
                Completeness::Unsupported
            }
            Err(_) => Completeness::Incomplete,
        }
    }

    fn has_unknown_bitmap(&self) -> bool {
        self.unusable_bitmap.as_ref().is_some_and(|(_, error)| error.is_unknown())
    }

    /// The superblock that speaks for the array: the freshest if that is known.
    #[must_use]
    pub fn superblock(&self) -> Option<&Superblock> {
        let id = self.assembly.as_ref().map_or(0, |assembly| assembly.freshest);
        self.candidates.get(id)?.superblock()
    }
}

/// A look at a member, by `look`, and at each partition in it; see [`Look::partitions`].
pub fn with_partitions(
    spec: &MemberSpec,
    without_devices: bool,
    look: impl Fn(&MemberSpec) -> Result<Look, LookError>,
) -> Vec<Result<Look, LookError>> {
    let whole = look(spec);
    let inside = whole.as_ref().map_or_else(|_| Vec::new(), |it| it.partitions(without_devices));
    core::iter::once(whole).chain(inside.iter().map(look)).collect()
}

/// What all of `looks` amount to.
#[must_use]
pub fn scan(looks: impl IntoIterator<Item = Result<Look, LookError>>) -> Found {
    let mut found = Found::default();
    let mut groups: Vec<([u8; 16], Vec<Look>)> = Vec::new();
    for look in looks {
        let look = match look {
            Ok(look) => look,
            Err(failure) => {
                found.failures.push(failure);
                continue;
            }
        };
        // A link and what it leads to are one device, known by the name met first.
        let known = groups.iter().flat_map(|(_, looks)| looks).chain(&found.others);
        if { known }.any(|known| known.is_same(&look)) {
            continue;
        }
        let own = look.findings().choose(&Wanted::default()).ok().flatten();
        let Some(uuid) = own.map(Superblock::set_uuid) else {
            found.others.push(look);
            continue;
        };
        match groups.iter_mut().find(|(known, _)| *known == uuid) {
            Some((_, looks)) => looks.push(look),
            None => groups.push((uuid, vec![look])),
        }
    }
    found.arrays = groups.into_iter().map(|(uuid, looks)| array(uuid, looks)).collect();
    found
}

fn array(uuid: [u8; 16], candidates: Vec<Look>) -> FoundArray {
    let superblocks: Vec<_> = candidates.iter().map(|it| it.superblock().map(judged)).collect();
    let judged: Vec<_> = superblocks
        .iter()
        .enumerate()
        .filter_map(|(id, superblock)| Some(Candidate { id, superblock: superblock.as_ref()? }))
        .collect();
    let options = Options { uuid: Some(uuid), ..Options::default() };
    let assembly = assemble(&judged, &options);
    let freshest = assembly.as_ref().ok().and_then(|it| candidates[it.freshest].superblock());
    let reshape = freshest.and_then(Superblock::reshape);
    let unusable_bitmap =
        assembly.as_ref().ok().and_then(|it| unusable_bitmap(it, &candidates, &superblocks));
    // As `serve` is proposed: where members are lacking for the first time, with --degraded.
    let may_start = assemble(&judged, &Options { run: true, ..options });
    let may_start = may_start.ok().filter(|it| it.start.is_ok() && unusable_bitmap.is_none());
    let obstacle = may_start.and_then(|it| obstacle(it, &candidates, superblocks));
    FoundArray { uuid, candidates, assembly, unusable_bitmap, obstacle, reshape }
}

/// The superblock as it is judged: during a reshape that of the geometry which has more members.
fn judged(own: &Superblock) -> Superblock {
    match own.reshape() {
        Some(Reshape { before, after, .. }) if before.raid_disks() > after.raid_disks() => before,
        Some(Reshape { after, .. }) => after,
        None => own.clone(),
    }
}

fn is_unsupported((_, verdict): &(usize, Verdict)) -> bool {
    matches!(verdict, Verdict::Left(Reason::Unsupported(_)))
}

/// Why the start that would be planned is none. Nothing is locked or written.
fn obstacle(
    assembly: Assembly,
    candidates: &[Look],
    superblocks: Vec<Option<Superblock>>,
) -> Option<String> {
    if candidates.iter().any(|look| look.writers().is_some()) {
        return None;
    }
    let devices: Vec<_> = candidates.iter().map(|look| look.member().clone()).collect();
    let names: Vec<_> = candidates.iter().map(|look| look.spec().to_string()).collect();
    let request = StartRequest {
        devices: &devices,
        bitmap_file: None,
        read_only: false,
        is_overlaid: false,
        force: false,
        ignore_unknown: false,
        gives_up_journal: false,
    };
    let planned = StartPlan::new(&mut Members, &request, assembly, superblocks);
    Some(refused(planned.err()?, &names, None, &[]).to_string())
}

fn unusable_bitmap(
    assembly: &Assembly,
    candidates: &[Look],
    superblocks: &[Option<Superblock>],
) -> Option<(usize, BitmapError)> {
    let taken = assembly.verdicts.iter().filter(|(_, it)| !matches!(it, Verdict::Left(_)));
    let copies = taken
        .filter_map(|&(id, _)| Some((id, candidates[id].bitmap_error(superblocks[id].as_ref()?)?)));
    let (sound, bad): (Vec<_>, Vec<_>) = copies.partition(|(_, error)| error.is_none());
    let mut bad = bad.into_iter().filter_map(|(id, error)| Some((id, error?)));
    match sound.is_empty() {
        true => bad.next(),
        false => bad.find(|(_, error)| error.is_unknown()),
    }
}

/// The block devices of this machine that can hold data, from `/proc/partitions`.
///
/// # Errors
/// The system's.
pub fn devices() -> io::Result<Vec<MemberSpec>> {
    let table = fs::read_to_string("/proc/partitions")?;
    Ok(names(&table).map(|name| MemberSpec::whole(Path::new("/dev").join(name))).collect())
}

/// Names in a table of partitions (proc(5)): major, minor, blocks, name below a heading. Those of
/// one block are the place-holders of extended partitions.
fn names(table: &str) -> impl Iterator<Item = &str> {
    table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace().skip(2);
        let blocks: u64 = fields.next()?.parse().ok()?;
        fields.next().filter(|_| blocks > 1)
    })
}

/// What may be a file or a block device in a directory, by name; sub-directories are not entered.
///
/// No entry is asked for more than the directory knows of it, so a link may lead anywhere, and on a file something else
/// may be mounted.
///
/// # Errors
/// The system's.
pub fn directory(path: &Path) -> io::Result<Vec<MemberSpec>> {
    use std::os::unix::fs::FileTypeExt;
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // Where the directory does not know kinds, one may be gone by now.
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_file() || kind.is_block_device() || kind.is_symlink() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths.into_iter().map(MemberSpec::whole).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_read_without_place_holders() {
        let table =
            "major minor  #blocks  name\n\n   8  0  1000 sda\n   8  2  1 sda2\n 259 0 5 nvme0n1\n";
        assert_eq!(names(table).collect::<Vec<_>>(), ["sda", "nvme0n1"]);
        assert_eq!(names("").count(), 0);
        assert_eq!(names("x\ny z\n\n1 2 many sda").count(), 0);
    }
}
