//! Why an array gets no other size or number of copies.

use crate::coordinator::loss::WriteLoss;
use lapstrake_control::SyncAction;
use lapstrake_geometry::{GeometryError, Level, Sectors};
use lapstrake_metadata::bitmap::AddError;
use std::path::PathBuf;
use thiserror::Error;

/// Why an array gets no other size or number of copies.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// Clients see a partition or a volume, whose place is that of the array as it was when it was opened.
    #[error(
        "{array}: a partition or volume of it is served; serve all of it (`lapstrake stop {array}`, then serve it without \
         --partition and --volume) to change its size; nothing was changed"
    )]
    PartIsShown {
        /// The array.
        array: String,
    },
    /// A device that is to be added cannot be a member, such as for its size.
    #[error("{member}: {source}; nothing was written")]
    Unfit {
        /// The device.
        member: String,
        /// What is wrong with it.
        source: GeometryError,
    },
    /// The level uses all of each member.
    #[error(
        "{level} uses all of each member, and gets no other size or number of members here; nothing was changed"
    )]
    Level {
        /// The array's level.
        level: Level,
    },
    /// Blocks would have to move.
    #[error(
        "another number of members moves the blocks of a {level}: that is a reshape, and was not asked for as one; nothing was \
         changed; `lapstrake grow` asks for it"
    )]
    NeedsReshape {
        /// The array's level.
        level: Level,
    },
    /// Not between these levels.
    #[error(
        "there is no way from this {from} to a {to}: RAID4, 5 and 6 become each other, a RAID0 or, of two \
         members, a RAID1; a RAID0 becomes a RAID4, 5, 6 or 10, a RAID1 of two a RAID4, 5 or 6, and a RAID10 with two \
         copies, none of them far, a RAID0, 4, 5 or 6; a linear array gets more members only; nothing was changed"
    )]
    NotBetween {
        /// The array's level.
        from: Level,
        /// What was asked for.
        to: Level,
    },
    /// The level has nothing of the kind.
    #[error(
        "a {level} has no chunk and no layout that could change, only members and their size; nothing was changed"
    )]
    NoChunk {
        /// The array's level.
        level: Level,
    },
    /// Only the members that are larger have what comes last.
    #[error(
        "members of the raid0 hold unlike numbers of chunks of {} KiB, and another level needs as many on each, as with md; \
         nothing was changed",
        chunk.0 / 2
    )]
    UnlikeMembers {
        /// The array's chunk.
        chunk: Sectors,
    },
    /// Far copies lie in sections of the members, which would move at once.
    #[error(
        "a raid10 with far copies is not reshaped, nor is another made one of it, as with md; nothing was changed; near copies \
         (n2) and those in the next row (o2) can become each other"
    )]
    FarReshape,
    /// Copies would come or go.
    #[error(
        "a raid10 with {old} copies of each chunk keeps as many, and {new} were asked for, as with md; nothing was changed"
    )]
    OtherCopies {
        /// Copies that there are.
        old: u32,
        /// What was asked for.
        new: u32,
    },
    /// What is written goes to an overlay, in which a half done reshape could not be opened again.
    #[error(
        "an array with an overlay is not reshaped; nothing was changed; serve it without --overlay"
    )]
    Overlaid,
    /// A reshape is under way.
    #[error(
        "the array is being reshaped; nothing was changed; `lapstrake wait {array}` waits for the end"
    )]
    IsReshaped {
        /// The array's name as a shell takes it.
        array: String,
    },
    /// A stripe takes too much memory.
    #[error(
        "a stripe would have {} MiB of data, and no more than {} MiB are moved at once; nothing was changed; ask for a \
         smaller chunk",
        stripe.0 >> 11,
        most.0 >> 11
    )]
    LargeStripe {
        /// What it would have.
        stripe: Sectors,
        /// What it may have.
        most: Sectors,
    },
    /// Operations on wider stripes would find no memory.
    #[error(
        "more members need a larger stripe cache; nothing was changed; `lapstrake set {array} stripe_cache_size={needed}` \
         first"
    )]
    SmallCache {
        /// Pages of each member.
        needed: u32,
        /// The array's name as a shell takes it.
        array: String,
    },
    /// What is used of each member is not of whole chunks of the new size.
    #[error(
        "{} KiB are used of each member, which are not whole chunks of {} KiB; nothing was changed; make that less first \
         (--size {}K)",
        component.0 / 2,
        chunk.0 / 2,
        component.0 / chunk.0 * chunk.0 / 2
    )]
    PartOfChunk {
        /// What is used.
        component: Sectors,
        /// The new chunk.
        chunk: Sectors,
    },
    /// A bad-block log would not fit any more.
    #[error(
        "{member} has blocks on record as bad, whose places would move; nothing was changed; replace it first \
         (`lapstrake replace`)"
    )]
    BadBlocks {
        /// The member.
        member: String,
    },
    /// Data can be moved to no other place before it is on record there.
    #[error(
        "{member} has {} KiB {side}, and {} KiB are needed, so that nothing is overwritten before its \
         copy is on record; nothing was changed{next}",
        room.0 / 2,
        chunk.0 / 2
    )]
    NoRoomToMove {
        /// The member with the least room.
        member: String,
        /// What it has.
        room: Sectors,
        /// Where, in words.
        side: &'static str,
        /// What is needed: the larger of the two chunks, or more.
        chunk: Sectors,
        /// What can be done all the same, in words; nothing if nothing can.
        next: &'static str,
    },
    /// No shard could take the new geometry.
    #[error(
        "the array is served by one thread, and each geometry needs one; nothing was changed; serve it with --shards 2 or more \
         (`lapstrake stop {array}` first)"
    )]
    OneShard {
        /// The array's name as a shell takes it.
        array: String,
    },
    /// No sync action may begin.
    #[error("the array is frozen; nothing was changed; `lapstrake resume {array}` first")]
    Frozen {
        /// The array's name as a shell takes it.
        array: String,
    },
    /// Members failed, or got bad blocks, before the reshape began.
    #[error(
        "the reshape did not begin: members failed meanwhile, have blocks on record as bad, or one that comes to the array could \
         not be written; the array is as it was, but for a write-intent bitmap, which is gone (--bitmap internal makes one \
         again); the server's log names the member; replace what failed (`lapstrake remove`), wait for the recovery, and ask again"
    )]
    GivenUp,
    /// Copies of a block would have to move.
    #[error(
        "with another size the far copies of a raid10 lie elsewhere: that is a reshape, which Lapstrake does not do \
         yet, nor does md; nothing was changed"
    )]
    Far,
    /// md has no such change either.
    #[error(
        "an array with a journal or partial parity logs keeps its size, as with md; nothing was changed; stop it, take \
         the journal or the logs away, and grow it then"
    )]
    HasLogs,
    /// A lockless bitmap cannot be resized.
    #[error(
        "the array has a lockless bitmap, which keeps its size; take it away first (--bitmap none); nothing was changed"
    )]
    Lockless,
    /// A bitmap in a file cannot be resized.
    #[error(
        "the write-intent bitmap in {} keeps its size, as with md; nothing was changed; take it away first \
         (`lapstrake grow {array} --bitmap none`), and make one again afterwards",
        file.display()
    )]
    BitmapInFile {
        /// The bitmap's file.
        file: PathBuf,
        /// The array's name as a shell takes it.
        array: String,
    },
    /// No bitmap fits beside the superblocks.
    #[error("{0}; nothing was changed; take the bitmap away first (--bitmap none)")]
    Bitmap(#[from] AddError),
    /// A sync action runs or is due.
    #[error(
        "a {action} runs or is due, and its end must not move; nothing was changed; `lapstrake wait {array}` waits \
         for its end"
    )]
    DuringSync {
        /// Which.
        action: SyncAction,
        /// The array's name as a shell takes it.
        array: String,
    },
    /// Redundancy could not be made for what comes to it.
    #[error(
        "a member is missing; nothing was changed; add a member and wait for its recovery first (`lapstrake add {array} MEMBER`)"
    )]
    Degraded {
        /// The array's name as a shell takes it.
        array: String,
    },
    /// A member cannot hold so much.
    #[error(
        "{member} has room for {} KiB of data from its data offset on, {} KiB were asked for; nothing was changed; ask \
         for less, or replace it by a larger one (`lapstrake replace`)",
        room.0 / 2,
        asked.0 / 2
    )]
    TooSmall {
        /// The member with the least room.
        member: String,
        /// What was asked for.
        asked: Sectors,
        /// What it has.
        room: Sectors,
    },
    /// What clients can use would be cut.
    #[error(
        "only {} KiB of the array would be left of the {} KiB that clients can use: that would cut data; nothing was \
         changed; make what lies on it smaller, then take the end from its clients (`lapstrake grow {array} --array-size \
         {}K`), look whether all is still there, and ask again",
        left.0 / 2,
        usable.0 / 2,
        left.0 / 2
    )]
    CutsData {
        /// What the array would have.
        left: Sectors,
        /// What clients can use.
        usable: Sectors,
        /// The array's name as a shell takes it.
        array: String,
    },
    /// Clients cannot use more than there is.
    #[error("the array has {} KiB, and {} KiB were asked for; nothing was changed", all.0 / 2, asked.0 / 2)]
    AboveArray {
        /// What was asked for.
        asked: Sectors,
        /// What the array has.
        all: Sectors,
    },
    /// Clients could use nothing.
    #[error(
        "an array of no bytes is of use to nobody; nothing was changed; `lapstrake stop` ends its service"
    )]
    NothingLeft,
    /// A copy that is to go is in use.
    #[error(
        "{member} is in a slot that an array of {copies} copies does not have; nothing was changed; fail and remove it \
         first (`lapstrake fail {array} {member}`, `lapstrake remove {array} {member}`)"
    )]
    CopyInUse {
        /// The member.
        member: String,
        /// What was asked for.
        copies: u16,
        /// The array's name as a shell takes it.
        array: String,
    },
    /// A copy would be missing from the first moment.
    #[error(
        "{needed} more members need as many spares, and there are {spares}, be it for a step on the way; nothing was changed; \
         name their devices at the end of the same command, or add them first (`lapstrake add {array} MEMBER`)"
    )]
    NeedsSpares {
        /// How many.
        needed: u16,
        /// How many there are.
        spares: usize,
        /// The array's name as a shell takes it.
        array: String,
    },
    /// There is no such array.
    #[error("{0}; nothing was changed")]
    Geometry(#[from] GeometryError),
    /// No member is in sync.
    #[error("no member is in sync; nothing was changed")]
    NoneThere,
    /// Another change is under way.
    #[error("the array's bitmap or size is being changed; nothing was changed by this")]
    IsChanging,
    /// Something began just now.
    #[error(
        "a member, a client, a sync action or the bitmap changed just now; nothing was changed; ask again"
    )]
    Busy,
    /// Superblocks can no longer be written.
    #[error("{loss}: not every member has the new size on record, and clients see the old one")]
    NotRecorded {
        /// Why the array takes no more writes.
        loss: WriteLoss,
    },
    /// The array stopped before all was done.
    #[error(
        "the array was stopped meanwhile: it has the old size or the new one, and perhaps no bitmap; `lapstrake examine` \
         tells"
    )]
    StoppedMeanwhile,
}
