//! What a seed stands for: the array, its load and its faults, drawn before anything runs.

use crate::dice::Dice;
use lapstrake_engine::{DataMove, Step, critical_section, least_raid10_shift};
use lapstrake_geometry::{
    Config, Geometry, Layout, Level, ParityLayout, Raid0Layout, Raid10Layout, Sectors, Version,
};
use lapstrake_metadata::journal::{BLOCK, ring_min};
use std::fmt;

/// One read in so many meets with a bad sector; on arrays with logs or a journal; 0: none.
const SPOILS: [u64; 5] = [0, 0, 30, 200, 1000];
const LOGGED_SPOILS: [u64; 5] = [0, 5, 10, 30, 200];
/// Sectors of each member's partial parity log.
const LOGS: [Option<u16>; 5] = [None, Some(32), Some(64), Some(536), Some(2048)];

/// How an array with a lockless bitmap begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lockless {
    /// As mdadm leaves it.
    FirstUse,
    /// Every chunk is unwritten.
    Unwritten,
}

/// What the geometry is to become while the array is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReshapePlan {
    pub level: Level,
    pub layout: Layout,
    pub chunk: Sectors,
    pub disks: u16,
    /// Spares that there are for it.
    pub more: u16,
    /// Sectors by which data moves.
    pub shift: u64,
    /// It moves towards the members' ends, from the array's end on.
    pub is_backwards: bool,
    /// There is no room for that: less of each member is used.
    pub cuts: bool,
}

impl ReshapePlan {
    /// The array that it makes, of members of which so much is in use.
    pub(crate) fn config(&self, component: Sectors) -> Config {
        Config {
            level: self.level,
            layout: self.layout,
            chunk: self.chunk,
            raid_disks: self.disks,
            component,
            member_sizes: vec![component; self.disks.into()],
        }
    }
}

/// A configuration drawn from a seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The level.
    pub level: Level,
    /// The layout.
    pub layout: Layout,
    /// The chunk; zero for RAID1.
    pub chunk: Sectors,
    /// Number of members.
    pub disks: u16,
    /// Nobody is in the last slot, a RAID4's parity: this is a RAID0 on its way to another geometry.
    pub lacks_parity: bool,
    /// Sectors of each member's data; linear and RAID0 use all of each, the others the least.
    pub sizes: Vec<u64>,
    /// The superblocks' version.
    pub version: Version,
    /// Sectors to a bit of the internal bitmap, if there is one.
    pub bitmap_chunk: Option<u64>,
    /// That bitmap is lockless, and what members hold at first is nobody's data.
    pub(crate) lockless: Option<Lockless>,
    /// Sectors of each member's partial parity log, if there is one.
    pub log: Option<u16>,
    /// Shards that serve it.
    pub shards: usize,
    /// Length of the spans that are dealt to them, in units of whole stripes or chunks.
    pub span_units: u64,
    /// Pages of each shard's stripe cache, in largest operations.
    pub cache_ops: u32,
    /// How long after the last write it is marked clean.
    pub safe_mode_delay_ns: u64,
    /// The longest way of a message between threads.
    pub message_ns_max: u64,
    /// The usual longest time of a member I/O.
    pub io_ns_max: u64,
    /// Requests in flight.
    pub depth: u64,
    /// Sectors of the longest usual request.
    pub len_max: u64,
    /// Requests start below this sector most of the time.
    pub hot: u64,
    /// Requests in each session.
    pub requests: u64,
    /// Starts of the array.
    pub sessions: u32,
    /// One member I/O in so many meets with a fault, while the level survives one; 0: none.
    pub fault_every: u64,
    /// Members fail only while a reshape is under way, which none begins that lacks one.
    pub fails_late: bool,
    /// One session in so many ends with a power cut; 0: none.
    pub cut_every: u64,
    /// The engine is told not to resync.
    pub frozen: bool,
    /// Members that are lacking are added while the array runs.
    pub adds: bool,
    /// There is one disk more, a spare at first, and members are replaced while the array runs.
    pub replaces: bool,
    /// Before one start in so many redundancy is made whole; 0: never.
    pub heal_every: u64,
    /// Sectors of the journal, if there is one.
    pub journal: Option<u64>,
    /// The bitmap that it is made with is in a file.
    pub external: bool,
    /// Members that are read only where nobody else has the data, a bit for each.
    pub write_mostly: u64,
    /// Writes that these may lag behind, if there is a bitmap.
    pub write_behind: u32,
    /// Pages that a shard has for that.
    pub behind_pages: u32,
    /// How often the bitmap is changed in a session, at most.
    pub rebitmaps: u64,
    /// One read of a member in so many meets with a sector that cannot be read; 0: none.
    pub spoil_every: u64,
    /// How often the operator has a check or repair begun, held or ended in a session, at most.
    pub sync_runs: u64,
    /// Times that spans change hands in a session, at most.
    pub redeals: u64,
    /// Times that members lose power in a session, at most.
    pub outages: u64,
    /// Each member keeps of its cache what it will when the power is cut, or keeps its power.
    pub uneven_cuts: bool,
    /// One write of the bitmap's file in so many fails, which ends the bitmap; 0: none.
    pub file_fault_every: u64,
    /// What is used of each member at first, if the array is to grow.
    pub grows_from: Option<u64>,
    /// What its geometry is to become; there are spares for that.
    pub(crate) reshape: Option<ReshapePlan>,
    /// The array is to mend itself and to prove it by a check that counts zero.
    pub converges: bool,
}

