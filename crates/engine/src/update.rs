//! Superblock updates: what is to be recorded, by how many events, in which order it reaches the members.
//!
//! One update runs at a time. Bad-block logs go before superblocks, which may say that a member is right up
//! to somewhere; with a bitmap its page with the new event count goes first, since a bitmap behind its array
//! would count as stale.
//!
//! [`MetadataUpdates`] owns what is not on record yet, the event count and the update on its way. The supervisor tells
//! it what there is to record, makes the superblocks that it asks for, and tells shards what an update has put on
//! record.
//!
//! Invariants:
//! - [`Order::Recorded`](crate::messages::Order::Recorded) follows an update that was begun after the failure was
//!   known and that every remaining member has stable;
//! - an update that fails on a member is followed by another one without that member;
//! - events that record a failure > events in the superblock of the member that failed, by two or more before a write that left
//!   it out is answered: mdadm takes a member that is one event behind back when it is forced.

use crate::{
    bad_blocks::BadRange,
    membership::{ArrayState, Member},
    messages::Order,
    meta_writes::Meta,
    supervisor::{DiskState, Loss, Supervisor, Target},
    types::MemberId,
    write_intent_bitmap::WriteIntentBitmap,
};
use alloc::vec::Vec;
use core::mem;
use lapstrake_geometry::Sector;

/// A superblock update on its way.
#[derive(Debug)]
struct Update {
    active: bool,
    /// It only turns between clean and active, which spares need not hear of.
    bare: bool,
    /// It records something besides failures, which is to be recorded again if the update is refused.
    more: bool,
    /// It only gives all members one count.
    levels: bool,
    /// Members whose failure it puts on record.
    covers: Vec<MemberId>,
    /// Members whose failure it puts on record by a second event: shards answer writes that left them out after it, not before.
    confirms: Vec<MemberId>,
    /// Bad blocks that it puts on record.
    bad: Vec<BadRange>,
    /// The journal's tail that it puts on record.
    tail: Option<u64>,
    /// Superblocks not stable yet; none before they were sent.
    left: Option<u32>,
    refused: bool,
    /// Some superblock of it may have been written.
    begun: bool,
    /// The count before it, to which it goes back if no superblock of it was written.
    events_before: u64,
    /// The highest count that a superblock may hold if it is refused.
    events_max: u64,
}

/// What an update depends on when it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpdateTerms {
    /// The superblocks are to say "active".
    pub(crate) active: bool,
    /// A slot lacks a member, or there is a journal. Then no update counts as a bare step, so that none is taken back:
    /// who is away must not meet the count that it left with.
    pub(crate) counts_on: bool,
    /// A resync is due, which keeps a step from being taken back.
    pub(crate) is_resync_due: bool,
}

/// What the superblocks of an update are to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UpdateContent {
    pub(crate) active: bool,
    pub(crate) bare: bool,
    pub(crate) tail: Option<u64>,
}

/// What an update has put on record, on every member.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) active: bool,
    pub(crate) failed: Vec<MemberId>,
    pub(crate) bad: Vec<BadRange>,
    pub(crate) tail: Option<u64>,
}

/// What is to go on record, and the update that puts it there. See the module's head.
#[derive(Debug)]
pub(crate) struct MetadataUpdates {
    /// The count in the superblocks last sent, or about to be.
    events: u64,
    /// The last update was a bare step from clean to active, which a step back may take back.
    can_step_back: bool,
    /// Who was a member when superblocks were last written is not there now. A step back from the next update would
    /// leave the array with the count that the missing one has, and it would come back as current.
    lacks_former: bool,
    /// Members may hold different counts. Two apart they would not start together, so the next update levels them.
    is_uneven: bool,
    /// What the superblocks on all members say: writes may have left stripes half done.
    active_on_disk: bool,
    /// Failures that no update has put on record or is about to.
    unrecorded: Vec<MemberId>,
    /// Failures that are on record by one event, which mdadm takes no member for out of date by.
    unconfirmed: Vec<MemberId>,
    /// Bad blocks that are not on record yet.
    unrecorded_bad: Vec<BadRange>,
    /// Something besides failures is to be put on record.
    is_requested: bool,
    /// Where the journal's tail may be; the superblock that is sent next says so.
    tail: Option<u64>,
    update: Option<Update>,
}

