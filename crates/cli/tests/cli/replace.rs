//! Promise: a member is replaced while it serves, in our hands, in the kernel's md's, or begun by one and
//! finished by the other; it is given up only when its replacement has all that it held.

use crate::support::md::{
    Left::{self, CutOff, Stopped},
    Md, bytes_in, state,
};
use crate::support::{Lab, pattern};
use serde_json::Value;

/// Slow enough to be caught half done.
const SLOW: &str = "--sync-speed-min 2000 --sync-speed-max 8000";
const MIB: u64 = 1 << 20;

/// Options, members, and the one of them that goes.
type Shape = (&'static str, &'static str, &'static str);

const SHAPES: [Shape; 4] = [
    ("-l5 -c64", "m0 m1 m2", "m1"),
    ("-l1", "m0 m1", "m0"),
    ("-l10 -c64 -p f2", "m0 m1 m2 m3", "m3"),
    ("-l6 -c64 -e 1.0", "m0 m1 m2 m3", "m2"),
];
const SPARE: &str = "m4";

fn lab() -> Lab {
    Lab::new(&[24; 5])
}

fn without(members: &str, gone: &str) -> String {
    let left = members.split(' ').filter(|name| *name != gone);
    left.chain([SPARE]).collect::<Vec<_>>().join(" ")
}

/// How far the replacement has come, and how far it has to.
fn progress(detail: &Value) -> (u64, u64) {
    let members = detail["members"].as_array().unwrap();
    let replacement = members.iter().find(|m| m["state"] == "replacement");
    let done = replacement.unwrap_or_else(|| panic!("{detail:#}"))["recovered_bytes"].as_u64();
    (done.unwrap_or(u64::MAX), detail["component_bytes"].as_u64().unwrap())
}

#[test]
fn a_member_serves_until_its_replacement_is_whole() {
    let lab = lab();
    lab.run("create data -l5 -c64 --assume-clean m0 m1 m2").ok();
    let server = lab.serve_data(&format!("{SLOW} m0 m1 m2"));
    let bytes = pattern(31, server.facts["array_bytes"].as_u64().unwrap() as usize);
    lab.fill(&server, &bytes);
    let said = lab.run("replace data m1").ok().out;
    assert!(said.contains("as soon as there is a spare"), "{said}");
    let waits = |detail: &Value| detail["members"][1]["awaits_replacement"] == true;
    assert!(waits(&lab.detail()));
    let said = lab.run("detail data").ok().out;
    assert!(said.contains("active sync replaced-by-next-spare   m1"), "{said}");
    lab.run(&format!("add data {SPARE}")).ok();
    let detail = lab.until("a third of a replacement", |detail| {
        state(detail, SPARE) == "replacement" && progress(detail).0 >= progress(detail).1 / 3
    });
    assert_eq!(state(&detail, "m1"), "in_sync");
    assert!(!waits(&detail));
    assert!(
        detail["state"].as_array().unwrap().iter().all(|word| word != "degraded"),
        "{detail:#}"
    );
    assert!(lab.run("status data").ok().out.contains(&format!("{SPARE}[3](R)")));
    let again = lab.run("replace data m1");
    assert!(again.code == 1 && again.err.contains("not being replaced"), "{again:?}");
    // What is written now goes to both.
    let news = pattern(32, bytes.len());
    lab.fill(&server, &news);
    lab.run("set data sync_speed_max=0").ok();
    lab.run("wait data --timeout 60").ok();
    let detail = lab.until("the end", |detail| state(detail, "m1") == "faulty");
    assert_eq!(state(&detail, SPARE), "in_sync");
    lab.run("remove data m1").ok();
    assert!(lab.contents(&server) == news);
    server.stop();
    // What was replaced is no member any more, though its own superblock says so.
    let said = lab.run(&format!("scan m0 m1 m2 {SPARE}")).ok().out;
    assert!(said.contains("complete"), "{said}");
    let Some(mut md) = Md::boot("a replacement in the kernel's hands") else { return };
    md.agrees(&lab, &format!("m0 m2 {SPARE}"), &news);
}

#[test]
fn a_replacement_goes_on_as_a_recovery_when_the_member_fails() {
    let lab = lab();
    lab.run("create data -l5 -c64 --assume-clean m0 m1 m2").ok();
    let server = lab.serve_data(&format!("{SLOW} m0 m1 m2"));
    let bytes = pattern(33, server.facts["array_bytes"].as_u64().unwrap() as usize);
    lab.fill(&server, &bytes);
    lab.run(&format!("add data {SPARE}")).ok();
    lab.run(&format!("replace data m1 --with {SPARE}")).ok();
    lab.until("a third of a replacement", |detail| progress(detail).0 >= progress(detail).1 / 3);
    lab.run("fail data m1").ok();
    let detail = lab.detail();
    assert_eq!(state(&detail, SPARE), "recovering");
    let done =
        detail["members"].as_array().unwrap().iter().find_map(|m| m["recovered_bytes"].as_u64());
    assert!(done >= Some(8 * MIB), "what was copied counts: {detail:#}");
    lab.run("set data sync_speed_max=0").ok();
    lab.run("wait data --timeout 60").ok();
    assert!(lab.contents(&server) == bytes);
    lab.run("check data").ok();
    lab.run("wait data --timeout 60").ok();
    assert_eq!(lab.detail()["mismatch_sectors"], 0);
    server.stop();
}

#[test]
fn what_cannot_be_replaced_is_told() {
    let lab = lab();
    lab.run("create data -l1 -e 0.90 --assume-clean m0 m1").ok();
    let server = lab.serve_data("m0 m1");
    let refused = lab.run("replace data m1");
    assert!(refused.code == 1 && refused.err.contains("0.90 cannot say"), "{refused:?}");
    server.stop();
    lab.run("create data -l1 --force --assume-clean m0 m1").ok();
    let server = lab.serve_data("m0 m1");
    for (line, expected) in [
        ("replace data m7", "m7 is no member of this array"),
        ("replace data m1 --with m0", "is no spare"),
        ("replace data m1 --with m4", "m4 is no member of this array"),
    ] {
        let refused = lab.run(line);
        assert!(refused.code == 1 && refused.err.contains(expected), "{line}: {refused:?}");
    }
    assert_eq!(lab.run("replace data m1 --with m0 --with m0").code, 2);
    server.stop();
}

#[test]
fn we_finish_a_replacement_of_the_kernel() {
    let Some(mut md) = Md::boot("replacements of the kernel that we finish") else { return };
    SHAPES.iter().for_each(|shape| finish_theirs(&mut md, *shape, Stopped));
    finish_theirs(&mut md, SHAPES[0], CutOff);
}

fn finish_theirs(md: &mut Md, (options, members, goes): Shape, left: Left) {
    let lab = lab();
    std::fs::write(lab.path("image"), pattern(34, 60 << 20)).unwrap();
    let count = members.split(' ').count();
    let place = members.split(' ').position(|name| name == goes).unwrap();
    let script = format!(
        "quietly mdadm --create /dev/md0 --run --assume-clean {options} -n{count} ${{devices[@]:0:{count}}}
         fill $dir/image
         rests
         echo frozen >$md/sync_action
         quietly mdadm /dev/md0 --add ${{devices[{count}]}}
         quietly mdadm /dev/md0 --replace ${{devices[{place}]}}
         read -r size <$md/component_size
         reach $(part $((size * 2))) thaw"
    );
    let all = format!("{members} {SPARE}");
    let bytes: usize = left.by_kernel(md, &lab, &all, &script).trim().parse().unwrap();
    assert!(lab.run(&format!("examine {SPARE}")).ok().out.contains("Replacement device"));
    let server = lab.serve_data(&format!("--frozen {all}"));
    let (done, total) = progress(&lab.detail());
    let part = total * 3 / 10;
    assert!((part - MIB..=part).contains(&done), "{options}: {done} of {total}");
    assert!(lab.contents(&server) == pattern(34, bytes), "{options}: half done");
    let news = pattern(35, server.facts["array_bytes"].as_u64().unwrap() as usize);
    lab.fill(&server, &news);
    let written = |detail: &Value| detail["work"]["member_write_bytes"].as_u64().unwrap();
    let before = written(&lab.detail());
    lab.run("idle data").ok();
    let detail = lab.until("the end", |detail| state(detail, goes) == "faulty");
    assert_eq!(state(&detail, SPARE), "in_sync", "{options}");
    let copied = written(&detail) - before;
    assert!(copied <= total - done + MIB, "{options}: {copied}, {done} of {total}");
    assert!(lab.contents(&server) == news, "{options}: done");
    server.stop();
    md.agrees(&lab, &without(members, goes), &news);
}

#[test]
fn the_kernel_finishes_a_replacement_of_ours() {
    let Some(mut md) = Md::boot("replacements of ours that the kernel finishes") else { return };
    SHAPES.iter().for_each(|shape| leave_ours(&mut md, *shape, Stopped));
    leave_ours(&mut md, SHAPES[1], CutOff);
}

fn leave_ours(md: &mut Md, (options, members, goes): Shape, left: Left) {
    let lab = lab();
    lab.run(&format!("create data --assume-clean {options} {members}")).ok();
    let server = lab.serve_data(&format!("{SLOW} {members}"));
    let bytes = pattern(36, server.facts["array_bytes"].as_u64().unwrap() as usize);
    lab.fill(&server, &bytes);
    lab.until("clean members", |detail| detail["state"][0] == "clean");
    lab.run(&format!("add data {SPARE}")).ok();
    lab.run(&format!("replace data {goes} --with {SPARE}")).ok();
    lab.until("three tenths of it", |detail| {
        let (done, total) = progress(detail);
        done >= total * 3 / 10
    });
    let (done, total) = progress(&lab.detail());
    left.by_us(server);
    let all = format!("{members} {SPARE}");
    let (count, place) =
        (members.split(' ').count(), members.split(' ').position(|name| name == goes).unwrap());
    let script = format!(
        "waiting quietly mdadm --assemble /dev/md0 ${{devices[@]}}
         cat $md/dev-${{devices[{count}]##*/}}/recovery_start
         carried 6 ${{devices[{count}]}}
         quietly mdadm --readwrite /dev/md0
         patience=3000
         until grep -q faulty $md/dev-${{devices[{place}]##*/}}/state; do
             patience=$((patience - 1))
             [ $patience -gt 0 ] || {{ cat /proc/mdstat; exit 1; }}
             nap 0.01
         done
         settle
         carried 6 ${{devices[{count}]}}
         dump $dir/dump
         matches"
    );
    let said = bytes_in(&md.play(&lab, &all, &script));
    let (start, copied) = (said[0], said[2] - said[1]);
    let recorded = done.saturating_sub(left.lag(total))..total;
    assert!(recorded.contains(&start), "{options}: {start}, {done} of {total}");
    assert!(copied <= total - start + MIB, "{options}: {copied}, {start} of {total}");
    assert!(lab.read("dump") == bytes, "{options}");
    md.agrees(&lab, &without(members, goes), &bytes);
}

#[test]
#[ignore = "the rest of what is in cargo test; make soak plays it"]
fn replacements_go_on_after_a_cut_on_every_level() {
    if !crate::support::soaks("replacements go on after a cut on every level") {
        return;
    }
    let Some(mut md) = Md::boot("replacements that are cut off") else { return };
    for shape in SHAPES {
        finish_theirs(&mut md, shape, CutOff);
        leave_ours(&mut md, shape, CutOff);
    }
}
