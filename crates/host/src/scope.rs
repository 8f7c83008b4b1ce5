//! Where an array's events go.
//!
//! A subscriber of `tracing` belongs to a thread, or to the process. An array has threads of its own, and a process may
//! have several arrays: each hands its events to the subscriber of the thread that started it, within the array's span.

use tracing::{Dispatch, Span, dispatcher, span::Entered};

/// See the module.
#[derive(Clone, Debug)]
pub struct EventScope {
    subscriber: Dispatch,
    span: Span,
}

impl EventScope {
    /// That of this thread's subscriber, and of an array's span.
    pub(crate) fn new(span: Span) -> Self {
        Self { subscriber: dispatcher::get_default(Dispatch::clone), span }
    }

    /// Events of this thread, whose subscriber it is already, are the array's until the guard is dropped.
    pub(crate) fn enter(&self) -> Entered<'_> {
        self.span.enter()
    }

    /// Does something whose events are the array's, on any thread.
    pub fn run<T>(&self, act: impl FnOnce() -> T) -> T {
        dispatcher::with_default(&self.subscriber, || self.span.in_scope(act))
    }
}
