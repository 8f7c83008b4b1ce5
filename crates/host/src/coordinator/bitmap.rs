//! The coordinator's part in changes of the write-intent bitmap.

mod error;

pub use error::BitmapError;

use super::{CoordinatorRuntime, members::action_name};
use crate::{
    array::consistency_policy,
    command_error::CommandError,
    message::{Answer, BitmapWish},
    shard_runtime::ShardRuntime,
};
use lapstrake_control::{BitmapLocation, BitmapPlace, Detail};
use lapstrake_device::Member;
use lapstrake_engine::{DiskState, MemberId, NewBitmap, Supervisor};
use lapstrake_geometry::{Geometry, Sectors};
use lapstrake_metadata::{Superblock, bitmap};
use std::{
    path::PathBuf,
    sync::{Arc, mpsc::Sender},
};
use tracing::{error, info};

/// Where the bitmap's file is.
#[derive(Debug)]
pub(super) struct BitmapFile {
    /// The queue's index of it.
    pub device: usize,
    pub path: PathBuf,
    /// Seen to be deleted, and told.
    pub deleted: bool,
}

/// Superblocks of all who have room for a bitmap of the array.
fn members(supervisor: &Supervisor) -> Vec<&Superblock> {
    let is_there = |state| !matches!(state, DiskState::Faulty | DiskState::Removed);
    supervisor.members().filter(|member| is_there(member.1)).map(|member| member.0).collect()
}

impl CoordinatorRuntime {
    /// Decides what it takes to fulfil a wish.
    pub(super) fn plan_bitmap(
        &self,
        runtime: &ShardRuntime,
        wish: &BitmapWish,
    ) -> Result<Answer, CommandError> {
        let supervisor = self.coordinator.supervisor().ok_or(CommandError::ReadOnly)?;
        if !self.is_redundant() {
            let level = self.geometry().level().to_string();
            return Err(BitmapError::NoRedundancy { level }.into());
        }
        let now = supervisor.bitmap();
        let path = self.bitmap_file.as_ref().map(|file| &file.path);
        let is_lockless = now.is_some_and(bitmap::Superblock::is_lockless);
        if wish.place == BitmapPlace::Lockless {
            return match is_lockless {
                true if wish.chunk.is_none() && wish.write_behind.is_none() => {
                    Ok(Answer::AlreadySo)
                }
                _ => Err(BitmapError::LocklessComesWithNewArray.into()),
            };
        }
        if is_lockless && wish.place != BitmapPlace::None {
            return Err(BitmapError::IsLockless.into());
        }
        let is_there = match &wish.place {
            BitmapPlace::Lockless => unreachable!("answered above"),
            BitmapPlace::None => now.is_none(),
            BitmapPlace::Internal => now.is_some() && path.is_none(),
            BitmapPlace::File(wanted) => now.is_some() && path == Some(wanted),
        };
        let as_wished = now.is_none_or(|sb| {
            wish.chunk.is_none_or(|chunk| sb.chunksize == chunk)
                && wish.write_behind.is_none_or(|behind| sb.write_behind == behind)
        });
        if is_there && as_wished {
            return Ok(Answer::AlreadySo);
        }
        self.may_change_bitmap(runtime)?;
        if supervisor.is_bitmap_last_guide() && supervisor.is_degraded() {
            return Err(BitmapError::LocklessWhileDegraded.into());
        }
        let write_behind = wish.write_behind.or(now.map(|sb| sb.write_behind)).unwrap_or(0);
        if write_behind > bitmap::WRITE_BEHIND_MAX {
            return Err(BitmapError::WriteBehindAboveMost { found: write_behind }.into());
        }
        if write_behind > 0 && !matches!(self.geometry(), Geometry::Mirror(_)) {
            let level = self.geometry().level().to_string();
            return Err(BitmapError::WriteBehindLevel { found: write_behind, level }.into());
        }
        if self.facts.is_logged && wish.place != BitmapPlace::None {
            return Err(BitmapError::HasLogs.into());
        }
        // What stays where it is keeps its chunk.
        let own_chunk = now.filter(|_| is_there).map(|sb| sb.chunksize);
        let chunk = wish.chunk.or(own_chunk);
        let members = members(supervisor);
        let like = *members.first().ok_or(BitmapError::NoMember)?;
        let chunk_and_offset = match &wish.place {
            BitmapPlace::None | BitmapPlace::Lockless => return Ok(Answer::Bitmap(Box::new(None))),
            BitmapPlace::Internal => {
                let place =
                    bitmap::added(members, like.sync_size(), chunk).map_err(BitmapError::from)?;
                (place.chunk, Some(place.offset))
            }
            BitmapPlace::File(_) => {
                self.may_have_file(runtime)?;
                let chunk = bitmap::external(like.sync_size(), chunk).map_err(BitmapError::from)?;
                (chunk, None)
            }
        };
        let (chunk, offset) = chunk_and_offset;
        let new = bitmap::Superblock::new(like.bitmap_uuid(), like.sync_size(), chunk);
        let superblock = bitmap::Superblock { write_behind, ..new };
        Ok(Answer::Bitmap(Box::new(Some(NewBitmap { superblock, offset }))))
    }

