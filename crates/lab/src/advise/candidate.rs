//! What could be built: arrays on windows of disks, and how several become one volume.

use super::Disk;
use crate::report::units::bytes;
use crate::safety::{self, Slot};
use lapstrake_device::quoted_path;
use lapstrake_geometry::size::Sizing;
use lapstrake_geometry::{Config, Geometry, Layout, Level, Sectors, Version};
use lapstrake_model::safety::Group;
use std::collections::BTreeMap;
use std::ops::Range;

/// What metadata and its alignment take of a large member, in sectors: mdadm's data offset.
const OFFSET: u64 = 264_192;

/// A window of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiskWindow {
    /// Which disk.
    pub disk: usize,
    /// Its first sector.
    pub first: u64,
    /// Its sectors.
    pub sectors: u64,
}

/// An array, or a bare window of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Array {
    /// None: the first part as it is.
    pub level: Option<Level>,
    /// None: mdadm's default.
    pub layout: Option<Layout>,
    /// None: mdadm's default.
    pub chunk: Option<Sectors>,
    /// Its members, by slot.
    pub parts: Vec<DiskWindow>,
}

/// How several arrays become one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Join {
    /// One after the other.
    Linear,
    /// Striped; zones make up for unlike sizes.
    Striped,
}

/// Something that could be built.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// The arrays, one at least.
    pub arrays: Vec<Array>,
    /// How they become one.
    pub join: Join,
    /// A disk that waits for another to fail.
    pub spare: Option<usize>,
    /// Its arrays have no write-intent bitmap, though they could have one.
    pub no_bitmap: bool,
}

impl Array {
    /// The address map, with chunks of mdadm's size if nothing else is said. None for a bare part, and for what
    /// cannot be.
    pub(super) fn geometry(&self) -> Option<Geometry> {
        let level = self.level?;
        let striped = level.is_striped();
        let chunk = if striped { self.chunk.unwrap_or(Sectors(1024)) } else { Sectors::ZERO };
        let (ppl, data_offset, size) = (false, None, None);
        let sizing = Sizing { version: Version::V1_2, level, chunk, ppl, data_offset, size };
        let offset = sizing.data_offset(Sectors(self.parts.first()?.sectors)).ok()?;
        let available = |part: &DiskWindow| sizing.available(Sectors(part.sectors), offset).ok();
        let sizes: Vec<Sectors> = self.parts.iter().map(available).collect::<Option<_>>()?;
        let config = Config {
            level,
            layout: self.layout.unwrap_or(Layout::default_for(level)),
            chunk,
            raid_disks: self.parts.len() as u16,
            component: sizing.component(sizes.iter().copied()).ok()?,
            member_sizes: sizes,
        };
        Geometry::new(&config).ok()
    }

    fn sectors(&self) -> u64 {
        match self.level {
            None => self.parts.first().map_or(0, |part| part.sectors),
            Some(_) => self.geometry().map_or(0, |geometry| geometry.array_sectors().0),
        }
    }

    /// How many slots may be lost, whichever they are.
    pub(super) fn tolerance(&self) -> usize {
        safety::tolerance(self.level, self.layout, self.parts.len())
    }

    /// Whether it can have a bitmap. Its size does not count, or what is short-stroked would have none, and seem faster.
    fn can_have_bitmap(&self) -> bool {
        self.level.is_some_and(Level::has_redundancy)
    }

    /// In how many ways it differs from what mdadm makes of whole disks.
    fn peculiarities(&self, disks: &[Disk]) -> usize {
        let layout = self.level.map(Layout::default_for);
        let is_other_layout = self.layout.is_some() && self.layout != layout;
        let is_window = self.parts.iter().any(|part| part.sectors < disks[part.disk].sectors);
        usize::from(is_other_layout) + usize::from(self.chunk.is_some()) + usize::from(is_window)
    }

