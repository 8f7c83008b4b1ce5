//! Puts what was decided into superblocks, and these into bytes.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use lapstrake_geometry::size::{self, Member};
use lapstrake_geometry::{Layout, Level, Raid0Layout, Sectors};
use sha1::{Digest, Sha1};

use super::numbering::Numbered;
use super::{BitmapChoice, CreateRequest, Decided, MemberPlan, NewMember, Policy, Write};
use crate::journal::{Meta, Seed};
use crate::v1::{self, feature};
use crate::wire::{ByteOrder, Field};
use crate::{MAGIC, Role, Superblock, Version, bitmap, ppl, v090};

/// The array's UUID. In 0.90 its last half is from the home host, unless the UUID was given.
pub(super) fn set_uuid(request: &CreateRequest, random: &mut impl FnMut(&mut [u8])) -> [u8; 16] {
    let mut uuid = [0; 16];
    match (request.set_uuid, &request.homehost, request.version) {
        (Some(given), ..) => uuid = given,
        (None, Some(host), Version::V090) => {
            random(&mut uuid[..8]);
            uuid[8..].copy_from_slice(&home_words(host));
        }
        _ => random(&mut uuid),
    }
    uuid
}

/// The last half of a 0.90 UUID, as it is printed: the home host's.
pub(crate) fn home_words(host: &str) -> [u8; 8] {
    let mut words = [0; 8];
    // The hash goes into the words as it is, and words print most significant first.
    let hash = Sha1::digest(host.as_bytes());
    for (place, part) in words.chunks_exact_mut(4).zip(hash.chunks_exact(4)) {
        let word = u32::get(part, ByteOrder::Little);
        word.put(place, ByteOrder::Big);
    }
    words
}

/// The array's UUID as its bitmap holds it.
pub(super) fn bitmap_uuid(decided: &Decided<'_>) -> [u8; 16] {
    let mut uuid = decided.set_uuid;
    if decided.request.version == Version::V090 {
        uuid.chunks_exact_mut(4).for_each(<[u8]>::reverse);
    }
    uuid
}

/// Every member that is there.
pub(super) fn members(
    decided: &Decided<'_>,
    sync_size: Sectors,
    random: &mut impl FnMut(&mut [u8]),
) -> Vec<MemberPlan> {
    let request = decided.request;
    let mut template = match request.version {
        Version::V090 => Superblock::V090(template_v090(decided)),
        _ => Superblock::V1(template_v1(decided)),
    };
    let bitmap = decided.bitmap.map(|place| {
        let uuid = bitmap_uuid(decided);
        let (new, bytes) = match request.bitmap {
            // The states come with the first start.
            BitmapChoice::Lockless => {
                let clean = request.assume_clean;
                (bitmap::Superblock::new_lockless(uuid, sync_size, clean), 4096)
            }
            _ => {
                let bytes = place.sectors.bytes() as usize;
                (bitmap::Superblock::new(uuid, sync_size, place.chunk), bytes)
            }
        };
        bitmap::Superblock { write_behind: request.write_behind, ..new }.dirty_image(bytes)
    });
    if let Superblock::V1(sb) = &mut template {
        for device in decided.numbering.devices.iter().flatten() {
            if let Role::Active(slot) = device.role {
                sb.dev_roles[device.number as usize] = slot.0;
            }
        }
    }
    if let (Superblock::V1(sb), Some(number)) = (&mut template, decided.numbering.journal) {
        sb.dev_roles[number as usize] = v1::role::JOURNAL;
    }
    let present = request.members.iter().zip(&decided.numbering.devices).enumerate();
    let present =
        present.filter_map(|(index, (member, device))| Some((index, (*member)?, (*device)?)));
    let mut plans: Vec<MemberPlan> = journal(decided, &template, random).into_iter().collect();
    plans.extend(present.map(|(index, member, device): (usize, NewMember, Numbered)| {
        let place = decided.places[index].as_ref().expect("placed, being there");
        let mut superblock = placed(&template, device.number, place, random);
        if let (Superblock::V1(sb), true) = (&mut superblock, member.write_mostly) {
            sb.devflags |= v1::devflag::WRITE_MOSTLY;
        }
        MemberPlan { index, writes: writes(&superblock, bitmap.as_deref()), superblock }
    }));
    plans
}

