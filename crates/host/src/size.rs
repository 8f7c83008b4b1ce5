//! How many bytes of an array its clients can use: what changes while they use it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Shared by the array, which sets it, and by front ends, which tell clients.
#[derive(Clone, Debug)]
pub struct ArraySize(Arc<AtomicU64>);

impl ArraySize {
    /// Bytes now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Release);
    }
}

impl From<u64> for ArraySize {
    fn from(bytes: u64) -> Self {
        Self(Arc::new(bytes.into()))
    }
}

impl PartialEq for ArraySize {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for ArraySize {}
