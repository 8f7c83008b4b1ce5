//! What a write of a shard passes before it is sent, and what its reply passes before it goes out.
//!
//! Invariants:
//! - no write is let through while the superblocks say "clean", and none while one of its bits is not stable;
//! - the gate falls idle only while no write is here and no reply is held;
//! - broken is for good: nothing is let through any more, and no reply is held;
//! - whoever waits is one of the writes that are here.
//!
//! The gate decides and keeps count. What follows from that (who goes on, what is told) the [`Shard`](crate::Shard)
//! carries out.

use crate::{
    bits::Bits,
    messages::{BitmapTerms, Notice},
    request::ReqKey,
    types::*,
};
use alloc::vec::Vec;
use core::mem;
use lapstrake_geometry::Sectors;

/// What the superblocks say, as the shard knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateState {
    /// "Clean".
    Idle,
    /// "Clean", and the supervisor has been asked to have them say "active".
    Asked,
    /// "Active".
    Active,
    /// Nothing is to be written any more.
    Broken,
}

/// Bits of the write-intent bitmap, first and last.
type BitSpan = (u64, u64);

/// What a request has of the bitmap.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// Bits that its window holds.
    held: Option<BitSpan>,
    /// Bits that the supervisor was asked for.
    asked: Option<BitSpan>,
}

impl Admission {
    pub(crate) fn holds_bits(&self) -> bool {
        self.held.is_some()
    }
}

/// What becomes of a write at the gate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    Granted,
    /// Until the gate is opened and bits are set. The notices ask for what was not asked for before, of both at once: they
    /// go on record in one round.
    Waits([Option<Notice>; 2]),
    Refused,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct WriteGate {
    state: GateState,
    bits: Option<Bits>,
    waiting: Vec<ReqKey>,
    /// Until the failure of a member is on record.
    held_replies: Vec<Reply>,
    /// Writes from their arrival to their end.
    in_flight: u32,
    /// The supervisor's measure of idleness.
    last_ended: Time,
    /// Members have not failed though writes do: what takes them all has no room left.
    is_out_of_space: bool,
}

impl WriteGate {
    pub(crate) fn new(bitmap: Option<BitmapTerms>) -> Self {
        Self {
            state: GateState::Idle,
            bits: bitmap.map(|terms| Bits::new(terms.chunk.0)),
            waiting: Vec::new(),
            held_replies: Vec::new(),
            in_flight: 0,
            last_ended: Time(0),
            is_out_of_space: false,
        }
    }

    /// A write has come.
    pub(crate) fn write_came(&mut self) {
        self.in_flight += 1;
    }

    /// A write that came has ended, and holds no bits any more.
    pub(crate) fn write_ended(&mut self, now: Time, admission: &Admission) {
        assert!(self.in_flight > 0, "a write ends that did not come");
        assert!(!admission.holds_bits(), "a write ends with bits held");
        self.in_flight -= 1;
        self.last_ended = now;
    }

    /// The next window of a write is about to be sent; `range` says what it changes in the bitmap's own terms.
    pub(crate) fn pass(
        &mut self,
        key: ReqKey,
        admission: &mut Admission,
        range: impl FnOnce() -> (u64, u64),
    ) -> Passage {
        match self.state {
            GateState::Broken => return Passage::Refused,
            GateState::Active => {}
            GateState::Idle | GateState::Asked => {
                let before = mem::replace(&mut self.state, GateState::Asked);
                self.waiting.push(key);
                let ask = (before == GateState::Idle).then_some(Notice::NeedActive);
                return Passage::Waits([ask, self.ask_for_bits(admission, range())]);
            }
        }
        let Some(bits) = &mut self.bits else { return Passage::Granted };
        let range = range();
        let wanted = bits.covering(range.0, range.1);
        if !bits.begin(wanted) {
            self.waiting.push(key);
            return Passage::Waits([None, self.ask_for_bits(admission, range)]);
        }
        *admission = Admission { held: Some(wanted), asked: None };
        Passage::Granted
    }

    /// What asks for those bits of a range that are not stable, unless that was asked for before.
    fn ask_for_bits(&self, admission: &mut Admission, (start, end): (u64, u64)) -> Option<Notice> {
        let bits = self.bits.as_ref()?;
        let wanted = bits.covering(start, end);
        if bits.are_stable(wanted) {
            // They may be given up before the gate opens, and are asked for anew then.
            admission.asked = None;
            return None;
        }
        let is_news = admission.asked.replace(wanted) != Some(wanted);
        is_news.then(|| Notice::BitsWanted(bits.chunk(), wanted.0, wanted.1))
    }

