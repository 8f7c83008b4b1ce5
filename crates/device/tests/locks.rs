//! Promise: one user at a time for each byte of a member, within a process and between processes, and
//! the refusal says who.

mod common;

use common::{file, places};
use lapstrake_device::{Access, Member, MemberSpec, OpenError, overlaps};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One test at a time: a process that another test starts holds, between its fork and its exec, every
/// description that is open here, and so the locks that this test has just let go of.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(command: &mut Command) -> bool {
    let out = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    out.is_ok_and(|status| status.success())
}

/// Unmounts, repeated while it is busy: whatever watches mounts on this machine looks at new ones for a moment.
fn unmounted(at: &Path) -> bool {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(20) {
        if run(Command::new("umount").arg(at)) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

const CHILD: &str = "DEVICE_TEST_HOLD";

fn try_open(spec: &str, access: Access) -> Result<Member, Vec<String>> {
    let spec: MemberSpec = spec.parse().unwrap();
    Member::open(&spec, access).map_err(|e| match e {
        OpenError::Busy { holders, .. } => holders,
        other => panic!("{other}"),
    })
}

fn access(word: &str) -> Access {
    if word == "ro" { Access::ReadOnly } else { Access::ReadWrite }
}

/// What [`Holder`] runs: holds a member until its input ends.
#[test]
#[ignore = "no test of its own, but another one's process"]
fn hold_for_another_process() {
    let Ok(text) = std::env::var(CHILD) else { return };
    let (word, spec) = text.split_once(' ').unwrap();
    let member = try_open(spec, access(word)).unwrap();
    println!("\nholding");
    std::io::stdout().flush().unwrap();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    drop(member);
}

/// Another process that holds a member.
struct Holder {
    child: Child,
    _out: BufReader<ChildStdout>,
}

impl Holder {
    fn new(word: &str, spec: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "hold_for_another_process", "--nocapture", "--ignored"])
            .env(CHILD, format!("{word} {spec}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Kept open to the end: the child has more to say on it.
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut lines = out.by_ref().lines().map_while(Result::ok);
        assert!(lines.any(|line| line == "holding"), "{spec} not held");
        Self { child, _out: out }
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

#[test]
fn another_processs_member_is_refused_and_the_process_named() {
    let _alone = alone();
    for place in places() {
        let path = file(place.path(), "m", 1 << 20);
        let spec = path.to_str().unwrap();
        let holder = Holder::new("rw", spec);
        let named = format!("(pid {})", holder.child.id());
        for access in [Access::ReadWrite, Access::ReadOnly] {
            let holders = try_open(spec, access).unwrap_err();
            assert!(holders.iter().any(|h| h.ends_with(&named)), "{holders:?}");
        }
        assert!(Member::peek(&spec.parse().unwrap()).is_ok(), "looking is allowed");
        holder.end();
        assert!(try_open(spec, Access::ReadWrite).is_ok());
    }
}

#[test]
fn who_looks_is_told_of_writers_by_any_name_and_not_of_readers() {
    let _alone = alone();
    for place in places() {
        let path = file(place.path(), "m", 1 << 20);
        let link = place.path().join("link");
        std::fs::hard_link(&path, &link).unwrap();
        let window = |at: u64| format!("{}@{at}+65536", path.display());
        let writers = |spec: &str| Member::peek(&spec.parse().unwrap()).unwrap().writers();
        let holder = Holder::new("rw", &window(65536));
        let other = Holder::new("rw", &window(262_144));
        let named = format!("(pid {})", holder.child.id());
        let found = writers(&window(65536)).unwrap();
        assert!(matches!(&found[..], [by] if by.ends_with(&named)), "{found:?}");
        assert_eq!(writers(link.to_str().unwrap()).map(|found| found.len()), Some(2));
        assert_eq!(writers(&window(0)), None);
        other.end();
        holder.end();
        let holder = Holder::new("ro", &window(65536));
        assert_eq!(writers(&window(65536)), None);
        holder.end();
    }
}

#[test]
fn readers_share_and_keep_writers_out() {
    let _alone = alone();
    for place in places() {
        let path = file(place.path(), "m", 1 << 20);
        let spec = path.to_str().unwrap();
        let holder = Holder::new("ro", spec);
        let reader = try_open(spec, Access::ReadOnly).unwrap();
        assert!(try_open(spec, Access::ReadWrite).is_err());
        holder.end();
        assert!(try_open(spec, Access::ReadWrite).is_err());
        drop(reader);
        assert!(try_open(spec, Access::ReadWrite).is_ok());
    }
}

#[test]
fn disjoint_windows_do_not_disturb_each_other() {
    let _alone = alone();
    for place in places() {
        let path = file(place.path(), "m", 1 << 20);
        let window = |w: &str| format!("{}@{w}", path.display());
        let holder = Holder::new("rw", &window("256K+256K"));
        assert!(try_open(&window("0+256K"), Access::ReadWrite).is_ok());
        assert!(try_open(&window("512K"), Access::ReadWrite).is_ok());
        assert!(try_open(&window("0+260K"), Access::ReadWrite).is_err());
        assert!(try_open(&window("508K+8K"), Access::ReadWrite).is_err());
        assert!(try_open(path.to_str().unwrap(), Access::ReadWrite).is_err());
        holder.end();
    }
}

#[test]
fn the_same_bytes_twice_in_one_process_are_noticed() {
    let _alone = alone();
    let place = &places()[0];
    let path = file(place.path(), "m", 1 << 20);
    let link = place.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let first = try_open(path.to_str().unwrap(), Access::ReadWrite).unwrap();
    assert!(try_open(link.to_str().unwrap(), Access::ReadWrite).is_err());
    let peek = |spec: String| Member::peek(&spec.parse().unwrap()).unwrap();
    assert!(overlaps(&first, &peek(format!("{}", link.display()))));
    let low = peek(format!("{}@0+8K", link.display()));
    let high = peek(format!("{}@8K+8K", path.display()));
    let across = peek(format!("{}@4K+8K", path.display()));
    assert!(!overlaps(&low, &high) && overlaps(&low, &across) && overlaps(&across, &high));
    let other = file(place.path(), "other", 1 << 20);
    assert!(!overlaps(&first, &peek(other.display().to_string())));
    assert!(!overlaps(&Member::memory(512), &Member::memory(512)));
}

/// A loop device over a file, gone when dropped.
struct Loop(String);

impl Loop {
    fn new(file: &str) -> Option<Self> {
        Self::with(&["--find", "--show", file])
    }

    fn with(args: &[&str]) -> Option<Self> {
        let out = Command::new("losetup").args(args).output();
        match out {
            Ok(out) if out.status.success() => {
                Some(Self(String::from_utf8(out.stdout).unwrap().trim().into()))
            }
            out => {
                eprintln!("SKIPPED: no loop device is to be had: {out:?}");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_block_device_is_claimed_once_and_its_windows_share_the_claim() {
    let _alone = alone();
    let place = &places()[0];
    let path = file(place.path(), "m", 1 << 20);
    let Some(device) = Loop::new(path.to_str().unwrap()) else { return };
    let holders = try_open(path.to_str().unwrap(), Access::ReadWrite).unwrap_err();
    assert_eq!(holders, [device.0.as_str()], "the file is in use by the loop device");

    let window = |w: &str| format!("{}@{w}", device.0);
    let low = try_open(&window("0+512K"), Access::ReadWrite).unwrap();
    assert!(low.is_block() && low.size() == 512 << 10);
    assert!(try_open(&window("256K+512K"), Access::ReadWrite).is_err());
    let high = try_open(&window("512K+512K"), Access::ReadWrite).unwrap();
    assert!(!overlaps(&low, &high));
    drop(low);
    let excl = || {
        use std::os::unix::fs::OpenOptionsExt;
        std::fs::OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&device.0)
    };
    assert_eq!(excl().unwrap_err().raw_os_error(), Some(libc::EBUSY), "the claim is still held");
    drop(high);
    assert!(excl().is_ok());

    let holder = Holder::new("rw", &device.0);
    let named = format!("(pid {})", holder.child.id());
    let holders = try_open(&device.0, Access::ReadWrite).unwrap_err();
    assert!(holders.iter().any(|h| h.ends_with(&named)), "{holders:?}");
    holder.end();

    let reader = Holder::new("ro", &device.0);
    assert!(try_open(&device.0, Access::ReadOnly).is_ok());
    assert!(try_open(&device.0, Access::ReadWrite).is_err());
    reader.end();
}

#[test]
fn a_mounted_block_device_is_refused_and_the_mount_named() {
    let _alone = alone();
    let place = &places()[0];
    let path = place.path().join("fs");
    std::fs::File::create(&path).unwrap().set_len(8 << 20).unwrap();
    let Some(device) = Loop::new(path.to_str().unwrap()) else { return };
    let at = place.path().join("at");
    std::fs::create_dir(&at).unwrap();
    if !run(Command::new("mkfs.ext4").args(["-q", &device.0]))
        || !run(Command::new("mount").arg(&device.0).arg(&at))
    {
        eprintln!("SKIPPED: cannot mount here");
        return;
    }
    let results = [Access::ReadOnly, Access::ReadWrite].map(|access| try_open(&device.0, access));
    assert!(unmounted(&at), "{} is busy for 20 s", at.display());
    for result in results {
        let holders = result.unwrap_err();
        let named = format!("the file system mounted on {}", at.display());
        assert!(holders.contains(&named), "{holders:?}");
    }
}

#[test]
fn loop_devices_on_one_file_are_one_member() {
    let _alone = alone();
    let place = &places()[0];
    let path = place.path().join("behind");
    std::fs::File::create(&path).unwrap().set_len(8 << 20).unwrap();
    let text = path.to_str().unwrap();
    let file = try_open(text, Access::ReadWrite).unwrap();
    let (Some(first), Some(second)) = (Loop::new(text), Loop::new(text)) else { return };
    assert!(try_open(&first.0, Access::ReadWrite).is_err(), "the file behind it is a member");
    drop(file);
    let held = try_open(&first.0, Access::ReadWrite).unwrap();
    let holders = try_open(&second.0, Access::ReadWrite).unwrap_err();
    assert!(holders.iter().any(|holder| holder.contains("this process itself")), "{holders:?}");
    assert!(try_open(text, Access::ReadOnly).is_err());
    drop(held);
    let apart = format!("{}@0+1M", first.0);
    let low = try_open(&apart, Access::ReadWrite).unwrap();
    assert!(try_open(&format!("{}@4M+1M", second.0), Access::ReadWrite).is_ok(), "other bytes");
    drop(low);
}

#[test]
fn a_read_only_device_is_no_member_to_write_to() {
    let _alone = alone();
    let place = &places()[0];
    let path = place.path().join("ro");
    std::fs::File::create(&path).unwrap().set_len(8 << 20).unwrap();
    let text = path.to_str().unwrap();
    let Some(device) = Loop::with(&["--read-only", "--find", "--show", text]) else { return };
    let spec: MemberSpec = device.0.parse().unwrap();
    assert!(matches!(Member::open(&spec, Access::ReadWrite), Err(OpenError::ReadOnly { .. })));
    assert!(Member::open(&spec, Access::ReadOnly).is_ok());
}
