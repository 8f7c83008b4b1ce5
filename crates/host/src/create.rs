//! Makes a new array's members: opens and locks them, sees that nobody misses what they hold, and
//! writes what [`lapstrake_metadata::create`] decided.
//!
//! Invariant: nothing is written anywhere before every check on every member has passed
//! ([`prepare`]); then old superblocks go first, new ones come last ([`Prepared::write`]), so that
//! a crash between leaves no member that seems whole.

use crate::open::{OpenArrayError, occupied_around, open_all, probe, probe_all};
use crate::overlay::lay_over_bare;
use lapstrake_device::{Access, Member, MemberSpec, next_place};
use lapstrake_geometry::{Layout, Level, Sectors};
use lapstrake_metadata::create::{
    self, BitmapChoice, CreateError, CreatePlan, CreateRequest, MemberPlan, NewMember, Policy,
    Warning,
};
use lapstrake_metadata::detect::Finding;
use lapstrake_metadata::{Version, bitmap, uuid_text};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// Where an array keeps its write-intent bitmap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NewBitmap {
    /// There is none.
    #[default]
    None,
    /// Beside each superblock.
    Internal,
    /// Beside each superblock, with a byte to a chunk.
    Lockless,
    /// In a file, which is made.
    File(PathBuf),
}

/// The array that is wanted.
#[derive(Clone, Debug)]
pub struct NewArray {
    /// Its name, without host.
    pub name: String,
    /// The host that it belongs to.
    pub homehost: Option<String>,
    /// The level.
    pub level: Level,
    /// How many slots the array has.
    pub raid_devices: u16,
    /// How many members wait for one to fail.
    pub spares: u16,
    /// For slots and spares in order; None where one is missing.
    pub members: Vec<Option<MemberSpec>>,
    /// A device for the journal.
    pub journal: Option<MemberSpec>,
    /// Superblock version.
    pub version: Version,
    /// Chunk, or a linear's rounding.
    pub chunk: Option<Sectors>,
    /// Where data, parity and copies lie; none: the level's usual one.
    pub layout: Option<Layout>,
    /// The write-intent bitmap that the array gets.
    pub bitmap: NewBitmap,
    /// Bytes to a bit of it.
    pub bitmap_chunk: Option<u32>,
    /// The consistency policy; None: follows from the bitmap.
    pub policy: Option<Policy>,
    /// Writes that write-mostly members may lag behind.
    pub write_behind: Option<u32>,
    /// Members that are read only where no other has the data.
    pub write_mostly: Vec<MemberSpec>,
    /// Size to use of each member.
    pub size: Option<Sectors>,
    /// Start of the data on each member.
    pub data_offset: Option<Sectors>,
    /// Bytes, the smallest unit of a request; None: not recorded.
    pub logical_block_size: Option<u32>,
    /// UUID; None: random.
    pub uuid: Option<[u8; 16]>,
    /// The members are in sync already.
    pub assume_clean: bool,
    /// As mdadm's `--force`: a single member, no member made by recovery; and a bitmap's file that is there.
    pub force: bool,
    /// Write over what the members hold; not over a bitmap's file, which no member is.
    pub overwrite: bool,
    /// A new overlay's file, which takes all that is written: the members stay as they are.
    pub rescue: Option<PathBuf>,
    /// Now, in seconds since 1970.
    pub now: u64,
}

impl NewArray {
    /// One of these members, a slot for each; all else is as mdadm chooses it.
    #[must_use]
    pub fn new(name: &str, level: Level, members: Vec<Option<MemberSpec>>) -> Self {
        Self {
            name: name.into(),
            homehost: None,
            level,
            raid_devices: members.len() as u16,
            spares: 0,
            members,
            journal: None,
            version: Version::V1_2,
            chunk: None,
            layout: None,
            bitmap: NewBitmap::None,
            bitmap_chunk: None,
            policy: None,
            write_behind: None,
            write_mostly: Vec::new(),
            size: None,
            data_offset: None,
            logical_block_size: None,
            uuid: None,
            assume_clean: false,
            force: false,
            overwrite: false,
            rescue: None,
            now: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs()),
        }
    }
}

