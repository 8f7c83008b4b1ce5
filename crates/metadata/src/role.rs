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
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Active(Slot(slot)) => write!(f, "active device {slot}"),
            Self::Spare => f.pad("spare"),
            Self::Faulty => f.pad("faulty"),
            Self::Journal => f.pad("journal"),
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
