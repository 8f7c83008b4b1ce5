//! `lapstrake advise`: what to build of given disks for a load.

use crate::complete;
use crate::exit::{Exit, Failure, Outcome};
use crate::lab::{page_to_come, write};
use crate::options::bytes;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lapstrake_lab::advise::{
    self, Advice, Care, Disk, Load, PRESETS, Question, Wishes, disks_of, loads_of_plan, on_cable,
    preset,
};
use lapstrake_lab::predict::{DEFAULT_PROCESSOR, processor_profile, profile_named};
use lapstrake_lab::{TEXT_MAX, read_text};
use std::path::{Path, PathBuf};

const HELP: &str = "\
Examples:
  lapstrake advise --disk hdd-4tbx4 --load file-server
  lapstrake advise --disk hdd-4tbx2 --disk hdd-20tbx2@310 --load backup --capacity 8T --loss 0.1%
  lapstrake advise --disk ST340015Ax3 --cable ST340015A-1,ST340015A-2@66M --load media
  lapstrake advise --disk a.toml --disk b.toml --load plans/quick.toml -o advice.html

Disks:
  PROFILE is the name of a built-in profile (`lapstrake disk list`) or a file (`lapstrake disk measure` makes one).
  xN: so many; @PRICE: what each costs. Not all of them need to be used. A file for --disks holds entries such as
  [[disk]] with profile, count, price and name.

Exit codes:
  0  something meets every wish
  1  failed
  2  usage
  3  nothing that was tried meets every wish; what comes nearest is told";

/// Say what to build of these disks for this load, and why.
///
/// Levels, layouts, chunks, subsets of the disks, short-stroked windows and hot spares are enumerated; what is promising
/// is tried by the real engine on models of the disks; safety is estimated from how such disks fail. No disk is touched.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Disks to build of
    #[arg(long = "disk", value_name = "PROFILE[xN][@PRICE]", add = complete::profiles())]
    disk: Vec<String>,
    /// A TOML file of disks
    #[arg(long, value_name = "FILE")]
    disks: Option<PathBuf>,
    /// Disks that share an ATA cable, which a command keeps until it ends, by their names in answers (PROFILE-N)
    #[arg(long = "cable", value_name = "NAME,NAME[@RATE]")]
    cable: Vec<String>,
    #[arg(long = "load", value_name = "NAME|PLAN", required = true, help = load_help())]
    load: Vec<String>,
    /// What it must offer at least
    #[arg(long, value_name = "SIZE", value_parser = bytes, allow_hyphen_values = true)]
    capacity: Option<u64>,
    /// What every load must do at least, a second
    #[arg(long, value_name = "SIZE", value_parser = bytes, allow_hyphen_values = true)]
    speed: Option<u64>,
    /// How likely losing any data over the years may be
    #[arg(
        long, value_name = "P", default_value = "1%", value_parser = share, allow_hyphen_values = true
    )]
    loss: f64,
    /// Single sectors may be lost: --loss is about the array as a whole
    #[arg(long)]
    sectors_may_go: bool,
    /// Arrays may do without a write-intent bitmap: after a crash all of one is resynced
    #[arg(long)]
    bitmap_may_go: bool,
    /// What the disks may cost
    #[arg(long, value_name = "PRICE", allow_negative_numbers = true)]
    budget: Option<f64>,
    /// For how long it must last
    #[arg(long, value_name = "YEARS", default_value_t = 5.0, allow_negative_numbers = true)]
    years: f64,
    /// Hours from a failure until a new disk is in the machine
    #[arg(long, value_name = "HOURS", default_value_t = 72.0, allow_negative_numbers = true)]
    replace: f64,
    /// Days between scrubs; 0: nobody scrubs
    #[arg(long, value_name = "DAYS", default_value_t = 30.0, allow_negative_numbers = true)]
    scrub: f64,
    /// Hot spares beside the disks named
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    spares: usize,
    /// On what it will run: a processor's profile
    #[arg(long, value_name = "PROCESSOR", default_value = DEFAULT_PROCESSOR)]
    processor: String,
    /// From which everything random is drawn
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
    /// Write the answer there as well: *.html; it replaces a page of Lapstrake's, nothing else
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Report in JSON
    #[arg(long)]
    pub json: bool,
}