impl MetadataUpdates {
    /// Superblocks hold at most this many events, on all members if not `is_uneven`.
    pub(crate) fn new(events: u64, lacks_former: bool, is_uneven: bool) -> Self {
        Self {
            events,
            can_step_back: false,
            lacks_former,
            is_uneven,
            active_on_disk: false,
            unrecorded: Vec::new(),
            unconfirmed: Vec::new(),
            unrecorded_bad: Vec::new(),
            is_requested: false,
            tail: None,
            update: None,
        }
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    pub(crate) fn is_active_on_disk(&self) -> bool {
        self.active_on_disk
    }

    /// No update is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.update.is_none()
    }

    /// Members may hold different counts, which the next update levels.
    pub(crate) fn is_uneven(&self) -> bool {
        self.is_uneven
    }

    /// Something besides failures waits for the next update.
    pub(crate) fn is_requested(&self) -> bool {
        self.is_requested
    }

    /// Something waits for the next update.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_requested || !self.unrecorded.is_empty() || !self.unconfirmed.is_empty()
    }

    /// Superblocks say all that there is to say of the members.
    pub(crate) fn is_recorded(&self) -> bool {
        self.is_idle() && !self.is_wanted() && self.unrecorded_bad.is_empty()
    }

    /// What superblocks say of the array or its members has changed.
    pub(crate) fn request(&mut self) {
        self.is_requested = true;
    }

    /// A member failed, which the next update puts on record.
    pub(crate) fn member_failed(&mut self, id: MemberId) {
        self.call_off_step_back();
        self.unrecorded.push(id);
    }

    /// These sectors went into a member's log.
    pub(crate) fn found_bad(&mut self, range: BadRange) {
        self.unrecorded_bad.push(range);
        self.request();
    }

    /// What the journal holds before this place is needed no more.
    pub(crate) fn tail_moved(&mut self, position: u64, is_urgent: bool) {
        self.tail = Some(position);
        self.is_requested |= is_urgent;
    }

    /// Begins the update that records all that waits, or the one that levels counts before it.
    pub(crate) fn begin(&mut self, terms: UpdateTerms) {
        assert!(self.update.is_none(), "one update runs at a time");
        let levels = mem::take(&mut self.is_uneven);
        let events_before = self.events;
        let mut update = Update {
            active: terms.active || (levels && self.active_on_disk),
            bare: false,
            more: false,
            levels,
            covers: Vec::new(),
            confirms: Vec::new(),
            bad: Vec::new(),
            tail: None,
            left: None,
            refused: false,
            begun: false,
            events_before,
            events_max: events_before,
        };
        if !levels {
            update.covers = mem::take(&mut self.unrecorded);
            update.confirms = mem::take(&mut self.unconfirmed);
            update.more = mem::take(&mut self.is_requested);
            let counts_on = mem::take(&mut self.lacks_former) || terms.counts_on;
            let is_of_failures = !update.covers.is_empty() || !update.confirms.is_empty();
            update.bare = !is_of_failures && !update.more && !counts_on;
            self.count_event(update.active, update.bare, terms.is_resync_due);
            update.events_max = events_before.max(self.events);
            let is_ahead = self.events > events_before || events_before == u64::MAX;
            assert!(is_ahead || update.covers.is_empty(), "a failure is recorded by more events");
        }
        self.update = Some(update);
    }

    /// md counts an update forwards, except that the way back from a bare step to active takes
    /// that step back, so that sleeping spares stay as fresh as the members.
    fn count_event(&mut self, active: bool, bare: bool, is_resync_due: bool) {
        let back = bare && !active && !is_resync_due && self.can_step_back;
        if back && self.events > 1 {
            self.events -= 1;
            self.can_step_back = false;
        } else {
            // What a superblock says may be anything.
            self.events = self.events.saturating_add(1);
            self.can_step_back = bare;
        }
    }

    /// A step back whose superblocks are not sent yet would record a failure by fewer events than the member
    /// that failed has seen.
    fn call_off_step_back(&mut self) {
        let events = self.events;
        let is_due = |update: &mut Update| update.left.is_none() && events < update.events_before;
        if let Some(update) = self.update.take_if(is_due) {
            self.events = update.events_before;
            self.can_step_back = false;
        }
    }

    /// An update has begun of which no superblock was sent.
    pub(crate) fn is_to_send(&self) -> bool {
        self.update.as_ref().is_some_and(|update| update.left.is_none())
    }

    /// What superblocks are to say that are sent now. [`Self::sent`] follows.
    pub(crate) fn content(&mut self) -> UpdateContent {
        let update = self.update.as_ref().expect("superblocks are of an update");
        assert!(update.left.is_none(), "superblocks of an update are sent once");
        // Who failed must not come back as current when the journal no longer holds what it lacks.
        let is_of_failures = !update.covers.is_empty() || !update.confirms.is_empty();
        let records_failure = is_of_failures || !self.unrecorded.is_empty();
        self.is_requested |= records_failure && self.tail.is_some();
        let tail = self.tail.take_if(|_| !records_failure);
        UpdateContent { active: update.active, bare: update.bare, tail }
    }

    /// So many superblocks were sent that say so. False: none, since nobody is left, and the update is over.
    pub(crate) fn sent(&mut self, content: UpdateContent, superblocks: u32) -> bool {
        let Some(update) = self.update.as_mut().filter(|_| superblocks > 0) else {
            self.update = None;
            return false;
        };
        update.left = Some(superblocks);
        update.tail = content.tail;
        update.bad = mem::take(&mut self.unrecorded_bad);
        true
    }

    /// A superblock of the update is stable, or was refused.
    pub(crate) fn written(&mut self, ok: bool) {
        let update = self.one_less();
        update.refused |= !ok;
        update.begun = true;
    }

    /// A superblock of the update was not written at all.
    pub(crate) fn dropped(&mut self) {
        self.one_less().refused = true;
    }

    fn one_less(&mut self) -> &mut Update {
        let update = self.update.as_mut().expect("a superblock on its way is of an update");
        let left = update.left.and_then(|left| left.checked_sub(1));
        update.left = Some(left.expect("no more superblocks end than were sent"));
        update
    }

    /// Ends the update whose last superblock is no longer on its way: what it has put on record, if every member
    /// has it.
    pub(crate) fn end(&mut self) -> Option<Recorded> {
        let update = self.update.take_if(|update| update.left == Some(0))?;
        assert!(
            update.events_max >= self.events,
            "no superblock holds more than the highest count"
        );
        if update.refused {
            self.take_back(update);
            return None;
        }
        if !self.unrecorded.is_empty() {
            // Who failed meanwhile may hold the count that this one took a step back from.
            self.is_uneven |= update.events_max > self.events;
            self.events = update.events_max;
            self.can_step_back = false;
        }
        self.active_on_disk = update.active;
        self.unconfirmed.extend(update.covers);
        let Update { active, confirms: failed, bad, tail, .. } = update;
        Some(Recorded { active, failed, bad, tail })
    }

    /// Not every survivor has the update: what it should have recorded is still to be recorded, and by more events
    /// than any member that missed it can hold, even after a step back.
    fn take_back(&mut self, update: Update) {
        self.unrecorded.extend(update.covers);
        self.unconfirmed.extend(update.confirms);
        self.unrecorded_bad.extend(update.bad);
        self.tail = self.tail.or(update.tail);
        self.is_requested |= update.more;
        self.events = if update.begun { update.events_max } else { update.events_before };
        self.can_step_back = false;
        self.is_uneven |= update.begun || update.levels;
    }
}

