//! The operator changes the write-intent bitmap at moments of the dice's choice.

use super::{Event, Phase, Session};
use crate::disk::{Disk, SECTOR};
use lapstrake_engine::NewBitmap;
use lapstrake_metadata::{
    Superblock,
    bitmap::{self, PAGE},
};

/// What the operator knows of the bitmap's file when a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileUse {
    /// The array has no bitmap in a file.
    None,
    /// It has.
    InUse,
    /// The power went while that was changed, or it failed.
    Unclear,
}

/// A new bitmap's superblock.
pub(crate) fn new_bitmap(like: &Superblock, chunk_sectors: u64, behind: u32) -> bitmap::Superblock {
    let chunk = (chunk_sectors * 512) as u32;
    let mut sb = bitmap::Superblock::new(like.bitmap_uuid(), like.sync_size(), chunk);
    // Bits are to be swept in most sessions.
    (sb.daemon_sleep, sb.write_behind) = (1, behind);
    sb
}

/// A file as it is made for a bitmap: stable, all bits set, behind every array.
pub(crate) fn new_file(sb: &bitmap::Superblock) -> Disk {
    let image = sb.dirty_image(sb.image_bytes().next_multiple_of(PAGE as u64) as usize);
    let mut file = Disk::new((image.len() / SECTOR) as u64);
    file.put(0, &image);
    file
}

impl Session<'_> {
    pub(super) fn plan_bitmaps(&mut self) {
        if self.plan.rebitmaps == 0 {
            return;
        }
        for _ in 0..self.dice.below(self.plan.rebitmaps + 1) {
            let within = self.dice.pick(&[1_000_000, 100_000_000, 3_000_000_000]);
            let delay = self.dice.below(within);
            self.at(delay, Event::Bitmap);
        }
    }

    pub(super) fn change_bitmap(&mut self) {
        if self.phase != Phase::Load {
            return;
        }
        let to = self.draw_bitmap();
        let file = to.as_ref().filter(|to| to.offset.is_none()).map(|to| new_file(&to.superblock));
        let in_words = format!("{:?}", to.as_ref().map(|to| (to.superblock.chunksize, to.offset)));
        let is_lockless = self.supervisor().bitmap().is_some_and(|sb| sb.is_lockless());
        let now = self.now;
        let is_begun = self.supervisor_mut().handle_bitmap(now, to);
        self.lost_lockless |= is_lockless && is_begun;
        self.say(|| format!("the bitmap is to be {in_words}: {is_begun}"));
        if !is_begun {
            return;
        }
        if file.is_some() || self.file_use != FileUse::None {
            self.file_use = FileUse::Unclear;
        }
        if let Some(file) = file {
            *self.file = file;
            self.file_failed = false;
        }
    }

    /// From a file to a file there is no way but by none.
    fn draw_bitmap(&mut self) -> Option<NewBitmap> {
        let chunk = self.dice.pick(&[8, 16, 64]);
        let kind = self.dice.below(3);
        let members: Vec<&Superblock> = self.supervisor().members().map(|(sb, _)| sb).collect();
        let superblock = new_bitmap(members[0], chunk, self.plan.write_behind);
        let room = bitmap::added(members, superblock_size(&superblock), Some(superblock.chunksize));
        match (kind, room) {
            (1, Ok(place)) => Some(NewBitmap { superblock, offset: Some(place.offset) }),
            (2, _) if self.file_use == FileUse::None => {
                Some(NewBitmap { superblock, offset: None })
            }
            _ => None,
        }
    }

    /// Whether the file refuses a write. A write without its bit would not be resynced after a cut by what the file
    /// says: it must count as stale before there is one.
    pub(super) fn draw_file_fault(&mut self) -> bool {
        let every = self.plan.file_fault_every;
        let fails = every > 0 && self.dice.one_in(every);
        if fails {
            (self.file_use, self.file_failed) = (FileUse::Unclear, true);
            self.say(|| "the bitmap's file fails".into());
        }
        fails
    }

    pub(super) fn bitmap_changed(&mut self) {
        let is_there = self.supervisor().bitmap().is_some();
        let external = is_there && self.supervisor().bitmap_offset().is_none();
        self.file_use = match external {
            true => FileUse::InUse,
            // Whoever has not read the log names it still.
            false if !is_there && self.file_failed => FileUse::Unclear,
            false => FileUse::None,
        };
    }
}

fn superblock_size(sb: &bitmap::Superblock) -> lapstrake_geometry::Sectors {
    lapstrake_geometry::Sectors(sb.sync_size)
}
