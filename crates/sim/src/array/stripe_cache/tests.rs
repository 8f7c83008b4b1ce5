//! The stripe cache of a RAID5 of four with chunks of two pages, held by hand.

use super::*;
use lapstrake_geometry::{Config, Geometry, Layout, Level};
use lapstrake_model::Op;

const CHUNK: u64 = 2 * PAGE;
const STRIPE: u64 = 3 * CHUNK;

/// As Linux 2.6.21 has them.
fn stripe_cache(count: u32) -> StripeCache {
    made(Level::Raid5, count, [true; 4], 20621)
}

/// As Linux 3.6 has them.
fn threaded(count: u32) -> StripeCache {
    made(Level::Raid5, count, [true; 4], 30600)
}

fn made(level: Level, count: u32, in_sync: [bool; 4], linux: u32) -> StripeCache {
    let geometry = Geometry::new(&Config {
        level,
        layout: Layout::from_name(level, "left-symmetric").unwrap(),
        chunk: Sectors(CHUNK),
        raid_disks: 4,
        component: Sectors(100 * CHUNK),
        member_sizes: vec![Sectors(100 * CHUNK); 4],
    });
    let Ok(Geometry::Parity(map)) = geometry else { panic!("{geometry:?}") };
    let thread = (linux >= 30600).then(|| Thread::new(Nanos(1_000), 0));
    StripeCache::new(map, in_sync.to_vec(), count, linux, false, thread)
}

/// Members' writes of so many rows begin.
fn begin(stripe_cache: &mut StripeCache, row: u64, rows: u64) {
    stripe_cache.write_begins(Sector(row * PAGE), Sectors(rows * PAGE), Nanos(0));
}

/// What goes, with its kind.
fn kinds(stripe_cache: &mut StripeCache, pieces: &mut Vec<u64>) -> Vec<(Op, u64, u64)> {
    let orders = stripe_cache.orders();
    pieces.extend(orders.iter().map(|order| order.tag));
    orders.iter().map(|order| (order.op, order.lba, order.blocks)).collect()
}

fn write(stripe_cache: &mut StripeCache, tag: u64, lba: u64, blocks: u64) {
    stripe_cache.add(Request { tag, op: Op::Write, lba, blocks }, Nanos(tag));
}

/// What goes, as places and lengths; its tags are left in `pieces`.
fn go(stripe_cache: &mut StripeCache, pieces: &mut Vec<u64>) -> Vec<(u64, u64)> {
    let orders = stripe_cache.orders();
    pieces.extend(orders.iter().map(|order| order.tag));
    let mut places: Vec<_> = orders.iter().map(|order| (order.lba, order.blocks)).collect();
    places.sort_unstable();
    places
}

/// All that is under way ends; the tags of the writes that end with it, once the thread has looked, if there is one.
fn end(stripe_cache: &mut StripeCache, pieces: &mut Vec<u64>) -> Vec<u64> {
    pieces.drain(..).for_each(|piece| stripe_cache.ended(piece, Nanos(0)));
    while let Some(due) = stripe_cache.deadline().filter(|_| stripe_cache.has_thread()) {
        stripe_cache.run(due);
    }
    stripe_cache.answers()
}

/// What goes until thread and writer wait.
fn wait(stripe_cache: &mut StripeCache, pieces: &mut Vec<u64>) -> Vec<(u64, u64)> {
    let mut gone = go(stripe_cache, pieces);
    while let Some(due) = stripe_cache.deadline() {
        stripe_cache.run(due);
        gone.extend(go(stripe_cache, pieces));
    }
    gone
}

/// The pieces of a whole stripe.
fn whole(stripe: u64) -> [(u64, u64); 3] {
    [0, 1, 2].map(|chunk| (stripe * STRIPE + chunk * CHUNK, CHUNK))
}

