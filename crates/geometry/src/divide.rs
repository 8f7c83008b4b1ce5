//! Division by a number that is mostly, but not always, a power of two: RAID0 takes any chunk.

/// A divisor, kept with its shift when it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Divisor {
    by: u64,
    /// `log2(by)`, or [`NO_SHIFT`].
    shift: u32,
}

const NO_SHIFT: u32 = u32::MAX;

impl Divisor {
    /// `by` must not be zero.
    pub(crate) fn new(by: u64) -> Divisor {
        assert!(by != 0, "division by zero");
        let shift = if by.is_power_of_two() { by.trailing_zeros() } else { NO_SHIFT };
        Divisor { by, shift }
    }

    /// The divisor itself.
    #[inline]
    pub(crate) fn get(self) -> u64 {
        self.by
    }

    /// Quotient and remainder.
    #[inline]
    pub(crate) fn div_rem(self, number: u64) -> (u64, u64) {
        if self.shift != NO_SHIFT {
            (number >> self.shift, number & (self.by - 1))
        } else {
            (number / self.by, number % self.by)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shift_and_division_agree() {
        for by in 1..40 {
            for number in [0, 1, by - 1, by, by + 1, 12_345, u64::MAX] {
                assert_eq!(Divisor::new(by).div_rem(number), (number / by, number % by));
            }
        }
    }
}
