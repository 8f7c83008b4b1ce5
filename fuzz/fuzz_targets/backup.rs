//! A header of a reshape's backup of any bytes is an error, or tells of sections, and what members lack of them follows
//! the place that the reshape has come to. Input: the place, the direction, then the header.

#![no_main]

use lapstrake_geometry::Sector;
use lapstrake_metadata::backup::Backup;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((place, rest)) = data.split_first_chunk::<8>() else { return };
    let Some((direction, rest)) = rest.split_first() else { return };
    let Some((header, _)) = rest.split_first_chunk() else { return };
    let (position, is_backwards) = (Sector(u64::from_le_bytes(*place)), direction & 1 == 1);
    let Ok(backup) = Backup::parse(header) else { return };
    let Ok((lacking, reached)) = backup.lacking(position, is_backwards) else { return };
    let mut at = position.0;
    for part in &lacking {
        let (from, to) = (part.array.start, part.array.end);
        assert!(from < to);
        assert_eq!(at, if is_backwards { to } else { from });
        let held = backup.sections.iter().any(|it| {
            it.array.start <= from
                && to <= it.array.end
                && part.at.0 - it.at.0 == from - it.array.start
        });
        assert!(held);
        at = if is_backwards { from } else { to };
    }
    assert_eq!(at, reached.0);
});
