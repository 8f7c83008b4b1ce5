//! An array as a session gets it: its shards, supervisor and spans, of one geometry or of two.

use super::{
    EPOCH_S,
    areas::{cache_pages, data_area},
};
use crate::plan::Plan;
use lapstrake_array::{
    Front, SpanMap,
    start::{After, CarriedOut, ShardTerms, StartPlan, SupervisorTerms},
};
use lapstrake_engine::{
    BufId, MemberConfig, Shard, Supervisor, SyncConfig, SyncSpeed, journal::JOURNAL_PAGES,
};
use lapstrake_geometry::Sectors;
use lapstrake_metadata::Superblock;

/// An array that is about to run.
#[derive(Debug)]
pub(crate) struct Setup {
    pub plan: StartPlan<usize>,
    /// What a reshape that is under way makes of it.
    pub after: Option<After<usize>>,
    pub done: CarriedOut,
    /// Disks that are to be added while it runs, and what they say of themselves.
    pub returning: Vec<(usize, Superblock)>,
    /// A dirty degraded array was forced, so nothing may fail.
    pub was_forced: bool,
}

impl Setup {
    /// Pages of each shard's stripe cache and journal.
    pub(super) fn scratch_pages(&self, plan: &Plan) -> u32 {
        cache_pages(plan, &self.plan.geometry) + self.done.journal.map_or(0, |_| JOURNAL_PAGES)
    }

    /// The plan of each shard: of two geometries the new one has the last.
    pub(super) fn plan_of(&self, shard: usize, plan: &Plan) -> &StartPlan<usize> {
        let after = self.after.as_ref().filter(|_| shard == plan.shards - 1);
        after.map_or(&self.plan, |after| &after.plan)
    }

    pub(super) fn shards(&self, plan: &Plan, members: &[MemberConfig]) -> Vec<Shard> {
        let shard = |index: usize| {
            let terms = ShardTerms {
                index,
                read_only: false,
                block: Sectors(plan.block()),
                scratch: BufId(index as u32),
                scratch_pages: self.scratch_pages(plan),
                behind_pages: plan.behind_pages,
            };
            let of = self.plan_of(index, plan);
            let configs = of.members.iter().zip(members);
            let configs =
                configs.map(|(m, config)| MemberConfig::new(&m.record, config.rotational));
            of.shard(&self.done, configs.collect(), &terms)
        };
        (0..plan.shards).map(shard).collect()
    }

    pub(super) fn supervisor(&self, plan: &Plan, span: u64) -> Supervisor {
        let (speed, span) = (SyncSpeed::default(), Sectors(span));
        let terms = SupervisorTerms {
            shards: plan.shards,
            safe_mode_delay_ns: plan.safe_mode_delay_ns,
            sync: SyncConfig { speed, frozen: plan.frozen, span },
            epoch_s: EPOCH_S,
        };
        Supervisor::new(match &self.after {
            Some(after) => after.supervisor_config(&self.plan, &self.done, &terms),
            None => self.plan.supervisor_config(&self.done, &terms),
        })
    }

    /// Where a member's data is, before and after a reshape.
    pub(super) fn data_area(&self, member: usize) -> (u64, u64) {
        let plans = [Some(&self.plan), self.after.as_ref().map(|after| &after.plan)];
        let areas =
            plans.into_iter().flatten().map(|of| data_area(of.members[member].superblock()));
        areas.reduce(|one, two| (one.0.min(two.0), one.1.max(two.1))).expect("there is one")
    }

    pub(super) fn spans(&self, plan: &Plan, span: u64) -> SpanMap {
        let owners = if plan.has_one_writer() { vec![0] } else { (0..plan.shards).collect() };
        let spans = SpanMap::new(span);
        let Some(After { position, is_backwards, .. }) = &self.after else {
            return spans.among(owners);
        };
        let shard = plan.shards - 1;
        let front = Front::at(position.0, *is_backwards, shard);
        spans.among((0..shard).collect()).with_front(front)
    }
}
