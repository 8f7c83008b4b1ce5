//! One operation on a height range of one stripe, from its plan to its end: read what is needed,
//! do the parity work, put on record in a log what the array's consistency policy asks for
//! ([`crate::log`]), write.
//!
//! | plan | when | reads | parity from |
//! |---|---|---|---|
//! | full | every data chunk is written | nothing | new data |
//! | bare | no parity member is left | nothing | - |
//! | rmw | cheaper, and the written chunks' members are there | old data and parity | old parity + old + new |
//! | rcw | cheaper, and the other chunks' members are there | the other data | new and other data |
//! | restore | neither can be | everything that is left | recovered data, then as rcw |
//! | copy | a member gets what it lacks, and others have just that | its blocks | - |
//! | compare | a check, repair or resync | everything | where it does not fit: all data |
//!
//! Invariants: the operation owns its height range of the stripe (`Stripe::locks`) and its
//! scratch blocks from plan to end. Nothing is written before every read has come. A member
//! that fails while reading makes the operation start over under a new plan; one that fails
//! while writing does not, since what the others now hold already implies its data. Writes go to
//! members under recovery too, and parity is made for them, though nothing is read from them.

mod blocks;
mod log;
mod sync;

use crate::{
    member_io::Owner,
    shard::Shard,
    slots::{Key, Slots},
    stripe::{FragOwner, Slice, Slices, StripePart, requests_of},
    sync::{PieceKey, SyncAction, Syncs},
    types::*,
};
use core::ops::Range;
use lapstrake_geometry::{Sectors, Slot, StripeNo};
use smallvec::{SmallVec, smallvec};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpKind {
    Read,
    Write,
    /// The whole stripe becomes zeros; so does its parity.
    Zero,
    /// A unit of a sync action.
    Sync,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Full,
    Bare,
    Rmw,
    Rcw,
    Restore,
    Copy,
    Compare,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockRole {
    Data(u16),
    P,
    Q,
    /// The XOR of the data that a write leaves as it is, for the log.
    Partial,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    what: BlockRole,
    buf: Buf,
}

impl Compute {
    /// Bytes that it reads.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        let (count, len) = match self {
            Self::Xor { srcs, len, .. } | Self::Mul { srcs, len, .. } => (srcs.len(), len),
            Self::Pq { data, len, .. } => (data.len(), len),
            Self::XorInto { srcs, len, .. } | Self::MulInto { srcs, len, .. } => {
                (srcs.len() + 1, len)
            }
        };
        count as u64 * u64::from(*len)
    }
}

/// How far an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Reading,
    /// Parity is made; what is to be written waits for a log.
    Logging,
    Writing,
    /// What was written is read again.
    Verifying,
}

/// Of each parity, whether it is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Parities {
    p: bool,
    q: bool,
}

pub(crate) type OpKey = Key<Op>;
pub(crate) type Ops = Slots<Op>;

#[derive(Debug)]
pub(crate) struct Op {
    stripe: StripeNo,
    kind: OpKind,
    plan: Plan,
    slices: Slices,
    blocks: SmallVec<[Block; 4]>,
    /// Data chunks without a member when the plan was made.
    lost: SmallVec<[usize; 2]>,
    /// Parities that could be read when the plan was made.
    known: Parities,
    pending: u32,
    stage: Stage,
    /// Whose log is to have it before it writes.
    log: Option<MemberId>,
    /// A unit of that log has it.
    is_in_unit: bool,
    read_failed: bool,
    /// Its range is done page by page instead.
    retired: bool,
    error: bool,
    /// The journal's units that it is in, first and last.
    units: Option<(u64, u64)>,
}

impl Op {
    fn new(stripe: StripeNo, kind: OpKind, slices: Slices) -> Self {
        Self {
            stripe,
            kind,
            plan: Plan::Full,
            slices,
            blocks: SmallVec::new(),
            lost: SmallVec::new(),
            known: Parities::default(),
            pending: 1,
            stage: Stage::Reading,
            log: None,
            is_in_unit: false,
            read_failed: false,
            retired: false,
            error: false,
            units: None,
        }
    }

    #[cfg(test)]
    pub(crate) fn for_test() -> Self {
        Self::new(StripeNo(0), OpKind::Write, SmallVec::new())
    }

