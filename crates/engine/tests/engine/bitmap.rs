//! Promise: a write-intent bitmap comes and goes while the array is served, and at no moment is one trusted that does
//! not know of every write.

use crate::story::{
    DELAY_NS, SECOND_NS, Said, Story, new_bitmap_config, said, superblocks, supervisor,
};
use lapstrake_engine::*;
use lapstrake_geometry::{Level, Sector};
use lapstrake_metadata::bitmap::{self, Bits};

/// What would be lost: a resync. Half of the members have heard of the bitmap's coming, or of its going, when the power
/// is cut. Which half is asked at the start after the next must not matter.
#[test]
fn members_that_did_not_hear_of_a_bitmap_change_are_told() {
    for (second_knows, is_kept) in [(false, true), (false, false), (true, false)] {
        let mut story = Story::new(Level::Raid1, 2, true);
        let mut records = story.records();
        if !second_knows {
            records[1].superblock.set_bitmap_offset(None);
        }
        let bitmap = new_bitmap_config(&records[0].superblock, story.geometry.component());
        story.supervisor = supervisor(&story.geometry, records, is_kept.then_some(bitmap), None);
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

/// An active array whose bitmap is in a file.
pub fn with_file(level: Level, members: u16) -> Story {
    let mut story = Story::new(level, members, false);
    let mut bitmap = new_bitmap_config(&story.records()[0].superblock, story.geometry.component());
    bitmap.external = true;
    story.supervisor = supervisor(&story.geometry, story.records(), Some(bitmap), None);
    story.activate();
    story
}

/// What would be lost: redundancy. A file that was away while others wrote under its array's next event would pass for
/// fresh. An internal bitmap is nowhere where its array is not, so its page waits for the next step ahead of it.
#[test]
fn only_an_internal_bitmap_stays_ahead_of_a_clean_array_until_the_stop() {
    for (mut story, ahead) in
        [(Story::new(Level::Raid1, 2, true), 1), (with_file(Level::Raid1, 2), 0)]
    {
        story.activate();
        // The first step has none before it to go back to.
        story.rest_at_once();
        story.activate();
        let counts = |story: &Story| {
            let page = story.supervisor.bitmap().expect("a bitmap").events;
            (story.supervisor.is_active(), page - story.supervisor.events())
        };
        assert_eq!(counts(&story), (true, 0));
        story.rest_at_once();
        assert_eq!(counts(&story), (false, ahead));
        story.supervisor.handle_stop(story.now);
        story.drain();
        story.settle();
        assert!(story.supervisor.is_stopped());
        assert_eq!(counts(&story), (false, 0));
    }
}

/// What would be lost: every bit. A bitmap in a file is nowhere else.
#[test]
fn bits_of_a_bitmap_in_a_file_are_stable_there_before_their_write_goes() {
    let mut story = with_file(Level::Raid1, 2);
    story.wants(3, 3);
    let targets: Vec<Target> = story.pending.iter().map(|write| write.target).collect();
    assert_eq!(targets, [Target::BitmapFile]);
    assert_eq!(story.take_orders(), []);
    story.settle();
    assert_eq!(story.take_orders(), [Order::BitsSet(3, 3)]);
    assert!(story.supervisor.members().all(|(superblock, _)| superblock.bitmap_offset().is_none()));
}

/// What would be lost: the array to a full file system, as the bits of writes were lost that would go on meanwhile.
#[test]
fn a_bitmap_whose_file_fails_is_stale_before_writes_go_on_without_it() {
    let mut story = with_file(Level::Raid1, 2);
    let stable = story.supervisor.bitmap().expect("a bitmap").events;
    story.wants(3, 3);
    let page = story.pending.remove(0);
    assert_eq!(page.target, Target::BitmapFile);
    story.end(&page, false);
    let mut told = Vec::new();
    while !story.pending.is_empty() {
        assert!(!story.orders.contains(&Order::Bitmap(None)), "its bits are still waited for");
        let write = story.pending.remove(0);
        assert_ne!(write.target, Target::BitmapFile);
        told.extend(superblocks(std::slice::from_ref(&write)));
        story.end(&write, true);
    }
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|(_, superblock)| superblock.events() > stable));
    assert_eq!(story.take_orders(), [Order::Bitmap(None)]);
    let events: Vec<Event> = std::iter::from_fn(|| story.supervisor.poll_event()).collect();
    assert_eq!(events, [Event::BitmapLost, Event::BitmapChanged]);
    assert!(story.supervisor.bitmap().is_none());
}

