//! An array in process that loses members and gets them back.

use crate::{
    disks::Disks,
    fio::{Load, served},
};
use lapstrake_export::{NbdSession, nbd};
use lapstrake_geometry::{Layout, Level, Sectors};
use lapstrake_host::{
    Array, ArrayState, Command, Detail, Join, OpenRequest, Options, SyncRequest,
    create::{NewArray, NewBitmap, prepare},
    join, open,
};
use std::{
    os::unix::net::UnixListener,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

/// A rebuild slower than this, in bytes of each member a second, is taken for one that hangs.
const RATE_MIN: f64 = 1e6;

/// The members that are lost come from slot 0 up.
#[derive(Clone, Copy)]
pub struct Shape {
    pub name: &'static str,
    pub level: Level,
    pub layout: Option<&'static str>,
    pub members: usize,
    pub lost: usize,
}

/// Requests a second, and bytes of each lost member that are rebuilt then.
#[derive(Clone, Copy)]
pub struct Share {
    pub healthy: f64,
    pub degraded: f64,
    pub rebuilding: f64,
    pub rate: f64,
}

/// What is measured on these members.
pub struct Subject {
    array: Array,
    lost: Vec<String>,
    socket: PathBuf,
}

impl Subject {
    /// A new array of zeros, which is in sync, served at a socket.
    pub fn new(shape: &Shape, disks: &Disks) -> Self {
        let spec = |path: &PathBuf| path.display().to_string().parse().expect("a member");
        let layout = |name| Layout::from_name(shape.level, name).expect("a layout");
        let members = disks.members.iter().map(|path| Some(spec(path))).collect();
        let wanted = NewArray {
            chunk: (shape.level != Level::Raid1).then_some(Sectors(1024)),
            layout: shape.layout.map(layout),
            bitmap: NewBitmap::None,
            uuid: Some([7; 16]),
            assume_clean: true,
            overwrite: true,
            ..NewArray::new("bench", shape.level, members)
        };
        {
            // It holds its members until it is dropped.
            let prepared = prepare(&wanted, |bytes| bytes.fill(7)).expect("an array");
            prepared.write().expect("members can be written");
        }
        let members = disks.members.iter().map(spec).collect();
        let opened = open(&OpenRequest { members, ..OpenRequest::default() }).expect("it opens");
        let array = Array::start(opened.parts, &Options::default()).expect("it starts");
        let socket = disks.dir().join("socket");
        // An earlier subject's.
        let _ = std::fs::remove_file(&socket);
        let export = nbd::ExportInfo::new("bench", array.bytes());
        let exports = Arc::new(nbd::Exports::new([export]).expect("one export"));
        let greeter = move |fd| {
            let session = NbdSession::new(fd, exports.clone(), nbd::Limits::default());
            Box::new(session) as Box<dyn lapstrake_host::Client>
        };
        let listener = UnixListener::bind(&socket).expect("a socket");
        array.handle().listen(listener.into(), Box::new(greeter));
        let lost = disks.members.iter().take(shape.lost).map(|path| path.display().to_string());
        Self { array, lost: lost.collect(), socket }
    }

    fn command(&self, command: Command) {
        self.array.handle().command(command).expect("it is carried out");
    }

    fn detail(&self) -> Detail {
        self.array.handle().detail().expect("it runs")
    }

    /// Takes members out and in again, as new ones. Their recovery waits.
    fn replace_lost(&self) {
        self.command(Command::Sync(SyncRequest::Frozen));
        for path in &self.lost {
            self.command(Command::Fail { member: path.clone(), force: false });
            self.command(Command::Remove(path.clone()));
        }
        for path in &self.lost {
            let how = Join { force: true, ..Join::default() };
            join(&self.array.handle(), &path.parse().expect("a member"), how).expect("it joins");
        }
    }

    fn resume(&self) {
        self.command(Command::Sync(SyncRequest::Resume));
    }

    /// Bytes of each lost member a second, until all are whole, with nothing else to do.
    ///
    /// # Panics
    /// When that takes as long as at [`RATE_MIN`].
    pub fn rebuild(&self) -> f64 {
        self.replace_lost();
        self.resume();
        let began = Instant::now();
        loop {
            let detail = self.detail();
            let seconds = began.elapsed().as_secs_f64();
            if detail.state.iter().all(|word| *word != ArrayState::Degraded) {
                return detail.component_bytes as f64 / seconds;
            }
            let (state, sync) = (&detail.state, &detail.sync);
            let is_late = seconds * RATE_MIN > detail.component_bytes as f64;
            assert!(!is_late, "not rebuilt after {seconds:.0} s: {state:?}, {sync:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How a load fares before members are lost, without them, and while they are rebuilt.
    pub fn rebuild_under(&self, load: &Load, time: Duration) -> Share {
        let healthy = served(&self.socket, load, time);
        self.replace_lost();
        let degraded = served(&self.socket, load, time);
        self.resume();
        let began = Instant::now();
        let rebuilding = served(&self.socket, load, time);
        let detail = self.detail();
        let done = detail.sync.map_or(detail.component_bytes, |sync| sync.done_bytes);
        Share { healthy, degraded, rebuilding, rate: done as f64 / began.elapsed().as_secs_f64() }
    }

    /// Ends it.
    pub fn stop(self) {
        assert!(self.array.stop(), "the array was left active");
    }
}
