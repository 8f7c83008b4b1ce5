//! Promise: requests are answered in the same way, and ends come to all that wait, whether the kernel hands requests over by
//! its device or by io_uring. What only the latter can show is left out where the kernel has it switched off.

use crate::support::{Served, Setup, has_fuse, has_ring};
use std::{
    fs::File,
    os::unix::fs::{FileExt, OpenOptionsExt},
    process::{Command, Stdio},
};

const MIB: usize = 1 << 20;

/// Bytes that the serving process has read by system calls, which those of the device are.
fn bytes_read(served: &Served) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{}/io", served.pid())).expect("its counters");
    let word = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    word.expect("one is of reads").parse().expect("a number")
}

#[test]
fn data_do_not_come_through_the_device() {
    if !has_fuse() || !has_ring("requests by io_uring") {
        return;
    }
    for shards in [1, 2] {
        let served = Setup { shards, ..Setup::default() }.serve();
        let file = served.open();
        let before = bytes_read(&served);
        for turn in 0..16 {
            file.write_all_at(&vec![turn; MIB], 4096).expect("writes");
        }
        let through_the_device = bytes_read(&served) - before;
        assert!(through_the_device < MIB as u64, "{through_the_device} bytes");
        let mut read = vec![0; MIB];
        file.read_exact_at(&mut read, 4096).expect("reads");
        assert!(read == vec![15; MIB]);
    }
}

#[test]
fn clients_that_are_killed_leave_the_others_served() {
    if !has_fuse() {
        return;
    }
    let faults = "op=read+write,delay=30ms".into();
    let mut served = Setup { shards: 2, faults, ..Setup::default() }.serve();
    let file = served.open();
    for _ in 0..3 {
        let start = |bs: &str| {
            let mut dd = Command::new("dd");
            dd.arg(format!("if={}", served.file.display())).args(["of=/dev/null", bs]);
            dd.args(["iflag=direct", "count=2000"]).stderr(Stdio::null()).spawn().expect("dd runs")
        };
        let mut clients = ["bs=1M", "bs=4k", "bs=4k", "bs=64k"].map(start);
        // Their requests lie among these.
        for at in 0..4u64 {
            file.write_all_at(&[at as u8; 5000], at * 100_001).expect("writes");
        }
        for client in &mut clients {
            client.kill().expect("it runs, or is not waited for yet");
            client.wait().expect("it ends");
        }
        for at in 0..4u64 {
            let mut read = [0xee; 5000];
            file.read_exact_at(&mut read, at * 100_001).expect("reads");
            assert_eq!(read, [at as u8; 5000]);
        }
    }
    drop(file);
    served.say("unmount");
    assert_eq!(served.hear(), "the mount has ended");
    assert_eq!(served.hear(), "unmounted");
    assert_eq!(served.end(), "stopped clean");
}

#[test]
fn who_waits_for_a_server_that_is_killed_gets_an_error() {
    if !has_fuse() {
        return;
    }
    let faults = "op=write,delay=600s".into();
    let mut served = Setup { shards: 2, faults, ..Setup::default() }.serve();
    let files: Vec<File> = (0..4).map(|_| served.open()).collect();
    let idle = served.open();
    let (begun, begins) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let writers: Vec<_> = files
            .iter()
            .map(|file| {
                let begun = begun.clone();
                scope.spawn(move || {
                    begun.send(()).expect("it is waited for");
                    file.write_all_at(&[1; 4096], 0)
                })
            })
            .collect();
        (0..writers.len()).for_each(|_| begins.recv().expect("they begin"));
        served.kill();
        for writer in writers {
            assert!(writer.join().expect("no panic").is_err());
        }
    });
    assert!(idle.read_at(&mut [0; 512], 0).is_err());
}

#[test]
fn two_files_of_one_server_show_the_same_bytes() {
    if !has_fuse() {
        return;
    }
    let served = Setup { shards: 2, twice: true, ..Setup::default() }.serve();
    let too = format!("{}-too", served.file.display());
    let mut direct = File::options();
    let direct = direct.read(true).write(true).custom_flags(libc::O_DSYNC);
    let (one, other) = (served.open(), direct.open(too).expect("opens"));
    for turn in 0..50u8 {
        let (from, to) = if turn % 2 == 0 { (&one, &other) } else { (&other, &one) };
        let at = u64::from(turn) * 7001;
        from.write_all_at(&[turn; 9000], at).expect("writes");
        let mut read = [0xee; 9000];
        to.read_exact_at(&mut read, at).expect("reads");
        assert_eq!(read, [turn; 9000]);
    }
}
