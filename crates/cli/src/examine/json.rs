//! All of what a member holds, as JSON.

use super::NO_SUPERBLOCK;
use super::v1::{array_bytes, level_name};
use crate::text;
use lapstrake_host::scan::{BitmapLook, Look, LookError};
use lapstrake_metadata::bitmap::ChunkState;
use lapstrake_metadata::detect::Finding;
use lapstrake_metadata::firmware::Volume;
use lapstrake_metadata::{Role, Superblock, v1, v090};
use serde_json::{Map, Value, json};

/// One member, or with `or_bitmap_file` the file of a bitmap.
pub fn member(look: &Look, or_bitmap_file: bool) -> Value {
    let best = look.superblock();
    let found = match best {
        Some(sb) => look.bitmap(sb),
        None if or_bitmap_file => look.bitmap_file().map(Some),
        None => Ok(None),
    };
    json!({
        "member": look.spec().exact(),
        "error": (best.is_none() && !or_bitmap_file).then_some(NO_SUPERBLOCK),
        "size_bytes": look.size().bytes(),
        "superblock": best.map(superblock),
        "bitmap": bitmap(found),
        "bad_blocks": best.map(|sb| bad_blocks(look, sb)),
        "findings": look.findings().all.iter().map(finding).collect::<Vec<_>>(),
    })
}

/// What every version has, by Lapstrake's names, and all fields by md's own below `fields`.
fn superblock(sb: &Superblock) -> Value {
    let layout = sb.layout().map(|layout| layout.name().into_owned());
    let component_bytes = sb.component().bytes();
    json!({
        "version": sb.version().as_str(),
        "uuid": text::uuid(sb.set_uuid()),
        "name": sb.name(),
        "creation_time": sb.ctime().0,
        "update_time": sb.utime().0,
        "level": level_name(sb.level_md()),
        "layout": layout.filter(|name| name != "none"),
        "chunk_bytes": sb.chunk().bytes(),
        "raid_devices": sb.raid_disks(),
        "component_bytes": component_bytes,
        "array_bytes":
            array_bytes(sb.level_md(), sb.layout_md(), sb.raid_disks().into(), component_bytes),
        "logical_block_bytes": sb.logical_block_size(),
        "data_offset_bytes": sb.data_offset().bytes(),
        "data_bytes": sb.data_size().bytes(),
        "super_offset_bytes": sb.super_sector().bytes(),
        "events": sb.events(),
        "state": if sb.clean() { "clean" } else { "active" },
        "resync_offset_sectors": sb.resync_offset().map(|at| at.0),
        "recovery_offset_sectors": sb.recovery_offset().map(|at| at.0),
        "device_number": sb.dev_number(),
        "device_uuid": sb.device_uuid().map(text::uuid),
        "role": role(sb.role()),
        "slot": slot(sb.role()),
        "roles": (0..sb.table_len()).map(|n| role(sb.role_of(n))).collect::<Vec<_>>(),
        "write_mostly": sb.write_mostly(),
        "unknown_bytes": unknown_bytes(sb),
        "unsupported": sb.unsupported().map(|what| what.to_string()),
        "fields": match sb {
            Superblock::V1(sb) => fields_v1(sb),
            Superblock::V090(sb) => fields_v090(sb),
        },
    })
}

/// Reserved bytes that are not zero, with their offsets from the superblock's start.
fn unknown_bytes(sb: &Superblock) -> Value {
    let bytes = sb.unknown_bytes().into_iter();
    bytes.map(|(at, value)| json!({ "offset": at, "value": value })).collect()
}

fn role(role: Role) -> String {
    match role {
        Role::Active(slot) => format!("active {}", slot.0),
        other => other.to_string(),
    }
}

fn slot(role: Role) -> Option<u16> {
    match role {
        Role::Active(slot) => Some(slot.0),
        _ => None,
    }
}

