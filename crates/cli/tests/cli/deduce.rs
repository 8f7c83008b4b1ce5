//! `lapstrake deduce`, and `create --rescue`, which tries what it says: the members stay as they are, byte for byte.

use crate::on_record::rewrite;
use crate::support::Lab;
use crate::support::md::can_copy;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

/// A RAID5 of four with an ext4 on it. None, which is said, if there is no mkfs.ext4.
fn raid5(lab: &Lab) -> Option<Vec<u8>> {
    for member in ["m0", "m1", "m2", "m3"] {
        lab.file(member, 64 << 20);
    }
    let files = lab.path("files");
    for directory in 0..20 {
        let path = files.join(format!("d{directory}"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..12 {
            fs::write(path.join(format!("f{file}")), format!("{file} ").repeat(4000)).unwrap();
        }
    }
    lab.file("image", 120 << 20);
    let mut mkfs = Command::new("/usr/sbin/mkfs.ext4");
    let made = mkfs.args(["-q", "-F", "-d"]).arg(files).arg(lab.path("image")).status();
    if !made.is_ok_and(|status| status.success()) {
        lapstrake_not_run::not_run("deduce of an ext4: mkfs.ext4 does not run");
        return None;
    }
    let contents = lab.read("image");
    let args = "create old -l 5 -n 4 -c 64 --assume-clean --homehost none m0 m1 m2 m3";
    lab.run(args).ok();
    write_through_library(lab, &contents);
    Some(contents)
}

fn write_through_library(lab: &Lab, contents: &[u8]) {
    let members = ["m0", "m1", "m2", "m3"].map(|member| lab.path(member));
    let array = lapstrake::Array::open(members).unwrap();
    for (index, part) in contents.chunks(1 << 20).enumerate() {
        if part.iter().any(|byte| *byte != 0) {
            array.write_at((index as u64) << 20, part).unwrap();
        }
    }
    array.close().unwrap();
}

fn wipe(lab: &Lab, members: &[&str]) {
    for member in members {
        let file = fs::File::options().write(true).open(lab.path(member)).unwrap();
        file.write_all_at(&[0; 8192], 0).unwrap();
    }
}

/// What a person does with the printed commands.
fn rescue(lab: &Lab, report: &serde_json::Value) -> Vec<u8> {
    let create = report["candidates"][0]["commands"][0].as_str().unwrap();
    lab.run(create.strip_prefix("lapstrake ").unwrap()).ok();
    let serve = report["candidates"][0]["commands"][1].as_str().unwrap();
    let members = serve.split(' ').skip(6).map(|member| lab.path(member));
    let mut options = lapstrake::OpenOptions::new();
    let array = options.overlay(lab.path("rescue.cow")).degraded(true).open(members).unwrap();
    let mut bytes = vec![0; 120 << 20];
    array.read_at(0, &mut bytes).unwrap();
    array.close().unwrap();
    bytes
}

#[test]
fn wiped_members_in_any_order_are_served_through_an_overlay_and_stay_as_they_are() {
    let lab = Lab::new(&[]);
    let Some(contents) = raid5(&lab) else { return };
    wipe(&lab, &["m0", "m1", "m2", "m3"]);
    let before = ["m0", "m1", "m3"].map(|member| lab.read(member));
    let found = lab.run("deduce --json m3 m0 m1").ok().json();
    let first = &found["candidates"][0];
    let told = (&first["level"], &first["layout"], &first["chunk_bytes"], &first["members"]);
    let expected = serde_json::json!(["raid5", "left-symmetric", 65536, ["m0", "m1", null, "m3"]]);
    assert_eq!(serde_json::json!([told.0, told.1, told.2, told.3]), expected);
    assert!(rescue(&lab, &found) == contents, "the contents differ");
    assert!(["m0", "m1", "m3"].map(|member| lab.read(member)) == before, "a member was written");
}

#[test]
fn a_create_over_an_old_array_is_told_as_what_it_is() {
    let lab = Lab::new(&[]);
    let Some(contents) = raid5(&lab) else { return };
    wipe(&lab, &["m0", "m1", "m2", "m3"]);
    let args = "create new -l 5 -n 4 -c 512 --assume-clean --force --homehost none m2 m0 m1 m3";
    lab.run(args).ok();
    let told = lab.run("deduce m0 m1 m2 m3").ok();
    assert!(told.out.contains("they differ in chunk, data offset, order"), "{}", told.out);
    let found = lab.run("deduce --json m0 m1 m2 m3").ok().json();
    assert!(rescue(&lab, &found) == contents, "the contents differ");
}

/// What is left of the old array's superblocks speaks for it, also beside those of a later one.
#[test]
fn remains_of_superblocks_and_weights_are_shown() {
    let lab = Lab::new(&[]);
    if raid5(&lab).is_none() {
        return;
    }
    let old = ["m0", "m1"].map(|member| lab.read(member)[4096..8192].to_vec());
    lab.run("create new -l 5 -n 4 -c 512 -e 0.90 --assume-clean --force m2 m0 m1 m3").ok();
    // mdadm and we wipe what was there; others do not.
    lab.write_at("m0", 4096, &old[0]);
    let mut spoilt = old[1].clone();
    spoilt[100] ^= 1;
    lab.write_at("m1", 4096, &spoilt);
    let told = lab.run("deduce m0 m1 m2 m3");
    for words in [
        // Which of the two is told first is a tie where both were made within a second.
        "a superblock 1.2 says raid5 of 4, chunk 64K, slot 0",
        "m0: beside it, a superblock",
        "m1: remains of a superblock 1.2 at sector 8",
        "superblocks of 1 of 4 members say the same",
        "weights (logarithms of odds): how usual it is -0.7",
    ] {
        assert!(told.out.contains(words), "{words}: {}", told.out);
    }
    let found = lab.run("deduce --json m0 m1 m2 m3").json();
    let first = &found["candidates"][0];
    assert_eq!(
        (&first["chunk_bytes"], &first["superblocks_that_agree"]),
        (&65536.into(), &1.into())
    );
    assert!(first["weights"]["relations"].as_f64().unwrap() > 0.0, "{first:#}");
}

/// What would be lost: what was written after the member had dropped out, if it were served with the others.
#[test]
fn an_array_with_a_member_that_is_out_of_date_is_not_told_as_sure() {
    let lab = Lab::new(&[]);
    let Some(mut contents) = raid5(&lab) else { return };
    let stale = lab.read("m1");
    let from = contents.len() / 16;
    contents[from..from * 3].iter_mut().for_each(|byte| *byte ^= 0x5a);
    write_through_library(&lab, &contents);
    fs::write(lab.path("m1"), stale).unwrap();
    wipe(&lab, &["m0", "m1", "m2", "m3"]);
    let told = lab.run("deduce m0 m1 m2 m3");
    assert_eq!(told.code, 3, "{told:?}");
    assert!(told.out.contains("Perhaps a member had dropped out before"), "{told:?}");
}

/// An old array's file system, and the new one that was made over it with another chunk.
#[test]
fn two_file_systems_that_want_two_arrays_are_both_told_and_neither_is_sure() {
    let lab = Lab::new(&[]);
    if raid5(&lab).is_none() {
        return;
    }
    lab.run("create new -l 5 -n 4 -c 512 --assume-clean --force --homehost none m3 m1 m0 m2").ok();
    let image = lab.read("image");
    let mkfs =
        Command::new("/usr/sbin/mkfs.ext4").args(["-q", "-F"]).arg(lab.path("image")).status();
    assert!(mkfs.unwrap().success());
    let young = lab.read("image");
    let array = lapstrake::Array::open(["m3", "m1", "m0", "m2"].map(|m| lab.path(m))).unwrap();
    for (index, (new, old)) in young.chunks(4096).zip(image.chunks(4096)).enumerate() {
        if new != old {
            array.write_at((index as u64) << 12, new).unwrap();
        }
    }
    array.close().unwrap();
    wipe(&lab, &["m0", "m1", "m2", "m3"]);
    let told = lab.run("deduce m0 m1 m2 m3");
    assert!(told.code != 0 && !told.out.contains(", sure"), "{told:?}");
    for chunk in ["chunk 64K", "chunk 512K"] {
        assert!(told.out.contains(chunk), "{chunk}: {told:?}");
    }
}

/// With one superblock of three left, `scan` cannot serve the array.
#[test]
fn superblocks_bear_an_arrangement_out_only_if_each_member_has_one() {
    let lab = Lab::new(&[]);
    if raid5(&lab).is_none() {
        return;
    }
    let all = "the superblocks say the same as the contents: lapstrake scan";
    let told = lab.run("deduce m0 m1 m2 m3").ok();
    assert!(told.out.contains(all), "{}", told.out);
    wipe(&lab, &["m0", "m1", "m2"]);
    let told = lab.run("deduce m0 m1 m2 m3").ok();
    assert!(!told.out.contains("lapstrake scan"), "{}", told.out);
    assert!(told.out.contains("the superblocks that are left"), "{}", told.out);
    let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    let ran = command.env("COLUMNS", "80").args(["deduce", "m0", "m1", "m2", "m3"]).output();
    let out = String::from_utf8(ran.unwrap().stdout).unwrap();
    let wide = out.lines().find(|line| line.chars().count() > 80);
    assert_eq!(wide, None, "{out}");
}

#[test]
fn devices_that_tell_nothing_are_told_so() {
    let lab = Lab::new(&[8, 8]);
    let none = lab.run("deduce m0 m1");
    assert_eq!(none.code, 1, "{none:?}");
    assert!(none.out.contains("nothing was found"), "{none:?}");
}

/// A disk's two names were taken for two disks, and it for a mirror.
#[test]
fn one_disk_under_two_names_is_refused() {
    let lab = Lab::new(&[8, 8]);
    fs::hard_link(lab.path("m0"), lab.path("other")).unwrap();
    std::os::unix::fs::symlink("m0", lab.path("link")).unwrap();
    for (line, names) in [
        ("deduce m0 m0", "m0 and m0 share"),
        ("deduce m0 m1 other", "m0 and other share"),
        ("deduce link m1 m0", "link and m0 share"),
        ("deduce m0@0+4M m0@2M+4M", "share bytes"),
    ] {
        let refused = lab.run(line);
        assert_eq!(refused.code, 2, "{line}: {refused:?}");
        assert!(refused.err.contains(names), "{line}: {refused:?}");
    }
    assert_eq!(lab.run("deduce m0@0+4M m0@4M+4M").code, 1, "windows beside each other");
}

#[test]
fn an_overlay_for_rescue_is_a_new_file() {
    let lab = Lab::new(&[16, 16]);
    lab.write_at("m0", 0, &[1; 4096]);
    lab.file("there", 4096);
    let refused = lab.run("create r -l 1 --rescue there m0 m1");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("name a new file"), "{refused:?}");
}

#[test]
fn what_lies_beside_images_is_no_member() {
    let lab = Lab::new(&[16, 16]);
    lab.run("create data -l1 --assume-clean m0 m1").ok();
    lab.run("serve --overlay cow m0 m1 --run true").ok();
    fs::write(lab.path("m0.map"), "0x0 +\n0x0 0x1000000 +\n").unwrap();
    fs::write(lab.path("notes"), "the disk from the left\n").unwrap();
    fs::write(lab.path("half"), [0; 1000]).unwrap();
    for (file, words) in [
        ("cow", "it is the file of an overlay"),
        ("m0.map", "--ddrescue-map IMAGE=m0.map"),
        ("notes", "it is no image: its 23 bytes are text"),
        ("half", "it is no image: its 1000 bytes are no whole sectors"),
    ] {
        let ran = lab.run(&format!("deduce m0 {file}"));
        assert!(ran.code == 1 && ran.err.contains(words), "{file}: {ran:?}");
    }
}

#[test]
fn what_a_rescue_could_not_read_is_no_evidence() {
    let lab = Lab::new(&[]);
    let Some(contents) = raid5(&lab) else { return };
    wipe(&lab, &["m0", "m1", "m2", "m3"]);
    // Every second 64 KiB of one disk could not be read: zeros in the image.
    let mut map = "0x0 ? 1\n".to_owned();
    for at in (0..64_u64 << 20).step_by(128 << 10) {
        let bad = at + (64 << 10);
        lab.write_at("m1", bad, &[0; 64 << 10]);
        map += &format!("{at:#x} 0x10000 +\n{bad:#x} 0x10000 -\n");
    }
    fs::write(lab.path("m1.map"), map).unwrap();
    assert_eq!(lab.run("deduce m3 m0 m1 m2").code, 3, "zeros count against it");
    let found = lab.run("deduce --json --ddrescue-map m1=m1.map m3 m0 m1 m2").ok().json();
    let serve = found["candidates"][0]["commands"][1].as_str().unwrap();
    let create = found["candidates"][0]["commands"][0].as_str().unwrap();
    assert!(serve.ends_with("m0 m1 m2 m3 --ddrescue-map m1=m1.map"), "{serve}");
    lab.run(create.strip_prefix("lapstrake ").unwrap()).ok();
    let server = lab.serve("--overlay rescue.cow --ddrescue-map m1=m1.map m0 m1 m2 m3");
    if can_copy("a rescued array with a map of ddrescue") {
        assert!(lab.contents(&server)[..contents.len()] == contents, "the contents differ");
    }
    server.stop();
}

/// Two superblocks of which neither can be told to be the later one: the overlay remembers which one it was made beside.
#[test]
fn a_rescue_beside_superblocks_that_contradict_each_other_is_served() {
    let lab = Lab::new(&[16, 16]);
    let args = "-l1 --bitmap none --assume-clean --homehost none m0 m1";
    lab.run(&format!("create first -e 1.2 {args}")).ok();
    let first = ["m0", "m1"].map(|member| lab.read(member)[4096..8192].to_vec());
    lab.run(&format!("create second --force -e 1.0 {args}")).ok();
    for (member, mut superblock) in ["m0", "m1"].into_iter().zip(first) {
        // Made before, and updated after the other.
        for (at, by) in [(64, -1000), (192, 1000)] {
            let time = u64::from_le_bytes(superblock[at..at + 8].try_into().unwrap());
            let time = time.checked_add_signed(by).unwrap();
            superblock[at..at + 8].copy_from_slice(&time.to_le_bytes());
        }
        rewrite(&lab, member, 4096, &mut superblock);
    }
    let before = ["m0", "m1"].map(|member| lab.read(member));
    let ran = lab.run("serve m0 m1 --run true");
    assert!(ran.code == 1 && ran.err.contains("--metadata"), "{ran:?}");
    lab.run("create rescued --rescue cow --level 1 --raid-devices 2 --metadata 1.1 m0 m1").ok();
    let server = lab.serve("--overlay cow m0 m1");
    let told = lab.run("status --json").ok().json();
    assert_eq!(told["arrays"][0]["name"], "rescued");
    server.stop();
    assert!(["m0", "m1"].map(|member| lab.read(member)) == before, "a member was written");
}
