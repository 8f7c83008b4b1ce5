//! `lapstrake update`, `zero-superblock`, `dump` and `restore`: what members that nobody serves hold beside the data.

mod show;

use crate::exit::{Exit, Failure, Outcome};
use crate::{complete, create, options};
use lapstrake_device::{MemberSpec, quoted_path};
use lapstrake_geometry::{Raid0Layout, Sector, Version};
use lapstrake_host::edit::{
    self, BackupRequest, Edits, Record, UpdateRequest, Way, plan_backup, plan_update, plan_zero,
    restore,
};
use lapstrake_metadata::update::Update;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const UPDATE_HELP: &str = "\
Words, as mdadm --assemble --update has them (values follow a =):
  name=NAME              the array's name; --homehost HOST goes before it
  homehost=HOST          the host that the array belongs to
  uuid[=UUID]            the array's UUID; a random one if none is given
  resync                 all redundancy is computed anew at the next start
  bitmap, no-bitmap      a write-intent bitmap beside each superblock, or none
  bbl, no-bbl            room for a bad-block log, or none (a log with entries is kept)
  force-no-bbl           none, and its entries are forgotten
  ppl, no-ppl            partial parity logs (RAID5), or none
  layout-original, layout-alternate, layout-unspecified
                         what a RAID0 of unlike members records
  devicesize             members that have grown may hold data in all of it (1.1, 1.2)
  revert-reshape[=BYTE]  what a reshape has moved so far is moved back when the array is served; BYTE is where it has come
                         to, asked for where Linux records that seldom
  metadata               superblocks of 0.90 become such of 1.0
  byteorder              superblocks of 0.90 change to the other byte order
  super-minor=N          the N of /dev/mdN in superblocks of 0.90
  logical-block-size=BYTES|none
                         the smallest unit of a request (Linux 6.19 and newer; older ones refuse arrays that have it)

Examples:
  lapstrake update disk?.img --update name=films --dry-run
  lapstrake update disk?.img --update name=films
  lapstrake update /dev/sdb /dev/sdc /dev/sdd --update no-bitmap --keep before.edit
  lapstrake update disk?.img --backup-file grow.backup
  lapstrake update --undo before.edit
  lapstrake update --finish before.edit

Exit codes:
  0  all members are so (also if they were before), or --dry-run has shown what would change
  1  no member was written, unless the message says so
  2  usage";

const ZERO_HELP: &str = "\
Examples:
  lapstrake zero-superblock disk3.img
  lapstrake zero-superblock disk3.img --metadata 0.90 --dry-run

Exit codes:
  0  no member has a superblock any more (also if none had before)
  1  no member was written, unless the message says so
  2  usage";

const DUMP_HELP: &str = "\
Examples:
  mkdir saved && lapstrake dump saved disk?.img
  lapstrake restore saved disk?.img

Exit codes:
  0  each member's metadata are in the directory
  1  none are: a member has none, or a file of its name is there
  2  usage";

const RESTORE_HELP: &str = "\
Examples:
  lapstrake restore saved disk?.img --dry-run
  lapstrake restore saved/disk0.img disk0.img

Exit codes:
  0  each member's metadata are those of the dump (also if they were before)
  1  no member was written, unless the message says so
  2  usage";

/// How an edit is carried out.
#[derive(clap::Args)]
pub struct How {
    /// Show what would change, byte for byte, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Keep what is there in this new file, which can finish or undo the edit [default: one in this directory]
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Report in JSON
    #[arg(long)]
    pub json: bool,
}

/// Change what the superblocks of an array say that nobody serves, as mdadm --assemble --update does.
///
/// All of the array's members are given. Before the first is written, what is there and what will be there is kept in a
/// file; if a write fails, those before it are undone. After a power cut the file finishes the edit or undoes it, and
/// later it undoes it as long as the array has not been used. Only superblocks, bitmaps and logs change, never data, but with
/// --backup-file, which puts data in their place that a cut in the midst of a reshape destroyed.
#[derive(clap::Args)]
#[command(after_long_help = UPDATE_HELP)]
pub struct UpdateArgs {
    /// All members of the array; with --finish and --undo only if they have other names now
    #[arg(value_name = "MEMBER", value_parser = options::member(), add = complete::files(&[]), required_unless_present_any = ["finish", "undo"])]
    members: Vec<MemberSpec>,
    /// What to change; --help lists the words
    #[arg(short = 'U', long, value_name = "WORD[=VALUE]", required_unless_present_any = ["backup_file", "finish", "undo"], conflicts_with_all = ["finish", "undo"])]
    update: Option<String>,
    /// Put in its place what mdadm kept in this file, or at the end of this new member, before a reshape went over it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["update", "homehost", "finish", "undo"], value_parser = options::member(), add = complete::files(&[]))]
    backup_file: Option<MemberSpec>,
    /// With --backup-file: also if it was written at another time than the superblocks
    #[arg(long, requires = "backup_file")]
    force: bool,
    /// With name: the host that the array belongs to; "none" for none [default: this one]
    #[arg(long, value_name = "HOST")]
    homehost: Option<String>,
    /// A member may be missing: it keeps what it has, and may be none of this array's afterwards
    #[arg(long)]
    degraded: bool,
    /// Of members with superblocks of several arrays, those of this version
    #[arg(short = 'e', long, value_name = "VERSION")]
    metadata: Option<Version>,
    /// Write what this file's edit was to write
    #[arg(long, value_name = "FILE", conflicts_with_all = ["undo", "dry_run", "keep"])]
    finish: Option<PathBuf>,
    /// Write what was there before this file's edit
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dry_run", "keep"])]
    undo: Option<PathBuf>,
    #[command(flatten)]
    pub how: How,
}

