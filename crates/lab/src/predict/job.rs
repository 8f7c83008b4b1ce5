//! One run of a case: its world is made, its load runs, what it did becomes a record.

use super::machine::{Drives, Machine, ModelledSubject};
use super::postgresql;
use super::system::{self, has_cache};
use super::{drive, fio};
use crate::builtin::hdparm;
use crate::plan::{Array, Io, Like, Load, Pattern, Plan, Program, Workload};
use crate::record::{Cpu, CpuTime, Mark, MemberIo, Phase, Run, Size, State};
use crate::run::{Costs, by_zones, now_ms, phase_of, range};
use crate::workload::drive::{Outcome, end, generators};
use crate::workload::generator::{End, Generator};
use lapstrake_model::rack::Counts;
use lapstrake_model::volume::Handled;
use lapstrake_model::{Nanos, Processor, Volume};
use std::time::Duration;

/// Whose processor time is that of the core that makes requests, in records.
pub(super) const CORE: &str = "array";

/// A case in one draw.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub array: &'a Array,
    pub state: &'a State,
    pub workload: &'a Workload,
    /// 0: the profiles as they are.
    pub round: u32,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub run: Run,
    pub size: Option<Size>,
    pub rebuild_rate: Option<f64>,
    pub virtual_time: Duration,
    pub limit: Option<String>,
}

/// Phases, how fast a rebuild went meanwhile, and when it was over.
type Ran = (Vec<Phase>, Option<f64>, Nanos);

/// What everything had cost at a moment.
struct Moment {
    at: Nanos,
    cpu: Nanos,
    counts: Vec<Counts>,
    rebuilt: u64,
}

impl Moment {
    fn of(machine: &Machine, standing: &ModelledSubject, at: Nanos) -> Self {
        Self { at, cpu: standing.cpu(), counts: counts(machine, at), rebuilt: rebuilt(standing) }
    }
}

/// Sectors of its new member that an array has recovered.
fn rebuilt(standing: &ModelledSubject) -> u64 {
    let ModelledSubject::Array(array) = standing else { return 0 };
    match array.progress() {
        Some(progress) => progress.done.0,
        None if array.ended().is_empty() => 0,
        None => array.geometry().component().0,
    }
}

