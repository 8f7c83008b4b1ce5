//! `examine` says what mdadm says, line by line: of arrays that we made, and of arrays that the
//! kernel made and used.

use crate::support::{Lab, installed, not_run};
use lapstrake_kernel_md::{Kernel, available_or_say};
use serde_json::json;

/// Both programs' lines about a member.
fn same_as_mdadm(lab: &Lab, member: &str, what: &str) {
    let Some(theirs) = lab.other(&format!("mdadm --examine {member}")) else { return };
    let ours = lab.run(&format!("examine {member}")).ok();
    // What only Lapstrake says stands at the end.
    let mut same = &*ours.out;
    for own in ["\n Logical Block Size :", "\n    Unsupported :"] {
        same = same.split_once(own).map_or(same, |(before, _)| before);
    }
    let theirs = without_device_names(&theirs.ok().out);
    let differ = theirs.lines().zip(same.lines()).find(|(theirs, ours)| theirs != ours);
    assert_eq!(theirs, same, "{what} {member}: first difference {differ:?}");
}

/// mdadm ends a 0.90 member's lines with the name that the member's old number has on this machine.
/// Lapstrake does not: the numbers may be another machine's.
fn without_device_names(text: &str) -> String {
    let shorter = |line: &str| match line.split_once("   /dev/") {
        Some((facts, _)) => format!("{facts}\n"),
        None => format!("{line}\n"),
    };
    text.lines().map(shorter).collect()
}

#[test]
fn arrays_of_ours_print_as_mdadm_prints_them() {
    if !installed("mdadm") {
        return not_run("examine beside mdadm", "mdadm is not installed");
    }
    let mut shapes: Vec<String> = Vec::new();
    for version in ["0.90", "1.0", "1.1", "1.2"] {
        shapes.push(format!("-l linear -e {version} --homehost none m0 m1 m2"));
        for level in ["0", "1", "4", "5", "10"] {
            shapes.push(format!("-l {level} -e {version} --assume-clean m0 m1 m2"));
        }
        for more in ["-l6 -p ddf-N-restart -c64", "-l10 -p f2", "-l10 -p o3", "-l5 -x1 -n3"] {
            shapes.push(format!("{more} -e {version} m0 m1 m2 m3"));
        }
        shapes.push(format!("-l1 -e {version} -b internal m0 missing m2"));
        shapes.push(format!("-l5 -e {version} -b internal -z 20M m0 m1 missing"));
    }
    shapes.push("-l0 -p alternate m0 m1 big".into());
    shapes.push("-l1 -b internal --data-offset 8M m0 m1".into());
    shapes.push("-l1 -b internal --bitmap-chunk 4 -z 32M m0 m1".into());
    for shape in shapes {
        let lab = Lab::new(&[64, 64, 64, 64]);
        lab.file("big", 128 << 20);
        lab.run(&format!("create data {shape}")).ok();
        for member in shape.split_whitespace().filter(|word| lab.path(word).is_file()) {
            same_as_mdadm(&lab, member, &shape);
        }
    }
}

#[test]
fn large_members_print_as_mdadm_prints_them() {
    if !installed("mdadm") {
        return not_run("examine beside mdadm", "mdadm is not installed");
    }
    for shape in ["-l1 -n2", "-l5 -n3 -e 1.0", "-l10 -n3 -c 4M", "-l6 -n4 -b none"] {
        let lab = Lab::new(&[]);
        for name in ["m0", "m1", "m2", "m3"] {
            lab.file(name, 3 << 40);
        }
        let count: usize = shape.split("-n").nth(1).unwrap()[..1].parse().unwrap();
        let members = ["m0", "m1", "m2", "m3"][..count].join(" ");
        lab.run(&format!("create data --assume-clean {shape} {members}")).ok();
        same_as_mdadm(&lab, "m0", shape);
    }
}

