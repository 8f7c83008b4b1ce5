//! An array's members and bitmap file beneath an overlay, whose file takes all writes.
//!
//! A new file is made only when the array is known to start, since it insists on its members; if the array
//! is not served after all, it is gone again.

use crate::open::{OpenArrayError, read_error};
use lapstrake_device::{
    Member, OverlayError,
    overlay::{BaseId, overlay},
};
use lapstrake_metadata::{Superblock, bitmap};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// An overlay's file that was made for an array which perhaps is never served: gone when dropped, unless it
/// is kept. Who has it open goes on with it.
#[derive(Debug)]
pub struct NewOverlay {
    path: PathBuf,
    /// An empty file was there before.
    was_there: bool,
    kept: bool,
}

impl NewOverlay {
    /// As [`lay_over`].
    pub(crate) fn make(
        path: &Path,
        devices: &mut [Arc<Member>],
        superblocks: &[Option<Superblock>],
        bitmap_file: &mut Option<Arc<Member>>,
    ) -> Result<Self, OpenArrayError> {
        let new = Self { path: path.into(), was_there: path.exists(), kept: false };
        match lay_over(path, devices, superblocks, bitmap_file) {
            Err(error) if !matches!(error, OpenArrayError::Overlay(OverlayError::Io { .. })) => {
                // It is another's.
                new.keep();
                Err(error)
            }
            laid => laid.map(|()| new),
        }
    }

    /// Leaves it where it is.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for NewOverlay {
    fn drop(&mut self) {
        let gone = match (self.kept, self.was_there) {
            (true, _) => Ok(()),
            (_, true) => std::fs::OpenOptions::new()
                .write(true)
                .open(&self.path)
                .and_then(|file| file.set_len(0)),
            _ => std::fs::remove_file(&self.path),
        };
        // What is left of it the next start takes for an overlay of these members, which it is.
        drop(gone);
    }
}

/// Puts the members and the bitmap file beneath an overlay. Devices without a superblock stay as they
/// are, for reading only: no array takes them.
pub(crate) fn lay_over(
    path: &Path,
    devices: &mut [Arc<Member>],
    superblocks: &[Option<Superblock>],
    bitmap_file: &mut Option<Arc<Member>>,
) -> Result<(), OpenArrayError> {
    let mut tops: Vec<&mut Arc<Member>> = Vec::new();
    let mut bases = Vec::new();
    for (device, superblock) in devices.iter_mut().zip(superblocks) {
        if let Some(superblock) = superblock {
            bases.push((device.clone(), base_id(device, superblock)));
            tops.push(device);
        }
    }
    if let Some(file) = bitmap_file {
        let mut head = [0; 512];
        file.read_at(0, &mut head).map_err(|source| read_error(file, source))?;
        let mut id = [0xff; 32];
        // What a bitmap cannot be is told later.
        let found = bitmap::Superblock::parse(&head).ok();
        let (uuid, events) = found.map_or_else(Default::default, |sb| (sb.uuid, sb.events));
        id[..16].copy_from_slice(&uuid);
        bases.push((file.clone(), BaseId { size: file.size(), stamp: [events, 0], id }));
        tops.push(file);
    }
    if bases.is_empty() {
        return Ok(());
    }
    for (top, layered) in tops.into_iter().zip(overlay(path, bases)?) {
        *top = Arc::new(layered);
    }
    Ok(())
}

/// The array's UUID and the member's (0.90: its number); events and time of the last update, which
/// every md that starts the array in earnest moves.
fn base_id(device: &Member, superblock: &Superblock) -> BaseId {
    let mut id = [0; 32];
    id[..16].copy_from_slice(&superblock.set_uuid());
    match superblock.device_uuid() {
        Some(uuid) => id[16..].copy_from_slice(&uuid),
        None => id[16..20].copy_from_slice(&superblock.dev_number().to_le_bytes()),
    }
    let (seconds, micros) = superblock.utime();
    let stamp = [superblock.events(), seconds << 20 | u64::from(micros)];
    BaseId { size: device.size(), stamp, id }
}
