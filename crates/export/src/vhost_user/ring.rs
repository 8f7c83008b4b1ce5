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

#[cfg(test)]
mod tests {
    use super::super::{
        disk::disk,
        inflight::Inflight,
        request::{Action, Malformed::*},
    };
    use super::*;

    const SIZE: u16 = 4;
    const AVAILABLE: u64 = 64;
    const USED: u64 = 80;
    /// Headers: of a read of sector 8, and of a flush.
    const READ: u64 = 0x1000;
    const FLUSH: u64 = 0x1010;
    const DATA: u64 = 0x2000;
    const STATUS: u64 = 0x3000;
    const NEXT: u16 = 1;
    const WRITABLE: u16 = 2;

    /// A guest: its memory, and what it has offered.
    struct Guest {
        memory: Arc<GuestMemoryMmap>,
        offered: u16,
    }

    impl Guest {
        fn new() -> Self {
            let ranges = [(GuestAddress(0), 0x4000)];
            let memory = Arc::new(GuestMemoryMmap::from_ranges(&ranges).unwrap());
            memory.write_obj(8u64, GuestAddress(READ + 8)).unwrap();
            memory.write_obj(4u32, GuestAddress(FLUSH)).unwrap();
            Self { memory, offered: 0 }
        }

        fn ring(&self, record: Option<Record>) -> Ring {
            let event_idx = true;
            let place = Place {
                size: SIZE,
                descriptors: 0,
                available: AVAILABLE,
                used: USED,
                base: 0,
                event_idx,
            };
            Ring::new(&place, self.memory.clone(), record).unwrap()
        }

        fn describe(&self, nth: u16, at: u64, len: u32, flags: u16, next: u16) {
            let to = u64::from(nth) * 16;
            self.memory.write_obj(at, GuestAddress(to)).unwrap();
            self.memory.write_obj(len, GuestAddress(to + 8)).unwrap();
            self.memory.write_obj(flags, GuestAddress(to + 12)).unwrap();
            self.memory.write_obj(next, GuestAddress(to + 14)).unwrap();
        }

        fn offer(&mut self, head: u16) {
            let slot = AVAILABLE + 4 + 2 * u64::from(self.offered % SIZE);
            self.memory.write_obj(head, GuestAddress(slot)).unwrap();
            self.offered = self.offered.wrapping_add(1);
            self.memory.write_obj(self.offered, GuestAddress(AVAILABLE + 2)).unwrap();
        }

        /// A read of 512 bytes from descriptor 0 on.
        fn describe_read(&self) {
            self.describe(0, READ, 16, NEXT, 1);
            self.describe(1, DATA, 512, NEXT | WRITABLE, 2);
            self.describe(2, STATUS, 1, WRITABLE, 0);
        }