/// Makes arrays in the guest, uses and hurts some of them, and leaves the members to us.
const KERNEL_ARRAYS: &str = r#"
set -e
make() { mdadm --create /dev/md0 --run --quiet "$@" >&2; }
used() { dd if=/dev/urandom of=/dev/md0 bs=64k count=64 conv=fsync 2>/dev/null; }
d0=$(attach $DIR/k0) d1=$(attach $DIR/k1) d2=$(attach $DIR/k2) d3=$(attach $DIR/k3)
make -l1 -n2 -b internal $d0 $d1; used
echo "100 8" > /sys/block/md0/md/dev-${d0#/dev/}/bad_blocks
echo "5000 600" > /sys/block/md0/md/dev-${d0#/dev/}/bad_blocks
mdadm --wait /dev/md0 || true
mdadm --stop /dev/md0 2>/dev/null
make -l6 -n4 -e 1.0 -c64 --assume-clean $d2 $d3 missing missing; used
mdadm --stop /dev/md0 2>/dev/null
d4=$(attach $DIR/k4) d5=$(attach $DIR/k5) d6=$(attach $DIR/k6) d7=$(attach $DIR/k7)
make -l5 -n3 -x1 -e 0.90 --assume-clean -b internal $d4 $d5 $d6 $d7; used
mdadm /dev/md0 --fail $d5 2>/dev/null
mdadm --wait /dev/md0 || true
mdadm --stop /dev/md0 2>/dev/null
d8=$(attach $DIR/k8) d9=$(attach $DIR/k9) da=$(attach $DIR/k10)
make -l10 -n3 -p f2 -e 1.1 --assume-clean -W $d8 $d9 $da 2>/dev/null || make -l10 -n3 -p f2 -e 1.1 --assume-clean $d8 $d9 $da
used
mdadm --stop /dev/md0 2>/dev/null
echo BITMAP; mdadm -X $d0; echo BITMAP090; mdadm -X $d4
calm
"#;

#[test]
fn arrays_of_the_kernels_print_as_mdadm_prints_them() {
    let what = "examine of arrays that the kernel made";
    if !available_or_say(what) {
        return;
    }
    let lab = Lab::new(&[]);
    let names: Vec<String> = (0..=10).map(|n| format!("k{n}")).collect();
    for name in &names {
        lab.file(name, 32 << 20);
    }
    let dir = lab.path("").display().to_string();
    let script = format!("DIR={dir}\n{KERNEL_ARRAYS}");
    let output = Kernel::new().run(&script).unwrap();
    assert!(output.success(), "{output}");
    for name in &names {
        same_as_mdadm(&lab, name, what);
    }
    bitmaps_are_the_same(&lab, &output.text());
    bad_blocks_are_the_same(&lab);
}

/// mdadm takes a regular file for a bitmap's, so its words about a member come from the guest.
fn bitmaps_are_the_same(lab: &Lab, printed: &str) {
    let (_, printed) = printed.split_once("BITMAP\n").unwrap();
    let (k0, k4) = printed.split_once("BITMAP090\n").unwrap();
    for (member, theirs) in [("k0", k0), ("k4", k4)] {
        let ours = lab.run(&format!("examine --bitmap {member}")).ok().out;
        let facts = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(facts(&ours), facts(theirs), "{member}");
    }
}

fn bad_blocks_are_the_same(lab: &Lab) {
    for (member, any) in [("k0", true), ("k1", false), ("k4", false)] {
        let Some(theirs) = lab.other(&format!("mdadm --examine-badblocks {member}")) else {
            return;
        };
        let ours = lab.run(&format!("examine --badblocks {member}")).ok().out;
        if member != "k4" {
            assert_eq!(theirs.out, ours, "{theirs:?}");
        }
        assert_eq!(ours.contains("for 8 sectors"), any, "{ours}");
    }
}

#[test]
fn json_has_every_part() {
    let lab = Lab::new(&[64, 64]);
    lab.run("create data -l1 -b internal --assume-clean m0 m1").ok();
    let all = lab.run("examine --json m0 m1").ok().json();
    assert_eq!(all.as_array().unwrap().len(), 2);
    let first = &all[0];
    assert_eq!(first["member"], "m0");
    assert_eq!(first["size_bytes"], 64 << 20);
    assert_eq!(first["superblock"]["level"], "raid1");
    assert_eq!(first["superblock"]["slot"], 0);
    assert_eq!(first["superblock"]["fields"]["magic"], 0xa92b_4efc_u32);
    assert_eq!(first["superblock"]["roles"][1], "active 1");
    assert_eq!(first["bitmap"]["chunk_bytes"], 64 << 20);
    assert_eq!(first["bad_blocks"], serde_json::json!([]));
    assert_eq!(first["findings"][0]["kind"], "md");
    assert_eq!(all[1]["superblock"]["device_number"], 1);
}

#[test]
fn what_is_no_member_is_told_and_fails() {
    let lab = Lab::new(&[16, 16]);
    lab.run("create data -l1 --assume-clean m0 m1").ok();
    lab.file("empty", 1 << 20);
    let ran = lab.run("examine empty m0 nothing");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("empty: no usable md superblock"), "{ran:?}");
    assert!(ran.err.contains("nothing: cannot"), "{ran:?}");
    assert!(ran.out.contains("m0:\n"), "the others are printed: {ran:?}");
    // A bit flipped in the name.
    let at = 4096 + 32;
    let flipped = lab.read("m1")[at] ^ 1;
    lab.write_at("m1", at as u64, &[flipped]);
    let ran = lab.run("examine m1");
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("checksum"), "{ran:?}");
    // A copy that was broken off.
    std::fs::OpenOptions::new().write(true).open(lab.path("m0")).unwrap().set_len(5 << 20).unwrap();
    let ran = lab.run("examine m0");
    assert_eq!(ran.code, 1);
    assert_eq!(ran.out.matches("the device is cut short").count(), 1, "{ran:?}");
    assert_eq!(ran.err, "lapstrake: m0: no usable md superblock\n");
    let told = lab.run("scan m0").out;
    assert_eq!(told.matches("the device is cut short").count(), 1, "{told}");
    lab.write_at("empty", (1 << 20) - 1024, b"Intel Raid ISM Cfg Sig. 1.3.00");
    let ran = lab.run("examine empty");
    assert!(ran.out.contains("IMSM (Intel) RAID metadata"), "{ran:?}");
}

