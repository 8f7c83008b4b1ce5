//! NBD to others' clients: TLS and whom it lets in, holes that stay holes, and requests of any length.

use crate::support::{Lab, Ran, Server, installed, not_run, pattern};
use std::os::unix::fs::MetadataExt;

/// A certificate authority, a server's certificate, and those of two clients: `backup` and, by its DNS name, `web`.
pub const CERTIFICATES: &str = r#"
set -e
key() { openssl req -newkey "$3" $4 -nodes -keyout "$1" -out "$1.csr" -subj "$2"; }
sign() {
    printf '%b' "$3" > ext
    openssl x509 -req -in "$1.csr" -CA pki/ca-cert.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile ext -out "$2"
}
mkdir -p pki backup web stranger
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -keyout ca-key.pem -out pki/ca-cert.pem \
    -subj /CN=authority -addext basicConstraints=critical,CA:TRUE
key pki/server-key.pem /CN=localhost rsa:2048
sign pki/server-key.pem pki/server-cert.pem 'subjectAltName=DNS:localhost,IP:127.0.0.1'
for client in backup web; do
    cp pki/ca-cert.pem $client/
    key $client/client-key.pem /O=lab/CN=$client-$client ec '-pkeyopt ec_paramgen_curve:P-256'
    sign $client/client-key.pem $client/client-cert.pem "subjectAltName=DNS:$client"
done
cp pki/ca-cert.pem stranger/
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -keyout stranger/client-key.pem \
    -out stranger/client-cert.pem -subj /CN=backup-backup
"#;

pub fn script(lab: &Lab, script: &str) -> Ran {
    // libnbd's Python module belongs to the system's Python.
    let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default());
    Ran::of(lab.command("bash").args(["-c", script]).env("PATH", path).output().unwrap())
}

pub fn has(what: &str, programs: &[&str]) -> bool {
    let lacking = programs.iter().find(|program| !installed(program));
    if let Some(program) = lacking {
        not_run(what, &format!("{program} is not installed"));
    }
    lacking.is_none()
}

/// A RAID5 with certificates beside it.
fn secured(what: &str) -> Option<Lab> {
    if !has(what, &["openssl", "nbdinfo", "nbdcopy", "qemu-img"]) {
        return None;
    }
    let lab = Lab::new(&[32, 32, 32]);
    script(&lab, CERTIFICATES).ok();
    lab.run("create data -l5 -c64 --assume-clean m0 m1 m2").ok();
    Some(lab)
}

/// The port that a server got.
pub fn port(server: &Server) -> u16 {
    let uris = server.facts["exports"].as_array().unwrap();
    let uri = uris.iter().filter_map(|uri| uri.as_str()).find(|uri| uri.contains("127.0.0.1"));
    uri.unwrap().split(['/', ':']).nth(4).unwrap().parse().unwrap()
}

fn over_tls(port: u16, who: &str) -> String {
    format!("nbds://localhost:{port}/data?tls-certificates={who}")
}

#[test]
fn what_goes_over_tls_arrives_and_nothing_is_said_without() {
    let Some(lab) = secured("TLS") else { return };
    let server = lab.serve("m0 m1 m2 --nbd 127.0.0.1:0 --nbd unix:sock --tls-certificates pki");
    let port = port(&server);
    let exports = &server.facts["exports"];
    assert_eq!(exports[0], format!("nbds://127.0.0.1:{port}/data"));
    assert!(exports[1].as_str().unwrap().starts_with("nbd+unix:///data"), "{exports}");
    let bytes = server.facts["array_bytes"].as_u64().unwrap() as usize;
    std::fs::write(lab.path("in"), pattern(3, bytes)).unwrap();
    // Nobody's certificate is asked for; the client finds the server's in order.
    script(&lab, &format!("nbdcopy --flush in '{}'", over_tls(port, "pki"))).ok();
    script(&lab, &format!("nbdcopy '{}' out", over_tls(port, "pki"))).ok();
    assert!(lab.read("out") == pattern(3, bytes), "by nbdcopy");
    let tls = "--object tls-creds-x509,id=tls,dir=pki,endpoint=client --image-opts";
    let place = format!("driver=nbd,host=localhost,port={port},export=data,tls-creds=tls");
    script(&lab, &format!("qemu-img convert {tls} {place} -O raw qemu")).ok();
    assert!(lab.read("qemu") == pattern(3, bytes), "by qemu-img");
    // On TCP nothing goes in the clear, not even a list; on a Unix socket both are served.
    for list in ["", "--list"] {
        let plain = script(&lab, &format!("nbdinfo {list} nbd://127.0.0.1:{port}/data"));
        assert!(plain.code != 0 && !plain.out.contains("export="), "{plain:?}");
    }
    script(&lab, "nbdcopy 'nbd+unix:///data?socket=sock' plain").ok();
    assert!(lab.read("plain") == pattern(3, bytes), "in the clear on a Unix socket");
    let unix = "nbds+unix:///data?socket=sock&tls-certificates=pki";
    let info = script(&lab, &format!("nbdinfo --json '{unix}'"));
    // A Unix socket has no host by which libnbd could know the certificate; TLS itself is agreed on.
    let is_named = info.err.contains("certificate") || info.code == 0;
    assert!(is_named && !info.err.contains("did not support"), "{info:?}");
    server.stop();
}

