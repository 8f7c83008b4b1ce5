//! Carries out recipes, and takes down what they built.
//!
//! What a step will have made is on record in the work directory before the step begins (a loop device: as soon as
//! losetup has told which one); [`recover`] takes down what a killed run left. A command that fails has made nothing: its
//! undo would meet what others have under that name (a pool, an array), and is not run.

use super::obstacle::find_program;
use super::recipe::{Action, Recipe, Step};
use crate::clients::wait_for_last;
use crate::workload::drive::{INTERRUPTED, Stop};
use lapstrake_host::with_signals;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// A server that is not up by then does not come.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a server is looked for.
const PACE: Duration = Duration::from_millis(5);
/// What is in use for so long stays so.
const BUSY: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });
const RECORD: &str = "undo";

/// What stands.
pub(crate) struct BuiltSubject {
    values: BTreeMap<String, String>,
    undos: Vec<Undo>,
    work: PathBuf,
}

enum Undo {
    Command(Vec<String>),
    Server(Server),
}

/// A server that runs.
pub(crate) struct Server {
    child: Child,
    words: Vec<String>,
    /// What it says.
    log: PathBuf,
}

impl BuiltSubject {
    /// Carries out a recipe. What was built is taken down again if a step fails.
    ///
    /// # Errors
    /// Which step failed, and what it said.
    pub(crate) fn build(recipe: &Recipe, work: &Path, stop: &Stop) -> Result<Self, String> {
        let mut standing =
            Self { values: BTreeMap::new(), undos: Vec::new(), work: work.to_owned() };
        for step in &recipe.steps {
            let done = standing.step(step, stop);
            if let Err(why) = done {
                let more =
                    standing.take_down().err().map_or_else(String::new, |why| format!("\n{why}"));
                return Err(format!("{why}{more}"));
            }
        }
        Ok(standing)
    }

    /// A text with the outputs that were kept in place of their names.
    pub(crate) fn fill_in(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.values {
            text = text.replace(&format!("{{{name}}}"), value);
        }
        text
    }

    fn filled(&self, words: &[String]) -> Vec<String> {
        words.iter().map(|word| self.fill_in(word)).collect()
    }

    /// Servers that run, by process.
    pub(crate) fn servers(&self) -> impl Iterator<Item = u32> {
        self.undos.iter().filter_map(|undo| match undo {
            Undo::Server(server) => Some(server.child.id()),
            Undo::Command(_) => None,
        })
    }

    fn step(&mut self, step: &Step, stop: &Stop) -> Result<(), String> {
        if stop.is_set() {
            return Err(INTERRUPTED.into());
        }
        let keeps = matches!(&step.action, Action::Run { keep: Some(_), .. });
        if !keeps {
            self.keep_undo(step)?;
        }
        match &step.action {
            Action::Directory(path) => {
                fs::create_dir_all(path)
                    .map_err(|error| format!("cannot make {}: {error}", path.display()))?;
            }
            Action::Image { path, bytes } => zeros(path, *bytes, stop)?,
            Action::Run { words, keep } => {
                let words = self.filled(words);
                // What has an undo takes a moment; a resync takes hours.
                let output = match step.undo {
                    Some(_) => run(&words).inspect_err(|_| {
                        if !keeps {
                            self.undos.pop();
                            // It would meet somebody else's.
                            let _ = self.rewrite_record();
                        }
                    }),
                    None => run_until(&words, stop),
                }?;
                if let Some(name) = keep {
                    self.values.insert(name.clone(), output.trim().to_owned());
                }
            }
            Action::Serve { words, ready } => {
                let log =
                    self.work.join(ready.with_extension("log").file_name().unwrap_or_default());
                let server = Server::start(&self.filled(words), log, ready)?;
                self.undos.push(Undo::Server(server));
            }
        }
        if keeps { self.keep_undo(step) } else { Ok(()) }
    }

    fn keep_undo(&mut self, step: &Step) -> Result<(), String> {
        let Some(words) = &step.undo else { return Ok(()) };
        let words = self.filled(words);
        record(&self.work, &words).map_err(|error| {
            format!(
                "cannot write {}: {error}; nothing was done that it should tell of",
                self.work.join(RECORD).display()
            )
        })?;
        self.undos.push(Undo::Command(words));
        Ok(())
    }

    /// Takes everything down, last things first, whatever fails.
    ///
    /// # Errors
    /// All that failed.
    pub(crate) fn take_down(mut self) -> Result<(), String> {
        let (mut faults, mut held) = (Vec::new(), Vec::new());
        while let Some(undo) = self.undos.pop() {
            let done = match undo {
                Undo::Command(words) => undo_command(&words).inspect_err(|_| {
                    held.insert(0, Undo::Command(words));
                }),
                Undo::Server(server) => server.stop(),
            };
            faults.extend(done.err());
        }
        self.undos = held;
        faults.extend(self.rewrite_record().err().map(|error| error.to_string()));
        if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
    }

