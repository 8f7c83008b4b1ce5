//! Promise: what fails where nothing may be written, or need not be, costs no member; and what one shard has lost is
//! lost for all.

use crate::mirror::{self, NOW};
use lapstrake_engine::{
    BitmapTerms, Buf, BufId, Effect, FULLY_TRUSTED, IoKind, MemberConfig, MemberId, MemberIo,
    Notice, Order, PieceId, Reply, Request, RequestError, RequestId, RequestKind, Shard,
    ShardConfig, SyncAction, SyncPiece, Time,
};
use lapstrake_geometry::{Config, Geometry, Layout, Level, Sector, Sectors, Slot, StripeNo};
use std::ops::Range;

const BUF: Buf = Buf { id: BufId(1), offset: 0 };

/// What a shard did with a request: its I/Os, its answer, what it told the supervisor but that it wants to write.
type Did = (Vec<MemberIo>, Option<Reply>, Vec<Notice>);

/// Has the shard do a request of 8 sectors; I/Os end as told.
fn does(shard: &mut Shard, kind: RequestKind, at: u64, ends: impl Fn(&MemberIo) -> bool) -> Did {
    does_long(shard, kind, at..at + 8, ends)
}

fn does_long(
    shard: &mut Shard,
    kind: RequestKind,
    range: Range<u64>,
    ends: impl Fn(&MemberIo) -> bool,
) -> Did {
    let (id, sector) = (RequestId(range.start + 1), Sector(range.start));
    let len = Sectors(range.end - range.start);
    shard.handle_request(NOW, Request { id, kind, sector, len });
    let (ios, ended, told) = carry_out(shard, ends);
    let reply = ended.into_iter().find_map(|effect| match effect {
        Effect::Reply(reply) => Some(reply),
        _ => None,
    });
    (ios, reply, told)
}

/// As [`does`], of a read of sectors that another shard owns: how it ended.
fn reads_foreign(
    shard: &mut Shard,
    at: u64,
    ends: impl Fn(&MemberIo) -> bool,
) -> (Vec<MemberIo>, Option<Effect>, Vec<Notice>) {
    let (id, kind) = (RequestId(at), RequestKind::Read(BUF));
    let request = Request { id, kind, sector: Sector(at), len: Sectors(8) };
    shard.handle_foreign_read(NOW, request);
    carry_out(shard, ends)
}

fn carry_out(
    shard: &mut Shard,
    ends: impl Fn(&MemberIo) -> bool,
) -> (Vec<MemberIo>, Option<Effect>, Vec<Notice>) {
    let (mut ios, mut ended) = (Vec::new(), None);
    while let Some(effect) = shard.poll_effect() {
        match effect {
            Effect::Io(io) => {
                let ok = ends(&io);
                shard.handle_completion(NOW, io.id, ok);
                ios.push(io);
            }
            Effect::Reply(_) | Effect::Declined(_) => ended = Some(effect),
            _ => {}
        }
    }
    let told = std::iter::from_fn(|| shard.poll_notice()).filter(|n| *n != Notice::NeedActive);
    (ios, ended, told.collect())
}

#[test]
fn a_read_of_another_shards_sectors_goes_to_members_that_have_them() {
    for mut shard in [degraded(), mirror::read_only()] {
        // The first chunk of a RAID5 of three lies on the first member, the second on the next.
        let (ios, ended, told) = reads_foreign(&mut shard, 8, |_| true);
        assert_eq!(ios.len(), 1);
        assert!(matches!(ended, Some(Effect::Reply(reply)) if reply.result.is_ok()));
        assert_eq!(told, [Notice::Reads]);
        assert_eq!(reads_foreign(&mut shard, 8, |_| true).2, [], "told already");
    }
}

