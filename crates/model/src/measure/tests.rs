//! From the outside alone, what hidden models are made of.

use super::*;
use crate::channel::Channel;
use crate::disk::{Disk, DiskModel};
use crate::profile::{Kind, LayoutForm, Profile, builtin};
use crate::request::{Op, Request};
use crate::seek::SeekTable;
use std::convert::Infallible;

/// A model that is read as a disk is.
struct Simulated {
    disk: Disk,
    blocks: u64,
    now: Nanos,
}

impl Simulated {
    fn new(model: &DiskModel) -> Self {
        Self { disk: model.disk(), blocks: model.blocks(), now: Nanos::ZERO }
    }
}

impl Target for Simulated {
    type Error = Infallible;

    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&mut self, lba: u64, blocks: u64) -> Result<(Nanos, Nanos), Infallible> {
        let start = self.now;
        self.read_many(&[(lba, blocks)], 1)?;
        Ok((start, self.now))
    }

    fn read_many(&mut self, places: &[(u64, u64)], depth: usize) -> Result<Nanos, Infallible> {
        let start = self.now;
        let mut channel = Channel::unbounded();
        let (mut sent, mut ended) = (0, 0);
        while ended < places.len() {
            while sent < places.len() && sent - ended < depth {
                let (lba, blocks) = places[sent];
                let request = Request { tag: sent as u64, op: Op::Read, lba, blocks };
                self.disk.submit(request, self.now, &mut channel);
                sent += 1;
            }
            self.now = self.disk.next_event(&channel).expect("reads are under way");
            while self.disk.poll(self.now, &mut channel).is_some() {
                ended += 1;
            }
        }
        Ok(self.now.since(start))
    }

    fn pause(&mut self, time: Nanos) {
        self.now += time;
    }
}

fn hidden(name: &str, seed: u64, change: impl Fn(&mut Profile)) -> (Profile, Findings) {
    let mut profile = builtin::get(name).unwrap().unwrap();
    change(&mut profile);
    let mut target = Simulated::new(&profile.build().unwrap());
    let mut steps = 0;
    let findings = measure(&mut target, seed, &mut |_, done| {
        steps += 1;
        (0.0..=1.0).contains(&done)
    });
    assert!(steps > 3);
    (profile, findings.unwrap())
}

fn near(what: &str, found: f64, is: f64, part: f64) {
    assert!((found / is - 1.0).abs() <= part, "{what}: found {found}, it is {is}");
}

/// Whether what was found is what the profile says: rotation within 0.1 %, the others within 5 %.
fn agrees(profile: &Profile, findings: &Findings) {
    let (Kind::HardDisk(disk), Findings::HardDisk(found)) = (&profile.kind, findings) else {
        panic!("{findings:?}")
    };
    let turn = 60_000.0 / disk.rotation.value;
    near("period", found.period_ms.value, turn, 0.001);
    assert!(found.period_ms.low <= turn && turn <= found.period_ms.high, "{:?}", found.period_ms);
    let LayoutForm::Rates(rates) = &disk.layout.value else { panic!() };
    near("outer rate", found.zones_mb_s[0].1, rates.outer_mb_s, 0.05);
    near("inner rate", found.zones_mb_s.last().unwrap().1, rates.inner_mb_s, 0.05);
    let SeekTable::ThreePoint { single_ms, average_ms, full_ms } = disk.seek.value else {
        panic!()
    };
    let single = single_ms.max(disk.head_switch.value);
    near("single seek", found.single_seek_ms.value, single, 0.05);
    near("average seek", found.average_seek_ms.value, average_ms, 0.05);
    near("full seek", found.full_seek_ms.value, full_ms, 0.05);
    let costs = disk.overheads.value;
    near("hit", found.hit_overhead_ms.value, costs.read_hit.after_write, 0.05);
    // The luck of the shortest of many is a thousandth of a turn or so.
    let miss = costs.read_miss.after_read.min(costs.read_miss.after_write);
    let off = (found.miss_overhead_ms.value - miss).abs();
    assert!(
        off < (miss * 0.05).max(turn * 0.006),
        "miss: {:?}, it is {miss}",
        found.miss_overhead_ms
    );
    near("link", found.link_mb_s.value, disk.interface.value, 0.05);
    near(
        "read-ahead",
        found.read_ahead_blocks as f64,
        disk.buffer.value.segment_blocks as f64,
        0.05,
    );
    assert_eq!(found.segments, disk.buffer.value.segments);
}

