//! Promise: what partial parity logs say holds whatever was written without one.

use lapstrake_engine::{
    Buf, BufId, Effect, FULLY_TRUSTED, IoKind, LogConfig, LogDisks, MemberConfig, MemberId,
    MemberIo, Notice, Order, Request, RequestError, RequestId, RequestKind, Shard, ShardConfig,
    Time, read_logs, replay_logs,
};
use lapstrake_geometry::{Config, Geometry, Layout, Level, Sector, Sectors, Slot};
use lapstrake_metadata::ppl::{self, Entry, Header, Shape};
use std::convert::Infallible;

const NOW: Time = Time(0);
const CHUNK: u64 = 8;
const STRIPE: u64 = 2 * CHUNK;
const DATA_OFFSET: u64 = 4096;

fn geometry() -> Geometry {
    let geometry = Geometry::new(&Config {
        level: Level::Raid5,
        layout: Layout::default_for(Level::Raid5),
        chunk: Sectors(CHUNK),
        raid_disks: 3,
        component: Sectors(1024),
        member_sizes: Vec::new(),
    });
    geometry.expect("a RAID5")
}

/// A RAID5 of three with logs, which is due a resync.
fn due_a_resync() -> Shard {
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
        geometry: geometry(),
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
        unsynced: None,
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

/// The first stripe of three members, by sectors that are all of one byte, and the log of the one with its parity.
struct Stripe {
    data: [[u8; CHUNK as usize]; 3],
    bad: Vec<(Slot, u64)>,
    area: Vec<u8>,
    empty: Vec<u8>,
}

impl LogDisks for Stripe {
    type Error = Infallible;

    fn area(&mut self, slot: Slot) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(Some(if slot == Slot(2) { self.area.clone() } else { self.empty.clone() }))
    }

    fn read(&mut self, slot: Slot, sector: Sector, buf: &mut [u8]) -> Result<bool, Infallible> {
        let own = &self.data[slot.index()];
        for (sector, bytes) in (sector.0..).zip(buf.chunks_mut(512)) {
            bytes.fill(own[sector as usize]);
        }
        let end = sector.0 + buf.len() as u64 / 512;
        let is_bad = |bad: &(Slot, u64)| bad.0 == slot && (sector.0..end).contains(&bad.1);
        Ok(!self.bad.iter().any(is_bad))
    }

    fn write(&mut self, slot: Slot, sector: Sector, bytes: &[u8]) -> Result<(), Infallible> {
        for (sector, bytes) in (sector.0..).zip(bytes.chunks(512)) {
            self.data[slot.index()][sector as usize] = bytes[0];
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn record_absent(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn empty_logs(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Found by the simulation, a seed in which all members lost power. What would be lost: an answer. A write that is still reading
/// when the array gives up waits for the record of a failure, which nobody will make any more.
#[test]
fn what_comes_to_its_log_after_the_array_gave_up_fails() {
    let mut shard = due_a_resync();
    shard.handle_order(NOW, &Order::InSync(FULLY_TRUSTED));
    shard.handle_order(NOW, &Order::Active);
    let buf = Buf { id: BufId(1), offset: 0 };
    let kind = RequestKind::Write { buf, fua: false, followed: false };
    let (id, sector, len) = (RequestId(1), Sector(0), Sectors(1));
    shard.handle_request(NOW, Request { id, kind, sector, len });
    let mut reads = ios(&mut shard);
    while reads.is_empty() {
        let due = shard.poll_deadline().expect("a write that waits for its neighbours");
        shard.handle_time(due);
        reads = ios(&mut shard);
    }
    assert!(reads.iter().all(|io| io.kind == IoKind::Read), "{reads:?}");
    let unread = (0..3).map(MemberId).find(|&id| reads.iter().all(|io| io.member != id));
    shard.handle_order(NOW, &Order::MemberFailed(unread.expect("a member that is not read")));
    shard.handle_order(NOW, &Order::Broken);
    for io in reads {
        shard.handle_completion(NOW, io.id, true);
    }
    let mut effects = core::iter::from_fn(|| shard.poll_effect());
    let reply = effects.find_map(|effect| match effect {
        Effect::Reply(reply) => Some(reply.result),
        _ => None,
    });
    assert_eq!(reply, Some(Err(RequestError::Io)));
}

/// What would be lost: a write that was answered and flushed. Its sector is on record as bad, so it is in the parity
/// only, and the log still names it when the power goes.
#[test]
fn parity_is_never_made_anew_of_what_cannot_be_read() {
    let Geometry::Parity(parity) = geometry() else { panic!("a RAID5") };
    for bad in [&[][..], &[3], &[0, 7]] {
        // The first chunk was written; the partial parity is the second.
        let partial = vec![2; 512 * CHUNK as usize];
        let entry = Entry {
            data_sector: 0,
            pp_size: partial.len() as u32,
            data_size: partial.len() as u32,
            parity_disk: 2,
            checksum: ppl::checksum(&partial),
        };
        let mut area =
            Header { signature: 7, generation: 1, entries: vec![entry] }.encode().to_vec();
        area.extend(&partial);
        area.resize(1 << 20, 0);
        let mut empty = Header::empty(7).encode().to_vec();
        empty.resize(1 << 20, 0);
        let mut data = [[1; CHUNK as usize], [2; CHUNK as usize], [9; CHUNK as usize]];
        bad.iter().for_each(|&sector: &u64| data[0][sector as usize] = 0xee);
        let places = bad.iter().map(|&sector| (Slot(0), sector)).collect();
        let mut stripe = Stripe { data, bad: places, area, empty };
        let trusted_to = vec![Some(FULLY_TRUSTED); 3];
        let config = LogConfig { parity: parity.clone(), signature: 7, trusted_to };
        let before = stripe.data;
        let Ok(read) = read_logs(&config, &mut stripe);
        assert_eq!((read.entries, read.mends.len(), stripe.data), (1, 1, before));
        let Ok(done) = replay_logs(&config, &mut stripe);
        assert_eq!(done.unread, bad.len() as u64);
        assert!(done.settles());
        for sector in 0..CHUNK {
            let expected = if bad.contains(&sector) { 9 } else { 1 ^ 2 };
            assert_eq!(stripe.data[2][sector as usize], expected, "{sector}, bad are {bad:?}");
        }
    }
}
