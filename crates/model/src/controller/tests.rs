use super::*;
use crate::channel::Channel;
use crate::profile::builtin;
use crate::volume::Alone;

fn unit(count: usize, cache: u64, level: UnitLevel) -> ControllerUnit {
    let model = builtin::get("ST9146803SS").unwrap().unwrap().build().unwrap();
    let disk = || Box::new(Alone::new(&model, Channel::unbounded())) as Box<dyn Volume>;
    let members = (0..count).map(|_| disk()).collect();
    ControllerUnit::new(ControllerConfig::ware_9690sa(cache, level), members)
}

/// Writes or reads in order at a depth of 8; MB/s until the last is answered.
fn stream(unit: &mut ControllerUnit, op: Op, bytes: u64) -> f64 {
    // As the system's queue sends them.
    let blocks = 1024;
    let (mut sent, mut ended, mut now) = (0, 0, Nanos::ZERO);
    let count = bytes / 512 / blocks;
    while ended < count {
        while sent < count && sent < ended + 8 {
            unit.submit(Request { tag: sent, op, lba: sent * blocks, blocks }, now);
            sent += 1;
        }
        now = unit.next_event().unwrap().max(now);
        while unit.poll(now).is_some() {
            ended += 1;
        }
    }
    bytes as f64 * 1e3 / now.0 as f64
}

#[test]
fn what_fits_the_cache_is_written_at_the_links_speed_and_more_at_the_members() {
    let fits = stream(&mut unit(1, 512 << 20, UnitLevel::Single), Op::Write, 256 << 20);
    assert!((700.0..801.0).contains(&fits), "{fits}");
    // A run and a turn of the platters, 6 ms, one after the other: 1 MiB in 8.1 and 6 ms.
    let more = stream(&mut unit(1, 8 << 20, UnitLevel::Single), Op::Write, 512 << 20);
    assert!((65.0..90.0).contains(&more), "{more}");
}

#[test]
fn stripes_read_side_by_side_and_mirrors_write_twice() {
    let one = stream(&mut unit(1, 8 << 20, UnitLevel::Single), Op::Read, 256 << 20);
    let three = stream(&mut unit(3, 8 << 20, UnitLevel::Stripe(128)), Op::Read, 256 << 20);
    assert!((2.0..3.05).contains(&(three / one)), "{one} {three}");
    let striped = stream(&mut unit(3, 8 << 20, UnitLevel::Stripe(128)), Op::Write, 256 << 20);
    let mirrored =
        stream(&mut unit(6, 8 << 20, UnitLevel::MirroredStripe(128)), Op::Write, 256 << 20);
    assert!((mirrored / striped - 1.0).abs() < 0.05, "{striped} {mirrored}: pairs write together");
}

#[test]
fn writes_at_random_are_sorted_and_joined_and_each_is_answered_once() {
    let mut unit = unit(2, 64 << 20, UnitLevel::Stripe(128));
    let mut state = 1u64;
    for tag in 0..1000 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        let lba = (state >> 33) % 100_000 * 8;
        unit.submit(Request { tag, op: Op::Write, lba, blocks: 8 }, Nanos::ZERO);
    }
    let mut tags = Vec::new();
    while let Some(at) = unit.next_event() {
        tags.extend(std::iter::from_fn(|| unit.poll(at)).map(|done| done.tag));
    }
    tags.sort_unstable();
    assert_eq!(tags, (0..1000).collect::<Vec<_>>());
    assert!(unit.dirty.is_empty() && unit.running.is_none() && unit.dirty_blocks == 0);
}

#[test]
fn both_of_a_pair_read_a_stream_by_turns_and_what_is_scattered_side_by_side() {
    let one = stream(&mut unit(1, 8 << 20, UnitLevel::Single), Op::Read, 256 << 20);
    let mut pair = unit(2, 8 << 20, UnitLevel::MirroredStripe(128));
    let both = stream(&mut pair, Op::Read, 256 << 20);
    let end = (256 << 20) / 512;
    assert_eq!(pair.heads, [end - 128, end], "the last stripe but one, and the last");
    // What the other reads passes below the head in the meantime, and between commands a turn may be lost.
    assert!((0.7..1.05).contains(&(both / one)), "{one} {both}");

    let (far, now) = (pair.blocks() / 2, Nanos(1 << 40));
    let read = |tag, lba| Request { tag, op: Op::Read, lba, blocks: 8 };
    let drain = |pair: &mut ControllerUnit| {
        while let Some(at) = pair.next_event() {
            pair.poll(at);
        }
    };
    pair.submit(read(1000, far), now);
    assert_eq!(pair.under_way, [0, 1], "its head is nearer");
    pair.submit(read(1001, far + 5000), now);
    assert_eq!(pair.under_way, [1, 1], "the nearer one is busy");
    drain(&mut pair);
    assert_eq!((&pair.under_way[..], &pair.heads[..]), (&[0, 0][..], &[far + 5008, far + 8][..]));
    pair.submit(read(1002, far + 100), now);
    assert_eq!(pair.under_way, [0, 1], "its head is nearer");
}

#[test]
fn a_pair_shares_a_stream_by_stripes_wherever_its_pieces_begin() {
    let mut unit = unit(4, 8 << 20, UnitLevel::MirroredStripe(128));
    assert_eq!(unit.shares(1, 50..100).len(), 1, "nothing went before");
    assert_eq!(unit.shares(1, 9000..9008).len(), 1);
    let shares = [(2, 100..128), (3, 128..256), (2, 256..384), (3, 384..400)];
    assert_eq!(unit.shares(1, 100..400), shares, "another reader in between");
    assert_eq!(unit.shares(0, 400..410).len(), 1, "the other pair knows nothing of it");
    assert_eq!(unit.shares(1, 400..410), [(3, 400..410)]);
    for stray in 1..=STREAMS as u64 {
        unit.shares(1, stray * 100_000..stray * 100_000 + 8);
    }
    assert_eq!(unit.shares(1, 410..600).len(), 1, "forgotten over others");
}
