//! Requests of clients that see a volume in the array's place, cut where the volume's stripes end.

use lapstrake_engine::{RequestError, RequestKind};
use lapstrake_volumes::Piece;
use std::ops::Range;

/// Parts of a request that are under way at once: what it takes is bounded, however thin its stripes are.
const PARTS_MAX: usize = 32;

/// A client's request for what does not lie in one piece.
#[derive(Debug)]
pub(crate) struct CutRequest {
    client: usize,
    id: u64,
    kind: RequestKind,
    /// Its first byte in what is shown.
    start: u64,
    /// What has not been begun.
    rest: Range<u64>,
    /// Parts that have not ended.
    parts: usize,
    result: Result<(), RequestError>,
}

impl CutRequest {
    /// Nothing of it has begun.
    pub(crate) fn new(client: usize, id: u64, kind: RequestKind, rest: Range<u64>) -> Self {
        Self { client, id, kind, start: rest.start, rest, parts: 0, result: Ok(()) }
    }

    /// The client, its name for the request, and what became of it.
    pub(crate) fn reply(self) -> (usize, u64, Result<(), RequestError>) {
        (self.client, self.id, self.result)
    }

    /// The next part, if it may begin now. What follows a part that has failed does not.
    pub(crate) fn next(
        &mut self,
        first_piece: impl FnOnce(Range<u64>) -> Option<Piece>,
    ) -> Option<(RequestKind, Piece)> {
        if self.parts == PARTS_MAX || self.result.is_err() {
            return None;
        }
        let piece = first_piece(self.rest.clone())?;
        let skip = ((self.rest.start - self.start) / 512) as u32;
        self.rest.start += piece.len;
        self.parts += 1;
        Some((self.kind.advance_sectors(skip), piece))
    }

    /// A part has ended; whether all has.
    pub(crate) fn ended(&mut self, result: Result<(), RequestError>) -> bool {
        assert!(self.parts > 0, "request {} ended twice", self.id);
        self.parts -= 1;
        self.result = self.result.and(result);
        self.parts == 0 && (self.rest.is_empty() || self.result.is_err())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapstrake_engine::{Buf, BufId};
    use lapstrake_volumes::Place;

    /// Stripes of 4 KiB over two areas.
    fn striped(rest: Range<u64>) -> Option<Piece> {
        let offset = (rest.start / 8192) * 4096 + (rest.start / 4096 % 2) * (1 << 30);
        let len = 4096.min(rest.end.checked_sub(rest.start).filter(|len| *len > 0)?);
        Some(Piece { place: Place { device: 0, offset }, len })
    }

    fn read(bytes: u64) -> CutRequest {
        let kind = RequestKind::Read(Buf { id: BufId(3), offset: 0 });
        CutRequest::new(7, 9, kind, 1 << 20..(1 << 20) + bytes)
    }

    #[test]
    fn a_request_over_many_stripes_has_few_parts_under_way() {
        let mut cut = read(32 << 20);
        let (mut parts, mut under_way) = (0, 0);
        loop {
            while let Some((RequestKind::Read(buf), _)) = cut.next(striped) {
                assert_eq!(u64::from(buf.offset), parts * 4096);
                parts += 1;
                under_way += 1;
            }
            assert!(under_way <= PARTS_MAX);
            under_way -= 1;
            if cut.ended(Ok(())) {
                break;
            }
        }
        assert_eq!((parts, under_way), (8192, 0));
        assert_eq!(cut.reply(), (7, 9, Ok(())));
    }

    #[test]
    fn after_a_part_that_failed_no_other_begins() {
        let mut cut = read(1 << 20);
        while cut.next(striped).is_some() {}
        assert!(!cut.ended(Err(RequestError::OutOfRange)));
        assert!(cut.next(striped).is_none());
        (2..PARTS_MAX).for_each(|_| assert!(!cut.ended(Ok(()))));
        assert!(cut.ended(Ok(())));
        assert_eq!(cut.reply().2, Err(RequestError::OutOfRange));
    }
}
