//! The promises of another geometry, told as stories: what is stable before shards go by it, and who may fail meanwhile.

use crate::story::{Story, superblocks};
use lapstrake_engine::*;
use lapstrake_geometry::{
    Config, Geometry, Layout, Level, ParityLayout, Raid0Layout, Raid10Layout, Sector, Sectors, Slot,
};
use lapstrake_metadata::Role;

/// By so much data moves, and so much less of each member is used.
const SHIFT: Sectors = Sectors(2048);

fn config(story: &Story, level: Level, layout: Layout, raid_disks: u16) -> Config {
    let like = story.supervisor.members().next().unwrap().0;
    let (chunk, component) = (like.chunk(), like.component());
    Config { level, layout, chunk, raid_disks, component, member_sizes: Vec::new() }
}

fn becomes(story: &Story, before: &Config, after: &Config, data_move: DataMove) -> NewGeometry {
    let mut superblock = story.supervisor.members().next().unwrap().0.clone();
    superblock.set_geometry(after);
    superblock.set_component(after.component);
    let [before, geometry] = [before, after].map(|config| Geometry::new(config).unwrap());
    NewGeometry { geometry, before, superblock, data_move }
}

/// A RAID5 of four that is about to become one of three, as all superblocks say.
fn begun() -> Story {
    begun_of(Level::Raid5, Layout::Parity(ParityLayout::LeftSymmetric))
}

/// The same of another level.
fn begun_of(level: Level, layout: Layout) -> Story {
    let mut story = Story::new(level, 4, false);
    let cut = |raid_disks| {
        let config = config(&story, level, layout, raid_disks);
        Config { component: config.component - SHIFT, ..config }
    };
    let data_move = DataMove::Moves { shift: SHIFT.0 as i64, is_backwards: true };
    let to = becomes(&story, &cut(4), &cut(3), data_move);
    let (now, left) = (story.now, to.geometry.array_sectors());
    assert!(!story.supervisor.handle_reshape(now, to.clone()), "clients use more");
    assert!(story.supervisor.handle_usable(now, Some(left)));
    story.drain();
    assert!(!story.supervisor.handle_reshape(now, to.clone()), "shards have not heard of less");
    story.notice(Notice::ShapeHeard);
    assert!(story.supervisor.handle_reshape(now, to));
    story.drain();
    story.settle();
    assert!(story.supervisor.is_reshape_wanted());
    let (before, after) = story.supervisor.begin_reshape(now).expect("members are fit for it");
    assert_eq!((before.geometry.raid_disks(), after.geometry.raid_disks()), (4, 3));
    let slots = |of: &ShardGeometry| of.places.iter().map(|place| place.slot).collect::<Vec<_>>();
    assert_eq!(slots(&before), [0, 1, 2, 3].map(|slot| Some(Slot(slot))));
    assert_eq!(slots(&after)[3], None, "the last member holds nothing of the new geometry");
    story.drain();
    story.settle();
    story
}

/// What would be lost: what parity of the array before stands in for, if a start after a cut took that for right, since the one
/// that loses its parity cannot be half written.
#[test]
fn superblocks_say_active_as_long_as_either_array_may_be_half_written() {
    let mut story = begun_of(Level::Raid4, Layout::None);
    story.notice(Notice::Failed(MemberId(2)));
    story.settle();
    story.notice(Notice::NeedActive);
    story.drain();
    let told = superblocks(&story.pending);
    assert!(told.len() == 3 && told.iter().all(|(_, sb)| !sb.clean()), "{told:?}");
}

fn position(story: &Story) -> Option<Sector> {
    story.supervisor.frontier().map(|frontier| frontier.position)
}

/// Moves all, until superblocks are on their way that tell of no reshape.
fn all_moved() -> Story {
    let mut story = begun();
    while story.pending.is_empty() || superblocks(&story.pending)[0].1.reshape().is_some() {
        match story.pending.is_empty() {
            true => assert!(story.sync_one(), "there is more to move"),
            false => {
                let write = story.pending.remove(0);
                story.end(&write, true);
            }
        }
    }
    story
}

