//! Commands that ask a served array for something: what they send, say and exit with. The server
//! is a false one that answers as it was told.

use crate::support::{Lab, Ran};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};

/// A server of an array named data.
struct Fake {
    lab: Lab,
    answers: Arc<Mutex<VecDeque<Value>>>,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl Fake {
    fn new() -> Self {
        let lab = Lab::new(&[]);
        std::fs::create_dir(lab.path("run")).unwrap();
        std::fs::write(lab.path("run/data.lock"), "").unwrap();
        let listener = UnixListener::bind(lab.path("run/data.sock")).unwrap();
        let fake = Self { lab, answers: Arc::default(), requests: Arc::default() };
        let (answers, requests) = (fake.answers.clone(), fake.requests.clone());
        // It ends with the test.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                // `status` knocks to see whether somebody is there.
                let Ok(request) = serde_json::from_str(&line) else { continue };
                requests.lock().unwrap().push(request);
                let answer = answers.lock().unwrap().pop_front().expect("an answer");
                writeln!(stream.get_mut(), "{answer}").unwrap();
            }
        });
        fake
    }

    /// Runs a command that gets these answers: how it ended, and what it asked.
    fn run(&self, line: &str, answers: impl IntoIterator<Item = Value>) -> (Ran, Vec<Value>) {
        self.answers.lock().unwrap().extend(answers);
        let ran = self.lab.run(line);
        assert!(self.answers.lock().unwrap().is_empty(), "{line}: asked too little: {ran:?}");
        (ran, std::mem::take(&mut self.requests.lock().unwrap()))
    }

    /// The absolute path of a file, as a server would show it.
    fn path(&self, file: &str) -> String {
        // The command sees its directory without links.
        let dir = self.lab.path("").canonicalize().unwrap();
        dir.join(file).to_str().unwrap().to_owned()
    }
}

fn ok(fields: Value) -> Value {
    let mut answer = json!({ "ok": true });
    answer.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    answer
}

fn refused(why: &str) -> Value {
    json!({ "ok": false, "error": why })
}

/// A RAID5 of m0, m1 and m3 with a spare m4, with some fields changed.
fn detail(changes: Value) -> Value {
    let mut detail: Value = serde_json::from_str(include_str!("support/detail.json")).unwrap();
    detail.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    ok(json!({ "pid": 4711, "exports": [], "detail": detail }))
}

fn whole() -> Value {
    detail(json!({}))
}

/// The spare of [`whole`].
fn member() -> Value {
    whole()["detail"]["members"][3].clone()
}

fn running(action: &str, frozen: bool) -> Value {
    let sync = json!({
        "action": action, "done_bytes": 8 << 20, "total_bytes": 31 << 20, "speed_bytes": 1 << 20,
        "finish_s": 23, "frozen": frozen,
    });
    detail(json!({ "state": ["clean"], "sync": sync }))
}

fn ended(action: &str, result: &str, mismatches: Value) -> Value {
    let sectors = mismatches.as_array().unwrap().len() * 8;
    detail(json!({
        "last_sync": { "action": action, "result": result },
        "mismatch_sectors": sectors, "mismatches": mismatches,
    }))
}

#[test]
fn members_are_added_by_their_absolute_paths() {
    let fake = Fake::new();
    let added = |how: &str| ok(json!({ "member": member(), "how": how }));
    let line = "add data m2 x/m3@1M+2M m4 --write-mostly --force";
    let answers = [whole(), added("recovery"), added("spare"), added("re-added")];
    let (ran, asked) = fake.run(line, answers);
    assert_eq!(
        ran.ok().out,
        "data: m2: added, and is being rebuilt\n\
         data: x/m3@1048576+2097152: added as a spare\n\
         data: m4: re-added\n"
    );
    let request = |member: String| {
        json!({
            "command": "add", "member": member, "force": true, "write_mostly": true,
            "re_add": false,
        })
    };
    assert_eq!(asked[1], request(fake.path("m2")));
    assert_eq!(asked[2], request(fake.path("x/m3@1048576+2097152")));
    let (ran, asked) = fake.run("re-add data m2", [whole(), added("re-added")]);
    assert_eq!(ran.ok().out, "data: m2: re-added\n");
    assert_eq!(
        asked[1],
        json!({
            "command": "add", "member": fake.path("m2"), "force": false, "write_mostly": false,
            "re_add": true,
        })
    );
}

