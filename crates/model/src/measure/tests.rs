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

#[test]
fn a_solid_disk_is_told_from_one_that_turns() {
    let (profile, findings) = hidden("ssd-sata-1tb", 6, |_| {});
    let Kind::SolidDisk(disk) = &profile.kind else { panic!() };
    let Findings::SolidDisk(found) = &findings else { panic!("{findings:?}") };
    near("latency", found.latency_us, disk.read.value + disk.read_command.value, 0.15);
    let most = found.reads.last().unwrap().1;
    near("reads", most, 1e6 / disk.read_command.value, 0.05);
    let rate = found.rates_mb_s.last().unwrap().2;
    near("rate", rate, disk.read_rate.value, 0.05);
    findings.profile("made", "hidden").build().unwrap();
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
