//! Programs of others as clients: started, waited for or stopped, and what they print read.
//!
//! Output that the importers know is read by them, so that a figure means the same whether the lab ran the program or
//! somebody else did.

pub(crate) mod pgbench;

use crate::import::Tool;
use crate::plan::{Load, Program, Workload};
use crate::record::{Phase, Unit};
use crate::subject::obstacle::find_program;
use crate::subject::steps::{bound, shown};
use crate::workload::drive::{INTERRUPTED, Stop};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const PACE: Duration = Duration::from_millis(20);
/// In the work directory: the group of processes of the program that was run last.
const GROUP: &str = "client.group";
/// A program that was told to end has ended by then.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits for the program of a lab that was killed, which may still be clearing up.
pub(crate) fn wait_for_last(work: &Path) {
    let text = fs::read_to_string(work.join(GROUP)).unwrap_or_default();
    let Ok(group) = text.parse::<libc::pid_t>() else { return };
    let until = Instant::now() + PATIENCE;
    // SAFETY: sends nothing, asks only whether somebody is there.
    while unsafe { libc::kill(-group, 0) } == 0 && Instant::now() < until {
        std::thread::sleep(PACE);
    }
}

/// A program's figures and its own words.
pub(crate) struct Told {
    pub phases: Vec<Phase>,
    pub raw: String,
}

