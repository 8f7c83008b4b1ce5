//! Whole disks, from outside: rates, times, order, and that every command ends once.

use crate::channel::Channel;
use crate::dice::Dice;
use crate::disk::{Disk, DiskModel};
use crate::hard::ReadAhead;
use crate::profile::builtin;
use crate::request::{Completion, Op, Request};
use crate::{HardDiskModel, Nanos};
use std::sync::Arc;

fn model(name: &str) -> DiskModel {
    builtin::get(name).unwrap().unwrap().build().unwrap()
}

fn hard(name: &str) -> HardDiskModel {
    match model(name) {
        DiskModel::Hard(model) => (*model).clone(),
        DiskModel::Solid(_) => panic!("{name} has no arm"),
    }
}

fn of(model: HardDiskModel) -> DiskModel {
    DiskModel::Hard(Arc::new(model))
}

/// Keeps `depth` commands at the disk until `next` has no more; gives when each ended.
fn run(
    disk: &mut Disk,
    depth: usize,
    start: Nanos,
    mut next: impl FnMut(u64) -> Option<Request>,
) -> Vec<Completion> {
    let mut channel = Channel::unbounded();
    let (mut now, mut tag, mut ended) = (start, 0, Vec::new());
    let mut submit = |disk: &mut Disk, now, channel: &mut Channel| {
        if let Some(request) = next(tag) {
            disk.submit(Request { tag, ..request }, now, channel);
            tag += 1;
        }
    };
    for _ in 0..depth {
        submit(disk, now, &mut channel);
    }
    while let Some(event) = disk.next_event(&channel) {
        assert!(event >= now, "time goes back from {now:?} to {event:?}");
        now = event;
        while let Some(completion) = disk.poll(now, &mut channel) {
            ended.push(completion);
            submit(disk, now, &mut channel);
        }
    }
    ended
}

fn sequential(disk: &DiskModel, op: Op, first: u64) -> f64 {
    sequential_by(disk, op, first, 256)
}

fn sequential_by(disk: &DiskModel, op: Op, first: u64, blocks: u64) -> f64 {
    let count = 2000;
    let ended = run(&mut disk.disk(), 1, Nanos::ZERO, |tag| {
        (tag < count).then(|| Request { tag, op, lba: first + tag * blocks, blocks })
    });
    let bytes = (count * blocks * 512) as f64;
    bytes / ended.last().unwrap().at.0 as f64 * 1e3
}

fn random(disk: &DiskModel, op: Op, depth: usize, count: u64) -> f64 {
    let mut dice = Dice::new(1);
    let limit = disk.blocks() - 8;
    let ended = run(&mut disk.disk(), depth, Nanos::ZERO, |tag| {
        (tag < count).then(|| Request { tag, op, lba: dice.below(limit), blocks: 8 })
    });
    assert_eq!(ended.len() as u64, count);
    ended.last().unwrap().at.as_ms() / count as f64
}

#[test]
fn a_stream_runs_at_the_rate_of_the_zone() {
    let disk = model("seagate-250-x510");
    let inner = disk.blocks() - 600_000;
    for op in [Op::Read, Op::Write] {
        let (outer_rate, inner_rate) = (sequential(&disk, op, 0), sequential(&disk, op, inner));
        assert!((92.0..99.0).contains(&outer_rate), "{op:?}: {outer_rate} MB/s outside");
        assert!((45.5..49.0).contains(&inner_rate), "{op:?}: {inner_rate} MB/s inside");
    }
}

#[test]
fn a_stream_without_write_cache_loses_a_turn_each_time() {
    let model = hard("ST9146803SS");
    let rate = sequential(&of(model.clone()), Op::Write, 0);
    let turn = model.mechanism.rotation.period().as_ms();
    let one_a_turn = 256.0 * 512.0 / turn / 1e3;
    assert!(rate < 1.1 * one_a_turn && rate > 0.4 * one_a_turn, "{rate} against {one_a_turn} MB/s");
}

#[test]
fn writes_that_do_not_join_one_under_way_lose_a_turn_by_the_room_whatever_their_size() {
    let mut model = hard("seagate-250-x510");
    let (room, turn) = (4096, model.mechanism.rotation.period().as_ms());
    model.cache.dirty_blocks_max = room;
    let joined = sequential(&of(model.clone()), Op::Write, 0);
    model.cache.combines_under_way = false;
    let model = of(model);
    let bytes = room as f64 * 512.0 / 1e3;
    let expected = bytes / (bytes / joined + turn);
    for blocks in [128, 256, 1024] {
        let rate = sequential_by(&model, Op::Write, 0, blocks);
        assert!((0.85..1.05).contains(&(rate / expected)), "{rate} {expected} MB/s by {blocks}");
    }
}

