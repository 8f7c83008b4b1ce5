//! What changed on an array between two looks at it, in mdadm's words (mdadm(8), MONITOR MODE).
//!
//! Slots are compared, not paths: a member that has another path after a restart has not failed.

use crate::status::view::{MemberState, MemberView, SyncAction, View};
use serde::Serialize;

/// A rebuild is told each time it has come so many per cent further, as by mdadm.
const STEP_PERCENT: u64 = 20;

/// What mdadm calls that which happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was not there at the look before.
    NewArray,
    /// It is no longer served: it was stopped, or its server vanished.
    DeviceDisappeared,
    /// It lacks members, and no `Fail` told of that.
    DegradedArray,
    /// It has fewer spares than at the look before.
    SparesMissing,
    /// A member that was in sync is faulty or gone.
    Fail(String),
    /// A spare, or a member that was being rebuilt, is faulty.
    FailSpare(String),
    /// A member is in sync that was not.
    SpareActive(String),
    /// A sync action runs.
    RebuildStarted,
    /// It has come so many per cent far.
    Rebuild(u64),
    /// It runs no more: sectors that did not match.
    RebuildFinished(u64),
    /// Nothing: the program is tried.
    TestMessage,
}

/// An event of an array, as a program or a report gets it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    pub event: String,
    pub array: String,
    /// The member that it is about, or what else there is to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}

impl Event {
    pub fn of(&self, array: &str) -> Message {
        let (event, member) = match self {
            Self::NewArray => ("NewArray".into(), None),
            Self::DeviceDisappeared => ("DeviceDisappeared".into(), None),
            Self::DegradedArray => ("DegradedArray".into(), None),
            Self::SparesMissing => ("SparesMissing".into(), None),
            Self::Fail(member) => ("Fail".into(), Some(member.clone())),
            Self::FailSpare(member) => ("FailSpare".into(), Some(member.clone())),
            Self::SpareActive(member) => ("SpareActive".into(), Some(member.clone())),
            Self::RebuildStarted => ("RebuildStarted".into(), None),
            Self::Rebuild(percent) => (format!("Rebuild{percent:02}"), None),
            Self::RebuildFinished(0) => ("RebuildFinished".into(), None),
            Self::RebuildFinished(sectors) => {
                ("RebuildFinished".into(), Some(format!("mismatches found: {sectors}")))
            }
            Self::TestMessage => ("TestMessage".into(), None),
        };
        Message { event, array: array.to_owned(), member }
    }
}

/// Of an array that was not there before.
pub fn new(now: &View) -> Vec<Event> {
    let mut events = vec![Event::NewArray];
    events.extend((!now.is_whole()).then_some(Event::DegradedArray));
    events.extend(sync(None, now));
    events
}

/// Of one that was.
pub fn changes(before: &View, now: &View) -> Vec<Event> {
    // Another array by the same name.
    if before.uuid != now.uuid {
        return [vec![Event::DeviceDisappeared], new(now)].concat();
    }
    let mut events = slots(before, now);
    events.extend(failed_spares(before, now));
    let has_failed = events.iter().any(|event| matches!(event, Event::Fail(_)));
    if before.is_whole() && !now.is_whole() && !has_failed {
        events.push(Event::DegradedArray);
    }
    if now.count(&MemberState::Spare) < before.count(&MemberState::Spare) {
        events.push(Event::SparesMissing);
    }
    events.extend(sync(Some(before), now));
    events
}

/// Members that came into sync, and those that left it.
fn slots(before: &View, now: &View) -> Vec<Event> {
    let mut events = Vec::new();
    for (old, new) in before.slots().into_iter().zip(now.slots()) {
        match (old, new) {
            (Some(old), Some(new)) if old.number == new.number => {}
            (old, new) => {
                events.extend(old.map(|old| Event::Fail(old.path.clone())));
                events.extend(new.map(|new| Event::SpareActive(new.path.clone())));
            }
        }
    }
    events
}

/// Those that are faulty now, and were of no use yet.
fn failed_spares(before: &View, now: &View) -> Vec<Event> {
    let was = |member: &MemberView| {
        before.members.iter().find(|old| old.number == member.number && old.path == member.path)
    };
    let faulty = now.members.iter().filter(|member| member.state == MemberState::Faulty);
    let event = |member: &MemberView| match was(member)?.state {
        MemberState::InSync | MemberState::Faulty => None,
        MemberState::Journal => Some(Event::Fail(member.path.clone())),
        _ => Some(Event::FailSpare(member.path.clone())),
    };
    faulty.filter_map(event).collect()
}

/// What runs, and what has ended. One that began and ended since is told of by what it came to, if that shows.
fn sync(before: Option<&View>, now: &View) -> Vec<Event> {
    let was = before.and_then(|before| before.sync.as_ref());
    let ended = || Event::RebuildFinished(mismatches(now));
    let Some(runs) = &now.sync else {
        return if was.is_some() || has_ended_since(before, now) { vec![ended()] } else { vec![] };
    };
    let step = |per_mille: u64| per_mille / 10 / STEP_PERCENT * STEP_PERCENT;
    let mut events = Vec::new();
    let mut told = was.map_or(0, |was| step(was.per_mille()));
    match was {
        Some(was) if was.action == runs.action && was.done_bytes <= runs.done_bytes => {}
        _ => {
            events.extend(was.map(|_| ended()));
            events.push(Event::RebuildStarted);
            told = 0;
        }
    }
    let reached = step(runs.per_mille());
    events.extend((reached > told && reached < 100).then_some(Event::Rebuild(reached)));
    events
}

