//! Arrays that `lapstrake serve` serves: how they stand, and what they are asked to do.

mod detail;

pub use detail::{
    Detail, LastSyncDetail, MemberDetail, MemberState, MemoryDetail, Mismatch, SyncAction,
    SyncDetail, SyncResult, TuningDetail, WorkDetail,
};
pub use lapstrake_host::control::ControlError;

use lapstrake_host::control;
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How often a server is asked while something is waited for.
const PACE: Duration = Duration::from_millis(500);
/// What a server gets for its last answer.
const LAST: Duration = Duration::from_secs(1);

/// Why there is no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server gave none, or refused.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// What it said is not what a server of this version says.
    #[error("{name}: its server's answer is not understood: {source}; is it of another version?")]
    Answer {
        /// The array.
        name: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// Asks servers by their control sockets (`docs/control.md`).
///
/// ```no_run
/// # fn main() -> Result<(), lapstrake::control::ClientError> {
/// let client = lapstrake::control::Client::new();
/// for name in client.served()? {
///     println!("{name}: {}", client.detail(&name)?.state.join(", "));
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
    /// `$XDG_RUNTIME_DIR/lapstrake`, else `/run/lapstrake` for root and `/tmp/lapstrake-UID` for others.
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
    /// [`ClientError::Control`].
    pub fn served(&self) -> Result<Vec<String>, ClientError> {
        Ok(control::served(&self.directory)?)
    }

    /// Everything about one of them. No disk is waited for; a server that says nothing for ten seconds is an error.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn detail(&self, name: &str) -> Result<Detail, ClientError> {
        self.detail_within(name, None)
    }

    /// Waits until no recovery, resync, check or repair runs, or one is frozen, and tells how the array stands then.
    /// `on_progress` is told twice a second how it stands while something runs. After `limit`, if there is one, it
    /// tells how the array stands though something runs: [`Detail::is_at_rest`] says whether.
    ///
    /// What was written under a lockless bitmap is resynced a second later: if nothing runs, that is waited for.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn wait(
        &self,
        name: &str,
        limit: Option<Duration>,
        on_progress: impl FnMut(&Detail),
    ) -> Result<Detail, ClientError> {
        wait(limit, |limit| self.detail_within(name, limit), on_progress)
    }

    /// Sends a request, a JSON object as `docs/control.md` has them, and returns the answer, however long it takes: disks
    /// may be waited for.
    ///
    /// # Errors
    /// [`ClientError::Control`].
    pub fn ask(&self, name: &str, request: &Value) -> Result<Value, ClientError> {
        Ok(control::ask(&self.directory, name, request, || ())?)
    }

    fn detail_within(&self, name: &str, limit: Option<Duration>) -> Result<Detail, ClientError> {
        let reply = control::ask_detail(&self.directory, name, limit)?;
        Detail::of_reply(reply).map_err(|source| ClientError::Answer { name: name.into(), source })
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
