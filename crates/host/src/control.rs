//! The control socket of a served array: a line of JSON in, a line of JSON out (`docs/control.md`).
//!
//! One Unix socket for each array, `NAME.sock` in a directory of the user's own. Threads of its
//! own serve it, so that nothing here is on the data path; they reach the array as any other
//! thread does, by a [`Handle`].
//!
//! Invariants: a name has one server, which holds the lock on `NAME.lock` for as long as it
//! lives, so that whoever gets the lock may take a socket that was left behind for dead; the
//! socket is removed when the server ends.

mod answer;
mod ask;
mod reach;
mod refusal;
mod talks;

use crate::array::Handle;
use answer::{answer, refusal};
use ask::next_step;
use lapstrake_device::quoted;
use refusal::RefusedRequest;
use serde_json::Value;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use talks::Talks;
use thiserror::Error;

pub use ask::{PATIENCE, ask, ask_detail, forget, known, served, vanished};
pub use reach::reach;

/// Longest line of a request, bytes.
const LINE_MAX: u64 = 64 << 10;
/// Connections served at once.
const CONNECTIONS_MAX: usize = 16;
/// A connection that says nothing for so long is closed.
const IDLE: Duration = Duration::from_secs(30);
/// How long one that cannot be served may take to be told so.
const ANSWER_BUSY: Duration = Duration::from_millis(100);
/// How long somebody who looks whether a name is taken may hold its lock.
const GLANCE: Duration = Duration::from_millis(200);
/// How long the end waits for answers to be sent.
const FAREWELL: Duration = Duration::from_secs(2);
/// Bytes in a Unix socket's address, the final NUL counted (unix(7)).
const ADDRESS_MAX: usize = 108;

/// Why there is no control socket, or no answer from one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// Another server has the name.
    #[error(
        "an array named {name:?} is being served already (control socket {}); choose another \
         --name, or stop that one with `lapstrake stop {}`", path.display(), quoted(name)
    )]
    Taken {
        /// The name.
        name: String,
        /// The other server's socket.
        path: PathBuf,
    },
    /// No server has the name.
    #[error(
        "no array named {name:?} is being served (no server at {}); `lapstrake status` lists \
         those that are{}", path.display(), meant.as_ref().map_or(String::new(), ToString::to_string)
    )]
    NotServed {
        /// The name.
        name: String,
        /// Where its socket would be.
        path: PathBuf,
        /// What was probably meant.
        meant: Option<Meant>,
    },
    /// A server had the name, and has ended without giving it up.
    #[error(
        "{name}: its server has vanished (nobody listens at {} any more): it was killed or has crashed; what was not \
         flushed may be lost; serving its members again goes on where it was, and `lapstrake stop {}` forgets it",
        path.display(), quoted(name)
    )]
    Vanished {
        /// The name.
        name: String,
        /// Its socket.
        path: PathBuf,
    },
    /// A server has the name, and its socket is gone.
    #[error(
        "{name}: it is being served, but its control socket {} was removed: nothing can be asked of it; \
         SIGTERM to its `lapstrake serve` stops it cleanly", path.display()
    )]
    CutOff {
        /// The name.
        name: String,
        /// Where its socket was.
        path: PathBuf,
    },
    /// The directory is somebody else's, or open to others.
    #[error(
        "{}: not a directory of ours alone (our user's, mode 0700); name such a one with LAPSTRAKE_RUN_DIR or \
         --control-dir", .0.display()
    )]
    Directory(PathBuf),
    /// The socket's address would be too long.
    #[error(
        "{}: {} bytes long, and a socket's address has room for {}; choose a shorter --name, or a shorter directory \
         with LAPSTRAKE_RUN_DIR or --control-dir", .0.display(), .0.as_os_str().len(), ADDRESS_MAX - 1
    )]
    TooLong(PathBuf),
    /// The system refused.
    #[error("{}: cannot {action}: {source}{}", path.display(), next_step(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The server does not answer what it always can.
    #[error(
        "{name}: its server has not answered for {seconds} s ({}): it is stopped (SIGSTOP) or stuck, or the machine \
         has no time for it; nothing was changed", path.display()
    )]
    Silent {
        /// The array.
        name: String,
        /// The socket.
        path: PathBuf,
        /// How long it was waited for.
        seconds: f64,
    },
    /// The server ended before it answered.
    #[error(
        "{name}: its server ended without an answer ({}): what was asked may be done or not; if `lapstrake \
         status` does not list the array any more, the last messages of its `lapstrake serve` say why, and \
         serving its members again goes on where it was", path.display()
    )]
    Ended {
        /// The array.
        name: String,
        /// The socket.
        path: PathBuf,
    },
    /// What it said is not what a server of this version says.
    #[error("{name}: its server's answer is not understood: {source}; is it of another version?")]
    Answer {
        /// The array.
        name: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The server refused.
    #[error("{name}: {error}")]
    Refused {
        /// The array.
        name: String,
        /// Its reason.
        error: String,
    },
}

