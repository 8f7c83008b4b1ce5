//! What `force` does: it raises stale members, and says which superblocks have to follow.

use alloc::{collections::BTreeSet, vec::Vec};

use lapstrake_geometry::Slot;

use super::judge::slot_by;
use super::table::Table;
use super::{Reason, Verdict, record_absent};
use crate::{Role, Superblock};

/// Takes stale members until there are enough, the freshest first; with each its contemporaries
/// too, since they left the array at once and lack the same writes. Gives the indices and the
/// verdicts that they had.
pub(super) fn raise(table: &mut Table<'_>) -> Vec<(usize, Verdict)> {
    let mut raised = Vec::new();
    while !table.enough() {
        let mut events = None;
        while let Some((i, slot)) = best(table, events) {
            events = Some(table.candidates[i].superblock.events());
            let taken = Verdict::Taken { slot, recovering: None };
            raised.push((i, core::mem::replace(&mut table.verdicts[i], taken)));
        }
        if events.is_none() {
            break;
        }
    }
    if table.enough() && !table.config.level.is_parity() {
        spare_the_needless(table, &mut raised);
    }
    raised
}

/// Lowers those without which nothing is missing, the least fresh first. A copy that is out of
/// date does harm beside one that is not; parity and data that left together fit each other.
fn spare_the_needless(table: &mut Table<'_>, raised: &mut Vec<(usize, Verdict)>) {
    for place in (0..raised.len()).rev() {
        let (i, verdict) = &mut raised[place];
        core::mem::swap(&mut table.verdicts[*i], verdict);
        if table.enough() {
            raised.remove(place);
        } else {
            let (i, verdict) = &mut raised[place];
            core::mem::swap(&mut table.verdicts[*i], verdict);
        }
    }
}

/// The freshest stale member of an empty slot, the lowest slot of equals; only of `events` if
/// they are given.
fn best(table: &Table<'_>, events: Option<u64>) -> Option<(usize, Slot)> {
    let holders = table.holders();
    let mut best: Option<(u64, usize, Slot)> = None;
    for (i, candidate) in table.candidates.iter().enumerate() {
        let sb = candidate.superblock;
        let Role::Active(own) = sb.role() else { continue };
        let Some(slot) = slot_by(table.freshest.superblock, sb, own) else { continue };
        let is_empty = holders.get(slot.index()).is_some_and(Option::is_none);
        if !is_empty || sb.recovery_offset().is_some() || table.has_rival(i) {
            continue;
        }
        if !can_be_raised(&table.verdicts[i]) || events.is_some_and(|e| e != sb.events()) {
            continue;
        }
        let is_better = best.is_none_or(|(events, _, at)| {
            sb.events() > events || sb.events() == events && slot < at
        });
        if is_better {
            best = Some((sb.events(), i, slot));
        }
    }
    best.map(|(_, i, slot)| (i, slot))
}

fn can_be_raised(verdict: &Verdict) -> bool {
    match verdict {
        // Demoted by the freshest superblock; its own says that it holds a slot.
        Verdict::Spare => true,
        Verdict::Left(reason) => matches!(
            reason,
            Reason::Stale { .. } | Reason::CallsFailed { .. } | Reason::CalledFailedBy { .. }
        ),
        Verdict::Taken { .. } | Verdict::Replacement { .. } | Verdict::Journal => false,
    }
}

/// The superblocks of all members, such that the array assembles without force: equal events,
/// one state, and one table of devices with each member in its slot. Who is missing must not come back as
/// current: it may have been used alone, or beside others than these.
///
/// Those forced come last: until one is written it is as stale as before.
pub(super) fn rewrite(
    table: &Table<'_>,
    forced: &[usize],
    make_clean: bool,
) -> Vec<(usize, Superblock)> {
    let holders = || (0..).map(Slot).zip(table.holders());
    let member = |(slot, i): (Slot, Option<usize>)| Some((i?, Role::Active(slot)));
    let mut in_order: Vec<(usize, Role)> = holders().filter_map(member).collect();
    in_order.sort_by_key(|(i, _)| forced.contains(i));
    let superblock = |i: usize| table.candidates[i].superblock;
    let mut model = table.freshest.superblock.clone();
    in_order.iter().for_each(|(i, role)| model.set_role_of(superblock(*i).dev_number(), *role));
    let members = in_order.iter().map(|(i, _)| superblock(*i));
    let superblocks = with_one_state(model, members, make_clean);
    in_order.iter().map(|(i, _)| table.candidates[*i].id).zip(superblocks).collect()
}

