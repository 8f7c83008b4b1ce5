//! Promise: an array gets a level of another kind while it is served: a mirror parity, a RAID0 redundancy, and each back; all
//! bytes are there meanwhile and afterwards, here and in the kernel, wherever it was cut off; what the kernel has made so is
//! taken as it is.

use crate::reshaping::{all, create, half_done, lab, lengthened, refused};
use crate::support::md::Md;
use crate::support::{Lab, Ran, pattern};
use lapstrake_kernel_md::{Judge, has_level};

/// How the array is made, of which members, what is asked for, and whose place is in the array then.
const TAKEOVERS: [(&str, &str, &str, &str); 19] = [
    ("-l1", "m0 m1", "--level 5", "m0 m1"),
    ("-l1 --bitmap internal", "m0 m1", "--level 5 --raid-devices 3 m2", "m0 m1 m2"),
    ("-l1 -e 1.1", "m0 m1", "--level 6 --raid-devices 4 m2 m3", "m0 m1 m2 m3"),
    ("-l5 -c64", "m0 m1", "--level 1", "m0 m1"),
    ("-l0 -c64", "m0 m1", "--level 5 m2", "m0 m1 m2"),
    ("-l0 -c64 -e 0.90", "m0 m1 m2", "--level 4 m3", "m0 m1 m2 m3"),
    ("-l0 -c64", "m0 m1", "--level 10 --chunk 32K m2 m3", "m0 m1 m2 m3"),
    ("-l0 -c64", "m0 m1", "--level 6 m2 m3", "m0 m1 m2 m3"),
    ("-l0 -c64", "m0 m1", "--level 0 --raid-devices 3 m2", "m0 m1 m2"),
    ("-l0 -c64 -e 1.1", "m0 m1", "--level 0 --raid-devices 4 --chunk 128K m2 m3", "m0 m1 m2 m3"),
    ("-l0 -c64", "m0 m1 m2", "--level 0 --chunk 16K", "m0 m1 m2"),
    ("-l linear", "m0 m1", "--level linear --raid-devices 4 m2 m3", "m0 m1 m2 m3"),
    ("-l5 -c64", "m0 m1 m2", "--level 0", "m0 m1"),
    ("-l6 -c64", "m0 m1 m2 m3", "--level 0", "m0 m1"),
    ("-l10 -c64 -e 1.0", "m0 m1 m2 m3", "--level 0", "m0 m2"),
    ("-l10 -c64 --bitmap internal", "m0 m1 m2 m3", "--level 6", "m0 m1 m2 m3"),
    ("-l10 -c64 -e 0.90", "m0 m1 m2 m3", "--level 5 --raid-devices 4", "m0 m1 m2 m3"),
    ("-l10 -c64 -p o2", "m0 m1 m2", "--level 6 --chunk 32K --raid-devices 4 m3", "m0 m1 m2 m3"),
    ("-l10 -c64 -e 1.0", "m0 m1", "--level 4", "m0 m1"),
];

/// The members that are found to have places in the array, or wait for one.
fn taken(scanned: &Ran) -> String {
    let is_taken = |line: &&str| line.contains(": taken for slot") || line.contains(": a spare");
    let lines = scanned.out.lines().filter(is_taken);
    lines.filter_map(|line| line.trim().split(':').next()).collect::<Vec<_>>().join(" ")
}

/// The kernel finds these bytes on these members, and redundancy right where there is any.
fn is_read_by_the_kernel(md: &mut Md, lab: &Lab, members: &str, bytes: &[u8], what: &str) {
    if what.starts_with("-l linear") && !has_level(Judge::chosen(), "linear") {
        return lapstrake_not_run::left_out(
            "a linear array that grew: the judge's kernel has none",
        );
    }
    let script = "quietly mdadm --assemble /dev/md0 ${devices[@]}
        ! [ -e $md/sync_action ] || { settle; matches; }
        dump $dir/dump
        quietly mdadm --stop /dev/md0
        healthy";
    md.play(lab, members, script);
    assert!(lab.read("dump") == bytes, "{what}: the kernel reads otherwise");
}