/// What was probably meant by a name that no array has.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Meant {
    /// The array that has this name.
    Array(String),
    /// A file, and the array's name was left out.
    File,
}

impl std::fmt::Display for Meant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Array(name) => write!(f, "; did you mean {}?", quoted(name)),
            Self::File => f.write_str(
                "; there is a file of this name: did you forget the array's name, which goes before its members?",
            ),
        }
    }
}

/// Where the control sockets are: `$LAPSTRAKE_RUN_DIR`, else `/run/lapstrake` for root, wherever it logged in, else
/// `$XDG_RUNTIME_DIR/lapstrake`, else `/tmp/lapstrake-UID`.
#[must_use]
pub fn directory() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // SAFETY: only asks.
    let uid = unsafe { libc::geteuid() };
    set("LAPSTRAKE_RUN_DIR")
        .or_else(|| (uid == 0).then(|| "/run/lapstrake".into()))
        .or_else(|| set("XDG_RUNTIME_DIR").map(|dir| dir.join("lapstrake")))
        .unwrap_or_else(|| format!("/tmp/lapstrake-{uid}").into())
}

/// A file's name for an array's: what could mislead is written as %XX.
fn file_name(name: &str, suffix: &str) -> String {
    let plain = |(at, byte): (usize, u8)| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'+' | b':' | b'@' => {
            char::from(byte).to_string()
        }
        b'.' if at > 0 => ".".to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().enumerate().map(plain).collect::<String>() + suffix
}

/// The array's name for a file's; None if it is none of ours.
fn array_name(file: &str) -> Option<String> {
    String::from_utf8(lapstrake_control::percent::decoded(file.strip_suffix(".sock")?)?).ok()
}

fn socket_path(dir: &Path, name: &str) -> Result<PathBuf, ControlError> {
    let path = dir.join(file_name(name, ".sock"));
    if path.as_os_str().as_bytes().len() >= ADDRESS_MAX {
        return Err(ControlError::TooLong(path));
    }
    Ok(path)
}

/// What a served array tells and does.
struct Served {
    handle: Handle,
    exports: Vec<String>,
    stop: Stopper,
    files: Vec<ServedFile>,
    talks: Talks,
    /// Requests whose answers are not sent yet.
    unanswered: Mutex<usize>,
    answered: Condvar,
}

/// Asks for the array to be stopped; the sender takes whether it ended clean.
pub type Stopper = Box<dyn Fn(mpsc::Sender<bool>) + Send + Sync>;

/// A file or block device as which an array is served.
pub struct ServedFile {
    /// Its absolute path, by which what lies on it is found.
    pub path: PathBuf,
    /// Whether somebody has it open, and goes on to. May take seconds.
    pub stays_open: Box<dyn Fn() -> bool + Send + Sync>,
}

/// The claim on an array's name.
#[derive(Debug)]
pub struct Claim {
    socket: PathBuf,
    socket_inode: u64,
    lock_path: PathBuf,
    lock: File,
    /// Who asks before the array is served waits for the answer.
    listener: Arc<UnixListener>,
}

