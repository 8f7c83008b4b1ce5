//! Promise: a filesystem on a loop device on the file works, also while the kernel needs the memory
//! that holds what it has yet to write there. These need root.

use crate::support::{Served, Setup, enter, has_fuse, is_root, not_run};
use lapstrake_geometry::Level;
use std::{
    fs, io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

/// Memory of a group in the storm.
const LIMIT: u64 = 96 << 20;
/// What a server has for itself comes on top in its own group.
const SERVER_LIMIT: u64 = LIMIT + (64 << 20);
/// The storm writes this many times as much.
const TIMES: u64 = 4;
/// A storm takes seconds; a deadlock, for ever.
const LONG: Duration = Duration::from_secs(120);
/// A forked process executes its program within milliseconds.
const BUSY: Duration = Duration::from_secs(20);

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {}\n{said}{complained}", output.status);
    said.trim().into()
}

/// A loop device on a file, with an ext4 mounted.
struct Filesystem {
    device: String,
    point: PathBuf,
}

impl Filesystem {
    fn make(file: &Path, point: PathBuf) -> Self {
        let file = file.to_str().expect("UTF-8");
        let device = run("losetup", &["--find", "--show", file]);
        let made = Self { device, point };
        run("mkfs.ext4", &["-q", &made.device]);
        fs::create_dir_all(&made.point).expect("a mount point");
        made.mount();
        made
    }

    fn mount(&self) {
        run("mount", &[&self.device, self.point.to_str().expect("UTF-8")]);
    }

    /// Repeated while it is busy: a process that another test forks holds this one's open files
    /// until it executes its program, and whatever watches mounts on this machine looks at them.
    fn unmount(&self) {
        let point = self.point.to_str().expect("UTF-8");
        let began = Instant::now();
        while began.elapsed() < BUSY && !run_quietly("umount", &[point]) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
        assert!(!mounts.contains(point), "{point} is still mounted after {BUSY:?}");
    }

    /// Checks it, and that its files are what they were.
    fn end(self) {
        self.unmount();
        run("e2fsck", &["-fn", &self.device]);
    }
}

impl Drop for Filesystem {
    fn drop(&mut self) {
        // Whatever is left after a failure.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(&self.point)
            .stderr(std::process::Stdio::null())
            .status();
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
    }
}

/// False, said aloud, if something is missing here.
fn can_loop() -> bool {
    if !has_fuse() {
        return false;
    }
    if !is_root() {
        not_run("loop devices need root");
        return false;
    }
    for program in ["losetup", "mkfs.ext4", "e2fsck"] {
        if Command::new(program).arg("--version").output().is_err() {
            not_run(format!("{program} is not installed"));
            return false;
        }
    }
    if !run_quietly("losetup", &["--find"]) {
        not_run("there are no loop devices");
        return false;
    }
    true
}

