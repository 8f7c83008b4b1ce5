//! Promise: an array beneath an overlay is written like any other, and not one byte of its members
//! changes; the overlay's file alone carries everything over to the next start.

use crate::support::client::Client;
use crate::support::load::Load;
use crate::support::members::{digest, superblock};
use crate::support::{MIB, Rig, Server, everywhere, start_server, until};
use lapstrake_device::OverlayError;
use lapstrake_geometry::Level;
use lapstrake_host::OpenArrayError;
use lapstrake_not_run::not_run;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const LEVELS: [(Level, u16); 6] = [
    (Level::Linear, 2),
    (Level::Raid0, 3),
    (Level::Raid1, 2),
    (Level::Raid5, 4),
    (Level::Raid6, 5),
    (Level::Raid10, 4),
];

fn digests(members: &[PathBuf]) -> Vec<u64> {
    members.iter().map(|path| digest(path)).collect()
}

/// An array that was in use: data in its first MiB, stopped.
fn used(rig: &Rig) -> Server {
    let mut server = Rig { overlay: None, ..rig.clone() }.serve();
    let mut client = server.unix();
    assert_eq!(client.write(0, &vec![0xE7; MIB as usize]), 0);
    client.disconnect();
    assert!(server.stop());
    server
}

fn with_overlay(rig: &Rig, server: &Server) -> Rig {
    Rig { overlay: Some(server.dir.path().join("overlay")), ..rig.clone() }
}

#[test]
fn members_are_never_written_and_all_is_there_after_a_restart() {
    everywhere(2, |backend, shards| {
        for (level, disks) in LEVELS {
            let bitmap = level.has_redundancy();
            let base = Rig {
                backend,
                shards,
                bitmap,
                member_bytes: 12 * MIB,
                chunk: None,
                ..Rig::new(level, disks)
            };
            let first = used(&base);
            let rig = with_overlay(&base, &first);
            let before = digests(&first.members);
            let mut server = rig.serve_in(&first.dir, &first.members);
            let mut client = server.unix();
            assert_eq!(client.read(0, MIB as usize), Ok(vec![0xE7; MIB as usize]));
            let load = Load::start(server.tcp(), 2 * MIB..6 * MIB, 61);
            assert_eq!(client.write(MIB / 2, &vec![1; 4096 + 512]), 0);
            assert_eq!(client.zero(0, 65536), 0);
            load.wait_for(200);
            load.finish();
            let kept = client.read(2 * MIB, 4 * MIB as usize).expect("reads");
            client.disconnect();
            assert!(server.stop(), "{level:?}: {:?}", server.said());
            assert!(digests(&server.members) == before, "{level:?}: a member was written");

            // The members in another order, as somebody may plug them in.
            let mut order = first.members.clone();
            order.reverse();
            let mut server = rig.serve_in(&first.dir, &order);
            let mut client = server.unix();
            let mut head = vec![0xE7; MIB as usize];
            head[..65536].fill(0);
            head[MIB as usize / 2..][..4608].fill(1);
            assert!(client.read(0, MIB as usize) == Ok(head), "{level:?}");
            assert!(client.read(2 * MIB, 4 * MIB as usize) == Ok(kept), "{level:?}");
            assert_eq!(client.write(0, &[9; 512]), 0);
            client.disconnect();
            assert!(server.stop());
            assert!(digests(&first.members) == before, "{level:?}: a member was written");
            // And without the overlay it is as it was.
            let again = base.serve_in(&first.dir, &first.members);
            let expected = vec![0xE7; MIB as usize];
            assert!(again.unix().read(0, MIB as usize) == Ok(expected), "{level:?}");
        }
    });
}

#[test]
fn readers_of_the_members_are_not_kept_out_and_writers_are() {
    let base = Rig::new(Level::Raid5, 3);
    let first = used(&base);
    let rig = with_overlay(&base, &first);
    let server = rig.serve_in(&first.dir, &first.members);
    let other = Rig { overlay: Some(first.dir.path().join("another")), ..base.clone() };
    let second = other.serve_in(&first.dir, &first.members);
    // Each has its own version.
    assert_eq!(server.unix().write(0, &[1; 4096]), 0);
    assert_eq!(second.unix().write(0, &[2; 4096]), 0);
    assert_eq!(server.unix().read(0, 4096), Ok(vec![1; 4096]));
    assert_eq!(second.unix().read(0, 4096), Ok(vec![2; 4096]));
    assert!(matches!(base.open(&first.members), Err(OpenArrayError::Devices(_))));
    // The same overlay twice is refused.
    let error = rig.open(&first.members).expect_err("is in use");
    assert!(matches!(error, OpenArrayError::Overlay(OverlayError::Busy { .. })), "{error}");
}

