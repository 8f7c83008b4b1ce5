//! How large stripe caches are: md's `stripe_cache_size`, in pages of each member, and what that comes to.

use crate::array::Parts;
use lapstrake_engine::journal::JOURNAL_PAGES;
use lapstrake_geometry::Geometry;

/// Pages of a shard for writes that are left behind: 4 MiB.
const BEHIND_PAGES: u32 = 1024;
/// Pages of a shard's whole stripe cache: with the rest just below 4 GiB, since the engine names a place in it by 32
/// bits.
const PAGES_MAX: u32 = (1 << 20) - 1 - BEHIND_PAGES - JOURNAL_PAGES;
/// Pages for each member that the largest parity operation takes.
const LEAST: u32 = 32;
/// md's own bound.
const MOST: u32 = 32768;
/// What logs add to that, for each member: a header, and of the largest operation partial parity.
const PER_LOG: u32 = 32;

/// What an array's stripe caches are made by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheTerms {
    /// That have pages; none on levels without redundancy. (Those with copies need it for recovery and the like.)
    members: u32,
    has_logs: bool,
    has_journal: bool,
    has_behind: bool,
}

impl CacheTerms {
    pub(crate) fn of(parts: &Parts) -> Self {
        let geometry = &parts.geometry;
        let redundant = geometry.level().has_redundancy();
        let lags = parts.members.iter().any(|member| member.superblock.write_mostly());
        Self {
            members: if redundant { geometry.raid_disks().into() } else { 0 },
            has_logs: parts.log_signature().is_some(),
            has_journal: parts.replays,
            has_behind: matches!(geometry, Geometry::Mirror(_)) && lags,
        }
    }

    /// What a wish comes to, pages of each member.
    pub(crate) fn size(self, wish: u32) -> u32 {
        if self.members == 0 { 0 } else { wish.max(LEAST) }
    }

    /// A shard's pages for such a size. Only the first has the journal.
    pub(crate) fn pages(self, size: u32, is_first: bool) -> u32 {
        let per_member = size.saturating_add(if self.has_logs { PER_LOG } else { 0 });
        let pages = per_member.saturating_mul(self.members).min(PAGES_MAX);
        pages + if self.has_journal && is_first { JOURNAL_PAGES } else { 0 }
    }

    /// What they may become.
    pub(crate) fn pages_most(self, is_first: bool) -> u32 {
        self.pages(MOST, is_first)
    }

    /// A shard's pages for writes that a write-mostly member may have later than they are answered.
    pub(crate) fn behind_pages(self) -> u32 {
        if self.has_behind { BEHIND_PAGES } else { 0 }
    }

    /// Why a size cannot be set, if it cannot.
    pub(crate) fn unfit(self, size: u64) -> Option<String> {
        if self.members == 0 {
            return Some(
                "stripe_cache_size: a level without redundancy has no stripe cache; nothing was changed".into(),
            );
        }
        (!(u64::from(LEAST)..=u64::from(MOST)).contains(&size)).then(|| {
            format!(
                "stripe_cache_size: {size} is not from {LEAST} (what the largest operation takes) to {MOST} pages of \
                 each member; nothing was changed"
            )
        })
    }
}
