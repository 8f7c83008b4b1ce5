//! Promise: who comes back gets only what it has missed if, and only if, that is known; who may hold writes that nobody
//! else has is not written over.

use crate::story::{SECOND_NS, Said, Story, said, supervisor};
use lapstrake_engine::*;
use lapstrake_geometry::{Level, Sector, Slot};
use lapstrake_metadata::{
    Role, Superblock,
    assemble::{Candidate, Options, assemble},
};

const SECOND: MemberId = MemberId(1);

fn superblock(story: &Story, member: MemberId) -> Superblock {
    let (superblock, _) = story.supervisor.members().nth(member.0.into()).expect("a member");
    superblock.clone()
}

/// A mirror, active; sets a bit and clears it again, and so forgets what was written before.
fn after_a_sweep(bitmap: bool) -> Story {
    after_a_sweep_of(Level::Raid1, 2, bitmap)
}

fn after_a_sweep_of(level: Level, members: u16, bitmap: bool) -> Story {
    let mut story = Story::new(level, members, bitmap);
    story.activate();
    if bitmap {
        story.wants(3, 3);
        story.settle();
        story.wait(10 * SECOND_NS);
        story.notice(Notice::BitsIdle(vec![3]));
        story.settle();
    }
    story
}

/// The story after a member has failed, and what it said of itself before.
fn without(mut story: Story, member: MemberId) -> (Story, Superblock) {
    let gone = superblock(&story, member);
    story.notice(Notice::Failed(member));
    story.settle();
    (story, gone)
}

#[test]
fn who_comes_back_catches_up_only_where_all_that_it_missed_is_known() {
    let (story, gone) = without(after_a_sweep(true), SECOND);
    let catches_up = |superblock: &Superblock| story.supervisor.can_catch_up(superblock);
    assert!(catches_up(&gone), "the bits tell what it has missed");
    let first = Story::new(Level::Raid1, 2, true);
    assert!(superblock(&first, SECOND).events() < gone.events());
    assert!(!catches_up(&superblock(&first, SECOND)), "bits were cleared since");
    let mut half = gone.clone();
    half.set_recovery_offset(Some(Sector(8)));
    assert!(!catches_up(&half), "it was not whole");
    let mut same = gone.clone();
    same.set_events(story.supervisor.events());
    assert!(catches_up(&same), "it left when it had seen the last event, and no other");
    let mut other = gone.clone();
    other.set_bitmap_offset(None);
    assert!(!catches_up(&other), "it knows of no bitmap, or of another");
    let mut future = gone.clone();
    future.set_events(story.supervisor.events() + 1);
    assert!(!catches_up(&future), "it has events that nobody else has");
    let (other_half, _) = without(after_a_sweep(true), MemberId(0));
    assert!(!catches_up(&superblock(&other_half, SECOND)), "it was used alone");
    let (bare, gone) = without(after_a_sweep(false), SECOND);
    assert!(!bare.supervisor.can_catch_up(&gone), "no bitmap");
    let whole = after_a_sweep(true);
    assert!(!whole.supervisor.can_catch_up(&gone), "its slot is not empty");
}

#[test]
fn who_was_used_alone_may_hold_writes_of_its_own() {
    let (story, gone) = without(after_a_sweep(true), SECOND);
    let may_hold =
        |superblock: &Superblock| story.supervisor.may_hold_writes_of_its_own(superblock);
    assert!(!may_hold(&gone), "it left while we watched");
    let (other_half, _) = without(after_a_sweep(true), MemberId(0));
    let alone = superblock(&other_half, SECOND);
    assert!(may_hold(&alone), "it calls us failed");
    let mut future = gone.clone();
    future.set_events(story.supervisor.events() + 1);
    assert!(may_hold(&future), "it has events that nobody else has");
    // A start without it: nobody watched it leave.
    let mut later = Story::new(Level::Raid1, 2, true);
    let record = |superblock| MemberRecord {
        superblock,
        slot: Some(Slot(0)),
        trusted_to: FULLY_TRUSTED,
        bad_blocks: None,
    };
    let records = vec![record(superblock(&story, MemberId(0)))];
    later.supervisor = supervisor(&later.geometry, records, None, None);
    assert!(!later.supervisor.may_hold_writes_of_its_own(&gone), "an older one of ours");
    assert!(later.supervisor.may_hold_writes_of_its_own(&alone));
}

