//! What an array needs and this machine may lack.

use crate::plan::{Array, Leg, Over};
use crate::record::SubjectKind;
use std::path::{Path, PathBuf};

/// Why an array cannot be built here, if it cannot.
pub(crate) fn obstacle(array: &Array) -> Option<String> {
    if let Some(below) = array.members.iter().find_map(|leg| match leg {
        Leg::Array(below) => obstacle(below),
        _ => None,
    }) {
        return Some(below);
    }
    let nests = array.members.iter().any(|leg| matches!(leg, Leg::Array(_)));
    if array.is_only_predicted() {
        let instead = match array.kind {
            SubjectKind::Md => "Lapstrake's own arrays nest",
            _ => "a real one is system = \"existing\" with its path",
        };
        return Some(format!("such an array is only predicted; {instead}"));
    }
    if let Some(path) = array.path.as_ref().filter(|path| !path.exists()) {
        return Some(format!("there is no {}", path.display()));
    }
    let fuse = nests || matches!(array.shape.over, Over::Fuse | Over::Loop);
    if array.kind == SubjectKind::Lapstrake && fuse && !Path::new("/dev/fuse").exists() {
        return Some("this system has no /dev/fuse".into());
    }
    let mounts = array.has_filesystem() && array.kind != SubjectKind::Existing;
    let loops = array.shape.over == Over::Loop || mounts || array.kind == SubjectKind::Md;
    if loops && !is_root() {
        return Some("loop devices and mounts need root".into());
    }
    if loops && !Path::new("/dev/loop-control").exists() {
        return Some("this system has no loop devices".into());
    }
    let mut programs: Vec<String> = Vec::new();
    if loops {
        programs.extend(["losetup", "mount", "umount"].map(str::to_owned));
    }
    match array.kind {
        SubjectKind::Md => {
            if !Path::new("/proc/mdstat").exists() {
                return Some(
                    "this kernel has no md (no /proc/mdstat; `modprobe md_mod` may help)".into(),
                );
            }
            programs.push("mdadm".into());
        }
        SubjectKind::Btrfs => programs.extend(["mkfs.btrfs", "btrfs"].map(str::to_owned)),
        SubjectKind::Zfs => programs.push("zpool".into()),
        _ => {}
    }
    if let Some(filesystem) = array.shape.filesystem {
        programs.push(format!("mkfs.{filesystem}"));
    }
    let missing = programs.iter().find(|program| find_program(program).is_none());
    if let Some(program) = missing {
        return Some(format!("{program} is not installed"));
    }
    let no_zfs = array.kind == SubjectKind::Zfs && !Path::new("/dev/zfs").exists();
    no_zfs.then(|| "this kernel has no ZFS (no /dev/zfs; `modprobe zfs` may help)".into())
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    // SAFETY: asks only.
    unsafe { libc::geteuid() == 0 }
}

/// Where a program is, by PATH and the places of system programs.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into(), "/usr/bin".into()]);
    directories.map(|directory| directory.join(name)).find(|file| file.is_file())
}
