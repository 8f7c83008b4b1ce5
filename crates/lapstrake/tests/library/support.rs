//! Arrays of files in a directory that goes with the test.

use lapstrake::geometry::{Layout, ParityLayout, Raid10Layout};
use lapstrake::{Array, CreateOptions, Level};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a member: room for what belongs to the superblock, and a few stripes.
const MEMBER: u64 = 4 << 20;
pub const CHUNK: u64 = 64 << 10;

/// A level with a layout, how many members it has, and how many it can do without.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub level: Level,
    pub layout: Option<Layout>,
    pub members: usize,
    pub spared: usize,
}

/// Every level, and layouts of those that read in ways of their own.
pub fn kinds() -> Vec<Kind> {
    let kind = |level, layout, members, spared| Kind { level, layout, members, spared };
    let raid10 = |layout| Some(Layout::Raid10(layout));
    let parity = |layout| Some(Layout::Parity(layout));
    vec![
        kind(Level::Linear, None, 3, 0),
        kind(Level::Raid0, None, 3, 0),
        kind(Level::Raid1, None, 3, 2),
        kind(Level::Raid4, None, 3, 1),
        kind(Level::Raid5, None, 3, 1),
        kind(Level::Raid5, parity(ParityLayout::RightAsymmetric), 4, 1),
        kind(Level::Raid6, None, 5, 2),
        kind(Level::Raid10, None, 4, 1),
        kind(Level::Raid10, raid10(Raid10Layout::far(2)), 3, 1),
        kind(Level::Raid10, raid10(Raid10Layout::offset(2)), 3, 1),
    ]
}

pub struct Rig {
    dir: tempfile::TempDir,
    pub members: Vec<PathBuf>,
    /// What was written.
    pub contents: Vec<u8>,
}

impl Rig {
    pub fn directory(&self) -> &Path {
        self.dir.path()
    }

    /// A new array, in sync, with nothing written.
    pub fn empty(kind: Kind) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |index: usize| dir.path().join(format!("m{index}"));
        let members: Vec<PathBuf> = (0..kind.members).map(path).collect();
        for member in &members {
            File::create(member).unwrap().set_len(MEMBER).unwrap();
        }
        let mut wanted = CreateOptions::new("data", kind.level);
        wanted.assume_clean(true);
        if kind.level != Level::Raid1 && kind.level != Level::Linear {
            wanted.chunk(CHUNK);
        }
        if let Some(layout) = kind.layout {
            wanted.layout(layout);
        }
        wanted.create(&members).unwrap();
        Self { dir, members, contents: Vec::new() }
    }

    /// A new array, written full of what no two places have alike, and closed.
    pub fn full(kind: Kind) -> Self {
        let mut rig = Self::empty(kind);
        let array = Array::open(&rig.members).unwrap();
        rig.contents = contents(array.len());
        array.write_at(0, &rig.contents).unwrap();
        array.close().unwrap();
        rig
    }

    /// Names and images of members, in memory.
    pub fn images(&self, members: &[PathBuf]) -> Vec<(String, Vec<u8>)> {
        let image = |path: &PathBuf| (path.display().to_string(), fs::read(path).unwrap());
        members.iter().map(image).collect()
    }
}

/// Bytes that tell their place.
pub fn contents(len: u64) -> Vec<u8> {
    let word = |at: u64| (at / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..len).step_by(8).flat_map(word).take(len as usize).collect()
}

/// Three members of a RAID5.
pub fn raid5() -> Kind {
    Kind { level: Level::Raid5, layout: None, members: 3, spared: 1 }
}

/// All ways to leave out as many of the members as can be done without, or fewer.
pub fn without(members: &[PathBuf], spared: usize) -> Vec<Vec<PathBuf>> {
    let all = 0..1_u32 << members.len();
    let left = |lost: u32| (0..members.len()).filter(move |index| lost >> index & 1 == 0);
    all.filter(|lost| lost.count_ones() as usize <= spared)
        .map(|lost| left(lost).map(|index| members[index].clone()).collect())
        .collect()
}

/// With this some tests panic on purpose.
pub const WORN_OUT: &str = "worn out";

/// How many panics there were, in any thread, other than on purpose. From the first call on they are counted.
pub fn panics() -> usize {
    static COUNTED: Once = Once::new();
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    COUNTED.call_once(|| {
        let say = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload().downcast_ref() != Some(&WORN_OUT) {
                PANICS.fetch_add(1, Ordering::SeqCst);
                say(panic);
            }
        }));
    });
    PANICS.load(Ordering::SeqCst)
}
