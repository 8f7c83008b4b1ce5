//! Edits of members that nobody serves: superblocks changed in mdadm's words, erased, or put back from a dump.
//!
//! What is there and what is to be there is kept in a file before the first member is written ([`Record`]). A cut
//! leaves every sector as it was or as it is to be, so that the file can finish the edit or undo it. An edit of which a
//! write fails is undone at once.
//!
//! Invariants:
//! - nothing is written before every check on every member has passed and the record is stable;
//! - each member's last change, its superblock if one is written, comes when all others are stable on every member, and is
//!   undone before them.

mod backup;
mod dump;
mod plan;
mod record;

use crate::open::{OpenArrayError, open_all};
use lapstrake_device::{Access, Member, MemberSpec, quoted_path};
use lapstrake_metadata::update::{UpdateError, Write};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

pub use backup::{BackupRequest, NoRestore, plan_backup};
pub use dump::{dump, restore};
pub use plan::{UpdateRequest, plan_update, plan_zero};
pub use record::{Record, Way};

/// Bytes of a member that change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where, bytes from the member's start.
    pub offset: u64,
    /// What is there.
    pub old: Vec<u8>,
    /// What is to be there.
    pub new: Vec<u8>,
}

/// What changes on a member.
#[derive(Debug)]
pub struct Edit {
    /// The member, opened and locked.
    pub member: Arc<Member>,
    /// In the order in which it is written.
    pub changes: Vec<Change>,
}

/// Changes of several members, all of which are made or none.
#[derive(Debug)]
pub struct Edits {
    /// The command's words, for messages.
    pub what: String,
    /// The members that change.
    pub edits: Vec<Edit>,
}

/// Why members are not edited.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EditError {
    /// Members that cannot be had, or not told apart.
    #[error(transparent)]
    Open(#[from] OpenArrayError),
    /// A member has no superblock that could be edited.
    #[error("{member}: {found}; nothing was written")]
    NoSuperblock {
        /// The member.
        member: String,
        /// What it holds instead.
        found: String,
    },
    /// The members are of several arrays.
    #[error(
        "{first} is of array {first_uuid}, and {second} of {second_uuid}; an edit is of one array (if an edit of the UUID \
         was cut short, `lapstrake update --finish FILE` ends it); nothing was written"
    )]
    SeveralArrays {
        /// A member.
        first: String,
        /// Its array.
        first_uuid: String,
        /// Another one.
        second: String,
        /// Its array.
        second_uuid: String,
    },
    /// A member of the array was not given.
    #[error(
        "the member in slot {slot} is not among those given, and would keep what the others lose; nothing was written; \
         give it too, or say --degraded if it is gone for good"
    )]
    Missing {
        /// Its slot.
        slot: u16,
    },
    /// The edit cannot be.
    #[error("{}{error}; nothing was written", member.as_ref().map_or_else(String::new, |it| format!("{it}: ")))]
    Update {
        /// The member at fault.
        member: Option<String>,
        /// Why.
        error: UpdateError,
    },
    /// A superblock that may be another's would be erased.
    #[error("{member}: {found}; nothing was written; --metadata VERSION names those to erase")]
    Doubted {
        /// The member.
        member: String,
        /// What speaks against it.
        found: String,
    },
    /// A record or dump cannot be made, read or used.
    #[error("{}: {why}; nothing was written", path.display())]
    File {
        /// It.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A member is not as the record has it.
    #[error(
        "{member}: at byte {offset} it holds neither what it held before the edit nor what that wrote: it has been in use \
         since; nothing was written"
    )]
    Changed {
        /// The member.
        member: String,
        /// Where.
        offset: u64,
    },
    /// None of the members given is the one that was edited.
    #[error(
        "{member} was edited, and none of the members given holds what it held before that or afterwards; nothing was written"
    )]
    NotAmong {
        /// As the record names it.
        member: String,
    },
    /// A reshape's backup is not put in its place.
    #[error("{}: {why}; nothing was written", file.display())]
    Backup {
        /// The file, or the member.
        file: PathBuf,
        /// Why.
        why: NoRestore,
    },
    /// A write of what a record keeps failed.
    #[error(
        "{failed}; the members are as they were in part; once the cause is gone, the same command with {} ends it",
        quoted_path(record)
    )]
    Again {
        /// The write.
        failed: WriteFailed,
        /// The record.
        record: PathBuf,
    },
    /// A write failed. What was written has been undone.
    #[error("{failed}; every member is as it was")]
    Undone {
        /// The write.
        failed: WriteFailed,
    },
    /// A write failed, and undoing what was written did, too.
    #[error(
        "{failed}; undoing it failed, too: {undo}; once the cause is gone, `lapstrake update --undo {file}` or \
         `--finish {file}` ends it", file = quoted_path(record)
    )]
    HalfWay {
        /// The write.
        failed: WriteFailed,
        /// The other one.
        undo: WriteFailed,
        /// The record.
        record: PathBuf,
    },
}

