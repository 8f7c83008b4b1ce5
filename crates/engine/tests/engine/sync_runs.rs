//! Promise: a run of recovery, resync or check goes as far and as fast as it may, says so on record from time to time,
//! and begins anew when members come or go.

use crate::story::{SECOND_NS, Story, new_bitmap_config, superblocks, supervisor};
use lapstrake_engine::*;
use lapstrake_geometry::{Content, Geometry, Level, Sector, Sectors, Slot};

/// What one window of a mirror is high.
const WINDOW: u64 = 2048;

fn check(story: &mut Story) {
    assert!(story.supervisor.handle_sync(story.now, SyncAction::Check));
}

/// A mirror that is due a resync from its beginning.
fn due_a_resync() -> Story {
    let mut story = Story::new(Level::Raid1, 2, false);
    story.supervisor = supervisor(&story.geometry, story.records(), None, Some(Sector(0)));
    story.supervisor.handle_start(story.now);
    story.drain();
    story
}

fn ended(story: &mut Story) -> Option<(SyncAction, SyncEnd)> {
    let events = std::iter::from_fn(|| story.supervisor.poll_event());
    let ends = events.filter_map(|event| match event {
        Event::SyncEnded(action, end) => Some((action, end)),
        _ => None,
    });
    ends.last()
}

/// A piece ends, after so many requests that its shard has seen.
fn end(story: &mut Story, piece: &SyncPiece, ok: bool, requests: u64) {
    story.notice(Notice::Synced(SyncReport {
        id: piece.id,
        ok,
        mismatch_sectors: 0,
        mismatches: Vec::new(),
        requests,
    }));
}

#[test]
fn a_check_ends_when_a_member_fails() {
    let mut story = Story::new(Level::Raid1, 3, false);
    check(&mut story);
    assert!(story.sync_one());
    story.notice(Notice::Failed(MemberId(2)));
    assert_eq!(ended(&mut story), Some((SyncAction::Check, SyncEnd::Interrupted)));
    assert!(story.supervisor.poll_sync().is_none());
}

#[test]
fn a_recovery_that_failed_begins_anew_when_a_member_comes() {
    let mut story = Story::new(Level::Raid1, 2, false);
    story.notice(Notice::Failed(MemberId(1)));
    story.settle();
    story.add_spare();
    let piece = story.supervisor.poll_sync().expect("a recovery");
    end(&mut story, &piece, false, 0);
    while let Some(piece) = story.supervisor.poll_sync() {
        end(&mut story, &piece, true, 0);
    }
    story.settle();
    assert_eq!(ended(&mut story), Some((SyncAction::Recovery, SyncEnd::Failed)));
    story.wait(60 * SECOND_NS);
    assert!(story.supervisor.poll_sync().is_none(), "it would fail again");
    story.add_spare();
    assert!(story.supervisor.poll_sync().is_some(), "it may go well now");
}

#[test]
fn beside_requests_one_window_is_under_way_at_the_least_speed() {
    let mut story = Story::new(Level::Raid1, 2, false);
    check(&mut story);
    let first: Vec<SyncPiece> = std::iter::from_fn(|| story.supervisor.poll_sync()).collect();
    assert_eq!(first.len(), 4, "nobody asks for anything");
    for piece in &first {
        end(&mut story, piece, true, 1);
    }
    let next = story.supervisor.poll_sync().expect("one at a time");
    assert!(story.supervisor.poll_sync().is_none());
    end(&mut story, &next, true, 1);
    assert!(story.supervisor.poll_sync().is_none(), "it was a second's worth");
    let least_ns = WINDOW * SECOND_NS / SyncSpeed::default().min;
    assert_eq!(story.supervisor.poll_deadline(), Some(story.now.after(least_ns)));
    story.wait(least_ns);
    assert!(story.supervisor.poll_sync().is_some());
    assert!(
        story.supervisor.poll_sync().is_none(),
        "it waited longer than requests are remembered"
    );
}

#[test]
fn reads_that_no_piece_tells_of_are_requests_too() {
    let mut story = Story::new(Level::Raid1, 2, false);
    check(&mut story);
    let first: Vec<SyncPiece> = std::iter::from_fn(|| story.supervisor.poll_sync()).collect();
    story.notice(Notice::Reads);
    for piece in &first {
        end(&mut story, piece, true, 0);
    }
    story.supervisor.poll_sync().expect("one at a time");
    assert!(story.supervisor.poll_sync().is_none());
}

