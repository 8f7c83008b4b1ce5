//! Who carries out what a shard wants: one loop for the server's threads, the simulations, benchmarks and tests.

use crate::{
    compare::{Comparison, Finding},
    seal::Seal,
    shard::Shard,
    types::{Compute, Effect, MemberIo, Reply, RequestId, Time},
};
use alloc::vec::Vec;

/// The clock, the memory and the members' devices of a shard.
pub trait World {
    /// Nanoseconds since the array was started.
    fn now(&self) -> Time;
    /// Begins an I/O of a member. Its end comes to [`Shard::handle_completion`].
    fn start_io(&mut self, io: MemberIo);
    /// Does parity work.
    fn compute(&mut self, work: &Compute);
    /// Makes a block of a log of what it covers, and puts it in its place.
    fn seal(&mut self, seal: &Seal);
    /// Compares what was read, and tells where it differs.
    fn compare(&mut self, comparison: &Comparison) -> Vec<Finding>;
}

/// What has become of a request that was brought to a shard.
#[derive(Clone, Copy, Debug)]
pub enum Ended {
    /// Its client is to be told.
    Replied(Reply),
    /// The owners of its sectors are to be asked: [`Shard::handle_foreign_read`] could not do it.
    Declined(RequestId),
}

impl Shard {
    /// Has `world` carry out what the shard wants, in order, until it wants nothing more. `ended` hears of requests that
    /// end, and may bring others.
    pub fn carry_out<W: World>(
        &mut self,
        world: &mut W,
        mut ended: impl FnMut(&mut Self, &mut W, Ended),
    ) {
        while let Some(effect) = self.poll_effect() {
            match effect {
                Effect::Io(io) => world.start_io(io),
                Effect::Compute(work) => world.compute(&work),
                Effect::Seal(seal) => world.seal(&seal),
                Effect::Compare(comparison) => {
                    let found = world.compare(&comparison);
                    self.handle_compared(world.now(), comparison.id, &found);
                }
                Effect::Reply(reply) => ended(self, world, Ended::Replied(reply)),
                Effect::Declined(id) => ended(self, world, Ended::Declined(id)),
            }
        }
    }
}
