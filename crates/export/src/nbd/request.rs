//! Requests: what a driver is asked to do, and the judgement that lets a client's words become so.
//!
//! A [`Request`] that a driver sees is already right: known, within the export, of length above zero
//! (a flush: zero), allowed by the export and by what was negotiated. It is aligned to the export's
//! minimum block if its client has asked for that, and to a byte if not. All else is refused here,
//! with the error that the specification asks for.

use super::export::ExportInfo;
use super::options::Negotiated;
use super::wire::{self, RequestHeader, cmd, cmd_flag};

/// Names one request in flight on one connection, from its event until it is released.
///
/// The index is below the connection's limit of requests, so a driver may keep its buffers in an
/// array. The generation catches an id that is used after its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    pub(crate) index: u16,
    pub(crate) generation: u16,
}

impl RequestId {
    /// Place in the connection's table.
    pub fn index(self) -> usize {
        usize::from(self.index)
    }

    /// The id as a number, for the user data of an I/O ring.
    pub fn to_bits(self) -> u32 {
        u32::from(self.generation) << 16 | u32::from(self.index)
    }

    /// The id that [`RequestId::to_bits`] made into a number.
    pub fn from_bits(bits: u32) -> Self {
        RequestId { index: bits as u16, generation: (bits >> 16) as u16 }
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Fill the request's buffer from the export.
    Read,
    /// Write the request's buffer to the export.
    Write,
    /// Make all writes durable that were replied to before, on any connection.
    Flush,
    /// Discard the range; its contents may become anything.
    Trim,
    /// Make the range read as zeroes.
    WriteZeroes {
        /// The range must stay, or become, allocated.
        no_hole: bool,
    },
    /// The range will be read soon: fetch it if that is of use.
    Cache,
    /// Say which parts of the range are allocated.
    BlockStatus {
        /// Only the first extent is wanted, and only up to the end of the range.
        one: bool,
    },
}

/// One request, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name towards the connection.
    pub id: RequestId,
    /// What is to be done.
    pub command: Command,
    /// First byte of the export.
    pub offset: u64,
    /// Bytes. Reads and writes: at most the export's maximum payload. The others: up to 4 GiB.
    pub len: u32,
    /// What this request writes must be durable before it is replied to.
    pub fua: bool,
}

/// The errors that NBD can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted (the export is read-only).
    Perm = 1,
    /// Input or output failed.
    Io = 5,
    /// No memory.
    NoMem = 12,
    /// Not a valid request.
    Inval = 22,
    /// Beyond the end, or no space left.
    NoSpc = 28,
    /// Longer than can be served.
    Overflow = 75,
    /// Cannot be done quickly (fast zeroes).
    NotSup = 95,
    /// The server is going down.
    Shutdown = 108,
}

impl Errno {
    /// The nearest error for an `errno` of Linux. Total: what NBD cannot say becomes `EIO`.
    ///
    /// `EOPNOTSUPP` becomes `EINVAL`, since clients expect `ENOTSUP` of fast zeroes alone.
    pub fn from_os(errno: i32) -> Self {
        match errno {
            libc::EPERM | libc::EACCES | libc::EROFS => Errno::Perm,
            libc::ENOMEM => Errno::NoMem,
            libc::EINVAL | libc::EOPNOTSUPP => Errno::Inval,
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => Errno::NoSpc,
            libc::EOVERFLOW => Errno::Overflow,
            libc::ESHUTDOWN => Errno::Shutdown,
            _ => Errno::Io,
        }
    }
}

/// Why a request is refused: the error, and a line for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) errno: Errno,
    pub(crate) text: &'static str,
}

/// What transmission runs by: the export's rules and what was negotiated.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) export: usize,
    pub(crate) structured: bool,
    pub(crate) context: bool,
    pub(crate) max_payload: u32,
    size: u64,
    min_block: u32,
    read_only: bool,
}

impl Session {
    pub(crate) fn new(export: usize, info: &ExportInfo, negotiated: &Negotiated) -> Self {
        let keeps_to_blocks = negotiated.sized == Some(export);
        Session {
            export,
            structured: negotiated.structured,
            context: negotiated.context == Some(export),
            max_payload: info.max_payload,
            size: info.size.bytes(),
            min_block: if keeps_to_blocks { info.min_block } else { 1 },
            read_only: info.read_only,
        }
    }

    /// Longest write payload, in bytes, that is read rather than answered by hanging up.
    pub(crate) fn tolerated_payload(&self) -> u32 {
        self.max_payload.max(wire::PAYLOAD_ALWAYS_TOLERATED)
    }

