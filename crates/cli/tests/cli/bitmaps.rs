//! Promise: the write-intent bitmap of a served array can be added, moved, resized and taken away under
//! load, and what the kernel's md or Lapstrake made of it is for the other what it was for the first.

use crate::support::md::Md;
use crate::support::{Lab, Server, exists, installed, not_run, pattern};
use serde_json::Value;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

const MIB: u64 = 1 << 20;
/// Where the data of these members starts; 1.0 and 0.90 have it at their beginning.
const DATA: u64 = MIB;
const CHUNK: u64 = 64 << 10;

fn serve(lab: &Lab, options: &str, members: &str) -> (Server, Vec<u8>) {
    lab.run(&format!("create data --assume-clean {options} {members}")).ok();
    let server = lab.serve_data(members);
    let bytes = pattern(61, server.facts["array_bytes"].as_u64().unwrap() as usize);
    lab.fill(&server, &bytes);
    (server, bytes)
}

/// Makes the redundancy of one bit's range, and of another far from it, wrong on a member.
fn spoil(lab: &Lab, member: &str, data: u64) {
    let file = std::fs::File::open(lab.path(member)).unwrap();
    for offset in [0, 24 * CHUNK] {
        let mut bytes = vec![0; 9000];
        file.read_exact_at(&mut bytes, data + offset).unwrap();
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
        lab.write_at(member, data + offset, &bytes);
    }
}

/// Versions, levels and members; the last one holds redundancy where it is spoilt.
const SHAPES: [(&str, &str, u64); 5] = [
    ("-l5 -c64", "m0 m1 m2", DATA),
    ("-l1 -e 1.0", "m0 m1", 0),
    ("-l1 -e 0.90", "m0 m1", 0),
    ("-l10 -c64 -p n2 -e 1.1", "m0 m1", DATA),
    ("-l6 -c64", "m0 m1 m2 m3", DATA),
];

/// What a lockless bitmap says after each step of a served array.
fn chunk_states(lab: &Lab) -> [u64; 8] {
    serde_json::from_value(lab.detail()["bitmap_states"].clone()).unwrap()
}

#[test]
fn a_lockless_array_that_stopped_in_a_recovery_starts_without_what_was_recovered() {
    let lab = Lab::new(&[24, 24, 24, 24]);
    lab.run("create data -l5 -c64 --bitmap lockless --assume-clean m0 m1 m2").ok();
    let contents = pattern(9, 20 << 20);
    std::fs::write(lab.path("in"), &contents).unwrap();
    let server = lab.serve("m0 m1 m2");
    lab.other(&format!("nbdcopy --flush in {}", server.uri())).unwrap().ok();
    lab.run("fail data m0").ok();
    lab.other(&format!("nbdcopy --flush in {}", server.uri())).unwrap().ok();
    lab.run("remove data m0").ok();
    lab.run("set data sync_speed_min=100 sync_speed_max=100").ok();
    lab.run("add data m3").ok();
    server.stop();
    assert!(lab.run("examine m3").ok().out.contains("Recovery Offset"));
    let server = lab.serve("--degraded m1 m2");
    lab.other(&format!("nbdcopy {} seen", server.uri())).unwrap().ok();
    server.stop();
    assert!(lab.read("seen")[..contents.len()] == contents);
}

#[test]
fn a_chunk_that_was_resynced_needs_no_resync() {
    let lab = Lab::new(&[24, 24, 24]);
    lab.run("create data -l5 -c64 --bitmap lockless m0 m1 m2").ok();
    std::fs::write(lab.path("in"), pattern(9, 4 << 20)).unwrap();
    let server = lab.serve("m0 m1 m2");
    lab.other(&format!("nbdcopy --flush in {}", server.uri())).unwrap().ok();
    lab.run("wait data").ok();
    assert_eq!(
        lab.detail()["last_sync"]["action"],
        "recovery",
        "what is resynced lazily is no news"
    );
    let [unwritten, clean, dirty, need_sync, ..] = chunk_states(&lab);
    assert!(unwritten > 0 && clean + dirty > 0 && need_sync == 0, "{clean} {dirty} {need_sync}");
    let ran = lab.run("grow data --bitmap none").ok();
    assert!(ran.out.contains("no write-intent bitmap"), "{ran:?}");
    lab.run("wait data").ok();
    assert_eq!(lab.detail()["last_sync"]["action"], "resync");
    server.stop();
}

