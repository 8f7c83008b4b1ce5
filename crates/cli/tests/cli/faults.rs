//! Promise: what happens to members and clients while an array is served, and while it mends, costs no
//! data that redundancy can give back, and is told where it cannot.

use crate::support::md::{Md, can_copy, state};
use crate::support::{Lab, Ran, Server, installed, not_run, pattern};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Of a member; its data starts at 1 MiB.
const MEMBER_MIB: u64 = 16;

/// A filled array of m0, m1 and so on, and beside them r0: full of junk.
fn filled(options: &str, members: &str) -> (Lab, Vec<u8>) {
    let lab = Lab::new(&vec![MEMBER_MIB; members.split(' ').count()]);
    std::fs::write(lab.path("r0"), pattern(1, (MEMBER_MIB * MIB) as usize)).unwrap();
    lab.run(&format!("create data {options} {members}")).ok();
    let server = lab.serve_data(&format!("--frozen {members}"));
    let bytes = pattern(61, server.facts["array_bytes"].as_u64().unwrap() as usize);
    lab.fill(&server, &bytes);
    server.stop();
    (lab, bytes)
}

/// A filled RAID5 of m0, m1 and m2 that is served; None, said aloud, where that cannot be.
fn served(what: &str) -> Option<(Lab, Vec<u8>, Server)> {
    can_copy(what).then(|| {
        let (lab, bytes) = filled("-l5 -c64 --assume-clean", "m0 m1 m2");
        let server = lab.serve_data("m0 m1 m2");
        (lab, bytes, server)
    })
}

/// Cuts a member's file off.
fn cut(lab: &Lab, member: &str) -> std::fs::File {
    let file = std::fs::File::options().write(true).open(lab.path(member)).unwrap();
    file.set_len(5 * MIB).unwrap();
    file
}

/// Ends as all of these do: with r0 in the place of who was lost, and the kernel content.
fn heal(lab: &Lab, server: Server, stay: &str, bytes: &[u8]) {
    lab.run("remove data failed").ok();
    lab.run("add data r0").ok();
    lab.run("wait data --timeout 60").ok();
    assert!(lab.contents(&server) == bytes, "healed");
    server.stop();
    if let Some(mut md) = Md::boot("what was healed in the kernel's hands") {
        md.agrees(lab, &format!("{stay} r0"), bytes);
    }
}

#[test]
fn a_member_that_is_cut_off_under_the_server_is_put_out() {
    let Some((lab, bytes, server)) = served("a member that is cut off") else { return };
    let file = cut(&lab, "m1");
    assert!(lab.contents(&server) == bytes, "read past the end of a member");
    assert_eq!(state(&lab.detail(), "m1"), "faulty");
    let news = pattern(62, bytes.len());
    lab.fill(&server, &news);
    assert_eq!(file.metadata().unwrap().len(), 5 * MIB, "nothing is written to it any more");
    heal(&lab, server, "m0 m2", &news);
}

#[test]
fn a_write_past_the_end_of_a_member_that_was_cut_off_does_not_hide_it() {
    let Some((lab, bytes, server)) = served("a member that is cut off and written") else { return };
    let file = cut(&lab, "m1");
    // Whole stripes: nothing is read first.
    let news = pattern(66, bytes.len());
    lab.fill(&server, &news);
    assert_eq!(state(&lab.detail(), "m1"), "faulty");
    assert_eq!(file.metadata().unwrap().len(), 5 * MIB, "it would hold zeroes where it was cut");
    heal(&lab, server, "m0 m2", &news);
}

#[test]
fn a_member_whose_file_is_deleted_serves_until_the_stop() {
    let Some((lab, bytes, server)) = served("a member that is deleted") else { return };
    std::fs::remove_file(lab.path("m1")).unwrap();
    let bytes = pattern(63, bytes.len());
    lab.fill(&server, &bytes);
    assert_eq!(state(&lab.detail(), "m1"), "in_sync");
    server.stop();
    let server = lab.serve_data("--degraded m0 m2");
    assert!(lab.contents(&server) == bytes);
    heal(&lab, server, "m0 m2", &bytes);
}