#[test]
fn when_every_window_has_begun_no_time_is_waited_for() {
    let mut story = Story::new(Level::Raid1, 2, false);
    let speed = SyncSpeed { min: 1, max: WINDOW };
    story.supervisor.set_sync_speed(story.now, speed);
    check(&mut story);
    let total = story.geometry.component().0;
    loop {
        let piece = story.supervisor.poll_sync().expect("it goes on");
        if piece.start.0 + piece.len.0 == total {
            break;
        }
        end(&mut story, &piece, true, 0);
        assert_eq!(story.supervisor.poll_deadline(), Some(story.now.after(SECOND_NS)));
        story.wait(SECOND_NS);
    }
    assert_eq!(story.supervisor.poll_deadline(), None);
}

#[test]
fn the_speed_is_that_of_the_last_half_minute() {
    let mut story = Story::new(Level::Raid1, 2, false);
    check(&mut story);
    let mut speed_at = |windows: u64, times: u64| {
        for _ in 0..times {
            story.wait(3 * SECOND_NS);
            (0..windows).for_each(|_| assert!(story.sync_one()));
        }
        // The first report of a turn makes a mark, so that those behind it count for the next turn.
        story.wait(3 * SECOND_NS - 1);
        let progress = story.supervisor.sync_progress(story.now).expect("a check");
        story.now = Time(story.now.0 + 1 - 3 * SECOND_NS);
        progress.speed
    };
    let near = |speed: u64, windows: u64| speed.abs_diff(windows * WINDOW / 3) < WINDOW / 3 / 4;
    let slow = speed_at(1, 20);
    assert!(near(slow, 1), "{slow}");
    // Of ten turns one was slow.
    let turning = speed_at(3, 8) * 30;
    assert!(turning.abs_diff(25 * WINDOW) < WINDOW / 4, "{turning}");
    let fast = speed_at(3, 12);
    assert!(near(fast, 3), "{fast}: what was long ago does not count");
}

/// What would be lost: hours, after a stop. The place of a slow resync goes on record every minute.
#[test]
fn a_slow_resync_is_on_record_every_minute() {
    let mut story = due_a_resync();
    let first = story.supervisor.poll_sync().expect("a resync");
    let second = story.supervisor.poll_sync().expect("a second window");
    end(&mut story, &first, true, 0);
    assert!(story.pending.is_empty(), "not a minute has passed");
    story.wait(60 * SECOND_NS);
    end(&mut story, &second, true, 0);
    let written = superblocks(&story.pending);
    assert_eq!(written.len(), 2);
    for (_, superblock) in written {
        assert_eq!(superblock.resync_offset(), Some(Sector(2 * WINDOW)));
    }
}

#[test]
fn where_nothing_has_come_further_nothing_goes_on_record() {
    let mut story = due_a_resync();
    let _first = story.supervisor.poll_sync().expect("a resync");
    let second = story.supervisor.poll_sync().expect("a second window");
    story.wait(60 * SECOND_NS);
    end(&mut story, &second, true, 0);
    assert!(story.pending.is_empty(), "the first window has not ended");
}

#[test]
fn what_a_check_finds_is_counted_and_kept_up_to_a_limit() {
    const KEPT: usize = 16384;
    let mut story = Story::new(Level::Raid1, 2, false);
    check(&mut story);
    for (sectors, ranges, omitted) in [(24, 3, 0), (8, KEPT + 10, 13), (16, 5, 18)] {
        let piece = story.supervisor.poll_sync().expect("a window");
        let one = Mismatch { start: piece.start, len: Sectors(8), member: None };
        story.notice(Notice::Synced(SyncReport {
            id: piece.id,
            ok: true,
            mismatch_sectors: sectors,
            mismatches: vec![one; ranges],
            requests: 0,
        }));
        assert_eq!(story.supervisor.mismatches_omitted(), omitted);
    }
    let (sectors, kept) = story.supervisor.mismatches();
    assert_eq!((sectors, kept.len()), (24 + 8 + 16, KEPT));
}

#[test]
fn who_has_ended_a_check_sees_no_more_of_it() {
    let mut story = Story::new(Level::Raid1, 2, false);
    story.wait(SECOND_NS);
    check(&mut story);
    let under_way: Vec<SyncPiece> = std::iter::from_fn(|| story.supervisor.poll_sync()).collect();
    assert_eq!(under_way.len(), 4);
    let now = story.now;
    story.supervisor.handle_idle(now);
    story.drain();
    for piece in &under_way {
        assert!(story.supervisor.poll_sync().is_none() && ended(&mut story).is_none());
        end(&mut story, piece, true, 0);
    }
    let end = Some((SyncAction::Check, SyncEnd::Interrupted));
    assert_eq!((ended(&mut story), story.supervisor.last_sync()), (end, end));
}

