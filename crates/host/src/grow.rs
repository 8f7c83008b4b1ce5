//! Changes the write-intent bitmap of a running array: makes the file that it may need. The array does the
//! rest.

use crate::{
    array::Handle,
    command_error::CommandError,
    create::{Occupied, held_by},
    message::{Answer, BitmapWish, Command},
    open::{OpenArrayError, open_all},
};
use lapstrake_control::BitmapPlace;
use lapstrake_device::{Access, Member, MemberSpec};
use lapstrake_metadata::bitmap::{PAGE, Superblock};
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};
use thiserror::Error;

/// Gives an array the bitmap that is wished for, and waits until it has it. `force`: over a file that is
/// there.
///
/// # Errors
/// [`GrowBitmapError`]. The array is as it was then, unless the change had begun: then the message says so.
pub fn grow_bitmap(
    handle: &Handle,
    mut wish: BitmapWish,
    force: bool,
) -> Result<Answer, GrowBitmapError> {
    // As the array has it, however the file was named when the array was opened.
    if let BitmapPlace::File(path) = &mut wish.place
        && let Ok(resolved) = MemberSpec::whole(&*path).resolved()
    {
        *path = resolved.path;
    }
    let to = match handle.command(Command::PlanBitmap(wish.clone()))? {
        Answer::Bitmap(to) => to,
        answer => return Ok(answer),
    };
    let (BitmapPlace::File(path), Some(new)) = (&wish.place, &*to) else {
        return Ok(handle.command(Command::ChangeBitmap(to, None))?);
    };
    let is_there = path.symlink_metadata().is_ok();
    if is_there && !force {
        return Err(GrowBitmapError::Exists { file: path.clone() });
    }
    if let Some(held) = held_by(path) {
        return Err(GrowBitmapError::Occupied(held));
    }
    let answer = make(path, &new.superblock).map(|file| {
        let answer = handle.ask(Command::ChangeBitmap(to, Some(file))).recv();
        // Then it may be the bitmap at the next start.
        answer.unwrap_or(Answer::HalfWay(CommandError::Stopped))
    });
    if matches!(answer, Err(_) | Ok(Answer::Refused(_))) && !is_there {
        // Nobody has use for it.
        let _ = std::fs::remove_file(path);
    }
    Ok(answer?.accepted()?)
}

/// Why an array does not get the bitmap that is wished for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GrowBitmapError {
    /// The array refuses it, has stopped, or could not bring the change to its end.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The file is there already.
    #[error("{}: exists already; nothing was written; --force writes over it", file.display())]
    Exists {
        /// As the array was told.
        file: PathBuf,
    },
    /// The file holds something that no bitmap is written over, be it forced.
    #[error("{0}, no bitmap; nothing was written: choose another file")]
    Occupied(Occupied),
    /// The file cannot be opened or locked.
    #[error(transparent)]
    Open(#[from] OpenArrayError),
    /// The file cannot be made as long as a bitmap, or not written.
    #[error("{}: cannot make it: {source}", file.display())]
    Make {
        /// The bitmap's file.
        file: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// A bitmap's file with all bits set, open and locked. It is locked before anything in it is changed.
fn make(path: &Path, superblock: &Superblock) -> Result<Arc<Member>, GrowBitmapError> {
    let told = |source| GrowBitmapError::Make { file: path.into(), source };
    let mut options = OpenOptions::new();
    // A FIFO's open would wait for its reader.
    options.write(true).create(true).truncate(false).custom_flags(libc::O_NONBLOCK);
    drop(options.open(path).map_err(told)?);
    let mut member = open_all(&[MemberSpec::whole(path)], Access::ReadWrite)?.remove(0);
    let len = superblock.image_bytes().next_multiple_of(PAGE as u64);
    let file = Arc::get_mut(&mut member).expect("nobody else has it yet");
    file.lengthen(len).map_err(told)?;
    file.write_at(0, &superblock.dirty_image(len as usize)).map_err(told)?;
    file.sync_all().map_err(told)?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    File::open(directory).and_then(|dir| dir.sync_all()).map_err(told)?;
    Ok(member)
}
