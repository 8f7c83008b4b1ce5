//! What options of several commands have in common: how their values are read, and help.

use crate::exit::Failure;
use crate::patience;
use clap::builder::{OsStringValueParser, TypedValueParser};
use lapstrake_device::{MemberSpec, parse_size};
use lapstrake_geometry::Sectors;
use lapstrake_host::control;
use lapstrake_host::create::NewBitmap;
use std::{
    ffi::OsStr,
    os::unix::{ffi::OsStrExt, fs::FileTypeExt},
    path::{Path, PathBuf},
};

/// The end of `lapstrake --help`.
pub const MEMBERS_AND_CODES: &str = "\
Members:
  A MEMBER is a file or a block device, a window of one (PATH@OFFSET or PATH@OFFSET+SIZE), or a partition
  in one, by GPT or MBR: disk.img#3.
  A file whose own name ends in @ and a digit, or in # and a number, is written with a window of its own:
  snap@2026@0, disk#3@0.

Sizes:
  Digits, then K, M, G or T for powers of 1024.

Exit codes:
  0  done
  1  failed; the message says what was left untouched
  2  usage
  3  done, but something is degraded, incomplete or does not match (see each command)";

/// The name of an array that is called by it, or as mdadm calls devices: /dev/md/NAME, or /dev/mdN for N.
pub fn name_of_device(given: &str) -> &str {
    match given.strip_prefix("/dev/") {
        Some(device) => match (device.strip_prefix("md/"), device.strip_prefix("md")) {
            (Some(name), _) => name,
            (_, Some(number)) if number.bytes().all(|b| b.is_ascii_digit()) => number,
            _ => device,
        },
        None => given,
    }
}

/// Reads the name of an array that is served. A device of the kernel's md is none.
pub fn array_name(given: &str) -> Result<String, String> {
    let name = name_of_device(given);
    if name == given {
        return Ok(given.to_owned());
    }
    let is_device = std::fs::metadata(given).is_ok_and(|meta| meta.file_type().is_block_device());
    if is_device {
        return Err(format!(
            "it is a block device here, which the kernel has: `mdadm --detail {given}` tells of it; arrays that \
             lapstrake serves go by their names (`lapstrake status`)"
        ));
    }
    Ok(name.to_owned())
}

/// The file of an array that is served, where a member is called as mdadm calls devices and is not there.
fn served_as(path: &Path) -> Result<Option<PathBuf>, String> {
    let given =
        path.to_str().filter(|path| path.starts_with("/dev/md") && !Path::new(path).exists());
    let Some(given) = given else { return Ok(None) };
    file_of(name_of_device(given))
}

/// Where an array that is served can be read.
fn file_of(name: &str) -> Result<Option<PathBuf>, String> {
    match control::ask_detail(&control::directory(), name, None) {
        Ok(array) => array.file().map(Some).ok_or_else(|| {
            format!("array {name} is served, but not as a file: with `lapstrake serve --fuse FILE` it is, and FILE can be given here")
        }),
        // What opens it tells that it is not there.
        Err(_) => Ok(None),
    }
}

/// Reads a MEMBER, which need not be UTF-8.
pub fn member() -> impl TypedValueParser<Value = MemberSpec> {
    OsStringValueParser::new().try_map(|text| spec(&text))
}

/// Reads a MEMBER, or the name of an array that is served as a file, where no file has that name.
pub fn member_or_array() -> impl TypedValueParser<Value = MemberSpec> {
    OsStringValueParser::new().try_map(|text| {
        let is_bare = |name: &&str| !name.contains('/') && !Path::new(name).exists();
        if let Some(name) = text.to_str().filter(is_bare)
            && let Some(file) = file_of(name)?
        {
            return Ok(MemberSpec::whole(file));
        }
        spec(&text)
    })
}

/// Reads MEMBER=SLOT.
pub fn forced_role() -> impl TypedValueParser<Value = (MemberSpec, u16)> {
    OsStringValueParser::new().try_map(|text| {
        let bytes = text.as_bytes();
        let at =
            bytes.iter().rposition(|&byte| byte == b'=').ok_or("no = between member and slot")?;
        let slot = text.to_str().and_then(|text| text[at + 1..].parse().ok());
        let slot = slot.ok_or("the slot is no number from 0 on")?;
        Ok::<_, String>((spec(OsStr::from_bytes(&bytes[..at]))?, slot))
    })
}

/// The member that a user means. Where a file is named as a window of another is written, it cannot be
/// known which is meant.
pub fn spec(text: &OsStr) -> Result<MemberSpec, String> {
    let mut spec = MemberSpec::from_os_str(text).map_err(|error| error.to_string())?;
    if let Some(file) = served_as(&spec.path)? {
        spec.path = file;
        return Ok(spec);
    }
    let named = PathBuf::from(text);
    // What does not answer is there.
    let is_there = |file: PathBuf| {
        patience::ask(Path::new(text), patience::LONG, move || file.exists()).unwrap_or(true)
    };
    let is_named = spec.path.as_os_str() != text && is_there(named);
    if is_named && spec.partition.is_some() && !is_there(spec.path.clone()) {
        return Ok(MemberSpec::whole(text));
    }
    if is_named {
        let text = text.to_string_lossy();
        return Err(format!(
            "there is a file of this name: write {text}@0 for it, or rename it if a window or a partition of {} is \
             meant",
            spec.path.display()
        ));
    }
    Ok(spec)
}

