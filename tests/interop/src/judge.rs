//! The kernel's side: a guest, and the words in which the stories speak to it.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use lapstrake_kernel_md::{Guest, Judge, Kernel, WORDS};

use crate::Failure;
use crate::case::Case;
use crate::draw::Draw;
use crate::shape::Shape;
use crate::{ext4, ours};

const POKE_SECTORS_MAX: u64 = 512;

/// A judge's guest that plays one script after the other.
pub struct Player {
    pub judge: Judge,
    guest: Guest,
}

impl Player {
    pub fn boot(judge: Judge) -> Result<Self, Failure> {
        let mut kernel = Kernel::of(judge).memory_mib(320);
        if ext4::lacking().is_none() {
            kernel = kernel.program("mke2fs").program("e2fsck");
        }
        Ok(Self { judge, guest: kernel.boot()? })
    }

    /// Runs a script; an error unless it succeeds and reads what is expected. Gives what it
    /// printed. Afterwards everything is stopped, and on the host.
    pub fn play(&mut self, script: &Script) -> Result<String, Failure> {
        let output = self.guest.run(&script.text)?;
        let shown = output.text();
        let checked = if output.success() {
            script.check()
        } else {
            Err(format!("the kernel's side: {output}").into())
        };
        checked.map_err(|error| {
            let lines: Vec<&str> = script.text[WORDS.len()..].lines().collect();
            format!("{error}\nin {}", lines.join("; "))
        })?;
        Ok(shown)
    }
}

/// A shell script in the making, and what should come of it.
pub struct Script {
    text: String,
    directory: PathBuf,
    /// What is to be in the files that the script dumps the array to.
    dumps: Vec<(PathBuf, Vec<u8>)>,
    members: usize,
}

impl Script {
    /// Begins with these files as the script's devices; dumps go to the directory.
    pub fn new(files: &[PathBuf], directory: &Path) -> Self {
        let list: Vec<String> = files.iter().map(|file| quoted(file)).collect();
        let script = Self {
            text: WORDS.to_owned(),
            directory: directory.to_owned(),
            dumps: Vec::new(),
            members: files.len(),
        };
        script.then(&format!("show {}", list.join(" ")))
    }

    /// Adds a line.
    pub fn then(mut self, line: &str) -> Self {
        self.text.push_str(line);
        self.text.push('\n');
        self
    }

    /// Makes the array.
    pub fn create(self, case: &Case, shape: &Shape) -> Self {
        let Case { level, layout, chunk, version, members, .. } = case;
        let mut line = format!("quietly mdadm -CR /dev/md0 -l{level} -n{members} -e{version}");
        if !chunk.is_zero() {
            let _ = write!(line, " -c{}", chunk.0 / 2);
        }
        if layout.name() != "none" {
            let _ = write!(line, " --layout={layout}");
        }
        match shape.bitmap {
            Some(bytes) => {
                let _ = write!(line, " --bitmap=internal --bitmap-chunk={}K", bytes / 1024);
            }
            None if level.has_redundancy() => line.push_str(" --bitmap=none"),
            None => {}
        }
        if !shape.resync {
            line.push_str(" --assume-clean");
        }
        self.then(&format!("{line} ${{devices[@]}}"))
    }

    /// Assembles the array of all devices.
    pub fn assemble(self) -> Self {
        self.then("quietly mdadm -A /dev/md0 ${devices[@]}")
    }

    /// Assembles the array of all devices but these, and insists.
    pub fn assemble_without(self, missing: &[usize]) -> Self {
        let mut line = String::from("quietly mdadm -A --run /dev/md0");
        for member in (0..self.members).filter(|member| !missing.contains(member)) {
            let _ = write!(line, " ${{devices[{member}]}}");
        }
        self.then(&line)
    }

    pub fn stop(self) -> Self {
        self.then("quietly mdadm --stop /dev/md0")
    }

    /// All superblocks have right checksums, say clean and call every member active.
    pub fn healthy(self) -> Self {
        self.then("healthy")
    }

    /// Every superblock says active.
    pub fn active(self) -> Self {
        self.then(
            "for one in ${devices[@]}; do
                mdadm --examine $one >/tmp/examine.log
                grep -q 'State : active' /tmp/examine.log || { cat /tmp/examine.log; exit 1; }
            done",
        )
    }

    /// Reads the array, which has to hold these bytes.
    pub fn equals(mut self, bytes: &[u8]) -> Self {
        let path = self.directory.join(format!("dump-{}", self.dumps.len()));
        let line = format!("dump {}", quoted(&path));
        self.dumps.push((path, bytes.to_vec()));
        self.then(&line)
    }

    /// Writes once at random. `bytes` get the new contents now; the file `image` has to hold
    /// all of them when the script runs.
    pub fn poke(self, image: &Path, bytes: &mut [u8], draw: &mut Draw) -> Self {
        let sectors = bytes.len() as u64 / 512;
        let start = draw.within(0..sectors);
        let len = draw.length((sectors - start).min(POKE_SECTORS_MAX));
        draw.fill(&mut bytes[start as usize * 512..][..len as usize * 512]);
        let how = if draw.once_in(2) { "direct" } else { "" };
        self.then(&format!("poke {} {start} {len} {how}", quoted(image)))
    }

    fn check(&self) -> Result<(), Failure> {
        for (path, expected) in &self.dumps {
            ours::same(&fs::read(path)?, expected)
                .map_err(|error| format!("the kernel reads otherwise: {error}"))?;
        }
        Ok(())
    }
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display())
}
