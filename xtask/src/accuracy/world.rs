//! A case's plan with other values for what was fitted, and what the command predicts of it.
//!
//! Predictions are kept in `target/accuracy`, by all that they depend on: who runs it again, or goes on where it was
//! ended, waits only for what is new.

use super::sources::{Parameter, Place, Published, Source};
use crate::{Error, root};
use serde_json::Value;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// For each parameter the index of its value.
pub type Point = Vec<usize>;

/// A plan and the profiles that differ from the built-in ones.
#[derive(Debug, Hash)]
pub struct World {
    plan: String,
    /// By their files, relative to the plan.
    profiles: Vec<(String, String)>,
    /// Of which bars are made; what is shipped if none is said.
    evidence: Option<String>,
}

impl World {
    /// The plan as it is shipped, without what is not asked for.
    ///
    /// # Errors
    /// If it cannot be read, or what is to be trimmed is not in it.
    pub fn shipped(source: &Source) -> Result<Self, Error> {
        if source.published != Published::Given {
            return Self::beside(source);
        }
        let path = root().join(format!("plans/{}.toml", source.plan));
        let mut plan = trimmed(&fs::read_to_string(path)?, source.kept);
        for (from, to) in source.trimmed {
            if !plan.contains(from) {
                return Err(Error::Failed(format!("plans/{}.toml has no {from}", source.plan)));
            }
            plan = plan.replace(from, to);
        }
        Ok(Self { plan, profiles: Vec::new(), evidence: None })
    }

    /// A case's plan in `cases`, with the profiles there.
    fn beside(source: &Source) -> Result<Self, Error> {
        let cases = root().join("cases");
        let plan = fs::read_to_string(cases.join(format!("{}.toml", source.plan)))?;
        let named =
            |line: &str| line.strip_prefix("profile = \"")?.strip_suffix('"').map(str::to_owned);
        let mut files: Vec<String> = plan.lines().filter_map(named).collect();
        files.sort_unstable();
        files.dedup();
        let read = |file: String| Ok((file.clone(), fs::read_to_string(cases.join(file))?));
        let profiles = files.into_iter().map(read).collect::<Result<_, Error>>()?;
        Ok(Self { plan, profiles, evidence: None })
    }

    /// With other values for its parameters.
    ///
    /// # Errors
    /// If a parameter is not said where it should be.
    pub fn at(source: &Source, point: &[usize]) -> Result<Self, Error> {
        let mut world = Self::shipped(source)?;
        for (parameter, index) in source.parameters.iter().zip(point) {
            world.set(parameter, parameter.values[*index])?;
        }
        Ok(world)
    }

    /// With bars of this evidence.
    pub fn with_evidence(self, evidence: &str) -> Self {
        Self { evidence: Some(evidence.to_owned()), ..self }
    }

    fn set(&mut self, parameter: &Parameter, value: &str) -> Result<(), Error> {
        let Place::Profiles(names) = parameter.of else {
            self.plan = with(&self.plan, parameter, value)?;
            return Ok(());
        };
        for name in names {
            let text = fs::read_to_string(profile_path(name))?;
            let text = with(&text, parameter, value)?;
            if text == fs::read_to_string(profile_path(name))? {
                continue;
            }
            let said = format!("profile = \"{name}\"");
            self.plan = self.plan.replace(&said, &format!("profile = \"{name}.toml\""));
            self.profiles.push((format!("{name}.toml"), text));
        }
        Ok(())
    }

    /// What is predicted with a seed: records.
    ///
    /// # Errors
    /// If the command fails.
    pub fn predict(&self, lapstrake: &Path, seed: usize) -> Result<Vec<Value>, Error> {
        let about = fs::metadata(lapstrake)?;
        let mut hasher = DefaultHasher::new();
        (self, seed, about.len(), about.modified()?).hash(&mut hasher);
        let kept = root().join(format!("target/accuracy/{:016x}.json", hasher.finish()));
        let text = match fs::read_to_string(&kept) {
            Ok(text) => text,
            Err(_) => {
                let text = self.run(lapstrake, seed)?;
                fs::create_dir_all(kept.parent().expect("it is in a directory"))?;
                fs::write(&kept, &text)?;
                text
            }
        };
        let json: Value = serde_json::from_str(&text)
            .map_err(|error| Error::Failed(format!("{}: {error}", kept.display())))?;
        Ok(json["records"].as_array().cloned().unwrap_or_default())
    }

