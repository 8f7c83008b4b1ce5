//! Promise: what one asks for by a slip, or of a server that does not answer, loses nothing and comes to an end.

mod support;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use support::Lab;

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
fn what_is_added_under_an_overlay_is_left_as_it_is() {
    let lab = raid1();
    let before = lab.read("m2");
    let server = lab.serve_data("m0 m1 --overlay cow");
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

#[test]
fn output_without_room_is_an_error() {
    let lab = raid1();
    let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command.args(["examine", "m0"]).stdout(full).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("No space left"), "{said}");
}
