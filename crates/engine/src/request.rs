//! A client's request while a shard has it.
//!
//! Invariants:
//! - `pending` counts the parts of it that are under way: member I/Os, fragments, and its window while that is issued;
//! - a window is issued while nothing of the one before is under way;
//! - a request ends when nothing of it is under way;
//! - what failed first is what the request fails with.

use crate::{
    behind::Copies,
    gate::Admission,
    slots::{Key, Slots},
    stripe::StreamId,
    types::*,
};
use lapstrake_geometry::Geometry;

/// A request is worked on in windows of this many sectors, which bounds what a long discard or
/// write-zeroes puts in flight at once.
const WINDOW_SECTORS: u64 = (32 << 20) / 512;
/// How often a read is begun anew when its pages have been tried: members may fail in other places meanwhile.
const RETRIES_MAX: u8 = 2;

pub(crate) type ReqKey = Key<Req>;
pub(crate) type Requests = Slots<Req>;

/// For whom a read is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Whoever asks for sectors that this shard owns.
    Owner,
    /// Who asks for sectors that other shards own.
    Foreign,
    /// A reshape, which moves what it reads: of copies all take turns.
    Mover,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Req {
    id: RequestId,
    kind: RequestKind,
    start: u64,
    end: u64,
    /// First sector not issued yet.
    cursor: u64,
    pending: u32,
    error: Option<RequestError>,
    /// How often a read has been begun anew.
    retries: u8,
    /// What the gate let through of it.
    pub(crate) admission: Admission,
    /// The stream that the write is part of.
    pub(crate) stream: Option<StreamId>,
    /// Copies that are left behind.
    pub(crate) copies: Option<Copies>,
    reader: Reader,
    /// What is to be merged into the block that is being read.
    merge: Option<Merge>,
}

/// The part of a block that a request writes, once it has read the block.
#[derive(Clone, Copy, Debug)]
struct Merge {
    /// The part.
    from: Buf,
    /// Its place in the block.
    to: Buf,
    len: u32,
    write: RequestKind,
}

impl Merge {
    /// What is to be read first, and what becomes of it.
    fn split(kind: RequestKind) -> (RequestKind, Option<Self>) {
        let RequestKind::WritePart { buf, old, skip, len, fua } = kind else { return (kind, None) };
        let block = buf.advance(old);
        let write = RequestKind::Write { buf: block, fua, followed: false };
        let (from, to) = (buf.advance(skip), block.advance(skip));
        (RequestKind::Read(block), Some(Self { from, to, len, write }))
    }
}

impl Req {
    pub(crate) fn new(request: &Request, reader: Reader) -> Self {
        let start = request.sector.0;
        let (kind, merge) = Merge::split(request.kind);
        Self {
            id: request.id,
            kind,
            start,
            end: start + request.len.0,
            cursor: start,
            pending: 0,
            error: None,
            retries: 0,
            admission: Admission::default(),
            stream: None,
            copies: None,
            reader,
            merge,
        }
    }

    /// Whether it claims its range, so that no other write overlaps it.
    pub(crate) fn claims(&self) -> bool {
        self.kind.is_write() || self.merge.is_some()
    }

    /// Whether it reads a block, a part of which it is to write.
    pub(crate) fn is_merging(&self) -> bool {
        self.merge.is_some()
    }

    /// The block has been read: it is a write from now on, once this copy is made.
    pub(crate) fn merge(&mut self) -> Option<Compute> {
        let Merge { from, to, len, write } = self.merge.take()?;
        assert!(self.pending == 0 && self.error.is_none(), "what was read is all there");
        (self.kind, self.cursor) = (write, self.start);
        Some(Compute::Xor { dst: to, srcs: Bufs::from_elem(from, 1), len })
    }

    pub(crate) fn id(&self) -> RequestId {
        self.id
    }

