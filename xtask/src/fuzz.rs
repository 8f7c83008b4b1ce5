//! Builds and runs the fuzz targets of `fuzz/` with libFuzzer, on the stable compiler.
//!
//! The coverage flags are those that `cargo fuzz` passes; the address sanitizer, which alone
//! needs a nightly compiler, is left out: the parsers hold no `unsafe`, but for copies of
//! a guest's memory. Debug assertions and overflow
//! checks are on, so an overflow is a finding. Comparisons of numbers guide the search, those of byte
//! slices do so with the sanitizer only; a valid input in `fuzz/seeds/TARGET` makes up for it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cargo_metadata::{MetadataCommand, TargetKind};

use crate::{Error, cargo, root, run, workspace};

const COVERAGE: &str = "--cfg fuzzing -Cdebug-assertions -Coverflow-checks -Ccodegen-units=1 \
    -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";
/// More than any structure of md's: inputs beyond it only slow the search down.
const INPUT_BYTES_MAX: u32 = 65536;

/// Of a look whether they run at all.
const QUICK: Duration = Duration::from_secs(1);

/// Runs these targets, or all, each for `time`, and reports every one that failed. Without a time it is a second
/// each, of programs that are built without optimization: their build would take longer than they run.
///
/// # Errors
/// If one found something; its input is kept in `fuzz/artifacts/TARGET`.
pub fn run_all(time: Option<Duration>, wanted: &[&str]) -> Result<(), Error> {
    let directory = root().join("fuzz");
    let manifest = directory.join("Cargo.toml");
    let metadata = MetadataCommand::new().manifest_path(&manifest).no_deps().exec()?;
    let targets = metadata.packages.iter().flat_map(|package| &package.targets);
    let names: Vec<&str> = targets
        .filter(|target| target.is_kind(TargetKind::Bin))
        .map(|target| target.name.as_str())
        .filter(|name| wanted.is_empty() || wanted.contains(name))
        .collect();
    if names.is_empty() {
        return Err(Error::Failed(format!("{} has no such target", manifest.display())));
    }
    // A target must be named, or the flags would reach build scripts as well. Macros and build scripts are those that
    // the workspace has built for itself.
    let (host, target) = (host_target()?, workspace()?.target_directory);
    let (profile, built) = if time.is_some() { ("release", "release") } else { ("dev", "debug") };
    let build = ["build", "--quiet", "--profile", profile, "--bins", "--target", &host];
    let mut cargo = cargo();
    cargo.current_dir(&directory).env("CARGO_TARGET_DIR", &target).env("RUSTFLAGS", COVERAGE);
    run(cargo.args(build))?;
    let programs = target.join(&host).join(built);
    let time = time.unwrap_or(QUICK);
    let mut failed = Vec::new();
    for name in names {
        println!("fuzz: {name} for {} s", time.as_secs());
        if let Err(error) = run_one(&directory, programs.join(name).as_std_path(), name, time) {
            eprintln!("fuzz: {error}");
            failed.push(name);
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Error::Failed(format!("findings of {} are in fuzz/artifacts", failed.join(", "))))
}

fn run_one(directory: &Path, program: &Path, name: &str, time: Duration) -> Result<(), Error> {
    let corpus = directory.join("corpus").join(name);
    let artifacts = directory.join("artifacts").join(name);
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&artifacts)?;
    let mut command = Command::new(program);
    command
        .arg(format!("-max_total_time={}", time.as_secs()))
        .arg(format!("-max_len={INPUT_BYTES_MAX}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(["-timeout=10", "-verbosity=0", "-print_final_stats=1"])
        .arg(corpus);
    let seeds = directory.join("seeds").join(name);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    run(&mut command)
}

fn host_target() -> Result<String, Error> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .ok_or_else(|| Error::Failed("rustc -vV names no host".to_owned()))
}
