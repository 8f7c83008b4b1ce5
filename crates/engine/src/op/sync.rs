//! Operations that are units of a recovery, resync, check, repair or rewrite.

use super::{BlockRole, Op, OpKey, OpKind, Plan, Stage};
use crate::{
    compare::{CompareId, Compared, Comparison, Finding, Subject, Suspect},
    member_io::Owner,
    scratch::PAGE_BYTES,
    shard::Shard,
    stripe::Slice,
    sync::SyncAction,
    types::*,
};
use lapstrake_geometry::Sectors;
use lapstrake_parity as parity;
use smallvec::{SmallVec, smallvec};

impl Shard {
    /// How to do a unit of a sync action; else whether nothing is to be done, or nothing can be.
    pub(super) fn sync_plan(&mut self, op: &Op) -> Result<Plan, bool> {
        let parities = usize::from(op.known.p) + usize::from(op.known.q);
        let Some(piece) = op.piece() else { return Err(true) };
        match self.syncs.action(piece) {
            SyncAction::Recovery | SyncAction::Rewrite => {
                let targets = self.recovered_blocks(op);
                if targets.is_empty() {
                    Err(true)
                } else if targets.iter().all(|&(what, _)| op.is_known(what)) {
                    Ok(Plan::Copy)
                } else if op.lost.len() > parities || self.stripes.is_lost(op.stripe) {
                    Err(self.lose_unit(op))
                } else {
                    Ok(Plan::Restore)
                }
            }
            // A read of it failed, maybe since it began to wait for memory; most of its pages will be readable again.
            _ if self.lacks_pages(op) && (op.height() > PAGE_BYTES / 512 || self.is_mended(op)) => {
                let range = self.member_range(op);
                self.retry_in_pages(piece, range);
                Err(true)
            }
            // There is nothing to compare with.
            _ if op.lost.len() >= parities => Err(true),
            _ => Ok(Plan::Compare),
        }
    }

    /// Whether some of the operation's pages are about to be readable again.
    fn is_mended(&self, op: &Op) -> bool {
        let range = self.member_range(op);
        self.repairs.pages().any(|(_, page)| page.start < range.end && range.start < page.end)
    }

    /// Whether a member that is trusted there lacks some of the operation's pages.
    fn lacks_pages(&self, op: &Op) -> bool {
        let end = self.member_range(op).end;
        let data = (0..self.parity().data_disks()).map(BlockRole::Data);
        data.chain([BlockRole::P, BlockRole::Q]).filter(|&what| !op.is_known(what)).any(|what| {
            self.slot_of(op.stripe, what).is_some_and(|slot| self.members.trusted_to(slot).0 >= end)
        })
    }

    /// What a unit should recover is lost. True if that can go on record, so that the recovery goes on.
    pub(super) fn lose_unit(&mut self, op: &Op) -> bool {
        let Some(piece) = op.piece() else { return false };
        if self.syncs.action(piece) == SyncAction::Rewrite {
            return false;
        }
        let range = self.member_range(op);
        let targets = self.recovered_blocks(op).into_iter().filter(|&(what, _)| !op.is_known(what));
        let targets: SmallVec<[MemberId; 2]> = targets.map(|target| target.1).collect();
        if op.height() > PAGE_BYTES / 512 {
            self.retry_in_pages(piece, range);
            return true;
        }
        self.lose(targets.iter().map(|&target| (target, range.clone())))
    }

    /// What members lack of the operation's range.
    pub(super) fn recovered_blocks(&self, op: &Op) -> SmallVec<[(BlockRole, MemberId); 2]> {
        let parity = self.parity();
        let range = self.member_range(op);
        let all = (0..parity.data_disks()).map(BlockRole::Data).chain([BlockRole::P, BlockRole::Q]);
        all.filter_map(|what| {
            let slot = self.slot_of(op.stripe, what)?;
            self.members.lacking(slot, &range).map(|member| (what, member))
        })
        .collect()
    }

    /// Whether a parity that can be read is what somebody lacks.
    pub(super) fn copies_parity(&self, op: &Op) -> bool {
        let is_parity = |what| matches!(what, BlockRole::P | BlockRole::Q);
        let targets = self.recovered_blocks(op);
        op.kind == OpKind::Sync && targets.iter().any(|t| is_parity(t.0) && op.is_known(t.0))
    }

