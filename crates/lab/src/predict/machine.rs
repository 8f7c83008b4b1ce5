//! From a plan's disks and arrays to what runs in virtual time.

use super::{
    DEFAULT_LINUX, DEFAULT_PROCESSOR, DEFAULT_PROFILE, Options, processor_profile, profile_named,
};
use crate::plan::{Array, Controller, Disk, DiskPlace, Leg, Over, Place, Plan};
use crate::record::{State, SubjectKind};
use crate::report::units;
use lapstrake_engine::SyncSpeed;
use lapstrake_geometry::{Layout, Level, Sector, Sectors};
use lapstrake_metadata::create::BitmapChoice;
use lapstrake_model::profile::{Kind, Profile, Reliability};
use lapstrake_model::queue::{QueueConfig, Queued};
use lapstrake_model::rack::{Rack, SharedRack, Window};
use lapstrake_model::safety::{RebuildPart, rebuild_hours};
use lapstrake_model::{
    Channel, Completion, ControllerConfig, ControllerUnit, DiskModel, Nanos, Processor,
    ProcessorProfile, Request, UnitLevel, Volume,
};
use lapstrake_sim::array::{self, ArrayConfig, ArrayVolume, GrowingArray, SlotState};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// From here on a rebuild beside a load is held back by the number of its requests, and not to `sync_speed_min`.
const LINUX_6_16: u32 = 61600;
/// Sectors a second, more than any member has.
const SPEED_OF_ALL: u64 = 1 << 32;

/// The drives of a plan, as its profiles have them and as they are drawn.
pub(super) struct Drives {
    /// By name.
    drives: BTreeMap<String, Drive>,
    processor: ProcessorProfile,
    linux: u32,
    /// By draw and by profile.
    models: Vec<BTreeMap<String, DiskModel>>,
    seed: u64,
    /// What was assumed.
    pub notes: Vec<String>,
}

struct Drive {
    profile: Profile,
    channel: Option<String>,
}

/// Where a disk of a plan lies.
struct Extent {
    drive: String,
    first: u64,
    blocks: u64,
}

impl Drives {
    /// The drives of a plan and of its draws.
    ///
    /// # Errors
    /// Every fault: disks without a profile, or larger than it.
    pub(super) fn new(plan: &Plan, options: &Options, seed: u64) -> Result<Self, Vec<String>> {
        let mut this = Self {
            drives: BTreeMap::new(),
            linux: plan.machine.linux.unwrap_or(DEFAULT_LINUX),
            processor: match options.processor.as_ref().or(plan.machine.processor.as_ref()) {
                Some(processor) => processor.clone(),
                None => processor_profile(DEFAULT_PROCESSOR).map_err(|why| vec![why])?,
            },
            models: Vec::new(),
            seed,
            notes: Vec::new(),
        };
        let mut faults = Vec::new();
        let mut assumed = Vec::new();
        for disk in &plan.disks {
            if let Err(why) = this.add(disk, options, &mut assumed) {
                faults.push(why);
            }
        }
        if let Some(first) = assumed.first() {
            let profile = &this.drives[first].profile;
            this.notes.push(format!(
                "no profile is named for {}: taken for {} ({}); profile = \"NAME\" in [[disk]] or --profile NAME \
                 names another",
                assumed.join(", "),
                profile.name,
                profile.model
            ));
        }
        for round in 0..options.draws.max(1) {
            match this.draw(round) {
                Ok(models) => this.models.push(models),
                Err(why) => faults.push(why),
            }
        }
        if faults.is_empty() {
            faults.extend(plan.disks.iter().filter_map(|disk| this.extent(disk).err()));
        }
        if faults.is_empty() {
            this.note_shared(&plan.disks);
            this.note_shingled();
            Ok(this)
        } else {
            Err(faults)
        }
    }