    /// Turns a header into a command, or says why not. `NBD_CMD_DISC` is not for here.
    pub(crate) fn judge(&self, header: &RequestHeader) -> Result<Command, Refusal> {
        let flag = |bit| header.flags & bit != 0;
        let (command, flags) = match header.kind {
            cmd::READ if self.structured => (Command::Read, cmd_flag::DF),
            cmd::READ => (Command::Read, 0),
            cmd::WRITE => (Command::Write, 0),
            cmd::FLUSH => (Command::Flush, 0),
            cmd::TRIM => (Command::Trim, 0),
            cmd::CACHE => (Command::Cache, 0),
            cmd::WRITE_ZEROES => (
                Command::WriteZeroes { no_hole: flag(cmd_flag::NO_HOLE) },
                cmd_flag::NO_HOLE | cmd_flag::FAST_ZERO,
            ),
            cmd::BLOCK_STATUS if self.context => {
                (Command::BlockStatus { one: flag(cmd_flag::REQ_ONE) }, cmd_flag::REQ_ONE)
            }
            cmd::BLOCK_STATUS => return refuse(Errno::Inval, "no metadata context was selected"),
            _ => return refuse(Errno::Inval, "unknown command"),
        };
        // Clients are known to set FUA on anything.
        if header.flags & !(flags | cmd_flag::FUA) != 0 {
            return refuse(Errno::Inval, "flag not valid for this command");
        }
        self.judge_range(command, header)?;
        if flag(cmd_flag::FAST_ZERO) && header.kind == cmd::WRITE_ZEROES {
            return refuse(Errno::NotSup, "zeroing is no faster than writing");
        }
        Ok(command)
    }

    fn judge_range(&self, command: Command, header: &RequestHeader) -> Result<(), Refusal> {
        let writes =
            matches!(command, Command::Write | Command::Trim | Command::WriteZeroes { .. });
        if self.read_only && writes {
            return refuse(Errno::Perm, "the export is read-only");
        }
        if command == Command::Flush {
            if header.offset != 0 || header.len != 0 {
                return refuse(Errno::Inval, "a flush takes no range");
            }
            return Ok(());
        }
        let mask = u64::from(self.min_block) - 1;
        if (header.offset | u64::from(header.len)) & mask != 0 {
            return refuse(Errno::Inval, "range not aligned to the minimum block size");
        }
        let within =
            header.offset.checked_add(header.len.into()).is_some_and(|end| end <= self.size);
        if !within {
            let errno = match command {
                Command::Write | Command::WriteZeroes { .. } => Errno::NoSpc,
                _ => Errno::Inval,
            };
            return refuse(errno, "range goes beyond the end of the export");
        }
        match command {
            Command::Read if header.len > self.max_payload => {
                // EOVERFLOW is for clients that know structured replies.
                let errno = if self.structured { Errno::Overflow } else { Errno::Inval };
                refuse(errno, "longer than the maximum payload")
            }
            Command::Write if header.len > self.max_payload => {
                refuse(Errno::Inval, "longer than the maximum payload")
            }
            Command::BlockStatus { .. } if header.len == 0 => {
                refuse(Errno::Inval, "no block status of nothing")
            }
            _ => Ok(()),
        }
    }
}

