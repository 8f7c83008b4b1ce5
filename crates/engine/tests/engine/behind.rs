//! Promise: a write is answered before a write-mostly member has it only if another member that is in sync has it, and
//! then it is.

use crate::mirror::{self, Half, NOW};
use lapstrake_engine::{
    BitmapTerms, Buf, BufId, Effect, IoId, IoKind, MemberConfig, MemberId, Notice, Order, Request,
    RequestId, RequestKind, Shard,
};
use lapstrake_geometry::{Sector, Sectors, Slot};

/// Whether a write of sectors 16 to 24 is answered when all others have it, or have failed at it, and the second member
/// not yet.
fn is_answered_before_the_second_has_it<const N: usize>(shape: [Half; N], fails: &[u16]) -> bool {
    let terms = BitmapTerms { chunk: Sectors(1024), write_behind: 4 };
    let mut shard = mirror::mirror(shape, Some(terms));
    let kind =
        RequestKind::Write { buf: Buf { id: BufId(1), offset: 0 }, fua: false, followed: false };
    let (id, sector, len) = (RequestId(1), Sector(16), Sectors(8));
    shard.handle_request(NOW, Request { id, kind, sector, len });
    let (mut answered, mut held) = (false, None);
    loop {
        let mut is_idle = true;
        while let Some(effect) = shard.poll_effect() {
            is_idle = false;
            match effect {
                Effect::Io(io) if io.member == MemberId(1) => held = Some(io.id),
                Effect::Io(io) => {
                    let ok = !fails.contains(&io.member.0);
                    shard.handle_completion(NOW, io.id, ok);
                }
                Effect::Reply(_) => answered = true,
                _ => {}
            }
        }
        while let Some(notice) = shard.poll_notice() {
            is_idle = false;
            match notice {
                Notice::NeedActive => shard.handle_order(NOW, &Order::Active),
                Notice::Failed(member) => shard.handle_order(NOW, &Order::Recorded(member)),
                Notice::BitsWanted(_, from, to) => {
                    shard.handle_order(NOW, &Order::BitsSet(from, to))
                }
                _ => {}
            }
        }
        if is_idle {
            break;
        }
    }
    let held = held.expect("the second member gets it, too");
    shard.handle_completion(NOW, held, true);
    let mut effects = std::iter::from_fn(|| shard.poll_effect());
    let is_late = effects.any(|effect| matches!(effect, Effect::Reply(_)));
    assert!(answered != is_late, "one answer");
    answered
}

#[test]
fn a_write_leaves_a_lagging_member_behind_only_where_another_in_sync_has_it() {
    let (whole, mostly) = ((true, false, None), (true, true, None));
    let recovering = (false, false, None);
    let mostly_recovering = (false, true, None);
    let cases = [
        ("a slow half lags", [whole.clone(), mostly.clone()], true),
        ("nobody lags", [whole.clone(), whole.clone()], false),
        ("who keeps it is not in sync", [recovering, mostly.clone()], false),
        ("both are mostly for writing", [mostly.clone(), mostly.clone()], false),
        ("who lags is not in sync", [whole, mostly_recovering], false),
        ("who keeps it lacks other sectors", [(true, false, Some(40..48)), mostly.clone()], true),
        ("who keeps it lacks these", [(true, false, Some(16..24)), mostly], false),
    ];
    for (case, shape, expected) in cases {
        assert_eq!(is_answered_before_the_second_has_it(shape, &[]), expected, "{case}");
    }
}

#[test]
fn who_is_still_recovering_keeps_nothing_for_who_lags() {
    let (whole, mostly) = ((true, false, None), (true, true, None));
    let recovering = (false, false, None);
    let three = [whole, mostly, recovering];
    assert!(is_answered_before_the_second_has_it(three.clone(), &[]));
    assert!(!is_answered_before_the_second_has_it(three, &[0]), "the one that kept it has failed");
}

/// What would be lost: a member, if a write that it cannot take in part were not cut at what is on record.
#[test]
fn what_is_bad_in_part_somewhere_is_not_left_behind() {
    let whole = (true, false, None);
    let three = |bad| [whole.clone(), (true, true, None), (true, false, bad)];
    assert!(is_answered_before_the_second_has_it(three(Some(40..48)), &[]));
    assert!(!is_answered_before_the_second_has_it(three(Some(20..22)), &[]));
}

