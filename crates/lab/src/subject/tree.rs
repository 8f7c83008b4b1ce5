//! An array as a tree, for people: each unit's type, members, settings and size.

use super::recipe::stripe;
use crate::plan::{Array, Disk, DiskPlace, Leg, Over, Plan, size_text};
use crate::record::{State, SubjectKind};

/// What is told of a disk.
pub(crate) type Words<'a> = &'a dyn Fn(&Disk) -> String;

/// The tree, a line for each unit.
pub(crate) fn tree(plan: &Plan, array: &Array, state: &State, words: Words<'_>) -> String {
    let mut lines = vec![format!("{}: {}", array.name, unit(array, array.shape.over))];
    below(plan, array, state, words, "", &mut lines);
    lines.join("\n")
}

fn below(
    plan: &Plan,
    array: &Array,
    state: &State,
    words: Words<'_>,
    indent: &str,
    lines: &mut Vec<String>,
) {
    let last = array.members.len().saturating_sub(1);
    for (index, leg) in array.members.iter().enumerate() {
        let (branch, further) = if index == last { ("└─", "  ") } else { ("├─", "│ ") };
        let told = match leg {
            Leg::Missing => "missing".into(),
            Leg::Disk(name) => {
                let told = plan.disk(name).map_or("unknown".into(), words);
                format!("{name}: {told}{}", status(leg, state))
            }
            Leg::Array(below) => {
                format!("{}: {}{}", below.name, unit(below, Over::Fuse), status(leg, state))
            }
        };
        lines.push(format!("{indent}{branch} {told}"));
        if let Leg::Array(array) = leg {
            below(plan, array, state.below(), words, &format!("{indent}{further} "), lines);
        }
    }
}

fn status(leg: &Leg, state: &State) -> &'static str {
    let is_in = |names: &[String]| names.iter().any(|name| name == leg.name());
    match state {
        State::Degraded(names) if is_in(names) => ", left out",
        State::Rebuilding(names) if is_in(names) => ", being rebuilt",
        _ => "",
    }
}

/// A disk as it is here.
pub(crate) fn place(disk: &Disk) -> String {
    match &disk.place {
        DiskPlace::Make { bytes } => format!("image of {}", size_text(*bytes)),
        DiskPlace::Given { spec, .. } => spec.to_string(),
    }
}

/// `over`: how it is reached.
fn unit(array: &Array, over: Over) -> String {
    let shape = &array.shape;
    let system = match array.kind {
        SubjectKind::Null => return "answers at once and moves nothing".into(),
        SubjectKind::Existing => {
            return array.path.as_ref().map_or_else(String::new, |path| path.display().to_string());
        }
        SubjectKind::Disk => "disk",
        SubjectKind::Lapstrake => "Lapstrake",
        SubjectKind::Md => "md",
        SubjectKind::Btrfs => "btrfs",
        SubjectKind::Zfs => "ZFS",
        SubjectKind::Controller => "controller",
    };
    let mut words = vec![system.to_owned()];
    if let Some(level) = shape.level {
        words.push(format!("{level} of {}", array.members.len()));
    }
    words.extend(shape.layout.clone());
    if let Some((chunk, data)) = stripe(array) {
        words.push(format!("chunk {}, stripe {}", size_text(chunk), size_text(chunk * data)));
    }
    words.extend(shape.metadata.map(|version| format!("metadata {version}")));
    words.extend(shape.bitmap.as_ref().map(|word| format!("bitmap {word}")));
    words.extend(shape.bitmap_chunk.map(|bytes| format!("bitmap chunk {}", size_text(bytes))));
    words.extend(shape.stripe_cache.map(|pages| format!("stripe cache {pages}")));
    words.extend(shape.read_ahead.map(|bytes| format!("read-ahead {}", size_text(bytes))));
    if array.kind == SubjectKind::Lapstrake {
        words.push(format!("by {over}"));
    }
    words.extend(shape.filesystem.map(|filesystem| filesystem.to_string()));
    words.join(", ")
}
