//! Profiles from DiskSim's parameter files: a model (layout and mechanism), a seek curve, disk specs (buffer,
//! overheads), as DIXtrac extracts them from a disk and as DiskSim 4 reads them.
//!
//! A file may take blocks from others (`source FILE`): a [`Text`] has them with it.
//!
//! What each field means is the reference manual's (CMU-PDL-08-101). What DiskSim describes and this
//! crate does not model is refused by name, or stated in [`IGNORED`].

pub mod block;
mod model;
mod specs;
mod text;

use crate::layout::LayoutError;
use crate::profile::{Kind, Profile};
use block::{Block, SyntaxError, Value};

pub use text::Text;

/// Fields that are read and change nothing here, and why.
pub const IGNORED: [(&str, &str); 4] = [
    (
        "Percent error in rpms",
        "a spindle is off its speed by a ten-thousandth at most; by how much follows from the seed",
    ),
    ("Calc sector by sector", "a matter of DiskSim's own speed"),
    ("Avg sectors per cylinder", "the layout is known"),
    ("Print stats", "a matter of DiskSim's output"),
];

/// Why files cannot be made a profile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ImportError {
    /// A text is not in DiskSim's language.
    #[error("{file}: {error}")]
    Syntax {
        /// Which of the files.
        file: File,
        /// What is wrong.
        error: SyntaxError,
    },
    /// There is no block of this kind.
    #[error("{file}: it has no block of kind {kind}")]
    NoBlock {
        /// Which of the files.
        file: File,
        /// What is missing.
        kind: &'static str,
    },
    /// A field is missing.
    #[error("{file}: {block} has no \"{field}\"")]
    Missing {
        /// Which of the files.
        file: File,
        /// The block's kind.
        block: String,
        /// What is missing.
        field: &'static str,
    },
    /// A field has a value that it cannot have.
    #[error("{file}: \"{field}\" is {found}; it must be {expected}")]
    Value {
        /// Which of the files.
        file: File,
        /// The field.
        field: String,
        /// Its value.
        found: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A block is in a file that was not there, or has none.
    #[error(
        "{file}: \"{field}\" is in the file {name}, which is not there or has no block: put it where that name leads from the file that names it"
    )]
    NoSource {
        /// Which of the files.
        file: File,
        /// The field.
        field: &'static str,
        /// What the text calls the file.
        name: String,
    },
    /// Something that is not modelled here.
    #[error("{file}: {what} is not modelled")]
    NotModelled {
        /// Which of the files.
        file: File,
        /// What it is.
        what: String,
    },
    /// The model needs a seek curve that was not given.
    #[error("the model names the seek curve {name}: give it with --seek")]
    NoSeek {
        /// What the model calls it.
        name: String,
    },
    /// The seek curve has a bad line.
    #[error("{file}: line {line}: {text:?} is not a distance in cylinders and a time in ms", file = File::Seek)]
    SeekLine {
        /// The line, from 1.
        line: usize,
        /// What is there.
        text: String,
    },
    /// The seek curve ends before it has the points that it says it has.
    #[error("{file}: it has {found} of the {said} distances that its first line tells of: it is cut off", file = File::Seek)]
    SeekShort {
        /// Points that it tells of.
        said: usize,
        /// Points that are there.
        found: usize,
    },
    /// The layout contradicts itself.
    #[error("the model's layout: {0}")]
    Layout(#[from] LayoutError),
}

impl ImportError {
    /// The file that is wrong.
    #[must_use]
    pub fn file(&self) -> File {
        match self {
            Self::Syntax { file, .. }
            | Self::NoBlock { file, .. }
            | Self::Missing { file, .. }
            | Self::Value { file, .. }
            | Self::NoSource { file, .. }
            | Self::NotModelled { file, .. } => *file,
            Self::NoSeek { .. } | Self::Layout(_) => File::Model,
            Self::SeekLine { .. } | Self::SeekShort { .. } => File::Seek,
        }
    }
}

/// One of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// Layout and mechanism.
    Model,
    /// Seek times.
    Seek,
    /// Buffer and overheads.
    Specs,
}

impl std::fmt::Display for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Model => "the model",
            Self::Seek => "the seek curve",
            Self::Specs => "the disk specs",
        })
    }
}

/// Makes a profile of the texts of the files.
///
/// # Errors
/// If they are not DiskSim's, or describe what is not modelled here.
pub fn import(model: &Text, seek: Option<&str>, specs: &Text) -> Result<Profile, ImportError> {
    let model = only(model, File::Model, "dm_disk")?;
    let specs = only(specs, File::Specs, "disksim_disk")?;
    let mechanics = model::read(&Fields::new(&model, File::Model), seek)?;
    let name = specs.name.clone();
    let profile = specs::read(&Fields::new(&specs, File::Specs), mechanics)?;
    let note = "made by lapstrake disk import from DiskSim's parameter files".to_owned();
    Ok(Profile {
        model: name.replace('_', " "),
        name,
        year: None,
        note: Some(note),
        kind: Kind::HardDisk(Box::new(profile)),
        reliability: None,
    })
}

