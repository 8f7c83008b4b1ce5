//! Which linear combination of the surviving blocks gives the lost ones.
//!
//! Each function fills coefficient rows for [`Kernels::mul`](crate::Kernels::mul), so that every
//! loss that RAID6 survives is restored in one pass over the survivors:
//!
//! | lost | sources | call |
//! |---|---|---|
//! | D | other data, P | [`Kernels::xor`](crate::Kernels::xor) |
//! | D and Q | other data, P | [`recover_data_from_p`], `mul` with both rows |
//! | D and P (or P is not to be trusted) | other data, Q | [`recover_data_from_q`], `mul` |
//! | D and D | other data, P, Q | [`recover_two_data`], `mul` with both rows |
//! | P | data | [`Kernels::xor`](crate::Kernels::xor) |
//! | Q | data | [`encode`], `mul` with the Q row |
//! | P and Q | data | [`Kernels::pq`](crate::Kernels::pq); with holes [`encode`], `mul` |
//!
//! `exps[i]` is the exponent of data block `i` in Q: `0, 1, 2, ...` in md's own layouts, with
//! holes in the DDF ones. "Other data" are the blocks of `exps` in order without the lost ones.
//! The mathematics is that of H. P. Anvin, "The mathematics of RAID-6".

use crate::gf;

/// The rows that make P and Q of all data blocks.
///
/// # Panics
/// If a row is not as long as `exps`, or if `exps` are no exponents of one stripe (all below 255,
/// none twice).
pub fn encode(exps: &[u8], p_row: &mut [u8], q_row: &mut [u8]) {
    check_exponents(exps);
    assert!(p_row.len() == exps.len() && q_row.len() == exps.len(), "a row of the wrong length");
    p_row.fill(1);
    for (q, &e) in q_row.iter_mut().zip(exps) {
        *q = gf::exp(e);
    }
}

/// The rows that make data block `lost`, and Q, of the sources other data, P.
///
/// # Panics
/// As [`encode`], and if `lost` is not an index of `exps`. Rows have `exps.len()` coefficients:
/// one data block is gone, P has come.
pub fn recover_data_from_p(exps: &[u8], lost: usize, data_row: &mut [u8], q_row: &mut [u8]) {
    check_exponents(exps);
    let k = exps.len();
    assert!(lost < k, "data block {lost} of {k}");
    assert!(data_row.len() == k && q_row.len() == k, "a row of the wrong length");
    // D = P + sum D_i; put into Q = g^e D + sum g^i D_i.
    let own = gf::exp(exps[lost]);
    data_row.fill(1);
    for (q, e) in q_row.iter_mut().zip(others(exps, lost, lost)) {
        *q = gf::exp(e) ^ own;
    }
    q_row[k - 1] = own;
}

/// The rows that make data block `lost`, and P, of the sources other data, Q.
///
/// # Panics
/// As [`recover_data_from_p`].
pub fn recover_data_from_q(exps: &[u8], lost: usize, data_row: &mut [u8], p_row: &mut [u8]) {
    check_exponents(exps);
    let k = exps.len();
    assert!(lost < k, "data block {lost} of {k}");
    assert!(data_row.len() == k && p_row.len() == k, "a row of the wrong length");
    // D = g^-e (Q + sum g^i D_i); P = D + sum D_i.
    let scale = gf::inv(gf::exp(exps[lost]));
    for ((d, p), e) in data_row.iter_mut().zip(&mut *p_row).zip(others(exps, lost, lost)) {
        *d = gf::mul(scale, gf::exp(e));
        *p = *d ^ 1;
    }
    data_row[k - 1] = scale;
    p_row[k - 1] = scale;
}

/// The rows that make data blocks `x` and `y` of the sources other data, P, Q.
///
/// # Panics
/// As [`encode`], and if `x` and `y` are not two different indices of `exps`. Rows have
/// `exps.len()` coefficients: two data blocks are gone, P and Q have come.
pub fn recover_two_data(exps: &[u8], x: usize, y: usize, x_row: &mut [u8], y_row: &mut [u8]) {
    check_exponents(exps);
    let k = exps.len();
    assert!(x < k && y < k && x != y, "data blocks {x} and {y} of {k}");
    assert!(x_row.len() == k && y_row.len() == k, "a row of the wrong length");
    // With P' and Q' the sums over what survives: X + Y = P + P' and
    // g^x X + g^y Y = Q + Q', so X = (g^y (P + P') + Q + Q') / (g^x + g^y) and Y = X + P + P'.
    let (gx, gy) = (gf::exp(exps[x]), gf::exp(exps[y]));
    let scale = gf::inv(gx ^ gy);
    for ((cx, cy), e) in x_row.iter_mut().zip(&mut *y_row).zip(others(exps, x, y)) {
        *cx = gf::mul(scale, gy ^ gf::exp(e));
        *cy = *cx ^ 1;
    }
    x_row[k - 2] = gf::mul(scale, gy);
    y_row[k - 2] = x_row[k - 2] ^ 1;
    x_row[k - 1] = scale;
    y_row[k - 1] = scale;
}

/// The rows that make the data blocks `lost`, one or two, of the other data and then P and Q, as far as those are there
/// and needed: whether P is, and Q. None: too little is there.
///
/// # Panics
/// As the functions above. Of one lost block the second row is not meant.
pub fn recover_data(
    exps: &[u8],
    lost: &[usize],
    (has_p, has_q): (bool, bool),
    rows: [&mut [u8]; 2],
) -> Option<(bool, bool)> {
    let [first, second] = rows;
    match (lost, has_p, has_q) {
        (&[_], true, _) => {
            first.fill(1);
            Some((true, false))
        }
        (&[one], false, true) => {
            recover_data_from_q(exps, one, first, second);
            Some((false, true))
        }
        (&[one, two], true, true) => {
            recover_two_data(exps, one, two, first, second);
            Some((true, true))
        }
        _ => None,
    }
}

/// The exponents of the data blocks that survive.
fn others(exps: &[u8], x: usize, y: usize) -> impl Iterator<Item = u8> + '_ {
    exps.iter().enumerate().filter(move |&(i, _)| i != x && i != y).map(|(_, &e)| e)
}

/// Two blocks with one coefficient in Q could not be told apart: the rows would divide by zero.
fn check_exponents(exps: &[u8]) {
    let mut seen = [false; 255];
    for &e in exps {
        assert!(e < 255, "exponent {e} is g^0 again");
        assert!(!seen[e as usize], "exponent {e} twice");
        seen[e as usize] = true;
    }
}
