//! What a plan says of the drives and the machine behind it, for those who predict: profiles, channels, processor.

use super::raw::{RawChannel, RawDisk, RawMachine};
use super::resolve::{Problems, is_name};
use super::{Channel, Disk, DiskShape, Machine};
use lapstrake_model::profile::{Profile, ProfileError, builtin};
use lapstrake_model::{ProcessorProfile, processor as processors};
use std::path::Path;
use toml::Spanned;

/// What a profile's name stands for: one that is built in, or a file.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn named<P>(
    name: &str,
    directory: &Path,
    builtin: impl Fn(&str) -> Option<Result<P, ProfileError>>,
    parse: impl Fn(&str) -> Result<P, ProfileError>,
    command: &str,
) -> Result<P, String> {
    if let Some(profile) = builtin(name) {
        return profile.map_err(|error| format!("profile {name}: {error}"));
    }
    let path = directory.join(name);
    match std::fs::read_to_string(&path) {
        Ok(text) => parse(&text).map_err(|error| format!("{}: {error}", path.display())),
        Err(error) => Err(format!(
            "{name:?} is no profile that is built in ({command}), and {} cannot be read: {error}",
            path.display()
        )),
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
    let all = processors::names().join(", ");
    let found = named(
        name,
        directory,
        processors::get,
        ProcessorProfile::from_toml,
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
    Machine { processor, memory: raw.memory.map(|bytes| bytes.0), linux }
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
        at: raw.at.as_ref().map(|at| *at.get_ref()),
    }
}

/// The channels; each that a disk names is there.
pub(super) fn channels(
    raw: &[Spanned<RawChannel>],
    disks: &[Disk],
    raw_disks: &[Spanned<RawDisk>],
    problems: &mut Problems<'_>,
) -> Vec<Channel> {
    let mut channels: Vec<Channel> = Vec::new();
    for entry in raw {
        let RawChannel { name, rate, holds } = entry.get_ref();
        if !is_name(name.get_ref()) {
            let text = format!("{:?} is no name: use letters, digits and .-_", name.get_ref());
            problems.at(name.span(), text);
        } else if channels.iter().any(|channel| channel.name == *name.get_ref()) {
            problems.at(name.span(), format!("there is another channel {:?}", name.get_ref()));
        }
        if rate.get_ref().0 == 0 {
            problems.at(rate.span(), "at no bytes a second nothing would ever be done");
        }
        let (name, rate) = (name.get_ref().clone(), rate.get_ref().0);
        channels.push(Channel { name, rate, holds: *holds });
    }
    for disk in raw_disks.iter().map(Spanned::get_ref) {
        if let Some(name) = disk.channel.as_ref()
            && !channels.iter().any(|channel| channel.name == *name.get_ref())
        {
            problems.at(name.span(), format!("there is no [[channel]] {:?}", name.get_ref()));
        }
    }
    for name in channels.iter().map(|channel| &channel.name) {
        if !disks.iter().any(|disk| disk.model.channel.as_ref() == Some(name)) {
            let entry = raw.iter().find(|entry| entry.get_ref().name.get_ref() == name);
            let span = entry.map_or(0..0, |entry| entry.get_ref().name.span());
            problems.at(span, format!("no disk is on channel {name:?}"));
        }
    }
    channels
}
