//! Products with a constant, in the forms that vector instructions take.

/// The products of each coefficient with the low nibbles 0..16 and with the high nibbles
/// 0x00, 0x10, ..., 0xf0: two look-ups and an XOR make a product.
#[cfg(any(
    test,
    all(target_arch = "x86_64", target_feature = "sse2"),
    all(target_arch = "aarch64", target_feature = "neon")
))]
pub(crate) static NIBBLES: [[[u8; 16]; 2]; 256] = {
    let mut tables = [[[0; 16]; 2]; 256];
    let mut coef = 0;
    while coef < 256 {
        let mut n = 0;
        while n < 16 {
            tables[coef][0][n] = crate::gf::mul(coef as u8, n as u8);
            tables[coef][1][n] = crate::gf::mul(coef as u8, (n as u8) << 4);
            n += 1;
        }
        coef += 1;
    }
    tables
};

/// Each coefficient as the bit matrix that GF2P8AFFINEQB applies: byte 7 - i of the quadword is the
/// row for bit i of the product, bit j of a row the term of bit j of the operand (Intel SDM,
/// GF2P8AFFINEQB).
#[cfg(any(test, all(target_arch = "x86_64", target_feature = "sse2")))]
pub(crate) static AFFINE: [u64; 256] = {
    let mut tables = [0; 256];
    let mut coef = 0;
    while coef < 256 {
        let mut column = 0;
        while column < 8 {
            let product = crate::gf::mul(coef as u8, 1 << column);
            let mut row = 0;
            while row < 8 {
                let bit = (product >> row & 1) as u64;
                tables[coef] |= bit << ((7 - row) * 8 + column);
                row += 1;
            }
            column += 1;
        }
        coef += 1;
    }
    tables
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nibbles_and_matrices_make_the_products() {
        for coef in 0..=255_u8 {
            let [low, high] = &NIBBLES[coef as usize];
            let matrix = AFFINE[coef as usize].to_be_bytes();
            for value in 0..=255_u8 {
                let product = crate::gf::mul(coef, value);
                assert_eq!(low[value as usize & 15] ^ high[value as usize >> 4], product);
                let parity = |row: u8| (row & value).count_ones() as u8 & 1;
                let affine = (0..8).fold(0, |sum, i| sum | parity(matrix[i]) << i);
                assert_eq!(affine, product, "{coef} * {value}");
            }
        }
    }
}