    /// Disks that lie over each other, which is meant only where no array has both.
    fn note_shared(&mut self, disks: &[Disk]) {
        let extents = disks.iter().filter_map(|disk| Some((&disk.name, self.extent(disk).ok()?)));
        let extents: Vec<(&String, Extent)> = extents.collect();
        for (nth, (name, extent)) in extents.iter().enumerate() {
            let end = extent.first + extent.blocks;
            let over = |(_, other): &&(&String, Extent)| {
                other.drive == extent.drive
                    && other.first < end
                    && extent.first < other.first + other.blocks
            };
            self.notes.extend(extents[..nth].iter().filter(over).map(|(other, _)| {
                format!(
                    "disks {other:?} and {name:?} lie on the same blocks of drive {:?}: if they are to be used at \
                     once, say where each begins, as at = \"4G\"",
                    extent.drive
                )
            }));
        }
    }

    /// Runs begin with disks as new, and may end before the cache zone of shingled ones is full.
    fn note_shingled(&mut self) {
        let zones = self
            .drives
            .values()
            .filter_map(|Drive { profile, .. }| Some((&profile.name, profile.cache_zone()?)));
        let zones: BTreeMap<&String, u64> = zones.collect();
        self.notes.extend(zones.into_iter().map(|(name, zone)| {
            format!(
                "{name} is shingled, and its cache zone of {} empty when a run begins: once writes without order have filled it, \
                 each waits for a band to be cleaned, and only a run that writes more than that tells of it",
                units::bytes(zone)
            )
        }));
    }

    fn add(
        &mut self,
        disk: &Disk,
        options: &Options,
        assumed: &mut Vec<String>,
    ) -> Result<(), String> {
        let name = drive_of(disk);
        let (own, is_made) = (&disk.model.profile, matches!(disk.place, DiskPlace::Make { .. }));
        if let Some(known) = self.drives.get_mut(&name) {
            if let Some(profile) = own.as_ref().filter(|own| **own != known.profile) {
                return Err(format!(
                    "drive {name:?} has two profiles, {} and {}",
                    known.profile.name, profile.name
                ));
            }
            known.channel = known.channel.take().or_else(|| disk.model.channel.clone());
            return Ok(());
        }
        let profile = match (own, &options.profile) {
            (Some(profile), _) => profile.clone(),
            (None, Some(profile)) => profile.clone(),
            (None, None) if is_made => profile_named(DEFAULT_PROFILE)?,
            (None, None) => {
                return Err(format!(
                    "disk {:?} has no profile: say profile = \"NAME\" in its [[disk]] (`lapstrake disk list` names \
                     them, `lapstrake disk measure` makes one of a disk that is there), or --profile NAME",
                    disk.name
                ));
            }
        };
        if own.is_none() {
            assumed.push(name.clone());
        }
        self.drives.insert(name, Drive { profile, channel: disk.model.channel.clone() });
        Ok(())
    }

    /// Every profile's model in one draw. Drives of one profile are drawn alike: what is not known is the kind.
    fn draw(&self, round: u32) -> Result<BTreeMap<String, DiskModel>, String> {
        let mut models = BTreeMap::new();
        for Drive { profile, .. } in self.drives.values() {
            if models.contains_key(&profile.name) {
                continue;
            }
            let drawn = match round {
                0 => profile.clone(),
                _ => profile.drawn(self.chance(round, &profile.name)),
            };
            let model =
                drawn.build().map_err(|error| format!("profile {}: {error}", profile.name))?;
            models.insert(profile.name.clone(), model);
        }
        Ok(models)
    }

    /// The seed of what is drawn in one draw for a profile, a drive or an array.
    fn chance(&self, round: u32, of: &str) -> u64 {
        hash(&format!("{} {round} {of}", self.seed))
    }

    /// The processor, as one draw has it.
    pub(super) fn processor(&self, round: u32) -> Processor {
        let drawn = match round {
            0 => self.processor.clone(),
            _ => self.processor.drawn(self.chance(round, "processor")),
        };
        drawn
            .build()
            .expect("it was built from when it was named, and a draw stays within what can be")
    }

