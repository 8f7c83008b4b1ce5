//! Real file systems, made without root: each once in a run.

use crate::members::{BLOCK, Sparse};
use lapstrake_not_run::not_run;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use tempfile::TempDir;

/// A file system's bytes.
pub struct Image {
    pub name: &'static str,
    pub contents: Sparse,
}

const MIB: u64 = 1 << 20;

/// Name, size in MiB, command; `IMAGE` and `FILES` stand for paths.
const RECIPES: [(&str, u64, &str); 10] = [
    ("ext4", 160, "mkfs.ext4 -q -F -d FILES IMAGE"),
    ("ext4, 4 KiB blocks", 400, "mkfs.ext4 -q -F -b 4096 -d FILES IMAGE"),
    ("ext4, 1 KiB blocks", 96, "mkfs.ext4 -q -F -b 1024 -d FILES IMAGE"),
    (
        "ext4 of a NAS in 2012",
        200,
        "mkfs.ext4 -q -F -b 4096 -O ^metadata_csum,^64bit -d FILES IMAGE",
    ),
    ("ext3", 128, "mkfs.ext3 -q -F -b 4096 -O ^metadata_csum,^64bit -d FILES IMAGE"),
    ("xfs", 320, "mkfs.xfs -q -f -p PROTO IMAGE"),
    ("btrfs", 200, "mkfs.btrfs -q -f --rootdir FILES IMAGE"),
    ("ntfs", 96, "mkfs.ntfs -q -F -f IMAGE"),
    ("gpt and ext4", 160, "GPT"),
    ("vfat", 64, "mkfs.vfat -F 32 IMAGE"),
];

static FILES: LazyLock<TempDir> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    dir
});

/// Made when it is first asked for.
type Late = LazyLock<Option<Image>, Box<dyn FnOnce() -> Option<Image> + Send>>;

static IMAGES: LazyLock<Vec<Late>> = LazyLock::new(|| {
    let image = |kind| LazyLock::new(Box::new(move || of_recipe(kind)) as _);
    (0..KINDS).map(image).collect()
});

fn of_recipe(kind: usize) -> Option<Image> {
    let (name, mib, recipe) = RECIPES[kind];
    let dir = tempfile::tempdir().unwrap();
    make(&dir, FILES.path(), name, mib, recipe)
}

/// How many kinds there are.
pub const KINDS: usize = RECIPES.len();

/// One of them, if this machine can make it.
pub fn image(kind: usize) -> Option<&'static Image> {
    IMAGES[kind].as_ref()
}

/// Directories with texts and with bytes that look like photographs.
fn fill(files: &Path) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(40);
    for directory in 0..40 {
        let path = files.join(format!("directory-{directory}"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..30 {
            let name = path.join(format!("file-{file}"));
            let length = 200 + (random.next_u64() % 24_000) as usize;
            let mut bytes = vec![0; length];
            if file % 2 == 0 {
                random.fill_bytes(&mut bytes);
            } else {
                let text = format!("Line of file {file} in directory {directory}.\n");
                bytes = text.bytes().cycle().take(length).collect();
            }
            fs::write(name, bytes).unwrap();
        }
    }
}

fn make(dir: &TempDir, files: &Path, name: &'static str, mib: u64, recipe: &str) -> Option<Image> {
    let path = dir.path().join("image");
    let _ = fs::remove_file(&path);
    File::create(&path).unwrap().set_len(mib * MIB).unwrap();
    let made = match recipe {
        "GPT" => gpt(dir, &path, files),
        recipe => {
            let proto = proto(dir, files);
            let words = recipe.split(' ').map(|word| match word {
                "FILES" => files.to_owned(),
                "IMAGE" => path.clone(),
                "PROTO" => proto.clone(),
                word => PathBuf::from(word),
            });
            run(&words.collect::<Vec<_>>())
        }
    };
    if let Err(why) = made {
        not_run(format_args!("arrays with {name}: {why}"));
        return None;
    }
    match name {
        "ntfs" => copy_to_ntfs(&path, files),
        "vfat" => copy_to_fat(&path, files),
        _ => {}
    }
    Some(Image { name, contents: read(&path, mib * MIB) })
}

fn run(words: &[PathBuf]) -> Result<(), String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(&words[0]);
    let output = command.args(&words[1..]).env("PATH", path).output();
    let output = output.map_err(|error| format!("{}: {error}", words[0].display()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// What mkfs.xfs reads to make files.
fn proto(dir: &TempDir, files: &Path) -> PathBuf {
    let mut text = String::from("/dummy\n0 0\nd--755 0 0\n");
    for directory in fs::read_dir(files).unwrap().flatten() {
        text += &format!("{} d--755 0 0\n", directory.file_name().display());
        for file in fs::read_dir(directory.path()).unwrap().flatten() {
            let (name, path) = (file.file_name(), file.path());
            text += &format!("{} ---644 0 0 {}\n", name.display(), path.display());
        }
        text += "$\n";
    }
    text += "$\n";
    let path = dir.path().join("proto");
    fs::write(&path, text).unwrap();
    path
}

fn copy_to_ntfs(image: &Path, files: &Path) {
    for directory in fs::read_dir(files).unwrap().flatten().take(3) {
        for file in fs::read_dir(directory.path()).unwrap().flatten() {
            let name =
                format!("{}-{}", directory.file_name().display(), file.file_name().display());
            let words = ["ntfscp".into(), "-q".into(), image.to_owned(), file.path(), name.into()];
            let _ = run(&words);
        }
    }
}

fn copy_to_fat(image: &Path, files: &Path) {
    let mut words: Vec<PathBuf> = ["mcopy", "-s", "-i"].map(PathBuf::from).to_vec();
    words.push(image.to_owned());
    words.extend(fs::read_dir(files).unwrap().flatten().map(|entry| entry.path()));
    words.push("::/".into());
    if let Err(why) = run(&words) {
        not_run(format_args!("files in a FAT: {why}"));
    }
}

/// A partition table with an ext4 at 1 MiB.
fn gpt(dir: &TempDir, image: &Path, files: &Path) -> Result<(), String> {
    let inner = dir.path().join("inner");
    File::create(&inner).unwrap().set_len(150 * MIB).unwrap();
    let words = ["mkfs.ext4", "-q", "-F", "-d"].map(PathBuf::from);
    run(&[&words[..], &[files.to_owned(), inner.clone()]].concat())?;
    let script =
        format!("echo 'label: gpt\nstart=1MiB, size=150MiB' | sfdisk -q {}", image.display());
    run(&["sh".into(), "-c".into(), script.into()])?;
    let words = ["dd", "bs=1M", "seek=1", "conv=notrunc,sparse", "status=none"].map(PathBuf::from);
    let files = [format!("if={}", inner.display()), format!("of={}", image.display())];
    run(&[&words[..], &files.map(PathBuf::from)].concat())
}

fn read(path: &Path, size: u64) -> Sparse {
    let mut contents = Sparse::new(size);
    let mut file = File::open(path).unwrap();
    let mut block = [0; BLOCK as usize];
    for index in 0..size / BLOCK {
        file.read_exact(&mut block).unwrap();
        if block.iter().any(|byte| *byte != 0) {
            contents.write(index * BLOCK, &block);
        }
    }
    contents
}