/// Erase superblocks, so that the devices are members of no array any more.
///
/// What was there is kept in a file; `lapstrake update --undo FILE` writes it back. Data are not touched.
#[derive(clap::Args)]
#[command(after_long_help = ZERO_HELP)]
pub struct ZeroArgs {
    /// Members that nobody serves
    #[arg(required = true, value_name = "MEMBER", value_parser = options::member(), add = complete::files(&[]))]
    members: Vec<MemberSpec>,
    /// Erase those of this version only, also damaged ones
    #[arg(short = 'e', long, value_name = "VERSION")]
    metadata: Vec<Version>,
    #[command(flatten)]
    pub how: How,
}

/// Copy members' metadata into a directory of sparse files, as mdadm --dump does.
///
/// Each file is as long as its member and has its name; it holds the superblock, the bitmap, and the bad-block log if that
/// has entries. `mdadm --restore` reads it, too.
#[derive(clap::Args)]
#[command(after_long_help = DUMP_HELP)]
pub struct DumpArgs {
    /// A directory that is there
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    /// Members
    #[arg(required = true, value_name = "MEMBER", value_parser = options::member(), add = complete::files(&[]))]
    members: Vec<MemberSpec>,
    /// Report in JSON
    #[arg(long)]
    pub json: bool,
}

/// Write members' metadata back from a dump, as mdadm --restore does.
#[derive(clap::Args)]
#[command(after_long_help = RESTORE_HELP)]
pub struct RestoreArgs {
    /// The directory of a dump; for a single member also the file
    #[arg(value_name = "DIRECTORY")]
    from: PathBuf,
    /// Members that nobody serves, by the names that they had
    #[arg(required = true, value_name = "MEMBER", value_parser = options::member(), add = complete::files(&[]))]
    members: Vec<MemberSpec>,
    #[command(flatten)]
    pub how: How,
}

pub fn run_update(args: &UpdateArgs) -> Outcome {
    let brought = [(&args.finish, Way::Finish), (&args.undo, Way::Undo)];
    if let Some((Some(file), way)) = brought.into_iter().find(|(file, _)| file.is_some()) {
        return bring(args, file, way);
    }
    if let Some(file) = &args.backup_file {
        let edits = plan_backup(&BackupRequest {
            members: args.members.clone(),
            file: file.clone(),
            degraded: args.degraded,
            force: args.force,
            is_dry: args.how.dry_run,
            version: args.metadata,
        })?;
        return carry_out(&edits, &args.how);
    }
    let word = args.update.as_deref().unwrap_or_default();
    let update = read_update(word, args.homehost.as_deref())?;
    let edits = plan_update(&UpdateRequest {
        members: args.members.clone(),
        update,
        degraded: args.degraded,
        is_dry: args.how.dry_run,
        version: args.metadata,
    })?;
    carry_out(&edits, &args.how)
}

pub fn run_zero(args: &ZeroArgs) -> Outcome {
    let edits = plan_zero(&args.members, &args.metadata, args.how.dry_run)?;
    carry_out(&edits, &args.how)
}

pub fn run_dump(args: &DumpArgs) -> Outcome {
    let made = edit::dump(&args.directory, &args.members)?;
    if args.json {
        let line = |(member, file): (&MemberSpec, &PathBuf)| json!({ "member": member.exact(), "file": file });
        let all: Vec<_> = args.members.iter().zip(&made).map(line).collect();
        outln!("{:#}", json!({ "dumped": all }));
        return Ok(Exit::Done);
    }
    for (member, file) in args.members.iter().zip(&made) {
        outln!("{member} saved as {}", file.display());
    }
    Ok(Exit::Done)
}

pub fn run_restore(args: &RestoreArgs) -> Outcome {
    let edits = restore(&args.from, &args.members, args.how.dry_run)?;
    carry_out(&edits, &args.how)
}

fn bring(args: &UpdateArgs, file: &Path, way: Way) -> Outcome {
    let record = Record::load(file)?;
    let is_new = record.bring(file, way, &args.members)?;
    let done = if way == Way::Finish { "finished" } else { "undone" };
    if args.how.json {
        outln!("{:#}", json!({ "edit": record.what, "state": done, "changed": is_new }));
    } else {
        let already = if is_new { "" } else { " already" };
        outln!("{}: {done}{already}", record.what);
    }
    Ok(Exit::Done)
}