    fn lo(&self) -> u32 {
        self.slices[0].lo
    }

    fn height(&self) -> u32 {
        self.slices[self.slices.len() - 1].hi - self.lo()
    }

    /// Whether it writes anew what a member could not read, or reads that again.
    pub(crate) fn rewrites(&self, syncs: &Syncs) -> bool {
        let is_rewrite = |piece| syncs.action(piece) == SyncAction::Rewrite;
        self.stage != Stage::Reading && self.piece().is_some_and(is_rewrite)
    }

    /// The piece of which it is a unit.
    pub(crate) fn piece(&self) -> Option<PieceKey> {
        match self.slices[0].srcs[0].owner {
            FragOwner::Piece(piece) => Some(piece),
            FragOwner::Request(_) => None,
        }
    }

    /// So many member I/Os more are on their way.
    pub(crate) fn expect(&mut self, ios: u32) {
        self.pending += ios;
    }

    /// Whether a log gets the part of parity that it leaves as it is; none is left by a full stripe.
    fn leaves_partial(&self) -> bool {
        self.log.is_some() && matches!(self.plan, Plan::Rmw | Plan::Rcw | Plan::Restore)
    }

    /// For the log: its partial parity's place and length in sectors, if it has some.
    pub(crate) fn partial(&self) -> Option<(Buf, u32)> {
        let buf = self.block(BlockRole::Partial, &self.slices[0])?;
        Some((buf, self.height()))
    }

    /// A unit of its log has it.
    pub(crate) fn enter_unit(&mut self) {
        assert!(self.log.is_some() && !self.is_in_unit, "an operation is in one unit");
        self.is_in_unit = true;
    }

    /// No log has it.
    pub(crate) fn leave_unit(&mut self) {
        self.is_in_unit = false;
    }

    /// Has it end without an effect. False if it does already.
    pub(crate) fn retire(&mut self) -> bool {
        !core::mem::replace(&mut self.retired, true)
    }

    /// Whether a block could be read when the plan was made.
    fn is_known(&self, what: BlockRole) -> bool {
        match what {
            BlockRole::Data(data) => !self.lost.contains(&usize::from(data)),
            BlockRole::P => self.known.p,
            BlockRole::Q => self.known.q,
            BlockRole::Partial => false,
        }
    }

    fn touches(&self, data: u16) -> bool {
        self.slices[0].srcs.iter().any(|src| src.part == StripePart::Data(data))
    }

    /// The scratch block's memory for a slice.
    fn block(&self, what: BlockRole, slice: &Slice) -> Option<Buf> {
        let block = self.blocks.iter().find(|block| block.what == what)?;
        Some(block.buf.advance_sectors(slice.lo - self.lo()))
    }

    fn client(slice: &Slice, data: u16) -> Option<Buf> {
        slice.srcs.iter().find(|src| src.part == StripePart::Data(data)).map(|src| src.buf)
    }

    /// What the chunk held before.
    fn before(&self, slice: &Slice, data: u16) -> Option<Buf> {
        let client = Self::client(slice, data).filter(|_| self.kind == OpKind::Read);
        client.or_else(|| self.block(BlockRole::Data(data), slice))
    }

    /// What the chunk will hold.
    fn after(&self, slice: &Slice, data: u16) -> Option<Buf> {
        Self::client(slice, data).or_else(|| self.block(BlockRole::Data(data), slice))
    }
}

/// Who is there for one operation.
struct PresentMembers {
    data: SmallVec<[Option<MemberId>; 16]>,
    p: Option<MemberId>,
    q: Option<MemberId>,
}

impl Shard {
    /// Plans and starts an operation; gives the slices back while the stripe cache has no room.
    pub(crate) fn start_op(
        &mut self,
        stripe: StripeNo,
        kind: OpKind,
        slices: Slices,
    ) -> Result<(), Slices> {
        let mut op = Op::new(stripe, kind, slices);
        op.log = self.log_for(&op);
        if kind == OpKind::Zero {
            let key = self.ops.insert(op);
            self.op_part_done(key);
            return Ok(());
        }
        let present = self.present(&op);
        op.lost = (0..present.data.len()).filter(|&data| present.data[data].is_none()).collect();
        op.known = Parities { p: present.p.is_some(), q: present.q.is_some() };
        let plan = match kind {
            OpKind::Sync => self.sync_plan(&op),
            _ => self.plan(&op, &present).ok_or(false),
        };
        let plan = match plan {
            Ok(plan) => plan,
            Err(is_done) => {
                op.error = !is_done;
                let key = self.ops.insert(op);
                self.finish_op(key);
                return Ok(());
            }
        };
        op.plan = plan;
        op.log = op.log.filter(|_| plan != Plan::Bare);
        if !self.take_blocks(&mut op, &present) {
            return Err(op.slices);
        }
        let key = self.ops.insert(op);
        self.count_plan(plan, kind);
        self.send_reads(key, &present);
        self.op_part_done(key);
        Ok(())
    }

