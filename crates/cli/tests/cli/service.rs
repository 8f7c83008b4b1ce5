//! Servers that run by themselves: from a configuration, in the background, under a service manager; and those that
//! vanish; and what is told of all of them.

use crate::support::{Lab, Ran, Server};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

fn three() -> Lab {
    let lab = Lab::new(&[32, 32, 32]);
    lab.run("create data -l5 -c64 --assume-clean m0 m1 m2").ok();
    fs::create_dir(lab.path("etc")).unwrap();
    lab
}

fn write_config(lab: &Lab, text: &str) {
    fs::write(lab.path("etc/data.toml"), text).unwrap();
}

fn serve_config(lab: &Lab) -> Ran {
    let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    command.env("LAPSTRAKE_CONFIG_DIR", lab.path("etc"));
    Ran::of(command.args(["serve", "--config", "data", "--run", "echo $uri"]).output().unwrap())
}

#[test]
fn a_configuration_names_members_by_pattern_and_options_by_their_names() {
    let lab = three();
    write_config(
        &lab,
        "members = [\"m[0-1]\", \"m2\"]\nname = \"vault\"\nread-only = true\nfrozen = false\n\
         nbd = [\"unix:a.nbd\", \"unix:b.nbd\"]\nshards = 1\n",
    );
    let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    let server = Server::start(command.args(["serve", "--json", "--config", "etc/data.toml"]));
    assert_eq!(
        (&server.facts["name"], &server.facts["read_only"]),
        (&"vault".into(), &true.into())
    );
    let exports = server.facts["exports"].to_string();
    assert!(exports.contains("socket=a.nbd") || exports.contains("/a.nbd"), "{exports}");
    assert!(exports.contains("b.nbd"), "{exports}");
    assert_eq!(lab.run("detail vault --json").ok().json()["members"].as_array().unwrap().len(), 3);
    server.stop();
    write_config(&lab, "members = \"m?\"\n");
    let ran = serve_config(&lab).ok();
    assert!(ran.out.starts_with("nbd+unix:///data?socket="), "by the file's name: {ran:?}");
    let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    command.env("LAPSTRAKE_CONFIG_DIR", lab.path("etc"));
    let server = Server::start(command.args(["serve", "--json", "--config=data", "--name=other"]));
    assert_eq!(server.facts["name"], "other");
    server.stop();
}

#[test]
fn what_is_wrong_with_a_configuration_is_told_with_its_file() {
    let lab = three();
    for (text, told) in [
        ("", "etc/data.toml: members: none are named; nothing was written"),
        ("members = []", "etc/data.toml:1: members: none are named; nothing was written"),
        ("members = 7", "members: not a list of texts"),
        ("members = [\"x*\"]", "members: \"x*\": no file matches"),
        ("members = [\"m?\"]\nhelp = true", "help is said on the command line only"),
        ("members = [\"m?\"]\n\"daemon=true\" = true", "\"daemon=true\" is no option of"),
        ("members = [\"m?\"]\ndaemon = true", "daemon is said on the command line only"),
        ("members = [\"m?\"]\nshards = 1.5", "shards: neither a text, a number"),
        (
            "members = [\"m?\"]\nfrozne = true",
            "\"frozne\" is no option of `lapstrake serve`; did you mean frozen?",
        ),
        ("members = [\"m?\"]\nshards = 0", "etc/data.toml:2: invalid value '0' for '--shards <N>'"),
        ("members = [", "etc/data.toml:1: no TOML: "),
    ] {
        write_config(&lab, text);
        let ran = serve_config(&lab);
        assert!(ran.code == 2 && ran.err.contains(told), "{text}: {ran:?}");
    }
    let ran = lab.run("serve --config nosuch/data.toml");
    assert!(ran.code == 2 && ran.err.contains("nosuch/data.toml: No such file"), "{ran:?}");
    let ran = lab.run("serve --config etc/data.toml m0");
    assert!(
        ran.code == 2 && ran.err.contains("the members are those that the file names"),
        "{ran:?}"
    );
}

#[test]
fn a_pattern_takes_files_whatever_their_names_are_each_once() {
    let lab = three();
    fs::create_dir(lab.path("odd")).unwrap();
    for (from, to) in [("m0", "odd/a\u{1}b"), ("m1", "odd/disk@4096"), ("m2", "odd/c")] {
        fs::rename(lab.path(from), lab.path(to)).unwrap();
    }
    fs::write(lab.path("odd/.hidden"), "no member").unwrap();
    write_config(&lab, "members = [\"odd/*\", \"odd/c\"]\n");
    serve_config(&lab).ok();
}

