//! The promises of the supervisor, told as stories: what is stable before what, and what the
//! superblocks and the bitmap say at each point.

use lapstrake_engine::*;
use lapstrake_geometry::{Level, Sector, Sectors, Slot};
use lapstrake_metadata::{
    Role, Superblock, Version,
    bitmap::{self, Bits},
    create::{BitmapChoice, CreateRequest, NewMember, plan},
};

const DELAY_NS: u64 = 200_000_000;
const SECOND_NS: u64 = 1_000_000_000;

struct Story {
    supervisor: Supervisor,
    pending: Vec<MetaWrite>,
    orders: Vec<Order>,
    now: Time,
}

/// What a metadata write says.
enum Said {
    Superblock(Box<Superblock>),
    Bitmap(Box<bitmap::Superblock>),
}

impl Story {
    fn new(level: Level, members: u16, bitmap: bool) -> Self {
        let size = Sectors(1 << 20);
        let request = CreateRequest {
            level,
            raid_disks: members,
            spares: 0,
            members: vec![Some(NewMember { size, ..NewMember::default() }); members.into()],
            version: Version::V1_2,
            chunk: None,
            layout: None,
            bitmap: if bitmap { BitmapChoice::Internal } else { BitmapChoice::None },
            bitmap_chunk: None,
            write_behind: 0,
            size: None,
            data_offset: None,
            set_uuid: None,
            name: "story".into(),
            homehost: None,
            assume_clean: true,
            force: true,
            ctime: 1_700_000_000,
            md_minor: 0,
        };
        let mut byte = 0u8;
        let made = plan(&request, |buf| {
            buf.iter_mut().for_each(|b| {
                byte = byte.wrapping_add(41);
                *b = byte;
            })
        })
        .expect("a plan");
        let records: Vec<_> = (0..members)
            .map(|slot| MemberRecord {
                superblock: made.members[usize::from(slot)].superblock.clone(),
                slot: Some(Slot(slot)),
                trusted_to: FULLY_TRUSTED,
                bad_blocks: None,
            })
            .collect();
        let intent = bitmap.then(|| {
            let sync = made.component;
            let sb = bitmap::Superblock::new(records[0].superblock.bitmap_uuid(), sync, 1 << 20);
            let bits = Bits::new(&sb, false);
            IntentConfig { superblock: sb, bits, external: false, bits_need_resync: false }
        });
        let supervisor = Supervisor::new(SupervisorConfig {
            geometry: made.geometry,
            members: records,
            shards: 1,
            safe_mode_delay_ns: DELAY_NS,
            resync_from: None,
            intent,
            sync: SyncConfig {
                speed: SyncSpeed::default(),
                frozen: false,
                span: Sectors(u64::MAX),
            },
            epoch_s: 1_800_000_000,
        });
        Self { supervisor, pending: Vec::new(), orders: Vec::new(), now: Time(0) }
    }

    fn notice(&mut self, notice: Notice) {
        self.supervisor.handle_notice(self.now, notice);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(write) = self.supervisor.poll_write() {
            self.pending.push(write);
        }
        while let Some(order) = self.supervisor.poll_order() {
            self.orders.push(order);
        }
    }

    /// Ends all metadata writes that are on their way, and those that follow.
    fn settle(&mut self) {
        while !self.pending.is_empty() {
            let write = self.pending.remove(0);
            self.end(&write, true);
        }
    }

    fn end(&mut self, write: &MetaWrite, ok: bool) {
        self.supervisor.handle_written(self.now, write.id, ok);
        self.drain();
    }

    fn wait(&mut self, ns: u64) {
        self.now = self.now.after(ns);
        self.supervisor.handle_time(self.now);
        self.drain();
    }

    fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    /// Goes through a first write: the array is active afterwards.
    fn activate(&mut self) {
        self.notice(Notice::NeedActive);
        self.settle();
        assert!(self.take_orders().contains(&Order::Active));
    }
}

fn said(write: &MetaWrite) -> Said {
    match bitmap::Superblock::parse(&write.data) {
        Ok(sb) => Said::Bitmap(Box::new(sb)),
        Err(_) => {
            let at = write.sector.0;
            let sb = lapstrake_metadata::v1::Superblock::parse(&write.data, 2, at).expect("either");
            Said::Superblock(Box::new(Superblock::V1(sb)))
        }
    }
}

