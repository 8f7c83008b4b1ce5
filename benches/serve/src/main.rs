//! Whole arrays beside the peers: served over NBD against nbdkit, driven in process against
//! fio's io_uring on the same files.
//!
//! Gates (with `--gate`, medians of interleaved rounds, members on tmpfs): over NBD beside `nbdkit file`, RAID0 of 4 at least
//! 1.1 times in streams of 1 MiB, and in 4 KiB requests at random 0.95 times at depth 1, 0.9 at depth 4, 1.3 at depth 32; RAID5
//! of 4 0.7 times in a stream of writes, and in small ones 0.7, 0.5 and 0.6 at these depths; RAID10 of 4 0.7 in small writes
//! at depth 4; in process, sequential 1 MiB writes and reads of RAID0, RAID5 and
//! RAID10 at least 0.9 times fio's io_uring on the same files together, parity and copies
//! counted (one stream, three requests a shard; fio's at depth 4 on each file); no
//! more context switches a request at depth 1 than nbdkit; resident memory below 64 MiB plus stripe
//! cache and buffers; RAID0 by vhost-user at least 3 times itself over NBD in 4 KiB requests at depth 32, 1.5 times at
//! depth 1, from one shard (these alone: --vhost-user). The root disk is shown, not gated: its spread is 100 %.

mod arrays;
mod budget;
mod client;
mod direct;
mod fio;
mod nbd;
mod report;
mod vhost_user;

use arrays::{Kind, Place};
use nbd::Gates;
use report::Report;
use std::{process::ExitCode, time::Duration};

/// How long and how often.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    rounds: usize,
    time: Duration,
    member_mib: u64,
}

fn main() -> ExitCode {
    let has = |wanted: &str| std::env::args().any(|arg| arg == wanted);
    let quick = has("--quick");
    let plan = Plan {
        rounds: if quick { 1 } else { 5 },
        time: Duration::from_millis(if quick { 200 } else { 2000 }),
        member_mib: if quick { 64 } else { 256 },
    };
    if has("--budget") {
        budget::print(&plan);
        return ExitCode::SUCCESS;
    }
    let mut report = Report::default();
    let memory = Place::tmpfs();
    vhost_user::compare(&plan, &memory, Kind::Raid0Of4, true, &mut report);
    vhost_user::compare(&plan, &memory, Kind::Raid5Of4, false, &mut report);
    if has("--vhost-user") {
        return report.end(has("--gate"));
    }
    let small = [0.95, 0.9, 1.3].map(Some);
    let raid0 = Gates { streams: [Some(1.1); 2], reads: small, writes: small };
    let raid5 =
        Gates { streams: [Some(0.7), None], writes: [0.7, 0.5, 0.6].map(Some), ..Gates::default() };
    let raid10 = Gates { writes: [None, Some(0.7), None], ..Gates::default() };
    let nbd_arrays = [
        (Kind::Raid0Of4, raid0),
        (Kind::Raid5Of4, raid5),
        (Kind::Raid6Of6, Gates::default()),
        (Kind::Raid10Of4, raid10),
    ];
    for (kind, gates) in nbd_arrays {
        nbd::compare(&plan, &memory, kind, gates, &mut report);
    }
    for kind in [Kind::Raid0Of4, Kind::Raid5Of4, Kind::Raid10Of4] {
        direct::compare(&plan, &memory, kind, Some(0.9), &mut report);
    }
    direct::compare(&plan, &Place::root_disk(), Kind::Raid0Of4, None, &mut report);
    report.end(has("--gate"))
}
