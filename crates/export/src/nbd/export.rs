//! What a server offers: the list of exports, checked once, shared by all connections.
//!
//! Invariants of an [`Exports`]: names are unique and fit the protocol's strings; each minimum
//! block is a power of two from 1 to 64 KiB, divides the size, and is no larger than the preferred
//! block; a preferred block is a power of two of at least 512 and no larger than the maximum
//! payload; a maximum payload fits a reply chunk.

use lapstrake_host::ArraySize;
use thiserror::Error;

use super::wire::{STRING_LEN_MAX, export_flag};

/// Largest minimum block that the protocol allows, in bytes.
const MIN_BLOCK_MAX: u32 = 64 << 10;
/// Largest payload that an export may accept, in bytes. Far above what clients send (32 MiB), far
/// below where the lengths of reply chunks overflow.
const MAX_PAYLOAD_MAX: u32 = 1 << 30;

/// One export: a block device as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Name that clients ask for, at most 4096 bytes.
    pub name: String,
    /// A line for people, at most 4096 bytes; may be empty.
    pub description: String,
    /// Its size, which may change: a client hears of it when it asks anew.
    pub size: ArraySize,
    /// Whether writes, trims and zeroes are refused with `EPERM`.
    pub read_only: bool,
    /// Whether seeks are dear, so that clients sort their requests.
    pub rotational: bool,
    /// Offsets and lengths must be multiples of this many bytes.
    pub min_block: u32,
    /// Requests in multiples of this many bytes are efficient (the chunk or stripe of an array).
    pub preferred_block: u32,
    /// Most bytes that one read or write may carry.
    pub max_payload: u32,
}

impl ExportInfo {
    /// A writable export with the constraints that any client keeps: blocks of 512 bytes, 4 KiB
    /// preferred, payloads of 32 MiB.
    pub fn new(name: impl Into<String>, size: impl Into<ArraySize>) -> Self {
        ExportInfo {
            name: name.into(),
            description: String::new(),
            size: size.into(),
            read_only: false,
            rotational: false,
            min_block: 512,
            preferred_block: 4096,
            max_payload: 32 << 20,
        }
    }

    /// The transmission flags, given whether structured replies were negotiated.
    pub(crate) fn flags(&self, structured: bool) -> u16 {
        use export_flag::*;
        let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN | SEND_CACHE;
        if self.read_only {
            flags |= READ_ONLY;
        } else {
            flags |= SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO;
        }
        if self.rotational {
            flags |= ROTATIONAL;
        }
        if structured {
            flags |= SEND_DF;
        }
        flags
    }

    fn check(&self) -> Result<(), ExportError> {
        let name = || self.name.clone();
        for text in [&self.name, &self.description] {
            if text.len() > STRING_LEN_MAX || text.contains('\0') {
                return Err(ExportError::Text { name: name() });
            }
        }
        let min = self.min_block;
        if !min.is_power_of_two() || min > MIN_BLOCK_MAX {
            return Err(ExportError::MinBlock { name: name(), found: min });
        }
        let preferred = self.preferred_block;
        if !preferred.is_power_of_two() || preferred < min.max(512) {
            return Err(ExportError::PreferredBlock { name: name(), found: preferred });
        }
        if self.max_payload < preferred || self.max_payload > MAX_PAYLOAD_MAX {
            return Err(ExportError::MaxPayload { name: name(), found: self.max_payload });
        }
        // Clients hold offsets in signed numbers.
        let found = self.size.bytes();
        if found > i64::MAX as u64 || !found.is_multiple_of(u64::from(min)) {
            return Err(ExportError::Size { name: name(), found });
        }
        Ok(())
    }
}

