//! The rules of RAID4, RAID5 and RAID6: which slot of one stripe holds P, Q and each data chunk.
//!
//! Every rule of md comes down to one formula for the slot of data chunk `i`:
//! `base + i`, plus `step` from `i = turn` on (in 16-bit wrapping arithmetic). A symmetric layout
//! starts at `base` and wraps round at the last slot; an asymmetric one starts at 0 and steps over
//! the parity.
//!
//! Invariant: P, Q and the data chunks of a stripe are on different slots, which together are
//! all slots of the array.

use crate::parity_layout::ParityLayout;
use crate::units::{Slot, StripeNo};

/// What a slot holds of one stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StripeRole {
    /// The data chunk with this index, in `0..data_disks`.
    Data(u16),
    /// The XOR of the data.
    P,
    /// The second syndrome.
    Q,
}

/// The slots of one stripe. Made by one division; its answers need none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeSlots {
    raid_disks: u16,
    p: u16,
    /// [`NO_SLOT`] in RAID4 and RAID5.
    q: u16,
    base: u16,
    turn: u16,
    step: u16,
    ddf: bool,
}

const NO_SLOT: u16 = u16::MAX;

impl StripeSlots {
    /// RAID4 (`layout` parity-last) or RAID5 on `n` members.
    #[inline]
    pub(crate) fn single(layout: ParityLayout, n: u16, stripe: StripeNo) -> StripeSlots {
        use ParityLayout::*;
        let turn = (stripe.0 % n as u64) as u16;
        match layout {
            LeftAsymmetric | LeftAsymmetric6 => StripeSlots::over(n, n - 1 - turn, NO_SLOT),
            RightAsymmetric | RightAsymmetric6 => StripeSlots::over(n, turn, NO_SLOT),
            LeftSymmetric | LeftSymmetric6 => StripeSlots::round(n, n - 1 - turn, NO_SLOT),
            RightSymmetric | RightSymmetric6 => StripeSlots::round(n, turn, NO_SLOT),
            ParityFirst | ParityFirst6 => StripeSlots::over(n, 0, NO_SLOT),
            ParityLast => StripeSlots::over(n, n - 1, NO_SLOT),
            DdfZeroRestart | DdfNRestart | DdfNContinue => unreachable!("a layout of RAID6 only"),
        }
    }

    /// RAID6 on `n` members.
    #[inline]
    pub(crate) fn double(layout: ParityLayout, n: u16, stripe: StripeNo) -> StripeSlots {
        use ParityLayout::*;
        let turn = |stripe: u64| (stripe % n as u64) as u16;
        let next = |slot: u16| if slot + 1 == n { 0 } else { slot + 1 };
        let over = |p| StripeSlots::over(n, p, next(p));
        let round = |p| StripeSlots::round(n, p, next(p));
        match layout {
            LeftAsymmetric => over(n - 1 - turn(stripe.0)),
            RightAsymmetric => over(turn(stripe.0)),
            LeftSymmetric => round(n - 1 - turn(stripe.0)),
            RightSymmetric => round(turn(stripe.0)),
            ParityFirst => over(0),
            ParityLast => over(n - 2),
            DdfZeroRestart => over(turn(stripe.0)).with_ddf(),
            DdfNRestart => over(n - 1 - turn(stripe.0 + 1)).with_ddf(),
            DdfNContinue => {
                let p = n - 1 - turn(stripe.0);
                let q = if p == 0 { n - 1 } else { p - 1 };
                StripeSlots { q, ..StripeSlots::round(n, p, NO_SLOT) }.with_ddf()
            }
            LeftAsymmetric6 | RightAsymmetric6 | LeftSymmetric6 | RightSymmetric6
            | ParityFirst6 => {
                let inner = StripeSlots::single(layout, n - 1, stripe);
                StripeSlots { raid_disks: n, q: n - 1, ..inner }
            }
        }
    }

    /// Data from slot 0 up, stepping over P and a Q that follows it.
    #[inline]
    fn over(n: u16, p: u16, q: u16) -> StripeSlots {
        // With P last, Q is first: data starts at slot 1 and ends before P.
        let (turn, step) = match q {
            0 => (0, 1),
            NO_SLOT => (p, 1),
            _ => (p, 2),
        };
        StripeSlots { raid_disks: n, p, q, base: 0, turn, step, ddf: false }
    }

