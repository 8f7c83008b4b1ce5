//! What other tools do, on the model of an operating system.

use super::machine::Standing;
use super::{DEFAULT_LINUX, DEFAULT_MEMORY};
use crate::plan::{Array, BonnieVersion, Filesystem, Like, Machine, Over};
use crate::record::{Cpu, CpuTime, Flow, Phase, SubjectKind, Unit};
use lapstrake_model::system::load::{self, Bonnie, Iozone, Part};
use lapstrake_model::system::{FileSystem, System, SystemConfig};
use lapstrake_model::{Nanos, Processor};
use std::collections::BTreeMap;

/// Whether a tool's calls go through the page cache of the machine: not where an array has no path.
pub(super) fn has_cache(array: &Array, like: &Like) -> bool {
    let is_pathless = array.kind == SubjectKind::Lapstrake
        && matches!(array.shape.over, Over::Process | Over::Nbd);
    !is_pathless || !matches!(like, Like::Hdparm)
}

/// Runs a tool's definition; its parts, and when it was over.
///
/// # Errors
/// If the volume is too small.
pub(super) fn run(
    array: &Array,
    machine: &Machine,
    processor: Processor,
    standing: Standing,
    like: &Like,
    seed: u64,
) -> Result<(Vec<Phase>, Nanos), String> {
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
    let mut system = System::new(config, Box::new(standing));
    let parts = match like {
        Like::Hdparm => Some(vec![load::hdparm(&mut system)]),
        Like::Bonnie { version, size, sync, times, fast, .. } => {
            let settings = match version {
                BonnieVersion::V1_03 => Bonnie::v1_03(*size),
                BonnieVersion::V2_00a => Bonnie::v2_00(*size),
            };
            let settings = Bonnie { sync: *sync, ..settings };
            let settings = if *fast { Bonnie { characters: 0, ..settings } } else { settings };
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
    let parts = parts.ok_or("the file has no room on it")?;
    let times = match like {
        Like::Bonnie { times, .. } => *times as usize,
        _ => 1,
    };
    let each = parts.len() / times;
    let phase = |(index, part): (usize, &Part)| {
        let name = match (times, part.name) {
            (_, "hdparm -t") => String::new(),
            (1, name) => name.to_owned(),
            (_, name) => format!("{} {name}", index / each + 1),
        };
        phase(&name, part, matches!(like, Like::Bonnie { .. }))
    };
    Ok((parts.iter().enumerate().map(phase).collect(), system.now()))
}

/// A part as records have it. A rewrite of bonnie++'s reads first, iozone's does not.
fn phase(name: &str, part: &Part, rewrite_reads: bool) -> Phase {
    let seconds = part.time.0 as f64 / 1e9;
    let is_seeks = part.name == "seeks";
    let unit = if is_seeks { Unit::RequestsPerSecond } else { Unit::BytesPerSecond };
    let spent = CpuTime { user_s: 0.0, system_s: part.spent.0 as f64 / 1e9 };
    let flow = |moved: bool| Flow {
        bytes: if moved && !is_seeks { part.amount as u64 } else { 0 },
        ..Flow::default()
    };
    let has = |words: &[&str]| words.iter().any(|word| part.name.contains(word));
    let reads = has(&["input", "read", "hdparm"]) || (rewrite_reads && part.name == "rewrite");
    let writes = has(&["output", "write"]);
    Phase {
        read: flow(reads),
        write: flow(writes),
        cpu: Cpu {
            user_s: 0.0,
            system_s: spent.system_s,
            processes: BTreeMap::from([("load".to_owned(), spent)]),
        },
        ..Phase::new(name, part.rate(), unit, seconds)
    }
}
