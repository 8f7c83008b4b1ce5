//! The side of who asks a server.

use super::reach::reach;
use super::{ControlError, GLANCE, Meant, array_name, file_name, lock_name, socket_path};
use lapstrake_control::{Described, Detail, Refused, Request};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a server may take to say how its array stands.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long a server that begins or ends may have its name without a socket.
const WITHOUT_SOCKET: Duration = Duration::from_secs(1);

/// What to do where this user has no rights, or something else is in a directory's place.
pub(super) fn next_step(refusal: &io::Error) -> &'static str {
    match refusal.kind() {
        io::ErrorKind::PermissionDenied => {
            "; it is for the user who serves the array: run this as that user, or name a directory of your own \
             with LAPSTRAKE_RUN_DIR or --control-dir"
        }
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            "; control sockets are in a directory: name one with LAPSTRAKE_RUN_DIR or --control-dir"
        }
        _ => "",
    }
}

/// Sends a request to the server of an array and returns the answer, `A` as the request's doc names it, however long it
/// takes: disks may be waited for. After [`PATIENCE`] without one, `on_silence` is told once.
///
/// # Errors
/// [`ControlError`].
pub fn ask<A: DeserializeOwned>(
    dir: &Path,
    name: &str,
    request: &Request,
    on_silence: impl FnOnce(),
) -> Result<A, ControlError> {
    let mut on_silence = Some(on_silence);
    exchange(dir, name, request, PATIENCE, || {
        if let Some(tell) = on_silence.take() {
            tell();
        }
        ControlFlow::Continue(())
    })
}

/// Asks a server for all that it tells. No disk is waited for, so an answer is there at once; after `limit`, which is
/// [`PATIENCE`] unless it is less, there is none.
///
/// # Errors
/// [`ControlError`].
pub fn ask_detail(dir: &Path, name: &str, limit: Option<Duration>) -> Result<Detail, ControlError> {
    // A socket takes no time of zero.
    let limit = limit.unwrap_or(PATIENCE).clamp(Duration::from_millis(1), PATIENCE);
    let told: Described = exchange(dir, name, &Request::Detail, limit, || ControlFlow::Break(()))?;
    Ok(told.into())
}

/// One request and its answer. Each time that nothing has come for `limit`, `on_silence` says whether to go on waiting.
fn exchange<A: DeserializeOwned>(
    dir: &Path,
    name: &str,
    request: &Request,
    limit: Duration,
    mut on_silence: impl FnMut() -> ControlFlow<()>,
) -> Result<A, ControlError> {
    let path = socket_path(dir, name)?;
    let at = &path;
    let io = |action| move |source| ControlError::Io { path: at.clone(), action, source };
    let seconds = limit.as_secs_f64();
    let connected = loop {
        match connect(dir, name, &path, limit) {
            Err(error) if is_silence(&error) && on_silence().is_continue() => {}
            done => break done,
        }
    };
    let mut stream = match connected {
        Ok(stream) => stream,
        Err(error) if is_silence(&error) => {
            return Err(ControlError::Silent { name: name.into(), path, seconds });
        }
        Err(error) if is_absent(&error) && is_claimed(dir, name) => {
            return Err(ControlError::CutOff { name: name.into(), path });
        }
        Err(error) if is_absent(&error) && path.symlink_metadata().is_ok() => {
            return Err(ControlError::Vanished { name: name.into(), path });
        }
        Err(error) if is_absent(&error) => {
            let meant = meant(dir, name);
            return Err(ControlError::NotServed { name: name.into(), path, meant });
        }
        Err(error) => return Err(io("connect to it")(error)),
    };
    stream.set_read_timeout(Some(limit)).map_err(io("set a time for it"))?;
    let unclear = |source| ControlError::Answer { name: name.into(), source };
    let mut line = serde_json::to_vec(request).map_err(|source| io("ask it")(source.into()))?;
    line.push(b'\n');
    let mut reply = Vec::new();
    // A server that refuses a connection does so before it has read from it.
    let written = stream.write_all(&line);
    let said = written
        .or_else(|error| if has_ended(&error) { Ok(()) } else { Err(error) })
        .map_err(|error| ("write to it", error))
        .and_then(|()| {
            let mut stream = BufReader::new(stream);
            loop {
                match stream.read_until(b'\n', &mut reply) {
                    Err(error) if is_silence(&error) && on_silence().is_continue() => {}
                    read => break read.map_err(|error| ("read from it", error)),
                }
            }
        });
    match said {
        Ok(_) if reply.is_empty() => return Err(ControlError::Ended { name: name.into(), path }),
        Err((_, error)) if has_ended(&error) => {
            return Err(ControlError::Ended { name: name.into(), path });
        }
        Err((_, error)) if is_silence(&error) => {
            return Err(ControlError::Silent { name: name.into(), path, seconds });
        }
        Err((action, error)) => return Err(io(action)(error)),
        Ok(_) => {}
    }
    let value: Value = serde_json::from_slice(&reply).map_err(unclear)?;
    if value["ok"] == true {
        return serde_json::from_value(value).map_err(unclear);
    }
    let Refused { error } = serde_json::from_value(value).map_err(unclear)?;
    Err(ControlError::Refused { name: name.into(), error })
}