    /// A member I/O of an operation has ended. `survived`: the array lives without its member.
    pub(crate) fn op_io_done(&mut self, key: OpKey, ok: bool, survived: bool, read: bool) {
        let op = &mut self.ops[key];
        op.read_failed |= read && !ok && survived;
        op.error |= !ok && !survived;
        self.op_part_done(key);
    }

    /// Whether an operation writes only what its member lacks: nobody takes that for data before all of it is there,
    /// so whatever becomes of the write, data and parity of the stripe agree as before.
    pub(crate) fn only_adds(&self, op: OpKey) -> bool {
        let action = self.ops[op].piece().map(|piece| self.syncs.action(piece));
        matches!(action, Some(SyncAction::Rewrite | SyncAction::Recovery))
    }

    /// A write of an operation failed on a member that the array cannot do without. Data and parity of
    /// its stripe do not agree any more, so nothing may be recovered from them: reads of what is lost
    /// there fail instead of giving something else.
    pub(crate) fn stripe_lost(&mut self, op: OpKey) {
        let stripe = self.ops[op].stripe;
        self.stripes.lose(stripe);
        self.break_off(Some(stripe));
    }

    fn op_part_done(&mut self, key: OpKey) {
        let op = &mut self.ops[key];
        assert!(op.pending > 0, "a part of an operation ends that was not counted");
        op.pending -= 1;
        if op.pending > 0 {
            return;
        }
        if op.error || op.retired {
            return self.finish_op(key);
        }
        match op.stage {
            Stage::Reading => {}
            Stage::Logging => return self.logged(key),
            Stage::Writing => return self.end_writing(key),
            Stage::Verifying => return self.finish_op(key),
        }
        if op.read_failed {
            return self.start_over(key);
        }
        if op.plan == Plan::Compare {
            return self.compare(key);
        }
        self.compute(key);
        let op = &mut self.ops[key];
        match op.kind {
            OpKind::Read => return self.finish_op(key),
            // It changes nothing that a log could have to bring back.
            OpKind::Sync => return self.logged(key),
            OpKind::Write | OpKind::Zero => {}
        }
        op.stage = Stage::Logging;
        self.log_op(key);
    }

    fn end_writing(&mut self, key: OpKey) {
        let op = &mut self.ops[key];
        if !op.rewrites(&self.syncs) {
            return self.finish_op(key);
        }
        (op.stage, op.pending) = (Stage::Verifying, 1);
        let op = &self.ops[key];
        let (range, slice) = (self.member_range(op), op.slices[0].clone());
        // Another may have come to its place meanwhile, which was not written.
        let mended = op.piece().and_then(|piece| self.repairs.member_of(piece));
        let written = self.recovered_blocks(op);
        for (what, member) in written.into_iter().filter(|(_, member)| Some(*member) == mended) {
            let op = &mut self.ops[key];
            let Some(buf) = op.block(what, &slice) else { continue };
            op.expect(1);
            let len = range.end - range.start;
            let pieces = smallvec![Piece { buf, len: (len * 512) as u32 }];
            self.start_io(Owner::Op(key), member, IoKind::Read, (range.start, len), pieces);
        }
        self.op_part_done(key);
    }

    fn start_over(&mut self, key: OpKey) {
        let mut op = self.ops.remove(key);
        self.give_blocks(&mut op);
        self.relaunch(op.stripe, op.kind, &op.slices);
    }

    /// It cannot be put on record, so it does not write.
    pub(crate) fn fail_op(&mut self, key: OpKey) {
        self.ops[key].error = true;
        self.finish_op(key);
    }

