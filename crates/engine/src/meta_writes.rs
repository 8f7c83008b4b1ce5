//! Metadata writes: those that the world is to begin, and what each that it has begun is of.
//!
//! Invariants:
//! - a number names one write from [`MetaWrites::send`] to [`MetaWrites::end`];
//! - but for bitmap pages and headers of a backup, one write of each kind is on its way to a target at a time: of two the older could come last.

use crate::supervisor::{MetaWrite, Target, WriteId};
use alloc::{collections::VecDeque, vec::Vec};
use lapstrake_geometry::Sector;

/// What a metadata write is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meta {
    Superblock,
    Bitmap,
    BadBlocks,
    /// The empty unit of a stop.
    Journal,
    /// The header of a reshape's backup, or its copy.
    Backup,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct MetaWrites {
    queue: VecDeque<MetaWrite>,
    /// Those that have not ended, by number.
    in_flight: Vec<Option<(Target, Meta)>>,
}

impl MetaWrites {
    /// Queues a write of this kind, and whether it vouches. The data is filled up with zeros to whole sectors.
    pub(crate) fn send(
        &mut self,
        target: Target,
        sector: Sector,
        mut data: Vec<u8>,
        (meta, vouches): (Meta, bool),
    ) {
        let is_many = matches!(meta, Meta::Bitmap | Meta::Backup);
        let is_alone = is_many || !self.is_on_its_way(target, meta);
        assert!(is_alone, "two writes of {meta:?} to {target:?} could overtake each other");
        data.resize(data.len().next_multiple_of(512), 0);
        let free = self.in_flight.iter().position(Option::is_none);
        let at = free.unwrap_or(self.in_flight.len());
        if free.is_none() {
            self.in_flight.push(None);
        }
        self.in_flight[at] = Some((target, meta));
        self.queue.push_back(MetaWrite { id: WriteId(at as u32), target, sector, data, vouches });
    }

    /// The next one for the world to begin.
    pub(crate) fn poll(&mut self) -> Option<MetaWrite> {
        self.queue.pop_front()
    }

    /// A write is stable, has failed, or was dropped: where it went and what it was of. None if that was told before.
    pub(crate) fn end(&mut self, id: WriteId) -> Option<(Target, Meta)> {
        self.in_flight[id.0 as usize].take()
    }

    /// Whether a write of this kind to this target has not ended.
    pub(crate) fn is_on_its_way(&self, target: Target, meta: Meta) -> bool {
        self.in_flight.contains(&Some((target, meta)))
    }

    /// Whether a write of this kind to any target has not ended.
    pub(crate) fn is_any_of(&self, meta: Meta) -> bool {
        self.in_flight.iter().flatten().any(|write| write.1 == meta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::MemberId;

    const FIRST: Target = Target::Member(MemberId(0));
    const SECOND: Target = Target::Member(MemberId(1));

    fn sent(writes: &mut MetaWrites, target: Target, meta: Meta) -> WriteId {
        writes.send(target, Sector(8), [1; 100].to_vec(), (meta, true));
        writes.poll().expect("it was sent").id
    }

    #[test]
    fn a_number_is_used_again_only_when_its_write_has_ended() {
        let mut writes = MetaWrites::default();
        let first = sent(&mut writes, FIRST, Meta::Superblock);
        let second = sent(&mut writes, SECOND, Meta::Superblock);
        assert_ne!(first, second);
        assert_eq!(writes.end(first), Some((FIRST, Meta::Superblock)));
        assert_eq!(writes.end(first), None);
        assert_eq!(sent(&mut writes, FIRST, Meta::BadBlocks), first);
        assert_eq!(writes.end(second), Some((SECOND, Meta::Superblock)));
        assert!(writes.is_any_of(Meta::BadBlocks) && !writes.is_any_of(Meta::Superblock));
    }

    #[test]
    fn what_is_written_are_whole_sectors_in_the_order_sent() {
        let mut writes = MetaWrites::default();
        writes.send(FIRST, Sector(8), [1; 513].to_vec(), (Meta::Bitmap, true));
        writes.send(FIRST, Sector(16), [2; 512].to_vec(), (Meta::Bitmap, true));
        let first = writes.poll().expect("it was sent");
        assert_eq!((first.sector, first.data.len(), first.data[513]), (Sector(8), 1024, 0));
        assert_eq!(writes.poll().map(|write| write.data.len()), Some(512));
        assert!(writes.poll().is_none());
    }

    #[test]
    #[should_panic(expected = "could overtake each other")]
    fn two_logs_are_not_on_their_way_to_one_member() {
        let mut writes = MetaWrites::default();
        sent(&mut writes, FIRST, Meta::BadBlocks);
        sent(&mut writes, SECOND, Meta::BadBlocks);
        sent(&mut writes, FIRST, Meta::BadBlocks);
    }
}
