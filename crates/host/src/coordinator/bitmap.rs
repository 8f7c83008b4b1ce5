//! The coordinator's part in changes of the write-intent bitmap.

use super::{
    CoordinatorRuntime,
    members::{READ_ONLY, action_name},
};
use crate::{
    array::consistency_policy,
    message::{Answer, BitmapWish},
    shard_runtime::ShardRuntime,
};
use lapstrake_control::{BitmapLocation, BitmapPlace, Detail};
use lapstrake_device::Member;
use lapstrake_engine::{DiskState, MemberId, NewBitmap, Supervisor};
use lapstrake_geometry::Sectors;
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
    ) -> Result<Answer, String> {
        let supervisor = self.coordinator.supervisor().ok_or(READ_ONLY)?;
        if !self.facts.redundant {
            return Err(format!(
                "a {} array has no use for a write-intent bitmap; nothing was changed",
                self.facts.detail.level
            ));
        }
        let now = supervisor.bitmap();
        let path = self.bitmap_file.as_ref().map(|file| &file.path);
        let is_lockless = now.is_some_and(bitmap::Superblock::is_lockless);
        if wish.place == BitmapPlace::Lockless {
            return match is_lockless {
                true if wish.chunk.is_none() && wish.write_behind.is_none() => {
                    Ok(Answer::AlreadySo)
                }
                _ => Err("a lockless bitmap comes with a new array only, as with mdadm; nothing was changed".into()),
            };
        }
        if is_lockless && wish.place != BitmapPlace::None {
            return Err("the array has a lockless bitmap, which has neither another chunk nor another place; \
                        take it away first (--bitmap none); nothing was changed"
                .into());
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
            return Err("a member is missing, and without the lockless bitmap all redundancy is to be made right; \
                        nothing was changed; add a member first"
                .into());
        }
        let write_behind = wish.write_behind.or(now.map(|sb| sb.write_behind)).unwrap_or(0);
        if write_behind > bitmap::WRITE_BEHIND_MAX {
            let most = bitmap::WRITE_BEHIND_MAX;
            return Err(format!(
                "write-behind of {write_behind}, at most {most}; nothing was changed"
            ));
        }
        if write_behind > 0 && !self.facts.is_mirror {
            return Err(format!(
                "write-behind of {write_behind} is for raid1, not for {}; nothing was changed",
                self.facts.detail.level
            ));
        }
        if self.facts.is_logged && wish.place != BitmapPlace::None {
            return Err(
                "an array with a journal or partial parity logs takes no bitmap: it needs no \
                        resync after an unclean stop; nothing was changed"
                    .into(),
            );
        }
        // What stays where it is keeps its chunk.
        let own_chunk = now.filter(|_| is_there).map(|sb| sb.chunksize);
        let chunk = wish.chunk.or(own_chunk);
        let members = members(supervisor);
        let like = *members.first().ok_or(
            "every member is faulty or removed, and none could hold a bitmap; nothing was changed",
        )?;
        let told = |why: String| format!("{why}; nothing was changed");
        let chunk_and_offset = match &wish.place {
            BitmapPlace::None | BitmapPlace::Lockless => return Ok(Answer::Bitmap(Box::new(None))),
            BitmapPlace::Internal => {
                let place = bitmap::added(members, like.sync_size(), chunk)
                    .map_err(|error| told(error.to_string()))?;
                (place.chunk, Some(place.offset))
            }
            BitmapPlace::File(_) => {
                self.may_have_file(runtime)?;
                let chunk = bitmap::external(like.sync_size(), chunk)
                    .map_err(|error| told(error.to_string()))?;
                (chunk, None)
            }
        };
        let (chunk, offset) = chunk_and_offset;
        let new = bitmap::Superblock::new(like.bitmap_uuid(), like.sync_size(), chunk);
        let superblock = bitmap::Superblock { write_behind, ..new };
        Ok(Answer::Bitmap(Box::new(Some(NewBitmap { superblock, offset }))))
    }

    fn may_change_bitmap(&self, runtime: &ShardRuntime) -> Result<(), String> {
        if self.coordinator.is_broken() {
            return Err(self.cannot_change());
        }
        if self.coordinator.supervisor().is_some_and(Supervisor::is_changing_bitmap) {
            return Err(
                "the bitmap is being changed or given up just now; nothing was changed; try again"
                    .into(),
            );
        }
        let progress = self.coordinator.supervisor().and_then(|s| s.sync_progress(runtime.now()));
        progress.map_or(Ok(()), |progress| {
            Err(format!(
                "the bitmap cannot be changed during a {}; `lapstrake wait {}` waits for its end; \
                 nothing was changed",
                action_name(progress.action),
                self.facts.name
            ))
        })
    }

    /// Whether an overlay takes the members' writes.
    pub(super) fn is_overlaid(&self, runtime: &ShardRuntime) -> bool {
        let ids = (0..self.members.len() as u16).map(MemberId);
        let mut devices = ids.filter_map(|id| runtime.queue.member(runtime.device(id)));
        devices.any(|device| device.is_overlaid())
    }

    fn may_have_file(&self, runtime: &ShardRuntime) -> Result<(), String> {
        if let Some(file) = &self.bitmap_file {
            return Err(format!(
                "the bitmap is in {} now; take it away first (--bitmap none); nothing was changed",
                file.path.display()
            ));
        }
        if self.is_overlaid(runtime) {
            return Err("all writes go to the overlay, and a bitmap's file would be none of it; \
                        nothing was changed"
                .into());
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
    ) -> Result<(), String> {
        self.may_change_bitmap(runtime)?;
        let now = runtime.now();
        let supervisor = self.coordinator.supervisor_mut().ok_or(READ_ONLY)?;
        if let Some(NewBitmap { superblock, offset: Some(offset) }) = &to {
            let size = Sectors(superblock.sync_size);
            let place = bitmap::added(members(supervisor), size, Some(superblock.chunksize));
            if place.map(|place| place.offset) != Ok(*offset) {
                return Err(
                    "members have come or gone meanwhile; nothing was changed; try again".into()
                );
            }
        }
        if !supervisor.handle_bitmap(now, to) {
            return Err("the array does something else; nothing was changed".into());
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
        let why = format!(
            "{}: the write-intent bitmap's file cannot be kept (the server's log says why), and is given up; the \
             array goes on without a bitmap, so that after an unclean stop all is resynced; no data was changed; \
             `lapstrake grow {} --bitmap` with `internal` or another file makes a new one; a start that still names \
             this file resyncs all, too",
            file.path.display(),
            self.facts.name
        );
        error!(bitmap_file = %file.path.display(), "{why}");
        self.answer_bitmap(Answer::Refused(why));
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
            let redundant = self.facts.redundant;
            detail.consistency_policy = consistency_policy(member, superblock.is_some(), redundant);
        }
    }
}
