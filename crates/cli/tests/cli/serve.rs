//! Serving: clients, status, detail and stop; places and names; clean ends.

use crate::support::{Lab, Ran, Server, exists, installed, not_run, pattern};
use serde_json::Value;
use std::os::unix::net::UnixListener;

fn three() -> Lab {
    let lab = Lab::new(&[32, 32, 32]);
    lab.run("create data -l5 -c64 --assume-clean m0 m1 m2").ok();
    lab
}

/// Copies a file of the lab into the served array, by a client that is not ours.
fn fill(lab: &Lab, server: &Server, name: &str) -> Option<()> {
    if !installed("nbdcopy") {
        not_run("serving", "nbdcopy is not installed");
        return None;
    }
    lab.other(&format!("nbdcopy --flush {name} {}", server.uri()))?.ok();
    Some(())
}

#[test]
fn what_a_client_writes_is_there_after_the_stop() {
    let lab = three();
    let server = lab.serve("m0 m1 m2");
    assert_eq!(server.facts["name"], "data");
    let bytes = server.facts["array_bytes"].as_u64().unwrap() as usize;
    let contents = pattern(1, bytes);
    std::fs::write(lab.path("in"), &contents).unwrap();
    let Some(()) = fill(&lab, &server, "in") else { return };
    if let Some(info) = lab.other(&format!("nbdinfo --json {}", server.uri())) {
        let info = info.ok().json();
        assert_eq!(info["exports"][0]["export-name"], "data");
        assert_eq!(info["exports"][0]["export-size"], bytes);
        assert_eq!(info["exports"][0]["is_read_only"], false);
    }
    let stopped = lab.run("stop data").ok();
    assert_eq!(stopped.out, "data: stopped\n");
    drop(server);
    lab.run("cat -o out m0 m1 m2").ok();
    assert!(lab.read("out") == contents);
    for missing in ["m1 m2", "m0 m2", "m0 m1"] {
        lab.run(&format!("cat -o out {missing}")).ok();
        assert!(lab.read("out") == contents, "without one of three: {missing}");
    }
    let found = lab.run("examine --json m0 m1 m2").ok().json();
    for member in found.as_array().unwrap() {
        assert_eq!(member["superblock"]["state"], "clean");
    }
}

