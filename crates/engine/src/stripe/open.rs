//! The stripes that are being worked on: what waits in each, and which of its rows are locked.
//!
//! Invariants:
//! - locks of a stripe are disjoint height ranges, one for each running operation of the stripe;
//! - a stripe that is held has fragments, and is not queued;
//! - a stripe that nothing waits in and nobody has locked is not kept;
//! - who found too little memory is tried again before who comes later.

use super::{Frag, FragOwner, Slices, StreamId};
use crate::{hold::WriteHolds, op::OpKind, request::ReqKey, types::*};
use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    vec::Vec,
};
use core::mem;
use lapstrake_geometry::StripeNo;
use smallvec::SmallVec;

pub(super) type Frags = SmallVec<[Frag; 4]>;

#[derive(Debug, Default)]
struct Stripe {
    frags: Frags,
    locks: SmallVec<[(u32, u32); 4]>,
    queued: bool,
}

/// Whether an operation may begin on rows of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    Taken,
    /// Another operation has some of the rows.
    Busy,
    /// Others wait for memory. In turn, or an operation that needs much would wait for ever behind small ones.
    OutOfTurn,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Stripes {
    open: BTreeMap<u64, Stripe>,
    ready: VecDeque<u64>,
    waiting_for_memory: VecDeque<u64>,
    /// Stripes in which lost blocks cannot be recovered, since a write of them was cut off.
    lost: BTreeSet<u64>,
    holds: WriteHolds,
}

impl Stripes {
    pub(crate) fn new(lost: Vec<StripeNo>) -> Self {
        Self { lost: lost.into_iter().map(|stripe| stripe.0).collect(), ..Self::default() }
    }

    /// Nothing can be recovered in this stripe.
    pub(crate) fn lose(&mut self, stripe: StripeNo) {
        self.lost.insert(stripe.0);
    }

    pub(crate) fn is_lost(&self, stripe: StripeNo) -> bool {
        self.lost.contains(&stripe.0)
    }

    /// Whether stripes wait to be launched.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next stripe to be launched. [`Self::take`] follows.
    pub(super) fn next_ready(&mut self) -> Option<u64> {
        self.ready.pop_front()
    }

    /// Adds a fragment. The stripe is to be queued or held after that.
    pub(super) fn add(&mut self, number: u64, frag: Frag) {
        self.open.entry(number).or_default().frags.push(frag);
    }

    /// Turns a group into fragments again.
    pub(super) fn put_back(&mut self, number: u64, kind: OpKind, slices: &Slices) {
        let stripe = self.open.entry(number).or_default();
        for slice in slices {
            stripe.frags.extend(slice.srcs.iter().map(|src| Frag {
                owner: src.owner,
                part: src.part,
                lo: slice.lo,
                hi: slice.hi,
                buf: src.buf,
                write: kind != OpKind::Read,
            }));
        }
    }

    pub(super) fn queue(&mut self, number: u64) {
        self.holds.let_go(number);
        let stripe = self.open.entry(number).or_default();
        if !mem::replace(&mut stripe.queued, true) {
            self.ready.push_back(number);
        }
    }

    /// Queues a stripe, unless it is incomplete and may wait for more of a stream. `stripe_data`: its sectors of data.
    pub(super) fn queue_or_hold(
        &mut self,
        now: Time,
        number: u64,
        stripe_data: u64,
        stream: Option<StreamId>,
    ) {
        let Some(stripe) = self.open.get(&number) else { return };
        let covered: u64 = stripe.frags.iter().map(|frag| u64::from(frag.hi - frag.lo)).sum();
        // What was put back when its range was locked must not wait for more than that.
        let may_wait = covered < stripe_data && !stripe.queued && stripe.locks.is_empty();
        match stream {
            Some(stream) if may_wait => self.holds.hold(now, number, stream),
            _ => self.queue(number),
        }
    }

