//! Arrays with a lockless bitmap, in turn in the kernel's hands and in ours. Only judge `lockless` has a kernel with one
//! (`make judge`, `make soak`).

use crate::support::md::{Left, Md, state};
use crate::support::{Lab, pattern};
use lapstrake_kernel_md::Judge;
use lapstrake_not_run::left_out;

/// Level, layout and number of members.
const SHAPES: [(&str, usize); 4] = [("1", 2), ("5", 3), ("6", 4), ("10", 4)];

/// Waits until the kernel has resynced what was written for the first time, or when it was cut off.
const SYNCED: &str = "until grep -q '^need sync 0' $md/llbitmap/bits && grep -q '^syncing 0' $md/llbitmap/bits; do \
                      nap 0.05; done";

fn judge(what: &str) -> Option<Md> {
    if Judge::chosen() != Judge::Lockless {
        left_out(format_args!("{what}: it is for LAPSTRAKE_JUDGE=lockless"));
        return None;
    }
    Md::boot(what)
}

/// Members full of noise where the level has parity, so that redundancy which nobody made shows. (Of copies a kernel leaves
/// some different, and counts that itself.)
fn lab(level: &str, members: usize) -> (Lab, String) {
    let lab = Lab::new(&vec![24; members]);
    let names: Vec<String> = (0..members).map(|n| format!("m{n}")).collect();
    if ["5", "6"].contains(&level) {
        for (seed, name) in (20..).zip(&names) {
            lab.write_at(name, 0, &pattern(seed, 24 << 20));
        }
    }
    (lab, names.join(" "))
}

/// Chunks in a state, as `examine` counts them.
fn chunks(lab: &Lab, member: &str, state: &str) -> u64 {
    let told = lab.run(&format!("examine --json {member}")).ok().json();
    told[0]["bitmap"]["states"][state].as_u64().unwrap()
}

/// A check of ours that finds nothing, once what was due is done.
fn assert_right(lab: &Lab) {
    lab.run("wait data").ok();
    lab.run("check data").ok();
    lab.run("wait data").ok();
    let detail = lab.detail();
    assert_eq!(detail["mismatch_sectors"].as_u64(), Some(0), "{detail:#}");
}

#[test]
fn what_the_kernel_left_we_go_on_with_and_give_back() {
    let Some(mut md) = judge("lockless bitmaps of the kernel's") else { return };
    for (level, count) in SHAPES {
        for left in [Left::Stopped, Left::CutOff] {
            let (lab, members) = lab(level, count);
            let bytes = pattern(3, 3 << 20);
            std::fs::write(lab.path("in"), &bytes).unwrap();
            let script = format!(
                "quietly mdadm --create /dev/md0 --run --level {level} --raid-devices {count} \
                   --bitmap=lockless ${{devices[@]}}
                 for try in $(seq 600); do grep -q ^0 /sys/block/md0/md/degraded && break; sleep 0.1; done
                 dd if=/host$dir/in of=/dev/md0 bs=64k oflag=direct conv=fsync status=none"
            );
            left.by_kernel(&mut md, &lab, &members, &script);
            // (A RAID5's last member is recovered first; cut off before that, it needs force on either side.)
            // mdadm, too, starts a RAID6 that was cut off in its first write only when forced.
            let is_forced = level == "6" && left == Left::CutOff;
            let server =
                lab.serve_data(&format!("{}{members}", if is_forced { "--force " } else { "" }));
            assert!(lab.contents(&server)[..bytes.len()] == bytes, "raid{level}");
            assert_right(&lab);
            let news = pattern(4, 5 << 20);
            lab.fill(&server, &news);
            let contents = lab.contents(&server);
            left.by_us(server);
            md.finishes(&lab, &members, &contents, SYNCED);
        }
    }
}

#[test]
fn what_was_cut_off_under_us_the_kernel_resyncs() {
    let Some(mut md) = judge("lockless bitmaps of ours") else { return };
    for (level, count) in SHAPES {
        let (lab, members) = lab(level, count);
        lab.run(&format!("create data -l{level} --bitmap lockless {members}")).ok();
        let server = lab.serve_data(&members);
        let bytes = pattern(5, 4 << 20);
        lab.fill(&server, &bytes);
        server.kill();
        let due = ["dirty", "need_sync", "syncing"].map(|state| chunks(&lab, "m0", state));
        assert!(due.iter().sum::<u64>() > 0, "raid{level}: {due:?}");
        let examined = lab.run("examine m0").ok().out;
        assert!(examined.contains("State : active"), "raid{level}: {examined}");
        // Read before anyone mends it: what was flushed is there.
        lab.run(&format!("cat --overwrite -o out {members}")).ok();
        let contents = lab.read("out");
        assert!(contents[..bytes.len()] == bytes, "raid{level}");
        md.finishes(&lab, &members, &contents, SYNCED);
        assert_eq!(chunks(&lab, "m0", "need_sync"), 0, "raid{level}");
    }
}

#[test]
fn members_that_missed_writes_come_back_on_both_sides() {
    let Some(mut md) = judge("re-adding by a lockless bitmap") else { return };
    for (level, count) in [("1", 2), ("5", 3)] {
        let (lab, members) = lab(level, count);
        lab.run(&format!("create data -l{level} --bitmap lockless {members}")).ok();
        let server = lab.serve_data(&members);
        lab.fill(&server, &pattern(6, 4 << 20));
        lab.run("wait data").ok();
        lab.run("fail data m1").ok();
        let ours = pattern(7, 2 << 20);
        lab.fill(&server, &ours);
        let contents = lab.contents(&server);
        server.stop();
        let script = format!(
            "quietly mdadm --assemble --run /dev/md0 ${{devices[0]}} ${{devices[@]:2}}
             quietly mdadm /dev/md0 --re-add ${{devices[1]}}
             settle
             {SYNCED}
             dump $dir/dump
             matches
             quietly mdadm /dev/md0 --fail ${{devices[1]}} --remove ${{devices[1]}}
             dd if=/host$dir/in of=/dev/md0 bs=64k seek=64 oflag=direct conv=fsync status=none"
        );
        std::fs::write(lab.path("in"), pattern(8, 1 << 20)).unwrap();
        md.play(&lab, &members, &script);
        // What was never written cannot be told while a member is missing.
        let written = 4 << 20;
        assert!(lab.read("dump")[..written] == contents[..written], "raid{level}");
        let others = members.replace(" m1", "");
        let server = lab.serve_data(&format!("--degraded {others}"));
        lab.run("add data m1").ok();
        lab.run("wait data").ok();
        assert_eq!(state(&lab.detail(), "m1"), "in_sync");
        assert_right(&lab);
        let contents = lab.contents(&server);
        assert!(
            contents[..ours.len()] == ours && contents[4 << 20..][..1 << 20] == pattern(8, 1 << 20)
        );
        server.stop();
        md.agrees(&lab, &members, &contents);
    }
}
