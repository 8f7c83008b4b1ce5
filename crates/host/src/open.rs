//! From a list of devices to an array that can be started: open and lock, find superblocks,
//! decide by md's rules, read the bitmap.
//!
//! Nothing is written here, but a new overlay's file. What a start has to write first (superblocks of members
//! that were forced in, what a journal holds, the rest of a bitmap file's last page) is only decided:
//! [`crate::Array::start`] does it when it has all that it needs of the system.

mod error;
mod reshape;

use crate::array::Parts;
use crate::create::Occupied;
use crate::overlay::{NewOverlay, lay_over};
use crate::own_superblock::{
    choose_to_read, describe_at, describe_strangers, refuse_doubted, refuse_firmware, unusable,
};
use crate::start_io::{DeviceError, Members};
use crate::{last_resort, raid0_layout, split};
use lapstrake_array::start::{
    BadBlockLogFault, BitmapFault, JournalFault, JournalGivenUp, Lacking, PlanError, StartPlan,
    StartRequest, bad_block_log,
};
use lapstrake_device::{
    Access, Faults, Member, MemberSpec, overlaps, overlay::remembered, parse_map,
};
use lapstrake_geometry::{GeometryError, Raid0Layout, Sectors, Slot};
use lapstrake_metadata::uuid_text;
use lapstrake_metadata::{
    Role, Superblock, Version,
    assemble::{self, AssembleError, Assembly, Candidate, Refusal, Verdict},
    badblocks::BadBlocksError,
    detect::{self, Finding, Findings, Foreign},
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

pub(crate) use error::JOURNAL_NEXT;
pub use error::{OpenArrayError, bitmap_next};
use reshape::Reshaped;

/// What to open, and how far to go.
#[derive(Clone, Debug, Default)]
pub struct OpenRequest {
    /// The devices.
    pub members: Vec<MemberSpec>,
    /// Open them for reading only.
    pub read_only: bool,
    /// What `--force` of mdadm's assemble does.
    pub force: bool,
    /// Start although members are missing that were there before.
    pub degraded: bool,
    /// With `force`: the array gives up a journal that is missing.
    pub without_journal: bool,
    /// Take members whose superblocks hold what nobody knows ([`lapstrake_metadata::Unsupported::is_unknown`]). It counts only where nothing
    /// is written to the members: with `read_only` or an overlay.
    pub ignore_unknown: bool,
    /// Members whose superblocks give them a role that md does not know, and the slots that they are to be taken for.
    pub forced_roles: Vec<(MemberSpec, u16)>,
    /// A member of the half of a split array to go on with, if both halves have seen as many events.
    pub prefer: Option<MemberSpec>,
    /// Only members of this array.
    pub uuid: Option<[u8; 16]>,
    /// Only members of arrays of this name.
    pub set_name: Option<String>,
    /// Of members that hold superblocks of several arrays, those of this version.
    pub set_version: Option<Version>,
    /// The layout of a RAID0 of unlike members that does not record one.
    pub raid0_layout: Option<Raid0Layout>,
    /// The array's byte at which an array's two geometries meet, in place of the one on record, if it is being reshaped.
    pub reshape_position: Option<u64>,
    /// Read blocks that are on record as bad on every member that could give them. It counts only where nothing is written
    /// to the members.
    pub ignore_bad_block_log: bool,
    /// Members have no bad-block log any more, as after mdadm's update force-no-bbl.
    pub drop_bad_block_logs: bool,
    /// Images and the map files of GNU ddrescue that tell what they lack.
    pub ddrescue_maps: Vec<(PathBuf, PathBuf)>,
    /// The external bitmap's file.
    pub bitmap_file: Option<PathBuf>,
    /// Open devices and bitmap file for reading only, and keep all writes in this file.
    pub overlay: Option<PathBuf>,
    /// The overlay, a new one, is for this opening only: its name is gone before a member's data is in it.
    pub overlay_is_passing: bool,
    /// The name to serve it by; without one the superblocks' name, without its host.
    pub name: Option<String>,
}

/// One device and what became of it.
#[derive(Clone, Debug)]
pub struct Line {
    /// As it was given.
    pub member: String,
    /// Whether it is part of the array.
    pub taken: bool,
    /// It is part of it only because that was forced.
    pub forced: bool,
    /// Why, with numbers.
    pub verdict: String,
}

/// An array ready to be started.
#[derive(Debug)]
pub struct Opened {
    /// For [`crate::Array::start`].
    pub parts: Parts,
    /// The assembly's decision in words, a line for each device.
    pub report: Vec<Line>,
    /// The write-intent bitmap is out of date: the array was in use without it. All bits count as set.
    pub stale_bitmap: bool,
    /// Members whose own bitmaps cannot be used, and why. All bits count as set.
    pub unread_bitmaps: Vec<String>,
    /// Members that are read without their bad-block logs, and why these cannot be used.
    pub unread_bad_block_logs: Vec<String>,
    /// Why the internal bitmap was given up, if it was.
    pub given_up_bitmap: Option<String>,
    /// The overlay's file, if it was made and is not a passing one.
    pub new_overlay: Option<NewOverlay>,
    /// What came of it, if a journal was to be given up.
    pub given_up: Option<JournalGivenUp>,
}

/// A sentence for whoever asked for a journal to be given up.
#[must_use]
pub fn describe_given_up(journal: JournalGivenUp) -> &'static str {
    match journal {
        JournalGivenUp::Nothing => "the array has no journal: --without-journal gave up nothing",
        JournalGivenUp::Resynced => {
            "the journal is given up for good: what only it held is gone, and the redundancy is computed \
             anew by a resync"
        }
        JournalGivenUp::TakenForClean => {
            "the journal is given up for good: what only it held is gone, and since a member is missing the \
             array is taken for clean: in stripes that were being written when it stopped, the missing \
             member's data may be wrong"
        }
    }
}

