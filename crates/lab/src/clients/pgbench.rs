//! PostgreSQL on an array: `initdb`, the plan's configuration, a server, `pgbench -i`, `pgbench`, and down again.
//!
//! The server listens on a Unix socket in the work directory alone. It refuses to be root's: then all of it runs as the user
//! `postgres`. Every transaction's latency comes from pgbench's own log (`--log`), which is not on the array.

use super::{Told, run, words};
use crate::plan::{Program, Workload};
use crate::record::{Flow, Latency, Phase, Series, Unit};
use crate::subject::obstacle::{find_program, is_root};
use crate::subject::steps::record;
use crate::workload::drive::Stop;
use crate::workload::recorder::SAMPLE_MS;
use std::cmp::Ordering;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings<'a> {
    pub scale: u32,
    pub clients: u32,
    pub jobs: u32,
    pub mode: &'a str,
    pub configuration: &'a str,
}

/// A plan's settings, if its program is pgbench.
pub(crate) fn settings(program: &Program) -> Option<Settings<'_>> {
    let Program::Pgbench { scale, clients, jobs, mode, configuration, .. } = program else {
        return None;
    };
    Some(Settings { scale: *scale, clients: *clients, jobs: *jobs, mode, configuration })
}

struct Cluster<'a> {
    data: PathBuf,
    /// Socket and logs.
    beside: PathBuf,
    programs: PathBuf,
    work: &'a Path,
    settings: Settings<'a>,
    time: Duration,
}

impl<'a> Cluster<'a> {
    fn new(directory: &Path, work: &'a Path, workload: &Workload, settings: Settings<'a>) -> Self {
        Self {
            data: directory.join("lapstrake-lab-pgdata"),
            beside: work.join("pg"),
            programs: programs().unwrap_or_default(),
            work,
            settings,
            // pgbench counts in seconds.
            time: Duration::from_secs(workload.time.as_secs().max(1)),
        }
    }
}

/// The commands in their order.
pub(crate) fn commands(
    directory: &Path,
    work: &Path,
    workload: &Workload,
    settings: Settings<'_>,
) -> Vec<Vec<String>> {
    let cluster = Cluster::new(directory, work, workload, settings);
    let steps = [
        Step::Initdb,
        Step::Start,
        Step::Createdb,
        Step::Fill,
        Step::Checkpoint,
        Step::Load,
        Step::Stop,
    ];
    steps.map(|step| cluster.command(step)).to_vec()
}

/// Runs it in a directory of the array's filesystem. `during` has the moment at which the load begins.
///
/// # Errors
/// What failed, with the server's log.
pub(crate) fn pgbench(
    directory: &Path,
    work: &Path,
    workload: &Workload,
    settings: Settings<'_>,
    stop: &Stop,
    during: &mut dyn FnMut(),
) -> Result<Told, String> {
    programs().ok_or("PostgreSQL is not installed; `make setup` installs it")?;
    let cluster = Cluster::new(directory, work, workload, settings);
    cluster.make()?;
    let done = cluster.run(stop, during);
    let log = fs::read_to_string(cluster.server_log()).unwrap_or_default();
    cluster.remove()?;
    match done {
        Ok((phase, text)) => {
            Ok(Told { phases: vec![phase], raw: format!("{text}\nserver's log:\n{log}") })
        }
        Err(why) => Err(format!("{why}\nserver's log:\n{log}")),
    }
}

/// Where initdb and postgres are: Debian keeps them out of PATH.
fn programs() -> Option<PathBuf> {
    let mut versions: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|path| path.join("initdb").is_file())
        .collect();
    // By number: 9.6 is older than 15.
    let number =
        |path: &PathBuf| -> Option<f64> { path.parent()?.file_name()?.to_str()?.parse().ok() };
    versions.sort_by(|a, b| number(a).partial_cmp(&number(b)).unwrap_or(Ordering::Equal));
    versions.pop().or_else(|| Some(find_program("initdb")?.parent()?.to_owned()))
}

/// A command of a run.
#[derive(Clone, Copy)]
enum Step {
    Initdb,
    Start,
    Createdb,
    Fill,
    /// What filling left in memory is no part of the load.
    Checkpoint,
    Load,
    Stop,
}

