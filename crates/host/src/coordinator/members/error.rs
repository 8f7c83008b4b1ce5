//! Why a member is not failed, replaced, removed or added, and why a sync action is not begun.

use crate::coordinator::loss::WriteLoss;
use lapstrake_control::SyncAction;
use lapstrake_device::harmless;
use thiserror::Error;

/// Why a member is not failed, replaced, removed or added.
///
/// `name` is what the operator called the member, `array` the array's name as a shell takes it, `number` the member's in
/// the superblocks' table of devices.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MemberError {
    /// No member has that name or number.
    #[error(
        "{} is no member of this array; its members are {}; nothing was changed",
        harmless(name),
        harmless(&members.join(", "))
    )]
    Unknown {
        /// As the operator called it.
        name: String,
        /// All members, by names that are right in every directory.
        members: Vec<String>,
    },
    /// More than one member has that name.
    #[error(
        "{name} is the name of more than one member, since a file was deleted or moved and another has its name; say \
         which by its number ({}); nothing was changed",
        joined(numbers)
    )]
    Ambiguous {
        /// As the operator called them.
        name: String,
        /// The numbers of all that are called so.
        numbers: Vec<u32>,
    },
    /// It holds what a resync has not yet made redundant.
    #[error(
        "{name} is not failed: a resync is due, and where it has not come to yet, what {name} holds cannot be had from \
         the others; `lapstrake wait {array}` first, or `lapstrake fail --force` if the member is past saving; nothing \
         was changed"
    )]
    ResyncDue {
        /// The member.
        name: String,
        /// The array.
        array: String,
    },
    /// It holds what another member, which has bad blocks, lacks.
    #[error(
        "{name} is not failed: {worn} has bad blocks on record, and what it lacks there may be nowhere but on {name}; \
         `lapstrake replace {array} {}` first, or `lapstrake fail --force` if the member is past saving; nothing was \
         changed",
        number_word(*worn_number)
    )]
    BacksBadBlocks {
        /// The member.
        name: String,
        /// The path of the one that has bad blocks.
        worn: String,
        /// Its number, if it has one.
        worn_number: Option<u32>,
        /// The array.
        array: String,
    },
    /// A journal is not failed.
    #[error("{name} is not failed: it is the journal; {}", without_journal(array))]
    JournalNotFailed {
        /// The journal.
        name: String,
        /// The array.
        array: String,
    },
    /// The array lacks members already.
    #[error(
        "{name} is not failed: without it the array's data would not be complete; `lapstrake add {array} MEMBER` unless \
         one is being rebuilt already, `lapstrake wait {array}` until it is, and fail this one then; nothing was changed"
    )]
    NeededWhileDegraded {
        /// The member.
        name: String,
        /// The array.
        array: String,
    },
    /// Nobody is added while the array is reshaped.
    #[error(
        "{name} is not failed: it holds data, or a copy of what is being moved, that the array cannot do without, and nobody is \
         added or replaced while it is reshaped; `lapstrake wait {array}` until that has ended; nothing was changed"
    )]
    NeededWhileReshaped {
        /// The member.
        name: String,
        /// The array.
        array: String,
    },
    /// No other member has what it holds.
    #[error(
        "{name} is not failed: without it the array's data would not be complete; `lapstrake add {array} MEMBER` and \
         `lapstrake replace {array} {}` have another take its place; nothing was changed",
        number_word(*number)
    )]
    Needed {
        /// The member.
        name: String,
        /// Its number, if it has one.
        number: Option<u32>,
        /// The array.
        array: String,
    },
    /// The level has no redundancy.
    #[error(
        "{name} is not failed: without it the array's data would not be complete; to have it replaced, `lapstrake stop \
         {array}`, copy it (ddrescue) and serve the copy in its place; nothing was changed"
    )]
    NeededWithoutRedundancy {
        /// The member.
        name: String,
        /// The array.
        array: String,
    },
    /// The level takes no replacement.
    #[error("{name} is not replaced: {level} takes no further members; nothing was changed")]
    NotReplacedAtLevel {
        /// The member.
        name: String,
        /// The array's level.
        level: String,
    },
    /// Superblocks 0.90 have no word for it.
    #[error(
        "{name} is not replaced: superblocks 0.90 cannot say that one member replaces another; `lapstrake fail` it and \
         `lapstrake add` another; nothing was changed"
    )]
    NotReplacedBySuperblock {
        /// The member.
        name: String,
    },
    /// What is to replace a member is no spare.
    #[error("{member} is no spare; `lapstrake add {array} MEMBER` makes one; nothing was changed")]
    NoSpare {
        /// Its path.
        member: String,
        /// The array.
        array: String,
    },
    /// It is not in sync, or is being replaced.
    #[error(
        "{name} is not replaced: only a member in sync that is not being replaced can be (`lapstrake status {array}` \
         shows them); nothing was changed"
    )]
    NotReplaceable {
        /// The member.
        name: String,
        /// The array.
        array: String,
    },
    /// A journal is not removed.
    #[error("{member} is the journal; {}", without_journal(array))]
    JournalNotRemoved {
        /// Its path.
        member: String,
        /// The array.
        array: String,
    },
    /// A member in use is not removed.
    #[error(
        "{member} is in use; `lapstrake fail {array} {}` first; nothing was changed",
        number_word(*number)
    )]
    InUse {
        /// Its path.
        member: String,
        /// Its number, if it has one.
        number: Option<u32>,
        /// The array.
        array: String,
    },
    /// The array takes no more writes, and the removal has begun.
    #[error(
        "{}: used no more, but superblocks may still name it: {loss}; {}",
        members.join(", "),
        loss.next()
    )]
    RemovalNotRecorded {
        /// Their paths.
        members: Vec<String>,
        /// Why the array takes no more writes.
        loss: WriteLoss,
    },
    /// A new member would be written though an overlay takes the members' writes.
    #[error(
        "all writes go to the overlay, but what is added would be written itself; nothing was written; without \
         --overlay, once the evidence is copied, it can be added"
    )]
    Overlaid,
    /// Where the new bitmap goes is known to those who were members at its beginning.
    #[error("the bitmap is being changed; nothing was written; try again")]
    BitmapIsChanging,
    /// It would have two places.
    #[error(
        "the array is being reshaped, and nobody is added or replaced meanwhile; nothing was written; `lapstrake wait {array}` \
         waits for the end"
    )]
    Reshaped {
        /// The array's name as a shell takes it.
        array: String,
    },
    /// Members that have gone keep their numbers.
    #[error(
        "{count} members have come and gone, more than can be numbered; nothing was written; stop the array and serve \
         it again"
    )]
    TooMany {
        /// How many there have been since the array was started.
        count: usize,
    },
    /// The level takes no further members.
    #[error("a {level} array takes no further members; nothing was written")]
    LevelTakesNone {
        /// The array's level.
        level: String,
    },
    /// No member has a superblock to make a new one after.
    #[error("no member is in sync; nothing was written")]
    NoneInSync,
    /// No number is free for a new member.
    #[error(
        "the superblocks' table of devices is full, at {most} with the slots; `lapstrake remove {array} failed` makes \
         room if members are faulty; nothing was written"
    )]
    TableFull {
        /// Devices that the superblocks have room for.
        most: u32,
        /// The array.
        array: String,
    },
    /// A former member was started without the others.
    #[error(
        "was used without members that serve now, and may hold writes that nobody else has; copy what you need of it \
         (`lapstrake cat`), then --force takes it as a new member; nothing was written"
    )]
    HoldsWritesOfItsOwn,
}

