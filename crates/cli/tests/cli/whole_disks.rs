//! Promise: images of whole disks are looked into, and a partition's superblock is not taken for the disk's.

use crate::support::{Lab, exists, installed, not_run, pattern};
use std::process::{Child, Command};

/// An MBR with one partition of type 0xfd that ends with the disk, as sfdisk writes it.
fn partition(lab: &Lab, disk: &str, start: u64) {
    let sectors = lab.path(disk).metadata().unwrap().len() / 512 - start;
    let mut table = [0; 66];
    table[4] = 0xfd;
    table[8..12].copy_from_slice(&(start as u32).to_le_bytes());
    table[12..16].copy_from_slice(&(sectors as u32).to_le_bytes());
    table[64..].copy_from_slice(&[0x55, 0xaa]);
    lab.write_at(disk, 446, &table);
}

fn disks(shape: &str) -> Lab {
    let lab = Lab::new(&[16, 16, 16]);
    ["m0", "m1", "m2"].into_iter().for_each(|disk| partition(&lab, disk, 2048));
    lab.run(&format!("create data --assume-clean {shape} m0#1 m1#1 m2#1")).ok();
    lab
}

#[test]
fn a_partitions_superblock_is_not_taken_for_the_disks() {
    let lab = disks("-l5 -e 0.90 -c64");
    let server = lab.serve_data("m0#1 m1#1 m2#1");
    let contents = pattern(3, 1 << 20);
    lab.fill(&server, &contents);
    server.stop();
    let table = lab.read("m0")[..1 << 20].to_vec();

    for line in ["cat m0 m1 m2 -o out", "serve m0 m1 m2"] {
        let ran = lab.run(line);
        assert_eq!(ran.code, 1, "{line}: {ran:?}");
        let place = "is that of partition 1 (bytes 1048576 to 16777216)";
        for words in [place, "give m0#1", "nothing was written"] {
            assert!(ran.err.contains(words), "{line}: {words}: {ran:?}");
        }
    }
    let ran = lab.run("scan m0 m1 m2").ok();
    assert!(ran.out.contains("lapstrake serve m0#1 m1#1 m2#1\n"), "{ran:?}");
    assert_eq!(ran.out.matches(": complete").count(), 1, "{ran:?}");
    lab.run("cat -o out m0#1 m1#1 m2#1").ok();
    assert!(lab.read("out").starts_with(&contents));
    // Who names a window by its size means that.
    lab.run("cat --length 4K -o whole m0@0+16M m1@0+16M m2@0+16M").ok();
    assert_eq!(lab.read("whole")[..512], table[..512]);
    assert!(lab.read("m0")[..1 << 20] == table, "the table is as it was");
}

#[test]
fn what_is_in_partitions_is_listed_and_a_member_wherever_one_is_taken() {
    let lab = disks("-l1 --spare-devices 1");
    let json = lab.run("scan --json .").ok().json();
    assert_eq!(json["arrays"][0]["serve"], "lapstrake serve ./m0#1 ./m1#1 ./m2#1");
    assert_eq!(json["others"].as_array().unwrap().len(), 3, "{json:#}");
    let server = lab.serve_data("m0#1 m1#1");
    lab.run("add data m2#1 --force").ok();
    lab.run("fail data m1#1").ok();
    lab.run("wait data --timeout 60").ok();
    lab.run("remove data m1#1").ok();
    let detail = lab.detail();
    assert_eq!(detail["members"].as_array().unwrap().len(), 2, "{detail:#}");
    let busy = lab.run("serve m0");
    assert!(busy.code == 1, "{busy:?}");
    server.stop();
    assert!(lab.run("examine m2#1").ok().out.contains("m2#1:"));
    let ran = lab.run("examine m2#2");
    assert!(ran.code == 1 && ran.err.contains("no partition 2; there is 1;"), "{ran:?}");
}

#[test]
fn a_disk_without_an_array_is_no_success() {
    let lab = Lab::new(&[16]);
    partition(&lab, "m0", 2048);
    let ran = lab.run("scan m0");
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.out.contains("m0: an MBR partition table at byte 510\nm0#1: no md superblock"),
        "{ran:?}"
    );
    std::fs::File::options().write(true).open(lab.path("m0")).unwrap().set_len(8 << 20).unwrap();
    let ran = lab.run("examine m0#1");
    assert!(ran.code == 1 && ran.err.contains("it is cut short"), "{ran:?}");
}

#[test]
fn a_file_named_like_a_partition_is_that_file() {
    let lab = Lab::new(&[]);
    lab.file("disk#1", 16 << 20);
    lab.file("disk#2", 16 << 20);
    lab.run("create data -l1 --assume-clean disk#1 disk#2").ok();
    let ran = lab.run("scan disk#1 disk#2").ok();
    assert!(ran.out.contains("lapstrake serve disk#1@0 disk#2@0"), "{ran:?}");
    lab.file("disk", 16 << 20);
    let ran = lab.run("scan disk#1");
    assert!(ran.code == 2 && ran.err.contains("write disk#1@0 for it"), "{ran:?}");
}