#[test]
fn a_level_is_taken_over_while_it_is_served() {
    let Some(mut md) = Md::boot("levels that are taken over") else { return };
    for (options, members, wish, kept) in TAKEOVERS {
        let (lab, what) = (lab(), format!("{options}: {wish}"));
        create(&lab, options, members);
        let server = lab.serve_data(&format!("--shards 2 {members}"));
        let mut bytes = pattern(7, lab.detail()["array_bytes"].as_u64().unwrap() as usize);
        lab.fill(&server, &bytes);
        let begun = lab.run(&format!("grow data {wish}")).ok();
        assert!(begun.out.contains("it is becoming"), "{what}: {begun:?}");
        let front = pattern(8, 4 << 20);
        lab.fill(&server, &front);
        bytes[..front.len()].copy_from_slice(&front);
        assert!(lab.contents(&server)[..bytes.len()] == bytes, "{what}: read meanwhile");
        lab.until("the level that was asked for", |shown| {
            let level = shown["level"].as_str().unwrap().trim_start_matches("raid");
            wish.starts_with(&format!("--level {level}")) && shown["sync"].is_null()
        });
        let detail = lab.detail();
        let count = kept.split(' ').count();
        assert_eq!(detail["raid_devices"], count, "{what}: {detail}");
        assert_eq!(detail["members"].as_array().unwrap().len(), count, "{what}: {detail}");
        let bytes = lengthened(bytes, lab.contents(&server).len());
        assert!(lab.contents(&server) == bytes, "{what}: read afterwards");
        server.stop();
        lab.run(&format!("cat --overwrite -o out {kept}")).ok();
        assert!(lab.read("out") == bytes, "{what}: read at the next start");
        is_read_by_the_kernel(&mut md, &lab, kept, &bytes, &what);
    }
}

/// What would be lost: the second parity, which was asked for, and whoever waits for it hears that all is done.
#[test]
fn what_is_asked_meanwhile_does_not_end_the_way_and_a_stop_is_made_good_by_asking_again() {
    const SLOW: &str = "--shards 2 --sync-speed-max 9000 --sync-speed-min 9000";
    let is_at_goal = |detail: &serde_json::Value| {
        detail["level"] == "raid6"
            && detail["layout"] == "left-symmetric"
            && detail["sync"].is_null()
            && detail["reshape"].is_null()
    };
    for meanwhile in [Some("grow data --array-size 10M"), Some("replace data m0"), None] {
        let lab = lab();
        create(&lab, "-l10 -c64", "m0 m1 m2 m3");
        let server = lab.serve_data(&format!("{SLOW} m0 m1 m2 m3"));
        lab.run("add data m4").ok();
        let begun = lab.run("grow data --level 6").ok();
        assert!(begun.out.contains("on the way to raid6 left-symmetric of 4 members"), "{begun:?}");
        assert_eq!(lab.detail()["sync"]["action"], "recovery", "{meanwhile:?}");
        if let Some(meanwhile) = meanwhile {
            lab.run(meanwhile).ok();
            lab.run("set data sync_speed_min=1000000 sync_speed_max=1000000").ok();
            lab.until("the goal", is_at_goal);
            server.stop();
            continue;
        }
        server.stop();
        let server = lab.serve_data("--shards 2 m0 m1 m2 m3 m4");
        lab.until("the first parity", |detail| detail["sync"].is_null());
        assert_eq!(lab.detail()["layout"], "parity-last");
        lab.run("grow data --level 6").ok();
        lab.until("the goal", is_at_goal);
        server.stop();
    }
}

/// A check, or a freeze, meets a way that waits for members.
#[test]
fn a_way_that_waits_goes_on_when_what_stood_in_it_has_ended() {
    for (begins, ends) in [("check data", "wait data"), ("freeze data", "resume data")] {
        let lab = lab();
        create(&lab, "-l0 -c64", "m0 m1");
        let server = lab.serve_data("--shards 2 m0 m1");
        lab.run("grow data --level 6").ok();
        lab.run("add data m2").ok();
        lab.until("the first parity", |shown| shown["sync"].is_null() && shown["level"] == "raid5");
        lab.run("set data sync_speed_min=5000 sync_speed_max=5000").ok();
        lab.run(begins).ok();
        lab.run("add data m3").ok();
        assert_eq!(lab.detail()["level"], "raid5", "{begins}");
        lab.run("set data sync_speed_min=1000000 sync_speed_max=1000000").ok();
        lab.run(ends).ok();
        lab.until("the goal", |shown| shown["level"] == "raid6" && shown["reshape"].is_null());
        server.stop();
    }
}

