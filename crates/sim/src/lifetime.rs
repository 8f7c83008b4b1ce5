//! A seed's array through its sessions: made, started, cut off, started again.
//!
//! Held at every start, on the members' raw images: what assembly decides is what faults allow
//! for, and redundancy is whole but where a cut met writes that were not durable, which the
//! superblocks or the bitmap know of.

use crate::{
    Options, Outcome,
    dice::Dice,
    disk::{Cut, Disk, SECTOR},
    heal::{self, HealTarget},
    oracle::Oracle,
    plan::{Lockless, Plan},
    raw,
    session::{End, FileUse, Report, Session, Setup, new_bitmap, new_file},
};
use lapstrake_array::start::{After, CarriedOut, StartPlan};
use lapstrake_engine::BitmapConfig;
use lapstrake_geometry::{Geometry, Level, Sector, Sectors, Slot, Version, size::PPL_SPACE};
use lapstrake_metadata::{
    Superblock,
    assemble::Assembly,
    badblocks::BadBlocks,
    bitmap::{self, Bits, PAGE},
    create::{BitmapChoice, CreateRequest, NewMember, Policy, plan},
};
pub(crate) use start::DisksAtRest;
use std::{collections::BTreeSet, ops::Range};
use wear::Holes;

/// Where the data begins on members with the superblock before it.
const DATA_OFFSET: Sectors = Sectors(64);
/// So it does where there is a partial parity log.
const LOGGED_DATA_OFFSET: Sectors = Sectors(2112);

/// See the module.
pub(crate) struct Lifetime<'a> {
    options: &'a Options,
    plan: &'a Plan,
    dice: Dice,
    disks: Vec<Disk>,
    /// The external bitmap's.
    file: Disk,
    /// The operator names it at the next start.
    names_file: bool,
    geometry: Geometry,
    oracle: Oracle,
    /// Rows that a cut left in doubt since redundancy was last whole.
    doubt: Vec<bool>,
    /// Array sectors whose write a cut left in doubt since then.
    unsure: Vec<bool>,
    /// Disks whose failure is on record: they must not serve.
    stale: BTreeSet<usize>,
    /// Disks that may be missing from the array: faults hit them, or they were away.
    suspect: BTreeSet<usize>,
    /// A fault has hit a member, or one was away.
    has_lost: bool,
    /// A dirty degraded array was forced.
    was_forced: bool,
    /// Writes may have gone without a log since redundancy was last whole.
    was_unlogged: bool,
    stamp: u32,
    outcome: Outcome,
}

/// The array that a reshape changes, where the two geometries meet, and whether the new one holds from there on.
type Before = (StartPlan<usize>, (Sector, bool));

/// An array that may be started.
struct Started {
    /// During a reshape: of the array that it makes.
    plan: StartPlan<usize>,
    before: Option<Before>,
    /// By disk, as they are to be when it starts.
    superblocks: Vec<Option<Superblock>>,
    /// By disk.
    logs: Vec<Option<BadBlocks>>,
    holes: Holes,
    /// What slots without a member have in rows in doubt is lost.
    is_by_force: bool,
    /// What was done before it serves.
    done: CarriedOut,
}

impl<'a> Lifetime<'a> {
    pub(crate) fn new(plan: &'a Plan, dice: Dice, options: &'a Options) -> Self {
        let mut dice = dice;
        let (disks, geometry, file) = create(plan, &mut dice);
        let rows = raw::rows(&geometry) as usize;
        let sectors = geometry.array_sectors().0.min(plan.clients_end());
        let oracle = if plan.lockless.is_some() { Oracle::unknown } else { Oracle::new };
        Self {
            options,
            plan,
            dice,
            disks,
            names_file: file.is_some(),
            file: file.unwrap_or_else(|| Disk::new(0)),
            oracle: oracle(sectors),
            unsure: vec![false; geometry.array_sectors().0 as usize],
            geometry,
            doubt: vec![false; rows],
            stale: BTreeSet::new(),
            suspect: (usize::from(plan.disks_for_good())..plan.sizes.len()).collect(),
            has_lost: false,
            was_forced: false,
            was_unlogged: false,
            stamp: 0,
            outcome: Outcome::default(),
        }
    }