#[test]
fn a_stream_of_writes_that_skips_a_few_blocks_loses_no_turn() {
    let disk = model("seagate-250-x510");
    let rate = |gap: u64| {
        let (blocks, count) = (1024, 500);
        let ended = run(&mut disk.disk(), 1, Nanos::ZERO, |tag| {
            let lba = tag * (blocks + gap);
            (tag < count).then_some(Request { tag, op: Op::Write, lba, blocks })
        });
        ended.last().unwrap().at.as_ms() / count as f64
    };
    let turn = 60_000.0 / 7200.0;
    let (whole, few, many) = (rate(0), rate(8), rate(24));
    assert!(few < whole + 0.1 * turn && many > whole + 0.3 * turn, "{whole} {few} {many}");
}

#[test]
fn a_random_read_takes_overhead_seek_and_half_a_turn() {
    let model = hard("seagate-250-x510");
    let turn = model.mechanism.rotation.period().as_ms();
    let mean = random(&of(model), Op::Read, 1, 4000);
    let expected = 0.25 + 10.0 + turn / 2.0;
    assert!((mean / expected - 1.0).abs() < 0.03, "{mean} against {expected} ms");
}

#[test]
fn a_queue_and_a_write_cache_shorten_the_way() {
    let disk = model("seagate-250-x510");
    let (one, many) = (random(&disk, Op::Read, 1, 2000), random(&disk, Op::Read, 32, 2000));
    assert!(many < 0.6 * one, "depth 1: {one} ms, depth 32: {many} ms");
    let write = random(&disk, Op::Write, 1, 4000);
    assert!(write < 0.75 * one, "read {one} ms, cached write {write} ms");
    let mut fcfs = hard("seagate-250-x510");
    fcfs.order = super::Order::Fcfs;
    let fcfs = random(&of(fcfs), Op::Read, 32, 2000);
    assert!(fcfs > 0.95 * one, "first come, first served: {fcfs} against {one} ms");
}

#[test]
fn a_buffer_with_room_is_emptied_in_runs_between_reads() {
    let took = |room| {
        let mut model = hard("hitachi-80");
        model.cache.dirty_extents_max = room;
        // In so small an area one stream would answer all reads.
        model.caches_reads = false;
        let mut dice = Dice::new(1);
        let ended = run(&mut of(model).disk(), 32, Nanos::ZERO, |tag| {
            let op = if tag % 2 == 0 { Op::Read } else { Op::Write };
            (tag < 2000).then(|| Request { tag, op, lba: 8 * dice.below(1000), blocks: 8 })
        });
        ended.last().unwrap().at.0
    };
    let (little, much) = (took(4), took(64));
    assert!(much * 3 < little * 2, "{much} {little}");
}

#[test]
fn elevators_save_less_than_looking_at_the_angle() {
    let with = |order| {
        let mut model = hard("seagate-250-x510");
        model.order = order;
        random(&of(model), Op::Read, 32, 2000)
    };
    let sptf = with(super::Order::Sptf { ageing: 0.0 });
    let look = with(super::Order::CLook);
    let scan = with(super::Order::VScan { turn: 0.2 });
    let fcfs = with(super::Order::Fcfs);
    assert!(sptf < look && look < fcfs && scan < fcfs, "{sptf} {look} {scan} {fcfs}");
}

#[test]
fn ageing_bounds_the_longest_wait() {
    let longest = |ageing| {
        let mut model = hard("seagate-250-x510");
        model.order = super::Order::Sptf { ageing };
        let (mut dice, mut starts) = (Dice::new(2), Vec::new());
        let mut disk = of(model.clone()).disk();
        let mut channel = Channel::unbounded();
        let (mut now, mut worst, mut tag) = (Nanos::ZERO, Nanos::ZERO, 0);
        while tag < 3000 || disk.next_event(&channel).is_some() {
            while tag < 3000 && starts.len() as u64 <= tag && disk_inside(&starts) < 32 {
                let lba = dice.below(model.blocks() - 8);
                disk.submit(Request { tag, op: Op::Read, lba, blocks: 8 }, now, &mut channel);
                starts.push(Some(now));
                tag += 1;
            }
            now = disk.next_event(&channel).unwrap();
            while let Some(completion) = disk.poll(now, &mut channel) {
                let start = starts[completion.tag as usize].take().unwrap();
                worst = worst.max(completion.at.since(start));
            }
        }
        worst
    };
    let (greedy, aged) = (longest(0.0), longest(0.3));
    assert!(aged < greedy, "{greedy:?} without, {aged:?} with");
}

