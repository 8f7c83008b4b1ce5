//! Which combinations can be built.

use super::Choice;
use crate::plan::{Disk, Leg, Over};
use crate::record::SubjectKind;
use lapstrake_geometry::{Layout, Level, Sectors, Version};
use lapstrake_metadata::create::{
    self, BitmapChoice, CreateError, CreatePlan, CreateRequest, NewMember,
};

/// Bytes of a disk that is not there yet: enough for any array that can be.
const UNKNOWN: u64 = 1 << 40;

/// Why a combination cannot be, if it cannot.
///
/// `bytes` knows the sizes of disks.
pub(super) fn impossible(choice: &Choice, bytes: &impl Fn(&str) -> Option<u64>) -> Option<String> {
    let (shape, count) = (&choice.shape, choice.members.len());
    let mixed = choice
        .members
        .iter()
        .any(|leg| matches!(leg, Leg::Array(array) if array.kind != choice.kind));
    match choice.kind {
        SubjectKind::Null if count > 0 => Some("the null subject has no members".into()),
        SubjectKind::Null => None,
        SubjectKind::Existing if count > 0 => Some("what exists has a path, not members".into()),
        SubjectKind::Existing => None,
        SubjectKind::Disk if count != 1 => {
            Some("a disk is one member; several: members = [[\"a\"], [\"b\"]]".into())
        }
        SubjectKind::Disk if shape.level.is_some() => Some("a disk has no level".into()),
        SubjectKind::Disk => None,
        _ if mixed => Some("an array nests in one of its own kind (lapstrake, md)".into()),
        SubjectKind::Controller => impossible_volume(choice),
        SubjectKind::Btrfs => impossible_btrfs(choice),
        SubjectKind::Zfs => impossible_zfs(choice),
        SubjectKind::Lapstrake | SubjectKind::Md => impossible_md(choice, bytes),
    }
}

fn impossible_md(choice: &Choice, bytes: &impl Fn(&str) -> Option<u64>) -> Option<String> {
    let (shape, count) = (&choice.shape, choice.members.len());
    let Some(level) = shape.level else { return Some("it has no level".into()) };
    let least = usize::from(level.min_members()).max(2);
    if count < least {
        return Some(format!("{level} needs {least} members, not {count}"));
    }
    let missing = choice.members.iter().filter(|leg| **leg == Leg::Missing).count();
    if missing > spare_members(level, count) {
        return Some(format!("a {level} of {count} cannot lack {missing}"));
    }
    if shape.filesystem.is_some()
        && choice.kind == SubjectKind::Lapstrake
        && shape.over != Over::Loop
    {
        return Some(format!(
            "a filesystem needs over = \"loop\", not {:?}",
            shape.over.to_string()
        ));
    }
    md_plan(level, choice, bytes).err()
}

/// What an array has for data, if its disks are there and the same when they are predicted.
pub(super) fn data_bytes(choice: &Choice, disks: &[Disk]) -> Option<u64> {
    let known = |name: &str| {
        let disk = disks.iter().find(|disk| disk.name == name);
        disk.filter(|disk| disk.model.size.is_none()).and_then(Disk::bytes)
    };
    let leg_bytes = |leg: &Leg| match leg {
        Leg::Missing => None,
        Leg::Disk(name) => known(name),
        Leg::Array(below) => below.bytes,
    };
    let (first, level) = (choice.members.first()?, choice.shape.level);
    let is_told = |leg: &Leg| *leg == Leg::Missing || leg_bytes(leg).is_some();
    match choice.kind {
        SubjectKind::Disk => leg_bytes(first),
        SubjectKind::Lapstrake | SubjectKind::Md if choice.members.iter().all(is_told) => {
            Some(md_plan(level?, choice, &known).ok()?.geometry.array_sectors().bytes())
        }
        _ => None,
    }
}

