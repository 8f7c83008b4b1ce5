//! Promise: an array of RAID4, 5 or 6 gets more members, another level, chunk or layout while it is served; wherever it is
//! left, it goes on here or in the kernel, and all bytes are there; what cannot be had is refused and changes nothing.

use crate::support::md::{Md, state};
use crate::support::{Lab, pattern};

/// How the array is made, of which members, what is asked for.
const RESHAPES: [(&str, &str, &str); 9] = [
    ("-l5 -c64", "m0 m1 m2", "--raid-devices 4 m3"),
    ("-l6 -c64 -e 1.1", "m0 m1 m2 m3", "--raid-devices 5 --chunk 32K m4"),
    ("-l4 -c64", "m0 m1 m2", "--level 5 --layout left-symmetric m3 --raid-devices 4"),
    ("-l5 -c32", "m0 m1 m2", "--chunk 64K --layout right-asymmetric"),
    ("-l5 -c64", "m0 m1 m2", "--level 6 m3"),
    ("-l5 -c64 -p ra", "m0 m1 m2", "--level 6 --raid-devices 5 m3 m4"),
    ("-l5 -c64", "m0 m1 m2 m3", "--raid-devices 3"),
    ("-l6 -c64 -e 1.0", "m0 m1 m2 m3 m4", "--raid-devices 4 --chunk 32K"),
    ("-l5 -c32 -e 1.0 --size 20416K", "m0 m1 m2", "--chunk 64K"),
];
const MIB: usize = 1 << 20;

pub(crate) fn lab() -> Lab {
    Lab::new(&[20; 5])
}

/// All members of one of these.
pub(crate) fn all(members: &str, wish: &str) -> String {
    let added = wish.split(' ').filter(|word| word.starts_with('m'));
    let all: Vec<&str> = members.split(' ').chain(added).collect();
    all.join(" ")
}

/// Who of all has a slot in the end, and who is a spare then.
pub(crate) fn kept<'a>(members: &str, wish: &str, all: &'a str) -> (&'a str, Option<&'a str>) {
    let has_fewer = wish.contains(&format!("--raid-devices {}", members.split(' ').count() - 1));
    let both = all.rsplit_once(' ').filter(|_| has_fewer);
    both.map_or((all, None), |(stays, goes)| (stays, Some(goes)))
}

/// Takes out the last member.
pub(crate) const WITHOUT_SPARE: &str =
    "quietly mdadm /dev/md0 --remove ${devices[-1]}; unset 'devices[-1]'";

pub(crate) fn create(lab: &Lab, options: &str, members: &str) {
    lab.run(&format!("create data --assume-clean {options} {members}")).ok();
}

/// Has a served array reshaped. Of one that becomes smaller clients are left what is left, and no more of `bytes`.
fn begin(lab: &Lab, wish: &str, bytes: &mut Vec<u8>) {
    let mut begun = lab.run(&format!("grow data {wish}"));
    if let Some((_, size)) = begun.err.split_once("--array-size ") {
        let size = size.split('`').next().unwrap();
        lab.run(&format!("grow data --array-size {size}")).ok();
        bytes.truncate(lab.detail()["array_bytes"].as_u64().unwrap() as usize);
        begun = lab.run(&format!("grow data {wish}"));
    }
    let begun = begun.ok();
    assert!(begun.out.contains("it is becoming"), "{begun:?}");
}

/// Asks for what is refused: that is told in these words, and the array stays as it is.
pub(crate) fn refused(lab: &Lab, wish: &str, says: &str) {
    let before = lab.detail();
    let ran = lab.run(&format!("grow data {wish}"));
    assert_eq!(ran.code, 1, "{wish}: {ran:?}");
    let is_told = ran.err.contains(says) && ran.err.contains("nothing was changed");
    assert!(is_told, "{wish}: {ran:?}");
    let after = lab.detail();
    for what in ["level", "layout", "chunk_bytes", "raid_devices", "array_bytes"] {
        assert_eq!(before[what], after[what], "{wish}");
    }
}

