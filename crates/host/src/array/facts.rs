//! What is known of an array at its start.

use super::{Facts, MemberFact, Options, Parts, bad_bytes, file_of, shares};
use crate::{cache::CacheTerms, memory, scope::EventScope, status::tuning};
use lapstrake_array::start::After;
use lapstrake_control::{
    ArrayState, BitmapLocation, ConsistencyPolicy, Detail, MemberDetail, MemberState, MemberWork,
    MemoryDetail, ReshapeDetail, WorkDetail,
};
use lapstrake_device::{Member, quoted};
use lapstrake_engine::FULLY_TRUSTED;
use lapstrake_geometry::{Geometry, Layout, Sector, Sectors};
use lapstrake_metadata::{Role, Superblock, uuid_text};
use std::sync::{Arc, OnceLock};

/// What is known of the members at the start.
fn member_details(parts: &Parts) -> Vec<MemberDetail> {
    let members = &parts.plan.members;
    let records = members.iter().map(|member| (&member.device, &member.record));
    records
        .enumerate()
        .map(|(index, (device, record))| MemberDetail {
            path: device.spec().to_string(),
            file: file_of(device).into(),
            number: record.superblock.dev_number(),
            slot: record.slot.map(|slot| slot.0),
            state: match record.slot {
                None if record.superblock.role() == Role::Journal => MemberState::Journal,
                None => MemberState::Spare,
                Some(_) if members[..index].iter().any(|m| m.record.slot == record.slot) => {
                    MemberState::Replacement
                }
                Some(_) if record.trusted_to == FULLY_TRUSTED => MemberState::InSync,
                Some(_) => MemberState::Recovering,
            },
            recovered_bytes: Some(record.trusted_to)
                .filter(|&to| record.slot.is_some() && to != FULLY_TRUSTED)
                .map(|to| to.0 * 512),
            bad_block_bytes: bad_bytes(record, &parts.plan.geometry),
            write_mostly: record.superblock.write_mostly(),
            awaits_replacement: false,
            direct: device.direct(),
            deleted: false,
            array: None,
            work: MemberWork::default(),
        })
        .collect()
}

fn layout_name(geometry: &Geometry, sb: &Superblock) -> Option<String> {
    let has_layout = !matches!(geometry, Geometry::Linear(_) | Geometry::Mirror(_));
    let layout = sb.layout().filter(|layout| has_layout && *layout != Layout::None);
    layout.map(|layout| layout.name().into_owned())
}

fn reshape(after: &After<Arc<Member>>) -> ReshapeDetail {
    let sb = after.plan.members[0].superblock();
    reshape_detail(&after.plan.geometry, sb, after.position, after.is_backwards)
}

/// What there is to say of a reshape to this geometry, which this superblock tells of.
pub(crate) fn reshape_detail(
    geometry: &Geometry,
    sb: &Superblock,
    position: Sector,
    is_backwards: bool,
) -> ReshapeDetail {
    ReshapeDetail {
        position_bytes: position.bytes(),
        is_backwards,
        level: geometry.level().to_string(),
        layout: layout_name(geometry, sb),
        chunk_bytes: sb.chunk().0 * 512,
        raid_devices: geometry.raid_disks(),
    }
}

