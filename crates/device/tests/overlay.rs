//! Promise: beneath an overlay members are never written, everything written is there, and what was
//! flushed survives.

mod common;

use common::{Buffer, Caller, byte_at, everywhere, file, places};
use lapstrake_device::overlay::{BaseId, FormatError, overlay};
use lapstrake_device::{
    Access, Backend, Completion, Faults, Member, MemberSpec, Op, OverlayError, Queue,
};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

fn base(spec: &str, id: u8) -> (Arc<Member>, BaseId) {
    let spec: MemberSpec = spec.parse().unwrap();
    let member = Arc::new(Member::open(&spec, Access::ReadOnly).unwrap());
    let size = member.size();
    (member, BaseId { size, stamp: [1, 2], id: [id; 32] })
}

fn layered(path: &Path, bases: Vec<(Arc<Member>, BaseId)>) -> Vec<Arc<Member>> {
    overlay(path, bases).unwrap().into_iter().map(Arc::new).collect()
}

fn refused(path: &Path, bases: Vec<(Arc<Member>, BaseId)>) -> OverlayError {
    overlay(path, bases).unwrap_err()
}

fn random(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*seed >> 33) as usize
}

/// Two members whose sizes are no multiple of a block, one a window, and what they hold.
fn pair(dir: &Path) -> ([PathBuf; 2], [String; 2], [Vec<u8>; 2]) {
    let paths = [file(dir, "a", 2 * MIB + 1536), file(dir, "b", 3 * MIB)];
    let specs = [paths[0].display().to_string(), format!("{}@4608+2M", paths[1].display())];
    let a = (0..2 * MIB + 1536).map(byte_at).collect();
    let b = (4608..4608 + 2 * MIB).map(byte_at).collect();
    (paths, specs, [a, b])
}

fn open_pair(dir: &Path, specs: &[String; 2]) -> Vec<Arc<Member>> {
    layered(&dir.join("overlay"), vec![base(&specs[0], 1), base(&specs[1], 2)])
}

/// One random operation, done to the members and to the model. False: it was a discard, after which the
/// model takes over what is there.
fn step(caller: &mut Caller, model: &mut [Vec<u8>; 2], seed: &mut u64) {
    let member = random(seed) % 2;
    let sectors = model[member].len() / 512;
    let first = random(seed) % sectors;
    let count = (1 + random(seed) % 40).min(sectors - first);
    let (offset, len) = (first as u64 * 512, count * 512);
    let range = first * 512..first * 512 + len;
    match random(seed) % 10 {
        0..5 => {
            let bytes: Vec<u8> = (0..len).map(|_| random(seed) as u8).collect();
            let fua = random(seed).is_multiple_of(8);
            assert_eq!(caller.write(member, offset, &bytes, fua), len as i32);
            model[member][range].copy_from_slice(&bytes);
        }
        5..7 => {
            let (len, may_unmap) = (len as u64, random(seed).is_multiple_of(2));
            assert_eq!(caller.call(Op::WriteZeroes { member, offset, len, may_unmap }), 0);
            model[member][range].fill(0);
        }
        7 => {
            assert_eq!(caller.call(Op::Discard { member, offset, len: len as u64 }), 0);
            let now = caller.read(member, offset, len).unwrap();
            model[member][range].copy_from_slice(&now);
        }
        8 => assert_eq!(caller.call(Op::Flush { member }), 0),
        _ => assert_eq!(caller.read(member, offset, len).unwrap(), model[member][range]),
    }
}

fn same(caller: &mut Caller, model: &[Vec<u8>; 2]) {
    for (member, bytes) in model.iter().enumerate() {
        assert!(caller.read(member, 0, bytes.len()).unwrap() == *bytes, "member {member}");
    }
}

#[test]
fn random_operations_agree_with_a_model_and_with_the_next_opening() {
    everywhere(|dir, backend| {
        let (paths, specs, mut model) = pair(dir);
        let before = paths.each_ref().map(|path| std::fs::read(path).unwrap());
        let mut seed = 7;
        for round in 0..4 {
            let mut caller = Caller::new(open_pair(dir, &specs), backend);
            same(&mut caller, &model);
            for _ in 0..300 {
                step(&mut caller, &mut model, &mut seed);
            }
            same(&mut caller, &model);
            assert_eq!(caller.call(Op::Flush { member: round % 2 }), 0);
        }
        for (path, before) in paths.iter().zip(&before) {
            assert!(std::fs::read(path).unwrap() == *before, "{} was written", path.display());
        }
        std::fs::remove_file(dir.join("overlay")).unwrap();
    });
}

