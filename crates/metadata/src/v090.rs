//! Superblock 0.90: 4096 bytes in the order of the machine that wrote them, 64 KiB to 128 KiB
//! before the end of the member.
//!
//! Nothing in it states the byte order, so the magic decides; [`Superblock::order`] keeps what
//! was found and [`Superblock::encode`] writes the same. Every word is kept, also reserved ones:
//! encoding what was parsed gives the same bytes, but for a checksum that was stored folded.
//!
//! Field names, offsets and meanings: the kernel's `include/uapi/linux/raid/md_p.h`. Its pairs
//! `events_hi`/`events_lo` and `cp_events_hi`/`cp_events_lo` are ordered such that each pair is
//! one 64-bit integer of the machine, and are one here.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use lapstrake_geometry::Slot;

use crate::error::SuperblockError;
use crate::superblock::MAGIC;
use crate::wire::{ByteOrder, Field, on_disk};
use crate::{Device, Role, Version};

/// Entries of `disks`.
pub const MAX_DISKS: usize = Version::V090.max_members() as usize;

/// Sectors from the superblock to the bitmap.
pub const BITMAP_DISTANCE: u64 = 8;
/// Most sectors that the bitmap may take.
pub const BITMAP_SECTORS: u64 = 120;

/// Bits of `state` in a superblock.
pub mod state {
    /// All stripes are in sync and no write is under way.
    pub const CLEAN: u32 = 1;
    /// Set by very old kernels.
    pub const ERRORS: u32 = 2;
    /// Shared by the nodes of a cluster.
    pub const CLUSTERED: u32 = 1 << 5;
    /// A bitmap follows the superblock.
    pub const BITMAP_PRESENT: u32 = 1 << 8;
}

/// Bits of `state` in an entry of `disks`.
pub mod disk_state {
    /// Failed.
    pub const FAULTY: u32 = 1;
    /// Holds a slot.
    pub const ACTIVE: u32 = 1 << 1;
    /// In sync.
    pub const SYNC: u32 = 1 << 2;
    /// Not there.
    pub const REMOVED: u32 = 1 << 3;
    /// Read from it only when there is no other.
    pub const WRITE_MOSTLY: u32 = 1 << 9;
    /// Do not retry on it.
    pub const FAILFAST: u32 = 1 << 10;
}

on_disk! {
    /// An entry of the table of disks.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Disk {
        /// Its own index in the table.
        0 number: u32,
        /// Device number when last seen; md does not rely on it.
        4 major: u32,
        /// Device number when last seen.
        8 minor: u32,
        /// Slot, or the index again for what has none.
        12 raid_disk: u32,
        /// See [`disk_state`].
        16 state: u32,
        /// 0.
        20 reserved: [u32; 27],
        = 128
    }
}

impl Field for Disk {
    const SIZE: usize = Disk::SIZE;
    fn get(bytes: &[u8], order: ByteOrder) -> Self {
        Self::decode(bytes.first_chunk().expect("SIZE bytes"), order)
    }
    fn put(&self, bytes: &mut [u8], order: ByteOrder) {
        self.encode_into(bytes.first_chunk_mut().expect("SIZE bytes"), order);
    }
}

on_disk! {
    /// A superblock of version 0.90 (or 0.91, while the array is reshaped) of one member.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Superblock {
        /// [`MAGIC`].
        0 md_magic: u32,
        /// 0.
        4 major_version: u32,
        /// 90, or 91 during a reshape.
        8 minor_version: u32,
        /// 0.
        12 patch_version: u32,
        /// Not used.
        16 gvalid_words: u32,
        /// First word of the array's UUID.
        20 set_uuid0: u32,
        /// Creation, seconds since 1970.
        24 ctime: u32,
        /// -1 linear, 0, 1, 4, 5, 6, 10.
        28 level: i32,
        /// KiB used of each member.
        32 size: u32,
        /// Entries of `disks` in use.
        36 nr_disks: u32,
        /// Number of slots.
        40 raid_disks: u32,
        /// The N of /dev/mdN.
        44 md_minor: u32,
        /// 0.
        48 not_persistent: u32,
        /// Second word of the UUID.
        52 set_uuid1: u32,
        /// Third word; with a home host from its SHA-1.
        56 set_uuid2: u32,
        /// Fourth word; with a home host from its SHA-1.
        60 set_uuid3: u32,
        /// 0.
        64 gstate_creserved: [u32; 16],
        /// Last update, seconds since 1970.
        128 utime: u32,
        /// See [`state`].
        132 state: u32,
        /// Members in sync.
        136 active_disks: u32,
        /// Members in sync and spares.
        140 working_disks: u32,
        /// Members failed or missing.
        144 failed_disks: u32,
        /// Spares.
        148 spare_disks: u32,
        /// See [`checksum`]; set by [`Superblock::encode`].
        152 sb_csum: u32,
        /// Updates so far.
        156 events: u64,
        /// `events` when `recovery_cp` was set; if they differ, it does not count.
        164 cp_events: u64,
        /// Sectors in sync.
        172 recovery_cp: u32,
        /// From here to `new_chunk` only in version 0.91. Array sectors that were reshaped.
        176 reshape_position: u64,
        /// The level to come.
        184 new_level: i32,
        /// Change in the number of slots.
        188 delta_disks: i32,
        /// The layout to come.
        192 new_layout: u32,
        /// The chunk to come, bytes.
        196 new_chunk: u32,
        /// 0.
        200 gstate_sreserved: [u32; 14],
        /// The level's layout.
        256 layout: u32,
        /// Bytes.
        260 chunk_size: u32,
        /// Not used.
        264 root_pv: u32,
        /// Not used.
        268 root_block: u32,
        /// 0.
        272 pstate_reserved: [u32; 60],
        /// Every device of the array.
        512 disks: [Disk; MAX_DISKS],
        /// Copy of the own entry.
        3968 this_disk: Disk,
        = 4096
    }
    beside {
        /// The byte order on disk.
        order: ByteOrder,
        /// Sector where the superblock lies on its member.
        sb_start: u64,
    }
}

