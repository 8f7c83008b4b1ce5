//! The same decision as mdadm 4.2 and Linux 6.1.
//!
//! `vectors/assemble.jsonl` (made by `vectors/assemble.py`, which tells the format) holds real
//! superblocks of arrays that the kernel ran, degraded, killed, split and recovered, in many
//! mixtures, and what became of each under mdadm plainly, with `--run`, with `--force` and with
//! both. Where we deliberately differ, [`DIFFERENCES`] says why.

use std::collections::{BTreeMap, BTreeSet};

use lapstrake_geometry::Sectors;
use lapstrake_metadata::assemble::{Assembly, Options};
use lapstrake_metadata::{Superblock, read_at};
use serde_json::Value;

use super::model::{decide, words};

const DEVICE: Sectors = Sectors(32768);

/// Bytes of the superblocks, by name.
type Bytes = BTreeMap<String, (String, Vec<u8>)>;

fn read_superblock(line: &Value, known: &Bytes) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    for run in line["runs"].as_array().unwrap() {
        let (at, text) = (run[0].as_u64().unwrap() as usize, run[1].as_str().unwrap());
        let hex = |text: &str| u8::from_str_radix(text, 16).unwrap();
        let values: Vec<u8> = match text.split_once('*') {
            Some((byte, count)) => vec![hex(byte); count.parse().unwrap()],
            None => (0..text.len() / 2).map(|i| hex(&text[i * 2..i * 2 + 2])).collect(),
        };
        bytes[at..at + values.len()].copy_from_slice(&values);
    }
    if let Some(other) = line["xor"].as_str() {
        bytes.iter_mut().zip(&known[other].1).for_each(|(byte, other)| *byte ^= other);
    }
    bytes
}

/// A member of a case: a superblock's name, or that and events.
fn member(given: &Value, known: &Bytes) -> Superblock {
    let name = given.as_str().or(given[0].as_str()).unwrap();
    let (version, bytes) = &known[name];
    let mut sb = read_at(version.parse().unwrap(), DEVICE, bytes).expect(name);
    if let Some(events) = given[1].as_u64() {
        sb.set_events(events);
    }
    sb
}

/// In the words of the vectors.
fn outcome(assembly: &Assembly) -> String {
    if assembly.start.is_err() {
        return "refused".into();
    }
    let slots = assembly.members.iter().enumerate();
    let mut said: Vec<_> =
        slots.filter_map(|(slot, id)| Some(format!("{}:{slot}", (*id)?))).collect();
    said.extend(assembly.recovering.iter().map(|(slot, id, _)| format!("{id}:{}~", slot.0)));
    let partial = assembly.replacements.iter().filter(|r| r.2.is_some());
    said.extend(partial.map(|(slot, id, _)| format!("{id}:{}~", slot.0)));
    said.extend(assembly.spares.iter().map(|id| format!("{id}:S")));
    said.sort();
    said.extend(assembly.resync_from.map(|at| format!("resync {}", at.0)));
    let mut forced = assembly.forced.clone();
    forced.sort();
    said.extend(forced.iter().map(|id| format!("forced {id}")));
    said.join(" ")
}

/// The outcome in our words. A failed device that the kernel keeps in its list is no part of the
/// array. What mdadm calls forced and what cleared is one to us, where we force it at all.
fn short(theirs: &str, ours: &str) -> String {
    if theirs.starts_with("refused") {
        return "refused".into();
    }
    let (places, marks): (Vec<_>, Vec<_>) =
        theirs.split(' ').filter(|w| !w.ends_with(":F")).partition(|w| w.contains(':'));
    let mut words: Vec<String> = places.iter().map(|word| word.to_string()).collect();
    let mut forced = BTreeSet::new();
    for pair in marks.chunks(2) {
        let as_forced = format!("forced {}", pair[1]);
        match pair[0] {
            "resync" => words.push(pair.join(" ")),
            "cleared" if !ours.contains(&as_forced) => {}
            _ => drop(forced.insert(as_forced)),
        }
    }
    words.extend(forced);
    words.join(" ")
}

/// A case under one set of options.
struct Case<'a> {
    name: &'a str,
    options: &'a str,
    ours: String,
    theirs: &'a str,
    verdicts: String,
}

impl Case<'_> {
    fn array(&self) -> &str {
        self.name.split(':').next().unwrap()
    }

    fn is_forced(&self) -> bool {
        self.options.contains("force")
    }

    /// They take what we take, and more.
    fn they_take_more(&self) -> bool {
        let taken = |text: &str| -> BTreeSet<String> {
            text.split(' ').filter(|w| w.contains(':')).map(str::to_owned).collect()
        };
        let (ours, theirs) = (taken(&self.ours), taken(self.theirs));
        self.ours != "refused" && ours.is_subset(&theirs) && ours != theirs
    }

    fn without_resync(text: &str) -> String {
        let mut words: Vec<_> = text.split(' ').collect();
        if let Some(at) = words.iter().position(|word| *word == "resync") {
            words.drain(at..at + 2);
        }
        words.join(" ")
    }
}

type Difference = (&'static str, fn(&Case<'_>) -> bool);