/// Has the model list a member as the member's own superblock does.
fn list(model: &mut Superblock, own: &Superblock) {
    let number = own.dev_number();
    model.set_role_of(number, own.role());
    // It may hold nothing of the array before.
    if let (Superblock::V090(model), Superblock::V090(own)) = (model, own) {
        model.disks[number as usize].state = own.this_disk.state;
    }
}

fn with_one_state<'a>(
    mut model: Superblock,
    members: impl Iterator<Item = &'a Superblock>,
    make_clean: bool,
) -> Vec<Superblock> {
    if make_clean {
        model.set_clean(true);
    }
    let mut superblocks: Vec<Superblock> = members.map(|sb| with_state_of(sb, &model)).collect();
    for (index, recorded) in record_absent(&superblocks.iter().collect::<Vec<_>>()) {
        superblocks[index] = recorded;
    }
    superblocks
}

/// What a start by force writes first to members of an array in the midst of a reshape, in this order, which each give an id
/// and a superblock that tells of it: superblocks with which both arrays assemble without force. `forced`: ids of those that
/// it raised. As [`super::Assembly::rewrite`], behind [`super::Assembly::behind`]. Returns nothing if it raised all.
#[must_use]
pub fn force_in_reshape(
    members: &[(usize, &Superblock)],
    forced: &BTreeSet<usize>,
    make_clean: bool,
) -> Vec<(usize, Superblock)> {
    let is_forced = |id: &usize| forced.contains(id);
    let mut in_order = members.to_vec();
    in_order.sort_by_key(|(id, _)| is_forced(id));
    let events = |member: &&(usize, &Superblock)| member.1.events();
    let freshest = members.iter().filter(|(id, _)| !is_forced(id)).max_by_key(events);
    let Some(&(_, freshest)) = freshest else { return Vec::new() };
    let is_behind =
        |(id, sb): &&(usize, &Superblock)| !is_forced(id) && sb.events() < freshest.events();
    let behind = members.iter().filter(is_behind);
    let mut writes: Vec<_> = behind.map(|&(id, sb)| (id, with_state_of(sb, freshest))).collect();
    let mut model = freshest.clone();
    let raised = in_order.iter().filter(|(id, _)| is_forced(id));
    raised.for_each(|(_, sb)| list(&mut model, sb));
    let superblocks = with_one_state(model, in_order.iter().map(|(_, sb)| *sb), make_clean);
    writes.extend(in_order.iter().map(|(id, _)| *id).zip(superblocks));
    writes
}

/// `sb` with the table and the state of `model`.
pub(super) fn with_state_of(sb: &Superblock, model: &Superblock) -> Superblock {
    let mut sb = sb.clone();
    if sb.is_taken_over_by(model) {
        sb.be_taken_over_by(model);
    }
    match (&mut sb, model) {
        (Superblock::V090(sb), Superblock::V090(model)) => {
            // All that differs between members is the place and which entry is one's own.
            let number = sb.this_disk.number as usize;
            let own = crate::v090::Disk { state: model.disks[number].state, ..sb.disks[number] };
            let (sb_start, order) = (sb.sb_start, sb.order);
            *sb = crate::v090::Superblock { this_disk: own, sb_start, order, ..model.clone() };
            sb.disks[number] = own;
        }
        (Superblock::V1(sb), Superblock::V1(model)) => {
            sb.dev_roles.clone_from(&model.dev_roles);
            (sb.events, sb.utime) = (model.events, model.utime);
            sb.resync_offset = model.resync_offset;
            // It may have missed that the array was given another size.
            (sb.size, sb.raid_disks) = (model.size, model.raid_disks);
        }
        _ => unreachable!("members of one array have one version"),
    }
    sb
}
