//! Which of the candidates make up an array, and whether it may be started: a pure decision that
//! explains itself.
//!
//! Rules (mdadm's `Assemble.c` and the kernel's `analyze_sbs`, `super_1_validate` and
//! `raid5_run`):
//!
//! 1. The freshest superblock is the one of most events among those that hold a slot; spares do
//!    not vote. It says what the array is, and who that disagrees is left.
//! 2. A member may be one event behind, because superblocks are not written at one instant. Its
//!    role then comes from the freshest superblock: perhaps its failure was the event it missed.
//! 3. A member whose own superblock calls the freshest one failed belongs to the other half of
//!    an array that was split, and is left. So is one of as many events that the freshest calls failed,
//!    and of equals it is the one that is called failed that does not vote. If each is called failed by another, nothing
//!    tells which half is right, and the user has to prefer one.
//! 4. Of two that claim one slot or one number the fresher is taken. A replacement claims the place beside
//!    its slot's member; where there is none, the slot.
//! 5. The array may start if its data is complete, if it lacks no member that the freshest
//!    superblock counts upon (else only with `run`), and, for the levels with parity, if it is
//!    clean or not degraded: after a crash the parity of a dirty stripe cannot stand in for data. (With
//!    partial parity logs it can, once they were replayed.)
//! 6. An array with a journal starts only with it: no more than one event behind. `force` starts it
//!    without, and then only for reading, since a write could no longer be made whole after a crash.
//! 7. `force` raises the members that were left as stale, best first and no more than it takes,
//!    and declares a dirty degraded array clean.
//!
//! Invariants of an [`Assembly`]: each candidate has one verdict; no candidate is in two of
//! `members`, `recovering`, `replacements`, `spares` and `journal`; nobody is forced, and nothing is to
//! be rewritten, unless `start` is `Ok`.
//!
//! Where mdadm 4.2 and Linux 6.1 would risk data, this is stricter (`tests/assemble/kernel.rs`
//! lists the cases):
//! - `force` takes a member of the other half, or one that failed an event ago, only if data
//!   would be missing without it; mdadm takes any that is one event behind.
//! - `force` takes no stale copy beside a better one (raid1, raid10), and keeps the state of the
//!   freshest superblock; under mdadm a stale member in a low slot gives its own.
//! - Rule 2 also holds for 0.90, and only to a member's disadvantage: a spare that the freshest
//!   superblock calls a member stays a spare.
//! - Of equals one that another calls failed is left; under md its old data would serve.
//! - Under 0.90 the freshest member may be called failed an event before by one that it counts on: its recovery
//!   ended then, which the others could not yet say. mdadm leaves the others.
//! - A raid1 that was stopped uncleanly with one copy complete takes what members under recovery have of it for
//!   nothing, since no resync follows; under md it is read, and may differ.
//! - Two equally fresh claimants of one slot are refused, and so are two halves of a split array that have seen as
//!   many events; mdadm takes the first (1.x).

mod absent;
mod conclude;
mod force;
mod judge;
mod table;
mod text;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use lapstrake_geometry::{Config, Geometry, GeometryError, Raid0Layout, Sector, Sectors, Slot};

use crate::{Role, Superblock, Unsupported, badblocks::BadBlocksError};

pub use absent::record_absent;
pub use conclude::assemble;
pub use force::force_in_reshape;
pub(crate) use judge::name_fits;

/// A device with a superblock.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The caller's index into its list of devices.
    pub id: usize,
    /// What it holds.
    pub superblock: &'a Superblock,
}

/// What the user asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Raise stale members if there are not enough others; declare a dirty degraded array clean.
    pub force: bool,
    /// Start although members are missing that were there when the array was last in use.
    pub run: bool,
    /// Only members of this array count.
    pub uuid: Option<[u8; 16]>,
    /// Only members of an array of this name count; the host before the ':' may be left out.
    pub name: Option<String>,
    /// Take superblocks with bits and bytes that nobody knows as if these were not there
    /// ([`Unsupported::is_unknown`]). Only where nothing is written to the members.
    pub ignore_unknown: bool,
    /// The layout of a raid0 that does not record one.
    pub raid0_layout: Option<Raid0Layout>,
    /// Of the halves of a split array that have seen as many events, the one that this candidate belongs to. One that is
    /// left all the same forbids a start ([`Refusal::NotPreferred`]).
    pub prefer: Option<usize>,
    /// Candidates whose superblocks give them a role that md does not know, and the slots whose members they are to be
    /// taken for.
    pub forced_roles: Vec<(usize, Slot)>,
    /// Candidates that must not be written to, since it cannot be told which of their blocks are bad.
    pub unusable_logs: Vec<(usize, BadBlocksError)>,
}