/// Opens, locks and assembles.
///
/// # Errors
/// [`OpenArrayError`].
pub fn open(request: &OpenRequest) -> Result<Opened, OpenArrayError> {
    let devices = open_all(&request.members, access(request))?;
    open_devices(request, with_maps(devices, &request.ddrescue_maps)?)
}

/// As [`open`], of members that were opened by the caller, for reading only: there is no overlay.
///
/// # Errors
/// [`OpenArrayError`].
///
/// # Panics
/// If the request is not for reading only.
pub fn open_members(request: &OpenRequest, members: Vec<Member>) -> Result<Opened, OpenArrayError> {
    assert!(request.read_only && request.overlay.is_none(), "whose writes would go where?");
    open_devices(request, members.into_iter().map(Arc::new).collect())
}

fn access(request: &OpenRequest) -> Access {
    let read_only = request.read_only || request.overlay.is_some();
    if read_only { Access::ReadOnly } else { Access::ReadWrite }
}

fn open_devices(
    request: &OpenRequest,
    mut devices: Vec<Arc<Member>>,
) -> Result<Opened, OpenArrayError> {
    let access = access(request);
    let read_only = access == Access::ReadOnly;
    let bitmap_file = request.bitmap_file.as_ref().map(|path| open_bitmap(path, access));
    let mut bitmap_file = bitmap_file.transpose().map_err(of_bitmap_file)?;
    // A new overlay is made when the array is known to start: it will insist on its members.
    let (known, new) = match &request.overlay {
        Some(path) if path.metadata().is_ok_and(|meta| meta.len() > 0) => (Some(path), None),
        path => (None, path.as_ref()),
    };
    let mut findings = probe_all(&devices)?;
    let bases = known.map_or_else(Vec::new, |path| remembered(path));
    let mut chosen = choose_to_read(request, &devices, &findings, &bases)?;
    if let Some(path) = known {
        lay_over(path, &mut devices, &chosen, &mut bitmap_file)?;
        findings = probe_all(&devices)?;
        chosen = choose_to_read(request, &devices, &findings, &[])?;
    }
    let names: Vec<String> = devices.iter().map(|device| device.spec().to_string()).collect();
    let reshaped = Reshaped::of(request, &devices, &findings, &mut chosen)?;
    let (mut assembly, mut report) = decide(request, &devices, &findings, &chosen)?;
    if !read_only {
        refuse_firmware(&devices, &findings, &chosen, &assembly)?;
        if !request.force {
            refuse_doubted(&devices, &findings, &chosen, &assembly)?;
        }
    }
    if request.drop_bad_block_logs {
        drop_bad_block_logs(&mut assembly, &chosen);
    }
    let new_overlay = match new {
        Some(path) => Some(NewOverlay::make(path, &mut devices, &chosen, &mut bitmap_file)?),
        None => None,
    };
    // Dropped at once, so that nothing stays if we are killed.
    let new_overlay = new_overlay.filter(|_| !request.overlay_is_passing);
    let start = StartRequest {
        devices: &devices,
        bitmap_file: bitmap_file.as_ref(),
        read_only: request.read_only,
        is_overlaid: request.overlay.is_some(),
        force: request.force,
        ignore_unknown: request.ignore_unknown,
        gives_up_journal: request.without_journal,
    };
    let planned = StartPlan::new(&mut Members, &start, assembly, chosen.clone());
    let (mut plan, lacking) =
        planned.map_err(|error| refused(error, &names, bitmap_file.as_deref(), &report))?;
    let after =
        reshaped.map(|reshaped| reshaped.plan(request, &start, &findings, &mut plan, &mut report));
    let mut after = after.transpose()?.flatten();
    if request.ignore_bad_block_log && read_only {
        last_resort::believe(&mut plan);
        after.iter_mut().for_each(|after| last_resort::believe(&mut after.plan));
    }
    let Lacking {
        stale_bitmap,
        unread_bitmaps,
        unread_bad_block_logs,
        given_up_bitmap,
        given_up_journal,
    } = lacking;
    let told = |faults: &[BitmapFault<DeviceError>]| {
        faults.iter().map(|fault| because(fault, &names)).collect()
    };
    let freshest = chosen[plan.assembly.freshest].as_ref();
    let parts = Parts {
        name: request.name.clone().or_else(|| freshest.map(own_name)).unwrap_or_default(),
        plan,
        after,
        overlay: request.overlay.clone().filter(|_| !request.overlay_is_passing),
        overlay_is_passing: request.overlay_is_passing,
        bitmap_file,
    };
    Ok(Opened {
        parts,
        report,
        stale_bitmap,
        unread_bitmaps: told(&unread_bitmaps),
        unread_bad_block_logs: unread_bad_block_logs
            .iter()
            .map(|(id, error)| format!("{}: {error}", names[*id]))
            .collect(),
        given_up_bitmap: given_up_bitmap.map(|fault| because(&fault, &names)),
        new_overlay,
        given_up: given_up_journal,
    })
}