#[test]
fn an_overlay_of_other_members_is_refused_and_kept() {
    let base = Rig::new(Level::Raid1, 2);
    let first = used(&base);
    let rig = with_overlay(&base, &first);
    let mut server = rig.serve_in(&first.dir, &first.members);
    assert_eq!(server.unix().write(0, &[1; 4096]), 0);
    assert!(server.stop());
    let overlay = rig.overlay.clone().expect("has one");
    let before = digest(&overlay);
    let refused = |members: &[PathBuf]| match rig.open(members).expect_err("is refused") {
        OpenArrayError::Overlay(error) => error,
        other => panic!("{other}"),
    };

    let other = used(&Rig { member_bytes: 32 * MIB, ..base.clone() });
    let error = refused(&other.members);
    assert!(
        matches!(error, OverlayError::Foreign { .. } | OverlayError::Resized { .. }),
        "{error}"
    );
    assert!(matches!(refused(&first.members[..1]), OverlayError::Absent { absent: 1, .. }));
    assert_eq!(digest(&overlay), before);

    // Somebody uses the members themselves, in another second: the overlay no longer fits them.
    let (noted, _) = superblock(&first.members[0]).utime();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    until("the next second", || now() > noted + 1);
    let mut server = base.serve_in(&first.dir, &first.members);
    assert_eq!(server.unix().write(8 * MIB, &[3; 4096]), 0);
    assert!(server.stop());
    let error = refused(&first.members);
    assert!(matches!(error, OverlayError::Changed { .. }), "{error}");
    assert_eq!(digest(&overlay), before);

    // A file that is something else, and one of the members.
    let rig = Rig { overlay: Some(first.members[0].clone()), ..base.clone() };
    let error = rig.open(&first.members).expect_err("is refused");
    assert!(matches!(error, OpenArrayError::Overlay(OverlayError::IsMember { .. })), "{error}");
    let text = first.dir.path().join("letter");
    std::fs::write(&text, "Dear reader, this is no overlay at all.").expect("writes");
    let rig = Rig { overlay: Some(text.clone()), ..base };
    let error = rig.open(&first.members).expect_err("is refused");
    assert!(matches!(error, OpenArrayError::Overlay(OverlayError::Format { .. })), "{error}");
    assert_eq!(std::fs::read(&text).expect("reads").len(), 39);
}

#[test]
fn a_refused_assembly_makes_no_overlay() {
    let base = Rig::new(Level::Raid5, 3);
    let first = used(&base);
    let rig = with_overlay(&base, &first);
    assert!(matches!(rig.open(&first.members[..2]), Err(OpenArrayError::Refused { .. })));
    assert!(!rig.overlay.as_ref().expect("has one").exists());
    let server = rig.serve_in(&first.dir, &first.members);
    assert_eq!(server.unix().write(0, &[1; 512]), 0);
}

/// A server killed amid writes, with one member gone too: what mdadm takes with --force only.
fn wreck(rig: &Rig) -> Server {
    let mut server = rig.serve();
    let mut client = server.unix();
    assert_eq!(client.write(0, &vec![0xE7; MIB as usize]), 0);
    assert_eq!(client.flush(), 0);
    // As the power cut leaves it: copies of the members while they are active.
    let copies: Vec<PathBuf> = server
        .members
        .iter()
        .map(|path| {
            let copy = path.with_extension("cut");
            std::fs::copy(path, &copy).expect("copies");
            copy
        })
        .collect();
    assert!(copies.iter().all(|path| !superblock(path).clean()));
    client.disconnect();
    assert!(server.stop());
    server.members = copies;
    server
}

#[test]
fn a_dirty_degraded_array_is_rescued_by_force_without_touching_its_members() {
    everywhere(2, |backend, shards| {
        let base = Rig { backend, shards, ..Rig::new(Level::Raid5, 4) };
        let wreck = wreck(&base);
        let left = &wreck.members[..3];
        let before = digests(left);
        let mut rig = with_overlay(&base, &wreck);
        rig.degraded = true;
        assert!(matches!(rig.open(left), Err(OpenArrayError::Refused { .. })), "needs --force");
        rig.force = true;
        let mut server = rig.serve_in(&wreck.dir, left);
        let mut client = server.unix();
        assert_eq!(client.read(0, MIB as usize), Ok(vec![0xE7; MIB as usize]));
        let load = Load::start(server.tcp(), 2 * MIB..6 * MIB, 71);
        load.wait_for(200);
        load.finish();
        client.disconnect();
        assert!(server.stop(), "{:?}", server.said());
        assert!(digests(left) == before, "a member was written");
        // The overlay's superblocks are clean now: no force is needed any more.
        rig.force = false;
        let server = rig.serve_in(&wreck.dir, left);
        assert_eq!(server.unix().read(0, MIB as usize), Ok(vec![0xE7; MIB as usize]));
        drop(server);
        assert!(digests(left) == before, "a member was written");
        assert!(left.iter().all(|path| !superblock(path).clean()));
    });
}

