//! The journal at an array's start: what it holds is brought to the members before anybody is served, and
//! after everything else that a start needs is had.
//!
//! For reading only nothing is written: then an array starts only if its members hold all that the journal
//! does, as they do after a clean stop.

use crate::{
    array::{Part, StartError},
    bare::{self, BareError},
    open::OpenArrayError,
    status::Log,
};
use lapstrake_engine::{
    MemberId,
    journal::{
        Disks, JournalConfig, Place, ReplayConfig, ReplayError, Replayed, holds_news, replay,
    },
};
use lapstrake_geometry::{Geometry, Parity, Sector, Slot};
use lapstrake_metadata::assemble::record_absent;
use lapstrake_metadata::journal::{Seed, ring, ring_min};

struct Devices<'a> {
    /// The journal is the last.
    parts: &'a mut [Part],
    /// By slot, as indices into `parts`: who serves it, and who is to take its place.
    slots: Vec<Vec<usize>>,
}

impl<'a> Devices<'a> {
    fn new(parity: &Parity, parts: &'a mut [Part]) -> Self {
        let mut slots = vec![Vec::new(); usize::from(parity.raid_disks())];
        for (index, part) in parts.iter().enumerate() {
            if let Some(slot) = part.slot {
                slots[slot.index()].push(index);
            }
        }
        Self { parts, slots }
    }

    /// Who is meant, the one to read from first.
    fn at(&self, place: Place) -> impl Iterator<Item = &Part> {
        let indices = match place {
            Place::Journal => vec![self.parts.len() - 1],
            Place::Slot(slot) => self.slots[slot.index()].clone(),
        };
        indices.into_iter().map(|index| &self.parts[index])
    }
}

impl Disks for Devices<'_> {
    type Error = BareError;

    fn read_journal(&mut self, sector: Sector, buf: &mut [u8]) -> Result<(), BareError> {
        let Part { device, superblock, .. } = &self.parts[self.parts.len() - 1];
        bare::read(device, (superblock.data_offset() + (sector - Sector(0))).bytes(), buf)
    }

    fn read_slot(&mut self, slot: Slot, sector: Sector, buf: &mut [u8]) -> Result<bool, BareError> {
        let part = self.at(Place::Slot(slot)).next().expect("asked for members only");
        Ok(bare::read_data(part, sector, buf))
    }

    fn write(&mut self, place: Place, sector: Sector, bytes: &[u8]) -> Result<(), BareError> {
        self.at(place).try_for_each(|part| bare::write_data(part, sector, bytes))
    }

    fn flush(&mut self, place: Place) -> Result<(), BareError> {
        self.at(place).try_for_each(|part| bare::flush(&part.device))
    }

    fn set_tail(&mut self, position: u64) -> Result<(), BareError> {
        let superblocks: Vec<_> = self.parts.iter().map(|part| &part.superblock).collect();
        let recorded = record_absent(&superblocks);
        let has_absent = recorded.is_some();
        for (part, superblock) in self.parts.iter_mut().zip(recorded.into_iter().flatten()) {
            part.superblock = superblock;
        }
        let Some((journal, members)) = self.parts.split_last_mut() else { return Ok(()) };
        for part in members.iter().filter(|_| has_absent) {
            bare::write_superblock(part)?;
        }
        journal.superblock.set_journal_tail(position);
        bare::write_superblock(journal)
    }
}

/// Whether what the journal, the last of `members`, holds is to be brought to the others, as it is unless
/// nothing may be written.
///
/// # Errors
/// [`OpenArrayError::Journal`], [`OpenArrayError::JournalHoldsNews`].
pub(crate) fn check(
    geometry: &Geometry,
    members: &mut [Part],
    may_write: bool,
) -> Result<bool, OpenArrayError> {
    let Geometry::Parity(parity) = geometry else { return Ok(false) };
    let member = name(members);
    let unusable = |why: String| OpenArrayError::Journal { member: member.clone(), why };
    let config = config(parity, members);
    let (found, needed) = (config.ring, ring_min(parity.raid_disks()));
    if found < needed {
        return Err(unusable(format!("it holds {found}, at least {needed} are needed")));
    }
    if may_write {
        return Ok(true);
    }
    let news = holds_news(&config, &mut Devices::new(parity, members));
    match news.map_err(|error| unusable(error.to_string()))? {
        true => Err(OpenArrayError::JournalHoldsNews { member }),
        false => Ok(false),
    }
}

/// Brings to the members what the journal, the last of them, holds.
///
/// # Errors
/// [`StartError::Journal`].
pub(crate) fn bring(
    geometry: &Geometry,
    members: &mut [Part],
    log: &Log,
) -> Result<Option<JournalConfig>, StartError> {
    let Geometry::Parity(parity) = geometry else { return Ok(None) };
    let (index, config) = (members.len() - 1, config(parity, members));
    let member = name(members);
    let told =
        |error: ReplayError<BareError>| StartError::Journal { member, why: error.to_string() };
    let replayed = replay(&config, &mut Devices::new(parity, members)).map_err(told)?;
    let Replayed { rows, completed, tail, head, seq } = replayed;
    if rows > 0 {
        log.say(&format!(
            "the array was not stopped cleanly (or the kernel stopped it, which leaves its last writes in the \
             journal): its journal was replayed: {rows} rows written as it holds them, parity made anew for \
             {completed} of them; no resync is needed"
        ));
    }
    let (ring, seed) = (config.ring, config.seed);
    Ok(Some(JournalConfig { member: MemberId(index as u16), ring, seed, tail, head, seq }))
}

fn name(members: &[Part]) -> String {
    members[members.len() - 1].device.spec().to_string()
}

fn config(parity: &Parity, members: &[Part]) -> ReplayConfig {
    let mut trusted_to = vec![None; usize::from(parity.raid_disks())];
    for part in members {
        if let Some(slot) = part.slot {
            trusted_to[slot.index()].get_or_insert(part.trusted_to);
        }
    }
    let journal = &members[members.len() - 1].superblock;
    ReplayConfig {
        parity: parity.clone(),
        seed: Seed::new(journal.set_uuid()),
        ring: ring(journal.data_size()),
        tail: journal.journal_tail(),
        trusted_to,
    }
}
