//! What superblocks say of an array that is grown, or shrunk, without a block being moved.

use crate::Superblock;
use lapstrake_geometry::Sectors;

impl Superblock {
    /// Says that the array uses so much of each member. 0.90 counts in KiB.
    pub fn set_component(&mut self, component: Sectors) {
        match self {
            Self::V090(sb) => sb.size = (component.0 / 2) as u32,
            Self::V1(sb) => sb.size = component.0,
        }
    }

    /// Says that the array has so many slots.
    pub fn set_raid_disks(&mut self, raid_disks: u16) {
        match self {
            Self::V090(sb) => sb.raid_disks = raid_disks.into(),
            Self::V1(sb) => sb.raid_disks = raid_disks.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::create::{CreateRequest, NewMember, plan};
    use alloc::vec;
    use lapstrake_geometry::{Level, Version};

    fn made(version: Version) -> Superblock {
        let member = NewMember { size: Sectors(1 << 16), ..NewMember::default() };
        let request = CreateRequest {
            version,
            size: Some(Sectors(1 << 14)),
            assume_clean: true,
            ..CreateRequest::new(Level::Raid1, vec![Some(member); 2])
        };
        plan(&request, |buf| buf.fill(7)).expect("a plan").members[0].superblock.clone()
    }

    #[test]
    fn a_superblock_says_what_it_is_told_in_every_version() {
        for version in [Version::V090, Version::V1_0, Version::V1_1, Version::V1_2] {
            let mut sb = made(version);
            sb.set_component(Sectors(30000));
            sb.set_raid_disks(3);
            assert_eq!((sb.component(), sb.raid_disks()), (Sectors(30000), 3), "{version:?}");
        }
    }
}
