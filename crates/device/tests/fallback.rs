//! Promise: where io_uring is refused the queue says so and works all the same.

mod common;

use common::{Caller, byte_at, file};
use lapstrake_device::{Backend, Queue, QueueError};
use std::process::Command;

const CHILD: &str = "DEVICE_TEST_REFUSE";

/// Makes a system call fail with `errno` in this thread and those it starts, as a container's seccomp
/// profile does.
fn refuse(call: libc::c_long, errno: i32) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let number = call as u32;
    let line = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        line(LOAD, 0, 0, 0),
        line(JUMP, number, 0, 1),
        line(RETURN, libc::SECCOMP_RET_ERRNO | errno as u32, 0, 0),
        line(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program is alive during the calls, which copy it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

/// Not a test of its own: runs in the child that the tests below start.
#[test]
fn without_io_uring() {
    let Ok(refused) = std::env::var(CHILD) else { return };
    let (call, errno) = refused.split_once(' ').unwrap();
    refuse(call.parse().unwrap(), errno.parse().unwrap());
    let refused = Queue::new([], Backend::IoUring, 8).err();
    assert!(matches!(refused, Some(QueueError::NoIoUring { .. })), "{refused:?}");
    for dir in common::places() {
        let member = common::open(file(dir.path(), "m", 1 << 20).to_str().unwrap());
        let mut caller = Caller::new([member], Backend::Auto);
        assert_eq!(caller.queue.backend(), "threads");
        let notice = caller.queue.notice().unwrap().to_owned();
        assert!(notice.contains("seccomp") && notice.contains("threads"), "{notice}");
        assert_eq!(caller.write(0, 4096, &[1; 4096], true), 4096);
        let read = caller.read(0, 0, 8192).unwrap();
        assert!((0..8192).all(|i| read[i] == if i < 4096 { byte_at(i) } else { 1 }));
    }
    println!("\nfell back");
}

fn run_refused(call: libc::c_long, errno: i32) {
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "without_io_uring", "--nocapture"])
        .env(CHILD, format!("{call} {errno}"))
        .env_remove("LAPSTRAKE_BACKEND")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.lines().any(|line| line == "fell back"), "{out:?}");
}

#[test]
fn a_container_that_forbids_io_uring_gets_threads() {
    run_refused(libc::SYS_io_uring_setup, libc::EPERM);
}

#[test]
fn a_kernel_without_io_uring_gets_threads() {
    run_refused(libc::SYS_io_uring_setup, libc::ENOSYS);
}

#[test]
fn a_filter_that_forbids_only_the_use_of_a_ring_gets_threads() {
    run_refused(libc::SYS_io_uring_enter, libc::EPERM);
}