    /// Order that holds, points 1 and 6: superblocks say active, and the request's bits are stable, before a write of
    /// it is sent.
    pub(crate) fn assert_may_write(&self, admission: &Admission) {
        let is_asleep = matches!(self.state, GateState::Idle | GateState::Asked);
        assert!(!is_asleep, "a write while superblocks say clean");
        let has_bits = self.bits.is_none() || admission.holds_bits();
        assert!(has_bits, "a write before its bits are stable");
    }

    /// A window has ended.
    pub(crate) fn window_done(&mut self, admission: &mut Admission) {
        if let (Some(bits), Some(held)) = (&mut self.bits, admission.held.take()) {
            bits.end(held);
        }
    }

    /// Those that wait try again.
    pub(crate) fn take_waiting(&mut self) -> Vec<ReqKey> {
        assert!(self.waiting.len() <= self.in_flight as usize, "who waits is a write that came");
        mem::take(&mut self.waiting)
    }

    /// What the supervisor says of the superblocks; nothing counts any more once the gate is broken.
    pub(crate) fn set(&mut self, state: GateState) {
        if !self.is_broken() {
            self.state = state;
        }
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.state == GateState::Broken
    }

    /// True the first time.
    pub(crate) fn run_out_of_space(&mut self) -> bool {
        !mem::replace(&mut self.is_out_of_space, true)
    }

    pub(crate) fn is_out_of_space(&self) -> bool {
        self.is_out_of_space
    }

    /// Why a write or a flush fails.
    fn error(&self) -> RequestError {
        if self.is_out_of_space { RequestError::NoSpace } else { RequestError::Io }
    }

    /// Falls idle if no write ran after `before`; gives what to tell the supervisor.
    pub(crate) fn try_idle(&mut self, before: Time, now: Time) -> Notice {
        let is_resting = self.in_flight == 0 && self.held_replies.is_empty();
        if !is_resting || self.last_ended > before {
            return Notice::Busy(if is_resting { self.last_ended } else { now });
        }
        if self.state == GateState::Active {
            self.state = GateState::Idle;
        }
        Notice::Idle
    }

    /// The reply, unless it waits: an answer to a write or a flush while a member's failure is not on record.
    pub(crate) fn reply(
        &mut self,
        Reply { id, result }: Reply,
        kind: RequestKind,
        is_unrecorded: bool,
    ) -> Option<Reply> {
        let is_read = matches!(kind, RequestKind::Read(_));
        let is_covered = !is_read && is_unrecorded;
        if is_covered && !self.is_broken() {
            self.held_replies.push(Reply { id, result });
            return None;
        }
        let result = match result {
            // The failure can never be recorded, so this may be lost.
            _ if is_covered => Err(self.error()),
            Err(RequestError::Io) if !is_read => Err(self.error()),
            result => result,
        };
        Some(Reply { id, result })
    }

    /// Every failure is on record: what was held goes out.
    pub(crate) fn take_held(&mut self) -> Vec<Reply> {
        mem::take(&mut self.held_replies)
    }

    /// No failure can be recorded any more: what was held may be lost.
    pub(crate) fn fail_held(&mut self) -> Vec<Reply> {
        assert!(self.is_broken(), "replies are good while failures can be recorded");
        let result = Err(self.error());
        self.take_held().into_iter().map(|reply| Reply { result, ..reply }).collect()
    }

    pub(crate) fn holds_replies(&self) -> bool {
        !self.held_replies.is_empty()
    }

    /// Bits `first..=last` are stable.
    pub(crate) fn bits_set(&mut self, first: u64, last: u64) {
        if let Some(bits) = &mut self.bits {
            bits.set(first, last);
        }
    }

    /// Gives up bits that no write has used since the last sweep.
    pub(crate) fn sweep_bits(&mut self) -> Vec<u64> {
        self.bits.as_mut().map(Bits::sweep).unwrap_or_default()
    }

    /// There is another bitmap, with all bits set, or none. [`Self::readmit`] follows for each request.
    pub(crate) fn replace_bitmap(&mut self, chunk: Option<Sectors>) {
        self.bits = chunk.map(|chunk| Bits::new(chunk.0));
    }

