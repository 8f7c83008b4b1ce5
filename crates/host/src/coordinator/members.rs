//! The operator's word on members that come and go, and on recovery, resync, check and repair.

mod error;

pub use error::{MemberError, SyncError};

use super::{CoordinatorRuntime, MemberFact};
use crate::{
    command_error::CommandError,
    message::{Addition, Answer, Message},
    shard_runtime::ShardRuntime,
    window::CheckWindow,
};
use lapstrake_control::{
    self as control, FAILED, HowAdded, MemberDetail, MemberWork, SyncDetail, SyncRequest,
};
use lapstrake_engine::{Added, DiskState, FULLY_TRUSTED, MemberId, Mismatch, SyncAction, SyncEnd};
use lapstrake_geometry::Level;
use lapstrake_metadata::Superblock;
use std::{
    ops,
    sync::mpsc::{self, Sender},
};
use tracing::info;

/// Members on their way out, by one command.
pub(super) struct Removal {
    members: Vec<MemberId>,
    answer: Sender<Answer>,
    /// How many devices are still open, over all shards; none is closed before the removal is on record.
    open: Option<usize>,
}

impl CoordinatorRuntime {
    /// The member that the operator means: digits are its number, all else any of its names.
    fn find(&self, name: &str) -> Result<usize, MemberError> {
        let number = name.parse::<u32>().ok();
        let is_meant = |id: &usize| match number {
            Some(_) => self.number(*id) == number,
            None => self.members[*id].names.iter().any(|own| own == name),
        };
        let present = |id: &usize| !self.members[*id].gone;
        let found: Vec<usize> = (0..self.members.len()).filter(present).filter(is_meant).collect();
        match found[..] {
            [id] => Ok(id),
            [] => {
                let all = (0..self.members.len()).filter(present);
                let members = all.map(|id| self.address(id).into()).collect();
                Err(MemberError::Unknown { name: name.into(), members })
            }
            _ => {
                let numbers = found.iter().filter_map(|&id| self.number(id)).collect();
                Err(MemberError::Ambiguous { name: name.into(), numbers })
            }
        }
    }

    /// A member's name that is right in every directory.
    fn address(&self, id: usize) -> &str {
        let MemberFact { path, names, .. } = &self.members[id];
        names.iter().find(|name| name.starts_with('/')).unwrap_or(path)
    }

    fn number(&self, id: usize) -> Option<u32> {
        Some(self.coordinator.supervisor()?.members().nth(id)?.0.dev_number())
    }

    pub(super) fn fail(
        &mut self,
        runtime: &mut ShardRuntime,
        name: &str,
        force: bool,
    ) -> Result<MemberDetail, CommandError> {
        if self.coordinator.is_broken() {
            return Err(self.cannot_change());
        }
        let id = self.find(name)?;
        let now = runtime.now();
        let is_reshaped = self.is_reshaped();
        let supervisor = self.coordinator.supervisor_mut().ok_or(CommandError::ReadOnly)?;
        let (name, array) = (name.to_owned(), self.facts.name.clone());
        let state = supervisor.state(MemberId(id as u16)).0;
        if state == DiskState::InSync && supervisor.needs_all() && !force {
            return Err(MemberError::ResyncDue { name, array }.into());
        }
        let worn = supervisor.backed_by(MemberId(id as u16)).filter(|_| !force);
        if let Some(worn) = worn.filter(|_| state == DiskState::InSync) {
            let id = usize::from(worn.0);
            let (worn, worn_number) = (self.members[id].path.clone(), self.number(id));
            return Err(MemberError::BacksBadBlocks { name, worn, worn_number, array }.into());
        }
        if !supervisor.handle_fail(now, MemberId(id as u16)) {
            let is_journal = supervisor.state(MemberId(id as u16)).0 == DiskState::Journal;
            let is_redundant = supervisor.geometry().level().has_redundancy();
            return Err(match is_redundant {
                _ if is_journal => MemberError::JournalNotFailed { name, array },
                true if is_reshaped => MemberError::NeededWhileReshaped { name, array },
                true if supervisor.is_degraded() => {
                    MemberError::NeededWhileDegraded { name, array }
                }
                true => MemberError::Needed { name, number: self.number(id), array },
                false => MemberError::NeededWithoutRedundancy { name, array },
            }
            .into());
        }
        self.member_detail(id).ok_or(CommandError::ReadOnly)
    }

