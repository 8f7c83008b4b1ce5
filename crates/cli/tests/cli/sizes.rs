//! Promise: an array that is served gets another size, or a mirror another number of copies, while clients use it; the
//! kernel takes what was grown here, and the other way round; and nothing is cut that clients can use.

use crate::support::md::Md;
use crate::support::{Lab, Server, pattern};

const MIB: u64 = 1 << 20;

/// Options, members, and how much of the array one MiB of each member is, in MiB.
const SHAPES: [(&str, &str, u64); 6] = [
    ("-l1", "m0 m1", 1),
    ("-l5 -c64 -b internal --bitmap-chunk 64K", "m0 m1 m2", 2),
    ("-l6 -c64 -e 1.0 -b internal --bitmap-chunk 64K", "m0 m1 m2 m3", 2),
    ("-l10 -c64 -p n2", "m0 m1 m2 m3", 2),
    ("-l10 -c64 -p o2 -e 1.1", "m0 m1 m2 m3", 2),
    ("-l4 -c64 -e 0.90", "m0 m1 m2", 2),
];

fn create(lab: &Lab, options: &str, members: &str) -> Server {
    lab.run(&format!("create data --assume-clean -z 8M {options} {members}")).ok();
    lab.serve_data(members)
}

/// Members that hold different bytes where the array does not reach yet.
fn scribble(lab: &Lab, members: &str) {
    for (member, name) in members.split(' ').enumerate() {
        lab.write_at(name, 10 * MIB, &pattern(member as u64, 4 * MIB as usize));
    }
}

fn size(lab: &Lab, server: &Server) -> u64 {
    let ran = lab.other(&format!("nbdinfo --size {}", server.uri())).expect("nbdinfo").ok();
    ran.out.trim().parse().unwrap()
}

#[test]
fn what_was_grown_here_is_the_kernels() {
    let Some(mut md) = Md::boot("arrays that were grown while served") else { return };
    for (options, members, share) in SHAPES {
        let lab = Lab::new(&vec![24; members.split(' ').count()]);
        let server = create(&lab, options, members);
        let bytes = pattern(5, (8 * share * MIB) as usize);
        lab.fill(&server, &bytes);
        scribble(&lab, members);
        let grown = lab.run("grow data --size 12M --json").ok().json();
        assert_eq!(grown["array_bytes"], 12 * share * MIB, "{options}");
        lab.run("wait data").ok();
        assert_eq!(lab.detail()["last_sync"]["action"], "resync", "{options}");
        assert_eq!(size(&lab, &server), 12 * share * MIB, "a client that asks anew");
        lab.run("check data").ok();
        lab.run("wait data").ok();
        assert!(lab.contents(&server)[..bytes.len()] == bytes, "{options}");
        server.stop();
        let script = "quietly mdadm --assemble /dev/md0 ${devices[@]}
            matches
            cat $md/component_size /sys/block/md0/size $md/resync_start
            grep bitmap: /proc/mdstat || :
            quietly mdadm --stop /dev/md0";
        let said = md.play(&lab, members, script);
        let (component, all) = (12 * 1024, 12 * share * 2048);
        assert!(said.starts_with(&format!("{component}\n{all}\nnone")), "{options}: {said}");
        assert_eq!(said.contains("64KB chunk"), options.contains("internal"), "{options}: {said}");
    }
}

