//! The write-intent bitmap of an array that is to be started: from all members' copies, or a file of its own.

use super::{StartIo, StartRequest};
use alloc::{vec, vec::Vec};
use lapstrake_engine::BitmapConfig;
use lapstrake_geometry::Sectors;
use lapstrake_metadata::{
    ByteOrder, Superblock,
    assemble::{Assembly, Verdict},
    bitmap::{self, BitmapError, Bits},
};
use thiserror::Error;

/// Most bytes of a bitmap that are read: md's own counters end far below.
pub const BITMAP_BYTES_MAX: u64 = 1 << 30;

/// Why a bitmap cannot be used.
#[derive(Debug, Error)]
pub enum BitmapFault<E> {
    /// What is there is no bitmap of this array.
    #[error("{error}")]
    Unusable {
        /// The member, by its device's id; none: the external bitmap's file.
        device: Option<usize>,
        /// What is wrong with it.
        error: BitmapError,
    },
    /// The member's has another chunk or covers another size than the one that is believed.
    #[error("it has another chunk or size")]
    Differs {
        /// The member, by its device's id.
        device: usize,
    },
    /// It cannot be read.
    #[error("{0}")]
    Device(E),
}

impl<E> BitmapFault<E> {
    /// Whether it may be in order for a kernel that is newer than what is known.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unusable { error, .. } if error.is_unknown())
    }
}

/// Where bitmaps are looked for.
pub(super) struct BitmapSources<'a, I: StartIo> {
    pub io: &'a I,
    pub request: &'a StartRequest<'a, I::Device>,
    /// By device.
    pub superblocks: &'a [Option<Superblock>],
    pub assembly: &'a Assembly,
}

type Found<E> = Result<(bitmap::Superblock, Bits), BitmapFault<E>>;

