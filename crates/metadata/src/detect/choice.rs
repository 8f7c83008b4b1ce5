//! Which of a device's sound superblocks is its own: what lies where is weighed, then what the user asked for.
//!
//! 1. A superblock of 0.90 does not say where it belongs. Where it lies in its place within a partition, it is that
//!    partition's, unless the array uses more of each member than the partition has room for.
//! 2. Of two arrays, one whose superblock and data lie within the other's data is the other's content. One whose superblock
//!    lies in the other's data, while the other's lies outside its own, was overwritten. Where each covers the other, the
//!    one that was created and updated later counts.
//! 3. What the user names goes before that: superblocks of another version do not count then, and of those of another UUID
//!    or name it is told that they are.
//! 4. If more than one is left, nobody can tell: [`Undecided`].

use super::{Filesystem, Findings};
use crate::firmware::Volume;
use crate::{Superblock, Version, uuid_text};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use lapstrake_geometry::{Level, Sector, Sectors, Slot};

/// What the user asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// An array of this UUID.
    pub uuid: Option<[u8; 16]>,
    /// An array of this name; the host before the ':' may be left out.
    pub name: Option<String>,
    /// A superblock of this version.
    pub version: Option<Version>,
}

impl Wanted {
    fn is_any(&self) -> bool {
        *self == Self::default()
    }

    fn fits(&self, sb: &Superblock) -> bool {
        let names = |wanted: &String| crate::assemble::name_fits(&sb.name(), wanted);
        self.uuid.is_none_or(|uuid| uuid == sb.set_uuid())
            && self.name.as_ref().is_none_or(names)
            && self.version.is_none_or(|version| version == sb.version())
    }
}

/// What speaks against a sound superblock's being that of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It is a partition's.
    OfPartition {
        /// The partition's number.
        number: u32,
        /// Its first byte.
        start: u64,
        /// Its length, bytes.
        size: u64,
        /// Bytes that the array uses of each member, if that fits the partition exactly.
        fitting_bytes: Option<u64>,
    },
    /// It and its data lie in the data of another array: they are that one's content.
    ContentOf(Other),
    /// It lies in the data of another array, whose own superblock is not in its data, or is later.
    Overwritten(Other),
    /// A file system begins where the array does, and is larger.
    Outgrown {
        /// The file system.
        filesystem: Filesystem,
        /// The array's size, bytes.
        array_bytes: u64,
    },
}

/// The other array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// Its superblock's version.
    pub version: Version,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Its name; empty if it has none.
    pub name: String,
    /// Its data, sectors from the device's start.
    pub data: Range<u64>,
}

impl Other {
    fn of(sb: &Superblock) -> Self {
        let (version, uuid, name) = (sb.version(), sb.set_uuid(), sb.name());
        Self { version, uuid, name, data: data(sb) }
    }

    /// It in words.
    #[must_use]
    pub fn describe(&self) -> String {
        let name = if self.name.is_empty() { String::new() } else { format!(" {:?}", self.name) };
        format!("array {}{name} (metadata {})", uuid_text(self.uuid), self.version)
    }
}

impl Doubt {
    /// It as a clause about the superblock.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::OfPartition { number, start, size, fitting_bytes } => {
                let fits = fitting_bytes.map_or_else(String::new, |bytes| {
                    format!(
                        ", and the {bytes} bytes that the array uses of each member are what that partition, and \
                         not the device, has room for"
                    )
                });
                format!(
                    "is that of partition {number} (bytes {start} to {}): it lies in that one's place{fits}",
                    start + size
                )
            }
            Self::ContentOf(other) => {
                let Range { start, end } = other.data;
                let other = other.describe();
                format!(
                    "lies with all its data in the data of {other}, sectors {start} to {end}: it is the content of that array"
                )
            }
            Self::Overwritten(other) => {
                let Range { start, end } = other.data;
                let other = other.describe();
                format!(
                    "lies in the data of {other}, sectors {start} to {end}, which is the later one: it is left over"
                )
            }
            Self::Outgrown { filesystem: Filesystem { kind, bytes }, array_bytes } => format!(
                "tells of an array of {array_bytes} bytes, where {kind} begins that says it has {bytes}: it was made \
                 for more than the array, and the superblock may be left over from before"
            ),
        }
    }
}

/// More than one superblock could be the device's own, each with what tells them apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecided(pub Vec<String>);

impl Findings {
    /// The superblock that is the device's own, as far as can be told, and what is wanted.
    ///
    /// # Errors
    /// [`Undecided`].
    pub fn choose(&self, wanted: &Wanted) -> Result<Option<&Superblock>, Undecided> {
        let is_meant = |sb: &&Superblock| {
            self.partition_of(sb).is_none() && wanted.version.is_none_or(|it| it == sb.version())
        };
        let sound: Vec<_> = self.superblocks().filter(is_meant).collect();
        let fitting: Vec<_> = sound.iter().copied().filter(|sb| wanted.fits(sb)).collect();
        let among = if wanted.is_any() || fitting.is_empty() { sound } else { fitting };
        let is_free = |sb: &&Superblock| among.iter().all(|other| beaten(sb, other).is_none());
        let free: Vec<_> = among.iter().copied().filter(is_free).collect();
        match free[..] {
            [] if among.is_empty() => Ok(None),
            [one] => Ok(Some(one)),
            _ => Err(Undecided(among.into_iter().map(told).collect())),
        }
    }

