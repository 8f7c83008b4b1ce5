//! Promise: what partial parity logs say holds whatever was written without one.

use lapstrake_engine::{
    Buf, BufId, Effect, FULLY_TRUSTED, IoKind, MemberConfig, MemberIo, Notice, Order, Request,
    RequestId, RequestKind, Shard, ShardConfig, Time,
};
use lapstrake_geometry::{Config, Geometry, Layout, Level, Sector, Sectors, Slot};
use lapstrake_metadata::ppl::Shape;

const NOW: Time = Time(0);
const CHUNK: u64 = 8;
const STRIPE: u64 = 2 * CHUNK;
const DATA_OFFSET: u64 = 4096;

/// A RAID5 of three with logs, which is due a resync.
fn due_a_resync() -> Shard {
    let geometry = Geometry::new(&Config {
        level: Level::Raid5,
        layout: Layout::default_for(Level::Raid5),
        chunk: Sectors(CHUNK),
        raid_disks: 3,
        component: Sectors(1024),
        member_sizes: Vec::new(),
    });
    let shape = Shape::of(Sectors(2048)).expect("room for a unit");
    let members = (0..3).map(|slot| MemberConfig {
        data_offset: Sector(DATA_OFFSET),
        slot: Some(Slot(slot)),
        trusted_to: FULLY_TRUSTED,
        rotational: false,
        write_mostly: false,
        bad_blocks: None,
        log: Some((Sector(64), shape)),
    });
    Shard::new(ShardConfig {
        geometry: geometry.expect("a RAID5"),
        members: members.collect(),
        read_only: false,
        block: Sectors(1),
        in_sync_to: Sector(0),
        bitmap: None,
        scratch: BufId(0),
        scratch_pages: 256,
        log_signature: Some(7),
        lost: Vec::new(),
        journal: None,
        behind_pages: 0,
    })
}

/// Sends a write of a whole stripe, which reads nothing; gives the I/Os that follow.
fn write(shard: &mut Shard, stripe: u64) -> Vec<MemberIo> {
    let kind =
        RequestKind::Write { buf: Buf { id: BufId(1), offset: 0 }, fua: false, followed: false };
    let (id, sector) = (RequestId(stripe), Sector(stripe * STRIPE));
    shard.handle_request(NOW, Request { id, kind, sector, len: Sectors(STRIPE) });
    ios(shard)
}

fn ios(shard: &mut Shard) -> Vec<MemberIo> {
    let mut ios = Vec::new();
    while let Some(effect) = shard.poll_effect() {
        ios.extend(match effect {
            Effect::Io(io) => Some(io),
            _ => None,
        });
    }
    ios
}

fn end(shard: &mut Shard, io: &MemberIo) -> Vec<MemberIo> {
    shard.handle_completion(NOW, io.id, true);
    ios(shard)
}

/// What would be lost: parity. A replay that mended something calls the array clean; what was written without a log, and
/// was not stable when the power went, would differ for good.
#[test]
fn the_first_unit_waits_until_all_that_was_written_without_one_is_stable() {
    let mut shard = due_a_resync();
    shard.handle_order(NOW, &Order::Active);
    let unlogged = write(&mut shard, 0);
    assert_eq!(unlogged.len(), 3, "data and parity");
    assert!(unlogged.iter().all(|io| io.sector.0 >= DATA_OFFSET), "and no log");
    // The resync is done; from now on stripes are logged.
    shard.handle_order(NOW, &Order::InSync(FULLY_TRUSTED));
    assert!(write(&mut shard, 1).is_empty(), "the first one is still being written");
    assert!(end(&mut shard, &unlogged[0]).is_empty());
    assert!(end(&mut shard, &unlogged[1]).is_empty());
    let flushes = end(&mut shard, &unlogged[2]);
    assert_eq!(flushes.len(), 3);
    assert!(flushes.iter().all(|io| io.kind == IoKind::Flush), "{flushes:?}");
    assert!(end(&mut shard, &flushes[0]).is_empty());
    assert!(end(&mut shard, &flushes[1]).is_empty());
    let unit = end(&mut shard, &flushes[2]);
    assert_eq!(unit.len(), 1);
    assert_eq!((unit[0].kind, unit[0].sector), (IoKind::Write { fua: true }, Sector(64)));
    let logged = end(&mut shard, &unit[0]);
    assert_eq!(logged.len(), 3, "data and parity");
    let told: Vec<Notice> = std::iter::from_fn(|| shard.poll_notice()).collect();
    assert!(!told.iter().any(|notice| matches!(notice, Notice::Failed(_))), "{told:?}");
}
