//! `lapstrake set`.

use crate::exit::{Exit, Failure, Outcome};
use crate::on_top::{OnTop, on_top};
use crate::options::kib;
use crate::target::Target;
use crate::{complete, options};
use lapstrake::control::{Request, Set};
use serde_json::{Map, Value, json};

const HELP: &str = "\
Settings:
  sync_speed_min     KiB/s that a sync action has of each member even while clients are busy
  sync_speed_max     KiB/s that it has at most; 0 is no limit
  check_window       part of the local day in which a check or repair goes on, or \"always\"; outside of it
                     one that was begun waits
  stripe_cache_size  pages of 4 KiB for each member, in each shard, from 32 to 32768: what work on stripes
                     may hold at once
  read_ahead         KiB (or with a unit) of the loop devices on the array's FUSE file. The array has none of its
                     own; a client's nbd device is set with blockdev --setra. `lapstrake detail` says what fits

Examples:
  lapstrake set data check_window=22:00-06:00 && lapstrake check data
  lapstrake set data sync_speed_max=50000
  lapstrake set data sync_speed_min=100000 sync_speed_max=0
  lapstrake set data stripe_cache_size=4096 read_ahead=4M

Exit codes:
  0  all are set
  1  none is, unless the message says so: one is out of range, or the array is not served
  2  usage";

/// The setting that is not the server's.
const READ_AHEAD: &str = "read_ahead";
const CACHE: &str = "stripe_cache_size";
/// All of them.
const SETTINGS: &[&str] = &["sync_speed_min", "sync_speed_max", "check_window", CACHE, READ_AHEAD];

/// Change settings of an array that is being served, until it is stopped.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    #[command(flatten)]
    pub target: Target,
    /// What to set
    #[arg(required = true, value_name = "KEY=VALUE", value_parser = setting, add = complete::keys(SETTINGS))]
    settings: Vec<(String, Value)>,
}

fn setting(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("not KEY=VALUE")?;
    let value = match key {
        "sync_speed_min" | "sync_speed_max" => speed(value)?.into(),
        CACHE => value.parse::<u64>().map_err(|_| format!("{value:?} is not a number"))?.into(),
        READ_AHEAD => match kib(value)? {
            bytes if bytes.is_multiple_of(4096) => (bytes >> 10).into(),
            _ => return Err(format!("{value} is no whole number of pages of 4 KiB")),
        },
        "check_window" => value.into(),
        _ => {
            let like = options::near(key, SETTINGS);
            return Err(format!("no setting {key:?}{like}; --help lists them"));
        }
    };
    Ok((key.to_owned(), value))
}

/// Reads KiB/s.
fn speed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        let meant = text.trim_end_matches("/s");
        let kib = kib(meant).ok().filter(|_| meant.ends_with(|c: char| c.is_ascii_alphabetic()));
        let like = kib.map_or(String::new(), |bytes| format!("; did you mean {}?", bytes >> 10));
        format!("{text:?} is not a number of KiB/s{like}")
    })
}

pub fn run(args: &Args) -> Outcome {
    let target = &args.target;
    let mut settings: Map<String, Value> = args.settings.iter().cloned().collect();
    let read_ahead = settings.remove(READ_AHEAD).and_then(|kib| kib.as_u64());
    let devices = match read_ahead {
        Some(_) => loops(target)?,
        None => Vec::new(),
    };
    let mut now = Map::new();
    if !settings.is_empty() {
        if let Some(size) = settings.get(CACHE).filter(|size| size.as_u64() > Some(u32::MAX.into()))
        {
            return Err(Failure::new(format!(
                "{}: {CACHE}: {size} is no number of pages below 2^32; nothing was changed",
                target.name
            )));
        }
        let settings = serde_json::from_value(Value::Object(settings))?;
        let Set { settings } = target.ask(&Request::Set { settings })?;
        now = serde_json::from_value(serde_json::to_value(settings)?)?;
    }
    if let Some(kib) = read_ahead {
        for device in &devices {
            device.set_read_ahead_kib(kib).map_err(Failure::new)?;
        }
        let set = |device: &OnTop| (device.name(), Value::from(kib));
        now.insert(READ_AHEAD.into(), devices.iter().map(set).collect::<Map<_, _>>().into());
    }
    tell(target, &now);
    Ok(Exit::Done)
}

/// The loop devices whose read-ahead is the array's.
fn loops(target: &Target) -> Result<Vec<OnTop>, Failure> {
    let view = target.detail(None)?;
    let devices = on_top(&view);
    if devices.is_empty() {
        return Err(Failure::new(format!(
            "{}: read_ahead: no loop device lies on it. A served array has no read-ahead of its own: a kernel's device \
             on it has, and that of an NBD client is set where the client is, with `blockdev --setra {} DEVICE`; \
             nothing was changed",
            target.name,
            view.tuning.read_ahead_bytes / 512
        )));
    }
    Ok(devices)
}

fn tell(target: &Target, settings: &Map<String, Value>) {
    if target.json {
        return outln!("{}", json!({ "name": target.name, "settings": settings }));
    }
    for (key, value) in settings {
        match value {
            Value::Object(devices) => {
                for (device, kib) in devices {
                    outln!("{}: {key} of {device}={kib}", target.name);
                }
            }
            Value::String(text) => outln!("{}: {key}={text}", target.name),
            other => outln!("{}: {key}={other}", target.name),
        }
    }
}
