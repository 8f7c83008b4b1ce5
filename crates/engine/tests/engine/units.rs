//! Promise: a partial parity log has one unit under way, and no operation writes before a unit that is stable names it,
//! while there is a log to have it.

use lapstrake_engine::{
    Buf, BufId, Effect, FULLY_TRUSTED, IoKind, MemberConfig, MemberId, MemberIo, Notice, Order,
    Request, RequestId, RequestKind, Shard, ShardConfig, Time,
};
use lapstrake_geometry::{Config, Geometry, Layout, Level, Sector, Sectors, Slot};
use lapstrake_metadata::ppl::Shape;

const NOW: Time = Time(0);
const CHUNK: u64 = 8;
const STRIPE: u64 = 2 * CHUNK;
const LOG: u64 = 64;
const DATA_OFFSET: u64 = 4096;

/// A RAID5 of three members with logs. Of the stripes 0 and 3 the parity is on member 2.
struct Logged {
    shard: Shard,
    pending: Vec<MemberIo>,
    answers: Vec<(u64, bool)>,
    failed: Vec<MemberId>,
}

impl Logged {
    /// A fourth member replaces member 2, and has this much of it; before the first unit.
    fn with_replacement(trusted_to: Option<Sector>) -> Self {
        let geometry = Geometry::new(&Config {
            level: Level::Raid5,
            layout: Layout::default_for(Level::Raid5),
            chunk: Sectors(CHUNK),
            raid_disks: 3,
            component: Sectors(1024),
            member_sizes: Vec::new(),
        });
        let member = |(slot, trusted_to)| MemberConfig {
            data_offset: Sector(DATA_OFFSET),
            slot: Some(Slot(slot)),
            trusted_to,
            rotational: false,
            write_mostly: false,
            bad_blocks: None,
            log: Some((Sector(LOG), Shape::of(Sectors(2048)).expect("room for a unit"))),
        };
        let slots = (0..3).map(|slot| (slot, FULLY_TRUSTED));
        let replacement = trusted_to.map(|trusted_to| (2, trusted_to));
        let shard = Shard::new(ShardConfig {
            geometry: geometry.expect("a RAID5"),
            members: slots.chain(replacement).map(member).collect(),
            read_only: false,
            block: Sectors(1),
            in_sync_to: FULLY_TRUSTED,
            bitmap: None,
            scratch: BufId(0),
            scratch_pages: 256,
            log_signature: Some(7),
            lost: Vec::new(),
            journal: None,
            behind_pages: 0,
            unsynced: None,
        });
        let (pending, answers, failed) = (Vec::new(), Vec::new(), Vec::new());
        let mut this = Self { shard, pending, answers, failed };
        this.order(&Order::Active);
        this
    }

    /// As above; the first unit is under way, for the first stripe.
    fn begun(trusted_to: Option<Sector>) -> Self {
        let mut this = Self::with_replacement(trusted_to);
        this.write(0);
        this.end_all(IoKind::Flush);
        this
    }

    fn order(&mut self, order: &Order) {
        self.shard.handle_order(NOW, order);
        self.drain();
    }

    /// A member is used no more, which is on record.
    fn fail(&mut self, member: u16) {
        self.order(&Order::MemberFailed(MemberId(member)));
        self.order(&Order::Recorded(MemberId(member)));
    }

    /// A whole stripe, which reads nothing.
    fn write(&mut self, stripe: u64) {
        let buf = Buf { id: BufId(1), offset: 0 };
        let kind = RequestKind::Write { buf, fua: false, followed: false };
        let (id, sector, len) = (RequestId(stripe), Sector(stripe * STRIPE), Sectors(STRIPE));
        self.shard.handle_request(NOW, Request { id, kind, sector, len });
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(effect) = self.shard.poll_effect() {
            match effect {
                Effect::Io(io) => self.pending.push(io),
                Effect::Reply(reply) => self.answers.push((reply.id.0, reply.result.is_ok())),
                _ => {}
            }
        }
        while let Some(notice) = self.shard.poll_notice() {
            if let Notice::Failed(member) = notice {
                self.failed.push(member);
            }
        }
    }

    fn end(&mut self, io: &MemberIo, ok: bool) {
        self.pending.retain(|other| other.id != io.id);
        self.shard.handle_completion(NOW, io.id, ok);
        self.drain();
    }

