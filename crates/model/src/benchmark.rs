//! What bonnie++, iozone, `hdparm -t` and pgbench do: their phases, in order, with sizes and what their figures count.
//!
//! There is one definition for two worlds: the lab carries it out on real files, [`crate::system::load`] on the model of
//! an operating system, so that what is measured and what is predicted have the same phases under the same names.
//! What it does not do: calls. Where places are drawn at random, each world draws with its own generator.

pub mod bonnie;
pub mod hdparm;
pub mod iozone;
pub mod pgbench;

pub use bonnie::Bonnie;
pub use iozone::Iozone;
pub use pgbench::Pgbench;

/// What the figure of a phase counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Bytes that were read.
    BytesRead,
    /// Bytes that were written.
    BytesWritten,
    /// Bytes that were read and written back, each counted once.
    BytesRewritten,
    /// Requests.
    Requests,
    /// Transactions.
    Transactions,
}

impl Counted {
    /// Whether the phase reads the bytes that it counts.
    #[must_use]
    pub fn reads(self) -> bool {
        matches!(self, Self::BytesRead | Self::BytesRewritten)
    }

    /// Whether the phase writes the bytes that it counts.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Self::BytesWritten | Self::BytesRewritten)
    }
}