#[test]
fn in_the_background_a_server_serves_when_its_command_has_ended() {
    let lab = three();
    let ran = lab.run("serve --daemon --json m0 m1 m2").ok();
    let pid = ran.json()["pid"].to_string();
    assert_eq!(lab.run("status data --json").ok().json()["arrays"][0]["pid"].to_string(), pid);
    let again = lab.run("serve --daemon --name other m0 m1 m2");
    assert!(again.code == 1 && again.err.contains("in use"), "{again:?}");
    lab.run("fail data m1").ok();
    lab.run("stop data").ok();
    let log = String::from_utf8(lab.read("run/data.log")).unwrap();
    assert!(log.contains("lapstrake: data: member m1 failed"), "{log}");
    lab.run("serve --daemon --degraded m0 m2").ok();
    assert!(lab.read("run/data.log.old").starts_with(log.as_bytes()));
    lab.run("stop data").ok();
}

/// What would be lost: an array that is served though the command that began it has failed.
#[test]
fn a_server_that_cannot_keep_its_messages_does_not_go_on() {
    let lab = three();
    let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    // It cannot make its log, which comes last.
    fs::create_dir_all(lab.path("run/data.log.old")).unwrap();
    fs::set_permissions(lab.path("run"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(lab.path("run/data.log"), "of before").unwrap();
    let ran = Ran::of(command.args(["serve", "--daemon", "m0", "m1", "m2"]).output().unwrap());
    assert!(ran.code == 1 && ran.err.contains("cannot go on in the background"), "{ran:?}");
    assert_eq!(lab.run("status").ok().out, "no array is being served\n");
    assert_eq!(lab.run("examine --json m0").ok().json()[0]["superblock"]["state"], "clean");
}

#[test]
fn the_service_manager_is_told_when_the_array_is_served_and_when_it_stops() {
    let lab = three();
    let manager = UnixDatagram::bind(lab.path("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let told = || {
        let mut message = [0; 4096];
        let len = manager.recv(&mut message).unwrap();
        String::from_utf8(message[..len].to_vec()).unwrap()
    };
    let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    command.args(["serve", "--json", "m0", "m1", "m2"]).env("NOTIFY_SOCKET", lab.path("notify"));
    let server = Server::start(&mut command);
    let ready = told();
    assert!(ready.starts_with("READY=1\nSTATUS=serves nbd+unix://"), "{ready}");
    server.stop();
    assert_eq!(told(), "STOPPING=1\n");
}

#[test]
fn a_server_that_vanished_is_told_until_it_serves_again_or_is_forgotten() {
    let lab = three();
    lab.serve("m0 m1 m2").kill();
    for line in ["status", "status data"] {
        let ran = lab.run(line);
        assert!(ran.code == 3 && ran.err.contains("data: its server has vanished"), "{ran:?}");
    }
    let ran = lab.run("status --json");
    assert_eq!((ran.code, &ran.json()["vanished"]), (3, &serde_json::json!(["data"])));
    let ran = lab.run("check data");
    assert!(ran.code == 1 && ran.err.contains("its server has vanished"), "{ran:?}");
    let server = lab.serve("m0 m1 m2");
    lab.run("status").ok();
    server.kill();
    let ran = lab.run("stop data");
    assert!(ran.code == 3 && ran.err.contains("its server has vanished"), "{ran:?}");
    assert_eq!(lab.run("status").ok().out, "no array is being served\n");
}

/// What `lapstrake monitor` hands to its program since it last ran: a line for each event.
fn events(lab: &Lab) -> Vec<String> {
    let log = lab.path("events");
    fs::write(&log, "").unwrap();
    lab.run("monitor --oneshot --program ./event").ok();
    fs::read_to_string(log).unwrap().lines().map(str::to_owned).collect()
}

/// Makes the program: it writes down how many words it got, and which.
fn write_program(lab: &Lab, text: &str) {
    fs::write(lab.path("event"), format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(lab.path("event"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Three members and a spare, served, and a program for events.
fn watched() -> (Lab, Server) {
    let lab = Lab::new(&[32, 32, 32, 32, 32]);
    lab.run("create data -l5 -c64 --assume-clean m0 m1 m2 --spare-devices 1 m3").ok();
    write_program(&lab, "echo $# $* >> events");
    let server = lab.serve("m0 m1 m2 m3");
    (lab, server)
}

const NONE: [&str; 0] = [];

#[test]
fn who_watches_is_told_what_changed_in_mdadms_words() {
    let (lab, server) = watched();
    assert_eq!(events(&lab), ["2 NewArray data"]);
    assert_eq!(events(&lab), NONE, "it is told once");
    lab.run("set data sync_speed_max=1000").ok();
    lab.run("fail data m1").ok();
    while !lab.run("status data").out.contains("recovery") {}
    let told = events(&lab);
    assert_eq!(told, ["3 Fail data m1", "2 SparesMissing data", "2 RebuildStarted data"]);
    lab.run("set data sync_speed_max=0").ok();
    lab.run("wait data").ok();
    assert_eq!(events(&lab), ["3 SpareActive data m3", "2 RebuildFinished data"]);
    lab.run("remove data m1").ok();
    lab.run("add data m4").ok();
    assert_eq!(events(&lab), NONE);
    lab.run("fail data m4").ok();
    let m4 = lab.path("m4");
    assert_eq!(
        events(&lab),
        [format!("3 FailSpare data {}", m4.display()), "2 SparesMissing data".into()]
    );
    lab.run("check data").ok();
    lab.run("wait data").ok();
    assert_eq!(events(&lab), ["2 RebuildFinished data"], "of what began and ended in between");
    server.stop();
    assert_eq!(events(&lab), ["2 DeviceDisappeared data"]);
    let ran = lab.run("monitor --oneshot --json").ok();
    assert_eq!(ran.json(), serde_json::json!({ "events": [], "errors": [] }));
}

#[test]
fn who_watches_is_told_of_a_killed_server_and_of_an_array_that_comes_back_degraded() {
    let (lab, server) = watched();
    events(&lab);
    server.kill();
    assert_eq!(events(&lab), ["2 DeviceDisappeared data"]);
    assert_eq!(events(&lab), NONE);
    let server = lab.serve("--degraded m0 m1");
    assert_eq!(events(&lab), ["2 NewArray data", "2 DegradedArray data"]);
    server.stop();
}

/// What would be lost: the news of a failed disk, because mail could not be sent.
#[test]
fn what_the_program_did_not_take_is_told_again() {
    let (lab, _server) = watched();
    write_program(&lab, "exit 7");
    let ran = lab.run("monitor --oneshot --program ./event");
    assert!(ran.code == 1 && ran.err.contains("it is told again at the next look"), "{ran:?}");
    write_program(&lab, "echo $# $* >> events");
    assert_eq!(events(&lab), ["2 NewArray data"]);
    let ran = lab.run("monitor --oneshot --test").ok();
    assert_eq!(ran.out, "data: TestMessage\n");
    let ran = lab.run("monitor --oneshot --program ./nosuch --test");
    assert!(ran.code == 1 && ran.err.contains("./nosuch: No such file"), "{ran:?}");
    let ran = lab.run("monitor");
    assert!(ran.code == 2 && ran.err.contains("--oneshot"), "{ran:?}");
    fs::write(lab.path("run/monitor.json"), "{}").unwrap();
    let ran = lab.run("monitor --oneshot");
    assert!(ran.code == 1 && ran.err.contains("is no state of `lapstrake monitor`"), "{ran:?}");
    assert_eq!(lab.read("run/monitor.json"), b"{}");
    lab.run("monitor --oneshot --state other/seen.json").ok();
    assert!(lab.path("other/seen.json").exists());
}

/// Each would tell what the other tells, and one would forget what the other saw.
#[test]
fn two_who_watch_at_once_do_not_share_a_state() {
    let (lab, _server) = watched();
    let other =
        format!("{} monitor --oneshot 2>other || echo $? >>other", env!("CARGO_BIN_EXE_lapstrake"));
    write_program(&lab, &format!("{other}; echo $# $* >> events"));
    assert_eq!(events(&lab), ["2 NewArray data"]);
    let told = String::from_utf8(lab.read("other")).unwrap();
    assert!(told.contains("another `lapstrake monitor` is at work with it"), "{told}");
    assert!(told.ends_with("\n1\n"), "{told}");
    assert_eq!(events(&lab), NONE, "it was told");
}
