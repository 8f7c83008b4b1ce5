//! The start of an array on simulated disks, by the code that the server starts one with: what it decides, and what it
//! writes before anybody is served, in the midst of which the power may be cut.
//!
//! Of arrays with partial parity logs more is held than of others: a dirty one that lacks a member loses of that member
//! only sectors that were themselves being written.

use super::{Before, Lifetime, Started, wear::Holes};
use crate::{
    disk::{Cut, Disk, SECTOR},
    raw,
    session::in_words,
};
use lapstrake_array::{
    CutReshape, NotPutBack,
    start::{
        After, CarriedOut, CarryOutError, Halves, PlanError, StartIo, StartPlan, StartRequest,
        bad_block_log, force_reshape,
    },
};
use lapstrake_engine::journal::ReplayError;
use lapstrake_geometry::{Geometry, Sector, Sectors, Slot};
use lapstrake_metadata::{
    Role, Superblock,
    assemble::{self, Assembly, Candidate, Refusal},
    backup::{Backup, Section},
    detect,
};
use std::collections::BTreeSet;

/// Why something that comes before serving ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The power is off.
    Dark,
    /// A disk cannot read what is asked of it.
    Unreadable,
    /// A disk refuses a write.
    Refused(usize),
}

/// Disks of an array that does not run, each by its number; behind them the external bitmap's.
pub(crate) struct DisksAtRest<'a> {
    pub disks: &'a mut [Disk],
    pub file: &'a mut Disk,
    /// So many writes and flushes until the power is cut.
    pub cut_in: Option<u64>,
}

impl DisksAtRest<'_> {
    fn disk(&self, device: usize) -> &Disk {
        self.disks.get(device).unwrap_or(self.file)
    }

    /// The disk, unless the power is cut now.
    fn powered(&mut self, device: usize) -> Result<&mut Disk, Halt> {
        match &mut self.cut_in {
            Some(0) => return Err(Halt::Dark),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(self.disks.get_mut(device).unwrap_or(self.file))
    }

    fn put(&mut self, device: usize, sector: u64, bytes: &[u8], fua: bool) -> Result<(), Halt> {
        let disk = self.powered(device)?;
        if disk.refuses(sector, (bytes.len() / SECTOR) as u64) {
            return Err(Halt::Refused(device));
        }
        disk.write(sector, bytes.to_vec(), fua);
        Ok(())
    }
}

impl StartIo for DisksAtRest<'_> {
    type Device = usize;
    type Error = Halt;

    fn size(&self, device: &usize) -> u64 {
        self.disk(*device).sectors() * SECTOR as u64
    }

    fn read(&self, device: &usize, offset: u64, buf: &mut [u8]) -> Result<(), Halt> {
        let disk = self.disk(*device);
        let first = offset / SECTOR as u64;
        let end = (offset + buf.len() as u64).div_ceil(SECTOR as u64);
        if !disk.is_readable(first, end - first) {
            return Err(Halt::Unreadable);
        }
        disk.read_at(offset, buf);
        Ok(())
    }

    fn write(&mut self, device: &usize, offset: u64, bytes: &[u8]) -> Result<(), Halt> {
        self.put(*device, offset / SECTOR as u64, bytes, false)
    }

    /// Whole or not at all: version 0.90 keeps no second one, so a torn one would be a disk that is lost.
    fn write_superblock(
        &mut self,
        device: &usize,
        sector: Sector,
        bytes: &[u8],
    ) -> Result<(), Halt> {
        self.put(*device, sector.0, bytes, true)
    }

    fn flush(&mut self, device: &usize) -> Result<(), Halt> {
        let disk = self.powered(*device)?;
        disk.flush(disk.mark());
        Ok(())
    }
}

