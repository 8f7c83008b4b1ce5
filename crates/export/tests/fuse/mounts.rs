//! Promise: mounts come and go without harm to what is there, whoever ends them.

use crate::support::{Setup, has_fuse, is_root, not_run};
use lapstrake_not_run::left_out;
use std::{
    os::unix::fs::FileExt,
    path::Path,
    process::{Command, Stdio},
};

/// A user without rights.
const NOBODY: u32 = 65534;

fn is_mounted(file: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    mounts.lines().any(|line| line.split(' ').nth(1) == file.to_str())
}

#[test]
fn a_file_that_the_mount_made_goes_with_it() {
    if !has_fuse() {
        return;
    }
    let mut served = Setup::default().serve();
    assert!(is_mounted(&served.file));
    served.say("unmount");
    assert_eq!(served.hear(), "the mount has ended");
    assert_eq!(served.hear(), "unmounted");
    assert!(!served.file.exists());
    assert_eq!(served.end(), "stopped clean");
}

#[test]
fn the_server_is_told_when_somebody_else_unmounts() {
    if !has_fuse() {
        return;
    }
    let mut served = Setup::default().serve();
    let mut command = match is_root() {
        true => Command::new("umount"),
        false => Command::new("fusermount3"),
    };
    let args: &[&str] = if is_root() { &[] } else { &["-u"] };
    let status = command.args(args).arg(&served.file).status().expect("runs");
    assert!(status.success());
    assert_eq!(served.hear(), "the mount has ended");
    assert_eq!(served.end(), "stopped clean");
}

#[test]
fn a_mount_that_is_ended_by_force_is_gone_though_its_file_is_open() {
    if !has_fuse() || !is_root() {
        return;
    }
    let mut served = Setup::default().serve();
    let file = served.open();
    // It cuts the connection, and fails, since the file is in use.
    let _ = Command::new("umount").arg("-f").arg(&served.file).stderr(Stdio::null()).status();
    assert_eq!(served.hear(), "the mount has ended");
    assert!(!is_mounted(&served.file));
    assert!(file.write_at(b"late", 0).is_err());
    assert_eq!(served.end(), "stopped clean");
}

#[test]
fn a_file_in_use_is_served_until_it_is_closed() {
    if !has_fuse() {
        return;
    }
    let mut served = Setup::default().serve();
    let file = served.open();
    served.say("unmount");
    let said = served.hear();
    assert!(said.contains("unmounted, but somebody has it open still"), "{said}");
    assert!(!is_mounted(&served.file));
    assert!(!served.file.exists(), "the one that the mount made goes though it is in use");
    std::fs::write(&served.file, "").expect("written");
    file.write_all_at(b"still", 1000).expect("served");
    drop(file);
    assert_eq!(served.hear(), "the mount has ended");
    assert!(served.file.exists(), "another one, of somebody else");
    assert_eq!(served.end(), "stopped clean");
}

#[test]
fn a_server_that_stops_fails_what_comes_later_and_hangs_nobody() {
    if !has_fuse() {
        return;
    }
    let mut served = Setup::default().serve();
    let file = served.open();
    served.say("unmount");
    served.hear();
    served.say("stop");
    let said: Vec<String> =
        std::iter::from_fn(|| Some(served.hear()).filter(|word| word != "the server has gone"))
            .collect();
    assert!(said.iter().any(|word| word == "stopped clean"), "{said:?}");
    assert!(said.iter().any(|word| word == "the mount has ended"), "{said:?}");
    assert!(file.write_at(b"late", 0).is_err());
    assert!(file.sync_all().is_err());
}

#[test]
fn a_stop_waits_for_what_is_on_its_way() {
    if !has_fuse() {
        return;
    }
    let faults = "op=write,delay=300ms".into();
    let mut served = Setup { faults, ..Setup::default() }.serve();
    let file = served.open();
    let writer = std::thread::spawn(move || file.write_all_at(&[7; 9000], 100));
    std::thread::sleep(std::time::Duration::from_millis(100));
    served.say("stop");
    let said: Vec<String> =
        std::iter::from_fn(|| Some(served.hear()).filter(|word| word != "the server has gone"))
            .collect();
    assert!(said.iter().any(|word| word == "stopped clean"), "{said:?}");
    writer.join().expect("no panic").expect("it was answered before the end");
    assert!(!is_mounted(&served.file));
}

#[test]
fn what_has_contents_or_is_no_file_is_refused() {
    if !has_fuse() {
        return;
    }
    let refused = |make: &dyn Fn(&Path)| {
        let setup = Setup::default();
        setup.try_serve_over(make).err().expect("refused")
    };
    let said = refused(&|file| std::fs::write(file, "dear").expect("written"));
    assert!(said.contains("not empty"), "{said}");
    let said = refused(&|file| std::fs::create_dir(file).expect("made"));
    assert!(said.contains("not a regular file"), "{said}");
    let said = refused(&|file| std::os::unix::fs::symlink("no/where", file).expect("made"));
    assert!(said.contains("No such file"), "{said}");
}

#[test]
fn an_empty_file_that_was_there_stays() {
    if !has_fuse() {
        return;
    }
    let setup = Setup::default();
    let make = |file: &Path| std::fs::write(file, "").expect("written");
    let mut served = setup.try_serve_over(&make).unwrap_or_else(|why| panic!("{why}"));
    assert!(served.file.metadata().expect("stat").len() > 0);
    served.say("unmount");
    assert_eq!(served.hear(), "the mount has ended");
    assert_eq!(served.hear(), "unmounted");
    assert_eq!(served.file.metadata().expect("stat").len(), 0);
}

#[test]
fn a_plain_user_can_mount() {
    if !has_fuse() {
        return;
    }
    if Command::new("fusermount3").arg("--version").output().is_err() {
        return not_run("mounting as a plain user: fusermount3 is not installed");
    }
    if !is_root() {
        return left_out("mounting as another user: every other test does so as this plain user");
    }
    let mut served = match (Setup { user: Some(NOBODY), ..Setup::default() }).try_serve() {
        Ok(served) => served,
        Err(why) => return not_run(format!("mounting as a plain user: {why}")),
    };
    assert!(is_mounted(&served.file));
    // Nobody else may look, not even root.
    assert!(std::fs::File::open(&served.file).is_err());
    served.say("unmount");
    assert_eq!(served.hear(), "the mount has ended");
    assert_eq!(served.hear(), "unmounted");
    assert!(!is_mounted(&served.file));
}
