//! `lapstrake examine`.

mod extras;
mod json;
mod v090;
mod v1;

use crate::exit::{Exit, Outcome};
use crate::patience;
use crate::{complete, options};
use lapstrake_device::MemberSpec;
use lapstrake_host::scan::Look;
use lapstrake_metadata::Superblock;
use serde_json::{Value, json};
use tracing::error;

const HELP: &str = "\
Examples:
  lapstrake examine a.img b.img
  lapstrake examine --bitmap /dev/sdb1
  lapstrake examine --json disk.img@1M | jq '.[0].superblock.events'

Exit codes:
  0  every member holds an md superblock, and it was printed
  1  a member could not be read or did not answer within two minutes, or holds no superblock that md would take
  2  usage";

/// What is told of what holds no superblock that can be used.
const NO_SUPERBLOCK: &str = "no usable md superblock";

/// Print what members hold: superblocks, bitmaps, bad blocks, as stored.
///
/// The lines are those of mdadm --examine, in the same order. What mdadm does not tell follows
/// them: features that Lapstrake cannot act upon, superblocks that are damaged or superseded, RAID
/// metadata of others, filesystems. Nothing is locked, so members in use can be examined.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Files, block devices, or windows of them
    #[arg(required = true, value_name = "MEMBER", value_parser = options::member(), add = complete::files(&[]))]
    members: Vec<MemberSpec>,
    /// Print the write-intent bitmap instead, as mdadm --examine-bitmap; also of a bitmap file
    #[arg(short = 'X', long, conflicts_with = "badblocks")]
    bitmap: bool,
    /// Print the bad-block log instead, as mdadm --examine-badblocks
    #[arg(long)]
    badblocks: bool,
    /// Print all of it in JSON, an array with an object for each member
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args) -> Outcome {
    let mut all_well = true;
    let mut values = Vec::new();
    for spec in &args.members {
        let well = match patience::look(spec) {
            Ok(look) if args.json => {
                let value = json::member(&look, args.bitmap);
                let is_read = |part: &str| value[part].get("error").is_none();
                let well = match (args.bitmap, args.badblocks) {
                    (true, _) => is_read("bitmap"),
                    (_, is_log) => {
                        look.superblock().is_some() && (!is_log || is_read("bad_blocks"))
                    }
                };
                values.push(value);
                well
            }
            Ok(look) => {
                let (text, well) = text(args, &look);
                out!("{text}");
                well
            }
            Err(error) => {
                error!("{error}");
                values.push(json!({ "member": spec.exact(), "error": error.to_string() }));
                false
            }
        };
        all_well &= well;
    }
    if args.json {
        outln!("{:#}", Value::Array(values));
    }
    Ok(if all_well { Exit::Done } else { Exit::Failed })
}

/// What to print, and whether it is what was asked for.
fn text(args: &Args, look: &Look) -> (String, bool) {
    let printed = match (look.superblock(), args.bitmap, args.badblocks) {
        (superblock, true, _) => extras::bitmap(look, superblock),
        (Some(superblock), _, true) => extras::bad_blocks(look, superblock),
        (None, ..) => {
            error!("{}: {NO_SUPERBLOCK}", look.spec());
            return (extras::others(look, None), false);
        }
        (Some(superblock), ..) => {
            let lines = match superblock {
                Superblock::V1(sb) => v1::lines(look, superblock, sb),
                Superblock::V090(sb) => v090::lines(sb),
            };
            let head = format!("{}:\n", look.spec());
            return (head + &lines + &extras::others(look, Some(superblock)), true);
        }
    };
    match printed {
        Ok(text) => (text, true),
        Err(error) => {
            error!("{error}");
            (String::new(), false)
        }
    }
}