    fn run(&self, lapstrake: &Path, seed: usize) -> Result<String, Error> {
        let directory = tempfile::tempdir()?;
        let plan = directory.path().join("plan.toml");
        fs::write(&plan, &self.plan)?;
        for (file, text) in &self.profiles {
            let file = directory.path().join(file);
            fs::create_dir_all(file.parent().expect("it is in a directory"))?;
            fs::write(file, text)?;
        }
        let mut command = Command::new(lapstrake);
        // One draw: the profiles as they are.
        command.arg("predict").arg(&plan).args(["--draws", "1", "--seed", &seed.to_string()]);
        command.args(["--json", "--store"]).arg(directory.path().join("store.sqlite"));
        if let Some(evidence) = &self.evidence {
            let path = directory.path().join("evidence.csv");
            fs::write(&path, evidence)?;
            command.arg("--evidence").arg(path);
        }
        let output = command
            .output()
            .map_err(|source| Error::Spawn { program: lapstrake.display().to_string(), source })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Error::Failed(format!("{command:?}: {said}")));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Where the plan or the profiles that are shipped have their parameters.
///
/// # Errors
/// If a value is not among those of its parameter.
pub fn shipped_point(source: &Source) -> Result<Point, Error> {
    let plan = World::shipped(source)?.plan;
    let index = |parameter: &Parameter| {
        let text = match parameter.of {
            Place::Plan => plan.clone(),
            Place::Profiles(names) => fs::read_to_string(profile_path(names[0]))?,
        };
        let said = text.lines().find_map(|line| line.strip_prefix(parameter.key));
        let index = parameter.values.iter().position(|value| Some(*value) == said);
        index.ok_or_else(|| {
            Error::Failed(format!("{}: {said:?} is none of its values", parameter.name))
        })
    };
    source.parameters.iter().map(index).collect()
}

fn profile_path(name: &str) -> PathBuf {
    root().join(format!("crates/model/profiles/{name}.toml"))
}

/// A text whose lines for a parameter have another value.
fn with(text: &str, parameter: &Parameter, value: &str) -> Result<String, Error> {
    let is_it = |line: &&str| line.starts_with(parameter.key);
    if text.lines().find(is_it).is_none() {
        return Err(Error::Failed(format!("{}: no line {:?}", parameter.name, parameter.key)));
    }
    let line = |line: &str| match is_it(&line) {
        true => format!("{}{value}\n", parameter.key),
        false => format!("{line}\n"),
    };
    Ok(text.lines().map(line).collect())
}

/// A plan without the arrays and loads that have another name.
fn trimmed(plan: &str, kept: &[&str]) -> String {
    let mut blocks: Vec<String> = vec![String::new()];
    for line in plan.lines() {
        if line.starts_with('[') {
            blocks.push(String::new());
        }
        let block = blocks.last_mut().expect("there is always one");
        *block += line;
        block.push('\n');
    }
    let is_kept = |block: &String| {
        let may_go = block.starts_with("[[array]]") || block.starts_with("[[workload]]");
        let name = block.lines().find_map(|line| line.strip_prefix("name = "));
        !may_go || name.is_none_or(|name| kept.contains(&name.trim_matches('"')))
    };
    blocks.into_iter().filter(is_kept).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sources::SOURCES;
    use super::*;

    #[test]
    fn what_is_shipped_is_one_of_the_points_and_gives_the_shipped_plan() {
        for source in SOURCES {
            let point = shipped_point(source).unwrap();
            let (shipped, at) =
                (World::shipped(source).unwrap(), World::at(source, &point).unwrap());
            assert_eq!(shipped.plan, at.plan, "{}", source.plan);
            assert_eq!(shipped.profiles, at.profiles);
        }
    }

    #[test]
    fn another_value_is_in_the_plan_or_in_profiles_of_its_own() {
        let source = &SOURCES[0];
        let world = World::at(source, &[1, 0]).unwrap();
        assert!(world.plan.contains("\nrate = 33000000\n"));
        assert!(world.plan.contains("profile = \"SP1614N.toml\""));
        assert_eq!(world.profiles.len(), 3);
        assert!(world.profiles[0].1.contains("write_hit = { after_read = 0.120"));
    }

    #[test]
    fn arrays_that_are_not_asked_for_are_left_out() {
        let plan = "name = \"p\"\n[[array]]\nname = \"x\"\n[[array]]\nlevel = 1\n[[array]]\nname = \"y\"\n";
        let kept = trimmed(plan, &["y"]);
        assert_eq!(kept, "name = \"p\"\n[[array]]\nlevel = 1\n[[array]]\nname = \"y\"\n");
    }
}