impl Options {
    fn forced_role(&self, id: usize) -> Option<Slot> {
        self.forced_roles.iter().find(|forced| forced.0 == id).map(|&(_, slot)| slot)
    }

    fn unusable_log(&self, id: usize) -> Option<&BadBlocksError> {
        self.unusable_logs.iter().find(|unusable| unusable.0 == id).map(|(_, error)| error)
    }

    /// What of a superblock cannot be acted upon, though the user may have asked to pass over it.
    pub(crate) fn unsupported(&self, sb: &Superblock) -> Option<Unsupported> {
        sb.unsupported().filter(|what| !(self.ignore_unknown && what.is_unknown()))
    }
}

/// What becomes of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A member.
    Taken {
        /// Its slot.
        slot: Slot,
        /// Up to where it was recovered (from its data offset), if it is not in sync.
        recovering: Option<Sector>,
    },
    /// To take the place of the slot's member, which is there.
    Replacement {
        /// The slot.
        slot: Slot,
        /// Up to where it has a copy (from its data offset), if not of all.
        recovering: Option<Sector>,
    },
    /// A spare.
    Spare,
    /// The journal.
    Journal,
    /// Not used.
    Left(Reason),
}

/// Why a candidate is left. Displays as a clause that says it with numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Of another array than was asked for.
    OtherArray {
        /// The other array.
        uuid: [u8; 16],
        /// Its name, empty in 0.90.
        name: String,
    },
    /// More than one event behind.
    Stale {
        /// Its events.
        events: u64,
        /// The freshest superblock's.
        freshest: u64,
    },
    /// Its superblock calls the freshest one failed: the array was split.
    CallsFailed {
        /// The freshest.
        whom: usize,
        /// The freshest one's slot.
        slot: Slot,
    },
    /// Not more than one event behind, and called failed.
    CalledFailedBy {
        /// The freshest.
        by: usize,
    },
    /// One event behind, and the freshest superblock does not know its number.
    Unlisted {
        /// The freshest.
        by: usize,
        /// Its number in the table of devices.
        dev_number: u32,
    },
    /// The same device again, or a copy of it.
    DuplicateOf {
        /// The one that is used.
        id: usize,
    },
    /// Another device of at least as many events claims its slot.
    SlotTaken {
        /// The slot.
        slot: Slot,
        /// The other.
        by: usize,
    },
    /// Another device of at least as many events has its number in the table of devices.
    NumberTaken {
        /// The number.
        dev_number: u32,
        /// The other.
        by: usize,
    },
    /// Another journal is at least as fresh.
    JournalTaken {
        /// The other.
        by: usize,
    },
    /// A journal, but the array has none.
    NoJournalWanted,
    /// Failed, as its own superblock says.
    Faulty,
    /// Its superblock gives it a role that md does not know. It may hold a member's data.
    UnknownRole {
        /// As stored.
        role: Role,
        /// The slot that it may have held.
        perhaps: Option<Slot>,
    },
    /// It was to be taken for a slot that the array does not have.
    NoSuchSlot {
        /// The slot.
        slot: Slot,
        /// How many there are.
        raid_disks: u16,
    },
    /// Its bad-block log cannot be used.
    BadBlockLog(BadBlocksError),
    /// It describes the array otherwise than the freshest superblock.
    Disagrees {
        /// md's name of the field.
        field: &'static str,
        /// Its value.
        found: String,
        /// The freshest superblock's.
        expected: String,
    },
    /// It has less room for data than the array uses of each member.
    TooSmall {
        /// Its room.
        found: Sectors,
        /// What the array uses.
        needed: Sectors,
    },
    /// It has a feature that cannot be acted upon.
    Unsupported(Unsupported),
}