/// What `create` makes of it.
fn md_plan(
    level: Level,
    choice: &Choice,
    bytes: &impl Fn(&str) -> Option<u64>,
) -> Result<CreatePlan, String> {
    let Choice { shape, members, .. } = choice;
    let member = |leg: &Leg| {
        let bytes = match leg {
            Leg::Missing => return None,
            Leg::Disk(name) => bytes(name),
            Leg::Array(below) => below.bytes,
        };
        let size = Sectors::from_bytes(bytes.unwrap_or(UNKNOWN));
        Some(NewMember { size, ..NewMember::default() })
    };
    let layout = shape.layout.as_ref().map(|name| Layout::from_name(level, name));
    let request = CreateRequest {
        chunk: shape.chunk.map(Sectors::from_bytes),
        layout: layout.transpose().map_err(|error| error.to_string())?,
        bitmap: match shape.bitmap.as_deref() {
            Some("internal") => BitmapChoice::Internal,
            Some(_) => BitmapChoice::None,
            None => BitmapChoice::None,
        },
        version: shape.metadata.unwrap_or(Version::V1_2),
        bitmap_chunk: shape.bitmap_chunk.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
        ..CreateRequest::new(level, members.iter().map(member).collect())
    };
    // UUIDs are of no matter here.
    create::plan(&request, |bytes| bytes.fill(1)).map_err(|error| match error {
        CreateError::Member { index, source } => {
            format!("member {:?}: {source}", members[index].name())
        }
        other => other.to_string(),
    })
}

fn impossible_volume(choice: &Choice) -> Option<String> {
    let count = choice.members.len();
    if choice.members.contains(&Leg::Missing) {
        return Some("a controller's volume is not modelled with a disk missing".into());
    }
    match choice.shape.level {
        None if count != 1 => Some("a controller's volume of several disks has a level".into()),
        Some(Level::Raid0) if count < 2 => Some("raid0 needs 2 members".into()),
        Some(Level::Raid1) if count != 2 => Some("a controller's raid1 is of two".into()),
        Some(Level::Raid10) if count < 4 || !count.is_multiple_of(2) => {
            Some("a controller's raid10 is of 4, 6, 8 ...".into())
        }
        None | Some(Level::Raid0 | Level::Raid1 | Level::Raid10) => None,
        Some(level) => Some(format!("{level} of a controller is not modelled: 0, 1 and 10 are")),
    }
}

fn impossible_btrfs(choice: &Choice) -> Option<String> {
    let count = choice.members.len();
    let least = match choice.shape.level {
        None => 1,
        Some(Level::Raid0 | Level::Raid1 | Level::Raid5 | Level::Raid10) => 2,
        Some(Level::Raid6) => 3,
        Some(Level::Linear | Level::Raid4) => return Some("btrfs has no such profile".into()),
    };
    if choice.members.contains(&Leg::Missing) {
        return Some("btrfs is not made with a member missing".into());
    }
    (count < least).then(|| format!("btrfs needs {least} members for it, not {count}"))
}

fn impossible_zfs(choice: &Choice) -> Option<String> {
    let count = choice.members.len();
    let least = match choice.shape.level {
        None | Some(Level::Raid0) => 1,
        Some(Level::Raid1) => 2,
        Some(Level::Raid5) => 2,
        Some(Level::Raid6) => 3,
        Some(Level::Raid10) if !count.is_multiple_of(2) => {
            return Some("ZFS stripes over mirrors of two".into());
        }
        Some(Level::Raid10) => 4,
        Some(Level::Linear | Level::Raid4) => return Some("ZFS has no such thing".into()),
    };
    if choice.members.contains(&Leg::Missing) {
        return Some("ZFS is not made with a member missing".into());
    }
    (count < least).then(|| format!("ZFS needs {least} members for it, not {count}"))
}

/// How many members can go, whichever they are. (A RAID10 may outlive more, if they are the right ones.)
pub(super) fn spare_members(level: Level, members: usize) -> usize {
    match level {
        Level::Linear | Level::Raid0 => 0,
        Level::Raid1 => members.saturating_sub(1),
        Level::Raid4 | Level::Raid5 | Level::Raid10 => 1,
        Level::Raid6 => 2,
    }
}
