//! What a process of a fio job does next, in virtual time: what fio's own threads do.
//!
//! Invariants: at most `depth` requests are under way; after the end nothing new is begun but one flush, if it is asked
//! for, once all else has ended. With a map each place of the range comes once before any comes again.

use super::super::drive::Actor;
use super::permutation::Permutation;
use crate::fio_job::Job;
use crate::workload::generator::{Request, Step};
use crate::workload::recorder::{Kind, Recorder};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use std::ops::Range;

pub(super) struct Process<'a> {
    job: &'a Job,
    /// Bytes of the array.
    range: Range<u64>,
    /// The smallest request: places are multiples of it.
    grain: u64,
    random: Xoshiro256PlusPlus,
    places: Permutation,
    /// Of reads, of writes: where the next in order goes.
    next: [u64; 2],
    /// Bytes of this pass over the range, places of the map that were taken.
    begun: u64,
    taken: u64,
    until_ns: u64,
    free: Vec<u32>,
    running: Vec<Option<Request>>,
    writes: u64,
    is_flush_due: bool,
    is_flushing: bool,
    has_ended: bool,
    flushes_at_end: bool,
    recorder: Recorder,
}

impl<'a> Process<'a> {
    /// A process of a job on an array of so many bytes.
    ///
    /// # Errors
    /// If the array has no room for what the job says.
    pub fn new(job: &'a Job, bytes: u64, seed: u64) -> Result<Self, String> {
        let used = (0..2).filter(|direction| job.moves(*direction));
        let sizes = used.flat_map(|direction| &job.blocks[direction]).map(|(size, _)| *size);
        let grain = sizes.clone().min().expect("a job reads or writes");
        let largest = sizes.max().expect("the same");
        let from = job.offset.of(bytes) / grain * grain;
        let size = job.size.of(bytes - from.min(bytes)) / grain * grain;
        if from + size > bytes || size < largest {
            return Err(format!(
                "[{}] asks for {size} bytes from byte {from} on, in blocks of {largest}; the array has {bytes}",
                job.name
            ));
        }
        let ramp = job.ramp.as_nanos() as u64;
        let until_ns =
            job.runtime.map_or(u64::MAX, |time| ramp.saturating_add(time.as_nanos() as u64));
        Ok(Self {
            range: from..from + size,
            grain,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            places: Permutation::new(size / grain, seed),
            next: [from; 2],
            begun: 0,
            taken: 0,
            until_ns,
            free: (0..job.depth).rev().collect(),
            running: vec![None; job.depth as usize],
            writes: 0,
            is_flush_due: false,
            is_flushing: false,
            has_ended: false,
            flushes_at_end: job.flush_at_end,
            recorder: Recorder::new(ramp, None),
            job,
        })
    }

    /// What was done after the ramp.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn is_over(&mut self, now_ns: u64) -> bool {
        if now_ns >= self.until_ns {
            return true;
        }
        if self.begun < self.range.end - self.range.start {
            return false;
        }
        if self.job.is_timed {
            self.begin_again();
        }
        !self.job.is_timed
    }

    /// The next pass over the range.
    fn begin_again(&mut self) {
        (self.begun, self.taken, self.next) = (0, 0, [self.range.start; 2]);
        self.places = Permutation::new(self.places.count(), self.random.random());
    }

    fn data(&mut self, slot: u32, now_ns: u64) -> Step {
        let reads = match self.job.reads {
            share if share >= 1.0 => true,
            share if share <= 0.0 => false,
            share => self.random.random_bool(share),
        };
        let direction = usize::from(!reads);
        let size = self.size(direction);
        let offset = if self.job.is_random { self.random_place() } else { self.next[direction] };
        let len = size.min(self.range.end - offset);
        let after = offset + len;
        // In order: from the beginning again, while the other direction has not moved its share.
        self.next[direction] = if after < self.range.end { after } else { self.range.start };
        self.begun += len;
        if !reads {
            self.writes += 1;
            self.is_flush_due =
                self.job.flush_every.is_some_and(|every| self.writes.is_multiple_of(every));
        }
        self.begin(slot, if reads { Kind::Read } else { Kind::Write }, offset, len, now_ns)
    }

    fn size(&mut self, direction: usize) -> u64 {
        let blocks = &self.job.blocks[direction];
        let [(only, _)] = blocks[..] else {
            let mut left: f64 = self.random.random();
            for (size, share) in blocks {
                left -= share;
                if left < 0.0 {
                    return *size;
                }
            }
            return blocks.last().expect("there is one").0;
        };
        only
    }

    fn random_place(&mut self) -> u64 {
        let count = self.places.count();
        let place = if self.job.has_map {
            let place = self.places.place(self.taken % count);
            self.taken += 1;
            place
        } else {
            self.random.random_range(0..count)
        };
        self.range.start + place * self.grain
    }

    fn begin(&mut self, slot: u32, kind: Kind, offset: u64, len: u64, now_ns: u64) -> Step {
        let request = Request::unchecked(slot, kind, offset, len, now_ns);
        self.running[slot as usize] = Some(request);
        Step::Do(request)
    }

    fn is_idle(&self) -> bool {
        self.free.len() == self.running.len()
    }
}