fn carry_out(edits: &Edits, how: &How) -> Outcome {
    let record = (!how.dry_run && !edits.is_empty())
        .then(|| how.keep.clone().unwrap_or_else(|| file_for(edits)));
    if let Some(record) = &record {
        edits.write(record)?;
    }
    if how.json {
        outln!("{:#}", show::json(edits, record.as_deref()));
        return Ok(Exit::Done);
    }
    if how.dry_run {
        out!("{}", show::text(edits));
    }
    let members = edits.edits.len();
    match record {
        _ if edits.is_empty() => outln!("{}: all members are so already", edits.what),
        None => outln!("{}: {members} members would change; nothing was written", edits.what),
        Some(record) => outln!(
            "{}: {members} members written; `lapstrake update --undo {}` writes back what was there",
            edits.what,
            quoted_path(&record)
        ),
    }
    Ok(Exit::Done)
}

/// A file that is not there yet.
fn file_for(edits: &Edits) -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let word = edits.what.rsplit(' ').next().unwrap_or_default();
    let name = |count: u32| {
        let more = if count == 0 { String::new() } else { format!("-{count}") };
        PathBuf::from(format!("lapstrake-{word}-{now}{more}.edit"))
    };
    (0..).map(name).find(|path| path.symlink_metadata().is_err()).expect("numbers do not end")
}

/// A word of mdadm's with its value.
fn read_update(text: &str, homehost: Option<&str>) -> Result<Update, Failure> {
    let (word, value) = match text.split_once('=') {
        Some((word, value)) => (word, Some(value)),
        None => (text, None),
    };
    let needed = || {
        value.ok_or_else(|| Failure::usage(format!("--update {word} takes a value: {word}=VALUE")))
    };
    let takes_none = |update: Update| match value {
        None => Ok(update),
        Some(_) => Err(Failure::usage(format!("--update {word} takes no value"))),
    };
    let wrong = |why: String| Failure::usage(format!("--update {text}: {why}"));
    let number = |text: &str| {
        text.parse::<u32>().map_err(|_| wrong(format!("{text:?} is no number below 2^32")))
    };
    match word {
        "name" => Ok(Update::Name { name: needed()?.into(), homehost: create::homehost(homehost) }),
        "homehost" => match create::homehost(value) {
            Some(host) => Ok(Update::Homehost(host)),
            None => Err(wrong("name a host; name=NAME with --homehost none has none".into())),
        },
        "uuid" => match value {
            Some(uuid) => options::uuid(uuid).map(Update::Uuid).map_err(wrong),
            None => random_uuid().map(Update::Uuid),
        },
        "resync" => takes_none(Update::Resync),
        "bbl" => takes_none(Update::Bbl),
        "no-bbl" => takes_none(Update::NoBbl),
        "force-no-bbl" => takes_none(Update::ForceNoBbl),
        "ppl" => takes_none(Update::Ppl),
        "no-ppl" => takes_none(Update::NoPpl),
        "bitmap" => takes_none(Update::Bitmap),
        "no-bitmap" => takes_none(Update::NoBitmap),
        "layout-original" => takes_none(Update::Raid0Layout(Raid0Layout::Original)),
        "layout-alternate" => takes_none(Update::Raid0Layout(Raid0Layout::Alternate)),
        "layout-unspecified" => takes_none(Update::Raid0Layout(Raid0Layout::Unset)),
        "devicesize" => takes_none(Update::DeviceSize),
        "revert-reshape" => {
            let sector = |text: &str| match text.parse::<u64>() {
                Ok(byte) if byte.is_multiple_of(512) => Ok(Sector(byte / 512)),
                _ => Err(wrong(format!("{text:?} is no byte where a sector begins"))),
            };
            value.map(sector).transpose().map(Update::RevertReshape)
        }
        "metadata" => takes_none(Update::Metadata),
        "byteorder" => takes_none(Update::ByteOrder),
        "super-minor" => Ok(Update::SuperMinor(number(needed()?)?)),
        "logical-block-size" => match needed()? {
            "none" => Ok(Update::LogicalBlockSize(None)),
            bytes => Ok(Update::LogicalBlockSize(Some(number(bytes)?))),
        },
        _ => Err(Failure::usage(format!(
            "--update {word}: no such word{}; --help lists them",
            options::near(word, WORDS)
        ))),
    }
}

const WORDS: &[&str] = &[
    "name",
    "homehost",
    "uuid",
    "resync",
    "bbl",
    "no-bbl",
    "force-no-bbl",
    "ppl",
    "no-ppl",
    "bitmap",
    "no-bitmap",
    "layout-original",
    "layout-alternate",
    "layout-unspecified",
    "devicesize",
    "revert-reshape",
    "metadata",
    "byteorder",
    "super-minor",
    "logical-block-size",
];

fn random_uuid() -> Result<[u8; 16], Failure> {
    let mut uuid = [0; 16];
    getrandom::fill(&mut uuid)
        .map_err(|error| Failure::new(format!("no random numbers: {error}")))?;
    Ok(uuid)
}