/// Fills an array, and leaves it in the midst of a reshape, with something written on either side meanwhile.
pub(crate) fn half_done(lab: &Lab, options: &str, members: &str, wish: &str) -> Vec<u8> {
    create(lab, options, members);
    let server = lab.serve_data(&format!("--shards 2 --sync-speed-max 2000 {members}"));
    let mut bytes = pattern(7, lab.detail()["array_bytes"].as_u64().unwrap() as usize);
    lab.fill(&server, &bytes);
    begin(lab, wish, &mut bytes);
    lab.until("some of it", |shown| shown["sync"]["done_bytes"].as_u64() > Some(2 << 20));
    let front = pattern(8, 4 * MIB);
    lab.fill(&server, &front);
    bytes[..front.len()].copy_from_slice(&front);
    assert!(lab.contents(&server) == bytes, "{options}, {wish}: read in the midst");
    server.stop();
    let examined = lab.run("examine m0").ok();
    assert!(examined.out.contains("Reshape pos'n"), "{options}, {wish}: {examined:?}");
    bytes
}

/// The option by which a reshape goes on of which Linux would not have recorded enough.
fn position_asked_for(lab: &Lab, all: &str) -> String {
    let refused = lab.run(&format!("serve {all}"));
    assert!(refused.err.contains("--reshape-position"), "{refused:?}");
    let words: Vec<&str> = refused.err.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "`--reshape-position").unwrap();
    format!("--reshape-position {}", words[at + 1].trim_end_matches('`'))
}

/// What comes to an array by a reshape reads as zeros.
pub(crate) fn lengthened(mut bytes: Vec<u8>, len: usize) -> Vec<u8> {
    assert!(len >= bytes.len(), "nothing is cut");
    bytes.resize(len, 0);
    bytes
}

#[test]
fn what_was_begun_here_is_carried_on_here_and_by_the_kernel() {
    let Some(mut md) = Md::boot("arrays whose reshape was begun here") else { return };
    for (options, members, wish) in RESHAPES {
        let (lab, all) = (lab(), all(members, wish));
        let bytes = half_done(&lab, options, members, wish);
        let same_count = all == members && !wish.contains("--raid-devices");
        let sure = match same_count || wish == "--level 6 m3" {
            true => position_asked_for(&lab, &all),
            false => String::new(),
        };
        let copies = Lab::new(&[20; 5]);
        all.split(' ').for_each(|name| copies.write_at(name, 0, &lab.read(name)));
        // Superblocks of version 1.0 have no room before the data: it is moved from the array's end on.
        let start = if options.contains("1.0") { bytes.len() } else { 0 };
        let behind = lab.run(&format!("serve --reshape-position {start} {all}"));
        assert!(behind.code == 1 && behind.err.contains("not the place on record"), "{behind:?}");
        let server = lab.serve_data(&format!("--shards 2 {sure} {all}"));
        lab.run("wait data").ok();
        let bytes = lengthened(bytes, lab.contents(&server).len());
        assert!(lab.contents(&server) == bytes, "{options}, {wish}: read afterwards");
        lab.run("check data").ok();
        lab.run("wait data").ok();
        assert_eq!(lab.detail()["mismatch_sectors"], 0, "{options}, {wish}");
        let (stays, goes) = kept(members, wish, &all);
        goes.map(|goes| lab.run(&format!("remove data {goes}")).ok());
        server.stop();
        md.agrees(&lab, stays, &bytes);
        md.finishes(&copies, &all, &bytes, goes.map_or("", |_| WITHOUT_SPARE));
    }
}