/// Why an array may not be started. Displays with what to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Data is missing.
    NotEnough {
        /// Members in sync.
        have: u16,
        /// The fewest that can be enough.
        need: u16,
        /// Slots without a member in sync.
        missing: Vec<Slot>,
        /// Whether `force` would help.
        force_helps: bool,
    },
    /// Parity is out of date, and members are missing.
    DirtyDegraded {
        /// Slots without a member in sync.
        missing: Vec<Slot>,
        /// Whether it only seems so, and `run` is enough.
        run_helps: bool,
        /// Whether one of these slots holds data.
        lacks_data: bool,
    },
    /// Members are missing that the array had when it was last in use.
    NewlyDegraded {
        /// Members found, those under recovery too.
        have: u16,
        /// Members that the freshest superblock knows of.
        expected: u16,
        /// Slots without a member.
        missing: Vec<Slot>,
    },
    /// The array has a journal, which is missing or stale.
    NoJournal,
    /// Members that have seen as many events call each other failed: the array was split, and its parts were used
    /// without each other.
    Split {
        /// The members of each part.
        parts: Vec<Vec<usize>>,
        /// Events that they have seen.
        events: u64,
    },
    /// The candidate that was preferred is left: a preference decides only between halves of as many events.
    NotPreferred {
        /// The candidate.
        id: usize,
        /// Why it is left.
        reason: Box<Reason>,
        /// Events that it has seen.
        events: u64,
        /// The freshest.
        freshest: usize,
        /// Events that the freshest has seen.
        freshest_events: u64,
        /// Whose members are taken instead.
        taken: Vec<usize>,
    },
    /// Two devices claim one slot with equal right.
    Ambiguous {
        /// The slot.
        slot: Slot,
        /// The two.
        ids: [usize; 2],
    },
}

/// A decision about one array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembly {
    /// Whose superblock is the freshest.
    pub freshest: usize,
    /// The array as the freshest superblock describes it. For linear and raid0 a missing member
    /// has size zero.
    pub config: Config,
    /// Its geometry; None only for a linear or raid0 that lacks a member, which then cannot
    /// start.
    pub geometry: Option<Geometry>,
    /// One per candidate, in the order given.
    pub verdicts: Vec<(usize, Verdict)>,
    /// By slot: the member in sync.
    pub members: Vec<Option<usize>>,
    /// Members under recovery, and up to where they were recovered.
    pub recovering: Vec<(Slot, usize, Sector)>,
    /// Who is to take a member's place, and up to where it has a copy, if not of all. After an unclean stop it
    /// is to be copied anew.
    pub replacements: Vec<(Slot, usize, Option<Sector>)>,
    /// Spares.
    pub spares: Vec<usize>,
    /// The journal.
    pub journal: Option<usize>,
    /// The array has a journal that is missing or stale, and was to be started by `force`: nothing may be
    /// written to it.
    pub lacks_journal: bool,
    /// From where on redundancy is to be made anew, in the units of
    /// [`Superblock::resync_offset`]; None if the array is clean.
    pub resync_from: Option<Sector>,
    /// Events of the freshest superblock.
    pub events: u64,
    /// The same before it was rewritten by force, which may count one: what a bitmap must say.
    pub found_events: u64,
    /// Whether it said, before it was rewritten by force, that no write was under way.
    pub found_clean: bool,
    /// Slots without a member in sync.
    pub degraded: u16,
    /// Whether a member is missing that the freshest superblock counts upon.
    pub newly_degraded: bool,
    /// Whether a slot without a member in sync holds data, and not only parity.
    pub lacks_data: bool,
    /// Members in sync of a clean array that were last told of it so many seconds before the freshest, though they count
    /// as many events: perhaps older copies of themselves, put back.
    pub older: Vec<(usize, u64)>,
    /// Stale members that `force` raised.
    pub forced: Vec<usize>,
    /// What `force` changed: superblocks to write in this order before the array starts. All
    /// members are here or none, so that a crash half-way leaves what `force` finds again.
    pub rewrite: Vec<(usize, Superblock)>,
    /// Members that are one event behind the freshest, with superblocks that are not. They are to be written, and stable, before
    /// any of `rewrite` that counts another event, which would leave them two behind.
    pub behind: Vec<(usize, Superblock)>,
    /// Whether the array may be started.
    pub start: Result<(), Refusal>,
}

/// One of several arrays that candidates belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundArray {
    /// Which array.
    pub uuid: [u8; 16],
    /// As its first candidate calls it; empty if that has no name.
    pub name: String,
    /// Its candidates.
    pub ids: Vec<usize>,
}

/// Why there is no array to decide about. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AssembleError {
    /// No candidate, or none of the array asked for.
    Nothing {
        /// Candidates given.
        candidates: usize,
    },
    /// Members of more than one array.
    SeveralArrays {
        /// Each of them.
        arrays: Vec<FoundArray>,
    },
    /// The array has a feature that cannot be acted upon.
    Unsupported {
        /// Whose superblock says so.
        id: usize,
        /// The feature.
        what: Unsupported,
    },
    /// The superblocks describe no possible array.
    Geometry {
        /// Whose superblock was followed.
        id: usize,
        /// What is wrong with the array that it describes.
        error: GeometryError,
    },
}
