//! A supervisor alone: what it wants written ends when the story says so, and what it orders is looked at.

use lapstrake_engine::*;
use lapstrake_geometry::{Config, Geometry, Layout, Level, ParityLayout, Sector, Sectors, Slot};
use lapstrake_metadata::{
    Role, Superblock,
    badblocks::BadBlocks,
    bitmap::{self, Bits},
    create::{BitmapChoice, CreateRequest, MemberPlan, NewMember, plan, spare},
};

pub const DELAY_NS: u64 = 200_000_000;
pub const SECOND_NS: u64 = 1_000_000_000;

pub struct Story {
    pub supervisor: Supervisor,
    pub geometry: Geometry,
    pub pending: Vec<MetaWrite>,
    pub orders: Vec<Order>,
    pub now: Time,
}

/// What a metadata write says.
pub enum Said {
    Superblock(Box<Superblock>),
    Bitmap(Box<bitmap::Superblock>),
}

pub fn supervisor(
    geometry: &Geometry,
    members: Vec<MemberRecord>,
    bitmap: Option<BitmapConfig>,
    resync_from: Option<Sector>,
) -> Supervisor {
    Supervisor::new(SupervisorConfig {
        geometry: geometry.clone(),
        members,
        shards: 1,
        safe_mode_delay_ns: DELAY_NS,
        resync_from,
        was_replayed: false,
        reshape: None,
        bitmap,
        sync: SyncConfig { speed: SyncSpeed::default(), frozen: false, span: Sectors(u64::MAX) },
        epoch_s: 1_800_000_000,
    })
}

/// A bitmap without a set bit.
pub fn new_bitmap_config(superblock: &Superblock, size: Sectors) -> BitmapConfig {
    let superblock = bitmap::Superblock::new(superblock.bitmap_uuid(), size, 1 << 20);
    let bits = Bits::new(&superblock, false);
    BitmapConfig { superblock, bits, external: false, bits_need_resync: false }
}

impl Story {
    pub fn new(level: Level, members: u16, bitmap: bool) -> Self {
        Self::made(level, members, bitmap, false)
    }

    /// A RAID5 of three, and a spare for a fourth slot, which has no room to move its data: shards are to pause for that.
    pub fn growing_in_place() -> Self {
        let mut story = Story::new(Level::Raid5, 3, false);
        story.add_spare();
        let like = story.supervisor.members().next().unwrap().0.clone();
        let config = |raid_disks| Config {
            level: Level::Raid5,
            layout: Layout::Parity(ParityLayout::LeftSymmetric),
            chunk: like.chunk(),
            raid_disks,
            component: like.component(),
            member_sizes: Vec::new(),
        };
        let mut superblock = like.clone();
        superblock.set_geometry(&config(4));
        let to = NewGeometry {
            geometry: Geometry::new(&config(4)).unwrap(),
            before: Geometry::new(&config(3)).unwrap(),
            superblock,
            data_move: DataMove::Moves { shift: 0, is_backwards: false },
        };
        assert!(story.supervisor.handle_reshape(story.now, to));
        story.drain();
        story.settle();
        story
    }

    /// The last member is a journal.
    pub fn journaled(level: Level, members: u16) -> Self {
        Self::made(level, members, false, true)
    }

    /// Members with bad-block logs, active.
    pub fn with_logs(level: Level, members: u16) -> Self {
        Self::with_log(level, members, &BadBlocks::new(0).expect("no shift"))
    }

    /// As above, with what is on record.
    pub fn with_log(level: Level, members: u16, log: &BadBlocks) -> Self {
        let mut story = Self::new(level, members, false);
        let mut records = story.records();
        records.iter_mut().for_each(|record| record.bad_blocks = Some(log.clone()));
        story.restart(records);
        story.activate();
        story.take_orders();
        story
    }

    fn made(level: Level, members: u16, bitmap: bool, journal: bool) -> Self {
        let size = Sectors(1 << 20);
        let member = NewMember { size, ..NewMember::default() };
        let request = CreateRequest {
            journal: journal.then_some(member),
            bitmap: if bitmap { BitmapChoice::Internal } else { BitmapChoice::None },
            name: "story".into(),
            assume_clean: true,
            force: true,
            ctime: 1_700_000_000,
            ..CreateRequest::new(level, vec![Some(member); members.into()])
        };
        let mut byte = 0u8;
        let made = plan(&request, |buf| {
            buf.iter_mut().for_each(|b| {
                byte = byte.wrapping_add(41);
                *b = byte;
            })
        })
        .expect("a plan");
        let record = |member: &MemberPlan| {
            let slot = match member.superblock.role() {
                Role::Active(slot) => Some(slot),
                _ => None,
            };
            let trusted_to = if slot.is_some() { FULLY_TRUSTED } else { Sector(0) };
            MemberRecord {
                superblock: member.superblock.clone(),
                slot,
                trusted_to,
                bad_blocks: None,
            }
        };
        let mut records: Vec<_> = made.members.iter().map(record).collect();
        records.sort_by_key(|record| record.slot.map_or(u16::MAX, |slot| slot.0));
        let bitmap = bitmap.then(|| new_bitmap_config(&records[0].superblock, made.component));
        let geometry = made.geometry;
        let supervisor = supervisor(&geometry, records, bitmap, None);
        Self { supervisor, geometry, pending: Vec::new(), orders: Vec::new(), now: Time(0) }
    }

