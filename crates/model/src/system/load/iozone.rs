//! iozone as one process; records are whole pages.

use super::{LoadPhase, timed};
use crate::benchmark::Iozone;
use crate::benchmark::iozone::{Phase, random_order};
use crate::dice::Dice;
use crate::system::{FileId, PAGE, Reader, System};

/// Runs it once on a fresh file; none if it does not fit.
pub fn iozone(system: &mut System, load: &Iozone, seed: u64) -> Option<Vec<LoadPhase>> {
    let file = system.create(load.records() * (load.record / PAGE))?;
    Some(load.phases().map(|phase| run_phase(system, file, load, phase, seed)).collect())
}

fn run_phase(
    system: &mut System,
    file: FileId,
    load: &Iozone,
    phase: Phase,
    seed: u64,
) -> LoadPhase {
    let (records, pages) = (load.records(), load.record / PAGE);
    let order = if phase.is_random {
        // A seed gives both random phases the same order.
        let mut dice = Dice::new(seed);
        random_order(records, |limit| dice.below(limit as u64) as usize)
    } else {
        (0..records).collect()
    };
    let ranges = order.into_iter().map(|index| index * pages..(index + 1) * pages);
    let bytes = (records * load.record) as f64;
    let done = timed(system, phase.name, phase.counted, bytes, |system| {
        if phase.counted.reads() {
            let mut reader = Reader::default();
            ranges.for_each(|range| system.read(file, range, &mut reader));
        } else {
            ranges.for_each(|range| system.write(file, range));
            if load.flush {
                system.fsync(file);
            }
        }
    });
    if phase.counted.writes() && !phase.is_random {
        // Before it closes the file, and out of its time unless -e says otherwise.
        system.fsync(file);
    }
    done
}
