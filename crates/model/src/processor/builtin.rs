//! The processors that come with the program.

use super::ProcessorProfile;
use crate::profile::ProfileError;

macro_rules! processors {
    ($($name:literal),* $(,)?) => {
        /// Names and texts.
        const TEXTS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../processors/", $name, ".toml")))),*];
    };
}

processors!("duron-1300", "epyc-2021", "pentium-e5200", "xeon-e5520");

/// The names, sorted.
#[must_use]
pub fn names() -> Vec<&'static str> {
    TEXTS.iter().map(|(name, _)| *name).collect()
}

/// A profile by its name.
///
/// # Errors
/// None that a test would not have found.
#[must_use]
pub fn get(name: &str) -> Option<Result<ProcessorProfile, ProfileError>> {
    let (_, text) = TEXTS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    Some(ProcessorProfile::from_toml(text))
}
