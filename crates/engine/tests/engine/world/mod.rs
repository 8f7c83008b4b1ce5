//! A small world for one shard: members in memory, completions in any order, and an oracle that
//! knows for every sector which writes a read may show.
//!
//! The supervisor's part is played by answers that say yes at once; the real one has tests of
//! its own.

pub mod draw;

use lapstrake_engine::*;
use lapstrake_geometry::*;
use std::collections::{BTreeMap, BTreeSet};

pub const SECTOR: usize = 512;
pub const DATA_OFFSET: u64 = 16;
const SCRATCH: BufId = BufId(0);

/// xorshift; the whole run follows from its seed.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// What the array may hold, per sector: the stamps of the writes sent, in order, and how many of
/// them have been answered.
#[derive(Default, Clone)]
struct History {
    stamps: Vec<u32>,
    answered: usize,
}

struct Running {
    request: Request,
    /// For a read: how much of each sector's history was certain when it began.
    floor: Vec<usize>,
}

/// What lies outside the shard: memory, and what is on its way to members and clients.
struct Outside {
    buffers: BTreeMap<u32, Vec<u8>>,
    pending: Vec<MemberIo>,
    /// With the memory of each, which is the shard's no more.
    replies: Vec<(Reply, Vec<u8>)>,
    now: Time,
}

impl Outside {
    fn slice(&self, buf: Buf, len: u32) -> &[u8] {
        &self.buffers[&buf.id.0][buf.offset as usize..(buf.offset + len) as usize]
    }

    fn bytes(&self, buf: Buf, len: u32) -> Vec<u8> {
        if buf.id == BufId::ZERO {
            assert!(len <= ZERO_BYTES);
            return vec![0; len as usize];
        }
        self.buffers[&buf.id.0][buf.offset as usize..(buf.offset + len) as usize].to_vec()
    }

    fn put(&mut self, buf: Buf, bytes: &[u8]) {
        let start = buf.offset as usize;
        self.buffers.get_mut(&buf.id.0).expect("a live buffer")[start..start + bytes.len()]
            .copy_from_slice(bytes);
    }

    fn replied(&mut self, reply: Reply) {
        let bytes = self.buffers.remove(&(reply.id.0 as u32)).expect("its memory");
        self.replies.push((reply, bytes));
    }
}

impl lapstrake_engine::World for Outside {
    fn now(&self) -> Time {
        self.now
    }

    fn start_io(&mut self, io: MemberIo) {
        self.pending.push(io);
    }

    fn seal(&mut self, _: &Seal) {
        unreachable!("these arrays have neither logs nor a journal");
    }

    fn compare(&mut self, compare: &Comparison) -> Vec<Finding> {
        compare.run(lapstrake_parity::kernels(), |buf, len| self.slice(buf, len))
    }

    fn compute(&mut self, compute: &Compute) {
        let kernels = lapstrake_parity::kernels();
        let gather = |list: &[Buf], len| -> Vec<Vec<u8>> {
            list.iter().map(|&buf| self.bytes(buf, len)).collect()
        };
        match compute {
            Compute::Xor { dst, srcs, len } | Compute::XorInto { dst, srcs, len } => {
                let srcs = gather(srcs, *len);
                let srcs: Vec<&[u8]> = srcs.iter().map(Vec::as_slice).collect();
                let mut out = self.bytes(*dst, *len);
                match compute {
                    Compute::Xor { .. } => kernels.xor(&mut out, &srcs),
                    _ => kernels.xor_into(&mut out, &srcs),
                }
                self.put(*dst, &out);
            }
            Compute::Pq { p, q, data, len } => {
                let srcs = gather(data, *len);
                let srcs: Vec<&[u8]> = srcs.iter().map(Vec::as_slice).collect();
                let (mut p_out, mut q_out) = (vec![0; *len as usize], vec![0; *len as usize]);
                kernels.pq(&mut p_out, &mut q_out, &srcs);
                self.put(*p, &p_out);
                self.put(*q, &q_out);
            }
            Compute::MulInto { dst, coefs, srcs, len } => {
                let srcs = gather(srcs, *len);
                let srcs: Vec<&[u8]> = srcs.iter().map(Vec::as_slice).collect();
                let mut out = self.bytes(*dst, *len);
                kernels.mul_add(&mut out, coefs, &srcs);
                self.put(*dst, &out);
            }
            Compute::Mul { dsts, rows, srcs, len } => {
                let srcs = gather(srcs, *len);
                let srcs: Vec<&[u8]> = srcs.iter().map(Vec::as_slice).collect();
                let mut outs = vec![vec![0; *len as usize]; dsts.len()];
                let mut out_refs: Vec<&mut [u8]> = outs.iter_mut().map(Vec::as_mut_slice).collect();
                let rows: Vec<&[u8]> = rows.iter().map(|row| row.as_slice()).collect();
                kernels.mul(&mut out_refs, &rows, &srcs);
                for (dst, out) in dsts.iter().zip(&outs) {
                    self.put(*dst, out);
                }
            }
        }
    }
}