    /// What a request has of the bitmap counts no more. A write on its way, of which `sent` is under way, holds its
    /// bits of the new one, so that none is cleared under it; the notice says so. One that waits asks anew.
    pub(crate) fn readmit(
        &mut self,
        admission: &mut Admission,
        sent: Option<(u64, u64)>,
    ) -> Option<Notice> {
        *admission = Admission::default();
        let (bits, (start, end)) = (self.bits.as_mut()?, sent?);
        let held = bits.covering(start, end);
        bits.adopt(held);
        admission.held = Some(held);
        Some(Notice::BitsWanted(bits.chunk(), held.0, held.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Reader, Req, Requests};
    use lapstrake_geometry::Sector;

    fn keys<const N: usize>() -> [ReqKey; N] {
        let (kind, sector, len) = (WRITE, Sector(0), Sectors(8));
        let request = Request { id: RequestId(1), kind, sector, len };
        let mut requests = Requests::default();
        [0; N].map(|_| requests.insert(Req::new(&request, Reader::Owner)))
    }

    const CHUNK: Sectors = Sectors(8);
    const WRITE: RequestKind = RequestKind::Write { buf: Buf::ZERO, fua: false, followed: false };

    fn gate(chunk: Option<Sectors>) -> WriteGate {
        WriteGate::new(chunk.map(|chunk| BitmapTerms { chunk, write_behind: 0 }))
    }

    fn reply(id: u64) -> Reply {
        Reply { id: RequestId(id), result: Ok(()) }
    }

    fn wants(first: u64, last: u64) -> Passage {
        Passage::Waits([None, Some(Notice::BitsWanted(CHUNK, first, last))])
    }

    const WAITS: Passage = Passage::Waits([None, None]);
    const NEEDS_ACTIVE: Passage = Passage::Waits([Some(Notice::NeedActive), None]);

    #[test]
    fn the_first_write_asks_for_active_and_all_wait_for_it() {
        let (mut gate, mut admission) = (gate(None), Admission::default());
        let [first, second] = keys();
        (0..2).for_each(|_| gate.write_came());
        let mut pass = |gate: &mut WriteGate, key| gate.pass(key, &mut admission, || (0, 8));
        assert_eq!(pass(&mut gate, first), NEEDS_ACTIVE);
        assert_eq!(pass(&mut gate, second), WAITS);
        gate.set(GateState::Active);
        assert_eq!(gate.take_waiting(), [first, second]);
        assert_eq!(pass(&mut gate, first), Passage::Granted);
        gate.assert_may_write(&admission);
    }

    #[test]
    fn bits_are_asked_for_with_active_and_anew_if_they_were_given_up_meanwhile() {
        let [key] = keys();
        let (mut gate, mut admission) = (gate(Some(CHUNK)), Admission::default());
        gate.write_came();
        let mut pass = |gate: &mut WriteGate| gate.pass(key, &mut admission, || (0, 8));
        let bits = Some(Notice::BitsWanted(CHUNK, 0, 0));
        assert_eq!(pass(&mut gate), Passage::Waits([Some(Notice::NeedActive), bits]));
        gate.bits_set(0, 0);
        assert_eq!(gate.take_waiting(), [key]);
        assert_eq!(pass(&mut gate), WAITS);
        assert!(gate.sweep_bits().is_empty());
        assert_eq!(gate.sweep_bits(), [0]);
        gate.set(GateState::Active);
        assert_eq!(gate.take_waiting(), [key]);
        assert_eq!(pass(&mut gate), wants(0, 0));
    }

    #[test]
    #[should_panic(expected = "superblocks say clean")]
    fn nothing_is_written_before_the_superblocks_say_active() {
        gate(None).assert_may_write(&Admission::default());
    }

    #[test]
    #[should_panic(expected = "before its bits are stable")]
    fn nothing_is_written_before_its_bits_are_stable() {
        let mut gate = gate(Some(CHUNK));
        gate.set(GateState::Active);
        gate.assert_may_write(&Admission::default());
    }

    #[test]
    fn a_write_asks_for_its_bits_once_and_holds_them_to_its_windows_end() {
        let [key] = keys();
        let (mut gate, mut admission) = (gate(Some(CHUNK)), Admission::default());
        gate.set(GateState::Active);
        gate.write_came();
        assert_eq!(gate.pass(key, &mut admission, || (7, 9)), wants(0, 1));
        assert_eq!(gate.take_waiting(), [key]);
        assert_eq!(gate.pass(key, &mut admission, || (7, 9)), WAITS);
        gate.bits_set(0, 1);
        assert_eq!(gate.pass(key, &mut admission, || (7, 9)), Passage::Granted);
        gate.assert_may_write(&admission);
        assert!(gate.sweep_bits().is_empty() && gate.sweep_bits().is_empty(), "they are held");
        gate.window_done(&mut admission);
        gate.write_ended(Time(9), &admission);
        assert!(gate.sweep_bits().is_empty());
        assert_eq!(gate.sweep_bits(), [0, 1]);
    }

    #[test]
    #[should_panic(expected = "with bits held")]
    fn a_write_gives_its_bits_back_before_it_ends() {
        let [key] = keys();
        let (mut gate, mut admission) = (gate(Some(CHUNK)), Admission::default());
        gate.set(GateState::Active);
        gate.write_came();
        gate.bits_set(0, 0);
        assert_eq!(gate.pass(key, &mut admission, || (0, 8)), Passage::Granted);
        gate.write_ended(Time(9), &admission);
    }

    #[test]
    fn the_gate_falls_idle_only_when_writes_and_replies_are_gone() {
        let [key] = keys();
        let mut gate = gate(None);
        gate.set(GateState::Active);
        gate.write_came();
        assert_eq!(gate.try_idle(Time(50), Time(60)), Notice::Busy(Time(60)));
        assert_eq!(gate.reply(reply(1), WRITE, true), None);
        gate.write_ended(Time(30), &Admission::default());
        assert_eq!(gate.try_idle(Time(50), Time(60)), Notice::Busy(Time(60)), "a reply is held");
        assert_eq!(gate.take_held(), [reply(1)]);
        assert_eq!(gate.try_idle(Time(29), Time(60)), Notice::Busy(Time(30)));
        assert_eq!(gate.try_idle(Time(30), Time(60)), Notice::Idle);
        let again = gate.pass(key, &mut Admission::default(), || (0, 8));
        assert_eq!(again, NEEDS_ACTIVE);
    }

    #[test]
    fn only_reads_are_answered_while_a_failure_is_not_on_record() {
        let mut gate = gate(None);
        assert_eq!(gate.reply(reply(1), RequestKind::Read(Buf::ZERO), true), Some(reply(1)));
        assert_eq!(gate.reply(reply(2), RequestKind::Flush, false), Some(reply(2)));
        assert_eq!(gate.reply(reply(3), RequestKind::Flush, true), None);
        assert_eq!(gate.reply(reply(4), WRITE, true), None);
        assert!(gate.holds_replies());
        assert_eq!(gate.take_held(), [reply(3), reply(4)]);
        assert!(!gate.holds_replies());
    }

    #[test]
    fn a_broken_gate_stays_so_and_says_why() {
        let [key] = keys();
        let mut gate = gate(None);
        assert_eq!(gate.reply(reply(1), WRITE, true), None);
        assert!(gate.run_out_of_space() && !gate.run_out_of_space());
        gate.set(GateState::Broken);
        gate.set(GateState::Active);
        assert!(gate.is_broken());
        let lost = |id| Reply { id: RequestId(id), result: Err(RequestError::NoSpace) };
        assert_eq!(gate.fail_held(), [lost(1)]);
        assert_eq!(gate.reply(reply(2), WRITE, true), Some(lost(2)));
        assert_eq!(gate.reply(reply(3), WRITE, false), Some(reply(3)), "it was done before");
        assert_eq!(gate.pass(key, &mut Admission::default(), || (0, 8)), Passage::Refused);
    }

    #[test]
    fn a_new_bitmap_takes_in_what_is_on_its_way_and_has_the_others_ask_anew() {
        let [key, other] = keys();
        let mut gate = gate(Some(CHUNK));
        gate.set(GateState::Active);
        (0..2).for_each(|_| gate.write_came());
        let (mut sent, mut waits) = (Admission::default(), Admission::default());
        gate.bits_set(0, 0);
        assert_eq!(gate.pass(key, &mut sent, || (0, 8)), Passage::Granted);
        assert_eq!(gate.pass(other, &mut waits, || (8, 16)), wants(1, 1));
        gate.replace_bitmap(Some(Sectors(4)));
        let told = Notice::BitsWanted(Sectors(4), 0, 1);
        assert_eq!(gate.readmit(&mut sent, Some((0, 8))), Some(told));
        assert_eq!(gate.readmit(&mut waits, None), None);
        gate.assert_may_write(&sent);
        let asks = Passage::Waits([None, Some(Notice::BitsWanted(Sectors(4), 2, 3))]);
        assert_eq!(gate.pass(other, &mut waits, || (8, 16)), asks);
        gate.replace_bitmap(None);
        assert_eq!(gate.readmit(&mut sent, Some((0, 8))), None);
        assert!(!sent.holds_bits());
    }
}
