//! What a shard asks of members, and what follows from their answers.
//!
//! Whoever wants something of a member is its [`Owner`], and hears of the end. Here is decided what an I/O
//! that failed means for the member: its sectors are read elsewhere and written anew, or go on record as bad,
//! or the member is used no more, or, if nobody else has the data, the error is the owner's.

use crate::{
    members::{BadState, FULLY_TRUSTED},
    messages::Notice,
    op::OpKey,
    request::ReqKey,
    shard::Shard,
    sync::{PAGE_SECTORS, PieceKey, UnitKey},
    types::*,
};
use core::ops::Range;
use lapstrake_geometry::{Content, Sector, Sectors};
use smallvec::SmallVec;

/// Whom a member I/O works for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    Request(ReqKey),
    /// A copy that the request leaves behind.
    Behind(ReqKey),
    Op(OpKey),
    /// A unit of a sync action.
    Unit(UnitKey),
    /// Whether a page of a failed read can be read by itself.
    Probe(PieceKey),
    /// The unit under way in the log of this member.
    Log(MemberId),
    /// The flush of what that unit describes.
    LogFlush(MemberId),
    /// The flush before the first unit.
    LogOpening,
    /// The batch on its way to the journal.
    Journal,
}

#[derive(Debug)]
pub(crate) struct Io {
    pub(crate) member: MemberId,
    pub(crate) sector: Sector,
    len: u64,
    owner: Owner,
    kind: IoKind,
    /// Of a request's own read, to ask for them elsewhere when it fails.
    pieces: Pieces,
}

impl Shard {
    /// A member I/O has ended. A failing member is an input, not an error of the engine.
    pub fn handle_completion(&mut self, now: Time, id: IoId, ok: bool) {
        self.now = now;
        let io = self.ios.remove(id.0 as usize);
        match io.owner {
            Owner::Log(log) => return self.unit_written(log, io.member, ok),
            Owner::LogFlush(log) => return self.unit_flushed(log, io.member, ok),
            Owner::LogOpening => return self.opening_flushed(io.member, ok),
            Owner::Journal => return self.journal_io_done(ok),
            _ => {}
        }
        let read = io.kind == IoKind::Read;
        if read {
            self.members.read_ended(io.member);
        }
        let survived = match (ok, read) {
            // Copies of what is discarded may differ: a member that fails at it is none the worse.
            (false, false) if io.kind == IoKind::Discard => true,
            (true, true) => true,
            (true, false) => {
                self.written(&io);
                true
            }
            (false, true) if matches!(io.owner, Owner::Probe(_)) => true,
            // The sectors' owner mends what is bad there.
            (false, true) if self.is_foreign(io.owner) => false,
            (false, true) if !self.is_rewriting(io.owner) => self.read_failed(&io),
            (false, _) => self.write_failed(&io),
        };
        if let (Owner::Op(op), false, false) = (io.owner, read, survived)
            && !self.only_adds(op)
        {
            self.stripe_lost(op);
        }
        if let (Owner::Request(key), true, false) = (io.owner, ok, read)
            && self.is_read_there(&io)
        {
            self.copy_kept(key);
        }
        match io.owner {
            Owner::Behind(key) => self.copy_done(key, survived),
            Owner::Op(op) => self.op_io_done(op, ok, survived, read),
            Owner::Unit(unit) => self.unit_io_done(unit, ok, survived, read),
            Owner::Probe(piece) => self.probed(piece, ok),
            Owner::Request(key) if ok || (!read && survived) => self.child_done(key, None),
            Owner::Request(key) if read && survived => self.read_elsewhere(key, &io.pieces),
            Owner::Request(key) => self.child_done(key, Some(RequestError::Io)),
            Owner::Log(_) | Owner::LogFlush(_) | Owner::LogOpening | Owner::Journal => {
                unreachable!("dealt with above")
            }
        }
    }

    /// An I/O is about to be reported that failed for want of room: where no member stands in for another, the write
    /// that it is part of says so.
    pub fn handle_no_room(&mut self, id: IoId) {
        let Some(io) = self.ios.get(id.0 as usize) else { return };
        // A discard that fails costs nothing.
        if let Owner::Request(key) = io.owner
            && io.kind != IoKind::Discard
            && !self.geometry.level().has_redundancy()
        {
            self.reqs[key].fail(RequestError::NoSpace);
        }
    }

