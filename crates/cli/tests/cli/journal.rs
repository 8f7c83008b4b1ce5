//! Promise: what a journal holds when the power goes off, the other one of the kernel's md and Lapstrake
//! brings to the members, also when one of these is gone by then: what was answered is there, what
//! was in flight is old or new page by page, everything else is as it was, and all parity is right.

use crate::client::{Ask, Client};
use crate::support::md::Md;
use crate::support::{Lab, draw, pattern};
use lapstrake_kernel_md::{Error, Kernel, WORDS};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const MEMBERS: &str = "m0 m1 m2 m3";
/// How long the kernel writes before it is cut off.
const LOAD: Duration = Duration::from_secs(4);
/// Pages for each of the kernel's writers, which write one after the other.
const REGION: usize = 384;
const WRITERS: usize = 3;

/// Makes an array with a small journal, so that the ring goes round.
fn lab(options: &str) -> Lab {
    let lab = Lab::new(&[12, 12, 12, 12]);
    lab.file("j", 3 << 20);
    let made = format!("create data {options} -c64 --assume-clean --write-journal j {MEMBERS}");
    lab.run(&made).ok();
    lab
}

/// What each page should hold.
struct Pages {
    known: Vec<Vec<u8>>,
    /// Each page that is in flight, and what it may hold besides.
    busy: BTreeMap<usize, Vec<u8>>,
}

impl Pages {
    fn new(bytes: usize) -> Self {
        Self { known: vec![vec![0; PAGE]; bytes / PAGE], busy: BTreeMap::new() }
    }

    fn check(&self, bytes: &[u8], who: &str) {
        for (page, found) in bytes.chunks(PAGE).enumerate() {
            let is_new = self.busy.get(&page).is_some_and(|new| new == found);
            assert!(
                is_new || self.known[page] == found,
                "{who}: page {page} is neither old nor new"
            );
        }
    }
}

/// Copies the members, and one of them is gone in the copy: their names.
fn copy_without(lab: &Lab, lost: &str) -> String {
    let left = MEMBERS.split(' ').filter(|name| *name != lost).chain(["j"]);
    let copies = left.map(|name| {
        std::fs::copy(lab.path(name), lab.path(&format!("{name}.copy"))).unwrap();
        format!("{name}.copy")
    });
    copies.collect::<Vec<_>>().join(" ")
}

#[test]
fn we_replay_a_write_through_journal_of_the_kernel() {
    replay_theirs("-l5", "write-through");
}

#[test]
fn we_replay_a_write_back_journal_of_the_kernel() {
    replay_theirs("-l6", "write-back");
}

fn replay_theirs(options: &str, mode: &str) {
    let what = format!("a {mode} journal of the kernel's");
    let Some(mut md) = Md::boot(&what) else { return };
    let attempt = |number| {
        println!("attempt {number}");
        let lab = lab(options);
        let bytes = write_and_cut(&lab, mode);
        Some((tried(&lab, bytes)?, lab))
    };
    let (pages, lab) = (0..4).find_map(attempt).expect("enough answers in one of the attempts");
    for lost in ["m0", "m2"] {
        let copies = copy_without(&lab, lost);
        let server = lab.serve_data(&format!("--degraded {copies}"));
        pages.check(&lab.contents(&server), &format!("{mode} without {lost}"));
        server.stop();
    }
    let before: Vec<_> = MEMBERS.split(' ').map(|name| lab.read(name)).collect();
    lab.run(&format!("cat -o read {MEMBERS} j")).ok();
    pages.check(&lab.read("read"), &format!("{mode} for reading only"));
    assert!(MEMBERS.split(' ').zip(before).all(|(name, was)| lab.read(name) == was), "written");
    let overlaid = lab.serve_data(&format!("--overlay o.img {MEMBERS} j"));
    pages.check(&lab.contents(&overlaid), &format!("{mode} beneath an overlay"));
    overlaid.stop();
    let server = lab.serve_data(&format!("{MEMBERS} j"));
    let contents = lab.contents(&server);
    pages.check(&contents, mode);
    server.stop();
    agrees(&mut md, &lab, &contents);
}

/// The kernel finds no mismatch, and these bytes.
fn agrees(md: &mut Md, lab: &Lab, bytes: &[u8]) {
    let script = "quietly mdadm --assemble /dev/md0 ${devices[@]}
        dump $dir/dump
        matches
        quietly mdadm --stop /dev/md0";
    md.play(lab, &format!("{MEMBERS} j"), script);
    assert!(lab.read("dump") == bytes, "the kernel reads otherwise");
}

