//! The critical section of a reshape that gives an array more members for data and has no room to move them: the first rows
//! are written over what they are made of.
//!
//! A shard copies it to each member that comes to the array, to where mdadm looks for it, and superblocks say that the reshape
//! begins once the copies are stable. From its first copy until superblocks say that it was moved, and headers that the copies
//! are of no use any more, nothing is written there by anybody else, and nothing is read from when its rows are written over:
//! mdadm would put the copies in their place yet where superblocks tell of their end.

use super::{DataMove, NewGeometry, Reshape, Stage, raid10::lcm};
use crate::{
    members::{FULLY_TRUSTED, MemberPlace},
    meta_writes::Meta,
    reshape::ShardGeometry,
    supervisor::{Loss, Supervisor, Target},
    sync::{PieceId, SyncAction, SyncPiece, SyncReport},
    types::MemberId,
};
use alloc::vec::Vec;
use core::ops::Range;
use lapstrake_geometry::{Config, Geometry, Layout, Level, Sector, Sectors, Slot};
use lapstrake_metadata::{Superblock, backup::Backup};

/// No run has a piece while the critical section has one.
const PIECE: PieceId = PieceId(0);

/// See the module's head.
#[derive(Clone, Debug, Default)]
pub(super) struct Critical {
    /// The array's first sectors: so many.
    sectors: u64,
    /// Who has a copy of it, and where.
    copies: Vec<(MemberId, Backup)>,
    /// What a shard is to do next.
    piece: Option<SyncPiece>,
    /// A header could not be written.
    is_in_vain: bool,
}

/// How much of an array is moved over itself before the rest can be moved without that: whole stripes of both geometries.
/// None: data moves to other places, or none of this would help, or nobody comes who could keep it.
#[must_use]
pub fn critical_section(
    before: &Geometry,
    after: &Geometry,
    data_move: DataMove,
) -> Option<Sectors> {
    let (Geometry::Parity(before), Geometry::Parity(after)) = (before, after) else { return None };
    let (old, new) = (u64::from(before.data_disks()), u64::from(after.data_disks()));
    let is_in_place = data_move == DataMove::Moves { shift: 0, is_backwards: false };
    let has_more = new > old && after.raid_disks() > before.raid_disks();
    (is_in_place && has_more && before.chunk() == after.chunk())
        .then(|| before.chunk() * lcm(old, new))
}

/// Where a member that comes to the array keeps a copy of its critical section.
#[must_use]
pub fn backup_on(
    member: &Superblock,
    sectors: Sectors,
    after: &Geometry,
    written: u64,
) -> Option<Backup> {
    let Geometry::Parity(after) = after else { return None };
    let rows = Sectors(sectors.0.div_ceil(after.data_disks().into()));
    Backup::on(member, sectors, rows, written)
}

impl Critical {
    pub(super) fn of(sectors: Sectors) -> Self {
        Self { sectors: sectors.0, ..Self::default() }
    }

    fn range(&self) -> Range<u64> {
        0..self.sectors
    }

    fn order(&mut self) {
        self.piece = Some(SyncPiece {
            id: PIECE,
            action: SyncAction::Reshape,
            start: Sector(0),
            len: Sectors(self.sectors),
            within: self.range(),
        });
    }
}

impl Reshape {
    /// What is held while it is copied and moved.
    fn critical_range(&self) -> Option<Range<u64>> {
        let is_free = matches!(self.stage, Stage::Levelling | Stage::Wanted | Stage::GivenUp);
        self.critical.as_ref().filter(|_| !is_free).map(Critical::range)
    }

    /// Whether a copy of what is moved over itself is yet to be made.
    pub(super) fn lacks_backup(&self) -> bool {
        self.critical.as_ref().is_some_and(|critical| critical.copies.is_empty())
    }

    /// Superblocks say that the reshape has begun.
    pub(super) fn move_critical(&mut self) -> Stage {
        match &mut self.critical {
            None => Stage::Moving,
            Some(critical) => {
                critical.order();
                Stage::Critical
            }
        }
    }
}

/// What follows once nobody's copy is of use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// Superblocks say that the critical section was moved.
    Moved,
    /// Nothing was begun.
    GivenUp,
}

