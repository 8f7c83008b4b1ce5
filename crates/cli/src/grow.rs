//! `lapstrake grow`: what mdadm's `--grow` changes of a served array.

mod plan;

use crate::exit::{Exit, Failure, Outcome};
use crate::members;
use crate::options;
use crate::target::Target;
use lapstrake::control::{
    Added, BitmapLocation, BitmapPlace, Detail, Grown, MemberDetail, MemberState, Request,
    WantedSize,
};
use lapstrake_device::{MemberSpec, quoted, quoted_path};
use lapstrake_geometry::Level;
use lapstrake_host::create::NewBitmap;
use serde_json::json;

const HELP: &str = "\
Examples:
  lapstrake grow data --bitmap internal
  lapstrake grow data --bitmap internal --bitmap-chunk 16M
  lapstrake grow data --bitmap none
  lapstrake grow data --size max              what members that were replaced by larger ones have room for
  lapstrake grow data --array-size 40G        clients can use so much, until the array is stopped
  lapstrake grow mirror --raid-devices 3 disk2.img
  lapstrake grow data --raid-devices 5 disk4.img         a RAID5 of four members becomes one of five
  lapstrake grow data --level 6 disk5.img                a RAID5 gets a second parity
  lapstrake grow mirror --level 5 --raid-devices 3 disk2.img
  lapstrake grow fast --level 10 disk2.img disk3.img     a RAID0 gets copies
  lapstrake grow fast --raid-devices 3 disk2.img         a RAID0 becomes larger by a member
  lapstrake grow copies --level 6 --dry-run              what it would take to give a RAID10 parity in place of copies
  lapstrake grow data --chunk 128K --layout right-symmetric
  lapstrake grow data --level 6 disk5.img --dry-run --rate 150M    what it would take, and how long
  lapstrake grow copies --layout o2 --raid-devices 5 disk4.img   a RAID10 with its copies in the next row

Exit codes:
  0  it is so, and recorded on all members (also if it was so before)
  1  it is as it was: a recovery or check runs, there is no room, or the array is not served
  2  usage";

