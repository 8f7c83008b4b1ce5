//! What a host's processor takes for the work that storage makes, and profiles of some.
//!
//! Invariants: every figure has a unit, a source and a confidence, as disks' have; times are of one
//! processor that does nothing else. What it does not do: caches of processors; a rate is that of data
//! in memory.

mod builtin;

pub use builtin::{get, names};

use crate::Nanos;
use crate::dice::Dice;
use crate::profile::{Figure, ProfileError, range, unit};
use serde::{Deserialize, Serialize};

/// A processor and its memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessorProfile {
    /// What it is called here.
    pub name: String,
    /// Maker and model, and the memory it was taken with.
    pub model: String,
    /// The year in which it came out.
    pub year: u16,
    /// Threads that it runs at once.
    pub cores: Figure<u32>,
    /// Copying between a program and the page cache, in MB/s.
    pub copy: Figure<f64>,
    /// A system call that does nothing, in us.
    pub system_call: Figure<f64>,
    /// From one thread to another, in us.
    pub switch: Figure<f64>,
    /// A page of the page cache for reading: found room for, inserted, looked up, given up; in us.
    pub page_read: Figure<f64>,
    /// A page of the page cache for writing, what the file system does for it included; in us.
    pub page_write: Figure<f64>,
    /// A character through stdio (`putc`, `getc`), in us.
    pub character: Figure<f64>,
    /// A request to a device from its making to its end, interrupt included; in us.
    pub request: Figure<f64>,
    /// What md does for a page of a stripe in its cache, parity itself aside; in us.
    pub stripe_page: Figure<f64>,
    /// XOR, in MB/s of data in.
    pub xor: Figure<f64>,
    /// P and Q, in MB/s of data in.
    pub pq: Figure<f64>,
}

/// The times of a processor, ready to use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processor {
    /// Threads that it runs at once.
    pub cores: usize,
    /// Copying a byte, in picoseconds.
    pub copy_ps: u64,
    /// A system call.
    pub system_call: Nanos,
    /// From one thread to another.
    pub switch: Nanos,
    /// A page for reading.
    pub page_read: Nanos,
    /// A page for writing.
    pub page_write: Nanos,
    /// A character through stdio, in picoseconds.
    pub character_ps: u64,
    /// A request to a device.
    pub request: Nanos,
    /// A page of a stripe.
    pub stripe_page: Nanos,
    /// XOR of a byte of data in, in picoseconds.
    pub xor_ps: u64,
    /// P and Q of a byte of data in, in picoseconds.
    pub pq_ps: u64,
}

impl ProcessorProfile {
    /// Reads a profile.
    ///
    /// # Errors
    /// If the text is not one.
    pub fn from_toml(text: &str) -> Result<Self, ProfileError> {
        toml::from_str(text).map_err(|error| ProfileError::Syntax(error.to_string()))
    }

    /// The processor that this describes.
    ///
    /// # Errors
    /// If a figure cannot be, or is given in another unit than its field's.
    pub fn build(&self) -> Result<Processor, ProfileError> {
        unit("cores", &self.cores, "threads")?;
        let cores = self.cores.value;
        range("cores", f64::from(cores), cores > 0, "1 at least")?;
        let time = |field, figure: &Figure<f64>| -> Result<f64, ProfileError> {
            unit(field, figure, "us")?;
            let is_right = (0.0..1e6).contains(&figure.value);
            range(field, figure.value, is_right, "from 0 to 10^6").map(|()| figure.value)
        };
        let rate = |field, figure: &Figure<f64>| -> Result<u64, ProfileError> {
            unit(field, figure, "MB/s")?;
            let is_right = (0.1..1e7).contains(&figure.value);
            range(field, figure.value, is_right, "from 0.1 to 10^7")?;
            Ok((1e6 / figure.value).round() as u64)
        };
        let nanos = |us: f64| Nanos::from_ms(us / 1e3);
        Ok(Processor {
            cores: cores as usize,
            copy_ps: rate("copy", &self.copy)?,
            system_call: nanos(time("system_call", &self.system_call)?),
            switch: nanos(time("switch", &self.switch)?),
            page_read: nanos(time("page_read", &self.page_read)?),
            page_write: nanos(time("page_write", &self.page_write)?),
            character_ps: (time("character", &self.character)? * 1e6).round() as u64,
            request: nanos(time("request", &self.request)?),
            stripe_page: nanos(time("stripe_page", &self.stripe_page)?),
            xor_ps: rate("xor", &self.xor)?,
            pq_ps: rate("pq", &self.pq)?,
        })
    }

    /// The profile with its figures drawn around their values, as far off as their confidence lets them
    /// be; the same seed draws the same ones.
    #[must_use]
    pub fn drawn(&self, seed: u64) -> Self {
        let mut drawn = self.clone();
        let mut dice = Dice::new(seed);
        let figures = [
            &mut drawn.copy,
            &mut drawn.system_call,
            &mut drawn.switch,
            &mut drawn.page_read,
            &mut drawn.page_write,
            &mut drawn.character,
            &mut drawn.request,
            &mut drawn.stripe_page,
            &mut drawn.xor,
            &mut drawn.pq,
        ];
        for figure in figures {
            dice.scale(figure);
        }
        drawn
    }
}

impl Processor {
    /// Copying so many bytes.
    #[must_use]
    pub fn copy(&self, bytes: u64) -> Nanos {
        Nanos(bytes * self.copy_ps / 1000)
    }

    /// XOR of so many bytes of data in.
    #[must_use]
    pub fn xor(&self, bytes: u64) -> Nanos {
        Nanos(bytes * self.xor_ps / 1000)
    }

    /// P and Q of so many bytes of data in.
    #[must_use]
    pub fn pq(&self, bytes: u64) -> Nanos {
        Nanos(bytes * self.pq_ps / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_processor_has_figures_that_can_be_and_draws_the_same_from_a_seed() {
        for name in names() {
            let profile = get(name).unwrap().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(profile.name, name);
            profile.build().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(profile.drawn(7), profile.drawn(7));
            assert_ne!(profile.drawn(7), profile);
        }
    }

    #[test]
    fn rates_become_times() {
        let mut profile = get("duron-1300").unwrap().unwrap();
        profile.copy.value = 500.0;
        assert_eq!(profile.build().unwrap().copy(1_000_000), Nanos(2_000_000));
        profile.copy.unit = "GB/s".into();
        assert!(matches!(profile.build(), Err(ProfileError::Unit { field: "copy", .. })));
    }
}
