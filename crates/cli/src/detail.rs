//! `lapstrake detail`.

use crate::exit::{Exit, Outcome};
use crate::on_top::on_top;
use crate::status::view::{self, MemberState, MemberView, SyncAction, View};
use crate::target::Target;
use crate::{text, tree};
use lapstrake::control::{BitmapLocation, ConsistencyPolicy, ReshapeDetail};
use lapstrake_device::harmless;
use lapstrake_geometry::{Layout, Level, Raid0Layout};
use lapstrake_lab::width;
use lapstrake_metadata::bitmap::ChunkState;
use std::fmt::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

const HELP: &str = "\
Examples:
  lapstrake detail data
  lapstrake detail --json data | jq .work

Exit codes:
  0  the array is whole
  1  its server did not answer, or no array of that name is served
  2  usage
  3  the array is degraded or failed";

/// Show everything about an array that is being served.
///
/// The lines are those of mdadm --detail, in the same order (members that are files have device
/// numbers 0 0); then where it is served, what it has done since it was started, the memory
/// that it holds, and the read-ahead and filesystem options that fit it. Of one whose members are
/// arrays that other servers serve (from the same control directory) a tree follows.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    #[command(flatten)]
    pub target: Target,
}

pub fn run(args: &Args) -> Outcome {
    let mut view = args.target.detail(None)?;
    tree::nest(&mut view, &tree::others(&args.target.dir(), &args.target.name)?, &mut Vec::new());
    if args.target.json {
        outln!("{:#}", serde_json::to_value(&view)?);
    } else {
        out!("{}", width::fitted(&lines(&view)));
    }
    Ok(if view.is_whole() { Exit::Done } else { Exit::Degraded })
}

macro_rules! line {
    ($out:expr, $label:expr, $($value:tt)*) => {
        // A String takes any text.
        let _ = writeln!($out, "{:>18} : {}", $label, format_args!($($value)*));
    };
}

fn lines(view: &View) -> String {
    let mut out = format!("{}:\n", view.name);
    identity(&mut out, view);
    state(&mut out, view);
    shape(&mut out, view);
    table(&mut out, view);
    out.push('\n');
    service(&mut out, view);
    tuning(&mut out, view);
    if view.members.iter().any(|member| member.array.is_some()) {
        out.push('\n');
        out += &tree::table(std::slice::from_ref(view));
    }
    out
}

fn identity(out: &mut String, view: &View) {
    let size = |bytes: u64| format!("{}{}", bytes >> 10, text::human(bytes));
    line!(out, "Version", "{}", view.version);
    line!(out, "Creation Time", "{}", text::time(view.creation_time));
    line!(out, "Raid Level", "{}", view.level);
    line!(out, "Array Size", "{}", size(view.array_bytes));
    if view.component_bytes > 0 {
        line!(out, "Used Dev Size", "{}", size(view.component_bytes));
    }
    line!(out, "Raid Devices", "{}", view.raid_devices);
    line!(out, "Total Devices", "{}", view.members.len());
    if let Some(minor) = view.preferred_minor {
        line!(out, "Preferred Minor", "{minor}");
    }
    line!(out, "Persistence", "Superblock is persistent");
    out.push('\n');
    if let Some(place) = &view.bitmap_place {
        let file = view.bitmap_file.as_deref().map_or("External".into(), harmless);
        let place = if *place == BitmapLocation::Internal { "Internal" } else { &file };
        line!(out, "Intent Bitmap", "{place}");
        out.push('\n');
    }
}

fn state(out: &mut String, view: &View) {
    let (faulty, spare) = (view.count(&MemberState::Faulty), view.count(&MemberState::Spare));
    let rebuilding = view.count(&MemberState::Recovering) + view.count(&MemberState::Replacement);
    line!(out, "Update Time", "{}", text::time(view.update_time));
    line!(out, "State", "{} ", view.state_text());
    line!(out, "Active Devices", "{}", view.count(&MemberState::InSync));
    line!(out, "Working Devices", "{}", view.members.len() - faulty);
    line!(out, "Failed Devices", "{faulty}");
    line!(out, "Spare Devices", "{}", spare + rebuilding);
    out.push('\n');
}