impl Plan {
    /// What the array uses of each member at first.
    pub(crate) fn component(&self) -> u64 {
        let least = self.sizes.iter().copied().min().unwrap_or_default();
        let room = self.reshape.filter(|to| to.is_backwards && !to.cuts).map_or(0, |to| to.shift);
        self.grows_from.unwrap_or(least - room)
    }

    /// What it uses of each member once it is reshaped.
    pub(crate) fn component_reshaped(&self) -> Sectors {
        let room = self.reshape.filter(|to| to.cuts).map_or(0, |to| to.shift);
        Sectors(self.component() - room)
    }

    /// How much of it clients ever use: what a reshape takes away is taken from them before.
    pub(crate) fn clients_end(&self) -> u64 {
        let after = self.reshape.map(|to| Geometry::new(&to.config(self.component_reshaped())));
        after.and_then(Result::ok).map_or(u64::MAX, |after| after.array_sectors().0)
    }

    /// How many disks, from the first one on, have slots from the beginning to the end.
    pub(crate) fn disks_for_good(&self) -> u16 {
        let disks = self.disks_at_first();
        match self.reshape {
            // The second copy, which is the second disk, is let go.
            Some(to) if self.level == Level::Raid10 && to.level != Level::Raid10 => 1,
            to => to.map_or(disks, |to| to.disks.min(disks)),
        }
    }

    /// Disks that have slots at the beginning.
    pub(crate) fn disks_at_first(&self) -> u16 {
        self.disks - u16::from(self.lacks_parity)
    }

    /// Whether one shard is given all writes: with partial parity logs, a journal, or writes that are left behind.
    pub(crate) fn has_one_writer(&self) -> bool {
        self.log.is_some() || self.journal.is_some() || self.behind_pages > 0
    }