    /// The volume of a firmware RAID that is wanted, where there is no superblock of md's.
    ///
    /// # Errors
    /// [`Undecided`].
    pub fn choose_volume(&self, wanted: &Wanted) -> Result<Option<&Volume>, Undecided> {
        let is_wanted = |volume: &&Volume| {
            wanted.uuid.is_none_or(|uuid| uuid == volume.uuid())
                && wanted.name.as_ref().is_none_or(|name| name == volume.name())
        };
        let found: Vec<&Volume> = self.volumes().filter(is_wanted).collect();
        match found[..] {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            _ => Err(Undecided(
                found.iter().map(|it| format!("the volume {:?}", it.name())).collect(),
            )),
        }
    }

    /// The superblock that is shown as the device's: its own, or the one of the latest creation where that cannot be told.
    #[must_use]
    pub fn best(&self) -> Option<&Superblock> {
        self.choose(&Wanted::default()).unwrap_or_else(|_| {
            let sound = self.superblocks().filter(|sb| self.partition_of(sb).is_none());
            sound.fold(None, |best, sb| match best {
                Some(best) if Superblock::ctime(best) >= sb.ctime() => Some(best),
                _ => Some(sb),
            })
        })
    }

    /// What speaks against a superblock that was found here.
    #[must_use]
    pub fn doubt(&self, sb: &Superblock) -> Option<Doubt> {
        let by_other = || {
            let rivals = self.superblocks().filter(|other| self.partition_of(other).is_none());
            { rivals }.find_map(|other| beaten(sb, other))
        };
        self.partition_of(sb).or_else(by_other).or_else(|| self.outgrown(sb))
    }

    /// All sound superblocks against which something speaks.
    pub fn doubts(&self) -> impl Iterator<Item = (&Superblock, Doubt)> {
        self.superblocks().filter_map(|sb| Some((sb, self.doubt(sb)?)))
    }

    fn partition_of(&self, sb: &Superblock) -> Option<Doubt> {
        let Superblock::V090(v090) = sb else { return None };
        let place = |size: u64| Version::V090.superblock(Sectors::from_bytes(size)).ok();
        let is_its_place = |start: u64, size: u64| {
            let sectors = Sectors::from_bytes(start).0;
            place(size).is_some_and(|Sector(at)| sectors + at == v090.sb_start)
        };
        let mut partitions = self.table.iter().flat_map(|table| table.data());
        let found = partitions.find(|it| it.start > 0 && is_its_place(it.start, it.size))?;
        let room = v090.sb_start - Sectors::from_bytes(found.start).0;
        let usable = |room: u64| match sb.level() {
            Some(level) => Version::V090.usable(level, Sectors(room)),
            None => Sectors(room),
        };
        let used = sb.component();
        if used > Sectors(room) {
            return None;
        }
        let whole = chunks(sb, usable(v090.sb_start));
        let fits = used > Sectors(0) && used == chunks(sb, usable(room)) && used != whole;
        Some(Doubt::OfPartition {
            number: found.number,
            start: found.start,
            size: found.size,
            fitting_bytes: fits.then(|| used.bytes()),
        })
    }

    /// Only of superblocks that lie behind their data, which a larger file system would overwrite, and of members that hold
    /// the array's first sectors.
    fn outgrown(&self, sb: &Superblock) -> Option<Doubt> {
        let filesystem = self.filesystem?;
        let level = sb.level()?;
        let is_first = level == Level::Raid1 || sb.role() == crate::Role::Active(Slot(0));
        let is_behind = sb.data_offset() == Sector(0) && sb.super_sector() > Sector(0);
        if !is_first || !is_behind || matches!(level, Level::Linear | Level::Raid0) {
            return None;
        }
        let array_bytes = sb.geometry_of_alike()?.array_sectors().bytes();
        (filesystem.bytes > array_bytes).then_some(Doubt::Outgrown { filesystem, array_bytes })
    }
}

/// Whole chunks of a size.
fn chunks(sb: &Superblock, size: Sectors) -> Sectors {
    let chunk = sb.chunk().0.max(1);
    Sectors(size.0 - size.0 % chunk)
}

/// Where its data may lie, sectors from the device's start.
fn data(sb: &Superblock) -> Range<u64> {
    let start = sb.data_offset().0;
    start..start.saturating_add(sb.data_size().0)
}

/// Why `sb` is not the device's own beside `other`.
fn beaten(sb: &Superblock, other: &Superblock) -> Option<Doubt> {
    if sb == other {
        return None;
    }
    let covers = |a: &Superblock, b: &Superblock| data(a).contains(&b.super_sector().0);
    let is_within = |a: &Superblock, b: &Superblock| {
        covers(b, a)
            && !covers(a, b)
            && data(b).start <= data(a).start
            && data(a).end <= data(b).end
    };
    if is_within(sb, other) {
        return Some(Doubt::ContentOf(Other::of(other)));
    }
    let is_later =
        |a: &Superblock, b: &Superblock| a.ctime() >= b.ctime() && a.utime() >= b.utime();
    let is_left_over = match (covers(other, sb), covers(sb, other)) {
        (true, false) => true,
        (false, true) => false,
        (true, true) => is_later(other, sb) && !is_later(sb, other),
        // Another version of the same array's superblock, from before it was converted.
        (false, false) => sb.set_uuid() == other.set_uuid() && sb.events() < other.events(),
    };
    is_left_over.then(|| Doubt::Overwritten(Other::of(other)))
}

fn told(sb: &Superblock) -> String {
    let (other, Sector(at)) = (Other::of(sb).describe(), sb.super_sector());
    let (events, (updated, _)) = (sb.events(), sb.utime());
    let Range { start, end } = data(sb);
    format!(
        "{other}: superblock at sector {at}, data in sectors {start} to {end}, {events} events, updated {updated} \
         seconds after 1970"
    )
}
