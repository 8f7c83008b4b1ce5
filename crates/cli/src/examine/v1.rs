//! A 1.x superblock in mdadm's lines.

use crate::create::hostname;
use crate::text;
use lapstrake_geometry::Level;
use lapstrake_host::scan::Look;
use lapstrake_metadata::v1::{self, MAX_SECTOR, devflag, feature, role};
use lapstrake_metadata::{Role, Superblock};
use std::fmt::Write;

/// Sectors that the kernel sets aside for a 1.1 or 1.2 superblock and what surrounds it.
const SUPERBLOCK_RESERVE: u64 = 72;

/// The lines, each with its end.
pub fn lines(look: &Look, any: &Superblock, sb: &v1::Superblock) -> String {
    let mut out = String::new();
    identity(&mut out, any, sb);
    sizes(&mut out, look, any, sb);
    state(&mut out, any, sb);
    shape(&mut out, any, sb);
    roles(&mut out, any, sb);
    out
}

macro_rules! line {
    // These two stand one column to the left of all others.
    ($out:expr, "Device Role", $($value:tt)*) => {
        line!(@ $out, 14, "Device Role", $($value)*);
    };
    ($out:expr, "Array State", $($value:tt)*) => {
        line!(@ $out, 14, "Array State", $($value)*);
    };
    ($out:expr, $label:literal, $($value:tt)*) => {
        line!(@ $out, 15, $label, $($value)*);
    };
    (@ $out:expr, $width:literal, $label:literal, $($value:tt)*) => {
        // A String takes any text.
        let _ = writeln!($out, "{:>1$} : {2}", $label, $width, format_args!($($value)*));
    };
}

fn identity(out: &mut String, any: &Superblock, sb: &v1::Superblock) {
    line!(out, "Magic", "{:08x}", sb.magic);
    line!(out, "Version", "{}", any.version());
    line!(out, "Feature Map", "{:#x}", sb.feature_map);
    line!(out, "Array UUID", "{}", text::uuid(sb.set_uuid));
    let name = any.name();
    let local = hostname()
        .filter(|host| name.strip_prefix(host.as_str()).is_some_and(|rest| rest.starts_with(':')));
    let local = local.map_or_else(String::new, |host| format!("  (local to host {host})"));
    line!(out, "Name", "{name}{local}");
    line!(out, "Creation Time", "{}", text::time(any.ctime().0));
    line!(out, "Raid Level", "{}", level_name(sb.level));
    line!(out, "Raid Devices", "{}", sb.raid_disks);
    out.push('\n');
}

/// mdadm's names, also of levels that hold no data here.
pub fn level_name(level: i32) -> String {
    match (Level::from_md(level), level) {
        (Ok(level), _) => level.to_string(),
        (_, -4) => "multipath".into(),
        (_, -5) => "faulty".into(),
        (_, -100) => "container".into(),
        _ => "-unknown-".into(),
    }
}

/// Bytes of the array as mdadm reckons them from one superblock; None for levels that use members
/// of any size.
pub fn array_bytes(level: i32, layout: u32, raid_disks: u32, component_bytes: u64) -> Option<u64> {
    let disks = u128::from(raid_disks);
    let (times, per) = match level {
        1 => (1, 1),
        4 | 5 => (disks.saturating_sub(1), 1),
        6 => (disks.saturating_sub(2), 1),
        10 => (disks, u128::from(layout & 255) * u128::from(layout >> 8 & 255)),
        _ => return None,
    };
    let bytes = (u128::from(component_bytes) * times).checked_div(per)?;
    (times > 0).then(|| bytes.try_into().unwrap_or(u64::MAX))
}

