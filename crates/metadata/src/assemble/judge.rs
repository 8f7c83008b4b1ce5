//! What one candidate is worth, beside the freshest of its array.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use lapstrake_geometry::{Level, Slot};

use super::{AssembleError, Candidate, FoundArray, Options, Reason, Verdict};
use crate::{Role, Superblock};

/// How many events a member may be behind.
const EVENT_MARGIN: u64 = 1;

/// Whether the user's words fit this candidate.
pub(super) fn asked_for(candidate: &Candidate<'_>, options: &Options) -> bool {
    let sb = candidate.superblock;
    options.uuid.is_none_or(|uuid| uuid == sb.set_uuid())
        && options.name.as_ref().is_none_or(|wanted| name_fits(&sb.name(), wanted))
}

/// Whether an array of this name is meant: its home host may be left out.
pub(crate) fn name_fits(name: &str, wanted: &str) -> bool {
    name == wanted || name.split_once(':').is_some_and(|(_, short)| short == wanted)
}

/// The one array that is meant.
pub(super) fn which_array(
    candidates: &[Candidate<'_>],
    options: &Options,
) -> Result<[u8; 16], AssembleError> {
    let mut arrays: Vec<FoundArray> = Vec::new();
    for candidate in candidates.iter().filter(|c| asked_for(c, options)) {
        let uuid = candidate.superblock.set_uuid();
        match arrays.iter_mut().find(|known| known.uuid == uuid) {
            Some(known) => known.ids.push(candidate.id),
            None => {
                let name = candidate.superblock.name();
                arrays.push(FoundArray { uuid, name, ids: vec![candidate.id] });
            }
        }
    }
    match &arrays[..] {
        [] => Err(AssembleError::Nothing { candidates: candidates.len() }),
        [one] => Ok(one.uuid),
        _ => Err(AssembleError::SeveralArrays { arrays }),
    }
}

/// The one of most events that holds a slot and is whole, the first of equals, but one that another of
/// them calls failed after that one. If none holds a slot, of all. If each is called failed by an equal, the preferred
/// one, or else any, with the parts that they make up.
pub(super) fn freshest<'a, 'b>(
    ours: impl Iterator<Item = &'a Candidate<'b>> + Clone,
    prefer: Option<usize>,
) -> Option<(&'a Candidate<'b>, Vec<Vec<&'a Candidate<'b>>>)> {
    let votes = |c: &&Candidate<'_>| {
        matches!(c.superblock.role(), Role::Active(_)) && !c.superblock.is_replacement()
    };
    let first_of_most = |best: Option<&'a Candidate<'b>>, c: &'a Candidate<'b>| match best {
        Some(best) if best.superblock.events() >= c.superblock.events() => Some(best),
        _ => Some(c),
    };
    let Some(most) = ours.clone().filter(votes).fold(None, first_of_most) else {
        return ours.fold(None, first_of_most).map(|most| (most, Vec::new()));
    };
    // One under recovery may be new, and the others not know it yet.
    let is_whole = |c: &&Candidate<'_>| {
        let events = c.superblock.events().saturating_add(EVENT_MARGIN);
        c.superblock.recovery_offset().is_none() && events >= most.superblock.events()
    };
    let whole = ours.clone().filter(votes).filter(is_whole).fold(None, first_of_most);
    let most = whole.unwrap_or(most);
    let rank =
        |c: &Candidate<'_>| (c.superblock.events(), c.superblock.recovery_offset().is_none());
    let equals = ours.filter(votes).filter(|c| rank(c) == rank(most));
    let is_called_failed = |c: &&Candidate<'_>| match c.superblock.role() {
        Role::Active(slot) => {
            equals.clone().any(|e| calls_failed(e.superblock, c.superblock, slot))
        }
        _ => false,
    };
    if let Some(whole) = equals.clone().find(|c| !is_called_failed(c)) {
        return Some((whole, Vec::new()));
    }
    if let Some(preferred) = equals.clone().find(|c| Some(c.id) == prefer) {
        return Some((preferred, Vec::new()));
    }
    Some((most, parts(equals)))
}

/// Members that call none of their part failed, by parts.
fn parts<'a, 'b: 'a>(
    equals: impl Iterator<Item = &'a Candidate<'b>>,
) -> Vec<Vec<&'a Candidate<'b>>> {
    let mut parts: Vec<Vec<&Candidate<'_>>> = Vec::new();
    let calls = |a: &Candidate<'_>, b: &Candidate<'_>| match b.superblock.role() {
        Role::Active(slot) => calls_failed(a.superblock, b.superblock, slot),
        _ => false,
    };
    for one in equals {
        let agrees = |part: &&mut Vec<&Candidate<'_>>| {
            part.iter().all(|other| !calls(one, other) && !calls(other, one))
        };
        match parts.iter_mut().find(agrees) {
            Some(part) => part.push(one),
            None => parts.push(vec![one]),
        }
    }
    parts
}