    pub(crate) fn run(mut self) -> Result<Outcome, String> {
        let mut was_whole = false;
        for session in 0..self.plan.sessions {
            was_whole =
                self.live(was_whole).map_err(|error| format!("session {session}: {error}"))?;
        }
        let plan = self.plan.at_the_end();
        let mut last = Lifetime { plan: &plan, ..self };
        last.end().map_err(|error| format!("the last session: {error}"))?;
        Ok(last.outcome)
    }

    /// The array mends itself, and its own check counts zero.
    fn end(&mut self) -> Result<(), String> {
        self.disks.iter_mut().for_each(Disk::renew);
        let mut started = self.start_for_good()?;
        if !self.has_redundancy() {
            return Ok(());
        }
        // If replacements have all that is there while a slot is empty, who was replaced fills it in one more session.
        let sessions = if started.plan.assembly.replacements.is_empty() { 1 } else { 2 };
        for _ in 0..sessions {
            let mut session = self.session(&started);
            let end = session.run(None)?;
            let report = session.report(end);
            self.after(&report, &started)?;
            self.was_forced = false;
            self.made_whole();
            started = self.start_for_good()?;
        }
        let is_whole = started.plan.assembly.degraded == 0 || self.plan.lacks_parity;
        if !is_whole || started.plan.assembly.resync_from.is_some() {
            return Err("redundancy is not whole after all was mended".into());
        }
        if let Some(to) = self.plan.reshape.filter(|_| started.before.is_some()) {
            return Err(format!("the reshape to {to:?} has not ended after all was mended"));
        }
        if started.plan.bitmap.is_some_and(|i| i.bits.is_lockless() && i.bits.count_set() > 0) {
            return Err("chunks need a resync after all was mended".into());
        }
        Ok(())
    }

    fn start_for_good(&mut self) -> Result<Started, String> {
        let mut offered = vec![true; self.disks.len()];
        let started = self.start(&offered)?;
        self.bring_up(started, &mut offered)
    }

    /// Nothing is in doubt any more.
    fn made_whole(&mut self) {
        self.doubt.fill(false);
        self.unsure.fill(false);
        self.was_unlogged = false;
    }

    /// One session; gives whether its redundancy was whole when it began. `may_leave`: so it was in
    /// the one before.
    fn live(&mut self, may_leave: bool) -> Result<bool, String> {
        let started = self.begin(may_leave)?;
        let is_cut = self.plan.cut_every > 0 && self.dice.one_in(self.plan.cut_every);
        let cut_after = is_cut.then(|| {
            let bound = self.dice.pick(&[50, 500, 3000]);
            self.dice.between(1..=bound)
        });
        let was_whole = started.plan.assembly.resync_from.is_none() && !self.was_forced;
        let mut session = self.session(&started);
        let end = session.run(cut_after)?;
        let report = session.report(end);
        self.after(&report, &started)?;
        Ok(was_whole)
    }

