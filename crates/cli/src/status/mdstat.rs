//! A stanza of `/proc/mdstat` (the kernel's `md_seq_show` and each level's `status`).

use super::view::{self, ArrayState, MemberState, MemberView, SyncAction, SyncView, View};
use lapstrake_geometry::{FarSets, Layout, Level, Raid10Layout};

/// The stanza of one array, with the empty line after it.
pub fn stanza(view: &View) -> String {
    let flags = [
        ("(failed)", view.is(&ArrayState::Failed)),
        ("(read-only)", view.is(&ArrayState::ReadOnly)),
        ("(overlay)", view.overlay.is_some()),
        ("(overlay lost)", view.overlay_lost),
        ("(frozen)", view.is(&ArrayState::Frozen)),
    ];
    let flags: String =
        flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| format!(" {flag}")).collect();
    let mut members: Vec<&MemberView> = view.members.iter().collect();
    members.sort_by_key(|member| std::cmp::Reverse(member.number));
    let members: String = members.into_iter().map(member).collect();
    let mut text = format!("{} : active{flags} {}{members}\n", view.name, view.level);
    let superblock = match &*view.version {
        "0.90" => String::new(),
        version => format!(" super {version}"),
    };
    text += &format!("      {} blocks{superblock}{}\n", view.array_bytes >> 10, shape(view));
    if let Some(part) = &view.part {
        text += &format!("      {}: {} blocks\n", part.name, part.bytes >> 10);
    }
    if let Some(reshape) = view.reshape.as_ref().filter(|_| view.sync.is_none()) {
        let (level, devices) = (&reshape.level, reshape.raid_devices);
        let at = reshape.position_bytes;
        text += &format!("      \treshape=PENDING (at byte {at}, to {level} of {devices})\n");
    }
    match (&view.sync, view::waits(view)) {
        (Some(sync), Some(waits)) => {
            text += &format!("      \t{}=DELAYED ({waits})\n", word(sync));
        }
        (Some(sync), _) if !sync.frozen => text += &format!("      {}\n", progress(sync)),
        (Some(sync), _) => {
            text += &format!("      \t{}=PENDING ({})\n", word(sync), percent(sync));
        }
        (None, _) if view.is(&ArrayState::ResyncPending) => text += "      \tresync=PENDING\n",
        (None, _) => {}
    }
    if let Some((dirty, bits)) = view.bitmap_bits {
        text += &format!("      bitmap: {dirty}/{bits} chunks dirty\n");
    }
    text + "      \n"
}

fn member(member: &MemberView) -> String {
    let mostly = if member.write_mostly { "(W)" } else { "" };
    let flag = match member.state {
        MemberState::Faulty => "(F)",
        MemberState::Spare => "(S)",
        MemberState::Journal => "(J)",
        MemberState::Replacement => "(R)",
        _ => "",
    };
    let deleted = if member.deleted { "(deleted)" } else { "" };
    format!(" {}[{}]{mostly}{flag}{deleted}", member.path, member.number)
}

/// What md calls it.
fn word(sync: &SyncView) -> &str {
    if sync.action == SyncAction::Repair { "resync" } else { sync.action.as_str() }
}

fn progress(sync: &SyncView) -> String {
    let per_mille = sync.per_mille();
    let cells = (per_mille / 50) as usize;
    let bar = format!("[{}>{}]", "=".repeat(cells), ".".repeat(20 - cells));
    let (word, percent) = (word(sync), percent(sync));
    let (done, total) = (sync.done_bytes >> 10, sync.total_bytes >> 10);
    format!("{bar}  {word} ={percent:>6} ({done}/{total}) {}", view::pace(sync))
}

fn percent(sync: &SyncView) -> String {
    let per_mille = sync.per_mille();
    format!("{}.{}%", per_mille / 10, per_mille % 10)
}