impl Job<'_> {
    pub(super) fn run(&self, plan: &Plan, drives: &Drives) -> Done {
        let started_ms = now_ms();
        let (mut size, mut rebuild_rate, mut over, mut limit) = (None, None, Nanos::ZERO, None);
        let made = Machine::new(plan, drives, self.array, self.state, self.round, self.is_direct());
        let result = made.and_then(|mut machine| {
            let standing = machine.take();
            let usable_bytes = standing.blocks() * 512;
            size = Some(Size { raw_bytes: machine.raw_bytes, usable_bytes });
            let processor = drives.processor(self.round);
            if let Load::Program(Program::Pgbench { .. }) = &self.workload.load {
                let (seed, before) = (self.seed(plan), counts(&machine, Nanos::ZERO));
                let mut ran = postgresql::run(
                    self.array,
                    &plan.machine,
                    processor,
                    standing,
                    self.workload,
                    seed,
                )?;
                let after = counts(&machine, ran.over);
                ran.phase.members = members(&machine, &before, &after, ran.phase.seconds);
                (over, limit) = (ran.over, Some(ran.limit));
                return Ok(vec![ran.phase]);
            }
            let (phases, rate, at) = self.load(plan, processor, &machine, standing)?;
            (rebuild_rate, over) = (rate, at);
            Ok(phases)
        });
        let (phases, error) = match result {
            Ok(phases) => (phases, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let round = self.round;
        Done {
            run: Run { round, position: 0, started_ms, error, phases, raw: String::new() },
            size,
            rebuild_rate,
            virtual_time: Duration::from_nanos(over.0),
            limit,
        }
    }

    /// Whether its requests go past the page cache.
    fn is_direct(&self) -> bool {
        match &self.workload.load {
            Load::Io(io) => io.direct,
            load => matches!(load, Load::Program(Program::Fio { .. })),
        }
    }

    /// The same places as when it is measured.
    fn seed(&self, plan: &Plan) -> u64 {
        plan.rules.seed ^ (u64::from(self.round) << 16)
    }

    fn load(
        &self,
        plan: &Plan,
        processor: Processor,
        machine: &Machine,
        standing: ModelledSubject,
    ) -> Result<Ran, String> {
        let bytes = 0..standing.blocks() * 512;
        let is_cached =
            matches!(&self.workload.load, Load::Like(like) if has_cache(self.array, like));
        let standing = match standing {
            // The operating system has its own price for requests, an array too.
            ModelledSubject::Disk(disk) if !is_cached => {
                ModelledSubject::Disk(Box::new(Handled::new(disk, processor.request)))
            }
            standing => standing,
        };
        let seed = self.seed(plan);
        match &self.workload.load {
            Load::Io(io @ Io { pattern: Pattern::Zones(count), .. }) => {
                self.zones(machine, standing, io, *count)
            }
            Load::Io(io) => {
                // There are no bytes that could be wrong.
                let io = Io { verify: false, ..io.clone() };
                let range = range(&io, &bytes)?;
                let generators = generators(&io, &range, end(self.workload, &io), seed);
                let is_amount = io.amount.is_some();
                let warm_up = if is_amount { Duration::ZERO } else { self.workload.warm_up };
                let whole = is_amount || io.fsync_end;
                self.one(machine, standing, &io, generators, warm_up, whole)
            }
            Load::Like(like) if has_cache(self.array, like) => {
                let (phases, over) =
                    system::run(self.array, &plan.machine, processor, standing, like, seed)?;
                Ok((phases, None, over))
            }
            Load::Like(Like::Hdparm) => {
                let io = hdparm::io();
                let range = range(&io, &bytes)?;
                let generators = hdparm::generators(&range);
                self.one(machine, standing, &io, generators, Duration::ZERO, true)
            }
            Load::Program(Program::Fio { job }) => self.fio(machine, standing, job, seed),
            Load::Like(_) | Load::Program(_) => Err("it is not modelled".into()),
        }
    }

    fn one(
        &self,
        machine: &Machine,
        mut standing: ModelledSubject,
        io: &Io,
        mut generators: Vec<Generator>,
        warm_up: Duration,
        whole: bool,
    ) -> Result<Ran, String> {
        let look_at = Nanos(warm_up.as_nanos() as u64);
        let mut moments = Vec::new();
        let look = |standing: &ModelledSubject, at| moments.push(Moment::of(machine, standing, at));
        let over = drive::run(&mut standing, &mut generators, Nanos::ZERO, look_at, look)?;
        let [before, after] = &moments[..] else { unreachable!("two looks are taken") };
        let Outcome { recorded, .. } = Outcome::of(&generators);
        let mut phase = phase_of(recorded, io, costs(machine, before, after));
        phase.whole = whole;
        let rate = self.watch_rebuild(&standing, before, after, &mut phase);
        Ok((vec![phase], rate, over))
    }

    /// A job file of fio's.
    fn fio(
        &self,
        machine: &Machine,
        mut standing: ModelledSubject,
        text: &str,
        seed: u64,
    ) -> Result<Ran, String> {
        let mut moments = Vec::new();
        let look = |standing: &ModelledSubject, at| moments.push(Moment::of(machine, standing, at));
        let (mut phases, over) = fio::run(&mut standing, text, seed, look)?;
        let [before, after] = &moments[..] else { unreachable!("two looks are taken") };
        // Of several the shares are not told apart, as when it is measured.
        let mut rate = None;
        if let [phase] = &mut phases[..] {
            let Costs { cpu, members, .. } = costs(machine, before, after);
            (phase.cpu, phase.members) = (cpu, members);
            rate = self.watch_rebuild(&standing, before, after, phase);
        }
        Ok((phases, rate, over))
    }

    /// Reads or writes each part of a range for its share of the time.
    fn zones(
        &self,
        machine: &Machine,
        mut standing: ModelledSubject,
        io: &Io,
        count: u32,
    ) -> Result<Ran, String> {
        let range = range(io, &(0..standing.blocks() * 512))?;
        let until_ns = (self.workload.time / count).as_nanos() as u64;
        let before = Moment::of(machine, &standing, Nanos::ZERO);
        let mut now = Nanos::ZERO;
        let (recorded, zones) = by_zones(&range, io.block, count, |part, zone| {
            let end = End::Time { from_ns: 0, until_ns };
            let mut generators = generators(io, part, end, zone);
            now = drive::run(&mut standing, &mut generators, now, now, |_, _| ())?;
            Ok(Outcome::of(&generators))
        })?;
        let after = Moment::of(machine, &standing, now);
        let mut phase = phase_of(recorded, io, costs(machine, &before, &after));
        phase.whole = true;
        phase.zones = zones;
        let rate = self.watch_rebuild(&standing, &before, &after, &mut phase);
        Ok((vec![phase], rate, now))
    }

    /// How fast a rebuild went beside the load, and when it ended if it did.
    fn watch_rebuild(
        &self,
        standing: &ModelledSubject,
        before: &Moment,
        after: &Moment,
        phase: &mut Phase,
    ) -> Option<f64> {
        let (State::Rebuilding(_), ModelledSubject::Array(array)) = (self.state, standing) else {
            return None;
        };
        let end = array.ended().first().map(|(_, _, at)| *at);
        let until_ms = end.map(|at| at.since(before.at).0 / 1_000_000);
        phase.series.marks.push(Mark { what: "rebuild".into(), from_ms: 0, until_ms });
        let until = end.map_or(after.at, |at| at.min(after.at).max(before.at));
        let seconds = until.since(before.at).0 as f64 / 1e9;
        let bytes = after.rebuilt.saturating_sub(before.rebuilt) * 512;
        (seconds > 0.0).then(|| bytes as f64 / seconds)
    }
}

/// What each disk has done up to a moment.
fn counts(machine: &Machine, at: Nanos) -> Vec<Counts> {
    let rack = machine.rack.borrow();
    machine.disks.iter().map(|(_, disk)| rack.counts(*disk, at)).collect()
}

/// What each disk did in so many seconds.
fn members(machine: &Machine, before: &[Counts], after: &[Counts], seconds: f64) -> Vec<MemberIo> {
    let member = |(index, (name, _)): (usize, &(String, usize))| {
        let counts = after[index].since(&before[index]);
        MemberIo {
            member: name.clone(),
            read_bytes: counts.read_bytes,
            read_requests: counts.reads,
            written_bytes: counts.written_bytes,
            write_requests: counts.writes,
            queue_depth: (seconds > 0.0).then(|| counts.queue_ns as f64 / 1e9 / seconds),
            ..MemberIo::default()
        }
    };
    machine.disks.iter().enumerate().map(member).collect()
}

/// What happened between two moments.
fn costs(machine: &Machine, before: &Moment, after: &Moment) -> Costs {
    let seconds = after.at.since(before.at).0 as f64 / 1e9;
    let cpu = after.cpu.since(before.cpu).0 as f64 / 1e9;
    let mut processes = std::collections::BTreeMap::new();
    processes.insert(CORE.to_owned(), CpuTime { user_s: cpu, system_s: 0.0 });
    Costs {
        cpu: Cpu { user_s: cpu, system_s: 0.0, processes },
        members: members(machine, &before.counts, &after.counts, seconds),
        memory_bytes_max: None,
    }
}

/// Processor time of this thread: what else the machine does meanwhile is not in it.
pub(super) fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the time that it is given; the clock is there on every Linux.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(done, 0, "a thread has a clock of its own");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
