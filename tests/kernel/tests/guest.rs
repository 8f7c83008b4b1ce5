//! The runner's promises, on each judge.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lapstrake_kernel_md::{Error, Kernel, Output, judges_or_say};

const MIB: u64 = 1 << 20;

fn members(directory: &Path, count: usize, size: u64) -> Vec<PathBuf> {
    (0..count)
        .map(|index| {
            let path = directory.join(format!("member {index}.img"));
            File::create(&path).unwrap().set_len(size).unwrap();
            path
        })
        .collect()
}

fn good(result: Result<Output, Error>) -> String {
    let output = result.unwrap();
    assert!(output.success(), "{output}");
    output.text()
}

#[test]
fn status_and_both_outputs_come_back() {
    for judge in judges_or_say("status and outputs") {
        let mut guest = Kernel::of(judge).boot().unwrap();
        let output = guest.run("printf 'one\\000two'; echo oh >&2; exit 7").unwrap();
        assert_eq!(
            output,
            Output { status: 7, stdout: b"one\0two".into(), stderr: b"oh\n".into() }
        );
        assert_eq!(good(guest.run("grep -c raid6 /proc/mdstat")), "1\n");
        guest.shut_down().unwrap();
    }
}

#[test]
fn ubd_members_hold_what_the_array_was_given() {
    for judge in judges_or_say("ubd members") {
        let directory = tempfile::tempdir().unwrap();
        let files = members(directory.path(), 2, 8 * MIB);
        let kernel = files.iter().fold(Kernel::of(judge), |kernel, file| kernel.member(file));
        let script = "mdadm -CR /dev/md0 -l1 -n2 --assume-clean /dev/ubda /dev/ubdb && \
                  yes lapstrake | dd of=/dev/md0 bs=64k count=16 iflag=fullblock conv=fsync && \
                  mdadm --stop /dev/md0";
        good(kernel.run(script));
        let copies: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
        for copy in &copies {
            assert_eq!(copy[4096..4100], [0xfc, 0x4e, 0x2b, 0xa9], "superblock 1.2 of md");
            assert_eq!(&copy[MIB as usize..][..10], b"lapstrake\n");
        }
        assert_eq!(copies[0][MIB as usize..], copies[1][MIB as usize..]);
    }
}

#[test]
fn attached_files_may_change_hands_between_guest_and_host() {
    for judge in judges_or_say("attached files") {
        let directory = tempfile::tempdir().unwrap();
        let files = members(directory.path(), 3, 8 * MIB);
        let list: Vec<String> = files.iter().map(|file| format!("'{}'", file.display())).collect();
        let list = list.join(" ");
        let mut guest = Kernel::of(judge).boot().unwrap();
        good(guest.run(&format!(
            "set -e; mdadm -CR /dev/md0 -l5 -n3 -c64 --assume-clean $(attach {list})
         yes lapstrake | dd of=/dev/md0 bs=64k count=32 iflag=fullblock; calm"
        )));
        // Left-symmetric: array chunk 0 is on member 0, behind the data offset of 1 MiB.
        let member = File::options().read(true).write(true).open(&files[0]).unwrap();
        let mut bytes = [0; 10];
        member.read_exact_at(&mut bytes, MIB).unwrap();
        assert_eq!(&bytes, b"lapstrake\n");
        member.write_all_at(b"from host\n", MIB).unwrap();
        let mismatches = guest.run(&format!(
            "set -e; mdadm --quiet -A /dev/md0 $(attach {list}); scrub /dev/md0; calm"
        ));
        // md counts whole 4 KiB blocks.
        assert_eq!(good(mismatches), "8\n");
        let head = guest.run(&format!(
            "set -e; mdadm --quiet -A /dev/md0 $(attach {list}); head -c 20 /dev/md0; calm"
        ));
        assert_eq!(good(head), "from host\nlapstrake\n");
        guest.shut_down().unwrap();
    }
}

#[test]
fn further_programs_bring_their_libraries() {
    for judge in judges_or_say("further programs") {
        let script =
            "set -e; truncate -s 8M /tmp/fs; mke2fs -q -t ext4 /tmp/fs; e2fsck -fn /tmp/fs";
        let output = Kernel::of(judge).program("mke2fs").program("e2fsck").run(script);
        assert!(good(output).contains("Pass 5"));
    }
}

#[test]
fn a_script_that_hangs_is_ended_and_quoted() {
    for judge in judges_or_say("time limits") {
        let mut guest = Kernel::of(judge).timeout(Duration::from_secs(1)).boot().unwrap();
        let error = guest.run("sleep 1000").unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        assert!(matches!(guest.run("true"), Err(Error::Died { .. })));
    }
}

#[test]
fn a_guest_that_ends_during_a_script_is_an_error() {
    for judge in judges_or_say("guests that end") {
        let mut guest = Kernel::of(judge).boot().unwrap();
        assert!(matches!(guest.run("poweroff -f; sleep 9"), Err(Error::Died { .. })));
    }
}

#[test]
fn a_cut_leaves_what_was_flushed() {
    for judge in judges_or_say("power cuts") {
        let directory = tempfile::tempdir().unwrap();
        let paths = members(directory.path(), 1, 8 << 20);
        let mut guest = Kernel::of(judge).boot().unwrap();
        let script = format!(
            "device=$(attach '{}')
         echo flushed | dd of=$device bs=512 conv=sync,notrunc,fsync 2>/dev/null",
            paths[0].display()
        );
        good(guest.run(&script));
        guest.cut();
        assert!(std::fs::read(&paths[0]).unwrap().starts_with(b"flushed\n"));
    }
}

#[test]
fn seventeen_members_are_refused() {
    let kernel = (0..17).fold(Kernel::new(), |kernel, _| kernel.member("x"));
    assert!(matches!(kernel.boot(), Err(Error::TooManyMembers { found: 17 })));
}
