//! Promise: nothing is written into the journal's ring over what is still needed, and its tail is told when there is
//! use for that.

use lapstrake_engine::journal::JournalConfig;
use lapstrake_engine::{
    Buf, BufId, Effect, FULLY_TRUSTED, IoKind, MemberConfig, MemberId, MemberIo, Notice, Order,
    Request, RequestError, RequestId, RequestKind, Shard, ShardConfig, Time,
};
use lapstrake_geometry::{Config, Geometry, Layout, Level, Sector, Sectors, Slot};
use lapstrake_metadata::journal::{BLOCK, Seed};

const NOW: Time = Time(0);
const CHUNK: u64 = 8;
const STRIPE: u64 = 2 * CHUNK;
const COMPONENT: u64 = 2048 * CHUNK;
const JOURNAL: MemberId = MemberId(3);
/// A meta block, two blocks of data and their parity.
const UNIT: u64 = 32;

/// A RAID5 of three members and a journal, of which the tail is an empty unit.
struct Ring {
    shard: Shard,
    pending: Vec<MemberIo>,
    answers: Vec<(u64, bool)>,
    told: Vec<Notice>,
}

impl Ring {
    fn new(ring: u64) -> Self {
        let geometry = Geometry::new(&Config {
            level: Level::Raid5,
            layout: Layout::default_for(Level::Raid5),
            chunk: Sectors(CHUNK),
            raid_disks: 3,
            component: Sectors(COMPONENT),
            member_sizes: Vec::new(),
        });
        let member = |slot| MemberConfig {
            data_offset: Sector(0),
            slot,
            trusted_to: FULLY_TRUSTED,
            rotational: false,
            write_mostly: false,
            bad_blocks: None,
            log: None,
        };
        let slots = (0..3).map(|slot| Some(Slot(slot))).chain([None]);
        let (ring, seed) = (Sectors(ring), Seed::new([7; 16]));
        let shard = Shard::new(ShardConfig {
            geometry: geometry.expect("a RAID5"),
            members: slots.map(member).collect(),
            read_only: false,
            block: BLOCK,
            in_sync_to: FULLY_TRUSTED,
            bitmap: None,
            scratch: BufId(0),
            scratch_pages: 2048,
            log_signature: None,
            lost: Vec::new(),
            journal: Some(JournalConfig {
                member: JOURNAL,
                ring,
                seed,
                tail: 0,
                head: BLOCK.0,
                seq: 5,
            }),
            behind_pages: 0,
            unsynced: None,
        });
        let mut this = Self { shard, pending: Vec::new(), answers: Vec::new(), told: Vec::new() };
        this.order(&Order::Active);
        this
    }

    fn order(&mut self, order: &Order) {
        self.shard.handle_order(NOW, order);
        self.drain();
    }

    /// Whole stripes, which read nothing.
    fn write(&mut self, stripes: impl IntoIterator<Item = u64>) {
        for stripe in stripes {
            let buf = Buf { id: BufId(1), offset: 0 };
            let kind = RequestKind::Write { buf, fua: false, followed: false };
            let (id, sector, len) = (RequestId(stripe), Sector(stripe * STRIPE), Sectors(STRIPE));
            self.shard.handle_request(NOW, Request { id, kind, sector, len });
        }
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(effect) = self.shard.poll_effect() {
            match effect {
                Effect::Io(io) => self.pending.push(io),
                Effect::Reply(reply) => self.answers.push((reply.id.0, reply.result.is_ok())),
                _ => {}
            }
        }
        self.told.extend(std::iter::from_fn(|| self.shard.poll_notice()));
    }

    fn end(&mut self, io: &MemberIo, ok: bool) {
        self.pending.retain(|other| other.id != io.id);
        self.shard.handle_completion(NOW, io.id, ok);
        self.drain();
    }

    /// Where in the ring something is being written, and how long it is.
    fn in_ring(&self) -> Vec<(u64, u64)> {
        let ios = self.pending.iter().filter(|io| io.member == JOURNAL);
        let place = |io: &MemberIo| {
            assert_eq!(io.kind, IoKind::Write { fua: true });
            (io.sector.0, io.len.0)
        };
        ios.map(place).collect()
    }

    /// What is being written to the ring ends.
    fn end_ring(&mut self, ok: bool) {
        let ios: Vec<_> = self.pending.iter().filter(|io| io.member == JOURNAL).cloned().collect();
        ios.iter().for_each(|io| self.end(io, ok));
    }

    /// The members have a stripe.
    fn end_stripe(&mut self, stripe: u64) {
        let is_of = |io: &&MemberIo| io.member != JOURNAL && io.sector.0 == stripe * CHUNK;
        let ios: Vec<_> = self.pending.iter().filter(is_of).cloned().collect();
        assert_eq!(ios.len(), 3, "data and parity of {stripe}");
        ios.iter().for_each(|io| self.end(io, true));
    }

    /// Where the tail may move to, and whether somebody waits for that.
    fn tails(&mut self) -> Vec<(u64, bool)> {
        let tail = |notice| match notice {
            Notice::JournalTail { position, is_urgent } => Some((position, is_urgent)),
            _ => None,
        };
        std::mem::take(&mut self.told).into_iter().filter_map(tail).collect()
    }
}

