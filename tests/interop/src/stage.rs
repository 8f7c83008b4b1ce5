//! An array between the kernel and Lapstrake: what either side can do with it, and what has to come
//! of it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use lapstrake_geometry::{FarSets, Layout, Level, Raid10Layout, Sectors};
use lapstrake_kernel_md::release;
use lapstrake_metadata::Version;

use crate::Failure;
use crate::case::Case;
use crate::draw::Draw;
use crate::farm::Depth;
use crate::judge::{Player, Script};
use crate::ours::{self, Ours};
use crate::shape::Shape;

/// Sets of missing members that a case of the sample is read with, of up to 246.
const MISSING_SETS: usize = 6;
/// Writes of either side into an array that is full already.
const SCRIBBLES: usize = 60;
const POKES: usize = 12;

/// An array of a case: its members' files, and what it should hold.
pub struct Stage<'a> {
    pub case: Case,
    pub shape: Shape,
    pub judge: &'a mut Player,
    pub draw: Draw,
    pub depth: Depth,
    pub files: Vec<PathBuf>,
    pub directory: &'a Path,
    /// What the array should hold; the guest sees it as the file [`Stage::image_file`].
    pub image: Vec<u8>,
}

impl<'a> Stage<'a> {
    /// Makes the members' files.
    pub fn set(
        case: Case,
        judge: &'a mut Player,
        depth: Depth,
        directory: &'a Path,
    ) -> Result<Self, Failure> {
        let mut draw = Draw::new(case.seed());
        let shape = Shape::of(&case, &mut draw);
        let mut files = Vec::new();
        for (index, size) in shape.sizes.iter().enumerate() {
            let path = directory.join(format!("member-{index}"));
            let file = File::create(&path)?;
            file.set_len(size.bytes())?;
            if shape.resync {
                file.write_all_at(&draw.bytes(size.bytes()), 0)?;
            }
            files.push(path);
        }
        Ok(Self { case, shape, judge, draw, depth, files, directory, image: Vec::new() })
    }

    pub fn image_file(&self) -> PathBuf {
        self.directory.join("image")
    }

    pub fn script(&self) -> Script {
        Script::new(&self.files, self.directory)
    }

    /// Our array of all members but these.
    pub fn start_without(&self, missing: &[usize], how: ours::How) -> Result<Ours, Failure> {
        let files = self.files.iter().enumerate();
        let present = files.filter(|(index, _)| !missing.contains(index));
        let present: Vec<&Path> = present.map(|(_, file)| file.as_path()).collect();
        Ours::start(&present, how, &self.shape)
    }

    /// Makes the array with mdadm, lets it settle, and fills it with the first of these bytes.
    pub fn create_by_kernel(&mut self, mut bytes: Vec<u8>) -> Result<(), Failure> {
        let image_file = self.image_file();
        fs::write(&image_file, &bytes)?;
        let mut script = self.script().create(&self.case, &self.shape);
        if self.shape.resync {
            script = script.then("settle");
        }
        let script = script.then(&format!("fill '{}'", image_file.display()));
        bytes.truncate(self.judge.play(&script)?.trim().parse()?);
        self.image = bytes;
        Ok(())
    }

    /// Enough for any array of the files.
    pub fn bytes_max(&self) -> u64 {
        let all: u64 = self.shape.sizes.iter().map(|size| size.bytes()).sum();
        let one = self.shape.sizes.iter().map(|size| size.bytes()).max().unwrap_or(0);
        if self.case.level == Level::Raid1 { one } else { all }
    }

    /// We read all, and find no member out of date; then without each set of members that the
    /// array can miss, or a few of them: all the sets are given back.
    pub fn we_read(&mut self, depth: Depth) -> Result<Vec<Vec<usize>>, Failure> {
        let array = self.start_without(&[], ours::READ)?;
        let stale = array.stale()?;
        if !stale.is_empty() {
            return Err(format!("members {stale:?} are called stale").into());
        }
        let sets = array.survivable();
        self.compare(array)?;
        for missing in self.few(&sets, depth) {
            let array = self.start_without(&missing, ours::READ_DEGRADED)?;
            self.compare(array).map_err(without(&missing))?;
        }
        Ok(sets)
    }

    fn few(&mut self, sets: &[Vec<usize>], depth: Depth) -> Vec<Vec<usize>> {
        let mut sets = sets.to_vec();
        if depth == Depth::Sample {
            self.draw.shuffle(&mut sets);
            sets.truncate(MISSING_SETS);
        }
        sets
    }

    pub fn compare(&mut self, array: Ours) -> Result<(), Failure> {
        let read = array.read_all(&mut self.draw);
        array.stop()?;
        ours::same(&read?, &self.image)
    }

    /// We write over NBD to the array without these members, and read back.
    pub fn we_scribble(&mut self, missing: &[usize]) -> Result<(), Failure> {
        let how = if missing.is_empty() { ours::WRITE } else { ours::WRITE_DEGRADED };
        let array = self.start_without(missing, how)?;
        let (image, draw) = (&mut self.image, &mut self.draw);
        array.serve(&self.directory.join("nbd"), |client| {
            ours::scribble(client, image, SCRIBBLES, draw)?;
            ours::verify(client, image, draw)
        })
    }

    /// The kernel finds every superblock in order, the same bytes as we, and every copy right.
    pub fn agrees(&self, script: Script) -> Script {
        let script = script.healthy().assemble().equals(&self.image);
        if self.case.level.has_redundancy() { script.then("matches") } else { script }
    }

