//! An array whose geometry is being changed, as two: the one that it was and the one that it will be, of the same members.

use super::{After, CarriedOut, CarryOutError, StartIo, StartMember, StartPlan, SupervisorTerms};
use alloc::{collections::BTreeSet, vec::Vec};
use lapstrake_engine::{ReshapeInProgress, SupervisorConfig};
use lapstrake_geometry::{Geometry, Parity, Sector, Sectors, Slot};
use lapstrake_metadata::{
    Reshape, ReshapeRecord, Role, Superblock,
    assemble::{Assembly, Verdict, force_in_reshape},
    backup::{Backup, BackupError, Section},
};
use thiserror::Error;

/// Superblocks of an array in the midst of a reshape, as those of two arrays, by device. Others are as they were in both.
#[derive(Clone, Debug)]
pub struct Halves {
    /// The array that was.
    pub before: Vec<Option<Superblock>>,
    /// The array that will be.
    pub after: Vec<Option<Superblock>>,
}

/// Why an array cannot be served while its geometry is being changed, only read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoReshape {
    /// The geometries are neither both of RAID4, 5 or 6 nor both of RAID10.
    #[error(
        "only reshapes between RAID4, RAID5 and RAID6, and of a RAID10, can be carried on here"
    )]
    Level,
    /// The position is within a stripe.
    #[error("its position is not where stripes of both geometries end")]
    Position,
    /// What comes next would be written over what was not moved yet.
    #[error(
        "what it would write next lies over data that was not moved yet: it was cut where data is moved over itself, and goes on \
         with a backup of that; a member that came with the reshape may hold one (`lapstrake update --backup-file MEMBER \
         MEMBERS`), or mdadm's --backup-file does (docs/rescue.md); what was being moved reads as garbage until then"
    )]
    Critical,
    /// Logs know one geometry.
    #[error("it has a journal or partial parity logs")]
    Logs,
    /// A member recovers.
    #[error("a member's recovery has not ended")]
    Recovery,
    /// Linux may have moved more than it has recorded.
    #[error(
        "it changes no number of data members and moves data by another offset, of which Linux records seldom how far it has \
         come, and a wrong place destroys data; if Lapstrake has carried it on since it began, `--reshape-position {position}` \
         goes on from the place on record; else find the right one by reading (docs/rescue.md)"
    )]
    Unsure {
        /// The place on record, in bytes of the array.
        position: u64,
    },
    /// A position was given that is not to be given.
    #[error(
        "--reshape-position is not the place on record, byte {position}, which is right: Linux records this reshape exactly, or \
         what was given lies behind it, and what was moved once would be taken from where it is not any more"
    )]
    Given {
        /// The place on record, in bytes of the array.
        position: u64,
    },
    /// Bad blocks are on record.
    #[error("members have blocks on record as bad")]
    BadBlocks,
    /// A role is forced, or a bitmap or a bad-block log given up.
    #[error(
        "a role cannot be forced, nor a bitmap or bad-block log be given up, before the reshape has ended"
    )]
    OtherChanges,
}

impl Halves {
    /// Those of superblocks of which the freshest of an array tells of a reshape; none if no array's does. Where the
    /// freshest tells of none the reshape has ended, as it knows, and none of that array's tells of one afterwards.
    #[must_use]
    pub fn of(superblocks: &mut [Option<Superblock>]) -> Option<Self> {
        let found = superblocks.to_vec();
        let fresh = |own: &Superblock| freshest_of(&found, own)?.reshape();
        for own in superblocks.iter_mut().flatten() {
            if let (Some(reshape), None) = (own.reshape(), fresh(own)) {
                *own = reshape.after;
            }
        }
        if !superblocks.iter().flatten().any(|own| fresh(own).is_some()) {
            return None;
        }
        let half = |own: &Superblock| match fresh(own) {
            Some(fresh) => halves(own, &fresh),
            None => (own.clone(), own.clone()),
        };
        let both = superblocks.iter().map(|own| own.as_ref().map(half).unzip());
        let (mut before, after): (Vec<_>, Vec<_>) = both.unzip();
        let halves = before.iter_mut().zip(&*superblocks).filter_map(|(half, own)| {
            let (half, own) = (half.as_mut()?, own.as_ref()?);
            Some((half, own, fresh(own)?))
        });
        let mut halves: Vec<(&mut Superblock, &Superblock, Reshape)> = halves.collect();
        if !halves.iter().any(|(half, own, fresh)| has_last_slot(half, own, fresh)) {
            for (own, ..) in &mut halves {
                let without = own.without_second_parity().or_else(|| own.without_parity());
                **own = without.unwrap_or_else(|| own.clone());
            }
        }
        Some(Self { before, after })
    }
}

