//! What is said about a decision.
//!
//! Values hold the caller's indices; `describe` takes a function from an index to a name, such
//! as a path. `Display` says "device 3".

use core::fmt;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use crate::uuid_text;
use lapstrake_geometry::{GeometryError, Sector, Slot};

use super::judge::name_fits;
use super::{AssembleError, FoundArray, Reason, Refusal, Verdict};

/// From a candidate's id to what it is called.
type Name<'a> = &'a dyn Fn(usize) -> String;

fn device(id: usize) -> String {
    format!("device {id}")
}

/// "slot 1" or "slots 1, 2 and 5".
fn slots_text(slots: &[Slot]) -> String {
    let runs = slots.chunk_by(|a, b| a.0 + 1 == b.0);
    let words = runs.flat_map(|run| match run {
        [first, _, _, .., last] => vec![format!("{} to {}", first.0, last.0)],
        few => few.iter().map(|slot| slot.0.to_string()).collect(),
    });
    let numbers: Vec<_> = words.collect();
    match numbers.split_last() {
        Some((last, [])) if slots.len() > 1 => format!("slots {last}"),
        Some((last, [])) => format!("slot {last}"),
        Some((last, first)) => format!("slots {} and {last}", first.join(", ")),
        None => "no slot".to_string(),
    }
}

/// `UUID "name"`, or the UUID of an array without a name.
fn array_text(uuid: [u8; 16], name: &str) -> String {
    let uuid = uuid_text(uuid);
    if name.is_empty() { uuid } else { format!("{uuid} \"{name}\"") }
}

fn members(count: u16) -> String {
    if count == 1 { "1 member".to_string() } else { format!("{count} members") }
}

impl Verdict {
    /// One clause that says it, such as "taken for slot 2".
    pub fn describe(&self, name: Name) -> String {
        match self {
            Self::Taken { slot, recovering: None } => format!("taken for {slot}"),
            Self::Taken { slot, recovering: Some(Sector(at)) } => {
                format!("taken for {slot}, under recovery: done up to sector {at}")
            }
            Self::Replacement { slot, recovering: None } => {
                format!("taken as the replacement for {slot}, complete")
            }
            Self::Replacement { slot, recovering: Some(Sector(at)) } => {
                format!("taken as the replacement for {slot}: done up to sector {at}")
            }
            Self::Spare => "taken as a spare".to_string(),
            Self::Journal => "taken as the journal".to_string(),
            Self::Left(reason) => format!("left: {}", reason.describe(name)),
        }
    }
}

/// "m0 and m1".
fn names_text(ids: &[usize], name: Name) -> String {
    ids.iter().map(|&id| name(id)).collect::<Vec<_>>().join(" and ")
}

impl Reason {
    /// Whether other members, once they are left out, are no reason any more.
    fn is_of_other_half(&self) -> bool {
        matches!(
            self,
            Self::Stale { .. }
                | Self::CallsFailed { .. }
                | Self::CalledFailedBy { .. }
                | Self::Unlisted { .. }
                | Self::SlotTaken { .. }
                | Self::NumberTaken { .. }
        )
    }

