//! Generators on a volume in virtual time: what `workload::drive` does with threads and a clock.

use crate::workload::drive::Outcome;
use crate::workload::generator::{Generator, Request, Step};
use crate::workload::recorder::Kind;
use lapstrake_model::{self as model, Nanos, Op, Volume};

/// A volume in which nothing changes for so many looks stands still.
const LOOKS_MAX: u32 = 1_000_000;

/// Runs all generators to their end, from `from` on. `look` is called once, at the first moment from `look_at` on, and
/// once at the end. Gives what they did, and when it was over.
pub(super) fn run<V: Volume>(
    volume: &mut V,
    mut generators: Vec<Generator>,
    from: Nanos,
    look_at: Nanos,
    mut look: impl FnMut(&V, Nanos),
) -> Result<(Outcome, Nanos), String> {
    let mut now = from;
    let mut looked = false;
    let mut looks = 0;
    // By generator: when to ask it again, if not before.
    let mut wakes: Vec<Option<u64>> = vec![Some(0); generators.len()];
    loop {
        let since = now.since(from).0;
        let mut is_over = true;
        for (index, generator) in generators.iter_mut().enumerate() {
            if wakes[index].is_some_and(|wake| wake <= since) {
                wakes[index] = pump(volume, generator, index as u64, since, now);
            }
            is_over &= wakes[index] == Some(u64::MAX);
        }
        if !looked && now >= look_at {
            looked = true;
            look(volume, now);
        }
        if is_over {
            look(volume, now);
            return Ok((Outcome::of(&generators), now));
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
            generators[index].complete(slot, Ok(()), &[], since)?;
            wakes[index] = Some(since);
        }
    }
}

/// Begins what a generator has to do; when to ask it again: none when something has ended, the largest number when
/// nothing is left.
fn pump(
    volume: &mut impl Volume,
    generator: &mut Generator,
    index: u64,
    since: u64,
    now: Nanos,
) -> Option<u64> {
    loop {
        match generator.next(since) {
            Step::Do(request) => volume.submit(command(&request, index), now),
            Step::WaitUntil(until) => return Some(until),
            Step::Wait => return None,
            Step::Done => return Some(u64::MAX),
        }
    }
}

/// A generator's request as a command; `index` tells generators apart.
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
