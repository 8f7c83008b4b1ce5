//! Promise: members that one of the kernel's md and Lapstrake took in, put out or left as spares are for
//! the other what they were for the first.

use crate::support::md::{Md, state};
use crate::support::{Lab, pattern};

const MIB: u64 = 1 << 20;

#[test]
fn our_spare_is_the_kernels_and_the_kernels_is_ours() {
    hand_spares_over(&["1.2"]);
}

fn hand_spares_over(versions: &[&str]) {
    let Some(mut md) = Md::boot("spares in the kernel's hands and back") else { return };
    for version in versions {
        let lab = Lab::new(&[12; 5]);
        lab.run(&format!("create data -l5 -c64 --assume-clean -e {version} m0 m1 m2")).ok();
        let server = lab.serve_data("m0 m1 m2");
        let bytes = pattern(41, server.facts["array_bytes"].as_u64().unwrap() as usize);
        lab.fill(&server, &bytes);
        assert_eq!(lab.run("add data m3 --json").ok().json()["members"][0]["how"], "spare");
        server.stop();
        // The kernel puts out a member, rebuilds on our spare, and takes another.
        let script = "quietly mdadm --assemble /dev/md0 ${devices[@]:0:4}
            read -r was <$md/dev-${devices[3]##*/}/state
            [ $was = spare ] || { echo \"our spare is $was\"; exit 1; }
            quietly mdadm /dev/md0 --fail ${devices[1]}
            settle
            quietly mdadm /dev/md0 --remove ${devices[1]} --add ${devices[4]}
            matches
            dump $dir/dump";
        md.play(&lab, "m0 m1 m2 m3 m4", script);
        assert!(lab.read("dump") == bytes, "{version}");
        // And so do we.
        let server = lab.serve_data("m0 m2 m3 m4");
        assert_eq!(state(&lab.detail(), "m4"), "spare", "{version}");
        lab.run("fail data m0").ok();
        lab.run("wait data --timeout 60").ok();
        assert_eq!(state(&lab.detail(), "m4"), "in_sync", "{version}");
        lab.run("remove data m0").ok();
        assert!(lab.contents(&server) == bytes, "{version}");
        server.stop();
        md.agrees(&lab, "m2 m3 m4", &bytes);
    }
}

/// What would be lost: what was written without a member, if mdadm, forced, took that for current.
#[test]
fn a_forced_start_by_mdadm_leaves_out_who_failed_here() {
    let Some(mut md) = Md::boot("a forced start of an array that lacks a member") else { return };
    for (options, members) in [("-l5 -c64", "m0 m1 m2"), ("-l10 -c64", "m0 m1 m2 m3")] {
        let lab = Lab::new(&[12; 4]);
        lab.run(&format!("create data {options} --assume-clean {members}")).ok();
        let server = lab.serve_data(&format!("--safe-mode-delay 0 {members}"));
        let size = server.facts["array_bytes"].as_u64().unwrap() as usize;
        lab.fill(&server, &pattern(43, size));
        lab.run("fail data m2").ok();
        let bytes = pattern(44, size);
        lab.fill(&server, &bytes);
        server.kill();
        let script = "quietly mdadm --assemble --force --run /dev/md0 ${devices[@]}
            dump $dir/dump
            quietly mdadm --stop /dev/md0";
        md.play(&lab, members, script);
        assert!(lab.read("dump") == bytes, "{options}");
    }
}

#[test]
fn who_is_write_mostly_for_one_is_not_read_by_the_other() {
    let Some(mut md) = Md::boot("write-mostly members") else { return };
    let (lab, all) = (Lab::new(&[12; 3]), "m0 m1 m2");
    lab.run("create data -l1 --assume-clean -W m1 m0 m1").ok();
    let server = lab.serve_data("m0 m1");
    let bytes = pattern(42, server.facts["array_bytes"].as_u64().unwrap() as usize);
    lab.fill(&server, &bytes);
    server.stop();
    // Theirs is the one that comes in the place of ours, which it does not read.
    let script = "quietly mdadm --assemble /dev/md0 ${devices[@]:0:2}
        before=$(carried 2 ${devices[1]})
        dump $dir/dump
        echo $(($(carried 2 ${devices[1]}) - before))
        quietly mdadm /dev/md0 --fail ${devices[1]} --remove ${devices[1]}
        quietly mdadm /dev/md0 --add --write-mostly ${devices[2]}
        settle";
    assert_eq!(md.play(&lab, all, script), "0\n", "sectors that the kernel read of ours");
    assert!(lab.read("dump") == bytes);
    let server = lab.serve_data("m0 m2");
    assert!(lab.contents(&server) == bytes);
    let detail = lab.detail();
    let member = |name: &str| {
        let path = lab.path(name);
        let members = detail["members"].as_array().unwrap();
        members.iter().find(|m| m["file"] == path.to_str().unwrap()).unwrap().clone()
    };
    assert_eq!(member("m2")["write_mostly"], true);
    assert_eq!(member("m2")["work"]["read_bytes"], 0, "what we read of theirs");
    assert!(member("m0")["work"]["read_bytes"].as_u64() >= Some(bytes.len() as u64));
    server.stop();
}

/// Options, members, and one that goes and comes back.
const COMES_BACK: [(&str, &str, &str); 3] = [
    ("-l5 -c64", "m0 m1 m2", "m1"),
    ("-l1", "m0 m1", "m0"),
    ("-l10 -c64 -p f2", "m0 m1 m2 m3", "m3"),
];
const BITMAP: &str = "-b internal --bitmap-chunk 64K";

#[test]
fn who_was_removed_by_one_is_taken_back_by_the_other_with_what_it_lacks() {
    go_and_come_back(&COMES_BACK[..1]);
}

#[test]
#[ignore = "the rest of what is in cargo test; make soak plays it"]
fn members_go_and_come_back_on_other_levels_and_versions_too() {
    if !crate::support::soaks("members go and come back on other levels and versions too") {
        return;
    }
    hand_spares_over(&["1.0", "0.90"]);
    go_and_come_back(&COMES_BACK[1..]);
}

fn go_and_come_back(shapes: &[(&str, &str, &str)]) {
    let Some(mut md) = Md::boot("members taken back by bitmap") else { return };
    for &(options, members, leaves) in shapes {
        let lab = Lab::new(&[12; 4]);
        lab.run(&format!("create data --assume-clean {options} {BITMAP} {members}")).ok();
        let stay = members.split(' ').filter(|name| *name != leaves).collect::<Vec<_>>().join(" ");
        let server = lab.serve_data(members);
        let mut bytes = pattern(51, server.facts["array_bytes"].as_u64().unwrap() as usize);
        lab.fill(&server, &bytes);
        // A stop clears the bitmap.
        server.stop();
        let server = lab.serve_data(members);
        lab.run(&format!("fail data {leaves}")).ok();
        lab.run(&format!("remove data {leaves}")).ok();
        let news = pattern(52, 300_000_usize.next_multiple_of(4096));
        bytes[..news.len()].copy_from_slice(&news);
        lab.fill(&server, &news);
        server.stop();
        let all = format!("{stay} {leaves}");
        let last = all.split(' ').count() - 1;
        let script = format!(
            "quietly mdadm --assemble /dev/md0 ${{devices[@]:0:{last}}}
             before=$(carried 6 ${{devices[{last}]}})
             quietly mdadm /dev/md0 --re-add ${{devices[{last}]}}
             settle
             echo $(($(carried 6 ${{devices[{last}]}}) - before))
             dump $dir/dump
             matches
             quietly mdadm --stop /dev/md0
             healthy"
        );
        let written: u64 = md.play(&lab, &all, &script).trim().parse().unwrap();
        assert!(lab.read("dump") == bytes, "{options}: re-added by the kernel");
        assert!(written * 512 < 2 * MIB, "{options}: {written} sectors for 300 kB");
        // And the other way round.
        let news = pattern(53, 70_000_usize.next_multiple_of(4096));
        bytes[MIB as usize..][..news.len()].copy_from_slice(&news);
        std::fs::write(lab.path("news"), &news).unwrap();
        let script = format!(
            "quietly mdadm --assemble /dev/md0 ${{devices[@]}}
             quietly mdadm /dev/md0 --fail ${{devices[{last}]}} --remove ${{devices[{last}]}}
             dd if=/host$dir/news of=/dev/md0 bs=4k seek=256 oflag=direct status=none"
        );
        md.play(&lab, &all, &script);
        let server = lab.serve_data(&stay);
        let before = lab.detail()["work"]["member_write_bytes"].as_u64().unwrap();
        assert!(lab.run(&format!("re-add data {leaves}")).ok().out.contains("re-added"));
        lab.run("wait data --timeout 60").ok();
        let written = lab.detail()["work"]["member_write_bytes"].as_u64().unwrap() - before;
        assert!(written < 2 * MIB, "{options}: {written} bytes for 70 kB");
        assert!(lab.contents(&server) == bytes, "{options}: re-added by us");
        server.stop();
        md.agrees(&lab, &all, &bytes);
    }
}

/// What would be lost: what the member holds of stripes whose parity a cut left out of date.
#[test]
fn no_member_is_put_out_that_a_resync_still_needs() {
    let lab = Lab::new(&[12; 5]);
    lab.run("create data -l5 -c64 --force m0 m1 m2").ok();
    let server = lab.serve_data("--frozen m0 m1 m2");
    let refused = lab.run("fail data m1");
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("a resync is due"), "{}", refused.err);
    assert!(refused.err.contains("nothing was changed"), "{}", refused.err);
    assert_eq!(state(&lab.detail(), "m1"), "in_sync");
    lab.run("fail data m1 --force").ok();
    assert_eq!(state(&lab.detail(), "m1"), "faulty");
    server.stop();
    let left = lab.run("serve m0 m2 --degraded --run true");
    assert!(left.err.contains("or its resync had not ended"), "{}", left.err);
    // Copies are whole without a resync.
    lab.run("create copies -l1 --force m3 m4").ok();
    let server = lab.serve("--name copies --frozen m3 m4");
    lab.run("fail copies m4").ok();
    server.stop();
}

#[test]
fn a_member_that_cannot_be_spared_is_kept_with_a_way_on() {
    let lab = Lab::new(&[12; 4]);
    lab.run("create data -l1 --assume-clean m0 m1").ok();
    let server = lab.serve_data("m0 m1");
    lab.run("fail data m1").ok();
    let refused = lab.run("fail data m0");
    assert!(
        refused.code == 1 && refused.err.contains("`lapstrake add data MEMBER`"),
        "{refused:?}"
    );
    lab.run("add data m2").ok();
    lab.run("wait data --timeout 60").ok();
    lab.run("fail data m0").ok();
    server.stop();
    lab.run("create data -l0 --force m2 m3").ok();
    let server = lab.serve_data("m2 m3");
    let refused = lab.run("fail data m3");
    assert!(refused.code == 1 && refused.err.contains("serve the copy"), "{refused:?}");
    server.stop();
}

/// What would be lost: what was written to the half that is taken over.
#[test]
fn the_other_half_of_a_split_mirror_is_not_written_over_unasked() {
    let lab = Lab::new(&[12; 2]);
    lab.run("create data -l1 --assume-clean m0 m1").ok();
    let bytes = pattern(7, 4 << 20);
    for (half, bytes) in [("m0", &bytes), ("m1", &pattern(8, 4 << 20))] {
        let server = lab.serve_data(&format!("--degraded {half}"));
        lab.fill(&server, bytes);
        server.stop();
    }
    let server = lab.serve_data("--degraded m0");
    let refused = lab.run("add data m1");
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("writes that nobody else has"), "{}", refused.err);
    lab.run("add data m1 --force").ok();
    lab.run("wait data --timeout 60").ok();
    assert!(lab.contents(&server)[..bytes.len()] == bytes, "the half that serves");
    // Who left while it was watched has no writes of its own.
    lab.run("fail data m0").ok();
    lab.run("remove data m0").ok();
    lab.run("add data m0").ok();
    lab.run("wait data --timeout 60").ok();
    assert_eq!(state(&lab.detail(), "m0"), "in_sync");
    server.stop();
}

/// What would be lost: the server. Superblocks 0.90 have room for 27 devices.
#[test]
fn a_full_table_of_devices_takes_no_more_spares() {
    let lab = Lab::new(&[2; 28]);
    lab.run("create data -l1 -e 0.90 --assume-clean m0 m1").ok();
    let server = lab.serve_data("m0 m1");
    let spares: Vec<String> = (2..27).map(|nth| format!("m{nth}")).collect();
    lab.run(&format!("add data {}", spares.join(" "))).ok();
    let refused = lab.run("add data m27");
    assert!(refused.code == 1 && refused.err.contains("table of devices is full"), "{refused:?}");
    lab.run("fail data m0").ok();
    lab.until("a spare in its place", |detail| state(detail, "m2") == "in_sync");
    lab.run("remove data failed").ok();
    lab.run("add data m27").ok();
    server.stop();
    lab.serve_data("m1 m2 m3 m27").stop();
}
