//! What a new array's members are to hold: the superblocks and bitmaps that mdadm 4.6 would
//! write, before a kernel or an engine has started the array.
//!
//! [`plan`] decides and writes nothing. The bytes equal mdadm's (checked against vectors of 4.2 and 4.6 in
//! `tests/vectors`), except where mdadm would make an array that cannot be used: such a request
//! is an error here. Neither mdadm nor this writes the bad-block log of a new member, for it
//! counts only once a superblock says that it holds something.

mod error;
mod fill;
mod numbering;
mod spare;

use alloc::string::String;
use alloc::vec::Vec;

use lapstrake_geometry::size::{self, Log, Member, Sizing};
use lapstrake_geometry::{
    Config, Geometry, GeometryError, Layout, Level, Raid0Layout, Sector, Sectors, Slot,
};

use crate::bitmap::{self, Placement};
use crate::{Superblock, Version, journal, ppl};

pub use error::{CreateError, Warning};
pub(crate) use fill::home_words;
use numbering::Numbering;
pub use spare::spare;

/// Chunk of striped levels if none is asked for.
pub const DEFAULT_CHUNK: Sectors = Sectors(1024);
/// Smallest chunk that mdadm takes.
pub const MIN_CHUNK: Sectors = Sectors(8);
/// Smallest size of a component that mdadm takes.
pub const MIN_SIZE: Sectors = Sectors(8);

/// Logical block sizes in bytes that every kernel from 6.19 on accepts, whatever its page.
const LOGICAL_BLOCK_SIZES: core::ops::RangeInclusive<u32> = 512..=4096;

/// Which bitmap a new array gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BitmapChoice {
    /// None.
    #[default]
    None,
    /// An internal one if a member's component is above 100 GiB, as mdadm up to 4.3 chose by itself.
    IfLarge,
    /// Beside each superblock.
    Internal,
    /// Beside each superblock, with a byte to a chunk.
    Lockless,
    /// In a file of its own, see [`CreatePlan::bitmap_file`].
    External,
}

impl BitmapChoice {
    /// Whether one is asked for.
    fn is_asked(self) -> bool {
        !matches!(self, Self::IfLarge | Self::None)
    }
}

/// What keeps redundancy right over an unclean stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A resync of everything.
    Resync,
    /// A resync of what a write-intent bitmap covers.
    Bitmap,
    /// Partial parity logs (raid5).
    Ppl,
}

impl Policy {
    /// The name that mdadm has for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Resync => "resync",
            Self::Bitmap => "bitmap",
            Self::Ppl => "ppl",
        }
    }
}

/// A device that is to become a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewMember {
    /// Its size.
    pub size: Sectors,
    /// Its major and minor number, which 0.90 records; zeros for a file.
    pub device: (u32, u32),
    /// Reads should avoid it (raid1).
    pub write_mostly: bool,
    /// Bytes, the smallest unit in which it is written; 0 where any will do.
    pub logical_block_size: u32,
}

/// The array that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateRequest {
    /// The level.
    pub level: Level,
    /// Number of slots.
    pub raid_disks: u16,
    /// Number of spares.
    pub spares: u16,
    /// Devices for slots and spares in order; None where one is missing.
    pub members: Vec<Option<NewMember>>,
    /// A device for the journal (raid4, 5, 6).
    pub journal: Option<NewMember>,
    /// Version of the superblocks.
    pub version: Version,
    /// Chunk; for linear the rounding. None: 512 KiB where there is one.
    pub chunk: Option<Sectors>,
    /// Layout. None: left-symmetric, n2, original.
    pub layout: Option<Layout>,
    /// Which bitmap.
    pub bitmap: BitmapChoice,
    /// Bytes to a bit of the bitmap.
    pub bitmap_chunk: Option<u32>,
    /// The consistency policy. None: follows from the bitmap.
    pub policy: Option<Policy>,
    /// Writes that write-mostly members may lag behind.
    pub write_behind: u32,
    /// Size to use of each member. None: as much as all have.
    pub size: Option<Sectors>,
    /// Start of the data on each member.
    pub data_offset: Option<Sectors>,
    /// Bytes, the smallest unit of a request. None: not recorded, which every kernel can start.
    pub logical_block_size: Option<u32>,
    /// The array's UUID, in the order in which mdadm prints it. None: random.
    pub set_uuid: Option<[u8; 16]>,
    /// The array's name, without host.
    pub name: String,
    /// The host that the array belongs to.
    pub homehost: Option<String>,
    /// The members are in sync already.
    pub assume_clean: bool,
    /// Take a single member; make raid4, 5 and 6 whole at once instead of recovering the last.
    pub force: bool,
    /// Now, in seconds since 1970.
    pub ctime: u64,
    /// The N of /dev/mdN, which 0.90 records.
    pub md_minor: u32,
}

