//! The real engine in virtual time, in two worlds: [`mod@array`] runs it on models of disks, which take their time and
//! hold no data; all else is simulation, on seeded disks that hold data and fail.
//!
//! # The simulation
//!
//! A seed draws an array, a load and faults ([`Plan`]); the run is the same whenever the seed is.
//! Shards, supervisor, superblocks, bitmap and assembly are the real ones; disks, threads, clients
//! and time are simulated. Every read, and the members' raw images after every cut, are held
//! against a model (`oracle`, `raw`).
//!
//! # The budget
//!
//! Faults stay within what the level survives; whatever goes wrong is then ours.
//!
//! - A member fails (one I/O, with or without the member vanishing for the rest of the session) only
//!   if the level survives it together with all slots that lack a sound member, and only while
//!   redundancy is whole: not while a resync is due after an unclean stop, and not after a dirty
//!   degraded array was forced. A recovered member is sound from when every shard has heard of
//!   it and the superblocks say so.
//!   At a start a member may be away under the same condition, judged when the session before began,
//!   and not from a mirror that is dirty: if it then were only read, and the member came back, what
//!   was read may change. Levels without redundancy get no member faults.
//! - A failed write leaves any of its sectors written; a failed flush loses any of what was
//!   cached. A failed member comes back at the next start with what it holds.
//! - The power may be cut at any event. Each member keeps, sector by sector, its stable bytes or
//!   those of any write not older than the sector's last FUA write that had ended or was on its
//!   way. Each metadata write is kept as a whole or not at all: a superblock 1.x and the bitmaps
//!   used here are one sector, and 0.90, which is eight under one checksum and has no second copy,
//!   does not survive being torn.
//!   In half of the plans each member keeps what it will by itself: the server ends while some have power.
//! - Some members lose power, at once and in the midst of anything, while the server goes on: what was on their way
//!   and in their caches is kept as at a cut, and then nothing of them answers. Mostly the level survives without
//!   them, as of single failures; power is back some time later, and once their failure is on record they are
//!   taken out and added anew. Or all lose it, or more than the level survives, then only while every slot has a
//!   sound member: requests may fail, each is answered, and soon the power is cut for all. Whoever's failure is on
//!   record then is missing at the next start; there are enough others for it.
//! - The bitmap's file may refuse a write at any time. The array goes on without a bitmap; the file may yet be named at
//!   the next start, where it must count as stale.
//! - The write hole: if a parity array was active when the power was cut and lacks members at the
//!   next start, then in each row (one sector of every member) with a write that was not durable
//!   at a cut since redundancy was last whole, the sectors of the missing members are lost: they
//!   read as anything until they are written.
//!   With partial parity logs only those of them are lost that were themselves being written, and
//!   after a replay no row may differ. The power may be cut in the midst of a replay.
//! - A member in sync may have sectors that cannot be read if the level survives without it and without every
//!   other that has such sectors, is not sound, or is still being mended. What is in doubt after a cut on a member
//!   that has them is lost: the write hole, and copies that differ. So while such sectors are there no other fault that
//!   needs the member comes. With partial parity logs only what was itself being written there is lost, unless
//!   writes went without a log since a resync was due; with a journal nothing. A member that refuses what a
//!   replay writes, and has not said so on record, is left out of that start. Spares and members that come back are as
//!   good as new: what is written to them can be read.
//!   A read may fail once on a member that the level does not survive without, if other sound members have all that
//!   is read.
//! - What was discarded reads as anything, not even the same twice, until it is written.
//!
//! # What it does not do
//!
//! The simulation measures nothing: its virtual time is for order only.

pub mod array;

mod agenda;
mod dice;
mod disk;
mod heal;
mod lifetime;
mod memory;
mod oracle;
mod plan;
mod raw;
mod session;

use dice::Dice;
use lifetime::Lifetime;
use std::fmt;

pub use plan::Plan;

/// How to run a seed.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Print every event to the standard error.
    pub trace: bool,
}

/// What a run did, in counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Member I/Os, metadata and flushes included.
    pub member_ios: u64,
    /// Starts of the array.
    pub sessions: u64,
    /// Power cuts.
    pub cuts: u64,
}

/// A run that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Repeats it.
    pub seed: u64,
    /// What the seed stands for.
    pub plan: String,
    /// What went wrong.
    pub error: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} failed: {}\n  {}", self.seed, self.error, self.plan)
    }
}

/// The plan that a seed stands for.
#[must_use]
pub fn plan(seed: u64) -> Plan {
    Plan::draw(&mut Dice::new(seed))
}

/// Runs a seed.
///
/// # Errors
/// What was promised and did not hold.
pub fn run(seed: u64, options: &Options) -> Result<Outcome, Failure> {
    let mut dice = Dice::new(seed);
    let plan = Plan::draw(&mut dice);
    let lifetime = Lifetime::new(&plan, dice, options);
    lifetime.run().map_err(|error| Failure { seed, plan: plan.to_string(), error })
}