/// Why an array is not made. Nothing was written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// Members that cannot be had.
    #[error(transparent)]
    Members(#[from] OpenArrayError),
    /// Members that hold something: all of them.
    #[error(
        "{}\nnothing was written; if nobody needs what is there, --force writes over it",
        lines(.0)
    )]
    Occupied(Vec<Occupied>),
    /// The array cannot be as it is wanted.
    #[error("{}{error}; nothing was written", at(.member))]
    Plan {
        /// The member at fault.
        member: Option<MemberSpec>,
        /// What is wrong.
        error: CreateError,
    },
    /// The bitmap's file is there already.
    #[error("{}: exists already; nothing was written; --force writes over it", .0.display())]
    BitmapFile(PathBuf),
    /// Whether the bitmap's file is there cannot be told.
    #[error("{}: cannot be looked for: {source}; nothing was written; name a file that can be", path.display())]
    BitmapUnseen {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The bitmap's file can be neither made nor opened.
    #[error(
        "{}: cannot make or open the bitmap's file: {source}; nothing was written{}", path.display(),
        next_place(source)
    )]
    BitmapUnmade {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The overlay's file holds something.
    #[error("{}: is there already; nothing was written; name a new file for the overlay", .0.display())]
    OverlayThere(PathBuf),
    /// A bitmap's file would be written beside the overlay.
    #[error("a bitmap in a file cannot be made in an overlay; nothing was written: leave it out")]
    BitmapBesideOverlay,
    /// What is there is no bitmap.
    #[error("{0}, no bitmap; nothing was written: choose another file")]
    BitmapOver(Occupied),
}

/// Something on a member that is not ours to destroy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupied {
    /// The member.
    pub member: MemberSpec,
    /// What it holds, such as "an ext4 filesystem".
    pub what: String,
    /// The byte at which it shows.
    pub offset: u64,
}

impl Occupied {
    pub(crate) fn of(member: MemberSpec, finding: &Finding) -> Self {
        let (what, offset) = describe_finding(finding);
        Self { member, what, offset }
    }
}

impl fmt::Display for Occupied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: holds {} (at byte {})", self.member, self.what, self.offset)
    }
}

pub(crate) fn lines(all: &[Occupied]) -> String {
    all.iter().map(Occupied::to_string).collect::<Vec<_>>().join("\n")
}

fn at(member: &Option<MemberSpec>) -> String {
    member.as_ref().map_or_else(String::new, |member| format!("{member}: "))
}

/// Why an array is not made, or half.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MakeError {
    /// It no longer can be. Nothing was written.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// Some writes failed.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// An array half made: some writes failed.
#[derive(Debug, Error)]
#[error(
    "{}: cannot write {what}: {source}; {}", path.display(),
    if *.begun {
        "some members are written already: create again with --force once the cause is gone"
    } else {
        "no member has a new superblock, but old ones, and a bitmap that was there, may be gone: create again once \
         the cause is gone"
    }
)]
pub struct WriteError {
    /// The member or file.
    pub path: PathBuf,
    /// Which part.
    pub what: &'static str,
    /// Whether some members have new superblocks.
    pub begun: bool,
    /// The system's reason.
    pub source: io::Error,
}

/// An array that can be made: all checks have passed, all members are locked.
#[derive(Debug)]
pub struct Prepared {
    plan: CreatePlan,
    /// By index in the request, the journal behind the others.
    members: Vec<Option<Arc<Member>>>,
    /// Old superblocks to erase: index, where, bytes.
    old: Vec<(usize, u64, usize)>,
    /// What is written over.
    lost: Vec<Occupied>,
    bitmap_file: Option<BitmapPath>,
}

#[derive(Debug)]
struct BitmapPath {
    path: PathBuf,
    /// What is there is locked, and is written over. If nothing is, it is made, and nobody else's file is taken for it.
    old: Option<Arc<Member>>,
}