/// What would be lost: what was moved, if it were looked for where it was.
#[test]
fn a_reshape_is_turned_back_here_and_by_the_kernel() {
    let Some(mut md) = Md::boot("reshapes that are turned back") else { return };
    for (options, members, wish) in [
        ("-l5 -c64", "m0 m1 m2", "--raid-devices 4 m3"),
        ("-l6 -c64", "m0 m1 m2 m3 m4", "--raid-devices 4"),
        ("-l5 -c32", "m0 m1 m2", "--chunk 64K"),
        ("-l10 -c64", "m0 m1 m2", "--raid-devices 4 m3"),
    ] {
        let (lab, all) = (lab(), all(members, wish));
        let bytes = half_done(&lab, options, members, wish);
        let is_asked_for = wish == "--chunk 64K";
        let at = |position: &str| position.replace("--reshape-position ", "=");
        let given = if is_asked_for { at(&position_asked_for(&lab, &all)) } else { String::new() };
        if is_asked_for {
            for (given, says) in [("", "records seldom"), ("=0", "not the one on record")] {
                let refused = lab.run(&format!("update --update revert-reshape{given} {all}"));
                assert!(refused.code == 1 && refused.err.contains(says), "{refused:?}");
            }
        }
        lab.run(&format!("update --update revert-reshape{given} {all}")).ok();
        lab.run(&format!("cat -o out {all}")).ok();
        assert!(lab.read("out")[..bytes.len()] == bytes, "{wish}: read half done");
        let copies = Lab::new(&[20; 5]);
        all.split(' ').for_each(|name| copies.write_at(name, 0, &lab.read(name)));
        let position = if is_asked_for { position_asked_for(&lab, &all) } else { String::new() };
        let server = lab.serve_data(&format!("--shards 2 {position} {all}"));
        lab.run("wait data").ok();
        assert_eq!(lab.detail()["raid_devices"], members.split(' ').count(), "{wish}");
        let bytes = lengthened(bytes, lab.contents(&server).len());
        assert!(lab.contents(&server)[..] == bytes[..], "{wish}: read afterwards");
        lab.run("check data").ok();
        lab.run("wait data").ok();
        assert_eq!(lab.detail()["mismatch_sectors"], 0, "{options}, {wish}");
        let spare = all.split(' ').nth(members.split(' ').count());
        spare.map(|spare| lab.run(&format!("remove data {spare}")).ok());
        server.stop();
        md.agrees(&lab, members, &bytes);
        md.finishes(&copies, &all, &bytes, spare.map_or("", |_| WITHOUT_SPARE));
        let ended = lab.run(&format!("update --update revert-reshape {members}"));
        assert!(ended.err.contains("no reshape is under way that could"), "{ended:?}");
    }
    let lab = lab();
    half_done(&lab, "-l5 -c64", "m0 m1 m2", "--level 6 m3");
    let at = position_asked_for(&lab, "m0 m1 m2 m3").replace("--reshape-position ", "=");
    let refused = lab.run(&format!("update --update revert-reshape{at} m0 m1 m2 m3"));
    assert!(refused.err.contains("in the place of a parity"), "{refused:?}");
    half_done(&lab, "--force -l5 -c64", "m0 m1 m2", "--raid-devices 4 --force m3");
    lab.run("update --degraded --update revert-reshape m0 m1 m2").ok();
    let refused = lab.run("update --update revert-reshape m0 m1 m2 m3");
    assert!(refused.err.contains("different reshapes"), "{refused:?}");
}

