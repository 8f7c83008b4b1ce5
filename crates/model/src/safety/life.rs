//! One life of a system, drawn with failures more frequent than they are, and its weight.
//!
//! Invariants: between two events each disk's hazard is multiplied by a constant; the weight is the
//! ratio of how likely the life is to how likely it was to be drawn, up to now.

use super::{Group, Rebuilds, System};
use crate::dice::Dice;

/// What a life adds to the estimates.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lost {
    /// Its weight, if the array was lost.
    pub array: f64,
    /// Its weight, as far as data was lost.
    pub data: f64,
}

/// How much more often disks fail in drawn lives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bias {
    /// What hazards are multiplied by while all disks are there.
    healthy: f64,
    /// Failures that are drawn during each rebuild of a first missing disk.
    degraded: f64,
}

impl Bias {
    /// So that a life meets with a first failure, and one of its rebuilds with a second: more would make
    /// weights uneven.
    pub(super) fn new(system: &System, hours: f64) -> Self {
        let failures: f64 = system.disks.iter().map(|disk| disk.hazard(hours)).sum();
        Self { healthy: (1.0 / failures).max(1.0), degraded: 1.0 / failures.max(1.0) }
    }
}

/// Where a disk stands.
#[derive(Clone, Copy, Debug)]
enum Disk {
    /// It works, and is so new as that hour.
    Works { since: f64 },
    /// Its replacement is being filled.
    Fills { from: f64, until: f64 },
}

pub(super) struct Life<'a> {
    system: &'a System,
    end: f64,
    now: f64,
    disks: Vec<Disk>,
    /// When each spare is there, that is not in use.
    spares: Vec<f64>,
    /// The last scrub before the start.
    scrubbed: f64,
    log_weight: f64,
    /// The probability that no sector was lost so far.
    is_whole: f64,
    lost: Lost,
}

impl<'a> Life<'a> {
    pub(super) fn new(system: &'a System, hours: f64) -> Self {
        Self {
            system,
            end: hours,
            now: 0.0,
            disks: vec![Disk::Works { since: 0.0 }; system.disks.len()],
            spares: vec![0.0; system.care.hot_spares],
            scrubbed: 0.0,
            log_weight: 0.0,
            is_whole: 1.0,
            lost: Lost::default(),
        }
    }

    pub(super) fn run(mut self, bias: &Bias, dice: &mut Dice) -> Lost {
        self.scrubbed = self.system.care.scrub_hours.map_or(0.0, |hours| -hours * dice.part());
        loop {
            let next = self.next_rebuilt().unwrap_or(self.end).min(self.end);
            let factors = self.factors(bias);
            let failure = self.draw(&factors, next - self.now, dice);
            self.pass(&factors, failure.map_or(next, |(at, _)| at));
            if let Some((_, disk)) = failure {
                self.log_weight -= factors[disk].ln();
                if self.fail(disk, dice) {
                    break;
                }
            } else if next >= self.end {
                break;
            } else {
                self.finish_rebuilds();
            }
        }
        self.lose_unprotected();
        self.lost
    }

    /// When the next rebuild ends.
    fn next_rebuilt(&self) -> Option<f64> {
        let ends = self.disks.iter().filter_map(|disk| match disk {
            Disk::Fills { until, .. } => Some(*until),
            Disk::Works { .. } => None,
        });
        ends.min_by(f64::total_cmp)
    }

    fn finish_rebuilds(&mut self) {
        for disk in &mut self.disks {
            if let Disk::Fills { from, until } = *disk
                && until <= self.now
            {
                *disk = Disk::Works { since: from };
            }
        }
    }

    /// By what each disk's hazard is multiplied from now on.
    fn factors(&self, bias: &Bias) -> Vec<f64> {
        let last = self.disks.iter().filter_map(|disk| match disk {
            Disk::Fills { until, .. } => Some(*until),
            Disk::Works { .. } => None,
        });
        let Some(last) = last.max_by(f64::total_cmp) else {
            return vec![bias.healthy; self.disks.len()];
        };
        // Failures elsewhere lead nowhere: only what shares a group with a missing slot is hurried.
        let mut is_near = vec![false; self.disks.len()];
        let mut missing_max = 0;
        for group in &self.system.groups {
            let missing = self.missing(group);
            if missing > 0 {
                missing_max = missing_max.max(missing);
                group.slots.iter().flatten().for_each(|&disk| is_near[disk] = true);
            }
        }
        let last = last.min(self.end);
        let near = (0..self.disks.len()).filter(|&disk| is_near[disk]);
        let hazards: f64 = near.map(|disk| self.grows(disk, last)).sum();
        let wanted = if missing_max > 1 { 1.0 } else { bias.degraded };
        let factor = if hazards > 0.0 { (wanted / hazards).max(1.0) } else { 1.0 };
        is_near.iter().map(|&is_near| if is_near { factor } else { 1.0 }).collect()
    }

    /// By what a disk's integrated hazard grows until then.
    fn grows(&self, disk: usize, until: f64) -> f64 {
        let Disk::Works { since } = self.disks[disk] else { return 0.0 };
        let risk = &self.system.disks[disk];
        risk.hazard((until - since).max(0.0)) - risk.hazard(self.now - since)
    }