fn refuse<T>(errno: Errno, text: &'static str) -> Result<T, Refusal> {
    Err(Refusal { errno, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn session(structured: bool, change: impl FnOnce(&mut ExportInfo)) -> Session {
        let mut info = ExportInfo::new("x", 256 * MIB);
        change(&mut info);
        Session::new(0, &info, &negotiated(structured, Some(0)))
    }

    fn negotiated(structured: bool, context: Option<usize>) -> Negotiated {
        Negotiated { structured, context, sized: Some(0), ..Negotiated::default() }
    }

    fn judge(s: &Session, kind: u16, flags: u16, offset: u64, len: u32) -> Result<Command, Errno> {
        s.judge(&RequestHeader { flags, kind, cookie: 0, offset, len }).map_err(|r| r.errno)
    }

    #[test]
    fn every_command_is_taken_with_its_own_flags_only() {
        use cmd_flag::*;
        let s = session(true, |_| ());
        let own = [
            (cmd::READ, DF),
            (cmd::WRITE, 0),
            (cmd::TRIM, 0),
            (cmd::CACHE, 0),
            (cmd::WRITE_ZEROES, NO_HOLE | FAST_ZERO),
            (cmd::BLOCK_STATUS, REQ_ONE),
        ];
        for (kind, own) in own {
            for bit in 0..16 {
                let flag = 1 << bit;
                let verdict = judge(&s, kind, flag, 512, 512);
                match flag {
                    FAST_ZERO if flag & own != 0 => assert_eq!(verdict, Err(Errno::NotSup)),
                    _ if flag & (own | FUA) != 0 => assert!(verdict.is_ok(), "{kind} {flag}"),
                    _ => assert_eq!(verdict, Err(Errno::Inval), "{kind} {flag}"),
                }
            }
        }
        assert_eq!(judge(&s, cmd::FLUSH, FUA, 0, 0), Ok(Command::Flush));
        for kind in [8, 9, 0x1234, u16::MAX] {
            assert_eq!(judge(&s, kind, 0, 0, 512), Err(Errno::Inval));
        }
    }

    #[test]
    fn ranges_get_the_error_of_the_specification() {
        use Errno::*;
        let s = session(true, |_| ());
        let end = 256 * MIB;
        let cases = [
            (cmd::READ, 1, 512, Err(Inval)),
            (cmd::READ, 0, 511, Err(Inval)),
            (cmd::WRITE, 512, 1, Err(Inval)),
            (cmd::READ, end - 512, 512, Ok(Command::Read)),
            (cmd::READ, end - 512, 1024, Err(Inval)),
            (cmd::TRIM, end, 512, Err(Inval)),
            (cmd::CACHE, end, 512, Err(Inval)),
            (cmd::BLOCK_STATUS, end, 512, Err(Inval)),
            (cmd::BLOCK_STATUS, 0, 0, Err(Inval)),
            (cmd::WRITE, end, 512, Err(NoSpc)),
            (cmd::WRITE_ZEROES, end - 512, 1024, Err(NoSpc)),
            (cmd::WRITE, u64::MAX - 511, 512, Err(NoSpc)),
            (cmd::READ, u64::MAX - 511, 512, Err(Inval)),
            (cmd::READ, 0, 32 << 20, Ok(Command::Read)),
            (cmd::READ, 0, (32 << 20) + 512, Err(Overflow)),
            (cmd::WRITE, 0, (32 << 20) + 512, Err(Inval)),
            (cmd::TRIM, 0, 256 << 20, Ok(Command::Trim)),
            (cmd::WRITE_ZEROES, 0, 256 << 20, Ok(Command::WriteZeroes { no_hole: false })),
            (cmd::CACHE, 0, 256 << 20, Ok(Command::Cache)),
            (cmd::FLUSH, 0, 512, Err(Inval)),
            (cmd::FLUSH, 512, 0, Err(Inval)),
        ];
        for (kind, offset, len, expected) in cases {
            assert_eq!(judge(&s, kind, 0, offset, len), expected, "{kind} {offset} {len}");
        }
        let simple = session(false, |_| ());
        assert_eq!(judge(&simple, cmd::READ, 0, 0, (32 << 20) + 512), Err(Inval));
        assert_eq!(judge(&simple, cmd::READ, cmd_flag::DF, 0, 512), Err(Inval));
    }

    #[test]
    fn who_never_asked_for_block_sizes_may_send_any_bytes() {
        let info = ExportInfo::new("x", MIB);
        let negotiated = Negotiated { sized: Some(1), ..negotiated(true, Some(0)) };
        let s = Session::new(0, &info, &negotiated);
        assert_eq!(judge(&s, cmd::WRITE, 0, 7, 1), Ok(Command::Write));
        assert_eq!(judge(&s, cmd::READ, 0, MIB - 1, 1), Ok(Command::Read));
        assert_eq!(judge(&s, cmd::WRITE, 0, MIB - 1, 2), Err(Errno::NoSpc));
    }

    #[test]
    fn a_read_only_export_refuses_every_write() {
        let s = session(true, |e| e.read_only = true);
        for kind in [cmd::WRITE, cmd::TRIM, cmd::WRITE_ZEROES] {
            assert_eq!(judge(&s, kind, 0, 0, 512), Err(Errno::Perm));
        }
        for kind in [cmd::READ, cmd::CACHE, cmd::BLOCK_STATUS] {
            assert!(judge(&s, kind, 0, 0, 512).is_ok());
        }
        assert!(judge(&s, cmd::FLUSH, 0, 0, 0).is_ok());
    }

    #[test]
    fn block_status_needs_a_context_of_the_same_export() {
        let info = ExportInfo::new("x", MIB);
        for context in [None, Some(1)] {
            let s = Session::new(0, &info, &negotiated(true, context));
            assert_eq!(judge(&s, cmd::BLOCK_STATUS, 0, 0, 512), Err(Errno::Inval));
        }
    }

    #[test]
    fn ids_survive_as_numbers() {
        let id = RequestId { index: 0xabcd, generation: 0x1234 };
        assert_eq!(RequestId::from_bits(id.to_bits()), id);
    }
}