#[test]
fn what_was_asked_for_runs_after_what_is_needed_first() {
    let mut story = due_a_resync();
    let piece = story.supervisor.poll_sync().expect("a resync");
    end(&mut story, &piece, false, 0);
    story.sync();
    story.settle();
    assert_eq!(ended(&mut story), Some((SyncAction::Resync, SyncEnd::Failed)));
    // It begins when the superblocks have been written, and a member comes before that.
    story.notice(Notice::NeedActive);
    check(&mut story);
    story.begin_spare();
    story.settle();
    let mut actions = Vec::new();
    loop {
        story.settle();
        let Some(piece) = story.supervisor.poll_sync() else { break };
        actions.push(piece.action);
        end(&mut story, &piece, true, 0);
    }
    actions.dedup();
    assert_eq!(actions, [SyncAction::Resync, SyncAction::Check]);
}

/// What would be lost: what a member has already, if it counted as lost again while another gets as far.
#[test]
fn a_member_that_has_more_than_the_run_keeps_it() {
    let mut story = Story::new(Level::Raid1, 3, false);
    let mut records = story.records();
    records[1].trusted_to = Sector(2 * WINDOW);
    records[2].trusted_to = Sector(0);
    story.restart(records);
    story.supervisor.handle_start(story.now);
    story.drain();
    story.settle();
    story.take_orders();
    let mut told = Vec::new();
    for _ in 0..3 {
        assert!(story.sync_one());
        told.extend(story.take_orders().into_iter().filter_map(|order| match order {
            Order::Trusted(member, to) => Some((member.0, to.0 / WINDOW)),
            _ => None,
        }));
    }
    assert_eq!(told, [(2, 1), (2, 2), (1, 3), (2, 3)]);
}

#[test]
fn what_is_asked_for_waits_for_nothing_and_is_refused_instead() {
    let asked = |story: &mut Story, action| {
        let now = story.now;
        story.supervisor.handle_sync(now, action)
    };
    let mut story = Story::new(Level::Raid1, 2, false);
    assert!(!asked(&mut story, SyncAction::Recovery), "nobody lacks anything");
    check(&mut story);
    assert!(!asked(&mut story, SyncAction::Repair), "a check runs");
    let mut stripes = Story::new(Level::Raid0, 2, false);
    assert!(!asked(&mut stripes, SyncAction::Check), "nothing to compare");
    let mut due = Story::new(Level::Raid1, 2, false);
    due.supervisor = supervisor(&due.geometry, due.records(), None, Some(Sector(0)));
    assert!(!asked(&mut due, SyncAction::Check), "a resync is due");
    let mut frozen = Story::new(Level::Raid1, 2, false);
    frozen.supervisor.handle_freeze(frozen.now);
    assert!(!asked(&mut frozen, SyncAction::Check), "it is frozen");
    frozen.supervisor.handle_resume(frozen.now);
    assert!(asked(&mut frozen, SyncAction::Check));
}

/// What goes on: its first windows have ended well, and the others are under way.
fn begun(story: &mut Story) -> Vec<SyncPiece> {
    let first = story.supervisor.poll_sync().expect("a window");
    story.wait(SECOND_NS);
    end(story, &first, true, 0);
    story.settle();
    std::iter::from_fn(|| story.supervisor.poll_sync()).collect()
}

/// What would be lost: hours, if what is needed began anew, or what was asked for forgot what it had found.
#[test]
fn what_is_needed_freezes_on_record_and_what_was_asked_for_in_memory() {
    let asked_for = |action| {
        let mut story = Story::new(Level::Raid1, 2, false);
        assert!(story.supervisor.handle_sync(story.now, action));
        story
    };
    let mut lacking = Story::new(Level::Raid1, 2, false);
    lacking.notice(Notice::Failed(MemberId(1)));
    lacking.settle();
    lacking.add_spare();
    let cases = [
        (SyncAction::Recovery, lacking, true),
        (SyncAction::Resync, due_a_resync(), true),
        (SyncAction::Resync, asked_for(SyncAction::Resync), false),
        (SyncAction::Check, asked_for(SyncAction::Check), false),
    ];
    for (action, mut story, is_needed) in cases {
        let mut under_way = begun(&mut story);
        let progress = |story: &Story| story.supervisor.sync_progress(story.now).expect("it runs");
        assert!(
            progress(&story).done == Sector(WINDOW) && progress(&story).speed > 0,
            "{action:?}"
        );
        assert!(!story.supervisor.is_frozen());
        let now = story.now;
        story.supervisor.handle_freeze(now);
        story.drain();
        assert!(story.supervisor.is_frozen() && progress(&story).speed == 0);
        under_way.drain(..).for_each(|piece| end(&mut story, &piece, true, 0));
        story.settle();
        let end = is_needed.then_some((action, SyncEnd::Interrupted));
        assert_eq!(ended(&mut story), end);
        story.wait(60 * SECOND_NS);
        assert!(story.supervisor.poll_sync().is_none(), "{action:?} is frozen");
        let done = progress(&story).done;
        assert!(done >= Sector(WINDOW), "{action:?} keeps its place");
        let now = story.now;
        story.supervisor.handle_resume(now);
        story.drain();
        story.settle();
        let next = story.supervisor.poll_sync().expect("it goes on");
        assert_eq!((next.action, next.start), (action, done));
    }
}