fn superblocks(writes: &[MetaWrite]) -> Vec<(MemberId, Superblock)> {
    writes
        .iter()
        .filter_map(|write| match (write.target, said(write)) {
            (Target::Member(member), Said::Superblock(sb)) => Some((member, *sb)),
            _ => None,
        })
        .collect()
}

#[test]
fn the_superblocks_say_active_before_the_first_write_goes() {
    let mut story = Story::new(Level::Raid1, 2, false);
    story.notice(Notice::NeedActive);
    assert_eq!(story.take_orders(), []);
    let written = superblocks(&story.pending);
    assert_eq!(written.len(), 2);
    for (_, sb) in &written {
        assert_eq!(sb.events(), 1);
        assert_eq!(sb.resync_offset(), Some(Sector(0)));
    }
    let first = story.pending.remove(0);
    story.end(&first, true);
    assert_eq!(story.take_orders(), [], "one member does not have it yet");
    story.settle();
    assert_eq!(story.take_orders(), [Order::Active]);
    assert!(story.supervisor.is_active());
}

#[test]
fn after_the_delay_the_array_is_clean_again_and_the_event_is_taken_back() {
    let mut story = Story::new(Level::Raid5, 3, false);
    // As md: the step back from 1 is not taken, since 0 is what a new array has.
    for expected in [1, 3] {
        story.activate();
        assert_eq!(story.supervisor.events(), expected);
        story.wait(DELAY_NS);
        let before = Time(story.now.0 - DELAY_NS);
        assert_eq!(story.take_orders(), [Order::TryIdle(before)]);
        story.notice(Notice::Idle);
        let clean = superblocks(&story.pending);
        assert!(clean.iter().all(|(_, sb)| sb.resync_offset().is_none()), "all in sync");
        story.settle();
        assert!(!story.supervisor.is_active());
    }
    assert_eq!(story.supervisor.events(), 2, "from 2 to active and back leaves it as it was");
}

#[test]
fn a_busy_shard_puts_the_clean_state_off() {
    let mut story = Story::new(Level::Raid1, 2, false);
    story.activate();
    story.wait(DELAY_NS);
    story.take_orders();
    let last_write = Time(story.now.0 - DELAY_NS / 2);
    story.notice(Notice::Busy(last_write));
    assert!(story.pending.is_empty());
    assert_eq!(story.supervisor.poll_deadline(), Some(last_write.after(DELAY_NS)));
}

#[test]
fn a_write_that_comes_while_shards_are_asked_keeps_the_array_active() {
    let mut story = Story::new(Level::Raid1, 2, false);
    story.activate();
    story.wait(DELAY_NS);
    story.notice(Notice::Idle);
    story.notice(Notice::NeedActive);
    story.settle();
    assert!(story.supervisor.is_active());
    assert_eq!(story.take_orders().last(), Some(&Order::Active));
}

#[test]
fn a_failure_is_recorded_on_every_survivor_before_shards_hear_that_it_is() {
    let mut story = Story::new(Level::Raid5, 3, false);
    story.activate();
    let lost = MemberId(1);
    story.notice(Notice::Failed(lost));
    assert_eq!(story.take_orders(), [Order::MemberFailed(lost)]);
    let written = superblocks(&story.pending);
    let targets: Vec<_> = written.iter().map(|w| w.0).collect();
    assert_eq!(targets, [MemberId(0), MemberId(2)]);
    for (_, sb) in &written {
        assert_eq!(sb.role_of(1), lapstrake_metadata::Role::Faulty);
    }
    let first = story.pending.remove(0);
    story.end(&first, true);
    assert_eq!(story.take_orders(), []);
    story.settle();
    assert_eq!(story.take_orders(), [Order::Recorded(lost)]);
    assert!(story.supervisor.is_degraded());
}

