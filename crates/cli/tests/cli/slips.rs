//! Promise: what one asks for by a slip, or of a server that does not answer, loses nothing and comes to an end.

use crate::support::{Lab, Ran};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

fn raid1() -> Lab {
    let lab = Lab::new(&[8; 3]);
    lab.run("create data -l1 --assume-clean m0 m1").ok();
    lab
}

#[test]
fn a_server_that_does_not_answer_is_waited_for_no_longer_than_asked() {
    let lab = raid1();
    let server = lab.serve_data("m0 m1");
    server.signal("-STOP");
    let refused = lab.run("wait data --timeout 1");
    assert!(refused.code == 1 && refused.err.contains("has not answered for"), "{refused:?}");
    server.signal("-CONT");
    lab.run("wait data --timeout 60").ok();
    server.stop();
}

#[test]
fn what_is_asked_of_a_silent_server_says_that_it_waits_and_is_done_when_it_goes_on() {
    let lab = raid1();
    let server = lab.serve_data("m0 m1");
    server.signal("-STOP");
    let mut asked = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    let mut asked = asked.args(["check", "data"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(asked.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("still waiting"), "{said}");
    server.signal("-CONT");
    assert!(asked.wait().unwrap().success());
    server.stop();
}

#[test]
fn a_report_is_written_over_nothing_but_a_report() {
    let lab = raid1();
    let server = lab.serve_data("m0 m1");
    for (file, holds) in [("m1", "holds something else"), ("m2", "holds something else")] {
        let before = lab.read(file);
        let refused = lab.run(&format!("wait data --report {file}"));
        assert!(refused.code == 1 && refused.err.contains(holds), "{refused:?}");
        // The server writes superblocks of its own member.
        assert!(file == "m1" || lab.read(file) == before);
        assert_eq!(lab.read(file).len(), before.len());
    }
    for _ in 0..2 {
        lab.run("wait data --report report.json").ok();
    }
    assert!(lab.read("report.json").starts_with(b"{"));
    server.stop();
}

#[test]
fn a_field_of_the_wrong_type_is_refused_by_its_name() {
    let lab = raid1();
    let server = lab.serve_data("m0 m1");
    let mut stream = BufReader::new(UnixStream::connect(lab.path("run/data.sock")).unwrap());
    for (request, told) in [
        (
            r#"{"command":"fail","member":"0","force":"yes"}"#,
            "\\\"force\\\" is \\\"yes\\\", not true or false",
        ),
        (r#"{"command":"stop","force":1}"#, "\\\"force\\\" is 1, not true or false"),
        (r#"{"command":"fail","member":0}"#, "\\\"member\\\" is 0, not a text"),
        (r#"{"command":"replace","member":"0","with":1}"#, "\\\"with\\\" is 1, not a text"),
    ] {
        writeln!(stream.get_mut(), "{request}").unwrap();
        let mut answer = String::new();
        stream.read_line(&mut answer).unwrap();
        assert!(answer.contains(told) && answer.contains("nothing was changed"), "{answer}");
    }
    lab.run("status data").ok();
    server.stop();
}

#[test]
fn a_member_is_free_once_remove_has_answered() {
    let lab = raid1();
    let server =
        lab.serve_with_fault("member=1,op=read,range=2112K+512K,delay=2s", "--name data m0 m1");
    lab.run("check data").ok();
    // It begins at 1088 KiB of the data.
    lab.until("a read that takes its time", |detail| detail["sync"]["done_bytes"] == 1 << 20);
    for command in ["fail", "remove", "add"] {
        lab.run(&format!("{command} data m1")).ok();
    }
    server.stop();
}

/// Where the shards that are to close it have their own threads.
#[test]
fn a_member_is_free_in_all_shards_once_remove_has_answered() {
    let lab = raid1();
    let server = lab.serve_data("m0 m1");
    let mut stream = BufReader::new(UnixStream::connect(lab.path("run/data.sock")).unwrap());
    let member = lab.path("m1").display().to_string();
    for _ in 0..50 {
        for command in ["fail", "remove", "add"] {
            writeln!(stream.get_mut(), r#"{{"command":"{command}","member":"{member}"}}"#).unwrap();
            let mut answer = String::new();
            stream.read_line(&mut answer).unwrap();
            assert!(!answer.contains("error"), "{command}: {answer}");
        }
    }
    server.stop();
}

#[test]
fn connections_that_ask_nothing_keep_nobody_out() {
    let lab = raid1();
    let server = lab.serve_data("m0 m1");
    let connect = || UnixStream::connect(lab.path("run/data.sock")).unwrap();
    let idle: Vec<UnixStream> = (0..16).map(|_| connect()).collect();
    lab.run("status data").ok();
    // Who asks as it makes room does not take that for the server's end.
    let mut told = String::new();
    (&idle[0]).read_to_string(&mut told).unwrap();
    assert!(told.contains("busy with 16 other connections"), "{told}");
    drop(idle);
    server.stop();
}

#[test]
fn a_member_whose_name_is_not_utf_8_goes_by_its_number() {
    let lab = raid1();
    let name = OsStr::from_bytes(b"m\xff");
    std::fs::rename(lab.path("m1"), lab.path("").join(name)).unwrap();
    let serve = ["serve", "--json", "--name", "data", "m0"].map(OsStr::new);
    let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    let server = crate::support::Server::start(command.args(serve).arg(name));
    let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    let words = ["fail", "data"].map(OsStr::new);
    let refused = crate::support::Ran::of(command.args(words).arg(name).output().unwrap());
    assert!(refused.code == 1 && refused.err.contains("give the member's number"), "{refused:?}");
    lab.run("fail data 1").ok();
    lab.run("remove data 1").ok();
    server.stop();
}

#[test]
fn what_is_added_under_an_overlay_is_left_as_it_is() {
    let lab = raid1();
    let before = lab.read("m2");
    let server = lab.serve_data("m0 m1 --overlay cow");
    let (status, detail) = (lab.run("status data").ok(), lab.run("detail data").ok());
    assert!(status.out.starts_with("data : active (overlay) "), "{status:?}");
    assert!(detail.out.contains("Overlay : cow takes all writes"), "{detail:?}");
    let refused = lab.run("add data m2");
    assert!(refused.code == 1 && refused.err.contains("overlay"), "{refused:?}");
    assert!(lab.read("m2") == before);
    server.stop();
}

#[test]
fn what_run_starts_hears_of_a_stop() {
    let lab = raid1();
    let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    // The shell itself becomes the program, and clears no mask.
    command.args(["serve", "m0", "m1", "--name", "data", "--run", "exec sleep 600"]);
    let mut child = command.spawn().unwrap();
    lab.until("served", |detail| detail["members"].is_array());
    lab.run("stop data").ok();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
}

/// As after `| head`: who has read enough wants no word of it.
#[test]
fn a_reader_that_has_gone_is_told_nothing() {
    let lab = Lab::new(&[]);
    for line in ["--help", "help create", "serve --help", "disk list"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
        let ended = command.args(line.split(' ')).stdout(writer).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{line}");
        assert_eq!(ended.status.code().unwrap_or(141), 141, "{line}");
    }
}

#[test]
fn output_without_room_is_an_error() {
    let lab = raid1();
    for args in [&["examine", "m0"][..], &["--help"], &["serve", "--help"], &["--version"]] {
        let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command.args(args).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("No space left"), "{said}");
    }
}

#[test]
fn a_files_name_does_nothing_to_the_terminal() {
    let lab = Lab::new(&[16]);
    lab.file("a\u{1b}[2Jz", 16 << 20);
    let made = lab.run("create data -l1 --assume-clean m0 a\u{1b}[2Jz").ok();
    assert!(made.out.contains("serve m0 $'a\\x1b[2Jz'"), "{made:?}");
    let mut server = lab.serve_data("m0 a\u{1b}[2Jz");
    let lines = [
        "status data",
        "detail data",
        "scan m0 a\u{1b}[2Jz",
        "fail data a\u{1b}[2Jz",
        "examine b\u{1b}[2Jz",
        "create new -l1 m1 b\u{1b}[2Jz",
    ];
    let ran: Vec<_> = lines.iter().map(|line| lab.run(line)).collect();
    server.signal("-TERM");
    let said = server.end().1;
    let texts = ran.iter().chain([&made]).flat_map(|ran| [&ran.out, &ran.err]);
    for text in texts.chain([&said]) {
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
    assert!(ran[3].code == 0 && said.contains("a\u{fffd}[2Jz failed"), "{said}");
    for lost in &ran[4..] {
        assert!(lost.code != 0 && lost.err.contains("b\u{fffd}[2Jz"), "{lost:?}");
    }
}

#[test]
fn what_is_in_a_directorys_place_is_told_with_what_was_wanted() {
    let lab = raid1();
    for (line, wanted) in [
        ("serve m0 m1 --control-dir m2", "m2: cannot make it"),
        ("status --control-dir m2", "m2: cannot list it"),
        ("status data --control-dir m2", "m2/data.sock: cannot connect to it"),
    ] {
        let refused = lab.run(line);
        assert!(refused.code == 1 && refused.err.contains(wanted), "{refused:?}");
        assert!(refused.err.contains("name one with LAPSTRAKE_RUN_DIR or"), "{refused:?}");
    }
    let refused = lab.run("man m2");
    assert!(refused.code == 1 && refused.err.contains("m2: cannot write the pages"), "{refused:?}");
    assert!(refused.err.contains("name a directory"), "{refused:?}");
}

#[test]
fn a_bitmap_and_a_socket_need_no_name_in_utf8() {
    let lab = Lab::new(&[8; 2]);
    let run = |line: &[&[u8]]| {
        let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
        Ran::of(command.args(line.iter().map(|word| OsStr::from_bytes(word))).output().unwrap())
    };
    let made: [&[u8]; 8] = [
        b"create",
        b"data",
        b"-l1",
        b"--assume-clean",
        b"--json",
        b"--bitmap=./b\xe9",
        b"m0",
        b"m1",
    ];
    assert_eq!(run(&made).ok().json()["bitmap_file"], "./b\u{fffd}");
    let served: [&[u8]; 9] = [
        b"serve",
        b"m0",
        b"m1",
        b"--bitmap",
        b"./b\xe9",
        b"--nbd=unix:s\xe9",
        b"--control-dir=c\xe9",
        b"--json",
        b"--run=test -S \"$unixsocket\" && echo \"$uri\"",
    ];
    let told = run(&served).ok();
    assert!(told.out.contains("/s%E9\n"), "{told:?}");
}
