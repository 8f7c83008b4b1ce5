//! PostgreSQL under pgbench on the model: its shared buffers, its log with group commit, checkpoints, background writer.
//!
//! The load begins with a server that has just started and a checkpoint that has just ended; of the tables the page
//! cache holds what was filled last. Invariants: one flush of the log is under way at a time, and takes all that is in
//! the log when it begins; a commit that waits is done when a flush has ended that took it.
//!
//! What it does not do: vacuum, locks of buffers, new segments of the log (they are recycled), growth of files on the
//! file system; a page is written back to the page cache without waiting for its log.

mod buffers;
mod checkpoint;
mod log;

use super::LoadPhase;
use crate::Nanos;
use crate::benchmark::Counted;
use crate::benchmark::pgbench::{
    self as tables, ACCOUNTS, IMAGE, LINES, LOG, LOG_MOVED, Pgbench, TELLERS,
};
use crate::dice::Dice;
use crate::system::bits::Bits;
use crate::system::{FileId, System};
use buffers::{Access, Buffers};
use checkpoint::Checkpointer;
use log::Log;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// The phase's name.
pub const NAME: &str = "transactions";
/// Pages of the page cache in one of PostgreSQL's.
const SYSTEM_PAGES: u64 = tables::PAGE / super::super::PAGE;

/// What its clients waited for, in shares of their time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waits {
    /// Pages read from the volume.
    pub reads: f64,
    /// Commits' log on its way to the disks.
    pub commits: f64,
    /// Rows that others change: until their commits.
    pub locks: f64,
    /// Room for dirty pages in the page cache, or in the log's buffers.
    pub writes: f64,
    /// The processor.
    pub processor: f64,
    /// Checkpoints that began.
    pub checkpoints: u32,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// All of it.
    pub phase: LoadPhase,
    /// What its clients waited for.
    pub waits: Waits,
    /// Transactions that ended in each [`SAMPLE`].
    pub ended: Vec<u64>,
}

/// A tenth of a second.
pub const SAMPLE: Nanos = Nanos(100_000_000);

/// What a client does next, or waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// The first half of the transaction's work.
    Begin,
    /// Computes up to a moment; then comes the leaf of the index, or the end.
    Computes {
        until: Nanos,
        ends: bool,
    },
    /// The leaf, then the account's page.
    Leaf,
    Account,
    /// A page comes from the volume.
    Comes {
        page: u64,
        leaf: bool,
    },
    /// What a page pushed out has no room in the page cache.
    Throttled {
        page: u64,
        leaf: bool,
    },
    /// The rows of a teller and a branch.
    Teller,
    Branch,
    /// The log has room.
    Change,
    Commit,
    /// A flush has taken the log up to there.
    Flushed(u64),
}

#[derive(Clone, Copy, Debug)]
struct Client {
    step: Step,
    since: Nanos,
    account: u64,
    teller: u64,
    branch: u64,
}

/// Who holds a row, and who waits for it, by its number: branches, then tellers.
type Locks = BTreeMap<u64, VecDeque<usize>>;

/// The server and its clients.
struct Cluster<'a> {
    load: &'a Pgbench,
    buffers: Buffers,
    log: Log,
    checkpointer: Checkpointer,
    files: Files,
    clients: Vec<Client>,
    locks: Locks,
    /// When each processor is free.
    cores: Vec<Nanos>,
    dice: Dice,
    /// Pages of accounts that were changed once.
    moved: Bits,
    /// Pages that are in the log as a whole since the last checkpoint began.
    imaged: Bits,
    /// Rows that were moved, lines of history.
    moves: u64,
    lines: u64,
    ended: Vec<u64>,
    began: Nanos,
    waited: [Nanos; 5],
    spent: Nanos,
}

/// Tables, page by page: accounts with the room that they grow into, their index, history, tellers and branches.
struct Files {
    starts: [u64; 4],
    ids: [FileId; 4],
    pages: u64,
}