/// What would be lost: the wish to keep what there is.
#[test]
fn a_way_ends_where_the_array_is_to_stay_as_it_is() {
    let lab = lab();
    create(&lab, "-l10 -c64", "m0 m1 m2 m3");
    let server = lab.serve_data("--shards 2 --sync-speed-max 9000 m0 m1 m2 m3");
    lab.run("grow data --level 6").ok();
    assert_eq!(lab.detail()["sync"]["action"], "recovery");
    let stays = lab.run("grow data --level 5 --layout parity-last").ok();
    assert!(stays.out.contains("already"), "{stays:?}");
    lab.run("set data sync_speed_max=1000000").ok();
    lab.run("wait data").ok();
    let shown = lab.detail();
    assert_eq!((&shown["level"], &shown["layout"]), (&"raid5".into(), &"parity-last".into()));
    assert!(shown["sync"].is_null() && shown["reshape"].is_null(), "{shown}");
    server.stop();
}

/// What would be lost: what was moved, if the place of the parity that there is none of were taken for the new member's.
#[test]
fn a_raid0_that_grows_is_carried_on_here_and_by_the_kernel() {
    let Some(mut md) = Md::boot("a RAID0 that grows here") else { return };
    for (options, members, wish) in [
        ("-l0 -c64", "m0 m1", "--raid-devices 3 m2"),
        ("-l0 -c32 -e 1.1", "m0 m1 m2", "--raid-devices 5 --chunk 64K m3 m4"),
    ] {
        let (lab, all) = (lab(), all(members, wish));
        let bytes = half_done(&lab, options, members, wish);
        let copies = Lab::new(&[20; 5]);
        all.split(' ').for_each(|name| copies.write_at(name, 0, &lab.read(name)));
        lab.run(&format!("cat -o out {all}")).ok();
        assert!(lab.read("out") == bytes, "{wish}: read half done");
        let server = lab.serve_data(&format!("--shards 2 {all}"));
        assert!(lab.run("wait data").out.contains("reshape done"), "{wish}");
        let bytes = lengthened(bytes, lab.contents(&server).len());
        assert!(lab.contents(&server) == bytes, "{wish}: read afterwards");
        lab.run("grow data --level 0").ok();
        lab.run("wait data").ok();
        assert_eq!(lab.detail()["level"], "raid0", "{wish}");
        assert!(lab.contents(&server) == bytes, "{wish}: read as a RAID0");
        server.stop();
        is_read_by_the_kernel(&mut md, &lab, &all, &bytes, wish);
        let script = "quietly mdadm --assemble /dev/md0 ${devices[@]}
            while grep -q reshape /proc/mdstat; do sleep 0.1; done
            dump $dir/dump
            quietly mdadm --stop /dev/md0";
        md.play(&copies, &all, script);
        assert!(copies.read("dump") == bytes, "{wish}: the kernel carries it on otherwise");
    }
}

/// What would be lost: what a member held that has left, if its place were taken for the parity's.
#[test]
fn a_raid0_gets_fewer_members() {
    let lab = lab();
    create(&lab, "-l0 -c64", "m0 m1 m2");
    let server = lab.serve_data("--shards 2 m0 m1 m2");
    refused(&lab, "--raid-devices 2", "--array-size");
    let told = lab.run("grow data --raid-devices 2").err;
    let size = told.split_once("--array-size ").unwrap().1.split('`').next().unwrap();
    lab.run(&format!("grow data --array-size {size}")).ok();
    let bytes = pattern(7, lab.detail()["array_bytes"].as_u64().unwrap() as usize);
    lab.fill(&server, &bytes);
    lab.run("grow data --raid-devices 2").ok();
    lab.until("two members", |shown| shown["level"] == "raid0" && shown["sync"].is_null());
    assert_eq!(lab.detail()["raid_devices"], 2);
    assert!(lab.contents(&server)[..bytes.len()] == bytes);
    server.stop();
    lab.run("cat -o out m0 m1").ok();
    assert!(lab.read("out")[..bytes.len()] == bytes, "read at the next start");
}