#[test]
fn a_read_of_another_shards_sectors_is_declined_where_something_would_have_to_be_mended() {
    // What has to be recovered.
    let (ios, ended, told) = reads_foreign(&mut degraded(), 0, |_| true);
    assert!(matches!(ended, Some(Effect::Declined(RequestId(0)))));
    assert!(ios.is_empty() && told == [Notice::Reads]);
    // What cannot be read: the owner mends it.
    for mut shard in [raid5(3, 0, Sectors(8), None), mirror::read_only()] {
        let (ios, ended, told) = reads_foreign(&mut shard, 8, |_| false);
        assert_eq!(ios.len(), 1);
        assert!(matches!(ended, Some(Effect::Declined(RequestId(8)))));
        assert_eq!(told, [Notice::Reads]);
        assert!(shard.is_quiet() && !shard.has_failed(ios[0].member));
    }
    // Half of it could be read.
    let mut shard = raid5(3, 0, Sectors(8), None);
    let request = Request {
        id: RequestId(3),
        kind: RequestKind::Read(BUF),
        sector: Sector(4),
        len: Sectors(8),
    };
    shard.handle_foreign_read(NOW, request);
    let (ios, ended, _) = carry_out(&mut shard, |io| io.member == MemberId(0));
    assert_eq!(ios.len(), 2);
    assert!(matches!(ended, Some(Effect::Declined(RequestId(3)))) && shard.is_quiet());
    // Copies that may differ.
    let mut shard = mirror::read_only();
    shard.handle_order(NOW, &Order::InSync(Sector(12)));
    let (ios, ended, _) = reads_foreign(&mut shard, 8, |_| true);
    assert!(ios.is_empty() && matches!(ended, Some(Effect::Declined(_))));
    assert_eq!(reads_foreign(&mut shard, 0, |_| true).0.len(), 1);
}

#[test]
fn what_cannot_be_read_where_nothing_may_be_written_is_read_elsewhere_and_costs_no_member() {
    let mut shard = mirror::read_only();
    // Each half has a page that the other has, too.
    for (bad, at) in [(0, 0), (1, 512)] {
        for _ in 0..4 {
            let fails = |io: &MemberIo| io.member == MemberId(bad);
            let (ios, reply, told) = does(&mut shard, RequestKind::Read(BUF), at, |io| !fails(io));
            assert!(ios.iter().all(|io| io.kind == IoKind::Read), "{ios:?}");
            assert!(reply.is_some_and(|reply| reply.result.is_ok()), "page {at}");
            assert_eq!(told, [], "page {at}");
        }
    }
}

/// Whether an I/O touches a sector of the array that its half cannot read.
fn touches(io: &MemberIo, bad: &[(u16, u64)]) -> bool {
    let range = io.sector.0 - 64..io.sector.0 - 64 + io.len.0;
    bad.iter().any(|&(half, at)| io.member == MemberId(half) && range.contains(&at))
}

/// What would be lost: all of a long read, since until they are tried one by one all its pages count as bad on
/// both.
#[test]
fn halves_with_bad_pages_of_their_own_are_read_page_by_page() {
    let bad = [(0, 100), (1, 300), (1, 600)];
    let mut shard = mirror::read_only();
    for at in [0, 8] {
        let (_, reply, told) =
            does_long(&mut shard, RequestKind::Read(BUF), at..1000, |io| !touches(io, &bad));
        assert!(reply.is_some_and(|reply| reply.result.is_ok()), "from {at}");
        assert_eq!(told, []);
    }
    // What neither has cannot be had, and the rest can.
    let bad = [(0, 100), (1, 96)];
    let mut shard = mirror::read_only();
    for (range, is_ok) in [(0..1000, false), (96..104, false), (0..96, true), (104..1000, true)] {
        let (_, reply, _) =
            does_long(&mut shard, RequestKind::Read(BUF), range.clone(), |io| !touches(io, &bad));
        assert_eq!(reply.is_some_and(|reply| reply.result.is_ok()), is_ok, "{range:?}");
    }
}

/// What would be lost: a write that has nothing to do with what cannot be read.
#[test]
fn what_is_only_being_tried_is_written() {
    let mut shard = mirror::mirror([(true, false, None), (true, false, None)], None);
    shard.handle_order(NOW, &Order::Active);
    let read = Request {
        id: RequestId(1),
        kind: RequestKind::Read(BUF),
        sector: Sector(0),
        len: Sectors(64),
    };
    shard.handle_request(NOW, read);
    for _ in 0..2 {
        let Some(Effect::Io(io)) = shard.poll_effect() else { panic!("a read of another half") };
        shard.handle_completion(NOW, io.id, false);
    }
    let kind = RequestKind::Write { buf: BUF, fua: false, followed: false };
    let (ios, reply, _) = does(&mut shard, kind, 8, |_| true);
    assert!(reply.is_some_and(|reply| reply.result.is_ok()), "{ios:?}");
}