#[test]
fn without_a_lockless_bitmap_all_is_resynced_though_it_called_all_clean() {
    let lab = Lab::new(&[24, 24]);
    lab.run("create data -l1 --bitmap lockless --assume-clean m0 m1").ok();
    // As a kernel leaves copies that were never made equal.
    let at = (20 << 20, vec![7; 4096]);
    lab.write_at("m1", at.0, &at.1);
    let server = lab.serve("m0 m1");
    assert_eq!(chunk_states(&lab)[1], chunk_states(&lab).iter().sum::<u64>());
    lab.run("grow data --bitmap none").ok();
    lab.run("wait data").ok();
    assert_eq!(lab.detail()["last_sync"]["action"], "resync");
    server.stop();
    let len = at.1.len();
    assert!(lab.read("m0")[at.0 as usize..][..len] == lab.read("m1")[at.0 as usize..][..len]);
}

#[test]
fn the_kernel_goes_by_the_bitmap_that_was_added_here() {
    add_for_the_kernel(&SHAPES[..2]);
}

fn add_for_the_kernel(shapes: &[(&str, &str, u64)]) {
    let Some(mut md) = Md::boot("bitmaps that were added while served") else { return };
    for &(options, members, data) in shapes {
        let lab = Lab::new(&vec![8; members.split(' ').count()]);
        let (server, mut bytes) = serve(&lab, &format!("{options} -b none"), members);
        assert_eq!(lab.detail()["bitmap_place"], Value::Null);
        let grown = lab.run("grow data --bitmap internal --bitmap-chunk 64K --json").ok().json();
        assert_eq!(grown["bitmap_chunk_bytes"], CHUNK, "{grown}");
        server.stop();
        // It is mdadm's in every respect.
        let script = "
            for device in ${devices[@]}; do mdadm -X $device | grep -E 'State|Chunksize|dirty'; done
            quietly mdadm --assemble /dev/md0 ${devices[@]}
            grep bitmap: /proc/mdstat
            quietly mdadm --stop /dev/md0";
        let said = md.play(&lab, members, script);
        assert_eq!(said.matches("State : OK").count(), members.split(' ').count(), "{said}");
        assert!(said.contains(" 64KB chunk") && said.contains(" 0 dirty"), "{options}: {said}");
        // A write that is cut off is resynced by the kernel, and nothing else is.
        let server = lab.serve_data(&format!("--safe-mode-delay 0 {members}"));
        let news = pattern(62, CHUNK as usize);
        lab.fill(&server, &news);
        server.kill();
        bytes[..news.len()].copy_from_slice(&news);
        spoil(&lab, members.rsplit(' ').next().unwrap(), data);
        let script = "quietly mdadm --assemble /dev/md0 ${devices[@]}
            settle
            quietly mdadm --stop /dev/md0";
        md.play(&lab, members, script);
        let server = lab.serve_data(members);
        lab.run("check data").ok();
        let found = lab.run("wait data --json --timeout 60").json();
        let ranges = found["mismatches"].as_array().unwrap();
        let at = |range: &Value| range["offset_bytes"].as_u64().unwrap();
        assert!(!ranges.is_empty() && ranges.iter().all(|r| at(r) >= 20 * CHUNK), "{found:#}");
        assert!(lab.contents(&server)[..news.len()] == news, "{options}");
        server.stop();
    }
}

#[test]
fn bitmaps_that_the_kernel_added_resized_or_took_away_are_taken_as_they_are() {
    let Some(mut md) = Md::boot("bitmaps that the kernel changed") else { return };
    let (lab, members) = (Lab::new(&[8; 3]), "m0 m1 m2");
    let (server, bytes) = serve(&lab, "-l5 -c64 -b none", members);
    server.stop();
    for (changes, chunk) in [("-b internal --bitmap-chunk=64K", Some(CHUNK)), ("-b none", None)] {
        let script = format!(
            "quietly mdadm --assemble /dev/md0 ${{devices[@]}}
             quietly mdadm --grow /dev/md0 {changes}
             quietly mdadm --stop /dev/md0"
        );
        md.play(&lab, members, &script);
        let server = lab.serve_data(members);
        assert_eq!(lab.detail()["bitmap_chunk_bytes"].as_u64(), chunk);
        assert!(lab.contents(&server) == bytes, "{changes}");
        lab.fill(&server, &bytes);
        server.stop();
    }
    // What we take away the kernel does not miss.
    let script = "quietly mdadm --assemble /dev/md0 ${devices[@]}
        quietly mdadm --grow /dev/md0 -b internal
        quietly mdadm --stop /dev/md0";
    md.play(&lab, members, script);
    let server = lab.serve_data(members);
    lab.run("grow data -b none").ok();
    server.stop();
    let said = md.play(&lab, members, "mdadm -E ${devices[0]} | grep -c Bitmap || true");
    assert_eq!(said.trim(), "0");
    md.agrees(&lab, members, &bytes);
}