impl<I: StartIo> BitmapSources<'_, I> {
    /// The bitmap, if the array has one. Copies that cannot be used are added to `unread`; all bits count as set then.
    pub(super) fn read(
        &self,
        unread: &mut Vec<BitmapFault<I::Error>>,
    ) -> Result<Option<BitmapConfig>, BitmapFault<I::Error>> {
        // As Linux does; it is left over of the array that had redundancy.
        if !self.assembly.config.level.has_redundancy() {
            return Ok(None);
        }
        let external = self.request.bitmap_file.is_some();
        let read = match self.request.bitmap_file {
            Some(file) => self.read_from(None, file, 0).map(Some),
            None => self.read_internal(),
        };
        let (mut sb, mut bits) = match read {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(None),
            // Nothing is written to members, so that the array can do without an internal bitmap.
            Err(fault) if self.request.read_only && !external => {
                unread.push(fault);
                return Ok(None);
            }
            Err(fault) => return Err(fault),
        };
        // `read_from` has held the UUID against the array's.
        let is_fresh = self.check(&sb) == Ok(true);
        match is_fresh {
            true => sb.events = sb.events.max(self.freshest().events()),
            false if bits.is_lockless() => {}
            false => bits = Bits::new(&sb, true),
        }
        if !external {
            self.unite(&sb, &mut bits, unread);
        }
        if bits.is_lockless() {
            let is_parity = self.assembly.config.level.is_parity();
            bits.begin(!is_fresh, is_parity && self.assembly.found_clean);
            sb.state &= !bitmap::state::STALE;
            // Kernels keep no count of what they cleared: nobody who left before this start can catch up.
            if bits.is_first_use() || sb.events_cleared == 0 {
                sb.events_cleared = self.freshest().events();
            }
        }
        let bits_need_resync = self.assembly.resync_from.is_some() || self.assembly.degraded > 0;
        Ok(Some(BitmapConfig { superblock: sb, bits, external, bits_need_resync }))
    }

    /// The freshest member's copy, or another that is sound.
    fn read_internal(&self) -> Result<Option<(bitmap::Superblock, Bits)>, BitmapFault<I::Error>> {
        let freshest = self.assembly.freshest;
        if let Some(offset) = self.freshest().bitmap_offset_beyond() {
            let error = BitmapError::Beyond { offset };
            return Err(BitmapFault::Unusable { device: Some(freshest), error });
        }
        let Some(found) = self.read_of(freshest) else { return Ok(None) };
        if !self.request.read_only {
            self.refuse_unknown()?;
        }
        let others = self.assembly.members.iter().flatten();
        let sound = |&id: &usize| self.read_of(id)?.ok();
        found.or_else(|fault| others.into_iter().find_map(sound).ok_or(fault)).map(Some)
    }

    /// No copy is written over of which nobody knows what it says.
    fn refuse_unknown(&self) -> Result<(), BitmapFault<I::Error>> {
        let verdicts = self.assembly.verdicts.iter();
        let taken = verdicts.filter(|(_, verdict)| !matches!(verdict, Verdict::Left(_)));
        let mut faults = taken.filter_map(|&(id, _)| self.read_of(id)?.err());
        faults.find(BitmapFault::is_unknown).map_or(Ok(()), Err)
    }

    /// Sets the bits that any member's copy has: a member that failed before that was put on record lacks those that
    /// were set since. So may any but one that cannot be read.
    fn unite(
        &self,
        sb: &bitmap::Superblock,
        bits: &mut Bits,
        unread: &mut Vec<BitmapFault<I::Error>>,
    ) {
        let shape = |sb: &bitmap::Superblock| (sb.version, sb.chunksize, sb.sync_size);
        for &id in self.assembly.members.iter().flatten() {
            match self.read_of(id) {
                None => continue,
                Some(Ok((its, others))) if shape(&its) == shape(sb) => {
                    bits.unite(&others);
                    continue;
                }
                Some(Ok(_)) => unread.push(BitmapFault::Differs { device: id }),
                Some(Err(fault)) => {
                    unread.push(fault);
                    if self.request.read_only {
                        continue;
                    }
                }
            }
            *bits = Bits::new(sb, true);
        }
    }

    /// The copy of device `id`; None if its superblock tells of none.
    fn read_of(&self, id: usize) -> Option<Found<I::Error>> {
        let sector = self.superblocks[id].as_ref()?.bitmap_sector()?;
        Some(self.read_from(Some(id), &self.request.devices[id], sector.bytes()))
    }

    fn freshest(&self) -> &Superblock {
        self.superblock(self.assembly.freshest)
    }

    fn superblock(&self, id: usize) -> &Superblock {
        self.superblocks[id].as_ref().expect("it is in the array")
    }

    /// Whether the bitmap can be trusted.
    fn check(&self, sb: &bitmap::Superblock) -> Result<bool, BitmapError> {
        sb.check_array(self.freshest().bitmap_uuid(), self.assembly.found_events)
    }

    /// This array's bitmap at byte `start` of the member `id`, or of the external bitmap's file.
    fn read_from(&self, id: Option<usize>, source: &I::Device, start: u64) -> Found<I::Error> {
        let unusable = |error| BitmapFault::Unusable { device: id, error };
        let read = |len: u64| {
            let mut bytes = vec![0; len as usize];
            self.io.read(source, start, &mut bytes).map_err(BitmapFault::Device)?;
            Ok::<_, BitmapFault<I::Error>>(bytes)
        };
        let held = self.io.size(source).saturating_sub(start);
        let mut sb = bitmap::Superblock::parse(&read(held.min(256))?).map_err(unusable)?;
        sb.unknown().map_or(Ok(()), Err).map_err(unusable)?;
        if sb.sync_size == 0 {
            return Err(unusable(BitmapError::Empty));
        }
        self.check(&sb).map_err(unusable)?;
        // As in the kernel there is a bit for all of the array, whatever the bitmap says of its size.
        sb.sync_size = sb.sync_size.max(self.freshest().sync_size().0);
        let room = held.min(BITMAP_BYTES_MAX);
        let beside = match (id, sb.is_lockless()) {
            (None, true) => return Err(unusable(BitmapError::Version { found: sb.version })),
            (None, false) => None,
            (Some(id), true) => self.superblock(id).lockless_room(),
            (Some(id), false) => self.superblock(id).bitmap_room(),
        };
        let found = beside.map_or(room, |beside| room.min(beside.bytes()));
        if let Some(first) = sb.begin_use(Sectors::from_bytes(found)) {
            let bits = Bits::first_use(&sb, first);
            return Ok((sb, bits));
        }
        let needed = sb.image_bytes();
        if found < needed {
            return Err(unusable(BitmapError::Truncated { found, needed }));
        }
        // Such bits are in the order of the machine that wrote them.
        let is_turned = sb.version == bitmap::VERSION_HOST_ENDIAN
            && self.freshest().byte_order() == ByteOrder::Big;
        if is_turned {
            let bits = Bits::new(&sb, true);
            return Ok((sb, bits));
        }
        let bits = Bits::from_image(&sb, &read(needed)?).map_err(unusable)?;
        bits.unknown_state().map_or(Ok(()), Err).map_err(unusable)?;
        Ok((sb, bits))
    }
}
