//! How an array is built: steps as data.
//!
//! Words of commands may hold `{name}`: the output of the step that was told to keep it under that name, such as the
//! loop device that losetup chose.

mod others;

use super::Target;
use super::steps::shown;
use crate::plan::{Array, DiskPlace, Filesystem, Leg, Over, Plan, Prepare};
use crate::record::{State, SubjectKind};
use lapstrake_device::MemberSpec;
use lapstrake_geometry::{Layout, Level, row_chunks};
use std::path::{Path, PathBuf};

/// A Lapstrake array's name in its superblocks.
const NAME: &str = "lab";

/// How an array is built, and what is there then.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recipe {
    pub steps: Vec<Step>,
    pub target: Target,
    /// The array as a block device, if it is one somewhere; may hold names.
    pub device: Option<String>,
    /// Members as the kernel counts their I/O: the plan's name and a block device, which may hold names.
    pub counted: Vec<(String, String)>,
    /// The plan's names of disks and arrays within, and their files.
    pub files: Vec<(String, PathBuf)>,
    /// The control directory of the server whose array this is, if it has one.
    pub control: Option<PathBuf>,
    /// The array as a device of the kernel's md, if it is one.
    pub md: Option<String>,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub action: Action,
    /// What takes back what it made.
    pub undo: Option<Vec<String>>,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// A directory, with those above it.
    Directory(PathBuf),
    /// A file of zeros, each block written.
    Image { path: PathBuf, bytes: u64 },
    /// A command that ends; its output is kept under a name, if that is given.
    Run { words: Vec<String>, keep: Option<String> },
    /// A server, until it is taken down; it is up when this path is there.
    Serve { words: Vec<String>, ready: PathBuf },
}

impl Action {
    /// It as a command that one could type.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Directory(path) => shown(&words(&["mkdir", "-p", &text(path)])),
            Self::Image { path, bytes } => {
                let (to, count) = (format!("of={}", text(path)), format!("count={bytes}"));
                shown(&words(&[
                    "dd",
                    "if=/dev/zero",
                    &to,
                    "bs=1M",
                    &count,
                    "iflag=count_bytes",
                    "conv=fsync",
                ]))
            }
            Self::Run { words, keep: None } => shown(words),
            Self::Run { words, keep: Some(name) } => format!("{name}=$({})", shown(words)),
            Self::Serve { words, .. } => format!("{} &", shown(words)),
        }
    }
}

/// Where things are.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// The lapstrake command.
    pub lapstrake: PathBuf,
    /// The work directory.
    pub work: PathBuf,
}

struct Builder<'a> {
    plan: &'a Plan,
    places: &'a Places,
    steps: Vec<Step>,
    counted: Vec<(String, String)>,
    loops: usize,
    md: Option<String>,
}

/// The recipe of an array in a state.
pub(crate) fn recipe(plan: &Plan, array: &Array, state: &State, places: &Places) -> Recipe {
    let (steps, counted) = (Vec::new(), Vec::new());
    let mut builder = Builder { plan, places, steps, counted, loops: 0, md: None };
    builder.steps.push(Step { action: Action::Directory(places.work.clone()), undo: None });
    if !array.is_only_predicted() {
        builder.images(array);
    }
    let files = array.members.iter().filter_map(|leg| builder.file(leg)).collect();
    let built = match array.kind {
        SubjectKind::Null => Built::new(Target::Null),
        // It has an obstacle everywhere.
        _ if array.is_only_predicted() => Built::new(Target::Null),
        SubjectKind::Controller => unreachable!("it is only predicted"),
        SubjectKind::Disk => builder.disk(array),
        SubjectKind::Lapstrake => builder.lapstrake(array, state),
        SubjectKind::Md => builder.md(array, state),
        SubjectKind::Btrfs => builder.btrfs(array),
        SubjectKind::Zfs => builder.zfs(array),
        SubjectKind::Existing => builder.existing(array),
    };
    Recipe {
        steps: builder.steps,
        counted: builder.counted,
        md: builder.md,
        files,
        target: built.target,
        device: built.device,
        control: built.control,
    }
}

