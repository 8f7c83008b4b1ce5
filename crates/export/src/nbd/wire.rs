//! The numbers of the NBD protocol, and the fixed layouts built of them.
//!
//! Source: `doc/proto.md` of the NetworkBlockDevice/nbd repository, whose terms are kept. Every
//! number on the wire is big-endian. Nothing here knows about state.

/// First eight bytes of a server: `NBDMAGIC`.
pub const INIT_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// `IHAVEOPT`: second magic of the greeting, and the magic of each option.
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Magic of each reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Magic of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Magic of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Magic of a structured reply chunk.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Length of the server's greeting in bytes: two magics and the handshake flags.
pub const GREETING_LEN: usize = 18;
/// Length of the client's flags in bytes.
pub const CLIENT_FLAGS_LEN: usize = 4;
/// Length of an option's header in bytes: magic, option, data length.
pub const OPTION_HEADER_LEN: usize = 16;
/// Length of the header of a reply to an option in bytes: magic, option, kind, data length.
pub const OPTION_REPLY_HEADER_LEN: usize = 20;
/// Length of a request's header in bytes.
pub const REQUEST_HEADER_LEN: usize = 28;
/// Longest string that the protocol allows, in bytes.
pub const STRING_LEN_MAX: usize = 4096;
/// A payload up to this length in bytes is never an attack, whatever maximum was advertised.
pub const PAYLOAD_ALWAYS_TOLERATED: u32 = 32 << 20;

/// Handshake and client flags (`NBD_FLAG_*`, `NBD_FLAG_C_*`): the same bits in both directions.
pub mod handshake_flag {
    /// Fixed newstyle negotiation.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// No 124 zero bytes after the answer to `NBD_OPT_EXPORT_NAME`.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Transmission flags (`NBD_FLAG_*`), which tell the client what the export can do.
pub mod export_flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// `NBD_CMD_FLUSH` works.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// `NBD_CMD_FLAG_FUA` works.
    pub const SEND_FUA: u16 = 1 << 3;
    /// Seeks are dear.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// `NBD_CMD_TRIM` works.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// `NBD_CMD_WRITE_ZEROES` and `NBD_CMD_FLAG_NO_HOLE` work.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// `NBD_CMD_FLAG_DF` works (structured replies only).
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers writes that others completed.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// `NBD_CMD_CACHE` works.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// `NBD_CMD_FLAG_FAST_ZERO` is understood.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Options of the handshake (`NBD_OPT_*`).
pub mod opt {
    /// Choose an export and go, with no way to report an error.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Upgrade to TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and go.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List the metadata contexts of an export.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select metadata contexts of an export.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Use 64-bit requests and replies (an experimental extension).
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Replies to options (`NBD_REP_*`); bit 31 marks an error.
pub mod rep {
    /// Done.
    pub const ACK: u32 = 1;
    /// One export of the list.
    pub const SERVER: u32 = 2;
    /// One fact about an export.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// The option is not known.
    pub const ERR_UNSUP: u32 = (1 << 31) + 1;
    /// The option or its data is not valid.
    pub const ERR_INVALID: u32 = (1 << 31) + 3;
    /// Not without TLS.
    pub const ERR_TLS_REQD: u32 = (1 << 31) + 5;
    /// There is no such export.
    pub const ERR_UNKNOWN: u32 = (1 << 31) + 6;
    /// The server is going down.
    pub const ERR_SHUTDOWN: u32 = (1 << 31) + 7;
    /// The option is too long.
    pub const ERR_TOO_BIG: u32 = (1 << 31) + 9;