/// The name under which a model's text knows its seek curve, if it needs one.
#[must_use]
pub fn seek_file_name(model: &Text) -> Option<String> {
    let model = only(model, File::Model, "dm_disk").ok()?;
    let fields = Fields::new(&model, File::Model);
    model::seek_file(&fields.block("Mechanical Model").ok()??)
}

/// How many blocks a model's text says the disk has, which may not be what its layout comes to.
#[must_use]
pub fn block_count(model: &Text) -> Option<u64> {
    let model = only(model, File::Model, "dm_disk").ok()?;
    Fields::new(&model, File::Model).whole("Block count").ok()
}

fn only(text: &Text, file: File, kind: &'static str) -> Result<Block, ImportError> {
    let blocks = block::parse(text).map_err(|error| ImportError::Syntax { file, error })?;
    let block = blocks.into_iter().find(|block| block.kind == kind);
    block.ok_or(ImportError::NoBlock { file, kind })
}

/// A block's values, with errors that say where they were sought.
struct Fields<'a> {
    block: &'a Block,
    file: File,
}

impl<'a> Fields<'a> {
    fn new(block: &'a Block, file: File) -> Self {
        Self { block, file }
    }

    fn get(&self, field: &'static str) -> Result<&'a Value, ImportError> {
        self.block.values.get(field).ok_or_else(|| {
            let (file, block) = (self.file, self.block.kind.clone());
            ImportError::Missing { file, block, field }
        })
    }

    fn wrong(
        &self,
        field: &str,
        found: impl std::fmt::Display,
        expected: &'static str,
    ) -> ImportError {
        let (field, found) = (field.to_owned(), found.to_string());
        ImportError::Value { file: self.file, field, found, expected }
    }

    fn number(&self, field: &'static str) -> Result<f64, ImportError> {
        match self.get(field)? {
            Value::Number(number) => Ok(*number),
            other => Err(self.wrong(field, other, "a number")),
        }
    }

    fn number_or(&self, field: &'static str, default: f64) -> Result<f64, ImportError> {
        if self.block.values.contains_key(field) { self.number(field) } else { Ok(default) }
    }

    fn whole(&self, field: &'static str) -> Result<u64, ImportError> {
        let number = self.number(field)?;
        if number < 0.0 || number.fract() != 0.0 || number > 1e15 {
            return Err(self.wrong(field, number, "a whole number"));
        }
        Ok(number as u64)
    }

    fn whole_or(&self, field: &'static str, default: u64) -> Result<u64, ImportError> {
        if self.block.values.contains_key(field) { self.whole(field) } else { Ok(default) }
    }

    fn flag_or(&self, field: &'static str, default: bool) -> Result<bool, ImportError> {
        Ok(self.whole_or(field, u64::from(default))? != 0)
    }

    fn word(&self, field: &'static str) -> Result<&'a str, ImportError> {
        match self.get(field)? {
            Value::Word(word) | Value::Source(word) => Ok(word),
            other => Err(self.wrong(field, other, "a word")),
        }
    }

    fn block(&self, field: &'static str) -> Result<Option<Fields<'a>>, ImportError> {
        match self.block.values.get(field) {
            None => Ok(None),
            Some(Value::Block(block)) => Ok(Some(Fields::new(block, self.file))),
            Some(Value::Source(name)) => {
                Err(ImportError::NoSource { file: self.file, field, name: name.clone() })
            }
            Some(other) => Err(self.wrong(field, other, "a block")),
        }
    }

    fn numbers(&self, field: &'static str) -> Result<Vec<f64>, ImportError> {
        let Some(value) = self.block.values.get(field) else { return Ok(Vec::new()) };
        let Value::List(values) = value else { return Err(self.wrong(field, value, "a list")) };
        let number = |value: &Value| match value {
            Value::Number(number) => Ok(*number),
            other => Err(self.wrong(field, other, "a list of numbers")),
        };
        values.iter().map(number).collect()
    }

    fn wholes(&self, field: &'static str) -> Result<Vec<u64>, ImportError> {
        let numbers = self.numbers(field)?;
        if let Some(number) = numbers.iter().find(|number| **number < 0.0 || number.fract() != 0.0)
        {
            return Err(self.wrong(field, number, "a list of whole numbers"));
        }
        Ok(numbers.into_iter().map(|number| number as u64).collect())
    }
}
