//! Superblock updates: what is to be recorded, by how many events, in which order it reaches the members.
//!
//! One update runs at a time. Bad-block logs go before superblocks, which may say that a member is right up
//! to somewhere; with a bitmap its page with the new event count goes first, since a bitmap behind its array
//! would count as stale.
//!
//! Invariants: [`Order::Recorded`] follows an update that was begun after the failure was known and that every
//! remaining member has stable; an update that fails on a member is followed by another one without that
//! member; a survivor's superblock holds more events than that of a member it calls failed.

use crate::{
    bad_blocks::BadRange,
    messages::Order,
    supervisor::{Loss, Member, MemberState, MetaWrite, Supervisor, Target, WriteId},
    types::MemberId,
    write_intent_bitmap::WriteIntentBitmap,
};
use alloc::vec::Vec;
use core::mem;
use lapstrake_geometry::Sector;

/// What a metadata write is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meta {
    Superblock,
    Bitmap,
    BadBlocks,
    /// The empty unit of a stop.
    Journal,
}

/// A superblock update on its way.
#[derive(Debug)]
pub(crate) struct Update {
    active: bool,
    bare: bool,
    /// It records something besides failures.
    more: bool,
    /// It only gives all members one count.
    levels: bool,
    covers: Vec<MemberId>,
    /// Bad blocks that it puts on record.
    bad: Vec<BadRange>,
    /// The journal's tail that it puts on record.
    tail: Option<u64>,
    /// Superblocks not stable yet; none before they were sent.
    left: Option<u32>,
    refused: bool,
    /// Some superblock of it may have been written.
    begun: bool,
    /// The count before it, and the highest that a superblock may hold if it is refused.
    events_before: u64,
    events_max: u64,
}

impl Update {
    /// A superblock of it is stable, or was refused.
    pub(crate) fn written(&mut self, ok: bool) {
        self.left = self.left.map(|left| left - 1);
        self.refused |= !ok;
        self.begun = true;
    }

    /// A superblock of it was not written at all.
    pub(crate) fn dropped(&mut self) {
        self.left = self.left.map(|left| left - 1);
        self.refused = true;
    }

    /// Every superblock of it was sent, and none is on its way.
    pub(crate) fn is_stable(&self) -> bool {
        self.left == Some(0)
    }
}

impl Supervisor {
    pub(crate) fn begin_update(&mut self) {
        // All have one count before the next begins: two apart they would not start together.
        let levels = mem::take(&mut self.is_uneven);
        let events_before = self.events;
        let mut update = Update {
            active: self.want_active || (levels && self.active_on_disk),
            bare: false,
            more: false,
            levels,
            covers: Vec::new(),
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
            update.more = mem::take(&mut self.record);
            // A journal that was away must not come back as current, whoever wrote what meanwhile.
            let is_change =
                mem::take(&mut self.lacks_former) || self.is_degraded() || self.has_journal();
            update.bare = update.covers.is_empty() && !update.more && !is_change;
            self.count_event(update.active, update.bare);
            update.events_max = events_before.max(self.events);
        }
        self.update = Some(update);
        let is_ending = self.is_bitmap_ending();
        if let Some(bitmap) = self.bitmap.as_mut().filter(|_| !is_ending) {
            bitmap.array_events(self.events);
        }
    }

    /// Sends what is due of the update: logs, then superblocks, both after the bitmap's page.
    pub(crate) fn send_update(&mut self) {
        let is_behind = |bitmap: &WriteIntentBitmap| bitmap.is_behind(self.events);
        let bitmap_first = !self.is_bitmap_ending() && self.bitmap.as_ref().is_some_and(is_behind);
        let is_due = self.update.as_ref().is_some_and(|update| update.left.is_none());
        // What was given up is not tried again and again.
        if !is_due || bitmap_first || self.broken {
            return;
        }
        self.send_logs();
        let is_log = |write: &Option<(Target, Meta)>| write.is_some_and(|w| w.1 == Meta::BadBlocks);
        if !self.in_flight.iter().any(is_log) {
            self.send_superblocks();
        }
    }

