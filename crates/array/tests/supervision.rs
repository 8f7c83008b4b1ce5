//! Promises: what metadata says of members is stable on all of them before it is written; spans have one owner at any time;
//! an array is marked clean after its last write is stable.

use lapstrake_array::{Action, Coordinator, SpanMap};
use lapstrake_engine::{
    Event, MemberId, MetaWrite, Notice, Order, PieceId, SyncAction, SyncReport, Target, Time,
};
use lapstrake_geometry::Level;
use story::{DELAY_NS, SECOND_NS, Story};

#[path = "../../engine/tests/engine/story/mod.rs"]
#[allow(dead_code, reason = "the engine's tests use the rest")]
mod story;

const NOW: Time = Time(1_000_000_000);

fn coordinator(members: u16, bitmap: bool, shards: usize) -> Coordinator {
    let mut story = Story::new(Level::Raid1, members, bitmap);
    story.activate();
    Coordinator::new(Some(story.supervisor), shards, SpanMap::new(8))
}

fn actions(coordinator: &mut Coordinator) -> Vec<Action> {
    coordinator.pump(NOW);
    std::iter::from_fn(|| coordinator.poll()).collect()
}

fn flushes(actions: &[Action]) -> Vec<u16> {
    let member = |action: &Action| match action {
        Action::Flush(member) | Action::FinalFlush(member) => Some(member.0),
        _ => None,
    };
    actions.iter().filter_map(member).collect()
}

fn writes(actions: &[Action]) -> Vec<&MetaWrite> {
    let mut writes = Vec::new();
    for action in actions {
        if let Action::Write(write) = action {
            writes.push(write);
        }
    }
    writes
}

fn targets(actions: &[Action]) -> Vec<Target> {
    writes(actions).iter().map(|write| write.target).collect()
}

/// A mirror of three one of whose members has failed, which is to be recorded: the others flush.
fn failed(coordinator: &mut Coordinator) {
    coordinator.notice(NOW, Notice::Failed(MemberId(1)));
    assert_eq!(flushes(&actions(coordinator)), [0, 2]);
}

#[test]
fn nothing_is_written_before_every_member_has_flushed() {
    let mut coordinator = coordinator(3, false, 1);
    failed(&mut coordinator);
    coordinator.flushed(MemberId(0), true);
    assert!(actions(&mut coordinator).is_empty());
    coordinator.flushed(MemberId(2), true);
    let both = [0, 2].map(|member| Target::Member(MemberId(member)));
    assert_eq!(targets(&actions(&mut coordinator)), both);
}

/// What would be lost: whatever the later write says is stable, and the flush before it did not cover.
#[test]
fn what_comes_while_members_flush_waits_for_flushes_of_its_own() {
    let mut coordinator = coordinator(4, false, 1);
    coordinator.notice(NOW, Notice::Failed(MemberId(1)));
    assert_eq!(flushes(&actions(&mut coordinator)), [0, 2, 3]);
    coordinator.flushed(MemberId(0), true);
    coordinator.notice(NOW, Notice::Failed(MemberId(3)));
    coordinator.flushed(MemberId(2), true);
    coordinator.flushed(MemberId(3), true);
    let first = actions(&mut coordinator);
    assert_eq!(targets(&first).len(), 3);
    for superblock in writes(&first) {
        coordinator.written(NOW, superblock.id, true);
    }
    let next = actions(&mut coordinator);
    assert_eq!((flushes(&next), writes(&next).len()), (vec![0, 2], 0), "the second failure");
}

/// A mirror of two with a bitmap that has been written to and is marked clean.
fn at_rest() -> Coordinator {
    let mut story = Story::new(Level::Raid1, 2, true);
    for _ in 0..2 {
        story.activate();
        story.rest_at_once();
    }
    assert!(!story.supervisor.is_active());
    Coordinator::new(Some(story.supervisor), 1, SpanMap::new(8))
}

#[test]
fn a_write_to_an_array_at_rest_waits_for_one_round_of_metadata_and_no_flush() {
    let mut coordinator = at_rest();
    let chunk = coordinator.supervisor().unwrap().bitmap().unwrap().chunk();
    coordinator.notice(NOW, Notice::NeedActive);
    coordinator.notice(NOW, Notice::BitsWanted(chunk, 3, 3));
    let round = actions(&mut coordinator);
    assert_eq!((flushes(&round), targets(&round).len()), (vec![], 4), "{round:?}");
    let mut told = Vec::new();
    for write in writes(&round) {
        coordinator.written(NOW, write.id, true);
        told.extend(actions(&mut coordinator));
    }
    let orders = [Order::BitsSet(3, 3), Order::Active];
    let is_told = |order| told.iter().any(|it| matches!(it, Action::Order(it) if it == order));
    assert!(orders.iter().all(is_told), "{told:?}");
    assert!(writes(&told).is_empty());
}