    /// All of a kind that are under way now end well.
    fn end_all(&mut self, kind: IoKind) {
        let ios: Vec<_> = self.pending.iter().filter(|io| io.kind == kind).cloned().collect();
        ios.iter().for_each(|io| self.end(io, true));
    }

    /// A member's part of a unit ends.
    fn end_unit(&mut self, member: u16, ok: bool) {
        let is_it = |io: &&MemberIo| io.sector.0 < DATA_OFFSET && io.member.0 == member;
        let io = self.pending.iter().find(|io| io.kind != IoKind::Flush && is_it(io)).cloned();
        self.end(&io.expect("a unit"), ok);
    }

    fn members_of(&self, is: impl Fn(&MemberIo) -> bool) -> Vec<u16> {
        self.pending.iter().filter(|io| is(io)).map(|io| io.member.0).collect()
    }

    /// The members to whose logs something is being written.
    fn units(&self) -> Vec<u16> {
        self.members_of(|io| io.kind != IoKind::Flush && io.sector.0 < DATA_OFFSET)
    }

    fn flushes(&self) -> Vec<u16> {
        self.members_of(|io| io.kind == IoKind::Flush)
    }

    /// The members to which a stripe is being written.
    fn writes(&self, stripe: u64) -> Vec<u16> {
        self.members_of(|io| io.sector.0 == DATA_OFFSET + stripe * CHUNK)
    }

    /// The members have all that is under way, and have flushed.
    fn end_writes(&mut self) {
        self.end_all(IoKind::Write { fua: false });
        self.end_all(IoKind::Flush);
    }
}

/// What would be lost: parity, if power went after the next unit and before the members had what the last one names.
#[test]
fn the_next_unit_goes_out_when_what_the_last_one_names_is_stable() {
    let mut logged = Logged::begun(None);
    assert_eq!(logged.units(), [2]);
    logged.write(3);
    assert_eq!(logged.units(), [2], "it is still under way");
    logged.write(1);
    assert_eq!(logged.units(), [2, 1], "another log");
    logged.end_unit(1, true);
    logged.end_writes();
    logged.end_unit(2, true);
    assert_eq!((logged.units(), logged.writes(0).len()), (vec![], 3));
    logged.end_all(IoKind::Write { fua: false });
    assert_eq!((&logged.answers[..], logged.flushes().len()), (&[(1, true), (0, true)][..], 3));
    for left in [2, 1] {
        let flush = logged.pending[0].clone();
        logged.end(&flush, true);
        assert_eq!((logged.units(), logged.flushes().len()), (vec![], left));
    }
    let flush = logged.pending[0].clone();
    logged.end(&flush, true);
    assert_eq!(logged.units(), [2]);
    logged.end_unit(2, true);
    logged.end_all(IoKind::Write { fua: false });
    assert_eq!(logged.answers.last(), Some(&(3, true)));
    assert!(!logged.shard.is_quiet(), "the log is still in use");
    logged.end_all(IoKind::Flush);
    assert!(logged.shard.is_quiet());
}

/// What would be lost: see above. Before the first unit a replacement may hold what was written without one, too.
#[test]
fn the_first_unit_waits_for_the_flush_of_a_replacement_too() {
    let mut logged = Logged::with_replacement(Some(Sector(0)));
    logged.write(0);
    let mut flushes = logged.flushes();
    flushes.sort_unstable();
    assert_eq!(flushes, [0, 1, 2, 3]);
    for _ in 0..4 {
        assert_eq!(logged.units(), []);
        let flush = logged.pending[0].clone();
        logged.end(&flush, true);
    }
    assert_eq!(logged.units(), [2, 3]);
}

#[test]
fn an_operation_waits_until_its_unit_is_in_the_replacements_log_too() {
    for first in [2, 3] {
        let mut logged = Logged::begun(Some(Sector(0)));
        logged.end_unit(first, true);
        assert_eq!(logged.writes(0), []);
        logged.end_unit(5 - first, true);
        let mut writes = logged.writes(0);
        writes.sort_unstable();
        assert_eq!(writes, [0, 1, 2, 3]);
        logged.end_all(IoKind::Write { fua: false });
        assert_eq!(logged.flushes().len(), 4, "the replacement's, too");
    }
}