/// Asks for TLS and, in the same breath and in the clear, for the list of exports.
const EAGER: &str = r#"
import socket, struct, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.settimeout(20)
option = lambda number: b"IHAVEOPT" + struct.pack(">II", number, 0)
s.sendall(struct.pack(">I", 3) + option(5) + option(3))
said = b""
while True:
    try:
        more = s.recv(4096)
    except ConnectionResetError:
        more = b""
    if not more:
        break
    said += more
ack = struct.pack(">QIII", 0x3e889045565a9, 5, 1, 0)
assert said[18:18 + len(ack)] == ack, said
# A fatal alert of TLS, or nothing.
rest = said[18 + len(ack):]
assert rest == b"" or rest[0] == 0x15, rest
"#;

#[test]
fn what_is_said_in_the_clear_behind_the_wish_for_tls_is_not_heard() {
    let Some(lab) = secured("plaintext behind STARTTLS") else { return };
    let mut server = lab.serve("m0 m1 m2 --nbd 127.0.0.1:0 --tls-certificates pki");
    let port = port(&server);
    std::fs::write(lab.path("eager.py"), EAGER).unwrap();
    script(&lab, &format!("python3 eager.py {port}")).ok();
    script(&lab, &format!("nbdinfo --size '{}'", over_tls(port, "pki"))).ok();
    server.signal("-TERM");
    let said = server.end().1;
    assert!(said.contains("TLS failed"), "{said}");
}

#[test]
fn certificates_say_who_may_come() {
    let Some(lab) = secured("TLS with clients' certificates") else { return };
    let may_come = |options: &str, expected: [(&str, bool); 4]| {
        let server =
            lab.serve(&format!("m0 m1 m2 --nbd 127.0.0.1:0 --tls-certificates pki {options}"));
        for (who, may) in expected {
            let ran = script(&lab, &format!("nbdinfo --size '{}'", over_tls(port(&server), who)));
            assert_eq!(ran.code == 0, may, "{options} {who}: {ran:?}");
        }
        let said = {
            let mut server = server;
            server.signal("-TERM");
            server.end().1
        };
        assert_eq!(said.contains("TLS failed"), expected.iter().any(|who| !who.1), "{said}");
    };
    // Without one, without one of the authority's, and two with.
    may_come("", [("pki", true), ("stranger", true), ("backup", true), ("web", true)]);
    let verified = [("pki", false), ("stranger", false), ("backup", true), ("web", true)];
    may_come("--tls-verify-peer", verified);
    let named = [("pki", false), ("stranger", false), ("backup", true), ("web", false)];
    may_come("--tls-allow backup-backup --tls-allow nobody", named);
    let by_dns = [("pki", false), ("stranger", false), ("backup", false), ("web", true)];
    may_come("--tls-allow web", by_dns);
}