fn sizes(out: &mut String, look: &Look, any: &Superblock, sb: &v1::Superblock) {
    let sectors = |count: u64| format!("{count} sectors{}", text::human(count.saturating_mul(512)));
    line!(out, "Avail Dev Size", "{}", sectors(sb.data_size));
    // mdadm takes the level for a number without sign here, so that linear counts as above 0.
    if sb.level != 0 {
        let component_bytes = sb.size.saturating_mul(512);
        if let Some(bytes) = array_bytes(sb.level, sb.layout, sb.raid_disks, component_bytes) {
            line!(out, "Array Size", "{} KiB{}", bytes >> 10, text::human(bytes));
        }
        if sb.size != sb.data_size {
            line!(out, "Used Dev Size", "{}", sectors(sb.size));
        }
    }
    if sb.data_offset != 0 {
        line!(out, "Data Offset", "{} sectors", sb.data_offset);
    }
    let moves = sb.has(feature::NEW_OFFSET);
    if moves && sb.new_offset != 0 {
        let offset = sb.data_offset.wrapping_add_signed(sb.new_offset.into());
        line!(out, "New Offset", "{offset} sectors");
    }
    line!(out, "Super Offset", "{} sectors", sb.super_offset);
    if sb.has(feature::RECOVERY_OFFSET) {
        line!(out, "Recovery Offset", "{} sectors", sb.recovery_offset);
    }
    let (before, after) = unused(look, any, sb);
    if !moves && (before, after) != (0, 0) && after != 1 {
        line!(out, "Unused Space", "before={before} sectors, after={after} sectors");
    }
    line!(out, "State", "{}", if sb.resync_offset == MAX_SECTOR { "clean" } else { "active" });
    line!(out, "Device UUID", "{}", text::uuid(sb.device_uuid));
    out.push('\n');
}

/// Sectors that neither data nor metadata use: before the data, and after it.
fn unused(look: &Look, any: &Superblock, sb: &v1::Superblock) -> (u64, u64) {
    let data = if sb.level <= 0 { sb.data_size } else { sb.size };
    let from_super = |distance: i64| sb.super_offset.saturating_add_signed(distance);
    let log = any.badblock_log().map(|(at, len)| (at.0, at.0.saturating_add(len.0)));
    let ppl = sb.has(feature::PPL).then(|| i64::from(sb.ppl().0));
    if sb.data_offset < sb.super_offset {
        let bitmap = any.bitmap_sector().map(|at| at.0);
        let starts = [log.map(|log| log.0), bitmap, ppl.map(from_super)];
        let end = starts.into_iter().flatten().fold(sb.super_offset, u64::min);
        return (sb.data_offset, end.saturating_sub(sb.data_offset.saturating_add(data)));
    }
    let bitmap_end = any.bitmap_sector().map(|at| {
        let image = look.bitmap(any).ok().flatten().map_or(0, |b| b.superblock.image_bytes());
        at.0.saturating_add(image.next_multiple_of(4096) / 512)
    });
    let ends = [log.map(|log| log.1), bitmap_end];
    let reserved = sb.super_offset.saturating_add(SUPERBLOCK_RESERVE);
    let end = ends.into_iter().flatten().fold(reserved, u64::max);
    let used = data.saturating_add(sb.data_offset);
    (sb.data_offset.saturating_sub(end), look.size().0.saturating_sub(used))
}

fn state(out: &mut String, any: &Superblock, sb: &v1::Superblock) {
    if sb.has(feature::BITMAP_OFFSET) {
        line!(out, "Internal Bitmap", "{} sectors from superblock", sb.bitmap_offset);
    } else if any.has_ppl() {
        let (offset, size) = sb.ppl();
        // mdadm shows the offset without its sign.
        let offset = offset as u16;
        line!(out, "PPL", "{size} sectors at offset {offset} sectors from superblock");
    }
    if sb.has(feature::RESHAPE_ACTIVE) {
        reshape(out, sb);
    }
    if sb.devflags != 0 {
        let flag = |bit: u8, word: &'static str| if sb.devflags & bit != 0 { word } else { "" };
        let words =
            [flag(devflag::WRITE_MOSTLY, " write-mostly"), flag(devflag::FAILFAST, " failfast")];
        // As above.
        let _ = writeln!(out, "{:>15} :{}", "Flags", words.concat());
    }
    line!(out, "Update Time", "{}", text::time(any.utime().0));
    if any.badblock_log().is_some() {
        let present = if any.has_bad_blocks() { " - bad blocks present." } else { "" };
        let entries = u32::from(sb.bblog_size) * 64;
        line!(
            out,
            "Bad Block Log",
            "{entries} entries available at offset {} sectors{present}",
            sb.bblog_offset
        );
    }
    // A superblock whose checksum is wrong is not parsed.
    line!(out, "Checksum", "{:x} - correct", sb.sb_csum);
    line!(out, "Events", "{}", sb.events);
    out.push('\n');
}