    fn is_foreign(&self, owner: Owner) -> bool {
        matches!(owner, Owner::Request(key) if self.reqs[key].is_foreign())
    }

    /// Whether the member is one that reads of this range go to.
    fn is_read_there(&self, io: &Io) -> bool {
        let slot = self.members.slot_of(io.member);
        slot.and_then(|slot| self.members.usable(slot, self.range_of(io))) == Some(io.member)
    }

    /// Puts a member I/O on its way, and if it changes something one for the member's replacement. `owner`
    /// hears of its end, or of both.
    pub(crate) fn start_io(
        &mut self,
        owner: Owner,
        member: MemberId,
        kind: IoKind,
        range: (u64, u64),
        pieces: Pieces,
    ) {
        let replacement = self.members.replacement_of(member).filter(|_| kind != IoKind::Read);
        if let Some(replacement) = replacement {
            match owner {
                Owner::Request(key) => self.reqs[key].expect(1),
                Owner::Op(key) => self.ops[key].expect(1),
                Owner::Behind(key) => self.expect_another_copy(key),
                Owner::Unit(key) => self.expect_another(key),
                Owner::LogFlush(log) => self.expect_another_flush(log),
                Owner::LogOpening => self.expect_another_opening(),
                Owner::Probe(_) => unreachable!("probes only read"),
                Owner::Log(_) | Owner::Journal => unreachable!("logs have places of their own"),
            }
            self.send_io(owner, replacement, kind, range, pieces.clone());
        }
        self.send_io(owner, member, kind, range, pieces);
    }

    fn send_io(
        &mut self,
        owner: Owner,
        member: MemberId,
        kind: IoKind,
        (sector, len): (u64, u64),
        pieces: Pieces,
    ) {
        let sector = Sector(sector + self.members.data_offset(member).0);
        self.start_io_at(owner, member, kind, (sector, len), pieces);
    }

    /// As [`Self::start_io`], at a sector from the member's start.
    pub(crate) fn start_io_at(
        &mut self,
        owner: Owner,
        member: MemberId,
        kind: IoKind,
        (sector, len): (Sector, u64),
        pieces: Pieces,
    ) {
        let read = kind == IoKind::Read;
        assert!(
            read || !self.members.has_failed(member),
            "{member:?} has failed, and gets a {kind:?}"
        );
        if let Owner::Request(key) = owner
            && kind != IoKind::Read
            && kind != IoKind::Flush
        {
            self.assert_may_write(key);
        }
        if read {
            self.members.read_started(member, sector + Sectors(len));
            self.stats.member_reads += 1;
            self.stats.member_read_sectors += len;
        } else {
            self.stats.member_writes += 1;
            self.stats.member_write_sectors += len;
        }
        let kept = match owner {
            Owner::Request(_) if read && !self.is_foreign(owner) => pieces.clone(),
            _ => Pieces::new(),
        };
        let id =
            IoId(self.ios.insert(Io { member, sector, len, owner, kind, pieces: kept }) as u32);
        self.emit(Effect::Io(MemberIo { id, member, kind, sector, len: Sectors(len), pieces }));
    }

    /// After an I/O error: uses the member no more if the array lives without it. False: it is
    /// the last that holds some data, so it stays, and the error goes to the caller.
    pub(crate) fn fail_if_survivable(&mut self, member: MemberId) -> bool {
        if self.members.has_failed(member) {
            return true;
        }
        if self.gate.is_out_of_space() {
            return false;
        }
        let survives = self.survives_without(member);
        if survives && self.members.fail(member) {
            self.note(Notice::Failed(member));
        }
        survives
    }

    fn survives_without(&self, member: MemberId) -> bool {
        let Some(slot) = self.members.slot_of(member) else { return false };
        let members = &self.members;
        if members.writable(slot) != Some(member) {
            return true;
        }
        self.geometry.survives(|other| match other == slot {
            true => members.has_whole_replacement(member),
            false => members.trusted_to(other) == FULLY_TRUSTED,
        })
    }

