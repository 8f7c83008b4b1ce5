//! Why a device does not join a running array.

use crate::{
    command_error::CommandError,
    create::{Occupied, lines},
    open::OpenArrayError,
    start_io::DeviceError,
};
use lapstrake_control::MemberState;
use lapstrake_device::MemberSpec;
use lapstrake_geometry::GeometryError;
use lapstrake_metadata::{Role, Unsupported};
use std::io;
use thiserror::Error;

/// Why a device does not join a running array. No more was written to it than an empty partial parity log.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The array refuses it, or has stopped.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The array refuses a former member.
    #[error("{member}: {source}")]
    FormerMember {
        /// The device.
        member: MemberSpec,
        /// What the array has against it.
        source: Box<CommandError>,
    },
    /// Members or the bitmap changed each time the device was made ready.
    #[error(
        "{member}: the array changed each time it was made ready; the array is as it was; try again"
    )]
    ArrayKeepsChanging {
        /// The device.
        member: MemberSpec,
    },
    /// It cannot be opened, or its bad-block log cannot be used.
    #[error(transparent)]
    Open(#[from] OpenArrayError),
    /// Clients write in smaller blocks than the device can.
    #[error(
        "{member}: its blocks are of {block_bytes} bytes, and clients may write {served_bytes} to this array; nothing \
         was written; take a device with blocks of {served_bytes} bytes"
    )]
    BlockSize {
        /// The device.
        member: MemberSpec,
        /// What the device writes at least.
        block_bytes: u32,
        /// What clients may write at least.
        served_bytes: u32,
    },
    /// What it holds cannot be read.
    #[error("{member}: cannot read it: {source}; nothing was written")]
    Read {
        /// The device.
        member: MemberSpec,
        /// Its answer.
        source: io::Error,
    },
    /// It was a member of this array before that was reshaped, or made larger or smaller.
    #[error(
        "{member}: its superblock is of this array as it was before a reshape or a change of size; nothing was written; `add --force` \
         takes it as a new member"
    )]
    OtherShape {
        /// The device.
        member: MemberSpec,
    },
    /// It is a member of this array in a way that is not understood.
    #[error(
        "{member}: its superblock is of this array, but has {}; it may hold a member's data; nothing was written; if \
         nobody needs what is there, `add --force` takes it as a new member",
        not_understood(*unsupported, *role)
    )]
    NotUnderstood {
        /// The device.
        member: MemberSpec,
        /// The feature that is not understood, if it is one.
        unsupported: Option<Unsupported>,
        /// The role that its superblock gives it.
        role: Role,
    },
    /// Only a former member is re-added.
    #[error("{member}: holds no superblock of this array; nothing was written")]
    NoSuperblock {
        /// The device.
        member: MemberSpec,
    },
    /// It holds what somebody may need.
    #[error("{}\nnothing was written; if nobody needs what is there, --force writes over it", lines(.0))]
    Occupied(Vec<Occupied>),
    /// It cannot be a member of this array, such as for its size.
    #[error("{member}: {source}; nothing was written")]
    Unfit {
        /// The device.
        member: MemberSpec,
        /// What is wrong with it.
        source: GeometryError,
    },
    /// A former member lacks more than the bitmap tells of.
    #[error(
        "{member} cannot be re-added: only a member that the write-intent bitmap has kept count for can catch up, into \
         its own slot while that is empty; `lapstrake add` takes it as a new member; nothing was written"
    )]
    CannotCatchUp {
        /// The device.
        member: MemberSpec,
    },
    /// Its bad-block log cannot be read.
    #[error("{0}; nothing was written")]
    ReadBadBlockLog(#[source] DeviceError),
    /// Its partial parity log cannot be emptied.
    #[error("{0}; the array is as it was")]
    EmptyLog(#[source] DeviceError),
    /// It is a member already, or a part of one.
    #[error(
        "{member}: is, in part or as a whole, the member {path} of this array already ({state}){next}; nothing was \
         written",
        next = match .state {
            MemberState::Faulty => format!("; `lapstrake remove {array} {number}` comes first"),
            _ => String::new(),
        }
    )]
    IsMember {
        /// The device.
        member: Box<MemberSpec>,
        /// The member's path.
        path: String,
        /// Its number in the superblocks' table of devices.
        number: u32,
        /// What it is to the array.
        state: MemberState,
        /// The array's name as a shell takes it.
        array: String,
    },
    /// The system gives no random bytes for its UUID.
    #[error("no random bytes: {0}; nothing was written")]
    Random(#[source] getrandom::Error),
}

fn not_understood(unsupported: Option<Unsupported>, role: Role) -> String {
    unsupported.map_or_else(|| role.to_string(), |what| what.to_string())
}
