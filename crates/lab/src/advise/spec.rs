//! Disks as people name them: `PROFILE[xN][@PRICE]`, or a TOML file of them.

use super::question::{Cable, PRICES};
use super::{DISKS_MAX, Disk};
use crate::LabError;
use crate::plan::reading;
use lapstrake_model::profile::Profile;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Bytes that an ATA cable carries in a second, unless said otherwise.
const CABLE: u64 = 66_000_000;
/// Rates that a cable may be given; ATA's slowest mode and SATA's fastest are within.
const CABLE_RATES: std::ops::RangeInclusive<u64> = 1_000_000..=1_000_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    disk: Vec<Entry>,
}

/// Disks of one kind.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    profile: String,
    #[serde(default = "one")]
    count: usize,
    /// Of each.
    #[serde(default)]
    price: f64,
    name: Option<String>,
}

fn one() -> usize {
    1
}

/// Disks of words, and of a file (`[[disk]]` with `profile`, `count`, `price`, `name`), of which the name and the text
/// are given; `find` gives a profile by its name. Disks of one name are numbered. They come in the order of their kinds
/// and prices, whatever order they were named in: slots follow it, and an answer must not depend on the order of
/// options.
///
/// # Errors
/// If there is no such profile, the numbers are none or too large, or the text is not such a one.
pub fn disks_of(
    words: &[impl AsRef<str>],
    file: Option<(&Path, &str)>,
    find: &dyn Fn(&str) -> Result<Profile, String>,
) -> Result<Vec<Disk>, LabError> {
    let mut kinds = Vec::new();
    for word in words {
        let entry = entry(word.as_ref(), find).map_err(wrong)?;
        kinds.push(kind(entry, find).map_err(wrong)?);
    }
    if let Some((path, text)) = file {
        let in_file = |why: String| wrong(format!("{}: {why}", path.display()));
        let reading = reading::read(text);
        let lines: Vec<String> =
            reading.problems.iter().map(|problem| problem.in_file(path)).collect();
        let Some(File { disk }) = reading.value.filter(|_| lines.is_empty()) else {
            return Err(wrong(lines.join("\n")));
        };
        for entry in disk {
            kinds.push(kind(entry, find).map_err(in_file)?);
        }
    }
    let all = kinds.iter().fold(0_usize, |all, (entry, _)| all.saturating_add(entry.count));
    if all > DISKS_MAX {
        return Err(wrong(format!("there are {all} disks; {DISKS_MAX} at most")));
    }
    let (mut disks, mut counts) = (Vec::new(), BTreeMap::new());
    for (entry, profile) in &kinds {
        let base = entry.name.as_ref().unwrap_or(&profile.name);
        for _ in 0..entry.count {
            let number: &mut usize = counts.entry(base.clone()).or_default();
            *number += 1;
            disks.push(Disk::new(&format!("{base}-{number}"), profile.clone(), entry.price)?);
        }
    }
    disks.sort_by(|a, b| a.kind.cmp(&b.kind).then(a.price.total_cmp(&b.price)));
    Ok(disks)
}

/// Puts disks on a cable that they share: `NAME,NAME[@RATE]`, by the names that they have in answers. As they are not
/// like others then, their kind says so, and the disks are sorted anew.
///
/// # Errors
/// If a name is no disk's, or of one that is on a cable, or the rate is no cable's.
pub fn on_cable(
    mut disks: Vec<Disk>,
    word: &str,
    rate: &dyn Fn(&str) -> Result<u64, String>,
) -> Result<Vec<Disk>, LabError> {
    let (names, bytes_per_s) = match word.rsplit_once('@') {
        Some((names, text)) => (names, rate(text).map_err(|why| wrong(format!("{word}: {why}")))?),
        None => (word, CABLE),
    };
    let names: Vec<&str> = names.split(',').map(str::trim).collect();
    if names.len() < 2 || !CABLE_RATES.contains(&bytes_per_s) {
        let why = "a cable has two disks at least, and carries from 1MB to 1GB a second";
        return Err(wrong(format!("--cable {word}: {why}")));
    }
    let used = disks.iter().filter_map(|disk| disk.cable).map(|cable| cable.number);
    let number = used.max().unwrap_or(0) + 1;
    for name in names {
        let Some(disk) = disks.iter_mut().find(|disk| disk.name == name) else {
            let known: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
            let known = known.join(", ");
            return Err(wrong(format!("--cable {word}: no disk {name:?}; there are {known}")));
        };
        if disk.cable.is_some() {
            return Err(wrong(format!("--cable {word}: {name} is on a cable already")));
        }
        disk.cable = Some(Cable { number, bytes_per_s });
        disk.kind += &format!(" on cable {number}");
    }
    disks.sort_by(|a, b| a.kind.cmp(&b.kind).then(a.price.total_cmp(&b.price)));
    Ok(disks)
}