#[test]
fn a_reshape_that_the_kernel_began_is_carried_on() {
    let Some(mut md) = Md::boot("arrays whose reshape the kernel began") else { return };
    for (options, wish) in [("-l5 -c64", "4"), ("-e 0.90 -l5 -c64", "4"), ("-l6 -c64", "5")] {
        let (lab, count) = (lab(), wish.parse::<usize>().unwrap() - 1);
        let names: Vec<String> = (0..=count).map(|index| format!("m{index}")).collect();
        let names = names.join(" ");
        let bytes = pattern(3, 64 * MIB);
        std::fs::write(lab.path("bytes"), &bytes).unwrap();
        md.play(
            &lab,
            &names,
            &format!(
                "rm -rf /run/mdadm
                 quietly mdadm --create /dev/md0 --run --assume-clean {options} -n{count} \
                     ${{devices[@]:0:{count}}}
                 fill $dir/bytes >/dev/null
                 quietly mdadm /dev/md0 --add ${{devices[{count}]}}
                 reshape_part mdadm --grow /dev/md0 --raid-devices {wish}
                 quietly mdadm --stop /dev/md0"
            ),
        );
        let missing = format!("m{}", count - 1);
        let copies = Lab::new(&[20; 5]);
        names.split(' ').for_each(|name| copies.write_at(name, 0, &lab.read(name)));
        let server = lab.serve_data(&format!("--shards 3 {names}"));
        let size = lab.detail()["array_bytes"].as_u64().unwrap() as usize;
        lab.run("wait data").ok();
        let read = lab.contents(&server);
        let before = size.min(read.len() - 1) / count * (count - 1);
        assert!(read[..before] == bytes[..before], "{options}");
        server.stop();
        md.agrees(&lab, &names, &read);

        let left: Vec<&str> = names.split(' ').filter(|name| *name != missing).collect();
        let server = copies.serve_data(&format!("--degraded {}", left.join(" ")));
        assert_eq!(copies.run("wait data").code, 3, "{options}: it is degraded");
        assert!(copies.contents(&server) == read, "{options}, without {missing}");
        server.stop();
    }
}

/// Levels without a parity that the array has: it goes to the last member, which is let go then.
#[test]
fn a_parity_goes_to_the_last_member_and_with_it() {
    let Some(mut md) = Md::boot("arrays that have lost a parity") else { return };
    let courses = [
        ("-l6 -c64", "--level 5", "raid5", "m0 m1 m2 m3", "m4"),
        ("-l6 -c64 -p ra", "--level 4 --chunk 32K", "raid4", "m0 m1 m2 m3", "m4"),
        ("-l5 -c64", "--level 4", "raid4", "m0 m1 m2 m3 m4", ""),
    ];
    for (options, wish, level, stays, goes) in courses {
        let (lab, all) = (lab(), "m0 m1 m2 m3 m4");
        create(&lab, options, all);
        let server = lab.serve_data(&format!("--shards 2 {all}"));
        let bytes = pattern(7, lab.detail()["array_bytes"].as_u64().unwrap() as usize);
        lab.fill(&server, &bytes);
        let begun = lab.run(&format!("grow data {wish}")).ok();
        assert!(begun.out.contains(&format!("on the way to {level}")), "{begun:?}");
        lab.until(level, |shown| shown["level"] == level && shown["reshape"].is_null());
        assert_eq!(lab.detail()["raid_devices"], stays.split(' ').count(), "{wish}");
        assert!(lab.contents(&server) == bytes, "{options}, {wish}");
        lab.run("check data").ok();
        lab.run("wait data").ok();
        assert_eq!(lab.detail()["mismatch_sectors"], 0, "{options}, {wish}");
        if !goes.is_empty() {
            assert_eq!(state(&lab.detail(), goes), "spare");
            lab.run(&format!("remove data {goes}")).ok();
        }
        server.stop();
        md.agrees(&lab, stays, &bytes);
    }
}

/// What was asked for is known to who was asked only: asked again, the next server does the rest.
#[test]
fn a_parity_that_was_on_its_way_goes_when_that_is_asked_for_again() {
    let Some(mut md) = Md::boot("an array whose parity was on its way") else { return };
    let (lab, all) = (lab(), "m0 m1 m2 m3");
    let bytes = half_done(&lab, "-l6 -c64", all, "--level 5");
    let refused = lab.run(&format!("serve {all}"));
    let (_, position) = refused.err.split_once("`--reshape-position ").expect("it is asked for");
    let position = position.split('`').next().unwrap();
    let server = lab.serve_data(&format!("--shards 2 --reshape-position {position} {all}"));
    lab.run("wait data").ok();
    assert_eq!(lab.detail()["layout"], "left-symmetric-6");
    let asked = lab.run("grow data --level 5").ok();
    assert!(asked.out.contains("raid5 left-symmetric of 3 members"), "{asked:?}");
    assert!(lab.contents(&server) == bytes);
    lab.run("remove data m3").ok();
    server.stop();
    md.agrees(&lab, "m0 m1 m2", &bytes);
}

