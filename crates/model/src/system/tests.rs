use super::load::{LoadPhase, bonnie, hdparm, iozone};
use super::*;
use crate::benchmark::{Bonnie, Iozone};
use crate::channel::Channel;
use crate::disk::DiskModel;
use crate::processor;
use crate::profile::builtin;
use crate::queue::{QueueConfig, Queued};
use crate::request::Completion;
use crate::volume::Alone;
use std::collections::BTreeSet;

/// A device of which each of `lanes` does one request at a time, in a time of its own.
struct Fixed {
    lanes: Vec<Nanos>,
    each: Nanos,
    done: BTreeSet<(Nanos, u64)>,
}

impl Fixed {
    fn volume(lanes: usize, each: Nanos) -> Box<dyn Volume> {
        Box::new(Self { lanes: vec![Nanos::ZERO; lanes], each, done: BTreeSet::new() })
    }
}

impl Volume for Fixed {
    fn blocks(&self) -> u64 {
        1 << 26
    }
    fn submit(&mut self, request: Request, now: Nanos) {
        let lane = self.lanes.iter_mut().min().unwrap();
        *lane = (*lane).max(now) + self.each;
        self.done.insert((*lane, request.tag));
    }
    fn poll(&mut self, now: Nanos) -> Option<Completion> {
        let &(at, tag) = self.done.first().filter(|(at, _)| *at <= now)?;
        self.done.pop_first();
        Some(Completion { tag, at })
    }
    fn next_event(&self) -> Option<Nanos> {
        self.done.first().map(|(at, _)| *at)
    }
    fn cpu(&self) -> Nanos {
        Nanos::ZERO
    }
}

fn config(memory: u64, file_system: FileSystem) -> SystemConfig {
    let processor = processor::get("pentium-e5200").unwrap().unwrap().build().unwrap();
    SystemConfig::linux(31600, memory, file_system, processor)
}

fn disk(name: &str) -> (DiskModel, Box<dyn Volume>) {
    let model = builtin::get(name).unwrap().unwrap().build().unwrap();
    let alone = Box::new(Alone::new(&model, Channel::unbounded()));
    (model, Box::new(Queued::new(alone, QueueConfig::QUEUED)))
}

fn find<'a>(phases: &'a [LoadPhase], name: &str) -> &'a LoadPhase {
    phases.iter().find(|phase| phase.name == name).unwrap()
}

#[test]
fn a_large_file_is_read_and_written_at_the_disks_speed() {
    let (_, volume) = disk("hitachi-80");
    let mut system = System::new(config(256 << 20, FileSystem::Ext4), volume);
    let load = Bonnie { characters: 0, seeks: 0, ..Bonnie::v2_00(1 << 30) };
    let parts = bonnie(&mut system, &load, 1).unwrap();
    let media = 74.5e6;
    let read = find(&parts, "block input").rate() / media;
    assert!((0.9..1.01).contains(&read), "{read}");
    let write = find(&parts, "block output").rate() / media;
    assert!((0.85..1.05).contains(&write), "{write}");
}

#[test]
fn a_disk_alone_gives_hdparm_its_outermost_rate() {
    let (_, volume) = disk("hitachi-80");
    let mut system = System::new(config(1 << 30, FileSystem::Ext4), volume);
    let rate = hdparm(&mut system).rate() / 74.5e6;
    assert!((0.93..1.01).contains(&rate), "{rate}");
}

#[test]
fn what_is_in_the_cache_costs_copies_and_calls_alone() {
    let config = config(1 << 30, FileSystem::Ext4);
    let processor = config.processor;
    let (_, volume) = disk("hitachi-80");
    let mut system = System::new(config, volume);
    let load = Iozone { tests: vec![0, 1], size: 64 << 20, record: PAGE, flush: false };
    let parts = iozone(&mut system, &load, 1).unwrap();
    let pages = (64 << 20) / PAGE;
    let read = processor.system_call + processor.copy(PAGE);
    assert_eq!(find(&parts, "reread").time, read * pages);
    let write = find(&parts, "write").time;
    assert_eq!(write, (read + processor.page_write) * pages, "no disk is waited for");
}