/// An object of a superblock's fields under their own names.
macro_rules! fields {
    ($sb:expr; $($field:ident)*) => {{
        let mut fields = Map::new();
        $(fields.insert(stringify!($field).into(), json!($sb.$field));)*
        Value::Object(fields)
    }};
}

fn fields_v1(sb: &v1::Superblock) -> Value {
    fields! { sb;
        magic major_version minor_version feature_map ctime level layout size chunksize raid_disks
        bitmap_offset new_level reshape_position delta_disks new_layout new_chunk new_offset
        data_offset data_size super_offset recovery_offset dev_number cnt_corrected_read devflags
        bblog_shift bblog_size bblog_offset utime events resync_offset sb_csum max_dev logical_block_size dev_roles
    }
}

fn disk(disk: &v090::Disk) -> Value {
    fields! { disk; number major minor raid_disk state }
}

fn fields_v090(sb: &v090::Superblock) -> Value {
    let mut fields = fields! { sb;
        md_magic major_version minor_version patch_version ctime level size nr_disks raid_disks
        md_minor not_persistent utime state active_disks working_disks failed_disks spare_disks
        sb_csum events cp_events recovery_cp reshape_position new_level delta_disks new_layout
        new_chunk layout chunk_size sb_start
    };
    fields["this_disk"] = disk(&sb.this_disk);
    fields["disks"] = sb.disks.iter().take(sb.nr_disks as usize).map(disk).collect();
    fields["byte_order"] = json!(format!("{:?}", sb.order).to_lowercase());
    fields
}

fn bitmap(found: Result<Option<BitmapLook>, LookError>) -> Value {
    match found {
        Ok(None) => Value::Null,
        Ok(Some(found)) => {
            let sb = &found.superblock;
            json!({
                "version": sb.version,
                "uuid": text::uuid(sb.uuid),
                "events": sb.events,
                "events_cleared": sb.events_cleared,
                "state": sb.state,
                "chunk_bytes": (!sb.is_first_use()).then(|| sb.chunk().bytes()),
                "daemon_sleep_seconds": sb.daemon_sleep,
                "write_behind": sb.write_behind,
                "sync_bytes": sb.sync_size.saturating_mul(512),
                "bits": found.bits,
                "dirty": found.dirty,
                "lockless": sb.is_lockless(),
                "states": found.states.map(states),
                "unsupported": found.unknown.map(|what| what.to_string()),
            })
        }
        Err(error) => json!({ "error": error.to_string() }),
    }
}

/// How many chunks are in each state, by the kernel's names.
fn states(counts: [u64; 8]) -> Value {
    let named = ChunkState::ALL.into_iter().zip(counts);
    named.map(|(state, count)| (state.name().replace(' ', "_"), json!(count))).collect()
}

fn bad_blocks(look: &Look, sb: &Superblock) -> Value {
    match look.bad_blocks(sb) {
        Ok(None) => Value::Null,
        Ok(Some(entries)) => {
            let entry = |(sector, sectors)| json!({ "sector": sector, "sectors": sectors });
            entries.into_iter().map(entry).collect()
        }
        Err(error) => json!({ "error": error.to_string() }),
    }
}

fn finding(finding: &Finding) -> Value {
    match finding {
        Finding::Md { version, sector, superblock } => json!({
            "kind": "md",
            "version": version.as_str(),
            "offset_bytes": sector.bytes(),
            "error": superblock.as_ref().err().map(ToString::to_string),
        }),
        Finding::Container { kind, sector, volumes } => json!({
            "kind": "container",
            "what": kind.to_string(),
            "offset_bytes": sector.bytes(),
            "volumes": volumes.all.iter().map(Volume::name).collect::<Vec<_>>(),
            "errors": volumes.errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
        }),
        Finding::Foreign { kind, offset } => json!({
            "kind": "foreign",
            "what": kind.to_string(),
            "offset_bytes": offset,
        }),
    }
}
