//! One queue's ring in the guest's memory: requests out of it, and what they came to back into it.
//!
//! Invariants:
//! - `taken` counts the requests that were taken and not given back; it is at most the ring's size, whatever the guest
//!   says, so what a guest can have under way is bounded;
//! - each request that was taken is given back once;
//! - the ring lies in the memory that it was made with, which stays mapped as long.

use super::{
    disk::Disk,
    inflight::Record,
    request::{Malformed, Request, Status},
};
use std::sync::{Arc, atomic::Ordering};
use thiserror::Error;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{
    Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
    MmapRegion,
};

/// The longest ring: QEMU's.
pub const SIZE_MAX: u16 = 1024;

/// Where a ring lies, as it was agreed.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Descriptors, a power of two.
    pub size: u16,
    /// The guest's addresses.
    pub descriptors: u64,
    /// Of what the guest offers.
    pub available: u64,
    /// Of what it gets back.
    pub used: u64,
    /// Requests that were taken before, in all.
    pub base: u16,
    /// Notifications are asked for by index.
    pub event_idx: bool,
}

/// Why a ring cannot be used, or not any more.
#[derive(Debug, Error)]
pub enum RingError {
    /// It does not lie in the guest's memory, or not at whole addresses, or has no size.
    #[error("its ring is not in the guest's memory")]
    Place,
    /// It offers more than it can hold.
    #[error("it offers more requests than its ring has room for")]
    Index,
    /// What it offers is no request.
    #[error("a request cannot be read: {0}")]
    Request(#[from] Malformed),
}

/// See the module.
#[derive(Debug)]
pub struct Ring {
    queue: Queue,
    memory: Arc<GuestMemoryMmap>,
    taken: u16,
    record: Option<Record>,
    /// Requests that were entered into the record.
    order: u64,
    /// Offers requests anew that a server before us took and did not give back.
    again: Option<(Queue, GuestMemoryMmap)>,
}

impl Ring {
    /// A ring in the guest's memory.
    ///
    /// # Errors
    /// [`RingError::Place`].
    pub fn new(
        place: &Place,
        memory: Arc<GuestMemoryMmap>,
        record: Option<Record>,
    ) -> Result<Self, RingError> {
        let mut queue = Queue::new(SIZE_MAX).map_err(|_| RingError::Place)?;
        let placed = queue
            .try_set_size(place.size)
            .and_then(|()| queue.try_set_desc_table_address(GuestAddress(place.descriptors)))
            .and_then(|()| queue.try_set_avail_ring_address(GuestAddress(place.available)))
            .and_then(|()| queue.try_set_used_ring_address(GuestAddress(place.used)));
        queue.set_event_idx(place.event_idx);
        queue.set_next_avail(place.base);
        queue.set_ready(true);
        if placed.is_err() || !queue.is_valid(&*memory) {
            return Err(RingError::Place);
        }
        let used = queue.used_idx(&*memory, Ordering::Relaxed).map_err(|_| RingError::Place)?;
        queue.set_next_used(used.0);
        let running = record.as_ref().map(|record| record.recover(used.0)).unwrap_or_default();
        let again = if running.is_empty() { None } else { Some(offer(place, &memory, &running)?) };
        if record.is_some() {
            // The client does not know what was taken: each such request was given back, or is among these.
            queue.set_next_avail(used.0.wrapping_add(running.len() as u16));
        }
        Ok(Self { queue, memory, taken: 0, record, order: 0, again })
    }

    /// The next request, if there is one, and fewer are under way than the ring has room for.
    ///
    /// # Errors
    /// What is in the ring makes no sense: it is not to be used any more.
    pub fn take(&mut self, disk: &Disk) -> Result<Option<Request>, RingError> {
        if self.is_full() {
            return Ok(None);
        }
        let size = self.queue.size();
        let request = if let Some((queue, memory)) = &mut self.again
            && let Some(chain) = queue.iter(&*memory).map_err(|_| RingError::Index)?.next()
        {
            Request::read(disk, size, chain)?
        } else {
            let mut offered = self.queue.iter(&*self.memory).map_err(|_| RingError::Index)?;
            let Some(chain) = offered.next() else { return Ok(None) };
            Request::read(disk, size, chain)?
        };
        self.taken += 1;
        self.order += 1;
        if let Some(record) = self.record.as_ref().filter(|_| request.head < size) {
            record.begin(request.head, self.order);
        }
        Ok(Some(request))
    }

