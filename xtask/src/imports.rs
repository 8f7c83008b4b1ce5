//! Holds what each crate imports against the arrows of the architecture.
//!
//! Imports point one way. [`CRATES`] is the whole truth: a crate may import those that its row
//! names and all that these may import in turn. A workspace member with no row is an error, so a
//! new crate states its place before it is used.

use std::collections::BTreeSet;

use cargo_metadata::{DependencyKind, Metadata, TargetKind};

use crate::{Error, workspace};

/// Every crate, the command's too, with the arrows that leave it.
const CRATES: [(&str, &[&str]); 19] = [
    ("lapstrake-buddy", &[]),
    ("lapstrake-partitions", &[]),
    ("lapstrake-geometry", &[]),
    ("lapstrake-control", &["lapstrake-geometry"]),
    ("lapstrake-parity", &[]),
    ("lapstrake-metadata", &["lapstrake-geometry", "lapstrake-partitions"]),
    (
        "lapstrake-engine",
        &["lapstrake-buddy", "lapstrake-geometry", "lapstrake-parity", "lapstrake-metadata"],
    ),
    ("lapstrake-device", &["lapstrake-buddy", "lapstrake-partitions"]),
    ("lapstrake-sim", &["lapstrake-array", "lapstrake-model"]),
    ("lapstrake-model", &[]),
    ("lapstrake-stats", &[]),
    ("lapstrake-array", &["lapstrake-engine", "lapstrake-parity"]),
    (
        "lapstrake-host",
        &["lapstrake-array", "lapstrake-control", "lapstrake-device", "lapstrake-volumes"],
    ),
    ("lapstrake-export", &["lapstrake-host"]),
    ("lapstrake-lab", &["lapstrake-host", "lapstrake-sim", "lapstrake-model", "lapstrake-stats"]),
    ("lapstrake", &["lapstrake-host"]),
    ("lapstrake-volumes", &["lapstrake-partitions"]),
    ("lapstrake-deduce", &["lapstrake-geometry", "lapstrake-parity"]),
    (
        "lapstrake-cli",
        &[
            "lapstrake",
            "lapstrake-deduce",
            "lapstrake-volumes",
            "lapstrake-lab",
            "lapstrake-export",
        ],
    ),
];

/// Tools, which nothing of ours imports and which import nothing of ours but the list of what is not run.
const TOOLS: [&str; 3] = ["xtask", JUDGE, NOT_RUN];
/// The kernel's md for tests; it must not know what it judges, but any crate's tests may ask it.
const JUDGE: &str = "lapstrake-kernel-md";
/// Says and records what a test could not try: for the tests of any crate, for ends and for tools.
const NOT_RUN: &str = "lapstrake-not-run";
/// Packages below these directories show, measure and test the whole; they may import any crate and
/// the judge, nothing imports them.
const ENDS: [&str; 3] = ["benches", "demo", "tests"];

/// A package with its internal imports.
#[derive(Debug, PartialEq, Eq)]
struct Package {
    name: String,
    is_end: bool,
    imports: Vec<Import>,
}

#[derive(Debug, PartialEq, Eq)]
struct Import {
    name: String,
    in_tests_only: bool,
}

/// Checks the workspace and prints a line for each fault.
///
/// # Errors
/// If there was a fault.
pub fn check() -> Result<(), Error> {
    let packages = packages(&workspace()?);
    let faults: Vec<String> = packages.iter().flat_map(faults).collect();
    for fault in &faults {
        eprintln!("check-imports: {fault}");
    }
    if !faults.is_empty() {
        return Err(Error::Failed(format!("{} imports are not allowed", faults.len())));
    }
    let edges: usize = packages.iter().map(|package| package.imports.len()).sum();
    println!("check-imports: {} packages, {edges} imports, all allowed", packages.len());
    Ok(())
}

fn packages(metadata: &Metadata) -> Vec<Package> {
    let ends = ENDS.map(|directory| metadata.workspace_root.join(directory));
    let members = metadata.workspace_packages();
    let names: BTreeSet<&str> = members.iter().map(|package| package.name.as_str()).collect();
    members
        .iter()
        .map(|package| Package {
            name: package.name.to_string(),
            is_end: ends.iter().any(|end| package.manifest_path.starts_with(end))
                && package.targets.iter().all(|target| !target.is_kind(TargetKind::Lib)),
            imports: package
                .dependencies
                .iter()
                .filter(|dependency| names.contains(dependency.name.as_str()))
                .map(|dependency| Import {
                    name: dependency.name.clone(),
                    in_tests_only: dependency.kind == DependencyKind::Development,
                })
                .collect(),
        })
        .collect()
}

