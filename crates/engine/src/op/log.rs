//! What an operation says of itself to a partial parity log or to the journal, before it writes.

use super::{BlockRole, Op, OpKey, OpKind, Parities, Plan, Stage};
use crate::{journal::Row, scratch::PAGE_BYTES, shard::Shard, stripe::Slice, types::*};
use alloc::vec::Vec;
use lapstrake_geometry::{Sectors, StripeNo};
use lapstrake_metadata::ppl::Entry;
use smallvec::SmallVec;

impl Shard {
    /// What the operation is about to write may go out.
    pub(crate) fn logged(&mut self, key: OpKey) {
        let op = &mut self.ops[key];
        (op.stage, op.pending) = (Stage::Writing, 1);
        self.send_writes(key);
        self.op_part_done(key);
    }

    pub(crate) fn set_units(&mut self, key: OpKey, units: (u64, u64)) {
        self.ops[key].units = Some(units);
    }

    /// What an operation is about to write, by rows of a page.
    pub(crate) fn rows_of(&self, key: OpKey) -> Vec<Row> {
        let (op, parity) = (&self.ops[key], self.parity());
        let page = PAGE_BYTES / 512;
        let rows = |slice: &Slice| (slice.lo..slice.hi).step_by(page as usize);
        let row = |slice: &Slice, lo: u32| {
            let at = Slice { lo, hi: lo + page, srcs: SmallVec::new() };
            let offset = Sectors(u64::from(lo));
            let data = slice.srcs.iter().map(|src| {
                let sector = parity.array_sector(op.stripe, src.part.data(), offset);
                (sector.0, src.buf.advance_sectors(lo - slice.lo))
            });
            Row {
                data: data.collect(),
                sector: parity.member_sector(op.stripe, offset).0,
                parity: [BlockRole::P, BlockRole::Q]
                    .iter()
                    .filter_map(|&what| op.block(what, &at))
                    .collect(),
            }
        };
        let of_slice = |slice| rows(slice).map(move |lo| row(slice, lo));
        op.slices.iter().flat_map(of_slice).collect()
    }

    /// The log that has to have the operation before it writes: that of the parity's member, if there is
    /// parity to write.
    pub(super) fn log_for(&self, op: &Op) -> Option<MemberId> {
        let is_change = matches!(op.kind, OpKind::Write | OpKind::Zero);
        let is_open = is_change && self.keeps_log();
        self.writable(op.stripe, BlockRole::P).filter(|_| is_open)
    }

    /// Whether it changes a stripe with parity, and no log is to have it.
    pub(crate) fn is_unlogged(&self, op: &Op) -> bool {
        let is_change = matches!(op.kind, OpKind::Write | OpKind::Zero);
        is_change && op.log.is_none() && self.writable(op.stripe, BlockRole::P).is_some()
    }

    /// What a log says of an operation, but for the checksum, and the members that it writes to.
    pub(crate) fn log_entry(&self, key: OpKey) -> (Entry, SmallVec<[MemberId; 8]>) {
        let (op, parity) = (&self.ops[key], self.parity());
        let (first, count) = match op.kind {
            OpKind::Zero => (0, parity.data_disks()),
            _ => (op.slices[0].srcs[0].part.data(), op.slices[0].srcs.len() as u16),
        };
        let data = (first..first + count).map(BlockRole::Data);
        let members = data.chain([BlockRole::P]).filter_map(|what| self.writable(op.stripe, what));
        let lo = Sectors(u64::from(op.lo()));
        let entry = Entry {
            data_sector: parity.array_sector(op.stripe, first, lo).0,
            pp_size: op.partial().map_or(0, |partial| partial.1 * 512),
            data_size: u32::from(count) * op.height() * 512,
            parity_disk: parity.slot_of_p(op.stripe).0.into(),
            checksum: 0,
        };
        (entry, members.collect())
    }

    /// The log that the operation waits for.
    pub(crate) fn log_of(&self, key: OpKey) -> Option<MemberId> {
        self.ops[key].log
    }

    /// The log that an operation is to have now that a member has failed.
    pub(crate) fn move_log(&mut self, key: OpKey) -> Option<MemberId> {
        let log = self.writable(self.ops[key].stripe, BlockRole::P);
        self.ops[key].log = log;
        log
    }

    /// The parities that a write makes. With a journal all of them, though nobody may take one: a row in the
    /// journal without its parity would be one whose parity is still to be made.
    pub(super) fn made(&self, stripe: StripeNo) -> Parities {
        match self.journal {
            Some(_) => Parities { p: true, q: self.parity().slot_of_q(stripe).is_some() },
            None => self.kept(stripe),
        }
    }

    /// The part of parity that a write leaves as it is, and parity of that and of the new data.
    pub(super) fn make_partial(&self, op: &Op, slice: &Slice, work: &mut SmallVec<[Compute; 4]>) {
        let len = (slice.hi - slice.lo) * 512;
        let (Some(p), Some(partial)) =
            (op.block(BlockRole::P, slice), op.block(BlockRole::Partial, slice))
        else {
            return;
        };
        let is_rmw = op.plan == Plan::Rmw;
        let kept = (0..self.parity().data_disks()).filter(|&data| op.touches(data) == is_rmw);
        let kept = kept.filter_map(|data| op.before(slice, data));
        let srcs: Bufs = is_rmw.then_some(p).into_iter().chain(kept).collect();
        work.push(Compute::Xor { dst: partial, srcs, len });
        let new = slice.srcs.iter().map(|src| src.buf);
        work.push(Compute::Xor { dst: p, srcs: new.chain([partial]).collect(), len });
    }
}
