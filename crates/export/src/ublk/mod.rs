//! The array as a block device of the kernel, `/dev/ublkbN`, by its ublk driver (Linux 6.5 and newer).
//!
//! - Commands about the device go through `/dev/ublk-control` (`control`), requests through `/dev/ublkcN`, each queue
//!   by a session on a shard (`queue`).
//! - A device outlives a server that dies: its requests wait for the next server of the same array, which finds it by
//!   the identity that the driver keeps for it.
//! - The kernel is trusted: no program but it writes where a request is described. Offsets and lengths are checked all
//!   the same, since an array may have become smaller.

mod control;
mod error;
mod queue;

pub use error::UblkError;

use crate::vhost_user::Disk;
use control::{Code, Control, Identity, Info, PARAMS_BYTES, State, feature};
use lapstrake_host::{ArraySize, Handle};
use queue::{QueueSession, Terms};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tracing::{info, warn};

/// `UBLK_MAX_QUEUE_DEPTH`.
const DEPTH_MAX: usize = 4096;
/// Requests of one queue that can be under way.
const DEPTH: u16 = 64;
/// Longest read or write. A queue has 32 MiB of buffers.
const REQUEST_BYTES: u32 = 512 << 10;
/// Sectors of one discard or write of zeroes: 1 GiB, which the engine cuts into windows.
const ZEROES_MAX: u32 = 1 << 21;
/// Longest that a device takes to be seen below /dev, or a dead server's to be let go of; longest that a user who is
/// about to go is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(20);
/// How often the array's size is looked at.
const LOOK: Duration = Duration::from_secs(1);

const CONTROL: &str = "/dev/ublk-control";

/// Directions of [`ioctl`].
const WRITE: u8 = 1;
const READ: u8 = 2;

/// The number of a command, as `_IOC` makes it of the driver's letter.
const fn ioctl(direction: u8, number: u8, bytes: u16) -> u32 {
    (direction as u32) << 30 | (bytes as u32) << 16 | (b'u' as u32) << 8 | number as u32
}

fn character_path(number: u32) -> String {
    format!("/dev/ublkc{number}")
}

fn block_path(number: u32) -> PathBuf {
    format!("/dev/ublkb{number}").into()
}

/// A device, which is added or taken over from a server that died, started, and stopped. Dropped, it is taken away; or left
/// for the next server, if it was taken over and not started.
pub struct Device {
    control: Arc<Control>,
    features: u64,
    info: Info,
    is_recovered: bool,
    /// Ends with the device's last session and this.
    character: Option<Arc<File>>,
    attendant: Option<(Sender<()>, JoinHandle<()>)>,
    /// Its start has not ended, and may wait for ever.
    is_begun: bool,
    is_gone: bool,
}

impl Device {
    /// Adds a device of this number, or of any, with as many queues if there are as many processors; or takes over the one
    /// whose server has died. `array` says what is served, in its upper 42 bits.
    ///
    /// # Errors
    /// [`UblkError`].
    pub fn claim(number: Option<u32>, queues: u16, array: u64) -> Result<Self, UblkError> {
        let file = OpenOptions::new().read(true).write(true).open(CONTROL);
        let file = file.map_err(|source| UblkError::Control { source })?;
        let control = Control::new(file).map_err(UblkError::Ring)?;
        let identity = Identity::ours(array);
        let features = control.features().map_err(UblkError::TooOld)?;
        if let Some(info) = left_behind(&control, number, identity)? {
            return Ok(Self::new(control, features, info, true));
        }
        let recovery = feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE;
        // Who has the rights is no unprivileged server, and who has not is left without recovery: the driver sees to it.
        let flags =
            recovery | feature::UNPRIVILEGED_DEV | feature::CMD_IOCTL_ENCODE | feature::UPDATE_SIZE;
        let wanted = Info {
            number: number.unwrap_or(u32::MAX),
            queues,
            depth: DEPTH,
            request_bytes: REQUEST_BYTES,
            flags: flags & features,
            identity,
            state: State::Dead,
        };
        let added = control.add(&wanted).map_err(|source| UblkError::Add { number, source })?;
        Ok(Self::new(control, features, added, false))
    }

