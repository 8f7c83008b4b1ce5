//! Units of the crate: addresses, lengths and the numbers that name things.
//!
//! An address ([`Sector`]) and a length ([`Sectors`]) are different types, so that adding two
//! addresses does not compile. The arithmetic is plain `u64`: it overflows as `u64` does. No
//! value in a checked geometry comes near that, since its sizes are at most [`MAX_SECTORS`].

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Mul, Sub, SubAssign};

/// Bytes in a sector: md counts in units of 512 bytes whatever the device's own block is.
pub const SECTOR_BYTES: u64 = 512;

/// Largest size, in sectors, that a member or an array may have: the kernel's file offsets are
/// signed 64-bit byte counts.
pub const MAX_SECTORS: Sectors = Sectors(i64::MAX as u64 / SECTOR_BYTES);

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

number! {
    /// An address in sectors: in the array, or on a member relative to its data offset. Each
    /// function says which.
    Sector(u64), "sector {}"
}
/// A length or a size in sectors. It is told in KiB, the unit in which users give sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sectors(pub u64);

impl fmt::Display for Sectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} KiB", self.0 / 2, if self.0.is_multiple_of(2) { "" } else { ".5" })
    }
}

number! {
    /// A member's role number in the array, in `0..raid_disks`.
    Slot(u16), "slot {}"
}
number! {
    /// Number of a stripe: the row of chunks with one number on all members.
    StripeNo(u64), "stripe {}"
}

impl Sector {
    /// The address in bytes.
    pub const fn bytes(self) -> u64 {
        self.0 * SECTOR_BYTES
    }
}

impl Sectors {
    /// No sectors at all.
    pub const ZERO: Sectors = Sectors(0);

    /// The length in bytes.
    pub const fn bytes(self) -> u64 {
        self.0 * SECTOR_BYTES
    }

    /// As many whole sectors as `bytes` holds.
    pub const fn from_bytes(bytes: u64) -> Sectors {
        Sectors(bytes / SECTOR_BYTES)
    }

    /// As many sectors as `kib` kibibytes are.
    pub const fn from_kib(kib: u64) -> Sectors {
        Sectors(kib.saturating_mul(2))
    }

    /// Is this no sector at all?
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The largest multiple of `unit` that is not above this length; the length itself when
    /// `unit` is zero, which is how md says "no rounding".
    pub const fn round_down(self, unit: Sectors) -> Sectors {
        if unit.0 == 0 { self } else { Sectors(self.0 - self.0 % unit.0) }
    }
}

impl Slot {
    /// The slot as an index into a per-slot table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Add<Sectors> for Sector {
    type Output = Sector;
    fn add(self, by: Sectors) -> Sector {
        Sector(self.0 + by.0)
    }
}

impl AddAssign<Sectors> for Sector {
    fn add_assign(&mut self, by: Sectors) {
        self.0 += by.0;
    }
}

impl Sub<Sectors> for Sector {
    type Output = Sector;
    fn sub(self, by: Sectors) -> Sector {
        Sector(self.0 - by.0)
    }
}

impl Sub for Sector {
    type Output = Sectors;
    fn sub(self, from: Sector) -> Sectors {
        Sectors(self.0 - from.0)
    }
}

impl Add for Sectors {
    type Output = Sectors;
    fn add(self, other: Sectors) -> Sectors {
        Sectors(self.0 + other.0)
    }
}

impl AddAssign for Sectors {
    fn add_assign(&mut self, other: Sectors) {
        self.0 += other.0;
    }
}

impl Sub for Sectors {
    type Output = Sectors;
    fn sub(self, other: Sectors) -> Sectors {
        Sectors(self.0 - other.0)
    }
}

impl SubAssign for Sectors {
    fn sub_assign(&mut self, other: Sectors) {
        self.0 -= other.0;
    }
}

impl Mul<u64> for Sectors {
    type Output = Sectors;
    fn mul(self, times: u64) -> Sectors {
        Sectors(self.0 * times)
    }
}

impl Sum for Sectors {
    fn sum<I: Iterator<Item = Sectors>>(items: I) -> Sectors {
        Sectors(items.map(|length| length.0).sum())
    }
}
