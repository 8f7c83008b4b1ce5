//! The words that the engine and its worlds exchange: time, buffers, requests, member I/O,
//! parity work, replies. None of them holds data bytes: a [`Buf`] is a handle, the world owns
//! the memory, and a world without memory (the predictor) can ignore it.

use crate::{compare::Comparison, seal::Seal};
use core::fmt;
use lapstrake_geometry::{Sector, Sectors};
use smallvec::SmallVec;

/// Nanoseconds on the world's monotonic clock, real or virtual.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

impl Time {
    /// This time plus `ns` nanoseconds.
    #[must_use]
    pub fn after(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }
}

/// Names a piece of the world's memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct BufId(pub u32);

impl BufId {
    /// [`ZERO_BYTES`] bytes of zeros, which the world keeps for all.
    pub const ZERO: Self = Self(u32::MAX);
}

/// Length of the buffer behind [`BufId::ZERO`]. No effect asks for a longer piece of it.
pub const ZERO_BYTES: u32 = crate::stripe::OP_SECTORS_MAX * 512;

/// A place in a buffer; the length is given where it is used.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Buf {
    /// Which memory.
    pub id: BufId,
    /// Bytes from its start.
    pub offset: u32,
}

impl Buf {
    /// The shared zeros.
    pub const ZERO: Self = Self { id: BufId::ZERO, offset: 0 };

    /// The place `bytes` further on. Zeros are the same everywhere.
    #[must_use]
    pub fn advance(self, bytes: u32) -> Self {
        if self.id == BufId::ZERO { self } else { Self { offset: self.offset + bytes, ..self } }
    }

    /// The place `sectors` further on.
    #[must_use]
    pub fn advance_sectors(self, sectors: u32) -> Self {
        self.advance(sectors * 512)
    }
}

/// A run of bytes of a buffer, as one entry of an I/O vector.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it starts.
    pub buf: Buf,
    /// Bytes.
    pub len: u32,
}

/// One device of the array. Stable while the array runs; a slot may be held by different
/// members in the data_move of time.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberId(pub u16);

/// The caller's name for a request; comes back in its [`Reply`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// What a request does. Buffers cover the request's whole length and stay untouched by the
/// caller until the reply.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Fill the buffer from the array.
    Read(Buf),
    /// Write the buffer. With `fua` the reply means that this range is on stable storage.
    Write {
        /// The data.
        buf: Buf,
        /// Stable before the reply.
        fua: bool,
        /// The caller is already sending another request: it may be worth waiting for.
        followed: bool,
    },
    /// Write a part of one block, whose rest stays as it is whoever else writes there: the block is read and written
    /// back while no other write of it is under way.
    WritePart {
        /// A block of memory that holds the part in its place.
        buf: Buf,
        /// Bytes from there to another block of memory, which is for the engine to use.
        old: u32,
        /// Bytes of the block before the part.
        skip: u32,
        /// Bytes of the part.
        len: u32,
        /// Stable before the reply.
        fua: bool,
    },
    /// Everything whose reply was given before is on stable storage.
    Flush,
    /// The range is no longer needed; afterwards it reads as anything.
    Discard,
    /// The range reads as zeros.
    WriteZeroes {
        /// Stable before the reply.
        fua: bool,
        /// Members may give the space back.
        unmap: bool,
    },
}

impl RequestKind {
    /// Whether the request changes what members hold.
    #[must_use]
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Read(_) | Self::Flush)
    }

    /// That of the part that begins `sectors` behind the request's start.
    #[must_use]
    pub fn advance_sectors(self, sectors: u32) -> Self {
        match self {
            Self::Read(buf) => Self::Read(buf.advance_sectors(sectors)),
            Self::Write { buf, fua, followed } => {
                Self::Write { buf: buf.advance_sectors(sectors), fua, followed }
            }
            other => other,
        }
    }
}

/// A client's wish.
#[derive(Copy, Clone, Debug)]
pub struct Request {
    /// Returned in the reply.
    pub id: RequestId,
    /// What to do.
    pub kind: RequestKind,
    /// First array sector.
    pub sector: Sector,
    /// Length; zero for a flush.
    pub len: Sectors,
}

