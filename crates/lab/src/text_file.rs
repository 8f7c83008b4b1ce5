//! Files of text that somebody names: a plan, a profile. Some never end.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Bytes of a plan, a profile, or a file that describes a disk, at most.
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
    let meta = file.metadata()?;
    if meta.is_file() && meta.len() > most {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_longer_never_ends_or_is_no_text_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plan");
        std::fs::write(&path, "text").unwrap();
        assert_eq!(read_text(&path, 4).unwrap(), "text");
        assert_eq!(read_text(&path, 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
        let endless = read_text(Path::new("/dev/zero"), 1 << 20).unwrap_err();
        assert_eq!(endless.to_string(), "it is longer than 1 MiB, the most that is read");
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path, 4).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