/// Change the size, the number of copies or the write-intent bitmap of an array that is being served.
///
/// Clients go on meanwhile. One thing changes at a time.
///
/// --size is how much is used of each member. Every member's superblock says the new size before clients see it: a file
/// by --fuse within a second, an NBD client when it connects anew (qemu's block_resize, nbd-client), since its protocol has
/// no word for it. What comes to the array is resynced, unless --assume-clean says that it need not be. A bitmap is taken
/// away and made again meanwhile. Where clients could use less than before, --array-size has to come first.
///
/// --array-size is on no record: the next start shows all of the array.
///
/// --raid-devices gives a RAID1 more copies, which spares fill, or fewer, when those that go have been failed and removed.
///
/// Of RAID4, 5 and 6 --raid-devices, --level, --chunk and --layout, also together, reshape the array, and so they do a RAID10
/// without far copies, which keeps as many copies if it stays one: all data moves to other places while clients go on. The
/// command returns when that has begun, `lapstrake wait` waits for its end. Data is moved into room before it, or with fewer
/// members behind it, so that nothing is overwritten before its copy is on record: the array may be stopped or cut off at
/// any moment, and the next `lapstrake serve` goes on, or Linux does. Where there is no such room, members that are added for data
/// keep a copy of the first rows, which are written over themselves; --dry-run says what a cut in that moment takes. A write-intent bitmap is taken away first. Members come
/// out of the spares; none may be missing. Before members go, --array-size takes from clients what the others cannot hold;
/// who was in the last slots is a spare then.
///
/// A RAID0 gets more or fewer members, or another chunk, as a RAID4 without parity, which it is until that has ended; a linear
/// array gets more members.
///
/// A RAID1 of two becomes a RAID5 and back, a RAID0 a RAID4, 5, 6 or 10 and back, without a block being moved for that: parity
/// or copies are made on the members that are added, or let go of with who holds them. A RAID10 with two copies becomes a
/// RAID4, 5 or 6 with the members of its second copies, and is without redundancy until the first parity is made.
///
/// With --dry-run nothing is written: it tells what would be done, one step after the other, where data would move, what is
/// read and written of each member, what a power cut would cost, and with --rate how long it takes at the least, since heads
/// of hard disks have to move between reading and writing.
///
/// A new internal bitmap goes where mdadm puts it; the least chunk depends on the
/// room beside the superblocks. Another chunk or place means that the old bitmap is taken away first: if the
/// power is cut just then, the array starts without one, and is resynced as a whole. One that is in a file is
/// taken away by --bitmap none before there can be another file.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
#[command(group = clap::ArgGroup::new("change").required(true).args(["bitmap", "size", "array_size", "raid_devices", "level", "chunk", "layout"]).multiple(true))]
pub struct Args {
    #[command(flatten)]
    pub target: Target,
    /// Where to have it: internal, none, or a file to make (its name has a '/')
    #[arg(short, long, value_name = "internal|none|FILE", value_parser = options::bitmap())]
    bitmap: Option<NewBitmap>,
    /// What a bit of it stands for, a bare number is KiB [default: as it is, for a new one as mdadm]
    #[arg(long, value_name = "SIZE", value_parser = options::kib, requires = "bitmap")]
    bitmap_chunk: Option<u64>,
    /// So many writes may be answered before write-mostly members have them (RAID1); 0: none
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "256",
          requires = "bitmap")]
    write_behind: Option<u32>,
    /// What is to be used of each member, a bare number is KiB; max: what all have room for
    #[arg(short = 'z', long, value_name = "SIZE|max", value_parser = wanted_size, conflicts_with_all = ["bitmap", "array_size"])]
    size: Option<WantedSize>,
    /// What comes to the array by --size needs no resync: all members hold the same there, as new files do
    #[arg(long, requires = "size")]
    assume_clean: bool,
    /// What clients can use of the array until it is stopped, a bare number is KiB; max: all of it
    #[arg(short = 'Z', long, value_name = "SIZE|max", value_parser = wanted_size, conflicts_with = "bitmap")]
    array_size: Option<WantedSize>,
    /// How many copies a RAID1 is to have, or how many members another level
    #[arg(short = 'n', long, value_name = "N", conflicts_with_all = ["bitmap", "size", "array_size"])]
    raid_devices: Option<u16>,
    /// The level that it is to have: 0, 1, 4, 5, 6 or 10 [default number of members: as many for data]
    #[arg(short, long, value_name = "LEVEL", conflicts_with_all = ["bitmap", "size", "array_size"])]
    level: Option<Level>,
    /// The chunk that it is to have, a bare number is KiB
    #[arg(short, long, value_name = "SIZE", value_parser = options::kib, conflicts_with_all = ["bitmap", "size", "array_size"])]
    chunk: Option<u64>,
    /// The layout that it, or a RAID10, is to have, by mdadm's names [default: as it is; with --level a RAID5 that has its parity
    /// on the last member, as on its way, gets that of a new array]
    #[arg(short = 'p', long, value_name = "LAYOUT", conflicts_with_all = ["bitmap", "size", "array_size"])]
    layout: Option<String>,
    /// Devices to be added, as by `lapstrake add`
    #[arg(value_name = "MEMBER", conflicts_with_all = ["bitmap", "size", "array_size"], value_parser = options::member())]
    members: Vec<MemberSpec>,
    /// Tell what it would take, step by step, and do nothing
    #[arg(long, conflicts_with = "bitmap")]
    dry_run: bool,
    /// How many bytes a second members are taken to read and write, for the times that --dry-run tells; a bare number is KiB
    #[arg(long, value_name = "SIZE", value_parser = options::kib, requires = "dry_run")]
    rate: Option<u64>,
    /// Write over the bitmap's file if there is one, or over what the devices to be added hold
    #[arg(short, long)]
    force: bool,
}

fn wanted_size(text: &str) -> Result<WantedSize, String> {
    match text {
        "max" => Ok(WantedSize::Max),
        text => options::kib(text).map(WantedSize::Bytes),
    }
}

pub fn run(args: &Args) -> Outcome {
    match &args.bitmap {
        Some(bitmap) => change_bitmap(args, bitmap),
        None => resize(args),
    }
}

