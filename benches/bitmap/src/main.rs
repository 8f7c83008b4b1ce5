//! What a write-intent bitmap costs, by its place and chunk: a table in Markdown, for `docs/bitmap.md`.
//!
//! An array in process, one client; every run begins with a clean array and no bit set, as after a
//! start, and takes the same time. Rounds go over all bitmaps in turn, and medians are shown, with the
//! bitmap's page writes (one on each member counted as one) in a thousand requests. It gates nothing.
//!
//! `--cold`: instead what a write waits for that comes to an array at rest.

mod cold;
mod drive;

use drive::{Load, Rate, drive};
use lapstrake_geometry::Level;
use lapstrake_host::{
    Array, BitmapPlace, BitmapWish, OpenRequest, Options,
    create::{NewArray, NewBitmap, prepare},
    grow_bitmap, open,
};
use std::{fs::File, io::Write, path::Path, path::PathBuf, time::Duration};
use tempfile::TempDir;

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;
/// Small enough for an internal bitmap of 4 KiB chunks.
const MEMBER_MIB: u64 = 112;

struct Plan {
    rounds: usize,
    time: Duration,
    places: &'static [(&'static str, &'static str)],
    levels: &'static [(&'static str, Level, usize)],
    bitmaps: &'static [(Place, u32)],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    None,
    Internal,
    External,
}

const FULL: Plan = Plan {
    rounds: 3,
    time: Duration::from_millis(1500),
    places: &[("tmpfs", "/dev/shm"), ("root disk", "/var/tmp")],
    levels: &[("RAID1 of 2", Level::Raid1, 2), ("RAID5 of 4", Level::Raid5, 4)],
    bitmaps: &[
        (Place::None, 0),
        (Place::Internal, 4 * KIB),
        (Place::Internal, 64 * KIB),
        (Place::Internal, MIB),
        (Place::Internal, 16 * MIB),
        (Place::Internal, 64 * MIB),
        (Place::Internal, 128 * MIB),
        (Place::External, 4 * KIB),
        (Place::External, MIB),
        (Place::External, 64 * MIB),
    ],
};

const QUICK: Plan = Plan {
    rounds: 1,
    time: Duration::from_millis(100),
    places: &[("tmpfs", "/dev/shm")],
    levels: &[("RAID1 of 2", Level::Raid1, 2)],
    bitmaps: &[(Place::None, 0), (Place::Internal, 4 * KIB), (Place::External, 64 * MIB)],
};

/// An array's members, and a place for a bitmap's file.
struct Files {
    dir: TempDir,
    members: Vec<PathBuf>,
}

impl Files {
    /// Every page of them touched: the first touch costs more than a write.
    fn new(place: &str, level: Level, count: usize) -> Self {
        let dir = TempDir::with_prefix_in("lapstrake-bench-", place).expect("a directory");
        let members: Vec<PathBuf> = (0..count).map(|i| dir.path().join(format!("m{i}"))).collect();
        for path in &members {
            let mut file = File::create(path).expect("a file can be made");
            let block = vec![0u8; MIB as usize];
            (0..MEMBER_MIB).for_each(|_| file.write_all(&block).expect("there is room"));
            file.sync_all().expect("it can be flushed");
        }
        let this = Self { dir, members };
        this.create(level);
        this
    }

    fn create(&self, level: Level) {
        let spec = |path: &PathBuf| Some(path.display().to_string().parse().expect("a member"));
        let wanted = NewArray {
            bitmap: NewBitmap::None,
            assume_clean: true,
            force: true,
            overwrite: true,
            ..NewArray::new("bench", level, self.members.iter().map(spec).collect())
        };
        let prepared = prepare(&wanted, |bytes| bytes.fill(7)).expect("an array");
        prepared.write().expect("members can be written");
    }

    fn bitmap_file(&self) -> PathBuf {
        self.dir.path().join("bitmap")
    }

    fn start(&self, bitmap: Place) -> Array {
        let spec = |path: &PathBuf| path.display().to_string().parse().expect("a member");
        let request = OpenRequest {
            members: self.members.iter().map(spec).collect(),
            bitmap_file: (bitmap == Place::External).then(|| self.bitmap_file()),
            ..OpenRequest::default()
        };
        let opened = open(&request).expect("the array opens");
        Array::start(opened.parts, &Options::default()).expect("it starts")
    }

    /// A clean array with this bitmap, no bit of it set.
    fn with(&self, was: Place, (place, chunk): (Place, u32)) -> Array {
        let array = self.start(was);
        let change = |place, chunk| {
            let wish = BitmapWish { place, chunk, write_behind: None };
            grow_bitmap(&array.handle(), wish, true).expect("the bitmap is changed");
        };
        change(BitmapPlace::None, None);
        match place {
            Place::None => {}
            Place::Internal => change(BitmapPlace::Internal, Some(chunk)),
            Place::External => change(BitmapPlace::File(self.bitmap_file()), Some(chunk)),
        }
        assert!(array.stop(), "the array was left active");
        self.start(place)
    }
}

fn median_of(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn median(samples: &[Rate], of: impl Fn(&Rate) -> f64) -> f64 {
    median_of(&mut samples.iter().map(of).collect::<Vec<_>>())
}

fn name((place, chunk): (Place, u32)) -> String {
    let chunk = if chunk < MIB { format!("{}K", chunk / KIB) } else { format!("{}M", chunk / MIB) };
    match place {
        Place::None => "none".into(),
        Place::Internal => format!("internal, {chunk}"),
        Place::External => format!("file, {chunk}"),
    }
}

/// One table: an array in one place.
fn table(plan: &Plan, place: (&str, &str), level: (&str, Level, usize)) {
    let files = Files::new(place.1, level.1, level.2);
    let mut samples = vec![[Vec::new(), Vec::new()]; plan.bitmaps.len()];
    let mut was = Place::None;
    for _ in 0..plan.rounds {
        for (of, &bitmap) in samples.iter_mut().zip(plan.bitmaps) {
            for (load, of) in [Load::Sequential, Load::Random].into_iter().zip(of) {
                let array = files.with(was, bitmap);
                of.push(drive(&array, load, plan.time));
                assert!(array.stop(), "the array was left active");
                was = bitmap.0;
            }
        }
    }
    println!("\n{} on {}:\n", level.0, place.0);
    println!("| bitmap | 1 MiB in order, QD 4: MB/s | pages | 4 KiB random, QD 32: k/s | pages |");
    println!("|---|---|---|---|---|");
    for (of, &bitmap) in samples.iter().zip(plan.bitmaps) {
        let [sequential, random] = of;
        println!(
            "| {} | {:.0} | {:.1} | {:.1} | {:.1} |",
            name(bitmap),
            median(sequential, |rate| rate.bytes) / 1e6,
            median(sequential, |rate| rate.pages),
            median(random, |rate| rate.bytes) / 4096.0 / 1e3,
            median(random, |rate| rate.pages),
        );
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [how, dir] if how == "--cold-in" => return cold::run(dir),
        _ if args.iter().any(|arg| arg == "--cold") => return cold::table(),
        _ => {}
    }
    let plan = if std::env::args().any(|arg| arg == "--quick") { QUICK } else { FULL };
    println!(
        "Medians of {} rounds of {} ms; pages: of the bitmap, written in a thousand requests.",
        plan.rounds,
        plan.time.as_millis()
    );
    for &place in plan.places {
        if !Path::new(place.1).is_dir() {
            lapstrake_not_run::not_run(format_args!("{}: there is no {}", place.0, place.1));
            continue;
        }
        for &level in plan.levels {
            table(&plan, place, level);
        }
    }
}