#[test]
fn status_detail_and_stop_tell_what_is_so() {
    let lab = three();
    assert_eq!(lab.run("status").ok().out, "no array is being served\n");
    let server = lab.serve("m0 m1 m2");
    let status = lab.run("status").ok();
    let expected = "\
data : active raid5 m2[2] m1[1] m0[0]
      63488 blocks super 1.2 level 5, 64k chunk, algorithm 2 [3/3] [UUU]
      \n";
    assert_eq!(status.out, expected);
    let json = lab.run("status --json data").ok().json();
    let array = &json["arrays"][0];
    assert_eq!(array["members"][1]["path"], "m1");
    assert_eq!(array["pid"], server.facts["pid"]);
    assert_eq!(array["exports"], server.facts["exports"]);
    let detail = lab.run("detail data").ok().out;
    for line in [
        "data:\n           Version : 1.2\n",
        "\n        Raid Level : raid5\n",
        "\n     Used Dev Size : 31744 (31.00 MiB 32.51 MB)\n",
        "\n             State : clean \n",
        "\n            Layout : left-symmetric\n        Chunk Size : 64K\n\nConsistency Policy : resync\n",
        // Behind it may be how it is opened, which depends on the file system.
        "\n       2       0        0        2      active sync   m2",
    ] {
        assert!(detail.contains(line), "no {line:?} in\n{detail}");
    }
    let json = lab.run("detail --json data").ok().json();
    assert_eq!(json["work"]["requests"], 0);
    assert!(json["memory"]["stripe_cache"].as_u64().unwrap() > 0);
    let ran = lab.run("stop date").ok();
    assert_eq!(ran.out, "date: not being served, nothing to stop; what is served: data\n");
    assert_eq!(lab.run("stop --json data").ok().json()["clean"], true);
    drop(server);
    assert_eq!(lab.run("stop --json data").ok().json()["was_served"], false);
    for command in ["status data", "detail data"] {
        let ran = lab.run(command);
        assert_eq!(ran.code, 1);
        assert!(ran.err.contains("no array named \"data\" is being served"), "{ran:?}");
    }
    assert_eq!(std::fs::read_dir(lab.path("run")).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn every_level_has_its_words() {
    for (shape, words) in [
        ("-l linear m0 m1 m2", "blocks super 1.2 0k rounding\n"),
        ("-l0 -c64 m0 m1 m2", "blocks super 1.2 64k chunks\n"),
        ("-l1 -n2 -x1 m0 m1 m2", "blocks super 1.2 [2/2] [UU]\n"),
        ("-l4 -e 1.0 m0 m1 m2", "blocks super 1.0 level 4, 512k chunk, algorithm 0 [3/3] [UUU]\n"),
        ("-l10 -c64 -p o2 m0 m1 m2", "blocks super 1.2 64K chunks 2 offset-copies [3/3] [UUU]\n"),
        ("-l5 -e 0.90 m0 m1 m2", " blocks level 5, 512k chunk, algorithm 2 [3/3] [UUU]\n"),
    ] {
        let lab = Lab::new(&[32, 32, 32]);
        lab.run(&format!("create data --assume-clean {shape}")).ok();
        let server = lab.serve("m0 m1 m2 --name data");
        let status = lab.run("status").ok().out;
        assert!(status.contains(words), "{shape}: {status}");
        assert_eq!(status.contains("m2[2](S)"), shape.contains("-x1"), "{status}");
        let detail = lab.run("detail data").ok().out;
        assert!(detail.contains("    Number   Major   Minor   RaidDevice State\n"), "{detail}");
        server.stop();
    }
}

#[test]
fn a_degraded_array_says_so_everywhere() {
    let lab = three();
    let refused = lab.run("serve m0 m2");
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("--degraded"), "{refused:?}");
    assert!(refused.err.contains("nothing was written"), "{refused:?}");
    let scanned = lab.run("scan m0 m2");
    assert_eq!(scanned.code, 3);
    assert!(scanned.out.contains("lapstrake serve --degraded m0 m2"), "{scanned:?}");
    let server = lab.serve("--degraded m0 m2");
    let status = lab.run("status");
    assert_eq!(status.code, 3);
    assert!(status.out.contains("[3/2] [U_U]"), "{status:?}");
    let detail = lab.run("detail data");
    assert_eq!(detail.code, 3);
    assert!(detail.out.contains("State : clean, degraded"), "{detail:?}");
    assert!(
        detail.out.contains("\n       -       0        0        1      removed\n"),
        "{detail:?}"
    );
    server.stop();
}

#[test]
fn assembly_explains_itself() {
    let lab = Lab::new(&[32, 32, 32, 32]);
    lab.run("create data -l1 -n2 --assume-clean m0 m1").ok();
    lab.run("create other -l1 -n2 --assume-clean m2 m3").ok();
    let ran = lab.run("serve m0 m1 m2");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("members of 2 arrays"), "{ran:?}");
    let server = lab.serve("m0 m1 m2 --set-name data");
    assert_eq!(server.facts["name"], "data");
    server.stop();
    // One that missed events.
    let Some(()) = (|| {
        let server = lab.serve("--degraded m0 --set-name data");
        std::fs::write(lab.path("in"), pattern(2, 1 << 20)).unwrap();
        fill(&lab, &server, "in")?;
        server.stop();
        let server = lab.serve("--degraded m0");
        fill(&lab, &server, "in")?;
        server.stop();
        Some(())
    })() else {
        return;
    };
    let mut server = lab.serve("m0 m1");
    server.signal("-TERM");
    let (code, said) = server.end();
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("m1: left: "), "{said}");
    let ran = lab.run("scan m0 m1");
    assert!(ran.out.contains("m1: left: "), "{ran:?}");
}

