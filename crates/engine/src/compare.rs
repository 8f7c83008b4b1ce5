//! What a check compares, page by page, and whom it suspects.
//!
//! The world holds the bytes, so the world runs a [`Comparison`] and brings back what it found.
//! With P and Q one wrong block of a stripe can be told from the others, as raid6check does; with
//! three copies or more the one that stands alone. Anything less only shows that there is a difference.

use crate::{op::OpKey, scratch::PAGE_BYTES, sync::UnitKey, types::*};
use alloc::vec::Vec;
use lapstrake_parity::{Kernels, gf};
use smallvec::SmallVec;

/// Names a comparison; comes back in [`crate::Shard::handle_compared`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CompareId(pub(crate) Compared);

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    Op(OpKey),
    Unit(UnitKey),
}

/// Buffers that should agree. All have the length, which is at most that of the largest operation.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// For the answer.
    pub id: CompareId,
    pub(crate) what: Subject,
    pub(crate) len: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// Data blocks with their coefficients in Q, and the parities that are there.
    Parity {
        data: Bufs,
        coefs: Coefs,
        p: Option<Buf>,
        q: Option<Buf>,
    },
    Copies(Bufs),
}

/// Who is wrong about a page.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Suspect {
    /// It cannot be told.
    Unknown,
    /// The data block, or the copy, of this index.
    Block(u16),
    /// The P block.
    P,
    /// The Q block.
    Q,
}

/// A page that does not agree.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Pages from the buffers' start.
    pub page: u32,
    /// Who is wrong.
    pub suspect: Suspect,
    /// Of copies the one to go by: the first, unless more others agree with each other.
    pub right: u16,
}

impl Comparison {
    /// Bytes that it reads, and whether they are multiplied for Q.
    #[must_use]
    pub fn work(&self) -> (u64, bool) {
        let (buffers, has_q) = match &self.what {
            Subject::Parity { data, p, q, .. } => {
                (data.len() + usize::from(p.is_some()) + usize::from(q.is_some()), q.is_some())
            }
            Subject::Copies(copies) => (copies.len(), false),
        };
        (buffers as u64 * u64::from(self.len), has_q)
    }

    /// Compares. `bytes` gives a buffer's memory.
    pub fn run<'a>(&self, kernels: &Kernels, bytes: impl Fn(Buf, u32) -> &'a [u8]) -> Vec<Finding> {
        let mut found = Vec::new();
        for page in 0..self.len.div_ceil(PAGE_BYTES) {
            let at = page * PAGE_BYTES;
            let len = PAGE_BYTES.min(self.len - at);
            let part = |buf: Buf| bytes(buf.advance(at), len);
            let result = match &self.what {
                Subject::Parity { data, coefs, p, q } => {
                    let data: SmallVec<[&[u8]; 16]> = data.iter().map(|&b| part(b)).collect();
                    compare_parity(kernels, &data, coefs, p.map(part), q.map(part)).map(|s| (s, 0))
                }
                Subject::Copies(bufs) => {
                    let copies: SmallVec<[&[u8]; 16]> = bufs.iter().map(|&b| part(b)).collect();
                    compare_copies(&copies)
                }
            };
            found.extend(result.map(|(suspect, right)| Finding { page, suspect, right }));
        }
        found
    }
}

fn compare_parity(
    kernels: &Kernels,
    data: &[&[u8]],
    coefs: &[u8],
    p: Option<&[u8]>,
    q: Option<&[u8]>,
) -> Option<Suspect> {
    let mut syndromes = [[0; PAGE_BYTES as usize]; 2];
    let [off_p, off_q] = &mut syndromes;
    if let Some(p) = p {
        let off_p = &mut off_p[..p.len()];
        off_p.copy_from_slice(p);
        kernels.xor_into(off_p, data);
    }
    if let Some(q) = q {
        let off_q = &mut off_q[..q.len()];
        off_q.copy_from_slice(q);
        kernels.mul_add(off_q, coefs, data);
    }
    let differs = |syndrome: &[u8]| syndrome.iter().any(|&byte| byte != 0);
    if !differs(off_p) && !differs(off_q) {
        return None;
    }
    let both = p.is_some() && q.is_some();
    Some(if both { locate(off_p, off_q, coefs) } else { Suspect::Unknown })
}

