//! bonnie++: one file written by characters, written, rewritten, read by characters, read; then seeks.
//!
//! Source: bonnie++.cpp of 1.03 and 2.00a. Chunks of 8 KiB; a part ends with fsync and close. 1.03 has its characters go
//! through stdio over the whole size and forks three seekers, later ones write 3 MiB by one call a byte and fork
//! five. One seek in ten writes back what it read.

use super::{Part, part};
use crate::Nanos;
use crate::dice::Dice;
use crate::system::{FileId, PAGE, Reader, System};
use std::ops::Range;

/// What to do, as bonnie++'s options say it.
#[derive(Clone, Copy, Debug)]
pub struct Bonnie {
    /// Bytes of the file.
    pub size: u64,
    /// Bytes by characters; the whole size for 1.03, 3 MiB later, none with `-f`.
    pub characters: u64,
    /// A call for each character; else stdio's.
    pub calls_characters: bool,
    /// Seekers.
    pub seekers: usize,
    /// Seeks.
    pub seeks: u64,
    /// No write buffering (`-b`): each seeker's write is followed by fsync.
    pub sync: bool,
}

impl Bonnie {
    /// bonnie++ 1.03 on a file of `size` bytes.
    #[must_use]
    pub fn v1_03(size: u64) -> Self {
        Self {
            size,
            characters: size,
            calls_characters: false,
            seekers: 3,
            seeks: 8192,
            sync: false,
        }
    }

    /// bonnie++ 1.96 and later.
    #[must_use]
    pub fn v2_00(size: u64) -> Self {
        Self { characters: 3 << 20, calls_characters: true, seekers: 5, ..Self::v1_03(size) }
    }
}

const CHUNK: u64 = 8192 / PAGE;

/// Runs it once on a fresh file; none if it does not fit.
pub fn bonnie(system: &mut System, load: &Bonnie, seed: u64) -> Option<Vec<Part>> {
    let pages = load.size / PAGE / CHUNK * CHUNK;
    let bytes = (pages * PAGE) as f64;
    let mut parts = Vec::new();
    let few = load.characters.min(load.size) / PAGE / CHUNK * CHUNK;
    let file = system.create(pages)?;
    let by_characters = (few * PAGE) as f64;
    if few > 0 {
        parts.push(part(system, "per-character output", by_characters, |system| {
            for chunk in chunks(few) {
                system.compute(characters(system, load));
                system.write(file, chunk);
            }
            system.fsync(file);
        }));
    }
    parts.push(part(system, "block output", bytes, |system| {
        chunks(pages).for_each(|chunk| system.write(file, chunk));
        system.fsync(file);
    }));
    parts.push(part(system, "rewrite", bytes, |system| {
        let mut reader = Reader::default();
        for chunk in chunks(pages) {
            system.read(file, chunk.clone(), &mut reader);
            system.write(file, chunk);
        }
        system.fsync(file);
    }));
    if few > 0 {
        parts.push(part(system, "per-character input", by_characters, |system| {
            let mut reader = Reader::default();
            for chunk in chunks(few) {
                system.read(file, chunk, &mut reader);
                system.compute(characters(system, load));
            }
            system.fsync(file);
        }));
    }
    parts.push(part(system, "block input", bytes, |system| {
        let mut reader = Reader::default();
        chunks(pages).for_each(|chunk| system.read(file, chunk, &mut reader));
        system.fsync(file);
    }));
    parts.push(seeks_alone(system, file, load, seed));
    Some(parts)
}

/// The seeks, on a file that is there.
pub fn seeks_alone(system: &mut System, file: FileId, load: &Bonnie, seed: u64) -> Part {
    let pages = load.size / PAGE / CHUNK * CHUNK;
    part(system, "seeks", load.seeks as f64, |system| seeks(system, file, pages, load, seed))
}

fn chunks(pages: u64) -> impl Iterator<Item = Range<u64>> {
    (0..pages / CHUNK).map(|index| index * CHUNK..(index + 1) * CHUNK)
}

/// What the characters of a chunk cost beside their pages.
fn characters(system: &System, load: &Bonnie) -> Nanos {
    let processor = &system.config().processor;
    let each = Nanos(processor.character_ps * CHUNK * PAGE / 1000);
    if load.calls_characters { each + processor.system_call * (CHUNK * PAGE) } else { each }
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

fn seeks(system: &mut System, file: FileId, pages: u64, load: &Bonnie, seed: u64) {
    let mut dice = Dice::new(seed);
    let mut left = load.seeks;
    let mut seekers = vec![Seeker::Free; load.seekers.max(1)];
    while seekers.iter().any(|seeker| !matches!(seeker, Seeker::Done)) {
        let mut is_stuck = true;
        for seeker in &mut seekers {
            let next = step(system, file, pages, load, *seeker, &mut left, &mut dice);
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
    pages: u64,
    load: &Bonnie,
    seeker: Seeker,
    left: &mut u64,
    dice: &mut Dice,
) -> Option<Seeker> {
    let processor = system.config().processor;
    let range = |chunk: u64| chunk * CHUNK..(chunk + 1) * CHUNK;
    match seeker {
        Seeker::Done => None,
        Seeker::Free if *left == 0 => Some(Seeker::Done),
        Seeker::Free => {
            *left -= 1;
            let chunk = dice.below(pages / CHUNK);
            // lseek and read, and the page cache's work.
            let pages = (processor.page_read + processor.copy(PAGE)) * CHUNK;
            system
                .compute(processor.system_call * 2 + processor.switch + processor.request + pages);
            Some(look(system, file, chunk))
        }
        Seeker::Looks(chunk) => match look(system, file, chunk) {
            Seeker::Looks(_) => None,
            found => Some(found),
        },
        Seeker::Waits(chunk) if !system.is_there(file, range(chunk)) => None,
        Seeker::Waits(chunk) => {
            if dice.below(10) == 0 {
                let pages = (processor.page_write + processor.copy(PAGE)) * CHUNK;
                system.compute(processor.system_call * 2 + pages);
                system.write_behind(file, range(chunk));
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

fn look(system: &mut System, file: FileId, chunk: u64) -> Seeker {
    let range = chunk * CHUNK..(chunk + 1) * CHUNK;
    if system.start_read(file, range) { Seeker::Waits(chunk) } else { Seeker::Looks(chunk) }
}