#[test]
fn an_array_that_the_kernel_makes_smaller_is_made_so_here() {
    let Some(mut md) = Md::boot("an array that the kernel makes smaller") else { return };
    let (lab, names) = (lab(), "m0 m1 m2 m3");
    let bytes = pattern(3, 28 * MIB);
    std::fs::write(lab.path("bytes"), &bytes).unwrap();
    // mdadm moves data towards members' beginnings only, or by a backup file.
    md.play(
        &lab,
        names,
        "rm -rf /run/mdadm
         quietly mdadm --create /dev/md0 --run --assume-clean -l5 -c64 -n4 --size=14336 ${devices[@]}
         quietly mdadm --grow /dev/md0 --array-size 28672
         fill $dir/bytes >/dev/null
         md=/sys/block/md0/md
         echo 3 >$md/raid_disks
         for offset in $md/dev-*/new_offset; do echo $(($(<$offset) + 2048)) >$offset; done
         reshape_part bash -c \"echo reshape >$md/sync_action\"
         quietly mdadm --stop /dev/md0",
    );
    let server = lab.serve_data(&format!("--shards 3 {names}"));
    assert!(lab.contents(&server) == bytes, "in the midst");
    lab.run("wait data").ok();
    assert!(lab.contents(&server) == bytes, "afterwards");
    assert_eq!(state(&lab.detail(), "m3"), "spare");
    lab.run("remove data m3").ok();
    server.stop();
    md.agrees(&lab, "m0 m1 m2", &bytes);
}

/// Kills the server up to thrice while an array is reshaped: what was answered is there each time, and in the end.
pub(crate) fn survives_cuts((options, members, wish): (&str, &str, &str)) {
    let lab = lab();
    let all = all(members, wish);
    create(&lab, options, members);
    let mut server = lab.serve_data(&format!("--shards 2 --sync-speed-max 1500 {members}"));
    let mut bytes = pattern(7, lab.detail()["array_bytes"].as_u64().unwrap() as usize);
    lab.fill(&server, &bytes);
    begin(&lab, wish, &mut bytes);
    for round in 0..3u64 {
        let moved = lab.detail()["sync"]["done_bytes"].as_u64().unwrap_or(0);
        lab.until("more of it", |shown| {
            shown["sync"]["done_bytes"].as_u64().is_none_or(|done| done > moved)
        });
        let front = pattern(round, 2 * MIB);
        lab.fill(&server, &front);
        bytes[..front.len()].copy_from_slice(&front);
        server.kill();
        let examined = lab.run("examine m0").ok();
        let is_midst = examined.out.contains("Reshape pos'n");
        assert!(is_midst || round > 0, "{wish}: {examined:?}");
        server = lab.serve_data(&format!("--shards 2 --sync-speed-max 1500 {all}"));
        assert!(lab.contents(&server)[..bytes.len()] == bytes, "{wish}, round {round}");
        if !is_midst {
            break;
        }
    }
    lab.run("set data sync_speed_max=0").ok();
    lab.run("wait data").ok();
    let read = lab.contents(&server);
    assert!(read == lengthened(bytes, read.len()), "{wish}");
    server.stop();
}

#[test]
fn a_cut_at_any_moment_leaves_all_that_was_answered() {
    let made = ("-l5 -c64", "m0 m1 m2");
    for wish in ["--raid-devices 4 m3", "--raid-devices 5 --level 6 m3 m4"] {
        survives_cuts((made.0, made.1, wish));
    }
    survives_cuts(("-l6 -c64", "m0 m1 m2 m3 m4", "--raid-devices 4"));
}

