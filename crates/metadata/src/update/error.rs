//! Why an edit is refused.

use alloc::string::String;

use lapstrake_geometry::Sectors;
use thiserror::Error;

use crate::bitmap::AddError;
use crate::{LOGICAL_BLOCK_MAX, NotReverted, Unsupported, Version};

/// Why no member is edited.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("update {word}: {why}")]
pub struct UpdateError {
    /// The edit's word.
    pub word: &'static str,
    /// The member at fault; None if the array as a whole is.
    pub member: Option<usize>,
    /// What is wrong.
    pub why: Refused,
}

/// What is wrong, and what to do next.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refused {
    /// The superblock holds what cannot be acted upon.
    #[error("{0}")]
    Unsupported(Unsupported),
    /// What was moved cannot be moved back.
    #[error("{0}")]
    NotReverted(#[from] NotReverted),
    /// The format has no such thing.
    #[error("superblocks of version {found} have no such thing")]
    Version {
        /// The superblock's.
        found: Version,
    },
    /// The level has no such thing.
    #[error("only {wanted} has it")]
    Level {
        /// Which has.
        wanted: &'static str,
    },
    /// The name is empty, too long or not for reading.
    #[error(
        "a name has 1 to {} bytes and no control characters, unlike {found:?}",
        super::NAME_MAX
    )]
    Name {
        /// As it was given.
        found: String,
    },
    /// The bad-block log has entries.
    #[error(
        "the bad-block log has entries, whose blocks would be read as if they were good; where another member has \
         their data, serve the array and remove and add this one; --update=force-no-bbl forgets them"
    )]
    BadBlocks,
    /// Two things that exclude each other.
    #[error("the array has {by}, which excludes it; take that away first")]
    Excluded {
        /// What it has.
        by: &'static str,
    },
    /// The array was not stopped cleanly.
    #[error(
        "the array was not stopped cleanly, and its {what} may be needed: serve it until its resync has ended, and stop it"
    )]
    Unclean {
        /// What may be needed.
        what: &'static str,
    },
    /// The array is being recovered.
    #[error("it is being recovered: serve the array until that has ended")]
    Recovers,
    /// The journal's units hold the UUID.
    #[error("the journal's units hold the array's UUID; an array with a journal keeps it")]
    JournalHoldsUuid,
    /// Nothing is free for partial parity logs.
    #[error(
        "there is no room for partial parity logs beside the superblock{}",
        if *.has_log { "; --update=no-bbl takes away the bad-block log, which has some" } else { "" }
    )]
    NoRoomForPpl {
        /// Whether there is a bad-block log.
        has_log: bool,
    },
    /// Nothing is free.
    #[error("there is no room for {what} beside the superblock")]
    NoRoom {
        /// What would have to be placed.
        what: &'static str,
    },
    /// The device has become smaller than what the array uses of it.
    #[error("the device has {room} behind the data's start, and the array uses {needed}")]
    TooSmall {
        /// What it has.
        room: Sectors,
        /// What is used.
        needed: Sectors,
    },
    /// No kernel accepts the block.
    #[error("a logical block of {found} bytes is no power of two from 512 to {LOGICAL_BLOCK_MAX}")]
    LogicalBlock {
        /// As it was given.
        found: u32,
    },
    /// The device's own blocks are larger.
    #[error("the device's own logical blocks have {own} bytes, more than {found}")]
    LogicalBlockOfMember {
        /// As it was given.
        found: u32,
        /// The device's.
        own: u32,
    },
    /// No bitmap can be placed.
    #[error("{0}")]
    Bitmap(AddError),
    /// Members have seen different numbers of updates.
    #[error(
        "the members differ in events, which superblocks of 1.0 would not show any more: serve and stop the array once, \
         and leave out those that are not in it"
    )]
    Events,
}
