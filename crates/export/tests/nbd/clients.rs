//! Promise: clients that others wrote find nothing amiss. Each test runs programs against a small
//! blocking server on a Unix socket; one whose program is not installed says so and passes.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::exports;
use crate::support::server::Server;
use lapstrake_export::nbd::Event;
use lapstrake_not_run::not_run;

/// Runs a program to its end. `None`, said aloud, if it is not installed.
fn run(program: &str, args: &[&str]) -> Option<Output> {
    // libnbd's Python module belongs to the system's Python.
    let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default());
    match Command::new(program).args(args).env("PATH", path).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            not_run(format_args!("{program} is not installed"));
            None
        }
        Err(error) => panic!("{program}: {error}"),
        Ok(output) => Some(output),
    }
}

/// Runs a program that must succeed; returns what it printed.
fn succeed(program: &str, args: &[&str]) -> Option<String> {
    let output = run(program, args)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{program} {args:?}: {}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    Some(text(&output.stdout))
}

fn server() -> Server {
    Server::start(exports())
}

fn path(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

/// Bytes with runs of zeroes, different at each 8 bytes elsewhere.
fn image(len: usize) -> Vec<u8> {
    let word = |n: u64| if n / 40_000 % 3 == 1 { 0 } else { n.wrapping_mul(0x9e37_79b9_7f4a_7c15) };
    (0..len as u64 / 8).flat_map(|n| word(n).to_le_bytes()).collect()
}

/// No client broke the protocol, and each left with a word or at the edge of a message.
fn assert_orderly(server: &Server) {
    let logs = server.logs();
    assert!(!logs.is_empty());
    for log in logs.iter() {
        let bad = log.iter().find(|event| matches!(event, Event::Violation(_)));
        assert_eq!(bad, None);
    }
}

#[test]
fn nbdinfo_sees_what_is_offered() {
    let server = server();
    let Some(json) = succeed("nbdinfo", &["--json", &server.uri("ro")]) else { return };
    for line in [
        r#""protocol": "newstyle-fixed""#,
        r#""structured": true"#,
        r#""export-name": "ro""#,
        r#""description": "an array with no pen""#,
        r#""base:allocation""#,
        r#""is_read_only": true"#,
        r#""is_rotational": true"#,
        r#""can_df": true"#,
        r#""can_flush": true"#,
        r#""can_multi_conn": true"#,
        r#""can_trim": false"#,
        r#""block_size_minimum": 512"#,
        r#""block_size_preferred": 4096"#,
        r#""block_size_maximum": 33554432"#,
        r#""export-size": 67108864"#,
    ] {
        assert!(json.contains(line), "{line} in {json}");
    }
    let json = succeed("nbdinfo", &["--json", &server.uri("")]).unwrap();
    for can in ["cache", "fast_zero", "flush", "fua", "multi_conn", "trim", "zero"] {
        assert!(json.contains(&format!(r#""can_{can}": true"#)), "{can} in {json}");
    }
    assert!(json.contains(r#""is_read_only": false"#));
    let list = succeed("nbdinfo", &["--list", "--json", &server.uri("")]).unwrap();
    for name in ["md0", "ro", "big-blocks"] {
        assert!(list.contains(&format!(r#""export-name": "{name}""#)), "{name} in {list}");
    }
    assert!(list.contains(r#""block_size_minimum": 4096"#));
    let size = succeed("nbdinfo", &["--size", &server.uri("big-blocks")]).unwrap();
    assert_eq!(size.trim(), "4194304");
    let absent = run("nbdinfo", &[&server.uri("absent")]).unwrap();
    assert!(!absent.status.success());
    assert_orderly(&server);
}

#[test]
fn nbdinfo_maps_holes() {
    let server = server();
    let uri = server.uri("");
    let write = "h.pwrite(b'x' * 65536, 1 << 20); h.trim(4096, (1 << 20) + 8192)";
    if succeed("nbdsh", &["-u", &uri, "-c", write]).is_none() {
        return;
    }
    let Some(map) = succeed("nbdinfo", &["--map", &uri]) else { return };
    let rows: Vec<Vec<&str>> = map.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(
        rows,
        [
            vec!["0", "1048576", "3", "hole,zero"],
            vec!["1048576", "8192", "0", "data"],
            vec!["1056768", "4096", "3", "hole,zero"],
            vec!["1060864", "53248", "0", "data"],
            vec!["1114112", "65994752", "3", "hole,zero"],
        ]
    );
}

#[test]
fn nbdcopy_copies_there_and_back() {
    for connections in ["1", "4"] {
        let server = server();
        let (from, to) = (server.file("from"), server.file("to"));
        std::fs::write(&from, image(64 << 20)).unwrap();
        let uri = server.uri("md0");
        let flag = format!("--connections={connections}");
        // By default it makes no more connections than there are cores.
        let threads = format!("--threads={connections}");
        if succeed("nbdcopy", &[&flag, &threads, "--flush", path(&from), &uri]).is_none() {
            return;
        }
        succeed("nbdcopy", &[&flag, &threads, &uri, path(&to)]);
        assert!(std::fs::read(&from).unwrap() == std::fs::read(&to).unwrap());
        assert!(server.stores[0].lock().unwrap().flushes > 0);
        assert_orderly(&server);
        let opened = |log: &&Vec<Event>| log.first() == Some(&Event::Open { export: 0 });
        let count = server.logs().iter().filter(opened).count();
        assert_eq!(count, 2 * connections.parse::<usize>().unwrap());
    }
}

#[test]
fn nbdsh_finds_every_command_and_every_error() {
    let server = server();
    let script = include_str!("support/session.py");
    let script_file = server.file("session.py");
    std::fs::write(&script_file, script).unwrap();
    let run = format!("SOCKET = {:?}; exec(open({script_file:?}).read())", server.socket());
    let Some(output) = succeed("nbdsh", &["-c", &run]) else { return };
    assert!(output.contains("all sound"), "{output}");
}

#[test]
fn qemu_img_converts_and_compares() {
    let server = server();
    let uri = server.uri("md0");
    let Some(info) = succeed("qemu-img", &["info", &uri]) else { return };
    assert!(info.contains("virtual size: 64 MiB (67108864 bytes)"), "{info}");
    let from = server.file("from");
    std::fs::write(&from, image(64 << 20)).unwrap();
    let convert = ["convert", "-n", "-f", "raw", "-O", "raw", path(&from), &uri];
    succeed("qemu-img", &convert);
    let compare = ["compare", "-f", "raw", "-F", "raw", path(&from), &uri];
    let same = succeed("qemu-img", &compare).unwrap();
    assert!(same.contains("Images are identical"), "{same}");
    let map = succeed("qemu-img", &["map", "-f", "raw", "--output=json", &uri]).unwrap();
    assert!(map.contains(r#""zero": true"#) && map.contains(r#""zero": false"#), "{map}");
    assert_orderly(&server);
}

#[test]
fn qemu_io_writes_verifies_zeroes_and_discards() {
    let server = server();
    let uri = server.uri("md0");
    let commands = [
        "write -P 0xaa 0 1M",
        "write -f -P 0xbb 1M 64k",
        "read -P 0xaa 4k 512k",
        "read -P 0xbb 1M 64k",
        "write -z 0 64k",
        "write -z -u 128k 64k",
        "read -P 0 0 64k",
        "read -P 0 128k 64k",
        "discard 256k 64k",
        "flush",
        "aio_write -P 0xcc 32M 32M",
        "aio_flush",
        "read -P 0xcc 32M 32M",
        // Not aligned: qemu makes it so itself.
        "write -P 0xdd 3 10",
        "read -P 0xdd 3 10",
    ];
    let mut args = vec!["-f", "raw", "-t", "none"];
    for command in commands {
        args.extend(["-c", command]);
    }
    args.push(&uri);
    let Some(output) = succeed("qemu-io", &args) else { return };
    for word in ["failed", "rror"] {
        assert!(!output.contains(word), "{output}");
    }
    let ro = server.uri("ro");
    let refused = run("qemu-io", &["-f", "raw", "-c", "write 0 4k", &ro]).unwrap();
    assert!(!refused.status.success());
    assert_orderly(&server);
}

#[test]
fn fio_verifies_what_it_wrote() {
    let server = server();
    let Some(engines) = succeed("fio", &["--enghelp"]) else { return };
    if !engines.contains("nbd") {
        not_run("fio lacks its nbd engine");
        return;
    }
    let uri = format!("--uri={}", server.uri("md0"));
    let common = ["--name=verify", "--ioengine=nbd", "--size=64M", "--group_reporting"];
    let loads: [&[&str]; 2] = [
        &["--rw=randwrite", "--bsrange=512-64k", "--bs_unaligned=0", "--blockalign=512"],
        &["--rw=write", "--bs=1M"],
    ];
    for load in loads {
        let mut args = common.to_vec();
        args.extend(load);
        args.extend(["--iodepth=32", "--verify=crc32c", "--verify_fatal=1", "--do_verify=1"]);
        // Else it leaves a file in the working directory.
        args.extend(["--verify_state_save=0", &uri]);
        let output = succeed("fio", &args).unwrap();
        assert!(output.contains("err= 0"), "{output}");
    }
}
