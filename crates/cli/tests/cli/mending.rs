//! Promise: a recovery or resync that one of the kernel's md and Lapstrake left half done, stopped or cut off,
//! the other takes up where it was on record, and brings to its end.

use crate::support::md::{
    Left::{self, CutOff, Stopped},
    Md, bytes_in, state,
};
use crate::support::{Lab, pattern};
use serde_json::Value;
use std::ops::Range;

const MIB: u64 = 1 << 20;
const MEMBER_MIB: u64 = 16;
/// KiB/s of a sync action of ours that is to be caught half done.
const SLOW: &str = "--sync-speed-max 12000";

/// An array that loses members.
#[derive(Clone, Copy)]
struct Shape {
    /// Options that mdadm and `lapstrake create` have alike.
    options: &'static str,
    members: &'static str,
    lost: &'static str,
    replacements: &'static str,
}

const fn shape(
    options: &'static str,
    members: &'static str,
    lost: &'static str,
    replacements: &'static str,
) -> Shape {
    Shape { options, members, lost, replacements }
}

const SHAPES: [Shape; 9] = [
    shape("-l6 -n5 -c64", "m0 m1 m2 m3 m4", "m1 m3", "r0 r1"),
    shape("-l10 -n4 -c64 -p f2", "m0 m1 m2 m3", "m2", "r0"),
    shape("-l1 -n2", "m0 m1", "m0", "r0"),
    shape("-l5 -n4 -c64 -b internal", "m0 m1 m2 m3", "m1", "r0"),
    shape("-l10 -n4 -c64 -p n2", "m0 m1 m2 m3", "m1 m2", "r0 r1"),
    shape("-l10 -n4 -c64 -p o2", "m0 m1 m2 m3", "m3", "r0"),
    shape("-l5 -n3 -c64 -e 1.0", "m0 m1 m2", "m2", "r0"),
    shape("-l1 -n2 -e 0.90", "m0 m1", "m1", "r0"),
    shape("-l6 -n4 -c64", "m0 m1 m2 m3", "m3", "r0"),
];
/// What `cargo test` plays of them: one in either direction, and other ones that are cut off.
const THEIRS: Range<usize> = 0..1;
const OURS: Range<usize> = 1..2;
const THEIRS_CUT: Range<usize> = 3..4;
const OURS_CUT: Range<usize> = 6..7;

impl Shape {
    fn lab(self) -> Lab {
        let lab = Lab::new(&[]);
        self.members.split(' ').for_each(|name| lab.file(name, MEMBER_MIB * MIB));
        for (seed, name) in self.replacements.split(' ').enumerate() {
            std::fs::write(lab.path(name), pattern(seed as u64 + 1, (MEMBER_MIB * MIB) as usize))
                .unwrap();
        }
        lab
    }

    /// The members that are left, and those that come.
    fn whole(self) -> String {
        let lost: Vec<&str> = self.lost.split(' ').collect();
        let left = self.members.split(' ').filter(|name| !lost.contains(name));
        left.chain(self.replacements.split(' ')).collect::<Vec<_>>().join(" ")
    }

    /// Whether a superblock has a place for how far a recovery has come.
    fn keeps_count(self) -> bool {
        !self.options.contains("0.90")
    }
}

/// Bytes for an array that is served.
fn bytes_of(detail: &Value, seed: u64) -> Vec<u8> {
    pattern(seed, detail["array_bytes"].as_u64().unwrap() as usize)
}

fn each(what: &str, shapes: &[Shape], mut play: impl FnMut(&mut Md, Shape)) {
    let Some(mut md) = Md::boot(what) else { return };
    for shape in shapes {
        let began = std::time::Instant::now();
        play(&mut md, *shape);
        println!("{}: {} ms", shape.options, began.elapsed().as_millis());
    }
}

#[test]
fn we_finish_a_recovery_of_the_kernel() {
    each("recoveries of the kernel that we finish", &SHAPES[THEIRS], |md, shape| {
        finish_their_recovery(md, shape, Stopped);
    });
}

