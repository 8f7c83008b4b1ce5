//! An array for reading only, with what its journal or logs hold.

use crate::open::{OpenArrayError, OpenRequest, Opened, open};
use tracing::warn;

/// As [`open`], for reading only. What a journal or partial parity logs hold and the members lack is brought there in a
/// passing overlay, which takes as much room where temporary files go. Where that cannot be, and the array can be read
/// without it, a warning says so.
///
/// # Errors
/// [`OpenArrayError`].
pub fn open_whole(mut request: OpenRequest) -> Result<Opened, OpenArrayError> {
    let opened = open(&request);
    let (holds_news, goes_without) = match &opened {
        Err(OpenArrayError::JournalHoldsNews { .. }) => (true, false),
        Err(_) => (false, false),
        Ok(opened) => (opened.parts.is_dirty_with_logs(), true),
    };
    let mut name = [0; 16];
    if !holds_news || getrandom::fill(&mut name).is_err() {
        return opened;
    }
    // It holds the members' locks; who takes them before us is told of by the second opening.
    drop(opened);
    let name = format!("lapstrake-cat-{:032x}", u128::from_ne_bytes(name));
    request.overlay = Some(std::env::temp_dir().join(name));
    request.overlay_is_passing = true;
    match open(&request) {
        Err(OpenArrayError::Overlay(error)) if goes_without => {
            warn!(
                "{error}; what partial parity logs tell is not brought together with the members"
            );
            open(&OpenRequest { overlay: None, overlay_is_passing: false, ..request })
        }
        opened => opened,
    }
}
