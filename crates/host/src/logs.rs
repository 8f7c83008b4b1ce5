//! Partial parity logs at the start of an array: what they say of a dirty one is done, then they are emptied.
//!
//! A start that was cut off is done again. A read-only start writes nothing: what the logs would
//! change is marked instead, so that no block is recovered from it.

use crate::{
    array::{Part, Parts},
    bare::{self, BareError},
    status::Log,
};
use lapstrake_device::Member;
use lapstrake_engine::{LogConfig, LogDisks, Replay, read_logs, replay_logs};
use lapstrake_geometry::{Geometry, Parity, Sector, Slot, StripeNo};
use lapstrake_metadata::{Superblock, assemble::record_absent, ppl};

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    /// Redundancy is whole, which the superblocks do not say yet.
    pub settles: bool,
    /// Stripes whose parity is still to be put right.
    pub lost: Vec<StripeNo>,
}

/// Replays the logs of a dirty array, and empties all logs, if that may be.
pub(crate) fn settle(parts: &mut Parts, may_write: bool, log: &Log) -> Result<Replayed, BareError> {
    let (Some(signature), Geometry::Parity(parity)) = (parts.log_signature(), &parts.geometry)
    else {
        return Ok(Replayed::default());
    };
    let trusted = |slot| member(&parts.members, Slot(slot)).map(|part| part.trusted_to);
    let trusted_to = (0..parity.raid_disks()).map(trusted).collect();
    let config = LogConfig { parity: parity.clone(), signature, trusted_to };
    let mut replayed = Replayed::default();
    let resync_from = parts.resync_from;
    let mut devices = Devices(&mut parts.members);
    match (resync_from, may_write) {
        (Some(_), false) => {
            replayed.lost = stripes(&config.parity, &read_logs(&config, &mut devices)?);
            say_unread(replayed.lost.len(), log);
        }
        (Some(from), true) => {
            let replay = replay_logs(&config, &mut devices)?;
            replayed.settles = replay.settles() && from == Sector(0);
            say_replayed(&replay, replayed.settles, log);
        }
        (None, true) => devices.empty_logs()?,
        (None, false) => {}
    }
    if replayed.settles {
        parts.resync_from = None;
    }
    Ok(replayed)
}

/// The members, replacements behind those whose places they are to take.
struct Devices<'a>(&'a mut [Part]);

impl Devices<'_> {
    fn part(&self, slot: Slot) -> &Part {
        member(self.0, slot).expect("asked for members only")
    }
}

impl LogDisks for Devices<'_> {
    type Error = BareError;

    fn area(&mut self, slot: Slot) -> Result<Option<Vec<u8>>, BareError> {
        let Some(part) = member(self.0, slot) else { return Ok(None) };
        let Some((at, shape)) = part.superblock.ppl() else { return Ok(None) };
        let mut area = vec![0; shape.size.bytes() as usize];
        bare::read(&part.device, at.bytes(), &mut area)?;
        Ok(Some(area))
    }

    fn read(&mut self, slot: Slot, sector: Sector, buf: &mut [u8]) -> Result<bool, BareError> {
        Ok(bare::read_data(self.part(slot), sector, buf))
    }

    fn write(&mut self, slot: Slot, sector: Sector, bytes: &[u8]) -> Result<(), BareError> {
        bare::write_data(self.part(slot), sector, bytes)
    }

    fn flush(&mut self) -> Result<(), BareError> {
        let mut in_slots = self.0.iter().filter(|part| part.slot.is_some());
        in_slots.try_for_each(|part| bare::flush(&part.device))
    }

    fn record_absent(&mut self) -> Result<(), BareError> {
        let superblocks: Vec<&Superblock> = self.0.iter().map(|part| &part.superblock).collect();
        let Some(recorded) = record_absent(&superblocks) else { return Ok(()) };
        for (part, superblock) in self.0.iter_mut().zip(recorded) {
            part.superblock = superblock;
            bare::write_superblock(part)?;
        }
        Ok(())
    }

    fn empty_logs(&mut self) -> Result<(), BareError> {
        self.0.iter().try_for_each(|part| empty_log(&part.device, &part.superblock))
    }
}

fn member(parts: &[Part], slot: Slot) -> Option<&Part> {
    parts.iter().find(|part| part.slot == Some(slot))
}

/// Leaves nothing to replay in a member's log.
pub(crate) fn empty_log(device: &Member, superblock: &Superblock) -> Result<(), BareError> {
    let Some((at, shape)) = superblock.ppl() else { return Ok(()) };
    bare::write(device, at.bytes(), &ppl::empty_area(shape, superblock.set_uuid()))?;
    bare::flush(device)
}

fn stripes(geometry: &Parity, replay: &Replay) -> Vec<StripeNo> {
    let mut all: Vec<_> =
        replay.mends.iter().map(|mend| geometry.stripe_at(mend.parity.1).0).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn say_unread(lost: usize, log: &Log) {
    if lost > 0 {
        log.say(&format!(
            "the array was not stopped cleanly, and its partial parity logs name {lost} stripes whose \
             parity is to be made anew; a read-only start does not do that: what a missing or failing \
             member held of them cannot be read; `lapstrake serve --overlay FILE --degraded` and `lapstrake cat` do \
             it, and write nothing to the members either"
        ));
    }
}

fn say_replayed(replay: &Replay, settles: bool, log: &Log) {
    let faults = match replay.faults {
        0 => String::new(),
        n => format!(", {n} were not whole: what they would have described was not begun"),
    };
    let unread = match replay.unread {
        0 => String::new(),
        n => format!(
            ", {n} sectors of parity left as they are, since data that was being written beside them cannot be \
             read: that data may be lost"
        ),
    };
    let next =
        if settles { "no resync is needed" } else { "a resync follows when no member is missing" };
    log.say(&format!(
        "the array was not stopped cleanly; partial parity logs replayed: {} entries, {} places of \
         parity made anew{faults}{unread}; {next}",
        replay.entries,
        replay.mends.len(),
    ));
}