    fn extent(&self, disk: &Disk) -> Result<Extent, String> {
        let drive = drive_of(disk);
        let profile = &self.drives[&drive].profile;
        let all = self.models[0][&profile.name].blocks();
        let (offset, size) = match &disk.place {
            DiskPlace::Make { bytes } => (0, Some(*bytes)),
            DiskPlace::Given { spec, .. } => (spec.offset, spec.size),
        };
        let first = match disk.model.at {
            None => offset / 512,
            Some(Place::Bytes(bytes)) => bytes / 512,
            // Whole mebibytes, as partitions begin.
            Some(Place::Share(share)) => (all as f64 * share) as u64 / 2048 * 2048,
        };
        let blocks = match disk.model.size {
            Some(Place::Bytes(bytes)) => bytes / 512,
            Some(Place::Share(share)) => (all as f64 * share) as u64 / 2048 * 2048,
            None => size.map_or(all.saturating_sub(first), |bytes| bytes / 512),
        };
        if first + blocks > all || blocks == 0 {
            let (blocks, first, all) = (blocks * 512, first * 512, all * 512);
            return Err(format!(
                "disk {:?} is to have {blocks} bytes from byte {first} on (size-predicted or size, and at, in its \
                 [[disk]]), but {} has {all}",
                disk.name, profile.name
            ));
        }
        Ok(Extent { drive, first, blocks })
    }

    /// A disk as it is predicted.
    pub(super) fn words(&self, disk: &Disk) -> String {
        let model = &self.drives[&drive_of(disk)].profile.name;
        let Ok(Extent { first, blocks, .. }) = self.extent(disk) else { return model.clone() };
        let from = match first {
            0 => String::new(),
            first => format!(" from {} on", units::bytes(first * 512)),
        };
        format!("{} of {model}{from}", units::bytes(blocks * 512))
    }

    /// Size of a disk.
    pub(super) fn bytes(&self, disk: &Disk) -> u64 {
        self.extent(disk).map_or(0, |extent| extent.blocks * 512)
    }

    /// How a disk's drive fails, as one draw has it, and its sectors.
    pub(super) fn reliability(&self, disk: &Disk, round: u32) -> (Reliability, u64) {
        let profile = &self.drives[&drive_of(disk)].profile;
        let reliability = match round {
            0 => profile.reliability(),
            _ => profile.drawn(self.chance(round, &profile.name)).reliability(),
        };
        (reliability, self.models[0][&profile.name].blocks())
    }

    /// Bytes that the largest write cache of some disks holds, as one draw has it.
    pub(super) fn write_cache(&self, plan: &Plan, names: &[&str], round: u32) -> u64 {
        let disks = names.iter().filter_map(|name| plan.disk(name));
        let models = &self.models[round as usize];
        let held = |disk: &Disk| {
            let own = models[&self.drives[&drive_of(disk)].profile.name].write_cache();
            own + controller_of(plan, disk).map_or(0, |controller| cache_share(plan, controller))
        };
        disks.map(held).max().unwrap_or(0)
    }

    /// Hours that writing so much of a disk takes at the least.
    pub(super) fn fill_hours(&self, plan: &Plan, name: &str, size: Sectors, round: u32) -> f64 {
        let Some(disk) = plan.disk(name) else { return 0.0 };
        let Ok(Extent { drive, first, .. }) = self.extent(disk) else { return 0.0 };
        let model = self.models[round as usize][&self.drives[&drive].profile.name].clone();
        rebuild_hours(&RebuildPart { model, first, blocks: size.0 }, &[], f64::INFINITY)
    }

    pub(super) fn is_rotational(&self, drive: &str) -> bool {
        matches!(self.drives[drive].profile.kind, Kind::HardDisk(_))
    }

    pub(super) fn is_shingled(&self, drive: &str) -> bool {
        self.drives[drive].profile.is_shingled()
    }

    /// The channel that a drive is on.
    pub(super) fn channel(&self, drive: &str) -> Option<&String> {
        self.drives[drive].channel.as_ref()
    }
}

