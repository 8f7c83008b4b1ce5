//! RAID4, RAID5 and RAID6: addresses in stripes.
//!
//! A stripe is the row of chunks with one number on all members, at `stripe * chunk` on each. It
//! holds `data_disks` chunks of the array in sequence, and P (and Q). Which slot has which is in
//! [`crate::stripe`]; [`Parity::slots`] answers all such questions about a stripe at the cost
//! of one division.

use crate::config::Config;
use crate::error::GeometryError;
use crate::layout::Layout;
use crate::level::Level;
use crate::parity_layout::ParityLayout;
use crate::run::{Content, Run};
use crate::stripe::{StripeRole, StripeSlots};
use crate::units::{MAX_SECTORS, Sector, Sectors, Slot, StripeNo};

/// A RAID4, RAID5 or RAID6 array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parity {
    level: Level,
    layout: ParityLayout,
    raid_disks: u16,
    data_disks: u16,
    chunk_shift: u32,
    stripes: u64,
}

impl Parity {
    pub(crate) fn new(config: &Config) -> Result<Parity, GeometryError> {
        let layout = match config.layout {
            Layout::Parity(layout) => layout,
            _ => ParityLayout::ParityLast,
        };
        config.check_power_of_two_chunk()?;
        let (level, found) = (config.level, config.raid_disks);
        // A chunk's coefficient is that of its slot there, and 256 would share 255.
        use ParityLayout::{DdfNContinue, DdfNRestart, DdfZeroRestart};
        if matches!(layout, DdfZeroRestart | DdfNRestart | DdfNContinue) && found > 255 {
            let min = level.min_members();
            return Err(GeometryError::MemberCount { level, found, min, max: 255 });
        }
        let parity_disks = if config.level == Level::Raid6 { 2 } else { 1 };
        let parity = Parity {
            level: config.level,
            layout,
            raid_disks: config.raid_disks,
            data_disks: config.raid_disks - parity_disks,
            chunk_shift: config.chunk.0.trailing_zeros(),
            stripes: config.component.0 / config.chunk.0,
        };
        if parity.stripes == 0 {
            return Err(GeometryError::NoRoom { component: config.component });
        }
        if config.component.round_down(config.chunk).0 > MAX_SECTORS.0 / parity.data_disks as u64 {
            return Err(GeometryError::TooLarge);
        }
        Ok(parity)
    }

    /// The level: 4, 5 or 6.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The layout; parity-last for RAID4.
    pub fn layout(&self) -> ParityLayout {
        self.layout
    }

    /// Members of the array.
    pub fn raid_disks(&self) -> u16 {
        self.raid_disks
    }

    /// Chunks of data in a stripe.
    #[inline]
    pub fn data_disks(&self) -> u16 {
        self.data_disks
    }

    /// Chunks of parity in a stripe, which is also the number of members that may be missing.
    #[inline]
    pub fn parity_disks(&self) -> u16 {
        self.raid_disks - self.data_disks
    }

    /// Chunk size, a power of two.
    #[inline]
    pub fn chunk(&self) -> Sectors {
        Sectors(1 << self.chunk_shift)
    }

    /// Data in a stripe: chunk times data disks.
    #[inline]
    pub fn stripe_data(&self) -> Sectors {
        self.chunk() * self.data_disks as u64
    }

    /// Number of stripes.
    #[inline]
    pub fn stripes(&self) -> u64 {
        self.stripes
    }

    /// Size of the array.
    pub fn array_sectors(&self) -> Sectors {
        self.stripe_data() * self.stripes
    }

    /// Sectors of each member that the array uses.
    pub fn used(&self) -> Sectors {
        self.chunk() * self.stripes
    }

    /// Stripe, index of the data chunk in it and offset in the chunk, of an array sector. An
    /// address past the array's end gives a stripe that is not there.
    #[inline]
    pub fn locate(&self, sector: Sector) -> (StripeNo, u16, Sectors) {
        let chunk = sector.0 >> self.chunk_shift;
        let (stripe, index) = (chunk / self.data_disks as u64, chunk % self.data_disks as u64);
        (StripeNo(stripe), index as u16, self.offset(sector))
    }

    /// The array sector of a place in a stripe: [`Parity::locate`] backwards.
    #[inline]
    pub fn array_sector(&self, stripe: StripeNo, data_index: u16, offset: Sectors) -> Sector {
        let chunk = stripe.0 * self.data_disks as u64 + data_index as u64;
        Sector((chunk << self.chunk_shift) + offset.0)
    }

    /// The sector on each member, relative to its data offset, of a place in a stripe.
    #[inline]
    pub fn member_sector(&self, stripe: StripeNo, offset: Sectors) -> Sector {
        Sector((stripe.0 << self.chunk_shift) + offset.0)
    }

    /// Stripe and offset in the chunk, of a member's sector: [`Parity::member_sector`] backwards.
    #[inline]
    pub fn stripe_at(&self, member: Sector) -> (StripeNo, Sectors) {
        (StripeNo(member.0 >> self.chunk_shift), self.offset(member))
    }

    /// Who holds what in a stripe.
    #[inline]
    pub fn slots(&self, stripe: StripeNo) -> StripeSlots {
        if self.level == Level::Raid6 {
            StripeSlots::double(self.layout, self.raid_disks, stripe)
        } else {
            StripeSlots::single(self.layout, self.raid_disks, stripe)
        }
    }

    /// The slot of a stripe's data chunk.
    #[inline]
    pub fn slot_of_data(&self, stripe: StripeNo, data_index: u16) -> Slot {
        self.slots(stripe).data(data_index)
    }

    /// The slot of a stripe's P.
    #[inline]
    pub fn slot_of_p(&self, stripe: StripeNo) -> Slot {
        self.slots(stripe).p()
    }

    /// The slot of a stripe's Q, in RAID6.
    #[inline]
    pub fn slot_of_q(&self, stripe: StripeNo) -> Option<Slot> {
        self.slots(stripe).q()
    }

    /// The power of g = 2 with which a data chunk enters Q; see [`StripeSlots::q_exponent`].
    #[inline]
    pub fn q_exponent(&self, stripe: StripeNo, data_index: u16) -> u8 {
        self.slots(stripe).q_exponent(data_index)
    }

    /// What a slot holds of a stripe.
    #[inline]
    pub fn role(&self, stripe: StripeNo, slot: Slot) -> StripeRole {
        self.slots(stripe).role(slot)
    }

    /// Where an array sector's data is, and how far its chunk goes on. Panics past the array's end.
    #[inline]
    pub fn map(&self, sector: Sector) -> Run {
        let (stripe, index, offset) = self.locate(sector);
        assert!(stripe.0 < self.stripes, "{sector} is past the array's end");
        let slot = self.slot_of_data(stripe, index);
        Run::single(self.chunk().0 - offset.0, slot.0, self.member_sector(stripe, offset).0)
    }

    /// What a member's sector holds. Panics if there is no such slot.
    pub fn content(&self, slot: Slot, sector: Sector) -> Content {
        assert!(slot.0 < self.raid_disks, "no {slot}");
        let (stripe, offset) = self.stripe_at(sector);
        if stripe.0 >= self.stripes {
            return Content::Unused;
        }
        match self.role(stripe, slot) {
            StripeRole::Data(index) => Content::Data(self.array_sector(stripe, index, offset)),
            StripeRole::P => Content::P(stripe),
            StripeRole::Q => Content::Q(stripe),
        }
    }

    #[inline]
    fn offset(&self, sector: Sector) -> Sectors {
        Sectors(sector.0 & (self.chunk().0 - 1))
    }
}