fn resize(args: &Args) -> Outcome {
    let Args { target, size, array_size, raid_devices, assume_clean, .. } = args;
    let is_moved = args.level.is_some() || args.chunk.is_some() || args.layout.is_some();
    let before = raid_devices.map(|_| target.detail(None)).transpose()?;
    let level = before.as_ref().map(|before| before.level.clone()).unwrap_or_default();
    let is_reshaped =
        matches!(level.as_str(), "linear" | "raid0" | "raid4" | "raid5" | "raid6" | "raid10");
    if is_moved || is_reshaped {
        return reshape(args);
    }
    // Of another level nothing is added that could not become a copy.
    let added = match before.filter(|_| level == "raid1") {
        Some(before) => newcomers(args, &before)?,
        None => Vec::new(),
    };
    let request = Request::Resize {
        size: *size,
        array_size: *array_size,
        raid_devices: *raid_devices,
        assume_clean: *assume_clean,
    };
    if args.dry_run {
        return plan::run(target, request, &added, args.force, &args.pace()?);
    }
    if !added.is_empty() {
        plan::check(target, request.clone(), &added, args.force)?;
    }
    add_members(args, &added)?;
    let Grown { changed } = target.ask(&request)?;
    let Detail { array_bytes, component_bytes, raid_devices, .. } = target.detail(None)?;
    if target.json {
        outln!(
            "{:#}",
            json!({
                "name": target.name,
                "changed": changed,
                "array_bytes": array_bytes,
                "component_bytes": component_bytes,
                "raid_devices": raid_devices,
            })
        );
        return Ok(Exit::Done);
    }
    let already = if changed { "" } else { " already" };
    outln!(
        "{}: {}K for clients, {}K of each of {raid_devices} members{already}",
        target.name,
        array_bytes >> 10,
        component_bytes >> 10
    );
    Ok(Exit::Done)
}

impl Args {
    fn pace(&self) -> Result<plan::Pace, Failure> {
        match self.rate {
            Some(0) => Err(Failure::usage("at --rate 0 nothing would ever be moved")),
            rate => Ok(rate.map_or(plan::Pace::Unknown, plan::Pace::Rate)),
        }
    }
}

/// Who is to be added and is no spare yet, as after a command that came so far.
fn newcomers(args: &Args, before: &Detail) -> Result<Vec<MemberSpec>, Failure> {
    let (mut newcomers, mut paths) = (Vec::new(), Vec::new());
    for spec in &args.members {
        let path = members::absolute(spec)?;
        if paths.contains(&path) {
            return Err(Failure::usage(format!("{spec}: given twice; nothing was written")));
        }
        paths.push(path.clone());
        let is_it = |one: &MemberDetail| one.path == path && one.state == MemberState::Spare;
        if !before.members.iter().any(is_it) {
            newcomers.push(spec.clone());
        }
    }
    Ok(newcomers)
}

fn add_members(args: &Args, members: &[MemberSpec]) -> Result<(), Failure> {
    for spec in members {
        let member = members::absolute(spec)?;
        let (force, write_mostly, re_add) = (args.force, false, false);
        let _: Added = args.target.ask(&Request::Add { member, force, write_mostly, re_add })?;
    }
    Ok(())
}

