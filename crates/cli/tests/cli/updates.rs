//! Promise: what `update`, `zero-superblock`, `dump` and `restore` write is what mdadm writes for the same words; all
//! members are written or none, and what was there can be had back.

use crate::support::md::Md;
use crate::support::{Lab, Ran, not_run, pattern};
use std::fs;

/// Of a member.
const MIB: u64 = 8;
const MEMBERS: [&str; 3] = ["m0", "m1", "m2"];

/// Members of a new array, and copies of them.
fn made(create: &str) -> Lab {
    let lab = Lab::new(&[MIB, MIB, MIB]);
    let line = format!("create data {create} --homehost none --assume-clean m0 m1 m2");
    lab.run(&line).ok();
    lab
}

fn contents(lab: &Lab) -> Vec<Vec<u8>> {
    MEMBERS.iter().map(|name| lab.read(name)).collect()
}

fn copies_for_mdadm(lab: &Lab) {
    for name in MEMBERS {
        fs::copy(lab.path(name), lab.path(&format!("k{name}"))).unwrap();
    }
}

/// The bytes at which a member differs from mdadm's copy, but for those that are let pass.
fn differing(lab: &Lab, name: &str, passes: impl Fn(usize) -> bool) -> Vec<usize> {
    let (ours, theirs) = (lab.read(name), lab.read(&format!("k{name}")));
    assert_eq!(ours.len(), theirs.len());
    let differ = ours.iter().zip(&theirs).enumerate().filter(|(_, (ours, theirs))| ours != theirs);
    differ.map(|(at, _)| at).filter(|&at| !passes(at)).collect()
}

/// Where a member has its bitmap.
fn bitmap_in(image: &[u8]) -> Option<usize> {
    (0..image.len()).step_by(512).find(|&at| image[at..].starts_with(b"bitm"))
}

/// The same word, by mdadm on copies and by us: how both leave the members.
fn same_as_mdadm(md: &mut Md, create: &str, before: &[&str], theirs: &str, ours: &str) {
    let lab = made(create);
    for word in before {
        lab.run(&format!("update m0 m1 m2 --update {word}")).ok();
    }
    copies_for_mdadm(&lab);
    let script = format!(
        "mdadm --assemble --readonly /dev/md0 --update={theirs} ${{devices[@]}} 2>&1 || true
         mdadm --stop /dev/md0 2>&1 || true"
    );
    let said = md.play(&lab, "km0 km1 km2", &script);
    // mdadm 4.6 says so of every array, and does not find superblocks in the other byte order.
    let refusals = ["PPL is not compatible with bitmap", "no recogniseable superblock"];
    if refusals.iter().any(|refusal| said.contains(refusal)) {
        return not_run(&format!("update {ours} beside mdadm"), "this mdadm refuses it");
    }
    let ran = lab.run(&format!("update m0 m1 m2 --update {ours}")).ok();
    for name in MEMBERS {
        // Bits and event counts of the bitmap are the kernel's, which has started the array.
        let bitmap = bitmap_in(&lab.read(name));
        let of_kernel = |at: &usize| (24..40).contains(at) || (256..4096).contains(at);
        let passes = |at: usize| {
            bitmap.and_then(|start| at.checked_sub(start)).is_some_and(|at| of_kernel(&at))
        };
        let differ = differing(&lab, name, passes);
        assert!(
            differ.is_empty(),
            "{create}, {ours}: {name} differs at {differ:?}\n{said}\n{ran:?}"
        );
    }
}