fn events(story: &mut Story) -> Vec<Event> {
    std::iter::from_fn(|| story.supervisor.poll_event()).collect()
}

#[test]
fn shards_go_by_what_was_moved_when_every_member_says_so() {
    let mut story = begun();
    let end = position(&story);
    assert_eq!(end, Some(Sector(story.supervisor.geometry().array_sectors().0)));
    let (start, _) = story.sync_next().expect("a window");
    assert_eq!(superblocks(&story.pending).len(), 4);
    for (_, sb) in superblocks(&story.pending) {
        assert_eq!(sb.reshape().map(|reshape| reshape.position), Some(Sector(start)));
    }
    let last = story.pending.pop().unwrap();
    story.settle();
    assert_eq!(position(&story), end, "one member does not say it yet");
    assert!(!story.supervisor.is_frontier_recorded());
    assert_eq!(story.sync_next(), None, "the next window waits for that, too");
    story.end(&last, true);
    assert_eq!(position(&story), Some(Sector(start)));
    assert!(story.supervisor.is_frontier_recorded());
}

/// What would be lost: every write from then on, though one member of three may be missing.
#[test]
fn one_that_fails_once_all_was_moved_is_survived_without_who_leaves() {
    let mut story = all_moved();
    let leaves = MemberId(3);
    assert_eq!(story.supervisor.state(leaves).0, DiskState::Spare);
    assert!(!story.supervisor.handle_remove(story.now, leaves), "shards use it yet");
    story.notice(Notice::Failed(MemberId(0)));
    let told = events(&mut story);
    assert!(told.contains(&Event::MemberFailed(MemberId(0), DiskState::InSync)), "{told:?}");
    assert!(!told.iter().any(|event| matches!(event, Event::Broken(_))), "{told:?}");
    story.settle();
    assert!(story.supervisor.has_geometry_to_tell());
    story.supervisor.reshape_told(story.now);
    story.drain();
    assert!(events(&mut story).contains(&Event::ShapeChanged));
    let (state, slot, _) = story.supervisor.state(leaves);
    assert_eq!((state, slot), (DiskState::Recovering, Some(Slot(0))));
}

#[test]
fn one_that_fails_before_that_takes_who_leaves_with_it() {
    let mut story = begun();
    story.sync_one();
    story.settle();
    story.notice(Notice::Failed(MemberId(0)));
    story.settle();
    assert!(!story.supervisor.handle_fail(story.now, MemberId(3)), "it holds what was not moved");
    assert_eq!(story.supervisor.state(MemberId(3)).0, DiskState::InSync);
}

#[test]
fn a_parity_is_left_out_when_every_member_says_that_it_is_none() {
    let story = Story::new(Level::Raid6, 4, false);
    let layout = |layout| Layout::Parity(layout);
    let before = config(&story, Level::Raid6, layout(ParityLayout::LeftSymmetric6), 4);
    let after = config(&story, Level::Raid5, layout(ParityLayout::LeftSymmetric), 3);
    let mut records = story.records();
    records.iter_mut().for_each(|record| record.superblock.set_geometry(&before));
    let mut story = Story { geometry: Geometry::new(&before).unwrap(), ..story };
    story.restart(records);
    let to = becomes(&story, &before, &after, DataMove::Stays);
    assert!(story.supervisor.handle_reshape(story.now, to));
    story.drain();
    story.settle();
    assert!(story.supervisor.begin_reshape(story.now).is_none(), "nothing is moved");
    story.drain();
    let written = superblocks(&story.pending);
    assert_eq!(written.len(), 4);
    for (_, sb) in &written {
        assert_eq!((sb.level(), sb.raid_disks()), (Some(Level::Raid5), 3));
        assert_eq!(sb.reshape(), None);
    }
    let last = story.pending.pop().unwrap();
    story.settle();
    assert!(!story.supervisor.has_geometry_to_tell(), "one member does not say it yet");
    story.end(&last, true);
    assert!(story.supervisor.has_geometry_to_tell());
    assert_eq!(story.supervisor.state(MemberId(3)).0, DiskState::Spare);
}