fn reshape(args: &Args) -> Outcome {
    let Args { target, raid_devices, level, chunk, layout, .. } = args;
    let request = Request::Reshape {
        raid_devices: *raid_devices,
        level: level.map(|level| level.to_string()),
        chunk_bytes: *chunk,
        layout: layout.clone(),
    };
    let before = target.detail(None)?;
    let newcomers = newcomers(args, &before)?;
    if args.dry_run {
        return plan::run(target, request, &newcomers, args.force, &args.pace()?);
    }
    // Without new members it may begin, and wait for some.
    let ask = if newcomers.is_empty() { plan::ask } else { plan::check };
    let planned = ask(target, request.clone(), &newcomers, args.force)?;
    // A RAID0 takes in nobody, but what it becomes.
    let is_added_later = before.level == "raid0";
    if !is_added_later {
        add_members(args, &newcomers)?;
    }
    let asked = target.ask(&request);
    let is_unchanged = !matches!(asked, Ok(Grown { changed: true }));
    if is_unchanged && !is_added_later {
        for spec in &newcomers {
            errln!(
                "{spec}: is a spare of {} now; `lapstrake remove {} {}` takes it out",
                target.name,
                quoted(&target.name),
                quoted_path(spec.argument())
            );
        }
    }
    let Grown { changed } = asked?;
    if is_added_later && let Err(failure) = add_members(args, &newcomers) {
        let name = quoted(&target.name);
        errln!(
            "{}: has its new level, and lacks members; `lapstrake add {name} MEMBER` gives it some, `lapstrake grow {name} \
             --level 0` takes the level back",
            target.name
        );
        return Err(failure);
    }
    if let Some((bare, words)) = plan::lost_redundancy(&planned).filter(|_| changed) {
        errln!("{}: step {} of {}: {words}", target.name, bare + 1, planned.steps.len());
    }
    let Detail { level, layout, chunk_bytes, raid_devices, reshape, .. } = target.detail(None)?;
    let (level, layout, chunk_bytes, raid_devices) = match reshape {
        Some(to) => (to.level, to.layout, to.chunk_bytes, to.raid_devices),
        None => (level, layout, chunk_bytes, raid_devices),
    };
    let becomes = plan::shape(&level, layout.as_deref(), raid_devices, chunk_bytes);
    let name = &target.name;
    if target.json {
        outln!(
            "{:#}",
            json!({
                "name": name,
                "changed": changed,
                "level": level,
                "layout": layout.unwrap_or_default(),
                "chunk_bytes": chunk_bytes,
                "raid_devices": raid_devices,
                "steps": planned.steps,
                "obstacle": planned.obstacle,
            })
        );
        return Ok(Exit::Done);
    }
    // Where members are yet to be added no more is known than what was asked for: of a RAID0 one, if nothing was said.
    let asked = args.level.or(is_added_later.then_some(Level::Raid0));
    let asked = asked.map(|asked| asked.to_string()).filter(|asked| *asked != level);
    let goal = plan::goal(&planned).filter(|goal| *goal != becomes).or(asked);
    let on_the_way = goal.map(|goal| format!(" on the way to {goal}")).unwrap_or_default();
    match changed {
        true => outln!(
            "{name}: it is becoming {becomes}{on_the_way}; `lapstrake wait {}` waits for the end",
            quoted(name)
        ),
        false => outln!("{name}: {becomes} already"),
    }
    Ok(Exit::Done)
}

fn change_bitmap(args: &Args, bitmap: &NewBitmap) -> Outcome {
    let target = &args.target;
    let bitmap = match bitmap {
        NewBitmap::File(path) => BitmapPlace::File(options::absolute(path)?.into()),
        NewBitmap::None => BitmapPlace::None,
        NewBitmap::Internal => BitmapPlace::Internal,
        NewBitmap::Lockless => BitmapPlace::Lockless,
    };
    let (chunk, write_behind) = (args.bitmap_chunk, args.write_behind);
    if bitmap == BitmapPlace::None && (chunk.is_some() || write_behind.is_some()) {
        return Err(Failure::usage("no bitmap has neither --bitmap-chunk nor --write-behind"));
    }
    let fits = |bytes| {
        let told =
            |_| Failure::usage("--bitmap-chunk is 4 GiB or more; give less; nothing was changed");
        u32::try_from(bytes).map_err(told)
    };
    let bitmap_chunk = chunk.map(fits).transpose()?;
    let request =
        Request::Grow { bitmap: bitmap.clone(), bitmap_chunk, write_behind, force: args.force };
    let Grown { changed: is_new } = target.ask(&request)?;
    let detail = target.detail(None)?;
    if target.json {
        let place = detail.bitmap_place.as_ref().map_or("none", BitmapLocation::as_str);
        outln!(
            "{:#}",
            json!({
                "name": target.name,
                "changed": is_new,
                "bitmap": place,
                "bitmap_file": detail.bitmap_file,
                "bitmap_chunk_bytes": detail.bitmap_chunk_bytes,
                "write_behind": detail.write_behind,
            })
        );
        return Ok(Exit::Done);
    }
    let already = if is_new { "" } else { " already" };
    let place = match detail.bitmap_chunk_bytes {
        None => "no write-intent bitmap".into(),
        Some(bytes) => format!("write-intent bitmap {bitmap}, {}K to a bit", bytes >> 10),
    };
    let behind = match detail.write_behind {
        0 => String::new(),
        most => format!(", write-behind {most}"),
    };
    outln!("{}: {place}{behind}{already}", target.name);
    Ok(Exit::Done)
}
