//! What is told of clients that give cause for complaint: of each kind a line now and then, however many they are.

use crate::runs::{COMPLAINTS_NS, Runs};
use lapstrake_engine::Time;
use tracing::warn;

/// See the module. Time begins when the server's does.
#[derive(Debug)]
pub struct Complaints(Runs<(&'static str, &'static str)>);

impl Default for Complaints {
    fn default() -> Self {
        Self(Runs::new(COMPLAINTS_NS))
    }
}

impl Complaints {
    /// Tells what became of a client, and why; of how many more it did is told later.
    pub fn complain(&mut self, now: Time, what: &'static str, why: &'static str, detail: &str) {
        if self.0.add(now, (what, why), 0..0) {
            warn!(reason = why, "{what}: {detail}");
        }
    }

    /// When there is more to tell.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.0.deadline()
    }

    /// Tells of clients like those that were told of.
    pub fn tell_more(&mut self, now: Time) {
        for run in self.0.over(now) {
            let (what, why) = run.of;
            warn!(reason = why, more = run.more, "{what} {}: {why}", run.again());
        }
    }
}
