//! What is analysed: bytes that can be read anywhere.

use std::io;
use std::ops::Range;

/// A device or image, for reading only.
pub trait Source: Sync {
    /// Its size, bytes.
    fn size(&self) -> u64;

    /// Fills `buf` from a byte offset on.
    ///
    /// # Errors
    /// The system's: the place counts as unreadable.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Whether it is known, without reading, that some of so many bytes are not there: that is no evidence of anything.
    fn lacks(&self, offset: u64, length: u64) -> bool {
        let _ = (offset, length);
        false
    }

    /// Where there may be data at or after a byte offset; None if all that follows is a hole.
    fn next_data(&self, offset: u64) -> Option<u64> {
        (offset < self.size()).then_some(offset)
    }
}

impl Source for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset + buf.len() as u64;
        let bytes = self.get(offset as usize..end as usize);
        buf.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// A range of one device that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Which device, in the order in which they were given.
    pub device: usize,
    /// The bytes that were asked for.
    pub range: Range<u64>,
    /// The system's reason.
    pub reason: String,
}