impl Supervisor {
    pub(crate) fn begin_update(&mut self) {
        self.updates.begin(UpdateTerms {
            active: self.safe_mode.wants_active(),
            counts_on: self.is_degraded() || self.members.has_journal(),
            is_resync_due: self.resync_from().is_some(),
        });
        let is_ending = self.is_bitmap_ending();
        if let Some(bitmap) = self.bitmap.as_mut().filter(|_| !is_ending) {
            bitmap.array_events(self.updates.events());
        }
    }

    /// Sends what is due of the update: logs, then superblocks, both after the bitmap's page.
    pub(crate) fn send_update(&mut self) {
        let is_behind = |bitmap: &WriteIntentBitmap| bitmap.is_behind(self.updates.events());
        let bitmap_first = !self.is_bitmap_ending() && self.bitmap.as_ref().is_some_and(is_behind);
        // What was given up is not tried again and again.
        if !self.updates.is_to_send() || bitmap_first || self.broken {
            return;
        }
        self.send_logs();
        if !self.writes.is_any_of(Meta::BadBlocks) {
            self.send_superblocks();
        }
    }

    fn send_superblocks(&mut self) {
        let content = self.updates.content();
        // A failure that came since the update began is in it, too.
        let only_turns =
            content.bare && content.active && self.is_whole() && !self.updates.is_wanted();
        // With a journal parity is right also while writes are under way.
        let is_safe = self.members.has_journal() && self.resync_from().is_none();
        let is_due = content.active && !is_safe && self.may_be_half_written();
        let resync = if is_due { Some(Sector(0)) } else { self.resync_from() };
        let superblocks = self.members.superblocks(&ArrayState {
            events: self.updates.events(),
            utime: self.epoch_s + self.now.0 / 1_000_000_000,
            resync,
            tail: content.tail,
            // Linux starts no array without redundancy that lists one.
            is_without_spares: self.reshape.is_none()
                && (content.bare || !self.geometry.level().has_redundancy()),
            denies_bitmap: self.is_bitmap_ending(),
            reshape: self.reshape.as_mut().and_then(|reshape| reshape.send(&self.geometry)),
        });
        let sent = superblocks.len() as u32;
        for (member, sector, data) in superblocks {
            self.writes.send(Target::Member(member), sector, data, (Meta::Superblock, !only_turns));
        }
        if !self.updates.sent(content, sent) {
            self.give_up(Loss::Metadata);
        }
    }

