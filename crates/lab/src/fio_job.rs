//! fio's job files: which jobs a file has, what each does, which run at the same time.
//!
//! Invariants:
//! - an option means what it means to fio 3 (its HOWTO): a section's own come after those of `[global]` above it, the
//!   last of a name counts, a section with `stonewall` begins when all before it have ended;
//! - what is not understood is an error with its line, never passed over: a job means all that it says or nothing.
//!
//! What it does not do: run anything. Where a job runs is not in the file (`plan::workloads`).

mod values;

use std::time::Duration;
use values::{Value, blocks, bytes, number, switch, time};

/// What fio takes where nothing is said.
const BLOCK: u64 = 4096;
/// Requests are multiples of this: md's sector.
const SECTOR: u64 = 512;
/// The largest request: what an array's front ends take.
const BLOCK_MAX: u64 = 32 << 20;
/// Processes of a job, and requests that one has under way, at most.
const COUNT_MAX: u64 = 4096;

/// A job file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobFile {
    /// In the file's order.
    pub jobs: Vec<Job>,
}

/// A job: what each of its processes does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Job {
    pub name: String,
    /// Jobs of one group run at the same time, groups one after the other.
    pub group: usize,
    /// The share of requests that read, 0 to 1.
    pub reads: f64,
    pub is_random: bool,
    /// Each place once before any comes again.
    pub has_map: bool,
    /// Of reads, of writes: sizes and their shares.
    pub blocks: [Vec<(u64, f64)>; 2],
    /// Where it begins, and how much of the array each process moves.
    pub offset: Extent,
    pub size: Extent,
    /// Requests under way.
    pub depth: u32,
    pub processes: u32,
    /// A flush after so many writes, and whether the process makes no request until it has ended.
    pub flush_every: Option<u64>,
    pub waits_for_flushes: bool,
    pub flush_at_end: bool,
    pub runtime: Option<Duration>,
    /// Begins again when all is moved, until the time is up.
    pub is_timed: bool,
    /// What is done before does not count.
    pub ramp: Duration,
    /// It is reported together with what runs at the same time before it.
    pub is_grouped: bool,
}

/// Bytes, or a share of the array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Extent {
    Bytes(u64),
    Share(f64),
}

impl Extent {
    pub fn of(self, all: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => (all as f64 * share) as u64,
        }
    }
}

/// An option as it stands in the file.
#[derive(Clone, Debug)]
struct Line {
    at: usize,
    name: String,
    value: Option<String>,
}

impl JobFile {
    /// Reads a file's text.
    ///
    /// # Errors
    /// All that is not understood, with its lines.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut global, mut sections): (Vec<Line>, Vec<(String, Vec<Line>)>) = Default::default();
        let mut problems: Vec<String> = Vec::new();
        let mut is_global = None;
        for (at, line) in text.lines().enumerate() {
            // fio takes both for the beginning of a comment wherever they are.
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let (at, line) = (at + 1, line.trim());
            if line.is_empty() {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                // As fio, which compares so many letters.
                let is_for_all = name.starts_with("global");
                is_global = Some(is_for_all);
                if !is_for_all {
                    sections.push((name.to_owned(), global.clone()));
                }
                continue;
            }
            let (name, value) = match line.split_once('=') {
                Some((name, value)) => (name.trim(), Some(value.trim().to_owned())),
                None => (line, None),
            };
            let line = Line { at, name: name.to_owned(), value };
            match (is_global, sections.last_mut()) {
                (Some(true), _) => global.push(line),
                (Some(false), Some((_, lines))) => lines.push(line),
                _ => problems.push(format!("line {at}: {name} stands before any section")),
            }
        }
        let mut jobs: Vec<Job> = Vec::new();
        for (name, lines) in sections {
            match Job::parse(name, &lines) {
                Ok((mut job, is_alone)) => {
                    let before = jobs.last().map(|job| job.group);
                    job.group = before.map_or(0, |group| group + usize::from(is_alone));
                    jobs.push(job);
                }
                Err(mut more) => problems.append(&mut more),
            }
        }
        // What `[global]` says wrong, each section repeats.
        let mut told: Vec<String> = Vec::new();
        for problem in problems {
            if !told.contains(&problem) {
                told.push(problem);
            }
        }
        if told.is_empty() && jobs.is_empty() {
            told.push("it has no job".to_owned());
        }
        if told.is_empty() { Ok(Self { jobs }) } else { Err(told.join("; ")) }
    }

    /// What is reported together, by the places of jobs: with `group_reporting` all that runs at the same time, else
    /// each job.
    pub fn reports(&self) -> Vec<Vec<usize>> {
        let mut reports: Vec<Vec<usize>> = Vec::new();
        for (at, job) in self.jobs.iter().enumerate() {
            let last = reports.last_mut().filter(|last| self.jobs[last[0]].group == job.group);
            match last.filter(|_| job.is_grouped) {
                Some(last) => last.push(at),
                None => reports.push(vec![at]),
            }
        }
        reports
    }
}

