//! A block device in virtual time, whatever it is made of: a disk on a path of its own, an array, a controller's unit.

use crate::Nanos;
use crate::channel::Channel;
use crate::disk::{Disk, DiskModel};
use crate::request::{Completion, Request};
use std::collections::VecDeque;

/// A block device in virtual time. `now` never goes back.
pub trait Volume {
    /// Blocks of 512 bytes.
    fn blocks(&self) -> u64;
    /// Takes a command.
    fn submit(&mut self, request: Request, now: Nanos);
    /// Gives a command that has ended by `now`, those first that ended first.
    fn poll(&mut self, now: Nanos) -> Option<Completion>;
    /// When to poll again; none if nothing goes on.
    fn next_event(&self) -> Option<Nanos>;
    /// Goes on up to `until`, to the next moment at which something may have ended that [`Volume::poll`] gives, or that
    /// is not before `look`. What happens earlier nobody sees, and it may be done on the way.
    fn go_on(&mut self, until: Nanos, _look: Nanos) -> Option<Nanos> {
        self.next_event().filter(|at| *at <= until)
    }
    /// Processor time of the host that was spent so far.
    fn cpu(&self) -> Nanos;
    /// The part of it that was spent in the contexts of those who submitted reads, whose processor time it counts as.
    fn called(&self) -> Nanos {
        Nanos::ZERO
    }
    /// Blocks of data in a stripe, where one process in order should keep all members busy; else 0. md
    /// reads twice as much ahead.
    fn stripe_blocks(&self) -> u64 {
        0
    }
    /// Queues of requests that one writer in order fills side by side: a disk's own, or those of an array's members,
    /// since md has none.
    fn queues(&self) -> usize {
        1
    }
}

/// A disk on a path of its own.
#[derive(Clone, Debug)]
pub struct Alone {
    disk: Disk,
    blocks: u64,
    channel: Channel,
}

impl Alone {
    /// A disk that has been idle for long.
    #[must_use]
    pub fn new(model: &DiskModel, channel: Channel) -> Self {
        Self { disk: model.disk(), blocks: model.blocks(), channel }
    }
}

impl Volume for Alone {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn submit(&mut self, request: Request, now: Nanos) {
        self.disk.submit(request, now, &mut self.channel);
    }

    fn poll(&mut self, now: Nanos) -> Option<Completion> {
        self.disk.poll(now, &mut self.channel)
    }

    fn next_event(&self) -> Option<Nanos> {
        self.disk.next_event(&self.channel)
    }

    fn cpu(&self) -> Nanos {
        Nanos::ZERO
    }
}

/// A volume whose requests one core makes: each goes out when the core has made it.
pub struct Handled {
    inner: Box<dyn Volume>,
    /// What a request takes of the core, from its making to its end.
    price: Nanos,
    free_at: Nanos,
    spent: Nanos,
    /// Requests that the core has not made, and when it will have.
    waiting: VecDeque<(Nanos, Request)>,
}

impl Handled {
    /// A volume and what a request to it takes of the core.
    #[must_use]
    pub fn new(inner: Box<dyn Volume>, price: Nanos) -> Self {
        let (free_at, spent) = (Nanos::ZERO, Nanos::ZERO);
        Self { inner, price, free_at, spent, waiting: VecDeque::new() }
    }
}

impl Volume for Handled {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn submit(&mut self, request: Request, now: Nanos) {
        self.free_at = self.free_at.max(now) + self.price;
        self.spent += self.price;
        self.waiting.push_back((self.free_at, request));
    }

    fn poll(&mut self, now: Nanos) -> Option<Completion> {
        while let Some(&(_, request)) = self.waiting.front().filter(|(at, _)| *at <= now) {
            self.waiting.pop_front();
            self.inner.submit(request, now);
        }
        self.inner.poll(now)
    }

    fn next_event(&self) -> Option<Nanos> {
        let made = self.waiting.front().map(|(at, _)| *at);
        [made, self.inner.next_event()].into_iter().flatten().min()
    }

    fn cpu(&self) -> Nanos {
        self.spent + self.inner.cpu()
    }
}