#[test]
fn other_machines_are_let_in_only_when_asked() {
    let Some(lab) = secured("TLS on all addresses") else { return };
    let ran = lab.run("serve m0 m1 m2 --nbd 0.0.0.0:0");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("--tls-certificates DIR, or --no-tls"), "{ran:?}");
    assert!(ran.err.contains("nothing was written"), "{ran:?}");
    lab.serve("m0 m1 m2 --nbd 0.0.0.0:0 --no-tls").stop();
    lab.serve("m0 m1 m2 --nbd 0.0.0.0:0 --tls-certificates pki").stop();
    // Offered, and not required.
    let server = lab.serve("m0 m1 m2 --nbd 127.0.0.1:0 --tls-certificates pki --no-tls");
    let port = port(&server);
    for uri in [format!("nbd://127.0.0.1:{port}/data"), over_tls(port, "pki")] {
        script(&lab, &format!("nbdinfo --size '{uri}'")).ok();
    }
    server.stop();
    std::fs::remove_file(lab.path("pki/server-key.pem")).unwrap();
    let ran = lab.run("serve m0 m1 m2 --tls-certificates pki");
    assert!(ran.code == 1 && ran.err.contains("pki/server-key.pem: "), "{ran:?}");
    std::fs::copy(lab.path("backup/client-key.pem"), lab.path("pki/server-key.pem")).unwrap();
    let ran = lab.run("serve m0 m1 m2 --tls-certificates pki");
    assert!(ran.code == 1 && ran.err.contains("server-cert.pem and server-key.pem: "), "{ran:?}");
}

/// Bytes of a file that take room.
fn room(lab: &Lab, name: &str) -> u64 {
    std::fs::metadata(lab.path(name)).unwrap().blocks() * 512
}

