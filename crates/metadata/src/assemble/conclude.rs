//! From verdicts to an array: what is missing, and whether it may start.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lapstrake_geometry::{Level, Sector, Slot};

use super::judge::{asked_for, freshest, judge, which_array};
use super::table::Table;
use super::{AssembleError, Assembly, Candidate, Options, Reason, Refusal, Verdict, force};
use crate::Superblock;

/// Decides which candidates make up an array, and whether it may be started.
///
/// Without `uuid` and `name` in `options` all candidates have to belong to one array. An error
/// is what makes the question void; what only forbids a start is in [`Assembly::start`].
pub fn assemble(
    candidates: &[Candidate<'_>],
    options: &Options,
) -> Result<Assembly, AssembleError> {
    let uuid = which_array(candidates, options)?;
    let is_ours = |c: &&Candidate<'_>| c.superblock.set_uuid() == uuid && asked_for(c, options);
    let (freshest, parts) = freshest(candidates.iter().filter(is_ours), options.prefer)
        .ok_or(AssembleError::Nothing { candidates: candidates.len() })?;
    let verdicts = candidates.iter().map(|candidate| match is_ours(&candidate) {
        true => judge(candidate, freshest, options),
        false => Verdict::Left(Reason::OtherArray {
            uuid: candidate.superblock.set_uuid(),
            name: candidate.superblock.name(),
        }),
    });
    let mut table = Table::new(freshest, candidates, verdicts.collect(), options)?;
    // One that could never have run by itself was not used without the others.
    let usable = parts.into_iter().filter(|part| table.survives_with(part)).collect::<Vec<_>>();
    match &usable[..] {
        [] => {}
        [part] if part.iter().any(|one| one.id == freshest.id) => {}
        [part] => {
            return assemble(candidates, &Options { prefer: Some(part[0].id), ..options.clone() });
        }
        _ => {
            let ids = |part: &Vec<&Candidate<'_>>| part.iter().map(|one| one.id).collect();
            let parts = usable.iter().map(ids).collect();
            table.refusal = Some(Refusal::Split { parts, events: freshest.superblock.events() });
        }
    }
    let (mut forced, force_helps) = raise_if_needed(&mut table, options.force);
    if table.refusal.is_none() {
        table.refusal = not_preferred(&table, options);
    }
    forced.extend(table.of_unknown_role());
    table.measure()?;
    Ok(conclude(table, forced, force_helps, options))
}

/// The user would start the other half without knowing it, and what this one has of later writes would be overwritten.
fn not_preferred(table: &Table<'_>, options: &Options) -> Option<Refusal> {
    let judged = || table.candidates.iter().zip(&table.verdicts);
    let (preferred, verdict) = judged().find(|(one, _)| Some(one.id) == options.prefer)?;
    let Verdict::Left(reason) = verdict else { return None };
    let taken = judged().filter(|(_, verdict)| matches!(verdict, Verdict::Taken { .. }));
    Some(Refusal::NotPreferred {
        id: preferred.id,
        reason: Box::new(reason.clone()),
        events: preferred.superblock.events(),
        freshest: table.freshest.id,
        freshest_events: table.freshest.superblock.events(),
        taken: taken.map(|(one, _)| one.id).collect(),
    })
}

/// Raises stale members if data is missing without them, and it helps, and it may. Gives the
/// indices of those raised, and whether it would help.
fn raise_if_needed(table: &mut Table<'_>, force: bool) -> (Vec<usize>, bool) {
    if table.enough() || table.refusal.is_some() {
        return (Vec::new(), false);
    }
    let raised = force::raise(table);
    let helps = table.enough();
    if force && helps {
        return (raised.into_iter().map(|(i, _)| i).collect(), helps);
    }
    for (i, verdict) in raised {
        table.verdicts[i] = verdict;
    }
    (Vec::new(), helps)
}

/// What the slots amount to.
struct Count {
    /// Slots with a member.
    have: u16,
    /// Slots that the freshest superblock counts upon, and empty ones whose member one of an unknown role may be.
    expected: u16,
    /// Slots without a member, or only with what was to replace it.
    empty: Vec<Slot>,
    /// Slots without a member in sync.
    missing: Vec<Slot>,
    /// Whether one of these holds data.
    lacks_data: bool,
    /// Whether nobody has anything of parity: none can be out of date.
    lacks_all_parity: bool,
    /// Whether parity is out of date where it has to stand in for data.
    is_dirty_degraded: bool,
    /// Whether mdadm thinks so, unless told to run: it asks every member instead of the freshest
    /// only, and does not see that what is under recovery may be parity.
    seems_dirty_degraded: bool,
}

impl Count {
    fn refuses(&self, options: &Options) -> bool {
        self.is_dirty_degraded || self.seems_dirty_degraded && !options.run
    }
}

fn count(table: &Table<'_>) -> Count {
    let (holders, in_sync) = (table.holders(), table.in_sync());
    let slots = |is: &dyn Fn(Slot) -> bool| -> Vec<Slot> {
        (0..table.config.raid_disks).map(Slot).filter(|&slot| is(slot)).collect()
    };
    let is_replacement = |i: usize| table.candidates[i].superblock.is_replacement();
    let empty = slots(&|slot| holders[slot.index()].is_none_or(is_replacement));
    let missing = slots(&|slot| in_sync[slot.index()].is_none());
    let is_perhaps = |verdict: &Verdict, slot: Slot| match verdict {
        Verdict::Left(Reason::UnknownRole { perhaps, .. }) => *perhaps == Some(slot),
        _ => false,
    };
    let may_be_of = |slot: Slot| {
        empty.contains(&slot) && table.verdicts.iter().any(|verdict| is_perhaps(verdict, slot))
    };
    let expected =
        slots(&|slot| table.freshest.superblock.dev_of_slot(slot).is_some() || may_be_of(slot));
    let is_clean = |i: usize| table.candidates[i].superblock.clean();
    let is_parity = |slot: &Slot| has_only_parity(table.freshest.superblock, *slot);
    let lacks_data = !missing.iter().all(is_parity);
    let nobody_is_in = slots(&|slot| holders[slot.index()].is_none());
    let parities = if table.config.level == Level::Raid6 { 2 } else { 1 };
    // A log puts parity right before it stands in for anything.
    let has_parity = table.config.level.is_parity() && !table.freshest.superblock.has_ppl();
    Count {
        have: table.config.raid_disks - empty.len() as u16,
        expected: expected.len() as u16,
        lacks_data,
        lacks_all_parity: nobody_is_in.iter().filter(|slot| is_parity(slot)).count() == parities,
        is_dirty_degraded: has_parity && lacks_data && !table.freshest.superblock.clean(),
        seems_dirty_degraded: has_parity
            && !missing.is_empty()
            && !holders.iter().flatten().all(|&i| is_clean(i)),
        empty,
        missing,
    }
}

/// Whether the member in `slot` never holds data, so that without it nothing is made of parity.
///
/// The kernel goes by the layout word, which says nothing of a raid4's parity unless the array
/// was once a raid5, and counts only who is there and recovers.
fn has_only_parity(sb: &Superblock, slot: Slot) -> bool {
    let (slot, last) = (slot.0, sb.raid_disks() - 1);
    match (sb.level(), sb.layout_md()) {
        (Some(Level::Raid4), _) | (Some(Level::Raid5), 5) => slot == last,
        (Some(Level::Raid5), 4) => slot == 0,
        (Some(Level::Raid6), 4) => slot < 2,
        (Some(Level::Raid6), 5) => slot + 1 >= last,
        (Some(Level::Raid6), 16..=19) => slot == last,
        (Some(Level::Raid6), 20) => slot == 0 || slot == last,
        _ => false,
    }
}

fn start(
    table: &Table<'_>,
    count: &Count,
    force_helps: bool,
    options: &Options,
) -> Option<Refusal> {
    let Count { have, expected, empty, missing, .. } = count;
    if let Some(refusal) = &table.refusal {
        return Some(refusal.clone());
    }
    if !table.enough() {
        let have = table.config.raid_disks - missing.len() as u16;
        let (need, missing) = (table.fewest(), missing.clone());
        return Some(Refusal::NotEnough { have, need, missing, force_helps });
    }
    if count.refuses(options) && !options.force {
        let (run_helps, lacks_data) = (!count.is_dirty_degraded, count.lacks_data);
        return Some(Refusal::DirtyDegraded { missing: missing.clone(), run_helps, lacks_data });
    }
    if table.lacks_journal() && !options.force {
        return Some(Refusal::NoJournal);
    }
    let is_welcome = options.run || options.force;
    (have < expected && !is_welcome).then(|| Refusal::NewlyDegraded {
        have: *have,
        expected: *expected,
        missing: empty.clone(),
    })
}

/// One update gives all superblocks one time. Where it was cut off events differ too.
fn older(table: &Table<'_>) -> Vec<(usize, u64)> {
    let superblock = |i: usize| table.candidates[i].superblock;
    let latest = table.freshest.superblock;
    let same = |i: &usize| {
        let sb = superblock(*i);
        sb.clean() && latest.clean() && sb.events() == latest.events()
    };
    let members: Vec<usize> = table.in_sync().into_iter().flatten().filter(same).collect();
    let time = |i: usize| superblock(i).utime().0;
    let last = members.iter().map(|&i| time(i)).max().unwrap_or(0);
    let lag = |i: usize| (table.candidates[i].id, last - time(i));
    members.into_iter().map(lag).filter(|(_, lag)| *lag > 0).collect()
}

fn conclude(
    table: Table<'_>,
    forced: Vec<usize>,
    force_helps: bool,
    options: &Options,
) -> Assembly {
    let count = count(&table);
    let start = start(&table, &count, force_helps, options).map_or(Ok(()), Err);
    let is_dirty = count.is_dirty_degraded || count.seems_dirty_degraded;
    // Parity that stands in for nothing is made right again.
    let make_clean = options.force && is_dirty && count.lacks_data;
    let has_to_write = start.is_ok() && (make_clean || !forced.is_empty());
    let rewrite = has_to_write.then(|| force::rewrite(&table, &forced, make_clean));
    let rewrite = rewrite.unwrap_or_default();
    let forced = if start.is_ok() { forced } else { Vec::new() };

    let (sb, level) = (table.freshest.superblock, table.config.level);
    let in_sync = table.in_sync();
    let has_one_copy = level == Level::Raid1 && in_sync.iter().flatten().count() == 1;
    let has_redundancy = level.has_redundancy() && !has_one_copy && !count.lacks_all_parity;
    let needs_resync = has_redundancy && !make_clean;
    let id = |i: usize| table.candidates[i].id;
    let is_behind =
        |i: &usize| table.candidates[*i].superblock.events() < sb.events() && !forced.contains(i);
    let behind = table.holders().into_iter().flatten().filter(is_behind);
    let levelled = |i: usize| (id(i), force::with_state_of(table.candidates[i].superblock, sb));
    let behind = behind.map(levelled).collect();
    let judged = || table.candidates.iter().map(|c| c.id).zip(&table.verdicts);
    // No resync will come to where one under recovery has a copy already, and what was being written there may be
    // on one of the two only.
    let copied = sb.resync_offset().filter(|_| has_one_copy).unwrap_or(Sector(u64::MAX));
    let recovering =
        table.holders().into_iter().flatten().filter_map(|i| match table.verdicts[i] {
            Verdict::Taken { slot, recovering: Some(at) } => Some((slot, id(i), at.min(copied))),
            _ => None,
        });
    let replacements = judged().filter_map(|(id, verdict)| match *verdict {
        // What was being written may be on one of the two only.
        Verdict::Replacement { slot, .. } if !sb.clean() => Some((slot, id, Some(Sector(0)))),
        Verdict::Replacement { slot, recovering } => Some((slot, id, recovering)),
        _ => None,
    });
    Assembly {
        freshest: table.freshest.id,
        verdicts: judged().map(|(id, verdict)| (id, verdict.clone())).collect(),
        members: in_sync.iter().map(|holder| holder.map(id)).collect(),
        recovering: recovering.collect(),
        replacements: replacements.collect(),
        spares: judged().filter(|(_, v)| **v == Verdict::Spare).map(|(id, _)| id).collect(),
        journal: table.journal().map(id),
        lacks_journal: table.lacks_journal(),
        resync_from: sb.resync_offset().filter(|_| needs_resync),
        events: rewrite.first().map_or(sb.events(), |(_, rewritten)| rewritten.events()),
        found_events: sb.events(),
        found_clean: sb.clean(),
        degraded: count.missing.len() as u16,
        newly_degraded: count.have < count.expected,
        lacks_data: count.lacks_data,
        older: older(&table),
        forced: forced.into_iter().map(id).collect(),
        rewrite,
        behind,
        start,
        geometry: table.geometry,
        config: table.config,
    }
}