/// Checks everything, and writes nothing. `random` fills its buffer with random bytes.
///
/// # Errors
/// [`PrepareError`].
pub fn prepare(wanted: &NewArray, random: impl FnMut(&mut [u8])) -> Result<Prepared, PrepareError> {
    let mut specs: Vec<MemberSpec> = places(wanted).flatten().cloned().collect();
    if let NewBitmap::File(path) = &wanted.bitmap
        && is_there(path)?
    {
        if !wanted.force {
            return Err(PrepareError::BitmapFile(path.clone()));
        }
        // It must be no member, and nobody may be using it.
        specs.push(MemberSpec::whole(path));
    }
    if let Some(path) = &wanted.rescue {
        if matches!(wanted.bitmap, NewBitmap::File(_)) {
            return Err(PrepareError::BitmapBesideOverlay);
        }
        if path.symlink_metadata().is_ok_and(|meta| meta.len() > 0) {
            return Err(PrepareError::OverlayThere(path.clone()));
        }
    }
    let access = if wanted.rescue.is_some() { Access::ReadOnly } else { Access::ReadWrite };
    let mut opened = open_all(&specs, access)?.into_iter();
    let members: Vec<Option<Arc<Member>>> =
        places(wanted).map(|spec| spec.and_then(|_| opened.next())).collect();
    let old_bitmap = opened.next();
    let (mut old, mut lost) = (Vec::new(), Vec::new());
    for (index, member) in members.iter().enumerate() {
        let Some(member) = member else { continue };
        let failed = |source| OpenArrayError::Read { member: member.spec().to_string(), source };
        for finding in &probe(member).map_err(failed)?.all {
            let occupied = Occupied::of(member.spec().clone(), finding);
            if let Finding::Md { .. } = finding {
                let offset = occupied.offset;
                old.push((index, offset, 4096.min(member.size() - offset) as usize));
            }
            lost.push(occupied);
        }
        lost.extend(occupied_around(member).map_err(failed)?);
    }
    let plan = create::plan(&request(wanted, &members), random)
        .map_err(|error| PrepareError::Plan { member: culprit(wanted, &error), error })?;
    if wanted.rescue.is_some() {
        // All of it stays where it is.
        lost.clear();
    }
    if !wanted.overwrite && !lost.is_empty() {
        return Err(PrepareError::Occupied(lost));
    }
    let bitmap_file = match &wanted.bitmap {
        NewBitmap::File(path) => Some(BitmapPath { path: path.clone(), old: old_bitmap }),
        _ => None,
    };
    if let Some(BitmapPath { path, old: Some(_) }) = &bitmap_file {
        if let Some(held) = held_by(path) {
            return Err(PrepareError::BitmapOver(held));
        }
        lost.extend(bitmap_in(path));
    }
    let members = match &wanted.rescue {
        Some(path) => over(path, members)?,
        None => members,
    };
    Ok(Prepared { plan, members, old, lost, bitmap_file })
}

/// The members beneath a new overlay.
fn over(
    path: &Path,
    members: Vec<Option<Arc<Member>>>,
) -> Result<Vec<Option<Arc<Member>>>, PrepareError> {
    let devices: Vec<Arc<Member>> = members.iter().flatten().cloned().collect();
    let findings = probe_all(&devices)?;
    let mut tops = lay_over_bare(path, devices, &findings)?.into_iter();
    Ok(members
        .iter()
        .map(|member| Some(Arc::new(member.as_ref().and_then(|_| tops.next())?)))
        .collect())
}

fn is_there(path: &Path) -> Result<bool, PrepareError> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(PrepareError::BitmapUnseen { path: path.into(), source }),
    }
}

/// What a file holds that nobody would put a bitmap in its place for, be it forced.
pub(crate) fn held_by(path: &Path) -> Option<Occupied> {
    let file = Member::peek(&MemberSpec::whole(path)).ok()?;
    let found = probe(&file).ok()?;
    Some(Occupied::of(MemberSpec::whole(path), found.all.first()?))
}

/// The bitmap that a file holds.
fn bitmap_in(path: &Path) -> Option<Occupied> {
    let mut head = [0; 256];
    let file = Member::peek(&MemberSpec::whole(path)).ok()?;
    file.read_at(0, &mut head).ok()?;
    let uuid = bitmap::Superblock::parse(&head).ok()?.uuid;
    let what = format!("the write-intent bitmap of array {}", uuid_text(uuid));
    Some(Occupied { member: MemberSpec::whole(path), what, offset: 0 })
}

/// Slots, spares and the journal, in the order of the plan's indices.
fn places(wanted: &NewArray) -> impl Iterator<Item = Option<&MemberSpec>> {
    let members = wanted.members.iter().map(Option::as_ref);
    members.chain(wanted.journal.as_ref().map(Some))
}