fn disk_inside(starts: &[Option<Nanos>]) -> usize {
    starts.iter().flatten().count()
}

#[test]
fn a_stream_takes_along_what_waited_for_its_blocks() {
    let turn = 60e3 / 7200.0;
    let first = 24_000_000_000;
    for angle in 0..16 {
        let begin = Nanos::from_ms(turn / 16.0 * f64::from(angle));
        // Some of the first are more than a turn away when they come; those after them come when the stream does.
        let ended = run(&mut model("hdd-20tb").disk(), 4, begin, |tag| {
            let (lba, blocks) =
                if tag == 0 { (first, 640) } else { (first + 512 + tag * 128, 128) };
            (tag < 100).then_some(Request { tag, op: Op::Read, lba, blocks })
        });
        let last = ended.last().unwrap().at;
        let order: Vec<u64> = ended.iter().map(|completion| completion.tag).collect();
        assert!(order.is_sorted(), "at {angle}: {order:?}");
        assert!(last.since(begin).as_ms() < 7.0 * turn, "at {angle}: {last:?}");
    }
}

#[test]
fn a_stream_without_end_does_not_keep_others_from_the_arm() {
    let first = 24_000_000_000;
    // Reads in order, one of elsewhere, later a write that is to be on the media, and one of what has long passed.
    let next = |tag: u64| match tag {
        20 => Request { tag, op: Op::Read, lba: 0, blocks: 8 },
        1000 => Request { tag, op: Op::Write, lba: 0, blocks: 8 },
        1001 => Request { tag, op: Op::Flush, lba: 0, blocks: 0 },
        1500 => Request { tag, op: Op::Read, lba: first, blocks: 8 },
        _ => Request { tag, op: Op::Read, lba: first + tag * 128, blocks: 128 },
    };
    let ended =
        run(&mut model("hdd-20tb").disk(), 6, Nanos::ZERO, |tag| (tag < 4000).then(|| next(tag)));
    let at = |tag| ended.iter().find(|completion| completion.tag == tag).unwrap().at;
    assert!(at(4000 - 1).as_ms() > 1000.0, "{:?}", at(4000 - 1));
    assert!(at(20).since(at(19)).as_ms() < 500.0, "{:?}", at(20).since(at(19)));
    assert!(at(1001).since(at(999)).as_ms() < 100.0, "{:?}", at(1001).since(at(999)));
    assert!(at(1500).since(at(1499)).as_ms() < 400.0, "{:?}", at(1500).since(at(1499)));
}

#[test]
fn what_was_read_is_read_again_from_the_buffer() {
    let disk = model("seagate-250-x510");
    let read = |tag| Request { tag, op: Op::Read, lba: 1_000_000, blocks: 8 };
    let ended = run(&mut disk.disk(), 1, Nanos::ZERO, |tag| (tag < 2).then(|| read(tag)));
    let again = ended[1].at.since(ended[0].at);
    assert!(again < Nanos(200_000), "{again:?}");
}

/// What reads of 64 blocks take, each of which begins 100 ms after the end of the one before.
fn with_pauses<const N: usize>(model: HardDiskModel, places: [u64; N]) -> [Nanos; N] {
    let (mut disk, mut channel) = (of(model).disk(), Channel::unbounded());
    let mut now = Nanos::ZERO;
    places.map(|lba| {
        let request = Request { tag: 0, op: Op::Read, lba, blocks: 64 };
        disk.submit(request, now, &mut channel);
        let end = loop {
            let next = disk.next_event(&channel).unwrap();
            if let Some(completion) = disk.poll(next, &mut channel) {
                break completion.at;
            }
        };
        let takes = end.since(now);
        now = end + Nanos(100_000_000);
        takes
    })
}