/// The bytes in which every kernel writes zeros.
pub(crate) fn reserved() -> impl Iterator<Item = Range<usize>> {
    let of_disk = |i: usize| 512 + i * Disk::SIZE + 20..512 + (i + 1) * Disk::SIZE;
    // The last one is `this_disk`.
    [64..128, 200..256, 272..512].into_iter().chain((0..=MAX_DISKS).map(of_disk))
}

/// md's sum over a 0.90 superblock in byte order `order`, with the checksum itself taken as 0.
pub fn checksum(bytes: &[u8; 4096], order: ByteOrder) -> u32 {
    let words = bytes.chunks_exact(4).enumerate().filter(|(i, _)| *i != 38);
    let sum: u64 = words.map(|(_, word)| u64::from(u32::get(word, order))).sum();
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

/// The kernel compares checksums only after adding their halves; some architectures stored them
/// so.
fn folded(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

impl Superblock {
    /// A superblock of version 0.90 in which nothing else is said.
    pub(crate) fn empty(order: ByteOrder) -> Self {
        let mut sb = Self::decode(&[0; Self::SIZE], order, order, 0);
        (sb.md_magic, sb.minor_version) = (MAGIC, 90);
        sb
    }

    /// Reads a superblock found at sector `at` of a member; the magic decides the byte order.
    ///
    /// The checks are the kernel's (`super_90_load`), and that the fields are within the format.
    pub fn parse(bytes: &[u8], at: u64) -> Result<Self, SuperblockError> {
        let bytes: &[u8; 4096] = bytes
            .first_chunk()
            .ok_or(SuperblockError::Truncated { found: bytes.len(), needed: 4096 })?;
        let found = u32::get(&bytes[..4], ByteOrder::Little);
        let order = match found {
            MAGIC => ByteOrder::Little,
            _ if found.swap_bytes() == MAGIC => ByteOrder::Big,
            _ => return Err(SuperblockError::Magic { found }),
        };
        let sb = Self::decode(bytes, order, order, at);
        if sb.major_version != 0 {
            return Err(SuperblockError::MajorVersion { found: sb.major_version });
        }
        if !(90..=91).contains(&sb.minor_version) {
            return Err(SuperblockError::MinorVersion { found: sb.minor_version });
        }
        let computed = checksum(bytes, order);
        if folded(sb.sb_csum) != folded(computed) {
            return Err(SuperblockError::Checksum { stored: sb.sb_csum, computed });
        }
        if sb.raid_disks == 0 {
            return Err(SuperblockError::Field { field: "raid_disks", found: 0 });
        }
        let max = MAX_DISKS as u32;
        for found in [sb.raid_disks, sb.nr_disks] {
            if found > max {
                return Err(SuperblockError::TooManyDevices { found, max });
            }
        }
        if sb.this_disk.number >= max {
            return Err(SuperblockError::ThisDisk { found: sb.this_disk.number });
        }
        Ok(sb)
    }

    /// The 4096 bytes to write at `sb_start`, with the right checksum, in the order it was read.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::SIZE];
        let fixed: &mut [u8; 4096] = bytes.as_mut_slice().try_into().expect("SIZE bytes");
        self.encode_into(fixed, self.order);
        let sum = checksum(fixed, self.order);
        sum.put(&mut fixed[152..156], self.order);
        bytes
    }

    /// The array's UUID in the order that mdadm prints it: word by word, each most significant
    /// byte first, whatever the order on disk.
    pub fn set_uuid(&self) -> [u8; 16] {
        let mut uuid = [0; 16];
        let words = [self.set_uuid0, self.set_uuid1, self.set_uuid2, self.set_uuid3];
        for (word, place) in words.iter().zip(uuid.chunks_exact_mut(4)) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        uuid
    }

    /// Sets the array's UUID from the order that mdadm prints.
    pub fn set_set_uuid(&mut self, uuid: [u8; 16]) {
        let mut words = uuid.chunks_exact(4).map(|w| u32::get(w, ByteOrder::Big));
        let mut next = || words.next().expect("four words");
        (self.set_uuid0, self.set_uuid1) = (next(), next());
        (self.set_uuid2, self.set_uuid3) = (next(), next());
    }

    /// The role of entry `number`; what is not in the table is a spare.
    ///
    /// As in the kernel only a member that is in sync has a slot, save during a reshape.
    pub fn role_of(&self, number: u32) -> Role {
        use disk_state::{ACTIVE, FAULTY, SYNC};
        let Some(disk) = self.disks.get(number as usize) else { return Role::Spare };
        let in_slot = disk.raid_disk < self.raid_disks;
        if disk.state & FAULTY != 0 {
            Role::Faulty
        } else if in_slot
            && (disk.state & SYNC != 0 || disk.state & ACTIVE != 0 && self.minor_version > 90)
        {
            Role::Active(Slot(disk.raid_disk as u16))
        } else {
            Role::Spare
        }
    }

    /// Sets the role of entry `number`, and the counts. See [`crate::Superblock::set_role_of`].
    ///
    /// # Panics
    /// If `number` is not in the table, or `role` is the journal's.
    pub fn set_role_of(&mut self, number: u32, role: Role) {
        use disk_state::{ACTIVE, FAULTY, REMOVED, SYNC};
        let is_slot = number < self.raid_disks;
        let disk = &mut self.disks[number as usize];
        *disk = match role {
            Role::Active(Slot(slot)) => {
                Disk { number, raid_disk: slot.into(), state: ACTIVE | SYNC, ..*disk }
            }
            Role::Spare if !disk.is_used() => return,
            Role::Spare => Disk { number, raid_disk: number, state: 0, ..*disk },
            Role::Faulty if is_slot => Disk::missing(number),
            Role::Faulty => {
                Disk { number, raid_disk: number, state: FAULTY | REMOVED, ..Disk::default() }
            }
            Role::Journal | Role::Unknown(_) => panic!("0.90 has no such role"),
        };
        if number == self.this_disk.number {
            self.this_disk = *disk;
        }
        self.recount();
    }

    /// Fills the whole table, and numbers the devices anew, as the kernel does at every update
    /// (`super_90_sync`): a member in sync has its slot for a number, all others follow behind
    /// the slots. `own` is this member's index in `devices`. Device numbers (`major`, `minor`)
    /// and flags stay with the device. Faulty ones for which no entry is left go without.
    ///
    /// # Panics
    /// If there are more devices that are not faulty than the table has entries, or a journal.
    pub fn set_roles(&mut self, devices: &[Device], own: usize) {
        use disk_state::{ACTIVE, FAILFAST, FAULTY, REMOVED, SYNC, WRITE_MOSTLY};
        let old = core::mem::replace(&mut self.disks, [Disk::default(); MAX_DISKS]);
        // So the kernel does; it stays if nobody has slot 0.
        self.disks[0].state = REMOVED;
        let mut next = self.raid_disks;
        let holds = |device: &Device| device.in_sync || self.minor_version > 90;
        let follows = |device: &&Device| match device.role {
            Role::Active(_) => !holds(device),
            role => role == Role::Spare,
        };
        let taken = self.raid_disks as usize + devices.iter().filter(follows).count();
        let mut left = MAX_DISKS.saturating_sub(taken);
        for (i, device) in devices.iter().enumerate() {
            if device.role == Role::Faulty {
                if left == 0 {
                    continue;
                }
                left -= 1;
            }
            let holds = holds(device);
            let (number, state) = match device.role {
                Role::Active(Slot(slot)) if holds => {
                    (slot.into(), if device.in_sync { ACTIVE | SYNC } else { ACTIVE })
                }
                Role::Journal | Role::Unknown(_) => panic!("0.90 has no such role"),
                Role::Faulty => (next, FAULTY),
                Role::Active(_) | Role::Spare => (next, 0),
            };
            next += u32::from(number == next);
            let known = old.get(device.number as usize).copied().unwrap_or_default();
            let entry = &mut self.disks[number as usize];
            *entry = Disk { number, raid_disk: number, ..known };
            entry.state = state | known.state & (WRITE_MOSTLY | FAILFAST);
            if i == own {
                self.this_disk = *entry;
            }
        }
        for number in 0..self.raid_disks {
            let disk = &mut self.disks[number as usize];
            if disk.state == 0 && disk.number == 0 {
                *disk = Disk::missing(number);
            }
        }
        self.recount();
    }

    /// Recounts `nr_disks`, `active_disks`, `working_disks`, `failed_disks` and `spare_disks`
    /// from the table, as the kernel counts: of what failed only the slots that nobody holds.
    fn recount(&mut self) {
        use disk_state::{ACTIVE, FAULTY, REMOVED};
        (self.nr_disks, self.active_disks, self.working_disks) = (0, 0, 0);
        (self.failed_disks, self.spare_disks) = (0, 0);
        for disk in &self.disks {
            if disk.state & (FAULTY | REMOVED) == FAULTY | REMOVED {
                self.failed_disks += u32::from(disk.number < self.raid_disks);
            }
            if !disk.is_used() {
                continue;
            }
            self.nr_disks += 1;
            if disk.state & FAULTY != 0 {
                continue;
            }
            self.working_disks += 1;
            if disk.state & ACTIVE != 0 {
                self.active_disks += 1;
            } else {
                self.spare_disks += 1;
            }
        }
    }
}

impl Disk {
    /// A slot that nobody holds.
    fn missing(number: u32) -> Self {
        let state = disk_state::FAULTY | disk_state::REMOVED;
        Self { number, raid_disk: number, state, ..Self::default() }
    }

    /// Whether a device is entered here.
    fn is_used(&self) -> bool {
        self.state & disk_state::REMOVED == 0
            && (self.state != 0 || self.number != 0 || self.major != 0 || self.minor != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Number, slot and state of every entry in use, and the counts.
    fn table(sb: &Superblock) -> (Vec<(u32, u32, u32)>, [u32; 5]) {
        let used = sb.disks.iter().filter(|disk| **disk != Disk::default());
        let table = used.map(|disk| (disk.number, disk.raid_disk, disk.state)).collect();
        let counts = [sb.active_disks, sb.working_disks, sb.failed_disks, sb.spare_disks];
        (table, [sb.nr_disks, counts[0], counts[1], counts[2], counts[3]])
    }

    fn device(role: Role) -> Device {
        Device { number: 0, role, in_sync: true }
    }

    /// As a kernel 6.1 wrote it for a raid5 of 4 with one failed member, still listed, and
    /// another being recovered.
    #[test]
    fn the_table_is_the_kernels_during_a_recovery() {
        let mut sb = Superblock::empty(ByteOrder::Little);
        sb.raid_disks = 4;
        let slot = |slot| device(Role::Active(Slot(slot)));
        let recovering = Device { in_sync: false, ..slot(1) };
        let devices = [recovering, slot(3), slot(0), slot(2), device(Role::Faulty)];
        sb.set_roles(&devices, 0);
        let expected = [(0, 0, 6), (1, 1, 9), (2, 2, 6), (3, 3, 6), (4, 4, 0), (5, 5, 1)].to_vec();
        assert_eq!(table(&sb), (expected, [5, 3, 4, 1, 1]));
        assert_eq!((sb.this_disk.number, sb.role_of(4)), (4, Role::Spare));
        sb.set_roles(&devices, 2);
        assert_eq!((sb.this_disk.number, sb.role_of(0)), (0, Role::Active(Slot(0))));
    }

    /// What would be lost: the server, when a member of an array with 25 spares fails.
    #[test]
    fn faulty_devices_give_way_when_the_table_is_full() {
        let mut sb = Superblock::empty(ByteOrder::Little);
        sb.raid_disks = 2;
        let faulty = device(Role::Faulty);
        let recovering = Device { in_sync: false, ..device(Role::Active(Slot(0))) };
        let mut devices = [device(Role::Spare); MAX_DISKS].to_vec();
        devices.splice(..3, [faulty, device(Role::Active(Slot(1))), recovering]);
        sb.set_roles(&devices, 26);
        assert_eq!((sb.this_disk.number, sb.nr_disks), (26, 26));
        devices.pop();
        sb.set_roles(&devices, 1);
        let faulty = sb.disks.iter().filter(|disk| disk.state == disk_state::FAULTY).count();
        assert_eq!((sb.nr_disks, faulty), (26, 1));
    }

    /// As a kernel 6.1 wrote it for a raid1 of 3 whose first members failed: nobody counts
    /// slot 0.
    #[test]
    fn slot_0_is_no_failed_one_when_nobody_has_it() {
        let mut sb = Superblock::empty(ByteOrder::Little);
        sb.raid_disks = 3;
        let faulty = device(Role::Faulty);
        sb.set_roles(&[device(Role::Active(Slot(2))), faulty, faulty], 0);
        let expected = [(0, 0, 8), (1, 1, 9), (2, 2, 6), (3, 3, 1), (4, 4, 1)].to_vec();
        assert_eq!(table(&sb), (expected, [3, 1, 1, 1, 0]));
    }
}
