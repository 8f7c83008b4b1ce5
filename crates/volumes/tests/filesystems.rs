//! Promise: what other people's tools make is read as they made it: label, UUID, size.

use lapstrake_not_run::not_run;
use lapstrake_volumes::{Content, Filesystem, Kind, identify};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

const UUID: &str = "01234567-89ab-4def-8123-456789abcdef";

/// A sparse image of so many MiB, made what it is by a shell command with `$1` for its name; none if the tool is missing.
fn made(mib: u64, tool: &str, options: &str) -> Option<Filesystem> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    File::create(&path).unwrap().set_len(mib << 20).unwrap();
    let script = format!(
        "PATH=$PATH:/usr/sbin:/sbin; command -v {tool} || exit 99; {tool} {options} \"$1\""
    );
    let mut shell = Command::new("sh");
    shell.args(["-euc", &script, "sh"]).arg(&path).stdin(Stdio::null());
    let ran = shell.output().unwrap();
    if ran.status.code() == Some(99) {
        not_run(format!("what {tool} makes: it is not installed"));
        return None;
    }
    assert!(ran.status.success(), "{tool}: {}", String::from_utf8_lossy(&ran.stderr));
    Some(look(&path))
}

fn look(path: &Path) -> Filesystem {
    let file = File::open(path).unwrap();
    let size = file.metadata().unwrap().len();
    let content = identify(size, None, |at, len| {
        let mut bytes = vec![0; len.min(size.saturating_sub(at)) as usize];
        file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    });
    match content {
        Content::Filesystem(found) => found,
        other => panic!("{other:?}"),
    }
}

fn expect(found: Option<Filesystem>, kind: Kind, label: &str, uuid: &str, bytes: Option<u64>) {
    let Some(found) = found else { return };
    let read = (found.kind, &*found.label, &*found.uuid, found.bytes);
    assert_eq!(read, (kind, label, uuid, bytes));
    assert_eq!((found.mounted, found.mounted_on), (None, None), "never mounted");
}

#[test]
fn ext_is_told_apart_and_read() {
    let options = format!("-q -F -L family -U {UUID}");
    for (tool, kind) in
        [("mkfs.ext2", Kind::Ext2), ("mkfs.ext3", Kind::Ext3), ("mkfs.ext4", Kind::Ext4)]
    {
        expect(made(16, tool, &options), kind, "family", UUID, Some(16 << 20));
    }
}

#[test]
fn ext4_tells_of_its_last_mount() {
    let ran = made(16, "mkfs.ext4", "-q -F -M /volume1");
    let Some(found) = ran else { return };
    assert_eq!(found.mounted_on.as_deref(), Some("/volume1"));
}

#[test]
fn xfs_and_btrfs_are_read() {
    let xfs = made(320, "mkfs.xfs", &format!("-q -L family -m uuid={UUID}"));
    expect(xfs, Kind::Xfs, "family", UUID, Some(320 << 20));
    let btrfs = made(128, "mkfs.btrfs", &format!("-q -L 'two words' -U {UUID}"));
    expect(btrfs, Kind::Btrfs, "two words", UUID, Some(128 << 20));
}

#[test]
fn what_windows_uses_is_read() {
    expect(
        made(16, "mkfs.vfat", "-F 16 -n STICK -i 1234abcd"),
        Kind::Fat,
        "STICK",
        "1234-ABCD",
        Some(16 << 20),
    );
    expect(
        made(64, "mkfs.vfat", "-F 32 -n STICK -i 1234abcd"),
        Kind::Fat,
        "STICK",
        "1234-ABCD",
        Some(64 << 20),
    );
    if let Some(found) = made(16, "mkfs.exfat", "-L Wörter") {
        assert_eq!(
            (found.kind, &*found.label, found.bytes),
            (Kind::ExFat, "Wörter", Some(16 << 20))
        );
    }
    if let Some(found) = made(16, "mkfs.ntfs", "-q -F -L Wörter") {
        assert_eq!((found.kind, &*found.label), (Kind::Ntfs, "Wörter"));
        assert_eq!((found.bytes, found.uuid.len()), (Some(16 << 20), 16));
    }
}

#[test]
fn swap_space_and_luks_are_read() {
    expect(
        made(16, "mkswap", &format!("-L spare -U {UUID}")),
        Kind::Swap,
        "spare",
        UUID,
        Some(16 << 20),
    );
    let options = format!(
        "-q --type luks2 --label secret --uuid {UUID} --pbkdf pbkdf2 --pbkdf-force-iterations 1000"
    );
    let luks = made(32, "cryptsetup", &format!("luksFormat {options} --key-file /proc/version"));
    expect(luks, Kind::Luks, "secret", UUID, None);
}
