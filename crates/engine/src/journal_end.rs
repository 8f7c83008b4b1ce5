//! Where a journal ends, and the empty unit that is written there when the array stops.
//!
//! Without that unit the next start would replay what has reached the members long ago. Shards tell where the ring
//! ends while nothing in it is needed; at a stop an empty unit is written there, and then the superblock says that the
//! ring begins at it.
//!
//! Invariants:
//! - the superblock says that the ring begins at the empty unit only after that is stable;
//! - one empty unit is written for each end that shards tell of, unless its write was dropped.

/// The next unit's place in the ring: sectors from the journal's data offset, and its sequence number.
pub(crate) type UnitPlace = (u64, u64);

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct JournalEnd {
    /// Where the next unit would go, while nothing in the journal is needed.
    known: Option<UnitPlace>,
    /// Where an empty unit is being written. No superblock is sent meanwhile, so that one update says that the array is
    /// clean and where the journal begins.
    emptying: Option<UnitPlace>,
}

impl JournalEnd {
    /// What the shard says: all has reached the members, or that is no longer so.
    pub(crate) fn told(&mut self, end: Option<UnitPlace>) {
        self.known = end;
    }

    /// An empty unit is on its way.
    pub(crate) fn is_emptying(&self) -> bool {
        self.emptying.is_some()
    }

    /// Where an empty unit is to be written now, if anywhere.
    pub(crate) fn begin(&mut self) -> Option<UnitPlace> {
        if !self.is_emptying() {
            self.emptying = self.known.take();
            return self.emptying;
        }
        None
    }

    /// The empty unit is stable, or its device has failed: where the ring begins from now on, if that has changed.
    pub(crate) fn written(&mut self, ok: bool) -> Option<u64> {
        let (position, _) = self.emptying.take().expect("an empty unit is on its way");
        ok.then_some(position)
    }

    /// The empty unit was not written at all; it is still to be.
    pub(crate) fn dropped(&mut self) {
        assert!(self.is_emptying(), "an empty unit is on its way");
        self.known = self.emptying.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_unit_is_written_once_where_the_ring_ends() {
        let mut end = JournalEnd::default();
        assert_eq!(end.begin(), None);
        end.told(Some((64, 7)));
        assert_eq!(end.begin(), Some((64, 7)));
        assert!(end.is_emptying());
        assert_eq!(end.begin(), None);
        assert_eq!(end.written(true), Some(64));
        assert!(!end.is_emptying());
        assert_eq!(end.begin(), None);
    }

    #[test]
    fn what_is_needed_again_is_not_emptied() {
        let mut end = JournalEnd::default();
        end.told(Some((64, 7)));
        end.told(None);
        assert_eq!(end.begin(), None);
    }

    #[test]
    fn a_unit_that_was_dropped_is_written_later() {
        let mut end = JournalEnd::default();
        end.told(Some((64, 7)));
        end.begin();
        end.dropped();
        assert!(!end.is_emptying());
        assert_eq!(end.begin(), Some((64, 7)));
    }

    #[test]
    fn where_a_device_fails_the_ring_begins_where_it_did() {
        let mut end = JournalEnd::default();
        end.told(Some((64, 7)));
        end.begin();
        assert_eq!(end.written(false), None);
        assert_eq!(end.begin(), None);
    }
}
