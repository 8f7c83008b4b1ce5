//! Why a command was not carried out: what any command may meet with, and what each part of the coordinator has against
//! it.

use crate::coordinator::{
    bitmap::BitmapError,
    loss::WriteLoss,
    members::{MemberError, SyncError},
    resize::ResizeError,
    settings::SettingsError,
};
use thiserror::Error;

/// Why a [`Command`](crate::Command) was not carried out. The message says what was left untouched, and what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The array is served read-only.
    #[error("the array is served read-only; nothing was changed")]
    ReadOnly,
    /// The array is being stopped, and nothing may follow the mark that says clean.
    #[error("the array is being stopped; nothing was changed")]
    Stopping,
    /// The array has stopped.
    #[error("the array has stopped")]
    Stopped,
    /// Superblocks can no longer be written, or must not be.
    #[error(
        "nothing can be put on record any more: {loss}; nothing was changed; {stop}{next}",
        stop = .stop_first.as_ref().map_or_else(String::new, |array| format!("`lapstrake stop {array}`, then: ")),
        next = .loss.next()
    )]
    Broken {
        /// Why the array takes no more writes.
        loss: WriteLoss,
        /// The array's name as a shell takes it, if it is to be stopped first; none if its overlay is lost, since a stop
        /// would lose what can still be read.
        stop_first: Option<String>,
    },
    /// A member is not failed, replaced, removed or added.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// A sync action is not begun.
    #[error(transparent)]
    Sync(#[from] SyncError),
    /// The write-intent bitmap is not changed.
    #[error(transparent)]
    Bitmap(#[from] BitmapError),
    /// The array gets no other size or number of copies.
    #[error(transparent)]
    Resize(#[from] ResizeError),
    /// Settings are not changed.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_whose_overlay_is_lost_is_not_to_be_stopped_first() {
        let loss = WriteLoss::Journal;
        let stop_first = Some("data".into());
        let told = CommandError::Broken { loss, stop_first }.to_string();
        let start = "nothing can be put on record any more: the journal failed; nothing was changed; `lapstrake stop \
                     data`, then: what was answered is on the members; ";
        assert!(told.starts_with(start), "{told}");

        let loss = WriteLoss::OverlayLost { file: "rescue.cow".into() };
        assert_eq!(
            CommandError::Broken { loss, stop_first: None }.to_string(),
            "nothing can be put on record any more: the overlay's file rescue.cow takes no more; nothing was changed; \
             copy off what can still be read, then stop it by force"
        );
    }
}
