//! Promise: a part of a block is written as if the block had been read and written at one moment, whoever else writes
//! there.

use crate::mirror::{self, NOW};
use lapstrake_engine::{
    Buf, BufId, Bufs, Compute, Effect, IoKind, MemberIo, Order, Reply, Request, RequestError,
    RequestId, RequestKind, Shard,
};
use lapstrake_geometry::{Sector, Sectors};

const BUF: Buf = Buf { id: BufId(1), offset: 0 };
const OTHER: Buf = Buf { id: BufId(2), offset: 0 };
const PART: RequestKind = RequestKind::WritePart { buf: BUF, old: 512, skip: 3, len: 7, fua: true };

/// A mirror of two that is active.
fn mirror() -> Shard {
    let mut shard = mirror::mirror([(true, false, None), (true, false, None)], None);
    shard.handle_order(NOW, &Order::Active);
    shard
}

fn ask(shard: &mut Shard, id: u64, kind: RequestKind) {
    let request = Request { id: RequestId(id), kind, sector: Sector(5), len: Sectors(1) };
    shard.handle_request(NOW, request);
}

/// What the shard wants by now.
fn effects(shard: &mut Shard) -> Vec<Effect> {
    std::iter::from_fn(|| shard.poll_effect()).collect()
}

fn ios(effects: &[Effect]) -> Vec<&MemberIo> {
    effects
        .iter()
        .filter_map(|effect| if let Effect::Io(io) = effect { Some(io) } else { None })
        .collect()
}

fn end(shard: &mut Shard, ios: &[&MemberIo], ok: bool) {
    ios.iter().for_each(|io| shard.handle_completion(NOW, io.id, ok));
}

fn replies(effects: &[Effect]) -> Vec<Reply> {
    effects
        .iter()
        .filter_map(|effect| if let Effect::Reply(reply) = effect { Some(*reply) } else { None })
        .collect()
}

#[test]
fn the_block_is_read_merged_and_written_and_other_writes_wait() {
    let mut shard = mirror();
    ask(&mut shard, 1, PART);
    let reads = effects(&mut shard);
    let [read] = ios(&reads)[..] else { panic!("one copy is read: {reads:?}") };
    assert_eq!((read.kind, read.pieces[0].buf), (IoKind::Read, BUF.advance(512)));
    let whole = RequestKind::Write { buf: OTHER, fua: false, followed: false };
    ask(&mut shard, 2, whole);
    assert!(effects(&mut shard).is_empty(), "it would be undone");
    end(&mut shard, &[read], true);
    let writes = effects(&mut shard);
    let Some(Effect::Compute(Compute::Xor { dst, srcs, len })) = writes.first() else {
        panic!("the part is put into the block first: {writes:?}")
    };
    let merged = (BUF.advance(512 + 3), Bufs::from_elem(BUF.advance(3), 1), 7);
    assert_eq!((*dst, srcs.clone(), *len), merged);
    let both = ios(&writes);
    assert_eq!(both.len(), 2, "to each copy, and nothing of the other write yet");
    for io in &both {
        assert_eq!(io.kind, IoKind::Write { fua: true });
        assert_eq!(io.pieces[0].buf, BUF.advance(512));
    }
    end(&mut shard, &both, true);
    let after = effects(&mut shard);
    assert_eq!(replies(&after), [Reply { id: RequestId(1), result: Ok(()) }]);
    assert_eq!(ios(&after)[0].pieces[0].buf, OTHER, "now it is the other's turn");
    end(&mut shard, &ios(&after), true);
    assert_eq!(replies(&effects(&mut shard)), [Reply { id: RequestId(2), result: Ok(()) }]);
    assert!(shard.is_quiet());
}

#[test]
fn a_block_that_nobody_can_read_is_not_written_and_holds_up_nobody() {
    let mut shard = mirror::mirror([(true, false, None)], None);
    shard.handle_order(NOW, &Order::Active);
    ask(&mut shard, 1, PART);
    let mut failed = None;
    for _ in 0..20 {
        let all = effects(&mut shard);
        let of_it = |io: &&&MemberIo| io.pieces.iter().any(|piece| piece.buf.id == BUF.id);
        assert!(ios(&all).iter().filter(of_it).all(|io| io.kind == IoKind::Read), "{all:?}");
        end(&mut shard, &ios(&all), false);
        failed = failed.or(replies(&all).first().copied());
    }
    assert_eq!(failed, Some(Reply { id: RequestId(1), result: Err(RequestError::Io) }));
    ask(&mut shard, 2, RequestKind::Write { buf: OTHER, fua: false, followed: false });
    let all = effects(&mut shard);
    assert!(!ios(&all).is_empty(), "the range is free again");
    end(&mut shard, &ios(&all), true);
    assert_eq!(replies(&effects(&mut shard)).len(), 1);
}