#[test]
fn a_name_and_a_socket_have_one_server() {
    let lab = Lab::new(&[32, 32, 32, 32]);
    lab.run("create data -l1 -n2 --assume-clean m0 m1").ok();
    lab.run("create data -l1 -n2 --assume-clean m2 m3").ok();
    let server = lab.serve("m0 m1 --nbd unix:./nbd.sock");
    let ran = lab.run("serve m2 m3");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("an array named \"data\" is being served already"), "{ran:?}");
    let ran = lab.run("serve m2 m3 --name other --nbd unix:nbd.sock");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("another server listens there"), "{ran:?}");
    let ran = lab.run("serve m2 m3 --name other --nbd unix:own --nbd [::1]:0 --nbd unix:./own");
    assert!(ran.code == 2 && ran.err.contains("--nbd unix:./own: given twice"), "{ran:?}");
    assert!(!exists(lab.path("own")));
    std::os::unix::fs::symlink("nowhere", lab.path("link")).unwrap();
    let ran = lab.run("serve m2 m3 --name other --fuse link");
    assert!(ran.code == 1 && ran.err.contains("link: "), "{ran:?}");
    assert!(
        ran.err.contains("a link to a file that is not there") && !exists(lab.path("nowhere")),
        "{ran:?}"
    );
    let ran = lab.run("serve m2 m3 --overlay cow");
    assert!(ran.code == 1 && !exists(lab.path("cow")), "its overlay stayed: {ran:?}");
    lab.file("empty", 0);
    let ran = lab.run("serve m2 m3 --name other --nbd unix:nbd.sock --overlay empty");
    assert!(ran.code == 1 && lab.read("empty").is_empty(), "{ran:?}");
    let ran = lab.run("serve m0 m1 --name other");
    assert!(ran.err.contains("m0: in use"), "{ran:?}");
    assert_eq!(lab.run("status").ok().out.matches(" : active").count(), 1);
    server.stop();
    assert!(!exists(lab.path("nbd.sock")));
    // What a killed server leaves is no hindrance.
    drop(UnixListener::bind(lab.path("nbd.sock")).unwrap());
    let server = lab.serve("m0 m1 --nbd unix:nbd.sock");
    server.signal("-KILL");
    drop(server);
    assert!(exists(lab.path("nbd.sock")) && exists(lab.path("run/data.sock")));
    lab.serve("m0 m1 --nbd unix:nbd.sock").stop();
    std::fs::write(lab.path("precious"), "x").unwrap();
    let ran = lab.run("serve m0 m1 --nbd unix:precious");
    assert!(ran.err.contains("is no socket"), "{ran:?}");
    assert_eq!(lab.read("precious"), b"x");
}

#[test]
fn several_places_serve_one_array() {
    let lab = three();
    let server = lab.serve("m0 m1 m2 --nbd 127.0.0.1:0 --nbd unix:a.sock --read-only");
    let exports = server.facts["exports"].as_array().unwrap();
    assert_eq!(exports.len(), 2);
    for uri in exports {
        let uri = uri.as_str().unwrap();
        if let Some(info) = lab.other(&format!("nbdinfo --json {uri}")) {
            assert_eq!(info.ok().json()["exports"][0]["is_read_only"], true, "{uri}");
        }
    }
    let status = lab.run("status").ok().out;
    assert!(status.contains("data : active (read-only) raid5"), "{status}");
    let before = lab.read("m0");
    server.stop();
    assert!(lab.read("m0") == before, "a read-only array is not written, not even at its end");
}

