//! Members before their array runs, and those that are about to join it: read, written and flushed one call
//! at a time, with errors that say where.

use lapstrake_array::start::StartIo;
use lapstrake_device::Member;
use lapstrake_geometry::Sector;
use lapstrake_metadata::bitmap;
use std::{io, sync::Arc};
use thiserror::Error;

/// A device refused something.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// To be read or written.
    #[error("cannot {what} {device} at byte {offset}: {source}")]
    At {
        /// The device, as it was given.
        device: String,
        /// What was tried.
        what: &'static str,
        /// Where the device was read or written, in bytes from the member's beginning.
        offset: u64,
        /// Its answer.
        source: io::Error,
    },
    /// To be flushed.
    #[error("cannot flush {device}: {source}")]
    Flush {
        /// The device, as it was given.
        device: String,
        /// Its answer.
        source: io::Error,
    },
}

fn refused(
    device: &Member,
    what: &'static str,
    offset: u64,
) -> impl FnOnce(io::Error) -> DeviceError {
    move |source| DeviceError::At { device: device.spec().to_string(), what, offset, source }
}

/// Opened members, each named by itself.
pub(crate) struct Members;

impl StartIo for Members {
    type Device = Arc<Member>;
    type Error = DeviceError;

    fn size(&self, device: &Arc<Member>) -> u64 {
        device.size()
    }

    fn read(&self, device: &Arc<Member>, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        device.read_at(offset, buf).map_err(refused(device, "read", offset))
    }

    fn write(
        &mut self,
        device: &Arc<Member>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), DeviceError> {
        device.write_at(offset, bytes).map_err(refused(device, "write", offset))
    }

    fn write_superblock(
        &mut self,
        device: &Arc<Member>,
        sector: Sector,
        bytes: &[u8],
    ) -> Result<(), DeviceError> {
        let offset = sector.bytes();
        let written = device.write_at(offset, bytes);
        written.map_err(refused(device, "write the superblock of", offset))?;
        self.flush(device)
    }

    fn flush(&mut self, device: &Arc<Member>) -> Result<(), DeviceError> {
        let refused = |source| DeviceError::Flush { device: device.spec().to_string(), source };
        device.sync_all().map_err(refused)
    }
}

/// A bitmap is written in pages; a file that mdadm made may end within one.
pub(crate) fn whole_pages(file: &mut Member) -> Result<(), DeviceError> {
    let end = file.size();
    let lengthened = file.lengthen(end.next_multiple_of(bitmap::PAGE as u64));
    lengthened.map_err(refused(file, "lengthen", end))
}