#[test]
fn seekers_share_a_device_as_their_number_and_its_lanes_let_them() {
    let each = Nanos(10_000_000);
    for (lanes, seekers, expected) in [(1, 1, 100.0), (1, 3, 100.0), (2, 3, 200.0), (8, 3, 300.0)] {
        let mut config = config(64 << 20, FileSystem::Ext4);
        config.memory = 68 << 20;
        let mut system = System::new(config, Fixed::volume(lanes, each));
        let file = system.create((8 << 30) / PAGE).unwrap();
        let load = Bonnie { seekers, seeks: 2000, ..Bonnie::v1_03(8 << 30) };
        let part = load::seeks_alone(&mut system, file, &load, 3);
        // One in ten writes, which goes to the device behind the readers' backs.
        let rate = part.rate() / expected;
        assert!((0.88..1.03).contains(&rate), "{lanes} lanes, {seekers} seekers: {rate}");
    }
}

#[test]
fn writers_wait_when_too_much_is_dirty_and_fsync_leaves_nothing() {
    let mut system =
        System::new(config(1 << 30, FileSystem::Ext3), Fixed::volume(1, Nanos(5_000_000)));
    let most = system.config().dirty_max();
    let file = system.create(2 * most).unwrap();
    (0..2 * most).for_each(|page| {
        system.write(file, page..page + 1);
        assert!(system.cache.unwritten() <= most);
    });
    // All that was beyond the threshold has gone to the device, in its largest requests.
    let requests = most / system.config().request_pages();
    assert!(system.now() >= Nanos(5_000_000) * (requests - 1), "{:?}", system.now());
    system.fsync(file);
    assert_eq!(system.cache.unwritten_of(file), 0);
}

#[test]
fn write_back_that_has_begun_goes_on_for_a_turn() {
    for (version, memory, turn) in [
        (20621, 1 << 30, 1024),
        // Of 32,768, what the device's queue takes.
        (20632, 2 << 30, 128 * 128),
        (31600, 236 << 20, 2048),
        // 85 % of it are for the page cache, a fifth of these may be dirty; an eighth of that is 4,874 pages.
        (31600, 896 << 20, 5120),
        (31600, 32 << 30, 13_312),
    ] {
        let processor = processor::get("pentium-e5200").unwrap().unwrap().build().unwrap();
        let config = SystemConfig::linux(version, memory, FileSystem::Ext4, processor);
        let background = config.background();
        let mut system = System::new(config, Fixed::volume(1, Nanos(3_000_000_000)));
        let file = system.create(2 * background).unwrap();
        (0..=background).for_each(|page| system.write(file, page..page + 1));
        assert_eq!(background + 1 - system.cache.dirty(), turn, "{version}, {memory} bytes");
    }
}

#[test]
fn the_same_load_takes_the_same_time() {
    let run = || {
        let (_, volume) = disk("hitachi-80");
        let mut system = System::new(config(128 << 20, FileSystem::Ext3), volume);
        bonnie(&mut system, &Bonnie { seeks: 200, ..Bonnie::v1_03(256 << 20) }, 9).unwrap()
    };
    assert_eq!(run(), run());
}

#[test]
fn ext3_breaks_a_file_at_groups_and_indirect_blocks_and_ext4_does_not() {
    let runs = |file_system| {
        let mut system = System::new(config(1 << 30, file_system), Fixed::volume(1, Nanos(1)));
        let file = system.create((256 << 20) / PAGE).unwrap();
        let place = &system.places[file.0];
        let (mut page, mut count) = (0, 0);
        while page < place.pages() {
            page = place.run(page, place.pages()).end;
            count += 1;
        }
        count
    };
    // 64 indirect blocks between 65 runs, and a border of groups or two.
    assert!((65..=68).contains(&runs(FileSystem::Ext3)), "{}", runs(FileSystem::Ext3));
    assert_eq!(runs(FileSystem::Ext4), 1);
}