/// What would be lost: a write that was answered and flushed, if the power went and only the member that lagged came back.
#[test]
fn a_flush_waits_for_what_is_left_behind() {
    let terms = BitmapTerms { chunk: Sectors(1024), write_behind: 4 };
    let mut shard = mirror::mirror([(true, false, None), (true, true, None)], Some(terms));
    shard.handle_order(NOW, &Order::Active);
    shard.handle_order(NOW, &Order::BitsSet(0, 0));
    let buf = Buf { id: BufId(1), offset: 0 };
    let requests = [
        (RequestKind::Write { buf, fua: false, followed: false }, Sectors(8)),
        (RequestKind::Flush, Sectors(0)),
    ];
    let (mut held, mut flushed, mut answered) = (None, Vec::new(), Vec::new());
    let mut drain = |shard: &mut Shard, flushed: &mut Vec<MemberId>, answered: &mut Vec<u64>| {
        while let Some(effect) = shard.poll_effect() {
            match effect {
                Effect::Io(io) if io.kind == IoKind::Flush => {
                    flushed.push(io.member);
                    shard.handle_completion(NOW, io.id, true);
                }
                Effect::Io(io) if io.member == MemberId(1) => held = Some(io.id),
                Effect::Io(io) => shard.handle_completion(NOW, io.id, true),
                Effect::Reply(reply) => answered.push(reply.id.0),
                _ => {}
            }
        }
        held
    };
    for (id, (kind, len)) in (1..).map(RequestId).zip(requests) {
        shard.handle_request(NOW, Request { id, kind, sector: Sector(0), len });
        drain(&mut shard, &mut flushed, &mut answered);
    }
    assert_eq!((&answered[..], &flushed[..]), (&[1][..], &[][..]), "a member lags");
    let held = drain(&mut shard, &mut flushed, &mut answered).expect("its copy is on its way");
    shard.handle_completion(NOW, held, true);
    drain(&mut shard, &mut flushed, &mut answered);
    assert_eq!((&answered[..], flushed.len()), (&[1, 2][..], 2), "it has it, and has flushed");
}

/// A mirror of which the second member is slow: its writes wait until they are let go.
struct Slow {
    shard: Shard,
    held: Vec<(IoId, Sector)>,
    answered: Vec<u64>,
    refused: Vec<u64>,
    /// By member, from its data offset.
    reads: Vec<(u16, u64)>,
    flushes: usize,
}

impl Slow {
    fn new<const N: usize>(shape: [Half; N], write_behind: u32) -> Self {
        let mut shard =
            mirror::mirror(shape, Some(BitmapTerms { chunk: Sectors(1024), write_behind }));
        shard.handle_order(NOW, &Order::Active);
        shard.handle_order(NOW, &Order::BitsSet(0, 0));
        let (answered, refused) = (Vec::new(), Vec::new());
        Self { shard, held: Vec::new(), answered, refused, reads: Vec::new(), flushes: 0 }
    }

    fn ask(&mut self, id: u64, kind: RequestKind, sector: u64, len: u64) {
        let (id, sector, len) = (RequestId(id), Sector(sector), Sectors(len));
        self.shard.handle_request(NOW, Request { id, kind, sector, len });
        self.go_on();
    }

    fn write(&mut self, id: u64, sector: u64, len: u64) {
        let buf = Buf { id: BufId(1), offset: 0 };
        self.ask(id, RequestKind::Write { buf, fua: false, followed: false }, sector, len);
    }

    fn read(&mut self, id: u64, sector: u64, len: u64) {
        self.ask(id, RequestKind::Read(Buf { id: BufId(2), offset: 0 }), sector, len);
    }

    /// The slow member's write of a sector ends.
    fn let_go(&mut self, sector: u64) {
        let place = self.held.iter().position(|held| held.1 == Sector(64 + sector)).unwrap();
        let (io, _) = self.held.remove(place);
        self.shard.handle_completion(NOW, io, true);
        self.go_on();
    }

    fn fail(&mut self, member: u16) {
        self.shard.handle_order(NOW, &Order::MemberFailed(MemberId(member)));
        self.shard.handle_order(NOW, &Order::Recorded(MemberId(member)));
        self.go_on();
    }