/// What requests in an array's critical section are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Those that write wait.
    Writes,
    /// All wait.
    All,
    /// All fail: some of it was moved over the rest, and the rest could not be moved.
    Lost,
}

impl Supervisor {
    /// The array's first sectors while a reshape copies them or moves them over themselves, and what requests there are to do.
    #[must_use]
    pub fn critical_section(&self) -> Option<(Range<u64>, Hold)> {
        let reshape = self.reshape.as_ref()?;
        let hold = match reshape.stage {
            Stage::Lost => Hold::Lost,
            _ if self.broken => return None,
            Stage::Beginning | Stage::Critical | Stage::Emptying(After::Moved) => Hold::All,
            _ => Hold::Writes,
        };
        Some((reshape.critical_range()?, hold))
    }

    /// What is lost when the array cannot do without a member that fails.
    pub(crate) fn loss_of_data(&self) -> Loss {
        match self.reshape.as_ref().map(|reshape| reshape.stage) {
            Some(Stage::Critical) => Loss::CriticalSection,
            _ => Loss::Data,
        }
    }

    /// Whether a stop has to wait: for what is on record to be so, and a backup of it to be of no use any more.
    #[must_use]
    pub fn is_in_critical_section(&self) -> bool {
        !self.broken && self.critical_section().is_some()
    }

    /// Whether a reshape that moves data by nothing can.
    pub(super) fn may_move_in_place(&self, to: &NewGeometry) -> bool {
        let DataMove::Moves { shift: 0, .. } = to.data_move else { return true };
        let critical = critical_section(&to.before, &to.geometry, to.data_move);
        critical.is_some_and(|sectors| self.backups(to, sectors).is_some())
    }

    pub(crate) fn take_critical_piece(&mut self) -> Option<SyncPiece> {
        self.reshape.as_mut().filter(|_| !self.broken)?.critical.as_mut()?.piece.take()
    }

    /// Who is to get slots for data of the new geometry, and where each keeps its copy. None if one has no room.
    pub(super) fn backups(
        &self,
        to: &NewGeometry,
        sectors: Sectors,
    ) -> Option<Vec<(MemberId, Backup)>> {
        let mut planned = self.members.clone();
        planned.level();
        planned.begin_reshape(to);
        let is_new = |id: &MemberId| {
            self.members.get(*id).slot().is_none() && planned.get(*id).slot().is_some()
        };
        let written = self.epoch_s + self.now.0 / 1_000_000_000;
        let backup = |id: MemberId| {
            let superblock = self.members.get(id).superblock();
            Some((id, backup_on(superblock, sectors, &to.geometry, written)?))
        };
        self.members.numbered().map(|member| member.0).filter(is_new).map(backup).collect()
    }

    /// Has a shard copy the critical section, while all shards pause: what the others go by, and what that shard goes by.
    pub(super) fn begin_backup(
        &mut self,
        to: NewGeometry,
    ) -> Option<(ShardGeometry, ShardGeometry)> {
        let critical = self.reshape.as_ref().and_then(|reshape| reshape.critical.as_ref());
        let sectors = Sectors(critical.expect("it is of a critical section").sectors);
        let backups = self.backups(&to, sectors).expect("members are fit for it");
        let reshape = self.reshape.as_mut()?;
        let critical = reshape.critical.as_mut()?;
        critical.copies.clone_from(&backups);
        critical.order();
        (reshape.stage, reshape.to) = (Stage::BackingUp, Some(to));
        let before = self.shard_geometry();
        let config = Config {
            level: Level::Raid1,
            layout: Layout::None,
            chunk: Sectors::ZERO,
            raid_disks: backups.len() as u16,
            component: sectors,
            member_sizes: Vec::new(),
        };
        let mut places = before.places.clone();
        for place in &mut places {
            *place = MemberPlace { slot: None, has_log: false, ..*place };
        }
        for (slot, (id, backup)) in (0..).map(Slot).zip(&backups) {
            let data_offset = backup.sections[0].at;
            places[usize::from(id.0)] =
                MemberPlace { data_offset, slot: Some(slot), has_log: false };
        }
        let geometry = Geometry::new(&config).expect("a mirror");
        Some((before, ShardGeometry { geometry, places, in_sync_to: FULLY_TRUSTED }))
    }

