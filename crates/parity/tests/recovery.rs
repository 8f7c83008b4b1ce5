//! Any one or two lost blocks come back, in md's order of exponents and in orders with holes.

use lapstrake_parity::{Kernels, gf, kernels, recovery};
use proptest::prelude::*;

/// Enough for every loop of the driver: many vectors, one vector, single bytes.
const LEN: usize = 651;

struct Stripe {
    exps: Vec<u8>,
    data: Vec<Vec<u8>>,
    p: Vec<u8>,
    q: Vec<u8>,
}

impl Stripe {
    /// P and Q by the definition.
    fn new(exps: &[u8], seed: u8) -> Stripe {
        let data: Vec<Vec<u8>> = (0..exps.len())
            .map(|i| (0..LEN).map(|n| ((n * 31 + i * 83) as u8 ^ seed).rotate_left(3)).collect())
            .collect();
        let sum = |coef: &dyn Fn(usize) -> u8| {
            let byte = |n: usize| (0..data.len()).fold(0, |s, i| s ^ gf::mul(coef(i), data[i][n]));
            (0..LEN).map(byte).collect::<Vec<u8>>()
        };
        let (p, q) = (sum(&|_| 1), sum(&|i| gf::exp(exps[i])));
        Stripe { exps: exps.to_vec(), data, p, q }
    }

    /// The data blocks that are not lost, then the parity blocks given.
    fn sources<'a>(&'a self, lost: &[usize], parity: &[&'a Vec<u8>]) -> Vec<&'a [u8]> {
        let data = self.data.iter().enumerate().filter(|(i, _)| !lost.contains(i)).map(|(_, d)| d);
        data.chain(parity.iter().copied()).map(Vec::as_slice).collect()
    }

    /// Applies two rows and compares.
    fn assert(&self, rows: [&[u8]; 2], srcs: &[&[u8]], want: [&[u8]; 2], what: &str) {
        for set in Kernels::available() {
            let [mut a, mut b] = [[0; LEN]; 2];
            set.mul(&mut [&mut a, &mut b], &rows, srcs);
            assert!(
                [&a[..], &b[..]] == want,
                "{}: {what} of exponents {:?}",
                set.name(),
                self.exps
            );
        }
    }

    fn lose_parity(&self) {
        let k = self.exps.len();
        let [mut p_row, mut q_row] = [vec![0; k], vec![0; k]];
        recovery::encode(&self.exps, &mut p_row, &mut q_row);
        self.assert([&p_row, &q_row], &self.sources(&[], &[]), [&self.p, &self.q], "P and Q");
    }

    fn lose_one(&self, x: usize) {
        let k = self.exps.len();
        let [mut d_row, mut other_row] = [vec![0; k], vec![0; k]];
        recovery::recover_data_from_p(&self.exps, x, &mut d_row, &mut other_row);
        let srcs = self.sources(&[x], &[&self.p]);
        self.assert([&d_row, &other_row], &srcs, [&self.data[x], &self.q], "D and Q");

        let mut block = [0; LEN];
        kernels().xor(&mut block, &srcs);
        assert!(block == self.data[x][..], "D from P by XOR");

        recovery::recover_data_from_q(&self.exps, x, &mut d_row, &mut other_row);
        let srcs = self.sources(&[x], &[&self.q]);
        self.assert([&d_row, &other_row], &srcs, [&self.data[x], &self.p], "D and P");
    }

    fn lose_two(&self, x: usize, y: usize) {
        let k = self.exps.len();
        let [mut x_row, mut y_row] = [vec![0; k], vec![0; k]];
        recovery::recover_two_data(&self.exps, x, y, &mut x_row, &mut y_row);
        let srcs = self.sources(&[x, y], &[&self.p, &self.q]);
        self.assert([&x_row, &y_row], &srcs, [&self.data[x], &self.data[y]], "D and D");
    }

    fn lose_all_there_is(&self) {
        self.lose_parity();
        for x in 0..self.exps.len() {
            self.lose_one(x);
            for y in (0..self.exps.len()).filter(|&y| y != x) {
                self.lose_two(x, y);
            }
        }
    }
}

#[test]
fn every_pair_for_every_small_k() {
    for k in 1..=16 {
        Stripe::new(&(0..k).collect::<Vec<u8>>(), k).lose_all_there_is();
    }
}

#[test]
fn every_pair_in_ddf_order() {
    // A block's exponent is its member's index; two neighbouring members hold P and Q.
    for members in 3..=12 {
        for p in 0..members {
            let q = (p + 1) % members;
            let exps: Vec<u8> = (0..members).filter(|&m| m != p && m != q).collect();
            Stripe::new(&exps, members).lose_all_there_is();
        }
    }
}

#[test]
fn the_widest_stripe() {
    let stripe = Stripe::new(&(0..253).collect::<Vec<u8>>(), 9);
    for (x, y) in [(0, 1), (0, 252), (252, 100), (127, 128)] {
        stripe.lose_one(x);
        stripe.lose_two(x, y);
    }
}

#[test]
#[should_panic(expected = "exponent 3 twice")]
fn two_blocks_with_one_exponent_are_a_bug() {
    recovery::encode(&[3, 1, 3], &mut [0; 3], &mut [0; 3]);
}

#[test]
#[should_panic(expected = "data blocks 1 and 1 of 3")]
fn losing_a_block_twice_is_a_bug() {
    recovery::recover_two_data(&[0, 1, 2], 1, 1, &mut [0; 3], &mut [0; 3]);
}

proptest! {
    #[test]
    fn any_exponents_with_holes(
        exps in proptest::sample::subsequence((0..255).collect::<Vec<u8>>(), 2..12),
        seed: u8,
    ) {
        Stripe::new(&exps, seed).lose_all_there_is();
    }

    /// A delta update of P and Q is as good as making them anew.
    #[test]
    fn a_delta_update_equals_new_parity(k in 2_u8..12, x in 0_usize..12, seed: u8) {
        let x = x % k as usize;
        let exps: Vec<u8> = (0..k).collect();
        let mut stripe = Stripe::new(&exps, seed);
        let new: Vec<u8> = stripe.data[x].iter().map(|b| b.wrapping_mul(7) ^ 0x3c).collect();
        let sources: [&[u8]; 2] = [&stripe.data[x], &new];
        let coef = gf::exp(exps[x]);
        kernels().xor_into(&mut stripe.p, &sources);
        kernels().mul_add(&mut stripe.q, &[coef, coef], &sources);
        stripe.data[x] = new;
        stripe.lose_parity();
    }
}