/// What would be lost: what was written while a member was away and is no more in the bitmap.
#[test]
fn who_missed_more_than_the_bitmap_tells_comes_back_as_a_spare() {
    let mut story = without(after_a_sweep(true), SECOND).0;
    let old = superblock(&Story::new(Level::Raid1, 2, true), SECOND);
    let (_, added) = story.supervisor.handle_add(story.now, old, None, false);
    assert_eq!(added, Added::Spare);
}

/// What would be lost: a new member's bitmap, which is all zeros where others have bits.
#[test]
fn a_new_member_has_every_page_of_the_bitmap_before_superblocks_tell_of_it() {
    let (mut story, gone) = without(after_a_sweep(true), SECOND);
    let (id, added) = story.supervisor.handle_add(story.now, gone, None, false);
    assert_eq!(added, Added::CatchesUp);
    story.drain();
    assert_eq!(story.supervisor.state(id).0, DiskState::Recovering);
    let mut pages = 0;
    while !story.pending.is_empty() {
        let write = story.pending.remove(0);
        match (said(&write), write.target == Target::Member(id)) {
            (Said::Bitmap(_), true) => pages += 1,
            (Said::Bitmap(_), false) => {}
            (Said::Superblock(sb), _) => {
                assert_eq!(sb.role_of(1), Role::Active(Slot(1)));
                assert!(pages > 0, "the bitmap comes first");
            }
        }
        story.end(&write, true);
    }
    assert!(pages > 0);
}

/// What would be lost: hours, in a copy of what it has.
#[test]
fn who_comes_back_gets_what_bits_are_set_for_and_nothing_else() {
    const CHUNK: u64 = 2048;
    // In array sectors, and of those how many it has a part in.
    let cases = [(Level::Raid1, 2, 1, 1), (Level::Raid5, 3, 2, 1), (Level::Raid10, 4, 1, 2)];
    for (level, members, data_disks, part) in cases {
        let (mut story, gone) = without(after_a_sweep_of(level, members, true), SECOND);
        let missed = [(3, 4), (9, 9)];
        missed.iter().for_each(|&(first, last)| story.wants(first, last));
        story.settle();
        let (_, added) = story.supervisor.handle_add(story.now, gone, None, false);
        assert_eq!(added, Added::CatchesUp);
        story.drain();
        let mut copied = 0;
        loop {
            story.settle();
            let Some((start, len)) = story.sync_next() else { break };
            let bit = |sector: u64| sector / (CHUNK * data_disks);
            let (first, last) = (bit(start), bit(start + len - 1));
            assert!(missed.iter().any(|bits| bits.0 <= first && last <= bits.1), "{level} {start}");
            copied += len;
        }
        assert_eq!(copied * part, 3 * CHUNK * data_disks, "{level}");
        assert!(!story.supervisor.is_degraded());
    }
}

#[test]
fn members_in_use_are_neither_removed_nor_replaced_twice() {
    let mut story = Story::new(Level::Raid1, 3, false);
    assert!(!story.supervisor.handle_remove(story.now, SECOND), "it serves");
    assert!(!story.supervisor.handle_replace(story.now, SECOND, Some(MemberId(2))), "no spare");
    let spare = story.add_spare();
    assert!(story.supervisor.handle_replace(story.now, SECOND, Some(spare)));
    assert!(!story.supervisor.handle_replace(story.now, SECOND, None), "it is being replaced");
    assert!(!story.supervisor.handle_remove(story.now, spare), "it gets a copy");
    assert!(story.supervisor.handle_fail(story.now, MemberId(2)));
    story.drain();
    story.settle();
    assert!(!story.supervisor.handle_replace(story.now, MemberId(2), None), "it has failed");
    for _ in 0..2 {
        assert!(story.supervisor.handle_remove(story.now, MemberId(2)), "out, or already so");
    }
    story.drain();
    story.settle();
    let serving = story.supervisor.members().filter(|(_, state)| *state == DiskState::InSync);
    assert!(serving.into_iter().all(|(sb, _)| !matches!(sb.role_of(2), Role::Active(_))));
}

#[test]
fn a_parity_array_whose_resync_is_due_needs_all_its_members() {
    for (level, due, needs_all) in [
        (Level::Raid5, Some(Sector(0)), true),
        (Level::Raid5, None, false),
        (Level::Raid1, Some(Sector(0)), false),
    ] {
        let story = Story::new(level, 3, false);
        let supervisor = supervisor(&story.geometry, story.records(), None, due);
        assert_eq!(supervisor.needs_all(), needs_all, "{level}, resync due: {due:?}");
    }
}

