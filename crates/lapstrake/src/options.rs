//! How an array is opened.

use crate::{Array, OpenError};
use lapstrake_device::{Member, MemberSpec, Source};
use lapstrake_host::{OpenRequest, Opened, Options, open, open_members, open_whole};
use std::path::PathBuf;

/// What the array's own memory for requests is: ours come with their own.
const BUFFERS: usize = 64 << 10;

/// How an array is opened. Without any option: for writing, with every member that was there when it was last in use.
///
/// ```no_run
/// # fn main() -> Result<(), lapstrake::OpenError> {
/// use lapstrake::OpenOptions;
///
/// // A NAS that died with a disk missing: look, and try out a repair, without a change to the evidence.
/// let array = OpenOptions::new()
///     .degraded(true)
///     .force(true)
///     .overlay("rescue.cow")
///     .open(["sda.img", "sdb.img", "sdd.img"])?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct OpenOptions {
    request: OpenRequest,
    options: Options,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// For writing, with nothing missing.
    #[must_use]
    pub fn new() -> Self {
        let options = Options { shards: 1, buffer_bytes: BUFFERS, ..Options::default() };
        Self { request: OpenRequest::default(), options }
    }

    /// Write nothing: members are opened for reading only, and other readers may share them. What a journal or partial
    /// parity logs hold and the members lack is brought together with them in a file without a name where temporary
    /// files go.
    pub fn read_only(&mut self, yes: bool) -> &mut Self {
        self.request.read_only = yes;
        self
    }

    /// Also if members are missing that were there when the array was last in use, as far as its redundancy allows it.
    pub fn degraded(&mut self, yes: bool) -> &mut Self {
        self.request.degraded = yes;
        self
    }

    /// Also with members that are out of date, and an array that is both degraded and was not stopped cleanly: data may
    /// be old or wrong. Opened for writing it is then recorded as clean.
    pub fn force(&mut self, yes: bool) -> &mut Self {
        self.request.force = yes;
        self
    }

    /// Take superblocks and bitmaps that hold what nobody knows. It counts only where nothing is written to the members:
    /// for reading, or with an overlay.
    pub fn ignore_unknown(&mut self, yes: bool) -> &mut Self {
        self.request.ignore_unknown = yes;
        self
    }

    /// Only members of the array with this UUID, in the order in which mdadm prints it.
    pub fn uuid(&mut self, uuid: [u8; 16]) -> &mut Self {
        self.request.uuid = Some(uuid);
        self
    }

    /// Only members of an array of this name.
    pub fn set_name(&mut self, name: impl Into<String>) -> &mut Self {
        self.request.set_name = Some(name.into());
        self
    }

    /// The file of an external write-intent bitmap.
    pub fn bitmap_file(&mut self, path: impl Into<PathBuf>) -> &mut Self {
        self.request.bitmap_file = Some(path.into());
        self
    }

    /// Keep all writes in this file, and the members as they are. It is made if it is not there; if it is, what was
    /// written before is there.
    pub fn overlay(&mut self, path: impl Into<PathBuf>) -> &mut Self {
        self.request.overlay = Some(path.into());
        self
    }

    /// Begin no recovery and no resync, though one is due.
    pub fn frozen(&mut self, yes: bool) -> &mut Self {
        self.options.frozen = yes;
        self
    }

    /// Opens the array that these members make: paths, or windows of files and devices.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open<M: Into<MemberSpec>>(
        &self,
        members: impl IntoIterator<Item = M>,
    ) -> Result<Array, OpenError> {
        let members = members.into_iter().map(Into::into).collect();
        let request = OpenRequest { members, ..self.request.clone() };
        let opened = match request.read_only && request.overlay.is_none() {
            true => open_whole(request),
            false => open(&request),
        };
        let opened = opened?;
        self.check_logs(&opened)?;
        Array::start(opened, &self.options())
    }

    /// Opens for reading the array that these readers hold the members of, each with the name that messages call it by.
    /// Each is read by one thread at a time, several side by side. What a journal or partial parity logs hold and the
    /// members lack cannot be brought there, so an array that needs it is refused.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_readers<N: AsRef<str>, S: Source + 'static>(
        &self,
        members: impl IntoIterator<Item = (N, S)>,
    ) -> Result<Array, OpenError> {
        if self.request.overlay.is_some() || self.request.bitmap_file.is_some() {
            return Err(OpenError::NotForReaders);
        }
        let member = |(name, source): (N, S)| {
            let name = name.as_ref();
            Member::reader(name, Box::new(source))
                .map_err(|source| OpenError::Reader { name: name.into(), source })
        };
        let members = members.into_iter().map(member).collect::<Result<Vec<_>, _>>()?;
        let mut reading = self.clone();
        reading.read_only(true);
        let opened = open_members(&reading.request, members)?;
        reading.check_logs(&opened)?;
        Array::start(opened, &reading.options())
    }

    /// That nothing is read by a parity that the logs would have put right.
    fn check_logs(&self, opened: &Opened) -> Result<(), OpenError> {
        let is_replayed = !opened.parts.is_dirty_with_logs()
            || opened.parts.overlay_is_passing
            || !self.request.read_only;
        match is_replayed || opened.parts.plan.assembly.degraded == 0 || self.request.force {
            true => Ok(()),
            false => Err(OpenError::LogsNotReplayed),
        }
    }

    fn options(&self) -> Options {
        Options { read_only: self.request.read_only, ..self.options.clone() }
    }
}