    fn new(control: Control, features: u64, info: Info, is_recovered: bool) -> Self {
        Self {
            control: Arc::new(control),
            features,
            info,
            is_recovered,
            character: None,
            attendant: None,
            is_begun: false,
            is_gone: false,
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        block_path(self.info.number)
    }

    /// Serves the array as the device. Its queues' sessions need io_uring.
    ///
    /// # Errors
    /// [`UblkError`].
    pub fn start(&mut self, handle: &Handle, disk: &Disk) -> Result<(), UblkError> {
        if handle.detail().is_some_and(|detail| detail.backend != "io_uring") {
            return Err(UblkError::Threads);
        }
        let path = character_path(self.info.number);
        let failed = |source| UblkError::Character { path: path.clone(), source };
        // Of an unprivileged device, the rights on it are those on the commands that follow.
        let character = open_when_there(Path::new(&path));
        let character = Arc::new(character.map_err(failed)?);
        if !self.is_recovered {
            let mut params = params(disk, disk.size.bytes(), self.info.request_bytes);
            self.command(Code::SetParams, &mut params, 0)?;
        }
        let terms = Terms {
            size: disk.size.clone(),
            block_bytes: disk.block_bytes,
            request_bytes: self.info.request_bytes,
            read_only: disk.read_only,
        };
        let (tell, told) = mpsc::channel();
        let session = |index| {
            let (terms, tell) = (terms.clone(), tell.clone());
            QueueSession::new(character.clone(), index, self.info.depth, terms, tell)
        };
        let sessions: Result<Vec<_>, _> = (0..self.info.queues).map(session).collect();
        for session in sessions.map_err(failed)? {
            handle.welcome(Box::new(session));
        }
        self.character = Some(character);
        self.attend(handle, &disk.size, tell)?;
        self.is_begun = true;
        // The first word is that of a queue that is refused, or of the device.
        let nobody = || Err(UblkError::Queue(io::ErrorKind::BrokenPipe.into()));
        told.recv().unwrap_or_else(|_| nobody())?;
        self.is_begun = false;
        if self.is_recovered {
            handle
                .scope()
                .run(|| info!("{}: goes on after a server that died", self.path().display()));
        }
        lock_memory(handle, &self.path());
        Ok(())
    }

    /// Has a thread start the device, which waits until all queues are served, and then tell the kernel when the array's
    /// size changes.
    fn attend(
        &mut self,
        handle: &Handle,
        size: &ArraySize,
        started: Sender<Result<(), UblkError>>,
    ) -> Result<(), UblkError> {
        let (stop, stopped) = mpsc::channel();
        let attendant = Attendant {
            control: self.control.clone(),
            info: self.info.clone(),
            size: size.clone(),
            // What a server told that died is not known.
            told: if self.is_recovered { 0 } else { size.bytes() },
            path: self.path(),
        };
        let (scope, is_recovered) = (handle.scope().clone(), self.is_recovered);
        let tells_size = self.features & feature::UPDATE_SIZE != 0;
        let run = move || {
            let begun = attendant.start(is_recovered);
            let goes_on = begun.is_ok() && tells_size;
            // Who waits for it may have heard of a queue's trouble.
            let _ = started.send(begun);
            if goes_on {
                scope.run(|| attendant.tell_sizes(&stopped));
            }
        };
        let thread = std::thread::Builder::new().name("ublk".into()).spawn(run);
        self.attendant = Some((stop, thread.map_err(UblkError::Thread)?));
        Ok(())
    }

    fn command(&self, code: Code, payload: &mut [u8], data: u64) -> Result<(), UblkError> {
        command(&self.control, &self.info, code, payload, data)
    }

    /// Takes the device away: what a file system on it has not written yet is written, and requests are answered.
    ///
    /// # Errors
    /// [`UblkError::InUse`]: whoever uses it gets errors from now on; others.
    pub fn stop(mut self) -> Result<(), UblkError> {
        let is_used = self.is_used();
        // Of a device that can be taken over the kernel fails all that comes once it is told to stop.
        let is_written = is_used && write_out(&self.path()).is_ok();
        self.take_away(is_used)?;
        match is_used {
            true => Err(UblkError::InUse { path: self.path(), is_written }),
            false => Ok(()),
        }
    }

    /// Whether somebody has it open, and goes on to; if nobody has, and the driver can tell, it is stopped.
    fn is_used(&self) -> bool {
        let until = Instant::now() + PATIENCE;
        loop {
            let is_used = if self.features & feature::SAFE_STOP_DEV == 0 {
                is_held(&self.path())
            } else {
                let tried = self.control.on(&self.info, Code::TryStopDev, &mut [], 0);
                tried.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
            };
            if !is_used || Instant::now() >= until {
                return is_used;
            }
            std::thread::sleep(STEP);
        }
    }

    fn take_away(&mut self, is_used: bool) -> Result<(), UblkError> {
        if std::mem::replace(&mut self.is_gone, true) {
            return Ok(());
        }
        if self.is_recovered && self.character.is_none() {
            // It was not begun with: whoever uses it goes on to wait for a server.
            return Ok(());
        }
        let (stop, thread) = self.attendant.take().unzip();
        drop(stop);
        self.command(Code::StopDev, &mut [], 0)?;
        self.character = None;
        if is_used || self.is_begun {
            // Its number is free when the last user has gone. Where that cannot be asked for (before Linux 6.9, and of an
            // unprivileged device), the next server of the array sees to it.
            let _ = self.command(Code::DelDevAsync, &mut [], 0);
            return Ok(());
        }
        // It has panicked, or ends now.
        let _ = thread.map(JoinHandle::join);
        // The driver waits until the last session has let go of it.
        self.command(Code::DelDev, &mut [], 0)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // After `stop` there is nothing left to do.
        let _ = self.take_away(false);
    }
}

/// Whether something has the device for itself: a file system, swap space, device mapper, md.
#[must_use]
pub fn is_held(device: &Path) -> bool {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(device);
    opened.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
}

/// Has the kernel write what it holds for a device, and for a file system that lies there.
fn write_out(device: &Path) -> io::Result<()> {
    /// `BLKFLSBUF` of linux/fs.h.
    const FLUSH_BUFFERS: libc::Ioctl = 0x1261;
    let device = File::open(device)?;
    // SAFETY: the descriptor is open, and the command has no argument.
    match unsafe { libc::ioctl(device.as_raw_fd(), FLUSH_BUFFERS, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Starts a device, and tells the kernel its size when that changes.
struct Attendant {
    control: Arc<Control>,
    info: Info,
    size: ArraySize,
    told: u64,
    path: PathBuf,
}

impl Attendant {
    fn start(&self, is_recovered: bool) -> Result<(), UblkError> {
        let code = if is_recovered { Code::EndUserRecovery } else { Code::StartDev };
        command(&self.control, &self.info, code, &mut [], std::process::id().into())
    }

    fn tell_sizes(mut self, stopped: &Receiver<()>) {
        loop {
            let bytes = self.size.bytes();
            if bytes != self.told {
                self.told = bytes;
                let told = self.control.on(&self.info, Code::UpdateSize, &mut [], bytes / 512);
                if let Err(error) = told {
                    warn!(
                        "{}: the kernel cannot be told its new size: {error}",
                        self.path.display()
                    );
                }
            }
            if stopped.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }
}

fn command(
    control: &Control,
    info: &Info,
    code: Code,
    payload: &mut [u8],
    data: u64,
) -> Result<(), UblkError> {
    let failed = |source| {
        let path = block_path(info.number);
        UblkError::Command { path, code: format!("{code:?}"), source }
    };
    control.on(info, code, payload, data).map_err(failed)
}

/// A file system on the device is written when memory runs out, and must not wait for us to get some.
fn lock_memory(handle: &Handle, path: &Path) {
    let Err(error) = crate::fuse::lock_all() else { return };
    handle.scope().run(|| {
        warn!(
            "{}: the server's memory cannot be locked ({error}); a filesystem on it may hang when memory runs out: serve it \
             as root, or with `ulimit -l unlimited`",
            path.display()
        );
    });
}

/// The device of this array that a dead server has left, ready to be taken over; those that cannot be are taken away.
fn left_behind(
    control: &Control,
    number: Option<u32>,
    ours: Identity,
) -> Result<Option<Info>, UblkError> {
    let numbers = number.map_or_else(numbers, |number| vec![number]);
    for number in numbers {
        let Some(info) = settled(control, number, ours) else { continue };
        let failed = |source| UblkError::LeftBehind { path: character_path(number), source };
        match info.state {
            State::Quiesced => {
                // Until the dead server's files are closed.
                let begin = || control.on(&info, Code::StartUserRecovery, &mut [], 0);
                while_busy(begin).map_err(failed)?;
                return Ok(Some(info));
            }
            State::Dead if !info.identity.has_process() => {
                control.on(&info, Code::DelDev, &mut [], 0).map_err(failed)?;
            }
            // Another server's, which reads the same array.
            _ => {}
        }
    }
    Ok(None)
}

/// A device of this array; where its server has just been killed, once the kernel has seen to it.
fn settled(control: &Control, number: u32, ours: Identity) -> Option<Info> {
    let until = Instant::now() + PATIENCE;
    loop {
        let info = control.info(number).ok()?;
        let is_dying = info.state == State::Live && !info.identity.has_process();
        if !info.identity.is_same_array(ours) {
            return None;
        }
        if !is_dying || Instant::now() >= until {
            return Some(info);
        }
        std::thread::sleep(STEP);
    }
}

/// Of all devices.
fn numbers() -> Vec<u32> {
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    let number = |name: &str| name.strip_prefix("ublkc")?.parse().ok();
    entries.filter_map(|entry| number(entry.file_name().to_str()?)).collect()
}

fn while_busy(mut act: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        match act() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until => {
                std::thread::sleep(STEP);
            }
            other => return other,
        }
    }
}

/// Opens what udev may be about to make, and to give rights to.
fn open_when_there(path: &Path) -> io::Result<File> {
    let until = Instant::now() + PATIENCE;
    loop {
        match OpenOptions::new().read(true).write(true).open(path) {
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENOENT | libc::EACCES | libc::EBUSY)
                ) && Instant::now() < until =>
            {
                std::thread::sleep(STEP);
            }
            other => return other,
        }
    }
}

/// `struct ublk_params`: the disk, in the driver's terms.
fn params(disk: &Disk, bytes: u64, request_bytes: u32) -> [u8; PARAMS_BYTES] {
    const BASIC: u32 = 1;
    const DISCARD: u32 = 2;
    const READ_ONLY: u32 = 1;
    const VOLATILE_CACHE: u32 = 1 << 2;
    const FUA: u32 = 1 << 3;
    let mut params = [0; PARAMS_BYTES];
    let mut put = |at: usize, value: &[u8]| params[at..at + value.len()].copy_from_slice(value);
    let attributes = VOLATILE_CACHE | FUA | if disk.read_only { READ_ONLY } else { 0 };
    let block = disk.block_bytes.trailing_zeros() as u8;
    put(0, &(PARAMS_BYTES as u32).to_ne_bytes());
    put(4, &(BASIC | if disk.read_only { 0 } else { DISCARD }).to_ne_bytes());
    put(8, &attributes.to_ne_bytes());
    put(12, &[block, block, shift(disk.row_bytes), shift(disk.chunk_bytes).max(block)]);
    put(16, &(request_bytes / 512).to_ne_bytes());
    put(24, &(bytes / 512).to_ne_bytes());
    if !disk.read_only {
        put(44, &disk.block_bytes.to_ne_bytes());
        put(48, &ZEROES_MAX.to_ne_bytes());
        put(52, &ZEROES_MAX.to_ne_bytes());
        put(56, &1u16.to_ne_bytes());
    }
    params
}

/// The driver takes powers of two, up to 256 MiB; what is none is not told.
fn shift(bytes: u64) -> u8 {
    if bytes.is_power_of_two() && bytes <= 256 << 20 { bytes.trailing_zeros() as u8 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Disk {
        Disk {
            size: (1 << 30).into(),
            block_bytes: 4096,
            chunk_bytes: 64 << 10,
            row_bytes: 192 << 10,
            read_only: false,
            serial: [0; 20],
            lending: false.into(),
        }
    }

    #[test]
    fn parameters_have_the_offsets_of_the_drivers_header() {
        let told = params(&disk(), 1 << 30, REQUEST_BYTES);
        let u32_at = |at: usize| u32::from_ne_bytes(told[at..at + 4].try_into().unwrap());
        assert_eq!((u32_at(0), u32_at(4), u32_at(8)), (60, 3, 0xc));
        assert_eq!(told[12..16], [12, 12, 0, 16], "a row of three chunks cannot be told");
        assert_eq!((u32_at(16), u32_at(20), u32_at(24)), (1024, 0, 1 << 21));
        assert_eq!((u32_at(44), u32_at(48), u32_at(52), told[56]), (4096, 1 << 21, 1 << 21, 1));
        let row = params(&Disk { row_bytes: 128 << 10, ..disk() }, 1 << 30, REQUEST_BYTES);
        assert_eq!(row[14], 17);
    }

    #[test]
    fn a_device_that_is_not_written_is_told_of_no_discards() {
        let told = params(&Disk { read_only: true, ..disk() }, 1 << 30, REQUEST_BYTES);
        assert_eq!((told[4], told[8]), (1, 0xd));
        assert_eq!(told[40..], [0; 20]);
    }
}