impl Job {
    /// A job, and whether it waits for all before it.
    fn parse(name: String, lines: &[Line]) -> Result<(Self, bool), Vec<String>> {
        let mut job = Self {
            name,
            group: 0,
            reads: 1.0,
            is_random: false,
            has_map: true,
            blocks: [vec![(BLOCK, 1.0)], vec![(BLOCK, 1.0)]],
            offset: Extent::Bytes(0),
            size: Extent::Share(1.0),
            depth: 1,
            processes: 1,
            flush_every: None,
            waits_for_flushes: true,
            flush_at_end: false,
            runtime: None,
            is_timed: false,
            ramp: Duration::ZERO,
            is_grouped: false,
        };
        let mut said = Said::default();
        let mut problems = Vec::new();
        for line in lines {
            if let Err(why) = job.heed(line, &mut said) {
                problems.push(format!("line {}: {why}", line.at));
            }
        }
        if let Err(mut more) = job.settle(&said) {
            problems.append(&mut more);
        }
        if problems.is_empty() { Ok((job, said.is_alone)) } else { Err(problems) }
    }

    /// Takes an option in.
    fn heed(&mut self, line: &Line, said: &mut Said) -> Result<(), String> {
        let Line { name, value, .. } = line;
        let value = Value { name, text: value.as_deref() };
        match name.as_str() {
            "rw" | "readwrite" => said.direction(value.needed()?)?,
            "rwmixread" => said.reads = Some(number(&value, 0..=100)? as f64 / 100.0),
            "rwmixwrite" => said.reads = Some(1.0 - number(&value, 0..=100)? as f64 / 100.0),
            "bs" | "blocksize" => {
                self.blocks = blocks(&value, |text| Ok(vec![(bytes(text)?, 1.0)]))?
            }
            "bssplit" => self.blocks = blocks(&value, values::split)?,
            "size" => self.size = value.extent()?,
            "offset" => self.offset = value.extent()?,
            "iodepth" => said.depth = number(&value, 1..=COUNT_MAX)? as u32,
            "numjobs" => self.processes = number(&value, 1..=COUNT_MAX)? as u32,
            "ioengine" => said.engine = Some(Engine::named(value.needed()?)?),
            "direct" => said.direct = Some((switch(&value)?, line.at)),
            "buffered" => said.direct = Some((!switch(&value)?, line.at)),
            // What is flushed of a device is all of it, whichever is asked for.
            "fsync" | "fdatasync" => {
                self.flush_every =
                    Some(number(&value, 0..=u64::from(u32::MAX))?).filter(|n| *n > 0);
            }
            "end_fsync" => self.flush_at_end = switch(&value)?,
            "runtime" => self.runtime = Some(time(&value)?).filter(|time| !time.is_zero()),
            "time_based" => self.is_timed = switch(&value)?,
            "ramp_time" => self.ramp = time(&value)?,
            "stonewall" | "wait_for_previous" => said.is_alone = switch(&value)?,
            "group_reporting" => self.is_grouped = switch(&value)?,
            "norandommap" => self.has_map = !switch(&value)?,
            // These say how fio works, or from which seed, not what the array gets to do.
            "description" | "thread" | "invalidate" | "randrepeat" | "allrandrepeat"
            | "randseed" | "refill_buffers" | "zero_buffers" | "random_generator" | "disk_util" => {
            }
            _ => return Err(format!("{name} is not understood")),
        }
        Ok(())
    }

