//! Features of md that a superblock can ask for and that cannot be acted upon yet.

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
    #[error("a reshape is in progress, not supported yet; let the kernel's md end it first")]
    Reshape,
    /// The array is shared by the nodes of a cluster.
    #[error("the array is clustered, not supported; the kernel's md serves it, in its cluster")]
    Clustered,
}