/// A member refused a write.
#[derive(Debug, Error)]
#[error("cannot write {member} at byte {offset}: {source}")]
pub struct WriteFailed {
    /// The member.
    pub member: String,
    /// Where.
    pub offset: u64,
    /// Its answer.
    pub source: io::Error,
}

/// Locks members; for a look at what would change, against writers only.
fn open_for(members: &[MemberSpec], is_dry: bool) -> Result<Vec<Arc<Member>>, OpenArrayError> {
    open_all(members, if is_dry { Access::ReadOnly } else { Access::ReadWrite })
}

fn read(member: &Member, offset: u64, len: usize) -> Result<Vec<u8>, OpenArrayError> {
    let mut bytes = vec![0; len];
    let failed = |source| OpenArrayError::Read { member: member.spec().to_string(), source };
    member.read_at(offset, &mut bytes).map_err(failed)?;
    Ok(bytes)
}

impl Edit {
    /// Writes as changes of what is there; those that change nothing are left out.
    fn of(member: &Arc<Member>, writes: Vec<Write>) -> Result<Self, OpenArrayError> {
        let mut changes = Vec::new();
        for Write { sector, bytes: new } in writes {
            let offset = sector.bytes();
            let old = read(member, offset, new.len())?;
            if old != new {
                changes.push(Change { offset, old, new });
            }
        }
        Ok(Self { member: member.clone(), changes })
    }

    /// Writes some of its changes, and makes them stable.
    fn write(&self, changes: &[Change], way: Way) -> Result<(), WriteFailed> {
        let failed = |offset| {
            let member = self.member.spec().to_string();
            move |source| WriteFailed { member, offset, source }
        };
        let mut written = None;
        for change in changes {
            let bytes = if way == Way::Finish { &change.new } else { &change.old };
            // A member that takes no writes has what it had.
            let now = read(&self.member, change.offset, bytes.len());
            if now.is_ok_and(|now| now == *bytes) {
                continue;
            }
            self.member.write_at(change.offset, bytes).map_err(failed(change.offset))?;
            written = Some(change.offset);
        }
        match written {
            // What is there may have been written by who was cut before it was stable.
            None if way == Way::Finish => self.member.sync_all().map_err(failed(0)),
            // The same, of a member that may take neither writes nor flushes.
            None => self.member.sync_all().or(Ok(())),
            Some(offset) => self.member.sync_all().map_err(failed(offset)),
        }
    }
}

impl Edits {
    fn of(
        what: &str,
        members: &[Arc<Member>],
        writes: Vec<Vec<Write>>,
    ) -> Result<Self, OpenArrayError> {
        let edits: Result<Vec<Edit>, _> =
            members.iter().zip(writes).map(|(member, writes)| Edit::of(member, writes)).collect();
        let mut edits = edits?;
        edits.retain(|edit| !edit.changes.is_empty());
        Ok(Self { what: what.into(), edits })
    }

    /// Whether all is as it is to be already.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Keeps what is there in a new file, then writes all members, or none.
    ///
    /// # Errors
    /// [`EditError`]; it says how the members are.
    pub fn write(&self, record: &Path) -> Result<(), EditError> {
        Record::of(self)?.save(record)?;
        let Err(failed) = self.go(Way::Finish) else { return Ok(()) };
        match self.go(Way::Undo) {
            Ok(()) => {
                // Nothing differs from what it keeps.
                let _ = std::fs::remove_file(record);
                Err(EditError::Undone { failed })
            }
            Err(undo) => Err(EditError::HalfWay { failed, undo, record: record.into() }),
        }
    }

    /// Writes what is to be there, or what was.
    pub(crate) fn go(&self, way: Way) -> Result<(), WriteFailed> {
        let mut first = Ok(());
        let halves = self.edits.iter().map(|edit| {
            let (others, last) = edit.changes.split_at(edit.changes.len().saturating_sub(1));
            ((edit, others), (edit, last))
        });
        let (mut parts, last): (Vec<_>, Vec<_>) = halves.unzip();
        parts.retain(|(_, others)| !others.is_empty());
        parts.extend(last);
        if way == Way::Undo {
            parts.reverse();
        }
        for (edit, changes) in parts {
            match (edit.write(changes, way), way) {
                (Ok(()), _) => {}
                (Err(failed), Way::Finish) => return Err(failed),
                // What can be undone is, whatever became of another.
                (Err(failed), Way::Undo) => first = first.and(Err(failed)),
            }
        }
        first
    }
}