    /// What options mean together.
    fn settle(&mut self, said: &Said) -> Result<(), Vec<String>> {
        let name = &self.name;
        let mut problems = Vec::new();
        match said.direct {
            Some((true, _)) => {}
            Some((false, at)) => problems
                .push(format!("line {at}: without direct = 1 it goes through the page cache, which is not modelled")),
            None => problems
                .push(format!("[{name}] has no direct = 1: it goes through the page cache, which is not modelled")),
        }
        self.is_random = said.is_random;
        self.reads = match said.way {
            Way::Reads => 1.0,
            Way::Writes => 0.0,
            Way::Both => said.reads.unwrap_or(0.5),
        };
        let engine = said.engine.unwrap_or(Engine::Synchronous);
        self.depth = if engine == Engine::Synchronous { 1 } else { said.depth };
        self.waits_for_flushes = engine != Engine::QueuesFlushes;
        if self.is_timed && self.runtime.is_none() {
            problems.push(format!("[{name}]: time_based needs a runtime"));
        }
        for (block, _) in self.blocks.iter().flatten() {
            if *block == 0 || !block.is_multiple_of(SECTOR) || *block > BLOCK_MAX {
                problems.push(format!(
                    "[{name}]: blocks of {block} bytes: they are multiples of {SECTOR}, {BLOCK_MAX} at most"
                ));
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// Whether it makes requests in one direction: 0 reads, 1 writes.
    pub fn moves(&self, direction: usize) -> bool {
        if direction == 0 { self.reads > 0.0 } else { self.reads < 1.0 }
    }
}

/// How an I/O engine of fio's works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    /// One request after the other, whatever `iodepth` says.
    Synchronous,
    /// Many requests; a flush holds their maker up.
    Asynchronous,
    /// Many requests, flushes among them.
    QueuesFlushes,
}

impl Engine {
    fn named(name: &str) -> Result<Self, String> {
        match name {
            "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" => Ok(Self::Synchronous),
            "libaio" => Ok(Self::Asynchronous),
            "io_uring" | "posixaio" => Ok(Self::QueuesFlushes),
            _ => Err(format!("ioengine = {name} is not understood")),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    #[default]
    Reads,
    Writes,
    Both,
}

/// What only means something together with other options.
#[derive(Debug)]
struct Said {
    way: Way,
    is_random: bool,
    reads: Option<f64>,
    depth: u32,
    engine: Option<Engine>,
    /// And its line.
    direct: Option<(bool, usize)>,
    is_alone: bool,
}

impl Default for Said {
    fn default() -> Self {
        Self {
            way: Way::Reads,
            is_random: false,
            reads: None,
            depth: 1,
            engine: None,
            direct: None,
            is_alone: false,
        }
    }
}

impl Said {
    fn direction(&mut self, text: &str) -> Result<(), String> {
        (self.way, self.is_random) = match text {
            "read" => (Way::Reads, false),
            "write" => (Way::Writes, false),
            "rw" | "readwrite" => (Way::Both, false),
            "randread" => (Way::Reads, true),
            "randwrite" => (Way::Writes, true),
            "randrw" => (Way::Both, true),
            _ => return Err(format!("rw = {text} is not understood")),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests;
