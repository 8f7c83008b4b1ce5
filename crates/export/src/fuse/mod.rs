//! The array as one file, by FUSE.
//!
//! The mount covers a regular file and its root is a regular file: no directory, no name to look
//! up. The file can be read, written, mapped, given to a loop device or to a virtual machine.
//! Its size is the array's. The kernel caches nothing of its contents but what is mapped: reads, writes and
//! other clients of the same array see one truth, which a page that stays mapped does not follow.
//!
//! - `fsync` flushes the array; writes with O_SYNC or O_DSYNC are durable when they return.
//! - `fallocate` punches holes and zeroes ranges; both read as zeroes afterwards.
//! - Any offset and length will do: parts of the members' blocks are read, merged and written by the engine, in
//!   turn with all other writes to the block.
//! - Shards take requests from the kernel and answer them: one reads `/dev/fuse`, and where the kernel hands requests over
//!   by io_uring half of them do. Memory for what is in flight is there before the first request.

mod device;
mod file;
mod memory;
mod ring;
mod session;
mod transfer;
mod wire;

use device::Device;
use file::ArrayFile;
use fuser::{
    Config, Filesystem, InitFlags, KernelConfig, MountOption, Request, Session, SessionACL,
    SessionUnmounter,
};
use lapstrake_device::quoted_path;
use lapstrake_host::{ArraySize, Handle};
pub(crate) use memory::lock_all;
use ring::Queues;
use session::{Common, FuseSession};
use std::{
    ffi::CString,
    fs, io,
    os::{
        fd::AsFd,
        unix::{
            ffi::OsStrExt,
            fs::{MetadataExt, OpenOptionsExt},
        },
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};
use thiserror::Error;
use tracing::warn;

/// Longest read or write of the kernel, as agreed with it, in bytes.
const TRANSFER_MAX: usize = 1 << 20;
/// Requests that the kernel sends without waiting for the answers of earlier ones. What it sends
/// beyond our memory stays in its queue.
const BACKGROUND_MAX: u16 = 256;

/// After an unmount the kernel ends the session at once, unless somebody has the file open.
const END_WAIT: Duration = Duration::from_secs(5);

/// Why there is no mount, or why it did not end.
#[derive(Debug, Error)]
pub enum FuseError {
    /// It is something else than a regular file.
    #[error("{}: not a regular file; name one that is empty or does not exist yet", .path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// It has contents, which the mount would hide.
    #[error("{}: not empty; name a file that is, or that does not exist yet", .path.display())]
    NotEmpty {
        /// What was named.
        path: PathBuf,
    },
    /// The mount point cannot be made or looked at.
    #[error("{}: cannot have the array's file there: {source}{}", .path.display(), hint(path, source))]
    MountPoint {
        /// What was named.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The kernel, or fusermount3, refused.
    #[error("{}: cannot mount there: {source}", .path.display())]
    Mount {
        /// Where.
        path: PathBuf,
        /// The answer.
        source: io::Error,
    },
    /// Memory or a thread was refused.
    #[error("the system refused {what}: {source}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// The mount did not go.
    #[error("{}: cannot unmount: {source}", .path.display())]
    Unmount {
        /// Where.
        path: PathBuf,
        /// The answer.
        source: io::Error,
    },
    /// The file is no longer to be found, but a program or a loop device has it open still.
    #[error(
        "{}: unmounted, but somebody has it open still (a loop device?); \
         what they read or write when the array has stopped fails",
        .path.display()
    )]
    InUse {
        /// Where it was.
        path: PathBuf,
    },
}

fn hint(path: &Path, error: &io::Error) -> String {
    match error.raw_os_error() {
        _ if is_of_dead(error) => {
            format!(
                " (the mount of a server that died; `fusermount3 -u {}` removes it)",
                quoted_path(path)
            )
        }
        Some(libc::ENOENT) if path.is_symlink() => {
            "; it is a link to a file that is not there: make that, or choose another place".into()
        }
        Some(libc::ENOENT) => "; make its directory first".into(),
        _ => String::new(),
    }
}