    fn send_superblocks(&mut self) {
        let Some(update) = &self.update else { return };
        let (active, bare) = (update.active, update.bare);
        let there = |member: &&Member| member.standing != MemberState::Removed;
        let devices: Vec<_> = self.members.iter().filter(there).map(Member::device).collect();
        let utime = self.epoch_s + self.now.0 / 1_000_000_000;
        // With a journal parity is right also while writes are under way.
        let is_safe = self.has_journal() && self.resync_from.is_none();
        let resync = if active && !is_safe { Some(Sector(0)) } else { self.resync_from };
        // Who failed must not come back as current when the journal no longer holds what it lacks.
        let records_failure = !update.covers.is_empty() || !self.unrecorded.is_empty();
        self.record |= records_failure && self.tail.is_some();
        let tail = self.tail.take_if(|_| !records_failure);
        let denies_bitmap = self.is_bitmap_ending();
        let (mut left, mut gone) = (0, 0);
        for index in 0..self.members.len() {
            let member = &mut self.members[index];
            gone += usize::from(member.standing == MemberState::Removed);
            // A spare may sleep through a mere change between clean and active.
            let asleep = bare && member.standing == MemberState::Spare;
            if !member.is_present() || asleep {
                continue;
            }
            let own = index - gone;
            member.write_state(self.events, utime, resync, &devices, own);
            if let Some(position) = tail.filter(|_| member.standing == MemberState::Journal) {
                member.superblock.set_journal_tail(position);
            }
            let sector = member.superblock.super_sector();
            let data = if denies_bitmap {
                let mut without = member.superblock.clone();
                without.set_bitmap_offset(None);
                without.encode()
            } else {
                member.superblock.encode()
            };
            self.send(Target::Member(MemberId(index as u16)), sector, data, Meta::Superblock);
            left += 1;
        }
        match &mut self.update {
            Some(update) if left > 0 => {
                update.left = Some(left);
                update.tail = tail;
                update.bad = mem::take(&mut self.unrecorded_bad);
            }
            _ => {
                self.update = None;
                self.give_up(Loss::Metadata);
            }
        }
    }

    /// md counts an update forwards, except that the way back from a bare step to active takes
    /// that step back, so that sleeping spares stay as fresh as the members.
    fn count_event(&mut self, active: bool, bare: bool) {
        let back = bare && !active && self.resync_from.is_none() && self.can_step_back;
        if back && self.events > 1 {
            self.events -= 1;
            self.can_step_back = false;
        } else {
            // What a superblock says may be anything.
            self.events = self.events.saturating_add(1);
            self.can_step_back = bare;
        }
    }

    pub(crate) fn end_update(&mut self, update: Update) {
        if update.refused {
            // Not every survivor has it: what it should have recorded is still to be recorded, and
            // by more events than any member that missed it can hold, even after a step back.
            self.unrecorded.extend(update.covers);
            self.unrecorded_bad.extend(update.bad);
            self.tail = self.tail.or(update.tail);
            self.record |= update.more;
            self.events = if update.begun { update.events_max } else { update.events_before };
            self.can_step_back = false;
            self.is_uneven |= update.begun || update.levels;
            return;
        }
        if !self.unrecorded.is_empty() {
            // Who failed meanwhile may hold the count that this one took a step back from.
            self.is_uneven |= update.events_max > self.events;
            self.events = update.events_max;
            self.can_step_back = false;
        }
        self.orders.extend(update.covers.into_iter().map(Order::Recorded));
        for range in update.bad {
            self.tell_recorded(range);
        }
        self.orders.extend(update.tail.map(Order::TailMoved));
        self.bitmap_recorded();
        self.active_on_disk = update.active;
        if update.active && self.safe_at.is_none() && self.safe_mode_delay_ns > 0 && !self.stopping
        {
            self.safe_at = Some(self.now.after(self.safe_mode_delay_ns));
        }
    }

    /// A step back whose superblocks are not sent yet would record a failure by fewer events than the member
    /// that failed has seen.
    pub(crate) fn call_off_step_back(&mut self) {
        let events = self.events;
        let is_due = |update: &mut Update| update.left.is_none() && events < update.events_before;
        if let Some(update) = self.update.take_if(is_due) {
            self.events = update.events_before;
            self.can_step_back = false;
        }
    }

    pub(crate) fn send_bitmap_pages(&mut self) {
        if self.broken {
            return;
        }
        let Some(bitmap) = &mut self.bitmap else { return };
        let pages = bitmap.pages_to_write(self.now);
        for (offset, data) in pages {
            let Some(bitmap) = &mut self.bitmap else { return };
            let targets: Vec<_> = if bitmap.is_external() {
                [(Target::BitmapFile, Sector(0))].to_vec()
            } else {
                let serving = Member::is_present;
                let place = |(i, m): (usize, &Member)| {
                    Some((Target::Member(MemberId(i as u16)), m.superblock.bitmap_sector()?))
                };
                self.members.iter().enumerate().filter(|e| serving(e.1)).filter_map(place).collect()
            };
            bitmap.sent(targets.len() as u32);
            self.bitmap_writes += targets.len() as u64;
            for (target, base) in targets {
                self.send(target, base + offset, data.clone(), Meta::Bitmap);
            }
        }
        if let Some(bitmap) = &mut self.bitmap {
            bitmap.grant_if_written(&mut self.orders);
        }
    }

    pub(crate) fn send(&mut self, target: Target, sector: Sector, mut data: Vec<u8>, meta: Meta) {
        data.resize(data.len().next_multiple_of(512), 0);
        let free = self.in_flight.iter().position(Option::is_none);
        let at = free.unwrap_or(self.in_flight.len());
        if free.is_none() {
            self.in_flight.push(None);
        }
        self.in_flight[at] = Some((target, meta));
        self.writes.push_back(MetaWrite { id: WriteId(at as u32), target, sector, data });
    }
}