    /// A reshape is under way, or about to begin.
    pub(super) fn is_reshaped(&self) -> bool {
        let supervisor = self.coordinator.supervisor();
        supervisor.is_some_and(|supervisor| supervisor.geometry_before().is_some())
    }

    /// Has a member replaced while it serves. Gives the replacement, if there is a spare for it yet.
    pub(super) fn replace(
        &mut self,
        runtime: &ShardRuntime,
        name: &str,
        with: Option<&str>,
    ) -> Result<Option<MemberDetail>, CommandError> {
        if self.coordinator.is_broken() {
            return Err(self.cannot_change());
        }
        if self.is_reshaped() {
            return Err(MemberError::Reshaped { array: self.facts.name.clone() }.into());
        }
        let (id, with) = (self.find(name)?, with.map(|with| self.find(with)).transpose()?);
        let (name, array) = (name.to_owned(), self.facts.name.clone());
        if !self.is_redundant() {
            let level = self.geometry().level().to_string();
            return Err(MemberError::NotReplacedAtLevel { name, level }.into());
        }
        if self.facts.detail.version == "0.90" {
            return Err(MemberError::NotReplacedBySuperblock { name }.into());
        }
        if let Some(with) = with.filter(|&with| self.state(with) != Some(DiskState::Spare)) {
            let member = self.members[with].path.clone();
            return Err(MemberError::NoSpare { member, array }.into());
        }
        let now = runtime.now();
        let supervisor = self.coordinator.supervisor_mut().ok_or(CommandError::ReadOnly)?;
        let with = with.map(|with| MemberId(with as u16));
        if !supervisor.handle_replace(now, MemberId(id as u16), with) {
            return Err(MemberError::NotReplaceable { name, array }.into());
        }
        let slot = supervisor.state(MemberId(id as u16)).1;
        let replaces = |&other: &usize| {
            let (state, its, _) = supervisor.state(MemberId(other as u16));
            state == DiskState::Replacement && its == slot
        };
        let replacement = (0..self.members.len()).find(replaces);
        Ok(replacement.and_then(|id| self.member_detail(id)))
    }

    /// Takes members out; the answer comes when they are closed.
    pub(super) fn remove(
        &mut self,
        runtime: &mut ShardRuntime,
        name: &str,
        answer: Sender<Answer>,
    ) {
        let at_once = match self.take_out(runtime, name) {
            Ok(members) if !members.is_empty() => {
                return self.removals.push(Removal { members, answer, open: None });
            }
            Ok(_) => Answer::Removed(Vec::new()),
            Err(why) => Answer::Refused(why),
        };
        // The asker may have gone.
        let _ = answer.send(at_once);
    }

    /// Closes members that a level without redundancy has no use for.
    pub(super) fn let_go_without_slots(&mut self, runtime: &mut ShardRuntime) {
        if self.is_redundant() {
            return;
        }
        let is_failed =
            |id: &usize| !self.members[*id].gone && self.state(*id) == Some(DiskState::Faulty);
        for id in (0..self.members.len()).filter(is_failed) {
            let path = &self.members[id].path;
            info!(member = path, "{path}: is no member any more: the level has no use for it");
        }
        let (nobody, _) = mpsc::channel();
        self.remove(runtime, FAILED, nobody);
    }

    fn take_out(
        &mut self,
        runtime: &ShardRuntime,
        name: &str,
    ) -> Result<Vec<MemberId>, CommandError> {
        if self.coordinator.is_broken() {
            return Err(self.cannot_change());
        }
        let ids: Vec<usize> = match name {
            FAILED => (0..self.members.len())
                .filter(|&id| !self.members[id].gone && self.state(id) == Some(DiskState::Faulty))
                .collect(),
            name => vec![self.find(name)?],
        };
        let mut removed = Vec::new();
        for id in ids {
            let now = runtime.now();
            let supervisor = self.coordinator.supervisor_mut().ok_or(CommandError::ReadOnly)?;
            let member = MemberId(id as u16);
            if !supervisor.handle_remove(now, member) {
                if name == FAILED {
                    continue;
                }
                let (member, array) = (self.members[id].path.clone(), self.facts.name.clone());
                return Err(match self.state(id) {
                    Some(DiskState::Journal) => MemberError::JournalNotRemoved { member, array },
                    _ => MemberError::InUse { member, number: self.number(id), array },
                }
                .into());
            }
            self.members[id].gone = true;
            removed.push(member);
        }
        Ok(removed)
    }

