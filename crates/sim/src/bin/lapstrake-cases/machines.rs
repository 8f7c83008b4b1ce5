//! The machines of the cases: disks, cables, controllers, and the arrays that a row names.
//!
//! What is not published is one guess for a whole machine, with its cause beside it, never one for a row.

use crate::table::{Case, Figures, SINGLE};
use lapstrake_geometry::{Layout, Level, Sectors};
use lapstrake_metadata::create::BitmapChoice;
use lapstrake_model::profile::builtin;
use lapstrake_model::rack::{Rack, SharedRack, Window};
use lapstrake_model::system::load::{Bonnie, Iozone, Part, bonnie, hdparm, iozone};
use lapstrake_model::system::{FileSystem, System, SystemConfig};
use lapstrake_model::{
    Bounded, Channel, ControllerConfig, ControllerUnit, DiskModel, Processor, QueueConfig, Queued,
    UnitLevel, Volume, processor,
};
use lapstrake_sim::array::{ArrayConfig, ArrayVolume, Leg, Seat};
use std::cell::RefCell;
use std::rc::Rc;

const GIB: u64 = 1 << 30;
const MIB: f64 = 1_048_576.0;
/// Loads draw places from it; another seed moves seeks by a per cent.
const SEED: u64 = 1;

fn cpu(name: &str) -> Processor {
    let profile = processor::get(name).expect("it is built in").expect("a test reads it");
    profile.build().expect("a test builds it")
}

fn model(name: &str) -> DiskModel {
    let profile = builtin::get(name).expect("it is built in").expect("a test reads it");
    profile.build().expect("a test builds it")
}

/// Part of a disk, behind the system's queue: `bytes` from a share of the disk on.
fn part(
    rack: &SharedRack,
    disk: usize,
    from: f64,
    bytes: u64,
    queue: QueueConfig,
) -> Box<dyn Volume> {
    let has = Window::whole(rack, disk).blocks();
    let blocks = (bytes / 512).min(has) / 2048 * 2048;
    let first = ((has as f64 * from) as u64).min(has - blocks) / 2048 * 2048;
    Box::new(Queued::new(Box::new(Window::new(rack, disk, first, blocks)), queue))
}

fn array(
    level: Level,
    members: Vec<Option<Box<dyn Volume>>>,
    processor: Processor,
    change: impl Fn(&mut ArrayConfig),
) -> Option<Box<dyn Volume>> {
    let seat = |volume| Seat::InSync(Leg { volume, rotational: true });
    let seats = members.into_iter().map(|member| member.map_or(Seat::Missing, seat)).collect();
    let mut config = ArrayConfig::new(level, seats, processor);
    config.bitmap = BitmapChoice::None;
    change(&mut config);
    // These are md's arrays: what they write is in their stripe cache meanwhile.
    let parities = if level == Level::Raid6 { 2 } else { 1 };
    let data = config.seats.len().saturating_sub(parities) as u64;
    let stripe_cache = u64::from(config.stripe_cache) * 8 * data;
    let array = Box::new(ArrayVolume::new(config).ok()?);
    Some(if level.is_parity() { Box::new(Bounded::new(array, stripe_cache)) } else { array })
}

fn rate(parts: &[Part], name: &str) -> f64 {
    parts.iter().find(|part| part.name == name).map_or(f64::NAN, Part::rate)
}

fn cpu_percent(parts: &[Part], name: &str) -> f64 {
    parts.iter().find(|part| part.name == name).map_or(f64::NAN, Part::cpu_percent)
}