/// The freshest superblock with this one's set UUID and version.
#[must_use]
pub fn freshest_of<'a>(
    found: &'a [Option<Superblock>],
    own: &Superblock,
) -> Option<&'a Superblock> {
    let is_its =
        |one: &&Superblock| (one.set_uuid(), one.version()) == (own.set_uuid(), own.version());
    found.iter().flatten().filter(is_its).max_by_key(|one| one.events())
}

/// Superblocks that a start by force writes first, by device and in this order, with which both arrays of a reshape start without
/// raising anybody, and as if they were clean; none if force has nothing to change. `found`: as they are; the assemblies: of
/// their [`Halves`], by force.
///
/// # Errors
/// The id of one that force has raised, of which it cannot be told what it holds: it has not seen up to where the reshape has
/// come.
pub fn force_reshape(
    found: &[Option<Superblock>],
    before: &Assembly,
    after: &Assembly,
) -> Result<Vec<(usize, Superblock)>, usize> {
    let changed = || before.rewrite.iter().chain(&after.rewrite);
    let freshest = found[before.freshest].as_ref().and_then(|own| freshest_of(found, own));
    let freshest = freshest.filter(|_| changed().next().is_some());
    let Some((freshest, fresh)) = freshest.and_then(|it| Some((it, it.reshape()?))) else {
        return Ok(Vec::new());
    };
    let raised: BTreeSet<usize> = before.forced.iter().chain(&after.forced).copied().collect();
    let has_come_as_far = |own: &Superblock| {
        own.is_reshaped_as(freshest)
            && own.reshape().is_some_and(|reshape| reshape.position == fresh.position)
    };
    let is_unsure = |id: &&usize| !found[**id].as_ref().is_some_and(has_come_as_far);
    if let Some(&id) = raised.iter().find(is_unsure) {
        return Err(id);
    }
    let holders = before.verdicts.iter().chain(&after.verdicts);
    let holders: BTreeSet<usize> = holders.filter_map(holder).collect();
    let told = |id: usize| {
        let mut told = told_of(found[id].as_ref()?, &fresh)?;
        told_to_be_at(&mut told, &fresh.after, fresh.position);
        Some((id, told))
    };
    let told: Vec<(usize, Superblock)> = holders.into_iter().filter_map(told).collect();
    let members: Vec<(usize, &Superblock)> = told.iter().map(|(id, sb)| (*id, sb)).collect();
    let make_clean = !after.found_clean && changed().any(|(_, rewritten)| rewritten.clean());
    Ok(force_in_reshape(&members, &raised, make_clean))
}

/// Has a superblock say that the reshape has come to there, and with it who holds only what that has written.
pub(crate) fn told_to_be_at(own: &mut Superblock, after: &Superblock, position: Sector) {
    let holds_all_written =
        |reshape: Reshape| !reshape.is_backwards && reshape.after.recovery_offset().is_none();
    let lacks_only_before =
        own.recovery_offset().is_some() && own.reshape().is_some_and(holds_all_written);
    own.set_reshape_position(position);
    if let (true, Some(Geometry::Parity(after))) = (lacks_only_before, after.geometry_of_alike()) {
        own.set_recovery_offset(Some(row(&after, position)));
    }
}

/// Where a stripe that begins there lies on members.
pub(crate) fn row(parity: &Parity, at: Sector) -> Sector {
    parity.member_sector(parity.locate(at).0, Sectors(0))
}

fn holder((id, verdict): &(usize, Verdict)) -> Option<usize> {
    matches!(verdict, Verdict::Taken { .. }).then_some(*id)
}

fn halves(own: &Superblock, fresh: &Reshape) -> (Superblock, Superblock) {
    if let Some(Reshape { before, after, .. }) = own.reshape() {
        return (before, after);
    }
    let (mut before, mut after) = (own.clone(), own.clone());
    after.take_geometry(&fresh.after, shift(fresh));
    before.set_component(fresh.before.component());
    after.set_component(fresh.after.component());
    // Nothing is moved before every member knows of the beginning, which this one has just missed.
    if has_seen(own, fresh) {
        // Linux has given it the level that the reshape begins with.
        before.take_geometry(&fresh.before, 0);
        let numbers = (0..fresh.after.table_len()).chain([own.dev_number()]);
        for number in numbers {
            let role = fresh.after.role_of(number);
            if number == own.dev_number() || matches!(role, Role::Active(_)) {
                after.set_role_of(number, role);
            }
        }
    }
    (before, after)
}