/// A device's superblock.
fn placed(
    template: &Superblock,
    number: u32,
    place: &Member,
    random: &mut impl FnMut(&mut [u8]),
) -> Superblock {
    match template {
        Superblock::V090(sb) => {
            let mut sb = sb.clone();
            sb.this_disk = sb.disks[number as usize];
            sb.sb_start = place.superblock.0;
            Superblock::V090(sb)
        }
        Superblock::V1(sb) => {
            let mut sb = sb.clone();
            sb.dev_number = number;
            sb.super_offset = place.superblock.0;
            sb.data_offset = place.data_offset.0;
            sb.data_size = place.data_size.0;
            if let Some(offset) = place.bad_block_log {
                sb.bblog_offset = offset;
                sb.bblog_size = size::BAD_BLOCK_LOG.0 as u16;
            }
            if let Some(offset) = place.ppl {
                sb.set_ppl(offset as i16, size::PPL_SPACE.0 as u16);
            }
            random(&mut sb.device_uuid);
            Superblock::V1(sb)
        }
    }
}

/// The journal: an empty block at its beginning, where the superblock says that the log begins.
fn journal(
    decided: &Decided<'_>,
    template: &Superblock,
    random: &mut impl FnMut(&mut [u8]),
) -> Option<MemberPlan> {
    let (place, number) = (decided.journal.as_ref()?, decided.numbering.journal?);
    let superblock = placed(template, number, place, random);
    let mut seq = [0; 4];
    random(&mut seq);
    let seq = u32::from_le_bytes(seq).into();
    let block = Meta { seq, position: 0, payloads: Vec::new() };
    let bytes = block.encode(Seed::new(decided.set_uuid));
    let mut writes = writes(&superblock, None);
    writes.insert(0, Write { sector: place.data_offset, bytes });
    Some(MemberPlan { index: decided.request.members.len(), superblock, writes })
}

fn writes(superblock: &Superblock, bitmap: Option<&[u8]>) -> Vec<Write> {
    let mut writes = vec![];
    if let (Some(bitmap), Some(sector)) = (bitmap, superblock.bitmap_sector()) {
        writes.push(Write { sector, bytes: bitmap.to_vec() });
    }
    if let Some((sector, shape)) = superblock.ppl() {
        writes.push(Write { sector, bytes: ppl::empty_area(shape, superblock.set_uuid()) });
    }
    writes.push(Write { sector: superblock.super_sector(), bytes: superblock.encode() });
    writes
}

/// "host:name" if it fits and the name has no host yet, else what fits of the name.
fn set_name(request: &CreateRequest) -> [u8; 32] {
    let name = &request.name;
    let full = match &request.homehost {
        Some(host) if !name.contains(':') && host.len() + 1 + name.len() < 32 => {
            format!("{host}:{name}")
        }
        _ => name.clone(),
    };
    let mut set_name = [0; 32];
    let len = full.len().min(31);
    set_name[..len].copy_from_slice(&full.as_bytes()[..len]);
    set_name
}