#[test]
fn a_bitmap_changes_under_load_and_nothing_is_lost() {
    let (lab, members) = (Lab::new(&[16; 4]), "m0 m1 m2 m3");
    if crate::support::md::can_copy("bitmaps that change under load") {
        let (server, bytes) = serve(&lab, "-l5 -c64 -b none", members);
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    lab.fill(&server, &bytes);
                }
            });
            let changes = ["internal --bitmap-chunk 4K", "internal", "none", "./bits", "none"];
            for change in changes.iter().chain(&changes[..4]) {
                let force = if *change == "./bits" { "--force" } else { "" };
                lab.run(&format!("grow data {force} --bitmap {change}")).ok();
            }
            ends.store(true, Ordering::Relaxed);
        });
        assert_eq!(lab.detail()["bitmap_place"], "external");
        server.stop();
        let server = lab.serve_data(&format!("{members} --bitmap bits"));
        assert!(lab.contents(&server) == bytes);
        assert_eq!(lab.detail()["bitmap_bits"][0], 0);
        lab.run("check data").ok();
        assert_eq!(lab.run("wait data --json --timeout 60").json()["mismatch_sectors"], 0);
        server.stop();
    }
}

#[test]
fn what_cannot_be_is_said_and_nothing_is_changed() {
    let lab = Lab::new(&[40; 4]);
    lab.run("create data -l1 --assume-clean -b none m0 m1").ok();
    let server = lab.serve_data("m0 m1");
    let again = lab.run("grow data -b none").ok();
    assert!(again.out.contains("already"), "{again:?}");
    lab.run("grow data -b internal").ok();
    assert!(lab.run("grow data -b internal").ok().out.contains("already"));
    // 39 MiB in bits of 512 bytes do not fit into 4 KiB.
    for (arguments, what) in [
        ("-b internal --bitmap-chunk 1K", "from 4096"),
        ("-b internal --bitmap-chunk 48K", "power of two"),
        ("-b ./m0", "exists already"),
        ("-b ./m2 --bitmap-chunk 3K", "power of two"),
    ] {
        let refused = lab.run(&format!("grow data {arguments}"));
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.err.contains(what), "{refused:?}");
    }
    let refused = lab.run("grow data --force -b ./m0");
    assert!(refused.code == 1 && refused.err.contains("m0: holds an md superblock"), "{refused:?}");
    lab.write_at("m2", 0, b"QFI\xfb");
    let refused = lab.run("grow data --force -b ./m2");
    assert!(refused.code == 1 && refused.err.contains("a disk image"), "{refused:?}");
    assert!(lab.read("m2").starts_with(b"QFI\xfb"));
    lab.write_at("m2", 0, &[0; 4]);
    let refused = lab.run("add data m1");
    assert!(
        refused.code == 1 && refused.err.contains("the member m1 of this array"),
        "{refused:?}"
    );
    lab.run("grow data -b ./bits").ok();
    assert!(lab.run("grow data -b ./bits").ok().out.contains("already"));
    let moved = lab.run("grow data -b ./other");
    assert!(moved.code == 1 && !exists(lab.path("other")), "{moved:?}");
    // The file is given back.
    lab.run("grow data -b none").ok();
    lab.run("grow data -b ./bits --force --bitmap-chunk 8K").ok();
    assert_eq!(lab.detail()["bitmap_chunk_bytes"], 8192);
    lab.run("fail data m1").ok();
    lab.run("remove data m1").ok();
    // It holds the old bitmap's count, and the new one was never on it.
    let added = lab.run("add data m1 --json").ok().json();
    assert_eq!(added["members"][0]["how"], "re-added", "{added}");
    lab.run("wait data --timeout 60").ok();
    server.stop();
    lab.run("create none -l0 m2 m3").ok();
    let server = lab.serve("--name none m2 m3");
    let refused = lab.run("grow none -b internal");
    assert!(refused.code == 1 && refused.err.contains("raid0"), "{refused:?}");
    server.stop();
    let server = lab.serve_data("--read-only m0 m1");
    let refused = lab.run("grow data -b internal");
    assert!(refused.code == 1 && refused.err.contains("read-only"), "{refused:?}");
    server.stop();
}