pub struct World {
    pub shard: Shard,
    pub geometry: Geometry,
    pub members: Vec<Vec<u8>>,
    pub dead: BTreeSet<u16>,
    /// Members' sectors that cannot be read until they are written.
    pub unreadable: BTreeSet<(u16, u64)>,
    /// What went on record as bad: member and sector, how many.
    pub bad: BTreeMap<(u16, u64), u64>,
    /// Bad-block logs are full.
    pub log_is_full: bool,
    /// What takes all members' writes is full.
    pub is_full: bool,
    /// Writes that found it so.
    pub refused: usize,
    /// Members whose writes do not help.
    pub worn: BTreeSet<u16>,
    pub rng: Rng,
    outside: Outside,
    history: Vec<History>,
    running: BTreeMap<u64, Running>,
    next: u32,
    pub errors: usize,
    /// Ends of sync pieces.
    pub reports: Vec<SyncReport>,
    /// Members and ranges that were written anew, as told.
    pub rewritten: Vec<(u16, u64, u64)>,
}

impl World {
    pub fn new(config: &Config, seed: u64) -> Self {
        Self::with(config, seed, &[], true)
    }

    pub fn with_write_mostly(config: &Config, seed: u64, mostly: &[u16]) -> Self {
        Self::made(config, seed, &[], mostly, true)
    }

    /// Members in the slots `recovering` have junk, as have all parities and further copies if redundancy is not
    /// `in_sync`.
    pub fn with(config: &Config, seed: u64, recovering: &[u16], in_sync: bool) -> Self {
        Self::made(config, seed, recovering, &[], in_sync)
    }

    /// Nobody keeps a record of what is bad.
    pub fn without_logs(config: &Config, seed: u64) -> Self {
        Self::built(config, seed, &[], &[], true, false)
    }

    fn made(config: &Config, seed: u64, recovering: &[u16], mostly: &[u16], in_sync: bool) -> Self {
        Self::built(config, seed, recovering, mostly, in_sync, true)
    }