struct Built {
    target: Target,
    device: Option<String>,
    control: Option<PathBuf>,
}

impl Built {
    fn new(target: Target) -> Self {
        Self { target, device: None, control: None }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

impl Builder<'_> {
    fn run(&mut self, command: Vec<String>) {
        self.steps.push(Step { action: Action::Run { words: command, keep: None }, undo: None });
    }

    fn run_undo(&mut self, command: Vec<String>, undo: Vec<String>) {
        self.steps
            .push(Step { action: Action::Run { words: command, keep: None }, undo: Some(undo) });
    }

    fn directory(&mut self, name: &str) -> PathBuf {
        let path = self.places.work.join(name);
        self.steps.push(Step { action: Action::Directory(path.clone()), undo: None });
        path
    }

    /// Where a disk is.
    fn spec(&self, disk: &str) -> MemberSpec {
        match self.plan.disk(disk).map(|disk| &disk.place) {
            Some(DiskPlace::Given { spec, .. }) => spec.clone(),
            _ => MemberSpec::whole(self.places.work.join(format!("{disk}.img"))),
        }
    }

    /// What a member is called in the plan, and where it is.
    fn file(&self, leg: &Leg) -> Option<(String, PathBuf)> {
        match leg {
            Leg::Missing => None,
            Leg::Disk(disk) => Some((disk.clone(), self.spec(disk).path)),
            Leg::Array(below) => Some((below.name.clone(), self.served_file(below))),
        }
    }

    /// As what an array within another is served.
    fn served_file(&self, below: &Array) -> PathBuf {
        self.places.work.join(format!("{}.raw", below.name))
    }

    /// Images below an array, anew: zeros agree with zeros, whatever the level.
    fn images(&mut self, array: &Array) {
        for name in array.disks() {
            if let Some(DiskPlace::Make { bytes }) = self.plan.disk(name).map(|disk| &disk.place) {
                let (path, bytes) = (self.spec(name).path, *bytes);
                let undo = Some(words(&["rm", "-f", &text(&path)]));
                self.steps.push(Step { action: Action::Image { path, bytes }, undo });
            }
        }
    }

    fn is_zero(&self, array: &Array) -> bool {
        let made = |name: &&str| {
            matches!(self.plan.disk(name).map(|disk| &disk.place), Some(DiskPlace::Make { .. }))
        };
        array.disks().iter().all(made)
    }

    /// A block device for a disk: itself, or a loop device.
    fn block_device(&mut self, disk: &str) -> String {
        let spec = self.spec(disk);
        let device = if is_block(&spec.path) && spec.offset == 0 && spec.size.is_none() {
            text(&spec.path)
        } else {
            self.loop_device(&spec)
        };
        self.counted.push((disk.to_owned(), device.clone()));
        device
    }

    fn loop_device(&mut self, spec: &MemberSpec) -> String {
        let name = format!("loop{}", self.loops);
        self.loops += 1;
        let mut command = words(&["losetup", "--find", "--show"]);
        if spec.offset > 0 {
            command.push(format!("--offset={}", spec.offset));
        }
        if let Some(size) = spec.size {
            command.push(format!("--sizelimit={size}"));
        }
        command.push(text(&spec.path));
        // Not every filesystem has direct I/O (tmpfs before Linux 6.6); a run tells of those that go through its cache.
        let direct = [&command[..1], &words(&["--direct-io=on"]), &command[1..]].concat();
        let either = format!("{} 2>/dev/null || {}", shown(&direct), shown(&command));
        let command = words(&["sh", "-c", &either]);
        let device = format!("{{{name}}}");
        let undo = Some(words(&["losetup", "--detach", &device]));
        self.steps.push(Step { action: Action::Run { words: command, keep: Some(name) }, undo });
        device
    }

    fn existing(&mut self, array: &Array) -> Built {
        let path = array.path.clone().unwrap_or_default();
        if path.is_dir() {
            // Apart from all that is there; PostgreSQL, which is not root, has to get in.
            let pattern = text(&path.join("lapstrake-lab.XXXXXX"));
            let own = "{own}".to_owned();
            self.steps.push(Step {
                action: Action::Run {
                    words: words(&["mktemp", "--directory", &pattern]),
                    keep: Some("own".into()),
                },
                undo: Some(words(&["rm", "-r", "-f", &own])),
            });
            self.run(words(&["chmod", "755", &own]));
            return Built::new(Target::Directory { path: own });
        }
        self.counted.push((array.name.clone(), text(&path)));
        self.on_device(array, text(&path), None)
    }

    fn disk(&mut self, array: &Array) -> Built {
        let Some(Leg::Disk(disk)) = array.members.first() else {
            unreachable!("a plan's disks have one member");
        };
        if array.shape.filesystem.is_some() || array.shape.read_ahead.is_some() {
            let device = self.block_device(disk);
            return self.on_device(array, device, None);
        }
        let spec = self.spec(disk);
        let path = text(&spec.path);
        let is_block = is_block(&spec.path) && spec.offset == 0 && spec.size.is_none();
        Built {
            device: Some(path.clone()).filter(|_| is_block),
            target: Target::File { path, offset: spec.offset, size: spec.size },
            control: None,
        }
    }

    /// Read-ahead and filesystem on a block device.
    fn on_device(&mut self, array: &Array, device: String, control: Option<PathBuf>) -> Built {
        if let Some(bytes) = array.shape.read_ahead {
            self.read_ahead(bytes, &device);
        }
        let target = match array.shape.filesystem {
            None => Target::File { path: device.clone(), offset: 0, size: None },
            Some(filesystem) => {
                self.run(mkfs(filesystem, array, &device));
                self.mount(&device, array.shape.mount_options.as_deref())
            }
        };
        Built { target, device: Some(device), control }
    }

    /// It is the device's own again afterwards.
    fn read_ahead(&mut self, bytes: u64, device: &str) {
        let set = |sectors: &str| words(&["blockdev", "--setra", sectors, device]);
        let before = words(&["blockdev", "--getra", device]);
        let (keep, undo) = (Some("readahead".to_owned()), Some(set("{readahead}")));
        self.steps.push(Step { action: Action::Run { words: before, keep }, undo });
        self.run(set(&(bytes / 512).to_string()));
    }

    fn mount(&mut self, device: &str, options: Option<&str>) -> Target {
        let point = text(&self.directory("mnt"));
        let mut command = words(&["mount"]);
        if let Some(options) = options {
            command.extend(words(&["-o", options]));
        }
        command.extend(words(&[device, &point]));
        self.run_undo(command, words(&["umount", &point]));
        Target::Directory { path: point }
    }

    /// Members that the kernel counts, if it counts them all.
    fn count_disks(&mut self, array: &Array) {
        let disks = array.disks();
        let whole = |name: &&&str| {
            let spec = self.spec(name);
            is_block(&spec.path) && spec.offset == 0 && spec.size.is_none()
        };
        if disks.iter().filter(whole).count() == disks.len() {
            let counted =
                disks.iter().map(|name| ((*name).to_owned(), text(&self.spec(name).path)));
            self.counted = counted.collect();
        }
    }

    fn lapstrake(&mut self, array: &Array, state: &State) -> Built {
        self.count_disks(array);
        let members = self.create(array, state, NAME);
        if array.shape.over == Over::Process {
            let shape = &array.shape;
            return Built::new(Target::Process {
                members,
                stripe_cache: shape.stripe_cache,
                sync_speed_min: shape.sync_speed_min,
                sync_speed_max: shape.sync_speed_max,
            });
        }
        let control = self.directory("control");
        let (front, ready) = match array.shape.over {
            Over::Nbd => {
                let socket = self.places.work.join("nbd.sock");
                (vec!["--nbd".into(), format!("unix:{}", text(&socket))], socket)
            }
            _ => {
                let file = self.places.work.join("array.raw");
                (vec!["--fuse".into(), text(&file)], file)
            }
        };
        self.serve(array, &members, NAME, &control, front, &ready);
        let path = text(&ready);
        let built = match array.shape.over {
            Over::Nbd => Built::new(Target::Nbd { socket: ready }),
            Over::Loop => {
                let device = self.loop_device(&MemberSpec::whole(ready));
                self.on_device(array, device, None)
            }
            _ => Built::new(Target::File { path, offset: 0, size: None }),
        };
        Built { control: Some(control), ..built }
    }

    fn serve(
        &mut self,
        array: &Array,
        members: &[MemberSpec],
        name: &str,
        control: &Path,
        front: Vec<String>,
        ready: &Path,
    ) {
        let mut command = vec![text(&self.places.lapstrake), "serve".into()];
        command.extend(members.iter().map(ToString::to_string));
        command.extend(words(&["--name", name, "--control-dir", &text(control)]));
        let options = [
            ("--stripe-cache-size", array.shape.stripe_cache.map(u64::from)),
            ("--sync-speed-min", array.shape.sync_speed_min.map(|bytes| bytes >> 10)),
            ("--sync-speed-max", array.shape.sync_speed_max.map(|bytes| bytes >> 10)),
        ];
        for (option, value) in options {
            command
                .extend(value.into_iter().flat_map(|value| [option.to_owned(), value.to_string()]));
        }
        command.extend(front);
        self.steps.push(Step {
            action: Action::Serve { words: command, ready: ready.to_owned() },
            undo: None,
        });
    }

    /// Makes the array's members, and those of arrays below it, which are served as files.
    fn create(&mut self, array: &Array, state: &State, name: &str) -> Vec<MemberSpec> {
        let mut members: Vec<Option<MemberSpec>> = Vec::new();
        for leg in &array.members {
            members.push(match leg {
                Leg::Missing => None,
                Leg::Disk(disk) => Some(self.spec(disk)),
                Leg::Array(below) => Some(MemberSpec::whole(self.nested(below, state, name))),
            });
        }
        let (out, spare) = match state {
            State::Healthy => (&[][..], false),
            State::Degraded(names) => (&names[..], false),
            State::Rebuilding(names) => (&names[..], true),
        };
        let mut spares = Vec::new();
        for (leg, member) in array.members.iter().zip(&mut members) {
            if out.iter().any(|name| leg.name() == name) {
                spares.extend(member.take().filter(|_| spare));
            }
        }
        let redundant = array.shape.level.is_some_and(Level::has_redundancy);
        let clean = self.is_zero(array) || self.plan.rules.prepare == Prepare::AssumeClean;
        self.run(self.create_command(array, name, &members, &spares, redundant && clean));
        let all: Vec<MemberSpec> = members.into_iter().flatten().chain(spares).collect();
        if redundant && !clean && !spare {
            self.synchronise(name, &all);
        }
        all
    }

    /// Waits for the first resync or recovery.
    fn synchronise(&mut self, name: &str, members: &[MemberSpec]) {
        let control = text(&self.directory("control"));
        let lapstrake = text(&self.places.lapstrake);
        let mut command = words(&[&lapstrake, "serve"]);
        command.extend(members.iter().map(ToString::to_string));
        // Without a missing member it ends with 0, with one with 3; both are what was asked for.
        let wait = format!("'{lapstrake}' wait {name} --control-dir '{control}' || test $? = 3");
        command.extend(words(&["--name", name, "--control-dir", &control, "--run", &wait]));
        self.run(command);
    }

    fn nested(&mut self, below: &Array, state: &State, above: &str) -> PathBuf {
        let name = format!("{above}-{}", self.steps.len());
        let members = self.create(below, state.below(), &name);
        let control = self.directory("control");
        let file = self.served_file(below);
        self.serve(below, &members, &name, &control, vec!["--fuse".into(), text(&file)], &file);
        file
    }

    fn create_command(
        &self,
        array: &Array,
        name: &str,
        members: &[Option<MemberSpec>],
        spares: &[MemberSpec],
        clean: bool,
    ) -> Vec<String> {
        let (level, shape) = (array.shape.level.map_or("", Level::name), &array.shape);
        let mut command = vec![text(&self.places.lapstrake)];
        command.extend(words(&["create", name, "--homehost", "none", "--run", "--level", level]));
        command.extend(words(&["--raid-devices", &members.len().to_string()]));
        let options = [
            ("--layout", shape.layout.clone()),
            ("--chunk", shape.chunk.map(|bytes| (bytes >> 10).to_string())),
            ("--metadata", shape.metadata.map(|version| version.to_string())),
            ("--bitmap", shape.bitmap.clone()),
            ("--bitmap-chunk", shape.bitmap_chunk.map(|bytes| (bytes >> 10).to_string())),
            ("--spare-devices", Some(spares.len().to_string()).filter(|_| !spares.is_empty())),
        ];
        for (option, value) in options {
            command.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
        }
        if clean {
            command.push("--assume-clean".into());
        }
        let member = |member: &Option<MemberSpec>| {
            member.as_ref().map_or("missing".to_owned(), ToString::to_string)
        };
        command.extend(members.iter().map(member));
        command.extend(spares.iter().map(ToString::to_string));
        command
    }
}

/// The command that makes a filesystem, told of chunk and width if the array has them.
fn mkfs(filesystem: Filesystem, array: &Array, device: &str) -> Vec<String> {
    let stripe = stripe(array).filter(|_| array.shape.stride);
    let mut command = match filesystem {
        Filesystem::Ext3 => words(&["mkfs.ext3", "-q", "-F", "-b", "4096"]),
        Filesystem::Ext4 => words(&[
            "mkfs.ext4",
            "-q",
            "-F",
            "-b",
            "4096",
            "-E",
            "lazy_itable_init=0,lazy_journal_init=0",
        ]),
        Filesystem::Xfs => words(&["mkfs.xfs", "-q", "-f"]),
        Filesystem::Btrfs => words(&["mkfs.btrfs", "--quiet", "--force"]),
    };
    if let Some((chunk, data)) = stripe {
        let (blocks, width) = (chunk / 4096, chunk / 4096 * data);
        match filesystem {
            Filesystem::Ext3 => {
                command.extend(words(&["-E", &format!("stride={blocks},stripe_width={width}")]))
            }
            Filesystem::Ext4 => {
                let extended = format!(
                    "{},stride={blocks},stripe_width={width}",
                    command.pop().unwrap_or_default()
                );
                command.push(extended);
            }
            Filesystem::Xfs => command.extend(words(&["-d", &format!("su={chunk},sw={data}")])),
            Filesystem::Btrfs => {}
        }
    } else if filesystem == Filesystem::Xfs {
        command.extend(words(&["-d", "noalign"]));
    }
    command.push(device.to_owned());
    command
}

/// An md array's chunk in bytes, and the chunks of data in a row.
pub(crate) fn stripe(array: &Array) -> Option<(u64, u64)> {
    let level = array.shape.level?;
    if !matches!(array.kind, SubjectKind::Lapstrake | SubjectKind::Md) {
        return None;
    }
    let name = array.shape.layout.as_deref().or((level == Level::Raid10).then_some("n2"));
    let layout = name.and_then(|name| Layout::from_name(level, name).ok());
    let count = array.members.len() as u16;
    let row = row_chunks(level, layout.unwrap_or(Layout::None), count)?;
    Some((array.shape.chunk.unwrap_or(512 << 10), row.into()))
}

fn is_block(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device())
}

#[cfg(test)]
mod tests;
