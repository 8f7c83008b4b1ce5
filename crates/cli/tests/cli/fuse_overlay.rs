//! An array as a file, and an array whose members nobody writes.

use crate::support::{Lab, LoopDevices, Ran, exists, installed, not_run, pattern};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

fn three() -> Lab {
    let lab = Lab::new(&[32, 32, 32]);
    lab.run("create data -l5 -c64 --assume-clean m0 m1 m2").ok();
    lab
}

/// Whether a FUSE file system can be mounted here.
fn fuse_or_say(what: &str) -> bool {
    // SAFETY: only asks.
    let is_root = unsafe { libc::geteuid() } == 0;
    let opens = OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !opens {
        not_run(what, "/dev/fuse cannot be opened");
    } else if !is_root && !installed("fusermount3") {
        not_run(what, "neither root nor fusermount3");
        return false;
    }
    opens
}

#[test]
fn the_array_is_a_file_until_the_stop() {
    if !fuse_or_say("serving by FUSE") {
        return;
    }
    let lab = three();
    let server = lab.serve("m0 m1 m2 --fuse data.raw");
    assert!(server.uri().starts_with("file:///"), "{}", server.facts);
    let bytes = pattern(5, 3 << 20);
    let file = OpenOptions::new().read(true).write(true).open(lab.path("data.raw")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), server.facts["array_bytes"]);
    file.write_all_at(&bytes, 12345).unwrap();
    file.sync_all().unwrap();
    drop(file);
    lab.run("stop data").ok();
    drop(server);
    assert!(!exists(lab.path("data.raw")), "what was made is removed");
    lab.run("cat -o out m0 m1 m2").ok();
    assert!(lab.read("out")[12345..][..bytes.len()] == bytes);
}

/// What would be lost: all that a deleted member of a RAID0 holds, which only the server has still.
#[test]
fn an_unmount_does_not_end_what_would_be_gone_with_it() {
    if !fuse_or_say("unmounting what is deleted") {
        return;
    }
    if !installed("umount") {
        return not_run("unmounting what is deleted", "umount is not installed");
    }
    let lab = Lab::new(&[32, 32]);
    lab.run("create data -l0 -c64 m0 m1").ok();
    let mut server = lab.serve("m0 m1 --fuse data.raw");
    std::fs::remove_file(lab.path("m1")).unwrap();
    let refused = lab.run("stop data");
    assert!(refused.code == 1 && refused.err.contains("it serves on"), "{refused:?}");
    unmount(&lab);
    // It hears of that a moment later.
    for _ in 0..20 {
        let refused = lab.run("stop data");
        assert!(refused.code == 1 && refused.err.contains("it serves on"), "{refused:?}");
    }
    lab.run("stop data --force").ok();
    let (code, said) = server.end();
    assert!(code == 0 && said.contains("unmounted, but the server does not end: "), "{said}");
}

fn unmount(lab: &Lab) {
    let by_hand = lab.other("umount data.raw").unwrap();
    if by_hand.code != 0 {
        lab.other("fusermount3 -u data.raw").unwrap().ok();
    }
}

#[test]
fn an_unmount_by_hand_is_a_stop() {
    if !fuse_or_say("unmounting by hand") {
        return;
    }
    if !installed("umount") {
        return not_run("unmounting by hand", "umount is not installed");
    }
    let lab = three();
    let mut server = lab.serve("m0 m1 m2 --fuse data.raw");
    unmount(&lab);
    assert_eq!(server.end().0, 0);
}

#[test]
fn the_mount_of_a_server_that_died_is_taken_away() {
    if !fuse_or_say("mounting where a server died") {
        return;
    }
    let lab = three();
    lab.serve("m0 m1 m2 --fuse data.raw").kill();
    let mut server = lab.serve("m0 m1 m2 --fuse data.raw");
    server.signal("-TERM");
    let (code, said) = server.end();
    let told = "data.raw: the mount of a server that died was taken away";
    assert!(code == 0 && said.contains(told), "{said}");
}

