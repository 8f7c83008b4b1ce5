//! Blocks that are on record as bad on every member that could give them: read all the same, when the user says so. A record
//! is no proof that a block cannot be read; that nobody else has it is a reason to try.

use lapstrake_array::start::StartPlan;
use lapstrake_device::Member;
use lapstrake_geometry::{Content, Geometry, Sector, Sectors, Slot};
use lapstrake_metadata::badblocks::BadBlocks;
use std::sync::Arc;

type Plan = StartPlan<Arc<Member>>;

/// What a member has on record as bad of its data, bytes, and what of that no other member has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The member, as it was given.
    pub member: String,
    /// Bytes on record.
    pub bytes: u64,
    /// Bytes of these that no member has that is here.
    pub lost_bytes: u64,
}

/// Members with bad blocks on record.
#[must_use]
pub fn recorded(plan: &Plan) -> Vec<Recorded> {
    let members = plan.members.iter().enumerate();
    let told = |(index, member): (usize, &_)| {
        let member: &lapstrake_array::start::StartMember<Arc<Member>> = member;
        let bad = member.record.bad_blocks.as_ref().filter(|bad| !bad.is_empty())?;
        let bytes = bad.iter().map(|(_, len)| len.bytes()).sum();
        let lost_bytes = lost(plan, index).iter().map(|(_, len)| len.bytes()).sum();
        Some(Recorded { member: member.device.spec().to_string(), bytes, lost_bytes })
    };
    members.filter_map(told).collect()
}

/// Takes blocks from the records that nobody else has.
pub(crate) fn believe(plan: &mut Plan) {
    let all: Vec<_> = (0..plan.members.len()).map(|index| lost(plan, index)).collect();
    for (member, lost) in plan.members.iter_mut().zip(all) {
        let Some(bad) = &mut member.record.bad_blocks else { continue };
        lost.into_iter().for_each(|(start, len)| bad.remove(start, len));
    }
}

/// Units on record as bad on a member that no member can give, sectors from the device's start.
fn lost(plan: &Plan, index: usize) -> Vec<(Sector, Sectors)> {
    let record = &plan.members[index].record;
    let (Some(bad), Some(slot)) = (&record.bad_blocks, record.slot) else { return Vec::new() };
    let unit = Sectors(1 << bad.shift());
    let data = record.superblock.data_offset();
    let units = bad
        .iter()
        .flat_map(|(start, len)| (start.0..start.0 + len.0).step_by(unit.0 as usize).map(Sector));
    let within = units.filter(|at| *at >= data);
    let is_lost = |at: &Sector| is_lost(plan, &plan.geometry, slot, Sector(at.0 - data.0));
    within.filter(is_lost).map(|at| (at, unit)).collect()
}

/// Whether the block at this sector of a slot's data can be had from nobody.
fn is_lost(plan: &Plan, geometry: &Geometry, slot: Slot, sector: Sector) -> bool {
    if geometry.level().is_parity() {
        return !geometry.survives(|slot| has(plan, slot, sector));
    }
    match geometry.content(slot, sector) {
        Content::Data(at) => {
            !geometry.map(at).homes.iter().any(|home| has(plan, home.slot, home.sector))
        }
        Content::P(_) | Content::Q(_) | Content::Unused => false,
    }
}

/// Whether a member in sync is there that does not have this sector of its data on record as bad.
fn has(plan: &Plan, slot: Slot, sector: Sector) -> bool {
    let is_bad = |bad: &BadBlocks, data: Sector| bad.contains(data + Sectors(sector.0), Sectors(1));
    plan.members.iter().any(|member| {
        let record = &member.record;
        record.slot == Some(slot)
            && !record.superblock.is_replacement()
            && record.trusted_to > sector
            && !record
                .bad_blocks
                .as_ref()
                .is_some_and(|bad| is_bad(bad, record.superblock.data_offset()))
    })
}