/// A member fails, and then the power: parity that may be out of date is to stand in for it, which only force takes. Of the
/// last the member that goes is the one that fails.
#[test]
fn a_degraded_array_that_was_cut_in_a_reshape_goes_on_by_force() {
    let Some(mut md) = Md::boot("degraded arrays that were cut in a reshape") else { return };
    for (options, members, wish, lost) in [
        ("-l5 -c64", "m0 m1 m2", "--raid-devices 4 m3", "m1"),
        ("-l6 -c64 -e 1.1", "m0 m1 m2 m3", "--raid-devices 5 --chunk 32K m4", "m4"),
        ("-l5 -c64 -e 0.90", "m0 m1 m2", "--raid-devices 5 m3 m4", "m0"),
        ("-l5 -c64", "m0 m1 m2 m3", "--raid-devices 3", "m3"),
    ] {
        let (lab, all) = (lab(), all(members, wish));
        create(&lab, options, members);
        let terms = "--shards 2 --sync-speed-max 1500 --safe-mode-delay 60000";
        let server = lab.serve_data(&format!("{terms} {members}"));
        let mut bytes = pattern(7, lab.detail()["array_bytes"].as_u64().unwrap() as usize);
        lab.fill(&server, &bytes);
        begin(&lab, wish, &mut bytes);
        lab.until("some of it", |shown| {
            shown["sync"]["done_bytes"].as_u64() > Some(2 * MIB as u64)
        });
        lab.run(&format!("fail data {lost}")).ok();
        let front = pattern(8, 4 * MIB);
        lab.fill(&server, &front);
        bytes[..front.len()].copy_from_slice(&front);
        server.kill();
        let left: Vec<&str> = all.split(' ').filter(|name| *name != lost).collect();
        let left = left.join(" ");
        let refused = lab.run(&format!("serve --degraded {left}"));
        let asks = refused.code == 1 && refused.err.contains("use --force");
        assert!(asks, "{options}, {wish}: {refused:?}");
        let server = lab.serve_data(&format!("{terms} --force {left}"));
        assert!(lab.contents(&server) == bytes, "{options}, {wish}: read by force");
        server.kill();
        let copies = Lab::new(&[20; 5]);
        left.split(' ').for_each(|name| copies.write_at(name, 0, &lab.read(name)));
        let server = lab.serve_data(&format!("--shards 2 --force {left}"));
        let waited = lab.run("wait data");
        assert!(waited.out.contains("reshape done"), "{options}, {wish}: {waited:?}");
        let bytes = lengthened(bytes.clone(), lab.contents(&server).len());
        assert!(lab.contents(&server) == bytes, "{options}, {wish}: read afterwards");
        server.stop();
        let finish = "quietly mdadm --assemble --force --run /dev/md0 ${devices[@]}
             until [ $(<$md/reshape_position) = none ]; do nap 0.01; done
             dump $dir/dump
             quietly mdadm --stop /dev/md0";
        for lab in [&lab, &copies] {
            md.play(lab, &left, finish);
            assert!(lab.read("dump") == bytes, "{options}, {wish}: the kernel reads otherwise");
        }
    }
}

#[test]
fn who_failed_in_a_reshape_is_added_as_a_new_member_afterwards() {
    let lab = lab();
    create(&lab, "-l5 -c64", "m0 m1 m2");
    let server = lab.serve_data("--shards 2 --sync-speed-max 2000 m0 m1 m2");
    let mut bytes = pattern(7, lab.detail()["array_bytes"].as_u64().unwrap() as usize);
    lab.fill(&server, &bytes);
    begin(&lab, "--raid-devices 4 m3", &mut bytes);
    lab.run("fail data m1").ok();
    let refused = lab.run("fail data m2");
    assert!(refused.code == 1 && refused.err.contains("while it is reshaped"), "{refused:?}");
    lab.run("set data sync_speed_max=0").ok();
    assert!(lab.run("wait data").out.contains("reshape done"));
    lab.run("remove data m1").ok();
    for words in ["add data m1", "re-add data m1"] {
        let refused = lab.run(words);
        let says = "as it was before a reshape";
        assert!(refused.code == 1 && refused.err.contains(says), "{words}: {refused:?}");
    }
    lab.run("add --force data m1").ok();
    lab.run("wait data").ok();
    assert!(lab.contents(&server)[..bytes.len()] == bytes);
    server.stop();
}