    /// Has the record tell of what is still to be undone, and no more.
    fn rewrite_record(&self) -> io::Result<()> {
        match fs::remove_file(self.work.join(RECORD)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let commands = self.undos.iter().filter_map(|undo| match undo {
            Undo::Command(words) => Some(words),
            Undo::Server(_) => None,
        });
        commands.into_iter().try_for_each(|words| record(&self.work, words))
    }
}

/// Takes down what a run that was killed left standing; what it did.
///
/// # Errors
/// What could not be taken down. It stays on record.
pub(crate) fn recover(work: &Path) -> Result<Vec<String>, String> {
    let path = work.join(RECORD);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(|error| format!("{}: {error}", path.display()))?,
    };
    wait_for_last(work);
    let (mut done, mut held) = (Vec::new(), Vec::new());
    // A line that was being written when the run was killed is of a step that did not begin.
    let entries = text.lines().filter_map(|line| serde_json::from_str::<Entry>(line).ok());
    // A loop device may be somebody else's by now.
    let ours = entries.filter(|entry| disk_at(&entry.words) == entry.disk);
    let mut commands: Vec<Vec<String>> = ours.map(|entry| entry.words).collect();
    if text.lines().next() != Some(&boot()) {
        // Since then the system was started anew: devices' names are others' now, only files are still there.
        commands.retain(|words| words.first().is_some_and(|program| program == "rm"));
    }
    for words in commands.iter().rev() {
        // The step may not have come that far: then there is nothing to undo.
        match undo_command(words) {
            Ok(()) => done.push(words.join(" ")),
            Err(why) if is_busy(&why) => held.push(why),
            Err(why) => done.push(format!("{why} (it may never have been there)")),
        }
    }
    if !held.is_empty() {
        return Err(held.join("\n"));
    }
    fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(done)
}

/// Whether something of a run is still to be taken down.
pub(crate) fn has_left(work: &Path) -> bool {
    work.join(RECORD).exists()
}

/// Notes what takes back what is about to be made, for [`recover`].
pub(crate) fn record(work: &Path, words: &[String]) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(work.join(RECORD))?;
    if file.metadata()?.len() == 0 {
        writeln!(file, "{}", boot())?;
    }
    let entry = Entry { words: words.to_vec(), disk: disk_at(words) };
    writeln!(file, "{}", serde_json::json!(entry))?;
    file.sync_data()
}

/// A line of the record.
#[derive(serde::Serialize, serde::Deserialize)]
struct Entry {
    words: Vec<String>,
    disk: Option<String>,
}

/// Of a device at a command's end, what sets its disk apart from all that had the name before.
fn disk_at(words: &[String]) -> Option<String> {
    let name = words.last()?.strip_prefix("/dev/")?;
    let read = |file: &str| fs::read_to_string(format!("/sys/block/{name}/{file}")).ok();
    // Before Linux 5.15 the file behind a loop device has to do.
    read("diskseq").or_else(|| read("loop/backing_file"))
}

/// What sets this start of the system apart from others.
fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("boot {}", id.trim())
}

/// Runs an undo. Filesystems may be busy for a moment after their last user has gone, and arrays while udev looks at them.
fn undo_command(words: &[String]) -> Result<(), String> {
    let until = Instant::now() + BUSY;
    loop {
        match run(words) {
            Ok(_) => return Ok(()),
            Err(why) if !is_busy(&why) || Instant::now() > until => return Err(why),
            Err(_) => std::thread::sleep(PACE * 10),
        }
    }
}

/// Whether somebody uses it still, by what a command said.
fn is_busy(why: &str) -> bool {
    why.contains("busy") || why.contains("exclusive access")
}

/// Runs a command to its end; its output.
pub(crate) fn run(words: &[String]) -> Result<String, String> {
    run_until(words, &Stop::new())
}

/// Runs a command to its end or until everything is to end; its output.
fn run_until(words: &[String], stop: &Stop) -> Result<String, String> {
    let (program, arguments) = words.split_first().ok_or("a command without words")?;
    // System programs are not in everybody's PATH.
    let path = find_program(program).unwrap_or_else(|| program.into());
    let mut command = Command::new(path);
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null());
    let child = bound(command.stdout(Stdio::piped()).stderr(Stdio::piped())).spawn();
    let child = child.map_err(|error| format!("cannot run {program}: {error}"))?;
    let (output, stopped) = output_until(child, stop);
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    if stopped {
        return Err(INTERRUPTED.into());
    }
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Err(format!("{} failed ({}): {}", shown(words), output.status, said.trim()))
}

