//! Promise: a server outlives its clients, whatever becomes of them: NBD over Unix sockets, TCP and TLS, in whole blocks
//! and not, some of them by way of a gateway, a file by FUSE and a virtual machine's disk are killed and come again for
//! hours, each finds what it was told is written, and server and gateway have no more memory and descriptors than before.

use crate::nbd::{CERTIFICATES, has, port, script};
use crate::support::virtual_disk::VirtualDisk;
use crate::support::{Lab, Server, draw, exists, not_run};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CLIENT: &str = include_str!("soak_serve.py");
/// All but the one of vhost-user.
const CLIENTS: u64 = 63;
/// Of 4096 bytes or less for each client, one after the other's.
const BLOCKS: u64 = 64;
/// Growth of the servers' memory that is none: what the allocator and the kernel keep.
const SLACK_BYTES: u64 = 8 << 20;

/// What one client does, and where.
struct Place {
    kind: &'static str,
    at: String,
    block: u64,
}

fn place(lab: &Lab, nth: u64, port: u16) -> Place {
    let unix = format!("nbd+unix:///data?socket={}", lab.path("sock").display());
    let tcp = format!("nbd://127.0.0.1:{port}/data");
    let tls =
        format!("nbds://localhost:{port}/data?tls-certificates={}", lab.path("pki").display());
    let joined = format!("nbd+unix:///data?socket={}", lab.path("gw").display());
    let file = lab.path("file").display().to_string();
    let (kind, at, block) = match nth % 8 {
        0 | 1 => ("nbd", unix, 4096),
        2 => ("nbd", unix, 1000),
        3 => ("nbd", tcp, 4096),
        4 => ("nbd", tls, 4096),
        5 => ("nbd", tls, 777),
        6 => ("nbd", joined, 4096),
        _ => ("file", file, 4096),
    };
    Place { kind, at, block }
}

fn start(lab: &Lab, nth: u64, place: &Place, how: &str) -> Child {
    let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default());
    let said = std::fs::File::create(lab.path(&format!("said{nth}"))).unwrap();
    let mut command = lab.command("python3");
    command.arg(lab.path("client.py")).args([place.kind, &place.at, &nth.to_string()]);
    command.args([&BLOCKS.to_string(), &place.block.to_string()]);
    command.arg(lab.path(&format!("state{nth}"))).arg(how).env("PATH", path);
    command.stdout(Stdio::null()).stderr(said).spawn().unwrap()
}

/// Resident memory and open descriptors of some processes.
fn holdings(pids: &[u64]) -> (u64, usize) {
    let of = |pid: &u64| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        (kib << 10, std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count())
    };
    pids.iter().map(of).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// A virtual machine that writes, reads and goes, again and again.
fn machine(lab: &Lab, ends: &AtomicBool, visits: &AtomicU64) {
    let mut seed = 99;
    let mut held = vec![0; BLOCKS as usize];
    while !ends.load(Ordering::Relaxed) {
        let mut disk = VirtualDisk::connect(&lab.path("vhost"), 1);
        for _ in 0..2000 {
            let block = draw(&mut seed) % BLOCKS;
            let at = (CLIENTS * BLOCKS + block) * 4096;
            let found = disk.read(at, 4096, 4096, 0);
            assert_eq!(found, vec![held[block as usize]; 4096], "block {block} of the machine");
            held[block as usize] = draw(&mut seed) as u8;
            disk.write(at, &[held[block as usize]; 4096], 4096, 0);
        }
        visits.fetch_add(1, Ordering::Relaxed);
    }
}

/// Kills clients and brings them back until `until`, or until one ends by itself, which is told; how many, and what the
/// servers held meanwhile.
fn harass(
    lab: &Lab,
    places: &[Place],
    pids: &[u64],
    until: Instant,
) -> (u64, Vec<u64>, Option<String>) {
    let begin = |nth: u64| start(lab, nth, &places[nth as usize], "run");
    let mut clients: Vec<Child> = (0..CLIENTS).map(begin).collect();
    let (mut seed, mut kills, mut memory, mut failed) = (7, 0, Vec::new(), None);
    while failed.is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50 + draw(&mut seed) % 400));
        for (nth, client) in clients.iter_mut().enumerate() {
            if let Some(status) = client.try_wait().unwrap() {
                let said = String::from_utf8_lossy(&lab.read(&format!("said{nth}"))).into_owned();
                failed = Some(format!("client {nth} ended by itself: {status}: {said}"));
            }
        }
        let nth = draw(&mut seed) % CLIENTS;
        let client = &mut clients[nth as usize];
        client.kill().unwrap();
        client.wait().unwrap();
        *client = begin(nth);
        kills += 1;
        memory.push(holdings(pids).0);
    }
    for client in &mut clients {
        client.kill().unwrap();
        client.wait().unwrap();
    }
    (kills, memory, failed)
}

fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

/// Waits until the servers have no more descriptors than they had, or for a minute.
fn settled(pids: &[u64], before: usize) -> usize {
    let began = Instant::now();
    loop {
        let now = holdings(pids).1;
        if now <= before || began.elapsed() > Duration::from_secs(60) {
            return now;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
#[ignore = "make soak-serve HOURS=; a minute without"]
fn clients_of_all_kinds_come_and_are_killed_for_hours() {
    if !has("the soak of a server", &["nbdsh", "openssl", "python3"]) {
        return;
    }
    if !exists("/dev/fuse") {
        return not_run("the soak of a server", "there is no /dev/fuse");
    }
    let hours: f64 =
        std::env::var("LAPSTRAKE_SOAK_HOURS").map_or(1.0 / 60.0, |hours| hours.parse().unwrap());
    let lab = Lab::new(&[64, 64, 64]);
    script(&lab, CERTIFICATES).ok();
    std::fs::write(lab.path("client.py"), CLIENT).unwrap();
    lab.run("create data -l5 -c64 --assume-clean --bitmap internal m0 m1 m2").ok();
    let places = "--nbd unix:sock --nbd 127.0.0.1:0 --fuse file --vhost-user vhost";
    let tls = "--tls-certificates pki --no-tls";
    let server = lab.serve(&format!("m0 m1 m2 --shards 2 {places} {tls}"));
    let mut joins = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    let gateway = Server::start(joins.args(["gateway", "--json", "--nbd", "unix:gw"]));
    soak(&lab, &server, &gateway, Duration::from_secs_f64(hours * 3600.0));
    gateway.stop();
    lab.run("check data").ok();
    let checked = lab.run("wait data --json --timeout 600").json();
    assert_eq!(checked["mismatch_sectors"], 0, "{checked:#}");
    server.stop();
}

fn soak(lab: &Lab, server: &Server, gateway: &Server, time: Duration) {
    let pids = [server, gateway].map(|it| it.facts["pid"].as_u64().unwrap());
    let (ends, visits) = (AtomicBool::new(false), AtomicU64::new(0));
    let places: Vec<Place> = (0..CLIENTS).map(|nth| place(lab, nth, port(server))).collect();
    (0..CLIENTS).for_each(|nth| lab.file(&format!("state{nth}"), BLOCKS * 24));
    let (_, descriptors) = holdings(&pids);
    let (kills, memory, failed) = std::thread::scope(|scope| {
        let machine = scope.spawn(|| machine(lab, &ends, &visits));
        let harassed = harass(lab, &places, &pids, Instant::now() + time);
        ends.store(true, Ordering::Relaxed);
        machine.join().unwrap();
        harassed
    });
    assert!(failed.is_none(), "{}", failed.unwrap_or_default());
    let left = settled(&pids, descriptors);
    for (nth, place) in (0..).zip(&places) {
        let ended = start(lab, nth, place, "check").wait().unwrap();
        let said = String::from_utf8_lossy(&lab.read(&format!("said{nth}"))).into_owned();
        assert!(ended.success(), "client {nth}: {said}");
    }
    let work = lab.run("detail --json data").ok().json()["work"]["requests"].clone();
    let quarter = memory.len() / 4;
    let early = median(&memory[quarter..2 * quarter]);
    let late = median(&memory[memory.len() - quarter.max(1)..]);
    println!(
        "soak: {} s, 64 clients, {kills} kills, {} machines, {work} requests; resident {early} bytes in the second \
         quarter, {late} in the last; descriptors {descriptors} before, {left} after",
        time.as_secs(),
        visits.load(Ordering::Relaxed),
    );
    assert!(late <= early + SLACK_BYTES, "memory grew from {early} to {late} bytes");
    assert!(left <= descriptors, "{left} descriptors are open, {descriptors} were before");
}
