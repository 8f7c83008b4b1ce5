//! A file, block device or file of a FUSE mount through io_uring.

use super::generator::Request;
use super::port::{Ended, Port};
use super::recorder::Kind;
use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// See the module.
pub(crate) struct Uring {
    ring: IoUring,
    file: Arc<File>,
    /// Bytes that each slot's request is to move.
    expected: Vec<u64>,
    under_way: usize,
}

impl Uring {
    /// # Errors
    /// The system's, such as `EPERM` where io_uring is refused.
    pub(crate) fn new(file: Arc<File>, depth: u32) -> io::Result<Self> {
        let ring = IoUring::new(depth.next_power_of_two())?;
        Ok(Self { ring, file, expected: vec![0; depth as usize], under_way: 0 })
    }

    fn collect(&mut self, ended: &mut Vec<Ended>) {
        let completions = self.ring.completion();
        for completion in completions {
            self.under_way -= 1;
            let slot = completion.user_data() as u32;
            let expected = self.expected[slot as usize];
            let result = match completion.result() {
                error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
                moved if moved as u64 == expected => Ok(()),
                moved => {
                    Err(io::Error::other(format!("only {moved} of {expected} bytes were moved")))
                }
            };
            ended.push((slot, result));
        }
    }
}

impl Port for Uring {
    unsafe fn submit(&mut self, request: &Request, memory: *mut u8) -> io::Result<()> {
        let (fd, len) = (types::Fd(self.file.as_raw_fd()), request.len as u32);
        let entry = match request.kind {
            Kind::Read => opcode::Read::new(fd, memory, len).offset(request.offset).build(),
            Kind::Write => opcode::Write::new(fd, memory, len).offset(request.offset).build(),
            Kind::Flush => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        };
        self.expected[request.slot as usize] = request.len;
        let entry = entry.user_data(request.slot.into());
        // SAFETY: the caller keeps the memory; the file is open as long as the ring.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        self.under_way += 1;
        Ok(())
    }

    fn wait(&mut self, ended: &mut Vec<Ended>, patience: Option<Duration>) -> io::Result<()> {
        let timespec = types::Timespec::from(patience.unwrap_or(Duration::from_secs(3600)));
        let args = types::SubmitArgs::new().timespec(&timespec);
        match self.ring.submitter().submit_with_args(1, &args) {
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY)
                ) => {}
            Err(error) => return Err(error),
        }
        self.collect(ended);
        Ok(())
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // The kernel must not write to memory that is about to go.
        let mut ended = Vec::new();
        while self.under_way > 0 && self.wait(&mut ended, None).is_ok() {}
    }
}
