//! The kernel's md takes a new array of ours and makes of it what it makes of mdadm's own.
//!
//! For each request one set of members is made by mdadm and one by our plan. The kernel starts
//! both, brings them in sync, and stops them. Then the superblocks (and bitmaps) of both sets
//! must be equal field by field, save for UUIDs, times, checksums, and the device numbers that
//! 0.90 records. Event counts may differ by what the timing of the sync made of them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use lapstrake_geometry::{Layout, Level, Sectors};
use lapstrake_kernel_md::{Guest, Judge, Kernel, has_level, judges_or_say};
use lapstrake_metadata::create::{BitmapChoice, CreateRequest, NewMember, plan};
use lapstrake_metadata::v1::feature;
use lapstrake_metadata::{Role, Superblock, Version, bitmap, read_at};
use lapstrake_not_run::left_out;

/// Members' size: not a multiple of anything.
const SIZE: Sectors = Sectors(40_000 + 9);

struct Case {
    level: Level,
    disks: u16,
    spares: u16,
    missing: Option<usize>,
    layout: Option<&'static str>,
    chunk_kib: Option<u64>,
    bitmap: BitmapChoice,
    assume_clean: bool,
}

fn cases() -> Vec<Case> {
    let case = |level, disks| Case {
        level,
        disks,
        spares: 0,
        missing: None,
        layout: None,
        chunk_kib: None,
        bitmap: BitmapChoice::None,
        assume_clean: false,
    };
    let internal = BitmapChoice::Internal;
    vec![
        case(Level::Linear, 3),
        case(Level::Raid0, 3),
        Case { spares: 1, bitmap: internal, ..case(Level::Raid1, 2) },
        Case { missing: Some(1), ..case(Level::Raid1, 2) },
        Case { chunk_kib: Some(64), ..case(Level::Raid4, 3) },
        case(Level::Raid5, 4),
        // Of two spares the kernel recovers the one that it was given last, so none is left to.
        Case { spares: 1, assume_clean: true, ..case(Level::Raid5, 4) },
        Case { bitmap: internal, layout: Some("ra"), chunk_kib: Some(4), ..case(Level::Raid5, 3) },
        Case { missing: Some(0), ..case(Level::Raid5, 3) },
        Case { missing: Some(1), ..case(Level::Raid6, 5) },
        Case { assume_clean: true, bitmap: internal, ..case(Level::Raid6, 4) },
        Case { layout: Some("f2"), chunk_kib: Some(64), ..case(Level::Raid10, 3) },
        Case { layout: Some("o2"), bitmap: internal, ..case(Level::Raid10, 4) },
    ]
}

impl Case {
    fn request(&self, version: Version) -> CreateRequest {
        let count = usize::from(self.disks + self.spares);
        let member = NewMember { size: SIZE, ..NewMember::default() };
        let members = (0..count).map(|i| (Some(i) != self.missing).then_some(member)).collect();
        CreateRequest {
            raid_disks: self.disks,
            spares: self.spares,
            version,
            chunk: self.chunk_kib.map(Sectors::from_kib),
            layout: self.layout.map(|name| Layout::from_name(self.level, name).unwrap()),
            bitmap: self.bitmap,
            name: "boot".into(),
            homehost: Some("nas".into()),
            assume_clean: self.assume_clean,
            ctime: 1_700_000_000,
            md_minor: 9,
            ..CreateRequest::new(self.level, members)
        }
    }

    fn mdadm_options(&self, version: Version) -> String {
        let mut options =
            format!("-e {version} -l {} -n {} --homehost=nas --name=boot", self.level, self.disks);
        if self.spares > 0 {
            options += &format!(" -x {}", self.spares);
        }
        if let Some(layout) = self.layout {
            options += &format!(" -p {layout}");
        }
        if let Some(chunk) = self.chunk_kib {
            options += &format!(" -c {chunk}");
        }
        if self.bitmap == BitmapChoice::Internal {
            options += " -b internal";
        }
        if self.assume_clean {
            options += " --assume-clean";
        }
        options
    }
}

fn new_file(path: &Path) -> File {
    let file = File::create(path).unwrap();
    file.set_len(SIZE.bytes()).unwrap();
    file
}