/// A RAID5 whose parity is last, and the RAID0 that it is without that.
fn parity_last_and_without(story: &Story) -> (Config, Config) {
    let layout = Layout::Parity(ParityLayout::ParityLast);
    let raid5 = config(story, Level::Raid5, layout, 3);
    let raid0 = config(story, Level::Raid0, Layout::Raid0(Raid0Layout::Unset), 2);
    (raid5.clone(), Config { member_sizes: vec![raid5.component; 2], ..raid0 })
}

/// An array of the first of these that is about to be taken over by the other, as no superblock says yet.
fn taken_over(story: Story, before: &Config, after: &Config) -> Story {
    let mut records = story.records();
    records.truncate(before.raid_disks.into());
    records.iter_mut().for_each(|record| record.superblock.set_geometry(before));
    let mut story = Story { geometry: Geometry::new(before).unwrap(), ..story };
    story.restart(records);
    let to = becomes(&story, before, after, DataMove::Stays);
    assert!(story.supervisor.handle_reshape(story.now, to));
    story.drain();
    story.settle();
    assert!(story.supervisor.begin_reshape(story.now).is_none(), "nothing is moved");
    story.drain();
    story
}

/// What would be lost: a stripe, if a write were let go while some superblocks call the array a clean RAID5.
#[test]
fn a_write_waits_while_some_superblocks_tell_of_redundancy() {
    let story = Story::new(Level::Raid5, 3, false);
    let (raid5, raid0) = parity_last_and_without(&story);
    let mut story = taken_over(story, &raid5, &raid0);
    let told = superblocks(&story.pending);
    assert_eq!(told.len(), 2, "who goes is left as it is");
    assert!(told.iter().all(|(_, sb)| sb.level() == Some(Level::Raid0) && sb.clean()));
    story.notice(Notice::NeedActive);
    let is_let_go = |story: &mut Story| story.take_orders().contains(&Order::Active);
    assert!(!is_let_go(&mut story));
    let last = story.pending.pop().unwrap();
    story.settle();
    assert!(!is_let_go(&mut story), "one member does not say it yet");
    story.end(&last, true);
    story.settle();
    story.drain();
    assert!(is_let_go(&mut story));
    let (state, slot, _) = story.supervisor.state(MemberId(2));
    assert_eq!((state, slot), (DiskState::Faulty, None));
    assert!(story.supervisor.has_geometry_to_tell());
    story.supervisor.reshape_told(story.now);
    story.drain();
    story.notice(Notice::NeedActive);
    assert!(is_let_go(&mut story), "nothing is on record of a RAID0");
}

/// What would be lost: what a shard is writing, if the new copies were called right at a cut.
#[test]
fn a_raid0_that_gets_copies_is_active_from_its_first_superblock_on() {
    let story = Story::new(Level::Raid10, 4, false);
    let near = config(&story, Level::Raid10, Layout::Raid10(Raid10Layout::near(2)), 4);
    let raid0 = config(&story, Level::Raid0, Layout::Raid0(Raid0Layout::Unset), 2);
    let raid0 = Config { member_sizes: vec![near.component; 2], ..raid0 };
    let story = taken_over(story, &raid0, &near);
    let told = superblocks(&story.pending);
    assert_eq!(told.len(), 2);
    for (member, sb) in told {
        assert_eq!((sb.level(), sb.clean()), (Some(Level::Raid10), false));
        assert_eq!(sb.role(), Role::Active(Slot(2 * member.0)));
    }
}

