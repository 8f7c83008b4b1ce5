//! What the server tests share: arrays of files, served on a Unix and a TCP socket; an NBD client; a
//! load that checks what it reads; a look at what members hold.
pub mod client;
pub mod load;
pub mod members;

use lapstrake_device::{Backend, Faults, MemberSpec, OpenError, Queue};
use lapstrake_export::{NbdSession, Patience, nbd};
use lapstrake_geometry::{Level, Sectors};
use lapstrake_host::create::{NewArray, NewBitmap, prepare};
use lapstrake_host::{Array, OpenArrayError, OpenRequest, Opened, Options};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::{NamedTempFile, TempDir};

pub use client::Client;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
/// Longer than anything takes here; what takes longer hangs.
pub const BOUND: Duration = Duration::from_secs(30);

/// Every back end with one shard and with more.
pub fn everywhere(shards_max: usize, mut test: impl FnMut(Backend, usize)) {
    for backend in backends() {
        (1..=shards_max).for_each(|shards| test(backend, shards));
    }
}

/// Runs a test of this program as a server of its own, which is told by `key` what to serve and says where
/// it listens; the process and the socket.
pub fn start_server(test: &str, key: &str, dir: &Path) -> (Child, PathBuf) {
    let mut child = Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(key, dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let socket = lines
        .map_while(Result::ok)
        .find_map(|line| Some(line.split_once("at ")?.1.into()))
        .expect("it says where it listens");
    (child, socket)
}

/// What array, and how it is run.
#[derive(Clone)]
pub struct Rig {
    pub level: Level,
    pub disks: u16,
    pub chunk: Option<Sectors>,
    pub member_bytes: u64,
    pub bitmap: bool,
    pub bitmap_chunk: Option<u32>,
    pub shards: usize,
    pub backend: Backend,
    pub buffer_bytes: usize,
    pub safe_mode_delay_ms: u64,
    /// See `lapstrake_device::fault`; members are counted by slot.
    pub faults: String,
    pub patience: Patience,
    pub overlay: Option<PathBuf>,
    pub force: bool,
    pub degraded: bool,
}

impl Rig {
    /// An array in sync whose superblocks stay active until it is stopped.
    pub fn new(level: Level, disks: u16) -> Self {
        Self {
            level,
            disks,
            chunk: (level != Level::Raid1).then_some(Sectors(128)),
            member_bytes: 24 * MIB,
            bitmap: false,
            bitmap_chunk: None,
            shards: 1,
            backend: Backend::Auto,
            buffer_bytes: 8 << 20,
            safe_mode_delay_ms: 0,
            faults: String::new(),
            patience: Patience::default(),
            overlay: None,
            force: false,
            degraded: false,
        }
    }

    /// Makes the array in a new directory.
    pub fn create(&self) -> TempDir {
        let dir = tempfile::tempdir_in(place()).expect("a directory");
        for member in self.members(dir.path()) {
            File::create(member).expect("a file").set_len(self.member_bytes).expect("room");
        }
        let specs = self.members(dir.path());
        let members = specs.iter().map(|path| Some(MemberSpec::whole(path)));
        let wanted = NewArray {
            chunk: self.chunk,
            bitmap: if self.bitmap { NewBitmap::Internal } else { NewBitmap::None },
            bitmap_chunk: self.bitmap_chunk,
            assume_clean: true,
            ..NewArray::new("served", self.level, members.collect())
        };
        let mut seed = 1;
        let random = |bytes: &mut [u8]| bytes.fill_with(|| draw(&mut seed) as u8);
        prepare(&wanted, random).expect("can be made").write().expect("is made");
        dir
    }

    pub fn members(&self, dir: &Path) -> Vec<PathBuf> {
        (0..self.disks).map(|slot| dir.join(format!("m{slot}"))).collect()
    }

    /// Makes and serves it.
    pub fn serve(&self) -> Server {
        let dir = Arc::new(self.create());
        self.serve_in(&dir, &self.members(dir.path()))
    }

    /// Serves the array of these members.
    pub fn serve_in(&self, dir: &Arc<TempDir>, members: &[PathBuf]) -> Server {
        let opened = self.open(members).expect("opens");
        let mut parts = opened.parts;
        let faults = Faults::parse(&self.faults).expect("a fault specification");
        for member in &mut parts.plan.members {
            let slot = member.record.slot.expect("no spares here").0;
            let device = std::mem::replace(
                &mut member.device,
                Arc::new(lapstrake_device::Member::memory(4096)),
            );
            let device = Arc::try_unwrap(device).expect("nobody else has it");
            member.device = Arc::new(device.with_faults(faults.layers(slot.into())));
        }
        let options = Options {
            shards: self.shards,
            backend: self.backend,
            buffer_bytes: self.buffer_bytes,
            safe_mode_delay_ms: self.safe_mode_delay_ms,
            ..Options::default()
        };
        let said = NamedTempFile::new().expect("a file");
        let lines = tracing_subscriber::fmt().with_writer(said.reopen().expect("a file"));
        let start = || Array::start(parts, &options).expect("starts");
        let array = tracing::subscriber::with_default(lines.finish(), start);
        let info = nbd::ExportInfo::new("served", array.bytes());
        let exports = Arc::new(nbd::Exports::new([info]).expect("sound"));
        let socket = dir.path().join(format!("s{}", nanos()));
        let unix = UnixListener::bind(&socket).expect("a socket");
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = tcp.local_addr().expect("bound");
        for listener in [unix.into(), tcp.into()] {
            let (exports, patience) = (exports.clone(), self.patience);
            let greeter = move |fd| {
                let limits = nbd::Limits::default();
                let session = NbdSession::new(fd, exports.clone(), limits);
                Box::new(session.with_patience(patience)) as Box<dyn lapstrake_host::Client>
            };
            array.handle().listen(listener, Box::new(greeter));
        }
        let dir = Arc::clone(dir);
        let members = members.to_vec();
        Server { dir, array: Some(array), socket, address, said, members }
    }

    /// Opens it. A program that another test starts holds copies of our descriptors, and so our locks,
    /// between its fork and its exec: members that a server has just let go may be locked for that long.
    pub fn open(&self, members: &[PathBuf]) -> Result<Opened, OpenArrayError> {
        let began = Instant::now();
        loop {
            let opened = lapstrake_host::open(&OpenRequest {
                members: members.iter().map(MemberSpec::whole).collect(),
                overlay: self.overlay.clone(),
                force: self.force,
                degraded: self.degraded,
                ..OpenRequest::default()
            });
            let busy = |error: &OpenError| matches!(error, OpenError::Busy { .. });
            match opened {
                Err(OpenArrayError::Devices(errors))
                    if errors.iter().all(busy) && began.elapsed() < Duration::from_secs(5) => {}
                opened => return opened.map(with_its_overlay),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A new overlay goes again unless somebody wants it.
fn with_its_overlay(mut opened: Opened) -> Opened {
    if let Some(made) = opened.new_overlay.take() {
        made.keep();
    }
    opened
}

/// A served array.
pub struct Server {
    pub dir: Arc<TempDir>,
    pub array: Option<Array>,
    pub socket: PathBuf,
    pub address: SocketAddr,
    /// The lines of its events.
    said: NamedTempFile,
    pub members: Vec<PathBuf>,
}

impl Server {
    pub fn array(&self) -> &Array {
        self.array.as_ref().expect("runs")
    }

    pub fn bytes(&self) -> u64 {
        self.array().bytes()
    }

    pub fn unix(&self) -> Client {
        Client::unix(&self.socket)
    }

    pub fn tcp(&self) -> Client {
        Client::tcp(self.address)
    }

    /// Waits until so many clients are connected.
    pub fn wait_for_clients(&self, count: usize) {
        until(&format!("{count} clients"), || {
            self.array().handle().detail().is_some_and(|detail| detail.clients == count)
        });
    }

    pub fn detail(&self) -> lapstrake_host::Detail {
        self.array().handle().detail().expect("runs")
    }

    /// Stops it; whether the superblocks say clean.
    pub fn stop(&mut self) -> bool {
        self.array.take().expect("runs").stop()
    }

    pub fn said(&self) -> Vec<String> {
        let said = std::fs::read_to_string(self.said.path()).expect("text");
        said.lines().map(str::to_owned).collect()
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///served?socket={}", self.socket.display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the server said: {:#?}", self.said());
            if let Some(array) = &self.array {
                eprintln!("{:#?}", array.handle().detail());
            }
        }
        if let Some(array) = self.array.take() {
            array.stop();
        }
    }
}

/// How often something was told of, in lines of its own and in those that tell how often more.
pub fn times_told(said: &[String], what: &str) -> usize {
    let more = |line: &String| {
        let before = line.split_once(" times more")?.0;
        before.rsplit(' ').next()?.parse().ok()
    };
    said.iter().filter(|line| line.contains(what)).map(|line| more(line).unwrap_or(1)).sum()
}

/// Waits for what must come true.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !done() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A xorshift generator's next number.
pub fn draw(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    seed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
}

/// Both back ends where io_uring is to be had.
pub fn backends() -> Vec<Backend> {
    match Queue::new([], Backend::IoUring, 8) {
        Ok(_) => vec![Backend::IoUring, Backend::Threads],
        Err(error) => {
            lapstrake_not_run::not_run(format_args!("tests on io_uring: {error}"));
            vec![Backend::Threads]
        }
    }
}

/// Where members are put: on memory, which is quickest.
fn place() -> &'static str {
    if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { env!("CARGO_TARGET_TMPDIR") }
}

fn nanos() -> u128 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_nanos()
}
