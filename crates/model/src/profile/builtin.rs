//! The profiles that come with the program.

use super::{Profile, ProfileError};

macro_rules! profiles {
    ($($name:literal),* $(,)?) => {
        /// Names and texts.
        const TEXTS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../profiles/", $name, ".toml")))),*];
    };
}

profiles!();

/// The names, sorted.
#[must_use]
pub fn names() -> Vec<&'static str> {
    TEXTS.iter().map(|(name, _)| *name).collect()
}

/// The text of a profile.
#[must_use]
pub fn text(name: &str) -> Option<&'static str> {
    TEXTS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, text)| *text)
}

/// A profile by its name.
///
/// # Errors
/// None that a test would not have found.
pub fn get(name: &str) -> Option<Result<Profile, ProfileError>> {
    text(name).map(Profile::from_toml)
}