    /// A shard has copied the critical section, or moved it. False: the report is not of that.
    pub(crate) fn critical_synced(&mut self, report: &SyncReport) -> bool {
        let has_backups = self.has_backups();
        let Some(reshape) = &mut self.reshape else { return false };
        let Some(critical) = &reshape.critical else { return false };
        let sectors = critical.sectors;
        match reshape.stage {
            Stage::BackingUp if report.ok && has_backups => self.vouch_for_backup(),
            Stage::BackingUp => self.empty_backups(After::GivenUp),
            Stage::Critical if report.ok => {
                reshape.position = Sector(sectors);
                self.updates.request();
            }
            Stage::Critical => {
                // Where it could not be read nothing was written.
                if self.broken {
                    reshape.stage = Stage::Lost;
                }
                self.give_up(Loss::Data);
            }
            _ => return false,
        }
        true
    }

    /// Whether who is to have a copy is still there, if anybody is.
    pub(super) fn has_backups(&self) -> bool {
        let critical = self.reshape.as_ref().and_then(|reshape| reshape.critical.as_ref());
        let is_there = |(id, _): &(MemberId, Backup)| self.members.get(*id).is_present();
        critical.is_none_or(|critical| critical.copies.iter().all(is_there))
    }

    /// Whether a member is not to be given up by anybody's wish, since it holds what a cut would destroy.
    pub(crate) fn holds_backup(&self, member: MemberId) -> bool {
        let critical = self.reshape.as_ref().and_then(|reshape| reshape.critical.as_ref());
        let holds = critical.is_some_and(|it| it.copies.iter().any(|(id, _)| *id == member));
        holds && self.is_in_critical_section()
    }

    /// Has headers say what the copies are, which are stable before.
    fn vouch_for_backup(&mut self) {
        self.send_headers(false);
        if let Some(reshape) = &mut self.reshape {
            reshape.stage = Stage::Vouching;
        }
    }

    /// Has headers say that the copies are of no use any more.
    pub(super) fn empty_backups(&mut self, after: After) {
        self.send_headers(true);
        if let Some(reshape) = &mut self.reshape {
            reshape.stage = Stage::Emptying(after);
        }
        self.backup_written(true);
    }

    fn send_headers(&mut self, are_empty: bool) {
        let critical = self.reshape.as_ref().and_then(|reshape| reshape.critical.as_ref());
        let copies = critical.map(|critical| critical.copies.clone());
        for (id, mut backup) in copies.into_iter().flatten() {
            let member = self.members.get(id);
            if !member.is_present() {
                continue;
            }
            let header = Backup::header_on(member.superblock());
            if are_empty {
                backup.sections[0].array.end = backup.sections[0].array.start;
            }
            for sector in [backup.copy, header] {
                let (target, data) = (Target::Member(id), backup.encode());
                self.writes.send(target, sector, data, (Meta::Backup, true));
            }
        }
    }

    /// A header is stable, or was not written.
    pub(crate) fn backup_written(&mut self, ok: bool) {
        let is_last = !self.writes.is_any_of(Meta::Backup);
        let is_broken = self.broken;
        let Some(reshape) = &mut self.reshape else { return };
        let Some(critical) = &mut reshape.critical else { return };
        critical.is_in_vain |= !ok;
        if !is_last {
            return;
        }
        match reshape.stage {
            Stage::Vouching if critical.is_in_vain => self.empty_backups(After::GivenUp),
            Stage::Vouching => reshape.stage = Stage::BackedUp,
            // The headers were dropped with another member's flush: the copies are still valid, so they are sent again.
            Stage::Emptying(After::Moved) if critical.is_in_vain && !is_broken => {
                critical.is_in_vain = false;
                self.empty_backups(After::Moved);
            }
            Stage::Emptying(After::GivenUp) => reshape.stage = Stage::GivenUp,
            Stage::Emptying(After::Moved) => {
                (reshape.stage, reshape.critical) = (Stage::Moving, None);
            }
            _ => {}
        }
    }
}