/// What would be lost: bits, again. A member refuses its superblock just then, so that the next update only gives all who
/// are left the count that the file has, too.
#[test]
fn an_update_that_counts_nothing_makes_no_bitmap_stale() {
    for (level, refuses) in [(Level::Raid1, MemberId(2)), (Level::Raid10, MemberId(1))] {
        let mut story = with_file(level, 4);
        story.take_orders();
        story.notice(Notice::Failed(MemberId(3)));
        while !story.pending.iter().any(|write| write.target == Target::Member(refuses)) {
            let write = story.pending.remove(0);
            story.end(&write, true);
        }
        let stable = story.supervisor.bitmap().expect("a bitmap").events;
        story.wants(3, 3);
        for target in [Target::BitmapFile, Target::Member(refuses)] {
            let at = story.pending.iter().position(|write| write.target == target);
            let write = story.pending.remove(at.expect("it is on its way"));
            story.end(&write, false);
        }
        let mut of_first = 0;
        while !story.orders.contains(&Order::Bitmap(None)) {
            let write = story.pending.remove(0);
            story.end(&write, true);
            let told = superblocks(std::slice::from_ref(&write));
            let first = told.iter().find(|(member, _)| *member == MemberId(0));
            of_first = first.map_or(of_first, |(_, superblock)| superblock.events());
        }
        assert!(of_first > stable, "{level}: {of_first} on a member, {stable} in the file");
    }
}

/// What would be lost: every write from then on. The update under way is that whose count the file has already.
#[test]
fn a_lost_bitmap_goes_also_if_the_update_after_it_counts_nothing() {
    let mut story = with_file(Level::Raid1, 4);
    story.take_orders();
    story.notice(Notice::Failed(MemberId(3)));
    let page = story.pending.remove(0);
    assert_eq!(page.target, Target::BitmapFile);
    story.end(&page, false);
    let unwritten: Vec<_> = std::mem::take(&mut story.pending).iter().map(|w| w.id).collect();
    assert_eq!(unwritten.len(), 3);
    story.supervisor.handle_unflushed(story.now, &[MemberId(2)], &unwritten);
    story.drain();
    story.settle();
    story.wants(3, 3);
    story.settle();
    assert!(story.take_orders().contains(&Order::Bitmap(None)));
    assert!(story.supervisor.bitmap().is_none());
}

/// What would be lost: the bitmap that was asked for in its place. Whose file fails while it is to end ends.
#[test]
fn a_file_that_fails_while_its_bitmap_goes_changes_nothing() {
    let mut story = with_file(Level::Raid1, 2);
    story.wants(3, 3);
    let to = new_bitmap(&story);
    assert!(story.supervisor.handle_bitmap(story.now, Some(to)));
    story.drain();
    let page = story.pending.remove(0);
    assert_eq!(page.target, Target::BitmapFile);
    story.end(&page, false);
    story.settle();
    let events: Vec<Event> = std::iter::from_fn(|| story.supervisor.poll_event()).collect();
    assert_eq!(events, [Event::BitmapChanged]);
    assert_eq!(story.supervisor.bitmap_offset(), Some(8));
}

