//! What a plan says of the drives and the machine behind it, for those who predict: profiles, channels, processor.

use super::arrays::size_text;
use super::raw::{RawCare, RawChannel, RawController, RawDisk, RawMachine};
use super::resolve::{Problems, is_name};
use super::values::{Bytes, Time};
use super::{Channel, Controller, DiskShape, Machine};
use crate::advise::Care;
use crate::near;
use crate::safety::{SCRUB_DAYS, SPARES, YEARS};
use crate::{TEXT_MAX, read_text};
use lapstrake_model::profile::{Profile, ProfileError, builtin};
use lapstrake_model::{ProcessorProfile, processor as processors};
use std::path::Path;
use toml::Spanned;

/// Below this a page cache is too small for a window of read-ahead beside dirty pages.
const MEMORY_MIN: u64 = 16 << 20;

/// The slowest channel that a disk was ever on moves more, bytes a second.
const RATE_MIN: u64 = 100_000;

/// What a profile's name stands for: one that is built in, or a file.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn named<P>(
    name: &str,
    directory: &Path,
    like: impl Fn(&str) -> Option<Result<P, ProfileError>>,
    parse: impl Fn(&str) -> Result<P, ProfileError>,
    known: &[&str],
    command: &str,
) -> Result<P, String> {
    if let Some(profile) = like(name) {
        return profile.map_err(|error| format!("profile {name}: {error}"));
    }
    let path = directory.join(name);
    match read_text(&path, TEXT_MAX) {
        Ok(text) => parse(&text).map_err(|error| format!("{}: {error}", path.display())),
        Err(error) => {
            let like = near::names(name, known);
            let like = like.map_or(String::new(), |like| format!("; is {like} meant?"));
            Err(format!(
                "{name:?} is no profile that is built in ({command}), and {} cannot be read: {error}{like}",
                path.display()
            ))
        }
    }
}

/// A disk's profile by its name.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn profile(name: &str, directory: &Path) -> Result<Profile, String> {
    let found = named(
        name,
        directory,
        builtin::get,
        Profile::from_toml,
        &builtin::names(),
        "`lapstrake disk list` names them",
    )?;
    found.build().map_err(|error| format!("profile {name}: {error}"))?;
    Ok(found)
}

/// A processor's profile by its name.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn processor_named(name: &str, directory: &Path) -> Result<ProcessorProfile, String> {
    let known = processors::names();
    let all = known.join(", ");
    let found = named(
        name,
        directory,
        processors::get,
        ProcessorProfile::from_toml,
        &known,
        &format!("there are {all}"),
    )?;
    found.build().map_err(|error| format!("profile {name}: {error}"))?;
    Ok(found)
}

/// On what arrays are predicted to run.
pub(super) fn machine(raw: &RawMachine, directory: &Path, problems: &mut Problems<'_>) -> Machine {
    let processor = raw.processor.as_ref().and_then(|name| {
        let found = processor_named(name.get_ref(), directory);
        found.map_err(|why| problems.at(name.span(), why)).ok()
    });
    let linux = raw.linux.as_ref().and_then(|text| {
        let number = version(text.get_ref());
        if number.is_none() {
            let text = format!(
                "{:?} is no version of Linux, such as \"2.6.21\" or \"6.1\"",
                text.get_ref()
            );
            problems.at(raw.linux.as_ref().map_or(0..0, Spanned::span), text);
        }
        number
    });
    let bytes = |given: &Option<Spanned<Bytes>>| given.as_ref().map(|bytes| bytes.get_ref().0);
    for given in [&raw.memory, &raw.low_memory].into_iter().flatten() {
        if given.get_ref().0 < MEMORY_MIN {
            problems.at(given.span(), "the model of an operating system needs 16M of memory");
        }
    }
    Machine { processor, memory: bytes(&raw.memory), low_memory: bytes(&raw.low_memory), linux }
}

/// How disks are looked after.
pub(super) fn care(raw: &RawCare, problems: &mut Problems<'_>) -> Care {
    let default = Care::default();
    let hours = |time: Time| time.0.as_secs_f64() / 3600.0;
    let nobody = |time: &Time| time.0.is_zero();
    // Where nobody scrubs that is no time between scrubs.
    let days = |time: Time| if nobody(&time) { SCRUB_DAYS.0 } else { hours(time) / 24.0 };
    let years = held(&raw.years, |years| years, YEARS, "years are", problems);
    let scrub =
        held(&raw.scrub, days, SCRUB_DAYS, "days between scrubs are, unless 0 for none,", problems);
    let spares = held(&raw.spares, |spares| spares as f64, SPARES, "spares are", problems);
    Care {
        years: years.unwrap_or(default.years),
        replace_hours: raw.replace.map_or(default.replace_hours, hours),
        scrub_hours: scrub
            .map_or(default.scrub_hours, |time| Some(time).filter(|time| !nobody(time)).map(hours)),
        spares: spares.unwrap_or(default.spares),
    }
}