/// The part of a 1.x superblock that all members share, and their roles.
fn template_v1(decided: &Decided<'_>) -> v1::Superblock {
    let Decided { request, numbering, bitmap, .. } = decided;
    let mut feature_map = 0;
    if bitmap.is_some() {
        feature_map |= feature::BITMAP_OFFSET;
    }
    if request.policy == Some(Policy::Ppl) {
        feature_map |= feature::PPL;
    }
    if numbering.journal.is_some() {
        feature_map |= feature::JOURNAL;
    }
    // As mdadm 4.6 on Linux 5.4 and newer; 4.2 does so only where members' sizes differ.
    let has_layout = decided.layout != Layout::Raid0(Raid0Layout::Unset);
    if request.level == Level::Raid0 && has_layout {
        feature_map |= feature::RAID0_LAYOUT;
    }
    // Whole sectors for as many as there are, or one more than the highest number.
    let listed = u32::from(request.raid_disks) + (numbering.working - numbering.active);
    let listed = (v1::Superblock::SIZE as u32 + 2 * listed).next_multiple_of(512) / 2 - 128;
    let numbers = numbering.devices.iter().flatten().map(|device| device.number + 1);
    let numbers = numbers.chain(numbering.journal.map(|number| number + 1));
    let max_dev = numbers.fold(listed, u32::max).min(v1::MAX_DEV);
    v1::Superblock {
        magic: MAGIC,
        major_version: 1,
        feature_map,
        pad0: 0,
        set_uuid: decided.set_uuid,
        set_name: set_name(request),
        ctime: request.ctime & 0xff_ffff_ffff,
        level: request.level.to_md(),
        layout: decided.layout.to_md(),
        size: decided.component.0,
        chunksize: decided.chunk.0 as u32,
        raid_disks: request.raid_disks.into(),
        bitmap_offset: bitmap.map_or(0, |place| place.offset),
        new_level: 0,
        reshape_position: 0,
        delta_disks: 0,
        new_layout: 0,
        new_chunk: 0,
        new_offset: 0,
        data_offset: 0,
        data_size: 0,
        super_offset: 0,
        recovery_offset: 0,
        dev_number: 0,
        cnt_corrected_read: 0,
        device_uuid: [0; 16],
        devflags: 0,
        bblog_shift: 0,
        bblog_size: 0,
        bblog_offset: 0,
        utime: request.ctime & 0xff_ffff_ffff,
        events: 0,
        resync_offset: if numbering.clean { v1::MAX_SECTOR } else { 0 },
        sb_csum: 0,
        max_dev,
        logical_block_size: request.logical_block_size.unwrap_or(0),
        pad3: [0; 28],
        minor_version: match request.version {
            Version::V1_1 => 1,
            Version::V1_2 => 2,
            _ => 0,
        },
        dev_roles: vec![v1::role::SPARE; max_dev as usize],
    }
}

/// The part of a 0.90 superblock that all members share, which is nearly all.
fn template_v090(decided: &Decided<'_>) -> v090::Superblock {
    let Decided { request, numbering, .. } = decided;
    let mut sb = v090::Superblock::empty(ByteOrder::Little);
    sb.ctime = request.ctime as u32;
    sb.level = request.level.to_md();
    sb.size = (decided.component.0 / 2) as u32;
    sb.nr_disks = numbering.working + numbering.failed;
    sb.raid_disks = request.raid_disks.into();
    sb.md_minor = request.md_minor;
    sb.set_set_uuid(decided.set_uuid);
    sb.utime = sb.ctime;
    if numbering.clean {
        sb.state |= v090::state::CLEAN;
    }
    if decided.bitmap.is_some() {
        sb.state |= v090::state::BITMAP_PRESENT;
    }
    sb.active_disks = numbering.active;
    sb.working_disks = numbering.working;
    sb.failed_disks = numbering.failed;
    sb.spare_disks = numbering.spare;
    sb.events = 1;
    sb.layout = decided.layout.to_md();
    sb.chunk_size = (decided.chunk.0 * 512) as u32;
    for (member, device) in request.members.iter().zip(&numbering.devices) {
        let (Some(member), Some(device)) = (member, device) else { continue };
        let in_sync = v090::disk_state::ACTIVE | v090::disk_state::SYNC;
        let mostly = if member.write_mostly { v090::disk_state::WRITE_MOSTLY } else { 0 };
        sb.disks[device.number as usize] = v090::Disk {
            number: device.number,
            major: member.device.0,
            minor: member.device.1,
            raid_disk: device.raid_disk,
            state: mostly | if matches!(device.role, Role::Active(_)) { in_sync } else { 0 },
            reserved: [0; 27],
        };
    }
    sb
}
