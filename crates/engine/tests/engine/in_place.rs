//! The promises of a reshape that moves its first rows over themselves: they are kept, stably, before any superblock says that
//! it begins, and nobody touches them until all say that they were moved.

use crate::story::{Story, superblocks};
use lapstrake_engine::*;
use lapstrake_geometry::{Level, Sector, Slot};
use lapstrake_metadata::backup::Backup;

const NEW: MemberId = MemberId(3);

/// A RAID5 of three, and a spare for a fourth slot; shards pause so that it may begin.
fn wanted() -> Story {
    let story = Story::growing_in_place();
    assert!(story.supervisor.is_reshape_wanted());
    story
}

/// A shard is to copy the first rows: so many sectors of the array.
fn copying() -> (Story, u64) {
    let mut story = wanted();
    let (before, copies) = story.supervisor.begin_reshape(story.now).expect("it is kept first");
    assert_eq!(before.geometry.raid_disks(), 3);
    assert_eq!(copies.geometry.level(), Level::Raid1);
    let slots: Vec<_> = copies.places.iter().map(|place| place.slot).collect();
    assert_eq!(slots, [None, None, None, Some(Slot(0))]);
    let sectors = copies.geometry.array_sectors().0;
    let superblock = story.supervisor.members().nth(3).unwrap().0;
    let header = Backup::header_on(superblock);
    assert_eq!(copies.places[3].data_offset + copies.geometry.array_sectors(), header);
    assert_eq!(story.supervisor.critical_section(), Some((0..sectors, Hold::Writes)));
    story.drain();
    assert!(story.pending.is_empty(), "superblocks tell of nothing yet");
    (story, sectors)
}

fn ended(story: &mut Story, sectors: u64, ok: bool) {
    let piece = story.supervisor.poll_sync().expect("a shard has something to do");
    assert_eq!((piece.start.0, piece.len.0), (0, sectors));
    report(story, piece.id, ok);
}

fn report(story: &mut Story, id: PieceId, ok: bool) {
    let (mismatch_sectors, mismatches, requests) = (0, Vec::new(), 0);
    let report = SyncReport { id, ok, mismatch_sectors, mismatches, requests };
    story.notice(Notice::Synced(report));
}

/// Superblocks say that it has begun; a shard is to move the first rows.
fn moving() -> (Story, u64) {
    let (mut story, sectors) = copying();
    ended(&mut story, sectors, true);
    story.settle();
    story.supervisor.begin_reshape(story.now).expect("it is kept");
    story.drain();
    story.settle();
    (story, sectors)
}

/// Headers on their way that tell of a copy of nothing.
fn emptied(story: &Story) -> Vec<Backup> {
    let is_to_new = |write: &&MetaWrite| write.target == Target::Member(NEW);
    let headers = story.pending.iter().filter(is_to_new).filter_map(|write| {
        Backup::parse(write.data[..Backup::HEADER_BYTES].try_into().unwrap()).ok()
    });
    headers.filter(|backup| backup.sections.is_empty()).collect()
}

/// Superblocks say that the first rows were moved; headers that empty their copy are on their way.
fn emptying() -> Story {
    let (mut story, sectors) = moving();
    ended(&mut story, sectors, true);
    for write in std::mem::take(&mut story.pending) {
        story.end(&write, true);
    }
    assert_eq!(emptied(&story).len(), 2);
    story
}

fn events(story: &mut Story) -> Vec<Event> {
    std::iter::from_fn(|| story.supervisor.poll_event()).collect()
}

#[test]
fn superblocks_tell_of_it_when_headers_of_all_copies_are_stable() {
    let (mut story, sectors) = copying();
    ended(&mut story, sectors, true);
    assert_eq!(story.pending.len(), 2, "a header and its copy");
    assert!(story.pending.iter().all(|write| write.target == Target::Member(NEW) && write.vouches));
    let last = story.pending.pop().unwrap();
    story.settle();
    assert!(!story.supervisor.is_reshape_wanted(), "one is on its way");
    story.end(&last, true);
    assert!(story.supervisor.is_reshape_wanted());
    let (before, after) = story.supervisor.begin_reshape(story.now).expect("it is kept");
    assert_eq!((before.geometry.raid_disks(), after.geometry.raid_disks()), (3, 4));
    assert_eq!(story.supervisor.critical_section(), Some((0..sectors, Hold::All)));
    story.drain();
    let told = superblocks(&story.pending);
    assert!(told.len() == 4 && told.iter().all(|(_, sb)| sb.reshape().is_some()));
    let last = story.pending.pop().unwrap();
    story.settle();
    assert!(story.supervisor.poll_sync().is_none(), "one member does not say it yet");
    story.end(&last, true);
    ended(&mut story, sectors, true);
    let last = story.pending.pop().unwrap();
    story.settle();
    assert!(story.supervisor.is_in_critical_section(), "one member does not say it yet");
    story.end(&last, true);
    // mdadm would put the copy back, over what was written since.
    assert!(!story.supervisor.handle_fail(story.now, NEW), "its copy is not emptied");
    assert_eq!(emptied(&story).len(), 2);
    let last = story.pending.pop().unwrap();
    story.settle();
    assert!(story.supervisor.is_in_critical_section(), "a header is on its way");
    story.end(&last, true);
    assert_eq!(story.supervisor.critical_section(), None);
    assert_eq!(story.supervisor.frontier().unwrap().position, Sector(sectors));
    assert!(story.sync_one(), "the rest is moved to where nothing is any more");
}