/// Whether something ended between two looks that none of them saw running: only its result tells of it.
fn has_ended_since(before: Option<&View>, now: &View) -> bool {
    let last = |view: &View| {
        view.last_sync.as_ref().map(|last| (last.action.clone(), last.result.clone()))
    };
    before.is_some_and(|before| {
        let recovered = slots(before, now).iter().any(|one| matches!(one, Event::SpareActive(_)));
        now.last_sync.is_some() && (recovered || last(before) != last(now))
    })
}

/// Sectors that a check or a repair found to differ.
fn mismatches(now: &View) -> u64 {
    let counts = now
        .last_sync
        .as_ref()
        .is_some_and(|last| matches!(last.action, SyncAction::Check | SyncAction::Repair));
    if counts { now.mismatch_sectors } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::view::ArrayState;
    use crate::status::view::tests::{raid5, sync as running};
    use serde_json::{Value, json};

    /// A RAID5 of three and a spare whose members are in these states.
    fn members(states: [&str; 4], changes: Value) -> View {
        let mut view = raid5(changes);
        for (member, state) in view.members.iter_mut().zip(states) {
            member.state = serde_json::from_value(json!(state)).unwrap();
            let is_out = matches!(member.state, MemberState::Spare | MemberState::Faulty);
            member.slot = member.slot.filter(|_| !is_out);
        }
        if !states[..3].iter().all(|state| *state == "in_sync") {
            view.state.push(ArrayState::Degraded);
        }
        view
    }

    const WHOLE: [&str; 4] = ["in_sync", "in_sync", "in_sync", "spare"];

    fn told(events: &[Event]) -> Vec<String> {
        let line = |event: &Event| {
            let Message { event, member, .. } = event.of("data");
            member.map_or(event.clone(), |member| format!("{event} {member}"))
        };
        events.iter().map(line).collect()
    }

    #[test]
    fn what_stayed_is_not_told() {
        let view = members(WHOLE, json!({}));
        assert_eq!(changes(&view, &view), []);
        let mut moved = view.clone();
        moved.members.iter_mut().for_each(|member| member.path.insert(0, 'x'));
        assert_eq!(changes(&view, &moved), [], "a member's path is not its name");
    }

    #[test]
    fn a_new_array_says_how_it_is() {
        assert_eq!(told(&new(&members(WHOLE, json!({})))), ["NewArray"]);
        let degraded = members(["in_sync", "faulty", "in_sync", "spare"], json!({}));
        assert_eq!(told(&new(&degraded)), ["NewArray", "DegradedArray"]);
        let mut other = members(WHOLE, json!({}));
        other.uuid = "0:0:0:1".into();
        let events = changes(&members(WHOLE, json!({})), &other);
        assert_eq!(told(&events), ["DeviceDisappeared", "NewArray"]);
    }

    #[test]
    fn a_failed_member_is_told_and_not_that_its_array_is_degraded_by_it() {
        let whole = members(WHOLE, json!({}));
        let path = whole.members[1].path.clone();
        let spare = whole.members[3].path.clone();
        let failed = members(["in_sync", "faulty", "in_sync", "spare"], json!({}));
        assert_eq!(told(&changes(&whole, &failed)), [format!("Fail {path}")]);
        let gone = members(["in_sync", "in_sync", "in_sync", "faulty"], json!({}));
        let events = told(&changes(&whole, &gone));
        assert_eq!(events, [format!("FailSpare {spare}"), "SparesMissing".into()]);
        assert_eq!(told(&changes(&failed, &whole)), [format!("SpareActive {path}")]);
    }

    #[test]
    fn a_rebuild_is_told_from_its_start_over_each_step_to_its_end() {
        let at = |percent: u64| {
            let mut sync = running("recovery", false);
            sync["done_bytes"] = json!(64512 * 1024 * percent / 100);
            members(WHOLE, json!({ "sync": sync }))
        };
        let idle = members(WHOLE, json!({ "last_sync": null }));
        assert_eq!(told(&changes(&idle, &at(1))), ["RebuildStarted"]);
        assert_eq!(told(&changes(&idle, &at(47))), ["RebuildStarted", "Rebuild40"]);
        assert_eq!(told(&changes(&at(21), &at(39))), [""; 0]);
        assert_eq!(told(&changes(&at(21), &at(85))), ["Rebuild80"]);
        assert_eq!(told(&changes(&at(85), &at(5))), ["RebuildFinished", "RebuildStarted"]);
        assert_eq!(told(&changes(&at(85), &idle)), ["RebuildFinished"]);
        let checked = json!({
            "last_sync": { "action": "check", "result": "done" }, "mismatch_sectors": 24,
        });
        let events = changes(&idle, &members(WHOLE, checked));
        assert_eq!(told(&events), ["RebuildFinished mismatches found: 24"], "between two looks");
    }
}