impl Files {
    /// None if there is no room for them.
    fn new(system: &mut System, load: &Pgbench) -> Option<Self> {
        let heap = tables::heap_pages(load.scale);
        let grown = heap + heap / tables::rows() + 1;
        let small = load.scale.div_ceil(100) + load.scale.div_ceil(20) + 2;
        let pages = [grown, tables::index_pages(load.scale), HISTORY, small];
        let mut starts = [0; 4];
        let mut ids = Vec::new();
        let mut at = 0;
        for (start, pages) in starts.iter_mut().zip(pages) {
            *start = at;
            at += pages;
            ids.push(system.create_read(pages * SYSTEM_PAGES)?);
        }
        // In the order in which they were filled: then the index was made of the accounts.
        for (id, pages) in ids.iter().zip([heap, pages[1]]) {
            system.keep(*id, 0..pages * SYSTEM_PAGES);
        }
        Some(Self { starts, ids: ids.try_into().ok()?, pages: at })
    }

    /// A page's file, and its pages there.
    fn place(&self, page: u64) -> (FileId, Range<u64>) {
        let file = self.starts.iter().rposition(|start| *start <= page).expect("the first is 0");
        let at = (page - self.starts[file]) * SYSTEM_PAGES;
        (self.ids[file], at..at + SYSTEM_PAGES)
    }
}

/// Pages of history, round and round.
const HISTORY: u64 = 1 << 12;

/// Runs it; none if the tables do not fit on the volume.
pub fn pgbench(system: &mut System, load: &Pgbench, seed: u64) -> Option<Ran> {
    let files = Files::new(system, load)?;
    let log = Log::new(system, load)?;
    let mut cluster = Cluster::new(system, load, files, log, seed);
    let began = system.now();
    let end = began + load.time;
    while system.now() < end {
        let mut is_stuck = true;
        for index in 0..cluster.clients.len() {
            while cluster.step(system, index) {
                is_stuck = false;
            }
        }
        is_stuck &= !cluster.background(system);
        if is_stuck {
            let due = cluster.due(system.now()).min(end);
            system.next(due);
        }
    }
    let phase = LoadPhase {
        name: NAME,
        counted: Counted::Transactions,
        amount: cluster.ended.iter().sum::<u64>() as f64,
        time: system.now().since(began),
        spent: cluster.spent,
    };
    let waits = cluster.waits(system.now());
    cluster.ended.resize((load.time.0 / SAMPLE.0) as usize, 0);
    Some(Ran { phase, waits, ended: cluster.ended })
}

impl<'a> Cluster<'a> {
    fn new(system: &System, load: &'a Pgbench, files: Files, log: Log, seed: u64) -> Self {
        let client =
            Client { step: Step::Begin, since: system.now(), account: 0, teller: 0, branch: 0 };
        let cores = system.config().processor.cores.max(1);
        // Each client holds a few.
        let buffers = (load.server.shared_buffers / tables::PAGE).max(8 * load.clients as u64);
        Self {
            buffers: Buffers::new(buffers, files.pages),
            checkpointer: Checkpointer::new(&load.server, &log, system.now()),
            clients: vec![client; load.clients.max(1)],
            locks: Locks::new(),
            cores: vec![system.now(); cores],
            dice: Dice::new(seed),
            moved: Bits::new(tables::heap_pages(load.scale)),
            imaged: Bits::new(files.pages),
            moves: 0,
            lines: 0,
            ended: Vec::new(),
            began: system.now(),
            waited: [Nanos::ZERO; 5],
            spent: Nanos::ZERO,
            load,
            files,
            log,
        }
    }

    /// What the server does beside its clients; false if there is nothing now.
    fn background(&mut self, system: &mut System) -> bool {
        let ended = system.take_own();
        if !ended.is_empty() {
            ended.iter().for_each(|_| self.log.go_on(system));
            // Clients that waited for it go on before the log's writer looks again.
            return true;
        }
        let waits = self.clients.iter().any(|client| matches!(client.step, Step::Flushed(_)));
        let mut did = self.log.start(system, waits);
        let Self { checkpointer, buffers, files, log, imaged, .. } = self;
        did |= checkpointer.go_on(system, buffers, files, log, imaged);
        did
    }

