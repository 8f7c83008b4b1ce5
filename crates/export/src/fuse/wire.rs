//! FUSE's messages: what of the kernel's `include/uapi/linux/fuse.h` a single file needs.
//!
//! A message has a header and a body; integers are in the machine's order. A write's data follow its body.
//!
//! | bytes of a request's header | field |
//! |---|---|
//! | 0, 4 | length of the whole |
//! | 4, 4 | opcode |
//! | 8, 8 | unique: the request's name, for the answer |
//! | 16, 24 | inode, user, group, process: not looked at |
//!
//! | body of | fields, at |
//! |---|---|
//! | setattr | valid 0, size 16, mode 68, user 76, group 80 |
//! | read | offset 8, length 16 |
//! | write | offset 8, length 16, flags of open(2) 32 |
//! | fallocate | offset 8, length 16, mode 24 |
//!
//! An answer's header: length 0, 4 bytes; `-errno` 4, 4 bytes; unique 8, 8 bytes.

/// Bytes of a request before a write's data: its header, then its body.
pub(super) const HEAD: usize = IN_HEADER + WRITE_BODY;
pub(super) const IN_HEADER: usize = 40;
const WRITE_BODY: usize = 40;
/// The longest body that is read here, setattr's.
pub(super) const BODY_MAX: usize = 88;
/// Of an answer.
const OUT_HEADER: usize = 16;
/// The longest answer that is no data.
const ANSWER_MAX: usize = OUT_HEADER + 104;

/// Opcodes.
mod opcode {
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const DESTROY: u32 = 38;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
}
/// Which fields of setattr are meant.
mod valid {
    pub const MODE: u32 = 1;
    pub const UID: u32 = 2;
    pub const GID: u32 = 4;
    pub const SIZE: u32 = 8;
}

/// What the kernel asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Its name, for the answer.
    pub unique: u64,
    pub call: Call,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    GetAttr,
    SetAttr {
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
    },
    Open,
    Release,
    Read {
        offset: u64,
        len: u32,
    },
    /// Of the data that follow.
    Write {
        offset: u64,
        len: u32,
        /// The file's flags, as of open(2).
        flags: u32,
    },
    Fsync,
    Fallocate {
        offset: u64,
        len: u64,
        mode: i32,
    },
    StatFs,
    /// The kernel forgets something, and wants no answer.
    Forget,
    Destroy,
    /// Anything else.
    Other,
}

/// Reads a request: `head` is its first [`HEAD`] bytes at most, `rest` what came after them.
/// None if it is cut short.
pub(super) fn parse(head: &[u8], rest: &[u8]) -> Option<Request> {
    let (header, body) = head.split_at_checked(IN_HEADER)?;
    let mut whole = [0; BODY_MAX];
    let rest_used = rest.len().min(BODY_MAX - WRITE_BODY);
    whole[..body.len()].copy_from_slice(body);
    whole[body.len()..][..rest_used].copy_from_slice(&rest[..rest_used]);
    parse_parts(header, &whole[..body.len() + rest_used], rest.len())
}

/// Reads a request whose header, body and data (of so many bytes) lie apart. None if it is cut short.
pub(super) fn parse_parts(header: &[u8], body: &[u8], data: usize) -> Option<Request> {
    let (header, body) = (Fields(header), Fields(body));
    let call = match header.u32(4)? {
        opcode::FORGET | opcode::BATCH_FORGET => Call::Forget,
        opcode::GETATTR => Call::GetAttr,
        opcode::SETATTR => {
            let valid = body.u32(0)?;
            let (mode, uid, gid) = (body.u32(68)?, body.u32(76)?, body.u32(80)?);
            let size = body.u64(16)?;
            Call::SetAttr {
                mode: (valid & valid::MODE != 0).then_some(mode),
                uid: (valid & valid::UID != 0).then_some(uid),
                gid: (valid & valid::GID != 0).then_some(gid),
                size: (valid & valid::SIZE != 0).then_some(size),
            }
        }
        opcode::OPEN => Call::Open,
        opcode::READ => Call::Read { offset: body.u64(8)?, len: body.u32(16)? },
        opcode::WRITE => {
            let len = body.u32(16)?;
            if len as usize != data {
                return None;
            }
            Call::Write { offset: body.u64(8)?, len, flags: body.u32(32)? }
        }
        opcode::STATFS => Call::StatFs,
        opcode::RELEASE => Call::Release,
        opcode::FSYNC => Call::Fsync,
        opcode::DESTROY => Call::Destroy,
        opcode::FALLOCATE => {
            Call::Fallocate { offset: body.u64(8)?, len: body.u64(16)?, mode: body.u32(24)? as i32 }
        }
        _ => Call::Other,
    };
    Some(Request { unique: header.u64(8)?, call })
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(*self.0.get(at..)?.first_chunk()?))
    }
}

