//! The licenses of what the command is made of, for those who hand it on: each text once, below the names of the crates
//! that came with it.
//!
//! Taken are the crates that end in the program: no tests', no build scripts', no procedural macros' own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId, TargetKind};

use crate::{Error, root};

/// Files of others that lie in the sources themselves.
const VENDORED: &str = "crates/lab/vendor";
/// How the names of files with license texts begin, in capitals.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "UNLICENSE"];

/// Prints them.
///
/// # Errors
/// If cargo or a file cannot be read.
pub fn print() -> Result<(), Error> {
    let mut options = vec!["--locked".to_owned()];
    options
        .extend(["x86_64", "aarch64"].map(|m| format!("--filter-platform={m}-unknown-linux-gnu")));
    let metadata = MetadataCommand::new().current_dir(root()).other_options(options).exec()?;
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in linked(&metadata, "lapstrake-cli").filter(|package| package.source.is_some()) {
        let license = package.license.as_deref().unwrap_or("see its file");
        let name = format!("{} {}: {license}", package.name, package.version);
        let directory = package.manifest_path.parent().expect("a manifest lies in a directory");
        let found = license_texts(directory.as_std_path())?;
        if found.is_empty() {
            texts.entry("(It brings no text.)".into()).or_default().insert(name.clone());
        }
        for (_, text) in found {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    for (file, text) in license_texts(&root().join(VENDORED))? {
        texts.entry(text).or_default().insert(format!("{file} (in the lab's page)"));
    }
    println!(
        "What the lapstrake command is made of, beside Lapstrake itself, and under which terms."
    );
    for (text, names) in &texts {
        println!("\n{}\n", "=".repeat(80));
        names.iter().for_each(|name| println!("- {name}"));
        println!("\n{}", text.trim_end());
    }
    Ok(())
}

/// The packages that are linked into a package of the workspace.
fn linked<'a>(metadata: &'a Metadata, name: &str) -> impl Iterator<Item = &'a Package> {
    let resolve = metadata.resolve.as_ref().expect("cargo was asked for dependencies");
    let first = metadata.packages.iter().find(|package| package.name == name);
    let mut open: Vec<&PackageId> = first.map(|package| &package.id).into_iter().collect();
    let mut seen: BTreeSet<&PackageId> = BTreeSet::new();
    while let Some(id) = open.pop() {
        let is_macro =
            metadata[id].targets.iter().any(|target| target.is_kind(TargetKind::ProcMacro));
        if is_macro || !seen.insert(id) {
            continue;
        }
        let node = resolve.nodes.iter().find(|node| &node.id == id);
        let normal = |dep: &&cargo_metadata::NodeDep| {
            dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
        };
        open.extend(
            node.into_iter().flat_map(|node| &node.deps).filter(normal).map(|dep| &dep.pkg),
        );
    }
    metadata.packages.iter().filter(move |package| seen.contains(&package.id))
}

/// The files with license texts in a directory, by name.
fn license_texts(directory: &Path) -> Result<Vec<(String, String)>, Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_one = NAMES.iter().any(|known| name.to_uppercase().contains(known));
        if is_one && entry.file_type()?.is_file() {
            found.push((name, fs::read_to_string(entry.path())?.replace('\r', "")));
        }
    }
    found.sort();
    Ok(found)
}
