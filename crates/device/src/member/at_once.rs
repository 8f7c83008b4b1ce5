//! Reads and writes of a member on the calling thread, of any offset and length: for metadata, and before it serves.

use super::{Bounce, Member, Store, result};
use crate::fault::{Kind, Outcome};
use crate::op::IoVec;
use crate::overlay::{self, Task};
use std::io;
use std::os::unix::fs::FileExt;

impl Member {
    /// Reads at once, on the calling thread: for metadata. Any offset and length.
    ///
    /// # Errors
    /// `InvalidInput` outside the window, `UnexpectedEof` if the file has become shorter, else the
    /// system's.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len())?;
        self.apply_faults(Kind::Read, offset, buf.len())?;
        self.read_store(offset, buf)
    }

    /// As [`Self::read_at`], with what the image holds in places that a map says are not there.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn read_past_map(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if !self.lacks(offset, buf.len() as u64) {
            return self.read_at(offset, buf);
        }
        self.check(offset, buf.len())?;
        self.read_store(offset, buf)
    }

    fn read_store(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let file = match &self.store {
            Store::Memory(store) => {
                let iov = IoVec::new(buf.as_mut_ptr(), buf.len());
                // SAFETY: the vector is the buffer.
                unsafe { store.read(offset, &[iov]) };
                return Ok(());
            }
            Store::Reader(store) => {
                let iov = IoVec::new(buf.as_mut_ptr(), buf.len());
                // SAFETY: the vector is the buffer.
                return result(unsafe { store.read(offset, &[iov]) });
            }
            Store::Overlay(part) => return self.read_layered(part, offset, buf),
            Store::File(file) => file,
        };
        if !self.direct {
            return file.read_exact_at(buf, self.base() + offset);
        }
        let (start, len) = self.blocks_around(offset, buf.len());
        let mut bounce = Bounce::new(len);
        file.read_exact_at(bounce.bytes(), self.base() + start)?;
        buf.copy_from_slice(&bounce.bytes()[(offset - start) as usize..][..buf.len()]);
        Ok(())
    }

    /// Writes at once, on the calling thread: for metadata. Any offset and length; blocks that are
    /// written in part are read first. Durable only after [`Member::sync_all`].
    ///
    /// # Errors
    /// `InvalidInput` outside the window, `ENXIO` if the file has become shorter, else the system's.
    pub fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.check(offset, buf.len())?;
        if !self.writable() {
            return Err(io::Error::from_raw_os_error(libc::EROFS));
        }
        self.check_truncated();
        self.apply_faults(Kind::Write, offset, buf.len())?;
        let file = match &self.store {
            Store::Memory(store) => {
                let iov = IoVec::new(buf.as_ptr().cast_mut(), buf.len());
                // SAFETY: the vector is the buffer, and only read.
                unsafe { store.write(offset, &[iov]) };
                return Ok(());
            }
            Store::Reader(_) => unreachable!("a reader is not writable"),
            Store::Overlay(part) => return self.write_layered(part, offset, buf),
            Store::File(file) => file,
        };
        if !self.direct {
            return file.write_all_at(buf, self.base() + offset);
        }
        let (start, len) = self.blocks_around(offset, buf.len());
        let mut bounce = Bounce::new(len);
        if len != buf.len() {
            file.read_exact_at(bounce.bytes(), self.base() + start)?;
        }
        bounce.bytes()[(offset - start) as usize..][..buf.len()].copy_from_slice(buf);
        file.write_all_at(bounce.bytes(), self.base() + start)
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// The system's.
    pub fn sync_all(&self) -> io::Result<()> {
        let flushed = self.apply_faults(Kind::Flush, 0, 0).and_then(|()| match &self.store {
            Store::File(file) => file.sync_all(),
            Store::Memory(_) | Store::Reader(_) => Ok(()),
            // SAFETY: a flush names no memory.
            Store::Overlay(part) => result(unsafe { part.perform(Task::Flush, &[], 0, 0) }),
        });
        self.flushed(flushed.is_ok())
            .then_some(())
            .ok_or_else(|| flushed.err().unwrap_or_else(|| io::Error::from_raw_os_error(libc::EIO)))
    }

    fn read_layered(
        &self,
        part: &overlay::OverlayMember,
        offset: u64,
        buf: &mut [u8],
    ) -> io::Result<()> {
        let (start, len) = self.blocks_around(offset, buf.len());
        let len = len.min((self.size - start) as usize);
        let mut bounce = Bounce::new(len);
        // SAFETY: the vector is the bounce buffer.
        result(unsafe { part.perform(Task::Read, &[bounce.iov()], start, len as u64) })?;
        buf.copy_from_slice(&bounce.bytes()[(offset - start) as usize..][..buf.len()]);
        Ok(())
    }

    fn write_layered(
        &self,
        part: &overlay::OverlayMember,
        offset: u64,
        buf: &[u8],
    ) -> io::Result<()> {
        let (start, len) = self.blocks_around(offset, buf.len());
        let len = len.min((self.size - start) as usize);
        let mut bounce = Bounce::new(len);
        let iov = [bounce.iov()];
        let len = len as u64;
        // SAFETY: the vector is the bounce buffer.
        result(unsafe { part.perform(Task::Read, &iov, start, len) })?;
        bounce.bytes()[(offset - start) as usize..][..buf.len()].copy_from_slice(buf);
        // SAFETY: as above.
        result(unsafe { part.perform(Task::Write { fua: false }, &iov, start, len) })
    }

    fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| end > self.size) {
            let what = format!("{len} bytes at {offset} are not within {} bytes", self.size);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(())
    }

    /// Fault layers apply to metadata too. A torn transfer fails whole here.
    fn apply_faults(&self, kind: Kind, offset: u64, len: usize) -> io::Result<()> {
        let verdict = self.verdict(kind, offset, len as u64);
        if let Some(delay) = verdict.delay {
            std::thread::sleep(delay);
        }
        match verdict.outcome {
            Outcome::Pass => Ok(()),
            Outcome::Fail(errno) | Outcome::Torn { errno, .. } => {
                Err(io::Error::from_raw_os_error(errno))
            }
        }
    }

    fn blocks_around(&self, offset: u64, len: usize) -> (u64, usize) {
        let block = u64::from(self.block_size);
        let start = offset / block * block;
        let end = (offset + len as u64).next_multiple_of(block);
        (start, (end - start) as usize)
    }
}