impl CreateRequest {
    /// One of these members, a slot for each; all else is as mdadm chooses it.
    #[must_use]
    pub fn new(level: Level, members: Vec<Option<NewMember>>) -> Self {
        Self {
            level,
            raid_disks: members.len() as u16,
            spares: 0,
            members,
            journal: None,
            version: Version::V1_2,
            chunk: None,
            layout: None,
            bitmap: BitmapChoice::None,
            bitmap_chunk: None,
            policy: None,
            write_behind: 0,
            size: None,
            data_offset: None,
            logical_block_size: None,
            set_uuid: None,
            name: String::new(),
            homehost: None,
            assume_clean: false,
            force: false,
            ctime: 0,
            md_minor: 0,
        }
    }
}

/// Bytes for a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Where they go, from the member's start.
    pub sector: Sector,
    /// Whole sectors.
    pub bytes: Vec<u8>,
}

/// What one member is to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberPlan {
    /// Index into [`CreateRequest::members`]; the journal's is one more than the last of these.
    pub index: usize,
    /// The superblock.
    pub superblock: Superblock,
    /// All that is to be written, the superblock last: a member is one only when it is whole.
    /// Older superblocks in other places are for the caller to erase first
    /// ([`crate::detect::probe`] finds them).
    pub writes: Vec<Write>,
}

/// A new array, to the last byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatePlan {
    /// The members that are there, in the order of the request; the journal comes first.
    pub members: Vec<MemberPlan>,
    /// Contents of the bitmap file, if an external bitmap was asked for.
    pub bitmap_file: Option<Vec<u8>>,
    /// The array's size and address map.
    pub geometry: Geometry,
    /// Sectors used of each member; zero for linear and raid0.
    pub component: Sectors,
    /// What the user should know.
    pub warnings: Vec<Warning>,
}

/// What was decided, before it is put into superblocks.
struct Decided<'a> {
    request: &'a CreateRequest,
    chunk: Sectors,
    layout: Layout,
    component: Sectors,
    places: Vec<Option<Member>>,
    journal: Option<Member>,
    numbering: Numbering,
    set_uuid: [u8; 16],
    bitmap: Option<Placement>,
}

