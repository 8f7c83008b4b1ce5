//! Runs the benchmark packages of `benches/`.
//!
//! Their common contract: with `--gate` a program measures in full and exits with 1 if it misses
//! one of its gates; with `--quick` it measures for a few seconds, to show that it works,
//! and gates nothing (built as tests are, so that what they have built serves). A feature of such a
//! package is named after the system library it needs
//! (`isal` for libisal) and is left out, aloud, where pkg-config does not know that library.

use std::process::{Command, Stdio};

use cargo_metadata::{Package, TargetKind};

use crate::{Error, cargo, run, workspace};

/// Runs these packages, or all, and reports every one that failed.
///
/// # Errors
/// If one failed or missed a gate.
pub fn run_all(quick: bool, wanted: &[&str]) -> Result<(), Error> {
    let metadata = workspace()?;
    let benches = metadata.workspace_root.join("benches");
    let packages = metadata.workspace_packages();
    let mut failed = Vec::new();
    for package in packages.iter().filter(|package| package.manifest_path.starts_with(&benches)) {
        if !wanted.is_empty() && !wanted.contains(&package.name.as_str()) {
            continue;
        }
        if let Err(error) = run_package(package, quick) {
            eprintln!("bench: {error}");
            failed.push(format!("{}: {error}", package.name));
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Error::Failed(format!("failed, or missed a gate: {}", failed.join("; "))))
}

fn run_package(package: &Package, quick: bool) -> Result<(), Error> {
    let mut features = Vec::new();
    for feature in package.features.keys().filter(|feature| *feature != "default") {
        if is_installed(feature) {
            features.push(feature.as_str());
        } else {
            eprintln!("NOT RUN: {} with {feature}: lib{feature} is not installed", package.name);
        }
    }
    for target in package.targets.iter().filter(|target| target.is_kind(TargetKind::Bin)) {
        if !target.required_features.iter().all(|needed| features.contains(&needed.as_str())) {
            continue;
        }
        println!("bench: {}", target.name);
        run(cargo()
            .args(["run", "--quiet", "--profile", if quick { "test" } else { "release" }])
            .args(["--package", &package.name])
            .args(["--bin", &target.name, "--features", &features.join(",")])
            .args(["--", if quick { "--quick" } else { "--gate" }]))?;
    }
    Ok(())
}

fn is_installed(library: &str) -> bool {
    let status = Command::new("pkg-config")
        .args(["--exists", &format!("lib{library}")])
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
