//! Numbers for people: three digits and a unit. MB are 10^6 bytes, GiB 2^30.

use crate::record::Unit;

/// A value in a unit that suits it, such as "812 MB/s".
#[must_use]
pub fn value(value: f64, unit: Unit) -> String {
    let (scale, name) = scale(value, unit);
    format!("{} {name}", digits(value / scale))
}

/// By what values near `like` are divided, and the name of what comes out.
#[must_use]
pub fn scale(like: f64, unit: Unit) -> (f64, &'static str) {
    let steps: &[(f64, &str)] = match unit {
        // Up to MB/s and no further, so that all figures of a report read alike.
        Unit::BytesPerSecond => &[(1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")],
        Unit::RequestsPerSecond => &[(1.0, "IOPS")],
        Unit::TransactionsPerSecond => &[(1.0, "tps")],
        Unit::FilesPerSecond => &[(1.0, "files/s")],
        Unit::Nanoseconds => &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")],
    };
    let fitting = steps.iter().find(|(scale, _)| like.abs() >= *scale);
    *fitting.or(steps.last()).unwrap_or(&(1.0, ""))
}

/// A number to three digits, without an exponent; thousands are set apart.
#[must_use]
pub fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size < 0.001 => format!("{value:.5}"),
        size if size < 0.9995 => format!("{value:.3}"),
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => grouped(&format!("{value:.0}")),
    }
}

/// A whole number with its thousands set apart.
fn grouped(number: &str) -> String {
    let mut out = String::new();
    for (place, digit) in number.char_indices() {
        let left = number.len() - place;
        if left.is_multiple_of(3) && place > 0 && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A time in nanoseconds.
#[must_use]
pub fn time(ns: u64) -> String {
    value(ns as f64, Unit::Nanoseconds)
}

/// A size.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    let steps = [(40u8, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fitting = steps.iter().find(|(power, _)| bytes >> power > 0);
    fitting.map_or(format!("{bytes} B"), |(power, name)| {
        let number = format!("{:.2}", bytes as f64 / f64::from(*power).exp2());
        format!("{} {name}", number.trim_end_matches('0').trim_end_matches('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_fitting_unit() {
        assert_eq!(value(812_345_678.0, Unit::BytesPerSecond), "812 MB/s");
        assert_eq!(value(95e9, Unit::BytesPerSecond), "95,000 MB/s");
        assert_eq!(value(9.5e3, Unit::BytesPerSecond), "9.50 kB/s");
        assert_eq!(value(0.0, Unit::RequestsPerSecond), "0 IOPS");
        assert_eq!(value(81_234.0, Unit::RequestsPerSecond), "81,234 IOPS");
        assert_eq!(time(1_500), "1.50 us");
        assert_eq!(time(15_000_000), "15.0 ms");
        assert_eq!(digits(0.9996), "1.00");
        assert_eq!(digits(99.96), "100");
        assert_eq!(digits(-123_456.0), "-123,456");
        assert_eq!(digits(1_234_567.0), "1,234,567");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(bytes(65536), "64 KiB");
        assert_eq!(bytes(100), "100 B");
    }
}
