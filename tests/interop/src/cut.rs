//! Our serving ends without a word, in the middle of writes: the kernel has to find enough in
//! superblocks and bitmap to make every copy right again.
//!
//! The end is a copy of the members, taken while writes are in flight. A copy is not of one
//! moment, but it is what a cut could have left, since what says that there is work to do is
//! copied last: superblocks say active as long as writes come, and bits outlive their writes by
//! seconds.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use lapstrake_geometry::Sectors;
use lapstrake_metadata::detect;

use crate::Failure;
use crate::judge::Script;
use crate::nbd::Client;
use crate::ours;
use crate::stage::Stage;

/// The loop of one writer; the copier begins when some of its writes are answered.
struct Writer {
    cuts: Vec<Range<u64>>,
    answered: AtomicUsize,
}

impl Writer {
    /// Writes the parts of `image` one after the other, and again, until the copier has ended.
    fn run(&self, client: &mut Client, image: &[u8], over: &AtomicUsize) -> Result<(), Failure> {
        loop {
            for some in self.cuts.chunks(24) {
                ours::write_parts(client, image, some)?;
                self.answered.fetch_add(some.len(), Ordering::SeqCst);
            }
            if over.load(Ordering::SeqCst) > 0 {
                return Ok(());
            }
        }
    }
}

impl Stage<'_> {
    /// See the module. Afterwards the array itself holds the new bytes.
    pub fn cut_short(&mut self) -> Result<(), Failure> {
        let copies: Vec<PathBuf> =
            (0..self.files.len()).map(|i| self.directory.join(format!("cut-{i}"))).collect();
        let old = self.image.clone();
        self.draw.fill(&mut self.image);
        let mut cuts = self.draw.cuts(old.len() as u64 / 512);
        self.draw.shuffle(&mut cuts);
        // One at least: before that the superblocks may say clean.
        let enough = (cuts.len() / 3).max(1);
        let writer = Writer { cuts, answered: AtomicUsize::new(0) };
        // On a busy machine writes may pause for longer than md's delay.
        let array = self.start_without(&[], ours::WRITE_WITHOUT_REST)?;
        let (files, image) = (&self.files, &self.image);
        array.serve(&self.directory.join("nbd"), |client| {
            let over = AtomicUsize::new(0);
            thread::scope(|scope| {
                let copier = scope.spawn(|| {
                    while writer.answered.load(Ordering::SeqCst) < enough {
                        thread::yield_now();
                    }
                    let copied = copy(files, &copies);
                    over.store(1, Ordering::SeqCst);
                    copied
                });
                let written = writer.run(client, image, &over);
                // A writer that failed answers no more.
                writer.answered.store(enough, Ordering::SeqCst);
                copier.join().map_err(|_| "the copier panicked")??;
                written
            })
        })?;
        self.kernel_repairs(&copies, &old).map_err(|error| format!("cut short: {error}").into())
    }

    fn kernel_repairs(&mut self, copies: &[PathBuf], old: &[u8]) -> Result<(), Failure> {
        let dump = self.directory.join("cut-image");
        let script = Script::new(copies, self.directory)
            .active()
            .assemble()
            .then("settle")
            .then(&format!("dump '{}'", dump.display()))
            .then("matches");
        self.judge.play(&script)?;
        let found = fs::read(&dump)?;
        if found.len() != old.len() {
            return Err(format!("the kernel reads {} bytes", found.len()).into());
        }
        let versions = old.chunks(512).zip(self.image.chunks(512));
        let mut sectors = found.chunks(512).zip(versions);
        match sectors.position(|(found, (old, new))| !is_of(found, old, new)) {
            Some(at) => Err(format!("array sector {at} is neither old nor new").into()),
            None => Ok(()),
        }
    }
}

/// Whether a sector is old or new. The copier, other than a disk, may come while a sector is written: then
/// it is one up to somewhere, and the other from there on.
fn is_of(found: &[u8], old: &[u8], new: &[u8]) -> bool {
    let alike = |a: &[u8]| found.iter().zip(a).take_while(|(x, y)| x == y).count();
    let goes_on = |at: usize, other: &[u8]| found[at..] == other[at..];
    goes_on(alike(old), new) || goes_on(alike(new), old)
}

/// All data first, then all of what stands for it.
fn copy(files: &[PathBuf], copies: &[PathBuf]) -> Result<(), Failure> {
    for (from, to) in files.iter().zip(copies) {
        fs::copy(from, to)?;
    }
    for (from, to) in files.iter().zip(copies) {
        let (from, to) = (File::open(from)?, File::options().write(true).open(to)?);
        let part = beside_data(&from)?;
        let mut bytes = vec![0; (part.end - part.start) as usize];
        from.read_exact_at(&mut bytes, part.start)?;
        to.write_all_at(&bytes, part.start)?;
    }
    Ok(())
}

/// Where superblock and bitmap lie, in bytes: nothing there is data.
fn beside_data(file: &File) -> Result<Range<u64>, Failure> {
    let size = file.metadata()?.len();
    let read = |offset, bytes: &mut [u8]| file.read_exact_at(bytes, offset);
    let findings = detect::probe(Sectors::from_bytes(size), read)?;
    let superblock = findings.best().ok_or("a member without superblock")?;
    if superblock.data_offset() > superblock.super_sector() {
        return Ok(0..superblock.data_offset().bytes());
    }
    let first = superblock.bitmap_sector().into_iter().chain([superblock.super_sector()]).min();
    Ok(first.map_or(size, |sector| sector.bytes())..size)
}
