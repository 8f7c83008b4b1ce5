//! The promise: whatever a seed's faults do, nothing is lost that was promised to be kept.

use lapstrake_sim::{Options, run};

#[test]
fn a_thousand_fates_end_well() {
    for seed in 0..1000 {
        if let Err(failure) = run(seed, &Options::default()) {
            panic!("{failure}");
        }
    }
}
