//! What is under way, by keys of its own: the key of a request names no operation, though both are numbers.
//!
//! Invariant: a key is good from [`Slots::insert`] to [`Slots::remove`]; its number is given out again after that.

use core::{
    fmt,
    marker::PhantomData,
    ops::{Index, IndexMut},
};
use slab::Slab;

/// Names a `T` under way.
pub(crate) struct Key<T>(u32, PhantomData<fn() -> T>);

impl<T> Key<T> {
    fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("so many are never under way"), PhantomData)
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T> PartialEq for Key<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for Key<T> {}

impl<T> PartialOrd for Key<T> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Key<T> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// All `T` under way, in the order of their keys' numbers.
#[derive(Debug)]
pub(crate) struct Slots<T>(Slab<T>);

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self(Slab::new())
    }
}

impl<T> Slots<T> {
    pub(crate) fn insert(&mut self, value: T) -> Key<T> {
        Key::new(self.0.insert(value))
    }

    pub(crate) fn remove(&mut self, key: Key<T>) -> T {
        self.0.remove(key.index())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|(_, value)| value)
    }
}

impl<T> Index<Key<T>> for Slots<T> {
    type Output = T;

    fn index(&self, key: Key<T>) -> &T {
        &self.0[key.index()]
    }
}

impl<T> IndexMut<Key<T>> for Slots<T> {
    fn index_mut(&mut self, key: Key<T>) -> &mut T {
        &mut self.0[key.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_given_out_again_after_its_end() {
        let mut slots = Slots::default();
        let (first, second) = (slots.insert('a'), slots.insert('b'));
        assert_eq!(slots.remove(first), 'a');
        assert_eq!(slots.insert('c'), first);
        assert!(slots.values().eq(&['c', 'b']) && slots[second] == 'b');
    }
}
