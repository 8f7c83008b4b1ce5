//! Any memory of a guest, with a ring in it, changed while its requests are taken and given back: no panic, nothing outside
//! of the disk or the memory, no more under way than the ring has room for, and an end.
//!
//! Input: the ring's size, how far it was taken, what is offered, three bytes for the order of things; then the guest's
//! memory: descriptors, available ring, used ring, and whatever comes.

#![no_main]

use lapstrake_export::vhost_user::request::{Action, Request, Status};
use lapstrake_export::vhost_user::ring::{Place, Ring};
use lapstrake_export::vhost_user::{Disk, SERIAL_BYTES};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

const MIB: u64 = 1 << 20;
/// The guest's memory has a hole.
const RANGES: [(GuestAddress, usize); 2] =
    [(GuestAddress(0), 32 << 10), (GuestAddress(64 << 10), 32 << 10)];
const TURNS: usize = 64;

fuzz_target!(|data: &[u8]| {
    let [size, base, offered, order @ ..] = data else { return };
    let Some((order, guest)) = order.split_first_chunk::<3>() else { return };
    let size = 1u16 << (size % 8);
    let memory = Arc::new(GuestMemoryMmap::from_ranges(&RANGES).expect("memory"));
    let (low, high) = guest.split_at(guest.len().min(32 << 10));
    memory.write_slice(low, GuestAddress(0)).expect("it fits");
    let _ = memory.write_slice(&high[..high.len().min(32 << 10)], GuestAddress(64 << 10));
    let available = u64::from(size) * 16;
    let used = (available + 6 + 2 * u64::from(size)).next_multiple_of(4);
    let base = u16::from(*base);
    let place = Place { size, descriptors: 0, available, used, base, event_idx: order[0] & 1 != 0 };
    let mut index = base.wrapping_add(u16::from(*offered));
    memory.write_obj(index, GuestAddress(available + 2)).expect("it is there");
    let disk = Disk {
        size: MIB.into(),
        block_bytes: 512 << (order[0] >> 6),
        chunk_bytes: 0,
        row_bytes: 0,
        read_only: order[0] & 2 != 0,
        serial: [7; SERIAL_BYTES],
        lending: false.into(),
    };
    let mut ring = Ring::new(&place, memory.clone(), None).expect("it lies in the memory");
    let mut running = Vec::new();
    for turn in 0..TURNS {
        while let Ok(Some(request)) = ring.take(&disk) {
            check(&disk, &request);
            running.push(request);
            assert!(running.len() <= usize::from(size));
        }
        assert!(ring.await_more().is_ok() && ring.wants_notice().is_ok());
        if running.is_empty() {
            return;
        }
        let nth = usize::from(order[1]).wrapping_mul(turn) % running.len();
        if ring.give(&running.swap_remove(nth), Status::Ok).is_err() {
            return;
        }
        // The guest offers more, and changes its mind about what it has offered.
        index = index.wrapping_add(u16::from(order[2] & 3));
        memory.write_obj(index, GuestAddress(available + 2)).expect("it is there");
        let at = GuestAddress(u64::from(order[2]) * 16 % available);
        memory.write_obj(order[1].wrapping_add(turn as u8), at).expect("it is there");
    }
});

/// What is shown is right, and its memory can be read and filled.
fn check(disk: &Disk, request: &Request) {
    let len = request.data.len() as u64;
    let range = match request.action {
        Ok(Action::Read(offset)) => Some((offset, len)),
        Ok(Action::Write(offset)) => Some((offset, len)),
        Ok(Action::Discard(offset, len) | Action::WriteZeroes { offset, len, .. }) => {
            Some((offset, len))
        }
        Ok(Action::GetId) => {
            assert_eq!(request.data.len(), SERIAL_BYTES);
            None
        }
        _ => None,
    };
    if let Some((offset, len)) = range {
        let block = u64::from(disk.block_bytes);
        assert!(len > 0 && offset + len <= disk.size.bytes() && (offset | len) % block == 0);
        let writes = !matches!(request.action, Ok(Action::Read(_)));
        assert!(!(writes && disk.read_only));
    }
    if matches!(request.action, Ok(Action::Read(_) | Action::Write(_) | Action::GetId)) {
        let mut copy = vec![0; request.data.len()];
        // SAFETY: as long as the request's memory, which is mapped.
        unsafe {
            request.data.copy_to(copy.as_mut_ptr());
            request.data.copy_from(copy.as_ptr());
        }
    }
}