#[test]
fn a_file_that_becomes_shorter_is_named() {
    let Some((lab, bytes, mut server)) = served("a file that becomes shorter") else { return };
    std::fs::File::options().write(true).open(lab.path("m1")).unwrap().set_len(2 * MIB).unwrap();
    assert!(lab.contents(&server) == bytes);
    server.signal("-TERM");
    let (code, said) = server.end();
    assert!(code == 0 && said.contains("m1: I/O at byte "), "{code}: {said}");
    assert!(said.contains(" failed: its file has become shorter"), "{said}");
}

#[test]
fn a_member_without_room_is_put_out_before_a_write_is_answered() {
    let what = "a member on a full file system";
    if !can_copy(what) {
        return;
    }
    let lab = Lab::new(&[0, MEMBER_MIB, MEMBER_MIB]);
    std::fs::write(lab.path("r0"), pattern(1, (MEMBER_MIB * MIB) as usize)).unwrap();
    std::fs::create_dir(lab.path("small")).unwrap();
    let lapstrake = env!("CARGO_BIN_EXE_lapstrake");
    let script = format!(
        "mount -t tmpfs -o size=6M none small && truncate -s {MEMBER_MIB}M small/m0 &&
         {lapstrake} create data -l5 -c64 --assume-clean small/m0 m1 m2 >&2 &&
         exec {lapstrake} serve --json --name data small/m0 m1 m2"
    );
    let Some(mut command) = lab.with_own_mounts(&script, what) else { return };
    let server = Server::start(&mut command);
    let bytes = pattern(64, server.facts["array_bytes"].as_u64().unwrap() as usize);
    lab.fill(&server, &bytes);
    assert_eq!(state(&lab.detail(), "m0"), "faulty");
    assert!(lab.contents(&server) == bytes);
    heal(&lab, server, "m1 m2", &bytes);
}

#[test]
fn an_array_that_failed_says_how_it_starts_again() {
    if !can_copy("an array that failed") {
        return;
    }
    let lab = Lab::new(&[MEMBER_MIB; 3]);
    lab.run("create data -l5 -c64 --assume-clean m0 m1 m2").ok();
    let fault = "member=1,op=write,range=2M+8M,errno=EIO";
    let server = lab.serve_with_fault(fault, "--name data m0 m1 m2");
    lab.run("fail data m0").ok();
    let bytes = pattern(67, server.facts["array_bytes"].as_u64().unwrap() as usize);
    std::fs::write(lab.path("fill"), bytes).unwrap();
    assert_ne!(lab.other(&format!("nbdcopy --flush fill {}", server.uri())).unwrap().code, 0);
    lab.until("the failure", |detail| {
        detail["state"].as_array().unwrap().contains(&"failed".into())
    });
    let (status, detail) = (lab.run("status data"), lab.run("detail data"));
    assert!(status.code == 3 && status.out.contains("data : active (failed) raid5"), "{status:?}");
    let state = "State : active, failed ";
    assert!(detail.code == 3 && detail.out.contains(state), "{detail:?}");
    for line in ["remove data m0", "add data m0", "grow data -b internal"] {
        let refused = lab.run(line);
        assert!(refused.code == 1 && refused.err.contains("with --force"), "{line}: {refused:?}");
    }
}

#[test]
fn clients_that_die_amid_a_recovery_harm_neither() {
    if !can_copy("clients that die") {
        return;
    }
    let (lab, bytes) = filled("-l5 -c64 --assume-clean", "m0 m1 m2");
    // No end of the recovery, nor of what a client does, is in sight when it is killed.
    let slow = "member=0,op=write,range=1M+15M,delay=300ms";
    let line = "--name data --sync-speed-max 100 m0 m1 m2";
    let server = lab.serve_with_fault(slow, line);
    lab.run("fail data m2").ok();
    lab.run("remove data m2").ok();
    lab.run("add data r0").ok();
    for nth in 0..8 {
        let before = lab.detail()["work"]["requests"].as_u64().unwrap();
        // They write what is there already.
        let mut client = lab.command("nbdcopy");
        client.args(["--requests=32", "fill", server.uri()]).stderr(Stdio::null());
        let mut client = client.spawn().unwrap();
        let enough = before + 1 + 8 * nth;
        lab.until("its requests", |detail| detail["work"]["requests"].as_u64() >= Some(enough));
        assert_eq!(lab.detail()["sync"]["action"], "recovery");
        assert!(client.try_wait().unwrap().is_none(), "it ended before it was killed");
        client.kill().unwrap();
        client.wait().unwrap();
    }
    lab.run("set data sync_speed_max=0").ok();
    lab.until("them to be forgotten", |detail| detail["clients"] == 0);
    lab.run("wait data --timeout 60").ok();
    assert_eq!(state(&lab.detail(), "r0"), "in_sync");
    assert!(lab.contents(&server) == bytes);
    server.stop();
    if let Some(mut md) = Md::boot("what a recovery with dying clients made") {
        md.agrees(&lab, "m0 m1 r0", &bytes);
    }
}