/// Decides everything about the array that is wanted.
///
/// `random` fills its buffer with random bytes, for UUIDs.
///
/// # Errors
/// See [`CreateError`]; each that concerns a member names it by its index.
pub fn plan(
    request: &CreateRequest,
    mut random: impl FnMut(&mut [u8]),
) -> Result<CreatePlan, CreateError> {
    check_counts(request)?;
    check_policy(request)?;
    check_journal(request)?;
    let chunk = chunk(request)?;
    check_logical_block(request, chunk)?;
    let layout = layout(request)?;
    let (sizing, data_offset, available) = measure(request, chunk)?;
    let component = component(&sizing, &available)?;
    if let Some(found) =
        request.logical_block_size.filter(|&f| !component.bytes().is_multiple_of(f.into()))
    {
        return Err(CreateError::LogicalBlockCut { found });
    }
    let bitmap_kind = bitmap_kind(request, component)?;
    check_behind(request, bitmap_kind)?;
    let sync_size = size::sync_size(request.level, layout, request.raid_disks, component);
    let placement = match bitmap_kind {
        BitmapChoice::Internal => Some(place_bitmap(request, component, sync_size)?),
        BitmapChoice::Lockless => Some(place_lockless(request, sync_size)?),
        _ => None,
    };
    let log = match placement {
        Some(placement) => Log::Bitmap(placement.sectors),
        None if request.policy == Some(Policy::Ppl) => Log::Ppl,
        None => Log::None,
    };
    let places = each_member(request, |member| {
        size::member(request.version, member.size, data_offset, component, log)
    })?;
    let journal = place_journal(request, data_offset, component)?;
    let geometry = geometry(request, chunk, layout, component, &places)?;
    check_redundancy(request, &geometry)?;
    let numbering = numbering::number(request);
    check_numbers(request, &numbering)?;
    let decided = Decided {
        request,
        chunk,
        layout,
        component,
        places,
        journal,
        numbering,
        set_uuid: fill::set_uuid(request, &mut random),
        bitmap: placement,
    };
    let bitmap_file = (bitmap_kind == BitmapChoice::External)
        .then(|| external_bitmap(request, &decided, sync_size))
        .transpose()?;
    let members = fill::members(&decided, sync_size, &mut random);
    let warnings = warnings(request, component, &available);
    Ok(CreatePlan { members, bitmap_file, geometry, component, warnings })
}

/// Calls `of` for every member that is there; its errors get the member's index.
fn each_member<T>(
    request: &CreateRequest,
    of: impl Fn(&NewMember) -> Result<T, GeometryError>,
) -> Result<Vec<Option<T>>, CreateError> {
    let with_index = |(index, member): (usize, &Option<NewMember>)| {
        let answer = member.as_ref().map(&of).transpose();
        answer.map_err(|source| CreateError::Member { index, source })
    };
    request.members.iter().enumerate().map(with_index).collect()
}

fn check_counts(request: &CreateRequest) -> Result<(), CreateError> {
    let CreateRequest { level, raid_disks, spares, members, .. } = request;
    let (min, max) = (level.min_members(), level.max_members());
    if *raid_disks < min || *raid_disks > max {
        return Err(CreateError::MemberCount { level: *level, found: *raid_disks, min, max });
    }
    if *raid_disks == 1 && !request.force {
        return Err(CreateError::SingleMember);
    }
    let is_redundant = level.has_redundancy();
    if *spares > 0 && !is_redundant {
        return Err(CreateError::SparesNotAllowed { level: *level });
    }
    let expected = usize::from(*raid_disks) + usize::from(*spares);
    if members.len() != expected {
        return Err(CreateError::DeviceCount { expected, found: members.len() });
    }
    let expected = expected + usize::from(request.journal.is_some());
    let max = request.version.max_members().into();
    if expected > max {
        let version = request.version;
        return Err(CreateError::TooManyDevices { found: expected, version, max });
    }
    let slots = &members[..usize::from(*raid_disks)];
    if slots.iter().all(Option::is_none) {
        return Err(CreateError::AllMissing);
    }
    if let (false, Some(index)) = (is_redundant, slots.iter().position(Option::is_none)) {
        return Err(CreateError::MissingNotAllowed { level: *level, index });
    }
    Ok(())
}

fn check_logical_block(request: &CreateRequest, chunk: Sectors) -> Result<(), CreateError> {
    let Some(found) = request.logical_block_size else { return Ok(()) };
    if request.version == Version::V090 {
        return Err(CreateError::LogicalBlockVersion);
    }
    if !found.is_power_of_two() || !LOGICAL_BLOCK_SIZES.contains(&found) {
        return Err(CreateError::LogicalBlock { found });
    }
    let members = request.members.iter().chain([&request.journal]).enumerate();
    for (index, member) in members {
        let own = member.map_or(0, |member| member.logical_block_size);
        if own > found {
            return Err(CreateError::LogicalBlockOfMember { index, own, found });
        }
    }
    let is_whole = |sectors: Sectors| sectors.bytes().is_multiple_of(found.into());
    let is_chunk_whole = !request.level.is_striped() || is_whole(chunk);
    if !is_chunk_whole || !request.data_offset.is_none_or(is_whole) {
        return Err(CreateError::LogicalBlockCut { found });
    }
    Ok(())
}

