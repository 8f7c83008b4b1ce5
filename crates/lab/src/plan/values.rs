//! Values as plans write them: sizes, times, shares, levels, and "one or several of these".
//!
//! Each refuses what it cannot be while the file is read, so that the error has the value's own place.

use lapstrake_device::parse_size;
use lapstrake_geometry::{Level, Version};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, Deserialize, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// Bytes: "64K", or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bytes(pub u64);

/// Longer ones are slips.
const TIME_MAX: Duration = Duration::from_secs(366 * 86400);

/// A time: "500ms", "3s", "5m", "2h".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(pub Duration);

/// A share: "5%", or a number from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct Share(pub f64);

/// A place in a device: a share of it, or bytes.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Place {
    /// Of the whole, from 0 to 1.
    Share(f64),
    /// From its start.
    Bytes(u64),
}

/// A level by number or name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LevelName(pub Level);

/// A version of md's superblocks: "1.2", as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Metadata(pub Version);

/// One value, or a list of them: a dimension of a matrix.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Many<T>(pub Vec<T>);

/// The members of an array, or several choices of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Members {
    /// By name; one choice, or several.
    Named(Vec<Vec<String>>),
    /// So many of the plan's disks, from the first.
    First(Vec<usize>),
}

/// Reads "500ms", "3s", "5m" or "2h".
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let digits =
        text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => {
            return Err(format!(
                "{text:?} is no time: say a number and us, ms, s, m or h, such as \"3s\""
            ));
        }
    };
    let number: f64 =
        number.parse().map_err(|_| format!("{text:?} is no time: {number:?} is no number"))?;
    let time = Duration::try_from_secs_f64(number * seconds)
        .map_err(|error| format!("{text:?} is no time: {error}"))?;
    if time > TIME_MAX { Err(format!("{text:?} is more than a year")) } else { Ok(time) }
}

fn parse_share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let share =
        number.ok_or_else(|| format!("{text:?} is no share: say a percentage, such as \"5%\""))?;
    if (0.0..=100.0).contains(&share) {
        Ok(share / 100.0)
    } else {
        Err(format!("{text:?} is not from 0% to 100%"))
    }
}

/// A value that is written as text or as a number.
trait Scalar: Sized {
    const EXPECTED: &'static str;
    fn of_text(text: &str) -> Result<Self, String>;
    fn of_number(number: f64) -> Result<Self, String> {
        Err(format!("{number} is not {}", Self::EXPECTED))
    }
}

impl Scalar for Bytes {
    const EXPECTED: &'static str = "a size, such as \"64K\"";

    fn of_text(text: &str) -> Result<Self, String> {
        parse_size(text).map(Self).map_err(|error| error.to_string())
    }

    fn of_number(number: f64) -> Result<Self, String> {
        if number < 0.0 || number.fract() != 0.0 || number >= 9e15 {
            return Err(format!("{number} is no number of bytes"));
        }
        Ok(Self(number as u64))
    }
}

impl Scalar for Time {
    const EXPECTED: &'static str = "a time with its unit, such as \"3s\"";

    fn of_text(text: &str) -> Result<Self, String> {
        parse_time(text).map(Self)
    }
}

impl Scalar for Share {
    const EXPECTED: &'static str = "a share, such as \"70%\" or 0.7";

    fn of_text(text: &str) -> Result<Self, String> {
        parse_share(text).map(Self)
    }

    fn of_number(number: f64) -> Result<Self, String> {
        if (0.0..=1.0).contains(&number) {
            Ok(Self(number))
        } else {
            Err(format!("{number} is not from 0 to 1"))
        }
    }
}

impl Scalar for Place {
    const EXPECTED: &'static str = "a place: a size, such as \"10G\", or a share, such as \"50%\"";

    fn of_text(text: &str) -> Result<Self, String> {
        if text.ends_with('%') {
            return parse_share(text).map(Self::Share);
        }
        Bytes::of_text(text).map(|bytes| Self::Bytes(bytes.0))
    }

    fn of_number(number: f64) -> Result<Self, String> {
        Bytes::of_number(number).map(|bytes| Self::Bytes(bytes.0))
    }
}

impl Scalar for LevelName {
    const EXPECTED: &'static str = "a level: linear, 0, 1, 4, 5, 6 or 10";

    fn of_text(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| format!("{text:?} is not {}", Self::EXPECTED))
    }

    fn of_number(number: f64) -> Result<Self, String> {
        Self::of_text(&number.to_string())
    }
}

impl Scalar for Metadata {
    const EXPECTED: &'static str =
        "a version of superblocks: \"0.90\", \"1.0\", \"1.1\" or \"1.2\", as text";

    fn of_text(text: &str) -> Result<Self, String> {
        let version = Version::ALL.into_iter().find(|version| version.as_str() == text);
        version.map(Self).ok_or_else(|| format!("{text:?} is not {}", Self::EXPECTED))
    }
}

struct ScalarVisitor<T>(PhantomData<T>);

impl<T: Scalar> Visitor<'_> for ScalarVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::of_text(text).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        T::of_number(number as f64).map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        T::of_number(number).map_err(E::custom)
    }
}

macro_rules! scalar {
    ($($name:ty),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(ScalarVisitor(PhantomData))
            }
        }
    )*};
}
scalar!(Bytes, Time, Share, Place, LevelName, Metadata);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Many<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ManyVisitor(PhantomData))
    }
}

