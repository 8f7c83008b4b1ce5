//! The part of the day in which checks and repairs run.

use jiff::{Zoned, civil::Time};
use std::{fmt, str::FromStr};
use thiserror::Error;

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

/// Why a text is no [`CheckWindow`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CheckWindowError {
    /// It is not two times of the day.
    #[error("{text:?} is no part of a day, such as 22:00-06:00")]
    NotTwoTimes {
        /// What was given.
        text: String,
    },
    /// It ends when it begins.
    #[error("{text}: no time is between; \"always\" is no bound")]
    Empty {
        /// What was given.
        text: String,
    },
}

impl FromStr for CheckWindow {
    type Err = CheckWindowError;

    fn from_str(text: &str) -> Result<Self, CheckWindowError> {
        let part = |text: &str| Time::strptime("%H:%M", text).ok();
        let window = text.split_once('-').and_then(|(from, to)| Some((part(from)?, part(to)?)));
        let (from, to) =
            window.ok_or_else(|| CheckWindowError::NotTwoTimes { text: text.into() })?;
        if from == to {
            return Err(CheckWindowError::Empty { text: text.into() });
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
        let refusal = |text: &str| text.parse::<CheckWindow>().unwrap_err().to_string();
        for text in ["", "22:00", "22:00-", "25:00-06:00", "22-6", "always"] {
            assert!(refusal(text).contains("22:00-06:00"), "{text}");
        }
        assert!(refusal("06:00-06:00").contains("always"));
        assert_eq!("22:00-06:00".parse::<CheckWindow>().unwrap().to_string(), "22:00-06:00");
    }
}
