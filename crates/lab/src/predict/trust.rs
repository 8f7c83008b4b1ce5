//! Which figures have a bar, by what is known to decide how far off a model is; which are a guess, and why.

use super::evidence::Kind;
use super::machine::{Drives, drive_of};
use crate::clients::phase_name;
use crate::fio_job::{Job, JobFile};
use crate::plan::{Array, Io, Load, Pattern, Plan, Program, Workload};
use crate::record::{Phase, State, SubjectKind, Unit};

/// The least share of reads of a load without order that published seekers have: bonnie++ writes a tenth back.
const SEEKS_READ: f64 = 0.9;

/// The oldest Linux whose sources the models were made after: 2.6.20.
const LINUX_READ: u32 = 20620;

/// The kind of published figures that speak for one, or why none does.
pub(crate) type Trust = Result<Kind, &'static str>;

pub(super) const LATENCY: &str = "nobody published latencies";
pub(super) const PROCESSOR: &str = "one case has processor time";
pub(super) const SYNC: &str = "nobody published rebuild, resync and growth times";

/// What a load does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// One stream.
    Reads,
    /// Streams.
    Writes,
    /// Streams of reads that take turns, with each other or with writes.
    Turns,
    /// Nearly all reads, without order.
    Seeks,
    /// Without order.
    Scattered,
    /// Writes, each few of them flushed.
    Flushed,
    /// Reads, writes and flushes of a database.
    Database,
}

/// On what it does it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ground {
    /// One disk, with no page cache before it, whose queue has no choice (`keeps_order`).
    pub is_bare_disk: bool,
    /// Not all are hard disks.
    pub has_flash: bool,
    /// Tracks of one lie over each other.
    pub is_shingled: bool,
    /// What a controller makes of its disks.
    pub is_volume: bool,
    /// A controller's cache is before the disks.
    pub has_controller: bool,
    /// Two members are on one drive, or on one cable that a command keeps.
    pub is_shared: bool,
    /// A member is rebuilt meanwhile.
    pub is_rebuilding: bool,
    /// What md and the page cache did before what was read of them.
    pub is_old_linux: bool,
}

impl Ground {
    pub(super) fn of(
        plan: &Plan,
        drives: &Drives,
        array: &Array,
        state: &State,
        load: &Load,
    ) -> Self {
        let is_there = |name: &&str| match state {
            State::Degraded(missing) => !missing.iter().any(|missing| missing == name),
            _ => true,
        };
        let used = array.disks().into_iter().filter(is_there);
        let disks: Vec<_> = used.filter_map(|name| plan.disk(name)).collect();
        let used: Vec<String> = disks.iter().map(|disk| drive_of(disk)).collect();
        let held = |drive: &String| {
            let channel = drives.channel(drive)?;
            plan.channels.iter().find(|known| known.holds && known.name == *channel)
        };
        let cables: Vec<&str> =
            distinct(&used).filter_map(held).map(|cable| cable.name.as_str()).collect();
        Self {
            is_bare_disk: array.kind == SubjectKind::Disk
                && match load {
                    Load::Io(io) => keeps_order(io),
                    Load::Program(Program::Fio { job }) => fio_keeps_order(job),
                    _ => false,
                },
            has_flash: !used.iter().all(|drive| drives.is_rotational(drive)),
            is_shingled: used.iter().any(|drive| drives.is_shingled(drive)),
            is_volume: array.kind == SubjectKind::Controller,
            has_controller: disks.iter().any(|disk| disk.model.controller.is_some()),
            is_shared: has_twice(&used) || has_twice(&cables),
            is_rebuilding: matches!(state, State::Rebuilding(_)),
            is_old_linux: plan.machine.linux.is_some_and(|linux| linux < LINUX_READ)
                && (array.kind == SubjectKind::Md || matches!(load, Load::Like(_))),
        }
    }

    /// What speaks for a figure.
    pub(crate) fn trust(&self, access: Access) -> Trust {
        let writes = !matches!(access, Access::Reads | Access::Seeks);
        Err(match access {
            _ if self.has_flash => "one case has arrays of solid-state disks",
            _ if self.is_old_linux => "Linux before 2.6.20 is not what was modelled",
            _ if self.is_volume => "how a controller's firmware works is not known",
            _ if self.has_controller && writes => "how a controller's cache writes is not known",
            _ if self.is_shingled && writes => "nobody published shingled disks",
            _ if self.is_rebuilding => "nobody published loads beside a rebuild",
            Access::Database => "nobody published figures of a database and of its disks",
            Access::Flushed => "nobody published writes that are flushed",
            Access::Turns => "how several streams take turns on one drive is not explained",
            _ if self.is_bare_disk => return Ok(Kind::Disk),
            Access::Reads if self.is_shared => {
                "how a stream of reads takes turns on one drive or cable is not explained"
            }
            Access::Scattered => "one case has writes without order",
            Access::Reads => return Ok(Kind::Reads),
            Access::Writes => return Ok(Kind::Writes),
            Access::Seeks => return Ok(Kind::Seeks),
        })
    }
}

fn distinct(names: &[String]) -> impl Iterator<Item = &String> {
    names.iter().enumerate().filter(|(at, name)| !names[..*at].contains(name)).map(|(_, name)| name)
}