/// Lets the kernel write until it is cut off; the array's size.
fn write_and_cut(lab: &Lab, mode: &str) -> usize {
    (0..2).for_each(|seed| {
        let bytes = pattern(seed + 1, REGION * WRITERS * PAGE);
        std::fs::write(lab.path(&format!("image{seed}")), bytes).unwrap();
    });
    let members = format!("{MEMBERS} j");
    let kernel = members
        .split(' ')
        .fold(Kernel::new().memory_mib(256).timeout(LOAD), |k, name| k.member(lab.path(name)));
    let mut guest = kernel.boot().unwrap();
    let dir = lab.path("").display().to_string();
    // The words' end would stop the array.
    let begin = format!(
        "{WORDS}\ntrap - EXIT
         mdadm --assemble --quiet /dev/md0 /dev/ubd[a-e] >&2
         echo {mode} > $md/journal_mode
         cat /sys/block/md0/size"
    );
    let said = guest.run(&begin).unwrap();
    assert!(said.success(), "{said}");
    let script = format!(
        "{WORDS}\ntrap - EXIT
         writer() {{
             local first=$(($1 * {REGION})) log=/host{dir}log$1 page len n=0
             RANDOM=$1
             while :; do
                 len=$((RANDOM % 6 + 1)) page=$((first + RANDOM % ({REGION} - 6))) n=$((n + 1))
                 echo \"try $page $len $((n % 2))\" >>$log
                 poke {dir}image$((n % 2)) $((page * 8)) $((len * 8)) direct
                 echo done >>$log
             done
         }}
         for w in 0 1 2; do writer $w & done
         wait"
    );
    assert!(matches!(guest.run(&script), Err(Error::Timeout { .. })));
    said.text().trim().parse::<usize>().unwrap() * 512
}

/// What the kernel's writers were answered; nothing if that is too little to tell anything, as on a busy machine.
fn tried(lab: &Lab, bytes: usize) -> Option<Pages> {
    let images = [lab.read("image0"), lab.read("image1")];
    let mut pages = Pages::new(bytes);
    let mut answered = 0;
    for writer in 0..WRITERS {
        let log = String::from_utf8(lab.read(&format!("log{writer}"))).unwrap();
        let mut lines = log.lines().peekable();
        while let Some(line) = lines.next() {
            let words: Vec<usize> =
                line.split(' ').skip(1).map(|word| word.parse().unwrap()).collect();
            let [page, len, image] = words[..] else { continue };
            for page in page..page + len {
                let new = images[image][page * PAGE..(page + 1) * PAGE].to_vec();
                match lines.peek() {
                    Some(_) => pages.known[page] = new,
                    None => drop(pages.busy.insert(page, new)),
                }
            }
            answered += usize::from(lines.peek().is_some());
        }
    }
    println!("the kernel answered {answered} writes");
    (answered > 20).then_some(pages)
}

#[test]
fn the_kernel_replays_our_journal() {
    let Some(mut md) = Md::boot("our journals in the kernel's hands") else { return };
    for (options, answers) in [("-l5", 700), ("-l6", 400), ("-l4", 90)] {
        let lab = lab(options);
        let pages = write_and_kill(&lab, answers);
        for lost in ["m1", "m3"] {
            let script = "quietly mdadm --assemble --run /dev/md0 ${devices[@]}
                dump $dir/dump
                quietly mdadm --stop /dev/md0";
            md.play(&lab, &copy_without(&lab, lost), script);
            pages.check(&lab.read("dump"), &format!("{options} without {lost}"));
        }
        let script = "quietly mdadm --assemble /dev/md0 ${devices[@]}
            dump $dir/dump
            matches
            quietly mdadm --stop /dev/md0";
        md.play(&lab, &format!("{MEMBERS} j"), script);
        let contents = lab.read("dump");
        pages.check(&contents, options);
        let server = lab.serve_data(&format!("--read-only {MEMBERS} j"));
        assert!(lab.contents(&server) == contents, "{options}: we read otherwise");
        server.stop();
    }
}

