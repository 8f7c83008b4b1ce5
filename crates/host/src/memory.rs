//! The bytes behind the engine's buffer handles, for one shard.
//!
//! Handle 0 is the stripe cache; every other handle names a request's memory: a run of this
//! shard's pool, or memory that somebody else lends for the time of a request (another shard's
//! client, a FUSE request). All of it is mapped, touched and, where allowed, locked before the
//! first request, so that serving never waits for the kernel to find a page.
//!
//! Invariant: memory behind a handle outlives every effect that names it, since the request
//! that brought it is answered only after they are done.

use lapstrake_device::{BufId as PoolId, IoVec, Pool, PoolStats};
use lapstrake_engine::{Buf, BufId, Compute, Piece, ZERO_BYTES};
use slab::Slab;
use smallvec::SmallVec;
use std::io;

const STRIPE_CACHE: BufId = BufId(0);

#[derive(Debug)]
struct Lent {
    start: *mut u8,
    own: Option<PoolId>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Memory {
    pool: Pool,
    scratch: PoolId,
    zeros: PoolId,
    lent: Slab<Lent>,
}

// SAFETY: the raw pointers lead into the pool, which is Send, or into memory that its lender
// keeps alive and leaves alone until the request is answered (the contract of `lend`).
unsafe impl Send for Memory {}

impl Memory {
    /// `cache_bytes` for the stripe cache and `pool_bytes` for requests.
    pub(crate) fn new(cache_bytes: usize, pool_bytes: usize, lock: bool) -> io::Result<Self> {
        let zeros_bytes = ZERO_BYTES as usize;
        let cache_bytes = cache_bytes.max(4096);
        // Room for the buddy method to place all three.
        let total =
            (cache_bytes.next_power_of_two() + zeros_bytes + pool_bytes).next_power_of_two();
        let mut pool = Pool::new(total.min(cache_bytes * 2 + zeros_bytes + pool_bytes), lock)?;
        let whole = || io::Error::from(io::ErrorKind::OutOfMemory);
        let scratch = pool.alloc(cache_bytes).ok_or_else(whole)?;
        let zeros = pool.alloc(zeros_bytes).ok_or_else(whole)?;
        // SAFETY: a run of the pool, not shared yet.
        unsafe { pool.ptr(zeros).write_bytes(0, zeros_bytes) };
        Ok(Self { pool, scratch, zeros, lent: Slab::new() })
    }

    /// The stripe cache's handle.
    pub(crate) fn scratch(&self) -> BufId {
        STRIPE_CACHE
    }

    /// Memory for a request, or none while the pool is full.
    pub(crate) fn alloc(&mut self, bytes: usize) -> Option<(BufId, *mut u8)> {
        let own = self.pool.alloc(bytes)?;
        let start = self.pool.ptr(own);
        Some((self.enter(start, Some(own)), start))
    }

    /// Names foreign memory. It must stay valid, and be used by nobody else, until `free`.
    pub(crate) fn lend(&mut self, start: *mut u8) -> BufId {
        self.enter(start, None)
    }

    /// Ends a handle.
    pub(crate) fn free(&mut self, id: BufId) {
        if let Some(own) = self.lent.remove(id.0 as usize - 1).own {
            self.pool.free(own);
        }
    }

    pub(crate) fn stats(&self) -> PoolStats {
        self.pool.stats()
    }

    pub(crate) fn locked(&self) -> bool {
        self.pool.locked()
    }

    fn enter(&mut self, start: *mut u8, own: Option<PoolId>) -> BufId {
        BufId(self.lent.insert(Lent { start, own }) as u32 + 1)
    }

    /// Where a buffer lies.
    pub(crate) fn ptr(&self, buf: Buf) -> *mut u8 {
        let start = match buf.id {
            BufId::ZERO => self.pool.ptr(self.zeros),
            STRIPE_CACHE => self.pool.ptr(self.scratch),
            BufId(id) => self.lent[id as usize - 1].start,
        };
        // SAFETY: the engine names only places inside of what it was given.
        unsafe { start.add(buf.offset as usize) }
    }

    /// An I/O vector in the system's terms.
    pub(crate) fn iov(&self, pieces: &[Piece]) -> SmallVec<[IoVec; 4]> {
        pieces.iter().map(|p| IoVec::new(self.ptr(p.buf), p.len as usize)).collect()
    }

    /// Does parity work.
    pub(crate) fn compute(&mut self, compute: &Compute) {
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

    fn list(&self, bufs: &[Buf], len: u32) -> SmallVec<[&[u8]; 16]> {
        // SAFETY: the engine's buffers are live, `len` bytes long, and nothing writes to them
        // while it has parity work on them.
        bufs.iter()
            .map(|&buf| unsafe { std::slice::from_raw_parts(self.ptr(buf), len as usize) })
            .collect()
    }

    #[expect(clippy::mut_from_ref, reason = "distinct buffers behind one table")]
    fn out<'a>(&self, buf: Buf, len: u32) -> &'a mut [u8] {
        // SAFETY: as in `list`; results of one piece of work are distinct from each other and
        // from its sources.
        unsafe { std::slice::from_raw_parts_mut(self.ptr(buf), len as usize) }
    }
}