    /// Closes members that were removed, once that is on record.
    pub(super) fn close_removed(&mut self, runtime: &mut ShardRuntime) {
        let is_recorded = self.coordinator.supervisor().is_some_and(|s| s.is_recorded());
        for removal in self.removals.iter_mut().filter(|it| is_recorded && it.open.is_none()) {
            removal.open = Some(runtime.peers.len() * removal.members.len());
            for &member in &removal.members {
                for peer in runtime.peers.iter() {
                    peer.send(Message::RemoveDevice(member));
                }
            }
        }
    }

    /// A shard has closed a member.
    pub(crate) fn device_removed(&mut self, member: MemberId) {
        let of = |removal: &Removal| removal.members.contains(&member);
        let Some(index) = self.removals.iter().position(of) else { return };
        let open = self.removals[index].open.as_mut().expect("told to close it");
        *open -= 1;
        if *open == 0 {
            let removal = self.removals.swap_remove(index);
            // The asker may have gone.
            let _ = removal.answer.send(Answer::Removed(self.paths(&removal.members)));
        }
    }

    /// Nothing more is put on record, which some wait for.
    pub(super) fn lose_removals(&mut self) {
        let is_recorded = |removal: &Removal| removal.open.is_some();
        let removals = std::mem::take(&mut self.removals);
        let (recorded, lost): (Vec<_>, _) = removals.into_iter().partition(is_recorded);
        self.removals = recorded;
        for removal in lost {
            let members = self.paths(&removal.members);
            let error = MemberError::RemovalNotRecorded { members, loss: self.why_broken() };
            // The asker may have gone.
            let _ = removal.answer.send(Answer::HalfWay(error.into()));
        }
    }

    /// All is closed with the array.
    pub(super) fn end_removals(&mut self) {
        if self.coordinator.is_broken() {
            self.lose_removals();
        }
        for removal in std::mem::take(&mut self.removals) {
            // The asker may have gone.
            let _ = removal.answer.send(Answer::Removed(self.paths(&removal.members)));
        }
    }

    fn paths(&self, members: &[MemberId]) -> Vec<String> {
        members.iter().map(|id| self.members[usize::from(id.0)].path.clone()).collect()
    }

    /// What a new member's superblock is made after, and its number in the table of devices.
    pub(super) fn template(
        &self,
        runtime: &ShardRuntime,
    ) -> Result<(Box<Superblock>, u32), CommandError> {
        if self.coordinator.is_broken() {
            return Err(self.cannot_change());
        }
        if self.is_overlaid(runtime) {
            return Err(MemberError::Overlaid.into());
        }
        let supervisor = self.coordinator.supervisor().ok_or(CommandError::ReadOnly)?;
        if self.is_reshaped() {
            return Err(MemberError::Reshaped { array: self.facts.name.clone() }.into());
        }
        // Where it goes is known to those who were members at its beginning.
        if supervisor.is_changing_bitmap() {
            return Err(MemberError::BitmapIsChanging.into());
        }
        // Members that have gone keep their numbers.
        if self.members.len() > usize::from(u16::MAX) {
            return Err(MemberError::TooMany { count: self.members.len() }.into());
        }
        let level = self.geometry().level();
        if !self.is_redundant() && level != Level::Linear {
            return Err(MemberError::LevelTakesNone { level: level.to_string() }.into());
        }
        let members: Vec<_> = supervisor.members().collect();
        let fresh = members.iter().find(|member| member.1 == DiskState::InSync);
        let like = fresh.ok_or(MemberError::NoneInSync)?.0.clone();
        let numbers = u32::from(self.geometry().raid_disks())..like.devices_max();
        let taken =
            members.iter().map(|member| (member.0.dev_number(), member.1 == DiskState::Removed));
        let number = free_number(numbers, &taken.collect::<Vec<_>>()).ok_or_else(|| {
            MemberError::TableFull { most: like.devices_max(), array: self.facts.name.clone() }
        })?;
        Ok((Box::new(like), number))
    }

    /// Whether a former member can be taken back as what it was. An error if it is not to be taken at all.
    pub(super) fn can_catch_up(&self, own: &Superblock, force: bool) -> Result<bool, CommandError> {
        let supervisor = self.coordinator.supervisor().ok_or(CommandError::ReadOnly)?;
        if !force && supervisor.may_hold_writes_of_its_own(own) {
            return Err(MemberError::HoldsWritesOfItsOwn.into());
        }
        Ok(supervisor.can_catch_up(own))
    }