/// What one that is out of date holds between the place that it knows and the place on record is of neither geometry.
#[test]
fn force_raises_who_has_seen_how_far_a_reshape_has_come() {
    let lab = lab();
    let bytes = half_done(&lab, "-l5 -c64", "m0 m1 m2", "--raid-devices 4 m3");
    let frozen = "--shards 2 --frozen";
    let server = lab.serve_data(&format!("{frozen} m0 m1 m2 m3"));
    lab.run("fail data m1").ok();
    server.stop();
    lab.serve_data(&format!("{frozen} --degraded m0 m2 m3")).stop();
    let behind = lab.read("m1");
    let server = lab.serve_data(&format!("{frozen} --force m0 m1 m3"));
    assert!(lab.contents(&server) == bytes);
    server.stop();
    let server = lab.serve_data("--shards 2 --degraded --sync-speed-max 2000 m0 m1 m3");
    lab.until("more of it", |shown| shown["sync"]["done_bytes"].as_u64() > Some(8 << 20));
    server.stop();
    lab.write_at("m1", 0, &behind);
    let refused = lab.run("serve --force m0 m1 m3");
    assert!(
        refused.code == 1 && refused.err.contains("does not know how far the reshape has come"),
        "{refused:?}"
    );
}

/// What would be lost: a disk that was taken out, and may have been kept for a reason.
#[test]
fn a_new_member_that_was_taken_out_meanwhile_is_left_alone() {
    let lab = lab();
    create(&lab, "-l5 -c64", "m0 m1 m2");
    let server = lab.serve_data("--shards 2 --sync-speed-max 1500 m0 m1 m2");
    let bytes = pattern(7, lab.detail()["array_bytes"].as_u64().unwrap() as usize);
    lab.fill(&server, &bytes);
    lab.run("grow data --raid-devices 4 m3").ok();
    lab.run("fail data m3").ok();
    lab.run("remove data m3").ok();
    lab.fill(&server, &bytes);
    server.stop();
    let taken_out = lab.read("m3");
    let server = lab.serve_data("--shards 2 m0 m1 m2 m3");
    assert_eq!(lab.run("wait data").code, 3, "it is degraded");
    assert_eq!(state(&lab.detail(), "m3"), "absent");
    let read = lab.contents(&server);
    assert!(read == lengthened(bytes, read.len()));
    server.stop();
    assert!(lab.read("m3") == taken_out, "it was written");
}

/// What would be lost: all that was not moved yet, if the freshest of all devices told whether a reshape has ended.
#[test]
fn a_member_of_another_array_does_not_end_a_reshape() {
    let lab = lab();
    lab.run("create other -l1 --assume-clean m4 missing --size 8M --force").ok();
    for round in 0..12 {
        let server = lab.serve("--name other --degraded m4");
        lab.fill(&server, &pattern(round, 4096));
        server.stop();
    }
    let bytes = half_done(&lab, "-l5 -c64", "m0 m1 m2", "--raid-devices 4 m3");
    let events = |member: &str| lab.run(&format!("examine --json {member}")).ok().out;
    let count = |member: &str| -> u64 {
        let told = events(member);
        let at = told.find("\"events\":").unwrap() + 9;
        told[at..]
            .trim_start()
            .split(|c: char| !c.is_ascii_digit())
            .next()
            .unwrap()
            .parse()
            .unwrap()
    };
    assert!(count("m4") > count("m0"), "the other array is to be the freshest");
    let uuid = lab.run("examine m0").ok().out;
    let uuid = uuid.lines().find_map(|line| line.trim().strip_prefix("Array UUID : ")).unwrap();
    let server = lab.serve_data(&format!("--shards 2 --uuid {uuid} m0 m1 m2 m3 m4"));
    lab.run("wait data").ok();
    let read = lab.contents(&server);
    assert!(read == lengthened(bytes, read.len()));
    server.stop();
}