    /// The first failure within so many hours, and whose it is.
    fn draw(&self, factors: &[f64], hours: f64, dice: &mut Dice) -> Option<(f64, usize)> {
        let mut first: Option<(f64, usize)> = None;
        for (index, disk) in self.disks.iter().enumerate() {
            let Disk::Works { since } = *disk else { continue };
            let risk = &self.system.disks[index];
            let hazard = risk.hazard(self.now - since) + dice.exponential() / factors[index];
            let at = (since + risk.age_of(hazard)).max(self.now);
            if at < self.now + hours && first.is_none_or(|(earliest, _)| at < earliest) {
                first = Some((at, index));
            }
        }
        first
    }

    /// Time goes by without a failure.
    fn pass(&mut self, factors: &[f64], until: f64) {
        let grown: f64 =
            (0..self.disks.len()).map(|disk| (factors[disk] - 1.0) * self.grows(disk, until)).sum();
        self.log_weight += grown;
        self.now = until;
    }

    /// A disk fails. Says whether that is the end of the array.
    fn fail(&mut self, disk: usize, dice: &mut Dice) -> bool {
        let before: Vec<usize> =
            self.system.groups.iter().map(|group| self.missing(group)).collect();
        self.disks[disk] = self.replacement(disk, dice);
        let system = self.system;
        for (group, before) in system.groups.iter().zip(before) {
            let missing = self.missing(group);
            if missing > group.tolerance {
                let weight = self.log_weight.exp();
                self.lost.array = weight;
                self.lost.data += weight * self.is_whole;
                self.is_whole = 0.0;
                return true;
            }
            if missing > before && missing == group.tolerance {
                self.lose_sectors(self.unreadable(group));
            }
        }
        false
    }

    /// The replacement of a disk that has just failed.
    fn replacement(&mut self, disk: usize, dice: &mut Dice) -> Disk {
        let care = &self.system.care;
        self.spares.push(self.now + care.replace_hours);
        let soonest = self.spares.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
        let index = soonest.map_or(0, |(index, _)| index);
        let from = self.spares.swap_remove(index).max(self.now);
        let hours = self.system.disks[disk].rebuild_hours;
        let hours = match care.rebuilds {
            Rebuilds::Fixed => hours,
            Rebuilds::Exponential => hours * dice.exponential(),
        };
        Disk::Fills { from, until: from + hours }
    }

    fn missing(&self, group: &Group) -> usize {
        let is_missing = |disk: &usize| matches!(self.disks[*disk], Disk::Fills { .. });
        group.slots.iter().filter(|slot| slot.iter().any(is_missing)).count()
    }

    /// How much of a slot has been rebuilt: all of one that is not missing.
    fn rebuilt(&self, slot: &[usize]) -> f64 {
        let parts = slot.iter().map(|&disk| match self.disks[disk] {
            Disk::Works { .. } => 1.0,
            Disk::Fills { from, until } => {
                ((self.now - from) / (until - from).max(1e-9)).clamp(0.0, 1.0)
            }
        });
        parts.fold(1.0, f64::min)
    }

    /// How many sectors of a group that has no redundancy left cannot be read, in the mean.
    fn unreadable(&self, group: &Group) -> f64 {
        let is_missing = |slot: &[usize]| {
            slot.iter().any(|&disk| matches!(self.disks[disk], Disk::Fills { .. }))
        };
        // Only beyond where the furthest rebuild has come are all that may be missing missing.
        let missing = group.slots.iter().filter(|slot| is_missing(slot));
        let left = 1.0 - missing.map(|slot| self.rebuilt(slot)).fold(0.0, f64::max);
        let rest = group.slots.iter().filter(|slot| !is_missing(slot)).flatten();
        left * rest.map(|&disk| self.unreadable_of(disk, group.bits)).sum::<f64>()
    }

    fn unreadable_of(&self, disk: usize, bits: f64) -> f64 {
        let risk = &self.system.disks[disk];
        let Disk::Works { since } = self.disks[disk] else { return 0.0 };
        let share = if risk.bits > 0.0 { bits / risk.bits } else { 0.0 };
        let unseen = self.now - since.max(self.last_scrub());
        risk.latent_per_hour * share * unseen - bits * (-risk.unreadable_per_bit).ln_1p()
    }

    fn last_scrub(&self) -> f64 {
        let Some(hours) = self.system.care.scrub_hours else { return 0.0 };
        self.scrubbed + ((self.now - self.scrubbed) / hours).floor() * hours
    }

    /// Sectors are lost with the probability that goes with so many in the mean.
    fn lose_sectors(&mut self, mean: f64) {
        let kept = (-mean).exp();
        self.lost.data += self.log_weight.exp() * self.is_whole * (1.0 - kept);
        self.is_whole *= kept;
    }

    /// Where there is no redundancy, what became unreadable is lost.
    fn lose_unprotected(&mut self) {
        let groups = self.system.groups.iter().filter(|group| group.tolerance == 0);
        let mean =
            groups.flat_map(|group| group.slots.iter().flatten().map(|&disk| (disk, group.bits)));
        let mean: f64 = mean
            .map(|(disk, bits)| {
                let risk = &self.system.disks[disk];
                risk.latent_per_hour * bits / risk.bits.max(1.0) * self.now
            })
            .sum();
        if mean > 0.0 {
            self.lose_sectors(mean);
        }
    }
}

impl Dice {
    /// Even, more than 0 and at most 1.
    fn part(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Exponential with mean 1.
    fn exponential(&mut self) -> f64 {
        -self.part().ln()
    }
}
