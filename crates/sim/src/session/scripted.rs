//! What a scenario told by hand does to a session, and asks of it.

use super::{Event, Session};
use lapstrake_engine::MemberId;

impl Session<'_> {
    /// The member answers no more.
    pub(crate) fn vanish(&mut self, member: MemberId) {
        self.vanished.insert(member);
        self.hit.insert(member);
    }

    /// What the array lacks is mended from now on.
    pub(crate) fn mend(&mut self) -> Result<(), String> {
        self.coordinator.start(self.now);
        self.pump()
    }

    /// Who was away is added.
    pub(crate) fn bring_back(&mut self) -> Result<(), String> {
        for (disk, own) in std::mem::take(&mut self.returning) {
            self.add(disk, own)?;
        }
        self.pump()
    }

    pub(crate) fn recovered_to(&self, member: MemberId) -> u64 {
        self.supervisor().state(member).2.0
    }

    /// From where on a resync is due, if one is.
    pub(crate) fn resync_from(&self) -> Option<u64> {
        self.supervisor().resync_from().map(|from| from.0)
    }

    pub(crate) fn is_recorded(&self) -> bool {
        self.supervisor().is_recorded()
    }

    pub(crate) fn has_failed(&self, member: MemberId) -> bool {
        self.shards.iter().all(|shard| shard.has_failed(member))
    }

    pub(crate) fn step_until(&mut self, is_so: impl Fn(&Self) -> bool) -> Result<(), String> {
        while !is_so(self) {
            self.step()?;
        }
        Ok(())
    }

    /// Until every request has its answer.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        self.pump()?;
        self.step_until(|session| session.clients.is_empty())
    }

    /// Lets time pass.
    pub(crate) fn rest(&mut self, ns: u64) -> Result<(), String> {
        let until = self.now.after(ns);
        self.at(ns, Event::Submit);
        self.step_until(|session| session.now >= until)
    }
}