#[test]
fn words_write_what_mdadm_writes() {
    let Some(mut md) = Md::boot("update beside mdadm --update") else { return };
    let uuid = "01234567:89abcdef:fedcba98:76543210";
    let (mdadm_name, name) = ("name --name=films --homehost=nas", "name=films --homehost nas");
    let (mdadm_uuid, new_uuid) = (format!("uuid --uuid={uuid}"), format!("uuid={uuid}"));
    let (mdadm_host, host) = ("homehost --homehost=nas", "homehost=nas");
    for version in ["1.0", "1.2"] {
        let bitmap = format!("-l5 -e {version} -b internal");
        for (theirs, ours) in [(mdadm_name, name), (&mdadm_uuid, &new_uuid), (mdadm_host, host)] {
            same_as_mdadm(&mut md, &bitmap, &[], theirs, ours);
        }
        for word in ["resync", "no-bbl", "force-no-bbl", "no-bitmap"] {
            same_as_mdadm(&mut md, &bitmap, &[], word, word);
        }
        same_as_mdadm(&mut md, &bitmap, &["no-bbl"], "bbl", "bbl");
    }
    for word in ["layout-original", "layout-alternate", "layout-unspecified"] {
        same_as_mdadm(&mut md, "-l0 -e 1.2", &[], word, word);
    }
    for version in ["1.1", "1.2"] {
        let plain = format!("-l5 -e {version} -b none");
        same_as_mdadm(&mut md, &plain, &["no-bbl"], "bbl", "bbl");
        same_as_mdadm(&mut md, &plain, &["no-bbl"], "ppl", "ppl");
        same_as_mdadm(&mut md, &plain, &["no-bbl", "ppl"], "no-ppl", "no-ppl");
        same_as_mdadm(&mut md, &plain, &[], "devicesize", "devicesize");
    }
    for (theirs, ours) in
        [(&*mdadm_uuid, &*new_uuid), (mdadm_host, host), ("no-bitmap", "no-bitmap")]
    {
        same_as_mdadm(&mut md, "-l5 -e 0.90 -b internal", &[], theirs, ours);
    }
    same_as_mdadm(&mut md, "-l5 -e 0.90 -b none", &[], "resync", "resync");
    same_as_mdadm(
        &mut md,
        "-l5 -e 0.90 -b none",
        &["super-minor=7"],
        "super-minor",
        "super-minor=0",
    );
    same_as_mdadm(&mut md, "-l5 -e 0.90 -b none", &["byteorder"], "byteorder", "byteorder");
}

#[test]
fn superblocks_of_0_90_become_those_of_1_0_that_mdadm_makes() {
    let Some(mut md) = Md::boot("update metadata beside mdadm") else { return };
    for level in ["-l5", "-l1", "-l0"] {
        let lab = made(&format!("{level} -e 0.90 -b none"));
        copies_for_mdadm(&lab);
        let script =
            "mdadm --assemble --readonly /dev/md0 --update=metadata ${devices[@]} 2>&1 || true
                      mdadm --stop /dev/md0 2>&1 || true";
        let said = md.play(&lab, "km0 km1 km2", script);
        lab.run("update m0 m1 m2 --update metadata").ok();
        // Superblocks of 1.0 differ in the random UUID of each device, and so in the checksum.
        let end = (MIB as usize) << 20;
        let (old, new) = (end - (64 << 10), end - (8 << 10));
        for name in MEMBERS {
            let passes = |at: usize| match at.checked_sub(new) {
                // What mdadm leaves: the superblock of 0.90, and zeros behind the table.
                None => (old..old + 4096).contains(&at),
                Some(at) => (168..184).contains(&at) || (216..220).contains(&at) || at >= 256 + 54,
            };
            let differ = differing(&lab, name, passes);
            assert!(differ.is_empty(), "{level} {name}: {differ:?}\n{said}");
        }
        md.play(&lab, "m0 m1 m2", "healthy");
    }
}

