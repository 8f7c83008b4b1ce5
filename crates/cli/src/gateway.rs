//! `lapstrake gateway`: one address for many served arrays.

use crate::exit::{Exit, Failure, Outcome};
use crate::serve::nbd::{At, Socket};
use crate::serve::place::{self, Wanted};
use crate::serve::tls::{Tls, TlsArgs};
use crate::serve::{daemon, signals};
use crate::target::Place;
use crate::{complete, options, print};
use lapstrake_export::Patience;
use lapstrake_export::gateway::backend::PATIENCE;
use lapstrake_export::gateway::{Directory, Gateway, Listener, Question};
use lapstrake_host::control::{self, ControlError};
use serde_json::json;
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::warn;

const HELP: &str = "\
Examples:
  lapstrake gateway --nbd 0.0.0.0:10809 --tls-certificates /etc/pki/nbd --tls-verify-peer
  lapstrake gateway --nbd 127.0.0.1:10809 data backup
  nbdinfo --list nbd://127.0.0.1

An export is called as its array is. The empty name, NBD's default export, is the only array that is served, or that is
named on the command line; where there are several, clients have to say which. What an export is (its size, whether it
may be written) its array's own server says. An array is found by its control socket, anew for each client: one that is
served later is there without a restart, one that was stopped is not. Its server has to have NBD at a Unix socket, as it
does unless it is told otherwise (`lapstrake serve --nbd unix:PATH`).

As with `lapstrake serve`, only addresses of this machine itself are listened at without --tls-certificates, unless
--no-tls is said. At most 256 clients are let in at a time, 224 of them to one array. Options and certificates are for
all arrays that are offered: clients that may come may read and write each of them.

Exit codes:
  0  stopped, after SIGTERM, SIGINT or SIGHUP
  1  it could not listen
  2  usage";

/// Offer all served arrays at one address, over NBD, until SIGTERM, SIGINT or SIGHUP.
///
/// The arrays' own servers go on serving them; a client of the gateway is joined to the server of the array whose name it
/// says. When that server ends, its clients' connections do; clients of others notice nothing.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Offer only these arrays, now or whenever they are served [default: all]
    #[arg(value_name = "ARRAY", value_parser = options::array_name, add = complete::arrays())]
    arrays: Vec<String>,
    /// Listen at a Unix socket or a TCP port (0: any that is free); may be repeated. A URI is nbd://HOST:PORT or
    /// nbd+unix:///?socket=PATH
    #[arg(long, required = true, value_name = "unix:PATH|HOST:PORT|URI", value_parser = Wanted::parser())]
    nbd: Vec<Wanted>,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    place: Place,
    /// Report in JSON, on one line, once it listens
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args) -> Outcome {
    if let Some(Wanted { place, export: Some(export) }) =
        args.nbd.iter().find(|wanted| wanted.export.is_some())
    {
        return Err(Failure::usage(format!(
            "--nbd {place}: exports are called as the arrays are, so none can be named there: leave {export:?} out"
        )));
    }
    raise_descriptor_limit();
    let places = place::places(&args.nbd)?;
    let tls = Tls::new(&args.tls)?;
    let bind = |place| Socket::bind(place, tls.lets_others_in());
    let sockets = places.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
    // Before there are other threads, which inherit the mask.
    signals::block()?;
    let (stop, stopper) = std::io::pipe()?;
    let mut stopper = Some(stopper);
    signals::forward(move |_| {
        daemon::tell_stopping();
        drop(stopper.take());
        true
    })?;
    let dir = args.place.dir();
    // Nobody else may put sockets there that would be offered as arrays.
    control::make_directory(&dir)?;
    let directory = Servers {
        dir,
        wanted: args.arrays.clone(),
        told: Mutex::default(),
        asked: Mutex::default(),
    };
    // Those that cannot be offered are told of at once.
    let offered = directory.offered();
    let gateway = Gateway::new(Box::new(directory), Patience::default(), stop);
    announce(args, &sockets, &tls, &offered);
    let listening = sockets.into_iter().map(|Socket { listener, at }| match at {
        At::Unix(file) => (Some(file), (Listener::Unix(listener.into()), tls.offer(false))),
        At::Tcp(_) => (None, (Listener::Tcp(listener.into()), tls.offer(true))),
    });
    // Files of sockets go at the end.
    let (_files, listeners): (Vec<_>, Vec<_>) = listening.unzip();
    let ended = gateway.run(listeners);
    ended.map_err(|error| Failure::new(format!("cannot wait for clients any more: {error}")))?;
    Ok(Exit::Done)
}

fn announce(args: &Args, sockets: &[Socket], tls: &Tls, offered: &[String]) {
    let is_secured = tls.offer(true).is_some_and(|offer| offer.is_required);
    let uris: Vec<String> = sockets.iter().map(|socket| socket.uri("", is_secured)).collect();
    let text = if args.json {
        let control_dir = args.place.dir();
        let value = json!({
            "exports": uris,
            "arrays": offered,
            "control_dir": control_dir.to_string_lossy(),
            "pid": std::process::id(),
        });
        format!("{value}\n")
    } else {
        let uris: String = uris.iter().map(|uri| format!("{uri}\n")).collect();
        match offered {
            [] => format!("no array is served yet\n{uris}"),
            offered => format!("{}\n{uris}", offered.join(", ")),
        }
    };
    // Whoever started it may not read what it says.
    let _ = print::try_print(format_args!("{text}"));
    daemon::tell_ready(&uris.join(" "));
}

