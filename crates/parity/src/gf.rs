//! Arithmetic in GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d) and g = 2.
//!
//! The tables are computed at compile time. Byte by byte this is the reference for every vector
//! kernel; it is also what the recovery coefficients are made with.

/// The polynomial without its x^8 term: what a byte is reduced by when it is doubled.
pub(crate) const REDUCTION: u8 = 0x1d;

/// g^0, g^1, ... repeated, so that the sum of two logarithms needs no reduction modulo 255.
const EXP: [u8; 512] = {
    let mut table = [0; 512];
    let mut value = 1;
    let mut n = 0;
    while n < table.len() {
        table[n] = value;
        value = double(value);
        n += 1;
    }
    table
};

/// The n with g^n equal to the index; index 0 has none and is never looked up.
const LOG: [u8; 256] = {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 255 {
        table[EXP[n] as usize] = n as u8;
        n += 1;
    }
    table
};

/// g * a.
pub(crate) const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 != 0 { REDUCTION } else { 0 }
}

/// g^n, the coefficient in Q of the data block with exponent `n`. g^255 is g^0.
#[inline]
pub const fn exp(n: u8) -> u8 {
    EXP[n as usize]
}

/// The n with g^n = a, below 255; 0 has none.
#[inline]
pub(crate) const fn log(a: u8) -> Option<u8> {
    if a == 0 { None } else { Some(LOG[a as usize]) }
}

/// a * b.
#[inline]
pub const fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[LOG[a as usize] as usize + LOG[b as usize] as usize]
}

/// 1 / a.
///
/// # Panics
/// If `a` is 0, which has no inverse.
#[inline]
pub const fn inv(a: u8) -> u8 {
    assert!(a != 0, "0 has no inverse in GF(2^8)");
    EXP[255 - LOG[a as usize] as usize]
}

/// a / b.
///
/// # Panics
/// If `b` is 0.
#[inline]
pub const fn div(a: u8, b: u8) -> u8 {
    mul(a, inv(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplication as the definition has it: shift and add.
    fn slow_mul(mut a: u8, b: u8) -> u8 {
        let mut sum = 0;
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                sum ^= a;
            }
            a = double(a);
        }
        sum
    }

    #[test]
    fn every_product_matches_shift_and_add() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), slow_mul(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn every_quotient_undoes_its_product() {
        for a in 0..=255 {
            for b in 1..=255 {
                assert_eq!(div(mul(a, b), b), a, "{a} * {b}");
            }
        }
    }

    #[test]
    fn g_generates_every_nonzero_byte() {
        let mut seen = [false; 256];
        for n in 0..255 {
            seen[exp(n) as usize] = true;
        }
        assert!(!seen[0] && seen[1..].iter().all(|&s| s));
        assert_eq!(exp(255), 1);
        assert_eq!(exp(8), REDUCTION);
    }
}
