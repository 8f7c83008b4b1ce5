//! Promise: a machine that has the array as its disk hears of another size, and can use just that from then on; also one
//! whose driver knows little is served rightly. The monitor is the front end of vhost's own; a ring of one request at a
//! time is the guest.

use crate::support::{BOUND, MIB, Rig, Server, until};
use lapstrake_export::vhost_user::{Disk, SERIAL_BYTES, VhostUser};
use lapstrake_geometry::Level;
use lapstrake_host::{Command, MemberState, ReshapeWish, ResizeWish, WantedSize};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::tempfile;
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use vhost::vhost_user::{
    Frontend, FrontendReqHandler, VhostUserFrontend, VhostUserFrontendReqHandler,
};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::virtio_blk::VIRTIO_BLK_F_FLUSH;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

const MEMORY: usize = 64 << 10;
const RING: u16 = 4;
const AVAILABLE: u64 = 64;
const USED: u64 = 80;
const AVAILABLE_EVENT: u64 = USED + 4 + 8 * RING as u64;
const PAGE: usize = 4096;
const HEADER: u64 = 0x1000;
const DATA: u64 = 0x2000;
const STATUS: u64 = 0x3000;
const NEXT: u16 = 1;
const WRITABLE: u16 = 2;
const READ: u32 = 0;
const WRITE: u32 = 1;
const WRITE_ZEROES: u32 = 13;
const IO_ERROR: u8 = 1;

/// Counts what the monitor is told.
#[derive(Default)]
struct Ears(AtomicU64);

impl VhostUserFrontendReqHandler for Ears {
    fn handle_config_change(&self) -> io::Result<u64> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(0)
    }
}

/// A monitor with its machine's memory.
struct Monitor {
    socket: Frontend,
    channel: FrontendReqHandler<Ears>,
    ears: Arc<Ears>,
    memory: GuestMemoryMmap,
    kick: EventFd,
    offered: u16,
}

impl Monitor {
    /// Comes with a driver that does without these features, and has not read how large its disk is.
    fn connect(socket: &PathBuf, without: u64) -> Self {
        let mut socket = Frontend::connect(socket, 1).expect("is let in");
        let offered = socket.get_features().expect("features");
        assert_eq!(offered & without, without);
        let features = offered & !without;
        socket.set_owner().expect("is well");
        // With the offer of features of the protocol, which guests know nothing of.
        socket.set_features(features).expect("is well");
        let offered = socket.get_protocol_features().expect("features");
        let wanted = VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::REPLY_ACK;
        assert!(offered.contains(wanted), "{offered:?}");
        assert_ne!(features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits(), 0);
        socket.set_protocol_features(wanted).expect("is well");
        let ears = Arc::new(Ears::default());
        let mut channel = FrontendReqHandler::new(ears.clone()).expect("sockets");
        channel.set_reply_ack_flag(true);
        socket.set_backend_request_fd(&channel.get_tx_raw_fd()).expect("is well");
        let file = tempfile().expect("a file");
        file.set_len(MEMORY as u64).expect("room");
        let range = (GuestAddress(0), MEMORY, Some(FileOffset::new(file, 0)));
        let memory = GuestMemoryMmap::from_ranges_with_files([range]).expect("memory");
        let kick = EventFd::new(0).expect("an eventfd");
        Self { socket, channel, ears, memory, kick, offered: 0 }
    }

    /// Its machine's driver begins.
    fn start(&mut self) {
        let region = self.memory.iter().next().expect("one");
        let info = VhostUserMemoryRegionInfo::from_guest_region(region).expect("has a file");
        self.socket.set_mem_table(&[info]).expect("is well");
        self.socket.set_vring_num(0, RING).expect("is well");
        let start = region.as_ptr() as u64;
        let place = VringConfigData {
            queue_max_size: RING,
            queue_size: RING,
            flags: 0,
            desc_table_addr: start,
            used_ring_addr: start + USED,
            avail_ring_addr: start + AVAILABLE,
            log_addr: None,
        };
        self.socket.set_vring_addr(0, &place).expect("is well");
        self.socket.set_vring_base(0, 0).expect("is well");
        self.socket.set_vring_kick(0, &self.kick).expect("is well");
        self.socket.set_vring_enable(0, true).expect("is well");
    }