    pub(crate) fn finish_op(&mut self, key: OpKey) {
        let mut op = self.ops.remove(key);
        self.give_blocks(&mut op);
        if let Some(units) = op.units {
            self.leave_units(units, op.error);
        }
        self.stripes.unlock(op.stripe, op.lo());
        if let Some(log) = op.log.filter(|_| op.is_in_unit) {
            self.logged_op_ended(log);
        }
        if let Some(piece) = op.piece() {
            return self.sync_unit_done(piece, !op.error);
        }
        let error = op.error.then_some(RequestError::Io);
        for req in requests_of(&op.slices) {
            self.child_done(req, error);
        }
    }

    fn present(&self, op: &Op) -> PresentMembers {
        let parity = self.parity();
        let range = self.member_range(op);
        let usable = |slot| self.members.usable(slot, range.clone());
        let data = (0..parity.data_disks())
            .map(|data| usable(parity.slot_of_data(op.stripe, data)))
            .collect();
        let p = usable(parity.slot_of_p(op.stripe));
        let q = parity.slot_of_q(op.stripe).and_then(usable);
        PresentMembers { data, p, q }
    }

    /// The operation's sectors on every member.
    fn member_range(&self, op: &Op) -> Range<u64> {
        let start = self.parity().member_sector(op.stripe, Sectors(u64::from(op.lo()))).0;
        start..start + u64::from(op.height())
    }

    fn slot_of(&self, stripe: StripeNo, what: BlockRole) -> Option<Slot> {
        match what {
            BlockRole::Data(data) => Some(self.parity().slot_of_data(stripe, data)),
            BlockRole::P => Some(self.parity().slot_of_p(stripe)),
            BlockRole::Q => self.parity().slot_of_q(stripe),
            BlockRole::Partial => None,
        }
    }

    fn writable(&self, stripe: StripeNo, what: BlockRole) -> Option<MemberId> {
        self.members.writable(self.slot_of(stripe, what)?)
    }

    /// The parities that are written.
    fn kept(&self, stripe: StripeNo) -> Parities {
        let is_kept = |what| self.writable(stripe, what).is_some();
        Parities { p: is_kept(BlockRole::P), q: is_kept(BlockRole::Q) }
    }

    /// The cheapest plan that can be; none when too much is lost.
    fn plan(&self, op: &Op, present: &PresentMembers) -> Option<Plan> {
        let parities = u32::from(present.p.is_some()) + u32::from(present.q.is_some());
        let (mut lost_touched, mut lost_other, mut touched) = (0, 0, 0);
        for (data, member) in present.data.iter().enumerate() {
            let is_touched = op.touches(data as u16);
            touched += u32::from(is_touched);
            lost_touched += u32::from(member.is_none() && is_touched);
            lost_other += u32::from(member.is_none() && !is_touched);
        }
        let lost = lost_touched + lost_other;
        let others = present.data.len() as u32 - touched;
        let kept = self.made(op.stripe);
        if op.kind == OpKind::Write && others == 0 {
            // Nothing of what was there is needed.
            let bare = kept == Parities::default();
            return Some(if bare { Plan::Bare } else { Plan::Full });
        }
        if lost > parities {
            // Chunks that are there can still be read.
            return (op.kind == OpKind::Read && lost_touched == 0).then_some(Plan::Bare);
        }
        if op.kind == OpKind::Read {
            return Some(if lost_touched == 0 { Plan::Bare } else { Plan::Restore });
        }
        if kept == Parities::default() {
            return Some(Plan::Bare);
        }
        // Before a resync or a recovery has come by, parity cannot be updated, only made anew.
        let is_synced = self.in_sync.covers(self.member_range(op));
        let rmw = lost_touched == 0 && is_synced && kept == op.known;
        match (rmw, lost_other == 0) {
            (true, true) if touched + parities < others + u32::from(self.prefers_rmw) => {
                Some(Plan::Rmw)
            }
            (_, true) => Some(Plan::Rcw),
            (true, false) => Some(Plan::Rmw),
            (false, false) => Some(Plan::Restore),
        }
    }

