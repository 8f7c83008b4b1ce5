//! `lapstrake create`.

use crate::exit::{Exit, Failure, Outcome};
use crate::{complete, options, patience, text};
use lapstrake_device::{MemberSpec, quoted, quoted_path};
use lapstrake_geometry::{Geometry, Layout, Level, Raid0Layout, Sectors};
use lapstrake_host::create::{NewArray, NewBitmap, PrepareError, Prepared, prepare};
use lapstrake_metadata::create::{CreateError, MemberPlan, Policy};
use lapstrake_metadata::{Role, Superblock, Version};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use tracing::warn;

const HELP: &str = "\
Examples:
  truncate -s 1G a.img b.img c.img d.img
  lapstrake create data --level 5 --assume-clean a.img b.img c.img d.img
  lapstrake create mirror --level 1 --raid-devices 2 disk.img missing
  lapstrake create pair --level 1 --bitmap internal --write-behind --write-mostly slow.img fast.img slow.img
  lapstrake create fast --level 10 --layout f2 --chunk 64 /dev/sd[b-e]

Exit codes:
  0  the array is made
  1  it is not made: nothing was written (if the system refused a write half-way, the message says so)
  2  usage";

/// Make a new array of files or block devices.
///
/// Writes to each member the superblock, bitmap and bad-block log that mdadm 4.6 would, with its
/// defaults: metadata 1.2, chunks of 512 KiB, left-symmetric or n2, no write-intent bitmap. Nothing is
/// written before every check on every member has passed; members that hold anything that is recognised, such as an md superblock, a filesystem,
/// a partition table, a disk image with a format of its own (qcow2, VMDK) or an overlay of
/// `serve --overlay`, are refused without --force.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Name of the array, at most 31 bytes; /dev/mdN and /dev/md/NAME are taken as N and NAME
    name: String,
    /// Files, block devices, windows of them (PATH@OFFSET+SIZE), or the word "missing"; those for
    /// slots first, then spares
    #[arg(required = true, value_name = "MEMBER|missing", add = complete::files(&["missing"]))]
    members: Vec<OsString>,
    /// linear, raid0, raid1, raid4, raid5, raid6, raid10, or the number, stripe, mirror
    #[arg(short, long, value_parser = level, add = complete::words(LEVELS))]
    level: Level,
    /// Number of slots [default: as many as members are given, less the spares]
    #[arg(short = 'n', long, visible_alias = "raid-disks", value_name = "N")]
    raid_devices: Option<u16>,
    /// Number of spares
    #[arg(short = 'x', long, visible_alias = "spare-disks", value_name = "N", default_value_t = 0)]
    spare_devices: u16,
    /// Chunk (linear: rounding), a bare number is KiB [default: 512K where the level has one]
    #[arg(short, long, visible_alias = "rounding", value_name = "SIZE", value_parser = options::kib_sectors)]
    chunk: Option<Sectors>,
    /// Layout by mdadm's names: left-symmetric, ls, ..., n2, f2, o2, original, alternate
    #[arg(short = 'p', long, visible_alias = "parity", value_name = "LAYOUT", add = complete::words(LAYOUTS))]
    layout: Option<String>,
    /// Superblock version: 0.90, 1.0, 1.1 or 1.2
    #[arg(short = 'e', long, value_name = "VERSION", default_value = "1.2", value_parser = version, add = complete::words(VERSIONS))]
    metadata: Version,
    /// Write-intent bitmap: internal, lockless (a new array is resynced only where it is written; Linux from 6.18
    /// on), none, or a file to make (its name has a '/') [default: none]
    #[arg(short, long, value_name = "internal|lockless|none|FILE", value_parser = options::bitmap(), add = complete::words(BITMAPS))]
    bitmap: Option<NewBitmap>,
    /// Device for a journal, which closes the write hole of raid4, 5 and 6
    #[arg(long, value_name = "DEV")]
    write_journal: Option<OsString>,
    /// What a bit of the bitmap stands for, a bare number is KiB
    #[arg(long, value_name = "SIZE", value_parser = options::kib)]
    bitmap_chunk: Option<u64>,
    /// What keeps redundancy right over an unclean stop: resync of everything, the bitmap, or partial
    /// parity logs (raid5), which need no resync and leave no write hole [default: bitmap if there is
    /// one, else resync]
    #[arg(short = 'k', long, value_name = "POLICY", value_parser = policy, add = complete::words(POLICIES))]
    consistency_policy: Option<Policy>,
    /// So many writes may be answered before write-mostly members have them; RAID1 with a bitmap
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "256")]
    write_behind: Option<u32>,
    /// One of the members that is to be read only where no other has the data; RAID1, may be repeated
    #[arg(short = 'W', long, value_name = "MEMBER", value_parser = options::member())]
    write_mostly: Vec<MemberSpec>,
    /// How much to use of each member, a bare number is KiB; "max" for all
    #[arg(short = 'z', long, value_name = "SIZE|max", value_parser = size)]
    size: Option<Size>,
    /// Where data begins on each member, a bare number is KiB
    #[arg(long, value_name = "SIZE", value_parser = options::kib)]
    data_offset: Option<u64>,
    /// Smallest unit of a request to the array: 512 to 4096 bytes. It is recorded, and kernels before
    /// 6.19 refuse an array that records one [default: not recorded, so that every kernel can start it]
    #[arg(long, value_name = "SIZE", value_parser = options::bytes)]
    logical_block_size: Option<u64>,
    /// The array's UUID [default: random]
    #[arg(short, long, value_parser = options::uuid)]
    uuid: Option<[u8; 16]>,
    /// Host that the array belongs to; "none" for none [default: this one]
    #[arg(long, value_name = "HOST")]
    homehost: Option<String>,
    /// The members are in sync as they are (all zeros, or an array of the same shape before):
    /// nothing is to be resynced or recovered
    #[arg(long)]
    assume_clean: bool,
    /// Write over what the members hold, and over a bitmap's file that is there; take a single member; do
    /// not make raid4, 5 and 6 by recovery of the last member
    #[arg(short, long)]
    force: bool,
    /// Write over what the members hold
    #[arg(short = 'R', long)]
    run: bool,
    /// Write to the members nothing at all, but to a new overlay's file, which `lapstrake serve --overlay FILE` then
    /// takes: to try what `lapstrake deduce` found. Implies --assume-clean
    #[arg(long, value_name = "FILE", conflicts_with = "spare_devices")]
    rescue: Option<PathBuf>,
    /// Report in JSON
    #[arg(long)]
    pub json: bool,
}

