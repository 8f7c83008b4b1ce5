//! What the shards and the supervisor tell each other. A host may carry these between threads;
//! order is kept for each pair of ends, and nothing is lost. That is all that is asked of it, but for what
//! [`Shard::handle_foreign_read`](crate::Shard::handle_foreign_read) asks.

use crate::{
    members::MemberConfig,
    sync::SyncReport,
    types::{MemberId, Time},
};
use alloc::vec::Vec;
use lapstrake_geometry::{Geometry, Sector, Sectors, Slot, StripeNo};
use lapstrake_metadata::bitmap::Superblock;

/// What a shard has to know of the write-intent bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitmapTerms {
    /// Sectors for each bit.
    pub chunk: Sectors,
    /// How many writes a shard may leave behind for write-mostly members.
    pub write_behind: u32,
}

impl BitmapTerms {
    /// Those of a bitmap.
    #[must_use]
    pub fn of(superblock: &Superblock) -> Self {
        Self { chunk: superblock.chunk(), write_behind: superblock.write_behind }
    }
}

/// From the supervisor to every shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The superblocks say "active": writes may go out.
    Active,
    /// Use this member no more. Replies to writes wait until [`Order::Recorded`].
    MemberFailed(MemberId),
    /// The failure of this member is stable in the superblocks of the others.
    Recorded(MemberId),
    /// Become idle if no write ran after this time; answer with [`Notice::Idle`] or
    /// [`Notice::Busy`].
    TryIdle(Time),
    /// Bitmap bits `first..=last` are stable.
    BitsSet(u64, u64),
    /// Redundancy is right in chunks `first..=last` of a lockless bitmap, where it was not.
    ChunksSynced(u64, u64),
    /// There is another bitmap from now on, with all bits set, or none any more.
    Bitmap(Option<BitmapTerms>),
    /// Give up bits that no write has used since the last sweep; answer with
    /// [`Notice::BitsIdle`].
    SweepBits,
    /// The superblocks can no longer be written, data is lost, or a journal: every write fails from now on.
    Broken,
    /// What takes the writes of all members takes no more: every write fails from now on.
    OutOfSpace,
    /// Nothing can be recovered in this stripe: its data and parity do not agree.
    Lost(StripeNo),
    /// The next member, in no slot.
    MemberAdded(MemberConfig),
    /// The member fills this slot from now on: writes go to it too, reads do not yet.
    Slotted(MemberId, Slot),
    /// The member's data is right below this sector (from its data offset).
    Trusted(MemberId, Sector),
    /// Redundancy is right below this sector; RAID10: of the array, else of members.
    InSync(Sector),
    /// These sectors of the member (from its data offset) hold no data, which is about to go on record: whoever gets
    /// them dealt must not read them.
    Bad(MemberId, Sector, Sectors),
    /// They are on record as bad.
    BadRecorded(MemberId, Sector, Sectors),
    /// They are good again. The one answer to each [`Notice::Good`].
    GoodAgain(MemberId, Sector, Sectors),
    /// The journal's superblock says that the ring begins there; what lies before is free.
    TailMoved(u64),
    /// The array has this shape from now on, and so many of its sectors can be used; answer with [`Notice::ShapeHeard`].
    /// No block has moved.
    Shape(Geometry, Sectors),
    /// The stripe cache has so many pages from now on, in the sense of [`ShardConfig::scratch_pages`], and no fewer than
    /// the world would begin with. More of them are there already.
    ///
    /// [`ShardConfig::scratch_pages`]: crate::ShardConfig::scratch_pages
    StripeCache(u32),
}

/// From a shard to the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An I/O of this member failed; the shard uses it no more.
    Failed(MemberId),
    /// A write failed on a member that the array cannot do without, or a log or journal is gone: nothing
    /// is written any more. With a stripe: data and parity of it do not agree.
    Lost(Option<StripeNo>),
    /// A write waits for [`Order::Active`].
    NeedActive,
    /// No write is or was running since the time that [`Order::TryIdle`] named; the next one
    /// will ask with [`Notice::NeedActive`].
    Idle,
    /// The last write ended then (or runs now); the shard stays active.
    Busy(Time),
    /// A write waits for bits `first..=last` of a bitmap with this chunk.
    BitsWanted(Sectors, u64, u64),
    /// The shard takes requests by what [`Order::Shape`] said.
    ShapeHeard,
    /// The shard writes under these bits no more until it asks again.
    BitsIdle(Vec<u64>),
    /// A piece of a sync action has ended.
    Synced(SyncReport),
    /// This cannot be read on a member, nor be written anew: from this sector (from its data offset), so
    /// many. It is to go to the member's bad-block log.
    Bad(MemberId, Sector, Sectors),
    /// What was on record as bad was written.
    Good(MemberId, Sector, Sectors),
    /// What the journal holds before this place in its ring, and the unit there, has reached the members.
    JournalTail {
        /// Sectors from the journal's data offset.
        position: u64,
        /// Its room is needed: the superblock is to say so now, not with the next update.
        is_urgent: bool,
    },
    /// All that the journal holds has reached the members, and its next unit would go there, by that number
    /// (position, sequence number); none: that is no longer so.
    JournalRests(Option<(u64, u64)>),
    /// [`Shard::handle_out_of_space`] was told.
    ///
    /// [`Shard::handle_out_of_space`]: crate::Shard::handle_out_of_space
    OutOfSpace,
    /// The shard reads what others own; told now and then while it does. The report of a sync piece counts requests of
    /// the owner only, and a rebuild is to give way to these, too.
    Reads,
    /// What a member could not read was written anew: from this sector (from its data offset), so many.
    Rewritten(MemberId, Sector, Sectors),
}
