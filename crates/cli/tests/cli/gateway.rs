//! `lapstrake gateway`: many arrays at one address, each with the word of its own server.

use crate::client::{Client, Stream};
use crate::nbd::{CERTIFICATES, has, port, script};
use crate::support::{Lab, Server, pattern};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

/// Arrays a, b and c, of different levels and sizes.
fn three_arrays() -> Lab {
    let lab = Lab::new(&[24, 24, 32, 32, 32, 48, 48]);
    lab.run("create a -l1 --assume-clean m0 m1").ok();
    lab.run("create b -l5 -c64 --assume-clean m2 m3 m4").ok();
    lab.run("create c -l0 -c64 m5 m6").ok();
    lab
}

const A: &str = "m0 m1";
const B: &str = "m2 m3 m4";
const C: &str = "m5 m6";

/// A gateway, once it says that it listens.
fn gateway(lab: &Lab, line: &str) -> Server {
    let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    Server::start(command.args(["gateway", "--json"]).args(line.split_whitespace()))
}

/// What it has said until SIGTERM ended it.
fn said(mut gateway: Server) -> String {
    gateway.signal("-TERM");
    let (code, said) = gateway.end();
    assert_eq!(code, 0, "{said}");
    said
}

/// An array by its name, at the gateway's socket.
fn at_gateway(name: &str) -> String {
    format!("nbd+unix:///{name}?socket=gw")
}