#[test]
fn a_window_reads_on_to_the_next_track_after_any_read_and_others_after_one_that_goes_on() {
    let with = |over_requested| {
        let mut model = hard("seagate-250-x510");
        model.read_ahead = ReadAhead::NextTrack;
        model.read_ahead_over_requested = over_requested;
        with_pauses(model, [1_000_000, 1_000_064, 1_000_128]).map(|takes| takes < Nanos(1_000_000))
    };
    assert_eq!(with(true), [false, true, true]);
    assert_eq!(with(false), [false, false, true]);
}

#[test]
fn a_disk_that_knows_streams_reads_ahead_after_a_read_that_goes_on_and_not_behind_a_gap() {
    let with = |read_ahead, firsts: [u64; 4]| {
        let mut model = hard("SP1614N");
        model.read_ahead = read_ahead;
        with_pauses(model, firsts).map(|takes| takes < Nanos(600_000))
    };
    let (in_order, gaps) = (
        [1_000_000, 1_000_064, 1_000_128, 1_000_192],
        [1_000_000, 1_000_128, 1_000_256, 1_000_384],
    );
    assert_eq!(with(ReadAhead::Segment, in_order), [false, true, true, true]);
    assert_eq!(with(ReadAhead::Streams, in_order), [false, false, true, true]);
    assert_eq!(with(ReadAhead::Segment, gaps), [false, true, true, true]);
    assert_eq!(with(ReadAhead::Streams, gaps), [false; 4]);
}

#[test]
fn a_disk_that_knows_streams_fills_its_segment_before_it_turns_to_the_other_of_two() {
    let rate = |read_ahead| {
        let mut model = hard("SP1614N");
        model.read_ahead = read_ahead;
        let count = 400;
        let ended = run(&mut of(model).disk(), 2, Nanos::ZERO, |tag| {
            let lba = tag / 2 * 256 + tag % 2 * 100_000_000;
            (tag < count).then_some(Request { tag, op: Op::Read, lba, blocks: 256 })
        });
        (count * 256 * 512) as f64 / ended.last().unwrap().at.0 as f64 * 1e3
    };
    let (one, streams) = (rate(ReadAhead::Segment), rate(ReadAhead::Streams));
    assert!(streams > 2.0 * one, "{one} and {streams} MB/s");
}

#[test]
fn data_go_to_the_host_when_their_watermark_is_in_the_buffer() {
    let takes = |read_watermark, segment_blocks| {
        let mut model = hard("seagate-250-x510");
        // A link as slow as the media, so that it matters when it begins.
        model.block_ps = 8_000_000;
        model.read_watermark = read_watermark;
        model.cache.segment_blocks = segment_blocks;
        with_pauses(model, [1_000_000])[0]
    };
    let (at_once, half, whole) = (takes(0.0, 256), takes(0.5, 256), takes(1.0, 256));
    let link = Nanos(64 * 8_000);
    assert!(half.since(at_once) > Nanos(100_000) && half < whole, "{at_once:?}, {half:?}");
    assert!(whole.since(at_once) <= link, "{at_once:?}, {whole:?}");
    assert_eq!(takes(1.0, 32), half, "of a segment at most");
}

#[test]
fn what_a_hit_costs_after_a_pause_is_that_after_a_write_unless_it_outlasts() {
    let again = |outlasts| {
        let mut model = hard("seagate-250-x510");
        let costs = &mut model.overheads;
        (costs.read_hit.after_read, costs.read_hit.after_write) =
            (Nanos(1_000_000), Nanos(3_000_000));
        costs.read_hit_outlasts = outlasts;
        with_pauses(model, [1_000_000, 1_000_064])[1]
    };
    assert_eq!(again(false).since(again(true)), Nanos(2_000_000));
}

#[test]
fn a_flush_waits_for_what_was_written_before_it() {
    let disk = model("seagate-250-x510");
    let mut dice = Dice::new(3);
    let limit = disk.blocks() - 8;
    let ended = run(&mut disk.disk(), 1, Nanos::ZERO, |tag| {
        let op = if tag == 20 { Op::Flush } else { Op::Write };
        (tag <= 20).then(|| Request { tag, op, lba: dice.below(limit), blocks: 8 })
    });
    let (writes, flush) = (ended[19].at, ended[20].at.since(ended[19].at));
    assert!(writes < Nanos::from_ms(5.0), "20 cached writes took {writes:?}");
    assert!(flush > Nanos::from_ms(60.0), "the flush took {flush:?}");
    let idle = run(&mut disk.disk(), 1, Nanos::ZERO, |tag| {
        (tag == 0).then_some(Request { tag, op: Op::Flush, lba: 0, blocks: 0 })
    });
    assert!(idle[0].at < Nanos::from_ms(1.0));
}