/// What a superblock says, or, of who has just missed the reshape's beginning, what it would say. None if it was away.
pub(crate) fn told_of(own: &Superblock, fresh: &Reshape) -> Option<Superblock> {
    if own.reshape().is_some() {
        return Some(own.clone());
    }
    let (before, mut after) = halves(own, fresh);
    let lacks = matches!(after.role(), Role::Active(slot)
        if slot.0 < fresh.before.raid_disks() && before.role() != Role::Active(slot));
    if lacks {
        after.set_recovery_offset(Some(Sector(0)));
    }
    let is_lacking = |slot: &Slot| {
        fresh.before.dev_of_slot(*slot).is_none() && fresh.after.dev_of_slot(*slot).is_some()
    };
    let lacking: Vec<Slot> = (0..fresh.before.raid_disks()).map(Slot).filter(is_lacking).collect();
    let record = ReshapeRecord {
        before: &fresh.before,
        data_before: Some((before.data_offset(), before.data_size())),
        position: fresh.position,
        is_backwards: fresh.is_backwards,
        lacking: &lacking,
    };
    has_seen(own, fresh).then(|| after.in_reshape(&record))
}

/// Whether it has seen all but the last event.
fn has_seen(own: &Superblock, fresh: &Reshape) -> bool {
    own.events().saturating_add(1) >= fresh.after.events()
}

/// Whether this member has all data of the last slot of the array before: of a RAID5 that gets a second parity superblocks
/// tell as of a RAID6 that lacks it, of a RAID0 that grows as of a RAID4 without parity, whose slot gets data. Who was away may
/// tell of any number of slots.
fn has_last_slot(before: &Superblock, own: &Superblock, fresh: &Reshape) -> bool {
    let last = Slot(before.raid_disks().saturating_sub(1));
    let is_there = own.reshape().is_some() || has_seen(own, fresh);
    is_there && before.role() == Role::Active(last) && before.recovery_offset().is_none()
}

fn shift(reshape: &Reshape) -> i64 {
    reshape.after.data_offset().0.wrapping_sub(reshape.before.data_offset().0) as i64
}

impl<D: Clone> After<D> {
    /// The plan of the array that will be beside that of the one that was, of the same members in the same order. Who has no
    /// slot in one, and is out of date in the other, is left out of both. None: they are not the same.
    pub fn new(
        before: &mut StartPlan<D>,
        mut plan: StartPlan<D>,
        (position, is_backwards): (Sector, bool),
        is_same: impl Fn(&D, &D) -> bool,
    ) -> Option<Self> {
        let find = |among: &[StartMember<D>], member: &StartMember<D>| {
            among.iter().position(|it| is_same(&it.device, &member.device))
        };
        let stays = |member: &StartMember<D>, other: &[StartMember<D>]| {
            member.record.slot.is_some() || find(other, member).is_some()
        };
        before.members.retain(|member| stays(member, &plan.members));
        plan.members.retain(|member| stays(member, &before.members));
        let place = |member: &StartMember<D>| find(&before.members, member);
        plan.members.sort_by_key(place);
        let places = plan.members.iter().map(place);
        let is_same = places.eq((0..before.members.len()).map(Some));
        is_same.then_some(Self { plan, position, is_backwards })
    }

