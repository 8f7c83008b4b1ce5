//! Makes redundancy whole between two sessions, on the raw images, as an operator's md elsewhere would:
//! so seeds get far that the engine is not let mend by itself, and what bits and superblocks say is
//! held against what differs.
//!
//! What is copied follows md: with a bitmap only what its bits cover, and a member that was away gets
//! only that too if it is no older than the last clearing of a bit (`events_cleared`).

use crate::{
    disk::{Disk, SECTOR},
    lifetime::{wear::Holes, write_bitmap},
    raw,
};
use lapstrake_engine::BitmapConfig;
use lapstrake_geometry::{Geometry, Sector, Slot};
use lapstrake_metadata::{
    Device, Role, Superblock,
    assemble::Assembly,
    bitmap::{self, Bits},
};

/// What there is to heal.
pub(crate) struct HealTarget<'a> {
    pub geometry: &'a Geometry,
    pub assembly: &'a Assembly,
    /// By disk; all are there.
    pub superblocks: &'a [Option<Superblock>],
    pub bitmap: Option<&'a BitmapConfig>,
    pub holes: &'a Holes,
}

/// The data of these members, by slot.
pub(crate) fn image<'a>(
    disks: &'a [Disk],
    superblocks: &'a [Option<Superblock>],
    members: &'a [Option<usize>],
    holes: &'a Holes,
) -> impl raw::Image<'a> {
    move |slot, sector| {
        let disk = members[slot.index()]?;
        let offset = superblocks[disk].as_ref()?.data_offset();
        if holes.is_in(disk, offset.0 + sector.0) {
            return None;
        }
        Some(disks[disk].bytes(offset.0 + sector.0, SECTOR))
    }
}

/// Whether the bitmap knows that the row may differ.
pub(crate) fn is_dirty(bitmap: &BitmapConfig, row: u64) -> bool {
    bitmap.bits.get(row / bitmap.bits.chunk().0)
}

/// Whether members need not agree on the row, since a lockless bitmap says that nothing was ever written there.
pub(crate) fn is_unwritten(bitmap: Option<&BitmapConfig>, row: u64) -> bool {
    bitmap.is_some_and(|bitmap| !bitmap.bits.is_written(row / bitmap.bits.chunk().0))
}

/// Resyncs and recovers every slot. `all`: whatever the bitmap says. Gives the disk of each slot.
pub(crate) fn heal(
    part: &HealTarget<'_>,
    disks: &mut [Disk],
    file: &mut Disk,
    all: bool,
) -> Result<Vec<Option<usize>>, String> {
    let HealTarget { geometry, assembly, superblocks, bitmap, holes } = part;
    let sb = |disk: usize| superblocks[disk].as_ref().expect("all are there");
    let serves = |disk: usize| assembly.members.contains(&Some(disk));
    let is_free = |disk: &usize| !serves(*disk) && assembly.journal != Some(*disk);
    let mut free = (0..disks.len()).filter(is_free);
    let homes: Vec<Option<usize>> =
        assembly.members.iter().map(|m| m.or_else(|| free.next())).collect();
    let home = |slot: Slot| homes[slot.index()].expect("a disk for each slot");
    let known = |row: u64| !all && bitmap.is_some_and(|bitmap| !is_dirty(bitmap, row));
    let is_clean = assembly.resync_from.is_none() && !all;
    // A member that was away and is fresh enough lacks what the bits cover and nothing else.
    let lockless = bitmap.is_some_and(|bitmap| bitmap.bits.is_lockless());
    let needs = |slot: Slot, row: u64| match assembly.members[slot.index()] {
        _ if is_unwritten(*bitmap, row) => false,
        // Superblocks do not tell what a lockless bitmap does.
        Some(_) => (!is_clean || lockless) && !known(row),
        None => {
            let cleared = bitmap.map_or(u64::MAX, |bitmap| bitmap.superblock.events_cleared);
            let own = sb(home(slot));
            let was_whole = own.role() == Role::Active(slot) && own.recovery_offset().is_none();
            !was_whole || own.events() < cleared || !known(row)
        }
    };
    // Copies that are read last are believed last.
    let may_lag = |slot: Slot| {
        let disk = assembly.members[slot.index()];
        !matches!(geometry, Geometry::Parity(_)) && disk.is_some_and(|disk| sb(disk).write_mostly())
    };
    let mut cells: Vec<raw::Cell> = Vec::new();
    {
        let image = image(disks, superblocks, &assembly.members, holes);
        for row in 0..raw::rows(geometry) {
            let fresh = |slot, sector| image(slot, sector).filter(|_| !may_lag(slot));
            if is_unwritten(*bitmap, row) {
                continue;
            }
            let row_cells = raw::expected(geometry, row, &fresh)
                .or_else(|| raw::expected(geometry, row, &image))
                .ok_or_else(|| format!("row {row} cannot be recovered"))?;
            let is_bad = |slot, sector: Sector| {
                holes.is_in(home(slot), sb(home(slot)).data_offset().0 + sector.0)
            };
            let is_due = |cell: &raw::Cell| needs(cell.0, row) || is_bad(cell.0, cell.1);
            cells.extend(row_cells.into_iter().filter(is_due));
        }
    }
    for (slot, sector, bytes) in cells {
        let disk = home(slot);
        disks[disk].put(sb(disk).data_offset().0 + sector.0, &bytes);
    }
    write_metadata(part, disks, file, &homes);
    Ok(homes)
}

