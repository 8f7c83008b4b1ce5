//! `lapstrake grow --dry-run`: what the server says of each step, and how long that takes.

use crate::exit::{Exit, Failure, Outcome};
use crate::members;
use crate::target::Target;
use lapstrake::control::{
    BitmapFate, Detail, MemberTraffic, Planned, PlannedMove, PlannedStep, Request, StepAction,
};
use lapstrake_device::MemberSpec;
use serde_json::{Value, json};

/// How fast members are taken to be.
#[derive(Clone, Debug)]
pub enum Pace {
    /// So many bytes a second, reading and writing together.
    Rate(u64),
    /// Nothing was said.
    Unknown,
}

/// How long a step takes, if that can be told.
type Seconds = Option<f64>;

/// The plan, if nothing stands in the way, and the new members are fit for it.
pub fn check(
    target: &Target,
    request: Request,
    members: &[MemberSpec],
    force: bool,
) -> Result<Planned, Failure> {
    let planned = ask(target, request, members, force)?;
    match &planned.obstacle {
        None => Ok(planned),
        Some(obstacle) => Err(Failure::new(format!("{}: {obstacle}", target.name))),
    }
}

/// After which step a member that fails may take data with it, if none that does so now, and in words for how long.
pub fn lost_redundancy(planned: &Planned) -> Option<(usize, &'static str)> {
    let steps = &planned.steps;
    let bare = steps.iter().position(|step| step.without_redundancy)?;
    let is_regained = steps[bare..].iter().any(|step| !step.without_redundancy);
    let words = match is_regained {
        true => {
            "from then on, until a later step has made redundancy, a member that fails may take data with it"
        }
        false => "from then on a member that fails may take data with it",
    };
    Some((bare, words)).filter(|_| !planned.without_redundancy)
}

pub fn ask(
    target: &Target,
    request: Request,
    members: &[MemberSpec],
    force: bool,
) -> Result<Planned, Failure> {
    let members: Result<Vec<String>, Failure> = members.iter().map(members::absolute).collect();
    Ok(target.ask(&Request::Plan { request: Box::new(request), members: members?, force })?)
}

pub fn run(
    target: &Target,
    request: Request,
    members: &[MemberSpec],
    force: bool,
    pace: &Pace,
) -> Outcome {
    let before = target.detail(None)?;
    let planned = ask(target, request, members, force)?;
    let limit = before.sync_speed_max_kib * 1024;
    let times: Vec<Seconds> = planned.steps.iter().map(|step| seconds(step, pace, limit)).collect();
    match target.json {
        true => outln!("{:#}", record(&target.name, &planned, &times, pace, limit)),
        false => tell(&before, &planned, &times, pace, limit),
    }
    Ok(if planned.obstacle.is_some() { Exit::Failed } else { Exit::Done })
}

/// Of the member that has most to do, and no faster than the server lets it go.
fn seconds(step: &PlannedStep, pace: &Pace, limit: u64) -> Seconds {
    if step.members.is_empty() {
        return Some(0.0);
    }
    let moved = |of: &MemberTraffic| of.read_bytes + of.written_bytes;
    let most = step.members.iter().map(moved).max().unwrap_or(0) as f64;
    let held = (limit > 0).then(|| step.counted_bytes as f64 / limit as f64);
    match pace {
        Pace::Rate(rate) => Some((most / *rate as f64).max(held.unwrap_or(0.0))),
        Pace::Unknown => held,
    }
}

/// From what the times follow.
fn ground(pace: &Pace, limit: u64) -> String {
    let limit = format!("sync_speed_max, {} KiB a second", limit >> 10);
    match pace {
        Pace::Rate(rate) => {
            let rate = format!(
                "members that read and write {} KiB a second together (--rate)",
                rate >> 10
            );
            if limit == "sync_speed_max, 0 KiB a second" {
                rate
            } else {
                format!("{rate}, and {limit}")
            }
        }
        Pace::Unknown => limit,
    }
}

fn record(name: &str, planned: &Planned, times: &[Seconds], pace: &Pace, limit: u64) -> Value {
    let total: Option<f64> = times.iter().copied().sum();
    let is_known = !matches!(pace, Pace::Unknown) || limit > 0;
    json!({
        "name": name,
        "changed": false,
        "steps": planned.steps,
        "obstacle": planned.obstacle,
        "without_redundancy": planned.without_redundancy,
        "seconds": times,
        "seconds_in_all": total,
        "estimated_from": is_known.then(|| ground(pace, limit)),
    })
}

