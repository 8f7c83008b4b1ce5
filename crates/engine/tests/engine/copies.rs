//! Promise: a stream of reads at depth 1 stays on one copy, and a deeper one is read from all copies of disks without a head.

use crate::mirror::{self, NOW};
use lapstrake_engine::{
    Buf, BufId, Effect, MemberId, MemberIo, Request, RequestId, RequestKind, Shard,
};
use lapstrake_geometry::{Sector, Sectors};

const LEN: u64 = 128;

/// Asks for the next part of the stream; whom that asks.
fn read_on(shard: &mut Shard, at: u64) -> MemberIo {
    let kind = RequestKind::Read(Buf { id: BufId(1), offset: 0 });
    let (sector, len) = (Sector(at * LEN), Sectors(LEN));
    shard.handle_request(NOW, Request { id: RequestId(at), kind, sector, len });
    let mut sent = std::iter::from_fn(|| shard.poll_effect());
    let io = sent.find_map(|effect| if let Effect::Io(io) = effect { Some(io) } else { None });
    assert!(sent.next().is_none());
    io.expect("it is read")
}

/// Whom a stream of this depth asks, one part after the other.
fn asked(depth: usize) -> Vec<MemberId> {
    let mut shard = mirror::read_only();
    let (mut asked, mut under_way) = (Vec::new(), std::collections::VecDeque::new());
    for at in 0..64 {
        if under_way.len() == depth {
            let io: MemberIo = under_way.pop_front().expect("there is one");
            shard.handle_completion(NOW, io.id, true);
            while shard.poll_effect().is_some() {}
        }
        let io = read_on(&mut shard, at);
        asked.push(io.member);
        under_way.push_back(io);
    }
    asked
}

#[test]
fn a_stream_stays_on_one_copy_alone_and_is_shared_out_among_both_when_it_is_deep() {
    assert_eq!(asked(1), [MemberId(0); 64]);
    let of_first = asked(8).iter().filter(|&&member| member == MemberId(0)).count();
    assert_eq!(of_first, 32);
}