#[test]
fn features_that_cannot_be_acted_upon_are_named() {
    let lab = Lab::new(&[16, 16]);
    lab.run("create data -l5 --assume-clean -n2 m0 m1").ok();
    // The feature bit of a cluster, and the checksum that goes with it.
    let sb = lab.read("m0")[4096..4096 + 256 + 512].to_vec();
    let sum = u32::from_le_bytes(sb[216..220].try_into().unwrap()).wrapping_add(0x100);
    lab.write_at("m0", 4096 + 8, &0x100_u32.to_le_bytes());
    lab.write_at("m0", 4096 + 216, &sum.to_le_bytes());
    let ran = lab.run("examine m0").ok();
    assert!(ran.out.contains("Unsupported : the array is clustered"), "{ran:?}");
    let ran = lab.run("serve m0 m1");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("clustered"), "{ran:?}");
}

#[test]
fn a_bitmap_file_is_told_in_json_as_in_text() {
    let lab = Lab::new(&[16, 16]);
    lab.run("create data -l1 --assume-clean -b ./bits m0 m1").ok();
    let told = lab.run("examine --bitmap --json bits m0").ok().json();
    let uuid = &told[1]["superblock"]["uuid"];
    assert_eq!((&told[0]["superblock"], &told[0]["bitmap"]["uuid"]), (&json!(null), uuid));
    assert_eq!(told[1]["bitmap"], json!(null), "not an internal one");
    lab.file("empty", 1 << 20);
    for json in ["", "--json"] {
        assert_eq!(lab.run(&format!("examine --bitmap {json} empty")).code, 1);
    }
    let plain = lab.run("examine --json bits");
    assert_eq!((plain.code, &plain.json()[0]["bitmap"]), (1, &json!(null)));
    assert_eq!(plain.json()[0]["error"], "no usable md superblock");
    assert_eq!(told[1]["error"], json!(null));
    // What is wrong with one is told by both.
    lab.write_at("bits", 0, b"what");
    let (text, json) = (lab.run("examine -X bits").err, lab.run("examine -X --json bits").json());
    let wrong = json[0]["bitmap"]["error"].as_str().unwrap();
    assert!(wrong.contains("no bitmap: magic") && text.contains(wrong), "{wrong}, {text}");
}
