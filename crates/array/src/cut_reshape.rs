//! What a reshape's backup holds, put where the new geometry has it: an array that was cut in the critical section of a reshape
//! which rewrites data in their own place.

use crate::start::{row, told_of, told_to_be_at};
use alloc::{string::String, vec, vec::Vec};
use core::ops::Range;
use lapstrake_geometry::{Geometry, Parity, Sector, Slot};
use lapstrake_metadata::{
    Reshape, Role, Superblock, Unsupported,
    backup::{Backup, BackupError, Section},
    update::Write,
};
use lapstrake_parity::{gf, kernels};
use thiserror::Error;

/// Why a backup is not put in its place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotPutBack {
    /// It is no backup, or not of now.
    #[error(transparent)]
    Backup(#[from] BackupError),
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
    /// It holds nothing of the array's beginning, where the reshape stands.
    #[error(
        "it holds nothing of the array's beginning, where the reshape stands; it was emptied, as it is when the array is served \
         after what it held was put in its place (if that was undone since, `lapstrake update --finish FILE` does it again)"
    )]
    Emptied,
    /// It cannot be told where the data belong.
    #[error("the geometry that members tell of is none that data could be put into")]
    Geometry,
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

/// Members of an array in the midst of a reshape that rewrites data in their own place.
#[derive(Debug)]
pub struct CutReshape {
    /// What the superblock of each says of it, or would say if it had not just missed its beginning or the last place.
    told: Vec<(Superblock, Reshape)>,
    freshest: usize,
}

impl CutReshape {
    /// All members that are there. `name`: of one of them.
    ///
    /// # Errors
    /// [`NotPutBack`].
    ///
    /// # Panics
    /// If none is given.
    pub fn of(
        superblocks: &[Superblock],
        name: impl Fn(usize) -> String,
    ) -> Result<Self, NotPutBack> {
        let freshest = freshest(superblocks);
        let fresh = &superblocks[freshest];
        let no_reshape = |index| NotPutBack::NoReshape { member: name(index) };
        let course = fresh.reshape().ok_or_else(|| no_reshape(freshest))?;
        let mut told = Vec::new();
        for (index, own) in superblocks.iter().enumerate() {
            let is_known = matches!(own.unsupported(), None | Some(Unsupported::Reshape));
            let stale = || NotPutBack::Stale { member: name(index), freshest: name(freshest) };
            let own = Some(own).filter(|_| is_known).ok_or_else(|| no_reshape(index))?;
            let own = told_of(own, &course).ok_or_else(stale)?;
            let is_fresh = own.events().saturating_add(1) >= fresh.events()
                && fresh.role_of(own.dev_number()) == own.role();
            if !is_fresh || !own.is_reshaped_as(fresh) {
                return Err(stale());
            }
            let reshape = own.reshape().ok_or_else(|| no_reshape(index))?;
            if reshape.before.data_offset() != reshape.after.data_offset() {
                return Err(NotPutBack::Moved);
            }
            told.push((own, reshape));
        }
        Ok(Self { told, freshest })
    }

    /// The superblock of who has seen the most.
    #[must_use]
    pub fn freshest(&self) -> &Superblock {
        &self.told[self.freshest].0
    }

    /// The reshape, as who has seen the most tells of it.
    #[must_use]
    pub fn reshape(&self) -> &Reshape {
        &self.told[self.freshest].1
    }

    /// Whether a member, perhaps one that has failed since, knows of this reshape: a copy that it keeps is then of this one.
    #[must_use]
    pub fn is_known_to(&self, own: &Superblock) -> bool {
        told_of(own, self.reshape()).is_some_and(|own| own.is_reshaped_as(self.freshest()))
    }