/// All members in their slots, clean, an event later.
fn write_metadata(
    part: &HealTarget<'_>,
    disks: &mut [Disk],
    file: &mut Disk,
    homes: &[Option<usize>],
) {
    let events = part.assembly.events + 2;
    let homes: Vec<usize> = homes.iter().copied().flatten().collect();
    let slots = homes.len();
    let homes: Vec<usize> = homes.into_iter().chain(part.assembly.journal).collect();
    let mut fresh: Vec<Superblock> =
        homes.iter().filter_map(|&disk| part.superblocks[disk].clone()).collect();
    // One that was away long may have the number of another that came in its place.
    for (number, sb) in (0..).zip(&mut fresh) {
        if let Superblock::V1(sb) = sb {
            sb.dev_number = number;
        }
    }
    let devices: Vec<Device> = (0..)
        .zip(&fresh)
        .map(|(slot, sb)| Device {
            number: sb.dev_number(),
            role: if usize::from(slot) < slots { Role::Active(Slot(slot)) } else { Role::Journal },
            in_sync: true,
        })
        .collect();
    // Others may not have heard of a change.
    let internal = part.bitmap.is_some_and(|bitmap| !bitmap.external);
    let freshest = part.superblocks[part.assembly.freshest].as_ref();
    let offset = freshest.and_then(Superblock::bitmap_offset).filter(|_| internal);
    let map = part.bitmap.map(|bitmap| bitmap::Superblock {
        events,
        events_cleared: events,
        ..bitmap.superblock.clone()
    });
    let component = freshest.map(Superblock::component);
    for (index, (disk, mut sb)) in homes.into_iter().zip(fresh).enumerate() {
        sb.set_events(events);
        sb.set_resync_offset(None::<Sector>);
        let tail = sb.journal_tail();
        sb.set_recovery_offset(None);
        component
            .filter(|&size| size != sb.component())
            .into_iter()
            .for_each(|size| sb.set_component(size));
        if index >= slots {
            sb.set_journal_tail(tail);
        }
        sb.set_replacement(false);
        sb.set_roles(&devices, index);
        sb.set_bitmap_offset(offset);
        // All that was bad has been written.
        sb.set_has_bad_blocks(false);
        let bad: Vec<u64> = disks[disk].bad().collect();
        bad.into_iter().for_each(|sector| disks[disk].come_back(sector));
        let mut bytes = sb.encode();
        bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
        disks[disk].put(sb.super_sector().0, &bytes);
        if let (Some(at), Some(map)) = (sb.bitmap_sector(), &map) {
            write_bitmap(&mut disks[disk], at.0, map, &healed(part, map));
        }
    }
    if let Some(map) = map.filter(|_| part.bitmap.is_some_and(|bitmap| bitmap.external)) {
        write_bitmap(file, 0, &map, &healed(part, &map));
    }
}

/// What the bitmap says when all is whole: nothing, or which chunks were ever written.
fn healed(part: &HealTarget<'_>, map: &bitmap::Superblock) -> Bits {
    let mut bits = part.bitmap.map_or_else(|| Bits::new(map, false), |bitmap| bitmap.bits.clone());
    let set: Vec<u64> = bits.iter_set(0).collect();
    set.into_iter().for_each(|bit| {
        bits.clear(bit);
    });
    bits
}
