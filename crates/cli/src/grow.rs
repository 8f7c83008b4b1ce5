//! `lapstrake grow`: what mdadm's `--grow` changes of a served array.

use crate::exit::{Exit, Failure, Outcome};
use crate::options;
use crate::target::Target;
use lapstrake::control::{BitmapLocation, BitmapPlace, Grown, Request};
use lapstrake_host::create::NewBitmap;
use serde_json::json;

const HELP: &str = "\
Examples:
  lapstrake grow data --bitmap internal
  lapstrake grow data --bitmap internal --bitmap-chunk 16M
  lapstrake grow data --bitmap none

Exit codes:
  0  it is so, and recorded on all members (also if it was so before)
  1  it is as it was: a recovery or check runs, there is no room, or the array is not served
  2  usage";

/// Add, remove or resize the write-intent bitmap of an array that is being served.
///
/// Clients go on meanwhile. A new internal bitmap goes where mdadm puts it; the least chunk depends on the
/// room beside the superblocks. Another chunk or place means that the old bitmap is taken away first: if the
/// power is cut just then, the array starts without one, and is resynced as a whole. One that is in a file is
/// taken away by --bitmap none before there can be another file.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    #[command(flatten)]
    pub target: Target,
    /// Where to have it: internal, none, or a file to make (its name has a '/')
    #[arg(short, long, required = true, value_name = "internal|none|FILE", value_parser = options::bitmap())]
    bitmap: NewBitmap,
    /// What a bit of it stands for, a bare number is KiB [default: as it is, for a new one as mdadm]
    #[arg(long, value_name = "SIZE", value_parser = options::kib)]
    bitmap_chunk: Option<u64>,
    /// So many writes may be answered before write-mostly members have them (RAID1); 0: none
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "256")]
    write_behind: Option<u32>,
    /// Write over the bitmap's file if there is one
    #[arg(short, long)]
    force: bool,
}

pub fn run(args: &Args) -> Outcome {
    let target = &args.target;
    let bitmap = match &args.bitmap {
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