    fn count_plan(&mut self, plan: Plan, kind: OpKind) {
        match plan {
            Plan::Restore => self.stats.recovered += 1,
            _ if matches!(kind, OpKind::Read | OpKind::Sync) => {}
            Plan::Full | Plan::Bare => self.stats.full_writes += 1,
            Plan::Rmw => self.stats.rmw_writes += 1,
            Plan::Rcw => self.stats.rcw_writes += 1,
            Plan::Copy | Plan::Compare => {}
        }
    }

    /// Takes scratch for every block that the plan reads, recovers or computes; all or nothing.
    fn take_blocks(&mut self, op: &mut Op, present: &PresentMembers) -> bool {
        let mut wanted: SmallVec<[BlockRole; 8]> = SmallVec::new();
        let read = op.kind == OpKind::Read;
        let copied: SmallVec<[BlockRole; 2]> = match op.plan {
            Plan::Copy => self.recovered_blocks(op).into_iter().map(|target| target.0).collect(),
            _ => SmallVec::new(),
        };
        for data in 0..present.data.len() as u16 {
            let needed = match op.plan {
                Plan::Full | Plan::Bare => false,
                Plan::Rmw => op.touches(data),
                Plan::Rcw => !op.touches(data),
                // A read's own buffers take what it asked for; an old chunk that is lost and
                // about to be overwritten is not needed.
                Plan::Restore if op.touches(data) => !read && present.data[data as usize].is_some(),
                Plan::Restore => !read || present.data[data as usize].is_some(),
                Plan::Copy => copied.contains(&BlockRole::Data(data)),
                Plan::Compare => true,
            };
            if needed {
                wanted.push(BlockRole::Data(data));
            }
        }
        if op.plan != Plan::Bare {
            let kept = match op.kind {
                OpKind::Read => op.known,
                OpKind::Write => self.made(op.stripe),
                _ if op.plan == Plan::Copy => Parities {
                    p: copied.contains(&BlockRole::P),
                    q: copied.contains(&BlockRole::Q),
                },
                _ => self.kept(op.stripe),
            };
            wanted.extend(kept.p.then_some(BlockRole::P));
            wanted.extend(kept.q.then_some(BlockRole::Q));
            wanted.extend(op.leaves_partial().then_some(BlockRole::Partial));
        }
        let bytes = op.height() * 512;
        for what in wanted {
            let Some(buf) = self.scratch.alloc(bytes) else {
                self.give_blocks(op);
                return false;
            };
            op.blocks.push(Block { what, buf });
        }
        true
    }

    fn give_blocks(&mut self, op: &mut Op) {
        let bytes = op.height() * 512;
        for block in op.blocks.drain(..) {
            self.scratch.free(block.buf, bytes);
        }
    }

    fn send_reads(&mut self, key: OpKey, present: &PresentMembers) {
        let op = &self.ops[key];
        let parities_needed = match op.plan {
            Plan::Full | Plan::Bare | Plan::Rcw => 0,
            Plan::Rmw | Plan::Copy | Plan::Compare => 2,
            Plan::Restore if self.copies_parity(op) => 2,
            Plan::Restore => op.lost.len(),
        };
        let (lo, height) = (op.lo(), op.height());
        let sector = self.parity().member_sector(op.stripe, Sectors(u64::from(lo))).0;
        let mut ios: SmallVec<[(MemberId, Pieces); 8]> = SmallVec::new();
        for (data, member) in present.data.iter().enumerate() {
            let Some(member) = *member else { continue };
            let from_slice = |slice: &Slice| {
                let buf = op.before(slice, data as u16)?;
                Some(Piece { buf, len: (slice.hi - slice.lo) * 512 })
            };
            let mut pieces = Pieces::new();
            for piece in op.slices.iter().filter_map(from_slice) {
                crate::direct::push_piece(&mut pieces, piece);
            }
            if !pieces.is_empty() {
                ios.push((member, pieces));
            }
        }
        let parities = [(BlockRole::P, present.p), (BlockRole::Q, present.q)];
        let there = parities.iter().filter_map(|&(what, member)| Some((what, member?)));
        for (what, member) in there.take(parities_needed) {
            let buf = op.block(what, &op.slices[0]);
            ios.extend(buf.map(|buf| (member, smallvec![Piece { buf, len: height * 512 }])));
        }
        for (member, pieces) in ios {
            self.ops[key].expect(1);
            let range = (sector, u64::from(height));
            self.start_io(Owner::Op(key), member, IoKind::Read, range, pieces);
        }
    }

