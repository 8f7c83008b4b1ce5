//! Promise: what was acknowledged outlives a server that is killed, again and again, amid writes, resyncs and
//! recoveries; what was in flight is old or new, sector by sector (anything, where a partial parity log makes up for a
//! missing member: as md's, it keeps what was not being written); the kernel agrees.

use crate::client::{Ask, Client, FUA};
use crate::support::md::Md;
use crate::support::{Lab, draw};
use std::collections::BTreeMap;
use std::ops::Range;

const SECTOR: u64 = 512;
const DEPTH: usize = 12;
const LONGEST: u64 = 256;

/// Options and members. A RAID5 or RAID6 has all its members: what is killed while it lacks one has a
/// write hole, and is refused.
const ARRAYS: [(&str, &str); 6] = [
    ("-l5 -c64 --assume-clean -b internal --bitmap-chunk 64K", "m0 m1 m2 m3"),
    ("-l6 -c64 --assume-clean", "m0 m1 m2 m3"),
    ("-l10 -c64 -p f2", "m0 m1 m2 m3"),
    ("-l1", "m0 m1 m2"),
    ("-l5 -c64 --assume-clean", "m0 m1 m2"),
    ("-l10 -c64 -p n2 --assume-clean -b internal", "m0 m1 m2"),
];

#[test]
fn what_was_acknowledged_outlives_kills() {
    for (nth, array) in ARRAYS[..2].iter().enumerate() {
        kill_again_and_again(*array, if nth == 0 { 3 } else { 2 });
    }
}

/// Levels on which an array may be killed while it lacks a member, and a slot whose member is lost and rebuilt.
const REBUILT: [(&str, &str); 2] = [
    ("-l1 --assume-clean", "m0 m1 m2"),
    ("-l5 -c64 --assume-clean --consistency-policy ppl", "m0 m1 m2"),
];

#[test]
fn what_was_acknowledged_outlives_kills_amid_a_recovery() {
    for array in REBUILT {
        kill_rebuilding(array, 2);
    }
}

#[test]
#[ignore = "takes minutes; make soak plays it"]
fn what_was_acknowledged_outlives_fifty_kills_of_every_level() {
    if !crate::support::soaks("what was acknowledged outlives fifty kills of every level") {
        return;
    }
    ARRAYS.iter().for_each(|array| kill_again_and_again(*array, 50));
    REBUILT.iter().for_each(|array| kill_rebuilding(*array, 50));
}

fn kill_again_and_again(array: (&str, &str), kills: usize) {
    // Slow enough for a kill to find a resync running.
    kill_each_time(array, kills, 20_000, |_| {});
}

fn kill_rebuilding(array: (&str, &str), kills: usize) {
    kill_each_time(array, kills, 2000, |lab| {
        lab.until("a recovery", |detail| {
            // A server that is late to answer is asked again; `until` tells what it said if it stays so.
            let Some(members) = detail["members"].as_array() else { return false };
            // The one that the kill interrupted may end at any time.
            if members.iter().all(|member| member["state"] == "in_sync") {
                for line in ["fail data m1", "remove data m1", "add data m1"] {
                    lab.run(line).ok();
                }
            }
            detail["sync"]["action"] == "recovery"
        });
    });
}

fn kill_each_time(
    (options, members): (&str, &str),
    kills: usize,
    sync_speed_max: u32,
    prepare: impl Fn(&Lab),
) {
    let lab = Lab::new(&vec![12; members.split(' ').count()]);
    lab.run(&format!("create data {options} {members}")).ok();
    let line = format!("--name data --sync-speed-max {sync_speed_max} {members}");
    let mut seed = 0x5eed ^ options.len() as u64;
    let mut ledger = Ledger { may_tear: options.contains("ppl"), ..Ledger::default() };
    for kill in 0..kills {
        let server = lab.serve(&line);
        prepare(&lab);
        let mut client = Client::unix(&lab.path("run/data.nbd"));
        ledger.settle(&mut client);
        let answers = 50 + draw(&mut seed) % 400;
        while ledger.answered < answers {
            while ledger.busy.len() < DEPTH && ledger.ask(&mut client, &mut seed) {}
            ledger.take_reply(&mut client).expect("an answer");
        }
        server.kill();
        // What it had answered is answered.
        while ledger.take_reply(&mut client).is_ok() {}
        println!("{options}: kill {kill} after {} answers", ledger.answered);
    }
    let server = lab.serve(&line);
    ledger.settle(&mut Client::unix(&lab.path("run/data.nbd")));
    lab.run("wait data --timeout 60").ok();
    ledger.settle(&mut Client::unix(&lab.path("run/data.nbd")));
    server.stop();
    if let Some(mut md) = Md::boot("what kills left in the kernel's hands") {
        md.agrees(&lab, members, &ledger.bytes());
    }
}