/// The drive that a disk is on.
pub(super) fn drive_of(disk: &Disk) -> String {
    disk.model.drive.clone().unwrap_or_else(|| disk.name.clone())
}

/// FNV-1a.
fn hash(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// What a load meets.
pub(super) enum ModelledSubject {
    /// A disk, or a controller's volume.
    Disk(Box<dyn Volume>),
    Array(Box<ArrayVolume>),
}

/// An array that stands, and the drives under it.
pub(super) struct Machine {
    standing: Option<ModelledSubject>,
    pub rack: SharedRack,
    /// The array's disks: name, number of the drive in the rack.
    pub disks: Vec<(String, usize)>,
    pub raw_bytes: u64,
}

/// Puts one together.
struct Builder<'a> {
    plan: &'a Plan,
    drives: &'a Drives,
    round: u32,
    is_direct: bool,
    rack: SharedRack,
    /// By drive: its number in the rack.
    numbers: BTreeMap<String, usize>,
    channels: BTreeMap<String, usize>,
    disks: Vec<(String, usize)>,
    raw_bytes: u64,
}

impl Machine {
    /// An array of a plan in a state, as one draw has it. `is_direct`: the load goes past the page cache.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(super) fn new(
        plan: &Plan,
        drives: &Drives,
        array: &Array,
        state: &State,
        round: u32,
        is_direct: bool,
    ) -> Result<Self, String> {
        let mut builder = Builder { is_direct, ..Builder::new(plan, drives, round) };
        let standing = match array.kind {
            SubjectKind::Disk => {
                let Some(Leg::Disk(name)) = array.members.first() else {
                    unreachable!("a plan's disks have one member");
                };
                ModelledSubject::Disk(builder.member(name)?.0)
            }
            SubjectKind::Controller => ModelledSubject::Disk(builder.volume(array)?),
            _ => ModelledSubject::Array(Box::new(builder.array(array, state, Start::default())?)),
        };
        let Builder { rack, disks, raw_bytes, .. } = builder;
        Ok(Self { standing: Some(standing), rack, disks, raw_bytes })
    }

    /// An array on its own, with a sync run that begins at `from`: a rebuild of the members that the state names, else a
    /// resync.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(super) fn with_sync(
        plan: &Plan,
        drives: &Drives,
        array: &Array,
        state: &State,
        round: u32,
        from: Sector,
    ) -> Result<ArrayVolume, String> {
        let resyncs = *state == State::Healthy;
        let start = Start { recovery_from: from, resync_from: resyncs.then_some(from) };
        Builder::new(plan, drives, round).array(array, state, start)
    }

    /// An array on its own that gets another member, a disk as its last one, by a reshape that has come so far.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(super) fn with_growth(
        plan: &Plan,
        drives: &Drives,
        array: &Array,
        round: u32,
        from: Sector,
    ) -> Result<GrowingArray, String> {
        let (config, more) = Builder::new(plan, drives, round).growth(array)?;
        GrowingArray::new(config, more, from).map_err(|error| format!("{}: {error}", array.name))
    }

    /// The share of that reshape that moves data.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(super) fn moved_share(
        plan: &Plan,
        drives: &Drives,
        array: &Array,
        round: u32,
    ) -> Result<f64, String> {
        let (config, more) = Builder::new(plan, drives, round).growth(array)?;
        GrowingArray::moved_share(&config, &more)
            .map_err(|error| format!("{}: {error}", array.name))
    }

    /// What a load meets, which a caller takes over once.
    pub(super) fn take(&mut self) -> ModelledSubject {
        self.standing.take().expect("it is taken once")
    }
}

/// How far redundancy has come when an array starts.
#[derive(Clone, Copy, Default)]
struct Start {
    recovery_from: Sector,
    resync_from: Option<Sector>,
}

