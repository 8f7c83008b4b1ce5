//! An open array.

use crate::blocks::Blocks;
use crate::{CloseError, IoError, OpenError, OpenOptions};
use lapstrake_control::Detail;
use lapstrake_device::{MemberSpec, Source};
use lapstrake_geometry::Level;
use lapstrake_host::{self as host, Line, Opened, Options};
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// What became of a device that an array was opened from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberReport {
    /// As it was named.
    pub name: String,
    /// Whether it is part of the array.
    pub taken: bool,
    /// It is part of it only because that was forced.
    pub forced: bool,
    /// Why, in words.
    pub reason: String,
}

impl From<Line> for MemberReport {
    fn from(line: Line) -> Self {
        let Line { member, taken, forced, verdict } = line;
        Self { name: member, taken, forced, reason: verdict }
    }
}

/// An open array: bytes from 0 to [`Array::len`].
///
/// [`Array::read_at`] and [`Array::write_at`] can be called from several threads at once; what overlaps in time and place
/// gives either, block by block. As a [`Read`], [`Write`] and [`Seek`] it has a place of its own, which these do not
/// move.
///
/// Dropped, it is closed as by [`Array::close`], and how that went is lost.
pub struct Array {
    /// Until it is closed; before it so is `blocks`.
    running: Option<host::Array>,
    blocks: Option<Blocks>,
    facts: Detail,
    level: Level,
    is_degraded: bool,
    may_be_old: bool,
    members: Vec<MemberReport>,
    position: u64,
}

impl Array {
    /// Opens an array for reading from files, block devices or windows of these. Nothing is written to them. It may lack
    /// as many members as its level survives.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_read_only<M: Into<MemberSpec>>(
        members: impl IntoIterator<Item = M>,
    ) -> Result<Self, OpenError> {
        OpenOptions::new().read_only(true).degraded(true).open(members)
    }

    /// As [`Array::open_read_only`], from whatever can be read and sought, each with a name for messages.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let images = [std::fs::read("a.img")?, std::fs::read("b.img")?];
    /// let members = images.map(std::io::Cursor::new);
    /// let array = lapstrake::Array::open_readers(["a", "b"].into_iter().zip(members))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_readers<N: AsRef<str>, S: Source + 'static>(
        members: impl IntoIterator<Item = (N, S)>,
    ) -> Result<Self, OpenError> {
        OpenOptions::new().degraded(true).open_readers(members)
    }

    /// Opens an array for writing. Its members are locked. A member that is missing, though it was there when the array
    /// was last in use, is an error; [`OpenOptions`] has more to say. Recovery onto a spare and a resync that is due
    /// begin by themselves.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open<M: Into<MemberSpec>>(
        members: impl IntoIterator<Item = M>,
    ) -> Result<Self, OpenError> {
        OpenOptions::new().open(members)
    }

    pub(crate) fn start(opened: Opened, options: &Options) -> Result<Self, OpenError> {
        let Opened { parts, report, new_overlay, .. } = opened;
        let (level, unit) = (parts.plan.geometry.level(), parts.block_bytes());
        let assembly = &parts.plan.assembly;
        let (is_degraded, may_be_old) = (assembly.degraded > 0, assembly.newly_degraded);
        let running = host::Array::start(parts, options)?;
        if let Some(overlay) = new_overlay {
            overlay.keep();
        }
        let blocks = Blocks::new(running.handle().array_io(), unit, running.bytes());
        Ok(Self {
            facts: running.facts().clone(),
            running: Some(running),
            blocks: Some(blocks),
            level,
            is_degraded,
            may_be_old,
            members: report.into_iter().map(MemberReport::from).collect(),
            position: 0,
        })
    }

    /// Bytes of the array, in whole blocks.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.blocks().size()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of a block: reads and writes of whole ones, at multiples of it, cost least.
    #[must_use]
    pub fn block_size(&self) -> u64 {
        self.blocks().unit()
    }

    /// The name in its superblocks, without the host; its UUID if it has none.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// As mdadm prints it.
    #[must_use]
    pub fn uuid(&self) -> &str {
        &self.facts.uuid
    }

    /// Its level.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Bytes of a chunk; 0 where the level has none.
    #[must_use]
    pub fn chunk_size(&self) -> u64 {
        self.facts.chunk_bytes
    }

    /// Slots for members.
    #[must_use]
    pub fn raid_devices(&self) -> u16 {
        self.facts.raid_devices
    }

    /// Whether writes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.running.as_ref().is_none_or(host::Array::is_read_only)
    }

    /// Whether slots lacked a member in sync when it was opened.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.is_degraded
    }

    /// Whether members are missing that were there when it was last in use, as far as those at hand tell: if they went
    /// on without us, what is read here is old.
    #[must_use]
    pub fn may_be_old(&self) -> bool {
        self.may_be_old
    }

    /// What became of each device that it was opened from.
    #[must_use]
    pub fn members(&self) -> &[MemberReport] {
        &self.members
    }

    /// Fills the buffer from `offset` on.
    ///
    /// # Errors
    /// [`IoError`]. What lies before the byte that it names is in the buffer.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        self.blocks().read(offset, buf).1
    }

    /// Writes the buffer at `offset`. It is stable after [`Array::flush`].
    ///
    /// # Errors
    /// [`IoError`].
    pub fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), IoError> {
        if self.is_read_only() {
            return Err(IoError::ReadOnly);
        }
        self.blocks().write(offset, buf)
    }

    /// Makes stable what was written.
    ///
    /// # Errors
    /// [`IoError::Unflushed`], [`IoError::Stopped`].
    pub fn flush(&self) -> Result<(), IoError> {
        self.blocks().flush()
    }

    /// Makes all stable, has the superblocks say clean, and gives the members back.
    ///
    /// # Errors
    /// [`CloseError`]; the members are given back all the same.
    pub fn close(mut self) -> Result<(), CloseError> {
        if self.stop() { Ok(()) } else { Err(CloseError::NotClean) }
    }

    /// Whether it ended cleanly.
    fn stop(&mut self) -> bool {
        let is_read_only = self.is_read_only();
        self.blocks = None;
        self.running.take().is_none_or(|running| running.stop() || is_read_only)
    }

    /// How many of so many bytes, from the place on, the array has.
    fn within(&self, len: usize) -> usize {
        let rest = self.len().saturating_sub(self.position);
        len.min(usize::try_from(rest).unwrap_or(usize::MAX))
    }

    fn blocks(&self) -> &Blocks {
        self.blocks.as_ref().expect("taken when it is closed only, which ends it")
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut array = f.debug_struct("Array");
        array.field("name", &self.facts.name).field("level", &self.level);
        array.field("members", &self.members).field("position", &self.position);
        array.finish_non_exhaustive()
    }
}

impl Read for Array {
    /// What can be read before something cannot; that is an error when it is come to.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.within(buf.len());
        if len == 0 {
            return Ok(0);
        }
        let (got, result) = self.blocks().read(self.position, &mut buf[..len]);
        self.position += got as u64;
        match result {
            Err(error) if got == 0 => Err(error.into()),
            _ => Ok(got),
        }
    }
}

impl Write for Array {
    /// All of it, up to the array's end.
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let len = self.within(buf.len());
        if len == 0 {
            return Ok(0);
        }
        self.write_at(self.position, &buf[..len])?;
        self.position += len as u64;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(Array::flush(self)?)
    }
}

impl Seek for Array {
    /// A place beyond the end is no error: nothing is read there, and nothing can be written.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        let before = || {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "no place within 64 bits from the array's start on",
            )
        };
        self.position = place.ok_or_else(before)?;
        Ok(self.position)
    }
}