fn shape(out: &mut String, view: &View) {
    let chunk = view.chunk_bytes >> 10;
    match (view.level(), view.layout()) {
        (Some(Level::Raid10), Some(Layout::Raid10(layout))) => {
            line!(out, "Layout", "{}", text::copies(layout));
        }
        // In mdadm's words.
        (_, Some(Layout::Raid0(Raid0Layout::Unset))) => {
            line!(out, "Layout", "-unknown-");
        }
        (Some(Level::Raid0 | Level::Raid5 | Level::Raid6), Some(layout)) => {
            line!(out, "Layout", "{layout}");
        }
        _ => {}
    }
    match view.level() {
        Some(Level::Linear) => {
            line!(out, "Rounding", "{chunk}K\n");
        }
        Some(level) if level.is_striped() => {
            line!(out, "Chunk Size", "{chunk}K\n");
        }
        _ => {}
    }
    line!(out, "Consistency Policy", "{}", view.consistency_policy);
    out.push('\n');
    if let Some(sync) = &view.sync {
        let what = match sync.action {
            SyncAction::Recovery => "Rebuild Status",
            SyncAction::Check => "Check Status",
            _ => "Resync Status",
        };
        let waits = view::waits(view).map_or_else(String::new, |waits| format!(", {waits}"));
        line!(out, what, "{}% complete{waits}\n", sync.per_mille() / 10);
    }
    if let Some(reshape) = &view.reshape {
        self::reshape(out, view, reshape);
    }
    if view.version != "0.90" {
        line!(out, "Name", "{}", view.set_name);
    }
    line!(out, "UUID", "{}", view.uuid);
    match &*view.version {
        "0.90" => {
            line!(out, "Events", "{}.{}", view.events >> 32, view.events as u32);
        }
        _ => {
            line!(out, "Events", "{}", view.events);
        }
    }
    out.push('\n');
}

/// In mdadm's words, and where it stands.
fn reshape(out: &mut String, view: &View, to: &ReshapeDetail) {
    let (at, slots) = (to.position_bytes, (view.raid_devices, to.raid_devices));
    let side = if to.is_backwards { "from there on" } else { "up to there" };
    line!(out, "Reshape Status", "at byte {at} of the array, the new geometry {side}");
    if slots.0 != slots.1 {
        let delta = i32::from(slots.1) - i32::from(slots.0);
        line!(out, "Delta Devices", "{delta}, ({}->{})", slots.0, slots.1);
    }
    if view.level != to.level {
        line!(out, "New Level", "{}", to.level);
    }
    if let Some(layout) = to.layout.as_ref().filter(|_| view.layout != to.layout) {
        line!(out, "New Layout", "{layout}");
    }
    if view.chunk_bytes != to.chunk_bytes {
        line!(out, "New Chunksize", "{}K", to.chunk_bytes >> 10);
    }
    out.push('\n');
}

fn table(out: &mut String, view: &View) {
    out.push_str("    Number   Major   Minor   RaidDevice State\n");
    for slot in 0..view.raid_devices {
        let holds = |m: &&MemberView| m.slot == Some(slot) && m.state != MemberState::Faulty;
        let mut holders: Vec<&MemberView> = view.members.iter().filter(holds).collect();
        holders.sort_by_key(|member| member.state == MemberState::Replacement);
        if holders.is_empty() {
            // As above.
            let _ = writeln!(out, "       -       0        0    {slot:5}      removed");
        }
        holders.into_iter().for_each(|member| row(out, view, member, Some(slot)));
    }
    let rest = |m: &&MemberView| m.slot.is_none() || m.state == MemberState::Faulty;
    let mut rest = view.members.iter().filter(rest).peekable();
    if rest.peek().is_some() {
        out.push('\n');
    }
    for member in rest {
        row(out, view, member, None);
    }
}

