//! Where the time of one 4 KiB request goes: `cargo xtask budget`.
//!
//! Every array is served over NBD on a Unix socket beside `nbdkit file`, members on tmpfs, and both answer the same client
//! in turns. Nothing is counted by the servers for this but the member I/Os that they count anyway: the rest is the
//! kernel's, read while the client stays connected, so that it is of these requests and no others: processor time, time
//! for which a thread was ready and had no core (`schedstat`), and how often it slept (`status`), of all threads.
//! System calls are counted by strace in a round of their own, since it slows what it counts.
//!
//! At depth 1 one thread works at a time, so what is left of a request's time when both ends' processor time and their
//! waits for a core are taken off is the time for which neither ran. A wait on purpose would show there. A wake-up does
//! where the kernel counts it to nobody; in a virtual machine a thread that makes a sleeping core wake is counted while the
//! host is at it. A server that looks out before it sleeps works at the same time as its client, and nothing may be left.

use crate::{
    Plan,
    arrays::{Files, Kind, Place, filled, lapstrake, make},
    client::{Ask, Client},
    nbd::Server,
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const KINDS: [Kind; 5] =
    [Kind::Raid0Of4, Kind::Raid1Of2, Kind::Raid5Of4, Kind::Raid6Of6, Kind::Raid10Of4];
const LOADS: [(Ask, usize, &str); 4] = [
    (Ask::Read, 1, "4 KiB random read, depth 1"),
    (Ask::Write, 1, "4 KiB random write, depth 1"),
    (Ask::Read, 4, "4 KiB random read, depth 4"),
    (Ask::Write, 4, "4 KiB random write, depth 4"),
];
const NAME: &str = "budget";

/// Requests of a round, and rounds.
struct Effort {
    requests: usize,
    rounds: usize,
    idle: Duration,
}

/// A server, and what is connected to it.
struct Subject {
    name: &'static str,
    /// Before the server, which may wait for its clients to go.
    client: Client,
    server: Server,
    /// Where its array's counts are asked for.
    control: Option<PathBuf>,
}

/// Counts of a process's threads, or of one: nanoseconds and times.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    ran: f64,
    was_ready: f64,
    slept: f64,
}

/// Of one round, each for one request: microseconds, times, bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    median: f64,
    p99: f64,
    mean: f64,
    server: Counts,
    client: Counts,
    member_reads: f64,
    member_writes: f64,
    member_bytes: f64,
}

/// Prints all tables.
pub(crate) fn print(plan: &Plan) {
    let quick = plan.rounds == 1;
    let effort = Effort {
        requests: if quick { 500 } else { 10_000 },
        rounds: plan.rounds,
        idle: Duration::from_secs(if quick { 1 } else { 60 }),
    };
    let memory = Place::tmpfs();
    let mut tables = LOADS.map(|_| Vec::new());
    for kind in KINDS {
        let files = make(&memory, kind, plan.member_mib);
        let mut subjects = vec![ours(kind, &files), peer(plan, &files)];
        for (table, (ask, depth, _)) in tables.iter_mut().zip(LOADS) {
            for row in measure(&effort, &mut subjects, ask, depth) {
                // The peer's file is the same for each.
                if kind == Kind::Raid0Of4 || row.0 != "nbdkit" {
                    table.push(row);
                }
            }
        }
        if kind == Kind::Raid5Of4 {
            idle(&effort, &subjects[0]);
        }
    }
    for (table, (_, depth, title)) in tables.iter().zip(LOADS) {
        print_table(title, depth, table);
    }
}

fn ours(kind: Kind, files: &Files) -> Subject {
    let (socket, control) = (files.dir.path().join("ours"), files.dir.path().join("control"));
    let mut command = Command::new(lapstrake());
    command.arg("serve").args(&files.members).args(["--name", NAME, "--control-dir"]);
    command.arg(&control).arg("--nbd").arg(format!("unix:{}", socket.display()));
    let server = Server::start(command.stderr(Stdio::null()), &socket);
    let client = Client::connect(&socket);
    Subject { name: kind.name(), server, client, control: Some(control) }
}

fn peer(plan: &Plan, files: &Files) -> Subject {
    let (socket, plain) = (files.dir.path().join("peer"), files.dir.path().join("plain"));
    filled(&plain, plan.member_mib * 3 / 2);
    let mut command = Command::new("nbdkit");
    command.args(["--foreground", "--unix"]).arg(&socket).arg("file").arg(&plain);
    let server = Server::start(command.stderr(Stdio::null()), &socket);
    let client = Client::connect(&socket);
    Subject { name: "nbdkit", server, client, control: None }
}