#[test]
fn a_raid0_that_is_to_get_parity_is_not_called_half_written_while_it_has_none() {
    let story = Story::new(Level::Raid5, 3, false);
    let (raid5, raid0) = parity_last_and_without(&story);
    let story = taken_over(story, &raid0, &raid5);
    let told = superblocks(&story.pending);
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|(_, sb)| sb.level() == Some(Level::Raid5) && sb.clean()));
}

/// What would be lost: every write from then on, which would wait for a record of the failure.
#[test]
fn who_is_let_go_and_fails_meanwhile_goes_on_record() {
    let story = Story::new(Level::Raid5, 3, false);
    let (raid5, raid0) = parity_last_and_without(&story);
    let mut story = taken_over(story, &raid5, &raid0);
    story.notice(Notice::Failed(MemberId(2)));
    story.settle();
    let orders = story.take_orders();
    assert!(orders.contains(&Order::MemberFailed(MemberId(2))), "{orders:?}");
    assert!(orders.contains(&Order::Recorded(MemberId(2))), "{orders:?}");
    assert!(story.supervisor.has_geometry_to_tell());
    assert!(!events(&mut story).iter().any(|event| matches!(event, Event::Broken(_))));
}

/// What would be lost: all data, which lies elsewhere with another chunk.
#[test]
fn what_does_not_lie_alike_is_not_taken_over() {
    let story = Story::new(Level::Raid5, 3, false);
    let (raid5, raid0) = parity_last_and_without(&story);
    let mut records = story.records();
    records.iter_mut().for_each(|record| record.superblock.set_geometry(&raid5));
    let mut story = Story { geometry: Geometry::new(&raid5).unwrap(), ..story };
    story.restart(records);
    let other = Config { chunk: Sectors(raid0.chunk.0 / 2), ..raid0.clone() };
    for (to, is_begun) in [(&other, false), (&raid0, true)] {
        let to = becomes(&story, &raid5, to, DataMove::Stays);
        assert_eq!(story.supervisor.handle_reshape(story.now, to), is_begun);
    }
}

/// What would be lost: all data, if who gets data in the place of a parity that nobody has stood in for another member.
#[test]
fn who_takes_the_place_of_no_parity_stands_in_for_nobody() {
    let mut story = Story::new(Level::Raid4, 3, false);
    let mut records = story.records();
    let number = records[2].superblock.dev_number();
    records.iter_mut().for_each(|it| it.superblock.set_role_of(number, Role::Spare));
    (records[2].slot, records[2].trusted_to) = (None, Sector(0));
    story.restart(records);
    story.supervisor.leave_parity(true);
    assert_eq!(story.supervisor.sync_progress(story.now), None, "the spare is for data");
    let raid4 = |disks| config(&story, Level::Raid4, Layout::None, disks);
    let data_move = DataMove::Moves { shift: -(raid4(3).chunk.0 as i64), is_backwards: false };
    let to = becomes(&story, &raid4(3), &raid4(4), data_move);
    assert!(story.supervisor.handle_reshape(story.now, to));
    story.drain();
    story.settle();
    let (before, after) = story.supervisor.begin_reshape(story.now).expect("data is moved");
    let slots = |of: &ShardGeometry| of.places.iter().map(|place| place.slot).collect::<Vec<_>>();
    assert_eq!(slots(&before), [Some(Slot(0)), Some(Slot(1)), None]);
    assert_eq!(slots(&after), [0, 1, 2].map(|slot| Some(Slot(slot))));
    story.drain();
    let told = superblocks(&story.pending);
    assert_eq!(told[2].1.recovery_offset(), Some(Sector(0)), "it holds what was moved");
    story.settle();
    for member in [0, 1, 2].map(MemberId) {
        assert!(!story.supervisor.handle_fail(story.now, member), "{member:?} is needed");
    }
}

