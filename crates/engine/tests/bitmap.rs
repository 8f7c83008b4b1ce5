//! Promise: a write-intent bitmap comes and goes while the array is served, and at no moment is one trusted that does
//! not know of every write.

mod story;

use lapstrake_engine::*;
use lapstrake_geometry::{Level, Slot};
use story::{DELAY_NS, SECOND_NS, Story, new_intent, superblocks, supervisor};

/// What would be lost: a resync. Half of the members have heard of the bitmap's coming, or of its going, when the power
/// is cut. Which half is asked at the start after the next must not matter.
#[test]
fn members_that_did_not_hear_of_a_bitmap_change_are_told() {
    for is_kept in [true, false] {
        let mut story = Story::new(Level::Raid1, 2, true);
        let superblocks_before = story.supervisor.members().map(|(sb, _)| sb.clone());
        let mut records: Vec<MemberRecord> = superblocks_before
            .zip((0..).map(Slot))
            .map(|(superblock, slot)| MemberRecord {
                superblock,
                slot: Some(slot),
                trusted_to: FULLY_TRUSTED,
                bad_blocks: None,
            })
            .collect();
        records[1].superblock.set_bitmap_offset(None);
        let intent = new_intent(&records[0].superblock, story.geometry.component());
        story.supervisor = supervisor(&story.geometry, records, is_kept.then_some(intent), None);
        story.notice(Notice::NeedActive);
        let mut told = Vec::new();
        while !story.pending.is_empty() {
            let write = story.pending.remove(0);
            told.extend(superblocks(std::slice::from_ref(&write)));
            story.end(&write, true);
        }
        let members: Vec<u16> = told.iter().map(|(member, _)| member.0).collect();
        assert_eq!(members, [0, 1]);
        assert!(told.iter().all(|(_, sb)| sb.bitmap_offset().is_some() == is_kept));
    }
}

/// What would be lost: the bits of what shards were writing when they heard of a new bitmap, and a resync of that
/// after a cut.
#[test]
fn no_bit_is_granted_or_cleared_before_shards_know_of_the_bitmap() {
    let mut story = Story::new(Level::Raid1, 2, true);
    let old = story.supervisor.bitmap().cloned().expect("a bitmap");
    let offset = story.supervisor.bitmap_offset();
    story.activate();
    story.notice(Notice::BitsWanted(3, 3));
    story.settle();
    story.take_orders();
    assert!(story.supervisor.handle_bitmap(story.now, Some(NewBitmap { superblock: old, offset })));
    story.drain();
    // The old one is about to be denied, and then the new one to be told of.
    while !story.orders.iter().any(|order| matches!(order, Order::Bitmap(Some(_)))) {
        story.wait(10 * SECOND_NS);
        assert!(!story.orders.contains(&Order::SweepBits), "a bitmap comes or goes");
        if story.orders.contains(&Order::Bitmap(None)) {
            // A shard meant the old one.
            story.notice(Notice::BitsWanted(7, 7));
            assert!(!story.orders.contains(&Order::BitsSet(7, 7)));
        }
        let write = story.pending.remove(0);
        story.end(&write, true);
    }
    story.settle();
    let orders = story.take_orders();
    assert!(!orders.contains(&Order::BitsSet(7, 7)), "that shard asks anew");
    story.notice(Notice::BitsWanted(7, 7));
    story.settle();
    assert!(story.take_orders().contains(&Order::BitsSet(7, 7)));
    story.wait(10 * SECOND_NS);
    assert!(story.take_orders().contains(&Order::SweepBits));
}

#[test]
fn a_write_that_comes_when_the_array_is_stopped_does_not_keep_it_active() {
    let mut story = Story::new(Level::Raid1, 2, true);
    story.activate();
    story.supervisor.handle_stop(story.now);
    story.drain();
    story.notice(Notice::NeedActive);
    story.settle();
    story.wait(DELAY_NS);
    assert!(story.supervisor.is_stopped() && !story.supervisor.is_active());
    assert!(!story.take_orders().contains(&Order::Active));
    assert!(story.supervisor.members().all(|(superblock, _)| superblock.clean()));
}