    fn session(&mut self, started: &Started) -> Session<'_> {
        let setup = self.setup(started);
        Session::new(
            self.plan,
            setup,
            &mut self.dice,
            &mut self.disks,
            &mut self.file,
            &mut self.oracle,
            self.stamp,
            self.options.trace,
        )
    }

    /// Takes down how a session ended.
    fn after(&mut self, report: &Report, started: &Started) -> Result<(), String> {
        if self.plan.reshape.is_some() && report.geometry != self.geometry {
            self.take_geometry(&report.geometry);
        } else {
            self.take_growth(&report.geometry);
        }
        self.outcome.member_ios += report.ios;
        self.outcome.sessions += 1;
        self.outcome.cuts += u64::from(report.end == End::Cut);
        self.stamp = report.stamp;
        self.suspect.extend(&report.hit);
        self.has_lost |= !report.hit.is_empty();
        if report.was_active {
            let Assembly { members, journal, .. } = &started.plan.assembly;
            let serves = |disk: &usize| members.contains(&Some(*disk)) || *journal == Some(*disk);
            self.stale.extend((0..self.disks.len()).filter(|disk| !serves(disk)));
        }
        self.stale.retain(|disk| !report.recovered.contains(disk));
        self.stale.extend(&report.recorded);
        self.was_unlogged |= started.plan.assembly.resync_from.is_some();
        if report.lost_lockless {
            // Whatever the bitmap told of is as what a cut leaves: superblocks call for a resync of all.
            for row in 0..self.doubt.len() {
                self.doubt[row] |= self.is_never_written(row as u64);
            }
        }
        if report.end == End::Stopped && report.is_whole {
            self.made_whole();
        }
        let doubt = self.oracle.cut();
        self.unsure.iter_mut().zip(&doubt).for_each(|(unsure, &doubt)| *unsure |= doubt);
        for sector in (0u64..).zip(&doubt).filter_map(|(sector, doubt)| doubt.then_some(sector)) {
            self.doubt[raw::row_of(&self.geometry, sector) as usize] = true;
        }
        for disk in &mut self.disks {
            // After a clean stop this must lose nothing.
            disk.cut(Cut::Nothing, &mut self.dice);
        }
        self.file.cut(Cut::Nothing, &mut self.dice);
        self.names_file = match report.file {
            // Who knows of none does not look for one, unless the old one was only forgotten.
            FileUse::None => {
                self.names_file && started.plan.bitmap.is_none() && self.dice.one_in(2)
            }
            FileUse::InUse => !self.dice.one_in(8),
            FileUse::Unclear => self.dice.one_in(2),
        };
        Ok(())
    }

    /// The array has another geometry: where redundancy is right is told by superblocks alone.
    fn take_geometry(&mut self, geometry: &Geometry) {
        self.take_growth(geometry);
        self.doubt.fill(true);
    }

    /// The array has grown: what comes to it is nobody's, and redundancy there is right only once it was resynced.
    fn take_growth(&mut self, geometry: &Geometry) {
        self.doubt.resize(raw::rows(geometry) as usize, true);
        self.unsure.resize(geometry.array_sectors().0 as usize, false);
        self.oracle.grow(geometry.array_sectors().0.min(self.plan.clients_end()));
        self.geometry = geometry.clone();
    }

    /// The start of a session: perhaps without a member, perhaps made whole before.
    fn begin(&mut self, may_leave: bool) -> Result<Started, String> {
        let mut offered = vec![true; self.disks.len()];
        let mut started = self.start(&offered)?;
        // With a journal none may be missed, whenever the power was cut.
        let (every, most) = if self.plan.journal.is_some() { (2, 2) } else { (8, 1) };
        let may_leave = may_leave && self.plan.fault_every > 0 && self.dice.one_in(every);
        for _ in 0..if may_leave { most } else { 0 } {
            let Some(away) = self.draw_away(&started) else { break };
            self.say(|| format!("disk {away} is away"));
            offered[away] = false;
            self.suspect.insert(away);
            self.has_lost = true;
            started = self.start(&offered)?;
        }
        let mut started = self.bring_up(started, &mut offered)?;
        self.let_come_back(&started);
        let heals = self.plan.heal_every > 0 && self.dice.one_in(self.plan.heal_every);
        if heals
            && self.knows_geometry(&started)
            && offered.iter().all(|&offered| offered)
            && self.has_redundancy()
        {
            self.heal(&started)?;
            started = self.start(&offered)?;
            // Who came back has an old log.
            started = self.bring_up(started, &mut offered)?;
        }
        self.say(|| {
            let Assembly { members, resync_from, .. } = &started.plan.assembly;
            let front = started.before.as_ref().map(|(_, front)| front.0);
            format!(
                "started with {members:?}, resync from {resync_from:?}, reshaped up to {front:?}"
            )
        });
        Ok(started)
    }

    /// Whether no disk was away when the array got another geometry.
    fn knows_geometry(&self, started: &Started) -> bool {
        let shape = |sb: &Superblock| {
            (sb.level(), sb.layout(), sb.chunk(), sb.raid_disks(), sb.data_offset())
        };
        let mut all = started.superblocks.iter().flatten().map(shape);
        let first = all.next();
        let is_grown = self.plan.reshape.is_none();
        is_grown || started.before.is_none() && all.all(|one| Some(one) == first)
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.options.trace {
            eprintln!("{}", what());
        }
    }

    fn has_redundancy(&self) -> bool {
        self.geometry.level().has_redundancy()
    }

    /// A disk that the array can do without at the next start.
    fn draw_away(&mut self, started: &Started) -> Option<usize> {
        // One that alone knows of another size, which no client has seen yet, is there.
        let mut sizes = started.superblocks.iter().flatten().map(Superblock::component);
        let first = sizes.next();
        if sizes.any(|size| Some(size) != first) {
            return None;
        }
        // During a reshape, of the array that has more slots; the other has the same members in those that it has.
        let members = &started.plan.assembly.members;
        let before = started.before.as_ref().map(|(before, _)| &before.assembly.members);
        let members = before.filter(|old| old.len() > members.len()).unwrap_or(members);
        let away = self.dice.below(members.len() as u64) as usize;
        let is_dirty_mirror =
            !self.geometry.level().is_parity() && started.plan.assembly.resync_from.is_some();
        // So are a member and its replacement.
        let is_dirty_mirror = is_dirty_mirror || !started.plan.assembly.replacements.is_empty();
        // One of the others may be the freshest then, and know of a failure that this one does not.
        let all_know =
            |slot| started.superblocks.iter().flatten().all(|sb| sb.dev_of_slot(slot).is_some());
        let serves = |slot: Slot| members[slot.index()].is_some() && all_know(slot);
        let can_read_all =
            |slot: Slot| members[slot.index()].is_none_or(|disk| started.holes.is_whole(disk));
        let serves = |slot| serves(slot) && can_read_all(slot);
        let stays = |slot: Slot| slot.index() != away && serves(slot);
        let survives = self.has_redundancy()
            && !is_dirty_mirror
            && self.geometry.survives(stays)
            && started.plan.geometry.survives(stays);
        members[away].filter(|_| survives)
    }

    /// Rows that differ on the members in sync: a cut explains them, and the superblocks or the
    /// bitmap tell of them.
    fn check_redundancy(&self, started: &Started) -> Result<(), String> {
        let Started { plan, superblocks, .. } = started;
        let StartPlan { assembly, bitmap, .. } = plan;
        // What has not been moved yet has the old one.
        if !self.has_redundancy() || started.before.is_some() || self.plan.lacks_parity {
            return Ok(());
        }
        let image = heal::image(&self.disks, superblocks, &assembly.members, &started.holes);
        let is_parity = raw::keeps_parity(&self.geometry);
        for row in raw::mismatches(&self.geometry, &image) {
            if !is_parity && self.oracle.may_be_anything(row) {
                continue;
            }
            if self.is_unsynced(started, row) {
                continue;
            }
            if started.done.settles {
                return Err(format!("row {row} differs after the logs were replayed"));
            }
            if assembly.journal.is_some() && !self.was_forced {
                return Err(format!("row {row} differs, though the journal was replayed"));
            }
            if !self.doubt[row as usize] {
                let odd = raw::odd_slots(&self.geometry, row, &image);
                return Err(format!("row {row} differs in {odd:?}, and no write was under way"));
            }
            if self.was_forced {
                continue;
            }
            if assembly.resync_from.is_none() {
                return Err(format!("row {row} differs, and the array counts as clean"));
            }
            if bitmap.as_ref().is_some_and(|bitmap| !heal::is_dirty(bitmap, row)) {
                return Err(format!("row {row} differs, and its bit is not set"));
            }
        }
        Ok(())
    }

    /// Whether a lockless bitmap says that redundancy is yet to be made right there, and nothing in the row was written
    /// that it would have to keep: it is made right for the rows of each write.
    fn is_unsynced(&self, started: &Started, row: u64) -> bool {
        let is_synced = |i: &BitmapConfig| i.bits.is_synced(row / i.bits.chunk().0);
        started.plan.bitmap.as_ref().is_some_and(|i| !is_synced(i)) && self.is_never_written(row)
    }

    fn is_never_written(&self, row: u64) -> bool {
        let mut sectors = raw::sectors_of(&self.geometry, row).into_iter();
        sectors.all(|sector| self.oracle.may_be_anything(sector))
    }

    fn heal(&mut self, started: &Started) -> Result<(), String> {
        self.say(|| "redundancy is made whole".into());
        let Started { plan, superblocks, holes, .. } = started;
        let StartPlan { assembly, bitmap, .. } = plan;
        let bitmap = bitmap.as_ref();
        let part = HealTarget { geometry: &self.geometry, assembly, superblocks, bitmap, holes };
        let homes = heal::heal(&part, &mut self.disks, &mut self.file, self.was_forced)?;
        self.made_whole();
        self.stale.clear();
        let stays: Vec<_> = homes.iter().take(self.plan.disks_for_good().into()).collect();
        self.suspect =
            (0..self.disks.len()).filter(|&disk| !stays.contains(&&Some(disk))).collect();
        (self.was_forced, self.has_lost) = (false, false);
        let holes = Holes::of(&self.disks, &vec![None; self.disks.len()]);
        let image = heal::image(&self.disks, superblocks, &homes, &holes);
        let is_parity = raw::keeps_parity(&self.geometry);
        let mut left = raw::mismatches(&self.geometry, &image).into_iter();
        let is_whole = |&row: &u64| {
            !heal::is_unwritten(bitmap, row) && (is_parity || !self.oracle.may_be_anything(row))
        };
        match left.find(is_whole) {
            Some(row) => Err(format!("row {row} differs after all was made whole")),
            None => Ok(()),
        }
    }

    fn setup(&self, started: &Started) -> Setup {
        let is_in = |disk: usize| started.plan.members.iter().any(|m| m.device == disk);
        let there = started.superblocks.iter().enumerate();
        let absent = there.filter_map(|(disk, sb)| Some((disk, sb.clone()?)));
        let mut returning: Vec<(usize, Superblock)> =
            absent.filter(|(disk, _)| !is_in(*disk)).collect();
        if !self.plan.adds || !self.has_redundancy() {
            returning.clear();
        }
        let (plan, done) = (started.plan.clone(), started.done.clone());
        let (plan, after) = match started.before.clone() {
            Some((before, (position, is_backwards))) => {
                (before, Some(After { plan, position, is_backwards }))
            }
            None => (plan, None),
        };
        Setup { plan, after, done, returning, was_forced: self.was_forced }
    }
}

