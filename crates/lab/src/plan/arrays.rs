//! Arrays of a plan: each entry is a matrix over what it lists, unfolded here.
//!
//! A setting that a combination has no use for (the chunk of a RAID1) is dropped, and combinations that come to the
//! same are one. A combination that cannot be is left out with a note; an entry of which nothing is left is a
//! problem.

mod names;
mod possible;

use super::raw::{RawArray, RawState};
use super::resolve::{NAME_MAX, Problems, is_name};
use super::values::{Bytes, LevelName, Many, Members, Metadata};
use super::{Array, Disk, DiskPlace, Leg, Over, Shape};
use crate::record::{State, SubjectKind};
use lapstrake_engine::STRIPE_CACHE_SIZES;
use lapstrake_geometry::{Layout, Level};
use names::{label, names};
use possible::{data_bytes, impossible, spare_members};
use std::collections::BTreeSet;
use std::path::Path;
use toml::Spanned;

/// The arrays so far, by which later ones can be nested.
pub(super) struct Arrays<'a> {
    disks: &'a [Disk],
    directory: &'a Path,
    done: Vec<Array>,
    notes: Vec<String>,
}

/// One combination, before it is known whether it can be.
#[derive(Clone)]
struct Choice {
    kind: SubjectKind,
    members: Vec<Leg>,
    shape: Shape,
}

impl<'a> Arrays<'a> {
    pub(super) fn new(disks: &'a [Disk], directory: &'a Path) -> Self {
        Self { disks, directory, done: Vec::new(), notes: Vec::new() }
    }

    pub(super) fn done(self) -> (Vec<Array>, Vec<String>) {
        (self.done, self.notes)
    }

    /// Unfolds an entry.
    pub(super) fn add(&mut self, entry: &Spanned<RawArray>, problems: &mut Problems<'_>) {
        let raw = entry.get_ref();
        if let Some(name) = raw.name.as_ref().filter(|name| !is_name(name.get_ref())) {
            let text = format!(
                "{:?} is no name: use letters, digits and .-_, {NAME_MAX} at most",
                name.get_ref()
            );
            problems.at(name.span(), text);
            return;
        }
        let exists =
            raw.system.as_ref().is_some_and(|s| s.get_ref().0.contains(&SubjectKind::Existing));
        if let Some(path) = raw.path.as_ref().filter(|_| !exists) {
            problems.at(path.span(), "path is of what exists: system = \"existing\"");
        } else if exists && raw.path.is_none() {
            problems.at(entry.span(), "what exists has a path");
        }
        if !syntax(raw, problems) {
            return;
        }
        let Some(members) = self.members(raw, problems) else { return };
        let disks = self.disks;
        let bytes = |name: &str| disks.iter().find(|disk| disk.name == name)?.bytes();
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for choice in unfold(raw, &members) {
            let here = || self.too_small(&choice).or_else(|| self.on_no_controller(&choice));
            match impossible(&choice, &bytes).or_else(here) {
                None if good.iter().any(|known: &Choice| same(known, &choice)) => {}
                None => good.push(choice),
                Some(why) => bad.push((choice, why)),
            }
        }
        let span = raw.name.as_ref().map_or(entry.span(), Spanned::span);
        if good.is_empty() {
            let why = bad.first().map_or("it has no combination", |(_, why)| why);
            problems.at(span, format!("the array cannot be built: {why}"));
            return;
        }
        let mut words = BTreeSet::new();
        for (choice, why) in &bad {
            words.insert(format!("left out: {}: {why}", label(choice)));
        }
        self.notes.extend(words);
        let names = names(raw, &good);
        for (choice, name) in good.into_iter().zip(names) {
            if self.done.iter().any(|array| array.name == name)
                || self.disks.iter().any(|disk| disk.name == name)
            {
                problems.at(
                    span.clone(),
                    format!("the name {name:?} is taken; give the array another"),
                );
                continue;
            }
            let states = self.states(raw, &choice, &name, problems);
            self.done.push(Array {
                bytes: data_bytes(&choice, self.disks),
                name,
                kind: choice.kind,
                shape: choice.shape,
                members: choice.members,
                states,
                path: raw.path.as_ref().map(|path| self.directory.join(path.get_ref())),
                expendable: raw.expendable,
            });
        }
    }

    /// mkfs.btrfs wants 125 MiB of each device, so of each image; ZFS's least (SPA_MINDEVSIZE) is 64.
    fn too_small(&self, choice: &Choice) -> Option<String> {
        let (system, mib) = match choice.kind {
            SubjectKind::Btrfs => ("btrfs", 125),
            SubjectKind::Zfs => ("ZFS", 64),
            _ => return None,
        };
        let size =
            |leg: &Leg| self.disks.iter().find(|disk| disk.name == leg.name()).map(|d| &d.place);
        let small =
            |leg: &&Leg| matches!(size(leg), Some(DiskPlace::Make { bytes }) if *bytes < mib << 20);
        let leg = choice.members.iter().find(small)?;
        Some(format!("{system} needs {mib}M of each member, more than {:?} has", leg.name()))
    }