/// A fault of the caller in a list of exports.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExportError {
    /// Two exports share a name.
    #[error("two exports are named {name:?}")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// The name or the description is longer than 4096 bytes or holds a NUL.
    #[error("export {name:?}: name or description is longer than 4096 bytes or holds a NUL")]
    Text {
        /// The export.
        name: String,
    },
    /// The minimum block is no power of two up to 64 KiB.
    #[error("export {name:?}: minimum block {found} is no power of two up to 65536")]
    MinBlock {
        /// The export.
        name: String,
        /// Bytes.
        found: u32,
    },
    /// The preferred block is no power of two, or below 512 or the minimum block.
    #[error(
        "export {name:?}: preferred block {found} is no power of two of at least 512 and the \
         minimum block"
    )]
    PreferredBlock {
        /// The export.
        name: String,
        /// Bytes.
        found: u32,
    },
    /// The maximum payload is below the preferred block or above 1 GiB.
    #[error("export {name:?}: maximum payload {found} is below the preferred block or above 1 GiB")]
    MaxPayload {
        /// The export.
        name: String,
        /// Bytes.
        found: u32,
    },
    /// The size is above 2^63 - 1 or no multiple of the minimum block.
    #[error("export {name:?}: size {found} is above 2^63 - 1 or no multiple of the minimum block")]
    Size {
        /// The export.
        name: String,
        /// Bytes.
        found: u64,
    },
}

/// A checked list of exports. The first is the default, which clients reach by the empty name.
#[derive(Clone, Debug)]
pub struct Exports(Box<[ExportInfo]>);

impl Exports {
    /// Checks a list; see the module for what must hold.
    ///
    /// # Errors
    /// The first export that breaks a rule, by name.
    pub fn new(list: impl Into<Box<[ExportInfo]>>) -> Result<Self, ExportError> {
        let list = list.into();
        for (at, export) in list.iter().enumerate() {
            export.check()?;
            if list[..at].iter().any(|other| other.name == export.name) {
                return Err(ExportError::Duplicate { name: export.name.clone() });
            }
        }
        Ok(Exports(list))
    }

    /// The exports, in the order given.
    pub fn list(&self) -> &[ExportInfo] {
        &self.0
    }

    /// Index of the export with this name; the empty name is the first export unless one is
    /// really called so.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        let exact = self.0.iter().position(|export| export.name.as_bytes() == name);
        exact.or_else(|| (name.is_empty() && !self.0.is_empty()).then_some(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut ExportInfo)) -> Result<Exports, ExportError> {
        let mut export = ExportInfo::new("md0", 1 << 20);
        change(&mut export);
        Exports::new([export])
    }

    #[test]
    fn sensible_exports_are_taken() {
        assert!(Exports::new([]).is_ok());
        assert!(with(|_| ()).is_ok());
        assert!(with(|e| e.size = 0.into()).is_ok());
        assert!(with(|e| e.min_block = 4096).is_ok());
    }

    #[test]
    fn senseless_exports_are_refused() {
        use ExportError::*;
        assert!(matches!(with(|e| e.min_block = 0), Err(MinBlock { found: 0, .. })));
        assert!(matches!(with(|e| e.min_block = 3), Err(MinBlock { .. })));
        assert!(matches!(with(|e| e.min_block = 128 << 10), Err(MinBlock { .. })));
        assert!(matches!(with(|e| e.preferred_block = 256), Err(PreferredBlock { .. })));
        assert!(matches!(with(|e| e.preferred_block = 12288), Err(PreferredBlock { .. })));
        assert!(matches!(with(|e| e.max_payload = 512), Err(MaxPayload { .. })));
        assert!(matches!(with(|e| e.max_payload = u32::MAX), Err(MaxPayload { .. })));
        assert!(matches!(with(|e| e.size = 513.into()), Err(Size { found: 513, .. })));
        assert!(matches!(with(|e| e.size = (1 << 63).into()), Err(Size { .. })));
        assert!(matches!(with(|e| e.name = "x".repeat(4097)), Err(Text { .. })));
        let twice = [ExportInfo::new("a", 0), ExportInfo::new("a", 512)];
        assert_eq!(Exports::new(twice).unwrap_err(), Duplicate { name: "a".into() });
    }

    #[test]
    fn the_empty_name_is_the_first_export() {
        let exports = Exports::new([ExportInfo::new("a", 0), ExportInfo::new("b", 0)]).unwrap();
        assert_eq!(exports.find(b""), Some(0));
        assert_eq!(exports.find(b"b"), Some(1));
        assert_eq!(exports.find(b"B"), None);
        assert_eq!(exports.find(&[0xff]), None);
        let named = Exports::new([ExportInfo::new("a", 0), ExportInfo::new("", 0)]).unwrap();
        assert_eq!(named.find(b""), Some(1));
        assert_eq!(Exports::new([]).unwrap().find(b""), None);
    }
}