#[test]
fn a_member_that_dies_while_it_is_rebuilt_is_put_out_and_another_takes_its_place() {
    if !can_copy("a recovery whose target dies") {
        return;
    }
    for fault in ["errno=EIO", "vanish", "torn=512"] {
        // Without --assume-clean the last member is rebuilt.
        let (lab, bytes) = filled("-l5 -c64", "m0 m1 m2");
        let fault = format!("member=2,op=write,range=9M+1G,{fault}");
        let server = lab.serve_with_fault(&fault, "--name data m0 m1 m2");
        let ran = lab.run("wait data --timeout 60");
        assert_eq!(state(&lab.detail(), "m2"), "faulty", "{fault}: {ran:?}");
        assert_ne!(ran.code, 0, "{fault}: {ran:?}");
        assert!(lab.contents(&server) == bytes, "{fault}");
        if fault.ends_with("vanish") {
            heal(&lab, server, "m0 m1", &bytes);
        }
    }
}

/// A start that meets sectors that cannot be read, and the stop after it.
fn started(lab: &Lab, fault: &str, line: &str) -> Ran {
    let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    command.args(["serve", "--name", "data", "--run", "true"]).args(line.split(' '));
    Ran::of(command.env("LAPSTRAKE_FAULT", fault).output().unwrap())
}

/// What a start says that they refuse.
fn refusal(lab: &Lab, fault: &str, line: &str) -> String {
    let ran = started(lab, fault, line);
    assert_eq!(ran.code, 1, "{fault}: {ran:?}");
    ran.err
}

#[test]
fn what_cannot_be_read_at_the_start_refuses_it_if_no_other_member_has_it() {
    if !can_copy("starts that cannot read everything") {
        return;
    }
    let (lab, bytes) = filled("-l5 -c64 --assume-clean -b internal", "m0 m1 m2");
    let fault = |range| format!("member=0,op=read,range={range},errno=EIO");
    let said = refusal(&lab, &fault("4K+512"), "m0 m1 m2");
    assert!(said.contains("m0: cannot read it") && said.contains("leave it out"), "{said}");
    // A bitmap, of which there are three, and the end, where others could have a signature.
    let ran = started(&lab, &fault("8K+512"), "m0 m1 m2");
    assert!(
        ran.code == 0 && ran.err.contains("bitmap cannot be used: m0: cannot read it"),
        "{ran:?}"
    );
    assert!(!ran.err.contains("nothing was written"), "{ran:?}");
    let ran = started(&lab, &fault("16380K+4K"), "m0 m1 m2");
    assert!(ran.code == 0 && !ran.err.contains("cannot"), "{ran:?}");
    let server = lab.serve_data("--degraded m1 m2");
    assert!(lab.contents(&server) == bytes);
    server.stop();
}

#[test]
fn a_log_that_cannot_be_read_is_never_taken_for_an_empty_one() {
    if !can_copy("logs that cannot be read") {
        return;
    }
    let (lab, bytes) = filled("-l5 -c64 --assume-clean --consistency-policy ppl", "m0 m1 m2");
    let server = lab.serve_data("m0 m1 m2");
    lab.fill(&server, &bytes);
    server.kill();
    // A sector of the area behind what shows who the member is.
    let fault = "member=0,op=read,range=1M+512,errno=EIO";
    let said = refusal(&lab, fault, "m0 m1 m2");
    assert!(said.contains("logs cannot be replayed: cannot read m0"), "{said}");
    assert!(said.contains("(--degraded)"), "{said}");
    let server = lab.serve_data("--degraded m1 m2");
    assert!(lab.contents(&server) == bytes);
    server.stop();
}

