//! An array's members and bitmap file beneath an overlay, whose file takes all writes.
//!
//! A new file is made only when the array is known to start, since it insists on its members; if the array
//! is not served after all, it is gone again.

use crate::open::{OpenArrayError, read_error};
use lapstrake_device::{
    Member, OverlayError,
    overlay::{BaseId, overlay, remembered},
};
use lapstrake_metadata::{Superblock, bitmap, detect::Findings};
use std::{
    os::unix::ffi::OsStrExt,
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
/// are, for reading only: no array takes them, unless the overlay itself holds their superblocks
/// ([`lay_over_bare`]).
pub(crate) fn lay_over(
    path: &Path,
    devices: &mut [Arc<Member>],
    superblocks: &[Option<Superblock>],
    bitmap_file: &mut Option<Arc<Member>>,
) -> Result<(), OpenArrayError> {
    let mut tops: Vec<&mut Arc<Member>> = Vec::new();
    let mut bases = Vec::new();
    let known = remembered(path);
    for (device, superblock) in devices.iter_mut().zip(superblocks) {
        let id = match superblock {
            Some(superblock) => Some(base_id(device, superblock)),
            None if known.is_empty() => None,
            None => bare_ids(device)?.into_iter().find(|id| known.contains(id)),
        };
        if let Some(id) = id {
            bases.push((device.clone(), id));
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

/// Puts devices beneath a new overlay that is to hold superblocks for those that have none.
pub(crate) fn lay_over_bare(
    path: &Path,
    devices: Vec<Arc<Member>>,
    findings: &[Findings],
) -> Result<Vec<Member>, OpenArrayError> {
    let mut choices = Vec::new();
    for (device, found) in devices.iter().zip(findings) {
        choices.push(match found.best() {
            Some(superblock) => [base_id(device, superblock); 2],
            None => bare_ids(device)?,
        });
    }
    let is_alone = |id: &BaseId| choices.iter().filter(|choice| choice[0].id == id.id).count() == 1;
    let ids = choices.iter().map(|choice| if is_alone(&choice[0]) { choice[0] } else { choice[1] });
    let bases = devices.into_iter().zip(ids).collect();
    Ok(overlay(path, bases)?)
}

/// What a device without a superblock is known by: its bytes at sampled places; and where another device has the same
/// there, these with its path.
fn bare_ids(device: &Member) -> Result<[BaseId; 2], OpenArrayError> {
    const PLACES: u64 = 256;
    const BYTES: usize = 4096;
    let mut digest = Digest::default();
    let mut bytes = vec![0; BYTES];
    let last = device.size().saturating_sub(BYTES as u64) / BYTES as u64;
    // Half of them lie in the first 2 MiB, where superblocks leave off and data begin.
    let near = (0..PLACES).map(|place| place * 2 * BYTES as u64);
    let far = (0..PLACES).map(|place| last * place / PLACES * BYTES as u64);
    for place in near.chain(far).filter(|place| place + BYTES as u64 <= device.size()) {
        let read = device.read_past_map(place, &mut bytes);
        read.map_err(|source| read_error(device, source))?;
        digest.add(&bytes);
    }
    let by_bytes = digest.id();
    let path = device.spec().resolved().unwrap_or_else(|_| device.spec().clone());
    digest.add(path.argument().as_bytes());
    let id = |id| BaseId { size: device.size(), stamp: [0; 2], id };
    Ok([id(by_bytes), id(digest.id())])
}

/// Four times FNV-1a of 64 bits, from different beginnings: tells devices apart, and guards against nobody.
struct Digest([u64; 4]);

impl Default for Digest {
    fn default() -> Self {
        Self([0, 1, 2, 3].map(|lane| 0xcbf2_9ce4_8422_2325 ^ lane))
    }
}

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            for lane in &mut self.0 {
                *lane = (*lane ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
    }

    fn id(&self) -> [u8; 32] {
        let mut id = [0; 32];
        for (to, lane) in id.chunks_exact_mut(8).zip(self.0) {
            to.copy_from_slice(&lane.to_le_bytes());
        }
        id
    }
}

/// The array's UUID and the member's (0.90: its number); events and time of the last update, which
/// every md that starts the array in earnest moves.
pub(crate) fn base_id(device: &Member, superblock: &Superblock) -> BaseId {
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