impl Lifetime<'_> {
    pub(super) fn at_rest(&mut self) -> DisksAtRest<'_> {
        DisksAtRest { disks: &mut self.disks, file: &mut self.file, cut_in: None }
    }

    /// Reads superblocks and what they point at, and decides.
    pub(super) fn start(&mut self, offered: &[bool]) -> Result<Started, String> {
        if self.plan.reshape.is_some_and(|to| to.shift == 0) {
            self.put_back(offered)?;
        }
        let mut found = self.superblocks(offered)?;
        let mut options = assemble::Options::default();
        let mut superblocks = found.clone();
        let Some(mut halves) = Halves::of(&mut superblocks) else {
            let plan = self.plan_as_asked(&superblocks, &mut options)?;
            self.check_members(&plan, offered, None)?;
            return self.started(plan, None, superblocks, options.force);
        };
        let mut plan = self.plan_as_asked(&halves.after, &mut options)?;
        let before = self.plan_as_asked(&halves.before, &mut options)?;
        let mut forced = Vec::new();
        if options.force {
            plan = self.plan_as_asked(&halves.after, &mut options)?;
            forced = force_reshape(&found, &before.assembly, &plan.assembly)
                .map_err(|disk| format!("disk {disk} is forced, and holds who knows what"))?;
            self.say(|| {
                format!("the reshape goes on by force, which changes {} superblocks", forced.len())
            });
            for (disk, superblock) in &forced {
                found[*disk] = Some(superblock.clone());
            }
            halves = Halves::of(&mut found.clone()).ok_or("force has the reshape forgotten")?;
            plan = self.plan_as_asked(&halves.after, &mut options)?;
        }
        let before = self.plan_before(&halves, &found, forced, &mut plan, &mut options)?;
        self.check_members(&plan, offered, Some(&before))?;
        self.started(plan, Some(before), halves.after, options.force)
    }

    /// Plans a start. The operator starts it degraded, or by force, where that is asked for.
    fn plan_as_asked(
        &mut self,
        superblocks: &[Option<Superblock>],
        options: &mut assemble::Options,
    ) -> Result<StartPlan<usize>, String> {
        loop {
            match self.plan_start(superblocks, options)? {
                Ok(plan) => return Ok(plan),
                Err(Refusal::NewlyDegraded { .. }) if !options.run => options.run = true,
                Err(Refusal::DirtyDegraded { run_helps: true, .. }) if !options.run => {
                    options.run = true;
                }
                Err(Refusal::DirtyDegraded { .. }) if !options.force && self.has_lost => {
                    options.force = true;
                }
                Err(refusal) => {
                    return Err(format!("no start: {}", refusal.describe(&name)));
                }
            }
        }
    }

    /// The operator puts back what a cut in the critical section of a reshape left half moved; mdadm does so, too, where
    /// superblocks say that it has just come to the section's end.
    fn put_back(&mut self, offered: &[bool]) -> Result<(), String> {
        let found = self.superblocks(offered)?;
        let freshest = found.iter().flatten().max_by_key(|superblock| superblock.events());
        let Some(told) = freshest.and_then(Superblock::reshape) else { return Ok(()) };
        let mut disks: Vec<usize> =
            (0..found.len()).filter(|&disk| found[disk].is_some()).collect();
        let is_old = |slot: Slot| slot.0 < told.before.raid_disks();
        let may_keep_a_copy = |disk: &usize| {
            let number = found[*disk].as_ref().map(Superblock::dev_number);
            let role = number.map(|number| told.after.role_of(number));
            !matches!(role, Some(Role::Active(slot)) if is_old(slot))
        };
        // Who has failed since keeps what it kept.
        let mut holders: Vec<usize> = disks.iter().copied().filter(may_keep_a_copy).collect();
        let cut = loop {
            let at_beginning = |&disk: &usize| {
                let mut superblock = found[disk].clone()?;
                if superblock.reshape().is_some() {
                    superblock.set_reshape_position(Sector(0));
                }
                Some(superblock)
            };
            let superblocks: Vec<Superblock> = disks.iter().filter_map(at_beginning).collect();
            // The operator leaves out who is out of date.
            match CutReshape::of(&superblocks, |index| disks[index].to_string()) {
                Err(NotPutBack::Stale { member, .. }) => {
                    disks.retain(|disk| disk.to_string() != member);
                }
                Err(why) => return Err(format!("nothing is put back: {why}")),
                Ok(cut) => break cut,
            }
        };
        // By force it takes what one keeps that has missed the beginning.
        holders.sort_by_key(|&disk| !found[disk].as_ref().is_some_and(|own| cut.is_known_to(own)));
        let mut refusal = "nobody has come to the array".to_owned();
        for disk in holders {
            let Some(superblock) = &found[disk] else { continue };
            // mdadm asks nobody who is no member any more.
            if told.position > Sector(0) && !disks.contains(&disk) {
                continue;
            }
            let holder = &self.disks[disk];
            let read = |sector: Sector, bytes: &mut [u8]| {
                holder.read_at(sector.bytes(), bytes);
                Ok::<(), NotPutBack>(())
            };
            let backup = match Backup::read(Backup::header_on(superblock), read) {
                Ok(backup) => backup,
                Err(why) => {
                    refusal = format!("disk {disk}: {why}");
                    continue;
                }
            };
            let is_end = |section: &Section| Sector(section.array.end) == told.position;
            if told.position > Sector(0) && !backup.sections.iter().any(is_end) {
                continue;
            }
            let writes = cut.put_back(&backup, read);
            let writes = writes.map_err(|why| format!("disk {disk}: {why}"))?;
            self.say(|| format!("disk {disk} has what was half moved"));
            for (&disk, writes) in disks.iter().zip(writes) {
                for write in writes {
                    self.disks[disk].write(write.sector.0, write.bytes, true);
                }
            }
            return Ok(());
        }
        match told.position {
            Sector(0) => Err(format!("the backup cannot be put back: {refusal}")),
            _ => Ok(()),
        }
    }

    /// Plans the array that a reshape changes, of the same members as the one that it makes.
    fn plan_before(
        &mut self,
        halves: &Halves,
        found: &[Option<Superblock>],
        forced: Vec<(usize, Superblock)>,
        plan: &mut StartPlan<usize>,
        options: &mut assemble::Options,
    ) -> Result<Before, String> {
        let mut before = self.plan_as_asked(&halves.before, options)?;
        let told = found.iter().flatten().max_by_key(|superblock| superblock.events());
        let told = told.and_then(Superblock::reshape).ok_or("the freshest tells of no reshape")?;
        let front = (told.position, told.is_backwards);
        // The operator gives the place on record where that is asked for.
        let is_asked_for = match (&before.geometry, &plan.geometry) {
            (Geometry::Parity(old), Geometry::Parity(new)) => old.data_disks() == new.data_disks(),
            _ => false,
        };
        let recorded = is_asked_for.then_some(told.position);
        let after = After::new(&mut before, plan.clone(), front, |one, two| one == two);
        let mut after = after.ok_or("the arrays before and after have other members")?;
        let place = |disk: usize| before.members.iter().position(|member| member.device == disk);
        let forced = forced.into_iter().filter_map(|(disk, sb)| Some((place(disk)?, sb)));
        let forced = forced.collect();
        after
            .carry_on(&mut before, recorded, forced)
            .map_err(|error| format!("the reshape: {error}"))?;
        *plan = after.plan;
        Ok((before, front))
    }

    fn superblocks(&self, offered: &[bool]) -> Result<Vec<Option<Superblock>>, String> {
        let mut superblocks = Vec::new();
        for (index, (disk, &offered)) in self.disks.iter().zip(offered).enumerate() {
            let size = Sectors(disk.sectors());
            let Ok(findings) = detect::probe(size, |offset, buf| {
                disk.read_at(offset, buf);
                Ok::<_, std::convert::Infallible>(())
            });
            let found = findings.best();
            let found = found.ok_or_else(|| format!("disk {index} has lost its superblock"))?;
            self.say(|| format!("disk {index}: {}", in_words(found)));
            superblocks.push(offered.then(|| found.clone()));
        }
        Ok(superblocks)
    }

    fn plan_start(
        &mut self,
        superblocks: &[Option<Superblock>],
        options: &assemble::Options,
    ) -> Result<Result<StartPlan<usize>, Refusal>, String> {
        let candidates: Vec<Candidate<'_>> = superblocks
            .iter()
            .enumerate()
            .filter_map(|(id, sb)| Some(Candidate { id, superblock: sb.as_ref()? }))
            .collect();
        let assembly = assemble::assemble(&candidates, options)
            .map_err(|error| format!("no array: {}", error.describe(&name)))?;
        if let Err(refusal) = &assembly.start {
            return Ok(Err(refusal.clone()));
        }
        let devices: Vec<usize> = (0..=self.disks.len()).collect();
        let (devices, file) = devices.split_at(self.disks.len());
        let request = StartRequest {
            devices,
            bitmap_file: file.first().filter(|_| self.names_file),
            read_only: false,
            is_overlaid: false,
            force: options.force,
            ignore_unknown: false,
            gives_up_journal: false,
        };
        match StartPlan::new(&mut self.at_rest(), &request, assembly, superblocks.to_vec()) {
            Ok((mut plan, _)) => {
                if let Some(bitmap) = plan.bitmap.as_mut().filter(|i| i.bits.is_first_use()) {
                    // Bits are to be swept in most sessions.
                    bitmap.superblock.daemon_sleep = 1;
                }
                Ok(Ok(plan))
            }
            Err(PlanError::UnsyncedDegraded { refusal, .. }) => Ok(Err(refusal)),
            Err(error) => Err(format!("no start: {error:?}")),
        }
    }

    fn started(
        &mut self,
        plan: StartPlan<usize>,
        before: Option<Before>,
        mut superblocks: Vec<Option<Superblock>>,
        is_by_force: bool,
    ) -> Result<Started, String> {
        for (disk, superblock) in &plan.assembly.rewrite {
            superblocks[*disk] = Some(superblock.clone());
        }
        let io = self.at_rest();
        let log = |(disk, superblock): (usize, &Option<Superblock>)| match superblock {
            Some(superblock) => bad_block_log(&io, &disk, superblock),
            None => Ok(None),
        };
        let logs: Result<Vec<_>, _> = superblocks.iter().enumerate().map(log).collect();
        let logs = logs.map_err(|fault| format!("{fault:?}"))?;
        let holes = Holes::of(&self.disks, &logs);
        let done = CarriedOut::default();
        Ok(Started { plan, before, superblocks, logs, holes, is_by_force, done })
    }

    /// It is the one that clients saw last, or one that a cut kept them from seeing.
    fn check_geometry(&mut self, found: &Geometry) -> Result<(), String> {
        let (all, seen) = (found.array_sectors().0, self.oracle.sectors());
        if all < seen {
            return Err(format!("the array has {all} sectors, and clients used {seen}"));
        }
        if all > seen && self.plan.grows_from.is_some() {
            self.take_growth(found);
        }
        // A cut has kept its end from clients.
        if self.plan.reshape.is_some() && *found != self.geometry {
            self.take_geometry(found);
        }
        match *found == self.geometry {
            true => Ok(()),
            false => Err("the array has changed its geometry".into()),
        }
    }

    /// Who must serve does, who must not does not.
    fn check_members(
        &mut self,
        plan: &StartPlan<usize>,
        offered: &[bool],
        before: Option<&Before>,
    ) -> Result<(), String> {
        self.check_geometry(&before.map_or(plan, |before| &before.0).geometry)?;
        let Assembly { members, journal, .. } = &plan.assembly;
        for (disk, &offered) in offered.iter().enumerate() {
            let serves = members.contains(&Some(disk)) || *journal == Some(disk);
            if serves && self.stale.contains(&disk) {
                return Err(format!("disk {disk} is stale and serves"));
            }
            if !serves && offered && !self.suspect.contains(&disk) {
                return Err(format!("disk {disk} never failed and is left"));
            }
        }
        Ok(())
    }

    /// The start is forced if it must be, and what logs or a journal hold comes to the members. Now and then the power is
    /// cut in the midst of that, and the array is started anew. Who refuses to be written is left out by the operator.
    pub(super) fn bring_up(
        &mut self,
        started: Started,
        offered: &mut [bool],
    ) -> Result<Started, String> {
        let mut started = started;
        loop {
            let is_cut = self.plan.cut_every > 0 && self.dice.one_in(3);
            let cut_in = is_cut.then(|| {
                let bound = self.dice.pick(&[3, 30, 300]);
                self.dice.between(1..=bound)
            });
            let Some(halt) = self.carry_out(&mut started, cut_in)? else { break };
            self.say(|| format!("the start is carried out, and then: {halt:?}"));
            let how = self.dice.pick(&[Cut::Nothing, Cut::Everything, Cut::AnySectors]);
            self.disks.iter_mut().for_each(|disk| disk.cut(how, &mut self.dice));
            if let Halt::Refused(disk) = halt {
                self.say(|| format!("disk {disk} refuses what is replayed, and is left out"));
                offered[disk] = false;
                self.suspect.insert(disk);
                self.has_lost = true;
            }
            started = self.start(offered)?;
        }
        self.check_redundancy(&started)?;
        Ok(started)
    }

    /// Does what comes before serving. Gives why it ended early, if it did.
    pub(super) fn carry_out(
        &mut self,
        started: &mut Started,
        cut_in: Option<u64>,
    ) -> Result<Option<Halt>, String> {
        self.lose_by_force(started);
        let mut io = DisksAtRest { cut_in, ..self.at_rest() };
        let done = match started.plan.carry_out(&mut io) {
            Ok(done) => done,
            Err(
                CarryOutError::Force(halt)
                | CarryOutError::Backup(halt)
                | CarryOutError::Logs(halt)
                | CarryOutError::Journal(ReplayError::Device(halt)),
            ) => return Ok(Some(halt)),
            Err(CarryOutError::Journal(error)) => {
                return Err(format!("the journal cannot be replayed: {error:?}"));
            }
        };
        // All of it is stable.
        self.disks.iter_mut().for_each(|disk| disk.cut(Cut::Nothing, &mut self.dice));
        if let Some((_, replayed)) = &done.journal {
            self.say(|| format!("the journal was replayed: {replayed:?}"));
        }
        if let Some(replay) = &done.logs {
            self.say(|| format!("partial parity logs were replayed: {replay:?}"));
            self.lose_unlogged(started);
        }
        if done.settles {
            self.made_whole();
        }
        self.adopt(started);
        started.done = done;
        Ok(None)
    }

    /// What missing members held in rows in doubt is lost by force.
    fn lose_by_force(&mut self, started: &Started) {
        self.was_forced |= started.plan.is_forced();
        if self.was_forced {
            // Nor may a member be lost whose bad sectors no write mends: what it holds in rows in doubt cannot be recovered.
            self.disks.iter_mut().for_each(Disk::renew);
        }
        if started.is_by_force {
            let before = started.before.as_ref().map(|(before, _)| before);
            // During a reshape either geometry has rows of what was being written.
            [Some(&started.plan), before]
                .into_iter()
                .flatten()
                .for_each(|plan| self.lose_missing(plan));
        }
        self.lose_unreadable(started);
    }

    fn lose_missing(&mut self, plan: &StartPlan<usize>) {
        let seen = self.oracle.sectors();
        let unsure =
            (0..plan.geometry.array_sectors().0.min(seen)).filter(|&at| self.unsure[at as usize]);
        let rows: BTreeSet<u64> =
            unsure.map(|sector| raw::row_of(&plan.geometry, sector)).collect();
        let is_lost = |slot: Slot| plan.assembly.members[slot.index()].is_none();
        for row in rows {
            let lost = raw::lost_sectors(&plan.geometry, row, is_lost).into_iter();
            lost.filter(|&sector| sector < seen).for_each(|sector| self.oracle.forget(sector));
        }
    }

    /// What was being written on slots without a member, or where the member cannot be read, is lost; all else is as it
    /// was.
    fn lose_unlogged(&mut self, started: &Started) {
        let members = &started.plan.assembly.members;
        for row in (0..self.doubt.len()).filter(|&row| self.doubt[row]) {
            let is_lost = |slot: Slot| match members[slot.index()] {
                Some(disk) => {
                    let offset =
                        started.superblocks[disk].as_ref().map_or(0, |sb| sb.data_offset().0);
                    started.holes.is_in(disk, offset + row as u64)
                }
                None => true,
            };
            for sector in raw::lost_sectors(&self.geometry, row as u64, is_lost) {
                if self.unsure[sector as usize] {
                    self.oracle.forget(sector);
                }
            }
        }
    }

    /// Superblocks as they were written. Who is not here now may be on record, and must not come back as if it had been
    /// here.
    fn adopt(&mut self, started: &mut Started) {
        let mut is_changed = false;
        for member in &started.plan.members {
            let (disk, superblock) = (member.device, member.superblock());
            let in_slot = member.record.slot.is_some();
            is_changed |= in_slot && started.superblocks[disk].as_ref() != Some(superblock);
            let events = &mut started.plan.assembly.events;
            *events = superblock.events().max(*events);
            started.superblocks[disk] = Some(superblock.clone());
        }
        if is_changed {
            let Assembly { members, recovering, journal, .. } = &started.plan.assembly;
            let serves = |disk: &usize| members.contains(&Some(*disk)) || *journal == Some(*disk);
            let recovers = |disk: &usize| recovering.iter().any(|r| r.1 == *disk);
            let left = (0..self.disks.len()).filter(|disk| !serves(disk) && !recovers(disk));
            self.stale.extend(left);
        }
    }
}

fn name(id: usize) -> String {
    format!("disk {id}")
}
