//! How large stripe caches are: md's `stripe_cache_size`, in pages of each member, and what that comes to.

use lapstrake_array::start::StartPlan;
use lapstrake_device::Member;
use lapstrake_engine::{
    BEHIND_PAGES, STRIPE_CACHE_SIZE, STRIPE_CACHE_SIZES, journal::JOURNAL_PAGES,
    stripe_cache_members, stripe_cache_pages,
};
use lapstrake_geometry::Geometry;
use std::sync::Arc;
use thiserror::Error;

/// What an array's stripe caches are made by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheTerms {
    /// That have pages.
    members: u32,
    /// That may have, also of a level without a stripe cache, which another may take over.
    members_most: u32,
    has_logs: bool,
    has_journal: bool,
    has_behind: bool,
}

impl CacheTerms {
    pub(crate) fn of(plan: &StartPlan<Arc<Member>>) -> Self {
        let geometry = &plan.geometry;
        let lags = plan.members.iter().any(|member| member.superblock().write_mostly());
        Self {
            members: stripe_cache_members(geometry),
            members_most: 2 * u32::from(geometry.raid_disks()),
            has_logs: plan.log_signature().is_some(),
            has_journal: plan.replays,
            has_behind: matches!(geometry, Geometry::Mirror(_)) && lags,
        }
    }

    /// Those of an array with so many members.
    pub(crate) fn with_members(self, members: u32) -> Self {
        Self { members, ..self }
    }

    /// What a wish comes to, pages of each member. None was heard while the level had no stripe cache.
    pub(crate) fn size(self, wish: u32) -> u32 {
        match (self.members, wish) {
            (0, _) => 0,
            (_, 0) => STRIPE_CACHE_SIZE,
            _ => wish.max(*STRIPE_CACHE_SIZES.start()),
        }
    }

    /// A shard's pages for such a size. Only the first has the journal.
    pub(crate) fn pages(self, size: u32, is_first: bool) -> u32 {
        let pages = stripe_cache_pages(self.members, size, self.has_logs);
        pages + if self.has_journal && is_first { JOURNAL_PAGES } else { 0 }
    }

    /// What they may become.
    pub(crate) fn pages_most(self, is_first: bool) -> u32 {
        self.with_members(self.members_most).pages(*STRIPE_CACHE_SIZES.end(), is_first)
    }

    /// A shard's pages for writes that a write-mostly member may have later than they are answered.
    pub(crate) fn behind_pages(self) -> u32 {
        if self.has_behind { BEHIND_PAGES } else { 0 }
    }

    /// Whether a size can be set.
    pub(crate) fn check(self, size: u32) -> Result<(), CacheSizeError> {
        let (least, most) = STRIPE_CACHE_SIZES.into_inner();
        match self.members {
            0 => Err(CacheSizeError::NoRedundancy),
            _ if !(least..=most).contains(&size) => {
                Err(CacheSizeError::OutOfRange { size, least, most })
            }
            _ => Ok(()),
        }
    }
}

/// Why a stripe cache cannot have a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CacheSizeError {
    /// The level has no stripe cache.
    #[error(
        "stripe_cache_size: a level without redundancy has no stripe cache; nothing was changed"
    )]
    NoRedundancy,
    /// Too few pages or too many.
    #[error(
        "stripe_cache_size: {size} is not from {least} (what the largest operation takes) to {most} pages of each \
         member; nothing was changed"
    )]
    OutOfRange {
        /// Pages of each member.
        size: u32,
        /// The fewest that can be set.
        least: u32,
        /// The most that can be set.
        most: u32,
    },
}
