//! Files that are long in answering, or never do: on a disk that sleeps or tries a read again and again, in a FUSE mount
//! whose server is stopped or stuck.

use lapstrake_device::MemberSpec;
use lapstrake_host::scan::{Look, LookError};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// What is longer is told of.
pub const BRIEF: Duration = Duration::from_secs(1);
/// Longer than a disk takes to wake up, or to give up a read.
pub const LONG: Duration = Duration::from_secs(120);

/// What `find` finds out of `file`; None, which is said, if that takes longer than `limit`.
pub fn ask<T: Send + 'static>(
    file: &Path,
    limit: Duration,
    find: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (teller, told) = mpsc::channel();
    // It ends with the process at the latest, and then nobody waits for it any more.
    let find = move || {
        let _ = teller.send(find());
    };
    std::thread::Builder::new().spawn(find).ok()?;
    let brief = told.recv_timeout(limit.min(BRIEF));
    let found = brief.or_else(|_| {
        let (file, rest) = (file.display(), limit.saturating_sub(BRIEF));
        let waits = if rest.is_zero() { String::new() } else { format!("; it is given {rest:?} more") };
        errln!(
            "lapstrake: {file} has not answered within {BRIEF:?}: its disk sleeps, or its server is stopped (SIGSTOP) \
             or stuck{waits}"
        );
        told.recv_timeout(rest)
    });
    found.ok()
}

/// [`Look::at`] a member that may be long in answering.
///
/// # Errors
/// As there, and if it takes too long.
pub fn look(spec: &MemberSpec) -> Result<Look, LookError> {
    let wanted = spec.clone();
    let silent = || Err(LookError::Silent { spec: spec.clone(), limit: LONG });
    ask(&spec.path, LONG, move || Look::at(&wanted)).unwrap_or_else(silent)
}
