//! From a plan's file to a [`Plan`]: names are looked up, matrices unfolded, everything that is wrong collected.

use super::arrays::Arrays;
use super::raw::{RawDisk, RawPlan, RawRules};
use super::values::Many;
use super::{Disk, DiskPlace, Order, Plan, Prepare, Problem, Rules, drives, reading, workloads};
use crate::near;
use lapstrake_device::MemberSpec;
use lapstrake_stats::Repeats;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

/// Below this an image has no room for superblock, bitmap and data.
const IMAGE_BYTES_MIN: u64 = 16 << 20;

/// Of a disk or an array, bytes: files named by it have more in their names, of 255 at most.
pub(super) const NAME_MAX: usize = 100;

/// Problems on their way to lines.
pub(super) struct Problems<'a> {
    text: &'a str,
    all: Vec<Problem>,
}

impl Problems<'_> {
    pub(super) fn at(&mut self, span: Range<usize>, text: impl Into<String>) {
        self.all.push(Problem { line: Some(line(self.text, span.start)), text: text.into() });
    }

    fn whole(&mut self, text: impl Into<String>) {
        self.all.push(Problem { line: None, text: text.into() });
    }
}

/// The line, from 1, of a byte.
fn line(text: &str, byte: usize) -> usize {
    1 + text.bytes().take(byte).filter(|&b| b == b'\n').count()
}

/// What a parser says of a value of another type, as somebody who wrote a plan says it.
fn in_words(message: &str) -> String {
    if let Some(field) = message.strip_prefix("missing field ") {
        return format!("{field} is missing");
    }
    if let Some(unknown) = message.strip_prefix("unknown ") {
        return meant(unknown).unwrap_or_else(|| message.to_owned());
    }
    let other = message.strip_prefix("invalid type: ").or(message.strip_prefix("invalid value: "));
    let Some((found, expected)) = other.and_then(|other| other.split_once(", expected ")) else {
        return message.to_owned();
    };
    let found = match found.split_once(' ') {
        Some(("string", text)) => format!("the text {text}"),
        Some(("integer" | "boolean", value)) => value.trim_matches('`').to_owned(),
        Some(("floating", value)) => {
            value.trim_start_matches("point ").trim_matches('`').to_owned()
        }
        _ if found == "sequence" => "a list".to_owned(),
        _ if found == "map" => "a table".to_owned(),
        _ => found.to_owned(),
    };
    let expected = match expected {
        "u8" => "a whole number from 0 to 255",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0 on",
        "f64" => "a number",
        "a string" => "a text in quotes",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        other => other,
    };
    format!("{found} where {expected} must be")
}

/// An unknown name, and which of those that are listed behind it somebody may have meant.
fn meant(unknown: &str) -> Option<String> {
    let mut names = unknown.split('`').skip(1).step_by(2);
    let given = names.next()?;
    let known: Vec<&str> = names.collect();
    let kind = unknown.split(' ').next()?;
    Some(format!("unknown {kind} `{given}`; did you mean {}?", near::names(given, &known)?))
}

/// What is wrong with a text that is no TOML, or not what it must be.
pub(crate) fn told(text: &str, error: &toml::de::Error) -> Problem {
    let line = error.span().map(|span| line(text, span.start));
    Problem { line, text: in_words(error.message()).replace('\n', "; ") }
}

pub(super) fn plan(text: &str, directory: &Path) -> Result<Plan, Vec<Problem>> {
    let reading = reading::read::<RawPlan>(text);
    let wrong = sorted(reading.problems);
    let Some(raw) = reading.value else { return Err(wrong) };
    if wrong.is_empty() {
        return resolved(raw, text, directory);
    }
    Err(with_others(wrong, &reading.blanked, text, || resolved(raw, text, directory).err()))
}

/// Besides what cannot be read, what else is wrong, but not what may be so only because of that: in the same section,
/// of the plan as a whole, and all that may refer to a section without which others make no sense.
fn with_others(
    mut wrong: Vec<Problem>,
    blanked: &[Range<usize>],
    text: &str,
    others: impl FnOnce() -> Option<Vec<Problem>>,
) -> Vec<Problem> {
    let sections: Vec<_> =
        blanked.iter().map(|range| reading::section(text, range.start)).collect();
    let stands_alone = |section: &Range<usize>| {
        ["[[array]]", "[[workload]]", "[run]"].iter().any(|h| text[section.clone()].starts_with(h))
    };
    if !sections.iter().all(stands_alone) {
        return wrong;
    }
    let lines: Vec<_> =
        sections.iter().map(|part| line(text, part.start)..line(text, part.end) + 1).collect();
    let is_sure = |problem: &Problem| {
        problem.line.is_some_and(|line| !lines.iter().any(|lines| lines.contains(&line)))
    };
    wrong.extend(others().into_iter().flatten().filter(is_sure));
    sorted(wrong)
}

