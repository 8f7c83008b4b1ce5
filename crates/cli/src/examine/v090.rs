//! A 0.90 superblock in mdadm's lines.

use super::v1::{array_bytes, level_name};
use crate::create::hostname;
use crate::text;
use lapstrake_geometry::Level;
use lapstrake_metadata::v090::{Disk, Superblock, disk_state, state};
use sha1::{Digest, Sha1};
use std::fmt::Write;

macro_rules! line {
    ($out:expr, $label:literal, $($value:tt)*) => {
        // A String takes any text.
        let _ = writeln!($out, "{:>15} : {}", $label, format_args!($($value)*));
    };
}

/// The lines, each with its end.
pub fn lines(sb: &Superblock) -> String {
    let mut out = String::new();
    identity(&mut out, sb);
    if sb.minor_version > 90 && sb.reshape_position != u64::MAX {
        reshape(&mut out, sb);
    }
    counts(&mut out, sb);
    shape(&mut out, sb);
    table(&mut out, sb);
    out
}

fn identity(out: &mut String, sb: &Superblock) {
    let (major, minor, patch) = (sb.major_version, sb.minor_version, sb.patch_version);
    line!(out, "Magic", "{:08x}", sb.md_magic);
    line!(out, "Version", "{major}.{minor:02}.{patch:02}");
    line!(out, "UUID", "{}{}", text::uuid(sb.set_uuid()), local(sb));
    if sb.not_persistent != 0 {
        line!(out, "Eedk", "not persistent");
    }
    line!(out, "Creation Time", "{}", text::time(sb.ctime.into()));
    line!(out, "Raid Level", "{}", level_name(sb.level));
    if sb.level > 0 {
        let component = u64::from(sb.size) << 10;
        line!(out, "Used Dev Size", "{}{}", sb.size, text::human(component));
        if let Some(bytes) = array_bytes(sb.level, sb.layout, sb.raid_disks, component) {
            line!(out, "Array Size", "{}{}", bytes >> 10, text::human(bytes));
        }
    }
    line!(out, "Raid Devices", "{}", sb.raid_disks);
    line!(out, "Total Devices", "{}", sb.nr_disks);
    line!(out, "Preferred Minor", "{}", sb.md_minor);
    out.push('\n');
}

/// Whether the second half of the UUID is this host's: a digest of its name, word by word in the
/// machine's order.
fn local(sb: &Superblock) -> String {
    let is_own = |host: &String| {
        let uuid = sb.set_uuid();
        let words = Sha1::digest(host.as_bytes());
        let swapped = words[..8].chunks_exact(4).flat_map(|word| word.iter().rev());
        swapped.eq(&uuid[8..])
    };
    let host = hostname().filter(is_own);
    host.map_or_else(String::new, |host| format!(" (local to host {host})"))
}

fn reshape(out: &mut String, sb: &Superblock) {
    let bytes = sb.reshape_position.saturating_mul(512);
    line!(out, "Reshape pos'n", "{}{}", sb.reshape_position / 2, text::human(bytes));
    if sb.delta_disks != 0 {
        let before = i64::from(sb.raid_disks) - i64::from(sb.delta_disks);
        line!(out, "Delta Devices", "{} ({before}->{})", sb.delta_disks, sb.raid_disks);
    }
    if sb.new_level != sb.level {
        line!(out, "New Level", "{}", level_name(sb.new_level));
    }
    if let (true, Ok(level @ (Level::Raid5 | Level::Raid6 | Level::Raid10))) =
        (sb.new_layout != sb.layout, Level::from_md(sb.level))
    {
        line!(out, "New Layout", "{}", text::layout(level, sb.new_layout));
    }
    if sb.new_chunk != sb.chunk_size {
        line!(out, "New Chunksize", "{}", sb.new_chunk);
    }
    out.push('\n');
}

fn counts(out: &mut String, sb: &Superblock) {
    line!(out, "Update Time", "{}", text::time(sb.utime.into()));
    line!(out, "State", "{}", if sb.state & state::CLEAN != 0 { "clean" } else { "active" });
    if sb.state & state::BITMAP_PRESENT != 0 {
        line!(out, "Internal Bitmap", "present");
    }
    line!(out, "Active Devices", "{}", sb.active_disks);
    line!(out, "Working Devices", "{}", sb.working_disks);
    line!(out, "Failed Devices", "{}", sb.failed_disks);
    line!(out, "Spare Devices", "{}", sb.spare_disks);
    // A superblock whose checksum is wrong is not parsed.
    line!(out, "Checksum", "{:x} - correct", sb.sb_csum);
    line!(out, "Events", "{}", sb.events);
    out.push('\n');
}

fn shape(out: &mut String, sb: &Superblock) {
    let level = Level::from_md(sb.level);
    if let Ok(level @ (Level::Raid5 | Level::Raid6 | Level::Raid10)) = level {
        line!(out, "Layout", "{}", text::layout(level, sb.layout));
    }
    match level {
        Ok(Level::Linear) => {
            line!(out, "Rounding", "{}K", sb.chunk_size / 1024);
        }
        Ok(level) if level.is_striped() => {
            line!(out, "Chunk Size", "{}K", sb.chunk_size / 1024);
        }
        _ => {}
    }
    out.push('\n');
}

fn table(out: &mut String, sb: &Superblock) {
    out.push_str("      Number   Major   Minor   RaidDevice State\n");
    row(out, "this", &sb.this_disk);
    out.push('\n');
    let leaving =
        if sb.minor_version > 90 && sb.delta_disks < 0 { sb.delta_disks.unsigned_abs() } else { 0 };
    let rows = sb.raid_disks.saturating_add(leaving).saturating_add(sb.spare_disks);
    for (number, disk) in sb.disks.iter().enumerate().take(rows as usize) {
        row(out, &format!("{number:4}"), disk);
    }
}

fn row(out: &mut String, label: &str, disk: &Disk) {
    use disk_state::{ACTIVE, FAILFAST, FAULTY, REMOVED, SYNC, WRITE_MOSTLY};
    // As above.
    let _ = write!(
        out,
        "{label:>4} {:5}   {:5}    {:5}    {:5}     ",
        disk.number, disk.major, disk.minor, disk.raid_disk
    );
    let words = [
        (FAULTY, " faulty"),
        (ACTIVE, " active"),
        (SYNC, " sync"),
        (REMOVED, " removed"),
        (WRITE_MOSTLY, " write-mostly"),
        (FAILFAST, " failfast"),
    ];
    for (bit, word) in words {
        if disk.state & bit != 0 {
            out.push_str(word);
        }
    }
    if disk.state & !(WRITE_MOSTLY | FAILFAST) == 0 {
        out.push_str(" spare");
    }
    out.push('\n');
}
