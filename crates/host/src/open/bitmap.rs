//! The write-intent bitmap of an array that is to be started: from all members' copies, or a file of its own.

use super::{BITMAP_BYTES_MAX, OpenArrayError, read_error};
use lapstrake_device::Member;
use lapstrake_engine::IntentConfig;
use lapstrake_geometry::{Sector, Sectors};
use lapstrake_metadata::{
    ByteOrder, Superblock,
    assemble::{Assembly, Verdict},
    bitmap::{self, BitmapError, Bits},
};
use std::sync::Arc;

/// Where bitmaps are looked for.
pub(super) struct Sources<'a> {
    /// The external bitmap.
    pub file: Option<&'a Arc<Member>>,
    pub devices: &'a [Arc<Member>],
    /// Of each device.
    pub superblocks: &'a [Option<Superblock>],
    pub assembly: &'a Assembly,
    /// Nothing is written to members, so that the array can do without an internal bitmap.
    pub may_lack: bool,
}

type Found = Result<(bitmap::Superblock, Bits), OpenArrayError>;

impl Sources<'_> {
    /// The bitmap, if the array has one. Copies that cannot be used are added to `unread`, with the reason; all bits
    /// count as set then.
    pub fn read(&self, unread: &mut Vec<String>) -> Result<Option<IntentConfig>, OpenArrayError> {
        let read = match self.file {
            Some(file) => self.read_from(file, 0).map(Some),
            None => self.read_internal(),
        };
        let (mut sb, mut bits) = match read {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(None),
            Err(error) if self.may_lack && self.file.is_none() => {
                unread.push(reason(&error));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // `read_from` has held the UUID against the array's.
        let is_fresh = self.check(&sb) == Ok(true);
        match is_fresh {
            true => sb.events = sb.events.max(self.freshest().events()),
            false if bits.is_lockless() => {}
            false => bits = Bits::new(&sb, true),
        }
        if self.file.is_none() {
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
        let external = self.file.is_some();
        Ok(Some(IntentConfig { superblock: sb, bits, external, bits_need_resync }))
    }

    /// The freshest member's copy, or another that is sound.
    fn read_internal(&self) -> Result<Option<(bitmap::Superblock, Bits)>, OpenArrayError> {
        let freshest = self.assembly.freshest;
        if let Some(offset) = self.freshest().bitmap_offset_beyond() {
            let place = self.devices[freshest].spec().to_string();
            return Err(OpenArrayError::Bitmap { place, error: BitmapError::Beyond { offset } });
        }
        let Some(found) = self.read_of(freshest) else { return Ok(None) };
        if !self.may_lack {
            self.refuse_unknown()?;
        }
        let others = self.assembly.members.iter().flatten();
        let sound = |&id: &usize| self.read_of(id)?.ok();
        found.or_else(|error| others.into_iter().find_map(sound).ok_or(error)).map(Some)
    }

    /// No copy is written over of which nobody knows what it says.
    fn refuse_unknown(&self) -> Result<(), OpenArrayError> {
        let verdicts = self.assembly.verdicts.iter();
        let taken = verdicts.filter(|(_, verdict)| !matches!(verdict, Verdict::Left(_)));
        let errors = taken.filter_map(|&(id, _)| self.read_of(id)?.err());
        let is_unknown = |error: &OpenArrayError| match error {
            OpenArrayError::Bitmap { error, .. } => error.is_unknown(),
            _ => false,
        };
        errors.into_iter().find(is_unknown).map_or(Ok(()), Err)
    }

    /// Sets the bits that any member's copy has: a member that failed before that was put on record lacks those that
    /// were set since. So may any but one that cannot be read.
    fn unite(&self, sb: &bitmap::Superblock, bits: &mut Bits, unread: &mut Vec<String>) {
        for &id in self.assembly.members.iter().flatten() {
            match self.read_of(id) {
                None => continue,
                Some(Ok((its, others)))
                    if (its.version, its.chunksize, its.sync_size)
                        == (sb.version, sb.chunksize, sb.sync_size) =>
                {
                    bits.unite(&others);
                    continue;
                }
                Some(Ok(_)) => {
                    unread
                        .push(format!("{}: it has another chunk or size", self.devices[id].spec()));
                }
                Some(Err(error)) => {
                    unread.push(reason(&error));
                    if self.may_lack {
                        continue;
                    }
                }
            }
            *bits = Bits::new(sb, true);
        }
    }

    /// The copy of device `id`; None if its superblock tells of none.
    fn read_of(&self, id: usize) -> Option<Found> {
        let sector = self.superblocks[id].as_ref()?.bitmap_sector()?;
        Some(self.read_from(&self.devices[id], sector.bytes()))
    }

    fn freshest(&self) -> &Superblock {
        self.superblocks[self.assembly.freshest].as_ref().expect("it is the freshest")
    }

    /// Whether the bitmap can be trusted.
    fn check(&self, sb: &bitmap::Superblock) -> Result<bool, BitmapError> {
        sb.check_array(self.freshest().bitmap_uuid(), self.assembly.found_events)
    }

    /// This array's bitmap at byte `start` of `source`.
    fn read_from(&self, source: &Arc<Member>, start: u64) -> Found {
        let place = source.spec().to_string();
        let unusable = |error| OpenArrayError::Bitmap { place: place.clone(), error };
        let read = |len: u64| {
            let mut bytes = vec![0; len as usize];
            source.read_at(start, &mut bytes).map_err(|error| read_error(source, error))?;
            Ok::<_, OpenArrayError>(bytes)
        };
        let held = source.size().saturating_sub(start);
        let mut sb = bitmap::Superblock::parse(&read(held.min(256))?).map_err(unusable)?;
        sb.unknown().map_or(Ok(()), Err).map_err(unusable)?;
        if sb.sync_size == 0 {
            return Err(unusable(BitmapError::Empty));
        }
        self.check(&sb).map_err(unusable)?;
        // As in the kernel there is a bit for all of the array, whatever the bitmap says of its size.
        sb.sync_size = sb.sync_size.max(self.freshest().sync_size().0);
        let room = held.min(BITMAP_BYTES_MAX);
        let beside = match (self.file, sb.is_lockless()) {
            (Some(_), true) => return Err(unusable(BitmapError::Version { found: sb.version })),
            (Some(_), false) => None,
            (None, true) => self.freshest().lockless_room(),
            (None, false) => self.freshest().bitmap_room(),
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

/// Why a bitmap cannot be used, without what is to be done where there is no other.
pub(super) fn reason(error: &OpenArrayError) -> String {
    match error {
        OpenArrayError::Bitmap { place, error } => format!("{place}: {error}"),
        OpenArrayError::Read { member, source } => format!("{member}: cannot read it: {source}"),
        error => error.to_string(),
    }
}

/// Whether states of a lockless bitmap lie where the bad-block log does, as mdadm 4.6 has it.
pub(super) fn is_log_within_bitmap(device: &Member, superblock: &Superblock) -> bool {
    let mut head = [0; bitmap::Superblock::SIZE];
    let at = superblock.bitmap_sector().map(Sector::bytes);
    let is_read = at.is_some_and(|at| device.read_at(at, &mut head).is_ok());
    let found = bitmap::Superblock::parse(&head).ok().filter(|sb| is_read && sb.is_lockless());
    found.is_some_and(|sb| superblock.is_log_within(sb.image_bytes()))
}
