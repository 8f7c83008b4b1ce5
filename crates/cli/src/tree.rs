//! Arrays whose members are arrays that other servers serve: by their FUSE file, or by a loop device on that.

use crate::on_top::backing_file;
use crate::patience;
use crate::status::view::{MemberView, View};
use crate::target;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use lapstrake_host::control::{self, ControlError};
use serde_json::Value;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::thread::{self, ScopedJoinHandle};

const HEADER: [&str; 7] = ["Unit", "Type", "Status", "%Done", "Members", "Stripe", "Size"];

/// All arrays that are served from a directory, and why others do not answer. One that has been stopped since they were
/// listed is left out.
pub fn served(dir: &Path) -> Result<(Vec<Value>, Vec<String>), ControlError> {
    let (mut arrays, mut failures) = (Vec::new(), Vec::new());
    for (name, told) in details(dir, control::served(dir)?) {
        match told {
            Ok(mut detail) => {
                // By which it was asked.
                detail["name"] = name.into();
                arrays.push(detail);
            }
            Err(ControlError::NotServed { .. }) => {}
            Err(error) => failures.push(error.to_string()),
        }
    }
    Ok((arrays, failures))
}

/// All but one, as far as they answer: what is the matter with others is not its matter.
pub fn others(dir: &Path, name: &str) -> Result<Vec<Value>, ControlError> {
    let names = control::served(dir)?.into_iter().filter(|other| other != name);
    Ok(details(dir, names.collect()).into_iter().filter_map(|(_, told)| told.ok()).collect())
}

/// What servers tell, all asked at once: some may be stopped.
fn details(dir: &Path, names: Vec<String>) -> Vec<(String, Result<Value, ControlError>)> {
    thread::scope(|scope| {
        let asked: Vec<_> = names
            .into_iter()
            .map(|name| {
                let told = scope.spawn({
                    let name = name.clone();
                    move || target::detail(dir, &name, None)
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
pub fn nest(array: &mut Value, arrays: &[Value], above: &mut Vec<String>) {
    above.push(array["name"].as_str().unwrap_or_default().to_owned());
    for member in array["members"].as_array_mut().into_iter().flatten() {
        let Some(within) =
            member["file"].as_str().and_then(|file| lies_on(Path::new(file), arrays))
        else {
            continue;
        };
        let name = within["name"].as_str().unwrap_or_default();
        // Two servers that lie on each other cannot be; two that say so can.
        if !above.iter().any(|other| other == name) {
            let mut within = within.clone();
            nest(&mut within, arrays, above);
            member["array"] = within;
        }
    }
    above.pop();
}

/// Those of `arrays` that are in no other, with what is in them.
pub fn roots(arrays: &[Value]) -> Vec<Value> {
    let nested = arrays.iter().map(|array| {
        let mut array = array.clone();
        nest(&mut array, arrays, &mut Vec::new());
        array
    });
    let nested: Vec<Value> = nested.collect();
    let is_within = |array: &Value| {
        let members =
            nested.iter().flat_map(|other| other["members"].as_array().into_iter().flatten());
        members.into_iter().any(|member| member["array"]["name"] == array["name"])
    };
    nested.iter().filter(|array| !is_within(array)).cloned().collect()
}

/// The array whose file a member is, or lies on.
fn lies_on<'a>(file: &Path, arrays: &'a [Value]) -> Option<&'a Value> {
    let is_loop = |name: &&str| name.starts_with("loop");
    let name = file.strip_prefix("/dev").ok().and_then(Path::to_str).filter(is_loop);
    let below = name.and_then(|name| backing_file(&Path::new("/sys/block").join(name)));
    let file = below.as_deref().unwrap_or(file);
    arrays.iter().find(|array| {
        let view: Result<View, _> = serde_json::from_value((*array).clone());
        view.ok().and_then(|view| view.file()).is_some_and(|other| resolved(&other) == file)
    })
}

/// Without links above the file itself, which need not answer.
fn resolved(file: &Path) -> PathBuf {
    let parent = file.parent().and_then(|parent| parent.canonicalize().ok());
    parent.zip(file.file_name()).map_or_else(|| file.to_owned(), |(parent, name)| parent.join(name))
}

/// Arrays with all that is in them, a line for each unit.
pub fn table(views: &[View]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(HEADER);
    for column in [3, 4, 5, 6] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for view in views {
        unit(&mut table, view, view.name.clone(), "");
    }
    // Without the blank that the first column has before it.
    let line = |line: String| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned() + "\n";
    table.lines().map(line).collect()
}

fn unit(table: &mut Table, view: &View, name: String, indent: &str) {
    let stripe = if view.chunk_bytes > 0 { size(view.chunk_bytes) } else { "-".into() };
    let percent = view.sync.as_ref().map(|sync| percent(sync.per_mille()));
    table.add_row([
        name,
        view.level.clone(),
        view.state.join(", "),
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
                unit(table, within, name, &format!("{indent}{further}"));
            }
            None => disk(table, view, member, format!("{indent}{branch} {path}")),
        }
    }
}

fn disk(table: &mut Table, view: &View, member: &MemberView, name: String) {
    let done = member.recovered_bytes.filter(|_| view.component_bytes > 0);
    let percent = done.map(|done| percent(done * 1000 / view.component_bytes));
    let bytes = match view.component_bytes {
        0 => metadata(&member.file).map_or(0, |meta| meta.len()),
        bytes => bytes,
    };
    table.add_row([
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

    fn array(name: &str, file: &str, members: &[&str]) -> Value {
        let mut value: Value =
            serde_json::from_str(include_str!("../tests/cli/support/detail.json")).unwrap();
        (value["name"], value["exports"]) = (name.into(), json!([format!("file://{file}")]));
        let like = value["members"][0].clone();
        let member = |file: &&str| {
            let mut member = like.clone();
            (member["path"], member["file"]) = ((*file).into(), (*file).into());
            member
        };
        value["members"] = members.iter().map(member).collect();
        value
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
        assert_eq!(roots[0]["members"][1]["array"]["members"][0]["path"], "/nowhere/d2");
        let views: Vec<View> =
            roots.into_iter().map(|root| serde_json::from_value(root).unwrap()).collect();
        let text = table(&views);
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
        let within = &first["members"][0]["array"];
        assert_eq!((&within["name"], &within["members"][0]["array"]), (&json!("b"), &Value::Null));
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
