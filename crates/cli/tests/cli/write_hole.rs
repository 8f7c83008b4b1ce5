//! Promise: a RAID5 with partial parity logs has no write hole. What the kernel's md or Lapstrake was writing
//! when it was cut off, the other one puts right, also when a member is missing afterwards: blocks that were
//! not being written are as they were, nothing has to be forced, and the kernel's check counts no mismatch.

use crate::client::{Ask, Client};
use crate::support::md::Md;
use crate::support::{Lab, not_run, pattern};
use lapstrake_kernel_md::Kernel;
use std::fs;

const MEMBERS: [&str; 4] = ["m0", "m1", "m2", "m3"];
const BLOCK: usize = 4096;
/// Requests in flight when a server is killed.
const DEPTH: u64 = 16;

/// An array full of a pattern, stopped cleanly.
fn filled() -> (Lab, Vec<u8>) {
    let lab = Lab::new(&[12; 4]);
    lab.run(&format!("create data -l5 -c64 -k ppl --assume-clean {}", MEMBERS.join(" "))).ok();
    let server = lab.serve_data(&MEMBERS.join(" "));
    let bytes = pattern(5, server.facts["array_bytes"].as_u64().unwrap() as usize);
    assert_eq!(lab.detail()["consistency_policy"], "ppl");
    lab.fill(&server, &bytes);
    server.stop();
    (lab, bytes)
}

/// Only odd blocks were being written.
fn assert_untouched(found: &[u8], expected: &[u8], what: &str) {
    assert_eq!(found.len(), expected.len());
    let blocks = found.chunks(BLOCK).zip(expected.chunks(BLOCK));
    for (nth, (found, expected)) in blocks.enumerate().step_by(2) {
        assert!(found == expected, "{what}: block {nth} was not being written, and has changed");
    }
}

/// `cat` replays the logs too, and writes nothing to the members.
fn assert_cat_reads(lab: &Lab, left: &str, bytes: &[u8], lost: &str) {
    let before: Vec<Vec<u8>> = left.split(' ').map(|name| lab.read(name)).collect();
    lab.run(&format!("cat {left} -o without-{lost}")).ok();
    assert_untouched(&lab.read(&format!("without-{lost}")), bytes, &format!("cat without {lost}"));
    let after: Vec<Vec<u8>> = left.split(' ').map(|name| lab.read(name)).collect();
    assert!(before == after, "cat wrote to members");
}

/// The members as they are, copied, but for one.
fn without(lab: &Lab, lost: &str, mark: &str) -> String {
    let left = MEMBERS.iter().filter(|name| **name != lost);
    let copied = left.map(|name| {
        let copy = format!("{mark}-{name}");
        fs::copy(lab.path(name), lab.path(&copy)).unwrap();
        copy
    });
    copied.collect::<Vec<_>>().join(" ")
}

#[test]
fn what_the_kernel_was_writing_we_put_right() {
    let what = "writes of the kernel that are cut off";
    if !crate::support::md::can_copy(what) {
        return;
    }
    let (lab, bytes) = filled();
    let kernel = Kernel::new();
    let kernel = MEMBERS.iter().fold(kernel, |kernel, name| kernel.member(lab.path(name)));
    let mut guest = match kernel.boot() {
        Ok(guest) => guest,
        Err(error) => return not_run(what, &error.to_string()),
    };
    // The first write, before the others begin, makes the array active: it stays so, however seldom they come.
    let script = "mdadm --assemble --quiet /dev/md0 /dev/ubd[a-d] || exit 1
        echo 0 >/sys/block/md0/md/safe_mode_delay
        dd if=/dev/urandom of=/dev/md0 bs=4k count=1 seek=1 conv=notrunc oflag=direct || exit 1
        for writer in 1 3 5 7; do
            (while :; do for pass in 1 2 3 4 5 6 7 8; do for row in 0 1 2 3 4 5 6 7 8 9; do
                dd if=/dev/urandom of=/dev/md0 bs=4k count=1 seek=$((writer + 8 * row + 160 * pass)) \
                   conv=notrunc oflag=direct 2>/dev/null
            done; done; done) >/dev/null 2>&1 &
        done
        sleep 4";
    assert_eq!(guest.run(script).unwrap().status, 0);
    guest.cut();
    let examined = lab.run("examine m0").ok().out;
    assert!(examined.contains("State : active"), "it was stopped cleanly: {examined}");
    for lost in ["m1", "m2"] {
        let left = without(&lab, lost, lost);
        assert_cat_reads(&lab, &left, &bytes, lost);
        let server = lab.serve_data(&format!("--degraded {left}"));
        assert_untouched(&lab.contents(&server), &bytes, &format!("without {lost}"));
        server.stop();
    }
    let all = MEMBERS.join(" ");
    let server = lab.serve_data(&all);
    let detail = lab.detail();
    assert_eq!(detail["consistency_policy"], "ppl");
    assert!(detail["resync_from_bytes"].is_null(), "a resync is due: {detail:#}");
    let contents = lab.contents(&server);
    assert_untouched(&contents, &bytes, "whole");
    server.stop();
    if let Some(mut md) = Md::boot(what) {
        md.agrees(&lab, &all, &contents);
    }
}