/// What superblocks say together, if they may be started, and that in words.
fn decide(
    request: &OpenRequest,
    devices: &[Arc<Member>],
    findings: &[Findings],
    chosen: &[Option<Superblock>],
) -> Result<(Assembly, Vec<Line>), OpenArrayError> {
    let read_only = access(request) == Access::ReadOnly;
    let candidates: Vec<Candidate<'_>> = chosen
        .iter()
        .enumerate()
        .filter_map(|(id, superblock)| Some(Candidate { id, superblock: superblock.as_ref()? }))
        .collect();
    let is_member = |wanted: &MemberSpec| devices.iter().position(|one| one.spec() == wanted);
    let id_of = |wanted: &MemberSpec| {
        is_member(wanted).ok_or_else(|| OpenArrayError::NoMember { wanted: wanted.to_string() })
    };
    let forced_role = |(wanted, slot): &(MemberSpec, u16)| {
        let id = id_of(wanted)?;
        let role = chosen[id].as_ref().map(Superblock::role);
        match role {
            Some(Role::Unknown(_)) => Ok((id, Slot(*slot))),
            _ => Err(OpenArrayError::KnownRole { member: wanted.to_string(), role }),
        }
    };
    let options = assemble::Options {
        forced_roles: request.forced_roles.iter().map(forced_role).collect::<Result<_, _>>()?,
        prefer: request.prefer.as_ref().map(id_of).transpose()?,
        unusable_logs: match read_only || request.drop_bad_block_logs {
            true => Vec::new(),
            false => unusable_logs(devices, &candidates),
        },
        force: request.force,
        run: request.degraded,
        uuid: request.uuid,
        name: request.set_name.clone(),
        ignore_unknown: request.ignore_unknown && read_only,
        raid0_layout: request.raid0_layout,
    };
    let names: Vec<String> = devices.iter().map(|device| device.spec().to_string()).collect();
    let name = |id: usize| names[id].clone();
    let assembly = assemble::assemble(&candidates, &options).map_err(|error| {
        let found = unusable(devices, findings, chosen);
        let strangers = describe_strangers(findings, chosen);
        let mut text = format!("{}{found}{strangers}", error.describe(&name));
        if let AssembleError::Geometry { error: GeometryError::AmbiguousRaid0 { .. }, .. } = error
            && let Some(likely) = raid0_layout::likely(devices, &candidates, &options)
        {
            text = format!("{text}; {likely}");
        }
        OpenArrayError::Assemble { error, text }
    })?;
    let report = report(devices, findings, &assembly);
    if let Err(refusal) = &assembly.start {
        let mut text = refusal.describe(&name) + &describe_strangers(findings, chosen);
        if let Refusal::Split { parts, .. } = refusal {
            for &id in parts.iter().flatten() {
                let updated = chosen[id].as_ref().map_or(0, |superblock| superblock.utime().0);
                let updated = jiff::Timestamp::from_second(updated as i64).unwrap_or_default();
                text += &format!("\n  {} was last updated {updated}", name(id));
                let written = chosen[id].as_ref().and_then(|sb| split::written(&devices[id], sb));
                text += &written.unwrap_or_default();
            }
        }
        return Err(OpenArrayError::Refused { refusal: refusal.clone(), text, report });
    }
    if let Some(id) = assembly.journal.filter(|_| request.without_journal) {
        return Err(OpenArrayError::JournalIsThere { member: name(id) });
    }
    let is_strange_journal =
        |c: &&Candidate<'_>| c.superblock.role() == Role::Journal && !c.superblock.is_understood();
    if let Some(journal) = candidates.iter().find(is_strange_journal)
        && request.without_journal
    {
        return Err(OpenArrayError::JournalIsThere { member: name(journal.id) });
    }
    Ok((assembly, report))
}

