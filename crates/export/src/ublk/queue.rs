//! One queue of a device on a shard: requests from the driver to the array, and back.
//!
//! For each of the queue's tags one command is with the driver, which ends when there is a request for the tag; the
//! request's answer is the next command of the tag, so that one round with the kernel brings answers and fetches
//! requests. What a request is about lies in memory that the driver shares; bytes are moved by the driver, between the
//! request's pages and the tag's buffer.
//!
//! Invariants:
//! - a tag's command is with the driver, or its request with the array, or it has ended for good;
//! - the driver ends tags when the device stops, and never without an answer to what was begun; with the last one the
//!   session closes.

use super::{DEPTH_MAX, READ, UblkError, WRITE};
use crate::mapping::Mapping;
use lapstrake_device::COMMAND_BYTES;
use lapstrake_host::{ArraySize, Client, Context, Kind, Memory, RequestError};
use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    sync::{Arc, mpsc::Sender},
    time::Instant,
};

/// `struct ublksrv_io_desc`.
const DESCRIPTOR_BYTES: usize = 24;
const PAGE: usize = 4096;
const SECTOR: u64 = 512;

/// `UBLK_U_IO_FETCH_REQ`.
const FETCH: u32 = super::ioctl(READ | WRITE, 0x20, 16);
/// `UBLK_U_IO_COMMIT_AND_FETCH_REQ`.
const COMMIT_AND_FETCH: u32 = super::ioctl(READ | WRITE, 0x21, 16);

/// `UBLK_IO_F_FUA`, and `UBLK_IO_F_NOUNMAP`.
const FUA: u32 = 1 << 13;
const NO_UNMAP: u32 = 1 << 15;

/// A request of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Read,
    Write { fua: bool },
    Flush,
    Discard,
    WriteZeroes { fua: bool, unmap: bool },
}

/// What a device's requests are held against.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) size: ArraySize,
    pub(super) block_bytes: u32,
    pub(super) request_bytes: u32,
    pub(super) read_only: bool,
}

/// A request's place, in bytes.
type Place = (u64, u64);

impl Terms {
    /// What a descriptor asks for; an errno if it cannot be had.
    fn judge(&self, op_flags: u32, sectors: u32, sector: u64) -> Result<(Action, Place), i32> {
        let fua = op_flags & FUA != 0;
        let action = match op_flags & 0xff {
            0 => Action::Read,
            1 => Action::Write { fua },
            2 => return Ok((Action::Flush, (0, 0))),
            3 => Action::Discard,
            5 => Action::WriteZeroes { fua, unmap: op_flags & NO_UNMAP == 0 },
            _ => return Err(libc::EOPNOTSUPP),
        };
        if self.read_only && action != Action::Read {
            return Err(libc::EROFS);
        }
        let place = self.within(sector, sectors).ok_or(libc::EIO)?;
        let moves = matches!(action, Action::Read | Action::Write { .. });
        let fits = !moves || place.1 <= u64::from(self.request_bytes);
        if fits { Ok((action, place)) } else { Err(libc::EIO) }
    }

    /// Whole blocks of the array.
    fn within(&self, sector: u64, sectors: u32) -> Option<Place> {
        let (offset, len) = (sector.checked_mul(SECTOR)?, u64::from(sectors) * SECTOR);
        let is_within = offset.checked_add(len)? <= self.size.bytes();
        let is_whole = (offset | len) & (u64::from(self.block_bytes) - 1) == 0;
        (is_within && is_whole && len > 0).then_some((offset, len))
    }
}

/// A tag's request that is with the array.
#[derive(Clone, Copy)]
struct Running {
    memory: Option<Memory>,
    /// What it is answered with if it goes well: bytes, or 0.
    answer: i32,
}

/// See the module.
pub(super) struct QueueSession {
    device: Arc<File>,
    index: u16,
    terms: Terms,
    descriptors: Mapping,
    /// One for each tag, of a request's greatest length.
    buffers: Mapping,
    running: Vec<Option<Running>>,
    /// Tags that have not ended for good.
    tags: usize,
    /// Hears of what keeps the queue from being served.
    refused: Sender<Result<(), UblkError>>,
}

impl QueueSession {
    pub(super) fn new(
        device: Arc<File>,
        index: u16,
        depth: u16,
        terms: Terms,
        refused: Sender<Result<(), UblkError>>,
    ) -> io::Result<Self> {
        let tags = usize::from(depth);
        let all = (DEPTH_MAX * DESCRIPTOR_BYTES) as u64;
        let at = u64::from(index) * all.next_multiple_of(PAGE as u64);
        let bytes = (tags * DESCRIPTOR_BYTES).next_multiple_of(PAGE);
        let descriptors = Mapping::new(Some((&device, at)), bytes)?;
        let buffers = Mapping::new(None, tags * terms.request_bytes as usize)?;
        let running = vec![None; tags];
        Ok(Self { device, index, terms, descriptors, buffers, running, tags, refused })
    }

    fn buffer(&self, tag: usize) -> *mut u8 {
        // SAFETY: there is one for each tag.
        unsafe { self.buffers.start().add(tag * self.terms.request_bytes as usize) }
    }

    /// A descriptor, which the driver changes only while it has the tag.
    fn descriptor(&self, tag: usize) -> (u32, u32, u64) {
        // SAFETY: there is one for each tag, and it begins at a multiple of eight.
        unsafe {
            let at = self.descriptors.start().add(tag * DESCRIPTOR_BYTES);
            let words = at.cast::<u32>();
            (
                words.read_volatile(),
                words.add(1).read_volatile(),
                at.add(8).cast::<u64>().read_volatile(),
            )
        }
    }