/// The array as it is started.
fn detail(parts: &Parts, options: &Options) -> Detail {
    let plan = &parts.plan;
    let sb = plan.members[0].superblock();
    let geometry = &plan.geometry;
    let redundant = geometry.level().has_redundancy();
    let shards = options.shards.max(1);
    Detail {
        name: parts.name.clone(),
        version: sb.version().to_string(),
        set_name: sb.name(),
        uuid: uuid_text(sb.set_uuid()),
        part: None,
        reshape: parts.after.as_ref().map(reshape),
        overlay: parts.overlay.as_ref().map(|path| path.display().to_string()),
        overlay_lost: false,
        creation_time: sb.ctime().0,
        update_time: sb.utime().0,
        level: geometry.level().to_string(),
        layout: layout_name(geometry, sb),
        chunk_bytes: sb.chunk().0 * 512,
        block_bytes: parts.block_bytes(),
        array_bytes: match parts.after {
            Some(_) => parts.bytes(),
            None => geometry.array_sectors().0 * 512,
        },
        component_bytes: match geometry.component() {
            Sectors::ZERO => sb.component().0 * 512,
            // Whole chunks, and of RAID10 whole rows of copies.
            used => used.0 * 512,
        },
        raid_devices: geometry.raid_disks(),
        state: vec![if options.read_only { ArrayState::ReadOnly } else { ArrayState::Clean }],
        preferred_minor: match sb {
            Superblock::V090(sb) => Some(sb.md_minor),
            Superblock::V1(_) => None,
        },
        events: sb.events(),
        consistency_policy: consistency_policy(sb, plan.bitmap.is_some(), redundant),
        bitmap_bits: plan.bitmap.as_ref().map(|i| (i.bits.count_set(), i.bits.count())),
        bitmap_place: plan
            .bitmap
            .as_ref()
            .map(|i| if i.external { BitmapLocation::External } else { BitmapLocation::Internal }),
        bitmap_file: parts.bitmap_file.as_deref().map(file_of),
        write_behind: plan.bitmap.as_ref().map_or(0, |i| i.superblock.write_behind),
        bitmap_chunk_bytes: plan.bitmap.as_ref().map(|i| i.superblock.chunk().bytes()),
        bitmap_states: plan.bitmap.as_ref().and_then(|i| i.bits.count_states()),
        awaits_lazy_resync: false,
        resync_from_bytes: plan.assembly.resync_from.map(|sector| sector.0 * 512),
        sync: None,
        last_sync: None,
        mismatch_sectors: 0,
        mismatches: Vec::new(),
        mismatches_omitted: 0,
        sync_speed_min_kib: options.sync_speed_min_kib,
        sync_speed_max_kib: options.sync_speed_max_kib,
        check_window: None,
        stripe_cache_size: CacheTerms::of(&parts.plan).size(options.stripe_cache_size),
        members: member_details(parts),
        backend: String::new(),
        shards,
        clients: 0,
        pid: None,
        exports: Vec::new(),
        tuning: tuning(
            geometry.level(),
            sb.layout().unwrap_or(Layout::None),
            geometry.raid_disks(),
            sb.chunk().bytes(),
            parts.bytes(),
        ),
        work: WorkDetail::default(),
        memory: MemoryDetail {
            buffers: (memory::bound(options.buffer_bytes, shares(options)) * shards) as u64,
            ..MemoryDetail::default()
        },
    }
}

pub(super) fn facts(
    parts: &Parts,
    options: &Options,
    takes_long_commands: bool,
    scope: EventScope,
) -> Facts {
    let detail = detail(parts, options);
    let plan = &parts.plan;
    let of = |device: &Arc<Member>| MemberFact::new(device, device.spec().names());
    let is_logged = plan.log_signature().is_some() || plan.replays;
    let cache = CacheTerms::of(parts.widest());
    Facts {
        name: quoted(&parts.name),
        has_control: options.has_control,
        is_logged,
        has_one_writer: is_logged || cache.behind_pages() > 0,
        cache,
        geometry: plan.geometry.clone(),
        members: plan.members.iter().map(|member| of(&member.device)).collect(),
        size: parts.bytes().into(),
        lending: parts.is_plain().into(),
        shows_part: OnceLock::new(),
        detail,
        takes_long_commands,
        scope,
        stopped_clean: OnceLock::new(),
    }
}

/// What keeps redundancy right over an unclean stop, in mdadm's words.
pub(crate) fn consistency_policy(
    superblock: &Superblock,
    has_bitmap: bool,
    redundant: bool,
) -> ConsistencyPolicy {
    match redundant {
        _ if superblock.has_ppl() => ConsistencyPolicy::Ppl,
        _ if superblock.has_journal() => ConsistencyPolicy::Journal,
        _ if has_bitmap => ConsistencyPolicy::Bitmap,
        true => ConsistencyPolicy::Resync,
        false => ConsistencyPolicy::None,
    }
}
