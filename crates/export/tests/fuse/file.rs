//! Promise: over FUSE the array behaves as a file of fixed size, at any offset and length.

use crate::support::{Served, Setup, has_fuse};
use lapstrake_geometry::Level;
use std::{
    fs::{File, Permissions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
};

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Option<i32> {
    result.expect_err("must fail").raw_os_error()
}

/// Draws below `bound`, from a fixed seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

fn fallocate(file: &File, mode: i32, range: std::ops::Range<u64>) -> io::Result<()> {
    let (start, len) = (range.start as i64, (range.end - range.start) as i64);
    // SAFETY: names no memory.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, start, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE | KEEP;

#[test]
fn it_is_a_private_file_of_the_arrays_size() {
    if !has_fuse() {
        return;
    }
    let served = Setup::default().serve();
    let meta = served.file.metadata().expect("stat");
    assert!(meta.is_file());
    assert_eq!(meta.permissions().mode() & 0o7777, 0o600);
    assert_eq!(meta.len() % (3 << 16), 0, "whole chunks of three members");
    assert!(meta.len() > 3 * (2 << 20));
    assert_eq!(meta.blocks() * 512, meta.len());
    let file = served.open();
    assert_eq!(file.read_at(&mut [0; 10], meta.len() - 3).expect("reads"), 3);
    assert_eq!(file.read_at(&mut [0; 10], meta.len()).expect("reads"), 0);
    assert_eq!(file.write_at(&[1; 10], meta.len() - 3).expect("writes in part"), 3);
    assert_eq!(errno(file.write_at(&[1; 10], meta.len())), Some(libc::ENOSPC));
    drop(file);
    assert_eq!(served.file.metadata().expect("stat").len(), meta.len());
    assert_eq!(served.end(), "the mount has ended");
}

#[test]
fn reads_give_what_was_written_at_any_offset_and_length() {
    if !has_fuse() {
        return;
    }
    for (level, shards) in [(Level::Raid0, 1), (Level::Raid5, 1), (Level::Raid5, 2)] {
        let served = Setup { level, shards, ..Setup::default() }.serve();
        let (plain, synced) = (served.open(), {
            let mut options = File::options();
            options.read(true).write(true).custom_flags(libc::O_DSYNC);
            options.open(&served.file).expect("opens")
        });
        let len = plain.metadata().expect("stat").len();
        let mut model = vec![0; len as usize];
        plain.write_all_at(&model, 0).expect("writes");
        let mut draw = Draw(level as u64);
        for turn in 0..400u64 {
            let bound = [16, 2000, 300_000, 3_000_000][draw.below(4) as usize];
            let start = draw.below(len);
            let end = (start + 1 + draw.below(bound)).min(len);
            let range = start as usize..end as usize;
            match draw.below(10) {
                0..5 => {
                    let fill: Vec<u8> =
                        range.clone().map(|at| (at as u64 * 7 + turn) as u8).collect();
                    let file = if turn % 3 == 0 { &synced } else { &plain };
                    file.write_all_at(&fill, start).expect("writes");
                    model[range].copy_from_slice(&fill);
                }
                5 => {
                    let mode = if turn % 2 == 0 { PUNCH } else { ZERO };
                    fallocate(&plain, mode, start..end).expect("zeroes");
                    model[range].fill(0);
                }
                6 => plain.sync_all().expect("flushes"),
                _ => {
                    let mut read = vec![0xee; range.len()];
                    plain.read_exact_at(&mut read, start).expect("reads");
                    assert!(read == model[range], "{level:?}, turn {turn}: {start}..{end}");
                }
            }
        }
        let mut read = vec![0xee; len as usize];
        plain.read_exact_at(&mut read, 0).expect("reads");
        assert!(read == model, "{level:?}: at the end");
    }
}

#[test]
fn writers_of_neighbouring_bytes_lose_nothing() {
    if !has_fuse() {
        return;
    }
    const WRITERS: usize = 8;
    const SLOT: usize = 37;
    const ROUNDS: usize = 40;
    let served = Setup::default().serve();
    let file = served.open();
    let piece = |writer: usize, round: usize| (round * WRITERS + writer) * SLOT;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let file = &file;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let bytes = [writer as u8 + 1; SLOT];
                    file.write_all_at(&bytes, piece(writer, round) as u64).expect("writes");
                }
            });
        }
    });
    let mut all = vec![0; WRITERS * ROUNDS * SLOT];
    file.read_exact_at(&mut all, 0).expect("reads");
    for (at, &byte) in all.iter().enumerate() {
        assert_eq!(usize::from(byte), at / SLOT % WRITERS + 1, "byte {at}");
    }
}

/// Requests of a MiB find memory for fifteen at a time; the others wait, and so do small ones among them.
#[test]
fn more_long_requests_than_there_is_memory_for_are_all_answered() {
    if !has_fuse() {
        return;
    }
    for shards in [1, 2] {
        let (member_bytes, faults) = (20 << 20, "op=read+write,delay=20ms".into());
        answers_many_long_requests(
            &Setup { shards, member_bytes, faults, ..Setup::default() }.serve(),
        );
    }
}