/// In the order of their lines; those of the plan as a whole last.
fn sorted(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
    problems
}

fn resolved(raw: RawPlan, text: &str, directory: &Path) -> Result<Plan, Vec<Problem>> {
    let mut problems = Problems { text, all: Vec::new() };
    let disks = disks(&raw.disk, directory, &mut problems);
    let channels = drives::channels(&raw.channel, &raw.disk, &mut problems);
    let controllers = drives::controllers(&raw.controller, &raw.disk, &mut problems);
    let machine = drives::machine(&raw.machine, directory, &mut problems);
    let care = drives::care(&raw.care, &mut problems);
    let rules = rules(&raw.run, directory, &mut problems);
    let mut arrays = Arrays::new(&disks, directory);
    for array in &raw.array {
        arrays.add(array, &mut problems);
    }
    let (arrays, mut notes) = arrays.done();
    let workloads = workloads::all(&raw.workload, &rules, directory, &mut problems);
    if raw.array.is_empty() {
        problems.whole("there is no [[array]]: nothing to measure");
    } else if raw.workload.is_empty() {
        problems.whole("there is no [[workload]]: nothing to measure with");
    }
    let about = raw.about;
    let mut plan = Plan {
        name: raw.name,
        about,
        text: text.to_owned(),
        rules,
        machine,
        care,
        channels,
        controllers,
        disks,
        arrays,
        workloads,
        notes: Vec::new(),
    };
    if problems.all.is_empty() {
        fit(&plan, &raw.workload, &mut notes, &mut problems);
    }
    plan.notes = notes;
    if problems.all.is_empty() { Ok(plan) } else { Err(sorted(problems.all)) }
}

/// Every workload has an array to run on, and every array a workload.
fn fit(
    plan: &Plan,
    raw: &[Spanned<super::raw::RawWorkload>],
    notes: &mut Vec<String>,
    problems: &mut Problems<'_>,
) {
    for workload in &plan.workloads {
        let measured = || plan.arrays.iter().filter(|array| !array.states.is_empty());
        let reasons: Vec<_> =
            measured().filter_map(|array| Some((array, workload.unfit(array)?))).collect();
        if reasons.len() == measured().count() {
            let base = raw.iter().find(|raw| {
                let name = raw.get_ref().name.get_ref();
                workload.name == *name || workload.name.starts_with(&format!("{name} "))
            });
            let why = reasons.first().map_or("no array is measured", |(_, why)| why);
            let span = base.map_or(0..0, |raw| raw.get_ref().name.span());
            problems.at(
                span,
                format!("workload {:?} runs on none of the arrays: {why}", workload.name),
            );
        } else {
            let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            for (array, why) in reasons {
                by_reason.entry(why).or_default().push(&array.name);
            }
            for (why, arrays) in by_reason {
                notes.push(format!("{} does not run on {}: {why}", workload.name, listed(&arrays)));
            }
        }
    }
    for array in plan.arrays.iter().filter(|array| !array.states.is_empty()) {
        if plan.loads(array).next().is_none() {
            problems.whole(format!("no workload runs on array {:?}", array.name));
        }
        if plan.rules.prepare == Prepare::AssumeClean && array.states.len() > 1 {
            notes.push(format!(
                "{}: with prepare = \"assume-clean\" what it gives without a member is not what was written",
                array.name
            ));
        }
    }
}

/// The first few by name.
pub(crate) fn listed(names: &[&str]) -> String {
    match names {
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        few => few.join(", "),
    }
}