/// The names that are listed.
fn listed(lab: &Lab) -> Vec<String> {
    let list = script(lab, &format!("nbdinfo --list --json '{}'", at_gateway(""))).ok().json();
    let exports = list["exports"].as_array().unwrap();
    exports.iter().map(|export| export["export-name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_array_is_what_its_own_server_says() {
    if !has("a gateway's exports", &["nbdinfo", "nbdsh", "qemu-img"]) {
        return;
    }
    let lab = three_arrays();
    let servers = [lab.serve(A), lab.serve(&format!("{B} --read-only")), lab.serve(C)];
    let gateway = gateway(&lab, "--nbd unix:gw");
    assert_eq!(gateway.facts["arrays"].to_string(), r#"["a","b","c"]"#);
    assert_eq!(listed(&lab), ["a", "b", "c"]);
    let list = script(&lab, &format!("nbdinfo --list '{}'", at_gateway(""))).ok().out;
    assert!(list.contains("description: raid5 of 3 members"), "{list}");
    let write = "h.pwrite(b\"x\" * 65536, 1 << 20); h.flush()";
    script(&lab, &format!("nbdsh -u '{}' -c '{write}'", servers[2].uri())).ok();
    for (name, server) in ["a", "b", "c"].iter().zip(&servers) {
        let told = |uri: &str| {
            let mut info = script(&lab, &format!("nbdinfo --json '{uri}'")).ok().json();
            info["exports"][0]["uri"].take();
            let map = script(&lab, &format!("nbdinfo --map '{uri}'")).ok().out;
            (info, map)
        };
        assert_eq!(told(&at_gateway(name)), told(server.uri()), "{name}");
    }
    let map = script(&lab, &format!("nbdinfo --map '{}'", at_gateway("c"))).ok().out;
    assert!(map.contains("data") && map.contains("hole,zero"), "{map}");
    let image = script(&lab, &format!("qemu-img info --output json '{}'", at_gateway("b"))).ok();
    assert_eq!(image.json()["virtual-size"], servers[1].facts["array_bytes"]);
    let refused = script(&lab, &format!("nbdsh -u '{}' -c '{write}'", at_gateway("b")));
    assert!(refused.code != 0 && refused.err.contains("does not support write"), "{refused:?}");
    assert_eq!(said(gateway), "");
    assert!(!crate::support::exists(lab.path("gw")));
    servers.into_iter().for_each(Server::stop);
}

#[test]
fn copies_of_several_arrays_go_side_by_side() {
    if !has("copies through a gateway", &["nbdcopy", "qemu-img"]) {
        return;
    }
    let lab = three_arrays();
    let servers = [lab.serve(A), lab.serve(B), lab.serve(C)];
    let gateway = gateway(&lab, "--nbd unix:gw --nbd 127.0.0.1:0");
    let bytes = |at: usize| servers[at].facts["array_bytes"].as_u64().unwrap() as usize;
    std::fs::write(lab.path("in-a"), pattern(1, bytes(0))).unwrap();
    std::fs::write(lab.path("in-b"), pattern(2, bytes(1))).unwrap();
    let tcp = format!("nbd://127.0.0.1:{}/b", port(&gateway));
    let both = |one: &str, other: &str| {
        let copies = format!("{one} & first=$!; {other} && wait $first");
        script(&lab, &copies).ok();
    };
    let a = at_gateway("a");
    both(&format!("nbdcopy --flush in-a '{a}'"), &format!("nbdcopy --flush in-b '{tcp}'"));
    both(&format!("nbdcopy '{a}' out-a"), &format!("nbdcopy '{tcp}' out-b"));
    // What was written through the gateway is there without it.
    let direct = format!("nbdcopy '{}' direct-a", servers[0].uri());
    both(&direct, &format!("qemu-img convert '{tcp}' -O raw direct-b"));
    for out in ["out", "direct"] {
        assert!(lab.read(&format!("{out}-a")) == pattern(1, bytes(0)), "{out}-a");
        assert!(lab.read(&format!("{out}-b")) == pattern(2, bytes(1)), "{out}-b");
    }
    assert_eq!(said(gateway), "");
    servers.into_iter().for_each(Server::stop);
}

#[test]
fn tcp_clients_have_to_use_tls_as_with_serve() {
    if !has("a gateway with TLS", &["openssl", "nbdinfo", "nbdcopy"]) {
        return;
    }
    let lab = three_arrays();
    script(&lab, CERTIFICATES).ok();
    let ran = lab.run("gateway --nbd 0.0.0.0:0");
    assert!(ran.code == 2 && ran.err.contains("--tls-certificates DIR, or --no-tls"), "{ran:?}");
    let servers = [lab.serve(A), lab.serve(B)];
    let secured =
        gateway(&lab, "--nbd 127.0.0.1:0 --nbd unix:gw --tls-certificates pki --tls-allow web");
    let port = port(&secured);
    assert_eq!(secured.facts["exports"][0], format!("nbds://127.0.0.1:{port}/"));
    let uri = |name: &str, who| format!("nbds://localhost:{port}/{name}?tls-certificates={who}");
    for list in ["", "--list"] {
        let plain = script(&lab, &format!("nbdinfo {list} nbd://127.0.0.1:{port}/a"));
        assert!(plain.code != 0 && !plain.out.contains("export="), "{plain:?}");
    }
    let list = script(&lab, &format!("nbdinfo --list '{}'", uri("", "web"))).ok().out;
    assert!(list.contains("export=\"a\"") && list.contains("export=\"b\""), "{list}");
    for who in ["backup", "stranger"] {
        assert_ne!(script(&lab, &format!("nbdinfo '{}'", uri("b", who))).code, 0, "{who}");
    }
    let bytes = servers[1].facts["array_bytes"].as_u64().unwrap() as usize;
    std::fs::write(lab.path("in"), pattern(3, bytes)).unwrap();
    script(&lab, &format!("nbdcopy --flush in '{}'", uri("b", "web"))).ok();
    script(&lab, &format!("nbdcopy '{}' out", uri("b", "web"))).ok();
    assert!(lab.read("out") == pattern(3, bytes));
    // On a Unix socket it is an offer.
    script(&lab, &format!("nbdcopy '{}' plain", at_gateway("b"))).ok();
    assert!(lab.read("plain") == pattern(3, bytes));
    let said = said(secured);
    assert!(said.contains("an NBD client was cut off: TLS failed"), "{said}");
    servers.into_iter().for_each(Server::stop);
}

/// One that is joined to an array.
fn joined(lab: &Lab, name: &str) -> Client {
    let mut client = Client::raw_unix(&lab.path("gw"));
    let _greeting: [u8; 18] = client.take().unwrap();
    let mut hello = Vec::from(3u32.to_be_bytes());
    hello.extend(b"IHAVEOPT\0\0\0\x01");
    hello.extend((name.len() as u32).to_be_bytes());
    hello.extend(name.as_bytes());
    client.stream.write_all(&hello).unwrap();
    let answer: [u8; 10] = client.take().unwrap();
    client.size = u64::from_be_bytes(answer[..8].try_into().unwrap());
    client
}

#[test]
fn who_dies_takes_nobody_else_along() {
    if !has("a gateway whose servers die", &["nbdinfo"]) {
        return;
    }
    let lab = three_arrays();
    let (doomed, other) = (lab.serve(A), lab.serve(B));
    let gateway = gateway(&lab, "--nbd unix:gw");
    let (mut its, mut others) = (joined(&lab, "a"), joined(&lab, "b"));
    assert_eq!((its.write(0, &[7; 4096]), others.write(0, &[8; 4096])), (0, 0));
    doomed.kill();
    assert!(its.is_cut_off());
    assert_eq!(others.read(0, 4096), Ok(vec![8; 4096]));
    assert_eq!(listed(&lab), ["b"]);
    // The same gateway finds what is served later.
    let served = [lab.serve(A), lab.serve(C)];
    assert_eq!(listed(&lab), ["a", "b", "c"]);
    assert_eq!(joined(&lab, "a").read(0, 4096), Ok(vec![7; 4096]));
    // A client that leaves without a word, or within a request, is nobody's concern.
    drop(joined(&lab, "c"));
    let mut torn = joined(&lab, "c");
    torn.stream.write_all(&[0x25, 0x60]).unwrap();
    drop(torn);
    assert_eq!(others.flush(), 0);
    others.disconnect();
    assert_eq!(said(gateway), "");
    served.into_iter().chain([other]).for_each(Server::stop);
}

#[test]
fn what_cannot_be_offered_is_told_once() {
    if !has("arrays that a gateway does not offer", &["nbdinfo"]) {
        return;
    }
    let lab = three_arrays();
    let servers = [lab.serve(A), lab.serve(&format!("{B} --vhost-user vhost"))];
    let all = gateway(&lab, "--nbd unix:gw");
    for _ in 0..3 {
        assert_eq!(listed(&lab), ["a"]);
    }
    let size = |name: &str| script(&lab, &format!("nbdinfo --size '{}'", at_gateway(name)));
    for name in ["b", "nosuch", "%2E%2E%2Fa", ""] {
        let unknown = size(name);
        assert!(unknown.code != 0 && unknown.err.contains("export"), "{unknown:?}");
    }
    let server = lab.serve(C);
    let told = said(all);
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("b: not offered: its server has no NBD at a Unix socket"), "{told}");

    let some = gateway(&lab, "--nbd unix:gw c later");
    assert_eq!(listed(&lab), ["c"]);
    assert_ne!(size("a").code, 0);
    assert_eq!(said(some), "");
    servers.into_iter().chain([server]).for_each(Server::stop);
}

#[test]
fn a_server_that_ends_while_it_is_asked_has_ended() {
    let lab = Lab::new(&[]);
    let gateway = gateway(&lab, "--nbd unix:gw");
    let socket = lab.path("run/a.sock");
    std::fs::write(socket.with_extension("lock"), "").unwrap();
    let control = UnixListener::bind(&socket).unwrap();
    let mut client = Client::raw_unix(&lab.path("gw"));
    let _greeting: [u8; 18] = client.take().unwrap();
    client.stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x06\0\0\0\x07\0\0\0\x01a\0\0").unwrap();
    let (mut asked, _) = control.accept().unwrap();
    asked.read_exact(&mut [0]).unwrap();
    std::fs::remove_file(&socket).unwrap();
    drop((control, asked));
    let reply: [u8; 20] = client.take().unwrap();
    assert_eq!(reply[12..16], 0x8000_0006u32.to_be_bytes(), "NBD_REP_ERR_UNKNOWN");
    drop(client);
    assert_eq!(said(gateway), "");
}

#[test]
fn the_default_is_the_only_array_and_never_another_than_a_client_may_mean() {
    if !has("a gateway's default export", &["nbdinfo"]) {
        return;
    }
    let lab = three_arrays();
    let all = gateway(&lab, "--nbd unix:gw");
    let default = || script(&lab, &format!("nbdinfo --size '{}'", at_gateway("")));
    assert_ne!(default().code, 0, "there is none");
    let a = lab.serve(A);
    let bytes = a.facts["array_bytes"].to_string();
    assert_eq!(default().ok().out.trim(), bytes);
    let b = lab.serve(B);
    assert_ne!(default().code, 0, "of two");
    b.kill();
    assert_ne!(default().code, 0, "of one and one that was killed");
    assert_eq!(lab.run("stop b").code, 3, "it is forgotten");
    assert_eq!(default().ok().out.trim(), bytes);
    assert_eq!(said(all), "");
    let b = lab.serve(B);
    let named = gateway(&lab, "--nbd unix:gw a");
    assert_eq!(default().ok().out.trim(), bytes);
    assert_eq!(said(named), "");
    let named = gateway(&lab, "--nbd unix:gw a later");
    assert_ne!(default().code, 0, "the other may be meant");
    assert_eq!(said(named), "");
    [a, b].into_iter().for_each(Server::stop);
}

#[test]
fn a_server_that_is_stuck_keeps_no_client_of_others_waiting() {
    if !has("a gateway with a server that is stuck", &["nbdinfo"]) {
        return;
    }
    let lab = three_arrays();
    let (stuck, other) = (lab.serve(A), lab.serve(B));
    let gateway = gateway(&lab, "--nbd unix:gw");
    let mut waiting = joined(&lab, "a");
    stuck.signal("-STOP");
    waiting.send(crate::client::Ask::Read, 0, 1, 0, 512, &[]).unwrap();
    // Those who ask for it meanwhile are still waiting for an answer when others are served.
    let asking = format!("nbdinfo --size '{}' & asked=$!", at_gateway("a"));
    let others = format!("nbdinfo --size '{}'; kill -0 $asked; wait $asked", at_gateway("b"));
    let ran = script(&lab, &format!("{asking}; {others}"));
    assert_eq!(ran.out.trim(), other.facts["array_bytes"].to_string(), "{ran:?}");
    assert!(ran.code != 0 && !ran.err.contains("No such process"), "{ran:?}");
    assert_eq!(listed(&lab), ["b"]);
    stuck.signal("-CONT");
    assert_eq!(waiting.receive().unwrap(), (1, 0));
    let _read: [u8; 512] = waiting.take().unwrap();
    assert_eq!(listed(&lab), ["a", "b"]);
    waiting.disconnect();
    let said = said(gateway);
    assert_eq!(said.matches("a: its server has not answered for 5 s").count(), 1, "{said}");
    [stuck, other].into_iter().for_each(Server::stop);
}

#[test]
fn clients_that_come_all_at_once_are_let_in() {
    let lab = three_arrays();
    let server = lab.serve(A);
    let gateway = gateway(&lab, "--nbd unix:gw");
    let come = std::sync::Barrier::new(64);
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                come.wait();
                let mut client = joined(&lab, "a");
                assert_eq!(client.read(0, 512), Ok(vec![0; 512]));
                client.disconnect();
            });
        }
    });
    assert_eq!(said(gateway), "");
    server.stop();
}

