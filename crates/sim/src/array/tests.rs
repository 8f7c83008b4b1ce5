//! Arrays held against closed forms, where these hold.

use super::*;
use lapstrake_geometry::Level;
use lapstrake_metadata::create::BitmapChoice;
use lapstrake_model::profile::builtin;
use lapstrake_model::queue::{QueueConfig, Queued};
use lapstrake_model::rack::{Counts, Rack, SharedRack, Window};
use lapstrake_model::{Channel, DiskModel, Processor, processor};
use std::cell::RefCell;
use std::rc::Rc;

const SECOND: u64 = 1_000_000_000;

fn model(name: &str) -> DiskModel {
    builtin::get(name).unwrap().unwrap().build().unwrap()
}

fn processor() -> Processor {
    processor::get("epyc-2021").unwrap().unwrap().build().unwrap()
}

/// Disks by their profiles' names, each on a link of its own, those with a moving head behind Linux's queue.
fn disks(names: &[&str]) -> (SharedRack, Vec<Leg>) {
    let rack = Rc::new(RefCell::new(Rack::default()));
    let leg = |name: &&str| {
        let model = model(name);
        let rotational = matches!(model, DiskModel::Hard(_));
        let disk = {
            let mut rack = rack.borrow_mut();
            let link = rack.add_channel(Channel::unbounded());
            rack.add_disk(&model, link)
        };
        let window: Box<dyn Volume> = Box::new(Window::whole(&rack, disk));
        let volume: Box<dyn Volume> = match rotational {
            true => Box::new(Queued::new(window, QueueConfig::QUEUED)),
            false => window,
        };
        Leg { volume, rotational }
    };
    let legs = names.iter().map(leg).collect();
    (rack, legs)
}

/// An array of such disks, without a bitmap, and its rack.
fn array(
    level: Level,
    names: &[&str],
    change: impl Fn(&mut ArrayConfig),
) -> (ArrayVolume, SharedRack) {
    let (rack, legs) = disks(names);
    let slots = legs.into_iter().map(SlotState::InSync).collect();
    let mut config = ArrayConfig::new(level, slots, processor());
    config.bitmap = BitmapChoice::None;
    change(&mut config);
    (ArrayVolume::new(config).unwrap(), rack)
}

fn missing(config: &mut ArrayConfig, slot: usize) {
    config.slots[slot] = SlotState::Missing;
}

fn recovering(config: &mut ArrayConfig, slot: usize, from: Sector) {
    let SlotState::InSync(leg) = std::mem::replace(&mut config.slots[slot], SlotState::Missing)
    else {
        panic!()
    };
    config.slots[slot] = SlotState::Recovering(leg, from);
}

/// Places as a load takes them.
#[derive(Clone, Copy)]
enum Way {
    InOrder,
    AtRandom,
}

/// Requests of one size at a depth until `until`; how many were answered.
fn drive(volume: &mut dyn Volume, op: Op, way: Way, blocks: u64, depth: u64, until: u64) -> u64 {
    let slots = volume.blocks() / blocks;
    let mut state = 1u64;
    let mut next = |index: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let place = match way {
            Way::InOrder => index % slots,
            Way::AtRandom => (state >> 16) % slots,
        };
        Request { tag: index, op, lba: place * blocks, blocks }
    };
    let mut begun = 0;
    while begun < depth {
        volume.submit(next(begun), Nanos::ZERO);
        begun += 1;
    }
    let mut ended = 0;
    while let Some(now) = volume.next_event().filter(|now| now.0 < until) {
        while volume.poll(now).is_some() {
            ended += 1;
            volume.submit(next(begun), now);
            begun += 1;
        }
    }
    ended
}

/// Bytes a second in order, in requests of 1 MiB.
fn stream(volume: &mut dyn Volume, op: Op, depth: u64) -> f64 {
    drive(volume, op, Way::InOrder, 2048, depth, 4 * SECOND) as f64 * f64::from(1 << 20) / 4.0
}

fn all_counts(rack: &SharedRack, disks: usize) -> Vec<Counts> {
    (0..disks).map(|disk| rack.borrow().counts(disk, Nanos(100 * SECOND))).collect()
}

#[track_caller]
fn near(found: f64, expected: f64, within: f64) {
    assert!(
        (found / expected - 1.0).abs() < within,
        "{found} is not within {within} of {expected}"
    );
}