/// Whether a superblock does not have another one, which says that it holds `slot`, there.
fn calls_failed(sb: &Superblock, other: &Superblock, slot: Slot) -> bool {
    sb.role_of(other.dev_number()) != Role::Active(slot)
}

/// The verdict on a candidate of the freshest one's array, its rivals not considered.
pub(super) fn judge(
    candidate: &Candidate<'_>,
    freshest: &Candidate<'_>,
    options: &Options,
) -> Verdict {
    let (sb, fresh) = (candidate.superblock, freshest.superblock);
    if let Some(reason) = unfit(sb, fresh, options) {
        return Verdict::Left(reason);
    }
    if let Some(error) = options.unusable_log(candidate.id) {
        return Verdict::Left(Reason::BadBlockLog(error.clone()));
    }
    match sb.role() {
        Role::Active(_) if candidate.id == freshest.id => in_slot(sb, sb.role()),
        Role::Active(slot) if sb.is_replacement() => judge_replacement(candidate, slot, freshest),
        Role::Active(slot) => judge_member(candidate, slot, freshest),
        // Nor by the freshest's table, where the kernel looks: were it a member there, its own
        // superblock would not yet say how far its recovery has come.
        Role::Spare => match slot_in_linear(sb, fresh) {
            Some(slot) => Verdict::Taken { slot, recovering: None },
            None => Verdict::Spare,
        },
        Role::Faulty => Verdict::Left(Reason::Faulty),
        Role::Journal => judge_journal(sb, fresh),
        role @ Role::Unknown(_) => {
            judge_unknown(sb, role, options.forced_role(candidate.id), fresh)
        }
    }
}

/// The verdict on one whose role md does not know; the user may say whose place it is.
fn judge_unknown(sb: &Superblock, role: Role, forced: Option<Slot>, fresh: &Superblock) -> Verdict {
    let (events, freshest, raid_disks) = (sb.events(), fresh.events(), fresh.raid_disks());
    match forced {
        None => Verdict::Left(Reason::UnknownRole { role, perhaps: role.perhaps(raid_disks) }),
        Some(slot) if slot.0 >= raid_disks => {
            Verdict::Left(Reason::NoSuchSlot { slot, raid_disks })
        }
        Some(_) if events.saturating_add(EVENT_MARGIN) < freshest => {
            Verdict::Left(Reason::Stale { events, freshest })
        }
        Some(slot) => Verdict::Taken { slot, recovering: sb.recovery_offset() },
    }
}

fn judge_journal(sb: &Superblock, fresh: &Superblock) -> Verdict {
    let (events, freshest) = (sb.events(), fresh.events());
    if !fresh.has_journal() {
        Verdict::Left(Reason::NoJournalWanted)
    } else if events.saturating_add(EVENT_MARGIN) < freshest {
        Verdict::Left(Reason::Stale { events, freshest })
    } else {
        Verdict::Journal
    }
}

fn in_slot(sb: &Superblock, role: Role) -> Verdict {
    match role {
        Role::Active(slot) => Verdict::Taken { slot, recovering: sb.recovery_offset() },
        _ => Verdict::Spare,
    }
}

/// Why a superblock cannot be of use in any role.
fn unfit(sb: &Superblock, fresh: &Superblock, options: &Options) -> Option<Reason> {
    if let Some(disagreement) = disagreement(sb, fresh) {
        return Some(disagreement);
    }
    if let Some(what) = options.unsupported(sb) {
        return Some(Reason::Unsupported(what));
    }
    let (found, needed) = (sb.data_size(), fresh.component());
    (found < needed && sb.role() != Role::Journal).then_some(Reason::TooSmall { found, needed })
}

