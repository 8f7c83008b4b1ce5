//! Arrays whose members are arrays that other servers serve: by their FUSE file, or by a loop device on that.

use crate::on_top::backing_file;
use crate::patience;
use crate::status::view::{MemberView, View};
use lapstrake_host::control::{self, ControlError};
use lapstrake_lab::width;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::thread::{self, ScopedJoinHandle};

const HEADER: [&str; 7] = ["Unit", "Type", "Status", "%Done", "Members", "Stripe", "Size"];

/// All arrays that are served from a directory, and why others do not answer. One that has been stopped since they were
/// listed is left out.
pub fn served(dir: &Path) -> Result<(Vec<View>, Vec<String>), ControlError> {
    let (mut arrays, mut failures) = (Vec::new(), Vec::new());
    for (name, told) in details(dir, control::served(dir)?) {
        match told {
            Ok(mut detail) => {
                // By which it was asked.
                detail.name = name;
                arrays.push(detail);
            }
            Err(ControlError::NotServed { .. }) => {}
            Err(error) => failures.push(error.to_string()),
        }
    }
    Ok((arrays, failures))
}

/// All but one, as far as they answer: what is the matter with others is not its matter.
pub fn others(dir: &Path, name: &str) -> Result<Vec<View>, ControlError> {
    let names = control::served(dir)?.into_iter().filter(|other| other != name);
    Ok(details(dir, names.collect()).into_iter().filter_map(|(_, told)| told.ok()).collect())
}

/// What servers tell, all asked at once: some may be stopped.
fn details(dir: &Path, names: Vec<String>) -> Vec<(String, Result<View, ControlError>)> {
    thread::scope(|scope| {
        let asked: Vec<_> = names
            .into_iter()
            .map(|name| {
                let told = scope.spawn({
                    let name = name.clone();
                    move || control::ask_detail(dir, &name, None)
                });
                (name, told)
            })
            .collect();
        let told = |told: ScopedJoinHandle<'_, _>| told.join().expect("who asks does not panic");
        asked.into_iter().map(|(name, asked)| (name, told(asked))).collect()
    })
}

/// Puts into each member that is one of `arrays` that array, as `array`; and so on within it. `above` are the names that it
/// is within.
pub fn nest(array: &mut View, arrays: &[View], above: &mut Vec<String>) {
    above.push(array.name.clone());
    for member in &mut array.members {
        // Two servers that lie on each other cannot be; two that say so can.
        let within = lies_on(&member.file, arrays).filter(|within| !above.contains(&within.name));
        member.array = within.map(|within| {
            let mut within = Box::new(within.clone());
            nest(&mut within, arrays, above);
            within
        });
    }
    above.pop();
}

/// Those of `arrays` that are in no other, with what is in them.
pub fn roots(arrays: &[View]) -> Vec<View> {
    let mut nested = arrays.to_vec();
    nested.iter_mut().for_each(|array| nest(array, arrays, &mut Vec::new()));
    let members = nested.iter().flat_map(|array| &array.members);
    let within: Vec<String> =
        members.filter_map(|member| Some(member.array.as_ref()?.name.clone())).collect();
    nested.retain(|array| !within.contains(&array.name));
    nested
}

/// The array whose file a member is, or lies on.
fn lies_on<'a>(file: &Path, arrays: &'a [View]) -> Option<&'a View> {
    let is_loop = |name: &&str| name.starts_with("loop");
    let name = file.strip_prefix("/dev").ok().and_then(Path::to_str).filter(is_loop);
    let below = name.and_then(|name| backing_file(&Path::new("/sys/block").join(name)));
    let file = below.as_deref().unwrap_or(file);
    arrays.iter().find(|array| array.file().is_some_and(|other| resolved(&other) == file))
}

/// Without links above the file itself, which need not answer.
fn resolved(file: &Path) -> PathBuf {
    let parent = file.parent().and_then(|parent| parent.canonicalize().ok());
    parent.zip(file.file_name()).map_or_else(|| file.to_owned(), |(parent, name)| parent.join(name))
}

/// Arrays with all that is in them, a line for each unit.
pub fn table(views: &[View]) -> String {
    let mut rows = Vec::new();
    for view in views {
        unit(&mut rows, view, view.name.clone(), "");
    }
    width::table(&HEADER.map(Into::into), &rows, |column| column > 2)
}

