//! The buffers: an arena much larger than every cache, dealt out as stripes.
//!
//! A stripe is k sources and two outputs, one after the other, each of one block. Hot stripes are
//! used again and again. Cold ones are met in an order that no prefetcher foresees, and none is
//! met again before the whole arena was: segment after segment, stripes permuted inside each.

/// Larger than the largest last-level caches of today's servers by a factor of several.
const ARENA: usize = 2 << 30;
/// What one cold measurement walks through.
const SEGMENT: usize = 16 << 20;
/// The most sources that a stripe has.
pub const SOURCES_MAX: usize = 10;

/// Blocks of a call, in the forms that the two contenders take.
pub struct Stripe {
    pub k: usize,
    pub block: usize,
    sources: [&'static [u8]; SOURCES_MAX],
    pointers: [*mut u8; SOURCES_MAX + 2],
}

impl Stripe {
    /// # Safety
    /// `at` points to `(k + 2) * block` bytes of the arena that no other stripe holds.
    #[inline]
    unsafe fn new(at: *mut u8, k: usize, block: usize) -> Stripe {
        let mut stripe = Stripe {
            k,
            block,
            sources: [&[]; SOURCES_MAX],
            pointers: [core::ptr::null_mut(); SOURCES_MAX + 2],
        };
        for i in 0..k + 2 {
            // SAFETY: inside the stripe.
            stripe.pointers[i] = unsafe { at.add(i * block) };
            if i < k {
                // SAFETY: as above; the arena is never freed and sources are never written.
                stripe.sources[i] =
                    unsafe { core::slice::from_raw_parts(stripe.pointers[i], block) };
            }
        }
        stripe
    }

    /// Sources and outputs as slices.
    #[inline]
    pub fn slices(&mut self) -> (&[&[u8]], [&mut [u8]; 2]) {
        // SAFETY: inside the stripe, apart from each other and from the sources.
        let outputs = [self.k, self.k + 1]
            .map(|i| unsafe { core::slice::from_raw_parts_mut(self.pointers[i], self.block) });
        (&self.sources[..self.k], outputs)
    }

    /// Sources, then outputs.
    pub fn pointers(&self) -> &[*mut u8] {
        &self.pointers[..self.k + 2]
    }
}

/// All the memory, and where the next cold segment begins.
pub struct Arena {
    base: *mut u8,
    next: usize,
}

impl Arena {
    /// Filled, so that no page is touched for the first time while the clock runs.
    pub fn new() -> Arena {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let words: Vec<u64> = (0..(ARENA + 4096) / 8)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state
            })
            .collect();
        let base = words.leak().as_mut_ptr().cast::<u8>();
        // SAFETY: one page more than the arena was allocated.
        Arena { base: unsafe { base.add(base.align_offset(4096)) }, next: 0 }
    }

    /// A stripe to be used again and again.
    pub fn hot(&mut self, k: usize, block: usize) -> Stripe {
        // SAFETY: the longest stripe is shorter than the arena; it is borrowed from `self`.
        unsafe { Stripe::new(self.base, k, block) }
    }

    /// The stripes of the next segment, each once, out of order.
    pub fn cold(&mut self, k: usize, block: usize) -> impl Iterator<Item = Stripe> {
        // SAFETY: segments divide the arena.
        let start = unsafe { self.base.add(self.next) };
        self.next = (self.next + SEGMENT) % ARENA;
        let count = cold_stripes(k, block);
        let stride = coprime_stride(count);
        // SAFETY: `count` stripes fit in a segment, and each is met once.
        (0..count).map(move |n| unsafe {
            Stripe::new(start.add(n * stride % count * (k + 2) * block), k, block)
        })
    }
}

/// How many stripes a cold segment holds.
pub fn cold_stripes(k: usize, block: usize) -> usize {
    SEGMENT / ((k + 2) * block)
}

/// A step through 0..count that meets every number once and no two neighbours in a row.
fn coprime_stride(count: usize) -> usize {
    let gcd = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (count * 5 / 8 + 1..).find(|&s| gcd(s, count) == 1).expect("count + 1 is coprime to count")
}
