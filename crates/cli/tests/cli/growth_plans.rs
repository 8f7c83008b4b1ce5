//! Promise: `grow --dry-run` tells what `grow` then does: which steps, how the array is afterwards, what is read and written of
//! each member; it writes nothing, and refuses what `grow` refuses.

use crate::reshaping::{create, lab};
use crate::support::Lab;
use serde_json::Value;
use std::collections::BTreeMap;

/// How the array is made, of which members, what is asked for, and which steps that takes.
const COURSES: [(&str, &str, &str, &[&str]); 10] = [
    ("-l5 -c64 --bitmap internal", "m0 m1 m2", "--raid-devices 4 m3", &["reshape"]),
    ("-l5 -c64", "m0 m1 m2", "--chunk 128K --layout right-symmetric", &["reshape"]),
    ("-l6 -c64", "m0 m1 m2 m3", "--level 5", &["reshape", "superblocks"]),
    ("-l0 -c64", "m0 m1", "--level 6 m2 m3", &["superblocks", "recovery", "reshape"]),
    ("-l0 -c64", "m0 m1", "--level 10 m2 m3", &["superblocks", "recovery"]),
    ("-l10 -c64", "m0 m1 m2", "--raid-devices 4 m3", &["reshape"]),
    ("-l10 -c64", "m0 m1 m2 m3", "--level 6", &["superblocks", "recovery", "reshape"]),
    ("-l1", "m0 m1", "--raid-devices 3 m2", &["superblocks", "recovery"]),
    ("-l1", "m0 m1", "--level 5 --raid-devices 3 m2", &["superblocks", "reshape"]),
    ("-l5 -c64 -z 16M", "m0 m1 m2", "--size 17M", &["superblocks", "resync"]),
];

fn planned(lab: &Lab, wish: &str) -> Value {
    lab.run(&format!("grow data {wish} --dry-run --json")).ok().json()
}