impl Claim {
    /// Claims a name in `dir`, which is made if it is not there.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn new(dir: &Path, name: &str) -> Result<Self, ControlError> {
        let socket = socket_path(dir, name)?;
        make_directory(dir)?;
        let (lock_path, lock) = lock_name(dir, name, &socket)?;
        // What a dead server left.
        let _ = fs::remove_file(&socket);
        let listener = listen(&socket).inspect_err(|_| {
            let _ = fs::remove_file(&lock_path);
        })?;
        let socket_inode = inode(&socket);
        Ok(Self { socket, socket_inode, lock_path, lock, listener })
    }
}

/// Locks an array's name, if no server has it: the lock's file, and that it is open.
fn lock_name(dir: &Path, name: &str, socket: &Path) -> Result<(PathBuf, File), ControlError> {
    let path = dir.join(file_name(name, ".lock"));
    let io = |action| move |path, source| ControlError::Io { path, action, source };
    let end = Instant::now() + GLANCE;
    loop {
        let open =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = open.map_err(|source| io("make it")(path.clone(), source))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) if Instant::now() < end => {
                std::thread::sleep(GLANCE / 20);
                continue;
            }
            Err(TryLockError::WouldBlock) => {
                return Err(ControlError::Taken { name: name.into(), path: socket.into() });
            }
            Err(TryLockError::Error(source)) => return Err(io("lock it")(path, source)),
        }
        // A server that ends removes its lock file; ours may be the one it removed.
        if lock.metadata().ok().map(|m| m.ino()) == fs::metadata(&path).ok().map(|m| m.ino()) {
            return Ok((path, lock));
        }
    }
}

impl Claim {
    /// Where the socket is, or will be.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // If somebody has removed them, another server's may be there. Nothing is lost if ours stay.
        if inode(&self.socket) == self.socket_inode {
            let _ = fs::remove_file(&self.socket);
        }
        if self.lock.metadata().is_ok_and(|lock| lock.ino() == inode(&self.lock_path)) {
            let _ = fs::remove_file(&self.lock_path);
        }
    }
}

/// Of what has the name; 0 if nothing has.
fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).map_or(0, |meta| meta.ino())
}

fn listen(socket: &Path) -> Result<Arc<UnixListener>, ControlError> {
    let failed =
        |action| move |source| ControlError::Io { path: socket.to_owned(), action, source };
    let listener = UnixListener::bind(socket).map_err(failed("listen on it"))?;
    let only_owner = fs::Permissions::from_mode(0o600);
    fs::set_permissions(socket, only_owner).map_err(failed("restrict it"))?;
    Ok(Arc::new(listener))
}

/// Makes the directory, and refuses one into which others could put sockets.
///
/// # Errors
/// [`ControlError::Directory`], [`ControlError::Io`].
pub fn make_directory(dir: &Path) -> Result<(), ControlError> {
    let io = |source| ControlError::Io { path: dir.into(), action: "make it", source };
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io)?;
    let (meta, entry) = (fs::metadata(dir).map_err(io)?, fs::symlink_metadata(dir).map_err(io)?);
    // SAFETY: only asks.
    let uid = unsafe { libc::geteuid() };
    // In /tmp another may have put a link there, to a directory of ours that is for something else.
    if meta.uid() != uid || entry.uid() != uid || meta.permissions().mode() & 0o022 != 0 {
        return Err(ControlError::Directory(dir.into()));
    }
    Ok(())
}

/// The control socket of an array that is being served.
pub struct Control {
    claim: Option<Claim>,
    listener: Arc<UnixListener>,
    thread: Option<JoinHandle<()>>,
    served: Arc<Served>,
}