    pub(crate) fn kind(&self) -> RequestKind {
        self.kind
    }

    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Its sectors, from the first to behind the last.
    pub(crate) fn range(&self) -> (u64, u64) {
        (self.start, self.end)
    }

    pub(crate) fn is_foreign(&self) -> bool {
        self.reader == Reader::Foreign
    }

    pub(crate) fn is_for_reshape(&self) -> bool {
        self.reader == Reader::Mover
    }

    pub(crate) fn error(&self) -> Option<RequestError> {
        self.error
    }

    pub(crate) fn fua(&self) -> bool {
        matches!(
            self.kind,
            RequestKind::Write { fua: true, .. } | RequestKind::WriteZeroes { fua: true, .. }
        )
    }

    /// Of a write of zeros or a discard: whether it is stable before the reply, and whether members may give room back.
    pub(crate) fn zeroes(&self) -> (bool, bool) {
        match self.kind {
            RequestKind::WriteZeroes { fua, unmap } => (fua, unmap),
            _ => (false, true),
        }
    }

    /// The request's memory for an array sector of it.
    pub(crate) fn buf_at(&self, sector: u64) -> Buf {
        match self.kind {
            RequestKind::Read(buf) | RequestKind::Write { buf, .. } => {
                buf.advance_sectors((sector - self.start) as u32)
            }
            _ => Buf::ZERO,
        }
    }

    /// The next part of it. Parity levels cut at whole stripes, so that no full stripe is torn apart.
    pub(crate) fn window(&self, geometry: &Geometry) -> (u64, u64) {
        let end = self.end.min(self.cursor + WINDOW_SECTORS);
        if let Geometry::Parity(parity) = geometry
            && end < self.end
        {
            let stripe = parity.stripe_data().0;
            let cut = end - end % stripe;
            return (self.cursor, if cut > self.cursor { cut } else { self.end.min(cut + stripe) });
        }
        (self.cursor, end)
    }

    /// The window that [`Self::window`] gave is about to be issued, which is a part until it has been.
    pub(crate) fn begin_window(&mut self, (start, end): (u64, u64)) {
        assert_eq!(self.pending, 0, "a window is issued when the one before has ended");
        assert!(start == self.cursor && end <= self.end, "windows follow each other");
        self.cursor = end;
        self.pending = 1;
    }

    /// All windows have been issued.
    pub(crate) fn is_issued(&self) -> bool {
        self.cursor == self.end
    }

    /// What of a write has been issued, while some of it is under way.
    pub(crate) fn sent(&self) -> Option<(u64, u64)> {
        (self.kind.is_write() && self.pending > 0).then_some((self.start, self.cursor))
    }

    /// So many parts more are under way.
    pub(crate) fn expect(&mut self, parts: u32) {
        self.pending += parts;
    }

    /// A part has been cut into others, which are counted.
    pub(crate) fn part_cut(&mut self) {
        assert!(self.pending > 1, "a part is cut into others");
        self.pending -= 1;
    }

    /// One of its parts has ended. True if nothing is under way any more.
    pub(crate) fn part_done(&mut self, error: Option<RequestError>) -> bool {
        assert!(self.pending > 0, "a part ends that was not counted");
        self.error = self.error.or(error);
        self.pending -= 1;
        self.pending == 0
    }

    /// It fails, though not before its parts have ended.
    pub(crate) fn fail(&mut self, error: RequestError) {
        self.error.get_or_insert(error);
    }

    /// Whether what failed as a whole may be read in parts, if its members' pages are being tried.
    pub(crate) fn may_retry(&self) -> bool {
        matches!(self.kind, RequestKind::Read(_))
            && !self.is_foreign()
            && self.retries < RETRIES_MAX
    }

    /// Begins a read anew.
    pub(crate) fn restart(&mut self) {
        assert!(self.pending == 0 && self.may_retry(), "a read is begun anew when it has failed");
        (self.error, self.cursor) = (None, self.start);
        self.retries += 1;
    }