    /// Whether no more is taken before something was given back.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.taken == self.queue.size()
    }

    /// Whether the guest has offered more.
    #[must_use]
    pub fn has_more(&self) -> bool {
        let offered = self.queue.avail_idx(&*self.memory, Ordering::Acquire);
        offered.is_ok_and(|offered| offered.0 != self.queue.next_avail())
    }

    /// Gives a request back.
    ///
    /// # Errors
    /// Its head is none of the ring.
    pub fn give(&mut self, request: &Request, status: Status) -> Result<(), RingError> {
        self.taken -= 1;
        // SAFETY: the ring keeps the memory mapped.
        let written = unsafe { request.end(status) };
        let record = self.record.as_ref().filter(|_| request.head < self.queue.size());
        if let Some(record) = record {
            record.finish(request.head);
        }
        let given = self.queue.add_used(&*self.memory, request.head, written);
        if let Some(record) = record {
            record.finished(request.head, self.queue.next_used());
        }
        given.map_err(|_| RingError::Index)
    }

    /// Asks to be notified of what comes from now on; true if something has come already.
    ///
    /// # Errors
    /// Never, while the memory is there.
    pub fn await_more(&mut self) -> Result<bool, RingError> {
        self.queue.enable_notification(&*self.memory).map_err(|_| RingError::Place)
    }

    /// Spares the guest notifications while we look by ourselves.
    ///
    /// # Errors
    /// Never, while the memory is there.
    pub fn look_ourselves(&mut self) -> Result<(), RingError> {
        self.queue.disable_notification(&*self.memory).map_err(|_| RingError::Place)
    }

    /// Whether the guest wants to be notified of what it was given back since this was asked last.
    ///
    /// # Errors
    /// Never, while the memory is there.
    pub fn wants_notice(&mut self) -> Result<bool, RingError> {
        self.queue.needs_notification(&*self.memory).map_err(|_| RingError::Place)
    }

    /// Requests that were taken so far, in all, as a ring begins with when it is made anew.
    #[must_use]
    pub fn base(&self) -> u16 {
        self.queue.next_avail()
    }
}

/// A ring of our own over a queue's descriptors, which offers these. It lies behind the guest's memory, where the guest
/// cannot reach.
fn offer(
    place: &Place,
    memory: &GuestMemoryMmap,
    heads: &[u16],
) -> Result<(Queue, GuestMemoryMmap), RingError> {
    const PAGE: u64 = 4096;
    let entries = (4 + 2 * heads.len() as u64).next_multiple_of(PAGE);
    let end = memory.iter().map(|region| region.last_addr().0).max().unwrap_or(0);
    let ours = end.checked_next_multiple_of(PAGE).ok_or(RingError::Place)?;
    let mapping = MmapRegion::new(entries as usize).map_err(|_| RingError::Place)?;
    let region = GuestRegionMmap::new(mapping, GuestAddress(ours)).ok_or(RingError::Place)?;
    let all = memory.insert_region(Arc::new(region)).map_err(|_| RingError::Place)?;
    let put = |value: u16, at| all.write_obj(value.to_le(), GuestAddress(ours + at));
    let mut written = put(heads.len() as u16, 2);
    for (nth, &head) in heads.iter().enumerate() {
        written = written.and_then(|()| put(head, 4 + 2 * nth as u64));
    }
    let mut queue = Queue::new(SIZE_MAX).map_err(|_| RingError::Place)?;
    let placed = queue
        .try_set_size(place.size)
        .and_then(|()| queue.try_set_desc_table_address(GuestAddress(place.descriptors)))
        .and_then(|()| queue.try_set_avail_ring_address(GuestAddress(ours)));
    queue.set_ready(true);
    if written.is_err() || placed.is_err() {
        return Err(RingError::Place);
    }
    Ok((queue, all))
}
