//! The profiles that come with the program.

use super::{Profile, ProfileError};

macro_rules! profiles {
    ($($name:literal),* $(,)?) => {
        /// Names and texts.
        const TEXTS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../profiles/", $name, ".toml")))),*];
    };
}

profiles!(
    "SP1614N",
    "ST3160215A",
    "ST340015A",
    "ST9146803SS",
    "ST973402SS",
    "hdd-20tb",
    "hdd-4tb",
    "hdd-8tb-shingled",
    "hitachi-80",
    "sata-2tb-2011",
    "seagate-250-x510",
    "ssd-nvme-1tb",
    "ssd-nvme-server",
    "ssd-sata-1tb",
);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_a_disk_under_its_own_name_and_survives_being_written() {
        for name in names() {
            let profile = get(name).unwrap().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(profile.name, name);
            let model = profile.build().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(model.blocks() > 0);
            let again = Profile::from_toml(&profile.to_toml().unwrap()).unwrap();
            assert_eq!(again, profile, "{name}");
        }
    }
}
