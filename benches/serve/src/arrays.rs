//! Arrays in files made for the purpose, touched beforehand: the first touch of a page costs
//! more than writing it.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};
use tempfile::TempDir;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Raid0Of4,
    Raid1Of2,
    Raid5Of4,
    Raid6Of6,
    Raid10Of4,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Raid0Of4 => "raid0 of 4",
            Self::Raid1Of2 => "raid1 of 2",
            Self::Raid5Of4 => "raid5 of 4",
            Self::Raid6Of6 => "raid6 of 6",
            Self::Raid10Of4 => "raid10 of 4",
        }
    }

    fn level(self) -> &'static str {
        match self {
            Self::Raid0Of4 => "0",
            Self::Raid1Of2 => "1",
            Self::Raid5Of4 => "5",
            Self::Raid6Of6 => "6",
            Self::Raid10Of4 => "10",
        }
    }

    fn members(self) -> usize {
        match self {
            Self::Raid1Of2 => 2,
            Self::Raid6Of6 => 6,
            _ => 4,
        }
    }

    /// Bytes that members get for each byte of data written in whole stripes.
    pub(crate) fn written_per_byte(self) -> f64 {
        match self {
            Self::Raid0Of4 => 1.0,
            Self::Raid5Of4 => 4.0 / 3.0,
            Self::Raid6Of6 => 6.0 / 4.0,
            Self::Raid1Of2 | Self::Raid10Of4 => 2.0,
        }
    }
}

/// Where member files lie.
pub(crate) struct Place {
    pub name: &'static str,
    dir: PathBuf,
}

impl Place {
    pub(crate) fn tmpfs() -> Self {
        Self { name: "tmpfs", dir: "/dev/shm".into() }
    }

    pub(crate) fn root_disk() -> Self {
        Self { name: "root disk", dir: "/var/tmp".into() }
    }
}

/// Members on disk; removed when dropped.
pub(crate) struct Files {
    pub dir: TempDir,
    pub members: Vec<PathBuf>,
}

/// The command beside this program: built here the first time that it is asked for, or with the tests before.
pub(crate) fn lapstrake() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let own = std::env::current_exe().expect("this program has a path");
        let path = own.with_file_name("lapstrake");
        if !cfg!(debug_assertions) {
            let status = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
                .args(["build", "--quiet", "--package", "lapstrake-cli", "--profile"])
                .arg(
                    own.parent()
                        .and_then(Path::file_name)
                        .expect("it lies in its profile's directory"),
                )
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status()
                .expect("cargo runs");
            assert!(status.success(), "lapstrake was not built");
        }
        assert!(path.exists(), "lapstrake is not beside this program, at {}", path.display());
        path
    })
}

/// A file of `mib` MiB of zeros, every page there.
pub(crate) fn filled(path: &Path, mib: u64) {
    let mut file = File::create(path).expect("a file can be made");
    let block = vec![0u8; 1 << 20];
    for _ in 0..mib {
        file.write_all(&block).expect("there is room");
    }
    file.sync_all().expect("it can be flushed");
}

/// Makes members and an array of them whose redundancy is right: zeros agree with zeros.
pub(crate) fn make(place: &Place, kind: Kind, mib: u64) -> Files {
    let dir = TempDir::with_prefix_in("lapstrake-bench-", &place.dir).expect("a directory");
    let member = |i| dir.path().join(format!("member{i}"));
    let members: Vec<PathBuf> = (0..kind.members()).map(member).collect();
    members.iter().for_each(|path| filled(path, mib));
    let count = kind.members().to_string();
    let status = Command::new(lapstrake())
        .args(["create", "bench", "--level", kind.level(), "--raid-devices", &count])
        .arg("--assume-clean")
        .args(&members)
        .stdout(std::process::Stdio::null())
        .status()
        .expect("lapstrake runs");
    assert!(status.success(), "the array was not made");
    Files { dir, members }
}