    /// Takes in a member that was made ready after a look at the array as it was.
    pub(super) fn add(
        &mut self,
        runtime: &mut ShardRuntime,
        addition: Addition,
    ) -> Result<Answer, CommandError> {
        let Addition { device, names, superblock, catches_up, bad_blocks } = addition;
        // Who has left or come, and a number that was given twice.
        let (like, number) = self.template(runtime)?;
        let now = runtime.now();
        let supervisor = self.coordinator.supervisor_mut().ok_or(CommandError::ReadOnly)?;
        let as_seen = match catches_up {
            true => supervisor.can_catch_up(&superblock),
            // Another bitmap may lie over what was to be its data.
            false => {
                superblock.bitmap_offset() == like.bitmap_offset()
                    && superblock.component() == like.component()
                    && superblock.raid_disks() == like.raid_disks()
                    && superblock.dev_number() == number
            }
        };
        if !as_seen {
            return Ok(Answer::Outdated);
        }
        runtime.add_device(device.clone());
        for peer in runtime.peers.iter().skip(1) {
            peer.send(Message::AddDevice(device.clone()));
        }
        let rotational = device.rotational();
        let (id, added) = supervisor.handle_add(now, *superblock, bad_blocks, rotational);
        self.members.push(MemberFact::new(&device, names));
        let how = match (added, self.state(usize::from(id.0))) {
            (Added::CatchesUp, _) => HowAdded::ReAdded,
            (Added::Spare, Some(DiskState::Recovering)) => HowAdded::Recovery,
            (Added::Spare, _) => HowAdded::Spare,
        };
        info!(member = %device.spec(), %how, "{} was added ({how})", device.spec());
        let detail = self.member_detail(usize::from(id.0)).ok_or(CommandError::ReadOnly)?;
        self.reshape_on(runtime);
        Ok(Answer::Added(Box::new(detail), how))
    }

    pub(super) fn sync(
        &mut self,
        runtime: &mut ShardRuntime,
        action: SyncRequest,
    ) -> Result<(), CommandError> {
        let now = runtime.now();
        let (is_broken, level) = (self.coordinator.is_broken(), self.geometry().level());
        let supervisor = self.coordinator.supervisor_mut().ok_or(CommandError::ReadOnly)?;
        let action = match action {
            SyncRequest::Check => SyncAction::Check,
            SyncRequest::Repair => SyncAction::Repair,
            SyncRequest::Resync => SyncAction::Resync,
            SyncRequest::Idle => {
                supervisor.handle_idle(now);
                return Ok(());
            }
            SyncRequest::Frozen => {
                supervisor.handle_freeze(now);
                return Ok(());
            }
            SyncRequest::Resume => {
                supervisor.handle_resume(now);
                self.go_on_if_waiting(runtime);
                return Ok(());
            }
        };
        if !level.has_redundancy() {
            return Err(SyncError::NothingToCompare { level: level.to_string() }.into());
        }
        if is_broken {
            return Err(self.cannot_change());
        }
        if supervisor.is_frozen() {
            let (action, array) = (action_name(action), self.facts.name.clone());
            return Err(SyncError::Frozen { action, array }.into());
        }
        if !supervisor.handle_sync(now, action) {
            let Some(progress) = supervisor.sync_progress(now) else {
                return Err(SyncError::NoRedundancyLeft.into());
            };
            let (action, array) = (action_name(progress.action), self.facts.name.clone());
            return Err(SyncError::Running { action, array }.into());
        }
        Ok(())
    }

    /// Holds a check or repair outside of its part of the day.
    pub(super) fn heed_window(&mut self, runtime: &ShardRuntime) {
        let now = runtime.now();
        let is_open = self.check_window.is_none_or(CheckWindow::is_open);
        self.window_at = self.check_window.map(|_| now.after(WINDOW_LOOK_NS));
        if let Some(supervisor) = self.coordinator.supervisor_mut() {
            supervisor.hold_checks(now, !is_open);
        }
    }

    pub(super) fn state(&self, id: usize) -> Option<DiskState> {
        Some(self.coordinator.supervisor()?.state(MemberId(id as u16)).0)
    }

