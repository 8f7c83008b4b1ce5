//! `lapstrake lab check` and `lapstrake lab run`.

use super::StoreArgs;
use crate::exit::{Exit, Failure, Outcome};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lapstrake_lab::plan::Plan;
use lapstrake_lab::record::{Phase, Unit};
use lapstrake_lab::report::{Report, glance};
use lapstrake_lab::run::{Ending, Event, Leave, Options, Preview, Stop, Summary, preview};
use lapstrake_lab::store::Store;
use serde_json::json;
use std::io::Write;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CHECK_HELP: &str = "\
Examples:
  lapstrake lab check
  lapstrake lab check plans/overnight.toml
  lapstrake lab check --destroy mine.toml

Exit codes:
  0  the plan can be carried out
  1  a disk may not be written to as things are
  2  the plan is wrong (each error has its line) or cannot be read";

const RUN_HELP: &str = "\
Examples:
  lapstrake lab run
  lapstrake lab run plans/overnight.toml
  lapstrake lab run --destroy --overwrite WD-WCC4N7 mine.toml
  lapstrake lab run --resume mine.toml

Ctrl-C ends it: what is done is kept, what was built is taken down, --resume goes on from there.

Exit codes:
  0  done
  1  it could not be carried out; nothing was started
  2  usage, or the plan is wrong or cannot be read
  3  done in part: interrupted, out of time before the least repeats, or a run failed";

/// Explain a plan: errors by line, else every array, every command and the time it takes.
#[derive(clap::Args)]
#[command(after_long_help = CHECK_HELP)]
pub struct CheckArgs {
    #[command(flatten)]
    pub what: PlanArguments,
}

/// Carry out a plan; each run is kept in the store as soon as it is done.
#[derive(clap::Args)]
#[command(after_long_help = RUN_HELP)]
pub struct RunArgs {
    #[command(flatten)]
    pub what: PlanArguments,
    #[command(flatten)]
    store: StoreArgs,
    /// Go on with the last run of this plan that did not end
    #[arg(long)]
    resume: bool,
    /// Print what would be done and how long it takes; do nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(clap::Args)]
pub struct PlanArguments {
    /// The plan, a TOML file; without one plans/quick.toml, which is built in: the levels on image files, in minutes
    plan: Option<PathBuf>,
    /// Leave to write to disks that the plan calls expendable; `lab check` and `--dry-run` write nowhere
    #[arg(long)]
    destroy: bool,
    /// Leave for such a disk that holds something, by path or serial number; may be repeated
    #[arg(long, value_name = "PATH|SERIAL", requires = "destroy")]
    overwrite: Vec<String>,
    /// Report in JSON
    #[arg(long)]
    pub json: bool,
}

impl PlanArguments {
    fn read(&self) -> Result<Plan, Failure> {
        let Some(path) = &self.plan else { return Ok(Plan::quick()) };
        Plan::read(path).map_err(Failure::usage)
    }

