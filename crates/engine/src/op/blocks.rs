//! How the blocks of a stripe that are not read are made: parity from data, and what is lost from the rest.

use super::{BlockRole, Op, OpKey, OpKind, Plan};
use crate::{shard::Shard, stripe::Slice, types::*};
use lapstrake_geometry::StripeNo;
use lapstrake_parity as parity;
use smallvec::{SmallVec, smallvec};

impl Shard {
    /// The parity work between reading and writing.
    pub(super) fn compute(&mut self, key: OpKey) {
        let op = &self.ops[key];
        let mut work: SmallVec<[Compute; 4]> = SmallVec::new();
        for slice in &op.slices {
            if op.plan == Plan::Restore {
                work.extend(self.recover(op, slice));
            }
            match op.plan {
                _ if op.kind == OpKind::Read => {}
                Plan::Bare | Plan::Copy | Plan::Compare => {}
                Plan::Restore if op.kind == OpKind::Sync && op.known == self.kept(op.stripe) => {}
                _ if op.leaves_partial() => self.make_partial(op, slice, &mut work),
                Plan::Rmw => self.update_parity(op, slice, &mut work),
                Plan::Full | Plan::Rcw | Plan::Restore => work.extend(self.make_parity(op, slice)),
            }
        }
        for compute in work {
            self.stats.compute_bytes += compute.bytes_read();
            self.emit(Effect::Compute(compute));
        }
    }

    /// P and Q of the stripe's new data.
    pub(super) fn make_parity(&self, op: &Op, slice: &Slice) -> Option<Compute> {
        let len = (slice.hi - slice.lo) * 512;
        let disks = self.parity().data_disks();
        let (p, q) = (op.block(BlockRole::P, slice), op.block(BlockRole::Q, slice));
        let source = |data| op.after(slice, data);
        let Some(q) = q else {
            let srcs = (0..disks).filter_map(source).collect();
            return p.map(|dst| Compute::Xor { dst, srcs, len });
        };
        let exps = self.exponents(op.stripe);
        let Some(p) = p else {
            let row = exps.iter().map(|&e| parity::gf::exp(e)).collect();
            let srcs = (0..disks).filter_map(source).collect();
            return Some(Compute::Mul { dsts: smallvec![q], rows: smallvec![row], srcs, len });
        };
        // DDF layouts leave holes among the exponents; a hole counts as zeros.
        let top = exps.iter().max().map_or(0, |&e| usize::from(e) + 1);
        let mut data: Bufs = SmallVec::from_elem(Buf::ZERO, top);
        for (index, &exp) in exps.iter().enumerate() {
            data[usize::from(exp)] = source(index as u16)?;
        }
        Some(Compute::Pq { p, q, data, len })
    }

    /// Old parity plus old and new data, in place.
    pub(super) fn update_parity(&self, op: &Op, slice: &Slice, work: &mut SmallVec<[Compute; 4]>) {
        let len = (slice.hi - slice.lo) * 512;
        let mut srcs = Bufs::new();
        let mut coefs = Coefs::new();
        for src in &slice.srcs {
            let exp = self.parity().q_exponent(op.stripe, src.part.data());
            srcs.extend(op.before(slice, src.part.data()));
            srcs.push(src.buf);
            coefs.extend([parity::gf::exp(exp); 2]);
        }
        if let Some(dst) = op.block(BlockRole::P, slice) {
            work.push(Compute::XorInto { dst, srcs: srcs.clone(), len });
        }
        if let Some(dst) = op.block(BlockRole::Q, slice) {
            work.push(Compute::MulInto { dst, coefs, srcs, len });
        }
    }

    /// The lost data chunks that the operation needs, from what was read.
    pub(super) fn recover(&self, op: &Op, slice: &Slice) -> Option<Compute> {
        let len = (slice.hi - slice.lo) * 512;
        let exps = self.exponents(op.stripe);
        let mut srcs: Bufs = (0..exps.len())
            .filter(|data| !op.lost.contains(data))
            .filter_map(|data| op.before(slice, data as u16))
            .collect();
        let mut rows: SmallVec<[Coefs; 2]> = smallvec![SmallVec::from_elem(0, exps.len()); 2];
        let p = op.block(BlockRole::P, slice).filter(|_| op.known.p);
        let q = op.block(BlockRole::Q, slice).filter(|_| op.known.q);
        let [first, second] = &mut rows[..] else { unreachable!("two rows") };
        let has = (p.is_some(), q.is_some());
        let (by_p, by_q) = parity::recovery::recover_data(&exps, &op.lost, has, [first, second])?;
        srcs.extend(p.filter(|_| by_p));
        srcs.extend(q.filter(|_| by_q));
        let mut dsts: SmallVec<[Buf; 2]> = SmallVec::new();
        let mut used: SmallVec<[Coefs; 2]> = SmallVec::new();
        for (&data, row) in op.lost.iter().zip(rows) {
            // A lost chunk that is about to be overwritten as a whole needs no recovery.
            if let Some(dst) = op.before(slice, data as u16) {
                dsts.push(dst);
                used.push(row);
            }
        }
        match used.first() {
            Some(row) if used.len() == 1 && row.iter().all(|&c| c == 1) => {
                Some(Compute::Xor { dst: dsts[0], srcs, len })
            }
            Some(_) => Some(Compute::Mul { dsts, rows: used, srcs, len }),
            None => None,
        }
    }

    pub(super) fn exponents(&self, stripe: StripeNo) -> SmallVec<[u8; 16]> {
        let parity = self.parity();
        (0..parity.data_disks()).map(|data| parity.q_exponent(stripe, data)).collect()
    }
}