/// What would be lost: time where more is resynced than may differ, redundancy where less is; and once it was, bits that
/// stay set for ever.
#[test]
fn after_an_unclean_stop_what_bits_are_set_for_is_resynced_and_nothing_else() {
    const CHUNK: u64 = 2048;
    for level in [Level::Raid1, Level::Raid5] {
        let members = if level == Level::Raid1 { 2 } else { 3 };
        let data_members = u64::from(members) - 1;
        let mut story = Story::new(level, members, true);
        let mut bitmap =
            new_bitmap_config(&story.records()[0].superblock, story.geometry.component());
        for bit in [3, 4, 9] {
            bitmap.bits.set(bit);
        }
        bitmap.bits_need_resync = true;
        let start = Some(Sector(0));
        story.supervisor = supervisor(&story.geometry, story.records(), Some(bitmap), start);
        story.supervisor.handle_start(story.now);
        story.drain();
        assert_eq!(story.supervisor.resync_from(), start);
        let mut pieces = Vec::new();
        loop {
            story.settle();
            let Some(piece) = story.sync_next() else { break };
            pieces.push(piece);
        }
        let mut sectors: Vec<u64> =
            pieces.iter().flat_map(|&(at, len)| (at..at + len).step_by(8)).collect();
        sectors.sort_unstable();
        let dirty = [3..5, 9..10].into_iter().flat_map(|bits: std::ops::Range<u64>| {
            (bits.start * CHUNK * data_members..bits.end * CHUNK * data_members).step_by(8)
        });
        assert_eq!(sectors, dirty.collect::<Vec<_>>(), "{level}: {pieces:?}");
        assert_eq!(story.supervisor.resync_from(), None);
        story.wait(10 * SECOND_NS);
        story.notice(Notice::BitsIdle(Vec::new()));
        story.settle();
        assert_eq!(story.supervisor.bitmap_bits().map(|bits| bits.0), Some(0), "{level}");
    }
}

/// What would be lost: what a resync has done when it is cut off, for the kernel goes by the bits alone. While a member is
/// missing they tell what it lacks.
#[test]
fn bits_are_given_up_where_a_resync_has_been_unless_a_member_is_missing() {
    for (fails, bits_left) in [(false, 1), (true, 3)] {
        let mut story = Story::new(Level::Raid1, 3, true);
        let mut bitmap =
            new_bitmap_config(&story.records()[0].superblock, story.geometry.component());
        for bit in [3, 4, 9] {
            bitmap.bits.set(bit);
        }
        bitmap.bits_need_resync = true;
        let start = Some(Sector(0));
        story.supervisor = supervisor(&story.geometry, story.records(), Some(bitmap), start);
        story.supervisor.handle_start(story.now);
        story.drain();
        if fails {
            story.notice(Notice::Failed(MemberId(2)));
        }
        story.settle();
        while story.supervisor.resync_from() < Some(Sector(5 * 2048)) {
            assert!(story.sync_one());
            story.settle();
        }
        assert_eq!(bits_after_a_sweep(&mut story), bits_left, "{fails}");
        while story.sync_one() {
            story.settle();
        }
        assert_eq!(story.supervisor.resync_from(), None);
        assert_eq!(bits_after_a_sweep(&mut story), if fails { 3 } else { 0 });
    }
}

/// What would be lost: time, in a resync of what a new member got long ago.
#[test]
fn bits_of_what_a_missing_member_lacked_are_given_up_when_another_has_it() {
    let mut story = Story::new(Level::Raid1, 3, true);
    let mut bitmap = new_bitmap_config(&story.records()[0].superblock, story.geometry.component());
    bitmap.bits.set(3);
    let records = story.records()[..2].to_vec();
    story.supervisor = supervisor(&story.geometry, records, Some(bitmap), None);
    story.supervisor.handle_start(story.now);
    story.drain();
    story.settle();
    assert_eq!(bits_after_a_sweep(&mut story), 1, "a member lacks it");
    story.add_spare();
    story.settle();
    while story.sync_one() {
        story.settle();
    }
    assert!(!story.supervisor.is_degraded());
    assert_eq!(bits_after_a_sweep(&mut story), 0);
}