    /// Data from the slot after the parity on, round through slot 0.
    #[inline]
    fn round(n: u16, p: u16, q: u16) -> StripeSlots {
        let last = if q == NO_SLOT { p } else { q };
        let base = if last + 1 == n { 0 } else { last + 1 };
        let (turn, step) = (n - base, 0u16.wrapping_sub(n));
        StripeSlots { raid_disks: n, p, q, base, turn, step, ddf: false }
    }

    #[inline]
    fn with_ddf(self) -> StripeSlots {
        StripeSlots { ddf: true, ..self }
    }

    /// The slot of P.
    #[inline]
    pub fn p(&self) -> Slot {
        Slot(self.p)
    }

    /// The slot of Q, in RAID6.
    #[inline]
    pub fn q(&self) -> Option<Slot> {
        (self.q != NO_SLOT).then_some(Slot(self.q))
    }

    /// The slot of data chunk `index`, which must be below the number of data disks.
    #[inline]
    pub fn data(&self, index: u16) -> Slot {
        let step = if index >= self.turn { self.step } else { 0 };
        Slot(self.base.wrapping_add(index).wrapping_add(step))
    }

    /// What `slot`, one of the array's, holds.
    #[inline]
    pub fn role(&self, slot: Slot) -> StripeRole {
        if slot.0 == self.p {
            return StripeRole::P;
        }
        if slot.0 == self.q {
            return StripeRole::Q;
        }
        let before = slot.0.wrapping_sub(self.base);
        if before < self.turn {
            StripeRole::Data(before)
        } else {
            StripeRole::Data(before.wrapping_sub(self.step))
        }
    }

    /// The power of g = 2 with which data chunk `index` enters Q; 0 without a Q.
    ///
    /// md counts data disks from the slot after Q on, round; DDF counts slots from 0 on, those of
    /// P and Q too, so that the powers in use have holes.
    #[inline]
    pub fn q_exponent(&self, index: u16) -> u8 {
        if self.q == NO_SLOT {
            return 0;
        }
        let slot = self.data(index).0;
        if self.ddf {
            return slot as u8;
        }
        let steps =
            |to: u16| if to > self.q { to - self.q - 1 } else { to + self.raid_disks - self.q - 1 };
        (steps(slot) - u16::from(steps(self.p) < steps(slot))) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    fn each(mut check: impl FnMut(u16, u16, StripeSlots)) {
        for stripe in 0..40 {
            for layout in ParityLayout::all() {
                for n in 4..12 {
                    check(n, n - 2, StripeSlots::double(layout, n, StripeNo(stripe)));
                }
                if layout <= ParityLayout::ParityLast {
                    for n in 2..12 {
                        check(n, n - 1, StripeSlots::single(layout, n, StripeNo(stripe)));
                    }
                }
            }
        }
    }

    #[test]
    fn a_stripe_fills_every_slot_once_and_roles_lead_back() {
        each(|n, data, slots| {
            let mut roles: Vec<StripeRole> = (0..n).map(|slot| slots.role(Slot(slot))).collect();
            assert_eq!(roles[slots.p().index()], StripeRole::P);
            if let Some(q) = slots.q() {
                assert_eq!(roles[q.index()], StripeRole::Q);
            }
            for index in 0..data {
                let slot = slots.data(index);
                assert_eq!(roles[slot.index()], StripeRole::Data(index), "{slots:?}");
                roles[slot.index()] = StripeRole::P;
            }
        });
    }

    #[test]
    fn powers_in_q_differ_and_are_dense_unless_ddf() {
        each(|_, data, slots| {
            let mut powers: Vec<u8> = (0..data).map(|index| slots.q_exponent(index)).collect();
            powers.sort();
            if slots.q().is_none() {
                assert!(powers.iter().all(|&power| power == 0));
            } else if slots.ddf {
                assert!(powers.windows(2).all(|pair| pair[0] < pair[1]));
            } else {
                assert!(powers.iter().copied().eq(0..data as u8));
            }
        });
    }
}