#[test]
fn nothing_begins_before_a_stop() {
    let mut story = due_a_resync();
    let under_way = begun(&mut story);
    let now = story.now;
    story.supervisor.handle_halt(now);
    story.drain();
    under_way.iter().for_each(|piece| end(&mut story, piece, true, 0));
    story.settle();
    assert_eq!(ended(&mut story), Some((SyncAction::Resync, SyncEnd::Interrupted)));
    story.wait(60 * SECOND_NS);
    assert!(story.supervisor.poll_sync().is_none());
}

#[test]
fn nothing_begins_when_the_array_stops_or_has_given_up() {
    let story = || {
        let mut story = Story::new(Level::Raid1, 2, false);
        story.supervisor = supervisor(&story.geometry, story.records(), None, Some(Sector(0)));
        story
    };
    let (mut stops, mut broken) = (story(), story());
    stops.supervisor.handle_stop(stops.now);
    (0..2).for_each(|member| broken.notice(Notice::Failed(MemberId(member))));
    assert!(broken.orders.contains(&Order::Broken));
    for story in [&mut stops, &mut broken] {
        story.drain();
        story.settle();
        story.wait(60 * SECOND_NS);
        assert!(story.supervisor.poll_sync().is_none());
    }
}

#[test]
fn a_word_to_go_on_changes_nothing_for_what_goes_on() {
    let mut story = Story::new(Level::Raid1, 2, false);
    check(&mut story);
    begun(&mut story);
    let speed = |story: &Story| story.supervisor.sync_progress(story.now).expect("a check").speed;
    let before = speed(&story);
    assert!(before > 0);
    let now = story.now;
    story.supervisor.hold_checks(now, false);
    assert_eq!(speed(&story), before);
    let slower = SyncSpeed { min: 0, max: 100 };
    story.supervisor.set_sync_speed(now, slower);
    assert_eq!(speed(&story), 0, "nothing is known of the new one yet");
}

/// What would be lost: redundancy where windows leave something out, time where they do something twice.
#[test]
fn windows_lie_side_by_side_also_where_a_run_goes_on_within_a_chunk() {
    for (level, members, data_disks) in [(Level::Raid5, 3, 2), (Level::Raid10, 4, 1)] {
        let mut story = Story::new(level, members, false);
        let chunk = story.supervisor.members().next().expect("a member").0.chunk().0;
        assert!(chunk > 100 && WINDOW.is_multiple_of(chunk));
        story.supervisor = supervisor(&story.geometry, story.records(), None, Some(Sector(100)));
        story.supervisor.handle_start(story.now);
        story.drain();
        let mut ranges = Vec::new();
        for _ in 0..5 {
            story.settle();
            ranges.extend(story.sync_next());
        }
        // Parity is done by whole stripes.
        let from = if level == Level::Raid5 { 0 } else { 100 };
        let edge = |window: u64| if window == 0 { from } else { window * WINDOW * data_disks };
        let expected = (0..5).map(|window| (edge(window), edge(window + 1) - edge(window)));
        assert_eq!(ranges, expected.collect::<Vec<_>>(), "{level}");
    }
}

