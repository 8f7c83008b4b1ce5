//! Promise: a request is answered once, when all its parts have ended; what may not begin yet waits; nobody hears of an
//! end too early.

use lapstrake_array::{Front, Outgoing, RoutedRequest, Router, RouterWorld, ShardGone, SpanMap};
use lapstrake_engine::{
    Buf, BufId, Comparison, Compute, FULLY_TRUSTED, Finding, Hold, MemberConfig, MemberIo, Notice,
    Order, PieceId, Request, RequestError, RequestKind, Seal, Shard, ShardConfig, SyncAction,
    SyncPiece, Time, World,
};
use lapstrake_geometry::{Config, Geometry, Layout, Level, Sector, Sectors, Slot};
use std::mem;

/// Notes what it is to carry out. A mirror needs neither parity nor logs.
#[derive(Default)]
struct Notes {
    /// First sector and sectors of what came to the shard.
    begun: Vec<(u64, u64)>,
    ios: Vec<MemberIo>,
    sent: Vec<String>,
    lent: u32,
    needs_active: bool,
    /// Memory that was filled with zeros: its first byte and its sectors.
    cleared: Vec<(u64, u64)>,
    /// Pieces that have ended, and whether well.
    synced: Vec<bool>,
}

impl World for Notes {
    fn now(&self) -> Time {
        Time(0)
    }
    fn start_io(&mut self, io: MemberIo) {
        self.ios.push(io);
    }
    fn compute(&mut self, work: &Compute) {
        unreachable!("{work:?}");
    }
    fn seal(&mut self, seal: &Seal) {
        unreachable!("{seal:?}");
    }
    fn compare(&mut self, comparison: &Comparison) -> Vec<Finding> {
        unreachable!("{comparison:?}");
    }
}

impl RouterWorld for Notes {
    type Caller = &'static str;
    type Address = u64;

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
    fn send(&mut self, outgoing: Outgoing<&'static str, u64>) -> Result<(), ShardGone> {
        self.sent.push(match outgoing {
            Outgoing::Request {
                to, request: RoutedRequest { memory, sector, len, .. }, ..
            } => {
                let memory = memory.map(|at| at - (1 << 20));
                format!("shard {to}: {len} at {sector}, memory {memory:?}")
            }
            Outgoing::Reply { to, key, result } => format!("shard {to}: {key} {result:?}"),
            Outgoing::Answer { caller, result } => format!("{caller}: {result:?}"),
        });
        Ok(())
    }
    fn notify(&mut self, notice: Notice) {
        self.needs_active |= notice == Notice::NeedActive;
        if let Notice::Synced(report) = notice {
            self.synced.push(report.ok);
        }
    }
    fn memory_to_move(&mut self, _: u64) -> Option<u64> {
        Some(1 << 20)
    }
    fn clear(&mut self, address: u64, sectors: u64) {
        self.cleared.push((address - (1 << 20), sectors));
    }
    fn request_begins(&mut self, request: Request) -> Request {
        self.begun.push((request.sector.0, request.len.0));
        request
    }
}

/// Shard 0 of two, which own spans of eight sectors in turn.
struct Rig {
    shard: Shard,
    router: Router<&'static str, u64>,
    world: Notes,
}