/// Levels, as they are offered.
const LEVELS: &[&str] = &["linear", "raid0", "raid1", "raid4", "raid5", "raid6", "raid10"];
/// Layouts, as they are offered.
const LAYOUTS: &[&str] = &[
    "left-symmetric",
    "right-symmetric",
    "left-asymmetric",
    "right-asymmetric",
    "parity-first",
    "parity-last",
    "n2",
    "n3",
    "f2",
    "f3",
    "o2",
    "o3",
    "original",
    "alternate",
];
const VERSIONS: &[&str] = &["0.90", "1.0", "1.1", "1.2"];
const BITMAPS: &[&str] = &["internal", "lockless", "none"];
const POLICIES: &[&str] = &["resync", "bitmap", "ppl"];

#[derive(Clone, Copy)]
enum Size {
    Max,
    Of(Sectors),
}

fn size(text: &str) -> Result<Size, String> {
    if text == "max" { Ok(Size::Max) } else { options::kib_sectors(text).map(Size::Of) }
}

fn level(text: &str) -> Result<Level, String> {
    text.parse().map_err(|_| {
        let like = options::near(text, LEVELS);
        format!("levels are linear, 0, 1, 4, 5, 6 and 10{like}")
    })
}

fn version(text: &str) -> Result<Version, String> {
    text.parse::<Version>().map_err(|error| error.to_string())
}

fn policy(text: &str) -> Result<Policy, String> {
    match text {
        "resync" => Ok(Policy::Resync),
        "bitmap" => Ok(Policy::Bitmap),
        "ppl" => Ok(Policy::Ppl),
        _ => Err("policies are resync, bitmap and ppl".into()),
    }
}

/// With the option that is missing.
fn refused(error: PrepareError) -> Failure {
    match error {
        PrepareError::Plan { error: CreateError::PolicyNeedsBitmap, .. } => {
            Failure::new(format!("{error}; --bitmap internal or --bitmap FILE says where"))
        }
        error => error.into(),
    }
}

