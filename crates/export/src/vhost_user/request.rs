//! What lies in a ring: descriptor chains of a guest, read as requests of virtio-blk.
//!
//! A guest may write anything there, at any time. So each address is looked up in its memory, a chain has at most as many
//! descriptors as its ring, nothing is read twice, and what a request is about is decided by the copy of its header.
//! A request that is shown is right: within the disk, in whole blocks, with as many bytes of memory as it moves.
//!
//! The guest's memory is reached by raw pointers only, since the guest uses it too.

use super::disk::{Disk, SECTOR, SERIAL_BYTES, ZEROES_MAX};
use smallvec::SmallVec;
use std::ops::Deref;
use virtio_bindings::virtio_blk::*;
use virtio_queue::DescriptorChain;
use vm_memory::{GuestMemoryBackend, GuestMemoryMmap};

/// Bytes that one request may move.
const DATA_MAX: usize = 32 << 20;
const HEADER_BYTES: usize = 16;
/// `struct virtio_blk_discard_write_zeroes`.
const RANGE_BYTES: usize = 16;

/// Runs of a guest's memory that follow each other in a request.
#[derive(Debug, Default)]
pub struct Segments {
    runs: SmallVec<[(*mut u8, usize); 2]>,
    len: usize,
}

// SAFETY: these are addresses; each use is an unsafe act of its own.
unsafe impl Send for Segments {}

impl Segments {
    /// Bytes of all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Their start, if they are one run that starts at a page.
    #[must_use]
    pub fn one_run(&self) -> Option<*mut u8> {
        match self.runs[..] {
            [(start, _)] if start.addr().is_multiple_of(4096) => Some(start),
            _ => None,
        }
    }

    fn push(&mut self, start: *mut u8, len: usize) {
        self.len += len;
        match self.runs.last_mut() {
            _ if len == 0 => {}
            Some((last, bytes)) if last.wrapping_add(*bytes) == start => *bytes += len,
            _ => self.runs.push((start, len)),
        }
    }

    /// Takes bytes off the front.
    fn take_front(&mut self, bytes: &mut [u8]) -> Option<()> {
        if self.len < bytes.len() {
            return None;
        }
        let mut done = 0;
        while done < bytes.len() {
            let (start, len) = &mut self.runs[0];
            let count = (*len).min(bytes.len() - done);
            // SAFETY: mapped memory of the guest, which `gather` looked up.
            unsafe { start.copy_to_nonoverlapping(bytes[done..].as_mut_ptr(), count) };
            (*start, *len) = (start.wrapping_add(count), *len - count);
            done += count;
            if *len == 0 {
                self.runs.remove(0);
            }
        }
        self.len -= bytes.len();
        Some(())
    }

    /// Takes the last byte off.
    fn take_last(&mut self) -> Option<*mut u8> {
        let (start, len) = self.runs.last_mut()?;
        *len -= 1;
        let last = start.wrapping_add(*len);
        if *len == 0 {
            self.runs.pop();
        }
        self.len -= 1;
        Some(last)
    }

    /// Copies all of it to `to`.
    ///
    /// # Safety
    /// There is room for [`Segments::len`] bytes, and the guest's memory is mapped.
    pub unsafe fn copy_to(&self, mut to: *mut u8) {
        for &(start, len) in &self.runs {
            // SAFETY: the caller's.
            unsafe { start.copy_to_nonoverlapping(to, len) };
            to = to.wrapping_add(len);
        }
    }

    /// Fills it from `from`.
    ///
    /// # Safety
    /// As [`Segments::copy_to`].
    pub unsafe fn copy_from(&self, mut from: *const u8) {
        for &(start, len) in &self.runs {
            // SAFETY: the caller's.
            unsafe { from.copy_to_nonoverlapping(start, len) };
            from = from.wrapping_add(len);
        }
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Fill the memory from here on.
    Read(u64),
    /// Write the memory here.
    Write(u64),
    /// Make durable what was answered.
    Flush,
    /// These bytes are not needed any more.
    Discard(u64, u64),
    /// These bytes read as zeroes afterwards.
    WriteZeroes {
        /// The first.
        offset: u64,
        /// How many.
        len: u64,
        /// Space may be given back.
        unmap: bool,
    },
    /// Put the serial number into the memory.
    GetId,
    /// It is about nothing.
    Nothing,
}

/// How a request ended, as the guest reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// It is done.
    Ok = VIRTIO_BLK_S_OK as u8,
    /// It failed, or cannot be meant.
    IoError = VIRTIO_BLK_S_IOERR as u8,
    /// Not offered.
    Unsupported = VIRTIO_BLK_S_UNSUPP as u8,
}

/// One request, checked.
#[derive(Debug)]
pub struct Request {
    /// Its name in the ring.
    pub head: u16,
    /// What is to be done, or how it has ended already.
    pub action: Result<Action, Status>,
    /// The memory of a read, a write or GET_ID.
    pub data: Segments,
    status: *mut u8,
}

// SAFETY: as of `Segments`.
unsafe impl Send for Request {}

/// Why a chain is no request, and what is in the ring behind it cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It goes in a circle, or has more parts than its ring, or goes on where there is none.
    #[error(
        "it has more descriptors than its ring, goes in a circle, or goes on outside its table"
    )]
    NoEnd,
    /// A part is not in the guest's memory.
    #[error("it names {len} bytes at {at:#x}, which are not the guest's memory")]
    NoMemory {
        /// The guest's address.
        at: u64,
        /// Bytes there.
        len: u32,
    },
    /// What the device reads comes after what it writes.
    #[error("it has a readable descriptor behind a writable one")]
    Order,
    /// Nothing says what is to be done.
    #[error("it has no whole header")]
    NoHeader,
    /// There is no byte to say how it ended.
    #[error("it has no byte for its status")]
    NoStatus,
}