    pub(super) fn send_recovered(&mut self, key: OpKey) {
        let op = &self.ops[key];
        let (lo, hi) = (op.lo(), op.lo() + op.height());
        for (what, member) in self.recovered_blocks(op) {
            self.write_block(key, what, member, (lo, hi));
        }
    }

    /// Writes a height range of one of the operation's blocks.
    pub(super) fn write_block(
        &mut self,
        key: OpKey,
        what: BlockRole,
        member: MemberId,
        (lo, hi): (u32, u32),
    ) {
        let op = &self.ops[key];
        let Some(buf) = op.block(what, &Slice { lo, hi, srcs: SmallVec::new() }) else { return };
        let sector = self.parity().member_sector(op.stripe, Sectors(u64::from(lo))).0;
        let pieces = smallvec![Piece { buf, len: (hi - lo) * 512 }];
        self.ops[key].expect(1);
        let range = (sector, u64::from(hi - lo));
        self.start_io(Owner::Op(key), member, IoKind::Write { fua: false }, range, pieces);
    }

    pub(super) fn compare(&mut self, key: OpKey) {
        let op = &mut self.ops[key];
        op.pending = 1;
        let op = &self.ops[key];
        let slice = &op.slices[0];
        let disks = self.parity().data_disks();
        // What is lost is made from P, with which it agrees; Q may yet differ.
        let restored = self.recover(op, slice);
        let what = Subject::Parity {
            data: (0..disks).filter_map(|data| op.block(BlockRole::Data(data), slice)).collect(),
            coefs: self.exponents(op.stripe).iter().map(|&exp| parity::gf::exp(exp)).collect(),
            p: op.block(BlockRole::P, slice).filter(|_| op.known.p && restored.is_none()),
            q: op.block(BlockRole::Q, slice).filter(|_| op.known.q),
        };
        let len = op.height() * 512;
        if let Some(work) = restored {
            self.stats.compute_bytes += work.bytes_read();
            self.emit(Effect::Compute(work));
        }
        self.emit(Effect::Compare(Comparison { id: CompareId(Compared::Op(key)), what, len }));
    }

    /// The operation's blocks were compared.
    pub(crate) fn op_compared(&mut self, key: OpKey, found: &[Finding]) {
        let op = &mut self.ops[key];
        op.stage = Stage::Writing;
        let (stripe, lo) = (op.stripe, op.lo());
        let Some(piece) = op.piece() else { return };
        self.note_stripe_mismatches(piece, stripe, lo, found);
        let action = self.syncs.action(piece);
        if action != SyncAction::Check {
            // Pages that follow each other and are mended alike go together.
            let alike = |a: &Finding, b: &Finding| (a.suspect, a.page + 1) == (b.suspect, b.page);
            for pages in found.chunk_by(alike) {
                self.mend(key, pages, action == SyncAction::Repair);
            }
        }
        self.op_part_done(key);
    }

    /// Mends pages: the one block that is known to be wrong, else the parities.
    pub(super) fn mend(&mut self, key: OpKey, pages: &[Finding], trusts_parity: bool) {
        let op = &self.ops[key];
        let page = PAGE_BYTES / 512;
        let lo = op.lo() + pages[0].page * page;
        let hi = (lo + page * pages.len() as u32).min(op.lo() + op.height());
        let slice = Slice { lo, hi, srcs: SmallVec::new() };
        let (len, disks) = ((hi - lo) * 512, self.parity().data_disks());
        let (work, written) = match pages[0].suspect {
            Suspect::Block(wrong) if trusts_parity => {
                let others = (0..disks).filter(|&data| data != wrong).map(BlockRole::Data);
                let srcs = others.chain([BlockRole::P]).filter_map(|what| op.block(what, &slice));
                let wrong = BlockRole::Data(wrong);
                let work = op.block(wrong, &slice).map(|dst| Compute::Xor {
                    dst,
                    srcs: srcs.collect(),
                    len,
                });
                (work, [Some(wrong), None])
            }
            _ => (self.make_parity(op, &slice), [Some(BlockRole::P), Some(BlockRole::Q)]),
        };
        let stripe = op.stripe;
        if let Some(work) = work {
            self.stats.compute_bytes += work.bytes_read();
            self.emit(Effect::Compute(work));
        }
        for what in written.into_iter().flatten() {
            if let Some(member) = self.writable(stripe, what) {
                self.write_block(key, what, member, (lo, hi));
            }
        }
    }
}