/// Whether it is the answer of a mount whose server has died; the latter if that dies while it is being asked.
fn is_of_dead(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
}

/// Takes away what a server that died has left mounted: whoever has it open gets errors before and after. One that cannot
/// be is told of when the file is used.
fn remove_dead_mount(file: &Path) {
    // Its attributes the kernel may remember, but nobody opens it.
    let may_be =
        fs::symlink_metadata(file).map_or_else(|error| is_of_dead(&error), |meta| meta.is_file());
    if !may_be || !fs::File::open(file).is_err_and(|error| is_of_dead(&error)) {
        return;
    }
    let is_gone = detach(file).is_ok()
        || Command::new("fusermount3")
            .args(["-u", "-z", "--"])
            .arg(file)
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
    if is_gone {
        warn!(file = %file.display(), "{}: the mount of a server that died was taken away", file.display());
    }
}

/// Takes a mount out of sight, in use or not.
fn detach(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: a terminated string that lives through the call.
    match unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How often the file is open.
#[derive(Debug, Default)]
pub struct Users {
    count: Mutex<usize>,
    gone: Condvar,
}

impl Users {
    fn count(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn come(&self) {
        *self.count() += 1;
    }

    fn go(&self) {
        let mut count = self.count();
        *count -= 1;
        if *count == 0 {
            self.gone.notify_all();
        }
    }

    /// The file is served no more, to nobody.
    fn end(&self) {
        *self.count() = 0;
        self.gone.notify_all();
    }

    /// Whether somebody has the file open, and goes on to: a loop device that was detached closes it a moment later.
    #[must_use]
    pub fn stay(&self) -> bool {
        let left = self.gone.wait_timeout_while(self.count(), END_WAIT, |count| *count > 0);
        left.map_or_else(|poisoned| *poisoned.into_inner().0, |(count, _)| *count) > 0
    }
}

/// A mounted array. Dropping it unmounts too, without a word.
pub struct Mount {
    point: Arc<MountPoint>,
    unmounter: SessionUnmounter,
    end: Arc<End>,
    users: Arc<Users>,
}

impl Mount {
    /// Mounts the array, of `size` and with members whose unit is `block` bytes, over `file`: an empty
    /// regular file, or none, which is then created and removed again at the end. Only the caller's user
    /// may use it.
    ///
    /// Root mounts by itself; others need `fusermount3`.
    ///
    /// # Errors
    /// [`FuseError`], never its last two.
    pub fn new(
        handle: Handle,
        size: ArraySize,
        block: u32,
        read_only: bool,
        file: &Path,
    ) -> Result<Self, FuseError> {
        let point = Arc::new(MountPoint::prepare(file)?);
        let refused = |what| move |source| FuseError::System { what, source };
        let path = point.path.clone();
        let users = Arc::new(Users::default());
        let queues = Queues::new().filter(|_| handle.takes_long_commands());
        let has_queues = Arc::new(AtomicBool::new(false));
        let data_bytes = queues.as_ref().map(|queues| queues.data_bytes);
        let terms = Terms { data_bytes, has_queues: has_queues.clone() };
        let session = Session::new(terms, &path, &config(read_only));
        let mut session =
            session.map_err(|source| FuseError::Mount { path: path.clone(), source })?;
        let unmounter = session.unmount_callable();
        let device = session.as_fd().try_clone_to_owned().map_err(refused("a descriptor"))?;
        let (over, ends) = mpsc::channel();
        let common = Common {
            device: Device::new(device).map_err(refused("a descriptor"))?,
            file: Arc::new(ArrayFile::new(size.clone(), read_only, users.clone())),
            block: block.into(),
            path: path.clone(),
            over,
        };
        let queues = queues.as_ref().filter(|_| has_queues.load(Ordering::Relaxed));
        let sessions = FuseSession::all(&common, queues, handle.shards());
        drop(common);
        for session in sessions.map_err(refused("what FUSE requests need"))? {
            handle.welcome(Box::new(session));
        }
        let end = Arc::new(End::default());
        let (ending, covered) = (end.clone(), point.clone());
        let (served, scope) = (users.clone(), handle.scope().clone());
        let run = move || {
            let _ = ends.recv();
            drop(session);
            served.end();
            scope.run(|| covered.leave());
            covered.remove();
            ending.happen();
        };
        std::thread::Builder::new().name("fuse".into()).spawn(run).map_err(refused("a thread"))?;
        // Unmounts when dropped.
        let mount = Self { point, unmounter, end, users };
        // Its answer shows that all is there that serving needs: an array that has stopped leaves the file beneath.
        let seen = fs::metadata(&path).and_then(|seen| match seen.len() == size.bytes() {
            true => Ok(()),
            false => Err(io::ErrorKind::NotConnected.into()),
        });
        seen.map_err(|source| FuseError::Mount { path: path.clone(), source })?;
        if let Err(error) = lock_all() {
            handle.scope().run(|| {
                warn!(
                    file = %path.display(),
                    "{}: the server's memory cannot be locked ({error}); a filesystem on the file may \
                     hang when memory runs out: serve it as root, or with `ulimit -l unlimited`",
                    path.display()
                );
            });
        }
        Ok(mount)
    }

    /// Whether a file can be mounted over, before anything is started for it.
    ///
    /// # Errors
    /// [`FuseError::NotAFile`], [`FuseError::NotEmpty`], [`FuseError::MountPoint`].
    pub fn check(file: &Path) -> Result<(), FuseError> {
        MountPoint::prepare(file).map(drop)
    }

    /// Calls `act` when the mount has ended, whoever ended it; at once, on this thread, if it has.
    /// [`Mount::unmount`] returns after it, so it must not wait for that.
    pub fn on_end(&self, act: impl FnOnce() + Send + 'static) {
        self.end.then(Box::new(act));
    }

    /// Who has the file open.
    #[must_use]
    pub fn users(&self) -> Arc<Users> {
        self.users.clone()
    }

    /// Ends the mount: what was begun is answered first. If the file is in use, it is taken out of
    /// sight and served until its users close it.
    ///
    /// # Errors
    /// [`FuseError::Unmount`]; [`FuseError::InUse`].
    pub fn unmount(mut self) -> Result<(), FuseError> {
        self.take_away()?;
        // The session lasts while the file is in use, perhaps longer than this process.
        self.point.remove();
        if self.end.wait(END_WAIT) {
            return Ok(());
        }
        Err(FuseError::InUse { path: self.point.path.clone() })
    }

    fn take_away(&mut self) -> Result<(), FuseError> {
        match self.unmounter.unmount() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                let failed = |source| FuseError::Unmount { path: self.point.path.clone(), source };
                detach(&self.point.path).map_err(failed)
            }
            Err(source) => Err(FuseError::Unmount { path: self.point.path.clone(), source }),
            Ok(()) => Ok(()),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // After `unmount` there is nothing left to do.
        let _ = self.take_away();
    }
}

/// What is agreed with the kernel at the start.
struct Terms {
    /// The longest request, if it hands requests over by io_uring.
    data_bytes: Option<usize>,
    /// It does. It hands over none before each of its queues has an entry.
    has_queues: Arc<AtomicBool>,
}

impl Filesystem for Terms {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let refused = || io::Error::other("the kernel's FUSE is too old");
        for wanted in [InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP] {
            // An older kernel serves one direct request at a time, or no shared mapping.
            let _ = config.add_capabilities(wanted);
        }
        let mut longest = TRANSFER_MAX as u32;
        if let Some(bytes) = self.data_bytes
            && config.add_capabilities(InitFlags::FUSE_OVER_IO_URING).is_ok()
        {
            self.has_queues.store(true, Ordering::Relaxed);
            longest = bytes as u32;
            // What it reads ahead of mapped pages is no longer either; it may have asked for less.
            let _ = config.set_max_readahead(longest);
        }
        config.set_max_write(longest).map_err(|_| refused())?;
        config.set_max_background(BACKGROUND_MAX).map_err(|_| refused())?;
        Ok(())
    }
}