fn faults(package: &Package) -> Vec<String> {
    let name = package.name.as_str();
    if !package.is_end && !TOOLS.contains(&name) && row(name).is_none() {
        return vec![format!("{name} is not in the table of crates (xtask/src/imports.rs)")];
    }
    let allowed = |import: &Import| {
        let is_crate = row(&import.name).is_some();
        let is_judge = import.name == JUDGE && (import.in_tests_only || package.is_end);
        let is_list = import.name == NOT_RUN
            && (import.in_tests_only || package.is_end || TOOLS.contains(&name));
        is_judge
            || is_list
            || if package.is_end { is_crate } else { below(name).contains(&*import.name) }
    };
    let refused = package.imports.iter().filter(|import| !allowed(import));
    refused.map(|import| format!("{name} must not import {}", import.name)).collect()
}

fn row(name: &str) -> Option<&'static [&'static str]> {
    CRATES.iter().find(|(crate_name, _)| *crate_name == name).map(|(_, arrows)| *arrows)
}

/// All that a crate may import: its arrows, and what these may import.
fn below(name: &str) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    let mut ahead: Vec<&'static str> = row(name).unwrap_or_default().to_vec();
    while let Some(next) = ahead.pop() {
        if found.insert(next) {
            ahead.extend(row(next).unwrap_or_default());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, imports: &[&str]) -> Package {
        let imports = imports
            .iter()
            .map(|name| Import { name: (*name).to_owned(), in_tests_only: false })
            .collect();
        Package { name: name.to_owned(), is_end: false, imports }
    }

    #[test]
    fn every_arrow_leads_to_a_crate_and_none_leads_back() {
        for (name, arrows) in CRATES {
            assert!(arrows.iter().all(|arrow| row(arrow).is_some()), "{name}");
            assert!(!below(name).contains(name), "{name} is reached from itself");
        }
    }

    #[test]
    fn arrows_carry_through_to_what_lies_below() {
        assert!(faults(&package("lapstrake-cli", &["lapstrake", "lapstrake-parity"])).is_empty());
        assert!(faults(&package("lapstrake", &["lapstrake-device"])).is_empty());
        assert!(faults(&package("lapstrake-engine", &["lapstrake-geometry"])).is_empty());
    }

    #[test]
    fn an_import_against_the_arrows_is_named() {
        let found = faults(&package("lapstrake-engine", &["lapstrake-device", "lapstrake-parity"]));
        assert_eq!(found, ["lapstrake-engine must not import lapstrake-device"]);
        assert_eq!(faults(&package("lapstrake-device", &["lapstrake-engine"])).len(), 1);
        assert_eq!(faults(&package("lapstrake-parity", &["lapstrake-geometry"])).len(), 1);
        assert_eq!(faults(&package("lapstrake-export", &["lapstrake-lab"])).len(), 1);
        assert_eq!(faults(&package("lapstrake", &["lapstrake-export"])).len(), 1);
    }

    #[test]
    fn an_unknown_crate_is_refused_until_it_has_a_row() {
        assert_eq!(faults(&package("lapstrake-news", &[])).len(), 1);
    }

    #[test]
    fn the_judge_is_for_tests_and_imports_nothing() {
        let mut host = package("lapstrake-host", &[JUDGE]);
        assert_eq!(faults(&host).len(), 1);
        host.imports[0].in_tests_only = true;
        assert!(faults(&host).is_empty());
        assert_eq!(faults(&package(JUDGE, &["lapstrake-metadata"])).len(), 1);
    }

    #[test]
    fn what_is_not_run_is_recorded_by_tests_and_tools_only() {
        let mut host = package("lapstrake-host", &[NOT_RUN]);
        assert_eq!(faults(&host).len(), 1);
        host.imports[0].in_tests_only = true;
        assert!(faults(&host).is_empty());
        assert!(faults(&package(JUDGE, &[NOT_RUN])).is_empty());
    }

    #[test]
    fn benches_and_suites_import_crates_but_no_tools() {
        let mut bench = package("any-name", &["lapstrake-parity", "lapstrake"]);
        bench.is_end = true;
        assert!(faults(&bench).is_empty());
        bench.imports[0].name = "xtask".to_owned();
        assert_eq!(faults(&bench).len(), 1);
    }

    #[test]
    fn this_workspace_obeys() {
        let found = packages(&workspace().unwrap());
        assert!(found.iter().any(|package| package.name == "xtask"));
        assert_eq!(found.iter().flat_map(faults).collect::<Vec<_>>(), Vec::<String>::new());
    }
}
