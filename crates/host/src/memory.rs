//! The bytes behind the engine's buffer handles, for one shard.
//!
//! Handle 0 is the stripe cache, with the memory for writes left behind before it; every other handle names a request's
//! memory: a run of this shard's pool, or memory that somebody else lends for the time of a request (another shard's
//! client, a FUSE request). The pool is mapped, touched and, where allowed, locked before the
//! first request, so that serving does not wait for the kernel to find a page.
//!
//! Requests find memory on one of two [classes](BufferClass), by their size. What others leave there may be nothing;
//! then each client still has a [share](SHARE_BYTES) of its own for one small request at a time.
//!
//! Invariant: memory behind a handle outlives every effect that names it, since the request
//! that brought it is answered only after they are done.

use lapstrake_device::{Arena, BufId as PoolId, IoVec, Pool};
use lapstrake_engine::{
    Buf, BufId, Comparison, Compute, Finding, PAGE_BYTES, Piece, Seal, ZERO_BYTES,
};
use slab::Slab;
use smallvec::SmallVec;
use std::io;

const STRIPE_CACHE: BufId = BufId(0);
/// Requests above this, or above a quarter of the pool, get a mapping of their own for the time that they
/// take. What the kernel writes back to a device under memory pressure comes in smaller pieces, so that
/// serving it needs no new memory.
const LARGE_BYTES: usize = 4 << 20;
/// Bound on such mappings together.
const LARGE_BYTES_MAX: usize = 96 << 20;
/// What a client has for one request whatever others take: small, since all have it at all times, and enough for
/// what databases and the metadata of file systems come in.
const SHARE_BYTES: usize = 32 << 10;

/// Where memory for a request comes from. Who waits for that of one waits for nothing on the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferClass {
    /// The pool.
    Pool,
    /// Mappings of their own, for large requests.
    Mappings,
}

impl BufferClass {
    pub(crate) const ALL: [Self; 2] = [Self::Pool, Self::Mappings];
}

/// What a shard's memory for requests may come to, bytes.
pub(crate) fn bound(pool_bytes: usize, shares: usize) -> usize {
    pool_bytes + shares * SHARE_BYTES + LARGE_BYTES_MAX
}

#[derive(Debug)]
enum Owner {
    /// A run of the pool.
    Pool(PoolId),
    /// A mapping of its own, for one large request.
    Mapping(Box<Pool>),
    /// One of the shares.
    Share(PoolId),
    /// Somebody else.
    Lender,
}

#[derive(Debug)]
struct Lent {
    start: *mut u8,
    owner: Owner,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Memory {
    /// For writes left behind, then the stripe cache.
    cache: Arena,
    behind_bytes: usize,
    /// Fresh mappings read as zeros, and nobody writes here.
    zeros: Pool,
    pool: Pool,
    /// In pieces of one size, so that a free one is always to be had.
    shares: Pool,
    lent: Slab<Lent>,
    large_bytes: usize,
}

// SAFETY: the raw pointers lead into the pool, which is Send, or into memory that its lender
// keeps alive and leaves alone until the request is answered (the contract of `lend`).
unsafe impl Send for Memory {}

/// What a shard's memory is for.
pub(crate) struct Sizes {
    /// Pages for writes left behind.
    pub behind: u32,
    /// Pages of the stripe cache.
    pub cache: u32,
    /// What these may become.
    pub cache_most: u32,
    /// Bytes for requests.
    pub pool_bytes: usize,
    /// Clients at most.
    pub shares: usize,
}

impl Memory {
    /// Memory that is locked where that is allowed.
    pub(crate) fn new(sizes: &Sizes) -> io::Result<Self> {
        let bytes = |pages: u32| pages as usize * PAGE_BYTES as usize;
        let behind_bytes = bytes(sizes.behind);
        let most = behind_bytes + bytes(sizes.cache_most);
        let (pool_bytes, lock) = (sizes.pool_bytes, true);
        Ok(Self {
            cache: Arena::new(behind_bytes + bytes(sizes.cache), most, lock)?,
            behind_bytes,
            zeros: Pool::new(ZERO_BYTES as usize, lock)?,
            pool: Pool::new(pool_bytes, lock)?,
            shares: Pool::new(sizes.shares * SHARE_BYTES, lock)?,
            lent: Slab::new(),
            large_bytes: 0,
        })
    }

    /// Gives the stripe cache another size. Of a smaller one the engine must have left what lies beyond.
    pub(crate) fn resize_cache(&mut self, pages: u32) -> io::Result<()> {
        self.cache.resize(self.behind_bytes + pages as usize * PAGE_BYTES as usize)
    }

    /// The stripe cache's pages.
    pub(crate) fn cache_pages(&self) -> u32 {
        ((self.cache.bytes() - self.behind_bytes) / PAGE_BYTES as usize) as u32
    }

