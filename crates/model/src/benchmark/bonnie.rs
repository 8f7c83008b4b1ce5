//! bonnie++ 2.00a and 1.03 on one file: written by characters, written, rewritten, read by characters, read; then seeks.
//!
//! A phase over the file ends with fsync and close, which are part of its time. Then several processes seek; one
//! seek in ten writes back what it read. 1.03 has its characters go through stdio over the whole size and forks three
//! seekers, later ones write 3 MiB by one call a byte and fork five.
//!
//! Source: bonnie++.cpp and bon_io.cpp of 1.03e and of Debian's 2.00a+nmu1, read for what they do.

use super::Counted;

/// Bytes that 2.00a moves by characters.
pub const CHARACTERS: u64 = 3 << 20;
/// One seek in so many writes.
pub const UPDATE: u64 = 10;
/// The name of the phase of seeks.
pub const SEEKS: &str = "seeks";

/// What to do, as bonnie++'s options say it.
#[derive(Clone, Copy, Debug)]
pub struct Bonnie {
    /// Bytes of the file (`-s`).
    pub size: u64,
    /// Bytes of a write and read (`-s`, after the colon).
    pub chunk: u64,
    /// Bytes by characters; the whole size for 1.03, 3 MiB later, none with `-f`.
    pub characters: u64,
    /// A call for each character; else stdio's.
    pub calls_characters: bool,
    /// Processes that seek.
    pub seekers: usize,
    /// Seeks of all of them.
    pub seeks: u64,
    /// No write buffering (`-b`): each seeker's write is followed by fsync.
    pub sync: bool,
}

/// What is done with each chunk of the file, from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Written byte by byte.
    WriteCharacters,
    /// Written.
    Write,
    /// Read, changed and written back.
    Rewrite,
    /// Read byte by byte.
    ReadCharacters,
    /// Read.
    Read,
}

/// A phase over the file.
#[derive(Clone, Copy, Debug)]
pub struct FilePhase {
    /// Its name in reports.
    pub name: &'static str,
    /// What it does with each chunk.
    pub access: Access,
    /// To how many chunks.
    pub chunks: u64,
}

impl Access {
    /// What the figure of a phase of it counts.
    #[must_use]
    pub fn counted(self) -> Counted {
        match self {
            Self::WriteCharacters | Self::Write => Counted::BytesWritten,
            Self::Rewrite => Counted::BytesRewritten,
            Self::ReadCharacters | Self::Read => Counted::BytesRead,
        }
    }

    /// Whether it begins with a new file, in place of one that is there.
    #[must_use]
    pub fn creates(self) -> bool {
        matches!(self, Self::WriteCharacters | Self::Write)
    }
}

impl Bonnie {
    /// bonnie++ 1.03 on a file of `size` bytes.
    #[must_use]
    pub fn v1_03(size: u64) -> Self {
        Self {
            size,
            chunk: 8192,
            characters: size,
            calls_characters: false,
            seekers: 3,
            seeks: 8192,
            sync: false,
        }
    }

    /// bonnie++ 1.96 and later.
    #[must_use]
    pub fn v2_00(size: u64) -> Self {
        Self { characters: CHARACTERS, calls_characters: true, seekers: 5, ..Self::v1_03(size) }
    }

    /// Chunks of the file.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        self.size / self.chunk
    }

    /// The phases over the file, in order; the seeks come after them.
    pub fn file_phases(&self) -> impl Iterator<Item = FilePhase> + use<> {
        let chunks = self.chunks();
        // Of a file that is smaller than what goes by characters no more can be read than it has.
        let few = self.characters.min(self.size) / self.chunk;
        let phase = |name, access, chunks| FilePhase { name, access, chunks };
        let all = [
            phase("per-character output", Access::WriteCharacters, few),
            phase("block output", Access::Write, chunks),
            phase("rewrite", Access::Rewrite, chunks),
            phase("per-character input", Access::ReadCharacters, few),
            phase("block input", Access::Read, chunks),
        ];
        let by_characters =
            |access| matches!(access, Access::WriteCharacters | Access::ReadCharacters);
        all.into_iter().filter(move |phase| few > 0 || !by_characters(phase.access))
    }
}
