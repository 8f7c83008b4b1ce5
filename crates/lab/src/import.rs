//! Reads what other tools print, so that old results stand beside new ones. What the lab's own clients run is read by
//! the same parsers.
//!
//! Invariants:
//! - A figure comes out as the tool gives it, in bytes and seconds: its KB are 1024 bytes where the tool says so. What it did not
//!   measure (too fast, not asked for) is left out, not zero.
//! - The text is kept whole with each run.
//! - A file is taken whole or not at all, and so are all files of one import.
//! - Within an import a load's name stands for one load: where tools call different loads the same, what differs is put to
//!   the name.

pub mod bonnie;
pub mod fio;
pub mod iozone;
mod loads;

use crate::LabError;
use crate::record::{
    Experiment, Facts, Origin, Params, Phase, Run, State, Subject, SubjectKind, Workload,
};
use crate::store::{CaseId, ExperimentId, Store};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// A tool whose output is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// fio's JSON, JSON+ or `--minimal`.
    Fio,
    /// bonnie++'s CSV, of 1.03 or 1.9x and later.
    Bonnie,
    /// iozone's text.
    Iozone,
}

/// One run as a tool tells of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// What the output itself calls the machine or disk, if it does.
    pub subject: Option<String>,
    /// The load.
    pub workload: Workload,
    /// Its figures.
    pub phases: Vec<Phase>,
    /// The part of the output that tells of it.
    pub raw: String,
}

/// Output that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadOutput {
    /// Where, from 1.
    pub line: usize,
    /// What is wrong.
    pub why: String,
}

impl Tool {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fio => "fio",
            Self::Bonnie => "bonnie++",
            Self::Iozone => "iozone",
        }
    }

    /// Reads its output.
    ///
    /// # Errors
    /// If it is not the tool's, or has nothing in it.
    pub fn parse(self, text: &str) -> Result<Vec<Told>, BadOutput> {
        let told = match self {
            Self::Fio => fio::parse(text),
            Self::Bonnie => bonnie::parse(text),
            Self::Iozone => iozone::parse(text),
        }?;
        let name = self.name();
        if told.is_empty() {
            return Err(BadOutput::at(
                1,
                format!("nothing that {name} prints as a result is in it"),
            ));
        }
        if told.iter().all(|told| told.phases.is_empty()) {
            let why = format!("no figure of {name} is in it: nothing took long enough");
            return Err(BadOutput::at(1, why));
        }
        Ok(told)
    }

    /// The tool that has most likely written a text.
    #[must_use]
    pub fn guess(text: &str) -> Option<Self> {
        if text.trim_start().starts_with('{') || fio::is_in(text) {
            Some(Self::Fio)
        } else if iozone::is_in(text) {
            Some(Self::Iozone)
        } else if text.lines().any(bonnie::is_line) {
            Some(Self::Bonnie)
        } else {
            None
        }
    }
}

impl BadOutput {
    fn at(line: usize, why: impl Into<String>) -> Self {
        Self { line, why: why.into() }
    }
}

/// What to import, and as what.
#[derive(Clone, Debug)]
pub struct Import {
    /// The files, each a repeat of what it tells of.
    pub files: Vec<PathBuf>,
    /// The tool; guessed from the text if not given.
    pub tool: Option<Tool>,
    /// The experiment's name; the first file's if not given.
    pub name: Option<String>,
    /// What was measured; what the output calls it, or the file's name, if not given.
    pub subject: Option<String>,
}

/// Reads files and keeps what they tell as a new experiment, finished.
///
/// # Errors
/// If a file cannot be read or understood, or the store not be written. The store is then as it was.
pub fn import(store: &mut Store, what: &Import) -> Result<ExperimentId, LabError> {
    let mut read = Vec::new();
    for path in &what.files {
        let text = fs::read_to_string(path).map_err(|source| file(path, source))?;
        let bad = |why: BadOutput| LabError::BadOutput { path: path.clone(), why };
        let unknown = || {
            BadOutput::at(1, "neither fio's JSON or --minimal nor bonnie++'s CSV nor iozone's text")
        };
        let tool = what.tool.or_else(|| Tool::guess(&text)).ok_or_else(unknown).map_err(bad)?;
        let told = tool.parse(&text).map_err(bad)?;
        read.push((path, tool, modified_ms(path)?, told));
    }
    loads::tell_apart(read.iter_mut().flat_map(|(.., told)| told).map(|told| &mut told.workload));
    let mut tools: Vec<&str> = read.iter().map(|(_, tool, ..)| tool.name()).collect();
    tools.sort_unstable();
    tools.dedup();
    let names: Vec<String> = what.files.iter().map(|path| path.display().to_string()).collect();
    let experiment = Experiment {
        name: what.name.clone().unwrap_or_else(|| stem(&what.files[0])),
        origin: Origin::Imported { tool: tools.join(", ") },
        plan: names.join("\n"),
        facts: Facts::default(),
    };
    store.whole(|store| {
        let id = store.begin_experiment(&experiment)?;
        let mut rounds: BTreeMap<CaseId, u32> = BTreeMap::new();
        for (path, _, started_ms, told) in read {
            for told in told {
                let name = what.subject.clone().or(told.subject).unwrap_or_else(|| stem(path));
                let case = store.case(id, &subject(name), &State::Healthy, &told.workload)?;
                let next = rounds.entry(case).or_default();
                let (round, raw) = (*next, told.raw);
                *next += 1;
                let phases = told.phases;
                store.add_run(
                    case,
                    &Run { round, position: 0, started_ms, error: None, phases, raw },
                )?;
            }
        }
        store.finish_experiment(id)?;
        Ok(id)
    })
}

fn subject(name: String) -> Subject {
    let (kind, params) = (SubjectKind::Existing, Params::new());
    Subject { name, kind, params, size: None, detail: String::new() }
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn modified_ms(path: &Path) -> Result<i64, LabError> {
    let modified =
        fs::metadata(path).and_then(|data| data.modified()).map_err(|source| file(path, source))?;
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(i64::try_from(since.as_millis()).unwrap_or_default())
}

fn file(path: &Path, source: std::io::Error) -> LabError {
    LabError::File { path: path.into(), source }
}

#[cfg(test)]
mod tests;