#[test]
#[ignore = "the rest of what is in cargo test; make soak plays it"]
fn the_kernel_goes_by_it_on_other_levels_and_versions_too() {
    if !crate::support::soaks("the kernel goes by it on other levels and versions too") {
        return;
    }
    add_for_the_kernel(&SHAPES[2..]);
}

/// A RAID1 whose second member may lag by four writes.
const LAGS: &str = "-l1 -b internal --bitmap-chunk 64K --write-behind=4 -W m1";
/// Its data, not its superblock and bitmap, takes long.
const SLOW: &str = "member=1,op=write,range=1M+15M,delay=900ms";

/// Seconds that each of so many writes of 4 KiB took, one after the other.
fn durations(lab: &Lab, server: &Server, writes: usize) -> Vec<f64> {
    let each = |i: usize| format!("-c 'write {}k 4k'", i * 64);
    let commands: Vec<String> = (0..writes).map(each).collect();
    let line = format!("qemu-io -t writeback -f raw {} '{}'", commands.join(" "), server.uri());
    let output = lab.command("sh").args(["-c", &line]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let took = |line: &str| line.split("ops; ").nth(1)?.split(' ').next()?.parse().ok();
    let took: Vec<f64> = said.lines().filter_map(took).collect();
    assert_eq!(took.len(), writes, "{said}{}", String::from_utf8_lossy(&output.stderr));
    took
}

#[test]
fn a_slow_write_mostly_member_slows_writes_down_from_the_limit_on_only() {
    if !crate::support::installed("qemu-io") {
        return crate::support::not_run("writes left behind", "qemu-io is not installed");
    }
    let lab = Lab::new(&[16; 2]);
    lab.run(&format!("create data --assume-clean {LAGS} m0 m1")).ok();
    let server = lab.serve_with_fault(SLOW, "--name data --shards 1 m0 m1");
    let took = durations(&lab, &server, 5);
    assert!(took[..4].iter().all(|&seconds| seconds < 0.8), "{took:?}");
    assert!(took[4] >= 0.8, "{took:?}");
    assert_eq!(lab.detail()["work"]["behind_writes"], 4);
    // The client flushed at its end: it is on both.
    assert_eq!(lab.read("m0")[MIB as usize..], lab.read("m1")[MIB as usize..]);
    assert!(lab.run("detail data").ok().out.contains(" Write Behind : 4 writes at most\n"));
    let grown = lab.run("grow data -b internal --write-behind=7").ok().out;
    assert!(grown.contains("64K to a bit, write-behind 7"), "{grown}");
    let grown = lab.run("grow data -b internal --write-behind=0 --json").ok().json();
    assert_eq!((&grown["write_behind"], &grown["bitmap_chunk_bytes"]), (&0.into(), &CHUNK.into()));
    let took = durations(&lab, &server, 1);
    assert!(took[0] >= 0.8, "{took:?}");
    server.stop();
}

#[test]
fn what_lags_behind_at_a_cut_is_resynced_by_the_kernel_too() {
    let Some(mut md) = Md::boot("writes left behind") else { return };
    let (lab, members) = (Lab::new(&[16; 2]), "m0 m1");
    lab.run(&format!("create data --assume-clean {LAGS} {members}")).ok();
    let words = "mdadm -E ${devices[1]} | grep Flags; mdadm -X ${devices[0]} | grep Mode";
    let said = md.play(&lab, members, words);
    assert!(said.contains("write-mostly") && said.contains("write behind, max 4"), "{said}");
    let server = lab.serve_with_fault(SLOW, &format!("--name data --shards 1 {members}"));
    let line = format!(
        "exec qemu-io -t writeback -f raw -c 'write -P 7 0 64k' -c 'sleep 100000' '{}'",
        server.uri()
    );
    let mut client = lab.command("sh").args(["-c", &line]).spawn().unwrap();
    lab.until("a write left behind", |detail| detail["work"]["requests"] == 1);
    server.kill();
    client.kill().unwrap();
    client.wait().unwrap();
    let at = MIB as usize..MIB as usize + 65536;
    assert!(lab.read("m0")[at.clone()].iter().all(|&byte| byte == 7));
    assert!(lab.read("m1")[at].iter().all(|&byte| byte == 0), "it lags");
    let server = lab.serve_data(&format!("--frozen {members}"));
    let bytes = lab.contents(&server);
    assert!(bytes[..65536].iter().all(|&byte| byte == 7), "read from who has it");
    server.kill();
    md.finishes(&lab, members, &bytes, "");
    // And what the kernel made so is so here.
    let script = "quietly mdadm --create /dev/md0 --run --assume-clean -l1 -n2 -b internal \\
            --write-behind=9 ${devices[0]} --write-mostly ${devices[1]}
        quietly mdadm --stop /dev/md0";
    md.play(&lab, members, script);
    let server = lab.serve_data(members);
    let detail = lab.detail();
    assert_eq!(detail["write_behind"], 9);
    assert_eq!(detail["members"][1]["write_mostly"], true);
    server.stop();
}

#[test]
fn what_one_bitmap_of_several_may_have_told_is_resynced_when_it_cannot_be_read() {
    if !crate::support::md::can_copy("a bitmap of several that cannot be read") {
        return;
    }
    let (lab, members) = (Lab::new(&[8; 2]), "m0 m1");
    lab.run(&format!("create data -l1 --assume-clean -b internal --bitmap-chunk 64K {members}"))
        .ok();
    // A new bitmap has all bits set.
    lab.serve_data(members).stop();
    let server = lab.serve_data(&format!("--safe-mode-delay 0 {members}"));
    lab.fill(&server, &pattern(63, CHUNK as usize));
    server.kill();
    let mut server = lab.serve_data(&format!("--frozen {members}"));
    let bits = lab.detail()["bitmap_bits"].clone();
    assert!(bits[0].as_u64() < bits[1].as_u64(), "{bits}");
    server.signal("-KILL");
    server.end();
    // Behind the superblock of 4 KiB; it is its magic.
    lab.write_at("m1", 8192, &[0; 4]);
    let mut server = lab.serve_data(&format!("--frozen {members}"));
    let bits = lab.detail()["bitmap_bits"].clone();
    assert_eq!(bits[0], bits[1], "all may be dirty");
    lab.run("resume data").ok();
    lab.run("wait data --timeout 60").ok();
    lab.run("stop data").ok();
    let said = server.end().1;
    assert!(said.contains("m1") && said.contains("counts as dirty"), "{said}");
    lab.serve_data(members).stop();
}

/// What would be lost: the end of a newcomer's data, if the new bitmap lies where nobody has looked for room.
#[test]
fn nobody_joins_while_the_bitmap_changes() {
    let lab = Lab::new(&[8; 3]);
    lab.run("create data -l1 --assume-clean -b none m0 m1").ok();
    let fault = "member=0,op=write,range=8K+4K,count=1,delay=6s";
    let server = lab.serve_with_fault(fault, "--name data m0 m1");
    std::thread::scope(|scope| {
        let grown = scope.spawn(|| lab.run("grow data -b internal"));
        lab.until("the change", |detail| detail["bitmap_place"] == "internal");
        let refused = lab.run("add data m2");
        assert!(refused.code == 1 && refused.err.contains("is being changed"), "{refused:?}");
        grown.join().unwrap().ok();
    });
    lab.run("add data m2").ok();
    server.stop();
}

#[test]
fn a_bitmap_file_is_locked_before_it_is_lengthened_and_stays_if_it_may_be_the_one() {
    let lab = Lab::new(&[40; 4]);
    lab.run("create other -l1 --assume-clean -b ./bits m2 m3").ok();
    lab.run("create data -l1 --assume-clean -b none m0 m1").ok();
    let other = lab.serve("--name other m2 m3 --bitmap bits");
    let server = lab.serve_data("m0 m1");
    let len = lab.read("bits").len();
    let refused = lab.run("grow data --force -b ./bits --bitmap-chunk 512");
    assert!(refused.code == 1 && lab.read("bits").len() == len, "{refused:?}");
    other.stop();
    server.stop();
    // No superblock can be written.
    let fault = "op=write,range=4K+4K,errno=EIO";
    let _server = lab.serve_with_fault(fault, "--name data m0 m1");
    let refused = lab.run("grow data -b ./new");
    assert!(refused.code == 1 && refused.err.contains("the new one at the next"), "{refused:?}");
    assert!(exists(lab.path("new")));
}

#[test]
fn a_bitmap_file_that_cannot_be_used_is_told_with_the_way_on() {
    let lab = Lab::new(&[8; 2]);
    lab.run("create data -l1 --assume-clean -b ./bits m0 m1").ok();
    std::fs::copy(lab.path("bits"), lab.path("old")).unwrap();
    lab.file("cut", 4096);
    // It says that it has a bit for each 512 bytes of 8 TiB, and is long enough.
    let mut huge = lab.read("bits");
    huge[40..48].copy_from_slice(&(1u64 << 34).to_le_bytes());
    huge[52..56].copy_from_slice(&512u32.to_le_bytes());
    std::fs::write(lab.path("huge"), huge).unwrap();
    std::fs::File::options().write(true).open(lab.path("huge")).unwrap().set_len(3 << 30).unwrap();
    for file in ["missing", "cut", "huge"] {
        let refused = lab.run(&format!("serve --name data m0 m1 --bitmap {file}"));
        assert!(refused.code == 1 && refused.err.contains("without --bitmap"), "{refused:?}");
    }
    std::fs::write(lab.path("short"), &lab.read("bits")[..256]).unwrap();
    let short = lab.run("serve --name data m0 m1 --bitmap short").err;
    assert!(short.contains("short cannot be used: too short: it has 256 bytes, and "), "{short}");
    assert!(short.contains("without --bitmap") && !short.contains("--read-only"), "{short}");
    // What is no bitmap is somebody's file.
    std::fs::write(lab.path("letter"), "precious\n").unwrap();
    let refused = lab.run("serve --name data m0 m1 --bitmap letter");
    assert!(refused.code == 1 && refused.err.contains("it has 9 bytes, and 256"), "{refused:?}");
    assert!(
        refused.err.contains("nothing was written") && !refused.err.contains("leave it out"),
        "{refused:?}"
    );
    assert_eq!(lab.read("letter"), b"precious\n");
    // mdadm's may end within a page.
    let bits = std::fs::File::options().write(true).open(lab.path("bits")).unwrap();
    bits.set_len(1000).unwrap();
    lab.serve_data("m0 m1 --bitmap bits").stop();
    assert_eq!(bits.metadata().unwrap().len(), 4096);
    let events = |lab: &Lab| lab.detail()["events"].as_u64().unwrap();
    let server = lab.serve_data("m0 m1 --bitmap bits");
    let before = events(&lab);
    // Counted on all members, and in the bitmap that is in use.
    lab.run("fail data m1").ok();
    lab.run("remove data m1").ok();
    lab.run("add data m1").ok();
    lab.run("wait data --timeout 60").ok();
    assert!(events(&lab) > before);
    server.stop();
    let mut server = lab.serve_data("m0 m1 --bitmap old");
    let bits = &lab.detail()["bitmap_bits"];
    lab.run("stop data").ok();
    let (_, said) = server.end();
    assert!(said.contains("bitmap of old is out of date"), "{bits}: {said}");
    lab.serve_data("m0 m1").stop();
}

/// What would be lost: what the bitmap knows of the member that is missing.
#[test]
fn an_array_that_is_forced_keeps_its_bits() {
    let lab = Lab::new(&[24; 4]);
    lab.run("create data -l5 -c64 --assume-clean -b internal --bitmap-chunk 64K m0 m1 m2 m3").ok();
    let server = lab.serve_data("m0 m1 m2 m3");
    lab.until("the bits of its beginning to go", |detail| detail["bitmap_bits"][0] == 0);
    lab.fill(&server, &pattern(3, 4096));
    server.kill();
    let mut server = lab.serve_data("m0 m1 m3 --degraded --force");
    let bits = lab.detail()["bitmap_bits"].clone();
    assert_eq!(bits[0], 1, "{bits}");
    lab.run("re-add data m2").ok();
    lab.run("wait data --timeout 60").ok();
    lab.run("check data").ok();
    assert_eq!(lab.run("wait data --json --timeout 60").json()["mismatch_sectors"], 0);
    lab.run("stop data").ok();
    let (_, said) = server.end();
    assert!(!said.contains("out of date"), "{said}");
}

#[test]
fn a_bitmap_file_without_room_leaves_nothing_behind() {
    let (lab, what) = (Lab::new(&[8; 2]), "a bitmap's file on a full file system");
    lab.run("create data -l1 --assume-clean -b none m0 m1").ok();
    std::fs::create_dir(lab.path("small")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=8k none small && head -c 8192 /dev/zero >small/full &&
         exec {} serve --json --name data m0 m1",
        env!("CARGO_BIN_EXE_lapstrake")
    );
    let Some(mut command) = lab.with_own_mounts(&script, what) else { return };
    let server = Server::start(&mut command);
    for _ in 0..2 {
        let refused = lab.run("grow data -b ./small/bits");
        assert!(refused.code == 1 && refused.err.contains("No space left"), "{refused:?}");
    }
    server.stop();
}

#[test]
fn a_damaged_bitmap_keeps_nobody_from_reading() {
    let lab = Lab::new(&[24; 3]);
    lab.run("create data -l5 --bitmap internal --assume-clean m0 m1 m2").ok();
    let mut of_another = lab.read("m0")[16 * 512..][..4096].to_vec();
    of_another[8..24].fill(0xa7);
    lab.write_at("m0", 16 * 512, &[0xa7; 4096]);
    lab.run("cat m0 m1 m2 -o one").ok();
    let server = lab.serve_data("m0 m1 m2");
    lab.run("wait data --timeout 60").ok();
    server.stop();
    for bitmap in [&[0xa7; 4096], &of_another[..]] {
        ["m0", "m1", "m2"].into_iter().for_each(|member| lab.write_at(member, 16 * 512, bitmap));
        lab.run("cat m0 m1 m2 -o all").ok();
        assert!(lab.read("one") == lab.read("all"));
        let refused = lab.run("serve m0 m1 m2");
        assert!(refused.code == 1 && refused.err.contains("--read-only"), "{refused:?}");
        lab.serve_data("m0 m1 m2 --read-only").stop();
    }
}

/// As the kernel does, whatever the bitmap says that it covers.
#[test]
fn a_bitmap_has_a_bit_for_all_of_the_array() {
    if !crate::support::md::can_copy("a bitmap that says that it is short") {
        return;
    }
    let (lab, members) = (Lab::new(&[8; 2]), "m0 m1");
    lab.run(&format!("create data -l1 --assume-clean -b internal --bitmap-chunk 64K {members}"))
        .ok();
    lab.serve_data(members).stop();
    let bits = |lab: &Lab| lab.detail()["bitmap_bits"].clone();
    let server = lab.serve_data(&format!("--frozen {members}"));
    let (before, bytes) = (bits(&lab), lab.contents(&server));
    server.stop();
    // In the bitmap's superblock, 8 sectors behind the array's: what it covers, sectors.
    for member in ["m0", "m1"] {
        lab.write_at(member, 16 * 512 + 40, &256u64.to_le_bytes());
    }
    let server = lab.serve_data(&format!("--safe-mode-delay 0 {members}"));
    assert_eq!(bits(&lab)[1], before[1]);
    lab.fill(&server, &pattern(64, bytes.len()));
    server.kill();
    lab.write_at("m1", MIB + bytes.len() as u64 - 4096, &[7; 4096]);
    let server = lab.serve_data(members);
    lab.run("wait data --timeout 60").ok();
    lab.run("check data").ok();
    let found = lab.run("wait data --json --timeout 60").json();
    assert_eq!(found["mismatches"], serde_json::json!([]), "{found:#}");
    server.stop();
}

#[test]
fn a_fifo_is_no_place_for_a_bitmap_and_nobody_waits_for_its_reader() {
    let lab = Lab::new(&[16; 2]);
    if lab.other("mkfifo fifo").is_none() {
        return;
    }
    let refused = lab.run("create data -l1 --assume-clean --force --bitmap ./fifo m0 m1");
    assert!(refused.code == 1 && refused.err.contains("fifo"), "{refused:?}");
    lab.run("create data -l1 --assume-clean --force --bitmap none m0 m1").ok();
    let server = lab.serve_data("m0 m1");
    let refused = lab.run("grow data --bitmap ./fifo --force");
    assert!(refused.code == 1 && refused.err.contains("fifo"), "{refused:?}");
    server.stop();
}

#[test]
fn a_new_bitmap_is_not_called_out_of_date() {
    for version in ["0.90", "1.2"] {
        let lab = Lab::new(&[16, 16]);
        lab.run(&format!("create data -e {version} -l1 -b internal --assume-clean m0 m1")).ok();
        for turn in 0..2 {
            let mut server = lab.serve_data("m0 m1");
            lab.fill(&server, &pattern(turn, 8192));
            server.signal("-TERM");
            let (code, said) = server.end();
            assert!(code == 0 && !said.contains("out of date"), "{version}, {turn}: {said}");
        }
    }
}

/// What would be lost: the bits, which nobody finds there, and with them the writes since.
#[test]
fn a_bitmap_that_lies_before_the_member_is_refused() {
    let lab = Lab::new(&[16, 16]);
    lab.run("create data -e 1.2 -l1 -b internal --assume-clean m0 m1").ok();
    for member in ["m0", "m1"] {
        let mut sb = lab.read(member)[4096..8192].to_vec();
        sb[96..100].copy_from_slice(&i32::MIN.to_le_bytes());
        sb[216..220].fill(0);
        let max_dev = u32::from_le_bytes(sb[220..224].try_into().unwrap());
        let words = sb[..256 + 2 * max_dev as usize].chunks(4);
        let word = |w: &[u8]| u64::from(u32::from_le_bytes(w.try_into().unwrap()));
        let sum: u64 = words.map(word).sum();
        let folded = (sum & 0xffff_ffff) as u32;
        sb[216..220].copy_from_slice(&folded.wrapping_add((sum >> 32) as u32).to_le_bytes());
        lab.write_at(member, 4096, &sb);
    }
    let refused = lab.run("serve m0 m1");
    let what = "places it -2147483648 sectors from itself, outside of the member";
    assert!(refused.code == 1 && refused.err.contains(what), "{refused:?}");
    assert!(lab.run("examine m0").ok().out.contains(what));
    let shown = lab.run("examine --bitmap m0");
    assert!(shown.code == 1 && shown.err.contains(what), "{shown:?}");
    let read = lab.run("serve --read-only m0 m1 --run true");
    assert!(read.code == 0 && read.err.contains(what), "{read:?}");
}

/// What would be lost: a member, another array's bitmap while it is in use, and all that an overlay holds.
#[test]
fn a_new_bitmap_is_written_over_nothing_that_is_in_use() {
    let lab = Lab::new(&[16; 6]);
    let before = lab.read("m0");
    std::os::unix::fs::symlink("m0", lab.path("link")).unwrap();
    for (members, bitmap) in [("m0 m1", "m0"), ("m0@1M+8M m1", "m0"), ("m0 m1", "link")] {
        let refused = lab
            .run(&format!("create data -l1 --assume-clean --force --bitmap ./{bitmap} {members}"));
        assert!(refused.code != 0 && refused.err.contains("m0"), "{refused:?}");
        assert!(refused.err.contains("the same"), "{refused:?}");
        assert!(lab.read("m0") == before, "{members}");
    }
    lab.run("create data -l1 --assume-clean --bitmap ./bits m0 m1").ok();
    let server = lab.serve_data("m0 m1 --bitmap ./bits --overlay over");
    for used in ["bits", "over"] {
        let bytes = lab.read(used);
        let refused = lab.run(&format!("create new -l1 --force --bitmap ./{used} m2 m3"));
        assert!(refused.code != 0 && refused.err.contains("in use by lapstrake"), "{refused:?}");
        assert!(lab.read(used) == bytes, "{used}");
    }
    server.stop();
    lab.run("create new -l1 --assume-clean --force --bitmap ./bits m2 m3").ok();
    assert!(lab.run("examine -X bits").ok().out.contains("State : OK"));
}

/// What would be lost: all writes. A bitmap file that `create` made, or mdadm, ends within a page.
#[test]
fn an_overlay_takes_the_writes_of_a_new_bitmap_file() {
    if !installed("nbdcopy") {
        return not_run("writing beneath an overlay", "nbdcopy is not installed");
    }
    let lab = Lab::new(&[16; 2]);
    lab.run("create data -l1 --assume-clean --bitmap ./bits m0 m1").ok();
    let bits = lab.read("bits");
    assert!(!bits.len().is_multiple_of(512), "{}", bits.len());
    for round in 0..2 {
        let server = lab.serve_data("m0 m1 --bitmap ./bits --overlay over");
        let bytes = pattern(round, 4 << 20);
        lab.fill(&server, &bytes);
        assert!(lab.contents(&server)[..bytes.len()] == bytes);
        server.stop();
    }
    assert!(lab.read("bits") == bits);
    let refused = lab.run("serve --name data m0 m1 --overlay over");
    assert!(refused.code == 1 && refused.err.contains("and the bitmap's"), "{refused:?}");
}
