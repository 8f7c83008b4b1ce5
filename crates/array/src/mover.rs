//! A shard's part in a reshape: it owns what has the array's new geometry, reads what lies before it from the shards of the
//! old one, and writes it to its own.
//!
//! Invariants: a unit is whole stripes, so that no parity is made of what was never written; nothing else is written to
//! what is being moved; of what is moved over itself nothing is written before all of it is read.

use alloc::{collections::VecDeque, vec::Vec};
use core::{
    mem,
    ops::{Range, RangeInclusive},
};
use lapstrake_engine::{PieceId, RequestError, SyncPiece};
use lapstrake_geometry::Geometry;

/// Sectors of a unit, about.
const UNIT_SECTORS: u64 = (1 << 20) / 512;
/// Units under way: so many that each member has something to do while others are waited for, and fewer of wide stripes.
const UNITS: RangeInclusive<u64> = 4..=8;
const MEMORY_SECTORS: u64 = (8 << 20) / 512;

/// Some stripes on their way from one geometry to another.
#[derive(Debug)]
pub(crate) struct Unit<A> {
    pub(crate) sectors: Range<u64>,
    pub(crate) memory: A,
    pub(crate) is_read: bool,
}

/// A piece of a reshape under way.
#[derive(Debug)]
struct Piece {
    id: PieceId,
    /// What no unit has begun.
    left: Range<u64>,
    /// What the old geometry has; the rest is to be zeros.
    held: Range<u64>,
    unit: u64,
    /// It is moved over itself.
    is_overwritten: bool,
    under_way: u32,
    ok: bool,
}

/// See the module's head. `A` is a place in memory.
#[derive(Debug)]
pub(crate) struct Mover<A> {
    piece: Option<Piece>,
    /// Units whose reads or writes have ended, and how.
    ended: VecDeque<(Unit<A>, Result<(), RequestError>)>,
    /// Units that are read and wait for the others.
    read: Vec<Unit<A>>,
}

impl<A> Mover<A> {
    pub(crate) fn new() -> Self {
        Self { piece: None, ended: VecDeque::new(), read: Vec::new() }
    }

    /// Takes a piece, to be moved in units of so many sectors, and whether it is moved over itself.
    pub(crate) fn begin(&mut self, piece: &SyncPiece, unit: u64, is_overwritten: bool) {
        assert!(self.piece.is_none(), "one piece is moved at a time");
        self.piece = Some(Piece {
            id: piece.id,
            left: piece.start.0..piece.start.0 + piece.len.0,
            held: piece.within.clone(),
            unit,
            is_overwritten,
            under_way: 0,
            ok: true,
        });
    }

    /// The next unit, and how much of it the old geometry has.
    pub(crate) fn next(&mut self) -> Option<(Range<u64>, u64)> {
        let piece = self.piece.as_mut().filter(|piece| piece.ok && !piece.left.is_empty())?;
        let start = piece.left.start;
        let end = (start + piece.unit).min(piece.left.end);
        piece.left.start = end;
        piece.under_way += 1;
        Some((start..end, piece.held.end.clamp(start, end) - start))
    }

    /// Whether what is read is to be written: of what is moved over itself nothing is that is not all read.
    pub(crate) fn goes_on(&self) -> bool {
        self.piece.as_ref().is_some_and(|piece| piece.ok || !piece.is_overwritten)
    }

    /// A unit is read. Those that may be written now.
    pub(crate) fn read(&mut self, unit: Unit<A>) -> Vec<Unit<A>> {
        let piece = self.piece.as_ref().expect("a unit is of a piece");
        self.read.push(unit);
        let is_last = piece.left.is_empty() && self.read.len() == piece.under_way as usize;
        match piece.is_overwritten && !is_last {
            true => Vec::new(),
            false => mem::take(&mut self.read),
        }
    }

    /// A unit's read or write has ended.
    pub(crate) fn ended(&mut self, unit: Unit<A>, result: Result<(), RequestError>) {
        self.ended.push_back((unit, result));
    }

    pub(crate) fn poll_ended(&mut self) -> Option<(Unit<A>, Result<(), RequestError>)> {
        self.ended.pop_front()
    }

    /// A unit was moved, or could not be. The piece, and whether all of it was moved, if that was its last one.
    pub(crate) fn moved(&mut self, ok: bool) -> Option<(PieceId, bool)> {
        let piece = self.piece.as_mut().expect("a unit is of a piece");
        piece.under_way -= 1;
        piece.ok &= ok;
        if !ok {
            // They are not written any more.
            piece.under_way -= self.read.drain(..).count() as u32;
        }
        let is_over = piece.under_way == 0 && (piece.left.is_empty() || !piece.ok);
        let piece = self.piece.take_if(|_| is_over)?;
        Some((piece.id, piece.ok))
    }
}

/// Sectors of a unit.
pub(crate) fn unit(geometry: &Geometry) -> u64 {
    let Geometry::Parity(parity) = geometry else { return UNIT_SECTORS };
    let stripe = parity.stripe_data().0;
    (UNIT_SECTORS / stripe).max(1) * stripe
}

/// How many such units of a piece are under way at a time.
pub(crate) fn units(unit: u64, piece: u64) -> u32 {
    (MEMORY_SECTORS / unit).clamp(*UNITS.start(), *UNITS.end()).min(piece.div_ceil(unit)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_units_are_under_way_as_memory_is_for() {
        assert_eq!(units(2048, 1 << 20), 8);
        // Of wide stripes, four all the same.
        assert_eq!((units(4096, 1 << 20), units(16384, 1 << 20)), (4, 4));
        assert_eq!((units(512, 1 << 20), units(2048, 2049)), (8, 2));
    }
}
