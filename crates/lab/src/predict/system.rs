//! What other tools do, on the model of an operating system.

use super::machine::ModelledSubject;
use super::{DEFAULT_LINUX, DEFAULT_MEMORY};
use crate::builtin::bonnie;
use crate::plan::{Array, Filesystem, Like, Machine, Over};
use crate::record::{Cpu, CpuTime, Flow, Phase, SubjectKind, Unit};
use lapstrake_model::benchmark::{Counted, Iozone, hdparm};
use lapstrake_model::system::load::{self, LoadPhase};
use lapstrake_model::system::{FileSystem, System, SystemConfig};
use lapstrake_model::{Nanos, Processor};
use std::collections::BTreeMap;

/// Whether a tool's calls go through the page cache of the machine: not where an array has no path.
pub(super) fn has_cache(array: &Array, like: &Like) -> bool {
    let is_pathless = array.kind == SubjectKind::Lapstrake
        && matches!(array.shape.over, Over::Process | Over::Nbd);
    !is_pathless || !matches!(like, Like::Hdparm)
}

/// Runs a tool's definition; its phases, and when it was over.
///
/// # Errors
/// If the volume is too small.
pub(super) fn run(
    array: &Array,
    machine: &Machine,
    processor: Processor,
    standing: ModelledSubject,
    like: &Like,
    seed: u64,
) -> Result<(Vec<Phase>, Nanos), String> {
    let mut system = System::new(config(array, machine, processor), Box::new(standing));
    let phases = match like {
        Like::Hdparm => Some(vec![load::hdparm(&mut system)]),
        Like::Bonnie { version, size, chunk, sync, times, fast, .. } => {
            let settings = bonnie::load(*version, *size, *chunk, *sync, *fast);
            // Each time on a file of its own, as the tool does it.
            let mut all = Some(Vec::new());
            for time in 1..=u64::from(*times) {
                let more = load::bonnie(&mut system, &settings, seed ^ time);
                all = all.zip(more).map(|(mut all, more)| {
                    all.extend(more);
                    all
                });
            }
            all
        }
        Like::Iozone { tests, size, record, flush, .. } => {
            let settings =
                Iozone { tests: tests.clone(), size: *size, record: *record, flush: *flush };
            load::iozone(&mut system, &settings, seed)
        }
    };
    let phases = phases.ok_or("the file has no room on it")?;
    let times = match like {
        Like::Bonnie { times, .. } => *times as usize,
        _ => 1,
    };
    let each = phases.len() / times;
    let record = |(index, phase): (usize, &LoadPhase)| {
        let name = match (times, phase.name) {
            (_, hdparm::NAME) => String::new(),
            (1, name) => name.to_owned(),
            (_, name) => format!("{} {name}", index / each + 1),
        };
        phase_of(&name, phase)
    };
    Ok((phases.iter().enumerate().map(record).collect(), system.now()))
}

/// The operating system under an array's file system.
pub(super) fn config(array: &Array, machine: &Machine, processor: Processor) -> SystemConfig {
    let file_system = match array.shape.filesystem {
        Some(Filesystem::Ext3) => FileSystem::Ext3,
        _ => FileSystem::Ext4,
    };
    let memory = machine.memory.unwrap_or(DEFAULT_MEMORY);
    let linux = machine.linux.unwrap_or(DEFAULT_LINUX);
    let mut config = SystemConfig::linux(linux, memory, file_system, processor);
    config.low_memory = machine.low_memory.unwrap_or(memory);
    if let Some(bytes) = array.shape.read_ahead {
        config.read_ahead_pages = bytes / lapstrake_model::system::PAGE;
    }
    config
}

/// A phase as records have it.
pub(super) fn phase_of(name: &str, phase: &LoadPhase) -> Phase {
    let seconds = phase.time.0 as f64 / 1e9;
    let unit = match phase.counted {
        Counted::Requests => Unit::RequestsPerSecond,
        Counted::Transactions => Unit::TransactionsPerSecond,
        Counted::BytesRead | Counted::BytesWritten | Counted::BytesRewritten => {
            Unit::BytesPerSecond
        }
    };
    let spent = CpuTime { user_s: 0.0, system_s: phase.spent.0 as f64 / 1e9 };
    let flow = |moved: bool| Flow {
        bytes: if moved { phase.amount as u64 } else { 0 },
        ..Flow::default()
    };
    Phase {
        read: flow(phase.counted.reads()),
        write: flow(phase.counted.writes()),
        cpu: Cpu {
            user_s: 0.0,
            system_s: spent.system_s,
            processes: BTreeMap::from([("load".to_owned(), spent)]),
        },
        ..Phase::new(name, phase.rate(), unit, seconds)
    }
}
