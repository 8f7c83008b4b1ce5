//! The coordinator's part in files of members, of the bitmap and of an overlay that are deleted while they serve. They go on
//! serving, and are gone for good when the server closes them, so that is told while something can still be done. It is
//! looked for when somebody asks and at the stop.

use super::CoordinatorRuntime;
use crate::{
    message::{Answer, Deleted},
    shard_runtime::ShardRuntime,
};
use lapstrake_control::MemberState;
use lapstrake_device::overlay::FileLoss;
use lapstrake_engine::MemberId;
use lapstrake_geometry::Slot;
use tracing::{error, warn};

impl CoordinatorRuntime {
    /// Looks at every member's file and the bitmap's, and says which are newly seen to be deleted.
    pub(super) fn look_for_deleted(&mut self, runtime: &ShardRuntime) {
        for id in 0..self.members.len() {
            let part = &self.members[id];
            if part.gone || part.deleted {
                continue;
            }
            let device = runtime.queue.member(runtime.device(MemberId(id as u16)));
            if device.is_none_or(|device| !device.is_deleted()) {
                continue;
            }
            self.members[id].deleted = true;
            warn!(
                member = self.members[id].path,
                "{}: its file was deleted; it serves on, and is gone for good when the server stops; before \
                 that, `lapstrake add` a spare and `lapstrake replace` it, or copy the array off",
                self.members[id].path
            );
        }
        self.look_for_bitmap(runtime);
        self.look_for_overlay(runtime);
    }

    pub(super) fn look_for_overlay(&mut self, runtime: &ShardRuntime) {
        let Some(path) = self.facts.detail.overlay.as_ref().filter(|_| self.overlay_loss.is_none())
        else {
            return;
        };
        // All members lie beneath one overlay.
        let there = (0..self.members.len()).filter(|&id| !self.members[id].gone);
        let mut devices =
            there.filter_map(|id| runtime.queue.member(runtime.device(MemberId(id as u16))));
        self.overlay_loss = devices.find_map(|device| device.overlay_loss());
        let (what, rest) = match self.overlay_loss {
            Some(FileLoss::Deleted) => ("the overlay's file was deleted", "the array"),
            Some(FileLoss::Spoiled) => {
                ("the beginning of the overlay's file was written over", "what can still be read")
            }
            Some(FileLoss::CutOff) => (
                "the overlay's file became shorter: no more is written to it",
                "what can still be read",
            ),
            None => return,
        };
        error!(
            overlay = path,
            "{path}: {what}; the array serves on, and all that was written to it is gone for good when the server \
             stops; before that, copy off {rest}"
        );
    }

    fn look_for_bitmap(&mut self, runtime: &ShardRuntime) {
        let Some(file) = self.bitmap_file.as_mut().filter(|file| !file.deleted) else { return };
        if runtime.queue.member(file.device).is_none_or(|device| !device.is_deleted()) {
            return;
        }
        file.deleted = true;
        let path = file.path.display();
        warn!(bitmap_file = %path, "{path}: the write-intent bitmap's file was deleted");
        if let Some(supervisor) = self.coordinator.supervisor_mut() {
            supervisor.handle_bitmap_gone(runtime.now());
        }
    }

    /// Whose files are deleted, and whether the array ends with them.
    pub(super) fn deleted(&mut self, runtime: &ShardRuntime) -> Answer {
        self.look_for_deleted(runtime);
        let members = self.detail(runtime).members;
        let lost =
            members.iter().filter(|member| member.deleted && member.state != MemberState::Faulty);
        let paths = lost.map(|member| member.path.clone()).collect();
        let overlay = self.facts.detail.overlay.clone().filter(|_| self.overlay_loss.is_some());
        let holds = |slot: Slot, also_deleted: bool| {
            members.iter().any(|member| {
                let counts =
                    member.state == MemberState::InSync && (also_deleted || !member.deleted);
                counts && member.slot == Some(slot.0)
            })
        };
        let survives = |also_deleted| self.geometry().survives(|slot| holds(slot, also_deleted));
        Answer::Deleted(Deleted { paths, is_end: survives(true) && !survives(false), overlay })
    }
}