pub fn run(args: &Args) -> Outcome {
    let wanted = wanted(args)?;
    let mut random = Ok(());
    let random_bytes = |bytes: &mut [u8]| {
        if random.is_ok() {
            random = getrandom::fill(bytes);
        }
    };
    let members = wanted.members.iter().flatten().chain(&wanted.journal);
    let prepared = patience::telling(members, || prepare(&wanted, random_bytes));
    let prepared = prepared.map_err(refused)?;
    random.map_err(|error| Failure::new(format!("the system has no random bytes: {error}")))?;
    let in_members = prepared.plan().members.iter().any(|m| m.superblock.bitmap_sector().is_some());
    let has_bitmap = in_members || matches!(wanted.bitmap, NewBitmap::File(_));
    if args.bitmap_chunk.is_some() && !has_bitmap {
        return Err(Failure::new(
            "--bitmap-chunk: the array gets no bitmap; nothing was written: leave it out, or say where with --bitmap \
             if the level has redundancy",
        ));
    }
    for warning in prepared.warnings() {
        warn!("{warning}");
    }
    if matches!(args.level, Level::Raid4 | Level::Raid5) && wanted.raid_devices == 2 {
        warn!(
            "{} of two devices is a mirror at parity's cost: both hold the same, and each write takes the way through \
             parity; --level 1 gives the same room and safety",
            args.level
        );
    }
    prepared.write()?;
    if args.json {
        outln!("{:#}", report(&wanted, &prepared));
    } else {
        out!("{}", Summary { args, wanted: &wanted, prepared: &prepared }.text());
    }
    Ok(Exit::Done)
}

fn wanted(args: &Args) -> Result<NewArray, Failure> {
    let spec = |text: &OsString| {
        options::spec(text).map_err(|why| Failure::usage(format!("{}: {why}", text.display())))
    };
    let members = args.members.iter().map(|text| match text.to_str() {
        Some("missing") => Ok(None),
        _ => spec(text).map(Some),
    });
    let members = members.collect::<Result<Vec<_>, _>>()?;
    if let Some(other) = args.write_mostly.iter().find(|m| !members.contains(&Some((*m).clone()))) {
        return Err(Failure::usage(format!("--write-mostly {other}: not among the members")));
    }
    let slots = match args.raid_devices {
        Some(slots) => slots,
        None => u16::try_from(members.len())
            .ok()
            .and_then(|all| all.checked_sub(args.spare_devices))
            .ok_or_else(|| Failure::usage("there are more spares than members"))?,
    };
    let layout = args.layout.as_deref().map(|name| Layout::from_name(args.level, name));
    let bitmap_chunk = args.bitmap_chunk.map(u32::try_from).transpose();
    Ok(NewArray {
        homehost: homehost(args.homehost.as_deref()),
        raid_devices: slots,
        spares: args.spare_devices,
        journal: args.write_journal.as_ref().map(spec).transpose()?,
        version: args.metadata,
        chunk: args.chunk,
        layout: layout.transpose().map_err(|error| {
            let like = options::near(args.layout.as_deref().unwrap_or_default(), LAYOUTS);
            Failure::usage(format!("--layout: {error}{like}"))
        })?,
        bitmap: args.bitmap.clone().unwrap_or_default(),
        policy: args.consistency_policy,
        bitmap_chunk: bitmap_chunk
            .map_err(|_| Failure::usage("--bitmap-chunk: less than 4G is needed"))?,
        write_behind: args.write_behind,
        write_mostly: args.write_mostly.clone(),
        size: match args.size {
            Some(Size::Of(size)) => Some(size),
            Some(Size::Max) | None => None,
        },
        data_offset: args.data_offset.map(Sectors::from_bytes),
        logical_block_size: args.logical_block_size.map(|size| size.try_into().unwrap_or(u32::MAX)),
        uuid: args.uuid,
        assume_clean: args.assume_clean || args.rescue.is_some(),
        force: args.force || args.rescue.is_some(),
        rescue: args.rescue.clone(),
        overwrite: args.force || args.run,
        ..NewArray::new(&name(&args.name)?, args.level, members)
    })
}