#[test]
fn a_captive_command_finds_the_array_and_decides_the_end() {
    let lab = three();
    let command = |script: &str| -> Ran {
        let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
        let output = command.args(["serve", "m0", "m1", "m2", "--run", script]).output().unwrap();
        Ran {
            code: output.status.code().unwrap(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    };
    let ran = command("echo \"got $uri $exportname $port.\"; test -S \"$unixsocket\" && exit 7");
    assert_eq!(ran.code, 7, "{ran:?}");
    assert!(ran.out.starts_with("got nbd+unix:///data?socket=/"), "{ran:?}");
    assert!(ran.out.ends_with(" data .\n") && ran.out.lines().count() == 1, "{ran:?}");
    assert!(ran.err.contains("data: raid5, 63488 KiB"), "{ran:?}");
    let ran = command("kill -KILL $$");
    assert_eq!(ran.code, 137, "{ran:?}");
    if installed("nbdinfo") {
        let ran = command("nbdinfo --size \"$uri\"");
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(ran.out, "65011712\n", "the output is the command's alone");
    } else {
        not_run("--run with a client", "nbdinfo is not installed");
    }
    assert_eq!(std::fs::read_dir(lab.path("run")).unwrap().count(), 0);
    // What is said in JSON gives way, too.
    for members in ["m0 m1 m2", "m0"] {
        let ran = lab.run(&format!("serve {members} --json --run true"));
        let said = ran.err.lines().filter(|line| line.starts_with('{')).count();
        assert_eq!((&*ran.out, said), ("", 1), "{ran:?}");
    }
}

#[test]
fn a_stop_ends_the_captive_command_first() {
    let lab = three();
    let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    let script = "trap 'touch ended; exit 0' TERM; touch begun; while :; do sleep 0.05; done";
    let mut child = command.args(["serve", "m0", "m1", "m2", "--run", script]).spawn().unwrap();
    while !exists(lab.path("begun")) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    lab.run("stop data").ok();
    assert!(exists(lab.path("ended")));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn sigint_and_sighup_stop_cleanly_too() {
    let lab = three();
    for signal in ["-INT", "-HUP"] {
        let mut server = lab.serve("m0 m1 m2");
        server.signal(signal);
        assert_eq!(server.end().0, 0);
    }
    let server = lab.serve("m0 m1 m2");
    // Meant for others, and no end.
    server.signal("-USR1");
    server.signal("-USR2");
    lab.run("detail data").ok();
    server.stop();
}

#[test]
fn both_back_ends_serve() {
    let lab = three();
    for backend in ["uring", "threads", "auto"] {
        let server = lab.serve(&format!("m0 m1 m2 --shards 1 --backend {backend}"));
        let detail: Value = lab.run("detail --json data").ok().json();
        assert_eq!(detail["shards"], 1);
        std::fs::write(lab.path("in"), pattern(3, 1 << 20)).unwrap();
        let Some(()) = fill(&lab, &server, "in") else { return };
        server.stop();
    }
}

#[test]
fn the_control_socket_answers_what_it_does_not_know() {
    use std::io::{BufRead, BufReader, Write};
    let lab = three();
    let server = lab.serve("m0 m1 m2");
    let socket = lab.path("run/data.sock");
    let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    for (request, ok, word) in [
        ("nonsense", false, "not JSON"),
        ("{}", false, "no \\\"command\\\""),
        ("{\"command\":\"dance\"}", false, "unknown command"),
        ("[1]", false, "no \\\"command\\\""),
        ("{\"command\":\"detail\"}", true, "\"array_bytes\""),
    ] {
        stream.write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["ok"], ok, "{request}: {line}");
        assert!(line.contains(word), "{request}: {line}");
    }
    // A line without end, and a client that leaves: the next is served all the same.
    let mut endless = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    endless.write_all(&vec![b'x'; 64 << 10]).unwrap();
    let mut told = String::new();
    BufReader::new(&endless).read_line(&mut told).unwrap();
    assert!(told.contains("more than 65536 bytes"), "{told}");
    let _ = endless.write_all(&vec![b'x'; 1 << 20]);
    drop(endless);
    lab.run("detail data").ok();
    server.stop();
}

#[test]
fn a_back_end_of_an_unknown_name_is_refused_with_those_that_are_known() {
    let lab = Lab::new(&[8; 2]);
    lab.run("create data -l1 --assume-clean m0 m1").ok();
    let before = lab.read("m0");
    let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    command.args(["serve", "m0", "m1"]).env("LAPSTRAKE_BACKEND", "xx");
    let ran = crate::support::Ran::of(command.output().unwrap());
    let told = "LAPSTRAKE_BACKEND=\"xx\" is set in the environment: unset it, or set it to auto";
    assert!(ran.code == 1 && ran.err.contains(told), "{ran:?}");
    assert!(lab.read("m0") == before);
}