fn reshape(out: &mut String, sb: &v1::Superblock) {
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
    if sb.new_chunk != sb.chunksize {
        line!(out, "New Chunksize", "{}K", sb.new_chunk / 2);
    }
    out.push('\n');
}

fn shape(out: &mut String, any: &Superblock, sb: &v1::Superblock) {
    match Level::from_md(sb.level) {
        Ok(Level::Raid0) if !any.has(feature::RAID0_LAYOUT) => {}
        Ok(level @ (Level::Raid0 | Level::Raid5 | Level::Raid6 | Level::Raid10)) => {
            line!(out, "Layout", "{}", text::layout(level, sb.layout));
        }
        _ => {}
    }
    match Level::from_md(sb.level) {
        Ok(Level::Linear) => {
            line!(out, "Rounding", "{}K", sb.chunksize / 2);
        }
        Ok(level) if level.is_striped() => {
            line!(out, "Chunk Size", "{}K", sb.chunksize / 2);
        }
        _ => {}
    }
    out.push('\n');
}

fn roles(out: &mut String, any: &Superblock, sb: &v1::Superblock) {
    match any.role() {
        Role::Active(slot) if sb.has(feature::REPLACEMENT) => {
            line!(out, "Device Role", "Replacement device {}", slot.0);
        }
        Role::Active(slot) => {
            line!(out, "Device Role", "Active device {}", slot.0);
        }
        Role::Journal => {
            line!(out, "Device Role", "Journal");
        }
        Role::Spare | Role::Faulty => {
            line!(out, "Device Role", "spare");
        }
        role @ Role::Unknown(_) => {
            let slot = role.perhaps(any.raid_disks());
            let slot = slot.map_or_else(String::new, |slot| format!(" (perhaps slot {})", slot.0));
            line!(out, "Device Role", "{role}{slot}");
        }
    }
    // While a reshape takes slots away, the superblock counts those that stay.
    let leaving = if sb.has(feature::RESHAPE_ACTIVE) { sb.delta_disks.min(0) } else { 0 };
    let slots = sb.raid_disks.saturating_add(leaving.unsigned_abs()).min(u32::from(role::MAX));
    let mut consistent = true;
    let mut letters = String::new();
    for slot in 0..slots {
        let holders = sb.dev_roles.iter().filter(|&&role| u32::from(role) == slot).count();
        letters.push(match holders {
            0 => '.',
            1 => 'A',
            2 if sb.level != 0 => 'R',
            _ => {
                consistent = false;
                '?'
            }
        });
    }
    line!(out, "Array State", "{letters} ('A' == active, '.' == missing, 'R' == replacing)");
    let beyond = |role: &&u16| **role <= role::MAX && u32::from(**role) > slots;
    if !consistent || sb.dev_roles.iter().any(|role| beyond(&role)) {
        inconsistent(out, &sb.dev_roles);
    }
}

fn inconsistent(out: &mut String, roles: &[u16]) {
    out.push_str("WARNING Array state is inconsistent - each number should appear only once\n");
    for (number, &role) in roles.iter().enumerate() {
        let role = if role >= role::FAULTY { "-".into() } else { role.to_string() };
        // As above.
        let _ = write!(out, " {number}:{role}");
    }
    out.push('\n');
}
