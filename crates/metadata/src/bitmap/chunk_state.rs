//! What a lockless bitmap says of a chunk, and what becomes of that at a start.
//!
//! Facts: the kernel's `drivers/md/md-llbitmap.c`.

/// A byte of a lockless bitmap. The order is that of the numbers on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ChunkState {
    /// Nothing was ever written: members need not agree there.
    Unwritten = 0,
    /// Redundancy is right, and no write is under way.
    Clean = 1,
    /// Redundancy is right, but for writes under way.
    Dirty = 2,
    /// Redundancy is to be made right by a resync.
    NeedSync = 3,
    /// A resync is doing that.
    Syncing = 4,
    /// Parity of what was never written is to be made.
    NeedSyncUnwritten = 5,
    /// A resync is doing that.
    SyncingUnwritten = 6,
    /// Parity is right, though nothing was ever written.
    CleanUnwritten = 7,
}

impl ChunkState {
    /// All of them, by their numbers.
    pub const ALL: [Self; 8] = [
        Self::Unwritten,
        Self::Clean,
        Self::Dirty,
        Self::NeedSync,
        Self::Syncing,
        Self::NeedSyncUnwritten,
        Self::SyncingUnwritten,
        Self::CleanUnwritten,
    ];

    /// None for a number that no kernel writes.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }

    /// As the kernel's `llbitmap/bits` names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unwritten => "unwritten",
            Self::Clean => "clean",
            Self::Dirty => "dirty",
            Self::NeedSync => "need sync",
            Self::Syncing => "syncing",
            Self::NeedSyncUnwritten => "need sync unwritten",
            Self::SyncingUnwritten => "syncing unwritten",
            Self::CleanUnwritten => "clean unwritten",
        }
    }

    /// Whether a member that missed what happened lacks something, or redundancy may be wrong.
    pub fn is_set(self) -> bool {
        matches!(self, Self::Dirty | Self::NeedSync | Self::Syncing)
    }

    /// Whether redundancy is right, but for writes under way.
    pub fn is_synced(self) -> bool {
        matches!(self, Self::Clean | Self::Dirty | Self::CleanUnwritten)
    }

    /// Whether there is something on the members that has to be kept, data or parity.
    pub fn is_written(self) -> bool {
        !matches!(self, Self::Unwritten | Self::NeedSyncUnwritten | Self::SyncingUnwritten)
    }

    /// What it counts as when an array is started. `is_stale`: the array was in use without this bitmap. `dirty_is_synced`:
    /// it was stopped with no write under way, and is of a level with parity, where kernels, too, call a chunk dirty only
    /// when its redundancy was made right before. (They resync it at a start all the same.)
    #[must_use]
    pub fn at_start(self, is_stale: bool, dirty_is_synced: bool) -> Self {
        match self {
            Self::Dirty if dirty_is_synced && !is_stale => Self::Dirty,
            Self::Dirty | Self::NeedSync | Self::Syncing => Self::NeedSync,
            Self::Clean if is_stale => Self::NeedSync,
            Self::Clean => Self::Clean,
            Self::CleanUnwritten if !is_stale => Self::CleanUnwritten,
            _ => Self::Unwritten,
        }
    }
}