#[test]
fn a_member_that_fails_at_a_discard_is_none_the_worse() {
    let mut shard = mirror::mirror([(true, false, None), (true, false, None)], None);
    shard.handle_order(NOW, &Order::Active);
    let (ios, reply, told) =
        does(&mut shard, RequestKind::Discard, 64, |io| io.member == MemberId(0));
    assert_eq!(ios.len(), 2);
    assert!(reply.is_some_and(|reply| reply.result.is_ok()));
    assert_eq!(told, []);
    assert!(!shard.has_failed(MemberId(1)));
}

/// A RAID5 of three that lacks the first.
fn degraded() -> Shard {
    degraded_of(3, None)
}

/// A RAID5 that lacks the first member, and of the second what is on record as bad.
fn degraded_of(raid_disks: u16, bad: Option<Range<u64>>) -> Shard {
    raid5(raid_disks, 1, Sectors(8), bad)
}

fn raid5(raid_disks: u16, first: u16, chunk: Sectors, bad: Option<Range<u64>>) -> Shard {
    let members = (first..raid_disks).map(|slot| MemberConfig {
        bad_blocks: (slot == 1).then(|| bad.iter().cloned().collect()),
        ..member(slot)
    });
    raid5_of(raid_disks, chunk, members.collect(), FULLY_TRUSTED)
}

fn member(slot: u16) -> MemberConfig {
    MemberConfig {
        data_offset: Sector(64),
        slot: Some(Slot(slot)),
        trusted_to: FULLY_TRUSTED,
        rotational: false,
        write_mostly: false,
        bad_blocks: None,
        log: None,
    }
}

fn raid5_of(
    raid_disks: u16,
    chunk: Sectors,
    members: Vec<MemberConfig>,
    in_sync_to: Sector,
) -> Shard {
    let geometry = Geometry::new(&Config {
        level: Level::Raid5,
        layout: Layout::default_for(Level::Raid5),
        chunk,
        raid_disks,
        component: chunk * 128,
        member_sizes: Vec::new(),
    });
    Shard::new(ShardConfig {
        geometry: geometry.expect("a RAID5"),
        members,
        read_only: false,
        block: Sectors(1),
        in_sync_to,
        bitmap: None,
        scratch: BufId(0),
        scratch_pages: 256,
        log_signature: None,
        lost: Vec::new(),
        journal: None,
        behind_pages: 0,
        unsynced: None,
    })
}

/// What would be lost: parity was made for what the member holds, and whoever takes its place later holds something else.
#[test]
fn who_is_to_take_a_members_place_gets_what_parity_is_made_for() {
    let replacement = MemberConfig { trusted_to: Sector(0), ..member(2) };
    let members = (0..4).map(member).chain([replacement]).collect();
    let mut shard = raid5_of(4, Sectors(8), members, Sector(0));
    shard.handle_order(NOW, &Order::Active);
    let write = RequestKind::Write { buf: BUF, fua: false, followed: false };
    let (ios, reply, _) = does(&mut shard, write, 0, |_| true);
    assert!(reply.is_some_and(|reply| reply.result.is_ok()));
    let of = |is: fn(&IoKind) -> bool| {
        let mut members: Vec<u16> =
            ios.iter().filter(|io| is(&io.kind)).map(|io| io.member.0).collect();
        members.sort_unstable();
        members
    };
    // Redundancy was never right: the other data is read, and parity made anew.
    assert_eq!(of(|kind| *kind == IoKind::Read), [1, 2]);
    assert_eq!(of(|kind| *kind != IoKind::Read), [0, 2, 3, 4]);
}

#[test]
fn in_a_stripe_that_one_shard_lost_no_other_recovers_anything() {
    // Left-symmetric: the first chunk of stripe 0 is the missing member's.
    let mut one = degraded();
    one.handle_order(NOW, &Order::Active);
    let write = RequestKind::Write { buf: BUF, fua: false, followed: false };
    one.handle_request(
        NOW,
        Request { id: RequestId(1), kind: write, sector: Sector(0), len: Sectors(8) },
    );
    let mut told = Vec::new();
    // The write of the parity fails on who is needed.
    for turn in 0.. {
        while let Some(effect) = one.poll_effect() {
            if let Effect::Io(io) = effect {
                one.handle_completion(NOW, io.id, io.kind == IoKind::Read);
            }
        }
        told.extend(std::iter::from_fn(|| one.poll_notice()));
        let Some(due) = one.poll_deadline().filter(|_| turn < 10) else { break };
        one.handle_time(due.max(Time(1)));
    }
    assert!(told.contains(&Notice::Lost(Some(StripeNo(0)))), "{told:?}");

    let mut other = degraded();
    other.handle_order(NOW, &Order::Lost(StripeNo(0)));
    let mut read =
        |at| does(&mut other, RequestKind::Read(BUF), at, |_| true).1.expect("an answer");
    assert_eq!(read(0).result, Err(RequestError::Io), "what is lost");
    assert!(read(8).result.is_ok(), "what a member has");
    // Stripe 2 has its parity on the missing member, so the next that lacks data is stripe 1.
    assert!(read(24).result.is_ok(), "what can be recovered elsewhere");
}