#[test]
fn a_member_that_fails_is_recorded_in_the_overlay_only() {
    everywhere(2, |backend, shards| {
        let base = Rig { backend, shards, ..Rig::new(Level::Raid1, 2) };
        let first = used(&base);
        let before = digests(&first.members);
        let mut rig = with_overlay(&base, &first);
        rig.faults = "member=1,op=write,range=1M+1G,errno=EIO".into();
        let mut server = rig.serve_in(&first.dir, &first.members);
        assert_eq!(server.unix().write(0, &[4; 4096]), 0);
        assert!(server.stop());
        assert!(digests(&first.members) == before);
        rig.faults.clear();
        let opened = rig.open(&first.members).expect("opens");
        assert_eq!(opened.parts.plan.members.len(), 1, "the other is stale, as the overlay says");
        drop(opened);
        let opened = base.open(&first.members).expect("opens");
        assert_eq!(opened.parts.plan.members.len(), 2, "which the members do not know");
    });
}

/// Runs a program: its exit code; none, said aloud, if it is not installed.
fn run(program: &str, args: &[&Path]) -> Option<i32> {
    let path = format!("/usr/bin:/usr/sbin:/sbin:{}", std::env::var("PATH").unwrap_or_default());
    match Command::new(program).args(args).env("PATH", path).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            not_run(format!("{program} is not installed"));
            None
        }
        Err(error) => panic!("{program}: {error}"),
        Ok(output) => {
            // Shown if the test fails.
            println!("{program} {args:?}: {}", output.status);
            println!("{}", String::from_utf8_lossy(&output.stdout));
            println!("{}", String::from_utf8_lossy(&output.stderr));
            output.status.code()
        }
    }
}

/// An ext4 of the array's size with files in it; false if it cannot be made here.
fn make_image(image: &Path, bytes: u64) -> bool {
    std::fs::File::create(image).expect("a file").set_len(bytes).expect("room");
    let made = run("mkfs.ext4", &[Path::new("-q"), Path::new("-d"), Path::new("/etc"), image]);
    made.is_some_and(|code| code == 0 || panic!("mkfs.ext4: {code}"))
}

#[test]
fn a_file_system_made_through_the_overlay_passes_its_check_after_a_restart() {
    let base = Rig::new(Level::Raid5, 4);
    let first = used(&base);
    let before = digests(&first.members);
    let rig = with_overlay(&base, &first);
    let image = first.dir.path().join("image");
    let mut server = rig.serve_in(&first.dir, &first.members);
    if !make_image(&image, server.bytes()) {
        return;
    }
    let Some(code) = run("nbdcopy", &[&image, &PathBuf::from(server.uri())]) else { return };
    assert_eq!(code, 0);
    assert!(server.stop());
    assert!(digests(&first.members) == before, "a member was written");
    let server = rig.serve_in(&first.dir, &first.members);
    let back = first.dir.path().join("back");
    std::fs::File::create(&back).expect("a file").set_len(server.bytes()).expect("room");
    assert_eq!(run("nbdcopy", &[&PathBuf::from(server.uri()), &back]), Some(0));
    assert!(std::fs::read(&back).expect("reads") == std::fs::read(&image).expect("reads"));
    assert_eq!(run("e2fsck", &[Path::new("-fn"), &back]), Some(0));
    // Only what was written takes room.
    let overlay = std::fs::metadata(rig.overlay.as_ref().expect("has one")).expect("is there");
    let taken = std::os::unix::fs::MetadataExt::blocks(&overlay) * 512;
    assert!(taken < 4 * base.member_bytes, "{taken} bytes");
}

/// The array as a file, by somebody else's FUSE server. That one passes ranges of any bytes on, which
/// e2fsck makes use of for superblocks, so nbdkit turns them into whole sectors in between.
struct Mounted {
    file: PathBuf,
    child: std::process::Child,
}

