//! Partial parity logs at the start of an array: what they say of a dirty one is done, then they are emptied.
//!
//! Invariants: the logs are emptied after all that they said is stable, and after the superblocks say which
//! members are missing: one that is away now, and whose data some entry names, must not come back as current
//! when that entry is gone. A start that was cut off is done again. A read-only start writes nothing: what the logs would
//! change is marked instead, so that no block is recovered from it.

use crate::{
    array::{Part, Parts},
    bare::{self, BareError},
    status::Log,
};
use lapstrake_device::Member;
use lapstrake_engine::{Mend, Replay};
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

/// Replays the logs of a dirty array, and empties all logs.
pub(crate) fn settle(parts: &mut Parts, read_only: bool, log: &Log) -> Result<Replayed, BareError> {
    let (Some(signature), Geometry::Parity(geometry)) = (parts.log_signature(), &parts.geometry)
    else {
        return Ok(Replayed::default());
    };
    let geometry = geometry.clone();
    let mut replayed = Replayed::default();
    if parts.resync_from.is_some() {
        let areas = areas(parts, geometry.raid_disks())?;
        let is_there = |slot: Slot, end: Sector| {
            member(parts, slot).is_some_and(|part| end <= part.trusted_to)
        };
        let replay = Replay::new(&geometry, signature, &areas, is_there);
        if read_only {
            replayed.lost = stripes(&geometry, &replay);
            say_unread(replayed.lost.len(), log);
            return Ok(replayed);
        }
        for mend in &replay.mends {
            carry_out(parts, mend, &areas)?;
        }
        sync_all(parts)?;
        write_absent(parts)?;
        replayed.settles = replay.settles() && parts.resync_from == Some(Sector(0));
        say_replayed(&replay, replayed.settles, log);
    }
    if !read_only {
        for part in &parts.members {
            empty_log(&part.device, &part.superblock)?;
        }
    }
    if replayed.settles {
        parts.resync_from = None;
    }
    Ok(replayed)
}

/// Leaves nothing to replay in a member's log.
pub(crate) fn empty_log(device: &Member, superblock: &Superblock) -> Result<(), BareError> {
    let Some((at, shape)) = superblock.ppl() else { return Ok(()) };
    bare::write(device, at.bytes(), &ppl::empty_area(shape, superblock.set_uuid()))?;
    bare::flush(device)
}

fn member(parts: &Parts, slot: Slot) -> Option<&Part> {
    parts.members.iter().find(|part| part.slot == Some(slot))
}

fn areas(parts: &Parts, raid_disks: u16) -> Result<Vec<Option<Vec<u8>>>, BareError> {
    let read = |slot| {
        let Some(part) = member(parts, slot) else { return Ok(None) };
        let Some((at, shape)) = part.superblock.ppl() else { return Ok(None) };
        let mut area = vec![0; shape.size.bytes() as usize];
        bare::read(&part.device, at.bytes(), &mut area)?;
        Ok(Some(area))
    };
    (0..raid_disks).map(Slot).map(read).collect()
}

fn carry_out(parts: &Parts, mend: &Mend, areas: &[Option<Vec<u8>>]) -> Result<(), BareError> {
    let mut data = Vec::new();
    for &(slot, sector) in &mend.data {
        let Some(part) = member(parts, slot) else { return Ok(()) };
        let mut bytes = vec![0; mend.len.bytes() as usize];
        let at = part.superblock.data_offset() + (sector - Sector(0));
        bare::read(&part.device, at.bytes(), &mut bytes)?;
        data.push(bytes);
    }
    let (slot, sector) = mend.parity;
    let Some(part) = member(parts, slot) else { return Ok(()) };
    let area = areas[slot.index()].as_deref().unwrap_or_default();
    let parity = mend.parity(lapstrake_parity::kernels(), area, &data);
    let at = part.superblock.data_offset() + (sector - Sector(0));
    bare::write(&part.device, at.bytes(), &parity)
}

fn write_absent(parts: &mut Parts) -> Result<(), BareError> {
    let superblocks: Vec<&Superblock> = parts.members.iter().map(|p| &p.superblock).collect();
    let Some(recorded) = record_absent(&superblocks) else { return Ok(()) };
    for (part, superblock) in parts.members.iter_mut().zip(recorded) {
        part.superblock = superblock;
        bare::write_superblock(part)?;
    }
    Ok(())
}

fn sync_all(parts: &Parts) -> Result<(), BareError> {
    let mut in_slots = parts.members.iter().filter(|part| part.slot.is_some());
    in_slots.try_for_each(|part| bare::flush(&part.device))
}

fn stripes(geometry: &Parity, replay: &Replay) -> Vec<StripeNo> {
    let mut all: Vec<_> =
        replay.mends.iter().map(|mend| geometry.stripe_at(mend.parity.1).0).collect();
    all.dedup();
    all
}

fn say_unread(lost: usize, log: &Log) {
    if lost > 0 {
        log.say(&format!(
            "the array was not stopped cleanly, and its partial parity logs name {lost} stripes whose \
             parity is to be made anew; a read-only start does not do that: what a missing or failing \
             member held of them cannot be read; with --overlay FILE instead it can, and nothing is \
             written to the members either"
        ));
    }
}

fn say_replayed(replay: &Replay, settles: bool, log: &Log) {
    let faults = match replay.faults {
        0 => String::new(),
        n => format!(", {n} were not whole: what they would have described was not begun"),
    };
    let next =
        if settles { "no resync is needed" } else { "a resync follows when no member is missing" };
    log.say(&format!(
        "the array was not stopped cleanly; partial parity logs replayed: {} entries, {} places of \
         parity made anew{faults}; {next}",
        replay.entries,
        replay.mends.len(),
    ));
}