#[test]
fn an_array_whose_file_is_open_is_not_stopped_unless_forced() {
    if !fuse_or_say("stopping an array that is in use") {
        return;
    }
    let lab = three();
    let mut server = lab.serve("m0 m1 m2 --name data --fuse data.raw");
    let open = || File::options().read(true).write(true).open(lab.path("data.raw")).unwrap();
    let file = open();
    let refused = lab.run("stop data");
    assert!(refused.code == 1 && refused.err.contains("is open"), "{refused:?}");
    file.write_all_at(&[7; 4096], 0).unwrap();
    drop(file);
    // What closes the file a moment later is waited for.
    let file = open();
    let closing = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(file);
    });
    lab.run("stop data").ok();
    closing.join().unwrap();
    assert_eq!(server.end().0, 0);
    let mut server = lab.serve("m0 m1 m2 --name data --fuse data.raw");
    let _file = open();
    lab.run("stop data --force").ok();
    let (code, said) = server.end();
    assert!(code == 1 && said.contains("has it open still"), "{code}: {said}");
}

#[test]
fn a_signal_stops_an_array_whose_file_is_open_and_says_what_that_means() {
    if !fuse_or_say("a signal to a server whose file is in use") {
        return;
    }
    let lab = three();
    let mut server = lab.serve("m0 m1 m2 --name data --fuse data.raw");
    let file = File::options().read(true).write(true).open(lab.path("data.raw")).unwrap();
    file.write_all_at(&[7; 4096], 0).unwrap();
    server.signal("-TERM");
    let (code, said) = server.end();
    assert!(
        code == 1 && said.contains("superblocks say clean, but its file or device was in use"),
        "{said}"
    );
    assert!(file.write_all_at(&[8; 4096], 0).is_err());
    assert!(!exists(lab.path("data.raw")) || lab.read("data.raw").is_empty());
    let examined = lab.run("examine m0 m1 m2").ok();
    assert_eq!(examined.out.matches("State : clean").count(), 3, "{examined:?}");
    let copy = lab.run("cat m0 m1 m2 -o copy").ok();
    assert!(lab.read("copy")[..4096] == [7; 4096], "{copy:?}");
}

#[test]
fn a_file_with_contents_is_not_covered() {
    if !fuse_or_say("refusing a mount point") {
        return;
    }
    let lab = three();
    std::fs::write(lab.path("precious"), "x").unwrap();
    let before = ["m0", "m1", "m2"].map(|name| lab.read(name));
    let ran = lab.run("serve m0 m1 m2 --fuse precious");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("not empty"), "{ran:?}");
    assert_eq!(lab.read("precious"), b"x");
    let ran = lab.run("serve m0 m1 m2 --fuse precious --overlay cow");
    assert!(ran.code == 1 && !exists(lab.path("cow")), "its overlay stayed: {ran:?}");
    let ran = lab.run("serve m0 m1 m2 --nbd unix:early.sock --fuse precious --overlay cow");
    assert!(ran.code == 1 && !exists(lab.path("cow")), "its overlay stayed: {ran:?}");
    assert!(["m0", "m1", "m2"].map(|name| lab.read(name)) == before, "members were written to");
}

#[test]
fn an_overlay_takes_all_writes_and_keeps_them() {
    if !installed("nbdcopy") {
        return not_run("serving beneath an overlay", "nbdcopy is not installed");
    }
    let lab = three();
    let before: Vec<_> = ["m0", "m1", "m2"].map(|name| lab.read(name)).into();
    let server = lab.serve("m0 m1 m2 --overlay rescue.cow");
    let bytes = pattern(6, 2 << 20);
    std::fs::write(lab.path("in"), &bytes).unwrap();
    lab.other(&format!("nbdcopy --flush in {}", server.uri())).unwrap().ok();
    server.stop();
    for (name, before) in ["m0", "m1", "m2"].iter().zip(&before) {
        assert!(lab.read(name) == *before, "{name} was written");
    }
    let server = lab.serve("m0 m1 m2 --overlay rescue.cow");
    lab.other(&format!("nbdcopy {} out", server.uri())).unwrap().ok();
    server.stop();
    assert!(lab.read("out")[..bytes.len()] == bytes);
    let used = File::open(lab.path("rescue.cow")).unwrap().metadata().unwrap().len();
    assert!(used < 16 << 20, "{used} bytes");
}