    /// What waits in a stripe that is launched; none if it is not open any more.
    pub(super) fn take(&mut self, number: u64) -> Option<Frags> {
        let stripe = self.open.get_mut(&number)?;
        stripe.queued = false;
        self.holds.let_go(number);
        Some(mem::take(&mut stripe.frags))
    }

    /// Keeps a stripe no longer than it is worked on.
    pub(super) fn close_if_done(&mut self, number: u64) {
        let stripe = self.open.get(&number);
        if stripe.is_some_and(|stripe| stripe.frags.is_empty() && stripe.locks.is_empty()) {
            assert!(!self.holds.is_held(number), "stripe {number} is held for nothing");
            self.open.remove(&number);
        }
    }

    /// Locks rows for an operation.
    pub(super) fn lock(&mut self, number: u64, (lo, hi): (u32, u32)) -> Lock {
        // An operation that ended at once may have closed the stripe.
        let stripe = self.open.entry(number).or_default();
        if stripe.locks.iter().any(|&(l, h)| l < hi && lo < h) {
            return Lock::Busy;
        }
        if !self.waiting_for_memory.is_empty() {
            return Lock::OutOfTurn;
        }
        stripe.locks.push((lo, hi));
        Lock::Taken
    }

    /// An operation did not begin for want of memory.
    pub(super) fn unlock_unused(&mut self, number: u64, lo: u32) {
        let stripe = self.open.get_mut(&number);
        let stripe = stripe.unwrap_or_else(|| panic!("stripe {number} is locked, so it is open"));
        remove_lock(stripe, number, lo);
    }

    /// An operation has ended. Who waits for its rows, or for memory, is tried again.
    pub(crate) fn unlock(&mut self, stripe: StripeNo, lo: u32) {
        let number = stripe.0;
        self.unlock_unused(number, lo);
        let has_frags = self.open.get(&number).is_some_and(|stripe| !stripe.frags.is_empty());
        if has_frags && !self.holds.is_held(number) {
            self.queue(number);
        }
        self.close_if_done(number);
        self.queue_waiting_for_memory();
    }

    /// A stripe found too little memory.
    pub(super) fn wait_for_memory(&mut self, number: u64) {
        self.waiting_for_memory.push_back(number);
    }

    /// Has those that found too little memory try again.
    pub(crate) fn queue_waiting_for_memory(&mut self) {
        while let Some(number) = self.waiting_for_memory.pop_front() {
            self.queue(number);
        }
    }

    /// See [`WriteHolds::join`].
    pub(super) fn join_stream(
        &mut self,
        known: Option<StreamId>,
        range: (u64, u64),
        followed: bool,
        begins_stripe: bool,
    ) -> (StreamId, bool) {
        self.holds.join(known, range, followed, begins_stripe)
    }

    /// A write of a stream has ended.
    pub(crate) fn leave_stream(&mut self, id: StreamId) {
        self.holds.leave(id);
    }

    /// See [`WriteHolds::turn_off`].
    pub(super) fn hold_nothing(&mut self) {
        self.holds.turn_off();
    }

    /// See [`WriteHolds::request_came`].
    pub(crate) fn request_came(&mut self, kind: RequestKind) {
        self.holds.request_came(kind);
    }

    /// When a stripe that is held is to be looked at again.
    pub(crate) fn next_hold(&self) -> Option<Time> {
        self.holds.next()
    }

    /// Queues those that have been held long enough.
    pub(crate) fn release_due(&mut self, now: Time, has_ops: bool) {
        let open = &self.open;
        let writes = |number| open.get(&number).map_or(0, requests_in);
        let released = self.holds.release_due(now, has_ops, writes);
        released.into_iter().for_each(|number| self.queue(number));
    }

    /// Queues those that are held for more than can come, while nothing runs.
    pub(super) fn release_complete(&mut self) {
        let released = self.holds.release_complete();
        released.into_iter().for_each(|number| self.queue(number));
    }

