//! Promise: a write is answered before a write-mostly member has it only if another member that is in sync has it, and
//! then it is.

mod mirror;

use lapstrake_engine::{
    BitmapTerms, Buf, BufId, Effect, MemberId, Notice, Order, Request, RequestId, RequestKind,
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
                Notice::BitsWanted(from, to) => shard.handle_order(NOW, &Order::BitsSet(from, to)),
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