/// Has the start write superblocks without a log first.
fn drop_bad_block_logs(assembly: &mut Assembly, chosen: &[Option<Superblock>]) {
    let taken = assembly.verdicts.iter().filter(|(_, it)| !matches!(it, Verdict::Left(_)));
    for id in taken.map(|(id, _)| *id).collect::<Vec<_>>() {
        if !assembly.rewrite.iter().any(|(of, _)| *of == id) {
            assembly.rewrite.extend(chosen[id].clone().map(|superblock| (id, superblock)));
        }
    }
    assembly.rewrite.iter_mut().for_each(|(_, superblock)| superblock.drop_bad_block_log());
}

/// Candidates of which it cannot be told what of them is bad.
fn unusable_logs(
    devices: &[Arc<Member>],
    candidates: &[Candidate<'_>],
) -> Vec<(usize, BadBlocksError)> {
    let fault = |candidate: &Candidate<'_>| {
        let device = &devices[candidate.id];
        match bad_block_log(&Members, device, candidate.superblock) {
            Err(BadBlockLogFault::Unusable(error)) => Some((candidate.id, error)),
            _ => None,
        }
    };
    candidates.iter().filter_map(fault).collect()
}

/// A plan's error with the devices' names.
pub(crate) fn refused(
    error: PlanError<DeviceError>,
    names: &[String],
    bitmap_file: Option<&Member>,
    report: &[Line],
) -> OpenArrayError {
    match error {
        PlanError::Device(error) => read_refused(error),
        PlanError::Geometry(error) => OpenArrayError::Geometry(error),
        PlanError::Bitmap(fault) => bitmap_unusable(fault, names, bitmap_file),
        PlanError::UnsyncedDegraded { refusal, unread } => {
            let mut text = refusal.describe(&|id| names[id].clone());
            for fault in &unread {
                text += "; the lockless bitmap does not tell what is right: ";
                text += &because(fault, names);
            }
            OpenArrayError::Refused { refusal, text, report: report.to_vec() }
        }
        PlanError::BadBlocks { device, error } => {
            OpenArrayError::BadBlocks { member: names[device].clone(), error }
        }
        PlanError::Journal { device, fault: JournalFault::HoldsNews } => {
            OpenArrayError::JournalHoldsNews { member: names[device].clone() }
        }
        PlanError::Journal { device, fault } => {
            OpenArrayError::Journal { member: names[device].clone(), why: fault.to_string() }
        }
    }
}

