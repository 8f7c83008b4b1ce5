//! Which arrays are there.

use crate::Examination;
use lapstrake_device::MemberSpec;
use lapstrake_geometry::{Level, Slot};
use lapstrake_host::scan::{self as host, Completeness, Look, LookError};
use lapstrake_metadata::Superblock;
use lapstrake_metadata::assemble::{AssembleError, Assembly, Verdict};
use std::io;
use std::path::Path;

/// All that was found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Found {
    /// The arrays, in the order in which their first members were met.
    pub arrays: Vec<FoundArray>,
    /// What holds no md superblock that can be used.
    pub others: Vec<Examination>,
    /// What could not be looked at.
    pub failures: Vec<LookError>,
}

/// An array, as far as its members were found.
#[derive(Debug)]
#[non_exhaustive]
pub struct FoundArray {
    /// For [`OpenOptions::uuid`](crate::OpenOptions::uuid).
    pub uuid: [u8; 16],
    /// How it stands.
    pub completeness: Completeness,
    /// The name in the superblocks, with its host.
    pub name: String,
    /// The level; None if it is none that is known.
    pub level: Option<Level>,
    /// Every device with a superblock of this array.
    pub candidates: Vec<Candidate>,
    /// What they amount to; ids are indices into `candidates`.
    pub assembly: Result<Assembly, AssembleError>,
}

/// A device with a superblock of an array.
#[derive(Debug)]
#[non_exhaustive]
pub struct Candidate {
    /// What it holds.
    pub examination: Examination,
    /// What becomes of it when the array is opened; None if it is no array.
    pub verdict: Option<Verdict>,
}

impl FoundArray {
    /// Slots without a member in sync; none if that cannot be told.
    #[must_use]
    pub fn missing(&self) -> Vec<Slot> {
        let slots = self.assembly.iter().flat_map(|assembly| (0..).zip(&assembly.members));
        slots.filter(|(_, member)| member.is_none()).map(|(slot, _)| Slot(slot)).collect()
    }
}

/// Looks at these members and at the partitions in them, none of which is locked, and puts those of one array together. It
/// may take as long as the slowest of their disks.
#[must_use]
pub fn scan<M: Into<MemberSpec>>(members: impl IntoIterator<Item = M>) -> Found {
    let looks = members
        .into_iter()
        .flat_map(|member| host::with_partitions(&member.into(), false, Look::at));
    let host::Found { arrays, others, failures, .. } = host::scan(looks);
    let others = others.into_iter().map(Examination::of).collect();
    Found { arrays: arrays.into_iter().map(array).collect(), others, failures }
}

/// As [`scan()`], of what may be a file or block device in a directory; those below it are not entered.
///
/// # Errors
/// The system's, of listing the directory.
pub fn scan_directory(path: impl AsRef<Path>) -> io::Result<Found> {
    Ok(scan(host::directory(path.as_ref())?))
}

fn array(found: host::FoundArray) -> FoundArray {
    let (uuid, completeness) = (found.uuid, found.completeness());
    let superblock = found.superblock();
    let name = superblock.map_or_else(String::new, Superblock::name);
    let level = superblock.and_then(Superblock::level);
    let assembly = found.assembly;
    let verdict = |id: usize| {
        let mut verdicts = assembly.iter().flat_map(|assembly| &assembly.verdicts);
        verdicts.find(|(of, _)| *of == id).map(|(_, verdict)| verdict.clone())
    };
    let candidates = found.candidates.into_iter().enumerate();
    let candidates = candidates
        .map(|(id, look)| Candidate { examination: Examination::of(look), verdict: verdict(id) })
        .collect();
    FoundArray { uuid, completeness, name, level, candidates, assembly }
}