/// The arrays' servers, by their control sockets.
struct Servers {
    dir: PathBuf,
    /// Only these; all, if there are none.
    wanted: Vec<String>,
    /// Arrays that could not be offered, and why, as it was told last: who asks again and again is told once.
    told: Mutex<BTreeMap<String, String>>,
    /// Arrays whose servers are being asked where they have NBD: however many clients want to know, it is asked once, since
    /// a control socket serves few at a time, and is there for others.
    asked: Mutex<BTreeMap<String, Arc<WhereNbd>>>,
}

/// Where an array's server has NBD, if it is served, or why that cannot be told.
type WhereNbd = Question<Result<Option<PathBuf>, String>>;

/// How long to wait before a server is asked again that had no time for it.
const AGAIN: Duration = Duration::from_millis(50);

impl Servers {
    /// Those to which a client could be joined.
    fn offered(&self) -> Vec<String> {
        let names = self.names();
        let until = Instant::now() + PATIENCE;
        // Side by side, since some may be stuck.
        thread::scope(|scope| {
            let asked: Vec<_> = names
                .iter()
                .map(|name| scope.spawn(move || self.connect(name, until).is_some()))
                .collect();
            let is_there = asked.into_iter().map(|asked| asked.join().expect("who asks ends"));
            let named = names.iter().zip(is_there);
            named.filter(|(_, is_there)| *is_there).map(|(name, _)| name.clone()).collect()
        })
    }

    /// Where an array's server has NBD, as it says itself; as [`Self::join`].
    fn ask(&self, name: &str) -> Result<Option<PathBuf>, String> {
        let until = Instant::now() + PATIENCE;
        let detail = loop {
            match control::ask_detail(&self.dir, name, Some(PATIENCE)) {
                Err(ControlError::NotServed { .. } | ControlError::Vanished { .. }) => {
                    return Ok(None);
                }
                // Too many others ask just now, or it ends; there is no other reason to refuse this.
                Err(ControlError::Refused { .. } | ControlError::Ended { .. })
                    if Instant::now() < until =>
                {
                    thread::sleep(AGAIN);
                }
                told => break told.map_err(|error| error.to_string())?,
            }
        };
        detail.nbd_socket().map(Some).ok_or_else(|| {
            format!(
                "{name}: not offered: its server has no NBD at a Unix socket; `lapstrake serve --nbd unix:PATH` gives it one"
            )
        })
    }

    /// None if it is served no more, of which `lapstrake status` tells what there is to tell.
    fn join(&self, name: &str, until: Instant) -> Result<Option<UnixStream>, String> {
        let question = {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            // Only what somebody waits for is kept.
            asked.retain(|_, question| Arc::strong_count(question) > 1);
            asked.entry(name.to_owned()).or_default().clone()
        };
        let Some(path) = question.ask(|| self.ask(name))? else { return Ok(None) };
        let left = until.saturating_duration_since(Instant::now());
        let stream = control::reach(&path, left).map_err(|error| {
            format!("{name}: not offered: cannot connect to {}: {error}", path.display())
        })?;
        if !is_ours(&stream) {
            return Err(format!(
                "{name}: not offered: another user's process listens at {}, not the array's server",
                path.display()
            ));
        }
        Ok(Some(stream))
    }

    /// Tells why an array is not offered, unless that was told already.
    fn tell(&self, name: &str, why: String) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.get(name) != Some(&why) {
            warn!("{why}");
            told.insert(name.to_owned(), why);
        }
    }
}

/// Whether a process of this user, or of root, listens at the other end: the socket may be where others can put theirs.
fn is_ours(stream: &UnixStream) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let mut len = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: the descriptor is ours, and the kernel writes one `ucred`.
    let (told, uid) = unsafe {
        let into = (&raw mut peer).cast();
        let fd = stream.as_raw_fd();
        let told = libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut len);
        (told, libc::geteuid())
    };
    told == 0 && (peer.uid == 0 || peer.uid == uid)
}

/// Each client takes several descriptors, for which the usual limit of 1024 is too low. Refused, fewer are let in.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one `rlimit`, and reads it.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

impl Directory for Servers {
    fn names(&self) -> Vec<String> {
        let mut names = control::known(&self.dir).unwrap_or_else(|error| {
            self.tell("", error.to_string());
            Vec::new()
        });
        names.retain(|name| self.wanted.is_empty() || self.wanted.contains(name));
        names
    }

    /// The only one that may be meant, whether it is served just now or not: a client that names none must not get
    /// another array's data since the server of its own was killed.
    fn default_name(&self) -> Option<String> {
        let mut names = if self.wanted.is_empty() { self.names() } else { self.wanted.clone() };
        names.pop().filter(|_| names.is_empty())
    }

    fn connect(&self, name: &str, until: Instant) -> Option<UnixStream> {
        match self.join(name, until) {
            Ok(stream) => {
                self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
                stream
            }
            Err(why) => {
                self.tell(name, why);
                None
            }
        }
    }
}