#[test]
fn raid0_in_order_is_as_fast_as_its_disks_together() {
    let (_, mut one) = disks(&["hitachi-80"]);
    // Each disk of the arrays has one request at a time, too, or some more.
    let single = stream(&mut *one[0].volume, Op::Read, 1);
    for count in [2, 4] {
        let (mut array, _) = array(Level::Raid0, &vec!["hitachi-80"; count], |_| {});
        near(stream(&mut array, Op::Read, count as u64), single * count as f64, 0.1);
    }
}

#[test]
fn raid1_writes_as_one_disk_and_reads_at_random_as_two() {
    let (_, mut one) = disks(&["hitachi-80"]);
    let written = stream(&mut *one[0].volume, Op::Write, 8);
    let (mut pair, _) = array(Level::Raid1, &["hitachi-80"; 2], |_| {});
    near(stream(&mut pair, Op::Write, 8), written, 0.15);
    let (_, mut one) = disks(&["hitachi-80"]);
    let single = drive(&mut *one[0].volume, Op::Read, Way::AtRandom, 8, 1, 20 * SECOND);
    let (mut pair, _) = array(Level::Raid1, &["hitachi-80"; 2], |_| {});
    let double = drive(&mut pair, Op::Read, Way::AtRandom, 8, 4, 20 * SECOND);
    // Who is near is chosen, so it is more than twice.
    assert!((1.8..3.2).contains(&(double as f64 / single as f64)), "{double} and {single}");
}

#[test]
fn a_small_write_of_raid5_is_two_reads_and_two_writes() {
    let names = ["hitachi-80"; 5];
    let (mut array, rack) = array(Level::Raid5, &names, |_| {});
    let done = drive(&mut array, Op::Write, Way::AtRandom, 8, 32, 30 * SECOND) as f64;
    let counts = all_counts(&rack, 5);
    near(counts.iter().map(|c| c.reads).sum::<u64>() as f64, 2.0 * done, 0.05);
    near(counts.iter().map(|c| c.writes).sum::<u64>() as f64, 2.0 * done, 0.05);
    // Both disks of it are read, then written where they have just been.
    let (_, mut one) = disks(&["hitachi-80"]);
    let single = drive(&mut *one[0].volume, Op::Read, Way::AtRandom, 8, 8, 30 * SECOND) as f64;
    let ratio = done / (single * 5.0 / 4.0);
    // Four accesses as dear as any: 1. Writes that the disk's buffer sorts cost less: up to 2.
    assert!((0.5..2.1).contains(&ratio), "{done} small writes, {single} reads of a disk: {ratio}");
}

#[test]
fn a_full_stripe_is_written_without_a_read() {
    let (mut array, rack) = array(Level::Raid5, &["ssd-sata-1tb"; 4], |config| {
        config.chunk = Some(Sectors(128));
    });
    drive(&mut array, Op::Write, Way::InOrder, 3 * 128, 4, SECOND / 2);
    let counts = all_counts(&rack, 4);
    let reads: u64 = counts.iter().map(|c| c.reads).sum();
    let writes: u64 = counts.iter().map(|c| c.writes).sum();
    assert!(writes > 1000 && reads * 50 < writes, "{counts:?}");
}

#[test]
fn what_is_missing_is_read_from_all_others() {
    let (mut array, rack) = array(Level::Raid5, &["ssd-sata-1tb"; 4], |config| missing(config, 1));
    let done = drive(&mut array, Op::Read, Way::AtRandom, 8, 8, SECOND / 2) as f64;
    let counts = all_counts(&rack, 4);
    assert_eq!(counts[1], Counts::default());
    // Three of four data chunks are there, and the fourth takes three reads.
    let reads: u64 = counts.iter().map(|c| c.reads).sum();
    near(reads as f64, done * (0.75 + 0.25 * 3.0), 0.02);
}

#[test]
fn md_restores_page_by_page_and_reads_what_is_there_at_once() {
    let (mut array, rack) = array(Level::Raid5, &["ssd-sata-1tb"; 3], |config| {
        config.chunk = Some(Sectors(128));
        config.md = Some(20632);
        missing(config, 0);
    });
    // Of three stripes two have data on the missing member.
    let stripes = Request { tag: 0, op: Op::Read, lba: 0, blocks: 3 * 256 };
    array.submit(stripes, Nanos::ZERO);
    assert!(array.poll(Nanos(SECOND)).is_some());
    let counts = all_counts(&rack, 3);
    let reads: u64 = counts.iter().map(|c| c.reads).sum();
    assert_eq!(reads, 4 + 2 * 16 * 2, "{counts:?}");
    assert!(Nanos::ZERO < array.called() && array.called() < array.cpu());
}