/// What a command printed, and whether it was asked to end.
fn output_until(child: Child, stop: &Stop) -> (io::Result<Output>, bool) {
    let group = child.id() as libc::pid_t;
    let (done, ended) = mpsc::channel();
    std::thread::scope(|scope| {
        // Nobody hangs up before the end.
        scope.spawn(move || done.send(child.wait_with_output()));
        let mut stopped = false;
        loop {
            match ended.recv_timeout(PACE * 10) {
                Ok(output) => return (output, stopped),
                Err(RecvTimeoutError::Disconnected) => {
                    return (Err(io::Error::other("it cannot be waited for")), stopped);
                }
                Err(RecvTimeoutError::Timeout) if stop.is_set() && !stopped => {
                    stopped = true;
                    // SAFETY: a group of our own making; it ends in a moment at the earliest, and numbers are not used
                    // again so soon.
                    unsafe { libc::kill(-group, libc::SIGTERM) };
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    })
}

/// A command as one would type it.
pub(crate) fn shown(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%{}".contains(c);
    let quoted = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

fn zeros(path: &Path, bytes: u64, stop: &Stop) -> Result<(), String> {
    let failed =
        |error: io::Error| format!("cannot write {bytes} bytes to {}: {error}", path.display());
    let mut file = File::create(path).map_err(failed)?;
    let block = vec![0u8; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        if stop.is_set() {
            return Err(INTERRUPTED.into());
        }
        let now = left.min(block.len() as u64) as usize;
        file.write_all(&block[..now]).map_err(failed)?;
        left -= now as u64;
    }
    file.sync_all().map_err(failed)
}

impl Server {
    /// Starts a server and waits until it is ready.
    fn start(words: &[String], log: PathBuf, ready: &Path) -> Result<Self, String> {
        let (program, arguments) = words.split_first().ok_or("a command without words")?;
        let file = File::create(&log)
            .map_err(|error| format!("cannot write {}: {error}", log.display()))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let child = bound(&mut command)
            .spawn()
            .map_err(|error| format!("cannot run {program}: {error}"))?;
        let mut server = Self { child, words: words.to_vec(), log };
        let until = Instant::now() + PATIENCE;
        while !is_ready(ready) {
            if let Some(status) = server.child.try_wait().map_err(|error| error.to_string())? {
                return Err(server.ended(status));
            }
            if Instant::now() > until {
                // Nobody can use it.
                let _ = server.child.kill();
                let _ = server.child.wait();
                return Err(format!(
                    "{}: it is not up after {} s",
                    shown(words),
                    PATIENCE.as_secs()
                ));
            }
            std::thread::sleep(PACE);
        }
        Ok(server)
    }

    fn stop(mut self) -> Result<(), String> {
        // SAFETY: our own child, which was not waited for yet.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(self.ended(status)) }
    }

    fn ended(&self, status: ExitStatus) -> String {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        format!("{} ended ({status}): {}", shown(&self.words), said.trim())
    }
}

/// A command in a group of its own, since Ctrl-C is the lab's, that does not outlive a lab that was killed.
pub(crate) fn bound(command: &mut Command) -> &mut Command {
    // SAFETY: only prctl is called between fork and exec, which is a plain system call.
    unsafe { with_signals(command).process_group(0).pre_exec(end_with_parent) }
}

fn end_with_parent() -> io::Result<()> {
    // SAFETY: sets a flag of this process.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn is_ready(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    match fs::metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => UnixStream::connect(path).is_ok(),
        Ok(meta) => meta.len() > 0,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn step(command: &[&str], keep: Option<&str>, undo: Option<&[&str]>) -> Step {
        let action = Action::Run { words: words(command), keep: keep.map(str::to_owned) };
        Step { action, undo: undo.map(words) }
    }

    fn recipe(steps: Vec<Step>) -> Recipe {
        let target = super::super::Target::Null;
        let (counted, files) = (Vec::new(), Vec::new());
        Recipe { steps, target, device: None, counted, files, control: None, md: None }
    }

    #[test]
    fn outputs_are_put_in_place_of_their_names_and_undone_last_first() {
        let work = tempfile::tempdir().unwrap();
        let log = work.path().join("log");
        let note = |text: &str| format!("echo {text} >> {}", log.display());
        let recipe = recipe(vec![
            step(&["echo", "seven"], Some("x"), Some(&["sh", "-c", &note("un-{x}")])),
            step(&["sh", "-c", &note("do-{x}")], None, Some(&["sh", "-c", &note("un-two")])),
        ]);
        let standing = BuiltSubject::build(&recipe, work.path(), &Stop::new()).unwrap();
        assert_eq!(standing.fill_in("/dev/{x}"), "/dev/seven");
        assert!(work.path().join(RECORD).exists());
        standing.take_down().unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "do-seven\nun-two\nun-seven\n");
        assert!(!work.path().join(RECORD).exists());
    }

    #[test]
    fn a_step_that_fails_has_what_came_before_taken_down() {
        let work = tempfile::tempdir().unwrap();
        let made = work.path().join("made");
        let made = made.to_str().unwrap();
        let recipe = recipe(vec![
            step(&["touch", made], None, Some(&["rm", made])),
            step(&["sh", "-c", "echo no room >&2; exit 3"], None, None),
        ]);
        let why = BuiltSubject::build(&recipe, work.path(), &Stop::new()).err().unwrap();
        assert_eq!(why, "sh -c 'echo no room >&2; exit 3' failed (exit status: 3): no room");
        assert!(!Path::new(made).exists());
    }

    #[test]
    fn what_a_killed_run_left_is_taken_down_by_the_next() {
        let work = tempfile::tempdir().unwrap();
        let made = work.path().join("made");
        let made = made.to_str().unwrap();
        let recipe = recipe(vec![step(&["touch", made], None, Some(&["rm", made]))]);
        // As after a kill: nobody takes it down.
        std::mem::forget(BuiltSubject::build(&recipe, work.path(), &Stop::new()).unwrap());
        assert_eq!(recover(work.path()).unwrap(), [format!("rm {made}")]);
        assert!(!Path::new(made).exists());
        assert!(recover(work.path()).unwrap().is_empty());
    }

    #[test]
    fn what_is_in_use_stays_on_record() {
        let work = tempfile::tempdir().unwrap();
        let busy = work.path().join("busy");
        fs::write(&busy, "").unwrap();
        let undo =
            ["sh", "-c", "! test -e \"$0\" || { echo busy; exit 1; }", busy.to_str().unwrap()];
        let recipe = recipe(vec![step(&["true"], None, Some(&undo))]);
        std::mem::forget(BuiltSubject::build(&recipe, work.path(), &Stop::new()).unwrap());
        assert!(recover(work.path()).unwrap_err().contains("busy"));
        assert!(has_left(work.path()));
        fs::remove_file(&busy).unwrap();
        assert_eq!(recover(work.path()).unwrap().len(), 1);
        assert!(!has_left(work.path()));
    }

    #[test]
    fn a_long_command_ends_when_everything_does() {
        let (work, stop) = (tempfile::tempdir().unwrap(), Stop::new());
        let recipe = recipe(vec![step(&["sleep", "1000"], None, None)]);
        let why = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                stop.set();
            });
            BuiltSubject::build(&recipe, work.path(), &stop).err()
        });
        assert_eq!(why.as_deref(), Some(INTERRUPTED));
    }

    #[test]
    fn what_others_have_under_a_name_is_not_undone_because_a_command_refused_it() {
        let work = tempfile::tempdir().unwrap();
        let theirs = work.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        let theirs = theirs.to_str().unwrap();
        // As `zpool create` of a pool that is there.
        let recipe = recipe(vec![step(&["mkdir", theirs], None, Some(&["rmdir", theirs]))]);
        let why = BuiltSubject::build(&recipe, work.path(), &Stop::new()).err().unwrap();
        assert!(why.contains("File exists"), "{why}");
        assert!(Path::new(theirs).exists());
        assert!(!work.path().join(RECORD).exists());
    }

    #[test]
    fn after_a_restart_of_the_system_only_files_are_taken_down() {
        let work = tempfile::tempdir().unwrap();
        let (image, device) = (work.path().join("a.img"), work.path().join("device"));
        for path in [&image, &device] {
            fs::write(path, "").unwrap();
        }
        let (file, other) = (image.to_str().unwrap(), device.to_str().unwrap());
        let lines = [
            "boot of yesterday".to_owned(),
            serde_json::json!({ "words": ["rm", "-f", file] }).to_string(),
            serde_json::json!({ "words": ["unlink", other] }).to_string(),
        ];
        fs::write(work.path().join(RECORD), lines.join("\n") + "\n").unwrap();
        assert_eq!(recover(work.path()).unwrap(), [format!("rm -f {file}")]);
        assert!(!image.exists() && device.exists());
    }

    #[test]
    fn a_loop_device_that_has_another_disk_by_now_is_left_alone() {
        let work = tempfile::tempdir().unwrap();
        let detach =
            serde_json::json!({ "words": ["losetup", "--detach", "/dev/no-loop"], "disk": "7" });
        fs::write(work.path().join(RECORD), format!("{}\n{detach}\n", boot())).unwrap();
        assert_eq!(recover(work.path()), Ok(Vec::new()));
        assert!(!has_left(work.path()));
    }

    #[test]
    fn a_server_that_ends_says_why() {
        let work = tempfile::tempdir().unwrap();
        let command = words(&["sh", "-c", "echo no such array >&2; exit 1"]);
        let why = Server::start(&command, work.path().join("log"), &work.path().join("ready"));
        let why = why.err().unwrap();
        assert!(why.ends_with("ended (exit status: 1): no such array"), "{why}");
    }
}