#[test]
fn what_was_flushed_is_in_the_file_whatever_came_after() {
    everywhere(|dir, backend| {
        let (_, specs, mut model) = pair(dir);
        let mut caller = Caller::new(open_pair(dir, &specs), backend);
        let mut seed = 99;
        for _ in 0..10 {
            for _ in 0..60 {
                step(&mut caller, &mut model, &mut seed);
            }
            assert_eq!(caller.call(Op::Flush { member: 0 }), 0);
            // The file as a killed server leaves it at this moment.
            let copy = dir.join("copy");
            std::fs::copy(dir.join("overlay"), &copy).unwrap();
            let members = layered(&copy, vec![base(&specs[1], 2), base(&specs[0], 1)]);
            let mut other = Caller::new(members.into_iter().rev(), backend);
            same(&mut other, &model);
            std::fs::remove_file(copy).unwrap();
        }
        std::fs::remove_file(dir.join("overlay")).unwrap();
    });
}

#[test]
fn several_queues_write_parts_of_the_same_blocks_without_loss() {
    everywhere(|dir, backend| {
        let (_, specs, _) = pair(dir);
        let members = open_pair(dir, &specs);
        // Each thread owns every fourth sector, so that nearly every block is begun by several at once.
        std::thread::scope(|scope| {
            for mine in 0..4u64 {
                let members = members.clone();
                scope.spawn(move || {
                    let mut caller = Caller::new(members, backend);
                    for nth in 0..500u64 {
                        let sector = nth * 4 + mine;
                        let wrote = caller.write(0, sector * 512, &[mine as u8 + 1; 512], false);
                        assert_eq!(wrote, 512);
                    }
                });
            }
        });
        let mut caller = Caller::new(members, backend);
        let read = caller.read(0, 0, 2000 * 512).unwrap();
        assert!((0..2000 * 512).all(|at| read[at] as usize == at / 512 % 4 + 1));
        std::fs::remove_file(dir.join("overlay")).unwrap();
    });
}

#[test]
fn metadata_helpers_see_and_write_the_overlay() {
    for dir in places() {
        let (paths, specs, mut model) = pair(dir.path());
        let members = open_pair(dir.path(), &specs);
        let mut seed = 3;
        for _ in 0..200 {
            let member = random(&mut seed) % 2;
            let len = 1 + random(&mut seed) % 9000;
            let at = random(&mut seed) % (model[member].len() - len);
            let bytes: Vec<u8> = (0..len).map(|_| random(&mut seed) as u8).collect();
            members[member].write_at(at as u64, &bytes).unwrap();
            model[member][at..at + len].copy_from_slice(&bytes);
            let from = at.saturating_sub(700);
            let mut read = vec![0; len.min(model[member].len() - from)];
            members[member].read_at(from as u64, &mut read).unwrap();
            assert_eq!(read, model[member][from..from + read.len()]);
        }
        members[0].sync_all().unwrap();
        let whole = std::fs::read(&paths[1]).unwrap();
        assert!((0..3 * MIB).all(|i| whole[i] == byte_at(i)));
        drop(members);
        let members = open_pair(dir.path(), &specs);
        for (member, model) in members.iter().zip(&model) {
            let mut read = vec![0; model.len()];
            member.read_at(0, &mut read).unwrap();
            assert!(read == *model);
            assert!(member.read_at(model.len() as u64, &mut [0]).is_err());
            assert!(member.writable() && !member.direct());
        }
    }
}

#[test]
fn the_file_is_sparse() {
    for dir in places() {
        let path = dir.path().join("large");
        // A table of 2 GiB, and a member that no memory holds.
        std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let spec = path.display().to_string();
        let at = dir.path().join("overlay");
        let mut caller = Caller::new(layered(&at, vec![base(&spec, 1)]), Backend::Threads);
        for offset in [0, 1 << 39, (1 << 40) - 4096] {
            assert_eq!(caller.write(0, offset, &[5; 4096], true), 4096);
        }
        let len = 1 << 30;
        assert_eq!(caller.call(Op::WriteZeroes { member: 0, offset: 0, len, may_unmap: true }), 0);
        assert_eq!(caller.call(Op::Flush { member: 0 }), 0);
        drop(caller);
        let taken = std::fs::metadata(&at).unwrap().blocks() * 512;
        assert!(taken < 4 << 20, "{taken} bytes");
        let mut caller = Caller::new(layered(&at, vec![base(&spec, 1)]), Backend::Threads);
        assert_eq!(caller.read(0, 1 << 39, 4096).unwrap(), [5; 4096]);
        assert_eq!(caller.read(0, 0, 8192).unwrap(), [0; 8192]);
        assert_eq!(caller.read(0, (1 << 39) + 4096, 512).unwrap(), [0; 512]);
    }
}