/// Runs a program to its end, in a directory that is not on the subject; what it printed.
///
/// # Errors
/// What it said on stderr, or that it was stopped.
pub(crate) fn run(words: &[String], work: &Path, stop: &Stop) -> Result<String, String> {
    let (program, arguments) = words.split_first().ok_or("a command without words")?;
    let path = find_program(program)
        .ok_or_else(|| format!("{program} is not installed; `make setup` installs it"))?;
    let file = |name: &str| {
        let path = work.join(name);
        File::create(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let mut command = Command::new(path);
    command
        .args(arguments)
        .current_dir(work)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(file("client.out")?)
        .stderr(file("client.err")?);
    let mut child =
        bound(&mut command).spawn().map_err(|error| format!("cannot run {program}: {error}"))?;
    // Whoever finds a killed lab's work waits for this one's end.
    let note = work.join(GROUP);
    fs::write(&note, child.id().to_string())
        .map_err(|error| format!("{}: {error}", note.display()))?;
    let status: ExitStatus = loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            break status;
        }
        if stop.is_set() {
            // SAFETY: a group of our own making, whose leader was not waited for yet.
            unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGTERM) };
            child.wait().map_err(|error| error.to_string())?;
            return Err(INTERRUPTED.into());
        }
        std::thread::sleep(PACE);
    };
    let said = |name: &str| {
        fs::read(work.join(name)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    let (output, complaint) = (said("client.out"), said("client.err"));
    let output = output.map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(output);
    }
    let complaint = complaint.unwrap_or_default();
    Err(format!("{} ended ({status}): {}{}", shown(words), complaint.trim(), output.trim()))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The commands of a load that a program of others is; of others none. `path` is the array's, be it a directory, a device
/// or a file.
pub(crate) fn commands(workload: &Workload, path: &Path, work: &Path) -> Vec<Vec<String>> {
    match &workload.load {
        Load::Io(_) | Load::Like(_) => Vec::new(),
        Load::Program(Program::Fio { .. }) => vec![fio_command(&work.join(JOB))],
        Load::Program(Program::Bonnie { arguments }) => vec![bonnie_command(arguments, path)],
        Load::Program(Program::Hdparm) => vec![hdparm_command(path)],
        Load::Program(program @ Program::Pgbench { .. }) => pgbench::settings(program)
            .map_or_else(Vec::new, |settings| pgbench::commands(path, work, workload, settings)),
    }
}

const JOB: &str = "job.fio";
/// Characters of output that an error repeats.
const PRINTED_MAX: usize = 2000;

fn fio_command(job: &Path) -> Vec<String> {
    words(&["fio", "--output-format=json+", &job.display().to_string()])
}

/// Runs fio with a job file, on a file or device or in a directory.
pub(crate) fn fio(job: &str, path: &Path, work: &Path, stop: &Stop) -> Result<Told, String> {
    let place = if path.is_dir() { "directory" } else { "filename" };
    // Sections may repeat; what a job says itself comes later and counts.
    let text = format!("[global]\n{place}={}\n{job}", path.display());
    let file = work.join(JOB);
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    let raw = run(&fio_command(&file), work, stop)?;
    read(Tool::Fio, raw)
}

fn bonnie_command(arguments: &[String], directory: &Path) -> Vec<String> {
    let mut command = words(&["bonnie++", "-q", "-d", &directory.display().to_string()]);
    if crate::subject::obstacle::is_root() {
        command.extend(words(&["-u", "root"]));
    }
    command.extend(arguments.iter().cloned());
    command
}

/// Runs bonnie++ in a directory.
pub(crate) fn bonnie(
    arguments: &[String],
    directory: &Path,
    work: &Path,
    stop: &Stop,
) -> Result<Told, String> {
    let raw = run(&bonnie_command(arguments, directory), work, stop)?;
    read(Tool::Bonnie, raw)
}

/// A phase's name: with the number of its job, if there are several.
pub(crate) fn phase_name(is_several: bool, index: usize, name: &str) -> String {
    if is_several { format!("{} {name}", index + 1).trim().to_owned() } else { name.to_owned() }
}

fn read(tool: Tool, raw: String) -> Result<Told, String> {
    let told = tool.parse(&raw).map_err(|error| {
        let printed: String = raw.trim().chars().take(PRINTED_MAX).collect();
        format!("{}'s output: {error}; it printed: {printed}", tool.name())
    })?;
    let several = told.len() > 1;
    let mut phases = Vec::new();
    for (index, one) in told.into_iter().enumerate() {
        // fio's jobs, bonnie++'s repeats.
        phases.extend(one.phases.into_iter().map(|mut phase| {
            phase.name = phase_name(several, index, &phase.name);
            phase
        }));
    }
    Ok(Told { phases, raw })
}

fn hdparm_command(device: &Path) -> Vec<String> {
    words(&["hdparm", "-t", &device.display().to_string()])
}

/// Runs `hdparm -t` on a device.
pub(crate) fn hdparm(device: &Path, work: &Path, stop: &Stop) -> Result<Told, String> {
    let raw = run(&hdparm_command(device), work, stop)?;
    let (megabytes, seconds) =
        hdparm_figures(&raw).ok_or_else(|| format!("hdparm's output: {}", raw.trim()))?;
    let bytes = megabytes * f64::from(1 << 20);
    let mut phase = Phase::new("", bytes / seconds, Unit::BytesPerSecond, seconds);
    phase.read.bytes = bytes as u64;
    Ok(Told { phases: vec![phase], raw })
}

/// Megabytes (of 2^20) and seconds of a line like ` Timing buffered disk reads: 320 MB in  3.01 seconds = 106.32 MB/sec`.
fn hdparm_figures(text: &str) -> Option<(f64, f64)> {
    let line = text.lines().find(|line| line.contains("disk reads"))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "MB")?;
    let megabytes = words.get(at.checked_sub(1)?)?.parse().ok()?;
    let seconds = words.get(at + 2)?.parse().ok()?;
    Some((megabytes, seconds)).filter(|(_, seconds)| *seconds > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hdparms_line_is_read() {
        let text =
            "\n/dev/md0:\n Timing buffered disk reads: 320 MB in  3.01 seconds = 106.32 MB/sec\n";
        assert_eq!(hdparm_figures(text), Some((320.0, 3.01)));
        let slow = " Timing buffered disk reads:   2 MB in  3.50 seconds = 585.14 kB/sec\n";
        assert_eq!(hdparm_figures(slow), Some((2.0, 3.5)));
        assert_eq!(hdparm_figures("read() hit EOF - device too small\n"), None);
    }

    #[test]
    fn a_program_that_fails_says_why_and_one_that_is_not_there_is_named() {
        let work = tempfile::tempdir().unwrap();
        let fails = words(&["sh", "-c", "echo so it is >&2; exit 4"]);
        let why = run(&fails, work.path(), &Stop::new()).unwrap_err();
        assert_eq!(why, "sh -c 'echo so it is >&2; exit 4' ended (exit status: 4): so it is");
        let why = run(&words(&["no-such-program"]), work.path(), &Stop::new()).unwrap_err();
        assert_eq!(why, "no-such-program is not installed; `make setup` installs it");
    }

    #[test]
    fn a_stop_ends_a_program() {
        let (work, stop) = (tempfile::tempdir().unwrap(), Stop::new());
        stop.set();
        let why = run(&words(&["sleep", "1000"]), work.path(), &stop).unwrap_err();
        assert_eq!(why, INTERRUPTED);
    }
}
