//! Promise: a request is answered once, when all its parts have ended; what may not begin yet waits; nobody hears of an
//! end too early.

use lapstrake_array::{Outgoing, RoutedRequest, Router, RouterWorld, SpanMap};
use lapstrake_engine::{
    Buf, BufId, FULLY_TRUSTED, MemberConfig, Reply, Request, RequestError, RequestId, RequestKind,
    Shard, ShardConfig,
};
use lapstrake_geometry::{Config, Geometry, Layout, Level, Sector, Sectors, Slot};

/// A shard that is asked, and does nothing.
struct World {
    shard: Shard,
    asked: Vec<(Request, bool)>,
    lent: u32,
}

impl RouterWorld for World {
    type Address = u64;

    fn shard(&mut self) -> &mut Shard {
        &mut self.shard
    }
    fn ask(&mut self, request: Request, is_foreign: bool) {
        self.asked.push((request, is_foreign));
    }
    fn lend(&mut self, _: u64) -> Buf {
        self.lent += 1;
        Buf { id: BufId(100), offset: 0 }
    }
    fn unlend(&mut self, _: Buf) {
        self.lent -= 1;
    }
    fn advance(address: u64, sectors: u32) -> u64 {
        address + u64::from(sectors) * 512
    }
}

impl World {
    fn new() -> Self {
        let geometry = Geometry::new(&Config {
            level: Level::Raid1,
            layout: Layout::None,
            chunk: Sectors(0),
            raid_disks: 2,
            component: Sectors(1024),
            member_sizes: Vec::new(),
        });
        let member = |slot| MemberConfig {
            data_offset: Sector(16),
            slot: Some(Slot(slot)),
            trusted_to: FULLY_TRUSTED,
            rotational: false,
            write_mostly: false,
            bad_blocks: None,
            log: None,
        };
        let shard = Shard::new(ShardConfig {
            geometry: geometry.expect("a mirror"),
            members: vec![member(0), member(1)],
            read_only: false,
            block: Sectors(1),
            in_sync_to: FULLY_TRUSTED,
            bitmap: None,
            scratch: BufId(0),
            scratch_pages: 64,
            log_signature: None,
            lost: Vec::new(),
            journal: None,
            behind_pages: 0,
            unsynced: None,
        });
        Self { shard, asked: Vec::new(), lent: 0 }
    }

    fn take_asked(&mut self) -> Vec<(u64, u64, bool)> {
        let asked = self.asked.drain(..);
        asked.map(|(request, is_foreign)| (request.sector.0, request.len.0, is_foreign)).collect()
    }
}

/// Shard 0 of two, which own spans of eight sectors in turn.
fn router() -> (World, Router<&'static str, u64>) {
    (World::new(), Router::new(0, 2, SpanMap::new(8).among(vec![0, 1])))
}

fn write(sector: u64, len: u64) -> RoutedRequest<u64> {
    let buf = Buf { id: BufId(7), offset: 0 };
    let kind = RequestKind::Write { buf, fua: false, followed: false };
    RoutedRequest { kind, memory: Some(1 << 20), sector, len }
}

fn read(sector: u64, len: u64) -> RoutedRequest<u64> {
    RoutedRequest { kind: RequestKind::Read(Buf { id: BufId(7), offset: 0 }), ..write(sector, len) }
}

fn outgoing(router: &mut Router<&'static str, u64>) -> Vec<String> {
    let shown = |out: Outgoing<&str, u64>| match out {
        Outgoing::Request { to, request, .. } => {
            let RoutedRequest { memory, sector, len, .. } = request;
            format!("shard {to}: {len} at {sector}, memory {:?}", memory.map(|at| at - (1 << 20)))
        }
        Outgoing::Reply { to, key, result } => format!("shard {to}: {key} {result:?}"),
        Outgoing::Answer { caller, result } => format!("{caller}: {result:?}"),
    };
    std::iter::from_fn(|| router.poll()).map(shown).collect()
}

fn reply(id: u64, result: Result<(), RequestError>) -> Reply {
    Reply { id: RequestId(id), result }
}

#[test]
fn a_request_is_cut_and_answered_when_all_its_parts_have_ended() {
    let (mut world, mut router) = router();
    router.request(&mut world, "writer", write(4, 20), true);
    assert_eq!(world.take_asked(), [(4, 4, false), (16, 8, false)]);
    assert_eq!(outgoing(&mut router), ["shard 1: 8 at 8, memory Some(2048)"]);
    router.replied(&mut world, reply(0, Ok(())));
    router.peer_replied(&mut world, 0, Err(RequestError::Io));
    assert!(outgoing(&mut router).is_empty() && !router.is_idle());
    router.replied(&mut world, reply(0, Ok(())));
    assert_eq!(outgoing(&mut router), ["writer: Err(Io)"]);
    assert!(router.is_idle());
}

/// What would be lost: a client that asks for a read because of an answer sees what was there before that answer.
#[test]
fn a_read_of_what_others_own_begins_when_the_shard_has_heard_all() {
    let (mut world, mut router) = router();
    router.request(&mut world, "reader", read(4, 8), true);
    assert!(router.has_unheard() && world.take_asked().is_empty());
    router.start_reads(&mut world);
    assert_eq!(world.take_asked(), [(4, 8, true)]);
    router.declined(&mut world, RequestId(0));
    assert_eq!(world.take_asked(), [(4, 4, false)]);
    assert_eq!(outgoing(&mut router), ["shard 1: 4 at 8, memory Some(2048)"]);
}

/// What would be lost: a stripe has two owners for a while.
#[test]
fn while_paused_only_what_peers_ask_for_begins() {
    let (mut world, mut router) = router();
    router.request(&mut world, "reader", read(8, 8), false);
    router.start_reads(&mut world);
    assert_eq!((world.take_asked(), world.lent), (vec![(8, 8, true)], 1));
    router.pause(&mut world.shard);
    router.request(&mut world, "writer", write(0, 8), true);
    router.take_over(&mut world, 1, 42, write(16, 8));
    assert_eq!(world.take_asked(), [(16, 8, false)]);
    assert!(!router.is_paused(&world.shard), "the read is under way");
    router.declined(&mut world, RequestId(0));
    assert!(router.is_paused(&world.shard) && outgoing(&mut router).is_empty());
    router.replied(&mut world, reply(1, Ok(())));
    router.answer_peers(&world.shard);
    assert_eq!(outgoing(&mut router), ["shard 1: 42 Ok(())"]);
    router.redealt(&mut world, SpanMap::new(8).among(vec![1, 0]));
    assert_eq!(outgoing(&mut router), ["shard 1: 8 at 0, memory Some(0)"]);
    router.start_reads(&mut world);
    assert_eq!((world.take_asked(), world.lent), (vec![(8, 8, false)], 1), "it owns that now");
}
