//! Promise: what metadata says of members is stable on all of them before it is written.

use lapstrake_array::FlushBarrier;
use lapstrake_engine::{MemberId, Notice, Order, Target};
use lapstrake_geometry::Level;
use story::Story;

#[path = "../../engine/tests/engine/story/mod.rs"]
#[allow(dead_code, reason = "the engine's tests use the rest")]
mod story;

/// A mirror of three that has been asked for its first write, and what it wants written.
fn asked() -> (Story, FlushBarrier) {
    let mut story = Story::new(Level::Raid1, 3, false);
    let mut barrier = FlushBarrier::default();
    story.supervisor.handle_notice(story.now, Notice::NeedActive);
    barrier.take(&mut story.supervisor);
    (story, barrier)
}

fn due(story: &mut Story, barrier: &mut FlushBarrier) -> Option<Vec<Target>> {
    let writes = barrier.due(story.now, &mut story.supervisor)?;
    Some(writes.iter().map(|write| write.target).collect())
}

#[test]
fn nothing_is_written_before_every_member_has_flushed() {
    let (mut story, mut barrier) = asked();
    assert!(barrier.wants_flush());
    assert_eq!(due(&mut story, &mut barrier), None);
    barrier.begin(3);
    assert!(!barrier.wants_flush(), "they are on their way");
    for member in 0..3 {
        assert_eq!(due(&mut story, &mut barrier), None, "{member} members have flushed");
        barrier.flushed(MemberId(member), true);
    }
    let all = [0, 1, 2].map(|member| Target::Member(MemberId(member)));
    assert_eq!(due(&mut story, &mut barrier), Some(all.to_vec()));
    assert_eq!(due(&mut story, &mut barrier), None);
}

/// What would be lost: whatever the later write says is stable, and the flush before it did not cover.
#[test]
fn what_comes_while_members_flush_waits_for_flushes_of_its_own() {
    let mut story = Story::new(Level::Raid1, 2, true);
    story.activate();
    let mut barrier = FlushBarrier::default();
    let wanted = story.wanted(3, 3);
    story.supervisor.handle_notice(story.now, wanted);
    barrier.take(&mut story.supervisor);
    barrier.begin(2);
    barrier.flushed(MemberId(0), true);
    story.supervisor.handle_notice(story.now, Notice::Failed(MemberId(1)));
    barrier.take(&mut story.supervisor);
    barrier.flushed(MemberId(1), true);
    let pages = barrier.due(story.now, &mut story.supervisor).expect("the bitmap's pages");
    assert_eq!(pages.len(), 2);
    for page in &pages {
        story.supervisor.handle_written(story.now, page.id, true);
    }
    barrier.take(&mut story.supervisor);
    assert!(barrier.wants_flush(), "the record of the failure");
    assert_eq!(due(&mut story, &mut barrier), None);
}

#[test]
fn when_a_member_cannot_flush_nothing_is_written_that_counts_on_it() {
    let (mut story, mut barrier) = asked();
    barrier.begin(3);
    barrier.flushed(MemberId(0), true);
    barrier.flushed(MemberId(1), false);
    barrier.flushed(MemberId(2), true);
    assert_eq!(due(&mut story, &mut barrier), Some(Vec::new()));
    barrier.take(&mut story.supervisor);
    assert!(barrier.wants_flush());
    barrier.begin(2);
    barrier.flushed(MemberId(0), true);
    barrier.flushed(MemberId(2), true);
    let others = [0, 2].map(|member| Target::Member(MemberId(member)));
    assert_eq!(due(&mut story, &mut barrier), Some(others.to_vec()));
    let orders: Vec<Order> = std::iter::from_fn(|| story.supervisor.poll_order()).collect();
    assert!(orders.contains(&Order::MemberFailed(MemberId(1))), "{orders:?}");
}
