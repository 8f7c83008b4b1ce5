//! What an edit of single crates needs: their format, their lints, and their unit and integration tests.
//!
//! Crates that import them are not looked at; `make test` does that.

use std::process::Command;

use cargo_metadata::Package;

use crate::{Error, cargo, root, run, workspace};

/// Checks and tests these crates, or those in which files differ from the last commit. What follows `--` chooses tests
/// by name.
///
/// # Errors
/// If a crate is not known, or one of the steps failed; later steps are not tried then.
pub fn check(arguments: &[&str]) -> Result<(), Error> {
    let mut halves = arguments.splitn(2, |word| *word == "--");
    let wanted = halves.next().unwrap_or_default();
    let tests = halves.next().unwrap_or_default();
    let crates = crates()?;
    let chosen =
        if wanted.is_empty() { changed(&crates, &changes()?) } else { named(&crates, wanted)? };
    if chosen.is_empty() {
        println!(
            "quick: no crate differs from the last commit; `make quick CRATE=engine` names one"
        );
        return Ok(());
    }
    let names: Vec<&str> = chosen.iter().map(|one| one.name.as_str()).collect();
    println!("quick: {}", names.join(", "));
    let packages: Vec<String> = names.iter().map(|name| format!("--package={name}")).collect();
    run(cargo().arg("fmt").args(&packages).arg("--check"))?;
    run(cargo()
        .args(["clippy", "--locked", "--quiet", "--all-targets"])
        .args(&packages)
        .args(["--", "-D", "warnings"]))?;
    // All that has tests, but for those in documentation, which are built one by one.
    let test = ["test", "--locked", "--tests"];
    run(cargo().args(test).args(&packages).arg("--").args(tests))
}

#[derive(Debug)]
struct Crate {
    name: String,
    /// From the root.
    directory: String,
}

fn crates() -> Result<Vec<Crate>, Error> {
    let metadata = workspace()?;
    let directory = |package: &Package| {
        let path = package.manifest_path.parent()?.strip_prefix(&metadata.workspace_root).ok()?;
        Some(path.to_string())
    };
    let members = metadata.workspace_packages().into_iter();
    Ok(members
        .filter_map(|package| {
            Some(Crate { name: package.name.to_string(), directory: directory(package)? })
        })
        .collect())
}

/// Those of these names: a directory of `crates/`, a path from the root, or a package's own name.
fn named<'a>(crates: &'a [Crate], wanted: &[&str]) -> Result<Vec<&'a Crate>, Error> {
    let find = |word: &str| {
        let directories = [format!("crates/{word}"), word.trim_end_matches('/').to_owned()];
        let by_directory = crates.iter().find(|one| directories.contains(&one.directory));
        by_directory.or_else(|| crates.iter().find(|one| one.name == word)).ok_or_else(|| {
            let mut known: Vec<&str> = crates.iter().map(|one| one.directory.as_str()).collect();
            known.sort_unstable();
            Error::Failed(format!("there is no crate {word}; there are {}", known.join(", ")))
        })
    };
    wanted.iter().map(|word| find(word)).collect()
}

/// Those in which one of these files lies.
fn changed<'a>(crates: &'a [Crate], files: &[String]) -> Vec<&'a Crate> {
    let holds = |one: &Crate, file: &String| {
        file.strip_prefix(&one.directory).is_some_and(|rest| rest.starts_with('/'))
    };
    crates.iter().filter(|one| files.iter().any(|file| holds(one, file))).collect()
}

/// The files that differ from the last commit, new ones with them, as paths from the root.
fn changes() -> Result<Vec<String>, Error> {
    let mut files = Vec::new();
    let new = ["ls-files", "--others", "--exclude-standard"];
    for arguments in [&["diff", "--name-only", "HEAD"][..], &new] {
        let mut git = Command::new("git");
        git.current_dir(root()).args(arguments);
        let output =
            git.output().map_err(|source| Error::Spawn { program: "git".to_owned(), source })?;
        if !output.status.success() {
            return Err(Error::Command { command: format!("{git:?}"), status: output.status });
        }
        let text = String::from_utf8_lossy(&output.stdout);
        files.extend(text.lines().map(str::to_owned));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Vec<Crate> {
        let crates = [
            ("lapstrake-engine", "crates/engine"),
            ("lapstrake-bench-engine", "benches/engine"),
            ("xtask", "xtask"),
        ];
        crates
            .map(|(name, path)| Crate { name: name.to_owned(), directory: path.to_owned() })
            .into()
    }

    fn names(crates: &[&Crate]) -> Vec<String> {
        crates.iter().map(|one| one.name.clone()).collect()
    }

    #[test]
    fn a_crate_is_named_by_its_directory_its_path_or_its_package() {
        let crates = some();
        for word in ["engine", "crates/engine", "crates/engine/", "lapstrake-engine"] {
            assert_eq!(names(&named(&crates, &[word]).unwrap()), ["lapstrake-engine"], "{word}");
        }
        let two = named(&crates, &["benches/engine", "xtask"]).unwrap();
        assert_eq!(names(&two), ["lapstrake-bench-engine", "xtask"]);
    }

    #[test]
    fn an_unknown_crate_is_refused_with_those_that_there_are() {
        let error = named(&some(), &["engin"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no crate engin; there are benches/engine, crates/engine, xtask"
        );
    }

    #[test]
    fn files_lead_to_the_crate_that_holds_them() {
        let files = ["crates/engine/src/lib.rs", "xtask.md", "docs/lab.md", "crates/engine2/a.rs"];
        let files = files.map(str::to_owned);
        assert_eq!(names(&changed(&some(), &files)), ["lapstrake-engine"]);
    }
}