#[test]
fn a_desktop_disk_is_recovered() {
    for seed in 1..4 {
        let (profile, findings) = hidden("seagate-250-x510", seed, |_| {});
        agrees(&profile, &findings);
    }
}

#[test]
fn a_disk_without_a_queue_at_an_odd_speed_is_recovered() {
    let (profile, findings) = hidden("ST340015A", 4, |profile| {
        let Kind::HardDisk(disk) = &mut profile.kind else { panic!() };
        disk.rotation.value = 5397.3;
        disk.buffer.value.segments = 5;
        disk.caching.value.read_ahead_on_hit = true;
        // Its own curve is of points, whose mean depends on the layout.
        let (single_ms, average_ms, full_ms) = (1.2, 12.5, 24.0);
        disk.seek.value = SeekTable::ThreePoint { single_ms, average_ms, full_ms };
    });
    agrees(&profile, &findings);
    let again = findings.profile("again", "hidden");
    let Kind::HardDisk(disk) = &again.kind else { panic!() };
    assert_eq!(disk.queue.value.depth, 1);
}

#[test]
fn a_profile_made_of_findings_answers_as_the_disk_does() {
    let (profile, findings) = hidden("hitachi-80", 5, |_| {});
    agrees(&profile, &findings);
    let made = findings.profile("made", "hidden");
    let again = Profile::from_toml(&made.to_toml().unwrap()).unwrap();
    assert_eq!(again, made);
    let rate = |profile: &Profile, depth| {
        let mut target = Simulated::new(&profile.build().unwrap());
        let places: Vec<(u64, u64)> =
            (0..1000).map(|index| (index * 7_654_321 % 160_000_000, 8)).collect();
        target.read_many(&places, depth).unwrap().as_ms()
    };
    for depth in [1, 8, 32] {
        near("random reads", rate(&made, depth), rate(&profile, depth), 0.1);
    }
}

/// What makes another disk of a profile.
type Change = fn(&mut Profile);

/// Within 5 %: what solid-state disks of three kinds, and one that was never built, are made of.
#[test]
fn solid_disks_are_told_from_those_that_turn_and_recovered() {
    let never: Change = |profile| {
        let Kind::SolidDisk(disk) = &mut profile.kind else { panic!() };
        disk.read.value = 210.0;
        disk.read_command.value = 7.3;
        (disk.read_rate.value, disk.interface.value) = (1234.0, 1300.0);
        // Deep enough to keep the controller busy; else the queue would be what is measured.
        (disk.units.value, disk.queue.value) = (64, 256);
    };
    let cases: [(&str, Change); 4] = [
        ("ssd-sata-1tb", |_| {}),
        ("ssd-nvme-1tb", |_| {}),
        ("ssd-nvme-server", |_| {}),
        ("ssd-sata-1tb", never),
    ];
    for (seed, (name, change)) in (6..).zip(cases) {
        let (profile, findings) = hidden(name, seed, change);
        let Kind::SolidDisk(disk) = &profile.kind else { panic!() };
        let Findings::SolidDisk(found) = &findings else { panic!("{findings:?}") };
        let link_us = 4096.0 / disk.interface.value;
        let latency = disk.read.value + disk.read_command.value + link_us;
        near(&format!("{name}: latency"), found.latency_us.value, latency, 0.05);
        let most = found.reads.iter().map(|reads| reads.1.value).fold(0.0, f64::max);
        let command_us = disk.read_command.value.max(4096.0 / disk.read_rate.value).max(link_us);
        near(&format!("{name}: reads"), most, 1e6 / command_us, 0.05);
        let rate = found.rates_mb_s.last().unwrap().2.value;
        near(&format!("{name}: rate"), rate, disk.read_rate.value, 0.05);
        let made = findings.profile("made", "hidden");
        made.build().unwrap();
        let Kind::SolidDisk(again) = &made.kind else { panic!() };
        near(&format!("{name}: read"), again.read.value, disk.read.value, 0.05);
        for figure in [&again.read, &again.read_command, &again.read_rate, &again.interface] {
            let (low, high) = figure.interval.unwrap();
            assert!(low <= figure.value && figure.value <= high, "{name}: {figure:?}");
            assert_eq!(
                figure.confidence,
                crate::profile::Confidence::Measured,
                "{name}: {figure:?}"
            );
        }
    }
}