/// Bits that are left when shards have said that they use none.
fn bits_after_a_sweep(story: &mut Story) -> u64 {
    story.wait(10 * SECOND_NS);
    if story.take_orders().contains(&Order::SweepBits) {
        story.notice(Notice::BitsIdle(Vec::new()));
    }
    story.settle();
    story.supervisor.bitmap_bits().expect("a bitmap").0
}

/// What would be lost: the bits of what shards were writing when they heard of a new bitmap, and a resync of that
/// after a cut.
#[test]
fn no_bit_is_granted_or_cleared_before_shards_know_of_the_bitmap() {
    let mut story = Story::new(Level::Raid1, 2, true);
    let old = story.supervisor.bitmap().cloned().expect("a bitmap");
    let offset = story.supervisor.bitmap_offset();
    story.activate();
    story.wants(3, 3);
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
            story.wants(7, 7);
            assert!(!story.orders.contains(&Order::BitsSet(7, 7)));
        }
        let write = story.pending.remove(0);
        story.end(&write, true);
    }
    story.settle();
    let orders = story.take_orders();
    assert!(!orders.contains(&Order::BitsSet(7, 7)), "that shard asks anew");
    story.wants(7, 7);
    story.settle();
    assert!(story.take_orders().contains(&Order::BitsSet(7, 7)));
    story.wait(10 * SECOND_NS);
    assert!(story.take_orders().contains(&Order::SweepBits));
}