/// A field's name, and how to show its value.
type Field = (&'static str, fn(&Superblock) -> String);

/// The fields that the kernel and mdadm hold against each other.
fn disagreement(sb: &Superblock, fresh: &Superblock) -> Option<Reason> {
    let fields: [Field; 7] = [
        ("metadata version", |sb| sb.version().to_string()),
        ("level", |sb| sb.level().map_or(sb.level_md().to_string(), |level| level.to_string())),
        ("layout", |sb| format!("{:#x}", sb.layout_md())),
        ("chunk size", |sb| sb.chunk().to_string()),
        ("raid_disks", |sb| sb.raid_disks().to_string()),
        ("component size", |sb| sb.component().to_string()),
        ("creation time", |sb| {
            let (secs, micros) = sb.ctime();
            format!("{secs}.{micros:06}")
        }),
    ];
    // A cut while the array grew: the superblocks of some members say so, and the others are one event behind. Nothing was
    // written beyond the old size, and no slot has been given that only the freshest knows.
    let is_grown = sb.events().checked_add(1) == Some(fresh.events());
    // Or while it was taken over by another level, which no write has gone by before all knew.
    let is_taken_over = is_taken_over(sb, fresh);
    let may_differ = |field| match field {
        "component size" | "raid_disks" => is_grown,
        "level" | "layout" | "chunk size" => is_taken_over,
        _ => false,
    };
    let fields = fields.into_iter().filter(|(field, _)| !may_differ(*field));
    fields.into_iter().find_map(|(field, value)| {
        let (found, expected) = (value(sb), value(fresh));
        (found != expected).then_some(Reason::Disagrees { field, found, expected })
    })
}

/// The slot by the freshest's level of who has this one by its own words, which may be of the level before; none if it is not
/// needed any more.
pub(super) fn slot_by(fresh: &Superblock, sb: &Superblock, slot: Slot) -> Option<Slot> {
    sb.level()?.slot_when_taken_over(fresh.level()?, slot)
}

/// Whether the freshest says that the array has another level, which this one has just missed.
fn is_taken_over(sb: &Superblock, fresh: &Superblock) -> bool {
    sb.events().checked_add(1) == Some(fresh.events()) && sb.is_taken_over_by(fresh)
}

/// Whether who is in this slot by the freshest's word is a member by this one's, too, or came to a linear array with the slot.
fn is_known_or_new(sb: &Superblock, fresh: &Superblock, slot: Slot) -> bool {
    is_new_in_linear(sb, fresh, slot) || matches!(sb.role_of(fresh.dev_number()), Role::Active(_))
}

fn is_new_in_linear(sb: &Superblock, fresh: &Superblock, slot: Slot) -> bool {
    fresh.level() == Some(Level::Linear) && slot.0 >= sb.raid_disks()
}

/// The slot that has come to a linear array for what is a spare by its own words, which has missed that.
fn slot_in_linear(sb: &Superblock, fresh: &Superblock) -> Option<Slot> {
    match fresh.role_of(sb.dev_number()) {
        Role::Active(slot) if is_taken_over(sb, fresh) && is_new_in_linear(sb, fresh, slot) => {
            Some(slot)
        }
        _ => None,
    }
}

/// The verdict on one that by its own words holds `slot`.
fn judge_member(candidate: &Candidate<'_>, slot: Slot, freshest: &Candidate<'_>) -> Verdict {
    let (sb, fresh) = (candidate.superblock, freshest.superblock);
    // 0.90 does not list who is being recovered, until the event by which that is done.
    let has_recovered = || {
        matches!(sb, Superblock::V090(_))
            && sb.events() < fresh.events()
            && fresh.role_of(sb.dev_number()) == Role::Active(slot)
    };
    let is_taken_over = is_taken_over(sb, fresh);
    if let Role::Active(slot) = fresh.role()
        && sb.dev_of_slot(slot).is_none()
        && !(is_taken_over && is_known_or_new(sb, fresh, slot))
        && !has_recovered()
    {
        return Verdict::Left(Reason::CallsFailed { whom: freshest.id, slot });
    }
    if sb.events().saturating_add(EVENT_MARGIN) < fresh.events() {
        return Verdict::Left(Reason::Stale { events: sb.events(), freshest: fresh.events() });
    }
    let (by, dev_number) = (freshest.id, sb.dev_number());
    if sb.events() >= fresh.events() {
        return match sb.recovery_offset() {
            _ if !calls_failed(fresh, sb, slot) => in_slot(sb, sb.role()),
            None => Verdict::Left(Reason::CalledFailedBy { by }),
            // It is new to the freshest, and holds nothing yet.
            Some(_) => Verdict::Spare,
        };
    }
    if dev_number >= fresh.table_len() {
        return Verdict::Left(Reason::Unlisted { by, dev_number });
    }
    match fresh.role_of(dev_number) {
        role @ Role::Active(at) if Some(at) == slot_by(fresh, sb, slot) => in_slot(sb, role),
        Role::Spare => Verdict::Spare,
        _ => Verdict::Left(Reason::CalledFailedBy { by }),
    }
}

/// The verdict on one that by its own words is to take the place of `slot`'s member. What the freshest does
/// not know of yet holds nothing.
fn judge_replacement(candidate: &Candidate<'_>, slot: Slot, freshest: &Candidate<'_>) -> Verdict {
    let (sb, fresh) = (candidate.superblock, freshest.superblock);
    if sb.events().saturating_add(EVENT_MARGIN) < fresh.events() {
        return Verdict::Left(Reason::Stale { events: sb.events(), freshest: fresh.events() });
    }
    match fresh.role_of(sb.dev_number()) {
        Role::Active(at) if at == slot => {
            Verdict::Replacement { slot, recovering: sb.recovery_offset() }
        }
        Role::Spare => Verdict::Spare,
        _ => Verdict::Left(Reason::CalledFailedBy { by: freshest.id }),
    }
}
