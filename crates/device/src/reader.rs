//! A member's bytes from anything that can be read and sought: an image in memory, one within an archive.
//!
//! A source is asked for one range at a time, by one thread at a time: a worker's, since it may block. What it makes of
//! a request is not trusted: an error, an early end and a panic all are an I/O error of the member, and so is whatever
//! it does not fill.

use crate::op::IoVec;
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// What a member can be read from.
pub trait Source: Read + Seek + Send {}

impl<T: Read + Seek + Send> Source for T {}

pub(crate) struct ReaderStore(Mutex<Box<dyn Source>>);

impl ReaderStore {
    /// The store and its size, bytes.
    pub(crate) fn new(mut source: Box<dyn Source>) -> io::Result<(Self, u64)> {
        let size = source.seek(SeekFrom::End(0))?;
        Ok((Self(Mutex::new(source)), size))
    }

    /// Fills the vectors: how many bytes these are, or `-errno`.
    ///
    /// # Safety
    /// The vectors must name memory that may be written, and that holds some value already.
    pub(crate) unsafe fn read(&self, offset: u64, iov: &[IoVec]) -> i32 {
        // Whatever a panic left of the source, the next request seeks first.
        let mut source = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || -> io::Result<usize> {
            source.seek(SeekFrom::Start(offset))?;
            for v in iov {
                // SAFETY: the caller's promise.
                fill(&mut **source, unsafe { std::slice::from_raw_parts_mut(v.ptr, v.len) })?;
            }
            Ok(iov.iter().map(|v| v.len).sum())
        };
        match catch_unwind(AssertUnwindSafe(read)) {
            Ok(Ok(len)) => len as i32,
            Ok(Err(error)) => -error.raw_os_error().filter(|&errno| errno > 0).unwrap_or(libc::EIO),
            Err(_) => -libc::EIO,
        }
    }
}

/// As `read_exact`, which panics if more is said to have been read than there was room for.
fn fill(source: &mut dyn Source, mut buf: &mut [u8]) -> io::Result<()> {
    while !buf.is_empty() {
        let read = match source.read(buf) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        let is_possible = 0 < read && read <= buf.len();
        buf = buf.get_mut(read..).filter(|_| is_possible).ok_or(io::ErrorKind::UnexpectedEof)?;
    }
    Ok(())
}

impl fmt::Debug for ReaderStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReaderStore")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backend, Completion, Member, Op, Queue};
    use std::io::Cursor;
    use std::sync::Arc;

    /// Says that it read more, or fewer, than it was asked for.
    struct Liar(Cursor<Vec<u8>>, usize);

    impl Read for Liar {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            assert!(self.1 != 13, "unlucky");
            Ok(if self.1 > 0 { self.1 } else { self.0.read(&mut buf[..1])? })
        }
    }

    impl Seek for Liar {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }

    #[test]
    fn a_source_is_read_whole_or_not_at_all() {
        let image: Vec<u8> = (0..=255).cycle().take(4096).collect();
        for (lie, is_whole) in [(0, true), (5000, false), (13, false)] {
            let source = Box::new(Liar(Cursor::new(image.clone()), lie));
            let member = Arc::new(Member::reader("image", source).unwrap());
            assert_eq!((member.size(), member.writable()), (4096, false));
            let mut buf = [0; 1024];
            assert_eq!(member.read_at(512, &mut buf).is_ok(), is_whole, "{lie}");
            assert_eq!(buf[..] == image[512..1536], is_whole, "{lie}");
            assert!(member.write_at(0, &buf).is_err());
            for backend in [Backend::Auto, Backend::Threads] {
                let (done, read) = queued(&member, backend);
                let expected = if is_whole { 1024 } else { -libc::EIO };
                assert_eq!(done, [(1, expected), (2, -libc::EROFS), (3, 0)], "{lie}");
                assert!(!is_whole || read[..] == image[512..1536]);
            }
        }
    }

    /// A read, a write and a flush of a member: their results, and what was read.
    fn queued(member: &Arc<Member>, backend: Backend) -> (Vec<(u64, i32)>, [u8; 1024]) {
        let mut buf = [0; 1024];
        let mut queue = Queue::new([member.clone()], backend, 8).unwrap();
        let iov = [IoVec::new(buf.as_mut_ptr(), buf.len())];
        let (read, write) = (
            Op::Read { member: 0, offset: 512, iov: &iov },
            Op::Write { member: 0, offset: 0, iov: &iov, fua: false },
        );
        for (token, op) in [(1, read), (2, write), (3, Op::Flush { member: 0 })] {
            // SAFETY: the buffer outlives the queue's last completion, which is waited for.
            unsafe { queue.submit(token, op) };
        }
        let mut done: Vec<Completion> = Vec::new();
        while done.len() < 3 {
            queue.wait(&mut done, None).unwrap();
        }
        let mut results: Vec<_> = done.iter().map(|done| (done.token, done.result)).collect();
        results.sort_unstable();
        drop(queue);
        (results, buf)
    }
}
