//! From 0.90 to 1.0: the data stay where they are, the superblock comes closer to the member's end.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use lapstrake_geometry::Sectors;

use super::{Refused, Subject, Write, holds_slot, zeroed};
use crate::v1::{self, MAX_SECTOR, role};
use crate::v090::{self, disk_state};
use crate::{Superblock, Version};

/// Superblocks of 1.0 begin with no events, whatever those of 0.90 had.
pub(super) fn check_alike(members: &[Subject<'_>]) -> Result<(), Refused> {
    let slots = || members.iter().map(|member| member.superblock).filter(|sb| holds_slot(sb));
    let all = slots().next().map(Superblock::events);
    match slots().all(|sb| Some(sb.events()) == all) {
        true => Ok(()),
        false => Err(Refused::Events),
    }
}

/// The superblock of 1.0 that mdadm makes of one of 0.90, and zeros over that.
pub(super) fn to_v1_0(member: &Subject<'_>, sb: &v090::Superblock) -> Result<Vec<Write>, Refused> {
    if sb.state & v090::state::BITMAP_PRESENT != 0 {
        return Err(Refused::Excluded { by: "a write-intent bitmap" });
    }
    if sb.state != v090::state::CLEAN {
        return Err(Refused::Unclean { what: "superblocks" });
    }
    let no_room = |_| Refused::NoRoom { what: "a superblock 1.0" };
    let sector = Version::V1_0.superblock(member.size).map_err(no_room)?;
    let mut new = v1::Superblock::empty();
    new.set_uuid = sb.set_uuid();
    let name = format!("{}", sb.md_minor);
    new.set_name[..name.len()].copy_from_slice(name.as_bytes());
    new.ctime = u64::from(sb.ctime) + 1;
    (new.level, new.layout) = (sb.level, sb.layout);
    new.size = Sectors::from_kib(sb.size.into()).0;
    (new.chunksize, new.raid_disks) = (sb.chunk_size / 512, sb.raid_disks);
    new.data_size = if sb.level > 0 { new.size } else { sb.sb_start };
    new.resync_offset = MAX_SECTOR;
    new.super_offset = sector.0;
    new.dev_number = sb.this_disk.number;
    new.utime = sb.utime.into();
    new.device_uuid = member.device_uuid;
    new.dev_roles = sb.disks.iter().map(role_of).collect();
    new.max_dev = new.dev_roles.len() as u32;
    let old = zeroed(Version::V090, member.superblock.super_sector());
    Ok(vec![Write { sector, bytes: new.encode() }, old])
}

fn role_of(disk: &v090::Disk) -> u16 {
    match disk.state & (disk_state::SYNC | disk_state::FAULTY) {
        disk_state::SYNC => disk.raid_disk as u16,
        _ => role::SPARE,
    }
}
