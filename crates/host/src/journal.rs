//! The journal at an array's start: what it holds is brought to the members before anybody is served.
//!
//! For reading only nothing is written: then an array starts only if its members hold all that the journal
//! does, as they do after a clean stop.

use crate::{array::Part, open::OpenArrayError};
use lapstrake_device::Member;
use lapstrake_engine::{
    MemberId,
    journal::{
        Disks, JournalConfig, Place, ReplayConfig, ReplayError, Replayed, holds_news, replay,
        ring_min,
    },
};
use lapstrake_geometry::{Geometry, Parity, Sector};
use lapstrake_metadata::journal::{Seed, ring};
use std::io;
use thiserror::Error;

/// A device refused something.
#[derive(Debug, Error)]
#[error("cannot {what} {device}: {source}")]
struct DeviceError {
    device: String,
    what: &'static str,
    source: io::Error,
}

struct Devices<'a> {
    journal: &'a mut Part,
    /// By slot.
    slots: Vec<Option<&'a Part>>,
}

impl Devices<'_> {
    fn at(&self, place: Place, sector: Sector) -> (&Member, u64) {
        let part = match place {
            Place::Journal => &*self.journal,
            Place::Slot(slot) => self.slots[slot.index()].expect("asked for members only"),
        };
        (&part.device, (part.superblock.data_offset().0 + sector.0) * 512)
    }
}

fn failed<T>(device: &Member, what: &'static str, result: io::Result<T>) -> Result<T, DeviceError> {
    result.map_err(|source| DeviceError { device: device.spec().to_string(), what, source })
}

impl Disks for Devices<'_> {
    type Error = DeviceError;

    fn read(&mut self, place: Place, sector: Sector, buf: &mut [u8]) -> Result<(), DeviceError> {
        let (device, offset) = self.at(place, sector);
        failed(device, "read", device.read_at(offset, buf))
    }

    fn write(&mut self, place: Place, sector: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        let (device, offset) = self.at(place, sector);
        failed(device, "write", device.write_at(offset, bytes))
    }

    fn flush(&mut self, place: Place) -> Result<(), DeviceError> {
        let (device, _) = self.at(place, Sector(0));
        failed(device, "flush", device.sync_all())
    }

    fn set_tail(&mut self, position: u64) -> Result<(), DeviceError> {
        let Part { device, superblock, .. } = &mut *self.journal;
        superblock.set_journal_tail(position);
        let mut bytes = superblock.encode();
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        let written = device.write_at(superblock.super_sector().0 * 512, &bytes);
        failed(device, "write the superblock of", written.and_then(|()| device.sync_all()))
    }
}

/// Brings to the members what the journal, the last of `members`, holds; none for reading only.
///
/// # Errors
/// [`OpenArrayError::Journal`], [`OpenArrayError::JournalHoldsNews`].
pub(crate) fn start(
    geometry: &Geometry,
    members: &mut [Part],
    may_write: bool,
) -> Result<Option<JournalConfig>, OpenArrayError> {
    let Geometry::Parity(parity) = geometry else { return Ok(None) };
    let index = members.len() - 1;
    let (members, journal) = members.split_at_mut(index);
    let journal = &mut journal[0];
    let member = journal.device.spec().to_string();
    let unusable = |why: String| OpenArrayError::Journal { member: member.clone(), why };
    let config = config(parity, members, journal);
    if config.ring < ring_min(parity) {
        let (found, needed) = (config.ring, ring_min(parity));
        return Err(unusable(format!("it holds {found}, at least {needed} are needed")));
    }
    let mut slots = vec![None; usize::from(parity.raid_disks())];
    for part in members.iter() {
        if let Some(slot) = part.slot {
            slots[slot.index()] = Some(part);
        }
    }
    let mut devices = Devices { journal, slots };
    let told = |error: ReplayError<DeviceError>| unusable(error.to_string());
    if !may_write {
        return match holds_news(&config, &mut devices).map_err(told)? {
            true => Err(OpenArrayError::JournalHoldsNews { member }),
            false => Ok(None),
        };
    }
    let Replayed { tail, head, seq, .. } = replay(&config, &mut devices).map_err(told)?;
    let (ring, seed) = (config.ring, config.seed);
    Ok(Some(JournalConfig { member: MemberId(index as u16), ring, seed, tail, head, seq }))
}

fn config(parity: &Parity, members: &[Part], journal: &Part) -> ReplayConfig {
    let mut trusted_to = vec![None; usize::from(parity.raid_disks())];
    for part in members {
        if let Some(slot) = part.slot {
            trusted_to[slot.index()] = Some(part.trusted_to);
        }
    }
    ReplayConfig {
        parity: parity.clone(),
        seed: Seed::new(journal.superblock.set_uuid()),
        ring: ring(journal.superblock.data_size()),
        tail: journal.superblock.journal_tail(),
        trusted_to,
    }
}