    fn words(&self, disks: &[Disk]) -> String {
        let name = match (self.level, self.layout) {
            (None, _) => String::new(),
            (Some(Level::Raid10), Some(layout)) => format!("RAID10 {layout} of "),
            (Some(Level::Linear), _) => "linear of ".to_owned(),
            (Some(level), _) => format!("{} of ", level.name().to_uppercase()),
        };
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for part in &self.parts {
            *counts.entry(disks[part.disk].kind.as_str()).or_default() += 1;
        }
        let members = counts.iter().map(|(kind, count)| match count {
            1 => (*kind).to_owned(),
            _ => format!("{count} x {kind}"),
        });
        let members = members.collect::<Vec<_>>().join(", ");
        let chunk = self.chunk.map(|chunk| format!(", chunk {}", bytes(chunk.0 * 512)));
        format!("{name}{members}{}{}", self.window(disks), chunk.unwrap_or_default())
    }

    /// Which windows of its disks it uses, if not all of each.
    fn window(&self, disks: &[Disk]) -> String {
        let whole = |part: &DiskWindow| part.first == 0 && disks[part.disk].sectors == part.sectors;
        let Some(part) = self.parts.iter().find(|part| !whole(part)) else { return String::new() };
        let size = bytes(part.sectors * 512);
        match part.first {
            0 => format!(" (the first {size} of each)"),
            first => format!(" ({size} of each from {} on)", bytes(first * 512)),
        }
    }

    /// The command that makes it; a spare is a whole disk, or its window where the disk waits for other arrays too.
    fn command(
        &self,
        name: &str,
        disks: &[Disk],
        spare: Option<&DiskWindow>,
        no_bitmap: bool,
    ) -> Option<String> {
        let level = self.level?;
        let mut words = format!("lapstrake create {name} --level {}", level.name());
        words += &format!(" --raid-devices {}", self.parts.len());
        if spare.is_some() {
            words += " --spare-devices 1";
        }
        if let Some(layout) = self.layout {
            words += &format!(" --layout {layout}");
        }
        if let Some(chunk) = self.chunk.filter(|_| level.is_striped()) {
            words += &format!(" --chunk {}K", chunk.0 / 2);
        }
        if !no_bitmap && self.can_have_bitmap() {
            words += " --bitmap internal";
        }
        for part in self.parts.iter().chain(spare) {
            let disk = &disks[part.disk];
            let mut member = disk.name.clone();
            if part.first > 0 || part.sectors < disk.sectors {
                member += &format!("@{}+{}", size_word(part.first), size_word(part.sectors));
            }
            words += &format!(" {}", quoted_path(member));
        }
        Some(words)
    }
}

impl Candidate {
    /// One array.
    pub(super) fn one(array: Array) -> Self {
        Self::several(vec![array], Join::Linear)
    }

    /// Several arrays that become one volume.
    pub(super) fn several(arrays: Vec<Array>, join: Join) -> Self {
        Self { arrays, join, spare: None, no_bitmap: false }
    }

    /// The same without bitmaps, or with them if it has none; none if it cannot have any.
    pub(super) fn with_other_bitmap(&self) -> Option<Self> {
        let can = self.arrays.iter().any(Array::can_have_bitmap);
        can.then(|| Self { no_bitmap: !self.no_bitmap, ..self.clone() })
    }