    /// When something is due that the system does not know of.
    fn due(&self, now: Nanos) -> Nanos {
        let computes = self.clients.iter().filter_map(|client| match client.step {
            Step::Computes { until, .. } => Some(until),
            _ => None,
        });
        let all = computes.chain([self.log.due(), self.checkpointer.due()]);
        // What is due and did not happen waits for something of the system's.
        all.filter(|at| *at > now).min().unwrap_or(Nanos::MAX)
    }

    /// Takes a client on; false if it waits.
    fn step(&mut self, system: &mut System, index: usize) -> bool {
        let before = self.clients[index].step;
        let Some(next) = self.next(system, index) else { return false };
        let since = std::mem::replace(&mut self.clients[index].since, system.now());
        self.waited[kind(before)] += system.now().since(since);
        self.clients[index].step = next;
        true
    }

    fn next(&mut self, system: &mut System, index: usize) -> Option<Step> {
        let Client { step, account, teller, branch, .. } = self.clients[index];
        let (row, leaf) = tables::places(account);
        let leaf = self.files.starts[1] + leaf;
        Some(match step {
            Step::Begin => {
                self.draw(index);
                Step::Computes { until: self.compute(system.now()), ends: false }
            }
            Step::Computes { until, .. } if until > system.now() => return None,
            Step::Computes { ends: false, .. } => Step::Leaf,
            Step::Computes { ends: true, .. } => Step::Commit,
            Step::Leaf => self.access(system, leaf, true)?,
            Step::Account => self.access(system, row, false)?,
            Step::Throttled { page, leaf } => {
                if is_full(system) {
                    return None;
                }
                Step::Comes { page, leaf }
            }
            Step::Comes { page, leaf } => {
                let (file, pages) = self.files.place(page);
                if !system.start_read(file, pages.clone()) || !system.is_there(file, pages) {
                    return None;
                }
                self.buffers.has_come(page);
                if leaf { Step::Account } else { Step::Teller }
            }
            Step::Teller => self.lock(self.load.scale + teller, index).then_some(Step::Branch)?,
            Step::Branch => self.lock(branch, index).then_some(Step::Change)?,
            Step::Change if !self.log.has_room() => return None,
            Step::Change => {
                self.change(system, row, leaf, teller, branch);
                Step::Computes { until: self.compute(system.now()), ends: true }
            }
            Step::Commit => match self.load.server.synchronous_commit {
                true => Step::Flushed(self.log.inserted()),
                false => {
                    self.log.commit();
                    self.end(index, system.now())
                }
            },
            Step::Flushed(place) if self.log.flushed() < place => return None,
            Step::Flushed(_) => self.end(index, system.now()),
        })
    }

    fn draw(&mut self, index: usize) {
        let scale = self.load.scale;
        let client = &mut self.clients[index];
        client.account = self.dice.below(scale * ACCOUNTS);
        client.teller = self.dice.below(scale * TELLERS);
        client.branch = self.dice.below(scale);
    }

    /// Until when half of a transaction's work takes, on the processor that is free first.
    fn compute(&mut self, now: Nanos) -> Nanos {
        let half = Nanos(self.load.processor.0 / 2);
        self.spent += half;
        let core = self.cores.iter_mut().min().expect("there is one");
        *core = now.max(*core) + half;
        *core
    }

    /// Has a page in the shared buffers; none while another client's read of it is under way.
    fn access(&mut self, system: &mut System, page: u64, leaf: bool) -> Option<Step> {
        Some(match self.buffers.access(page) {
            Access::Hit if leaf => Step::Account,
            Access::Hit => Step::Teller,
            Access::OnItsWay => return None,
            Access::Missed { pushed_out } => {
                if let Some(dirty) = pushed_out {
                    let (file, pages) = self.files.place(dirty);
                    system.write_behind(file, pages);
                }
                match pushed_out.is_some() && is_full(system) {
                    true => Step::Throttled { page, leaf },
                    false => Step::Comes { page, leaf },
                }
            }
        })
    }

