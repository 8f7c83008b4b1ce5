//! The peer: Intel ISA-L (Debian's libisal-dev), declared by hand from its `raid.h` and
//! `erasure_code.h`.

use core::ffi::{c_int, c_uchar, c_void};

type Gen = unsafe extern "C" fn(vects: c_int, len: c_int, array: *const *mut c_void) -> c_int;
type Encode = unsafe extern "C" fn(
    len: c_int,
    k: c_int,
    rows: c_int,
    tables: *const c_uchar,
    data: *const *mut c_uchar,
    coding: *const *mut c_uchar,
);

#[link(name = "isal")]
unsafe extern "C" {
    // Each picks the best variant for the CPU.
    fn xor_gen(vects: c_int, len: c_int, array: *const *mut c_void) -> c_int;
    fn pq_gen(vects: c_int, len: c_int, array: *const *mut c_void) -> c_int;
    fn ec_encode_data(
        len: c_int,
        k: c_int,
        rows: c_int,
        tables: *const c_uchar,
        data: *const *mut c_uchar,
        coding: *const *mut c_uchar,
    );

    // What they pick on a CPU with AVX2 and no AVX-512.
    fn xor_gen_avx(vects: c_int, len: c_int, array: *const *mut c_void) -> c_int;
    fn pq_gen_avx2(vects: c_int, len: c_int, array: *const *mut c_void) -> c_int;
    fn ec_encode_data_avx2(
        len: c_int,
        k: c_int,
        rows: c_int,
        tables: *const c_uchar,
        data: *const *mut c_uchar,
        coding: *const *mut c_uchar,
    );

    fn gf_mul(a: c_uchar, b: c_uchar) -> c_uchar;
    fn gf_invert_matrix(matrix: *mut c_uchar, inverse: *mut c_uchar, n: c_int) -> c_int;
    fn ec_init_tables(k: c_int, rows: c_int, a: *const c_uchar, tables: *mut c_uchar);
}

/// ISA-L's functions for one kind of CPU.
#[derive(Clone, Copy)]
pub struct Peer {
    xor: Gen,
    pq: Gen,
    encode: Encode,
}

/// What ISA-L itself picks for this CPU.
pub static BEST: Peer = Peer { xor: xor_gen, pq: pq_gen, encode: ec_encode_data };
/// What it picks for a CPU with AVX2 and no AVX-512.
pub static AVX2: Peer = Peer { xor: xor_gen_avx, pq: pq_gen_avx2, encode: ec_encode_data_avx2 };

impl Peer {
    /// XOR of all blocks but the last into the last.
    ///
    /// # Safety
    /// The CPU has what the peer needs; `blocks` point to `len` bytes each, at multiples of 64;
    /// the last is not borrowed elsewhere.
    pub unsafe fn xor(&self, len: usize, blocks: &[*mut u8]) {
        // SAFETY: the caller's.
        let failed =
            unsafe { (self.xor)(blocks.len() as c_int, len as c_int, blocks.as_ptr().cast()) };
        assert_eq!(failed, 0, "xor_gen refuses {} blocks of {len} bytes", blocks.len());
    }

    /// P and Q of all blocks but the last two into the last two.
    ///
    /// # Safety
    /// As [`xor`](Self::xor), for the last two blocks.
    pub unsafe fn pq(&self, len: usize, blocks: &[*mut u8]) {
        // SAFETY: the caller's.
        let failed =
            unsafe { (self.pq)(blocks.len() as c_int, len as c_int, blocks.as_ptr().cast()) };
        assert_eq!(failed, 0, "pq_gen refuses {} blocks of {len} bytes", blocks.len());
    }
}

/// The recovery of two data blocks as ISA-L's users do it: the rows of an inverted matrix.
pub struct Decode {
    k: usize,
    /// 32 bytes for each source and output, as `ec_init_tables` makes them.
    tables: Vec<u8>,
}

impl Decode {
    /// Data blocks `x` and `y` of `k`, from the other data blocks, P and Q in this order.
    pub fn new(k: usize, x: usize, y: usize) -> Decode {
        // What each survivor is made of, as rows over the data blocks.
        let mut survivors = Vec::with_capacity(k * k);
        for i in (0..k).filter(|&i| i != x && i != y) {
            survivors.extend((0..k).map(|column| u8::from(column == i)));
        }
        survivors.extend((0..k).map(|_| 1));
        survivors.extend((0..k).scan(1, |g, _| {
            let power = *g;
            // SAFETY: plain arithmetic.
            *g = unsafe { gf_mul(power, 2) };
            Some(power)
        }));

        let mut inverse = vec![0; k * k];
        // SAFETY: both have k * k bytes.
        let failed =
            unsafe { gf_invert_matrix(survivors.as_mut_ptr(), inverse.as_mut_ptr(), k as c_int) };
        assert_eq!(failed, 0, "the survivors do not determine the data");
        let rows = [&inverse[x * k..][..k], &inverse[y * k..][..k]].concat();
        let mut tables = vec![0; 32 * 2 * k];
        // SAFETY: two rows of k bytes, tables of 32 bytes for each of their bytes.
        unsafe { ec_init_tables(k as c_int, 2, rows.as_ptr(), tables.as_mut_ptr()) };
        Decode { k, tables }
    }

    /// The two lost blocks into the last two of `blocks`, from the others.
    ///
    /// # Safety
    /// As [`Peer::xor`], for the last two blocks.
    pub unsafe fn run(&self, peer: &Peer, len: usize, blocks: &[*mut u8]) {
        assert_eq!(blocks.len(), self.k + 2);
        let (sources, lost) = blocks.split_at(self.k);
        // SAFETY: the caller's, and the tables are those of k sources and two outputs.
        unsafe {
            (peer.encode)(
                len as c_int,
                self.k as c_int,
                2,
                self.tables.as_ptr(),
                sources.as_ptr(),
                lost.as_ptr(),
            );
        }
    }
}