    /// The plan of a seed.
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        let mut plan = Self::draw_parts(dice);
        let level = plan.level;
        let members = (1 << plan.disks) - 1;
        if plan.behind_pages > 0 && plan.write_mostly & members != 0 {
            plan.shards = 1;
        }
        plan.replaces = level.has_redundancy() && plan.version != Version::V090 && dice.one_in(3);
        if plan.replaces {
            plan.frozen = dice.one_in(8);
            let least = plan.sizes.iter().min().expect("two members or more");
            plan.sizes.push(least + plan.chunk.0.max(2) * dice.below(3));
        }
        if level.has_redundancy() {
            // What a log names when the power goes is little: it is to hold bad sectors now and then.
            let rare = if plan.log.is_some() { &LOGGED_SPOILS } else { &SPOILS };
            plan.spoil_every = dice.pick(rare);
        }
        if level.has_redundancy() && dice.one_in(12) {
            plan.be_tall(dice);
        }
        let has_journal = level.is_parity() && plan.log.is_none() && dice.one_in(3);
        let mut plan = if has_journal { plan.with_journal(dice) } else { plan };
        if plan.shards > 1 && plan.log.is_none() {
            plan.redeals = dice.pick(&[0, 2, 6]);
        }
        plan.be_uneven(&mut dice.beside());
        plan
    }

    /// The parts as they are drawn, before [`Plan::draw`] makes them go together.
    fn draw_parts(dice: &mut Dice) -> Self {
        use Level::{Linear, Raid0, Raid1, Raid4, Raid5, Raid6, Raid10};
        let level = dice.pick(&[
            Linear, Raid0, Raid1, Raid1, Raid1, Raid4, Raid5, Raid5, Raid5, Raid6, Raid6, Raid6,
            Raid10, Raid10,
        ]);
        let (layout, chunk, sizes) = draw_members(level, dice);
        // 0.90 cannot record a RAID0's layout.
        let versions = [Version::V1_0, Version::V1_1, Version::V1_2, Version::V1_2, Version::V090];
        let versions = &versions[..if level == Raid0 { 4 } else { 5 }];
        let bitmap = level.has_redundancy() && dice.one_in(2);
        let version = dice.pick(versions);
        let logs = level == Raid5 && version != Version::V090 && !bitmap;
        Self {
            level,
            layout,
            chunk: Sectors(chunk),
            disks: sizes.len() as u16,
            sizes,
            version,
            bitmap_chunk: bitmap.then(|| dice.pick(&[8, 16, 64])),
            lockless: None,
            log: if logs { dice.pick(&LOGS) } else { None },
            shards: dice.pick(&[1, 1, 2, 3]),
            span_units: dice.between(1..=4),
            cache_ops: dice.pick(&[1, 2, 8]),
            safe_mode_delay_ns: dice.pick(&[0, 1_000_000, 20_000_000, 200_000_000]),
            message_ns_max: dice.pick(&[0, 10_000, 1_000_000]),
            io_ns_max: dice.pick(&[100_000, 1_000_000, 10_000_000]),
            depth: dice.pick(&[1, 2, 4, 8, 24]),
            len_max: dice.pick(&[1, 8, 16, 48]),
            hot: dice.pick(&[8, 64, 1 << 20]),
            requests: dice.pick(&[10, 40, 100]),
            sessions: dice.between(1..=6) as u32,
            fault_every: dice.pick(&[0, 50, 200, 1000]),
            cut_every: dice.pick(&[0, 1, 1, 2]),
            frozen: dice.one_in(2),
            adds: dice.one_in(2),
            heal_every: dice.pick(&[0, 1, 1, 2]),
            external: dice.one_in(4),
            write_mostly: match level {
                Raid1 => dice.next() & dice.pick(&[0, u64::MAX]),
                _ => 0,
            },
            write_behind: dice.pick(&[0, 1, 4, 256]),
            behind_pages: if level == Raid1 { dice.pick(&[0, 1, 16, 64]) } else { 0 },
            rebitmaps: if level.has_redundancy() { dice.pick(&[0, 0, 2, 6]) } else { 0 },
            replaces: false,
            journal: None,
            spoil_every: 0,
            sync_runs: if level.has_redundancy() { dice.pick(&[0, 0, 2, 6]) } else { 0 },
            redeals: 0,
            outages: 0,
            uneven_cuts: false,
            file_fault_every: 0,
            grows_from: None,
            reshape: None,
            fails_late: false,
            lacks_parity: false,
            converges: false,
        }
    }

    /// Not all members lose power when one does. Seeds without that are what they were before it was drawn.
    fn be_uneven(&mut self, dice: &mut Dice) {
        self.outages = dice.pick(&[0, 0, 1, 3]);
        self.uneven_cuts = dice.one_in(2);
        self.file_fault_every = dice.pick(&[0, 0, 10, 100]);
        self.be_lockless(dice);
        self.be_small(dice);
        self.be_reshaped(dice);
        self.be_taken_over(dice);
        self.be_raid0_on_its_way(dice);
        self.be_without_room(dice);
        self.be_freed_of_copies(dice);
    }

    /// A RAID10 gets parity in place of its second copies, whose members are spares for that. Drawn behind all else, as what
    /// comes before.
    fn be_freed_of_copies(&mut self, dice: &mut Dice) {
        use Level::{Raid4, Raid5, Raid6};
        let is_out = self.log.is_some() || self.lockless.is_some() || self.reshape.is_some();
        if self.level != Level::Raid10 || is_out || !dice.one_in(2) {
            return;
        }
        let data_disks = dice.between(1..=3) as u16;
        self.layout = Layout::Raid10(Raid10Layout::near(2));
        self.disks = data_disks * 2;
        let level = if data_disks > 1 { dice.pick(&[Raid4, Raid5, Raid6, Raid6]) } else { Raid5 };
        let parities = if level == Raid6 { 2 } else { 1 };
        let further = if level == Raid4 { 0 } else { dice.below(2) as u16 };
        let disks = data_disks + parities + further;
        let more = disks.saturating_sub(self.disks);
        let chunk = if level == Raid4 { self.chunk } else { self.draw_chunk(dice) };
        let layout = draw_layout(level, disks.into(), dice);
        let larger = chunk.max(self.chunk).0;
        let shift = larger * dice.between(1..=3);
        let least = self.sizes.iter().copied().min().unwrap_or_default().next_multiple_of(larger);
        let sizes = (0..self.disks + more).map(|_| least + larger * dice.below(3));
        self.sizes = sizes.collect();
        let (is_backwards, cuts) = (false, false);
        self.reshape =
            Some(ReshapePlan { level, layout, chunk, disks, more, shift, is_backwards, cuts });
        (self.shards, self.version) = (self.shards.max(2), Version::V1_2);
        (self.replaces, self.grows_from) = (false, None);
        (self.adds, self.heal_every, self.fault_every) = (false, 0, 0);
        (self.external, self.spoil_every, self.outages) = (false, 0, 0);
        self.frozen &= dice.one_in(4);
    }

    /// The array gets more members, and has no room to move its data: its first rows are moved over themselves. Drawn behind all
    /// else, as what comes before.
    fn be_without_room(&mut self, dice: &mut Dice) {
        let is_logged = self.journal.is_some() || self.log.is_some() || self.lockless.is_some();
        let is_out = !self.level.is_parity() || is_logged || self.replaces || self.lacks_parity;
        if is_out || self.reshape.is_some() || self.grows_from.is_some() {
            return;
        }
        let level = if self.level == Level::Raid6 || self.disks > 2 && dice.one_in(4) {
            Level::Raid6
        } else {
            Level::Raid5
        };
        let more =
            dice.between(1..=2) as u16 + u16::from(level != self.level && level == Level::Raid6);
        let disks = self.disks + more;
        let layout = draw_layout(level, disks.into(), dice);
        let (chunk, shift, is_backwards, cuts) = (self.chunk, 0, false, false);
        let to = ReshapePlan { level, layout, chunk, disks, more, shift, is_backwards, cuts };
        let (now, goal) = (
            Config {
                level: self.level,
                layout: self.layout,
                raid_disks: self.disks,
                ..to.config(Sectors(self.component()))
            },
            to.config(Sectors(self.component())),
        );
        let [Ok(before), Ok(after)] = [&now, &goal].map(Geometry::new) else { return };
        let in_place = DataMove::Moves { shift: 0, is_backwards: false };
        let critical = critical_section(&before, &after, in_place);
        let Some(critical) = critical.filter(|_| Step::first(&before, &goal).config == goal) else {
            return;
        };
        self.version = dice.pick(&[Version::V090, Version::V1_0, Version::V1_1, Version::V1_2]);
        self.get(to, dice);
        // Behind the rows that it is moved to there is room for it.
        let least = critical.0 * 2 + 64;
        self.sizes.iter_mut().for_each(|size| *size = (*size).max(least));
    }

    /// A RAID0 gets more or fewer members or another chunk: it has just become the RAID4 as which its data is moved. Drawn
    /// behind all else, as what comes before.
    fn be_raid0_on_its_way(&mut self, dice: &mut Dice) {
        if self.level != Level::Raid0 {
            return;
        }
        // The first draw hangs on the level's.
        let chunk = self.draw_chunk(dice);
        if !dice.one_in(2) {
            return;
        }
        let is_fewer = self.disks > 2 && dice.one_in(4);
        let least = u64::from(chunk == self.chunk);
        let more = if is_fewer { 0 } else { dice.between(least..=2) as u16 };
        let disks = if is_fewer { self.disks - 1 } else { self.disks + more };
        let larger = chunk.max(self.chunk).0;
        let shift = larger * dice.between(1..=3);
        let is_backwards = is_fewer || more == 0 && dice.one_in(2);
        let size = self.sizes.iter().copied().max().unwrap_or_default().next_multiple_of(larger);
        let room = if is_backwards { shift } else { 0 };
        self.sizes = vec![size + room; (self.disks + more).into()];
        let (level, layout, cuts) = (Level::Raid0, Layout::Raid0(Raid0Layout::Unset), false);
        self.reshape =
            Some(ReshapePlan { level, layout, chunk, disks, more, shift, is_backwards, cuts });
        (self.level, self.layout) = (Level::Raid4, Layout::None);
        (self.disks, self.lacks_parity) = (self.disks + 1, true);
        (self.shards, self.version) = (self.shards.max(2), Version::V1_2);
        (self.adds, self.heal_every, self.fault_every) = (false, 0, 0);
        (self.external, self.spoil_every, self.outages) = (false, 0, 0);
        self.frozen &= dice.one_in(4);
    }

    /// The array gets a level of another kind, which lays data out alike, while it is used. Drawn behind all else, as what comes
    /// before.
    fn be_taken_over(&mut self, dice: &mut Dice) {
        use Level::{Raid0, Raid1, Raid4, Raid5};
        let is_logged = self.journal.is_some() || self.log.is_some() || self.lockless.is_some();
        if is_logged || self.reshape.is_some() || !dice.one_in(3) {
            return;
        }
        let symmetric = Layout::Parity(ParityLayout::LeftSymmetric);
        let more = if self.level == Raid1 { dice.below(3) as u16 } else { 0 };
        let (level, layout, disks) = match (self.level, self.disks) {
            (Raid1, 2) => (Raid5, symmetric, 2 + more),
            (Raid5, 2) => (Raid1, Layout::None, 2),
            (Raid4 | Raid5, disks) => (Raid0, Layout::Raid0(Raid0Layout::Unset), disks - 1),
            _ => return,
        };
        let chunk = if self.level == Raid1 { Sectors(dice.pick(&[8, 16, 32])) } else { self.chunk };
        let (shift, is_backwards, cuts) = (chunk.0 * dice.between(1..=3), false, false);
        self.sizes.iter_mut().for_each(|size| *size = size.next_multiple_of(chunk.0));
        let least = self.sizes.iter().copied().min().unwrap_or_default();
        self.sizes.extend((0..more).map(|_| least + chunk.0 * dice.below(3)));
        self.reshape =
            Some(ReshapePlan { level, layout, chunk, disks, more, shift, is_backwards, cuts });
        (self.shards, self.version) = (self.shards.max(2), Version::V1_2);
        (self.replaces, self.grows_from) = (false, None);
        (self.external, self.spoil_every, self.outages) = (false, 0, 0);
        (self.write_mostly, self.behind_pages) = (0, 0);
        self.frozen &= dice.one_in(4);
        if self.cut_every > 0 || !level.has_redundancy() {
            self.fault_every = 0;
        }
    }

    /// The array gets another geometry while it is used. Drawn behind all else, as what comes before.
    fn be_reshaped(&mut self, dice: &mut Dice) {
        let is_logged = self.journal.is_some() || self.log.is_some() || self.lockless.is_some();
        let has_room = matches!(self.version, Version::V1_1 | Version::V1_2);
        let is_raid10 = self.level == Level::Raid10;
        let can_be = self.level.is_parity() || is_raid10;
        let is_out = !can_be || is_logged || self.replaces || !has_room;
        // A RAID10 without far copies is rarely drawn.
        let often = if is_raid10 { 2 } else { 1 };
        if is_out || self.grows_from.is_some() || dice.below(3) >= often {
            return;
        }
        let to = if is_raid10 { self.draw_raid10(dice) } else { Some(self.draw_parity(dice)) };
        let Some(to) = to else { return };
        self.get(to, dice);
    }

    /// It is to get another geometry, for which there are spares.
    fn get(&mut self, to: ReshapePlan, dice: &mut Dice) {
        self.reshape = Some(to);
        let least = self.sizes.iter().copied().min().unwrap_or_default();
        self.sizes.extend((0..to.more).map(|_| least + self.chunk.0 * dice.below(3)));
        if to.is_backwards && !to.cuts {
            self.sizes.iter_mut().for_each(|size| *size += to.shift);
        }
        self.shards = self.shards.max(2);
        (self.external, self.spoil_every, self.outages) = (false, 0, 0);
        self.frozen &= dice.one_in(4);
        if dice.one_in(4) {
            // A member fails in the midst of it, and then the power.
            self.fails_late = true;
            (self.cut_every, self.fault_every, self.heal_every) = (1, dice.pick(&[50, 200]), 0);
        }
    }

    /// What a RAID4, 5 or 6 becomes.
    fn draw_parity(&self, dice: &mut Dice) -> ReshapePlan {
        use Level::{Raid4, Raid5, Raid6};
        let level = match self.level {
            Raid4 => dice.pick(&[Raid4, Raid5]),
            Raid5 => dice.pick(&[Raid5, Raid5, Raid6, Raid4]),
            Raid6 => dice.pick(&[Raid6, Raid6, Raid5]),
            level => level,
        };
        let parity_goes = u16::from(self.level == Raid6 && level != Raid6);
        let more = dice.between(u64::from(level == Raid6 && self.level != Raid6)..=2) as u16;
        let fewest = if level == Raid6 { 4 } else { 2 };
        let is_fewer = level == self.level && self.disks > fewest && dice.one_in(4);
        let (more, disks) =
            if is_fewer { (0, self.disks - 1) } else { (more, self.disks + more - parity_goes) };
        let chunk = self.draw_chunk(dice);
        let layout = draw_layout(level, disks.into(), dice);
        let shift = self.chunk.0.max(chunk.0) * dice.between(1..=3);
        let is_backwards = is_fewer || more == 0 && dice.one_in(2);
        let least = self.sizes.iter().copied().min().unwrap_or_default();
        let cuts = is_fewer && least > 2 * shift && dice.one_in(2);
        ReshapePlan { level, layout, chunk, disks, more, shift, is_backwards, cuts }
    }

    /// What a RAID10 becomes; none if that would have no room for its data, or its copies are not moved.
    fn draw_raid10(&self, dice: &mut Dice) -> Option<ReshapePlan> {
        let Layout::Raid10(layout) = self.layout else { return None };
        let copies = layout.copies();
        let is_fewer = self.disks > copies.max(2) as u16 && dice.one_in(4);
        let more = if is_fewer { 0 } else { dice.below(3) as u16 };
        let disks = if is_fewer { self.disks - 1 } else { self.disks + more };
        let (level, chunk) = (self.level, self.draw_chunk(dice));
        let word = dice.pick(&[0x100 + copies, 0x10001 + (copies << 8)]);
        let layout = Layout::from_md(level, word).ok()?;
        let is_backwards = is_fewer || more == 0 && dice.one_in(2);
        let times = dice.between(1..=3);
        let component = Sectors(self.component());
        let geometry = |layout, chunk, raid_disks| {
            let member_sizes = Vec::new();
            let config = Config { level, layout, chunk, raid_disks, component, member_sizes };
            Geometry::new(&config).ok()
        };
        let before = geometry(self.layout, self.chunk, self.disks)?;
        let after = geometry(layout, chunk, disks)?;
        if after == before || !is_fewer && after.array_sectors() < before.array_sectors() {
            return None;
        }
        let (Geometry::Raid10(before), Geometry::Raid10(after)) = (before, after) else {
            return None;
        };
        let shift = least_raid10_shift(&before, &after, is_backwards)?.0 * times;
        let cuts = false;
        Some(ReshapePlan { level, layout, chunk, disks, more, shift, is_backwards, cuts })
    }

    fn draw_chunk(&self, dice: &mut Dice) -> Sectors {
        let is_tall = self.chunk.0 > 32;
        if is_tall { self.chunk } else { Sectors(dice.pick(&[8, 16, 32])) }
    }

    /// The array grows while it is used. Drawn behind all else, as what comes before.
    fn be_small(&mut self, dice: &mut Dice) {
        let is_logged = self.journal.is_some() || self.log.is_some() || self.lockless.is_some();
        let is_far = matches!(self.layout, Layout::Raid10(it) if it.far > 1 && !it.offset);
        let is_out = !self.level.has_redundancy() || is_logged || is_far || self.external;
        if is_out || !dice.one_in(2) {
            return;
        }
        let least = self.sizes.iter().copied().min().unwrap_or_default();
        let unit = self.chunk.0.max(2);
        let more = unit * dice.between(1..=1 + 96 / unit);
        self.sizes.iter_mut().for_each(|size| *size += more);
        self.grows_from = Some(least);
    }

    /// A lockless bitmap in place of what else keeps redundancy right. Drawn last of all: seeds without are what they
    /// were before it was drawn.
    fn be_lockless(&mut self, dice: &mut Dice) {
        let is_logged = self.journal.is_some() || self.log.is_some();
        if !self.level.has_redundancy() || is_logged || !dice.one_in(5) {
            return;
        }
        let chunk = dice.pick(&[8, 16, 64]);
        self.lockless = Some(match dice.one_in(4) {
            true => Lockless::FirstUse,
            false => Lockless::Unwritten,
        });
        (self.version, self.external) = (Version::V1_2, false);
        self.bitmap_chunk = Some(self.bitmap_chunk.unwrap_or(chunk));
    }

    /// Members of some windows of recovery: few other plans see a checkpoint.
    fn be_tall(&mut self, dice: &mut Dice) {
        let chunk = dice.pick(&[128, 256]);
        let unit = if self.level == Level::Raid1 { 2 } else { chunk };
        if self.level != Level::Raid1 {
            self.chunk = Sectors(chunk);
        }
        let size = unit * dice.between(4200 / unit..=9000 / unit);
        self.sizes.fill(size);
        self.bitmap_chunk = self.bitmap_chunk.map(|_| 64);
        (self.hot, self.len_max, self.frozen) = (1 << 20, dice.pick(&[48, 512]), false);
        self.requests = self.requests.min(40);
        (self.adds, self.heal_every) = (true, dice.pick(&[0, 2]));
    }

    /// The last session: nothing goes wrong any more.
    pub(crate) fn at_the_end(&self) -> Self {
        let adds = true;
        let (requests, fault_every, spoil_every, file_fault_every) = (0, 0, 0, 0);
        let (rebitmaps, sync_runs, redeals, outages) = (0, 0, 0, 0);
        let (frozen, replaces, converges) = (false, false, self.level.has_redundancy());
        Self {
            adds,
            requests,
            fault_every,
            spoil_every,
            rebitmaps,
            sync_runs,
            redeals,
            outages,
            file_fault_every,
            frozen,
            replaces,
            converges,
            ..self.clone()
        }
    }

    /// A journal is in place of a bitmap, belongs to one shard, and has its role in new superblocks only.
    fn with_journal(self, dice: &mut Dice) -> Self {
        let spoil_every = dice.pick(&LOGGED_SPOILS);
        let least = ring_min(self.disks).0;
        let versions = [Version::V1_1, Version::V1_2];
        Self {
            journal: Some(dice.pick(&[least, least + 8, 2 * least, 10 * least])),
            version: dice.pick(&versions),
            bitmap_chunk: None,
            shards: 1,
            spoil_every,
            ..self
        }
    }

    /// What requests start at and are multiples of.
    pub(crate) fn block(&self) -> u64 {
        if self.journal.is_some() { BLOCK.0 } else { 1 }
    }
}