    fn built(
        config: &Config,
        seed: u64,
        recovering: &[u16],
        mostly: &[u16],
        in_sync: bool,
        has_logs: bool,
    ) -> Self {
        let geometry = Geometry::new(config).expect("a valid geometry");
        let disks = config.raid_disks;
        let sizes: Vec<u64> = match config.member_sizes.len() {
            0 => vec![config.component.0; disks as usize],
            _ => config.member_sizes.iter().map(|s| s.0).collect(),
        };
        let members = (0..disks).map(|slot| MemberConfig {
            data_offset: Sector(DATA_OFFSET),
            slot: Some(Slot(slot)),
            trusted_to: if recovering.contains(&slot) { Sector(0) } else { FULLY_TRUSTED },
            rotational: slot % 2 == 0,
            write_mostly: mostly.contains(&slot),
            bad_blocks: has_logs.then(Vec::new),
            log: None,
        });
        let pages = 33 * 32 * u32::from(disks).div_ceil(8);
        let shard = Shard::new(ShardConfig {
            geometry: geometry.clone(),
            members: members.collect(),
            read_only: false,
            block: Sectors(1),
            in_sync_to: if in_sync { FULLY_TRUSTED } else { Sector(0) },
            bitmap: None,
            scratch: SCRATCH,
            scratch_pages: pages,
            log_signature: None,
            lost: Vec::new(),
            journal: None,
            behind_pages: 0,
            unsynced: None,
        });
        let sectors = geometry.array_sectors().0 as usize;
        let mut world = Self {
            shard,
            members: sizes.iter().map(|s| vec![0; (s + DATA_OFFSET) as usize * SECTOR]).collect(),
            dead: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            bad: BTreeMap::new(),
            log_is_full: false,
            is_full: false,
            refused: 0,
            worn: BTreeSet::new(),
            rng: Rng(seed | 1),
            outside: Outside {
                buffers: BTreeMap::from([(0, vec![0; (pages * PAGE_BYTES) as usize])]),
                pending: Vec::new(),
                replies: Vec::new(),
                now: Time(0),
            },
            history: vec![History { stamps: vec![0], answered: 0 }; sectors],
            geometry,
            running: BTreeMap::new(),
            next: 1,
            errors: 0,
            reports: Vec::new(),
            rewritten: Vec::new(),
        };
        for &slot in recovering {
            world.members[usize::from(slot)].fill(0x5a);
        }
        if !in_sync {
            world.spoil_redundancy();
        }
        world
    }

    /// Gives the member in a slot somebody who is to take its place, and has junk.
    pub fn replace(&mut self, slot: u16) -> MemberId {
        let id = MemberId(self.members.len() as u16);
        self.members.push(vec![0x5a; self.members[usize::from(slot)].len()]);
        let config = MemberConfig {
            data_offset: Sector(DATA_OFFSET),
            slot: None,
            trusted_to: Sector(0),
            rotational: false,
            write_mostly: false,
            bad_blocks: Some(Vec::new()),
            log: None,
        };
        self.shard.handle_order(self.outside.now, &Order::MemberAdded(config));
        self.shard.handle_order(self.outside.now, &Order::Slotted(id, Slot(slot)));
        id
    }

    /// A member is used no more, which is on record.
    pub fn fail(&mut self, slot: u16) {
        self.dead.insert(slot);
        self.shard.handle_order(self.outside.now, &Order::MemberFailed(MemberId(slot)));
        self.shard.handle_order(self.outside.now, &Order::Recorded(MemberId(slot)));
    }

    fn spoil_redundancy(&mut self) {
        for slot in 0..self.geometry.raid_disks() {
            for sector in 0..self.geometry.component().0 {
                let spoiled = match self.geometry.content(Slot(slot), Sector(sector)) {
                    Content::P(_) | Content::Q(_) => true,
                    Content::Data(at) => self.geometry.map(at).homes[0].slot != Slot(slot),
                    Content::Unused => false,
                };
                if spoiled {
                    self.spoil(slot, sector);
                }
            }
        }
    }

    /// Changes a sector of a member behind everybody's back.
    pub fn spoil(&mut self, slot: u16, sector: u64) {
        let at = (sector + DATA_OFFSET) as usize * SECTOR;
        self.members[usize::from(slot)][at..at + SECTOR]
            .iter_mut()
            .for_each(|byte| *byte ^= 0xa7 ^ (slot as u8));
    }

    /// A power cut left a write on the members that hold the data, and on no other.
    pub fn half_write(&mut self, sector: u64, len: u64) {
        let id = self.next;
        self.next += 1;
        for sector in sector..sector + len {
            let home = self.geometry.map(Sector(sector)).homes[0];
            let at = (home.sector.0 + DATA_OFFSET) as usize * SECTOR;
            let bytes = &mut self.members[usize::from(home.slot.0)][at..at + SECTOR];
            bytes.chunks_exact_mut(4).for_each(|block| block.copy_from_slice(&id.to_le_bytes()));
            self.history[sector as usize].stamps.push(id);
        }
    }

    /// Begins a piece of a sync action.
    pub fn sync(&mut self, action: SyncAction, start: u64, len: u64) {
        let id = PieceId(self.next);
        self.next += 1;
        let (start, len) = (Sector(start), Sectors(len));
        let piece = SyncPiece { id, action, start, len, within: 0..u64::MAX };
        self.shard.handle_sync(self.outside.now, piece);
    }