#[test]
fn md_reads_for_a_row_without_parity_in_nobodys_time() {
    for (md, reads) in [(20621, 0), (20632, 32), (31600, 32)] {
        let (mut array, rack) = array(Level::Raid5, &["ssd-sata-1tb"; 3], |config| {
            (config.chunk, config.md) = (Some(Sectors(128)), Some(md));
            missing(config, 2);
        });
        // The first of two chunks, the parity of which would be on the last member; twice, and a page elsewhere.
        array.submit(Request { tag: 0, op: Op::Write, lba: 0, blocks: 128 }, Nanos::ZERO);
        assert!(array.poll(Nanos(SECOND)).is_some());
        array.submit(Request { tag: 1, op: Op::Write, lba: 0, blocks: 128 }, Nanos(SECOND));
        array.submit(Request { tag: 2, op: Op::Write, lba: 6 * 256, blocks: 128 }, Nanos(SECOND));
        assert!(array.poll(Nanos(2 * SECOND)).is_some());
        assert!(array.poll(Nanos(2 * SECOND)).is_some());
        let pages: u64 = all_counts(&rack, 3).iter().map(|c| c.read_bytes / 4096).sum();
        assert_eq!((pages, array.called()), (reads, Nanos::ZERO), "{md}");
    }
}

#[test]
fn md_copies_pages_for_mirrors_in_its_callers_time_while_bios_have_one() {
    let called = |level, md| {
        let (mut array, _) = array(level, &["ssd-sata-1tb"; 4], |config| {
            (config.md, config.page) = (Some(md), Nanos(6_000));
        });
        array.submit(Request { tag: 0, op: Op::Write, lba: 0, blocks: 256 }, Nanos::ZERO);
        assert!(array.poll(Nanos(SECOND)).is_some());
        array.called()
    };
    assert_eq!(called(Level::Raid1, 20636), Nanos(32 * 3 * 6_000));
    assert_eq!(called(Level::Raid10, 20636), Nanos(32 * 6_000));
    assert_eq!(called(Level::Raid0, 20636), Nanos::ZERO);
    assert_eq!(called(Level::Raid1, 20637), Nanos::ZERO);
}

#[test]
fn a_stream_to_md_raid5_has_half_the_rate_of_raid0() {
    let rate = |level| {
        let (mut array, _) = array(level, &["hitachi-80"; 4], |config| {
            (config.md, config.page) = (Some(31600), Nanos(1_300));
        });
        stream(&mut array, Op::Write, 32)
    };
    // As the kernel's own: docs/accuracy.md.
    let ratio = rate(Level::Raid5) / rate(Level::Raid0);
    assert!((0.42..0.56).contains(&ratio), "{ratio}");
}

#[test]
fn what_mds_thread_sends_at_once_reaches_members_in_whole_requests() {
    let (mut array, rack) = array(Level::Raid5, &["hitachi-80"; 4], |config| {
        config.chunk = Some(Sectors(1024));
        config.md = Some(31600);
    });
    array.submit(Request { tag: 0, op: Op::Write, lba: 0, blocks: 3 * 1024 }, Nanos::ZERO);
    assert!(array.poll(Nanos(SECOND)).is_some());
    let found = all_counts(&rack, 4).into_iter().map(|c| (c.reads, c.writes, c.written_bytes));
    // And two superblocks: that it is active, and that it is clean.
    let chunk = (0, 1 + 2, (512 << 10) + 2 * 512);
    assert_eq!(found.collect::<Vec<_>>(), [chunk; 4]);
}

#[test]
fn a_writer_fills_the_queues_of_mds_members_that_hold_other_data_or_the_one_of_its_device() {
    let queues = |md| {
        let of = |level| array(level, &["ssd-sata-1tb"; 4], |config| config.md = md).0.queues();
        [Level::Raid0, Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10].map(of)
    };
    assert_eq!(queues(Some(31600)), [4, 1, 3, 2, 2]);
    assert_eq!(queues(None), [1; 5]);
}