    /// Takes a row, or waits for it in turn.
    fn lock(&mut self, row: u64, index: usize) -> bool {
        let waiting = self.locks.entry(row).or_default();
        if !waiting.contains(&index) {
            waiting.push_back(index);
        }
        waiting.front() == Some(&index)
    }

    /// Everything that a transaction changes, and its log.
    fn change(&mut self, system: &mut System, row: u64, leaf: u64, teller: u64, branch: u64) {
        let mut bytes = LOG;
        bytes += self.dirty(system, row);
        if self.moved.put(row) {
            let end = tables::heap_pages(self.load.scale) + self.moves / tables::rows();
            self.moves += 1;
            bytes += LOG_MOVED + self.dirty(system, end) + self.dirty(system, leaf);
        }
        let history = self.files.starts[2] + self.lines / LINES % HISTORY;
        self.lines += 1;
        let small = self.files.starts[3];
        let tellers = small + 1 + self.load.scale.div_ceil(100);
        for page in [history, small + branch / 100, tellers + teller / 200] {
            bytes += self.dirty(system, page);
        }
        self.log.insert(bytes);
    }

    /// Changes a page; bytes of its image, if the log needs one.
    fn dirty(&mut self, system: &mut System, page: u64) -> u64 {
        // The end of the accounts, history, tellers and branches are always there, and made rather than read.
        if let Access::Missed { pushed_out } = self.buffers.access(page) {
            self.buffers.has_come(page);
            if let Some(dirty) = pushed_out {
                let (file, pages) = self.files.place(dirty);
                system.write_behind(file, pages);
            }
        }
        self.buffers.dirty(page);
        match self.load.server.full_page_writes && self.imaged.put(page) {
            true if self.is_new(page) => 0,
            true => IMAGE,
            false => 0,
        }
    }

    /// Whether a page was added by this load: it begins empty, which takes no image.
    fn is_new(&self, page: u64) -> bool {
        let heap = tables::heap_pages(self.load.scale);
        (heap..self.files.starts[1]).contains(&page)
            || (self.files.starts[2]..self.files.starts[3]).contains(&page)
    }

    fn end(&mut self, index: usize, now: Nanos) -> Step {
        let Client { teller, branch, .. } = self.clients[index];
        for row in [branch, self.load.scale + teller] {
            let waiting = self.locks.get_mut(&row).expect("it holds it");
            let first = waiting.pop_front();
            assert_eq!(first, Some(index), "who ends holds its rows");
            if waiting.is_empty() {
                self.locks.remove(&row);
            }
        }
        let sample = (now.since(self.began).0 / SAMPLE.0) as usize;
        self.ended.resize(self.ended.len().max(sample + 1), 0);
        self.ended[sample] += 1;
        Step::Begin
    }

    fn waits(&self, now: Nanos) -> Waits {
        let mut waited = self.waited;
        for client in &self.clients {
            waited[kind(client.step)] += now.since(client.since);
        }
        let all: f64 = waited.iter().map(|waited| waited.0 as f64).sum();
        let [processor, reads, commits, locks, writes] =
            waited.map(|waited| waited.0 as f64 / all.max(1.0));
        Waits { reads, commits, locks, writes, processor, checkpoints: self.checkpointer.begun() }
    }
}

/// What time in a step counts as.
fn kind(step: Step) -> usize {
    match step {
        Step::Begin | Step::Computes { .. } | Step::Commit => 0,
        Step::Leaf | Step::Account | Step::Comes { .. } => 1,
        Step::Flushed(_) => 2,
        Step::Teller | Step::Branch => 3,
        Step::Throttled { .. } | Step::Change => 4,
    }
}

/// Whether writers wait.
fn is_full(system: &System) -> bool {
    system.cache.unwritten() > system.config.dirty_max()
}

#[cfg(test)]
mod tests;
