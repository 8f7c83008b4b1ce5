//! Predictions: a plan's arrays on models of its disks, in virtual time.
//!
//! Every case (an array in a state under a load) is run in a world of its own: disks from their profiles, the real
//! engine over them (`lapstrake_sim::array`), and the lab's own generators as its load. It is run once with the
//! profiles as they are, and then with every figure of them drawn as far off as its confidence lets it be, each time
//! with the platters elsewhere at first: how far these runs part is the prediction's error bar.
//!
//! Invariants:
//! - the same plan, seed and number of draws give the same figures, however many threads work;
//! - what is predicted becomes the same records as what is measured, with an origin that says so;
//! - what cannot be predicted is said with its reason, and never made up.

pub(crate) mod drive;
pub(crate) mod evidence;
mod fio;
mod fit;
mod here;
mod job;
mod loss;
mod machine;
mod metrics;
mod postgresql;
mod syncs;
mod system;
mod table;
pub(crate) mod trust;

pub use evidence::Evidence;
pub use here::HERE;
pub use metrics::{Metric, metrics};
pub use table::table;

use crate::LabError;
use crate::facts::versions;
use crate::plan::{Array, Load, Plan, Workload, listed, processor_named, profile};
use crate::record::{
    self, Device, Experiment, Facts, Origin, PREDICTED, PREDICTED_LOAD, Run, State, Subject,
};
use crate::run::{load_time, subject_record, workload_record};
use crate::store::{ExperimentId, Store};
use fit::unpredictable;
use here::here;
use job::{Done, Job, thread_time};
use lapstrake_model::ProcessorProfile;
use lapstrake_model::profile::Profile;
use lapstrake_model::safety::Loss;
use loss::LossJob;
use machine::Drives;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use syncs::{SyncJob, syncs, untold};
use trust::{Ground, Trust, access};

/// The profile of disks that the lab would make, where the plan names none.
pub const DEFAULT_PROFILE: &str = "hdd-4tb";
/// The processor, where the plan names none: that of the machine on which Lapstrake was made.
pub const DEFAULT_PROCESSOR: &str = "epyc-2021";
/// The memory, where the plan names none.
const DEFAULT_MEMORY: u64 = 8 << 30;
/// The Linux, where the plan names none: 6.1.
const DEFAULT_LINUX: u32 = 60100;

/// The share of its time from which on a core is what limits a load.
pub(crate) const BUSY: f64 = 0.95;

/// How to predict.
#[derive(Clone, Debug)]
pub struct Options {
    /// From which all that is chance is drawn: profiles, places, platters, lives; the plan's own if none is given.
    pub seed: Option<u64>,
    /// Runs of each case; the first is that of the profiles as they are.
    pub draws: u32,
    /// Of disks for which the plan names none, also of those that are there.
    pub profile: Option<Profile>,
    /// On which the arrays run, whatever the plan says.
    pub processor: Option<ProcessorProfile>,
    /// Threads that predict.
    pub threads: usize,
    /// What bars are made of, besides what is drawn.
    pub evidence: Evidence,
}

/// A predicted case.
#[derive(Clone, Debug)]
pub struct Predicted {
    /// The array.
    pub subject: Subject,
    /// Its state.
    pub state: State,
    /// The load.
    pub workload: record::Workload,
    /// One for each draw.
    pub runs: Vec<Run>,
    /// Of an array that was being rebuilt: bytes a second of its new member, in each run.
    pub rebuild_rates: Vec<f64>,
    /// Of each phase, what speaks for its figure.
    trust: Vec<Trust>,
    /// What limits it, with the profiles as they are.
    limit: Option<String>,
}

/// A plan's prediction.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// In the plan's order.
    pub cases: Vec<Predicted>,
    /// How long rebuilds and resyncs of the arrays take without a load.
    pub syncs: Vec<Metric>,
    /// How likely arrays are to lose data.
    pub losses: Vec<Metric>,
    /// What to know of it.
    pub notes: Vec<String>,
    /// From which all that is chance was drawn.
    pub seed: u64,
    /// Sizes of the plan's disks.
    pub disk_bytes: Vec<u64>,
    /// What bars are made of, besides what is drawn.
    evidence: Evidence,
    /// Time that passed in all the worlds together.
    pub virtual_time: Duration,
    /// Processor time that threads took for that and for losses, together.
    pub worked: Duration,
    /// Time that it took.
    pub took: Duration,
}