#[test]
fn a_recovery_of_copies_goes_on_within_a_chunk() {
    let mut story = Story::new(Level::Raid10, 4, false);
    let mut records = story.records();
    records[1].trusted_to = Sector(100);
    story.restart(records);
    story.supervisor.handle_start(story.now);
    story.drain();
    story.settle();
    // A window is two chunks of the member, of 1024 sectors; the array's lie side by side on it.
    let ranges = [story.sync_next(), story.sync_next()].map(|range| range.expect("a chunk"));
    let Geometry::Raid10(raid10) = &story.geometry else { panic!("a RAID10") };
    let at = |sector| match raid10.content(Slot(1), Sector(sector)) {
        Content::Data(sector) => sector.0,
        other => panic!("{other:?}"),
    };
    assert_eq!(ranges, [(at(100), 1024 - 100), (at(1024), 1024)]);
}

#[test]
fn what_a_bitmap_spares_a_run_is_no_speed() {
    let mut story = Story::new(Level::Raid1, 2, true);
    let mut bitmap = new_bitmap_config(&story.records()[0].superblock, story.geometry.component());
    for bit in [0, 300, 400] {
        bitmap.bits.set(bit);
    }
    bitmap.bits_need_resync = true;
    story.supervisor = supervisor(&story.geometry, story.records(), Some(bitmap), Some(Sector(0)));
    story.supervisor.handle_start(story.now);
    story.drain();
    let pieces: Vec<SyncPiece> = std::iter::from_fn(|| story.supervisor.poll_sync()).collect();
    assert_eq!(pieces.len(), 3);
    story.wait(SECOND_NS);
    pieces[..2].iter().for_each(|piece| end(&mut story, piece, true, 0));
    let now = story.supervisor.sync_progress(story.now).expect("a resync");
    assert_eq!((now.done, now.speed), (Sector(400 * WINDOW), 2 * WINDOW));
}

/// What would be lost: what a shard reads and compares of sectors that have been dealt to another.
#[test]
fn no_piece_crosses_a_span() {
    const SPAN: u64 = 512;
    let mut story = Story::new(Level::Raid1, 2, false);
    story.supervisor = Supervisor::new(SupervisorConfig {
        geometry: story.geometry.clone(),
        members: story.records(),
        shards: 1,
        safe_mode_delay_ns: SECOND_NS,
        resync_from: Some(Sector(100)),
        was_replayed: false,
        reshape: None,
        bitmap: None,
        sync: SyncConfig { speed: SyncSpeed::default(), frozen: false, span: Sectors(SPAN) },
        epoch_s: 0,
    });
    story.supervisor.handle_start(story.now);
    story.drain();
    story.settle();
    let pieces: Vec<(u64, u64)> = std::iter::from_fn(|| story.sync_next()).take(4).collect();
    let spans = (1..4).map(|span| (span * SPAN, SPAN));
    assert_eq!(pieces, [(100, SPAN - 100)].into_iter().chain(spans).collect::<Vec<_>>());
}

#[test]
fn a_resync_that_has_nothing_to_compare_stays_due() {
    let mut story = Story::new(Level::Raid5, 3, false);
    let records = story.records()[..2].to_vec();
    story.supervisor = supervisor(&story.geometry, records, None, Some(Sector(0)));
    story.supervisor.handle_start(story.now);
    story.drain();
    assert!(!story.supervisor.handle_sync(story.now, SyncAction::Resync), "no redundancy is left");
    story.drain();
    story.sync();
    story.settle();
    assert_eq!(story.supervisor.resync_from(), Some(Sector(0)));
    assert!(story.supervisor.handle_sync(story.now, SyncAction::Check), "it forgets nothing");
}

/// What would be lost: the word that what the lost member held may not fit the rest.
#[test]
fn a_resync_that_loses_the_last_redundancy_in_its_last_window_stays_due() {
    let mut story = Story::new(Level::Raid5, 3, false);
    story.supervisor = supervisor(&story.geometry, story.records(), None, Some(Sector(0)));
    story.supervisor.handle_start(story.now);
    story.drain();
    let mut last: Option<SyncPiece> = None;
    let mut end_all_but_one = |story: &mut Story| {
        while let Some(piece) = story.supervisor.poll_sync() {
            if let Some(before) = last.replace(piece) {
                end(story, &before, true, 0);
            }
        }
    };
    for _ in 0..1000 {
        end_all_but_one(&mut story);
        story.wait(SECOND_NS);
    }
    let due = story.supervisor.resync_from().expect("its last window is under way");
    story.notice(Notice::Failed(MemberId(1)));
    end(&mut story, &last.expect("the last window"), true, 0);
    assert_eq!(ended(&mut story), Some((SyncAction::Resync, SyncEnd::Interrupted)));
    story.settle();
    assert_eq!(story.supervisor.resync_from(), Some(due));
    assert!(story.supervisor.sync_progress(story.now).is_none());
}
