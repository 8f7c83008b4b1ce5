//! Carries out plans: every array in its turn, every load on it, round after round, each run kept as soon as it is
//! done.
//!
//! Invariants:
//! - a round visits each array (in each of its states) once, in the opposite order of the round before;
//! - what a run gave is in the store before the next begins, so that whoever is killed loses the one under way;
//! - rounds of a load go on for all arrays until the widest interval of them is narrow enough, the repeats are at
//!   their most, or the budget is spent;
//! - nothing is left standing, however a run ends; what a kill leaves is taken down by the next run.

mod health;
mod live;
mod measure;
mod meter;
mod params;
mod preview;
mod records;
mod schedule;
mod tools;

use crate::LabError;
use crate::facts::facts;
use crate::plan::{Array, DiskPlace, Io, Load, Plan};
use crate::record::{Experiment, Origin, Phase, Run, Size, State};
use crate::series::settled_value;
use crate::store::{ExperimentId, Store};
use crate::subject::guard;
use crate::subject::recipe::{Places, recipe};
use crate::subject::steps::{has_left, recover};
use crate::subject::tree::place;
use crate::workload::drive::INTERRUPTED;
use lapstrake_stats::Repeats;
use live::Live;
pub(crate) use live::filesystem_bytes;
use measure::measure;
use records::{Done, kept, size};
pub(crate) use schedule::load_time;
use schedule::{Case, Schedule, Visit};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) use measure::{by_zones, phase_of, range};
#[cfg(test)]
pub(crate) use meter::Sources;
pub(crate) use meter::{Costs, Reading};
pub(crate) use records::{subject_record, workload_record};

pub use self::preview::{Preview, SubjectPreview, preview};
pub use crate::subject::guard::Leave;
pub use crate::workload::drive::Stop;

/// Failures of a case after which it is not tried again.
const FAILURES_MAX: u32 = 2;
/// An estimate counts as met until this is small beside what was done.
const PRIOR: Duration = Duration::from_secs(5);

/// How a plan is to be carried out.
#[derive(Clone, Debug)]
pub struct Options {
    /// The lapstrake command.
    pub lapstrake: PathBuf,
    /// Which of the user's disks may be written to.
    pub leave: Leave,
    /// Go on with the last run of the same plan that did not end.
    pub resume: bool,
}

/// What happens, for who watches.
#[derive(Debug)]
pub enum Event<'a> {
    /// Something to be said.
    Note(String),
    /// It begins.
    Begun {
        /// In the store.
        experiment: ExperimentId,
        /// Cases.
        cases: usize,
        /// Runs that are kept already.
        kept: usize,
        /// How long it takes at least, about.
        expected: Duration,
    },
    /// An array is being built.
    Builds {
        /// Its name and state.
        subject: &'a str,
        /// The round, from 1.
        round: u32,
    },
    /// A run begins.
    Runs {
        /// The array, its state and the load.
        case: &'a str,
        /// The round, from 1.
        round: u32,
        /// Of what is known to be done, the share that is.
        share: f64,
        /// Until all is done, about.
        left: Duration,
    },
    /// A run is done and kept.
    Ran {
        /// The array, its state and the load.
        case: &'a str,
        /// What it gave.
        phases: &'a [Phase],
    },
    /// A run or the building of an array failed. That is kept as well.
    Failed {
        /// The array, its state and the load.
        case: &'a str,
        /// Why.
        why: &'a str,
    },
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All that was to be done is done.
    Done,
    /// The budget was spent before every case had the least of its repeats.
    Budget,
    /// It was interrupted, and can be resumed.
    Interrupted,
}

/// What became of a run.
#[derive(Clone, Debug)]
pub struct Summary {
    /// In the store.
    pub experiment: ExperimentId,
    /// How it ended.
    pub ending: Ending,
    /// Runs that were done.
    pub runs: usize,
    /// Of them those that failed.
    pub failures: usize,
}