#[test]
fn noise_does_not_make_a_profile_that_no_disk_has() {
    let (_, findings) = hidden("hitachi-80", 5, |_| {});
    let Findings::HardDisk(found) = findings else { panic!() };
    let noises: [fn(&mut HardFindings); 5] = [
        |found| found.zones_mb_s.reverse(),
        |found| found.average_seek_ms.value = found.single_seek_ms.value * 1.01,
        |found| found.full_seek_ms.value = found.average_seek_ms.value * 0.9,
        |found| found.hit_overhead_ms.value = -0.01,
        |found| (found.segments, found.read_ahead_blocks) = (0, 0),
    ];
    for (index, noise) in noises.into_iter().enumerate() {
        let mut noisy = found.clone();
        noise(&mut noisy);
        let made = Findings::HardDisk(noisy).profile("made", "noise");
        made.build().unwrap_or_else(|error| panic!("{index}: {error}"));
    }
}

#[test]
fn passes_that_differ_make_a_guess_with_wide_bounds() {
    let even = Measured::of_passes(&mut [100.0, 101.0, 99.0, 100.0, 100.0, 100.0, 100.0]);
    assert!(even.value == 100.0 && even.spread() < 0.02, "{even:?}");
    let noise = Measured::of_passes(&mut [100.0, 5000.0, 200.0, 300.0, 150.0, 120.0, 4000.0]);
    assert!(noise.low > 0.0 && noise.low <= 100.0, "{noise:?}");
    let rate = Measured::of_passes(&mut [1064.0, 2445.0, 1661.0, 1100.0, 2000.0, 1500.0, 1700.0]);
    assert!(rate.low <= 1064.0 && rate.high >= 2445.0, "{rate:?}");
    let findings = Findings::SolidDisk(SolidFindings {
        blocks: 1 << 30,
        latency_us: Measured::about(80.0, 1.0),
        reads: vec![(1, Measured::about(12_000.0, 100.0))],
        rates_mb_s: vec![(2048, 8, rate)],
    });
    let made = findings.profile("made", "test");
    made.build().unwrap();
    let Kind::SolidDisk(disk) = &made.kind else { panic!() };
    assert_eq!(disk.interface.confidence, crate::profile::Confidence::Guess);
    assert!(disk.interface.source.contains("passes differ"), "{:?}", disk.interface);
    assert_eq!(disk.read_command.confidence, crate::profile::Confidence::Measured);
    assert_eq!(Profile::from_toml(&made.to_toml().unwrap()).unwrap(), made);
}

#[test]
fn it_can_be_broken_off_and_refuses_what_is_too_small() {
    let model = builtin::get("ST340015A").unwrap().unwrap().build().unwrap();
    let aborted = measure(&mut Simulated::new(&model), 1, &mut |_, done| done < 0.2);
    assert_eq!(aborted, Err(MeasureError::Aborted));
    let mut small = Simulated::new(&model);
    small.blocks = 1000;
    let refused = measure(&mut small, 1, &mut |_, _| true);
    assert_eq!(refused, Err(MeasureError::TooSmall { blocks: 1000, least: 1 << 18 }));
}
