//! `hdparm -t`: reads of 2 MiB through the page cache from the volume's beginning, for three seconds.

use super::{Part, part};
use crate::Nanos;
use crate::system::{PAGE, Reader, System};

const CALL: u64 = (2 << 20) / PAGE;
const LENGTH: Nanos = Nanos(3_000_000_000);

/// Runs it once; a small volume is read to its end.
pub fn hdparm(system: &mut System) -> Part {
    system.drop_caches();
    system.rest(LENGTH);
    let file = system.open_volume();
    let end = system.now() + LENGTH;
    let pages = system.volume_pages();
    let mut at = 0;
    let done = part(system, "hdparm -t", 0.0, |system| {
        let mut reader = Reader::default();
        while system.now() < end && at + CALL <= pages {
            system.read(file, at..at + CALL, &mut reader);
            at += CALL;
        }
    });
    Part { amount: (at * PAGE) as f64, ..done }
}