#[test]
fn one_member_that_is_refused_keeps_no_other_from_its_turn() {
    let fake = Fake::new();
    let added = ok(json!({ "member": member(), "how": "spare" }));
    let answers = || [whole(), refused("m2: too small"), added.clone()];
    let (ran, _) = fake.run("add data m2 m3", answers());
    assert_eq!(ran.code, 1);
    assert_eq!(ran.err, "lapstrake: data: m2: too small\n");
    assert_eq!(ran.out, "data: m3: added as a spare\n");
    let (ran, _) = fake.run("add data m2 m3 --json", answers());
    assert_eq!(ran.code, 1);
    let members = &ran.json()["members"];
    assert_eq!(members[0]["error"], "data: m2: too small");
    assert_eq!((&members[1]["given"], &members[1]["how"]), (&json!("m3"), &json!("spare")));
}

#[test]
fn members_are_named_by_paths_that_lead_to_them_or_by_numbers() {
    let fake = Fake::new();
    let sent = fake.path("m1");
    std::fs::create_dir(fake.lab.path("x")).unwrap();
    fake.lab.file("m2", 0);
    std::os::unix::fs::symlink("m2", fake.lab.path("link")).unwrap();
    for (given, sent) in [
        ("m1", &*sent),
        ("./m1", &sent),
        ("x/../m1", &sent),
        (&sent, &sent),
        ("1", "1"),
        ("./1", &fake.path("1")),
        ("failed", &fake.path("failed")),
        ("link", &fake.path("m2")),
        ("link@1M+2M", &fake.path("m2@1048576+2097152")),
    ] {
        let answers = [whole(), ok(json!({ "member": member() }))];
        let (ran, asked) = fake.run(&format!("fail data {given}"), answers);
        assert_eq!(ran.ok().out, format!("data: {given}: faulty\n"));
        assert_eq!(asked[1], json!({ "command": "fail", "member": sent, "force": false }));
    }
    let removed = |paths: Value| [whole(), ok(json!({ "removed": paths }))];
    let (ran, asked) = fake.run("remove data failed", removed(json!(["m0", "m1"])));
    assert_eq!(ran.ok().out, "data: m0, m1: removed\n");
    assert_eq!(asked[1], json!({ "command": "remove", "member": "failed" }));
    let (ran, _) = fake.run("remove data failed", removed(json!([])));
    assert_eq!(ran.ok().out, "data: no member is faulty\n");
    let (ran, _) = fake.run("remove data m0", [whole(), refused("m0: in use")]);
    assert_eq!((ran.code, &*ran.err), (1, "lapstrake: data: m0: in use\n"));
}

#[test]
fn sync_actions_are_asked_for_in_the_words_of_md() {
    let fake = Fake::new();
    for (command, action, said) in [
        ("check", "check", "data: check has begun; `lapstrake wait data` waits for it\n"),
        ("repair", "repair", "data: repair has begun; `lapstrake wait data` waits for it\n"),
        ("resync", "resync", "data: resync has begun; `lapstrake wait data` waits for it\n"),
        ("idle", "idle", "data: idle\n"),
        ("freeze", "frozen", "data: frozen until `lapstrake resume data`\n"),
    ] {
        let (ran, asked) = fake.run(&format!("{command} data"), [ok(json!({}))]);
        assert_eq!(ran.ok().out, said);
        assert_eq!(asked, [json!({ "command": "sync", "action": action })]);
        let (ran, _) = fake.run(&format!("{command} data --json"), [ok(json!({}))]);
        assert_eq!(ran.ok().json(), json!({ "name": "data", "action": action }));
        let (ran, _) = fake.run(&format!("{command} data"), [refused("a recovery is running")]);
        assert_eq!((ran.code, &*ran.err), (1, "lapstrake: data: a recovery is running\n"));
    }
}

#[test]
fn what_goes_on_is_told() {
    let fake = Fake::new();
    let mut frozen = running("check", true);
    frozen["detail"]["state"] = json!(["clean", "frozen"]);
    for (was, said) in [
        (frozen, "data: check goes on; `lapstrake wait data` waits for it\n"),
        (detail(json!({ "state": ["clean", "frozen"] })), "data: frozen no more\n"),
        (running("check", false), "data: nothing was frozen\n"),
    ] {
        let (ran, asked) = fake.run("resume data", [was, ok(json!({}))]);
        assert_eq!(ran.ok().out, said);
        assert_eq!(asked[1], json!({ "command": "sync", "action": "resume" }));
    }
}

#[test]
fn settings_are_set_and_told() {
    let fake = Fake::new();
    let line = "set data sync_speed_min=10 sync_speed_max=50000";
    let settings = json!({ "sync_speed_min": 10, "sync_speed_max": 50_000 });
    let answer = ok(json!({ "settings": settings }));
    let (ran, asked) = fake.run(line, [answer]);
    assert_eq!(ran.ok().out, "data: sync_speed_max=50000\ndata: sync_speed_min=10\n");
    assert_eq!(asked, [json!({ "command": "set", "settings": settings })]);
    let (ran, _) = fake.run("set data check_window=22-6", [refused("no such window")]);
    assert_eq!((ran.code, &*ran.err), (1, "lapstrake: data: no such window\n"));
    for wrong in ["", " sync_speed_min", " sync_speed_min=fast", " sync_speed_min=1 colour=3"] {
        assert_eq!(fake.run(&format!("set data{wrong}"), []).0.code, 2, "{wrong}");
    }
}