/// Kills our server amid writes, when so many were answered.
fn write_and_kill(lab: &Lab, answers: usize) -> Pages {
    let server = lab.serve_data(&format!("{MEMBERS} j"));
    let mut client = Client::unix(&lab.path("run/data.nbd"));
    let mut pages = Pages::new(client.size as usize);
    let mut busy: BTreeMap<u64, (Range<usize>, u64)> = BTreeMap::new();
    let mut seed = 0x5eed;
    let image = |stamp: u64, page: usize| pattern(stamp ^ (page as u64) << 20, PAGE);
    let mut answered = 0;
    let take = |pages: &mut Pages, busy: &mut BTreeMap<_, (Range<usize>, u64)>, cookie| {
        let (range, stamp) = busy.remove(&cookie).expect("was asked");
        range.for_each(|page| pages.known[page] = image(stamp, page));
    };
    while answered < answers {
        while busy.len() < 12 {
            let start = draw(&mut seed) as usize % pages.known.len();
            let len = if draw(&mut seed).is_multiple_of(8) {
                96
            } else {
                1 + draw(&mut seed) as usize % 20
            };
            let range = start..(start + len).min(pages.known.len());
            if busy.values().any(|(r, _)| r.start < range.end && range.start < r.end) {
                continue;
            }
            let stamp = draw(&mut seed);
            let payload: Vec<_> = range.clone().map(|page| image(stamp, page)).collect();
            let payload = payload.concat();
            let (at, len) = ((range.start * PAGE) as u64, payload.len() as u32);
            client.send(Ask::Write, 0, stamp, at, len, &payload).expect("sends");
            busy.insert(stamp, (range, stamp));
        }
        let (cookie, error) = client.receive().expect("an answer");
        assert_eq!(error, 0);
        take(&mut pages, &mut busy, cookie);
        answered += 1;
    }
    server.kill();
    // What it had answered is answered.
    while let Ok((cookie, 0)) = client.receive() {
        take(&mut pages, &mut busy, cookie);
    }
    for (range, stamp) in busy.into_values() {
        pages.busy.extend(range.map(|page| (page, image(stamp, page))));
    }
    pages
}

#[test]
fn a_journal_is_missed() {
    let lab = lab("-l5");
    let refused = lab.run(&format!("serve {MEMBERS}"));
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("journal is missing or out of date"), "{}", refused.err);
    let server = lab.serve_data(&format!("--force {MEMBERS}"));
    assert_eq!(server.facts["read_only"], true);
    server.stop();
    let server = lab.serve_data(&format!("{MEMBERS} j"));
    assert_eq!(crate::support::md::state(&lab.detail(), "j"), "journal");
    assert_eq!(lab.detail()["consistency_policy"], "journal");
    assert!(lab.run("status").out.contains("(J)"), "mdstat shows it");
    let refused = lab.run("fail data j");
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(
        refused.err.contains("it is the journal") && refused.err.contains("lapstrake stop data")
    );
    assert_eq!(crate::support::md::state(&lab.detail(), "j"), "journal");
    server.stop();
}

#[test]
fn cat_leaves_nothing_behind_when_a_replay_ends_half_way() {
    let lab = lab("-l5");
    // One write gets to the journal and no further.
    let held = |member| format!("member={member},op=write,range=1M+11M,delay=600s");
    let faults: Vec<_> = (0..4).map(held).collect();
    let server = lab.serve_with_fault(&faults.join(";"), &format!("--name data {MEMBERS} j"));
    let mut client = Client::unix(&lab.path("run/data.nbd"));
    let page = pattern(5, PAGE);
    client.send(Ask::Write, 0, 1, 0, PAGE as u32, &page).expect("sends");
    let end = Instant::now() + crate::BOUND;
    // Its parity is the same where nothing was, and comes last.
    while lab.read("j").chunks(PAGE).filter(|block| *block == page).count() < 2 {
        assert!(Instant::now() < end, "not in the journal");
        std::thread::yield_now();
    }
    server.kill();
    std::fs::create_dir(lab.path("passing")).unwrap();
    let cat = |limit: &str| {
        let program = env!("CARGO_BIN_EXE_lapstrake");
        let line = format!("{limit} exec {program} cat {MEMBERS} j > /dev/null");
        let mut shell = lab.command("sh");
        shell.args(["-c", &line]).env("TMPDIR", lab.path("passing")).output().unwrap()
    };
    assert!(cat("").status.success(), "{:?}", cat(""));
    // The first write behind the overlay's header fails.
    let ended = cat("ulimit -f 8;");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(1) && said.contains("File too large"), "{ended:?}");
    let left: Vec<_> = lab.path("passing").read_dir().unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    let mut server = lab.serve_data(&format!("{MEMBERS} j"));
    server.signal("-TERM");
    let (code, said) = server.end();
    assert!(code == 0 && said.contains("its journal was replayed: "), "{said}");
    assert!(said.contains("parity made anew for"), "{said}");
}