/// What would be lost: what members were given last, where copies or parity then differ in an array that is called clean.
#[test]
fn members_flush_before_superblocks_say_clean_and_before_bits_are_cleared() {
    let mut coordinator = at_rest();
    let chunk = coordinator.supervisor().unwrap().bitmap().unwrap().chunk();
    coordinator.notice(NOW, Notice::NeedActive);
    coordinator.notice(NOW, Notice::BitsWanted(chunk, 3, 3));
    settle(&mut coordinator);
    let later = NOW.after(DELAY_NS);
    coordinator.handle_time(later);
    actions(&mut coordinator);
    coordinator.notice(later, Notice::Idle);
    let clean = actions(&mut coordinator);
    assert_eq!((flushes(&clean), writes(&clean).len()), (vec![0, 1], 0));
    [0, 1].into_iter().for_each(|member| coordinator.flushed(MemberId(member), true));
    settle(&mut coordinator);
    let later = later.after(10 * SECOND_NS);
    coordinator.handle_time(later);
    actions(&mut coordinator);
    coordinator.notice(later, Notice::BitsIdle(vec![3]));
    let cleared = actions(&mut coordinator);
    assert_eq!((flushes(&cleared), writes(&cleared).len()), (vec![0, 1], 0));
}

#[test]
fn when_a_member_cannot_flush_nothing_is_written_that_counts_on_it() {
    let mut coordinator = coordinator(3, false, 1);
    failed(&mut coordinator);
    coordinator.flushed(MemberId(0), true);
    coordinator.flushed(MemberId(2), false);
    let next = actions(&mut coordinator);
    let is_told =
        |action: &Action| matches!(action, Action::Order(Order::MemberFailed(MemberId(2))));
    assert!(next.iter().any(is_told), "{next:?}");
    assert_eq!((flushes(&next), writes(&next).len()), (vec![0], 0));
    coordinator.flushed(MemberId(0), true);
    assert_eq!(targets(&actions(&mut coordinator)), [Target::Member(MemberId(0))]);
}

/// Every write of these, with the flushes before them, ends well.
fn settle(coordinator: &mut Coordinator) -> Vec<Action> {
    let mut others = Vec::new();
    loop {
        let next = actions(coordinator);
        if next.is_empty() {
            return others;
        }
        for action in next {
            match action {
                Action::Flush(member) => coordinator.flushed(member, true),
                Action::Write(write) => coordinator.written(NOW, write.id, true),
                action => others.push(action),
            }
        }
    }
}

#[test]
fn an_array_is_marked_clean_when_every_shard_is_quiet_and_every_member_has_flushed() {
    let mut coordinator = coordinator(2, false, 2);
    coordinator.begin_stop(NOW);
    assert!(matches!(actions(&mut coordinator)[..], [Action::ShutDown]));
    coordinator.quiet(NOW);
    assert!(actions(&mut coordinator).is_empty(), "the other shard may have a write under way");
    coordinator.quiet(NOW);
    let last = actions(&mut coordinator);
    assert_eq!((flushes(&last), last.len()), (vec![0, 1], 2));
    assert!(coordinator.flushed_at_the_end(NOW, MemberId(0), true));
    assert!(actions(&mut coordinator).is_empty());
    assert!(coordinator.flushed_at_the_end(NOW, MemberId(1), true));
    let last = settle(&mut coordinator);
    assert!(matches!(last[..], [.., Action::Stopped { clean: true }]), "{last:?}");
}

/// What would be lost: what members were given last, which a resync might find to differ.
#[test]
fn an_array_that_cannot_do_without_a_member_that_does_not_flush_stays_active() {
    let mut coordinator = coordinator(2, false, 1);
    coordinator.begin_stop(NOW);
    coordinator.quiet(NOW);
    assert_eq!(flushes(&actions(&mut coordinator)), [0, 1]);
    assert!(coordinator.flushed_at_the_end(NOW, MemberId(0), false), "the other has it all");
    assert!(!coordinator.flushed_at_the_end(NOW, MemberId(1), false));
    let last = settle(&mut coordinator);
    assert!(last.iter().any(|action| matches!(action, Action::Stopped { clean: false })));
    assert!(coordinator.is_broken());
}