impl Prediction {
    /// How many times faster than real time a processor was.
    #[must_use]
    pub fn speed_up(&self) -> f64 {
        self.virtual_time.as_secs_f64() / self.worked.as_secs_f64().max(1e-9)
    }
}

/// A disk's profile by its name: a built-in one, or a file.
///
/// # Errors
/// What is wrong with it, in words.
pub fn profile_named(name: &str) -> Result<Profile, String> {
    profile(name, Path::new(""))
}

/// A processor's profile by its name: a built-in one, a file, or [`HERE`], which is measured.
///
/// # Errors
/// What is wrong with it, in words.
pub fn processor_profile(name: &str) -> Result<ProcessorProfile, String> {
    if name == HERE {
        return here();
    }
    processor_named(name, Path::new(""))
}

/// Predicts a plan.
///
/// # Errors
/// If disks lack a profile, or do not fit on it, or nothing of the plan can be predicted.
pub fn predict(
    plan: &Plan,
    options: &Options,
    watch: &(dyn Fn(usize, usize) + Sync),
) -> Result<Prediction, LabError> {
    let began = Instant::now();
    let plan = &as_predicted(plan, options.seed);
    let seed = plan.rules.seed;
    let drives = Drives::new(plan, options, seed).map_err(unpredicted)?;
    let mut notes = plan.notes.clone();
    notes.extend(drives.notes.iter().cloned());
    let cases = cases(plan, &mut notes);
    if cases.is_empty() {
        notes.insert(0, format!("nothing of the plan {:?} can be predicted yet", plan.name));
        return Err(unpredicted(notes));
    }
    let draws = options.draws.max(1);
    let jobs: Vec<Job<'_>> = cases
        .iter()
        .flat_map(|&(array, state, workload)| {
            (0..draws).map(move |round| Job { array, state, workload, round })
        })
        .collect();
    let syncs = syncs(&cases);
    let sync_jobs: Vec<SyncJob<'_>> = syncs
        .iter()
        .flat_map(|&(array, sync)| (0..draws).map(move |round| SyncJob { array, sync, round }))
        .collect();
    let all = jobs.len() + sync_jobs.len();
    let ran = |done: usize| watch(done, all);
    let mut crew = Crew { threads: options.threads, worked: Duration::ZERO };
    let done = crew.work(&jobs, |job| job.run(plan, &drives), &ran);
    let ran = |done: usize| watch(jobs.len() + done, all);
    let sync_done = crew.work(&sync_jobs, |job| job.run(plan, &drives), &ran);
    let loss_jobs = loss::jobs(&cases, &syncs, &sync_done, draws);
    let losses = crew.work(&loss_jobs, |job| job.run(plan, &drives), &|_| ());
    let per_array = loss_jobs.chunks(draws as usize).zip(losses.chunks(draws as usize));
    let of_array = |(jobs, done): (&[LossJob<'_>], &[Option<Loss>])| {
        loss::metrics(jobs[0].array, plan.care.years, done)
    };
    let losses = per_array.flat_map(of_array).collect();
    let lived = sync_done.iter().flatten().map(|sync| Duration::from_nanos(sync.lived.0));
    let virtual_time = done.iter().map(|done| done.virtual_time).chain(lived).sum();
    let chunks = sync_done.chunks(draws as usize);
    let timed = syncs.iter().copied().zip(chunks);
    let timed: Vec<Metric> = timed.filter_map(|(sync, done)| syncs::metric(sync, done)).collect();
    notes.extend(untold(&cases, &syncs, &sync_done, draws as usize));
    let predicted = |(case, runs): (&Case<'_>, &[Done])| predicted(plan, &drives, case, runs);
    let cases: Vec<Predicted> =
        cases.iter().zip(done.chunks(draws as usize)).map(predicted).collect();
    let passed_over = |workload| postgresql::passed_over(workload, &plan.machine);
    notes.extend(plan.workloads.iter().filter_map(passed_over));
    notes.extend(processor_bound(&cases));
    notes.extend(cases.iter().filter_map(limited));
    notes.extend(guesses(&cases));
    Ok(Prediction {
        cases,
        syncs: timed,
        losses,
        notes,
        seed,
        disk_bytes: plan.disks.iter().map(|disk| drives.bytes(disk)).collect(),
        evidence: options.evidence.clone(),
        virtual_time,
        worked: crew.worked,
        took: began.elapsed(),
    })
}

/// The time that passes in the worlds of a prediction's loads together, about.
#[must_use]
pub fn virtual_time(plan: &Plan, options: &Options) -> Duration {
    let plan = as_predicted(plan, None);
    let cases = cases(&plan, &mut Vec::new());
    let times = cases.iter().map(|(_, _, workload)| load_time(workload));
    times.fold(Duration::ZERO, Duration::saturating_add).saturating_mul(options.draws.max(1))
}

/// The plan with the sizes that it has for predictions, and perhaps with another seed.
fn as_predicted(plan: &Plan, seed: Option<u64>) -> Plan {
    let mut plan = plan.clone();
    plan.rules.seed = seed.unwrap_or(plan.rules.seed);
    for workload in &mut plan.workloads {
        if let Load::Like(like) = &mut workload.load {
            *like = like.clone().into_predicted();
        }
    }
    plan
}

/// Tells of the loads that keep the one core of an array busy, with the profiles as they are.
fn processor_bound(cases: &[Predicted]) -> Option<String> {
    let is_bound = |case: &&Predicted| {
        let phases = case.runs.first().map_or(&[][..], |run| &run.phases);
        phases.iter().any(|phase| {
            let cpu = phase.cpu.processes.get(job::CORE);
            cpu.is_some_and(|cpu| cpu.user_s + cpu.system_s > BUSY * phase.seconds)
        })
    };
    let told = |case: &Predicted| match &case.state {
        State::Healthy => format!("{} on {}", case.workload.name, case.subject.name),
        state => format!("{} on {} {state}", case.workload.name, case.subject.name),
    };
    let bound: Vec<String> = cases.iter().filter(is_bound).map(told).collect();
    let bound: Vec<&str> = bound.iter().map(String::as_str).collect();
    (!bound.is_empty()).then(|| {
        format!(
            "the processor is what limits {}: one core makes all requests, and faster disks would change nothing \
             (--processor names another)",
            listed(&bound)
        )
    })
}

/// Tells what a load waits for.
fn limited(case: &Predicted) -> Option<String> {
    let limit = case.limit.as_ref()?;
    Some(match &case.state {
        State::Healthy => format!("{} on {} {limit}", case.workload.name, case.subject.name),
        state => format!("{} on {} {state} {limit}", case.workload.name, case.subject.name),
    })
}

/// Tells which figures are a guess, by the reason.
fn guesses(cases: &[Predicted]) -> Vec<String> {
    let mut told: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for case in cases {
        for (at, trust) in case.trust.iter().enumerate() {
            let Err(why) = trust else { continue };
            let phase = case.runs.iter().find_map(|run| run.phases.get(at));
            let phase = phase.map_or("", |phase| phase.name.as_str());
            let load = [&*case.workload.name, phase].join(" ");
            let names = told.entry(why).or_default();
            let name = load.trim().to_owned();
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let note = |(why, names): (&str, Vec<String>)| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        format!("a guess, without a bar: {}: {why}", listed(&names))
    };
    told.into_iter().map(note).collect()
}

fn unpredicted(faults: Vec<String>) -> LabError {
    LabError::Unpredictable { faults }
}

type Case<'a> = (&'a Array, &'a State, &'a Workload);

/// The cases that can be predicted; of the others, why not.
fn cases<'a>(plan: &'a Plan, notes: &mut Vec<String>) -> Vec<Case<'a>> {
    let mut cases = Vec::new();
    let mut reasons: BTreeMap<(String, &str), Vec<&str>> = BTreeMap::new();
    for (array, state) in plan.subjects() {
        for workload in plan.loads(array) {
            match unpredictable(array, workload, &plan.machine) {
                None => cases.push((array, state, workload)),
                Some(why) => {
                    let arrays = reasons.entry((why, &workload.name)).or_default();
                    if !arrays.contains(&array.name.as_str()) {
                        arrays.push(&array.name);
                    }
                }
            }
        }
    }
    // Loads that fail on the same arrays for the same reason are told of together.
    let mut told: BTreeMap<(String, Vec<&str>), Vec<&str>> = BTreeMap::new();
    for ((why, workload), arrays) in reasons {
        told.entry((why, arrays)).or_default().push(workload);
    }
    for ((why, arrays), workloads) in told {
        let (workloads, arrays) = (workloads.join(", "), listed(&arrays));
        notes.push(format!("not predicted: {workloads} on {arrays}: {why}"));
    }
    cases
}

