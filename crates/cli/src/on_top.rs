//! The kernel's loop devices on an array's FUSE file. The read-ahead of a served array is theirs: neither NBD nor the
//! file, which is read past the page cache, has one.

use crate::status::view::View;
use std::fs;
use std::path::{Path, PathBuf};

/// A loop device.
pub struct OnTop {
    /// Its directory in sysfs.
    sys: PathBuf,
}

impl OnTop {
    /// As in /dev.
    pub fn name(&self) -> String {
        format!("/dev/{}", self.sys.file_name().unwrap_or_default().display())
    }

    fn file(&self) -> PathBuf {
        self.sys.join("queue/read_ahead_kb")
    }

    /// What it reads ahead, or why that is not known.
    pub fn read_ahead_kib(&self) -> Result<u64, String> {
        let path = self.file();
        let text =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        text.trim().parse().map_err(|_| format!("{}: {text:?}", path.display()))
    }

    /// Changes that.
    pub fn set_read_ahead_kib(&self, kib: u64) -> Result<(), String> {
        let (path, name) = (self.file(), self.name());
        fs::write(&path, kib.to_string()).map_err(|error| {
            let sectors = kib * 2;
            format!("{}: {error}; as root: blockdev --setra {sectors} {name}", path.display())
        })
    }
}

/// Those that lie on an array's file.
pub fn on_top(view: &View) -> Vec<OnTop> {
    let Some(file) = view.file() else { return Vec::new() };
    let mut names: Vec<PathBuf> = fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|sys| backing_file(sys).as_deref() == Some(&*file))
        .collect();
    names.sort();
    names.into_iter().map(|sys| OnTop { sys }).collect()
}

/// What a loop device lies on.
pub fn backing_file(sys: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(sys.join("loop/backing_file")).ok()?;
    Some(text.trim_end_matches('\n').into())
}
