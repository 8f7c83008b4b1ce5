//! The hold of sequential writers: which incomplete stripes wait for neighbours, and how long.
//!
//! The last, incomplete stripe of a sequential writer with several writes in flight is held back
//! while more may be on their way: [`HOLD_NS`], and up to [`HOLD_NS_MAX`] while its caller receives
//! another request or operations run whose replies may bring one; where the writer's own earlier
//! writes are among them up to [`HOLD_NS_SLOW`], since hard disks take longer for a stripe than a
//! caller for its next request. It is let go at once when none
//! can come: nothing runs, the writer's depth is reached and nothing is being received. A writer
//! whose neighbour did not come is not held for a while ([`REST`]).
//!
//! Invariants:
//! - a stripe that is held has a time at which it is looked at again, so that none is held for ever;
//! - of a stream no more writes are in flight than its depth says.
//!
//! Stripes are numbers here. Who lets a stripe go launches it; who launches one lets it go.

use crate::types::{RequestKind, Time};
use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::mem;

/// How long an incomplete stripe of a sequential writer waits for neighbours without a sign of them.
const HOLD_NS: u64 = 500_000;
/// How long at all: time to receive a large payload on a busy machine.
const HOLD_NS_MAX: u64 = 3_000_000;
/// How long while earlier writes of the same writer are under way: what slow members take for them.
const HOLD_NS_SLOW: u64 = 100_000_000;
/// Writers that are told apart, by where their last writes ended.
const STREAMS: usize = 8;
/// So many writes of a writer are not held after one was held in vain.
const REST: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    since: Time,
    stream: StreamId,
}

/// Names a [`Stream`]; others come to take its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamId(u32);

/// Writes of which each goes on where another ended.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    id: StreamId,
    /// Where the last one ended.
    end: u64,
    in_flight: u32,
    /// The most in flight, since the last hold in vain; 0: there was none yet.
    depth: u32,
    /// Writes that are not to be held.
    rest: u32,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct WriteHolds {
    held: BTreeMap<u64, Hold>,
    /// When to look at a held stripe again, in order; stale when the stripe's hold is another.
    due: VecDeque<(Time, u64, Hold)>,
    streams: [Stream; STREAMS],
    streams_seen: u32,
    /// What the latest request said.
    followed: bool,
    is_off: bool,
}

impl WriteHolds {
    /// Holds nothing from now on.
    pub(crate) fn turn_off(&mut self) {
        self.is_off = true;
    }

    /// A request has come; it says whether another is being received behind it.
    pub(crate) fn request_came(&mut self, kind: RequestKind) {
        self.followed = matches!(kind, RequestKind::Write { followed: true, .. });
    }

    /// Takes a write into the stream that it goes on, or begins one. `known`: it is in that one already, and this is a
    /// later window of it. True if it may wait for neighbours; `begins_stripe`: it starts where a stripe does.
    pub(crate) fn join(
        &mut self,
        known: Option<StreamId>,
        (start, end): (u64, u64),
        followed: bool,
        begins_stripe: bool,
    ) -> (StreamId, bool) {
        let (id, goes_on) = match known {
            Some(id) => (id, true),
            None => self.join_stream(start, end),
        };
        let is_off = self.is_off;
        let Some(stream) = self.stream(id) else { return (id, false) };
        stream.end = end;
        let in_company = stream.in_flight > 1 && stream.rest == 0;
        // A writer that comes from another shard's span begins a stripe here.
        let goes_on = goes_on || begins_stripe;
        (id, !is_off && goes_on && (in_company || followed))
    }

