//! Promise: what metadata says of members is stable on all of them before it is written.

use crate::story::Story;
use lapstrake_engine::{Desk, MemberId, Notice, Order, Target};
use lapstrake_geometry::Level;

/// A mirror of three that has been asked for its first write, and what it wants written.
fn asked() -> (Story, Desk) {
    let mut story = Story::new(Level::Raid1, 3, false);
    let mut desk = Desk::default();
    story.supervisor.handle_notice(story.now, Notice::NeedActive);
    desk.take(&mut story.supervisor);
    (story, desk)
}

fn due(story: &mut Story, desk: &mut Desk) -> Option<Vec<Target>> {
    let writes = desk.due(story.now, &mut story.supervisor)?;
    Some(writes.iter().map(|write| write.target).collect())
}

#[test]
fn nothing_is_written_before_every_member_has_flushed() {
    let (mut story, mut desk) = asked();
    assert!(desk.wants_flush());
    assert_eq!(due(&mut story, &mut desk), None);
    desk.begin(3);
    assert!(!desk.wants_flush(), "they are on their way");
    for member in 0..3 {
        assert_eq!(due(&mut story, &mut desk), None, "{member} members have flushed");
        desk.flushed(MemberId(member), true);
    }
    let all = [0, 1, 2].map(|member| Target::Member(MemberId(member)));
    assert_eq!(due(&mut story, &mut desk), Some(all.to_vec()));
    assert_eq!(due(&mut story, &mut desk), None);
}

/// What would be lost: whatever the later write says is stable, and the flush before it did not cover.
#[test]
fn what_comes_while_members_flush_waits_for_flushes_of_its_own() {
    let mut story = Story::new(Level::Raid1, 2, true);
    story.activate();
    let mut desk = Desk::default();
    let wanted = story.wanted(3, 3);
    story.supervisor.handle_notice(story.now, wanted);
    desk.take(&mut story.supervisor);
    desk.begin(2);
    desk.flushed(MemberId(0), true);
    story.supervisor.handle_notice(story.now, Notice::Failed(MemberId(1)));
    desk.take(&mut story.supervisor);
    desk.flushed(MemberId(1), true);
    let pages = desk.due(story.now, &mut story.supervisor).expect("the bitmap's pages");
    assert_eq!(pages.len(), 2);
    for page in &pages {
        story.supervisor.handle_written(story.now, page.id, true);
    }
    desk.take(&mut story.supervisor);
    assert!(desk.wants_flush(), "the record of the failure");
    assert_eq!(due(&mut story, &mut desk), None);
}

#[test]
fn when_a_member_cannot_flush_nothing_is_written_that_counts_on_it() {
    let (mut story, mut desk) = asked();
    desk.begin(3);
    desk.flushed(MemberId(0), true);
    desk.flushed(MemberId(1), false);
    desk.flushed(MemberId(2), true);
    assert_eq!(due(&mut story, &mut desk), Some(Vec::new()));
    desk.take(&mut story.supervisor);
    assert!(desk.wants_flush());
    desk.begin(2);
    desk.flushed(MemberId(0), true);
    desk.flushed(MemberId(2), true);
    let others = [0, 2].map(|member| Target::Member(MemberId(member)));
    assert_eq!(due(&mut story, &mut desk), Some(others.to_vec()));
    let orders: Vec<Order> = std::iter::from_fn(|| story.supervisor.poll_order()).collect();
    assert!(orders.contains(&Order::MemberFailed(MemberId(1))), "{orders:?}");
}