/// What would be lost: the array, though there is a whole copy of the member that fails last.
#[test]
fn a_whole_replacement_makes_the_last_member_one_that_may_fail() {
    let mut story = Story::new(Level::Raid1, 2, false);
    let spare = story.add_spare();
    assert!(story.supervisor.handle_replace(story.now, SECOND, Some(spare)));
    story.drain();
    story.settle();
    story.notice(Notice::Failed(MemberId(0)));
    story.copy_until_whole(spare);
    story.notice(Notice::Failed(SECOND));
    story.settle();
    let orders = story.take_orders();
    assert!(orders.contains(&Order::Recorded(SECOND)), "{orders:?}");
    assert!(!orders.contains(&Order::Broken), "{orders:?}");
    assert_eq!(story.supervisor.state(spare).0, DiskState::InSync);
}

/// What would be lost: the operator's choice of the disk that is to stay.
#[test]
fn a_member_is_replaced_by_the_spare_that_was_named() {
    let mut story = Story::new(Level::Raid1, 2, false);
    let spares = [story.add_spare(), story.add_spare()];
    assert!(story.supervisor.handle_replace(story.now, SECOND, Some(spares[1])));
    story.drain();
    story.settle();
    let state = spares.map(|spare| story.supervisor.state(spare).0);
    assert_eq!(state, [DiskState::Spare, DiskState::Replacement]);
}

/// What would be lost: a spare, which would be a second replacement for one place.
#[test]
fn a_member_that_waits_for_a_spare_and_is_given_one_by_name_gets_no_other() {
    let mut story = Story::new(Level::Raid1, 2, false);
    story.supervisor.handle_freeze(story.now);
    assert!(story.supervisor.handle_replace(story.now, SECOND, None));
    assert!(story.supervisor.awaits_replacement(SECOND));
    let spares = [story.add_spare(), story.add_spare()];
    assert!(story.supervisor.handle_replace(story.now, SECOND, Some(spares[1])));
    assert!(!story.supervisor.awaits_replacement(SECOND));
    story.supervisor.handle_resume(story.now);
    story.drain();
    story.settle();
    let state = spares.map(|spare| story.supervisor.state(spare).0);
    assert_eq!(state, [DiskState::Spare, DiskState::Replacement]);
}

/// What would be lost: the newest write. When the power goes a member may have it and its replacement not, though the
/// replacement was whole.
#[test]
fn after_an_unclean_stop_a_replacement_gets_its_copy_anew() {
    for is_active in [false, true] {
        let mut story = Story::new(Level::Raid1, 2, false);
        let spare = story.add_spare();
        assert!(story.supervisor.handle_replace(story.now, SECOND, Some(spare)));
        story.drain();
        if is_active {
            story.activate();
        }
        story.copy_until_whole(spare);
        let superblocks: Vec<_> =
            story.supervisor.members().map(|(superblock, _)| superblock.clone()).collect();
        let candidates: Vec<_> =
            (0..).zip(&superblocks).map(|(id, superblock)| Candidate { id, superblock }).collect();
        let assembly = assemble(&candidates, &Options::default()).expect("an array");
        let to = if is_active { Some(Sector(0)) } else { None };
        assert_eq!(assembly.replacements, [(Slot(1), 2, to)], "active: {is_active}");
        assert_eq!(assembly.members, [Some(0), Some(1)]);
    }
}

/// What would be lost: the operator's word, if the disk that was to take over fails first.
#[test]
fn a_member_whose_replacement_fails_gets_the_next_spare() {
    let mut story = Story::new(Level::Raid1, 2, false);
    let spares = [story.add_spare(), story.add_spare()];
    assert!(story.supervisor.handle_replace(story.now, SECOND, None));
    story.drain();
    story.settle();
    let state = |story: &Story| spares.map(|spare| story.supervisor.state(spare).0);
    assert_eq!(state(&story), [DiskState::Replacement, DiskState::Spare]);
    story.notice(Notice::Failed(spares[0]));
    story.sync();
    story.settle();
    assert_eq!(state(&story), [DiskState::Faulty, DiskState::Replacement]);
    story.notice(Notice::Failed(spares[1]));
    story.sync();
    story.settle();
    assert!(story.supervisor.awaits_replacement(SECOND));
}