/// A client that asks in an order of its own, and gets what each answer should be.
const HAGGLER: &str = r#"
import socket, struct
def begin(flags):
    global s
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60)
    s.connect("gw")
    take(18)
    s.sendall(struct.pack(">I", flags))
def take(count):
    got = b""
    while len(got) < count:
        more = s.recv(count - len(got))
        assert more, "the end"
        got += more
    return got
def ask(option, data=b""):
    s.sendall(b"IHAVEOPT" + struct.pack(">II", option, len(data)) + data)
    replies = []
    while True:
        magic, to, kind, length = struct.unpack(">QIII", take(20))
        assert (magic, to) == (0x3e889045565a9, option), (magic, to)
        replies.append((kind, take(length)))
        if kind == 1 or kind >> 31:
            return replies
name = lambda name: struct.pack(">I", len(name)) + name
info = lambda of: name(of) + b"\0\0"
context = lambda of: name(of) + struct.pack(">I", 1) + name(b"base:allocation")
kinds = lambda replies: [kind for kind, _ in replies]
UNKNOWN, INVALID = 0x80000006, 0x80000003

begin(3)
assert kinds(ask(6, info(b"a"))) == [3, 1]
assert kinds(ask(10, context(b"a"))) == [INVALID], "without structured replies"
assert kinds(ask(8)) == [1]
assert kinds(ask(10, context(b"a"))) == [4, 1]
assert kinds(ask(6, info(b"b"))) == [3, 1]
assert kinds(ask(10, context(b"nosuch"))) == [UNKNOWN]
assert kinds(ask(6, info(b"\xff"))) == [UNKNOWN]
assert kinds(ask(6, b"\0\0\0\x09a")) == [INVALID]
assert kinds(ask(3, b"x")) == [INVALID]
assert kinds(ask(7, info(b"nosuch"))) == [UNKNOWN]
assert kinds(ask(7, info(b""))) == [UNKNOWN], "of two there is no default"
assert kinds(ask(7, info(b"a"))) == [3, 1]
# Its contexts were not forgotten: block status has a chunk of extents.
s.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 7, 5, 0, 1 << 20))
magic, flags, kind, cookie, length = struct.unpack(">IHHQI", take(20))
assert (magic, kind, cookie) == (0x668e33ef, 5, 5), (magic, kind, cookie)