/// What would be lost: a RAID0 whose members are read in other zones than the kernel has left it with.
#[test]
fn what_the_kernel_has_taken_over_is_read() {
    let Some(mut md) = Md::boot("levels that the kernel takes over") else { return };
    for (options, count, script) in [
        ("-l1", 2, "--level 5"),
        ("-l10 -c64", 4, "--level 0"),
        ("-l4 -c64", 3, "--level 0"),
        ("-l0 -c64", 2, "--level 10 --add ${devices[2]} ${devices[3]}"),
    ] {
        let (lab, what) = (Lab::new(&[20, 20, 24, 24]), format!("{options}: {script}"));
        let bytes = pattern(3, 64 << 20);
        std::fs::write(lab.path("bytes"), &bytes).unwrap();
        let assume_clean = if options.starts_with("-l0") { "" } else { "--assume-clean" };
        let said = md.play(
            &lab,
            "m0 m1 m2 m3",
            &format!(
                "rm -rf /run/mdadm
                 quietly mdadm --create /dev/md0 --run {assume_clean} {options} -n{count} \
                     ${{devices[@]:0:{count}}}
                 fill $dir/bytes >/dev/null
                 read -r size </sys/block/md0/size
                 quietly mdadm --grow /dev/md0 {script}
                 ! [ -e $md/sync_action ] || settle
                 quietly mdadm --stop /dev/md0
                 echo $size"
            ),
        );
        let filled = said.trim().parse::<usize>().unwrap() * 512;
        let scanned = lab.run("scan m0 m1 m2 m3");
        let ran = lab.run(&format!("cat --force --overwrite -o out {}", taken(&scanned)));
        assert!(ran.code == 0, "{what}: {scanned:?}, {ran:?}");
        // Linux has a RAID0 use all of members that are larger.
        let read = lab.read("out");
        assert!(read.len() >= filled && read[..filled] == bytes[..filled], "{what}: {scanned:?}");
    }
}

/// What would be lost: all data, if a start believed superblocks of the one level and members' places of the other.
#[test]
fn a_cut_while_a_level_is_taken_over_leaves_all_that_was_answered() {
    for (options, members, wish, _) in TAKEOVERS {
        for delay_ms in [0, 1, 3, 10, 40] {
            let (lab, what) = (lab(), format!("{options}: {wish}, after {delay_ms} ms"));
            create(&lab, options, members);
            let server = lab.serve_data(&format!("--shards 2 {members}"));
            let bytes = pattern(7, lab.detail()["array_bytes"].as_u64().unwrap() as usize);
            lab.fill(&server, &bytes);
            let mut grow = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
            let mut grow = grow.args(["grow", "data"]).args(wish.split(' ')).spawn().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(delay_ms));
            server.kill();
            grow.wait().unwrap();
            let all = all(members, wish);
            let scanned = lab.run(&format!("scan {all}"));
            let ran = lab.run(&format!("cat --overwrite -o out {}", taken(&scanned)));
            assert_eq!(ran.code, 0, "{what}: {scanned:?}, {ran:?}");
            assert!(lab.read("out")[..bytes.len()] == bytes, "{what}: {scanned:?}");
        }
    }
}

#[test]
fn what_cannot_be_taken_over_is_refused_and_stays_as_it_is() {
    let lab = Lab::new(&[20, 21, 24, 20]);
    create(&lab, "-l0 -c64", "m0 m1 m2");
    let server = lab.serve_data("m0 m1 m2");
    refused(&lab, "--level 5", "unlike numbers of chunks");
    refused(&lab, "--level 1", "there is no way");
    refused(&lab, "--raid-devices 4 m3", "unlike numbers of chunks");
    server.stop();
    create(&lab, "-l0 -c4 --force", "m0 m3");
    let server = lab.serve_data("m0 m3");
    refused(&lab, "--raid-devices 3 --chunk 16M", "between superblock and data");
    lab.file("small", 10 << 20);
    let ran = lab.run("grow data --raid-devices 3 small");
    assert!(ran.code == 1 && ran.err.contains("small"), "{ran:?}");
    assert_eq!(
        lab.detail()["level"],
        "raid0",
        "who is not fit is found before anything is changed"
    );
    server.stop();
    create(&lab, "-l linear --force", "m0 m1 m2");
    let server = lab.serve_data("m0 m1 m2");
    refused(&lab, "--raid-devices 4", "as many spares");
    refused(&lab, "--raid-devices 2", "there is no way");
    refused(&lab, "--level 5", "there is no way");
    refused(&lab, "--raid-devices 3 --chunk 128K", "a linear has no chunk");
    lab.run("add data --force m3").ok();
    server.stop();
    assert!(!lab.run("examine m3").out.contains("linear"), "a spare of a linear array is not told");
    create(&lab, "-l1 --force", "m0 m1 m2");
    let server = lab.serve_data("m0 m1 m2");
    refused(&lab, "--level 5", "there is no way");
    server.stop();
    create(&lab, "-l1 --force", "m0 m1");
    let server = lab.serve_data("m0 m1");
    refused(&lab, "--level 5 --chunk 8M", "not whole chunks");
    refused(&lab, "--level 5 --raid-devices 3", "as many spares");
    lab.run("fail data m1").ok();
    refused(&lab, "--level 5", "a member is missing");
    server.stop();
}
