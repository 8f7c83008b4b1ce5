//! Arrays served over FUSE by a process of their own, so that a fault here leaves no mount that
//! waits for a server that waits for it: when that process dies, the kernel ends the mount.
//!
//! The process is this test program again, told by its environment to serve ([`serve_if_asked`]).

use lapstrake_export::fuse::Mount;
use lapstrake_geometry::{Level, Sectors};
use lapstrake_host::{
    Array, OpenRequest, Options,
    create::{NewArray, NewBitmap, prepare},
};
use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};
use tempfile::TempDir;

pub use lapstrake_not_run::{left_out, not_run};

const SERVE: &str = "LAPSTRAKE_TEST_SERVE";
const READ_ONLY: &str = "LAPSTRAKE_TEST_READ_ONLY";
const TWICE: &str = "LAPSTRAKE_TEST_TWICE";
const SHARDS: &str = "LAPSTRAKE_TEST_SHARDS";
const WORD: &str = "served:";

/// The test of this program that serves.
const SERVER_TEST: &str = "the_server_of_the_other_tests";

/// False, said aloud, where nothing can be mounted.
pub fn has_fuse() -> bool {
    let there = File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !there {
        not_run("/dev/fuse cannot be opened");
    }
    there
}

/// Whether the kernel hands requests over by io_uring; said aloud where not, and switched on by nobody here.
pub fn has_ring(what: &str) -> bool {
    let switch = std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    let is_on = switch.as_ref().is_ok_and(|word| word.trim() == "Y");
    let threads = std::env::var("LAPSTRAKE_BACKEND").is_ok_and(|backend| backend == "threads");
    if threads {
        left_out(format!("{what}: it is chosen to do without io_uring"));
    } else if switch.is_err() {
        not_run(format!("{what}: this kernel's FUSE has no io_uring (Linux 6.14 and newer have)"));
    } else if !is_on {
        not_run(format!("{what}: the kernel's parameter fuse.enable_uring is off"));
    }
    is_on && !threads
}

pub fn is_root() -> bool {
    // SAFETY: only asks.
    unsafe { libc::geteuid() == 0 }
}

/// What to serve, and how.
pub struct Setup {
    pub level: Level,
    pub members: usize,
    /// Of each.
    pub member_bytes: u64,
    /// Their files have no holes.
    pub is_dense: bool,
    pub read_only: bool,
    /// With more than one, another client has part of the array on the first, and the mount is on the second.
    pub shards: usize,
    /// The array is served as another file, too, with `-too` behind its name.
    pub twice: bool,
    /// For `LAPSTRAKE_FAULT`.
    pub faults: String,
    /// Serve as this user.
    pub user: Option<u32>,
    /// The process enters this control group before it does anything else.
    pub group: Option<PathBuf>,
    /// Where the members and the file lie.
    pub place: PathBuf,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            level: Level::Raid0,
            members: 3,
            member_bytes: 4 << 20,
            is_dense: false,
            read_only: false,
            shards: 1,
            twice: false,
            faults: String::new(),
            user: None,
            group: None,
            place: std::env::temp_dir(),
        }
    }
}

/// A serving process.
pub struct Served {
    pub file: PathBuf,
    pub dir: TempDir,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Setup {
    /// Creates the array and serves it.
    pub fn serve(&self) -> Served {
        self.try_serve().unwrap_or_else(|why| panic!("{why}"))
    }

    /// The same, or what the server said.
    pub fn try_serve(&self) -> Result<Served, String> {
        self.try_serve_over(&|_| ())
    }

    /// The same over what `make` puts there.
    pub fn try_serve_over(&self, make: &dyn Fn(&Path)) -> Result<Served, String> {
        let dir = TempDir::new_in(&self.place).expect("a directory");
        let members = self.create(dir.path());
        let file = dir.path().join("array");
        make(&file);
        if let Some(user) = self.user {
            for path in members.iter().map(PathBuf::as_path).chain([dir.path()]) {
                std::os::unix::fs::chown(path, Some(user), Some(user)).expect("chown");
            }
        }
        let list: Vec<_> =
            [&file].into_iter().chain(&members).map(|p| p.to_string_lossy()).collect();
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", SERVER_TEST, "--nocapture"])
            .env(SERVE, list.join("\n"))
            .env("LAPSTRAKE_FAULT", &self.faults)
            .env(SHARDS, self.shards.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if self.read_only {
            command.env(READ_ONLY, "1");
        }
        if self.twice {
            command.env(TWICE, "1");
        }
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        if let Some(group) = &self.group {
            enter(&mut command, group);
        }
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut served = Served { file, dir, child, input, output };
        match served.hear() {
            word if word == "ready" => Ok(served),
            word => Err(word),
        }
    }

    fn create(&self, dir: &Path) -> Vec<PathBuf> {
        let paths: Vec<_> = (0..self.members).map(|i| dir.join(format!("member{i}"))).collect();
        for path in &paths {
            let mut file = File::create(path).expect("a member");
            if self.is_dense {
                let mib = vec![1; 1 << 20];
                (0..self.member_bytes >> 20).for_each(|_| file.write_all(&mib).expect("written"));
                file.sync_all().expect("written");
            }
            file.set_len(self.member_bytes).expect("its size");
        }
        let specs = paths.iter().map(|path| Some(path.to_string_lossy().parse().expect("a spec")));
        let array = NewArray {
            chunk: Some(Sectors(128)),
            bitmap: NewBitmap::None,
            assume_clean: true,
            ..NewArray::new("fuse", self.level, specs.collect())
        };
        let prepared = prepare(&array, |bytes| bytes.fill(7)).expect("a possible array");
        prepared.write().expect("written");
        paths
    }
}

/// Makes the command's process enter a control group first.
pub fn enter(command: &mut Command, group: &Path) {
    let procs = group.join("cgroup.procs");
    let procs = std::ffi::CString::new(procs.to_str().expect("UTF-8")).expect("no zero byte");
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(move || {
            let fd = libc::open(procs.as_ptr(), libc::O_WRONLY);
            let written = libc::write(fd, c"0".as_ptr().cast(), 1);
            libc::close(fd);
            if written == 1 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
}

impl Served {
    /// The server's next word.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line).expect("a pipe") == 0 {
                return "the server has gone".into();
            }
            // The harness may have printed before it on the same line.
            if let Some((_, word)) = line.split_once(WORD) {
                return word.trim().into();
            }
        }
    }

    /// Of the serving process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, and takes away what it leaves mounted.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
        self.abort();
    }

