//! A world of memory: member I/O is a copy, done when it is asked for. What is left is the
//! engine's own work, the parity work, and the copies to and from members.

use lapstrake_engine::*;
use lapstrake_geometry::{Config, Geometry, Sector, Sectors, Slot};
use smallvec::SmallVec;
use std::collections::VecDeque;

const SCRATCH: BufId = BufId(0);
/// md's default stripe cache: 256 pages for each member.
const CACHE_PAGES: u32 = 256;

/// Memory that threads may share: members, of which each shard touches its own part.
#[derive(Clone, Copy)]
pub struct Bytes {
    start: *mut u8,
}

// SAFETY: shards are dealt disjoint parts of the array, which lie on disjoint parts of members.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

impl Bytes {
    /// `len` touched bytes, never given back: a benchmark ends soon.
    pub fn new(len: usize) -> Self {
        const HUGE: usize = 2 << 20;
        let bytes = Box::leak(vec![0u8; len + HUGE].into_boxed_slice());
        let skip = bytes.as_ptr().align_offset(HUGE);
        let bytes = &mut bytes[skip..skip + len];
        // Members stand for devices: what their page table costs is not the engine's.
        // SAFETY: our own memory; only a hint.
        unsafe { libc::madvise(bytes.as_mut_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        bytes.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        Self { start: bytes.as_mut_ptr() }
    }

    fn at(self, offset: usize) -> *mut u8 {
        // SAFETY: callers stay within what was allocated.
        unsafe { self.start.add(offset) }
    }
}

/// An array of memory.
#[derive(Clone)]
pub struct Disks {
    pub geometry: Geometry,
    members: Vec<Bytes>,
}

impl Disks {
    pub fn new(config: &Config) -> Self {
        let geometry = Geometry::new(config).expect("a valid geometry");
        let len = config.component.0 as usize * 512;
        Self { geometry, members: (0..config.raid_disks).map(|_| Bytes::new(len)).collect() }
    }
}

/// One shard in its world.
pub struct World {
    shard: Shard,
    pub memory: Memory,
    pub finished: u64,
}

/// The memory of members, stripe cache and clients.
pub struct Memory {
    members: Vec<Bytes>,
    scratch: Bytes,
    zeros: Bytes,
    client: Bytes,
    done: VecDeque<IoId>,
    /// Bytes that members got from clients' own memory.
    pub straight: u64,
    /// Bytes that members got from elsewhere: parity, and copies if there were any.
    pub made: u64,
}

impl World {
    /// A shard over `disks`; members of `lost` slots are not there.
    pub fn new(disks: &Disks, lost: &[u16], client_bytes: usize) -> Self {
        let count = disks.members.len() as u16;
        let members = (0..count).map(|slot| MemberConfig {
            data_offset: Sector(0),
            slot: (!lost.contains(&slot)).then_some(Slot(slot)),
            trusted_to: FULLY_TRUSTED,
            rotational: false,
            write_mostly: false,
            bad_blocks: None,
            log: None,
        });
        let scratch_pages = CACHE_PAGES * u32::from(count);
        let shard = Shard::new(ShardConfig {
            geometry: disks.geometry.clone(),
            members: members.collect(),
            read_only: false,
            block: Sectors(1),
            in_sync_to: FULLY_TRUSTED,
            bitmap: None,
            scratch: SCRATCH,
            scratch_pages,
            log_signature: None,
            lost: Vec::new(),
            journal: None,
            behind_pages: 0,
            unsynced: None,
        });
        Self {
            shard,
            memory: Memory {
                members: disks.members.clone(),
                scratch: Bytes::new(scratch_pages as usize * 4096),
                zeros: Bytes::new(ZERO_BYTES as usize),
                client: Bytes::new(client_bytes),
                done: VecDeque::new(),
                straight: 0,
                made: 0,
            },
            finished: 0,
        }
    }

    /// Sends a request whose memory begins at `place` of the client's.
    pub fn send(&mut self, write: bool, place: u32, sector: u64, len: u64) {
        let buf = Buf { id: BufId(1), offset: place };
        let kind = if write {
            RequestKind::Write { buf, fua: false, followed: false }
        } else {
            RequestKind::Read(buf)
        };
        let id = RequestId(u64::from(place));
        let request = Request { id, kind, sector: Sector(sector), len: Sectors(len) };
        self.shard.handle_request(Time(0), request);
    }

    /// Does all that follows; `replied` gets the place of each finished request.
    pub fn run(&mut self, mut replied: impl FnMut(u32)) {
        loop {
            self.carry_out(&mut replied);
            while let Some(notice) = self.shard.poll_notice() {
                assert_eq!(notice, Notice::NeedActive);
                self.shard.handle_order(Time(0), &Order::Active);
            }
            if self.memory.done.is_empty() {
                self.shard.hurry();
                self.carry_out(&mut replied);
            }
            let Some(id) = self.memory.done.pop_front() else { return };
            self.shard.handle_completion(Time(0), id, true);
        }
    }

    fn carry_out(&mut self, replied: &mut impl FnMut(u32)) {
        self.shard.carry_out(&mut self.memory, |_, _, ended| match ended {
            Ended::Replied(reply) => {
                assert_eq!(reply.result, Ok(()));
                self.finished += 1;
                replied(reply.id.0 as u32);
            }
            Ended::Declined(_) => unreachable!("there is one shard"),
        });
    }
}

impl lapstrake_engine::World for Memory {
    fn now(&self) -> Time {
        Time(0)
    }

    fn start_io(&mut self, io: MemberIo) {
        let mut at = io.sector.0 as usize * 512;
        for piece in &io.pieces {
            let member = self.members[usize::from(io.member.0)].at(at);
            let memory = self.ptr(piece.buf);
            let len = piece.len as usize;
            if io.kind == IoKind::Read {
                // SAFETY: both runs are live, `len` long and apart.
                unsafe { memory.copy_from_nonoverlapping(member, len) };
            } else {
                // SAFETY: as above.
                unsafe { member.copy_from_nonoverlapping(memory, len) };
                match piece.buf.id {
                    SCRATCH => self.made += u64::from(piece.len),
                    _ => self.straight += u64::from(piece.len),
                }
            }
            at += len;
        }
        self.done.push_back(io.id);
    }

    fn seal(&mut self, _: &Seal) {
        unreachable!("nothing is logged");
    }

    fn compare(&mut self, _: &Comparison) -> Vec<Finding> {
        unreachable!("nothing is checked");
    }

    fn compute(&mut self, compute: &Compute) {
        let kernels = lapstrake_parity::kernels();
        match compute {
            Compute::Xor { dst, srcs, len } => {
                kernels.xor(self.out(*dst, *len), &self.list(srcs, *len));
            }
            Compute::XorInto { dst, srcs, len } => {
                kernels.xor_into(self.out(*dst, *len), &self.list(srcs, *len));
            }
            Compute::Pq { p, q, data, len } => {
                kernels.pq(self.out(*p, *len), self.out(*q, *len), &self.list(data, *len));
            }
            Compute::MulInto { dst, coefs, srcs, len } => {
                kernels.mul_add(self.out(*dst, *len), coefs, &self.list(srcs, *len));
            }
            Compute::Mul { dsts, rows, srcs, len } => {
                let mut outs: SmallVec<[&mut [u8]; 2]> =
                    dsts.iter().map(|&dst| self.out(dst, *len)).collect();
                let rows: SmallVec<[&[u8]; 2]> = rows.iter().map(|row| row.as_slice()).collect();
                kernels.mul(&mut outs, &rows, &self.list(srcs, *len));
            }
        }
    }
}

impl Memory {
    fn ptr(&self, buf: Buf) -> *mut u8 {
        let base = match buf.id {
            BufId::ZERO => self.zeros,
            SCRATCH => self.scratch,
            _ => self.client,
        };
        base.at(buf.offset as usize)
    }

    fn list(&self, bufs: &[Buf], len: u32) -> SmallVec<[&'static [u8]; 16]> {
        // SAFETY: live, `len` long, and not written during the work.
        bufs.iter()
            .map(|&buf| unsafe { std::slice::from_raw_parts(self.ptr(buf), len as usize) })
            .collect()
    }

    fn out(&self, buf: Buf, len: u32) -> &'static mut [u8] {
        // SAFETY: as in `list`; results are apart from sources and each other.
        unsafe { std::slice::from_raw_parts_mut(self.ptr(buf), len as usize) }
    }
}