fn load_help() -> String {
    let names: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
    format!("What it is for: {}, or a plan of the lab for its workloads", names.join(", "))
}

/// Reads "1%" or "0.01".
fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text, 1.0),
    };
    let share = number.trim().parse::<f64>().map(|number| number * unit);
    share.ok().filter(|share| *share > 0.0 && *share <= 1.0).ok_or_else(|| {
        format!(
            "{text:?} is no probability; it must be more than 0 and at most 1, such as 0.1% or 1e-5"
        )
    })
}

pub fn run(args: &Args) -> Outcome {
    if args.disk.is_empty() && args.disks.is_none() {
        let why = "there are no disks; name some with --disk PROFILE[xN][@PRICE] (`lapstrake disk list` lists the \
                   built-in profiles), or a file of them with --disks FILE";
        return Err(Failure::usage(why));
    }
    page_to_come(args.output.as_deref())?;
    let question = question(args)?;
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} tried");
    bar.set_style(style.expect("the template is sound"));
    let advice = advise::advise(&question, &|done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let advice = advice.map_err(Failure::usage)?;
    if args.json {
        outln!("{:#}", advise::json(&question, &advice));
    } else {
        out!("{}", advise::text(&question, &advice));
    }
    if let Some(path) = &args.output {
        write(Some(path), &advise::page(&question, &advice))?;
    }
    Ok(if is_met(&advice) { Exit::Done } else { Exit::Degraded })
}

fn is_met(advice: &Advice) -> bool {
    advice.choice.pick.is_some_and(|pick| advice.tried[pick].misses.is_empty())
}

fn question(args: &Args) -> Result<Question, Failure> {
    let loads = loads(args)?;
    let processor = processor_profile(&args.processor).map_err(Failure::usage)?;
    // What anything offers is no wish.
    let capacity = args.capacity.filter(|&capacity| capacity > 0);
    let least = args.speed.filter(|&speed| speed > 0).map(|speed| speed as f64);
    Ok(Question {
        disks: disks(args)?,
        wishes: Wishes {
            capacity,
            speeds: vec![least; loads.len()],
            loss: args.loss,
            sectors_may_go: args.sectors_may_go,
            bitmap_may_go: args.bitmap_may_go,
            budget: args.budget,
        },
        loads,
        care: Care {
            years: args.years,
            replace_hours: args.replace,
            // What is no time is refused with the rest of the question.
            scrub_hours: (args.scrub != 0.0).then_some(args.scrub * 24.0),
            spares: args.spares,
        },
        processor: processor.build().map_err(Failure::usage)?,
        seed: args.seed,
    })
}

fn disks(args: &Args) -> Result<Vec<Disk>, Failure> {
    let read = |path: &PathBuf| {
        let failed = |error| Failure::usage(format!("{}: cannot read it: {error}", path.display()));
        read_text(path, TEXT_MAX).map_err(failed)
    };
    let text = args.disks.as_ref().map(read).transpose()?;
    let file = args.disks.as_deref().zip(text.as_deref());
    let disks = disks_of(&args.disk, file, &profile_named).map_err(Failure::usage)?;
    let put = |disks, cable: &String| on_cable(disks, cable, &|rate| bytes(rate));
    args.cable.iter().try_fold(disks, put).map_err(Failure::usage)
}

fn loads(args: &Args) -> Result<Vec<Load>, Failure> {
    let mut loads = Vec::new();
    for name in &args.load {
        match preset(name) {
            Some(preset) => loads.extend(preset),
            None if Path::new(name).exists() => {
                loads.extend(loads_of_plan(Path::new(name)).map_err(Failure::usage)?);
            }
            None => {
                let known: Vec<String> =
                    PRESETS.iter().map(|(name, what)| format!("  {name}: {what}")).collect();
                let known = known.join("\n");
                let why = format!("{name}: no such load, and no file. There are:\n{known}");
                return Err(Failure::usage(why));
            }
        }
    }
    Ok(loads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_shares_or_percents() {
        assert_eq!(share("1%"), Ok(0.01));
        assert_eq!(share("1e-5"), Ok(1e-5));
        for bad in ["", "%", "0", "101%", "-1%", "x"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }
}