impl Mounted {
    fn new(server: &Server) -> Option<Self> {
        let fuse = std::fs::File::options().read(true).write(true).open("/dev/fuse");
        if fuse.is_err() {
            not_run("/dev/fuse cannot be opened");
            return None;
        }
        let file = server.dir.path().join("mounted");
        std::fs::write(&file, "").expect("a file");
        let socket = format!("socket={}", server.socket.display());
        let filter = ["[", "nbdkit", "--exit-with-parent", "--filter=blocksize", "nbd"];
        let filter = filter.into_iter().chain([&*socket, "export=served", "minblock=512", "]"]);
        let mut child = match Command::new("nbdfuse").arg(&file).args(filter).spawn() {
            Ok(child) => child,
            Err(error) => {
                not_run(format!("nbdfuse: {error}"));
                return None;
            }
        };
        let mut ended = false;
        until("the mount", || {
            ended = child.try_wait().expect("is there").is_some();
            ended || std::fs::metadata(&file).is_ok_and(|meta| meta.len() == server.bytes())
        });
        if ended {
            not_run("nbdfuse with nbdkit's nbd plugin and blocksize filter does not start");
            return None;
        }
        Some(Self { file, child })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &[&self.file]);
        let gone = (0..2000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            matches!(self.child.try_wait(), Ok(Some(_)))
        });
        if !gone {
            // The kernel ends the mount with it.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[test]
fn a_damaged_file_system_is_repaired_through_the_overlay_and_the_evidence_is_kept() {
    let base = Rig::new(Level::Raid5, 4);
    let mut first = base.serve();
    let image = first.dir.path().join("image");
    if !make_image(&image, first.bytes()) {
        return;
    }
    // The root directory's inode and the bitmaps' group are lost.
    let file = std::fs::File::options().write(true).open(&image).expect("is there");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 8192], 4096 * 20).expect("writes");
    let damaged = run("e2fsck", &[Path::new("-fn"), &image]).expect("is installed with mkfs");
    assert!(damaged & 4 != 0, "the damage does not show: {damaged}");
    let Some(code) = run("nbdcopy", &[&image, &PathBuf::from(first.uri())]) else { return };
    assert_eq!(code, 0);
    assert!(first.stop());
    let before = digests(&first.members);

    let rig = with_overlay(&base, &first);
    let mut server = rig.serve_in(&first.dir, &first.members);
    let Some(mounted) = Mounted::new(&server) else { return };
    let repaired = run("e2fsck", &[Path::new("-fy"), &mounted.file]).expect("installed");
    assert_eq!(repaired & !3, 0, "repaired, the exit code says: {repaired}");
    drop(mounted);
    assert!(server.stop());
    assert!(digests(&first.members) == before, "a member was written");

    let mut server = rig.serve_in(&first.dir, &first.members);
    let Some(mounted) = Mounted::new(&server) else { return };
    assert_eq!(run("e2fsck", &[Path::new("-fn"), &mounted.file]), Some(0), "clean now");
    drop(mounted);
    assert!(server.stop());
    assert!(digests(&first.members) == before, "a member was written");
}

const SERVED: &str = "LAPSTRAKE_TEST_OVERLAID";

/// Not a test of its own: serves until it is killed.
#[test]
fn server_that_is_killed() {
    let Some(dir) = std::env::var_os(SERVED).map(PathBuf::from) else { return };
    let rig = Rig { overlay: Some(dir.join("overlay")), ..Rig::new(Level::Raid5, 3) };
    let holder = Arc::new(tempfile::tempdir().expect("a directory"));
    let server = rig.serve_in(&holder, &rig.members(&dir));
    println!("at {}", server.socket.display());
    loop {
        std::thread::park();
    }
}

#[test]
fn what_a_killed_server_had_flushed_is_in_the_overlay() {
    let base = Rig::new(Level::Raid5, 3);
    let first = used(&base);
    let before = digests(&first.members);
    for round in 1..=3u8 {
        let (mut child, socket) =
            start_server("overlay::server_that_is_killed", SERVED, first.dir.path());
        let mut client = Client::unix(socket.as_ref());
        if round > 1 {
            for nth in 0..64 {
                let found = client.read(nth * 20480, 4096);
                assert_eq!(found, Ok(vec![round - 1; 4096]), "round {round} block {nth}");
            }
        }
        for nth in 0..64 {
            assert_eq!(client.write(nth * 20480, &[round; 4096]), 0);
        }
        assert_eq!(client.flush(), 0);
        // More that is not flushed, elsewhere.
        for nth in 0..64 {
            assert_eq!(client.write(8 * MIB + nth * 20480, &[round; 4096]), 0);
        }
        child.kill().expect("is there");
        child.wait().expect("is there");
        assert!(digests(&first.members) == before, "a member was written");
    }
}