#[test]
fn a_cable_that_is_held_carries_one_command_at_a_time() {
    let disk = model("ST340015A");
    let mut disks = [disk.disk(), disk.disk()];
    let mut channel = Channel::held(100_000_000);
    let alone = run(&mut disk.disk(), 1, Nanos::ZERO, |tag| {
        (tag == 0).then_some(Request { tag, op: Op::Read, lba: 50_000_000, blocks: 256 })
    })[0]
        .at;
    for (tag, disk) in (0..).zip(&mut disks) {
        let request = Request { tag, op: Op::Read, lba: 50_000_000, blocks: 256 };
        disk.submit(request, Nanos::ZERO, &mut channel);
    }
    let mut ended = Vec::new();
    while let Some(now) = disks.iter().filter_map(|disk| disk.next_event(&channel)).min() {
        ended.extend(disks.iter_mut().filter_map(|disk| disk.poll(now, &mut channel)));
    }
    assert_eq!(ended.len(), 2);
    assert!(ended[1].at > ended[0].at + Nanos(alone.0 / 4), "{ended:?}, alone {alone:?}");
}

#[test]
fn a_shingled_disk_writes_its_log_in_a_row() {
    let model = hard("hdd-8tb-shingled");
    // 4 KiB at a band's front goes to its place among all that go to the log.
    let band = model.shingles.unwrap().band_blocks;
    let mut dice = Dice::new(7);
    let count = 40_000;
    let ended = run(&mut of(model.clone()).disk(), 32, Nanos::ZERO, |tag| {
        let lba = if tag % 9_000 == 100 { band } else { 8 * dice.below(model.blocks() / 8) };
        (tag < count).then_some(Request { tag, op: Op::Write, lba, blocks: 8 })
    });
    let rate = 1e3 * count as f64 / ended.last().unwrap().at.as_ms();
    assert!((8_000.0..25_000.0).contains(&rate), "{rate} writes a second");
}

#[test]
fn a_shingled_disk_slows_down_when_its_cache_zone_is_full() {
    let mut model = hard("hdd-8tb-shingled");
    model.shingles = Some(super::Shingles { band_blocks: 65_536, cache_blocks: 4_000 });
    let early = random(&of(model.clone()), Op::Write, 8, 400);
    model.cache.dirty_extents_max = 8;
    let late = random(&of(model), Op::Write, 8, 2_000);
    assert!(late > 20.0 * early, "{early} ms, then {late} ms");
}

#[test]
fn every_command_ends_once_and_a_run_is_the_same_each_time() {
    for name in builtin::names() {
        let disk = model(name);
        let go = || {
            let mut dice = Dice::new(4);
            let mut last = 0_u64;
            run(&mut disk.disk(), 16, Nanos::ZERO, |tag| {
                let blocks = 1 + dice.below(600);
                let lba = match dice.below(4) {
                    0 => last,
                    1 => last.saturating_sub(dice.below(500)),
                    _ => dice.below(disk.blocks()),
                };
                let lba = lba.min(disk.blocks() - blocks);
                last = lba + blocks;
                let op = match dice.below(20) {
                    0 => Op::Flush,
                    1 => Op::WriteThrough,
                    2..8 => Op::Write,
                    _ => Op::Read,
                };
                (tag < 3000).then_some(Request { tag, op, lba, blocks })
            })
        };
        let ended = go();
        let mut tags: Vec<u64> = ended.iter().map(|completion| completion.tag).collect();
        tags.sort_unstable();
        assert!(tags.iter().copied().eq(0..3000), "{name}: each command ends once");
        assert_eq!(ended, go(), "{name}");
    }
}

#[test]
fn places_on_one_track_are_reached_as_each_by_itself() {
    let model = hard("hitachi-80");
    let mechanism = &model.mechanism;
    let arm = mechanism.layout.extent(1 << 20).track;
    let now = Nanos(123_456_789);
    let mut reach = mechanism.reach(arm, true);
    for lba in (1 << 20..(1 << 20) + 20_000).step_by(72) {
        for now in [now, now + Nanos(520_000)] {
            let time = reach.time(now, &mechanism.layout.extent(lba).spot());
            assert_eq!(time, mechanism.access_time(arm, now, lba, true), "{lba}");
        }
    }
}
