//! A filesystem that one side made is whole on the other.
//!
//! Our side has no block device here: it moves whole contents, by reading the array out and by
//! writing an image of a filesystem into it over NBD, and e2fsck looks at files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::draw::Draw;
use crate::ours;
use crate::stage::Stage;

const PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";
/// All of the package e2fsprogs.
const PROGRAMS: [&str; 3] = ["mke2fs", "e2fsck", "debugfs"];

/// The first program that is not installed.
pub fn lacking() -> Option<&'static str> {
    let found =
        |name: &&str| PATH.split(':').any(|directory| Path::new(directory).join(name).is_file());
    PROGRAMS.into_iter().find(|name| !found(name))
}

/// Files for a filesystem: from nothing to several chunks, some in directories.
fn tree(root: &Path, draw: &mut Draw) -> Result<(), Failure> {
    for directory in ["", "a", "a/b", "c"] {
        fs::create_dir(root.join(directory))?;
        for file in 0..4 {
            let len = draw.length(128) * 512 - draw.within(0..512);
            fs::write(root.join(directory).join(format!("file-{file}")), draw.bytes(len))?;
        }
    }
    fs::write(root.join("empty"), [])?;
    Ok(())
}

fn run(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let output = Command::new(program)
        .env("PATH", PATH)
        .args(arguments)
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} {}: {}\n{text}{errors}", arguments.join(" "), output.status).into())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

impl Stage<'_> {
    fn tree(&mut self) -> Result<PathBuf, Failure> {
        let root = self.directory.join("tree");
        tree(&root, &mut self.draw)?;
        Ok(root)
    }

    /// We read the array out, whole and with members missing; the filesystem in it is whole and
    /// has these files.
    fn we_check(&mut self, root: &Path) -> Result<(), Failure> {
        let array = self.start_without(&[], ours::READ)?;
        let mut sets = array.survivable();
        self.draw.shuffle(&mut sets);
        self.image = array.read_all(&mut self.draw)?;
        array.stop()?;
        fs::write(self.image_file(), &self.image)?;
        self.e2fsck()?;
        if let Some(missing) = sets.first() {
            let array = self.start_without(missing, ours::READ_DEGRADED)?;
            self.compare(array).map_err(|error| format!("without {missing:?}: {error}"))?;
        }
        let copy = self.directory.join("copy");
        fs::create_dir(&copy)?;
        let dump = format!("rdump / {}", text(&copy));
        run("debugfs", &["-R", &dump, &text(&self.image_file())])?;
        fs::remove_dir(copy.join("lost+found"))?;
        run("diff", &["-r", &text(root), &text(&copy)])?;
        fs::remove_dir_all(copy)?;
        Ok(())
    }

    fn e2fsck(&self) -> Result<String, Failure> {
        run("e2fsck", &["-fn", &text(&self.image_file())])
    }
}

/// The kernel makes the array and the filesystem; we read it out.
pub fn made_by_kernel(stage: &mut Stage<'_>) -> Result<(), Failure> {
    stage.create_by_kernel(vec![0; stage.bytes_max() as usize])?;
    let root = stage.tree()?;
    let script = stage
        .script()
        .assemble()
        .then("mke2fs -q -t ext4 /dev/md0; mkdir -p /tmp/fs; mount -t ext4 /dev/md0 /tmp/fs")
        .then(&format!("cp -r /host{}/. /tmp/fs", text(&root)))
        .then("umount /tmp/fs");
    stage.judge.play(&script)?;
    stage.we_check(&root)
}

/// We make the array and write a filesystem into it; the kernel checks it, uses it, and we read it
/// out again.
pub fn made_by_us(stage: &mut Stage<'_>) -> Result<(), Failure> {
    ours::create(&stage.case, &stage.shape, &stage.files)?;
    let root = stage.tree()?;
    let array = stage.start_without(&[], ours::WRITE)?;
    let image_file = stage.image_file();
    fs::File::create(&image_file)?.set_len(array.bytes())?;
    run("mke2fs", &["-q", "-t", "ext4", "-d", &text(&root), &text(&image_file)])?;
    stage.image = fs::read(&image_file)?;
    let (image, draw) = (&stage.image, &mut stage.draw);
    array.serve(&stage.directory.join("nbd"), |client| ours::fill(client, image, draw))?;
    let more = text(&root.join("a"));
    let script = stage
        .agrees(stage.settled())
        .then("e2fsck -fn /dev/md0 2>&1; mkdir -p /tmp/fs; mount -t ext4 /dev/md0 /tmp/fs")
        .then("rm -r /tmp/fs/lost+found")
        .then(&format!("diff -r /tmp/fs /host{}", text(&root)))
        .then(&format!("mkdir /tmp/fs/lost+found; rm -r /tmp/fs/c; cp -r /host{more} /tmp/fs/c"))
        .then("umount /tmp/fs");
    stage.judge.play(&script)?;
    fs::remove_dir_all(root.join("c"))?;
    run("cp", &["-r", &more, &text(&root.join("c"))])?;
    stage.we_check(&root)
}