/// Three IDE disks on two cables. Partitions: a behind three quarters of its disk, b and c behind a tenth, c2
/// behind a quarter, where the disks have the rates of their rows. Cables: 66 MB/s, of boards of that processor.
pub fn ide(case: &Case, row: usize) -> Option<Figures> {
    let processor = cpu("duron-1300");
    let rack: SharedRack = Rc::new(RefCell::new(Rack::default()));
    let cables = [0, 1].map(|_| rack.borrow_mut().add_channel(Channel::held(66_000_000)));
    let [a, b, c] = [("ST3160215A", 0), ("ST340015A", 0), ("SP1614N", 1)]
        .map(|(name, cable)| rack.borrow_mut().add_disk(&model(name), cables[cable]));
    let places = [("a", a, 0.75), ("b", b, 0.1), ("c", c, 0.1), ("c2", c, 0.25)];
    let member = |name: &str| -> Option<Option<Box<dyn Volume>>> {
        if name == "-" {
            return Some(None);
        }
        let (_, disk, from) = places.into_iter().find(|place| place.0 == name)?;
        Some(Some(part(&rack, disk, from, 10_000_000_000, QueueConfig::IDE)))
    };
    let members: Option<Vec<_>> = case.field(row, "members").split('+').map(member).collect();
    let mut members = members?;
    let chunked = |config: &mut ArrayConfig| config.chunk = Some(Sectors(128));
    let level = case.field(row, "level");
    let volume = match level {
        "single" => members.remove(0)?,
        "raid0" => array(Level::Raid0, members, processor, chunked)?,
        "raid1" => array(Level::Raid1, members, processor, |_| {})?,
        "raid5" => array(Level::Raid5, members, processor, chunked)?,
        _ => return None,
    };
    let config = SystemConfig::linux(20621, GIB, FileSystem::Ext3, processor);
    let mut system = System::new(config, volume);
    let load = Bonnie { characters: 0, ..Bonnie::v1_03(4 * GIB) };
    let parts = bonnie(&mut system, &load, SEED)?;
    let mut figures = Figures::from([
        ("read_mb_s", rate(&parts, "block input") / MIB),
        ("read_cpu_pct", cpu_percent(&parts, "block input")),
        ("write_mb_s", rate(&parts, "block output") / MIB),
        ("write_cpu_pct", cpu_percent(&parts, "block output")),
        ("seeks_s", rate(&parts, "seeks")),
    ]);
    if level == "single" {
        figures.insert(SINGLE, 1.0);
    }
    Some(figures)
}

/// One Seagate and three Hitachi on links of their own. Partitions of 4 GB behind a fifth of the disks, since there are
/// systems on them; a 32-bit kernel, of whose memory 896 MiB count for dirty pages; chunks of 512 KiB, mdadm's default.
pub fn home(case: &Case, row: usize) -> Option<Figures> {
    let processor = cpu("pentium-e5200");
    let name = case.field(row, "config");
    let make = || -> Option<System> {
        let rack: SharedRack = Rc::new(RefCell::new(Rack::default()));
        let disk = |model_name: &str, from: f64| {
            let link = rack.borrow_mut().add_channel(Channel::unbounded());
            let disk = rack.borrow_mut().add_disk(&model(model_name), link);
            part(&rack, disk, from, 4 << 30, QueueConfig::QUEUED)
        };
        let volume = match name {
            "seagate-250" => disk("seagate-250-x510", 0.0),
            "hitachi-80" => disk("hitachi-80", 0.0),
            _ => {
                let mut words = name.split(' ');
                let level = words.next()?;
                let layout = if level == "raid10" { words.next() } else { None };
                let count: usize = words.next()?.parse().ok()?;
                let names = ["seagate-250-x510", "hitachi-80", "hitachi-80", "hitachi-80"];
                let members =
                    names.get(..count)?.iter().map(|name| Some(disk(name, 0.2))).collect();
                let level = match level {
                    "raid0" => Level::Raid0,
                    "raid1" => Level::Raid1,
                    "raid5" => Level::Raid5,
                    "raid10" => Level::Raid10,
                    _ => return None,
                };
                let layout =
                    layout.map(|layout| Layout::from_name(level, layout)).transpose().ok()?;
                let change = |config: &mut ArrayConfig| {
                    config.chunk = (level != Level::Raid1).then_some(Sectors(1024));
                    config.layout = layout;
                };
                array(level, members, processor, change)?
            }
        };
        let mut config = SystemConfig::linux(31600, 2 * GIB, FileSystem::Ext4, processor);
        config.low_memory = 896 << 20;
        Some(System::new(config, volume))
    };
    let mut figures = Figures::from([("hdparm_mb_s", hdparm(&mut make()?).rate() / MIB)]);
    if name.starts_with("seagate") || name.starts_with("hitachi") {
        figures.insert(SINGLE, 1.0);
        return Some(figures);
    }
    let load = Iozone { tests: vec![0, 2], size: GIB, record: 4096, flush: false };
    let parts = iozone(&mut make()?, &load, SEED)?;
    figures.extend([
        ("iozone_write_kb_s", rate(&parts, "write") / 1024.0),
        ("iozone_rewrite_kb_s", rate(&parts, "rewrite") / 1024.0),
        ("iozone_random_write_kb_s", rate(&parts, "random write") / 1024.0),
    ]);
    Some(figures)
}