#[test]
fn whole_rows_go_at_once_and_others_when_their_writer_pauses() {
    let (mut stripe_cache, mut pieces) = (stripe_cache(256), Vec::new());
    write(&mut stripe_cache, 1, 0, STRIPE);
    write(&mut stripe_cache, 2, STRIPE, CHUNK);
    assert_eq!(go(&mut stripe_cache, &mut pieces), whole(0));
    assert_eq!(stripe_cache.deadline(), Some(Nanos(2) + PLUG));
    stripe_cache.unplug(Nanos(0));
    assert_eq!(go(&mut stripe_cache, &mut pieces), [(STRIPE, CHUNK)]);
    assert_eq!(stripe_cache.deadline(), None);
    assert_eq!(end(&mut stripe_cache, &mut pieces), [1, 2]);
}

#[test]
fn what_the_writer_completes_in_time_goes_whole() {
    let (mut stripe_cache, mut pieces) = (stripe_cache(256), Vec::new());
    write(&mut stripe_cache, 1, 0, STRIPE);
    go(&mut stripe_cache, &mut pieces);
    for chunk in 0..3 {
        assert_eq!(go(&mut stripe_cache, &mut pieces), []);
        write(&mut stripe_cache, 2 + chunk, STRIPE + chunk * CHUNK, CHUNK);
    }
    assert_eq!(go(&mut stripe_cache, &mut pieces).len(), 3);
    assert_eq!(end(&mut stripe_cache, &mut pieces), [1, 2, 3, 4]);
}

#[test]
fn a_write_that_goes_on_nowhere_does_not_wait() {
    let (mut stripe_cache, mut pieces) = (stripe_cache(256), Vec::new());
    write(&mut stripe_cache, 1, 7 * STRIPE + PAGE, PAGE);
    assert_eq!(go(&mut stripe_cache, &mut pieces), [(7 * STRIPE + PAGE, PAGE)]);
    assert_eq!(end(&mut stripe_cache, &mut pieces), [1]);
}

#[test]
fn who_finds_no_head_waits_until_a_quarter_is_idle() {
    let (mut stripe_cache, mut pieces) = (stripe_cache(8), Vec::new());
    // Two rows a stripe: four stripes fill all heads.
    write(&mut stripe_cache, 1, 0, 5 * STRIPE);
    assert_eq!(go(&mut stripe_cache, &mut pieces).len(), 12);
    // A stripe of three pieces: a quarter, which is not enough yet.
    let mut rest = pieces.split_off(3);
    assert_eq!(end(&mut stripe_cache, &mut pieces), []);
    assert_eq!(go(&mut stripe_cache, &mut pieces), []);
    let mut next = rest.drain(..3).collect();
    assert_eq!(end(&mut stripe_cache, &mut next), []);
    assert_eq!(go(&mut stripe_cache, &mut rest).len(), 3);
    assert_eq!(end(&mut stripe_cache, &mut rest), [1]);
}

#[test]
fn idle_heads_know_their_rows_while_these_are_written_again() {
    let (mut stripe_cache, mut pieces) = (stripe_cache(4), Vec::new());
    let first_rows = (Sector(0), Sectors(CHUNK));
    write(&mut stripe_cache, 1, 0, STRIPE);
    go(&mut stripe_cache, &mut pieces);
    assert!(!stripe_cache.knows(first_rows.0, first_rows.1), "it is on its way for the first time");
    end(&mut stripe_cache, &mut pieces);
    write(&mut stripe_cache, 2, 0, PAGE);
    stripe_cache.unplug(Nanos(0));
    go(&mut stripe_cache, &mut pieces);
    assert!(stripe_cache.knows(Sector(0), Sectors(PAGE)));
    assert!(!stripe_cache.knows(first_rows.0, first_rows.1), "the second row is not asked about");
    end(&mut stripe_cache, &mut pieces);
    // Two more stripes take all heads.
    write(&mut stripe_cache, 3, 5 * STRIPE, 2 * STRIPE);
    go(&mut stripe_cache, &mut pieces);
    end(&mut stripe_cache, &mut pieces);
    write(&mut stripe_cache, 4, 0, PAGE);
    stripe_cache.unplug(Nanos(0));
    go(&mut stripe_cache, &mut pieces);
    assert!(!stripe_cache.knows(Sector(0), Sectors(PAGE)));
}

