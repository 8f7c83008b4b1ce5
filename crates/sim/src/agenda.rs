//! What is still to happen in virtual time, in the order in which it is due; what is due at once in the order in
//! which it was put there.

use std::collections::BTreeMap;

/// Events by their times.
#[derive(Debug)]
pub(crate) struct Agenda<E> {
    events: BTreeMap<(u64, u64), E>,
    sequence: u64,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self { events: BTreeMap::new(), sequence: 0 }
    }
}

impl<E> Agenda<E> {
    /// Something is to happen at this time.
    pub(crate) fn add(&mut self, due_ns: u64, event: E) {
        self.sequence += 1;
        self.events.insert((due_ns, self.sequence), event);
    }

    /// When the next is due.
    pub(crate) fn next(&self) -> Option<u64> {
        self.events.first_key_value().map(|(key, _)| key.0)
    }

    /// The next.
    pub(crate) fn pop(&mut self) -> Option<E> {
        self.events.pop_first().map(|(_, event)| event)
    }

    /// All that there are, in order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &E> {
        self.events.values()
    }

    /// Forgets them all; what they were, in order.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = E> + use<E> {
        std::mem::take(&mut self.events).into_values()
    }
}
