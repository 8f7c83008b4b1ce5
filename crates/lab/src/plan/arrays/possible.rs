//! Which combinations can be built.

use super::Choice;
use crate::plan::{Leg, Over};
use crate::record::SubjectKind;
use lapstrake_geometry::Level;

/// Why a combination cannot be, if it cannot.
pub(super) fn impossible(choice: &Choice) -> Option<String> {
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
        SubjectKind::Lapstrake | SubjectKind::Md => impossible_md(choice),
    }
}

fn impossible_md(choice: &Choice) -> Option<String> {
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
    None
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
