//! Why there is no array, in words that tell what to do.

use super::Line;
use lapstrake_array::start::NoReshape;
use lapstrake_device::{FaultError, OpenError, OverlayError};
use lapstrake_geometry::GeometryError;
use lapstrake_metadata::Role;
use lapstrake_metadata::assemble::{AssembleError, Refusal};
use lapstrake_metadata::badblocks::BadBlocksError;
use lapstrake_metadata::bitmap::BitmapError;
use lapstrake_metadata::detect::Container;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// What to do about a journal that cannot be used.
pub(crate) const JOURNAL_NEXT: &str = "if the journal cannot be mended, leave it out of the members: --force then \
                                       starts the array for reading only, and `lapstrake serve --force \
                                       --without-journal` gives it up for good; what only the journal holds is \
                                       lost with it";

/// Why there is no array. Nothing was written to any device.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenArrayError {
    /// Devices that cannot be opened: each one.
    #[error("{}", join(.0))]
    Devices(Vec<OpenError>),
    /// The same device, or overlapping windows of it, twice.
    #[error(
        "{first} and {second} are, in part or as a whole, the same device; nothing was written"
    )]
    Twice {
        /// One of them.
        first: String,
        /// The other.
        second: String,
    },
    /// The map file of an image cannot be used.
    #[error("{}: cannot use it as a map of GNU ddrescue: {why}; nothing was written", map.display())]
    Map {
        /// The map file.
        map: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A device could not be read.
    #[error(
        "{member}: cannot read it: {source}; nothing was written; leave it out, or give a copy of what can be read \
         of it"
    )]
    Read {
        /// The member, as it was given.
        member: String,
        /// The device's answer.
        source: io::Error,
    },
    /// What was said of a member concerns none of those given.
    #[error(
        "{wanted} is none of the members given: name it as it is among them; nothing was written"
    )]
    NoMember {
        /// As it was named.
        wanted: String,
    },
    /// A role was to be forced on one whose own is known.
    #[error(
        "{member}: --force-role is for members whose superblocks give them a role that md does not know, and this one {}; \
         nothing was written",
        match .role {
            Some(role) => format!("is {role}"),
            None => "has no superblock".into(),
        }
    )]
    KnownRole {
        /// The member, as it was given.
        member: String,
        /// What its superblock says that it is.
        role: Option<Role>,
    },
    /// Superblocks do not agree on a reshape: the freshest does not know of it, or not all are members before and after.
    #[error(
        "superblocks do not agree on the reshape that some of them tell of; nothing was written: `lapstrake examine` \
         shows reshape position and events of each; leave out those that differ"
    )]
    ReshapeUnclear,
    /// Force would take one that does not know how far a reshape has come.
    #[error(
        "{member}: force would take it, but it does not know how far the reshape has come, and where it has missed that it holds \
         neither geometry; leave it out, and look for copies of the members that are missing (ddrescue); nothing was written"
    )]
    ReshapeMissed {
        /// The device.
        member: String,
    },
    /// A reshape that is under way cannot be carried on.
    #[error(
        "a reshape is in progress, and the array cannot be served for writing so: {0}; nothing was written; it can be read \
         (`lapstrake cat`, `lapstrake serve --read-only`, with --force if that is needed)"
    )]
    NoReshape(NoReshape),
    /// The position on record is none at which a reshape stops.
    #[error(
        "the reshape's position on record, byte {bytes} of the array, is no multiple of {unit}, at which the two \
         geometries can meet; nothing was written: `lapstrake examine` shows what each member has on record, and \
         --reshape-position BYTE says where they meet"
    )]
    ReshapeRecord {
        /// The array's byte.
        bytes: u64,
        /// Bytes of the least step.
        unit: u64,
    },
    /// The position that was given for a reshape lies within a block.
    #[error(
        "--reshape-position {bytes}: it is no multiple of the members' logical block of {block} bytes; nothing was written"
    )]
    ReshapePosition {
        /// It.
        bytes: u64,
        /// The members' logical block, bytes.
        block: u64,
    },
    /// Not one array.
    #[error("{text}; nothing was written")]
    Assemble {
        /// The decision's error.
        error: AssembleError,
        /// It in words, with the devices' names, and what was found on them.
        text: String,
    },
    /// An array, but one that may not be started.
    #[error("{text}; nothing was written")]
    Refused {
        /// The decision's refusal.
        refusal: Refusal,
        /// It in words.
        text: String,
        /// What became of each device.
        report: Vec<Line>,
    },
    /// A device holds superblocks of several arrays, and nothing tells which is its own.
    #[error("{member}: holds {text}\n  nothing was written")]
    Undecided {
        /// The device.
        member: String,
        /// The superblocks.
        text: String,
    },
    /// A superblock that was to be written under may not be the member's own.
    #[error(
        "{member}: its superblock {text}; nothing was written; --read-only and --overlay FILE take it all the same, and so \
         does --force, which writes to it"
    )]
    Doubted {
        /// The device.
        member: String,
        /// What speaks against it.
        text: String,
    },
    /// Its metadata are other makers', and would be left behind.
    #[error(
        "{member}: is a disk of a firmware RAID ({kind}), which Lapstrake reads and does not write; nothing was written; \
         `lapstrake cat` and --read-only read it, --overlay FILE keeps what is written in FILE"
    )]
    Firmware {
        /// The device.
        member: String,
        /// Whose metadata.
        kind: Container,
    },
    /// The superblocks describe no array that can be.
    #[error("the superblocks describe no possible array: {0}; nothing was written")]
    Geometry(#[from] GeometryError),
    /// The write-intent bitmap cannot be used.
    #[error(
        "the write-intent bitmap of {place} cannot be used: {error}{}; nothing was written", bitmap_next(.error)
    )]
    Bitmap {
        /// Where it was read.
        place: String,
        /// What is wrong with it.
        error: BitmapError,
    },
    /// The file of an external bitmap cannot be used.
    #[error(
        "{}; without --bitmap the array can be started all the same, and is then resynced as a whole if it was \
         not stopped cleanly", of_file(.0)
    )]
    BitmapFile(Box<OpenArrayError>),
    /// A bad-block log cannot be used.
    #[error(
        "the bad-block log of {member} cannot be used: {error}; it would be written without knowing what of it is bad: \
         --read-only and --overlay read it, --degraded does without the member, --update force-no-bbl \
         does away with the log; nothing was written"
    )]
    BadBlocks {
        /// The member that the log is of.
        member: String,
        /// What is wrong with it.
        error: BadBlocksError,
    },
    /// The journal cannot be used.
    #[error("the journal {member} cannot be replayed: {why}; nothing was written; {JOURNAL_NEXT}")]
    Journal {
        /// The journal.
        member: String,
        /// What is wrong.
        why: String,
    },
    /// A journal that is to be given up, and is there.
    #[error(
        "the journal {member} is not lost: leave it out of the members to give it up (after a clean stop it holds \
         nothing that they lack); nothing was written"
    )]
    JournalIsThere {
        /// The journal.
        member: String,
    },
    /// What the journal holds would have to be written first.
    #[error(
        "the journal {member} holds writes that the members lack, and nothing may be written to them; \
         `lapstrake serve --overlay FILE` brings them there in FILE only; nothing was written"
    )]
    JournalHoldsNews {
        /// The journal.
        member: String,
    },
    /// The overlay's file cannot be used.
    #[error("{0}; nothing was written")]
    Overlay(#[from] OverlayError),
    /// `LAPSTRAKE_FAULT` is not understood.
    #[error(transparent)]
    Fault(#[from] FaultError),
}

/// What to do about an internal bitmap that cannot be used, as the rest of a sentence.
#[must_use]
pub fn bitmap_next(error: &BitmapError) -> &'static str {
    match error.is_unknown() {
        true => {
            ": a feature of a kernel newer than Linux 7.2, or damage; with --read-only, by `lapstrake cat`, or with \
             --ignore-unknown --overlay FILE the array can be read without it"
        }
        false => {
            "; with --read-only, or by `lapstrake cat`, the array can be read without it; --force gives it up, and makes all \
             redundancy anew that members are left for, with --overlay FILE in FILE only"
        }
    }
}

/// What is wrong with a bitmap's file, without what helps with an internal bitmap only.
fn of_file(error: &OpenArrayError) -> String {
    match error {
        OpenArrayError::Bitmap { place, error } => {
            format!("the write-intent bitmap {place} cannot be used: {error}; nothing was written")
        }
        error => error.to_string(),
    }
}

fn join(errors: &[OpenError]) -> String {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    format!("{}; nothing was written", lines.join("\n"))
}