#[test]
fn a_read_that_nobody_else_can_answer_fails_and_is_not_tried_again() {
    let whole = (true, false, None);
    let mut shard = mirror::mirror([whole.clone(), whole], None);
    shard.handle_order(NOW, &Order::MemberFailed(MemberId(1)));
    let (id, sector, len) = (RequestId(9), Sector(40), Sectors(8));
    shard.handle_request(NOW, Request { id, kind: RequestKind::Read(BUF), sector, len });
    let Some(Effect::Io(io)) = shard.poll_effect() else { panic!("a read") };
    assert_eq!(shard.place_of(io.id), Some((MemberId(0), Sector(64 + 40))));
    shard.handle_completion(NOW, io.id, true);
    assert_eq!(shard.place_of(io.id), None, "it has ended");
    let (ios, reply, told) = does(&mut shard, RequestKind::Read(BUF), 0, |_| false);
    assert_eq!((ios.len(), told), (1, vec![]));
    assert_eq!(reply.map(|reply| reply.result), Some(Err(RequestError::Io)));
}

#[test]
fn what_members_do_is_counted() {
    let whole = (true, false, None);
    let mut shard = mirror::mirror([whole.clone(), whole], None);
    shard.handle_order(NOW, &Order::Active);
    let write = RequestKind::Write { buf: BUF, fua: false, followed: false };
    does_long(&mut shard, write, 16..40, |_| true);
    does_long(&mut shard, RequestKind::Read(BUF), 20..25, |_| true);
    does_long(&mut shard, RequestKind::Read(BUF), 30..33, |_| true);
    let stats = shard.stats();
    assert_eq!(stats.requests, 3);
    assert_eq!((stats.member_writes, stats.member_write_sectors), (2, 48));
    assert_eq!((stats.member_reads, stats.member_read_sectors), (2, 8));
}

/// Has the shard write; I/Os end as told.
fn writes(shard: &mut Shard, at: u64, len: u64, ends: impl Fn(&MemberIo) -> bool) -> Did {
    shard.handle_order(NOW, &Order::Active);
    let kind = RequestKind::Write { buf: BUF, fua: false, followed: false };
    let (mut ios, mut reply, told) = does_long(shard, kind, at..at + len, &ends);
    shard.hurry();
    while let Some(effect) = shard.poll_effect() {
        match effect {
            Effect::Io(io) => {
                shard.handle_completion(NOW, io.id, ends(&io));
                ios.push(io);
            }
            Effect::Reply(answer) => reply = Some(answer),
            _ => {}
        }
    }
    (ios, reply, told)
}

/// What would be lost: what the missing member had, if parity were made of what could not be read; or what another lacks,
/// if data were written beside parity that stays as it is.
#[test]
fn a_write_that_needs_what_cannot_be_read_fails_and_changes_nothing() {
    let cases = [
        ("the other block, for parity", degraded(), 0),
        ("two blocks", degraded_of(4, Some(0..8)), 16),
    ];
    for (what, mut shard, at) in cases {
        let (ios, reply, _) = writes(&mut shard, at, 4, |io| io.kind != IoKind::Read);
        assert_eq!(reply.map(|reply| reply.result), Some(Err(RequestError::Io)), "{what}");
        assert!(ios.iter().all(|io| io.kind == IoKind::Read), "{what}: {ios:?}");
    }
}