/// What would be lost: what was written since, where mdadm puts a copy back that was not emptied, as when another member could
/// not flush before.
#[test]
fn copies_are_emptied_until_headers_say_so() {
    let mut story = emptying();
    let dropped: Vec<WriteId> = story.pending.drain(..).map(|write| write.id).collect();
    story.supervisor.handle_unflushed(story.now, &[MemberId(0)], &dropped);
    story.drain();
    assert!(story.supervisor.is_in_critical_section());
    assert_eq!(emptied(&story).len(), 2);
    story.settle();
    assert_eq!(story.supervisor.critical_section(), None);
}

/// What would be lost: the server, which would write the same headers for ever.
#[test]
fn a_broken_array_sends_no_header_again() {
    let mut story = emptying();
    story.notice(Notice::Failed(MemberId(1)));
    let headers: Vec<MetaWrite> = std::mem::take(&mut story.pending);
    headers.iter().for_each(|write| story.end(write, false));
    assert!(events(&mut story).iter().any(|event| matches!(event, Event::Broken(_))));
    assert_eq!((emptied(&story).len(), story.supervisor.critical_section()), (0, None));
}

#[test]
fn what_cannot_be_kept_is_given_up() {
    let fails = |story: &mut Story, sectors: u64| {
        story.notice(Notice::Failed(NEW));
        ended(story, sectors, true);
    };
    let cannot_be_read = |story: &mut Story, sectors: u64| ended(story, sectors, false);
    for goes_wrong in [fails as fn(&mut Story, u64), cannot_be_read] {
        let (mut story, sectors) = copying();
        goes_wrong(&mut story, sectors);
        story.settle();
        assert!(
            story.supervisor.has_geometry_to_tell() && !story.supervisor.is_in_critical_section()
        );
        assert_eq!(story.supervisor.shard_geometry().geometry.raid_disks(), 3);
        story.supervisor.reshape_told(story.now);
        assert!(events(&mut story).contains(&Event::ReshapeGivenUp));
        story.drain();
        assert!(superblocks(&story.pending).iter().all(|(_, sb)| sb.reshape().is_none()));
        story.settle();
        assert!(story.supervisor.geometry_before().is_none());
    }
}

#[test]
fn a_header_that_is_not_written_begins_nothing() {
    let (mut story, sectors) = copying();
    ended(&mut story, sectors, true);
    let header = story.pending.remove(0);
    story.end(&header, false);
    assert!(!story.supervisor.has_geometry_to_tell(), "the other is on its way");
    story.settle();
    assert!(story.supervisor.has_geometry_to_tell());
    assert!(!story.supervisor.is_reshape_wanted());
}

/// What would be lost: the rest of it, if what is read there were taken for data.
#[test]
fn what_was_moved_in_part_is_neither_read_nor_written() {
    let (mut story, sectors) = moving();
    let piece = story.supervisor.poll_sync().expect("it is to be moved");
    story.notice(Notice::Lost(None));
    report(&mut story, piece.id, false);
    assert_eq!(story.supervisor.critical_section(), Some((0..sectors, Hold::Lost)));
    assert!(events(&mut story).contains(&Event::Broken(Loss::CriticalSection)));
    assert!(!story.supervisor.is_in_critical_section(), "a stop does not wait for it");
}

#[test]
fn what_could_not_be_read_to_be_moved_is_where_it_was() {
    let (mut story, sectors) = moving();
    ended(&mut story, sectors, false);
    assert!(events(&mut story).contains(&Event::Broken(Loss::Data)));
    assert_eq!(story.supervisor.critical_section(), None);
    assert_eq!(story.supervisor.frontier().unwrap().position, Sector(0));
}

#[test]
fn what_was_moved_is_read_where_it_is_though_that_cannot_be_recorded() {
    let (mut story, sectors) = moving();
    ended(&mut story, sectors, true);
    for write in std::mem::take(&mut story.pending) {
        story.end(&write, false);
    }
    assert!(events(&mut story).iter().any(|event| matches!(event, Event::Broken(_))));
    assert_eq!(story.supervisor.frontier().unwrap().position, Sector(sectors));
    assert_eq!(story.supervisor.critical_section(), None);
}