/// Why a request failed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// Beyond the end of the array.
    OutOfRange,
    /// Not in whole blocks of the members.
    Misaligned,
    /// The array is read-only.
    ReadOnly,
    /// More members failed than the level survives, or a member of a level without redundancy.
    Io,
    /// What takes the data takes no more: it has no room left, or an overlay was cut off.
    NoSpace,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfRange => "beyond the end of the array",
            Self::Misaligned => "not in whole blocks of the members",
            Self::ReadOnly => "the array is read-only",
            Self::Io => "no redundancy is left to serve this range",
            Self::NoSpace => "what takes the members' writes takes no more",
        })
    }
}

/// The end of a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Whose.
    pub id: RequestId,
    /// How it went.
    pub result: Result<(), RequestError>,
}

/// Names one member I/O in flight; comes back in its completion.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct IoId(pub u32);

/// What a member is asked to do.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// Fill the pieces.
    Read,
    /// Write the pieces; with `fua` completion means stable storage.
    Write {
        /// Stable at completion.
        fua: bool,
    },
    /// Completed writes become stable.
    Flush,
    /// The range is not needed.
    Discard,
    /// The range reads as zeros afterwards.
    WriteZeroes {
        /// Stable at completion.
        fua: bool,
        /// May give space back.
        unmap: bool,
    },
}

/// One I/O for a member. Sectors count from the member's start (the data offset is in).
#[derive(Clone, Debug)]
pub struct MemberIo {
    /// For the completion.
    pub id: IoId,
    /// The device.
    pub member: MemberId,
    /// What to do.
    pub kind: IoKind,
    /// First sector on the member.
    pub sector: Sector,
    /// Length.
    pub len: Sectors,
    /// Memory, in order; empty where no data moves.
    pub pieces: Pieces,
}

/// An I/O vector.
pub type Pieces = SmallVec<[Piece; 2]>;
/// A list of buffers of one length.
pub type Bufs = SmallVec<[Buf; 8]>;
/// Coefficients in GF(2^8), one for each source.
pub type Coefs = SmallVec<[u8; 8]>;

/// Parity work on buffers, done by the world at once, in the order of the effects.
/// All buffers of one piece of work have its length in bytes.
#[derive(Clone, Debug)]
pub enum Compute {
    /// `dst` = XOR of `srcs`.
    Xor {
        /// Result.
        dst: Buf,
        /// At least one.
        srcs: Bufs,
        /// Bytes.
        len: u32,
    },
    /// `dst` ^= XOR of `srcs`.
    XorInto {
        /// Changed in place.
        dst: Buf,
        /// At least one.
        srcs: Bufs,
        /// Bytes.
        len: u32,
    },
    /// `p` = XOR, `q` = sum of g^i times `data[i]`.
    Pq {
        /// Result.
        p: Buf,
        /// Result.
        q: Buf,
        /// In the order of their exponents.
        data: Bufs,
        /// Bytes.
        len: u32,
    },
    /// `dst` ^= sum of `coefs[i]` times `srcs[i]`.
    MulInto {
        /// Changed in place.
        dst: Buf,
        /// One for each source.
        coefs: Coefs,
        /// Sources.
        srcs: Bufs,
        /// Bytes.
        len: u32,
    },
    /// `dsts[j]` = sum of `rows[j][i]` times `srcs[i]`.
    Mul {
        /// One or two results.
        dsts: SmallVec<[Buf; 2]>,
        /// A row for each result.
        rows: SmallVec<[Coefs; 2]>,
        /// Sources.
        srcs: Bufs,
        /// Bytes.
        len: u32,
    },
}

/// What the world shall do, in this order.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Start this; call `handle_completion` when it ends.
    Io(MemberIo),
    /// Do this before the next effect.
    Compute(Compute),
    /// Do this before the next effect, and bring the result to `handle_compared`.
    Compare(Comparison),
    /// Make a block of a log of what it covers, and put it in its place, before the next effect.
    Seal(Seal),
    /// Tell the client.
    Reply(Reply),
    /// Ask the shards that own its sectors: a read of [`Shard::handle_foreign_read`](crate::Shard::handle_foreign_read)
    /// that this one cannot do.
    Declined(RequestId),
}
