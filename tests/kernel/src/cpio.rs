//! Writes the `newc` cpio archives that Linux unpacks as its first root filesystem.
//!
//! Invariant: headers, names and contents each end on a 4-byte boundary of the archive.
//! Everything belongs to root in the guest, whoever packs it, and a device node is only a
//! header here: that is why an archive needs no root while a directory tree would.
//!
//! Source: the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`.

use std::collections::BTreeSet;
use std::io::{self, Write};

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const SYMLINK: u32 = 0o120_777;
const CHAR_DEVICE: u32 = 0o020_600;

/// An archive being written.
pub struct Archive<W: Write> {
    out: W,
    inode: u32,
    names: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    /// Starts an empty archive.
    pub fn new(out: W) -> Self {
        Self { out, inode: 0, names: BTreeSet::new() }
    }

    /// Whether a path is already in the archive.
    pub fn holds(&self, path: &str) -> bool {
        self.names.contains(path.trim_start_matches('/'))
    }

    /// Adds a directory and those above it, as far as they are missing.
    pub fn directory(&mut self, path: &str) -> io::Result<()> {
        let path = path.trim_matches('/');
        for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
            if !path[..end].is_empty() && !self.holds(&path[..end]) {
                self.entry(&path[..end], DIRECTORY, (0, 0), &[])?;
            }
        }
        Ok(())
    }

    /// Adds an executable file.
    pub fn program(&mut self, path: &str, contents: &[u8]) -> io::Result<()> {
        self.with_parent(path)?;
        self.entry(path, PROGRAM, (0, 0), contents)
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.with_parent(path)?;
        self.entry(path, SYMLINK, (0, 0), target.as_bytes())
    }

    /// Adds a character device node.
    pub fn char_device(&mut self, path: &str, major: u32, minor: u32) -> io::Result<()> {
        self.with_parent(path)?;
        self.entry(path, CHAR_DEVICE, (major, minor), &[])
    }

    /// Writes the trailer and gives the writer back.
    pub fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn with_parent(&mut self, path: &str) -> io::Result<()> {
        match path.rsplit_once('/') {
            Some((parent, _)) => self.directory(parent),
            None => Ok(()),
        }
    }

    fn entry(
        &mut self,
        path: &str,
        mode: u32,
        device: (u32, u32),
        contents: &[u8],
    ) -> io::Result<()> {
        let name = path.trim_start_matches('/');
        let size = u32::try_from(contents.len()).map_err(io::Error::other)?;
        let name_size = u32::try_from(name.len() + 1).map_err(io::Error::other)?;
        self.inode += 1;
        let (major, minor) = device;
        let fields =
            [self.inode, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0].map(hex);
        let mut header = String::from("070701");
        header.extend(fields);
        header.push_str(name);
        header.push('\0');
        self.padded(header.as_bytes())?;
        self.padded(contents)?;
        self.names.insert(name.to_owned());
        Ok(())
    }

    fn padded(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.out.write_all(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()])
    }
}

fn hex(value: u32) -> String {
    format!("{value:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_come_before_children_and_only_once() {
        let mut archive = Archive::new(Vec::new());
        archive.program("/a/b/one", b"1").unwrap();
        archive.symlink("a/b/two", "one").unwrap();
        let bytes = archive.finish().unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let at = |name: &str| text.find(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert!(at("a\0") < at("a/b\0") && at("a/b\0") < at("a/b/one\0"));
        assert_eq!(text.matches("a/b\0").count(), 1);
        assert_eq!(bytes.len() % 4, 0);
    }
}