/// What would be lost: a stripe with two owners, which do not know of each other's writes.
#[test]
fn spans_change_hands_when_every_shard_is_paused_and_has_heard_what_any_has_told_of() {
    let mut coordinator = coordinator(2, false, 2);
    let both = SpanMap::new(8).among(vec![0, 1]);
    coordinator.redeal(vec![0, 1]);
    assert!(matches!(actions(&mut coordinator)[..], [Action::Pause]));
    let supervisor = coordinator.supervisor_mut().unwrap();
    assert!(supervisor.handle_sync(NOW, SyncAction::Check));
    let is_piece = |action: &Action| matches!(action, Action::Sync { .. });
    assert!(!settle(&mut coordinator).iter().any(is_piece), "nobody knows to whom it goes");
    coordinator.paused(NOW);
    assert!(actions(&mut coordinator).is_empty());
    coordinator.notice(NOW, Notice::Failed(MemberId(1)));
    coordinator.paused(NOW);
    let told = settle(&mut coordinator);
    let at = |wanted: &dyn Fn(&Action) -> bool| told.iter().position(wanted).expect("it was told");
    let failed = at(&|a| matches!(a, Action::Order(Order::MemberFailed(MemberId(1)))));
    let dealt = at(&|a| matches!(a, Action::Redeal(spans) if *spans == both));
    assert!(failed < dealt, "{told:?}");
}

#[test]
fn spans_that_are_as_they_should_be_stay_where_they_are() {
    let mut coordinator = coordinator(2, false, 2);
    coordinator.redeal(vec![0]);
    assert!(actions(&mut coordinator).is_empty() && !coordinator.is_redealing());
}

#[test]
fn an_array_that_is_only_read_tells_its_shards_of_a_failure_and_stops_without_a_write() {
    let mut coordinator = Coordinator::new(None, 1, SpanMap::new(8));
    // By two shards.
    coordinator.notice(NOW, Notice::Failed(MemberId(1)));
    coordinator.notice(NOW, Notice::Failed(MemberId(1)));
    let told = actions(&mut coordinator);
    assert!(matches!(
        told[..],
        [
            Action::Event(Event::MemberFailed(MemberId(1), _)),
            Action::Order(Order::MemberFailed(MemberId(1))),
            Action::Order(Order::Recorded(MemberId(1))),
        ]
    ));
    coordinator.begin_stop(NOW);
    coordinator.quiet(NOW);
    let last = actions(&mut coordinator);
    assert!(matches!(last[..], [Action::ShutDown, Action::Stopped { clean: true }]), "{last:?}");
}

/// Two shards of a RAID5 of three whose first rows are copied to a fourth member, before they are moved over themselves.
fn copying() -> (Coordinator, PieceId) {
    let story = Story::growing_in_place();
    let span = story.supervisor.span().0;
    let mut coordinator = Coordinator::new(Some(story.supervisor), 2, SpanMap::new(span));
    let paused = actions(&mut coordinator);
    assert!(matches!(paused[..], [Action::Pause]), "{paused:?}");
    (0..2).for_each(|_| coordinator.paused(NOW));
    let taken = actions(&mut coordinator);
    let is_taken = |action: &&Action| matches!(action, Action::TakeGeometry { .. });
    assert_eq!(taken.iter().filter(is_taken).count(), 2, "{taken:?}");
    (0..2).for_each(|_| coordinator.paused(NOW));
    let piece = actions(&mut coordinator).into_iter().find_map(|action| match action {
        Action::Sync { shard: 1, piece } => Some(piece.id),
        _ => None,
    });
    (coordinator, piece.expect("it is copied"))
}

/// What would be lost: what clients were answered, once a copy that is older is put back at the next start.
#[test]
fn a_stop_waits_until_nothing_is_copied_or_moved_over_itself() {
    let (mut coordinator, id) = copying();
    let is_let_go = |actions: &[Action]| actions.iter().any(|it| matches!(it, Action::ShutDown));
    coordinator.begin_stop(NOW);
    assert!(coordinator.is_stopping() && !is_let_go(&actions(&mut coordinator)));
    let (mismatch_sectors, mismatches, requests) = (0, Vec::new(), 0);
    let report = SyncReport { id, ok: false, mismatch_sectors, mismatches, requests };
    coordinator.notice(NOW, Notice::Synced(report));
    // What was copied is of no use, which headers are to say.
    let mut waiting = actions(&mut coordinator);
    assert!(!is_let_go(&waiting), "{waiting:?}");
    while !is_let_go(&waiting) {
        assert!(!waiting.is_empty(), "it is not let go");
        for action in waiting {
            match action {
                Action::Flush(member) => coordinator.flushed(member, true),
                Action::Write(write) => coordinator.written(NOW, write.id, true),
                _ => {}
            }
        }
        waiting = actions(&mut coordinator);
    }
}