/// The name to record: mdadm's device names lose their directory, and /dev/mdN the "md".
fn name(given: &str) -> Result<String, Failure> {
    let name = options::name_of_device(given);
    let is_member = |meta: Metadata| meta.is_file() || meta.file_type().is_block_device();
    if name == given && std::fs::metadata(given).is_ok_and(is_member) {
        return Err(Failure::usage(format!(
            "{given:?}: there is a file of this name: did you forget the array's name, which goes before its members? \
             Nothing was written; if the array is to have that very name, make it from another directory"
        )));
    }
    let is_odd = |c: char| c == '/' || c.is_control();
    if matches!(name, "" | "." | "..") || name.len() > 31 || name.contains(is_odd) {
        return Err(Failure::usage(format!(
            "{given:?} cannot be an array's name: 1 to 31 bytes, without '/' and control characters, not '.' or '..'"
        )));
    }
    Ok(name.to_owned())
}

/// This machine's name, to which mdadm ties an array.
/// The host that an array belongs to, by what was said of it, as mdadm reads it.
pub fn homehost(said: Option<&str>) -> Option<String> {
    match said {
        None | Some("<system>") => hostname(),
        Some("" | "none" | "any" | "<none>" | "<ignore>") => None,
        Some(host) => Some(host.to_owned()),
    }
}

pub fn hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// What was made.
struct Summary<'a> {
    args: &'a Args,
    wanted: &'a NewArray,
    prepared: &'a Prepared,
}

impl Summary<'_> {
    fn text(&self) -> String {
        let (plan, wanted) = (self.prepared.plan(), self.wanted);
        let mut lines = Vec::new();
        let Some(first) = plan.members.first().map(|member| &member.superblock) else {
            return String::new();
        };
        if self.args.layout.is_none() && wanted.level.is_striped() && wanted.level != Level::Raid4 {
            let layout = first.layout().unwrap_or(Layout::None);
            lines.push(match layout {
                Layout::Raid0(Raid0Layout::Unset) => {
                    "no layout is recorded for raid0 with these options: with these members all are the same"
                        .into()
                }
                _ => format!("layout defaults to {layout}"),
            });
        }
        if self.args.chunk.is_none() && wanted.level.is_striped() {
            lines.push(format!("chunk size defaults to {}K", first.chunk().0 / 2));
        }
        if self.args.size.is_none() && !plan.component.is_zero() {
            lines.push(format!("size set to {}K", plan.component.0 / 2));
        }
        for member in &plan.members {
            lines.push(format!("{}: {}", self.path(member), place(member)));
        }
        let bytes = plan.geometry.array_sectors().bytes();
        lines.push(format!(
            "array {} made: {}, {} raid devices, {} KiB{}",
            wanted.name,
            wanted.level,
            wanted.raid_devices,
            bytes >> 10,
            text::human(bytes)
        ));
        lines.extend(self.advice());
        lines.extend(self.bitmap_advice());
        if !self.records_name() {
            lines.push(
                "metadata 0.90 records no name: without --name the array goes by its UUID".into(),
            );
        }
        lines.push(format!("serve it: lapstrake serve {}", self.serve_arguments()));
        lines.join("\n") + "\n"
    }

    fn path(&self, member: &MemberPlan) -> String {
        self.prepared.member(member.index).map_or_else(String::new, ToString::to_string)
    }

    /// What to know about redundancy that is not there yet.
    fn advice(&self) -> Option<String> {
        let plan = self.prepared.plan();
        let slots = plan.members.iter().filter(|member| holds_slot(&member.superblock)).count();
        let given =
            self.wanted.members.iter().take(usize::from(self.wanted.raid_devices)).flatten();
        let dirty = plan.members.first().is_some_and(|member| !member.superblock.clean());
        if slots < given.count() {
            Some(
                "one slot is filled by recovering a spare; if all members hold zeros, or were in \
                 sync before, --assume-clean makes the array whole at once"
                    .into(),
            )
        } else if dirty && self.wanted.level.has_redundancy() && slots > 1 {
            Some(
                "the members are to be resynced; if all hold zeros, or were in sync before, \
                 --assume-clean makes that needless"
                    .into(),
            )
        } else {
            None
        }
    }

    /// What mdadm asks at this place.
    fn bitmap_advice(&self) -> Option<String> {
        let is_unsaid = self.args.bitmap.is_none() && self.args.consistency_policy.is_none();
        let could_have = self.wanted.level.has_redundancy() && self.wanted.journal.is_none();
        (is_unsaid && could_have).then(|| {
            format!(
                "without a write-intent bitmap an unclean stop costs a resync of the whole array; `lapstrake grow {} \
                 --bitmap internal` adds one while it is served",
                quoted(&self.wanted.name)
            )
        })
    }

    fn records_name(&self) -> bool {
        let members = &self.prepared.plan().members;
        members.first().is_none_or(|member| member.superblock.version() != Version::V090)
    }

    fn serve_arguments(&self) -> String {
        let given = self.wanted.members.iter().flatten().chain(&self.wanted.journal);
        let paths = given.map(|spec| quoted_path(spec.argument()));
        let mut words: Vec<String> = paths.collect();
        if let Some(overlay) = &self.wanted.rescue {
            words.insert(0, format!("--overlay {}", quoted_path(overlay)));
        }
        if !self.records_name() {
            words.insert(0, format!("--name={}", quoted(&self.wanted.name)));
        }
        if let NewBitmap::File(path) = &self.wanted.bitmap {
            words.push(format!("--bitmap {}", quoted_path(path)));
        }
        words.join(" ")
    }
}