    /// After a read error: reads the range elsewhere and writes it anew. False: nobody else has the data.
    fn read_failed(&mut self, io: &Io) -> bool {
        if self.members.has_failed(io.member) {
            return true;
        }
        let range = self.range_of(io);
        if self.survives_without(io.member) {
            self.rewrite(io.member, range);
            return true;
        }
        // The array may live without these sectors of it.
        let kept = self.kept_elsewhere(io.member, &range);
        let is_in_parts = matches!(io.owner, Owner::Request(_)) && !kept.is_empty();
        if *kept != [range.clone()] && !is_in_parts {
            return self.source_failed(io.owner, io.member, range);
        }
        kept.into_iter().for_each(|part| self.rewrite(io.member, part));
        true
    }

    /// A member's own sectors, from its data offset.
    fn range_of(&self, io: &Io) -> Range<u64> {
        let start = io.sector.0.saturating_sub(self.members.data_offset(io.member).0);
        start..start + io.len
    }

    fn written(&mut self, io: &Io) {
        let range = self.range_of(io);
        // What was not on record is still to be read again.
        if !range.is_empty() && self.members.is_told_in_part(io.member, &range) {
            self.members.clear_bad(io.member, range.clone());
            let len = Sectors(range.end - range.start);
            self.note(Notice::Good(io.member, Sector(range.start), len));
            self.repairs.told_good(io.member, range);
        }
    }

    /// The supervisor says what is bad.
    pub(crate) fn told_bad(&mut self, member: MemberId, range: Range<u64>, state: BadState) {
        for part in self.repairs.still_bad(member, range) {
            self.members.mark_bad(member, part, state);
        }
    }

    /// The supervisor knows that a range was written. Who told it has cleared it then, and what it has marked since
    /// is newer.
    pub(crate) fn told_good(&mut self, member: MemberId, range: Range<u64>) {
        if !self.repairs.answered(member, &range) {
            self.members.clear_bad(member, range);
        }
    }

    /// After a write error, or when what was written anew cannot be read: the member is used no more,
    /// unless what it lacks is, or goes, on record as bad.
    fn write_failed(&mut self, io: &Io) -> bool {
        let range = self.range_of(io);
        if range.is_empty() || self.gate.is_out_of_space() || self.members.has_failed(io.member) {
            return self.fail_if_survivable(io.member);
        }
        if self.members.is_on_record(io.member, &range) {
            return !matches!(io.owner, Owner::Request(_))
                || *self.kept_elsewhere(io.member, &range) == [range];
        }
        if self.is_rewriting(io.owner) && self.members.has_log(io.member) {
            self.tell_bad(io.member, range);
            return true;
        }
        self.fail_if_survivable(io.member)
    }

    /// What somebody else has of a range of a member's, or gets with the same write, on a level of copies; who is still
    /// to write it where it is on record as bad has not.
    fn kept_elsewhere(&self, member: MemberId, range: &Range<u64>) -> SmallVec<[Range<u64>; 4]> {
        let mut kept: SmallVec<[Range<u64>; 4]> = SmallVec::new();
        let Some(slot) = self.members.slot_of(member) else { return kept };
        let mut at = range.start;
        while at < range.end
            && let Content::Data(sector) = self.geometry.content(slot, Sector(at))
        {
            let run = self.geometry.map(sector);
            let len = run.len.0.min(PAGE_SECTORS - at % PAGE_SECTORS).min(range.end - at);
            let is_kept = run.homes.iter().any(|home| {
                let range = home.sector.0..home.sector.0 + len;
                self.members.is_kept_by_another(home.slot, member, &range)
            });
            match kept.last_mut() {
                Some(last) if is_kept && last.end == at => last.end += len,
                _ if is_kept => kept.push(at..at + len),
                _ => {}
            }
            at += len;
        }
        kept
    }

    /// What a member lacks goes on record.
    pub(crate) fn tell_bad(&mut self, member: MemberId, range: Range<u64>) {
        let len = Sectors(range.end - range.start);
        self.members.mark_bad(member, range.clone(), BadState::Told);
        self.note(Notice::Bad(member, Sector(range.start), len));
    }
}
