//! The promises of a change of size, told as stories: what is stable before what.

use crate::story::{Story, superblocks};
use lapstrake_engine::*;
use lapstrake_geometry::{Config, Geometry, Level, Sector, Sectors};
use lapstrake_metadata::Superblock;

const MORE: Sectors = Sectors(1024);

/// The story's RAID5, used a little less than it could be.
fn small() -> (Story, Geometry, Geometry) {
    let story = Story::new(Level::Raid5, 3, false);
    let geometry = |component: Sectors| {
        let like = story.supervisor.members().next().unwrap().0;
        Geometry::new(&Config {
            level: Level::Raid5,
            layout: like.layout().unwrap(),
            chunk: like.chunk(),
            raid_disks: 3,
            component,
            member_sizes: Vec::new(),
        })
        .unwrap()
    };
    let all = story.geometry.component();
    let (old, new) = (geometry(all - MORE), geometry(all));
    let mut records = story.records();
    records.iter_mut().for_each(|record| record.superblock.set_component(old.component()));
    let mut story = Story { geometry: old.clone(), ..story };
    story.restart(records);
    (story, old, new)
}

fn shape(geometry: &Geometry) -> NewShape {
    NewShape { geometry: geometry.clone(), bitmap: None, assume_clean: false }
}

fn events(story: &mut Story) -> Vec<Event> {
    std::iter::from_fn(|| story.supervisor.poll_event()).collect()
}

#[test]
fn shards_hear_of_a_size_when_every_member_says_it_and_clients_when_every_shard_has() {
    let (mut story, old, new) = small();
    assert!(story.supervisor.handle_shape(story.now, shape(&new)));
    story.drain();
    let written = superblocks(&story.pending);
    assert_eq!(written.len(), 3);
    for (_, sb) in &written {
        assert_eq!(sb.component(), new.component());
        assert_eq!(sb.resync_offset(), Some(Sector(old.component().0)));
    }
    let last = story.pending.pop().unwrap();
    story.settle();
    assert_eq!(story.take_orders(), [], "one member does not say it yet");
    story.end(&last, true);
    let all = new.array_sectors();
    let told = [Order::InSync(Sector(old.component().0)), Order::Shape(new.clone(), all)];
    assert_eq!(story.take_orders(), told);
    assert_eq!(events(&mut story), [], "no shard has answered");
    assert_eq!(
        story.supervisor.sync_progress(story.now).map(|run| run.action),
        Some(SyncAction::Resync)
    );
    story.notice(Notice::ShapeHeard);
    let told = events(&mut story);
    assert!(told.starts_with(&[Event::Resized(all), Event::ShapeChanged]), "{told:?}");
}

#[test]
fn what_would_cut_what_clients_use_or_fits_no_member_is_refused() {
    let (mut story, old, new) = small();
    let now = story.now;
    let less = |story: &Story| {
        story.supervisor.members().all(|m: (&Superblock, _)| m.0.component() == old.component())
    };
    assert!(
        story.supervisor.handle_shape(now, shape(&new)) && story.supervisor.is_changing_shape()
    );
    assert!(!story.supervisor.handle_shape(now, shape(&new)), "one at a time");
    let (mut story, old, _) = small();
    assert!(!story.supervisor.handle_usable(now, Some(old.array_sectors() + Sectors(1))));
    assert!(less(&story));
    assert!(story.supervisor.handle_usable(now, Some(Sectors(8))));
    story.drain();
    assert_eq!(story.take_orders(), [Order::Shape(old.clone(), Sectors(8))]);
    assert!(!story.supervisor.handle_usable(now, None), "not before every shard has heard");
    story.notice(Notice::ShapeHeard);
    assert_eq!(story.supervisor.usable(), Sectors(8));
}