/// What would be lost: every write to a member that is on record as bad somewhere else.
#[test]
fn what_is_bad_elsewhere_stands_in_nobodys_way() {
    let (ios, reply, _) = writes(&mut degraded_of(4, Some(16..24)), 24, 4, |_| true);
    assert_eq!(reply.map(|reply| reply.result), Some(Ok(())), "a part of stripe 1: {ios:?}");
    let mut shard = degraded_of(4, Some(16..24));
    shard.handle_order(NOW, &Order::Active);
    let zeroes = RequestKind::WriteZeroes { fua: false, unmap: false };
    let (ios, reply, _) = does_long(&mut shard, zeroes, 24..48, |_| true);
    assert_eq!(reply.map(|reply| reply.result), Some(Ok(())), "all of stripe 1: {ios:?}");
}

/// What would be lost: what is bad, which nobody can recover once parity is another.
#[test]
fn a_write_whose_stripe_loses_a_block_while_it_reads_changes_nothing() {
    let mut shard = degraded_of(4, None);
    shard.handle_order(NOW, &Order::Active);
    let kind = RequestKind::Write { buf: BUF, fua: false, followed: false };
    let (id, sector, len) = (RequestId(1), Sector(16), Sectors(4));
    shard.handle_request(NOW, Request { id, kind, sector, len });
    shard.hurry();
    let (mut is_told, mut answer) = (false, None);
    while let Some(effect) = shard.poll_effect() {
        match effect {
            Effect::Io(io) => {
                assert_eq!(io.kind, IoKind::Read);
                if !std::mem::replace(&mut is_told, true) {
                    // Another shard has found it.
                    let second = MemberId(0);
                    shard.handle_order(NOW, &Order::BadRecorded(second, Sector(0), Sectors(8)));
                }
                shard.handle_completion(NOW, io.id, true);
            }
            Effect::Reply(reply) => answer = Some(reply.result),
            _ => {}
        }
    }
    assert!(is_told);
    assert_eq!(answer, Some(Err(RequestError::Io)));
}

/// What would be lost: what was cut off when the array gave up, and a flush called stable.
#[test]
fn an_array_that_has_given_up_refuses_all_but_reads() {
    let whole = (true, false, None);
    let mut shard = mirror::mirror([whole.clone(), whole], None);
    shard.handle_order(NOW, &Order::Broken);
    let write = RequestKind::Write { buf: BUF, fua: false, followed: false };
    for kind in [write, RequestKind::WriteZeroes { fua: false, unmap: false }] {
        let (ios, reply, _) = does(&mut shard, kind, 0, |_| true);
        assert_eq!((ios.len(), reply.map(|r| r.result)), (0, Some(Err(RequestError::Io))));
    }
    let (ios, reply, _) = does_long(&mut shard, RequestKind::Flush, 0..0, |_| true);
    assert_eq!((ios.len(), reply.map(|r| r.result)), (0, Some(Err(RequestError::Io))));
    assert!(
        does(&mut shard, RequestKind::Read(BUF), 0, |_| true).1.is_some_and(|r| r.result.is_ok())
    );
}

#[test]
fn an_array_that_is_read_only_refuses_writes() {
    let write = RequestKind::Write { buf: BUF, fua: false, followed: false };
    let (ios, reply, _) = does(&mut mirror::read_only(), write, 0, |_| true);
    assert_eq!((ios.len(), reply.map(|r| r.result)), (0, Some(Err(RequestError::ReadOnly))));
}

#[test]
fn only_where_there_is_parity_do_writes_gain_by_waiting_for_their_neighbours() {
    assert!(degraded().joins_writes() && !mirror::read_only().joins_writes());
}

/// What would be lost: the bits of what was being written when the bitmap came, and after a cut what they tell of.
#[test]
fn what_is_being_written_when_a_bitmap_comes_holds_its_bits() {
    let whole = (true, false, None);
    let mut shard = mirror::mirror([whole.clone(), whole], None);
    shard.handle_order(NOW, &Order::Active);
    let kind = RequestKind::Write { buf: BUF, fua: false, followed: false };
    let (id, sector, len) = (RequestId(1), Sector(100), Sectors(8));
    shard.handle_request(NOW, Request { id, kind, sector, len });
    let ios: Vec<MemberIo> = std::iter::from_fn(|| match shard.poll_effect() {
        Some(Effect::Io(io)) => Some(io),
        _ => None,
    })
    .collect();
    assert_eq!(ios.len(), 2);
    let chunk = Sectors(16);
    shard.handle_order(NOW, &Order::Bitmap(Some(BitmapTerms { chunk, write_behind: 0 })));
    let told: Vec<Notice> = std::iter::from_fn(|| shard.poll_notice()).collect();
    assert!(told.contains(&Notice::BitsWanted(chunk, 6, 6)), "{told:?}");
}