    /// One clause that says it.
    pub fn describe(&self, name: Name) -> String {
        match self {
            Self::OtherArray { uuid, name } => {
                format!("it belongs to another array, {}", array_text(*uuid, name))
            }
            Self::Stale { events, freshest } => format!(
                "it is out of date: it has seen {events} events, the freshest member {freshest}"
            ),
            Self::CallsFailed { whom, slot } => format!(
                "it reports {} in {slot}, the freshest member, as failed: \
                 it belongs to the other part of an array that was split",
                name(*whom)
            ),
            Self::CalledFailedBy { by } => {
                format!("{}, as fresh or fresher, calls it failed", name(*by))
            }
            Self::Unlisted { by, dev_number } => format!(
                "{} has seen one event more, and knows no device number {dev_number}",
                name(*by)
            ),
            Self::DuplicateOf { id } => {
                format!("it is the same member as {}, or a copy", name(*id))
            }
            Self::SlotTaken { slot, by } => format!("{} holds {slot}", name(*by)),
            Self::NumberTaken { dev_number, by } => {
                format!("{} has the same device number, {dev_number}", name(*by))
            }
            Self::JournalTaken { by } => format!("{} is the array's journal", name(*by)),
            Self::NoJournalWanted => "it is a journal, but the array has none".to_string(),
            Self::Faulty => "it failed, as its own superblock says".to_string(),
            Self::Disagrees { field, found, expected } => {
                format!("its {field} is {found}, the freshest member's {expected}")
            }
            Self::TooSmall { found, needed } => {
                format!("it has room for {found}, the array uses {needed} of each member")
            }
            Self::UnknownRole { role, perhaps } => {
                let slot =
                    perhaps.map_or_else(String::new, |slot| format!(" (perhaps slot {})", slot.0));
                format!(
                    "its superblock gives it the {role}{slot}, which md does not write; it may hold a member's data, so \
                     it is neither read nor written; --force-role DEVICE=SLOT takes it for that slot's member"
                )
            }
            Self::NoSuchSlot { slot, raid_disks } => {
                format!(
                    "it was to be taken for {slot}, but the array has {raid_disks} slots, from 0"
                )
            }
            Self::BadBlockLog(error) => format!(
                "its bad-block log cannot be used: {error}; it would be written without knowing what of it is bad, so \
                 nothing was written to it; --read-only and --overlay read it, `lapstrake serve --update force-no-bbl` \
                 does away with the log"
            ),
            Self::Unsupported(what) => what.describe(),
        }
    }
}

impl Refusal {
    /// A sentence that says it, and what to do next.
    pub fn describe(&self, name: Name) -> String {
        match self {
            Self::NotEnough { have, need, missing, force_helps } => {
                let there = match have {
                    0 => "no member is".to_string(),
                    1 => "1 member is".to_string(),
                    _ => format!("{have} members are"),
                };
                let what = match missing.len() {
                    _ if have >= need => format!(
                        "{there} in sync, which could do, but {}, which are lacking, hold every copy \
                         of some blocks",
                        slots_text(missing)
                    ),
                    1 => format!(
                        "{there} in sync, at least {need} are needed; {} is lacking",
                        slots_text(missing)
                    ),
                    _ => format!(
                        "{there} in sync, at least {need} are needed; {} are lacking",
                        slots_text(missing)
                    ),
                };
                if *force_helps {
                    format!(
                        "{what}. Add the missing members, or use --force to take the best of \
                         the out-of-date ones: what was written since they left may be lost"
                    )
                } else {
                    format!("{what}. Add the missing members")
                }
            }
            Self::DirtyDegraded { missing, lacks_data: false, .. } => format!(
                "the array was not stopped cleanly, or its resync had not ended, and no member of {} is \
                 whole; nothing but parity belongs there, so all data is at hand. Use --degraded to start",
                slots_text(missing)
            ),
            Self::DirtyDegraded { missing, run_helps: true, .. } => format!(
                "not every member was stopped cleanly, and the array lacks {}, but the freshest \
                 member and the parity at hand suffice. Use --degraded to start",
                slots_text(missing)
            ),
            Self::DirtyDegraded { missing, run_helps: false, .. } => format!(
                "the array was not stopped cleanly, or its resync had not ended, and no member of {} is \
                 whole: parity that may be out of date cannot stand in for data. Add members that were \
                 whole, or use --force to take the parity as it is: data may be wrong in stripes that were \
                 being written, or that the resync had not come to",
                slots_text(missing)
            ),
            Self::NewlyDegraded { have, expected, missing } => format!(
                "{} found of {expected} that were there when the array was last in use; {} \
                 empty. Add the missing ones, or use --degraded to start without",
                match have {
                    1 => "1 member is".to_string(),
                    _ => format!("{} are", members(*have)),
                },
                match missing.len() {
                    1 => format!("{} is", slots_text(missing)),
                    _ => format!("{} are", slots_text(missing)),
                }
            ),
            Self::NoJournal => {
                "the array's journal is missing or out of date: it may hold writes that \
                 the members lack. Add it. If it is lost, --force starts the array without it, only for \
                 reading; `lapstrake serve --force --without-journal` starts it for writing, and gives \
                 the journal and what only it holds up for good"
                    .to_string()
            }
            Self::Split { parts, events } => {
                let each: Vec<_> = parts.iter().map(|ids| names_text(ids, name)).collect();
                format!(
                    "the array was split, and its parts were used without each other: {}, which call each other failed \
                     and have seen as many events, {events}. What was written since is on one part only. Read each, by \
                     giving only its members, then use --prefer with a member of the one to go on with: the others are \
                     out of date then",
                    each.join(" against ")
                )
            }
            Self::NotPreferred { id, reason, events, freshest, freshest_events, taken } => {
                let preferred = name(*id);
                let next = match reason.is_of_other_half() {
                    true => format!(
                        "to go on with the half of {preferred}, leave out the members of the other, {}: what was written \
                         to them since is lost then",
                        names_text(taken, name)
                    ),
                    false => "prefer a member that is taken, or leave --prefer out".to_string(),
                };
                format!(
                    "{preferred}, which --prefer names, is not taken: {}. It has seen {events} events, {}, the freshest, \
                     {freshest_events}; --prefer decides only between halves that have seen as many. Nothing was \
                     written; {next}",
                    reason.describe(name),
                    name(*freshest)
                )
            }
            Self::Ambiguous { slot, ids: [first, second] } => format!(
                "{} and {} both claim {slot}, and are equally fresh. Leave one of them out",
                name(*first),
                name(*second)
            ),
        }
    }
}