#[test]
fn a_survivor_that_refuses_its_superblock_fails_too_and_both_are_recorded() {
    let mut story = Story::new(Level::Raid6, 4, false);
    story.activate();
    story.notice(Notice::Failed(MemberId(1)));
    story.take_orders();
    let writes = std::mem::take(&mut story.pending);
    for write in &writes {
        story.end(write, write.target != Target::Member(MemberId(3)));
    }
    let orders = story.take_orders();
    assert_eq!(orders, [Order::MemberFailed(MemberId(3))], "nothing is on record yet");
    let again = superblocks(&story.pending);
    assert_eq!(again.iter().map(|w| w.0).collect::<Vec<_>>(), [MemberId(0), MemberId(2)]);
    story.settle();
    let mut recorded = story.take_orders();
    recorded.sort_by_key(|order| format!("{order:?}"));
    assert_eq!(recorded, [Order::Recorded(MemberId(1)), Order::Recorded(MemberId(3))]);
}

#[test]
fn when_no_superblock_can_be_written_every_write_fails() {
    let mut story = Story::new(Level::Raid1, 2, false);
    story.notice(Notice::NeedActive);
    let writes = std::mem::take(&mut story.pending);
    story.end(&writes[0], false);
    story.end(&writes[1], false);
    while let Some(write) = story.pending.pop() {
        story.end(&write, false);
    }
    let orders = story.take_orders();
    assert!(orders.contains(&Order::Broken), "{orders:?}");
    assert!(!orders.contains(&Order::Active), "{orders:?}");
}

#[test]
fn a_bit_is_stable_on_all_members_before_its_write_goes() {
    let mut story = Story::new(Level::Raid1, 2, true);
    story.activate();
    story.notice(Notice::BitsWanted(3, 4));
    assert_eq!(story.take_orders(), []);
    assert_eq!(story.pending.len(), 2, "a page on each member");
    let first = story.pending.remove(0);
    let bits = first.data[256];
    assert_eq!(bits, 0b0001_1000);
    story.end(&first, true);
    assert_eq!(story.take_orders(), []);
    story.settle();
    assert_eq!(story.take_orders(), [Order::BitsSet(3, 4)]);
    assert_eq!(story.supervisor.bitmap_bits().map(|bits| bits.0), Some(2));
}

#[test]
fn bits_are_cleared_when_they_were_given_up_but_not_while_a_member_is_missing() {
    for degraded in [false, true] {
        let mut story = Story::new(Level::Raid1, 2, true);
        story.activate();
        story.notice(Notice::BitsWanted(3, 3));
        story.settle();
        if degraded {
            story.notice(Notice::Failed(MemberId(0)));
            story.settle();
        }
        story.take_orders();
        story.wait(5 * SECOND_NS);
        assert!(story.take_orders().contains(&Order::SweepBits));
        story.notice(Notice::BitsIdle(vec![3]));
        story.settle();
        let dirty = story.supervisor.bitmap_bits().map(|bits| bits.0);
        assert_eq!(dirty, Some(u64::from(degraded)));
    }
}

#[test]
fn what_a_member_that_cannot_flush_makes_untrue_is_not_written() {
    let mut story = Story::new(Level::Raid1, 3, true);
    story.activate();
    story.notice(Notice::BitsWanted(3, 3));
    story.settle();
    story.wait(5 * SECOND_NS);
    story.notice(Notice::BitsIdle(vec![3]));
    assert!(!story.pending.is_empty(), "the bit is about to be cleared");
    story.take_orders();
    let dropped: Vec<WriteId> = story.pending.drain(..).map(|write| write.id).collect();
    story.supervisor.handle_unflushed(story.now, &[MemberId(2)], &dropped);
    story.drain();
    assert!(story.take_orders().contains(&Order::MemberFailed(MemberId(2))));
    let mut recorded = 0;
    while !story.pending.is_empty() {
        let write = story.pending.remove(0);
        assert_ne!(write.target, Target::Member(MemberId(2)));
        match said(&write) {
            Said::Bitmap(_) => assert_eq!(write.data[256] & 1 << 3, 1 << 3, "the bit stays"),
            Said::Superblock(sb) => recorded += u32::from(sb.role_of(2) == Role::Faulty),
        }
        story.end(&write, true);
    }
    assert_eq!(recorded, 2);
    assert!(story.take_orders().contains(&Order::Recorded(MemberId(2))));
    assert_eq!(story.supervisor.bitmap_bits().map(|bits| bits.0), Some(1));
}