    /// Nobody is being rebuilt, nothing resynced or moved: superblocks tell of no place up to which data is right.
    fn is_whole(&self) -> bool {
        let is_whole = |state| !matches!(state, DiskState::Recovering | DiskState::Replacement);
        let is_resynced = self.resync_from().is_none() && self.reshape.is_none();
        is_resynced && self.members.iter().all(|member| is_whole(member.state()))
    }

    /// Ends an update that is stable on all members, and tells shards what is on record now.
    pub(crate) fn end_update(&mut self) {
        let Some(recorded) = self.updates.end() else { return };
        self.orders.extend(recorded.failed.into_iter().map(Order::Recorded));
        for range in recorded.bad {
            self.tell_recorded(range);
        }
        if let Some(position) = recorded.tail {
            self.members.tail_recorded(position);
            self.orders.push_back(Order::TailMoved(position));
        }
        self.bitmap_recorded();
        self.shape_recorded();
        self.reshape_recorded();
        if recorded.active {
            self.safe_mode.active_recorded(self.now);
        }
    }

    pub(crate) fn send_bitmap_pages(&mut self) {
        if self.broken {
            return;
        }
        let Some(bitmap) = &mut self.bitmap else { return };
        let pages = bitmap.pages_to_write(self.now);
        let vouches = !pages.is_empty() && bitmap.take_vouches();
        for (offset, data) in pages {
            let Some(bitmap) = &mut self.bitmap else { return };
            let targets: Vec<_> = if bitmap.is_external() {
                [(Target::BitmapFile, Sector(0))].to_vec()
            } else {
                let place = |(id, m): (MemberId, &Member)| {
                    Some((Target::Member(id), m.superblock().bitmap_sector()?))
                };
                self.members.numbered().filter(|m| m.1.is_present()).filter_map(place).collect()
            };
            bitmap.sent(targets.len() as u32);
            self.bitmap_writes += targets.len() as u64;
            for (target, base) in targets {
                self.writes.send(target, base + offset, data.clone(), (Meta::Bitmap, vouches));
            }
        }
        if let Some(bitmap) = &mut self.bitmap {
            bitmap.grant_if_written(&mut self.orders);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapstrake_geometry::Sectors;

    const MEMBER: MemberId = MemberId(2);

    fn terms(active: bool) -> UpdateTerms {
        UpdateTerms { active, counts_on: false, is_resync_due: false }
    }

    /// Begins an update and sends two superblocks of it.
    fn sent(updates: &mut MetadataUpdates, active: bool) -> UpdateContent {
        updates.begin(terms(active));
        let content = updates.content();
        assert!(updates.sent(content, 2));
        content
    }

    fn recorded(updates: &mut MetadataUpdates, active: bool) -> Recorded {
        sent(updates, active);
        updates.written(true);
        assert_eq!(updates.end(), None, "one superblock is on its way still");
        updates.written(true);
        updates.end().expect("all members have it")
    }

    #[test]
    fn a_bare_step_to_active_is_taken_back_when_the_array_is_clean_again() {
        let mut updates = MetadataUpdates::new(10, false, false);
        assert!(recorded(&mut updates, true).active);
        assert_eq!((updates.events(), updates.is_active_on_disk()), (11, true));
        assert!(!recorded(&mut updates, false).active);
        assert_eq!((updates.events(), updates.is_active_on_disk()), (10, false));
        // There is no step left to take back.
        recorded(&mut updates, false);
        assert_eq!(updates.events(), 11);
    }

    #[test]
    fn no_step_is_taken_back_while_a_former_member_could_meet_its_count() {
        let mut updates = MetadataUpdates::new(10, true, false);
        recorded(&mut updates, true);
        recorded(&mut updates, false);
        assert_eq!(updates.events(), 12);
        updates.begin(UpdateTerms { counts_on: true, ..terms(true) });
        assert!(!updates.content().bare);
    }

    #[test]
    fn a_failure_before_superblocks_are_sent_calls_off_a_step_back() {
        let mut updates = MetadataUpdates::new(10, false, false);
        recorded(&mut updates, true);
        updates.begin(terms(false));
        assert_eq!(updates.events(), 10);
        updates.member_failed(MEMBER);
        assert!(updates.is_idle());
        assert_eq!(updates.events(), 11);
        assert_eq!(recorded(&mut updates, false).failed, [], "it is one event behind");
        assert_eq!(updates.events(), 12);
        assert!(updates.is_wanted() && !updates.is_recorded());
        assert_eq!(recorded(&mut updates, false).failed, [MEMBER]);
        assert_eq!(updates.events(), 13);
        assert!(updates.is_recorded());
    }

    #[test]
    fn a_failure_after_superblocks_were_sent_waits_for_an_update_that_is_ahead_of_all() {
        let mut updates = MetadataUpdates::new(10, false, false);
        recorded(&mut updates, true);
        sent(&mut updates, false);
        updates.member_failed(MEMBER);
        updates.written(true);
        updates.written(true);
        assert_eq!(updates.end().expect("all have it").failed, []);
        assert_eq!(updates.events(), 11, "the member that failed may hold so many");
        // The others hold 10: they are levelled at 11 before 12 says who failed, and 13 leaves it behind.
        for events in [11, 12] {
            assert_eq!(recorded(&mut updates, false).failed, []);
            assert_eq!(updates.events(), events);
        }
        assert_eq!(recorded(&mut updates, false).failed, [MEMBER]);
        assert_eq!(updates.events(), 13);
        assert!(updates.is_recorded());
    }

    #[test]
    fn what_a_refused_update_should_have_recorded_is_still_to_be_recorded() {
        let bad = (MEMBER, Sector(8), Sectors(8));
        let mut updates = MetadataUpdates::new(10, false, false);
        updates.found_bad(bad);
        updates.tail_moved(64, false);
        assert_eq!(sent(&mut updates, true).tail, Some(64));
        updates.written(true);
        updates.written(false);
        assert_eq!(updates.end(), None);
        assert!(updates.is_idle() && updates.is_requested() && !updates.is_active_on_disk());
        // First all get one count, whatever else there is.
        let level = recorded(&mut updates, true);
        assert_eq!((level.bad, level.tail), ([bad].to_vec(), Some(64)));
        assert_eq!(updates.events(), 11);
        recorded(&mut updates, true);
        assert_eq!(updates.events(), 12);
    }

    #[test]
    fn an_update_of_which_nothing_was_written_counts_no_event() {
        let mut updates = MetadataUpdates::new(10, false, false);
        updates.request();
        sent(&mut updates, true);
        updates.dropped();
        updates.dropped();
        assert_eq!(updates.end(), None);
        assert_eq!(updates.events(), 10);
        assert!(updates.is_requested());
    }

    #[test]
    fn the_journals_tail_waits_until_failures_are_on_record() {
        let mut updates = MetadataUpdates::new(10, false, false);
        updates.member_failed(MEMBER);
        updates.tail_moved(64, false);
        assert_eq!(sent(&mut updates, true).tail, None);
        assert!(updates.is_requested(), "the next update is to have it");
        updates.written(true);
        updates.written(true);
        assert_eq!(updates.end().expect("all have it").tail, None);
        assert_eq!(recorded(&mut updates, true).tail, None);
        assert_eq!(recorded(&mut updates, true).tail, Some(64));
    }

    #[test]
    fn members_with_unlike_counts_are_levelled_first() {
        let mut updates = MetadataUpdates::new(10, false, true);
        updates.request();
        recorded(&mut updates, false);
        assert_eq!(updates.events(), 10);
        assert!(updates.is_requested(), "it only gives all one count");
        recorded(&mut updates, false);
        assert_eq!(updates.events(), 11);
    }

    #[test]
    fn an_update_that_nobody_is_left_for_is_over() {
        let mut updates = MetadataUpdates::new(10, false, false);
        updates.begin(terms(true));
        let content = updates.content();
        assert!(!updates.sent(content, 0));
        assert!(updates.is_idle());
    }

    #[test]
    #[should_panic(expected = "one update runs at a time")]
    fn a_second_update_does_not_begin_beside_the_first() {
        let mut updates = MetadataUpdates::new(10, false, false);
        updates.begin(terms(true));
        updates.begin(terms(true));
    }

    #[test]
    #[should_panic(expected = "no more superblocks end than were sent")]
    fn a_superblock_does_not_end_twice() {
        let mut updates = MetadataUpdates::new(10, false, false);
        sent(&mut updates, true);
        (0..3).for_each(|_| updates.written(true));
    }
}
