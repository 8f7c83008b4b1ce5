//! bonnie++'s phases over one file, and its seeks, on the model.
//!
//! The file is made once: a system of the model has no files to delete. A seeker draws its next place when it is free,
//! and whether it writes when it has read.

use super::{LoadPhase, timed};
use crate::Nanos;
use crate::benchmark::bonnie::{Access, FilePhase, SEEKS, UPDATE};
use crate::benchmark::{Bonnie, Counted};
use crate::dice::Dice;
use crate::system::{FileId, PAGE, Reader, System};
use std::ops::Range;

/// Runs it once on a fresh file; none if it does not fit.
pub fn bonnie(system: &mut System, load: &Bonnie, seed: u64) -> Option<Vec<LoadPhase>> {
    let file = system.create(load.chunks() * (load.chunk / PAGE))?;
    let mut phases: Vec<LoadPhase> =
        load.file_phases().map(|phase| file_phase(system, file, load, phase)).collect();
    phases.push(seeks_alone(system, file, load, seed));
    Some(phases)
}

fn file_phase(system: &mut System, file: FileId, load: &Bonnie, phase: FilePhase) -> LoadPhase {
    let FilePhase { name, access, chunks } = phase;
    timed(system, name, access.counted(), (chunks * load.chunk) as f64, |system| {
        let mut reader = Reader::default();
        for range in (0..chunks).map(|index| pages_of(load, index)) {
            match access {
                Access::WriteCharacters => {
                    system.compute(characters(system, load));
                    system.write(file, range);
                }
                Access::Write => system.write(file, range),
                Access::Rewrite => {
                    system.read(file, range.clone(), &mut reader);
                    system.write(file, range);
                }
                Access::ReadCharacters => {
                    system.read(file, range, &mut reader);
                    system.compute(characters(system, load));
                }
                Access::Read => system.read(file, range, &mut reader),
            }
        }
        system.fsync(file);
    })
}

/// The seeks, on a file that is there.
pub fn seeks_alone(system: &mut System, file: FileId, load: &Bonnie, seed: u64) -> LoadPhase {
    timed(system, SEEKS, Counted::Requests, load.seeks as f64, |system| {
        seeks(system, file, load, seed);
    })
}

/// The pages of a chunk.
fn pages_of(load: &Bonnie, chunk: u64) -> Range<u64> {
    let pages = load.chunk / PAGE;
    chunk * pages..(chunk + 1) * pages
}

/// What the characters of a chunk cost beside their pages.
fn characters(system: &System, load: &Bonnie) -> Nanos {
    let processor = &system.config().processor;
    let each = Nanos(processor.character_ps * load.chunk / 1000);
    if load.calls_characters { each + processor.system_call * load.chunk } else { each }
}

/// One of those that seek.
#[derive(Clone, Copy)]
enum Seeker {
    /// Wants the next place.
    Free,
    /// Looks for a chunk whose place is not known yet.
    Looks(u64),
    /// Waits for a chunk.
    Waits(u64),
    /// Waits until its chunk is written.
    Syncs,
    /// Waits until the journal says so.
    Commits,
    Done,
}

fn seeks(system: &mut System, file: FileId, load: &Bonnie, seed: u64) {
    let mut dice = Dice::new(seed);
    let mut left = load.seeks;
    let mut seekers = vec![Seeker::Free; load.seekers.max(1)];
    while seekers.iter().any(|seeker| !matches!(seeker, Seeker::Done)) {
        let mut is_stuck = true;
        for seeker in &mut seekers {
            let next = step(system, file, load, *seeker, &mut left, &mut dice);
            is_stuck &= next.is_none();
            *seeker = next.unwrap_or(*seeker);
        }
        if is_stuck {
            system.next(Nanos::MAX);
        }
    }
    system.fsync(file);
}

/// What a seeker does now; none if it waits.
fn step(
    system: &mut System,
    file: FileId,
    load: &Bonnie,
    seeker: Seeker,
    left: &mut u64,
    dice: &mut Dice,
) -> Option<Seeker> {
    let processor = system.config().processor;
    let chunk_pages = load.chunk / PAGE;
    match seeker {
        Seeker::Done => None,
        Seeker::Free if *left == 0 => Some(Seeker::Done),
        Seeker::Free => {
            *left -= 1;
            let chunk = dice.below(load.chunks());
            // lseek and read, and the page cache's work.
            let pages = (processor.page_read + processor.copy(PAGE)) * chunk_pages;
            system
                .compute(processor.system_call * 2 + processor.switch + processor.request + pages);
            Some(look(system, file, load, chunk))
        }
        Seeker::Looks(chunk) => match look(system, file, load, chunk) {
            Seeker::Looks(_) => None,
            found => Some(found),
        },
        Seeker::Waits(chunk) if !system.is_there(file, pages_of(load, chunk)) => None,
        Seeker::Waits(chunk) => {
            if dice.below(UPDATE) == 0 {
                let pages = (processor.page_write + processor.copy(PAGE)) * chunk_pages;
                system.compute(processor.system_call * 2 + pages);
                system.write_behind(file, pages_of(load, chunk));
                if load.sync {
                    system.start_fsync(file);
                    return Some(Seeker::Syncs);
                }
            }
            Some(Seeker::Free)
        }
        Seeker::Syncs if !system.is_written(file) => None,
        Seeker::Syncs => {
            system.end_fsync();
            Some(Seeker::Commits)
        }
        Seeker::Commits if system.is_committing() => None,
        Seeker::Commits => Some(Seeker::Free),
    }
}

fn look(system: &mut System, file: FileId, load: &Bonnie, chunk: u64) -> Seeker {
    if system.start_read(file, pages_of(load, chunk)) {
        Seeker::Waits(chunk)
    } else {
        Seeker::Looks(chunk)
    }
}
