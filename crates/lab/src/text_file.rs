//! Files of text that somebody names: a plan, a profile. Some never end.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Bytes of a plan, a profile, or DiskSim's files, at most.
pub const TEXT_MAX: u64 = 16 << 20;

/// A file's text; what is longer than `most` bytes is refused.
///
/// # Errors
/// The system's; [`ErrorKind::FileTooLarge`]; [`ErrorKind::InvalidData`] if it is not text.
pub fn read_text(path: &Path, most: u64) -> Result<String> {
    let too_long = || {
        let why = format!("it is longer than {} MiB, the most that is read", most >> 20);
        Err(Error::new(ErrorKind::FileTooLarge, why))
    };
    let file = File::open(path)?;
    let is = file.metadata()?;
    if is.is_file() && is.len() > most {
        return too_long();
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return too_long();
    }
    String::from_utf8(bytes)
        .map_err(|_| Error::new(ErrorKind::InvalidData, "it is not text (UTF-8)"))
}
