//! Promise: what a command says on standard error is nobody's burden. Where it cannot be written it is lost, where
//! nobody reads it it waits, and serving goes on; and who misbehaves cannot make a log grow by more than a
//! line now and then.

use crate::support::Lab;
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything takes here; what takes longer hangs.
const BOUND: Duration = Duration::from_secs(30);

fn three() -> Lab {
    let lab = Lab::new(&[32, 32, 32]);
    lab.run("create data -l5 -c64 --assume-clean m0 m1 m2").ok();
    lab
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

/// A server with this standard error, once it serves; killed when dropped.
struct Server(Child);

impl Server {
    fn start(lab: &Lab, stderr: impl Into<Stdio>) -> Self {
        let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
        command.args(["serve", "m0", "m1", "m2", "--nbd", "unix:nbd"]);
        let server = Self(command.stdout(Stdio::null()).stderr(stderr).spawn().unwrap());
        until("it serves", || lab.run("status data").code != 1);
        server
    }

    fn end(&mut self) -> ExitStatus {
        let mut ended = None;
        until("its end", || {
            ended = self.0.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !done() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// One that speaks another protocol, until it is cut off.
fn stranger(lab: &Lab) {
    let mut stream = UnixStream::connect(lab.path("nbd")).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    // It may be cut off before all is sent.
    let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n");
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

/// What makes a server speak; it serves on.
fn give_cause(lab: &Lab) {
    stranger(lab);
    lab.run("fail data m1").ok();
    stranger(lab);
    assert_eq!(lab.run("status data").code, 3, "degraded, and served");
}

#[test]
fn a_server_whose_words_cannot_be_written_serves_on() {
    let lab = three();
    for closes in [false, true] {
        let mut server = match closes {
            true => {
                let mut server = Server::start(&lab, Stdio::piped());
                drop(server.0.stderr.take());
                server
            }
            false => Server::start(&lab, full()),
        };
        give_cause(&lab);
        lab.run("stop data").ok();
        assert!(server.end().success());
        lab.run("create data -l5 -c64 --assume-clean --force m0 m1 m2").ok();
    }
}

/// A pipe in which there is no room, at both ends.
fn stuffed(path: &Path) -> File {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    let mut open = OpenOptions::new();
    let mut pipe = open.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap();
    while pipe.write_all(&[b'.'; 512]).is_ok() {}
    pipe
}

#[test]
fn a_server_whose_words_nobody_reads_serves_on_and_tells_them_later() {
    let lab = three();
    let mut pipe = stuffed(&lab.path("pipe"));
    let writer = || OpenOptions::new().write(true).open(lab.path("pipe")).unwrap();
    let mut server = Server::start(&lab, writer());
    give_cause(&lab);
    lab.run("stop data").ok();
    assert!(server.end().success(), "nor does its end wait for long");

    let mut server = Server::start(&lab, writer());
    (0..100).for_each(|_| stranger(&lab));
    let mut said = Vec::new();
    let mut heard = |what: &str| {
        let mut some = [0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut some) {
            said.extend(&some[..count]);
        }
        String::from_utf8_lossy(&said).matches(what).count()
    };
    until("its words", || {
        heard("client was cut off: option magic") + heard("client was cut off: client flags") > 0
    });
    lab.run("stop data").ok();
    assert!(server.end().success());
    until("the last of them", || heard("times more: it broke the protocol\n") > 0);
    let lines = heard("an NBD client was cut off");
    assert!((2..20).contains(&lines), "{lines} lines of 100 clients");
}

#[test]
fn commands_end_as_they_would_though_their_words_are_lost() {
    let lab = three();
    let codes: [(&[&str], i32); 5] = [
        (&["nosuch"], 2),
        (&["--json", "nosuch"], 2),
        (&["examine", "nosuch"], 1),
        (&["create", "data", "-l5", "m0", "m1", "m2"], 1),
        (&["serve", "m0"], 1),
    ];
    for (args, code) in codes {
        let command = || {
            let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
            command.args(args).stdout(Stdio::null());
            command
        };
        assert_eq!(command().stderr(full()).status().unwrap().code(), Some(code), "{args:?}");
        let mut child = command().stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stderr.take());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{args:?} without a reader");
    }
}

/// What a server says while a member of its array is failed, and another is added and rebuilt.
fn said_of_a_rebuild(options: &str) -> String {
    let lab = three();
    lab.file("m3", 32 << 20);
    let mut server = lab.serve(&format!("m0 m1 m2 {options}"));
    lab.run("fail data m1").ok();
    lab.run("remove data m1").ok();
    lab.run("add data m3").ok();
    lab.run("wait data").ok();
    server.signal("-TERM");
    let (code, said) = server.end();
    assert_eq!(code, 0, "{said}");
    said
}

#[test]
fn as_json_each_line_is_an_object_with_level_fields_and_spans() {
    let said = said_of_a_rebuild("--verbose --log-format json");
    let events = said.lines().map(|line| serde_json::from_str(line).expect(line));
    let events: Vec<Value> = events.collect();
    let of = |message: &str| {
        let is = |event: &&Value| event["fields"]["message"].as_str().unwrap().contains(message);
        events.iter().find(is).unwrap_or_else(|| panic!("{message}: {said}"))
    };
    let failed = of("member m1 failed");
    assert_eq!((&failed["level"], &failed["fields"]["member"]), (&"ERROR".into(), &"m1".into()));
    assert_eq!(failed["target"], "lapstrake_host::coordinator");
    assert!(failed["timestamp"].as_str().unwrap().ends_with('Z'), "{failed}");
    let spans = failed["spans"].as_array().unwrap();
    assert_eq!((&spans[0]["name"], &spans[0]["array"]), (&"array".into(), &"data".into()));
    assert_eq!((&spans[1]["name"], &spans[1]["member"]), (&"member".into(), &"m1".into()));
    let begun = of("recovery begins");
    assert_eq!((&begun["level"], &begun["fields"]["action"]), (&"INFO".into(), &"recovery".into()));
    assert_eq!(begun["spans"][1]["action"], "recovery");
    assert_eq!(of("was added (recovery)")["level"], "INFO");
    let written = of("metadata was written");
    assert_eq!((&written["level"], &written["fields"]["sector"]), (&"DEBUG".into(), &8.into()));
}

#[test]
fn as_text_a_line_is_a_sentence_and_more_only_if_asked_for() {
    let plain = said_of_a_rebuild("");
    assert!(plain.lines().all(|line| line.starts_with("lapstrake: ")), "{plain}");
    assert!(plain.contains("lapstrake: data: member m1 failed and is used no more"), "{plain}");
    assert!(plain.contains("\nlapstrake: data: recovery begins\n"), "{plain}");
    assert!(!plain.contains("metadata was written"), "{plain}");
    let verbose = said_of_a_rebuild("-v");
    let written = "\nlapstrake: data: metadata was written member=\"m0\" sector=8 bytes=";
    assert!(verbose.contains(written) && !verbose.contains("member I/O"), "{verbose}");
    assert!(said_of_a_rebuild("-vv").contains("data: member I/O member_id="));
}

#[test]
fn the_journal_gets_priorities_and_nobody_else() {
    let lab = three();
    let path = lab.path("journal");
    for (is_journal, line) in [(true, "<3>lapstrake: nosuch: "), (false, "lapstrake: nosuch: ")] {
        let stderr = File::create(&path).unwrap();
        let of = stderr.metadata().unwrap();
        let inode = of.ino() + u64::from(!is_journal);
        let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
        command.args(["examine", "nosuch"]).env("JOURNAL_STREAM", format!("{}:{inode}", of.dev()));
        assert_eq!(command.stderr(stderr).status().unwrap().code(), Some(1));
        let said = std::fs::read_to_string(&path).unwrap();
        assert!(said.starts_with(line), "{said}");
    }
}