    fn options(&self, resume: bool) -> Result<Options, Failure> {
        Ok(Options {
            lapstrake: std::env::current_exe()?,
            leave: Leave { destroy: self.destroy, overwrite: self.overwrite.clone() },
            resume,
        })
    }
}

pub fn check(args: &CheckArgs) -> Outcome {
    explain(&args.what)
}

fn explain(what: &PlanArguments) -> Outcome {
    let plan = what.read()?;
    let preview = preview(&plan, &what.options(false)?);
    if what.json {
        outln!("{:#}", report(&plan, &preview));
    } else {
        out!("{}", text(&plan, &preview));
    }
    Ok(if preview.faults.is_empty() { Exit::Done } else { Exit::Failed })
}

fn report(plan: &Plan, preview: &Preview) -> serde_json::Value {
    let subject = |subject: &lapstrake_lab::run::SubjectPreview| {
        json!({
            "name": subject.name,
            "tree": subject.tree,
            "commands": subject.commands,
            "workloads": subject.workloads.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            "clients": subject
                .workloads
                .iter()
                .filter(|(_, commands)| !commands.is_empty())
                .map(|(name, commands)| json!({ "workload": name, "commands": commands }))
                .collect::<Vec<_>>(),
        })
    };
    json!({
        "plan": plan.name,
        "subjects": preview.subjects.iter().map(subject).collect::<Vec<_>>(),
        "cases": preview.cases,
        "repeats": plan.rules.repeats,
        "expected_s": preview.expected.as_secs(),
        "faults": preview.faults,
        "notes": preview.notes,
    })
}

fn text(plan: &Plan, preview: &Preview) -> String {
    let mut text = String::new();
    for subject in &preview.subjects {
        text += &format!("{}\n", subject.tree);
        for command in &subject.commands {
            text += &format!("    {command}\n");
        }
        let names: Vec<&str> = subject.workloads.iter().map(|(name, _)| &**name).collect();
        text += &format!("  loads: {}\n", names.join("; "));
        for (name, commands) in subject.workloads.iter().filter(|(_, list)| !list.is_empty()) {
            text += &format!("    {name}:\n");
            commands.iter().for_each(|command| text += &format!("      {command}\n"));
        }
        text.push('\n');
    }
    for note in &preview.notes {
        text += &format!("note: {note}\n");
    }
    for fault in &preview.faults {
        text += &format!("not allowed: {fault}\n");
    }
    text += &format!(
        "{}: {} cases, {} to {} repeats each, about {} with {}",
        plan.name,
        preview.cases,
        plan.rules.repeats,
        plan.rules.repeats_max,
        duration(preview.expected),
        plan.rules.repeats
    );
    if let Some(budget) = plan.rules.budget {
        text += &format!("; it ends after {} at the latest", duration(budget));
    }
    text + "\n"
}

fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

pub fn run(args: &RunArgs) -> Outcome {
    let (json, path) = (args.what.json, &args.store.store);
    if args.dry_run {
        return explain(&args.what);
    }
    let plan = args.what.read()?;
    let options = args.what.options(args.resume)?;
    let stop = Arc::new(Stop::new());
    stop_on_signals(&stop)?;
    outlive_readers();
    let mut store = Store::open(path)?;
    let mut progress = Progress::new(json, &stop);
    let summary = lapstrake_lab::run::run(&plan, &mut store, &options, &stop, &mut |event| {
        progress.show(event);
    });
    progress.bar.finish_and_clear();
    let summary = summary?;
    tell(&plan, args, &summary, json);
    if !json {
        conclude(args, &summary, &store)?;
    }
    let whole = summary.ending == Ending::Done && summary.failures == 0;
    Ok(if whole { Exit::Done } else { Exit::Degraded })
}

fn tell(plan: &Plan, args: &RunArgs, summary: &Summary, json: bool) {
    let ending = match summary.ending {
        Ending::Done => "done",
        Ending::Budget => "out of time",
        Ending::Interrupted => "interrupted",
    };
    if json {
        let report = json!({
            "plan": plan.name,
            "experiment": summary.experiment.0,
            "store": args.store.store.to_string_lossy(),
            "ending": ending,
            "runs": summary.runs,
            "failures": summary.failures,
        });
        outln!("{report:#}");
        return;
    }
    outln!(
        "{}: {ending}, {} runs, {} failed; experiment {} in {}",
        plan.name,
        summary.runs,
        summary.failures,
        summary.experiment.0,
        args.store.store.display()
    );
    if summary.ending == Ending::Interrupted {
        let plan = args.what.plan.as_ref().map(|path| format!(" {}", path.display()));
        let destroy = if args.what.destroy {
            // Its disks hold what the lab made of them now.
            " --destroy --overwrite DISK …"
        } else {
            ""
        };
        outln!(
            "to go on: lapstrake lab run --resume --store {}{destroy}{}",
            args.store.store.display(),
            plan.unwrap_or_default()
        );
    }
}

/// The result at a glance, and the commands that show more of it.
fn conclude(args: &RunArgs, summary: &Summary, store: &Store) -> Result<(), Failure> {
    let Some(stored) = store.load(summary.experiment)? else { return Ok(()) };
    let report = Report::of(&[stored]);
    if report.tables.is_empty() {
        return Ok(());
    }
    let file = args.store.store.display();
    let number = summary.experiment.0;
    outln!("\n{}", glance(&report));
    outln!(
        "next: lapstrake lab report {number} --store {file} -o report.html   # the page, with charts"
    );
    if let [one, other, ..] = &subjects(&report)[..] {
        outln!(
            "      lapstrake lab compare --experiment {number} --store {file} '{one}' '{other}'"
        );
    }
    Ok(())
}

/// Subjects by name, in the order of the first load's table.
fn subjects(report: &Report) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (_, line) in report.tables.iter().flat_map(|table| table.real_lines()) {
        if !names.contains(&line.subject.name) {
            names.push(line.subject.name.clone());
        }
    }
    names
}

