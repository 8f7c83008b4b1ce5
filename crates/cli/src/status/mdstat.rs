//! A stanza of `/proc/mdstat` (the kernel's `md_seq_show` and each level's `status`).

use super::view::{MemberView, View};
use lapstrake_geometry::{FarSets, Layout, Level, Raid10Layout};

/// The stanza of one array, with the empty line after it.
pub fn stanza(view: &View) -> String {
    let read_only = if view.state.iter().any(|s| s == "read-only") { " (read-only)" } else { "" };
    let mut members: Vec<&MemberView> = view.members.iter().collect();
    members.sort_by_key(|member| std::cmp::Reverse(member.number));
    let members: String = members.into_iter().map(member).collect();
    let mut text = format!("{} : active{read_only} {}{members}\n", view.name, view.level);
    let superblock = match &*view.version {
        "0.90" => String::new(),
        version => format!(" super {version}"),
    };
    text += &format!("      {} blocks{superblock}{}\n", view.array_bytes >> 10, shape(view));
    if view.state.iter().any(|word| word == "resyncing (PENDING)") {
        text += "      \tresync=PENDING\n";
    }
    if let Some((dirty, bits)) = view.bitmap_bits {
        text += &format!("      bitmap: {dirty}/{bits} chunks dirty\n");
    }
    text + "      \n"
}

fn member(member: &MemberView) -> String {
    let flag = match &*member.state {
        "faulty" => "(F)",
        "spare" => "(S)",
        _ => "",
    };
    format!(" {}[{}]{flag}", member.path, member.number)
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