    /// A controller makes volumes of disks behind it.
    fn on_no_controller(&self, choice: &Choice) -> Option<String> {
        let named = |leg: &Leg| self.disks.iter().find(|disk| disk.name == leg.name());
        let mut behind = choice.members.iter().map(|leg| named(leg)?.model.controller.as_deref());
        let first = behind.next()?;
        let is_one = first.is_some() && behind.all(|other| other == first);
        (choice.kind == SubjectKind::Controller && !is_one).then(|| {
            "a controller's volume is made of disks behind one [[controller]]: controller = \"NAME\" in their [[disk]]".into()
        })
    }

    /// The choices of members, looked up.
    fn members(&self, raw: &RawArray, problems: &mut Problems<'_>) -> Option<Vec<Vec<Leg>>> {
        let Some(members) = &raw.members else { return Some(vec![Vec::new()]) };
        let lists = match members.get_ref() {
            Members::Named(lists) => lists.clone(),
            Members::First(counts) => {
                let most = counts.iter().copied().max().unwrap_or(0);
                if most > self.disks.len() {
                    let text =
                        format!("{most} members, but the plan has {} disks", self.disks.len());
                    problems.at(members.span(), text);
                    return None;
                }
                let first =
                    |&count: &usize| self.disks[..count].iter().map(|d| d.name.clone()).collect();
                counts.iter().map(first).collect()
            }
        };
        let mut found = Vec::new();
        for list in &lists {
            let legs: Option<Vec<Leg>> =
                list.iter().map(|name| self.leg(name, members.span(), problems)).collect();
            let legs = legs?;
            let below: Vec<&str> = legs.iter().flat_map(Leg::disks).collect();
            let mut once = BTreeSet::new();
            if let Some(twice) = below.iter().find(|name| !once.insert(**name)) {
                problems.at(members.span(), format!("disk {twice:?} is in the array twice"));
                return None;
            }
            found.push(legs);
        }
        Some(found)
    }

    fn leg(
        &self,
        name: &str,
        span: std::ops::Range<usize>,
        problems: &mut Problems<'_>,
    ) -> Option<Leg> {
        if matches!(name, "missing" | "-") {
            return Some(Leg::Missing);
        }
        if let Some(disk) = self.disks.iter().find(|disk| disk.name == name) {
            return Some(Leg::Disk(disk.name.clone()));
        }
        if let Some(array) = self.done.iter().find(|array| array.name == name) {
            let nests = matches!(array.kind, SubjectKind::Lapstrake | SubjectKind::Md);
            if nests && array.shape.filesystem.is_none() {
                return Some(Leg::Array(Box::new(array.clone())));
            }
            let text = format!(
                "{name:?} cannot be a member: only arrays (lapstrake, md) without a filesystem nest"
            );
            problems.at(span, text);
            return None;
        }
        problems.at(span, format!("there is no disk {name:?}, and no array of that name above"));
        None
    }

    fn states(
        &mut self,
        raw: &RawArray,
        choice: &Choice,
        name: &str,
        problems: &mut Problems<'_>,
    ) -> Vec<State> {
        if raw.measure == Some(false) {
            if let Some(states) = &raw.states {
                let text =
                    "an array that is not measured has no states; those that it is in have them";
                problems.at(states.span(), text);
            }
            return Vec::new();
        }
        let Some(states) = &raw.states else { return vec![State::Healthy] };
        let mut found = Vec::new();
        for wanted in &states.get_ref().0 {
            match state(wanted, choice) {
                Ok(state) => found.push(state),
                Err(why) => {
                    self.notes.push(format!("left out: {name} {}: {why}", state_word(wanted)))
                }
            }
        }
        if found.is_empty() {
            problems.at(states.span(), format!("{name} can be in none of these states"));
        }
        found
    }
}

fn state_word(state: &RawState) -> &'static str {
    match state {
        RawState::Healthy => "healthy",
        RawState::Missing(_) => "degraded",
        RawState::Rebuilding(_) => "rebuilding",
    }
}