impl<'a> Builder<'a> {
    fn new(plan: &'a Plan, drives: &'a Drives, round: u32) -> Self {
        Self {
            plan,
            drives,
            round,
            is_direct: false,
            rack: Rc::new(RefCell::new(Rack::default())),
            numbers: BTreeMap::new(),
            channels: BTreeMap::new(),
            disks: Vec::new(),
            raw_bytes: 0,
        }
    }

    /// An array and the member that it is to get.
    fn growth(&mut self, array: &Array) -> Result<(ArrayConfig, Vec<array::Leg>), String> {
        let config = self.config(array, &State::Healthy, Start::default())?;
        let Some(Leg::Disk(last)) = array.members.last() else {
            return Err("its last member is no disk".into());
        };
        // Of the same kind, and not the same disk.
        if let Some(disk) = self.plan.disk(last) {
            self.numbers.remove(&drive_of(disk));
        }
        let (volume, rotational) = self.member(last)?;
        Ok((config, vec![array::Leg { volume, rotational }]))
    }

    /// A disk of the plan, and whether its head moves.
    fn window(&mut self, name: &str) -> Result<(Window, bool), String> {
        let disk = self.plan.disk(name).ok_or_else(|| format!("there is no disk {name:?}"))?;
        let Extent { drive, first, blocks } = self.drives.extent(disk)?;
        let number = match self.numbers.get(&drive) {
            Some(number) => *number,
            None => {
                let Drive { profile, channel } = &self.drives.drives[&drive];
                let model = &self.drives.models[self.round as usize][&profile.name];
                let channel = self.channel(channel.as_deref());
                let model = model.another(self.drives.chance(self.round, &drive));
                let number = self.rack.borrow_mut().add_disk(&model, channel);
                self.numbers.insert(drive.clone(), number);
                number
            }
        };
        self.disks.push((name.to_owned(), number));
        self.raw_bytes += blocks * 512;
        Ok((Window::new(&self.rack, number, first, blocks), self.drives.is_rotational(&drive)))
    }

    /// A volume that a controller makes of its disks. Its chunk, if none is said: 64 KiB, as old ones have it.
    fn volume(&mut self, array: &Array) -> Result<Box<dyn Volume>, String> {
        let chunk = array.shape.chunk.unwrap_or(64 << 10) / 512;
        let level = match array.shape.level {
            None => UnitLevel::Single,
            Some(Level::Raid0) => UnitLevel::Stripe(chunk),
            Some(_) => UnitLevel::MirroredStripe(chunk),
        };
        let mut members: Vec<Box<dyn Volume>> = Vec::new();
        for name in array.disks() {
            members.push(Box::new(self.window(name)?.0));
        }
        let disk = array.disks().first().and_then(|name| self.plan.disk(name));
        let controller = disk.and_then(|disk| controller_of(self.plan, disk));
        let controller = controller.ok_or_else(|| format!("{} has no controller", array.name))?;
        Ok(unit(controller, controller.cache, level, members))
    }

    /// A disk of the plan, and whether its head moves. Hard disks are behind the block layer's queue, which sorts and joins
    /// requests.
    fn member(&mut self, name: &str) -> Result<(Box<dyn Volume>, bool), String> {
        let (window, rotational) = self.window(name)?;
        let disk = self.plan.disk(name).expect("it has a window");
        if let Some(controller) = controller_of(self.plan, disk) {
            let cache = cache_share(self.plan, controller);
            let volume = unit(controller, cache, UnitLevel::Single, vec![Box::new(window)]);
            return Ok((volume, rotational));
        }
        let volume: Box<dyn Volume> = match &self.drives.drives[&drive_of(disk)].profile.kind {
            Kind::HardDisk(hard) if hard.queue.value.depth > 1 => {
                Box::new(Queued::new(Box::new(window), QueueConfig::QUEUED))
            }
            Kind::HardDisk(_) => Box::new(Queued::new(Box::new(window), QueueConfig::IDE)),
            Kind::SolidDisk(_) => Box::new(window),
        };
        Ok((volume, rotational))
    }