fn rules(raw: &RawRules, directory: &Path, problems: &mut Problems<'_>) -> Rules {
    let value = |given: &Option<Spanned<u32>>| given.as_ref().map(|given| *given.get_ref());
    // Verdicts were proven with these.
    let default = Repeats::default();
    let repeats = value(&raw.repeats).unwrap_or(default.min);
    let repeats_max = value(&raw.repeats_max).unwrap_or(default.max.max(repeats));
    for given in [&raw.repeats, &raw.repeats_max].into_iter().flatten() {
        if *given.get_ref() == 0 {
            problems.at(given.span(), "no repeat measures nothing; 5 are the default");
        }
    }
    if let Some(given) = raw.repeats_max.as_ref().filter(|given| *given.get_ref() < repeats) {
        problems.at(given.span(), format!("repeats-max is less than repeats, which is {repeats}"));
    }
    if let Some(given) = raw.time.as_ref().filter(|given| given.get_ref().0.is_zero()) {
        problems.at(given.span(), "a run of no length measures nothing");
    }
    Rules {
        repeats,
        repeats_max,
        interval: raw.interval.map_or(default.width, |share| share.0),
        warm_up: raw.warm_up.map_or(Duration::from_secs(1), |time| time.0),
        time: raw.time.as_ref().map_or(Duration::from_secs(5), |time| time.get_ref().0),
        budget: raw.budget.map(|time| time.0),
        order: raw.order.unwrap_or(Order::Abba),
        prepare: raw.prepare.unwrap_or(Prepare::Sync),
        seed: raw.seed.unwrap_or(1),
        directory: raw.directory.as_ref().map(|path| directory.join(path)),
    }
}

fn disks(raw: &[Spanned<RawDisk>], directory: &Path, problems: &mut Problems<'_>) -> Vec<Disk> {
    let mut disks: Vec<Disk> = Vec::new();
    let mut names = BTreeSet::new();
    for entry in raw {
        let found = disk(entry, directory, problems);
        for (disk, span) in found {
            if !is_name(&disk.name) {
                problems.at(
                    span,
                    format!(
                        "{:?} is no name: use letters, digits and .-_, {NAME_MAX} at most",
                        disk.name
                    ),
                );
            } else if !names.insert(disk.name.clone()) {
                problems.at(span, format!("there is another disk {:?}", disk.name));
            }
            disks.push(disk);
        }
    }
    disks
}

/// Names become parts of paths and of tables.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    (1..=NAME_MAX).contains(&name.len())
        && name != "missing"
        && name != "-"
        && name.chars().all(plain)
        && !name.starts_with('.')
}

fn disk(
    entry: &Spanned<RawDisk>,
    directory: &Path,
    problems: &mut Problems<'_>,
) -> Vec<(Disk, Range<usize>)> {
    let raw = entry.get_ref();
    match (&raw.path, &raw.make) {
        (Some(path), None) => {
            if let Some(size) = &raw.size {
                let window = "of a given disk, a window says it: path = \"/dev/sdb@0+10G\"";
                problems.at(size.span(), format!("size is for disks to make; {window}"));
            }
            if let Some(size) = &raw.size_predicted {
                let window = "of a given disk, a window says it: path = \"/dev/sdb@0+10G\"";
                problems.at(size.span(), format!("size-predicted is for disks to make; {window}"));
            }
            let Some(name) = &raw.name else {
                problems.at(path.span(), "the disk has no name; arrays call it by one");
                return Vec::new();
            };
            match path.get_ref().parse::<MemberSpec>() {
                Ok(spec) if spec.partition.is_some() => {
                    let window =
                        "give its place, as `sfdisk --json` tells it: path = \"disk.img@1M+10G\"";
                    problems.at(
                        path.span(),
                        format!("a partition within a disk is not taken here; {window}"),
                    );
                    Vec::new()
                }
                Ok(mut spec) => {
                    spec.path = directory.join(PathBuf::from(&spec.path));
                    let place = DiskPlace::Given { spec, expendable: raw.expendable };
                    let model = drives::model(raw, directory, problems);
                    vec![(Disk { name: name.get_ref().clone(), place, model }, name.span())]
                }
                Err(error) => {
                    problems.at(path.span(), error.to_string());
                    Vec::new()
                }
            }
        }
        (None, Some(make)) => {
            let Some(size) = &raw.size else {
                problems.at(make.span(), "disks to make need a size, such as size = \"256M\"");
                return Vec::new();
            };
            let bytes = size.get_ref().0;
            if bytes < IMAGE_BYTES_MIN || bytes % 4096 != 0 {
                problems.at(size.span(), "an image has at least 16M, in whole blocks of 4K");
            }
            if let Some(name) = &raw.name {
                problems.at(name.span(), "make names the disks already: make = [\"a\", \"b\"]");
            }
            let Many(names) = make.get_ref();
            let model = drives::model(raw, directory, problems);
            let place = DiskPlace::Make { bytes };
            let disk = |name: &String| Disk {
                name: name.clone(),
                place: place.clone(),
                model: model.clone(),
            };
            names.iter().map(|name| (disk(name), make.span())).collect()
        }
        (Some(path), Some(_)) => {
            problems.at(path.span(), "a disk is given (path) or made (make), not both");
            Vec::new()
        }
        (None, None) => {
            problems.at(entry.span(), "a disk has a path, or make and size");
            Vec::new()
        }
    }
}