#[test]
fn what_md_writes_of_its_own_flushes_members_also_when_it_vouches_for_nothing() {
    // A write whose bit is to be set, right after another that disks have in their buffers.
    let took = |md| {
        let (mut array, _) = array(Level::Raid1, &["hitachi-80"; 2], |config| {
            (config.md, config.bitmap) = (md, BitmapChoice::Internal);
            config.bitmap_chunk = Some(4 << 20);
        });
        let mut now = Nanos::ZERO;
        let mut done = |lba, blocks| {
            let came = now;
            array.submit(Request { tag: 0, op: Op::Write, lba, blocks }, now);
            while array.poll(now).is_none() {
                now = array.next_event().unwrap();
            }
            now.since(came)
        };
        done(0, 2048);
        done(1 << 17, 8)
    };
    let (mds, ours) = (took(Some(31600)), took(None));
    assert!(mds.0 > ours.0 + 4_000_000, "{mds:?} {ours:?}");
}

#[test]
fn a_rebuild_goes_as_fast_as_the_slowest_disk_there() {
    for level in [Level::Raid1, Level::Raid5] {
        let names: &[&str] =
            if level == Level::Raid1 { &["hitachi-80"; 2] } else { &["hitachi-80"; 4] };
        for at in [0, 120_000_000u64] {
            let (_, mut one) = disks(&["hitachi-80"]);
            let slowest = {
                let volume = &mut one[0].volume;
                let mut lba = at;
                let mut now = Nanos::ZERO;
                let mut done = 0;
                while now.0 < 4 * SECOND {
                    volume.submit(Request { tag: 0, op: Op::Read, lba, blocks: 2048 }, now);
                    while volume.poll(now).is_none() {
                        now = volume.next_event().unwrap();
                    }
                    lba += 2048;
                    done += 1 << 20;
                }
                f64::from(done) / 4.0
            };
            let (mut array, _) =
                array(level, names, |config| recovering(config, names.len() - 1, Sector(at)));
            let _ = array.poll(Nanos(10 * SECOND));
            let progress = array.progress().expect("it runs");
            let rate = (progress.done.0 - at) as f64 * 512.0 / 10.0;
            near(rate, slowest, 0.25);
        }
    }
}

/// As Linux 7.2 did: all of a RAID1's stream of one disk, a RAID10's of all.
#[test]
fn md_keeps_the_stream_of_a_mirror_on_one_disk() {
    for (level, md, is_on_one) in [
        (Level::Raid1, Some(70200), true),
        (Level::Raid1, None, false),
        (Level::Raid10, Some(70200), false),
    ] {
        let (mut array, rack) = array(level, &["ssd-sata-1tb"; 2], |config| config.md = md);
        stream(&mut array, Op::Read, 4);
        let [first, second] = [0, 1].map(|disk| all_counts(&rack, 2)[disk].read_bytes);
        assert!(first > 1 << 30, "{level}, {md:?}: {first}");
        match is_on_one {
            true => assert_eq!(second, 0, "{level}, {md:?}"),
            false => near(second as f64, first as f64, 0.1),
        }
    }
    let (mut array, rack) = array(Level::Raid1, &["ssd-sata-1tb"; 2], |it| it.md = Some(70200));
    drive(&mut array, Op::Read, Way::AtRandom, 8, 4, SECOND);
    let [first, second] = [0, 1].map(|disk| all_counts(&rack, 2)[disk].reads as f64);
    near(second, first, 0.1);
}

/// As Linux 7.2 did, writing 256 KiB at a time past the page cache: it read two parts of three, and wrote each with its parity.
#[test]
fn direct_writes_are_read_for_at_once() {
    let (mut array, rack) = array(Level::Raid5, &["ssd-sata-1tb"; 4], |config| {
        (config.md, config.is_direct, config.page) = (Some(70200), true, Nanos(1_000));
    });
    let ended = drive(&mut array, Op::Write, Way::InOrder, 512, 1, SECOND) as f64;
    let counts = all_counts(&rack, 4);
    let all = |of: fn(&Counts) -> u64| counts.iter().map(of).sum::<u64>() as f64;
    near(all(|it| it.reads), ended * 2.0 / 3.0, 0.05);
    near(all(|it| it.writes), ended * 2.0, 0.05);
}