    fn go_on(&mut self) {
        while let Some(effect) = self.shard.poll_effect() {
            match effect {
                Effect::Io(io) if io.member == MemberId(1) && io.kind != IoKind::Read => {
                    if io.kind == IoKind::Flush {
                        self.flushes += 1;
                        self.shard.handle_completion(NOW, io.id, true);
                    } else {
                        self.held.push((io.id, io.sector));
                    }
                }
                Effect::Io(io) => {
                    if io.kind == IoKind::Read {
                        self.reads.push((io.member.0, io.sector.0 - 64));
                    }
                    self.shard.handle_completion(NOW, io.id, true);
                }
                Effect::Reply(reply) => match reply.result {
                    Ok(()) => self.answered.push(reply.id.0),
                    Err(_) => self.refused.push(reply.id.0),
                },
                _ => {}
            }
        }
    }
}

const WHOLE: Half = (true, false, None);
const MOSTLY: Half = (true, true, None);

/// What would be lost: what was answered is not what is read, once the member that has it is gone.
#[test]
fn what_lags_is_read_only_when_it_is_there_and_what_lies_beside_it_at_once() {
    let mut slow = Slow::new([WHOLE, MOSTLY], 4);
    slow.write(1, 16, 8);
    slow.write(2, 48, 8);
    assert_eq!(slow.answered, [1, 2]);
    slow.fail(0);
    slow.read(3, 8, 8);
    slow.read(4, 24, 8);
    assert_eq!((&slow.answered[2..], &slow.reads[..]), (&[3, 4][..], &[(1, 8), (1, 24)][..]));
    for (id, sector) in [(5, 9), (6, 23), (7, 18)] {
        slow.read(id, sector, 8.min(28 - sector));
    }
    slow.read(8, 50, 1);
    assert_eq!(slow.answered.len(), 4, "they wait for what lags");
    assert_eq!(slow.reads.iter().filter(|read| (16..24).contains(&read.1)).count(), 0);
    slow.let_go(16);
    let mut answered = slow.answered[4..].to_vec();
    answered.sort_unstable();
    assert_eq!(answered, [5, 6, 7], "the other one lags still");
    slow.let_go(48);
    assert_eq!(slow.answered.last(), Some(&8));
}

#[test]
fn what_cannot_be_read_is_refused_at_once_beside_what_lags() {
    for bad in [8..16, 24..32, 40..48] {
        let mut slow = Slow::new([WHOLE, (true, true, Some(bad.clone()))], 4);
        slow.write(1, 16, 8);
        slow.fail(0);
        slow.read(2, bad.start, 8);
        assert_eq!((&slow.answered[..], &slow.refused[..]), (&[1][..], &[2][..]), "{bad:?}");
    }
}

/// Of two that are mostly for writing, one may have what the other lacks still.
#[test]
fn only_who_lags_is_not_read() {
    let mut slow = Slow::new([WHOLE, MOSTLY, MOSTLY], 4);
    slow.write(1, 16, 8);
    // The third member has it as well, but nobody keeps a record of single copies.
    slow.fail(0);
    slow.read(2, 16, 8);
    assert_eq!(slow.answered, [1]);
    slow.let_go(16);
    assert_eq!(slow.answered, [1, 2]);
}

#[test]
fn no_more_than_the_limit_is_left_behind_and_the_limit_changes() {
    let mut slow = Slow::new([WHOLE, MOSTLY], 2);
    assert!(slow.shard.is_behind_idle());
    for id in 0..4 {
        slow.write(id, id * 8, 8);
    }
    assert_eq!(slow.answered, [0, 1], "two lag, the others wait");
    assert!(!slow.shard.is_behind_idle());
    slow.let_go(16);
    assert_eq!(slow.answered, [0, 1, 2]);
    slow.let_go(24);
    slow.let_go(0);
    slow.write(4, 64, 8);
    assert_eq!(slow.answered, [0, 1, 2, 3, 4]);
    slow.let_go(8);
    slow.let_go(64);
    let none = BitmapTerms { chunk: Sectors(1024), write_behind: 0 };
    slow.shard.handle_order(NOW, &Order::Bitmap(Some(none)));
    slow.go_on();
    slow.shard.handle_order(NOW, &Order::BitsSet(0, 0));
    slow.write(5, 16, 8);
    assert_eq!(slow.answered.len(), 5, "nothing is left behind any more");
    slow.let_go(16);
    assert_eq!(slow.answered.last(), Some(&5));
}

