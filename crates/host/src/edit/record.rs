//! The file that keeps what an edit changes: a line of JSON for each member, between a first and a last line.
//!
//! It is stable before a member is written. Without its last line nothing was written.

use super::{Change, Edit, EditError, Edits, WriteFailed, read};
use crate::open::open_all;
use lapstrake_device::{Access, Member, MemberSpec};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the file says that it is.
const FORMAT: &str = "lapstrake edit 1";

/// Which of both states a record brings about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// What the edit wrote.
    Finish,
    /// What was there before.
    Undo,
}

/// An edit as its file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    format: String,
    /// The command's words.
    pub what: String,
    members: Vec<Kept>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// With an absolute path.
    member: String,
    size: u64,
    changes: Vec<KeptChange>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeptChange {
    offset: u64,
    /// Hexadecimal digits.
    old: String,
    new: String,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = hex.chars().map(|c| Some(c.to_digit(16)? as u8)).collect();
    let pairs = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(pairs.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn failed(path: &Path) -> impl Fn(&str) -> EditError + '_ {
    move |why| EditError::File { path: path.into(), why: why.into() }
}

impl Record {
    pub(super) fn of(edits: &Edits) -> Result<Self, EditError> {
        let members: Result<_, _> = edits.edits.iter().map(Kept::of).collect();
        Ok(Self { format: FORMAT.into(), what: edits.what.clone(), members: members? })
    }

    /// Makes the file, stable together with its name.
    pub(super) fn save(&self, path: &Path) -> Result<(), EditError> {
        let cannot = |error: std::io::Error| failed(path)(&format!("cannot keep a copy: {error}"));
        let mut text = serde_json::to_string(self).map_err(|error| cannot(error.into()))?;
        text.push('\n');
        let mut file =
            OpenOptions::new().write(true).create_new(true).open(path).map_err(cannot)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(cannot)?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = File::open(directory.unwrap_or(Path::new(".")));
        directory.and_then(|directory| directory.sync_all()).map_err(cannot)
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`EditError::File`].
    pub fn load(path: &Path) -> Result<Self, EditError> {
        let text =
            std::fs::read_to_string(path).map_err(|error| failed(path)(&error.to_string()))?;
        let record: Option<Self> = serde_json::from_str(&text).ok();
        record.filter(|record| record.format == FORMAT).ok_or_else(|| {
            failed(path)(
                "is no whole record of an edit; if the edit was cut while it was written, no member has been changed",
            )
        })
    }

    /// Finishes or undoes the edit, on the members that the record names or on these, which are told by what they hold;
    /// whether anything was to be written.
    ///
    /// # Errors
    /// [`EditError`]; nothing was written unless it says so.
    pub fn bring(&self, path: &Path, way: Way, members: &[MemberSpec]) -> Result<bool, EditError> {
        let specs = match members {
            [] => self.specs(path)?,
            given => given.to_vec(),
        };
        let opened = open_all(&specs, Access::ReadWrite)?;
        let mut edits = Edits { what: self.what.clone(), edits: Vec::new() };
        for (index, kept) in self.members.iter().enumerate() {
            let changes = kept.changes().ok_or_else(|| failed(path)("has bytes that are none"))?;
            let member = match members {
                [] => check(&opened[index], kept.size, &changes).map(|()| opened[index].clone()),
                _ => find(&opened, kept, &changes),
            }?;
            edits.edits.push(Edit { member, changes });
        }
        let is_new = edits.differ(way)?;
        edits.go(way).map_err(|failed| half_way(failed, path))?;
        Ok(is_new)
    }

    fn specs(&self, path: &Path) -> Result<Vec<MemberSpec>, EditError> {
        let spec = |kept: &Kept| kept.member.parse().map_err(|_| failed(path)("names no member"));
        self.members.iter().map(spec).collect()
    }
}

fn half_way(write: WriteFailed, path: &Path) -> EditError {
    EditError::Again { failed: write, record: path.into() }
}

impl Kept {
    fn of(edit: &Edit) -> Result<Self, EditError> {
        let spec = edit.member.spec();
        let absolute = std::path::absolute(&spec.path).unwrap_or_else(|_| spec.path.clone());
        let no_name = |path: &PathBuf| {
            failed(path)(
                "its name is not UTF-8, which a record is; give it, or a link to it, another name",
            )
        };
        let member = MemberSpec { path: absolute, ..spec.clone() };
        if member.path.to_str().is_none() {
            return Err(no_name(&member.path));
        }
        let changes = edit.changes.iter().map(|change| KeptChange {
            offset: change.offset,
            old: hex(&change.old),
            new: hex(&change.new),
        });
        Ok(Self {
            member: member.argument().to_string_lossy().into_owned(),
            size: edit.member.size(),
            changes: changes.collect(),
        })
    }

    fn changes(&self) -> Option<Vec<Change>> {
        let change = |kept: &KeptChange| {
            let (old, new) = (bytes_of(&kept.old)?, bytes_of(&kept.new)?);
            (old.len() == new.len()).then_some(Change { offset: kept.offset, old, new })
        };
        self.changes.iter().map(change).collect()
    }
}

/// The one of the members whose bytes are those of before or after.
fn find(
    members: &[Arc<Member>],
    kept: &Kept,
    changes: &[Change],
) -> Result<Arc<Member>, EditError> {
    let is_it = |member: &&Arc<Member>| check(member, kept.size, changes).is_ok();
    let found = members.iter().find(is_it).cloned();
    found.ok_or_else(|| EditError::NotAmong { member: kept.member.clone() })
}

/// Every sector is as it was or as it is to be.
fn check(member: &Arc<Member>, size: u64, changes: &[Change]) -> Result<(), EditError> {
    let changed = |offset| EditError::Changed { member: member.spec().to_string(), offset };
    for change in changes {
        if member.size() != size {
            return Err(changed(change.offset));
        }
        let now = read(member, change.offset, change.new.len())?;
        let sectors = now.chunks(512).zip(change.old.chunks(512)).zip(change.new.chunks(512));
        let strange = sectors.enumerate().find(|(_, ((now, old), new))| now != old && now != new);
        if let Some((index, _)) = strange {
            return Err(changed(change.offset + 512 * index as u64));
        }
    }
    Ok(())
}

impl Edits {
    /// Whether any member is not as this way has it.
    fn differ(&self, way: Way) -> Result<bool, EditError> {
        for edit in &self.edits {
            for change in &edit.changes {
                let wanted = if way == Way::Finish { &change.new } else { &change.old };
                if read(&edit.member, change.offset, wanted.len())? != *wanted {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}