#[test]
fn what_the_kernel_grew_is_ours() {
    let Some(mut md) = Md::boot("arrays that the kernel grew") else { return };
    for (options, members, share) in SHAPES {
        let lab = Lab::new(&vec![24; members.split(' ').count()]);
        let server = create(&lab, options, members);
        let bytes = pattern(5, (8 * share * MIB) as usize);
        lab.fill(&server, &bytes);
        server.stop();
        scribble(&lab, members);
        let script = "quietly mdadm --assemble /dev/md0 ${devices[@]}
            quietly mdadm --grow /dev/md0 --size 12288
            settle
            echo check >$md/sync_action
            until read -r action <$md/sync_action && [ \"$action\" = idle ]; do nap 0.01; done
            cat $md/mismatch_cnt
            quietly mdadm --stop /dev/md0";
        // With a bitmap Linux 6.1 leaves what comes to an array as it was, which its own check tells, too.
        let differs = md.play(&lab, members, script).trim().parse::<u64>().unwrap();
        assert!(differs == 0 || options.contains("bitmap"), "{options}: {differs}");
        let server = lab.serve_data(members);
        assert_eq!(server.facts["array_bytes"], 12 * share * MIB, "{options}");
        lab.run("check data").ok();
        let found = lab.run("wait data --json").json();
        assert_eq!(found["mismatch_sectors"], differs, "{options}");
        assert!(lab.contents(&server)[..bytes.len()] == bytes, "{options}");
        server.stop();
    }
}

#[test]
fn a_size_changes_for_files_and_status_while_they_are_in_use() {
    let lab = Lab::new(&[24, 24, 24]);
    lab.run("create data -l5 -c64 -z 8M --assume-clean m0 m1 m2").ok();
    let server = lab.serve("m0 m1 m2 --fuse data.raw");
    let len = || std::fs::metadata(lab.path("data.raw")).unwrap().len();
    let becomes = |bytes: u64| {
        let since = std::time::Instant::now();
        while len() != bytes {
            assert!(since.elapsed().as_secs() < 20, "{} of {bytes}", len());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    assert_eq!(len(), 16 * MIB);
    lab.run("grow data --size 12M --assume-clean").ok();
    becomes(24 * MIB);
    let end = pattern(3, 4096);
    lab.write_at("data.raw", 24 * MIB - 4096, &end);
    assert!(lab.read("data.raw")[24 * MIB as usize - 4096..] == end);
    assert!(lab.run("status").ok().out.contains("24576 blocks"));
    assert!(lab.run("grow data --size 12M").ok().out.contains("already"));
    lab.run("grow data --array-size 10M").ok();
    becomes(10 * MIB);
    lab.run("grow data --array-size max").ok();
    becomes(24 * MIB);
    assert!(lab.read("data.raw")[24 * MIB as usize - 4096..] == end, "nothing was cut");
    server.stop();
}

#[test]
fn an_array_is_cut_only_where_clients_see_nothing_of_it() {
    let lab = Lab::new(&[24, 24]);
    let server = create(&lab, "-l1", "m0 m1");
    let refused = lab.run("grow data --size 6M");
    assert!(refused.code == 1 && refused.err.contains("would cut data"), "{refused:?}");
    lab.run("grow data --array-size 6M").ok();
    assert_eq!(size(&lab, &server), 6 * MIB);
    let refused = lab.run("grow data --size 5M");
    assert!(refused.code == 1 && refused.err.contains("--array-size 5120K"), "{refused:?}");
    lab.run("grow data --size 6M").ok();
    server.stop();
    let server = lab.serve_data("m0 m1");
    assert_eq!(server.facts["array_bytes"], 6 * MIB, "the size is on record");
    lab.run("grow data --array-size 4M").ok();
    server.stop();
    let server = lab.serve_data("m0 m1");
    assert_eq!(server.facts["array_bytes"], 6 * MIB, "what clients can use is not");
    server.stop();
}

/// Options, members, what is asked for, and what the refusal says.
const REFUSED: [(&str, &str, &str, &str); 10] = [
    ("-l5 -c64", "m0 m1 m2", "--size 99M", "m0 has room for 23552 KiB"),
    ("-l10 -c64 -p f2", "m0 m1", "--raid-devices 3", "far copies is not reshaped"),
    ("-l5 -c64 -k ppl", "m0 m1 m2", "--size max", "partial parity logs"),
    ("-l5 -c64 -b lockless", "m0 m1 m2", "--size max", "lockless bitmap"),
    ("-l10 -c64 -p f2", "m0 m1 m2", "--size max", "far copies"),
    ("-l1", "m0 m1", "--array-size 99M", "has 8192 KiB, and 101376 KiB were asked for"),
    ("-l1", "m0 m1", "--array-size 0", "no bytes"),
    ("-l1 -b ./bits", "m0 m1", "--size max", "keeps its size"),
    ("-l1", "m0 m1", "--raid-devices 1", "is in a slot"),
    ("-l1", "m0 m1", "--raid-devices 3", "1 more members need as many spares, and there are 0"),
];

/// A member that nothing is written to any more.
fn at_rest(lab: &Lab) -> Vec<u8> {
    let mut last = lab.read("m0");
    loop {
        std::thread::sleep(std::time::Duration::from_millis(500));
        let now = lab.read("m0");
        if std::mem::replace(&mut last, now) == last {
            return last;
        }
    }
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    for (options, members, wish, why) in REFUSED {
        let lab = Lab::new(&[24, 24, 24]);
        let bitmap = if options.contains("bits") { "--bitmap bits " } else { "" };
        lab.run(&format!("create data --assume-clean -z 8M {options} {members}")).ok();
        let server = lab.serve_data(&format!("{bitmap}{members}"));
        let before = at_rest(&lab);
        let refused = lab.run(&format!("grow data {wish}"));
        let is_refused = refused.code == 1 && refused.err.contains(why);
        assert!(
            is_refused && refused.err.contains("nothing was changed"),
            "{options}: {refused:?}"
        );
        assert!(lab.read("m0") == before, "{options} {wish}");
        server.stop();
    }
}

#[test]
fn levels_without_redundancy_have_one_size() {
    for options in ["-l0 -c64", "-l linear"] {
        let lab = Lab::new(&[24, 24]);
        lab.run(&format!("create data {options} m0 m1")).ok();
        let server = lab.serve_data("m0 m1");
        let refused = lab.run("grow data --size max");
        assert!(refused.code == 1 && refused.err.contains("gets no other size"), "{refused:?}");
        lab.run("grow data --array-size 10M").ok();
        assert_eq!(size(&lab, &server), 10 * MIB);
        server.stop();
    }
}

#[test]
fn a_degraded_array_keeps_its_size() {
    let lab = Lab::new(&[24, 24, 24]);
    let server = create(&lab, "-l5 -c64", "m0 m1 m2");
    lab.run("fail data m0").ok();
    let refused = lab.run("grow data --size max");
    assert!(refused.code == 1 && refused.err.contains("a member is missing"), "{refused:?}");
    server.stop();
}

#[test]
fn members_that_have_become_larger_are_used_to_their_end() {
    let lab = Lab::new(&[24, 24]);
    lab.run("create data -l1 --assume-clean m0 m1").ok();
    for member in ["m0", "m1"] {
        std::fs::File::options()
            .write(true)
            .open(lab.path(member))
            .unwrap()
            .set_len(48 * MIB)
            .unwrap();
    }
    lab.run("update --update devicesize m0 m1").ok();
    let server = lab.serve_data("m0 m1");
    let old = server.facts["array_bytes"].as_u64().unwrap();
    let grown = lab.run("grow data --size max --json").ok().json();
    assert_eq!(grown["array_bytes"].as_u64().unwrap(), old + 24 * MIB);
    lab.run("wait data").ok();
    server.stop();
    if let Some(mut md) = Md::boot("members that have become larger") {
        let script = "quietly mdadm --assemble /dev/md0 ${devices[@]}
            matches
            cat /sys/block/md0/size
            quietly mdadm --stop /dev/md0";
        let said = md.play(&lab, "m0 m1", script);
        assert_eq!(said.trim(), ((old + 24 * MIB) / 512).to_string());
    }
}

/// What would be lost: the new copy, which is on record as whole.
#[test]
fn a_mirror_that_was_made_smaller_gets_a_copy_that_holds_all() {
    let lab = Lab::new(&[24, 24, 24]);
    let server = create(&lab, "-l1", "m0 m1");
    lab.fill(&server, &pattern(6, 4 * MIB as usize));
    lab.run("grow data --array-size 4M").ok();
    lab.run("grow data --size 4M").ok();
    lab.run("grow data --raid-devices 3 m2").ok();
    lab.run("wait data").ok();
    let new = pattern(7, 2 * MIB as usize);
    lab.fill(&server, &new);
    server.stop();
    let all = lab.run("cat -o all m0");
    assert!(lab.read("all")[..new.len()] == new, "{all:?}");
    lab.run("cat -o third m2");
    assert!(lab.read("third") == lab.read("all"));
}

#[test]
fn a_mirror_gets_and_loses_copies() {
    let lab = Lab::new(&[24, 24, 24]);
    let server = create(&lab, "-l1", "m0 m1");
    let bytes = pattern(5, 8 * MIB as usize);
    lab.fill(&server, &bytes);
    lab.run("grow data --raid-devices 3 m2").ok();
    lab.run("wait data").ok();
    lab.run("check data").ok();
    lab.run("wait data").ok();
    assert_eq!(lab.detail()["raid_devices"], 3);
    server.stop();
    let mut md = Md::boot("copies that were added while served");
    if let Some(md) = &mut md {
        let script = "quietly mdadm --assemble /dev/md0 ${devices[@]}
            matches
            cat $md/raid_disks $md/degraded
            quietly mdadm --grow /dev/md0 -n 4 --force
            quietly mdadm --grow /dev/md0 -n 3
            quietly mdadm --stop /dev/md0";
        assert_eq!(md.play(&lab, "m0 m1 m2", script).trim(), "3\n0");
    }
    let server = lab.serve_data("m0 m1 m2");
    lab.run("fail data m2").ok();
    lab.run("remove data m2").ok();
    lab.run("grow data --raid-devices 2").ok();
    assert_eq!(lab.detail()["state"], serde_json::json!(["clean"]));
    assert!(lab.contents(&server) == bytes);
    server.stop();
    if let Some(md) = &mut md {
        let script = "quietly mdadm --assemble /dev/md0 ${devices[@]}
            matches
            cat $md/raid_disks $md/degraded
            quietly mdadm --stop /dev/md0";
        assert_eq!(md.play(&lab, "m0 m1", script).trim(), "2\n0");
    }
}
