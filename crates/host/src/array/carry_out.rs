//! What is written before anybody is served, told in words.

use super::{Parts, StartError};
use crate::start_io::{Members, whole_pages};
use lapstrake_array::start::{CarriedOut, CarryOutError};
use lapstrake_engine::{Replay, journal::Replayed};
use std::sync::Arc;
use tracing::warn;

/// Writes what has to be there before anything else is.
pub(super) fn carry_out(parts: &mut Parts, read_only: bool) -> Result<CarriedOut, StartError> {
    if let Some(file) = parts.bitmap_file.as_mut().filter(|_| !read_only) {
        let file = Arc::get_mut(file).expect("nobody else has it yet");
        whole_pages(file).map_err(StartError::BitmapFile)?;
    }
    let done = parts.plan.carry_out(&mut Members).map_err(|error| match error {
        CarryOutError::Force(error) => StartError::Force(error),
        CarryOutError::Backup(error) => StartError::Backup(error),
        CarryOutError::Logs(error) => StartError::Log(error),
        CarryOutError::Journal(error) => {
            let journal = parts.plan.members.last().expect("the journal is one");
            let member = journal.device.spec().to_string();
            StartError::Journal { member, why: error.to_string() }
        }
    })?;
    if let Some((_, replayed)) = done.journal.as_ref().filter(|journal| journal.1.rows > 0) {
        say_journal(replayed);
    }
    if !done.lost.is_empty() {
        say_unread_logs(done.lost.len());
    }
    if let Some(replay) = &done.logs {
        say_logs(replay, done.settles);
    }
    Ok(done)
}

fn say_journal(replayed: &Replayed) {
    let Replayed { rows, completed, .. } = replayed;
    warn!(
        rows,
        completed,
        "the array was not stopped cleanly (or the kernel stopped it, which leaves its last writes in the \
         journal): its journal was replayed: {rows} rows written as it holds them, parity made anew for \
         {completed} of them; no resync is needed"
    );
}

fn say_unread_logs(lost: usize) {
    warn!(
        stripes = lost,
        "the array was not stopped cleanly, and its partial parity logs name {lost} stripes whose \
         parity is to be made anew; a read-only start does not do that: what a missing or failing \
         member held of them cannot be read; `lapstrake serve --overlay FILE --degraded` and `lapstrake cat` do \
         it, and write nothing to the members either"
    );
}

fn say_logs(replay: &Replay, settles: bool) {
    let faults = match replay.faults {
        0 => String::new(),
        n => format!(", {n} were not whole: what they would have described was not begun"),
    };
    let unread = match replay.unread {
        0 => String::new(),
        n => format!(
            ", {n} sectors of parity left as they are, since data that was being written beside them cannot be \
             read: that data may be lost"
        ),
    };
    let next =
        if settles { "no resync is needed" } else { "a resync follows when no member is missing" };
    warn!(
        entries = replay.entries,
        mends = replay.mends.len(),
        "the array was not stopped cleanly; partial parity logs replayed: {} entries, {} places of \
         parity made anew{faults}{unread}; {next}",
        replay.entries,
        replay.mends.len(),
    );
}