fn finish_their_recovery(md: &mut Md, shape: Shape, left: Left) {
    let lab = shape.lab();
    std::fs::write(lab.path("image"), pattern(7, 80 << 20)).unwrap();
    let all = format!("{} {}", shape.members, shape.replacements);
    let place = |name: &str| all.split(' ').position(|other| other == name).unwrap();
    let numbers = |names: &str| names.split(' ').map(place).collect::<Vec<_>>();
    let lose = numbers(shape.lost).into_iter().map(|n| {
        format!("quietly mdadm /dev/md0 --fail ${{devices[{n}]}} --remove ${{devices[{n}]}}\n")
    });
    let count = shape.members.split(' ').count();
    let recover = numbers(shape.replacements).iter().map(usize::to_string).collect::<Vec<_>>();
    let script = format!(
        "quietly mdadm --create /dev/md0 --run --assume-clean {} ${{devices[@]:0:{count}}}
         fill $dir/image
         {}
         rests
         recover_part {}",
        shape.options,
        lose.collect::<String>(),
        recover.join(" ")
    );
    let bytes = left.by_kernel(md, &lab, &all, &script).trim().parse().unwrap();
    let whole = shape.whole();
    let server = lab.serve_data(&format!("--frozen {whole}"));
    let detail = lab.detail();
    let total = detail["component_bytes"].as_u64().unwrap();
    // Without a place for it, it is a spare that gets its slot when nothing is frozen any more.
    let done = if shape.keeps_count() { progress(&detail).0 } else { 0 };
    assert!(is_a_part(done, total) == shape.keeps_count(), "{}: {detail:#}", shape.options);
    assert!(lab.contents(&server) == pattern(7, bytes), "{}: half done", shape.options);
    // Written on either side of where it stopped.
    let news = bytes_of(&detail, 8);
    lab.fill(&server, &news);
    let before = lab.detail()["work"]["member_write_bytes"].as_u64().unwrap();
    lab.run("idle data").ok();
    lab.run("wait data --timeout 60").ok();
    let detail = lab.detail();
    let written = detail["work"]["member_write_bytes"].as_u64().unwrap() - before;
    let targets = shape.replacements.split(' ').count() as u64;
    assert!(written <= targets * (total - done + MIB), "{}: {written}", shape.options);
    assert!(lab.contents(&server) == news, "{}: done", shape.options);
    lab.run("stop data").ok();
    md.agrees(&lab, &whole, &news);
}

/// Where the kernel stops here.
fn is_a_part(done: u64, total: u64) -> bool {
    (total * 3 / 10 - MIB..=total * 3 / 10).contains(&done)
}

/// Of what runs or is frozen: what is done, and all of it, in bytes.
fn progress(detail: &Value) -> (u64, u64) {
    let of = |key: &str| detail["sync"][key].as_u64().unwrap_or_else(|| panic!("{detail:#}"));
    (of("done_bytes"), of("total_bytes"))
}

#[test]
fn the_kernel_finishes_a_recovery_of_ours() {
    each("recoveries of ours that the kernel finishes", &SHAPES[OURS], |md, shape| {
        leave_our_recovery(md, shape, Stopped);
    });
}

/// Waits until so much of what is slowed down is done.
fn until_a_part(lab: &Lab) -> Value {
    lab.until("three tenths of it", |detail| {
        let (done, total) = progress(detail);
        done >= total * 3 / 10
    })
}

