//! Makers of requests on a volume in virtual time: what `workload::drive` does with threads and a clock.

use crate::workload::generator::{Generator, Request, Step};
use crate::workload::recorder::Kind;
use lapstrake_model::{self as model, Nanos, Op, Volume};

/// A volume in which nothing changes for so many looks stands still.
const LOOKS_MAX: u32 = 1_000_000;

/// Who makes requests; times are nanoseconds from the beginning.
pub(super) trait Actor {
    /// What to do now.
    fn next(&mut self, now_ns: u64) -> Step;

    /// A request has ended.
    ///
    /// # Errors
    /// Why nothing more is worth doing.
    fn complete(&mut self, slot: u32, now_ns: u64) -> Result<(), String>;
}

impl Actor for Generator {
    fn next(&mut self, now_ns: u64) -> Step {
        Self::next(self, now_ns)
    }

    fn complete(&mut self, slot: u32, now_ns: u64) -> Result<(), String> {
        Self::complete(self, slot, Ok(()), &[], now_ns)
    }
}

/// Runs all to their end, from `from` on. `look` is called once, at the first moment from `look_at` on, and once at the
/// end. Gives when it was over.
pub(super) fn run<V: Volume, A: Actor>(
    volume: &mut V,
    actors: &mut [A],
    from: Nanos,
    look_at: Nanos,
    mut look: impl FnMut(&V, Nanos),
) -> Result<Nanos, String> {
    let mut now = from;
    let mut looked = false;
    let mut looks = 0;
    // By actor: when to ask it again, if not before.
    let mut wakes: Vec<Option<u64>> = vec![Some(0); actors.len()];
    loop {
        let since = now.since(from).0;
        let mut is_over = true;
        for (index, actor) in actors.iter_mut().enumerate() {
            if wakes[index].is_some_and(|wake| wake <= since) {
                wakes[index] = pump(volume, actor, index as u64, since, now);
            }
            is_over &= wakes[index] == Some(u64::MAX);
        }
        if !looked && now >= look_at {
            looked = true;
            look(volume, now);
        }
        if is_over {
            look(volume, now);
            return Ok(now);
        }
        let wake = wakes.iter().flatten().filter(|wake| **wake < u64::MAX).min();
        let wake = wake.map(|wake| from + Nanos(*wake));
        let pending = (!looked).then_some(look_at);
        let next = [volume.next_event(), wake, pending].into_iter().flatten().min();
        let next = next.ok_or("nothing is left to happen, though the load has not ended")?;
        looks = if next <= now { looks + 1 } else { 0 };
        if looks > LOOKS_MAX {
            return Err(format!("time stands still at {} ns", now.0));
        }
        now = now.max(next);
        while let Some(done) = volume.poll(now) {
            let (index, slot) = ((done.tag >> 32) as usize, done.tag as u32);
            let since = now.since(from).0;
            actors[index].complete(slot, since)?;
            wakes[index] = Some(since);
        }
    }
}

/// Begins what an actor has to do; when to ask it again: none when something has ended, the largest number when
/// nothing is left.
fn pump(
    volume: &mut impl Volume,
    actor: &mut impl Actor,
    index: u64,
    since: u64,
    now: Nanos,
) -> Option<u64> {
    loop {
        match actor.next(since) {
            Step::Do(request) => volume.submit(command(&request, index), now),
            Step::WaitUntil(until) => return Some(until),
            Step::Wait => return None,
            Step::Done => return Some(u64::MAX),
        }
    }
}

/// A request as a command; `index` tells actors apart.
pub(crate) fn command(request: &Request, index: u64) -> model::Request {
    let op = match request.kind {
        Kind::Read => Op::Read,
        Kind::Write => Op::Write,
        Kind::Flush => Op::Flush,
    };
    model::Request {
        tag: index << 32 | u64::from(request.slot),
        op,
        lba: request.offset / 512,
        blocks: request.len / 512,
    }
}