    /// Bytes that it offers.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.arrays.iter().map(Array::sectors).sum::<u64>() * 512
    }

    /// The disks that it uses, the spare one included.
    pub(super) fn disks(&self) -> Vec<usize> {
        let parts = self.arrays.iter().flat_map(|array| array.parts.iter().map(|part| part.disk));
        let mut disks: Vec<usize> = parts.chain(self.spare).collect();
        disks.sort_unstable();
        disks.dedup();
        disks
    }

    /// Of disks whose loss is alike the first: they are of one kind, and have the same windows in arrays of the
    /// same disks, and in a RAID10 share their chunks with the same ones.
    pub(super) fn unlike(&self, disks: &[Disk]) -> Vec<usize> {
        let window = |part: &DiskWindow| (disks[part.disk].kind.as_str(), part.first, part.sectors);
        let places = |disk: usize| {
            let place = |array: &Array| {
                let slot = array.parts.iter().position(|part| part.disk == disk)?;
                let slots =
                    (0..array.parts.len()).map(|slot| Slot { disks: vec![slot], bits: 1.0 });
                let groups = safety::groups(array.level, array.layout, slots.collect());
                let windows = |group: &Group| {
                    let slots = group.slots.iter().flatten();
                    let mut all: Vec<_> = slots.map(|&slot| window(&array.parts[slot])).collect();
                    all.sort_unstable();
                    (all, group.bits.to_bits())
                };
                let own =
                    groups.iter().filter(|group| group.slots.iter().flatten().any(|&s| s == slot));
                let mut beside: Vec<_> = own.map(windows).collect();
                beside.sort_unstable();
                Some((array.level, window(&array.parts[slot]), beside))
            };
            self.arrays.iter().filter_map(place).collect::<Vec<_>>()
        };
        let (mut unlike, mut seen) = (Vec::new(), Vec::new());
        for disk in self.disks().into_iter().filter(|&disk| self.spare != Some(disk)) {
            let places = places(disk);
            if !seen.contains(&places) {
                seen.push(places);
                unlike.push(disk);
            }
        }
        unlike
    }

    /// In how many ways its arrays differ from what mdadm makes of whole disks, and how many they are more than one.
    pub(super) fn peculiarities(&self, disks: &[Disk]) -> usize {
        let own: usize = self.arrays.iter().map(|array| array.peculiarities(disks)).sum();
        own + self.arrays.len() - 1
    }

    /// From the first sector of a disk that it uses to the last; none of a disk that it does not use.
    pub(super) fn extent(&self, disk: usize) -> Range<u64> {
        let parts = self.arrays.iter().flat_map(|array| &array.parts);
        let parts = parts.filter(|part| part.disk == disk);
        let extents = parts.map(|part| part.first..part.first + part.sectors);
        let all = extents.reduce(|one, other| one.start.min(other.start)..one.end.max(other.end));
        all.unwrap_or(0..0)
    }

    /// How many disks may be lost, whichever they are.
    pub(super) fn tolerance(&self) -> usize {
        self.arrays.iter().map(Array::tolerance).min().unwrap_or(0)
    }

    /// What it costs.
    pub(super) fn cost(&self, disks: &[Disk]) -> f64 {
        self.disks().iter().map(|&disk| disks[disk].price).sum()
    }

    /// What it is, in words.
    #[must_use]
    pub fn words(&self, disks: &[Disk]) -> String {
        let arrays: Vec<String> = self.arrays.iter().map(|array| array.words(disks)).collect();
        let mut words = match (arrays.as_slice(), self.join) {
            ([one], _) => one.clone(),
            (several, Join::Linear) => format!("one after the other: {}", several.join(" + ")),
            (several, Join::Striped) => format!("RAID0 over {}", several.join(" + ")),
        };
        if let Some(spare) = self.spare {
            words += &format!(", {} as a hot spare", disks[spare].kind);
        }
        if self.no_bitmap {
            words += ", no bitmap";
        }
        words
    }

    /// The commands that make it, and what is left to do by hand.
    pub(super) fn commands(&self, disks: &[Disk]) -> Vec<String> {
        let name = |index| if self.arrays.len() == 1 { "md0".into() } else { format!("md{index}") };
        let spare = |array: &Array| {
            let disk = self.spare?;
            let whole = DiskWindow { disk, first: 0, sectors: disks[disk].sectors };
            let window = array.parts.iter().max_by_key(|part| part.sectors);
            let window = window.map(|part| DiskWindow { disk, ..*part });
            window.filter(|_| self.arrays.len() > 1).or(Some(whole))
        };
        let arrays = self.arrays.iter().enumerate();
        let command = |(index, array): (usize, &Array)| {
            array.command(&name(index), disks, spare(array).as_ref(), self.no_bitmap)
        };
        let mut commands: Vec<String> = arrays.filter_map(command).collect();
        if self.arrays.len() > 1 {
            let level = if self.join == Join::Striped { "raid0" } else { "linear" };
            let count = self.arrays.len();
            commands.push(format!("# then a {level} of these {count} arrays, or LVM over them"));
        }
        commands
    }
}

/// So many sectors as a member's window has them: exactly.
fn size_word(sectors: u64) -> String {
    match sectors {
        _ if sectors.is_multiple_of(2048) => format!("{}M", sectors / 2048),
        _ if sectors.is_multiple_of(2) => format!("{}K", sectors / 2),
        _ => (sectors * 512).to_string(),
    }
}

/// A window that offers so many sectors, about.
pub(super) fn window_for(sectors: u64) -> u64 {
    (sectors + OFFSET).next_multiple_of(1 << 21)
}
