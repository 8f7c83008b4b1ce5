use super::*;
use crate::profile::builtin;

/// Keeps `depth` commands of `blocks` at a disk; gives commands in a second and bytes in a second.
fn rates(name: &str, op: Op, depth: u64, blocks: u64, count: u64, is_random: bool) -> (f64, f64) {
    let model = builtin::get(name).unwrap().unwrap().build().unwrap();
    let mut disk = model.disk();
    let mut channel = Channel::unbounded();
    let places = model.blocks() / blocks;
    let request = |tag: u64| {
        let place = if is_random { tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8 } else { tag };
        Request { tag, op, lba: place % places * blocks, blocks }
    };
    let (mut now, mut sent, mut ended) = (Nanos::ZERO, 0, 0);
    while ended < count {
        while sent < count && sent - ended < depth {
            disk.submit(request(sent), now, &mut channel);
            sent += 1;
        }
        now = disk.next_event(&channel).expect("commands are under way");
        while disk.poll(now, &mut channel).is_some() {
            ended += 1;
        }
    }
    let seconds = now.0 as f64 / 1e9;
    (count as f64 / seconds, (count * blocks * 512) as f64 / seconds)
}

#[test]
fn depth_brings_reads_until_the_controller_is_busy() {
    let iops = |depth| rates("ssd-nvme-1tb", Op::Read, depth, 8, 20_000, true).0;
    let (one, eight, many) = (iops(1), iops(8), iops(512));
    assert!((19_000.0..25_000.0).contains(&one), "{one}");
    assert!(eight > 6.5 * one, "{one}, {eight}");
    assert!((800_000.0..=1_000_000.0).contains(&many), "{many}");
}

#[test]
fn large_reads_run_at_the_rate_of_the_data_sheet() {
    let rate = rates("ssd-sata-1tb", Op::Read, 4, 256, 4_000, false).1;
    assert!((530e6..565e6).contains(&rate), "{rate}");
}

#[test]
fn writes_slow_down_when_the_fast_cells_are_full() {
    let rate = |megabytes: u64| rates("ssd-nvme-1tb", Op::Write, 8, 2048, megabytes, false).1;
    let (short, long) = (rate(10_000), rate(250_000));
    assert!((4.6e9..5.3e9).contains(&short), "{short}");
    assert!((2.2e9..3.2e9).contains(&long), "{long}");
}

#[test]
fn random_writes_of_a_server_disk_are_amplified() {
    let (iops, _) = rates("ssd-nvme-server", Op::Write, 32, 8, 60_000, true);
    assert!((150_000.0..190_000.0).contains(&iops), "{iops}");
}

#[test]
fn two_writers_in_order_and_large_scattered_writes_are_hardly_amplified() {
    let model = builtin::get("ssd-nvme-server").unwrap().unwrap().build().unwrap();
    let half = model.blocks() / 2;
    // Each writer goes on where it was; between them goes a page that is written again and again.
    let place = |tag: u64| match tag % 3 {
        2 => (model.blocks() - 8, 8),
        writer => (writer * half + tag / 3 * 2048, 2048),
    };
    let (mut disk, mut channel) = (model.disk(), Channel::unbounded());
    let (mut now, mut bytes) = (Nanos::ZERO, 0);
    for tag in 0..12_000 {
        let (lba, blocks) = place(tag);
        disk.submit(Request { tag, op: Op::Write, lba, blocks }, now, &mut channel);
        bytes += blocks * 512;
        now = disk.next_event(&channel).expect("a command is under way");
        while disk.poll(now, &mut channel).is_some() {}
    }
    let two = bytes as f64 / (now.0 as f64 / 1e9);
    let (_, one) = rates("ssd-nvme-server", Op::Write, 1, 2048, 8_000, false);
    assert!((0.9..1.05).contains(&(two / one)), "{two} and {one}");
    let (_, large) = rates("ssd-nvme-server", Op::Write, 4, 32_768, 500, true);
    assert!((0.7..1.0).contains(&(large / one)), "{large} and {one}");
}

#[test]
fn a_flush_waits_for_the_buffer_unless_its_power_is_backed() {
    let flush = |name: &str| {
        let model = builtin::get(name).unwrap().unwrap().build().unwrap();
        let (mut disk, mut channel) = (model.disk(), Channel::unbounded());
        let write = Request { tag: 0, op: Op::Write, lba: 0, blocks: 8192 };
        disk.submit(write, Nanos::ZERO, &mut channel);
        let now = disk.next_event(&channel).unwrap();
        assert!(disk.poll(now, &mut channel).is_some());
        disk.submit(Request { tag: 1, op: Op::Flush, lba: 0, blocks: 0 }, now, &mut channel);
        disk.next_event(&channel).unwrap().since(now)
    };
    let (without, with) = (flush("ssd-sata-1tb"), flush("ssd-nvme-server"));
    assert!(with < Nanos(50_000) && without > Nanos(500_000), "{with:?}, {without:?}");
}
