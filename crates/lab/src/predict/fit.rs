//! What cannot be predicted, and why.

use super::postgresql;
use crate::fio_job::JobFile;
use crate::plan::{Array, Filesystem, Leg, Like, Load, Machine, Program, Workload};
use crate::record::SubjectKind;

/// Why a load on an array cannot be predicted, if it cannot.
pub(super) fn unpredictable(
    array: &Array,
    workload: &Workload,
    machine: &Machine,
) -> Option<String> {
    let kind = match array.kind {
        SubjectKind::Null => Some("the null subject is the harness, which is not modelled"),
        SubjectKind::Btrfs => Some("btrfs is not modelled"),
        SubjectKind::Zfs => Some("ZFS is not modelled"),
        SubjectKind::Existing => Some("nobody says what it is made of"),
        SubjectKind::Disk | SubjectKind::Lapstrake | SubjectKind::Md | SubjectKind::Controller => {
            None
        }
    };
    let load = load_unpredictable(&workload.load, array, machine);
    let nested = array.members.iter().any(is_in_a_file);
    let nested = nested.then_some("a member is on a file system, which is not modelled");
    kind.map(str::to_owned).or(load).or(nested.map(str::to_owned))
}

fn load_unpredictable(load: &Load, array: &Array, machine: &Machine) -> Option<String> {
    let foreign = matches!(array.shape.filesystem, Some(Filesystem::Xfs | Filesystem::Btrfs));
    let why = match load {
        Load::Program(Program::Pgbench { configuration, .. }) if !foreign => {
            return postgresql::server(configuration, machine).err();
        }
        Load::Program(Program::Fio { .. }) if array.has_filesystem() => {
            Some("fio's jobs are not modelled on file systems")
        }
        Load::Program(Program::Fio { job }) => {
            return JobFile::parse(job).err().map(|why| format!("its job file: {why}"));
        }
        Load::Program(Program::Bonnie { .. } | Program::Hdparm) => {
            Some("of programs, fio and pgbench are modelled")
        }
        _ if foreign => Some("of file systems, ext3 and ext4 are modelled"),
        Load::Like(Like::Bonnie { chunk, .. }) if *chunk != 8192 => {
            Some("bonnie++ is modelled with chunks of 8 KiB")
        }
        Load::Like(Like::Iozone { threads: 2.., .. }) => {
            Some("iozone is modelled with one process")
        }
        Load::Like(Like::Iozone { direct: true, .. }) => {
            Some("iozone is modelled through the page cache")
        }
        Load::Like(Like::Iozone { record, .. }) if !record.is_multiple_of(4096) => {
            Some("iozone is modelled with records of whole pages")
        }
        Load::Io(_) if array.has_filesystem() => {
            Some("requests of the lab's own are not modelled on file systems")
        }
        _ => None,
    };
    why.map(str::to_owned)
}

fn is_in_a_file(leg: &Leg) -> bool {
    matches!(leg, Leg::Array(array) if array.has_filesystem())
}