type Row = (&'static str, Round, Option<BTreeMap<String, f64>>);

/// A row for each subject, from rounds in turns.
fn measure(effort: &Effort, subjects: &mut [Subject], ask: Ask, depth: usize) -> Vec<Row> {
    let mut rounds: Vec<Vec<Round>> = subjects.iter().map(|_| Vec::new()).collect();
    for subject in &mut *subjects {
        subject.client.drive(ask, depth, effort.requests / 5);
    }
    for _ in 0..effort.rounds {
        for (subject, rounds) in subjects.iter_mut().zip(&mut rounds) {
            rounds.push(round(effort, subject, ask, depth));
        }
    }
    let rows = subjects.iter_mut().zip(rounds);
    rows.map(|(subject, rounds)| {
        (subject.name, medians(&rounds), system_calls(effort, subject, ask, depth))
    })
    .collect()
}

fn round(effort: &Effort, subject: &mut Subject, ask: Ask, depth: usize) -> Round {
    let (members, server) = (subject.member_work(), of_process(subject.server.pid()));
    let client = of_thread(Path::new("/proc/thread-self"));
    let mut times = subject.client.drive(ask, depth, effort.requests);
    let client = of_thread(Path::new("/proc/thread-self")).since(client, times.len());
    let server = more(&of_process(subject.server.pid()), &server, times.len());
    let members: Vec<f64> = subject
        .member_work()
        .iter()
        .zip(members)
        .map(|(now, then)| (now - then) / times.len() as f64)
        .collect();
    times.sort_unstable();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    Round {
        median: us(times[times.len() / 2]),
        p99: us(times[times.len() * 99 / 100]),
        mean: times.iter().copied().map(us).sum::<f64>() / times.len() as f64,
        server,
        client,
        member_reads: members[0],
        member_writes: members[1],
        member_bytes: members[2],
    }
}

/// Of the whole server, over a while in which a client is connected that asks for nothing.
fn idle(effort: &Effort, subject: &Subject) {
    let (began, before) = (Instant::now(), of_process(subject.server.pid()));
    std::thread::sleep(effort.idle);
    let seconds = began.elapsed().as_secs_f64();
    let counts = more(&of_process(subject.server.pid()), &before, 1);
    println!(
        "{} that nobody asks, with a client connected, {seconds:.0} s: {:.3} % of a core, {:.1} wake-ups a second\n",
        subject.name,
        counts.ran / 1e4 / seconds,
        counts.slept / seconds,
    );
}

impl Subject {
    /// Reads, writes, and bytes of both.
    fn member_work(&self) -> [f64; 3] {
        let Some(control) = &self.control else { return [0.0; 3] };
        let detail = lapstrake_host::control::ask_detail(control, NAME, None);
        let members = detail.expect("the server tells of its array").members;
        members.iter().fold([0.0; 3], |[reads, writes, bytes], member| {
            let work = member.work;
            let moved = work.read_bytes + work.written_bytes;
            [reads + work.reads as f64, writes + work.writes as f64, bytes + moved as f64]
        })
    }
}

impl Counts {
    /// For each of so many requests: microseconds and times.
    fn since(self, before: Self, requests: usize) -> Self {
        let requests = requests as f64;
        Self {
            ran: (self.ran - before.ran) / 1e3 / requests,
            was_ready: (self.was_ready - before.was_ready) / 1e3 / requests,
            slept: (self.slept - before.slept) / requests,
        }
    }
}

/// By its threads' names in /proc.
fn of_process(pid: u32) -> BTreeMap<PathBuf, Counts> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the server runs").flatten();
    threads.map(|thread| (thread.path(), of_thread(&thread.path()))).collect()
}

/// Of the threads that are there now, for each of so many requests.
fn more(
    now: &BTreeMap<PathBuf, Counts>,
    then: &BTreeMap<PathBuf, Counts>,
    requests: usize,
) -> Counts {
    now.iter().fold(Counts::default(), |sum, (thread, counts)| {
        let more = counts.since(then.get(thread).copied().unwrap_or_default(), requests);
        Counts {
            ran: sum.ran + more.ran,
            was_ready: sum.was_ready + more.was_ready,
            slept: sum.slept + more.slept,
        }
    })
}