/// New members, written and in sync: zeros have zeros for parity.
fn create(asked: &Plan, dice: &mut Dice) -> (Vec<Disk>, Geometry, Option<Disk>) {
    let is_before = matches!(asked.version, Version::V1_1 | Version::V1_2);
    let data_offset = if asked.log.is_some() { LOGGED_DATA_OFFSET } else { DATA_OFFSET };
    let forwards = asked.reshape.filter(|to| !to.is_backwards);
    let data_offset = data_offset + Sectors(forwards.map_or(0, |to| to.shift));
    let behind = if asked.log.is_some() { 64 + PPL_SPACE.0 } else { 64 };
    let sizes: Vec<Sectors> = asked
        .sizes
        .iter()
        .map(|&size| match asked.version {
            Version::V090 => Sectors(size.next_multiple_of(128) + 128),
            Version::V1_0 => Sectors(size.next_multiple_of(8) + behind),
            Version::V1_1 | Version::V1_2 => data_offset + Sectors(size),
        })
        .collect();
    let journal = asked.journal.map(|sectors| DATA_OFFSET + Sectors(sectors));
    let mut members: Vec<Option<NewMember>> = sizes
        .iter()
        .zip(0..)
        .map(|(&size, disk)| {
            let write_mostly = asked.write_mostly >> disk & 1 == 1;
            Some(NewMember { size, write_mostly, ..NewMember::default() })
        })
        .collect();
    if asked.lacks_parity {
        members.insert(asked.disks_at_first().into(), None);
    }
    let request = CreateRequest {
        level: asked.level,
        raid_disks: asked.disks,
        spares: asked.sizes.len() as u16 - asked.disks_at_first(),
        journal: journal.map(|size| NewMember { size, ..NewMember::default() }),
        members,
        version: asked.version,
        chunk: (asked.level != Level::Raid1).then_some(asked.chunk),
        layout: Some(asked.layout),
        bitmap: match asked.bitmap_chunk.filter(|_| !asked.external) {
            Some(_) if asked.lockless.is_some() => BitmapChoice::Lockless,
            Some(_) => BitmapChoice::Internal,
            None => BitmapChoice::None,
        },
        bitmap_chunk: asked
            .bitmap_chunk
            .filter(|_| asked.lockless.is_none())
            .map(|sectors| (sectors * 512) as u32),
        policy: asked.log.map(|_| Policy::Ppl),
        write_behind: 0,
        size: asked.level.has_redundancy().then(|| Sectors(asked.component())),
        data_offset: is_before.then_some(data_offset),
        logical_block_size: None,
        set_uuid: None,
        name: "simulated".into(),
        homehost: None,
        assume_clean: true,
        force: true,
        ctime: 1_700_000_000,
        md_minor: 0,
    };
    let made = plan(&request, |buf| buf.iter_mut().for_each(|byte| *byte = dice.next() as u8));
    let mut made = made.unwrap_or_else(|error| panic!("{asked}: {error}"));
    let slots = usize::from(asked.disks_at_first());
    let spares = made.members.iter_mut().filter(|member| member.index > slots);
    spares.for_each(|member| member.index -= usize::from(asked.lacks_parity));
    let mut disks: Vec<Disk> = sizes.iter().chain(&journal).map(|size| Disk::new(size.0)).collect();
    for member in &made.members {
        for write in &member.writes {
            disks[member.index].put(write.sector.0, &write.bytes);
        }
        if let (Some(size), Superblock::V1(mut sb)) = (asked.log, member.superblock.clone()) {
            // A small log is full more often.
            sb.set_ppl(sb.ppl().0, size);
            disks[member.index].put(sb.super_offset, &sb.encode());
        }
        if let Some(at) = member.superblock.bitmap_sector() {
            let head = disks[member.index].bytes(at.0, bitmap::Superblock::SIZE);
            let mut sb = bitmap::Superblock::parse(head).expect("written just now");
            sb.events = member.superblock.events();
            // Bits are to be swept in most sessions.
            (sb.daemon_sleep, sb.write_behind) = (1, asked.write_behind);
            match (asked.lockless, asked.bitmap_chunk) {
                (Some(Lockless::FirstUse), _) => {
                    sb.state = bitmap::state::FIRST_USE;
                    disks[member.index].put(at.0, &[&sb.encode()[..], &[0; 256]].concat());
                    continue;
                }
                (Some(Lockless::Unwritten), Some(chunk)) => {
                    (sb.state, sb.chunksize) = (0, chunk as u32);
                    sb.events_cleared = sb.events;
                }
                _ => {}
            }
            write_bitmap(&mut disks[member.index], at.0, &sb, &Bits::new(&sb, false));
        }
    }
    if asked.grows_from.is_some() {
        let mut beside = dice.beside();
        for member in &made.members {
            let sb = &member.superblock;
            let (first, end) =
                (sb.data_offset() + made.component, sb.data_offset() + sb.data_size());
            fill(&mut disks[member.index], first.0..end.0, &mut beside);
        }
    }
    if asked.lockless.is_some() {
        let mut beside = dice.beside();
        for member in &made.members {
            let first = member.superblock.data_offset().0;
            let end = disks[member.index].sectors();
            fill(&mut disks[member.index], first..end, &mut beside);
        }
    }
    let like = &made.members[0].superblock;
    let file = asked.bitmap_chunk.filter(|_| asked.external);
    let file = file.map(|chunk| new_file(&new_bitmap(like, chunk, asked.write_behind)));
    (disks, made.geometry, file)
}

/// Nobody's data, which differs from member to member.
fn fill(disk: &mut Disk, sectors: Range<u64>, dice: &mut Dice) {
    for sector in sectors {
        let word = dice.next().to_le_bytes();
        disk.put(sector, &word.repeat(SECTOR / 8));
    }
}

/// A bitmap as it is.
pub(crate) fn write_bitmap(disk: &mut Disk, at: u64, sb: &bitmap::Superblock, bits: &Bits) {
    let mut page = [0; PAGE];
    for index in 0..bits.pages() {
        bits.encode_page(sb, index, &mut page);
        disk.put(at + (index * PAGE / SECTOR) as u64, &page);
    }
}

#[cfg(test)]
mod scenarios;
mod start;
pub(crate) mod wear;
