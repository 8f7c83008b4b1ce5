//! Levels without parity: each run of a request goes straight to the members that hold it.
//!
//! Also the [`Builder`], which joins what lies contiguously on one member into one I/O, for
//! these levels and for reads of parity levels.

use crate::{member_io::Owner, request::ReqKey, reshape::copy_in_turn, shard::Shard, types::*};
use alloc::vec::Vec;
use lapstrake_geometry::{Geometry, Home, Sector};
use smallvec::SmallVec;

/// The kernel's bound on an I/O vector is 1024 entries; fewer keep one I/O from hogging a member.
const PIECES_MAX: usize = 256;

#[derive(Debug)]
struct Open {
    member: MemberId,
    sector: u64,
    len: u64,
    pieces: Pieces,
}

/// Collects runs and joins those that follow each other on a member.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    open: Vec<Open>,
}

impl Builder {
    /// Adds a run of `len` sectors. Without `buf` no data moves.
    fn add(&mut self, member: MemberId, sector: u64, len: u64, buf: Option<Buf>) {
        let piece = buf.map(|buf| Piece { buf, len: (len * 512) as u32 });
        let last = self.open.iter_mut().rfind(|open| open.member == member);
        if let Some(open) = last
            && open.sector + open.len == sector
            && open.pieces.len() < PIECES_MAX
        {
            open.len += len;
            if let Some(piece) = piece {
                push_piece(&mut open.pieces, piece);
            }
            return;
        }
        let mut pieces = Pieces::new();
        if let Some(piece) = piece {
            pieces.push(piece);
        }
        self.open.push(Open { member, sector, len, pieces });
    }
}

/// Appends a piece, joining it with the last one where memory goes on.
pub(crate) fn push_piece(pieces: &mut Pieces, piece: Piece) {
    if let Some(last) = pieces.last_mut()
        && last.buf.id != BufId::ZERO
        && last.buf.advance(last.len) == piece.buf
    {
        last.len += piece.len;
    } else {
        pieces.push(piece);
    }
}

impl Shard {
    /// Issues `start..end` of a request on a level without parity.
    pub(crate) fn issue_direct(&mut self, key: ReqKey, start: u64, end: u64) {
        let kind = self.reqs[key].kind();
        match kind {
            RequestKind::Read(_) => self.read_direct(key, start, end),
            RequestKind::Write { .. } if self.write_behind(key, start, end) => {}
            RequestKind::Write { fua, .. } => {
                self.write_direct(key, start, end, IoKind::Write { fua }, true);
            }
            RequestKind::Discard => self.write_direct(key, start, end, IoKind::Discard, false),
            RequestKind::WriteZeroes { fua, unmap } => {
                self.write_direct(key, start, end, IoKind::WriteZeroes { fua, unmap }, false);
            }
            RequestKind::Flush => {}
            RequestKind::WritePart { .. } => unreachable!("it is a read, then a write"),
        }
    }

    pub(crate) fn read_direct(&mut self, key: ReqKey, start: u64, end: u64) {
        let mut at = start;
        while at < end {
            let run = self.geometry.map(Sector(at));
            let len = self.clip(&run.homes, run.len.0.min(end - at));
            let req = &self.reqs[key];
            let (buf, is_foreign) = (req.buf_at(at), req.is_foreign());
            let in_turn = req.is_for_reshape().then(|| copy_in_turn(&self.geometry, &run.homes));
            match self.choose(&run.homes, at, len, in_turn.flatten()) {
                // Which copy is the first may be seen otherwise by the owner just now.
                _ if is_foreign && !self.is_in_sync(&run.homes, at, len) => self.decline(key),
                Some((member, sector)) => self.builder.add(member, sector, len, Some(buf)),
                None if self.behind.covers(at, at + len) => self.wait_for_copies(key, at, at + len),
                None => self.reqs[key].fail(RequestError::Io),
            }
            at += len;
        }
        self.send_built(key, IoKind::Read);
    }