fn holds_slot(superblock: &Superblock) -> bool {
    matches!(superblock.role(), Role::Active(_))
}

fn place(member: &MemberPlan) -> String {
    member.superblock.role().to_string()
}

fn report(wanted: &NewArray, prepared: &Prepared) -> Value {
    let plan = prepared.plan();
    let first = plan.members.first().map(|member| &member.superblock);
    let bitmap: (Value, Option<Cow<'_, str>>) = match &wanted.bitmap {
        NewBitmap::File(path) => (json!("external"), Some(path.to_string_lossy())),
        NewBitmap::Lockless => (json!("lockless"), None),
        _ if first.is_some_and(|sb| sb.bitmap_sector().is_some()) => (json!("internal"), None),
        _ => (json!("none"), None),
    };
    let members = plan.members.iter().map(|member| {
        let sb = &member.superblock;
        json!({
            "path": prepared.member(member.index).map(ToString::to_string),
            "role": sb.role().to_string(),
            "slot": match sb.role() { Role::Active(slot) => Some(slot.0), _ => None },
            "number": sb.dev_number(),
            "device_uuid": sb.device_uuid().map(text::uuid),
            "data_offset_bytes": sb.data_offset().bytes(),
        })
    });
    json!({
        "name": wanted.name,
        "set_name": first.map(Superblock::name),
        "uuid": first.map(|sb| text::uuid(sb.set_uuid())),
        "version": wanted.version.as_str(),
        "level": wanted.level.name(),
        "layout": first.and_then(Superblock::layout).filter(|l| *l != Layout::None).map(|l| l.name().into_owned()),
        "logical_block_bytes": first.and_then(Superblock::logical_block_size),
        "chunk_bytes": first.map(|sb| sb.chunk().bytes()),
        "raid_devices": wanted.raid_devices,
        "spare_devices": wanted.spares,
        "component_bytes": plan.component.bytes(),
        "array_bytes": array_bytes(&plan.geometry),
        "bitmap": bitmap.0,
        "bitmap_file": bitmap.1,
        "members": members.collect::<Vec<_>>(),
        "warnings": prepared.warnings(),
    })
}

fn array_bytes(geometry: &Geometry) -> u64 {
    geometry.array_sectors().bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_become_mdadms_names() {
        let named = |given| name(given).map_err(|_| ());
        assert_eq!(named("data"), Ok("data".into()));
        assert_eq!(named("md0"), Ok("md0".into()));
        assert_eq!(named("/dev/md0"), Ok("0".into()));
        assert_eq!(named("/dev/md/data"), Ok("data".into()));
        for bad in ["", "a/b", "/dev/md/", "a\nb", &"x".repeat(33)] {
            assert!(named(bad).is_err(), "{bad}");
        }
    }
}
