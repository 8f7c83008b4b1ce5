//! Promise: a write is answered before a write-mostly member has it only if another member that is in sync has it, and
//! then it is.

mod mirror;

use lapstrake_engine::{
    BitmapTerms, Buf, BufId, Effect, IoKind, MemberId, Notice, Order, Request, RequestId,
    RequestKind, Shard,
};
use lapstrake_geometry::{Sector, Sectors};
use mirror::{Half, NOW};

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