#[test]
fn a_file_over_other_members_is_refused_and_left_as_it_is() {
    let dir = &places()[0];
    let (_, specs, _) = pair(dir.path());
    let path = dir.path().join("overlay");
    let both = || vec![base(&specs[0], 1), base(&specs[1], 2)];
    drop(layered(&path, both()));
    let before = std::fs::read(&path).unwrap();

    let error = refused(&path, vec![base(&specs[0], 1), base(&specs[1], 3)]);
    assert!(matches!(error, OverlayError::Foreign { .. }), "{error}");
    let error = refused(&path, vec![base(&specs[0], 1)]);
    assert!(matches!(error, OverlayError::Absent { bases: 2, absent: 1, .. }), "{error}");
    let error = refused(&path, vec![base(&specs[0], 1), base(&specs[1], 2), base(&specs[1], 2)]);
    assert!(matches!(error, OverlayError::Foreign { .. }), "{error}");
    let error = refused(&path, vec![base(&specs[0], 2), base(&specs[1], 1)]);
    assert!(matches!(error, OverlayError::Resized { .. }), "{error}");
    let mut changed = both();
    changed[1].1.stamp = [1, 3];
    let error = refused(&path, changed);
    assert!(matches!(error, OverlayError::Changed { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);

    let held = layered(&path, both());
    let error = refused(&path, both());
    assert!(matches!(error, OverlayError::Busy { .. }), "{error}");
    drop(held);
    drop(layered(&path, both().into_iter().rev().collect()));
}

#[test]
fn what_is_no_overlay_is_refused_and_left_as_it_is() {
    let dir = &places()[0];
    let (paths, specs, _) = pair(dir.path());
    let bases = || vec![base(&specs[0], 1)];
    let error = refused(&paths[0], bases());
    assert!(matches!(error, OverlayError::IsMember { .. }), "{error}");
    let other = file(dir.path(), "other", 9000);
    let error = refused(&other, bases());
    assert!(matches!(error, OverlayError::Format { error: FormatError::Magic, .. }), "{error}");
    assert_eq!(std::fs::read(&other).unwrap(), (0..9000).map(byte_at).collect::<Vec<u8>>());
    let error = refused(Path::new("/dev/null"), bases());
    assert!(matches!(error, OverlayError::Kind { .. }), "{error}");
    let error = refused(&dir.path().join("not/there"), bases());
    assert!(matches!(error, OverlayError::Io { action: "open it", .. }), "{error}");
}

#[test]
fn a_damaged_table_is_refused() {
    let dir = &places()[0];
    let (_, specs, _) = pair(dir.path());
    let path = dir.path().join("overlay");
    let bases = || vec![base(&specs[0], 1)];
    let mut caller = Caller::new(layered(&path, bases()), Backend::Threads);
    assert_eq!(caller.write(0, 0, &[1; 8192], true), 8192);
    drop(caller);
    // One block of header, two of tables, two of data.
    let damage = |entry: u64, value: u64| {
        let copy = dir.path().join("copy");
        std::fs::copy(&path, &copy).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&copy).unwrap();
        file.write_all_at(&value.to_le_bytes(), 4096 + entry * 8).unwrap();
        match refused(&copy, bases()) {
            OverlayError::Format { error, .. } => error,
            other => panic!("{other}"),
        }
    };
    assert!(matches!(damage(5, 2), FormatError::Entry { found: 2, .. }));
    let found = path.metadata().unwrap().len();
    assert_eq!(damage(5, 7000), FormatError::Truncated { found, needed: 7001 * 4096 });
    assert!(matches!(damage(5, u64::MAX), FormatError::Entry { .. }));
    assert!(matches!(damage(5, 4), FormatError::Shared(4)));
    assert!(matches!(damage(513, 1), FormatError::Entry { .. }), "behind the last block");
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(3 * 4096).unwrap();
    let cut = refused(&path, bases()).to_string();
    assert!(cut.contains("it was cut short") && cut.contains("must have 20480"), "{cut}");
}

/// What would be lost: what was cut off, for zeroes.
#[test]
fn an_overlay_that_becomes_shorter_gives_no_zeroes_and_is_refused() {
    for dir in &places() {
        let (_, specs, model) = pair(dir.path());
        let path = dir.path().join("overlay");
        let mut caller = Caller::new(open_pair(dir.path(), &specs), Backend::Auto);
        let len = 256 << 10;
        for at in 0..6 {
            assert_eq!(caller.write(0, at * len, &[7; 256 << 10], false), len as i32);
        }
        assert_eq!(caller.call(Op::Flush { member: 0 }), 0);
        let whole = path.metadata().unwrap().len();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(whole / 2).unwrap();
        // As a write does that was under way.
        file.set_len(whole - 4096).unwrap();
        // It would make the file longer still.
        assert_eq!(caller.write(1, 0, &[8; 4096], false), -libc::EIO);
        assert_eq!(caller.read(0, 5 * len, 4096), Err(-libc::EIO));
        assert_eq!(caller.call(Op::Flush { member: 1 }), -libc::EIO);
        file.set_len(2 * whole).unwrap();
        assert_eq!(caller.read(0, 5 * len, 4096), Err(-libc::EIO));
        assert_eq!(caller.read(0, 0, 4096).unwrap(), [7; 4096]);
        assert_eq!(caller.read(1, 4096, 4096).unwrap(), model[1][4096..8192]);
        drop(caller);
        let error = refused(&path, vec![base(&specs[0], 1), base(&specs[1], 2)]);
        assert!(error.to_string().contains("it was cut off while it was served"), "{error}");
    }
}

#[test]
fn faults_of_a_member_act_above_its_overlay() {
    let dir = &places()[0];
    let (_, specs, model) = pair(dir.path());
    let faults = Faults::parse("op=write,after=1,count=1,errno=EIO; op=read,range=1M+4K,vanish");
    let spec: MemberSpec = specs[0].parse().unwrap();
    let member = Member::open(&spec, Access::ReadOnly).unwrap();
    let id = BaseId { size: member.size(), stamp: [0; 2], id: [1; 32] };
    let member = Arc::new(member.with_faults(faults.unwrap().layers(0)));
    let members = layered(&dir.path().join("overlay"), vec![(member, id)]);
    let mut caller = Caller::new(members, Backend::Auto);
    assert_eq!(caller.write(0, 512, &[1; 512], false), 512);
    assert_eq!(caller.write(0, 512, &[2; 512], false), -libc::EIO);
    assert_eq!(caller.write(0, 4096, &[2; 512], false), 512);
    assert_eq!(caller.read(0, 0, 512).unwrap(), model[0][..512]);
    assert_eq!(caller.read(0, 512, 512).unwrap(), [1; 512]);
    assert_eq!(caller.read(0, MIB as u64, 512), Err(-libc::ENODEV));
}

const CHILD: &str = "LAPSTRAKE_TEST_OVERLAY";
/// Sectors that each round of the child writes, all with the round's number.
const ROUND: u64 = 24;

/// Not a test of its own: writes, flushes and says so until it is killed.
#[test]
fn child_that_is_killed() {
    let Some(dir) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let spec = dir.join("m").display().to_string();
    let members = layered(&dir.join("overlay"), vec![base(&spec, 1)]);
    let mut caller = Caller::new(members, Backend::Auto);
    let mut buffer = Buffer::new(512, 0);
    for round in 1u64.. {
        let mut seed = round;
        for _ in 0..ROUND {
            buffer.bytes_mut()[..8].copy_from_slice(&round.to_le_bytes());
            let sector = random(&mut seed) as u64 % 2048;
            assert_eq!(caller.write(0, sector * 512, buffer.bytes(), false), 512);
        }
        assert_eq!(caller.call(Op::Flush { member: 0 }), 0);
        println!("flushed {round}");
        std::io::stdout().flush().unwrap();
    }
}

#[test]
fn flushed_writes_survive_a_kill() {
    for dir in places() {
        let path = dir.path().join("m");
        std::fs::write(&path, vec![0; MIB]).unwrap();
        let mut expected = vec![0u64; 2048];
        for kill in 0..4 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "child_that_is_killed", "--nocapture"])
                .env(CHILD, dir.path())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let rounds =
                lines.filter_map(|line| line.unwrap().strip_prefix("flushed ")?.parse().ok());
            let last: u64 = rounds.take(5 + kill * 7).last().unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            for round in 1..=last {
                let mut seed = round;
                for _ in 0..ROUND {
                    expected[random(&mut seed) % 2048] = round;
                }
            }
            let spec = path.display().to_string();
            let members = layered(&dir.path().join("overlay"), vec![base(&spec, 1)]);
            let mut caller = Caller::new(members, Backend::Auto);
            let read = caller.read(0, 0, MIB).unwrap();
            for (sector, expected) in expected.iter_mut().enumerate() {
                let bytes = &read[sector * 512..][..8];
                let found = u64::from_le_bytes(bytes.try_into().unwrap());
                // Rounds begin anew with each child, so only what is later in this child, or was there
                // before it, can be seen.
                let later = found > last;
                assert!(found == *expected || later, "{sector}: {found}, not {expected}");
                *expected = found;
            }
        }
        assert_eq!(std::fs::read(&path).unwrap(), vec![0; MIB]);
    }
}