/// Why a bitmap cannot be used, without what is to be done where there is no other.
fn because(fault: &BitmapFault<DeviceError>, names: &[String]) -> String {
    match fault {
        BitmapFault::Unusable { device: Some(id), error } => format!("{}: {error}", names[*id]),
        BitmapFault::Differs { device } => format!("{}: {fault}", names[*device]),
        BitmapFault::Device(DeviceError::At { device, source, .. }) => {
            format!("{device}: cannot read it: {source}")
        }
        BitmapFault::Unusable { device: None, .. } | BitmapFault::Device(_) => fault.to_string(),
    }
}

fn bitmap_unusable(
    fault: BitmapFault<DeviceError>,
    names: &[String],
    file: Option<&Member>,
) -> OpenArrayError {
    let error = match fault {
        BitmapFault::Unusable { device, error } => {
            let file = || file.map_or_else(String::new, |file| file.spec().to_string());
            let place = device.map_or_else(file, |id| names[id].clone());
            OpenArrayError::Bitmap { place, error }
        }
        BitmapFault::Device(error) => read_refused(error),
        BitmapFault::Differs { .. } => unreachable!("another copy is believed then"),
    };
    if file.is_some() { of_bitmap_file(error) } else { error }
}

fn open_bitmap(path: &Path, access: Access) -> Result<Arc<Member>, OpenArrayError> {
    Ok(open_all(&[MemberSpec::whole(path)], access)?.remove(0))
}

fn of_bitmap_file(error: OpenArrayError) -> OpenArrayError {
    OpenArrayError::BitmapFile(Box::new(error))
}