/// All devices are looked at before the first is written; a spare that is there already is named again.
#[test]
fn a_device_that_is_refused_keeps_the_others_from_being_written() {
    let lab = Lab::new(&[20, 20, 20, 20, 20, 1]);
    create(&lab, "-l5 -c64", "m0 m1 m2");
    let server = lab.serve_data("--shards 2 m0 m1 m2");
    let before = lab.read("m3");
    for (devices, code) in [("m3 m5", 1), ("m3 m3", 2)] {
        let ran = lab.run(&format!("grow data --raid-devices 5 {devices}"));
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(lab.read("m3") == before, "{devices}: m3 was written: {ran:?}");
    }
    lab.run("add data m3").ok();
    lab.run("grow data --raid-devices 5 m3 m4").ok();
    assert!(lab.run("wait data").out.contains("reshape done"));
    server.stop();
}

/// Nobody is added yet, and it would be degraded for nothing.
#[test]
fn a_raid0_begins_nothing_that_could_not_hold_its_data() {
    let lab = Lab::new(&[20; 6]);
    create(&lab, "-l0 -c64", "m0 m1 m2");
    let server = lab.serve_data("--shards 2 m0 m1 m2");
    for wish in ["--level 6 --raid-devices 4", "--level 10 --raid-devices 4"] {
        refused(&lab, wish, "cut data");
    }
    lab.run("grow data --level 10").ok();
    for member in ["m3", "m4", "m5"] {
        lab.run(&format!("add data {member}")).ok();
    }
    lab.run("wait data").ok();
    let detail = lab.detail();
    let members = detail["members"].as_array().unwrap();
    assert!(members.len() == 6 && members.iter().all(|it| it["state"] == "in_sync"), "{detail}");
    server.stop();
}

#[test]
fn what_cannot_be_reshaped_is_refused_and_stays_as_it_is() {
    let lab = lab();
    let refused = |wish: &str, says: &str| refused(&lab, wish, says);
    create(&lab, "-l5 -c64", "m0 m1 m2");
    let server = lab.serve_data("--shards 1 m0 m1 m2");
    refused("--chunk 128K", "--shards 2");
    server.stop();
    let server = lab.serve_data("--shards 2 m0 m1 m2");
    refused("--raid-devices 4", "as many spares");
    refused("--raid-devices 2", "that would cut data");
    refused("--level 10 --raid-devices 4", "no way from this raid5 to a raid10");
    refused("--layout n2", "n2");
    refused("--chunk 48K", "power of two");
    refused("--chunk 8M", "not whole chunks");
    lab.run("freeze data").ok();
    refused("--chunk 128K", "frozen");
    lab.run("resume data").ok();
    lab.run("fail data m1").ok();
    refused("--chunk 128K", "a member is missing");
    let already = lab.run("grow data --chunk 64K").ok();
    assert!(already.out.contains("already"), "{already:?}");
    server.stop();

    let lab = Lab::new(&[20; 4]);
    create(&lab, "-l5 -c64 -e 1.0", "m0 m1 m2");
    let server = lab.serve_data("--shards 2 m0 m1 m2");
    let ran = lab.run("grow data --raid-devices 4 --chunk 32K m3");
    assert!(ran.code == 1 && ran.err.contains("between superblock and data"), "{ran:?}");
    server.stop();
    let lab = Lab::new(&[20; 2]);
    create(&lab, "-l1", "m0 m1");
    let server = lab.serve_data("--shards 2 m0 m1");
    self::refused(&lab, "--chunk 64K", "a raid1 has no chunk and no layout");
    server.stop();
}
