//! Files that are long in answering, or never do: on a disk that wakes up or fails, in a FUSE mount whose server is
//! stopped or stuck.
//!
//! What is read of a member after it was looked at (a bitmap, the bad-block log) is waited for without a word.

use crate::serve::signals;
use lapstrake_device::MemberSpec;
use lapstrake_host::scan::{Look, LookError};
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use tracing::warn;

/// After this long it is said who is waited for.
pub const BRIEF: Duration = Duration::from_secs(1);
/// Threads that ask at once: more would be slow by their number alone, and members would be blamed for it.
const ASKERS: usize = 16;
/// Disks wake up within this, and most give up a read.
pub const LONG: Duration = Duration::from_secs(120);

/// What `find`, in a thread of its own, finds out about `file`; None, which is said, if that takes longer than `limit`.
pub fn ask<T: Send + 'static>(
    file: &Path,
    limit: Duration,
    find: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (teller, told) = mpsc::channel();
    // Nobody waits for it later but the end of the process, where the kernel cannot give a request up: one that a disk
    // or a FUSE server has taken.
    thread::spawn(move || {
        let _ = teller.send(find());
    });
    let wait = |limit| match told.recv_timeout(limit) {
        Ok(found) => Some(found),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => {
            panic!("what asks about {} panicked", file.display())
        }
    };
    let brief = limit.min(BRIEF);
    let found = wait(brief);
    if found.is_some() {
        return found;
    }
    let rest = limit - brief;
    let more = if rest.is_zero() {
        String::new()
    } else {
        format!("; it is waited for {} s more", rest.as_secs())
    };
    warn!(
        "{} has not answered within {brief:?}: its disk wakes up or fails, or its server is stopped \
         (SIGSTOP) or stuck{more}",
        file.display()
    );
    wait(rest)
}

/// Does `work` on members, however long it takes; after a while those that do not answer are named.
pub fn telling<'a, T>(
    members: impl IntoIterator<Item = &'a MemberSpec>,
    work: impl FnOnce() -> T,
) -> T {
    let members: Vec<MemberSpec> = members.into_iter().cloned().collect();
    let working = Arc::new(());
    let work_left = Arc::downgrade(&working);
    let (masking, masked) = mpsc::channel::<Infallible>();
    thread::spawn(move || {
        // A signal is for the thread that works, and for those that a server then has.
        let is_blocked = signals::block().is_ok();
        drop(masking);
        if !is_blocked {
            return;
        }
        thread::sleep(BRIEF);
        if work_left.strong_count() == 0 {
            return;
        }
        for some in members.chunks(members.len().div_ceil(ASKERS).max(1)) {
            let (some, work_left) = (some.to_vec(), work_left.clone());
            thread::spawn(move || {
                for spec in some.into_iter().take_while(|_| work_left.strong_count() > 0) {
                    let path = spec.path.clone();
                    ask(&path, BRIEF, move || Look::at(&spec));
                }
            });
        }
    });
    let _ended = masked.recv();
    let done = work();
    drop(working);
    done
}

/// [`Look::at`] a member, which may be long in answering.
///
/// # Errors
/// As there, and [`LookError::Silent`].
pub fn look(spec: &MemberSpec) -> Result<Look, LookError> {
    let wanted = spec.clone();
    ask(&spec.path, LONG, move || Look::at(&wanted)).unwrap_or_else(|| Err(silent(&spec.path)))
}

/// That a file has not answered for [`LONG`].
pub fn silent(path: &Path) -> LookError {
    LookError::Silent { path: path.to_owned(), seconds: LONG.as_secs() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_never_answers_is_given_up_at_the_limit() {
        let (teller, told) = mpsc::channel::<()>();
        let never = move || told.recv();
        assert!(ask(Path::new("one"), Duration::from_millis(20), never).is_none());
        drop(teller);
    }

    #[test]
    fn who_answers_late_is_heard() {
        let late = || thread::sleep(BRIEF + Duration::from_millis(50));
        assert_eq!(ask(Path::new("one"), LONG, late), Some(()));
    }
}