    /// What pieces of a sync action are made of.
    pub fn sync_unit(&self) -> u64 {
        match &self.geometry {
            Geometry::Parity(parity) => parity.stripe_data().0,
            _ => 24,
        }
    }

    /// The supervisor's word that all has been gone through.
    pub fn end_sync(&mut self, recovered: &[u16]) {
        for &slot in recovered {
            self.shard
                .handle_order(self.outside.now, &Order::Trusted(MemberId(slot), FULLY_TRUSTED));
        }
        self.shard.handle_order(self.outside.now, &Order::InSync(FULLY_TRUSTED));
    }

    /// Gives the stripe cache another size.
    pub fn resize_cache(&mut self, pages: u32) {
        let bytes = (pages * PAGE_BYTES) as usize;
        let arena = self.outside.buffers.get_mut(&SCRATCH.0).expect("it is there");
        arena.resize(bytes.max(arena.len()), 0);
        self.shard.handle_order(self.outside.now, &Order::StripeCache(pages));
        self.drain();
    }

    /// Takes back what the shard has left of its stripe cache.
    fn trim_cache(&mut self) {
        let bytes = (self.shard.scratch_pages().1 * PAGE_BYTES) as usize;
        self.outside.buffers.get_mut(&SCRATCH.0).expect("it is there").truncate(bytes);
    }

    pub fn sectors(&self) -> u64 {
        self.geometry.array_sectors().0
    }

    /// Member I/Os that have begun and not ended.
    pub fn members_busy(&self) -> usize {
        self.outside.pending.len()
    }

    /// Whose I/Os those are.
    pub fn pending_members(&self) -> Vec<u16> {
        self.outside.pending.iter().map(|io| io.member.0).collect()
    }

    pub fn now(&self) -> Time {
        self.outside.now
    }

    /// Sends a request; its memory is made here.
    pub fn send(&mut self, make: impl FnOnce(Buf) -> RequestKind, sector: u64, len: u64) {
        let id = self.next;
        self.next += 1;
        let kind = make(Buf { id: BufId(id), offset: 0 });
        let mut bytes = vec![0xee; len as usize * SECTOR];
        let range = sector as usize..(sector + len) as usize;
        let mut floor = Vec::new();
        match kind {
            RequestKind::Write { .. } => {
                for block in bytes.chunks_exact_mut(4) {
                    block.copy_from_slice(&id.to_le_bytes());
                }
                self.history[range].iter_mut().for_each(|h| h.stamps.push(id));
            }
            RequestKind::WriteZeroes { .. } => {
                self.history[range].iter_mut().for_each(|h| h.stamps.push(0));
            }
            RequestKind::Read(_) => {
                floor = self.history[range].iter().map(|h| h.answered).collect()
            }
            _ => {}
        }
        self.outside.buffers.insert(id, bytes);
        let request = Request {
            id: RequestId(u64::from(id)),
            kind,
            sector: Sector(sector),
            len: Sectors(len),
        };
        self.running.insert(u64::from(id), Running { request, floor });
        self.shard.handle_request(self.outside.now, request);
    }

    /// Takes in what the shard wants done.
    pub fn drain(&mut self) {
        loop {
            self.shard.carry_out(&mut self.outside, |_, outside, ended| match ended {
                Ended::Replied(reply) => outside.replied(reply),
                Ended::Declined(_) => unreachable!("there is one shard"),
            });
            for (reply, bytes) in std::mem::take(&mut self.outside.replies) {
                self.answered(reply, &bytes);
            }
            let Some(notice) = self.shard.poll_notice() else { return };
            let order = match notice {
                Notice::NeedActive => Order::Active,
                Notice::Failed(member) => Order::Recorded(member),
                Notice::OutOfSpace if self.is_full => continue,
                Notice::BitsWanted(_, first, last) => Order::BitsSet(first, last),
                Notice::Synced(report) => {
                    self.reports.push(report);
                    continue;
                }
                Notice::Rewritten(member, start, len) => {
                    self.rewritten.push((member.0, start.0, len.0));
                    continue;
                }
                Notice::Bad(member, ..) if self.log_is_full => {
                    self.shard.handle_order(self.outside.now, &Order::MemberFailed(member));
                    Order::Recorded(member)
                }
                Notice::Bad(member, start, len) => {
                    self.bad.insert((member.0, start.0), len.0);
                    Order::BadRecorded(member, start, len)
                }
                Notice::Good(member, start, len) => {
                    self.bad.retain(|&(m, at), _| {
                        m != member.0 || at < start.0 || at >= start.0 + len.0
                    });
                    Order::GoodAgain(member, start, len)
                }
                other => panic!("unasked: {other:?}"),
            };
            self.shard.handle_order(self.outside.now, &order);
        }
    }

