//! LVM2's UUIDs.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A UUID of LVM2's: 32 letters and digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id([u8; 32]);

impl Id {
    /// From the 32 bytes in a header.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 32]) -> Option<Self> {
        bytes.iter().all(u8::is_ascii_graphic).then_some(Self(*bytes))
    }

    /// From text, with hyphens.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let letters: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
        Self::from_bytes(letters.as_slice().try_into().ok()?)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for (nth, byte) in self.0.iter().enumerate() {
            if [6, 10, 14, 18, 22, 26].contains(&nth) {
                text.push('-');
            }
            text.push(char::from(*byte));
        }
        f.pad(&text)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({self})")
    }
}