impl Actor for Process<'_> {
    fn next(&mut self, now_ns: u64) -> Step {
        if self.is_flushing && self.job.waits_for_flushes {
            return Step::Wait;
        }
        if !self.has_ended {
            self.has_ended = self.is_over(now_ns);
        }
        if self.has_ended {
            return match self.is_idle() {
                false => Step::Wait,
                true if std::mem::take(&mut self.flushes_at_end) => {
                    let slot = self.free.pop().expect("it is idle");
                    self.begin(slot, Kind::Flush, 0, 0, now_ns)
                }
                true => Step::Done,
            };
        }
        let Some(slot) = self.free.pop() else { return Step::Wait };
        if std::mem::take(&mut self.is_flush_due) {
            self.is_flushing = true;
            return self.begin(slot, Kind::Flush, 0, 0, now_ns);
        }
        self.data(slot, now_ns)
    }

    fn complete(&mut self, slot: u32, now_ns: u64) -> Result<(), String> {
        let request = self.running[slot as usize].take().expect("only what was begun ends");
        self.free.push(slot);
        if request.kind == Kind::Flush {
            self.is_flushing = false;
        }
        self.recorder.add(request.kind, request.len, request.due_ns(), now_ns);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio_job::JobFile;

    /// What one process does when each request takes a microsecond.
    fn lived(text: &str, bytes: u64) -> (Vec<Request>, Recorder) {
        let file = JobFile::parse(text).unwrap();
        let mut process = Process::new(&file.jobs[0], bytes, 7).unwrap();
        let (mut now, mut all, mut running) = (0, Vec::new(), Vec::new());
        loop {
            match process.next(now) {
                Step::Do(request) => {
                    all.push(request);
                    running.push(request.slot);
                }
                Step::Done => return (all, process.recorder().clone()),
                _ => {
                    now += 1000;
                    process.complete(running.remove(0), now).unwrap();
                }
            }
        }
    }

    fn offsets(all: &[Request], kind: Kind) -> Vec<u64> {
        all.iter()
            .filter(|request| request.kind == kind)
            .map(|request| request.offset / 4096)
            .collect()
    }

    #[test]
    fn reads_and_writes_in_order_have_places_of_their_own_and_share_the_size() {
        let (all, _) = lived("[a]\ndirect=1\nrw=rw\nsize=64k\n", 1 << 20);
        let (reads, writes) = (offsets(&all, Kind::Read), offsets(&all, Kind::Write));
        assert_eq!(reads.len() + writes.len(), 16);
        assert!(
            reads.iter().copied().eq(0..reads.len() as u64) && writes[0] == 0,
            "{reads:?} {writes:?}"
        );
    }

    #[test]
    fn a_map_has_every_place_once() {
        let (all, _) = lived("[a]\ndirect=1\nrw=randwrite\nsize=400k\noffset=40k\n", 1 << 20);
        let mut places = offsets(&all, Kind::Write);
        assert_ne!(places, (10..110).collect::<Vec<u64>>());
        places.sort_unstable();
        assert_eq!(places, (10..110).collect::<Vec<u64>>());
        let (all, _) = lived("[a]\ndirect=1\nrw=randwrite\nsize=400k\nnorandommap\n", 1 << 20);
        let mut places = offsets(&all, Kind::Write);
        places.sort_unstable();
        places.dedup();
        assert!((40..90).contains(&places.len()), "{}", places.len());
    }

    #[test]
    fn flushes_come_after_so_many_writes_and_at_the_end() {
        let (all, _) = lived("[a]\ndirect=1\nrw=write\nsize=24k\nfsync=4\nend_fsync=1\n", 1 << 20);
        let kinds: String =
            all.iter().map(|request| if request.kind == Kind::Flush { 'f' } else { 'w' }).collect();
        assert_eq!(kinds, "wwwwfwwf");
    }

    #[test]
    fn a_time_ends_a_job_and_one_that_is_timed_begins_again() {
        let text = |more: &str| format!("[a]\ndirect=1\nrw=read\nsize=16k\nruntime=20us\n{more}");
        assert_eq!(lived(&text(""), 1 << 20).0.len(), 4);
        let (all, recorder) = lived(&text("time_based\nramp_time=5us\n"), 1 << 20);
        assert_eq!(all.len(), 25);
        assert_eq!(all[4].offset, 0);
        // Those that ended before the ramp's end are in no figure.
        assert_eq!(recorder.finish().read.requests, 21);
    }

    #[test]
    fn a_deep_queue_waits_for_a_flush_or_has_it_among_the_others() {
        let text = |engine: &str| {
            format!("[a]\ndirect=1\nrw=write\nsize=32k\niodepth=4\nfsync=2\nioengine={engine}\n")
        };
        let first = |engine: &str| {
            let file = JobFile::parse(&text(engine)).unwrap();
            let mut process = Process::new(&file.jobs[0], 1 << 20, 1).unwrap();
            (0..4).filter(|_| matches!(process.next(0), Step::Do(_))).count()
        };
        assert_eq!(first("libaio"), 3);
        assert_eq!(first("io_uring"), 4);
    }

    #[test]
    fn what_has_no_room_is_told() {
        let file = JobFile::parse("[a]\ndirect=1\nrw=read\nsize=2m\n").unwrap();
        let Err(why) = Process::new(&file.jobs[0], 1 << 20, 1) else { panic!("it has room") };
        assert!(why.contains("[a] asks for 2097152 bytes from byte 0 on"), "{why}");
    }
}