/// "; did you mean ...?", if a word is nearly one of those that are known.
pub fn near(given: &str, known: &[&str]) -> String {
    let given = given.to_lowercase();
    let least = known.iter().map(|word| (strsim::damerau_levenshtein(word, &given), word)).min();
    match least {
        Some((edits, word)) if edits <= 2 && edits * 2 < given.chars().count() => {
            format!("; did you mean {word}?")
        }
        _ => String::new(),
    }
}

/// Reads a size in bytes where a bare number is KiB, as in mdadm.
pub fn kib(text: &str) -> Result<u64, String> {
    let is_bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let text = if is_bare { format!("{text}K") } else { text.to_owned() };
    parse_size(&text).map_err(|error| error.to_string())
}

/// As [`kib`], in whole sectors.
pub fn kib_sectors(text: &str) -> Result<Sectors, String> {
    let bytes = kib(text)?;
    if bytes == 0 {
        return Err("0 is not a size".into());
    }
    Ok(Sectors::from_bytes(bytes))
}

/// Reads a size in bytes where a bare number is bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

/// Reads where a write-intent bitmap is to be; its file's name need not be UTF-8.
pub fn bitmap() -> impl TypedValueParser<Value = NewBitmap> {
    OsStringValueParser::new().try_map(|text| match text.as_bytes() {
        b"internal" => Ok(NewBitmap::Internal),
        b"none" => Ok(NewBitmap::None),
        b"lockless" => Ok(NewBitmap::Lockless),
        path if path.contains(&b'/') => Ok(NewBitmap::File(text.into())),
        _ => Err("say internal, lockless, none, or a file's name with a '/' in it"),
    })
}

/// Reads an image's path and that of its map file, with a = between; the names need not be UTF-8.
pub fn image_and_map() -> impl TypedValueParser<Value = (PathBuf, PathBuf)> {
    OsStringValueParser::new().try_map(|text| {
        let bytes = text.as_bytes();
        let at = bytes.iter().position(|&byte| byte == b'=').filter(|&at| at > 0);
        let at = at.ok_or("say IMAGE=MAP, with the image as it is named among the members")?;
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        Ok::<_, &str>((path(&bytes[..at]), path(&bytes[at + 1..])))
    })
}

/// A path as one with another working directory has to call it.
pub fn absolute(path: &Path) -> Result<String, Failure> {
    let path = std::path::absolute(path)?;
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| {
        Failure::new(format!(
            "{}: not UTF-8, which the control socket speaks; give it, or a link to it, another name",
            path.display()
        ))
    })
}

/// Reads a UUID: 32 hexadecimal digits, with or without ':', '.', '-' or blanks between, in the
/// order in which mdadm prints them.
pub fn uuid(text: &str) -> Result<[u8; 16], String> {
    let digits = text.chars().filter(|c| !matches!(c, ':' | '.' | '-' | ' '));
    let digits: Option<Vec<u8>> = digits.map(|c| Some(c.to_digit(16)? as u8)).collect();
    let digits = digits.as_deref().map(<[u8; 32]>::try_from);
    let Some(Ok(digits)) = digits else {
        let example = "5d0b1ccd:edf987f5:acd0ff08:89cdff46";
        return Err(format!("a UUID has 32 hexadecimal digits, such as {example}"));
    };
    let uuid = std::array::from_fn(|i| digits[2 * i] << 4 | digits[2 * i + 1]);
    if uuid == [0; 16] {
        return Err("all zeros stand for no UUID".into());
    }
    Ok(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_numbers_are_kib() {
        assert_eq!(kib("64"), Ok(65536));
        assert_eq!(kib("64K"), Ok(65536));
        assert_eq!(kib("1M"), Ok(1 << 20));
        assert_eq!(kib_sectors("4"), Ok(Sectors(8)));
        assert!(kib("").is_err() && kib("x").is_err() && kib_sectors("0").is_err());
        assert!(kib("99999999999999999").is_err());
    }

    #[test]
    fn uuids_are_read_as_mdadm_prints_them() {
        let printed = uuid("5d0b1ccd:edf987f5:acd0ff08:89cdff46").unwrap();
        assert_eq!((printed[0], printed[15]), (0x5d, 0x46));
        assert_eq!(uuid("5d0b1ccd-edf9-87f5-acd0-ff0889cdff46"), Ok(printed));
        for bad in [
            "",
            "5d0b1ccd",
            "5d0b1ccd:edf987f5:acd0ff08:89cdff4g",
            "5d0b1ccd:edf987f5:acd0ff08:89cdff4",
            "00000000:00000000:00000000:00000000",
        ] {
            assert!(uuid(bad).is_err(), "{bad}");
        }
        assert!(uuid("5d0b1ccd:edf987f5:acd0ff08:89cdff4é").is_err());
    }
}
