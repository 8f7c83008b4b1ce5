//! Makes a device ready to join a running array, on the asker's thread: opens and locks it, decides which
//! superblock it is to have, reads its bad-block log. Only its partial parity log is written, which is emptied.

mod error;

pub use error::JoinError;

use crate::{
    array::Handle,
    command_error::CommandError,
    create::Occupied,
    message::{Addition, Answer, Candidate, Command},
    open::{OpenArrayError, occupied_around, open_all, probe},
    start_io::Members,
};
use lapstrake_array::start::{BadBlockLogFault, bad_block_log, empty_log};
use lapstrake_control::MemberDetail;
use lapstrake_device::{Access, Member, MemberSpec, overlaps, quoted};
use lapstrake_geometry::Sectors;
use lapstrake_metadata::{Superblock, Unsupported, create::spare};
use std::sync::Arc;

/// How a device may join.
#[derive(Clone, Copy, Debug, Default)]
pub struct Join {
    /// Over whatever it holds.
    pub force: bool,
    /// Reads avoid it.
    pub write_mostly: bool,
    /// Only as the member that it was.
    pub re_add: bool,
}

/// How often a device is made ready for an array that changes meanwhile: a number becomes free, a bitmap comes.
const ATTEMPTS: u32 = 10;

/// Takes a device into a running array.
///
/// # Errors
/// [`JoinError`]. No more was written then than an empty partial parity log.
pub fn join(handle: &Handle, spec: &MemberSpec, how: Join) -> Result<Answer, JoinError> {
    for _ in 0..ATTEMPTS {
        match handle.command(Command::Add(make_ready(handle, spec, how)?))? {
            Answer::Outdated => {}
            answer => return Ok(answer),
        }
    }
    Err(JoinError::ArrayKeepsChanging { member: spec.clone() })
}

fn make_ready(handle: &Handle, spec: &MemberSpec, how: Join) -> Result<Addition, JoinError> {
    let Answer::Template(like, number) = handle.command(Command::Template)? else {
        return Err(CommandError::Stopped.into());
    };
    let Inspected { device, own } = inspect(handle, spec, how, Some(&like), Access::ReadWrite)?;
    let (member, own) = (|| spec.clone(), own.as_ref());
    if how.re_add && own.is_none() {
        return Err(JoinError::NoSuperblock { member: member() });
    }
    let size = Sectors(device.size() / 512);
    let fresh = spare(&like, size, number, random_uuid()?, how.write_mostly)
        .map_err(|source| JoinError::Unfit { member: member(), source })?;
    let catches_up = match own {
        Some(own) => can_catch_up(handle, spec, own, how.force)?,
        None => false,
    };
    if how.re_add && !catches_up {
        return Err(JoinError::CannotCatchUp { member: member() });
    }
    let superblock = match own {
        Some(own) if catches_up => Box::new(own.clone()),
        _ => Box::new(fresh),
    };
    let bad_blocks =
        bad_block_log(&Members, &device, &superblock).map_err(|fault| match fault {
            BadBlockLogFault::Device(error) => JoinError::ReadBadBlockLog(error),
            BadBlockLogFault::Unusable(error) => {
                let member = spec.to_string();
                OpenArrayError::BadBlocks { member, error }.into()
            }
        })?;
    empty_log(&mut Members, &device, &superblock).map_err(JoinError::EmptyLog)?;
    let names = spec.names();
    Ok(Addition { device, names, superblock, catches_up, bad_blocks })
}

/// What a device is that would be added, which it could be whatever the array has against its size.
///
/// # Errors
/// [`JoinError`].
pub fn look_at(handle: &Handle, spec: &MemberSpec, force: bool) -> Result<Candidate, JoinError> {
    // A level without redundancy has none to give.
    let like = match handle.command(Command::Template) {
        Ok(Answer::Template(like, _)) => Some(like),
        _ => None,
    };
    let how = Join { force, ..Join::default() };
    let Inspected { device, .. } = inspect(handle, spec, how, like.as_deref(), Access::ReadOnly)?;
    Ok(Candidate { name: spec.to_string(), size: Sectors(device.size() / 512) })
}