#[test]
fn incomplete_rows_wait_while_others_are_read_for_and_go_whole_if_they_are_completed() {
    let (mut stripe_cache, mut pieces) = (made(Level::Raid5, 256, [true; 4], 20626), Vec::new());
    write(&mut stripe_cache, 1, 0, CHUNK);
    assert_eq!(go(&mut stripe_cache, &mut pieces), [(0, CHUNK)], "it goes on nowhere");
    write(&mut stripe_cache, 2, CHUNK, CHUNK);
    write(&mut stripe_cache, 3, STRIPE, CHUNK);
    write(&mut stripe_cache, 4, STRIPE + CHUNK, CHUNK);
    stripe_cache.unplug(Nanos(4));
    assert_eq!((go(&mut stripe_cache, &mut pieces), stripe_cache.deadline()), (vec![], None));
    write(&mut stripe_cache, 5, STRIPE + 2 * CHUNK, CHUNK);
    assert_eq!(go(&mut stripe_cache, &mut pieces), whole(1));
    begin(&mut stripe_cache, 0, 2);
    assert_eq!(go(&mut stripe_cache, &mut pieces), []);
    // What came to the first row while it was under way goes when that is done, and has nothing to wait for.
    assert_eq!(end(&mut stripe_cache, &mut pieces), [1, 3, 4, 5]);
    assert_eq!(go(&mut stripe_cache, &mut pieces), [(CHUNK, CHUNK)]);
    assert_eq!(end(&mut stripe_cache, &mut pieces), [2]);
}

#[test]
fn the_next_round_begins_when_the_last_one_has_been_read_for() {
    let (mut stripe_cache, mut pieces) = (made(Level::Raid5, 256, [true; 4], 20626), Vec::new());
    write(&mut stripe_cache, 1, 0, PAGE);
    write(&mut stripe_cache, 2, 7 * STRIPE, PAGE);
    assert_eq!(go(&mut stripe_cache, &mut pieces), [(0, PAGE)]);
    begin(&mut stripe_cache, 0, 1);
    assert_eq!(go(&mut stripe_cache, &mut pieces), [(7 * STRIPE, PAGE)]);
    assert_eq!(end(&mut stripe_cache, &mut pieces), [1, 2]);
}

#[test]
fn a_round_ends_with_rows_that_need_no_read() {
    // The parity of the first stripe is on the last member; it is read for, and the member of nothing else.
    let (mut stripe_cache, mut pieces) =
        (made(Level::Raid5, 256, [true, true, true, false], 20626), Vec::new());
    write(&mut stripe_cache, 1, 0, PAGE);
    write(&mut stripe_cache, 2, 7 * STRIPE, PAGE);
    assert_eq!(kinds(&mut stripe_cache, &mut pieces).len(), 2, "what the first lacks");
    assert_eq!(end(&mut stripe_cache, &mut pieces), []);
    assert_eq!(go(&mut stripe_cache, &mut pieces), [(0, PAGE), (7 * STRIPE, PAGE)]);
    assert_eq!(end(&mut stripe_cache, &mut pieces), [1, 2]);
}

#[test]
fn rows_that_are_known_do_not_make_a_round() {
    let (mut stripe_cache, mut pieces) = (made(Level::Raid5, 256, [true; 4], 20626), Vec::new());
    write(&mut stripe_cache, 1, 0, PAGE);
    go(&mut stripe_cache, &mut pieces);
    begin(&mut stripe_cache, 0, 1);
    assert_eq!(end(&mut stripe_cache, &mut pieces), [1]);
    write(&mut stripe_cache, 2, 0, PAGE);
    write(&mut stripe_cache, 3, 7 * STRIPE, PAGE);
    assert_eq!(go(&mut stripe_cache, &mut pieces), [(0, PAGE), (7 * STRIPE, PAGE)]);
}