/// What would be lost: the bits of a write, if those of another bitmap are set for it; a shard that is slow has not
/// heard of the new one when it is in use.
#[test]
fn bits_of_another_bitmap_are_not_granted() {
    let mut story = Story::new(Level::Raid1, 2, true);
    story.activate();
    let late = story.wanted(3, 3);
    let old = story.supervisor.bitmap().cloned().expect("a bitmap");
    let offset = story.supervisor.bitmap_offset();
    let superblock = bitmap::Superblock { chunksize: 16 * old.chunksize, ..old };
    assert!(story.supervisor.handle_bitmap(story.now, Some(NewBitmap { superblock, offset })));
    story.drain();
    while !story.orders.iter().any(|order| matches!(order, Order::Bitmap(Some(_)))) {
        let write = story.pending.remove(0);
        story.end(&write, true);
    }
    story.settle();
    story.take_orders();
    story.notice(late);
    story.settle();
    assert!(!story.take_orders().contains(&Order::BitsSet(3, 3)));
    story.wants(3, 3);
    story.settle();
    assert!(story.take_orders().contains(&Order::BitsSet(3, 3)));
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

/// What would be lost: the bits on pages that a new member does not get, once it is the first of equals.
#[test]
fn a_new_member_gets_every_page() {
    let mut story = Story::new(Level::Raid1, 2, true);
    let records = story.records();
    let (uuid, size) = (records[0].superblock.bitmap_uuid(), story.geometry.component());
    let superblock = bitmap::Superblock::new(uuid, size, 1 << 14);
    let bits = Bits::new(&superblock, false);
    let pages = bits.pages();
    assert!(pages > 1);
    let bitmap = BitmapConfig { superblock, bits, external: false, bits_need_resync: false };
    story.supervisor = supervisor(&story.geometry, records, Some(bitmap), None);
    let before = story.supervisor.bitmap_writes();
    let spare = story.begin_spare();
    let to_spare = story.pending.iter().filter(|write| write.target == Target::Member(spare));
    let places: Vec<u64> = to_spare.map(|write| write.sector.0).collect();
    let expected = (0..pages as u64).map(|page| places[0] + page * bitmap::PAGE as u64 / 512);
    assert_eq!(places, expected.collect::<Vec<_>>());
    assert!(story.supervisor.bitmap_writes() > before);
}

/// What would be lost: bits that are cleared, or set, on their way while the members are closed.
#[test]
fn an_array_is_not_stopped_while_its_bitmap_is_written() {
    for is_clean in [false, true] {
        let mut story = Story::new(Level::Raid1, 2, true);
        story.activate();
        story.wants(3, 3);
        story.settle();
        if is_clean {
            story.pending = story.rest();
            story.settle();
            assert!(!story.supervisor.is_active());
        }
        story.supervisor.handle_stop(story.now);
        story.drain();
        assert!(!story.pending.is_empty());
        while !story.pending.is_empty() {
            assert!(!story.supervisor.is_stopped());
            let write = story.pending.remove(0);
            story.end(&write, true);
        }
        assert!(story.supervisor.is_stopped());
    }
}

/// What would be lost: time after a cut, for bits that stay set.
#[test]
fn bits_in_use_are_asked_for_again_whatever_else_goes_on() {
    let mut story = Story::new(Level::Raid1, 2, true);
    story.activate();
    story.wants(3, 3);
    story.settle();
    for round in 0..3 {
        story.take_orders();
        for second in 0..10 {
            story.wait(SECOND_NS);
            story.wants(100 * round + second, 100 * round + second);
            story.settle();
        }
        assert!(story.take_orders().contains(&Order::SweepBits), "round {round}");
        story.notice(Notice::BitsIdle(Vec::new()));
        story.settle();
    }
}

/// The page with the first bits, as it is on its way.
fn bits_on_their_way(story: &Story) -> Vec<u8> {
    let is_bitmap = |write: &&MetaWrite| matches!(said(write), Said::Bitmap(_));
    story.pending.iter().filter(is_bitmap).map(|write| write.data[256]).collect()
}

/// Nothing of what is on its way is written, since the third member cannot flush.
fn drop_pending(story: &mut Story) {
    let dropped: Vec<WriteId> = story.pending.drain(..).map(|write| write.id).collect();
    story.supervisor.handle_unflushed(story.now, &[MemberId(2)], &dropped);
    story.drain();
}

/// A mirror of three with its fourth bit set.
fn with_a_bit() -> Story {
    let mut story = Story::new(Level::Raid1, 3, true);
    story.activate();
    story.wants(3, 3);
    story.settle();
    story
}

/// What would be lost: time. A bit that was cleared for good comes back for a page that is not written later.
#[test]
fn what_is_clear_on_all_members_stays_clear_when_a_later_page_is_not_written() {
    let mut story = with_a_bit();
    story.wait(5 * SECOND_NS);
    story.notice(Notice::BitsIdle(vec![3]));
    story.settle();
    assert_eq!(story.supervisor.bitmap_bits().map(|bits| bits.0), Some(0));
    story.wants(5, 5);
    assert!(bits_on_their_way(&story).contains(&(1 << 5)));
    drop_pending(&mut story);
    story.settle();
    assert_eq!(story.supervisor.bitmap_bits().map(|bits| bits.0), Some(1));
}

/// What would be lost: what the third member did not make stable, and nobody remembers when it comes back.
#[test]
fn bits_that_are_cleared_while_a_page_is_on_its_way_come_back_if_the_next_is_not_written() {
    let mut story = with_a_bit();
    let pages = story.rest();
    assert!(!pages.is_empty(), "the event count of the clean array");
    story.supervisor.handle_stop(story.now);
    story.drain();
    assert!(story.pending.is_empty(), "one page at a time");
    pages.iter().for_each(|page| story.end(page, true));
    assert!(bits_on_their_way(&story).iter().all(|bits| *bits == 0), "it is about to be cleared");
    drop_pending(&mut story);
    let bits = bits_on_their_way(&story);
    assert!(!bits.is_empty() && bits.iter().all(|bits| *bits == 1 << 3), "{bits:?}");
    story.settle();
    assert!(story.supervisor.is_stopped());
    assert_eq!(story.supervisor.bitmap_bits().map(|bits| bits.0), Some(1));
}

/// Another bitmap as the story's first one would be.
fn new_bitmap(story: &Story) -> NewBitmap {
    let records = story.records();
    let uuid = records[0].superblock.bitmap_uuid();
    let superblock = bitmap::Superblock::new(uuid, story.geometry.component(), 1 << 20);
    NewBitmap { superblock, offset: Some(8) }
}

fn is_changed(story: &mut Story) -> bool {
    std::iter::from_fn(|| story.supervisor.poll_event()).any(|event| event == Event::BitmapChanged)
}

#[test]
fn a_bitmap_comes_and_goes_only_between_all_else() {
    let mut story = Story::new(Level::Raid1, 2, false);
    let bitmap = new_bitmap(&story);
    assert!(story.supervisor.handle_bitmap(story.now, Some(bitmap.clone())));
    assert!(!story.supervisor.handle_bitmap(story.now, None), "it is on its way");
    story.drain();
    story.settle();
    assert!(is_changed(&mut story));
    assert!(story.supervisor.members().all(|(sb, _)| sb.bitmap_offset() == Some(8)));
    assert!(story.supervisor.handle_bitmap(story.now, None));
    story.drain();
    story.settle();
    assert!(is_changed(&mut story) && story.supervisor.bitmap().is_none());

    let records = story.records();
    story.supervisor = supervisor(&story.geometry, records, None, Some(Sector(0)));
    story.supervisor.handle_start(story.now);
    story.drain();
    story.settle();
    assert!(story.supervisor.sync_progress(story.now).is_some());
    assert!(!story.supervisor.handle_bitmap(story.now, Some(bitmap.clone())), "a resync");

    let mut story = Story::new(Level::Raid1, 2, false);
    story.supervisor.handle_stop(story.now);
    assert!(!story.supervisor.handle_bitmap(story.now, Some(bitmap.clone())), "it stops");

    let mut story = Story::new(Level::Raid1, 2, false);
    (0..2).for_each(|member| story.notice(Notice::Failed(MemberId(member))));
    assert!(story.orders.contains(&Order::Broken));
    assert!(!story.supervisor.handle_bitmap(story.now, Some(bitmap)), "it has given up");
}

/// What would be lost: writes after the bitmap's end. A cut would find superblocks with a bitmap that shards waited for
/// no more.
#[test]
fn shards_wait_for_bits_until_superblocks_deny_the_bitmap() {
    let mut story = Story::new(Level::Raid1, 2, true);
    assert!(story.supervisor.handle_bitmap(story.now, None));
    story.drain();
    let mut denied = Vec::new();
    while !story.pending.is_empty() {
        assert!(!story.orders.contains(&Order::Bitmap(None)));
        let write = story.pending.remove(0);
        denied.extend(superblocks(std::slice::from_ref(&write)));
        story.end(&write, true);
        if denied.len() == 2 {
            break;
        }
    }
    assert!(denied.iter().all(|(_, superblock)| superblock.bitmap_offset().is_none()));
    assert!(story.orders.contains(&Order::Bitmap(None)));
}

/// What would be lost: what a member that is missing lacks, if it came back and no bit told of it.
#[test]
fn a_new_bitmap_keeps_all_bits_while_a_member_is_missing() {
    for is_degraded in [false, true] {
        let mut story = Story::new(Level::Raid1, 3, false);
        if is_degraded {
            story.notice(Notice::Failed(MemberId(2)));
            story.settle();
        }
        let bitmap = new_bitmap(&story);
        assert!(story.supervisor.handle_bitmap(story.now, Some(bitmap)));
        story.drain();
        story.settle();
        let orders = story.take_orders();
        assert!(orders.iter().any(|order| matches!(order, Order::Bitmap(Some(_)))));
        let left = (0..3).map(|_| bits_after_a_sweep(&mut story)).last();
        let (_, all) = story.supervisor.bitmap_bits().expect("a bitmap");
        assert_eq!(left, Some(if is_degraded { all } else { 0 }));
    }
}
