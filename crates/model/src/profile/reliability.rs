//! How disks fail: what the safety of an array is estimated from.
//!
//! A profile may leave it out; then it is what disks of its kind have.

use super::{Confidence, Figure, Kind, Profile, ProfileError, range, unit};
use crate::safety::{DiskRisk, YEAR_HOURS};
use serde::{Deserialize, Serialize};

/// How a disk fails.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reliability {
    /// Disks that fail in a year, in %/year: of the first, if the rate is not constant.
    pub afr: Figure<f64>,
    /// Weibull's shape: 1 is a constant rate, more is wear, less are early deaths. 1 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Figure<f64>>,
    /// Sectors that cannot be read for each bit that is, in sectors/bit: one over the data sheet's 10^14 or so.
    pub unreadable: Figure<f64>,
    /// How often sectors become unreadable without being read, in events/year: sectors beside each other
    /// are one event.
    pub latent: Figure<f64>,
    /// What its maker lets one read and write, in TB/year.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Figure<f64>>,
}

impl Profile {
    /// How it fails; what is usual, if the profile does not say.
    #[must_use]
    pub fn reliability(&self) -> Reliability {
        self.reliability.clone().unwrap_or_else(|| Reliability::usual(&self.kind))
    }
}

impl Reliability {
    fn usual(kind: &Kind) -> Self {
        let (afr, unreadable, latent) = match kind {
            Kind::HardDisk(_) => (1.5, 1e-14, 0.032),
            Kind::SolidDisk(_) => (1.0, 1e-15, 0.1),
        };
        let guess = |value, unit: &str| Figure {
            value,
            unit: unit.to_owned(),
            source: "disks of its kind".to_owned(),
            confidence: Confidence::Guess,
            interval: None,
        };
        Self {
            afr: guess(afr, "%/year"),
            shape: None,
            unreadable: guess(unreadable, "sectors/bit"),
            latent: guess(latent, "events/year"),
            workload: None,
        }
    }

    /// What can happen to such a disk.
    #[must_use]
    pub fn risk(&self, blocks: u64, rebuild_hours: f64) -> DiskRisk {
        let shape = self.shape.as_ref().map_or(1.0, |shape| shape.value);
        DiskRisk {
            life_hours: DiskRisk::life_hours(self.afr.value / 100.0, shape),
            shape,
            latent_per_hour: self.latent.value / YEAR_HOURS,
            unreadable_per_bit: self.unreadable.value,
            bits: blocks as f64 * 4096.0,
            rebuild_hours,
        }
    }

    pub(super) fn check(&self) -> Result<(), ProfileError> {
        unit("reliability.afr", &self.afr, "%/year")?;
        unit("reliability.unreadable", &self.unreadable, "sectors/bit")?;
        unit("reliability.latent", &self.latent, "events/year")?;
        let (afr, unreadable) = (self.afr.value, self.unreadable.value);
        range("reliability.afr", afr, afr > 0.0 && afr < 100.0, "more than 0 and below 100")?;
        let is_right = (0.0..1e-3).contains(&unreadable);
        range("reliability.unreadable", unreadable, is_right, "from 0 to 0.001")?;
        let latent = self.latent.value;
        range("reliability.latent", latent, (0.0..1e6).contains(&latent), "from 0 to 10^6")?;
        if let Some(shape) = &self.shape {
            unit("reliability.shape", shape, "Weibull")?;
            let is_right = (0.1..=10.0).contains(&shape.value);
            range("reliability.shape", shape.value, is_right, "from 0.1 to 10")?;
        }
        if let Some(workload) = &self.workload {
            unit("reliability.workload", workload, "TB/year")?;
            let is_right = workload.value > 0.0 && workload.value < 1e9;
            range("reliability.workload", workload.value, is_right, "more than 0")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::builtin;

    #[test]
    fn every_built_in_disk_says_how_it_fails_and_its_rate_is_that_of_a_year() {
        for name in builtin::names() {
            let profile = builtin::get(name).unwrap().unwrap();
            let reliability = profile.reliability.clone().unwrap_or_else(|| panic!("{name}"));
            let risk = reliability.risk(profile.build().unwrap().blocks(), 10.0);
            let lost = 1.0 - (-(YEAR_HOURS / risk.life_hours).powf(risk.shape)).exp();
            assert!((lost * 100.0 / reliability.afr.value - 1.0).abs() < 1e-9, "{name}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_and_what_is_left_out_is_usual() {
        let mut profile = builtin::get("hdd-4tb").unwrap().unwrap();
        let wrong = profile.reliability.as_mut().unwrap();
        wrong.afr.value = 0.0;
        let told = profile.build().unwrap_err().to_string();
        assert_eq!(told, "reliability.afr is 0; it must be more than 0 and below 100");
        profile.reliability.as_mut().unwrap().afr.unit = "hours".to_owned();
        assert!(profile.build().unwrap_err().to_string().contains("%/year"));
        profile.reliability = None;
        profile.build().unwrap();
        assert_eq!(profile.reliability().afr.confidence, Confidence::Guess);
    }
}
