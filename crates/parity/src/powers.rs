//! Recovery by Horner's rule.
//!
//! What a recovery makes of the survivors is sums of their products with powers of g, scaled: of
//! two lost data blocks `x` and `y` the first is
//! `(sum of g^e * D_e ^ Q ^ g^y * (sum of D_e ^ P)) / (g^x ^ g^y)`.
//! From the highest power to the lowest that takes a doubling from one block to the next, and one
//! product at the end. By coefficients it takes a product for each block.
#![expect(clippy::needless_range_loop, reason = "as in the driver")]

use crate::driver::{Job, Pair, Vector, load, mul_add, xor};
use crate::gf;

/// A product as `scale * (sum of g^e * source ^ last source) ^ share * sum`.
pub(crate) struct Powers {
    /// How many sources, from the first one on, have powers of their own. These ascend.
    own: usize,
    /// After each of them, how many doublings there are to the next lower power.
    steps: [u8; 255],
    /// Whether the last source is a term by itself.
    has_last: bool,
    scale: u8,
    share: u8,
}

impl Powers {
    /// How to make the product of `pair` so, if that is less work.
    pub fn of(pair: &Pair) -> Option<Powers> {
        let (terms, beyond) = pair.coefs.split_at_checked(pair.terms)?;
        // Q is no term of the sum, so its coefficient is the scale.
        let (scale, has_last) = match *beyond {
            [] => (1, false),
            [coef] if coef != 0 => (coef, true),
            _ => return None,
        };
        // The last term is P, which is in the product by way of the sum only, or it is data.
        let (&last, others) = terms.split_last()?;
        [(others, last), (terms, 0)].into_iter().find_map(|(coefs, share)| {
            let steps = steps(coefs, scale, share)?;
            Some(Powers { own: coefs.len(), steps, has_last, scale, share })
        })
    }
}

/// If each of `coefs` is `scale * g^e ^ share`, and these `e` ascend without large gaps: the gaps.
fn steps(coefs: &[u8], scale: u8, share: u8) -> Option<[u8; 255]> {
    let mut steps = [0; 255];
    if coefs.len() > steps.len() {
        return None;
    }
    let mut reached = 0;
    for (step, &coef) in steps.iter_mut().zip(coefs) {
        let power = gf::log(gf::div(coef ^ share, scale))?;
        *step = power.checked_sub(reached)?;
        reached = power;
    }
    // A product costs as much as two doublings or three, and without tables more.
    (usize::from(reached) <= 2 * coefs.len()).then_some(steps)
}

/// A pair of which the product is made by powers.
pub(crate) struct PairByPowers<'a> {
    pub pair: Pair<'a>,
    pub powers: Powers,
}

impl Job<2> for PairByPowers<'_> {
    #[inline(always)]
    fn outputs(&self) -> [*mut u8; 2] {
        self.pair.outputs()
    }
    #[inline(always)]
    fn sources(&self) -> &[&[u8]] {
        self.pair.sources()
    }
    #[inline(always)]
    fn adds(&self) -> bool {
        false
    }
    #[inline(always)]
    unsafe fn make<V: Vector, const N: usize>(&self, at: usize) -> [[V; N]; 2] {
        let PairByPowers { pair: Pair { srcs, terms, chained, .. }, powers } = self;
        let Powers { own, steps, has_last, scale, share } = powers;
        // SAFETY: the caller's, for each block; `Powers::of` counts no more sources than there are,
        // and no more than there are steps.
        unsafe {
            let mut sum = [V::splat(0); N];
            for src in srcs.get_unchecked(*own..*terms) {
                xor(&mut sum, &load(src.as_ptr(), at));
            }
            let bias = [V::splat(V::BIAS); N];
            let mut product = bias;
            for i in (0..*own).rev() {
                let data = load(srcs.get_unchecked(i).as_ptr(), at);
                xor(&mut product, &data);
                xor(&mut sum, &data);
                double(&mut product, *steps.get_unchecked(i));
            }
            if *has_last {
                let last = srcs.last().unwrap_unchecked();
                xor(&mut product, &load(last.as_ptr(), at));
            }
            xor(&mut product, &bias);
            let scale = V::factor(*scale);
            for n in 0..N {
                product[n] = product[n].mul(scale);
            }
            if *share != 0 {
                mul_add(&mut product, *share, &sum);
            }
            if *chained {
                xor(&mut sum, &product);
            }
            [product, sum]
        }
    }
}

/// # Safety
/// As [`Vector`].
#[inline(always)]
unsafe fn double<V: Vector, const N: usize>(product: &mut [V; N], times: u8) {
    for _ in 0..times {
        for n in 0..N {
            // SAFETY: the caller's.
            product[n] = unsafe { product[n].double() };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;
    use crate::kernels::Combination;
    use crate::recovery;

    /// Whether rows are made by powers.
    fn is_by_powers(row: &[u8], other: &[u8]) -> bool {
        let how = Combination::of(row, other).or_else(|| Combination::of(other, row)).unwrap();
        let (coefs, terms, chained) = (how.coefs, how.terms, how.chained);
        let none = core::ptr::null_mut();
        Powers::of(&Pair { product: none, sum: none, coefs, srcs: &[], terms, chained }).is_some()
    }

    #[test]
    fn every_recovery_of_two_blocks_is_made_by_powers() {
        for k in 2..=40_u8 {
            let exps: vec::Vec<u8> = (0..k).collect();
            let [mut a, mut b] = [vec![0; exps.len()], vec![0; exps.len()]];
            for x in 0..exps.len() {
                recovery::recover_data_from_p(&exps, x, &mut a, &mut b);
                assert!(is_by_powers(&a, &b), "D and Q: {x} of {k}");
                recovery::recover_data_from_q(&exps, x, &mut a, &mut b);
                assert!(is_by_powers(&a, &b), "D and P: {x} of {k}");
                for y in (0..exps.len()).filter(|&y| y != x) {
                    recovery::recover_two_data(&exps, x, y, &mut a, &mut b);
                    assert!(is_by_powers(&a, &b), "D and D: {x} and {y} of {k}");
                }
            }
        }
    }
}