/// One that has just ended counts as nothing.
fn of_thread(proc: &Path) -> Counts {
    let read = |name| fs::read_to_string(proc.join(name)).unwrap_or_default();
    let schedstat = read("schedstat");
    let mut words = schedstat.split_whitespace().filter_map(|word| word.parse().ok());
    let status = read("status");
    let slept = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    Counts {
        ran: words.next().unwrap_or(0.0),
        was_ready: words.next().unwrap_or(0.0),
        slept: slept.and_then(|count| count.trim().parse().ok()).unwrap_or(0.0),
    }
}

fn medians(rounds: &[Round]) -> Round {
    let of = |figure: fn(&Round) -> f64| {
        let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    Round {
        median: of(|round| round.median),
        p99: of(|round| round.p99),
        mean: of(|round| round.mean),
        server: Counts {
            ran: of(|round| round.server.ran),
            was_ready: of(|round| round.server.was_ready),
            slept: of(|round| round.server.slept),
        },
        client: Counts {
            ran: of(|round| round.client.ran),
            was_ready: of(|round| round.client.was_ready),
            slept: of(|round| round.client.slept),
        },
        member_reads: of(|round| round.member_reads),
        member_writes: of(|round| round.member_writes),
        member_bytes: of(|round| round.member_bytes),
    }
}

/// By their names, for each request; none where strace cannot count.
fn system_calls(
    effort: &Effort,
    subject: &mut Subject,
    ask: Ask,
    depth: usize,
) -> Option<BTreeMap<String, f64>> {
    let pid = subject.server.pid().to_string();
    let mut strace = Command::new("strace")
        .args(["-f", "-c", "-S", "calls", "-U", "name,calls", "-p", &pid])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let patience = Instant::now() + Duration::from_secs(10);
    while !is_traced(&pid) {
        if Instant::now() > patience || strace.try_wait().is_ok_and(|ended| ended.is_some()) {
            // It may be there no more.
            let _ = strace.kill();
            let _ = strace.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let requests = subject.client.drive(ask, depth, effort.requests / 5).len() as f64;
    let ended = Command::new("kill").args(["-INT", &strace.id().to_string()]).status();
    assert!(ended.is_ok_and(|status| status.success()), "strace can be interrupted");
    let told = strace.wait_with_output().expect("strace ends").stderr;
    let told = String::from_utf8_lossy(&told).into_owned();
    let row = |line: &str| {
        let (name, calls) = line.trim().rsplit_once(char::is_whitespace)?;
        Some((name.trim().to_owned(), calls.parse::<f64>().ok()? / requests))
    };
    // The rest are of threads that do other things.
    Some(
        told.lines()
            .filter_map(row)
            .filter(|&(ref name, calls)| name != "total" && calls >= 0.05)
            .collect(),
    )
}

/// Whether all of its threads are.
fn is_traced(pid: &str) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().all(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
    })
}

fn print_table(title: &str, depth: usize, rows: &[Row]) {
    println!("## {title}\n");
    println!(
        "| | median, µs | 99 % | server ran | client ran | ready, no core | neither ran | server slept | client slept \
         | member reads + writes | KiB copied | system calls |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    let ask = if title.contains("read") { Ask::Read } else { Ask::Write };
    for (name, round, calls) in rows {
        let ready = round.server.was_ready + round.client.was_ready;
        let left = round.mean - round.server.ran - round.client.ran - ready;
        let left = if depth == 1 { format!("{:.1}", left.max(0.0)) } else { "-".into() };
        // The kernel copies what passes a socket in and out, and what a member in memory gives and takes once.
        let member_bytes =
            if *name == "nbdkit" { crate::client::BLOCK as f64 } else { round.member_bytes };
        let copied = (2.0 * ask.socket_bytes() as f64 + member_bytes) / 1024.0;
        let members = match *name {
            "nbdkit" => "-".into(),
            _ => format!("{:.2} + {:.2}", round.member_reads, round.member_writes),
        };
        println!(
            "| {name} | {:.1} | {:.1} | {:.1} | {:.1} | {ready:.1} | {left} | {:.2} | {:.2} | {members} | {copied:.1} | {} |",
            round.median,
            round.p99,
            round.server.ran,
            round.client.ran,
            round.server.slept,
            round.client.slept,
            calls.as_ref().map_or_else(|| "not counted: strace cannot".into(), spelled),
        );
    }
    println!();
}

fn spelled(calls: &BTreeMap<String, f64>) -> String {
    let sum: f64 = calls.values().sum();
    let each: Vec<String> =
        calls.iter().map(|(name, count)| format!("{name} {count:.2}")).collect();
    format!("{sum:.1}: {}", each.join(", "))
}