#[test]
fn arrays_that_were_edited_are_started_by_the_kernel() {
    let Some(mut md) = Md::boot("edited arrays before the kernel") else { return };
    for (create, word) in [
        ("-l5 -e 1.2 -b none", "bitmap"),
        ("-l1 -e 1.0 -b none", "bitmap"),
        ("-l6 -e 0.90 -n3 -b none", "bitmap"),
        ("-l5 -e 1.2 -b internal", "uuid"),
        ("-l5 -e 0.90 -b internal", "uuid"),
    ] {
        let create = create.replace("-l6", "-l4").replace(" -n3", "");
        let lab = made(&create);
        let server = lab.serve("m0 m1 m2");
        let bytes = pattern(3, server.facts["array_bytes"].as_u64().unwrap() as usize);
        lab.fill(&server, &bytes);
        server.stop();
        lab.run(&format!("update m0 m1 m2 --update {word}")).ok();
        md.agrees(&lab, "m0 m1 m2", &bytes);
    }
}

#[test]
fn dumps_and_erased_superblocks_are_mdadms() {
    let Some(mut md) = Md::boot("dump and zero-superblock beside mdadm") else { return };
    for create in ["-l5 -e 0.90 -b internal", "-l5 -e 1.0 -b internal", "-l1 -e 1.2 -b internal"] {
        let lab = made(create);
        let before = contents(&lab);
        fs::create_dir(lab.path("ours")).unwrap();
        fs::create_dir(lab.path("theirs")).unwrap();
        lab.run("dump ours m0 m1 m2").ok();
        copies_for_mdadm(&lab);
        let script = "rm -rf /tmp/dumped; mkdir /tmp/dumped
             for d in ${devices[@]}; do mdadm --dump=/tmp/dumped $d; mdadm --zero-superblock $d; done
             for d in ${devices[@]}; do cat /tmp/dumped/${d##*/} > /host$dir/theirs/${d##*/}; done
             ls /host$dir/theirs";
        let said = md.play(&lab, "km0 km1 km2", script);
        let mut names: Vec<&str> = said
            .split_whitespace()
            .filter(|w| lab.path(&format!("theirs/{w}")).is_file())
            .collect();
        names.dedup();
        for (theirs, ours) in names.iter().zip(MEMBERS) {
            let same = lab.read(&format!("theirs/{theirs}")) == lab.read(&format!("ours/{ours}"));
            assert!(same, "{create}: {ours} and {theirs}");
        }
        assert_eq!(names.len(), 3, "{said}");
        lab.run("zero-superblock m0 m1 m2").ok();
        for name in MEMBERS {
            assert!(differing(&lab, name, |_| false).is_empty(), "{create}: {name}");
        }
        assert!(lab.run("zero-superblock m0 m1 m2").ok().out.contains("are so already"));
        lab.run("restore ours m0 m1 m2").ok();
        assert!(contents(&lab) == before, "{create}");
    }
}

#[test]
fn an_edit_that_was_cut_is_finished_or_undone() {
    let lab = made("-l5 -b internal");
    let before = contents(&lab);
    lab.run("update m0 m1 m2 --update uuid --keep kept").ok();
    let after = contents(&lab);
    assert!(before != after);
    // The first is written, the second in part: the bitmap's sector and not the superblock's.
    let bitmap_only = |index: usize| {
        let at = bitmap_in(&before[index]).unwrap();
        let mut torn = before[index].clone();
        torn[at..at + 512].copy_from_slice(&after[index][at..at + 512]);
        torn
    };
    let cut = [after[0].clone(), bitmap_only(1), before[2].clone()];
    let put = |images: &[Vec<u8>]| {
        MEMBERS.iter().zip(images).for_each(|(name, image)| lab.write_at(name, 0, image));
    };
    for (way, wanted) in [("finish", &after), ("undo", &before)] {
        put(&cut);
        lab.run(&format!("update --{way} kept")).ok();
        assert!(contents(&lab) == **wanted, "{way}");
        let again = lab.run(&format!("update --{way} kept")).ok();
        assert!(again.out.contains("already"), "{again:?}");
    }
    // By other names, in another order.
    put(&cut);
    for (old, new) in [("m0", "x"), ("m1", "m0"), ("x", "m1")] {
        fs::rename(lab.path(old), lab.path(new)).unwrap();
    }
    let refused = lab.run("update --undo kept");
    assert!(refused.code == 1 && refused.err.contains("nothing was written"), "{refused:?}");
    lab.run("update --undo kept m0 m1 m2").ok();
    assert!(lab.read("m1") == before[0] && lab.read("m0") == before[1]);
}

#[test]
fn what_was_used_since_is_not_undone() {
    let lab = made("-l1 -b none");
    lab.run("update m0 m1 m2 --update name=new --keep kept").ok();
    let server = lab.serve("m0 m1 m2");
    lab.fill(&server, &pattern(1, 4096));
    server.stop();
    let now = contents(&lab);
    let ran = lab.run("update --undo kept");
    assert!(ran.code == 1 && ran.err.contains("in use since; nothing was written"), "{ran:?}");
    assert!(contents(&lab) == now);
}

#[test]
fn a_member_that_cannot_be_written_leaves_all_as_they_were() {
    for fault in ["member=2,op=write,count=1,errno=EIO", "member=1,op=write,errno=EIO"] {
        let lab = made("-l1 -b none");
        let before = contents(&lab);
        let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
        command.args("update m0 m1 m2 --update name=new --keep kept".split(' '));
        let ran = Ran::of(command.env("LAPSTRAKE_FAULT", fault).output().unwrap());
        assert!(ran.code == 1 && ran.err.contains("every member is as it was"), "{ran:?}");
        assert!(contents(&lab) == before && !lab.path("kept").exists());
    }
}

#[test]
fn a_dry_run_shows_bytes_and_writes_none() {
    let lab = made("-l1 -b none");
    let before = contents(&lab);
    let ran = lab.run("update m0 m1 m2 --update name=films --homehost nas --dry-run").ok();
    // 4096 bytes to the superblock, 32 to the name.
    for part in
        ["m0:\n  0x0000001020 - 64 61 74 61 00", "+ 6e 61 73 3a 66 69 6c 6d 73 00", "|nas:films"]
    {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    assert!(ran.out.contains("3 members would change; nothing was written"), "{ran:?}");
    let json =
        lab.run("update m0 m1 m2 --update name=films --homehost none --dry-run --json").ok().json();
    assert_eq!(json["members"][2]["changes"][0]["offset"], 4096 + 32, "{json}");
    assert!(contents(&lab) == before);
}

#[test]
fn what_would_tear_an_array_apart_is_refused() {
    let lab = made("-l5 -b none");
    let before = contents(&lab);
    let ran = lab.run("update m0 m2 --update uuid");
    assert!(ran.code == 1 && ran.err.contains("slot 1"), "{ran:?}");
    lab.run("update m0 m2 --update resync --degraded --dry-run").ok();
    let server = lab.serve("m0 m1 m2");
    let ran = lab.run("update m0 m1 m2 --update resync");
    assert!(ran.code == 1 && ran.err.contains("nothing was written"), "{ran:?}");
    server.kill();
    let ran = lab.run("update m0 m1 m2 --update nmae=x");
    assert!(ran.code == 2 && ran.err.contains("name"), "{ran:?}");
    assert!(before.iter().zip(contents(&lab)).all(|(old, new)| old.len() == new.len()));
}

#[test]
fn the_file_of_an_edit_is_named_as_a_shell_takes_it() {
    let lab = made("-l1");
    let before = contents(&lab);
    let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    let args = ["update", "m0", "m1", "m2", "--update", "name=new", "--keep", "the nas's.edit"];
    let told = Ran::of(command.args(args).output().unwrap()).ok().out;
    assert!(contents(&lab) != before);
    let line = told.split('`').nth(1).expect("a command").replace("lapstrake", "$lapstrake");
    let mut shell = lab.command("sh");
    shell.env("lapstrake", env!("CARGO_BIN_EXE_lapstrake")).args(["-c", &line]);
    Ran::of(shell.output().unwrap()).ok();
    assert!(contents(&lab) == before, "{line}");
}
