//! The promises of the supervisor, told as stories: what is stable before what, and what the
//! superblocks and the bitmap say at each point.

use crate::story::{DELAY_NS, SECOND_NS, Said, Story, said, superblocks, supervisor};
use lapstrake_engine::*;
use lapstrake_geometry::{Level, Sector, Sectors, Slot, StripeNo};
use lapstrake_metadata::{Role, Superblock, badblocks::BadBlocks};

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
fn every_shard_hears_of_a_stripe_that_one_has_lost() {
    let mut story = Story::new(Level::Raid5, 3, false);
    story.activate();
    story.take_orders();
    story.notice(Notice::Lost(Some(StripeNo(7))));
    assert_eq!(story.take_orders(), [Order::Lost(StripeNo(7)), Order::Broken]);
}

/// What would be lost: the word that what was being written when the power went may be wrong.
#[test]
fn a_resync_with_nothing_left_to_compare_stays_due() {
    for (level, members, fail, goes_on) in
        [(Level::Raid5, 3, 1, false), (Level::Raid6, 4, 1, true), (Level::Raid6, 4, 2, false)]
    {
        let mut story = Story::new(level, members, false);
        let records =
            story.supervisor.members().zip(0..).map(|((superblock, _), slot)| MemberRecord {
                superblock: superblock.clone(),
                slot: Some(Slot(slot)),
                trusted_to: FULLY_TRUSTED,
                bad_blocks: None,
            });
        let records = records.collect();
        story.supervisor = supervisor(&story.geometry, records, None, Some(Sector(0)));
        story.supervisor.handle_start(story.now);
        story.drain();
        story.settle();
        for member in 0..fail {
            story.notice(Notice::Failed(MemberId(member)));
            story.settle();
        }
        let action = story.supervisor.sync_progress(story.now).map(|progress| progress.action);
        assert_eq!(action, goes_on.then_some(SyncAction::Resync), "{level} without {fail}");
        assert_eq!(story.supervisor.resync_from(), Some(Sector(0)), "{level} without {fail}");
        assert!(story.supervisor.needs_all());
    }
}