/// Carries out a plan.
///
/// # Errors
/// If it may not be carried out, or the store or the work directory cannot be used. A run that fails is no error: it
/// is kept as what it is.
pub fn run(
    plan: &Plan,
    store: &mut Store,
    options: &Options,
    stop: &Arc<Stop>,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<Summary, LabError> {
    let work = work_directory(plan);
    claim(&work)?;
    let lock = lock(&work)?;
    // What a killed run left may be what keeps the disks in use.
    let recovered = recover(&work).map_err(LabError::Left).map(|done| {
        for what in done {
            watch(Event::Note(format!("an earlier run left something: {what}")));
        }
    });
    let summary = recovered.and_then(|()| carry_out(plan, store, options, stop, watch, &work));
    clear(&work);
    drop(lock);
    summary
}

fn carry_out(
    plan: &Plan,
    store: &mut Store,
    options: &Options,
    stop: &Arc<Stop>,
    watch: &mut dyn FnMut(Event<'_>),
    work: &Path,
) -> Result<Summary, LabError> {
    let faults = guard::faults(plan, &options.leave, work);
    if !faults.is_empty() {
        return Err(LabError::Forbidden { faults });
    }
    let mut runner = Runner::begin(plan, store, options, stop, watch, work)?;
    let ending = runner.rounds()?;
    let summary = Summary {
        experiment: runner.experiment,
        ending,
        runs: runner.runs,
        failures: runner.failures,
    };
    if ending == Ending::Done {
        store.finish_experiment(summary.experiment)?;
    }
    Ok(summary)
}

/// Where images, sockets and mount points of a plan are.
fn work_directory(plan: &Plan) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = plan.name.chars().map(plain).collect();
    let above = plan.rules.directory.clone().unwrap_or_else(std::env::temp_dir);
    let above = std::path::absolute(&above).unwrap_or(above);
    above.join(format!("lapstrake-lab-{name}"))
}

/// Makes the work directory, or takes that of an earlier run. Commands on record in one that somebody else made, or may
/// write to, could be anything, and files there somebody's.
fn claim(work: &Path) -> Result<(), LabError> {
    let failed = |source| LabError::File { path: work.to_owned(), source };
    fs::create_dir_all(work.parent().unwrap_or(work)).map_err(failed)?;
    match DirBuilder::new().mode(0o755).create(work) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => return made.map_err(failed),
    }
    let meta = fs::symlink_metadata(work).map_err(failed)?;
    // SAFETY: asks only.
    let is_ours = meta.is_dir() && meta.uid() == unsafe { libc::geteuid() };
    let is_of_a_run = work.join(LOCK).exists();
    if is_ours
        && meta.mode() & 0o022 == 0
        && (is_of_a_run || fs::read_dir(work).map_err(failed)?.next().is_none())
    {
        return Ok(());
    }
    Err(LabError::NotOurs { path: work.to_owned() })
}

const LOCK: &str = "lock";

/// Two runs of a plan would take each other's images.
fn lock(work: &Path) -> Result<File, LabError> {
    let path = work.join(LOCK);
    let file =
        File::create(&path).map_err(|source| LabError::File { path: path.clone(), source })?;
    // SAFETY: names a descriptor that is open.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(file),
        _ => Err(LabError::Busy { path: work.to_owned() }),
    }
}

/// Removes the work directory, unless something in it still is to be taken down.
fn clear(work: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    if !has_left(work) && !mounts.contains(&work.display().to_string()) {
        // What cannot be removed stays; the next run of the plan uses it again.
        let _ = fs::remove_dir_all(work);
    }
}

pub(crate) fn subject_name(array: &Array, state: &State) -> String {
    match state {
        State::Healthy => array.name.clone(),
        other => format!("{} {other}", array.name),
    }
}

fn has(done: &Done, case: &Case, round: u32) -> bool {
    done.get(case).is_some_and(|rounds| rounds.contains_key(&round))
}