/// The state that is meant, or why the array cannot be in it.
fn state(wanted: &RawState, choice: &Choice) -> Result<State, String> {
    let names = match wanted {
        RawState::Healthy => return Ok(State::Healthy),
        RawState::Missing(names) => names.clone(),
        RawState::Rebuilding(name) => name.iter().cloned().collect(),
    };
    if !matches!(choice.kind, SubjectKind::Lapstrake | SubjectKind::Md) {
        return Err("only md arrays (lapstrake, md) are measured without a member".into());
    }
    let level = choice.shape.level.ok_or("it has no level")?;
    // Without its parity a RAID4 reads as before.
    let parity = (level == Level::Raid4).then(|| choice.members.len() - 1);
    let mut last = choice.members.iter().enumerate().rev();
    let last = last.find(|(slot, leg)| **leg != Leg::Missing && Some(*slot) != parity);
    let names = match (names.is_empty(), last) {
        (true, Some((_, last))) => vec![last.name().to_owned()],
        _ => names,
    };
    let is_own = |name: &String| choice.members.iter().any(|leg| leg.name() == *name);
    let below = |name: &String| choice.members.iter().flat_map(Leg::disks).any(|disk| disk == name);
    if let Some(other) = names.iter().find(|name| !is_own(name) && !below(name)) {
        return Err(format!("{other:?} is not among its members"));
    }
    if matches!(wanted, RawState::Rebuilding(_)) && !names.iter().all(is_own) {
        return Err("only its own members are rebuilt, not those of arrays in it".into());
    }
    can_lose(level, &choice.members, &names)?;
    Ok(match wanted {
        RawState::Rebuilding(_) => State::Rebuilding(names),
        _ => State::Degraded(names),
    })
}

/// Whether an array, and each array in it, is there without the members of these names.
fn can_lose(level: Level, members: &[Leg], names: &[String]) -> Result<(), String> {
    let is_lost = |leg: &&Leg| **leg == Leg::Missing || names.iter().any(|name| name == leg.name());
    let lost = members.iter().filter(is_lost).count();
    if lost > spare_members(level, members.len()) {
        return Err(format!("a {level} of {} cannot lose {lost}", members.len()));
    }
    members.iter().try_for_each(|leg| match leg {
        Leg::Array(below) => match below.shape.level {
            Some(level) => can_lose(level, &below.members, names),
            None => Ok(()),
        },
        _ => Ok(()),
    })
}

/// What is wrong whatever the combination.
fn syntax(raw: &RawArray, problems: &mut Problems<'_>) -> bool {
    let mut good = true;
    let mut problem = |span, text: String| {
        good = false;
        problems.at(span, text);
    };
    if let Some(chunks) = &raw.chunk {
        for Bytes(bytes) in &chunks.get_ref().0 {
            if *bytes < 4096 || !bytes.is_power_of_two() {
                problem(
                    chunks.span(),
                    format!("a chunk of {bytes} bytes: it is a power of two, 4K at least"),
                );
            }
        }
    }
    if let Some(caches) = &raw.stripe_cache {
        for pages in &caches.get_ref().0 {
            if !STRIPE_CACHE_SIZES.contains(pages) {
                problem(
                    caches.span(),
                    format!(
                        "a stripe cache of {pages} pages: it has {} to {}",
                        STRIPE_CACHE_SIZES.start(),
                        STRIPE_CACHE_SIZES.end()
                    ),
                );
            }
        }
    }
    if let Some(words) = &raw.bitmap {
        for word in &words.get_ref().0 {
            if word != "internal" && word != "none" {
                problem(
                    words.span(),
                    format!("a bitmap is \"internal\" or \"none\", not {word:?}"),
                );
            }
        }
    }
    if let (Some(layouts), Some(levels)) = (&raw.layout, &raw.level) {
        for layout in &layouts.get_ref().0 {
            let belongs = |LevelName(level): &LevelName| Layout::from_name(*level, layout).is_ok();
            if !levels.get_ref().0.iter().any(belongs) {
                problem(layouts.span(), format!("{layout:?} is a layout of none of the levels"));
            }
        }
    }
    good
}