fn config(read_only: bool) -> Config {
    let mut config = Config::default();
    config.acl = SessionACL::Owner;
    config.mount_options = vec![
        MountOption::FSName("lapstrake".into()),
        MountOption::DefaultPermissions,
        MountOption::NoExec,
        MountOption::NoAtime,
        if read_only { MountOption::RO } else { MountOption::RW },
    ];
    config
}

/// The file beneath the mount; removed with this if it was made here.
struct MountPoint {
    path: PathBuf,
    /// The file that was made here; open, so that no other file gets its number, and for reading only, so that
    /// its file system may be made so too.
    made: Option<fs::File>,
}

impl MountPoint {
    fn prepare(file: &Path) -> Result<Self, FuseError> {
        let failed = |source| FuseError::MountPoint { path: file.to_path_buf(), source };
        remove_dead_mount(file);
        let made = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_CREAT | libc::O_EXCL)
            .mode(0o600)
            .open(file);
        let made = match made {
            Ok(made) => Some(made),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            Err(error) => return Err(failed(error)),
        };
        let meta = fs::metadata(file).map_err(failed)?;
        if !meta.is_file() {
            return Err(FuseError::NotAFile { path: file.to_path_buf() });
        }
        if meta.len() != 0 {
            // The size may be what the kernel remembers of the mount of a server that died.
            fs::File::open(file).map_err(failed)?;
            return Err(FuseError::NotEmpty { path: file.to_path_buf() });
        }
        Ok(Self { path: fs::canonicalize(file).map_err(failed)?, made })
    }

    /// A connection that somebody cut off while the file was open leaves a mount that nobody serves.
    fn leave(&self) {
        // Its attributes the kernel may remember.
        let opened = fs::File::open(&self.path);
        if opened.is_err_and(|error| is_of_dead(&error)) {
            warn!(
                file = %self.path.display(),
                "{}: the mount was ended by force while the file was open; who has it open gets errors",
                self.path.display()
            );
            // Without the right to do it, `fusermount3 -u` is left.
            let _ = detach(&self.path);
        }
    }

    /// Removes the file that was made here, if it is what is to be seen, and is empty.
    fn remove(&self) {
        let id = |meta: &fs::Metadata| (meta.dev(), meta.ino());
        let Some(Ok(made)) = self.made.as_ref().map(fs::File::metadata) else { return };
        let seen = fs::symlink_metadata(&self.path);
        if made.len() == 0 && seen.is_ok_and(|seen| id(&seen) == id(&made)) {
            // Nothing is lost if it stays.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The end of a mount, to wait for.
#[derive(Default)]
struct End {
    state: Mutex<EndState>,
    told: Condvar,
}

#[derive(Default)]
struct EndState {
    /// It has come: acts are done at once.
    is_here: bool,
    /// Those who wanted to be told have been.
    is_told: bool,
    acts: Vec<Box<dyn FnOnce() + Send>>,
}

impl End {
    fn lock(&self) -> MutexGuard<'_, EndState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn happen(&self) {
        let mut state = self.lock();
        state.is_here = true;
        let acts = std::mem::take(&mut state.acts);
        drop(state);
        for act in acts {
            act();
        }
        self.lock().is_told = true;
        self.told.notify_all();
    }

    fn then(&self, act: Box<dyn FnOnce() + Send>) {
        let mut state = self.lock();
        if !state.is_here {
            return state.acts.push(act);
        }
        drop(state);
        act();
    }

    /// False if it did not come in time.
    fn wait(&self, limit: Duration) -> bool {
        let going_on = |state: &mut EndState| !state.is_told;
        let waited = self.told.wait_timeout_while(self.lock(), limit, going_on);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_told
    }
}
