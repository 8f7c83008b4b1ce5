//! What a device is in its array.

use core::fmt;

use lapstrake_geometry::Slot;

/// The role that a superblock gives to a device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Holds a slot. It may still be under recovery: see
    /// [`crate::Superblock::recovery_offset`].
    Active(Slot),
    /// Waits for a member to fail; also what unused device numbers of 1.x have.
    Spare,
    /// Failed, or missing.
    Faulty,
    /// The journal.
    Journal,
    /// None that md writes: neither a slot of the array nor one of the words for the others. The kernel takes such a
    /// device for a spare, and so writes over it; some NAS mark a member that they dropped in this way.
    Unknown(u16),
}

impl Role {
    /// The slot that an unknown role may stand for: a NAS sets the highest bit beside the slot's number.
    #[must_use]
    pub fn perhaps(self, raid_disks: u16) -> Option<Slot> {
        match self {
            Self::Unknown(word) => Some(Slot(word & 0x7fff)).filter(|slot| slot.0 < raid_disks),
            _ => None,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Active(Slot(slot)) => write!(f, "active device {slot}"),
            Self::Spare => f.pad("spare"),
            Self::Faulty => f.pad("faulty"),
            Self::Journal => f.pad("journal"),
            Self::Unknown(word) => write!(f, "unknown role {word:#06x}"),
        }
    }
}

/// One device of an array, for [`crate::Superblock::set_roles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Device {
    /// Its device number so far.
    pub number: u32,
    /// Its role.
    pub role: Role,
    /// Whether a member that holds a slot has all its data; false while it is recovered.
    pub in_sync: bool,
}