fn tell(before: &Detail, planned: &Planned, times: &[Seconds], pace: &Pace, limit: u64) {
    let name = &before.name;
    if planned.steps.is_empty() && planned.obstacle.is_none() {
        return outln!("{name}: it is so already");
    }
    let count = match planned.steps.len() {
        1 => "one step".to_owned(),
        steps => format!("{steps} steps"),
    };
    outln!("{name}: {count}; nothing was changed");
    let lost = lost_redundancy(planned);
    for (index, (step, time)) in planned.steps.iter().zip(times).enumerate() {
        outln!("{}. {}", index + 1, words(step));
        for line in details(step) {
            outln!("   {line}");
        }
        if let Some((_, words)) = lost.filter(|(at, _)| *at == index) {
            outln!("   {words}");
        }
        match time {
            Some(seconds) if !step.members.is_empty() => outln!("   about {}", span(*seconds)),
            _ => {}
        }
    }
    if let Some(why) = &planned.obstacle {
        outln!("What stands in the way: {why}");
    }
    let total: Option<f64> = times.iter().copied().sum();
    let moves = planned.steps.iter().any(|step| !step.members.is_empty());
    match total {
        _ if !moves => {}
        Some(seconds) => outln!(
            "About {} in all while clients ask for nothing; an estimate from {}",
            span(seconds),
            ground(pace, limit)
        ),
        None => outln!(
            "How long it takes depends on the members: --rate says how fast they are, as in --rate 150M"
        ),
    }
}

/// An array's shape in words.
pub fn shape(level: &str, layout: Option<&str>, raid_devices: u16, chunk_bytes: u64) -> String {
    let layout = layout.map(|layout| format!(" {layout}")).unwrap_or_default();
    let chunks = match chunk_bytes {
        _ if matches!(level, "linear" | "raid1") => String::new(),
        0 => String::new(),
        bytes => format!(" with chunks of {}K", bytes >> 10),
    };
    format!("{level}{layout} of {raid_devices} members{chunks}")
}

/// The shape that an array has in the end, if nothing stands in the way.
pub fn goal(planned: &Planned) -> Option<String> {
    planned.steps.last().filter(|_| planned.obstacle.is_none()).map(shape_after)
}

fn shape_after(step: &PlannedStep) -> String {
    shape(&step.level, step.layout.as_deref(), step.raid_devices, step.chunk_bytes)
}

fn words(step: &PlannedStep) -> String {
    let array_bytes = step.array_bytes;
    let array = format!("{}, {}K for clients", shape_after(step), array_bytes >> 10);
    match &step.action {
        StepAction::Superblocks => format!("superblocks: {array}; no block moves"),
        StepAction::ArraySize => {
            format!(
                "clients can use {}K, until the array is stopped; no block moves",
                array_bytes >> 10
            )
        }
        StepAction::Recovery => "recovery: members that got slots are made of the others".into(),
        StepAction::Resync => "resync: redundancy of what came to it is made".into(),
        StepAction::Reshape => format!("reshape: {array}; all data moves"),
        other => format!("{other}: {array}"),
    }
}

fn details(step: &PlannedStep) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(step.bitmap.as_ref().map(|fate| match fate {
        BitmapFate::Removed => "first the write-intent bitmap is taken away".to_owned(),
        BitmapFate::Remade => {
            "first the write-intent bitmap is taken away, and made again afterwards".into()
        }
        other => format!("the write-intent bitmap is {other}"),
    }));
    lines.extend(step.data_move.as_ref().map(|to| where_to(step, to)));
    for MemberTraffic { member, slot, read_bytes, written_bytes } in &step.members {
        let who = member.clone().unwrap_or_else(|| format!("the member in slot {slot}"));
        lines.push(format!(
            "{who}: {}K are read, {}K written",
            read_bytes >> 10,
            written_bytes >> 10
        ));
    }
    let is_kept = step.data_move.as_ref().is_some_and(|to| to.backup_bytes > 0);
    let goes_on =
        matches!(step.action, StepAction::Reshape | StepAction::Recovery | StepAction::Resync);
    lines.extend(match (goes_on, step.resync_after_cut) {
        (true, _) if is_kept => Some("a later cut loses nothing: it goes on where superblocks say, and where clients were writing, all redundancy is made anew afterwards (resync)"),
        (true, true) => Some("a cut loses nothing: it goes on where superblocks say, and where clients were writing, all redundancy is made anew afterwards (resync)"),
        (true, false) => Some("a cut loses nothing: it goes on where superblocks say"),
        (false, true) => Some("a cut loses nothing; where clients were writing, all redundancy is made anew (resync)"),
        (false, false) => None,
    }.map(str::to_owned));
    lines
}

fn where_to(step: &PlannedStep, to: &PlannedMove) -> String {
    let PlannedMove { is_backwards, shift_bytes, room_bytes, backup_bytes } = to;
    let (shift, room) = (shift_bytes >> 10, room_bytes >> 10);
    match is_backwards {
        false if *backup_bytes > 0 => format!(
            "data stays at the members' data offsets, as {room}K are free before them: the array's first {}K are written over \
             themselves, and kept on each member that is added until that is on record; if the power is cut in that moment, \
             `lapstrake update --backup-file MEMBER` or mdadm puts them back (docs/rescue.md)",
            backup_bytes >> 10
        ),
        false => format!(
            "data moves towards the members' beginnings by {shift}K, of {room}K that are free there; no backup is needed"
        ),
        true if room_bytes >= shift_bytes => format!(
            "data moves from the array's end on, towards the members' ends by {shift}K, of {room}K that are free there; no \
             backup is needed"
        ),
        true => format!(
            "data moves from the array's end on, towards the members' ends by {shift}K, of which {room}K are free: {}K of \
             each member are used afterwards; no backup is needed",
            step.component_bytes >> 10
        ),
    }
}

/// A time as people say it.
fn span(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{:.0} s", s.max(1.0)),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}
