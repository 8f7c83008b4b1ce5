//! Where the contents go: a pipe, or a file that keeps holes for zeros.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::Path;

/// What becomes a hole: most file systems' block.
const HOLE: usize = 4096;

/// See the module.
pub struct Output {
    file: File,
    /// Zeros can be left out: the file is regular and new.
    sparse: bool,
    written: u64,
    holes: u64,
}

impl Output {
    /// Writes to a file, which is made or emptied; to a device as it is.
    pub fn file(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        let sparse = file.metadata()?.is_file();
        Ok(Self { file, sparse, written: 0, holes: 0 })
    }

    /// Writes to standard output.
    pub fn stdout() -> io::Result<Self> {
        let file = io::stdout().as_fd().try_clone_to_owned()?.into();
        Ok(Self { file, sparse: false, written: 0, holes: 0 })
    }

    /// Writes the next bytes.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.sparse {
            self.file.write_all(bytes)?;
            self.written += bytes.len() as u64;
            return Ok(());
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let zero = is_zero(&rest[..HOLE.min(rest.len())]);
            let alike = |block: &&[u8]| is_zero(block) == zero;
            let len = rest.chunks(HOLE).take_while(alike).map(<[u8]>::len).sum();
            let (run, after) = rest.split_at(len);
            if zero {
                self.file.seek(SeekFrom::Current(len as i64))?;
                self.holes += len as u64;
            } else {
                self.file.write_all(run)?;
            }
            self.written += len as u64;
            rest = after;
        }
        Ok(())
    }

    /// Gives the file its length, waits until all of it is on disk, and tells how many bytes became holes.
    pub fn finish(self) -> io::Result<u64> {
        if self.sparse {
            self.file.set_len(self.written)?;
        }
        match self.file.sync_all() {
            // Pipes and the like have nothing to sync.
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => Err(error),
            _ => Ok(self.holes),
        }
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    // Sixteen bytes a step, which the compiler turns into vector code.
    let (blocks, rest) = bytes.as_chunks::<16>();
    blocks.iter().all(|block| u128::from_ne_bytes(*block) == 0) && rest.iter().all(|&b| b == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_become_holes_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut wanted = vec![0; 3 * HOLE];
        wanted[HOLE + 7] = 1;
        wanted.extend([0; 100]);
        let mut output = Output::file(&path).unwrap();
        output.write(&wanted[..2 * HOLE]).unwrap();
        output.write(&wanted[2 * HOLE..]).unwrap();
        assert_eq!(output.finish().unwrap(), 2 * HOLE as u64 + 100);
        assert_eq!(std::fs::read(&path).unwrap(), wanted);
    }
}