    /// Makes it one that is served while data is moved. Bad-block logs are not kept until it is started anew. `recorded`: the
    /// position on record, if another was given in its place, which is taken only where Linux may have moved more than it
    /// recorded. `forced`: what [`force_reshape`] has written first, by the members' places.
    ///
    /// # Errors
    /// [`NoReshape`].
    pub fn carry_on(
        &mut self,
        before: &mut StartPlan<D>,
        recorded: Option<Sector>,
        forced: Vec<(usize, Superblock)>,
    ) -> Result<(), NoReshape> {
        let (old, new) = (&before.geometry, &self.plan.geometry);
        let offset = |plan: &StartPlan<D>| plan.members[0].superblock().data_offset();
        let is_moved = offset(before) != offset(&self.plan);
        let (is_seldom_recorded, unit) = match (old, new) {
            (Geometry::Parity(old), Geometry::Parity(new)) => {
                let chunk = new.chunk().0.max(old.chunk().0);
                let unit = new.stripe_data().0 / new.chunk().0 * chunk;
                (is_moved && old.data_disks() == new.data_disks(), unit)
            }
            // Linux records any place, and before it writes over what lies behind it.
            (Geometry::Raid10(_), Geometry::Raid10(_)) => (false, 1),
            _ => return Err(NoReshape::Level),
        };
        match recorded {
            None if is_seldom_recorded => {
                return Err(NoReshape::Unsure { position: self.position.bytes() });
            }
            Some(recorded) if !is_seldom_recorded || self.is_behind(recorded) => {
                return Err(NoReshape::Given { position: recorded.bytes() });
            }
            _ => {}
        }
        let is_whole = self.position.0.is_multiple_of(unit);
        let mut records = before.members.iter().chain(&self.plan.members).map(|m| &m.record);
        let recovers = |plan: &StartPlan<D>| {
            !plan.assembly.recovering.is_empty() || !plan.assembly.replacements.is_empty()
        };
        let is_logged = |sb: &Superblock| sb.has_ppl() || sb.has_journal();
        if records.clone().any(|record| is_logged(&record.superblock)) {
            return Err(NoReshape::Logs);
        }
        if !is_whole || self.position.0 > new.array_sectors().0 {
            return Err(NoReshape::Position);
        }
        if recovers(before) || recovers(&self.plan) {
            return Err(NoReshape::Recovery);
        }
        if records.any(|record| record.bad_blocks.as_ref().is_some_and(|bad| !bad.is_empty())) {
            return Err(NoReshape::BadBlocks);
        }
        if !before.assembly.rewrite.is_empty() || !self.plan.assembly.rewrite.is_empty() {
            return Err(NoReshape::OtherChanges);
        }
        if !self.in_progress(before).may_go_on(&self.plan.geometry, &self.superblocks()) {
            return Err(NoReshape::Critical);
        }
        let members = before.members.iter_mut().chain(&mut self.plan.members);
        members.for_each(|member| member.record.bad_blocks = None);
        before.bitmap = None;
        self.plan.bitmap = None;
        let old = before.geometry.raid_disks();
        let comes = |member: &StartMember<D>| member.record.slot.is_some_and(|it| it.0 >= old);
        let members = (0..).zip(&self.plan.members).filter(|(_, member)| comes(member));
        let kept = (self.position, members.map(|(index, _)| index).collect());
        (before.kept, before.forced) = (Some(kept), forced);
        self.plan.kept.clone_from(&before.kept);
        self.plan.forced.clone_from(&before.forced);
        Ok(())
    }

    /// Whether what is on record as moved would be moved again, from where it is not any more.
    fn is_behind(&self, recorded: Sector) -> bool {
        if self.is_backwards { self.position > recorded } else { self.position < recorded }
    }

    fn superblocks(&self) -> Vec<&Superblock> {
        self.plan.members.iter().map(StartMember::superblock).collect()
    }

    fn in_progress(&self, before: &StartPlan<D>) -> ReshapeInProgress {
        ReshapeInProgress {
            before: before.geometry.clone(),
            superblocks: before.members.iter().map(|m| m.superblock().clone()).collect(),
            slots: before.members.iter().map(|m| m.record.slot).collect(),
            position: self.position,
            is_backwards: self.is_backwards,
        }
    }

    /// For the supervisor of an array that is served while data is moved.
    #[must_use]
    pub fn supervisor_config(
        &self,
        before: &StartPlan<D>,
        done: &CarriedOut,
        terms: &SupervisorTerms,
    ) -> SupervisorConfig {
        let reshape = Some(self.in_progress(before));
        SupervisorConfig { reshape, ..self.plan.supervisor_config(done, terms) }
    }
}

/// Why a backup's header is not read.
enum NoHeader<E> {
    Io(E),
    NoBackup,
}

impl<E> From<BackupError> for NoHeader<E> {
    fn from(_: BackupError) -> Self {
        Self::NoBackup
    }
}

/// Has a member's backup say that it is of no use any more, if it is of what lies up to where the reshape has come.
pub(super) fn empty_backup<I: StartIo>(
    io: &mut I,
    member: &StartMember<I::Device>,
    position: Sector,
) -> Result<(), CarryOutError<I::Error>> {
    let (device, own) = (&member.device, member.superblock());
    let header = Backup::header_on(own);
    let read = |sector: Sector, bytes: &mut [u8]| {
        io.read(device, sector.bytes(), bytes).map_err(NoHeader::Io)
    };
    let mut backup = match Backup::read(header, read) {
        Ok(backup) if backup.set_uuid == own.bitmap_uuid() => backup,
        Ok(_) | Err(NoHeader::NoBackup) => return Ok(()),
        Err(NoHeader::Io(error)) => return Err(CarryOutError::Backup(error)),
    };
    let is_up_to = |section: &Section| Sector(section.array.end) == position;
    let Some(section) = backup.sections.iter().find(|section| is_up_to(section)).cloned() else {
        return Ok(());
    };
    backup.sections =
        [Section { array: section.array.start..section.array.start, ..section }].into();
    for sector in [backup.copy, header] {
        io.write_superblock(device, sector, &backup.encode()).map_err(CarryOutError::Backup)?;
    }
    Ok(())
}
