//! Loads by what a machine is for, in terms of the lab's own requests.

use super::Load;
use crate::plan::{Io, Pattern, Place};
use std::time::Duration;

/// Names, and what they stand for.
pub const PRESETS: [(&str, &str); 5] = [
    ("file-server", "streams and scattered requests of many clients, three reads to a write"),
    ("vm-host", "small requests everywhere at a depth of 32, seven reads to three writes"),
    ("database", "pages read and written everywhere, and a log that is flushed"),
    ("backup", "large files written in order, and read back now and then"),
    ("media", "eight large files read at once, and some written"),
];

/// What a preset stands for; none for another name.
#[must_use]
pub fn preset(name: &str) -> Option<Vec<Load>> {
    let part = |part: &str, weight, io| Load { name: format!("{name}: {part}"), weight, io };
    Some(match name {
        "file-server" => vec![
            part("streams", 1.0, load(Pattern::Streams(8), 0.75, 1 << 20, 8)),
            part("scattered", 1.0, load(Pattern::Uniform, 0.75, 64 << 10, 16)),
        ],
        "vm-host" => vec![part("requests", 1.0, load(Pattern::Uniform, 0.7, 8 << 10, 32))],
        "database" => vec![
            part("pages", 2.0, load(Pattern::Uniform, 0.8, 8 << 10, 16)),
            part(
                "log",
                1.0,
                Io { fsync_every: Some(1), ..load(Pattern::Sequential, 0.0, 16 << 10, 1) },
            ),
        ],
        "backup" => vec![
            part("write", 3.0, load(Pattern::Sequential, 0.0, 1 << 20, 4)),
            part("read", 1.0, load(Pattern::Sequential, 1.0, 1 << 20, 4)),
        ],
        "media" => vec![
            part("play", 3.0, load(Pattern::Streams(8), 1.0, 1 << 20, 8)),
            part("record", 1.0, load(Pattern::Sequential, 0.0, 1 << 20, 2)),
        ],
        _ => return None,
    })
}

/// Requests over all of a volume.
pub(super) fn load(pattern: Pattern, read: f64, block: u64, depth: u32) -> Io {
    Io {
        pattern,
        read,
        block,
        depth,
        threads: 1,
        from: Place::Share(0.0),
        to: Place::Share(1.0),
        file_size: 0,
        direct: true,
        think: Duration::ZERO,
        rate: None,
        fsync_every: None,
        fsync_end: false,
        verify: false,
        amount: None,
    }
}