/// A request of more than 32 MiB is done in parts.
#[test]
fn no_stripe_of_a_long_request_is_torn_apart() {
    for chunk in [1024, 32768] {
        let mut shard = raid5(4, 0, Sectors(chunk), None);
        shard.handle_order(NOW, &Order::Active);
        let len = 30 * 3 * chunk;
        assert!(len > (32 << 20) / 512);
        let kind = RequestKind::WriteZeroes { fua: false, unmap: false };
        let (ios, reply, _) = does_long(&mut shard, kind, 0..len, |_| true);
        assert_eq!(reply.map(|reply| reply.result), Some(Ok(())));
        assert!(ios.iter().all(|io| matches!(io.kind, IoKind::WriteZeroes { .. })), "{chunk}");
        assert_eq!(ios.iter().map(|io| io.len.0).sum::<u64>(), 30 * 4 * chunk);
    }
}

/// What would be lost: after a cut, the later parts of a long write; no bit would tell of them.
#[test]
fn each_part_of_a_long_write_waits_for_its_bits() {
    const PART: u64 = 65536;
    let whole = (true, false, None);
    let terms = BitmapTerms { chunk: Sectors(PART), write_behind: 0 };
    let mut shard = mirror::mirror([whole.clone(), whole], Some(terms));
    shard.handle_order(NOW, &Order::Active);
    let kind = RequestKind::WriteZeroes { fua: false, unmap: false };
    let (id, sector, len) = (RequestId(1), Sector(0), Sectors(3 * PART));
    shard.handle_request(NOW, Request { id, kind, sector, len });
    for part in 0..3 {
        assert!(shard.poll_effect().is_none(), "part {part} waits");
        let told: Vec<Notice> = std::iter::from_fn(|| shard.poll_notice()).collect();
        assert_eq!(told, [Notice::BitsWanted(terms.chunk, part, part)]);
        shard.handle_order(NOW, &Order::BitsSet(part, part));
        let ios: Vec<Effect> = std::iter::from_fn(|| shard.poll_effect()).collect();
        assert_eq!(ios.len(), 2, "{ios:?}");
        for io in ios {
            let Effect::Io(io) = io else { panic!("{io:?}") };
            assert_eq!((io.sector.0, io.len.0), (64 + part * PART, PART));
            shard.handle_completion(NOW, io.id, true);
        }
    }
    assert!(matches!(shard.poll_effect(), Some(Effect::Reply(reply)) if reply.result.is_ok()));
}

#[test]
fn a_long_read_makes_nothing_active() {
    let whole = (true, false, None);
    let mut shard = mirror::mirror([whole.clone(), whole], None);
    let (id, kind) = (RequestId(1), RequestKind::Read(BUF));
    let (sector, len) = (Sector(0), Sectors(mirror::SECTORS));
    shard.handle_request(NOW, Request { id, kind, sector, len });
    let mut parts = 0;
    while let Some(Effect::Io(io)) = shard.poll_effect() {
        parts += 1;
        shard.handle_completion(NOW, io.id, true);
        assert_eq!(shard.poll_notice(), None);
    }
    assert!(parts > 1 && shard.is_quiet());
}

/// What would be lost: see above. A discard does nothing where it covers no whole stripe.
#[test]
fn a_part_that_does_nothing_gives_no_bits_to_the_next() {
    const CHUNK: u64 = 32768;
    let mut shard = raid5(4, 0, Sectors(CHUNK), None);
    shard.handle_order(NOW, &Order::Active);
    let terms = BitmapTerms { chunk: Sectors(CHUNK), write_behind: 0 };
    shard.handle_order(NOW, &Order::Bitmap(Some(terms)));
    let (id, kind, sector) = (RequestId(1), RequestKind::Discard, Sector(8));
    shard.handle_request(NOW, Request { id, kind, sector, len: Sectors(2 * 3 * CHUNK - 8) });
    for stripe in 0..2 {
        assert!(shard.poll_effect().is_none(), "stripe {stripe} waits");
        let told: Vec<Notice> = std::iter::from_fn(|| shard.poll_notice()).collect();
        assert_eq!(told, [Notice::BitsWanted(terms.chunk, stripe, stripe)]);
        shard.handle_order(NOW, &Order::BitsSet(stripe, stripe));
    }
    assert!(matches!(shard.poll_effect(), Some(Effect::Io(_))));
}

