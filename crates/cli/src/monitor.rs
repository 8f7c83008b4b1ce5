//! `lapstrake monitor`: what changed on the served arrays since the last look, for a program to pass on.

mod changes;

use crate::exit::{Exit, Failure, Outcome};
use crate::status::view::View;
use crate::target::Place;
use changes::{Event, Message, changes, new};
use lapstrake_host::control::{self, ControlError};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tracing::error;

const HELP: &str = "\
Examples:
  lapstrake monitor --oneshot
  lapstrake monitor --oneshot --program /etc/lapstrake/event
  lapstrake monitor --oneshot --test --program ./event    # is the program run?

Events, by mdadm's names:
  NewArray           an array is served that was not at the last look
  DeviceDisappeared  one is served no longer: it was stopped, or its server was killed or crashed
  DegradedArray      an array lacks members, and no Fail told of that
  Fail               a member that was in sync is faulty or gone
  FailSpare          a spare, or a member that was being rebuilt, is faulty
  SpareActive        a member is in sync that was not: rebuilt, or re-added
  SparesMissing      an array has fewer spares than at the last look
  RebuildStarted     a recovery, resync, check or repair runs
  Rebuild20 ... 80   it has come so many per cent further
  RebuildFinished    it runs no more: done, failed or interrupted
  TestMessage        of each array, with --test

Exit codes:
  0  looked; all events were passed on
  1  a server did not answer, the program failed, or the state could not be read or written: what was not
     passed on is told again at the next look
  2  usage";

/// Servers that do not answer within this are told of.
const PATIENCE: Duration = Duration::from_secs(30);
/// The version of the state's file.
const VERSION: u32 = 1;

/// Tell what changed on all served arrays since the last look, in mdadm's words.
///
/// What is told is printed; with --program it is run for each event as mdadm does it: with the event's name, the array's,
/// and the member's if it is about one (of RebuildFinished after a check perhaps 'mismatches found: N'). The first look
/// tells of each array as of a new one. Meant for a timer: lapstrake-monitor.timer.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Look once, and end
    #[arg(long, required = true)]
    oneshot: bool,
    /// Run this for each event; it is one program, without arguments of its own
    #[arg(short, long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
    /// Where it is kept what was seen [default: monitor.json beside the control sockets]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Tell a TestMessage of each array, too
    #[arg(short, long)]
    test: bool,
    #[command(flatten)]
    place: Place,
    /// Report in JSON
    #[arg(long)]
    pub json: bool,
}

/// What was seen at the last look.
#[derive(Deserialize, Serialize)]
struct Seen {
    version: u32,
    arrays: BTreeMap<String, View>,
}

/// What there is to tell of an array, and how it stands then; none if it is gone.
struct News {
    name: String,
    events: Vec<Event>,
    now: Option<View>,
}

pub fn run(args: &Args) -> Outcome {
    let dir = args.place.dir();
    let file = args.state.clone().unwrap_or_else(|| dir.join("monitor.json"));
    let _lock = lock(&file)?;
    let mut seen = read(&file)?;
    let (news, mut failures) = look(&dir, &seen, args.test)?;
    let mut told = Vec::new();
    for News { name, events, now } in news {
        let messages = events.iter().map(|event| event.of(&name));
        match pass_on(args, messages.collect(), &mut told) {
            Ok(()) => {
                match now {
                    Some(now) => seen.arrays.insert(name, now),
                    None => seen.arrays.remove(&name),
                };
            }
            Err(failure) => failures.push(failure),
        }
    }
    write(&file, &seen).map_err(|error| fault(&file, "cannot write what was seen", &error))?;
    if args.json {
        outln!("{:#}", json!({ "events": told, "errors": failures }));
    }
    failures.iter().for_each(|failure| error!("{failure}"));
    Ok(if failures.is_empty() { Exit::Done } else { Exit::Failed })
}