/// A helper ends its work in the last turn of a busy loop, after which nothing comes that would wake it.
#[test]
fn no_completion_is_missed_by_a_loop_that_was_busy() {
    everywhere(|dir, backend| {
        let (_, specs, _) = pair(dir);
        let mut members = open_pair(dir, &specs);
        members.push(Arc::new(Member::memory(4096)));
        let mut queue = Queue::new(members, backend, 32).unwrap();
        let (mut buffer, mut done, mut turns) = (Buffer::new(512, 0), Vec::new(), usize::MAX);
        let is_over = |done: &[Completion]| done.iter().any(|completion| completion.token == 1);
        for round in 0..20_000 {
            let iov = [buffer.iov()];
            // SAFETY: the buffer lives until the operation has ended, below.
            unsafe { queue.submit(1, Op::Read { member: 0, offset: 0, iov: &iov }) };
            let mut taken = 0;
            while taken < turns && !is_over(&done) {
                // SAFETY: a flush names no memory.
                unsafe { queue.submit(2, Op::Flush { member: 2 }) };
                queue.wait(&mut done, None).unwrap();
                taken += 1;
            }
            let began = Instant::now();
            while !is_over(&done) {
                queue.wait(&mut done, Some(Duration::from_secs(6))).unwrap();
            }
            assert!(began.elapsed() < Duration::from_secs(5), "{backend:?}: missed in {round}");
            // Every other time as many turns as the helper needed the last time.
            turns = if turns == usize::MAX { taken } else { usize::MAX };
            done.clear();
        }
    });
}