    /// Of the stripe cache and the memory for writes left behind.
    pub(crate) fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// Where most requests find memory; valid while this lives.
    pub(crate) fn pool(&self) -> IoVec {
        IoVec::new(self.pool.base(), self.pool.stats().capacity)
    }

    /// The stripe cache's handle.
    pub(crate) fn scratch(&self) -> BufId {
        STRIPE_CACHE
    }

    /// Where memory for a request is to be found.
    pub(crate) fn class(&self, bytes: usize) -> BufferClass {
        match bytes <= LARGE_BYTES.min(self.pool.stats().capacity / 4) {
            true => BufferClass::Pool,
            false => BufferClass::Mappings,
        }
    }

    /// Memory for a request, or none while too much is in use.
    pub(crate) fn alloc(&mut self, bytes: usize) -> Option<(BufId, *mut u8)> {
        if self.class(bytes) == BufferClass::Pool {
            let own = self.pool.alloc(bytes)?;
            let start = self.pool.ptr(own);
            return Some((self.enter(start, Owner::Pool(own)), start));
        }
        if self.large_bytes + bytes.next_multiple_of(PAGE_BYTES as usize) > LARGE_BYTES_MAX {
            return None;
        }
        let mapping = Pool::new(bytes, false).ok()?;
        let start = mapping.base();
        self.large_bytes += mapping.stats().capacity;
        Some((self.enter(start, Owner::Mapping(Box::new(mapping))), start))
    }

    /// A client's share, if the request fits. It must not have it already.
    pub(crate) fn alloc_share(&mut self, bytes: usize) -> Option<(BufId, *mut u8)> {
        if bytes > SHARE_BYTES {
            return None;
        }
        let own = self.shares.alloc(SHARE_BYTES)?;
        let start = self.shares.ptr(own);
        Some((self.enter(start, Owner::Share(own)), start))
    }

    /// Where memory came from that others may have had.
    pub(crate) fn class_of(&self, id: BufId) -> Option<BufferClass> {
        match self.lent[id.0 as usize - 1].owner {
            Owner::Pool(_) => Some(BufferClass::Pool),
            Owner::Mapping(_) => Some(BufferClass::Mappings),
            Owner::Share(_) | Owner::Lender => None,
        }
    }

    /// Names foreign memory. It must stay valid, and be used by nobody else, until `free`.
    pub(crate) fn lend(&mut self, start: *mut u8) -> BufId {
        self.enter(start, Owner::Lender)
    }

    /// Ends a handle.
    pub(crate) fn free(&mut self, id: BufId) {
        match self.lent.remove(id.0 as usize - 1).owner {
            Owner::Pool(run) => self.pool.free(run),
            Owner::Mapping(mapping) => self.large_bytes -= mapping.stats().capacity,
            Owner::Share(run) => self.shares.free(run),
            Owner::Lender => {}
        }
    }

    /// Bytes in use, of all.
    pub(crate) fn in_use(&self) -> usize {
        self.pool.stats().in_use + self.shares.stats().in_use + self.large_bytes
    }

    pub(crate) fn locked(&self) -> bool {
        self.cache.locked() && self.pool.locked() && self.shares.locked()
    }

    fn enter(&mut self, start: *mut u8, owner: Owner) -> BufId {
        BufId(self.lent.insert(Lent { start, owner }) as u32 + 1)
    }

    /// Where a buffer lies.
    pub(crate) fn ptr(&self, buf: Buf) -> *mut u8 {
        let start = match buf.id {
            BufId::ZERO => self.zeros.base(),
            STRIPE_CACHE => self.cache.base(),
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

    /// Puts a log's header in its place.
    pub(crate) fn seal(&mut self, seal: &Seal) {
        // SAFETY: as in `list`.
        let header =
            seal.run(|buf, len| unsafe { std::slice::from_raw_parts(self.ptr(buf), len as usize) });
        self.out(seal.place(), header.len() as u32).copy_from_slice(&header);
    }

    /// Compares blocks that were read, and tells which pages differ.
    pub(crate) fn compare(&self, comparison: &Comparison) -> Vec<Finding> {
        // SAFETY: as in `list`.
        comparison.run(lapstrake_parity::kernels(), |buf, len| unsafe {
            std::slice::from_raw_parts(self.ptr(buf), len as usize)
        })
    }

    fn list(&self, bufs: &[Buf], len: u32) -> SmallVec<[&[u8]; 16]> {
        // SAFETY: the engine's buffers are live, `len` bytes long, and nothing writes to them
        // while it has parity work on them.
        bufs.iter()
            .map(|&buf| unsafe { std::slice::from_raw_parts(self.ptr(buf), len as usize) })
            .collect()
    }

    fn out<'a>(&self, buf: Buf, len: u32) -> &'a mut [u8] {
        // SAFETY: as in `list`; results of one piece of work are distinct from each other and
        // from its sources.
        unsafe { std::slice::from_raw_parts_mut(self.ptr(buf), len as usize) }
    }
}
