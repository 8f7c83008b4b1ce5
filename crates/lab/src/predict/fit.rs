//! What cannot be predicted, and why.

use crate::plan::{Array, Leg, Like, Load, Workload};
use crate::record::SubjectKind;

/// Why a load on an array cannot be predicted, if it cannot.
pub(super) fn unpredictable(array: &Array, workload: &Workload) -> Option<String> {
    let kind = match array.kind {
        SubjectKind::Null => Some("the null subject is the harness, which is not modelled"),
        SubjectKind::Btrfs => Some("btrfs is not modelled"),
        SubjectKind::Zfs => Some("ZFS is not modelled"),
        SubjectKind::Existing => Some("nobody says what it is made of"),
        SubjectKind::Disk | SubjectKind::Lapstrake | SubjectKind::Md => None,
    };
    let load = match &workload.load {
        Load::Program(_) => Some("programs are not modelled"),
        Load::Like(Like::Hdparm) | Load::Io(_) if !array.has_filesystem() => None,
        _ => Some("file systems and the page cache are not modelled yet"),
    };
    let nested = array.members.iter().any(is_in_a_file);
    let nested = nested.then_some("a member is on a file system, which is not modelled");
    kind.or(load).or(nested).map(str::to_owned)
}

fn is_in_a_file(leg: &Leg) -> bool {
    matches!(leg, Leg::Array(array) if array.has_filesystem())
}
