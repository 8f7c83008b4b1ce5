//! Promise: at every moment the superblocks of the members that serve are such that they start together, and say what they
//! are to have on record.

use crate::story::{SECOND_NS, Story, superblocks};
use lapstrake_engine::*;
use lapstrake_geometry::Level;
use std::collections::BTreeMap;

/// The event count of each member's superblock, as it would be found after a cut.
struct Counts {
    of: BTreeMap<u16, u64>,
    /// Who serves. What the others hold does not matter.
    serving: Vec<u16>,
}

impl Counts {
    fn new(story: &Story) -> Self {
        let counts = story.supervisor.members().map(|(superblock, _)| superblock.events());
        let of: BTreeMap<u16, u64> = (0..).zip(counts).collect();
        Self { serving: of.keys().copied().collect(), of }
    }

    fn end(&mut self, story: &mut Story, at: usize, ok: bool) {
        let write = story.pending.remove(at);
        if let Some((member, superblock)) =
            superblocks(std::slice::from_ref(&write)).pop().filter(|_| ok)
        {
            self.of.insert(member.0, superblock.events());
        }
        story.end(&write, ok);
        let counts = self.serving.iter().map(|member| self.of[member]);
        let (least, most) = (counts.clone().min().unwrap(), counts.max().unwrap());
        assert!(most - least <= 1, "{least} and {most} would not start together");
    }

    fn settle(&mut self, story: &mut Story) {
        while !story.pending.is_empty() {
            self.end(story, 0, true);
        }
    }

    /// What is on its way is not written, since a member cannot flush.
    fn drop_pending(&mut self, story: &mut Story, unflushed: u16) {
        let dropped: Vec<WriteId> = story.pending.drain(..).map(|write| write.id).collect();
        self.serving.retain(|&member| member != unflushed);
        story.supervisor.handle_unflushed(story.now, &[MemberId(unflushed)], &dropped);
        story.drain();
    }

    fn fail(&mut self, story: &mut Story, member: u16) {
        self.serving.retain(|&other| other != member);
        story.notice(Notice::Failed(MemberId(member)));
    }
}

#[test]
fn superblocks_say_when_they_were_written() {
    let mut story = Story::new(Level::Raid1, 2, false);
    story.wait(5 * SECOND_NS + SECOND_NS / 2);
    story.activate();
    let times = story.supervisor.members().map(|(superblock, _)| superblock.utime().0);
    assert_eq!(times.collect::<Vec<_>>(), [1_800_000_005; 2]);
}

/// What would be lost: redundancy, of a member that has all data but is two events behind.
#[test]
fn members_are_never_two_events_apart_when_some_get_an_update_that_others_do_not() {
    for is_there in [1, 2] {
        let mut story = Story::new(Level::Raid1, 3, false);
        let mut counts = Counts::new(&story);
        story.notice(Notice::NeedActive);
        (0..is_there).for_each(|_| counts.end(&mut story, 0, true));
        counts.drop_pending(&mut story, 2);
        counts.settle(&mut story);
        assert!(story.take_orders().contains(&Order::Recorded(MemberId(2))));
        assert!(counts.of[&0] > counts.of[&2] && counts.of[&1] == counts.of[&0]);
    }
}

/// What would be lost: see above. The way back to clean takes an event back, which who fails meanwhile may not hear of; and
/// again while all get the one count that is to be theirs before the next.
#[test]
fn members_are_never_two_events_apart_when_some_fail_while_an_event_is_taken_back() {
    for fails_again in [false, true] {
        let mut story = Story::new(Level::Raid1, 4, true);
        story.activate();
        story.pending = story.rest();
        story.settle();
        story.activate();
        let mut counts = Counts::new(&story);
        let before = story.supervisor.events();
        story.pending = story.rest();
        while superblocks(&story.pending).is_empty() {
            counts.end(&mut story, 0, true);
        }
        assert!(superblocks(&story.pending).iter().all(|(_, sb)| sb.events() == before - 1));
        counts.fail(&mut story, 3);
        while !superblocks(&story.pending).is_empty() {
            counts.end(&mut story, 0, true);
        }
        if fails_again {
            counts.fail(&mut story, 2);
        }
        counts.settle(&mut story);
        let orders = story.take_orders();
        assert!(orders.contains(&Order::Recorded(MemberId(3))));
        assert_eq!(orders.contains(&Order::Recorded(MemberId(2))), fails_again);
        assert!(counts.serving.iter().all(|member| counts.of[member] > before));
    }
}

/// What would be lost: what the member lacks that failed, if it came back as current when the journal no longer has it.
#[test]
fn the_tail_moves_when_a_failure_is_on_record_and_not_with_it() {
    let journal = MemberId(3);
    let mut story = Story::journaled(Level::Raid5, 3);
    story.activate();
    let tail = |story: &Story| {
        let told = superblocks(&story.pending);
        let own = told.iter().find(|(member, _)| *member == journal);
        own.map(|(_, superblock)| superblock.journal_tail())
    };
    story.notice(Notice::JournalTail { position: 64, is_urgent: false });
    assert!(story.pending.is_empty(), "that can wait");
    story.notice(Notice::Failed(MemberId(0)));
    assert_ne!(tail(&story).expect("an update"), 64);
    while tail(&story) != Some(64) {
        assert!(!story.orders.contains(&Order::TailMoved(64)));
        let write = story.pending.remove(0);
        story.end(&write, true);
    }
    assert!(story.orders.contains(&Order::Recorded(MemberId(0))));
    story.settle();
    assert!(story.orders.contains(&Order::TailMoved(64)));
}

/// What would be lost: what a member lacks that fails, if a tail that was not written went out with the record of its failure.
#[test]
fn a_tail_that_was_not_written_waits_like_any_other() {
    let journal = MemberId(3);
    let mut story = Story::journaled(Level::Raid5, 3);
    story.activate();
    story.notice(Notice::JournalTail { position: 64, is_urgent: true });
    let dropped: Vec<WriteId> = story.pending.drain(..).map(|write| write.id).collect();
    assert!(!dropped.is_empty(), "it was about to be written");
    story.supervisor.handle_unflushed(story.now, &[MemberId(0)], &dropped);
    story.drain();
    while !story.orders.contains(&Order::Recorded(MemberId(0))) {
        let write = story.pending.remove(0);
        for (_, told) in
            superblocks(std::slice::from_ref(&write)).iter().filter(|it| it.0 == journal)
        {
            assert_eq!(told.journal_tail(), 0);
        }
        story.end(&write, true);
    }
    story.settle();
    assert!(story.orders.contains(&Order::TailMoved(64)));
}