fn has_twice<T: PartialEq>(all: &[T]) -> bool {
    all.iter().enumerate().any(|(at, one)| all[..at].contains(one))
}

/// Whether a disk meets requests in the order in which they are made, as in the traces that speak for disks.
pub(crate) fn keeps_order(io: &Io) -> bool {
    let is_scattered = matches!(io.pattern, Pattern::Uniform | Pattern::Zipf(_));
    !is_scattered || io.depth.saturating_mul(io.threads) == 1
}

/// What requests of the lab's own do.
pub(crate) fn access_of(io: &Io) -> Access {
    if io.fsync_every.is_some() {
        return Access::Flushed;
    }
    let streams = match io.pattern {
        Pattern::Uniform | Pattern::Zipf(_) if io.read >= SEEKS_READ => return Access::Seeks,
        Pattern::Uniform | Pattern::Zipf(_) => return Access::Scattered,
        Pattern::Streams(streams) => streams.saturating_mul(io.threads),
        Pattern::Sequential | Pattern::Strided(_) | Pattern::Zones(_) => io.threads,
    };
    match io.read {
        read if read <= 0.0 => Access::Writes,
        read if read >= 1.0 && streams == 1 => Access::Reads,
        _ => Access::Turns,
    }
}

/// What a phase of a load does.
pub(super) fn access(workload: &Workload, phase: &Phase) -> Access {
    match &workload.load {
        Load::Like(_) => {}
        Load::Io(io) => return access_of(io),
        Load::Program(Program::Fio { job }) => return access_of_fio(job, &phase.name),
        Load::Program(_) => return Access::Database,
    }
    match (phase.read.bytes > 0, phase.write.bytes > 0) {
        _ if phase.figure.unit == Unit::RequestsPerSecond => Access::Seeks,
        (false, _) if phase.name.contains("random") => Access::Scattered,
        (true, false) if phase.name.contains("random") => Access::Seeks,
        (true, true) => Access::Turns,
        (true, false) => Access::Reads,
        (false, _) => Access::Writes,
    }
}

/// What is done while a phase of a job file goes on, by its name.
fn access_of_fio(text: &str, phase: &str) -> Access {
    let Ok(file) = JobFile::parse(text) else { return Access::Scattered };
    let reports = file.reports();
    let name = |nth: usize, way: &str| phase_name(reports.len() > 1, nth, way);
    let is_of = |nth: &usize| ["read", "write"].iter().any(|way| name(*nth, way) == phase);
    let report = (0..reports.len()).find(is_of).unwrap_or(0);
    let group = file.jobs[reports[report][0]].group;
    let jobs: Vec<&Job> = file.jobs.iter().filter(|job| job.group == group).collect();
    let processes: u32 = jobs.iter().map(|job| job.processes).sum();
    if jobs.iter().any(|job| job.flush_every.is_some()) {
        Access::Flushed
    } else if jobs.iter().all(|job| job.is_random) {
        let mostly_reads = jobs.iter().all(|job| job.reads >= SEEKS_READ);
        if mostly_reads { Access::Seeks } else { Access::Scattered }
    } else if jobs.iter().any(|job| job.is_random) {
        Access::Scattered
    } else if jobs.iter().all(|job| job.reads <= 0.0) {
        Access::Writes
    } else if processes == 1 && jobs.iter().all(|job| job.reads >= 1.0) {
        Access::Reads
    } else {
        Access::Turns
    }
}

/// Whether a disk meets the requests of each job of fio's in the order in which they are made.
fn fio_keeps_order(text: &str) -> bool {
    JobFile::parse(text).is_ok_and(|file| {
        let alone = |job: &Job| job.depth * job.processes == 1 || !job.is_random;
        let parted = file.jobs.windows(2).all(|pair| pair[0].group != pair[1].group);
        parted && file.jobs.iter().all(alone)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_evidence_is_a_guess_whatever_is_asked_of_it() {
        let all = [Access::Reads, Access::Writes, Access::Turns, Access::Seeks, Access::Scattered];
        let grounds = [
            Ground { has_flash: true, is_bare_disk: true, ..Ground::default() },
            Ground { is_volume: true, ..Ground::default() },
            Ground { is_rebuilding: true, ..Ground::default() },
            Ground { is_old_linux: true, ..Ground::default() },
        ];
        for ground in grounds {
            assert!(all.iter().all(|access| ground.trust(*access).is_err()), "{ground:?}");
        }
    }

    #[test]
    fn a_shared_cable_and_a_controllers_cache_leave_some_figures_their_bars() {
        let shared = Ground { is_shared: true, ..Ground::default() };
        assert!(shared.trust(Access::Reads).is_err());
        assert_eq!(shared.trust(Access::Writes), Ok(Kind::Writes));
        let behind = Ground { has_controller: true, ..Ground::default() };
        assert!(behind.trust(Access::Writes).is_err());
        assert_eq!(behind.trust(Access::Seeks), Ok(Kind::Seeks));
        let disk = Ground { is_bare_disk: true, ..Ground::default() };
        assert_eq!(disk.trust(Access::Scattered), Ok(Kind::Disk));
    }
}