    fn channel(&mut self, name: Option<&str>) -> usize {
        let mut rack = self.rack.borrow_mut();
        let shared = self.plan.channels.iter().find(|channel| Some(channel.name.as_str()) == name);
        let Some(channel) = shared else { return rack.add_channel(Channel::unbounded()) };
        *self.channels.entry(channel.name.clone()).or_insert_with(|| {
            let holds = if channel.holds { Channel::held } else { Channel::shared };
            rack.add_channel(holds(channel.rate))
        })
    }

    fn array(&mut self, array: &Array, state: &State, start: Start) -> Result<ArrayVolume, String> {
        let config = self.config(array, state, start)?;
        ArrayVolume::new(config).map_err(|error| format!("{}: {error}", array.name))
    }

    fn config(
        &mut self,
        array: &Array,
        state: &State,
        start: Start,
    ) -> Result<ArrayConfig, String> {
        let shape = &array.shape;
        let level = shape.level.ok_or_else(|| format!("{} has no level", array.name))?;
        let mut slots = Vec::new();
        for leg in &array.members {
            slots.push(self.slot_state(leg, state, start)?);
        }
        let processor = self.drives.processor(self.round);
        let mut config = ArrayConfig::new(level, slots, processor);
        config.resync_from = start.resync_from;
        config.layout = layout(level, shape.layout.as_deref())?;
        config.chunk = shape.chunk.map(|bytes| Sectors(bytes / 512));
        config.version = shape.metadata.unwrap_or(config.version);
        config.bitmap = match shape.bitmap.as_deref() {
            // Of a resync of the whole, which bits that are all clear would make end at once.
            _ if start.resync_from.is_some() => BitmapChoice::None,
            Some("internal") => BitmapChoice::Internal,
            Some(_) => BitmapChoice::None,
            // As the mdadm of the time that the plan is of.
            None if array.kind == SubjectKind::Md => BitmapChoice::IfLarge,
            None => BitmapChoice::None,
        };
        config.bitmap_chunk = shape.bitmap_chunk.map(|bytes| bytes as u32);
        config.stripe_cache = shape.stripe_cache.unwrap_or(config.stripe_cache);
        let default = SyncSpeed::default();
        config.speed = SyncSpeed {
            min: shape.sync_speed_min.map_or(default.min, |bytes| bytes / 512),
            max: shape.sync_speed_max.map_or(default.max, |bytes| bytes / 512),
        };
        if array.kind == SubjectKind::Md {
            config.page = processor.stripe_page;
            config.md = Some(self.drives.linux);
            config.is_direct = self.is_direct;
            // Of parity it is not modelled.
            let makes_copies = matches!(level, Level::Raid1 | Level::Raid10);
            if makes_copies && self.drives.linux >= LINUX_6_16 {
                config.speed.min = SPEED_OF_ALL;
            }
            config.seed = self.drives.chance(self.round, &array.name);
        } else {
            front(shape.over, &processor, &mut config);
        }
        Ok(config)
    }

    fn slot_state(&mut self, leg: &Leg, state: &State, start: Start) -> Result<SlotState, String> {
        let names: &[String] = match state {
            State::Healthy => &[],
            State::Degraded(names) | State::Rebuilding(names) => names,
        };
        let is_out = names.iter().any(|name| name == leg.name());
        if *leg == Leg::Missing || (is_out && matches!(state, State::Degraded(_))) {
            return Ok(SlotState::Missing);
        }
        let member = match leg {
            Leg::Missing => return Ok(SlotState::Missing),
            Leg::Disk(name) => {
                let (volume, rotational) = self.member(name)?;
                array::Leg { volume, rotational }
            }
            Leg::Array(below) => {
                let rotational = below.disks().iter().any(|name| {
                    self.plan
                        .disk(name)
                        .is_some_and(|disk| self.drives.is_rotational(&drive_of(disk)))
                });
                let volume = Box::new(self.array(below, state.below(), Start::default())?);
                array::Leg { volume, rotational }
            }
        };
        Ok(if is_out {
            SlotState::Recovering(member, start.recovery_from)
        } else {
            SlotState::InSync(member)
        })
    }
}