    pub(super) fn member_detail(&self, id: usize) -> Option<MemberDetail> {
        let supervisor = self.coordinator.supervisor()?;
        let superblock = supervisor.members().nth(id)?.0;
        let (state, slot, recovered) = supervisor.state(MemberId(id as u16));
        let part = &self.members[id];
        Some(MemberDetail {
            path: part.path.clone(),
            file: part.file.clone().into(),
            number: superblock.dev_number(),
            slot: slot.map(|slot| slot.0),
            state: super::member_state(state),
            recovered_bytes: matches!(state, DiskState::Recovering | DiskState::Replacement)
                .then_some(recovered)
                .filter(|&to| to != FULLY_TRUSTED)
                .map(|to| to.0 * 512),
            bad_block_bytes: supervisor.bad_sectors(MemberId(id as u16)).bytes(),
            write_mostly: superblock.write_mostly(),
            awaits_replacement: supervisor.awaits_replacement(MemberId(id as u16)),
            direct: part.direct,
            deleted: part.deleted,
            work: self.member_work(id),
            array: None,
        })
    }

    /// What all shards have sent to a member.
    pub(super) fn member_work(&self, id: usize) -> MemberWork {
        let mut work = MemberWork::default();
        self.counters.iter().for_each(|counters| counters.add_member(id, &mut work));
        work
    }

    /// What runs, in the operator's terms.
    pub(super) fn sync_detail(&self, runtime: &ShardRuntime) -> Option<SyncDetail> {
        let progress = self.coordinator.supervisor()?.sync_progress(runtime.now())?;
        let left = progress.end.0.saturating_sub(progress.done.0);
        Some(SyncDetail {
            action: action_name(progress.action),
            done_bytes: progress.done.0 * 512,
            total_bytes: progress.end.0 * 512,
            speed_bytes: progress.speed * 512,
            finish_s: (progress.speed > 0).then(|| left.div_ceil(progress.speed)),
            frozen: self.coordinator.supervisor()?.is_frozen(),
            awaits_window: progress.held,
        })
    }

    pub(super) fn ranges(&self, mismatches: &[Mismatch]) -> Vec<control::Mismatch> {
        let range = |mismatch: &Mismatch| control::Mismatch {
            offset_bytes: mismatch.start.0 * 512,
            len_bytes: mismatch.len.0 * 512,
            member: mismatch.member.map(|id| self.members[usize::from(id.0)].path.clone()),
        };
        mismatches.iter().map(range).collect()
    }
}

/// A number for a new device: one that nobody had, as who was removed may come back; else of one of these.
/// `taken`: who has or had it, and whether it was removed.
fn free_number(mut all: ops::Range<u32>, taken: &[(u32, bool)]) -> Option<u32> {
    let is_new = |number: &u32| taken.iter().all(|had| had.0 != *number);
    let is_free = |number: &u32| taken.iter().all(|had| had.0 != *number || had.1);
    all.clone().find(is_new).or_else(|| all.find(is_free))
}

/// How often to look whether the part of the day has come, or gone, in which checks run.
const WINDOW_LOOK_NS: u64 = 10_000_000_000;

pub(super) fn action_name(action: SyncAction) -> control::SyncAction {
    match action {
        SyncAction::Recovery => control::SyncAction::Recovery,
        SyncAction::Resync => control::SyncAction::Resync,
        SyncAction::Check => control::SyncAction::Check,
        SyncAction::Repair => control::SyncAction::Repair,
        SyncAction::Reshape => control::SyncAction::Reshape,
        SyncAction::Rewrite => unreachable!("shards do it by themselves"),
    }
}

pub(super) fn end_name(end: SyncEnd) -> control::SyncResult {
    match end {
        SyncEnd::Done => control::SyncResult::Done,
        SyncEnd::Interrupted => control::SyncResult::Interrupted,
        SyncEnd::Failed => control::SyncResult::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::free_number;

    #[test]
    fn numbers_of_members_that_were_removed_are_used_again_when_no_others_are_left() {
        assert_eq!(free_number(2..5, &[(0, false), (1, false)]), Some(2));
        assert_eq!(free_number(2..5, &[(2, true), (3, false)]), Some(4));
        assert_eq!(free_number(2..5, &[(2, false), (3, true), (4, false)]), Some(3));
        assert_eq!(free_number(2..5, &[(3, true), (3, false), (2, false), (4, false)]), None);
    }
}