for flags, zeroes in ((1, 124), (3, 0)):
    begin(flags)
    s.sendall(b"IHAVEOPT" + struct.pack(">II", 1, 1) + b"b")
    size, bits = struct.unpack(">QH", take(10))
    assert take(zeroes) == bytes(zeroes)
    # The request comes in one piece with its end.
    s.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 0, 9, size - 512, 512) + struct.pack(">IHHQQI", 0x25609513, 0, 2, 0, 0, 0))
    assert take(16) == struct.pack(">IIQ", 0x67446698, 0, 9)
    assert take(512) == bytes(512) and s.recv(1) == b""

# All at once: the choice, and what comes behind it.
begin(3)
s.sendall(b"IHAVEOPT" + struct.pack(">II", 7, 7) + info(b"a") + struct.pack(">IHHQQI", 0x25609513, 0, 0, 3, 0, 512))
take(32 + 20)
assert take(16) == struct.pack(">IIQ", 0x67446698, 0, 3)

begin(3)
s.sendall(b"IHAVEOPT" + struct.pack(">II", 1, 6) + b"nosuch")
assert s.recv(1) == b"", "its only error is the end"
"#;

#[test]
fn options_come_in_any_order() {
    if !has("a client that haggles", &["python3"]) {
        return;
    }
    let lab = three_arrays();
    let servers = [lab.serve(A), lab.serve(B)];
    let gateway = gateway(&lab, "--nbd unix:gw");
    std::fs::write(lab.path("haggler.py"), HAGGLER).unwrap();
    script(&lab, "python3 haggler.py").ok();
    let said = said(gateway);
    assert!(said.contains("cut off: the export that was asked for cannot be had"), "{said}");
    servers.into_iter().for_each(Server::stop);
}