/// Bytes that were read and written of each member so far, by its name.
fn work(detail: &Value) -> BTreeMap<String, (u64, u64)> {
    let members = detail["members"].as_array().unwrap().iter();
    let of = |member: &Value| {
        let name = member["path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        let bytes = |field: &str| member["work"][field].as_u64().unwrap();
        (name, (bytes("read_bytes"), bytes("written_bytes")))
    };
    members.map(of).collect()
}

/// The same, of all steps of a plan.
fn expected(plan: &Value) -> BTreeMap<String, (u64, u64)> {
    let mut all: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let steps = plan["steps"].as_array().unwrap().iter();
    for member in steps.flat_map(|step| step["members"].as_array().unwrap()) {
        let name = member["member"].as_str().unwrap().rsplit('/').next().unwrap();
        let of = all.entry(name.to_owned()).or_default();
        of.0 += member["read_bytes"].as_u64().unwrap();
        of.1 += member["written_bytes"].as_u64().unwrap();
    }
    all
}

#[test]
fn what_is_told_is_what_is_done() {
    for (options, members, wish, steps) in COURSES {
        let (lab, what) = (lab(), format!("{options}: {wish}"));
        create(&lab, options, members);
        let server = lab.serve_data(&format!("--shards 2 {members}"));
        let before = ["m0", "m1", "m2", "m3"].map(|name| lab.read(name));
        let plan = planned(&lab, wish);
        let told = lab.run(&format!("grow data {wish} --dry-run --rate 10M")).ok();
        assert!(told.out.contains("nothing was changed"), "{what}: {told:?}");
        assert!(told.out.contains("(--rate)"), "{what}: {told:?}");
        let after = ["m0", "m1", "m2", "m3"].map(|name| lab.read(name));
        assert!(before == after, "{what}: a plan was written");
        let actions: Vec<&str> = plan["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| step["action"].as_str().unwrap())
            .collect();
        assert_eq!(actions, steps, "{what}: {plan:#}");
        assert_eq!(plan["obstacle"], Value::Null, "{what}");
        let loses_redundancy = options.starts_with("-l10") && wish.contains("--level");
        let is_said = |text: &str| text.contains("until a later step has made redundancy");
        assert_eq!(is_said(&told.out), loses_redundancy, "{what}: {told:?}");

        let at_first = work(&lab.detail());
        let begun = lab.run(&format!("grow data {wish}")).ok();
        assert_eq!(is_said(&begun.err), loses_redundancy, "{what}: {begun:?}");
        let last = &plan["steps"][steps.len() - 1];
        let detail = lab.until("all steps", |shown| {
            let is_there =
                ["level", "raid_devices", "chunk_bytes", "component_bytes", "array_bytes"]
                    .iter()
                    .all(|field| shown[field] == last[field]);
            let members = shown["members"].as_array().unwrap();
            let has_all = members.iter().all(|member| member["state"] != "recovering");
            is_there && has_all && shown["sync"].is_null() && shown["resync_from_bytes"].is_null()
        });
        assert_eq!(detail["layout"], last["layout"], "{what}");
        let fate = &plan["steps"][0]["bitmap"];
        let is_removed = options.contains("internal").then_some("removed");
        assert_eq!(fate.as_str(), is_removed, "{what}: {plan:#}");
        assert_eq!(detail["bitmap_place"], Value::Null, "{what}");
        // What a level without redundancy lets go of is not told of any more. Of copies any may be read.
        let now = work(&detail);
        let (mut all_read, mut all_expected) = (0, 0);
        for (name, (read, written)) in expected(&plan) {
            let Some(now) = now.get(&name).copied() else { continue };
            let was = at_first.get(&name).copied().unwrap_or_default();
            let done = (now.0 - was.0, now.1 - was.1);
            // What agrees already is not written by a resync.
            let is_most = steps.contains(&"resync");
            assert!(done.1 == written || is_most, "{what}: {name}: {done:?}, {written}");
            assert!(
                done.0 == read || options.starts_with("-l10"),
                "{what}: {name}: {done:?}, {read}"
            );
            (all_read, all_expected) = (all_read + done.0, all_expected + read);
        }
        assert_eq!(all_read, all_expected, "{what}");
        server.stop();
    }
}

#[test]
fn a_plan_refuses_what_is_refused() {
    let lab = lab();
    create(&lab, "-l5 -c64", "m0 m1 m2");
    std::fs::write(lab.path("note"), "not empty").unwrap();
    lab.file("small", 4 << 20);
    let server = lab.serve_data("--shards 2 m0 m1 m2");
    for wish in ["--raid-devices 4", "--raid-devices 2", "--level 1", "--chunk 12K", "--size 30M"] {
        let (done, told) = (
            lab.run(&format!("grow data {wish}")),
            lab.run(&format!("grow data {wish} --dry-run")),
        );
        assert_eq!((done.code, told.code), (1, 1), "{wish}: {done:?} {told:?}");
        assert_eq!(done.err, told.err, "{wish}");
    }
    let small = lab.run("grow data --raid-devices 4 small --dry-run");
    assert!(small.code == 1 && small.err.contains("small"), "{small:?}");
    let is_member = lab.run("grow data --raid-devices 4 m1 --dry-run");
    assert!(is_member.code == 1 && is_member.err.contains("already"), "{is_member:?}");
    let is_so = lab.run("grow data --chunk 64K --dry-run").ok();
    assert!(is_so.out.contains("so already"), "{is_so:?}");
    server.stop();
}

#[test]
fn who_loses_redundancy_is_told_so_and_nobody_else() {
    const WORDS: &str = "a member that fails may take data with it";
    for (options, members, wish, is_told) in [
        ("-l10 -c64", "m0 m1 m2 m3", "--level 0", true),
        ("-l5 -c64", "m0 m1 m2", "--level 0", true),
        ("-l6 -c64", "m0 m1 m2 m3", "--level 5", false),
        ("-l0 -c64", "m0 m1", "--raid-devices 3 m2", false),
        ("-l10 -c64", "m0 m1 m2 m3", "--level 5 --raid-devices 2", false),
    ] {
        let lab = lab();
        create(&lab, options, members);
        let server = lab.serve_data(&format!("--shards 2 {members}"));
        let told = lab.run(&format!("grow data {wish} --dry-run"));
        let begun = lab.run(&format!("grow data {wish}"));
        assert_eq!(begun.err.contains(WORDS), is_told, "{options}: {wish}: {begun:?}");
        // A plan tells of steps that are not begun, too, if others after them cannot be.
        let is_planned = is_told || begun.code != 0;
        assert_eq!(told.out.contains(WORDS), is_planned, "{options}: {wish}: {told:?}");
        server.stop();
    }
    let lab = lab();
    create(&lab, "-l1", "m0 m1");
    let server = lab.serve_data("m0 m1");
    lab.run("fail data m1").ok();
    lab.run("remove data m1").ok();
    let told = lab.run("grow data --raid-devices 3 m2 m3 --dry-run").ok();
    assert!(!told.out.contains(WORDS), "it has none as it is: {told:?}");
    server.stop();
}

/// What would be done: the level, at once; and then nobody has a place in it.
#[test]
fn a_plan_tells_where_it_would_not_go_on() {
    let lab = lab();
    create(&lab, "-l0 -c64", "m0 m1");
    let server = lab.serve_data("--shards 2 m0 m1");
    let told = lab.run("grow data --level 5 --dry-run --json");
    assert_eq!(told.code, 1, "{told:?}");
    let plan = told.json();
    assert_eq!(plan["steps"].as_array().unwrap().len(), 1, "{plan:#}");
    assert!(plan["obstacle"].as_str().unwrap().contains("lapstrake add data MEMBER"), "{plan:#}");
    assert_eq!(lab.detail()["level"], "raid0");
    server.stop();
}