fn run_quietly(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

#[test]
fn an_ext4_on_a_loop_device_keeps_its_files() {
    if !can_loop() {
        return;
    }
    let setup = Setup { level: Level::Raid5, member_bytes: 48 << 20, ..Setup::default() };
    let served = setup.serve();
    let filesystem = Filesystem::make(&served.file, served.dir.path().join("fs"));
    let contents = |n: usize| vec![n as u8; 1 + n * 719];
    for n in 0..200 {
        fs::write(filesystem.point.join(format!("{n}")), contents(n)).expect("written");
    }
    for n in (0..200).step_by(3) {
        fs::remove_file(filesystem.point.join(format!("{n}"))).expect("removed");
    }
    // Gives the space back through the loop device as holes.
    run("fstrim", &[filesystem.point.to_str().expect("UTF-8")]);
    filesystem.unmount();
    filesystem.mount();
    for n in (0..200).filter(|n| n % 3 != 0) {
        let read = fs::read(filesystem.point.join(format!("{n}"))).expect("read");
        assert!(read == contents(n), "file {n}");
    }
    filesystem.end();
}

/// A group of processes with limited memory, by the kernel's first or second interface.
struct Group(PathBuf);

impl Group {
    fn make(name: &str, limit: u64) -> io::Result<Self> {
        let name = format!("lapstrake-test-{}-{name}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/memory");
        let (path, file) = if first.join("cgroup.procs").exists() {
            (first.join(name), "memory.limit_in_bytes")
        } else {
            let second = Path::new("/sys/fs/cgroup");
            fs::write(second.join("cgroup.subtree_control"), "+memory")?;
            (second.join(name), "memory.max")
        };
        fs::create_dir(&path)?;
        let group = Self(path);
        fs::write(group.0.join(file), limit.to_string())?;
        Ok(group)
    }

    /// How often memory was short, where the kernel counts that.
    fn shortages(&self) -> u64 {
        let count = fs::read_to_string(self.0.join("memory.failcnt")).unwrap_or_default();
        count.trim().parse().unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Fails as long as processes are in it; then it stays, which is to be seen.
        let _ = fs::remove_dir(&self.0);
    }
}

/// None if it does not end.
fn wait(child: &mut Child) -> Option<ExitStatus> {
    let began = Instant::now();
    while began.elapsed() < LONG {
        if let Some(status) = child.try_wait().expect("a child") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    None
}

/// Dirties much more memory than there is, all of it to be written back through the server, and
/// returns how the writer ended. If something must be killed to make room, it is the writer.
fn storm(served: &mut Served, filesystem: &Filesystem, writers: &Group) -> ExitStatus {
    let script = "echo 1000 > /proc/self/oom_score_adj; exec dd if=/dev/zero of=\"$1\" bs=1M \
                  count=\"$2\" conv=fsync status=none";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(filesystem.point.join("storm"));
    command.arg(((LIMIT * TIMES) >> 20).to_string());
    enter(&mut command, &writers.0);
    let mut writer = command.spawn().expect("a shell");
    wait(&mut writer).unwrap_or_else(|| {
        served.abort();
        panic!("not done after {LONG:?}: a deadlock");
    })
}

fn weather(level: Level, servers: &Group, writers: &Group) {
    let setup = Setup {
        level,
        members: 4,
        member_bytes: 160 << 20,
        is_dense: true,
        group: Some(servers.0.clone()),
        // Where temporary files lie in memory, members would take what the server is short of.
        place: env!("CARGO_TARGET_TMPDIR").into(),
        ..Setup::default()
    };
    let mut served = setup.serve();
    let filesystem = Filesystem::make(&served.file, served.dir.path().join("fs"));
    let status = storm(&mut served, &filesystem, writers);
    assert!(status.success(), "{level:?}: dd: {status}");
    assert!(writers.shortages() > 0 || !writers.0.join("memory.failcnt").exists());
    let status = storm(&mut served, &filesystem, servers);
    if !status.success() {
        // The kernel's first interface lets a group fill itself with dirty pages until nothing is
        // left; a kill is its way out, a deadlock would not be.
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{level:?}: dd: {status}");
        not_run(format!("{level:?}: the end of a storm in the server's own group: OOM killer"));
        if served.was_killed() {
            return not_run(format!("{level:?}: its files: the OOM killer took the server, too"));
        }
    }
    filesystem.end();
    assert_eq!(served.end(), "the mount has ended");
}

#[test]
fn a_storm_of_dirty_pages_passes_through_a_server_that_is_short_of_memory_itself() {
    if !can_loop() {
        return;
    }
    for level in [Level::Raid0, Level::Raid5] {
        let groups = Group::make("server", SERVER_LIMIT)
            .and_then(|s| Ok((s, Group::make("writer", LIMIT)?)));
        match groups {
            Ok((servers, writers)) => weather(level, &servers, &writers),
            Err(error) => return not_run(format!("no memory-limited control group: {error}")),
        }
    }
}
