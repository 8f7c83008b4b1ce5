//! Whether a request's memory may be changed by others while the array uses it, as a guest changes its own.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Shared by the array, which ends it, and by clients that have such memory.
///
/// It may while no redundancy is computed of what is written, and nothing that was read is written again: parity and data,
/// or two copies, would differ. So it ends before the array begins to get another geometry, or a part is shown in its
/// place, also where that is refused at the last moment, and does not come back until the array is started anew.
#[derive(Clone, Debug)]
pub struct Lending(Arc<AtomicBool>);

impl Lending {
    /// Whether a request that is made now may.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self) {
        self.0.store(false, Ordering::Release);
    }
}

impl From<bool> for Lending {
    fn from(is_allowed: bool) -> Self {
        Self(Arc::new(is_allowed.into()))
    }
}
