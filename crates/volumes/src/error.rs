//! Why LVM2's metadata cannot be used.

use crate::text::TextError;
use alloc::string::String;
use thiserror::Error;

/// Why what is labelled as a physical volume cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LabelError {
    /// The label's checksum is wrong.
    #[error("the LVM label at byte {at} has checksum {found:#010x}, not {expected:#010x}")]
    Label {
        /// Byte of the device.
        at: u64,
        /// What is there.
        found: u32,
        /// What the bytes come to.
        expected: u32,
    },
    /// The label's header is none.
    #[error("the LVM label at byte {at} has no header that can be read")]
    Header {
        /// Byte of the device.
        at: u64,
    },
    /// A metadata area's header, or its text, is not sound.
    #[error("the LVM metadata area at byte {at} cannot be used: its {what} is not sound")]
    Area {
        /// Byte of the device.
        at: u64,
        /// Which part of it.
        what: &'static str,
    },
    /// The text is not LVM2's.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The text is no description of a group.
    #[error("LVM metadata of {group}: {what} is missing, or is not what it can be")]
    Group {
        /// Name of the group, perhaps with that of the volume.
        group: String,
        /// The key.
        what: &'static str,
    },
}