fn row(out: &mut String, view: &View, member: &MemberView, slot: Option<u16>) {
    let device = tree::metadata(&member.file).filter(|meta| meta.file_type().is_block_device());
    let rdev = device.map_or(0, |meta| meta.rdev());
    let (major, minor) = (libc::major(rdev), libc::minor(rdev));
    let slot_text = slot.map_or_else(|| "    -".to_owned(), |slot| format!("{slot:5}"));
    let state = match &member.state {
        MemberState::InSync => "active sync",
        MemberState::Recovering | MemberState::Replacement => "spare rebuilding",
        other => other.as_str(),
    };
    let set = slot.and_then(|slot| set_of(view, slot)).unwrap_or_default();
    let mostly = if member.write_mostly { " writemostly" } else { "" };
    let goes = if member.awaits_replacement { " replaced-by-next-spare" } else { "" };
    let direct = if member.direct { "" } else { "  (buffered)" };
    let deleted = if member.deleted { "  (deleted)" } else { "" };
    // As above.
    let _ = writeln!(
        out,
        "   {:5}   {major:5}    {minor:5}    {slot_text}      {state}{set}{mostly}{goes}   {}{direct}{deleted}",
        member.number, member.path
    );
}

/// The half, third, ... of a RAID10 with near copies only that a slot belongs to: each set holds
/// all data.
fn set_of(view: &View, slot: u16) -> Option<String> {
    let Some(Layout::Raid10(layout)) = view.layout() else { return None };
    let copies = u16::from(layout.near);
    let has_sets = layout.far == 1 && copies <= 26 && view.raid_devices.is_multiple_of(copies);
    has_sets.then(|| format!(" set-{}", char::from(b'A' + (slot % copies) as u8)))
}

fn service(out: &mut String, view: &View) {
    for uri in &view.exports {
        line!(out, "Served At", "{uri}");
    }
    if let Some(part) = &view.part {
        line!(out, "Shows", "{}, {} KiB{}", part.name, part.bytes >> 10, text::human(part.bytes));
    }
    if let Some(overlay) = &view.overlay {
        let lost = if view.overlay_lost { " (deleted or spoiled: gone at the stop)" } else { "" };
        let overlay = harmless(overlay);
        line!(out, "Overlay", "{overlay}{lost} takes all writes, the members stay as they are");
    }
    if let Some(pid) = view.pid {
        line!(out, "Process", "{pid}");
    }
    let (work, memory) = (&view.work, &view.memory);
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    line!(out, "Clients", "{}", view.clients);
    if let Some((dirty, all)) = view.bitmap_bits {
        line!(out, "Bitmap", "{dirty} of {all} chunks dirty");
    }
    if let Some(counts) = view.bitmap_states {
        let states = ChunkState::ALL.into_iter().zip(counts).filter(|state| state.1 > 0);
        let states: Vec<_> =
            states.map(|(state, count)| format!("{count} {}", state.name())).collect();
        line!(out, "Lockless Bitmap", "{}", states.join(", "));
    }
    if view.write_behind > 0 {
        line!(out, "Write Behind", "{} writes at most", view.write_behind);
    }
    if let Some(last) = &view.last_sync {
        line!(out, "Last Sync", "{}, {}", last.action, last.result);
    }
    if view.consistency_policy != ConsistencyPolicy::None {
        line!(out, "Mismatch Count", "{} sectors", view.mismatch_sectors);
        let most = match view.sync_speed_max_kib {
            0 => String::new(),
            max => format!(", at most {max}K/sec"),
        };
        let least = view.sync_speed_min_kib;
        line!(out, "Sync Speed", "at least {least}K/sec beside requests{most}");
    }
    if let Some(window) = &view.check_window {
        line!(out, "Check Window", "{window}");
    }
    for member in view.with_bad_blocks() {
        line!(out, "Bad Blocks", "{}", text::bad_blocks(&member.path, member.bad_block_bytes));
    }
    line!(out, "I/O", "{}, {} shards", view.backend, view.shards);
    line!(out, "Requests", "{}", work.requests);
    line!(out, "Member Reads", "{} ({})", work.member_reads, mib(work.member_read_bytes));
    line!(out, "Member Writes", "{} ({})", work.member_writes, mib(work.member_write_bytes));
    line!(
        out,
        "Stripe Writes",
        "{} full, {} read-modify-write, {} reconstruct-write",
        work.full_stripe_writes,
        work.read_modify_writes,
        work.reconstruct_writes
    );
    line!(out, "Stripe Recoveries", "{} by parity", work.recovered);
    let of = |used: u64, all: u64| format!("{} of {} in use", mib(used), mib(all));
    let used = of(memory.stripe_cache_used, memory.stripe_cache);
    if view.stripe_cache_size > 0 {
        line!(out, "Stripe Cache", "{used}, waited for {} times", work.stripe_cache_waits);
        let (pages, members, shards) = (view.stripe_cache_size, view.raid_devices, view.shards);
        let each = format!("{pages} pages x 4 KiB x {members} members x {shards} shards");
        line!(out, "Stripe Cache Size", "{each}");
    }
    line!(out, "Buffers", "{}", of(memory.buffers_used, memory.buffers));
    if memory.resident > 0 {
        line!(out, "Resident Memory", "{}", mib(memory.resident));
    }
    line!(out, "Memory Locked", "{}", if memory.locked { "yes" } else { "no" });
}

