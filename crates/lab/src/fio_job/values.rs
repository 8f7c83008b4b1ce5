//! Values of fio's options, as fio 3 reads them.

use super::Extent;
use std::ops::RangeInclusive;
use std::time::Duration;

/// An option's value, with its name for who is told of it.
pub(super) struct Value<'a> {
    pub name: &'a str,
    pub text: Option<&'a str>,
}

impl<'a> Value<'a> {
    pub fn needed(&self) -> Result<&'a str, String> {
        self.text
            .filter(|text| !text.is_empty())
            .ok_or_else(|| format!("{} has no value", self.name))
    }

    fn wrong(&self) -> String {
        format!("{} = {} is not understood", self.name, self.text.unwrap_or_default())
    }

    /// Bytes, or per cent of the array.
    pub fn extent(&self) -> Result<Extent, String> {
        let text = self.needed()?;
        if let Some(text) = text.strip_suffix('%') {
            let percent: f64 = text.parse().map_err(|_| self.wrong())?;
            return (0.0..=100.0)
                .contains(&percent)
                .then_some(Extent::Share(percent / 100.0))
                .ok_or_else(|| self.wrong());
        }
        bytes(text).map(Extent::Bytes).map_err(|_| self.wrong())
    }
}

/// Digits with a unit; those of powers of 1024, which `k` and `ki` both are.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let wrong = || format!("{text:?} is no size");
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let power = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "ki" | "kib" => 10,
        "m" | "mb" | "mi" | "mib" => 20,
        "g" | "gb" | "gi" | "gib" => 30,
        "t" | "tb" | "ti" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << power).ok_or_else(wrong)
}

pub(super) fn number(value: &Value<'_>, range: RangeInclusive<u64>) -> Result<u64, String> {
    let number = bytes(value.needed()?).map_err(|_| value.wrong())?;
    if range.contains(&number) {
        return Ok(number);
    }
    let (from, to) = (range.start(), range.end());
    Err(format!("{} = {number} is not from {from} to {to}", value.name))
}

/// One or zero; an option without a value is on.
pub(super) fn switch(value: &Value<'_>) -> Result<bool, String> {
    match value.text {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(_) => Err(value.wrong()),
    }
}

/// Digits with a unit; seconds where there is none.
pub(super) fn time(value: &Value<'_>) -> Result<Duration, String> {
    let text = value.needed()?;
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let micros = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "us" | "usec" => 1,
        "ms" | "msec" => 1000,
        "" | "s" | "sec" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return Err(value.wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| value.wrong())?;
    number.checked_mul(micros).map(Duration::from_micros).ok_or_else(|| value.wrong())
}

/// Sizes and their shares, of reads and of writes: what stands after the first comma is of writes, after the second of
/// trims; one alone is of all.
pub(super) fn blocks(
    value: &Value<'_>,
    one: impl Fn(&str) -> Result<Vec<(u64, f64)>, String>,
) -> Result<[Vec<(u64, f64)>; 2], String> {
    let mut parts = value.needed()?.split(',');
    let mut next = || match parts.next() {
        None => Ok(None),
        Some("") => Ok(Some(vec![(super::BLOCK, 1.0)])),
        Some(text) => one(text).map(Some).map_err(|why| format!("{}: {why}", value.name)),
    };
    let reads = next()?.expect("a text has one part at least");
    let writes = next()?.unwrap_or_else(|| reads.clone());
    Ok([reads, writes])
}

/// `4k/60:64k/40`; sizes without a share take what the others leave, alike.
pub(super) fn split(text: &str) -> Result<Vec<(u64, f64)>, String> {
    let mut parts: Vec<(u64, Option<f64>)> = Vec::new();
    for part in text.split(':') {
        let (size, percent) = part.split_once('/').unwrap_or((part, ""));
        let percent = match percent.trim() {
            "" => None,
            text => Some(text.parse::<f64>().map_err(|_| format!("{text:?} is no share"))?),
        };
        parts.push((bytes(size)?, percent));
    }
    let said: f64 = parts.iter().filter_map(|part| part.1).sum();
    let open = parts.iter().filter(|part| part.1.is_none()).count();
    if said > 100.0
        || (open == 0 && said < 100.0)
        || parts.iter().any(|part| part.1 < Some(0.0) && part.1.is_some())
    {
        return Err(format!("{text:?}: shares come to {said} %"));
    }
    let rest = (100.0 - said) / open.max(1) as f64;
    Ok(parts.iter().map(|(size, percent)| (*size, percent.unwrap_or(rest) / 100.0)).collect())
}