/// All combinations, with settings dropped that they have no use for.
fn unfold(raw: &RawArray, members: &[Vec<Leg>]) -> Vec<Choice> {
    let kinds =
        raw.system.as_ref().map_or(vec![SubjectKind::Lapstrake], |kinds| kinds.get_ref().0.clone());
    let levels = optional(raw.level.as_ref().map(Spanned::get_ref));
    let mut choices = Vec::new();
    for &kind in &kinds {
        for legs in members {
            for level in &levels {
                let shape = Shape {
                    level: level.map(|LevelName(level)| level),
                    stride: true,
                    mount_options: raw.mount_options.clone(),
                    sync_speed_min: raw.sync_speed_min.map(|bytes| bytes.0),
                    sync_speed_max: raw.sync_speed_max.map(|bytes| bytes.0),
                    ..Shape::default()
                };
                choices.push(Choice { kind, members: legs.clone(), shape });
            }
        }
    }
    choices = times(choices, &layouts(raw), |shape, layout| {
        let belongs = |level, name: &String| Layout::from_name(level, name).is_ok();
        shape.layout =
            layout.clone().filter(|name| shape.level.is_some_and(|level| belongs(level, name)));
    });
    choices =
        times(choices, &optional(raw.chunk.as_ref().map(Spanned::get_ref)), |shape, chunk| {
            shape.chunk = chunk.map(|Bytes(bytes)| bytes);
        });
    choices = times(choices, &optional(raw.metadata.as_ref()), |shape, version| {
        shape.metadata = version.map(|Metadata(version)| version);
    });
    choices =
        times(choices, &optional(raw.bitmap.as_ref().map(Spanned::get_ref)), |shape, word| {
            shape.bitmap.clone_from(word);
        });
    choices = times(choices, &optional(raw.bitmap_chunk.as_ref()), |shape, chunk| {
        shape.bitmap_chunk = chunk.map(|Bytes(bytes)| bytes);
    });
    choices = times(
        choices,
        &optional(raw.stripe_cache.as_ref().map(Spanned::get_ref)),
        |shape, pages| {
            shape.stripe_cache = *pages;
        },
    );
    choices = times(choices, &optional(raw.read_ahead.as_ref()), |shape, bytes| {
        shape.read_ahead = bytes.map(|Bytes(bytes)| bytes);
    });
    choices = times(choices, &optional(raw.filesystem.as_ref()), |shape, filesystem| {
        shape.filesystem = *filesystem;
    });
    let over = optional(raw.over.as_ref());
    choices = times(choices, &over, |shape, over| {
        shape.over =
            over.unwrap_or(if shape.filesystem.is_some() { Over::Loop } else { Over::Process });
    });
    choices = times(choices, &optional(raw.stride.as_ref()), |shape, stride| {
        shape.stride = stride.unwrap_or(true);
    });
    choices.iter_mut().for_each(drop_useless);
    // A layout that the level does not have was dropped: keep the level without one only if none of its own is listed.
    let own = |choice: &Choice| {
        layouts(raw).iter().flatten().any(|name| {
            choice.shape.level.is_some_and(|level| Layout::from_name(level, name).is_ok())
        })
    };
    choices.retain(|choice| choice.shape.layout.is_some() || !takes_layout(choice) || !own(choice));
    choices
}

fn layouts(raw: &RawArray) -> Vec<Option<String>> {
    optional(raw.layout.as_ref().map(Spanned::get_ref))
}

fn takes_layout(choice: &Choice) -> bool {
    matches!(choice.kind, SubjectKind::Lapstrake | SubjectKind::Md)
}

/// The listed values, or none as the only one.
fn optional<T: Clone>(list: Option<&Many<T>>) -> Vec<Option<T>> {
    list.map_or_else(|| vec![None], |Many(list)| list.iter().cloned().map(Some).collect())
}

/// Each choice with each value.
fn times<T>(choices: Vec<Choice>, values: &[T], set: impl Fn(&mut Shape, &T)) -> Vec<Choice> {
    let mut all = Vec::with_capacity(choices.len() * values.len());
    for choice in choices {
        for value in values {
            let mut next = choice.clone();
            set(&mut next.shape, value);
            all.push(next);
        }
    }
    all
}

fn drop_useless(choice: &mut Choice) {
    let is_md = matches!(choice.kind, SubjectKind::Lapstrake | SubjectKind::Md);
    let is_controllers = choice.kind == SubjectKind::Controller;
    let shape = &mut choice.shape;
    if !shape.level.filter(|_| is_md || is_controllers).is_some_and(Level::is_striped) {
        shape.chunk = None;
    }
    shape.metadata = shape.metadata.filter(|_| is_md);
    let level = shape.level.filter(|_| is_md);
    if !level.is_some_and(Level::is_parity) {
        shape.stripe_cache = None;
    }
    if !level.is_some_and(Level::has_redundancy) {
        shape.bitmap = None;
    }
    if shape.bitmap.as_deref() != Some("internal") {
        shape.bitmap_chunk = None;
    }
    if !level.is_some_and(Level::is_striped) || shape.filesystem.is_none() {
        shape.stride = true;
    }
    match choice.kind {
        SubjectKind::Btrfs | SubjectKind::Zfs => {
            // They bring their own.
            shape.filesystem = None;
            shape.over = Over::Process;
        }
        SubjectKind::Null => *shape = Shape { stride: true, ..Shape::default() },
        SubjectKind::Disk | SubjectKind::Existing | SubjectKind::Controller | SubjectKind::Md => {
            shape.over = Over::Process
        }
        SubjectKind::Lapstrake => {}
    }
    if !matches!(choice.kind, SubjectKind::Lapstrake) || shape.over == Over::Loop {
        return;
    }
    // Nothing of the kernel's reads ahead.
    shape.read_ahead = None;
}

fn same(a: &Choice, b: &Choice) -> bool {
    a.kind == b.kind && a.members == b.members && a.shape == b.shape
}

/// A size in its largest whole unit, as plans write it.
pub(crate) fn size_text(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let whole = units.iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    whole.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}