    /// Tells the server something.
    pub fn say(&mut self, word: &str) {
        let input = self.input.as_mut().expect("not ended yet");
        writeln!(input, "{word}").expect("the server listens");
    }

    /// Ends it; what it said last.
    pub fn end(mut self) -> String {
        drop(self.input.take());
        self.hear()
    }

    /// Whether somebody kills it, now or within a moment.
    pub fn was_killed(&mut self) -> bool {
        (0..20).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            self.child.try_wait().is_ok_and(|status| status.is_some())
        })
    }

    /// Ends the mount by force: who waits for it gets an error.
    pub fn abort(&mut self) {
        let path = self.file.to_str().expect("UTF-8");
        let args = if is_root() { ["umount", "-f", "-l"] } else { ["fusermount3", "-u", "-z"] };
        let _ = Command::new(args[0]).args(&args[1..]).arg(path).status();
        let _ = self.child.kill();
    }

    pub fn open(&self) -> File {
        File::options().read(true).write(true).open(&self.file).expect("opens")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.input.take());
        if std::thread::panicking() {
            self.abort();
        }
        let _ = self.child.wait();
    }
}

/// The other side: returns at once unless this process is to serve.
pub fn serve_if_asked() {
    let Ok(list) = std::env::var(SERVE) else { return };
    let (file, members) = list.split_once('\n').expect("a file and members");
    let say = |word: &str| println!("{WORD} {word}");
    let read_only = std::env::var_os(READ_ONLY).is_some();
    let members = members.lines().map(|member| member.parse().expect("a spec")).collect();
    let request = OpenRequest { members, read_only, ..OpenRequest::default() };
    let opened = lapstrake_host::open(&request).expect("an array");
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let shards = std::env::var(SHARDS).expect("it says").parse().expect("a number");
    // Small pools: one of the tests limits this process's memory.
    let options = Options { shards, buffer_bytes: 4 << 20, read_only, ..Options::default() };
    let array = Array::start(opened.parts, &options).expect("starts");
    let _neighbour = (shards > 1).then(|| array.handle().array_io());
    let (bytes, block) = (array.bytes(), array.facts().block_bytes);
    let mount =
        |file: &str| Mount::new(array.handle(), bytes.into(), block, read_only, Path::new(file));
    let too = std::env::var_os(TWICE).map(|_| mount(&format!("{file}-too")).expect("mounted, too"));
    let mut mount = match mount(file) {
        Ok(mount) => Some(mount),
        Err(error) => return say(&error.to_string()),
    };
    let (ended, end) = std::sync::mpsc::channel();
    if let Some(mount) = &mount {
        mount.on_end(move || {
            println!("{WORD} the mount has ended");
            ended.send(()).expect("the server waits for it");
        });
    }
    say("ready");
    for line in std::io::stdin().lines() {
        match (line.as_deref(), mount.take()) {
            (Ok("unmount"), Some(mount)) => match mount.unmount() {
                Ok(()) => say("unmounted"),
                Err(error) => say(&error.to_string()),
            },
            (Ok("stop"), _) => break,
            _ => panic!("not a command"),
        }
    }
    for mount in [mount, too].into_iter().flatten() {
        if let Err(error) = mount.unmount() {
            say(&error.to_string());
        }
    }
    say(if array.stop() { "stopped clean" } else { "stopped" });
    end.recv().expect("it ends with the array at the latest");
}