fn leave_our_recovery(md: &mut Md, shape: Shape, left: Left) {
    let lab = shape.lab();
    lab.run(&format!("create data --assume-clean {} {}", shape.options, shape.members)).ok();
    let server = lab.serve_data(&format!("{SLOW} {}", shape.members));
    let bytes = bytes_of(&lab.detail(), 9);
    lab.fill(&server, &bytes);
    lab.run(&format!("fail data {}", shape.lost)).ok();
    lab.run("remove data failed").ok();
    lab.run("freeze data").ok();
    lab.run(&format!("add data {}", shape.replacements)).ok();
    lab.until("clean members", |detail| detail["state"][0] == "clean");
    lab.run("idle data").ok();
    let detail = until_a_part(&lab);
    assert!(shape.replacements.split(' ').all(|name| state(&detail, name) == "recovering"));
    let (done, total) = progress(&detail);
    left.by_us(server);
    assert!(done < total * 2 / 3, "{}: too quick to be caught", shape.options);
    // Before it is written to, the kernel begins nothing, and tells where it would.
    let targets = shape.replacements.split(' ').count();
    let written = format!("carried 6 ${{devices[@]: -{targets}}}");
    let starts = format!(
        "waiting quietly mdadm --assemble /dev/md0 ${{devices[@]}}
         for one in ${{devices[@]: -{targets}}}; do
             cat $md/dev-${{one##*/}}/recovery_start
         done
         {written}
         dump $dir/half"
    );
    let whole = shape.whole();
    let starts = bytes_in(&md.play(&lab, &whole, &starts));
    assert!(lab.read("half") == bytes, "{}: half done", shape.options);
    let after = bytes_in(&md.finishes(&lab, &whole, &bytes, &written));
    for (target, after) in after.into_iter().enumerate() {
        let (start, before) = (starts[target], starts[targets + target]);
        let recorded = done.saturating_sub(left.lag(total))..total;
        assert!(!shape.keeps_count() || recorded.contains(&start), "{recorded:?}: {starts:?}");
        let most = if shape.keeps_count() { total - start + MIB } else { total + MIB };
        assert!(after - before <= most, "{}: {before} to {after}", shape.options);
    }
}

/// Level, and members that are not in sync at first.
const UNSYNCED: [(&str, &str); 6] = [
    ("-l1 -n3", "m0 m1 m2"),
    ("-l6 -n4 -c64", "m0 m1 m2 m3"),
    ("-l10 -n4 -c64 -p f2", "m0 m1 m2 m3"),
    ("-l10 -n3 -c64 -p n2", "m0 m1 m2"),
    ("-l10 -n4 -c64 -p o2 -e 1.0", "m0 m1 m2 m3"),
    ("-l6 -n4 -c64 -e 0.90", "m0 m1 m2 m3"),
];

fn junk(members: &str) -> Lab {
    let lab = Lab::new(&[]);
    for (seed, name) in members.split(' ').enumerate() {
        let junk = pattern(seed as u64 + 20, (MEMBER_MIB * MIB) as usize);
        std::fs::write(lab.path(name), junk).unwrap();
    }
    lab
}

/// What a resync reads of so much: every member, or every copy.
fn read_by_resync((options, members): (&str, &str), bytes: u64) -> u64 {
    let count = if options.contains("-l10") { 2 } else { members.split(' ').count() as u64 };
    count * (bytes + MIB)
}

#[test]
fn we_finish_a_resync_of_the_kernel() {
    let Some(mut md) = Md::boot("resyncs of the kernel that we finish") else { return };
    UNSYNCED[THEIRS].iter().for_each(|shape| finish_their_resync(&mut md, *shape, Stopped));
}

fn finish_their_resync(md: &mut Md, shape: (&str, &str), left: Left) {
    let (options, members) = shape;
    let lab = junk(members);
    left.by_kernel(md, &lab, members, &format!("resync_part {options}"));
    let server = lab.serve_data(&format!("--frozen {members}"));
    let detail = lab.detail();
    let (done, total) = progress(&detail);
    assert_eq!(detail["resync_from_bytes"], done, "{options}");
    assert!(is_a_part(done, total), "{options}: {detail:#}");
    // What is not in sync is read from where the resync copies it from.
    let bytes = lab.contents(&server);
    let before = lab.detail()["work"]["member_read_bytes"].as_u64().unwrap();
    lab.run("idle data").ok();
    lab.run("wait data --timeout 60").ok();
    let read = lab.detail()["work"]["member_read_bytes"].as_u64().unwrap() - before;
    assert!(read <= read_by_resync(shape, total - done), "{options}: {read}, {done} of {total}");
    assert!(lab.contents(&server) == bytes, "{options}");
    lab.run("stop data").ok();
    md.agrees(&lab, members, &bytes);
}

#[test]
fn the_kernel_finishes_a_resync_of_ours() {
    let Some(mut md) = Md::boot("resyncs of ours that the kernel finishes") else { return };
    UNSYNCED[OURS].iter().for_each(|shape| leave_our_resync(&mut md, *shape, Stopped));
}

fn leave_our_resync(md: &mut Md, shape: (&str, &str), left: Left) {
    let (options, members) = shape;
    let lab = junk(members);
    lab.run(&format!("create data {options} {members}")).ok();
    let server = lab.serve_data(&format!("{SLOW} {members}"));
    let bytes = lab.contents(&server);
    let (done, total) = progress(&until_a_part(&lab));
    left.by_us(server);
    assert!(done < total * 2 / 3, "{options}: too quick to be caught");
    let begins = "waiting quietly mdadm --assemble /dev/md0 ${devices[@]}
        cat $md/resync_start
        carried 2 ${devices[@]}";
    let began = bytes_in(&md.play(&lab, members, begins));
    let (start, before) = (began[0], began[1..].iter().sum::<u64>());
    assert!((done.saturating_sub(left.lag(total))..total).contains(&start), "{options}: {start}");
    let after = md.finishes(&lab, members, &bytes, "carried 2 ${devices[@]}");
    let read = bytes_in(&after).iter().sum::<u64>() - before;
    assert!(read <= read_by_resync(shape, total - start), "{options}: {read}, {start} of {total}");
}

#[test]
fn we_go_on_where_the_kernel_was_cut_off() {
    let Some(mut md) = Md::boot("what a power cut of the kernel's left half done") else { return };
    SHAPES[THEIRS_CUT].iter().for_each(|shape| finish_their_recovery(&mut md, *shape, CutOff));
    UNSYNCED[OURS].iter().for_each(|shape| finish_their_resync(&mut md, *shape, CutOff));
}

#[test]
fn the_kernel_goes_on_where_we_were_killed() {
    let Some(mut md) = Md::boot("what a kill of ours left half done") else { return };
    SHAPES[OURS_CUT].iter().for_each(|shape| leave_our_recovery(&mut md, *shape, CutOff));
    UNSYNCED[THEIRS].iter().for_each(|shape| leave_our_resync(&mut md, *shape, CutOff));
}

/// Arrays of which every bit is set, and whose last member, which holds redundancy there, is wrong in what is resynced
/// first and in what is resynced last.
const ALL_DIRTY: [(&str, &str); 2] = [("-l1 -n2", "m0 m1"), ("-l6 -n4 -c64", "m0 m1 m2 m3")];
const BITMAP: &str = "-b internal --bitmap-chunk 64K";

#[test]
fn a_resync_by_bitmap_that_one_leaves_half_done_the_other_finishes() {
    let Some(mut md) = Md::boot("resyncs by bitmap that are left half done") else { return };
    finish_their_bits(&mut md, ALL_DIRTY[0]);
    leave_our_bits(&mut md, ALL_DIRTY[1]);
}

/// Such an array, cut off, and what it holds.
fn all_dirty((options, members): (&str, &str)) -> (Lab, Vec<u8>) {
    let lab = Lab::new(&vec![MEMBER_MIB; members.split(' ').count()]);
    lab.run(&format!("create data --assume-clean {options} {BITMAP} {members}")).ok();
    let server = lab.serve_data(&format!("--safe-mode-delay 0 {members}"));
    let bytes = bytes_of(&lab.detail(), 10);
    lab.fill(&server, &bytes);
    server.kill();
    for offset in [64 << 10, (MEMBER_MIB - 2) * MIB] {
        lab.write_at(members.rsplit(' ').next().unwrap(), MIB + offset, &pattern(11, 9000));
    }
    (lab, bytes)
}

fn finish_their_bits(md: &mut Md, shape: (&str, &str)) {
    let (lab, bytes) = all_dirty(shape);
    let (options, members) = shape;
    let script = "waiting quietly mdadm --assemble /dev/md0 ${devices[@]}
        reach $(part $(span)) quietly mdadm --readwrite /dev/md0";
    md.play(&lab, members, script);
    let server = lab.serve_data(&format!("--frozen {members}"));
    let detail = lab.detail();
    let (dirty, bits) = (&detail["bitmap_bits"][0], &detail["bitmap_bits"][1]);
    let (dirty, bits) = (dirty.as_u64().unwrap(), bits.as_u64().unwrap());
    assert!((bits * 6 / 10..bits * 8 / 10).contains(&dirty), "{options}: {dirty} of {bits}");
    let before = detail["work"]["member_read_bytes"].as_u64().unwrap();
    lab.run("idle data").ok();
    lab.run("wait data --timeout 60").ok();
    let read = lab.detail()["work"]["member_read_bytes"].as_u64().unwrap() - before;
    assert!(read <= read_by_resync(shape, dirty * (64 << 10)), "{options}: {read} for {dirty}");
    assert!(lab.contents(&server) == bytes, "{options}");
    server.stop();
    md.agrees(&lab, members, &bytes);
}

fn leave_our_bits(md: &mut Md, shape: (&str, &str)) {
    let (lab, bytes) = all_dirty(shape);
    let (options, members) = shape;
    let server = lab.serve_data(&format!("{SLOW} {members}"));
    until_a_part(&lab);
    server.stop();
    let begins = "waiting quietly mdadm --assemble /dev/md0 ${devices[@]}
        mdadm -X ${devices[0]} | sed -n 's/.*Bitmap : \\([0-9]*\\) bits.*, \\([0-9]*\\) dirty.*/\\1\\n\\2/p'
        carried 2 ${devices[@]}";
    let said = md.play(&lab, members, begins);
    let said: Vec<u64> = said.lines().map(|line| line.parse().unwrap()).collect();
    let (bits, dirty, before) = (said[0], said[1], said[2..].iter().sum::<u64>() * 512);
    assert!((bits / 3..bits * 8 / 10).contains(&dirty), "{options}: {dirty} of {bits}");
    let after = md.finishes(&lab, members, &bytes, "carried 2 ${devices[@]}");
    let read = bytes_in(&after).iter().sum::<u64>() - before;
    assert!(read <= read_by_resync(shape, dirty * (64 << 10)), "{options}: {read} for {dirty}");
}

#[test]
#[ignore = "takes minutes; make soak plays it"]
fn whatever_one_leaves_half_done_the_other_finishes() {
    if !crate::support::soaks("whatever one leaves half done the other finishes") {
        return;
    }
    let Some(mut md) = Md::boot("half done resyncs of all kinds") else { return };
    for left in [Stopped, CutOff] {
        each("half done recoveries of all kinds", &SHAPES, |md, shape| {
            finish_their_recovery(md, shape, left);
            leave_our_recovery(md, shape, left);
        });
        for shape in &UNSYNCED {
            finish_their_resync(&mut md, *shape, left);
            leave_our_resync(&mut md, *shape, left);
        }
    }
    for shape in ALL_DIRTY {
        finish_their_bits(&mut md, shape);
        leave_our_bits(&mut md, shape);
    }
}