/// An entry that can be, and its profile.
fn kind(
    entry: Entry,
    find: &dyn Fn(&str) -> Result<Profile, String>,
) -> Result<(Entry, Profile), String> {
    let profile = find(&entry.profile)?;
    let (name, (least, most)) = (&entry.profile, PRICES);
    if entry.count == 0 {
        return Err(format!("{name}: the count must be 1 at least"));
    }
    if !(least..=most).contains(&entry.price) {
        let found = entry.price;
        return Err(format!("{name}: the price must be from {least} to {most}, not {found:?}"));
    }
    Ok((entry, profile))
}

fn entry(word: &str, find: &dyn Fn(&str) -> Result<Profile, String>) -> Result<Entry, String> {
    let entry = |profile: &str, count, price| Entry {
        profile: profile.to_owned(),
        count,
        price,
        name: None,
    };
    // Names of files may have anything in them.
    if find(word).is_ok() {
        return Ok(entry(word, 1, 0.0));
    }
    let (kind, price) = match word.rsplit_once('@') {
        Some((kind, price)) => {
            let price = price.parse().map_err(|_| format!("{word}: {price:?} is no price"))?;
            (kind, price)
        }
        None => (word, 0.0),
    };
    // Names may end in an x and digits themselves.
    if find(kind).is_ok() {
        return Ok(entry(kind, 1, price));
    }
    match kind.rsplit_once('x').map(|(profile, count)| (profile, count.parse())) {
        Some((profile, Ok(count))) => Ok(entry(profile, count, price)),
        _ => Ok(entry(kind, 1, price)),
    }
}

fn wrong(why: String) -> LabError {
    LabError::Question { why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapstrake_model::profile::builtin;

    fn find(name: &str) -> Result<Profile, String> {
        builtin::get(name).ok_or(format!("no {name}"))?.map_err(|error| error.to_string())
    }

    fn read(word: &str) -> Option<(String, usize, f64)> {
        let disks = disks_of(&[word], None, &find).ok()?;
        Some((disks[0].kind.clone(), disks.len(), disks[0].price))
    }

    #[test]
    fn words_name_a_profile_a_number_and_a_price() {
        assert_eq!(read("hdd-4tb"), Some(("hdd-4tb".into(), 1, 0.0)));
        assert_eq!(read("hdd-4tbx3@79.50"), Some(("hdd-4tb".into(), 3, 79.5)));
        assert_eq!(read("seagate-250-x510"), Some(("seagate-250-x510".into(), 1, 0.0)));
        assert_eq!(read("seagate-250-x510x2"), Some(("seagate-250-x510".into(), 2, 0.0)));
        for bad in [
            "",
            "nobody",
            "hdd-4tb@",
            "hdd-4tb@cheap",
            "hdd-4tbx0",
            "hdd-4tb@-1",
            "hdd-4tb@inf",
            "hdd-4tb@nan",
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_file_lists_disks() {
        let text = "[[disk]]\nprofile = \"hdd-4tb\"\ncount = 2\nprice = 80\nname = \"red\"\n\
                    [[disk]]\nprofile = \"ssd-sata-1tb\"\n";
        let disks = disks_of(&["ssd-sata-1tb"], Some((Path::new("f"), text)), &find).unwrap();
        let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
        assert_eq!(names, ["red-1", "red-2", "ssd-sata-1tb-1", "ssd-sata-1tb-2"]);
        let none: [&str; 0] = [];
        let wrong = |text: &str| {
            let file = Some((Path::new("f.toml"), text));
            disks_of(&none, file, &find).unwrap_err().to_string()
        };
        let error = wrong("[[disk]]\nprofil = \"x\"");
        assert!(error.starts_with("f.toml:2: unknown field `profil`"), "{error}");
        let error = wrong("[[disk]]\nprofile = \"hdd-4tb\"\ncount = \"two\"");
        assert!(error.starts_with("f.toml:3: the text \"two\" where a whole number"), "{error}");
        let error = wrong("[[disk]]\nprofile = \"nobody\"");
        assert!(error.starts_with("f.toml: no nobody"), "{error}");
        let error = wrong("[[disk]]\nprofile = \"hdd-4tb\"\ncount = 100000");
        assert!(error.contains("there are 100000 disks; 24 at most"), "{error}");
        for price in ["inf", "nan", "-1", "1e300"] {
            let text = format!("[[disk]]\nprofile = \"hdd-4tb\"\nprice = {price}\n");
            let error = wrong(&text);
            assert!(error.contains("the price must be from 0 to"), "{error}");
        }
    }
}
