//! What an edit changes, from members that are opened and looked at.

use super::{EditError, Edits, open_for, read};
use crate::open::{OpenRequest, probe_all, read_error};
use crate::own_superblock::{choose_all, describe_at};
use lapstrake_device::{Member, MemberSpec};
use lapstrake_geometry::{Sectors, Slot};
use lapstrake_metadata::detect::{Finding, Findings};
use lapstrake_metadata::update::{Subject, Update, update, zeroed};
use lapstrake_metadata::{Role, Superblock, Version, bitmap, uuid_text};
use std::sync::Arc;

/// Which members to edit, and how.
#[derive(Clone, Debug)]
pub struct UpdateRequest {
    /// All members of an array.
    pub members: Vec<MemberSpec>,
    /// The edit.
    pub update: Update,
    /// Members may be missing.
    pub degraded: bool,
    /// Only show what would change: members are opened for reading.
    pub is_dry: bool,
    /// Of members that hold superblocks of several arrays, those of this version.
    pub version: Option<Version>,
}

/// What an update changes. Nothing is written.
///
/// # Errors
/// [`EditError`].
pub fn plan_update(request: &UpdateRequest) -> Result<Edits, EditError> {
    let members = open_for(&request.members, request.is_dry)?;
    let superblocks = own_superblocks(&members, &request.update, request.version)?;
    check_one_array(&members, &superblocks)?;
    if !request.degraded {
        check_all_there(&superblocks)?;
    }
    let bitmaps: Vec<Option<bitmap::Superblock>> =
        members.iter().zip(&superblocks).map(|(member, sb)| own_bitmap(member, sb)).collect();
    let mut subjects = Vec::new();
    for ((member, superblock), bitmap) in members.iter().zip(&superblocks).zip(&bitmaps) {
        let mut device_uuid = [0; 16];
        getrandom::fill(&mut device_uuid)
            .map_err(|error| read_error(member, std::io::Error::other(error)))?;
        subjects.push(Subject {
            superblock,
            bitmap: bitmap.as_ref(),
            size: Sectors(member.size() / 512),
            block_size: member.block_size(),
            device_uuid,
        });
    }
    let writes = update(&subjects, &request.update).map_err(|error| {
        let member = error.member.map(|index| members[index].spec().to_string());
        EditError::Update { member, error }
    })?;
    let what = format!("update {}", request.update.word());
    Ok(Edits::of(&what, &members, writes)?)
}

/// What erasing superblocks changes: of these versions, or all that are sound and the member's own. Nothing is written.
///
/// # Errors
/// [`EditError`].
pub fn plan_zero(
    members: &[MemberSpec],
    versions: &[Version],
    is_dry: bool,
) -> Result<Edits, EditError> {
    let members = open_for(members, is_dry)?;
    let findings = probe_all(&members)?;
    let mut writes = Vec::new();
    for (member, found) in members.iter().zip(&findings) {
        if versions.is_empty() {
            refuse_doubted(member, found)?;
        }
        let own = found.all.iter().filter_map(|finding| match finding {
            Finding::Md { version, sector, superblock } => {
                let is_meant = match versions {
                    [] => superblock.is_ok(),
                    named => named.contains(version),
                };
                is_meant.then(|| zeroed(*version, *sector))
            }
            _ => None,
        });
        writes.push(own.collect());
    }
    Ok(Edits::of("zero-superblock", &members, writes)?)
}

/// One that is a partition's, or that of the array that lies on this one, is not to be erased unasked.
fn refuse_doubted(member: &Member, found: &Findings) -> Result<(), EditError> {
    let Some((superblock, doubt)) = found.doubts().next() else { return Ok(()) };
    let found = format!("its md superblock {} {}", superblock.version(), doubt.describe());
    Err(EditError::Doubted { member: member.spec().to_string(), found })
}

/// Each member's own superblock.
pub(super) fn own_superblocks(
    members: &[Arc<Member>],
    what: &Update,
    set_version: Option<Version>,
) -> Result<Vec<Superblock>, EditError> {
    let findings = probe_all(members)?;
    let request = OpenRequest { set_version, ..OpenRequest::default() };
    let chosen = choose_all(&request, members, &findings)?;
    let one = |((member, chosen), found): ((&Arc<Member>, _), &Findings)| match chosen {
        Some(superblock) => match found.doubt(&superblock).filter(|_| set_version.is_none()) {
            Some(doubt) => Err(EditError::NoSuperblock {
                member: member.spec().to_string(),
                found: format!(
                    "its md superblock {} (--metadata {} edits it all the same)",
                    doubt.describe(),
                    superblock.version()
                ),
            }),
            None => Ok(superblock),
        },
        None => Err(EditError::NoSuperblock {
            member: member.spec().to_string(),
            found: describe_at(member.spec(), found) + hint(what),
        }),
    };
    members.iter().zip(chosen).zip(&findings).map(one).collect()
}

fn hint(what: &Update) -> &'static str {
    match what {
        Update::DeviceSize => " (a device that was cut short has to be as long as it was)",
        _ => "",
    }
}

pub(super) fn check_one_array(
    members: &[Arc<Member>],
    superblocks: &[Superblock],
) -> Result<(), EditError> {
    let kind = |sb: &Superblock| (sb.set_uuid(), sb.version());
    let first = &superblocks[0];
    let Some(other) = superblocks.iter().position(|sb| kind(sb) != kind(first)) else {
        return Ok(());
    };
    let named =
        |sb: &Superblock| format!("{} (metadata {})", uuid_text(sb.set_uuid()), sb.version());
    Err(EditError::SeveralArrays {
        first: members[0].spec().to_string(),
        first_uuid: named(first),
        second: members[other].spec().to_string(),
        second_uuid: named(&superblocks[other]),
    })
}

/// Every slot that the freshest superblock has a member for is held by one that was given.
pub(super) fn check_all_there(superblocks: &[Superblock]) -> Result<(), EditError> {
    let Some(freshest) = superblocks.iter().max_by_key(|sb| sb.events()) else { return Ok(()) };
    let is_held = |slot: Slot| superblocks.iter().any(|sb| sb.role() == Role::Active(slot));
    // Of either array, where a reshape is under way.
    let slots = (0..freshest.table_len()).filter_map(|number| match freshest.role_of(number) {
        Role::Active(slot) => Some(slot),
        _ => None,
    });
    let missing = slots.filter(|&slot| !is_held(slot)).min();
    match missing {
        Some(Slot(slot)) => Err(EditError::Missing { slot }),
        None => Ok(()),
    }
}

/// The internal bitmap's superblock, if it can be read.
pub(super) fn own_bitmap(member: &Member, superblock: &Superblock) -> Option<bitmap::Superblock> {
    let at = superblock.bitmap_sector()?;
    let bytes = read(member, at.bytes(), bitmap::Superblock::SIZE);
    bytes.ok().and_then(|bytes| bitmap::Superblock::parse(&bytes).ok())
}