    fn write_direct(&mut self, key: ReqKey, start: u64, end: u64, kind: IoKind, data: bool) {
        let mut at = start;
        while at < end {
            let run = self.geometry.map(Sector(at));
            let len = self.clip(&run.homes, run.len.0.min(end - at));
            let buf = data.then(|| self.reqs[key].buf_at(at));
            let mut is_kept = false;
            for home in &run.homes {
                if let Some(member) = self.members.writable(home.slot) {
                    self.builder.add(member, home.sector.0, len, buf);
                    let range = home.sector.0..home.sector.0 + len;
                    // What is on record as bad is good again, unless this fails.
                    is_kept |= self.members.is_trusted(member, &range)
                        || self.members.usable(home.slot, range).is_some();
                }
            }
            if !is_kept {
                self.reqs[key].fail(RequestError::Io);
            }
            at += len;
        }
        self.send_built(key, kind);
    }

    /// Cuts a run where a member under recovery stops being trusted, or begins or ends to be readable.
    pub(crate) fn clip(&self, homes: &[Home], len: u64) -> u64 {
        homes.iter().fold(len, |len, home| len.min(self.members.alike(home.slot, home.sector.0)))
    }

    /// The copy to read: before a resync has come by always the first, since copies may differ;
    /// of far copies the outermost, which makes a long read run as on RAID0; else the one whose turn it is,
    /// if they take turns, and then those behind it, or the cheapest. One that is mostly for writing only if there is no other.
    fn choose(
        &self,
        homes: &[Home],
        at: u64,
        len: u64,
        in_turn: Option<usize>,
    ) -> Option<(MemberId, u64)> {
        let usable = (0..).zip(homes).filter_map(|(place, home)| {
            let range = home.sector.0..home.sector.0 + len;
            let member = self.members.usable(home.slot, range)?;
            let lags = self.behind.lags(member, at, at + len);
            (!lags).then_some((place, (member, home.sector.0)))
        });
        let far = matches!(&self.geometry, Geometry::Raid10(raid10) if raid10.layout().far > 1);
        let in_sync = self.is_in_sync(homes, at, len);
        let cost = |&(place, (member, sector)): &(usize, (MemberId, u64))| {
            let from = Sector(sector + self.members.data_offset(member).0);
            let cost = match (in_sync, far, in_turn) {
                (false, ..) => (place as u64, 0),
                (true, true, _) => (sector, 0),
                (true, false, Some(first)) => ((place < first).into(), place as u64),
                (true, false, None) => self.members.cost(member, from),
            };
            (self.members.is_write_mostly(member), cost)
        };
        usable.min_by_key(cost).map(|(_, choice)| choice)
    }

    /// Whether the copies of a run agree: a resync has come by, or none is due.
    fn is_in_sync(&self, homes: &[Home], at: u64, len: u64) -> bool {
        let start = match &self.geometry {
            Geometry::Raid10(_) => at,
            _ => homes.first().map_or(0, |home| home.sector.0),
        };
        self.in_sync.covers(start..start + len)
    }

    /// Sends what the builder holds as I/Os of this request; none of a read that is declined.
    pub(crate) fn send_built(&mut self, key: ReqKey, kind: IoKind) {
        let req = &self.reqs[key];
        if req.is_foreign() && req.error().is_some() {
            return self.builder.open.clear();
        }
        let mut open = core::mem::take(&mut self.builder.open);
        self.reqs[key].expect(open.len() as u32);
        for io in open.drain(..) {
            self.start_io(Owner::Request(key), io.member, kind, (io.sector, io.len), io.pieces);
        }
        self.builder.open = open;
    }

    /// Adds a run of a read to the builder.
    pub(crate) fn build_read(&mut self, member: MemberId, sector: u64, len: u64, buf: Buf) {
        self.builder.add(member, sector, len, Some(buf));
    }

    /// A read failed and its member is out of use: the same pieces from elsewhere.
    pub(crate) fn read_elsewhere(&mut self, key: ReqKey, pieces: &[Piece]) {
        let req = &self.reqs[key];
        let (RequestKind::Read(base), first) = (req.kind(), req.start()) else { return };
        let ranges: SmallVec<[(u64, u64); 4]> = pieces
            .iter()
            .map(|piece| {
                let start = first + u64::from((piece.buf.offset - base.offset) / 512);
                (start, start + u64::from(piece.len / 512))
            })
            .collect();
        for (start, end) in ranges {
            match &self.geometry {
                Geometry::Parity(_) => self.issue_parity(key, start, end),
                _ => self.read_direct(key, start, end),
            }
        }
        self.child_done(key, None);
    }
}
