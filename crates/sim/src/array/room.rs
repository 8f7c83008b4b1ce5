//! Writes that an array holds at once.
//!
//! Invariants: writes go in the order in which they came, each with all its blocks; one goes whatever its size if none
//! is under way.

use lapstrake_model::Request;
use std::collections::{BTreeMap, VecDeque};

pub(super) struct Room {
    blocks_max: u64,
    waiting: VecDeque<Request>,
    /// Blocks of writes under way, by tag.
    writes: BTreeMap<u64, u64>,
    under_way: u64,
}

impl Room {
    pub(super) fn new(blocks_max: u64) -> Self {
        Self { blocks_max, waiting: VecDeque::new(), writes: BTreeMap::new(), under_way: 0 }
    }

    pub(super) fn wait(&mut self, write: Request) {
        self.waiting.push_back(write);
    }

    /// The next write, if there is room for it.
    pub(super) fn next(&mut self) -> Option<Request> {
        let has_room = |write: &&Request| {
            self.under_way == 0 || self.under_way + write.blocks <= self.blocks_max
        };
        let write = *self.waiting.front().filter(has_room)?;
        self.waiting.pop_front();
        // Without a bound nothing is kept of them.
        if self.blocks_max < u64::MAX {
            self.under_way += write.blocks;
            self.writes.insert(write.tag, write.blocks);
        }
        Some(write)
    }

    /// A request has been answered.
    pub(super) fn ended(&mut self, tag: u64) {
        self.under_way -= self.writes.remove(&tag).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapstrake_model::Op;

    #[test]
    fn writes_wait_for_room_in_their_order() {
        let write = |tag, blocks| Request { tag, op: Op::Write, lba: 0, blocks };
        let mut room = Room::new(16);
        for (tag, blocks) in [(0, 8), (1, 8), (2, 99), (3, 8)] {
            room.wait(write(tag, blocks));
        }
        let next = |room: &mut Room| room.next().map(|write| write.tag);
        assert_eq!([next(&mut room), next(&mut room), next(&mut room)], [Some(0), Some(1), None]);
        room.ended(0);
        assert_eq!(next(&mut room), None, "it is larger than the room, and goes alone");
        room.ended(1);
        assert_eq!([next(&mut room), next(&mut room)], [Some(2), None]);
        room.ended(77);
        room.ended(2);
        assert_eq!(next(&mut room), Some(3));
    }
}
