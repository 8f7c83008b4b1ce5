//! The cold write: what one write of 4 KiB waits for while its array rests, marked clean.
//!
//! Where members' writes and flushes are held back for a known time, latency over that time is how many of them go one
//! after the other, the write's own included.

use super::{Files, MIB, Place, median_of};
use lapstrake_geometry::Level;
use lapstrake_host::{Array, ArrayIo};
use std::{
    process::Command,
    time::{Duration, Instant},
};

const BLOCK: u64 = 4096;
/// Sectors under a bit differ from write to write.
const CHUNK: u32 = MIB;
const DELAY_MS: u32 = 5;
const SAMPLES: u64 = 20;

#[repr(align(4096))]
struct Block([u8; BLOCK as usize]);

static DATA: Block = Block([7; BLOCK as usize]);

/// Milliseconds of one write, once the array is marked clean.
fn write(array: &Array, io: &ArrayIo, at: u64) -> f64 {
    let is_clean = || array.handle().detail().expect("it runs").state_text().starts_with("clean");
    while !is_clean() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let began = Instant::now();
    // SAFETY: a static of one block.
    let answer = unsafe { io.write(DATA.0.as_ptr(), at, BLOCK) };
    answer.recv().expect("it runs").expect("no member fails here");
    began.elapsed().as_secs_f64() * 1e3
}

/// One array of this process, whose environment says by how much its members are held back.
pub(crate) fn run(dir: &str) {
    for (name, level, members) in [("RAID1 of 2", Level::Raid1, 2), ("RAID5 of 4", Level::Raid5, 4)]
    {
        let files = Files::new(dir, level, members);
        for (bitmap, place) in [("none", Place::None), ("internal", Place::Internal)] {
            let array = files.with(Place::None, (place, CHUNK));
            let data = members as u64 - 1;
            let chunk = u64::from(CHUNK) * data;
            let io = array.handle().array_io();
            let first = write(&array, &io, 0);
            let (mut clear, mut set): (Vec<f64>, Vec<f64>) = Default::default();
            for at in (1..=SAMPLES).map(|sample| sample * chunk) {
                clear.push(write(&array, &io, at));
                set.push(write(&array, &io, at));
            }
            println!(
                "| {name}, bitmap {bitmap} | {first:.2} | {:.2} | {:.2} |",
                median_of(&mut clear),
                median_of(&mut set)
            );
            assert!(array.stop(), "the array was left active");
            files.create(level);
        }
    }
}

/// All places, each in a process of its own.
pub(crate) fn table() {
    let delayed = format!("op=write+flush,delay={DELAY_MS}ms");
    let places = [
        (format!("tmpfs, each write and flush held back for {DELAY_MS} ms"), "/dev/shm", delayed),
        ("tmpfs".to_owned(), "/dev/shm", String::new()),
        ("root disk".to_owned(), "/var/tmp", String::new()),
    ];
    for (name, dir, faults) in places {
        println!("\n{name} (ms, medians of {SAMPLES}):\n");
        println!("| array | first since the start | bit not set | bit set |\n|---|---|---|---|");
        let own = std::env::current_exe().expect("this program has a path");
        let mut child = Command::new(own);
        let status = child.args(["--cold-in", dir]).env("LAPSTRAKE_FAULT", faults).status();
        assert!(status.expect("it runs").success(), "{name} failed");
    }
}
