//! Metadata in sparse files, as `mdadm --dump` writes them and `mdadm --restore` reads them: a file as long as its member,
//! with the superblock, the bitmap and the bad-block log where the member has them, and holes elsewhere.

use super::plan::{own_bitmap, own_superblocks};
use super::{EditError, Edits, open_for, read};
use lapstrake_device::{Access, Member, MemberSpec};
use lapstrake_geometry::{Sector, Sectors};
use lapstrake_metadata::update::{Update, Write, dumped};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file of a member's dump: its path's last part, with its window if it has one.
fn file_of(directory: &Path, spec: &MemberSpec) -> PathBuf {
    let name = spec.path.file_name().map_or_else(|| spec.path.clone().into(), ToOwned::to_owned);
    directory.join(MemberSpec { path: name.into(), ..spec.clone() }.argument())
}

fn failed(path: &Path, why: impl ToString) -> EditError {
    EditError::File { path: path.into(), why: why.to_string() }
}

/// The parts that count, with their bytes.
fn parts(member: &Arc<Member>) -> Result<Vec<Write>, EditError> {
    let superblock =
        own_superblocks(std::slice::from_ref(member), &Update::Resync, None)?.remove(0);
    let bitmap = own_bitmap(member, &superblock);
    let part = |(sector, len): (Sector, Sectors)| {
        let len = len.bytes().min(member.size().saturating_sub(sector.bytes()));
        Ok(Write { sector, bytes: read(member, sector.bytes(), len as usize)? })
    };
    dumped(&superblock, bitmap.as_ref()).into_iter().map(part).collect()
}

/// Copies members' metadata into a directory; the files that were made, one for each. None is left if one cannot be.
///
/// # Errors
/// [`EditError`].
pub fn dump(directory: &Path, members: &[MemberSpec]) -> Result<Vec<PathBuf>, EditError> {
    if !directory.is_dir() {
        return Err(failed(directory, "is no directory; make it first"));
    }
    let opened = super::open_all(members, Access::ReadOnly)?;
    let copies: Result<Vec<_>, _> = opened.iter().map(parts).collect();
    let mut made: Vec<PathBuf> = Vec::new();
    for (member, parts) in opened.iter().zip(copies?) {
        let path = file_of(directory, member.spec());
        // Nobody else's file is taken for it.
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let is_ours = file.is_ok();
        let written = file.and_then(|file| write(&file, member.size(), &parts));
        made.extend(is_ours.then(|| path.clone()));
        if let Err(error) = written {
            made.iter().for_each(|path| drop(std::fs::remove_file(path)));
            return Err(failed(&path, format!("cannot make it: {error}")));
        }
    }
    Ok(made)
}

fn write(file: &File, size: u64, parts: &[Write]) -> io::Result<()> {
    file.set_len(size)?;
    for part in parts {
        file.write_all_at(&part.bytes, part.sector.bytes())?;
    }
    file.sync_all()
}

/// What putting members' metadata back from such files changes: from a directory with a file for each, or from the file
/// of a single member. Nothing is written.
///
/// # Errors
/// [`EditError`].
pub fn restore(from: &Path, members: &[MemberSpec], is_dry: bool) -> Result<Edits, EditError> {
    let is_directory = from.is_dir();
    if !is_directory && members.len() > 1 {
        return Err(failed(from, "is no directory, and holds the metadata of one member"));
    }
    let opened = open_for(members, is_dry)?;
    let mut writes = Vec::new();
    for member in &opened {
        let path = if is_directory { file_of(from, member.spec()) } else { from.to_owned() };
        let copy = super::open_all(&[MemberSpec::whole(&path)], Access::ReadOnly)?.remove(0);
        if copy.size() != member.size() {
            let why = format!(
                "has {} bytes, and {} has {}: it is of another member",
                copy.size(),
                member.spec(),
                member.size()
            );
            return Err(failed(&path, why));
        }
        let mut parts = parts(&copy)?;
        // The superblock comes last, when what it points at is there.
        parts.reverse();
        writes.push(parts);
    }
    Ok(Edits::of("restore", &opened, writes)?)
}