    /// Queues all that are held.
    pub(crate) fn release_all(&mut self) {
        let released = self.holds.release_all();
        released.into_iter().for_each(|number| self.queue(number));
    }
}

fn requests_in(stripe: &Stripe) -> usize {
    let request = |frag: &Frag| match frag.owner {
        FragOwner::Request(key) => Some(key),
        FragOwner::Piece(_) => None,
    };
    stripe.frags.iter().filter_map(request).collect::<BTreeSet<ReqKey>>().len()
}

fn remove_lock(stripe: &mut Stripe, number: u64, lo: u32) {
    let before = stripe.locks.len();
    stripe.locks.retain(|lock| lock.0 != lo);
    assert_eq!(stripe.locks.len() + 1, before, "rows of stripe {number} are unlocked once");
}

#[cfg(test)]
mod tests {
    use super::{super::StripePart, *};
    use crate::slots::Slots;

    const STRIPE: u64 = 3;

    fn frag(lo: u32, hi: u32) -> Frag {
        let owner =
            FragOwner::Piece(Slots::default().insert(crate::sync::PieceInProgress::for_test()));
        Frag { owner, part: StripePart::Data(0), lo, hi, buf: Buf::ZERO, write: true }
    }

    #[test]
    fn rows_are_locked_by_one_operation_at_a_time() {
        let mut stripes = Stripes::default();
        assert_eq!(stripes.lock(STRIPE, (0, 8)), Lock::Taken);
        assert_eq!(stripes.lock(STRIPE, (4, 16)), Lock::Busy);
        assert_eq!(stripes.lock(STRIPE, (8, 16)), Lock::Taken);
        stripes.add(STRIPE, frag(4, 8));
        stripes.unlock(StripeNo(STRIPE), 0);
        assert_eq!(stripes.next_ready(), Some(STRIPE), "what waited is launched");
        assert_eq!(stripes.take(STRIPE).map(|frags| frags.len()), Some(1));
        stripes.unlock(StripeNo(STRIPE), 8);
        assert!(stripes.take(STRIPE).is_none(), "it is closed");
    }

    #[test]
    #[should_panic(expected = "are unlocked once")]
    fn rows_are_unlocked_by_who_has_locked_them() {
        let mut stripes = Stripes::default();
        assert_eq!(stripes.lock(STRIPE, (0, 8)), Lock::Taken);
        stripes.unlock(StripeNo(STRIPE), 4);
    }

    #[test]
    fn who_waits_for_memory_goes_before_who_comes_later() {
        let mut stripes = Stripes::default();
        assert_eq!(stripes.lock(STRIPE, (0, 8)), Lock::Taken);
        stripes.unlock_unused(STRIPE, 0);
        stripes.add(STRIPE, frag(0, 8));
        stripes.wait_for_memory(STRIPE);
        assert_eq!(stripes.lock(4, (0, 8)), Lock::OutOfTurn);
        stripes.wait_for_memory(4);
        stripes.queue_waiting_for_memory();
        assert_eq!([stripes.next_ready(), stripes.next_ready()], [Some(STRIPE), Some(4)]);
        assert_eq!(stripes.lock(4, (0, 8)), Lock::Taken);
    }

    #[test]
    fn a_stripe_is_held_until_it_is_whole_or_its_time_has_come() {
        let mut stripes = Stripes::default();
        let (stream, _) = stripes.join_stream(None, (0, 8), false, false);
        stripes.add(STRIPE, frag(0, 8));
        stripes.queue_or_hold(Time(0), STRIPE, 16, Some(stream));
        assert!(!stripes.has_ready() && stripes.next_hold().is_some());
        stripes.add(STRIPE, frag(8, 16));
        stripes.queue_or_hold(Time(0), STRIPE, 16, Some(stream));
        assert_eq!(stripes.next_ready(), Some(STRIPE));
        stripes.release_all();
        assert!(!stripes.has_ready(), "it is held no more");
    }
}