impl AssembleError {
    /// A sentence that says it, and what to do next.
    pub fn describe(&self, name: Name) -> String {
        match self {
            Self::Nothing { candidates: 0 } => "no device holds an md superblock".to_string(),
            Self::Nothing { candidates } => {
                format!("none of {candidates} devices belongs to the array asked for")
            }
            Self::SeveralArrays { arrays } => {
                let each = arrays.iter().map(|array| {
                    let names: Vec<_> = array.ids.iter().map(|&id| name(id)).collect();
                    format!("{} ({})", array_text(array.uuid, &array.name), names.join(", "))
                });
                let fitting =
                    |wanted: &str| arrays.iter().filter(|of| name_fits(&of.name, wanted)).count();
                let names_tell = arrays
                    .iter()
                    .all(|FoundArray { name, .. }| !name.is_empty() && fitting(name) == 1);
                let by_name = if names_tell { " or --set-name" } else { "" };
                format!(
                    "members of {} arrays: {}. Choose one with --uuid{by_name}, or give only its members",
                    arrays.len(),
                    each.collect::<Vec<_>>().join("; ")
                )
            }
            Self::Unsupported { id, what } => format!("{}: {}", name(*id), what.describe()),
            Self::Geometry { id, error } => {
                let next = match error {
                    GeometryError::AmbiguousRaid0 { .. } => {
                        "; --raid0-layout original or alternate has it taken for one of them, without a write"
                    }
                    _ => "",
                };
                format!("the array as {} describes it: {error}{next}", name(*id))
            }
        }
    }
}

macro_rules! display {
    ($($type:ty)*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.describe(&device))
            }
        }
    )*};
}

display! { Verdict Reason Refusal AssembleError }

impl core::error::Error for Refusal {}

impl core::error::Error for AssembleError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_slots_in_a_row_are_a_range() {
        let text = |slots: &[u16]| slots_text(&slots.iter().copied().map(Slot).collect::<Vec<_>>());
        assert_eq!(text(&[2]), "slot 2");
        assert_eq!(text(&[1, 2, 3]), "slots 1, 2 and 3");
        assert_eq!(text(&[1, 2, 3, 4]), "slots 1 to 4");
        assert_eq!(text(&[0, 2, 3, 4, 5, 7]), "slots 0, 2 to 5 and 7");
    }
}