/// Loop devices with 4096-byte blocks.
fn big_blocks(lab: &Lab, files: &[&str], what: &str) -> Option<LoopDevices> {
    let files: Vec<_> = files.iter().map(|file| lab.path(file)).collect();
    LoopDevices::over(&files, &["--sector-size", "4096"], what)
}

/// What would be lost: the member, at the first write that is no multiple of its blocks.
#[test]
fn a_member_with_larger_blocks_than_clients_may_write_is_refused() {
    let lab = Lab::new(&[8; 3]);
    let Some(devices) = big_blocks(&lab, &["m2"], "a spare with 4096-byte blocks") else {
        return;
    };
    lab.run("create data -l1 --assume-clean m0 m1").ok();
    let server = lab.serve_data("m0 m1");
    let refused = lab.run(&format!("add data {}", devices.0[0]));
    assert!(refused.code == 1 && refused.err.contains("blocks are of 4096 bytes"), "{refused:?}");
    server.stop();
    // Where it is a member from the start, others follow it.
    lab.run(&format!("create data -l1 --force --assume-clean m0 {}", devices.0[0])).ok();
    let server = lab.serve_data(&format!("m0 {}", devices.0[0]));
    lab.run("add data m1 --force").ok();
    server.stop();
}

#[test]
fn members_with_large_blocks_serve_any_byte_as_a_file() {
    let what = "an array on devices with 4096-byte blocks";
    if !fuse_or_say(what) {
        return;
    }
    let lab = Lab::new(&[32, 32, 32]);
    let Some(devices) = big_blocks(&lab, &["m0", "m1", "m2"], what) else { return };
    let members = devices.0.join(" ");
    lab.run(&format!("create data -l5 -c64 --assume-clean {members}")).ok();
    let server = lab.serve(&format!("{members} --name data --fuse data.raw"));
    let file = OpenOptions::new().read(true).write(true).open(lab.path("data.raw")).unwrap();
    let mut expected = vec![0; 2 << 20];
    for (at, len) in [(513usize, 1usize), (4095, 2), (70_000, 100_001), (1 << 20, 4096)] {
        let bytes = pattern(at as u64, len);
        file.write_all_at(&bytes, at as u64).unwrap();
        expected[at..at + len].copy_from_slice(&bytes);
    }
    file.sync_all().unwrap();
    let mut read = vec![0; 777];
    file.read_exact_at(&mut read, 69_999).unwrap();
    assert_eq!(read, expected[69_999..][..777]);
    drop(file);
    lab.run("stop data").ok();
    drop(server);
    lab.run(&format!("cat -o out {members}")).ok();
    assert!(lab.read("out")[..2 << 20] == expected);
    assert_eq!(lab.run(&format!("scan {members}")).code, 0, "whole");
}

/// What would be lost: everything that waits for the array, for ever, the array itself included.
#[test]
fn nothing_on_the_array_itself_becomes_a_part_of_it() {
    let what = "a member on the array itself";
    if !fuse_or_say(what) {
        return;
    }
    if !exists("/sbin/mkfs.ext4") {
        return not_run(what, "mkfs.ext4 is not installed");
    }
    let lab = Lab::new(&[32, 32]);
    lab.run("create data -l1 -n3 --bitmap none --assume-clean m0 m1 missing").ok();
    let server = lab.serve("m0 m1 --fuse data.raw");
    let Some(loops) = LoopDevices::over(&[lab.path("data.raw")], &[], what) else { return };
    let device = &loops.0[0];
    let script = format!(
        "mkdir mnt && /sbin/mkfs.ext4 -q {device} && mount {device} mnt && truncate -s 32M mnt/inside"
    );
    let shell = |script: &str| Ran::of(lab.command("sh").args(["-c", script]).output().unwrap());
    let made = shell(&script);
    let refused = [
        lab.run("add data mnt/inside --force"),
        lab.run(&format!("add data {device} --force")),
        lab.run("grow data --bitmap ./mnt/bits"),
    ];
    let unmounted = shell("umount mnt");
    drop(loops);
    assert_eq!((made.code, unmounted.code), (0, 0), "{made:?} {unmounted:?}");
    for refused in refused {
        assert!(
            refused.code == 1 && refused.err.contains("lies on this array itself"),
            "{refused:?}"
        );
    }
    server.stop();
}