impl Cluster<'_> {
    /// A command, as a user who may run it.
    fn command(&self, step: Step) -> Vec<String> {
        let (data, socket) = (self.data.display().to_string(), self.beside.display().to_string());
        let login = ["--host", &socket, "--username", "lab"];
        let (program, arguments) = match step {
            Step::Initdb => {
                let more = ["--username", "lab", "--auth", "trust", "--encoding", "UTF8"];
                ("initdb", words(&[&["--pgdata", &data], &more[..]].concat()))
            }
            Step::Start => {
                let log = self.server_log().display().to_string();
                ("pg_ctl", words(&["start", "--wait", "--pgdata", &data, "--log", &log]))
            }
            Step::Createdb => ("createdb", words(&[&login[..], &["lab"]].concat())),
            Step::Fill => {
                let scale = self.settings.scale.to_string();
                let fill = ["--initialize", "--quiet", "--scale", &scale];
                ("pgbench", words(&[&fill[..], &login, &["lab"]].concat()))
            }
            Step::Checkpoint => {
                ("psql", words(&[&login[..], &["--command", "CHECKPOINT", "lab"]].concat()))
            }
            Step::Load => ("pgbench", self.load(&login)),
            // Its last checkpoint takes longer than pg_ctl's minute on a slow array.
            Step::Stop => {
                let patience = ["stop", "--wait", "--timeout", "600", "--mode", "fast"];
                ("pg_ctl", words(&[&patience[..], &["--pgdata", &data]].concat()))
            }
        };
        let path = self.programs.join(program).display().to_string();
        let mut command =
            if is_root() { words(&["runuser", "-u", "postgres", "--", &path]) } else { vec![path] };
        command.extend(arguments);
        command
    }

    fn load(&self, login: &[&str]) -> Vec<String> {
        let Settings { clients, jobs, mode, .. } = self.settings;
        let prefix = self.beside.join("transactions").display().to_string();
        let (time, jobs) = (self.time.as_secs().to_string(), jobs.min(clients).to_string());
        let clients = clients.to_string();
        let load = [
            "--client",
            &clients,
            "--jobs",
            &jobs,
            "--time",
            &time,
            "--protocol",
            mode,
            "--log",
            "--log-prefix",
            &prefix,
        ];
        words(&[&load[..], login, &["lab"]].concat())
    }

    fn server_log(&self) -> PathBuf {
        self.beside.join("server.log")
    }

    /// Makes its directories. One that is there already is somebody's.
    fn make(&self) -> Result<(), String> {
        let undo = words(&["rm", "-r", "-f", &self.data.display().to_string()]);
        let made = fs::create_dir(&self.data).and_then(|()| record(self.work, &undo));
        made.and_then(|()| fs::create_dir_all(&self.beside))
            .map_err(|error| format!("{}: {error}; it was left as it is", self.data.display()))
    }

    fn run(&self, stop: &Stop, during: &mut dyn FnMut()) -> Result<(Phase, String), String> {
        for directory in [&self.data, &self.beside] {
            self.give(directory, stop)?;
        }
        let call = |step, stop: &Stop| run(&self.command(step), self.work, stop);
        call(Step::Initdb, stop)?;
        self.configure()?;
        // The server is nobody's child: a lab that is killed leaves it to the next.
        record(self.work, &self.command(Step::Stop))
            .map_err(|error| format!("{}: {error}", self.work.display()))?;
        call(Step::Start, stop)?;
        let measured = self.measure(&|step| call(step, stop), during);
        // A stop of the lab must not keep the server from being stopped.
        let down = call(Step::Stop, &Stop::new());
        let measured = measured?;
        down?;
        Ok(measured)
    }

    fn configure(&self) -> Result<(), String> {
        let file = self.data.join("postgresql.conf");
        let failed = |error: std::io::Error| format!("{}: {error}", file.display());
        let before = fs::read_to_string(&file).map_err(failed)?;
        let own = format!(
            "\nlisten_addresses = ''\nunix_socket_directories = '{}'\n{}\n",
            self.beside.display(),
            self.settings.configuration
        );
        fs::write(&file, before + &own).map_err(failed)
    }

    /// A directory that PostgreSQL's user may write to, and reach.
    fn give(&self, directory: &Path, stop: &Stop) -> Result<(), String> {
        if !is_root() {
            return Ok(());
        }
        run(&words(&["chown", "postgres:", &directory.display().to_string()]), self.work, stop)?;
        for above in [self.work, self.data.parent().unwrap_or(self.work)] {
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(above, mode)
                .map_err(|error| format!("{}: {error}", above.display()))?;
        }
        Ok(())
    }

    fn measure(
        &self,
        call: &dyn Fn(Step) -> Result<String, String>,
        during: &mut dyn FnMut(),
    ) -> Result<(Phase, String), String> {
        call(Step::Createdb)?;
        call(Step::Fill)?;
        call(Step::Checkpoint)?;
        during();
        let text = call(Step::Load)?;
        let tps = tps(&text).ok_or_else(|| no_tps(&text, self.time))?;
        let mut phase = Phase::new("", tps, Unit::TransactionsPerSecond, self.time.as_secs_f64());
        phase.whole = false;
        self.logged(&mut phase)?;
        Ok((phase, text))
    }

    /// Latencies and the course of time, from pgbench's logs. Requests are transactions, which are neither reads nor
    /// writes: they stand as writes, of no bytes.
    fn logged(&self, phase: &mut Phase) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("pgbench's log: {error}");
        let mut ends = Vec::new();
        for entry in fs::read_dir(&self.beside).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let is_log = path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"transactions"));
            if is_log {
                ends.extend(transactions(&fs::read_to_string(&path).map_err(failed)?));
            }
        }
        let (flow, series) = over_time(&ends);
        phase.write = flow;
        phase.series = series;
        Ok(())
    }

    fn remove(&self) -> Result<(), String> {
        for directory in [&self.data, &self.beside] {
            match fs::remove_dir_all(directory) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(format!("{}: {error}", directory.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The figure that counts: without the time to connect.
fn tps(text: &str) -> Option<f64> {
    let line =
        |mark: &str| text.lines().find(|line| line.starts_with("tps =") && line.contains(mark));
    // Before version 14 there are two, "including" and "excluding connections".
    let line = line("without initial").or(line("excluding")).or(line(""))?;
    line.split_whitespace().nth(2)?.parse().ok()
}

/// Why there is none: pgbench leaves the line out if nothing was done.
fn no_tps(text: &str, time: Duration) -> String {
    if text.contains("actually processed: 0\n") {
        format!("no transaction ended within {} s; give it a longer time", time.as_secs())
    } else {
        format!("pgbench's output has no tps: {text}")
    }
}

/// When each transaction ended, in microseconds after 1970, and how long it took, in microseconds. A line is
/// `client transaction latency script seconds microseconds`.
fn transactions(text: &str) -> Vec<(u64, u64)> {
    let line = |line: &str| {
        let fields: Vec<u64> =
            line.split(' ').map(|word| word.parse().unwrap_or(u64::MAX)).collect();
        let &[_, _, latency, _, seconds, micros, ..] = &fields[..] else { return None };
        (latency < u64::MAX).then_some((seconds * 1_000_000 + micros, latency))
    };
    text.lines().filter_map(line).collect()
}

fn over_time(ends: &[(u64, u64)]) -> (Flow, Series) {
    let sample_us = u64::from(SAMPLE_MS) * 1000;
    let first = ends.iter().map(|(end, latency)| end - latency).min().unwrap_or(0);
    let mut latency = Latency::default();
    let mut requests = Vec::new();
    for (end, took) in ends {
        latency.record(took * 1000);
        let sample = ((end - first) / sample_us) as usize;
        if requests.len() <= sample {
            requests.resize(sample + 1, 0);
        }
        requests[sample] += 1;
    }
    let zeros = vec![0; requests.len()];
    let series = Series {
        interval_ms: SAMPLE_MS,
        read_bytes: zeros.clone(),
        written_bytes: zeros,
        requests,
        marks: Vec::new(),
    };
    let count = ends.len() as u64;
    (Flow { bytes: 0, requests: count, latency: (count > 0).then_some(latency) }, series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_there_is_left_as_it_is() {
        let (there, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = there.path().join("lapstrake-lab-pgdata/PG_VERSION");
        fs::create_dir(file.parent().unwrap()).unwrap();
        fs::write(&file, "15").unwrap();
        let text = "name = \"t\"\n[[array]]\nsystem = \"existing\"\npath = \"/\"\n\
             [[workload]]\nname = \"pg\"\nprogram = \"pgbench\"\n";
        let plan = crate::plan::Plan::parse(text, Path::new("/")).unwrap();
        let crate::plan::Load::Program(program) = &plan.workloads[0].load else { panic!() };
        let settings = settings(program).unwrap();
        let cluster = Cluster::new(there.path(), work.path(), &plan.workloads[0], settings);
        let why = cluster.make().unwrap_err();
        assert!(why.ends_with("File exists (os error 17); it was left as it is"), "{why}");
        assert!(file.exists());
    }

    #[test]
    fn the_figure_is_the_one_without_connecting() {
        let old = "tps = 312.5 (including connections establishing)\ntps = 313.25 (excluding connections establishing)\n";
        assert_eq!(tps(old), Some(313.25));
        let new = "latency average = 1 ms\ntps = 985.7 (without initial connection time)\n";
        assert_eq!(tps(new), Some(985.7));
        assert_eq!(tps("no such thing"), None);
        let none = "number of transactions actually processed: 0\n";
        let why = no_tps(none, Duration::from_secs(3));
        assert_eq!(why, "no transaction ended within 3 s; give it a longer time");
        assert!(no_tps("no such thing", Duration::ZERO).contains("no such thing"));
    }

    #[test]
    fn a_log_becomes_latencies_and_a_course() {
        let text = "0 1 50000 0 100 50000\n1 1 100000 0 100 120000\n0 2 200000 0 100 250000\n0 3 failed 0 100 300000\n";
        let ends = transactions(text);
        assert_eq!(ends.len(), 3);
        let (flow, series) = over_time(&ends);
        assert_eq!(flow.requests, 3);
        assert!(flow.latency.unwrap().max().abs_diff(200_000_000) <= 200_000);
        assert_eq!(series.requests, [1, 1, 1]);
    }
}