/// The controller that a disk of a plan is behind.
fn controller_of<'a>(plan: &'a Plan, disk: &Disk) -> Option<&'a Controller> {
    let name = disk.model.controller.as_deref()?;
    plan.controllers.iter().find(|controller| controller.name == name)
}

/// Of a controller's cache, what each drive has that it passes on.
fn cache_share(plan: &Plan, controller: &Controller) -> u64 {
    let is_behind = |disk: &&Disk| disk.model.controller.as_ref() == Some(&controller.name);
    let behind = plan.disks.iter().filter(is_behind);
    controller.cache / behind.map(drive_of).collect::<BTreeSet<_>>().len().max(1) as u64
}

/// A unit of a controller, behind Linux's queue. What is not said is a 3ware 9690SA's.
fn unit(
    controller: &Controller,
    cache: u64,
    level: UnitLevel,
    members: Vec<Box<dyn Volume>>,
) -> Box<dyn Volume> {
    let default = ControllerConfig::ware_9690sa(cache, level);
    let config = ControllerConfig {
        rate: controller.rate.unwrap_or(default.rate),
        overhead: controller
            .overhead
            .map_or(default.overhead, |time| Nanos(time.as_nanos() as u64)),
        run: controller.run.map_or(default.run, |bytes| bytes / 512),
        ..default
    };
    Box::new(Queued::new(Box::new(ControllerUnit::new(config, members)), QueueConfig::QUEUED))
}

pub(super) fn layout(level: Level, name: Option<&str>) -> Result<Option<Layout>, String> {
    name.map(|name| Layout::from_name(level, name)).transpose().map_err(|error| error.to_string())
}

/// What the way to a Lapstrake array costs: the server's thread is woken and answers, data are copied into it and out
/// of the client; a file adds the kernel's FUSE, a loop device one queue more.
fn front(over: Over, processor: &Processor, config: &mut ArrayConfig) {
    let (switches, copies) = match over {
        Over::Process => (0, 0),
        Over::Nbd => (2, 2),
        Over::Fuse => (2, 1),
        Over::Loop => (3, 1),
    };
    let calls = processor.system_call * (2 * switches);
    config.front = processor.switch * switches + calls;
    config.copies = copies;
}

impl Volume for ModelledSubject {
    fn blocks(&self) -> u64 {
        match self {
            Self::Disk(disk) => disk.blocks(),
            Self::Array(array) => array.blocks(),
        }
    }

    fn submit(&mut self, request: Request, now: Nanos) {
        match self {
            Self::Disk(disk) => disk.submit(request, now),
            Self::Array(array) => array.submit(request, now),
        }
    }

    fn go_on(&mut self, until: Nanos, look: Nanos) -> Option<Nanos> {
        match self {
            Self::Disk(disk) => disk.go_on(until, look),
            Self::Array(array) => array.go_on(until, look),
        }
    }

    fn poll(&mut self, now: Nanos) -> Option<Completion> {
        match self {
            Self::Disk(disk) => disk.poll(now),
            Self::Array(array) => array.poll(now),
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        match self {
            Self::Disk(disk) => disk.next_event(),
            Self::Array(array) => array.next_event(),
        }
    }

    fn cpu(&self) -> Nanos {
        match self {
            Self::Disk(disk) => disk.cpu(),
            Self::Array(array) => array.cpu(),
        }
    }

    fn stripe_blocks(&self) -> u64 {
        match self {
            Self::Disk(disk) => disk.stripe_blocks(),
            Self::Array(array) => array.stripe_blocks(),
        }
    }

    fn called(&self) -> Nanos {
        match self {
            Self::Disk(disk) => disk.called(),
            Self::Array(array) => array.called(),
        }
    }

    fn queues(&self) -> usize {
        match self {
            Self::Disk(disk) => disk.queues(),
            Self::Array(array) => array.queues(),
        }
    }
}