fn request(wanted: &NewArray, members: &[Option<Arc<Member>>]) -> CreateRequest {
    let member = |member: &Arc<Member>| NewMember {
        size: Sectors::from_bytes(member.size()),
        device: device_number(&member.spec().path),
        write_mostly: wanted.write_mostly.contains(member.spec()),
        logical_block_size: member.block_size(),
    };
    CreateRequest {
        level: wanted.level,
        raid_disks: wanted.raid_devices,
        spares: wanted.spares,
        members: members[..wanted.members.len()]
            .iter()
            .map(|slot| slot.as_ref().map(member))
            .collect(),
        journal: members.get(wanted.members.len()).and_then(|slot| slot.as_ref().map(member)),
        version: wanted.version,
        chunk: wanted.chunk,
        layout: wanted.layout,
        bitmap: match wanted.bitmap {
            NewBitmap::None => BitmapChoice::None,
            NewBitmap::Internal => BitmapChoice::Internal,
            NewBitmap::Lockless => BitmapChoice::Lockless,
            NewBitmap::File(_) => BitmapChoice::External,
        },
        bitmap_chunk: wanted.bitmap_chunk,
        policy: wanted.policy,
        write_behind: wanted.write_behind.unwrap_or(0),
        size: wanted.size,
        data_offset: wanted.data_offset,
        logical_block_size: wanted.logical_block_size,
        set_uuid: wanted.uuid,
        name: wanted.name.clone(),
        homehost: wanted.homehost.clone(),
        assume_clean: wanted.assume_clean,
        force: wanted.force,
        ctime: wanted.now,
        md_minor: md_minor(&wanted.name),
    }
}

/// The N of "mdN" or "N"; mdadm's first choice, 127, for other names.
fn md_minor(name: &str) -> u32 {
    name.strip_prefix("md").unwrap_or(name).parse().ok().filter(|&n| n < 1 << 20).unwrap_or(127)
}

/// What 0.90 records of a block device; zeros for a file, which has no number.
fn device_number(path: &Path) -> (u32, u32) {
    let rdev = fs::metadata(path).map_or(0, |meta| meta.rdev());
    (libc::major(rdev), libc::minor(rdev))
}

fn culprit(wanted: &NewArray, error: &CreateError) -> Option<MemberSpec> {
    match error {
        CreateError::Member { index, .. } | CreateError::LogicalBlockOfMember { index, .. } => {
            places(wanted).nth(*index)?.cloned()
        }
        _ => None,
    }
}

/// A finding in words, and the byte at which it shows.
#[must_use]
pub fn describe_finding(finding: &Finding) -> (String, u64) {
    match finding {
        Finding::Md { version, sector, superblock: Ok(sb) } => {
            let level = sb.level().map_or("unknown level".into(), |level| level.to_string());
            let (devices, name) = (sb.raid_disks(), sb.name());
            let name = if name.is_empty() { name } else { format!(" \"{name}\"") };
            let what =
                format!("an md superblock {version} of array{name} ({level}, {devices} devices)");
            (what, sector.bytes())
        }
        Finding::Md { version, sector, superblock: Err(_) } => {
            (format!("a damaged md superblock {version}"), sector.bytes())
        }
        Finding::Container { kind, sector, .. } => (kind.to_string(), sector.bytes()),
        Finding::Foreign { kind, offset } => (kind.to_string(), *offset),
    }
}

impl Prepared {
    /// What will be written.
    #[must_use]
    pub fn plan(&self) -> &CreatePlan {
        &self.plan
    }

    /// The member with an index of the request's.
    #[must_use]
    pub fn member(&self, index: usize) -> Option<&MemberSpec> {
        self.members.get(index)?.as_ref().map(|member| member.spec())
    }