/// Where we mean to decide otherwise than mdadm and the kernel, and why.
const DIFFERENCES: [Difference; 14] = [
    ("a member that one of as many events calls failed: md takes it, old data and all", |c| {
        c.name.ends_with("the removed one level") && c.verdicts.contains("failed")
    }),
    ("halves that saw as many events: mdadm takes the one of the device named first", |c| {
        c.verdicts.ends_with(": halves")
    }),
    ("two equally fresh copies of a member: mdadm takes the first, and says nothing", |c| {
        c.name.ends_with("a copy last") && c.ours == "refused"
    }),
    ("a spare that the freshest calls a member: the kernel takes it for one in sync", |c| {
        c.name.starts_with("r5x: spare of before its recovery") && c.theirs.contains("2:1")
    }),
    ("a member from before a change of shape: mdadm gives up, and does not say why", |c| {
        c.array() == "r1g" && c.theirs.contains("doesn't match others")
    }),
    (
        "0.90: the member that has seen most calls all in sync, so it was recovered an event ago",
        |c| c.name == "or1: fail1, 0 1 behind" && c.ours.starts_with("0:0 1:1"),
    ),
    ("0.90: the kernel takes a member that failed one event ago", |c| {
        c.array().starts_with('o')
            && !c.is_forced()
            && (c.verdicts.contains("failed") || c.verdicts.contains('S'))
    }),
    (
        "run: with all data there no parity stands in for any, and they want force if nobody has it, or a raid4's is made anew",
        |c| {
            let has_all_data = match c.array() {
                "r5pf" => c.ours.starts_with("0:1 1:2"),
                "r4" | "r4rec" | "r5pl" => c.ours.starts_with("0:0 1:1"),
                _ => false,
            };
            has_all_data && c.options == "run" && c.theirs.starts_with("refused")
        },
    ),
    ("force: mdadm declares clean what recovers parity, which was right only up to there", |c| {
        c.is_forced()
            && matches!(c.array(), "r4rec" | "r5pl")
            && c.ours.contains("2:2~")
            && c.ours.strip_suffix(" resync 0") == Some(&short(c.theirs, &c.ours))
    }),
    ("force: mdadm also takes members that failed one event ago, though nobody needs them", |c| {
        c.is_forced()
            && c.they_take_more()
            && (c.verdicts.contains("failed") || c.verdicts.contains("split"))
    }),
    ("force: mdadm takes stale copies beside better ones", |c| {
        c.is_forced()
            && c.array().contains("r10")
            && c.they_take_more()
            && c.ours.contains("forced")
    }),
    ("force: the kernel reads the array's state from a raised member in a lower slot", |c| {
        c.is_forced()
            && c.ours.contains("forced")
            && Case::without_resync(&c.ours) == Case::without_resync(&short(c.theirs, &c.ours))
    }),
    ("force: mdadm counts a raised member by its place in the list instead of its slot", |c| {
        c.is_forced()
            && c.ours.contains("forced")
            && c.name.ends_with("0 missing")
            && c.theirs.starts_with("refused")
    }),
    (
        "force: mdadm does not declare a raid4 without parity clean, and the kernel refuses it",
        |c| {
            c.is_forced()
                && c.array().starts_with("r4")
                && c.ours.starts_with("0:0 1:1")
                && c.theirs.contains("failed to RUN_ARRAY")
        },
    ),
];

/// Every case under every set of options.
fn each_case(mut look: impl FnMut(&Case<'_>)) {
    let text = std::fs::read_to_string("tests/vectors/assemble.jsonl").unwrap();
    let mut known = Bytes::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if let Some(name) = line["superblock"].as_str() {
            let version = line["version"].as_str().unwrap().to_owned();
            let bytes = read_superblock(&line, &known);
            known.insert(name.to_owned(), (version, bytes));
            continue;
        }
        let name = line["case"].as_str().unwrap();
        let given = line["members"].as_array().unwrap();
        let members: Vec<_> = given.iter().map(|m| member(m, &known)).enumerate().collect();
        let plain = line["outcomes"][""].as_str().unwrap();
        for (options, theirs) in line["outcomes"].as_object().unwrap() {
            let theirs = theirs.as_str().filter(|text| *text != "=").unwrap_or(plain);
            let (force, run) = (options.contains("force"), options.contains("run"));
            let decision = decide(&members, &Options { force, run, ..Options::default() });
            let ours = decision.as_ref().map_or("refused".into(), outcome);
            let verdicts = decision.map_or_else(|error| error.to_string(), |a| words(&a));
            look(&Case { name, options, ours, theirs, verdicts });
        }
    }
}

#[test]
fn mdadm_and_the_kernel_decide_alike() {
    let (mut compared, mut wrong, mut different) = (0, vec![], [0; DIFFERENCES.len()]);
    each_case(|case| {
        compared += 1;
        if case.ours == short(case.theirs, &case.ours) {
            return;
        }
        match DIFFERENCES.iter().position(|(_, applies)| applies(case)) {
            Some(which) => different[which] += 1,
            None => {
                let Case { name, options, ours, theirs, verdicts } = case;
                let ours = format!("  ours   {ours} ({verdicts})");
                wrong.push(format!("{name} [{options}]\n{ours}\n  theirs {theirs}"));
            }
        }
    });
    assert!(wrong.is_empty(), "{} of {compared}\n{}", wrong.len(), wrong.join("\n"));
    for ((why, _), count) in DIFFERENCES.iter().zip(different) {
        println!("{count:4} of {compared}: {why}");
        assert!(count > 0, "no longer different: {why}");
    }
}