impl Request {
    /// Reads a chain of a ring of `size` descriptors. It is valid as long as the memory that it lies in.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read<M>(disk: &Disk, size: u16, chain: DescriptorChain<M>) -> Result<Self, Malformed>
    where
        M: Deref<Target = GuestMemoryMmap>,
    {
        let (head, (mut readable, mut writable)) = (chain.head_index(), gather(size, chain)?);
        let mut header = [0; HEADER_BYTES];
        readable.take_front(&mut header).ok_or(Malformed::NoHeader)?;
        let status = writable.take_last().ok_or(Malformed::NoStatus)?;
        let (kind, sector) = (le32(&header[..4]), le64(&header[8..]));
        let action = judge(disk, kind, sector, &mut readable, &writable);
        let data = if kind == VIRTIO_BLK_T_OUT { readable } else { writable };
        Ok(Self { head, action, data, status })
    }

    /// Tells the guest how it ended; the bytes that were written to its memory.
    ///
    /// # Safety
    /// The guest's memory is mapped still.
    pub unsafe fn end(&self, status: Status) -> u32 {
        // SAFETY: within the guest's memory, which the caller keeps mapped.
        unsafe { self.status.write_volatile(status as u8) };
        let filled = match (self.action, status) {
            (Ok(Action::Read(_) | Action::GetId), Status::Ok) => self.data.len(),
            _ => 0,
        };
        filled as u32 + 1
    }
}

/// A chain's readable and writable memory.
fn gather<M>(size: u16, mut chain: DescriptorChain<M>) -> Result<(Segments, Segments), Malformed>
where
    M: Deref<Target = GuestMemoryMmap>,
{
    let (mut readable, mut writable) = (Segments::default(), Segments::default());
    let (mut has_writable, mut goes_on) = (false, false);
    for _ in 0..=size {
        let Some(part) = chain.next() else {
            return if goes_on { Err(Malformed::NoEnd) } else { Ok((readable, writable)) };
        };
        goes_on = part.has_next();
        if has_writable && !part.is_write_only() {
            return Err(Malformed::Order);
        }
        has_writable = part.is_write_only();
        let to = if has_writable { &mut writable } else { &mut readable };
        let unknown = Malformed::NoMemory { at: part.addr().0, len: part.len() };
        for slice in
            GuestMemoryBackend::get_slices(chain.memory(), part.addr(), part.len() as usize)
        {
            let slice = slice.map_err(|_| unknown)?;
            to.push(slice.ptr_guard_mut().as_ptr(), slice.len());
        }
    }
    Err(Malformed::NoEnd)
}

fn judge(
    disk: &Disk,
    kind: u32,
    sector: u64,
    readable: &mut Segments,
    writable: &Segments,
) -> Result<Action, Status> {
    match kind {
        VIRTIO_BLK_T_IN => {
            let (offset, len) = within(disk, sector, writable.len())?;
            Ok(if len == 0 { Action::Nothing } else { Action::Read(offset) })
        }
        VIRTIO_BLK_T_OUT => {
            let (offset, len) = within(disk, sector, readable.len())?;
            may_write(disk)?;
            Ok(if len == 0 { Action::Nothing } else { Action::Write(offset) })
        }
        VIRTIO_BLK_T_FLUSH => Ok(Action::Flush),
        VIRTIO_BLK_T_GET_ID if writable.len() == SERIAL_BYTES => Ok(Action::GetId),
        VIRTIO_BLK_T_GET_ID => Err(Status::IoError),
        VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES => judge_range(disk, kind, readable),
        _ => Err(Status::Unsupported),
    }
}

fn judge_range(disk: &Disk, kind: u32, readable: &mut Segments) -> Result<Action, Status> {
    may_write(disk)?;
    let mut range = [0; RANGE_BYTES];
    // One range at a time was offered.
    if readable.len() != RANGE_BYTES || readable.take_front(&mut range).is_none() {
        return Err(Status::IoError);
    }
    let (sector, sectors, flags) = (le64(&range[..8]), le32(&range[8..12]), le32(&range[12..]));
    let unmap = flags & VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0;
    let is_discard = kind == VIRTIO_BLK_T_DISCARD;
    if flags & !VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0 || (is_discard && unmap) {
        return Err(Status::Unsupported);
    }
    let (offset, len) = in_disk(disk, sector, u64::from(sectors) * SECTOR)?;
    match () {
        () if sectors > ZEROES_MAX => Err(Status::IoError),
        () if len == 0 => Ok(Action::Nothing),
        () if is_discard => Ok(Action::Discard(offset, len)),
        () => Ok(Action::WriteZeroes { offset, len, unmap }),
    }
}

fn may_write(disk: &Disk) -> Result<(), Status> {
    if disk.read_only { Err(Status::IoError) } else { Ok(()) }
}

fn within(disk: &Disk, sector: u64, len: usize) -> Result<(u64, u64), Status> {
    if len > DATA_MAX { Err(Status::IoError) } else { in_disk(disk, sector, len as u64) }
}

/// Bytes of the disk, if they are within it and whole blocks.
fn in_disk(disk: &Disk, sector: u64, len: u64) -> Result<(u64, u64), Status> {
    let offset = sector.checked_mul(SECTOR).ok_or(Status::IoError)?;
    let is_within = offset.checked_add(len).is_some_and(|end| end <= disk.size.bytes());
    let is_whole = (offset | len) & (u64::from(disk.block_bytes) - 1) == 0;
    if is_within && is_whole { Ok((offset, len)) } else { Err(Status::IoError) }
}

fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

fn le64(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}
