//! The promise: whatever a seed's faults do, nothing is lost that was promised to be kept.

use lapstrake_sim::{Options, plan, run};
use std::{env, time::Instant};

fn must_end_well(seed: u64) {
    if let Err(failure) = run(seed, &Options::default()) {
        panic!("{failure}");
    }
}

#[test]
fn a_thousand_lifetimes_end_well() {
    // As many as there is time for where every test runs hundreds of times.
    let seeds = env::var("LAPSTRAKE_SIM_SEEDS").map_or(1000, |n| n.parse().expect("a number"));
    assert!(seeds > 0, "LAPSTRAKE_SIM_SEEDS=0 tests nothing");
    (0..seeds).for_each(must_end_well);
}

/// Of three thousand seeds one in fourteen has them.
#[test]
fn lifetimes_of_arrays_with_logs_end_well() {
    let seeds: Vec<u64> = (0..3000).filter(|&seed| plan(seed).log.is_some()).collect();
    assert!(seeds.len() > 200, "{} seeds", seeds.len());
    seeds.into_iter().for_each(must_end_well);
}

/// `LAPSTRAKE_SOAK=1 cargo test --release -p lapstrake-sim --test seeds -- --ignored --nocapture`, for
/// `LAPSTRAKE_SOAK_SECONDS` (an hour by default) from seed `LAPSTRAKE_SOAK_FROM` on.
#[test]
#[ignore = "runs for an hour, or as long as LAPSTRAKE_SOAK_SECONDS says"]
fn lifetimes_end_well_until_told_to_stop() {
    if env::var_os("LAPSTRAKE_SOAK").is_none() {
        return lapstrake_not_run::left_out(
            "simulated arrays until told to stop: LAPSTRAKE_SOAK is not set",
        );
    }
    let number = |name: &str, default| {
        env::var(name).map_or(default, |value| value.parse().expect("a number"))
    };
    let (seconds, from) =
        (number("LAPSTRAKE_SOAK_SECONDS", 3600), number("LAPSTRAKE_SOAK_FROM", 1000));
    let began = Instant::now();
    let mut seed = from;
    while began.elapsed().as_secs() < seconds {
        must_end_well(seed);
        seed += 1;
    }
    println!("seeds {from}..{seed} ended well");
}