        fn malformed(mut self) -> super::super::request::Malformed {
            self.offer(0);
            match self.ring(None).take(&disk()) {
                Err(RingError::Request(why)) => why,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_request_is_read_and_given_back() {
        let mut guest = Guest::new();
        let mut ring = guest.ring(None);
        assert!(ring.take(&disk()).unwrap().is_none());
        guest.describe_read();
        guest.offer(0);
        let request = ring.take(&disk()).unwrap().unwrap();
        assert_eq!((request.action, request.data.len()), (Ok(Action::Read(4096)), 512));
        guest.memory.write_obj(9u8, GuestAddress(STATUS)).unwrap();
        ring.give(&request, Status::Ok).unwrap();
        let told: u32 = guest.memory.read_obj(GuestAddress(USED + 8)).unwrap();
        let status: u8 = guest.memory.read_obj(GuestAddress(STATUS)).unwrap();
        assert_eq!((told, status, ring.base()), (513, 0, 1));
    }

    #[test]
    fn chains_that_make_no_sense_are_refused() {
        let changed = |change: &dyn Fn(&Guest)| {
            let guest = Guest::new();
            guest.describe_read();
            change(&guest);
            guest.malformed()
        };
        assert_eq!(changed(&|it| it.describe(2, STATUS, 1, NEXT | WRITABLE, 1)), NoEnd, "a circle");
        assert_eq!(
            changed(&|it| it.describe(1, DATA, 512, NEXT | WRITABLE, 9)),
            NoEnd,
            "no such descriptor"
        );
        assert_eq!(
            changed(&|it| it.describe(1, 0x3fff, 2, WRITABLE, 0)),
            NoMemory { at: 0x3fff, len: 2 }
        );
        assert_eq!(
            changed(&|it| it.describe(1, u64::MAX, 2, WRITABLE, 0)),
            NoMemory { at: u64::MAX, len: 2 }
        );
        assert_eq!(
            changed(&|it| it.describe(1, DATA, 1 << 31, WRITABLE, 0)),
            NoMemory { at: DATA, len: 1 << 31 }
        );
        assert_eq!(changed(&|it| it.describe(2, STATUS, 1, 0, 0)), Order);
        assert_eq!(changed(&|it| it.describe(0, READ, 15, NEXT, 1)), NoHeader);
        assert_eq!(changed(&|it| it.describe(0, READ, 16, 0, 0)), NoStatus);
    }

    #[test]
    fn a_guest_has_no_more_under_way_than_its_ring_has_room_for() {
        let mut guest = Guest::new();
        guest.describe(0, FLUSH, 16, NEXT, 1);
        guest.describe(1, STATUS, 1, WRITABLE, 0);
        let mut ring = guest.ring(None);
        let mut running = Vec::new();
        for _ in 0..3 * SIZE {
            guest.offer(0);
            running.extend(ring.take(&disk()).unwrap());
        }
        assert_eq!(running.len(), usize::from(SIZE));
        assert!(ring.is_full() && ring.has_more());
        ring.give(&running[0], Status::Ok).unwrap();
        let refused = ring.take(&disk());
        assert!(
            matches!(refused, Err(RingError::Index)),
            "it offered more than it can: {refused:?}"
        );
    }

    #[test]
    fn what_was_under_way_is_taken_again_first() {
        let file = Inflight::file(Inflight::bytes(1, SIZE)).unwrap();
        let inflight = Inflight::map(file, 0, 1, SIZE).unwrap();
        let mut guest = Guest::new();
        guest.describe_read();
        guest.describe(3, FLUSH, 16, NEXT, 2);
        let mut ring = guest.ring(inflight.queue(0, SIZE));
        guest.offer(0);
        guest.offer(3);
        let first = ring.take(&disk()).unwrap().unwrap();
        let second = ring.take(&disk()).unwrap().unwrap();
        assert_eq!((first.head, second.head), (0, 3));
        ring.give(&second, Status::Ok).unwrap();
        drop(ring);
        // The slot of the first may hold another by now.
        guest.offer(3);
        guest.offer(3);
        let mut ring = guest.ring(inflight.queue(0, SIZE));
        let heads: Vec<u16> = (0..3).map(|_| ring.take(&disk()).unwrap().unwrap().head).collect();
        assert_eq!((heads, ring.base()), (vec![0, 3, 3], 4));
    }

    #[test]
    fn notices_go_both_ways_when_the_other_has_asked_for_them() {
        const USED_EVENT: u64 = AVAILABLE + 4 + 2 * SIZE as u64;
        const AVAILABLE_EVENT: u64 = USED + 4 + 8 * SIZE as u64;
        let mut guest = Guest::new();
        guest.describe(0, FLUSH, 16, NEXT, 1);
        guest.describe(1, STATUS, 1, WRITABLE, 0);
        let mut ring = guest.ring(None);
        guest.memory.write_obj(1u16, GuestAddress(USED_EVENT)).unwrap();
        for (count, wants) in [(1, false), (2, true), (3, false)] {
            guest.offer(0);
            assert!(ring.await_more().unwrap(), "it has come before it was awaited");
            let request = ring.take(&disk()).unwrap().unwrap();
            assert!(!ring.await_more().unwrap());
            let awaited: u16 = guest.memory.read_obj(GuestAddress(AVAILABLE_EVENT)).unwrap();
            assert_eq!(awaited, count);
            ring.give(&request, Status::Ok).unwrap();
            assert_eq!(ring.wants_notice().unwrap(), wants, "it asked for the second");
            assert!(!ring.wants_notice().unwrap(), "once");
        }
    }

    #[test]
    fn a_ring_lies_in_the_guests_memory() {
        let guest = Guest::new();
        let good =
            Place { size: 4, descriptors: 0, available: 64, used: 80, base: 0, event_idx: true };
        for place in [
            Place { size: 0, ..good },
            Place { size: 3, ..good },
            Place { size: 2048, ..good },
            Place { descriptors: 0x3fd0, ..good },
            Place { descriptors: 8, ..good },
            Place { used: u64::MAX - 3, ..good },
            Place { available: 0x4000, ..good },
        ] {
            let made = Ring::new(&place, guest.memory.clone(), None);
            assert!(matches!(made, Err(RingError::Place)), "{place:?}");
        }
    }
}