    /// Ends one member I/O, any of those running; or lets time pass. False when all is quiet.
    pub fn step(&mut self) -> bool {
        self.drain();
        if self.outside.pending.is_empty() {
            let Some(due) = self.shard.poll_deadline() else { return false };
            self.outside.now = due;
            self.shard.handle_time(due);
            self.drain();
            return true;
        }
        let at = self.rng.below(self.outside.pending.len() as u64) as usize;
        let io = self.outside.pending.swap_remove(at);
        self.end(&io);
        true
    }

    /// Ends the member I/Os that are running, and none that follow from their ends.
    pub fn end_pending(&mut self) {
        self.drain();
        std::mem::take(&mut self.outside.pending).iter().for_each(|io| self.end(io));
    }

    fn end(&mut self, io: &MemberIo) {
        let writes = matches!(io.kind, IoKind::Write { .. } | IoKind::WriteZeroes { .. });
        let is_refused = self.is_full && writes;
        let ok = !is_refused && !self.dead.contains(&io.member.0) && !self.hits_unreadable(io);
        if is_refused {
            self.refused += 1;
            self.shard.handle_out_of_space(self.outside.now);
        }
        if ok {
            self.perform(io);
        }
        self.outside.now = self.outside.now.after(1000);
        self.shard.handle_completion(self.outside.now, io.id, ok);
        self.drain();
        self.trim_cache();
    }

    pub fn settle(&mut self) {
        while self.step() {}
        assert!(self.shard.is_quiet(), "requests were left without an answer");
        assert!(self.running.is_empty());
        assert_eq!(self.shard.scratch_pages().0, 0, "stripe cache memory was lost");
    }

    /// Whether it reads what cannot be read; a write mends that.
    fn hits_unreadable(&mut self, io: &MemberIo) -> bool {
        let member = io.member.0;
        let range = (member, io.sector.0)..(member, io.sector.0 + io.len.0);
        let hits = self.unreadable.range(range.clone()).next().is_some();
        let writes = matches!(io.kind, IoKind::Write { .. } | IoKind::WriteZeroes { .. });
        if writes && !self.worn.contains(&member) {
            self.unreadable.retain(|place| !range.contains(place));
        }
        hits && io.kind == IoKind::Read
    }

    fn perform(&mut self, io: &MemberIo) {
        let mut at = io.sector.0 as usize * SECTOR;
        let member = &mut self.members[io.member.0 as usize];
        match io.kind {
            IoKind::Flush | IoKind::Discard => {}
            IoKind::WriteZeroes { .. } => member[at..at + io.len.0 as usize * SECTOR].fill(0),
            IoKind::Read | IoKind::Write { .. } => {
                let total: u32 = io.pieces.iter().map(|p| p.len).sum();
                assert_eq!(u64::from(total), io.len.0 * 512, "pieces do not fill the I/O");
                for piece in &io.pieces {
                    let len = piece.len as usize;
                    if piece.buf.id == BufId::ZERO {
                        assert!(piece.len <= ZERO_BYTES);
                        member[at..at + len].fill(0);
                    } else {
                        let buffer =
                            self.outside.buffers.get_mut(&piece.buf.id.0).expect("a live buffer");
                        let start = piece.buf.offset as usize;
                        let bytes = &mut buffer[start..start + len];
                        if io.kind == IoKind::Read {
                            bytes.copy_from_slice(&member[at..at + len]);
                        } else {
                            member[at..at + len].copy_from_slice(bytes);
                        }
                    }
                    at += len;
                }
            }
        }
    }

