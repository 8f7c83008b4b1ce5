//! Making an array.

use lapstrake_device::MemberSpec;
use lapstrake_geometry::{Layout, Level, Sectors};
use lapstrake_host::create::{MakeError, NewArray, NewBitmap, PrepareError, prepare};
use lapstrake_metadata::Version;
use thiserror::Error;

/// Why an array is not made, or half.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// It cannot be. Nothing was written.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// Not all was written.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// The system gave no random bytes for the UUIDs.
    #[error("the system gives no random bytes for UUIDs: {0}; nothing was written")]
    Random(#[from] getrandom::Error),
    /// A chunk is in whole sectors.
    #[error("a chunk of {bytes} bytes is not in whole sectors of 512; nothing was written")]
    Chunk {
        /// What was asked for.
        bytes: u64,
    },
}

/// The array that is wanted; what is not said is as mdadm chooses it.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    wanted: NewArray,
    chunk: u64,
}

impl CreateOptions {
    /// An array of this name, without its host, and level.
    #[must_use]
    pub fn new(name: &str, level: Level) -> Self {
        Self { wanted: NewArray::new(name, level, Vec::new()), chunk: 0 }
    }

    /// The members are in sync already: they are zeros all over, which are their own parity, or their contents do not
    /// matter. Else the array is recovered or resynced when it is first opened for writing.
    pub fn assume_clean(&mut self, yes: bool) -> &mut Self {
        self.wanted.assume_clean = yes;
        self
    }

    /// Bytes of a chunk.
    pub fn chunk(&mut self, bytes: u64) -> &mut Self {
        self.chunk = bytes;
        self
    }

    /// Layout.
    pub fn layout(&mut self, layout: Layout) -> &mut Self {
        self.wanted.layout = Some(layout);
        self
    }

    /// Superblock version.
    pub fn version(&mut self, version: Version) -> &mut Self {
        self.wanted.version = version;
        self
    }

    /// With a write-intent bitmap beside each superblock.
    pub fn bitmap(&mut self, yes: bool) -> &mut Self {
        self.wanted.bitmap = if yes { NewBitmap::Internal } else { NewBitmap::None };
        self
    }

    /// Write over what the members hold.
    pub fn overwrite(&mut self, yes: bool) -> &mut Self {
        self.wanted.overwrite = yes;
        self
    }

    /// Makes it of these members, each for a slot, in order.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create<M: Into<MemberSpec>>(
        &self,
        members: impl IntoIterator<Item = M>,
    ) -> Result<(), CreateError> {
        let mut wanted = self.wanted.clone();
        wanted.members = members.into_iter().map(|member| Some(member.into())).collect();
        wanted.raid_devices = u16::try_from(wanted.members.len()).unwrap_or(u16::MAX);
        if !self.chunk.is_multiple_of(512) {
            return Err(CreateError::Chunk { bytes: self.chunk });
        }
        wanted.chunk = Some(Sectors::from_bytes(self.chunk)).filter(|chunk| chunk.0 > 0);
        let mut random = Ok(());
        let prepared = prepare(&wanted, |bytes| {
            if random.is_ok() {
                random = getrandom::fill(bytes);
            }
        })?;
        random?;
        Ok(prepared.write()?)
    }
}
