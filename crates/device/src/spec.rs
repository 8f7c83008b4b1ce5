//! What the user writes for a member: `PATH`, `PATH@OFFSET`, `PATH@OFFSET+SIZE`, or `PATH#NUMBER` for a partition.
//!
//! The last `@` followed by a digit begins a window; every other `@` belongs to the path. Without a window, a `#` with
//! nothing but digits behind it begins a partition's number. A file whose own name ends so is written with a window of its
//! own: `odd@4096@0`, `disk#3@0`. Sizes are digits with an optional K, M, G or T (powers of 1024).

use crate::SpecError;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A member as named by the user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MemberSpec {
    /// The file or block device.
    pub path: PathBuf,
    /// Start of the window in bytes; 0 for the whole.
    pub offset: u64,
    /// Length of the window in bytes; `None` reaches to the end.
    pub size: Option<u64>,
    /// The partition of this number instead, whose place the table tells when it is opened; `offset` is 0 then, and
    /// `size` is `None`.
    pub partition: Option<u32>,
}

impl MemberSpec {
    /// The whole of `path`, whatever characters it holds.
    pub fn whole(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), offset: 0, size: None, partition: None }
    }

    /// The partition of this number on `path`.
    pub fn partition(path: impl Into<PathBuf>, number: u32) -> Self {
        Self { partition: Some(number), ..Self::whole(path) }
    }

    /// Whether it is all of the file or device.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.offset == 0 && self.size.is_none() && self.partition.is_none()
    }

    /// Parses a command-line argument, which need not be UTF-8.
    ///
    /// # Errors
    /// [`SpecError`] names the part that cannot be understood.
    pub fn from_os_str(text: &OsStr) -> Result<Self, SpecError> {
        let bytes = text.as_bytes();
        let window = window_at(bytes);
        let number = if window.is_some() { None } else { number_at(bytes) };
        let path_end = window.or(number).unwrap_or(bytes.len());
        if path_end == 0 {
            return Err(SpecError::NoPath { text: text.to_string_lossy().into_owned() });
        }
        let path = PathBuf::from(OsString::from_vec(bytes[..path_end].to_vec()));
        if let Some(at) = number {
            let digits = String::from_utf8_lossy(&bytes[at + 1..]);
            let number = digits.parse().ok().filter(|&number| number > 0);
            let number =
                number.ok_or_else(|| SpecError::Partition { text: digits.into_owned() })?;
            return Ok(Self::partition(path, number));
        }
        let Some(at) = window else { return Ok(Self::whole(path)) };
        let window = String::from_utf8_lossy(&bytes[at + 1..]);
        let (offset, size) = match window.split_once('+') {
            Some((offset, size)) => (offset, Some(parse_size(size)?)),
            None => (window.as_ref(), None),
        };
        if size == Some(0) {
            return Err(SpecError::EmptyWindow { text: window.into_owned() });
        }
        let offset = parse_size(offset)?;
        if offset.checked_add(size.unwrap_or(0)).is_none_or(|end| end > i64::MAX as u64) {
            return Err(SpecError::TooLarge { text: window.into_owned() });
        }
        Ok(Self { path, offset, size, partition: None })
    }

    /// The texts by which it can be called, whoever's the working directory is: as it was given, by its
    /// absolute path, and as [`MemberSpec::resolved`], now and if its file should be deleted.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let named = |path| Self { path, ..self.clone() }.exact();
        let absolute = std::path::absolute(&self.path).ok();
        let paths = [absolute, in_directory(&self.path), self.path.canonicalize().ok()];
        let mut names = vec![self.to_string(), self.exact()];
        names.extend(paths.into_iter().flatten().map(named));
        names.dedup();
        names
    }

    /// The argument that [`MemberSpec::from_os_str`] reads back as it.
    #[must_use]
    pub fn argument(&self) -> OsString {
        let path = self.path.as_os_str().as_bytes();
        let is_window_like = || window_at(path).or(number_at(path)).is_some();
        let mut text = self.path.clone().into_os_string();
        if let Some(number) = self.partition {
            text.push(format!("#{number}"));
            return text;
        }
        match self.size {
            Some(size) => text.push(format!("@{}+{size}", self.offset)),
            None if self.offset > 0 || is_window_like() => text.push(format!("@{}", self.offset)),
            None => {}
        }
        text
    }

    /// The same as a text for programs, exact if the path is UTF-8; [`fmt::Display`] is for people.
    #[must_use]
    pub fn exact(&self) -> String {
        self.argument().to_string_lossy().into_owned()
    }

    /// The same by its absolute path without links; as far as that can be told, if the file is not there.
    ///
    /// # Errors
    /// There is no working directory, and it is needed.
    pub fn resolved(&self) -> io::Result<Self> {
        let found = self.path.canonicalize().ok().or_else(|| in_directory(&self.path));
        let path = found.map_or_else(|| std::path::absolute(&self.path), Ok)?;
        Ok(Self { path, ..self.clone() })
    }
}

/// Where a window begins: at the last `@`, if a digit follows.
fn window_at(bytes: &[u8]) -> Option<usize> {
    let at = bytes.iter().rposition(|&b| b == b'@');
    at.filter(|&at| bytes.get(at + 1).is_some_and(u8::is_ascii_digit))
}

