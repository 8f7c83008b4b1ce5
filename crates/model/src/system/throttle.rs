//! Throttling of writes in a device's queue, as Linux does it from 4.10 on (`blk-wbt`) for devices with a write cache.
//!
//! So many writes may be under way at once, by their kind; flushes count as writes. Who finds no room sleeps, and whoever
//! comes while somebody sleeps does so, too, until **nothing** is under way any more: the cache of the device is to be empty
//! then. While writers of files wait for room in the page cache, sleepers are woken sooner.
//!
//! Depths are what they grow to where nobody reads. What it does not do: make them smaller when reads take long, tell
//! write-back that is due from what was sent on demand (on Linux 6.18 both went in batches of 48), nor wake sleepers sooner
//! where a device has no write cache.
//!
//! Source: block/blk-wbt.c (`get_limit`, `wbt_rqw_done`), block/blk-rq-qos.c (`rq_qos_wait`), read for what they do.

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// Somebody waits for it (`REQ_SYNC`), or it is the journal's.
    Waited,
    /// Nobody waits for it by itself: write-back, and bare flushes.
    Sent,
}

/// The writes of one device's queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Throttle {
    /// The greatest depth; none if nothing is throttled.
    most: Option<usize>,
    under_way: usize,
    has_sleeper: bool,
}

impl Throttle {
    /// Of a queue of so many requests; none if it throttles nothing.
    pub fn new(requests: Option<usize>) -> Self {
        let most = requests.map(|requests| (3 * requests / 4).max(1));
        Self { most, under_way: 0, has_sleeper: false }
    }

    /// Whether a write may go now; who may not sleeps. `is_full`: writers of files wait for room.
    pub fn admits(&mut self, urgency: Urgency, is_full: bool) -> bool {
        let Some(most) = self.most else { return true };
        let limit = match urgency {
            Urgency::Sent if !is_full => most.div_ceil(2),
            _ => most,
        };
        self.has_sleeper |= self.under_way >= limit;
        !self.has_sleeper
    }

    pub fn begins(&mut self) {
        self.under_way += 1;
    }

    /// A write has ended; true if sleepers wake up.
    pub fn ends(&mut self, is_full: bool) -> bool {
        self.under_way -= 1;
        let Some(most) = self.most else { return false };
        let early = most.div_ceil(2) - most.div_ceil(8);
        let wakes = self.under_way == 0 || (is_full && self.under_way <= early);
        wakes && std::mem::take(&mut self.has_sleeper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_while_somebody_sleeps_waits_until_nothing_is_under_way() {
        let mut throttle = Throttle::new(Some(128));
        for _ in 0..48 {
            assert!(throttle.admits(Urgency::Sent, false));
            throttle.begins();
        }
        assert!(throttle.admits(Urgency::Waited, false));
        assert!(!throttle.admits(Urgency::Sent, false));
        assert!(!throttle.admits(Urgency::Waited, false));
        for left in (0..48).rev() {
            assert_eq!(throttle.ends(false), left == 0);
        }
        assert!(throttle.admits(Urgency::Sent, false));
    }

    #[test]
    fn while_writers_wait_for_room_sleepers_wake_up_sooner() {
        let mut throttle = Throttle::new(Some(128));
        for _ in 0..96 {
            assert!(throttle.admits(Urgency::Sent, true));
            throttle.begins();
        }
        assert!(!throttle.admits(Urgency::Sent, true));
        let ended = (0..96).position(|_| throttle.ends(true)).unwrap();
        assert_eq!(96 - ended - 1, 36);
    }
}
