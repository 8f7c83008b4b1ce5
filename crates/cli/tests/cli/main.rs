//! What the command promises, a file for each promise. One program, so that tests that wait do so together.

mod advise;
mod bitmaps;
mod cat;
mod control;
mod create;
mod deduce;
mod deleted;
mod disk;
mod examine;
mod faults;
mod firmware;
mod fuse_overlay;
mod gateway;
mod generate;
mod growing_in_place;
mod growth_plans;
mod guides;
mod journal;
mod kernel;
mod kills;
mod kills_under_fio;
mod lab;
mod lab_md;
mod lab_plans;
mod lab_run;
mod lockless;
mod look;
mod members;
mod mending;
mod mistakes;
mod names;
mod nbd;
mod nested;
mod on_record;
mod predict;
mod replace;
mod rescue;
mod reshape;
mod reshaping;
mod reshaping_raid10;
mod scan;
mod scrub;
mod serve;
mod service;
mod sizes;
mod slips;
mod soak_serve;
mod superblocks;
mod support;
mod takeovers;
mod tuning;
mod ublk;
mod unknown;
mod updates;
mod vhost_user;
mod whole_disks;
mod widths;
mod words;
mod write_hole;

#[path = "../../../export/tests/server/support/client.rs"]
#[allow(dead_code, reason = "its own tests use all of it")]
mod client;

/// Longer than anything takes here.
const BOUND: std::time::Duration = std::time::Duration::from_secs(60);