/// A program of others that shows a file below a directory until it is dropped.
struct Shown<'a>(&'a Lab, &'static str, Child);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        let _ = self.0.command("fusermount3").args(["-u", self.1]).status();
        let _ = self.2.wait();
    }
}

/// Runs a shell's command line until `file` is there.
fn shown<'a>(lab: &'a Lab, line: &str, directory: &'static str, file: &str) -> Shown<'a> {
    let mut shell: Command = lab.command("sh");
    let shown = Shown(lab, directory, shell.args(["-c", line]).spawn().unwrap());
    let end = std::time::Instant::now() + crate::BOUND;
    while !exists(lab.path(file)) {
        assert!(std::time::Instant::now() < end, "{line}: no {file}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    shown
}

#[test]
fn images_in_other_formats_are_shown_as_files_by_what_is_proposed() {
    let what = "disk images in other formats";
    if !exists("/dev/fuse") {
        return not_run(what, "there is no /dev/fuse");
    }
    if let Some(lacking) = ["qemu-img", "nbdfuse", "nbdkit"].iter().find(|it| !installed(it)) {
        return not_run(what, &format!("{lacking} is not installed"));
    }
    let lab = disks("-l1 -n2 --spare-devices 1");
    lab.run("cat m1#1 -o right").ok();
    lab.other("qemu-img convert -f raw -O qcow2 m0 m0.qcow2").unwrap().ok();
    let ran = lab.run("scan m0.qcow2").ok();
    // While it was not looked into, it may be what the mirror lacks.
    let lacking = lab.run("scan m0.qcow2 m1");
    assert!(lacking.code == 3 && lacking.out.contains("so no command is proposed"), "{lacking:?}");
    assert!(!lacking.out.contains("lapstrake serve"), "{lacking:?}");
    let line = ran.out.split('`').nth(1).unwrap_or_else(|| panic!("{ran:?}"));
    let line = line.trim_end_matches(" &");
    let qcow = shown(&lab, line, "m0.qcow2.raw", "m0.qcow2.raw/nbd");
    // The second in pieces.
    lab.other("split -b 5M m1 m1.").unwrap().ok();
    let line = "mkdir m1.raw && nbdfuse m1.raw/m1 --command nbdkit -s -r split m1.a?";
    let split = shown(&lab, line, "m1.raw", "m1.raw/m1");
    let ran = lab.run("scan m0.qcow2.raw m1.raw").ok();
    let serve = "lapstrake serve m0.qcow2.raw/nbd#1 m1.raw/m1#1";
    assert!(ran.out.contains(serve), "{ran:?}");
    lab.run("cat m0.qcow2.raw/nbd#1 m1.raw/m1#1 -o out").ok();
    assert!(lab.read("out") == lab.read("right"));
    lab.serve("m0.qcow2.raw/nbd#1 m1.raw/m1#1 --overlay cow").stop();
    drop((qcow, split));
}

#[test]
fn a_forensic_image_is_shown_as_a_file_by_what_is_proposed() {
    let what = "forensic disk images";
    if !exists("/dev/fuse") {
        return not_run(what, "there is no /dev/fuse");
    }
    if let Some(lacking) = ["ewfacquirestream", "ewfmount"].iter().find(|it| !installed(it)) {
        return not_run(what, &format!("{lacking} is not installed"));
    }
    let lab = disks("-l1 -n2 --spare-devices 1");
    lab.run("cat m1#1 -o right").ok();
    let acquire =
        "ewfacquirestream -q -t image -C c -D d -e e -E 1 -N n -m fixed -M physical -c none <m0";
    let status = lab.command("sh").args(["-c", acquire]).output().unwrap().status;
    assert!(status.success(), "{acquire}");
    let refused = lab.run("create other -l1 --assume-clean image.E01 missing");
    assert!(refused.code == 1 && refused.err.contains("a forensic disk image"), "{refused:?}");
    let ran = lab.run("scan image.E01").ok();
    let line = ran.out.split('`').nth(1).unwrap_or_else(|| panic!("{ran:?}"));
    let mounted = shown(&lab, line, "image.E01.raw", "image.E01.raw/ewf1");
    let ran = lab.run("scan image.E01.raw m1").ok();
    assert!(ran.out.contains("lapstrake serve image.E01.raw/ewf1#1 m1#1"), "{ran:?}");
    lab.run("cat image.E01.raw/ewf1#1 m1#1 -o out").ok();
    assert!(lab.read("out") == lab.read("right"));
    drop(mounted);
}
