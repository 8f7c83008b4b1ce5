//! Promise: of several sound superblocks on one member, what lies where tells which is its own, then what was asked for; if
//! neither does, the user is asked.

use crate::support::md::can_copy;
use crate::support::{Lab, pattern};

/// Superblocks count seconds.
fn a_second() {
    std::thread::sleep(std::time::Duration::from_millis(1100));
}

#[test]
fn a_mirror_whose_content_is_a_member_is_served_again() {
    if !can_copy("a member within a mirror") {
        return;
    }
    for version in ["0.90", "1.0"] {
        let lab = Lab::new(&[16, 16]);
        lab.run(&format!("create outer -l1 -e {version} --bitmap none --assume-clean m0 m1")).ok();
        a_second();
        let server = lab.serve("m0 m1 --name outer");
        lab.file("content.img", server.facts["array_bytes"].as_u64().unwrap());
        lab.run("create inner -l1 -n1 --force content.img").ok();
        let inner = lab.serve("content.img --name inner");
        lab.fill(&inner, &pattern(5, 1 << 20));
        inner.stop();
        let content = lab.read("content.img");
        lab.fill(&server, &content);
        server.stop();

        let server = lab.serve("m0 m1 --name outer");
        assert!(lab.contents(&server) == content, "{version}");
        server.stop();
        if version == "1.0" {
            let ran = lab.run("cat --metadata 1.1 -o none m0 m1");
            assert!(ran.code == 1 && ran.err.contains("md superblock 1.0 at sector"), "{ran:?}");
        }
        let ran = lab.run("scan m0 m1").ok();
        assert!(ran.out.contains("outer\": raid1") || version == "0.90", "{ran:?}");
        assert_eq!(ran.out.matches("it is the content of that array").count(), 2, "{ran:?}");
        assert!(ran.out.contains("lapstrake serve m0 m1"), "{ran:?}");
        // The content alone can be read, but what is written to one half the other does not get.
        lab.run("cat --set-name inner --length 1M -o out m0").ok();
        assert!(lab.read("out") == pattern(5, 1 << 20));
        let ran = lab.run("serve --metadata 1.2 m0");
        assert!(ran.code == 1 && ran.err.contains("nothing was written"), "{ran:?}");
    }
}

/// Half of the inner mirror lies in the outer one: the other half, served alone, would be written without it.
#[test]
fn an_array_whose_member_lies_in_another_array_is_not_proposed_without_it() {
    if !can_copy("a member within a mirror") {
        return;
    }
    let lab = Lab::new(&[16, 16, 16]);
    lab.run("create outer -l1 -e 1.0 --bitmap none --assume-clean m0 m1").ok();
    a_second();
    let server = lab.serve("m0 m1 --name outer");
    lab.file("content.img", server.facts["array_bytes"].as_u64().unwrap());
    lab.run("create inner -l1 --assume-clean content.img m2").ok();
    lab.fill(&server, &lab.read("content.img"));
    server.stop();
    let found = lab.run("scan --json m0 m1 m2").json();
    let by_name = |name: &str| {
        let arrays = found["arrays"].as_array().unwrap();
        let is_it = |array: &&serde_json::Value| array["name"].as_str().unwrap().contains(name);
        arrays.iter().find(is_it).unwrap().clone()
    };
    assert_eq!(by_name("outer")["serve"], "lapstrake serve m0 m1", "{found:#}");
    assert_eq!(by_name("inner")["serve"], serde_json::Value::Null, "{found:#}");
    let told = lab.run("scan m0 m1 m2");
    assert!(told.code == 3 && told.out.contains("serve that one first"), "{told:?}");
    let found = lab.run("scan --json content.img m2").ok().json();
    assert_eq!(found["arrays"][0]["serve"], "lapstrake serve content.img m2", "{found:#}");
}

#[test]
fn what_a_later_array_covers_is_left_over() {
    let lab = Lab::new(&[16, 16]);
    lab.run("create old -l1 -e 0.90 --bitmap none --assume-clean m0 m1").ok();
    let remains = |name: &str| lab.read(name)[(16 << 20) - (64 << 10)..][..4096].to_vec();
    let kept = [remains("m0"), remains("m1")];
    a_second();
    lab.run("create new -l1 -e 1.2 --bitmap none --assume-clean --force m0 m1").ok();
    // mdadm and we wipe what was there; others do not.
    for (name, bytes) in ["m0", "m1"].iter().zip(&kept) {
        lab.write_at(name, (16 << 20) - (64 << 10), bytes);
    }
    let ran = lab.run("scan m0 m1").ok();
    assert!(ran.out.contains("new\": raid1") && ran.out.contains("it is left over"), "{ran:?}");
    lab.run("cat --metadata 0.90 --length 4K -o out m0 m1").ok();
    let ran = lab.run("serve --metadata 0.90 m0 m1");
    assert!(ran.code == 1 && ran.err.contains("it is left over; nothing was written"), "{ran:?}");
}

#[test]
fn who_cannot_tell_asks() {
    let lab = Lab::new(&[16]);
    lab.run("create one -l1 -n1 --force -e 1.1 --bitmap none m0").ok();
    let kept = lab.read("m0")[..4096].to_vec();
    lab.run("create two -l1 -n1 --force -e 1.2 --bitmap none m0").ok();
    lab.write_at("m0", 0, &kept);
    let before = lab.read("m0");
    for line in ["cat m0 -o out", "serve m0"] {
        let ran = lab.run(line);
        let told =
            ["one\" (metadata 1.1)", "two\" (metadata 1.2)", "--metadata", "nothing was written"];
        assert!(ran.code == 1 && told.iter().all(|it| ran.err.contains(it)), "{line}: {ran:?}");
    }
    let ran = lab.run("scan m0").ok();
    assert!(ran.out.contains("no md array found\nm0: md superblocks of more than one"), "{ran:?}");
    assert!(lab.read("m0") == before);
    for (how, name) in [("--metadata 1.1", "one"), ("--set-name two", "two")] {
        let server = lab.serve(&format!("m0 {how}"));
        assert!(lab.run("status --json").json()["arrays"][0]["name"] == name);
        server.stop();
    }
}

#[test]
fn nothing_is_written_over_a_file_system_that_outgrew_the_array() {
    let lab = Lab::new(&[16, 16]);
    lab.run("create data -l1 -e 1.0 --bitmap none --assume-clean m0 m1").ok();
    // ext2 with 16384 blocks of 1 KiB: all of the disk.
    for name in ["m0", "m1"] {
        lab.write_at(name, 1024 + 4, &16384_u32.to_le_bytes());
        lab.write_at(name, 1024 + 56, &[0x53, 0xef]);
    }
    let before = lab.read("m0");
    let ran = lab.run("serve m0 m1");
    assert!(ran.code == 1 && ran.err.contains("an ext2 filesystem begins"), "{ran:?}");
    assert!(lab.run("scan m0 m1").ok().out.contains("lapstrake serve --read-only m0 m1"));
    lab.run("cat m0 m1 -o out").ok();
    assert!(lab.read("m0") == before);
    lab.serve("m0 m1 --force").stop();
}