#[test]
fn when_the_last_member_cannot_flush_nothing_more_is_written() {
    let mut story = Story::new(Level::Raid1, 2, true);
    story.activate();
    story.notice(Notice::Failed(MemberId(0)));
    let dropped: Vec<WriteId> = story.pending.drain(..).map(|write| write.id).collect();
    story.take_orders();
    story.supervisor.handle_unflushed(story.now, &[MemberId(1)], &dropped);
    story.drain();
    assert!(story.pending.is_empty());
    assert_eq!(story.take_orders(), [Order::Broken]);
}

#[test]
fn a_bit_wanted_during_a_sweep_is_granted_after_it() {
    let mut story = Story::new(Level::Raid1, 2, true);
    story.activate();
    story.notice(Notice::BitsWanted(3, 3));
    story.settle();
    story.wait(5 * SECOND_NS);
    story.take_orders();
    story.notice(Notice::BitsWanted(3, 3));
    assert_eq!(story.take_orders(), [], "the sweep is not over");
    story.notice(Notice::BitsIdle(vec![3]));
    story.settle();
    assert_eq!(story.take_orders(), [Order::BitsSet(3, 3)]);
    assert_eq!(story.supervisor.bitmap_bits().map(|bits| bits.0), Some(1));
}

#[test]
fn the_bitmap_is_never_behind_the_superblocks() {
    let mut story = Story::new(Level::Raid1, 2, true);
    story.notice(Notice::NeedActive);
    for write in &story.pending {
        assert!(matches!(said(write), Said::Bitmap(sb) if sb.events == 1));
    }
    let pages = std::mem::take(&mut story.pending);
    for page in &pages {
        assert!(superblocks(&story.pending).is_empty());
        story.end(page, true);
    }
    assert_eq!(superblocks(&story.pending).len(), 2);
}

#[test]
fn stopping_leaves_clean_superblocks_and_no_bit() {
    let mut story = Story::new(Level::Raid1, 2, true);
    story.activate();
    story.notice(Notice::BitsWanted(0, 7));
    story.settle();
    story.supervisor.handle_stop(story.now);
    story.drain();
    assert!(!story.supervisor.is_stopped());
    story.settle();
    assert!(story.supervisor.is_stopped());
    assert_eq!(story.supervisor.bitmap_bits().map(|bits| bits.0), Some(0));
    assert!(story.supervisor.members().all(|(sb, _)| sb.clean()));
}

#[test]
fn an_array_without_redundancy_is_never_rewritten() {
    let mut story = Story::new(Level::Raid0, 2, false);
    story.notice(Notice::NeedActive);
    assert_eq!(story.take_orders(), [Order::Active]);
    assert!(story.pending.is_empty());
    story.supervisor.handle_stop(story.now);
    assert!(story.supervisor.is_stopped());
}

#[test]
fn members_that_are_too_many_together_are_not_recorded_as_failed() {
    let mut story = Story::new(Level::Raid1, 2, false);
    story.activate();
    // Two shards, each of which could do without the one that it dropped.
    story.notice(Notice::Failed(MemberId(0)));
    story.notice(Notice::Failed(MemberId(1)));
    let orders = story.take_orders();
    assert!(orders.contains(&Order::Broken), "{orders:?}");
    story.settle();
    assert!(!story.take_orders().contains(&Order::Recorded(MemberId(1))));
}

/// What would be lost: a member that kept "active, N+1" when the others said "clean, N" would
/// count as current once they had recorded its failure as N+1 too.
#[test]
fn a_member_that_missed_a_step_back_is_left_behind() {
    let mut story = Story::new(Level::Raid1, 2, false);
    for _ in 0..2 {
        story.activate();
        story.wait(DELAY_NS);
        story.notice(Notice::Idle);
        story.settle();
    }
    story.activate();
    let active = story.supervisor.events();
    story.wait(DELAY_NS);
    story.notice(Notice::Idle);
    let clean = std::mem::take(&mut story.pending);
    assert!(superblocks(&clean).iter().all(|(_, sb)| sb.events() == active - 1), "a step back");
    for write in &clean {
        story.end(write, write.target != Target::Member(MemberId(1)));
    }
    story.settle();
    assert!(story.supervisor.events() > active);
    assert!(story.take_orders().contains(&Order::Recorded(MemberId(1))));
}
