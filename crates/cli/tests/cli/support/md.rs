//! The kernel's md beside our server: members in turn in its hands and in ours, and an array's
//! bytes as either reads them.

use super::{Lab, Server, installed, not_run};
use lapstrake_kernel_md::{Guest, Kernel, WORDS};
use lapstrake_not_run::left_out;
use serde_json::Value;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

/// Longer than anything takes here.
const BOUND: Duration = Duration::from_secs(60);

/// Guests whose tests are over, ready for the next: a boot takes longer than most of what they are asked.
static IDLE: Mutex<Vec<Guest>> = Mutex::new(Vec::new());

fn idle() -> MutexGuard<'static, Vec<Guest>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// At the end of the process, which drops no statics.
extern "C" fn cut_idle() {
    idle().drain(..).for_each(Guest::cut);
}

/// One guest for a whole test.
pub struct Md(Option<Guest>);

impl Drop for Md {
    /// A test that fails leaves its guest as nobody knows.
    fn drop(&mut self) {
        let Some(mut guest) = self.0.take().filter(|_| !std::thread::panicking()) else { return };
        let calmed = guest.run("calm && rm -rf /tmp/*");
        if calmed.is_ok_and(|output| output.success()) {
            idle().push(guest);
        }
    }
}

impl Md {
    /// None where it cannot run, which is said aloud.
    pub fn boot(what: &str) -> Option<Self> {
        if !can_copy(what) {
            return None;
        }
        // `make test` goes over these tests twice, and what the kernel finds is the same.
        if std::env::var("LAPSTRAKE_BACKEND").is_ok_and(|backend| backend == "threads") {
            left_out(format_args!("{what}: the other back end's run has it"));
            return None;
        }
        let booted = Self::guest();
        booted
            .map(|guest| Self(Some(guest)))
            .inspect_err(|error| not_run(what, &error.to_string()))
            .ok()
    }

    fn guest() -> Result<Guest, lapstrake_kernel_md::Error> {
        static AT_EXIT: Once = Once::new();
        // SAFETY: a function that the C library may call when the process ends.
        AT_EXIT.call_once(|| assert_eq!(unsafe { libc::atexit(cut_idle) }, 0));
        let idle = idle().pop();
        idle.map_or_else(|| Kernel::new().memory_mib(256).boot(), Ok)
    }

    fn up(&mut self) -> &mut Guest {
        self.0.as_mut().expect("it has a guest until it is dropped")
    }

    /// Plays a script in [`WORDS`], with these members as its devices; what it printed.
    pub fn play(&mut self, lab: &Lab, members: &str, script: &str) -> String {
        self.play_to_its_end(lab, members, script).expect("a script that ends")
    }

    /// As [`Md::play`]; none if it hangs: then the power went off.
    pub fn play_to_its_end(&mut self, lab: &Lab, members: &str, script: &str) -> Option<String> {
        let paths = members.split_whitespace().map(|name| lab.path(name).display().to_string());
        let shown = paths.collect::<Vec<_>>().join(" ");
        let dir = lab.path("").display().to_string();
        let ran = self.up().run(&format!("{WORDS}\ndir={dir}\nshow {shown}\n{script}"));
        if let Err(lapstrake_kernel_md::Error::Timeout { .. }) = ran {
            self.power_off();
            return None;
        }
        let output = ran.unwrap();
        assert!(output.success(), "{members}: {script}\n{output}");
        Some(output.text())
    }

    /// Another guest takes its place.
    pub fn power_off(&mut self) {
        std::mem::replace(self.up(), Self::guest().unwrap()).cut();
    }

    /// As [`Md::play`], and the power goes off at the script's end.
    pub fn cut(&mut self, lab: &Lab, members: &str, script: &str) -> String {
        // Words end with the array stopped.
        let said = self.play(lab, members, &format!("{script}\ntrap - EXIT"));
        self.power_off();
        said
    }