#[test]
fn a_rebuild_ends_and_is_told() {
    let (rack, mut legs) = disks(&["ssd-sata-1tb"; 2]);
    let small = |index| -> Box<dyn Volume> { Box::new(Window::new(&rack, index, 0, 1 << 20)) };
    for (index, leg) in legs.iter_mut().enumerate() {
        leg.volume = small(index);
    }
    let mut legs = legs.into_iter();
    let slots = vec![
        SlotState::InSync(legs.next().unwrap()),
        SlotState::Recovering(legs.next().unwrap(), Sector(0)),
    ];
    let mut array = ArrayVolume::new(ArrayConfig::new(Level::Raid1, slots, processor())).unwrap();
    assert!(array.poll(Nanos(20 * SECOND)).is_none());
    let [(SyncAction::Recovery, SyncEnd::Done, at)] = array.ended() else {
        panic!("{:?}", array.ended());
    };
    assert!((SECOND / 2..3 * SECOND).contains(&at.0), "{at:?}");
    assert!(array.progress().is_none());
    let written = rack.borrow().counts(1, Nanos(20 * SECOND)).written_bytes;
    assert!(written > 500 << 20, "{written}");
}

#[test]
fn more_than_the_level_survives_cannot_be_missing() {
    let (_, legs) = disks(&["ssd-sata-1tb"; 3]);
    let slots = legs.into_iter().enumerate().map(|(slot, leg)| match slot {
        0 => SlotState::InSync(leg),
        1 => SlotState::Recovering(leg, Sector(0)),
        _ => SlotState::Missing,
    });
    let error = ArrayVolume::new(ArrayConfig::new(Level::Raid5, slots.collect(), processor()));
    assert!(matches!(error, Err(ArrayError::Lost { lost: 2, slots: 3, .. })), "{error:?}");
}

#[test]
fn the_same_calls_give_the_same_answers() {
    let run = || {
        let (mut array, rack) =
            array(Level::Raid6, &["hitachi-80"; 5], |config| missing(config, 4));
        let done = drive(&mut array, Op::Write, Way::AtRandom, 8, 8, 5 * SECOND);
        (done, array.cpu(), all_counts(&rack, 5))
    };
    assert_eq!(run(), run());
}

#[test]
fn a_slow_processor_bounds_parity() {
    let rate = |xor_ps| {
        let (mut array, _) = array(Level::Raid5, &["ssd-nvme-1tb"; 4], |config| {
            config.chunk = Some(Sectors(128));
            config.processor.xor_ps = xor_ps;
        });
        stream(&mut array, Op::Write, 8)
    };
    // 10 ns a byte of data: no more than 100 MB/s.
    let slow = rate(10_000);
    assert!((60e6..101e6).contains(&slow), "{slow}");
    assert!(rate(50) > 5.0 * slow);
}

#[test]
fn arrays_nest() {
    let (_, legs) = disks(&["hitachi-80"; 4]);
    let mut legs = legs.into_iter();
    let mut pair = || {
        let slots = legs.by_ref().take(2).map(SlotState::InSync).collect();
        let array = ArrayVolume::new(ArrayConfig::new(Level::Raid1, slots, processor())).unwrap();
        Leg { volume: Box::new(array), rotational: true }
    };
    let slots = vec![SlotState::InSync(pair()), SlotState::InSync(pair())];
    let mut nested = ArrayVolume::new(ArrayConfig::new(Level::Raid0, slots, processor())).unwrap();
    let (_, mut one) = disks(&["hitachi-80"]);
    let single = stream(&mut *one[0].volume, Op::Write, 8);
    near(stream(&mut nested, Op::Write, 8), 2.0 * single, 0.15);
    assert!(nested.cpu() > Nanos::ZERO);
}

#[test]
fn the_time_of_a_rebuild_by_its_speed_at_places_is_that_which_it_takes() {
    let blocks = 6_000_000;
    let make = |from: Sector| {
        let (rack, _) = disks(&["hitachi-80"; 2]);
        let leg =
            |disk| Leg { volume: Box::new(Window::new(&rack, disk, 0, blocks)), rotational: true };
        let slots = vec![SlotState::InSync(leg(0)), SlotState::Recovering(leg(1), from)];
        ArrayVolume::new(ArrayConfig::new(Level::Raid1, slots, processor()))
    };
    let told = sync_time(3, 0, make).unwrap();
    let mut lived = make(Sector(0)).unwrap();
    let _ = lived.poll(Nanos(200 * SECOND));
    let [(_, SyncEnd::Done, at)] = lived.ended() else { panic!("{:?}", lived.ended()) };
    near(told.takes.unwrap().0 as f64, at.0 as f64, 0.05);
    // A run-up and a second, at the beginning and at each place.
    assert_eq!(told.lived, Nanos(4 * SECOND * 5 / 4));
}