/// Opens and locks every device, or none.
pub(crate) fn open_all(
    specs: &[MemberSpec],
    access: Access,
) -> Result<Vec<Arc<Member>>, OpenArrayError> {
    let faults = Faults::from_env()?;
    let mut devices: Vec<Arc<Member>> = Vec::new();
    let mut errors = Vec::new();
    for (index, spec) in specs.iter().enumerate() {
        // Two openings of one file would lock each other out with a less helpful error.
        let seen = Member::peek(spec).ok().and_then(|new| {
            devices.iter().find(|known| overlaps(known, &new)).map(|known| known.spec().to_string())
        });
        if let Some(first) = seen {
            return Err(OpenArrayError::Twice { first, second: spec.to_string() });
        }
        match Member::open(spec, access) {
            Ok(member) => devices.push(Arc::new(member.with_faults(faults.layers(index)))),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(devices) } else { Err(OpenArrayError::Devices(errors)) }
}

/// Devices that lack what the map files of their images say.
fn with_maps(
    devices: Vec<Arc<Member>>,
    maps: &[(PathBuf, PathBuf)],
) -> Result<Vec<Arc<Member>>, OpenArrayError> {
    let mut unread = Vec::new();
    for (image, map) in maps {
        let bad = |why: String| OpenArrayError::Map { map: map.clone(), why };
        let text = std::fs::read_to_string(map).map_err(|error| bad(error.to_string()))?;
        unread.push((image, parse_map(&text).map_err(|error| bad(error.to_string()))?));
        if !devices.iter().any(|device| device.spec().path == *image) {
            return Err(bad(format!("{} is the path of no member", image.display())));
        }
    }
    let with = |device: Arc<Member>| {
        let own = unread.iter().find(|(image, _)| device.spec().path == **image);
        let Some((_, ranges)) = own else { return device };
        let device = Arc::into_inner(device).expect("it was just opened");
        Arc::new(device.with_unread(ranges))
    };
    Ok(devices.into_iter().map(with).collect())
}

pub(crate) fn probe_all(devices: &[Arc<Member>]) -> Result<Vec<Findings>, OpenArrayError> {
    let one =
        |device: &Arc<Member>| probe_member(device).map_err(|source| read_error(device, source));
    devices.iter().map(one).collect()
}

/// The same as [`probe`] where nothing is to be replaced: a member's superblock is enough where other places cannot be
/// read.
///
/// # Errors
/// The device's.
pub fn probe_member(device: &Member) -> io::Result<Findings> {
    let size = Sectors(device.size() / 512);
    let mut found = detect::probe_member(size, |offset, buf| read_or_tell(device, offset, buf))?;
    // Who names a window by its size means that, whatever a table in it says.
    if device.spec().size.is_some() {
        found.table = None;
    }
    Ok(found)
}

/// Everything that can be recognised on a device.
///
/// # Errors
/// The device's.
pub fn probe(device: &Member) -> io::Result<Findings> {
    detect::probe(Sectors(device.size() / 512), |offset, buf| read_or_tell(device, offset, buf))
}

/// The error says where. What a map says is not there holds no superblock: it is zeros in the image.
fn read_or_tell(device: &Member, offset: u64, buf: &mut [u8]) -> io::Result<()> {
    let len = buf.len();
    let told = |error: io::Error| {
        io::Error::new(error.kind(), format!("{len} bytes at byte {offset}: {error}"))
    };
    device.read_past_map(offset, buf).map_err(told)
}

/// What shows outside of a window, on the file or device of which it is a part, and may reach into it: a filesystem
/// is taken for one of all of it; an array's member for what its superblock says.
///
/// # Errors
/// The device's.
pub fn probe_around(window: &Member) -> io::Result<Vec<Finding>> {
    let spec = window.spec();
    if spec.is_whole() {
        return Ok(Vec::new());
    }
    let whole = Member::peek(&MemberSpec::whole(&spec.path)).map_err(io::Error::other)?;
    let own = window.offset()..window.offset() + window.size();
    let reaches = |finding: &Finding| match finding {
        Finding::Md { superblock: Ok(sb), .. } => {
            let data = sb.data_offset().bytes()..(sb.data_offset() + sb.data_size()).bytes();
            let at = sb.super_sector().bytes();
            !own.contains(&at) && data.start < own.end && own.start < data.end
        }
        Finding::Md { superblock: Err(_), .. } => false,
        Finding::Container { sector, .. } => !own.contains(&sector.bytes()),
        Finding::Foreign { offset, .. } => !own.contains(offset),
    };
    Ok(probe(&whole)?.all.into_iter().filter(reaches).collect())
}

/// What a new member that is a window would write over beside what it holds itself. A partition table around a window
/// is what windows are for.
///
/// # Errors
/// The device's.
pub(crate) fn occupied_around(window: &Member) -> io::Result<Vec<Occupied>> {
    let is_table = |finding: &Finding| {
        matches!(finding, Finding::Foreign { kind: Foreign::Gpt | Foreign::Mbr, .. })
    };
    let around = probe_around(window)?.into_iter().filter(|finding| !is_table(finding));
    let whole = MemberSpec::whole(&window.spec().path);
    Ok(around.map(|finding| Occupied::of(whole.clone(), &finding)).collect())
}

pub(crate) fn read_error(device: &Member, source: io::Error) -> OpenArrayError {
    OpenArrayError::Read { member: device.spec().to_string(), source }
}

/// The same of a device that names itself. Nothing but reads came before.
fn read_refused(error: DeviceError) -> OpenArrayError {
    let (DeviceError::At { device, source, .. } | DeviceError::Flush { device, source }) = error;
    OpenArrayError::Read { member: device, source }
}

fn report(devices: &[Arc<Member>], findings: &[Findings], assembly: &Assembly) -> Vec<Line> {
    let name = |id: usize| devices[id].spec().to_string();
    let line = |(id, device): (usize, &Arc<Member>)| {
        let verdict = assembly.verdicts.iter().find(|verdict| verdict.0 == id);
        let forced = if assembly.forced.contains(&id) { ", forced" } else { "" };
        Line {
            member: device.spec().to_string(),
            taken: verdict.is_some_and(|v| !matches!(v.1, Verdict::Left(_))),
            forced: assembly.forced.contains(&id),
            verdict: match verdict {
                Some((_, verdict)) => format!("{}{forced}", verdict.describe(&name)),
                None => format!("left: {}", describe_at(device.spec(), &findings[id])),
            },
        }
    };
    devices.iter().enumerate().map(line).collect()
}

/// The array's name without its host; an array without a name goes by its UUID.
fn own_name(superblock: &Superblock) -> String {
    let name = superblock.name();
    match name.rsplit(':').next() {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => uuid_text(superblock.set_uuid()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::create::{NewArray, NewBitmap, prepare};
    use lapstrake_geometry::{Level, Version};
    use std::{fs::File, os::unix::fs::FileExt};

    #[test]
    fn a_sound_bitmap_is_read_where_its_own_member_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| dir.path().join(name));
        for (path, mib) in paths.iter().zip([24, 32]) {
            File::create(path).unwrap().set_len(mib << 20).unwrap();
        }
        let specs = paths.clone().map(MemberSpec::whole);
        let members = specs.clone().map(Some).to_vec();
        let wanted = NewArray {
            version: Version::V1_0,
            bitmap: NewBitmap::Internal,
            assume_clean: true,
            ..NewArray::new("md0", Level::Raid1, members)
        };
        prepare(&wanted, |buf| buf.fill(7)).unwrap().write().unwrap();
        let request = OpenRequest { members: specs.to_vec(), ..OpenRequest::default() };
        let spoiled = {
            let opened = open(&request).unwrap();
            assert!(opened.unread_bitmaps.is_empty());
            let plan = &opened.parts.plan;
            let id = plan.assembly.freshest;
            let freshest = plan.members.iter().find(|m| m.device.spec() == &specs[id]).unwrap();
            (id, freshest.superblock().bitmap_sector().unwrap().bytes())
        };
        let file = File::options().write(true).open(&paths[spoiled.0]).unwrap();
        file.write_all_at(&[0; 256], spoiled.1).unwrap();
        drop(file);
        let opened = open(&request).unwrap();
        assert_eq!(opened.unread_bitmaps.len(), 1);
    }
}
