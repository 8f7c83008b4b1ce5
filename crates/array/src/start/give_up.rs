//! What an array can do without: a journal that is lost, an internal bitmap that no member has in order.

use super::{BitmapFault, StartRequest};
use alloc::vec::Vec;
use lapstrake_geometry::{Geometry, Sector};
use lapstrake_metadata::{
    Superblock,
    assemble::{Assembly, Verdict, record_absent},
};

/// What came of giving up a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalGivenUp {
    /// There was none to give up.
    Nothing,
    /// It is given up. No slot lacks a member, and all redundancy is made anew.
    Resynced,
    /// It is given up. Slots lack members, and redundancy is taken to be right.
    TakenForClean,
}

pub(super) fn journal(
    assembly: &mut Assembly,
    superblocks: &mut [Option<Superblock>],
) -> JournalGivenUp {
    if !assembly.lacks_journal {
        return JournalGivenUp::Nothing;
    }
    assembly.lacks_journal = false;
    let is_whole = assembly.members.iter().all(Option::is_some);
    forget(assembly, superblocks, is_whole, Superblock::give_up_journal);
    if is_whole { JournalGivenUp::Resynced } else { JournalGivenUp::TakenForClean }
}

/// Whether the array can go on without an internal bitmap that no member has in order. Of one that nobody knows only an
/// overlay's array may.
pub(super) fn may_lack_bitmap<D, E>(
    request: &StartRequest<'_, D>,
    assembly: &Assembly,
    fault: &BitmapFault<E>,
) -> bool {
    let is_whole = assembly.members.iter().all(Option::is_some);
    let may_lack = match fault.is_unknown() {
        true => request.is_overlaid && request.ignore_unknown,
        false => request.force || request.is_overlaid && is_whole,
    };
    request.bitmap_file.is_none() && may_lack
}

/// Has the superblocks no longer tell of an internal bitmap that cannot be used. Redundancy is computed anew wherever some
/// is left.
pub(super) fn bitmap(assembly: &mut Assembly, superblocks: &mut [Option<Superblock>]) {
    let in_sync = assembly.members.iter().flatten().count();
    let has_redundancy = match &assembly.geometry {
        Some(Geometry::Parity(parity)) => in_sync > usize::from(parity.data_disks()),
        _ => true,
    };
    forget(assembly, superblocks, has_redundancy, |sb| sb.set_bitmap_offset(None));
}

/// Has the superblocks no longer tell of what is lost. What was being written may be on some members only: redundancy is
/// to be computed anew, or is taken to be right, as `force` says.
fn forget(
    assembly: &mut Assembly,
    superblocks: &mut [Option<Superblock>],
    resync: bool,
    forget: impl Fn(&mut Superblock),
) {
    assembly.resync_from = resync.then_some(Sector(0));
    let taken = assembly.verdicts.iter().filter(|verdict| !matches!(verdict.1, Verdict::Left(_)));
    let taken = taken.filter_map(|&(id, _)| Some((id, superblocks[id].clone()?)));
    let (ids, mut told): (Vec<usize>, Vec<Superblock>) = taken.unzip();
    for superblock in &mut told {
        forget(superblock);
        superblock.set_clean(!resync);
    }
    // Their redundancy is not computed anew: who is missing must not come back as current.
    for (index, recorded) in record_absent(&told.iter().collect::<Vec<_>>()) {
        told[index] = recorded;
    }
    assembly.rewrite = ids.into_iter().zip(told).collect();
    for (id, superblock) in &assembly.rewrite {
        superblocks[*id] = Some(superblock.clone());
    }
}
