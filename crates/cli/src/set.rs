//! `lapstrake set`.

use crate::exit::{Exit, Outcome};
use crate::target::Target;
use serde_json::{Map, Value, json};

const HELP: &str = "\
Settings:
  sync_speed_min  KiB/s that a sync action has of each member even while clients are busy
  sync_speed_max  KiB/s that it has at most; 0 is no limit
  check_window    part of the local day in which a check or repair goes on, or \"always\"; outside of it
                  one that was begun waits

Examples:
  lapstrake set data check_window=22:00-06:00 && lapstrake check data
  lapstrake set data sync_speed_max=50000
  lapstrake set data sync_speed_min=100000 sync_speed_max=0

Exit codes:
  0  all are set
  1  none is: one is not known or out of range, or the array is not served
  2  usage";

/// Change settings of an array that is being served, until it is stopped.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    #[command(flatten)]
    pub target: Target,
    /// What to set
    #[arg(required = true, value_name = "KEY=VALUE", value_parser = setting)]
    settings: Vec<(String, Value)>,
}

fn setting(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("not KEY=VALUE")?;
    let value = match key {
        "sync_speed_min" | "sync_speed_max" => {
            value.parse::<u64>().map_err(|_| format!("{value:?} is not a number of KiB/s"))?.into()
        }
        // The server knows which there are.
        _ => value.into(),
    };
    Ok((key.to_owned(), value))
}

pub fn run(args: &Args) -> Outcome {
    let target = &args.target;
    let settings: Map<String, Value> = args.settings.iter().cloned().collect();
    let reply = target.ask(&json!({ "command": "set", "settings": settings }))?;
    let settings = &reply["settings"];
    if target.json {
        println!("{}", json!({ "name": target.name, "settings": settings }));
    } else {
        for (key, value) in settings.as_object().into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            println!("{}: {key}={value}", target.name);
        }
    }
    Ok(Exit::Done)
}