/// Who reads along may go (`lab run ... | head`): the run ends then, in order.
fn outlive_readers() {
    // SAFETY: sets a disposition; no handler is involved. Programs that are started begin with the default.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Tells how a run goes on: by a bar on a terminal; in a log by a line for each round, and one every half minute.
/// `--verbose` has each measurement told.
struct Progress<'a> {
    bar: ProgressBar,
    json: bool,
    stop: &'a Stop,
    /// The round of the last line in the log, and when that was.
    last: Option<(u32, Instant)>,
}

/// Between lines of a log in one round.
const LINE_EVERY: Duration = Duration::from_secs(30);

impl<'a> Progress<'a> {
    fn new(json: bool, stop: &'a Stop) -> Self {
        let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:30} {percent:>3}% {msg}");
        bar.set_style(style.expect("the template is sound"));
        Self { bar, json, stop, last: None }
    }

    fn say(&self, line: String) {
        if !self.bar.is_hidden() {
            self.bar.println(line);
        } else if !self.json && writeln!(std::io::stderr(), "{line}").is_err() {
            self.stop.set();
        }
    }

    fn show(&mut self, event: Event<'_>) {
        match event {
            Event::Note(note) => self.say(note),
            Event::Begun { experiment, cases, kept, expected } => {
                let had = if kept > 0 { format!(", {kept} runs are there") } else { String::new() };
                let expected = duration(expected);
                self.say(format!(
                    "experiment {}: {cases} cases{had}, about {expected}",
                    experiment.0
                ));
            }
            Event::Builds { subject, round } => {
                self.bar.set_message(format!("round {round}: builds {subject}"));
            }
            Event::Runs { case, round, share, left } => self.runs(case, round, share, left),
            Event::Ran { case, phases } => {
                if tracing::enabled!(tracing::Level::DEBUG) {
                    let figures: Vec<String> = phases.iter().map(figure).collect();
                    self.say(format!("{case}: {}", figures.join(", ")));
                }
            }
            Event::Failed { case, why } => self.say(format!("{case}: FAILED: {why}")),
        }
    }

    fn runs(&mut self, case: &str, round: u32, share: f64, left: Duration) {
        self.bar.set_position((share * 1000.0) as u64);
        let left = duration(left);
        self.bar.set_message(format!("round {round}, about {left} left: {case}"));
        let is_told =
            self.last.is_some_and(|(last, at)| last == round && at.elapsed() < LINE_EVERY);
        if self.bar.is_hidden() && !is_told {
            self.last = Some((round, Instant::now()));
            self.say(format!("round {round}: {:.0}% is done, about {left} left", share * 100.0));
        }
    }
}

/// A phase's name and figure.
fn figure(phase: &Phase) -> String {
    let value = phase.figure.value;
    let figure = match phase.figure.unit {
        Unit::BytesPerSecond => format!("{:.1} MB/s", value / 1e6),
        Unit::RequestsPerSecond => format!("{value:.0} /s"),
        Unit::TransactionsPerSecond => format!("{value:.0} tps"),
        Unit::FilesPerSecond => format!("{value:.0} files/s"),
        Unit::Nanoseconds => format!("{:.1} us", value / 1e3),
    };
    if phase.name.is_empty() { figure } else { format!("{} {figure}", phase.name) }
}

/// The first signal asks for an orderly end; a second one ends the process.
fn stop_on_signals(stop: &Arc<Stop>) -> std::io::Result<()> {
    const ENDING: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset fills the set, sigaddset changes it, and it outlives each call; threads that are started
    // from here on inherit the mask, and commands unless they are started with signals.
    let set: libc::sigset_t = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in ENDING {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        set.assume_init()
    };
    let stop = stop.clone();
    let wait = move || loop {
        let mut signal = 0;
        // SAFETY: both outlive the call.
        if unsafe { libc::sigwait(&set, &mut signal) } != 0 {
            return;
        }
        if stop.is_set() {
            std::process::exit(128 + signal);
        }
        stop.set();
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
}
