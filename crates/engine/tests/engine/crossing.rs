//! Promise: what a shard tells of bad blocks, and what it is told of them, may cross on the way, and no old data is
//! read for it.

use crate::mirror::{self, NOW};
use lapstrake_engine::{
    Buf, BufId, Effect, MemberId, Notice, Order, Request, RequestId, RequestKind, Shard,
};
use lapstrake_geometry::{Sector, Sectors};

const BUF: Buf = Buf { id: BufId(1), offset: 0 };
const SECOND: MemberId = MemberId(1);
const PAGE: (Sector, Sectors) = (Sector(8), Sectors(8));

/// A mirror of two; the page at sector 8 of the second member is on record as bad.
fn second_lacks_a_page() -> Shard {
    let mut shard = mirror::mirror([(true, false, None), (true, false, Some(8..16))], None);
    shard.handle_order(NOW, &Order::Active);
    shard
}

/// Writes the page; the second member answers as told. What the supervisor hears.
fn write(shard: &mut Shard, ok: bool) -> Vec<Notice> {
    let kind = RequestKind::Write { buf: BUF, fua: false, followed: false };
    shard.handle_request(NOW, Request { id: RequestId(1), kind, sector: PAGE.0, len: PAGE.1 });
    while let Some(effect) = shard.poll_effect() {
        if let Effect::Io(io) = effect {
            shard.handle_completion(NOW, io.id, ok || io.member != SECOND);
        }
    }
    std::iter::from_fn(|| shard.poll_notice()).filter(|n| *n != Notice::NeedActive).collect()
}

/// Whom a read of the page asks.
fn reads_from(shard: &mut Shard) -> Vec<MemberId> {
    let kind = RequestKind::Read(BUF);
    let mut asked = Vec::new();
    // The balance of reads goes to one and the other.
    for id in 2..6 {
        shard.handle_request(NOW, Request { id: RequestId(id), kind, sector: PAGE.0, len: PAGE.1 });
        while let Some(effect) = shard.poll_effect() {
            if let Effect::Io(io) = effect {
                asked.push(io.member);
            }
        }
    }
    asked
}

#[test]
fn a_record_that_crosses_a_write_covers_no_later_failure() {
    let mut shard = second_lacks_a_page();
    assert_eq!(write(&mut shard, true), [Notice::Good(SECOND, PAGE.0, PAGE.1)]);
    // Sent before the supervisor heard of the write.
    shard.handle_order(NOW, &Order::BadRecorded(SECOND, PAGE.0, PAGE.1));
    let told = write(&mut shard, false);
    assert_eq!(told, [Notice::Failed(SECOND)], "the log does not say so any more");
}

#[test]
fn an_answer_to_an_earlier_write_does_not_make_a_newer_bad_block_good() {
    let mut shard = second_lacks_a_page();
    assert_eq!(write(&mut shard, true), [Notice::Good(SECOND, PAGE.0, PAGE.1)]);
    shard.handle_order(NOW, &Order::GoodAgain(SECOND, PAGE.0, PAGE.1));
    assert!(reads_from(&mut shard).contains(&SECOND), "it is read again");
    let mut shard = second_lacks_a_page();
    assert_eq!(write(&mut shard, true).len(), 1);
    assert_eq!(write(&mut shard, true).len(), 0, "it is known to be good");
    // As another shard's, which is meant for this one, too.
    shard.handle_order(NOW, &Order::GoodAgain(SECOND, PAGE.0, PAGE.1));
    shard.handle_order(NOW, &Order::Bad(SECOND, PAGE.0, PAGE.1));
    assert!(!reads_from(&mut shard).contains(&SECOND), "it holds no data");
}

#[test]
fn what_another_shard_could_not_read_or_mend_is_not_read_before_it_is_on_record() {
    let mut shard = second_lacks_a_page();
    let elsewhere = Sector(64);
    shard.handle_order(NOW, &Order::Bad(SECOND, elsewhere, PAGE.1));
    let kind = RequestKind::Read(BUF);
    for id in 2..6 {
        shard.handle_request(
            NOW,
            Request { id: RequestId(id), kind, sector: elsewhere, len: PAGE.1 },
        );
        while let Some(effect) = shard.poll_effect() {
            assert!(!matches!(effect, Effect::Io(io) if io.member == SECOND), "it holds no data");
        }
    }
}