    /// Whether only copies are left of it that need not be waited for.
    pub(crate) fn may_reply(&self) -> bool {
        let copies = self.copies.as_ref();
        self.error.is_none() && copies.is_some_and(|copies| copies.may_reply(self.pending))
    }
}

impl Requests {
    /// Takes a request out that has ended.
    pub(crate) fn finish(&mut self, key: ReqKey) -> Req {
        let req = self.remove(key);
        assert_eq!(req.pending, 0, "a request ends when nothing of it is under way");
        assert!(!req.admission.holds_bits(), "a request ends when its bits are free");
        req
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use lapstrake_geometry::{Config, Layout, Level, Sector, Sectors};

    const READ: RequestKind = RequestKind::Read(Buf { id: BufId(1), offset: 0 });

    fn req(kind: RequestKind, start: u64, len: u64) -> Req {
        let (sector, len) = (Sector(start), Sectors(len));
        Req::new(&Request { id: RequestId(1), kind, sector, len }, Reader::Owner)
    }

    fn raid5(chunk: u64) -> Geometry {
        Geometry::new(&Config {
            level: Level::Raid5,
            layout: Layout::default_for(Level::Raid5),
            chunk: Sectors(chunk),
            raid_disks: 4,
            component: Sectors(1 << 20),
            member_sizes: Vec::new(),
        })
        .expect("a geometry")
    }

    #[test]
    fn long_requests_go_in_windows_that_end_with_a_stripe() {
        let geometry = raid5(128);
        let mut discard = req(RequestKind::Discard, 8, 100_000);
        let cut = WINDOW_SECTORS / 384 * 384;
        assert_eq!(discard.window(&geometry), (8, cut));
        discard.begin_window((8, cut));
        assert_eq!(discard.sent(), Some((8, cut)));
        assert!(!discard.is_issued() && discard.part_done(None));
        assert_eq!((discard.window(&geometry), discard.sent()), ((cut, 100_008), None));
        discard.begin_window((cut, 100_008));
        assert!(discard.is_issued());
    }

    #[test]
    fn a_stripe_longer_than_a_window_is_issued_whole() {
        let geometry = raid5(1 << 17);
        assert_eq!(req(RequestKind::Discard, 0, 1 << 19).window(&geometry), (0, 3 << 17));
    }

    #[test]
    fn it_fails_with_what_failed_first() {
        let mut read = req(READ, 0, 8);
        read.begin_window((0, 8));
        read.expect(1);
        assert!(!read.part_done(Some(RequestError::NoSpace)));
        read.fail(RequestError::Io);
        assert!(read.part_done(Some(RequestError::Io)));
        assert_eq!(read.error(), Some(RequestError::NoSpace));
    }

    #[test]
    fn only_reads_are_begun_anew_and_only_so_often() {
        assert!(!req(RequestKind::Discard, 0, 8).may_retry());
        let mut read = req(READ, 0, 8);
        for _ in 0..RETRIES_MAX {
            read.begin_window((0, 8));
            read.part_done(Some(RequestError::Io));
            read.restart();
            assert_eq!((read.error(), read.is_issued()), (None, false));
        }
        assert!(!read.may_retry());
        let foreign = Request { id: RequestId(1), kind: READ, sector: Sector(0), len: Sectors(8) };
        assert!(!Req::new(&foreign, Reader::Foreign).may_retry(), "its owner reads it");
    }

    #[test]
    #[should_panic(expected = "nothing of it is under way")]
    fn a_request_does_not_end_before_its_parts() {
        let mut requests = Requests::default();
        let key = requests.insert(req(READ, 0, 8));
        requests[key].begin_window((0, 8));
        requests.finish(key);
    }

    #[test]
    #[should_panic(expected = "the one before has ended")]
    fn windows_are_issued_one_after_the_other() {
        let mut read = req(READ, 0, 16);
        read.begin_window((0, 8));
        read.begin_window((8, 16));
    }
}
