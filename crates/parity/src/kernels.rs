//! The sets of kernels as their users see them, and the choice among them.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::detect::CANDIDATES;
use crate::{check, sets};

/// One set of parity routines, for one kind of CPU.
///
/// All blocks of a call have the same length; any length and any alignment will do. Multiples of
/// 64 bytes at addresses that are multiples of 64 are fastest.
pub struct Kernels {
    pub(crate) name: &'static str,
    /// Destination, sources, whether to keep what the destination holds.
    pub(crate) xor: XorFn,
    /// P, Q, data.
    pub(crate) pq: PqFn,
    /// Destination, coefficients, sources, whether to keep what the destination holds.
    pub(crate) mul: MulFn,
    /// Destinations, how they are made, sources.
    pub(crate) pair: PairFn,
}

// Safety of all four: the CPU has the set's features, all blocks are of one length, there is a
// coefficient for each source, and at least one source.
type XorFn = unsafe fn(&mut [u8], &[&[u8]], bool);
type PqFn = unsafe fn(&mut [u8], &mut [u8], &[&[u8]]);
type MulFn = unsafe fn(&mut [u8], &[u8], &[&[u8]], bool);
type PairFn = unsafe fn([&mut [u8]; 2], &Combination, &[&[u8]]);

/// How two destinations are made in one pass: the first of products, the second of plain sums.
pub(crate) struct Combination<'a> {
    /// The coefficients of the first.
    pub coefs: &'a [u8],
    /// How many sources, from the first one on, are terms of the second.
    pub terms: usize,
    /// Whether the first destination is one more term of the second.
    pub chained: bool,
}

impl<'a> Combination<'a> {
    /// How to make rows `row` and `other`, if they can be made so.
    pub(crate) fn of(row: &'a [u8], other: &[u8]) -> Option<Combination<'a>> {
        [false, true].into_iter().find_map(|chained| {
            let rest = |(r, o): (&u8, &u8)| if chained { r ^ o } else { *o };
            let terms = row.iter().zip(other).map(rest).take_while(|&c| c == 1).count();
            let none_left = row.iter().zip(other).map(rest).skip(terms).all(|c| c == 0);
            none_left.then_some(Combination { coefs: row, terms, chained })
        })
    }
}

/// The best set for this CPU.
///
/// It is chosen at the first call, among those that the CPU can run and that compute what the
/// scalar reference computes.
pub fn kernels() -> &'static Kernels {
    static CHOSEN: AtomicPtr<Kernels> = AtomicPtr::new(ptr::null_mut());

    // Threads that come at the same time choose the same set; nothing else is published by it.
    let chosen = CHOSEN.load(Ordering::Relaxed);
    // SAFETY: null or what is stored below, which lives for ever and is not changed.
    match unsafe { chosen.as_ref() } {
        Some(set) => set,
        None => {
            let set = choose(Kernels::available());
            CHOSEN.store(ptr::from_ref(set).cast_mut(), Ordering::Relaxed);
            set
        }
    }
}