#[test]
fn what_we_were_writing_the_kernel_puts_right() {
    let what = "writes of ours that are cut off";
    let Some(mut md) = Md::boot(what) else { return };
    let (lab, bytes) = filled();
    let server = lab.serve_data(&MEMBERS.join(" "));
    let mut client = Client::unix(&lab.path("run/data.nbd"));
    let payload = pattern(9, BLOCK);
    let blocks = bytes.len() as u64 / BLOCK as u64;
    for nth in 0..300 {
        let block = (nth * 37 % blocks) | 1;
        let at = block * BLOCK as u64;
        client.send(Ask::Write, 0, nth, at, BLOCK as u32, &payload).unwrap();
        if nth >= DEPTH {
            assert_eq!(client.receive().unwrap().1, 0);
        }
    }
    server.kill();
    for lost in ["m0", "m3"] {
        let left = without(&lab, lost, lost);
        let script = "quietly mdadm --assemble --run /dev/md0 ${devices[@]}
            dump $dir/dump
            quietly mdadm --stop /dev/md0";
        md.play(&lab, &left, script);
        assert_untouched(&lab.read("dump"), &bytes, &format!("without {lost}"));
    }
    let script = "quietly mdadm --assemble /dev/md0 ${devices[@]}
        read -r resync <$md/resync_start; echo resync $resync
        settle
        matches
        dump $dir/dump
        quietly mdadm --stop /dev/md0
        healthy";
    let said = md.play(&lab, &MEMBERS.join(" "), script);
    assert!(said.contains("resync none"), "a resync was due: {said}");
    assert_untouched(&lab.read("dump"), &bytes, "whole");
}

#[test]
fn a_read_only_start_writes_nothing_and_an_overlay_shows_all() {
    if !crate::support::md::can_copy("a dirty array with logs, read-only") {
        return;
    }
    let (lab, bytes) = filled();
    let all = MEMBERS.join(" ");
    let server = lab.serve_data(&all);
    let mut client = Client::unix(&lab.path("run/data.nbd"));
    let payload = pattern(9, BLOCK);
    for nth in 0..8 {
        client
            .send(Ask::Write, 0, nth, (2 * nth + 1) * BLOCK as u64, BLOCK as u32, &payload)
            .unwrap();
    }
    (0..8).for_each(|_| assert_eq!(client.receive().unwrap().1, 0));
    server.kill();
    let before: Vec<_> = MEMBERS.iter().map(|name| lab.read(name)).collect();
    let server = lab.serve_data(&format!("--read-only {all}"));
    assert_untouched(&lab.contents(&server), &bytes, "read-only");
    server.stop();
    let server = lab.serve_data(&format!("--overlay cow --degraded {}", MEMBERS[1..].join(" ")));
    assert_untouched(&lab.contents(&server), &bytes, "over an overlay");
    server.stop();
    let after: Vec<_> = MEMBERS.iter().map(|name| lab.read(name)).collect();
    assert!(before == after, "a member was written");
    // Written at last: one word about what follows.
    let mut server = lab.serve_data(&all);
    server.signal("-TERM");
    let (code, said) = server.end();
    assert!(code == 0 && said.contains("no resync is needed"), "{said}");
    assert!(!said.contains("has been resynced"), "{said}");
}