/// All arrays that are served, and those that were. One whose server does not answer stays as it was.
fn look(dir: &Path, seen: &Seen, is_test: bool) -> Result<(Vec<News>, Vec<String>), ControlError> {
    let (mut news, mut failures) = (Vec::new(), Vec::new());
    let mut names = control::served(dir)?;
    names.extend(
        seen.arrays.keys().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>(),
    );
    for name in names {
        let before = seen.arrays.get(&name);
        let now = match control::ask_detail(dir, &name, Some(PATIENCE)) {
            // Long lists, which no event is about.
            Ok(now) => Some(View { mismatches: Vec::new(), ..now }),
            Err(ControlError::NotServed { .. } | ControlError::Vanished { .. }) => None,
            Err(error) => {
                failures.push(error.to_string());
                continue;
            }
        };
        let mut events = match (before, &now) {
            (None, Some(now)) => new(now),
            (Some(before), Some(now)) => changes(before, now),
            (Some(_), None) => vec![Event::DeviceDisappeared],
            (None, None) => continue,
        };
        events.extend((is_test && now.is_some()).then_some(Event::TestMessage));
        news.push(News { name, events, now });
    }
    Ok((news, failures))
}

/// Prints, and tells the program; an array's events go together: the first that fails ends it.
fn pass_on(args: &Args, messages: Vec<Message>, told: &mut Vec<Message>) -> Result<(), String> {
    for message in messages {
        if !args.json {
            let member = message.member.as_ref().map(|member| format!(": {member}"));
            outln!("{}: {}{}", message.array, message.event, member.unwrap_or_default());
        }
        if let Some(program) = &args.program {
            run_program(program, &message)?;
        }
        told.push(message);
    }
    Ok(())
}

fn run_program(program: &Path, message: &Message) -> Result<(), String> {
    let Message { event, array, member } = message;
    let why = |why: &dyn Display| {
        let program = program.display();
        format!("{array}: {event}: {program}: {why}; it is told again at the next look")
    };
    // What it prints is no part of our report.
    let mut command = Command::new(program);
    command.arg(event).arg(array).args(member).stdin(Stdio::null()).stdout(io::stderr());
    let status = command.status().map_err(|error| why(&error))?;
    if status.success() { Ok(()) } else { Err(why(&status)) }
}

/// Keeps other monitors from the state, while the file is open: each would tell what the other tells, and one would undo
/// what the other saw.
fn lock(state: &Path) -> Result<fs::File, Failure> {
    let mut file = state.as_os_str().to_owned();
    file.push(".lock");
    let file = PathBuf::from(file);
    let open = || {
        make_dir(state)?;
        fs::File::options().create(true).truncate(false).write(true).open(&file)
    };
    let opened = open().map_err(|error| fault(&file, "cannot open the lock", &error))?;
    match opened.try_lock() {
        Ok(()) => Ok(opened),
        Err(TryLockError::WouldBlock) => Err(Failure::new(format!(
            "{}: another `lapstrake monitor` is at work with it; nothing was told: look again when that has ended, or \
             name another state with --state",
            state.display()
        ))),
        Err(TryLockError::Error(error)) => Err(fault(&file, "cannot lock it", &error)),
    }
}

fn read(file: &Path) -> Result<Seen, Failure> {
    let text = match fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Seen { version: VERSION, arrays: BTreeMap::new() });
        }
        text => text.map_err(|error| fault(file, "cannot read what was seen", &error))?,
    };
    let seen: Seen = serde_json::from_slice(&text)
        .map_err(|error| fault(file, "is no state of `lapstrake monitor`", &error))?;
    if seen.version != VERSION {
        return Err(fault(file, "is of another version", &seen.version));
    }
    Ok(seen)
}

fn fault(file: &Path, what: &str, why: &dyn Display) -> Failure {
    Failure::new(format!(
        "{}: {what}: {why}; the file was left as it is: name another with --state, or remove it, and each array is told \
         of as a new one",
        file.display()
    ))
}

/// Where a state lies, as a server would make it.
fn make_dir(state: &Path) -> io::Result<()> {
    let dir = state.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Puts the new state in the place of the old: never half of it.
fn write(file: &Path, seen: &Seen) -> io::Result<()> {
    make_dir(file)?;
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    let mut new = fs::File::create(&part)?;
    new.write_all(&serde_json::to_vec(seen)?)?;
    new.sync_all()?;
    fs::rename(&part, file)
}