/// What of a block could not be read and was not written stays so when the overlay is continued; what was written does not.
#[test]
fn what_was_written_over_what_could_not_be_read_is_there_again() {
    for dir in places() {
        let (_, specs, model) = pair(dir.path());
        let open = || {
            let spec: MemberSpec = specs[0].parse().unwrap();
            let member = Member::open(&spec, Access::ReadOnly).unwrap();
            let id = BaseId { size: member.size(), stamp: [0; 2], id: [1; 32] };
            let unread = [8192..12288, 12288..20480];
            let member = Arc::new(member.with_unread(&unread));
            Caller::new(layered(&dir.path().join("overlay"), vec![(member, id)]), Backend::Auto)
        };
        let check = |caller: &mut Caller| {
            assert_eq!(caller.read(0, 8192, 512), Err(-libc::EIO));
            assert_eq!(caller.read(0, 8704, 1024).unwrap(), [1; 1024]);
            assert_eq!(caller.read(0, 9728, 512), Err(-libc::EIO));
            assert_eq!(caller.read(0, 12288, 4096).unwrap(), [0; 4096]);
            assert_eq!(caller.read(0, 16384, 512), Err(-libc::EIO));
            assert_eq!(caller.read(0, 20480, 512).unwrap(), model[0][20480..][..512]);
        };
        let mut caller = open();
        assert_eq!(caller.write(0, 8704, &[1; 512], true), 512);
        assert_eq!(caller.write(0, 9216, &[1; 512], true), 512);
        let zeroes = Op::WriteZeroes { member: 0, offset: 12288, len: 4096, may_unmap: true };
        assert_eq!(caller.call(zeroes), 0);
        assert_eq!(caller.call(Op::Flush { member: 0 }), 0);
        check(&mut caller);
        drop(caller);
        let mut caller = open();
        check(&mut caller);
        assert_eq!(caller.write(0, 8192, &[2; 4096], true), 4096);
        drop(caller);
        assert_eq!(open().read(0, 8192, 4096).unwrap(), [2; 4096]);
    }
}
