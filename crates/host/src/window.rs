//! The part of the day in which checks and repairs run.

use jiff::{Zoned, civil::Time};
use std::{fmt, str::FromStr};

/// From a time of the local day to another, on the next day if that is earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckWindow {
    from: Time,
    to: Time,
}

impl CheckWindow {
    /// Whether checks may run now.
    pub(crate) fn is_open(self) -> bool {
        self.covers(Zoned::now().time())
    }

    fn covers(self, time: Time) -> bool {
        match self.from <= self.to {
            true => self.from <= time && time < self.to,
            false => self.from <= time || time < self.to,
        }
    }
}

impl FromStr for CheckWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part = |text: &str| Time::strptime("%H:%M", text).ok();
        let window = text.split_once('-').and_then(|(from, to)| Some((part(from)?, part(to)?)));
        let (from, to) =
            window.ok_or_else(|| format!("{text:?} is no part of a day, such as 22:00-06:00"))?;
        if from == to {
            return Err(format!("{text}: no time is between; \"always\" is no bound"));
        }
        Ok(Self { from, to })
    }
}

impl fmt::Display for CheckWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |time: Time| time.strftime("%H:%M").to_string();
        write!(f, "{}-{}", text(self.from), text(self.to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::time;

    #[test]
    fn a_window_may_go_over_midnight() {
        let at = |window: &str, hour, minute| {
            window.parse::<CheckWindow>().unwrap().covers(time(hour, minute, 0, 0))
        };
        assert!(!at("22:00-06:00", 21, 59));
        assert!(at("22:00-06:00", 22, 0));
        assert!(at("22:00-06:00", 5, 59));
        assert!(!at("22:00-06:00", 6, 0));
        assert!(at("01:00-06:00", 1, 0));
        assert!(!at("01:00-06:00", 0, 59));
        assert!(!at("01:00-06:00", 6, 0));
    }

    #[test]
    fn what_is_no_window_is_told() {
        for text in ["", "22:00", "22:00-", "25:00-06:00", "22-6", "always"] {
            assert!(text.parse::<CheckWindow>().unwrap_err().contains("22:00-06:00"), "{text}");
        }
        assert!("06:00-06:00".parse::<CheckWindow>().unwrap_err().contains("always"));
        assert_eq!("22:00-06:00".parse::<CheckWindow>().unwrap().to_string(), "22:00-06:00");
    }
}