impl Rig {
    fn new() -> Self {
        let geometry = Geometry::new(&Config {
            level: Level::Raid1,
            layout: Layout::None,
            chunk: Sectors(0),
            raid_disks: 2,
            component: Sectors(16384),
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
        let router = Router::new(0, 2, SpanMap::new(8).among(vec![0, 1]));
        Self { shard, router, world: Notes::default() }
    }

    fn request(&mut self, caller: &'static str, request: RoutedRequest<u64>, is_own: bool) {
        self.router.request(&mut self.shard, &mut self.world, caller, request, is_own);
    }

    fn start_reads(&mut self) {
        self.router.start_reads(&mut self.shard, &mut self.world);
    }

    fn drive(&mut self) {
        self.router.drive(&mut self.shard, &mut self.world);
        if mem::take(&mut self.world.needs_active) {
            self.shard.handle_order(Time(0), &Order::Active);
            self.router.drive(&mut self.shard, &mut self.world);
        }
    }

    /// Ends the first so many I/Os of members.
    fn end_ios(&mut self, count: usize, ok: bool) {
        for io in self.world.ios.drain(..count) {
            self.shard.handle_completion(Time(0), io.id, ok);
        }
        self.drive();
    }

    fn begun(&mut self) -> Vec<(u64, u64)> {
        mem::take(&mut self.world.begun)
    }

    fn sent(&mut self) -> Vec<String> {
        self.drive();
        mem::take(&mut self.world.sent)
    }
}

/// A router whose shard has the new geometry of an array, of which nothing was moved yet.
fn of_new_geometry() -> Rig {
    let mut rig = Rig::new();
    let front = Front { moving: 0..64, ..Front::at(0, false, 0) };
    let spans = SpanMap::new(8).among(vec![1]).with_front(front);
    rig.router.redealt(&mut rig.shard, &mut rig.world, spans);
    let piece = SyncPiece {
        id: PieceId(3),
        action: SyncAction::Reshape,
        start: Sector(0),
        len: Sectors(64),
        within: 0..20,
    };
    rig.router.sync(&mut rig.shard, &mut rig.world, piece);
    rig
}

const FLUSH: RoutedRequest<u64> =
    RoutedRequest { kind: RequestKind::Flush, memory: None, sector: 0, len: 0, is_moved: false };

fn write(sector: u64, len: u64) -> RoutedRequest<u64> {
    let buf = Buf { id: BufId(7), offset: 0 };
    let kind = RequestKind::Write { buf, fua: false, followed: false };
    RoutedRequest { kind, memory: Some(1 << 20), sector, len, is_moved: false }
}

fn read(sector: u64, len: u64) -> RoutedRequest<u64> {
    RoutedRequest { kind: RequestKind::Read(Buf { id: BufId(7), offset: 0 }), ..write(sector, len) }
}

#[test]
fn a_request_is_cut_and_answered_when_all_its_parts_have_ended() {
    let mut rig = Rig::new();
    rig.request("writer", write(4, 20), true);
    assert_eq!(rig.begun(), [(4, 4), (16, 8)]);
    assert_eq!(rig.sent(), ["shard 1: 8 at 8, memory Some(2048)"]);
    rig.end_ios(2, true);
    rig.router.peer_replied(&mut rig.world, 0, Err(RequestError::Io));
    assert!(rig.sent().is_empty() && !rig.router.is_idle());
    rig.end_ios(2, true);
    assert_eq!(rig.sent(), ["writer: Err(Io)"]);
    assert!(rig.router.is_idle());
}

/// What would be lost: a client that asks for a read because of an answer sees what was there before that answer.
#[test]
fn a_read_of_what_others_own_begins_when_the_shard_has_heard_all() {
    let mut rig = Rig::new();
    rig.request("reader", read(4, 8), true);
    assert!(rig.router.has_unheard() && rig.begun().is_empty());
    rig.start_reads();
    assert_eq!(rig.begun(), [(4, 8)]);
    rig.drive();
    rig.end_ios(1, false);
    assert_eq!(rig.begun(), [(4, 4)]);
    assert_eq!(rig.sent(), ["shard 1: 4 at 8, memory Some(2048)"]);
}

/// What would be lost: a stripe has two owners for a while.
#[test]
fn while_paused_only_what_peers_ask_for_begins() {
    let mut rig = Rig::new();
    rig.request("reader", read(8, 8), false);
    rig.start_reads();
    rig.drive();
    assert_eq!((rig.begun(), rig.world.lent), (vec![(8, 8)], 1));
    rig.router.pause(&mut rig.shard);
    rig.request("writer", write(0, 8), true);
    rig.router.take_over(&mut rig.shard, &mut rig.world, 1, 42, write(16, 8));
    rig.drive();
    assert_eq!(rig.begun(), [(16, 8)]);
    assert!(!rig.router.is_paused(&rig.shard), "the read is under way");
    rig.end_ios(1, false);
    assert!(rig.router.is_paused(&rig.shard) && rig.sent().is_empty());
    rig.end_ios(2, true);
    assert_eq!(rig.sent(), ["shard 1: 42 Ok(())"]);
    rig.router.redealt(&mut rig.shard, &mut rig.world, SpanMap::new(8).among(vec![1, 0]));
    assert_eq!(rig.sent(), ["shard 1: 8 at 0, memory Some(0)"]);
    rig.start_reads();
    assert_eq!((rig.begun(), rig.world.lent), (vec![(8, 8)], 1), "it owns that now");
}

/// What would be lost: the place that is being mended has another owner meanwhile, and its write is undone.
#[test]
fn while_paused_a_peer_hears_of_an_end_when_what_that_mended_is_done() {
    let mut rig = Rig::new();
    rig.router.pause(&mut rig.shard);
    rig.router.take_over(&mut rig.shard, &mut rig.world, 1, 42, read(0, 8));
    rig.drive();
    // One copy cannot be read; the other can, and is written over it.
    rig.end_ios(1, false);
    rig.end_ios(1, true);
    assert!(!rig.shard.is_sync_idle() && rig.sent().is_empty(), "it is being mended");
    while !rig.shard.is_sync_idle() {
        assert!(rig.sent().is_empty());
        rig.end_ios(1, true);
    }
    assert_eq!(rig.sent(), ["shard 1: 42 Ok(())"]);
}

#[test]
fn what_is_moved_is_read_from_the_old_owners_and_what_comes_is_zeros() {
    let mut rig = of_new_geometry();
    let parts =
        ["8 at 0, memory Some(0)", "8 at 8, memory Some(4096)", "4 at 16, memory Some(8192)"];
    assert_eq!(rig.sent(), parts.map(|part| format!("shard 1: {part}")));
    assert_eq!(mem::take(&mut rig.world.cleared), [(20 * 512, 44)]);
    (0..2).for_each(|_| rig.router.peer_replied(&mut rig.world, 0, Ok(())));
    rig.drive();
    assert!(rig.world.ios.is_empty(), "not all is read");
    rig.router.peer_replied(&mut rig.world, 0, Ok(()));
    rig.drive();
    let written: u64 = rig.world.ios.iter().map(|io| io.len.0).sum();
    assert_eq!((written, rig.begun()), (2 * 64, vec![]), "two copies, of no client's");
    rig.end_ios(2, true);
    assert_eq!((mem::take(&mut rig.world.synced), rig.world.lent), (vec![true], 0));
}

/// What would be lost: what a client writes where the old geometry has it, behind what was read there.
#[test]
fn writes_to_what_is_moved_wait_until_it_was_moved() {
    let mut rig = of_new_geometry();
    rig.sent();
    rig.request("writer", write(60, 8), true);
    rig.request("other", write(64, 8), true);
    assert_eq!(rig.sent(), ["shard 1: 8 at 64, memory Some(0)"]);
    let front = Front::at(64, false, 0);
    let spans = SpanMap::new(8).among(vec![1]).with_front(front);
    rig.router.redealt(&mut rig.shard, &mut rig.world, spans);
    assert_eq!(rig.sent(), ["shard 1: 4 at 64, memory Some(2048)"]);
    assert_eq!(rig.begun(), [(60, 4)]);
}

/// A router whose shard is to move four units over themselves.
fn over_themselves() -> Rig {
    let mut rig = Rig::new();
    let front = Front { moving: 0..8192, hold: Hold::All, ..Front::at(0, false, 0) };
    let spans = SpanMap::new(2048).among(vec![1]).with_front(front);
    rig.router.redealt(&mut rig.shard, &mut rig.world, spans);
    let (start, len) = (Sector(0), Sectors(8192));
    let piece =
        SyncPiece { id: PieceId(3), action: SyncAction::Reshape, start, len, within: 0..8192 };
    rig.router.sync(&mut rig.shard, &mut rig.world, piece);
    assert_eq!(rig.sent().len(), 4);
    rig
}

/// What would be lost: what of it was not read yet.
#[test]
fn what_is_moved_over_itself_is_read_before_any_of_it_is_written() {
    for last in [Ok(()), Err(RequestError::Io)] {
        let mut rig = over_themselves();
        for key in [2, 0, 3] {
            rig.router.peer_replied(&mut rig.world, key, Ok(()));
            rig.drive();
            assert!(rig.world.ios.is_empty(), "not all is read");
        }
        rig.router.peer_replied(&mut rig.world, 1, last);
        rig.drive();
        let written: u64 = rig.world.ios.iter().map(|io| io.len.0).sum();
        assert_eq!(written, if last.is_ok() { 2 * 8192 } else { 0 });
        rig.end_ios(rig.world.ios.len(), true);
        assert_eq!((mem::take(&mut rig.world.synced), rig.world.lent), (vec![last.is_ok()], 0));
    }
}

#[test]
fn nobody_reads_or_writes_what_is_moved_over_itself_and_what_is_lost_is_told() {
    let mut rig = over_themselves();
    rig.request("reader", read(8100, 200), true);
    rig.request("writer", write(0, 8), true);
    rig.request("elsewhere", read(8192, 8), true);
    rig.start_reads();
    assert_eq!(rig.sent(), ["shard 1: 8 at 8192, memory Some(0)"]);
    let front = Front { moving: 0..8192, hold: Hold::Lost, ..Front::at(0, false, 0) };
    let spans = SpanMap::new(2048).among(vec![1]).with_front(front);
    rig.router.redealt(&mut rig.shard, &mut rig.world, spans);
    rig.start_reads();
    assert_eq!(rig.sent(), ["writer: Err(Io)", "reader: Err(Io)"]);
}

#[test]
fn a_piece_that_cannot_be_read_is_not_written() {
    let mut rig = of_new_geometry();
    rig.sent();
    (0..3).for_each(|_| rig.router.peer_replied(&mut rig.world, 0, Err(RequestError::Io)));
    rig.drive();
    assert!(rig.world.ios.is_empty());
    assert_eq!(rig.world.synced, [false]);
}

/// What would be lost: a member of the new geometry alone keeps in its cache what a client has flushed.
#[test]
fn a_flush_goes_to_shards_of_either_geometry() {
    let mut rig = Rig::new();
    let spans = SpanMap::new(8).among(vec![1]).with_front(Front::at(64, false, 0));
    rig.router.redealt(&mut rig.shard, &mut rig.world, spans);
    rig.request("writer", FLUSH, true);
    assert_eq!(rig.begun(), [(0, 0)]);
    assert_eq!(rig.sent(), ["shard 1: 0 at 0, memory None"]);
}

/// What would be lost: an answer, as the members fail to which a copy is made before anything is moved.
#[test]
fn a_flush_leaves_out_who_has_nothing_yet() {
    let mut rig = of_new_geometry();
    rig.sent();
    rig.request("writer", FLUSH, true);
    assert_eq!(rig.begun(), []);
    assert_eq!(rig.sent(), ["shard 1: 0 at 0, memory None"]);
}