#[test]
fn a_shard_is_idle_when_no_write_is_under_way_and_none_has_ended_since() {
    let whole = (true, false, None);
    let mut shard = mirror::mirror([whole.clone(), whole], None);
    shard.handle_order(NOW, &Order::Active);
    let kind = RequestKind::Write { buf: BUF, fua: false, followed: false };
    let (id, sector, len) = (RequestId(1), Sector(0), Sectors(8));
    shard.handle_request(NOW, Request { id, kind, sector, len });
    let ios: Vec<Effect> = std::iter::from_fn(|| shard.poll_effect()).collect();
    shard.handle_order(Time(5), &Order::TryIdle(Time(5)));
    assert_eq!(shard.poll_notice(), Some(Notice::Busy(Time(5))));
    for io in ios {
        let Effect::Io(io) = io else { panic!("{io:?}") };
        shard.handle_completion(Time(7), io.id, true);
    }
    for (before, expected) in [(6, Notice::Busy(Time(7))), (7, Notice::Idle)] {
        shard.handle_order(Time(9), &Order::TryIdle(Time(before)));
        assert_eq!(shard.poll_notice(), Some(expected));
    }
}

/// What would be lost: an answer, if neither half took what is bad on both.
#[test]
fn what_is_bad_on_both_halves_can_be_written() {
    let bad = (true, false, Some(8..16));
    let write = RequestKind::Write { buf: BUF, fua: false, followed: false };
    for (fails, expected) in [(None, true), (Some(1), true), (Some(2), false)] {
        let mut shard = mirror::mirror([bad.clone(), bad.clone()], None);
        shard.handle_order(NOW, &Order::Active);
        // The second half fails, or both do.
        let ends = |io: &MemberIo| match fails {
            None => true,
            Some(1) => io.member == MemberId(0),
            _ => false,
        };
        let (ios, reply, told) = does(&mut shard, write, 8, ends);
        assert_eq!(ios.len(), 2);
        assert_eq!(reply.is_some_and(|reply| reply.result.is_ok()), expected, "{fails:?}");
        assert!(!told.iter().any(|notice| matches!(notice, Notice::Failed(_))), "{told:?}");
        let (_, reply, _) = does(&mut shard, RequestKind::Read(BUF), 8, |_| true);
        assert_eq!(reply.is_some_and(|reply| reply.result.is_ok()), expected, "{fails:?}");
    }
}

/// What would be lost: an error. The failure is never put on record once the array has given up.
#[test]
fn an_answer_that_waits_for_a_record_is_an_error_when_the_array_gives_up() {
    let whole = (true, false, None);
    let mut shard = mirror::mirror([whole.clone(), whole], None);
    shard.handle_order(NOW, &Order::Active);
    let write = RequestKind::Write { buf: BUF, fua: false, followed: false };
    let (_, reply, told) = does(&mut shard, write, 0, |io| io.member == MemberId(0));
    assert_eq!((reply.is_none(), told), (true, vec![Notice::Failed(MemberId(1))]));
    shard.handle_order(NOW, &Order::Broken);
    let Some(Effect::Reply(reply)) = shard.poll_effect() else { panic!("an answer") };
    assert_eq!(reply.result, Err(RequestError::Io));
}

/// What would be lost: what nobody could read, if it counted as recovered.
#[test]
fn a_recovery_of_what_cannot_be_read_fails_where_nothing_keeps_a_record() {
    let mut shard = degraded();
    let config = MemberConfig {
        data_offset: Sector(64),
        slot: None,
        trusted_to: Sector(0),
        rotational: false,
        write_mostly: false,
        bad_blocks: None,
        log: None,
    };
    shard.handle_order(NOW, &Order::MemberAdded(config));
    shard.handle_order(NOW, &Order::Slotted(MemberId(2), Slot(0)));
    let (id, action, within) = (PieceId(1), SyncAction::Recovery, 0..8);
    let (start, len) = (Sector(0), Sectors(16));
    shard.handle_sync(NOW, SyncPiece { id, action, start, len, within });
    while let Some(effect) = shard.poll_effect() {
        if let Effect::Io(io) = effect {
            shard.handle_completion(NOW, io.id, io.kind != IoKind::Read);
        }
    }
    let told: Vec<Notice> = std::iter::from_fn(|| shard.poll_notice()).collect();
    let report = told.iter().find_map(|notice| match notice {
        Notice::Synced(report) => Some(report.ok),
        _ => None,
    });
    assert_eq!(report, Some(false), "{told:?}");
}