#[test]
fn what_has_no_room_waits_until_the_tail_has_moved_and_then_goes_round_the_end() {
    // The least ring: a unit has one row.
    let mut ring = Ring::new(128);
    ring.write(0..5);
    assert_eq!(ring.in_ring(), [(8, UNIT), (40, UNIT), (72, UNIT)], "24 sectors are left");
    ring.end_ring(true);
    assert_eq!((ring.in_ring(), ring.tails()), (vec![], vec![]), "all is needed");
    ring.end_stripe(1);
    assert_eq!(ring.tails(), [], "the first one is still needed");
    ring.end_stripe(0);
    assert_eq!(ring.tails(), [(40, true)], "two are not, and the tail is one of them");
    ring.order(&Order::TailMoved(40));
    assert_eq!(ring.in_ring(), [(104, 24), (0, 8)]);
    ring.end_ring(true);
    ring.end_stripe(2);
    assert_eq!(ring.tails(), [(72, true)]);
    ring.order(&Order::TailMoved(72));
    assert_eq!(ring.in_ring(), [(8, UNIT)]);
    ring.end_ring(true);
    (3..5).for_each(|stripe| ring.end_stripe(stripe));
    assert_eq!(ring.tails(), [(8, true)], "two units are more than a quarter");
    assert_eq!(ring.answers, [1, 0, 2, 3, 4].map(|id| (id, true)));
    assert!(ring.shard.is_quiet());
}

#[test]
fn the_tail_is_told_when_nothing_is_needed_any_more_and_when_a_quarter_could_be_free() {
    // Eight units are a quarter.
    let mut ring = Ring::new(4 * 8 * UNIT);
    ring.write([0]);
    ring.end_ring(true);
    ring.end_stripe(0);
    assert_eq!(ring.tails(), [(8, false)], "nothing waits for it");
    ring.order(&Order::TailMoved(8));
    // One is always under way. Of those that are done the first is the tail, and the last one would be.
    ring.write([1]);
    for stripe in 1..10 {
        ring.end_ring(true);
        ring.write([stripe + 1]);
        ring.end_stripe(stripe);
        let expected = if stripe < 9 { vec![] } else { vec![(8 + 9 * UNIT, true)] };
        assert_eq!(ring.tails(), expected, "{stripe}");
    }
}

#[test]
fn it_is_told_when_the_ring_rests_and_when_that_ends() {
    let mut ring = Ring::new(256);
    let rests = |ring: &mut Ring| {
        let told = std::mem::take(&mut ring.told).into_iter();
        let end = |notice| if let Notice::JournalRests(end) = notice { Some(end) } else { None };
        told.filter_map(end).collect::<Vec<_>>()
    };
    ring.write(0..2);
    ring.end_ring(true);
    ring.end_stripe(0);
    assert_eq!(rests(&mut ring), [], "one is under way");
    ring.end_stripe(1);
    let [Some((head, seq))] = rests(&mut ring)[..] else { panic!("it rests") };
    assert_eq!(head, 8 + 8 + 2 * (UNIT - 8), "one unit has both");
    ring.write([2]);
    assert_eq!(rests(&mut ring), [None]);
    ring.end_ring(true);
    ring.end_stripe(2);
    assert_eq!(rests(&mut ring), [Some((head + UNIT, seq + 1))]);
    // A stop put an empty unit there.
    ring.order(&Order::TailMoved(head + UNIT));
    ring.write([3]);
    assert_eq!(ring.in_ring(), [((head + UNIT + 8) % 256, UNIT)]);
}

/// What would be lost: the writes that wait when the journal fails, if nobody told of that.
#[test]
fn when_the_journal_fails_what_waits_for_it_fails_and_so_does_what_comes() {
    let mut ring = Ring::new(128);
    ring.write(0..4);
    ring.end_ring(false);
    assert!(ring.told.iter().any(|notice| matches!(notice, Notice::Failed(JOURNAL))));
    ring.write([7]);
    let mut answers = ring.answers.clone();
    answers.sort_unstable();
    assert_eq!(answers, [0, 1, 2, 3, 7].map(|id| (id, false)));
    assert!(ring.pending.is_empty(), "{:?}", ring.pending);
}

#[test]
fn the_stripe_cache_has_the_size_that_is_asked_for_beside_the_journals_pages() {
    let mut ring = Ring::new(128);
    ring.order(&Order::StripeCache(300));
    assert_eq!(ring.shard.scratch_pages(), (0, 300));
}

#[test]
fn requests_that_cannot_be_are_answered_at_once() {
    let read = RequestKind::Read(Buf { id: BufId(1), offset: 0 });
    let (last, misaligned) = (2 * COMPONENT - 8, Some(Err(RequestError::Misaligned)));
    let beyond = Some(Err(RequestError::OutOfRange));
    let cases = [
        (read, 8, 8, None),
        (read, last, 8, None),
        (read, 4, 8, misaligned),
        (read, 8, 4, misaligned),
        (read, 4, 4, misaligned),
        (read, last, 16, beyond),
        (read, u64::MAX - 7, 8, beyond),
        (read, 8, 0, Some(Ok(()))),
        (RequestKind::Discard, 8, 0, Some(Ok(()))),
        (RequestKind::Flush, 0, 0, None),
    ];
    for (kind, sector, len, expected) in cases {
        let mut shard = Ring::new(128).shard;
        let (id, sector, len) = (RequestId(1), Sector(sector), Sectors(len));
        shard.handle_request(NOW, Request { id, kind, sector, len });
        let answer = match shard.poll_effect() {
            Some(Effect::Reply(reply)) => Some(reply.result),
            _ => None,
        };
        assert_eq!(answer, expected, "{kind:?} at {sector} of {len}");
    }
}

/// What would be lost: what lies behind the memory of the units' heads.
#[test]
fn no_more_units_are_on_their_way_than_their_heads_have_memory_for() {
    let mut ring = Ring::new(4 * 4096 * UNIT);
    ring.write([0]);
    ring.write(1..2048);
    ring.end_ring(true);
    assert_eq!(ring.in_ring().len(), 16);
    let mut units = 17;
    while !ring.in_ring().is_empty() {
        ring.end_ring(true);
        units += ring.in_ring().len();
    }
    assert!(units > 17, "the rest came later");
}