impl Control {
    /// Serves the socket. `exports` are the places where clients find the array.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn start(
        claim: Claim,
        handle: Handle,
        exports: Vec<String>,
        stop: Stopper,
        files: Vec<ServedFile>,
    ) -> Result<Self, ControlError> {
        let failed = |action| {
            let path = claim.socket.clone();
            move |source| ControlError::Io { path, action, source }
        };
        let listener = claim.listener.clone();
        let served = Arc::new(Served {
            handle,
            exports,
            stop,
            files,
            talks: Talks::default(),
            unanswered: Mutex::new(0),
            answered: Condvar::new(),
        });
        let (accepting, serving) = (listener.clone(), served.clone());
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || accept(&accepting, &serving))
            .map_err(failed("start a thread for it"))?;
        Ok(Self { claim: Some(claim), listener, thread: Some(thread), served })
    }

    /// Takes no new connections, removes the socket and gives the name back. Who asked for the
    /// stop is told only after this, so that the name is free when they are.
    pub fn close(&mut self) {
        // SAFETY: the descriptor is ours. This ends the wait in accept(2).
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            let _ = thread.join();
        }
        self.claim = None;
    }
}

impl Drop for Control {
    /// Waits a while for the answers that are under way.
    fn drop(&mut self) {
        self.close();
        let unanswered = self.served.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever does not take the answer in this time is not waited for.
        let _ = self.served.answered.wait_timeout_while(unanswered, FAREWELL, |left| *left > 0);
    }
}

fn accept(listener: &UnixListener, served: &Arc<Served>) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // Shut down, or out of descriptors, which is no reason to stop serving data.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return,
            Err(_) => {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let Some(id) = served.talks.take_in(&stream, listener) else {
            // Whoever does not take this in at once is not waited for.
            let _ = stream.set_write_timeout(Some(ANSWER_BUSY));
            let _ = say(&mut { stream }, &refusal(&RefusedRequest::Busy));
            continue;
        };
        let connection = served.clone();
        let spawned = std::thread::Builder::new().name("control-conn".into()).spawn(move || {
            // The asker has gone, or will see that we have.
            let _ = talk(stream, &connection, id);
            connection.talks.remove(id);
        });
        if spawned.is_err() {
            served.talks.remove(id);
        }
    }
}

fn talk(mut stream: UnixStream, served: &Served, id: u64) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(IDLE))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut line = Vec::new();
        reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            if line.len() as u64 == LINE_MAX {
                say(&mut stream, &refusal(&RefusedRequest::TooLong))?;
            } else if !served.talks.has(id) {
                say(&mut stream, &refusal(&RefusedRequest::Busy))?;
            }
            return Ok(());
        }
        served.talks.set_idle(id, None);
        let _under_way = UnderWay::new(served);
        say(&mut stream, &answer(&line, served))?;
        served.talks.set_idle(id, Some(Instant::now()));
    }
}

fn say(stream: &mut UnixStream, reply: &Value) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// A request that is being answered.
struct UnderWay<'a>(&'a Served);

impl<'a> UnderWay<'a> {
    fn new(served: &'a Served) -> Self {
        *served.unanswered.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Self(served)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        *self.0.unanswered.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.answered.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapstrake_control::Request;

    #[test]
    fn a_link_that_another_made_is_no_directory_of_ours() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(make_directory(&link).is_ok());
        // Root alone may give it away.
        if let Err(error) = std::os::unix::fs::lchown(&link, Some(4711), None) {
            lapstrake_not_run::not_run(format_args!("links of others: {error}"));
            return;
        }
        let refused = make_directory(&link);
        assert!(matches!(refused, Err(ControlError::Directory(_))), "{refused:?}");
    }

    #[test]
    fn names_make_files_and_lead_back() {
        for name in ["md0", "home:data", "..", "a/b c", "ü", "", ".x.y", "100%"] {
            let file = file_name(name, ".sock");
            assert!(!file.contains('/') && !file.starts_with('.') || name.is_empty(), "{file}");
            assert_eq!(array_name(&file).as_deref(), Some(name));
        }
        assert_eq!(array_name("x.lock"), None);
        assert_eq!(array_name("x%4.sock"), None);
    }