/// What somebody may have meant by a name that no array has: one that is nearly the same, or the same but for case or
/// mdadm's "md"; or a file.
fn meant(dir: &Path, name: &str) -> Option<Meant> {
    let served = served(dir).unwrap_or_default();
    let plain = |name: &str| name.trim_start_matches("md").to_lowercase();
    let same = served.iter().find(|other| plain(other) == plain(name));
    let near = || {
        let edits = served.iter().map(|other| (strsim::damerau_levenshtein(other, name), other));
        let (edits, other) = edits.min()?;
        (edits <= 2 && edits * 2 < name.chars().count()).then_some(other)
    };
    match same.or_else(near) {
        Some(other) => Some(Meant::Array(other.clone())),
        None => Path::new(name).metadata().is_ok_and(|meta| !meta.is_dir()).then_some(Meant::File),
    }
}

/// A server that begins or ends has its name without a socket for a moment.
fn connect(dir: &Path, name: &str, socket: &Path, limit: Duration) -> io::Result<UnixStream> {
    let end = Instant::now() + WITHOUT_SOCKET;
    loop {
        match reach(socket, limit) {
            Err(error) if is_absent(&error) && Instant::now() < end && is_claimed(dir, name) => {
                std::thread::sleep(WITHOUT_SOCKET / 100);
            }
            done => return done,
        }
    }
}

fn is_claimed(dir: &Path, name: &str) -> bool {
    let lock = File::open(dir.join(file_name(name, ".lock")));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Nothing has come within the time, or there was no room in the server's queue.
fn is_silence(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

fn has_ended(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// The names of the arrays that are being served, in order.
///
/// # Errors
/// [`ControlError::Io`].
pub fn served(dir: &Path) -> Result<Vec<String>, ControlError> {
    names(dir, |socket, _| {
        reach(socket, GLANCE).map_or_else(|error| is_silence(&error), |_answers| true)
    })
}

/// The names of arrays that are served, or were by servers that have ended without giving them up, in order; without
/// asking anybody.
///
/// # Errors
/// [`ControlError::Io`].
pub fn known(dir: &Path) -> Result<Vec<String>, ControlError> {
    names(dir, |_, _| true)
}

/// The names of arrays whose servers have ended without giving them up, in order.
///
/// # Errors
/// [`ControlError::Io`].
pub fn vanished(dir: &Path) -> Result<Vec<String>, ControlError> {
    names(dir, |socket, name| {
        let refuses = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        // One that ends cleanly gives up its name last.
        reach(socket, GLANCE).is_err_and(refuses)
            && !is_claimed(dir, name)
            && socket.symlink_metadata().is_ok()
    })
}

/// Takes away what a server has left that vanished. Nothing is done to one that is there.
///
/// # Errors
/// [`ControlError`].
pub fn forget(dir: &Path, name: &str) -> Result<(), ControlError> {
    let socket = socket_path(dir, name)?;
    let (lock_path, _lock) = lock_name(dir, name, &socket)?;
    for path in [socket, lock_path] {
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(ControlError::Io { path, action: "remove it", source });
            }
            _ => {}
        }
    }
    Ok(())
}

/// The arrays' names in a directory that are wanted, by socket and name; in order.
fn names(dir: &Path, is_wanted: impl Fn(&Path, &str) -> bool) -> Result<Vec<String>, ControlError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            return Err(ControlError::Io { path: dir.into(), action: "list it", source });
        }
    };
    let names = entries.flatten().filter_map(|entry| {
        let name = array_name(entry.file_name().to_str()?)?;
        // What others have put there (a gateway, one for a machine's disk) is nobody's name, and may answer anything.
        let is_named = dir.join(file_name(&name, ".lock")).exists();
        (is_named && is_wanted(&entry.path(), &name)).then_some(name)
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}