/// What each sector holds: a stamp, or another one that was being written when the server was killed.
#[derive(Default)]
struct Ledger {
    stamps: Vec<u64>,
    /// In flight, by cookie: sectors and stamp; none for a flush or read.
    busy: BTreeMap<u64, (Range<u64>, Option<u64>)>,
    cookies: u64,
    answered: u64,
    /// What was in flight may be anything, and is written again.
    may_tear: bool,
}

impl Ledger {
    /// Reads everything, which has to be as it was left; what was in flight is decided now.
    fn settle(&mut self, client: &mut Client) {
        let sectors = client.size / SECTOR;
        self.stamps.resize(sectors as usize, 0);
        let busy = std::mem::take(&mut self.busy);
        let torn: Vec<(Range<u64>, u64)> = match self.may_tear {
            true => busy.values().filter_map(|(r, stamp)| Some((r.clone(), (*stamp)?))).collect(),
            false => Vec::new(),
        };
        for start in (0..sectors).step_by(2048) {
            let len = (sectors - start).min(2048) * SECTOR;
            let bytes = client.read(start * SECTOR, len as usize).expect("reads");
            for (nth, bytes) in bytes.chunks(SECTOR as usize).enumerate() {
                let at = start + nth as u64;
                if torn.iter().any(|(range, _)| range.contains(&at)) {
                    continue;
                }
                let found = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                assert!(bytes == sector(at, found), "sector {at} is torn");
                let is_new =
                    busy.values().any(|(r, stamp)| r.contains(&at) && *stamp == Some(found));
                let known = &mut self.stamps[at as usize];
                assert!(is_new || *known == found, "sector {at}: {found}, not {known}");
                *known = found;
            }
        }
        for (range, stamp) in torn {
            self.write(client, range, stamp, 0);
            self.take_reply(client).expect("an answer");
        }
        self.answered = 0;
    }

    fn write(&mut self, client: &mut Client, range: Range<u64>, stamp: u64, flags: u16) {
        self.cookies += 1;
        let (at, len) = (range.start * SECTOR, (range.end - range.start) * SECTOR);
        let (ask, payload) = match stamp {
            0 => (Ask::WriteZeroes, Vec::new()),
            _ => (Ask::Write, sectors(range.clone().map(|at| (at, stamp)))),
        };
        client.send(ask, flags, self.cookies, at, len as u32, &payload).expect("sends");
        self.busy.insert(self.cookies, (range, Some(stamp)));
    }

    /// Sends one more request; false if what was drawn meets another that is in flight.
    fn ask(&mut self, client: &mut Client, seed: &mut u64) -> bool {
        let sectors = self.stamps.len() as u64;
        let start = draw(seed) % sectors;
        let range = start..(start + 1 + draw(seed) % LONGEST).min(sectors);
        if self.busy.values().any(|(r, _)| r.start < range.end && range.start < r.end) {
            return false;
        }
        match draw(seed) % 16 {
            0 => {
                self.cookies += 1;
                client.send(Ask::Flush, 0, self.cookies, 0, 0, &[]).expect("sends");
                self.busy.insert(self.cookies, (range, None));
            }
            1 => self.write(client, range, 0, 0),
            kind => {
                let stamp = draw(seed) | 1;
                self.write(client, range, stamp, if kind == 2 { FUA } else { 0 });
            }
        }
        true
    }

    fn take_reply(&mut self, client: &mut Client) -> std::io::Result<()> {
        let (cookie, error) = client.receive()?;
        assert_eq!(error, 0);
        let (range, stamp) = self.busy.remove(&cookie).expect("was asked");
        if let Some(stamp) = stamp {
            self.stamps[range.start as usize..range.end as usize].fill(stamp);
        }
        self.answered += 1;
        Ok(())
    }

    fn bytes(&self) -> Vec<u8> {
        sectors(self.stamps.iter().enumerate().map(|(at, stamp)| (at as u64, *stamp)))
    }
}

/// The sectors at these places with these stamps, one after the other.
fn sectors(stamped: impl Iterator<Item = (u64, u64)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    stamped.for_each(|(at, stamp)| bytes.extend_from_slice(&sector(at, stamp)));
    bytes
}

/// A sector of this stamp; zeroes are the stamp 0.
fn sector(at: u64, stamp: u64) -> [u8; SECTOR as usize] {
    let mut bytes = [0; SECTOR as usize];
    if stamp == 0 {
        return bytes;
    }
    for (nth, word) in bytes.chunks_exact_mut(8).enumerate() {
        let place = if nth == 0 { 0 } else { at << 6 | nth as u64 };
        word.copy_from_slice(&(stamp ^ place).to_le_bytes());
    }
    bytes
}
