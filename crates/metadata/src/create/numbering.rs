//! Which device number and role each member of a new array gets.
//!
//! A raid4 or raid5 is born with the device of its last slot as a spare: to recover that one
//! member only writes to it, whereas making all parity right would read, compute and write
//! everywhere. Likewise a raid6 of which one member is missing, since the kernel would not run
//! it dirty. The spare made so comes last, behind the spares that were asked for.
//!
//! A journal has the first number, as if it had been given before the members. mdadm counts it when
//! it looks for the last slot, and so makes the last but one a spare.

use alloc::vec;
use alloc::vec::Vec;

use lapstrake_geometry::{Level, Slot};

use super::CreateRequest;
use crate::Role;

/// Number and role of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbered {
    pub number: u32,
    pub role: Role,
    /// What 0.90 writes as `raid_disk`: the slot, or the next number behind the slots.
    pub raid_disk: u32,
}

/// All devices of a new array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Numbering {
    /// For each member of the request.
    pub devices: Vec<Option<Numbered>>,
    /// The journal's number, if there is one.
    pub journal: Option<u32>,
    /// Nothing is to be resynced: redundancy holds, or will come by recovery.
    pub clean: bool,
    /// Members in sync, members that are there, members missing, spares: 0.90 counts them so.
    pub active: u32,
    pub working: u32,
    pub failed: u32,
    pub spare: u32,
}

/// The slot whose device is made a spare.
fn slot_to_recover(request: &CreateRequest) -> Option<usize> {
    if request.assume_clean || request.force {
        return None;
    }
    let slots = &request.members[..request.raid_disks.into()];
    let missing: Vec<usize> = (0..slots.len()).filter(|&i| slots[i].is_none()).collect();
    let last = slots.len() - 1;
    let before = usize::from(request.journal.is_some());
    match (request.level, missing.as_slice()) {
        (Level::Raid4 | Level::Raid5, []) => Some(last.saturating_sub(before)),
        (Level::Raid6, [gone]) => {
            let wanted = last.saturating_sub(before);
            Some(if *gone == wanted { wanted - 1 } else { wanted })
        }
        _ => None,
    }
}

/// Whether a new array has nothing to resync.
fn is_clean(request: &CreateRequest, to_recover: Option<usize>) -> bool {
    let slots = &request.members[..request.raid_disks.into()];
    let missing = slots.iter().filter(|member| member.is_none()).count();
    request.assume_clean
        || to_recover.is_some()
        || match request.level {
            Level::Linear | Level::Raid0 => true,
            Level::Raid4 | Level::Raid5 => missing >= 1,
            Level::Raid6 => missing >= 2,
            Level::Raid1 | Level::Raid10 => false,
        }
}

/// Numbers the devices of `request`, whose counts were checked.
pub(super) fn number(request: &CreateRequest) -> Numbering {
    let slots = usize::from(request.raid_disks);
    let to_recover = slot_to_recover(request);
    let mut devices = vec![None; request.members.len()];
    let journals = usize::from(request.journal.is_some());
    let mut next_raid_disk = 0;
    let mut numbered = |number: usize| {
        let raid_disk = next_raid_disk;
        next_raid_disk += 1;
        let role = match u16::try_from(raid_disk) {
            Ok(slot) if raid_disk < slots => Role::Active(Slot(slot)),
            _ => Role::Spare,
        };
        Numbered { number: number as u32, role, raid_disk: raid_disk as u32 }
    };
    for (index, member) in request.members.iter().enumerate() {
        // Every place counts, whether a device takes it or not.
        let here = numbered(journals + index);
        if member.is_some() && to_recover != Some(index) {
            devices[index] = Some(here);
        }
    }
    if let Some(index) = to_recover {
        devices[index] = Some(numbered(journals + request.members.len()));
    }
    let made_spare = u32::from(to_recover.is_some());
    let count = |part: &[_]| part.iter().filter(|m: &&Option<_>| m.is_some()).count() as u32;
    let working = count(&request.members);
    Numbering {
        devices,
        journal: request.journal.map(|_| 0),
        clean: is_clean(request, to_recover),
        active: count(&request.members[..slots]) - made_spare,
        working,
        failed: request.members.len() as u32 - working + made_spare,
        spare: u32::from(request.spares) + made_spare,
    }
}