#[test]
fn a_write_that_goes_on_nowhere_ends_the_pause_for_all_even_if_it_waited_for_heads() {
    for linux in [20621, 20626] {
        // Two rows a stripe: four heads for two stripes.
        let (mut stripe_cache, mut pieces) = (made(Level::Raid5, 4, [true; 4], linux), Vec::new());
        write(&mut stripe_cache, 1, 0, 2 * STRIPE);
        assert_eq!(go(&mut stripe_cache, &mut pieces).len(), 6);
        write(&mut stripe_cache, 2, 7 * STRIPE, PAGE);
        assert_eq!(go(&mut stripe_cache, &mut pieces), [], "no head");
        assert_eq!(end(&mut stripe_cache, &mut pieces), [1]);
        assert_eq!(go(&mut stripe_cache, &mut pieces), [(7 * STRIPE, PAGE)]);
        begin(&mut stripe_cache, 14, 1);
        write(&mut stripe_cache, 3, 7 * STRIPE + PAGE, PAGE);
        assert_eq!(go(&mut stripe_cache, &mut pieces), [], "it goes on");
        write(&mut stripe_cache, 4, 9 * STRIPE, PAGE);
        assert_eq!(
            go(&mut stripe_cache, &mut pieces),
            [(7 * STRIPE + PAGE, PAGE), (9 * STRIPE, PAGE)]
        );
    }
}

#[test]
fn the_rest_of_a_row_without_parity_and_of_old_raid6_is_read_before_it_is_written() {
    let cases = [
        // The first stripe has P on the last member, Q on the first.
        (Level::Raid5, [true, true, true, false], 20625, false),
        (Level::Raid5, [true, true, true, false], 20626, true),
        (Level::Raid5, [true, true, true, false], 30600, true),
        (Level::Raid5, [true, false, true, true], 20626, false),
        (Level::Raid6, [false, true, true, true], 40100, false),
        (Level::Raid6, [true, true, true, false], 40100, false),
        (Level::Raid6, [false, true, true, false], 40100, true),
        // Linux 4.0 has no other way.
        (Level::Raid6, [true; 4], 40000, true),
        (Level::Raid6, [true; 4], 20621, true),
        (Level::Raid6, [true; 4], 40100, false),
        (Level::Raid5, [true; 4], 40000, false),
    ];
    for (level, in_sync, linux, reads) in cases {
        let (mut stripe_cache, mut pieces) = (made(level, 256, in_sync, linux), Vec::new());
        write(&mut stripe_cache, 1, CHUNK, CHUNK);
        let mut gone = Vec::new();
        while let Some(due) = stripe_cache.deadline() {
            stripe_cache.run(due);
            gone.extend(kinds(&mut stripe_cache, &mut pieces));
        }
        gone.extend(kinds(&mut stripe_cache, &mut pieces));
        if reads {
            let rest = if level == Level::Raid5 { vec![0, 2 * CHUNK] } else { vec![0] };
            let rest: Vec<_> = rest.into_iter().map(|lba| (Op::Read, lba, CHUNK)).collect();
            assert_eq!(gone, rest, "{level}, {in_sync:?}, {linux}");
            assert_eq!(end(&mut stripe_cache, &mut pieces), []);
            gone.clear();
            while let Some(due) = stripe_cache.deadline() {
                stripe_cache.run(due);
                gone.extend(kinds(&mut stripe_cache, &mut pieces));
            }
            gone.extend(kinds(&mut stripe_cache, &mut pieces));
        }
        assert_eq!(gone, [(Op::Write, CHUNK, CHUNK)], "{level}, {in_sync:?}, {linux}");
        assert_eq!(end(&mut stripe_cache, &mut pieces), [1]);
    }
}

#[test]
fn a_thread_has_what_its_writer_leaves_at_once() {
    let (mut stripe_cache, mut pieces) = (threaded(256), Vec::new());
    write(&mut stripe_cache, 1, 0, STRIPE);
    assert_eq!(wait(&mut stripe_cache, &mut pieces), whole(0));
    write(&mut stripe_cache, 2, 7 * STRIPE + PAGE, PAGE);
    assert_eq!(wait(&mut stripe_cache, &mut pieces), [(7 * STRIPE + PAGE, PAGE)]);
    assert_eq!(end(&mut stripe_cache, &mut pieces), [1, 2]);
}

#[test]
fn an_incomplete_row_is_held_while_whole_ones_are_under_way() {
    let (mut stripe_cache, mut pieces) = (threaded(256), Vec::new());
    write(&mut stripe_cache, 1, 0, STRIPE);
    write(&mut stripe_cache, 2, STRIPE, CHUNK);
    assert_eq!(wait(&mut stripe_cache, &mut pieces), whole(0));
    assert_eq!(end(&mut stripe_cache, &mut pieces), [1]);
    assert_eq!(wait(&mut stripe_cache, &mut pieces), [(STRIPE, CHUNK)]);
    assert_eq!(end(&mut stripe_cache, &mut pieces), [2]);
}