/// Where a partition's number begins: at a `#`, if nothing but digits follow.
fn number_at(bytes: &[u8]) -> Option<usize> {
    let digits = bytes.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let at = (bytes.len() - digits).checked_sub(1)?;
    (digits > 0 && bytes[at] == b'#').then_some(at)
}

/// A file by its directory's path without links.
fn in_directory(path: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(path).ok()?;
    Some(absolute.parent()?.canonicalize().ok()?.join(absolute.file_name()?))
}

/// The whole of what a path names, whatever characters it holds.
impl<P: Into<PathBuf>> From<P> for MemberSpec {
    fn from(path: P) -> Self {
        Self::whole(path)
    }
}

impl FromStr for MemberSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::from_os_str(OsStr::new(text))
    }
}

/// For people: what would steer a terminal is shown as `U+FFFD`, as in an array's name. See [`MemberSpec::exact`].
impl fmt::Display for MemberSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&harmless(&self.exact()))
    }
}

/// A name as a terminal may be given it.
#[must_use]
pub fn harmless(name: &str) -> String {
    name.replace(char::is_control, "\u{fffd}")
}

/// A path as a shell takes it, and that no command takes for an option.
#[must_use]
pub fn quoted_path(path: impl AsRef<OsStr>) -> String {
    let path = path.as_ref();
    if !path.as_bytes().starts_with(b"-") {
        return quoted(path);
    }
    let mut from_here = OsString::from("./");
    from_here.push(path);
    quoted(from_here)
}

/// A word as a shell takes it.
#[must_use]
pub fn quoted(word: impl AsRef<OsStr>) -> String {
    let word = word.as_ref();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%#".contains(c);
    match word.to_str() {
        Some(word) if !word.is_empty() && word.chars().all(is_plain) => return word.to_owned(),
        Some(word) if !word.contains(char::is_control) => {
            return format!("'{}'", word.replace('\'', r"'\''"));
        }
        _ => {}
    }
    // As bash, zsh and ksh take it; it does nothing to the terminal.
    let escaped =
        |bytes: &[u8]| bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
    let mut text = String::from("$'");
    for chunk in word.as_encoded_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\'' | '\\' => text.extend(['\\', c]),
                c if c.is_control() => text += &escaped(c.to_string().as_bytes()),
                c => text.push(c),
            }
        }
        text += &escaped(chunk.invalid());
    }
    text + "'"
}

/// Parses digits with an optional K, M, G or T (either case), powers of 1024, into bytes.
///
/// # Errors
/// [`SpecError::Size`] for anything else, [`SpecError::TooLarge`] above 2^63 - 1.
pub fn parse_size(text: &str) -> Result<u64, SpecError> {
    let shift = match text.bytes().last().map(|b| b.to_ascii_uppercase()) {
        Some(b'K') => 10,
        Some(b'M') => 20,
        Some(b'G') => 30,
        Some(b'T') => 40,
        _ => 0,
    };
    let digits = if shift > 0 { &text[..text.len() - 1] } else { text };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(SpecError::Size { text: text.to_owned(), likely: likely_size(text) });
    }
    let too_large = || SpecError::TooLarge { text: text.to_owned() };
    let number: u64 = digits.parse().map_err(|_| too_large())?;
    number.checked_mul(1 << shift).filter(|&n| n <= i64::MAX as u64).ok_or_else(too_large)
}

/// The size that another spelling stands for: "10GB", "64 kib", "0x1000" or "1.5G" where it is a whole number of a
/// smaller unit; none of a negative number, or of what is no number at all.
fn likely_size(text: &str) -> Option<String> {
    let text = text.trim().replace(['_', '\'', ','], "").to_ascii_uppercase();
    if let Some(digits) = text.strip_prefix("0X") {
        return Some(u64::from_str_radix(digits, 16).ok()?.to_string());
    }
    let digits =
        text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim();
    let unit = match unit {
        "" | "B" | "BYTE" | "BYTES" => "",
        "KILOBYTES" | "MEGABYTES" | "GIGABYTES" | "TERABYTES" => &unit[..1],
        _ => ["K", "M", "G", "T", "P"].into_iter().find(|letter| {
            let rest = unit.strip_prefix(letter);
            rest.is_some_and(|rest| ["", "B", "IB", "I"].contains(&rest))
        })?,
    };
    whole_number(number, unit).filter(|size| parse_size(size).is_ok())
}

