//! Arrays that `lapstrake serve` serves: how they stand, and what they are asked to do.

pub use lapstrake_control::*;
pub use lapstrake_host::control::ControlError;

use lapstrake_host::control;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often a server is asked while something is waited for.
const PACE: Duration = Duration::from_millis(500);
/// What a server gets for its last answer.
const LAST: Duration = Duration::from_secs(1);

/// Asks servers by their control sockets (`docs/control.md`).
///
/// ```no_run
/// # fn main() -> Result<(), lapstrake::control::ControlError> {
/// let client = lapstrake::control::Client::new();
/// for name in client.served()? {
///     println!("{name}: {}", client.detail(&name)?.state_text());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    directory: PathBuf,
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl Client {
    /// Of the servers whose sockets are where `lapstrake serve` puts them: `$LAPSTRAKE_RUN_DIR`, else
    /// `/run/lapstrake` for root, `$XDG_RUNTIME_DIR/lapstrake` for others, else `/tmp/lapstrake-UID`.
    #[must_use]
    pub fn new() -> Self {
        Self::at(control::directory())
    }

    /// Of the servers whose sockets are in this directory.
    #[must_use]
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// The names of the arrays that are being served, in order.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn served(&self) -> Result<Vec<String>, ControlError> {
        control::served(&self.directory)
    }

    /// Everything about one of them. No disk is waited for; a server that says nothing for ten seconds is an error.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn detail(&self, name: &str) -> Result<Detail, ControlError> {
        control::ask_detail(&self.directory, name, None)
    }

    /// Waits until no recovery, resync, check or repair runs, or one is frozen, and tells how the array stands then.
    /// `on_progress` is told twice a second how it stands while something runs. After `limit`, if there is one, it
    /// tells how the array stands though something runs: [`Detail::is_at_rest`] says whether.
    ///
    /// What was written under a lockless bitmap is resynced a second later: if nothing runs, that is waited for.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn wait(
        &self,
        name: &str,
        limit: Option<Duration>,
        on_progress: impl FnMut(&Detail),
    ) -> Result<Detail, ControlError> {
        wait(limit, |limit| control::ask_detail(&self.directory, name, limit), on_progress)
    }

    /// Sends a request and returns the answer, of the type that the request names (or a `serde_json::Value`), however long
    /// it takes: disks may be waited for.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn ask<A: DeserializeOwned>(
        &self,
        name: &str,
        request: &Request,
    ) -> Result<A, ControlError> {
        control::ask(&self.directory, name, request, || ())
    }
}

/// As [`Client::wait`], of an array that `ask` tells about, within a time if it is given one.
///
/// # Errors
/// Those of `ask`.
pub fn wait<E>(
    limit: Option<Duration>,
    mut ask: impl FnMut(Option<Duration>) -> Result<Detail, E>,
    mut on_progress: impl FnMut(&Detail),
) -> Result<Detail, E> {
    // None is never, which a time beyond the clock's end is too.
    let end = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut has_run = false;
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        // With the time over there is still time for an answer.
        let detail = ask(left.map(|left| left.max(LAST)))?;
        let is_over = left.is_some_and(|left| left.is_zero());
        let runs = detail.running().is_some();
        if runs {
            has_run = true;
            on_progress(&detail);
        }
        if is_over || !(runs || !has_run && detail.awaits_lazy_resync) {
            return Ok(detail);
        }
        std::thread::sleep(PACE.min(left.unwrap_or(PACE)));
    }
}