#[test]
fn superblocks_of_a_raid0_are_left_as_they_are_by_what_shards_notice() {
    let mut story = Story::new(Level::Raid0, 2, false);
    for notice in [Notice::NeedActive, Notice::Failed(MemberId(1)), Notice::Idle, Notice::Reads] {
        story.notice(notice);
        assert!(story.pending.is_empty() && story.supervisor.poll_write().is_none());
    }
}

fn raid10(layout: Raid10Layout, raid_disks: u16, chunk: u64) -> Geometry {
    let (level, layout, chunk) = (Level::Raid10, Layout::Raid10(layout), Sectors(chunk));
    let component = Sectors(1 << 13);
    let member_sizes = Vec::new();
    Geometry::new(&Config { level, layout, chunk, raid_disks, component, member_sizes }).unwrap()
}

/// Sectors of each slot that are read of an array when all of it is moved, with these members. `in_sync_to`: up to where its
/// copies agree.
fn moved_reads(geometry: &Geometry, slots: &[u16], in_sync_to: Sector) -> Vec<u64> {
    let member = |&slot| MemberConfig {
        data_offset: Sector(64),
        slot: Some(Slot(slot)),
        trusted_to: FULLY_TRUSTED,
        rotational: slot % 2 == 0,
        write_mostly: false,
        bad_blocks: None,
        log: None,
    };
    let mut shard = Shard::new(ShardConfig {
        geometry: geometry.clone(),
        members: slots.iter().map(member).collect(),
        read_only: false,
        block: Sectors(1),
        in_sync_to,
        bitmap: None,
        scratch: BufId(0),
        scratch_pages: 64,
        log_signature: None,
        lost: Vec::new(),
        journal: None,
        behind_pages: 0,
        unsynced: None,
    });
    let mut reads = vec![0; geometry.raid_disks().into()];
    let end = geometry.array_sectors().0;
    for at in (0..end).step_by(2048) {
        let kind = RequestKind::Read(Buf { id: BufId(1), offset: 0 });
        let (id, len) = (RequestId(at), Sectors((end - at).min(2048)));
        shard.handle_moved_read(Time(0), Request { id, kind, sector: Sector(at), len });
        while let Some(effect) = shard.poll_effect() {
            if let Effect::Io(io) = effect {
                let slot = slots[usize::from(io.member.0)];
                reads[usize::from(slot)] += io.len.0;
                shard.handle_completion(Time(0), io.id, true);
            }
        }
    }
    reads
}

#[test]
fn what_is_moved_is_read_of_members_as_it_is_planned() {
    for layout in [Raid10Layout::near(2), Raid10Layout::near(3), Raid10Layout::offset(2)] {
        for (raid_disks, chunk) in [(4, 128), (4, 1024), (5, 128), (6, 2048)] {
            let [before, after] = [raid_disks, raid_disks + 1].map(|n| raid10(layout, n, chunk));
            let planned = reshape_traffic(&before, &after);
            let planned: Vec<u64> = planned.iter().map(|of| of.read.0).collect();
            let slots: Vec<u16> = (0..raid_disks).collect();
            let read = moved_reads(&before, &slots, FULLY_TRUSTED);
            assert_eq!(read, planned[..slots.len()], "{layout:?} of {raid_disks}, {chunk}");
            let (least, most) = (read.iter().min().unwrap(), read.iter().max().unwrap());
            assert!(most - least <= 2 * 2048, "{layout:?} of {raid_disks}, {chunk}: {read:?}");
        }
    }
}

#[test]
fn who_is_missing_when_its_turn_comes_is_stood_in_for() {
    let before = raid10(Raid10Layout::near(2), 4, 128);
    assert_eq!(moved_reads(&before, &[0, 2, 3], FULLY_TRUSTED), [8192, 0, 4096, 4096]);
    // Copies differ until a resync has been there: all read the first.
    assert_eq!(moved_reads(&before, &[0, 1, 2, 3], Sector(0)), [8192, 0, 8192, 0]);
}