/// A number with its unit, in a smaller one until it has no fraction.
fn whole_number(number: &str, unit: &str) -> Option<String> {
    const UNITS: [&str; 6] = ["", "K", "M", "G", "T", "P"];
    let mut value: f64 = number.parse().ok()?;
    let mut at = UNITS.iter().position(|known| *known == unit)?;
    // There is no P here.
    while at > 0 && (value.fract() != 0.0 || at == UNITS.len() - 1) {
        value *= 1024.0;
        at -= 1;
    }
    (value.fract() == 0.0 && value < 1e15).then(|| format!("{value}{}", UNITS[at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_spelling_of_a_size_is_answered_with_the_one_that_is_meant() {
        for (given, meant) in [
            ("10GB", Some("10G")),
            ("64kb", Some("64K")),
            ("64 KiB", Some("64K")),
            ("10 G", Some("10G")),
            ("1.5G", Some("1536M")),
            ("0x1000", Some("4096")),
            ("4096B", Some("4096")),
            ("1_000", Some("1000")),
            ("1P", Some("1024T")),
            ("-1", None),
            ("", None),
            ("big", None),
            ("1.2.3G", None),
            ("0.3", None),
            ("9999P", None),
        ] {
            assert_eq!(likely_size(given).as_deref(), meant, "{given}");
            assert!(parse_size(given).is_err(), "{given}");
        }
    }

    fn spec(text: &str) -> (String, u64, Option<u64>) {
        let spec: MemberSpec = text.parse().unwrap();
        (spec.path.to_string_lossy().into_owned(), spec.offset, spec.size)
    }

    #[test]
    fn windows_are_told_from_paths() {
        assert_eq!(spec("/dev/sda"), ("/dev/sda".into(), 0, None));
        assert_eq!(spec("a@1M+2g"), ("a".into(), 1 << 20, Some(2 << 30)));
        assert_eq!(spec("a@512"), ("a".into(), 512, None));
        assert_eq!(spec("usb@host/x"), ("usb@host/x".into(), 0, None));
        assert_eq!(spec("odd@4096@0"), ("odd@4096".into(), 0, None));
        assert_eq!(spec("disk#3@0"), ("disk#3".into(), 0, None));
    }

    #[test]
    fn partitions_are_told_from_paths() {
        let parsed = |text: &str| text.parse::<MemberSpec>().unwrap();
        assert_eq!(parsed("disk.img#3"), MemberSpec::partition("disk.img", 3));
        assert_eq!(parsed("/dev/disk#1/a#12"), MemberSpec::partition("/dev/disk#1/a", 12));
        for whole in ["disk#", "disk#3.img", "disk#x3", "a#1/b"] {
            assert_eq!(parsed(whole), MemberSpec::whole(whole));
        }
        assert_eq!(MemberSpec::whole("disk#3").exact(), "disk#3@0");
        assert_eq!(parsed("disk#3").exact(), "disk#3");
    }

    #[test]
    fn faulty_specs_are_named() {
        let fault = |text: &str| text.parse::<MemberSpec>().unwrap_err();
        assert!(matches!(fault(""), SpecError::NoPath { .. }));
        assert!(matches!(fault("@1+2"), SpecError::NoPath { .. }));
        assert!(matches!(fault("#1"), SpecError::NoPath { .. }));
        assert!(matches!(fault("a#0"), SpecError::Partition { .. }));
        assert!(matches!(fault("a#99999999999"), SpecError::Partition { .. }));
        assert!(matches!(fault("a@1Q+2"), SpecError::Size { .. }));
        assert!(matches!(fault("a@1+"), SpecError::Size { .. }));
        assert!(matches!(fault("a@1+0"), SpecError::EmptyWindow { .. }));
        assert!(matches!(fault("a@9000000T"), SpecError::TooLarge { .. }));
        assert!(matches!(fault("a@5000000T+5000000T"), SpecError::TooLarge { .. }));
    }

    #[test]
    fn display_reads_back() {
        for text in [
            "/dev/sda",
            "a@1M+2g",
            "a@512",
            "usb@host/x",
            "odd@4096@0",
            "x@1@0+512",
            "a#7",
            "a#7@0",
        ] {
            let spec: MemberSpec = text.parse().unwrap();
            assert_eq!(spec.to_string().parse::<MemberSpec>().unwrap(), spec);
        }
    }

    #[test]
    fn an_argument_that_is_not_utf8_reads_back() {
        let spec = MemberSpec::from_os_str(OsStr::from_bytes(b"m\xe9moire@1M+2M")).unwrap();
        assert_eq!(MemberSpec::from_os_str(&spec.argument()), Ok(spec));
    }

    #[test]
    fn shell_words_survive() {
        assert_eq!(quoted("a.img@1M+2M"), "a.img@1M+2M");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("a\u{1b}[2J'\\b"), r"$'a\x1b[2J\'\\b'");
        assert_eq!(quoted(OsStr::from_bytes(b"m\xe9m\xc3\xa9")), r"$'m\xe9mé'");
    }

    #[test]
    fn a_path_is_no_option() {
        assert_eq!(quoted_path("-a b@1M"), "'./-a b@1M'");
        assert_eq!(quoted_path("a/-b"), "a/-b");
    }

    #[test]
    fn what_would_steer_a_terminal_is_not_displayed_but_kept() {
        let spec: MemberSpec = "/tmp/a\u{1b}[2J\n\u{9b}z@1M".parse().unwrap();
        assert_eq!(spec.to_string(), "/tmp/a\u{fffd}[2J\u{fffd}\u{fffd}z@1048576");
        assert_eq!(spec.exact().parse::<MemberSpec>().unwrap(), spec);
        assert!(spec.names().contains(&spec.exact()));
    }
}
