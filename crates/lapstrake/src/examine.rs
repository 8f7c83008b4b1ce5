//! A look at one member.

use lapstrake_device::{Member, MemberSpec, Source};
use lapstrake_host::scan::{BadBlockEntries, BitmapLook, Look, LookError};
use lapstrake_metadata::Superblock;
use lapstrake_metadata::detect::Finding;

/// What a file, device or reader holds.
#[derive(Debug)]
pub struct Examination {
    look: Look,
}

/// Looks at a member, without a lock: it may be in use. It may take as long as its disk.
///
/// ```no_run
/// # fn main() -> Result<(), lapstrake::LookError> {
/// let member = lapstrake::examine("/dev/sdb1")?;
/// if let Some(superblock) = member.superblock() {
///     let uuid = lapstrake::metadata::uuid_text(superblock.set_uuid());
///     println!("{uuid}: {} events, {:?}", superblock.events(), superblock.role());
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`LookError`].
pub fn examine(member: impl Into<MemberSpec>) -> Result<Examination, LookError> {
    Ok(Examination { look: Look::at(&member.into())? })
}

/// Looks at a member that is a reader. `name` is what messages call it.
///
/// # Errors
/// [`LookError`].
pub fn examine_reader(name: &str, source: impl Source + 'static) -> Result<Examination, LookError> {
    let failed =
        |source| LookError::Read { spec: MemberSpec::whole(name), what: "where it ends", source };
    let member = Member::reader(name, Box::new(source)).map_err(failed)?;
    Ok(Examination { look: Look::of(member)? })
}

impl Examination {
    pub(crate) fn of(look: Look) -> Self {
        Self { look }
    }

    /// What was looked at.
    #[must_use]
    pub fn member(&self) -> &MemberSpec {
        self.look.spec()
    }

    /// Its bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.look.size().bytes()
    }

    /// All that was recognised: md superblocks, also those that cannot be used and why, partition tables, filesystems.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.look.findings().all
    }

    /// The md superblock that counts.
    #[must_use]
    pub fn superblock(&self) -> Option<&Superblock> {
        self.look.superblock()
    }

    /// The internal write-intent bitmap; None if the superblock tells of none.
    ///
    /// # Errors
    /// [`LookError`].
    pub fn bitmap(&self) -> Result<Option<BitmapLook>, LookError> {
        self.superblock().map_or(Ok(None), |superblock| self.look.bitmap(superblock))
    }

    /// The bad-block log, as sectors of the member and how many; None if the superblock tells of none.
    ///
    /// # Errors
    /// [`LookError`].
    pub fn bad_blocks(&self) -> Result<Option<BadBlockEntries>, LookError> {
        self.superblock().map_or(Ok(None), |superblock| self.look.bad_blocks(superblock))
    }

    /// Who had it locked for writing, such as a server, as far as can be known; None if nobody had, or it cannot be
    /// asked.
    #[must_use]
    pub fn writers(&self) -> Option<&[String]> {
        self.look.writers()
    }
}