/// An answer's header, for `len` bytes that follow it, or an `errno`.
pub(super) fn out_header(unique: u64, len: usize, errno: i32) -> [u8; OUT_HEADER] {
    let mut header = [0; OUT_HEADER];
    header[..4].copy_from_slice(&((OUT_HEADER + len) as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&(-errno).to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// An answer that is no data, as it grows; its header is put before it at the end.
#[derive(Debug)]
pub(super) struct Body {
    bytes: [u8; ANSWER_MAX],
    len: usize,
}

/// What stat(2) tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes {
    /// Seconds for which the kernel may believe it.
    pub valid: u64,
    pub inode: u64,
    pub bytes: u64,
    /// Of 512 bytes.
    pub blocks: u64,
    /// Nanoseconds since 1970.
    pub accessed: u64,
    /// The same, of contents and attributes.
    pub changed: u64,
    /// With the file's kind.
    pub mode: u32,
    pub owner: (u32, u32),
    /// What it is best read and written in, bytes.
    pub block: u32,
}

impl Body {
    pub(super) fn empty() -> Self {
        Self { bytes: [0; ANSWER_MAX], len: OUT_HEADER }
    }

    pub(super) fn attributes(of: &Attributes) -> Self {
        let split = |ns: u64| (ns / 1_000_000_000, (ns % 1_000_000_000) as u32);
        let ((accessed, accessed_ns), (changed, changed_ns)) =
            (split(of.accessed), split(of.changed));
        let (links, device, padding) = (1, 0, 0);
        Self::empty()
            .words(&[of.valid, 0, of.inode, of.bytes, of.blocks, accessed, changed, changed])
            .halves(&[accessed_ns, changed_ns, changed_ns, of.mode, links])
            .halves(&[of.owner.0, of.owner.1, device, of.block, padding])
    }

    /// With the flags `FOPEN_*`.
    pub(super) fn opened(flags: u32) -> Self {
        Self::empty().words(&[0]).halves(&[flags, 0])
    }

    pub(super) fn written(bytes: u32) -> Self {
        Self::empty().halves(&[bytes, 0])
    }

    /// A full file system of so many blocks with one file.
    pub(super) fn statfs(blocks: u64, block: u32) -> Self {
        let (free, files, name_max) = (0, 1, 255);
        let body = Self::empty().words(&[blocks, free, free, files, free]);
        body.halves(&[block, name_max, block]).halves(&[0; 7])
    }

    /// What follows the header.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[OUT_HEADER..self.len]
    }

    /// The whole answer to this request.
    pub(super) fn to(&mut self, unique: u64) -> &[u8] {
        let header = out_header(unique, self.len - OUT_HEADER, 0);
        self.bytes[..OUT_HEADER].copy_from_slice(&header);
        &self.bytes[..self.len]
    }

    fn words(self, words: &[u64]) -> Self {
        words.iter().fold(self, |body, word| body.with(&word.to_ne_bytes()))
    }

    fn halves(self, halves: &[u32]) -> Self {
        halves.iter().fold(self, |body, half| body.with(&half.to_ne_bytes()))
    }

    fn with(mut self, bytes: &[u8]) -> Self {
        self.bytes[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request as the kernel lays it out.
    fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((IN_HEADER as u32 + body.len() as u32).to_ne_bytes());
        bytes.extend(opcode.to_ne_bytes());
        bytes.extend(77u64.to_ne_bytes());
        bytes.extend([0; 24]);
        bytes.extend(body);
        bytes
    }

    fn parsed(bytes: &[u8]) -> Option<Request> {
        let (head, rest) = bytes.split_at(bytes.len().min(HEAD));
        parse(head, rest)
    }

    #[test]
    fn a_write_is_read_with_the_place_of_its_data() {
        let mut body = vec![0; WRITE_BODY];
        body[8..16].copy_from_slice(&4096u64.to_ne_bytes());
        body[16..20].copy_from_slice(&3u32.to_ne_bytes());
        body[32..36].copy_from_slice(&0o10000u32.to_ne_bytes());
        body.extend(b"abc");
        let whole = message(16, &body);
        let call = Call::Write { offset: 4096, len: 3, flags: 0o10000 };
        assert_eq!(parsed(&whole), Some(Request { unique: 77, call }));
        assert_eq!(parsed(&whole[..whole.len() - 1]), None, "of its data one byte is missing");
    }

    /// A body of 88 bytes in which each has its place for its value, from 1 on.
    fn counted() -> Vec<u8> {
        (1..=BODY_MAX as u8).collect()
    }

    fn u32_at(at: usize) -> u32 {
        Fields(&counted()).u32(at).expect("it is that long")
    }

    fn u64_at(at: usize) -> u64 {
        Fields(&counted()).u64(at).expect("it is that long")
    }

    #[test]
    fn each_request_is_read_from_its_places() {
        let read = Call::Read { offset: u64_at(8), len: u32_at(16) };
        let fallocate =
            Call::Fallocate { offset: u64_at(8), len: u64_at(16), mode: u32_at(24) as i32 };
        for (opcode, call) in [
            (1, Call::Other),
            (2, Call::Forget),
            (3, Call::GetAttr),
            (14, Call::Open),
            (15, read),
            (17, Call::StatFs),
            (18, Call::Release),
            (20, Call::Fsync),
            (25, Call::Other),
            (36, Call::Other),
            (38, Call::Destroy),
            (42, Call::Forget),
            (43, fallocate),
        ] {
            let request = parsed(&message(opcode, &counted()));
            assert_eq!(request, Some(Request { unique: 77, call }), "opcode {opcode}");
        }
    }

    #[test]
    fn attributes_are_changed_where_the_request_says_so_only() {
        for valid in 0..16u32 {
            let mut body = counted();
            body[..4].copy_from_slice(&valid.to_ne_bytes());
            let call = Call::SetAttr {
                mode: (valid & 1 != 0).then_some(u32_at(68)),
                uid: (valid & 2 != 0).then_some(u32_at(76)),
                gid: (valid & 4 != 0).then_some(u32_at(80)),
                size: (valid & 8 != 0).then_some(u64_at(16)),
            };
            let request = parsed(&message(4, &body));
            assert_eq!(request, Some(Request { unique: 77, call }), "valid {valid}");
        }
    }

    #[test]
    fn a_request_that_is_cut_short_is_none() {
        for opcode in [4, 15, 16, 43] {
            for len in 0..16 {
                assert_eq!(parsed(&message(opcode, &vec![0; len])), None, "{opcode} with {len}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_too_wild(bytes in proptest::collection::vec(0u8.., 0..200), opcode in 0u8..64) {
            let mut bytes = bytes;
            if let Some(first) = bytes.get_mut(4) {
                *first = opcode;
            }
            proptest::prop_assert!(bytes.len() >= IN_HEADER || parsed(&bytes).is_none());
        }
    }

    #[test]
    fn answers_have_the_kernels_lengths() {
        let attributes = Attributes {
            valid: 1,
            inode: 1,
            bytes: 1 << 20,
            blocks: 2048,
            accessed: 1_500_000_000,
            changed: 2_000_000_007,
            mode: 0o100600,
            owner: (3, 4),
            block: 4096,
        };
        let mut body = Body::attributes(&attributes);
        let (header, body) = body.to(5).split_at(OUT_HEADER);
        assert_eq!(*header, out_header(5, 104, 0));
        let fields = Fields(body);
        assert_eq!((fields.u64(24), fields.u64(40)), (Some(1 << 20), Some(1)));
        assert_eq!((fields.u64(48), fields.u64(56)), (Some(2), Some(2)));
        assert_eq!((fields.u32(64), fields.u32(68)), (Some(500_000_000), Some(7)));
        let rest = [76, 80, 84, 88, 92, 96, 100].map(|at| fields.u32(at).expect("it is that long"));
        assert_eq!(rest, [0o100600, 1, 3, 4, 0, 4096, 0]);
        let lengths = [Body::opened(1), Body::written(1), Body::statfs(1, 512), Body::empty()];
        assert_eq!(lengths.map(|mut body| body.to(5).len() - OUT_HEADER), [16, 8, 80, 0]);
        assert_eq!(
            out_header(5, 8, 0),
            *[&24u32.to_ne_bytes()[..], &[0; 4], &5u64.to_ne_bytes()].concat()
        );
    }
}