/// Threads for the jobs of a prediction.
struct Crew {
    threads: usize,
    /// Processor time that they took.
    worked: Duration,
}

impl Crew {
    /// Does all jobs, a few at a time; what came of each, in their order.
    fn work<J: Sync, D: Send>(
        &mut self,
        jobs: &[J],
        run: impl Fn(&J) -> D + Sync,
        ran: &(dyn Fn(usize) + Sync),
    ) -> Vec<D> {
        let next = AtomicUsize::new(0);
        let ended = AtomicUsize::new(0);
        let all: Mutex<Vec<Option<D>>> = Mutex::new(jobs.iter().map(|_| None).collect());
        let one = || {
            let began = thread_time();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(index) else { break };
                let done = run(job);
                all.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(done);
                ran(ended.fetch_add(1, Ordering::Relaxed) + 1);
            }
            thread_time().saturating_sub(began)
        };
        self.worked += std::thread::scope(|scope| {
            let others: Vec<_> =
                (1..self.threads.min(jobs.len())).map(|_| scope.spawn(one)).collect();
            let others = others.into_iter().map(|other| other.join().expect("it ends"));
            one() + others.sum::<Duration>()
        });
        let all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
        all.into_iter().map(|done| done.expect("each was taken and done")).collect()
    }
}