/// Starts an array with `start`, brings it in sync, stops it.
fn run(guest: &mut Guest, start: &str, files: &[Option<PathBuf>]) -> String {
    let paths = files.iter().flatten().map(|path| path.to_str().unwrap());
    let attach = paths.collect::<Vec<_>>().join(" ");
    let places: Vec<&str> =
        files.iter().map(|file| if file.is_some() { "real" } else { "missing" }).collect();
    let script = format!(
        "set -- $(attach {attach}); all=; present=\"$*\"
         for place in {}; do
             if [ $place = real ]; then all=\"$all $1\"; shift; else all=\"$all missing\"; fi
         done
         {start} || exit 1
         mdadm --wait /dev/md9
         while [ \"$(cat /sys/block/md9/md/sync_action 2>/dev/null)\" != idle ] &&
               [ -e /sys/block/md9/md/sync_action ]; do sleep 0.05; done
         grep -A1 ^md9 /proc/mdstat
         mdadm --stop /dev/md9 && calm",
        places.join(" ")
    );
    let output = guest.run(&script).unwrap();
    assert!(output.success(), "{start}: {output}");
    output.text()
}

/// A member's superblock and bitmap, without what differs between any two arrays.
fn stored(path: &Path, version: Version) -> (Superblock, Option<(bitmap::Superblock, Vec<u8>)>) {
    let file = File::open(path).unwrap();
    let read = |sector: u64, len: usize| {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, sector * 512).unwrap();
        bytes
    };
    let at = version.superblock(SIZE).unwrap().0;
    let mut superblock = read_at(version, SIZE, &read(at, 4096)).unwrap();
    let bitmap = superblock.bitmap_sector().map(|sector| {
        let mut found = bitmap::Superblock::parse(&read(sector.0, 256)).unwrap();
        // md leaves a spare's bitmap alone, so that it stays behind.
        let uuid = superblock.bitmap_uuid();
        let is_current = found.check_array(uuid, superblock.events()).unwrap();
        assert_eq!(is_current, superblock.role() != Role::Spare, "{found:?}");
        let image = read(sector.0, found.image_bytes() as usize);
        (found.uuid, found.events, found.events_cleared) = ([0; 16], 0, 0);
        (found, image[256..].to_vec())
    });
    match &mut superblock {
        Superblock::V090(sb) => {
            sb.set_set_uuid([0; 16]);
            (sb.ctime, sb.utime, sb.sb_csum) = (0, 0, 0);
            (sb.events, sb.cp_events) = (0, sb.events - sb.cp_events);
            for disk in sb.disks.iter_mut().chain([&mut sb.this_disk]) {
                (disk.major, disk.minor) = (0, 0);
            }
        }
        Superblock::V1(sb) => {
            (sb.set_uuid, sb.device_uuid) = ([0; 16], [0; 16]);
            (sb.ctime, sb.utime, sb.sb_csum, sb.events) = (0, 0, 0, 0);
        }
    }
    (superblock, bitmap)
}

/// Writes what was planned for a request; the paths of its members.
fn write_ours(directory: &Path, request: &CreateRequest) -> Vec<Option<PathBuf>> {
    let mut random = 1u8;
    let plan = plan(request, |bytes| {
        random += 1;
        bytes.fill(random);
    })
    .unwrap();
    let mut paths = vec![None; request.members.len()];
    for member in &plan.members {
        let path = directory.join(format!("ours{}", member.index));
        let file = new_file(&path);
        for write in &member.writes {
            file.write_all_at(&write.bytes, write.sector.bytes()).unwrap();
        }
        paths[member.index] = Some(path);
    }
    paths
}

/// Lets the kernel run our array and mdadm's, and compares what is stored in the end.
fn check(judge: Judge, guest: &mut Guest, directory: &Path, case: &Case, version: Version) {
    let what = case.mdadm_options(version);
    let request = case.request(version);
    let ours = write_ours(directory, &request);
    let assembled = run(guest, "mdadm --assemble --run --quiet /dev/md9 $present", &ours);
    if (judge, case.level, version) == (Judge::Own, Level::Raid0, Version::V090) {
        // mdadm 4.2 cannot make a raid0 with 0.90; that the kernel takes ours is all to see.
        return;
    }
    let member = |(i, path): (usize, &Option<PathBuf>)| {
        path.as_ref().map(|_| directory.join(format!("theirs{i}")))
    };
    let theirs: Vec<_> = ours.iter().enumerate().map(member).collect();
    theirs.iter().flatten().for_each(|path| drop(new_file(path)));
    let create = format!("mdadm --create --run --quiet /dev/md9 {what} $all 2>&1");
    let created = run(guest, &create, &theirs);
    // The first line lists the loop devices, in any order.
    let status = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(status(&assembled), status(&created), "{what}");
    for (ours, theirs) in ours.iter().flatten().zip(theirs.iter().flatten()) {
        let mut theirs = stored(theirs, version);
        if let (Judge::Own, Level::Raid0, Superblock::V1(sb)) = (judge, case.level, &mut theirs.0) {
            // mdadm 4.2 records the layout only where members' sizes differ.
            sb.feature_map |= feature::RAID0_LAYOUT;
        }
        assert_eq!(stored(ours, version), theirs, "{judge}: {what}");
    }
}

fn check_all(wanted: impl Fn(usize, Version) -> bool) {
    for judge in judges_or_say("new arrays against the kernel's md") {
        let directory = tempfile::tempdir().unwrap();
        let mut guest = Kernel::of(judge).boot().unwrap();
        for version in Version::ALL {
            for (number, case) in cases().iter().enumerate() {
                let level = case.level.name();
                if wanted(number, version) && has_level(judge, level) {
                    check(judge, &mut guest, directory.path(), case, version);
                } else if wanted(number, version) {
                    left_out(format_args!("new {level} before {judge}: its kernel has none"));
                }
            }
        }
    }
}

/// All cases with 1.2, some with the others.
fn is_in_sample(number: usize, version: Version) -> bool {
    version == Version::V1_2 || number % 4 == version as usize
}

#[test]
fn the_kernel_makes_of_ours_what_it_makes_of_mdadms() {
    check_all(is_in_sample);
}

#[test]
#[ignore = "the rest of the cases, for the soak"]
fn the_kernel_makes_of_ours_what_it_makes_of_mdadms_always() {
    if std::env::var_os("LAPSTRAKE_SOAK").is_none() {
        return left_out("the rest of the new arrays: LAPSTRAKE_SOAK is not set");
    }
    check_all(|number, version| !is_in_sample(number, version));
}
