//! How likely it is that an array loses data over years.
//!
//! Disks fail (at a constant rate or by Weibull's law), are replaced and rebuilt; sectors become
//! unreadable without anybody noticing until a scrub or a rebuild reads them. Lives of the whole are
//! drawn (Monte Carlo). Losses are rare, so failures are drawn more often than they come and each life
//! counts for the less (importance sampling: forcing the first failure, biasing those during a
//! rebuild; Heidelberger, Shahabuddin and Nicola, 1994). That keeps the relative error bounded however
//! rare the loss is, needs no levels to be chosen as splitting does, and its weights are exact for any
//! law whose integrated hazard is known. Unreadable sectors are not drawn: their probability is added
//! up in closed form along each life.
//!
//! What it does not do: know why disks fail. Failures are independent of each other and of the load:
//! a bad batch, a common power supply, a fire, or a mistake of the operator are not in here, so that
//! real arrays lose data more often. A disk that is being rebuilt does not fail; several are rebuilt side by side.

mod estimate;
mod life;
mod rebuild;

pub use estimate::{Effort, Estimate, Loss, loss};
pub use rebuild::{RebuildPart, rebuild_hours};

/// Hours of a year.
pub const YEAR_HOURS: f64 = 8_766.0;

/// What can happen to a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskRisk {
    /// Weibull's scale: hours after which 63 % of such disks have failed.
    pub life_hours: f64,
    /// Weibull's shape: 1 is a constant rate, more is wear, less are early deaths.
    pub shape: f64,
    /// Sectors that become unreadable in an hour, anywhere on it.
    pub latent_per_hour: f64,
    /// Sectors that cannot be read, for each bit that is read.
    pub unreadable_per_bit: f64,
    /// Bits on the whole disk.
    pub bits: f64,
    /// From when a replacement is there until it holds everything, in hours.
    pub rebuild_hours: f64,
}

impl DiskRisk {
    /// The scale at which a share of disks (`annual`, 0 to 1) fails in the first year.
    #[must_use]
    pub fn life_hours(annual: f64, shape: f64) -> f64 {
        YEAR_HOURS / (-(-annual).ln_1p()).powf(1.0 / shape)
    }

    /// The integrated hazard up to an age.
    fn hazard(&self, age: f64) -> f64 {
        (age / self.life_hours).powf(self.shape)
    }

    /// The age at which the integrated hazard is this.
    fn age_of(&self, hazard: f64) -> f64 {
        self.life_hours * hazard.powf(1.0 / self.shape)
    }
}

/// Slots that keep data for each other. A slot is missing when one of its disks is.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The disks of each slot: one, or the members of a stripe that stands in for one.
    pub slots: Vec<Vec<usize>>,
    /// How many slots may be missing.
    pub tolerance: usize,
    /// Bits of each disk that belong to the group.
    pub bits: f64,
}

/// How the disks are looked after.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Care {
    /// Spares that are built in.
    pub hot_spares: usize,
    /// From a failure until a new disk is in the machine, in hours.
    pub replace_hours: f64,
    /// Between two scrubs, in hours; none if nobody scrubs.
    pub scrub_hours: Option<f64>,
    /// How long rebuilds take.
    pub rebuilds: Rebuilds,
}

/// How long rebuilds take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rebuilds {
    /// Exactly as long as the disk's figure says.
    Fixed,
    /// As long in the mean, by an exponential law: what Markov models assume.
    Exponential,
}

/// Disks, what keeps data for what, and how they are looked after.
#[derive(Clone, Debug, PartialEq)]
pub struct System {
    /// The disks.
    pub disks: Vec<DiskRisk>,
    /// Data is lost when one of them misses more slots than it tolerates.
    pub groups: Vec<Group>,
    /// How the disks are looked after.
    pub care: Care,
}

/// The probability that at least one of `bits` cannot be read: 1-(1-p)^n.
#[must_use]
pub fn unreadable(per_bit: f64, bits: f64) -> f64 {
    -(bits * (-per_bit).ln_1p()).exp_m1()
}

#[cfg(test)]
mod tests;