/// One wrong block D_i leaves e in P's syndrome and g^i e in Q's, for each byte with the same i.
fn locate(off_p: &[u8], off_q: &[u8], coefs: &[u8]) -> Suspect {
    let mut one = None;
    for (&p, &q) in off_p.iter().zip(off_q) {
        let suspect = match (p, q) {
            (0, 0) => continue,
            (_, 0) => Suspect::P,
            (0, _) => Suspect::Q,
            (p, q) => match coefs.iter().position(|&coef| gf::mul(coef, p) == q) {
                Some(index) => Suspect::Block(index as u16),
                None => return Suspect::Unknown,
            },
        };
        if *one.get_or_insert(suspect) != suspect {
            return Suspect::Unknown;
        }
    }
    one.unwrap_or(Suspect::Unknown)
}

fn compare_copies(copies: &[&[u8]]) -> Option<(Suspect, u16)> {
    if copies.windows(2).all(|pair| pair[0] == pair[1]) {
        return None;
    }
    let agreeing = |copy: &[u8]| copies.iter().filter(|&&other| other == copy).count();
    let most = copies.iter().map(|copy| agreeing(copy)).max()?;
    let right = copies.iter().position(|copy| agreeing(copy) == most)?;
    let suspect = match copies.iter().position(|&copy| copy != copies[right]) {
        Some(wrong) if copies.len() > 2 && most + 1 == copies.len() => Suspect::Block(wrong as u16),
        _ => Suspect::Unknown,
    };
    Some((suspect, right as u16))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapstrake_parity::kernels;

    #[test]
    fn one_wrong_block_of_a_stripe_is_found() {
        let coefs = [gf::exp(0), gf::exp(1), gf::exp(2), gf::exp(3)];
        let data: [[u8; 512]; 4] =
            core::array::from_fn(|i| core::array::from_fn(|at| (at * (i + 3) % 251) as u8));
        let (mut p, mut q) = ([0; 512], [0; 512]);
        let list =
            |data: &[[u8; 512]; 4]| -> Vec<Vec<u8>> { data.iter().map(|d| d.to_vec()).collect() };
        let check = |data: &[[u8; 512]; 4], p: &[u8], q: &[u8]| {
            let data = list(data);
            let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            compare_parity(kernels(), &data, &coefs, Some(p), Some(q))
        };
        let whole: Vec<Vec<u8>> = list(&data);
        let whole: Vec<&[u8]> = whole.iter().map(Vec::as_slice).collect();
        kernels().pq(&mut p, &mut q, &whole);
        assert_eq!(check(&data, &p, &q), None);
        for wrong in 0..4 {
            let mut data = data;
            data[wrong][7] ^= 0x41;
            data[wrong][300] ^= 0x9d;
            assert_eq!(check(&data, &p, &q), Some(Suspect::Block(wrong as u16)));
        }
        let (mut bad_p, mut bad_q) = (p, q);
        bad_p[9] ^= 1;
        assert_eq!(check(&data, &bad_p, &q), Some(Suspect::P));
        bad_q[9] ^= 1;
        assert_eq!(check(&data, &p, &bad_q), Some(Suspect::Q));
        bad_q[8] ^= 1;
        assert_eq!(check(&data, &bad_p, &bad_q), Some(Suspect::Unknown), "two blocks are wrong");
    }

    #[test]
    fn of_three_copies_the_odd_one_is_found() {
        let (a, b, c) = ([1; 8], [2; 8], [3; 8]);
        assert_eq!(compare_copies(&[&a, &a, &a]), None);
        assert_eq!(compare_copies(&[&a, &b]), Some((Suspect::Unknown, 0)));
        assert_eq!(compare_copies(&[&b, &a, &a]), Some((Suspect::Block(0), 1)));
        assert_eq!(compare_copies(&[&a, &a, &b]), Some((Suspect::Block(2), 0)));
        assert_eq!(compare_copies(&[&a, &b, &c]), Some((Suspect::Unknown, 0)));
    }
}
