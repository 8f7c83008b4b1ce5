//! Profiles of disks: TOML files whose every field has a unit, a source and a confidence.
//!
//! What it does not do: read files. Built-in profiles are part of the program.

pub mod builtin;
mod draw;
mod figure;
mod hard;
pub(crate) mod limits;
mod rates;
mod reliability;
mod solid;

pub use figure::{Confidence, Figure};
pub use hard::{
    BufferTable, CachingTable, HardDiskProfile, LayoutForm, OverheadPair, OverheadTable, QueueTable,
};
pub use rates::RatesTable;
pub use reliability::Reliability;
pub use solid::SolidDiskProfile;

use crate::disk::DiskModel;
use crate::layout::LayoutError;
use crate::seek::SeekError;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Tables")]
pub struct Profile {
    /// What it is called here.
    pub name: String,
    /// Maker and model.
    pub model: String,
    /// The year in which it came out; none if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub year: Option<u16>,
    /// What else there is to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Its figures.
    #[serde(flatten)]
    pub kind: Kind,
    /// How it fails; none if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reliability: Option<Reliability>,
}

/// A profile as its text has it. A flattened `kind` would be read in two steps, the second of which no
/// longer knows the lines.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    name: String,
    model: String,
    year: Option<u16>,
    note: Option<String>,
    #[serde(rename = "hard-disk")]
    hard_disk: Option<Box<HardDiskProfile>>,
    #[serde(rename = "solid-disk")]
    solid_disk: Option<Box<SolidDiskProfile>>,
    reliability: Option<Reliability>,
}

impl TryFrom<Tables> for Profile {
    type Error = &'static str;

    fn try_from(tables: Tables) -> Result<Self, Self::Error> {
        let kind = match (tables.hard_disk, tables.solid_disk) {
            (Some(disk), None) => Kind::HardDisk(disk),
            (None, Some(disk)) => Kind::SolidDisk(disk),
            (Some(_), Some(_)) => return Err("both a table [hard-disk] and a table [solid-disk]"),
            (None, None) => return Err("neither a table [hard-disk] nor a table [solid-disk]"),
        };
        let Tables { name, model, year, note, reliability, .. } = tables;
        Ok(Self { name, model, year, note, kind, reliability })
    }
}

/// What kind of disk, and its figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Platters and an arm.
    HardDisk(Box<HardDiskProfile>),
    /// Flash.
    SolidDisk(Box<SolidDiskProfile>),
}

/// Why a profile cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// It is not TOML, or lacks a field, or has one too many.
    #[error("not a profile: {0}")]
    Syntax(String),
    /// A field is given in another unit.
    #[error("{field} is given in \"{found}\"; it must be in \"{expected}\"")]
    Unit {
        /// The field.
        field: &'static str,
        /// Its unit.
        found: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A figure is out of what can be.
    #[error("{field} is {found}; it must be {expected}")]
    Range {
        /// The field.
        field: &'static str,
        /// Its value.
        found: String,
        /// What it must be.
        expected: String,
    },
    /// The layout contradicts itself.
    #[error("layout: {0}")]
    Layout(#[from] LayoutError),
    /// The seek curve contradicts itself.
    #[error("seek: {0}")]
    Seek(#[from] SeekError),
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// If the text is not one, or a figure cannot be.
    pub fn from_toml(text: &str) -> Result<Self, ProfileError> {
        let profile: Self =
            toml::from_str(text).map_err(|error| ProfileError::Syntax(error.to_string()))?;
        profile.build().map(|_| profile)
    }

    /// The profile as a text that [`Profile::from_toml`] reads.
    ///
    /// # Errors
    /// If a figure is too large for TOML.
    pub fn to_toml(&self) -> Result<String, ProfileError> {
        toml::to_string(self).map_err(|error| ProfileError::Syntax(error.to_string()))
    }

    /// Whether tracks lie over each other.
    #[must_use]
    pub fn is_shingled(&self) -> bool {
        self.cache_zone().is_some()
    }

    /// Bytes of the zone that takes what is written without order, if tracks lie over each other.
    #[must_use]
    pub fn cache_zone(&self) -> Option<u64> {
        let Kind::HardDisk(disk) = &self.kind else { return None };
        Some(disk.shingled.as_ref()?.value.cache_blocks * 512)
    }

    /// The disk that this describes.
    ///
    /// # Errors
    /// If a figure cannot be, or is given in another unit than its field's.
    pub fn build(&self) -> Result<DiskModel, ProfileError> {
        limits::common(self)?;
        self.reliability.as_ref().map_or(Ok(()), Reliability::check)?;
        Ok(match &self.kind {
            Kind::HardDisk(disk) => DiskModel::Hard(Arc::new(disk.build()?)),
            Kind::SolidDisk(disk) => DiskModel::Solid(Arc::new(disk.build()?)),
        })
    }
}

/// Holds a field's unit against the one that it must have.
pub(crate) fn unit<T>(
    field: &'static str,
    figure: &Figure<T>,
    expected: &'static str,
) -> Result<(), ProfileError> {
    if figure.unit == expected {
        return Ok(());
    }
    Err(ProfileError::Unit { field, found: figure.unit.clone(), expected })
}

/// Holds a number against what it may be.
pub(crate) fn range(
    field: &'static str,
    value: f64,
    is_right: bool,
    expected: &'static str,
) -> Result<(), ProfileError> {
    if is_right {
        return Ok(());
    }
    Err(ProfileError::Range { field, found: limits::told(value), expected: expected.to_owned() })
}