/// The first set that passes the check; the portable one, which is plain Rust, if none does.
fn choose(mut sets: impl Iterator<Item = &'static Kernels>) -> &'static Kernels {
    sets.find(|set| check::passes(set)).unwrap_or(&sets::portable::SET)
}

impl Kernels {
    /// "avx512-gfni", "avx2", "neon" or "portable".
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// All sets that this CPU can run, best first.
    pub fn available() -> impl Iterator<Item = &'static Kernels> {
        CANDIDATES.iter().filter(|c| (c.usable)()).map(|c| c.set)
    }

    /// `dst = srcs[0] ^ srcs[1] ^ ...`.
    ///
    /// # Panics
    /// If there is no source, or one whose length is not that of `dst`.
    pub fn xor(&self, dst: &mut [u8], srcs: &[&[u8]]) {
        assert_blocks(dst.len(), srcs);
        // SAFETY: a set can only be had if the CPU runs it; the lengths are equal.
        unsafe { (self.xor)(dst, srcs, false) }
    }

    /// `dst ^= srcs[0] ^ srcs[1] ^ ...`.
    ///
    /// # Panics
    /// As [`xor`](Self::xor).
    pub fn xor_into(&self, dst: &mut [u8], srcs: &[&[u8]]) {
        assert_blocks(dst.len(), srcs);
        // SAFETY: as in `xor`.
        unsafe { (self.xor)(dst, srcs, true) }
    }

    /// `p = data[0] ^ data[1] ^ ...` and `q = g^0 data[0] ^ g^1 data[1] ^ ...`.
    ///
    /// # Panics
    /// If there is no data block, or a block whose length differs from that of `p`.
    pub fn pq(&self, p: &mut [u8], q: &mut [u8], data: &[&[u8]]) {
        assert_blocks(p.len(), data);
        assert_eq!(p.len(), q.len(), "P and Q differ in length");
        // SAFETY: as in `xor`.
        unsafe { (self.pq)(p, q, data) }
    }

    /// `dst ^= coefs[0] * srcs[0] ^ coefs[1] * srcs[1] ^ ...`: the delta update of Q.
    ///
    /// # Panics
    /// As [`xor`](Self::xor), and if there are not as many coefficients as sources.
    pub fn mul_add(&self, dst: &mut [u8], coefs: &[u8], srcs: &[&[u8]]) {
        assert_blocks(dst.len(), srcs);
        assert_eq!(coefs.len(), srcs.len(), "one coefficient for each source");
        // SAFETY: as in `xor`, and there is a coefficient for each source.
        unsafe { (self.mul)(dst, coefs, srcs, true) }
    }

    /// `dsts[j] = rows[j][0] * srcs[0] ^ rows[j][1] * srcs[1] ^ ...`.
    ///
    /// Two neighbouring destinations are made in one pass over the sources if the coefficients of
    /// one, or their differences from those of the other, are first ones and then zeros. So it is
    /// with the rows of every [`recovery`](crate::recovery), since P's coefficients are ones. Other
    /// rows take a pass each.
    ///
    /// # Panics
    /// As [`mul_add`](Self::mul_add), and if there are not as many rows as destinations.
    pub fn mul(&self, dsts: &mut [&mut [u8]], rows: &[&[u8]], srcs: &[&[u8]]) {
        assert_eq!(dsts.len(), rows.len(), "one row for each destination");
        for (dst, row) in dsts.iter().zip(rows) {
            assert_blocks(dst.len(), srcs);
            assert_eq!(row.len(), srcs.len(), "one coefficient for each source");
        }
        for (dsts, rows) in dsts.chunks_mut(2).zip(rows.chunks(2)) {
            match (dsts, rows) {
                ([a, b], [row_a, row_b]) => self.mul_two([a, b], [row_a, row_b], srcs),
                // SAFETY: as in `mul_add`.
                ([a], [row]) => unsafe { (self.mul)(a, row, srcs, false) },
                _ => unreachable!("chunks of one or two, as many rows as destinations"),
            }
        }
    }

    fn mul_two(&self, [a, b]: [&mut [u8]; 2], [row_a, row_b]: [&[u8]; 2], srcs: &[&[u8]]) {
        // SAFETY: as in `mul_add`; a combination has no more terms than there are coefficients.
        unsafe {
            if let Some(how) = Combination::of(row_a, row_b) {
                (self.pair)([a, b], &how, srcs);
            } else if let Some(how) = Combination::of(row_b, row_a) {
                (self.pair)([b, a], &how, srcs);
            } else {
                (self.mul)(a, row_a, srcs, false);
                (self.mul)(b, row_b, srcs, false);
            }
        }
    }
}

fn assert_blocks(len: usize, srcs: &[&[u8]]) {
    assert!(!srcs.is_empty(), "no source");
    assert!(srcs.iter().all(|s| s.len() == len), "a source of another length");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set of which one routine leaves the last byte of its output as it was.
    macro_rules! broken {
        ($name:ident, $($field:ident: $broken:expr),*) => {
            static $name: Kernels = Kernels { $($field: $broken,)* ..sets::portable::SET };
        };
    }

    broken!(BAD_XOR, xor: |dst, srcs, add| {
        let last = *dst.last().unwrap();
        // SAFETY: the caller's.
        unsafe { (sets::portable::SET.xor)(dst, srcs, add) };
        *dst.last_mut().unwrap() = last;
    });
    broken!(BAD_Q, pq: |p, q, data| {
        let last = *q.last().unwrap();
        // SAFETY: the caller's.
        unsafe { (sets::portable::SET.pq)(p, q, data) };
        *q.last_mut().unwrap() = last;
    });
    broken!(BAD_DELTA, mul: |dst, row, srcs, _| {
        // SAFETY: the caller's.
        unsafe { (sets::portable::SET.mul)(dst, row, srcs, false) };
    });
    broken!(BAD_PAIR, pair: |outputs, how, srcs| {
        let how = Combination { chained: false, ..*how };
        // SAFETY: the caller's.
        unsafe { (sets::portable::SET.pair)(outputs, &how, srcs) };
    });

    #[test]
    fn a_set_that_computes_something_else_is_not_used() {
        for bad in [&BAD_XOR, &BAD_Q, &BAD_DELTA, &BAD_PAIR] {
            let chosen = choose([bad, &sets::portable::SET].into_iter());
            assert!(ptr::eq(chosen, &sets::portable::SET));
        }
    }

    #[test]
    fn every_set_of_this_cpu_passes_its_check() {
        for set in Kernels::available() {
            assert!(check::passes(set), "{}", set.name());
        }
    }
}