    fn may_change_bitmap(&self, runtime: &ShardRuntime) -> Result<(), CommandError> {
        if self.coordinator.is_broken() {
            return Err(self.cannot_change());
        }
        let supervisor = self.coordinator.supervisor();
        // A reshape has the bitmap go first.
        if let Some(progress) = supervisor.and_then(|it| it.sync_progress(runtime.now())) {
            let (action, array) = (action_name(progress.action), self.facts.name.clone());
            return Err(BitmapError::DuringSync { action, array }.into());
        }
        match supervisor.is_some_and(Supervisor::is_changing_bitmap) {
            true => Err(BitmapError::IsChanging.into()),
            false => Ok(()),
        }
    }

    /// Whether an overlay takes the members' writes.
    pub(super) fn is_overlaid(&self, runtime: &ShardRuntime) -> bool {
        let ids = (0..self.members.len() as u16).map(MemberId);
        let mut devices = ids.filter_map(|id| runtime.queue.member(runtime.device(id)));
        devices.any(|device| device.is_overlaid())
    }

    fn may_have_file(&self, runtime: &ShardRuntime) -> Result<(), BitmapError> {
        if let Some(file) = &self.bitmap_file {
            return Err(BitmapError::IsInFile { file: file.path.clone() });
        }
        if self.is_overlaid(runtime) {
            return Err(BitmapError::Overlaid);
        }
        Ok(())
    }

    /// Begins a change that was planned; who asked hears of its end.
    pub(super) fn begin_bitmap(
        &mut self,
        runtime: &mut ShardRuntime,
        to: Option<NewBitmap>,
        file: Option<Arc<Member>>,
        answer: Sender<Answer>,
    ) {
        let begun = self.try_begin_bitmap(runtime, to, file);
        match begun {
            Ok(()) => self.bitmap_answer = Some(answer),
            Err(why) => {
                // The asker may have gone.
                let _ = answer.send(Answer::Refused(why));
            }
        }
    }

    fn try_begin_bitmap(
        &mut self,
        runtime: &mut ShardRuntime,
        to: Option<NewBitmap>,
        file: Option<Arc<Member>>,
    ) -> Result<(), CommandError> {
        self.may_change_bitmap(runtime)?;
        let now = runtime.now();
        let supervisor = self.coordinator.supervisor_mut().ok_or(CommandError::ReadOnly)?;
        if let Some(NewBitmap { superblock, offset: Some(offset) }) = &to {
            let size = Sectors(superblock.sync_size);
            let place = bitmap::added(members(supervisor), size, Some(superblock.chunksize));
            if place.map(|place| place.offset) != Ok(*offset) {
                return Err(BitmapError::MembersChanged.into());
            }
        }
        if !supervisor.handle_bitmap(now, to) {
            return Err(BitmapError::Busy.into());
        }
        if let Some(file) = file {
            let path = file.spec().path.clone();
            let device = runtime.queue.add_member(file);
            self.bitmap_file = Some(BitmapFile { device, path, deleted: false });
        }
        Ok(())
    }

    /// The bitmap is as it was to be.
    pub(super) fn bitmap_changed(&mut self, runtime: &mut ShardRuntime) {
        let Some(supervisor) = self.coordinator.supervisor() else { return };
        let is_external = supervisor.bitmap().is_some() && supervisor.bitmap_offset().is_none();
        if let Some(file) = self.bitmap_file.take_if(|_| !is_external) {
            runtime.queue.remove_member(file.device);
        }
        let chunk = supervisor.bitmap().map(|sb| sb.chunk().bytes() / 1024);
        match (chunk, &self.bitmap_file) {
            (None, _) => info!("the array has no write-intent bitmap any more"),
            (Some(kib), None) => info!("the write-intent bitmap is internal, {kib}K to a bit"),
            (Some(kib), Some(file)) => {
                info!("the write-intent bitmap is in {}, {kib}K to a bit", file.path.display());
            }
        }
        self.answer_bitmap(Answer::Done);
    }

    /// Its file refuses writes or is gone. What the array does then ends with [`Self::bitmap_changed`].
    pub(super) fn bitmap_lost(&mut self) {
        let Some(file) = &self.bitmap_file else { return };
        let why = BitmapError::FileLost { file: file.path.clone(), array: self.facts.name.clone() };
        error!(bitmap_file = %file.path.display(), "{why}");
        self.answer_bitmap(Answer::Refused(why.into()));
    }

    pub(super) fn answer_bitmap(&mut self, what: Answer) {
        if let Some(answer) = self.bitmap_answer.take() {
            // The asker may have gone.
            let _ = answer.send(what);
        }
    }

    /// What there is to say of the bitmap.
    pub(super) fn bitmap_detail(&self, supervisor: &Supervisor, detail: &mut Detail) {
        let superblock = supervisor.bitmap();
        detail.bitmap_bits = supervisor.bitmap_bits();
        detail.write_behind = superblock.map_or(0, |sb| sb.write_behind);
        detail.bitmap_chunk_bytes = superblock.map(|sb| sb.chunk().bytes());
        detail.bitmap_states = supervisor.bitmap_states();
        detail.awaits_lazy_resync = supervisor.awaits_lazy_resync();
        let file = self.bitmap_file.as_ref().filter(|_| superblock.is_some());
        detail.bitmap_file = file.map(|file| file.path.display().to_string());
        let place =
            if file.is_some() { BitmapLocation::External } else { BitmapLocation::Internal };
        detail.bitmap_place = superblock.map(|_| place);
        if let Some((member, _)) = supervisor.members().next() {
            let redundant = self.is_redundant();
            detail.consistency_policy = consistency_policy(member, superblock.is_some(), redundant);
        }
    }
}