/// A device that holds nothing that somebody may need.
struct Inspected {
    device: Arc<Member>,
    /// Its superblock, if that is of this very array.
    own: Option<Superblock>,
}

fn inspect(
    handle: &Handle,
    spec: &MemberSpec,
    how: Join,
    like: Option<&Superblock>,
    access: Access,
) -> Result<Inspected, JoinError> {
    refuse_member(handle, spec)?;
    let device = open_all(std::slice::from_ref(spec), access)?.remove(0);
    let member = || spec.clone();
    let (block_bytes, served_bytes) = (device.block_size(), handle.facts.detail.block_bytes);
    if block_bytes > served_bytes {
        return Err(JoinError::BlockSize { member: member(), block_bytes, served_bytes });
    }
    let unread = |source| JoinError::Read { member: member(), source };
    let found = probe(&device).map_err(unread)?;
    let is_its = |sb: &&Superblock| like.is_some_and(|like| sb.set_uuid() == like.set_uuid());
    let known = found.best().filter(is_its);
    let own = known.filter(|sb| like.is_some_and(|like| describes_same(sb, like)));
    // Who has seen more was used without the others, and may hold what nobody else has.
    let is_out_of_date = |sb: &Superblock| {
        like.is_some_and(|like| sb.events() <= like.events())
            && (own.is_none() || sb.unsupported() == Some(Unsupported::Reshape))
    };
    if known.is_some_and(is_out_of_date) && !how.force {
        return Err(JoinError::OtherShape { member: member() });
    }
    // It may hold what nobody else has: only --force writes over it.
    if let Some(strange) = own.filter(|sb| !sb.is_understood() && !how.force) {
        let (unsupported, role) = (strange.unsupported(), strange.role());
        return Err(JoinError::NotUnderstood { member: member(), unsupported, role });
    }
    let own = own.filter(|sb| sb.is_understood()).cloned();
    if own.is_none() && !how.force && !how.re_add {
        let inside = found.all.iter().map(|finding| Occupied::of(spec.clone(), finding));
        let around = occupied_around(&device).map_err(unread)?;
        let foreign: Vec<Occupied> = inside.chain(around).collect();
        if !foreign.is_empty() {
            return Err(JoinError::Occupied(foreign));
        }
    }
    Ok(Inspected { device, own })
}

fn can_catch_up(
    handle: &Handle,
    spec: &MemberSpec,
    own: &Superblock,
    force: bool,
) -> Result<bool, JoinError> {
    match handle.command(Command::CanCatchUp { superblock: Box::new(own.clone()), force }) {
        Ok(answer) => Ok(matches!(answer, Answer::CanCatchUp(true))),
        Err(why) => Err(JoinError::FormerMember { member: spec.clone(), source: Box::new(why) }),
    }
}

/// The lock would only tell that this very process holds it.
fn refuse_member(handle: &Handle, spec: &MemberSpec) -> Result<(), JoinError> {
    let (Ok(new), Some(detail)) = (Member::peek(spec), handle.detail()) else { return Ok(()) };
    let is_same = |path: &str| {
        let known = path.parse().ok().and_then(|known| Member::peek(&known).ok());
        known.is_some_and(|known| overlaps(&known, &new))
    };
    // Another file may have the name of a deleted one.
    let is_known = |member: &&MemberDetail| !member.deleted && is_same(&member.path);
    let Some(known) = detail.members.iter().find(is_known) else {
        return Ok(());
    };
    Err(JoinError::IsMember {
        member: Box::new(spec.clone()),
        path: known.path.clone(),
        number: known.number,
        state: known.state.clone(),
        array: quoted(&detail.name),
    })
}

/// Whether a superblock is of the array that another is of.
fn describes_same(sb: &Superblock, like: &Superblock) -> bool {
    let key = |sb: &Superblock| {
        let shape = (sb.level_md(), sb.layout_md(), sb.chunk(), sb.raid_disks(), sb.component());
        (sb.version(), sb.set_uuid(), shape)
    };
    key(sb) == key(like)
}

fn random_uuid() -> Result<[u8; 16], JoinError> {
    let mut uuid = [0; 16];
    getrandom::fill(&mut uuid).map_err(JoinError::Random)?;
    Ok(uuid)
}
