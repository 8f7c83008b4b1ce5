//! What a superblock can ask for that cannot be acted upon: features of md that are not supported, and what no md up to
//! Linux 7.2 and mdadm 4.6 knows.

use alloc::{format, string::String};
use thiserror::Error;

/// Why an array (or a member) must be left alone although its superblock is sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// A level other than linear, 0, 1, 4, 5, 6 and 10.
    #[error("level {0} is not supported")]
    Level(i32),
    /// The layout is none of the level's.
    #[error("layout {0:#x} is not one of the level's")]
    Layout(u32),
    /// Only raid4, 5 and 6 can have a journal, and none beside a bitmap.
    #[error("the array has a journal, which its level, or its bitmap, does not allow")]
    Journal,
    /// A partial parity log that no md would use: on another level than raid5, beside a bitmap, of more
    /// than 64 members, too small, or over data.
    #[error(
        "the array's partial parity log (consistency policy \"ppl\") cannot be used as it is recorded"
    )]
    Ppl,
    /// The geometry is being changed.
    #[error(
        "a reshape is in progress: the array is read (lapstrake cat, serve --read-only), or served, which goes on with the \
         reshape (lapstrake serve, without an overlay)"
    )]
    Reshape,
    /// What is said of a change of geometry does not describe two arrays.
    #[error(
        "a reshape is said to be in progress, of a number of members or at a position that cannot be: the superblock is \
         damaged; leave this member out, or let lapstrake deduce find what the array was"
    )]
    ReshapeFields,
    /// The array is shared by the nodes of a cluster.
    #[error("the array is clustered, not supported; the kernel's md serves it, in its cluster")]
    Clustered,
    /// Feature bits that md does not know.
    #[error("unknown feature bits {0:#x}")]
    UnknownFeatures(u32),
    /// Reserved bytes of the superblock that are not zero.
    #[error("{count} reserved bytes of the superblock are not zero, the first at byte {first}")]
    UnknownBytes {
        /// How many.
        count: usize,
        /// The first one's offset from the superblock's start.
        first: usize,
    },
    /// Bytes of a logical block, which no kernel accepts.
    #[error("a logical block size of {0}, no power of two from 512 to {LOGICAL_BLOCK_MAX} bytes")]
    LogicalBlockSize(u32),
}

/// The largest logical block size that a kernel accepts, in bytes: its page, which is 4 KiB on x86 and up to 64 KiB
/// elsewhere.
pub const LOGICAL_BLOCK_MAX: u32 = 65536;

impl Unsupported {
    /// Whether it is something that nobody knew when this was written, so that the rest of the superblock may well be
    /// meant as it reads.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(
            self,
            Self::UnknownFeatures(_) | Self::UnknownBytes { .. } | Self::LogicalBlockSize(_)
        )
    }

    /// It as a clause, with what it means for the user and what to do next where that is not plain.
    pub(crate) fn describe(&self) -> String {
        let next = match self.is_unknown() {
            true => {
                ": a feature of a kernel newer than Linux 7.2, or damage; what it changes about the data is not known, \
                 so nothing is written to such a member unless --force replaces it; --ignore-unknown reads it all the \
                 same (lapstrake cat, serve --read-only, serve --overlay)"
            }
            false => "",
        };
        format!("{self}{next}")
    }
}