#[test]
fn a_resync_reads_all_and_writes_nothing_where_all_agrees() {
    let (mut array, rack) = array(Level::Raid5, &["hitachi-80"; 3], |config| {
        config.resync_from = Some(Sector(0));
    });
    let _ = array.poll(Nanos(5 * SECOND));
    assert_eq!(array.progress().unwrap().action, SyncAction::Resync);
    let counts = all_counts(&rack, 3);
    let (read, written) = (counts[0].read_bytes, counts[0].written_bytes);
    assert!(read > 100 << 20 && written < 1 << 20, "{counts:?}");
}

/// When random writes are answered, by their tags, while a caller goes from moment to moment or skips what it cannot see.
fn answers(level: Level, md: Option<u32>, out: Option<usize>, skips: bool) -> Vec<(u64, Nanos)> {
    let (mut array, _) = array(level, &["hitachi-80"; 4], |config| {
        (config.md, config.page) = (md, Nanos(1_000));
        out.into_iter().for_each(|slot| missing(config, slot));
    });
    let mut answers = Vec::new();
    let place = |tag: u64| tag * 7919 % 4096 * 8;
    let write = |tag| Request { tag, op: Op::Write, lba: place(tag), blocks: 8 };
    (0..64).for_each(|tag| array.submit(write(tag), Nanos::ZERO));
    let mut begun = 64;
    while answers.len() < 512 {
        let next = if skips { array.go_on(Nanos::MAX, Nanos::MAX) } else { array.next_event() };
        let now = next.expect("writes are under way");
        while let Some(done) = array.poll(now) {
            answers.push((done.tag, done.at));
            array.submit(write(begun), now);
            begun += 1;
        }
    }
    answers
}

#[test]
fn skipping_what_nobody_sees_changes_no_answer() {
    for (level, md, out) in [
        (Level::Raid0, Some(31600), None),
        (Level::Raid5, Some(31600), None),
        (Level::Raid5, Some(31600), Some(1)),
        (Level::Raid5, Some(20632), None),
        (Level::Raid5, Some(20632), Some(1)),
        (Level::Raid5, None, None),
    ] {
        let of = |skips| answers(level, md, out, skips);
        assert_eq!(of(true), of(false), "{level}, {md:?}, {out:?}");
    }
}

#[test]
fn going_on_stops_at_the_limit_and_at_the_look() {
    let (mut array, _) = array(Level::Raid0, &["hitachi-80"; 4], |_| {});
    array.submit(Request { tag: 1, op: Op::Read, lba: 1 << 20, blocks: 8 }, Nanos::ZERO);
    // The core takes it in at once.
    assert_eq!(array.go_on(Nanos::MAX, Nanos::ZERO), Some(Nanos::ZERO));
    let first = array.next_event().unwrap();
    assert_eq!(array.go_on(Nanos(first.0 - 1), Nanos::ZERO), None);
    assert_eq!(array.go_on(Nanos::MAX, Nanos::ZERO), Some(first));
    let end = array.go_on(Nanos::MAX, Nanos::MAX).unwrap();
    assert!(end > first && array.poll(end).is_some_and(|done| done.tag == 1 && done.at == end));
}

/// What it takes to give a RAID5 of three one more member, on disks of this profile; and the bytes of each member.
fn growth(name: &str) -> (f64, f64) {
    let config = || {
        let (_, legs) = disks(&[name; 3]);
        let slots = legs.into_iter().map(SlotState::InSync).collect();
        ArrayConfig {
            bitmap: BitmapChoice::None,
            ..ArrayConfig::new(Level::Raid5, slots, processor())
        }
    };
    let more = || disks(&[name]).1;
    let moved = GrowingArray::moved_share(&config(), &more()).unwrap();
    assert!((moved - 2.0 / 3.0).abs() < 0.001, "two thirds have data: {moved}");
    let make = |from| GrowingArray::new(config(), more(), from);
    let took = growth_time(4, moved, 0, make).unwrap().takes.unwrap();
    (took.0 as f64 / 1e9, model(name).blocks() as f64 * 512.0)
}

#[test]
fn a_growth_reads_all_data_and_writes_all_members() {
    // Each of the old members reads two thirds of itself and writes all.
    let (took, bytes) = growth("ssd-sata-1tb");
    let rate = bytes * 5.0 / 3.0 / took;
    assert!((150e6..600e6).contains(&rate), "{rate}");
    // Heads go to and fro, and superblocks are written after each window.
    let (took, bytes) = growth("hdd-4tb");
    let rate = bytes * 5.0 / 3.0 / took;
    assert!((30e6..150e6).contains(&rate), "{rate}");
}