fn unit(rows: &mut Vec<Vec<String>>, view: &View, name: String, indent: &str) {
    let stripe = if view.chunk_bytes > 0 { size(view.chunk_bytes) } else { "-".into() };
    let percent = view.sync.as_ref().map(|sync| percent(sync.per_mille()));
    rows.push(vec![
        name,
        view.level.clone(),
        view.state_text(),
        percent.unwrap_or_else(|| "-".into()),
        view.raid_devices.to_string(),
        stripe,
        size(view.array_bytes),
    ]);
    let last = view.members.len().saturating_sub(1);
    for (index, member) in view.members.iter().enumerate() {
        let (branch, further) = if index == last { ("└─", "   ") } else { ("├─", "│  ") };
        let path = &member.path;
        match &member.array {
            Some(within) => {
                let name = format!("{indent}{branch} {path}: {}", within.name);
                unit(rows, within, name, &format!("{indent}{further}"));
            }
            None => disk(rows, view, member, format!("{indent}{branch} {path}")),
        }
    }
}

fn disk(rows: &mut Vec<Vec<String>>, view: &View, member: &MemberView, name: String) {
    let done = member.recovered_bytes.filter(|_| view.component_bytes > 0);
    let percent = done.map(|done| percent(done * 1000 / view.component_bytes));
    let bytes = match view.component_bytes {
        0 => metadata(&member.file).map_or(0, |meta| meta.len()),
        bytes => bytes,
    };
    rows.push(vec![
        name,
        "disk".into(),
        member.state.as_str().replace('_', " "),
        percent.unwrap_or_else(|| "-".into()),
        "-".into(),
        "-".into(),
        if bytes > 0 { size(bytes) } else { "-".into() },
    ]);
}

/// What the system tells of a file, unless that takes long.
pub fn metadata(file: &Path) -> Option<Metadata> {
    let path = file.to_owned();
    patience::ask(file, patience::BRIEF, || std::fs::metadata(path))?.ok()
}

fn percent(per_mille: u64) -> String {
    format!("{}%", per_mille / 10)
}

/// In the largest unit that leaves at least one.
fn size(bytes: u64) -> String {
    let units = [(1u64 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    let found = units.into_iter().find(|(unit, _)| bytes >= *unit);
    let (unit, letter) = found.unwrap_or((1, ""));
    let tenths = (u128::from(bytes) * 10 / u128::from(unit)) as u64;
    match tenths % 10 {
        0 => format!("{}{letter}", tenths / 10),
        tenth => format!("{}.{tenth}{letter}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::view::tests::{raid5, sync};
    use serde_json::json;

    fn array(name: &str, file: &str, members: &[&str]) -> View {
        let mut view = raid5(json!({ "name": name, "exports": [format!("file://{file}")] }));
        let member = |file: &&str| MemberView {
            path: (*file).into(),
            file: file.into(),
            ..view.members[0].clone()
        };
        view.members = members.iter().map(member).collect();
        view
    }

    #[test]
    fn arrays_in_arrays_are_found_by_their_files() {
        let arrays = [
            array("a", "/nowhere/a.raw", &["/nowhere/d0", "/nowhere/d1"]),
            array("b", "/nowhere/b.raw", &["/nowhere/d2", "/nowhere/d3"]),
            array("top", "/nowhere/top.raw", &["/nowhere/a.raw", "/nowhere/b.raw"]),
        ];
        let roots = roots(&arrays);
        assert_eq!(roots.len(), 1);
        let within = roots[0].members[1].array.as_ref().unwrap();
        assert_eq!(within.members[0].path, "/nowhere/d2");
        let text = table(&roots);
        let first: Vec<&str> =
            text.lines().map(|line| line.split("  ").next().unwrap_or_default()).collect();
        assert_eq!(first[1].trim(), "top", "{text}");
        assert_eq!(text.lines().count(), 8, "{text}");
        assert!(text.contains("├─ /nowhere/a.raw: a "), "{text}");
        assert!(text.contains("│  └─ /nowhere/d1 "), "{text}");
    }

    #[test]
    fn servers_that_claim_to_lie_on_each_other_end() {
        let arrays =
            [array("a", "/nowhere/a", &["/nowhere/b"]), array("b", "/nowhere/b", &["/nowhere/a"])];
        let mut first = arrays[0].clone();
        nest(&mut first, &arrays, &mut Vec::new());
        let within = first.members[0].array.as_ref().unwrap();
        assert_eq!((&*within.name, within.members[0].array.is_none()), ("b", true));
    }

    #[test]
    fn a_rebuild_shows_how_far_it_is() {
        let view = raid5(json!({
            "state": ["clean", "degraded", "recovering"], "sync": sync("recovery", false),
        }));
        let text = table(&[view]);
        let line = text.lines().nth(1).unwrap();
        for word in ["raid5", "clean, degraded, recovering", " 12% ", " 64K ", " 62M"] {
            assert!(line.contains(word), "no {word:?} in {text}");
        }
    }
}