    /// The kernel finds these members whole and clean, with these bytes, and all copies right.
    pub fn agrees(&mut self, lab: &Lab, members: &str, bytes: &[u8]) {
        self.play(lab, members, "healthy");
        self.finishes(lab, members, bytes, "");
    }

    /// As [`Md::agrees`], once it has done what was left to do; then a script, for what it prints.
    pub fn finishes(&mut self, lab: &Lab, members: &str, bytes: &[u8], script: &str) -> String {
        let (said, dump) = self.ends(lab, members, script);
        assert!(dump == bytes, "{members}: the kernel reads otherwise");
        said
    }

    /// The kernel does what was left to do, then a script, and leaves members whole and clean, all copies right: what the
    /// script printed, and what the kernel reads.
    pub fn ends(&mut self, lab: &Lab, members: &str, script: &str) -> (String, Vec<u8>) {
        let script = format!(
            "quietly mdadm --assemble /dev/md0 ${{devices[@]}}
             settle
             {script}
             dump $dir/dump
             matches
             quietly mdadm --stop /dev/md0
             healthy"
        );
        (self.play(lab, members, &script), lab.read("dump"))
    }
}

/// How one leaves what it was doing. The kernel's power cut takes from the members what was not flushed; ours is a
/// kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    Stopped,
    CutOff,
}

impl Left {
    /// By the kernel, at a script's end.
    pub fn by_kernel(self, md: &mut Md, lab: &Lab, members: &str, script: &str) -> String {
        match self {
            Self::Stopped => md.play(lab, members, script),
            Self::CutOff => md.cut(lab, members, script),
        }
    }

    /// By us.
    pub fn by_us(self, server: Server) {
        match self {
            Self::Stopped => server.stop(),
            Self::CutOff => server.kill(),
        }
    }

    /// So much less than was done, in bytes of so many, may be on record: checkpoints are a sixteenth apart.
    pub fn lag(self, total: u64) -> u64 {
        if self == Self::CutOff { total / 16 + (1 << 20) } else { 0 }
    }
}

/// The sectors that a script has printed, in bytes.
pub fn bytes_in(said: &str) -> Vec<u64> {
    said.lines().map(|line| line.parse::<u64>().unwrap() * 512).collect()
}

/// Whether contents can be copied in and out; if not that is said.
pub fn can_copy(what: &str) -> bool {
    let can = installed("nbdcopy");
    if !can {
        not_run(what, "nbdcopy is not installed");
    }
    can
}

/// An array that is served by the name of data.
impl Lab {
    pub fn serve_data(&self, arguments: &str) -> Server {
        self.serve(&format!("--name data {arguments}"))
    }

    /// Writes to the start of the array, and flushes.
    pub fn fill(&self, server: &Server, bytes: &[u8]) {
        std::fs::write(self.path("fill"), bytes).unwrap();
        self.other(&format!("nbdcopy --flush fill {}", server.uri())).unwrap().ok();
    }

    /// All that the array holds.
    pub fn contents(&self, server: &Server) -> Vec<u8> {
        self.other(&format!("nbdcopy {} contents", server.uri())).unwrap().ok();
        self.read("contents")
    }

    pub fn detail(&self) -> Value {
        self.run("detail data --json").json()
    }

    /// Waits until `detail` shows what it must.
    pub fn until(&self, what: &str, mut shown: impl FnMut(&Value) -> bool) -> Value {
        let end = Instant::now() + BOUND;
        loop {
            let detail = self.detail();
            if shown(&detail) {
                return detail;
            }
            assert!(Instant::now() < end, "waited in vain for {what}: {detail:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The state of a member of a `detail`, by its path.
pub fn state(detail: &Value, member: &str) -> String {
    let members = detail["members"].as_array().unwrap();
    let found = members.iter().find(|m| m["path"].as_str().unwrap().ends_with(member));
    found.map_or("absent".into(), |m| m["state"].as_str().unwrap().to_owned())
}
