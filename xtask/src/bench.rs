//! Runs the benchmark packages of `benches/`.
//!
//! Their common contract: with `--gate` a program measures in full and exits with 1 if it misses
//! one of its gates; with `--quick` it measures for a few seconds, to show that it works,
//! and gates nothing (built with the tests, so that what they have built serves). A feature of such a
//! package is named after the system library it needs
//! (`isal` for libisal) and is left out, aloud, where pkg-config does not know that library.

use std::path::Path;
use std::process::{Command, Stdio};

use cargo_metadata::{Package, TargetKind};

use crate::{Error, cargo, root, run, workspace};

/// Runs these packages, or all, and reports every one that failed.
///
/// # Errors
/// If one failed or missed a gate.
pub fn run_all(quick: bool, wanted: &[&str]) -> Result<(), Error> {
    let metadata = workspace()?;
    let benches = metadata.workspace_root.join("benches");
    let is_wanted = |package: &&Package| {
        package.manifest_path.starts_with(&benches)
            && (wanted.is_empty() || wanted.contains(&package.name.as_str()))
    };
    let packages: Vec<_> = metadata.workspace_packages().into_iter().filter(is_wanted).collect();
    let programs: Vec<_> = packages.into_iter().flat_map(programs).collect();
    let directory = metadata.target_directory.join(if quick { "debug" } else { "dist" });
    let mut failed = Vec::new();
    build(quick, &programs)?;
    for Program { name, .. } in programs {
        println!("bench: {name}");
        if let Err(error) = run_one(directory.join(name).as_std_path(), quick) {
            eprintln!("bench: {error}");
            failed.push(format!("{name}: {error}"));
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Error::Failed(format!("failed, or missed a gate: {}", failed.join("; "))))
}

/// Runs the one that says where a small request's time goes, and gates nothing.
///
/// # Errors
/// If it fails.
pub fn budget(quick: bool) -> Result<(), Error> {
    let name = "lapstrake-bench-serve";
    run(cargo().args(["build", "--locked", "--quiet", "--profile", "dist", "--package", name]))?;
    let program = workspace()?.target_directory.join("dist").join(name);
    let quickly = quick.then_some("--quick");
    run(Command::new(program).current_dir(root()).arg("--budget").args(quickly))
}

struct Program<'a> {
    package: &'a str,
    name: &'a str,
    /// With their package.
    features: Vec<String>,
}

/// A package's programs whose libraries are installed.
fn programs(package: &Package) -> Vec<Program<'_>> {
    let mut features = Vec::new();
    for feature in package.features.keys().filter(|feature| *feature != "default") {
        if is_installed(feature) {
            features.push(feature);
        } else {
            lapstrake_not_run::not_run(format_args!(
                "{} with {feature}: lib{feature} is not installed",
                package.name
            ));
        }
    }
    let targets = package.targets.iter().filter(|target| target.is_kind(TargetKind::Bin));
    targets
        .filter(|target| target.required_features.iter().all(|needed| features.contains(&needed)))
        .map(|target| Program {
            package: &package.name,
            name: &target.name,
            features: features
                .iter()
                .map(|feature| format!("{}/{feature}", package.name))
                .collect(),
        })
        .collect()
}

/// Builds them: in full each by itself, quickly together with the workspace and its tests, so that what they depend on
/// has the features with which it was built for these.
fn build(quick: bool, programs: &[Program<'_>]) -> Result<(), Error> {
    let build = ["build", "--locked", "--quiet", "--bins", "--profile"];
    if quick {
        let features: Vec<_> =
            programs.iter().flat_map(|program| program.features.clone()).collect();
        let tests = ["test", "--workspace", "--tests", "--features"];
        return run(cargo().args(build).args(tests).arg(features.join(",")));
    }
    programs.iter().try_for_each(|program| {
        let alone = ["dist", "--package", program.package, "--features"];
        run(cargo().args(build).args(alone).arg(program.features.join(",")))
    })
}

fn run_one(program: &Path, quick: bool) -> Result<(), Error> {
    run(Command::new(program).current_dir(root()).arg(if quick { "--quick" } else { "--gate" }))
}

fn is_installed(library: &str) -> bool {
    let status = Command::new("pkg-config")
        .args(["--exists", &format!("lib{library}")])
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