#[test]
fn a_clean_stop_leaves_nothing_in_the_journal() {
    let lab = lab("-l5");
    for turn in 0..3 {
        let mut server = lab.serve_data(&format!("{MEMBERS} j"));
        let mut client = Client::unix(&lab.path("run/data.nbd"));
        for at in 0..20 {
            assert_eq!(client.write(at * 65536, &pattern(turn * 20 + at, 65536)), 0);
        }
        drop(client);
        lab.run("stop data").ok();
        let (code, said) = server.end();
        assert!(code == 0 && !said.contains("journal"), "turn {turn}: {said}");
    }
    let left = pattern(40, 65536);
    let server = lab.serve_data(&format!("--read-only {MEMBERS} j"));
    assert!(lab.contents(&server)[..65536] == left[..]);
    server.stop();
    if let Some(mut md) = Md::boot("a journal after our clean stop") {
        let script = "quietly mdadm --assemble /dev/md0 ${devices[@]}
            dump $dir/dump
            matches
            test \"$(dmesg | grep -c 'starting from clean shutdown')\" = 1
            dd if=/dev/urandom of=/dev/md0 bs=64k count=4 oflag=direct 2>&1
            quietly mdadm --stop /dev/md0";
        md.play(&lab, &format!("{MEMBERS} j"), script);
        assert!(lab.read("dump")[..65536] == left[..]);
        let mut server = lab.serve_data(&format!("{MEMBERS} j"));
        server.signal("-TERM");
        let said = server.end().1;
        assert!(said.contains("or the kernel stopped it, which leaves its last writes"), "{said}");
    }
}

#[test]
fn a_journal_that_is_lost_is_given_up() {
    let lab = lab("-l5");
    let pages = write_and_kill(&lab, 300);
    let wrong = lab.run(&format!("serve --without-journal {MEMBERS}"));
    assert_eq!(wrong.code, 2, "without --force: {wrong:?}");
    let there = lab.run(&format!("serve --force --without-journal {MEMBERS} j"));
    assert!(there.code == 1 && there.err.contains("j is not lost"), "{there:?}");
    let copies = copy_without(&lab, "m1").replace(" j.copy", "");
    let fewer = lab.run(&format!("serve --force --without-journal {copies} --run true"));
    assert!(fewer.code == 0 && fewer.err.contains("taken for clean"), "{fewer:?}");
    let again = lab.run(&format!("serve --force --without-journal {copies} --run true"));
    assert!(again.code == 0 && again.err.contains("gave up nothing"), "{again:?}");
    let mut server = lab.serve_data(&format!("--force --without-journal {MEMBERS}"));
    assert_eq!(server.facts["read_only"], false);
    assert_eq!(lab.detail()["consistency_policy"], "resync");
    lab.run("wait data --timeout 60").ok();
    assert_eq!(lab.detail()["last_sync"]["action"], "resync");
    // What was answered is on the members: the journal is written through.
    let contents = lab.contents(&server);
    pages.check(&contents, "without its journal");
    let news = pattern(77, contents.len());
    lab.fill(&server, &news);
    server.signal("-TERM");
    let (code, said) = server.end();
    assert!(code == 0 && said.contains("given up for good"), "{said}");
    assert!(said.contains("computed anew"), "{said}");
    let scanned = lab.run(&format!("serve {MEMBERS} j --read-only --run true"));
    assert!(scanned.code == 0 && scanned.err.contains("j: left"), "{scanned:?}");
    if let Some(mut md) = Md::boot("an array that gave up its journal") {
        md.agrees(&lab, MEMBERS, &news);
    }
}

#[test]
fn a_journal_fails_while_it_serves() {
    let lab = lab("-l5");
    let fault = "member=4,op=write,range=2M+1G,errno=EIO";
    let server = lab.serve_with_fault(fault, &format!("--name data {MEMBERS} j"));
    let mut client = Client::unix(&lab.path("run/data.nbd"));
    let mut answered = 0;
    while answered < 1000 && client.write(answered * 8192, &pattern(answered, 8192)) == 0 {
        answered += 1;
    }
    assert!((1..1000).contains(&answered), "{answered} writes");
    assert_ne!(client.write(0, &[0; 4096]), 0, "a write without a journal");
    for at in 0..answered {
        assert!(client.read(at * 8192, 8192).expect("reads go on") == pattern(at, 8192));
    }
    server.kill();
    let server = lab.serve_data(&format!("{MEMBERS} j"));
    let contents = lab.contents(&server);
    for (at, found) in contents.chunks(8192).take(answered as usize).enumerate() {
        assert!(found == pattern(at as u64, 8192), "write {at} is lost");
    }
    server.stop();
}
