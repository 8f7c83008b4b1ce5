//! Words and numbers as mdadm prints them.

use jiff::{Timestamp, tz::TimeZone};
use lapstrake_geometry::{Layout, Level, Raid10Layout};
use lapstrake_host::Recorded;
use lapstrake_metadata::uuid_text;

/// A member that may be an older copy of itself.
pub fn older_copy(member: &str, lag_s: u64) -> String {
    format!(
        "{member}: last told of the array {lag_s} s before the freshest, though it counts as many events: perhaps an \
         older copy of it was put back, and what was written since is old on it; if the array starts without it, leave it \
         out and add it anew, else compare with a backup"
    )
}

/// What is told of an array whose members lack others that they do not know to be gone.
pub const MAY_BE_OLD: &str = "the members here do not know why the others are lacking: if the others were in use \
                              without these since, this is an old state of the array";

/// A size in the units that people use, in brackets and after a blank; nothing if it is small
/// enough to be read as it stands.
pub fn human(bytes: u64) -> String {
    let (power, letter) = match bytes {
        0..5_120_000 => return String::new(),
        5_120_000..0x8000_0000 => (2, 'M'),
        0x8000_0000..0x200_0000_0000 => (3, 'G'),
        _ => (4, 'T'),
    };
    // Half-hundredths first, so that they round as mdadm's do.
    let binary = (u128::from(bytes) * 200 / 1024u128.pow(power)).div_ceil(2);
    let decimal = (u128::from(bytes) / (1000u128.pow(power) / 200)).div_ceil(2);
    let number = |hundredths: u128| format!("{}.{:02}", hundredths / 100, hundredths % 100);
    format!(" ({} {letter}iB {} {letter}B)", number(binary), number(decimal))
}

/// A size with one unit, such as "64 MB" for 64 MiB: how mdadm prints a bitmap's chunk.
pub fn chunk(bytes: u64) -> String {
    let mut rest = bytes;
    let mut units = ["B", "KB", "MB", "GB", "TB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while rest >> 10 > 0
        && let Some(next) = units.next()
    {
        rest >>= 10;
        unit = next;
    }
    format!("{rest} {unit}")
}

/// A time as ctime(3) has it, in the local zone.
pub fn time(secs: u64) -> String {
    let time = i64::try_from(secs).ok().and_then(|secs| Timestamp::from_second(secs).ok());
    match time {
        Some(time) => {
            time.to_zoned(TimeZone::system()).strftime("%a %b %e %H:%M:%S %Y").to_string()
        }
        // Beyond the year 9999: a superblock can say so.
        None => format!("{secs} seconds after 1970"),
    }
}

/// A UUID as mdadm prints it.
pub fn uuid(uuid: [u8; 16]) -> String {
    uuid_text(uuid)
}

/// RAID10's copies as mdadm's `--examine` and `--detail` name them.
pub fn copies(layout: Raid10Layout) -> String {
    let mut parts = Vec::new();
    if layout.near != 1 {
        parts.push(format!("near={}", layout.near));
    }
    if layout.far != 1 {
        let word = if layout.offset { "offset" } else { "far" };
        parts.push(format!("{word}={}", layout.far));
    }
    if parts.is_empty() { "NO REDUNDANCY".into() } else { parts.join(", ") }
}

/// A layout as mdadm prints it, by level and md's word.
pub fn layout(level: Level, word: u32) -> String {
    match Layout::from_md(level, word) {
        Ok(Layout::Raid10(layout)) => copies(layout),
        Ok(layout @ Layout::Parity(_)) => layout.name().into_owned(),
        Ok(layout @ Layout::Raid0(_)) if word <= 2 => layout.name().into_owned(),
        _ => "-unknown-".into(),
    }
}

/// What it means that a member has bad blocks on record.
pub fn bad_blocks(member: &str, bytes: u64) -> String {
    format!(
        "{member}: {bytes} bytes are on record as bad: reads of them fail where no other member has them, \
         until they are written"
    )
}

/// What it means at a start, and what can be done.
pub fn bad_on_record(recorded: &Recorded) -> String {
    let Recorded { member, bytes, lost_bytes } = recorded;
    let lost = match lost_bytes {
        0 => "other members have all of them".to_owned(),
        _ => format!(
            "{lost_bytes} of these no other member here has: reads of them fail, but they are bad on record only, and \
             may be readable: --ignore-bad-block-log reads them (lapstrake cat, serve --read-only or --overlay), serve \
             --update force-no-bbl forgets the record for good"
        ),
    };
    format!(
        "{member}: {bytes} bytes are on record as bad (lapstrake examine --badblocks {member}); {lost}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_as_mdadm_says_them() {
        assert_eq!(human(64512 << 10), " (63.00 MiB 66.06 MB)");
        assert_eq!(human(193536 << 10), " (189.00 MiB 198.18 MB)");
        assert_eq!(human(65024 << 10), " (63.50 MiB 66.58 MB)");
        assert_eq!(human(5_119_999), "");
        assert_eq!(human(4 << 40), " (4.00 TiB 4.40 TB)");
        assert!(human(u64::MAX).ends_with(" TB)"));
        assert_eq!(chunk(64 << 20), "64 MB");
        assert_eq!(chunk(4096), "4 KB");
        assert_eq!(chunk(512), "512 B");
    }

    #[test]
    fn layouts_are_as_mdadm_says_them() {
        assert_eq!(layout(Level::Raid5, 2), "left-symmetric");
        assert_eq!(layout(Level::Raid6, 18), "left-symmetric-6");
        assert_eq!(layout(Level::Raid5, 18), "-unknown-");
        assert_eq!(layout(Level::Raid10, 0x102), "near=2");
        assert_eq!(layout(Level::Raid10, 0x10201), "offset=2");
        assert_eq!(layout(Level::Raid10, 0x202), "near=2, far=2");
        assert_eq!(layout(Level::Raid0, 2), "alternate");
    }

    #[test]
    fn any_time_is_printed() {
        for secs in [0, 1_000_000_000, 0xff_ffff_ffff, u64::MAX] {
            assert!(!time(secs).is_empty());
        }
    }
}