fn check_policy(request: &CreateRequest) -> Result<(), CreateError> {
    let CreateRequest { level, version, raid_disks, .. } = *request;
    let Some(policy) = request.policy else { return Ok(()) };
    let has_bitmap = request.bitmap.is_asked();
    let is_ppl = policy == Policy::Ppl;
    if !level.has_redundancy() {
        return Err(CreateError::PolicyNotAllowed { level });
    }
    if has_bitmap != (policy == Policy::Bitmap) {
        return Err(match policy {
            Policy::Bitmap => CreateError::PolicyNeedsBitmap,
            policy => CreateError::PolicyAndBitmap { policy: policy.name() },
        });
    }
    if is_ppl && level != Level::Raid5 {
        return Err(CreateError::PplLevel { level });
    }
    if is_ppl && version == Version::V090 {
        return Err(CreateError::PplVersion);
    }
    if is_ppl && u32::from(raid_disks) > ppl::DISKS_MAX {
        return Err(CreateError::PplMembers { found: raid_disks, max: ppl::DISKS_MAX });
    }
    Ok(())
}

fn check_journal(request: &CreateRequest) -> Result<(), CreateError> {
    let CreateRequest { level, version, .. } = *request;
    match request.journal {
        None => Ok(()),
        Some(_) if !level.is_parity() => Err(CreateError::JournalNotAllowed { level }),
        Some(_) if version == Version::V090 => Err(CreateError::JournalNotRecorded),
        Some(_) if request.bitmap.is_asked() => Err(CreateError::JournalAndBitmap),
        Some(_) => match request.policy {
            Some(policy) => Err(CreateError::JournalAndPolicy { policy: policy.name() }),
            None => Ok(()),
        },
    }
}

/// Where things lie on the journal's device: as on a member, but for its size, which may be less.
fn place_journal(
    request: &CreateRequest,
    data_offset: Sectors,
    component: Sectors,
) -> Result<Option<Member>, CreateError> {
    let Some(device) = request.journal else { return Ok(None) };
    let room = match request.version {
        Version::V1_0 => device.size,
        _ => device.size.max(data_offset + component),
    };
    let index = request.members.len();
    let failed = |source| CreateError::Member { index, source };
    let place =
        size::member(request.version, room, data_offset, component, Log::None).map_err(failed)?;
    let data_size = place.data_size.0.checked_sub((room - device.size).0).map(Sectors);
    let least = journal::ring_min(request.raid_disks);
    let data_size = data_size.filter(|&size| size >= least).ok_or_else(|| {
        let needed = data_offset + least;
        failed(GeometryError::DeviceTooSmall { found: device.size, needed })
    })?;
    Ok(Some(Member { data_size, ..place }))
}

/// The spare that mdadm makes takes one number more.
fn check_numbers(request: &CreateRequest, numbering: &Numbering) -> Result<(), CreateError> {
    let max = request.version.max_members().into();
    let numbers = numbering.devices.iter().flatten().map(|device| device.number as usize + 1);
    match numbers.max() {
        Some(found) if found > max => {
            Err(CreateError::TooManyDevices { found, version: request.version, max })
        }
        _ => Ok(()),
    }
}

fn chunk(request: &CreateRequest) -> Result<Sectors, CreateError> {
    let level = request.level;
    let chunk = match request.chunk {
        Some(_) if level == Level::Raid1 => return Err(CreateError::ChunkNotAllowed { level }),
        None if level.is_striped() => return Ok(DEFAULT_CHUNK),
        None => return Ok(Sectors::ZERO),
        Some(chunk) => chunk,
    };
    let must_be_power_of_two = level.is_striped() && level != Level::Raid0;
    if chunk < MIN_CHUNK
        || !chunk.0.is_multiple_of(2)
        || chunk.0 > u32::MAX.into()
        || must_be_power_of_two && !chunk.0.is_power_of_two()
    {
        return Err(CreateError::Chunk { level, found: chunk });
    }
    Ok(chunk)
}