    /// What is to be written to each member so that what the backup holds, and the array lacks, is where the new geometry has
    /// it, and superblocks say so. Nothing if it lacks nothing. `read`: of who holds the backup.
    ///
    /// # Errors
    /// [`NotPutBack`], and what `read` gives.
    pub fn put_back<E: From<NotPutBack>>(
        self,
        backup: &Backup,
        read: impl Fn(Sector, &mut [u8]) -> Result<(), E>,
    ) -> Result<Vec<Vec<Write>>, E> {
        let Self { told, freshest } = self;
        let Reshape { position, is_backwards, .. } = told[freshest].1;
        let lacking = backup.lacking(position, is_backwards);
        let (sections, position) = lacking.map_err(NotPutBack::Backup)?;
        let mut writes = vec![Vec::new(); told.len()];
        if sections.is_empty() {
            if position == Sector(0) && !is_backwards && backup.sections.is_empty() {
                return Err(NotPutBack::Emptied.into());
            }
            return Ok(writes);
        }
        let geometries = Geometries::of(&told[freshest].1).ok_or(NotPutBack::Geometry)?;
        if !geometries.are_had_by(&told) {
            return Err(NotPutBack::TooFew.into());
        }
        for section in &sections {
            geometries.check(&section.array, is_backwards)?;
            let columns = columns(&geometries.after, &read, section)?;
            let row = row(&geometries.after, Sector(section.array.start)) - Sector(0);
            for ((_, reshape), writes) in told.iter().zip(&mut writes) {
                let Role::Active(Slot(slot)) = reshape.after.role() else { continue };
                let sector = reshape.after.data_offset() + row;
                let column = columns.get(usize::from(slot)).cloned();
                writes.extend(column.map(|bytes| Write { sector, bytes }));
            }
        }
        // Who was not given has missed this.
        let events = told[freshest].0.events().saturating_add(2);
        for ((mut superblock, reshape), writes) in told.into_iter().zip(&mut writes) {
            told_to_be_at(&mut superblock, &reshape.after, position);
            superblock.set_events(events);
            writes.push(Write { sector: superblock.super_sector(), bytes: superblock.encode() });
        }
        Ok(writes)
    }
}

/// Who has seen the most.
fn freshest(superblocks: &[Superblock]) -> usize {
    let events = |&index: &usize| superblocks[index].events();
    (0..superblocks.len()).rev().max_by_key(events).expect("members were given")
}

/// The geometries of the reshape.
struct Geometries {
    before: Parity,
    after: Parity,
}

impl Geometries {
    /// None if data cannot be put into them.
    fn of(reshape: &Reshape) -> Option<Self> {
        let parity = |superblock: &Superblock| match superblock.geometry_of_alike()? {
            Geometry::Parity(parity) => Some(parity),
            _ => None,
        };
        Some(Self { before: parity(&reshape.before)?, after: parity(&reshape.after)? })
    }

    /// Whether nothing is lost of either without other members.
    fn are_had_by(&self, told: &[(Superblock, Reshape)]) -> bool {
        let has = |half: fn(&Reshape) -> &Superblock, slot| {
            let is_it = |(_, reshape): &(Superblock, Reshape)| {
                let superblock = half(reshape);
                superblock.role() == Role::Active(slot) && superblock.recovery_offset().is_none()
            };
            told.iter().any(is_it)
        };
        let is_had = |parity: &Parity, half: fn(&Reshape) -> &Superblock| {
            let absent = (0..parity.raid_disks()).filter(|&slot| !has(half, Slot(slot))).count();
            absent <= usize::from(parity.parity_disks())
        };
        is_had(&self.before, |reshape| &reshape.before)
            && is_had(&self.after, |reshape| &reshape.after)
    }

    /// What comes back ends where stripes of both do, as everything that mdadm keeps.
    fn check(&self, array: &Range<u64>, is_backwards: bool) -> Result<(), NotPutBack> {
        let (old, new) = (&self.before, &self.after);
        let end = old.array_sectors().min(new.array_sectors());
        let unit = new.stripe_data().0 / new.chunk().0 * new.chunk().max(old.chunk()).0;
        let far = if is_backwards { array.start } else { array.end };
        let is_whole = [array.start, array.end].iter().all(|at| at.is_multiple_of(unit))
            && far.is_multiple_of(old.stripe_data().0);
        match is_whole && array.end <= end.0 {
            true => Ok(()),
            false => Err(NotPutBack::Stripes { start: array.start * 512, end: array.end * 512 }),
        }
    }
}

/// What each slot of the new geometry is to hold of a section: data, and parity made of them.
fn columns<E>(
    parity: &Parity,
    read: impl Fn(Sector, &mut [u8]) -> Result<(), E>,
    section: &Section,
) -> Result<Vec<Vec<u8>>, E> {
    let (chunk, stripe) = (parity.chunk().bytes() as usize, parity.stripe_data());
    let Section { array, at } = section;
    let mut columns = vec![Vec::new(); parity.raid_disks().into()];
    let mut data = vec![0; stripe.bytes() as usize];
    for start in array.clone().step_by(stripe.0 as usize) {
        read(Sector(at.0 + (start - array.start)), &mut data)?;
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
