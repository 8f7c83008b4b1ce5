//! A figure of a profile: its value, unit, source, and how far to trust it.

use serde::{Deserialize, Serialize};

/// How far a figure can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// Measured on such a disk.
    Measured,
    /// From its maker's data sheet.
    DataSheet,
    /// From a disk of the same family or year.
    Sibling,
    /// What disks of its kind usually have.
    Guess,
}

impl Confidence {
    /// How far the true value may be off, relative to the figure: one standard deviation.
    #[must_use]
    pub(super) fn relative_deviation(self) -> f64 {
        match self {
            Self::Measured => 0.01,
            Self::DataSheet => 0.05,
            Self::Sibling => 0.1,
            Self::Guess => 0.3,
        }
    }
}

impl std::fmt::Display for Confidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Measured => "measured",
            Self::DataSheet => "data sheet",
            Self::Sibling => "sibling",
            Self::Guess => "guess",
        })
    }
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure<T> {
    /// The value, in `unit`.
    pub value: T,
    /// Its unit; each field has one that it must be given in.
    pub unit: String,
    /// Where it comes from.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
    /// Between what bounds it lies with 95 %, if that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
}

impl<T> Figure<T> {
    /// A measured figure.
    #[must_use]
    pub fn measured(value: T, unit: &str, source: &str) -> Self {
        let (unit, source) = (unit.to_owned(), source.to_owned());
        Self { value, unit, source, confidence: Confidence::Measured, interval: None }
    }
}