#[test]
fn what_waits_for_the_log_of_a_failed_member_goes_to_who_takes_its_place() {
    let mut logged = Logged::begun(Some(FULLY_TRUSTED));
    logged.write(3);
    logged.order(&Order::MemberFailed(MemberId(2)));
    (2..4).for_each(|member| logged.end_unit(member, true));
    logged.end_writes();
    assert_eq!((logged.units(), logged.answers.len()), (vec![], 0), "nothing is on record yet");
    logged.order(&Order::Recorded(MemberId(2)));
    assert_eq!((logged.units(), logged.answers.len()), (vec![3], 1));
    logged.end_unit(3, true);
    logged.end_writes();
    assert_eq!(logged.answers, [(0, true), (3, true)]);
    assert!(logged.shard.is_quiet());
}

#[test]
fn without_a_member_for_parity_what_waits_goes_on_without_a_log() {
    let mut logged = Logged::begun(None);
    logged.write(3);
    logged.fail(2);
    logged.end_unit(2, true);
    logged.end_writes();
    assert_eq!((logged.units(), logged.writes(3)), (vec![], vec![0, 1]));
    logged.end_writes();
    assert_eq!(logged.answers, [(0, true), (3, true)]);
    assert!(logged.shard.is_quiet());
}

#[test]
fn who_cannot_write_its_log_is_used_no_more_if_the_array_lives_without_it() {
    let mut logged = Logged::begun(None);
    logged.end_unit(2, false);
    assert_eq!((&logged.failed[..], logged.writes(0)), (&[MemberId(2)][..], vec![]));
    logged.order(&Order::Recorded(MemberId(2)));
    assert_eq!(logged.writes(0), [0, 1]);
    logged.end_writes();
    assert_eq!(logged.answers, [(0, true)]);
    // Somebody has the unit, and somebody has not.
    let mut logged = Logged::begun(Some(Sector(0)));
    logged.end_unit(3, false);
    logged.end_unit(2, true);
    assert_eq!((&logged.failed[..], logged.writes(0)), (&[MemberId(3)][..], vec![0, 1, 2]));
}

/// What would be lost: a block of a member that is missing. Parity cannot be made good without the log.
#[test]
fn nothing_is_written_without_a_log_that_the_array_cannot_do_without() {
    let mut logged = Logged::begun(None);
    logged.fail(0);
    logged.end_unit(2, false);
    assert_eq!((&logged.answers[..], logged.pending.len()), (&[(0, false)][..], 0));
    for order in [[2, 3], [3, 2]] {
        let mut logged = Logged::begun(Some(Sector(0)));
        logged.fail(0);
        order.iter().for_each(|&member| logged.end_unit(member, member == 3));
        assert_eq!((&logged.answers[..], logged.writes(0)), (&[(0, false)][..], vec![]));
    }
}

/// What would be lost: an answer; nobody looks after what waits any more.
#[test]
fn a_unit_that_fails_after_the_array_gave_up_fails_what_it_names() {
    let mut logged = Logged::begun(None);
    logged.write(3);
    logged.order(&Order::Broken);
    assert_eq!(logged.answers, [(3, false)]);
    logged.end_unit(2, false);
    assert_eq!((&logged.answers[..], logged.writes(0)), (&[(3, false), (0, false)][..], vec![]));
}

#[test]
fn a_unit_holds_the_part_of_parity_that_a_write_leaves_as_it_is() {
    let mut logged = Logged::begun(None);
    let lens = |logged: &Logged| logged.pending.iter().map(|io| io.len.0).collect::<Vec<_>>();
    assert_eq!(lens(&logged), [8], "a whole stripe leaves nothing");
    logged.end_unit(2, true);
    logged.end_writes();
    let buf = Buf { id: BufId(1), offset: 0 };
    let kind = RequestKind::Write { buf, fua: false, followed: false };
    let (id, sector, len) = (RequestId(9), Sector(3), Sectors(4));
    logged.shard.handle_request(NOW, Request { id, kind, sector, len });
    logged.shard.hurry();
    logged.drain();
    logged.end_all(IoKind::Read);
    assert_eq!((logged.units(), lens(&logged)), (vec![2], vec![8 + 4]));
}