/// Writes here and there, across chunks, zeros too, and at the end; some of it is discarded again.
const SPARSE: &str = "
size = h.get_size()
for at in (4096, 700 * 1024, 40 << 20, (size & ~4095) - 65536):
    h.pwrite(bytes(1 + n // 4096 % 255 for n in range(65536)), at)
h.pwrite(bytes(1 << 20), 20 << 20)
h.trim(1 << 20, 40 << 20)
h.flush()";

#[test]
fn a_copy_of_a_sparse_array_is_sparse() {
    if !has("copies of sparse arrays", &["nbdcopy", "qemu-img", "nbdsh"]) {
        return;
    }
    let shapes = [
        (64, "-l linear m0 m1"),
        (64, "-l0 -c64 m0 m1"),
        (64, "-l1 m0 m1"),
        (64, "-l4 -c64 m0 m1 m2"),
        (512, "-l5 -c64 m0 m1 m2"),
        (64, "-l6 -c64 m0 m1 m2 m3"),
        (64, "-l10 -c64 m0 m1 m2 m3"),
        (64, "-l10 -p f2 -c64 m0 m1 m2"),
    ];
    for (mib, shape) in shapes {
        let lab = Lab::new(&[mib; 4]);
        lab.run(&format!("create data --assume-clean {shape}")).ok();
        let members = shape.split_whitespace().filter(|word| word.starts_with('m'));
        let server = lab.serve(&members.collect::<Vec<_>>().join(" "));
        std::fs::write(lab.path("write.py"), SPARSE).unwrap();
        let uri = server.uri();
        script(&lab, &format!("nbdsh -u '{uri}' -c \"$(cat write.py)\"")).ok();
        let read = || {
            let detail = lab.run("detail --json data").ok().json();
            detail["work"]["member_read_bytes"].as_u64().unwrap()
        };
        // Neither looks for zeros in what it reads: nbdcopy is told not to, and qemu-img reads no holes.
        let before = read();
        script(&lab, &format!("nbdcopy -S 0 '{uri}' copied")).ok();
        script(&lab, &format!("qemu-img convert '{uri}' -O raw converted")).ok();
        let taken = read() - before;
        assert!(taken < 16 << 20, "{shape}: copies read {taken} bytes");
        script(&lab, &format!("nbdcopy --no-extents '{uri}' whole")).ok();
        for copy in ["copied", "converted"] {
            let taken = room(&lab, copy);
            assert!(taken < 4 << 20, "{shape}: {copy} takes {taken} bytes");
            lab.other(&format!("cmp whole {copy}")).unwrap().ok();
        }
        server.stop();
    }
}

#[test]
fn what_a_member_lacks_is_no_hole() {
    if !has("holes of degraded arrays", &["nbdinfo", "nbdsh"]) {
        return;
    }
    let lab = Lab::new(&[64, 64, 64, 64]);
    lab.run("create data --assume-clean -l5 -c64 m0 m1 m2").ok();
    let server = lab.serve("m0 m1 m2");
    let write =
        format!("nbdsh -u '{}' -c 'h.pwrite(b\"x\" * (1 << 20), 0); h.flush()'", server.uri());
    script(&lab, &write).ok();
    server.stop();
    let map = |server: &Server| script(&lab, &format!("nbdinfo --map '{}'", server.uri())).ok().out;
    let server = lab.serve("m0 m1 m2");
    assert!(map(&server).contains("hole,zero"), "all members are there");
    // Of the missing member's chunks nothing is known; every second chunk here is another's.
    lab.run("fail data m0").ok();
    let degraded = map(&server);
    assert!(degraded.contains("hole,zero") && degraded.lines().count() > 100, "{degraded}");
    lab.run("remove data m0").ok();
    lab.run("add data m3").ok();
    lab.run("wait data").ok();
    let out = script(&lab, &format!("nbdcopy '{}' out", server.uri()));
    out.ok();
    assert!(lab.read("out")[..1 << 20].iter().all(|&byte| byte == b'x'));
    server.stop();
    // What an image lacks cannot be read, so nobody knows that it is zeros; what an overlay has, the file does not show.
    std::fs::write(
        lab.path("map"),
        "0x0 ? 1\n0x0 0x3000000 +\n0x3000000 0x100000 -\n0x3100000 0xf00000 +\n",
    )
    .unwrap();
    let server = lab.serve("m1 m2 m3 --read-only --ddrescue-map m1=map");
    let partly = map(&server);
    assert!(partly.contains("hole,zero") && partly.lines().count() > 100, "{partly}");
    server.stop();
    let server = lab.serve("m1 m2 m3 --overlay cow");
    assert!(!map(&server).contains("hole"), "an overlay is not asked");
    server.stop();
}

/// Writers of bytes that share blocks, from many connections, beside writers of whole blocks.
const RACE: &str = r#"
import nbd, os, random, sys
uri, nth, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
h = nbd.NBD()
h.set_request_block_size(False)
h.set_strict_mode(0)
h.connect_uri(uri)
lane = 100
draw = random.Random(nth)
mine = {}
for _ in range(rounds):
    row = draw.randrange(200)
    # Lanes of 100 bytes, which share sectors with their neighbours.
    at = row * 1600 + nth * lane
    data = bytes([draw.randrange(1, 256)]) * lane
    h.pwrite(data, at, nbd.CMD_FLAG_FUA if draw.random() < .1 else 0)
    mine[at] = data
    if draw.random() < .2:
        h.zero(lane, at)
        mine[at] = bytes(lane)
    assert h.pread(lane, at) == mine[at], at
h.flush()
for at, data in mine.items():
    assert h.pread(lane, at) == data, at
"#;

#[test]
fn bytes_of_one_block_written_by_many_are_all_there() {
    if !has("writes of parts of blocks", &["nbdsh"]) {
        return;
    }
    for shape in ["-l0 -c4", "-l1", "-l5 -c4", "-l6 -c4 m3", "-l10 -c4"] {
        let lab = Lab::new(&[32, 32, 32, 32]);
        lab.run(&format!("create data --assume-clean m0 m1 m2 {shape}")).ok();
        let server = lab.serve("m0 m1 m2 m3 --shards 3 --nbd unix:sock --nbd 127.0.0.1:0");
        std::fs::write(lab.path("race.py"), RACE).unwrap();
        let tcp = format!("nbd://127.0.0.1:{}/data", port(&server));
        let race = format!(
            "set -e; for n in $(seq 0 15); do \
             uri='nbd+unix:///data?socket=sock'; [ $((n % 3)) = 0 ] && uri={tcp}; \
             python3 race.py $uri $n 150 & pids=\"$pids $!\"; done; for p in $pids; do wait $p; done"
        );
        script(&lab, &race).ok();
        if shape.contains('5') || shape.contains('6') || shape.contains("l1") {
            lab.run("check data").ok();
            let checked = lab.run("wait data --json --timeout 60").json();
            assert_eq!(checked["mismatch_sectors"], 0, "{shape}: {checked:#}");
        }
        server.stop();
    }
}