fn answers_many_long_requests(served: &Served) {
    const WRITERS: usize = 40;
    const LEN: usize = 1 << 20;
    let files: Vec<File> = (0..WRITERS).map(|_| served.open()).collect();
    std::thread::scope(|scope| {
        for (index, file) in files.iter().enumerate() {
            scope.spawn(move || {
                let (start, fill) = ((index * LEN) as u64, vec![index as u8 + 1; LEN]);
                for turn in 0..4 {
                    file.write_all_at(&fill, start).expect("writes");
                    file.write_all_at(&[turn], start + 700).expect("writes");
                    let mut read = vec![0; LEN];
                    file.read_exact_at(&mut read, start).expect("reads");
                    assert_eq!(
                        std::mem::replace(&mut read[700], fill[700]),
                        turn,
                        "writer {index}"
                    );
                    assert!(read == fill, "writer {index}, turn {turn}");
                }
            });
        }
    });
}

#[test]
fn zeroed_ranges_read_as_zeroes_and_their_neighbours_stay() {
    if !has_fuse() {
        return;
    }
    let served = Setup::default().serve();
    let file = served.open();
    let len = file.metadata().expect("stat").len();
    for mode in [PUNCH, ZERO] {
        for range in [0..512, 1..511, 100..5000, 511..513, 70_000..3_000_000, len - 700..len] {
            file.write_all_at(&vec![9; len as usize], 0).expect("writes");
            fallocate(&file, mode, range.clone()).expect("zeroes");
            let mut read = vec![0xee; len as usize];
            file.read_exact_at(&mut read, 0).expect("reads");
            for (at, &byte) in read.iter().enumerate() {
                let zeroed = range.contains(&(at as u64));
                assert_eq!(byte, if zeroed { 0 } else { 9 }, "{mode} {range:?}: byte {at}");
            }
        }
    }
    fallocate(&file, 0, 0..len).expect("all is allocated");
    assert_eq!(errno(fallocate(&file, 0, 0..len + 1)), Some(libc::ENOSPC));
    let unknown = libc::FALLOC_FL_COLLAPSE_RANGE;
    assert_eq!(errno(fallocate(&file, unknown, 0..4096)), Some(libc::EOPNOTSUPP));
}

#[test]
fn its_size_and_mode_are_not_for_changing() {
    if !has_fuse() {
        return;
    }
    let served = Setup::default().serve();
    let file = served.open();
    let len = file.metadata().expect("stat").len();
    file.write_all_at(b"kept", 4096).expect("writes");
    // What shells and dd do before they write.
    drop(File::create(&served.file).expect("O_TRUNC is ignored"));
    file.set_len(len).expect("no change");
    assert_eq!(errno(file.set_len(len / 2)), Some(libc::EPERM));
    assert_eq!(errno(file.set_permissions(Permissions::from_mode(0o644))), Some(libc::EPERM));
    assert_eq!(served.file.metadata().expect("stat").len(), len);
    let mut read = [0; 4];
    file.read_exact_at(&mut read, 4096).expect("reads");
    assert_eq!(&read, b"kept");
}

#[test]
fn direct_io_and_shared_mappings_see_the_same_bytes() {
    if !has_fuse() {
        return;
    }
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    let served = Setup::default().serve();
    let file = served.open();
    let mut options = File::options();
    let direct = options.read(true).write(true).custom_flags(libc::O_DIRECT);
    let direct = direct.open(&served.file).expect("opens");
    let mut page = Page([3; 4096]);
    direct.write_all_at(&page.0, 8192).expect("writes");
    file.read_exact_at(&mut page.0[..10], 8200).expect("reads");
    assert_eq!(page.0[..10], [3; 10]);
    let (flags, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
    // SAFETY: a new mapping of 4096 bytes, used within them and unmapped once.
    unsafe {
        let map = libc::mmap(std::ptr::null_mut(), 4096, flags, libc::MAP_SHARED, fd, 8192);
        if map == libc::MAP_FAILED {
            // Kernels before 6.6.
            return crate::support::not_run("shared mappings: this kernel's FUSE has none here");
        }
        let bytes: *mut u8 = map.cast();
        assert_eq!(bytes.read_volatile(), 3);
        bytes.write_volatile(4);
        assert_eq!(libc::msync(map, 4096, libc::MS_SYNC), 0);
        libc::munmap(map, 4096);
    }
    direct.read_exact_at(&mut page.0, 8192).expect("reads");
    assert_eq!(page.0[..2], [4, 3]);
}

#[test]
fn a_flush_reaches_the_members_and_so_do_their_errors() {
    if !has_fuse() {
        return;
    }
    let faults = "member=1,op=flush,errno=EIO".into();
    let served = Setup { faults, ..Setup::default() }.serve();
    let file = served.open();
    file.write_all_at(&[1; 4096], 0).expect("a write alone needs no flush");
    assert_eq!(errno(file.sync_all()), Some(libc::EIO));
    drop((file, served));
    // The array's first chunk lies on the first member, behind its superblock.
    let faults = "member=0,op=read,after=60,errno=EIO".into();
    let served = Setup { faults, ..Setup::default() }.serve();
    let file = served.open();
    let is_eio = |error: io::Error| error.raw_os_error() == Some(libc::EIO);
    let failed = (0..120).any(|_| file.read_at(&mut [0; 4096], 0).is_err_and(is_eio));
    assert!(failed, "a member's error is the reader's");
}

#[test]
fn a_read_only_array_is_a_read_only_file() {
    if !has_fuse() {
        return;
    }
    let served = Setup { read_only: true, ..Setup::default() }.serve();
    let meta = served.file.metadata().expect("stat");
    assert_eq!(meta.permissions().mode() & 0o7777, 0o400);
    let file = File::open(&served.file).expect("opens");
    file.read_exact_at(&mut [0; 100], 5).expect("reads");
    let writing = File::options().write(true).open(&served.file);
    assert_eq!(errno(writing), Some(libc::EROFS));
}
