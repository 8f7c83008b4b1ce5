//! What of an array lies in holes of its members' files, and so reads as zeros, whoever is asked.
//!
//! Invariant: a range is told as a hole only if every member that a read of it may go to has a hole there. What a member
//! that lacks data, or could not be read, would have to give is no hole; nor is what is recovered from others. As a read
//! of what others own, a question is answered only after the shard has heard all that it had been told when it came.

use lapstrake_device::Member;
use lapstrake_engine::{MemberId, Shard};
use lapstrake_geometry::Sector;
use lapstrake_volumes::Map;
use std::ops::Range;
use std::sync::Arc;

/// How often members' files are asked for one answer: each time may cost a read of a file system's own blocks.
const LOOKS_MAX: usize = 512;
/// Parts of the array that are looked at for one answer.
const PARTS_MAX: usize = 1 << 14;

/// A run of bytes that is a hole, or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub len: u64,
    /// It reads as zeros, and takes no room.
    pub is_hole: bool,
}

/// A client's question.
#[derive(Debug)]
struct Question {
    client: usize,
    id: u64,
    range: Range<u64>,
}

/// What clients have asked, and answers that they have not fetched.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    open: Vec<Question>,
    answers: Vec<(usize, u64, Vec<Extent>)>,
}

impl Questions {
    pub(crate) fn ask(&mut self, client: usize, id: u64, range: Range<u64>) {
        self.open.push(Question { client, id, range });
    }

    pub(crate) fn are_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Answers all that are open; without a shard that finds every sector, by nothing. Tells whose, by what name.
    pub(crate) fn answer<'d>(
        &mut self,
        shard: Option<&Shard>,
        device: &impl Fn(MemberId) -> Option<&'d Arc<Member>>,
        view: Option<&Map>,
    ) -> Vec<(usize, u64)> {
        let mut answered = Vec::new();
        for Question { client, id, range } in self.open.drain(..) {
            let extents = shard.map(|shard| {
                let mut lookup = Lookup::new(shard, device);
                lookup.look(range, view);
                lookup.found
            });
            self.answers.push((client, id, extents.unwrap_or_default()));
            answered.push((client, id));
        }
        answered
    }

    pub(crate) fn take(&mut self, client: usize, id: u64) -> Vec<Extent> {
        let is_it = |answer: &(usize, u64, Vec<Extent>)| (answer.0, answer.1) == (client, id);
        let at = self.answers.iter().position(is_it);
        at.map(|at| self.answers.swap_remove(at).2).unwrap_or_default()
    }

    /// The client is gone.
    pub(crate) fn forget(&mut self, client: usize) {
        self.answers.retain(|answer| answer.0 != client);
    }
}

/// What a member's file said last.
struct Known {
    member: MemberId,
    range: Range<u64>,
    is_hole: bool,
}

/// The search for one answer. See the module.
struct Lookup<'a, D> {
    shard: &'a Shard,
    device: &'a D,
    known: Vec<Known>,
    looks_left: usize,
    parts_left: usize,
    found: Vec<Extent>,
}

impl<'a, 'd, D: Fn(MemberId) -> Option<&'d Arc<Member>>> Lookup<'a, D> {
    fn new(shard: &'a Shard, device: &'a D) -> Self {
        let (looks_left, parts_left) = (LOOKS_MAX, PARTS_MAX);
        Self { shard, device, known: Vec::new(), looks_left, parts_left, found: Vec::new() }
    }

    /// Looks at bytes of the array, or of what is shown of it.
    fn look(&mut self, range: Range<u64>, view: Option<&Map>) {
        let Some(view) = view else { return self.look_at(range) };
        for piece in view.pieces(range) {
            self.look_at(piece.place.offset..piece.place.offset + piece.len);
        }
    }

    fn look_at(&mut self, range: Range<u64>) {
        let mut at = range.start;
        while at < range.end && self.looks_left > 0 && self.parts_left > 0 {
            self.parts_left -= 1;
            let (sources, sectors) =
                self.shard.sources(Sector(at / 512), (range.end - at).div_ceil(512));
            let mut len = (sectors * 512).min(range.end - at);
            let mut is_hole = !sources.is_empty();
            for (member, sector) in sources {
                let (hole, until) = self.member(member, sector.0 * 512);
                is_hole &= hole;
                if hole {
                    len = len.min(until - sector.0 * 512);
                }
                if !is_hole {
                    // It ends where this member's data does, or earlier: that is looked at then.
                    len = len.min(until - sector.0 * 512);
                    break;
                }
            }
            self.add(Extent { len, is_hole });
            at += len;
        }
        if at < range.end {
            // What follows is not to be taken for what follows this.
            (self.looks_left, self.parts_left) = (0, 0);
        }
    }

    /// Whether a member has a hole at a byte, and how far that or the data reaches.
    fn member(&mut self, member: MemberId, at: u64) -> (bool, u64) {
        let place = self.known.iter().position(|known| known.member == member);
        if let Some(known) = place.map(|place| &self.known[place])
            && known.range.contains(&at)
        {
            return (known.is_hole, known.range.end);
        }
        self.looks_left = self.looks_left.saturating_sub(1);
        let found = (self.device)(member).and_then(|device| device.hole_at(at).ok());
        // In whole sectors; at its end, or past it, nothing is a hole.
        let whole = |(is_hole, end): (bool, u64)| match is_hole {
            true => (true, end - end % 512),
            false => (false, end.next_multiple_of(512)),
        };
        let found = found.map(whole).filter(|found| found.1 > at);
        let (is_hole, end) = found.unwrap_or((false, u64::MAX));
        let known = Known { member, range: at..end, is_hole };
        match place {
            Some(place) => self.known[place] = known,
            None => self.known.push(known),
        }
        (is_hole, end)
    }

    fn add(&mut self, extent: Extent) {
        match self.found.last_mut() {
            Some(last) if last.is_hole == extent.is_hole => last.len += extent.len,
            _ => self.found.push(extent),
        }
    }
}