    fn send_writes(&mut self, key: OpKey) {
        let op = &self.ops[key];
        if matches!(op.kind, OpKind::Write | OpKind::Zero) {
            requests_of(&op.slices).into_iter().for_each(|req| self.assert_may_write(req));
        }
        match op.kind {
            OpKind::Sync => return self.send_recovered(key),
            OpKind::Zero => return self.zero_stripe(key),
            OpKind::Read | OpKind::Write => {}
        }
        let sector = self.parity().member_sector(op.stripe, Sectors(u64::from(op.lo()))).0;
        let height = u64::from(op.height());
        let range = sector..sector + height;
        let is_whole = matches!(op.plan, Plan::Full | Plan::Bare);
        let is_there = |slot| {
            let writable = self.members.writable(slot).is_some() && is_whole;
            writable || self.members.usable(slot, range.clone()).is_some()
        };
        if !self.geometry.survives(is_there) {
            self.ops[key].error = true;
            return;
        }
        let fua = requests_of(&op.slices).iter().any(|&req| self.reqs[req].fua());
        let mut ios: SmallVec<[(MemberId, Pieces); 8]> = SmallVec::new();
        for src in &op.slices[0].srcs {
            let slot = self.parity().slot_of_data(op.stripe, src.part.data());
            let Some(member) = self.members.writable(slot) else { continue };
            let mut pieces = Pieces::new();
            for slice in &op.slices {
                let len = (slice.hi - slice.lo) * 512;
                if let Some(buf) = Op::client(slice, src.part.data()) {
                    crate::direct::push_piece(&mut pieces, Piece { buf, len });
                }
            }
            ios.push((member, pieces));
        }
        for what in [BlockRole::P, BlockRole::Q] {
            let member = self.writable(op.stripe, what);
            let buf = op.block(what, &op.slices[0]);
            if let (Some(member), Some(buf)) = (member, buf) {
                ios.push((member, smallvec![Piece { buf, len: op.height() * 512 }]));
            }
        }
        ios.extend(self.restored_unwritten(&self.ops[key]));
        for (member, pieces) in ios {
            self.ops[key].expect(1);
            let kind = IoKind::Write { fua };
            self.start_io(Owner::Op(key), member, kind, (sector, height), pieces);
        }
    }

    /// What was restored or read of members that are there, and is not written, where redundancy was never right: parity
    /// is made for just that. Something else may be on them, which a recovery leaves there that passes chunks where
    /// nothing was written, or which can be read again; or on who is to take a member's place, and gets what is written
    /// to the member.
    fn restored_unwritten(&self, op: &Op) -> SmallVec<[(MemberId, Pieces); 2]> {
        if self.in_sync.covers(self.member_range(op)) {
            return SmallVec::new();
        }
        let untouched = (0..self.parity().data_disks()).filter(|&data| !op.touches(data));
        let lacking = untouched.filter_map(|data| {
            let what = BlockRole::Data(data);
            let member = self.writable(op.stripe, what)?;
            let is_restored =
                op.plan == Plan::Restore && op.lost.iter().any(|&lost| lost as u16 == data);
            let may_differ = is_restored || self.members.replacement_of(member).is_some();
            let buf = op.block(what, &op.slices[0]).filter(|_| may_differ)?;
            let pieces = smallvec![Piece { buf, len: op.height() * 512 }];
            Some((member, pieces))
        });
        lacking.collect()
    }

    fn zero_stripe(&mut self, key: OpKey) {
        let op = &self.ops[key];
        let (fua, unmap) = match op.slices[0].srcs[0].owner {
            FragOwner::Request(req) => self.reqs[req].zeroes(),
            _ => (false, true),
        };
        let range = (self.parity().member_sector(op.stripe, Sectors(0)).0, u64::from(op.height()));
        // Nothing of what was there is needed.
        if !self.geometry.survives(|slot| self.members.writable(slot).is_some()) {
            self.ops[key].error = true;
            return;
        }
        for slot in 0..self.geometry.raid_disks() {
            if let Some(member) = self.members.writable(Slot(slot)) {
                self.ops[key].expect(1);
                let kind = IoKind::WriteZeroes { fua, unmap };
                self.start_io(Owner::Op(key), member, kind, range, Pieces::new());
            }
        }
    }
}