#[test]
fn an_array_that_is_not_served_is_said_once() {
    let lab = Lab::new(&[]);
    for line in ["add none m0 m1", "fail none 0 1", "check none", "set none sync_speed_min=1"] {
        let ran = lab.run(line);
        assert_eq!(ran.code, 1);
        assert_eq!(
            ran.err.matches("no array named \"none\" is being served").count(),
            1,
            "{ran:?}"
        );
    }
}

#[test]
fn status_and_detail_show_a_rebuild() {
    let fake = Fake::new();
    let recovering = || {
        let mut answer = running("recovery", false);
        answer["detail"]["state"] = json!(["clean", "degraded", "recovering"]);
        answer
    };
    let (ran, _) = fake.run("status", [recovering()]);
    assert_eq!(ran.code, 3);
    let line = "\n      [=====>...............]  recovery = 25.8% (8192/31744) finish=0.3min \
                speed=1024K/sec\n";
    assert!(ran.out.contains(line), "{ran:?}");
    let (ran, _) = fake.run("detail data", [recovering()]);
    assert_eq!(ran.code, 3);
    assert!(ran.out.contains("\n    Rebuild Status : 25% complete\n"), "{ran:?}");
}

#[test]
fn wait_ends_when_nothing_runs() {
    let fake = Fake::new();
    let (ran, asked) =
        fake.run("wait data", [running("resync", false), ended("resync", "done", json!([]))]);
    let ran = ran.ok();
    assert_eq!(ran.out, "data: resync done; the array is clean\n");
    assert_eq!(ran.err, "", "no progress bar without a terminal");
    assert_eq!(asked, vec![json!({ "command": "detail" }); 2]);
    let (ran, _) = fake.run("wait data", [ended("recovery", "failed", json!([]))]);
    assert_eq!(ran.code, 1);
    assert_eq!(ran.err, "lapstrake: data: recovery failed; the array is clean\n");
    let (ran, _) = fake.run("wait data", [running("recovery", true)]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("recovery is frozen until `lapstrake resume data`"), "{ran:?}");
    let (ran, _) = fake.run("wait data --timeout 0 --json", [running("recovery", false)]);
    assert_eq!(ran.code, 1);
    let still = "data: recovery still runs: 25.8% finish=0.3min speed=1024K/sec";
    assert_eq!(ran.json(), json!({ "error": still }));
}

#[test]
fn wait_reports_what_a_check_found() {
    let fake = Fake::new();
    let found = json!([
        { "offset_bytes": 65536, "len_bytes": 4096, "member": "m1" },
        { "offset_bytes": 131_072, "len_bytes": 4096, "member": null },
    ]);
    let checked = || [running("check", false), ended("check", "done", found.clone())];
    let (ran, _) = fake.run("wait data --report found.json", checked());
    assert_eq!(ran.code, 3);
    assert_eq!(
        ran.out,
        "data: check done, 16 sectors do not match; the array is clean\n  \
         4096 bytes at 65536: m1 disagrees\n  \
         4096 bytes at 131072: it cannot be told who disagrees\n"
    );
    let report: Value = serde_json::from_slice(&fake.lab.read("found.json")).unwrap();
    assert_eq!((&report["mismatch_sectors"], &report["mismatches"]), (&json!(16), &found));
    let (ran, _) = fake.run("wait data --json", checked());
    assert_eq!((ran.code, ran.json()), (3, report));
    let (ran, _) = fake.run("wait data", [ended("check", "done", json!([]))]);
    assert_eq!(ran.ok().out, "data: check done, everything matches; the array is clean\n");
    let (ran, _) = fake.run("wait data --report no/dir", [ended("check", "done", json!([]))]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("no/dir: cannot write it"), "{ran:?}");
}

#[test]
fn a_server_that_answers_badly_hides_no_other_from_status() {
    let fake = Fake::new();
    ["m0", "m1"].iter().for_each(|name| fake.lab.file(name, 4 << 20));
    fake.lab.run("create more -l1 --assume-clean m0 m1").ok();
    let server = fake.lab.serve("--name more m0 m1");
    let (ran, _) = fake.run("status", [ok(json!({}))]);
    assert!(ran.code == 1 && ran.out.starts_with("more : "), "{ran:?}");
    assert!(ran.err.contains("data: its server's answer is not understood"), "{ran:?}");
    let (ran, _) = fake.run("status", [refused("no")]);
    assert!(ran.code == 1 && ran.out.starts_with("more : "), "{ran:?}");
    server.stop();
}