    /// Whether a reply says that the option was refused.
    #[must_use]
    pub fn is_error(kind: u32) -> bool {
        kind & (1 << 31) != 0
    }
}

/// Facts about an export (`NBD_INFO_*`).
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// Canonical name.
    pub const NAME: u16 = 1;
    /// Description for people.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum and preferred block, maximum payload.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Requests (`NBD_CMD_*`).
pub mod cmd {
    /// Read.
    pub const READ: u16 = 0;
    /// Write.
    pub const WRITE: u16 = 1;
    /// Disconnect.
    pub const DISC: u16 = 2;
    /// Make what was written durable.
    pub const FLUSH: u16 = 3;
    /// Discard.
    pub const TRIM: u16 = 4;
    /// Prefetch.
    pub const CACHE: u16 = 5;
    /// Write zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Ask which parts are allocated.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of requests (`NBD_CMD_FLAG_*`).
pub mod cmd_flag {
    /// Durable before the reply.
    pub const FUA: u16 = 1 << 0;
    /// Zeroes must be allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The reply must be one chunk.
    pub const DF: u16 = 1 << 2;
    /// One extent is enough.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Zero only if that is faster than writing.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Structured reply chunks (`NBD_REPLY_TYPE_*`) and their flag.
pub mod chunk {
    /// `NBD_REPLY_FLAG_DONE`: the last chunk of a reply.
    pub const FLAG_DONE: u16 = 1 << 0;
    /// No content.
    pub const NONE: u16 = 0;
    /// Data at an offset.
    pub const OFFSET_DATA: u16 = 1;
    /// Extents of one metadata context.
    pub const BLOCK_STATUS: u16 = 5;
    /// The request failed.
    pub const ERROR: u16 = (1 << 15) + 1;
}

/// The one metadata context there is, and the number it goes by on the wire.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// Number of [`BASE_ALLOCATION`] in replies to block status.
pub const BASE_ALLOCATION_ID: u32 = 1;
/// `NBD_STATE_HOLE`: not allocated.
pub const STATE_HOLE: u32 = 1 << 0;
/// `NBD_STATE_ZERO`: reads as zeroes.
pub const STATE_ZERO: u32 = 1 << 1;

/// The header of a reply to an option: nothing is checked but the magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReplyHeader {
    /// The option that is replied to.
    pub option: u32,
    /// `NBD_REP_*`.
    pub kind: u32,
    /// Bytes of data that follow.
    pub len: u32,
}

impl OptionReplyHeader {
    /// Decodes a header. The error is the magic that was found in place of [`OPTION_REPLY_MAGIC`].
    pub fn decode(bytes: &[u8; OPTION_REPLY_HEADER_LEN]) -> Result<Self, u64> {
        let mut reader = Reader(bytes);
        let mut fields = || {
            let magic = reader.u64()?;
            let header = Self { option: reader.u32()?, kind: reader.u32()?, len: reader.u32()? };
            Some((magic, header))
        };
        let (magic, header) = fields().expect("20 bytes hold the four fields");
        if magic == OPTION_REPLY_MAGIC { Ok(header) } else { Err(magic) }
    }
}

/// A request's header, as sent: nothing is checked but the magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// `NBD_CMD_FLAG_*`.
    pub flags: u16,
    /// `NBD_CMD_*`.
    pub kind: u16,
    /// The client's name for the request, opaque.
    pub cookie: u64,
    /// First byte of the export that is meant.
    pub offset: u64,
    /// Bytes that are meant.
    pub len: u32,
}

impl RequestHeader {
    /// Decodes a header. The error is the magic that was found in place of [`REQUEST_MAGIC`].
    pub fn decode(bytes: &[u8; REQUEST_HEADER_LEN]) -> Result<Self, u32> {
        let mut reader = Reader(bytes);
        let mut fields = || {
            let magic = reader.u32()?;
            let header = RequestHeader {
                flags: reader.u16()?,
                kind: reader.u16()?,
                cookie: reader.u64()?,
                offset: reader.u64()?,
                len: reader.u32()?,
            };
            Some((magic, header))
        };
        let (magic, header) = fields().expect("28 bytes hold the six fields");
        if magic == REQUEST_MAGIC { Ok(header) } else { Err(magic) }
    }

    /// Encodes the header, as a client does.
    pub fn encode(&self) -> [u8; REQUEST_HEADER_LEN] {
        let mut bytes = [0; REQUEST_HEADER_LEN];
        bytes[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// A header of up to `MAX` bytes, which may come in pieces.
pub(crate) struct Header<const MAX: usize> {
    bytes: [u8; MAX],
    len: usize,
}

impl<const MAX: usize> Header<MAX> {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; MAX], len: 0 }
    }

    /// Bytes that are gathered.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The next one is awaited.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Gathers one of `N` bytes, which stays until it is cleared; `None` while some are lacking.
    pub(crate) fn gather<const N: usize>(&mut self, input: &mut &[u8]) -> Option<[u8; N]> {
        let count = (N - self.len).min(input.len());
        let (taken, rest) = input.split_at(count);
        self.bytes[self.len..self.len + count].copy_from_slice(taken);
        self.len += count;
        *input = rest;
        (self.len == N).then(|| self.bytes[..N].try_into().expect("N bytes were gathered"))
    }
}

/// Takes up to `remaining` bytes off the input; returns how many are still to come.
pub(crate) fn skip(input: &mut &[u8], remaining: u32) -> u32 {
    let count = (remaining as usize).min(input.len());
    *input = &input[count..];
    remaining - count as u32
}

/// Takes big-endian fields off the front of a slice; `None` where it is too short.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string with its 32-bit length before it.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.bytes(usize::try_from(len).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_header_survives_the_wire() {
        let header =
            RequestHeader { flags: 0x0102, kind: 7, cookie: u64::MAX - 1, offset: 1 << 40, len: 9 };
        assert_eq!(RequestHeader::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn a_wrong_magic_is_told() {
        let mut bytes = RequestHeader { flags: 0, kind: 0, cookie: 0, offset: 0, len: 0 }.encode();
        bytes[0] ^= 0xff;
        assert_eq!(RequestHeader::decode(&bytes), Err(REQUEST_MAGIC ^ 0xff00_0000));
    }

    #[test]
    fn a_reader_never_takes_more_than_there_is() {
        let mut reader = Reader(&[0, 0, 0, 9, 1]);
        assert_eq!(reader.string(), None);
        assert_eq!(reader.u16(), None);
        assert_eq!(Reader(&[]).u64(), None);
    }
}
