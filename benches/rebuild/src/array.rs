//! An array in process that loses members and gets them back, or gets one more.

use crate::{
    disks::Disks,
    fio::{Load, Served, Traffic, busiest, served},
};
use lapstrake_export::{NbdSession, nbd};
use lapstrake_geometry::{Layout, Level, Sectors};
use lapstrake_host::{
    Answer, Array, Command, Detail, Join, OpenRequest, Options, ReshapeWish, ResizeWish,
    SyncRequest,
    create::{NewArray, NewBitmap, prepare},
    join, open,
};
use std::{
    os::unix::net::UnixListener,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

/// What is slower than this, in bytes of each member a second, is taken for something that hangs.
const RATE_MIN: f64 = 1e6;

/// What an array does with its members.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// So many, from slot 0 up, are lost and come back as new ones.
    Rebuild { lost: usize },
    /// One more comes, and all data moves.
    Growth,
}

#[derive(Clone, Copy)]
pub struct Shape {
    pub name: &'static str,
    pub level: Level,
    pub layout: Option<&'static str>,
    pub members: usize,
    pub task: Task,
}

impl Shape {
    /// Members, and who comes to them.
    pub fn disks(&self) -> usize {
        self.members + usize::from(self.task == Task::Growth)
    }
}

/// How a task went that had the members for itself.
pub struct Run {
    /// By disks: what it takes of them.
    pub traffic: Vec<Traffic>,
    pub component: u64,
    pub seconds: f64,
}

impl Run {
    /// Bytes of the busiest member a second.
    pub fn rate(&self) -> f64 {
        busiest(&self.traffic) as f64 / self.seconds
    }

    /// What it takes of the busiest member, in bytes for each that is used of it.
    pub fn share(&self) -> f64 {
        busiest(&self.traffic) as f64 / self.component as f64
    }
}

/// What a client met, and bytes of the busiest member a second that the task moved beside it.
#[derive(Clone, Copy)]
pub struct Share {
    pub healthy: Served,
    /// Before the task began: without the members that it brings back.
    pub waiting: Served,
    pub under_way: Served,
    pub rate: f64,
}

/// What is measured on these members.
pub struct Subject {
    array: Array,
    shape: Shape,
    disks: Vec<String>,
    socket: PathBuf,
}

impl Subject {
    /// A new array of zeros, which is in sync, served at a socket.
    pub fn new(shape: &Shape, disks: &Disks) -> Self {
        let spec = |path: &PathBuf| path.display().to_string().parse().expect("a member");
        let layout = |name| Layout::from_name(shape.level, name).expect("a layout");
        let members = &disks.members[..shape.members];
        let slots = members.iter().map(|path| Some(spec(path))).collect();
        let wanted = NewArray {
            chunk: (shape.level != Level::Raid1).then_some(Sectors(1024)),
            layout: shape.layout.map(layout),
            bitmap: NewBitmap::None,
            uuid: Some([7; 16]),
            assume_clean: true,
            overwrite: true,
            ..NewArray::new("bench", shape.level, slots)
        };
        {
            // It holds its members until it is dropped.
            let prepared = prepare(&wanted, |bytes| bytes.fill(7)).expect("an array");
            prepared.write().expect("members can be written");
        }
        let members = members.iter().map(spec).collect();
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
        let disks = disks.members.iter().map(|path| path.display().to_string()).collect();
        Self { array, shape: *shape, disks, socket }
    }

    fn command(&self, command: Command) -> Answer {
        self.array.handle().command(command).expect("it is carried out")
    }

    fn detail(&self) -> Detail {
        self.array.handle().detail().expect("it runs")
    }

    fn join(&self, disk: &str) {
        let how = Join { force: true, ..Join::default() };
        join(&self.array.handle(), &disk.parse().expect("a member"), how).expect("it joins");
    }

    /// Takes in what the task needs, which then waits.
    fn prepare(&self) {
        let Task::Rebuild { lost } = self.shape.task else {
            return self.disks[self.shape.members..].iter().for_each(|disk| self.join(disk));
        };
        self.command(Command::Sync(SyncRequest::Frozen));
        let lost = &self.disks[..lost];
        for disk in lost {
            self.command(Command::Fail { member: disk.clone(), force: false });
            self.command(Command::Remove(disk.clone()));
        }
        lost.iter().for_each(|disk| self.join(disk));
    }

    fn growth(&self) -> ResizeWish {
        let raid_devices = Some(self.shape.disks() as u16);
        ResizeWish::Reshape(ReshapeWish { raid_devices, ..ReshapeWish::default() })
    }

    fn begin(&self) {
        self.command(match self.shape.task {
            Task::Rebuild { .. } => Command::Sync(SyncRequest::Resume),
            Task::Growth => Command::Resize(self.growth()),
        });
    }

    fn is_done(&self, detail: &Detail) -> bool {
        match self.shape.task {
            Task::Rebuild { .. } => detail.is_whole(),
            Task::Growth => detail.reshape.is_none(),
        }
    }

    /// What the task takes of each disk, once all is prepared.
    fn traffic(&self) -> Vec<Traffic> {
        if let Task::Rebuild { lost } = self.shape.task {
            let bytes = self.detail().component_bytes;
            let of = |disk| match disk < lost {
                true => Traffic { read: 0, written: bytes },
                false => Traffic { read: bytes, written: 0 },
            };
            return (0..self.disks.len()).map(of).collect();
        }
        let answer = self.command(Command::PlanResize(self.growth(), Vec::new()));
        let Answer::Planned(planned) = answer else { unreachable!("{answer:?}") };
        let mut traffic = vec![Traffic::default(); self.disks.len()];
        for of in planned.steps.iter().flat_map(|step| &step.members) {
            let sum = &mut traffic[usize::from(of.slot)];
            sum.read += of.read_bytes;
            sum.written += of.written_bytes;
        }
        traffic
    }

    /// The task, with nothing else to do.
    ///
    /// # Panics
    /// When that takes as long as at [`RATE_MIN`].
    pub fn run(&self) -> Run {
        self.prepare();
        let traffic = self.traffic();
        let began = Instant::now();
        self.begin();
        loop {
            let detail = self.detail();
            let seconds = began.elapsed().as_secs_f64();
            let component = detail.component_bytes;
            if self.is_done(&detail) {
                return Run { traffic, component, seconds };
            }
            let (state, sync) = (&detail.state, &detail.sync);
            let is_late = seconds * RATE_MIN > component as f64;
            assert!(!is_late, "not done after {seconds:.0} s: {state:?}, {sync:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How a load fares before the task is prepared, while it waits, and while it goes on.
    pub fn run_under(&self, load: &Load, time: Duration) -> Share {
        let healthy = served(&self.socket, load, time);
        self.prepare();
        let waiting = match self.shape.task {
            Task::Rebuild { .. } => served(&self.socket, load, time),
            // It has lost nobody.
            Task::Growth => healthy,
        };
        let bytes = busiest(&self.traffic()) as f64;
        let began = Instant::now();
        self.begin();
        let under_way = served(&self.socket, load, time);
        let done = self
            .detail()
            .sync
            .map_or(1.0, |sync| sync.done_bytes as f64 / sync.total_bytes.max(1) as f64);
        Share { healthy, waiting, under_way, rate: bytes * done / began.elapsed().as_secs_f64() }
    }

    /// Ends it.
    pub fn stop(self) {
        assert!(self.array.stop(), "the array was left active");
    }
}