fn shape(view: &View) -> String {
    let chunk = view.chunk_bytes >> 10;
    let slots = view.slots();
    let letters: String = slots.iter().map(|slot| if slot.is_some() { 'U' } else { '_' }).collect();
    let working = slots.iter().flatten().count();
    let health = format!("[{}/{working}] [{letters}]", view.raid_devices);
    match (view.level(), view.layout()) {
        (Some(Level::Linear), _) => format!(" {chunk}k rounding"),
        (Some(Level::Raid0), _) => format!(" {chunk}k chunks"),
        (Some(level @ (Level::Raid4 | Level::Raid5 | Level::Raid6)), layout) => {
            let algorithm = layout.map_or(0, Layout::to_md);
            format!(" level {}, {chunk}k chunk, algorithm {algorithm} {health}", level.to_md())
        }
        (Some(Level::Raid10), Some(Layout::Raid10(layout))) => {
            format!(" {chunk}K chunks{} {health}", copies(layout))
        }
        _ => format!(" {health}"),
    }
}

fn copies(layout: Raid10Layout) -> String {
    let mut text = String::new();
    if layout.near > 1 {
        text += &format!(" {} near-copies", layout.near);
    }
    if layout.far > 1 {
        let word = if layout.offset { "offset" } else { "far" };
        text += &format!(" {} {word}-copies", layout.far);
    }
    if layout.far_sets != FarSets::Whole {
        text += " in far sets";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::{raid5, sync};
    use super::*;
    use serde_json::json;

    #[test]
    fn progress_is_told_as_the_kernel_does() {
        for (action, word) in [
            ("recovery", "recovery"),
            ("resync", "resync"),
            ("check", "check"),
            ("repair", "resync"),
        ] {
            let text = stanza(&raid5(json!({ "sync": sync(action, false) })));
            let line = text.lines().nth(2).unwrap();
            let rest = "= 12.6% (8144/64512) finish=127.5min speed=33440K/sec";
            assert_eq!(line, format!("      [==>..................]  {word} {rest}"));
        }
        for (done, bar) in [
            (0, "[>....................]  check =  0.0% "),
            (1024, "[====================>]  check =100.0% "),
        ] {
            let mut sync = sync("check", false);
            sync["done_bytes"] = json!(done);
            sync["total_bytes"] = json!(1024);
            assert!(stanza(&raid5(json!({ "sync": sync }))).contains(bar), "{bar}");
        }
    }

    #[test]
    fn what_waits_is_pending() {
        for (changes, word) in [
            (json!({ "sync": sync("recovery", true) }), "recovery=PENDING (12.6%)"),
            (json!({ "sync": sync("check", true) }), "check=PENDING (12.6%)"),
            (json!({ "sync": sync("repair", true) }), "resync=PENDING (12.6%)"),
            (json!({ "state": ["read-only", "resyncing (PENDING)"] }), "resync=PENDING"),
        ] {
            let line = format!("      \t{word}");
            assert_eq!(stanza(&raid5(changes)).lines().nth(2), Some(&*line));
        }
    }

    #[test]
    fn states_that_are_not_the_rule_are_told() {
        let first = |changes| stanza(&raid5(changes)).lines().next().unwrap().to_owned();
        let members = "raid5 m4[4](S) m3[3] m1[1] m0[0]";
        assert_eq!(first(json!({})), format!("data : active {members}"));
        let changes = json!({ "state": ["clean", "failed"], "overlay": "x.cow" });
        assert_eq!(first(changes), format!("data : active (failed) (overlay) {members}"));
        let changes = json!({ "state": ["clean", "frozen"] });
        assert_eq!(first(changes), format!("data : active (frozen) {members}"));
    }

    #[test]
    fn members_have_flags() {
        let member = |state: &str, write_mostly: bool| {
            let state = json!({
                "path": "x", "number": 7, "slot": 0, "state": state, "write_mostly": write_mostly,
                "direct": true, "awaits_replacement": false,
            });
            super::member(&serde_json::from_value(state).unwrap())
        };
        assert_eq!(member("in_sync", false), " x[7]");
        assert_eq!(member("recovering", true), " x[7](W)");
        assert_eq!(member("faulty", true), " x[7](W)(F)");
        assert_eq!(member("spare", false), " x[7](S)");
        assert_eq!(member("journal", false), " x[7](J)");
        assert_eq!(member("replacement", false), " x[7](R)");
    }
}