    /// What the user should know, in words.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let member =
            |index: usize| self.member(index).map_or_else(String::new, ToString::to_string);
        let mut words: Vec<String> = self.lost.iter().map(|lost| format!("{lost}")).collect();
        for warning in &self.plan.warnings {
            words.push(match warning {
                Warning::SizeSpread { index, available, used } => format!(
                    "{}: more than 1 % of it is left unused: it has {}K for data, the array uses {}K",
                    member(*index),
                    available.0 / 2,
                    used.0 / 2
                ),
                other => other.to_string(),
            });
        }
        words
    }

    /// Makes the array: erases old superblocks, writes bitmaps, logs or the journal, then superblocks, all of it
    /// stable before the next.
    ///
    /// # Errors
    /// [`MakeError`].
    pub fn write(&self) -> Result<(), MakeError> {
        let bitmap = self.open_bitmap()?;
        let written = self.write_all(bitmap);
        if let (Some(BitmapPath { path, old: None }), Err(WriteError { begun: false, .. })) =
            (&self.bitmap_file, &written)
        {
            // It is ours. Made in vain, it would be in the way of the next attempt.
            let _ = fs::remove_file(path);
        }
        Ok(written?)
    }

    fn open_bitmap(&self) -> Result<Option<File>, MakeError> {
        let Some(BitmapPath { path, old }) = &self.bitmap_file else { return Ok(None) };
        match open_file(path, old.is_some()) {
            Ok(file) => Ok(Some(file)),
            Err(error) if old.is_none() && error.kind() == io::ErrorKind::AlreadyExists => {
                Err(PrepareError::BitmapFile(path.clone()).into())
            }
            Err(source) => Err(PrepareError::BitmapUnmade { path: path.clone(), source }.into()),
        }
    }

    fn write_all(&self, bitmap: Option<File>) -> Result<(), WriteError> {
        if let (Some(BitmapPath { path, .. }), Some(file), Some(bytes)) =
            (&self.bitmap_file, bitmap, &self.plan.bitmap_file)
        {
            let failed = |source| WriteError {
                path: path.clone(),
                what: "the bitmap",
                begun: false,
                source,
            };
            write_file(file, path, bytes).map_err(failed)?;
        }
        for &(index, offset, len) in &self.old {
            let Some(member) = &self.members[index] else { continue };
            put(member, offset, &vec![0; len], "over an old superblock", false)?;
        }
        for (member, plan) in self.planned() {
            for write in writes(plan, false) {
                put(
                    member,
                    write.sector.bytes(),
                    &write.bytes,
                    "the bitmap, log or journal",
                    false,
                )?;
            }
            sync(member, false)?;
        }
        let mut begun = false;
        for (member, plan) in self.planned() {
            for write in writes(plan, true) {
                put(member, write.sector.bytes(), &write.bytes, "the superblock", begun)?;
            }
            begun = true;
            sync(member, begun)?;
        }
        Ok(())
    }

    fn planned(&self) -> impl Iterator<Item = (&Member, &MemberPlan)> {
        let plans = self.plan.members.iter();
        plans.filter_map(|plan| Some((&**self.members[plan.index].as_ref()?, plan)))
    }
}

/// A member's superblock, or what comes before it.
fn writes(plan: &MemberPlan, superblock: bool) -> impl Iterator<Item = &create::Write> {
    let own = plan.superblock.super_sector();
    plan.writes.iter().filter(move |write| (write.sector == own) == superblock)
}

fn put(
    member: &Member,
    offset: u64,
    bytes: &[u8],
    what: &'static str,
    begun: bool,
) -> Result<(), WriteError> {
    let path = member.spec().path.clone();
    member.write_at(offset, bytes).map_err(|source| WriteError { path, what, begun, source })
}

fn sync(member: &Member, begun: bool) -> Result<(), WriteError> {
    let path = member.spec().path.clone();
    let what = "to stable storage";
    member.sync_all().map_err(|source| WriteError { path, what, begun, source })
}

/// One that is there is written over; else it is made, and whoever else has made it meanwhile keeps theirs.
fn open_file(path: &Path, is_there: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // A FIFO's open would wait for its reader.
    options.write(true).custom_flags(libc::O_NONBLOCK);
    match is_there {
        true => options.create(true),
        false => options.create_new(true),
    };
    options.open(path)
}

fn write_file(mut file: File, path: &Path, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_all()?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What would be lost: a file that somebody made between the checks and the writes.
    #[test]
    fn a_bitmap_file_that_came_meanwhile_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let members = ["a", "b"].map(|name| {
            let path = dir.path().join(name);
            File::create(&path).unwrap().set_len(16 << 20).unwrap();
            Some(MemberSpec::whole(path))
        });
        let bits = dir.path().join("bits");
        let mut wanted = NewArray::new("data", Level::Raid1, members.into());
        wanted.bitmap = NewBitmap::File(bits.clone());
        let prepared = prepare(&wanted, |buf| buf.fill(7)).unwrap();
        fs::write(&bits, "precious").unwrap();
        let refused = prepared.write();
        let is_refused = matches!(&refused, Err(MakeError::Prepare(PrepareError::BitmapFile(path))) if *path == bits);
        assert!(is_refused, "{refused:?}");
        assert_eq!(fs::read(&bits).unwrap(), b"precious");
        fs::remove_file(&bits).unwrap();
        prepared.write().unwrap();
        drop(prepared);
        wanted.bitmap = NewBitmap::File(bits.join("x"));
        wanted.overwrite = true;
        let unseen = prepare(&wanted, |buf| buf.fill(7));
        assert!(matches!(unseen, Err(PrepareError::BitmapUnseen { .. })), "{unseen:?}");
    }

    #[test]
    fn minors_follow_names() {
        assert_eq!((md_minor("md5"), md_minor("7"), md_minor("data")), (5, 7, 127));
        assert_eq!((md_minor("md1048576"), md_minor("")), (127, 127));
    }
}