#[test]
fn what_is_completed_while_it_is_held_goes_whole() {
    let (mut stripe_cache, mut pieces) = (threaded(256), Vec::new());
    write(&mut stripe_cache, 1, 0, STRIPE);
    write(&mut stripe_cache, 2, STRIPE, CHUNK);
    wait(&mut stripe_cache, &mut pieces);
    write(&mut stripe_cache, 3, STRIPE + CHUNK, 2 * CHUNK);
    assert_eq!(wait(&mut stripe_cache, &mut pieces), whole(1));
    assert_eq!(end(&mut stripe_cache, &mut pieces), [1, 2, 3]);
}

#[test]
fn rows_that_many_pass_are_read_for_one_by_one_and_others_when_that_is_done() {
    let (mut stripe_cache, mut pieces) = (threaded(256), Vec::new());
    write(&mut stripe_cache, 1, 0, STRIPE);
    (1..7).for_each(|stripe| write(&mut stripe_cache, 1 + stripe, stripe * STRIPE, CHUNK));
    let gone = wait(&mut stripe_cache, &mut pieces);
    // Of twelve incomplete rows six come with the whole ones, and are held; five of the others pass them.
    assert_eq!(gone[..2], [(0, CHUNK), (CHUNK, CHUNK)]);
    assert_eq!(gone[2..], [(2 * CHUNK, CHUNK), (STRIPE, CHUNK), (2 * STRIPE, CHUNK)]);
    // A whole row is under way still, and the rest of what is held is first.
    begin(&mut stripe_cache, 2, 4);
    assert_eq!(wait(&mut stripe_cache, &mut pieces), []);
    assert_eq!(end(&mut stripe_cache, &mut pieces), [1, 2, 3]);
    assert_eq!(wait(&mut stripe_cache, &mut pieces), [(3 * STRIPE, CHUNK)]);
    assert_eq!(end(&mut stripe_cache, &mut pieces), [4]);
    assert_eq!(wait(&mut stripe_cache, &mut pieces).len(), 3);
    assert_eq!(end(&mut stripe_cache, &mut pieces), [5, 6, 7]);
}

/// As raid5d does it: what came meanwhile goes before who waits for the end can write more.
#[test]
fn a_thread_tells_an_end_when_it_takes_the_row_and_then_writes_what_came() {
    let (mut stripe_cache, mut pieces) = (threaded(8), vec![]);
    write(&mut stripe_cache, 1, 0, PAGE);
    assert_eq!(wait(&mut stripe_cache, &mut pieces), [(0, PAGE)]);
    begin(&mut stripe_cache, 0, 1);
    write(&mut stripe_cache, 2, CHUNK, PAGE);
    assert_eq!(wait(&mut stripe_cache, &mut pieces), [], "its row is under way");
    stripe_cache.ended(pieces.remove(0), Nanos(0));
    assert!(stripe_cache.answers().is_empty(), "the thread has not looked");
    let due = stripe_cache.deadline().unwrap();
    stripe_cache.run(due);
    assert_eq!(stripe_cache.answers(), [1]);
    assert_eq!(wait(&mut stripe_cache, &mut pieces), [(CHUNK, PAGE)]);
}

#[test]
fn a_writer_without_a_head_goes_on_soon_after_a_quarter_is_idle() {
    let (mut stripe_cache, mut pieces) = (threaded(8), Vec::new());
    write(&mut stripe_cache, 1, 0, 5 * STRIPE);
    // Four stripes fill all heads.
    assert_eq!(wait(&mut stripe_cache, &mut pieces).len(), 12);
    let mut first: Vec<u64> = pieces.drain(..6).collect();
    assert_eq!(end(&mut stripe_cache, &mut first), []);
    assert_eq!(wait(&mut stripe_cache, &mut pieces), whole(4));
    assert_eq!(end(&mut stripe_cache, &mut pieces), [1]);
}