#[test]
fn a_member_that_cannot_be_written_in_its_recovery_is_used_no_more() {
    let mut shard = mirror::mirror([(true, false, None), (false, false, None)], None);
    let (id, action, within) = (PieceId(1), SyncAction::Recovery, 0..64);
    let (start, len) = (Sector(0), Sectors(64));
    shard.handle_sync(NOW, SyncPiece { id, action, start, len, within });
    while let Some(effect) = shard.poll_effect() {
        if let Effect::Io(io) = effect {
            shard.handle_completion(NOW, io.id, io.kind == IoKind::Read);
        }
    }
    let told: Vec<Notice> = std::iter::from_fn(|| shard.poll_notice()).collect();
    assert!(told.contains(&Notice::Failed(MemberId(1))), "{told:?}");
    assert!(!told.iter().any(|notice| matches!(notice, Notice::Bad(..))), "{told:?}");
}

#[test]
fn a_request_of_nothing_wakes_nobody() {
    let whole = (true, false, None);
    let mut shard = mirror::mirror([whole.clone(), whole], None);
    let write = RequestKind::Write { buf: BUF, fua: false, followed: false };
    let (ios, reply, _) = does_long(&mut shard, write, 8..8, |_| true);
    assert_eq!((ios.len(), reply.map(|reply| reply.result)), (0, Some(Ok(()))));
}

/// What would be lost: the word that what lies beside a range written anew is bad.
#[test]
fn what_is_told_as_bad_is_so_but_for_what_was_written_meanwhile() {
    let whole = (true, false, None);
    let mut shard = mirror::mirror([whole, (true, false, Some(8..16))], None);
    shard.handle_order(NOW, &Order::Active);
    let write = RequestKind::Write { buf: BUF, fua: false, followed: false };
    let (_, _, told) = does(&mut shard, write, 8, |_| true);
    assert_eq!(told, [Notice::Good(MemberId(1), Sector(8), Sectors(8))]);
    shard.handle_order(NOW, &Order::BadRecorded(MemberId(1), Sector(0), Sectors(24)));
    shard.handle_order(NOW, &Order::MemberFailed(MemberId(0)));
    for (at, expected) in [(0, false), (8, true), (16, false)] {
        let (_, reply, _) = does(&mut shard, RequestKind::Read(BUF), at, |_| true);
        assert_eq!(reply.is_some_and(|reply| reply.result.is_ok()), expected, "{at}");
    }
}

/// What would be lost: the members, one by one, over an overlay that they share and that is full.
#[test]
fn a_write_without_room_costs_no_member_and_is_the_last() {
    let mut shard = raid5(3, 0, Sectors(8), None);
    shard.handle_order(NOW, &Order::Active);
    let write = RequestKind::Write { buf: BUF, fua: false, followed: false };
    shard.handle_request(
        NOW,
        Request { id: RequestId(1), kind: write, sector: Sector(0), len: Sectors(8) },
    );
    let mut answer = None;
    while let Some(effect) = shard.poll_effect() {
        match effect {
            Effect::Io(io) => {
                let ok = io.kind == IoKind::Read;
                if !ok {
                    shard.handle_out_of_space(NOW);
                }
                shard.handle_completion(NOW, io.id, ok);
            }
            Effect::Reply(reply) => answer = Some(reply.result),
            _ => {}
        }
    }
    assert_eq!(answer, Some(Err(RequestError::NoSpace)));
    let told: Vec<_> = std::iter::from_fn(|| shard.poll_notice()).collect();
    assert_eq!(told.iter().filter(|notice| **notice == Notice::OutOfSpace).count(), 1, "{told:?}");
    assert!(!told.iter().any(|notice| matches!(notice, Notice::Failed(_))), "{told:?}");
    assert!((0..3).all(|member| !shard.has_failed(MemberId(member))));
    let (ios, reply, _) = does(&mut shard, write, 64, |_| true);
    assert_eq!((ios.len(), reply.map(|r| r.result)), (0, Some(Err(RequestError::NoSpace))));
    let (ios, reply, _) = does(&mut shard, RequestKind::Read(BUF), 0, |_| true);
    assert_eq!((ios.len(), reply.map(|r| r.result)), (1, Some(Ok(()))));
}