/// What fits the array, and what devices on top of it have.
fn tuning(out: &mut String, view: &View) {
    let tuning = &view.tuning;
    let sectors = tuning.read_ahead_bytes / 512;
    if view.block_bytes > 512 {
        line!(out, "Logical Block", "{} bytes are the unit of requests", view.block_bytes);
    }
    let kib = tuning.read_ahead_bytes >> 10;
    line!(out, "Read Ahead", "{kib}K fits (blockdev --setra {sectors} DEVICE)");
    for device in on_top(view) {
        let now = device.read_ahead_kib().map_or_else(|why| why, |kib| format!("{kib}K now"));
        line!(out, device.name(), "{now}");
    }
    let Some(ext4) = &tuning.mkfs_ext4 else { return };
    line!(out, "ext4", "mkfs.ext4 {ext4}");
    let xfs = tuning
        .mkfs_xfs
        .as_deref()
        .unwrap_or("by its own choice: it may refuse these chunks on this size");
    line!(out, "XFS", "mkfs.xfs {xfs}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::view::tests::{raid5, sync};
    use serde_json::json;

    #[test]
    fn a_rebuild_is_told_as_mdadm_does() {
        let mut view = raid5(json!({
            "state": ["clean", "degraded", "recovering"],
            "sync": sync("recovery", false),
            "last_sync": { "action": "check", "result": "interrupted" },
            "mismatch_sectors": 24,
        }));
        view.members[2].state = MemberState::Recovering;
        let text = lines(&view);
        for part in [
            "\n             State : clean, degraded, recovering \n    Active Devices : 2\n",
            "\n     Spare Devices : 2\n",
            "\nConsistency Policy : resync\n\n    Rebuild Status : 12% complete\n\n",
            "\n       3       0        0        2      spare rebuilding   m3\n",
            "\n         Last Sync : check, interrupted\n    Mismatch Count : 24 sectors\n",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
    }

    #[test]
    fn each_sync_action_has_a_status() {
        for (action, line) in [
            ("resync", "\n     Resync Status : 12% complete\n"),
            ("repair", "\n     Resync Status : 12% complete\n"),
            ("check", "\n      Check Status : 12% complete\n"),
        ] {
            assert!(lines(&raid5(json!({ "sync": sync(action, false) }))).contains(line));
        }
        assert!(!lines(&raid5(json!({}))).contains("complete"));
    }
}