/// RAID5 of three disks of 2 TB. A "small chunk" of the bitmap is 4 MiB.
pub fn raid5(case: &Case, row: usize) -> Option<Figures> {
    let processor = cpu("pentium-e5200");
    let name = case.field(row, "config");
    let pages = name.split(' ').nth(1)?.parse().ok()?;
    let bitmap_chunk = match name.split_once("bitmap chunk ") {
        Some((_, size)) => size.split(' ').next()?.parse::<u32>().ok()? << 20,
        None => 4 << 20,
    };
    let rack: SharedRack = Rc::new(RefCell::new(Rack::default()));
    let disk = || {
        let link = rack.borrow_mut().add_channel(Channel::unbounded());
        let disk = rack.borrow_mut().add_disk(&model("sata-2tb-2011"), link);
        Some(part(&rack, disk, 0.0, u64::MAX, QueueConfig::QUEUED))
    };
    let members = (0..3).map(|_| disk()).collect();
    let volume = array(Level::Raid5, members, processor, |config| {
        config.bitmap = BitmapChoice::Internal;
        config.bitmap_chunk = Some(bitmap_chunk);
        config.stripe_cache = pages;
    })?;
    let config = SystemConfig::linux(20632, 2 * GIB, FileSystem::Ext4, processor);
    let load = Bonnie { characters: 0, seeks: 10, ..Bonnie::v2_00(4 * GIB) };
    let parts = bonnie(&mut System::new(config, volume), &load, SEED)?;
    Some(Figures::from([("write_mb_s", rate(&parts, "block output") / MIB)]))
}

/// Six SAS disks behind a controller: its own RAID10, or md over its single-disk units, each with a sixth of the cache.
/// Its makers tell to raise the read-ahead of its volumes to 8 MiB; md sets its own.
pub fn sas(case: &Case, row: usize) -> Option<Figures> {
    let processor = cpu("xeon-e5520");
    let rack: SharedRack = Rc::new(RefCell::new(Rack::default()));
    let disk = || -> Box<dyn Volume> {
        let link = rack.borrow_mut().add_channel(Channel::unbounded());
        let disk = rack.borrow_mut().add_disk(&model("ST9146803SS"), link);
        Box::new(Window::whole(&rack, disk))
    };
    const CACHE: u64 = 448 << 20;
    let unit = |cache, level, members| -> Box<dyn Volume> {
        let config = ControllerConfig::ware_9690sa(cache, level);
        Box::new(Queued::new(Box::new(ControllerUnit::new(config, members)), QueueConfig::QUEUED))
    };
    let mut config = SystemConfig::linux(20629, 32 * GIB, FileSystem::Ext3, processor);
    let name = case.field(row, "config");
    let single = || Some(unit(CACHE / 6, UnitLevel::Single, vec![disk()]));
    let chunked = |config: &mut ArrayConfig| config.chunk = Some(Sectors(128));
    let volume = if name.starts_with("3ware RAID10") {
        config.read_ahead_pages = (8 << 20) / 4096;
        let members = (0..6).map(|_| disk()).collect();
        unit(CACHE, UnitLevel::MirroredStripe(128), members)
    } else if name.starts_with("md RAID0 over 3xRAID1") {
        let pair = || array(Level::Raid1, vec![single(), single()], processor, |_| {});
        let pairs = vec![pair(), pair(), pair()];
        array(Level::Raid0, pairs, processor, chunked)?
    } else if let Some(layout) = name.strip_prefix("md RAID10 ") {
        let layout = Layout::from_name(Level::Raid10, layout.split(' ').next()?).ok()?;
        let members = (0..6).map(|_| single()).collect();
        array(Level::Raid10, members, processor, |config| {
            chunked(config);
            config.layout = Some(layout);
        })?
    } else {
        return None;
    };
    let load = Bonnie { characters: 0, sync: true, ..Bonnie::v1_03(64 * GIB) };
    let parts = bonnie(&mut System::new(config, volume), &load, SEED)?;
    let kib = |name| rate(&parts, name) / 1024.0;
    Some(Figures::from([
        ("put_block_kb_s", kib("block output")),
        ("rewrite_kb_s", kib("rewrite")),
        ("get_block_kb_s", kib("block input")),
        ("seeks_s", rate(&parts, "seeks")),
    ]))
}