    /// What would be lost: the way to a running server of that name, with the end of one whose files were removed.
    #[test]
    fn the_end_of_a_claim_takes_nobody_elses_files_away() {
        let dir = tempfile::tempdir().unwrap();
        let first = Claim::new(dir.path(), "md0").unwrap();
        for name in ["md0.sock", "md0.lock"] {
            fs::remove_file(dir.path().join(name)).unwrap();
        }
        let second = Claim::new(dir.path(), "md0").unwrap();
        drop(first);
        assert!(matches!(Claim::new(dir.path(), "md0"), Err(ControlError::Taken { .. })));
        assert!(second.path().exists());
        drop(second);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_name_is_claimed_once_and_again_after_its_end() {
        let dir = std::env::temp_dir().join(format!("lapstrake-control-{}", std::process::id()));
        let first = Claim::new(&dir, "md0").unwrap();
        assert!(matches!(Claim::new(&dir, "md0"), Err(ControlError::Taken { .. })));
        assert!(Claim::new(&dir, "md1").is_ok());
        drop(first);
        // What a killed server left.
        drop(UnixListener::bind(dir.join("md0.sock")).unwrap());
        fs::write(dir.join("md0.lock"), "").unwrap();
        let ask_detail = || ask::<Value>(&dir, "md0", &Request::Detail, || {});
        assert!(matches!(ask_detail(), Err(ControlError::Vanished { .. })));
        assert_eq!(served(&dir).unwrap(), Vec::<String>::new());
        assert_eq!(vanished(&dir).unwrap(), ["md0"]);
        forget(&dir, "md0").unwrap();
        assert!(matches!(ask_detail(), Err(ControlError::NotServed { .. })));
        assert_eq!(vanished(&dir).unwrap(), Vec::<String>::new());
        let again = Claim::new(&dir, "md0").unwrap();
        assert_eq!(served(&dir).unwrap(), ["md0"], "who asks waits for the server");
        assert_eq!(vanished(&dir).unwrap(), Vec::<String>::new());
        let others = dir.join("others.sock");
        let _listening = UnixListener::bind(&others).unwrap();
        assert_eq!(served(&dir).unwrap(), ["md0"]);
        assert_eq!(known(&dir).unwrap(), ["md0"]);
        fs::remove_file(&others).unwrap();
        fs::remove_file(again.path()).unwrap();
        assert!(matches!(
            ask::<Value>(&dir, "md0", &Request::Detail, || {}),
            Err(ControlError::CutOff { .. })
        ));
        drop(again);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        fs::remove_dir(&dir).unwrap();
    }

    #[test]
    fn a_server_that_ends_before_it_answers_is_told() {
        let dir = std::env::temp_dir().join(format!("lapstrake-ended-{}", std::process::id()));
        let claim = Claim::new(&dir, "md0").unwrap();
        let request = b"{\"command\":\"detail\"}\n";
        // One that reads the request, and one that does not, which resets the connection.
        for reads in [true, false] {
            let listener = claim.listener.clone();
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let len = if reads { request.len() } else { 1 };
                stream.read_exact(&mut vec![0; len]).unwrap();
            });
            let told = ask::<Value>(&dir, "md0", &Request::Detail, || {}).unwrap_err();
            assert!(matches!(told, ControlError::Ended { .. }), "{told}");
            server.join().unwrap();
        }
        drop(claim);
        fs::remove_dir(&dir).unwrap();
    }

    #[test]
    fn a_directory_of_others_is_refused() {
        let dir = std::env::temp_dir().join(format!("lapstrake-open-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Claim::new(&dir, "md0"), Err(ControlError::Directory(_))));
        fs::remove_dir(&dir).unwrap();
    }

    #[test]
    fn a_path_too_long_is_said() {
        let dir = Path::new("/tmp").join("x".repeat(120));
        assert!(matches!(
            ask::<Value>(&dir, "md0", &Request::Detail, || {}),
            Err(ControlError::TooLong(_))
        ));
    }
}