/// 0.90 cannot record a raid0's layout.
fn layout(request: &CreateRequest) -> Result<Layout, CreateError> {
    let unset = Layout::Raid0(Raid0Layout::Unset);
    let layout = match (request.layout, request.level, request.version) {
        (None | Some(Layout::Raid0(Raid0Layout::Unset)), Level::Raid0, Version::V090) => unset,
        (Some(layout), Level::Raid0, Version::V090) => {
            return Err(CreateError::LayoutNotRecorded { layout });
        }
        (None, level, _) => Layout::default_for(level),
        (Some(layout), ..) => layout,
    };
    if !layout.belongs_to(request.level) {
        return Err(CreateError::Layout { level: request.level, layout });
    }
    Ok(layout)
}

/// What of each member can be data.
type Measured = (Sizing, Sectors, Vec<Option<Sectors>>);

fn measure(request: &CreateRequest, chunk: Sectors) -> Result<Measured, CreateError> {
    let level = request.level;
    if request.size.is_some() && !level.has_redundancy() {
        return Err(CreateError::SizeNotAllowed { level });
    }
    let sizing = Sizing {
        version: request.version,
        level,
        chunk,
        ppl: request.policy == Some(Policy::Ppl),
        data_offset: request.data_offset,
        size: request.size,
    };
    let first = request.members.iter().flatten().next().ok_or(CreateError::AllMissing)?;
    let data_offset = sizing.data_offset(first.size).map_err(CreateError::Geometry)?;
    let available = each_member(request, |member| {
        let available = sizing.available(member.size, data_offset)?;
        // mdadm counts in KiB and whole chunks; this member alone has to give something.
        let alone = Sizing { size: None, level: Level::Linear, ..sizing };
        alone.component([available]).map(|_| available)
    })?;
    if let Some(asked) = request.size {
        let asked = asked.round_down(Sectors(2)).round_down(chunk);
        let too_small = |found: &Option<Sectors>| found.is_some_and(|found| found < asked);
        if let Some(index) = available.iter().position(too_small) {
            let available = available[index].unwrap_or_default();
            let source = GeometryError::SizeAboveDevice { asked, available };
            return Err(CreateError::Member { index, source });
        }
    }
    Ok((sizing, data_offset, available))
}

fn component(sizing: &Sizing, available: &[Option<Sectors>]) -> Result<Sectors, CreateError> {
    if let Some(asked) = sizing.size
        && (asked < MIN_SIZE || asked.round_down(Sectors(2)).round_down(sizing.chunk).is_zero())
    {
        return Err(CreateError::Size { found: asked });
    }
    sizing.component(available.iter().flatten().copied()).map_err(CreateError::Geometry)
}

fn bitmap_kind(request: &CreateRequest, component: Sectors) -> Result<BitmapChoice, CreateError> {
    let level = request.level;
    match request.bitmap {
        BitmapChoice::IfLarge if request.policy.is_some() => Ok(BitmapChoice::None),
        BitmapChoice::IfLarge if request.journal.is_some() => Ok(BitmapChoice::None),
        BitmapChoice::IfLarge if size::is_large(level, component) => Ok(BitmapChoice::Internal),
        BitmapChoice::IfLarge | BitmapChoice::None => Ok(BitmapChoice::None),
        _ if !level.has_redundancy() => Err(CreateError::BitmapNotAllowed { level }),
        kind => Ok(kind),
    }
}

/// mdadm's rules.
fn check_behind(request: &CreateRequest, bitmap: BitmapChoice) -> Result<(), CreateError> {
    let level = request.level;
    let is_mostly = request.members.iter().flatten().any(|member| member.write_mostly);
    if level != Level::Raid1 && (is_mostly || request.write_behind > 0) {
        return Err(CreateError::WriteMostlyNotAllowed { level });
    }
    if request.write_behind > 0 && bitmap == BitmapChoice::None {
        return Err(CreateError::WriteBehindWithoutBitmap);
    }
    if request.write_behind > bitmap::WRITE_BEHIND_MAX {
        return Err(CreateError::WriteBehind { found: request.write_behind });
    }
    Ok(())
}