    fn give(&self, cx: &mut Context<'_>, tag: usize, code: u32, result: i32) {
        let mut payload = [0; COMMAND_BYTES];
        payload[..2].copy_from_slice(&self.index.to_ne_bytes());
        payload[2..4].copy_from_slice(&(tag as u16).to_ne_bytes());
        payload[4..8].copy_from_slice(&result.to_ne_bytes());
        payload[8..16].copy_from_slice(&(self.buffer(tag) as u64).to_ne_bytes());
        // SAFETY: the session holds the descriptor and the buffer, and is dropped when its operations have ended.
        unsafe { cx.command(tag as u32, self.device.as_raw_fd(), code, payload, &[]) };
    }

    fn begin(&mut self, cx: &mut Context<'_>, tag: usize) {
        let (op_flags, sectors, sector) = self.descriptor(tag);
        let (action, (offset, len)) = match self.terms.judge(op_flags, sectors, sector) {
            Ok(asked) => asked,
            Err(errno) => return self.give(cx, tag, COMMIT_AND_FETCH, -errno),
        };
        let memory = matches!(action, Action::Read | Action::Write { .. }).then(|| {
            // SAFETY: a page's start in memory of the session, as long as the longest request, and the tag's alone.
            unsafe { cx.lend(self.buffer(tag)) }
        });
        let kind = match (action, memory) {
            (Action::Read, Some(memory)) => Kind::Read(memory),
            (Action::Write { fua }, Some(memory)) => Kind::Write { memory, fua, followed: false },
            (Action::Discard, _) => Kind::Discard,
            (Action::WriteZeroes { fua, unmap }, _) => Kind::WriteZeroes { fua, unmap },
            _ => Kind::Flush,
        };
        let answer = if memory.is_some() { len as i32 } else { 0 };
        self.running[tag] = Some(Running { memory, answer });
        cx.request(tag as u64, kind, offset, len);
    }
}

impl Client for QueueSession {
    fn start(&mut self, cx: &mut Context<'_>) {
        for tag in 0..self.running.len() {
            self.give(cx, tag, FETCH, 0);
        }
    }

    fn handle_io(&mut self, cx: &mut Context<'_>, tag: u32, result: i32) {
        if result == 0 {
            return self.begin(cx, tag as usize);
        }
        self.tags -= 1;
        if result != -libc::ENODEV {
            // Who started the device may have gone on.
            let _ = self.refused.send(Err(UblkError::Queue(io::Error::from_raw_os_error(-result))));
        }
        if self.tags == 0 {
            cx.close();
        }
    }

    fn handle_reply(&mut self, cx: &mut Context<'_>, id: u64, result: Result<(), RequestError>) {
        let tag = id as usize;
        let Running { memory, answer } = self.running[tag].take().expect("it was begun");
        if let Some(memory) = memory {
            cx.free(memory);
        }
        let answer = result.map_or_else(|error| -errno(error), |()| answer);
        self.give(cx, tag, COMMIT_AND_FETCH, answer);
    }

    fn handle_replies_end(&mut self, _: &mut Context<'_>) {}

    fn handle_time(&mut self, _: &mut Context<'_>) {}

    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// The device is stopped before the array is; see [`super::Device`].
    fn shut_down(&mut self, _: &mut Context<'_>) {}
}

/// The array's errors as a block device's.
fn errno(error: RequestError) -> i32 {
    match error {
        RequestError::Io | RequestError::OutOfRange | RequestError::Misaligned => libc::EIO,
        RequestError::NoSpace => libc::ENOSPC,
        RequestError::ReadOnly => libc::EROFS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> Terms {
        let size = ArraySize::from(1 << 20);
        Terms { size, block_bytes: 4096, request_bytes: 512 << 10, read_only: false }
    }

    #[test]
    fn what_lies_beyond_the_device_fails() {
        let terms = terms();
        assert_eq!(terms.judge(0, 8, 2040), Ok((Action::Read, (2040 * 512, 4096))));
        for (sectors, sector) in
            [(8, 2048), (16, 2040), (8, u64::MAX), (8, 1 << 55), (0, 0), (1, 0), (8, 1), (2048, 0)]
        {
            assert_eq!(terms.judge(1, sectors, sector), Err(libc::EIO), "{sectors} at {sector}");
        }
        assert_eq!(terms.judge(3, 2048, 0), Ok((Action::Discard, (0, 1 << 20))), "no bytes move");
        assert_eq!(terms.judge(3, 2056, 0), Err(libc::EIO));
    }

    #[test]
    fn flags_say_what_is_stable_and_what_stays_allocated() {
        let terms = terms();
        let action = |op_flags| terms.judge(op_flags, 8, 0).map(|asked| asked.0);
        assert_eq!(action(1 | FUA), Ok(Action::Write { fua: true }));
        assert_eq!(action(5), Ok(Action::WriteZeroes { fua: false, unmap: true }));
        assert_eq!(action(5 | FUA | NO_UNMAP), Ok(Action::WriteZeroes { fua: true, unmap: false }));
        assert_eq!(action(2), Ok(Action::Flush));
        assert_eq!(action(4), Err(libc::EOPNOTSUPP), "WRITE_SAME");
    }

    #[test]
    fn who_may_not_write_reads_and_flushes() {
        let terms = Terms { read_only: true, ..terms() };
        let action = |op| terms.judge(op, 8, 0).map(|asked| asked.0);
        assert_eq!([action(0), action(2)], [Ok(Action::Read), Ok(Action::Flush)]);
        assert_eq!([action(1), action(3), action(5)], [Err(libc::EROFS); 3]);
    }

    #[test]
    fn commands_have_the_numbers_of_the_drivers_header() {
        assert_eq!((FETCH, COMMIT_AND_FETCH), (0xc010_7520, 0xc010_7521));
    }
}
