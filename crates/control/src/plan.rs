//! What it would take to give an array another size or geometry.

use crate::words::{BitmapFate, StepAction};
use serde::{Deserialize, Serialize};

/// One step to another size or geometry. A cut in the midst of any is survived: the next start goes on where superblocks say
/// it was.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedStep {
    /// What is done.
    pub action: StepAction,
    /// The level afterwards, such as `raid6`.
    pub level: String,
    /// The layout afterwards; null where the level has none.
    #[serde(default)]
    pub layout: Option<String>,
    /// Bytes of a chunk afterwards; 0 where the level has none.
    pub chunk_bytes: u64,
    /// Slots afterwards.
    pub raid_devices: u16,
    /// Bytes that are used of each member afterwards.
    pub component_bytes: u64,
    /// Bytes of the array afterwards.
    pub array_bytes: u64,
    /// What becomes of the write-intent bitmap, if there is one and it does not stay.
    #[serde(default)]
    pub bitmap: Option<BitmapFate>,
    /// Where data is moved, of a reshape.
    #[serde(default)]
    pub data_move: Option<PlannedMove>,
    /// A stop of the server in the midst that is not clean (a power cut, a kill) means that all redundancy is made anew
    /// afterwards: no bitmap says where writes were under way. Else it costs nothing but what was under way.
    pub resync_after_cut: bool,
    /// Once it is done a member that fails may take data with it, until a later step, if any does, has made redundancy.
    #[serde(default)]
    pub without_redundancy: bool,
    /// Bytes that `sync_speed_min` and `sync_speed_max` count of it.
    pub counted_bytes: u64,
    /// What it takes of members that read or write for it.
    #[serde(default)]
    pub members: Vec<MemberTraffic>,
}

/// Where a reshape moves data.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedMove {
    /// It begins at the array's end, and data moves towards members' ends; else at its beginning, towards theirs.
    pub is_backwards: bool,
    /// By how many bytes data moves on each member.
    pub shift_bytes: u64,
    /// Bytes that all members have on that side of their data before. They may be fewer than the shift: what is lacking
    /// is taken of what was used of each member.
    pub room_bytes: u64,
    /// Bytes of the array that are copied to each member that is added before any of them is overwritten, as there is no room
    /// to move them; none, 0.
    #[serde(default)]
    pub backup_bytes: u64,
}

/// What a step takes of a member, superblocks aside.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MemberTraffic {
    /// Its path; of one that is not named yet null.
    #[serde(default)]
    pub member: Option<String>,
    /// Its slot in it.
    pub slot: u16,
    /// Bytes that are read; of copies another may be read in its place.
    pub read_bytes: u64,
    /// Bytes that are written, of a resync at most: what agrees is not.
    pub written_bytes: u64,
}
