//! Bitmaps and bad blocks in mdadm's lines, and what else was found.

use crate::text;
use lapstrake_host::scan::{BitmapLook, Look, LookError};
use lapstrake_metadata::Superblock;
use lapstrake_metadata::bitmap::{ChunkState, state};
use lapstrake_metadata::detect::Finding;
use lapstrake_metadata::firmware::Volume;
use lapstrake_metadata::uuid_text;

/// The bitmap: a member's internal one, or what a file holds that is no member.
pub fn bitmap(look: &Look, superblock: Option<&Superblock>) -> Result<String, LookError> {
    let found = match superblock {
        Some(sb) => look.bitmap(sb)?,
        None => Some(look.bitmap_file()?),
    };
    Ok(match found {
        Some(found) => bitmap_lines(look, &found, superblock),
        None => format!("{}: has no internal bitmap\n", look.spec()),
    })
}

/// mdadm 4.6 tells no more of a lockless bitmap than its version. Its lines are those of other bitmaps here, and its
/// states have the kernel's names.
fn bitmap_lines(look: &Look, found: &BitmapLook, superblock: Option<&Superblock>) -> String {
    let sb = &found.superblock;
    let uuid = match superblock {
        // The bitmap holds the words of a 0.90 UUID in the machine's order.
        Some(owner @ Superblock::V090(_)) if owner.bitmap_uuid() == sb.uuid => owner.set_uuid(),
        _ => sb.uuid,
    };
    let state = match sb.state & !(state::DAEMON_BUSY | state::SHUTDOWN) {
        0 => "OK",
        2 => "Out of date",
        _ if sb.is_first_use() && sb.state & state::CLEAN != 0 => "New, all chunks to be clean",
        _ if sb.is_first_use() => "New, all chunks to be unwritten",
        _ => "Unknown",
    };
    let mode = match sb.write_behind {
        0 => "Normal".to_owned(),
        max => format!("Allow write behind, max {max}"),
    };
    let chunk = match sb.is_first_use() {
        true => "chosen at the first start".to_owned(),
        false => text::chunk(sb.chunk().bytes()),
    };
    let percent = 100.0 * found.dirty as f64 / found.bits.max(1) as f64;
    let lines = [
        ("Filename", look.spec().to_string()),
        ("Magic", format!("{:08x}", sb.magic)),
        ("Version", sb.version.to_string()),
        ("UUID", uuid_text(uuid)),
        ("Events", sb.events.to_string()),
        ("Events Cleared", sb.events_cleared.to_string()),
        ("State", state.to_owned()),
        ("Chunksize", chunk),
        ("Daemon", format!("{}s flush period", sb.daemon_sleep)),
        ("Write Mode", mode),
        (
            "Sync Size",
            format!("{}{}", sb.sync_size / 2, text::human(sb.sync_size.saturating_mul(512))),
        ),
        ("Bitmap", format!("{} bits (chunks), {} dirty ({percent:.1}%)", found.bits, found.dirty)),
    ];
    let counts = found.states.filter(|_| found.bits > 0).into_iter().flatten();
    let states = ChunkState::ALL.into_iter().zip(counts);
    let states = states.map(|(state, count)| (state_label(state), count.to_string()));
    let unknown = found.unknown.iter().map(|what| ("Unsupported", what.to_string()));
    lines
        .into_iter()
        .chain(states)
        .chain(unknown)
        .map(|(label, value)| format!("{label:>16} : {value}\n"))
        .collect()
}

/// The kernel's name of a state, with capitals.
fn state_label(state: ChunkState) -> &'static str {
    match state {
        ChunkState::Unwritten => "Unwritten",
        ChunkState::Clean => "Clean",
        ChunkState::Dirty => "Dirty",
        ChunkState::NeedSync => "Need Sync",
        ChunkState::Syncing => "Syncing",
        ChunkState::NeedSyncUnwritten => "Need Sync Unwritten",
        ChunkState::SyncingUnwritten => "Syncing Unwritten",
        ChunkState::CleanUnwritten => "Clean Unwritten",
    }
}

/// The bad-block log, in the order in which it is stored.
pub fn bad_blocks(look: &Look, superblock: &Superblock) -> Result<String, LookError> {
    let spec = look.spec();
    Ok(match look.bad_blocks(superblock)? {
        None => format!("No bad-blocks list configured on {spec}\n"),
        Some(_) if !superblock.has_bad_blocks() => format!("Bad-blocks list is empty in {spec}\n"),
        Some(entries) => {
            let lines = entries.into_iter().map(|(at, len)| format!("{at:20} for {len} sectors\n"));
            format!("Bad-blocks on {spec}:\n") + &lines.collect::<String>()
        }
    })
}

/// Lines about all that mdadm would not tell; none if there is nothing.
pub fn others(look: &Look, best: Option<&Superblock>) -> String {
    let mut lines: Vec<String> = Vec::new();
    if let Some(bytes) = best.and_then(Superblock::logical_block_size) {
        lines.push(format!(
            " Logical Block Size : {bytes} bytes (Linux before 6.19 refuses the array)"
        ));
    }
    if let Some(what) = best.and_then(Superblock::unsupported) {
        lines.push(format!("    Unsupported : {what}"));
    }
    let byte = |(at, byte): (usize, u8)| {
        format!("    Not Known : byte {at:#x} of the superblock is {byte:#04x}")
    };
    lines.extend(best.into_iter().flat_map(Superblock::unknown_bytes).map(byte));
    if let Some(what) = best.and_then(|sb| look.bitmap_error(sb)).flatten() {
        lines.push(format!("    Unsupported : internal bitmap: {what}"));
    }
    if let Some(doubt) = best.and_then(|sb| look.findings().doubt(sb)) {
        lines.push(format!("          Doubt : this superblock {}", doubt.describe()));
    }
    for finding in &look.findings().all {
        let is_best = matches!(finding, Finding::Md { superblock: Ok(sb), .. } if Some(sb) == best);
        if !is_best {
            lines.push(format!("     Also Found : {}", words(look, finding)));
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let head = if best.is_some() { "\n".to_owned() } else { format!("{}:\n", look.spec()) };
    head + &lines.join("\n") + "\n"
}

fn words(look: &Look, finding: &Finding) -> String {
    match finding {
        Finding::Md { version, sector, superblock: Ok(sb) } => {
            let doubt = look.findings().doubt(sb);
            let doubt =
                doubt.map_or_else(String::new, |doubt| format!(": it {}", doubt.describe()));
            let array = uuid_text(sb.set_uuid());
            format!("another md superblock {version} at {sector}, of array {array}{doubt}")
        }
        Finding::Md { version, sector, superblock: Err(error) } => {
            format!("what was an md superblock {version} at {sector}: {error}")
        }
        Finding::Container { kind, sector, volumes } => {
            let names: Vec<_> = volumes.all.iter().map(Volume::name).collect();
            let errors = volumes.errors.iter().map(|error| format!("; {error}"));
            format!(
                "{kind} at {sector}, volumes: {}{}",
                names.join(", "),
                errors.collect::<String>()
            )
        }
        Finding::Foreign { kind, offset } => format!("{kind} at byte {offset}"),
    }
}