    fn answered(&mut self, reply: Reply, bytes: &[u8]) {
        let running = self.running.remove(&reply.id.0).expect("a request answered twice");
        if reply.result.is_err() {
            self.errors += 1;
            return;
        }
        let request = running.request;
        for i in 0..request.len.0 as usize {
            let history = &mut self.history[request.sector.0 as usize + i];
            match request.kind {
                RequestKind::Read(_) => {
                    let sector = &bytes[i * SECTOR..(i + 1) * SECTOR];
                    let stamp = u32::from_le_bytes(sector[..4].try_into().expect("4 bytes"));
                    assert!(sector.chunks_exact(4).all(|c| c == &sector[..4]), "a torn sector");
                    let allowed = &history.stamps[running.floor[i]..];
                    assert!(
                        allowed.contains(&stamp),
                        "sector {} shows write {stamp}, allowed are {allowed:?}",
                        request.sector.0 as usize + i,
                    );
                }
                RequestKind::Write { .. } => {
                    let id = reply.id.0 as u32;
                    let at = history.stamps.iter().rposition(|&s| s == id).expect("sent");
                    assert!(at >= history.answered, "overlapping writes answered out of order");
                    history.answered = at;
                }
                RequestKind::WriteZeroes { .. } => {
                    let next = history.answered + 1;
                    let at =
                        next + history.stamps[next..].iter().position(|&s| s == 0).expect("sent");
                    history.answered = at;
                }
                _ => {}
            }
        }
    }

    /// After [`Self::settle`]: every sector reads as its last write.
    pub fn check_contents(&mut self) {
        let mut at = 0;
        while at < self.sectors() {
            let len = (self.sectors() - at).min(1 + self.rng.below(700));
            self.send(RequestKind::Read, at, len);
            at += len;
        }
        self.settle();
    }

    /// After [`Self::settle`]: parity and copies on all living members agree with the data.
    pub fn check_redundancy(&self) {
        let at = |slot: Slot, sector: Sector| -> Option<&[u8]> {
            if self.dead.contains(&slot.0) {
                return None;
            }
            let start = (sector.0 + DATA_OFFSET) as usize * SECTOR;
            self.members[slot.0 as usize].get(start..start + SECTOR)
        };
        match &self.geometry {
            Geometry::Parity(parity) => {
                for stripe in (0..parity.stripes()).map(StripeNo) {
                    for offset in (0..parity.chunk().0).map(Sectors) {
                        check_stripe(parity, stripe, offset, &at);
                    }
                }
            }
            other => {
                for sector in (0..self.sectors()).map(Sector) {
                    let homes = other.map(sector).homes;
                    let mut copies = homes.iter().filter_map(|home| at(home.slot, home.sector));
                    if let Some(first) = copies.next() {
                        assert!(copies.all(|copy| copy == first), "copies of {sector} differ");
                    }
                }
            }
        }
    }
}

fn check_stripe<'a>(
    parity: &Parity,
    stripe: StripeNo,
    offset: Sectors,
    at: &impl Fn(Slot, Sector) -> Option<&'a [u8]>,
) {
    let sector = parity.member_sector(stripe, offset);
    let (mut p, mut q) = (vec![0u8; SECTOR], vec![0u8; SECTOR]);
    for data in 0..parity.data_disks() {
        let Some(bytes) = at(parity.slot_of_data(stripe, data), sector) else { return };
        let coef = lapstrake_parity::gf::exp(parity.q_exponent(stripe, data));
        for i in 0..SECTOR {
            p[i] ^= bytes[i];
            q[i] ^= lapstrake_parity::gf::mul(coef, bytes[i]);
        }
    }
    if let Some(stored) = at(parity.slot_of_p(stripe), sector) {
        assert!(stored == p, "P of {stripe:?} at {offset:?} is wrong");
    }
    if let Some(stored) = parity.slot_of_q(stripe).and_then(|slot| at(slot, sector)) {
        assert!(stored == q, "Q of {stripe:?} at {offset:?} is wrong");
    }
}