#[test]
fn a_bit_is_stable_on_all_members_before_its_write_goes() {
    let mut story = Story::new(Level::Raid1, 2, true);
    story.activate();
    story.wants(3, 4);
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
        story.wants(3, 3);
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
    story.wants(3, 3);
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
    assert_eq!(recorded, 4, "two events, on two members");
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
    story.wants(3, 3);
    story.settle();
    story.wait(5 * SECOND_NS);
    story.take_orders();
    story.wants(3, 3);
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
    story.wants(0, 7);
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

/// What would be lost: whatever else superblocks of a step back say. They hold fewer events than those of a member that
/// did not hear of it, which would be believed instead.
#[test]
fn what_comes_with_a_step_back_is_recorded_by_more_events() {
    let mut story = Story::new(Level::Raid1, 2, false);
    story.activate();
    story.rest_at_once();
    story.activate();
    let active = story.supervisor.events();
    story.wait(DELAY_NS);
    story.supervisor.handle_notice(story.now, Notice::Idle);
    story.begin_spare();
    let told = superblocks(&story.pending);
    assert_eq!(told.len(), 3);
    assert!(told.iter().all(|(_, sb)| sb.events() > active), "{told:?}");
}

/// What would be lost: with a bitmap its page goes first, and a member may fail meanwhile. Superblocks that
/// step back and say so too would hold fewer events than the member that they call failed.
#[test]
fn a_failure_while_the_bitmap_is_written_calls_a_step_back_off() {
    let mut story = crate::bitmap::with_file(Level::Raid1, 3);
    story.rest_at_once();
    story.activate();
    let active = story.supervisor.events();
    let pages = story.rest();
    assert!(superblocks(&pages).is_empty(), "the bitmap goes first");
    assert_eq!(story.supervisor.events(), active - 1, "a step back");
    story.notice(Notice::Failed(MemberId(2)));
    story.pending.splice(0..0, pages);
    let mut recorded = 0;
    while !story.pending.is_empty() {
        let write = story.pending.remove(0);
        if let [(_, sb)] = &superblocks(std::slice::from_ref(&write))[..] {
            assert!(sb.events() > active, "{} events, the failed one has {active}", sb.events());
            recorded += u32::from(sb.role_of(2) == Role::Faulty);
        }
        story.end(&write, true);
    }
    assert_eq!(recorded, 4, "two events, on two members");
    assert!(story.take_orders().contains(&Order::Recorded(MemberId(2))));
}

/// What would be lost: if the power went while the survivors say that the member is gone, and its
/// replacement not yet that it is whole, a degraded array would have neither.
#[test]
fn a_replacement_is_whole_on_record_before_the_member_is_given_up() {
    let mut story = Story::new(Level::Raid5, 3, false);
    let spare = story.add_spare();
    assert!(story.supervisor.handle_replace(story.now, MemberId(1), Some(spare)));
    story.drain();
    assert_eq!(story.take_orders().last(), Some(&Order::Slotted(spare, Slot(1))));
    let begun = superblocks(&story.pending);
    let (_, sb) = begun.iter().find(|w| w.0 == spare).expect("its superblock");
    assert!(sb.is_replacement() && sb.recovery_offset() == Some(Sector(0)));
    assert_eq!(sb.role(), Role::Active(Slot(1)));
    story.copy_until_whole(spare);
    let orders = story.take_orders();
    assert!(orders.contains(&Order::Trusted(spare, FULLY_TRUSTED)), "{orders:?}");
    assert!(!orders.contains(&Order::MemberFailed(MemberId(1))), "{orders:?}");
    let progress = story.supervisor.sync_progress(story.now).expect("who waits for it waits on");
    assert_eq!((progress.action, progress.done), (SyncAction::Recovery, progress.end));
    while !story.orders.contains(&Order::MemberFailed(MemberId(1))) {
        let write = story.pending.remove(0);
        story.end(&write, true);
    }
    let given_up = superblocks(&story.pending);
    assert_eq!(given_up.len(), 3);
    for (_, sb) in &given_up {
        assert_eq!((sb.role_of(1), sb.role_of(3)), (Role::Faulty, Role::Active(Slot(1))));
        assert!(!sb.is_replacement());
    }
    story.settle();
    assert!(!story.supervisor.is_degraded());
    assert_eq!(story.supervisor.sync_progress(story.now), None);
}

#[test]
fn a_replacement_takes_the_place_of_a_member_that_fails_first() {
    let mut story = Story::new(Level::Raid1, 2, false);
    let spare = story.add_spare();
    assert!(story.supervisor.handle_replace(story.now, MemberId(0), None));
    story.drain();
    story.settle();
    story.notice(Notice::Failed(MemberId(0)));
    let (state, slot, _) = story.supervisor.state(spare);
    assert_eq!((state, slot), (DiskState::Recovering, Some(Slot(0))));
    story.settle();
    assert!(story.supervisor.is_degraded());
}

/// Found by the simulation, a seed that dealt spans anew. What would be lost: that one question has one answer. Before the resync
/// copies differ, and who replaces the one that is read first may be read last.
#[test]
fn a_replacement_waits_for_a_resync_that_is_due() {
    let mut story = Story::new(Level::Raid1, 2, false);
    let records = story.supervisor.members().zip(0..).map(|((superblock, _), slot)| MemberRecord {
        superblock: superblock.clone(),
        slot: Some(Slot(slot)),
        trusted_to: FULLY_TRUSTED,
        bad_blocks: None,
    });
    let records = records.collect();
    story.supervisor = supervisor(&story.geometry, records, None, Some(Sector(0)));
    let spare = story.add_spare();
    assert!(story.supervisor.handle_replace(story.now, MemberId(0), Some(spare)));
    story.supervisor.handle_start(story.now);
    story.drain();
    story.settle();
    let action = story.supervisor.sync_progress(story.now).map(|progress| progress.action);
    assert_eq!(action, Some(SyncAction::Resync));
}

/// Found by the simulation, seed 8015. What would be lost: what was written while the member was away, if it came
/// back with as many events as the others and took its slot from who had replaced it.
#[test]
fn a_member_that_was_away_while_its_replacement_served_is_behind() {
    let mut story = Story::new(Level::Raid1, 2, false);
    let spare = story.add_spare();
    assert!(story.supervisor.handle_replace(story.now, MemberId(1), Some(spare)));
    story.drain();
    story.copy_until_whole(spare);
    let before: Vec<Superblock> = story.supervisor.members().map(|(sb, _)| sb.clone()).collect();
    let there = [&before[0], &before[2]];
    let records = there.map(|superblock| MemberRecord {
        superblock: superblock.clone(),
        slot: Some(if superblock.dev_number() == 0 { Slot(0) } else { Slot(1) }),
        trusted_to: FULLY_TRUSTED,
        bad_blocks: None,
    });
    story.restart(records.into());
    let away = before[1].events();
    for _ in 0..3 {
        story.activate();
        let clean = story.rest();
        assert!(superblocks(&clean).iter().all(|(_, sb)| sb.events() > away + 1));
        story.pending = clean;
        story.settle();
    }
}

/// Writes of the second member's log that are on their way.
fn logs_of_second(story: &Story) -> Vec<&MetaWrite> {
    let (superblock, _) = story.supervisor.members().nth(1).expect("two members");
    let (at, _) = superblock.badblock_log().expect("a log");
    let is_log = |w: &&MetaWrite| w.target == Target::Member(MemberId(1)) && w.sector == at;
    story.pending.iter().filter(is_log).collect()
}

/// The first write of the second member's log ends.
fn end_log(story: &mut Story) {
    let id = logs_of_second(story)[0].id;
    let at = story.pending.iter().position(|write| write.id == id).expect("on its way");
    let write = story.pending.remove(at);
    story.end(&write, true);
}

/// What would be lost: a write that the member refuses later. Shards take it for one that the log covers, and the
/// log does not.
#[test]
fn what_was_written_meanwhile_is_not_said_to_be_on_record() {
    for (good, rest) in [((8, 4), (12, 4)), ((12, 4), (8, 4))] {
        let mut story = Story::with_logs(Level::Raid1, 2);
        story.notice(Notice::Bad(MemberId(1), Sector(8), Sectors(8)));
        while !logs_of_second(&story).is_empty() {
            end_log(&mut story);
        }
        // The superblocks that tell of the log are on their way.
        let good = (MemberId(1), Sector(good.0), Sectors(good.1));
        story.notice(Notice::Good(good.0, good.1, good.2));
        story.settle();
        let orders = story.take_orders();
        assert!(orders.contains(&Order::GoodAgain(good.0, good.1, good.2)), "{orders:?}");
        let rest = Order::BadRecorded(MemberId(1), Sector(rest.0), Sectors(rest.1));
        assert_eq!(recorded(&orders), [&rest], "what was written is not on record");
    }
}

/// The log's one range is longer by then.
#[test]
fn what_is_said_to_be_on_record_is_what_shards_asked_for() {
    let mut story = Story::with_logs(Level::Raid1, 2);
    for start in [8, 16, 0] {
        story.notice(Notice::Bad(MemberId(1), Sector(start), Sectors(8)));
        story.settle();
        let told = Order::BadRecorded(MemberId(1), Sector(start), Sectors(8));
        assert_eq!(recorded(&story.take_orders()), [&told]);
    }
}

fn recorded(orders: &[Order]) -> Vec<&Order> {
    orders.iter().filter(|order| matches!(order, Order::BadRecorded(..))).collect()
}

/// What would be lost: data of a member that only looks recovered, in a shard that gets its sectors dealt meanwhile.
#[test]
fn every_shard_hears_of_a_bad_block_before_it_is_on_record() {
    let mut story = Story::with_logs(Level::Raid1, 2);
    story.notice(Notice::Bad(MemberId(1), Sector(8), Sectors(8)));
    assert_eq!(story.take_orders(), [Order::Bad(MemberId(1), Sector(8), Sectors(8))]);
    story.settle();
    let orders = story.take_orders();
    assert!(orders.contains(&Order::BadRecorded(MemberId(1), Sector(8), Sectors(8))), "{orders:?}");
}

/// What would be lost: a bad block. Of two writes of a log on their way the older may come last, and at the next
/// start old data is taken for good.
#[test]
fn of_a_log_one_write_is_on_its_way_at_a_time() {
    let mut story = Story::with_logs(Level::Raid1, 2);
    story.notice(Notice::Bad(MemberId(1), Sector(8), Sectors(8)));
    story.notice(Notice::Bad(MemberId(1), Sector(64), Sectors(8)));
    assert_eq!(logs_of_second(&story).len(), 1, "the second waits");
    end_log(&mut story);
    let second = logs_of_second(&story)[0];
    let log = BadBlocks::parse(&second.data, 0).expect("a log");
    assert_eq!(log.iter().count(), 2);
}

/// What would be lost: a write over a bad block, if the log that calls it good has no room and stays as it was.
#[test]
fn a_member_goes_whose_log_has_no_room_for_what_is_left_of_a_split_range() {
    let room = 4096 / 8;
    let mut log = BadBlocks::new(0).expect("no shift");
    let data =
        Story::new(Level::Raid1, 2, false).supervisor.members().next().unwrap().0.data_offset();
    (0..room).for_each(|at| log.insert(data + Sectors(at * 32), Sectors(16)));
    let mut story = Story::with_log(Level::Raid1, 2, &log);
    story.notice(Notice::Good(MemberId(1), Sector(0), Sectors(8)));
    story.settle();
    assert!(
        !story.take_orders().contains(&Order::MemberFailed(MemberId(1))),
        "one range is shorter"
    );
    story.notice(Notice::Good(MemberId(1), Sector(32 + 4), Sectors(8)));
    story.settle();
    assert!(story.take_orders().contains(&Order::MemberFailed(MemberId(1))));
    // Nobody is there but the other: its log stays as it is on record.
    story.notice(Notice::Good(MemberId(0), Sector(32 + 4), Sectors(8)));
    story.settle();
    assert!(!story.take_orders().contains(&Order::MemberFailed(MemberId(0))));
}

/// A recovery that is taken up again meets what it could not recover before: that is told once.
#[test]
fn what_is_on_record_as_bad_is_no_news() {
    let mut story = Story::with_logs(Level::Raid1, 2);
    let told = |story: &mut Story, start, len| {
        story.notice(Notice::Bad(MemberId(1), Sector(start), Sectors(len)));
        story.settle();
        std::iter::from_fn(|| story.supervisor.poll_event())
            .filter(|event| matches!(event, Event::BadBlocks(..)))
            .count()
    };
    assert_eq!(told(&mut story, 8, 16), 1);
    assert_eq!(told(&mut story, 8, 8), 0);
    assert_eq!(told(&mut story, 16, 16), 1, "half of it is news");
    assert_eq!(story.supervisor.bad_sectors(MemberId(1)), Sectors(24));
    assert_eq!(story.supervisor.bad_sectors(MemberId(0)), Sectors(0));
    assert_eq!(story.supervisor.array_start(MemberId(1), Sector(8), Sectors(8)), Some(Sector(8)));
}

#[test]
fn the_time_that_a_check_stands_still_says_nothing_of_its_speed() {
    let mut story = Story::new(Level::Raid1, 2, false);
    story.supervisor.hold_checks(story.now, true);
    assert!(story.supervisor.handle_sync(story.now, SyncAction::Check));
    story.wait(3600 * SECOND_NS);
    assert!(!story.sync_one());
    let progress = |story: &Story| story.supervisor.sync_progress(story.now).expect("a check");
    assert!(progress(&story).held && progress(&story).speed == 0);
    story.supervisor.hold_checks(story.now, false);
    story.wait(SECOND_NS);
    assert!(story.sync_one());
    let now = progress(&story);
    assert!(!now.held && now.done.0 > 0 && now.speed == now.done.0, "{now:?}");
}

/// What would be lost: a failure's record. Superblocks that are still on their way keep the members open.
#[test]
fn an_array_is_not_stopped_while_a_failure_is_not_on_record() {
    let mut story = Story::new(Level::Raid1, 2, false);
    story.notice(Notice::Failed(MemberId(1)));
    story.supervisor.handle_stop(story.now);
    story.drain();
    assert!(!story.supervisor.is_recorded());
    while !story.pending.is_empty() {
        assert!(!story.supervisor.is_stopped());
        let write = story.pending.remove(0);
        story.end(&write, true);
    }
    assert!(story.supervisor.is_recorded() && story.supervisor.is_stopped());
}

/// What would be lost: a bad block, if the log's write was held back for another member's failed flush.
#[test]
fn a_log_that_was_not_written_is_written_again() {
    let mut story = Story::with_logs(Level::Raid1, 2);
    story.notice(Notice::Bad(MemberId(1), Sector(8), Sectors(8)));
    let dropped: Vec<WriteId> = story.pending.drain(..).map(|write| write.id).collect();
    story.supervisor.handle_unflushed(story.now, &[MemberId(0)], &dropped);
    story.drain();
    assert_eq!(logs_of_second(&story).len(), 1);
    story.settle();
    let orders = story.take_orders();
    assert!(orders.contains(&Order::BadRecorded(MemberId(1), Sector(8), Sectors(8))), "{orders:?}");
}

#[test]
fn a_member_that_is_to_be_replaced_says_so_until_there_is_a_spare() {
    let mut story = Story::new(Level::Raid1, 2, false);
    assert!(!story.supervisor.awaits_replacement(MemberId(1)));
    assert!(story.supervisor.handle_replace(story.now, MemberId(1), None));
    story.drain();
    story.settle();
    assert!(story.supervisor.awaits_replacement(MemberId(1)));
    let spare = story.add_spare();
    story.settle();
    assert_eq!(story.supervisor.state(spare).0, DiskState::Replacement);
}

/// What would be lost: redundancy of what a resync could not make right, for nobody goes over it again.
#[test]
fn a_resync_counts_as_done_up_to_what_failed_and_no_further() {
    for failing in [0, 1, 2] {
        let mut story = Story::new(Level::Raid1, 2, false);
        let start = Some(Sector(0));
        story.supervisor = supervisor(&story.geometry, story.records(), None, start);
        story.supervisor.handle_start(story.now);
        story.drain();
        let mut failed = None;
        for count in 0.. {
            let Some(piece) = story.supervisor.poll_sync() else { break };
            let ok = count != failing;
            failed = failed.or((!ok).then_some(piece.start));
            story.notice(Notice::Synced(SyncReport {
                id: piece.id,
                ok,
                mismatch_sectors: 0,
                mismatches: Vec::new(),
                requests: 0,
            }));
        }
        story.settle();
        let due = story.supervisor.resync_from();
        assert!(due.is_some() && due <= failed, "due from {due:?}, {failed:?} failed");
        let serving = story.supervisor.members();
        assert!(
            serving
                .into_iter()
                .all(|(sb, _)| sb.resync_offset().is_none_or(|at| Some(at) <= failed))
        );
    }
}

#[test]
fn a_member_backs_what_is_bad_on_another_if_nobody_else_does() {
    for (level, members, expected) in [(Level::Raid1, 2, true), (Level::Raid1, 3, false)] {
        let mut story = Story::with_logs(level, members);
        assert_eq!(story.supervisor.backed_by(MemberId(0)), None);
        story.notice(Notice::Bad(MemberId(1), Sector(8), Sectors(8)));
        story.settle();
        let worn = expected.then_some(MemberId(1));
        assert_eq!(story.supervisor.backed_by(MemberId(0)), worn);
        assert_eq!(story.supervisor.backed_by(MemberId(1)), None);
    }
}

/// What would be lost: members of which nothing is wrong, and without enough of them the array.
#[test]
fn without_room_no_member_is_failed_and_superblocks_stay_active() {
    let mut story = Story::new(Level::Raid6, 4, false);
    story.activate();
    story.supervisor.handle_out_of_space(story.now);
    story.notice(Notice::Lost(None));
    story.notice(Notice::Failed(MemberId(1)));
    assert!(!story.supervisor.handle_fail(story.now, MemberId(2)));
    let events: Vec<_> = std::iter::from_fn(|| story.supervisor.poll_event()).collect();
    assert_eq!(events, [Event::Broken(Loss::Space)]);
    assert!(story.supervisor.members().all(|member| member.1 == DiskState::InSync));
    story.supervisor.handle_stop(story.now);
    story.drain();
    assert!(story.pending.is_empty() && story.supervisor.is_stopped());
    assert!(story.supervisor.is_active());
}

/// What would be lost: what was written without a member, if mdadm, forced, took it back. It does where that is one event behind.
#[test]
fn who_failed_is_two_events_behind_before_a_write_without_it_is_answered() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid10] {
        let mut story = Story::new(level, 4, false);
        story.activate();
        story.take_orders();
        let events = story.supervisor.events();
        story.notice(Notice::Failed(MemberId(3)));
        let mut on_record = vec![events; 3];
        while !story.take_orders().contains(&Order::Recorded(MemberId(3))) {
            let write = story.pending.remove(0);
            let (member, sb) = superblocks(std::slice::from_ref(&write)).remove(0);
            on_record[usize::from(member.0)] = sb.events();
            story.end(&write, true);
        }
        assert!(on_record.iter().all(|on| *on >= events + 2), "{level}: {on_record:?}, {events}");
    }
}
