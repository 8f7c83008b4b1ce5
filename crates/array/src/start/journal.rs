//! What a journal holds is brought to the members before anybody is served.
//!
//! Where nothing may be written an array starts only if its members hold all that the journal does, as they do after a
//! clean stop.

use super::{StartIo, StartMember, read_data, write_absent, write_data, write_superblock};
use alloc::vec;
use lapstrake_engine::{
    MemberId,
    journal::{self, Disks, JournalConfig, Place, ReplayConfig, ReplayError, Replayed},
};
use lapstrake_geometry::{Geometry, Parity, Sector, Sectors, Slot};
use lapstrake_metadata::journal::{Seed, ring, ring_min};
use thiserror::Error;

/// Why an array cannot be started with its journal.
#[derive(Debug, Error)]
pub enum JournalFault<E> {
    /// Its device is too small.
    #[error("it holds {found}, at least {needed} are needed")]
    Room {
        /// What it has.
        found: Sectors,
        /// What an array of so many members needs.
        needed: Sectors,
    },
    /// It cannot be read, or makes no sense.
    #[error("{0}")]
    Replay(ReplayError<E>),
    /// It holds what members lack, and they must not be written.
    #[error("it holds writes that the members lack")]
    HoldsNews,
}

/// Whether what the journal, the last of `members`, holds is to be brought to the others, as it is unless nothing may be
/// written.
pub(super) fn check<I: StartIo>(
    io: &mut I,
    geometry: &Geometry,
    members: &mut [StartMember<I::Device>],
    may_write: bool,
) -> Result<bool, JournalFault<I::Error>> {
    let Geometry::Parity(parity) = geometry else { return Ok(false) };
    let config = config(parity, members);
    let (found, needed) = (config.ring, ring_min(parity.raid_disks()));
    if found < needed {
        return Err(JournalFault::Room { found, needed });
    }
    if may_write {
        return Ok(true);
    }
    match journal::holds_news(&config, &mut Devices { io, members }) {
        Ok(false) => Ok(false),
        Ok(true) => Err(JournalFault::HoldsNews),
        Err(error) => Err(JournalFault::Replay(error)),
    }
}

/// Brings to the members what the journal, the last of them, holds.
pub(super) fn replay<I: StartIo>(
    io: &mut I,
    geometry: &Geometry,
    members: &mut [StartMember<I::Device>],
) -> Result<Option<(JournalConfig, Replayed)>, ReplayError<I::Error>> {
    let Geometry::Parity(parity) = geometry else { return Ok(None) };
    let member = MemberId(members.len() as u16 - 1);
    let config = config(parity, members);
    let replayed = journal::replay(&config, &mut Devices { io, members })?;
    let Replayed { tail, head, seq, .. } = replayed;
    let (ring, seed) = (config.ring, config.seed);
    Ok(Some((JournalConfig { member, ring, seed, tail, head, seq }, replayed)))
}

fn config<D>(parity: &Parity, members: &[StartMember<D>]) -> ReplayConfig {
    let mut trusted_to = vec![None; usize::from(parity.raid_disks())];
    for member in members {
        if let Some(slot) = member.record.slot {
            // Replacements come behind those whose places they are to take.
            trusted_to[slot.index()].get_or_insert(member.record.trusted_to);
        }
    }
    let journal = members.last().expect("the journal is one").superblock();
    ReplayConfig {
        parity: parity.clone(),
        seed: Seed::new(journal.set_uuid()),
        ring: ring(journal.data_size()),
        tail: journal.journal_tail(),
        trusted_to,
    }
}

struct Devices<'a, I: StartIo> {
    io: &'a mut I,
    /// The journal is the last.
    members: &'a mut [StartMember<I::Device>],
}

/// Who is meant, the one to read from first: the journal; or who serves a slot, and who is to take its place.
fn meant<D>(members: &[StartMember<D>], place: Place) -> impl Iterator<Item = &StartMember<D>> {
    let journal = members.len() - 1;
    let is_meant = move |(index, member): &(usize, &StartMember<D>)| match place {
        Place::Journal => *index == journal,
        Place::Slot(slot) => member.record.slot == Some(slot),
    };
    members.iter().enumerate().filter(is_meant).map(|(_, member)| member)
}

impl<I: StartIo> Disks for Devices<'_, I> {
    type Error = I::Error;

    fn read_journal(&mut self, sector: Sector, buf: &mut [u8]) -> Result<(), I::Error> {
        let journal = self.members.last().expect("the journal is one");
        let at = journal.superblock().data_offset() + (sector - Sector(0));
        self.io.read(&journal.device, at.bytes(), buf)
    }

    fn read_slot(&mut self, slot: Slot, sector: Sector, buf: &mut [u8]) -> Result<bool, I::Error> {
        let first = meant(self.members, Place::Slot(slot)).next().expect("asked for members only");
        Ok(read_data(self.io, first, sector, buf))
    }

    fn write(&mut self, place: Place, sector: Sector, bytes: &[u8]) -> Result<(), I::Error> {
        let mut all = meant(self.members, place);
        all.try_for_each(|member| write_data(self.io, member, sector, bytes))
    }

    fn flush(&mut self, place: Place) -> Result<(), I::Error> {
        meant(self.members, place).try_for_each(|member| self.io.flush(&member.device))
    }

    fn set_tail(&mut self, position: u64) -> Result<(), I::Error> {
        write_absent(self.io, self.members)?;
        let journal = self.members.last_mut().expect("the journal is one");
        journal.record.superblock.set_journal_tail(position);
        write_superblock(self.io, &journal.device, journal.superblock())
    }
}