    /// The members as they would be at a start.
    pub fn records(&self) -> Vec<MemberRecord> {
        let members = self.supervisor.members().zip((0..).map(Slot));
        let record = |((superblock, _), slot): ((&Superblock, _), _)| MemberRecord {
            superblock: superblock.clone(),
            slot: Some(slot),
            trusted_to: FULLY_TRUSTED,
            bad_blocks: None,
        };
        members.map(record).collect()
    }

    /// The array is stopped where it stands, and started with these members.
    pub fn restart(&mut self, members: Vec<MemberRecord>) {
        self.supervisor = supervisor(&self.geometry, members, None, None);
        (self.pending, self.orders) = (Vec::new(), Vec::new());
    }

    pub fn notice(&mut self, notice: Notice) {
        self.supervisor.handle_notice(self.now, notice);
        self.drain();
    }

    /// What a shard says that waits for bits of the bitmap that there is.
    pub fn wanted(&self, first: u64, last: u64) -> Notice {
        let chunk = self.supervisor.bitmap().map_or(8 * 512, |bitmap| u64::from(bitmap.chunksize));
        Notice::BitsWanted(Sectors::from_bytes(chunk), first, last)
    }

    pub fn wants(&mut self, first: u64, last: u64) {
        self.notice(self.wanted(first, last));
    }

    pub fn drain(&mut self) {
        while let Some(write) = self.supervisor.poll_write() {
            self.pending.push(write);
        }
        while let Some(order) = self.supervisor.poll_order() {
            self.orders.push(order);
        }
    }

    /// Ends all metadata writes that are on their way, and those that follow.
    pub fn settle(&mut self) {
        while !self.pending.is_empty() {
            let write = self.pending.remove(0);
            self.end(&write, true);
        }
    }

    pub fn end(&mut self, write: &MetaWrite, ok: bool) {
        self.supervisor.handle_written(self.now, write.id, ok);
        self.drain();
    }

    pub fn wait(&mut self, ns: u64) {
        self.now = self.now.after(ns);
        self.supervisor.handle_time(self.now);
        self.drain();
    }

    pub fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    /// Adds a member that nothing is known of.
    pub fn add_spare(&mut self) -> MemberId {
        let id = self.begin_spare();
        self.settle();
        id
    }

    /// As [`Self::add_spare`]; what is to be written for that is on its way.
    pub fn begin_spare(&mut self) -> MemberId {
        let members: Vec<_> = self.supervisor.members().collect();
        let number = members.len() as u32;
        let new = spare(members[0].0, Sectors(1 << 20), number, [number as u8; 16], false);
        let superblock = new.expect("a spare");
        let (id, _) = self.supervisor.handle_add(self.now, superblock, None, false);
        self.drain();
        id
    }

    /// Ends the pieces of a sync action well.
    pub fn sync(&mut self) {
        while self.sync_one() {}
    }

    /// Ends one piece well, if there is one.
    pub fn sync_one(&mut self) -> bool {
        self.sync_next().is_some()
    }

    /// As [`Self::sync_one`]; gives where the piece begins, and its length.
    pub fn sync_next(&mut self) -> Option<(u64, u64)> {
        let piece = self.supervisor.poll_sync()?;
        self.notice(Notice::Synced(SyncReport {
            id: piece.id,
            ok: true,
            mismatch_sectors: 0,
            mismatches: Vec::new(),
            requests: 0,
        }));
        Some((piece.start.0, piece.len.0))
    }

    /// A replacement gets its copy, until superblocks are about to say that it is whole.
    pub fn copy_until_whole(&mut self, replacement: MemberId) {
        let is_whole = |(id, sb): &(MemberId, Superblock)| {
            *id == replacement && sb.is_replacement() && sb.recovery_offset().is_none()
        };
        while !superblocks(&self.pending).iter().any(is_whole) {
            assert!(self.supervisor.state(replacement).0 == DiskState::Replacement);
            self.sync();
            if !superblocks(&self.pending).iter().any(is_whole) && !self.pending.is_empty() {
                let write = self.pending.remove(0);
                self.end(&write, true);
            }
        }
    }

    /// From active to clean; gives what is to be written for that.
    pub fn rest(&mut self) -> Vec<MetaWrite> {
        self.wait(DELAY_NS);
        self.notice(Notice::Idle);
        std::mem::take(&mut self.pending)
    }

    /// From active to clean.
    pub fn rest_at_once(&mut self) {
        self.pending = self.rest();
        self.settle();
    }

    /// Goes through a first write: the array is active afterwards.
    pub fn activate(&mut self) {
        self.notice(Notice::NeedActive);
        self.settle();
        assert!(self.take_orders().contains(&Order::Active));
    }
}

pub fn said(write: &MetaWrite) -> Said {
    match bitmap::Superblock::parse(&write.data) {
        Ok(sb) => Said::Bitmap(Box::new(sb)),
        Err(_) => {
            let at = write.sector.0;
            let sb = lapstrake_metadata::v1::Superblock::parse(&write.data, 2, at).expect("either");
            Said::Superblock(Box::new(Superblock::V1(sb)))
        }
    }
}

pub fn superblocks(writes: &[MetaWrite]) -> Vec<(MemberId, Superblock)> {
    writes
        .iter()
        .filter_map(|write| match (write.target, said(write)) {
            (Target::Member(member), Said::Superblock(sb)) => Some((member, *sb)),
            _ => None,
        })
        .collect()
}