struct Runner<'a> {
    plan: &'a Plan,
    store: &'a mut Store,
    stop: &'a Arc<Stop>,
    watch: &'a mut dyn FnMut(Event<'_>),
    places: Places,
    experiment: ExperimentId,
    schedule: Schedule,
    /// By case: rounds that are done, with their figures.
    done: Done,
    began: Instant,
    /// What was built and run since then was estimated to take so long,
    estimated: Duration,
    /// and took so many times as long.
    pace: f64,
    position: u32,
    runs: usize,
    failures: usize,
}

impl<'a> Runner<'a> {
    fn begin(
        plan: &'a Plan,
        store: &'a mut Store,
        options: &Options,
        stop: &'a Arc<Stop>,
        watch: &'a mut dyn FnMut(Event<'_>),
        work: &Path,
    ) -> Result<Self, LabError> {
        let obstacles = guard::obstacles(plan);
        for (name, why) in &obstacles {
            watch(Event::Note(format!("{name} is not measured: {why}")));
        }
        let left_out: Vec<String> = obstacles.into_iter().map(|(name, _)| name).collect();
        let schedule = Schedule::new(plan, &left_out);
        let cases = schedule.cases().count();
        if cases == 0 {
            return Err(LabError::NothingToMeasure { plan: plan.name.clone() });
        }
        let unfinished = if options.resume { store.unfinished(&plan.text)? } else { None };
        if options.resume && unfinished.is_none() {
            return Err(LabError::NothingToResume { plan: plan.name.clone() });
        }
        let experiment = match unfinished {
            Some(experiment) => experiment,
            None => store.begin_experiment(&Experiment {
                name: plan.name.clone(),
                origin: Origin::Measured,
                plan: plan.text.clone(),
                facts: facts(plan, work),
            })?,
        };
        let done = kept(plan, store, experiment, &schedule)?;
        let kept = done.values().map(BTreeMap::len).sum();
        let expected =
            schedule.ahead(plan, plan.rules.repeats, |case, round| has(&done, case, round));
        watch(Event::Begun { experiment, cases, kept, expected });
        Ok(Self {
            plan,
            store,
            stop,
            watch,
            places: Places { lapstrake: options.lapstrake.clone(), work: work.to_owned() },
            experiment,
            schedule,
            done,
            began: Instant::now(),
            estimated: Duration::ZERO,
            pace: 1.0,
            position: 0,
            runs: 0,
            failures: 0,
        })
    }

    fn rounds(&mut self) -> Result<Ending, LabError> {
        for round in 0..self.plan.rules.repeats_max.max(self.plan.rules.repeats) {
            let wanted = self.wanted(round);
            if wanted.is_empty() {
                return Ok(Ending::Done);
            }
            self.position = 0;
            for visit in self.schedule.order(self.plan.rules.order, round) {
                let loads: Vec<Case> =
                    wanted.iter().filter(|case| case.visit == visit).copied().collect();
                let fresh: Vec<Case> =
                    loads.into_iter().filter(|case| !self.has(case, round)).collect();
                if fresh.is_empty() {
                    continue;
                }
                let estimate = self.schedule.visit_time(self.plan, &fresh);
                let needed = estimate.mul_f64(self.pace);
                if self
                    .plan
                    .rules
                    .budget
                    .is_some_and(|budget| self.began.elapsed() + needed > budget)
                {
                    (self.watch)(Event::Note("the budget of time is spent".into()));
                    // What goes beyond the least that was asked for is done as far as time allows.
                    let is_enough = round >= self.plan.rules.repeats;
                    return Ok(if is_enough { Ending::Done } else { Ending::Budget });
                }
                if !self.visit(visit, &fresh, round)? {
                    return Ok(Ending::Interrupted);
                }
                self.estimated += estimate;
                let of = |time: Duration| (time + PRIOR).as_secs_f64();
                self.pace = of(self.began.elapsed()) / of(self.estimated);
            }
        }
        Ok(Ending::Done)
    }

    fn has(&self, case: &Case, round: u32) -> bool {
        has(&self.done, case, round)
    }

    /// The time that is left of the rounds until this one, or of the least number, and the share that is done.
    fn left(&self, round: u32) -> (Duration, f64) {
        let rounds = self.plan.rules.repeats.max(round + 1);
        let ahead = self
            .schedule
            .ahead(self.plan, rounds, |case, round| self.has(case, round))
            .as_secs_f64();
        let all = self.schedule.ahead(self.plan, rounds, |_, _| false).as_secs_f64();
        let share = if all > 0.0 { 1.0 - ahead / all } else { 1.0 };
        (Duration::from_secs_f64(ahead * self.pace), share)
    }

    /// The cases of a round: all of every load of which not all are told well enough.
    fn wanted(&self, round: u32) -> Vec<Case> {
        let rules = &self.plan.rules;
        let repeats = Repeats { min: rules.repeats, max: rules.repeats_max, width: rules.interval };
        let mut wanted = Vec::new();
        for workload in 0..self.plan.workloads.len() {
            let cases: Vec<Case> =
                self.schedule.cases().filter(|case| case.workload == workload).collect();
            // What always fails has no interval to wait for.
            let live: Vec<Case> =
                cases.into_iter().filter(|case| !self.is_given_up(case, round)).collect();
            let figures = |case: &Case| -> Vec<f64> {
                self.done
                    .get(case)
                    .into_iter()
                    .flat_map(BTreeMap::values)
                    .flatten()
                    .copied()
                    .collect()
            };
            let values: Vec<Vec<f64>> = live.iter().map(figures).collect();
            if round < rules.repeats || (round < rules.repeats_max && !repeats.enough(&values)) {
                wanted.extend(live);
            }
        }
        wanted
    }

    fn is_given_up(&self, case: &Case, round: u32) -> bool {
        let Some(rounds) = self.done.get(case) else { return false };
        let before = rounds.range(..round).map(|(_, figure)| figure);
        before.filter(|figure| figure.is_none()).count() as u32 >= FAILURES_MAX
    }

    /// One array in one state with its loads. False if that was interrupted.
    fn visit(&mut self, visit: Visit, cases: &[Case], round: u32) -> Result<bool, LabError> {
        let (array, state) = self.schedule.subject(self.plan, visit);
        let name = subject_name(array, state);
        (self.watch)(Event::Builds { subject: &name, round: round + 1 });
        let (mut up, mut faults): (Option<Live>, _) = (None, Ok(()));
        for (index, case) in cases.iter().enumerate() {
            let workload = &self.plan.workloads[case.workload];
            let label = format!("{name}, {}", workload.name);
            let rebuilding = matches!(state, State::Rebuilding(_));
            // Each load meets a rebuild at its beginning.
            let stale =
                rebuilding && up.as_ref().is_some_and(|live| live.is_rebuilding() != Some(true));
            if stale && let Some(live) = up.take() {
                self.down(live, &name)?;
            }
            let live = match up.take() {
                Some(live) => Ok(live),
                None => self.up(array, state),
            };
            let live = match live {
                Ok(live) => live,
                Err(why) if why == INTERRUPTED => return Ok(false),
                Err(why) => {
                    // What cannot be built fails all its loads.
                    for case in &cases[index..] {
                        self.keep_failure(array, state, *case, round, &name, &why)?;
                    }
                    return Ok(true);
                }
            };
            let (left, share) = self.left(round);
            (self.watch)(Event::Runs { case: &label, round: round + 1, share, left });
            let started_ms = now_ms();
            // Before a load's own files take some of it.
            let size = size(self.plan, array, &live);
            // Places differ from round to round, and are the same for all arrays of a round.
            let seed = self.plan.rules.seed ^ (u64::from(round) << 16);
            let measured = measure(&live, workload, rebuilding, seed, self.stop);
            if self.stop.is_set() {
                self.down(live, &name)?;
                return Ok(false);
            }
            let run = match measured {
                Ok(mut measured) => {
                    let disks = self.disks(array);
                    for phase in &mut measured.phases {
                        health::add(&disks, &mut phase.members);
                    }
                    measured.raw.push_str(live.caveat());
                    (self.watch)(Event::Ran { case: &label, phases: &measured.phases });
                    self.run_of(round, started_ms, None, measured.phases, measured.raw)
                }
                Err(why) => {
                    (self.watch)(Event::Failed { case: &label, why: &why });
                    self.run_of(round, started_ms, Some(why), Vec::new(), String::new())
                }
            };
            let kept = self.keep(array, state, *case, size, run);
            up = Some(live);
            if kept.is_err() {
                faults = kept;
                break;
            }
        }
        if let Some(live) = up {
            self.down(live, &name)?;
        }
        faults.map(|()| true)
    }

    fn up(&self, array: &Array, state: &State) -> Result<Live, String> {
        let recipe = recipe(self.plan, array, state, &self.places);
        let buffers = self.plan.loads(array).filter_map(|workload| match &workload.load {
            Load::Io(io) => Some(buffer_bytes(io)),
            _ => None,
        });
        Live::up(&recipe, &self.places.work, buffers.max().unwrap_or(0), self.stop)
    }

    /// Block devices of the user's below an array, by name.
    fn disks(&self, array: &Array) -> Vec<(String, PathBuf)> {
        let given = |name: &str| match &self.plan.disk(name)?.place {
            DiskPlace::Given { spec, .. } => Some((name.to_owned(), spec.path.clone())),
            DiskPlace::Make { .. } => None,
        };
        array.disks().into_iter().filter_map(given).collect()
    }

    /// What stays up keeps its disks: nothing can be built on them.
    fn down(&mut self, live: Live, name: &str) -> Result<(), LabError> {
        live.down().map_err(|why| LabError::Stands { subject: name.to_owned(), why })
    }

    fn run_of(
        &mut self,
        round: u32,
        started_ms: i64,
        error: Option<String>,
        phases: Vec<Phase>,
        raw: String,
    ) -> Run {
        let position = self.position;
        self.position += 1;
        Run { round, position, started_ms, error, phases, raw }
    }

    fn keep_failure(
        &mut self,
        array: &Array,
        state: &State,
        case: Case,
        round: u32,
        name: &str,
        why: &str,
    ) -> Result<(), LabError> {
        let label = format!("{name}, {}", self.plan.workloads[case.workload].name);
        (self.watch)(Event::Failed { case: &label, why });
        let run = self.run_of(round, now_ms(), Some(why.to_owned()), Vec::new(), String::new());
        self.keep(array, state, case, None, run)
    }

    fn keep(
        &mut self,
        array: &Array,
        state: &State,
        case: Case,
        size: Option<Size>,
        run: Run,
    ) -> Result<(), LabError> {
        let workload = &self.plan.workloads[case.workload];
        let subject = subject_record(self.plan, array, size, &place);
        let id = self.store.case(self.experiment, &subject, state, &workload_record(workload))?;
        self.store.add_run(id, &run)?;
        let figure =
            run.phases.first().filter(|_| run.error.is_none()).map(|phase| settled_value(phase).0);
        self.done.entry(case).or_default().insert(run.round, figure);
        self.runs += 1;
        self.failures += usize::from(run.error.is_some());
        Ok(())
    }
}

pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// All requests of a load may come to one shard.
fn buffer_bytes(io: &Io) -> usize {
    let block = io.block.next_multiple_of(4096).next_power_of_two();
    (block * u64::from(io.depth) * u64::from(io.threads) * 2) as usize
}