/// Why a sync action is not begun.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The level has no redundancy.
    #[error("a {level} array has nothing to compare; nothing was changed")]
    NothingToCompare {
        /// The array's level.
        level: String,
    },
    /// Nothing begins while the array is frozen.
    #[error(
        "the array is frozen, and {action} is not begun; `lapstrake resume {array}` lets everything go on, `lapstrake \
         idle {array}` too, but ends a check or repair that was held; nothing was changed"
    )]
    Frozen {
        /// What was to begin.
        action: SyncAction,
        /// The array's name as a shell takes it.
        array: String,
    },
    /// Members that are missing leave nothing to compare.
    #[error(
        "no redundancy is left to compare, and a resync that is due stays so until the array is whole; add a member; \
         nothing was changed"
    )]
    NoRedundancyLeft,
    /// One sync action runs at a time.
    #[error("{action} is running; `lapstrake wait {array}` waits for its end; nothing was changed")]
    Running {
        /// What runs.
        action: SyncAction,
        /// The array's name as a shell takes it.
        array: String,
    },
}

fn joined(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// For a command that is proposed.
fn number_word(number: Option<u32>) -> String {
    number.map_or("MEMBER".into(), |number| number.to_string())
}

fn without_journal(array: &str) -> String {
    format!(
        "without it every write would fail; to do without it, `lapstrake stop {array}` and serve the members with \
         --force --without-journal; nothing was changed"
    )
}