    /// The size that is told, bytes.
    fn bytes(&mut self) -> u64 {
        let flags = VhostUserConfigFlags::WRITABLE;
        let (_, space) = self.socket.get_config(0, 8, flags, &[0; 8]).expect("is told");
        u64::from_le_bytes(space.try_into().expect("eight bytes")) * 512
    }

    /// Waits until it is told that something has changed.
    fn hear(&mut self) {
        let fd = self.channel.as_raw_fd();
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one live entry.
        let ready = unsafe { libc::poll(&raw mut poll, 1, BOUND.as_millis() as i32) };
        assert_eq!(ready, 1, "it is told");
        let before = self.ears.0.load(Ordering::Relaxed);
        self.channel.handle_request().expect("a message of the protocol");
        assert_eq!(self.ears.0.load(Ordering::Relaxed), before + 1);
    }

    /// How a read of the block before this byte ends.
    fn read_before(&mut self, end: u64) -> u8 {
        self.request(READ, end / 512 - 1, WRITABLE, 512)
    }

    /// How zeroes for the first block end.
    fn zero(&mut self) -> u8 {
        self.memory.write_obj(0u64, GuestAddress(DATA)).expect("memory");
        self.memory.write_obj(1u64, GuestAddress(DATA + 8)).expect("memory");
        self.request(WRITE_ZEROES, 0, 0, 16)
    }

    /// What the first page holds, of which the guest changed the memory while it was being written.
    fn write_and_change(&mut self) -> u8 {
        let fill = |monitor: &Self, byte| {
            monitor.memory.write_slice(&[byte; PAGE], GuestAddress(DATA)).expect("memory");
        };
        fill(self, 1);
        self.send(WRITE, 0, 0, PAGE as u32);
        // A notification is asked for when all that was offered is taken.
        let awaited = |memory: &GuestMemoryMmap| -> u16 {
            memory.load(GuestAddress(AVAILABLE_EVENT), Ordering::Acquire).expect("memory")
        };
        until("it is taken", || awaited(&self.memory) == self.offered);
        fill(self, 2);
        assert_eq!(self.answer(), 0);
        assert_eq!(self.request(READ, 0, WRITABLE, PAGE as u32), 0);
        self.memory.read_obj(GuestAddress(DATA)).expect("memory")
    }

    /// How a request ends that has so many bytes of data.
    fn request(&mut self, kind: u32, sector: u64, flags: u16, len: u32) -> u8 {
        self.send(kind, sector, flags, len);
        self.answer()
    }

    fn send(&mut self, kind: u32, sector: u64, flags: u16, len: u32) {
        let describe = |nth: u64, at: u64, len: u32, flags: u16, next: u16| {
            self.memory.write_obj(at, GuestAddress(nth * 16)).expect("memory");
            self.memory.write_obj(len, GuestAddress(nth * 16 + 8)).expect("memory");
            self.memory.write_obj(flags, GuestAddress(nth * 16 + 12)).expect("memory");
            self.memory.write_obj(next, GuestAddress(nth * 16 + 14)).expect("memory");
        };
        describe(0, HEADER, 16, NEXT, 1);
        describe(1, DATA, len, NEXT | flags, 2);
        describe(2, STATUS, 1, WRITABLE, 0);
        self.memory.write_obj(kind, GuestAddress(HEADER)).expect("memory");
        self.memory.write_obj(sector, GuestAddress(HEADER + 8)).expect("memory");
        self.memory.write_obj(u8::MAX, GuestAddress(STATUS)).expect("memory");
        self.offered += 1;
        self.memory.write_obj(self.offered, GuestAddress(AVAILABLE + 2)).expect("memory");
        self.kick.write(1).expect("is well");
    }

    fn answer(&mut self) -> u8 {
        let used = |memory: &GuestMemoryMmap| -> u16 {
            memory.load(GuestAddress(USED + 2), Ordering::Acquire).expect("memory")
        };
        until("an answer", || used(&self.memory) == self.offered);
        self.memory.read_obj(GuestAddress(STATUS)).expect("memory")
    }
}

/// A mirror as a disk, at this socket; with faults of its members.
fn serve(faults: &str) -> (Server, VhostUser, PathBuf) {
    as_disk(Rig { faults: faults.into(), ..Rig::new(Level::Raid1, 2) }.serve())
}