    fn join_stream(&mut self, start: u64, end: u64) -> (StreamId, bool) {
        let known = self.streams.iter().position(|stream| stream.end == start && stream.depth > 0);
        let at = known.unwrap_or(self.streams_seen as usize % STREAMS);
        let stream = &mut self.streams[at];
        if known.is_none() {
            self.streams_seen = self.streams_seen.wrapping_add(1);
            *stream = Stream { id: StreamId(self.streams_seen), ..Stream::default() };
        }
        stream.end = end;
        stream.in_flight += 1;
        stream.depth = stream.depth.max(stream.in_flight);
        stream.rest = stream.rest.saturating_sub(1);
        (stream.id, known.is_some())
    }

    fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.streams.iter_mut().find(|stream| stream.id == id && stream.depth > 0)
    }

    /// A write of a stream has ended.
    pub(crate) fn leave(&mut self, id: StreamId) {
        if let Some(stream) = self.stream(id) {
            assert!(stream.in_flight > 0, "a write ends that did not join its stream");
            stream.in_flight -= 1;
        }
    }

    /// Holds a stripe for a write of this stream, unless it is held.
    pub(crate) fn hold(&mut self, now: Time, stripe: u64, stream: StreamId) {
        self.held.entry(stripe).or_insert_with(|| {
            let hold = Hold { since: now, stream };
            self.due.push_back((now.after(HOLD_NS), stripe, hold));
            hold
        });
    }

    pub(crate) fn is_held(&self, stripe: u64) -> bool {
        self.held.contains_key(&stripe)
    }

    /// A stripe waits for nobody any more.
    pub(crate) fn let_go(&mut self, stripe: u64) {
        self.held.remove(&stripe);
    }

    /// When to call [`Self::release_due`].
    pub(crate) fn next(&self) -> Option<Time> {
        self.due.front().map(|due| due.0)
    }

    /// Lets stripes go whose time has come, and gives them. `has_ops`: operations run; `held_writes`: how many writes
    /// a stripe has that is held.
    pub(crate) fn release_due(
        &mut self,
        now: Time,
        has_ops: bool,
        held_writes: impl Fn(u64) -> usize,
    ) -> Vec<u64> {
        let mut released = Vec::new();
        let is_hopeful = self.followed || has_ops;
        while let Some(&(due, stripe, hold)) = self.due.front() {
            let is_held = self.held.get(&stripe) == Some(&hold);
            if due > now && is_held {
                break;
            }
            self.due.pop_front();
            if !is_held {
                continue;
            }
            // Whether writes of the stream are under way besides those that the stripe holds.
            let awaits_answers = self
                .stream(hold.stream)
                .is_some_and(|stream| stream.in_flight as usize > held_writes(stripe));
            let most = if awaits_answers { HOLD_NS_SLOW } else { HOLD_NS_MAX };
            if is_hopeful && now < hold.since.after(most) {
                self.due.push_back((now.after(HOLD_NS), stripe, hold));
                continue;
            }
            // No neighbour came in time: the writer's depth is less than was thought.
            if let Some(stream) = self.stream(hold.stream) {
                stream.depth = stream.in_flight.max(1);
                stream.rest = REST;
            }
            self.followed = false;
            self.let_go(stripe);
            released.push(stripe);
        }
        self.assert_looked_at();
        released
    }

    /// Lets stripes go of whose streams no more writes can be expected than are in flight, unless a request is being
    /// received; gives them. Called when nothing runs.
    pub(crate) fn release_complete(&mut self) -> Vec<u64> {
        if self.followed || self.due.is_empty() { Vec::new() } else { self.release(false) }
    }

    /// Lets all stripes go, and gives them.
    pub(crate) fn release_all(&mut self) -> Vec<u64> {
        self.release(true)
    }

    fn release(&mut self, all: bool) -> Vec<u64> {
        let mut released = Vec::new();
        for (due, stripe, hold) in mem::take(&mut self.due) {
            if self.held.get(&stripe) != Some(&hold) {
                continue;
            }
            let is_all_here =
                self.stream(hold.stream).is_none_or(|stream| stream.in_flight >= stream.depth);
            if all || is_all_here {
                self.let_go(stripe);
                released.push(stripe);
            } else {
                self.due.push_back((due, stripe, hold));
            }
        }
        self.assert_looked_at();
        released
    }

    fn assert_looked_at(&self) {
        assert!(self.held.len() <= self.due.len(), "a stripe is held that nobody looks at again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRIPE: u64 = 3;

    /// Two writes of a writer, of which the second is held in a stripe.
    fn held() -> (WriteHolds, StreamId) {
        let mut holds = WriteHolds::default();
        let (stream, may_hold) = holds.join(None, (0, 8), false, false);
        assert!(!may_hold, "nothing shows yet that it is sequential");
        let again = holds.join(None, (8, 16), false, false);
        assert_eq!(again, (stream, true));
        holds.hold(Time(0), STRIPE, stream);
        assert_eq!(holds.next(), Some(Time(HOLD_NS)));
        (holds, stream)
    }

    #[test]
    fn a_stripe_waits_no_longer_than_its_time() {
        let (mut holds, _) = held();
        assert_eq!(holds.release_due(Time(HOLD_NS - 1), false, |_| 2), []);
        assert!(holds.is_held(STRIPE));
        assert_eq!(holds.release_due(Time(HOLD_NS), false, |_| 2), [STRIPE]);
        assert!(!holds.is_held(STRIPE));
        assert_eq!(holds.next(), None);
    }

    #[test]
    fn it_waits_longer_while_replies_may_bring_a_neighbour() {
        for (writes, most) in [(2, HOLD_NS_MAX), (1, HOLD_NS_SLOW)] {
            let (mut holds, _) = held();
            let mut now = HOLD_NS;
            while now < most {
                assert_eq!(holds.release_due(Time(now), true, |_| writes), [], "at {now}");
                now += HOLD_NS;
            }
            assert_eq!(holds.release_due(Time(most), true, |_| writes), [STRIPE]);
        }
    }

    #[test]
    fn a_writer_that_was_held_in_vain_rests() {
        let (mut holds, stream) = held();
        holds.release_due(Time(HOLD_NS), false, |_| 2);
        for write in 2..REST as u64 + 2 {
            let joined = holds.join(None, (write * 8, write * 8 + 8), false, false);
            assert_eq!(joined, (stream, write == u64::from(REST) + 1), "write {write}");
            holds.leave(stream);
        }
    }

    #[test]
    fn a_stripe_goes_when_its_writers_depth_is_reached() {
        let (mut holds, stream) = held();
        holds.leave(stream);
        assert_eq!(holds.release_complete(), [], "another may come");
        holds.join(None, (16, 24), false, false);
        assert_eq!(holds.release_complete(), [STRIPE]);
    }

    #[test]
    fn a_stripe_stays_while_a_request_is_being_received_unless_all_go() {
        let (mut holds, _) = held();
        holds.request_came(RequestKind::Write {
            buf: crate::Buf::ZERO,
            fua: false,
            followed: true,
        });
        assert_eq!(holds.release_complete(), []);
        assert_eq!(holds.release_all(), [STRIPE]);
    }

    #[test]
    fn what_was_let_go_and_is_held_anew_has_its_time_from_then_on() {
        let (mut holds, stream) = held();
        holds.let_go(STRIPE);
        holds.hold(Time(9), STRIPE, stream);
        assert_eq!(holds.release_due(Time(HOLD_NS), false, |_| 2), []);
        assert_eq!(holds.release_due(Time(HOLD_NS + 9), false, |_| 2), [STRIPE]);
    }

    #[test]
    fn writers_that_come_from_another_span_begin_a_stripe() {
        let mut holds = WriteHolds::default();
        assert!(holds.join(None, (0, 8), true, true).1);
        assert!(!WriteHolds::default().join(None, (0, 8), true, false).1, "goes on nothing");
        holds.turn_off();
        assert!(!holds.join(None, (8, 16), true, true).1);
    }
}