/// Layout, chunk and the sizes of members.
fn draw_members(level: Level, dice: &mut Dice) -> (Layout, u64, Vec<u64>) {
    let disks = u64::from(level.min_members()).max(2) + dice.below(4);
    let chunk = if level == Level::Raid1 { 0 } else { dice.pick(&[8, 8, 16, 32]) };
    let layout = draw_layout(level, disks, dice);
    let size = match level {
        Level::Raid1 => 2 * dice.between(64..=160),
        _ => chunk * dice.between(128 / chunk..=256 / chunk),
    };
    // The least member decides what the array uses; the others may have more.
    let mut sizes: Vec<u64> = (0..disks).map(|_| size + chunk.max(2) * dice.below(3)).collect();
    sizes[dice.below(disks) as usize] = size;
    (layout, chunk, sizes)
}

fn draw_layout(level: Level, disks: u64, dice: &mut Dice) -> Layout {
    let words: Vec<u32> = match level {
        Level::Raid0 => vec![1, 2],
        Level::Raid5 | Level::Raid6 => vec![0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20],
        Level::Raid10 => {
            let copies = 2 + dice.below(2).min(disks - 2) as u32;
            vec![0x100 + copies, 1 + (copies << 8), 0x10001 + (copies << 8)]
        }
        _ => vec![0],
    };
    let known: Vec<Layout> =
        words.iter().filter_map(|&word| Layout::from_md(level, word).ok()).collect();
    dice.pick(&known)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {} of {} members, chunk {}, superblock {}, bitmap {:?} {:?}, log {:?}, sizes {:?}; {} shards, \
             span {}, cache {}, safe mode {} us, messages {} us, I/O {} us; depth {}, len {}, \
             hot {}, {} requests; {} sessions, faults 1/{} late {}, cuts 1/{}, heals 1/{}, frozen {}, adds {}, \
             replaces {}, journal {:?}; external {}, bitmap changes {}, write-mostly {:#b}, \
             behind {} in {} pages; spoils 1/{}, sync runs {}, \
             redeals {}, outages {}, uneven cuts {}, file faults 1/{}, grows from {:?}, reshape {:?}",
            self.level,
            self.layout.name(),
            self.disks,
            self.chunk.0,
            self.version.as_str(),
            self.bitmap_chunk,
            self.lockless,
            self.log,
            self.sizes,
            self.shards,
            self.span_units,
            self.cache_ops,
            self.safe_mode_delay_ns / 1000,
            self.message_ns_max / 1000,
            self.io_ns_max / 1000,
            self.depth,
            self.len_max,
            self.hot,
            self.requests,
            self.sessions,
            self.fault_every,
            self.fails_late,
            self.cut_every,
            self.heal_every,
            self.frozen,
            self.adds,
            self.replaces,
            self.journal,
            self.external,
            self.rebitmaps,
            self.write_mostly & ((1 << self.disks) - 1),
            self.write_behind,
            self.behind_pages,
            self.spoil_every,
            self.sync_runs,
            self.redeals,
            self.outages,
            self.uneven_cuts,
            self.file_fault_every,
            self.grows_from,
            self.reshape,
        )
    }
}