#[test]
fn a_journal_that_cannot_be_read_is_never_taken_for_an_empty_one() {
    if !can_copy("journals that cannot be read") {
        return;
    }
    let lab = Lab::new(&[MEMBER_MIB; 4]);
    lab.run("create data -l5 -c64 --assume-clean --write-journal m3 m0 m1 m2").ok();
    let server = lab.serve_data("m0 m1 m2 m3");
    let bytes = pattern(70, server.facts["array_bytes"].as_u64().unwrap() as usize);
    lab.fill(&server, &bytes);
    server.kill();
    // All but what shows what it is.
    let said = refusal(&lab, "member=3,op=read,range=1088K+14M,errno=EIO", "m0 m1 m2 m3");
    assert!(
        said.contains("the journal") && said.contains("cannot be replayed: cannot read"),
        "{said}"
    );
    assert!(said.contains("the journal keeps what it holds"), "{said}");
    assert!(said.contains("--without-journal") && said.contains("is lost with it"), "{said}");
    // A member that refuses what the journal has for it is left out.
    let said = refusal(&lab, "member=0,op=write,range=1M+20M,errno=EIO", "m0 m1 m2 m3");
    assert!(said.contains("cannot write m0") && said.contains("(--degraded)"), "{said}");
    let server = lab.serve_data("--degraded m1 m2 m3");
    assert!(lab.contents(&server) == bytes);
    server.stop();
}

#[test]
fn what_can_be_read_nowhere_goes_on_record_and_costs_no_more_than_itself() {
    let Some(mut md) = Md::boot("a recovery whose source cannot be read") else { return };
    let (lab, bytes) = filled("-l5 -c64", "m0 m1 m2");
    let fault = "member=1,op=read,range=9M+4K,errno=EIO";
    let server = lab.serve_with_fault(fault, "--name data m0 m1 m2");
    assert_eq!(lab.run("wait data --timeout 60").code, 3);
    let detail = lab.detail();
    assert!(["m0", "m1", "m2"].iter().all(|name| state(&detail, name) == "in_sync"), "{detail:#}");
    server.stop();
    // The kernel reads the same in the logs of the source and of the target.
    let script = "mdadm --examine-badblocks ${devices[@]} | grep -o '[0-9]* for [0-9]* sectors'";
    assert_eq!(md.play(&lab, "m0 m1 m2", script), "18432 for 8 sectors\n".repeat(2));
    let server = lab.serve_data("m0 m1 m2");
    let ran = lab.other(&format!("nbdcopy {} contents", server.uri())).unwrap();
    assert_ne!(ran.code, 0, "it was read: {ran:?}");
    // Written anew it is good again, for us and for the kernel.
    let news = pattern(65, bytes.len());
    lab.fill(&server, &news);
    assert!(lab.contents(&server) == news);
    server.stop();
    md.agrees(&lab, "m0 m1 m2", &news);
}

#[test]
fn what_members_lack_is_told_until_it_is_written() {
    if !can_copy("bad blocks on record") {
        return;
    }
    let (lab, bytes) = filled("-l5 -c64", "m0 m1 m2");
    let fault = "member=1,op=read,range=9M+4K,errno=EIO";
    let mut server = lab.serve_with_fault(fault, "--name data m0 m1 m2");
    let both = |name: &str| serde_json::json!({ "member": name, "bytes": 4096 });
    let rebuilt = lab.run("wait data --timeout 60 --json");
    assert_eq!(rebuilt.code, 3, "{rebuilt:?}");
    assert_eq!(rebuilt.json()["bad_blocks"], serde_json::json!([both("m1"), both("m2")]));
    assert_eq!(lab.detail()["members"][1]["bad_block_bytes"], 4096);
    let shown = lab.run("detail data").out;
    assert!(shown.contains("Bad Blocks : m2: 4096 bytes are on record as bad"), "{shown}");
    lab.run("check data").ok();
    let checked = lab.run("wait data --timeout 60");
    assert_eq!(checked.code, 3, "{checked:?}");
    for words in [
        "check done, everything that can be read matches; the array is clean\n",
        "  m1: 4096 bytes are on record as bad: reads of them fail where no other member has them",
    ] {
        assert!(checked.out.contains(words), "{checked:?}");
    }
    server.signal("-TERM");
    let (_, said) = server.end();
    // Both lie in the stripe that begins at 16 MiB, as its first and second chunk.
    for (member, at) in [("m1", 16 * MIB), ("m2", 16 * MIB + 65536)] {
        let line =
            format!("{member}: 4096 bytes from byte 8388608 of its data (byte {at} of the array)");
        assert!(said.contains(&line), "{said}");
    }
    let server = lab.serve_data("m0 m1 m2");
    assert_eq!(lab.run("wait data").code, 3);
    lab.fill(&server, &bytes);
    lab.run("wait data --timeout 60").ok();
    assert!(!lab.run("detail data").ok().out.contains("Bad Blocks"));
    server.stop();
}