/// What would be lost: see `a_flush_waits_for_what_is_left_behind`. What came after it does not hold it up.
#[test]
fn a_flush_waits_for_all_that_lagged_before_it_and_for_no_more() {
    let mut slow = Slow::new([WHOLE, MOSTLY], 4);
    slow.write(1, 0, 8);
    slow.write(2, 8, 8);
    slow.ask(3, RequestKind::Flush, 0, 0);
    slow.write(4, 16, 8);
    slow.let_go(0);
    assert_eq!((&slow.answered[..], slow.flushes), (&[1, 2, 4][..], 0), "one lags still");
    slow.let_go(8);
    assert_eq!((&slow.answered[..], slow.flushes), (&[1, 2, 4, 3][..], 1), "the rest came later");
}

/// What would be lost: the newer of two writes, if the older one's copy came last.
#[test]
fn a_later_write_waits_for_the_copy_of_an_earlier_one() {
    let mut slow = Slow::new([WHOLE, MOSTLY], 4);
    slow.write(1, 16, 8);
    slow.write(2, 20, 8);
    assert_eq!((&slow.answered[..], slow.held.len()), (&[1][..], 1));
    slow.let_go(16);
    assert_eq!((&slow.answered[..], slow.held.len()), (&[1, 2][..], 1));
}

#[test]
fn only_arrays_with_memory_for_it_leave_writes_behind() {
    assert!(Slow::new([WHOLE, MOSTLY], 4).shard.may_write_behind());
    assert!(!mirror::mirror([WHOLE, MOSTLY], None).may_write_behind());
}

/// What would be lost: agreement, since where a resync is due copies differ.
#[test]
fn nothing_is_left_behind_where_a_resync_is_due() {
    for (in_sync_to, expected) in [(0, [2]), (24, [1])] {
        let mut slow = Slow::new([WHOLE, MOSTLY], 4);
        slow.shard.handle_order(NOW, &Order::InSync(Sector(in_sync_to)));
        slow.write(1, 16, 8);
        slow.read(2, 64, 8);
        assert_eq!(slow.answered[..1], expected, "{in_sync_to}");
    }
}

#[test]
fn what_replaces_one_that_lags_lags_with_it() {
    let mut slow = Slow::new([WHOLE, MOSTLY], 4);
    let config = MemberConfig {
        data_offset: Sector(64),
        slot: None,
        trusted_to: Sector(0),
        rotational: false,
        write_mostly: true,
        bad_blocks: Some(Vec::new()),
        log: None,
    };
    slow.shard.handle_order(NOW, &Order::MemberAdded(config));
    slow.shard.handle_order(NOW, &Order::Slotted(MemberId(2), Slot(1)));
    slow.write(1, 16, 8);
    slow.ask(2, RequestKind::Flush, 0, 0);
    assert_eq!((&slow.answered[..], slow.flushes), (&[1][..], 0));
    slow.let_go(16);
    assert_eq!((&slow.answered[..], slow.flushes), (&[1, 2][..], 1));
    assert!(slow.shard.is_quiet() && slow.shard.is_behind_idle());
    assert_eq!(slow.shard.stats().behind_writes, 1);
}

/// What would be lost: a write that was answered, without a word, if nobody has it in the end.
#[test]
fn a_write_that_was_answered_and_is_nowhere_ends_all_writes() {
    let mut slow = Slow::new([WHOLE, MOSTLY], 4);
    slow.write(1, 16, 8);
    assert_eq!(slow.answered, [1]);
    slow.fail(0);
    let (io, _) = slow.held.remove(0);
    while slow.shard.poll_notice().is_some() {}
    slow.shard.handle_completion(NOW, io, false);
    slow.go_on();
    let told: Vec<Notice> = std::iter::from_fn(|| slow.shard.poll_notice()).collect();
    assert!(told.contains(&Notice::Lost(None)), "{told:?}");
}
