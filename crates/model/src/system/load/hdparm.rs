//! `hdparm -t` through the page cache of the model; a small volume is read to its end.

use super::{LoadPhase, timed};
use crate::benchmark::Counted;
use crate::benchmark::hdparm::{BLOCK, LENGTH, NAME, REST};
use crate::system::{PAGE, Reader, System};

const CALL: u64 = BLOCK / PAGE;

/// Runs it once.
pub fn hdparm(system: &mut System) -> LoadPhase {
    system.drop_caches();
    system.rest(REST);
    let file = system.open_volume();
    let end = system.now() + LENGTH;
    let pages = system.volume_pages();
    let mut at = 0;
    let done = timed(system, NAME, Counted::BytesRead, 0.0, |system| {
        let mut reader = Reader::default();
        while system.now() < end && at + CALL <= pages {
            system.read(file, at..at + CALL, &mut reader);
            at += CALL;
        }
    });
    LoadPhase { amount: (at * PAGE) as f64, ..done }
}