#[test]
fn what_the_kernel_has_on_record_as_bad_is_not_read() {
    let Some(mut md) = Md::boot("bad blocks of the kernel's") else { return };
    let (lab, bytes) = filled("-l1 --assume-clean", "m0 m1");
    // Of the member, whose data starts at sector 2048.
    let record = "quietly mdadm --assemble /dev/md0 ${devices[@]}
        echo 2848 16 >$md/dev-${devices[0]##*/}/bad_blocks
        # It is written down with what is next.
        dd if=/dev/md0 of=/dev/md0 bs=4k count=1 oflag=direct conv=notrunc status=none";
    md.play(&lab, "m0 m1", record);
    let junk = pattern(67, 16 * 512);
    lab.write_at("m0", 2848 * 512, &junk);
    let server = lab.serve_data("m0 m1");
    let waited = lab.run("wait data");
    assert!(
        waited.code == 3 && waited.out.contains("m0: 8192 bytes are on record as bad"),
        "{waited:?}"
    );
    for _ in 0..4 {
        // Whichever of the two it would be read from.
        assert!(lab.contents(&server) == bytes);
    }
    server.stop();
    // A server that has not written there leaves them on record; what is written is good again.
    let told = "mdadm --examine-badblocks ${devices[0]}";
    assert!(md.play(&lab, "m0 m1", told).contains("2848 for 16 sectors"));
    let server = lab.serve_data("m0 m1");
    let news = pattern(68, bytes.len());
    lab.fill(&server, &news);
    server.stop();
    assert!(!md.play(&lab, "m0 m1", told).contains("2848 for"));
    md.agrees(&lab, "m0 m1", &news);
}

#[test]
fn what_we_have_on_record_as_bad_the_kernel_does_not_read() {
    let Some(mut md) = Md::boot("bad blocks of ours") else { return };
    let (lab, bytes) = filled("-l1 --assume-clean", "m0 m1");
    // Neither read nor mended.
    let fault = "member=0,op=read+write,range=9M+8K,errno=EIO";
    let server = lab.serve_with_fault(fault, "--name data m0 m1");
    lab.run("check data").ok();
    assert_eq!(lab.run("wait data --timeout 60").code, 3);
    let detail = lab.detail();
    assert_eq!(state(&detail, "m0"), "in_sync");
    assert_eq!(detail["members"][0]["bad_block_bytes"], 8192, "{detail:#}");
    server.stop();
    let junk = pattern(69, 8192);
    lab.write_at("m0", 9 * MIB, &junk);
    let reads = "quietly mdadm --assemble /dev/md0 ${devices[@]}
        cat $md/dev-${devices[0]##*/}/bad_blocks
        for i in 1 2 3 4; do echo 3 >/proc/sys/vm/drop_caches; dump $dir/dump$i; done";
    assert_eq!(md.play(&lab, "m0 m1", reads), "18432 16\n");
    assert!((1..=4).all(|i| lab.read(&format!("dump{i}")) == bytes), "the kernel has read it");
    // Written over with the same by the kernel.
    let mends = "quietly mdadm --assemble /dev/md0 ${devices[@]}
        poke $dir/fill 16384 16 direct
        cat $md/dev-${devices[0]##*/}/bad_blocks
        matches";
    assert_eq!(md.play(&lab, "m0 m1", mends), "", "what was written there is good");
    md.agrees(&lab, "m0 m1", &bytes);
}

/// A member seen through a disk that fails for real: nbdkit's error filter, as a file by nbdfuse. While
/// the file `trip` is there, requests fail as the words for the filter say.
struct Flaky {
    disk: Child,
    lab: std::path::PathBuf,
    name: String,
}

impl Flaky {
    /// None where it cannot be, which is said aloud.
    fn over(lab: &Lab, name: &str, words: &str) -> Option<Self> {
        let what = format!("{name} on a disk that fails");
        if let Some(absent) = ["nbdkit", "nbdfuse", "fio"].iter().find(|name| !installed(name)) {
            not_run(&what, &format!("{absent} is not installed"));
            return None;
        }
        let dir = format!("flaky-{name}");
        std::fs::create_dir(lab.path(&dir)).unwrap();
        let trip = lab.path("trip").display().to_string();
        let words = words.replace("TRIP", &trip);
        let line = format!(
            "{dir}/{name} --command nbdkit -s --exit-with-parent --filter=error file {name} {words}"
        );
        let mut disk = lab.command("nbdfuse");
        let mut disk = disk.args(line.split(' ')).stderr(Stdio::null()).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        while !crate::support::exists(lab.path(&dir).join(name)) {
            if Instant::now() > end || disk.try_wait().unwrap().is_some() {
                let _ = disk.kill();
                not_run(&what, "nbdfuse does not mount here");
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(Self { disk, lab: lab.path(""), name: name.to_owned() })
    }

    fn path(&self) -> String {
        format!("flaky-{0}/{0}", self.name)
    }
}

impl Drop for Flaky {
    fn drop(&mut self) {
        let mount = self.lab.join(format!("flaky-{}", self.name));
        let _ = std::process::Command::new("fusermount3").arg("-uz").arg(mount).status();
        let _ = self.disk.kill();
        let _ = self.disk.wait();
    }
}

/// Writes at random, reads it back and compares, again and again; it ends well if nothing is amiss.
fn verified_load(lab: &Lab, server: &Server, mib: u64, loops: u64) -> Child {
    let line = format!(
        "60 fio --name=load --ioengine=nbd --uri={} --rw=randwrite --bsrange=4k-96k --iodepth=16 \
         --size={mib}M --verify=crc32c --verify_backlog=64 --verify_fatal=1 --loops={loops}",
        server.uri()
    );
    let mut load = lab.command("timeout");
    load.args(line.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null());
    load.spawn().unwrap()
}

#[test]
fn reads_that_fail_now_and_then_are_mended_under_load() {
    if !can_copy("reads that fail now and then") {
        return;
    }
    let (lab, bytes) = filled("-l6 -c64 --assume-clean", "m0 m1 m2 m3 m4");
    let words = "error-pread=EIO error-pread-rate=5% error-pread-file=TRIP";
    let disks: Vec<Flaky> =
        ["m1", "m3"].iter().map_while(|n| Flaky::over(&lab, n, words)).collect();
    let [first, second] = &disks[..] else { return };
    let server = lab.serve_data(&format!("m0 {} m2 {} m4", first.path(), second.path()));
    lab.file("trip", 0);
    let status = verified_load(&lab, &server, 16, 4).wait().unwrap();
    assert!(status.success(), "a client has seen it: {status}");
    let contents = lab.contents(&server);
    assert!(contents[16 << 20..] == bytes[16 << 20..], "what was not written");
    let detail = lab.detail();
    assert!(detail["work"]["recovered"].as_u64() > Some(10), "no read failed: {detail:#}");
    assert!(["m1", "m3"].iter().all(|name| state(&detail, name) == "in_sync"), "{detail:#}");
    std::fs::remove_file(lab.path("trip")).unwrap();
    lab.run("check data").ok();
    let checked = lab.run("wait data --timeout 60 --json");
    // A page that could not be read again, too, went on record as bad.
    assert!(matches!(checked.code, 0 | 3), "{checked:?}");
    let checked = checked.json();
    assert!(
        checked["last_sync"]["result"] == "done" && checked["mismatch_sectors"] == 0,
        "{checked:#}"
    );
    assert!(lab.contents(&server) == contents, "on good disks again");
    server.stop();
    drop(disks);
    if let Some(mut md) = Md::boot("members whose reads failed now and then") {
        md.agrees(&lab, "m0 m1 m2 m3 m4", &contents);
    }
}

#[test]
fn a_disk_that_refuses_writes_or_dies_is_put_out_under_load() {
    if !can_copy("a disk that refuses writes") {
        return;
    }
    for dies in [false, true] {
        let (lab, _) = filled("-l5 -c64 --assume-clean", "m0 m1 m2");
        let words = "error-pwrite=EIO error-pwrite-rate=100% error-pwrite-file=TRIP";
        let Some(mut flaky) = Flaky::over(&lab, "m1", words) else { return };
        let server = lab.serve_data(&format!("m0 {} m2", flaky.path()));
        let mut load = verified_load(&lab, &server, 16, 4);
        lab.until("a load", |detail| detail["work"]["requests"].as_u64() > Some(100));
        if dies {
            flaky.disk.kill().unwrap();
        } else {
            lab.file("trip", 0);
        }
        lab.until("its end", |detail| state(detail, "m1") == "faulty");
        let status = load.wait().unwrap();
        assert!(status.success(), "a client has seen it: {status}");
        let bytes = lab.contents(&server);
        heal(&lab, server, "m0 m2", &bytes);
    }
}

#[test]
fn a_forced_start_that_cannot_be_served_writes_nothing() {
    if !can_copy("a forced start that cannot be served") {
        return;
    }
    let lab = Lab::new(&[MEMBER_MIB; 5]);
    lab.run("create data -l5 -c64 --assume-clean m0 m1 m2").ok();
    let server = lab.serve_data("--safe-mode-delay 0 m0 m1 m2");
    lab.fill(&server, &pattern(71, 1 << 20));
    server.kill();
    let before = [lab.read("m0"), lab.read("m1")];
    // It is dirty and lacks a member: only --force starts it.
    let refused = lab.run("serve --name data --degraded m0 m1");
    assert!(refused.code == 1 && refused.err.contains("--force"), "{refused:?}");
    std::fs::write(lab.path("file"), "precious").unwrap();
    let refused = lab.run("serve --name data --force --degraded m0 m1 --nbd unix:file");
    assert!(refused.code == 1 && refused.err.contains("is no socket"), "{refused:?}");
    lab.run("create other -l0 m3 m4").ok();
    let other = lab.serve_data("m3 m4");
    let refused = lab.run("serve --name data --force --degraded m0 m1");
    assert!(refused.code == 1 && refused.err.contains("is being served already"), "{refused:?}");
    other.stop();
    assert!(before == [lab.read("m0"), lab.read("m1")]);
    lab.serve_data("--force --degraded m0 m1").stop();
    assert!(before[0] != lab.read("m0"));
}

/// What would be lost: the writes of either half, if the others came back as current beside what was forced together.
#[test]
fn who_was_left_out_of_a_forced_start_stays_out_though_nothing_was_written() {
    if !can_copy("halves that are forced together") {
        return;
    }
    let lab = Lab::new(&[MEMBER_MIB; 4]);
    lab.run("create data -l6 -c64 --assume-clean m0 m1 m2 m3").ok();
    for (half, seed) in [("m0 m1", 81), ("m2 m3", 82)] {
        let server = lab.serve_data(&format!("--degraded {half}"));
        lab.fill(&server, &pattern(seed, 1 << 20));
        server.stop();
    }
    lab.serve_data("--force m0 m2").stop();
    let server = lab.serve_data("m0 m1 m2 m3");
    let detail = lab.detail();
    let members = detail["members"].as_array().unwrap().iter().map(|member| &member["path"]);
    assert_eq!(members.collect::<Vec<_>>(), ["m0", "m2"]);
    server.stop();
}

#[test]
fn an_array_that_is_being_stopped_changes_nothing_any_more() {
    let lab = Lab::new(&[MEMBER_MIB; 3]);
    lab.run("create data -l5 -c64 --assume-clean m0 m1 m2").ok();
    let mut server = lab.serve_with_fault("member=0,op=flush,delay=3s", "--name data m0 m1 m2");
    server.signal("-TERM");
    // Until the stop has begun settings are taken.
    let end = Instant::now() + Duration::from_secs(60);
    let mut refused = lab.run("set data sync_speed_min=2000");
    while refused.code == 0 && Instant::now() < end {
        refused = lab.run("set data sync_speed_min=2000");
    }
    assert!(refused.err.contains("is being stopped; nothing was changed"), "{refused:?}");
    let refused = lab.run("repair data");
    assert!(refused.err.contains("is being stopped; nothing was changed"), "{refused:?}");
    let (code, said) = server.end();
    assert!(code == 0 && !said.contains("repair"), "{said}");
}

#[test]
fn a_stop_does_not_wait_for_members_that_are_faulty() {
    let lab = Lab::new(&[MEMBER_MIB; 3]);
    lab.run("create data -l5 -c64 --assume-clean m0 m1 m2").ok();
    let fault = "member=2,op=flush,delay=3600s";
    let _server = lab.serve_with_fault(fault, "--name data m0 m1 m2");
    lab.run("fail data m2").ok();
    lab.until("it to be put out", |detail| state(detail, "m2") == "faulty");
    let mut stop = lab.command("timeout");
    stop.args(["60", env!("CARGO_BIN_EXE_lapstrake"), "stop", "data"]);
    assert_eq!(stop.status().unwrap().code(), Some(0));
}

/// An array over an overlay that has no room for all that was written.
fn over_small(lab: &Lab, members: &str) -> Server {
    // Blocks of 512 or 1024 bytes.
    let program = env!("CARGO_BIN_EXE_lapstrake");
    let line = format!(
        "ulimit -f 4096; exec {program} serve --json --name data --nbd unix:full.sock --overlay over {members}"
    );
    let server = Server::start(lab.command("sh").args(["-c", &line]));
    let some = pattern(1, 256 << 10);
    lab.fill(&server, &some);
    std::fs::write(lab.path("much"), pattern(2, 16 << 20)).unwrap();
    let refused = lab.other(&format!("nbdcopy much {}", server.uri())).unwrap();
    assert!(refused.code != 0 && refused.err.contains("No space left on device"), "{refused:?}");
    server
}

#[test]
fn a_write_that_finds_no_room_fails_alone_where_there_is_no_redundancy() {
    if !installed("nbdcopy") {
        return not_run("writing beneath a full overlay", "nbdcopy is not installed");
    }
    let lab = Lab::new(&[16; 2]);
    lab.run("create data -l0 -c64 m0 m1").ok();
    let server = over_small(&lab, "m0 m1");
    let other = pattern(3, 256 << 10);
    lab.fill(&server, &other);
    assert!(lab.contents(&server)[..256 << 10] == other);
    server.stop();
}

/// What would be lost: the array, member by member, to a file system that is full beneath their overlay.
#[test]
fn a_full_overlay_costs_no_member_and_with_more_room_the_array_starts_again() {
    if !installed("nbdcopy") {
        return not_run("writing beneath a full overlay", "nbdcopy is not installed");
    }
    let lab = Lab::new(&[16; 4]);
    lab.run("create data -l6 -c64 --assume-clean m0 m1 m2 m3").ok();
    let mut server = over_small(&lab, "m0 m1 m2 m3");
    let detail = lab.detail();
    assert!((0..4).all(|at| detail["members"][at]["state"] == "in_sync"), "{detail}");
    let stopped = lab.run("stop data");
    assert_eq!(stopped.code, 1, "it cannot say clean: {stopped:?}");
    let (_, said) = server.end();
    assert!(said.contains("no room left for the overlay's file over: "), "{said}");
    assert!(!said.contains("is used no more"), "{said}");
    let server = lab.serve_data("--overlay over m0 m1 m2 m3");
    lab.run("wait data --timeout 60").ok();
    let detail = lab.detail();
    assert!((0..4).all(|at| detail["members"][at]["state"] == "in_sync"), "{detail}");
    lab.fill(&server, &pattern(3, 12 << 20));
    assert!(lab.contents(&server)[..12 << 20] == pattern(3, 12 << 20));
    server.stop();
}
