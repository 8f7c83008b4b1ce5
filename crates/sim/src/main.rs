//! Runs seeds: `--seeds FROM..TO`, or `--seed N` with `-v` to see every event. Stops at the first
//! failure, unless told to keep going with `-k`.

use lapstrake_sim::{Options, Outcome, plan, run};
use std::{ops::Range, process::ExitCode, time::Instant};

const USAGE: &str = "usage: lapstrake-sim (--seeds FROM..TO | --seed N) [-v] [-k]";

struct Asked {
    seeds: Range<u64>,
    options: Options,
    keep_going: bool,
}

fn parse(args: impl Iterator<Item = String>) -> Option<Asked> {
    let mut asked = Asked { seeds: 0..1000, options: Options::default(), keep_going: false };
    let mut args = args;
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seeds" => {
                let value = args.next()?;
                let (from, to) = value.split_once("..")?;
                asked.seeds = from.parse().ok()?..to.parse().ok()?;
            }
            "--seed" => {
                let seed = args.next()?.parse().ok()?;
                asked.seeds = seed..seed + 1;
            }
            "-v" => asked.options.trace = true,
            "-k" => asked.keep_going = true,
            _ => return None,
        }
    }
    Some(asked)
}

fn main() -> ExitCode {
    let Some(asked) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let began = Instant::now();
    let (mut total, mut failures) = (Outcome::default(), 0u32);
    for seed in asked.seeds.clone() {
        if asked.options.trace {
            eprintln!("seed {seed}: {}", plan(seed));
        }
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            eprintln!("seed {seed} failed: panic\n  {}", plan(seed));
            hook(info);
        }));
        let result = run(seed, &asked.options);
        // Back to the first one, or each seed would wrap the one before.
        drop(std::panic::take_hook());
        match result {
            Ok(outcome) => {
                total.member_ios += outcome.member_ios;
                total.sessions += outcome.sessions;
                total.cuts += outcome.cuts;
            }
            Err(failure) => {
                eprintln!("{failure}");
                failures += 1;
                if !asked.keep_going {
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{} seeds, {} sessions, {} power cuts, {} member I/Os in {seconds:.1} s: {:.0} a minute",
        asked.seeds.end - asked.seeds.start,
        total.sessions,
        total.cuts,
        total.member_ios,
        total.member_ios as f64 / seconds * 60.0,
    );
    if failures > 0 {
        println!("{failures} failed");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