fn place_bitmap(
    request: &CreateRequest,
    component: Sectors,
    sync_size: Sectors,
) -> Result<Placement, CreateError> {
    let wanted = request.bitmap_chunk;
    bitmap::internal(request.version, component, sync_size, wanted).ok_or(match wanted {
        None => CreateError::NoRoomForBitmap { component },
        Some(found) => CreateError::BitmapChunk { found },
    })
}

/// What mdadm 4.6 takes, and the room that the states will need.
fn place_lockless(request: &CreateRequest, sync_size: Sectors) -> Result<Placement, CreateError> {
    if request.version != Version::V1_2 {
        return Err(CreateError::LocklessVersion { found: request.version });
    }
    if request.bitmap_chunk.is_some() {
        return Err(CreateError::LocklessChunk);
    }
    Ok(bitmap::lockless(sync_size))
}

fn external_bitmap(
    request: &CreateRequest,
    decided: &Decided<'_>,
    sync_size: Sectors,
) -> Result<Vec<u8>, CreateError> {
    let chunk = bitmap::external(sync_size, request.bitmap_chunk).map_err(CreateError::Bitmap)?;
    let superblock = bitmap::Superblock {
        write_behind: request.write_behind,
        ..bitmap::Superblock::new(fill::bitmap_uuid(decided), sync_size, chunk)
    };
    Ok(superblock.dirty_image(superblock.image_bytes() as usize))
}

fn geometry(
    request: &CreateRequest,
    chunk: Sectors,
    layout: Layout,
    component: Sectors,
    places: &[Option<Member>],
) -> Result<Geometry, CreateError> {
    let slots = places.iter().take(request.raid_disks.into());
    let config = Config {
        level: request.level,
        layout,
        chunk,
        raid_disks: request.raid_disks,
        component,
        member_sizes: match request.level {
            Level::Linear | Level::Raid0 => {
                let usable =
                    |place: &Member| request.version.usable(request.level, place.data_size);
                slots.flatten().map(usable).collect()
            }
            _ => Vec::new(),
        },
    };
    Geometry::new(&config).map_err(|error| match error {
        GeometryError::AmbiguousRaid0 { zones } => match request.version {
            Version::V090 => CreateError::ZonesNotRecorded { zones },
            _ => CreateError::ZonesUnset { zones },
        },
        other => CreateError::Geometry(other),
    })
}

fn check_redundancy(request: &CreateRequest, geometry: &Geometry) -> Result<(), CreateError> {
    let is_there = |slot: Slot| request.members[slot.index()].is_some();
    if geometry.survives(is_there) {
        return Ok(());
    }
    let slots = &request.members[..request.raid_disks.into()];
    let missing = slots.iter().filter(|member| member.is_none()).count();
    Err(CreateError::TooManyMissing { level: request.level, missing })
}

/// What the user may not want. mdadm asks before it wastes more than one percent of a member.
fn warnings(
    request: &CreateRequest,
    component: Sectors,
    available: &[Option<Sectors>],
) -> Vec<Warning> {
    let largest = available
        .iter()
        .enumerate()
        .filter_map(|(index, sectors)| sectors.map(|sectors| (sectors, core::cmp::Reverse(index))));
    let mut warnings = Vec::new();
    if let Some((largest, core::cmp::Reverse(index))) = largest.max()
        && request.level.has_redundancy()
        && (largest - component).0.saturating_mul(100) > largest.0
    {
        warnings.push(Warning::SizeSpread { index, available: largest, used: component });
    }
    let of_members = request.members.iter().flatten().map(|member| member.logical_block_size);
    let block = of_members.chain(request.logical_block_size).max();
    if let Some(bytes) = block.filter(|&bytes| u64::from(bytes) > bitmap::LOCKLESS_START)
        && request.bitmap == BitmapChoice::Lockless
    {
        warnings.push(Warning::LocklessInLargeBlocks { bytes });
    }
    warnings
}