fn predicted(
    plan: &Plan,
    drives: &Drives,
    (array, state, workload): &Case<'_>,
    runs: &[Done],
) -> Predicted {
    let size = runs.iter().find_map(|run| run.size);
    let ground = Ground::of(plan, drives, array, state, &workload.load);
    let good = runs.iter().find(|run| run.run.error.is_none());
    let phases = good.map_or(&[][..], |run| &run.run.phases);
    Predicted {
        subject: subject_record(plan, array, size, &|disk| drives.words(disk)),
        state: (*state).clone(),
        workload: workload_record(workload),
        runs: runs.iter().map(|done| done.run.clone()).collect(),
        rebuild_rates: runs.iter().filter_map(|done| done.rebuild_rate).collect(),
        trust: phases.iter().map(|phase| ground.trust(access(workload, phase))).collect(),
        limit: runs.first().and_then(|done| done.limit.clone()),
    }
}

/// Keeps a prediction beside what was measured.
///
/// # Errors
/// The store's.
pub fn keep(
    plan: &Plan,
    prediction: &Prediction,
    options: &Options,
    store: &mut Store,
) -> Result<ExperimentId, LabError> {
    let experiment = store.begin_experiment(&Experiment {
        name: plan.name.clone(),
        origin: Origin::Predicted,
        plan: plan.text.clone(),
        facts: facts(plan, prediction, options),
    })?;
    for case in &prediction.cases {
        let id = store.case(experiment, &case.subject, &case.state, &case.workload)?;
        for run in &case.runs {
            store.add_run(id, run)?;
        }
    }
    store.finish_experiment(experiment)?;
    Ok(experiment)
}

/// What the prediction depends on besides the plan, and what it tells besides loads.
fn facts(plan: &Plan, prediction: &Prediction, options: &Options) -> Facts {
    let device = |(disk, &bytes): (&crate::plan::Disk, &u64)| {
        let profile = disk.model.profile.as_ref().or(options.profile.as_ref());
        Device {
            name: disk.name.clone(),
            model: profile.map_or(DEFAULT_PROFILE.into(), |profile| profile.model.clone()),
            bytes,
            ..Device::default()
        }
    };
    let processor = options.processor.as_ref().or(plan.machine.processor.as_ref());
    let alone = prediction.syncs.iter().chain(&prediction.losses);
    let told = |metric: &Metric| {
        let Metric { array, workload, metric: name, .. } = metric;
        (format!("{PREDICTED}{array}: {workload}, {name}"), table::words(metric))
    };
    let mut more: BTreeMap<String, String> = alone.map(told).collect();
    let all = metrics(prediction);
    let of_loads = all.iter().take(all.len() - prediction.syncs.len() - prediction.losses.len());
    more.extend(of_loads.filter(|metric| table::is_figure(metric)).map(|metric| {
        let Metric { array, state, workload, metric: name, .. } = metric;
        (format!("{PREDICTED_LOAD}{array} {state}: {workload}, {name}"), table::words(metric))
    }));
    more.insert("seed".into(), prediction.seed.to_string());
    more.insert("draws".into(), options.draws.to_string());
    Facts {
        cpu: processor.map_or(DEFAULT_PROCESSOR.into(), |processor| processor.model.clone()),
        cpus: 1,
        versions: BTreeMap::from([versions()
            .remove_entry("lapstrake")
            .expect("it is always there")]),
        devices: plan.disks.iter().zip(&prediction.disk_bytes).map(device).collect(),
        more,
        ..Facts::default()
    }
}

#[cfg(test)]
mod tests;