struct ManyVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ManyVisitor<T> {
    type Value = Many<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or a list of values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Many<T>, A::Error> {
        let list = Vec::<T>::deserialize(SeqAccessDeserializer::new(seq))?;
        if list.is_empty() {
            Err(de::Error::custom("an empty list leaves nothing to measure"))
        } else {
            Ok(Many(list))
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Many<T>, E> {
        T::deserialize(text.into_deserializer()).map(|one| Many(vec![one]))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Many<T>, E> {
        T::deserialize(number.into_deserializer()).map(|one| Many(vec![one]))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Many<T>, E> {
        T::deserialize(number.into_deserializer()).map(|one| Many(vec![one]))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Many<T>, E> {
        T::deserialize(value.into_deserializer()).map(|one| Many(vec![one]))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Many<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|one| Many(vec![one]))
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Many(list) = Many::<OneOfMembers>::deserialize(deserializer)?;
        let mut names = Vec::new();
        let (mut choices, mut counts) = (Vec::new(), Vec::new());
        for one in list {
            match one {
                OneOfMembers::Name(name) => names.push(name),
                OneOfMembers::Names(list) => choices.push(list),
                OneOfMembers::Count(count) => counts.push(count),
            }
        }
        match (names.is_empty(), choices.is_empty(), counts.is_empty()) {
            (false, true, true) => Ok(Self::Named(vec![names])),
            (true, false, true) => Ok(Self::Named(choices)),
            (true, true, false) => Ok(Self::First(counts)),
            _ => Err(de::Error::custom(
                "names, lists of names and counts cannot be mixed in one list of members",
            )),
        }
    }
}

enum OneOfMembers {
    Name(String),
    Names(Vec<String>),
    Count(usize),
}

impl<'de> Deserialize<'de> for OneOfMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = OneOfMembers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the names of disks, or how many of them")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<OneOfMembers, E> {
                Ok(OneOfMembers::Name(name.to_owned()))
            }

            fn visit_i64<E: de::Error>(self, count: i64) -> Result<OneOfMembers, E> {
                let count = usize::try_from(count).ok().filter(|&count| count > 0);
                count
                    .map(OneOfMembers::Count)
                    .ok_or_else(|| E::custom("an array has at least one member"))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<OneOfMembers, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(OneOfMembers::Names)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Table<T> {
        x: T,
    }

    fn read<T: serde::de::DeserializeOwned>(value: &str) -> Result<T, String> {
        let table: Result<Table<T>, _> = toml::from_str(&format!("x = {value}"));
        table.map(|table| table.x).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn scalars_are_read_with_their_units() {
        assert_eq!(read::<Bytes>("\"64K\""), Ok(Bytes(65536)));
        assert_eq!(read::<Bytes>("512"), Ok(Bytes(512)));
        assert_eq!(read::<Time>("\"1.5s\""), Ok(Time(Duration::from_millis(1500))));
        assert_eq!(read::<Time>("\"2h\""), Ok(Time(Duration::from_secs(7200))));
        assert_eq!(read::<Share>("\"70%\""), Ok(Share(0.7)));
        assert_eq!(read::<Share>("0.25"), Ok(Share(0.25)));
        assert_eq!(read::<Place>("\"50%\""), Ok(Place::Share(0.5)));
        assert_eq!(read::<LevelName>("10"), Ok(LevelName(Level::Raid10)));
        assert_eq!(read::<LevelName>("\"raid5\""), Ok(LevelName(Level::Raid5)));
        assert_eq!(read::<Metadata>("\"0.90\""), Ok(Metadata(Version::V090)));
    }

    #[test]
    fn what_is_no_such_value_is_refused() {
        assert!(read::<Bytes>("-1").is_err() && read::<Bytes>("\"64Q\"").is_err());
        assert!(read::<Time>("3").unwrap_err().contains("3 is not a time with its unit"));
        assert!(read::<Time>("\"9999999h\"").unwrap_err().contains("more than a year"));
        assert!(read::<Time>("\"3 parsecs\"").is_err() && read::<Time>("\"s\"").is_err());
        assert!(read::<Share>("\"101%\"").is_err() && read::<Share>("1.5").is_err());
        assert!(read::<LevelName>("3").is_err() && read::<LevelName>("\"raid7\"").is_err());
        assert!(read::<Metadata>("\"0.91\"").is_err() && read::<Metadata>("1.2").is_err());
        assert!(read::<Many<Bytes>>("[]").unwrap_err().contains("empty list"));
    }

    #[test]
    fn one_value_is_a_list_of_one() {
        assert_eq!(read::<Many<Bytes>>("\"64K\""), Ok(Many(vec![Bytes(65536)])));
        assert_eq!(read::<Many<Bytes>>("[1, \"1K\"]"), Ok(Many(vec![Bytes(1), Bytes(1024)])));
        assert_eq!(read::<Many<bool>>("true"), Ok(Many(vec![true])));
    }

    #[test]
    fn members_are_names_choices_or_counts() {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(read("[\"a\", \"b\"]"), Ok(Members::Named(vec![names(&["a", "b"])])));
        assert_eq!(
            read("[[\"a\"], [\"a\", \"b\"]]"),
            Ok(Members::Named(vec![names(&["a"]), names(&["a", "b"])]))
        );
        assert_eq!(read("3"), Ok(Members::First(vec![3])));
        assert_eq!(read("[2, 3]"), Ok(Members::First(vec![2, 3])));
        assert!(read::<Members>("[\"a\", 2]").is_err() && read::<Members>("0").is_err());
    }
}
