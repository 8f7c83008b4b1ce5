//! Changes the write-intent bitmap of a running array: makes the file that it may need. The array does the
//! rest.

use crate::{
    array::Handle,
    create::held_by,
    message::{Answer, BitmapWish, Command},
    open::open_all,
};
use lapstrake_control::BitmapPlace;
use lapstrake_device::{Access, Member, MemberSpec};
use lapstrake_metadata::bitmap::{PAGE, Superblock};
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
};

/// Gives an array the bitmap that is wished for, and waits until it has it. `force`: over a file that is
/// there.
///
/// # Errors
/// Why not. The array is as it was then.
pub fn grow_bitmap(handle: &Handle, mut wish: BitmapWish, force: bool) -> Result<Answer, String> {
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
        return handle.command(Command::ChangeBitmap(to, None));
    };
    let is_there = path.symlink_metadata().is_ok();
    if is_there && !force {
        return Err(format!(
            "{}: exists already; nothing was written; --force writes over it",
            path.display()
        ));
    }
    if let Some(held) = held_by(path) {
        return Err(format!("{held}, no bitmap; nothing was written: choose another file"));
    }
    let has_begun = |error: &Unmade| matches!(error, Unmade::HalfWay(_));
    let answer = make(path, &new.superblock).map_err(Unmade::Refused).and_then(|file| match handle
        .ask(Command::ChangeBitmap(to, Some(file)))
        .recv()
    {
        Ok(Answer::Refused(why)) => Err(Unmade::Refused(why)),
        Ok(Answer::HalfWay(why)) => Err(Unmade::HalfWay(why)),
        Ok(answer) => Ok(answer),
        Err(_) => Err(Unmade::HalfWay("the array has stopped".into())),
    });
    if answer.as_ref().is_err_and(|error| !has_begun(error)) && !is_there {
        // Nobody has use for it.
        let _ = std::fs::remove_file(path);
    }
    answer.map_err(|(Unmade::Refused(why) | Unmade::HalfWay(why))| why)
}

/// Why there is no new bitmap.
enum Unmade {
    /// It never began.
    Refused(String),
    /// It may be the one at the next start.
    HalfWay(String),
}

/// A bitmap's file with all bits set, open and locked. It is locked before anything in it is changed.
fn make(path: &Path, superblock: &Superblock) -> Result<Arc<Member>, String> {
    let told = |source: io::Error| format!("{}: cannot make it: {source}", path.display());
    let mut options = OpenOptions::new();
    // A FIFO's open would wait for its reader.
    options.write(true).create(true).truncate(false).custom_flags(libc::O_NONBLOCK);
    drop(options.open(path).map_err(told)?);
    let opened = open_all(&[MemberSpec::whole(path)], Access::ReadWrite);
    let mut member = opened.map_err(|error| error.to_string())?.remove(0);
    let len = superblock.image_bytes().next_multiple_of(PAGE as u64);
    let file = Arc::get_mut(&mut member).expect("nobody else has it yet");
    file.lengthen(len).map_err(told)?;
    file.write_at(0, &superblock.dirty_image(len as usize)).map_err(told)?;
    file.sync_all().map_err(told)?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    File::open(directory).and_then(|dir| dir.sync_all()).map_err(told)?;
    Ok(member)
}