/// What is given, held against its bounds.
fn held<T: Copy>(
    given: &Option<Spanned<T>>,
    number: impl Fn(T) -> f64,
    (least, most): (f64, f64),
    what: &str,
    problems: &mut Problems<'_>,
) -> Option<T> {
    let given = given.as_ref()?;
    if !(least..=most).contains(&number(*given.get_ref())) {
        problems.at(given.span(), format!("{what} from {least} to {most}"));
    }
    Some(*given.get_ref())
}

/// 2.6.21 as 20621.
fn version(text: &str) -> Option<u32> {
    let parts: Option<Vec<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
    let parts = parts?;
    let part = |index: usize| parts.get(index).copied().unwrap_or(0);
    let is_one = (2..=3).contains(&parts.len()) && parts.iter().all(|part| *part < 100);
    is_one.then(|| part(0) * 10_000 + part(1) * 100 + part(2))
}

/// What a disk is when it is predicted.
pub(super) fn model(raw: &RawDisk, directory: &Path, problems: &mut Problems<'_>) -> DiskShape {
    let text = |name: &Option<Spanned<String>>| name.as_ref().map(|name| name.get_ref().clone());
    let profile = raw.profile.as_ref().and_then(|name| {
        profile(name.get_ref(), directory).map_err(|why| problems.at(name.span(), why)).ok()
    });
    DiskShape {
        profile,
        drive: text(&raw.drive),
        channel: text(&raw.channel),
        controller: text(&raw.controller),
        size: raw.size_predicted.as_ref().map(|size| *size.get_ref()),
        at: raw.at.as_ref().map(|at| *at.get_ref()),
    }
}

/// The channels; each that a disk names is there.
pub(super) fn channels(
    raw: &[Spanned<RawChannel>],
    raw_disks: &[Spanned<RawDisk>],
    problems: &mut Problems<'_>,
) -> Vec<Channel> {
    let names = raw.iter().map(|entry| &entry.get_ref().name);
    let users = raw_disks.iter().filter_map(|disk| disk.get_ref().channel.as_ref());
    named_by_disks("channel", names, users, problems);
    let channel = |entry: &Spanned<RawChannel>| {
        let RawChannel { name, rate, holds } = entry.get_ref();
        check_rate(rate, problems);
        Channel { name: name.get_ref().clone(), rate: rate.get_ref().0, holds: *holds }
    };
    raw.iter().map(channel).collect()
}

/// The controllers; each that a disk names is there.
pub(super) fn controllers(
    raw: &[Spanned<RawController>],
    raw_disks: &[Spanned<RawDisk>],
    problems: &mut Problems<'_>,
) -> Vec<Controller> {
    let names = raw.iter().map(|entry| &entry.get_ref().name);
    let users = raw_disks.iter().filter_map(|disk| disk.get_ref().controller.as_ref());
    named_by_disks("controller", names, users, problems);
    let controller = |entry: &Spanned<RawController>| {
        let RawController { name, cache, rate, overhead, run } = entry.get_ref();
        if let Some(rate) = rate {
            check_rate(rate, problems);
        }
        if let Some(run) = run.as_ref().filter(|run| run.get_ref().0 < 4096) {
            problems.at(run.span(), "a controller writes 4K at once, at least");
        }
        let bytes = |given: &Option<Spanned<Bytes>>| given.as_ref().map(|bytes| bytes.get_ref().0);
        Controller {
            name: name.get_ref().clone(),
            cache: cache.get_ref().0,
            rate: bytes(rate),
            overhead: overhead.map(|time| time.0),
            run: bytes(run),
        }
    };
    raw.iter().map(controller).collect()
}

fn check_rate(rate: &Spanned<Bytes>, problems: &mut Problems<'_>) {
    if rate.get_ref().0 < RATE_MIN {
        let told = size_text(rate.get_ref().0);
        let why = format!(
            "{told} a second is less than any channel moves; say it in bytes, such as 300M"
        );
        problems.at(rate.span(), why);
    }
}

/// What disks are on or behind: each has a name of its own and a disk, and each that a disk names is there.
fn named_by_disks<'a>(
    what: &str,
    names: impl Iterator<Item = &'a Spanned<String>>,
    users: impl Iterator<Item = &'a Spanned<String>>,
    problems: &mut Problems<'_>,
) {
    let users: Vec<_> = users.collect();
    let mut known: Vec<&str> = Vec::new();
    for name in names {
        let text = name.get_ref().as_str();
        if !is_name(text) {
            problems.at(name.span(), format!("{text:?} is no name: use letters, digits and .-_"));
        } else if known.contains(&text) {
            problems.at(name.span(), format!("there is another {what} {text:?}"));
        } else if !users.iter().any(|user| user.get_ref() == text) {
            problems.at(name.span(), format!("no disk is on {what} {text:?}"));
        }
        known.push(text);
    }
    for user in users {
        let text = user.get_ref();
        if !known.contains(&text.as_str()) {
            problems.at(user.span(), format!("there is no [[{what}]] {text:?}"));
        }
    }
}