    /// The kernel writes.
    pub fn pokes(&mut self, mut script: Script) -> Result<Script, Failure> {
        for _ in 0..POKES {
            script = script.poke(&self.image_file(), &mut self.image, &mut self.draw);
        }
        fs::write(self.image_file(), &self.image)?;
        Ok(script)
    }

    /// One of the sets, if there is any, that md agrees the array can miss.
    pub fn left_out(&mut self, sets: &[Vec<usize>]) -> Option<Vec<usize>> {
        let mut sets = sets.to_vec();
        if let Layout::Raid10(layout) = self.case.layout {
            if layout.far_sets != FarSets::Whole {
                // With far sets md's own test of what is enough looks at other members than hold
                // the copies; of a single one it is sure.
                sets.retain(|set| set.len() == 1);
            }
            if self.recovers_short(layout) {
                return None;
            }
        }
        (!sets.is_empty()).then(|| self.draw.one(&sets).clone())
    }

    /// Whether the kernel ends a recovery too early. After `members` windows of 64 KiB in a row in
    /// which a member has no chunk it takes the rest for recovered: so it goes in the last row of
    /// near copies, if that is not full, and the far copies of all rows come after it.
    fn recovers_short(&self, layout: Raid10Layout) -> bool {
        let chunks = self.image.len() as u64 / self.case.chunk.bytes();
        let members = u64::from(self.case.members);
        let last_row = chunks * u64::from(layout.near) % members;
        layout.far > 1 && last_row > 0 && self.case.chunk >= Sectors::from_kib(64 * members)
    }

    /// Whether the kernel's recovery of a RAID10 skips chunks that the bitmap names. Linux 7.2 goes on by the rest of a
    /// bitmap's chunk, up to 64 KiB, where that has no bit, also over the ends of the array's chunks, which lie elsewhere
    /// in the array. 6.12 does not.
    fn skips_what_is_named(&self) -> bool {
        let named = u64::from(self.shape.bitmap.unwrap_or(0)).min(64 << 10);
        self.case.level == Level::Raid10
            && self.case.chunk.bytes() < named
            && release(self.judge.judge) > Some((6, 12))
    }

    /// We make the array and fill it over NBD in random pieces, some of them more than once.
    pub fn create_by_us(&mut self) -> Result<(), Failure> {
        ours::create(&self.case, &self.shape, &self.files)?;
        let array = self.start_without(&[], ours::WRITE)?;
        self.image = self.draw.bytes(array.bytes());
        let (image, draw) = (&mut self.image, &mut self.draw);
        array.serve(&self.directory.join("nbd"), |client| {
            ours::fill(client, image, draw)?;
            ours::scribble(client, image, SCRIBBLES, draw)?;
            ours::verify(client, image, draw)
        })
    }

    /// A script whose array has had the resync or recovery that it may need.
    pub fn settled(&self) -> Script {
        let script = self.script();
        if self.shape.resync { script.assemble().then("settle").stop() } else { script }
    }

    /// We see that these are stale, and read what was written without them.
    pub fn we_know_stale(&mut self, missing: &[usize]) -> Result<(), Failure> {
        let array = self.start_without(&[], ours::READ)?;
        let stale = array.stale()?;
        if stale != missing {
            return Err(format!("{missing:?} missed writes, but we call {stale:?} stale").into());
        }
        self.compare(array)
    }

    /// The kernel gets blank members for these, full of junk, and recovers a part of them; we read and
    /// write in this state.
    pub fn half_recovered(&mut self, script: Script, missing: &[usize]) -> Result<(), Failure> {
        for index in missing {
            let size = self.shape.sizes[*index].bytes();
            fs::write(&self.files[*index], self.draw.bytes(size))?;
        }
        let numbers: Vec<String> = missing.iter().map(usize::to_string).collect();
        let script =
            script.assemble_without(missing).then(&format!("recover_part {}", numbers.join(" ")));
        self.judge.play(&script)?;
        let array = self.start_without(&[], ours::READ)?;
        let recovering = array.recovering();
        // 0.90 has no place for how far a recovery got: there they are spares.
        if recovering != missing && self.case.version != Version::V090 {
            return Err(format!("we take {recovering:?} for half recovered").into());
        }
        self.compare(array)?;
        self.we_scribble(&[])?;
        let array = self.start_without(&[], ours::READ)?;
        self.compare(array)
    }

    /// The kernel goes on with the recovery, and finds every copy right.
    pub fn recovers(&self, script: Script) -> Script {
        script.assemble().then("settle").equals(&self.image).then("matches").stop().healthy()
    }

    /// The kernel sees that these are stale, reads the same, takes them back and finds every copy
    /// right.
    pub fn takes_back(&self, script: Script, missing: &[usize]) -> Script {
        let numbers: Vec<String> = missing.iter().map(usize::to_string).collect();
        // With a bitmap only what it names is copied: the check below sees if it named enough.
        let by_bitmap = self.shape.bitmap.is_some() && !self.skips_what_is_named();
        let add = if by_bitmap { "--re-add" } else { "--add" };
        let mut script =
            script.assemble().then(&format!("lacks {}", numbers.join(" "))).equals(&self.image);
        for number in numbers {
            if self.shape.bitmap.is_some() && !by_bitmap {
                // Else it is re-added all the same.
                let zero = format!("quietly mdadm --zero-superblock ${{devices[{number}]}}");
                script = script.then(&zero);
            }
            script = script.then(&format!("quietly mdadm /dev/md0 {add} ${{devices[{number}]}}"));
        }
        script.then("settle").equals(&self.image).then("matches").stop().healthy()
    }
}

pub fn without(missing: &[usize]) -> impl Fn(Failure) -> Failure {
    move |error| format!("without members {missing:?}: {error}").into()
}
