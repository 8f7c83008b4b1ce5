//! Promise: a member that cannot read here and there stays as long as there is a record of it, and goes when it is worn
//! out and can be spared.

use crate::story::Story;
use lapstrake_engine::*;
use lapstrake_geometry::{Level, Sector, Sectors};

const SECOND: MemberId = MemberId(1);
const PAGE: Sectors = Sectors(8);

fn goes_bad(story: &mut Story, at: u64) {
    story.notice(Notice::Bad(SECOND, Sector(at), PAGE));
    story.settle();
}

#[test]
fn who_is_bad_in_more_than_32_places_is_worn_out_and_goes_while_nobody_else_is_missing() {
    for is_degraded in [false, true] {
        let mut story = Story::with_logs(Level::Raid1, 3);
        if is_degraded {
            story.notice(Notice::Failed(MemberId(2)));
            story.settle();
        }
        for place in 0..32 {
            goes_bad(&mut story, place * 64);
            assert_eq!(story.supervisor.state(SECOND).0, DiskState::InSync, "{place}");
        }
        goes_bad(&mut story, 32 * 64);
        let state = if is_degraded { DiskState::InSync } else { DiskState::Faulty };
        assert_eq!(story.supervisor.state(SECOND).0, state);
    }
}

#[test]
fn pages_beside_each_other_are_one_place() {
    let mut story = Story::with_logs(Level::Raid1, 3);
    for page in 0..40 {
        goes_bad(&mut story, page * PAGE.0);
    }
    assert_eq!(story.supervisor.state(SECOND).0, DiskState::InSync);
    assert_eq!(story.supervisor.bad_sectors(SECOND), Sectors(40 * PAGE.0));
}

#[test]
fn without_a_log_a_member_goes_at_once_if_it_can_be_spared() {
    let mut story = Story::new(Level::Raid1, 2, false);
    story.activate();
    goes_bad(&mut story, 8);
    let orders = story.take_orders();
    assert!(orders.contains(&Order::Recorded(SECOND)), "{orders:?}");
    assert!(!orders.contains(&Order::Broken), "{orders:?}");
    story.notice(Notice::Bad(MemberId(0), Sector(8), PAGE));
    let orders = story.take_orders();
    assert!(orders.contains(&Order::Broken), "nobody else has the data: {orders:?}");
}

#[test]
fn a_range_of_a_member_has_a_place_in_the_array_if_it_is_in_one_piece_there() {
    let story = Story::new(Level::Raid5, 3, false);
    let at = |start| story.supervisor.array_start(MemberId(0), Sector(start), PAGE);
    // Left-symmetric, chunks of 512 KiB: the first member's second chunk is the fourth of the array.
    assert_eq!(at(8), Some(Sector(8)));
    assert_eq!(at(1024), Some(Sector(3 * 1024)));
    assert_eq!(at(1020), None, "it is in two places");
    assert_eq!(at(2 * 1024), None, "parity");
}

/// What would be lost: a core and the log, to one and the same write over and over.
#[test]
fn a_log_that_cannot_be_flushed_is_not_tried_again_when_the_array_has_given_up() {
    let mut story = Story::with_logs(Level::Raid1, 2);
    story.notice(Notice::Failed(MemberId(0)));
    story.settle();
    story.notice(Notice::Bad(SECOND, Sector(64), PAGE));
    let mut tries = 0;
    while !story.pending.is_empty() && tries < 10 {
        tries += 1;
        let dropped: Vec<WriteId> = story.pending.drain(..).map(|write| write.id).collect();
        story.supervisor.handle_unflushed(story.now, &[SECOND], &dropped);
        story.drain();
    }
    assert_eq!(tries, 1);
    assert!(story.orders.contains(&Order::Broken));
}