#[test]
fn what_was_asked_before_the_end_is_answered() {
    let lab = three_arrays();
    let server = lab.serve(A);
    let mut gateway = gateway(&lab, "--nbd unix:gw");
    let mut client = joined(&lab, "a");
    let mut haggler = UnixStream::connect(lab.path("gw")).unwrap();
    haggler.read_exact(&mut [0; 18]).unwrap();
    // More than goes on, so that some is in each socket, and one has come in part, when it is to end.
    server.signal("-STOP");
    let write = |nth: u64| {
        let header = Client::header(crate::client::Ask::Write, 0, nth, nth * 4096, 4096);
        [&header[..], &[9; 4096]].concat()
    };
    let writes: Vec<u8> = (0..1000).flat_map(write).collect();
    let Stream::Unix(stream) = &mut client.stream else { unreachable!("it is one") };
    stream.set_nonblocking(true).unwrap();
    let mut sent = 0;
    while let Ok(count) = stream.write(&writes[sent..]) {
        sent += count;
    }
    stream.set_nonblocking(false).unwrap();
    let whole = sent / (writes.len() / 1000);
    assert!(whole > 16 && sent < writes.len());
    gateway.signal("-TERM");
    assert!(haggler.read(&mut [0]).is_ok_and(|count| count == 0), "it is let go");
    server.signal("-CONT");
    for nth in 0..whole {
        let answer = client.receive();
        assert!(matches!(answer, Ok((_, 0))), "{nth} of {whole}: {answer:?}");
    }
    assert!(client.is_cut_off());
    drop(client);
    assert_eq!(gateway.end(), (0, String::new()));
    let mut direct = Client::unix(&lab.path("run/a.nbd"));
    assert_eq!(direct.read(0, whole * 4096), Ok(vec![9; whole * 4096]));
    direct.disconnect();
    server.stop();
}

#[test]
fn a_gateway_that_cannot_listen_says_why() {
    let lab = Lab::new(&[]);
    std::fs::write(lab.path("file"), "precious").unwrap();
    for (line, code, told) in [
        ("gateway", 2, "--nbd"),
        ("gateway --nbd unix:gw --nbd unix:./gw", 2, "given twice"),
        ("gateway --nbd nbd://127.0.0.1:0/data", 2, "exports are called as the arrays are"),
        ("gateway --nbd unix:file", 1, "is no socket"),
        ("gateway --nbd unix:gw --tls-certificates nosuch", 1, "nosuch"),
    ] {
        let ran = lab.run(line);
        assert!(ran.code == code && ran.err.contains(told), "{line}: {ran:?}");
    }
    let gateway = gateway(&lab, "--nbd unix:gw");
    let again = lab.run("gateway --nbd unix:gw");
    assert!(again.code == 1 && again.err.contains("another server listens there"), "{again:?}");
    gateway.stop();
    assert_eq!(lab.read("file"), b"precious");
}