fn as_disk(server: Server) -> (Server, VhostUser, PathBuf) {
    let disk = Disk {
        size: server.array().size(),
        block_bytes: 512,
        chunk_bytes: 0,
        row_bytes: 0,
        read_only: false,
        serial: [b'x'; SERIAL_BYTES],
        lending: server.array().lending(),
    };
    let socket = server.dir.path().join("disk");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let door = VhostUser::start(server.array().handle(), disk, listener).expect("starts");
    (server, door, socket)
}

fn resize(server: &Server, size: WantedSize) {
    change(server, ResizeWish::Usable(size));
}

fn change(server: &Server, wish: ResizeWish) {
    server.array().handle().command(Command::Resize(wish)).expect("it can");
}

#[test]
fn a_machine_hears_of_another_size_and_can_use_just_that() {
    let (mut server, door, socket) = serve("");
    let whole = server.bytes();
    let mut monitor = Monitor::connect(&socket, 0);
    assert_eq!(monitor.bytes(), whole);
    monitor.start();
    assert_eq!(monitor.read_before(whole), 0);

    resize(&server, WantedSize::Bytes(8 * MIB));
    monitor.hear();
    assert_eq!(monitor.bytes(), 8 * MIB);
    assert_eq!(monitor.read_before(8 * MIB), 0);
    assert_eq!(monitor.read_before(8 * MIB + 512), IO_ERROR);

    resize(&server, WantedSize::Max);
    monitor.hear();
    assert_eq!(monitor.bytes(), whole);
    assert_eq!(monitor.read_before(whole), 0);
    assert_eq!(monitor.read_before(whole + 512), IO_ERROR);
    drop(door);
    assert!(server.stop());
}

#[test]
fn a_monitor_that_has_not_read_the_size_is_told_when_its_machine_starts() {
    let (mut server, door, socket) = serve("");
    for round in 1..4 {
        // It goes with what it was told unread.
        let mut monitor = Monitor::connect(&socket, 0);
        resize(&server, WantedSize::Bytes(round * MIB));
        monitor.start();
        monitor.hear();
        assert_eq!(monitor.bytes(), round * MIB);
        resize(&server, WantedSize::Max);
    }
    drop(door);
    assert!(server.stop());
}

#[test]
fn what_a_driver_that_cannot_flush_is_answered_is_stable() {
    for (without, is_stable) in [(0, false), (1 << VIRTIO_BLK_F_FLUSH, true)] {
        let (mut server, door, socket) = serve("member=1,op=flush,errno=EIO");
        let mut monitor = Monitor::connect(&socket, without);
        monitor.start();
        assert_eq!(monitor.zero(), 0);
        let failed = |server: &Server| server.detail().members[1].state != MemberState::InSync;
        assert_eq!(failed(&server), is_stable, "a member that cannot flush fails at the first");
        drop((monitor, door));
        server.stop();
    }
}

#[test]
fn a_driver_that_knows_no_event_index_and_no_indirect_descriptors_is_served() {
    let (mut server, door, socket) = serve("");
    let without = 1 << VIRTIO_RING_F_EVENT_IDX | 1 << VIRTIO_RING_F_INDIRECT_DESC;
    let mut monitor = Monitor::connect(&socket, without);
    monitor.start();
    for nth in 1..10 {
        assert_eq!(monitor.read_before(nth * 512), 0);
    }
    drop(door);
    assert!(server.stop());
}

/// What would be lost: where redundancy is computed, blocks that are reconstructed from a stripe whose parity is of other data
/// than was written.
#[test]
fn a_guests_own_memory_is_used_only_until_the_array_gets_another_geometry() {
    let faults = "member=0,op=write,range=1M+4K,delay=1s".into();
    let rig = Rig { shards: 2, faults, ..Rig::new(Level::Raid0, 2) };
    let (mut server, door, socket) = as_disk(rig.serve());
    let mut monitor = Monitor::connect(&socket, 0);
    monitor.start();
    assert_eq!(monitor.write_and_change(), 2, "what is written is the guest's own memory");
    let chunk = Some(32 << 10);
    change(&server, ResizeWish::Reshape(ReshapeWish { chunk, ..ReshapeWish::default() }));
    assert_eq!(monitor.write_and_change(), 1, "or a copy");
    drop(door);
    server.stop();
}
